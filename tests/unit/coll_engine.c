/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The host's engine: what the loop over steps does to elements. Blocks pass through every ISA between guard pages, and
 * are compared with a slow model's, one by one. Division is compared with a long division in integers. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "coll/engine.h"
#include "coll/message.h"
#include "tests/util/coll.h"
#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

enum { TILE_N = 4096, LARGEST = 3 * TILE_N + 5, EXTRA = 100 };

static const struct pici_engine *const engine = &pici_engine_host;

/* A block is parsed, as the loop over steps does, and must be all of the bytes. */
static enum pici_status expect(struct pici_block *b, const uint8_t *block, size_t len, enum pici_dtype dtype,
                               uint64_t n)
{
    enum pici_status s = pici_msg_block(b, block, len, dtype, n);
    return s || b->layout.block_bytes == len ? s : PICI_E_CORRUPT;
}

static enum pici_status reduce(void *dst, uint64_t n, const uint8_t *block, size_t len, enum pici_dtype dtype,
                               enum pici_op op, void *temp, uint64_t temp_elements)
{
    struct pici_block b;
    enum pici_status s = expect(&b, block, len, dtype, n);
    return s ? s : engine->reduce(NULL, dst, block, &b, op, temp, temp_elements);
}

static enum pici_status decode(void *dst, uint64_t n, const uint8_t *block, size_t len, enum pici_dtype dtype,
                               uint64_t output)
{
    struct pici_block b;
    enum pici_status s = expect(&b, block, len, dtype, n);
    return s ? s : engine->decode(NULL, dst, block, &b, output);
}

static enum pici_status encode(void *block, size_t cap, size_t *len, const void *src, uint64_t n, enum pici_dtype dtype,
                               enum pici_format format, int checksum)
{
    const struct engine_array elements = {.dtype = dtype, .format = format};
    return engine->encode(NULL, block, 0, cap, len, &src, &n, 1, &elements, 1, checksum);
}

static uint64_t count(const void *src, uint64_t n, enum pici_dtype dtype)
{
    uint64_t nnz;
    const struct engine_array elements = {.dtype = dtype};
    engine->count(NULL, &src, &n, 1, &elements, 1, &nnz);
    return nnz;
}

/* ---- reduce and decode ---- */

struct bench {
    struct guard dst, block, temp;
    struct rng rng;
};

static void bench_init(struct bench *b, uint64_t seed)
{
    guard_init(&b->dst, LARGEST * 8 + 64);
    guard_init(&b->block, LARGEST * 16 + 4096);
    guard_init(&b->temp, (LARGEST + EXTRA) * 8 + 64);
    b->rng.state = seed;
}

static void bench_free(struct bench *b)
{
    guard_free(&b->dst);
    guard_free(&b->block);
    guard_free(&b->temp);
}

static uint8_t *place(struct bench *b, struct guard *g, size_t bytes, const void *from)
{
    uint8_t *p = guard_place(g, bytes, rng_next(&b->rng) & 1 ? GUARD_END : GUARD_START,
                             rng_chance(&b->rng, 500000) ? 0 : (size_t)rng_below(&b->rng, 17));
    if (from && bytes)
        memcpy(p, from, bytes);
    return p;
}

/* Fold a block into a copy of dst, and decode it, with the ISA chosen: both must give this status; if that is PICI_OK,
 * reducing this result and decoding x. */
static void try_block(struct bench *b, const void *dst, uint64_t n, const uint8_t *block, size_t len,
                      enum pici_dtype dtype, enum pici_op op, enum pici_status status, const void *want, const void *x)
{
    const size_t width = ref_width(dtype), bytes = (size_t)n * width;
    const uint64_t room = TILE_N + rng_below(&b->rng, 3) * (rng_below(&b->rng, 2) ? EXTRA : TILE_N);
    uint8_t *in = place(b, &b->block, len, block), *temp = place(b, &b->temp, (size_t)room * width, NULL);
    uint8_t *out = place(b, &b->dst, bytes, dst);
    enum pici_status s = reduce(out, n, in, len, dtype, op, temp, room);
    cr_expect_eq(s, status, "%s op %d n %llu: reduce: %s, not %s", pici_dtype_name(dtype), (int)op,
                 (unsigned long long)n, pici_strerror(s), pici_strerror(status));
    cr_expect(guard_intact(&b->dst) && guard_intact(&b->temp), "reduce wrote outside");
    for (uint64_t i = 0, shown = 0; i < n && !s && !status && shown < 5; i++)
        if (ref_load(out, i, (unsigned)width) != ref_load(want, i, (unsigned)width)) {
            shown++;
            cr_expect_fail("%s %s op %d: %llx with %llx gave %llx, not %llx", pici_isa()->name, pici_dtype_name(dtype),
                           (int)op, (unsigned long long)ref_load(dst, i, (unsigned)width),
                           (unsigned long long)ref_load(x, i, (unsigned)width),
                           (unsigned long long)ref_load(out, i, (unsigned)width),
                           (unsigned long long)ref_load(want, i, (unsigned)width));
        }
    out = place(b, &b->dst, bytes, NULL);
    s = decode(out, n, in, len, dtype, rng_next(&b->rng) & 1 ? n : UINT64_C(1) << 30);
    cr_expect_eq(s, status, "%s n %llu: decode: %s, not %s", pici_dtype_name(dtype), (unsigned long long)n,
                 pici_strerror(s), pici_strerror(status));
    cr_expect(s || !n || memcmp(out, x, bytes) == 0, "%s n %llu: decoded something else", pici_dtype_name(dtype),
              (unsigned long long)n);
    cr_expect(guard_intact(&b->dst), "decode wrote outside");
}

