/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool inspect --base: applies a delta to its base, a piece at a time, and shows of each tensor how it is stored,
 * how many elements changed, and how much shorter the delta could be (bound.h). Writes nothing. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "measure/bound.h"
#include "pici/delta.h"
#include "show/inputs.h"
#include "show/report.h"
#include "term.h"
#include "tool.h"
#include "xxh64.h"

enum { QUOTE = 96 };

struct row {
    enum delta_kind kind;
    struct measured *measured;
    uint64_t changed;
    double bound; /* bytes */
};

struct job {
    const struct tool_options *o;
    struct input in;
    struct reading r;
    struct delta d;
    struct delta_pieces pieces;
    struct tensors base;
    struct report report;
    struct row *row; /* [d.tensors] */
    uint8_t *from, *to;
};

static int not_base(const struct job *j, const struct pici_tensor_info *tensor, const char *what)
{
    char name[QUOTE];
    return tool_bad(j->base.input.name, "not the base of %s: tensor '%s': %s", j->in.name,
                    pici_parse_printable(name, sizeof name, tensor->name, tensor->name_len), what);
}

/* Makes n elements from the element `first` on: of the base at j->from, of the result at j->to. *valid: they belong
 * together, as far as this shows. */
static int make_piece(struct job *j, const struct tensor_at *b, const struct pici_tensor_info *tensor, uint64_t first,
                      size_t n, struct pici_xxh64 *hash, bool *valid)
{
    const size_t width = pici_dtype_width(tensor->dtype);
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = j->o->threads;
    TRY(tensors_read(&j->base, b, first * width, j->from, n * width));
    pici_xxh64_update(hash, j->from, n * width);
    tensor_swap(b->big_endian, width, j->from, n * width);
    memcpy(j->to, j->from, n * width);
    enum pici_status status;
    if (j->d.kind[tensor->index] == DELTA_XOR) {
        status = pici_reader_apply_range(j->r.reader, tensor->index, first, n, j->to);
        return status ? reading_failed(&j->r, status) : TOOL_OK;
    }
    status = *valid ? pici_delta_pieces_next(&j->pieces, tensor->dtype, n) : PICI_OK;
    if (status && status != PICI_E_CORRUPT)
        return reading_failed(&j->r, status);
    if (!status && *valid)
        status = pici_apply_small(j->to, n, j->pieces.delta, j->pieces.len, &codec_options);
    *valid = *valid && !status;
    return status == PICI_E_NOMEM ? tool_nomem(j->in.name, "a small delta") : TOOL_OK;
}

/* Counts what changes in a tensor, piece by piece. */
static int count_pieces(struct job *j, struct bound *bound, enum delta_kind kind, const struct tensor_at *b,
                        const struct pici_tensor_info *tensor)
{
    struct pici_xxh64 hash;
    bool valid = true;
    char name[QUOTE];
    pici_xxh64_init(&hash, 0);
    const enum pici_status status =
        kind == DELTA_SMALL ? pici_delta_pieces_begin(&j->pieces, j->r.reader, tensor->index) : PICI_OK;
    if (status)
        return reading_failed(&j->r, status);
    for (uint64_t at = 0, n; at < tensor->count; at += n) {
        n = tensor->count - at < DELTA_PIECE ? tensor->count - at : DELTA_PIECE;
        TRY(make_piece(j, b, tensor, at, (size_t)n, &hash, &valid));
        if (valid)
            bound_add(bound, j->from, j->to, n);
    }
    if (pici_xxh64_digest(&hash) != j->d.hash[tensor->index].base)
        return not_base(j, tensor, "its hash differs");
    if (!valid || (kind == DELTA_SMALL && !pici_delta_pieces_done(&j->pieces)))
        return tool_bad(j->in.name, "not a valid delta: the small deltas of tensor '%s' (delta-small)",
                        pici_parse_printable(name, sizeof name, tensor->name, tensor->name_len));
    return TOOL_OK;
}

static int count_tensor(struct job *j, struct row *row, const struct tensor_at *b,
                        const struct pici_tensor_info *tensor)
{
    struct bound *const bound = bound_new(tensor->dtype);
    if (!bound)
        return tool_nomem(j->in.name, "the bound");
    const int status = count_pieces(j, bound, row->kind, b, tensor);
    row->changed = bound_changed(bound);
    row->bound = bound_bits(bound) / 8;
    bound_free(bound);
    return status;
}

