/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors of small deltas, small.txt (syntax: vectors/README.md), into the directory named by its
 * argument. This file states by hand what readers must reject; ref_small.c only has to agree. */
#include "gentext_fault.h"
#include "ref_small.h"

static const char *const dtype_names[] = {"",   "f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",
                                          "u8", "i16", "u16", "i32", "u32",  "i64",    "u64"};
static const char *const format_names[] = {"dense", "bitmap", "coo", "hybrid"};

/* The data of a case: n elements of the base, and the new ones. fours: u8 elements that hold two e2m1 each. */
struct pair {
    unsigned dtype, width;
    int fours;
    uint64_t n;
    uint8_t *base, *src;
};

static struct pair make_pair(unsigned dtype, uint64_t n)
{
    const unsigned width = ref_width(dtype);
    const struct pair p = {dtype, width, 0, n, memory((size_t)n * width), memory((size_t)n * width)};
    state = ++cases;
    return p;
}

/* The name of the elements. */
static const char *held(const struct pair *p)
{
    return p->fours ? "e2m1x2" : dtype_names[p->dtype];
}

static uint8_t *context_of(size_t *len, const struct pair *p, enum ref_small_twist twist)
{
    return ref_small_context(len, p->base, p->src, p->n, p->dtype, p->fours, twist);
}

static void free_pair(struct pair *p)
{
    free(p->base);
    free(p->src);
}

static void put_elements(const void *array, const struct pair *p)
{
    uint8_t *bytes = memory((size_t)p->n * p->width);
    for (uint64_t i = 0; i < p->n; i++)
        ref_put(bytes + i * p->width, p->width, ref_load(array, i, p->width));
    put_bytes(bytes, (size_t)p->n * p->width);
    free(bytes);
}

static void put_pair(const char *pattern, const struct pair *p, int valid)
{
    fprintf(out, "case %s-%s-%" PRIu64 "\n", held(p), pattern, p->n);
    column = (size_t)fprintf(out, "base %s %" PRIu64, held(p), p->n);
    put_elements(p->base, p);
    if (!valid)
        return;
    column = (size_t)fprintf(out, "result");
    put_elements(p->src, p);
}

static void put_delta(const char *pattern, const struct pair *p, unsigned format, int checksum)
{
    const size_t bytes = (size_t)p->n * p->width;
    uint8_t *back = memory(bytes);
    size_t len;
    uint8_t *delta = p->fours ? ref_small_encode_pairs(&len, p->base, p->src, p->n, 0, p->n, format, checksum)
                              : ref_small_encode(&len, p->base, p->src, p->n, p->dtype, format, checksum);
    memcpy(back, p->base, bytes);
    if (!delta)
        fail("does not encode", pattern);
    if (ref_small_apply(back, p->n, delta, len) || memcmp(back, p->src, bytes) != 0)
        fail("does not lead there", pattern);
    column = (size_t)fprintf(out, "delta %s %s", format_names[format], checksum ? "checksum" : "plain");
    put_bytes(delta, len);
    free(back);
    free(delta);
}

/* ---- elements ---- */

static uint64_t sign_bit(const struct pair *p)
{
    return UINT64_C(1) << (8 * p->width - 1);
}

static unsigned mantissa(unsigned dtype)
{
    static const unsigned bits[] = {[REF_F32] = 23,   [REF_F16] = 10, [REF_BF16] = 7, [REF_F8E4M3] = 3,
                                    [REF_F8E5M2] = 2, [REF_U8] = 7,   [REF_I32] = 7,  [REF_F64] = 7};
    return bits[dtype];
}

/* Set weights: exponents that fall off geometrically below `exponent`, and `zeros` zeros per thousand. */
static void weights(struct pair *p, unsigned exponent, unsigned zeros)
{
    const unsigned m = mantissa(p->dtype);
    for (uint64_t i = 0; i < p->n; i++) {
        const uint64_t r = next();
        unsigned e = exponent;
        for (uint64_t x = r >> 20; e && x & 1; x >>= 1)
            e--;
        const uint64_t u = (uint64_t)e << m | (r & ((UINT64_C(1) << m) - 1)) | (r >> 63 ? sign_bit(p) : 0);
        ref_store(p->base, i, p->width, next() % 1000 < zeros ? 0 : u);
        ref_store(p->src, i, p->width, ref_load(p->base, i, p->width));
    }
}

