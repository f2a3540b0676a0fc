/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of sparse vectors. They differ from calls with dense buffers in the engine, in its addresses of elements,
 * and in the layout. If a rank is dense, slices are as long as in a dense call. Otherwise the ranks agree on the most
 * elements that one of them has, and slices are longer in proportion to the sparsity of the sum. */
#include "pici/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "coll/call.h"
#include "coll/note.h"
#include "coll/options.h"
#include "coll/ordinary.h"
#include "coll/packing.h"
#include "coll/receive.h"
#include "coll/rules.h"
#include "coll/slice.h"
#include "coll/engine_stream.h"
#include "sized.h"

static struct stream_call *stream_of(const struct pici_request *request)
{
    return request->call.args.stream;
}

/* ---- before the ranks have agreed */

/* Sizes were checked. The call agreement reports errors found here to all ranks. */
static const char *take(struct stream_call *stream, struct coll_call *call, const struct pici_comm *comm,
                        char *explanation, size_t bytes)
{
    const struct pici_stream *in = &stream->in;
    struct pici_stream_out *out = stream->out;
    const int root = call->args.kind != PICI_BROADCAST || comm->rank == call->args.root;
    struct pici_stream taken = *in;
    if (!root) {
        taken.nnz = 0;
        taken.dense = NULL;
    }
    const char *wrong =
        pici_stream_take(&stream->input, &taken, call->args.dtype, &stream->no_memory, explanation, bytes);
    if (wrong)
        return wrong;
    stream->run = out->run ? out->run : stream->input.run;
    stream->index_width = out->index_width ? out->index_width : in->index_width;
    const uint64_t n = call->args.kind == PICI_REDUCE_SCATTER ? call->args.count : call->resolved.total;
    out->n = n;
    out->run = stream->run;
    out->nnz = 0;
    if ((unsigned)out->want > PICI_STREAM_SHORTER)
        return "the result's form is not in enum pici_stream_form";
    if (!stream->run || n % stream->run) {
        snprintf(explanation, bytes,
                 "the result has %" PRIu64 " elements, which is not a multiple of its run, %" PRIu64, n, stream->run);
        return explanation;
    }
    if (stream->index_width != 4 && stream->index_width != 8)
        return "the result's index_width is neither 4 nor 8";
    if (n / stream->run > UINT64_C(1) << 32)
        stream->index_width = 8;
    return NULL;
}

/* Count the elements of all segments, as in a dense call; then check the stream. */
static const char *count(struct coll_call *call, const struct pici_comm *comm, char *explanation, size_t bytes)
{
    struct stream_call *stream = call->args.stream;
    const char *wrong = pici_ordinary_rules(call->args.kind)->count(call, comm, explanation, bytes);
    call->resolved.agreement = AGREE_STREAM;
    if (stream->odd) {
        snprintf(explanation, bytes, "the stream's n, %" PRIu64 ", is not a multiple of the number of ranks, %d",
                 stream->in.n, comm->ranks);
        return explanation;
    }
    if (wrong)
        return wrong;
    stream->width = call->resolved.width;
    wrong = take(stream, call, comm, explanation, bytes);
    if (wrong)
        return wrong;
    call->resolved.stored = stream->input.dense ? COLL_DENSE : stream->input.rows * stream->input.run;
    return NULL;
}

/* Check the dense result, the only buffer that the caller may pass for it. Allocate one if the caller wants it and
 * passes none. */
static const char *buffers_wrong(const struct coll_call *call, const struct pici_comm *comm)
{
    struct stream_call *stream = call->args.stream;
    struct pici_stream_out *out = stream->out;
    const struct pici_stream *in = &stream->in;
    const uint64_t width = stream->width, result = out->dense ? out->n * width : 0;
    const int reads = call->args.kind != PICI_BROADCAST || comm->rank == call->args.root;
    stream->dense = out->dense;
    if (reads && (pici_overlap(out->dense, result, in->dense, in->dense ? in->n * width : 0) ||
                  pici_overlap(out->dense, result, in->indices, in->nnz * (uint64_t)in->index_width) ||
                  pici_overlap(out->dense, result, in->values, in->nnz * in->run * width)))
        return "the result overlaps a buffer of the stream: use separate buffers";
    if (out->want != PICI_STREAM_DENSE || !out->n || stream->dense)
        return NULL;
    const size_t bytes = (size_t)(out->n * stream->width);
    stream->dense = out->allocate ? out->allocate(out->context, bytes) : malloc(bytes);
    out->owned = stream->dense && !out->allocate;
    stream->no_memory = !stream->dense;
    return stream->dense ? NULL : "no memory for the result";
}

