/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The length of hybrid blocks, compared with the entropy bound and with the other formats. Also code that only hybrid
 * has: equal groups, directory entries of 64 bits, counts of containers. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

static size_t length(enum pici_format format, void *block, size_t cap, const void *src, uint64_t n,
                     enum pici_dtype dtype)
{
    size_t len = 0;
    cr_assert_eq(pici_compress(block, cap, &len, src, n, dtype, format, NULL), PICI_OK);
    return len;
}

/* The least number of bytes, on average, for n elements of which nnz at uniformly random positions are nonzero. */
static double entropy_bound(double n, double nnz, double width)
{
    const double p = nnz / n, bits = p > 0 && p < 1 ? -p * log2(p) - (1 - p) * log2(1 - p) : 0;
    return nnz * width + n * bits / 8;
}

/* The targets: at each density a multiple of the entropy bound; from 0.1% on, at most half a percent longer than the
 * shortest other format. */
static void try_density(enum pici_dtype dtype, double sparse, double sparsest)
{
    static const double densities[] = {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 7e-3, 8e-3, 0.01, 0.02, 0.05, 0.1,
                                       0.11, 0.12, 0.13, 0.2,  0.5,  0.8,  0.9,  0.95, 0.97, 0.98, 0.99, 1};
    const uint64_t n = UINT64_C(1) << 22;
    const unsigned width = ref_width(dtype);
    const size_t cap = 8 * n + 4096; /* coo's, of f32 */
    uint8_t *src = test_alloc(n * width), *block = test_alloc(cap);
    struct rng rng = {7};
    for (unsigned i = 0; i < sizeof densities / sizeof *densities; i++) {
        const double d = densities[i];
        uint64_t nnz = 0;
        memset(src, 0, n * width);
        for (uint64_t k = 0; k < n; k++)
            if ((double)(rng_next(&rng) >> 11) < d * 0x1p53) {
                ref_store(src, k, width, rng_next(&rng) | 1);
                nnz++;
            }
        const size_t hybrid = length(PICI_HYBRID, block, cap, src, n, dtype);
        const double bound = entropy_bound((double)n, (double)nnz, width), times = (double)hybrid / bound;
        cr_expect_leq(times, d < 1e-3 ? sparsest : sparse, "%s at %g: %.3f times the bound", pici_dtype_name(dtype), d,
                      times);
        if (d < 1e-3)
            continue;
        for (int f = PICI_DENSE; f < PICI_HYBRID; f++) {
            const size_t other = length((enum pici_format)f, block, cap, src, n, dtype);
            cr_expect_leq((double)hybrid, 1.005 * (double)other, "%s at %g: %zu bytes, %s %zu", pici_dtype_name(dtype),
                          d, hybrid, pici_format_name((enum pici_format)f), other);
        }
    }
    free(src);
    free(block);
}

Test(codec_hybrid, length_f32)
{
    try_density(PICI_F32, 1.15, 1.4);
}

Test(codec_hybrid, length_bf16)
{
    try_density(PICI_BF16, 1.25, 1.6);
}