/* Change `per_thousand` of 1000 elements by up to `most` places. A zero becomes plus or minus `step`, or a fraction. */
static void change(struct pair *p, unsigned per_thousand, uint64_t most, uint64_t step)
{
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t u = ref_load(p->base, i, p->width);
        const uint64_t r = next();
        if (r % 1000 >= per_thousand)
            continue;
        if (u == 0 && step)
            u = (r >> 40 & 1 ? step : step - (r >> 42 & 255)) | (r >> 63 ? sign_bit(p) : 0);
        else
            u += r >> 62 & 1 ? 1 + (r >> 32) % most : 0 - (1 + (r >> 32) % most);
        ref_store(p->src, i, p->width, u);
    }
}

static void put_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, 31, 32, 33, 127, 128, 129, 161, 700};
    static const unsigned dtypes[] = {REF_BF16, REF_F16, REF_F32};
    for (unsigned d = 0; d < 3; d++)
        for (unsigned i = 0; i < 10; i++) {
            struct pair p = make_pair(dtypes[d], sizes[i]);
            weights(&p, dtypes[d] == REF_F16 ? 12 : 122, 100);
            change(&p, 300, d == 2 ? 5000 : 3, (uint64_t)(dtypes[d] == REF_F16 ? 1 : 110) << mantissa(dtypes[d]));
            put_pair("step", &p, 1);
            put_delta("step", &p, REF_DENSE, 0);
            put_delta("step", &p, REF_HYBRID, 1);
            free_pair(&p);
        }
}

