/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What list and inspect find out of tensors. */
#ifndef PICI_TOOLS_MEASURE_H
#define PICI_TOOLS_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "density.h"
#include "pici/pici.h"

enum { FORMATS = 3 }; /* PICI_DENSE, PICI_PICI, PICI_COO */

struct sizes {
    uint64_t elements, nnz;
    uint64_t bytes[FORMATS]; /* of the blocks that a .pici file would have, by format */
    uint64_t best;           /* the same, each chunk in its smallest format */
    uint64_t dense_bytes;    /* of the elements alone */
};

/* Count a block of n elements, at most 2^32, of which nnz are nonzero. */
void sizes_add(struct sizes *s, enum pici_dtype dtype, uint64_t n, uint64_t nnz);

/* Add up. */
void sizes_sum(struct sizes *total, const struct sizes *s);

/* The smallest format; ties go to the lowest number, as in PICI_AUTO. */
enum pici_format sizes_best(const struct sizes *s);

struct measured {
    char *name; /* [name_len], then a NUL */
    size_t name_len;
    char *dtype_text; /* as in the original file, or NULL */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t *shape; /* [rank] */
    bool fortran, big_endian;
    struct sizes sizes;
    uint64_t stored; /* bytes in a .pici file; 0: not known, or none */
    uint64_t chunks; /* there */
    char *spark;     /* sparkline, or NULL */
};

struct report {
    const char *file, *type; /* to show */
    uint64_t file_bytes;     /* 0: not known */
    struct measured *tensor; /* [tensors] */
    size_t tensors, room;
    struct sizes total;
    uint64_t stored;     /* of all tensors; 0: not known */
    struct density *map; /* of the last tensor, or NULL */
};

/* A new tensor at the end of the report, zeroed but for its name; NULL: no memory. */
struct measured *report_add(struct report *r, const char *name, size_t name_len);

void report_free(struct report *r);

#endif
