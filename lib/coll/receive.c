/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processing the messages that a slice receives in a step: checks them, then decodes, reduces or keeps their
 * blocks. */
#include "coll/receive.h"

#include <limits.h>

#include "coll/note.h"
#include "coll/rules.h"

/* Check that a prefix belongs to the message that is due. */
static enum pici_status check_prefix(struct pici_request *request, const struct slice_run *slice_run,
                                     const struct msg_prefix *prefix, int blocks, int peer)
{
    const struct coll_call *call = &request->call;
    const char *mismatch = call->args.rules->mismatch;
    const int here = prefix->sequence == request->sequence && prefix->slice == pici_slice_number(request, slice_run) &&
                     prefix->step == (uint32_t)slice_run->step;
    const unsigned algorithm = (unsigned)layout_of(request)->schedule->id;
    if (mismatch && prefix->sequence == request->sequence && prefix->algorithm == algorithm &&
        prefix->slice >> 32 != request->tag) {
        pici_coll_note(request->comm, "rank %d makes this call %s", peer, mismatch);
        return PICI_E_PEER;
    }
    if (here && prefix->kind == MSG_POISON && prefix->status < 0) {
        pici_coll_fail(request, pici_msg_status((uint32_t)prefix->status), INT_MAX);
        return PICI_OK;
    }
    if (here && prefix->kind == (slice_run->coded ? MSG_CODED : MSG_DATA) &&
        prefix->dtype == (unsigned)call->args.dtype && prefix->op == call->resolved.said.op &&
        prefix->algorithm == algorithm && prefix->blocks == (uint32_t)blocks)
        return PICI_OK;
    pici_coll_note(request->comm, "rank %d sent an unexpected message", peer);
    return PICI_E_CORRUPT;
}

/* Where the schedule puts received elements: in the result or in a sum. *store: whether they replace the elements
 * there, or are added. */
static uint8_t *destination(struct pici_request *request, struct slice_run *slice_run, enum schedule_action action,
                            const struct coll_part *part, enum engine_store *store)
{
    *store = action == RECEIVE_REDUCE ? STORE_REDUCE : STORE_PLACE;
    switch (action) {
    case RECEIVE_PLACE: return pici_slice_result(request, part->segment, part->span.first);
    case RECEIVE_REDUCE_REVERSED: return pici_slice_new_sum(request, slice_run, part->segment, part->span.first);
    default: return pici_slice_sum(request, slice_run, part->segment, part->span);
    }
}

enum pici_status pici_receive_arrays(struct pici_request *request, struct slice_run *slice_run,
                                     const struct coll_part *part, const void *inputs[VALUES_ARRAYS],
                                     uint64_t input_counts[VALUES_ARRAYS])
{
    void *outputs[VALUES_ARRAYS];
    const uint8_t *block = part->bytes;
    enum pici_status status = PICI_OK;
    pici_slice_received(request, slice_run, outputs);
    for (int array = 0; array < slice_run->arrays && !status; array++) {
        inputs[array] = outputs[array];
        input_counts[array] = part->block[array].count;
        status =
            request->engine->decode(slice_run->queue, outputs[array], block, &part->block[array], input_counts[array]);
        block += part->blocks.sizes[array];
    }
    return status;
}

/* Receive the arrays of a lossy codec: decode their blocks, then dequantize them. */
static enum pici_status receive_arrays(struct pici_request *request, struct slice_run *slice_run,
                                       enum schedule_action action, const struct coll_part *part)
{
    const void *inputs[VALUES_ARRAYS] = {NULL};
    uint64_t input_counts[VALUES_ARRAYS] = {0};
    enum engine_store store;
    enum pici_status status = pici_receive_arrays(request, slice_run, part, inputs, input_counts);
    if (status)
        return status;
    uint8_t *elements = destination(request, slice_run, action, part, &store);
    return pici_slice_dequantize(request, slice_run, store, elements, part->span.count, inputs, input_counts);
}

