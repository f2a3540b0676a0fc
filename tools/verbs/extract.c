/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/attrs.h"
#include "input/reading.h"
#include "input/source.h"
#include "output/result.h"
#include "parse/npy.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"

/* What is extracted: a tensor of the file, or a view of one. */
struct what {
    const char *name;
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;
    struct pici_tensor_info t; /* of a view: the storage */
    struct pici_view v;        /* name NULL: none */
    void *stored;              /* of a view that is not row-major */
};

/* Whether elements of a view follow one another in its storage, as they are. */
static bool is_run(const struct pici_view *v)
{
    uint64_t row = 1;
    bool is = !v->conjugate && !v->negative && pici_dtype_width(v->dtype) == pici_dtype_width(v->tensor_dtype);
    for (unsigned i = v->rank; v->count && i-- > 0; row *= v->shape[i])
        is = is && (v->shape[i] == 1 || v->strides[i] == row);
    return is;
}

static int no_tensor(struct reading *r, const struct tool_options *o, uint64_t tensors)
{
    struct suggest near;
    struct reading_views views = {0};
    suggest_start(&near, o->tensor);
    for (uint64_t i = 0; i < tensors; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        enum pici_status s = pici_reader_tensor(r->reader, i, &t);
        if (s)
            return reading_failed(r, s);
        TRY(reading_views(r, &t, &views));
        if (!views.unnamed)
            suggest_word(&near, t.name);
        for (uint64_t k = 0; k < views.n; k++) {
            struct pici_view v;
            TRY(reading_view(r, views.first + k, &v));
            suggest_word(&near, v.name);
        }
    }
    return tool_no_tensor(r->in->name, &near);
}

static void take_tensor(struct what *w)
{
    w->name = w->t.name;
    w->dtype = w->t.dtype;
    w->rank = w->t.rank;
    w->count = w->t.count;
    memcpy(w->shape, w->t.shape, sizeof w->shape);
}

static int take_view(struct reading *r, struct what *w)
{
    w->name = w->v.name;
    w->dtype = w->v.dtype;
    w->rank = w->v.rank;
    w->count = w->v.count;
    memcpy(w->shape, w->v.shape, sizeof w->shape);
    const enum pici_status s = pici_reader_tensor(r->reader, w->v.tensor, &w->t);
    return s ? reading_failed(r, s) : TOOL_OK;
}

/* Finds the only tensor of the file. */
static int find_only(struct reading *r, struct what *w, uint64_t tensors)
{
    struct reading_views views = {0};
    uint64_t named = 0;
    bool is_view = false;
    for (uint64_t i = 0; i < tensors && named < 2; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        const enum pici_status s = pici_reader_tensor(r->reader, i, &t);
        if (s)
            return reading_failed(r, s);
        TRY(reading_views(r, &t, &views));
        named += !views.unnamed + views.n;
        if (views.n)
            TRY(reading_view(r, views.first, &w->v));
        if (!views.unnamed || views.n) {
            w->t = t;
            is_view = views.unnamed;
        }
    }
    if (named != 1)
        return tool_usage(r->in->name, "has %s%" PRIu64 " tensors: --tensor says which",
                          named > 1 && named < tensors ? "at least " : "", named > tensors ? named : tensors);
    if (is_view)
        return take_view(r, w);
    w->v.name = NULL;
    take_tensor(w);
    return TOOL_OK;
}

/* Finds the tensor of --tensor, or the only one. */
static int find(struct reading *r, const struct tool_options *o, struct what *w)
{
    uint64_t tensors;
    int found;
    w->t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    w->v = (struct pici_view)PICI_VIEW_INIT;
    enum pici_status s = pici_reader_count(r->reader, &tensors);
    if (!s && !o->tensor)
        return find_only(r, w, tensors);
    if (!s)
        s = pici_reader_find_view(r->reader, o->tensor, strlen(o->tensor), &w->v, &found);
    if (s)
        return reading_failed(r, s);
    if (found)
        return take_view(r, w);
    s = pici_reader_find(r->reader, o->tensor, strlen(o->tensor), &w->t);
    if (s)
        return s == PICI_E_ARG ? no_tensor(r, o, tensors) : reading_failed(r, s);
    take_tensor(w);
    return TOOL_OK;
}

/* Reads what a view needs of its storage, unless its elements are read as they lie there. */
static int read_storage(struct reading *r, struct what *w, const struct limit *limit)
{
    const size_t width = pici_dtype_width(w->t.dtype);
    const uint64_t bytes = w->v.stored_count * width;
    if (!w->v.name || is_run(&w->v))
        return TOOL_OK;
    if (bytes > limit_now(limit))
        return limit_refused(limit, r->in->name, bytes);
    w->stored = malloc((size_t)bytes + 1);
    if (!w->stored)
        return tool_nomem(r->in->name, "the storage of the tensor");
    for (uint64_t at = 0, n; at < w->v.stored_count; at += n) {
        const uint64_t first = w->v.stored_first;
        TRY(reading_range(r, &w->t, first + at, first + w->v.stored_count, &n));
        memcpy((uint8_t *)w->stored + at * width, r->piece, (size_t)n * width);
    }
    return TOOL_OK;
}

/* Writes a header of the type that only .npy files have, if the tensor has one. *done: it has. A range of what several
 * elements are an item of is of elements. */