/* x passed into dst by every op, out of every format, with every ISA. Sums are of blocks without -0.0, as ranks send
 * them. */
static void fold_all(struct bench *b, enum pici_dtype dtype, uint64_t n, const void *dst, const void *exact)
{
    const unsigned width = ref_width(dtype);
    uint8_t *want = test_alloc((size_t)n * width), *by_value = test_alloc((size_t)n * width);
    if (n)
        memcpy(by_value, exact, (size_t)n * width);
    zeros_clear(by_value, n, dtype);
    for (int op = PICI_SUM; op <= PICI_MAX; op++) {
        const void *x = op == PICI_SUM || op == PICI_AVG ? by_value : exact;
        for (uint64_t i = 0; i < n; i++)
            ref_store(want, i, width,
                      coll_reduce(dtype, (enum pici_op)op, ref_load(dst, i, width), ref_load(x, i, width)));
        for (unsigned format = REF_DENSE; format <= (dtype <= PICI_F8E5M2 ? REF_PACKED : REF_HYBRID); format++) {
            size_t len;
            uint8_t *block = format == REF_PACKED
                                 ? ref_encode_packed(&len, x, n, dtype, (int)rng_below(&b->rng, 2), REF_ZEROS_EXACT, 1)
                                 : ref_encode(&len, x, n, dtype, format, (int)rng_below(&b->rng, 2));
            cr_assert_not_null(block);
            for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
                pici_isa_force(*isa);
                try_block(b, dst, n, block, len, dtype, (enum pici_op)op, PICI_OK, want, x);
            }
            pici_isa_force(NULL);
            free(block);
        }
    }
    free(want);
    free(by_value);
}

static void try_dtype(enum pici_dtype dtype)
{
    static const uint64_t lengths[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, LARGEST};
    static const enum pattern patterns[] = {PATTERN_ZERO, PATTERN_FULL, PATTERN_1,
                                            PATTERN_30,   PATTERN_90,   PATTERN_TILES};
    uint8_t *dst = test_alloc(LARGEST * 8), *x = test_alloc(LARGEST * 8);
    struct bench b;
    bench_init(&b, dtype);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            pattern_fill(dst, lengths[l], dtype, patterns[rng_below(&b.rng, 6)], &b.rng);
            pattern_fill(x, lengths[l], dtype, patterns[p], &b.rng);
            fold_all(&b, dtype, lengths[l], dst, x);
        }
    bench_free(&b);
    free(dst);
    free(x);
}

