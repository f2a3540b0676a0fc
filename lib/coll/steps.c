/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The only loop over steps: the data of a collective.
 *
 * A segment is cut into slices, and `window` of them are in flight at a time. Each slice goes through all steps of the
 * schedule: make and send this rank's messages of the step, process those that it receives, then the next step. While
 * one slice is encoded, another is on its way and a third is added. A place is a step of a slice. All ranks use one
 * order of places: round of `window` slices, then step, then slice. They send messages and post receives in this order,
 * so the nth message to a peer is the nth that the peer expects from this rank. At some places a rank may have nothing
 * to send, or nothing to receive.
 *
 * There is no deadlock. A rank passes a place when it has sent its messages there and processed those that it receives
 * there. It sends the messages of a place when it has passed the same slice's place in the step before. Suppose that
 * all ranks wait, and take a rank whose next place is the first in the order. Its peers at that place have reached it
 * too, so they have sent what the rank waits for: a contradiction.
 *
 * An asynchronous engine has a queue for each slice. A slice proceeds to its next stage when its queue is idle. Then
 * messages are made and processed as soon as possible, in any order, but they are still sent, and places passed, in the
 * one order. */
#include "coll/steps.h"

#include "coll/note.h"
#include "coll/rules.h"
#include "coll/send.h"
#include "coll/receive.h"

/* ---- the order of places */

static uint64_t slice_at(const struct pici_request *request, const struct coll_place *place)
{
    return place->round * (uint64_t)layout_of(request)->window + (uint64_t)place->slice_index;
}

static int past_end(const struct pici_request *request, const struct coll_place *place)
{
    return slice_at(request, place) >= layout_of(request)->slices;
}

static void next_place(const struct pici_request *request, struct coll_place *place)
{
    place->slice_index++;
    if (place->slice_index < layout_of(request)->window && !past_end(request, place))
        return;
    place->slice_index = 0;
    if (++place->step < layout_of(request)->steps)
        return;
    place->step = 0;
    place->round++;
}

/* ---- stages */

static int busy(const struct pici_request *request)
{
    const struct coll_layout *layout = layout_of(request);
    int busy = !layout->slices;
    for (int i = 0; i < layout->window && request->engine->asynchronous; i++) {
        const enum coll_stage stage = request->runs[i].stage;
        busy |= stage == STAGE_QUANTIZING || stage == STAGE_COUNTING || stage == STAGE_MAKING ||
                stage == STAGE_LOOKING || stage == STAGE_FIRST || stage == STAGE_TAKING;
    }
    return busy;
}

/* ---- sending */

/* Send the messages of the next place in the order, if they are made. */
static enum pici_status try_send(struct pici_request *request, int *progressed)
{
    const struct coll_layout *layout = layout_of(request);
    struct pici_comm *comm = request->comm;
    const struct pici_transport *transport = &comm->transport;
    if (past_end(request, &request->next_send))
        return PICI_OK;
    struct slice_run *slice_run = &request->runs[request->next_send.slice_index];
    pici_make_messages(request, slice_run, progressed);
    for (int i = 0; i < layout->window && request->engine->asynchronous; i++)
        pici_make_messages(request, &request->runs[i], progressed);
    if (slice_run->stage != STAGE_MADE)
        return PICI_OK;
    const struct coll_place last = request->next_send;
    next_place(request, &request->next_send);
    /* If another slice is in flight, the next messages are that slice's and do not depend on what this one receives. */
    int own = 0; /* messages to this rank itself */
    for (int i = 0; i < slice_run->messages.sends; i++)
        own += slice_run->messages.send[i].peer == comm->virtual_rank;
    pici_step_sends(comm, slice_run->messages.sends - own,
                    !past_end(request, &request->next_send) &&
                        layout->slices - last.round * (uint64_t)layout->window > 1 && layout->window > 1);
    for (int i = 0; i < slice_run->messages.sends; i++) {
        if (slice_run->messages.send[i].peer == comm->virtual_rank) {
            request->making--;
            pici_slice_release(request, slice_run->outgoing[i]);
            continue;
        }
        struct coll_flight *flight = &request->sends[request->sending];
        *flight = (struct coll_flight){.buffer = slice_run->outgoing[i],
                                       .peer = comm->order[slice_run->messages.send[i].peer]};
        enum pici_status status = transport->send(transport->context, flight->peer, flight->buffer->bytes,
                                                  flight->buffer->size, &flight->request);
        if (status)
            return pici_coll_lost(comm, flight->peer, status);
        flight->buffer->flights++;
        request->sending++;
        request->making--;
        pici_request_sent(request, flight->peer, flight->buffer->size);
    }
    pici_slice_sent(slice_run);
    *progressed = 1;
    return PICI_OK;
}

