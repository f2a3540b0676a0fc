/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of a neighbourhood all-gather. A tag in its messages shows whether ranks make the same call. There is a
 * call agreement only if the ranks do not know the longest contribution, which it finds. The ranks agree on the status
 * only if the caller wants that. A rank encodes its contribution as a message to itself, and all messages forward
 * blocks. A rank decodes a received block into each slot of its owner. Messages differ much in length, so each has its
 * own buffer. */
#include <inttypes.h>
#include <stdio.h>

#include "bytes.h"
#include "codec/codec.h"
#include "coll/agree.h"
#include "coll/neighbor.h"
#include "coll/note.h"
#include "coll/packing.h"
#include "coll/slice.h"
#include "coll/receive.h"
#include "format.h"
#include "predict/neighbor.h"
#include "xxh64.h"

enum {
    NUMBER_MASK = 0xff, /* of a plan's number, in messages */
    MEMORY = 64 << 20   /* bytes for messages, unless slices of one tile take more */
};

/* ---- slots */

/* The number of elements that slot i expects, and the place of the first in the receive buffer. Ignores the
 * displacement of an empty slot. */
static uint64_t slot_of(const struct call_args *args, int i, uint64_t *first_element)
{
    const uint64_t count = args->varied ? args->recvcounts[i] : args->count;
    *first_element = 0;
    if (count)
        *first_element = args->varied ? args->displs[i] : (uint64_t)i * args->count;
    return count;
}

/* Where slot i receives this slice, and its number of elements. */
static uint8_t *slice_of_slot(const struct pici_request *request, const struct slice_run *slice_run, int i,
                              uint64_t *count)
{
    const struct call_args *args = &request->call.args;
    const uint64_t each = layout_of(request)->slice, skip = slice_run->slice * each;
    uint64_t first_element, len = slot_of(args, i, &first_element);
    const uint64_t offset = skip < len ? skip : len;
    *count = len - offset < each ? len - offset : each;
    return args->recv ? args->recv + (first_element + offset) * request->call.resolved.width : NULL;
}

/* ---- before any message */

/* Set the total: the elements of the receive buffer, whose slots need not be contiguous. */
static const char *count_slots(struct coll_call *call, uint64_t most, char *explanation, size_t bytes)
{
    const struct call_args *args = &call->args;
    call->resolved.total = 0;
    if (args->plan->sources && args->varied && (!args->recvcounts || !args->displs))
        return args->recvcounts ? "displs is null" : "recvcounts is null";
    for (int i = 0; i < args->plan->sources; i++) {
        uint64_t first_element, end;
        const uint64_t count = slot_of(args, i, &first_element);
        if (!fmt_muladd(&end, 1, first_element, count) || end > most) {
            snprintf(explanation, bytes,
                     "entry %d of the sources: %" PRIu64 " elements at %" PRIu64 " exceed the address space", i, count,
                     first_element);
            return explanation;
        }
        if (pici_values_count(&call->opts.values, count)) {
            snprintf(explanation, bytes, "entry %d of recvcounts, %" PRIu64 ", is not whole rows of the option values",
                     i, count);
            return explanation;
        }
        call->resolved.total = end > call->resolved.total ? end : call->resolved.total;
    }
    return NULL;
}

/* Also sets the longest contribution, if it is known. */
static const char *count(struct coll_call *call, const struct pici_comm *comm, char *explanation, size_t bytes)
{
    const struct call_args *args = &call->args;
    struct call_resolved *resolved = &call->resolved;
    const uint64_t most = SIZE_MAX / 2 / resolved->width, allowed = args->plan->most_bytes;
    call->opts.scratch = NULL;
    resolved->said =
        (struct call_said){.kind = SAID_NEIGHBOR, .plan = args->plan->number, .op = args->plan->number & NUMBER_MASK};
    resolved->agreement = !args->varied || allowed ? AGREE_NONE : AGREE_LONGEST;
    resolved->closing = call->opts.agree;
    resolved->longest = args->varied && allowed ? allowed / resolved->width : args->count;
    if (args->plan->order_hash != comm->order_hash)
        snprintf(explanation, bytes, "the node map has changed since the plan was made");
    else if (args->count > most || args->count > COLL_LONGEST)
        snprintf(explanation, bytes, "count %" PRIu64 " exceeds the address space", args->count);
    else if (resolved->longest > most)
        snprintf(explanation, bytes, "the plan's most_bytes, %" PRIu64 ", exceeds the address space", allowed);
    else if (args->varied && allowed && args->count > resolved->longest)
        snprintf(explanation, bytes, "sendcount is %" PRIu64 ", and the plan's most_bytes allows %" PRIu64, args->count,
                 resolved->longest);
    else
        return count_slots(call, most, explanation, bytes);
    return explanation;
}

