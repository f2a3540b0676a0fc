/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a byte of options, a byte of dtype, and two halves: base and source. In every format, their delta
 * must be the block of their XOR, and lead from one to the other in both directions. The whole input is also an
 * untrusted block. Applying it must return the same status as verifying it, and flip the bits that decoding gives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/delta.h"

enum { LIMIT = 1 << 20 };

static void flip(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        dst[i] ^= src[i];
}

static void there_and_back(const uint8_t *base, const uint8_t *src, size_t n, enum pici_dtype dtype,
                           enum pici_format format, int checksum)
{
    const size_t bytes = n * pici_dtype_width(dtype), bound = pici_bound(format, dtype, n);
    struct pici_opts opts = PICI_OPTS_INIT;
    uint8_t *delta = memory(bound), *want = memory(bound), *now = memory(bytes);
    size_t len, want_len;
    opts.checksum = checksum;
    memcpy(now, base, bytes);
    flip(now, src, bytes);
    require(pici_compress(want, bound, &want_len, now, n, dtype, format, &opts) == PICI_OK);
    require(pici_diff(delta, bound, &len, base, src, n, dtype, format, &opts) == PICI_OK);
    require(len == want_len && memcmp(delta, want, len) == 0);
    require(pici_diff(want, len - 1, &want_len, base, src, n, dtype, format, &opts) == PICI_E_SPACE && want_len == 0);
    memcpy(now, base, bytes);
    require(pici_apply(now, n, delta, len, NULL) == PICI_OK && memcmp(now, src, bytes) == 0);
    require(pici_apply(now, n, delta, len, NULL) == PICI_OK && memcmp(now, base, bytes) == 0);
    free(delta);
    free(want);
    free(now);
}

static void as_block(const uint8_t *block, size_t len)
{
    struct pici_info info = PICI_INFO_INIT;
    if (pici_inspect(&info, block, len) || info.count > LIMIT)
        return;
    const size_t n = (size_t)info.count, bytes = n * pici_dtype_width(info.dtype);
    uint8_t *got = memory(bytes), *want = memory(bytes), *decoded = memory(bytes);
    for (size_t i = 0; i < bytes; i++)
        got[i] = want[i] = block[len - 1 - i * 7 % len];
    const enum pici_status s = pici_apply(got, n, block, len, NULL);
    require(s == pici_verify(block, len) && s == pici_decompress(decoded, n, block, len, NULL));
    flip(want, decoded, bytes);
    require(s || memcmp(got, want, bytes) == 0);
    free(got);
    free(want);
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const enum pici_format formats[5] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_AUTO};
    uint8_t *copy = memory(len);
    if (len)
        memcpy(copy, data, len);
    as_block(copy, len);
    if (len >= 2) {
        const enum pici_dtype dtype = (enum pici_dtype)(1 + copy[1] % 14);
        const size_t n = (len - 2) / 2 / pici_dtype_width(dtype);
        there_and_back(copy + 2, copy + 2 + n * pici_dtype_width(dtype), n, dtype, formats[(copy[0] & 0x7f) % 5],
                       copy[0] >> 7);
    }
    free(copy);
    return 0;
}
