/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All-to-all of runs with different lengths. The call agreement yields the length of the longest run, which determines
 * the number of slices. Each rank cuts each run evenly into that many slices. Every run, even an empty one, has a block
 * in each slice, so ranks exchange the same messages for any counts. The receiver detects counts that do not match, and
 * the status agreement names the ranks. */
#include <inttypes.h>
#include <stdio.h>

#include "codec/codec.h"
#include "coll/call.h"
#include "coll/mismatch.h"
#include "coll/ordinary.h"
#include "coll/packing.h"
#include "coll/receive.h"
#include "format.h"
#include "schedule/alltoall.h"

/* ---- runs */

/* The runs that one side of a call has for each rank. `packed` has the places of runs without displacements; it is NULL
 * until the call has its tables. */
struct side {
    const char *counts_name, *displs_name;
    const uint64_t *counts, *displs, *packed;
};

static struct side side_of(const struct coll_call *call, const struct pici_comm *comm, int receives)
{
    const struct call_args *args = &call->args;
    const uint64_t *packed = call->resolved.packed;
    if (receives)
        return (struct side){"recvcounts", "rdispls", args->recvcounts, args->displs,
                             packed ? packed + comm->ranks : NULL};
    return (struct side){"sendcounts", "sdispls", args->sendcounts, args->sdispls, packed};
}

/* Ignores the displacement of an empty run: the caller may pass any. */
static struct coll_span run_of(const struct side *side, int rank)
{
    struct coll_span span = {0, side->counts[rank]};
    if (span.count)
        span.first = side->displs ? side->displs[rank] : side->packed[rank];
    return span;
}

/* The range from the first to the last element of all runs of a side. Works before the call has its tables. */
static struct coll_span extent_of(const struct side *side, int ranks)
{
    uint64_t first = UINT64_MAX, end = 0, packed = 0;
    for (int i = 0; i < ranks; packed += side->counts[i++]) {
        const uint64_t begin = side->displs ? side->displs[i] : packed;
        if (!side->counts[i])
            continue;
        first = begin < first ? begin : first;
        end = begin + side->counts[i] > end ? begin + side->counts[i] : end;
    }
    return end ? (struct coll_span){first, end - first} : (struct coll_span){0, 0};
}

/* ---- before the ranks have agreed */

/* Check the runs of a side. Sets *sum to the sum of their counts, and raises *longest to the longest run. Returns an
 * error message or NULL. */
static const char *add_up(const struct side *side, int ranks, uint64_t most, uint64_t *sum, uint64_t *longest,
                          char *explanation, size_t bytes)
{
    *sum = 0;
    if (!side->counts) {
        snprintf(explanation, bytes, "%s is null", side->counts_name);
        return explanation;
    }
    for (int i = 0; i < ranks; *sum += side->counts[i++]) {
        const uint64_t count = side->counts[i], begin = side->displs && count ? side->displs[i] : *sum;
        if (begin > most || count > most - begin || count > most - *sum) {
            snprintf(explanation, bytes,
                     "%s[%d] and %s[%d]: %" PRIu64 " elements at %" PRIu64 " exceed the address space",
                     side->counts_name, i, side->displs_name, i, count, begin);
            return explanation;
        }
        *longest = count > *longest ? count : *longest;
    }
    return NULL;
}

static const char *count(struct coll_call *call, const struct pici_comm *comm, char *explanation, size_t bytes)
{
    struct call_resolved *resolved = &call->resolved;
    const struct side sent = side_of(call, comm, 0), received = side_of(call, comm, 1);
    const uint64_t most = SIZE_MAX / 2 / resolved->width < COLL_LONGEST ? SIZE_MAX / 2 / resolved->width : COLL_LONGEST;
    uint64_t sum, longest = 0;
    call->opts.scratch = NULL;
    call->args.count = resolved->total = resolved->longest = 0;
    resolved->said = (struct call_said){.kind = PICI_ALL_TO_ALLV};
    resolved->agreement = AGREE_LONGEST;
    const char *wrong = add_up(&sent, comm->ranks, most, &sum, &longest, explanation, bytes);
    if (!wrong)
        wrong = add_up(&received, comm->ranks, most, &sum, &longest, explanation, bytes);
    if (!wrong && sent.counts[comm->rank] != received.counts[comm->rank]) {
        snprintf(explanation, bytes, "sendcounts[%d] is %" PRIu64 " on rank %d itself, and recvcounts[%d] is %" PRIu64,
                 comm->rank, sent.counts[comm->rank], comm->rank, comm->rank, received.counts[comm->rank]);
        wrong = explanation;
    }
    if (wrong)
        return wrong;
    const struct coll_span in = extent_of(&sent, comm->ranks), out = extent_of(&received, comm->ranks);
    call->args.count = in.first + in.count;
    resolved->total = out.first + out.count;
    resolved->longest = longest;
    return NULL;
}

