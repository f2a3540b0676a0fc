/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/block.h"

#include "bytes.h"
#include "xxh64.h"

static const uint8_t magic[4] = {'P', 'I', 'C', 'I'};

enum pici_status pici_fault_at(struct pici_fault *fault, enum pici_status s, uint64_t offset, uint64_t tile,
                               const char *rule)
{
    if (fault) {
        fault->status = s;
        fault->offset = offset;
        fault->tile = tile;
        fault->rule = rule;
    }
    return s;
}

static enum pici_status breach(struct pici_fault *fault, enum pici_status s, uint64_t offset, const char *rule)
{
    return pici_fault_at(fault, s, offset, PICI_NO_TILE, rule);
}

enum pici_status pici_block_parse(struct pici_block *b, const void *block, size_t len, struct pici_fault *fault)
{
    const uint8_t *p = block;
    if (len < HDR_BYTES)
        return breach(fault, PICI_E_CORRUPT, len, "size");
    if (memcmp(p + HDR_MAGIC, magic, sizeof magic) != 0)
        return breach(fault, PICI_E_CORRUPT, HDR_MAGIC, "magic");
    if (p[HDR_VERSION] != FMT_VERSION && p[HDR_VERSION] != FMT_VERSION_SIGNS)
        return breach(fault, PICI_E_VERSION, HDR_VERSION, "version");
    if (p[HDR_FORMAT] > FMT_HYBRID)
        return breach(fault, PICI_E_UNSUPPORTED, HDR_FORMAT, "format");
    if (fmt_width_log2(p[HDR_DTYPE]) < 0)
        return breach(fault, PICI_E_CORRUPT, HDR_DTYPE, "dtype");
    if (!fmt_version(p[HDR_VERSION], p[HDR_FORMAT], p[HDR_DTYPE]))
        return breach(fault, PICI_E_CORRUPT, HDR_VERSION, "version");
    if (p[HDR_FLAGS] & ~FLAG_ALL)
        return breach(fault, PICI_E_CORRUPT, HDR_FLAGS, "flags");

    *b = (struct pici_block){.bytes = p,
                             .format = p[HDR_FORMAT],
                             .dtype = p[HDR_DTYPE],
                             .flags = p[HDR_FLAGS],
                             .count = load_le64(p + HDR_COUNT),
                             .nnz = load_le64(p + HDR_NNZ),
                             .checksum = load_le64(p + HDR_CHECKSUM)};
    if ((b->flags & FLAG_INDEX64) != fmt_flags(b->format, b->count))
        return breach(fault, PICI_E_CORRUPT, HDR_FLAGS, "index-width");
    if (b->nnz > b->count || (b->format == FMT_DENSE && b->nnz != b->count))
        return breach(fault, PICI_E_CORRUPT, HDR_NNZ, "nnz");
    const uint64_t values = load_le64(p + HDR_VALUES_OFFSET);
    int fits = b->format == FMT_HYBRID ? fmt_layout_hybrid(&b->at, p[HDR_VERSION], b->dtype, b->count, b->nnz, values)
                                       : fmt_layout(&b->at, b->format, b->dtype, b->count, b->nnz);
    if (load_le64(p + HDR_INDEX_OFFSET) != b->at.index_offset)
        return breach(fault, PICI_E_CORRUPT, HDR_INDEX_OFFSET, "offsets");
    if (!fits || values != b->at.values_offset)
        return breach(fault, PICI_E_CORRUPT, HDR_VALUES_OFFSET, "offsets");
    if (b->checksum && !(b->flags & FLAG_CHECKSUM))
        return breach(fault, PICI_E_CORRUPT, HDR_CHECKSUM, "checksum-flag");
    return PICI_OK;
}

enum pici_status pici_block_whole(struct pici_block *b, size_t len, struct pici_fault *fault)
{
    if (len != b->at.block_bytes)
        return breach(fault, PICI_E_CORRUPT, len < b->at.block_bytes ? len : b->at.block_bytes, "length");
    b->bits = b->bytes + HDR_BYTES;
    b->index = b->bytes + b->at.index_offset;
    b->values = b->bytes + b->at.values_offset;
    return PICI_OK;
}

enum pici_status pici_block_checksum(const struct pici_block *b, struct pici_fault *fault)
{
    if ((b->flags & FLAG_CHECKSUM) && pici_block_hash(b->bytes, (size_t)b->at.block_bytes) != b->checksum)
        return breach(fault, PICI_E_CHECKSUM, HDR_CHECKSUM, "checksum");
    return PICI_OK;
}

enum pici_status pici_block_padding(const struct pici_block *b, struct pici_fault *fault)
{
    for (uint64_t i = b->at.index_offset + b->at.index_bytes; i < b->at.body_offset; i++)
        if (b->bytes[i])
            return breach(fault, PICI_E_CORRUPT, i, "padding");
    return PICI_OK;
}

void pici_block_emit(uint8_t *p, const struct fmt_layout *l, unsigned format, unsigned dtype, unsigned flags,
                     uint64_t count, uint64_t nnz)
{
    p[HDR_VERSION] = (uint8_t)l->version;
    p[HDR_FORMAT] = (uint8_t)format;
    p[HDR_DTYPE] = (uint8_t)dtype;
    p[HDR_FLAGS] = (uint8_t)flags;
    store_le64(p + HDR_COUNT, count);
    store_le64(p + HDR_NNZ, nnz);
    store_le64(p + HDR_INDEX_OFFSET, l->index_offset);
    store_le64(p + HDR_VALUES_OFFSET, l->values_offset);
    store_le64(p + HDR_CHECKSUM, 0);
    memcpy(p + HDR_MAGIC, magic, sizeof magic);
}

uint64_t pici_block_hash(const uint8_t *p, size_t len)
{
    static const uint8_t zero[HDR_BYTES - HDR_CHECKSUM];
    struct pici_xxh64 s;
    pici_xxh64_init(&s, 0);
    pici_xxh64_update(&s, p, HDR_CHECKSUM);
    pici_xxh64_update(&s, zero, sizeof zero);
    pici_xxh64_update(&s, p + HDR_BYTES, len - HDR_BYTES);
    return pici_xxh64_digest(&s);
}