static void put_patterns(void)
{
    static const struct {
        const char *pattern;
        unsigned dtype, n, exponent, zeros, changed;
        uint64_t most, step;
    } table[] = {
        {"few", REF_BF16, 2000, 122, 50, 20, 2, 0x3586},
        {"all", REF_BF16, 600, 122, 50, 1000, 4, 0x3586},
        {"far", REF_BF16, 900, 125, 0, 500, 900, 0},
        {"zeros", REF_BF16, 700, 100, 900, 400, 1, 0x3586},
        {"tiny", REF_BF16, 500, 3, 100, 500, 2, 9},
        {"long", REF_F16, 900, 16, 20, 500, 300, 0},
        {"zeros", REF_F16, 600, 10, 700, 400, 2, 0x20},
        {"all", REF_F32, 500, 122, 50, 1000, 70000, UINT64_C(0x358637bd)},
        {"zeros", REF_F32, 500, 100, 900, 500, 100, UINT64_C(0x358637bd)},
        {"far", REF_F32, 400, 125, 10, 700, 1 << 30, UINT64_C(0x358637bd)},
        {"none", REF_BF16, 300, 122, 50, 0, 1, 0},
        {"bitmap", REF_I32, 300, 12, 50, 100, 9, 0},
        {"seven", REF_U8, 7, 0, 0, 500, 9, 0},
        {"five", REF_F64, 5, 9, 0, 500, 9, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct pair p = make_pair(table[i].dtype, table[i].n);
        weights(&p, table[i].exponent, table[i].zeros);
        change(&p, table[i].changed, table[i].most, table[i].step);
        put_pair(table[i].pattern, &p, 1);
        put_delta(table[i].pattern, &p, REF_DENSE, 0);
        put_delta(table[i].pattern, &p, REF_HYBRID, 0);
        free_pair(&p);
    }
}

/* -0.0, infinities, NaNs and denormals, from and to each other; the largest difference; a literal far below `top`. */
static void put_specials(void)
{
    static const struct {
        unsigned dtype;
        uint64_t v[12];
    } table[] = {
        {REF_BF16, {0, 0x8000, 1, 0x7f, 0x3f80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffd2, 0xffff}},
        {REF_F16, {0, 0x8000, 1, 0x3ff, 0x3c00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe12, 0xffff}},
        {REF_F32,
         {0, 0x80000000, 1, 0x7fffff, 0x3f800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
          0xffc12345, 0xffffffff}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (unsigned among = 0; among < 2; among++) {
            struct pair p = make_pair(table[i].dtype, among ? 400 : 144 * 4);
            for (uint64_t k = 0; k < p.n; k++) {
                const uint64_t one = table[i].v[4] + 5 * (k % 7);
                ref_store(p.base, k, p.width, among && k > 12 ? one : table[i].v[k % 12]);
                ref_store(p.src, k, p.width, among && k > 12 ? one + (k % 9 == 0) : table[i].v[k / 12 % 12]);
            }
            put_pair(among ? "among" : "specials", &p, 1);
            put_delta("specials", &p, REF_DENSE, 0);
            put_delta("specials", &p, REF_HYBRID, 0);
            free_pair(&p);
        }
}

/* Several chunks, of both kinds. Nearly all elements are alike. */
static void put_chunks(void)
{
    struct pair p = make_pair(REF_BF16, 2 * REF_SMALL_CHUNK + 300);
    for (uint64_t i = 0; i < p.n; i++) {
        ref_store(p.base, i, 2, 0x3c21);
        ref_store(p.src, i, 2, 0x3c21);
    }
    for (uint64_t i = 0; i < 3; i++)
        ref_store(p.src, REF_SMALL_CHUNK - 1 + i * 7, 2, 0x3c22);
    for (uint64_t i = 0; i < 300; i++) {
        ref_store(p.src, 1000 * i, 2, 0x3c22 + i % 3);
        ref_store(p.src, 2 * REF_SMALL_CHUNK + i, 2, 0x3c20);
    }
    put_pair("chunks", &p, 1);
    put_delta("chunks", &p, REF_HYBRID, 1);
    free_pair(&p);
}

/* ---- deltas that readers must reject ---- */

static void put_refused(const char *name, const struct pair *p, const uint8_t *delta, size_t len,
                        enum ref_status status)
{
    uint8_t *back = memory((size_t)p->n * p->width);
    memcpy(back, p->base, (size_t)p->n * p->width);
    const enum ref_status s = ref_small_apply(back, p->n, delta, len);
    if (s != status) {
        fprintf(stderr, "ref: %d\n", s);
        fail("the reference disagrees", name);
    }
    fprintf(out, "# %s\n", name);
    column = (size_t)fprintf(out, "refuse %s", status_word(status));
    put_bytes(delta, len);
    free(back);
}

/* A delta of one chunk. */
static uint8_t *assemble(size_t *len, const struct pair *p, const uint8_t *chunk, size_t bytes, unsigned kind)
{
    const int narrow = p->fours || p->dtype == REF_F8E4M3 || p->dtype == REF_F8E5M2;
    const size_t head = narrow ? 48 : 32;
    uint8_t *delta = memory(head + 4 + bytes);
    *len = head + 4 + bytes;
    memcpy(delta, narrow ? "PICD\x03" : "PICD\x01", 5);
    delta[5] = (uint8_t)p->dtype;
    delta[7] = (uint8_t)p->fours;
    ref_put(delta + 8, 8, p->n);
    ref_put(delta + 16, 8, *len);
    if (narrow)
        ref_put(delta + 40, 8, p->n);
    ref_put(delta + head, 4, bytes | (uint64_t)kind << 31);
    memcpy(delta + head + 4, chunk, bytes);
    return delta;
}

/* Offsets in the delta, whose chunk begins at 36: low 36, top 37, frequent_odds 38, byte 39, frequent 40, classes 44,
 * words 48, states 52, tables 180. */
static const struct damage {
    const char *name;
    unsigned at, bytes;
    uint64_t flip;
    int grow; /* bytes added or cut at the end; with fix, the `length` field follows */
    int fix;
    enum ref_status status;
} damages[] = {
    {"size", 0, 0, 0, -10000, 0, REF_E_CORRUPT},
    {"magic", 3, 1, 1, 0, 0, REF_E_CORRUPT},
    {"version 0", 4, 1, 1, 0, 0, REF_E_VERSION},
    {"version 5", 4, 1, 4, 0, 0, REF_E_VERSION},
    {"version 3 of bf16", 4, 1, 2, 0, 0, REF_E_CORRUPT},
    {"dtype 0", 5, 1, 4, 0, 0, REF_E_CORRUPT},
    {"dtype f16", 5, 1, 7, 0, 0, REF_E_CORRUPT},
    {"dtype u16", 5, 1, 14, 0, 0, REF_E_CORRUPT},
    {"flags", 6, 1, 2, 0, 0, REF_E_CORRUPT},
    {"byte 7", 7, 1, 1, 0, 0, REF_E_CORRUPT},
    {"count of two chunks", 8, 4, 1 << 20, 0, 0, REF_E_CORRUPT},
    {"count 2^63", 8, 8, UINT64_C(1) << 63, 0, 0, REF_E_CORRUPT},
    {"length", 16, 1, 1, 0, 0, REF_E_CORRUPT},
    {"checksum without its flag", 24, 8, 1, 0, 0, REF_E_CORRUPT},
    {"a checksum that is wrong", 6, 1, 1, 0, 0, REF_E_CHECKSUM},
    {"directory", 32, 1, 1, 0, 0, REF_E_CORRUPT},
    {"kind", 35, 1, 128, 0, 0, REF_E_CORRUPT},
    {"byte 3 of the chunk", 39, 1, 1, 0, 0, REF_E_CORRUPT},
    {"low", 36, 1, 1, 0, 0, REF_E_CORRUPT},
    {"frequent_odds", 38, 1, 1, 0, 0, REF_E_CORRUPT},
    {"frequent", 40, 4, 128, 0, 0, REF_E_CORRUPT},
    {"class 31", 44, 4, UINT64_C(1) << 31, 0, 0, REF_E_CORRUPT},
    {"a class without elements", 44, 4, 2, 0, 0, REF_E_CORRUPT},
    {"one word more", 48, 4, 1, 0, 0, REF_E_CORRUPT},
    {"2^31 words more", 48, 4, UINT64_C(1) << 31, 0, 0, REF_E_CORRUPT},
    {"a state", 52, 4, 1, 0, 0, REF_E_CORRUPT},
    {"a state of another lane", 52 + 4 * 31, 4, 1 << 15, 0, 0, REF_E_CORRUPT},
    {"changed odds", 180, 1, 1, 0, 0, REF_E_CORRUPT},
    {"most", 181, 1, 1, 0, 0, REF_E_CORRUPT},
    {"most beyond all", 181, 1, 64, 0, 0, REF_E_CORRUPT},
    {"cut by one", 0, 0, 0, -1, 1, REF_E_CORRUPT},
    {"cut by a third", 0, 0, 0, -150, 1, REF_E_CORRUPT},
    {"longer by one", 0, 0, 0, 1, 1, REF_E_CORRUPT},
};

static void put_damages(const struct pair *p, const uint8_t *chunk, size_t bytes)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        size_t len;
        uint8_t *whole = assemble(&len, p, chunk, bytes, 1), *delta = memory(len + 16);
        memcpy(delta, whole, len);
        len = d->grow == -10000 ? 31 : len + (size_t)d->grow;
        if (d->fix) {
            ref_put(delta + 16, 8, len);
            ref_put(delta + 32, 4, (len - 36) | UINT64_C(1) << 31);
        }
        if (d->bytes)
            ref_put(delta + d->at, d->bytes, ref_get(delta + d->at, d->bytes) ^ d->flip);
        put_refused(d->name, p, delta, len, d->status);
        free(whole);
        free(delta);
    }
}

static void put_twists(const struct pair *p)
{
    static const char *const names[REF_TWISTS] = {"",
                                                  "low twisted",
                                                  "top twisted",
                                                  "most twisted",
                                                  "changed odds twisted",
                                                  "token odds twisted",
                                                  "frequent mantissa twisted",
                                                  "frequent_odds twisted",
                                                  "a new value of five bits",
                                                  "lists too long"};
    size_t bytes, right, len;
    uint8_t *same = context_of(&right, p, REF_TWIST_NONE);
    for (int t = REF_TWIST_LOW; t < REF_TWISTS; t++) {
        uint8_t *chunk = context_of(&bytes, p, (enum ref_small_twist)t);
        if (chunk && !(same && bytes == right && memcmp(chunk, same, bytes) == 0)) {
            uint8_t *delta = assemble(&len, p, chunk, bytes, 1);
            put_refused(names[t], p, delta, len, REF_E_CORRUPT);
            free(delta);
        }
        free(chunk);
    }
    free(same);
}

/* An XOR chunk in each format, which readers must accept even if no encoder makes it, and some that they must
 * reject. */
static void put_blocks(const struct pair *p)
{
    uint8_t *flipped = memory((size_t)p->n * p->width);
    size_t bytes, len;
    for (uint64_t i = 0; i < p->n * p->width; i++)
        flipped[i] = p->base[i] ^ p->src[i];
    for (int i = 0; i < 4 + 4; i++) {
        static const char *const names[4] = {"a block with a checksum", "a block of another dtype",
                                             "a block of fewer elements", "a damaged block"};
        const unsigned another = p->width == 1 ? REF_I8 : REF_U16, dtype = i == 5 ? another : p->dtype;
        uint8_t *block =
            ref_encode(&bytes, flipped, i == 6 ? p->n - 1 : p->n, dtype, i < 4 ? (unsigned)i : REF_HYBRID, i == 4);
        if (!block)
            fail("does not encode", "block");
        if (i == 7)
            block[8] ^= 1;
        uint8_t *delta = assemble(&len, p, block, bytes, 0);
        if (i >= 4) {
            put_refused(names[i - 4], p, delta, len, REF_E_CORRUPT);
        } else {
            column = (size_t)fprintf(out, "accept");
            put_bytes(delta, len);
        }
        free(block);
        free(delta);
    }
    free(flipped);
}

static void put_invalid(void)
{
    static const unsigned dtypes[] = {REF_BF16, REF_F16, REF_F32};
    for (unsigned d = 0; d < 3; d++) {
        struct pair p = make_pair(dtypes[d], 600);
        weights(&p, dtypes[d] == REF_F16 ? 31 : 122, 100);
        change(&p, 200, d == 2 ? 3000 : 3, (uint64_t)(dtypes[d] == REF_F16 ? 1 : 110) << mantissa(dtypes[d]) | 5);
        size_t bytes;
        uint8_t *chunk = context_of(&bytes, &p, REF_TWIST_NONE);
        if (!chunk)
            fail("has no context chunk", dtype_names[p.dtype]);
        put_pair("invalid", &p, 1);
        put_blocks(&p);
        if (d == 0)
            put_damages(&p, chunk, bytes);
        put_twists(&p);
        free(chunk);
        free_pair(&p);
    }
    struct pair p = make_pair(REF_BF16, 1000);
    for (uint64_t i = 0; i < p.n; i++) {
        ref_store(p.base, i, 2, 0x3c00);
        ref_store(p.src, i, 2, 0x1000 + next() % 1024);
    }
    put_pair("lists", &p, 1);
    put_twists(&p);
    free_pair(&p);
}

/* The deltas of three parts, in a row. */
static uint8_t *row_of_parts(size_t *len, const struct pair *p, const uint64_t ends[4], size_t starts[4])
{
    uint8_t *row = NULL;
    *len = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        uint8_t *part = ref_small_encode_part(&bytes, p->base + ends[i] * p->width, p->src + ends[i] * p->width,
                                              ends[i + 1] - ends[i], ends[i], p->n, p->dtype, REF_HYBRID, i == 1);
        uint8_t *more = realloc(row, *len + bytes);
        if (!part || !more)
            fail("does not encode", "a part");
        row = more;
        memcpy(row + *len, part, bytes);
        starts[i] = *len;
        *len += bytes;
        free(part);
    }
    starts[3] = *len;
    return row;
}