#define DTYPE(name, dtype)                                                                                             \
    Test(coll_engine, fold_##name)                                                                                     \
    {                                                                                                                  \
        try_dtype(dtype);                                                                                              \
    }
DTYPE(f32, PICI_F32)
DTYPE(f64, PICI_F64)
DTYPE(f16, PICI_F16)
DTYPE(bf16, PICI_BF16)
DTYPE(f8e4m3, PICI_F8E4M3)
DTYPE(f8e5m2, PICI_F8E5M2)
DTYPE(i8, PICI_I8)
DTYPE(u8, PICI_U8)
DTYPE(i16, PICI_I16)
DTYPE(u16, PICI_U16)
DTYPE(i32, PICI_I32)
DTYPE(u32, PICI_U32)
DTYPE(i64, PICI_I64)
DTYPE(u64, PICI_U64)

Test(coll_engine, all_bytes)
{
    static const enum pici_dtype dtypes[] = {PICI_F8E4M3, PICI_F8E5M2, PICI_I8, PICI_U8};
    uint8_t *dst = test_alloc(LARGEST), *x = test_alloc(LARGEST);
    struct bench b;
    bench_init(&b, 1);
    for (unsigned d = 0; d < 4; d++)
        for (unsigned first = 0; first < 65536; first += 8192) {
            for (unsigned i = 0; i < 8192; i++) {
                dst[i] = (uint8_t)((first + i) >> 8);
                x[i] = (uint8_t)i;
            }
            fold_all(&b, dtypes[d], 8192, dst, x);
        }
    bench_free(&b);
    free(dst);
    free(x);
}

/* ---- min and max: known answers ---- */

static const struct {
    enum pici_dtype dtype;
    uint64_t a, b, min, max; /* of a and b; of b and a too, but for two NaNs */
} known[] = {
    {PICI_F32, 0x3f800000, 0x40000000, 0x3f800000, 0x40000000},
    {PICI_F32, 0xbf800000, 0x3f800000, 0xbf800000, 0x3f800000},
    {PICI_F32, 0xbf800000, 0xc0000000, 0xc0000000, 0xbf800000},
    {PICI_F32, 0x80000000, 0, 0x80000000, 0}, /* -0 < +0 */
    {PICI_F32, 0x80000001, 0x80000000, 0x80000001, 0x80000000},
    {PICI_F32, 1, 0, 0, 1}, /* denormals count */
    {PICI_F32, 0xff800000, 0xff7fffff, 0xff800000, 0xff7fffff},
    {PICI_F32, 0x7f800000, 0x7f7fffff, 0x7f7fffff, 0x7f800000},
    {PICI_F32, 0x7f800001, 0x3f800000, 0x7fc00001, 0x7fc00001}, /* made quiet */
    {PICI_F32, 0xffc12345, 0xff800000, 0xffc12345, 0xffc12345},
    {PICI_F32, 0x7fc00001, 0, 0x7fc00001, 0x7fc00001},
    {PICI_F64, UINT64_C(0x8000000000000000), 0, UINT64_C(0x8000000000000000), 0},
    {PICI_F64, UINT64_C(0xfff0000000000001), UINT64_C(0x3ff0000000000000), UINT64_C(0xfff8000000000001),
     UINT64_C(0xfff8000000000001)},
    {PICI_F64, UINT64_C(0x00000000ffffffff), UINT64_C(0x0000000100000000), UINT64_C(0x00000000ffffffff),
     UINT64_C(0x0000000100000000)},
    {PICI_F16, 0x8000, 0, 0x8000, 0},
    {PICI_F16, 0x7c01, 0xfc00, 0x7e01, 0x7e01},
    {PICI_F16, 0xfc00, 0xfbff, 0xfc00, 0xfbff},
    {PICI_BF16, 0x8000, 0, 0x8000, 0},
    {PICI_BF16, 0xff81, 0x7f80, 0xffc1, 0xffc1},
    {PICI_F8E4M3, 0x80, 0, 0x80, 0},
    {PICI_F8E4M3, 0x7f, 0xfe, 0x7f, 0x7f},
    {PICI_F8E4M3, 0xfe, 0x7e, 0xfe, 0x7e},
    {PICI_F8E5M2, 0x7d, 0x7c, 0x7f, 0x7f},
    {PICI_F8E5M2, 0xfc, 0x7c, 0xfc, 0x7c},
    {PICI_I8, 0x80, 0x7f, 0x80, 0x7f},
    {PICI_U8, 0x80, 0x7f, 0x7f, 0x80},
    {PICI_I16, 0xffff, 0, 0xffff, 0},
    {PICI_U16, 0xffff, 0, 0, 0xffff},
    {PICI_I32, 0x80000000, 0x7fffffff, 0x80000000, 0x7fffffff},
    {PICI_U32, 0x80000000, 0x7fffffff, 0x7fffffff, 0x80000000},
    {PICI_I64, UINT64_MAX, 0, UINT64_MAX, 0},
    {PICI_U64, UINT64_MAX, 0, 0, UINT64_MAX},
    {PICI_I64, UINT64_C(0x80000000ffffffff), UINT64_C(0x8000000100000000), UINT64_C(0x80000000ffffffff),
     UINT64_C(0x8000000100000000)},
};

/* In every lane and tail. The model must know them as well. */
static void try_known(struct bench *b, enum pici_dtype dtype, uint64_t a, uint64_t x, enum pici_op op, uint64_t want)
{
    const unsigned width = ref_width(dtype);
    uint64_t as[99], xs[99], wants[99];
    cr_expect_eq(coll_reduce(dtype, op, a, x), want, "the model: %s, %llx and %llx", pici_dtype_name(dtype),
                 (unsigned long long)a, (unsigned long long)x);
    for (uint64_t i = 0; i < 99; i++) {
        ref_store(as, i, width, a);
        ref_store(xs, i, width, x);
        ref_store(wants, i, width, want);
    }
    for (unsigned format = REF_DENSE; format <= REF_HYBRID; format++) {
        size_t len;
        uint8_t *block = ref_encode(&len, xs, 99, dtype, format, 0);
        try_block(b, as, 99, block, len, dtype, op, PICI_OK, wants, xs);
        free(block);
    }
}

Test(coll_engine, min_and_max)
{
    struct bench b;
    bench_init(&b, 2);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        try_known(&b, known[i].dtype, known[i].a, known[i].b, PICI_MIN, known[i].min);
        try_known(&b, known[i].dtype, known[i].b, known[i].a, PICI_MIN, known[i].min);
        try_known(&b, known[i].dtype, known[i].a, known[i].b, PICI_MAX, known[i].max);
        try_known(&b, known[i].dtype, known[i].b, known[i].a, PICI_MAX, known[i].max);
    }
    for (int op = PICI_MIN; op <= PICI_MAX; op++) { /* of two NaNs, that of dst */
        try_known(&b, PICI_F32, 0x7f800001, 0xffc54321, (enum pici_op)op, 0x7fc00001);
        try_known(&b, PICI_F32, 0xffc54321, 0x7f800001, (enum pici_op)op, 0xffc54321);
        try_known(&b, PICI_F8E4M3, 0x7f, 0xff, (enum pici_op)op, 0x7f);
        try_known(&b, PICI_F8E4M3, 0xff, 0x7f, (enum pici_op)op, 0xff);
    }
    bench_free(&b);
}

