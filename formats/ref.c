/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref.h"
#include "ref_hybrid.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, TILE_BYTES = 512 };

/* Formats that have groups of tiles: hybrid and packed. */
static int has_groups(unsigned format)
{
    return format == REF_HYBRID || format == REF_PACKED;
}

static int has_tiles(unsigned format)
{
    return format == REF_BITMAP || has_groups(format);
}

/* The hash needs the block in one piece with its checksum field zero, so it works on a copy. */
static enum ref_status hash_block(uint64_t *hash, const uint8_t *block, size_t len)
{
    uint8_t *copy = malloc(len);
    if (!copy)
        return REF_E_NOMEM;
    memcpy(copy, block, len);
    memset(copy + 40, 0, 8);
    *hash = ref_xxh64(copy, len);
    free(copy);
    return REF_OK;
}

void ref_seal(uint8_t *block, size_t len)
{
    block[7] |= 2;
    ref_put(block + 40, 8, 0);
    ref_put(block + 40, 8, ref_xxh64(block, len));
}

/* ---- verify ---- */

static enum ref_status bad_header(struct ref_fault *fault, const char *rule, uint64_t offset)
{
    return ref_breach(fault, REF_E_CORRUPT, rule, offset, REF_NO_TILE);
}

/* Set the derived fields of h. Returns 0 if a length exceeds 64 bits; index_offset is set even then. */
static int lay_out(struct ref_header *h)
{
    uint64_t entries = h->format == REF_BITMAP ? h->tiles : h->format == REF_COO ? h->nnz : 0;
    h->index_offset = REF_HEADER_BYTES + TILE_BYTES * h->tiles; /* tiles <= 2^52 */
    if (entries > (UINT64_MAX - 15 - h->index_offset) / h->index_width)
        return 0;
    h->values_offset = (h->index_offset + entries * h->index_width + 15) / 16 * 16;
    if (h->nnz > (UINT64_MAX - h->values_offset) / h->width)
        return 0;
    h->block_bytes = h->values_offset + h->nnz * h->width;
    return 1;
}

enum ref_status ref_header(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault)
{
    ref_breach(fault, REF_OK, NULL, 0, 0);
    if (len < REF_HEADER_BYTES)
        return bad_header(fault, "size", len);
    if (memcmp(block, "\x50\x49\x43\x49", 4) != 0)
        return bad_header(fault, "magic", 0);
    h->version = block[4];
    if (h->version != 1 && h->version != 2)
        return ref_breach(fault, REF_E_VERSION, "version", 4, REF_NO_TILE);
    h->format = block[5];
    if (h->format > REF_PACKED)
        return ref_breach(fault, REF_E_UNSUPPORTED, "format", 5, REF_NO_TILE);
    h->dtype = block[6];
    h->width = ref_width(h->dtype);
    if (!h->width || (h->format == REF_PACKED && h->dtype > REF_F8E5M2))
        return bad_header(fault, "dtype", 6);
    if (h->version == 2 && !(has_groups(h->format) && h->dtype <= REF_F8E5M2))
        return bad_header(fault, "version", 4);
    h->flags = block[7];
    if (h->flags & ~(h->format == REF_PACKED ? 7u : 3u))
        return bad_header(fault, "flags", 7);
    h->count = ref_get(block + 8, 8);
    unsigned wide = h->format != REF_DENSE && h->count > UINT64_C(0x100000000);
    h->index_width = wide ? 8 : 4;
    if ((h->flags & 1) != wide)
        return bad_header(fault, "index-width", 7);
    h->nnz = ref_get(block + 16, 8);
    if (h->nnz > h->count || (h->format == REF_DENSE && h->nnz != h->count))
        return bad_header(fault, "nnz", 16);
    h->tiles = has_tiles(h->format) ? h->count / REF_TILE + (h->count % REF_TILE > 0) : 0;
    h->any_choice = 0;
    int fits = has_groups(h->format) ? ref_hybrid_lay_out(h, ref_get(block + 32, 8)) : lay_out(h);
    if (ref_get(block + 24, 8) != h->index_offset)
        return bad_header(fault, "offsets", 24);
    if (!fits || ref_get(block + 32, 8) != h->values_offset)
        return bad_header(fault, "offsets", 32);
    h->checksum = ref_get(block + 40, 8);
    if (!(h->flags & 2) && h->checksum)
        return bad_header(fault, "checksum-flag", 40);
    return REF_OK;
}

static enum ref_status verify_padding(const struct ref_header *h, const uint8_t *block, uint64_t index_entries,
                                      struct ref_fault *fault)
{
    for (uint64_t i = h->index_offset + index_entries * h->index_width; i < h->values_offset; i++)
        if (block[i])
            return ref_breach(fault, REF_E_CORRUPT, "padding", i, REF_NO_TILE);
    return REF_OK;
}

/* Stored value k of a block that is not hybrid. */
static uint64_t stored_value(const struct ref_header *h, const uint8_t *block, uint64_t k)
{
    return ref_get(block + h->values_offset + k * h->width, h->width);
}

