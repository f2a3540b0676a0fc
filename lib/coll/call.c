/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The public collectives: starting a call, making progress on the queue, waiting. */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "coll/agree.h"
#include "coll/balance.h"
#include "coll/call.h"
#include "coll/early.h"
#include "coll/note.h"
#include "coll/options.h"
#include "coll/ordinary.h"
#include "coll/steps.h"
#include "coll/native.h"
#include "schedule/registry.h"

static size_t scratch_of(struct coll_call *call, const struct pici_comm *comm)
{
    if (pici_layout_most(&call->resolved.layout, comm, call))
        return 0;
    const size_t bytes = pici_layout_scratch(&call->resolved.layout);
    return bytes ? bytes : 1;
}

/* The most scratch that an all_gatherv needs if its longest contribution is the call's count: the maximum over
 * all-gathers by each algorithm that it may use. With AUTO and with split, which gathers by ring or recursive, the
 * algorithm depends on the sum of all contributions. */
static size_t scratch_of_gatherv(const struct coll_call *call, const struct pici_comm *comm,
                                 const struct pici_coll_opts *options)
{
    size_t most = 0;
    struct coll_call gather = *call;
    gather.args.kind = PICI_ALL_GATHER;
    gather.args.rules = pici_ordinary_rules(PICI_ALL_GATHER);
    if (pici_options_resolve(&gather, comm, options, NULL, 0))
        return 0;
    const enum pici_algorithm asked = gather.opts.algorithm;
    gather.resolved.basis = 0;
    for (const struct schedule *schedule = pici_schedules; schedule->name; schedule++) {
        if (!pici_schedule_may_gather(schedule, asked))
            continue;
        gather.opts.algorithm = schedule->id;
        const size_t bytes = scratch_of(&gather, comm);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t pici_comm_scratch(const struct pici_comm *comm, enum pici_collective collective, uint64_t count,
                         enum pici_dtype dtype, enum pici_op op, const struct pici_coll_opts *options)
{
    struct pici_coll_opts checked;
    struct coll_call call = {
        .args = {
            .rules = pici_ordinary_rules(collective), .kind = collective, .count = count, .dtype = dtype, .op = op}};
    if (collective < PICI_ALL_GATHER || collective > PICI_ALL_GATHERV || !pici_schedule_for(PICI_ALGO_RING, collective))
        return 0;
    enum pici_status status = pici_options_check(&checked, comm, &call.args, options);
    if (status && status != PICI_E_BROKEN)
        return 0;
    if (collective == PICI_ALL_GATHERV)
        return scratch_of_gatherv(&call, comm, &checked);
    return pici_options_resolve(&call, comm, &checked, NULL, 0) ? 0 : scratch_of(&call, comm);
}

/* ---- starting */

enum pici_status pici_call_start(struct call_args args, struct pici_comm *comm, const struct pici_coll_opts *options,
                                 struct pici_request **out)
{
    struct pici_coll_opts checked;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    enum pici_status status = pici_options_check(&checked, comm, &args, options);
    if (status)
        return status;
    struct pici_request *request = malloc(sizeof *request);
    if (!request)
        return PICI_E_NOMEM;
    pici_request_queue(request, &args, comm, &checked);
    *out = request;
    return PICI_OK;
}

/* ---- progress */

/* Count nonzeros in a part of this rank's data. The native collective counts none, and the next such call needs to know
 * whether the data is still dense. Asynchronous engines skip this. */
static void sample(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const uint64_t whole = call->args.kind == PICI_REDUCE_SCATTER ? call->resolved.total : call->args.count;
    const uint64_t count = call->resolved.layout.slice < whole ? call->resolved.layout.slice : whole;
    const void *source = call->args.send;
    uint64_t nonzeros;
    if (!call->resolved.basis || !call->opts.history || request->engine->asynchronous)
        return;
    const struct engine_array elements = {.dtype = call->args.dtype, .by_value = call->resolved.by_value};
    request->engine->count(NULL, &source, &count, 1, &elements, 1, &nonzeros);
    request->counted[DENSITY_ONE] = (struct density_count){count, nonzeros};
}

/* Print and record the algorithm of a layout in use, if it was chosen by predicted time. */
static void tell_choice(const struct pici_request *request)
{
    const struct choice *choice = &request->call.resolved.layout.choice;
    if (choice->seconds < 0)
        return;
    pici_choose_print(request->comm->chooser);
    if (!request->comm->trace)
        return;
    const double now = pici_coll_now();
    struct trace_event event = pici_trace_event("choose", request->sequence, now, now);
    event.density = choice->density;
    event.choice = choice->candidate.native ? "native" : request->call.resolved.layout.schedule->name;
    event.dense = choice->candidate.dense;
    event.predicted = choice->seconds;
    pici_trace_add(request->comm->trace, &event);
}

/* Choose the layout of a call and begin with its data. The ranks have agreed on the call before, unless it is of a kind
 * that needs no call agreement. If the path cannot begin on this rank, poison tells the other ranks. Without a layout
 * this rank cannot send poison either: the communicator is broken. */
static enum pici_status begin_data(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    enum pici_status status = request->call.args.rules->prepare(request);
    if (status)
        return status;
    tell_choice(request);
    pici_request_tables(request);
    const int native = pici_native_asked(request) || request->call.resolved.layout.choice.candidate.native;
    if (native)
        sample(request);
    request->path = native ? &pici_path_native : &pici_path_steps;
    status = request->path->begin(request);
    if (status) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, request->engine->error(request->engine_self));
        pici_coll_fail(request, status, comm->rank);
    }
    request->state = COLL_DATA;
    return PICI_OK;
}