/* ---- after the ranks have agreed */

/* From 7% of its elements on, a pass over a whole slice is cheaper than lists, on CPUs with AVX-512. The default is not
 * a sixteenth, since sums of rows at regular places often have exactly that density. */
static float threshold_of(const struct pici_comm *comm)
{
    const float usual = 0.93F, measured = pici_tune_threshold(&comm->chooser->tune, TUNE_STREAM),
                set = comm->settings.stream_threshold;
    if (set >= 0)
        return set;
    return measured >= 0 ? measured : usual;
}

/* Make the pieces of the layout. */
static enum pici_status make_pieces(struct stream_call *stream, struct pici_comm *comm, const struct coll_call *call)
{
    const struct coll_layout *layout = &call->resolved.layout;
    const uint64_t window = (uint64_t)layout->window, segments = (uint64_t)layout->segments,
                   sums = (uint64_t)layout->limits.sums;
    uint64_t longest = 0, results;
    for (int i = 0; i < layout->segments; i++) {
        const uint64_t elements = pici_coll_segment(comm, call, i).count;
        longest = elements > longest ? elements : longest;
    }
    /* a single rank has no slices to send */
    stream->slices = layout->slices ? layout->slices : longest / layout->slice + (longest % layout->slice != 0);
    stream->segments = layout->segments;
    stream->sums = layout->limits.sums;
    results = segments * stream->slices;
    const uint64_t all = window * segments + window * sums + results;
    if (results / segments != stream->slices || all > SIZE_MAX / 2 / sizeof *stream->sent)
        return PICI_E_NOMEM;
    stream->pieces = pici_stream_pieces_new(comm, (size_t)all, stream->width);
    if (!stream->pieces)
        return PICI_E_NOMEM;
    stream->sent = stream->pieces->piece;
    stream->slots = stream->sent + window * segments;
    stream->results = stream->slots + window * sums;
    stream->most = call->resolved.fill ? call->resolved.fill : UINT64_MAX;
    stream->longest = layout->block;
    stream->base = 0;
    if (call->args.kind == PICI_REDUCE_SCATTER)
        stream->base = pici_coll_segment(comm, call, comm->virtual_rank).first;
    stream->threshold = threshold_of(comm);
    const unsigned lists = 1u << PICI_COO | 1u << PICI_HYBRID;
    stream->formats = call->opts.formats & lists ? call->opts.formats & lists : lists;
    if (call->opts.format == PICI_COO || call->opts.format == PICI_HYBRID)
        stream->formats = 1u << call->opts.format;
    for (int i = 0; i < layout->segments && stream->dense; i++)
        for (uint64_t slice = 0; slice < stream->slices; slice++) {
            const struct coll_span span = pici_coll_slice(comm, call, i, slice);
            if (!span.count || (call->args.kind == PICI_REDUCE_SCATTER && i != comm->virtual_rank))
                continue;
            struct stream_piece *piece = &stream->results[(uint64_t)i * stream->slices + slice];
            if (piece->room)
                free(piece->dense);
            piece->room = 0;
            piece->kind = PIECE_DENSE;
            piece->count = span.count;
            piece->dense = stream->dense + (span.first - stream->base) * stream->width;
        }
    return PICI_OK;
}

/* A sum has at most all ranks' elements. */
static void resolve_fill(struct coll_call *call, const struct pici_comm *comm)
{
    struct call_resolved *resolved = &call->resolved;
    resolved->fill = 0;
    if (resolved->stored == COLL_DENSE || !resolved->total)
        return;
    if (!fmt_muladd(&resolved->fill, resolved->stored, (uint64_t)comm->ranks, 0) || resolved->fill >= resolved->total)
        resolved->fill = resolved->total;
    if (!resolved->fill)
        resolved->fill = 1;
}

static enum pici_status prepare(struct pici_request *request)
{
    struct coll_call *call = &request->call;
    struct pici_comm *comm = request->comm;
    call->resolved.stored = request->agree.stored;
    resolve_fill(call, comm);
    pici_packing_resolve(request);
    enum pici_status status = pici_request_room(request);
    if (!status && call->resolved.layout.slice > UINT64_C(1) << 32) {
        pici_coll_note(comm, "rank %d: slices of more than 2^32 elements, beside a stream", comm->rank);
        return PICI_E_UNSUPPORTED;
    }
    if (!status)
        status = make_pieces(stream_of(request), comm, call);
    if (status == PICI_E_NOMEM)
        pici_coll_note(comm, "rank %d: no memory for the call", comm->rank);
    return status;
}

/* ---- pieces instead of addresses */

