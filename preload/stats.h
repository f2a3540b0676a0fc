/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Statistics of the program's calls: counters, and the lines that are printed at the end. Thread-safe. */
#ifndef PICI_PRELOAD_STATS_H
#define PICI_PRELOAD_STATS_H

#include <stdint.h>

#include "pici/coll.h"
#include "preload/settings.h"

/* Why a call was not ours. */
enum reason {
    OURS,
    SMALL,
    OP,
    TYPE,
    COUNTS,
    INTER,
    ONE_RANK,
    ONE_NODE,
    NO_TOPOLOGY,
    FEW_RANKS,
    FEW_NEIGHBORS,
    SWITCHED_OFF,
    FIRST,
    EARLY,       /* nonblocking, and there is no communicator yet */
    NO_PROGRESS, /* nonblocking, and nothing would make progress */
    LIMIT,
    OFF,
    REASONS
};

/* Functions that never are ours, and are only counted. */
enum passed { INEIGHBOR_ALLGATHER, INEIGHBOR_ALLGATHERV, NEIGHBOR_ALLGATHER_INIT, NEIGHBOR_ALLGATHERV_INIT, PASSED };

void pmpi_count(enum function, enum reason);
void pmpi_count_passed(enum passed);

/* Count a call of ours that has ended, with any status: its statistics and seconds. */
void pmpi_count_ours(enum function, const struct pici_coll_stats *, double seconds);

/* Print a line to stderr for each function that was called, and one for the functions that are never ours. rank < 0:
 * without a rank. */
void pmpi_print_stats(int rank);

#endif
