/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/request.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "coll/note.h"
#include "coll/options.h"
#include "coll/rules.h"
#include "coll/engine_stream.h"

/* ---- failure */

void pici_coll_fail(struct pici_request *request, enum pici_status status, int culprit)
{
    if (status < request->status || (status == request->status && culprit < request->culprit)) {
        request->status = status;
        request->culprit = culprit;
    }
}

const char *pici_request_error(const struct pici_request *request, enum pici_status status)
{
    const char *own = request->engine->error(request->engine_self);
    return status == PICI_E_DEVICE && own[0] ? own : pici_strerror(status);
}

/* ---- queueing */

static enum pici_status find_stream_engine(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    struct stream_call *stream = request->call.args.stream;
    if (comm->transport.memory == PICI_MEMORY_DEVICE && comm->ranks > 1) {
        pici_coll_note(comm, "rank %d: a stream needs host memory, and the transport carries only GPU memory",
                       comm->rank);
        return PICI_E_UNSUPPORTED;
    }
    if (!(stream->engine_self = pici_engine_stream_new(stream, comm->engine_self)))
        return PICI_E_NOMEM;
    request->engine = &pici_engine_stream;
    request->engine_self = stream->engine_self;
    return PICI_OK;
}

/* Choose the engine by where the buffers are. */
static enum pici_status find_engine(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    const struct coll_call *call = &request->call;
    const struct pici_engine *engine = comm->other;
    if (call->args.stream)
        return find_stream_engine(request);
    /* in a neighbourhood call, a rank may only send, or only receive */
    const int sending = engine && call->args.count, receiving = engine && call->resolved.total;
    const int sends = sending ? engine->owns(comm->other_self, call->args.send) : 0;
    const int receives = receiving ? engine->owns(comm->other_self, call->args.recv) : 0;
    const int owned = sends | receives;
    const int device = comm->transport.memory == PICI_MEMORY_DEVICE && comm->ranks > 1 && !call->args.small;
    const char *wrong = NULL;
    if (sends < -1 || receives < -1) {
        pici_coll_note(comm, "rank %d: the GPU does not report the memory of a buffer", comm->rank);
        return PICI_E_DEVICE;
    }
    if (sends < 0 || receives < 0)
        wrong = "a buffer is not on the GPU of the stream: use buffers and a stream of one GPU";
    else if (sending && receiving && sends != receives)
        wrong = "one buffer is in GPU memory, the other in host memory: use one kind for both";
    else if (sending && call->opts.residual && engine->owns(comm->other_self, call->opts.residual) != sends)
        wrong = "the residual is not in the same memory as the buffers";
    else if (((uintptr_t)call->args.send | (uintptr_t)call->args.recv | (uintptr_t)call->opts.residual) %
             (owned ? call->resolved.width : 1))
        wrong = "a buffer in a GPU's memory is not aligned to its elements";
    else if (!owned && (call->args.count || call->resolved.total) && device)
        wrong = "buffers are in host memory, which the transport does not carry";
    if (wrong) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, wrong);
        return PICI_E_ARG;
    }
    if (owned || (device && engine)) { /* a rank without elements of its own may pass on others' */
        request->engine = engine;
        request->engine_self = comm->other_self;
    }
    enum pici_status status = request->engine->enter(request->engine_self, &request->mark);
    if (status)
        pici_coll_note(comm, "rank %d: %s: %s", comm->rank, request->engine->name,
                       request->engine->error(request->engine_self));
    return status;
}

void pici_request_queue(struct pici_request *request, const struct call_args *args, struct pici_comm *comm,
                        const struct pici_coll_opts *options)
{
    static const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    *request = (struct pici_request){.comm = comm, .call.args = *args, .stats = none, .culprit = INT_MAX};
    request->sequence = comm->sequence++;
    request->engine = comm->engine;
    request->engine_self = comm->engine_self;
    char explanation[160];
    enum pici_status status = pici_options_resolve(&request->call, comm, options, explanation, sizeof explanation);
    request->call.resolved.unusable = status != PICI_OK;
    const char *reason = status ? explanation : args->rules->buffers_wrong(&request->call, comm);
    if (reason) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, reason);
        pici_coll_fail(request, args->stream && args->stream->no_memory ? PICI_E_NOMEM : PICI_E_ARG, comm->rank);
    } else if (comm->paired_only && args->kind == PICI_ALL_TO_ALLV) { /* neither of its schedules is paired */
        pici_coll_note(comm, "rank %d: the transport has the struct of version 0.1, which carries no all-to-all",
                       comm->rank);
        pici_coll_fail(request, PICI_E_UNSUPPORTED, comm->rank);
    } else if ((status = find_engine(request))) {
        pici_coll_fail(request, status, comm->rank);
    }
    if (comm->failed)
        pici_coll_fail(request, PICI_E_BROKEN, comm->rank);
    if (comm->tail)
        comm->tail->next = request;
    else
        comm->head = request;
    comm->tail = request;
}