/* Add a block, or decode it into the result or in place of a sum, as the schedule says. */
static enum pici_status receive_block(struct pici_request *request, struct slice_run *slice_run,
                                      enum schedule_action action, struct coll_part *part)
{
    const struct coll_call *call = &request->call;
    const struct pici_engine *engine = request->engine;
    enum engine_store store;
    uint8_t *elements = destination(request, slice_run, action, part, &store);
    if (store == STORE_PLACE)
        return engine->decode(slice_run->queue, elements, part->bytes, part->block, call->resolved.total);
    return engine->reduce(slice_run->queue, elements, part->bytes, part->block, call->args.op, request->room.temp,
                          COLL_TEMP_BYTES / call->resolved.width);
}

/* Leaves the exact length of a lossy codec's array unchecked: dequantizing it checks that. */
enum pici_status pici_receive_parse(struct pici_request *request, const struct slice_run *slice_run,
                                    struct coll_part *part)
{
    const struct values *values = &request->call.opts.values;
    size_t offset = part->offset, remaining = part->remaining;
    part->blocks = (struct coll_blocks){.first = part->bytes, .count = slice_run->arrays};
    for (int array = 0; array < slice_run->arrays; array++) {
        struct pici_block *parsed = &part->block[array];
        const uint8_t *head = request->engine->head(slice_run->queue, part->number * slice_run->arrays + array, offset);
        const enum pici_dtype dtype = slice_run->coded ? values->codec->dtype(values, array) : request->call.args.dtype;
        const uint64_t most =
            slice_run->coded ? values->codec->most(values, array, part->span.count) : part->span.count;
        enum pici_status status = slice_run->coded ? pici_msg_array(parsed, head, remaining, dtype, most)
                                                   : pici_msg_block(parsed, head, remaining, dtype, most);
        if (!status && parsed->format == PICI_PACKED && !request->engine->packs)
            status = PICI_E_UNSUPPORTED;
        if (!status && (parsed->layout.block_bytes > pici_policy_longest(dtype, most) ||
                        (layout_of(request)->block && parsed->layout.block_bytes > layout_of(request)->block)))
            status = PICI_E_CORRUPT; /* a buffer that keeps blocks may have no room for it */
        if (status)
            return status;
        part->blocks.sizes[array] = (size_t)parsed->layout.block_bytes;
        part->blocks.format[array] = (enum pici_format)parsed->format;
        offset += part->blocks.sizes[array];
        remaining -= part->blocks.sizes[array];
    }
    return PICI_OK;
}

enum pici_status pici_receive_part(struct pici_request *request, struct slice_run *slice_run,
                                   enum schedule_action action, struct coll_part *part)
{
    enum pici_status status = pici_receive_parse(request, slice_run, part);
    if (status || action == RECEIVE_KEEP)
        return status;
    return slice_run->coded ? receive_arrays(request, slice_run, action, part)
                            : receive_block(request, slice_run, action, part);
}

/* Add this rank's blocks of this step to the elements decoded in place of its sums. If the first operand is the peer's
 * unchanged contribution, first turn it into the beginning of a sum. */
static enum pici_status add_own(struct pici_request *request, struct slice_run *slice_run,
                                const struct schedule_message *message)
{
    const struct coll_call *call = &request->call;
    const struct pici_engine *engine = request->engine;
    enum pici_status status = PICI_OK;
    for (int i = 0; i < message->count && !status; i++) {
        const int segment = message->segments[i];
        const struct coll_blocks *own = &slice_run->encoded[segment].blocks;
        const struct coll_span span = pici_coll_slice(request->comm, call, segment, slice_run->slice);
        uint8_t *sum = pici_slice_new_sum(request, slice_run, segment, span.first);
        if (slice_run->coded) { /* its message's arrays are still there, and dequantizing has cleared signs of zeros */
            status = pici_slice_dequantize_own(request, slice_run, message, i, STORE_REDUCE, sum);
            continue;
        }
        if (call->resolved.by_value && message->contributions == 1)
            engine->positive_zeros(slice_run->queue, sum, sum, span.count, call->args.dtype, 1);
        status = engine->reduce_own(slice_run->queue, sum, own->first, own->sizes[0], span.count, call->args.dtype,
                                    call->args.op, request->room.temp, COLL_TEMP_BYTES / call->resolved.width);
    }
    return status;
}

