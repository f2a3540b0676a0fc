/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a .npz and as a .pt file, and a .npz of an array of any bytes. From the data that source.h reads, the
 * fuzzer rebuilds the same file. Inflated entries must match their lengths and CRC-32. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "input/source.h"
#include "tools/parse/crc32.h"
#include "tools/parse/unzip.h"

struct made {
    uint8_t *p;
    size_t len, cap;
};

enum { PIECE = 1000, INFLATED_MOST = 1 << 22, ELEMENTS_MOST = 1 << 20 };

static int append(void *ctx, const void *p, size_t n)
{
    struct made *m = ctx;
    m->p = m->len + n <= m->cap ? m->p : realloc(m->p, m->cap = 2 * (m->len + n));
    require(m->p != NULL);
    memcpy(m->p + m->len, p, n);
    m->len += n;
    return 0;
}

/* The rebuilt part of a file, compared with the file. */
struct again {
    const uint8_t *file;
    size_t len, at;
};

static int put(void *ctx, const void *p, size_t n)
{
    struct again *a = ctx;
    require(n <= a->len - a->at && memcmp(a->file + a->at, p, n) == 0);
    a->at += n;
    return 0;
}

/* Rebuild a tensor, and the part of the head before it. */
static int put_tensor(struct source *s, const struct source_tensor *t, struct again *a, size_t *head_at)
{
    uint8_t piece[PIECE * 8];
    const size_t width = pici_dtype_width(t->dtype);
    struct deflated d = {0};
    struct deflater *deflater = NULL;
    const char *digits = t->before;
    uint64_t before;
    int status = TOOL_OK;
    require(tool_parse_digits(&digits, &before) && !*digits && before <= s->head_size - *head_at);
    if (t->deflate[0]) {
        require(deflated_parse(&d, t->deflate, strlen(t->deflate), t->count * width) && d.header <= before);
        deflater = deflater_new((int)d.level);
        require(deflater != NULL);
    }
    put(a, s->head + *head_at, (size_t)(before - d.header));
    *head_at += (size_t)before;
    if (deflater)
        deflater_put(deflater, s->head + *head_at - d.header, (size_t)d.header, false, put, a);
    for (uint64_t left = t->count, n; status == TOOL_OK && left; left -= n) {
        n = left < PIECE ? left : PIECE;
        status = source_take(s, piece, (size_t)n * width);
        if (status)
            break;
        source_swap(piece, (size_t)n * width, s->swap_width);
        if (deflater)
            deflater_put(deflater, piece, (size_t)n * width, false, put, a);
        else
            put(a, piece, (size_t)n * width);
    }
    if (deflater && status == TOOL_OK) {
        deflater_put(deflater, "", 0, true, put, a);
        require(deflater_bytes(deflater) == d.bytes && deflater_crc(deflater) == d.crc);
    }
    deflater_free(deflater);
    return status;
}

/* Begin a .pici file with the views of an archive. */
static struct pici_writer *begin_views(struct source *s, struct made *to)
{
    const struct pici_attr views = {PICI_ATTR_VIEWS, s->archive.views, s->archive.views_size};
    struct pici_writer *w = NULL;
    if (s->archive.views)
        require(pici_writer_open(&w, append, to, &views, 1, NULL) == PICI_OK);
    return w;
}

/* Add a tensor of zeros like t. Returns false if it is too long for that. */
static bool add_like(struct pici_writer *w, const struct source_tensor *t)
{
    static const uint8_t zeros[ELEMENTS_MOST];
    struct pici_attr attrs[SOURCE_ATTRS];
    const struct pici_tensor like = source_describe(t, attrs);
    const uint64_t bytes = t->count * pici_dtype_width(t->dtype);
    if (bytes > sizeof zeros || pici_writer_tensor(w, &like) != PICI_OK)
        return false;
    require(pici_writer_data(w, zeros, (size_t)bytes) == PICI_OK);
    return true;
}

/* Check that all views of the source can be read. */
static void end_views(struct pici_writer *w, const struct made *file)
{
    struct pici_reader *r;
    uint64_t n;
    require(pici_writer_finish(w) == PICI_OK);
    require(pici_reader_open_memory(&r, file->p, file->len, NULL) == PICI_OK);
    require(pici_reader_view_count(r, &n) == PICI_OK && n);
    for (uint64_t i = 0; i < n; i++) {
        struct pici_view v = PICI_VIEW_INIT, same = PICI_VIEW_INIT;
        int found;
        require(pici_reader_view(r, i, &v) == PICI_OK);
        require(pici_reader_find_view(r, v.name, v.name_len, &same, &found) == PICI_OK && found);
        require(same.tensor == v.tensor && same.offset == v.offset);
    }
    pici_reader_close(r);
}

