/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A second codec, written from block.md and hybrid.md alone: slow, bit by bit, no kernels, nothing shared with lib/ or
 * include/pici. Tests and fuzzers compare the library with it; the golden vectors were made by it. Floating point is done
 * in integers, so that no rounding mode, excess precision or flushing of denormals can bend it. */
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

/* The first rule broken: what pici_verify_at must say. All zero and null when nothing is wrong. */
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
    uint64_t tiles;              /* of pici and hybrid, else 0 */
    uint64_t block_bytes;
    uint64_t groups, records; /* of hybrid: how many records, and where they begin */
    unsigned unit;
};

/* Bytes of an element; 0 for a dtype that does not exist. */
unsigned ref_width(unsigned dtype);

/* Every header rule but the last two, length and checksum. h is complete if the result is REF_OK. fault may be NULL. */
enum ref_status ref_header(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault);

/* Every rule. fault may be NULL. */
enum ref_status ref_verify(const uint8_t *block, size_t len, struct ref_fault *fault);

/* The block of n elements at src (host order), from malloc; NULL if there is no memory, or dtype or format are unknown. */
uint8_t *ref_encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum);

/* Verify, then decode into n elements at dst (host order). REF_E_ARG: n is not the count. dst is not touched on errors. */
enum ref_status ref_decode(void *dst, uint64_t n, const uint8_t *block, size_t len);

/* Verify, then add to n elements at dst (host order). Errors as ref_decode's. */
enum ref_status ref_scatter_add(void *dst, uint64_t n, const uint8_t *block, size_t len);

/* dst + x, both nonzero or not, as bits of an element of dtype. */
uint64_t ref_add(unsigned dtype, uint64_t dst, uint64_t x);

/* Element i of an array in host order, as bits. */
uint64_t ref_load(const void *array, uint64_t i, unsigned width);
void ref_store(void *array, uint64_t i, unsigned width, uint64_t bits);

/* Little-endian, for the fields of a block. */
uint64_t ref_get(const uint8_t *p, unsigned bytes);
void ref_put(uint8_t *p, unsigned bytes, uint64_t v);

/* XXH64 with seed 0. */
uint64_t ref_xxh64(const uint8_t *p, size_t len);

/* Write the checksum of a block and set its flag, whatever else is wrong with it. len >= 48. */
void ref_seal(uint8_t *block, size_t len);

#endif
