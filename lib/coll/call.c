/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The public collectives: starting a call, making progress on the queue, waiting. */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "coll/agree.h"
#include "coll/call.h"
#include "coll/early.h"
#include "coll/note.h"
#include "coll/options.h"
#include "coll/ordinary.h"
#include "coll/steps.h"
#include "coll/vendor.h"
#include "schedule/registry.h"

static size_t scratch_of(struct coll_call *c, const struct pici_comm *comm)
{
    if (pici_layout_most(&c->resolved.at, comm, c))
        return 0;
    const size_t bytes = pici_layout_scratch(&c->resolved.at);
    return bytes ? bytes : 1;
}

/* The most that an all_gatherv needs whose longest contribution is the call's count: as an all-gather by any of the
 * algorithms that it may have. With AUTO, and with split, which gathers as ring or as recursive, that depends on the
 * sum of all contributions. */
static size_t scratch_of_gatherv(const struct coll_call *c, const struct pici_comm *comm,
                                 const struct pici_coll_opts *opts)
{
    size_t most = 0;
    struct coll_call as = *c;
    as.args.kind = PICI_ALL_GATHER;
    as.args.rules = pici_ordinary_rules(PICI_ALL_GATHER);
    if (pici_options_resolve(&as, comm, opts, NULL, 0))
        return 0;
    const enum pici_algorithm asked = as.opts.algorithm;
    as.resolved.basis = 0;
    for (const struct schedule *s = pici_schedules; s->name; s++) {
        if (!pici_schedule_may_gather(s, asked))
            continue;
        as.opts.algorithm = s->id;
        const size_t bytes = scratch_of(&as, comm);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t pici_comm_scratch(const struct pici_comm *comm, enum pici_collective kind, uint64_t count, enum pici_dtype dtype,
                         enum pici_op op, const struct pici_coll_opts *opts)
{
    struct pici_coll_opts o;
    struct coll_call c = {
        .args = {.rules = pici_ordinary_rules(kind), .kind = kind, .count = count, .dtype = dtype, .op = op}};
    if (kind < PICI_ALL_GATHER || kind > PICI_ALL_GATHERV || !pici_schedule_for(PICI_ALGO_RING, kind))
        return 0;
    enum pici_status s = pici_options_check(&o, comm, &c.args, opts);
    if (s && s != PICI_E_BROKEN)
        return 0;
    if (kind == PICI_ALL_GATHERV)
        return scratch_of_gatherv(&c, comm, &o);
    return pici_options_resolve(&c, comm, &o, NULL, 0) ? 0 : scratch_of(&c, comm);
}

/* ---- starting */

enum pici_status pici_call_start(struct call_args args, struct pici_comm *comm, const struct pici_coll_opts *opts,
                                 struct pici_request **out)
{
    struct pici_coll_opts o;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    enum pici_status s = pici_options_check(&o, comm, &args, opts);
    if (s)
        return s;
    struct pici_request *r = malloc(sizeof *r);
    if (!r)
        return PICI_E_NOMEM;
    pici_request_queue(r, &args, comm, &o);
    *out = r;
    return PICI_OK;
}

/* ---- progress */

/* Count nonzeros of a part of this rank's data. The vendor's call counts none, and the next such call is to know
 * whether the data is still dense. An engine that would do it later leaves it out. */
static void sample(struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    const uint64_t whole = c->args.kind == PICI_REDUCE_SCATTER ? c->resolved.total : c->args.count,
                   n = c->resolved.at.slice < whole ? c->resolved.at.slice : whole;
    const void *src = c->args.send;
    uint64_t nnz;
    if (!c->resolved.basis || !c->opts.history || r->engine->asynchronous)
        return;
    const struct engine_array elements = {.dtype = c->args.dtype, .by_value = c->resolved.by_value};
    r->engine->count(NULL, &src, &n, 1, &elements, 1, &nnz);
    r->counted[DENSITY_ONE] = (struct density_count){n, nnz};
}

/* Record the algorithm that was chosen by predicted time. */
static void trace_choice(const struct pici_request *r)
{
    const struct choice *c = &r->call.resolved.at.choice;
    if (!r->comm->trace || c->seconds < 0)
        return;
    const double now = pici_coll_now();
    struct trace_event e = pici_trace_event("choose", r->sequence, now, now);
    e.density = c->density;
    e.choice = c->candidate.vendor ? "vendor" : r->call.resolved.at.schedule->name;
    e.dense = c->candidate.dense;
    e.predicted = c->seconds;
    pici_trace_add(r->comm->trace, &e);
}

/* The ranks have agreed on the call, or do not before its data: choose its layout and begin with the data. If the path
 * cannot begin on this rank, the other ranks are told by poison. Without a layout this rank cannot even send poison:
 * the communicator is broken. */
static enum pici_status begin_data(struct pici_request *r)
{
    struct pici_comm *comm = r->comm;
    enum pici_status s = r->call.args.rules->prepare(r);
    if (s)
        return s;
    trace_choice(r);
    pici_request_tables(r);
    const int vendor = pici_vendor_asked(r) || r->call.resolved.at.choice.candidate.vendor;
    if (vendor)
        sample(r);
    r->path = vendor ? &pici_path_vendor : &pici_path_steps;
    s = r->path->begin(r);
    if (s) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, r->engine->error(r->self));
        pici_coll_fail(r, s, comm->rank);
    }
    r->state = COLL_DATA;
    return PICI_OK;
}

