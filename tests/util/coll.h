/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the tests of the collectives, over any transport. A case describes one call; its seed gives all ranks'
 * input, and a slow model the result. A rank makes the call between guard pages, and checks its result. */
#ifndef PICI_TESTS_COLL_UTIL_H
#define PICI_TESTS_COLL_UTIL_H

#include "pici/coll.h"
#include "util.h"

enum { COLL_RANKS = 17 };       /* at the most */
enum { COLL_UNTOUCHED = 0x5c }; /* bytes of receive buffers before the call */

/* ---- a call ---- */

enum coll_zeros { ZEROS_PLAIN, ZEROS_HALF_NEGATIVE, ZEROS_NEGATIVE };

struct coll_case {
    enum pici_collective collective;
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t count; /* as in the call; all_gatherv: the most that a rank contributes */
    int root;       /* of a broadcast */
    enum pattern pattern;
    uint64_t seed; /* of everyone's input, and of where buffers lie */
    int tame;      /* floats near one another, so that sums do not end as NaN */
    int tiny;      /* instead, floats that are not zero are the least denormals */
    int zeros;     /* of floats: enum coll_zeros */
    int in_place;
    int own_scratch;            /* opts.scratch, of just the bytes that the query says */
    int node_of[COLL_RANKS];    /* given to pici_comm_set_nodes */
    struct pici_coll_opts opts; /* but for stats and scratch */
};

/* All collectives. For an all_gatherv, the case's seed gives each rank's contribution, and where a rank receives it. If
 * contributions follow each other, displs may be NULL. Elements between them are left alone. */
enum { COLL_COLLECTIVES = 5 };
extern const enum pici_collective coll_collectives[COLL_COLLECTIVES];
int coll_slots(const struct coll_case *, int p, int rank, uint64_t counts[COLL_RANKS], uint64_t displs[COLL_RANKS]);

/* Whether each rank ends with elements as they are in one rank's data. */
int coll_is_gather(enum pici_collective);

/* How many algorithms there are but AUTO; whether one of them, or AUTO, has a collective; one that has it, by turns. */
int coll_algorithms(void);
int coll_has(enum pici_algorithm, enum pici_collective);
enum pici_algorithm coll_algorithm(uint64_t i, enum pici_collective);

/* Draw what does not change the result: place, options but the algorithm; and pattern, seed and nodes. */
void coll_case_options(struct coll_case *, struct rng *, int p);
/* Draw all but the count: no AUTO algorithm. */
void coll_case_random(struct coll_case *, struct rng *, int p);

/* All of the above in words; static, one at a time. */
const char *coll_case_words(const struct coll_case *, int p);

/* Elements that a rank sends and receives; of all_gatherv the room for them, and of broadcast those of its buffer. */
uint64_t coll_sends(const struct coll_case *, int p);
uint64_t coll_receives(const struct coll_case *, int p);

/* ---- the model ---- */

/* a op b as the collectives define it, as bits; a is the receiver's own. Both are elements, also if zero. */
uint64_t coll_reduce(enum pici_dtype, enum pici_op, uint64_t a, uint64_t b);
/* A contribution as a sum begins with it: (+0) + a for SUM and AVG of floats, else a. */
uint64_t coll_first(enum pici_dtype, enum pici_op, uint64_t a);
/* AVG's end. A float that becomes zero is +0. */
uint64_t coll_divide(enum pici_dtype, uint64_t sum, int p);

/* Input and result of every rank. */
struct coll_job {
    int p;
    void *send[COLL_RANKS];
    void *want[COLL_RANKS];     /* each rank's; one array where all have the same */
    void *other[2][COLL_RANKS]; /* by the other algorithms that AUTO may choose, where opts say AUTO; else NULL */
};

void coll_job_make(struct coll_job *, const struct coll_case *, int p);
void coll_job_free(struct coll_job *);

/* ---- a rank ---- */

struct coll_rank {
    struct guard send, recv, scratch;
    uint64_t counts[COLL_RANKS], displs[COLL_RANKS]; /* of all_gatherv, */
    int packed;                                      /* or without displs */
    const void *sent;
    void *received;
    struct pici_coll_opts opts; /* with stats and scratch */
    struct pici_coll_stats stats;
    char said[240];
};

/* Place the rank's buffers, and its nodes in the communicator. Call, or start. */
void coll_rank_place(struct coll_rank *, const struct coll_case *, const struct coll_job *, struct pici_comm *);
enum pici_status coll_rank_call(struct coll_rank *, const struct coll_case *, struct pici_comm *);
enum pici_status coll_rank_start(struct coll_rank *, const struct coll_case *, struct pici_comm *,
                                 struct pici_request **);

/* After PICI_OK: what is wrong, or null: the result, the buffer sent, what lies around buffers, the statistics. */
const char *coll_rank_judge(struct coll_rank *, const struct coll_case *, const struct coll_job *, int rank);
void coll_rank_free(struct coll_rank *);

/* A call in which a function of this rank's engine fails with PICI_E_IO, after so many calls of it; with LIMBS none
 * does. *failed: it came to that. */
enum coll_limb { LIMB_ENCODE, LIMB_DECODE, LIMB_REDUCE, LIMBS };
enum pici_status coll_rank_call_ill(struct coll_rank *, const struct coll_case *, struct pici_comm *, enum coll_limb,
                                    int after, int *failed);

/* ---- ranks that are threads ---- */

/* Run fn for each rank, in a thread each. */
void coll_threads(int p, void (*fn)(void *context, int rank), void *context);

struct coll_team {
    int p;
    struct pici_comm *comm[COLL_RANKS];
    struct coll_rank rank[COLL_RANKS];
};

/* Aborts without memory. */
void coll_team_init(struct coll_team *, int p);
void coll_team_free(struct coll_team *);

/* One case on all ranks, PICI_OK expected. Null, or what is wrong, in static memory. */
const char *coll_team_check(struct coll_team *, const struct coll_case *);

/* Several calls drawn from the seed, in flight at once. Each rank ends them in its own way: waiting from the last to
 * the first, or in any order, testing by turns, or with a blocking call among them. Null, or what is wrong, in static
 * memory. */
const char *coll_flight_check(int p, uint64_t seed);

#endif
