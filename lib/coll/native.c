/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The native path: the dense collective of the library below the transport, such as MPI_Allreduce, moves the data of a
 * call. The caller must permit it: that library then determines the bits of sums, the rules for NaNs and the timeout.
 * Its call may block, so only blocking calls use it. The call agreement comes before it and the status agreement after
 * it, as on every path. In the call agreement the ranks find out whether all of them can make the call. */
#include "coll/native.h"

#include "coll/note.h"
#include "format.h"

static enum pici_op op_of(const struct coll_call *call)
{
    return call->args.op == PICI_AVG ? PICI_SUM : call->args.op; /* pici divides */
}

uint32_t pici_native_can(const struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const struct pici_comm *comm = request->comm;
    const struct pici_transport *transport = &comm->transport;
    if (!call->opts.native || !call->args.blocking || request->status || !call->args.count || comm->ranks == 1 ||
        !transport->dense || !transport->dense_ready)
        return 0;
    /* this transport may not know GPU memory */
    if (request->engine != comm->engine && transport->memory != PICI_MEMORY_DEVICE)
        return 0;
    /* a native collective may treat integer overflow in its own way */
    if (call->args.op == PICI_AVG && !fmt_is_float((unsigned)call->args.dtype))
        return 0;
    if (transport->dense_ready(transport->context, call->args.kind, call->args.send, call->args.recv, call->args.count,
                               call->args.dtype, op_of(call)))
        return 0;
    uint32_t abilities = CAN_NATIVE;
    abilities |= pici_coll_in_place(call, comm) ? CAN_IN_PLACE : CAN_APART;
    if (call->opts.format == PICI_DENSE && !call->opts.algorithm && !comm->forced)
        abilities |= CAN_ASK_NATIVE;
    return abilities;
}

int pici_native_allowed(const struct pici_request *request)
{
    const uint32_t can = request->agree.abilities;
    return can & CAN_NATIVE && can & (CAN_IN_PLACE | CAN_APART);
}

int pici_native_asked(const struct pici_request *request)
{
    return pici_native_allowed(request) && request->agree.abilities & CAN_ASK_NATIVE;
}

/* ---- the path */

static enum pici_status begin(struct pici_request *request)
{
    void *mark = request->mark;
    request->mark = NULL;
    return request->engine->begin(request->engine_self, mark, 1);
}

static void trace_call(struct pici_request *request, double begin)
{
    struct trace_event event = pici_trace_event("native", request->sequence, begin, pici_coll_now());
    event.dense_bytes = request->call.resolved.total * request->call.resolved.width;
    pici_trace_add(request->comm->trace, &event);
}

/* Complete the native collective's result: divide an average, and clear the signs of zeros on request. */
static void complete(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    if (call->args.op == PICI_AVG)
        request->engine->divide(request->queues[0], call->args.recv, call->args.count, call->args.dtype,
                                request->comm->ranks);
    if (call->args.kind == PICI_ALL_GATHER && call->resolved.by_value)
        request->engine->positive_zeros(request->queues[0], call->args.recv, call->args.recv, call->resolved.total,
                                        call->args.dtype, 0);
}

/* Makes the call even if this rank has failed: the others may be waiting in it. */
static enum pici_status move(struct pici_request *request, int *progressed, int *done)
{
    const struct coll_call *call = &request->call;
    struct pici_comm *comm = request->comm;
    const struct pici_transport *transport = &comm->transport;
    int ready = 0;
    enum pici_status status = request->engine->ready(request->queues[0], &ready);
    if (status) {
        pici_coll_note(comm, "rank %d: %s", comm->rank, pici_request_error(request, status));
        pici_coll_fail(request, status, comm->rank);
    } else if (!ready) {
        return PICI_OK;
    }
    *progressed = 1;
    *done = request->called;
    if (request->called)
        return PICI_OK;
    const double started = pici_coll_now();
    request->called = 1;
    status = transport->dense(transport->context, call->args.kind, call->args.send, call->args.recv, call->args.count,
                              call->args.dtype, op_of(call), call->opts.timeout_ms);
    request->stats.wait_s += pici_coll_now() - started;
    trace_call(request, started);
    if (status) {
        const char *reason = transport->error ? transport->error(transport->context) : "";
        pici_coll_note(comm, "rank %d: the dense collective of the transport: %s", comm->rank,
                       reason[0] ? reason : pici_strerror(status));
        pici_coll_fail(request, status, comm->rank);
    }
    if (!request->status)
        complete(request);
    return PICI_OK;
}

/* Only the engine's work is left to wait for. */
static int busy(const struct pici_request *request)
{
    (void)request;
    return 1;
}

const struct coll_path pici_path_native = {"native", begin, move, busy};
