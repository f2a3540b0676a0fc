/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool inspect --base: applies a delta to its base, a piece at a time. Shows for each tensor its form, its number
 * of changed elements, and how much shorter the delta could be (bound.h). Writes nothing. */
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
    const struct tool_options *options;
    struct input input;
    struct reading reading;
    struct delta delta;
    struct delta_pieces pieces;
    struct tensors base;
    struct report report;
    struct row *row; /* [delta.tensors] */
    uint8_t *from, *to;
};

static int not_base(const struct job *job, const struct pici_tensor_info *tensor, const char *what)
{
    char name[QUOTE];
    return tool_bad(job->base.input.name, "not the base of %s: tensor '%s': %s", job->input.name,
                    pici_parse_printable(name, sizeof name, tensor->name, tensor->name_len), what);
}

/* Makes `count` elements from element `first`: the base's at job->from, the result's at job->to. *valid becomes false
 * if the delta does not fit these elements. */
static int make_piece(struct job *job, const struct tensor_at *base, const struct pici_tensor_info *tensor,
                      uint64_t first, size_t count, struct pici_xxh64 *hash, bool *valid)
{
    const size_t width = pici_dtype_width(tensor->dtype);
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = job->options->threads;
    TRY(tensors_read(&job->base, base, first * width, job->from, count * width));
    pici_xxh64_update(hash, job->from, count * width);
    tensor_swap(base->big_endian, width, job->from, count * width);
    memcpy(job->to, job->from, count * width);
    enum pici_status status;
    if (job->delta.kind[tensor->index] == DELTA_XOR) {
        status = pici_reader_apply_range(job->reading.reader, tensor->index, first, count, job->to);
        return status ? reading_failed(&job->reading, status) : TOOL_OK;
    }
    status = *valid ? pici_delta_pieces_next(&job->pieces, tensor->dtype, count) : PICI_OK;
    if (status && status != PICI_E_CORRUPT)
        return reading_failed(&job->reading, status);
    if (!status && *valid)
        status = pici_apply_small(job->to, count, job->pieces.delta, job->pieces.size, &codec_options);
    *valid = *valid && !status;
    return status == PICI_E_NOMEM ? tool_nomem(job->input.name, "a small delta") : TOOL_OK;
}

/* Counts the changes of a tensor, piece by piece. */
static int count_pieces(struct job *job, struct bound *bound, enum delta_kind kind, const struct tensor_at *base,
                        const struct pici_tensor_info *tensor)
{
    struct pici_xxh64 hash;
    bool valid = true;
    char name[QUOTE];
    pici_xxh64_init(&hash, 0);
    const enum pici_status status =
        kind == DELTA_SMALL ? pici_delta_pieces_begin(&job->pieces, job->reading.reader, tensor->index) : PICI_OK;
    if (status)
        return reading_failed(&job->reading, status);
    for (uint64_t done = 0, count; done < tensor->count; done += count) {
        count = tensor->count - done < DELTA_PIECE ? tensor->count - done : DELTA_PIECE;
        TRY(make_piece(job, base, tensor, done, (size_t)count, &hash, &valid));
        if (valid)
            bound_add(bound, job->from, job->to, count);
    }
    if (pici_xxh64_digest(&hash) != job->delta.hash[tensor->index].base)
        return not_base(job, tensor, "its hash differs");
    if (!valid || (kind == DELTA_SMALL && !pici_delta_pieces_done(&job->pieces)))
        return tool_bad(job->input.name, "not a valid delta: the small deltas of tensor '%s' (delta-small)",
                        pici_parse_printable(name, sizeof name, tensor->name, tensor->name_len));
    return TOOL_OK;
}

static int count_tensor(struct job *job, struct row *row, const struct tensor_at *base,
                        const struct pici_tensor_info *tensor)
{
    struct bound *const bound = bound_new(tensor->dtype, row->kind == DELTA_SMALL && tensor->dtype == PICI_U8);
    if (!bound)
        return tool_nomem(job->input.name, "the bound");
    const int status = count_pieces(job, bound, row->kind, base, tensor);
    row->changed = bound_changed(bound);
    row->bound = bound_bits(bound) / 8;
    bound_free(bound);
    return status;
}

