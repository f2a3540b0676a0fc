/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff and pici_apply beside memcpy and beside a pass that reads both buffers and writes nothing, and the delta's
 * length beside the entropy bound. The base is dense; of what follows it a fraction of the elements, at random
 * positions, has other bits. */
#ifndef PICI_BENCH_DELTA_H
#define PICI_BENCH_DELTA_H

#include "cpu/kernels.h"
#include "pici/delta.h"
#include "sizes.h"
#include "yardstick.h"

enum { DELTA_YARDSTICKS = 2, DELTA_ISAS = 8, DELTA_ROWS = DELTA_YARDSTICKS + 2 * DELTA_ISAS };

/* The project's limit, where at least 1% changed or blocks are long. */
static const double delta_limit = 1.35;

struct delta_bench {
    uint8_t *base, *next, *dst, *block;
    size_t bytes, cap, len;
    uint64_t n;
    enum pici_dtype dtype;
    struct pici_opts opts;
    const struct pici_isa *const *isa;
    size_t isas;
};

static inline double delta_measure(struct delta_bench *b, size_t row, clockid_t clock)
{
    const size_t of = row - DELTA_YARDSTICKS;
    enum pici_status s = PICI_OK;
    if (row >= DELTA_YARDSTICKS)
        pici_isa_force(b->isa[of / 2]);
    const double start = seconds(clock);
    if (row == 0) {
        memcpy(b->dst, b->base, b->bytes);
    } else if (row == 1) {
        for (size_t at = 0; at < b->bytes; at += 4096) { /* in turns, as a diff reads them */
            const size_t n = b->bytes - at < 4096 ? b->bytes - at : 4096;
            yardstick(READ, NULL, b->base + at, n);
            yardstick(READ, NULL, b->next + at, n);
        }
    } else if (of % 2 == 0) {
        s = pici_diff(b->block, b->cap, &b->len, b->base, b->next, b->n, b->dtype, PICI_AUTO, &b->opts);
    } else {
        s = pici_apply(b->dst, b->n, b->block, b->len, &b->opts);
    }
    const double t = seconds(clock) - start;
    if (s)
        die("a delta failed");
    return t;
}

/* Every table gives the same delta, which leads there and back. */
static inline void delta_check(struct delta_bench *b)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < b->isas; i++) {
        delta_measure(b, DELTA_YARDSTICKS + 2 * i, CLOCK_MONOTONIC);
        uint64_t h = b->len;
        for (size_t k = 0; k + 8 <= b->len; k += 8)
            h = (h ^ *(const uint64_t *)(b->block + k)) * UINT64_C(0x100000001b3);
        if (i && h != hash)
            die("wrong result: kernels disagree on a delta");
        hash = h;
        memcpy(b->dst, b->base, b->bytes);
        delta_measure(b, DELTA_YARDSTICKS + 2 * i + 1, CLOCK_MONOTONIC);
        if (memcmp(b->dst, b->next, b->bytes))
            die("wrong result: a delta does not lead to what it was made of");
        delta_measure(b, DELTA_YARDSTICKS + 2 * i + 1, CLOCK_MONOTONIC);
        if (memcmp(b->dst, b->base, b->bytes))
            die("wrong result: a delta does not lead back");
    }
}

/* A table, or JSON records; a column for each share of changed elements in percent. Returns how many deltas are longer
 * than the limit. */