/* ---- untrusted blocks ---- */

/* What the engine must say of any bytes where n elements of dtype are due. */
static enum pici_status verdict(const uint8_t *block, size_t len, enum pici_dtype dtype, uint64_t n)
{
    struct ref_header h;
    enum ref_status s = ref_header(&h, block, len, NULL);
    if (!s && (len != h.block_bytes || h.dtype != (unsigned)dtype || h.count != n))
        s = REF_E_CORRUPT;
    if (s || h.format != REF_PACKED)
        return (enum pici_status)(s ? s : ref_verify(block, len, NULL));
    uint8_t *x = calloc((size_t)n + 1, ref_width(dtype)); /* readers do not check the rule `choice` */
    cr_assert_not_null(x);
    s = ref_decode_any(x, n, block, len, 0);
    free(x);
    return (enum pici_status)s;
}

/* Whatever the block has become. */
static void try_bytes(struct bench *b, const uint8_t *block, size_t len, enum pici_dtype dtype, uint64_t n)
{
    const enum pici_status want = verdict(block, len, dtype, n);
    const unsigned width = ref_width(dtype);
    uint8_t *dst = calloc((size_t)n + 1, width), *x = calloc((size_t)n + 1, width), *sum = calloc((size_t)n + 1, width);
    const enum pici_op op = (enum pici_op)rng_below(&b->rng, 4);
    cr_assert(dst && x && sum);
    if (!want) { /* another block that is valid */
        cr_assert_eq(ref_decode_any(x, n, block, len, 0), REF_OK);
        for (uint64_t i = 0; i < n; i++)
            ref_store(sum, i, width, coll_reduce(dtype, op, 0, ref_load(x, i, width)));
    }
    try_block(b, dst, n, block, len, dtype, op, want, sum, x);
    free(dst);
    free(x);
    free(sum);
}

/* Every byte of a small block, and many places in a large one; with a checksum made right, now and then. */
static void try_damage(enum pici_dtype dtype, uint64_t n, enum pattern pattern, unsigned tries)
{
    const unsigned width = ref_width(dtype);
    uint8_t *src = test_alloc((size_t)n * width);
    struct bench b;
    bench_init(&b, n);
    pattern_fill(src, n, dtype, pattern, &b.rng);
    for (unsigned format = REF_DENSE; format <= REF_HYBRID; format++)
        for (int checksum = 0; checksum < 2; checksum++) {
            size_t len;
            uint8_t *block = ref_encode(&len, src, n, dtype, format, checksum), *copy = test_alloc(len + 1);
            for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
                pici_isa_force(*isa);
                for (size_t i = 0; i < (tries ? tries : len); i++) {
                    const size_t at = (size_t)(tries ? rng_below(&b.rng, len) : i);
                    memcpy(copy, block, len);
                    if (rng_chance(&b.rng, 500000)) /* a bit; or a value of zero, and what else that does */
                        copy[at] ^= (uint8_t)(1u << rng_below(&b.rng, 8));
                    else
                        memset(copy + at, 0, len - at < width ? len - at : width);
                    if (checksum && rng_chance(&b.rng, 700000))
                        ref_seal(copy, len);
                    try_bytes(&b, copy, len, dtype, n);
                }
                for (size_t cut = 0; cut < 60 && cut <= len; cut++)
                    try_bytes(&b, block, len - cut, dtype, n);
                memcpy(copy, block, len);
                copy[len] = 0;
                try_bytes(&b, copy, len + 1, dtype, n);
                try_bytes(&b, block, len, dtype, n + 1); /* another count, or dtype, than is due */
                try_bytes(&b, block, len, dtype, n - 1);
                try_bytes(&b, block, len, dtype == PICI_F32 ? PICI_U32 : PICI_F32, n);
            }
            pici_isa_force(NULL);
            free(block);
            free(copy);
        }
    free(src);
    bench_free(&b);
}

