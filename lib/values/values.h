/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lossy codecs represent the elements in a message. A codec turns the elements of a segment's slice into arrays of
 * existing dtypes, and each array is sent as an ordinary lossless block. A codec knows nothing of blocks, messages or
 * nonzero positions. There is one codec in each file, and all ranks of a collective use the same one. formats/values.md
 * specifies the arrays. */
#ifndef PICI_LIB_VALUES_VALUES_H
#define PICI_LIB_VALUES_VALUES_H

#include "pici/coll.h"

enum {
    VALUES_ARRAYS = 2, /* the most of any codec */
    VALUES_REDUCING = 1,
    VALUES_GATHERING = 2 /* of phases */
};

struct pici_codec;

/* The parameters of a call, complete: defaults are filled in, and what the codec does not use is 0. So two calls are
 * equal if and only if these members are. */
struct values {
    const struct pici_codec *codec;
    enum pici_dtype dtype; /* of the elements */
    unsigned phases;       /* VALUES_REDUCING, VALUES_GATHERING; exact: 0 */
    enum pici_dtype cast;
    int positive; /* CAST: -0.0 becomes +0.0. From the operation; pici_values_resolve leaves it 0 */
    int bits;     /* ZFP: 1 rate, 2 tolerance */
    int norm;     /* enum pici_norm; ZFP: the version of libzfp's streams */
    int rounding; /* enum pici_rounding */
    uint32_t bucket;
    uint64_t seed;
    double parameter; /* ZFP: rate or tolerance */
    uint32_t nx, ny;
};

/* What an encoding may depend on, besides the elements. */
struct values_where {
    uint64_t first;    /* index of the first element in the call's total */
    uint64_t sequence; /* of the collective, on its communicator */
    int gather;        /* 1: results, 0: partial sums */
    int origin;        /* position of the rank that made them */
};

/* What an encoding loses: x - D(x) for each element x that becomes D(x), where both are finite. */
struct values_loss {
    void *residual;     /* [n] elements of the call's dtype, to which times * the loss is added; or NULL */
    int times;          /* at least 1 */
    uint64_t nonfinite; /* out, added to: buckets or units that are not finite. Of CAST: elements */
    double squares;     /* out, added to: the sum of the squares of the losses, times not counted */
};

struct pici_codec {
    const char *name;
    enum pici_value_codec id;
    int arrays; /* in the order in which their blocks stand in a message */
    /* Fill in parameters from those requested (NULL: all are defaults), for elements of values->dtype. PICI_OK if the
     * codec can carry these elements for this operation; else PICI_E_UNSUPPORTED or PICI_E_ARG. */
    enum pici_status (*accepts)(struct values *values, const struct pici_values *asked, enum pici_op);
    /* The unit of slices: each begins at a multiple of this many elements, counted from its segment's first. */
    uint64_t (*unit)(const struct values *);
    /* For each array: the most elements that represent `count` elements, and their dtype. */
    uint64_t (*most)(const struct values *, int array, uint64_t count);
    enum pici_dtype (*dtype)(const struct values *, int array);
    /* The two functions are pure: their results depend on their arguments alone, and are the same on every CPU. Both
     * are NULL if the one array is the elements themselves. No buffers may overlap; any alignment; count may be 0.
     *
     * Narrow `count` elements, which begin at a multiple of the unit, to arrays. made_counts[]: elements of each. loss:
     * may be NULL. PICI_E_NOMEM. */
    enum pici_status (*quantize)(const struct values *, const struct values_where *, void *const outputs[VALUES_ARRAYS],
                                 uint64_t made_counts[VALUES_ARRAYS], const void *source, uint64_t count,
                                 struct values_loss *loss);
    /* Widen elements [first_element, first_element + count) of the total_count elements that the arrays represent,
     * input_counts[] elements in each. first_element: a multiple of the unit; count too, unless it reaches the total.
     * The arrays are untrusted: PICI_E_CORRUPT if they break a rule that concerns these elements. PICI_E_NOMEM. */
    enum pici_status (*dequantize)(const struct values *, void *destination, uint64_t first_element, uint64_t count,
                                   uint64_t total_count, const void *const inputs[VALUES_ARRAYS],
                                   const uint64_t input_counts[VALUES_ARRAYS]);
};

extern const struct pici_codec pici_codec_exact, pici_codec_cast, pici_codec_qsgd, pici_codec_zfp;

/* The codec and the parameters of a call with elements of this dtype. asked: the caller's, or NULL for exact; reads
 * only as much of it as its size says. PICI_E_ARG, PICI_E_UNSUPPORTED: as pici/coll.h says, and *values is exact. */
enum pici_status pici_values_resolve(struct values *values, const struct pici_values *asked, enum pici_dtype,
                                     enum pici_op);

/* PICI_E_ARG if these elements are not whole rows or planes. */
enum pici_status pici_values_count(const struct values *, uint64_t count);

#endif
