/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference against every ISA: the input as a block, decoded and added; then as elements, encoded. Statuses and
 * bytes must be the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/pici.h"

enum { LIMIT = 1 << 20 };

static void as_block(const uint8_t *block, size_t len)
{
    struct ref_header h;
    if (ref_header(&h, block, len, NULL) || h.count > LIMIT)
        return;
    const size_t n = (size_t)h.count, bytes = n * h.width;
    uint8_t *decoded = memory(bytes), *added = memory(bytes), *before = memory(bytes), *out = memory(bytes);
    for (size_t i = 0; i < bytes; i++) /* what is added to: the block's own bytes, so that the fuzzer can choose them */
        before[i] = added[i] = block[len - 1 - i * 7 % len];
    const enum pici_status want = (enum pici_status)(int)ref_decode(decoded, n, block, len);
    ref_scatter_add(added, n, block, len);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        require(pici_verify(block, len) == want);
        require(pici_decompress(out, n, block, len, NULL) == want);
        require(want || memcmp(out, decoded, bytes) == 0);
        memcpy(out, before, bytes);
        require(pici_scatter_add(out, n, block, len, NULL) == want);
        require(want || memcmp(out, added, bytes) == 0);
    }
    pici_isa_force(NULL);
    free(decoded);
    free(added);
    free(before);
    free(out);
}

static void as_elements(const uint8_t *data, size_t len)
{
    const unsigned dtype = 1 + len % 14;
    const size_t n = len / ref_width(dtype);
    for (unsigned format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t want, got;
        uint8_t *block = ref_encode(&want, data, n, dtype, format, 0), *out = memory(want);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
            pici_isa_force(*isa);
            require(pici_compress(out, want, &got, data, n, (enum pici_dtype)dtype, (enum pici_format)format, NULL) ==
                    PICI_OK);
            require(got == want && memcmp(out, block, want) == 0);
        }
        pici_isa_force(NULL);
        free(block);
        free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = memory(len);
    if (len)
        memcpy(copy, data, len);
    as_block(copy, len);
    as_elements(copy, len);
    if (len >= 48 && (copy[7] & 2)) {
        ref_seal(copy, len);
        as_block(copy, len);
    }
    free(copy);
    return 0;
}
