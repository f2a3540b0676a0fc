/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Mistakes that the reference codec of small deltas makes on request, for tests of decoders. */
#ifndef PICI_FORMATS_REF_SMALL_TWIST_H
#define PICI_FORMATS_REF_SMALL_TWIST_H

/* Mistakes of a context chunk that still decodes, but breaks the rule "recount". A number is one too large (of the
 * first class that has it), or the frequent mantissa is another. */
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
