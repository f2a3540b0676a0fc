/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors of packed blocks, packed.txt and packed-verify.txt (syntax: vectors/README.md), into the
 * directory named by its argument. The verdicts are stated here by hand; ref_packed.c only has to agree. */
#include "gentext_fault.h"

static const char *const dtype_names[] = {"", "f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2"};

static const struct {
    unsigned exponent, mantissa; /* bits */
} kinds[] = {{0, 0}, {8, 23}, {11, 52}, {5, 10}, {8, 7}, {4, 3}, {5, 2}};

/* ---- packed.txt ---- */

static void put_block(const char *name, const void *src, unsigned dtype, uint64_t n, const char *kind)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    uint8_t *back = memory(bytes);
    size_t len;
    uint8_t *block = ref_encode_packed(&len, src, n, dtype, strcmp(kind, "checksum") == 0, REF_ZEROS_EXACT,
                                       strcmp(kind, "fast") == 0 ? 1 : 2);
    if (!block)
        fail("does not encode", name);
    if (ref_decode(back, n, block, len) || memcmp(back, src, bytes) != 0)
        fail("does not decode", name);
    column = (size_t)fprintf(out, "block packed %s", kind);
    put_bytes(block, len);
    free(block);
    free(back);
}

/* How the exponents of a case are distributed. */
enum shape { ANY, FALLING, ONE, TWO };

/* n elements, `density` of 1000 nonzero. Of 1000 zeros, `minus` have the sign set. The lowest `cut` bits of mantissas
 * are 0. */
static void put_case(const char *pattern, unsigned dtype, uint64_t n, enum shape shape, unsigned density,
                     unsigned minus, unsigned cut)
{
    const unsigned width = ref_width(dtype), e = kinds[dtype].exponent, m = kinds[dtype].mantissa;
    const uint64_t most = (UINT64_C(1) << e) - 1;
    uint8_t *src = memory((size_t)n * width), *bytes = memory((size_t)n * width);
    char name[64];
    state = ++cases;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t random = next(), sign = random >> 63 << (e + m);
        uint64_t x = random & most, mantissa = (next() & ((UINT64_C(1) << m) - 1)) >> cut << cut;
        if (shape == FALLING) {
            x = most / 2;
            for (uint64_t bits = random >> 20; bits & 1 && x; bits >>= 1)
                x--;
        } else if (shape != ANY) {
            x = shape == ONE || random & 1024 ? most / 2 : most / 5;
        }
        if (next() % 1000 < density)
            ref_store(src, i, width, sign | x << m | mantissa);
        else if (next() % 1000 < minus)
            ref_store(src, i, width, UINT64_C(1) << (e + m));
    }
    snprintf(name, sizeof name, "%s-%s-%" PRIu64, dtype_names[dtype], pattern, n);
    fprintf(out, "case %s\n", name);
    column = (size_t)fprintf(out, "dense %s %" PRIu64, dtype_names[dtype], n);
    for (uint64_t i = 0; i < n; i++)
        ref_put(bytes + i * width, width, ref_load(src, i, width));
    put_bytes(bytes, (size_t)n * width);
    put_block(name, src, dtype, n, "plain");
    put_block(name, src, dtype, n, "fast");
    if (cases % 3 == 1)
        put_block(name, src, dtype, n, "checksum");
    free(src);
    free(bytes);
}

static void put_cases(void)
{
    for (unsigned dtype = REF_F32; dtype <= REF_F8E5M2; dtype++) {
        put_case("none", dtype, 0, ANY, 1000, 0, 0);
        put_case("single", dtype, 1, FALLING, 1000, 0, 0);
        put_case("zeros", dtype, 5000, ANY, 0, 0, 0);
        put_case("dense", dtype, 300, FALLING, 1000, 0, 0);
        put_case("noise", dtype, 130, ANY, 1000, 0, 0);
        put_case("one", dtype, 65, ONE, 1000, 0, 0);
        put_case("two", dtype, 255, TWO, 1000, 0, 0);
        put_case("half", dtype, 700, FALLING, 500, 0, 0);
        put_case("signs", dtype, 600, FALLING, 300, 500, 0);
    }
    put_case("from-bf16", REF_F32, 200, FALLING, 1000, 0, 16);
    put_case("from-f16", REF_F32, 200, FALLING, 1000, 0, 13);
    put_case("from-f32", REF_F64, 100, FALLING, 1000, 0, 29);
    put_case("integers", REF_F64, 100, FALLING, 1000, 0, 48);
    put_case("short", REF_F16, 200, FALLING, 1000, 0, 8);
    put_case("sample", REF_BF16, 4096, FALLING, 1000, 0, 0);
    put_case("sample", REF_F8E5M2, 4097, TWO, 1000, 0, 0);
    put_case("runs", REF_F8E4M3, 2 * 4096 + 5, FALLING, 700, 0, 0);
    put_case("groups", REF_F8E5M2, 33 * 4096 + 9, FALLING, 30, 0, 0);
}

