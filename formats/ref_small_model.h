/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What small deltas code of an element, and with which odds: the parts of ref_small.c that count. */
#ifndef PICI_FORMATS_REF_SMALL_MODEL_H
#define PICI_FORMATS_REF_SMALL_MODEL_H

#include "ref_base.h"
#include "ref_small_twist.h"

enum { TOKENS = 32, NODES = 32, NO_ODDS = 256 };

/* What context chunks of version 3 take for the dtype of u8 elements that hold two e2m1, once these are widened. */
enum { REF_E2M1 = 15 };

/* What a dtype's elements are made of; w is 0 for one without context chunks. */
struct ref_shape {
    unsigned w, mantissa;
    int literals, tree;
    unsigned pairs; /* elements of a chunk for each element of the delta: 1 or 2 */
};

struct ref_model {
    struct ref_shape s;
    unsigned low, top, frequent_odds;
    uint32_t frequent, classes;
    unsigned changed[32], most[32];
    unsigned token[32][NODES]; /* odds of levels or nodes; NO_ODDS where there are none */
};

struct ref_shape ref_shape_of(unsigned dtype);
uint64_t ref_mask(unsigned bits); /* bits < 64 */

int64_t ref_ord(const struct ref_shape *, uint64_t u);
uint64_t ref_from_ord(const struct ref_shape *, int64_t o);
/* new - old, as a signed integer of w bits. */
int64_t ref_difference(const struct ref_shape *, uint64_t old, uint64_t new);

/* Of 32768, how much is for a 0. */
uint32_t ref_share_of_0(unsigned q);

unsigned ref_class_of(const struct ref_shape *, unsigned low, uint64_t old);
int ref_is_literal(const struct ref_model *, uint64_t old);
unsigned ref_token_of(const struct ref_model *, uint64_t old, uint64_t new);
/* The extra bits of a token; of a literal that does not have the frequent mantissa. */
unsigned ref_extra_bits(const struct ref_model *, int literal, unsigned token);

/* Count everything, and then get one thing wrong. Returns 0 if nothing changed. */
int ref_model(struct ref_model *, const void *base, const void *src, uint64_t n, unsigned dtype, enum ref_small_twist);

#endif
