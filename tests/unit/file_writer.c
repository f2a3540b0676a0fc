/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing .pici files: wrong calls, failing output, memory. */
#define _XOPEN_SOURCE 700
#include "tests/util/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Write two tensors with attributes. */
static enum pici_status write_all(struct pici_writer **w, struct sink *k, const struct item items[2],
                                  const struct pici_writer_opts *opts)
{
    struct pici_attr attr = {"key", "value", 5};
    enum pici_status s = pici_writer_open(w, sink_write, k, &attr, 1, opts);
    for (int i = 0; i < 2 && !s; i++) {
        struct pici_tensor t = items[i].t;
        t.shape = items[i].shape;
        s = pici_writer_tensor(*w, &t);
        if (!s)
            s = pici_writer_data(*w, items[i].data, items[i].bytes);
    }
    return s ? s : pici_writer_finish(*w);
}

/* Whenever the callback fails, the writer says so from then on, and calls it no more. */
Test(file_writer, output_fails)
{
    struct rng rng = {1};
    struct item items[2];
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    unsigned failures = 0;
    opts.chunk_elements = 50000;
    item_init(&items[0], "a", PICI_U32, PATTERN_FULL, &rng, DIMS(220000));
    item_init(&items[1], "b", PICI_F32, PATTERN_0_1, &rng, DIMS(100));
    for (opts.threads = 1; opts.threads < 3; opts.threads++)
        for (unsigned fail_at = 1;; fail_at++, failures++) {
            struct sink k = {.fail_at = fail_at};
            struct pici_writer *w;
            enum pici_status s = write_all(&w, &k, items, &opts);
            if (!s) {
                cr_assert_lt(k.calls, fail_at);
                cr_assert_gt(k.len, 220000 * 4);
                pici_writer_close(w);
                sink_free(&k);
                break;
            }
            cr_assert_eq(s, PICI_E_IO);
            cr_assert_str_eq(pici_writer_error(w), "write error: No space left on device");
            cr_assert_eq(k.calls, fail_at);
            cr_assert_eq(pici_writer_data(w, items, 1), PICI_E_IO);
            cr_assert_eq(pici_writer_tensor(w, &items[0].t), PICI_E_IO);
            cr_assert_eq(pici_writer_finish(w), PICI_E_IO);
            cr_assert_str_eq(pici_writer_error(w), "write error: No space left on device");
            cr_assert_eq(k.calls, fail_at);
            pici_writer_close(w);
            sink_free(&k);
        }
    cr_assert_gt(failures, 10);
    item_free(&items[0]);
    item_free(&items[1]);
}

static void expect_open_fails(enum pici_status status, const struct pici_attr *attrs, size_t n,
                              const struct pici_writer_opts *opts, const char *words)
{
    struct sink k = {0};
    struct pici_writer *w;
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, attrs, n, opts), status, "%s", words);
    cr_assert_not_null(strstr(pici_writer_error(w), words), "%s, but not %s", pici_writer_error(w), words);
    cr_assert_eq(pici_writer_finish(w), status);
    pici_writer_close(w);
    cr_assert_eq(k.len, 0);
    sink_free(&k);
}

