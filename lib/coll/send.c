/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes the messages that a slice sends in a step: chooses formats, and encodes or forwards blocks. */
#include "coll/send.h"

#include <string.h>

#include "coll/note.h"
#include "coll/packing.h"
#include "coll/rules.h"
#include "format.h"

/* Count a block that is sent, and its tiles, for the call and for its message. */
static void tally_block(struct pici_request *request, struct slice_run *slice_run, enum pici_format format,
                        const uint8_t *block, size_t size)
{
    uint64_t own[PICI_CONTAINERS] = {0};
    request->stats.sends[format]++;
    if (format != PICI_HYBRID)
        return;
    request->engine->containers(slice_run->queue, own, block, size);
    for (int i = 0; i < PICI_CONTAINERS; i++) {
        slice_run->tiles[i] += own[i];
        request->stats.tiles[i] += own[i];
    }
}

/* A message to the rank itself is not sent: the rank keeps its blocks. */
static int is_sent(const struct pici_request *request, const struct schedule_message *message)
{
    return message->peer != request->comm->virtual_rank;
}

/* Count the blocks of a segment. */
static void tally(struct pici_request *request, struct slice_run *slice_run, const struct coll_blocks *blocks,
                  const struct schedule_message *message)
{
    const uint8_t *block = blocks->first;
    if (!is_sent(request, message))
        return;
    for (int array = 0; array < blocks->count; array++) {
        tally_block(request, slice_run, blocks->format[array], block, blocks->sizes[array]);
        block += blocks->sizes[array];
    }
    slice_run->dense_bytes += HDR_BYTES + blocks->elements * request->call.resolved.width;
}

/* segments: the number of segments whose blocks follow. */
static void put_prefix(const struct pici_request *request, const struct slice_run *slice_run,
                       struct coll_buffer *buffer, enum msg_kind kind, int segments)
{
    const int blocks = segments * slice_run->arrays;
    const struct msg_prefix prefix = {.kind = kind,
                                      .dtype = (unsigned)request->call.args.dtype,
                                      .op = request->call.resolved.said.op,
                                      .algorithm = (unsigned)layout_of(request)->schedule->id,
                                      .sequence = request->sequence,
                                      .slice = pici_slice_number(request, slice_run),
                                      .step = (uint32_t)slice_run->step,
                                      .status = kind == MSG_POISON ? request->status : 0,
                                      .blocks = (uint32_t)blocks};
    uint8_t bytes[MSG_BYTES];
    pici_msg_put(bytes, &prefix);
    request->engine->prefix(slice_run->queue, buffer->bytes, bytes, MSG_BYTES);
}

/* Begin a message: its buffer and prefix. Its blocks follow. */
static struct coll_buffer *begin_buffer(struct pici_request *request, struct slice_run *slice_run, enum msg_kind kind,
                                        int segments)
{
    struct coll_buffer *buffer = slice_run->outgoing[slice_run->message] = request->call.args.rules->acquire_buffer(
        request, (int)(slice_run - request->runs), slice_run->step, 0, slice_run->message);
    put_prefix(request, slice_run, buffer, kind, segments);
    buffer->size = MSG_BYTES;
    buffer->segments = segments;
    return buffer;
}

static enum msg_kind kind_of(const struct slice_run *slice_run)
{
    return slice_run->coded ? MSG_CODED : MSG_DATA;
}

/* The link to a peer. Gathered blocks cross all links, so for them the link between nodes counts, if there is one. */
static enum policy_link link_to(const struct pici_request *request, int virtual_rank, int gather)
{
    const struct pici_comm *comm = request->comm;
    const int inter = comm->node_of[comm->order[virtual_rank]] != comm->node_of[comm->rank];
    return inter || (gather && comm->nodes > 1) ? POLICY_INTER : POLICY_INTRA;
}

static float threshold_of(const struct pici_request *request, const struct schedule_message *message, int gather)
{
    return pici_policy_threshold(&request->call.opts.threshold, request->call.opts.format,
                                 link_to(request, message->peer, 0), gather);
}

/* Whether to count the nonzeros of a message that is sent dense. In a call that was chosen to be dense, counts the
 * first slice before any addition and after the last. So the next such call knows whether the data is still dense. */
static int sampled(const struct pici_request *request, const struct slice_run *slice_run)
{
    return layout_of(request)->dense && request->call.opts.history && slice_run->slice == 0 &&
           (slice_run->step == 0 || slice_run->messages.phase == PHASE_GATHER);
}