/* A part without elements at the beginning, and a delta of the whole, which is not a part. */
static void put_whole_after_empty(const struct pair *p)
{
    size_t part_bytes, whole_bytes;
    uint8_t *part = ref_small_encode_part(&part_bytes, p->base, p->src, 0, 0, p->n, p->dtype, REF_HYBRID, 0);
    uint8_t *whole = ref_small_encode(&whole_bytes, p->base, p->src, p->n, p->dtype, REF_HYBRID, 0);
    if (!part || !whole)
        fail("does not encode", "an empty part");
    uint8_t *row = memory(part_bytes + whole_bytes);
    memcpy(row, part, part_bytes);
    memcpy(row + part_bytes, whole, whole_bytes);
    put_refused("a whole delta after an empty part", p, row, part_bytes + whole_bytes, REF_E_CORRUPT);
    free(row);
    free(whole);
    free(part);
}

/* A change of bytes in a row of deltas: the part, and the place in it. */
struct part_damage {
    const char *name;
    unsigned part, at, bytes;
    uint64_t value;
    enum ref_status status;
};

static void put_damaged(const struct part_damage *wrong, const struct pair *p, const uint8_t *row, size_t len,
                        const size_t starts[4])
{
    uint8_t *damaged = memory(len);
    memcpy(damaged, row, len);
    ref_put(damaged + starts[wrong->part] + wrong->at, wrong->bytes, wrong->value);
    put_refused(wrong->name, p, damaged, len, wrong->status);
    free(damaged);
}