/* Word c of tile t: a column, whose bit r is row r. */
static uint64_t bits_of_column(const uint8_t *block, uint64_t tile, unsigned col)
{
    return ref_get(block + REF_HEADER_BYTES + tile * TILE_BYTES + col * 8, 8);
}

static enum ref_status verify_bitmap(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    enum ref_status s = verify_padding(h, block, h->tiles, fault);
    uint64_t total = 0;
    for (uint64_t t = 0; t < h->tiles && s == REF_OK; t++) {
        uint64_t before = total;
        for (unsigned c = 0; c < SIDE; c++) {
            uint64_t word = bits_of_column(block, t, c);
            for (unsigned r = 0; r < SIDE; r++) {
                if (!(word >> r & 1))
                    continue;
                if (t * REF_TILE + r * SIDE + c >= h->count)
                    return ref_breach(fault, REF_E_CORRUPT, "past-end", REF_HEADER_BYTES + t * TILE_BYTES + c * 8, t);
                total++;
            }
        }
        uint64_t entry = h->index_offset + t * h->index_width;
        if (ref_get(block + entry, h->index_width) != before)
            return ref_breach(fault, REF_E_CORRUPT, "tile-index", entry, t);
        if (total > h->nnz)
            return ref_breach(fault, REF_E_CORRUPT, "tile-index", 16, t);
        for (uint64_t k = before; k < total; k++)
            if (!stored_value(h, block, k))
                return ref_breach(fault, REF_E_CORRUPT, "stored-zero", h->values_offset + k * h->width, t);
    }
    if (s == REF_OK && total != h->nnz)
        return ref_breach(fault, REF_E_CORRUPT, "tile-index", 16, REF_NO_TILE);
    return s;
}

static uint64_t position(const struct ref_header *h, const uint8_t *block, uint64_t k)
{
    return ref_get(block + h->index_offset + k * h->index_width, h->index_width);
}

static enum ref_status verify_coo(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    enum ref_status s = verify_padding(h, block, h->nnz, fault);
    for (uint64_t k = 0; k < h->nnz && s == REF_OK; k++) {
        uint64_t at = position(h, block, k), entry = h->index_offset + k * h->index_width;
        if (k > 0 && at <= position(h, block, k - 1))
            s = ref_breach(fault, REF_E_CORRUPT, "rising", entry, at / REF_TILE);
        else if (at >= h->count)
            s = ref_breach(fault, REF_E_CORRUPT, "past-end", entry, REF_NO_TILE);
        else if (!stored_value(h, block, k))
            s = ref_breach(fault, REF_E_CORRUPT, "stored-zero", h->values_offset + k * h->width, at / REF_TILE);
    }
    return s;
}

/* ref_verify, but also returns the header in *h. any_choice: skip the rule `choice`. */
static enum ref_status verify(struct ref_header *h, const uint8_t *block, size_t len, int any_choice,
                              struct ref_fault *fault)
{
    enum ref_status s = ref_header(h, block, len, fault);
    if (s)
        return s;
    h->any_choice = any_choice;
    if (len != h->block_bytes)
        return bad_header(fault, "length", len < h->block_bytes ? len : h->block_bytes);
    if (h->flags & 2) {
        uint64_t hash;
        if ((s = hash_block(&hash, block, len)))
            return ref_breach(fault, s, NULL, 0, 0);
        if (hash != h->checksum)
            return ref_breach(fault, REF_E_CHECKSUM, "checksum", 40, REF_NO_TILE);
    }
    if (h->format == REF_BITMAP)
        return verify_bitmap(h, block, fault);
    if (has_groups(h->format))
        return ref_hybrid_verify(h, block, fault);
    return h->format == REF_COO ? verify_coo(h, block, fault) : REF_OK;
}

enum ref_status ref_verify(const uint8_t *block, size_t len, struct ref_fault *fault)
{
    struct ref_header h;
    return verify(&h, block, len, 0, fault);
}

/* ---- encode ---- */