static int inspect_tensor(struct job *j, uint64_t i)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    struct row *const row = &j->row[i];
    const enum pici_status status = pici_delta_tensor(&j->d, j->r.reader, i, &tensor);
    if (status)
        return reading_failed(&j->r, status);
    struct measured *const measured = report_add(&j->report, tensor.name, tensor.name_len);
    if (!measured || !(measured->shape = malloc(tensor.rank * sizeof *measured->shape + 1)))
        return tool_nomem(j->in.name, "the list of tensors");
    measured->dtype = tensor.dtype;
    measured->rank = tensor.rank;
    if (tensor.rank)
        memcpy(measured->shape, tensor.shape, tensor.rank * sizeof *measured->shape);
    measured->elements = tensor.count;
    measured->stored = tensor.stored_bytes;
    row->kind = (enum delta_kind)j->d.kind[i];
    measured->kind = pici_delta_kind_name(row->kind);
    if (!delta_needs_base(row->kind)) {
        row->changed = tensor.count;
        row->bound = (double)(tensor.count * pici_dtype_width(tensor.dtype));
        return TOOL_OK;
    }
    const struct tensor_at *const b = tensors_find(&j->base, tensor.name, tensor.name_len);
    if (!b)
        return not_base(j, &tensor, "the base has none");
    if (b->dtype != tensor.dtype || b->rank != tensor.rank ||
        memcmp(b->shape, tensor.shape, tensor.rank * sizeof *tensor.shape) != 0)
        return not_base(j, &tensor, "its type or shape differs");
    return count_tensor(j, row, b, &tensor);
}

static void print_json(struct jsonout *json, const struct job *j)
{
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "file", j->in.name);
    jsonout_string(json, "base", j->base.input.name);
    jsonout_u64(json, "file_bytes", j->in.bytes);
    jsonout_begin(json, "tensors", '[');
    for (size_t i = 0; i < j->report.tensors; i++) {
        const struct measured *measured = &j->report.tensor[i];
        jsonout_begin(json, NULL, '{');
        measured_json(json, measured);
        jsonout_u64(json, "elements", measured->elements);
        jsonout_u64(json, "changed", j->row[i].changed);
        jsonout_u64(json, "stored_bytes", measured->stored);
        jsonout_real(json, "bound_bytes", j->row[i].bound);
        jsonout_end(json, '}');
    }
    jsonout_end(json, ']');
    jsonout_end(json, '}');
}

static void print_row(uint64_t elements, uint64_t changed, uint64_t stored, double bound)
{
    char percent[TERM_TEXT], times[TERM_TEXT] = "-";
    if (bound > 0)
        snprintf(times, sizeof times, "%.2f", (double)stored / bound);
    printf("  %12" PRIu64 "  %7s  %10" PRIu64 "  %10.0f  %6s", elements, term_percent(percent, changed, elements),
           stored, bound, times);
    columns_end();
}

static void print_table(const struct job *j)
{
    struct columns c;
    uint64_t elements = 0, changed = 0, stored = 0;
    double bound = 0;
    term_puts(stdout, j->in.name);
    printf(": delta from ");
    term_puts(stdout, j->base.input.name);
    printf("; bound: what its bytes would be at the least, given the base\n\n");
    columns_fit(&c, &j->report, 2 + 12 + 2 + 7 + 2 + 10 + 2 + 10 + 2 + 6);
    columns_head(&c);
    printf("  %12s  %7s  %10s  %10s  %6s", "ELEMENTS", "CHANGED", "STORED", "BOUND", "TIMES");
    columns_end();
    for (size_t i = 0; i < j->report.tensors; i++) {
        const struct measured *measured = &j->report.tensor[i];
        columns_row(&c, measured);
        print_row(measured->elements, j->row[i].changed, measured->stored, j->row[i].bound);
        elements += measured->elements;
        changed += j->row[i].changed;
        stored += measured->stored;
        bound += j->row[i].bound;
    }
    columns_total(&c);
    print_row(elements, changed, stored, bound);
}

static int inspect(struct job *j)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    bool is;
    if (!j->in.regular)
        return tool_bad(j->in.name, "empty, or not a file that can be read at random");
    TRY(reading_open(&j->r, &j->in, j->o->threads, true));
    TRY(reading_is_delta(&j->r, &is));
    TRY(is ? reading_delta(&j->r, &j->d) : tool_bad(j->in.name, "not a delta: --base is for deltas"));
    struct tool_options options = {.type = (enum tool_type)j->d.type};
    if (options.type == TYPE_RAW) {
        const enum pici_status status = pici_delta_tensor(&j->d, j->r.reader, 0, &tensor);
        if (status)
            return reading_failed(&j->r, status);
        options.dtype = tensor.dtype;
    }
    TRY(tensors_open(&j->base, j->o->base, &options));
    j->row = calloc((size_t)j->d.tensors + 1, sizeof *j->row);
    j->from = malloc(DELTA_PIECE * sizeof(uint64_t));
    j->to = malloc(DELTA_PIECE * sizeof(uint64_t));
    if (!j->row || !j->from || !j->to)
        return tool_nomem(j->in.name, "the elements");
    for (uint64_t i = 0; i < j->d.tensors; i++)
        TRY(inspect_tensor(j, i));
    return TOOL_OK;
}

int inspect_delta(const char *path, const struct tool_options *options, void *context)
{
    struct inputs *const inputs = context;
    struct job j = {.o = options, .base.input.fd = -1};
    TRY(input_open(&j.in, path));
    const int status = inspect(&j);
    if (!status && options->json) {
        print_json(&inputs->json, &j);
    } else if (!status) {
        inputs_next(inputs);
        print_table(&j);
    }
    free(j.row);
    free(j.from);
    free(j.to);
    pici_delta_pieces_free(&j.pieces);
    pici_delta_close(&j.d);
    reading_close(&j.r);
    tensors_close(&j.base);
    report_free(&j.report);
    input_close(&j.in);
    return status;
}