/* Make progress on the head without waiting. Returns whether anything moved. */
static int advance(struct pici_comm *comm)
{
    struct pici_request *request = comm->head;
    enum pici_status status = PICI_OK;
    int progressed = 0, done = 0;
    switch (request->state) {
    case COLL_WAITING:
        request->begin = comm->trace ? pici_coll_now() : 0;
        if (request->call.resolved.agreement == AGREE_NONE) {
            if ((status = begin_data(request)))
                break;
            return 1;
        }
        if (!request->status && request->call.resolved.agreement == AGREE_CALL && (status = pici_request_room(request)))
            pici_coll_fail(request, status, comm->rank);
        pici_early_begin(request);
        pici_balance_begin(request);
        pici_coll_agree_begin(request, MSG_AGREE_CALL);
        request->state = COLL_AGREE_CALL;
        return 1;
    case COLL_AGREE_CALL:
        status = pici_coll_agree(request, MSG_AGREE_CALL, &progressed, &done);
        if (status || !done)
            break;
        if (request->agree.status) {
            pici_early_undo(request);
            pici_coll_note(comm, "rank %d: %s", request->culprit, pici_strerror(request->status));
            status = request->status;
            break;
        }
        if (request->early) { /* the agreement has carried all data */
            tell_choice(request);
            pici_coll_agree_begin(request, MSG_AGREE_STATUS);
            request->state = COLL_AGREE_STATUS;
        } else if (pici_balance_again(request)) {
            pici_coll_agree_begin(request, MSG_AGREE_CALL);
        } else if ((status = begin_data(request))) {
            break;
        }
        return 1;
    case COLL_DATA:
        status = request->path->move(request, &progressed, &done);
        if (status || !done)
            break;
        if (!request->status && (status = request->call.args.rules->finish(request))) {
            pici_coll_note(comm, "rank %d: the result: %s", comm->rank, pici_strerror(status));
            pici_coll_fail(request, status, comm->rank);
        }
        if (!request->call.resolved.closing) {
            if (request->status) {
                pici_coll_note(comm, "another rank failed: %s", pici_strerror(request->status));
                pici_request_failed(comm);
            } else {
                pici_request_finish(comm);
            }
            return 1;
        }
        pici_coll_agree_begin(request, MSG_AGREE_STATUS);
        request->state = COLL_AGREE_STATUS;
        return 1;
    case COLL_AGREE_STATUS:
        status = pici_coll_agree(request, MSG_AGREE_STATUS, &progressed, &done);
        if (status || !done)
            break;
        if (request->status) {
            if (request->culprit == INT_MAX)
                pici_coll_note(comm, "another rank failed: %s", pici_strerror(request->status));
            else
                pici_coll_note(comm, "rank %d failed: %s", request->culprit, pici_strerror(request->status));
            status = request->status;
            break;
        }
        pici_request_finish(comm);
        return 1;
    case COLL_DONE: break;
    }
    if (status) {
        pici_coll_note(comm, "%s", pici_strerror(status));
        pici_coll_break(comm, status, status);
        return 1;
    }
    return progressed;
}

