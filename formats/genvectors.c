/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors, roundtrip.txt and verify.txt (syntax and generator of values: vectors/README.md), into the
 * directory named by its argument. The verdicts in verify.txt are stated here by hand; ref.c only has to agree. */
#include "gentext_fault.h"

static const char *const dtype_names[] = {"",   "f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",
                                          "u8", "i16", "u16", "i32", "u32",  "i64",    "u64"};
static const char *const format_names[] = {"dense", "bitmap", "coo", "hybrid"};

/* ---- roundtrip.txt ---- */

enum { DENSE = 1, PICI = 2, COO = 4, HYBRID = 8, ALL = 15, SEALED = 16, EARLIER = 32 };

static void put_block(const char *name, const void *src, unsigned dtype, uint64_t n, unsigned format, const char *kind)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    const enum ref_zeros zeros = strcmp(kind, "earlier") == 0 ? REF_ZEROS_VERSION_1 : REF_ZEROS_EXACT;
    uint8_t *back = memory(bytes);
    size_t len;
    uint8_t *block = ref_encode_as(&len, src, n, dtype, format, strcmp(kind, "checksum") == 0, zeros);
    if (!block)
        fail("does not encode", name);
    if (ref_decode(back, n, block, len) || memcmp(back, src, bytes) != 0)
        fail("does not decode", name);
    column = (size_t)fprintf(out, "block %s %s", format_names[format], kind);
    put_bytes(block, len);
    free(block);
    free(back);
}

/* Write a case: the elements in src, and their blocks in the formats of the mask. SEALED adds one with a checksum;
 * EARLIER adds hybrid as it was before version 2. */
static void put_case(const char *pattern, unsigned dtype, uint64_t n, const void *src, unsigned mask)
{
    unsigned width = ref_width(dtype);
    uint8_t *bytes = memory((size_t)n * width);
    char name[64];
    snprintf(name, sizeof name, "%s-%s-%" PRIu64, dtype_names[dtype], pattern, n);
    fprintf(out, "case %s\n", name);
    column = (size_t)fprintf(out, "dense %s %" PRIu64, dtype_names[dtype], n);
    for (uint64_t i = 0; i < n; i++)
        ref_put(bytes + i * width, width, ref_load(src, i, width));
    put_bytes(bytes, (size_t)n * width);
    for (unsigned format = 0; format < 4; format++) {
        if (!(mask >> format & 1))
            continue;
        put_block(name, src, dtype, n, format, "plain");
        if (mask & SEALED)
            put_block(name, src, dtype, n, format, "checksum");
    }
    if (mask & EARLIER)
        put_block(name, src, dtype, n, REF_HYBRID, "earlier");
    free(bytes);
}

/* n elements, each nonzero with a probability of density / 1000. constant: all nonzeros have the same value. */
static void put_random(const char *pattern, unsigned dtype, uint64_t n, unsigned density, int constant, unsigned mask)
{
    unsigned width = ref_width(dtype);
    uint8_t *src = memory((size_t)n * width);
    state = ++cases;
    uint64_t fixed = next() | 1;
    for (uint64_t i = 0; i < n; i++)
        if (next() % 1000 < density)
            ref_store(src, i, width, constant ? fixed : next());
    put_case(pattern, dtype, n, src, mask);
    free(src);
}

static void put_list(const char *pattern, unsigned dtype, uint64_t n, unsigned entries, const uint64_t *at,
                     const uint64_t *values, unsigned mask)
{
    unsigned width = ref_width(dtype);
    uint8_t *src = memory((size_t)n * width);
    state = ++cases;
    for (unsigned k = 0; k < entries; k++)
        ref_store(src, at ? at[k] : k, width, values ? values[k] : next() | 1);
    put_case(pattern, dtype, n, src, mask);
    free(src);
}

