/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference against every ISA. First the input is a block, to decode and add. Then it is elements, to encode
 * exactly and by value. By value, zeros get signs that the reference does not see. Statuses and bytes must be the
 * same. */
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
    for (size_t i = 0; i < bytes;
         i++) /* base of the addition: the block's own bytes, so that the fuzzer can choose them */
        before[i] = added[i] = block[len - 1 - i * 7 % len];
    const enum pici_status verdict = (enum pici_status)(int)ref_verify(block, len, NULL);
    /* decoders do not check the rule "choice" of packed */
    const enum pici_status want = (enum pici_status)(int)ref_decode_any(decoded, n, block, len, 0);
    ref_decode_any(added, n, block, len, 1);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        require(pici_verify(block, len) == verdict);
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

/* Encode the n elements at data. The block must equal the reference's block of those at `normal`. */
static void encode(const uint8_t *data, const uint8_t *normal, size_t n, unsigned dtype, enum pici_zeros zeros)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.zeros = zeros;
    for (unsigned format = PICI_DENSE; format <= PICI_PACKED; format++) {
        size_t want, got;
        if (format == PICI_PACKED && dtype > PICI_F8E5M2)
            continue;
        uint8_t *block = ref_encode(&want, normal, n, dtype, format, 0), *out = memory(want);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
            pici_isa_force(*isa);
            require(pici_compress(out, want, &got, data, n, (enum pici_dtype)dtype, (enum pici_format)format, &opts) ==
                    PICI_OK);
            require(got == want && memcmp(out, block, want) == 0);
        }
        pici_isa_force(NULL);
        free(block);
        free(out);
    }
}

static void as_elements(const uint8_t *data, size_t len)
{
    const unsigned dtype = 1 + len % 14, width = ref_width(dtype);
    const size_t n = len / width;
    const uint64_t sign = dtype <= PICI_F8E5M2 ? UINT64_C(1) << (8 * width - 1) : 0;
    uint8_t *normal = memory(n * width), *marked = memory(n * width);
    for (size_t i = 0; i < n; i++) {
        const uint64_t x = ref_load(data, i, width);
        const int zero = (x & ~sign) == 0;
        ref_store(normal, i, width, zero ? 0 : x);
        ref_store(marked, i, width, zero && data[i * 7 % len] & 1 ? sign : x);
    }
    encode(data, data, n, dtype, PICI_ZEROS_EXACT);
    encode(marked, normal, n, dtype, PICI_ZEROS_BY_VALUE);
    free(normal);
    free(marked);
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