Test(file_writer, wrong_openings)
{
    static const struct pici_writer_opts defaults = PICI_WRITER_OPTS_INIT;
    struct pici_writer_opts opts = defaults;
    char key[PICI_KEY_MAX + 2];
    memset(key, 'k', sizeof key);
    key[PICI_KEY_MAX + 1] = '\0';
    struct pici_writer *w;
    cr_assert_eq(pici_writer_open(NULL, sink_write, NULL, NULL, 0, NULL), PICI_E_ARG);
    cr_assert_eq(pici_writer_open(&w, NULL, NULL, NULL, 0, NULL), PICI_E_ARG);
    pici_writer_close(w);
    opts.size = 3;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "not initialized");
    opts = defaults;
    opts.threads = -1;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "threads");
    opts = defaults;
    opts.chunk_elements = 0;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "chunk elements");
    opts.chunk_elements = PICI_CHUNK_MAX + 1;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "chunk elements");
    opts = defaults;
    opts.format = (enum pici_format)77;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "format");
    opts = defaults;
    opts.zeros = (enum pici_zeros)2;
    expect_open_fails(PICI_E_ARG, NULL, 0, &opts, "zeros");
    struct pici_attr attrs[] = {{"b", "", 0}, {"a", "", 0}, {"b", "x", 1}};
    expect_open_fails(PICI_E_ARG, attrs, 3, NULL, "'b' comes twice");
    expect_open_fails(PICI_E_ARG, NULL, 1, NULL, "null");
    attrs[1].key = "";
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "1 to 255");
    attrs[1].key = NULL;
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "1 to 255");
    attrs[1].key = key;
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "1 to 255");
    attrs[1].key = "a";
    attrs[1].len = PICI_FILE_META_MAX;
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "the attributes take");
    attrs[1].len++;
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "too long");
    attrs[1] = (struct pici_attr){"a", NULL, 1};
    expect_open_fails(PICI_E_ARG, attrs, 2, NULL, "null");
}

static void expect_wrong(struct pici_writer *w, const struct pici_tensor *t, const char *words)
{
    cr_assert_eq(pici_writer_tensor(w, t), PICI_E_ARG, "%s", words);
    cr_assert_not_null(strstr(pici_writer_error(w), words), "%s, but not %s", pici_writer_error(w), words);
}

/* A wrong call is refused, and the file goes on as if it had not been made. */
Test(file_writer, wrong_calls)
{
    struct rng rng = {2};
    struct item items[2];
    struct sink k = {0}, right = {0};
    struct pici_writer *w;
    item_init(&items[0], "w", PICI_F32, PATTERN_50, &rng, DIMS(3));
    item_init(&items[1], "x", PICI_U8, PATTERN_50, &rng, DIMS(5, 5));
    write_items(&right, items, 2, NULL, 0, NULL, 0);
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, NULL);
    WRITE_OK(w, s);
    cr_assert_eq(pici_writer_data(w, "1", 1), PICI_E_ARG);
    WRITE_OK(w, pici_writer_data(w, NULL, 0));

    const struct pici_tensor good = items[0].t, none = PICI_TENSOR_INIT;
    struct pici_tensor t = good;
    uint64_t shape[33] = {1, 1, 1};
    t.shape = items[0].shape;
    const struct pici_tensor first = t;
    expect_wrong(w, NULL, "null");
    t.size = 0;
    expect_wrong(w, &t, "not initialized");
    t = first;
    t.name = NULL;
    expect_wrong(w, &t, "null");
    t = first;
    t.shape = NULL;
    expect_wrong(w, &t, "null");
    t = first;
    t.dtype = (enum pici_dtype)0;
    expect_wrong(w, &t, "tensor 'w': unknown dtype 0");
    t.dtype = (enum pici_dtype)15;
    expect_wrong(w, &t, "tensor 'w': unknown dtype 15");
    t = first;
    t.shape = shape;
    t.rank = 33;
    expect_wrong(w, &t, "33 dimensions");
    t.rank = 3;
    shape[0] = UINT64_C(1) << 61;
    expect_wrong(w, &t, "beyond 2^63");
    shape[0] = shape[1] = UINT64_C(1) << 32;
    expect_wrong(w, &t, "beyond 2^63");
    t = first;
    t.name_len = PICI_NAME_MAX + 1;
    expect_wrong(w, &t, "more than 1048576");
    struct pici_attr attrs[2] = {{"a", "x", 1}, {"a", "x", 1}};
    t = first;
    t.attrs = attrs;
    t.n_attrs = 2;
    expect_wrong(w, &t, "'a' comes twice");
    t.n_attrs = 1;
    attrs[0].len = PICI_TENSOR_META_MAX;
    expect_wrong(w, &t, "name and attributes take");

    WRITE_OK(w, pici_writer_tensor(w, &first));
    cr_assert_eq(pici_writer_data(w, NULL, 1), PICI_E_ARG);
    cr_assert_eq(pici_writer_data(w, items[0].data, 13), PICI_E_ARG);
    WRITE_OK(w, pici_writer_data(w, items[0].data, 7));
    cr_assert_eq(pici_writer_data(w, items[0].data, 6), PICI_E_ARG);
    cr_assert_eq(pici_writer_finish(w), PICI_E_ARG);
    cr_assert_str_eq(pici_writer_error(w), "tensor 'w': 5 of 12 bytes are missing");
    t = none;
    t.name = "early";
    t.name_len = 5;
    expect_wrong(w, &t, "5 of 12 bytes are missing");
    WRITE_OK(w, pici_writer_data(w, items[0].data + 7, 5));
    expect_wrong(w, &first, "two tensors are named 'w'");
    t = items[1].t;
    t.shape = items[1].shape;
    WRITE_OK(w, pici_writer_tensor(w, &t));
    WRITE_OK(w, pici_writer_data(w, items[1].data, 25));
    WRITE_OK(w, pici_writer_finish(w));
    cr_assert_eq(pici_writer_finish(w), PICI_E_ARG);
    cr_assert_eq(pici_writer_tensor(w, &t), PICI_E_ARG);
    cr_assert_eq(pici_writer_data(w, NULL, 0), PICI_E_ARG);
    pici_writer_close(w);
    cr_assert(k.len == right.len && memcmp(k.p, right.p, k.len) == 0);

    cr_assert_eq(pici_writer_finish(NULL), PICI_E_ARG);
    cr_assert_not_null(strstr(pici_writer_error(NULL), "out of memory"));
    pici_writer_close(NULL);
    item_free(&items[0]);
    item_free(&items[1]);
    sink_free(&k);
    sink_free(&right);
}

