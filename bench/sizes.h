/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How long blocks are, beside what no format that stores values as they are can do without where positions are random:
 * the values, and the entropy of which elements are nonzero. Sizes are exact: one run says all, on any host. */
#ifndef PICI_BENCH_SIZES_H
#define PICI_BENCH_SIZES_H

#include <math.h>

#include "common.h"

enum { SIZES_N = 1 << 22 };
static const enum pici_format sizes_format[] = {PICI_PICI, PICI_COO, PICI_DENSE, PICI_HYBRID};
static const double sizes_density[] = {0.01, 0.1, 1, 5, 10, 20, 50, 90, 100}; /* percent */

/* The project's limits for hybrid, as a multiple of the bound: at 0.01%, where headers weigh, and above. */
static const struct {
    enum pici_dtype dtype;
    double sparsest, above;
} sizes_limit[] = {{PICI_F32, 1.4, 1.15}, {PICI_BF16, 1.6, 1.25}};

/* In bytes: nnz values among n elements, and log2 of the number of ways to choose their positions, to first order. */
static inline double entropy_bound(double n, double nnz, double width)
{
    const double p = nnz / n;
    return nnz * width + (p > 0 && p < 1 ? -n * (p * log2(p) + (1 - p) * log2(1 - p)) / 8 : 0);
}

/* A table for each of the dtypes with limits, or JSON records that begin with a comma unless *records is 0. Returns the
 * number of limits missed. */
static inline int print_sizes(int json, size_t *records)
{
    enum { FORMATS = COUNT_OF(sizes_format), COLUMNS = COUNT_OF(sizes_density) };
    int missed = 0;
    for (size_t k = 0; k < COUNT_OF(sizes_limit); k++) {
        const enum pici_dtype t = sizes_limit[k].dtype;
        const size_t width = pici_dtype_width(t), cap = 2 * pici_bound(PICI_COO, t, SIZES_N);
        void *const src = buffer(SIZES_N * width, 0), *const block = malloc(cap);
        double ratio[FORMATS][COLUMNS], limit[COLUMNS];
        if (!block)
            die("out of memory");
        for (size_t c = 0; c < COLUMNS; c++) {
            struct pici_info info = PICI_INFO_INIT;
            fill(src, SIZES_N, t, sizes_density[c] / 100, UNIFORM);
            limit[c] = sizes_density[c] < 0.1 ? sizes_limit[k].sparsest : sizes_limit[k].above;
            for (size_t f = FORMATS; f-- > 0;) { /* hybrid first: its header has the nonzeros, which dense's has not */
                size_t len;
                if (pici_compress(block, cap, &len, src, SIZES_N, t, sizes_format[f], NULL) != PICI_OK ||
                    (sizes_format[f] == PICI_HYBRID && pici_inspect(&info, block, len) != PICI_OK))
                    die("sizes: compress failed");
                const double bound = entropy_bound(SIZES_N, (double)info.nnz, (double)width);
                ratio[f][c] = (double)len / bound;
                missed += sizes_format[f] == PICI_HYBRID && ratio[f][c] > limit[c];
                if (!json)
                    continue;
                printf("%s\n  {\"what\":\"size\",\"dtype\":\"%s\",\"elements\":%d,\"density\":%g,\"nonzero\":%llu,"
                       "\"format\":\"%s\",\"bytes\":%zu,\"bound_bytes\":%.0f,\"times_bound\":%.4g",
                       (*records)++ ? "," : "", pici_dtype_name(t), SIZES_N, sizes_density[c] / 100,
                       (unsigned long long)info.nnz, pici_format_name(sizes_format[f]), len, bound, ratio[f][c]);
                if (sizes_format[f] == PICI_HYBRID)
                    printf(",\"limit\":%g", limit[c]);
                printf("}");
            }
        }
        free(src);
        free(block);
        if (json)
            continue;

        char title[64];
        snprintf(title, sizeof title, "size / entropy bound, %s", pici_dtype_name(t));
        printf("\n%-34s", title);
        for (size_t c = 0; c < COLUMNS; c++) {
            snprintf(title, sizeof title, "%g%% set", sizes_density[c]);
            printf(" %10s", title);
        }
        for (size_t f = 0; f < FORMATS; f++) {
            printf("\n  %-32s", pici_format_name(sizes_format[f]));
            for (size_t c = 0; c < COLUMNS; c++)
                printf(" %9.*f%s", ratio[f][c] < 100 ? 3 : 0, ratio[f][c],
                       sizes_format[f] == PICI_HYBRID && ratio[f][c] > limit[c] ? "!" : " ");
        }
        printf("\n  %-32s", "    limit of hybrid");
        for (size_t c = 0; c < COLUMNS; c++)
            printf(" %9.3f ", limit[c]);
        printf("\n");
    }
    if (!json)
        printf("  %d of %zu limits missed (!)\n", missed, COUNT_OF(sizes_limit) * COUNT_OF(sizes_density));
    return missed;
}

#endif
