/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a block. The fuzzer inspects it and, if it claims at most LIMIT elements, decodes it: whole, in
 * ranges and by addition. Whole and in ranges, the elements must be the same. Only decoding a range may accept a
 * block that verify rejects. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/pici.h"

enum { LIMIT = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct pici_info info = PICI_INFO_INIT;
    uint8_t *block = memory(len); /* exact size, so that the sanitizer knows its end */
    if (len)
        memcpy(block, data, len);
    struct pici_fault fault = PICI_FAULT_INIT;
    enum pici_status verdict = pici_verify_at(block, len, &fault), s = pici_inspect(&info, block, len);
    require(!s || s == verdict || s == PICI_E_UNSUPPORTED);
    if (s || info.count > LIMIT) {
        free(block);
        return 0;
    }
    const size_t width = pici_dtype_width(info.dtype), n = (size_t)info.count;
    struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
    s = pici_breakdown(&breakdown, block, len);
    const int packed = info.format == PICI_PACKED;
    require(s == (info.format == PICI_HYBRID || packed ? PICI_OK : PICI_E_ARG) || verdict != PICI_OK);
    uint8_t *all = memory(n * width), *part = memory(n * width);
    s = pici_decompress(all, n, block, len, NULL);
    /* decoders do not check the rule "choice" */
    require(s == verdict || (packed && s == PICI_OK && fault.rule && strcmp(fault.rule, "choice") == 0));
    require(pici_scatter_add(part, n, block, len, NULL) == s);

    /* positions and values of the nonzeros */
    uint32_t *at = memory(n * sizeof *at);
    uint64_t found;
    s = pici_nonzeros(at, 4, part, n, &found, block, len, 0, n);
    require(s == verdict);
    for (size_t i = 0, next = 0; !s && i < n; i++) {
        static const uint8_t zero[8];
        if (memcmp(all + i * width, zero, width) == 0)
            continue;
        require(next < found && at[next] == i && memcmp(part + next * width, all + i * width, width) == 0);
        require(++next == found || i + 1 < n);
    }
    free(at);

    /* three ranges, cut at places from the input's hash */
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ data[i]) * 1099511628211u;
    const size_t a = n ? (size_t)(hash % (n + 1)) : 0, b = a + (size_t)((hash >> 32) % (n - a + 1));
    s = pici_decompress_range(part, 0, a, block, len, NULL);
    require(s == PICI_OK || verdict != PICI_OK);
    enum pici_status s2 = pici_decompress_range(part + a * width, a, b - a, block, len, NULL);
    require(s2 == PICI_OK || verdict != PICI_OK);
    enum pici_status s3 = pici_decompress_range(part + b * width, b, n - b, block, len, NULL);
    require(s3 == PICI_OK || verdict != PICI_OK);
    require(verdict || memcmp(all, part, n * width) == 0);
    free(all);
    free(part);
    free(block);
    return 0;
}
