/* SPDX-License-Identifier: BSD-3-Clause
 *
 * .pici files: what is written is read, whichever way. */
#define _XOPEN_SOURCE 700
#include "tests/util/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_DIMS ((const uint64_t[]){DIMS_END})

static struct pici_writer_opts chunked(uint32_t elements)
{
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.chunk_elements = elements;
    return opts;
}

static int have_zstd(void)
{
    struct sink k = {0};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_writer *w;
    opts.zstd_level = 1;
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
    if (s)
        cr_assert(s == PICI_E_UNSUPPORTED &&
                  strstr(pici_writer_error(w), "needs zstd, which this build does not have"));
    pici_writer_close(w);
    sink_free(&k);
    return !s;
}

/* Every dtype, in every format, over a chunk's edges and inside one. */
Test(file_roundtrip, dtypes_and_formats)
{
    static const enum pici_format formats[] = {PICI_AUTO, PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    static const enum pattern patterns[] = {PATTERN_ZERO, PATTERN_1, PATTERN_50, PATTERN_FULL};
    struct rng rng = {1};
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        for (int d = PICI_F32; d <= PICI_U64; d++) {
            struct item items[4];
            struct sink k = {0};
            struct pici_writer_opts opts = chunked(f % 2 ? 4096 : 5001);
            char names[4][8];
            opts.format = formats[f];
            for (int i = 0; i < 4; i++) {
                snprintf(names[i], sizeof names[i], "t%d", i);
                item_init(&items[i], names[i], (enum pici_dtype)d, patterns[i], &rng, DIMS(3, 5000 + (uint64_t)i));
            }
            write_items(&k, items, 4, NULL, 0, &opts, 0);
            expect_items(&k, items, 4);
            struct pici_chunk_info c = PICI_CHUNK_INFO_INIT;
            struct pici_reader *r;
            open_memory(&r, &k);
            for (uint64_t i = 0; i < 4; i++) {
                READ_OK(r, pici_reader_chunk(r, i, 1, &c));
                cr_assert(opts.format == PICI_AUTO || c.block.format == opts.format);
                cr_assert_eq(c.first, opts.chunk_elements);
                cr_assert_eq(c.block.count, opts.chunk_elements);
                cr_assert_eq(c.offset % 16, 0);
                cr_assert_eq(c.stored_bytes, c.block.block_bytes);
            }
            pici_reader_close(r);
            for (int i = 0; i < 4; i++)
                item_free(&items[i]);
            sink_free(&k);
        }
}

Test(file_roundtrip, shapes)
{
    static const uint64_t dims[][PICI_RANK_MAX + 1] = {
        {DIMS_END},
        {0, DIMS_END},
        {1, DIMS_END},
        {0, UINT64_MAX - 1, UINT64_MAX - 1, DIMS_END}, /* no elements, whatever the others are */
        {UINT64_MAX - 1, UINT64_MAX - 1, 0, DIMS_END},
        {7, 1, 1, 11, DIMS_END},
        {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, DIMS_END},
        {4096, DIMS_END},
        {4097, DIMS_END},
    };
    enum { N = sizeof dims / sizeof dims[0] };
    struct rng rng = {2};
    struct item items[N];
    struct sink k = {0};
    char names[N][8];
    struct pici_writer_opts opts = chunked(4096);
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%zu", i);
        item_init(&items[i], names[i], PICI_BF16, PATTERN_30, &rng, dims[i]);
    }
    write_items(&k, items, N, NULL, 0, &opts, 0);
    expect_items(&k, items, N);
    for (size_t i = 0; i < N; i++)
        item_free(&items[i]);
    sink_free(&k);
}

Test(file_roundtrip, no_tensors)
{
    struct sink k = {0};
    write_items(&k, NULL, 0, NULL, 0, NULL, 0);
    cr_assert_eq(k.len, 144);
    expect_items(&k, NULL, 0);
    sink_free(&k);
}

