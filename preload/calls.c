/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/calls.h"

#include <stdio.h>

#include "preload/by_mpi.h"
#include "preload/jobs.h"

/* Whether MPI can make a call that failed. pici finds PICI_E_ARG before any data move, so buffers in place are
 * unchanged. A neighbourhood call has begun on other ranks. */
static int can_be_repeated(const struct call *call, enum pici_status status)
{
    if (pmpi_is_neighbor(call))
        return 0;
    const int in_place = call->send == MPI_IN_PLACE || call->send == call->recv;
    return status == PICI_E_ARG || ((status == PICI_E_NOMEM || status == PICI_E_SPACE) && !in_place);
}

/* Leave calls to MPI, after all ranks have found out that pici cannot make the call. */
static void leave_to_mpi(const struct work *work)
{
    struct state *state = work->plan.state;
    if (!work->rank)
        fprintf(stderr, "pici: %s: %s; MPI makes the calls of this communicator from now on\n",
                pmpi_function_name(work->call.function), pici_comm_error(state->comm));
    pmpi_state_off(state, OFF);
}

/* Make a blocking call. Returns why it is not pici's; sets *rc to MPI's code if it has failed. */
static enum reason wait_for(struct work *work, int *rc)
{
    const enum pici_status status = pmpi_work_end(work, pmpi_work_begin(work));
    if (!status)
        return OURS;
    if (can_be_repeated(&work->call, status)) {
        leave_to_mpi(work);
        return OFF;
    }
    *rc = pmpi_work_failed(work, status);
    return OURS;
}

static int call_of_state(struct work *work)
{
    const struct call *call = &work->call;
    struct state *state = work->plan.state;
    const enum function called = pmpi_called(call);
    int rc = MPI_SUCCESS, error = MPI_SUCCESS;
    PMPI_Comm_rank(call->comm, &work->rank);
    pmpi_lock(state);
    if (call->mode != NONBLOCKING)
        rc = pmpi_state_meet(state, call->comm);
    enum reason reason = rc == MPI_SUCCESS ? pmpi_decide(call, &work->plan, &rc) : OFF;
    if (rc == MPI_SUCCESS && reason == OURS && call->mode == BLOCKING)
        reason = wait_for(work, &error);
    pmpi_unlock(state);
    if (rc != MPI_SUCCESS)
        return rc;
    pmpi_count(called, reason);
    if (reason != OURS)
        return pmpi_by_mpi(call);
    if (call->mode != BLOCKING)
        return call->mode == PERSISTENT ? pmpi_job_prepare(work) : pmpi_job_start(work);
    if (error != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

int pmpi_call(const struct call *call)
{
    struct work work = {.call = *call, .blocking = call->mode == BLOCKING};
    int rc = MPI_SUCCESS;
    if (!pmpi_begun() || pmpi_is_wrong(call))
        return pmpi_by_mpi(call);
    work.plan.state = pmpi_state(call->comm, pmpi_called(call), call->mode != NONBLOCKING, &rc);
    return work.plan.state ? call_of_state(&work) : rc;
}

int pmpi_meet(MPI_Comm comm)
{
    int rc = MPI_SUCCESS;
    struct state *state = pmpi_begun() && comm != MPI_COMM_NULL ? pmpi_state_wanting(comm) : NULL;
    if (!state)
        return rc;
    state = pmpi_state(comm, state->wants, 1, &rc);
    if (!state)
        return rc;
    pmpi_lock(state);
    rc = pmpi_state_meet(state, comm);
    pmpi_unlock(state);
    return rc;
}

void pmpi_pass(enum passed what)
{
    if (pmpi_begun())
        pmpi_count_passed(what);
}