/* Make progress on the head without waiting. Returns whether anything moved. */
static int advance(struct pici_comm *comm)
{
    struct pici_request *r = comm->head;
    enum pici_status s = PICI_OK;
    int moved = 0, done = 0;
    switch (r->state) {
    case COLL_WAITING:
        r->begin = comm->trace ? pici_coll_now() : 0;
        if (r->call.resolved.hello == HELLO_NONE) {
            if ((s = begin_data(r)))
                break;
            return 1;
        }
        if (!r->status && r->call.resolved.hello == HELLO_CALL && (s = pici_request_room(r)))
            pici_coll_fail(r, s, comm->rank);
        pici_early_begin(r);
        pici_coll_agree_begin(r, MSG_HELLO);
        r->state = COLL_HELLO;
        return 1;
    case COLL_HELLO:
        s = pici_coll_agree(r, MSG_HELLO, &moved, &done);
        if (s || !done)
            break;
        if (r->agree.status) {
            pici_early_undo(r);
            pici_coll_note(comm, "rank %d: %s", r->culprit, pici_strerror(r->status));
            s = r->status;
            break;
        }
        if (r->early) { /* the data are through */
            trace_choice(r);
            pici_coll_agree_begin(r, MSG_CLOSING);
            r->state = COLL_CLOSING;
        } else if ((s = begin_data(r))) {
            break;
        }
        return 1;
    case COLL_DATA:
        s = r->path->move(r, &moved, &done);
        if (s || !done)
            break;
        if (!r->call.resolved.closing) {
            if (r->status) {
                pici_coll_note(comm, "another rank failed: %s", pici_strerror(r->status));
                pici_request_failed(comm);
            } else {
                pici_request_finish(comm);
            }
            return 1;
        }
        pici_coll_agree_begin(r, MSG_CLOSING);
        r->state = COLL_CLOSING;
        return 1;
    case COLL_CLOSING:
        s = pici_coll_agree(r, MSG_CLOSING, &moved, &done);
        if (s || !done)
            break;
        if (r->status) {
            if (r->culprit == INT_MAX)
                pici_coll_note(comm, "another rank failed: %s", pici_strerror(r->status));
            else
                pici_coll_note(comm, "rank %d failed: %s", r->culprit, pici_strerror(r->status));
            s = r->status;
            break;
        }
        pici_request_finish(comm);
        return 1;
    case COLL_DONE: break;
    }
    if (s) {
        pici_coll_note(comm, "%s", pici_strerror(s));
        pici_coll_break(comm, s, s);
        return 1;
    }
    return moved;
}

/* As advance, with the timeout: breaks the communicator if nothing has moved for too long. If nothing moved, *now is
 * the time, and *left the seconds until then. */
static int advance_in_time(struct pici_comm *comm, double *now, double *left)
{
    struct pici_request *r = comm->head;
    if (advance(comm)) {
        if (comm->head == r)
            r->idle = 0;
        return 1;
    }
    *now = pici_coll_now();
    if (r->idle == 0)
        r->idle = *now;
    *left = r->call.opts.timeout_ms < 0 ? 1 : r->idle + 1e-3 * r->call.opts.timeout_ms - *now;
    if (*left > 0)
        return 0;
    const struct pici_transport *t = &comm->transport;
    const char *why = t->error ? t->error(t->context) : "";
    pici_coll_note(comm, "rank %d: nothing moved for %d ms%s%s", comm->rank, r->call.opts.timeout_ms,
                   why[0] ? ": " : "", why);
    pici_coll_break(comm, PICI_E_TIMEOUT, PICI_E_TIMEOUT);
    return 1;
}

