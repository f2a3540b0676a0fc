/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses, checks and writes the header of a block. All other code reads a block through a struct pici_block. Its
 * offsets are computed from count and nonzeros, not copied from the header. Specification: formats/block.md. */
#ifndef PICI_LIB_CODEC_BLOCK_H
#define PICI_LIB_CODEC_BLOCK_H

#include "format.h"
#include "pici/pici.h"
#include "shared.h"

struct pici_block {
    const uint8_t *bytes; /* the header */
    const uint8_t *bits;  /* bitmap: the bitvector */
    const uint8_t *index;
    const uint8_t *values; /* unset for hybrid and packed, whose records hold the values */
    struct fmt_layout layout;
    unsigned format, dtype, flags;
    uint64_t count, nonzeros, checksum;
};

/* Store the fault in *fault, unless fault is null. Returns the status. */
enum pici_status pici_fault_at(struct pici_fault *fault, enum pici_status, uint64_t offset, uint64_t tile,
                               const char *rule);

/* Check the rules of the header, "size" to "checksum-flag", and fill all members of *parsed but bits, index and values.
 * size: bytes that may be read. */
PICI_SHARED enum pici_status pici_block_parse(struct pici_block *parsed, const void *block, size_t size,
                                              struct pici_fault *fault);

/* Check the rule "length", and set the block's bits, index and values. */
PICI_SHARED enum pici_status pici_block_whole(struct pici_block *block, size_t size, struct pici_fault *fault);

/* Check the rule "checksum" if the header has the flag. Reads the whole block. */
PICI_SHARED enum pici_status pici_block_checksum(const struct pici_block *block, struct pici_fault *fault);

/* Check the rule "padding" after the index. */
PICI_SHARED enum pici_status pici_block_padding(const struct pici_block *block, struct pici_fault *fault);

/* Write the 48 bytes of a header, with 0 as the checksum. The magic is written last. */
void pici_block_emit(uint8_t *header, const struct fmt_layout *layout, unsigned format, unsigned dtype, unsigned flags,
                     uint64_t count, uint64_t nonzeros);

/* XXH64 of a block of size bytes, with zero in place of its checksum. */
uint64_t pici_block_hash(const uint8_t *block, size_t size);

#endif
