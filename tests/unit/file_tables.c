/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small tensors, which share tables and chunks: that they come back, what they take, and bodies that are compressed. */
#include "tests/util/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "file/file.h"
#include "file/lz4.h"

enum { MANY = 700 };

/* Tensors of all dtypes, with and without elements and attributes, among them some that are not small. */
static struct item *many_items(char names[MANY][48])
{
    static const struct pici_attr attrs[] = {{"source.dtype", "BOOL", 4}, {"x", "", 0}};
    struct item *items = test_alloc(MANY * sizeof *items);
    struct rng rng = {11};
    memset(items, 0, MANY * sizeof *items);
    for (unsigned i = 0; i < MANY; i++) {
        const enum pici_dtype dtype = (enum pici_dtype)(PICI_F32 + rng_next(&rng) % PICI_U64);
        const uint64_t n = i % 97 == 50 ? 20000 : i % 13 == 5 ? 0 : rng_next(&rng) % 300;
        snprintf(names[i], 48, "model.layers.%u.part%u.weight", i / 8, i % 8);
        if (i % 3)
            item_init(&items[i], names[i], dtype, PATTERN_50, &rng, DIMS(n));
        else
            item_init(&items[i], names[i], dtype, PATTERN_99, &rng, DIMS(n, 1, 2));
        items[i].t.attrs = attrs;
        items[i].t.n_attrs = i % 3;
    }
    items[0].t.name_len = 0;
    return items;
}

static void items_free(struct item *items)
{
    for (unsigned i = 0; i < MANY; i++)
        item_free(&items[i]);
    free(items);
}

Test(file_tables, all_come_back)
{
    static char names[MANY][48];
    static const unsigned chunks[] = {1, 7, 100, 1 << 20};
    struct item *items = many_items(names);
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    for (unsigned i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct sink k = {0}, same = {0};
        const size_t n = chunks[i] < 7 ? 40 : MANY;
        opts.chunk_elements = chunks[i];
        opts.threads = 1;
        write_items(&k, items, n, NULL, 0, &opts, 0);
        expect_items(&k, items, n);
        expect_forward(&k, items, n, 17, 1000, 3);
        expect_random(&k, items, n, 3);
        expect_verified(&k, 3);
        opts.threads = 3;
        write_items(&same, items, n, NULL, 0, &opts, 5);
        cr_assert(same.len == k.len && memcmp(same.p, k.p, k.len) == 0, "other bytes from other threads and pieces");
        sink_free(&same);
        sink_free(&k);
    }
    items_free(items);
}

/* A forward reader may leave out any of them. */
Test(file_tables, some_are_passed)
{
    static char names[MANY][48];
    struct item *items = many_items(names);
    struct sink k = {0};
    write_items(&k, items, MANY, NULL, 0, NULL, 0);
    for (unsigned every = 1; every < 1000; every = every * 3 + 1) {
        struct source from = {.p = k.p, .len = k.len, .piece = 999};
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        struct pici_reader *r;
        int more = 1;
        enum pici_status s = pici_reader_open_stream(&r, source_read, &from, NULL);
        READ_OK(r, s);
        for (unsigned i = 0; more; i++) {
            READ_OK(r, pici_reader_next(r, &t, &more));
            if (!more || i % every != every / 2)
                continue;
            uint8_t *data = test_alloc(items[i].bytes + 1);
            const uint64_t n = t.count - t.count / 3; /* nor need all of one be read */
            READ_OK(r, pici_reader_read(r, data, n));
            cr_assert(memcmp(data, items[i].data, (size_t)n * pici_dtype_width(t.dtype)) == 0, "tensor %u", i);
            free(data);
        }
        cr_assert_eq(t.index, MANY - 1);
        pici_reader_close(r);
    }
    items_free(items);
    sink_free(&k);
}

