/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in the host's memory: the codec, and the kernels below it. */
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "coll/engine.h"
#include "cpu/kernels.h"
#include "cpu/reduce.h"

static void *host_alloc(size_t bytes)
{
    enum { LINE = 64 };
    return bytes > SIZE_MAX - LINE ? NULL : aligned_alloc(LINE, (bytes + LINE) / LINE * LINE);
}

static void host_free(void *p, size_t bytes)
{
    (void)bytes;
    free(p);
}

static void host_copy(void *dst, const void *src, uint64_t n, enum pici_dtype dtype)
{
    if (n)
        memcpy(dst, src, (size_t)n * pici_dtype_width(dtype));
}

static uint64_t host_count(const void *src, uint64_t n, enum pici_dtype dtype)
{
    return n ? pici_isa()->move[fmt_width_log2((unsigned)dtype)]->count(src, (size_t)n) : 0;
}

static enum pici_status host_encode(void *block, size_t cap, size_t *len, const void *src, uint64_t n,
                                    enum pici_dtype dtype, enum pici_format format, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.checksum = checksum;
    return pici_compress(block, cap, len, src, n, dtype, format, &opts);
}

/* The header of a block that is to be there whole, and to hold n elements of dtype. */
static enum pici_status expect(struct pici_block *b, uint64_t n, const void *block, size_t len, enum pici_dtype dtype)
{
    enum pici_status s = pici_block_parse(b, block, len, NULL);
    if (s || (s = pici_block_whole(b, len, NULL)) != PICI_OK)
        return s;
    return b->dtype == (unsigned)dtype && b->count == n ? PICI_OK : PICI_E_CORRUPT;
}

static enum pici_status host_decode(void *dst, uint64_t n, const void *block, size_t len, enum pici_dtype dtype,
                                    uint64_t output)
{
    struct pici_block b;
    enum pici_status s = expect(&b, n, block, len, dtype);
    return s ? s : pici_decompress_slice(dst, n, block, len, output);
}

static void host_mix(uint64_t tiles[PICI_CONTAINERS], const void *block, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    (void)pici_mix(&mix, block, len); /* without tiles, if the block is not hybrid */
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles[i] += mix.tiles[i];
}

/* Rules about a block as a whole, for which ranges are not checked: the checksum, the padding, hybrid's "total". */
static enum pici_status check_whole(const struct pici_block *b, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    uint64_t nnz = 0;
    enum pici_status s = pici_block_checksum(b, NULL);
    if (!s)
        s = pici_block_padding(b, NULL);
    if (s || b->format != FMT_HYBRID || (s = pici_mix(&mix, b->bytes, len)) != PICI_OK)
        return s;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        nnz += mix.nnz[i];
    return nnz == b->nnz ? PICI_OK : PICI_E_CORRUPT;
}

/* Decode piece by piece, each of which stays in a core's cache until it is reduced. */
static enum pici_status fold_order(uint8_t *dst, const struct pici_block *b, size_t len, int max, void *temp,
                                   uint64_t temp_elements)
{
    const unsigned w = b->at.width_log2;
    const uint64_t most = UINT64_C(64 << 10) >> w, piece = (temp_elements < most ? temp_elements : most) / TILE * TILE;
    enum pici_status s = check_whole(b, len);
    for (uint64_t at = 0, now; !s && at < b->count; at += now) {
        now = b->count - at < piece ? b->count - at : piece;
        s = pici_decompress_range(temp, at, now, b->bytes, len, NULL);
        if (!s)
            pici_reduce(dst + (at << w), temp, (size_t)now, b->dtype, max);
    }
    return s;
}

static enum pici_status host_fold(void *dst, uint64_t n, const void *block, size_t len, enum pici_dtype dtype,
                                  enum pici_op op, void *temp, uint64_t temp_elements)
{
    struct pici_block b;
    enum pici_status s = expect(&b, n, block, len, dtype);
    if (s)
        return s;
    if (op == PICI_MIN || op == PICI_MAX)
        return fold_order(dst, &b, len, op == PICI_MAX, temp, temp_elements);
    return pici_scatter_add(dst, n, block, len, NULL);
}

static void host_divide(void *dst, uint64_t n, enum pici_dtype dtype, int ranks)
{
    if (n)
        pici_divide(dst, (size_t)n, (unsigned)dtype, ranks);
}

const struct pici_engine pici_engine_host = {
    .name = "host",
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .count = host_count,
    .encode = host_encode,
    .decode = host_decode,
    .fold = host_fold,
    .mix = host_mix,
    .divide = host_divide,
};