static const char *buffers_wrong(const struct coll_call *call, const struct pici_comm *comm)
{
    const struct call_args *args = &call->args;
    const size_t width = call->resolved.width;
    const uint8_t *residual = args->count ? call->opts.residual : NULL;
    const char *null = pici_coll_null(call);
    (void)comm;
    if (!null && residual && pici_overlap(residual, args->count * width, args->send, args->count * width))
        return "the residual overlaps a buffer";
    for (int i = 0; i < args->plan->sources && args->count && !null; i++) {
        uint64_t first_element, count = slot_of(args, i, &first_element);
        if (!count) /* then recv may be null, and the slot anywhere */
            continue;
        const uint8_t *slot = args->recv + first_element * width;
        if (pici_overlap(args->send, args->count * width, slot, count * width))
            return "the send and receive buffers overlap";
        if (residual && pici_overlap(residual, args->count * width, slot, count * width))
            return "the residual overlaps a buffer";
    }
    return null;
}

/* ---- the layout */

/* Predict the seconds of a call by a route, with slices of about the size that lay_out finds. */
static double route_seconds(const struct pici_neighbor_plan *plan, enum pici_route route, double bytes, int window,
                            uint64_t slice_bytes)
{
    const double widest = plan->widest[route] ? (double)plan->widest[route] : 1;
    double slices = bytes * widest / LAYOUT_SLICES_WORTH;
    slices = slices < window ? slices : window;
    slices = slices * (double)slice_bytes < bytes * widest ? bytes * widest / (double)slice_bytes : slices;
    return pici_neighbor_seconds(plan->routes[route], bytes, slices > 1 ? slices : 1, plan->bandwidth);
}

enum pici_route pici_neighbor_choose(const struct pici_neighbor_plan *plan, uint64_t bytes, int window,
                                     uint64_t slice_bytes)
{
    if (!plan->routes[PICI_ROUTE_HALVING] || !plan->routes[PICI_ROUTE_DIRECT])
        return plan->routes[PICI_ROUTE_HALVING] ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
    static const double margin = 1.2; /* for the prediction: steps that wait for each other take longer, if anything */
    const double halving = route_seconds(plan, PICI_ROUTE_HALVING, (double)bytes, window, slice_bytes),
                 direct = route_seconds(plan, PICI_ROUTE_DIRECT, (double)bytes, window, slice_bytes);
    return halving * margin <= direct ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
}

/* Bytes of memory for a message. */
static size_t room_of(const struct coll_layout *layout, const struct neighbor_message *m)
{
    const size_t blocks = m->again ? 0 : (size_t)m->count; /* else only poison is ever written there */
    return pici_layout_aligned(MSG_BYTES + blocks * layout->block);
}

enum slice_fit { SLICE_FITS, SLICE_TOO_LONG, SLICE_BEYOND_MEMORY };

/* The first slice length to try: one window of slices, unless that makes slices too short to pay, or longer than the
 * call allows. */
static uint64_t first_slice(const struct coll_call *call, uint64_t widest)
{
    const size_t width = call->resolved.width;
    const uint64_t least = LAYOUT_SLICES_WORTH / width / widest, most = call->opts.slice_bytes / width / widest;
    uint64_t slice = call->resolved.longest / (uint64_t)call->opts.window;
    slice = slice > least ? slice : least;
    return most < slice ? most : slice;
}

/* Cut contributions into slices of layout->slice elements, and check whether a rank's messages fit into memory. All
 * ranks know the needs of the rank that needs most. If shorter slices do not pay, reduces the window. */
static enum slice_fit try_slice(struct coll_layout *layout, const struct coll_call *call, uint64_t blocks,
                                uint64_t widest, uint64_t unit)
{
    const uint64_t longest = call->resolved.longest;
    const int shortest = layout->slice == unit;
    layout->slices = longest / layout->slice + (longest % layout->slice != 0);
    layout->window = pici_layout_window(call, layout->slices);
    layout->block = pici_layout_longest(call, layout->slice < longest ? layout->slice : longest);
    if (!layout->block || blocks > UINT64_MAX / COLL_MAX_WINDOW / layout->block)
        return SLICE_BEYOND_MEMORY;
    const uint64_t one = blocks * layout->block;
    if (shortest || layout->slice * call->resolved.width * widest <= LAYOUT_SLICES_WORTH)
        while (layout->window > 1 && one * (uint64_t)layout->window > MEMORY)
            layout->window--;
    const uint64_t bytes = one * (uint64_t)layout->window;
    if (shortest)
        return bytes > SIZE_MAX / 4 ? SLICE_BEYOND_MEMORY : SLICE_FITS;
    return bytes <= MEMORY ? SLICE_FITS : SLICE_TOO_LONG;
}

