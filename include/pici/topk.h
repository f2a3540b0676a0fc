/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Top-k selection with error feedback. A call keeps the elements of a gradient with the largest magnitudes and sets all
 * others to +0. It adds the rest to the gradient of the next step. The result is mostly zero: good input for
 * pici_compress and the collectives of pici/coll.h.
 *
 * The caller owns the state of a selection: the arrays residual and velocity, and the number of the step. Save them
 * with the model, for each tensor and rank. There is no other state.
 *
 * The rules of pici.h about elements, ownership, memory, threads, options and structs that grow hold here too. */
#ifndef PICI_TOPK_H
#define PICI_TOPK_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which elements to keep. Zeros of either sign are never kept. */
enum pici_select {
    PICI_SELECT_BUCKET = 0, /* the k largest of each `bucket` consecutive elements; in a last bucket of m < bucket
                             * elements, the ceil(k * m / bucket) largest */
    PICI_SELECT_GLOBAL = 1, /* the t = ceil(density * n) largest of all, where density * n is rounded to a double */
    PICI_SELECT_SAMPLED = 2 /* all elements that reach a magnitude estimated from a random sample. If these are more
                             * than 2 * t, or fewer than half of GLOBAL's elements: as GLOBAL */
};

/* Options of pici_topk. Set with PICI_TOPK_OPTS_INIT. A member out of range is PICI_E_ARG, even if the selection does
 * not use it. */
struct pici_topk_opts {
    size_t size;
    enum pici_select select; /* default PICI_SELECT_BUCKET */
    uint32_t bucket, k;      /* BUCKET: elements of a bucket, at least 1, default 512; elements kept of each, 1 to
                              * bucket, default 4 */
    double density;          /* GLOBAL, SAMPLED: the fraction to keep. Above 0, at most 1; default 0.01 */
    double sample;           /* SAMPLED: the fraction in the sample, 0 to 1, default 0.001. A sample has at least 100 /
                              * density elements; if that is n or more: as GLOBAL */
    float rate;              /* factor of the gradient, finite; default 1 */
    float leak;              /* factor of the residual, 0 to 1; default 1 */
    float momentum;          /* factor of the velocity, at least 0 and below 1; default 0: no velocity */
    uint64_t seed, step; /* SAMPLED: choose the sample's positions (Philox4x32-10, key seed, counter step); default 0.
                          * Pass the number of the step, so that each step draws other positions */
    int threads;         /* as in struct pici_opts; default 1 */
};
#define PICI_TOPK_OPTS_INIT {sizeof(struct pici_topk_opts), PICI_SELECT_BUCKET, 512, 4, 0.01, 0.001, 1, 1, 0, 0, 0, 1}

/* Add a gradient to the residual of earlier steps, and keep the largest elements of the sum:
 *   velocity   if momentum > 0: momentum * velocity + rate * gradient
 *   acc        leak * residual + velocity; if momentum is 0: leak * residual + rate * gradient
 *   out        acc where it is kept, +0 elsewhere
 *   residual   acc where it is not kept, +0 elsewhere; so out or residual has the bits of acc
 *   velocity   afterwards: +0 where acc is kept (the "factor masking" of deep gradient compression)
 * Without a residual (null), its term is omitted, and elements that are not kept are lost.
 *   out       [n elements of dtype]  output; may be gradient
 *   nnz       out: elements that were kept; unchanged unless PICI_OK
 *   residual  [n elements of dtype]  read and written; all +0 before the first step. NULL: none
 *   velocity  [n elements of dtype]  read and written; all +0 before the first step. NULL if and only if momentum is 0
 *   gradient  [n elements of dtype]  must not change during the call
 * No two of the arrays may overlap, except that out may be gradient.
 *
 * Arithmetic: each product and each sum is rounded to nearest even, in f64 for f64, else in f32, without fused
 * operations. For f16 and bf16, velocity and acc are then rounded once more, to dtype, and acc adds the stored
 * velocity. A sum of two NaNs gives the left one in the formulas above; NaNs become quiet. The NaN of an invalid
 * operation (infinity - infinity, 0 * infinity) has the host's sign.
 *
 * Order: a magnitude is the bits of an element without its sign, compared as integers. So NaNs are larger than
 * infinities, and infinities larger than all other elements. They are kept and reach the other ranks, instead of
 * staying in the residual. Among equal magnitudes, those with lower indices are kept. The result has the same bits on
 * every instruction set, at any number of threads.
 *
 * On an error the call writes nothing.
 * PICI_E_ARG: unknown dtype or selection, null (arrays only if n > 0), overlap, more bytes than size_t holds, bad
 * options. If n > 0, also a velocity without momentum, or momentum without a velocity.
 * PICI_E_UNSUPPORTED: a dtype other than f32, f64, f16 and bf16; options of a later version. */
PICI_API enum pici_status pici_topk(void *out, uint64_t *nnz, void *residual, void *velocity, const void *gradient,
                                    uint64_t n, enum pici_dtype, const struct pici_topk_opts *);

/* The density at a step of the warm-up of deep gradient compression (Lin et al., 2018). It is 1/4 in the first epoch,
 * then 1/16, 1/64 and 1/256, and 0.001 from the fifth epoch on.
 *   step            from 0 on
 *   steps_an_epoch  0: no warm-up, always 0.001
 * To end with another density d, pass the larger of the result and d to pici_topk. */
PICI_API double pici_topk_warmup(uint64_t step, uint64_t steps_an_epoch);

#ifdef __cplusplus
}
#endif
#endif