/* Can the file be read? */
static bool read_file(const uint8_t *file, size_t len, enum tool_type type)
{
    struct input in = {.name = "fuzz", .fd = memfd_create("fuzz", 0), .regular = len > 0, .bytes = len};
    struct tool_options o = {.type = type};
    const struct limit limit = {true, INFLATED_MOST, NULL};
    struct again a = {file, len, 0};
    struct source s;
    struct made views = {0};
    size_t head_at = 0;
    bool more = true;
    require(in.fd >= 0 && write(in.fd, file, len) == (ssize_t)len);
    int status = source_open_exact(&s, &in, "fuzz", &o, &limit);
    const bool opened = status == TOOL_OK;
    struct pici_writer *w = opened ? begin_views(&s, &views) : NULL;
    bool whole = true;
    while (status == TOOL_OK) {
        struct source_tensor t;
        status = source_next(&s, &t, &more);
        if (status || !more)
            break;
        require(t.name[t.name_size] == 0 && t.title[t.title_size] == 0);
        whole = whole && w && add_like(w, &t);
        status = put_tensor(&s, &t, &a, &head_at);
    }
    if (status == TOOL_OK) {
        put(&a, s.head + head_at, s.head_size - head_at);
        require(a.at == len);
        if (w && whole)
            end_views(w, &views);
    }
    pici_writer_close(w);
    free(views.p);
    if (opened)
        source_close(&s);
    close(in.fd);
    return status == TOOL_OK;
}

/* ---- archives of one array */

static void number(struct made *m, int bytes, uint64_t v)
{
    for (; bytes--; v >>= 8)
        m->p[m->len++] = (uint8_t)v;
}

/* Write the fields that local header and directory share, from the flags on. */
static void fields(struct made *m, unsigned method, uint32_t crc, size_t packed, size_t bytes, const char *name)
{
    number(m, 2, 0), number(m, 2, method), number(m, 4, 0);
    number(m, 4, crc), number(m, 4, packed), number(m, 4, bytes), number(m, 2, strlen(name)), number(m, 2, 0);
}

/* Make a .npz; level 0 stores the array. If the third byte is not zero, damage the file: the second byte says where,
 * and the third by how much. */
static void make(const uint8_t *data, size_t len)
{
    static const char name[] = "a.npy";
    const unsigned level = data[0] % 10, method = level ? ZIP_DEFLATED : ZIP_STORED;
    const size_t damage = data[1] * 8u;
    const uint8_t by = data[2], *elements = data + 3;
    struct made array = {memory(NPY_WRITE_ROOM + len), 0, NPY_WRITE_ROOM + len};
    struct made zip = {memory(2 * len + 2 * NPY_WRITE_ROOM + 200), 0, 2 * len + 2 * NPY_WRITE_ROOM + 200};
    struct made packed = {memory(2 * len + 2 * NPY_WRITE_ROOM), 0, 2 * len + 2 * NPY_WRITE_ROOM};
    const uint64_t n = len - 3;
    array.len = pici_npy_write_header((char *)array.p, PICI_U8, NPY_NUMBER, false, &n, 1);
    append(&array, elements, (size_t)n);
    const uint32_t crc = parse_crc32(0, array.p, array.len);
    struct deflater *d = level ? deflater_new((int)level) : NULL;
    if (d)
        deflater_put(d, array.p, array.len, true, append, &packed);
    else
        append(&packed, array.p, array.len);
    deflater_free(d);
    append(&zip, "PK\3\4", 4), number(&zip, 2, 20);
    fields(&zip, method, crc, packed.len, array.len, name);
    append(&zip, name, strlen(name));
    const size_t data_at = zip.len;
    append(&zip, packed.p, packed.len);
    const size_t directory = zip.len;
    append(&zip, "PK\1\2", 4), number(&zip, 4, 20 << 16 | 20);
    fields(&zip, method, crc, packed.len, array.len, name);
    number(&zip, 14, 0);
    append(&zip, name, strlen(name));
    const size_t end = zip.len;
    append(&zip, "PK\5\6", 4), number(&zip, 4, 0), number(&zip, 2, 1), number(&zip, 2, 1);
    number(&zip, 4, end - directory), number(&zip, 4, directory), number(&zip, 2, 0);
    if (by && damage < zip.len)
        zip.p[damage] ^= by;
    const bool read = read_file(zip.p, zip.len, TYPE_NPZ);
    require(read || by);
    if (!level && by && damage >= data_at && damage < directory) /* CRC-32 must find damage of stored bytes */
        require(!read);
    free(array.p);
    free(zip.p);
    free(packed.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static FILE *nowhere;
    if (!nowhere && (nowhere = fopen("/dev/null", "w")))
        stderr = nowhere; /* hides the tool's messages; sanitizers use the descriptor */
    read_file(data, len, TYPE_NPZ);
    read_file(data, len, TYPE_PT);
    if (len > 3 && unzip_inflates())
        make(data, len);
    return 0;
}
