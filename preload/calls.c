/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/calls.h"

#include <stdio.h>

#include "preload/by_mpi.h"
#include "preload/work.h"

/* Of a neighbourhood call, whose ranks need not have the same status, always the same. */
static int code_of(const struct call *call, enum pici_status status)
{
    return status == PICI_E_NOMEM && !pmpi_is_neighbor(call) ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* PICI_E_ARG is found before any data move, so that MPI finds in place what was there. A neighbourhood call has begun
 * on other ranks. */
static int can_be_repeated(const struct call *call, enum pici_status status)
{
    if (pmpi_is_neighbor(call))
        return 0;
    const int in_place = call->send == MPI_IN_PLACE || call->send == call->recv;
    return status == PICI_E_ARG || ((status == PICI_E_NOMEM || status == PICI_E_SPACE) && !in_place);
}

static int failed(const struct work *work, enum pici_status status)
{
    const struct call *call = &work->call;
    struct state *state = work->plan.state;
    if (can_be_repeated(call, status)) {
        if (!work->rank)
            fprintf(stderr, "pici: %s: %s; MPI makes the calls of this communicator from now on\n",
                    pmpi_function_name(call->function), pici_comm_error(state->comm));
        pmpi_state_off(state, OFF);
        pmpi_count(call->function, OFF);
        return pmpi_by_mpi(call);
    }
    fprintf(stderr, "pici: rank %d: %s: %s\n", work->rank, pmpi_function_name(call->function),
            work->failure ? work->failure : pici_comm_error(state->comm));
    pmpi_count(call->function, OURS);
    PMPI_Comm_call_errhandler(call->comm, code_of(call, status));
    return code_of(call, status);
}

int pmpi_call(const struct call *call)
{
    struct work work = {.call = *call, .blocking = 1};
    int rc = MPI_SUCCESS;
    if (!pmpi_begun() || pmpi_is_wrong(call))
        return pmpi_by_mpi(call);
    const enum reason reason = pmpi_decide(call, &work.plan, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    if (reason) {
        pmpi_count(call->function, reason);
        return pmpi_by_mpi(call);
    }
    const enum pici_status status = pmpi_work_end(&work, pmpi_work_begin(&work));
    if (status)
        return failed(&work, status);
    pmpi_count(call->function, OURS);
    return MPI_SUCCESS;
}

void pmpi_pass(enum passed what)
{
    if (pmpi_begun())
        pmpi_count_passed(what);
}
