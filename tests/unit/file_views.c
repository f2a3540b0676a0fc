/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Views of tensors in a .pici file: what the table may say, and which elements they have. */
#include "tests/util/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { ELEMENTS = 60, TABLE = 4096 };

struct table {
    uint8_t p[TABLE];
    size_t len;
};

struct row {
    uint64_t tensor, offset;
    enum pici_dtype dtype;
    unsigned rank, flags;
    uint64_t shape[4], strides[4];
    const char *name, *word;
};

static void add(struct table *t, const struct row *r)
{
    const size_t name = strlen(r->name), word = strlen(r->word), text = ((name + 1 + word) | 7) + 1;
    uint8_t *p = t->p + t->len;
    cr_assert(t->len + 24 + 16 * r->rank + text <= TABLE);
    store_le64(p, r->tensor);
    store_le64(p + 8, r->offset);
    p[16] = (uint8_t)r->dtype;
    p[17] = (uint8_t)r->rank;
    p[18] = (uint8_t)r->flags;
    p[19] = (uint8_t)word;
    store_le32(p + 20, (uint32_t)name);
    for (unsigned i = 0; i < r->rank; i++) {
        store_le64(p + 24 + 8 * i, r->shape[i]);
        store_le64(p + 24 + 8 * (r->rank + i), r->strides[i]);
    }
    p += 24 + 16 * r->rank;
    memset(p, 0, text);
    memcpy(p, r->name, name);
    memcpy(p + name + 1, r->word, word);
    t->len += 24 + 16 * r->rank + text;
    store_le64(t->p, load_le64(t->p) + 1);
}

static float elements[ELEMENTS];

/* A file of two tensors: "a", f32 0 to 59, and "zip.1", the same; and a table. */
static struct pici_reader *file_with(struct sink *k, const uint8_t *table, size_t len)
{
    const struct pici_attr attrs[] = {{PICI_ATTR_VIEWS, table, len}, {PICI_ATTR_UNNAMED, "zip", 3}};
    struct pici_tensor t = PICI_TENSOR_INIT;
    struct pici_writer *w;
    struct pici_reader *r;
    *k = (struct sink){0};
    cr_assert_eq(pici_writer_open(&w, sink_write, k, attrs, table ? 2 : 0, NULL), PICI_OK);
    for (int i = 0; i < 2; i++) {
        t.name = i ? "zip.1" : "a";
        t.name_len = strlen(t.name);
        t.rank = 1;
        t.shape = &(uint64_t){ELEMENTS};
        cr_assert_eq(pici_writer_tensor(w, &t), PICI_OK);
        for (int n = 0; n < ELEMENTS; n++)
            elements[n] = (float)n;
        cr_assert_eq(pici_writer_data(w, elements, sizeof elements), PICI_OK);
    }
    cr_assert_eq(pici_writer_finish(w), PICI_OK);
    pici_writer_close(w);
    open_memory(&r, k);
    return r;
}

