/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare the length of blocks with a lower bound for formats that store values unchanged, if positions are random. The
 * bound is the values, and the entropy of the positions of nonzeros and of negative zeros. Sizes are exact: one run
 * suffices, on any host. */
#ifndef PICI_BENCH_SIZES_H
#define PICI_BENCH_SIZES_H

#include <math.h>

#include "common.h"

enum { SIZES_N = 1 << 22 };
static const enum pici_format sizes_format[] = {PICI_BITMAP, PICI_COO, PICI_DENSE, PICI_HYBRID};
static const double sizes_density[] = {0.01, 0.1, 1, 5, 10, 20, 50, 90, 100}; /* percent */

/* The project's limits for hybrid, as a multiple of the bound: at 0.01%, where headers weigh, and above. */
static const struct {
    enum pici_dtype dtype;
    double sparsest, above;
} sizes_limit[] = {{PICI_F32, 1.4, 1.15}, {PICI_BF16, 1.6, 1.25}};

/* In bytes: log2 of the number of ways to choose k of n elements, to first order. */
static inline double entropy(double n, double k)
{
    const double p = n > 0 ? k / n : 0;
    return p > 0 && p < 1 ? -n * (p * log2(p) + (1 - p) * log2(1 - p)) / 8 : 0;
}

/* In bytes: nnz values among n elements, and the choice of their positions. */
static inline double entropy_bound(double n, double nnz, double width)
{
    return nnz * width + entropy(n, nnz);
}

/* f32 with random positions of nonzeros, and a fraction of negative zeros among the zeros. */
enum { SIGNS_N = 1 << 20 };
static const double signs_density[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 12, 20, 50, 90, 100};               /* percent */
static const double signs_share[] = {0, 0.1, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 99.9, 100}; /* percent */

/* The project's limit for hybrid there: for each tile its descriptors and the ends of its arrays. */
static inline double signs_limit(double bound)
{
    return 1.15 * bound + 64 + 12 * (SIGNS_N / 4096);
}

/* A table, or JSON records as print_sizes. Returns the number of limits missed. */
static inline int print_sign_sizes(int json, size_t *records)
{
    enum { ROWS = COUNT_OF(signs_share), COLUMNS = COUNT_OF(signs_density) };
    const size_t cap = pici_bound(PICI_HYBRID, PICI_F32, SIGNS_N);
    uint32_t *const src = buffer(SIGNS_N * sizeof *src, 0);
    void *const block = malloc(cap);
    char title[64];
    int missed = 0;
    if (!block)
        die("out of memory");
    if (!json) {
        printf("\n%-34s", "hybrid / bound with signs, f32");
        for (size_t c = 0; c < COLUMNS; c++) {
            snprintf(title, sizeof title, "%g%% set", signs_density[c]);
            printf(" %10s", title);
        }
    }
    for (size_t q = 0; q < ROWS; q++) {
        snprintf(title, sizeof title, "%g%% of zeros negative", signs_share[q]);
        if (!json)
            printf("\n  %-32s", title);
        for (size_t c = 0; c < COLUMNS; c++) {
            const uint64_t share = (uint64_t)(signs_share[q] / 100 * 0x1p32 + 0.5);
            uint64_t state = 2;
            double nnz = 0, negative = 0;
            size_t len;
            fill(src, SIGNS_N, PICI_F32, signs_density[c] / 100, UNIFORM);
            for (size_t i = 0; i < SIGNS_N; i++) {
                const int minus = rnd(&state) >> 32 < share;
                nnz += src[i] != 0;
                negative += src[i] == 0 && minus;
                src[i] = src[i] == 0 && minus ? UINT32_C(1) << 31 : src[i];
            }
            if (pici_compress(block, cap, &len, src, SIGNS_N, PICI_F32, PICI_HYBRID, NULL) != PICI_OK)
                die("sizes: compress failed");
            const double bound = entropy_bound(SIGNS_N, nnz, 4) + entropy(SIGNS_N - nnz, negative);
            const int beyond = (double)len > signs_limit(bound);
            missed += beyond;
            if (!json)
                printf(" %9.3f%s", (double)len / bound, beyond ? "!" : " ");
            else
                printf("%s\n  {\"what\":\"size\",\"dtype\":\"f32\",\"elements\":%d,\"density\":%g,\"nonzero\":%.0f,"
                       "\"negative_zeros\":%.0f,\"format\":\"hybrid\",\"bytes\":%zu,\"bound_bytes\":%.0f,"
                       "\"times_bound\":%.4g,\"limit_bytes\":%.0f}",
                       (*records)++ ? "," : "", SIGNS_N, signs_density[c] / 100, nnz, negative, len, bound,
                       (double)len / bound, signs_limit(bound));
        }
    }
    free(src);
    free(block);
    if (!json)
        printf("\n  %d of %zu limits missed (!): 1.15 times the bound, 64 bytes, and 12 for each tile\n", missed,
               (size_t)ROWS * COLUMNS);
    return missed;
}

