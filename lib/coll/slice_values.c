/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A slice whose messages are made by a lossy codec: its elements become arrays, which are sent as blocks, and arrays
 * that were received become elements.
 *
 * All ranks end with the same bytes, because a rank that still uses elements that it has sent first replaces them
 * by what the receivers will decode:
 * - the owner of a segment, when it sends the segment's result; the others forward its blocks as they are;
 * - in doubling both ranks of an exchange, and these add the same two operands in the same order. Ranks that hold the
 *   same sum make the same arrays of it, since they draw the same random numbers. */
#include "coll/rules.h"
#include "coll/slice.h"

int pici_slice_coded(const struct pici_request *request, const struct slice_run *slice_run)
{
    const struct coll_layout *layout = layout_of(request);
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    /* these ranks take no part in the exchanges, after which all ranks have the same bytes */
    if (gather && layout->schedule->undivided)
        return 0;
    return (request->call.opts.values.phases & (gather ? VALUES_GATHERING : VALUES_REDUCING)) != 0;
}

/* The places for the arrays of a segment: number `at` in a message, or a received one. */
static void places(const struct pici_request *request, const struct slice_run *slice_run, int at,
                   void *outputs[VALUES_ARRAYS])
{
    const struct coll_layout *layout = layout_of(request);
    uint8_t *next = slice_run->quantized + (size_t)at * layout->parts;
    for (int i = 0; i < VALUES_ARRAYS; i++) {
        outputs[i] = next;
        next += layout->part[i];
    }
}

void pici_slice_received(const struct pici_request *request, const struct slice_run *slice_run,
                         void *outputs[VALUES_ARRAYS])
{
    places(request, slice_run, layout_of(request)->quantized, outputs);
}

/* Whether this rank accounts for the losses of a message's encodings. Of ranks that make the same encodings, the lowest
 * does. */
static int accounts(const struct pici_request *request, const struct schedule_message *message)
{
    return !message->group || message->group == request->comm->virtual_rank + 1;
}

/* Where in the residual the losses of elements belong; NULL: nowhere. */
static uint8_t *residual_at(const struct pici_request *request, uint64_t first_element)
{
    const struct coll_call *call = &request->call;
    const int joined = call->args.kind == PICI_ALL_GATHER && !call->args.plan; /* the call's total spans all ranks */
    const uint64_t base = joined ? (uint64_t)request->comm->rank * call->args.count : 0;
    return call->opts.residual ? call->opts.residual + (first_element - base) * call->resolved.width : NULL;
}

/* The factor of losses in the residual: the results of an average are the sum divided by the number of ranks. */
static int times_of(const struct pici_request *request, const struct slice_run *slice_run)
{
    const int average = request->call.args.kind == PICI_ALL_REDUCE && request->call.args.op == PICI_AVG;
    return average && slice_run->messages.phase == PHASE_GATHER ? request->comm->ranks : 1;
}

/* Distinguishes the random numbers of an encoding from others in the phase. Ranks that hold the same sum draw the same
 * numbers. A rank of doubling quantizes an element in every step; if it drew the same number each time, its errors
 * would add up. */
static int origin_of(const struct pici_request *request, const struct slice_run *slice_run,
                     const struct schedule_message *message)
{
    return message->group ? message->group - 1 + slice_run->step * request->comm->ranks : request->comm->virtual_rank;
}

