/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "input/attrs.h"
#include "input/reading.h"
#include "input/source.h"
#include "output/result.h"
#include "parse/npy.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"

static int no_tensor(struct reading *r, const struct tool_options *o, uint64_t tensors)
{
    struct suggest near;
    suggest_start(&near, o->tensor);
    for (uint64_t i = 0; i < tensors; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        enum pici_status s = pici_reader_tensor(r->reader, i, &t);
        if (s)
            return reading_failed(r, s);
        suggest_word(&near, t.name);
    }
    return tool_no_tensor(r->in->name, &near);
}

/* Finds the tensor of --tensor, or the only one. */
static int find(struct reading *r, const struct tool_options *o, struct pici_tensor_info *t)
{
    uint64_t tensors;
    *t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    enum pici_status s = pici_reader_count(r->reader, &tensors);
    if (s == PICI_OK && !o->tensor && tensors != 1)
        return tool_usage(r->in->name, "has %" PRIu64 " tensors: --tensor says which", tensors);
    if (s == PICI_OK && o->tensor) {
        s = pici_reader_find(r->reader, o->tensor, strlen(o->tensor), t);
        if (s == PICI_E_ARG)
            return no_tensor(r, o, tensors);
    } else if (s == PICI_OK) {
        s = pici_reader_tensor(r->reader, 0, t);
    }
    return s ? reading_failed(r, s) : TOOL_OK;
}

static int write_npy_header(struct reading *r, const struct pici_tensor_info *t, const struct tool_options *o,
                            struct output *out)
{
    char header[NPY_WRITE_ROOM];
    bool fortran;
    struct pici_attr a = {0};
    TRY(reading_attr_is(r, t->index, ATTR_ORDER, "F", &fortran));
    TRY(reading_attr(r, t->index, ATTR_DTYPE, &a));
    enum npy_meaning meaning = a.key ? pici_npy_meaning_of(a.value, a.len, t->dtype) : NPY_NUMBER;
    unsigned rank = t->rank;
    if (meaning == NPY_COMPLEX && (o->range.given || !rank || t->shape[rank - 1] != 2))
        meaning = NPY_NUMBER; /* a range is of parts */
    rank -= meaning == NPY_COMPLEX;
    const uint64_t n = o->range.last - o->range.first;
    size_t len = o->range.given ? pici_npy_write_header(header, t->dtype, meaning, false, &n, 1)
                                : pici_npy_write_header(header, t->dtype, meaning, fortran, t->shape, rank);
    return output_write(out, header, len);
}

static int copy_range(struct reading *r, const struct pici_tensor_info *t, const struct tool_options *o,
                      struct output *out, struct progress *p)
{
    const size_t width = pici_dtype_width(t->dtype);
    for (uint64_t at = o->range.first, n; at < o->range.last; at += n) {
        TRY(reading_range(r, t, at, o->range.last, &n));
        source_swap_raw(r->piece, (size_t)n * width, width);
        TRY(output_write(out, r->piece, (size_t)n * width));
        progress_at(p, out->at, out->at);
    }
    return TOOL_OK;
}

static int copy(struct reading *r, const struct pici_tensor_info *t, const struct tool_options *o, struct output *out,
                uint64_t bytes)
{
    struct progress p;
    progress_start(&p, r->in->name, bytes);
    const int status = copy_range(r, t, o, out, &p);
    progress_end(&p);
    return status;
}

static int extract(struct reading *r, struct tool_options *o, struct output *out)
{
    struct pici_tensor_info t;
    const char *path = o->out ? o->out : "-";
    TRY(find(r, o, &t));
    if (!o->range.given || o->range.to_end)
        o->range.last = t.count;
    if (o->range.first > o->range.last || o->range.last > t.count)
        return tool_bad(r->in->name, "tensor %s has %" PRIu64 " elements: --range goes beyond them", t.name, t.count);
    const uint64_t bytes = (o->range.last - o->range.first) * pici_dtype_width(t.dtype);
    TRY(output_open(out, path, r->in, o->force));
    out->limit = input_limit(r->in, o);
    if (!o->no_sparse)
        output_sparse(out);
    TRY(output_claim(out, r->in->name, bytes));
    const double start = term_now();
    if (tool_type_of(path) == TYPE_NPY)
        TRY(write_npy_header(r, &t, o, out));
    TRY(copy(r, &t, o, out, bytes));
    const double seconds = term_now() - start;
    TRY(output_commit(out));
    result_print(r->in->name, r->in->bytes, out, true, seconds);
    return TOOL_OK;
}

static int open_and_extract(struct input *in, struct reading *r, struct output *out, struct tool_options *o)
{
    if (!in->regular)
        return tool_usage(in->name, "is empty or cannot be read at random: extract needs a file, not a pipe");
    TRY(reading_open(r, in, o->threads, true));
    return extract(r, o, out);
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