/* Choose the format of a message without counting. 0: its nonzeros must be counted first. The density of a lossy
 * codec's arrays does not follow from earlier ones. */
static int choose_uncounted(const struct pici_request *request, struct slice_run *slice_run,
                            const struct schedule_message *message)
{
    const struct coll_call *call = &request->call;
    const float threshold = threshold_of(request, message, slice_run->messages.phase == PHASE_GATHER);
    slice_run->density = POLICY_UNKNOWN;
    slice_run->extrapolated = 0;
    slice_run->format = layout_of(request)->dense ? PICI_DENSE : call->opts.format;
    if (slice_run->coded && threshold < 1)
        return slice_run->format == PICI_DENSE;
    if (slice_run->coded)
        slice_run->format = PICI_DENSE;
    if (sampled(request, slice_run))
        return 0;
    /* at any density */
    if (slice_run->format == PICI_DENSE || (threshold <= 0 && call->opts.format != PICI_AUTO))
        return 1;
    if (pici_policy_count(&slice_run->history, threshold, message->contributions, &slice_run->density))
        return 0;
    slice_run->extrapolated = slice_run->density >= 0;
    pici_policy_sent(&slice_run->history, slice_run->density, message->contributions, 1);
    slice_run->format = PICI_DENSE;
    return 1;
}

/* Add to the call's counts, if the elements are this rank's own or results. */
static void tally_density(struct pici_request *request, const struct slice_run *slice_run,
                          const struct schedule_message *message, uint64_t count, uint64_t nonzeros)
{
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    const int own = gather ? coll_gathers(request->call.args.kind) : message->contributions == 1;
    if (!own && !gather)
        return;
    struct density_count *counted = &request->counted[own ? DENSITY_ONE : DENSITY_SUM];
    counted->elements += count;
    counted->nonzeros += nonzeros;
}

/* Give all blocks of the message the chosen format, or pack them. */
static void one_format(const struct pici_request *request, struct slice_run *slice_run,
                       const struct schedule_message *message, int counted)
{
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    for (int array = 0; array < slice_run->arrays; array++)
        slice_run->formats[array] = slice_run->format;
    pici_packing_choose(request, slice_run, message, link_to(request, message->peer, gather), counted);
}

/* Whether an array of a lossy codec may drop -0.0, because dequantizing clears its sign. */
static int by_value(const struct pici_request *request, enum pici_dtype dtype)
{
    return request->call.resolved.by_value && fmt_is_float((unsigned)dtype);
}

static enum pici_dtype dtype_of(const struct pici_request *request, const struct slice_run *slice_run, int array)
{
    const struct values *values = &request->call.opts.values;
    return slice_run->coded ? values->codec->dtype(values, array) : request->call.args.dtype;
}

/* Choose the format of a lossy codec's array, whose elements are not the call's. Rules out coo for bytes, since its
 * positions are longer. */
static enum pici_format choose_array(const struct pici_request *request, struct slice_run *slice_run,
                                     struct policy_auto auto_options, const uint64_t *count, const uint64_t *nonzeros,
                                     int segments, enum pici_dtype dtype, float threshold)
{
    enum pici_format format = request->call.opts.format;
    uint64_t total = 0, all_nonzeros = 0;
    for (int i = 0; i < segments; i++) {
        total += count[i];
        all_nonzeros += nonzeros[i];
    }
    const double sparsity = pici_policy_sparsity(all_nonzeros, total);
    slice_run->density = 1 - sparsity;
    if (pici_dtype_width(dtype) == 1) {
        auto_options.formats &= ~(1u << PICI_COO);
        format = format == PICI_COO ? PICI_AUTO : format;
    }
    if (pici_policy_dense(sparsity, threshold) ||
        (format == PICI_AUTO && pici_policy_tiny(dtype, count, segments, &auto_options)))
        return PICI_DENSE;
    return pici_policy_format(format, dtype, count, nonzeros, segments, &auto_options);
}