static inline void print_sizes_head(const char *what, enum pici_dtype dtype)
{
    char title[64];
    snprintf(title, sizeof title, "%s, %s", what, pici_dtype_name(dtype));
    printf("\n%-34s", title);
    for (size_t c = 0; c < COUNT_OF(sizes_density); c++) {
        snprintf(title, sizeof title, "%g%% set", sizes_density[c]);
        printf(" %10s", title);
    }
}

/* Two tables for each of the dtypes with limits, or JSON records that begin with a comma unless *records is 0. Returns
 * the number of limits missed. */
static inline int print_sizes(int json, size_t *records)
{
    enum { FORMATS = COUNT_OF(sizes_format), COLUMNS = COUNT_OF(sizes_density) };
    int missed = 0;
    for (size_t k = 0; k < COUNT_OF(sizes_limit); k++) {
        const enum pici_dtype t = sizes_limit[k].dtype;
        const size_t width = pici_dtype_width(t), cap = 2 * pici_bound(PICI_COO, t, SIZES_N);
        void *const src = buffer(SIZES_N * width, 0), *const block = malloc(cap);
        double ratio[FORMATS][COLUMNS], bound[COLUMNS], limit[COLUMNS];
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
                bound[c] = entropy_bound(SIZES_N, (double)info.nnz, (double)width);
                ratio[f][c] = (double)len / bound[c];
                missed += sizes_format[f] == PICI_HYBRID && ratio[f][c] > limit[c];
                if (!json)
                    continue;
                printf("%s\n  {\"what\":\"size\",\"dtype\":\"%s\",\"elements\":%d,\"density\":%g,\"nonzero\":%llu,"
                       "\"format\":\"%s\",\"bytes\":%zu,\"bound_bytes\":%.0f,\"times_bound\":%.4g",
                       (*records)++ ? "," : "", pici_dtype_name(t), SIZES_N, sizes_density[c] / 100,
                       (unsigned long long)info.nnz, pici_format_name(sizes_format[f]), len, bound[c], ratio[f][c]);
                if (sizes_format[f] == PICI_HYBRID)
                    printf(",\"limit\":%g", limit[c]);
                printf("}");
            }
        }
        free(src);
        free(block);
        if (json)
            continue;

        print_sizes_head("size / entropy bound", t);
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

        print_sizes_head("size in % of dense elements", t);
        for (size_t f = 0; f <= FORMATS; f++) {
            printf("\n  %-32s", f < FORMATS ? pici_format_name(sizes_format[f]) : "entropy bound");
            for (size_t c = 0; c < COLUMNS; c++)
                printf(" %9.3g ", 100 * bound[c] * (f < FORMATS ? ratio[f][c] : 1) / (double)(SIZES_N * width));
        }
        printf("\n");
    }
    if (!json)
        printf("  %d of %zu limits missed (!)\n", missed, COUNT_OF(sizes_limit) * COUNT_OF(sizes_density));
    return missed;
}

#endif
