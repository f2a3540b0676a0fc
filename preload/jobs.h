/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Nonblocking calls and persistent requests. The program's request is one of MPI's own: it receives an empty message
 * from this rank itself, which pici sends when its own request has ended. So all functions of MPI accept it. Open MPI
 * calls our progress function wherever it waits or tests. With other MPIs a thread makes progress, which needs
 * MPI_THREAD_MULTIPLE. */
#ifndef PICI_PRELOAD_JOBS_H
#define PICI_PRELOAD_JOBS_H

#include "preload/work.h"

/* Lock a state. Only one thread at a time may use its communicator of ours: the one that holds the lock, or progress.
 * Threads hold the lock briefly, unless they make a call on that communicator. */
void pmpi_lock(struct state *);
void pmpi_unlock(struct state *);

/* Start or prepare a call that is ours; work->call, plan and rank are set. Sets *call.request. Returns MPI's code,
 * after a call of the error handler. */
int pmpi_job_start(const struct work *);
int pmpi_job_prepare(const struct work *);

/* MPI_Start and MPI_Request_free. */
int pmpi_start(MPI_Request *);
int pmpi_request_free(MPI_Request *);

#endif
