/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/slice.h"

#include <string.h>

#include "coll/note.h"
#include "coll/rules.h"

/* ---- steps */

void pici_slice_step_at(const struct pici_request *request, int step, struct schedule_step *out)
{
    const struct coll_layout *layout = layout_of(request);
    layout->schedule->step(layout->schedule, &layout->shape, step, out);
}

const struct schedule_step *pici_slice_step(const struct pici_request *request, struct slice_run *slice_run)
{
    if (!slice_run->messages_known) {
        pici_slice_step_at(request, slice_run->step, &slice_run->messages);
        slice_run->messages_known = 1;
    }
    return &slice_run->messages;
}

/* ---- buffers of messages */

void pici_slice_buffers(struct pici_request *request, uint8_t *first, size_t pitch)
{
    for (int i = 0; i < layout_of(request)->buffers; i++) {
        request->buffers[i] =
            (struct coll_buffer){.bytes = first + (size_t)i * pitch, .capacity = layout_of(request)->message};
        request->free_buffers[request->free_count++] = &request->buffers[i];
    }
}

struct coll_buffer *pici_slice_take(struct pici_request *request)
{
    struct coll_buffer *buffer = request->free_buffers[--request->free_count];
    buffer->references = 1;
    buffer->flights = 0;
    return buffer;
}

void pici_slice_release(struct pici_request *request, struct coll_buffer *buffer)
{
    if (--buffer->references == 0)
        request->call.args.rules->free_buffer(request, buffer);
}

void pici_slice_let_go(struct pici_request *request, struct slice_run *slice_run, int segment)
{
    struct coll_buffer *buffer = slice_run->encoded[segment].message;
    slice_run->encoded[segment].message = NULL;
    if (buffer && buffer->references == 1 && buffer == slice_run->buffer_apart)
        slice_run->buffer_apart = NULL;
    if (buffer)
        pici_slice_release(request, buffer);
}

size_t pici_slice_bytes(const struct coll_blocks *blocks)
{
    size_t bytes = 0;
    for (int i = 0; i < blocks->count; i++)
        bytes += blocks->sizes[i];
    return bytes;
}

void pici_slice_keep(struct pici_request *request, struct slice_run *slice_run, int segment, struct coll_buffer *buffer,
                     const struct coll_blocks *blocks)
{
    buffer->references++;
    pici_slice_let_go(request, slice_run, segment);
    slice_run->encoded[segment] = (struct coll_encoded){.blocks = *blocks, .message = buffer};
}

/* Each segment in the buffer has one reference to it. The buffer has room for as many blocks as a message has, of any
 * size. */
void pici_slice_keep_apart(struct pici_request *request, struct slice_run *slice_run, int segment,
                           const struct coll_blocks *blocks)
{
    struct coll_blocks copy = *blocks;
    const size_t size = pici_slice_bytes(blocks);
    struct coll_buffer *buffer = slice_run->buffer_apart;
    if (!buffer || buffer->segments == layout_of(request)->limits.segments) {
        buffer = slice_run->buffer_apart = pici_slice_take(request);
        buffer->references = buffer->segments = 0;
        buffer->size = MSG_BYTES;
    }
    copy.first = buffer->bytes + buffer->size;
    request->engine->put(slice_run->queue, buffer->bytes + buffer->size, blocks->first, size);
    pici_slice_keep(request, slice_run, segment, buffer, &copy);
    buffer->size += size;
    buffer->segments++;
}

/* ---- sums
 *
 * A sum of floats is (+0) + a + b + ..., in the order of the algorithm, and so is never -0.0. It begins as (+0) + this
 * rank's own contribution: pici_slice_own. After that, if a sum d is not -0.0, no d + x is:
 * - If d + x is exactly 0, then x = -d, and their sum is +0; or d is +0 and x a zero of either sign: +0 again.
 * - If d + x is not 0, it is a multiple of the dtype's least denormal, so at least as large as that. Rounding keeps the
 *   order of numbers, and that denormal is a value of the dtype, and of f32 in which narrow floats are added. So the
 *   rounded sum is not 0 either.
 * Rounding is to nearest, and denormals are kept. Of an engine's other functions, only divide turns nonzeros into
 * zeros, and these are +0.0.
 *
 * x may be -0.0, which changes nothing. So a contribution may be sent with its -0.0, as dense messages are; sparse
 * ones leave them out, because they are shorter then. */