static void *result_at(const struct pici_request *request, int segment, uint64_t first_element)
{
    struct stream_call *stream = stream_of(request);
    const struct coll_span all = pici_coll_segment(request->comm, &request->call, segment),
                           first = pici_coll_slice(request->comm, &request->call, segment, 0);
    const uint64_t offset = first_element - all.first, slice = first.count ? offset / first.count : 0;
    return offset < all.count ? &stream->results[(uint64_t)segment * stream->slices + slice] : &stream->nothing;
}

static const void *contribution_at(const struct pici_request *request, const struct slice_run *slice_run, int segment,
                                   struct coll_span span)
{
    struct stream_call *stream = stream_of(request);
    const struct coll_call *call = &request->call;
    struct stream_piece *piece = &stream->sent[(slice_run - request->runs) * stream->segments + segment];
    const uint64_t base =
        call->args.kind == PICI_ALL_GATHER ? pici_coll_segment(request->comm, call, segment).first : 0;
    piece->kind = PIECE_SENT;
    piece->first = span.first - base;
    piece->count = span.count;
    return piece;
}

static void *slot_at(const struct pici_request *request, const struct slice_run *slice_run, int slot)
{
    struct stream_call *stream = stream_of(request);
    return &stream->slots[(slice_run - request->runs) * stream->sums + slot];
}

/* Place the root's own data in the result, by value without signs of zeros. */
static void place_root(struct pici_request *request, const struct slice_run *slice_run)
{
    const struct coll_call *call = &request->call;
    for (int i = 0; i < layout_of(request)->segments && request->comm->rank == call->args.root; i++) {
        const struct coll_span span = pici_coll_slice(request->comm, call, i, slice_run->slice);
        pici_slice_own(request, slice_run->queue, result_at(request, i, span.first),
                       contribution_at(request, slice_run, i, span), span.count);
    }
}

static void place_alone(struct pici_request *request)
{
    struct slice_run *slice_run = &request->runs[0];
    for (uint64_t slice = 0; slice < stream_of(request)->slices; slice++) {
        const struct coll_span span = pici_coll_slice(request->comm, &request->call, 0, slice);
        pici_slice_own(request, slice_run->queue, result_at(request, 0, span.first),
                       contribution_at(request, slice_run, 0, span), span.count);
    }
}

/* ---- the end */

static enum pici_status finish(struct pici_request *request)
{
    return pici_stream_finish(stream_of(request), request->comm, &request->call);
}

static const struct call_rules rules = {.algorithms = 1,
                                        .count = count,
                                        .buffers_wrong = buffers_wrong,
                                        .lay_out = pici_layout_choose,
                                        .prepare = prepare,
                                        .segment = pici_layout_segment,
                                        ORDINARY_BUFFERS,
                                        .place_own = pici_ordinary_place_own,
                                        .receive_part = pici_receive_part,
                                        .choice = 1,
                                        .result_at = result_at,
                                        .contribution_at = contribution_at,
                                        .slot_at = slot_at,
                                        .place_alone = place_alone,
                                        .finish = finish};
static const struct call_rules of_broadcast = {.algorithms = 1,
                                               .count = count,
                                               .buffers_wrong = buffers_wrong,
                                               .lay_out = pici_layout_choose,
                                               .prepare = prepare,
                                               .segment = pici_layout_segment,
                                               ORDINARY_BUFFERS,
                                               .place_own = place_root,
                                               .receive_part = pici_receive_part,
                                               .result_at = result_at,
                                               .contribution_at = contribution_at,
                                               .slot_at = slot_at,
                                               .place_alone = place_alone,
                                               .finish = finish};

/* ---- the public functions */

/* Fill in a call that is not queued yet, and empty the result. */
static enum pici_status fill(struct stream_call *stream, struct call_args *args, enum pici_collective kind,
                             const struct pici_stream *in, struct pici_stream_out *out, enum pici_dtype dtype,
                             enum pici_op op, int root, const struct pici_comm *comm)
{
    const struct pici_stream defaults = PICI_STREAM_INIT;
    stream->in = defaults;
    enum pici_status status = sized_read(&stream->in, sizeof stream->in, sizeof stream->in, in);
    if (!status && stream->in.reserved)
        status = PICI_E_UNSUPPORTED;
    *args = (struct call_args){.rules = kind == PICI_BROADCAST ? &of_broadcast : &rules,
                               .kind = kind,
                               .count = stream->in.n,
                               .dtype = dtype,
                               .op = op,
                               .root = root,
                               .stream = stream};
    stream->out = out;
    if (out->want != PICI_STREAM_DENSE)
        out->dense = NULL;
    stream->given = out->dense;
    out->indices = out->values = NULL;
    out->nnz = 0;
    out->owned = 0;
    if (kind == PICI_REDUCE_SCATTER) {
        const uint64_t ranks = (uint64_t)comm->ranks;
        args->count = stream->in.n / ranks;
        stream->odd = stream->in.n % ranks != 0;
    }
    return status;
}

