/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls every function that makes or reads blocks, and prints a hash of each result. Built twice: with the amalgamation
 * (AMALGAMATED) and with the library; both must print the same. */
#ifdef AMALGAMATED
#include <pici.h>
#else
#include <pici/delta.h>
#include <pici/pici.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300001, BYTES = MOST * 8 };
static unsigned char in[BYTES], before[BYTES], out[BYTES], block[BYTES + BYTES / 2 + 4096];
static uint64_t state = 1;

static uint64_t number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(0x2545f4914f6cdd1d) >> 8;
}

static unsigned long long hash(const void *p, size_t bytes)
{
    const unsigned char *b = p;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void fill(unsigned char *to, uint64_t n, size_t width, unsigned per_thousand)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t v = number() % 1000 < per_thousand ? number() : 0;
        for (size_t k = 0; k < width; k++)
            to[i * width + k] = (unsigned char)(v >> 8 * k);
    }
}

static void need(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "FAIL %s\n", what);
        exit(1);
    }
}

static void one(enum pici_dtype t, enum pici_format f, uint64_t n, unsigned per_thousand, int threads)
{
    const size_t width = pici_dtype_width(t), bytes = n * width, cap = pici_bound(f, t, n);
    struct pici_opts opts = PICI_OPTS_INIT;
    struct pici_info info = PICI_INFO_INIT;
    struct pici_fault fault = PICI_FAULT_INIT;
    size_t len;
    opts.threads = threads;
    opts.checksum = n % 2;
    fill(in, n, width, per_thousand);
    fill(before, n, width, 500);
    need(cap && cap <= sizeof block, "pici_bound");

    need(pici_compress(block, cap, &len, in, n, t, f, &opts) == PICI_OK, "pici_compress");
    need(pici_inspect(&info, block, len) == PICI_OK && info.count == n && info.block_bytes == len, "pici_inspect");
    need(pici_verify_at(block, len, &fault) == PICI_OK && pici_verify(block, len) == PICI_OK, "pici_verify");
    printf("%s %s %llu %u: %s %llu nonzeros %zu %llx", pici_dtype_name(t), pici_format_name(f), (unsigned long long)n,
           per_thousand, pici_format_name(info.format), (unsigned long long)info.nnz, len, hash(block, len));
    memset(out, 0xaa, bytes);
    need(pici_decompress(out, n, block, len, &opts) == PICI_OK && memcmp(in, out, bytes) == 0, "pici_decompress");
    need(pici_decompress_range(out, n / 3, n / 2, block, len, NULL) == PICI_OK &&
             memcmp(in + n / 3 * width, out, n / 2 * width) == 0,
         "pici_decompress_range");
    memcpy(out, before, bytes);
    need(pici_scatter_add(out, n, block, len, &opts) == PICI_OK, "pici_scatter_add");
    printf(" %llx", hash(out, bytes));
    if (info.format == PICI_HYBRID) {
        struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
        need(pici_breakdown(&breakdown, block, len) == PICI_OK, "pici_breakdown");
        printf(" %llu raw", (unsigned long long)breakdown.tiles[PICI_RAW]);
    }
    need(!len || pici_decompress(out, n, block, len - 1, &opts) == PICI_E_CORRUPT, "a block that is cut short");

    need(pici_diff(block, cap, &len, before, in, n, t, f, &opts) == PICI_OK, "pici_diff");
    memcpy(out, before, bytes);
    need(pici_apply(out, n, block, len, &opts) == PICI_OK && memcmp(in, out, bytes) == 0, "pici_apply");
    printf(" %llx", hash(block, len));

    need(pici_diff_small_bound(f, t, n) <= sizeof block, "pici_diff_small_bound");
    need(pici_diff_small(block, sizeof block, &len, before, in, n, t, f, &opts) == PICI_OK, "pici_diff_small");
    memcpy(out, before, bytes);
    need(pici_apply_small(out, n, block, len, &opts) == PICI_OK && memcmp(in, out, bytes) == 0, "pici_apply_small");
    printf(" %zu %llx\n", len, hash(block, len));
}

int main(void)
{
    static const enum pici_format formats[] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_AUTO};
    static const uint64_t lengths[] = {0, 1, 65, 4097, 20003};
    static const unsigned thousandths[] = {0, 2, 40, 300, 1000};
    printf("%s %s\n", pici_version(), pici_strerror(PICI_E_CORRUPT));
    for (int t = PICI_F32; t <= PICI_U64; t++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (size_t i = 0; i < 5; i++)
                for (size_t k = 0; k < 5; k++)
                    one((enum pici_dtype)t, formats[f], lengths[i], thousandths[k], 1);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t k = 0; k < 5; k++)
            one(PICI_F32, formats[f], MOST, thousandths[k], 3);
    return 0;
}