/* Ten nonzeros in 2^30 elements of f32 (4 GiB): under 40 KiB. By default a sixteenth of that, under a sixteenth. */
Test(codec_hybrid, length_of_zeros)
{
    const int whole = test_full() && sizeof(size_t) == 8;
    const uint64_t n = UINT64_C(1) << (whole ? 30 : 26);
    const size_t most = whole ? 40 << 10 : 5 << 9;
    uint8_t block[40 << 10];
    float *src = mmap(NULL, n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(src, MAP_FAILED);
    for (uint64_t i = 0; i < 10; i++)
        src[n / 10 * i + i * 12345] = 1;
    cr_expect_lt(length(PICI_HYBRID, block, sizeof block, src, n, PICI_F32), most);
    munmap(src, n * 4);
    if (!whole)
        printf("skip: ten nonzeros in 4 GiB (PICI_TEST_FULL=1 has it)\n");
}

/* The longest block is 0.2% longer than dense, for data of any density, and by pici_bound. */
Test(codec_hybrid, length_at_worst)
{
    static const enum pici_dtype dtypes[] = {PICI_I8, PICI_F16, PICI_F32, PICI_F64};
    const uint64_t n = UINT64_C(1) << 20;
    struct rng rng = {8};
    for (unsigned w = 0; w < 4; w++) {
        const double dense = (double)(n << w);
        cr_expect_leq((double)pici_bound(PICI_HYBRID, dtypes[w], n), 1.002 * dense);
        const size_t cap = pici_bound(PICI_HYBRID, dtypes[w], n);
        uint8_t *src = test_alloc(n << w), *block = test_alloc(cap);
        for (unsigned density = 80; density <= 100; density += 4) {
            memset(src, 0, n << w);
            for (uint64_t i = 0; i < n; i++)
                if (rng_below(&rng, 100) < density)
                    ref_store(src, i, 1u << w, 1);
            cr_expect_leq((double)length(PICI_HYBRID, block, cap, src, n, dtypes[w]), 1.002 * dense);
        }
        free(src);
        free(block);
    }
}

/* Groups like the one before, which are written in one pass; and groups that begin like it and then differ. */
Test(codec_hybrid, groups_alike)
{
    static const enum pici_dtype dtypes[] = {PICI_I8, PICI_F16, PICI_F32, PICI_F64};
    enum { GROUP = 32 * 4096 };
    /* kind of each group: bitvector, raw, sparse (short lists, long ones, and lists too long for one pass), empty */
    static const char kinds[] = "sslfllbbrrbrbslbfflerr";
    const uint64_t n = (sizeof kinds - 1) * (uint64_t)GROUP + 5000;
    struct rig rig;
    rig_init(&rig, (size_t)n * 8, 1);
    uint8_t *src = test_alloc((size_t)n * 8);
    for (unsigned w = 0; w < 4; w++)
        for (int odd = 0; odd <= 2; odd++) {
            struct subject s = {src, n, dtypes[w], PICI_HYBRID, 0, 1, PICI_ZEROS_EXACT};
            if (odd && odd % 2 == (int)w % 2 && !test_full())
                continue;
            memset(src, 0, (size_t)n << w);
            for (uint64_t i = 0; i < n; i++) {
                const char kind = kinds[i / GROUP < sizeof kinds - 1 ? i / GROUP : 0];
                unsigned percent = kind == 'b'   ? 50
                                   : kind == 'r' ? 100
                                   : kind == 'f' ? 11
                                   : kind == 'l' ? 8
                                   : kind == 's' ? 2
                                                 : 0;
                if (odd == 1 && i / 4096 % 32 == 20) /* one tile differs */
                    percent = percent == 50 ? 3 : 60;
                if (odd == 2 && i / 4096 % 32 == 25) /* few nonzeros, 256 of them a run */
                    percent = i / 256 % 16 == i / GROUP % 16 ? 100 : 2;
                if (rng_below(&rig.rng, 100) < percent)
                    ref_store(src, i, 1u << w, value_random(&rig.rng, dtypes[w]));
            }
            const char *bad = check_codec(&rig, &s);
            cr_expect_null(bad, "%s", bad);
        }
    free(src);
    rig_free(&rig);
}

/* Beyond 2^32 elements, directory entries have 64 bits. Two records, in the first and in the last group. */
Test(codec_hybrid, more_than_32_bits)
{
    const uint64_t count = (UINT64_C(1) << 32) + 5, groups = 32769, records = (48 + 8 * groups + 15) / 16 * 16;
    const size_t len = (size_t)records + 16;
    uint8_t *block = test_alloc(len), out[100];
    memset(block, 0, len);
    memcpy(block, "PICI\1\3\10\1", 8); /* u8 */
    ref_put(block + 8, 8, count);
    ref_put(block + 16, 8, 2);
    ref_put(block + 24, 8, 48);
    ref_put(block + 32, 8, len - 2);
    for (uint64_t g = 1; g < groups; g++)
        ref_put(block + 48 + 8 * g, 8, 2);
    memcpy(block + records, "\1\0\0\0\1\3\0\7\1\0\0\0\1\4\0\11", 16); /* element 3 is 7; the last but one is 9 */
    struct ref_fault f;
    cr_expect_eq(ref_verify(block, len, &f), REF_OK, "%s", f.rule);
    cr_expect_eq(pici_verify(block, len), PICI_OK);
    cr_expect_eq(pici_decompress_range(out, 0, 100, block, len, NULL), PICI_OK);
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(out[i], i == 3 ? 7 : 0);
    cr_expect_eq(pici_decompress_range(out, count - 100, 100, block, len, NULL), PICI_OK);
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(out[i], i == 99 ? 9 : 0);
    cr_expect_eq(pici_decompress_range(out, count / 2, 100, block, len, NULL), PICI_OK);
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(out[i], 0);
    ref_put(block + 48 + 8 * 20000 + 4, 4, 1);
    struct pici_fault fault = PICI_FAULT_INIT;
    cr_expect_eq(pici_verify_at(block, len, &fault), PICI_E_CORRUPT);
    cr_expect(fault.offset == 48 + 8 * 20000 && fault.tile == 20000 * 32 && !strcmp(fault.rule, "directory"));
    free(block);
}

Test(codec_hybrid, breakdown)
{
    enum { N = 6 * 4096 + 100 };
    static float src[N];
    static uint8_t block[N * 4 + 4096];
    struct pici_breakdown m = PICI_BREAKDOWN_INIT;
    struct pici_info info = PICI_INFO_INIT;
    src[7] = 1; /* tile 0: offsets12 */
    for (int i = 0; i < 100; i++)
        src[4096 + 30 * i] = 1; /* offsets8 */
    for (int i = 0; i < 2000; i++)
        src[2 * 4096 + 2 * i] = 1; /* bitvector */
    for (int i = 0; i < 4096; i++)
        src[3 * 4096 + i] = 1; /* raw; then two tiles without any */
    src[N - 1] = 1;
    const size_t len = length(PICI_HYBRID, block, sizeof block, src, N, PICI_F32);
    cr_assert_eq(pici_breakdown(&m, block, len), PICI_OK);
    const uint64_t tiles[] = {2, 1, 1, 1, 2}, nnz[] = {2, 100, 2000, 4096, 0};
    const uint64_t positions[] = {2 * (1 + 2), 2 + 116, 2 + 512, 2, 0};
    uint64_t sum = m.other_bytes;
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        cr_expect_eq(m.tiles[c], tiles[c]);
        cr_expect_eq(m.nnz[c], nnz[c]);
        cr_expect_eq(m.position_bytes[c], positions[c]);
        cr_expect_eq(m.value_bytes[c], 4 * nnz[c]);
        cr_expect_not_null(pici_container_name((enum pici_container)c));
        sum += m.position_bytes[c] + m.value_bytes[c];
    }
    cr_expect_eq(sum, len);
    cr_expect_null(pici_container_name(PICI_CONTAINERS));
    cr_expect_eq(pici_inspect(&info, block, len), PICI_OK);
    cr_expect_eq(info.nnz, 6198u);
    cr_expect_eq(pici_breakdown(NULL, block, len), PICI_E_ARG);
    cr_expect_eq(pici_breakdown(&m, NULL, len), PICI_E_ARG);
    cr_expect_eq(pici_breakdown(&m, block, len - 1), PICI_E_CORRUPT);
    block[48 + 16 + 4] = 0; /* a descriptor */
    cr_expect_eq(pici_breakdown(&m, block, len), PICI_E_CORRUPT);
    m.size = 8;
    cr_expect_eq(pici_breakdown(&m, block, len), PICI_E_ARG);
    m.size = sizeof m;
    cr_expect_eq(pici_breakdown(&m, block, length(PICI_BITMAP, block, sizeof block, src, 10, PICI_F32)), PICI_E_ARG);
}