static const struct row rows[] = {
    {0, 7, PICI_F32, 2, 0, {3, 2}, {2, 19}, "slice", "float32"},
    {1, 0, PICI_F32, 3, 0, {5, 3, 4}, {1, 20, 5}, "permuted", "float32"},
    {1, 2, PICI_F32, 2, 1, {4, 2}, {2, 1}, "conj", "complex64"},
    {1, 59, PICI_F32, 0, 2, {0}, {0}, "neg", ""},
    {1, 3, PICI_I16, 1, 0, {5}, {3}, "halves", "int16"},
    {1, 60, PICI_F32, 2, 0, {0, 9}, {9, 1}, "none", "float32"},
    {1, 4, PICI_F32, 2, 0, {UINT64_C(1) << 40, 3}, {0, 1}, "expanded", "float32"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void good(struct table *t)
{
    *t = (struct table){.len = 8};
    for (int i = 0; i < ROWS; i++)
        add(t, &rows[i]);
}

Test(file_views, elements)
{
    struct table t;
    struct sink k;
    uint64_t n;
    good(&t);
    struct pici_reader *r = file_with(&k, t.p, t.len);
    READ_OK(r, pici_reader_view_count(r, &n));
    cr_assert_eq(n, ROWS);
    for (uint64_t i = 0; i < n; i++) {
        const struct row *want = &rows[i];
        struct pici_view v = PICI_VIEW_INIT;
        float stored[ELEMENTS], got[64];
        READ_OK(r, pici_reader_view(r, i, &v));
        cr_assert_str_eq(v.name, want->name);
        cr_assert_str_eq(v.word, want->word);
        cr_assert(v.tensor == want->tensor && v.dtype == want->dtype && v.tensor_dtype == PICI_F32);
        READ_OK(r, pici_reader_read_range(r, v.tensor, v.stored_first, v.stored_count, stored));
        const uint64_t some = v.count < 64 ? v.count : 64;
        cr_assert_eq(pici_view_copy(&v, stored, v.count - some, some, got), PICI_OK);
        for (uint64_t e = 0; e < some; e++) {
            uint64_t left = v.count - some + e, at = want->offset, last = 0;
            for (unsigned d = v.rank; d-- > 0; left /= v.shape[d]) {
                at += left % v.shape[d] * v.strides[d];
                last = d + 1 == v.rank ? left % v.shape[d] : last;
            }
            if (v.dtype == PICI_I16) {
                uint8_t le[4];
                uint32_t bits;
                memcpy(&bits, &elements[at / 2], 4);
                store_le32(le, bits);
                cr_assert_eq(((uint16_t *)got)[e], le[at % 2 * 2] | le[at % 2 * 2 + 1] << 8);
                continue;
            }
            const int minus = (want->flags & 2) != 0 || (want->flags & 1 && last == 1);
            cr_assert_eq(got[e], minus ? -elements[at] : elements[at], "%s, element %llu", v.name,
                         (unsigned long long)e);
        }
        cr_assert_eq(pici_view_copy(&v, stored, v.count, 1, got), PICI_E_ARG);
    }
    pici_reader_close(r);
    sink_free(&k);
}

Test(file_views, names)
{
    static const struct {
        const char *name;
        int unnamed;
    } names[] = {{"zip", 1}, {"zip.1", 1}, {"zip.", 0}, {"zip.1x", 0}, {"zipper", 0}, {"a", 0}, {"", 0}};
    struct table t;
    struct sink k;
    struct pici_view v = PICI_VIEW_INIT;
    int yes;
    good(&t);
    struct pici_reader *r = file_with(&k, t.p, t.len);
    READ_OK(r, pici_reader_find_view(r, "conj", 4, &v, &yes));
    cr_assert(yes && v.conjugate && !v.negative && v.offset == 2);
    READ_OK(r, pici_reader_find_view(r, "con", 3, &v, &yes));
    cr_assert(!yes);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        READ_OK(r, pici_reader_is_unnamed(r, names[i].name, strlen(names[i].name), &yes));
        cr_assert_eq(yes, names[i].unnamed, "%s", names[i].name);
    }
    cr_assert_eq(pici_reader_view(r, ROWS, &v), PICI_E_ARG);
    pici_reader_close(r);
    sink_free(&k);
    uint64_t n;
    r = file_with(&k, NULL, 0);
    READ_OK(r, pici_reader_view_count(r, &n));
    cr_assert_eq(n, 0);
    READ_OK(r, pici_reader_is_unnamed(r, "zip", 3, &yes));
    cr_assert(!yes);
    pici_reader_close(r);
    sink_free(&k);
}

/* A table is refused, or a view of it, and nothing worse happens. */
static void refused(const uint8_t *table, size_t len, const char *why)
{
    struct sink k;
    uint64_t n;
    struct pici_reader *r = file_with(&k, table, len);
    enum pici_status s = pici_reader_view_count(r, &n);
    for (uint64_t i = 0; !s && i < n; i++)
        s = pici_reader_view(r, i, &(struct pici_view)PICI_VIEW_INIT);
    cr_assert_eq(s, PICI_E_CORRUPT, "%s", why);
    cr_assert(strstr(pici_reader_error(r), PICI_ATTR_VIEWS), "%s: %s", why, pici_reader_error(r));
    pici_reader_close(r);
    sink_free(&k);
}

Test(file_views, malformed)
{
    static const struct {
        const char *why;
        struct row row;
    } bad[] = {
        {"beyond its storage", {1, 57, PICI_F32, 1, 0, {2}, {3}, "x", ""}},
        {"of no tensor", {2, 0, PICI_F32, 1, 0, {2}, {1}, "x", ""}},
        {"not sorted", {0, 0, PICI_F32, 1, 0, {2}, {1}, "x", ""}},
        {"two of one name", {1, 0, PICI_F32, 1, 0, {2}, {1}, "neg", ""}},
        {"no dtype", {1, 0, (enum pici_dtype)0, 1, 0, {2}, {1}, "x", ""}},
        {"unknown dtype", {1, 0, (enum pici_dtype)15, 1, 0, {2}, {1}, "x", ""}},
        {"unknown flag", {1, 0, PICI_F32, 1, 4, {2}, {1}, "x", ""}},
        {"negative integers", {1, 0, PICI_I16, 1, 2, {2}, {1}, "x", ""}},
        {"conjugate of what is not pairs", {1, 0, PICI_F32, 1, 1, {3}, {1}, "x", ""}},
        {"conjugate scalar", {1, 0, PICI_F32, 0, 1, {0}, {0}, "x", ""}},
        {"too many elements", {1, 0, PICI_F32, 2, 0, {UINT64_C(1) << 31, UINT64_C(1) << 31}, {0}, "x", ""}},
        {"a stride that overflows", {1, 0, PICI_F32, 1, 0, {3}, {UINT64_C(1) << 63}, "x", ""}},
        {"an offset that overflows", {1, UINT64_MAX, PICI_F32, 1, 0, {1}, {1}, "x", ""}},
    };
    struct table t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        good(&t);
        add(&t, &bad[i].row);
        refused(t.p, t.len, bad[i].why);
    }
    good(&t);
    for (size_t n = 0; n < t.len; n++)
        refused(t.p, n, "cut short");
    t.p[t.len] = 0;
    refused(t.p, t.len + 8, "longer");
    for (size_t i = 0; i < t.len; i++)
        for (int bit = 0; bit < 8; bit++) { /* any answer */
            struct sink k;
            uint64_t n = 0;
            good(&t);
            t.p[i] ^= (uint8_t)(1 << bit);
            struct pici_reader *r = file_with(&k, t.p, t.len);
            if (pici_reader_view_count(r, &n) == PICI_OK)
                for (uint64_t v = 0; v < n; v++)
                    pici_reader_view(r, v, &(struct pici_view)PICI_VIEW_INIT);
            pici_reader_close(r);
            sink_free(&k);
        }
}