/* ---- memory */

/* Aligned arrays that follow each other in memory. With memory == NULL they are only counted. */
struct tables {
    uint8_t *memory;
    size_t bytes;
};

static size_t tables_align(size_t bytes)
{
    enum { ALIGN = 16 };
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static void *place(struct tables *tables, size_t count, size_t each)
{
    uint8_t *placed = tables->memory ? tables->memory + tables->bytes : NULL;
    tables->bytes += tables_align(count * each);
    return placed;
}

static void place_run(struct tables *tables, struct slice_run *slice_run, const struct coll_layout *layout)
{
    const struct schedule_limits *most = &layout->limits;
    const size_t wide = (size_t)most->segments * VALUES_ARRAYS, all = (size_t)layout->segments;
    void *step = place(tables, 1, pici_schedule_step_bytes(most));
    if (tables->memory)
        pici_schedule_step_init(&slice_run->messages, most, step);
    slice_run->outgoing = place(tables, (size_t)most->sends, sizeof *slice_run->outgoing);
    slice_run->counts = place(tables, wide, sizeof *slice_run->counts);
    slice_run->nonzeros = place(tables, wide, sizeof *slice_run->nonzeros);
    slice_run->sizes = place(tables, wide, sizeof *slice_run->sizes);
    slice_run->sources = place(tables, wide, sizeof *slice_run->sources);
    slice_run->slots = place(tables, (size_t)most->sums, sizeof *slice_run->slots);
    slice_run->sum_slot = place(tables, all, sizeof *slice_run->sum_slot);
    slice_run->encoded = most->kept ? place(tables, all, sizeof *slice_run->encoded) : NULL;
}

static size_t place_tables(struct pici_request *request, const struct coll_layout *layout, uint8_t *memory)
{
    struct tables tables = {memory, 0};
    const size_t window = (size_t)layout->window, buffers = (size_t)layout->buffers;
    struct slice_run none;
    request->runs = place(&tables, window, sizeof *request->runs);
    request->buffers = place(&tables, buffers, sizeof *request->buffers);
    request->free_buffers = place(&tables, buffers, sizeof *request->free_buffers);
    request->sends = place(&tables, window * (size_t)layout->limits.sends, sizeof *request->sends);
    request->receives = place(&tables, window * (size_t)layout->limits.receives, sizeof *request->receives);
    void *step = place(&tables, 1, pici_schedule_step_bytes(&layout->limits));
    if (memory)
        pici_schedule_step_init(&request->posting, &layout->limits, step);
    request->posting_step = -1;
    for (size_t i = 0; i < window; i++)
        place_run(&tables, memory ? &request->runs[i] : &none, layout);
    return tables.bytes;
}

void pici_request_tables(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    const size_t queues = COLL_MAX_WINDOW * sizeof *request->queues;
    uint8_t *tables = (uint8_t *)comm->tables + queues;
    if (pici_layout_packed_bytes(&request->call, comm))
        pici_layout_pack(&request->call, comm, (uint64_t *)(void *)tables);
    tables += tables_align(pici_layout_packed_bytes(&request->call, comm));
    memset(tables, 0, place_tables(request, &request->call.resolved.layout, NULL));
    (void)place_tables(request, &request->call.resolved.layout, tables);
    request->queues = comm->tables;
    request->free_count = request->sending = request->making = 0;
}

enum pici_status pici_request_room(struct pici_request *request)
{
    struct coll_call *call = &request->call;
    struct pici_comm *comm = request->comm;
    struct coll_layout *layout = &call->resolved.layout;
    enum pici_status status = call->args.rules->lay_out(layout, comm, call);
    if (status) {
        pici_coll_note(comm,
                       status == PICI_E_ARG ? "rank %d: a count exceeds the address space"
                                            : "rank %d: the transport cannot carry this algorithm's messages",
                       comm->rank);
        return status;
    }
    const size_t tables = COLL_MAX_WINDOW * sizeof *request->queues +
                          tables_align(pici_layout_packed_bytes(call, comm)) + place_tables(request, layout, NULL);
    if (tables > comm->tables_bytes) {
        void *more = malloc(tables);
        if (!more) {
            pici_coll_note(comm, "rank %d: no memory for the call", comm->rank);
            return PICI_E_NOMEM;
        }
        free(comm->tables);
        comm->tables = more;
        comm->tables_bytes = tables;
    }
    const struct engine_needs needs = {.dtype = call->args.dtype,
                                       .op = call->args.op,
                                       .slice = layout->slice,
                                       .blocks = layout->limits.segments * call->opts.values.codec->arrays,
                                       .queues = layout->window,
                                       .messages = layout->messages,
                                       .sums = layout->sums,
                                       .arrays = layout->arrays,
                                       .values = &call->opts.values,
                                       .temp = layout->temp,
                                       .device = comm->transport.memory != PICI_MEMORY_HOST,
                                       .checksum = (unsigned)call->opts.checksum,
                                       .memory = call->opts.scratch,
                                       .memory_bytes = call->opts.scratch_bytes};
    status = request->engine->room(request->engine_self, &needs, &request->room, comm->tables);
    const char *why = request->engine->error(request->engine_self);
    if (status && request->engine == comm->engine)
        pici_coll_note(comm, "rank %d: %s", comm->rank, why);
    else if (status)
        pici_coll_note(comm, "rank %d: %s: %s", comm->rank, request->engine->name, why);
    return status;
}

void pici_request_sent(struct pici_request *request, int peer, size_t bytes)
{
    const struct pici_comm *comm = request->comm;
    request->stats.wire_bytes += bytes;
    if (comm->node_of[peer] != comm->node_of[comm->rank])
        request->stats.inter_bytes += bytes;
}

/* ---- the transport's steps */

void pici_step_receives(struct pici_comm *comm, int n)
{
    const struct pici_transport *transport = &comm->transport;
    if (transport->receives)
        transport->receives(transport->context, n);
}

void pici_step_sends(struct pici_comm *comm, int n, int more)
{
    const struct pici_transport *transport = &comm->transport;
    if (transport->sends)
        transport->sends(transport->context, n, more);
    else if (transport->more && n)
        transport->more(transport->context, more);
}

/* ---- the end */

void pici_request_failed(struct pici_comm *comm)
{
    comm->failed = 1;
    pici_request_finish(comm);
}

void pici_request_finish(struct pici_comm *comm)
{
    struct pici_request *request = comm->head;
    comm->head = request->next;
    if (!comm->head)
        comm->tail = NULL;
    request->next = NULL;
    if (!request->status && request->call.opts.history)
        pici_density_keep(&comm->densities, request->call.args.kind, request->call.args.dtype, request->call.args.count,
                          request->agree.density);
    request->comm = NULL; /* it may be freed before the caller asks for the status */
    request->state = COLL_DONE;
    if (request->call.opts.stats)
        pici_options_stats(request->call.opts.stats, &request->stats);
    if (request->mark)
        (void)request->engine->begin(request->engine_self, request->mark, 0);
    request->mark = NULL;
    pici_stream_close(request->call.args.stream, comm, request->status);
    request->call.args.stream = NULL;
    if (comm->trace && request->begin > 0) {
        const char *name = request->call.args.rules->name;
        struct trace_event event = pici_trace_event(name ? name : pici_coll_name(request->call.args.kind),
                                                    request->sequence, request->begin, pici_coll_now());
        event.dense_bytes = request->stats.dense_bytes;
        event.wire_bytes = request->stats.wire_bytes;
        event.values = request->call.opts.values.phases ? request->call.opts.values.codec->name : NULL;
        event.events = request->stats.events;
        event.nonfinite = request->stats.nonfinite;
        event.lost = request->stats.lost;
        pici_trace_add(comm->trace, &event);
    }
}

void pici_coll_break(struct pici_comm *comm, enum pici_status status, enum pici_status why)
{
    comm->broken = status;
    if (comm->head && comm->head->engine->halt(comm->head->engine_self))
        comm->leaks = 1;
    if (comm->transport.abandon(comm->transport.context, why))
        comm->leaks = 1;
    while (comm->head) {
        comm->head->status = status;
        pici_request_finish(comm);
        status = PICI_E_BROKEN; /* requests behind the head have not begun */
    }
}
