/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Mistakes that the reference codec of small deltas makes when it is told to, for tests of what must be refused. */
#ifndef PICI_FORMATS_REF_SMALL_TWIST_H
#define PICI_FORMATS_REF_SMALL_TWIST_H

/* What a context chunk may get wrong, so that it decodes and yet breaks the rule "recount": a number that is one more
 * than it should be (of the first class that has it), or another frequent mantissa. */
enum ref_small_twist {
    REF_TWIST_NONE,
    REF_TWIST_LOW,
    REF_TWIST_TOP,
    REF_TWIST_MOST, /* of all classes */
    REF_TWIST_CHANGED,
    REF_TWIST_TOKEN,
    REF_TWIST_FREQUENT,
    REF_TWIST_FREQUENT_ODDS,
    REF_TWIST_WIDE, /* of e2m1: the first new value has a fifth bit */
    REF_TWIST_LIST, /* not wrong, but its lists may be longer than allowed */
    REF_TWISTS
};

#endif
