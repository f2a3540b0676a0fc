/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed blocks. The input is a byte of options, a byte of changes, and elements. Every ISA must encode the elements
 * as the reference does. Then the rest of the input changes the block, and every ISA must return the same verdict as
 * the reference. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/pici.h"

enum { MOST = 1 << 15, HEAD = 48 /* bytes before the parts of a block */ };

/* Every ISA must return the reference's verdict on the block. */
static void judge(const uint8_t *block, size_t len, size_t n, unsigned width)
{
    uint8_t *decoded = memory(n * width), *added = memory(n * width), *out = memory(n * width);
    struct ref_fault fault;
    struct ref_header h;
    const enum pici_status verdict = (enum pici_status)(int)ref_verify(block, len, &fault);
    const int same = !ref_header(&h, block, len, NULL) && h.count == n && h.width == width;
    const enum pici_status want = same ? (enum pici_status)(int)ref_decode_any(decoded, n, block, len, 0) : verdict;
    if (same)
        ref_decode_any(added, n, block, len, 1);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        struct pici_fault found = PICI_FAULT_INIT;
        pici_isa_force(*isa);
        require(pici_verify_at(block, len, &found) == verdict && found.offset == fault.offset);
        require(strcmp(found.rule ? found.rule : "", fault.rule ? fault.rule : "") == 0);
        if (!same)
            continue;
        require(pici_decompress(out, n, block, len, NULL) == want);
        require(want || memcmp(out, decoded, n * width) == 0);
        memset(out, 0, n * width);
        require(pici_scatter_add(out, n, block, len, NULL) == want);
        require(want || memcmp(out, added, n * width) == 0);
    }
    pici_isa_force(NULL);
    free(decoded);
    free(added);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    const unsigned dtype = 1 + data[0] % 6, width = ref_width(dtype), one_level = data[0] >> 7;
    const size_t spread = 1 + (data[0] >> 4 & 7), changes = data[1] % 8 * 4;
    data += 2;
    len -= 2;
    const size_t given = len > changes ? (len - changes) / width : 0, n = given * spread;
    if (n > MOST)
        return 0;
    uint8_t *src = memory(n * width);
    for (size_t i = 0; i < n; i++) /* repeat the elements, with other lowest bits */
        for (unsigned k = 0; k < width; k++)
            src[i * width + k] = (uint8_t)(data[i % given * width + k] ^ (k + 1 < width ? i / given : 0));
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t want, got;
    opts.pack = one_level ? PICI_PACK_FAST : PICI_PACK_PLANES;
    uint8_t *block = ref_encode_packed(&want, src, n, dtype, 0, REF_ZEROS_EXACT, one_level ? 1 : 2);
    require(block != NULL);
    uint8_t *out = memory(want);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        require(pici_compress(out, want, &got, src, n, (enum pici_dtype)dtype, PICI_PACKED, &opts) == PICI_OK);
        require(got == want && memcmp(out, block, want) == 0);
    }
    judge(out, want, n, width);
    for (size_t i = 0; i + 4 <= changes && i + 4 <= len; i += 4) {
        const uint8_t *const change = data + len - 4 - i;
        const size_t at = (change[0] | (size_t)change[1] << 8) % want;
        if (change[2] & 1 && want > HEAD) /* near the front, where most rules apply */
            out[HEAD + at % (want - HEAD < 64 ? want - HEAD : 64)] ^= change[3];
        else
            out[at] ^= change[3];
    }
    judge(out, want, n, width);
    free(src);
    free(block);
    free(out);
    return 0;
}