static void put_specials(void)
{
    static const struct {
        unsigned dtype;
        /* -0, least denormal, greatest denormal, one, greatest, infinity, quiet NaN, signalling NaN, and both NaNs
         * with a sign and a payload */
        uint64_t values[10];
    } table[] = {
        {REF_F32,
         {0x80000000, 1, 0x7fffff, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0xffc12345, 0xffa12345}},
        {REF_F64,
         {UINT64_C(1) << 63, 1, UINT64_C(0xfffffffffffff), UINT64_C(0x3ff0000000000000), UINT64_C(0x7fefffffffffffff),
          UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000), UINT64_C(0x7ff0000000000001),
          UINT64_C(0xfff8123456789abc), UINT64_C(0xfff4123456789abc)}},
        {REF_F16, {0x8000, 1, 0x3ff, 0x3c00, 0x7bff, 0x7c00, 0x7e00, 0x7c01, 0xfe12, 0xfd12}},
        {REF_BF16, {0x8000, 1, 0x7f, 0x3f80, 0x7f7f, 0x7f80, 0x7fc0, 0x7f81, 0xffd2, 0xffa2}},
        {REF_F8E4M3, {0x80, 1, 7, 0x38, 0x7e, 0xfe, 0x7f, 0xff, 0x81, 0x87}},
        {REF_F8E5M2, {0x80, 1, 3, 0x3c, 0x7b, 0x7c, 0x7e, 0x7d, 0xff, 0xfd}},
    };
    static const uint64_t at[10] = {0, 1, 2, 5, 63, 64, 65, 66, 99, 127};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        put_list("specials", table[i].dtype, 130, 10, at, table[i].values,
                 ALL | SEALED | (table[i].dtype == REF_F64 ? EARLIER : 0));
}

/* For hybrid: each container, at the counts where another one becomes shorter; and groups of tiles. */
static void put_containers(void)
{
    static const struct {
        const char *pattern;
        unsigned dtype;
        unsigned n, nnz, step; /* nonzeros at 0, step, 2 * step, ... */
    } tiles[] = {
        {"offsets12", REF_U8, 4096, 31, 132},  {"offsets8", REF_U8, 4096, 32, 128},
        {"offsets8", REF_U16, 4096, 496, 8},   {"bitvector", REF_U16, 4096, 497, 8},
        {"run", REF_U8, 4096, 255, 1},         {"run", REF_U8, 4096, 256, 1},
        {"run", REF_U8, 4000, 400, 1},         {"bitvector", REF_U8, 4096, 3584, 1},
        {"raw", REF_U8, 4096, 3585, 1},        {"raw", REF_U16, 900, 850, 1},
        {"offsets12", REF_U8, 100, 31, 2},     {"raw", REF_U8, 50, 30, 1},
        {"offsets12", REF_U64, 4096, 31, 132},
    };
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const unsigned width = ref_width(tiles[i].dtype);
        char name[40];
        uint8_t *src = memory((size_t)tiles[i].n * width);
        state = ++cases;
        for (unsigned k = 0; k < tiles[i].nnz; k++)
            ref_store(src, k * tiles[i].step, width, next() | 1);
        snprintf(name, sizeof name, "%s-%u", tiles[i].pattern, tiles[i].nnz);
        put_case(name, tiles[i].dtype, tiles[i].n, src, HYBRID);
        free(src);
    }
    const uint64_t n = 64 * 4096 - 5000, at[6] = {0, 131071, 131072, 135168, 135169, n - 1};
    put_list("groups", REF_U8, n, 6, at, NULL, HYBRID | SEALED);
    put_list("group-between", REF_U8, n, 1, at + 5, NULL, HYBRID);
    put_list("group-after", REF_U8, n, 2, at, NULL, HYBRID);
}

static uint64_t minus_zero(unsigned dtype)
{
    return UINT64_C(1) << (8 * ref_width(dtype) - 1);
}

/* For hybrid: tiles that keep the signs of their zeros. An element is a negative zero if its position modulo `of` is
 * below `every`; if `of` is 0, with a probability of every / 1000. Then set nonzeros at 0, step, 2 * step, ... */