/* Any range of one, in any order, and as a delta. */
Test(file_tables, ranges)
{
    static char names[MANY][48];
    struct item *items = many_items(names);
    struct sink k = {0};
    struct pici_reader *r;
    struct rng rng = {12};
    write_items(&k, items, MANY, NULL, 0, NULL, 0);
    open_memory(&r, &k);
    for (unsigned i = 0; i < 5000; i++) {
        const unsigned j = (unsigned)(rng_next(&rng) % MANY);
        const size_t width = pici_dtype_width(items[j].t.dtype);
        const uint64_t first = rng_next(&rng) % (items[j].count + 1), n = rng_next(&rng) % (items[j].count - first + 1);
        const uint8_t *want = items[j].data + (size_t)first * width;
        uint8_t *data = test_alloc((size_t)n * width + 1);
        READ_OK(r, pici_reader_read_range(r, j, first, n, data));
        cr_assert(memcmp(data, want, (size_t)n * width) == 0, "tensor %u", j);
        READ_OK(r, pici_reader_apply_range(r, j, first, n, data));
        for (size_t b = 0; b < (size_t)n * width; b++)
            cr_assert_eq(data[b], 0);
        free(data);
    }
    pici_reader_close(r);
    items_free(items);
    sink_free(&k);
}

/* Deltas of small tensors are exact, also in a file whose other tensors lose the signs of their zeros. */
Test(file_tables, deltas_are_exact)
{
    static const uint32_t base[2] = {0x3f800000, 0x40000000}, next[2] = {0xbf800000, 0x40000000};
    const uint64_t two = 2;
    uint32_t back[2];
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_tensor t = PICI_TENSOR_INIT;
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_reader *r;
    opts.zeros = PICI_ZEROS_BY_VALUE;
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
    WRITE_OK(w, s);
    t.rank = 1;
    t.shape = &two;
    WRITE_OK(w, pici_writer_tensor(w, &t));
    WRITE_OK(w, pici_writer_diff(w, base, next, 5)); /* which ends in an element */
    WRITE_OK(w, pici_writer_diff(w, (const uint8_t *)base + 5, (const uint8_t *)next + 5, 3));
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    open_memory(&r, &k);
    memcpy(back, base, sizeof back);
    READ_OK(r, pici_reader_apply_range(r, 0, 0, 2, back));
    cr_assert(memcmp(back, next, sizeof back) == 0);
    pici_reader_close(r);
    sink_free(&k);
}

/* Small tensors of floats after a large delta, and beside small ones: those that are no deltas lose the signs of their
 * zeros, and no others. */
Test(file_tables, signs_beside_deltas)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16, PICI_F8E4M3, PICI_I8};
    enum { LARGE = 20000, SMALL = 5, KINDS = 4 }; /* 0: plain; 1: a delta; 2: some bytes of one; 3: plain */
    static uint8_t zeros[LARGE * 8], next[LARGE * 8], back[LARGE * 8];
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.zeros = PICI_ZEROS_BY_VALUE;
    opts.pack = PICI_PACK_PLANES;
    for (unsigned i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const size_t width = pici_dtype_width(dtypes[i]), small = SMALL * width;
        struct sink k = {0};
        struct pici_writer *w;
        struct pici_reader *r;
        memset(next, 0, sizeof next);
        for (unsigned e = 0; e < LARGE; e++)
            next[e * width + (PICI_BIG_ENDIAN ? 0 : width - 1)] = e % 3 == 1 ? 0 : e % 3 ? 0xb0 : 0x80;
        enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
        WRITE_OK(w, s);
        for (unsigned n = 0; n <= 2 * KINDS; n++) { /* the first is large; some are without elements */
            const uint64_t shape[] = {n ? SMALL : LARGE}, none[] = {0};
            const char name[] = {(char)('a' + n), (char)('A' + n)};
            struct pici_tensor t = PICI_TENSOR_INIT;
            t.dtype = dtypes[i];
            t.rank = 1;
            t.name_len = 1;
            t.name = name;
            t.shape = shape;
            WRITE_OK(w, pici_writer_tensor(w, &t));
            const unsigned kind = n ? (n - 1) % KINDS : 1;
            const size_t bytes = n ? small : LARGE * width, plain = kind == 1 ? 0 : kind == 2 ? bytes - 1 : bytes;
            WRITE_OK(w, pici_writer_data(w, next, plain));
            WRITE_OK(w, pici_writer_diff(w, zeros, next + plain, bytes - plain));
            t.name = name + 1;
            t.shape = none;
            WRITE_OK(w, pici_writer_tensor(w, &t));
        }
        WRITE_OK(w, pici_writer_finish(w));
        pici_writer_close(w);
        open_memory(&r, &k);
        for (unsigned n = 0; n <= 2 * KINDS; n++) {
            const unsigned kind = n ? (n - 1) % KINDS : 1, count = n ? SMALL : LARGE;
            const int loses = dtypes[i] != PICI_I8 && kind % 3 == 0;
            READ_OK(r, pici_reader_read_range(r, 2 * n, 0, count, back));
            for (unsigned b = 0; b < count * width; b++)
                cr_assert_eq(back[b], loses && next[b] == 0x80 ? 0 : next[b], "dtype %u, tensor %u", i, n);
        }
        pici_reader_close(r);
        sink_free(&k);
    }
}