Test(file_roundtrip, names)
{
    struct rng rng = {3};
    char *most = test_alloc(PICI_NAME_MAX);
    memset(most, 'n', PICI_NAME_MAX);
    const struct {
        const char *name;
        size_t len;
    } names[] = {{"", 0},
                 {"\0", 1},
                 {"\0\0", 2},
                 {"a", 1},
                 {"a\0", 2},
                 {"ab", 2},
                 {"\xff\xfe", 2},
                 {"\xce\xb2\xce", 3},
                 {"seven b", 7},
                 {"eight by", 8},
                 {"../../etc/x", 11},
                 {"layer.0.weight\n\x1b[31m", 20},
                 {most, 65536},
                 {most, PICI_NAME_MAX - 1},
                 {most, PICI_NAME_MAX}};
    enum { N = sizeof names / sizeof names[0] };
    struct item items[N];
    struct sink k = {0};
    for (size_t i = 0; i < N; i++) {
        item_init(&items[i], "", PICI_I16, PATTERN_50, &rng, DIMS(i));
        items[i].t.name = names[i].name;
        items[i].t.name_len = names[i].len;
    }
    write_items(&k, items, N, NULL, 0, NULL, 0);
    expect_items(&k, items, N);
    for (size_t i = 0; i < N; i++)
        item_free(&items[i]);
    free(most);
    sink_free(&k);
}

/* More tensors than any table begins with; in an order that is not theirs. */
Test(file_roundtrip, many_tensors)
{
    enum { N = 5000 };
    struct rng rng = {4};
    struct item *items = test_alloc(N * sizeof *items);
    char(*names)[16] = test_alloc(N * sizeof *names);
    struct sink k = {0};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    for (unsigned i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%x", i * 2654435761u);
        item_init(&items[i], names[i], PICI_U8, PATTERN_30, &rng, DIMS(i % 5));
    }
    write_items(&k, items, N, NULL, 0, NULL, 0);
    expect_items(&k, items, N);
    open_memory(&r, &k);
    cr_assert_eq(pici_reader_find(r, "x", 1, &t), PICI_E_ARG);
    cr_assert_str_eq(pici_reader_error(r), "no tensor is named 'x'");
    pici_reader_close(r);
    for (unsigned i = 0; i < N; i++)
        item_free(&items[i]);
    free(items);
    free(names);
    sink_free(&k);
}

/* The same bytes whatever the pieces and the threads; and they are read back whatever these are. */
Test(file_roundtrip, pieces_and_threads)
{
    static const size_t pieces[] = {0, 1, 3, 4095, 8192, 40961, 100003};
    static const int threads[] = {1, 2, 3, 7, 0};
    struct rng rng = {5};
    struct item items[3];
    struct sink first = {0}, k = {0};
    item_init(&items[0], "across", PICI_F32, PATTERN_TILES, &rng, DIMS(11, 5555));
    item_init(&items[1], "short", PICI_F64, PATTERN_50, &rng, DIMS(77));
    item_init(&items[2], "even", PICI_U16, PATTERN_8, &rng, DIMS(8, 5000));
    for (int zstd = 0; zstd <= have_zstd(); zstd++) {
        struct pici_writer_opts opts = chunked(5000);
        opts.zstd_level = zstd;
        write_items(&first, items, 3, NULL, 0, &opts, 0);
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
            for (size_t j = 0; j < sizeof threads / sizeof threads[0]; j++) {
                if (pieces[i] == 1 && j)
                    continue;
                opts.threads = threads[j];
                write_items(&k, items, 3, NULL, 0, &opts, pieces[i]);
                cr_assert_eq(k.len, first.len);
                cr_assert(memcmp(k.p, first.p, k.len) == 0, "pieces of %zu, %d threads", pieces[i], threads[j]);
            }
        for (size_t j = 0; j < sizeof threads / sizeof threads[0]; j++) {
            expect_random(&first, items, 3, threads[j]);
            expect_verified(&first, threads[j]);
            expect_forward(&first, items, 3, 0, 1, threads[j]);
            expect_forward(&first, items, 3, 4999, 4093, threads[j]);
            expect_forward(&first, items, 3, 5000, 0, threads[j]);
            expect_forward(&first, items, 3, 12345, 70000, threads[j]);
        }
        expect_forward(&first, items, 3, 61, 48, 1);
    }
    for (int i = 0; i < 3; i++)
        item_free(&items[i]);
    sink_free(&first);
    sink_free(&k);
}

