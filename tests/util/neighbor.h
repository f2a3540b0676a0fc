/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the tests of neighbourhood all-gathers, over any transport. A case has a graph and a call; its seed gives
 * all ranks' input. A rank makes the plan and the call, and checks its result. */
#ifndef PICI_TESTS_NEIGHBOR_UTIL_H
#define PICI_TESTS_NEIGHBOR_UTIL_H

#include "pici/neighbor.h"
#include "util.h"

enum { NEIGHBOR_RANKS = 17, NEIGHBOR_LIST = 2 * NEIGHBOR_RANKS };

struct neighbor_case {
    int p;
    unsigned char times[NEIGHBOR_RANKS][NEIGHBOR_RANKS]; /* how often an edge from the first to the second is listed */
    int node_of[NEIGHBOR_RANKS];
    int region_of[NEIGHBOR_RANKS];
    struct pici_neighbor_opts plan; /* but for region */
    enum pici_dtype dtype;
    int varied;
    uint64_t count[NEIGHBOR_RANKS];
    enum pattern pattern[NEIGHBOR_RANKS];
    uint64_t seed;
    struct pici_coll_opts opts; /* but for stats and values */
    struct pici_values values;  /* EXACT (or all 0), or a codec for the dtype that rounds to nearest */
};

void neighbor_case_random(struct neighbor_case *, struct rng *, int p, uint64_t most);
const char *neighbor_case_words(const struct neighbor_case *); /* static */

struct neighbor_rank {
    int rank, sources, destinations;
    int source[NEIGHBOR_LIST], destination[NEIGHBOR_LIST];
    uint64_t recvcounts[NEIGHBOR_LIST], displs[NEIGHBOR_LIST];
    uint8_t *sent, *send, *recv;
    size_t bytes; /* of recv */
    struct pici_coll_opts opts;
    struct pici_coll_stats stats;
    char said[200];
};

void neighbor_rank_init(struct neighbor_rank *, const struct neighbor_case *, int rank);
void neighbor_rank_free(struct neighbor_rank *);
enum pici_status neighbor_rank_plan(struct neighbor_rank *, const struct neighbor_case *, struct pici_comm *,
                                    struct pici_neighbor_plan **);
enum pici_status neighbor_rank_call(struct neighbor_rank *, const struct neighbor_case *, struct pici_neighbor_plan *);
enum pici_status neighbor_rank_start(struct neighbor_rank *, const struct neighbor_case *, struct pici_neighbor_plan *,
                                     struct pici_request **);
/* After PICI_OK: what is wrong, or NULL. */
const char *neighbor_rank_judge(struct neighbor_rank *, const struct neighbor_case *);

#endif
