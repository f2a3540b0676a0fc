/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/request.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "coll/note.h"
#include "coll/options.h"
#include "coll/rules.h"

/* ---- failure */

void pici_coll_fail(struct pici_request *r, enum pici_status s, int culprit)
{
    if (s < r->status || (s == r->status && culprit < r->culprit)) {
        r->status = s;
        r->culprit = culprit;
    }
}

const char *pici_request_words(const struct pici_request *r, enum pici_status s)
{
    const char *own = r->engine->error(r->self);
    return s == PICI_E_DEVICE && own[0] ? own : pici_strerror(s);
}

/* ---- queueing */

/* Choose the engine by where the buffers are. */
static enum pici_status find_engine(struct pici_request *r)
{
    struct pici_comm *comm = r->comm;
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = comm->other;
    const int sending = e && c->args.count,
              receiving = e && c->resolved.total; /* a neighbourhood call may be only one of them */
    const int sends = sending ? e->owns(comm->other_self, c->args.send) : 0,
              receives = receiving ? e->owns(comm->other_self, c->args.recv) : 0, owned = sends | receives;
    const char *wrong = NULL;
    if (sends < -1 || receives < -1) {
        pici_coll_note(comm, "rank %d: the GPU does not say whose memory a buffer is in", comm->rank);
        return PICI_E_DEVICE;
    }
    if (sends < 0 || receives < 0)
        wrong = "a buffer is in another GPU's memory than the stream's";
    else if (sending && receiving && sends != receives)
        wrong = "one buffer is in a GPU's memory, the other is not";
    else if (sending && c->opts.residual && e->owns(comm->other_self, c->opts.residual) != sends)
        wrong = "the residual is not in the same memory as the buffers";
    else if (((uintptr_t)c->args.send | (uintptr_t)c->args.recv | (uintptr_t)c->opts.residual) %
             (owned ? c->resolved.width : 1))
        wrong = "a buffer in a GPU's memory is not aligned to its elements";
    else if (owned && c->args.rules->host_only)
        wrong = c->args.rules->host_only;
    else if (!owned && (c->args.count || c->resolved.total) && comm->ranks > 1 &&
             comm->transport.memory == PICI_MEMORY_DEVICE)
        wrong = "buffers in the host's memory, where messages cannot be";
    if (wrong) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, wrong);
        return PICI_E_ARG;
    }
    if (owned) {
        r->engine = e;
        r->self = comm->other_self;
    }
    enum pici_status s = r->engine->enter(r->self, &r->mark);
    if (s)
        pici_coll_note(comm, "rank %d: %s: %s", comm->rank, r->engine->name, r->engine->error(r->self));
    return s;
}

void pici_request_queue(struct pici_request *r, const struct call_args *args, struct pici_comm *comm,
                        const struct pici_coll_opts *o)
{
    static const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    *r = (struct pici_request){.comm = comm, .call.args = *args, .stats = none, .culprit = INT_MAX};
    r->sequence = comm->sequence++;
    r->engine = comm->engine;
    r->self = comm->engine_self;
    char words[160];
    enum pici_status s = pici_options_resolve(&r->call, comm, o, words, sizeof words);
    r->call.resolved.lost = s != PICI_OK;
    const char *why = s ? words : args->rules->buffers_wrong(&r->call, comm);
    if (why) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, why);
        pici_coll_fail(r, PICI_E_ARG, comm->rank);
    } else if ((s = find_engine(r))) {
        pici_coll_fail(r, s, comm->rank);
    }
    if (comm->failed)
        pici_coll_fail(r, PICI_E_BROKEN, comm->rank);
    if (comm->tail)
        comm->tail->next = r;
    else
        comm->head = r;
    comm->tail = r;
}

/* ---- memory */

/* Arrays that follow each other in memory, each aligned. With at == NULL they are only counted. */
struct tables {
    uint8_t *at;
    size_t bytes;
};