/* Slices as for other calls, but shorter, or fewer at a time, if the messages of a rank would take too much memory. */
static enum pici_status lay_out(struct coll_layout *layout, const struct pici_comm *comm, const struct coll_call *call)
{
    const struct pici_neighbor_plan *plan = call->args.plan;
    const size_t width = call->resolved.width;
    const enum pici_route route =
        pici_neighbor_choose(plan, call->resolved.longest * width, call->opts.window, call->opts.slice_bytes);
    const struct neighbor_route *chosen = plan->routes[route];
    const uint64_t widest = plan->widest[route] ? plan->widest[route] : 1;
    const uint64_t unit = call->opts.values.codec->unit(&call->opts.values);
    uint64_t messages = 0;
    *layout = (struct coll_layout){.schedule = &pici_schedule_neighbor,
                                   .segments = comm->ranks,
                                   .shape = pici_layout_shape(comm, call),
                                   .choice = {.seconds = -1}};
    layout->shape.route = chosen;
    layout->limits = chosen->limits;
    layout->steps = chosen->steps;
    layout->slice = pici_layout_units(first_slice(call, widest), unit);
    enum slice_fit fit;
    while ((fit = try_slice(layout, call, plan->blocks[route], widest, unit)) == SLICE_TOO_LONG)
        layout->slice = pici_layout_units(layout->slice / 2, unit);
    if (fit == SLICE_BEYOND_MEMORY || pici_layout_arrays(layout, call, 1)) /* a rank encodes its own contribution */
        return PICI_E_ARG;
    for (int i = 0; i < chosen->send_begin[chosen->steps]; i++)
        messages += room_of(layout, &chosen->send[i]);
    for (int i = 0; i < chosen->receive_begin[chosen->steps]; i++)
        messages += room_of(layout, &chosen->receive[i]);
    messages *= (uint64_t)layout->window;
    if (messages > SIZE_MAX / 2)
        return PICI_E_ARG;
    layout->messages = layout->slices ? (size_t)messages : 0;
    layout->buffers = layout->window * (chosen->send_begin[chosen->steps] + chosen->receive_begin[chosen->steps]);
    return PICI_OK;
}

/* A number in the call's messages that differs if the ranks do not make the same call. */
static uint32_t tag_of(const struct coll_call *call)
{
    const struct coll_layout *layout = &call->resolved.layout;
    uint8_t bytes[48], values[AGREE_CALL_BYTES] = {0};
    store_le64(bytes, call->args.plan->hash);
    store_le64(bytes + 8, call->args.plan->number);
    store_le64(bytes + 16, call->resolved.longest);
    store_le64(bytes + 24, layout->slice);
    store_le64(bytes + 32, (uint64_t)layout->window << 32 | (uint64_t)call->args.dtype << 8 |
                               (unsigned)call->args.varied << 1 | (unsigned)call->opts.agree);
    store_le64(bytes + 40, (uint64_t)layout->steps);
    if (call->opts.values.phases)
        pici_agree_values(values, &call->opts.values);
    return (uint32_t)pici_xxh64(bytes, sizeof bytes,
                                call->opts.values.phases ? pici_xxh64(values, sizeof values, 0) : 0);
}

/* A rank that cannot begin cannot send poison either. A source of an all_gatherv cannot send more than the longest
 * contribution, so a larger entry of recvcounts is an error. Messages do not reveal it if the source's last slice is a
 * whole one, or if no rank sends anything. */
static enum pici_status prepare(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    enum pici_status s = call->resolved.unusable ? request->status : pici_request_room(request);
    if (s)
        return s;
    request->tag = tag_of(call);
    pici_packing_resolve(request);
    for (int i = 0; i < call->args.plan->sources && call->args.varied && !request->status; i++)
        if (call->args.recvcounts[i] > call->resolved.longest) {
            pici_coll_note(request->comm, "entry %d of recvcounts on rank %d is more than any rank sends", i,
                           request->comm->rank);
            pici_coll_fail(request, PICI_E_PEER, request->comm->rank);
        }
    return PICI_OK;
}