/* Choose the format of a message, or of each of its arrays, by the nonzeros counted. */
static void choose_counted(struct pici_request *request, struct slice_run *slice_run,
                           const struct schedule_message *message)
{
    const struct coll_call *call = &request->call;
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    const struct policy_auto auto_options = {.formats = call->opts.formats,
                                             .bandwidth = call->opts.bandwidth[link_to(request, message->peer, gather)],
                                             .gather = gather,
                                             .cost_scale = request->engine->cost_scale};
    uint64_t count = 0, nonzeros = 0;
    for (int array = 0; array < slice_run->arrays && slice_run->coded; array++) {
        const int at = array * message->count;
        slice_run->format = slice_run->formats[array] =
            choose_array(request, slice_run, auto_options, slice_run->counts + at, slice_run->nonzeros + at,
                         message->count, dtype_of(request, slice_run, array), threshold_of(request, message, gather));
    }
    if (slice_run->coded)
        return;
    for (int i = 0; i < message->count; i++) {
        count += slice_run->counts[i];
        nonzeros += slice_run->nonzeros[i];
    }
    tally_density(request, slice_run, message, count, nonzeros);
    const double sparsity = pici_policy_sparsity(nonzeros, count);
    const int dense = layout_of(request)->dense || pici_policy_dense(sparsity, threshold_of(request, message, gather));
    slice_run->density = 1 - sparsity;
    pici_policy_sent(&slice_run->history, slice_run->density, message->contributions, dense);
    const int tiny = call->opts.format == PICI_AUTO &&
                     pici_policy_tiny(call->args.dtype, slice_run->counts, message->count, &auto_options);
    slice_run->format = dense || tiny ? PICI_DENSE
                                      : pici_policy_format(call->opts.format, call->args.dtype, slice_run->counts,
                                                           slice_run->nonzeros, message->count, &auto_options);
    one_format(request, slice_run, message, 1);
}

/* Make poison instead of the message. */
static void begin_poison(struct pici_request *request, struct slice_run *slice_run)
{
    slice_run->making = MAKE_POISON;
    slice_run->arrays = 1;
    (void)begin_buffer(request, slice_run, MSG_POISON, 0);
    slice_run->stage = STAGE_MAKING;
}

static void fail_encode(struct pici_request *request, struct slice_run *slice_run, enum pici_status status)
{
    pici_coll_note(request->comm, "rank %d: cannot encode: %s", request->comm->rank,
                   pici_request_error(request, status));
    pici_coll_fail(request, status, request->comm->rank);
    if (slice_run->outgoing[slice_run->message])
        pici_slice_release(request, slice_run->outgoing[slice_run->message]);
    begin_poison(request, slice_run);
}

/* Describe the input of a message: the elements of its segments, or the arrays of the lossy codec. A packed block in
 * place of a dense one keeps the signs of zeros, which takes less time. */
static void describe(const struct pici_request *request, const struct slice_run *slice_run,
                     struct engine_array arrays[VALUES_ARRAYS])
{
    for (int array = 0; array < slice_run->arrays; array++) {
        const enum pici_dtype dtype = dtype_of(request, slice_run, array);
        const int dense = slice_run->formats[array] == PICI_PACKED && slice_run->unpacked == PICI_DENSE;
        arrays[array] = (struct engine_array){
            .dtype = dtype,
            .format = slice_run->formats[array],
            .by_value = slice_run->coded ? by_value(request, dtype) : slice_run->by_value && !dense,
            .unpacked = request->call.resolved.packing.pack == PICI_PACKING_AUTO ? slice_run->unpacked : PICI_PACKED};
    }
}

/* Begin to encode a message, whose format is chosen. */
static void begin_encode(struct pici_request *request, struct slice_run *slice_run,
                         const struct schedule_message *message)
{
    struct engine_array arrays[VALUES_ARRAYS];
    struct coll_buffer *buffer = begin_buffer(request, slice_run, kind_of(slice_run), message->count);
    slice_run->making = MAKE_BLOCKS;
    slice_run->stage = STAGE_MAKING;
    describe(request, slice_run, arrays);
    const enum pici_status status = request->engine->encode(
        slice_run->queue, buffer->bytes, MSG_BYTES, buffer->capacity, slice_run->sizes, slice_run->sources,
        slice_run->counts, message->count, arrays, slice_run->arrays, request->call.opts.checksum);
    if (status)
        fail_encode(request, slice_run, status);
}

