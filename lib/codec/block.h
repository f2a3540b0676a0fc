/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A block's header: parsing and checking, or writing. All other code that reads a block starts from a struct
 * pici_block, whose offsets are computed from count and nnz, not copied from the header. Specification:
 * formats/block.md. */
#ifndef PICI_LIB_CODEC_BLOCK_H
#define PICI_LIB_CODEC_BLOCK_H

#include "format.h"
#include "pici/pici.h"
#include "shared.h"

struct pici_block {
    const uint8_t *bytes; /* the header */
    const uint8_t *bits;  /* pici: the bitvector */
    const uint8_t *index;
    const uint8_t *values; /* not for hybrid, whose values are in its records */
    struct fmt_layout at;
    unsigned format, dtype, flags;
    uint64_t count, nnz, checksum;
};

/* Store what is wrong in *fault, unless fault is null, and return the status. */
enum pici_status pici_fault_at(struct pici_fault *fault, enum pici_status, uint64_t offset, uint64_t tile,
                               const char *rule);

/* Check the rules of the header ("size" to "checksum-flag") in [p, p + len), and fill b except bits, index and
 * values. */
PICI_SHARED enum pici_status pici_block_parse(struct pici_block *b, const void *p, size_t len,
                                              struct pici_fault *fault);

/* Check the rule "length", and set b's bits, index and values. */
PICI_SHARED enum pici_status pici_block_whole(struct pici_block *b, size_t len, struct pici_fault *fault);

/* Check the rule "checksum" if the header has the flag. Reads the whole block. */
PICI_SHARED enum pici_status pici_block_checksum(const struct pici_block *b, struct pici_fault *fault);

/* Check the rule "padding" after the index. */
PICI_SHARED enum pici_status pici_block_padding(const struct pici_block *b, struct pici_fault *fault);

/* Write the 48 bytes of the header of a block with the layout l, and 0 as its checksum. The magic is written last. */
void pici_block_emit(uint8_t *p, const struct fmt_layout *l, unsigned format, unsigned dtype, unsigned flags,
                     uint64_t count, uint64_t nnz);

/* XXH64 of a block of len bytes, with zero in place of its checksum. */
uint64_t pici_block_hash(const uint8_t *p, size_t len);

#endif
