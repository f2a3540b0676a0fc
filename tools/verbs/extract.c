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
    int status = reading_attr_is(r, t->index, ATTR_ORDER, "F", &fortran);
    if (status == TOOL_OK)
        status = reading_attr(r, t->index, ATTR_DTYPE, &a);
    if (status)
        return status;
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

static int copy(struct reading *r, const struct pici_tensor_info *t, const struct tool_options *o, struct output *out)
{
    const size_t width = pici_dtype_width(t->dtype);
    struct progress p;
    int status = TOOL_OK;
    progress_start(&p, r->in->name, (o->range.last - o->range.first) * width);
    for (uint64_t at = o->range.first, n; status == TOOL_OK && at < o->range.last; at += n) {
        status = reading_range(r, t, at, o->range.last, &n);
        source_swap_raw(r->piece, (size_t)n * width, width);
        if (status == TOOL_OK)
            status = output_write(out, r->piece, (size_t)n * width);
        progress_at(&p, out->at, out->at);
    }
    progress_end(&p);
    return status;
}

static int extract(struct reading *r, struct tool_options *o)
{
    struct pici_tensor_info t;
    struct output out;
    const char *path = o->out ? o->out : "-";
    int status = find(r, o, &t);
    if (status)
        return status;
    if (!o->range.given || o->range.to_end)
        o->range.last = t.count;
    if (o->range.first > o->range.last || o->range.last > t.count)
        return tool_bad(r->in->name, "tensor %s has %" PRIu64 " elements: --range goes beyond them", t.name, t.count);
    const uint64_t bytes = (o->range.last - o->range.first) * pici_dtype_width(t.dtype);
    status = output_open(&out, path, r->in, o->force);
    out.limit = input_limit(r->in, o);
    if (status == TOOL_OK && !o->no_sparse)
        output_sparse(&out);
    if (status == TOOL_OK)
        status = output_claim(&out, r->in->name, bytes);
    const double start = term_now();
    if (status == TOOL_OK && tool_type_of(path) == TYPE_NPY)
        status = write_npy_header(r, &t, o, &out);
    if (status == TOOL_OK)
        status = copy(r, &t, o, &out);
    const double seconds = term_now() - start;
    if (status == TOOL_OK)
        status = output_commit(&out);
    if (status == TOOL_OK)
        result_print(r->in->name, r->in->bytes, &out, true, seconds);
    output_discard(&out);
    return status;
}

int verb_extract(const struct tool_options *given)
{
    struct tool_options o = *given;
    struct input in;
    struct reading r;
    int status = input_open(&in, o.args[0]);
    if (status)
        return status;
    if (!in.regular) {
        input_close(&in);
        return tool_usage(in.name, "is empty or cannot be read at random: extract needs a file, not a pipe");
    }
    status = reading_open(&r, &in, o.threads, true);
    if (status == TOOL_OK)
        status = extract(&r, &o);
    reading_close(&r);
    input_close(&in);
    return status;
}