static void put_signs(void)
{
    static const struct {
        const char *pattern;
        unsigned dtype, n, nnz, step, every, of, mask;
    } tiles[] = {
        /* n = 0: all zeros negative, flip 0, flip 1, as many of both, and the parameters 0 to 11 */
        {"all", REF_F32, 4096, 0, 0, 1, 1, SEALED | EARLIER},
        {"half", REF_F16, 4096, 0, 0, 1, 2, 0},
        {"one-less", REF_F8E5M2, 4095, 0, 0, 1, 2, EARLIER},
        {"quarter", REF_F8E4M3, 4096, 0, 0, 1, 4, SEALED},
        {"three-quarters", REF_BF16, 4096, 0, 0, 3, 4, 0},
        {"third", REF_F8E4M3, 4096, 0, 0, 333, 0, 0},
        {"tenth", REF_F8E5M2, 4096, 0, 0, 1, 10, 0},
        {"fiftieth", REF_BF16, 4096, 0, 0, 1, 50, SEALED},
        {"hundredth", REF_F32, 4096, 0, 0, 10, 0, EARLIER},
        {"all-but-ten", REF_F32, 4096, 0, 0, 409, 410, 0},
        {"one", REF_F64, 4096, 0, 0, 1, 4096, EARLIER},
        {"all-but-one", REF_F64, 4096, 0, 0, 4095, 4096, SEALED},
        {"three", REF_F64, 4096, 0, 0, 1, 1500, 0},
        /* m at which k changes, and one more. k = 1: 31 * m = 12 * z. k = 4: 206 * m = 12 * z */
        {"k-1", REF_F8E5M2, 310, 0, 0, 12, 31, 0},
        {"k-0", REF_F8E5M2, 311, 0, 0, 12, 31, 0},
        {"k-4", REF_F8E4M3, 206, 0, 0, 6, 103, 0},
        {"k-3", REF_F8E4M3, 207, 0, 0, 6, 103, 0},
        /* n > 0, in each container, at the counts where another one becomes shorter */
        {"all", REF_F16, 4096, 31, 132, 1, 1, SEALED},
        {"offsets12-31", REF_F8E4M3, 4096, 31, 132, 1, 2, 0},
        {"offsets8-32", REF_F8E5M2, 4096, 32, 128, 1, 2, 0},
        {"offsets8-496", REF_BF16, 4096, 496, 8, 2, 4, 0},
        {"bitvector-497", REF_F8E4M3, 4096, 497, 8, 2, 4, 0},
        {"bitvector-1365", REF_F8E4M3, 4096, 1365, 3, 500, 0, 0},
        {"run-256", REF_F8E5M2, 4096, 256, 1, 1, 8, 0},
        {"run-400", REF_F8E4M3, 4000, 400, 1, 3, 4, SEALED},
        /* a last tile that is short */
        {"short", REF_F8E4M3, 4096 + 300, 40, 101, 1, 2, 0},
        {"two", REF_F32, 2, 0, 0, 1, 1, EARLIER},
        {"nine", REF_F8E5M2, 9, 1, 1, 1, 1, 0},
        /* keeping signs would cost the same or one byte more, so nothing is kept */
        {"same-one", REF_F32, 1, 0, 0, 1, 1, 0},
        {"same-two", REF_F32, 2, 0, 0, 1, 2, 0},
        {"more", REF_F32, 100, 0, 0, 1, 100, 0},
        {"raw", REF_F8E4M3, 50, 45, 1, 1, 3, 0},
        {"few", REF_F16, 4096, 20, 100, 1, 2048, 0},
    };
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const unsigned width = ref_width(tiles[i].dtype);
        char name[40];
        uint8_t *src = memory((size_t)tiles[i].n * width);
        state = ++cases;
        for (unsigned k = 0; k < tiles[i].n; k++)
            if (tiles[i].of ? k % tiles[i].of < tiles[i].every : next() % 1000 < tiles[i].every)
                ref_store(src, k, width, minus_zero(tiles[i].dtype));
        const uint64_t constant = next() | 1;
        for (unsigned k = 0; k < tiles[i].nnz; k++)
            ref_store(src, k * tiles[i].step, width, constant);
        snprintf(name, sizeof name, "signs-%s", tiles[i].pattern);
        put_case(name, tiles[i].dtype, tiles[i].n, src, HYBRID | tiles[i].mask);
        free(src);
    }

    for (unsigned dtype = REF_F32; dtype <= REF_F8E5M2; dtype++) {
        const unsigned width = ref_width(dtype), n = 200;
        uint8_t *src = memory((size_t)n * width);
        state = ++cases;
        for (unsigned i = 0; i < n; i++) {
            const uint64_t chance = next() % 1000;
            ref_store(src, i, width, chance < 100 ? next() | 1 : chance < 500 ? minus_zero(dtype) : 0);
        }
        put_case("signs-masked", dtype, n, src, HYBRID | SEALED | EARLIER);
        free(src);
    }

    /* Tiles of every kind in a block; groups that keep signs beside groups that do not, and beside empty ones. */
    static const struct {
        const char *pattern;
        unsigned dtype, n;
        struct {
            unsigned first, step, n;
        } negative[3], nonzero[3];
    } blocks[] = {
        {"tiles",
         REF_F32,
         5 * 4096 + 20,
         {{0, 2, 100}, {2 * 4096 + 1, 1000, 3}, {3 * 4096, 1, 4096 + 1}},
         {{7, 900, 4}, {4096, 5, 40}, {5 * 4096, 1, 20}}},
        {"groups",
         REF_F8E4M3,
         64 * 4096 - 5000,
         {{4096, 1, 4096}, {33 * 4096, 8, 2 * 512}, {62 * 4096, 1, 1096}},
         {{5, 1, 1}, {34 * 4096 + 1, 4, 700}, {0}}},
        {"first-group", REF_F8E5M2, 40 * 4096, {{31 * 4096, 2, 100}, {0}, {0}}, {{33 * 4096, 3, 50}, {0}, {0}}},
        {"second-group", REF_F8E5M2, 33 * 4096, {{32 * 4096, 1, 4096}, {0}, {0}}, {{3 * 4096, 3, 50}, {0}, {0}}},
        {"group-after", REF_F8E4M3, 32 * 4096 + 1000, {{32 * 4096, 1, 1000}, {0}, {0}}, {{0}, {0}, {0}}},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const unsigned dtype = blocks[i].dtype, width = ref_width(dtype);
        char name[40];
        uint8_t *src = memory((size_t)blocks[i].n * width);
        state = ++cases;
        for (unsigned r = 0; r < 3; r++)
            for (unsigned k = 0; k < blocks[i].negative[r].n; k++)
                ref_store(src, blocks[i].negative[r].first + k * blocks[i].negative[r].step, width, minus_zero(dtype));
        for (unsigned r = 0; r < 3; r++)
            for (unsigned k = 0; k < blocks[i].nonzero[r].n; k++)
                ref_store(src, blocks[i].nonzero[r].first + k * blocks[i].nonzero[r].step, width, 0x2a);
        snprintf(name, sizeof name, "signs-%s", blocks[i].pattern);
        put_case(name, dtype, blocks[i].n, src, HYBRID | SEALED);
        free(src);
    }
}

