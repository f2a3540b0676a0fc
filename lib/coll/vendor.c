/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The vendor path: the data of a call moves by the dense collective of the library below the transport, such as
 * MPI_Allreduce. Only with the caller's permission: the bits of sums, the rules for NaNs and the timeout are that
 * library's then. It may block, so it is for blocking calls only. Hello comes before it and closing after it as on
 * every path; in hello the ranks agree whether all of them can make the call. */
#include "coll/vendor.h"

#include "coll/note.h"
#include "format.h"

static enum pici_op op_of(const struct coll_call *c)
{
    return c->args.op == PICI_AVG ? PICI_SUM : c->args.op; /* the division is ours */
}

uint32_t pici_vendor_can(const struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    const struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    if (!c->opts.vendor || !c->args.blocking || r->status || !c->args.count || comm->ranks == 1 || !t->dense ||
        !t->dense_ready)
        return 0;
    if (r->engine != comm->engine && t->memory != PICI_MEMORY_DEVICE)
        return 0; /* a GPU's memory, of which this transport may not know */
    if (c->args.op == PICI_AVG && !fmt_is_float((unsigned)c->args.dtype))
        return 0; /* what a vendor's sum of integers does beyond their range is not ours to promise */
    if (t->dense_ready(t->context, c->args.kind, c->args.send, c->args.recv, c->args.count, c->args.dtype, op_of(c)))
        return 0;
    return CAN_VENDOR | (pici_coll_in_place(c, comm) ? CAN_IN_PLACE : CAN_APART) |
           (c->opts.format == PICI_DENSE && !c->opts.algorithm && !comm->forced ? CAN_ASK_VENDOR : 0);
}

int pici_vendor_allowed(const struct pici_request *r)
{
    const uint32_t can = r->agree.can;
    return can & CAN_VENDOR && can & (CAN_IN_PLACE | CAN_APART);
}

int pici_vendor_asked(const struct pici_request *r)
{
    return pici_vendor_allowed(r) && r->agree.can & CAN_ASK_VENDOR;
}

/* ---- the path */

static enum pici_status begin(struct pici_request *r)
{
    void *mark = r->mark;
    r->mark = NULL;
    return r->engine->begin(r->self, mark, 1);
}

static void trace_call(struct pici_request *r, double begin)
{
    struct trace_event e = pici_trace_event("vendor", r->sequence, begin, pici_coll_now());
    e.dense_bytes = r->call.resolved.total * r->call.resolved.width;
    pici_trace_add(r->comm->trace, &e);
}

/* What the vendor's result still lacks: the division of an average, and zeros without signs where they were asked
 * for. */
static void complete(struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    if (c->args.op == PICI_AVG)
        r->engine->divide(r->lanes[0], c->args.recv, c->args.count, c->args.dtype, r->comm->ranks);
    if (c->args.kind == PICI_ALL_GATHER && c->resolved.by_value)
        r->engine->positive_zeros(r->lanes[0], c->args.recv, c->args.recv, c->resolved.total, c->args.dtype, 0);
}

/* Whatever failed on this rank before, it makes the call, which the others may be waiting in. */
static enum pici_status move(struct pici_request *r, int *moved, int *done)
{
    const struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    int ready = 0;
    enum pici_status s = r->engine->ready(r->lanes[0], &ready);
    if (s) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, pici_request_words(r, s));
        pici_coll_fail(r, s, comm->rank);
    } else if (!ready) {
        return PICI_OK;
    }
    *moved = 1;
    *done = r->called;
    if (r->called)
        return PICI_OK;
    const double began = pici_coll_now();
    r->called = 1;
    s = t->dense(t->context, c->args.kind, c->args.send, c->args.recv, c->args.count, c->args.dtype, op_of(c),
                 c->opts.timeout_ms);
    r->stats.wait_s += pici_coll_now() - began;
    trace_call(r, began);
    if (s) {
        const char *why = t->error ? t->error(t->context) : "";
        pici_coll_note(comm, "rank %d: the dense collective of the transport: %s", comm->rank,
                       why[0] ? why : pici_strerror(s));
        pici_coll_fail(r, s, comm->rank);
    }
    if (!r->status)
        complete(r);
    return PICI_OK;
}

/* What is left to wait for is the engine's. */
static int busy(const struct pici_request *r)
{
    (void)r;
    return 1;
}

const struct coll_path pici_path_vendor = {"vendor", begin, move, busy};
