/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The golden files of formats/vectors: what a reader finds in each, whichever way it reads, and that a writer makes
 * them. */
#include "tests/util/file.h"

#include <stdlib.h>
#include <string.h>

static void expect_attributes(struct pici_reader *r, uint64_t of, const struct vector_attribute *want, unsigned n)
{
    uint32_t have;
    READ_OK(r, pici_reader_attr_count(r, of, &have));
    cr_assert_eq(have, n);
    for (unsigned i = 0; i < n; i++) {
        struct pici_attr a;
        READ_OK(r, pici_reader_attr_at(r, of, i, &a));
        cr_assert_str_eq(a.key, want[i].key);
        cr_assert(a.len == want[i].len && memcmp(a.value, want[i].value, a.len) == 0);
    }
}

static void expect_tensor(struct pici_reader *r, const struct pici_tensor_info *t, const struct vector_tensor *want,
                          int forward)
{
    uint8_t *const data = test_alloc(want->bytes + 1);
    cr_assert_eq(t->name_len, strlen(want->name));
    cr_assert_str_eq(t->name, want->name);
    cr_assert_eq(t->dtype, want->dtype);
    cr_assert_eq(t->rank, want->rank);
    cr_assert_eq(t->chunk_elements, want->chunk_elements);
    cr_assert_eq(t->count * pici_dtype_width(t->dtype), want->bytes);
    for (unsigned i = 0; i < t->rank; i++)
        cr_assert_eq(t->shape[i], want->shape[i]);
    expect_attributes(r, t->index, want->attribute, want->attributes);
    if (forward)
        READ_OK(r, pici_reader_read(r, data, t->count));
    else
        READ_OK(r, pici_reader_read_range(r, t->index, 0, t->count, data));
    cr_assert(memcmp(data, want->elements, want->bytes) == 0, "%s", want->name);
    free(data);
}

static void expect_views(struct pici_reader *r, const struct file_vector *v)
{
    uint64_t n;
    READ_OK(r, pici_reader_view_count(r, &n));
    cr_assert_eq(n, v->views);
    for (unsigned i = 0; i < v->views; i++) {
        struct pici_view view = PICI_VIEW_INIT;
        const struct vector_tensor *const want = &v->view[i];
        int found;
        READ_OK(r, pici_reader_find_view(r, want->name, strlen(want->name), &view, &found));
        cr_assert(found && view.dtype == want->dtype);
        cr_assert_eq(view.count * pici_dtype_width(view.dtype), want->bytes);
        uint8_t *const stored = test_alloc((size_t)view.stored_count * 8 + 1), *const data =
                                                                                   test_alloc(want->bytes + 1);
        READ_OK(r, pici_reader_read_range(r, view.tensor, view.stored_first, view.stored_count, stored));
        cr_assert_eq(pici_view_copy(&view, stored, 0, view.count, data), PICI_OK);
        cr_assert(memcmp(data, want->elements, want->bytes) == 0, "%s", want->name);
        free(stored);
        free(data);
    }
}

static void expect_written(const struct file_vector *v)
{
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_attr attrs[VECTOR_PARTS];
    struct sink k = {0};
    struct pici_writer *w;
    opts.version = v->version;
    opts.format = v->tensors ? v->tensor[0].format : PICI_AUTO;
    opts.chunk_elements = v->tensors ? v->tensor[0].chunk_elements : opts.chunk_elements;
    for (unsigned i = 0; i < v->attributes; i++)
        attrs[i] = (struct pici_attr){v->attribute[i].key, v->attribute[i].value, v->attribute[i].len};
    enum pici_status s = pici_writer_open(&w, sink_write, &k, attrs, v->attributes, &opts);
    WRITE_OK(w, s);
    for (unsigned i = 0; i < v->tensors; i++) {
        const struct vector_tensor *const from = &v->tensor[i];
        struct pici_tensor t = PICI_TENSOR_INIT;
        struct pici_attr own[2];
        for (unsigned k2 = 0; k2 < from->attributes; k2++)
            own[k2] = (struct pici_attr){from->attribute[k2].key, from->attribute[k2].value, from->attribute[k2].len};
        t.name = from->name;
        t.name_len = strlen(from->name);
        t.dtype = from->dtype;
        t.rank = from->rank;
        t.shape = from->shape;
        t.attrs = own;
        t.n_attrs = from->attributes;
        WRITE_OK(w, pici_writer_tensor(w, &t));
        WRITE_OK(w, pici_writer_data(w, from->elements, from->bytes));
    }
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    cr_assert(k.len == v->len && memcmp(k.p, v->file, k.len) == 0, "%s: the writer makes another file", v->name);
    sink_free(&k);
}

static void expect_file_vector(const struct file_vector *v, void *context)
{
    unsigned *const cases = context;
    const struct sink k = {.p = v->file, .len = v->len};
    struct source from = {.p = v->file, .len = v->len, .piece = 50};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_reader *r;
    uint64_t n;
    int more;
    open_memory(&r, &k);
    READ_OK(r, pici_reader_count(r, &n));
    cr_assert_eq(n, v->tensors, "%s", v->name);
    expect_attributes(r, PICI_FILE, v->attribute, v->attributes);
    for (unsigned i = 0; i < v->tensors; i++) {
        READ_OK(r, pici_reader_tensor(r, i, &t));
        expect_tensor(r, &t, &v->tensor[i], 0);
    }
    expect_views(r, v);
    pici_reader_close(r);

    enum pici_status s = pici_reader_open_stream(&r, source_read, &from, NULL);
    READ_OK(r, s);
    for (unsigned i = 0; i < v->tensors; i++) {
        READ_OK(r, pici_reader_next(r, &t, &more));
        cr_assert(more);
        expect_tensor(r, &t, &v->tensor[i], 1);
    }
    READ_OK(r, pici_reader_next(r, &t, &more));
    cr_assert_not(more);
    pici_reader_close(r);
    expect_verified(&k, 1);
    if (v->written)
        expect_written(v);
    cases[0]++;
    cases[1] += v->written != 0;
    cases[2] += v->views;
}

Test(file_vectors, files)
{
    unsigned cases[3] = {0};
    cr_assert_eq(files_read("formats/vectors", expect_file_vector, cases), 8);
    cr_assert(cases[0] == 8 && cases[1] == 5 && cases[2] == 4);
}
