/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What list and inspect measure of tensors. */
#ifndef PICI_TOOLS_MEASURE_MEASURE_H
#define PICI_TOOLS_MEASURE_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "measure/density.h"
#include "measure/grid.h"
#include "pici/pici.h"

enum { FORMATS = 4 }; /* PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID */

/* The size and the times of one of two compressors that are compared, summed over chunks. */
struct rival {
    uint64_t bytes;
    double compress, decompress; /* seconds */
};

struct sizes {
    uint64_t elements, nonzeros;
    uint64_t bytes[FORMATS];         /* of the blocks that a .pici file would have, by format */
    uint64_t best;                   /* the same, each chunk in its smallest format */
    uint64_t dense_bytes;            /* of the elements alone */
    struct pici_breakdown breakdown; /* of the hybrid blocks */
    struct rival pici, zstd;         /* with --compare */
    uint64_t negative_zeros;         /* elements of float dtypes that are -0.0; they count as nonzeros */
    uint64_t by_value_saves;         /* how much shorter best would be by value, which stores no zeros of either sign */
    uint64_t packing_saves;          /* how much shorter best would be with --pack planes */
    double bound; /* the entropy bound in bytes: values that are not 0, the bits that their positions need if they are
                   * random, and those that the signs of zeros need */
};

/* Memory for the blocks that are measured. Zero it before its first use; free memory after the last. */
struct scratch {
    uint8_t *memory;
    size_t capacity;
};

/* Make room for size bytes; the contents may be lost. False: no memory. */
bool scratch_fit(struct scratch *, size_t size);

/* Find the containers that a hybrid block of these elements would have. False: no memory. */
bool measure_breakdown(struct pici_breakdown *breakdown, struct scratch *, enum pici_dtype dtype, const void *elements,
                       uint64_t count, enum pici_zeros zeros);

/* The length of a packed block of these elements -> *bytes; UINT64_MAX if the dtype has none. False: no memory. */
bool measure_packed(uint64_t *bytes, struct scratch *, enum pici_dtype dtype, const void *elements, uint64_t count);

/* How many of count elements are -0.0. 0 if the dtype has none. */
uint64_t measure_negative_zeros(enum pici_dtype dtype, const void *elements, uint64_t count);

/* Add up; other_bytes too. */
void breakdown_sum(struct pici_breakdown *total, const struct pici_breakdown *breakdown);

/* Bytes of the header and directory of a hybrid block of elements elements, at most 2^32. */
uint64_t hybrid_head(uint64_t elements);

/* Count a block of elements, at most 2^32, with so many nonzeros; breakdown: its containers as a hybrid block. */
void sizes_add(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
               const struct pici_breakdown *breakdown);

/* Count the negative zeros of that block, and what it would save by value; by_value: its containers then. */
void sizes_by_value(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                    const struct pici_breakdown *breakdown, uint64_t negative_zeros,
                    const struct pici_breakdown *by_value);

/* Count what that block saves if it is packed: its length then is `packed`. */
void sizes_packed(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                  const struct pici_breakdown *breakdown, uint64_t packed);

/* Set bound, once all blocks of a tensor have been counted. */
void sizes_end(struct sizes *sizes);

/* Add up. */
void sizes_sum(struct sizes *total, const struct sizes *sizes);

/* The smallest format; ties go to the lowest number, as in PICI_AUTO. */
enum pici_format sizes_best(const struct sizes *sizes);

struct measured {
    char *name; /* [name_size], then a NUL */
    size_t name_size;
    char *dtype_text; /* as in the original file, or NULL */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t *shape; /* [rank] */
    bool fortran, big_endian;
    const char *shard; /* of a folder, the file that has it; not owned. Else NULL */
    char *view;        /* how the original sees these elements, in words; or NULL */
    const char *kind;  /* in a delta: how it is stored; or NULL */
    uint64_t elements;
    struct sizes *sizes; /* what inspect measures; NULL in a list, which may have millions of tensors */
    uint64_t stored;     /* bytes in a .pici file; 0: not known, or none */
    uint64_t chunks;     /* in that file */
    char *spark;         /* sparkline, or NULL */
};

struct report {
    const char *file, *type; /* to show */
    uint64_t file_bytes;     /* 0: not known */
    struct measured *tensor; /* [tensors] */
    size_t tensors, capacity;
    struct sizes total;
    uint64_t stored;                   /* of all tensors; 0: not known */
    uint64_t referred, referred_bytes; /* tensors that are references, and the bytes of their elements */
    int zstd_level;                    /* of --compare; 0: nothing is compared */
    struct density *density_map;       /* of the last tensor, or NULL; so is the next */
    struct grid *grid;
};

/* Append a tensor to the report, zeroed except for its name. NULL: no memory. */
struct measured *report_add(struct report *report, const char *name, size_t name_len);

/* Count a tensor that is a reference. */
void report_refer(struct report *report, enum pici_dtype, uint64_t elements);

void report_free(struct report *report);

#endif
