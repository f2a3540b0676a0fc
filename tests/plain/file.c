/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One .pici file whose bytes are known, on any machine, without a test framework. The last line is
 * "N passed, N failed". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/file.h"
#include "tests/util/util.h"
#include "xxh64.h"

/* Of the file that write_file makes: it changes only with the format's version. */
/* Of each version: the tensors are not small, so that only the numbers differ. */
static const uint64_t FILE_HASH[] = {UINT64_C(0x0c9a0449c17328e1), UINT64_C(0x7a3a1190f198b243)};
enum { FILE_BYTES = 102944 };

enum { TENSORS = 14, ELEMENTS = 10007, CHUNK = 4100 };

static void expect(const char *what, int good)
{
    tally(what, good ? NULL : "wrong");
}

struct memory {
    uint8_t *p;
    size_t len, cap, at;
};

static int to_memory(void *ctx, const void *p, size_t n)
{
    struct memory *m = ctx;
    if (n > m->cap - m->len)
        return 1;
    memcpy(m->p + m->len, p, n);
    m->len += n;
    return 0;
}

static int from_memory(void *ctx, void *p, size_t cap, size_t *got)
{
    struct memory *m = ctx;
    *got = m->len - m->at < cap ? m->len - m->at : cap;
    memcpy(p, m->p + m->at, *got);
    m->at += *got;
    return 0;
}

/* Element i of a tensor of dtype d: small integers' low bytes, so that host order shows; most are zero. */
static uint64_t element(int d, uint64_t i)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)d;
    return x >> 61 ? 0 : (x >> 3) * 5 + 1;
}

static void fill(void *dst, int d)
{
    size_t width = pici_dtype_width((enum pici_dtype)d);
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        uint64_t v = element(d, i);
        uint8_t *to = (uint8_t *)dst + (size_t)i * width;
        uint8_t v8 = (uint8_t)v;
        uint16_t v16 = (uint16_t)v;
        uint32_t v32 = (uint32_t)v;
        memcpy(to,
               width == 1   ? (void *)&v8
               : width == 2 ? (void *)&v16
               : width == 4 ? (void *)&v32
                            : (void *)&v,
               width);
    }
}

static enum pici_status write_file(struct memory *m, void *data, enum pici_format format, int threads, uint64_t version)
{
    static const char utf8[] = "h\xc3\xa9";
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_attr attr = {"source", utf8, 3};
    struct pici_writer *w;
    uint64_t shape[2] = {1, ELEMENTS};
    m->len = 0;
    opts.format = format;
    opts.threads = threads;
    opts.chunk_elements = CHUNK;
    opts.version = version;
    enum pici_status s = pici_writer_open(&w, to_memory, m, &attr, 1, &opts);
    for (int d = 1; d <= TENSORS && !s; d++) {
        struct pici_tensor t = PICI_TENSOR_INIT;
        t.dtype = (enum pici_dtype)d;
        t.name = pici_dtype_name(t.dtype);
        t.name_len = strlen(t.name);
        t.rank = 2;
        t.shape = shape;
        t.attrs = &attr;
        t.n_attrs = d == PICI_I16;
        fill(data, d);
        s = pici_writer_tensor(w, &t);
        if (!s)
            s = pici_writer_data(w, data, ELEMENTS * pici_dtype_width(t.dtype));
    }
    if (!s)
        s = pici_writer_finish(w);
    pici_writer_close(w);
    return s;
}

static int reads_at_random(const struct memory *m, void *want, void *data, int threads)
{
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_attr a;
    struct pici_reader *r;
    opts.threads = threads;
    enum pici_status s = pici_reader_open_memory(&r, m->p, m->len, &opts);
    int good = !s && !pici_reader_verify(r) && !pici_reader_attr(r, PICI_I16 - 1, "source", &a) && a.len == 3;
    for (int d = 1; d <= TENSORS && good; d++) {
        const char *name = pici_dtype_name((enum pici_dtype)d);
        size_t width = pici_dtype_width((enum pici_dtype)d);
        fill(want, d);
        good = !pici_reader_find(r, name, strlen(name), &t) && t.count == ELEMENTS && t.shape[1] == ELEMENTS &&
               !pici_reader_read_range(r, t.index, 0, ELEMENTS, data) && memcmp(data, want, ELEMENTS * width) == 0 &&
               !pici_reader_read_range(r, t.index, 4000, 5000, data) &&
               memcmp(data, (uint8_t *)want + 4000 * width, 5000 * width) == 0;
    }
    if (!good)
        printf("%s\n", pici_reader_error(r));
    pici_reader_close(r);
    return good;
}