/* ---- packed-verify.txt ---- */

/* Blocks to change. 128 elements of bf16; one has its own exponent. The record begins at 64: occupancy, two bytes of
 * descriptor at 68, run descriptor at 70, padding at 75. Then 80 high, 208 planes, 224 table, one literal, padding to
 * 232. 100 elements of f16: 4 + 2 + 5 + 5, then at 80 low, 180 padding, 184 high, 232 planes, 248 table. 100 elements
 * of f8e5m2, any bits: a raw run of 104 bytes at 80. 200 elements of f32 with three planes and second planes. */
enum base { B, H, R, S };

static uint8_t *make_base(size_t *len, enum base base)
{
    static const unsigned dtype[] = {REF_BF16, REF_F16, REF_F8E5M2, REF_F32}, n[] = {128, 100, 100, 200};
    const unsigned width = ref_width(dtype[base]);
    uint8_t *src = memory((size_t)n[base] * width);
    state = base + 1;
    for (unsigned i = 0; i < n[base]; i++) {
        uint64_t v = base == H ? 0x3c00 | (next() & 0x3ff) : base == R ? next() | 1 : 0x3f80 | (next() & 0x7f);
        if (base == B && i == 5)
            v = 0x1234;
        if (base == S) {
            unsigned x = 120;
            for (uint64_t bits = next(); bits & 1 && x; bits >>= 1)
                x--;
            v = (uint64_t)x << 23 | (next() & 0x7fffff);
        }
        ref_store(src, i, width, v);
    }
    uint8_t *block = ref_encode_packed(len, src, n[base], dtype[base], 0, REF_ZEROS_EXACT, 2);
    free(src);
    if (!block)
        fail("does not encode", "base");
    return block;
}