/* Refuses a result with members of a later version. */
static enum pici_status check_pointers(const struct pici_stream *in, const struct pici_stream_out *out,
                                       const struct pici_comm *comm)
{
    struct pici_stream_out known;
    return in && out && comm ? sized_read(&known, sizeof known, sizeof known, out) : PICI_E_ARG;
}

static enum pici_status start(enum pici_collective kind, const struct pici_stream *in, struct pici_stream_out *out,
                              enum pici_dtype dtype, enum pici_op op, int root, struct pici_comm *comm,
                              const struct pici_coll_opts *options, struct pici_request **request)
{
    if (request)
        *request = NULL;
    enum pici_status status = request ? check_pointers(in, out, comm) : PICI_E_ARG;
    if (status)
        return status;
    struct stream_call *stream = calloc(1, sizeof *stream);
    struct call_args args;
    if (!stream)
        return PICI_E_NOMEM;
    status = fill(stream, &args, kind, in, out, dtype, op, root, comm);
    if (!status)
        status = pici_call_start(args, comm, options, request);
    if (status) /* it was not queued */
        pici_stream_close(stream, NULL, PICI_OK);
    return status;
}

/* Allocates nothing before the call is queued: that could fail on this rank alone. */
static enum pici_status call(enum pici_collective kind, const struct pici_stream *in, struct pici_stream_out *out,
                             enum pici_dtype dtype, enum pici_op op, int root, struct pici_comm *comm,
                             const struct pici_coll_opts *options)
{
    struct stream_call stream = {.lent = 1};
    struct call_args args;
    struct pici_coll_opts checked;
    enum pici_status status = check_pointers(in, out, comm);
    if (status)
        return status;
    status = fill(&stream, &args, kind, in, out, dtype, op, root, comm);
    if (!status)
        status = pici_options_check(&checked, comm, &args, options);
    return status ? status : pici_call_wait(args, comm, options);
}

enum pici_status pici_all_reduce_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                        enum pici_dtype dtype, enum pici_op op, struct pici_comm *comm,
                                        const struct pici_coll_opts *options)
{
    return call(PICI_ALL_REDUCE, in, out, dtype, op, 0, comm, options);
}

enum pici_status pici_all_reduce_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                              enum pici_dtype dtype, enum pici_op op, struct pici_comm *comm,
                                              const struct pici_coll_opts *options, struct pici_request **request)
{
    return start(PICI_ALL_REDUCE, in, out, dtype, op, 0, comm, options, request);
}

enum pici_status pici_reduce_scatter_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                            enum pici_dtype dtype, enum pici_op op, struct pici_comm *comm,
                                            const struct pici_coll_opts *options)
{
    return call(PICI_REDUCE_SCATTER, in, out, dtype, op, 0, comm, options);
}

enum pici_status pici_reduce_scatter_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                                  enum pici_dtype dtype, enum pici_op op, struct pici_comm *comm,
                                                  const struct pici_coll_opts *options, struct pici_request **request)
{
    return start(PICI_REDUCE_SCATTER, in, out, dtype, op, 0, comm, options, request);
}

enum pici_status pici_all_gather_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                        enum pici_dtype dtype, struct pici_comm *comm,
                                        const struct pici_coll_opts *options)
{
    return call(PICI_ALL_GATHER, in, out, dtype, PICI_SUM, 0, comm, options);
}

enum pici_status pici_all_gather_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                              enum pici_dtype dtype, struct pici_comm *comm,
                                              const struct pici_coll_opts *options, struct pici_request **request)
{
    return start(PICI_ALL_GATHER, in, out, dtype, PICI_SUM, 0, comm, options, request);
}

enum pici_status pici_broadcast_stream(const struct pici_stream *in, struct pici_stream_out *out, enum pici_dtype dtype,
                                       int root, struct pici_comm *comm, const struct pici_coll_opts *options)
{
    return call(PICI_BROADCAST, in, out, dtype, PICI_SUM, root, comm, options);
}

enum pici_status pici_broadcast_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                             enum pici_dtype dtype, int root, struct pici_comm *comm,
                                             const struct pici_coll_opts *options, struct pici_request **request)
{
    return start(PICI_BROADCAST, in, out, dtype, PICI_SUM, root, comm, options, request);
}
