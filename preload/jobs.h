/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that do not wait, and persistent requests. The program's request is one of MPI's own: it receives an empty
 * message from this rank itself, which is sent when pici's request has ended. So all functions of MPI take it. Progress
 * is made inside any function of MPI that waits or tests: in Open MPI, which calls a function of ours there; else by a
 * thread, for which MPI must have MPI_THREAD_MULTIPLE. */
#ifndef PICI_PRELOAD_JOBS_H
#define PICI_PRELOAD_JOBS_H

#include "preload/work.h"

/* Only one thread may use a state's communicator of ours at a time: the one that has locked it, or progress. Not for
 * long, unless the thread makes a call on that communicator. */
void pmpi_lock(struct state *);
void pmpi_unlock(struct state *);

/* Start a call, or prepare it, of which the decision was that it is ours; of *work, call, plan and rank are set. Sets
 * *call.request. MPI's code; its error handler has been called. */
int pmpi_job_start(const struct work *);
int pmpi_job_prepare(const struct work *);

/* MPI_Start and MPI_Request_free. */
int pmpi_start(MPI_Request *);
int pmpi_request_free(MPI_Request *);

#endif