static int write_typed_header(struct reading *r, const struct what *w, const struct tool_options *o, bool fortran,
                              struct output *out, bool *done)
{
    struct pici_attr a;
    struct npy_type type;
    const uint64_t n = o->range.last - o->range.first;
    size_t len;
    unsigned rank = w->rank;
    *done = false;
    TRY(reading_attr(r, w->t.index, ATTR_NPY, &a));
    if (!a.key || !pici_npy_type(&type, a.value, a.len) || type.dtype != w->dtype)
        return TOOL_OK;
    if (type.item_elements != 1 && (o->range.given || !rank || w->shape[--rank] != type.item_elements))
        return TOOL_OK;
    char *const header = pici_npy_typed_header(&len, a.value, a.len, fortran && !o->range.given,
                                               o->range.given ? &n : w->shape, o->range.given ? 1 : rank);
    if (!header)
        return tool_nomem(r->in->name, "the header of the array");
    *done = true;
    const int status = output_write(out, header, len);
    free(header);
    return status;
}

static int write_npy_header(struct reading *r, const struct what *w, const struct tool_options *o, struct output *out)
{
    char header[NPY_WRITE_ROOM];
    bool fortran = false;
    struct pici_attr a = {ATTR_DTYPE, w->v.word, w->v.name ? strlen(w->v.word) : 0};
    if (!w->v.name) {
        bool done;
        TRY(reading_attr_is(r, w->t.index, ATTR_ORDER, "F", &fortran));
        TRY(write_typed_header(r, w, o, fortran, out, &done));
        if (done)
            return TOOL_OK;
        TRY(reading_attr(r, w->t.index, ATTR_DTYPE, &a));
    }
    enum npy_meaning meaning = a.key ? pici_npy_meaning_of(a.value, a.len, w->dtype) : NPY_NUMBER;
    unsigned rank = w->rank;
    if (meaning == NPY_COMPLEX && (o->range.given || !rank || w->shape[rank - 1] != 2))
        meaning = NPY_NUMBER; /* a range is of parts */
    rank -= meaning == NPY_COMPLEX;
    const uint64_t n = o->range.last - o->range.first;
    size_t len = o->range.given ? pici_npy_write_header(header, w->dtype, meaning, false, &n, 1)
                                : pici_npy_write_header(header, w->dtype, meaning, fortran, w->shape, rank);
    return output_write(out, header, len);
}

/* The next elements from `at` on, *n of them, at *p. */
static int next_piece(struct reading *r, struct what *w, uint64_t at, uint64_t last, uint64_t *n, void **p)
{
    enum { PIECE = 1 << 18 };
    static uint64_t piece[PIECE];
    const uint64_t first = w->v.name ? w->v.offset : 0;
    *p = piece;
    if (!w->stored) {
        TRY(reading_range(r, &w->t, first + at, first + last, n));
        *p = r->piece;
        return TOOL_OK;
    }
    *n = last - at < PIECE ? last - at : PIECE;
    const enum pici_status s = pici_view_copy(&w->v, w->stored, at, *n, piece);
    return s ? tool_bad(r->in->name, "tensor %s: %s", w->name, pici_strerror(s)) : TOOL_OK;
}

static int copy_range(struct reading *r, struct what *w, const struct tool_options *o, struct output *out,
                      struct progress *progress)
{
    const size_t width = pici_dtype_width(w->dtype);
    for (uint64_t at = o->range.first, n; at < o->range.last; at += n) {
        void *p;
        TRY(next_piece(r, w, at, o->range.last, &n, &p));
        source_swap_raw(p, (size_t)n * width, width);
        TRY(output_write(out, p, (size_t)n * width));
        progress_at(progress, out->at, out->at);
    }
    return TOOL_OK;
}

static int copy(struct reading *r, struct what *w, const struct tool_options *o, struct output *out, uint64_t bytes)
{
    struct progress p;
    progress_start(&p, r->in->name, bytes);
    const int status = copy_range(r, w, o, out, &p);
    progress_end(&p);
    return status;
}

static int extract(struct reading *r, struct what *w, struct tool_options *o, struct output *out)
{
    const char *path = o->out ? o->out : "-";
    TRY(find(r, o, w));
    if (!o->range.given || o->range.to_end)
        o->range.last = w->count;
    if (o->range.first > o->range.last || o->range.last > w->count)
        return tool_bad(r->in->name, "tensor %s has %" PRIu64 " elements: --range goes beyond them", w->name, w->count);
    const uint64_t bytes = (o->range.last - o->range.first) * pici_dtype_width(w->dtype);
    TRY(output_open(out, path, r->in, o->force));
    out->limit = input_limit(r->in, o);
    if (!o->no_sparse)
        output_sparse(out);
    TRY(output_claim(out, r->in->name, bytes));
    TRY(read_storage(r, w, &out->limit));
    const double start = term_now();
    if (tool_type_of(path) == TYPE_NPY)
        TRY(write_npy_header(r, w, o, out));
    TRY(copy(r, w, o, out, bytes));
    const double seconds = term_now() - start;
    TRY(output_commit(out));
    result_print(r->in->name, r->in->bytes, out, true, seconds);
    return TOOL_OK;
}

static int open_and_extract(struct input *in, struct reading *r, struct output *out, struct tool_options *o)
{
    if (!in->regular)
        return tool_usage(in->name, "is empty or cannot be read at random: extract needs a file, not a pipe");
    struct what w = {0};
    TRY(reading_open(r, in, o->threads, true));
    const int status = extract(r, &w, o, out);
    free(w.stored);
    return status;
}

int verb_extract(const struct tool_options *given)
{
    struct tool_options o = *given;
    struct input in;
    struct reading r = {0};
    struct output out = {.fd = -1};
    TRY(input_open(&in, o.args[0]));
    const int status = open_and_extract(&in, &r, &out, &o);
    output_discard(&out);
    reading_close(&r);
    input_close(&in);
    return status;
}