Test(file_roundtrip, zstd)
{
    if (!have_zstd()) {
        printf("skip: zstd frames: this build has no zstd\n");
        return;
    }
    struct rng rng = {6};
    struct item items[3];
    struct sink plain = {0}, k = {0}, again = {0};
    struct pici_writer_opts opts = chunked(4096);
    item_init(&items[0], "squeezes", PICI_U32, PATTERN_EQUAL, &rng, DIMS(20000));
    item_init(&items[1], "does not", PICI_U64, PATTERN_FULL, &rng, DIMS(10000));
    item_init(&items[2], "one", PICI_I8, PATTERN_FULL, &rng, NO_DIMS);
    for (size_t i = 0; i < items[1].count; i++) {
        uint64_t v = rng_next(&rng);
        memcpy(items[1].data + 8 * i, &v, 8);
    }
    write_items(&plain, items, 3, NULL, 0, &opts, 0);
    for (int level = -3; level <= 19; level += 11) {
        struct pici_chunk_info c = PICI_CHUNK_INFO_INIT;
        struct pici_reader *r;
        opts.zstd_level = level;
        write_items(&k, items, 3, NULL, 0, &opts, 0);
        write_items(&again, items, 3, NULL, 0, &opts, 777);
        cr_assert(k.len == again.len && memcmp(k.p, again.p, k.len) == 0);
        cr_assert_lt(k.len, plain.len - 70000);
        expect_items(&k, items, 3);
        open_memory(&r, &k);
        READ_OK(r, pici_reader_chunk(r, 0, 4, &c));
        cr_assert(c.zstd && c.block.count == 20000 - 4 * 4096 && c.stored_bytes < c.block.block_bytes);
        READ_OK(r, pici_reader_chunk(r, 1, 0, &c));
        cr_assert(!c.zstd && c.stored_bytes == c.block.block_bytes);
        pici_reader_close(r);
    }
    struct pici_writer *w;
    opts.zstd_level = 1000;
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &opts), PICI_E_ARG);
    pici_writer_close(w);
    for (int i = 0; i < 3; i++)
        item_free(&items[i]);
    sink_free(&plain);
    sink_free(&again);
    sink_free(&k);
}

Test(file_roundtrip, attributes)
{
    char key[PICI_KEY_MAX + 1];
    uint8_t binary[256];
    memset(key, 'k', PICI_KEY_MAX);
    key[PICI_KEY_MAX] = '\0';
    for (int i = 0; i < 256; i++)
        binary[i] = (uint8_t)i;
    struct pici_attr attrs[] = {{"source", "npy", 3},    {"a", NULL, 0}, {"ab", "", 0},    {"\xff", "high", 4},
                                {"header", binary, 256}, {key, "1", 1},  {"A", binary, 7}, {"sourc", binary, 8}};
    enum { N = sizeof attrs / sizeof attrs[0] };
    struct rng rng = {7};
    struct item items[3];
    struct sink k = {0}, turned = {0};
    item_init(&items[0], "none", PICI_F32, PATTERN_1, &rng, DIMS(10));
    item_init(&items[1], "some", PICI_F32, PATTERN_1, &rng, DIMS(10));
    item_init(&items[2], "all", PICI_F32, PATTERN_1, &rng, DIMS(10));
    items[1].t.attrs = attrs + 1;
    items[1].t.n_attrs = 2;
    items[2].t.attrs = attrs;
    items[2].t.n_attrs = N;
    write_items(&k, items, 3, attrs, N, NULL, 0);
    expect_items(&k, items, 3);

    struct pici_reader *r;
    struct pici_attr a, before = {"", NULL, 0};
    uint32_t n;
    open_memory(&r, &k);
    READ_OK(r, pici_reader_attr_count(r, PICI_FILE, &n));
    cr_assert_eq(n, N);
    for (uint32_t i = 0; i < N; i++) {
        READ_OK(r, pici_reader_attr_at(r, PICI_FILE, i, &a));
        cr_assert_lt(strcmp(before.key, a.key), 0);
        before = a;
        READ_OK(r, pici_reader_attr(r, 2, a.key, &a)); /* of another owner: the file's stay */
        cr_assert_str_eq(a.key, before.key);
        cr_assert_eq(a.len, before.len);
        cr_assert(a.len == 0 || memcmp(a.value, before.value, a.len) == 0);
    }
    cr_assert_eq(pici_reader_attr_at(r, PICI_FILE, N, &a), PICI_E_ARG);
    cr_assert_eq(pici_reader_attr_at(r, 0, 0, &a), PICI_E_ARG);
    cr_assert_eq(pici_reader_attr_at(r, 3, 0, &a), PICI_E_ARG);
    pici_reader_close(r);

    for (size_t i = 0; i < N / 2; i++) { /* the order in which they are given does not matter */
        struct pici_attr t = attrs[i];
        attrs[i] = attrs[N - 1 - i];
        attrs[N - 1 - i] = t;
    }
    items[1].t.attrs = attrs + N - 3;
    write_items(&turned, items, 3, attrs, N, NULL, 0);
    cr_assert(turned.len == k.len && memcmp(turned.p, k.p, k.len) == 0);
    for (int i = 0; i < 3; i++)
        item_free(&items[i]);
    sink_free(&k);
    sink_free(&turned);
}

