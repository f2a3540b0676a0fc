/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A reference codec, written from block.md, hybrid.md and packed.md alone. It is slow, works bit by bit, and shares
 * nothing with lib/ or include/pici. Tests and fuzzers compare the library with it, and it made the golden vectors.
 * Floating-point sums are computed in integers, so that rounding modes, excess precision and flushed denormals
 * cannot change them. */
#ifndef PICI_FORMATS_REF_H
#define PICI_FORMATS_REF_H

#include "ref_base.h"

/* Check the rules of the header except "length" and "checksum". h is complete if the result is REF_OK. fault may be
 * NULL. */
enum ref_status ref_header(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault);

/* Check every rule. fault may be NULL. */
enum ref_status ref_verify(const uint8_t *block, size_t len, struct ref_fault *fault);

/* Encode n elements at src (host order). Returns the block, to be freed; NULL without memory, or if dtype or format
 * is unknown, or the format does not have this dtype. packed: of two levels. */
uint8_t *ref_encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum);

enum ref_zeros {
    REF_ZEROS_EXACT,    /* as ref_encode */
    REF_ZEROS_BY_VALUE, /* negative zeros of float dtypes are encoded as +0.0 */
    REF_ZEROS_VERSION_1 /* exact, but no tile of hybrid keeps signs: as encoders wrote before version 2 */
};

uint8_t *ref_encode_as(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum,
                       enum ref_zeros);

/* The same for packed, with one level or two. */
uint8_t *ref_encode_packed(size_t *len, const void *src, uint64_t n, unsigned dtype, int checksum, enum ref_zeros,
                           unsigned levels);

/* Verify, then decode to n elements at dst (host order). REF_E_ARG: n is not the count. After an error dst is
 * unchanged. */
enum ref_status ref_decode(void *dst, uint64_t n, const uint8_t *block, size_t len);

/* Verify, then add to n elements at dst (host order). The errors are ref_decode's. */
enum ref_status ref_scatter_add(void *dst, uint64_t n, const uint8_t *block, size_t len);

/* The same for a reader that does not check the rule `choice` of packed. */
enum ref_status ref_decode_any(void *dst, uint64_t n, const uint8_t *block, size_t len, int add);

/* Set the checksum flag of a block and write its checksum. The block need not be valid. len >= 48. */
void ref_seal(uint8_t *block, size_t len);

#endif