/* Record the encoded blocks of a message. */
static void end_encode(struct pici_request *request, struct slice_run *slice_run,
                       const struct schedule_message *message)
{
    struct coll_buffer *buffer = slice_run->outgoing[slice_run->message];
    for (int i = 0; i < message->count; i++) {
        const struct coll_span span =
            pici_coll_slice(request->comm, &request->call, message->segments[i], slice_run->slice);
        struct coll_blocks blocks = {
            .first = buffer->bytes + buffer->size, .count = slice_run->arrays, .elements = span.count};
        for (int array = 0; array < slice_run->arrays; array++) {
            blocks.sizes[array] = slice_run->sizes[array * message->count + i];
            blocks.format[array] = slice_run->formats[array];
        }
        if (slice_run->formats[0] == PICI_PACKED)
            blocks.format[0] = slice_run->format = pici_packing_made(request, blocks.first, blocks.sizes[0]);
        else if (request->call.args.stream) /* its engine takes the shorter format for a list */
            blocks.format[0] = slice_run->format = (enum pici_format)blocks.first[HDR_FORMAT];
        if (message->keep)
            pici_slice_keep(request, slice_run, message->segments[i], buffer, &blocks);
        else if (slice_run->messages.phase == PHASE_REDUCE)
            pici_slice_pass_on(slice_run, message->segments[i]);
        tally(request, slice_run, &blocks, message);
        buffer->size += pici_slice_bytes(&blocks);
    }
}

/* The buffer that holds exactly the blocks of a message, in its order, is not in flight, and takes no more blocks; or
 * NULL. */
static struct coll_buffer *whole_message(const struct slice_run *slice_run, const struct schedule_message *message)
{
    struct coll_buffer *buffer = slice_run->encoded[message->segments[0]].message;
    const uint8_t *blocks = buffer ? buffer->bytes + MSG_BYTES : NULL;
    if (!buffer || buffer->segments != message->count || buffer->flights || buffer == slice_run->buffer_apart)
        return NULL;
    for (int i = 0; i < message->count; i++) {
        const struct coll_encoded *kept = &slice_run->encoded[message->segments[i]];
        if (kept->message != buffer || kept->blocks.first != blocks)
            return NULL;
        blocks += pici_slice_bytes(&kept->blocks);
    }
    return buffer;
}

/* Begin to make a message of kept blocks: reuse the buffer that they are in if only the prefix differs, else copy
 * them. */
static void begin_forward(struct pici_request *request, struct slice_run *slice_run,
                          const struct schedule_message *message)
{
    struct coll_buffer *buffer =
                           message->again ? slice_run->outgoing[message->again - 1] : whole_message(slice_run, message),
                       *copy = NULL;
    slice_run->making = MAKE_FORWARD;
    slice_run->stage = STAGE_MAKING;
    slice_run->format = slice_run->encoded[message->segments[0]].blocks.format[slice_run->arrays - 1];
    slice_run->density = POLICY_UNKNOWN;
    slice_run->extrapolated = 0;
    if (buffer) {
        buffer->references++;
        slice_run->outgoing[slice_run->message] = buffer;
        if (!message->again)
            put_prefix(request, slice_run, buffer, kind_of(slice_run), message->count);
    } else {
        copy = begin_buffer(request, slice_run, kind_of(slice_run), message->count);
    }
    for (int i = 0; i < message->count; i++) {
        const struct coll_blocks *blocks = &slice_run->encoded[message->segments[i]].blocks;
        const size_t size = pici_slice_bytes(blocks);
        if (copy) {
            request->engine->put(slice_run->queue, copy->bytes + copy->size, blocks->first, size);
            copy->size += size;
        }
        tally(request, slice_run, blocks, message);
    }
}

/* Choose the format of a message whose elements or arrays are ready. May have to count them first. */
static void begin_choosing(struct pici_request *request, struct slice_run *slice_run,
                           const struct schedule_message *message)
{
    struct engine_array arrays[VALUES_ARRAYS];
    if (choose_uncounted(request, slice_run, message)) {
        one_format(request, slice_run, message, 0);
        begin_encode(request, slice_run, message);
        return;
    }
    describe(request, slice_run, arrays);
    request->engine->count(slice_run->queue, slice_run->sources, slice_run->counts, message->count, arrays,
                           slice_run->arrays, slice_run->nonzeros);
    slice_run->stage = STAGE_COUNTING;
}

/* Continue when the lossy codec has made its arrays. */
static void end_quantize(struct pici_request *request, struct slice_run *slice_run,
                         const struct schedule_message *message)
{
    enum pici_status status = pici_slice_quantized(request, slice_run, message);
    if (status)
        fail_encode(request, slice_run, status);
    else
        begin_choosing(request, slice_run, message);
}