/* Several groups of a hybrid block, which pieces of a reduce do not end with; tiles of all containers. */
Test(coll_engine, hybrid_groups)
{
    enum { N = 70 * TILE_N + 77 };
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_BF16, PICI_I8};
    static const unsigned nonzeros[] = {3, 200, 0, 2000, 4000, 40, 4096};
    const size_t cap = pici_bound(PICI_HYBRID, PICI_F64, N);
    uint8_t *x = test_alloc(N * 8), *dst = test_alloc(N * 8), *got = test_alloc(N * 8), *block = test_alloc(cap),
            *temp = test_alloc(9 * TILE_N * 8);
    struct rng rng = {4};
    for (int d = 0; d < 4; d++)
        for (int op = PICI_SUM; op <= PICI_MAX; op++)
            for (int tiles = 1; tiles <= 9; tiles += 4) {
                const unsigned width = ref_width(dtypes[d]);
                uint64_t wrong = 0, counted[PICI_CONTAINERS] = {0};
                size_t len;
                pattern_fill(dst, N, dtypes[d], PATTERN_50, &rng);
                pattern_fill(x, N, dtypes[d], PATTERN_FULL, &rng);
                for (uint64_t i = 0; i < N; i++) /* none that only has a sign */
                    ref_store(x, i, width, ref_load(x, i, width) | 1);
                for (uint64_t i = 0; i < N; i++)
                    if (i * 2049 % TILE_N >= nonzeros[i / TILE_N % 7])
                        ref_store(x, i, width, 0);
                cr_assert_eq(encode(block, cap, &len, x, N, dtypes[d], PICI_HYBRID, 1), PICI_OK);
                memcpy(got, dst, N * width);
                cr_assert_eq(reduce(got, N, block, len, dtypes[d], (enum pici_op)op, temp, (uint64_t)tiles * TILE_N),
                             PICI_OK);
                for (uint64_t i = 0; i < N; i++)
                    wrong += ref_load(got, i, width) !=
                             coll_reduce(dtypes[d], (enum pici_op)op, ref_load(dst, i, width), ref_load(x, i, width));
                cr_expect_eq(wrong, 0u, "%s op %d, %d tiles at a time: %ju wrong", pici_dtype_name(dtypes[d]), op,
                             tiles, (uintmax_t)wrong);
                engine->containers(NULL, counted, block, len);
                engine->containers(NULL, counted, block, len); /* adds up */
                cr_expect_eq(counted[PICI_EMPTY], 20u);
                for (int c = 0; c < PICI_CONTAINERS; c++)
                    cr_expect_gt(counted[c], 0u, "no tile of container %d", c);
                cr_assert_eq(encode(block, cap, &len, x, N, dtypes[d], PICI_COO, 0), PICI_OK);
                engine->containers(NULL, counted, block, len);
                engine->containers(NULL, counted, block, 47);
                cr_expect_eq(counted[PICI_EMPTY] + counted[PICI_OFFSETS12] + counted[PICI_OFFSETS8] +
                                 counted[PICI_BITVECTOR] + counted[PICI_RAW],
                             142u);
            }
    free(x);
    free(dst);
    free(got);
    free(block);
    free(temp);
}

/* What no range of a hybrid block shows: the nonzeros of its header are one more, or less, than its tiles have. */
Test(coll_engine, hybrid_total)
{
    enum { N = 2 * TILE_N + 77 };
    float *src = test_alloc(N * sizeof *src);
    struct bench b;
    bench_init(&b, 3);
    pattern_fill(src, N, PICI_F32, PATTERN_30, &b.rng);
    for (int less = 0; less < 2; less++)
        for (int i = 0; i < 20; i++) {
            const uint64_t by = less ? UINT64_MAX : 1;
            size_t len;
            uint8_t *block = ref_encode(&len, src, N, PICI_F32, REF_HYBRID, i & 1);
            ref_put(block + 16, 8, ref_get(block + 16, 8) + by);
            ref_put(block + 32, 8, ref_get(block + 32, 8) - 4 * by);
            if (i & 1)
                ref_seal(block, len);
            cr_assert_eq(verdict(block, len, PICI_F32, N), PICI_E_CORRUPT);
            try_bytes(&b, block, len, PICI_F32, N);
            free(block);
        }
    free(src);
    bench_free(&b);
}

Test(coll_engine, damaged_small)
{
    try_damage(PICI_F32, 130, PATTERN_30, 0);
    try_damage(PICI_U8, 65, PATTERN_50, 0);
}

Test(coll_engine, damaged_large)
{
    try_damage(PICI_F32, LARGEST, PATTERN_TILES, 150);
    try_damage(PICI_BF16, LARGEST, PATTERN_3, 150);
    try_damage(PICI_F64, LARGEST - 5, PATTERN_30, 150);
}

/* ---- division ---- */

static const struct {
    unsigned exponent, mantissa;
} floats[15] = {[PICI_F32] = {8, 23}, [PICI_F64] = {11, 52},  [PICI_F16] = {5, 10},
                [PICI_BF16] = {8, 7}, [PICI_F8E4M3] = {4, 3}, [PICI_F8E5M2] = {5, 2}};

/* A magnitude that is finite and not zero, divided bit by bit. */
static uint64_t divide_magnitude(unsigned m, uint64_t a, uint64_t by)
{
    const uint64_t one = UINT64_C(1) << m, field = a >> m;
    const uint64_t s = field ? (a & (one - 1)) | one : a;
    uint64_t q = s / by, rest = s % by;
    int e = field ? (int)field - 1 : 0; /* of the last bit of q; 0: that of denormals */
    for (; q < one << 3; e--) {
        rest *= 2;
        q = 2 * q + (rest >= by);
        rest -= rest >= by ? by : 0;
    }
    for (; e < 0 || q >= one << 1; e++) { /* to m + 1 bits; what is lost is kept as 1/2 and 1/4 of the last */
        const uint64_t half = q & 1;
        q >>= 1;
        if (e + 1 >= 0 && q < one << 1) /* the last one */
            return (q + (half && (rest || (q & 1)))) + ((uint64_t)(e + 1) << m);
        rest |= half;
    }
    return q + ((uint64_t)e << m);
}