static const char *buffers_wrong(const struct coll_call *call, const struct pici_comm *comm)
{
    const struct side sent = side_of(call, comm, 0), received = side_of(call, comm, 1);
    const struct coll_span in = extent_of(&sent, comm->ranks), out = extent_of(&received, comm->ranks);
    const size_t width = call->resolved.width;
    const char *null = pici_coll_null(call);
    if (null)
        return null;
    if (received.displs && pici_layout_overlap(received.counts, received.displs, comm->ranks))
        return "runs overlap in the receive buffer";
    if (in.count && out.count &&
        pici_overlap(call->args.send + in.first * width, in.count * width, call->args.recv + out.first * width,
                     out.count * width))
        return "the send and receive buffers overlap: an all-to-all is not possible in place";
    return NULL;
}

/* ---- the layout */

static enum pici_status lay_out(struct coll_layout *layout, const struct pici_comm *comm, const struct coll_call *call)
{
    const struct schedule_call shape = pici_layout_shape(comm, call);
    const size_t width = call->resolved.width;
    const uint64_t longest = call->resolved.longest, unit = call->opts.values.codec->unit(&call->opts.values);
    const struct schedule *schedule = pici_alltoall_choose(&shape, longest * width);
    *layout = (struct coll_layout){.schedule = schedule,
                                   .segments = pici_alltoall_segments(schedule, &shape),
                                   .shape = shape,
                                   .temp = COLL_TEMP_BYTES,
                                   .choice = {.seconds = -1}};
    struct schedule_limits *most = &layout->limits;
    schedule->limits(schedule, &shape, most);
    layout->steps = schedule->steps(schedule, &shape);

    /* divide the bytes of a slice by the number of messages in a step, unless that makes messages too short */
    const uint64_t peers = (uint64_t)(most->receives ? most->receives : 1), worth = LAYOUT_SLICES_WORTH / width;
    const uint64_t asked = call->opts.slice_bytes / width, shared = asked / peers > worth ? asked / peers : worth;
    uint64_t slice = longest / (uint64_t)call->opts.window;
    slice = slice > worth ? slice : worth;
    slice = slice < shared ? slice : shared;
    layout->slice = pici_layout_units(slice < asked ? slice : asked, unit);
    layout->slices = layout->steps ? longest / layout->slice + (longest % layout->slice != 0) : 0;
    layout->unit = layout->slices > 1 ? LAYOUT_PART : 0;
    layout->window = pici_layout_window(call, layout->slices);
    layout->block = pici_policy_longest(call->args.dtype, layout->slice < longest ? layout->slice : longest);
    layout->buffers = layout->window * (most->receives + most->sends + most->kept);
    uint64_t message, messages;
    if (!layout->block || !fmt_muladd(&message, layout->block, (uint64_t)most->segments, MSG_BYTES + COLL_ALIGN - 1) ||
        !fmt_muladd(&messages, message &= ~(uint64_t)(COLL_ALIGN - 1), (uint64_t)layout->buffers, 0) ||
        messages > SIZE_MAX / 2)
        return PICI_E_ARG;
    layout->message = (size_t)message;
    layout->messages = layout->slices ? (size_t)messages : 0;
    return PICI_OK;
}

static enum pici_status prepare(struct pici_request *request)
{
    pici_packing_resolve(request);
    return pici_request_room(request);
}

/* A rank does not know the length of a run that it passes on, so it assumes the longest. */
static struct coll_span segment(const struct coll_layout *layout, const struct pici_comm *comm,
                                const struct coll_call *call, int segment)
{
    const int p = comm->ranks;
    (void)layout;
    if (segment >= 2 * p)
        return (struct coll_span){0, call->resolved.longest};
    const struct side side = side_of(call, comm, segment >= p);
    return run_of(&side, comm->order[segment % p]);
}

/* ---- elements */

/* Copy a rank's run for itself, which no message carries. */
static void place_own(struct pici_request *request, const struct slice_run *slice_run)
{
    const struct coll_call *call = &request->call;
    const struct pici_comm *comm = request->comm;
    const size_t width = call->resolved.width;
    const struct coll_span in = pici_coll_slice(comm, call, comm->virtual_rank, slice_run->slice),
                           out = pici_coll_slice(comm, call, comm->ranks + comm->virtual_rank, slice_run->slice);
    if (out.count)
        request->engine->copy(slice_run->queue, call->args.recv + out.first * width, call->args.send + in.first * width,
                              out.count, call->args.dtype);
}

