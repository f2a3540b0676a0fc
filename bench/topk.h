/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare pici_topk with a residual to memcpy, to a pass that reads the gradient, and to the minimal pass of a
 * selection. That pass reads the gradient, reads and writes the residual, and writes the output. The gradient is random
 * floats with geometrically distributed exponents; the residual comes from a few steps. */
#ifndef PICI_BENCH_TOPK_H
#define PICI_BENCH_TOPK_H

#include "cpu/kernels.h"
#include "pici/topk.h"
#include "yardstick.h"

enum { TOPK_YARDSTICKS = 3, TOPK_ISAS = 8, TOPK_KINDS = 3, TOPK_ROWS = TOPK_YARDSTICKS + TOPK_KINDS * TOPK_ISAS };

struct topk_bench {
    uint8_t *gradient, *residual, *out;
    size_t bytes;
    uint64_t n, nnz;
    enum pici_dtype dtype;
    struct pici_topk_opts opts;
    const struct pici_isa *const *isa;
};

static inline double topk_measure(struct topk_bench *b, size_t row, clockid_t clock)
{
    const size_t of = row - TOPK_YARDSTICKS;
    enum pici_status s = PICI_OK;
    if (row >= TOPK_YARDSTICKS) {
        pici_isa_force(b->isa[of / TOPK_KINDS]);
        b->opts.select = (enum pici_select)(of % TOPK_KINDS);
    }
    const double start = seconds(clock);
    if (row == 0) {
        memcpy(b->out, b->gradient, b->bytes);
    } else if (row == 1) {
        yardstick(READ, NULL, b->gradient, b->bytes);
    } else if (row == 2) {
        for (size_t at = 0; at < b->bytes; at += 4096) { /* in turns, as a selection does */
            const size_t n = b->bytes - at < 4096 ? b->bytes - at : 4096;
            yardstick(READ, NULL, b->gradient + at, n);
            yardstick(REWRITE, b->residual + at, NULL, n);
            memset(b->out + at, 0, n);
        }
    } else {
        s = pici_topk(b->out, &b->nnz, b->residual, NULL, b->gradient, b->n, b->dtype, &b->opts);
    }
    const double t = seconds(clock) - start;
    if (s) {
        fprintf(stderr, "bench: --topk: %s\n", pici_strerror(s));
        exit(1);
    }
    return t;
}

/* A table, or JSON records. */
static inline void print_topk(enum pici_dtype dtype, size_t bytes, int threads, int reps, int best,
                              const struct pici_isa *const *isa, size_t isas, clockid_t clock, int json,
                              size_t *records)
{
    static const char *const kind[] = {"bucket 4 of 512", "global 1%", "sampled 1%"};
    const size_t rows = TOPK_YARDSTICKS + TOPK_KINDS * isas;
    struct topk_bench b = {.bytes = bytes, .n = bytes / pici_dtype_width(dtype), .dtype = dtype, .isa = isa};
    const struct pici_topk_opts init = PICI_TOPK_OPTS_INIT;
    double time_s[TOPK_ROWS], *sample = calloc(rows * (size_t)reps, sizeof *sample);
    uint64_t kept[TOPK_ROWS] = {0};
    char label[TOPK_ROWS][40] = {"memcpy", "pure read", "read, rewrite, write"};
    if (!sample)
        die("out of memory");
    b.opts = init;
    b.opts.threads = threads;
    b.gradient = buffer(bytes, 0);
    b.residual = buffer(bytes, 0);
    b.out = buffer(bytes, 0);
    for (size_t i = 0; i < TOPK_KINDS * isas; i++)
        snprintf(label[TOPK_YARDSTICKS + i], sizeof label[0], "%s %s", isa[i / TOPK_KINDS]->name, kind[i % TOPK_KINDS]);
    fill(b.gradient, b.n, dtype, 1, UNIFORM);
    for (size_t row = 0; row < rows; row++)
        for (int rep = -2; rep < reps; rep++) { /* two steps fill the residual; its values only matter to selections */
            if (rep == -2)
                memset(b.residual, 0, bytes);
            const double t = topk_measure(&b, row, clock);
            if (rep >= 0)
                sample[row * (size_t)reps + (size_t)rep] = t;
            kept[row] = row < TOPK_YARDSTICKS ? 0 : b.nnz;
        }
    pici_isa_force(NULL);
    for (size_t row = 0; row < rows; row++)
        time_s[row] = (best ? least : median)(sample + row * (size_t)reps, (size_t)reps);
    for (size_t row = 0; json && row < rows; row++)
        printf("%s\n  {\"what\":\"topk %s\",\"dtype\":\"%s\",\"bytes\":%zu,\"threads\":%d,\"repetitions\":%d,"
               "\"%s_s\":%.9g,\"gb_s\":%.4g,\"memcpy_ratio\":%.4g,\"kept\":%llu}",
               (*records)++ ? "," : "", label[row], pici_dtype_name(dtype), bytes, threads, reps,
               best ? "best" : "median", time_s[row], (double)bytes / time_s[row] / 1e9, time_s[0] / time_s[row],
               (unsigned long long)kept[row]);
    if (!json) {
        printf("\n== top-k: %s, %g MiB, %d thread%s; %s of %d%s ==\n%-34s %8s %8s %13s %10s\n", pici_dtype_name(dtype),
               (double)bytes / (1 << 20), threads, threads > 1 ? "s" : "", best ? "best" : "median", reps,
               clock == CLOCK_MONOTONIC ? "" : ", processor time", "", "ms", "GB/s", "times memcpy", "kept");
        for (size_t row = 0; row < rows; row++) {
            printf("  %-32s %8.3f %8.2f %13.2f", label[row], 1e3 * time_s[row], (double)bytes / time_s[row] / 1e9,
                   time_s[0] / time_s[row]);
            printf(kept[row] ? " %10llu\n" : "\n", (unsigned long long)kept[row]);
        }
    }
    free(sample);
    free(b.gradient);
    free(b.residual);
    free(b.out);
}

#endif