static uint64_t model_divide(enum pici_dtype t, uint64_t a, int ranks)
{
    const unsigned bits = 8 * ref_width(t), m = floats[t].mantissa;
    const uint64_t sign = UINT64_C(1) << (bits - 1), magnitude = a & (sign - 1), by = (uint64_t)ranks;
    if (m) {
        const uint64_t inf = sign - (UINT64_C(1) << m), nan = t == PICI_F8E4M3 ? sign - 1 : inf + 1;
        if (magnitude >= nan)
            return t == PICI_F8E4M3 ? a : a | UINT64_C(1) << (m - 1);
        if (magnitude == inf && t != PICI_F8E4M3)
            return a;
        const uint64_t q = magnitude ? divide_magnitude(m, magnitude, by) : 0;
        return q ? (a & sign) | q : 0;
    }
    const int is_signed = t == PICI_I8 || t == PICI_I16 || t == PICI_I32 || t == PICI_I64;
    return is_signed && (a & sign) ? (0 - ((0 - a) & (2 * sign - 1)) / by) & (2 * sign - 1) : a / by;
}

static void try_division(enum pici_dtype dtype, const void *src, uint64_t n, int ranks)
{
    const unsigned width = ref_width(dtype);
    struct guard g;
    guard_init(&g, (size_t)n * width + 16);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        uint8_t *p = guard_place(&g, (size_t)n * width, ranks & 1 ? GUARD_END : GUARD_START, (size_t)ranks / 2 % 9);
        memcpy(p, src, (size_t)n * width);
        pici_isa_force(*isa);
        engine->divide(NULL, p, n, dtype, ranks);
        cr_expect(guard_intact(&g));
        for (uint64_t i = 0, shown = 0; i < n && shown < 5; i++) {
            const uint64_t a = ref_load(src, i, width), want = model_divide(dtype, a, ranks);
            if (ref_load(p, i, width) != want) {
                shown++;
                cr_expect_fail("%s %s: %llx / %d gave %llx, not %llx", (*isa)->name, pici_dtype_name(dtype),
                               (unsigned long long)a, ranks, (unsigned long long)ref_load(p, i, width),
                               (unsigned long long)want);
            }
        }
    }
    pici_isa_force(NULL);
    guard_free(&g);
}

/* Numbers of ranks; the first, as many as fit in a float. */
static const int ranks_of[] = {1,        2,        3,        4,         5,           6,      7,     9,     12,
                               17,       100,      127,      128,       129,         255,    257,   1000,  2047,
                               2049,     4095,     4096,     4097,      8191,        8193,   65535, 65537, 1000003,
                               16777215, 16777216, 16777217, 100000007, INT_MAX - 1, INT_MAX};
enum { RANKS = sizeof ranks_of / sizeof *ranks_of, EXACT_IN_FLOAT = RANKS - 4 };

/* Every element of a narrow type. */
static void divide_every(enum pici_dtype dtype)
{
    const uint64_t n = UINT64_C(1) << 8 * ref_width(dtype);
    uint8_t *all = test_alloc(2 * 65536);
    for (uint64_t i = 0; i < n; i++)
        ref_store(all, i, ref_width(dtype), i);
    for (int i = 0; i < RANKS; i++) {
        try_division(dtype, all, n, ranks_of[i]);
        try_division(dtype, all + 3 * ref_width(dtype), 77, ranks_of[i]);
    }
    free(all);
}