static void place_alone(struct pici_request *request)
{
    const struct coll_span in = pici_coll_segment(request->comm, &request->call, 0),
                           out = pici_coll_segment(request->comm, &request->call, 1);
    const size_t width = request->call.resolved.width;
    if (out.count)
        request->engine->copy(request->runs[0].queue, request->call.args.recv + out.first * width,
                              request->call.args.send + in.first * width, out.count, request->call.args.dtype);
}

static const void *contribution_at(const struct pici_request *request, const struct slice_run *slice_run, int segment,
                                   struct coll_span span)
{
    const struct coll_call *call = &request->call;
    (void)slice_run, (void)segment;
    return span.count ? call->args.send + span.first * call->resolved.width
                      : request->room.messages; /* no elements: any valid pointer */
}

/* A rank that passes a block on reads only its header. */
static enum pici_status receive_part(struct pici_request *request, struct slice_run *slice_run,
                                     enum schedule_action action, struct coll_part *part)
{
    const struct coll_call *call = &request->call;
    const struct coll_layout *layout = layout_of(request);
    const struct pici_comm *comm = request->comm;
    struct pici_block *parsed = &part->block[0];
    (void)action;
    enum pici_status status = pici_block_parse(
        parsed, request->engine->head(slice_run->queue, part->number, part->offset), part->remaining, NULL);
    if (!status && (parsed->dtype != (unsigned)call->args.dtype || parsed->layout.block_bytes > part->remaining ||
                    parsed->layout.block_bytes > layout->block || parsed->count > layout->slice))
        status = PICI_E_CORRUPT;
    if (!status && parsed->format == PICI_PACKED && !request->engine->packs)
        status = PICI_E_UNSUPPORTED;
    if (status)
        return status;
    part->blocks = (struct coll_blocks){.first = part->bytes,
                                        .sizes = {(size_t)parsed->layout.block_bytes},
                                        .format = {(enum pici_format)parsed->format},
                                        .count = 1};
    if (part->segment >= 2 * comm->ranks) {
        part->span.count = parsed->count;
        return PICI_OK;
    }
    if (parsed->count != part->span.count) {
        pici_mismatch_found(request, comm->order[part->segment - comm->ranks],
                            layout->slices == 1 ? parsed->count : UINT64_MAX);
        return PICI_E_PEER;
    }
    return request->engine->decode(slice_run->queue,
                                   parsed->count ? call->args.recv + part->span.first * call->resolved.width
                                                 : request->room.messages,
                                   part->bytes, parsed, call->resolved.total);
}

static const struct call_rules rules = {.unrelated = 1,
                                        .count = count,
                                        .buffers_wrong = buffers_wrong,
                                        .lay_out = lay_out,
                                        .prepare = prepare,
                                        .segment = segment,
                                        ORDINARY_BUFFERS,
                                        .place_own = place_own,
                                        .result_at = pici_slice_result_at,
                                        .contribution_at = contribution_at,
                                        .slot_at = pici_slice_slot_at,
                                        .place_alone = place_alone,
                                        .receive_part = receive_part,
                                        .finish = pici_slice_finish};

/* ---- the public functions */

static struct call_args make_call(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls, void *recv,
                                  const uint64_t *recvcounts, const uint64_t *rdispls, enum pici_dtype dtype)
{
    return (struct call_args){.rules = &rules,
                              .kind = PICI_ALL_TO_ALLV,
                              .send = send,
                              .recv = recv,
                              .dtype = dtype,
                              .sendcounts = sendcounts,
                              .sdispls = sdispls,
                              .recvcounts = recvcounts,
                              .displs = rdispls};
}

enum pici_status pici_all_to_allv(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls, void *recv,
                                  const uint64_t *recvcounts, const uint64_t *rdispls, enum pici_dtype dtype,
                                  struct pici_comm *comm, const struct pici_coll_opts *options)
{
    return pici_call_wait(make_call(send, sendcounts, sdispls, recv, recvcounts, rdispls, dtype), comm, options);
}

enum pici_status pici_all_to_allv_start(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls,
                                        void *recv, const uint64_t *recvcounts, const uint64_t *rdispls,
                                        enum pici_dtype dtype, struct pici_comm *comm,
                                        const struct pici_coll_opts *options, struct pici_request **request)
{
    return pici_call_start(make_call(send, sendcounts, sdispls, recv, recvcounts, rdispls, dtype), comm, options,
                           request);
}
