/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/block.h"

#include "bytes.h"
#include "packed_format.h"
#include "xxh64.h"

static const uint8_t magic[4] = {'P', 'I', 'C', 'I'};

enum pici_status pici_fault_at(struct pici_fault *fault, enum pici_status status, uint64_t offset, uint64_t tile,
                               const char *rule)
{
    if (fault) {
        fault->status = status;
        fault->offset = offset;
        fault->tile = tile;
        fault->rule = rule;
    }
    return status;
}

static enum pici_status breach(struct pici_fault *fault, enum pici_status status, uint64_t offset, const char *rule)
{
    return pici_fault_at(fault, status, offset, PICI_NO_TILE, rule);
}

enum pici_status pici_block_parse(struct pici_block *parsed, const void *block, size_t size, struct pici_fault *fault)
{
    const uint8_t *header = block;
    if (size < HDR_BYTES)
        return breach(fault, PICI_E_CORRUPT, size, "size");
    if (memcmp(header + HDR_MAGIC, magic, sizeof magic) != 0)
        return breach(fault, PICI_E_CORRUPT, HDR_MAGIC, "magic");
    if (header[HDR_VERSION] != FMT_VERSION && header[HDR_VERSION] != FMT_VERSION_SIGNS)
        return breach(fault, PICI_E_VERSION, HDR_VERSION, "version");
    if (header[HDR_FORMAT] > FMT_PACKED)
        return breach(fault, PICI_E_UNSUPPORTED, HDR_FORMAT, "format");
    const int packed = header[HDR_FORMAT] == FMT_PACKED;
    if (fmt_width_log2(header[HDR_DTYPE]) < 0 || (packed && !fmt_is_float(header[HDR_DTYPE])))
        return breach(fault, PICI_E_CORRUPT, HDR_DTYPE, "dtype");
    if (!fmt_version(header[HDR_VERSION], header[HDR_FORMAT], header[HDR_DTYPE]))
        return breach(fault, PICI_E_CORRUPT, HDR_VERSION, "version");
    if (header[HDR_FLAGS] & ~(FLAG_ALL | (packed ? FLAG_ONE_LEVEL : 0)))
        return breach(fault, PICI_E_CORRUPT, HDR_FLAGS, "flags");

    *parsed = (struct pici_block){.bytes = header,
                                  .format = header[HDR_FORMAT],
                                  .dtype = header[HDR_DTYPE],
                                  .flags = header[HDR_FLAGS],
                                  .count = load_le64(header + HDR_COUNT),
                                  .nonzeros = load_le64(header + HDR_NNZ),
                                  .checksum = load_le64(header + HDR_CHECKSUM)};
    if ((parsed->flags & FLAG_INDEX64) != fmt_flags(parsed->format, parsed->count))
        return breach(fault, PICI_E_CORRUPT, HDR_FLAGS, "index-width");
    if (parsed->nonzeros > parsed->count || (parsed->format == FMT_DENSE && parsed->nonzeros != parsed->count))
        return breach(fault, PICI_E_CORRUPT, HDR_NNZ, "nnz");
    const uint64_t values = load_le64(header + HDR_VALUES_OFFSET);
    int fits;
    if (parsed->format == FMT_HYBRID)
        fits = fmt_layout_hybrid(&parsed->layout, header[HDR_VERSION], parsed->dtype, parsed->count, parsed->nonzeros,
                                 values);
    else if (packed)
        fits = fmt_layout_packed(&parsed->layout, header[HDR_VERSION], parsed->dtype, parsed->count, parsed->nonzeros,
                                 values);
    else
        fits = fmt_layout(&parsed->layout, parsed->format, parsed->dtype, parsed->count, parsed->nonzeros);
    if (load_le64(header + HDR_INDEX_OFFSET) != parsed->layout.index_offset)
        return breach(fault, PICI_E_CORRUPT, HDR_INDEX_OFFSET, "offsets");
    if (!fits || values != parsed->layout.values_offset)
        return breach(fault, PICI_E_CORRUPT, HDR_VALUES_OFFSET, "offsets");
    if (parsed->checksum && !(parsed->flags & FLAG_CHECKSUM))
        return breach(fault, PICI_E_CORRUPT, HDR_CHECKSUM, "checksum-flag");
    return PICI_OK;
}

enum pici_status pici_block_whole(struct pici_block *block, size_t size, struct pici_fault *fault)
{
    if (size != block->layout.block_bytes)
        return breach(fault, PICI_E_CORRUPT, size < block->layout.block_bytes ? size : block->layout.block_bytes,
                      "length");
    block->bits = block->bytes + HDR_BYTES;
    block->index = block->bytes + block->layout.index_offset;
    block->values = block->bytes + block->layout.values_offset;
    return PICI_OK;
}

enum pici_status pici_block_checksum(const struct pici_block *block, struct pici_fault *fault)
{
    if ((block->flags & FLAG_CHECKSUM) &&
        pici_block_hash(block->bytes, (size_t)block->layout.block_bytes) != block->checksum)
        return breach(fault, PICI_E_CHECKSUM, HDR_CHECKSUM, "checksum");
    return PICI_OK;
}

enum pici_status pici_block_padding(const struct pici_block *block, struct pici_fault *fault)
{
    for (uint64_t i = block->layout.index_offset + block->layout.index_bytes; i < block->layout.body_offset; i++)
        if (block->bytes[i])
            return breach(fault, PICI_E_CORRUPT, i, "padding");
    return PICI_OK;
}

void pici_block_emit(uint8_t *header, const struct fmt_layout *layout, unsigned format, unsigned dtype, unsigned flags,
                     uint64_t count, uint64_t nonzeros)
{
    header[HDR_VERSION] = (uint8_t)layout->version;
    header[HDR_FORMAT] = (uint8_t)format;
    header[HDR_DTYPE] = (uint8_t)dtype;
    header[HDR_FLAGS] = (uint8_t)flags;
    store_le64(header + HDR_COUNT, count);
    store_le64(header + HDR_NNZ, nonzeros);
    store_le64(header + HDR_INDEX_OFFSET, layout->index_offset);
    store_le64(header + HDR_VALUES_OFFSET, layout->values_offset);
    store_le64(header + HDR_CHECKSUM, 0);
    memcpy(header + HDR_MAGIC, magic, sizeof magic);
}

uint64_t pici_block_hash(const uint8_t *block, size_t size)
{
    static const uint8_t zero[HDR_BYTES - HDR_CHECKSUM];
    struct pici_xxh64 state;
    pici_xxh64_init(&state, 0);
    pici_xxh64_update(&state, block, HDR_CHECKSUM);
    pici_xxh64_update(&state, zero, sizeof zero);
    pici_xxh64_update(&state, block + HDR_BYTES, size - HDR_BYTES);
    return pici_xxh64_digest(&state);
}
