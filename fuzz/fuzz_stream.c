/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A block that reaches the receiver of a call with streams. The input:
 *   byte 0    dtype
 *   byte 1    Bits 2, 3: the format of a block made from the pattern that follows. The rest is edits of the block: an
 *             offset of two bytes and a byte each. Bit 4: the rest is the block itself
 *   byte 2, 3 elements
 *   byte 4    the distance of nonzero elements
 * The receiver reads the block as a list, and adds it to a list. If the dense decoder rejects it, both must reject
 * it. Otherwise the elements must be the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/list.h"
#include "formats/ref.h"
#include "fuzz/fuzz.h"

enum { HEAD = 5, LIMIT = 1 << 18 /* elements */ };

/* The block, in memory of its exact size. */
static uint8_t *make(const uint8_t *data, size_t len, size_t *size)
{
    const enum pici_dtype dtype = (enum pici_dtype)(1 + data[0] % 14);
    if (data[1] & 16) {
        uint8_t *block = memory(len - HEAD);
        memcpy(block, data + HEAD, len - HEAD);
        *size = len - HEAD;
        return block;
    }
    const enum pici_format format = (enum pici_format)(data[1] >> 2 & 3);
    const size_t n = (size_t)ref_get(data + 2, 2) * 3, width = pici_dtype_width(dtype);
    uint8_t *elements = memory(n * width);
    memset(elements, 0, n * width);
    for (size_t i = 0; i < n; i += 1 + data[4])
        elements[i * width] = (uint8_t)(1 + i % 255);
    const size_t capacity = pici_bound(format, dtype, n);
    uint8_t *room = memory(capacity);
    require(pici_compress(room, capacity, size, elements, n, dtype, format, NULL) == PICI_OK);
    uint8_t *block = memory(*size);
    memcpy(block, room, *size);
    for (size_t i = HEAD; i + 2 < len; i += 3)
        block[ref_get(data + i, 2) % *size] = data[i + 2];
    free(room);
    free(elements);
    return block;
}

static void receive(const struct pici_block *block, enum pici_dtype dtype)
{
    const size_t n = (size_t)block->count, width = pici_dtype_width(dtype);
    const unsigned width_log2 = (unsigned)__builtin_ctzll(width);
    struct pici_list list = {.capacity = 0}, mine = {.capacity = 0};
    uint8_t *dense = memory(n * width), *scattered = memory(n * width);
    const enum pici_status verdict = pici_block_decode(dense, block, n), status = pici_list_read(&list, block, n);
    require(status == verdict);
    if (!status) {
        memset(scattered, 0, n * width);
        pici_list_scatter(scattered, &list, width_log2);
        require(!n || memcmp(dense, scattered, n * width) == 0);
        for (uint64_t i = 1; i < list.count; i++)
            require(list.positions[i] > list.positions[i - 1]);
        require(!list.count || list.positions[list.count - 1] < n);
        require(!list.count || pici_list_read(&mine, block, list.count - 1) == PICI_E_CORRUPT);
        /* the union with itself */
        uint32_t *positions = (uint32_t *)(void *)memory((size_t)list.count * 8);
        uint8_t *first = memory((size_t)list.count * 2 * width), *second = memory((size_t)list.count * 2 * width);
        require(pici_list_union(positions, first, second, &list, &list, width_log2) == list.count);
        require(!list.count || (memcmp(first, list.values, (size_t)list.count * width) == 0 &&
                                memcmp(second, list.values, (size_t)list.count * width) == 0));
        free(positions);
        free(first);
        free(second);
    }
    free(dense);
    free(scattered);
    pici_list_free(&list);
    pici_list_free(&mine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct pici_block parsed;
    size_t size;
    if (len < HEAD)
        return 0;
    const enum pici_dtype dtype = (enum pici_dtype)(1 + data[0] % 14);
    uint8_t *block = make(data, len, &size);
    if (!pici_block_parse(&parsed, block, size, NULL) && parsed.dtype == (unsigned)dtype && parsed.count <= LIMIT &&
        parsed.format != FMT_PACKED && !pici_block_whole(&parsed, size, NULL))
        receive(&parsed, dtype);
    free(block);
    return 0;
}
