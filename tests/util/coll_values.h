/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the tests of collectives with lossy codecs, over any transport. A case describes one call; its seed gives
 * all ranks' data. Also sums over ranks of inputs and outputs. */
#ifndef PICI_TESTS_COLL_VALUES_UTIL_H
#define PICI_TESTS_COLL_VALUES_UTIL_H

#include "pici/coll.h"

enum values_data {
    DATA_GAUSS,   /* independent on each rank, variance 1, nearly Gaussian */
    DATA_SAME,    /* the same on all ranks */
    DATA_SPARSE,  /* a part of the elements, in clusters */
    DATA_SPECIAL, /* -0.0, NaNs, infinities, the least and the greatest floats among others */
    DATA_KINDS,
    DATA_NORMAL = DATA_KINDS, /* Gaussian; takes longer to make */
    DATA_ALIKE                /* Gaussian, and on all ranks the same but for a little noise */
};

struct values_case {
    enum pici_collective collective;
    enum pici_algorithm algorithm;
    enum pici_dtype dtype; /* a float of 2, 4 or 8 bytes; exact: any, the others' elements with random bits */
    enum pici_op op;
    uint64_t count; /* as in the call */
    struct pici_values values;
    enum values_data data;
    uint64_t seed;
    enum pici_format format;
    int window, in_place, residual; /* residual: ranks have one */
    uint64_t slice_bytes;           /* 0: slices as short as a codec allows */
    int checksum, timeout_ms;       /* as in options */
    int exact;                      /* opts.values is NULL */
    enum pici_dtype refused;        /* of the call, which is refused; 0: dtype */
    int overlap;                    /* 1: the residual overlaps what is sent, 2: what is received */
};

/* A rank's buffers. Those of residuals begin as `before`, small numbers. */
struct values_rank {
    uint8_t *send, *recv, *residual, *before;
    uint8_t *apart;           /* what send is if it is not a part of recv */
    uint64_t sends, receives; /* elements */
    struct pici_coll_stats stats;
};

/* Codecs with parameters that tests go through; -1: no more. A codec that this library lacks is left out. */
int values_codecs(void);
struct pici_values values_codec(int i, enum pici_dtype *dtype);
const char *values_words(const struct values_case *, int p);

void values_rank_make(struct values_rank *, const struct values_case *, int rank, int p);
enum pici_status values_rank_call(struct values_rank *, const struct values_case *, struct pici_comm *);
void values_rank_free(struct values_rank *);

/* Element i of an array as a double. */
double values_load(enum pici_dtype, const uint8_t *, uint64_t i);

/* What is wrong with the sums over all ranks, or NULL, in static memory: what was sent, with residuals before the call,
 * is what was received, with residuals after it. Only for finite data. */
const char *values_conserved(const struct values_case *, const struct values_rank *, int p);

#endif
