/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the reference codec needs for every format: its types, elements and integers in memory, XXH64, arithmetic. */
#ifndef PICI_FORMATS_REF_BASE_H
#define PICI_FORMATS_REF_BASE_H

#include <stddef.h>
#include <stdint.h>

enum { REF_DENSE = 0, REF_BITMAP = 1, REF_COO = 2, REF_HYBRID = 3, REF_PACKED = 4 };

enum { /* dtypes */
       REF_F32 = 1,
       REF_F64,
       REF_F16,
       REF_BF16,
       REF_F8E4M3,
       REF_F8E5M2,
       REF_I8,
       REF_U8,
       REF_I16,
       REF_U16,
       REF_I32,
       REF_U32,
       REF_I64,
       REF_U64
};

enum ref_status {
    REF_OK = 0,
    REF_E_ARG = -1,
    REF_E_UNSUPPORTED = -3,
    REF_E_CORRUPT = -20,
    REF_E_VERSION = -21,
    REF_E_CHECKSUM = -22,
    REF_E_NOMEM = -40
};

#define REF_NO_TILE UINT64_MAX

/* The first rule that is broken: what pici_verify_at must report. All zero and null for a valid block. */
struct ref_fault {
    enum ref_status status;
    uint64_t offset;
    uint64_t tile;
    const char *rule;
};

struct ref_header {
    unsigned version, format, dtype, flags;
    uint64_t count, nnz, index_offset, values_offset, checksum;
    unsigned width, index_width; /* bytes */
    uint64_t tiles;              /* pici, hybrid and packed; otherwise 0 */
    uint64_t block_bytes;
    uint64_t groups, records; /* hybrid and packed: number of records, and offset of the first */
    unsigned unit;
    int any_choice; /* packed: runs may break the rule `choice` */
};

enum { REF_HEADER_BYTES = 48, REF_TILE = 4096 };

/* Bytes of an element; 0 for a dtype that does not exist. */
unsigned ref_width(unsigned dtype);

/* 1 if these are the bits of a negative zero of a float dtype. */
int ref_negative_zero(unsigned dtype, uint64_t bits);

/* dst + x, as bits of elements of dtype; either may be zero. */
uint64_t ref_add(unsigned dtype, uint64_t dst, uint64_t x);

/* Element i of an array in host order, as bits. */
uint64_t ref_load(const void *array, uint64_t i, unsigned width);
void ref_store(void *array, uint64_t i, unsigned width, uint64_t bits);

/* A little-endian integer of so many bytes at p. */
uint64_t ref_get(const uint8_t *p, unsigned bytes);
void ref_put(uint8_t *p, unsigned bytes, uint64_t v);

/* XXH64 with seed 0. */
uint64_t ref_xxh64(const uint8_t *p, size_t len);

/* Fill *fault unless it is NULL. Returns status. */
enum ref_status ref_breach(struct ref_fault *fault, enum ref_status, const char *rule, uint64_t offset, uint64_t tile);

/* Set element i of dst to v, or add v to it unless v is 0. */
void ref_take(const struct ref_header *h, void *dst, uint64_t i, uint64_t v, int add);

#endif