/* For an average: divide the sums of this slice that have all contributions after this step. */
static void complete(struct pici_request *request, struct slice_run *slice_run)
{
    const struct coll_call *call = &request->call;
    const enum schedule_complete what = call->args.op == PICI_AVG ? slice_run->messages.complete : COMPLETE_NONE;
    for (int i = 0; i < layout_of(request)->segments && what != COMPLETE_NONE; i++) {
        if (what == COMPLETE_OWN && i != request->comm->virtual_rank)
            continue;
        const struct coll_span span = pici_coll_slice(request->comm, call, i, slice_run->slice);
        request->engine->divide(slice_run->queue, pici_slice_sum(request, slice_run, i, span), span.count,
                                call->args.dtype, request->comm->ranks);
    }
}

/* Whether a block is dense, or packed in place of a dense one. */
static int is_dense(const struct pici_block *block)
{
    return block->format == PICI_DENSE || (block->format == PICI_PACKED && block->nonzeros > block->count / 2);
}

/* Begin to decode or reduce a received message, which the engine has looked at. */
static enum pici_status begin_receive(struct pici_request *request, struct slice_run *slice_run,
                                      const struct schedule_message *message, struct coll_flight *flight)
{
    const struct coll_call *call = &request->call;
    const int last = slice_run->arrays - 1; /* of a segment: the block that the trace names */
    struct msg_prefix prefix;
    struct coll_part part = {.offset = MSG_BYTES};
    uint64_t elements = 0, nonzeros = 0;
    enum pici_status status = pici_msg_get(&prefix, request->engine->head(slice_run->queue, -1, 0), flight->bytes);
    if (!status)
        status = check_prefix(request, slice_run, &prefix, message->count * slice_run->arrays, flight->peer);
    slice_run->dense = 1;
    slice_run->dense_bytes = MSG_BYTES;
    for (; part.number < message->count && !status && !request->status; part.number++) {
        part.segment = message->segments[part.number];
        part.bytes = flight->buffer->bytes + part.offset;
        part.remaining = flight->bytes - part.offset;
        part.span = pici_coll_slice(request->comm, call, part.segment, slice_run->slice);
        status = call->args.rules->receive_part(request, slice_run, message->action, &part);
        if (status)
            break;
        part.blocks.elements = part.span.count;
        if (message->keep == KEEP_APART)
            pici_slice_keep_apart(request, slice_run, part.segment, &part.blocks);
        else if (message->keep)
            pici_slice_keep(request, slice_run, part.segment, flight->buffer, &part.blocks);
        part.offset += pici_slice_bytes(&part.blocks);
        slice_run->dense_bytes += HDR_BYTES + part.span.count * call->resolved.width;
        for (int array = 0; array < slice_run->arrays; array++)
            slice_run->dense &= is_dense(&part.block[array]);
        elements += part.block[last].count;
        nonzeros += part.block[last].nonzeros;
    }
    if (!status && !request->status && part.offset != flight->bytes)
        status = PICI_E_CORRUPT;
    flight->buffer->size = flight->bytes;
    flight->buffer->segments = message->count;
    slice_run->format = (enum pici_format)part.block[last].format;
    slice_run->density = slice_run->dense || !elements ? POLICY_UNKNOWN : (double)nonzeros / (double)elements;
    slice_run->extrapolated = 0;
    return status;
}

/* Test whether a message has arrived. */
static enum pici_status arrived(struct pici_request *request, struct coll_flight *flight)
{
    const struct pici_transport *transport = &request->comm->transport;
    if (flight->done)
        return PICI_OK;
    enum pici_status status = transport->test(transport->context, flight->request, &flight->done, &flight->bytes);
    if (status && status != PICI_E_CORRUPT)
        return pici_coll_lost(request->comm, flight->peer, status);
    flight->status = status; /* PICI_E_CORRUPT: longer than any message can be */
    return PICI_OK;
}