static const struct verdict {
    const char *name;
    enum base base;
    struct {
        unsigned at, bytes;
        uint64_t value;
    } change[4];
    const char *rule;
    enum ref_status status;
    uint64_t offset, tile;
} verdicts[] = {
    {"valid", B, {{0}}, NULL, REF_OK, 0, 0},
    {"one-level-flag-set", B, {{7, 1, 4}}, NULL, REF_OK, 0, 0},
    {"one-level-of-two", S, {{7, 1, 4}}, "run", CORRUPT, 70, 0},
    {"integers", B, {{6, 1, 7}}, "dtype", CORRUPT, 6, NONE},
    {"dtype-0", B, {{6, 1, 0}}, "dtype", CORRUPT, 6, NONE},
    {"flag-3", B, {{7, 1, 8}}, "flags", CORRUPT, 7, NONE},
    {"flag-2-of-hybrid", B, {{5, 1, 3}, {7, 1, 4}}, "flags", CORRUPT, 7, NONE},
    {"index-width", B, {{7, 1, 1}}, "index-width", CORRUPT, 7, NONE},
    {"nnz-above-count", B, {{16, 8, 129}}, "nnz", CORRUPT, 16, NONE},
    {"index-offset", B, {{24, 8, 56}}, "offsets", CORRUPT, 24, NONE},
    {"not-a-unit", B, {{32, 8, 236}}, "offsets", CORRUPT, 32, NONE},
    {"below-records", B, {{32, 8, 56}}, "offsets", CORRUPT, 32, NONE},
    {"length-most", B, {{32, 8, 864}}, "length", CORRUPT, 232, NONE},
    {"length-above-most", B, {{32, 8, 872}}, "offsets", CORRUPT, 32, NONE},
    {"length-most-2", B, {{4, 1, 2}, {32, 8, 1424}}, "length", CORRUPT, 232, NONE},
    {"length-above-most-2", B, {{4, 1, 2}, {32, 8, 1432}}, "offsets", CORRUPT, 32, NONE},
    {"bytes-without-nonzeros", B, {{16, 8, 0}}, "offsets", CORRUPT, 32, NONE},
    {"longer-than-64-bits", B, {{8, 8, UINT64_MAX}, {16, 8, UINT64_MAX}, {7, 1, 1}}, "offsets", CORRUPT, 32, NONE},
    {"total", B, {{16, 8, 127}}, "total", CORRUPT, 16, NONE},
    {"version-2", B, {{4, 1, 2}}, "version", CORRUPT, 4, NONE},
    {"version-3", B, {{4, 1, 3}}, "version", REF_E_VERSION, 4, NONE},
    {"run-k1-5", B, {{70, 1, 5}}, "run", CORRUPT, 70, 0},
    {"run-k2-1", B, {{70, 1, 9}}, "run", CORRUPT, 70, 0},
    {"run-k1-4-k2-2", B, {{70, 1, 20}}, "run", CORRUPT, 70, 0},
    {"run-k1-0", B, {{70, 1, 0}}, "run", CORRUPT, 70, 0},
    {"run-zero-bytes", B, {{70, 1, 33}}, "run", CORRUPT, 70, 0},
    {"run-zero-bytes-f16", H, {{70, 1, 65}}, "run", CORRUPT, 70, 0},
    {"run-second-codes-without-planes", B, {{71, 2, 1}}, "run", CORRUPT, 70, 0},
    {"run-literals-above-n", B, {{73, 2, 129}}, "run", CORRUPT, 70, 0},
    {"run-second-codes-above-n", S, {{71, 2, 201}}, "run", CORRUPT, 70, 0},
    {"run-literals-above-second-codes", S, {{71, 2, 3}, {73, 2, 4}}, "run", CORRUPT, 70, 0},
    {"run-no-shorter", B, {{73, 2, 104}}, "run", CORRUPT, 70, 0},
    {"run-shorter-by-8", B, {{73, 2, 103}}, "record-length", CORRUPT, 64, 0},
    {"run-raw", B, {{70, 1, 0}, {73, 2, 0}}, "record-length", CORRUPT, 64, 0},
    {"padding-before-runs", B, {{79, 1, 1}}, "padding", CORRUPT, 79, NONE},
    {"padding-after-literals", B, {{231, 1, 1}}, "padding", CORRUPT, 231, NONE},
    {"padding-after-high-before-planes", H, {{180, 1, 128}}, "padding", CORRUPT, 180, NONE},
    {"padding-of-raw", R, {{180, 1, 1}}, "padding", CORRUPT, 180, NONE},
    {"padding-of-raw-last", R, {{183, 1, 1}}, "padding", CORRUPT, 183, NONE},
    {"planes-another-escape", B, {{209, 1, 1}}, "planes", CORRUPT, 80, 0},
    {"planes-no-escape", B, {{208, 1, 0}}, "planes", CORRUPT, 80, 0},
    {"planes-unused-bit", H, {{247, 1, 128}}, "planes", CORRUPT, 80, 0},
    {"planes-unused-bit-of-high", H, {{215, 1, 128}}, "planes", CORRUPT, 80, 0},
    {"planes-exponent-of-6-bits", H, {{248, 1, 32}}, "planes", CORRUPT, 80, 0},
    {"choice-literal-with-an-entry", B, {{225, 1, 127}}, "choice", CORRUPT, 70, 0},
    {"values-change", B, {{100, 1, 77}}, NULL, REF_OK, 0, 0},
    {"choice-entry-out-of-reach", B, {{224, 1, 0}}, "choice", CORRUPT, 70, 0},
    {"tile-count", R, {{80, 1, 0}}, "tile-count", CORRUPT, 68, 0},
};

static void put_verdict(const struct verdict *v)
{
    size_t len;
    uint8_t *block = make_base(&len, v->base);
    for (unsigned i = 0; i < 4; i++)
        ref_put(block + v->change[i].at, v->change[i].bytes, v->change[i].value);
    put_fault(v->name, block, len, v->rule, v->status, v->offset, v->tile);
    free(block);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: genpacked DIRECTORY\n");
        return 2;
    }
    open_file(argv[1], "packed.txt", "genpacked.c");
    put_cases();
    close_file("packed.txt");
    open_file(argv[1], "packed-verify.txt", "genpacked.c");
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        put_verdict(&verdicts[i]);
    close_file("packed-verify.txt");
    return 0;
}