static void put_parts(void)
{
    static const uint64_t ends[4] = {0, 250, 251, 600};
    static const struct part_damage wrong[] = {
        {"parts in common", 2, 32, 8, 250, REF_E_CORRUPT},
        {"a part that is the whole", 0, 40, 8, 250, REF_E_CORRUPT},
        {"a part beyond the end", 2, 32, 8, 252, REF_E_CORRUPT},
        {"a part far beyond", 2, 32, 8, ~UINT64_C(0), REF_E_CORRUPT},
        {"parts of two tensors", 2, 40, 8, 601, REF_E_CORRUPT},
        {"a part of version 1", 2, 4, 1, 1, REF_E_CORRUPT},
        {"a part of version 3", 2, 4, 1, 3, REF_E_CORRUPT},
        {"a part of version 4", 2, 4, 1, 4, REF_E_CORRUPT},
        {"a part of version 5", 2, 4, 1, 5, REF_E_VERSION},
        {"a length of 40", 2, 16, 8, 40, REF_E_CORRUPT},
        {"another dtype", 2, 5, 1, REF_F16, REF_E_CORRUPT},
        {"a checksum of a part", 1, 24, 1, 0, REF_E_CHECKSUM},
    };
    struct pair p = make_pair(REF_BF16, ends[3]);
    size_t len, starts[4];
    weights(&p, 122, 100);
    change(&p, 200, 3, 0x3586);
    put_pair("parts", &p, 1);
    uint8_t *row = row_of_parts(&len, &p, ends, starts);
    column = (size_t)fprintf(out, "accept");
    put_bytes(row, len);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        put_damaged(&wrong[i], &p, row, len, starts);
    put_refused("cut within the last part", &p, row, len - 1, REF_E_CORRUPT);
    put_refused("bytes after the last part", &p, row, starts[2] + 31, REF_E_CORRUPT);
    free(row);
    put_whole_after_empty(&p);
    free_pair(&p);
}

