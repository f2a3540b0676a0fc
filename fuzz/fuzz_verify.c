/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a block. The library and the reference must give the same verdict and the same fault. Then the fuzzer
 * corrects the checksum, which random changes never do, and compares again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "formats/ref.h"
#include "pici/pici.h"

static void compare(const uint8_t *block, size_t len)
{
    struct pici_fault f = PICI_FAULT_INIT;
    struct ref_fault want;
    enum pici_status s = pici_verify_at(block, len, &f);
    ref_verify(block, len, &want);
    if ((int)s != (int)want.status || s != f.status || pici_verify(block, len) != s || f.offset != want.offset ||
        f.tile != want.tile || strcmp(f.rule ? f.rule : "", want.rule ? want.rule : "") != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *block = calloc(1, len ? len : 1);
    if (!block)
        abort();
    if (len)
        memcpy(block, data, len);
    compare(block, len);
    if (len >= 48 && (block[7] & 2)) {
        ref_seal(block, len);
        compare(block, len);
    }
    free(block);
    return 0;
}
