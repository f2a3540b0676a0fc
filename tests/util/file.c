/* SPDX-License-Identifier: BSD-3-Clause */
#define _XOPEN_SOURCE 700
#include "file.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[] = "/tmp/pici-file-XXXXXX"; /* each test is a process */

void home_enter(void)
{
    cr_assert_not_null(mkdtemp(home));
    cr_assert_eq(chdir(home), 0);
    umask(022);
}

void home_leave(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    cr_assert_eq(chdir("/"), 0);
    cr_assert_eq(system(command), 0);
}

int entries_of(const char *dir)
{
    DIR *d = opendir(dir);
    int n = -2; /* . and .. */
    cr_assert_not_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

void expect_file(const char *path, const char *text)
{
    char have[64] = "";
    FILE *const f = fopen(path, "r"); /* not open, which a test replaces */
    cr_assert(f, "%s", path);
    have[fread(have, 1, sizeof have - 1, f)] = 0;
    cr_assert_eq(fclose(f), 0);
    cr_assert_str_eq(have, text, "%s", path);
}

void make_file(const char *path, const char *text, mode_t mode)
{
    FILE *const f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    cr_assert_eq(chmod(path, mode), 0); /* not fchmod, which a test replaces */
}

int sink_write(void *sink, const void *p, size_t n)
{
    struct sink *k = sink;
    cr_assert_gt(n, 0);
    if (++k->calls == k->fail_at)
        return ENOSPC;
    if (n > k->cap - k->len) {
        k->cap = k->cap + k->cap / 2 + n;
        k->p = realloc(k->p, k->cap);
        cr_assert_not_null(k->p);
    }
    memcpy(k->p + k->len, p, n);
    k->len += n;
    return 0;
}

void sink_free(struct sink *k)
{
    free(k->p);
    *k = (struct sink){0};
}

int source_read(void *source, void *p, size_t cap, size_t *got)
{
    struct source *s = source;
    cr_assert_gt(cap, 0);
    if (++s->calls == s->fail_at)
        return EIO;
    *got = s->len - s->at < cap ? s->len - s->at : cap;
    if (s->piece && *got > s->piece)
        *got = s->piece;
    if (*got)
        memcpy(p, s->p + s->at, *got);
    s->at += *got;
    return 0;
}

int source_read_at(void *source, void *p, size_t n, uint64_t offset)
{
    struct source *s = source;
    cr_assert(n > 0 && n <= s->len && offset <= s->len - n);
    if (++s->calls == s->fail_at)
        return EIO;
    if (s->low == s->high)
        s->low = s->high = offset;
    s->low = offset < s->low ? offset : s->low;
    s->high = offset + n > s->high ? offset + n : s->high;
    memcpy(p, s->p + offset, n);
    return 0;
}

void item_init(struct item *it, const char *name, enum pici_dtype dtype, enum pattern pattern, struct rng *rng,
               const uint64_t *dims)
{
    static const struct pici_tensor none = PICI_TENSOR_INIT;
    it->t = none;
    it->t.name = name;
    it->t.name_len = strlen(name);
    it->t.dtype = dtype;
    it->count = 1;
    for (; dims[it->t.rank] != DIMS_END; it->t.rank++) {
        it->shape[it->t.rank] = dims[it->t.rank];
        it->count *= dims[it->t.rank];
    }
    it->t.shape = it->shape;
    it->bytes = (size_t)it->count * pici_dtype_width(dtype);
    it->data = test_alloc(it->bytes ? it->bytes : 1);
    pattern_fill(it->data, it->count, dtype, pattern, rng);
}

void item_free(struct item *it)
{
    free(it->data);
    it->data = NULL;
}

void r_ok(const struct pici_reader *r, enum pici_status s, const char *call, int line)
{
    cr_assert_eq(s, PICI_OK, "line %d: %s: %d, %s", line, call, s, pici_reader_error(r));
    cr_assert_str_empty(pici_reader_error(r));
}

void w_ok(const struct pici_writer *w, enum pici_status s, const char *call, int line)
{
    cr_assert_eq(s, PICI_OK, "line %d: %s: %d, %s", line, call, s, pici_writer_error(w));
    cr_assert_str_empty(pici_writer_error(w));
}

void write_items(struct sink *k, const struct item *items, size_t n, const struct pici_attr *attrs, size_t n_attrs,
                 const struct pici_writer_opts *opts, size_t piece)
{
    struct pici_writer *w;
    k->len = 0;
    enum pici_status s = pici_writer_open(&w, sink_write, k, attrs, n_attrs, opts);
    WRITE_OK(w, s);
    for (size_t i = 0; i < n; i++) {
        struct pici_tensor t = items[i].t;
        t.shape = items[i].shape;
        WRITE_OK(w, pici_writer_tensor(w, &t));
        for (size_t at = 0, some; at < items[i].bytes; at += some) {
            some = items[i].bytes - at;
            some = piece && piece < some ? piece : some;
            WRITE_OK(w, pici_writer_data(w, items[i].data + at, some));
        }
    }
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
}

static void expect_info(const struct pici_tensor_info *t, const struct item *it, size_t i)
{
    cr_assert_eq(t->index, i);
    cr_assert_eq(t->name_len, it->t.name_len);
    cr_assert_arr_eq(t->name, it->t.name, it->t.name_len);
    cr_assert_eq(t->name[t->name_len], '\0');
    cr_assert_eq(t->dtype, it->t.dtype);
    cr_assert_eq(t->rank, it->t.rank);
    for (unsigned k = 0; k < t->rank; k++)
        cr_assert_eq(t->shape[k], it->shape[k]);
    cr_assert_eq(t->count, it->count);
    cr_assert_eq(t->attrs, it->t.n_attrs);
    cr_assert_eq(t->chunks, (t->count + t->chunk_elements - 1) / t->chunk_elements);
}

static void expect_attrs(struct pici_reader *r, uint64_t i, const struct pici_attr *attrs, size_t n)
{
    uint32_t have;
    struct pici_attr a;
    READ_OK(r, pici_reader_attr_count(r, i, &have));
    cr_assert_eq(have, n);
    for (size_t k = 0; k < n; k++) {
        READ_OK(r, pici_reader_attr(r, i, attrs[k].key, &a));
        cr_assert_not_null(a.key);
        cr_assert_str_eq(a.key, attrs[k].key);
        cr_assert_eq(a.len, attrs[k].len);
        cr_assert(a.len == 0 || memcmp(a.value, attrs[k].value, a.len) == 0);
        cr_assert_eq(((const char *)a.value)[a.len], '\0');
    }
    READ_OK(r, pici_reader_attr(r, i, "no such key", &a));
    cr_assert_null(a.key);
}

void open_memory(struct pici_reader **r, const struct sink *k)
{
    enum pici_status s = pici_reader_open_memory(r, k->p, k->len, NULL);
    READ_OK(*r, s);
}

void expect_random(const struct sink *k, const struct item *items, size_t n, int threads)
{
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    uint64_t count;
    opts.threads = threads;
    enum pici_status s = pici_reader_open_memory(&r, k->p, k->len, &opts);
    READ_OK(r, s);
    READ_OK(r, pici_reader_count(r, &count));
    cr_assert_eq(count, n);
    for (size_t j = n; j-- > 0;) {
        const struct item *it = &items[j];
        uint8_t *data = test_alloc(it->bytes ? it->bytes : 1);
        READ_OK(r, pici_reader_tensor(r, j, &t));
        expect_info(&t, it, j);
        cr_assert_gt(t.stored_bytes, 0);
        READ_OK(r, pici_reader_find(r, it->t.name, it->t.name_len, &t));
        expect_info(&t, it, j);
        READ_OK(r, pici_reader_read_range(r, j, 0, it->count, data));
        cr_assert(memcmp(data, it->data, it->bytes) == 0, "tensor %zu differs", j);
        expect_attrs(r, j, it->t.attrs, it->t.n_attrs);
        free(data);
    }
    pici_reader_close(r);
}

void expect_forward(const struct sink *k, const struct item *items, size_t n, uint64_t at_a_time, size_t piece,
                    int threads)
{
    struct source from = {.p = k->p, .len = k->len, .piece = piece};
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    int more;
    opts.threads = threads;
    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, &opts);
    READ_OK(r, s);
    for (size_t j = 0; j < n; j++) {
        const struct item *it = &items[j];
        size_t width = pici_dtype_width(it->t.dtype);
        uint8_t *data = test_alloc(it->bytes ? it->bytes : 1);
        READ_OK(r, pici_reader_next(r, &t, &more));
        cr_assert(more);
        cr_assert_eq(t.stored_bytes, 0);
        for (uint64_t at = 0, some; at < it->count; at += some) {
            some = at_a_time && at_a_time < it->count - at ? at_a_time : it->count - at;
            READ_OK(r, pici_reader_read(r, data + (size_t)at * width, some));
        }
        expect_info(&t, it, j);
        cr_assert(memcmp(data, it->data, it->bytes) == 0, "tensor %zu differs", j);
        expect_attrs(r, j, it->t.attrs, it->t.n_attrs);
        free(data);
    }
    READ_OK(r, pici_reader_next(r, &t, &more));
    cr_assert_eq(more, 0);
    pici_reader_close(r);
}

