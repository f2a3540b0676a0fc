/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for the selection of the largest elements of one dtype: f32, f64, f16 or bf16. Elements are in host order, at
 * any alignment. A magnitude is the bits of an element without its sign, as an integer. pici/topk.h defines the
 * arithmetic. Every ISA gives the same results. */
#ifndef PICI_LIB_CPU_TOPK_H
#define PICI_LIB_CPU_TOPK_H

#include <stddef.h>
#include <stdint.h>

enum {
    TOPK_BINS_LOG2 = 11, /* bits of a magnitude that one pass of counting resolves */
    TOPK_BINS = 1 << TOPK_BINS_LOG2,
    TOPK_TABLES = 4,        /* neighbouring elements use different tables: repeated updates of one counter are slow */
    TOPK_BUCKET_MOST = 4096 /* elements of the longest bucket that `buckets` takes */
};

/* Counters of bins. The last counter of a table is for magnitudes outside the bins. */
typedef uint32_t pici_topk_counts[TOPK_TABLES][TOPK_BINS + 1];

/* The terms of acc. */
struct pici_topk_terms {
    const uint8_t *gradient, *residual; /* residual: null if there is none */
    uint8_t *velocity;                  /* in, out; null if there is none */
    float rate, leak, momentum;
};

/* Destinations of acc. */
struct pici_topk_to {
    uint8_t *selected, *residual, *velocity; /* the last two: null if there is none */
    int stream;                              /* write selected with non-temporal stores, if the ISA has them */
};

/* What a pass over acc finds. found: null, or where the magnitudes in [low, least) go, as elements; it has room for as
 * many as there are in the pass, and may be the gradient. 1 <= low. */
struct pici_topk_survey {
    uint64_t low, least;
    uint8_t *found;
    uint64_t count, nonzeros, reach; /* in, out: added to. In found; of acc; of at least `least` */
};

/* Consecutive buckets. */
struct pici_topk_buckets {
    struct pici_topk_terms terms;
    struct pici_topk_to target;
    size_t elements;
    uint32_t bucket, most_kept; /* 1 <= k <= bucket <= TOPK_BUCKET_MOST */
};

struct pici_topk_kernels {
    /* Compute acc of n elements, and the velocity. acc may be the residual or the gradient. */
    void (*accumulate)(uint8_t *acc, const struct pici_topk_terms *, size_t n);
    /* Compute acc as `accumulate` does, and survey it. */
    void (*survey)(uint8_t *acc, const struct pici_topk_terms *, size_t n, struct pici_topk_survey *);
    /* Returns the number of elements, of n, with a magnitude of at least `least` >= 1. */
    uint64_t (*at_least)(const uint8_t *src, size_t n, uint64_t least);
    /* Count n < 2^32 elements: bin b counts magnitudes in [low + (b << shift), low + ((b + 1) << shift)). TOPK_BINS <<
     * shift is at most the number of the dtype's magnitudes. Adds to the tables; the sum of all tables is the
     * result. */
    void (*tally)(pici_topk_counts, const uint8_t *src, size_t n, uint64_t low, unsigned shift);
    /* Returns the number of elements up to and including the count-th with this magnitude; n if there are fewer; 0 for
     * count 0. */
    size_t (*up_to)(const uint8_t *src, size_t n, uint64_t magnitude, uint64_t count);
    /* Store acc in selected where its magnitude is at least `least` >= 1, else in residual; set the others to +0. acc
     * may be selected or residual. */
    void (*place)(const struct pici_topk_to *, const uint8_t *acc, size_t n, uint64_t least);
    /* Accumulate and select in whole buckets. Returns the number of kept elements. */
    uint64_t (*buckets)(const struct pici_topk_buckets *);
};

#endif
