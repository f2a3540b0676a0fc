/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives that send what is not zero: all-gather, reduce-scatter and all-reduce among the ranks of a communicator.
 *
 * Every message is sent sparse or dense, whichever pays, by the density measured. The results are those of a dense
 * run of the same algorithm, bit for bit, and every rank ends with identical bytes. Each call is collective: all ranks of the
 * communicator make it, with the same count, dtype, op and algorithm, in the same order. Each returns the same status on
 * all ranks, as far as messages still get through. Algorithms, thresholds and guarantees: docs/collectives.md.
 *
 * A communicator is used by one thread at a time. After an error inside a collective it is broken: every later
 * collective returns PICI_E_BROKEN; what it can still do is be asked for its error and be freed. */
#ifndef PICI_COLL_H
#define PICI_COLL_H

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_comm;
struct pici_request;

/* Elements that a block does not store are +0 to all of them. f16, bf16 and f8 are reduced through f32 and rounded to
 * nearest even at every hop; integers wrap. */
enum pici_op {
    PICI_SUM = 0,
    PICI_AVG = 1, /* the sum, then divided by the ranks at the segment's owner; integers truncate toward zero */
    PICI_MIN = 2, /* NaN if either is NaN; -0 < +0 */
    PICI_MAX = 3
};

/* p - 1 steps, or ceil(log2 p) (circulant recursive halving, and doubling, for any number of ranks). AUTO
 * depends on the collective, the count, the dtype, the ranks and the node map only: never on density or time. */
enum pici_algorithm { PICI_ALGO_AUTO = 0, PICI_ALGO_RING = 1, PICI_ALGO_RECURSIVE = 2 };

/* What a call did on this rank. Set size with PICI_COLL_STATS_INIT; the rest is overwritten, on errors too. A size that an
 * earlier version had gets what that version knew. */
struct pici_coll_stats {
    size_t size;
    uint64_t wire_bytes;             /* sent, all messages whole */
    uint64_t dense_bytes;            /* what the same messages would have been had all been dense */
    uint64_t sends[4];               /* blocks sent, by enum pici_format; the forwarded ones too */
    double encode_s;                 /* counting, encoding, and putting together what is handed on */
    double decode_s;                 /* adding and decoding */
    double wait_s;                   /* asleep in pici_wait or in a blocking call, the rounds of agreement included */
    uint64_t tiles[PICI_CONTAINERS]; /* of the hybrid blocks sent, by enum pici_container; the forwarded ones too */
};
#define PICI_COLL_STATS_INIT {sizeof(struct pici_coll_stats), 0, 0, {0, 0, 0, 0}, 0, 0, 0, {0}}

/* Options. Set with PICI_COLL_OPTS_INIT, which says "default" everywhere; opts == NULL means that too, and so do the fields beyond
 * a size that an earlier version had. A default is what
 * the environment said when the communicator was made (docs/collectives.md lists the variables), else the number here; what
 * reads as "default" (AUTO too) leaves the environment's word standing. Fields from algorithm on, but for format, thresholds, timeout, stats and what AUTO chooses by, must be the same on all ranks.
 *
 * A send is dense iff its threshold > 0 and its sparsity <= that; 0: never, 1 and more: always. Defaults depend on the format: for
 * pici, hybrid and AUTO 0.5, 0.6 and 0.1; for coo 0.6, 0.7 and 0.5.
 *
 * AUTO takes, for a message that is sent sparse, that of pici, coo and hybrid which is expected to take the least time: its
 * bytes over the link's bandwidth, and a constant for coding so many elements with so many nonzeros. Or dense, if that has no
 * more bytes. */
struct pici_coll_opts {
    size_t size;
    enum pici_algorithm algorithm;
    enum pici_format format;       /* AUTO: per message, as above */
    float inter_threshold;         /* reducing, to another node; < 0: default */
    float intra_threshold;         /* reducing, inside a node */
    float ag_threshold;            /* all-gather, and the all-gather phase of all-reduce */
    int timeout_ms;                /* in which nothing moves, late peers included; 0: 60 s; < 0: none */
    struct pici_coll_stats *stats; /* or NULL; written when the call ends */
    int checksum;         /* 1: an XXH64 in each block, checked by who receives it; 0: default (off); < 0: off */
    uint64_t slice_bytes; /* dense bytes of a slice; 0: default, 1 MiB, over NCCL 8 */
    int window;           /* slices in flight; 0: default, 4; at most 64 */
    void *scratch;
    size_t scratch_bytes;   /* this memory instead of the communicator's, or NULL; any alignment; until the call
        * ends (over MPI, after PICI_E_TIMEOUT, until MPI_Finalize: what was in flight may still arrive) */
    double inter_bandwidth; /* of the link to another node, bytes per second; 0: default, 1.25e8 */
    double intra_bandwidth; /* inside a node; 0: default, 5e9 */
    unsigned formats;       /* that AUTO may choose, a bit 1 << enum pici_format each, besides dense; 0: default, all */
};
#define PICI_COLL_OPTS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_coll_opts), PICI_ALGO_AUTO, PICI_AUTO, -1, -1, -1, 0, NULL, 0, 0, 0, NULL, 0, 0, 0, 0       \
    }