/* ---- elements of 8 and of 4 bits ---- */

static const struct {
    unsigned dtype;
    int fours;
} narrow_dtypes[3] = {{REF_F8E4M3, 0}, {REF_F8E5M2, 0}, {REF_U8, 1}};

/* Weights of the narrow dtype i. A step changes `per_thousand` of 1000. */
static struct pair narrow_pair(unsigned i, uint64_t n, unsigned per_thousand, uint64_t most)
{
    struct pair p = make_pair(narrow_dtypes[i].dtype, n);
    p.fours = narrow_dtypes[i].fours;
    if (!p.fours) {
        weights(&p, i ? 24 : 12, 30);
        change(&p, per_thousand, most, 0);
        return p;
    }
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t r = next();
        p.base[k] = p.src[k] = (uint8_t)(r >> 8);
        if (next() % 1000 < per_thousand)
            p.src[k] ^= (uint8_t)(r >> 20 & 1 ? 1 + r % most : (1 + r % most) << 4);
    }
    return p;
}

/* Change every e2m1 to every e2m1; for f8, each of four values to each. */
static struct pair every_value(unsigned i)
{
    const int fours = narrow_dtypes[i].fours;
    struct pair p = make_pair(narrow_dtypes[i].dtype, fours ? 256 : 1024);
    p.fours = fours;
    for (unsigned k = 0; k < p.n; k++) {
        p.base[k] = (uint8_t)(fours ? k : k / 256 * 85);
        p.src[k] = (uint8_t)(fours ? k << 4 | k >> 4 : k);
    }
    return p;
}

