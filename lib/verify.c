/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_verify and pici_verify_at: every rule of formats/block.md, in its order, with the place of the breach. */
#include "bytes.h"
#include "codec.h"
#include "cpu/kernels.h"

/* The first of n values from number `at` on that is zero; n if none. */
static uint64_t find_zero(const struct pici_block *b, uint64_t at, uint64_t n)
{
    const unsigned w = b->at.width_log2;
    const uint8_t *p = b->values + (at << w);
    if (pici_isa()->move[w]->count(p, (size_t)n) == n)
        return n;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t any = 0;
        for (unsigned k = 0; k < 1u << w; k++)
            any |= p[(i << w) + k];
        if (!any)
            return i;
    }
    return n;
}

static uint64_t value_offset(const struct pici_block *b, uint64_t i)
{
    return b->at.values_offset + (i << b->at.width_log2);
}

static enum pici_status verify_tiles(const struct pici_block *b, struct pici_fault *fault)
{
    const unsigned iw = b->at.index_width;
    uint64_t at = 0;
    for (uint64_t t = 0; t < b->at.tiles; t++) {
        const uint8_t *bits = b->bits + t * TILE_BITS_BYTES;
        uint64_t left = b->count - t * TILE, nnz = 0;
        for (unsigned c = 0; c < TILE_COLS; c++) {
            uint64_t word = load_le64(bits + 8 * c);
            if (fmt_past_end(word, c, left))
                return pici_fault_at(fault, PICI_E_CORRUPT, HDR_BYTES + t * TILE_BITS_BYTES + 8 * c, t, "past-end");
            nnz += (uint64_t)__builtin_popcountll(word);
        }
        if (load_index(b->index, iw, t) != at)
            return pici_fault_at(fault, PICI_E_CORRUPT, b->at.index_offset + t * iw, t, "tile-index");
        if (nnz > b->nnz - at)
            return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, t, "tile-index");
        uint64_t zero = find_zero(b, at, nnz);
        if (zero < nnz)
            return pici_fault_at(fault, PICI_E_CORRUPT, value_offset(b, at + zero), t, "stored-zero");
        at += nnz;
    }
    if (at != b->nnz)
        return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, PICI_NO_TILE, "tile-index");
    return PICI_OK;
}

static enum pici_status verify_entries(const struct pici_block *b, struct pici_fault *fault)
{
    const unsigned iw = b->at.index_width;
    uint64_t zero = find_zero(b, 0, b->nnz), next = 0;
    for (uint64_t i = 0; i < b->nnz; i++) {
        uint64_t p = load_index(b->index, iw, i), offset = b->at.index_offset + i * iw;
        if (p < next)
            return pici_fault_at(fault, PICI_E_CORRUPT, offset, p / TILE, "rising");
        if (p >= b->count)
            return pici_fault_at(fault, PICI_E_CORRUPT, offset, PICI_NO_TILE, "past-end");
        if (i == zero)
            return pici_fault_at(fault, PICI_E_CORRUPT, value_offset(b, i), p / TILE, "stored-zero");
        next = p + 1;
    }
    return PICI_OK;
}

static enum pici_status verify(const void *block, size_t len, struct pici_fault *fault)
{
    struct pici_block b;
    enum pici_status s = pici_block_parse(&b, block, len, fault);
    if (s || (s = pici_block_whole(&b, len, fault)) != PICI_OK || (s = pici_block_checksum(&b, fault)) != PICI_OK ||
        (s = pici_block_padding(&b, fault)) != PICI_OK)
        return s;
    return b.format == FMT_PICI ? verify_tiles(&b, fault) : b.format == FMT_COO ? verify_entries(&b, fault) : PICI_OK;
}

enum pici_status pici_verify(const void *block, size_t len)
{
    return block ? verify(block, len, NULL) : PICI_E_ARG;
}

enum pici_status pici_verify_at(const void *block, size_t len, struct pici_fault *fault)
{
    if (!block || (fault && fault->size < sizeof *fault))
        return PICI_E_ARG;
    if (fault)
        pici_fault_at(fault, PICI_OK, 0, 0, NULL);
    return verify(block, len, fault);
}