/* A rank that relays a contribution does not know its length, so it assumes the longest. */
static struct coll_span segment(const struct coll_layout *layout, const struct pici_comm *comm,
                                const struct coll_call *call, int segment)
{
    (void)layout;
    return (struct coll_span){0, segment == comm->virtual_rank ? call->args.count : call->resolved.longest};
}

/* ---- buffers: one for each message of each slice in flight, as long as that message may be */

/* The buffers of a step's messages: returns the first of *n. */
static struct coll_buffer *buffers_of(const struct pici_request *request, int run, int step, int receives, int *n)
{
    const struct neighbor_route *route = layout_of(request)->shape.route;
    const int sends = route->send_begin[route->steps], all = sends + route->receive_begin[route->steps];
    const int *begin = receives ? route->receive_begin : route->send_begin;
    *n = begin[step + 1] - begin[step];
    return request->buffers + run * all + (receives ? sends : 0) + begin[step];
}

static void set_buffers(struct pici_request *request, uint8_t *memory)
{
    const struct coll_layout *layout = layout_of(request);
    const struct neighbor_route *route = layout->shape.route;
    struct coll_buffer *buffer = request->buffers;
    for (int run = 0; run < layout->window; run++)
        for (int receives = 0; receives < 2; receives++) {
            const struct neighbor_message *m = receives ? route->receive : route->send;
            for (int i = 0; i < (receives ? route->receive_begin : route->send_begin)[route->steps]; i++, buffer++) {
                *buffer = (struct coll_buffer){.bytes = memory, .capacity = room_of(layout, &m[i])};
                memory += buffer->capacity;
            }
        }
}

/* The slice before may still have a buffer in flight. */
static int has_buffers(const struct pici_request *request, int run, int step, int receives)
{
    int n, free = 1;
    const struct coll_buffer *buffer = buffers_of(request, run, step, receives, &n);
    for (int i = 0; i < n; i++)
        free &= buffer[i].references == 0;
    return free;
}

static struct coll_buffer *acquire_buffer(struct pici_request *request, int run, int step, int receives, int message)
{
    int n;
    struct coll_buffer *buffer = buffers_of(request, run, step, receives, &n) + message;
    buffer->references = 1;
    buffer->flights = 0;
    return buffer;
}

static void free_buffer(struct pici_request *request, struct coll_buffer *buffer)
{
    (void)request, (void)buffer; /* without references it is free */
}

/* ---- elements */

static void place_own(struct pici_request *request, const struct slice_run *slice_run)
{
    const struct call_args *args = &request->call.args;
    const struct pici_neighbor_plan *plan = args->plan;
    const int own = request->comm->virtual_rank;
    const struct coll_span span = pici_coll_slice(request->comm, &request->call, own, slice_run->slice);
    for (int i = plan->slot_begin[own]; i < plan->slot_begin[own + 1]; i++) {
        uint64_t room;
        uint8_t *slot = slice_of_slot(request, slice_run, plan->slots[i], &room);
        if (room != span.count) {
            pici_coll_note(request->comm, "entry %d of recvcounts on rank %d is not its own count", plan->slots[i],
                           request->comm->rank);
            pici_coll_fail(request, PICI_E_PEER, request->comm->rank);
            return;
        }
        request->engine->copy(slice_run->queue, slot, args->send + span.first * request->call.resolved.width,
                              span.count, args->dtype);
    }
}

/* Like place_own, with the elements that the receivers will decode. */
static enum pici_status place_sent(struct pici_request *request, const struct slice_run *slice_run,
                                   const struct schedule_message *message, int i)
{
    const struct pici_neighbor_plan *plan = request->call.args.plan;
    const int own = request->comm->virtual_rank;
    enum pici_status status = PICI_OK;
    for (int slot = plan->slot_begin[own]; slot < plan->slot_begin[own + 1] && !status; slot++) {
        uint64_t count;
        uint8_t *elements = slice_of_slot(request, slice_run, plan->slots[slot], &count);
        status = pici_slice_dequantize_own(request, slice_run, message, i, STORE_PLACE, elements);
    }
    return status;
}

static enum pici_status another_count(const struct pici_request *request, const struct coll_part *part, int slot)
{
    pici_coll_note(request->comm, "rank %d sends another count than entry %d of recvcounts on rank %d",
                   request->comm->order[part->segment], slot, request->comm->rank);
    return PICI_E_PEER;
}

/* Receive the arrays of a lossy codec. A different count may give arrays of the same length. Then dequantizing them
 * finds the error, or nothing does. */