/* Free the buffers of sends that have ended. */
static enum pici_status reap(struct pici_request *request, int *progressed)
{
    const struct pici_transport *transport = &request->comm->transport;
    for (int i = 0; i < request->sending;) {
        int done = 0;
        enum pici_status status = transport->test(transport->context, request->sends[i].request, &done, NULL);
        if (status)
            return pici_coll_lost(request->comm, request->sends[i].peer, status);
        if (done) {
            request->sends[i].buffer->flights--;
            pici_slice_release(request, request->sends[i].buffer);
            request->sends[i] = request->sends[--request->sending];
            *progressed = 1;
        } else {
            i++;
        }
    }
    return PICI_OK;
}

/* ---- receiving */

/* The receives of the place with this number, counted from 0. */
static struct coll_flight *row(const struct pici_request *request, uint64_t number)
{
    const struct coll_layout *layout = layout_of(request);
    return request->receives + (size_t)(number % (uint64_t)layout->window) * (size_t)layout->limits.receives;
}

/* Post the receives of the next places, up to `window` ahead. */
static enum pici_status post(struct pici_request *request, int *progressed)
{
    const struct call_rules *rules = request->call.args.rules;
    const struct coll_layout *layout = layout_of(request);
    const struct pici_transport *transport = &request->comm->transport;
    while (request->posted - request->passed < (uint64_t)layout->window && !past_end(request, &request->next_post)) {
        if (request->posting_step != request->next_post.step)
            pici_slice_step_at(request, request->posting_step = request->next_post.step, &request->posting);
        if (!rules->has_buffers(request, request->next_post.slice_index, request->next_post.step, 1))
            return PICI_OK;
        pici_step_receives(request->comm, request->posting.receives);
        for (int i = 0; i < request->posting.receives; i++) {
            struct coll_flight *flight = &row(request, request->posted)[i];
            *flight = (struct coll_flight){.peer = request->comm->order[request->posting.receive[i].peer]};
            flight->buffer =
                rules->acquire_buffer(request, request->next_post.slice_index, request->next_post.step, 1, i);
            enum pici_status status = transport->recv(transport->context, flight->peer, flight->buffer->bytes,
                                                      flight->buffer->capacity, &flight->request);
            if (status)
                return pici_coll_lost(request->comm, flight->peer, status);
        }
        request->posted++;
        next_place(request, &request->next_post);
        *progressed = 1;
    }
    return PICI_OK;
}

/* Process the messages that have arrived. Pass the next place in the order if everything there was processed. */
static enum pici_status try_receive(struct pici_request *request, int *progressed)
{
    struct coll_place place = request->next_pass;
    for (uint64_t i = request->passed; i < request->posted; i++, next_place(request, &place)) {
        struct slice_run *slice_run = &request->runs[place.slice_index];
        enum pici_status status = PICI_OK;
        if (slice_run->step == place.step && slice_run->slice == slice_at(request, &place))
            status = pici_receive_messages(request, slice_run, row(request, i), progressed);
        if (status)
            return status;
        /* a synchronous engine processes messages in the order of places */
        if (!request->engine->asynchronous)
            break;
    }
    struct slice_run *slice_run = &request->runs[request->next_pass.slice_index];
    if (request->passed == request->posted || slice_run->stage != STAGE_RECEIVED)
        return PICI_OK;
    pici_end_step(request, slice_run, row(request, request->passed));
    next_place(request, &request->next_pass);
    request->passed++;
    *progressed = 1;
    return PICI_OK;
}

/* ---- the path */

static enum pici_status begin(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const struct coll_layout *layout = layout_of(request);
    const struct pici_engine *engine = request->engine;
    if (layout->slices)
        call->args.rules->set_buffers(request, request->room.messages);
    for (int i = 0; i < layout->window; i++) {
        struct slice_run *slice_run = &request->runs[i];
        slice_run->queue = request->queues[i];
        slice_run->message = -1;
        if (request->room.sums)
            slice_run->accumulated =
                request->room.sums + (size_t)i * (size_t)layout->limits.sums * layout->slice * call->resolved.width;
        if (request->room.arrays)
            slice_run->quantized = request->room.arrays + (size_t)i * ((size_t)layout->quantized + 1) * layout->parts;
        pici_slice_begin(request, slice_run, (uint64_t)i);
    }
    void *mark = request->mark;
    request->mark = NULL;
    enum pici_status status = engine->begin(request->engine_self, mark, layout->window);
    if (!status && !layout->steps && call->args.count) /* a single rank */
        call->args.rules->place_alone(request);
    return status;
}

static enum pici_status move(struct pici_request *request, int *progressed, int *done)
{
    enum pici_status status;
    if (!layout_of(request)->slices) {
        status = request->engine->ready(request->runs[0].queue, done);
        if (status)
            pici_coll_note(request->comm, "rank %d: %s", request->comm->rank, pici_request_error(request, status));
        return status;
    }
    if ((status = post(request, progressed)) || (status = try_send(request, progressed)) ||
        (status = try_receive(request, progressed)) || (status = reap(request, progressed)))
        return status;
    *done = past_end(request, &request->next_pass) && request->sending == 0;
    return PICI_OK;
}

const struct coll_path pici_path_steps = {"steps", begin, move, busy};
