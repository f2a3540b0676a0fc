/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas against formats/ref_small.c. No test framework: a check returns null, or what is wrong in words. */
#ifndef PICI_TESTS_SMALL_UTIL_H
#define PICI_TESTS_SMALL_UTIL_H

#include "util.h"

/* Weights and what a step makes of them. */
enum step {
    STEP_NONE,
    STEP_TINY,   /* 1% change, mostly by one place; zeros become something */
    STEP_USUAL,  /* 8% */
    STEP_LARGE,  /* two of three, by many places */
    STEP_ALL,    /* every element, by a few places */
    STEP_ZEROS,  /* nearly all are zeros, of which half change */
    STEP_SIGNS,  /* signs alone */
    STEP_RANDOM, /* any bits become any bits */
    STEP_MIXED,  /* values of every sort, a fifth of which become others */
    STEPS
};

const char *step_name(enum step);

/* n elements each, host order. */
void step_fill(void *base, void *src, uint64_t n, enum pici_dtype, enum step, struct rng *);

/* With every ISA of this host, with one and three threads, in guarded buffers at odd addresses. The delta equals the
 * reference's and leads from base to src. A capacity of a byte less does not suffice; the bound does. Then the same
 * delta with a few bytes changed, so many times: every ISA says of it what the reference says. delta: null, or what
 * must be made. */
const char *check_small(const void *base, const void *src, uint64_t n, enum pici_dtype, enum pici_holds,
                        enum pici_format, int checksum, unsigned damages, struct rng *, const uint8_t *delta,
                        size_t len);

/* With every ISA of this host: applying a delta to base gives the status, and, if that is PICI_OK, src. */
const char *check_small_reader(const void *base, const void *src, uint64_t n, enum pici_dtype, const uint8_t *delta,
                               size_t len, enum pici_status);

#endif