static void put_narrow_rows(unsigned i)
{
    static const struct {
        const char *name;
        unsigned part, at, bytes;
        uint64_t value;
    } wrong[] = {
        {"what elements hold, unknown", 0, 7, 1, 2},
        {"what elements hold, of another dtype", 0, 7, 1, 1},
        {"a part of version 1", 1, 4, 1, 1},
        {"a part of version 2", 1, 4, 1, 2},
        {"of bf16", 0, 5, 1, REF_BF16},
        {"of i8", 0, 5, 1, REF_I8},
        {"beyond the end", 0, 32, 8, 700},
        {"longer than the whole", 0, 40, 8, 299},
        {"parts of two tensors", 1, 40, 8, 601},
        {"flags", 0, 6, 1, 2},
    };
    struct pair p = narrow_pair(i, 600, 200, 3);
    uint8_t *row = memory(8192);
    size_t len = 0, starts[2];
    for (int k = 0; k < 2; k++) {
        size_t bytes;
        uint8_t *part = p.fours ? ref_small_encode_pairs(&bytes, p.base + 300 * k, p.src + 300 * k, 300,
                                                         300 * (unsigned)k, 600, REF_HYBRID, k)
                                : ref_small_encode_part(&bytes, p.base + 300 * k, p.src + 300 * k, 300,
                                                        300 * (unsigned)k, 600, p.dtype, REF_HYBRID, k);
        if (!part)
            fail("does not encode", held(&p));
        starts[k] = len;
        memcpy(row + len, part, bytes);
        len += bytes;
        free(part);
    }
    put_pair("parts", &p, 1);
    column = (size_t)fprintf(out, "accept");
    put_bytes(row, len);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        uint8_t *damaged = memory(len);
        memcpy(damaged, row, len);
        ref_put(damaged + starts[wrong[k].part] + wrong[k].at, wrong[k].bytes, wrong[k].value);
        if (!(p.fours && k == 1)) /* that one is right */
            put_refused(wrong[k].name, &p, damaged, len, REF_E_CORRUPT);
        free(damaged);
    }
    put_refused("a part of version 1 of 32 bytes", &p, row, 40, REF_E_CORRUPT);
    free(row);
    free_pair(&p);
}

static void put_narrow(void)
{
    static const uint64_t sizes[] = {0, 1, 31, 33, 129, 700};
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned k = 0; k < 6; k++) {
            struct pair p = narrow_pair(i, sizes[k], 300, 3);
            put_pair("step", &p, 1);
            put_delta("step", &p, REF_DENSE, 0);
            put_delta("step", &p, REF_HYBRID, 1);
            free_pair(&p);
        }
        for (unsigned k = 0; k < 3; k++) {
            static const unsigned share[] = {10, 1000, 0};
            struct pair p = narrow_pair(i, 1000, share[k], 7);
            put_pair("share", &p, 1);
            put_delta("share", &p, REF_DENSE, 0);
            put_delta("share", &p, REF_HYBRID, 0);
            free_pair(&p);
        }
        struct pair all = every_value(i);
        put_pair("every", &all, 1);
        put_delta("every", &all, REF_DENSE, 0);
        free_pair(&all);
        struct pair p = narrow_pair(i, 900, 150, 3);
        p.src[0] = p.base[0] ^ 1; /* the twist makes more of these */
        put_pair("invalid", &p, 1);
        put_blocks(&p);
        put_twists(&p);
        free_pair(&p);
        put_narrow_rows(i);
    }
}