/* Make progress until the request has ended, or until a time (pici_coll_now). */
static void run(struct pici_request *r, double until)
{
    /* one event until something moves, however often the transport wakes up */
    struct trace_event waited = pici_trace_event("wait", 0, 0, 0);
    struct trace *trace = r->comm ? r->comm->trace : NULL;
    while (r->state != COLL_DONE) {
        struct pici_comm *comm = r->comm;
        struct pici_request *head = comm->head;
        const struct pici_transport *t = &comm->transport;
        double begin, left;
        if (advance_in_time(comm, &begin, &left)) {
            if (waited.begin > 0)
                pici_trace_add(trace, &waited);
            waited.begin = 0;
            if (until < HUGE_VAL && pici_coll_now() >= until)
                break;
            continue;
        }
        if (begin >= until)
            break;
        left = until - begin < left ? until - begin : left;
        if (t->wait && !(head->state == COLL_DATA && head->path->busy(head)))
            t->wait(t->context, left > 0.1 ? 100 : (int)(left * 1e3) + 1);
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
    struct pici_request *r = *request;
    double now, left;
    *done = 0;
    if (r && r->comm && r->comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    while (r && r->state != COLL_DONE && advance_in_time(r->comm, &now, &left))
        ;
    *done = !r || r->state == COLL_DONE;
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
    struct pici_request *r = *request;
    *done = !r;
    if (!r)
        return PICI_OK;
    if (r->comm && r->comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    if (r->state != COLL_DONE)
        run(r, timeout_ms < 0 ? HUGE_VAL : pici_coll_now() + 1e-3 * timeout_ms);
    *done = r->state == COLL_DONE;
    if (!*done)
        return PICI_OK;
    enum pici_status s = r->status;
    *request = NULL;
    free(r);
    return s;
}

enum pici_status pici_call_wait(struct call_args args, struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    struct pici_coll_opts o;
    enum pici_status s = pici_options_check(&o, comm, &args, opts);
    if (s)
        return s;
    args.blocking = 1;
    pici_request_queue(comm->spare, &args, comm, &o);
    run(comm->spare, HUGE_VAL);
    return comm->spare->status;
}

/* ---- the public functions */

static struct call_args make_call(enum pici_collective kind, const void *send, void *recv, uint64_t count,
                                  enum pici_dtype dtype, enum pici_op op)
{
    return (struct call_args){.rules = pici_ordinary_rules(kind),
                              .kind = kind,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .dtype = dtype,
                              .op = op};
}

static struct call_args make_broadcast(void *buf, uint64_t count, enum pici_dtype dtype, int root)
{
    struct call_args a = make_call(PICI_BROADCAST, buf, buf, count, dtype, PICI_SUM);
    a.root = root;
    return a;
}

static struct call_args make_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                     const uint64_t *displs, enum pici_dtype dtype)
{
    struct call_args a = make_call(PICI_ALL_GATHERV, send, recv, sendcount, dtype, PICI_SUM);
    a.recvcounts = recvcounts;
    a.displs = displs;
    return a;
}

enum pici_status pici_all_gather_start(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                       struct pici_comm *comm, const struct pici_coll_opts *opts,
                                       struct pici_request **request)
{
    return pici_call_start(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, opts, request);
}

enum pici_status pici_reduce_scatter_start(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                           enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts,
                                           struct pici_request **request)
{
    return pici_call_start(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, opts, request);
}

enum pici_status pici_all_reduce_start(const void *send, void *recv, uint64_t count, enum pici_dtype dtype,
                                       enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts,
                                       struct pici_request **request)
{
    return pici_call_start(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, opts, request);
}

enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                 struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return pici_call_wait(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, opts);
}

enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                     enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return pici_call_wait(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, opts);
}

enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op op,
                                 struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return pici_call_wait(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, opts);
}

enum pici_status pici_broadcast_start(void *buf, uint64_t count, enum pici_dtype dtype, int root,
                                      struct pici_comm *comm, const struct pici_coll_opts *opts,
                                      struct pici_request **request)
{
    return pici_call_start(make_broadcast(buf, count, dtype, root), comm, opts, request);
}

enum pici_status pici_broadcast(void *buf, uint64_t count, enum pici_dtype dtype, int root, struct pici_comm *comm,
                                const struct pici_coll_opts *opts)
{
    return pici_call_wait(make_broadcast(buf, count, dtype, root), comm, opts);
}

enum pici_status pici_all_gatherv_start(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                        const uint64_t *displs, enum pici_dtype dtype, struct pici_comm *comm,
                                        const struct pici_coll_opts *opts, struct pici_request **request)
{
    return pici_call_start(make_gatherv(send, sendcount, recv, recvcounts, displs, dtype), comm, opts, request);
}

enum pici_status pici_all_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                  const uint64_t *displs, enum pici_dtype dtype, struct pici_comm *comm,
                                  const struct pici_coll_opts *opts)
{
    return pici_call_wait(make_gatherv(send, sendcount, recv, recvcounts, displs, dtype), comm, opts);
}