static size_t tables_align(size_t bytes)
{
    enum { ALIGN = 16 };
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static void *place(struct tables *t, size_t n, size_t each)
{
    uint8_t *p = t->at ? t->at + t->bytes : NULL;
    t->bytes += tables_align(n * each);
    return p;
}

static void place_run(struct tables *t, struct slice_run *run, const struct coll_layout *l)
{
    const struct schedule_limits *most = &l->limits;
    const size_t wide = (size_t)most->segments * VALUES_ARRAYS, all = (size_t)l->segments;
    void *step = place(t, 1, pici_schedule_step_bytes(most));
    if (t->at)
        pici_schedule_step_init(&run->now, most, step);
    run->out = place(t, (size_t)most->sends, sizeof *run->out);
    run->n = place(t, wide, sizeof *run->n);
    run->nnz = place(t, wide, sizeof *run->nnz);
    run->len = place(t, wide, sizeof *run->len);
    run->src = place(t, wide, sizeof *run->src);
    run->slots = place(t, (size_t)most->sums, sizeof *run->slots);
    run->sum = place(t, all, sizeof *run->sum);
    run->encoded = most->kept ? place(t, all, sizeof *run->encoded) : NULL;
}

static size_t place_tables(struct pici_request *r, const struct coll_layout *l, uint8_t *memory)
{
    struct tables t = {memory, 0};
    const size_t w = (size_t)l->window, buffers = (size_t)l->buffers;
    struct slice_run none;
    r->runs = place(&t, w, sizeof *r->runs);
    r->buffers = place(&t, buffers, sizeof *r->buffers);
    r->free = place(&t, buffers, sizeof *r->free);
    r->sends = place(&t, w * (size_t)l->limits.sends, sizeof *r->sends);
    r->recvs = place(&t, w * (size_t)l->limits.receives, sizeof *r->recvs);
    void *step = place(&t, 1, pici_schedule_step_bytes(&l->limits));
    if (memory)
        pici_schedule_step_init(&r->posting, &l->limits, step);
    r->posting_step = -1;
    for (size_t i = 0; i < w; i++)
        place_run(&t, memory ? &r->runs[i] : &none, l);
    return t.bytes;
}

void pici_request_tables(struct pici_request *r)
{
    struct pici_comm *comm = r->comm;
    const size_t lanes = COLL_MAX_WINDOW * sizeof *r->lanes;
    uint8_t *at = (uint8_t *)comm->tables + lanes;
    if (pici_layout_packed_bytes(&r->call, comm))
        pici_layout_pack(&r->call, comm, (uint64_t *)(void *)at);
    at += tables_align(pici_layout_packed_bytes(&r->call, comm));
    memset(at, 0, place_tables(r, &r->call.resolved.at, NULL));
    (void)place_tables(r, &r->call.resolved.at, at);
    r->lanes = comm->tables;
    r->frees = r->sending = r->making = 0;
}

enum pici_status pici_request_room(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    struct coll_layout *l = &c->resolved.at;
    enum pici_status s = c->args.rules->lay_out(l, comm, c);
    if (s) {
        pici_coll_note(comm,
                       s == PICI_E_ARG ? "rank %d: a count beyond memory"
                                       : "rank %d: the transport cannot carry this algorithm's messages",
                       comm->rank);
        return s;
    }
    const size_t tables =
        COLL_MAX_WINDOW * sizeof *r->lanes + tables_align(pici_layout_packed_bytes(c, comm)) + place_tables(r, l, NULL);
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
    const struct engine_needs needs = {.dtype = c->args.dtype,
                                       .op = c->args.op,
                                       .slice = l->slice,
                                       .blocks = l->limits.segments * c->opts.values.codec->arrays,
                                       .lanes = l->window,
                                       .messages = l->messages,
                                       .sums = l->sums,
                                       .arrays = l->arrays,
                                       .values = &c->opts.values,
                                       .temp = l->temp,
                                       .device = comm->transport.memory != PICI_MEMORY_HOST,
                                       .checksum = (unsigned)c->opts.checksum,
                                       .memory = c->opts.scratch,
                                       .memory_bytes = c->opts.scratch_bytes};
    s = r->engine->room(r->self, &needs, &r->room, comm->tables);
    if (s)
        pici_coll_note(comm, "rank %d: %s%s%s", comm->rank, r->engine == comm->engine ? "" : r->engine->name,
                       r->engine == comm->engine ? "" : ": ", r->engine->error(r->self));
    return s;
}

void pici_request_sent(struct pici_request *r, int peer, size_t bytes)
{
    const struct pici_comm *comm = r->comm;
    r->stats.wire_bytes += bytes;
    if (comm->node_of[peer] != comm->node_of[comm->rank])
        r->stats.inter_bytes += bytes;
}

/* ---- the transport's steps */

void pici_step_receives(struct pici_comm *comm, int n)
{
    const struct pici_transport *t = &comm->transport;
    if (t->receives)
        t->receives(t->context, n);
}

void pici_step_sends(struct pici_comm *comm, int n, int more)
{
    const struct pici_transport *t = &comm->transport;
    if (t->sends)
        t->sends(t->context, n, more);
    else if (t->more && n)
        t->more(t->context, more);
}

/* ---- the end */

void pici_request_failed(struct pici_comm *comm)
{
    comm->failed = 1;
    pici_request_finish(comm);
}

void pici_request_finish(struct pici_comm *comm)
{
    struct pici_request *r = comm->head;
    comm->head = r->next;
    if (!comm->head)
        comm->tail = NULL;
    r->next = NULL;
    if (!r->status && r->call.opts.history)
        pici_density_keep(&comm->densities, r->call.args.kind, r->call.args.dtype, r->call.args.count,
                          r->agree.density);
    r->comm = NULL; /* it may be freed before the caller asks for the status */
    r->state = COLL_DONE;
    if (r->call.opts.stats)
        pici_options_stats(r->call.opts.stats, &r->stats);
    if (r->mark)
        (void)r->engine->begin(r->self, r->mark, 0);
    r->mark = NULL;
    if (comm->trace && r->begin > 0) {
        const char *name = r->call.args.rules->name;
        struct trace_event e =
            pici_trace_event(name ? name : pici_coll_name(r->call.args.kind), r->sequence, r->begin, pici_coll_now());
        e.dense_bytes = r->stats.dense_bytes;
        e.wire_bytes = r->stats.wire_bytes;
        e.values = r->call.opts.values.phases ? r->call.opts.values.codec->name : NULL;
        e.events = r->stats.events;
        e.nonfinite = r->stats.nonfinite;
        e.lost = r->stats.lost;
        pici_trace_add(comm->trace, &e);
    }
}

void pici_coll_break(struct pici_comm *comm, enum pici_status s, enum pici_status why)
{
    comm->broken = s;
    if (comm->head && comm->head->engine->halt(comm->head->self))
        comm->leak = 1;
    if (comm->transport.abandon(comm->transport.context, why))
        comm->leak = 1;
    while (comm->head) {
        comm->head->status = s;
        pici_request_finish(comm);
        s = PICI_E_BROKEN; /* requests behind the head have not begun */
    }
}