/* The longest header of a .safetensors file is 100 MB. */
Test(file_roundtrip, large_attribute)
{
    size_t len = 100000000;
    struct rng rng = {8};
    uint8_t *blob = test_alloc(len);
    for (size_t i = 0; i < len; i += 997)
        blob[i] = (uint8_t)rng_next(&rng);
    struct pici_attr attr = {"header", blob, len}, a;
    struct sink k = {0};
    struct pici_reader *r;
    write_items(&k, NULL, 0, &attr, 1, NULL, 0);
    open_memory(&r, &k);
    READ_OK(r, pici_reader_attr(r, PICI_FILE, "header", &a));
    cr_assert(a.len == len && memcmp(a.value, blob, len) == 0);
    pici_reader_close(r);
    struct source from = {.p = k.p, .len = k.len};
    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, NULL);
    READ_OK(r, s);
    READ_OK(r, pici_reader_attr(r, PICI_FILE, "header", &a));
    cr_assert(a.len == len && memcmp(a.value, blob, len) == 0);
    pici_reader_close(r);
    free(blob);
    sink_free(&k);
}

/* A range costs the chunks that it touches, and no other byte. */
Test(file_roundtrip, ranges)
{
    struct rng rng = {9};
    struct item it;
    struct sink k = {0};
    struct pici_writer_opts opts = chunked(1000);
    uint64_t offset[41];
    item_init(&it, "w", PICI_F32, PATTERN_30, &rng, DIMS(40, 991));
    uint8_t *data = test_alloc(it.bytes);
    for (int zstd = 0; zstd <= have_zstd(); zstd++)
        for (int threads = 1; threads < 4; threads++) {
            opts.zstd_level = zstd;
            write_items(&k, &it, 1, NULL, 0, &opts, 0);
            struct source from = {.p = k.p, .len = k.len};
            struct pici_reader_opts how = PICI_READER_OPTS_INIT;
            struct pici_reader *r;
            struct pici_chunk_info c = PICI_CHUNK_INFO_INIT;
            how.threads = threads;
            enum pici_status s = pici_reader_open_at(&r, source_read_at, &from, k.len, &how);
            READ_OK(r, s);
            for (uint64_t i = 0; i < 40; i++) {
                READ_OK(r, pici_reader_chunk(r, 0, i, &c));
                offset[i] = c.offset;
            }
            offset[40] = c.offset + 32 + c.stored_bytes + 15; /* at the most */
            READ_OK(r, pici_reader_chunk(r, 0, 20, &c));      /* the last one read in part is kept: have another */
            for (int round = 0; round < 400; round++) {
                uint64_t n = rng_below(&rng, round % 4 ? 3000 : it.count + 1);
                uint64_t first = rng_below(&rng, it.count - n + 1);
                from.low = from.high = 0;
                READ_OK(r, pici_reader_read_range(r, 0, first, n, data));
                cr_assert(memcmp(data, it.data + 4 * first, (size_t)n * 4) == 0, "[%lu, +%lu)", (unsigned long)first,
                          (unsigned long)n);
                if (from.low == from.high)
                    continue;
                cr_assert_gt(n, 0);
                cr_assert_geq(from.low, offset[first / 1000]);
                cr_assert_leq(from.high, offset[(first + n - 1) / 1000 + 1]);
            }
            unsigned calls = 0;
            for (uint64_t i = 0; i < 500; i++) { /* small ones near each other: the chunk is read once */
                READ_OK(r, pici_reader_read_range(r, 0, 7000 + 2 * i, 1, data));
                cr_assert(memcmp(data, it.data + 4 * (7000 + 2 * i), 4) == 0);
                if (i == 0)
                    calls = from.calls;
            }
            cr_assert_eq(from.calls, calls);
            cr_assert_eq(pici_reader_read_range(r, 0, it.count, 1, data), PICI_E_ARG);
            cr_assert_eq(pici_reader_read_range(r, 0, 1, UINT64_MAX, data), PICI_E_ARG);
            cr_assert_eq(pici_reader_read_range(r, 0, UINT64_MAX, 1, data), PICI_E_ARG);
            cr_assert_eq(pici_reader_read_range(r, 1, 0, 1, data), PICI_E_ARG);
            READ_OK(r, pici_reader_read_range(r, 0, it.count, 0, NULL));
            pici_reader_close(r);
        }
    free(data);
    item_free(&it);
    sink_free(&k);
}