static int inspect_tensor(struct job *job, uint64_t index)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    struct row *const row = &job->row[index];
    const enum pici_status status = pici_delta_tensor(&job->delta, job->reading.reader, index, &tensor);
    if (status)
        return reading_failed(&job->reading, status);
    struct measured *const measured = report_add(&job->report, tensor.name, tensor.name_len);
    if (!measured || !(measured->shape = malloc(tensor.rank * sizeof *measured->shape + 1)))
        return tool_nomem(job->input.name, "the list of tensors");
    measured->dtype = tensor.dtype;
    measured->rank = tensor.rank;
    if (tensor.rank)
        memcpy(measured->shape, tensor.shape, tensor.rank * sizeof *measured->shape);
    measured->elements = tensor.count;
    measured->stored = tensor.stored_bytes;
    row->kind = (enum delta_kind)job->delta.kind[index];
    measured->kind = pici_delta_kind_name(row->kind);
    if (!delta_needs_base(row->kind)) {
        row->changed = tensor.count;
        row->bound = (double)(tensor.count * pici_dtype_width(tensor.dtype));
        return TOOL_OK;
    }
    const struct tensor_at *const base = tensors_find(&job->base, tensor.name, tensor.name_len);
    if (!base)
        return not_base(job, &tensor, "the base has none");
    if (base->dtype != tensor.dtype || base->rank != tensor.rank ||
        memcmp(base->shape, tensor.shape, tensor.rank * sizeof *tensor.shape) != 0)
        return not_base(job, &tensor, "its type or shape differs");
    return count_tensor(job, row, base, &tensor);
}

static void print_json(struct jsonout *json, const struct job *job)
{
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "file", job->input.name);
    jsonout_string(json, "base", job->base.input.name);
    jsonout_u64(json, "file_bytes", job->input.bytes);
    jsonout_begin(json, "tensors", '[');
    for (size_t i = 0; i < job->report.tensors; i++) {
        const struct measured *measured = &job->report.tensor[i];
        jsonout_begin(json, NULL, '{');
        measured_json(json, measured);
        jsonout_u64(json, "elements", measured->elements);
        jsonout_u64(json, "changed", job->row[i].changed);
        jsonout_u64(json, "stored_bytes", measured->stored);
        jsonout_real(json, "bound_bytes", job->row[i].bound);
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

static void print_table(const struct job *job)
{
    struct columns columns;
    uint64_t elements = 0, changed = 0, stored = 0;
    double bound = 0;
    term_puts(stdout, job->input.name);
    printf(": delta from ");
    term_puts(stdout, job->base.input.name);
    printf("; bound: the fewest bytes possible, given the base\n\n");
    columns_fit(&columns, &job->report, 2 + 12 + 2 + 7 + 2 + 10 + 2 + 10 + 2 + 6);
    columns_head(&columns);
    printf("  %12s  %7s  %10s  %10s  %6s", "ELEMENTS", "CHANGED", "STORED", "BOUND", "TIMES");
    columns_end();
    for (size_t i = 0; i < job->report.tensors; i++) {
        const struct measured *measured = &job->report.tensor[i];
        columns_row(&columns, measured);
        print_row(measured->elements, job->row[i].changed, measured->stored, job->row[i].bound);
        elements += measured->elements;
        changed += job->row[i].changed;
        stored += measured->stored;
        bound += job->row[i].bound;
    }
    columns_total(&columns);
    print_row(elements, changed, stored, bound);
}

static int inspect(struct job *job)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    bool is_delta;
    if (!job->input.regular)
        return tool_bad(job->input.name, "is empty or not seekable: use a regular file");
    TRY(reading_open(&job->reading, &job->input, job->options->threads, true));
    TRY(reading_is_delta(&job->reading, &is_delta));
    TRY(is_delta ? reading_delta(&job->reading, &job->delta)
                 : tool_bad(job->input.name, "not a delta: --base is for deltas"));
    struct tool_options options = {.type = (enum tool_type)job->delta.type};
    if (options.type == TYPE_RAW) {
        const enum pici_status status = pici_delta_tensor(&job->delta, job->reading.reader, 0, &tensor);
        if (status)
            return reading_failed(&job->reading, status);
        options.dtype = tensor.dtype;
    }
    TRY(tensors_open(&job->base, job->options->base, &options));
    job->row = calloc((size_t)job->delta.tensors + 1, sizeof *job->row);
    job->from = malloc(DELTA_PIECE * sizeof(uint64_t));
    job->to = malloc(DELTA_PIECE * sizeof(uint64_t));
    if (!job->row || !job->from || !job->to)
        return tool_nomem(job->input.name, "the elements");
    for (uint64_t i = 0; i < job->delta.tensors; i++)
        TRY(inspect_tensor(job, i));
    return TOOL_OK;
}

int inspect_delta(const char *path, const struct tool_options *options, void *context)
{
    struct inputs *const inputs = context;
    struct job job = {.options = options, .base.input.fd = -1};
    TRY(input_open(&job.input, path));
    const int status = inspect(&job);
    if (!status && options->json) {
        print_json(&inputs->json, &job);
    } else if (!status) {
        inputs_next(inputs);
        print_table(&job);
    }
    free(job.row);
    free(job.from);
    free(job.to);
    pici_delta_pieces_free(&job.pieces);
    pici_delta_close(&job.delta);
    reading_close(&job.reading);
    tensors_close(&job.base);
    report_free(&job.report);
    input_close(&job.input);
    return status;
}