/* Like advance, with the timeout: breaks the communicator after too long without progress. If nothing moved, sets *now
 * to the time and *remaining to the seconds until the timeout. */
static int advance_in_time(struct pici_comm *comm, double *now, double *remaining)
{
    struct pici_request *request = comm->head;
    if (advance(comm)) {
        if (comm->head == request)
            request->idle_since = 0;
        return 1;
    }
    *now = pici_coll_now();
    if (request->idle_since == 0)
        request->idle_since = *now;
    *remaining =
        request->call.opts.timeout_ms < 0 ? 1 : request->idle_since + 1e-3 * request->call.opts.timeout_ms - *now;
    if (*remaining > 0)
        return 0;
    const struct pici_transport *transport = &comm->transport;
    const char *reason = transport->error ? transport->error(transport->context) : "";
    pici_coll_note(comm, "rank %d: no progress for %d ms%s%s", comm->rank, request->call.opts.timeout_ms,
                   reason[0] ? ": " : "", reason);
    pici_coll_break(comm, PICI_E_TIMEOUT, PICI_E_TIMEOUT);
    return 1;
}

/* Make progress until the request has ended, or until a time (pici_coll_now). */
static void run(struct pici_request *request, double until)
{
    /* one event until something moves, however often the transport wakes up */
    struct trace_event waited = pici_trace_event("wait", 0, 0, 0);
    struct trace *trace = request->comm ? request->comm->trace : NULL;
    while (request->state != COLL_DONE) {
        struct pici_comm *comm = request->comm;
        struct pici_request *head = comm->head;
        const struct pici_transport *transport = &comm->transport;
        double begin, remaining;
        if (advance_in_time(comm, &begin, &remaining)) {
            if (waited.begin > 0)
                pici_trace_add(trace, &waited);
            waited.begin = 0;
            if (until < HUGE_VAL && pici_coll_now() >= until)
                break;
            continue;
        }
        if (begin >= until)
            break;
        remaining = until - begin < remaining ? until - begin : remaining;
        if (transport->wait && !(head->state == COLL_DATA && head->path->busy(head)))
            transport->wait(transport->context, remaining > 0.1 ? 100 : (int)(remaining * 1e3) + 1);
        else
            sched_yield();
        waited.end = pici_coll_now();
        head->stats.wait_s += waited.end - begin;
        if (waited.begin == 0)
            waited.begin = begin;
        waited.sequence = head->sequence;
    }
    if (waited.begin > 0)
        pici_trace_add(trace, &waited);
}