/* next and read, of both kinds of reader, when some of the data is not wanted; attributes while on the way. */
Test(file_roundtrip, passing_over)
{
    struct rng rng = {10};
    struct item items[5];
    struct sink k = {0};
    struct pici_attr attr = {"number", NULL, 1}, a;
    struct pici_writer_opts opts = chunked(100);
    char names[5][8];
    float data[1000];
    for (int i = 0; i < 5; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        item_init(&items[i], names[i], PICI_F32, PATTERN_30, &rng, DIMS(1000));
        attr.value = names[i];
    }
    items[3].t.attrs = &attr;
    items[3].t.n_attrs = 1;
    write_items(&k, items, 5, NULL, 0, &opts, 0);
    for (int forward = 0; forward < 2; forward++) {
        struct source from = {.p = k.p, .len = k.len};
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        struct pici_reader *r;
        int more;
        enum pici_status s = forward ? pici_reader_open_stream(&r, source_read, &from, NULL)
                                     : pici_reader_open_at(&r, source_read_at, &from, k.len, NULL);
        READ_OK(r, s);
        cr_assert_eq(pici_reader_read(r, data, 1), PICI_E_ARG); /* no tensor yet */
        READ_OK(r, pici_reader_next(r, &t, &more));             /* 0: nothing of it */
        READ_OK(r, pici_reader_next(r, &t, &more));             /* 1: part of a chunk */
        READ_OK(r, pici_reader_read(r, data, 30));
        cr_assert(memcmp(data, items[1].data, 30 * 4) == 0);
        READ_OK(r, pici_reader_next(r, &t, &more)); /* 2: chunks, and then part of one */
        READ_OK(r, pici_reader_read(r, data, 350));
        READ_OK(r, pici_reader_read(r, data + 350, 1));
        cr_assert(memcmp(data, items[2].data, 351 * 4) == 0);
        cr_assert_eq(pici_reader_read(r, data, 650), PICI_E_ARG);
        READ_OK(r, pici_reader_read(r, data, 649));
        cr_assert(memcmp(data, items[2].data + 351 * 4, 649 * 4) == 0);
        READ_OK(r, pici_reader_next(r, &t, &more)); /* 3: exactly some chunks */
        cr_assert(more && t.name_len == 1 && t.name[0] == '3');
        READ_OK(r, pici_reader_attr(r, 3, "number", &a));
        cr_assert(a.len == 1 && *(const char *)a.value == '4');
        READ_OK(r, pici_reader_read(r, data, 300));
        cr_assert(memcmp(data, items[3].data, 300 * 4) == 0);
        cr_assert(t.name[0] == '3');
        cr_assert_eq(pici_reader_attr(r, 2, "number", &a), forward ? PICI_E_ARG : PICI_OK);
        READ_OK(r, pici_reader_next(r, &t, &more));
        cr_assert(more && t.index == 4);
        READ_OK(r, pici_reader_next(r, &t, &more));
        cr_assert_eq(more, 0);
        READ_OK(r, pici_reader_next(r, &t, &more));
        cr_assert_eq(more, 0);
        cr_assert_eq(pici_reader_read(r, data, 1), PICI_E_ARG);
        cr_assert_eq(pici_reader_verify(r), forward ? PICI_E_ARG : PICI_OK);
        pici_reader_close(r);
    }
    for (int i = 0; i < 5; i++)
        item_free(&items[i]);
    sink_free(&k);
}

