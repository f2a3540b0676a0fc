/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A reference codec, written from block.md and hybrid.md alone. It is slow, works bit by bit, and shares nothing
 * with lib/ or include/pici. Tests and fuzzers compare the library with it, and it made the golden vectors.
 * Floating-point sums are computed in integers, so that rounding modes, excess precision and flushed denormals
 * cannot change them. */
#ifndef PICI_FORMATS_REF_H
#define PICI_FORMATS_REF_H

#include <stddef.h>
#include <stdint.h>

enum { REF_DENSE = 0, REF_PICI = 1, REF_COO = 2, REF_HYBRID = 3 };

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
    unsigned format, dtype, flags;
    uint64_t count, nnz, index_offset, values_offset, checksum;
    unsigned width, index_width; /* bytes */
    uint64_t tiles;              /* pici and hybrid; otherwise 0 */
    uint64_t block_bytes;
    uint64_t groups, records; /* hybrid: number of records, and offset of the first */
    unsigned unit;
};

/* Bytes of an element; 0 for a dtype that does not exist. */
unsigned ref_width(unsigned dtype);

/* Check the rules of the header except "length" and "checksum". h is complete if the result is REF_OK. fault may be
 * NULL. */
enum ref_status ref_header(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault);

/* Check every rule. fault may be NULL. */
enum ref_status ref_verify(const uint8_t *block, size_t len, struct ref_fault *fault);

/* Encode n elements at src (host order). Returns the block, to be freed; NULL without memory, or if dtype or format
 * is unknown. */
uint8_t *ref_encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum);

/* Verify, then decode to n elements at dst (host order). REF_E_ARG: n is not the count. After an error dst is
 * unchanged. */
enum ref_status ref_decode(void *dst, uint64_t n, const uint8_t *block, size_t len);

/* Verify, then add to n elements at dst (host order). The errors are those of ref_decode. */
enum ref_status ref_scatter_add(void *dst, uint64_t n, const uint8_t *block, size_t len);

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

/* Set the checksum flag of a block and write its checksum. The block need not be valid. len >= 48. */
void ref_seal(uint8_t *block, size_t len);

#endif