enum pici_status pici_slice_quantize(struct pici_request *request, struct slice_run *slice_run,
                                     const struct schedule_message *message)
{
    const struct coll_call *call = &request->call;
    const int wanted = accounts(request, message) && (call->opts.residual || call->opts.stats || request->comm->trace);
    struct values_where context = {.sequence = request->sequence,
                                   .gather = slice_run->messages.phase == PHASE_GATHER,
                                   .origin = origin_of(request, slice_run, message)};
    enum pici_status status = PICI_OK;
    slice_run->loss = (struct values_loss){.times = times_of(request, slice_run)};
    for (int i = 0; i < message->count && !status; i++) {
        void *outputs[VALUES_ARRAYS];
        uint64_t made_counts[VALUES_ARRAYS] = {0}, count;
        const uint8_t *source = pici_slice_source(request, slice_run, message->segments[i], &count);
        context.first = pici_coll_slice(request->comm, call, message->segments[i], slice_run->slice).first;
        places(request, slice_run, i, outputs);
        slice_run->loss.residual = residual_at(request, context.first);
        status = request->engine->quantize(slice_run->queue, &call->opts.values, &context, outputs, made_counts, source,
                                           count, wanted ? &slice_run->loss : NULL);
        for (int array = 0; array < slice_run->arrays; array++) {
            slice_run->sources[array * message->count + i] = outputs[array];
            slice_run->counts[array * message->count + i] = made_counts[array];
        }
        if (accounts(request, message))
            request->stats.events += count;
    }
    return status;
}

enum pici_status pici_slice_dequantize(struct pici_request *request, const struct slice_run *slice_run,
                                       enum engine_store store, uint8_t *destination, uint64_t count,
                                       const void *const inputs[VALUES_ARRAYS],
                                       const uint64_t input_counts[VALUES_ARRAYS])
{
    const struct coll_call *call = &request->call;
    const struct engine_values usage = {.values = &call->opts.values,
                                        .op = call->args.op,
                                        .by_value = call->resolved.by_value,
                                        .quiet = call->args.kind != PICI_ALL_GATHER};
    const double begin = pici_slice_now(request);
    enum pici_status status = request->engine->dequantize(slice_run->queue, &usage, store, destination, count, inputs,
                                                          input_counts, request->room.temp, layout_of(request)->temp);
    request->stats.dequantize_s += pici_slice_now(request) - begin;
    return status;
}

enum pici_status pici_slice_dequantize_own(struct pici_request *request, const struct slice_run *slice_run,
                                           const struct schedule_message *message, int i, enum engine_store store,
                                           uint8_t *destination)
{
    const void *inputs[VALUES_ARRAYS] = {NULL};
    uint64_t input_counts[VALUES_ARRAYS] = {0};
    for (int array = 0; array < slice_run->arrays; array++) {
        inputs[array] = slice_run->sources[array * message->count + i];
        input_counts[array] = slice_run->counts[array * message->count + i];
    }
    return pici_slice_dequantize(
        request, slice_run, store, destination,
        pici_coll_slice(request->comm, &request->call, message->segments[i], slice_run->slice).count, inputs,
        input_counts);
}

enum pici_status pici_slice_place_sent(struct pici_request *request, const struct slice_run *slice_run,
                                       const struct schedule_message *message, int i)
{
    const uint64_t first_element =
        pici_coll_slice(request->comm, &request->call, message->segments[i], slice_run->slice).first;
    return pici_slice_dequantize_own(request, slice_run, message, i, STORE_PLACE,
                                     pici_slice_result(request, message->segments[i], first_element));
}

/* Of the two ranks of an exchange, the one whose elements are the second operand keeps its message and adds it to the
 * elements that it receives. */
enum pici_status pici_slice_quantized(struct pici_request *request, struct slice_run *slice_run,
                                      const struct schedule_message *message)
{
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    enum pici_status status = PICI_OK;
    request->stats.quantize_s += pici_slice_now(request) - slice_run->begin;
    request->stats.nonfinite += slice_run->loss.nonfinite;
    request->stats.lost += slice_run->loss.squares;
    for (int i = 0; i < message->count && !status && (gather || (message->group && !message->keep)); i++) {
        if (gather) {
            status = request->call.args.rules->place_sent(request, slice_run, message, i);
            continue;
        }
        const uint64_t first_element =
            pici_coll_slice(request->comm, &request->call, message->segments[i], slice_run->slice).first;
        status = pici_slice_dequantize_own(request, slice_run, message, i, STORE_PLACE,
                                           pici_slice_new_sum(request, slice_run, message->segments[i], first_element));
    }
    return status;
}
