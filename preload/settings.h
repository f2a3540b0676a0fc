/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings of the preloaded library, from the environment (docs/reference/mpi.md), read once in a process. */
#ifndef PICI_PRELOAD_SETTINGS_H
#define PICI_PRELOAD_SETTINGS_H

#include <stdint.h>

#include "pici/coll.h"
#include "pici/neighbor.h"

/* The functions that may be ours: blocking ones; then the nonblocking ones, and those that make a persistent request,
 * in the same order. Neighbourhood functions are only blocking. */
enum function {
    ALLREDUCE,
    REDUCE_SCATTER_BLOCK,
    REDUCE_SCATTER,
    ALLGATHER,
    ALLGATHERV,
    REDUCE,
    BCAST,
    NEIGHBOR_ALLGATHER,
    NEIGHBOR_ALLGATHERV,
    IALLREDUCE,
    IREDUCE_SCATTER_BLOCK,
    IREDUCE_SCATTER,
    IALLGATHER,
    IALLGATHERV,
    IREDUCE,
    IBCAST,
    ALLREDUCE_INIT,
    REDUCE_SCATTER_BLOCK_INIT,
    REDUCE_SCATTER_INIT,
    ALLGATHER_INIT,
    ALLGATHERV_INIT,
    REDUCE_INIT,
    BCAST_INIT,
    FUNCTIONS
};

/* "MPI_Allreduce", ... Static. */
const char *pmpi_function_name(enum function);

struct settings {
    int enabled;               /* PICI_PMPI */
    int intra;                 /* PICI_PMPI_INTRA: also on one node */
    int stats;                 /* PICI_PMPI_STATS: 0 none, 1 rank 0, 2 all ranks */
    int comms;                 /* PICI_PMPI_COMMS: communicators at a time */
    int wait_s;                /* PICI_PMPI_WAIT: seconds until a waiting rank prints a message */
    unsigned functions;        /* PICI_PMPI_FUNCTIONS: bits 1 << enum function */
    int neighbors;             /* PICI_NEIGHBOR is not off: neighbourhood functions may be ours */
    enum pici_route route;     /* PICI_NEIGHBOR: of plans; other routes than AUTO apply to small graphs, too */
    uint64_t min_bytes;        /* PICI_PMPI_MIN_BYTES */
    uint64_t after;            /* PICI_PMPI_AFTER: eligible calls of a communicator that go to MPI first */
    const char *lossy;         /* PICI_PMPI_LOSSY: its text, or NULL */
    struct pici_values values; /* its codec; PICI_VALUES_EXACT: none */
    int own_timeout;           /* PICI_TIMEOUT_MS is set */
    int own_history;           /* PICI_TUNE_HISTORY is set */
    uint64_t hash;             /* of the version, and of all settings that must be the same on all ranks */
    char fault[256];           /* "", or the error of a variable with an invalid value */
};

/* Thread-safe. Never NULL. If a variable's value is invalid, fault describes the error, and the default applies. */
const struct settings *pmpi_settings(void);

/* FNV-1a of some bytes, continuing from hash; PMPI_HASH begins one. */
#define PMPI_HASH 0xcbf29ce484222325u
uint64_t pmpi_hash(uint64_t hash, const void *data, unsigned long bytes);

#endif