Test(file_writer, wrong_calls_of_readers)
{
    struct rng rng = {3};
    struct item it;
    struct sink k = {0};
    struct pici_reader *r;
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_chunk_info c = PICI_CHUNK_INFO_INIT;
    struct pici_attr a;
    uint64_t n;
    int more;
    item_init(&it, "w", PICI_F32, PATTERN_50, &rng, DIMS(3));
    write_items(&k, &it, 1, NULL, 0, NULL, 0);
    cr_assert_eq(pici_reader_open_memory(NULL, k.p, k.len, NULL), PICI_E_ARG);
    cr_assert_eq(pici_reader_open_memory(&r, NULL, 1, NULL), PICI_E_ARG);
    cr_assert_eq(pici_reader_open_stream(&r, NULL, NULL, NULL), PICI_E_ARG);
    cr_assert_eq(pici_reader_open_at(&r, NULL, NULL, 100, NULL), PICI_E_ARG);
    cr_assert_eq(pici_reader_open_at(&r, source_read_at, NULL, UINT64_MAX, NULL), PICI_E_ARG);
    cr_assert_eq(pici_reader_open_path(&r, NULL, NULL), PICI_E_ARG);
    cr_assert_null(r);
    opts.threads = -1;
    cr_assert_eq(pici_reader_open_memory(&r, k.p, k.len, &opts), PICI_E_ARG);
    cr_assert_eq(pici_reader_count(r, &n), PICI_E_ARG);
    pici_reader_close(r);

    struct source from = {.p = k.p, .len = k.len};
    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, NULL);
    READ_OK(r, s);
    cr_assert_eq(pici_reader_count(r, &n), PICI_E_ARG);
    cr_assert_eq(pici_reader_tensor(r, 0, &t), PICI_E_ARG);
    cr_assert_eq(pici_reader_find(r, "w", 1, &t), PICI_E_ARG);
    cr_assert_eq(pici_reader_chunk(r, 0, 0, &c), PICI_E_ARG);
    cr_assert_eq(pici_reader_read_range(r, 0, 0, 1, &n), PICI_E_ARG);
    cr_assert_eq(pici_reader_attr(r, 0, "a", &a), PICI_E_ARG);
    READ_OK(r, pici_reader_attr(r, PICI_FILE, "a", &a));
    cr_assert_eq(pici_reader_next(r, NULL, &more), PICI_E_ARG);
    cr_assert_eq(pici_reader_next(r, &t, NULL), PICI_E_ARG);
    READ_OK(r, pici_reader_next(r, &t, &more)); /* none of it has done harm */
    cr_assert_eq(pici_reader_read(r, NULL, 1), PICI_E_ARG);
    cr_assert_eq(pici_reader_verify(r), PICI_E_ARG);
    READ_OK(r, pici_reader_next(r, &t, &more));
    cr_assert_eq(more, 0);
    pici_reader_close(r);

    open_memory(&r, &k);
    t.size = 1;
    cr_assert_eq(pici_reader_tensor(r, 0, &t), PICI_E_ARG);
    t.size = sizeof t;
    cr_assert_eq(pici_reader_tensor(r, 1, &t), PICI_E_ARG);
    cr_assert_eq(pici_reader_find(r, NULL, 1, &t), PICI_E_ARG);
    cr_assert_eq(pici_reader_chunk(r, 0, 1, &c), PICI_E_ARG);
    cr_assert_eq(pici_reader_chunk(r, 1, 0, &c), PICI_E_ARG);
    cr_assert_eq(pici_reader_attr(r, PICI_FILE, NULL, &a), PICI_E_ARG);
    cr_assert_eq(pici_reader_count(r, NULL), PICI_E_ARG);
    pici_reader_close(r);
    cr_assert_eq(pici_reader_next(NULL, &t, &more), PICI_E_ARG);
    cr_assert_not_null(strstr(pici_reader_error(NULL), "out of memory"));
    pici_reader_close(NULL);
    item_free(&it);
    sink_free(&k);
}