void expect_verified(const struct sink *k, int threads)
{
    struct source from = {.p = k->p, .len = k->len};
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_reader *r;
    opts.threads = threads;
    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, &opts);
    READ_OK(r, s);
    READ_OK(r, pici_reader_verify(r));
    pici_reader_close(r);
    s = pici_reader_open_memory(&r, k->p, k->len, &opts);
    READ_OK(r, s);
    READ_OK(r, pici_reader_verify(r));
    pici_reader_close(r);
}

void expect_items(const struct sink *k, const struct item *items, size_t n)
{
    expect_random(k, items, n, 1);
    expect_forward(k, items, n, 0, 0, 1);
    expect_verified(k, 1);
}

/* ---- reading all there is, each way ---- */

int data_error(enum pici_status s)
{
    return s == PICI_E_CORRUPT || s == PICI_E_CHECKSUM || s == PICI_E_VERSION;
}

/* What the reader says, which names the offset that it tells. */
static void take_words(const struct pici_reader *r, enum pici_status s, char words[512])
{
    char offset[48];
    snprintf(words, 512, "%s", pici_reader_error(r));
    snprintf(offset, sizeof offset, " at byte %llu: ", (unsigned long long)pici_reader_error_offset(r));
    cr_assert(!data_error(s) || strstr(words, offset), "%s, but the offset is%s", words, offset);
}

