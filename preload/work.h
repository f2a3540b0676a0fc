/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call that pici makes. */
#ifndef PICI_PRELOAD_WORK_H
#define PICI_PRELOAD_WORK_H

#include <time.h>

#include "preload/decide.h"

struct work {
    struct call call;
    struct plan plan;
    int blocking;                 /* pmpi_work_begin returns at the end; there is no request */
    struct pici_request *request; /* else */
    struct pici_coll_stats stats;
    struct timespec begin;
    int rank;
    uint8_t *sent, *received;    /* memory of this call for sent and received elements, or NULL */
    uint64_t *lengths, *offsets; /* [ranks] MPI_Allgatherv: of contributions, in elements */
    const char *failure;         /* the error of a failed call; NULL: pici_comm_error has it */
};

/* Begin a call that is ours; work->call, plan, rank and blocking are set, all else is 0. A rank that lacks memory, or
 * has wrong arguments, begins the call with null buffers, so that all ranks learn it before any data are sent.
 * pmpi_work_end must follow: at once if this returns an error, else when work->request has ended. */
enum pici_status pmpi_work_begin(struct work *);

/* Finish a call whose request has ended with a status: put the results into the program's buffers, and free the call's
 * memory. */
enum pici_status pmpi_work_end(struct work *, enum pici_status);

/* Print that a call has failed. Returns MPI's code for it. */
int pmpi_work_failed(const struct work *, enum pici_status);

#endif