static int reads_forward(struct memory *m, void *want, void *data)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    int more = 0;
    m->at = 0;
    enum pici_status s = pici_reader_open_stream(&r, from_memory, m, NULL);
    int good = !s;
    for (int d = 1; d <= TENSORS && good; d++) {
        size_t width = pici_dtype_width((enum pici_dtype)d);
        fill(want, d);
        good = !pici_reader_next(r, &t, &more) && more && t.dtype == (enum pici_dtype)d &&
               !pici_reader_read(r, data, 999) && !pici_reader_read(r, (uint8_t *)data + 999 * width, ELEMENTS - 999) &&
               memcmp(data, want, ELEMENTS * width) == 0;
    }
    good = good && !pici_reader_next(r, &t, &more) && !more;
    if (!good)
        printf("%s\n", pici_reader_error(r));
    pici_reader_close(r);
    return good;
}

static int refused(struct memory *m)
{
    struct pici_reader *r;
    m->at = 0;
    enum pici_status forward = pici_reader_open_stream(&r, from_memory, m, NULL);
    if (!forward)
        forward = pici_reader_verify(r);
    pici_reader_close(r);
    enum pici_status random = pici_reader_open_memory(&r, m->p, m->len, NULL);
    if (!random)
        random = pici_reader_verify(r);
    pici_reader_close(r);
    return (forward == PICI_E_CORRUPT || forward == PICI_E_CHECKSUM || forward == PICI_E_VERSION) &&
           (random == PICI_E_CORRUPT || random == PICI_E_CHECKSUM || random == PICI_E_VERSION);
}

int main(void)
{
    static const enum pici_format formats[] = {PICI_BITMAP, PICI_COO, PICI_DENSE};
    size_t cap = TENSORS * (ELEMENTS * 12 + 4096);
    struct memory m = {.p = test_alloc(cap), .cap = cap}, again = {.p = test_alloc(cap), .cap = cap};
    void *want = test_alloc(ELEMENTS * 8), *data = test_alloc(ELEMENTS * 8);
    struct rng rng = {1};
    for (size_t i = 3; i-- > 0;) { /* pici last, and kept */
        expect("written", !write_file(&m, data, formats[i], 1, 0));
        expect("read at random", reads_at_random(&m, want, data, 1));
        expect("read forward", reads_forward(&m, want, data));
        expect("written with threads", !write_file(&again, data, formats[i], 3, 0));
        expect("the same bytes with threads", again.len == m.len && memcmp(again.p, m.p, m.len) == 0);
        expect("read with threads", reads_at_random(&m, want, data, 3));
    }
    for (unsigned version = 1; version <= 2; version++) {
        expect("written", !write_file(&again, data, formats[0], 1, version));
        uint64_t hash = pici_xxh64(again.p, again.len, 0);
        expect("the bytes of the format", again.len == FILE_BYTES && hash == FILE_HASH[version - 1]);
        if (hash != FILE_HASH[version - 1])
            printf("%lu bytes, hash %016llx\n", (unsigned long)again.len, (unsigned long long)hash);
        expect("read at random", reads_at_random(&again, want, data, 1));
        expect("read forward", reads_forward(&again, want, data));
    }
    for (int i = 0; i < 60; i++) {
        size_t at = (size_t)rng_below(&rng, i % 2 ? m.len : 600);
        at = i % 3 ? at : m.len - 1 - at;
        m.p[at] ^= (uint8_t)(1u << i % 8);
        expect("a changed byte", refused(&m));
        m.p[at] ^= (uint8_t)(1u << i % 8);
        struct memory cut = {.p = test_alloc(at + 1), .len = at};
        memcpy(cut.p, m.p, at);
        expect("a cut", refused(&cut));
        free(cut.p);
    }
    free(m.p);
    free(again.p);
    free(want);
    free(data);
    return tally_end();
}