/* Begin to make the next message of the step. */
static void begin_message(struct pici_request *request, struct slice_run *slice_run,
                          const struct schedule_message *message)
{
    const struct coll_call *call = &request->call;
    slice_run->begin = pici_slice_now(request);
    slice_run->dense_bytes = MSG_BYTES;
    memset(slice_run->tiles, 0, sizeof slice_run->tiles);
    slice_run->outgoing[slice_run->message] = NULL;
    slice_run->coded = pici_slice_coded(request, slice_run);
    slice_run->arrays = slice_run->coded ? call->opts.values.codec->arrays : 1;
    if (request->status) {
        begin_poison(request, slice_run);
        return;
    }
    if (message->action == SEND_FORWARD) {
        begin_forward(request, slice_run, message);
        return;
    }
    if (slice_run->coded) {
        slice_run->stage = STAGE_QUANTIZING;
        enum pici_status status = pici_slice_quantize(request, slice_run, message);
        if (status)
            fail_encode(request, slice_run, status);
        return;
    }
    if (call->args.rules->unrelated)
        pici_policy_begin(&slice_run->history);
    slice_run->by_value = 0;
    for (int i = 0; i < message->count; i++) {
        slice_run->sources[i] = pici_slice_source(request, slice_run, message->segments[i], &slice_run->counts[i]);
        slice_run->by_value |= call->resolved.by_value && !coll_gathers(call->args.kind) &&
                               slice_run->sum_slot[message->segments[i]] == SUM_NONE;
    }
    begin_choosing(request, slice_run, message);
}

/* Finish a data message. */
static void end_message(struct pici_request *request, struct slice_run *slice_run,
                        const struct schedule_message *message)
{
    struct coll_buffer *buffer = slice_run->outgoing[slice_run->message];
    if (slice_run->making == MAKE_BLOCKS)
        end_encode(request, slice_run, message);
    for (int i = 0; i < message->count && slice_run->making == MAKE_FORWARD && !message->keep; i++)
        pici_slice_let_go(request, slice_run, message->segments[i]);
    request->stats.encode_s += pici_slice_now(request) - slice_run->begin;
    if (is_sent(request, message))
        request->stats.dense_bytes += slice_run->dense_bytes;
    pici_slice_trace(request, "send", slice_run, message, buffer->size, slice_run->tiles);
}

/* Begin a step. 0: there are not enough free buffers for its messages yet. */
static int begin_step(struct pici_request *request, struct slice_run *slice_run)
{
    const struct coll_layout *layout = layout_of(request);
    const struct schedule_step *step = pici_slice_step(request, slice_run);
    if (request->sending + request->making + step->sends > layout->window * layout->limits.sends ||
        !request->call.args.rules->has_buffers(request, (int)(slice_run - request->runs), slice_run->step, 0))
        return 0;
    request->making += step->sends;
    slice_run->message = 0;
    if (slice_run->step == 0 && !request->status)
        request->call.args.rules->place_own(request, slice_run);
    return 1;
}

void pici_make_messages(struct pici_request *request, struct slice_run *slice_run, int *progressed)
{
    enum pici_status status;
    if (slice_run->sent || slice_run->stage > STAGE_MAKING || slice_run->slice >= layout_of(request)->slices)
        return;
    if (slice_run->stage == STAGE_REST && slice_run->message < 0) {
        if (!begin_step(request, slice_run))
            return;
        *progressed = 1;
    }
    while (slice_run->message < slice_run->messages.sends) {
        const struct schedule_message *message = &slice_run->messages.send[slice_run->message];
        if (slice_run->stage == STAGE_REST)
            begin_message(request, slice_run, message);
        if (!pici_slice_ready(request, slice_run, &status))
            return;
        *progressed = 1;
        if (slice_run->stage == STAGE_QUANTIZING && !status) {
            end_quantize(request, slice_run, message);
            continue;
        }
        if (slice_run->stage == STAGE_COUNTING || slice_run->stage == STAGE_QUANTIZING) {
            if (status) {
                fail_encode(request, slice_run, status);
            } else {
                choose_counted(request, slice_run, message);
                begin_encode(request, slice_run, message);
            }
            continue;
        }
        if (slice_run->making != MAKE_POISON && status) {
            fail_encode(request, slice_run, status);
            continue;
        }
        if (slice_run->making != MAKE_POISON)
            end_message(request, slice_run, message);
        else if (status)
            pici_coll_fail(request, status, request->comm->rank); /* not even the poison can be made */
        slice_run->stage = STAGE_REST;
        slice_run->message++;
    }
    slice_run->stage = STAGE_MADE;
}