enum pici_status pici_test(struct pici_request **request, int *done)
{
    if (!request || !done)
        return PICI_E_ARG;
    struct pici_request *pending = *request;
    double now, remaining;
    *done = 0;
    if (pending && pending->comm && pending->comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    while (pending && pending->state != COLL_DONE && advance_in_time(pending->comm, &now, &remaining))
        ;
    *done = !pending || pending->state == COLL_DONE;
    return *done ? pici_wait(request) : PICI_OK;
}

enum pici_status pici_wait(struct pici_request **request)
{
    int done;
    return pici_wait_for(request, -1, &done);
}

enum pici_status pici_wait_for(struct pici_request **request, int timeout_ms, int *done)
{
    if (!request || !done)
        return PICI_E_ARG;
    struct pici_request *pending = *request;
    *done = !pending;
    if (!pending)
        return PICI_OK;
    if (pending->comm && pending->comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    if (pending->state != COLL_DONE)
        run(pending, timeout_ms < 0 ? HUGE_VAL : pici_coll_now() + 1e-3 * timeout_ms);
    *done = pending->state == COLL_DONE;
    if (!*done)
        return PICI_OK;
    enum pici_status status = pending->status;
    *request = NULL;
    free(pending);
    return status;
}

enum pici_status pici_call_wait(struct call_args args, struct pici_comm *comm, const struct pici_coll_opts *options)
{
    struct pici_coll_opts checked;
    enum pici_status status = pici_options_check(&checked, comm, &args, options);
    if (status)
        return status;
    args.blocking = 1;
    pici_request_queue(comm->spare, &args, comm, &checked);
    run(comm->spare, HUGE_VAL);
    return comm->spare->status;
}

/* ---- the public functions */

static struct call_args make_call(enum pici_collective collective, const void *send, void *recv, uint64_t count,
                                  enum pici_dtype dtype, enum pici_op op)
{
    return (struct call_args){.rules = pici_ordinary_rules(collective),
                              .kind = collective,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .dtype = dtype,
                              .op = op};
}

static struct call_args make_broadcast(void *buf, uint64_t count, enum pici_dtype dtype, int root)
{
    struct call_args args = make_call(PICI_BROADCAST, buf, buf, count, dtype, PICI_SUM);
    args.root = root;
    return args;
}

static struct call_args make_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                     const uint64_t *displs, enum pici_dtype dtype)
{
    struct call_args args = make_call(PICI_ALL_GATHERV, send, recv, sendcount, dtype, PICI_SUM);
    args.recvcounts = recvcounts;
    args.displs = displs;
    return args;
}

/* Over a transport of GPU memory, messages are dense. They have all of the numbers, or the contribution of one rank.
 * NCCL's own collectives would read host memory. */
static enum pici_status wait_small(struct call_args args, struct pici_comm *comm, enum pici_algorithm algorithm)
{
    struct pici_coll_opts options = PICI_COLL_OPTS_INIT;
    options.algorithm = algorithm;
    options.format = PICI_DENSE;
    options.native = -1;
    args.small = comm->transport.memory == PICI_MEMORY_DEVICE;
    return pici_call_wait(args, comm, args.small ? &options : NULL);
}

enum pici_status pici_call_reduce_small(uint64_t *numbers, uint64_t count, enum pici_op op, struct pici_comm *comm)
{
    return wait_small(make_call(PICI_ALL_REDUCE, numbers, numbers, count, PICI_U64, op), comm, PICI_ALGO_DOUBLING);
}

enum pici_status pici_call_gather_small(const uint8_t *send, uint8_t *recv, uint64_t bytes, struct pici_comm *comm)
{
    return wait_small(make_call(PICI_ALL_GATHER, send, recv, bytes, PICI_U8, PICI_SUM), comm, PICI_ALGO_RING);
}

enum pici_status pici_all_gather_start(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                       struct pici_comm *comm, const struct pici_coll_opts *options,
                                       struct pici_request **request)
{
    return pici_call_start(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, options, request);
}

enum pici_status pici_reduce_scatter_start(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                           enum pici_op op, struct pici_comm *comm,
                                           const struct pici_coll_opts *options, struct pici_request **request)
{
    return pici_call_start(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, options, request);
}

enum pici_status pici_all_reduce_start(const void *send, void *recv, uint64_t count, enum pici_dtype dtype,
                                       enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *options,
                                       struct pici_request **request)
{
    return pici_call_start(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, options, request);
}

enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                 struct pici_comm *comm, const struct pici_coll_opts *options)
{
    return pici_call_wait(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, options);
}

enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                     enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *options)
{
    return pici_call_wait(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, options);
}

enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op op,
                                 struct pici_comm *comm, const struct pici_coll_opts *options)
{
    return pici_call_wait(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, options);
}

enum pici_status pici_broadcast_start(void *buf, uint64_t count, enum pici_dtype dtype, int root,
                                      struct pici_comm *comm, const struct pici_coll_opts *options,
                                      struct pici_request **request)
{
    return pici_call_start(make_broadcast(buf, count, dtype, root), comm, options, request);
}

enum pici_status pici_broadcast(void *buf, uint64_t count, enum pici_dtype dtype, int root, struct pici_comm *comm,
                                const struct pici_coll_opts *options)
{
    return pici_call_wait(make_broadcast(buf, count, dtype, root), comm, options);
}

enum pici_status pici_all_gatherv_start(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                        const uint64_t *displs, enum pici_dtype dtype, struct pici_comm *comm,
                                        const struct pici_coll_opts *options, struct pici_request **request)
{
    return pici_call_start(make_gatherv(send, sendcount, recv, recvcounts, displs, dtype), comm, options, request);
}

enum pici_status pici_all_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                  const uint64_t *displs, enum pici_dtype dtype, struct pici_comm *comm,
                                  const struct pici_coll_opts *options)
{
    return pici_call_wait(make_gatherv(send, sendcount, recv, recvcounts, displs, dtype), comm, options);
}