/* What a small tensor takes in a file besides its elements, and the parts of the file that are counted as its own. */
Test(file_tables, bytes_of_each)
{
    enum { N = 10000, LEAST = 24 };
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct rng rng = {13};
    float data[64];
    uint64_t shape[] = {8, 8};
    size_t len[3] = {0};
    for (unsigned version = 1; version <= 2; version++) {
        struct sink k = {0};
        struct pici_writer *w;
        struct pici_reader *r;
        opts.version = version;
        enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
        WRITE_OK(w, s);
        for (unsigned i = 0; i < N; i++) {
            char name[64];
            struct pici_tensor t = PICI_TENSOR_INIT;
            t.name = name;
            t.name_len = (size_t)snprintf(name, sizeof name, "model.layers.%u.part%u.weight", i / 8, i % 8);
            t.rank = 2;
            t.shape = shape;
            for (int e = 0; e < 64; e++)
                data[e] = (float)(rng_next(&rng) >> 40) + 1;
            WRITE_OK(w, pici_writer_tensor(w, &t));
            WRITE_OK(w, pici_writer_data(w, data, sizeof data));
        }
        WRITE_OK(w, pici_writer_finish(w));
        pici_writer_close(w);
        len[version] = k.len;
        uint64_t sum = 0;
        open_memory(&r, &k);
        for (unsigned i = 0; i < N; i++) {
            struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
            READ_OK(r, pici_reader_tensor(r, i, &t));
            sum += t.stored_bytes;
        }
        pici_reader_close(r);
        const uint64_t index = load_le64(k.p + k.len - 32);
        cr_assert_eq(sum + 16 + 48, index, "all records but META, whose body is 8 bytes");
        sink_free(&k);
    }
    cr_assert_leq(len[2], N * (sizeof data + LEAST), "%zu bytes each", len[2] / N - sizeof data);
    cr_assert_geq(len[1], N * (sizeof data + 200));
}

Test(file_tables, wrong_version)
{
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct sink k = {0};
    struct pici_writer *w;
    opts.version = 3;
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &opts), PICI_E_ARG);
    cr_assert_not_null(strstr(pici_writer_error(w), "1 and 2, not 3"));
    pici_writer_close(w);
}

/* Readers of version 1 cannot read packed chunks. */
Test(file_tables, packed_in_an_old_version)
{
    const enum pici_pack packs[] = {PICI_PACK_NONE, PICI_PACK_PLANES, PICI_PACK_FAST};
    for (unsigned i = 0; i < 12; i++) {
        struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
        struct sink k = {0};
        struct pici_writer *w;
        opts.version = i / 6 + 1;
        opts.format = i / 3 % 2 ? PICI_PACKED : PICI_AUTO;
        opts.pack = packs[i % 3];
        const int refused = opts.version == 1 && (opts.pack || opts.format == PICI_PACKED);
        cr_expect_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &opts), refused ? PICI_E_ARG : PICI_OK);
        if (refused)
            cr_expect_not_null(strstr(pici_writer_error(w), "version 2"));
        pici_writer_close(w);
        sink_free(&k);
    }
}