static inline int print_delta(enum pici_dtype dtype, size_t bytes, const double *changed, size_t columns, int threads,
                              int reps, const struct pici_isa *const *isa, size_t isas, clockid_t clock, int json,
                              size_t *records)
{
    const size_t width = pici_dtype_width(dtype), rows = DELTA_YARDSTICKS + 2 * isas;
    struct delta_bench b = {.bytes = bytes, .n = bytes / width, .dtype = dtype, .isa = isa, .isas = isas};
    double median_s[DELTA_ROWS][MAX_COLUMNS], times[MAX_COLUMNS], *sample = calloc(rows * (size_t)reps, sizeof *sample);
    char label[DELTA_ROWS][40] = {"memcpy", "pure read of both"};
    size_t lengths[MAX_COLUMNS];
    int missed = 0;
    b.opts = (struct pici_opts){sizeof b.opts, threads, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    b.cap = pici_bound(PICI_HYBRID, dtype, b.n);
    b.base = buffer(bytes, 0);
    b.next = buffer(bytes, 0);
    b.dst = buffer(bytes, 0);
    b.block = buffer(b.cap, 0);
    if (!sample)
        die("out of memory");
    for (size_t i = 0; i < 2 * isas; i++)
        snprintf(label[DELTA_YARDSTICKS + i], sizeof label[0], "%s %s", isa[i / 2]->name, i % 2 ? "apply" : "diff");

    fill(b.base, b.n, dtype, 1, UNIFORM);
    for (size_t c = 0; c < columns; c++) {
        fill(b.next, b.n, dtype, changed[c] / 100, UNIFORM);
        for (size_t i = 0; i + 8 <= bytes; i += 8)
            *(uint64_t *)(b.next + i) ^= *(const uint64_t *)(b.base + i);
        delta_check(&b);
        for (int rep = 0; rep < reps; rep++)
            for (size_t row = 0; row < rows; row++)
                sample[row * (size_t)reps + (size_t)rep] = delta_measure(&b, row, clock);
        for (size_t row = 0; row < rows; row++)
            median_s[row][c] = median(sample + row * (size_t)reps, (size_t)reps);
        struct pici_info info = PICI_INFO_INIT;
        if (pici_inspect(&info, b.block, b.len))
            die("wrong result: no block");
        lengths[c] = b.len;
        times[c] = (double)b.len / entropy_bound((double)b.n, (double)info.nnz, (double)width);
        missed += times[c] > delta_limit;
    }
    pici_isa_force(NULL);
    for (size_t row = 0; json && row < rows; row++)
        for (size_t c = 0; c < columns; c++)
            printf("%s\n  "
                   "{\"what\":\"%s\",\"dtype\":\"%s\",\"bytes\":%zu,\"changed\":%g,\"threads\":%d,\"repetitions\":%d,"
                   "\"median_s\":%.9g,\"gb_s\":%.4g,\"memcpy_ratio\":%.4g,\"delta_bytes\":%zu,\"times_bound\":%.4g}",
                   (*records)++ ? "," : "", label[row], pici_dtype_name(dtype), bytes, changed[c] / 100, threads, reps,
                   median_s[row][c], (double)bytes / median_s[row][c] / 1e9, median_s[0][c] / median_s[row][c],
                   lengths[c], times[c]);
    if (!json) {
        printf("\n== deltas: %s, %g MiB, %d thread%s; median of %d ==\n%-34s", pici_dtype_name(dtype),
               (double)bytes / (1 << 20), threads, threads > 1 ? "s" : "", reps, "GB/s (times memcpy)");
        for (size_t c = 0; c < columns; c++)
            printf(" %9g%% new", changed[c]);
        for (size_t row = 0; row < rows; row++) {
            printf("\n  %-32s", label[row]);
            for (size_t c = 0; c < columns; c++)
                printf("  %5.2f (%4.2f)", (double)bytes / median_s[row][c] / 1e9, median_s[0][c] / median_s[row][c]);
        }
        printf("\n  %-32s", "bytes of the delta");
        for (size_t c = 0; c < columns; c++)
            printf(" %13zu", lengths[c]);
        printf("\n  %-32s", "times the entropy bound");
        for (size_t c = 0; c < columns; c++)
            printf(" %12.3f%s", times[c], times[c] > delta_limit ? "!" : " ");
        printf("\n  limit %g: %d missed (!)\n", delta_limit, missed);
    }
    free(sample);
    free(b.base);
    free(b.next);
    free(b.dst);
    free(b.block);
    return missed;
}

#endif