struct piped {
    int fd;
    const struct item *it;
    enum pici_status status;
};

static void *write_to_pipe(void *arg)
{
    struct piped *p = arg;
    struct pici_writer *w;
    enum pici_status s = pici_writer_open_fd(&w, p->fd, NULL, 0, NULL);
    if (!s)
        s = pici_writer_tensor(w, &p->it->t);
    if (!s)
        s = pici_writer_data(w, p->it->data, p->it->bytes);
    if (!s)
        s = pici_writer_finish(w);
    pici_writer_close(w);
    close(p->fd);
    p->status = s;
    return NULL;
}

Test(file_roundtrip, through_a_pipe)
{
    struct rng rng = {11};
    struct item it;
    int fds[2];
    pthread_t writer;
    item_init(&it, "w", PICI_F32, PATTERN_50, &rng, DIMS(3, 1000000));
    it.t.shape = it.shape;
    uint8_t *data = test_alloc(it.bytes);
    cr_assert_eq(pipe(fds), 0);
    struct piped p = {fds[1], &it, PICI_E_IO};
    cr_assert_eq(pthread_create(&writer, NULL, write_to_pipe, &p), 0);

    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    int more;
    enum pici_status s = pici_reader_open_fd(&r, fds[0], NULL);
    READ_OK(r, s);
    READ_OK(r, pici_reader_next(r, &t, &more));
    cr_assert(more && t.count == it.count);
    READ_OK(r, pici_reader_read(r, data, t.count));
    cr_assert(memcmp(data, it.data, it.bytes) == 0);
    READ_OK(r, pici_reader_next(r, &t, &more));
    cr_assert_eq(more, 0);
    pici_reader_close(r);
    pthread_join(writer, NULL);
    cr_assert_eq(p.status, PICI_OK);
    close(fds[0]);
    free(data);
    item_free(&it);
}

/* By path, which is for regular files only. */
Test(file_roundtrip, by_path)
{
    struct rng rng = {12};
    struct item it;
    struct sink k = {0};
    char path[] = "/tmp/pici-test-XXXXXX";
    struct pici_reader *r;
    item_init(&it, "w", PICI_F32, PATTERN_8, &rng, DIMS(10000));
    write_items(&k, &it, 1, NULL, 0, NULL, 0);
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, k.p, k.len) == (ssize_t)k.len);
    close(fd);
    uint8_t *data = test_alloc(it.bytes);
    enum pici_status s = pici_reader_open_path(&r, path, NULL);
    READ_OK(r, s);
    READ_OK(r, pici_reader_read_range(r, 0, 0, it.count, data));
    cr_assert(memcmp(data, it.data, it.bytes) == 0);
    READ_OK(r, pici_reader_verify(r));
    pici_reader_close(r);
    unlink(path);
    errno = 0;
    cr_assert_eq(pici_reader_open_path(&r, path, NULL), PICI_E_IO);
    cr_assert_eq(errno, ENOENT);
    cr_assert_str_eq(pici_reader_error(r), "cannot open: No such file or directory");
    pici_reader_close(r);
    cr_assert_eq(pici_reader_open_path(&r, "/dev/null", NULL), PICI_E_ARG);
    pici_reader_close(r);
    cr_assert_eq(pici_reader_open_path(&r, "/tmp", NULL), PICI_E_ARG);
    pici_reader_close(r);
    free(data);
    item_free(&it);
    sink_free(&k);
}