/* ref_encode, with more choices: version_1 encodes src as it was before version 2; levels is for packed. */
static uint8_t *encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum,
                       int version_1, unsigned levels)
{
    struct ref_header h = {
        .version = 1, .format = format, .dtype = dtype, .count = n, .width = ref_width(dtype), .index_width = 4};
    if (!h.width || format > REF_PACKED || (format == REF_PACKED && dtype > REF_F8E5M2))
        return NULL;
    if (format != REF_DENSE && n > UINT64_C(0x100000000)) {
        h.flags = 1;
        h.index_width = 8;
    }
    if (format == REF_PACKED && levels == 1)
        h.flags |= 4;
    h.tiles = has_tiles(format) ? n / REF_TILE + (n % REF_TILE > 0) : 0;
    uint8_t *block = NULL;
    if (has_groups(format)) {
        block = ref_hybrid_encode(&h, src, version_1);
    } else {
        for (uint64_t i = 0; i < n; i++)
            h.nnz += format == REF_DENSE || ref_load(src, i, h.width) != 0;
        if (lay_out(&h) && h.block_bytes <= SIZE_MAX)
            block = calloc(1, (size_t)h.block_bytes);
    }
    if (!block)
        return NULL;
    const uint8_t head[8] = {
        0x50, 0x49, 0x43, 0x49, (uint8_t)h.version, (uint8_t)format, (uint8_t)dtype, (uint8_t)h.flags};
    memcpy(block, head, sizeof head);
    ref_put(block + 8, 8, n);
    ref_put(block + 16, 8, h.nnz);
    ref_put(block + 24, 8, h.index_offset);
    ref_put(block + 32, 8, h.values_offset);

    uint64_t k = 0;
    uint8_t *values = block + h.values_offset;
    if (format == REF_BITMAP) {
        for (uint64_t t = 0; t < h.tiles; t++) {
            ref_put(block + h.index_offset + t * h.index_width, h.index_width, k);
            for (unsigned c = 0; c < SIDE; c++)
                for (unsigned r = 0; r < SIDE; r++) {
                    uint64_t i = t * REF_TILE + r * SIDE + c;
                    uint64_t v = i < n ? ref_load(src, i, h.width) : 0;
                    if (!v)
                        continue;
                    block[REF_HEADER_BYTES + t * TILE_BYTES + c * 8 + r / 8] |= (uint8_t)(1u << r % 8);
                    ref_put(values + k++ * h.width, h.width, v);
                }
        }
    } else if (!has_groups(format)) {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t v = ref_load(src, i, h.width);
            if (format == REF_COO) {
                if (!v)
                    continue;
                ref_put(block + h.index_offset + k * h.index_width, h.index_width, i);
            }
            ref_put(values + k++ * h.width, h.width, v);
        }
    }
    *len = (size_t)h.block_bytes;
    if (checksum)
        ref_seal(block, *len);
    return block;
}

static uint8_t *encode_as(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum,
                          enum ref_zeros zeros, unsigned levels)
{
    const unsigned width = ref_width(dtype);
    *len = 0;
    if (zeros != REF_ZEROS_BY_VALUE)
        return encode(len, src, n, dtype, format, checksum, zeros == REF_ZEROS_VERSION_1, levels);
    if (!width || n > SIZE_MAX / width)
        return NULL;
    void *copy = malloc(n ? (size_t)n * width : 1);
    if (!copy)
        return NULL;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t v = ref_load(src, i, width);
        ref_store(copy, i, width, ref_negative_zero(dtype, v) ? 0 : v);
    }
    uint8_t *block = encode(len, copy, n, dtype, format, checksum, 0, levels);
    free(copy);
    return block;
}

uint8_t *ref_encode_as(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum,
                       enum ref_zeros zeros)
{
    return encode_as(len, src, n, dtype, format, checksum, zeros, 2);
}

uint8_t *ref_encode_packed(size_t *len, const void *src, uint64_t n, unsigned dtype, int checksum, enum ref_zeros zeros,
                           unsigned levels)
{
    return encode_as(len, src, n, dtype, REF_PACKED, checksum, zeros, levels);
}

uint8_t *ref_encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum)
{
    return ref_encode_as(len, src, n, dtype, format, checksum, REF_ZEROS_EXACT);
}

/* ---- decode and add ---- */

static enum ref_status apply(void *dst, uint64_t n, const uint8_t *block, size_t len, int any_choice, int add)
{
    struct ref_header h;
    enum ref_status s = verify(&h, block, len, any_choice, NULL);
    if (s)
        return s;
    if (n != h.count)
        return REF_E_ARG;
    if (!add)
        for (uint64_t i = 0; i < n; i++)
            ref_store(dst, i, h.width, 0);
    if (h.format == REF_BITMAP) {
        uint64_t k = 0;
        for (uint64_t t = 0; t < h.tiles; t++)
            for (unsigned c = 0; c < SIDE; c++) {
                uint64_t word = bits_of_column(block, t, c);
                for (unsigned r = 0; r < SIDE; r++)
                    if (word >> r & 1)
                        ref_take(&h, dst, t * REF_TILE + r * SIDE + c, stored_value(&h, block, k++), add);
            }
    } else if (has_groups(h.format)) {
        return ref_hybrid_apply(&h, dst, block, add);
    } else {
        for (uint64_t k = 0; k < h.nnz; k++)
            ref_take(&h, dst, h.format == REF_COO ? position(&h, block, k) : k, stored_value(&h, block, k), add);
    }
    return REF_OK;
}

enum ref_status ref_decode(void *dst, uint64_t n, const uint8_t *block, size_t len)
{
    return apply(dst, n, block, len, 0, 0);
}

enum ref_status ref_scatter_add(void *dst, uint64_t n, const uint8_t *block, size_t len)
{
    return apply(dst, n, block, len, 0, 1);
}

enum ref_status ref_decode_any(void *dst, uint64_t n, const uint8_t *block, size_t len, int add)
{
    return apply(dst, n, block, len, 1, add);
}