enum pici_status all_forward(const uint8_t *p, size_t len, int read, char words[512])
{
    struct source from = {.p = p, .len = len};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    uint64_t data[64];
    int more = 1;
    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, NULL);
    if (!s && !read)
        s = pici_reader_verify(r);
    while (!s && read && more) {
        s = pici_reader_next(r, &t, &more);
        for (uint64_t at = 0, some; !s && more && at < t.count; at += some) {
            some = t.count - at < 64 ? t.count - at : 64;
            s = pici_reader_read(r, data, some);
        }
    }
    take_words(r, s, words);
    if (s)
        cr_assert(pici_reader_next(r, &t, &more) == s && strcmp(words, pici_reader_error(r)) == 0);
    pici_reader_close(r);
    return s;
}

enum pici_status all_random(const uint8_t *p, size_t len, int verify, char words[512])
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    uint64_t data[64], n = 0;
    uint32_t attrs;
    enum pici_status s = pici_reader_open_memory(&r, p, len, NULL);
    if (!s && verify)
        s = pici_reader_verify(r);
    else if (!s)
        s = pici_reader_attr_count(r, PICI_FILE, &attrs);
    if (!s)
        pici_reader_count(r, &n);
    for (uint64_t i = 0; i < n && !s; i++) {
        s = pici_reader_tensor(r, i, &t);
        if (!s)
            s = pici_reader_attr_count(r, i, &attrs);
        for (uint64_t at = 0, some; !s && at < t.count; at += some) {
            some = t.count - at < 64 ? t.count - at : 64;
            s = pici_reader_read_range(r, i, at, some, data);
        }
    }
    take_words(r, s, words);
    pici_reader_close(r);
    return s;
}

/* ---- a small file with some of everything ---- */

struct sink small_file(unsigned version, int zstd)
{
    struct rng rng = {1};
    struct item items[4];
    struct sink k = {0};
    struct pici_attr attrs[] = {{"kind", "test", 4}, {"more", "x", 1}};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.chunk_elements = 50;
    opts.zstd_level = zstd;
    opts.version = version;
    item_init(&items[0], "coo", PICI_F32, PATTERN_ZERO, &rng, DIMS(120));
    item_init(&items[1], "dense", PICI_U16, PATTERN_99, &rng, DIMS(3, 11));
    item_init(&items[2], "empty", PICI_F64, PATTERN_99, &rng, DIMS(0));
    item_init(&items[3], "same", PICI_I64, PATTERN_EQUAL, &rng, DIMS(64));
    for (unsigned i = 3; i < 120; i += 17) { /* three in each chunk, but for the last */
        float v = (float)i;
        memcpy(items[0].data + 4 * i, &v, 4);
    }
    items[1].t.attrs = attrs + 1;
    items[1].t.n_attrs = 1;
    write_items(&k, items, 4, attrs, 2, &opts, 0);
    expect_items(&k, items, 4);
    for (int i = 0; i < 4; i++)
        item_free(&items[i]);
    return k;
}