/* ---- compressed bodies ---- */

Test(file_tables, there_and_back)
{
    enum { MOST = 3000 };
    static uint8_t content[MOST], block[MOST], back[MOST + 1];
    struct rng rng = {14};
    for (unsigned i = 0; i < 20000; i++) {
        const size_t n = 1 + (size_t)(rng_next(&rng) % (i < 19000 ? 100 : MOST));
        const unsigned stride = 1 + (unsigned)(rng_next(&rng) % 40), letters = 1 + (unsigned)(rng_next(&rng) % 4);
        for (size_t b = 0; b < n; b++)
            content[b] = rng_next(&rng) % 16 && b >= stride ? content[b - stride] : (uint8_t)(rng_next(&rng) % letters);
        const size_t cap = (size_t)(rng_next(&rng) % (n + 10)), len = pici_lz4_compress(block, cap, content, n);
        cr_assert_leq(len, cap);
        if (!len)
            continue;
        back[n] = 77;
        cr_assert(pici_lz4_decompress(back, n, block, len) && memcmp(back, content, n) == 0 && back[n] == 77);
        cr_assert_not(pici_lz4_decompress(back, n - 1, block, len));
        cr_assert_not(pici_lz4_decompress(back, n + 1, block, len));
        for (size_t cut = 0; cut < len; cut++) /* any other length */
            cr_assert_not(pici_lz4_decompress(back, n, block, cut));
    }
}

/* How many bytes a body may stand for. */
Test(file_tables, at_most_64_times)
{
    for (uint64_t n = 1; n < 100; n++) {
        cr_assert(pici_lz4_fits(n, 64 * n) && pici_lz4_fits(n, 64 * n - 1));
        cr_assert_not(pici_lz4_fits(n, 64 * n + 1));
        cr_assert_not(pici_lz4_fits(n, 64 * n + 63));
        cr_assert_not(pici_lz4_fits(n, n));
        cr_assert(pici_lz4_fits(n, n + 1));
    }
    cr_assert_not(pici_lz4_fits(1, UINT32_MAX));
}

/* Blocks that someone else made: each length at its limits, and what no block is. */
Test(file_tables, blocks_by_hand)
{
    static const struct {
        const char *block;
        size_t len;
        const char *content; /* null: none */
        size_t n;
    } cases[] = {
        {"\x30"
         "abc",
         4, "abc", 3},
        {"\x10"
         "a\x01\x00\x80"
         "bcdefghi",
         13, "aaaaabcdefghi", 13},
        {"\x10"
         "a\x01\x00\x70"
         "bcdefgh",
         12, NULL, 12}, /* a copy that begins 11 bytes before the end */
        {"\x32"
         "abc\x03\x00\x60"
         "ghijkl",
         13, "abcabcabcghijkl", 15},
        {"\x1f"
         "a\x01\x00\x00\x50"
         "bcdef",
         11, "aaaaaaaaaaaaaaaaaaaabcdef", 25},
        {"\x1f"
         "a\x01\x00\x00\x40"
         "bcde",
         10, NULL, 24}, /* a copy that ends 4 bytes before the end */
        {"\xf0\x00"
         "abcdefghijklmno",
         17, "abcdefghijklmno", 15},
        {"", 0, NULL, 0},
        {"\x30"
         "ab",
         3, NULL, 3},
        {"\x31"
         "abc",
         4, "abc", 3}, /* these 4 bits of the last sequence mean nothing */
        {"\x31"
         "abc\x01\x00",
         6, NULL, 8}, /* a copy at the end */
        {"\x10"
         "a\x00\x00\x80"
         "bcdefghi",
         13, NULL, 13}, /* a distance of 0 */
        {"\x10"
         "a\x02\x00\x80"
         "bcdefghi",
         13, NULL, 13}, /* before the first byte */
        {"\x10"
         "a\x01",
         3, NULL, 6}, /* half a distance */
        {"\x10"
         "a\x01\x00",
         4, NULL, 5}, /* no literals at the end */
        {"\x1f"
         "a\x01\x00",
         4, NULL, 20},                      /* a length that ends early */
        {"\xf0\xff\xff\xff", 4, NULL, 700}, /* the same of literals */
        {"\x1f"
         "a\x01\x00\xff\x00\x00",
         7, NULL, 100}, /* a copy beyond the content */
    };
    uint8_t back[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int good = pici_lz4_decompress(back, cases[i].n, (const uint8_t *)cases[i].block, cases[i].len);
        cr_assert_eq(good, cases[i].content != NULL, "case %zu", i);
        cr_assert(!good || memcmp(back, cases[i].content, cases[i].n) == 0, "case %zu", i);
    }
}