/* The deltas of three shards of columns, in a row. The tensor has `rows` rows of 20 elements. */
static uint8_t *row_of_columns(size_t *len, const struct pair *p, uint64_t rows, size_t starts[4])
{
    static const uint64_t ends[4] = {0, 7, 8, 20};
    uint8_t *row = memory(1 << 16), *base = memory(p->n * p->width), *src = memory(p->n * p->width);
    *len = 0;
    for (int i = 0; i < 3; i++) {
        const struct ref_columns c = {rows, 20, ends[i], ends[i + 1] - ends[i]};
        for (uint64_t k = 0; k < rows * c.count; k++) {
            const size_t from = (size_t)(k / c.count * 20 + c.first + k % c.count) * p->width;
            memcpy(base + k * p->width, p->base + from, p->width);
            memcpy(src + k * p->width, p->src + from, p->width);
        }
        size_t bytes;
        uint8_t *part = ref_small_encode_columns(&bytes, base, src, &c, p->dtype, REF_HYBRID, i == 1, p->fours);
        if (!part)
            fail("does not encode", "columns");
        starts[i] = *len;
        memcpy(row + *len, part, bytes);
        *len += bytes;
        free(part);
    }
    starts[3] = *len;
    free(base);
    free(src);
    return row;
}

static void put_wrong_columns(const struct pair *p, const uint8_t *row, size_t len, const size_t starts[4])
{
    static const struct part_damage wrong[] = {
        {"columns of version 2", 0, 4, 1, 2, REF_E_CORRUPT},
        {"columns of version 5", 0, 4, 1, 5, REF_E_VERSION},
        {"what elements hold, unknown", 0, 7, 1, 2, REF_E_CORRUPT},
        {"rows of no elements", 0, 48, 8, 0, REF_E_CORRUPT},
        {"rows of seven elements", 0, 48, 8, 7, REF_E_CORRUPT},
        {"a row and a half", 0, 48, 8, 400, REF_E_CORRUPT},
        {"one row", 0, 48, 8, 600, REF_E_CORRUPT},
        {"rows of all elements", 0, 48, 8, UINT64_MAX, REF_E_CORRUPT},
        {"rows that are cut", 0, 40, 8, 210, REF_E_CORRUPT},
        {"all columns", 0, 8, 8, 600, REF_E_CORRUPT},
        {"a part of a row", 0, 8, 8, 211, REF_E_CORRUPT},
        {"rows of other lengths", 2, 48, 8, 40, REF_E_CORRUPT},
        {"columns beyond the row", 2, 32, 8, 9, REF_E_CORRUPT},
        {"columns far beyond the row", 2, 32, 8, UINT64_MAX, REF_E_CORRUPT},
        {"columns in common", 1, 32, 8, 6, REF_E_CORRUPT},
        {"columns out of order", 2, 32, 8, 0, REF_E_CORRUPT},
        {"columns of two tensors", 2, 40, 8, 620, REF_E_CORRUPT},
        {"a length of 48", 0, 16, 8, 48, REF_E_CORRUPT},
        {"a checksum of columns", 1, 24, 1, 0, REF_E_CHECKSUM},
        {"flags", 0, 6, 1, 2, REF_E_CORRUPT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        put_damaged(&wrong[i], p, row, len, starts);
    put_refused("cut within the last columns", p, row, len - 1, REF_E_CORRUPT);
}

static void put_columns(void)
{
    size_t len, starts[4];
    struct pair all[3] = {make_pair(REF_BF16, 600), narrow_pair(0, 600, 200, 3), narrow_pair(2, 600, 200, 3)};
    weights(&all[0], 122, 100);
    change(&all[0], 200, 3, 0x3586);
    for (int i = 0; i < 3; i++) {
        put_pair("columns", &all[i], 1);
        uint8_t *row = row_of_columns(&len, &all[i], 30, starts);
        column = (size_t)fprintf(out, "accept");
        put_bytes(row, len);
        if (i == 0)
            put_wrong_columns(&all[i], row, len, starts);
        free(row);
        free_pair(&all[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: gensmall DIRECTORY\n");
        return 2;
    }
    open_file(argv[1], "small.txt", "gensmall.c");
    put_sizes();
    put_patterns();
    put_specials();
    put_chunks();
    put_invalid();
    put_parts();
    put_narrow();
    put_columns();
    close_file("small.txt");
    return 0;
}
