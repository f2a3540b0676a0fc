/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Value codecs: what represents n elements in a message. A codec turns the elements of a segment's slice into arrays of
 * existing dtypes, and each array is sent as an ordinary lossless block. A codec knows nothing of blocks, messages or
 * nonzero positions. There is one codec in each file, and all ranks of a collective use the same one.
 *
 * The exact codec is the only one so far. It has one array: the elements themselves. */
#ifndef PICI_LIB_VALUES_VALUES_H
#define PICI_LIB_VALUES_VALUES_H

#include "pici/coll.h"

struct pici_values; /* a codec's parameters; the exact one has none */

/* What an encoding may depend on, besides the elements. */
struct values_where {
    uint64_t first;    /* index of the first element in the call's total */
    uint64_t sequence; /* of the collective, on its communicator */
    int gather;        /* 1: results, 0: partial sums */
    int origin;        /* position of the rank that made them */
};

enum { VALUES_ARRAYS = 2 }; /* the most of any codec */

struct pici_codec {
    const char *name;
    int arrays; /* in the order in which their blocks stand in a message */
    /* PICI_OK if the codec can carry these elements for this operation; else PICI_E_UNSUPPORTED or PICI_E_ARG. */
    enum pici_status (*accepts)(const struct pici_values *, enum pici_dtype, enum pici_op);
    uint64_t (*unit)(const struct pici_values *); /* a slice is a multiple of so many elements */
    /* For each array: the most elements that represent n elements, and their dtype. */
    uint64_t (*most)(const struct pici_values *, int array, uint64_t n);
    enum pici_dtype (*dtype)(const struct pici_values *, int array, enum pici_dtype elements);
    /* Elements to arrays and back. residual: as long as src, or NULL; what the encoding loses is added to it. widen
     * accepts any arrays, since they are untrusted. Both are NULL if the one array is the elements themselves. */
    enum pici_status (*narrow)(const struct pici_values *, const struct values_where *, void *const out[VALUES_ARRAYS],
                               uint64_t made[VALUES_ARRAYS], const void *src, uint64_t n, void *residual);
    enum pici_status (*widen)(const struct pici_values *, void *dst, uint64_t n, const void *const in[VALUES_ARRAYS],
                              const uint64_t have[VALUES_ARRAYS]);
};

extern const struct pici_codec pici_codec_exact;

#endif
