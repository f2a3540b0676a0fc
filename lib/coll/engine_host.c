/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in the host's memory: the codec, and the kernels below it. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
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

static void host_copy(struct pici_lane *lane, void *dst, const void *src, uint64_t n, enum pici_dtype dtype)
{
    (void)lane;
    if (n)
        memcpy(dst, src, (size_t)n * pici_dtype_width(dtype));
}

static void host_count(struct pici_lane *lane, const void *const *src, const uint64_t *n, int runs,
                       enum pici_dtype dtype, uint64_t *nnz)
{
    (void)lane;
    for (int i = 0; i < runs; i++)
        nnz[i] = n[i] ? pici_isa()->move[fmt_width_log2((unsigned)dtype)]->count(src[i], (size_t)n[i]) : 0;
}

static void host_put(struct pici_lane *lane, uint8_t *to, const uint8_t *from, size_t bytes)
{
    (void)lane;
    memcpy(to, from, bytes);
}

static enum pici_status host_encode(struct pici_lane *lane, uint8_t *message, size_t at, size_t cap, size_t *len,
                                    const void *const *src, const uint64_t *n, int runs, enum pici_dtype dtype,
                                    enum pici_format format, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    enum pici_status s = PICI_OK;
    (void)lane;
    opts.checksum = checksum;
    for (int i = 0; i < runs && !s; i++, at += len[i - 1])
        s = pici_compress(message + at, cap - at, &len[i], src[i], n[i], dtype, format, &opts);
    return s;
}

/* The header of a block that is to be there whole, and to hold n elements of dtype. */
static enum pici_status expect(struct pici_block *b, uint64_t n, const void *block, size_t len, enum pici_dtype dtype)
{
    enum pici_status s = pici_block_parse(b, block, len, NULL);
    if (s || (s = pici_block_whole(b, len, NULL)) != PICI_OK)
        return s;
    return b->dtype == (unsigned)dtype && b->count == n ? PICI_OK : PICI_E_CORRUPT;
}

static enum pici_status host_decode(struct pici_lane *lane, void *dst, uint64_t n, const void *block, size_t len,
                                    enum pici_dtype dtype, uint64_t output)
{
    struct pici_block b;
    (void)lane;
    enum pici_status s = expect(&b, n, block, len, dtype);
    return s ? s : pici_decompress_slice(dst, n, block, len, output);
}

static void host_mix(struct pici_lane *lane, uint64_t tiles[PICI_CONTAINERS], const void *block, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    (void)lane;
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

static enum pici_status host_fold(struct pici_lane *lane, void *dst, uint64_t n, const void *block, size_t len,
                                  enum pici_dtype dtype, enum pici_op op, void *temp, uint64_t temp_elements)
{
    struct pici_block b;
    (void)lane;
    enum pici_status s = expect(&b, n, block, len, dtype);
    if (s)
        return s;
    if (op == PICI_MIN || op == PICI_MAX)
        return fold_order(dst, &b, len, op == PICI_MAX, temp, temp_elements);
    return pici_scatter_add(dst, n, block, len, NULL);
}

static void host_divide(struct pici_lane *lane, void *dst, uint64_t n, enum pici_dtype dtype, int ranks)
{
    (void)lane;
    if (n)
        pici_divide(dst, (size_t)n, (unsigned)dtype, ranks);
}

const struct pici_engine pici_engine_host = {
    .name = "host",
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .count = host_count,
    .prefix = host_put,
    .encode = host_encode,
    .put = host_put,
    .decode = host_decode,
    .fold = host_fold,
    .mix = host_mix,
    .divide = host_divide,
    .coding = 1,
};