static void put_roundtrips(void)
{
    static const unsigned widths[4] = {REF_U8, REF_BF16, REF_F32, REF_F64};
    static const uint64_t small[] = {0, 1, 63, 64, 65}, large[] = {4095, 4096, 4097, 3 * 4096 + 5};
    for (unsigned w = 0; w < 4; w++)
        for (unsigned i = 0; i < 5; i++) {
            put_random("zero", widths[w], small[i], 0, 0, small[i] == 64 ? ALL | SEALED : ALL);
            if (!small[i])
                continue;
            put_random("third", widths[w], small[i], 333, 0, small[i] == 65 ? ALL | SEALED : ALL);
            put_random("constant", widths[w], small[i], 1000, 1, ALL);
        }
    for (unsigned w = 0; w < 4; w++)
        for (unsigned i = 0; i < 4; i++) {
            const uint64_t n = large[i], ends[2] = {0, n - 1};
            put_random("zero", widths[w], n, 0, 0, ALL);
            put_list("ends", widths[w], n, 2, ends, NULL, ALL | SEALED);
            put_random("percent", widths[w], n, n > 8192 ? 5 : 10, 0, ALL);
            put_random("constant", widths[w], n, 1000, 1, DENSE | PICI | HYBRID);
            if (n == 4096) { /* one element in each corner, and the second of the first row and of the first column */
                const uint64_t corners[6] = {0, 1, 63, 64, 4032, 4095};
                put_list("corners", widths[w], n, 6, corners, NULL, ALL);
            }
        }
    put_random("tenth", REF_F16, 4097, 100, 0, ALL);
    put_random("half", REF_I8, 4095, 500, 0, DENSE | PICI | HYBRID);
    put_random("tail", REF_U64, 3 * 4096 + 5, 2, 0, ALL);
    for (unsigned dtype = REF_F32; dtype <= REF_U64; dtype++)
        put_random("seven", dtype, 7, 600, 0, ALL | SEALED);
    put_specials();
    put_containers();
    put_signs();
}

