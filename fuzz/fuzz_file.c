/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a .pici file, read forward, at random and verified: unchanged, and with correct hashes, which
 * mutations would never hit. Readers that accept a file must agree. Salvaging any file must end, and lose nothing of
 * a whole file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/ref.h"
#include "fuzz/fuzz.h"
#include "fuzz/seal.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "pici/file.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

/* ---- reading ---- */

struct source {
    const uint8_t *p;
    size_t len, at, piece;
};

static int read_some(void *ctx, void *p, size_t cap, size_t *got)
{
    struct source *s = ctx;
    *got = s->len - s->at < cap ? s->len - s->at : cap;
    *got = *got < s->piece ? *got : s->piece;
    if (*got)
        memcpy(p, s->p + s->at, *got);
    s->at += *got;
    return 0;
}

static enum pici_status verify_forward(const uint8_t *p, size_t len)
{
    struct source from = {p, len, 0, 97};
    struct pici_reader *r;
    enum pici_status s = pici_reader_open_stream(&r, read_some, &from, NULL);
    if (!s)
        s = pici_reader_verify(r);
    CHECK(!s == !pici_reader_error(r)[0]);
    pici_reader_close(r);
    return s;
}

enum { PIECE = 3000, PIECES = 8 };

/* Read the beginnings of all tensors forward. If there is a random-access reader, compare with it. */
static enum pici_status read_forward(const uint8_t *p, size_t len, struct pici_reader *random)
{
    static uint64_t a[PIECE], b[PIECE];
    struct source from = {p, len, 0, len + 1};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT, u = PICI_TENSOR_INFO_INIT;
    struct pici_attr x, y;
    struct pici_reader *r;
    int more = 1;
    enum pici_status s = pici_reader_open_stream(&r, read_some, &from, NULL);
    while (!s && !(s = pici_reader_next(r, &t, &more)) && more) {
        if (random)
            CHECK(!pici_reader_find(random, t.name, t.name_len, &u) && u.index == t.index && u.count == t.count);
        for (uint32_t i = 0; i < t.attrs; i++) {
            CHECK(!pici_reader_attr_at(r, t.index, i, &x));
            CHECK(!random || (!pici_reader_attr_at(random, t.index, i, &y) && x.len == y.len &&
                              strcmp(x.key, y.key) == 0 && memcmp(x.value, y.value, x.len) == 0));
        }
        uint64_t at = 0;
        for (int i = 0; i < PIECES && at < t.count && !s; i++) {
            uint64_t n = t.count - at < PIECE ? t.count - at : PIECE;
            s = pici_reader_read(r, a, n);
            if (!s && random) {
                CHECK(!pici_reader_read_range(random, t.index, at, n, b));
                CHECK(memcmp(a, b, (size_t)n * pici_dtype_width(t.dtype)) == 0);
            }
            at += n;
        }
    }
    pici_reader_close(r);
    return s;
}

/* Ask for the views of a file that may be wrong. */
static void ask_views(struct pici_reader *r)
{
    static uint64_t stored[PIECE], row[PIECE];
    uint64_t n;
    int yes;
    if (pici_reader_view_count(r, &n))
        return;
    CHECK(!pici_reader_is_unnamed(r, "zip.1", 5, &yes));
    for (uint64_t i = 0; i < n && i < 64; i++) {
        struct pici_view v = PICI_VIEW_INIT, same = PICI_VIEW_INIT;
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        if (pici_reader_view(r, i, &v))
            continue;
        CHECK(!pici_reader_find_view(r, v.name, v.name_len, &same, &yes) && yes && same.tensor == v.tensor);
        CHECK(!pici_reader_tensor(r, v.tensor, &t) && t.dtype == v.tensor_dtype);
        CHECK(v.stored_first <= t.count && v.stored_count <= t.count - v.stored_first);
        CHECK(v.name[v.name_len] == 0 && strlen(v.word) < 256);
        if (v.stored_count > PIECE || pici_reader_read_range(r, v.tensor, v.stored_first, v.stored_count, stored))
            continue;
        const uint64_t some = v.count < PIECE ? v.count : PIECE;
        CHECK(!pici_view_copy(&v, stored, 0, some, row));
        CHECK(!pici_view_copy(&v, stored, v.count - some, some, row));
        CHECK(pici_view_copy(&v, stored, v.count, 1, row) == PICI_E_ARG);
    }
}

/* Ask a random-access reader everything about a file that may be wrong. */
static void ask(struct pici_reader *r)
{
    static uint64_t data[PIECE];
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_chunk_info c = PICI_CHUNK_INFO_INIT;
    uint64_t n;
    uint32_t attrs;
    CHECK(!pici_reader_count(r, &n));
    pici_reader_attr_count(r, PICI_FILE, &attrs);
    ask_views(r);
    for (uint64_t i = 0; i < n && i < 64; i++) {
        CHECK(!pici_reader_tensor(r, i, &t));
        pici_reader_attr_count(r, i, &attrs);
        uint64_t some = t.count < PIECE ? t.count : PIECE;
        pici_reader_read_range(r, i, 0, some, data);
        pici_reader_read_range(r, i, t.count - some, some, data);
        pici_reader_read_range(r, i, t.count / 2, t.count / 2 < 7 ? t.count / 2 : 7, data);
        if (t.chunks)
            pici_reader_chunk(r, i, t.chunks - 1, &c);
    }
}

/* Salvage as decompress --keep-going does. whole: nothing is wrong with the file. */
static void salvage(const uint8_t *p, size_t len, int whole)
{
    static FILE *nowhere;
    if (!nowhere && (nowhere = fopen("/dev/null", "w")))
        stderr = nowhere; /* hides the tool's messages; sanitizers use the descriptor */
    struct input in = {.name = "fuzz", .fd = memfd_create("fuzz", 0), .regular = len > 0, .bytes = len};
    if (in.fd < 0 || write(in.fd, p, len) != (ssize_t)len || lseek(in.fd, 0, SEEK_SET) != 0)
        abort();
    struct reading r;
    struct pici_attr a;
    bool more = true, all = true;
    int status = reading_salvage(&r, &in, 1, 1 << 16);
    if (!status)
        status = reading_attr(&r, PICI_FILE, ATTR_HEAD, &a);
    while (!status && more) {
        struct pici_tensor_info t;
        status = reading_next(&r, &t, &more);
        if (status || !more)
            break;
        status = reading_attr(&r, t.index, ATTR_ENDIAN, &a);
        uint64_t done = 0, n = 1;
        for (int i = 0; i < 64 && t.chunk_elements <= 4096 && !status && n; i++)
            status = reading_piece(&r, &t, &done, &n);
        all = all && n == 0;
    }
    CHECK(!whole || (!status && !r.lost));
    CHECK(whole || status || r.lost || !all);
    reading_close(&r);
    close(in.fd);
}

static void all(const uint8_t *p, size_t len)
{
    struct pici_reader *r;
    enum pici_status whole = verify_forward(p, len);
    enum pici_status s = pici_reader_open_memory(&r, p, len, NULL);
    if (!s) {
        ask(r);
        CHECK(pici_reader_verify(r) == whole);
    }
    CHECK(s != PICI_OK || whole != PICI_OK || pici_reader_error(r)[0] == '\0');
    CHECK(whole || !s); /* a whole file opens */
    s = read_forward(p, len, whole ? NULL : r);
    CHECK(whole || !s); /* and reads */
    salvage(p, len, !whole);
    pici_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    all(data, len);
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return 0;
    if (len)
        memcpy(copy, data, len);
    seal(copy, len);
    all(copy, len);
    free(copy);
    return 0;
}