/* A range reads directory entries and the records of its groups, but no record of another group. */
Test(codec_hybrid, ranges_know_their_groups_only)
{
    enum { GROUP = 32 * 4096, N = 5 * GROUP };
    uint16_t *src = test_alloc(N * 2), *out = test_alloc(N * 2);
    struct rng rng = {3};
    size_t len;
    pattern_fill(src, N, PICI_U16, PATTERN_TILES, &rng);
    uint8_t *block = ref_encode(&len, src, N, PICI_U16, PICI_HYBRID, 1);
    const uint64_t records = 80;
    ref_put(block + records + 4 * ref_get(block + 48 + 4, 4), 4, 0);        /* group 1's occupancy */
    block[records + 4 * ref_get(block + 48 + 16, 4) - 1] ^= 1;              /* the last of group 3's values */
    uint8_t *value = block + records + 4 * ref_get(block + 48 + 12, 4) - 2; /* group 2's last: a zero */
    while (!ref_get(value, 2))
        value -= 2;
    ref_put(value, 2, 0);
    for (uint64_t g = 0; g < 5; g++) {
        const enum pici_status s = pici_decompress_range(out, g * GROUP + 5, GROUP - 5, block, len, NULL);
        cr_expect_eq(s, g == 1 || g == 2 ? PICI_E_CORRUPT : PICI_OK, "group %d", (int)g);
        if (g == 0 || g == 4)
            cr_expect_arr_eq(out, src + g * GROUP + 5, (GROUP - 5) * 2);
    }
    cr_expect_eq(pici_decompress(out, N, block, len, NULL), PICI_E_CHECKSUM);
    free(block);
    free(src);
    free(out);
}