void pici_slice_begin(const struct pici_request *request, struct slice_run *slice_run, uint64_t slice)
{
    const struct coll_layout *layout = layout_of(request);
    slice_run->slice = slice;
    slice_run->step = slice_run->messages_known = 0;
    slice_run->buffer_apart = NULL;
    memset(slice_run->sum_slot, 0, (size_t)layout->segments * sizeof *slice_run->sum_slot);
    for (slice_run->free_slots = 0; slice_run->free_slots < layout->limits.sums; slice_run->free_slots++)
        slice_run->slots[slice_run->free_slots] = slice_run->free_slots;
    pici_policy_begin(&slice_run->history);
}

void *pici_slice_slot_at(const struct pici_request *request, const struct slice_run *slice_run, int slot)
{
    return slice_run->accumulated + (size_t)slot * layout_of(request)->slice * request->call.resolved.width;
}

uint8_t *pici_slice_result(const struct pici_request *request, int segment, uint64_t first_element)
{
    return request->call.args.rules->result_at(request, segment, first_element);
}

void *pici_slice_result_at(const struct pici_request *request, int segment, uint64_t first_element)
{
    const struct coll_call *call = &request->call;
    const uint64_t base =
        call->args.kind == PICI_REDUCE_SCATTER ? pici_coll_segment(request->comm, call, segment).first : 0;
    return call->args.recv + (first_element - base) * call->resolved.width;
}

const void *pici_slice_contribution_at(const struct pici_request *request, const struct slice_run *slice_run,
                                       int segment, struct coll_span span)
{
    const struct coll_call *call = &request->call;
    (void)slice_run;
    if (!coll_gathers(call->args.kind))
        return call->args.send + span.first * call->resolved.width;
    const struct coll_span own = pici_coll_segment(request->comm, call, segment);
    return own.count ? call->args.send + (span.first - own.first) * call->resolved.width
                     : call->args.recv; /* no elements: any valid pointer */
}

void pici_slice_place_alone(struct pici_request *request)
{
    const struct coll_span all = pici_coll_segment(request->comm, &request->call, 0);
    pici_slice_own(request, request->runs[0].queue, pici_slice_result(request, 0, all.first), request->call.args.send,
                   all.count);
}

enum pici_status pici_slice_finish(struct pici_request *request)
{
    (void)request;
    return PICI_OK;
}

uint64_t pici_slice_number(const struct pici_request *request, const struct slice_run *slice_run)
{
    return slice_run->slice | (uint64_t)request->tag << 32;
}

/* The address of an existing sum of a segment's slice. */
static uint8_t *sum_at(const struct pici_request *request, const struct slice_run *slice_run, int segment,
                       uint64_t first_element)
{
    const int where = slice_run->sum_slot[segment];
    return where == SUM_IN_RECV ? pici_slice_result(request, segment, first_element)
                                : request->call.args.rules->slot_at(request, slice_run, where - 1);
}

void pici_slice_own(const struct pici_request *request, struct pici_queue *queue, uint8_t *destination,
                    const uint8_t *source, uint64_t count)
{
    if (request->call.resolved.by_value)
        request->engine->positive_zeros(queue, destination, source, count, request->call.args.dtype,
                                        !coll_gathers(request->call.args.kind));
    else if (destination != source)
        request->engine->copy(queue, destination, source, count, request->call.args.dtype);
}

