/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_verify and pici_verify_at: check every rule of formats/block.md, in its order, and report where one is
 * broken. */
#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/hybrid.h"
#include "sized.h"

/* The first of n values at p that is zero, or with signs also -0.0; n if none. */
static uint64_t first_zero(const uint8_t *p, uint64_t n, unsigned w, int signs)
{
    const struct pici_move *move = pici_isa()->move[w];
    if (move->count(p, (size_t)n) == n && !(signs && move->any_negative(p, (size_t)n, 1)))
        return n;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t any = 0;
        for (unsigned k = 0; k < 1u << w; k++)
            any |= p[(i << w) + k];
        if (!any || (signs && move->any_negative(p + (i << w), 1, 1)))
            return i;
    }
    return n;
}

/* The same of n values of the block from number `at` on; counted from there. */
static uint64_t find_zero(const struct pici_block *b, uint64_t at, uint64_t n)
{
    return first_zero(b->values + (at << b->at.width_log2), n, b->at.width_log2, 0);
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

static enum pici_status tile_fault(struct pici_fault *fault, const struct pici_block *b, const uint8_t *at,
                                   uint64_t tile, const char *rule)
{
    return pici_fault_at(fault, PICI_E_CORRUPT, (uint64_t)(at - b->bytes), tile, rule);
}

/* Check the offsets of tile i of a group: they rise and are below len. */
static enum pici_status verify_offsets(const struct pici_block *b, const struct pici_group *r, unsigned i, unsigned len,
                                       struct pici_fault *fault)
{
    const struct pici_tile *t = &r->tile[i];
    const int eight = t->container == PICI_OFFSETS8;
    const uint8_t *p = t->payload, *const last = p + container_payload(t->container, t->n) - 1;
    unsigned sum = 0, next = 0;
    for (unsigned run = 0; eight && run < RUNS; run++)
        sum += t->payload[run];
    if (eight && sum != t->n)
        return tile_fault(fault, b, pici_tile_descriptor(r, i), r->first + i, "tile-count");
    p += eight ? RUNS : 0;
    for (unsigned k = 0, run = 0, left = t->payload[0]; k < t->n; k++) {
        unsigned at;
        if (eight) {
            for (; !left; left = t->payload[run])
                run++;
            left--;
            at = run * RUN + *p;
        } else {
            at = (unsigned)(p[0] | p[1] << 8) >> (k % 2 ? 4 : 0) & (TILE - 1);
        }
        if (at < next)
            return tile_fault(fault, b, p, r->first + i, "rising");
        if (at >= len)
            return tile_fault(fault, b, p, r->first + i, "past-end");
        next = at + 1;
        p += eight || k % 2 == 0 ? 1 : 2;
    }
    if (!eight && t->n % 2 && *last > 15)
        return tile_fault(fault, b, last, r->first + i, "padding");
    return PICI_OK;
}

/* Check the words of tile i of a group: they have n bits, all below len. */
static enum pici_status verify_words(const struct pici_block *b, const struct pici_group *r, unsigned i, unsigned len,
                                     struct pici_fault *fault)
{
    const struct pici_tile *t = &r->tile[i];
    unsigned n = 0;
    for (unsigned row = 0; row < TILE_ROWS; row++) {
        const uint64_t word = load_le64(t->payload + (size_t)8 * row);
        const unsigned exist = len > row * TILE_COLS ? len - row * TILE_COLS : 0;
        if (exist < TILE_COLS && word >> exist)
            return tile_fault(fault, b, t->payload + (size_t)8 * row, r->first + i, "past-end");
        n += (unsigned)__builtin_popcountll(word);
    }
    return n == t->n ? PICI_OK : tile_fault(fault, b, pici_tile_descriptor(r, i), r->first + i, "tile-count");
}

static enum pici_status verify_tile(const struct pici_block *b, const struct pici_group *r, unsigned i,
                                    struct pici_fault *fault)
{
    const struct pici_tile *t = &r->tile[i];
    const unsigned w = b->at.width_log2, len = pici_tile_elements(b, r->first + i);
    enum pici_status s = PICI_OK;
    if (t->container == PICI_EMPTY)
        return s;
    if (t->container == PICI_RAW && pici_isa()->move[w]->count(t->values, len) != t->n)
        return tile_fault(fault, b, pici_tile_descriptor(r, i), r->first + i, "tile-count");
    if (t->container == PICI_BITVECTOR)
        s = verify_words(b, r, i, len, fault);
    else if (t->container != PICI_RAW)
        s = verify_offsets(b, r, i, len, fault);
    if (s)
        return s;
    if (r->runs >> i & 1 && !pici_tile_has_run(t, len, w))
        return tile_fault(fault, b, pici_tile_descriptor(r, i), r->first + i, "container");
    const uint64_t zero = t->container == PICI_RAW ? t->n : first_zero(t->values, t->n, w, r->signs >> i & 1);
    return zero == t->n ? PICI_OK : tile_fault(fault, b, t->values + (zero << w), r->first + i, "stored-zero");
}

/* Check tile i of a group of a version-2 block, which verify_tile found no fault in: does it keep signs exactly if it
 * should, and are they right? */
static enum pici_status verify_signs(const struct pici_block *b, const struct pici_group *r, unsigned i,
                                     struct pici_fault *fault)
{
    const struct pici_tile *t = &r->tile[i];
    const unsigned w = b->at.width_log2, len = pici_tile_elements(b, r->first + i);
    uint8_t tile[TILE * 8];
    if (!pici_tile_has_signs(r, i, len, w))
        return PICI_OK;
    const int keeps = r->signs >> i & 1;
    (void)pici_tile_decode(tile, t, len, w);
    return pici_tile_signs(tile, r, i, len, w, 0)
               ? PICI_OK
               : tile_fault(fault, b, keeps ? pici_tile_sign_descriptor(r, i) : pici_tile_descriptor(r, i),
                            r->first + i, "signs");
}

static enum pici_status verify_groups(const struct pici_block *b, struct pici_fault *fault)
{
    const uint64_t groups = fmt_groups(b->at.tiles);
    const int version2 = b->at.version == FMT_VERSION_SIGNS;
    uint64_t nnz = 0;
    uint32_t signs = 0;
    struct pici_group r;
    for (uint64_t g = 0; g < groups; g++) {
        enum pici_status s = pici_group_read(&r, b, g, fault);
        for (unsigned i = 0; !s && i < r.tiles; i++) {
            s = verify_tile(b, &r, i, fault);
            if (!s && version2)
                s = verify_signs(b, &r, i, fault);
        }
        if (s)
            return s;
        nnz += r.nnz;
        signs |= r.signs;
    }
    if (nnz != b->nnz)
        return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, PICI_NO_TILE, "total");
    return version2 && !signs ? pici_fault_at(fault, PICI_E_CORRUPT, HDR_VERSION, PICI_NO_TILE, "version") : PICI_OK;
}

static enum pici_status verify(const void *block, size_t len, struct pici_fault *fault)
{
    struct pici_block b;
    enum pici_status s = pici_block_parse(&b, block, len, fault);
    if (s || (s = pici_block_whole(&b, len, fault)) != PICI_OK || (s = pici_block_checksum(&b, fault)) != PICI_OK ||
        (s = pici_block_padding(&b, fault)) != PICI_OK)
        return s;
    return b.format == FMT_PICI     ? verify_tiles(&b, fault)
           : b.format == FMT_COO    ? verify_entries(&b, fault)
           : b.format == FMT_HYBRID ? verify_groups(&b, fault)
                                    : PICI_OK;
}

enum pici_status pici_verify(const void *block, size_t len)
{
    return block ? verify(block, len, NULL) : PICI_E_ARG;
}

enum pici_status pici_verify_at(const void *block, size_t len, struct pici_fault *fault)
{
    struct pici_fault found = PICI_FAULT_INIT;
    if (!block || (fault && sized_of(fault) < sizeof found))
        return PICI_E_ARG;
    const enum pici_status s = verify(block, len, &found);
    if (fault)
        sized_write(fault, &found, sizeof found, sizeof found);
    return s;
}