/* Invalid lists of byte offsets, compared with the reference, on every ISA: long lists are unpacked by a kernel of
 * their own. */
Test(codec_hybrid, damaged_lists)
{
    enum { N = 4096, PAYLOAD = 48 + 16 + 4 + 2 /* of a block of one tile: counts, then offsets */ };
    static const int some[] = {32, 100, 299, 300, 410, 496};
    static float src[N], want[N], out[N];
    struct rng rng = {11};
    unsigned wrong = 0, right = 0;
    for (unsigned i = 0; i < sizeof some / sizeof *some; i++) {
        memset(src, 0, sizeof src);
        for (int n = 0; n < some[i];) {
            float *at = &src[rng_below(&rng, N)];
            n += *at == 0;
            *at = 1;
        }
        size_t len;
        uint8_t *block = ref_encode(&len, src, N, PICI_F32, PICI_HYBRID, 0), *damaged = test_alloc(len);
        for (int kind = 0; kind < 5; kind++)
            for (int times = 0; times < 40; times++) {
                uint8_t *count = damaged + PAYLOAD, *run = count + rng_below(&rng, RUNS - 1);
                uint8_t *offset = count + RUNS + rng_below(&rng, (uint64_t)some[i] - 1);
                memcpy(damaged, block, len);
                if (kind == 0) { /* a wrong count; in the last run only the sum shows it */
                    count[times % 2 ? RUNS - 1 : rng_below(&rng, RUNS)] += times % 4 < 2 ? 1 : -1;
                } else if (kind == 1 && *run) { /* the last of a run moves to the next one */
                    run[0]--, run[1]++;
                } else if (kind == 2) { /* two are swapped: invalid within a run */
                    const uint8_t first = offset[0];
                    offset[0] = offset[1], offset[1] = first;
                } else if (kind == 3) { /* the same twice */
                    offset[1] = offset[0];
                } else if (kind == 4) { /* a different offset */
                    *offset = (uint8_t)rng_next(&rng);
                }
                const int bad = ref_decode(want, N, damaged, len) != REF_OK;
                wrong += bad;
                right += !bad;
                for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
                    pici_isa_force(*isa);
                    const enum pici_status s = pici_decompress(out, N, damaged, len, NULL);
                    cr_expect_eq(s, bad ? PICI_E_CORRUPT : PICI_OK, "%s: %d, kind %d: %s", (*isa)->name, some[i], kind,
                                 pici_strerror(s));
                    cr_expect(bad || !memcmp(out, want, sizeof out), "%s: %d, kind %d", (*isa)->name, some[i], kind);
                    memset(out, 0, sizeof out);
                    const enum pici_status added = pici_scatter_add(out, N, damaged, len, NULL);
                    cr_expect_eq(added, s, "%s: %d, kind %d: %s", (*isa)->name, some[i], kind, pici_strerror(added));
                    cr_expect(bad || !memcmp(out, want, sizeof out), "%s: %d, kind %d", (*isa)->name, some[i], kind);
                }
                pici_isa_force(NULL);
            }
        free(damaged);
        free(block);
    }
    cr_expect(wrong > 100 && right > 40, "%u wrong, %u right", wrong, right);
}
