/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the benchmarks share: a clock, medians, buffers whose pages exist, and reproducible sparse data. */
#ifndef PICI_BENCH_COMMON_H
#define PICI_BENCH_COMMON_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "pici/pici.h"

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

enum { MAX_COLUMNS = 16 }; /* sparsities in one table */

static inline double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(const double *v, size_t n)
{
    double sorted[n];
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static inline double least(const double *v, size_t n)
{
    double best = v[0];
    for (size_t i = 1; i < n; i++)
        best = v[i] < best ? v[i] : best;
    return best;
}

static inline _Noreturn void die(const char *what)
{
    fflush(stdout);
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

/* Page-aligned, and every page touched, so that no page fault is timed. huge: aligned to 2 MiB, in huge pages where the
 * system has transparent ones; else it is as the system's policy has it. */
static inline void *buffer(size_t bytes, int huge)
{
    const size_t page = huge ? (size_t)2 << 20 : 4096;
    const size_t whole = (bytes + page - 1) / page * page + page;
    void *p = aligned_alloc(page, whole);
    if (!p || (huge && madvise(p, whole, MADV_HUGEPAGE)))
        die("out of memory, or of huge pages");
    memset(p, 0x55, whole);
    return p;
}

static inline uint64_t rnd(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

enum pattern { UNIFORM, CLUSTERED, BLOCK };
static const char *const pattern_name[] = {"uniform", "clustered", "block"};

/* A nonzero element's bits. Floats are finite, normal and have geometrically distributed exponents below 1, as
 * gradients do (so that a general compressor finds in them what it would find there); integers are uniform. */
static inline uint64_t nonzero(enum pici_dtype t, uint64_t r)
{
    const uint64_t e = (uint64_t)__builtin_ctzll(r >> 48 | 1 << 10); /* 0..10, each half as often as the last */
    switch (t) {
    case PICI_F32: return (r & 0x807fffff) | (126 - e) << 23;
    case PICI_F64: return (r & UINT64_C(0x800fffffffffffff)) | (1022 - e) << 52;
    case PICI_F16: return (r & 0x83ff) | (14 - e) << 10;
    case PICI_BF16: return (r & 0x807f) | (126 - e) << 7;
    case PICI_F8E4M3: return (r & 0xbf) | 0x08;
    case PICI_F8E5M2: return (r & 0xbf) | 0x04;
    default: return r | 1 << (r >> 61); /* any integer width: one of the low eight bits is set */
    }
}

/* Fill dst with n elements; the share `density` is nonzero:
 *   uniform    each on its own
 *   clustered  in runs of 32 on average, as rows of an embedding or neighbouring features
 *   block      in aligned blocks of 1024, all or nothing, as in block-sparse training */
static inline void fill(void *dst, size_t n, enum pici_dtype t, double density, enum pattern pattern)
{
    const size_t w = pici_dtype_width(t);
    const double run = 32;
    const uint64_t one = UINT64_C(1) << 32;
    const uint64_t p = (uint64_t)(density * (double)one + 0.5);
    const uint64_t leave = density < 1 ? (uint64_t)((double)one / run) : 0;
    const uint64_t enter = density < 1 ? (uint64_t)((double)one / run * density / (1 - density)) : one;
    uint64_t state = 1;
    int on = pattern == CLUSTERED && density >= 0.5;

    for (size_t i = 0; i < n; i++) {
        const uint64_t r = rnd(&state);
        const uint64_t draw = r >> 32;
        if (pattern == UNIFORM)
            on = draw < p;
        else if (pattern == CLUSTERED)
            on = on ? draw >= leave : draw < enter;
        else if (i % 1024 == 0)
            on = draw < p;
        const uint64_t x = on ? nonzero(t, rnd(&state)) : 0;
        const uint8_t x1 = (uint8_t)x;
        const uint16_t x2 = (uint16_t)x;
        const uint32_t x4 = (uint32_t)x;
        uint8_t *to = (uint8_t *)dst + i * w;
        switch (w) {
        case 1: memcpy(to, &x1, 1); break;
        case 2: memcpy(to, &x2, 2); break;
        case 4: memcpy(to, &x4, 4); break;
        default: memcpy(to, &x, 8);
        }
    }
}

static inline double uniform(uint64_t *state) /* in (0, 1) */
{
    return ((double)(rnd(state) >> 11) + 0.5) / 9007199254740992.0;
}

/* Normally distributed, with a standard deviation of 1. */
static inline double normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* Fill dst with n normally distributed elements, f32 or bf16; the fraction `zeros` is zero. */
static inline void fill_normal(void *dst, size_t n, enum pici_dtype t, double zeros, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < n; i++) {
        const double value = 0.02 * normal(&state);
        const float x = uniform(&state) < zeros ? 0 : (float)value;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (t == PICI_BF16)
            ((uint16_t *)dst)[i] = (uint16_t)((bits + 0x8000) >> 16);
        else
            ((uint32_t *)dst)[i] = bits;
    }
}

/* Comma-separated percentages to sparsities; the number of them, 0 if that is not what text is. */
static inline size_t parse_sparsities(const char *text, double *out)
{
    size_t n = 0;
    for (const char *p = text;;) {
        char *end;
        const double v = strtod(p, &end);
        if (end == p || !(v >= 0 && v <= 100) || n == MAX_COLUMNS)
            return 0;
        out[n++] = v;
        if (!*end)
            return n;
        if (*end != ',')
            return 0;
        p = end + 1;
    }
}

static inline int parse_dtype(const char *text, enum pici_dtype *out)
{
    for (int t = PICI_F32; t <= PICI_U64; t++)
        if (!strcmp(text, pici_dtype_name((enum pici_dtype)t))) {
            *out = (enum pici_dtype)t;
            return 1;
        }
    return 0;
}

static inline int parse_pattern(const char *text, enum pattern *out)
{
    for (size_t i = 0; i < COUNT_OF(pattern_name); i++)
        if (!strcmp(text, pattern_name[i])) {
            *out = (enum pattern)i;
            return 1;
        }
    return 0;
}

/* "64M", "512K", "4096": bytes; 0 if it is none of these. */
static inline size_t parse_size(const char *text)
{
    char *end;
    const unsigned long long v = strtoull(text, &end, 10);
    const unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == text || *text == '-' || end[shift != 0] || v > (SIZE_MAX >> 2 >> shift))
        return 0;
    return (size_t)v << shift;
}

/* The value of "key : value" in /proc/cpuinfo, or "unknown". */
static inline const char *cpu_model(char *line, int bytes)
{
    const char *model = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, bytes, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            line[strcspn(line, "\n")] = 0;
            model = strchr(line, ':') + 1 + (strchr(line, ':')[1] == ' ');
            break;
        }
    if (f)
        fclose(f);
    return model;
}

/* The system's policy for transparent huge pages: the word in brackets. */
static inline const char *huge_pages(char *line, int bytes)
{
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    const char *word = f && fgets(line, bytes, f) ? strchr(line, '[') : NULL;
    if (f)
        fclose(f);
    if (!word || !strchr(word, ']'))
        return "unknown";
    *strchr(word, ']') = 0;
    return word + 1;
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

#endif