/* The three collectives. Buffers: any alignment, host byte order; send is only read, and may not overlap recv but in place:
 *   all_gather      send [sendcount]               recv [ranks * sendcount]   in place: send == recv + rank*sendcount
 *   reduce_scatter  send [ranks * recvcount]       recv [recvcount]           in place: recv == send + rank*recvcount
 *   all_reduce      send [count]                   recv [count]               in place: send == recv
 * recv is unspecified unless PICI_OK.
 * At once, nothing sent and nothing broken: PICI_E_ARG (null comm, an opts->size that no version had), PICI_E_UNSUPPORTED (dtype, op, algorithm or
 * format that this version does not have), PICI_E_BROKEN.
 * On all ranks: PICI_E_ARG (on some rank null, overlap, a count beyond memory), PICI_E_PEER (ranks that disagree on the call), PICI_E_SPACE
 * (opts->scratch too small), PICI_E_NOMEM, PICI_E_CORRUPT and _CHECKSUM (what a peer sent), on a GPU also PICI_E_DEVICE and, for options that it
 * does not have (pici/cuda.h), PICI_E_UNSUPPORTED. As far as the transport can tell: PICI_E_TIMEOUT,
 * PICI_E_TRANSPORT, PICI_E_PEER (a peer that is gone). pici_comm_error says in words
 * what broke the communicator. */
PICI_API enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype,
                                          struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype,
                                              enum pici_op, struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype, enum pici_op,
                                          struct pici_comm *, const struct pici_coll_opts *);

/* The same, started: the call returns at once, and the work is done inside pici_test and pici_wait, by the caller's
 * thread. Several may be in flight on a communicator; they run in the order in which they were started, whichever is
 * waited for. Buffers, and *opts->stats and opts->scratch, stay the caller's to keep until the request ends; opts itself is copied.
 * *request is NULL unless PICI_OK is returned; what is returned otherwise is what is wrong "at once" above. */
PICI_API enum pici_status pici_all_gather_start(const void *send, void *recv, uint64_t sendcount, enum pici_dtype,
                                                struct pici_comm *, const struct pici_coll_opts *,
                                                struct pici_request **request);
PICI_API enum pici_status pici_reduce_scatter_start(const void *send, void *recv, uint64_t recvcount, enum pici_dtype,
                                                    enum pici_op, struct pici_comm *, const struct pici_coll_opts *,
                                                    struct pici_request **request);
PICI_API enum pici_status pici_all_reduce_start(const void *send, void *recv, uint64_t count, enum pici_dtype,
                                                enum pici_op, struct pici_comm *, const struct pici_coll_opts *,
                                                struct pici_request **request);

/* Move things on without waiting. *done = 1: the collective has ended; its status is returned, and *request is freed and NULL.
 * Otherwise PICI_OK. A NULL *request is done. */
PICI_API enum pici_status pici_test(struct pici_request **request, int *done);

/* Wait for the end; the collective's status is returned, *request freed and NULL. A NULL *request is PICI_OK. */
PICI_API enum pici_status pici_wait(struct pici_request **request);

/* Communicators among threads of this process: comms[ranks], one thread drives each. All are NULL unless PICI_OK.
 * PICI_E_ARG: null, ranks < 1, or an environment variable that makes no sense (pici_comm_error(NULL) names it). PICI_E_NOMEM.
 * PICI_E_IO: the file of PICI_TRACE. */
PICI_API enum pici_status pici_comm_threads(struct pici_comm **comms, int ranks);

/* Which ranks share a node: node_of[ranks], any numbers; the same on all ranks. Decides the order of ranks in a ring, which links are
 * "inside a node", and so the thresholds. PICI_E_ARG: null. PICI_E_BROKEN, also while requests are in flight. */
PICI_API enum pici_status pici_comm_set_nodes(struct pici_comm *, const int *node_of);

/* The last failure, in words: what happened and on which rank as far as it is known; "" if there was none. Lives as long as the communicator.
 * NULL: why this thread's last making of a communicator failed. */
PICI_API const char *pici_comm_error(const struct pici_comm *);

PICI_API int pici_comm_rank(const struct pici_comm *);
PICI_API int pici_comm_size(const struct pici_comm *);

/* Scratch memory. A communicator allocates what a call needs and keeps it, growing at a larger call. A query says how many bytes a call
 * with these arguments needs (count as in the call; 0 if the arguments are wrong): reserve them beforehand, so that a
 * call allocates nothing but its few small tables, or hand the memory to the call in opts. */
enum pici_collective { PICI_ALL_GATHER = 1, PICI_REDUCE_SCATTER = 2, PICI_ALL_REDUCE = 3 };
PICI_API size_t pici_comm_scratch(const struct pici_comm *, enum pici_collective, uint64_t count, enum pici_dtype,
                                  enum pici_op, const struct pici_coll_opts *);
PICI_API enum pici_status pici_comm_reserve(struct pici_comm *, size_t bytes);

/* Not collective. Requests in flight end with PICI_E_BROKEN (pici_wait frees them still), and peers see this rank as gone.
 * After a fork, the child may only call this, and the parent is not disturbed by it. NULL is ignored. */
PICI_API void pici_comm_free(struct pici_comm *);

#ifdef __cplusplus
}
#endif
#endif