/* ---- verify.txt ---- */

/* Valid blocks, which the cases change, and the offsets of their parts.
 *   D    values 48, end 54
 *   P    elements 0, 1, 65 and 4095 of tile 0, 4096 and 4099 of tile 1; words 48 and (tile 1's) 560, index 1072,
 *        padding 1080, values 1088, end 1112
 *   C    index 48, padding 68, values 80, end 90
 *   W    positions of 64 bits: 48, values 64, end 68
 *   H    directory 48, records from 64. Record 0 at 64: occupancy, descriptors 3 at 68 and 0x90 at 69, its second byte
 *        70. 12-bit offsets of tile 0 at 71, counts of tile 2 at 76 and its offsets at 92. Values 132 (tile 2's 138),
 *        padding 218. Record 1 at 220, of tile 32, which has 300 elements: descriptor 224, offsets 225, values 228, end
 *        232
 *   B    record 64; descriptors 68 (bitvector), 69 (raw, of 600 elements), 70 and 71; bits 72, values 584 and 1949,
 *        padding 2549, end 2552
 *   R    record 64, descriptor 68, bits (of 4000 elements) 70, values 582, padding 882, end 884
 *   Q    record 64, descriptor 68, offsets 69, padding 75, values 76, padding 92, end 96
 *   S    keeps signs: record 64, descriptors 68 and 69, second bytes 70 and 71. Sign descriptors 72 (m = 81, k = 5, u =
 *        164) and 76 (tile 1's, of 300 elements; m = 149, k = 0, u = 299). Offsets 80 and 85, unary 87, remainders 108,
 *        unary of tile 1 159. Padding 197, values 200 and (tile 1's) 212, end 216
 *   A    all zeros negative: record 64, descriptor 68, second byte 69, sign descriptor 70, padding 74, end 80
 *   L    A of two elements
 *   Z    tile 0 as in A: record 64, descriptors 68 and (tile 1's, which does not keep signs) 69, second byte 70. Sign
 *        descriptor 71, offset of tile 1 75, its value 80, padding 88, end 96
 *   O    keeps signs, offsets8: record 64, descriptor 68, second byte 69, sign descriptor 70 (flip 1, m = 2008, k = 0,
 *        u = 4055). Counts 74, offsets 90, unary 130, padding 637, values 638, padding 718, end 720
 *   X    keeps signs, bitvector: record 64, descriptor 68, second byte 69, sign descriptor 70 (as many negative as not:
 *        m = 1898, k = 0, u = 3796). Bits 74, unary 586, values 1061, padding 1361, end 1364
 *   ED, EP, EC, EH    no elements */
enum base { D, P, C, W, H, B, R, Q, S, A, L, Z, O, X, ED, EP, EC, EH, BASES };

static const struct {
    unsigned dtype, format;
    uint64_t n;
    unsigned nnz;
    uint64_t at[6];
    struct {
        uint64_t first, step;
        unsigned n;
    } run[2], negative[2]; /* equal nonzeros, and the negative zeros that they overwrite */
} bases[BASES] = {
    [D] = {REF_U16, REF_DENSE, 3, 3, {0, 1, 2}},
    [P] = {REF_F32, REF_BITMAP, 4100, 6, {0, 1, 65, 4095, 4096, 4099}},
    [C] = {REF_I16, REF_COO, 5000, 5, {0, 7, 8, 4095, 4999}},
    [W] = {REF_F16, REF_COO, UINT64_C(0x100000005), 2, {3, UINT64_C(0x100000004)}},
    [H] = {REF_I16, REF_HYBRID, 131372, 5, {0, 7, 4095, 131077, 131371}, {{8192, 100, 40}}},
    [B] = {REF_I8, REF_HYBRID, 4696, 0, {0}, {{0, 3, 1365}, {4096, 1, 580}}},
    [R] = {REF_U8, REF_HYBRID, 4000, 0, {0}, {{256, 1, 300}}},
    [Q] = {REF_F32, REF_HYBRID, 4096, 4, {1, 50, 99, 4000}, {{0}}},
    [S] = {REF_F32, REF_HYBRID, 4396, 4, {10, 20, 30, 4103}, .negative = {{100, 40, 81}, {4097, 2, 150}}},
    [A] = {REF_F32, REF_HYBRID, 4096, 0, {0}, .negative = {{0, 1, 4096}}},
    [L] = {REF_F32, REF_HYBRID, 2, 0, {0}, .negative = {{0, 1, 2}}},
    [Z] = {REF_F64, REF_HYBRID, 8192, 1, {4096}, .negative = {{0, 1, 4096}}},
    [O] = {REF_F16, REF_HYBRID, 4096, 0, {0}, {{0, 100, 40}}, {{1, 2, 2048}}},
    [X] = {REF_F8E4M3, REF_HYBRID, 4096, 0, {0}, {{256, 1, 300}}, {{1, 2, 2048}}},
    [ED] = {REF_I8, REF_DENSE, 0, 0, {0}},
    [EP] = {REF_F64, REF_BITMAP, 0, 0, {0}},
    [EC] = {REF_U32, REF_COO, 0, 0, {0}},
    [EH] = {REF_F32, REF_HYBRID, 0, 0, {0}},
};