Test(coll_engine, divide_narrow)
{
    static const enum pici_dtype dtypes[] = {PICI_F8E4M3, PICI_F8E5M2, PICI_I8,  PICI_U8,
                                             PICI_F16,    PICI_BF16,   PICI_I16, PICI_U16};
    for (unsigned i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        divide_every(dtypes[i]);
}

/* Of small numbers of ranks all, of a narrow type whose quotients are rounded from a wider one's. */
Test(coll_engine, divide_f16_by_many)
{
    uint8_t *all = test_alloc(2 * 65536);
    for (uint64_t i = 0; i < 2048; i++) /* the denormals and the first two powers, the last ones, and a power between */
        ref_store(all, i, 2, i < 1024 ? i * 3 : i < 1536 ? 0x7c00 - (i - 1023) : 0x3c00 + (i - 1536) * 2);
    for (int ranks = 1; ranks < 5000; ranks += 1 + ranks / 700)
        try_division(PICI_F16, all, 2048, ranks);
    free(all);
}

static void divide_random(enum pici_dtype dtype, int many)
{
    enum { N = 4099 };
    const unsigned width = ref_width(dtype);
    uint8_t *src = test_alloc(N * 8);
    struct rng r = {dtype};
    for (int i = 0; i < many; i++) {
        for (uint64_t k = 0; k < N; k++)
            ref_store(src, k, width, k % 2 ? value_random(&r, dtype) : rng_next(&r) >> rng_below(&r, 64));
        try_division(dtype, src, N, ranks_of[i]);
        try_division(dtype, src, N, 1 + (int)rng_below(&r, 300));
        for (uint64_t k = 0; k < N && !floats[dtype].mantissa; k++) /* near multiples */
            ref_store(src, k, width,
                      (rng_next(&r) / (uint64_t)ranks_of[i] * (uint64_t)ranks_of[i] - 1 + k % 3) >> (64 - 8 * width));
        try_division(dtype, src, N, ranks_of[i]);
    }
    free(src);
}

Test(coll_engine, divide_wide)
{
    divide_random(PICI_F32, EXACT_IN_FLOAT);
    divide_random(PICI_F64, RANKS);
    divide_random(PICI_I32, RANKS);
    divide_random(PICI_U32, RANKS);
    divide_random(PICI_I64, RANKS);
    divide_random(PICI_U64, RANKS);
}

Test(coll_engine, divide_known)
{
    static const struct {
        enum pici_dtype dtype;
        uint64_t a;
        int ranks;
        uint64_t want;
    } table[] = {
        {PICI_F32, 0x40400000, 3, 0x3f800000},
        {PICI_F32, 0x3f800000, 3, 0x3eaaaaab},
        {PICI_F32, 0x7f800000, 5, 0x7f800000},
        {PICI_F32, 0xff800001, 5, 0xffc00001},
        {PICI_F32, 1, 2, 0},
        {PICI_F32, 3, 2, 2},
        {PICI_F32, 0x80000000, 7, 0},
        {PICI_F32, 0x80000001, 4, 0}, /* a quotient that rounds to zero is +0 */
        {PICI_F32, 0x80000003, 2, 0x80000002},
        {PICI_F64, UINT64_C(1) << 63 | 1, 4, 0},
        {PICI_F64, UINT64_C(1) << 63 | 3, 4, UINT64_C(1) << 63 | 1},
        {PICI_F16, 0x8001, 2, 0},
        {PICI_F16, 0x8001, 5000, 0},
        {PICI_BF16, 0x8001, 4, 0},
        {PICI_F8E4M3, 0x81, 4, 0},
        {PICI_F8E5M2, 0x81, 4, 0},
        {PICI_F8E5M2, 0x80, 3, 0},
        {PICI_F16, 0x3c00, 3, 0x3555},
        {PICI_F16, 0x0001, 2, 0},
        {PICI_F16, 0x0003, 2, 2},
        {PICI_F16, 0x0400, 2, 0x0200},
        {PICI_F16, 0xfc00, 9, 0xfc00},
        {PICI_F16, 0x7c01, 9, 0x7e01},
        {PICI_BF16, 0x3f80, 3, 0x3eab},
        {PICI_BF16, 0x0080, 2, 0x0040},
        {PICI_F8E4M3, 0x38, 3, 0x2b},
        {PICI_F8E4M3, 0x7f, 3, 0x7f},
        {PICI_F8E4M3, 0x7e, 2, 0x76},
        {PICI_F8E5M2, 0x7d, 3, 0x7f},
        {PICI_F8E5M2, 0x3c, 3, 0x35},
        {PICI_I8, 0xff, 2, 0},
        {PICI_I8, 0x80, 3, 0xd6},
        {PICI_U8, 0xff, 2, 0x7f},
        {PICI_I8, 0x80, 200, 0},
        {PICI_I32, 0x80000000, 1, 0x80000000},
        {PICI_I32, 0xfffffff9, 2, 0xfffffffd},
        {PICI_U32, 0xffffffff, 2, 0x7fffffff},
        {PICI_I64, UINT64_C(1) << 63, 1, UINT64_C(1) << 63},
        {PICI_I64, UINT64_MAX - 6, 2, UINT64_MAX - 2},
        {PICI_U64, UINT64_MAX, 2, UINT64_MAX / 2},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t a[40];
        for (uint64_t k = 0; k < 40; k++)
            ref_store(a, k, ref_width(table[i].dtype), table[i].a);
        cr_expect_eq(model_divide(table[i].dtype, table[i].a, table[i].ranks), table[i].want, "the model, %zu", i);
        try_division(table[i].dtype, a, 40, table[i].ranks);
        if (table[i].ranks <= 17)
            cr_expect_eq(coll_divide(table[i].dtype, table[i].a, table[i].ranks), table[i].want, "the other model, %zu",
                         i);
    }
}

/* ---- the rest ---- */

Test(coll_engine, nothing)
{
    size_t len;
    uint8_t block[48];
    for (enum pici_dtype t = PICI_F32; t <= PICI_U64; t++) {
        engine->copy(NULL, NULL, NULL, 0, t);
        engine->positive_zeros(NULL, NULL, NULL, 0, t, 1);
        cr_expect_eq(count(NULL, 0, t), 0u);
        engine->divide(NULL, NULL, 0, t, 3);
        for (int format = PICI_DENSE; format <= PICI_COO; format++) {
            cr_expect_eq(encode(block, sizeof block, &len, NULL, 0, t, (enum pici_format)format, 0), PICI_OK);
            cr_expect_eq(len, 48u);
            cr_expect_eq(decode(NULL, 0, block, len, t, 0), PICI_OK);
            for (int op = PICI_SUM; op <= PICI_MAX; op++)
                cr_expect_eq(reduce(NULL, 0, block, len, t, (enum pici_op)op, NULL, 0), PICI_OK);
            cr_expect_eq(decode(NULL, 0, block, len, t == PICI_F32 ? PICI_U32 : PICI_F32, 0), PICI_E_CORRUPT);
        }
    }
}

Test(coll_engine, encode_count_copy)
{
    struct rng r = {5};
    uint8_t *src = test_alloc(LARGEST * 8), *copy = test_alloc(LARGEST * 8), *block = test_alloc(LARGEST * 17);
    for (enum pici_dtype t = PICI_F32; t <= PICI_U64; t++) {
        const unsigned width = ref_width(t);
        uint64_t nnz = 0;
        pattern_fill(src, LARGEST, t, PATTERN_12, &r);
        for (uint64_t i = 0; i < LARGEST; i++)
            nnz += ref_load(src, i, width) != 0;
        cr_expect_eq(count(src, LARGEST, t), nnz);
        engine->copy(NULL, copy, src, LARGEST, t);
        cr_expect_arr_eq(copy, src, LARGEST * width);
        for (int i = 0; i < 6; i++) {
            size_t len, got;
            uint8_t *want = ref_encode(&len, src, LARGEST, t, (unsigned)i / 2, i % 2);
            cr_expect_eq(encode(block, len, &got, src, LARGEST, t, (enum pici_format)(i / 2), i % 2), PICI_OK);
            cr_expect(got == len && memcmp(block, want, len) == 0);
            cr_expect_eq(encode(block, len - 1, &got, src, LARGEST, t, (enum pici_format)(i / 2), i % 2), PICI_E_SPACE);
            free(want);
        }
    }
    free(src);
    free(copy);
    free(block);
}

/* Scratch memory is aligned and kept; a caller's is used as it lies, if it is large enough. */
Test(coll_engine, memory)
{
    void *self = pici_engine_host_new();
    struct pici_queue *queues[COLL_MAX_WINDOW];
    struct engine_room room;
    static uint8_t mine[COLL_TEMP_BYTES + 3 * COLL_ALIGN];
    cr_assert_not_null(self);
    for (size_t bytes = 64; bytes <= 1 << 20; bytes = bytes * 3 / 64 * 64 + 64) {
        const struct engine_needs needs = {.queues = COLL_MAX_WINDOW, .messages = bytes, .sums = 64};
        cr_assert_eq(engine->room(self, &needs, &room, queues), PICI_OK);
        cr_expect_eq((uintptr_t)room.messages % COLL_ALIGN, 0u);
        memset(room.messages, 1, bytes);
        memset(room.sums, 2, 64);
        memset(room.temp, 3, COLL_TEMP_BYTES);
        cr_expect(room.messages[bytes - 1] == 1 && room.sums[63] == 2);
    }
    struct engine_needs needs = {
        .queues = 1, .messages = 64, .sums = 64, .memory = mine + 1, .memory_bytes = sizeof mine - 1};
    cr_expect_eq(engine->room(self, &needs, &room, queues), PICI_E_SPACE);
    cr_expect(strstr(engine->error(self), "bytes of scratch"), "%s", engine->error(self));
    needs.sums = 0;
    cr_expect_eq(engine->room(self, &needs, &room, queues), PICI_OK);
    cr_expect(room.messages >= mine && room.temp + COLL_TEMP_BYTES <= mine + sizeof mine);
    cr_expect_eq(pici_engine_host_reserve(self, SIZE_MAX), PICI_E_NOMEM);
    cr_expect_eq(pici_engine_host_reserve(self, SIZE_MAX - 63), PICI_E_NOMEM);
    engine->close(self, 0);
}

/* What the host need not do is there, does nothing, and succeeds. */
Test(coll_engine, total)
{
    void *self = pici_engine_host_new();
    void *mark = self;
    int done = 0;
    uint8_t from = 1, to = 0;
    const void *const *functions = (const void *const *)(const void *)&engine->owns;
    cr_expect_eq(engine->size, sizeof *engine);
    for (size_t i = 0; &functions[i] < (const void *const *)(const void *)(engine + 1); i++)
        cr_expect_not_null(functions[i], "function %zu", i);
    cr_expect_eq(engine->enter(self, &mark), PICI_OK);
    cr_expect_null(mark);
    cr_expect_eq(engine->begin(self, mark, 4), PICI_OK);
    cr_expect(engine->owns(self, &to) > 0 && !engine->holds(self, &to));
    cr_expect(engine->move(self, &to, &from, 1) && to == 1);
    cr_expect_eq(engine->halt(self), 0);
    cr_expect_eq(engine->ready(NULL, &done), PICI_OK);
    cr_expect_eq(done, 1);
    engine->close(self, 1);
}
