/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed blocks beside memcpy and hybrid: lengths, and the speed of every kernel table with one thread. In a
 * repetition, each row follows a memcpy of the same bytes. Prints medians of CPU time, so that other programs matter
 * less.
 *   packed [-b BYTES] [-r REPETITIONS] [-z PERCENT OF ZEROS] [FILE.f32 or FILE.bf16...]
 * Without files: normally distributed f32 and bf16. */
#define _GNU_SOURCE
#include <getopt.h>

#include "common.h"
#include "cpu/kernels.h"

enum { MAX_REPS = 100, LEAST_BYTES = 8 << 20 /* of a measurement: short ones are repeated */ };

static const struct {
    const char *name;
    enum pici_format format;
    enum pici_pack pack;
} kinds[] = {{"fast", PICI_PACKED, PICI_PACK_FAST},
             {"planes", PICI_PACKED, PICI_PACK_PLANES},
             {"hybrid", PICI_HYBRID, PICI_PACK_NONE}};

static double now(void)
{
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}

static void measure(const char *name, enum pici_dtype dtype, const uint8_t *src, size_t bytes, int reps)
{
    const size_t n = bytes / pici_dtype_width(dtype), cap = pici_bound(PICI_PACKED, dtype, n);
    const size_t times = bytes < LEAST_BYTES ? LEAST_BYTES / bytes : 1;
    uint8_t *const block = buffer(cap, 0), *const dst = buffer(bytes, 0);
    memset(block, 0, cap);
    memset(dst, 0, bytes);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            double copy[MAX_REPS], make[MAX_REPS], read[MAX_REPS];
            struct pici_opts opts = PICI_OPTS_INIT;
            size_t len = 0;
            opts.pack = kinds[k].pack;
            pici_isa_force(*isa);
            for (int r = 0; r < reps; r++) {
                const double start = now();
                for (size_t i = 0; i < times; i++) {
                    memcpy(dst, src, bytes);
                    __asm__ volatile("" ::: "memory");
                }
                const double copied = now();
                for (size_t i = 0; i < times; i++)
                    if (pici_compress(block, cap, &len, src, n, dtype, kinds[k].format, &opts))
                        die("compress");
                const double made = now();
                for (size_t i = 0; i < times; i++)
                    if (pici_decompress(dst, n, block, len, NULL))
                        die("decompress");
                const double done = now();
                copy[r] = copied - start;
                make[r] = made - copied;
                read[r] = done - made;
                if (memcmp(dst, src, bytes) != 0)
                    die("what was decompressed");
            }
            const double c = median(copy, (size_t)reps), m = median(make, (size_t)reps), d = median(read, (size_t)reps);
            const double gb = (double)bytes * (double)times / 1e9;
            printf("%-20s %-4s %-7s %-7s %6.4f  memcpy %5.1f GB/s  compress %5.2f (%.2f)  decompress %5.2f (%.2f)\n",
                   name, pici_dtype_name(dtype), (*isa)->name, kinds[k].name, (double)len / (double)bytes, gb / c,
                   gb / m, c / m, gb / d, c / d);
            fflush(stdout);
        }
    pici_isa_force(NULL);
    free(block);
    free(dst);
}

/* Repeat the elements of a file to fill dst. */
static void repeat(uint8_t *dst, size_t bytes, const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t have = f ? fread(dst, 1, bytes, f) & ~(size_t)7 : 0;
    if (!have)
        die(path);
    fclose(f);
    for (; have < bytes; have *= 2)
        memcpy(dst + have, dst, have < bytes - have ? have : bytes - have);
}

int main(int argc, char **argv)
{
    size_t bytes = 64 << 20;
    double zeros = 0;
    int reps = 9;
    for (int c; (c = getopt(argc, argv, "b:r:z:")) != -1;)
        switch (c) {
        case 'b': bytes = parse_size(optarg) & ~(size_t)7; break;
        case 'r': reps = atoi(optarg); break;
        case 'z': zeros = atof(optarg) / 100; break;
        default: return 2;
        }
    if (!bytes || reps < 1 || reps > MAX_REPS)
        die("the arguments");
    uint8_t *const src = buffer(bytes, 0);
    for (enum pici_dtype dtype = PICI_F32; optind == argc && dtype <= PICI_BF16; dtype++)
        if (dtype == PICI_F32 || dtype == PICI_BF16) {
            fill_normal(src, bytes / pici_dtype_width(dtype), dtype, zeros, 1);
            measure("normal", dtype, src, bytes, reps);
        }
    for (int i = optind; i < argc; i++) {
        const char *const dot = strrchr(argv[i], '.');
        repeat(src, bytes, argv[i]);
        measure(argv[i], dot && !strcmp(dot, ".bf16") ? PICI_BF16 : PICI_F32, src, bytes, reps);
    }
    free(src);
    return 0;
}