uint8_t *pici_slice_new_sum(const struct pici_request *request, struct slice_run *slice_run, int segment,
                            uint64_t first_element)
{
    const int in_recv = segment == request->comm->virtual_rank || layout_of(request)->limits.sums_in_recv;
    if (slice_run->sum_slot[segment] == SUM_NONE)
        slice_run->sum_slot[segment] = in_recv ? SUM_IN_RECV : 1 + slice_run->slots[--slice_run->free_slots];
    return sum_at(request, slice_run, segment, first_element);
}

uint8_t *pici_slice_sum(const struct pici_request *request, struct slice_run *slice_run, int segment,
                        struct coll_span span)
{
    const int new = slice_run->sum_slot[segment] == SUM_NONE;
    uint8_t *sum = pici_slice_new_sum(request, slice_run, segment, span.first);
    if (new)
        pici_slice_own(request, slice_run->queue, sum,
                       request->call.args.rules->contribution_at(request, slice_run, segment, span), span.count);
    return sum;
}

void pici_slice_pass_on(struct slice_run *slice_run, int segment)
{
    if (slice_run->sum_slot[segment] > 0) {
        slice_run->slots[slice_run->free_slots++] = slice_run->sum_slot[segment] - 1;
        slice_run->sum_slot[segment] = SUM_NONE;
    }
}

const uint8_t *pici_slice_source(const struct pici_request *request, const struct slice_run *slice_run, int segment,
                                 uint64_t *count)
{
    const struct coll_call *call = &request->call;
    const struct coll_span span = pici_coll_slice(request->comm, call, segment, slice_run->slice);
    const uint64_t first_element = span.first;
    *count = span.count;
    if (call->args.kind == PICI_BROADCAST) /* the root has it there, too */
        return pici_slice_result(request, segment, first_element);
    /* by value: in the result, without signs of zeros */
    if (coll_gathers(call->args.kind) && call->resolved.by_value)
        return pici_slice_result(request, segment, first_element);
    return coll_gathers(call->args.kind) || slice_run->sum_slot[segment] == SUM_NONE
               ? call->args.rules->contribution_at(request, slice_run, segment, span)
               : sum_at(request, slice_run, segment, first_element);
}

/* ---- tracing */

double pici_slice_now(const struct pici_request *request)
{
    return request->call.opts.stats || request->comm->trace ? pici_coll_now() : 0;
}

void pici_slice_trace(struct pici_request *request, const char *name, const struct slice_run *slice_run,
                      const struct schedule_message *message, size_t wire, const uint64_t *tiles)
{
    struct pici_comm *comm = request->comm;
    if (!comm->trace)
        return;
    const int peer = comm->order[message->peer];
    struct trace_event event = {.name = name,
                                .begin = slice_run->begin,
                                .end = pici_coll_now(),
                                .sequence = request->sequence,
                                .phase = (int)slice_run->messages.phase,
                                .step = slice_run->step,
                                .slice = (int)slice_run->slice,
                                .peer = peer,
                                .inter = comm->node_of[peer] != comm->node_of[comm->rank],
                                .format = (int)slice_run->format,
                                .density = slice_run->density,
                                .extrapolated = slice_run->extrapolated,
                                .dense_bytes = slice_run->dense_bytes,
                                .wire_bytes = wire,
                                .values = slice_run->coded ? request->call.opts.values.codec->name : NULL};
    if (tiles)
        memcpy(event.tiles, tiles, sizeof event.tiles);
    if (request->call.args.rules->traces_blocks) {
        event.blocks = message->count;
        event.segments = message->segments;
        event.order = comm->order;
    }
    pici_trace_add(comm->trace, &event);
}

/* ---- stages */

int pici_slice_ready(const struct pici_request *request, const struct slice_run *slice_run, enum pici_status *status)
{
    int done;
    *status = request->engine->ready(slice_run->queue, &done);
    return done;
}

void pici_slice_sent(struct slice_run *slice_run)
{
    slice_run->stage = STAGE_REST;
    slice_run->sent = 1;
    slice_run->message = 0;
}