/* ---- memory ---- */

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* A tensor of 256 MiB passes through 4 MiB at a time; nothing is ever held of it but chunks. */
Test(file_writer, memory_is_bounded)
{
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_tensor t = PICI_TENSOR_INIT;
    uint64_t shape[1] = {64 << 20};
    size_t piece = 1 << 20;
    float *data = test_alloc(piece * sizeof *data);
    memset(data, 0, piece * sizeof *data);
    data[12345] = 1;
    opts.chunk_elements = 1 << 18; /* 1 MiB */
    t.name = "zeros";
    t.name_len = 5;
    t.rank = 1;
    t.shape = shape;
    long before = peak_kib();
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
    WRITE_OK(w, s);
    WRITE_OK(w, pici_writer_tensor(w, &t));
    for (int i = 0; i < 64; i++) {
        WRITE_OK(w, pici_writer_data(w, data, 1000003)); /* staged */
        WRITE_OK(w, pici_writer_data(w, (uint8_t *)data + 1000003, piece * sizeof *data - 1000003));
    }
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);

    struct source from = {.p = k.p, .len = k.len};
    struct pici_reader *r;
    struct pici_tensor_info info = PICI_TENSOR_INFO_INIT;
    int more;
    s = pici_reader_open_stream(&r, source_read, &from, NULL);
    READ_OK(r, s);
    READ_OK(r, pici_reader_next(r, &info, &more));
    for (uint64_t at = 0, some; at < info.count; at += some) {
        some = info.count - at < 1000003 ? info.count - at : 1000003;
        READ_OK(r, pici_reader_read(r, data, some));
    }
    READ_OK(r, pici_reader_next(r, &info, &more));
    pici_reader_close(r);
    open_memory(&r, &k);
    READ_OK(r, pici_reader_verify(r));
    pici_reader_close(r);
    long used = peak_kib() - before;
    cr_assert_lt(used, 16 << 10, "%ld KiB, of which %zu the file", used, k.len >> 10);
    free(data);
    sink_free(&k);
}