static uint8_t *make_base(size_t *len, enum base base)
{
    if (base != W) {
        unsigned width = ref_width(bases[base].dtype);
        uint8_t *src = memory((size_t)bases[base].n * width);
        for (unsigned r = 0; r < 2; r++)
            for (unsigned k = 0; k < bases[base].negative[r].n; k++)
                ref_store(src, bases[base].negative[r].first + k * bases[base].negative[r].step, width,
                          minus_zero(bases[base].dtype));
        for (unsigned k = 0; k < bases[base].nnz; k++)
            ref_store(src, bases[base].at[k], width, next() | 1);
        for (unsigned r = 0; r < 2; r++)
            for (unsigned k = 0; k < bases[base].run[r].n; k++)
                ref_store(src, bases[base].run[r].first + k * bases[base].run[r].step, width, 0x2a);
        uint8_t *block = ref_encode(len, src, bases[base].n, bases[base].dtype, bases[base].format, 0);
        free(src);
        if (!block)
            fail("does not encode", "base");
        return block;
    }
    /* too many elements to encode from memory */
    uint8_t *block = memory(68);
    memcpy(block, "PICI\x01\x02\x03\x01", 8);
    const uint64_t words[6] = {bases[W].n, 2, 48, 64, 0, bases[W].at[0]};
    for (unsigned i = 0; i < 6; i++)
        ref_put(block + 8 + 8 * i, 8, words[i]);
    ref_put(block + 56, 8, bases[W].at[1]);
    ref_put(block + 64, 4, next() | 0x10001);
    *len = 68;
    return block;
}

#define BIG(shift) (UINT64_C(1) << (shift))

enum seal { PLAIN, BEFORE, AFTER }; /* set the checksum before, or after, the changes */

static const struct verdict {
    const char *name;
    enum base base;
    enum seal seal;
    int grow; /* bytes added (zeros) or cut at the end, before the changes */
    struct {
        unsigned at, bytes;
        uint64_t value;
    } change[6];
    const char *rule;
    enum ref_status status;
    uint64_t offset, tile;
} verdicts[] = {
#include "verdicts.inc"
};

static void put_verdict(const struct verdict *v)
{
    size_t len;
    state = ++cases;
    uint8_t *base = make_base(&len, v->base), *block = memory(len + 64 + (size_t)(v->grow > 0 ? v->grow : 0));
    memcpy(block, base, len);
    len = (size_t)((ptrdiff_t)len + v->grow);
    if (v->seal == BEFORE)
        ref_seal(block, len);
    for (unsigned i = 0; i < 6; i++)
        ref_put(block + v->change[i].at, v->change[i].bytes, v->change[i].value);
    if (v->seal == AFTER)
        ref_seal(block, len);
    put_fault(v->name, block, len, v->rule, v->status, v->offset, v->tile);
    free(base);
    free(block);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: genvectors DIRECTORY\n");
        return 2;
    }
    open_file(argv[1], "roundtrip.txt", "genvectors.c");
    put_roundtrips();
    close_file("roundtrip.txt");
    open_file(argv[1], "verify.txt", "genvectors.c");
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        put_verdict(&verdicts[i]);
    close_file("verify.txt");
    return 0;
}
