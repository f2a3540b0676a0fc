/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What fuzzers share. */
#ifndef PICI_FUZZ_H
#define PICI_FUZZ_H

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static inline void require(int truth)
{
    if (!truth)
        abort();
}

/* So many bytes, zeros; there is some room even of none. */
static inline void *memory(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    require(p != NULL);
    return p;
}

#endif
