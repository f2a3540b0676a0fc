/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a Matrix Market file for the reader of the example spmm: it gives a matrix in order, or an error. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "examples/matrix_market.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct matrix x;
    if (!len)
        return 0;
    FILE *in = fmemopen((void *)(uintptr_t)data, len, "r");
    require(in != NULL);
    const char *wrong = matrix_parse(&x, in);
    fclose(in);
    if (wrong) {
        require(wrong[0]);
        return 0;
    }
    require(x.rows && x.begin[0] == 0);
    for (uint32_t r = 0; r < x.rows; r++) {
        require(x.begin[r] <= x.begin[r + 1]);
        for (size_t i = x.begin[r]; i < x.begin[r + 1]; i++)
            require(x.column[i] < x.rows && (i == x.begin[r] || x.column[i - 1] < x.column[i]) && x.value[i] != 0);
    }
    matrix_free(&x);
    return 0;
}
