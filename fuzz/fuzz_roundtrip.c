/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a byte of options, a byte of dtype, and elements. Blocks of every format must return the same
 * elements, be valid, no longer than their bound, and of the requested format. The first byte gives a number of
 * zeros to insert after every 8 bytes of elements, so that short inputs make several tiles. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/pici.h"

static void roundtrip(const uint8_t *src, size_t n, enum pici_dtype dtype, enum pici_format format, int checksum,
                      enum pici_pack pack)
{
    const size_t bytes = n * pici_dtype_width(dtype), bound = pici_bound(format, dtype, n);
    struct pici_opts opts = PICI_OPTS_INIT;
    struct pici_info info = PICI_INFO_INIT;
    uint8_t *block = memory(bound), *back = memory(bytes);
    size_t got, again;
    opts.checksum = checksum;
    opts.pack = pack;
    require(pici_compress(block, bound, &got, src, n, dtype, format, &opts) == PICI_OK && got <= bound);
    require(pici_inspect(&info, block, got) == PICI_OK && info.block_bytes == got && info.count == n);
    require(info.dtype == dtype &&
            (format == PICI_AUTO || info.format == format || (info.format == PICI_PACKED && pack != PICI_PACK_NONE)));
    require(pici_verify(block, got) == PICI_OK);
    require(pici_decompress(back, n, block, got, NULL) == PICI_OK);
    require(!bytes || memcmp(back, src, bytes) == 0);
    if (info.format == PICI_HYBRID || info.format == PICI_PACKED) {
        struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
        require(pici_breakdown(&breakdown, block, got) == PICI_OK);
        uint64_t all = breakdown.other_bytes, nnz = 0;
        for (int c = 0; c < PICI_CONTAINERS; c++) {
            all += breakdown.position_bytes[c] + breakdown.value_bytes[c];
            nnz += breakdown.nnz[c];
        }
        require(all == got && nnz == info.nnz);
    }
    /* exactly enough room, then one byte less */
    uint8_t *tight = memory(got);
    require(pici_compress(tight, got, &again, src, n, dtype, format, &opts) == PICI_OK && again == got);
    require(memcmp(tight, block, got) == 0);
    require(pici_compress(tight, got - 1, &again, src, n, dtype, format, &opts) == PICI_E_SPACE && again == 0);
    require(pici_inspect(&info, tight, got - 1) != PICI_OK);
    free(tight);
    free(back);
    free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const enum pici_format formats[5] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_AUTO};
    if (len < 2)
        return 0;
    const enum pici_format format = formats[(data[0] & 3) + (data[0] >> 3 & 1)];
    const int checksum = data[0] >> 2 & 1;
    const size_t spread = (size_t)1 << (data[0] >> 4);
    const enum pici_dtype dtype = (enum pici_dtype)(1 + data[1] % 14);
    const size_t width = pici_dtype_width(dtype), gap = (spread - 1) * width;
    data += 2;
    len -= 2;
    size_t bytes = len / 8 * (8 + gap) + len % 8;
    if (bytes > 1 << 18)
        return 0;
    uint8_t *src = memory(bytes);
    memset(src, 0, bytes);
    for (size_t in = 0, out = 0; in < len; in += 8, out += 8 + gap)
        memcpy(src + out, data + in, len - in < 8 ? len - in : 8);
    roundtrip(src, bytes / width, dtype, format, checksum, PICI_PACK_NONE);
    if (dtype <= PICI_F8E5M2) {
        const enum pici_pack pack = data[-1] & 128 ? PICI_PACK_FAST : PICI_PACK_PLANES;
        roundtrip(src, bytes / width, dtype, format, checksum, pack);
        roundtrip(src, bytes / width, dtype, PICI_PACKED, checksum, pack);
    }
    free(src);
    return 0;
}
