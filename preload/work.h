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
    uint8_t *sent, *received;       /* memory of this call, or NULL: what is sent, what is received */
    uint64_t *lengths, *offsets;    /* [ranks] MPI_Allgatherv: of contributions, in elements */
    const char *failure;            /* of a call that failed; NULL: pici_comm_error says why */
};

/* Begin a call, of which the decision was that it is ours; work->call, plan, rank and blocking are set, all else is 0.
 * A rank that cannot take part, for want of memory or because its arguments are wrong, begins it with null buffers: so
 * all ranks learn that before any data are sent. pmpi_work_end has to follow: at once if this returns an error, else
 * when work->request has ended. */
enum pici_status pmpi_work_begin(struct work *);

/* Finish a call whose request has ended with a status: results where the program wants them. Frees its memory. */
enum pici_status pmpi_work_end(struct work *, enum pici_status);

/* Say that a call has failed: MPI's code for it. */
int pmpi_work_failed(const struct work *, enum pici_status);

#endif