/* Finish a message that was processed, or could not be. */
static void end_receive(struct pici_request *request, struct slice_run *slice_run,
                        const struct schedule_message *message, const struct coll_flight *flight,
                        enum pici_status status)
{
    for (int i = 0; i < message->count && message->action == RECEIVE_REDUCE_REVERSED; i++)
        pici_slice_let_go(request, slice_run, message->segments[i]); /* only now has the engine added it */
    status = slice_run->status ? slice_run->status : status;
    if (status) {
        pici_coll_note(request->comm, "from rank %d: %s", flight->peer, pici_request_error(request, status));
        pici_coll_fail(request, status, request->comm->rank);
    }
    if (request->status)
        return;
    if (slice_run->messages.phase == PHASE_REDUCE)
        pici_policy_received(&slice_run->history, slice_run->dense);
    request->stats.decode_s += pici_slice_now(request) - slice_run->begin;
    pici_slice_trace(request, "recv", slice_run, message, flight->bytes, NULL);
}

enum pici_status pici_receive_messages(struct pici_request *request, struct slice_run *slice_run,
                                       struct coll_flight *flights, int *progressed)
{
    const struct schedule_step *step = pici_slice_step(request, slice_run);
    enum pici_status status;
    if (!slice_run->sent || slice_run->stage == STAGE_RECEIVED)
        return PICI_OK;
    while (slice_run->message < step->receives) {
        struct coll_flight *flight = &flights[slice_run->message];
        const struct schedule_message *message = &step->receive[slice_run->message];
        if (slice_run->stage == STAGE_REST) {
            if ((status = arrived(request, flight)) || !flight->done)
                return status;
            slice_run->begin = pici_slice_now(request);
            slice_run->stage = STAGE_LOOKING;
            slice_run->coded = pici_slice_coded(request, slice_run);
            slice_run->arrays = slice_run->coded ? request->call.opts.values.codec->arrays : 1;
            if (!request->status && !flight->status)
                request->engine->look(slice_run->queue, flight->buffer->bytes, flight->bytes,
                                      message->count * slice_run->arrays);
            *progressed = 1;
        }
        if (slice_run->stage == STAGE_LOOKING) {
            if (!pici_slice_ready(request, slice_run, &status))
                return PICI_OK;
            slice_run->status = flight->status ? flight->status : status;
            if (!slice_run->status && !request->status)
                slice_run->status = begin_receive(request, slice_run, message, flight);
            slice_run->stage = STAGE_FIRST;
            *progressed = 1;
        }
        if (slice_run->stage == STAGE_FIRST) {
            if (message->action == RECEIVE_REDUCE_REVERSED) {
                if (!pici_slice_ready(request, slice_run, &status))
                    return PICI_OK;
                slice_run->status = slice_run->status ? slice_run->status : status;
                if (!slice_run->status && !request->status)
                    slice_run->status = add_own(request, slice_run, message);
            }
            if (slice_run->message + 1 == step->receives && !slice_run->status && !request->status)
                complete(request, slice_run);
            slice_run->stage = STAGE_TAKING;
            *progressed = 1;
        }
        if (!pici_slice_ready(request, slice_run, &status))
            return PICI_OK;
        end_receive(request, slice_run, message, flight, status);
        slice_run->stage = STAGE_REST;
        slice_run->message++;
    }
    /* without messages, a sum of a single contribution may be complete */
    if (!step->receives && !request->status) {
        if (slice_run->stage == STAGE_REST)
            complete(request, slice_run);
        slice_run->stage = STAGE_TAKING;
        if (!pici_slice_ready(request, slice_run, &status))
            return PICI_OK;
        if (status)
            pici_coll_fail(request, status, request->comm->rank);
    }
    slice_run->stage = STAGE_RECEIVED;
    return PICI_OK;
}

void pici_end_step(struct pici_request *request, struct slice_run *slice_run, struct coll_flight *flights)
{
    const struct coll_layout *layout = layout_of(request);
    const enum schedule_phase phase = pici_slice_step(request, slice_run)->phase;
    for (int i = 0; i < slice_run->messages.receives; i++)
        pici_slice_release(request, flights[i].buffer);
    slice_run->sent = slice_run->messages_known = 0;
    slice_run->stage = STAGE_REST;
    slice_run->message = -1;
    if (++slice_run->step < layout->steps) {
        if (pici_slice_step(request, slice_run)->phase != phase)
            pici_policy_begin(&slice_run->history);
        return;
    }
    for (int i = 0; i < layout->segments && slice_run->encoded; i++)
        pici_slice_let_go(request, slice_run, i);
    pici_slice_begin(request, slice_run, slice_run->slice + (uint64_t)layout->window);
}