/* Two tables whose tensors are asked for in turns: each record is read once, and so is each chunk. */
Test(file_tables, in_turns)
{
    enum { EACH = 400, TABLES = 3 };
    const uint64_t three = 3;
    const struct pici_attr attr = {"key", "value", 5};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_reader *r;
    uint16_t elements[3];
    opts.chunk_elements = 10;
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
    WRITE_OK(w, s);
    for (unsigned i = 0; i < TABLES * (EACH + 1); i++) { /* after each table a large tensor */
        static const uint16_t zeros[20];
        const uint64_t large = 20;
        char name[16];
        struct pici_tensor t = PICI_TENSOR_INIT;
        const int small = (i + 1) % (EACH + 1) != 0;
        t.name = name;
        t.name_len = (size_t)snprintf(name, sizeof name, "%u", i);
        t.dtype = PICI_U16;
        t.rank = 1;
        t.shape = small ? &three : &large;
        t.attrs = &attr;
        t.n_attrs = 1;
        WRITE_OK(w, pici_writer_tensor(w, &t));
        for (unsigned e = 0; e < 3; e++)
            elements[e] = (uint16_t)(i * 3 + e);
        WRITE_OK(w, pici_writer_data(w, small ? elements : zeros, small ? 6 : 40));
    }
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    struct source from = {.p = k.p, .len = k.len};
    s = pici_reader_open_at(&r, source_read_at, &from, k.len, NULL);
    READ_OK(r, s);
    const unsigned before = from.calls;
    for (unsigned i = 0; i < EACH; i++)
        for (unsigned table = 0; table < TABLES; table++) {
            const unsigned tensor = table * (EACH + 1) + i;
            struct pici_attr found;
            READ_OK(r, pici_reader_attr(r, tensor, "key", &found));
            cr_assert(found.len == 5 && memcmp(found.value, "value", 5) == 0);
            READ_OK(r, pici_reader_read_range(r, tensor, 0, 3, elements));
            cr_assert(elements[0] == (uint16_t)(tensor * 3) && elements[2] == (uint16_t)(tensor * 3 + 2));
        }
    cr_assert_leq(from.calls - before, TABLES * 4, "%u reads", from.calls - before); /* headers and bodies */
    pici_reader_close(r);
    sink_free(&k);
}

/* The bodies of more tables than are kept, asked for in any order. */
Test(file_tables, more_than_are_kept)
{
    static char names[MANY][48];
    struct item *items = many_items(names);
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct sink k = {0};
    struct pici_reader *r;
    struct rng rng = {15};
    opts.chunk_elements = 1000;
    write_items(&k, items, MANY, NULL, 0, &opts, 0);
    open_memory(&r, &k);
    for (unsigned i = 0; i < 5000; i++) {
        const unsigned j = (unsigned)(rng_next(&rng) % MANY);
        uint32_t count;
        struct pici_attr attr;
        READ_OK(r, pici_reader_attr_count(r, j, &count));
        cr_assert_eq(count, j % 3);
        READ_OK(r, pici_reader_attr(r, j, "source.dtype", &attr));
        cr_assert(j % 3 == 0 ? !attr.key : attr.len == 4 && memcmp(attr.value, "BOOL", 4) == 0);
    }
    pici_reader_close(r);
    items_free(items);
    sink_free(&k);
}
