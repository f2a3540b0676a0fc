/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_nonzeros; positions and values of elements. */
#include "codec/nonzeros.h"

#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"

/* Bytes decoded at once. Each piece reads the metadata of its groups of tiles again. */
enum { PIECE_BYTES = 1 << 15 };

enum pici_status pici_found_begin(struct pici_found *found, void *indices, size_t index_bytes, void *values,
                                  uint64_t capacity, uint64_t first, uint64_t n)
{
    if ((index_bytes != 4 && index_bytes != 8) || (capacity && !indices && !values) ||
        (index_bytes == 4 && n > UINT64_C(1) << 32))
        return PICI_E_ARG;
    *found = (struct pici_found){.indices = indices,
                                 .values = values,
                                 .index_log2 = index_bytes == 8 ? 3 : 2,
                                 .capacity = capacity,
                                 .first = first};
    return PICI_OK;
}

enum pici_status pici_found_end(const struct pici_found *all, uint64_t *found)
{
    *found = all->count;
    return all->count > all->capacity ? PICI_E_SPACE : PICI_OK;
}

/* Adds the nonzeros of n <= TILE elements. position: of the first one. Not inline: its stack is free again when the
 * caller decodes the next piece. */
__attribute__((noinline)) static void add_tile(struct pici_found *found, const uint8_t *elements, size_t n,
                                               uint64_t position, const uint8_t *base)
{
    uint8_t index[TILE * 8 + PICI_SLACK], value[TILE * 8 + PICI_SLACK];
    const struct pici_move *const kernels = pici_isa()->move[found->width_log2];
    const unsigned index_width = 1u << found->index_log2, width = 1u << found->width_log2;
    if (found->count >= found->capacity) {
        found->count += kernels->count(elements, n);
        return;
    }
    const uint64_t room = found->capacity - found->count;
    const int straight = room >= TILE + PICI_SLACK && !PICI_BIG_ENDIAN;
    uint8_t *const indices = found->indices ? found->indices + found->count * index_width : index,
                   *const values = found->values ? found->values + found->count * width : value;
    uint8_t *const indices_made = straight ? indices : index, *const values_made = straight ? values : value;
    const size_t more = kernels->pack_coo(indices_made, index_width, values_made, elements, n, position);
    const size_t kept = more < room ? more : (size_t)room;
    found->count += more;
    if (PICI_BIG_ENDIAN) { /* entries are little-endian */
        swap_elements(index, kept * index_width, index_width);
        swap_elements(value, kept * width, width);
    }
    for (size_t i = 0; base && i < kept; i++) {
        uint64_t at = 0;
        uint32_t at_32;
        if (index_width == 4) {
            memcpy(&at_32, indices_made + 4 * i, 4);
            at = at_32;
        } else {
            memcpy(&at, indices_made + 8 * i, 8);
        }
        for (unsigned byte = 0; byte < width; byte++)
            values_made[i * width + byte] ^= base[(at - position) * width + byte];
    }
    if (!straight && found->indices)
        memcpy(indices, index, kept * index_width);
    if (!straight && found->values)
        memcpy(values, value, kept * width);
}

enum pici_status pici_found_block(struct pici_found *found, const void *block, size_t size, uint64_t from, uint64_t n,
                                  uint64_t start, const uint8_t *base)
{
    uint8_t piece[PIECE_BYTES] __attribute__((aligned(64)));
    const unsigned width_log2 = found->width_log2;
    for (uint64_t end = from + n, some; from < end; from += some) {
        /* pieces end where tiles do */
        some = ((size_t)PIECE_BYTES >> width_log2) - from % TILE;
        some = some < end - from ? some : end - from;
        const enum pici_status status = pici_decompress_range(piece, from, some, block, size, NULL);
        if (status)
            return status;
        for (uint64_t i = 0, part; i < some; i += part) {
            part = some - i < TILE ? some - i : TILE;
            add_tile(found, piece + (i << width_log2), (size_t)part, start + from + i - found->first,
                     base ? base + ((from + i) << width_log2) : NULL);
        }
    }
    return PICI_OK;
}

void pici_found_bits(struct pici_found *found, const uint32_t *bits, const uint8_t *values, size_t n, uint64_t start,
                     uint64_t first, uint64_t end)
{
    const unsigned width_log2 = found->width_log2;
    for (size_t i = 0; i < n; i += 32)
        for (uint32_t word = bits[i / 32]; word; word &= word - 1, values += (size_t)1 << width_log2) {
            const uint64_t element = start + i + (unsigned)__builtin_ctz(word), position = element - found->first;
            if (element < first || element >= end)
                continue;
            const uint64_t at = found->count++;
            if (at >= found->capacity)
                continue;
            const uint32_t position_32 = (uint32_t)position;
            if (found->indices && found->index_log2 == 2)
                memcpy(found->indices + 4 * at, &position_32, 4);
            else if (found->indices)
                memcpy(found->indices + 8 * at, &position, 8);
            if (found->values)
                memcpy(found->values + (at << width_log2), values, (size_t)1 << width_log2);
        }
}

enum pici_status pici_found_all(struct pici_found *found, const void *block, size_t size, uint64_t first, uint64_t n,
                                const uint8_t *base)
{
    struct pici_info info = PICI_INFO_INIT;
    enum pici_status status = pici_inspect(&info, block, size);
    if (status)
        return status;
    if (first > info.count || n > info.count - first)
        return PICI_E_ARG;
    status = n == info.count ? pici_verify(block, size) : PICI_OK; /* rules of the whole block, and its checksum */
    if (status)
        return status;
    found->width_log2 = (unsigned)fmt_width_log2((unsigned)info.dtype);
    return pici_found_block(found, block, size, first, n, 0, base);
}

enum pici_status pici_nonzeros(void *indices, size_t index_bytes, void *values, uint64_t capacity, uint64_t *count,
                               const void *block, size_t size, uint64_t first, uint64_t n)
{
    struct pici_found found;
    if (count)
        *count = 0;
    if (!count || !block)
        return PICI_E_ARG;
    enum pici_status status = pici_found_begin(&found, indices, index_bytes, values, capacity, first, n);
    if (!status)
        status = pici_found_all(&found, block, size, first, n, NULL);
    return status ? status : pici_found_end(&found, count);
}