static enum pici_status receive_arrays(struct pici_request *request, struct slice_run *slice_run,
                                       struct coll_part *part)
{
    const struct pici_neighbor_plan *plan = request->call.args.plan;
    const struct values *values = &request->call.opts.values;
    const void *inputs[VALUES_ARRAYS] = {NULL};
    uint64_t input_counts[VALUES_ARRAYS] = {0};
    const int first = plan->slot_begin[part->segment], end = plan->slot_begin[part->segment + 1];
    enum pici_status status = pici_receive_parse(request, slice_run, part);
    if (!status && first < end)
        status = pici_receive_arrays(request, slice_run, part, inputs, input_counts);
    for (int i = first; i < end && !status; i++) {
        uint64_t count;
        uint8_t *slot = slice_of_slot(request, slice_run, plan->slots[i], &count);
        if (part->block[0].count != values->codec->most(values, 0, count))
            return another_count(request, part, plan->slots[i]);
        status = pici_slice_dequantize(request, slice_run, STORE_PLACE, slot, count, inputs, input_counts);
    }
    return status;
}

/* Decode a block into the first slot of its owner, and copy the elements to the others. */
static enum pici_status place_block(struct pici_request *request, struct slice_run *slice_run,
                                    const struct coll_part *part)
{
    const struct coll_call *call = &request->call;
    const struct pici_neighbor_plan *plan = call->args.plan;
    const struct pici_block *parsed = &part->block[0];
    const uint8_t *placed = NULL;
    const int first = plan->slot_begin[part->segment];
    for (int i = first; i < plan->slot_begin[part->segment + 1]; i++) {
        uint64_t count;
        uint8_t *slot = slice_of_slot(request, slice_run, plan->slots[i], &count);
        enum pici_status status = PICI_OK;
        if (parsed->count != count)
            return another_count(request, part, plan->slots[i]);
        if (i == first)
            status = request->engine->decode(slice_run->queue, slot, part->bytes, parsed, call->resolved.total);
        else
            request->engine->copy(slice_run->queue, slot, placed, count, call->args.dtype);
        if (status)
            return status;
        placed = i == first ? slot : placed;
    }
    return PICI_OK;
}

/* Check the header of a block, and place the block in all slots of its owner. A relay knows neither the lengths of
 * an all_gatherv's contributions nor the elements of a block. Rejects blocks longer than an encoder makes: buffers of
 * forwarded messages have no room for them. */
static enum pici_status receive_part(struct pici_request *request, struct slice_run *slice_run,
                                     enum schedule_action action, struct coll_part *part)
{
    const struct coll_call *call = &request->call;
    struct pici_block *parsed = &part->block[0];
    (void)action;
    if (slice_run->coded)
        return receive_arrays(request, slice_run, part);
    enum pici_status status = pici_block_parse(
        parsed, request->engine->head(slice_run->queue, part->number, part->offset), part->remaining, NULL);
    if (!status && (parsed->dtype != (unsigned)call->args.dtype || parsed->layout.block_bytes > part->remaining ||
                    parsed->layout.block_bytes > layout_of(request)->block ||
                    (call->args.varied ? parsed->count > part->span.count : parsed->count != part->span.count)))
        status = PICI_E_CORRUPT;
    if (!status && parsed->format == PICI_PACKED && !request->engine->packs)
        status = PICI_E_UNSUPPORTED; /* ranks do not tell each other whether they read packed blocks */
    if (status)
        return status;
    part->span.count = parsed->count;
    part->blocks = (struct coll_blocks){.first = part->bytes,
                                        .sizes = {(size_t)parsed->layout.block_bytes},
                                        .format = {(enum pici_format)parsed->format},
                                        .count = 1};
    return place_block(request, slice_run, part);
}

const struct call_rules pici_neighbor_rules = {.name = "neighbor-all-gather",
                                               .mismatch = "with another count, plan, dtype or option",
                                               .codecs = 1,
                                               .traces_blocks = 1,
                                               .count = count,
                                               .buffers_wrong = buffers_wrong,
                                               .lay_out = lay_out,
                                               .prepare = prepare,
                                               .segment = segment,
                                               .set_buffers = set_buffers,
                                               .has_buffers = has_buffers,
                                               .acquire_buffer = acquire_buffer,
                                               .free_buffer = free_buffer,
                                               .place_own = place_own,
                                               .place_sent = place_sent,
                                               .receive_part = receive_part,
                                               RULES_OF_MEMORY};
