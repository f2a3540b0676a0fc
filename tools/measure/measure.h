/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The measurements of tensors that list and inspect show. */
#ifndef PICI_TOOLS_MEASURE_MEASURE_H
#define PICI_TOOLS_MEASURE_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "measure/density.h"
#include "measure/grid.h"
#include "pici/pici.h"

enum { FORMATS = 4 }; /* PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID */

/* The size and times of one of two compared compressors, summed over chunks. */
struct rival {
    uint64_t bytes;
    double compress, decompress; /* seconds */
};

struct sizes {
    uint64_t elements, nonzeros;
    uint64_t bytes[FORMATS];         /* of the blocks in a .pici file, by format */
    uint64_t best;                   /* the same, with each chunk in its smallest format */
    uint64_t dense_bytes;            /* of the elements alone */
    struct pici_breakdown breakdown; /* of the hybrid blocks */
    struct rival pici, zstd;         /* with --compare */
    uint64_t negative_zeros;         /* elements that are -0.0; they count as nonzeros */
    uint64_t by_value_saves;         /* bytes that `best` saves by value, which stores no zeros of either sign */
    uint64_t packing_saves;          /* bytes that `best` saves with --pack planes */
    double bound; /* the entropy bound in bytes: the nonzero values, and the bits for their positions and for the signs
                   * of zeros, if both are random */
};

/* Memory for the measured blocks. Zero it before its first use; free memory after the last. */
struct scratch {
    uint8_t *memory;
    size_t capacity;
};

/* Make room for size bytes; the contents may be lost. False: no memory. */
bool scratch_fit(struct scratch *, size_t size);

/* Find the containers of the hybrid block of these elements. False: no memory. */
bool measure_breakdown(struct pici_breakdown *breakdown, struct scratch *, enum pici_dtype dtype, const void *elements,
                       uint64_t count, enum pici_zeros zeros);

/* Find the length of the packed block of these elements; UINT64_MAX if the dtype has none. False: no memory. */
bool measure_packed(uint64_t *bytes, struct scratch *, enum pici_dtype dtype, const void *elements, uint64_t count);

/* The number of elements that are -0.0. 0 if the dtype has no -0.0. */
uint64_t measure_negative_zeros(enum pici_dtype dtype, const void *elements, uint64_t count);

/* Add a breakdown to the total, including other_bytes. */
void breakdown_sum(struct pici_breakdown *total, const struct pici_breakdown *breakdown);

/* Bytes of the header and directory of a hybrid block of this many elements, at most 2^32. */
uint64_t hybrid_head(uint64_t elements);

/* Add a block of at most 2^32 elements. breakdown: the containers of the hybrid block. */
void sizes_add(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
               const struct pici_breakdown *breakdown);

/* Add the negative zeros of that block, and the bytes that it saves by value. by_value: its containers by value. */
void sizes_by_value(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                    const struct pici_breakdown *breakdown, uint64_t negative_zeros,
                    const struct pici_breakdown *by_value);

/* Add the bytes that packing saves for that block. packed: the length of the packed block. */
void sizes_packed(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                  const struct pici_breakdown *breakdown, uint64_t packed);

/* Set bound. Call it after the last block of a tensor. */
void sizes_end(struct sizes *sizes);

void sizes_sum(struct sizes *total, const struct sizes *sizes);

/* The smallest format; on a tie, the one with the lowest number, as in PICI_AUTO. */
enum pici_format sizes_best(const struct sizes *sizes);

struct measured {
    char *name; /* [name_size], then a NUL */
    size_t name_size;
    char *dtype_text; /* the dtype's name in the original file, or NULL */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t *shape; /* [rank] */
    bool fortran, big_endian;
    const char *shard; /* in a folder: the file that has the tensor, not owned; else NULL */
    char *view;        /* the original's view of these elements, in words; or NULL */
    const char *kind;  /* in a delta: how the tensor is stored; or NULL */
    uint64_t elements;
    struct sizes *sizes; /* NULL for list, which may have millions of tensors */
    uint64_t stored;     /* bytes in a .pici file; 0: unknown, or none */
    uint64_t chunks;     /* in that file */
    char *spark;         /* sparkline, or NULL */
};

struct report {
    const char *file, *type; /* to show */
    uint64_t file_bytes;     /* 0: unknown */
    struct measured *tensor; /* [tensors] */
    size_t tensors, capacity;
    struct sizes total;
    uint64_t stored;                   /* of all tensors; 0: unknown */
    uint64_t referred, referred_bytes; /* references, and the bytes of their elements */
    int zstd_level;                    /* of --compare; 0: no comparison */
    struct density *density_map;       /* this and grid: of the last tensor, or NULL */
    struct grid *grid;
};

/* Append a tensor to the report, zeroed except for its name. NULL: no memory. */
struct measured *report_add(struct report *report, const char *name, size_t name_len);

/* Count a tensor that is a reference. */
void report_refer(struct report *report, enum pici_dtype, uint64_t elements);

void report_free(struct report *report);

#endif
