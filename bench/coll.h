/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parts of bench_coll:
 *   coll.c                                       options
 *   coll_threads.c, coll_sockets.c, coll_mpi.c   the ranks, and MPI's collectives
 *   coll_cuda.c                                  GPU memory, and NCCL's collectives
 *   coll_data.c                                  the ranks' data
 *   coll_run.c                                   measuring
 *   coll_values.c, coll_stream.c                 lossy codecs; streams
 *   coll_predict.c                               the model's predictions
 *   coll_print.c                                 tables and records */
#ifndef PICI_BENCH_COLL_H
#define PICI_BENCH_COLL_H

#include <stdio.h>

#include "coll_data.h"
#include "pici/coll.h"

/* In lists of formats, an enum pici_format; or this and a bit 1 << format for each that AUTO may choose. */
enum { AUTO_AMONG = 256 };

enum { MAX_ORDERS = 2, MAX_LIST = 16, MAX_REPS = 1000, WORLD_MOST = 64, COLLECTIVES = PICI_ALL_TO_ALLV + 1 };
enum { BROADCAST_ROOT = 0 };
extern const char *const collective_name[COLLECTIVES]; /* NULL: bench_coll does not have it */

static inline int reduces(enum pici_collective c)
{
    return c == PICI_ALL_REDUCE || c == PICI_REDUCE_SCATTER;
}

/* Where a rank's elements begin in the result of a gather to which ranks contribute count on average; rank = ranks:
 * its end. In an all_gatherv rank r contributes about r + 1 times as much as rank 0. */
static inline uint64_t gathered_from(enum pici_collective c, uint64_t count, int rank, int ranks)
{
    const uint64_t r = (uint64_t)rank, p = (uint64_t)ranks;
    return c == PICI_ALL_GATHERV ? count * (r * (r + 1)) / (p + 1) : count * r;
}

extern const char *const op_name[PICI_MAX + 1];

struct world;
struct settings;
struct point;
struct entry;
struct predictor;

/* ---- the ranks of a run, threads of one process or processes, as one of them sees the others */

/* The same ranks, numbered in some order. */
struct order {
    const char
        *name; /* "turn": dealt out to the nodes in turn; "near": neighbours share a node; "-": there is one order */
    int rank;  /* mine in it */
    struct pici_comm *comm;
};

/* Somebody else's dense collective. */
struct peer {
    enum pici_collective collective;
    const char *call;
    char algorithm[64];
};

/* Memory of a GPU, as one rank uses it. */
struct device {
    char name[256];
    const char *transport, *note; /* of pici's messages; what else there is to say, or "" */
    void *(*alloc)(size_t bytes);
    void (*free)(void *);
    void (*finish)(struct world *); /* wait for all that was begun */
    /* From anywhere to anywhere, so many times, and finish. */
    void (*copy)(struct world *, void *to, const void *from, size_t bytes, int times);
};

struct world {
    int rank, ranks, nodes, orders, peers;
    const int *node_of; /* [ranks] 0 to nodes - 1 */
    int local, locals;  /* which am I of those on this node, and how many they are */
    int processes;      /* a rank each, not threads of one */
    struct order order[MAX_ORDERS];
    const struct peer *peer;
    const char *library;   /* that brings the peers, or "threads" */
    struct device *device; /* where elements are; NULL: the host */

    void (*barrier)(struct world *);
    void (*sum)(struct world *, double *v, int n); /* over all ranks, for all ranks; n <= WORLD_MOST */
    void (*max)(struct world *, double *v, int n);
    void (*share)(struct world *, void *data, size_t bytes); /* rank 0's with all */

    /* Run peer i over the ranks in an order; a broadcast is in recv. 0: it cannot do this (on all ranks alike). */
    int (*run)(struct world *, int i, int order, const void *send, void *recv, uint64_t count, enum pici_dtype,
               enum pici_op);
};

/* Call body once on each rank, with the argument; its status on rank 0, or on this one. Threads are dealt out to nodes
 * as node_of[ranks] says, numbered as in struct world. */
typedef int world_body(struct world *, const void *argument);
int world_threads(int ranks, int nodes, const int *node_of, world_body *body, const void *argument);
/* The same among processes that are forked, over sockets; and as one rank of processes that pici-run has started. */
int world_sockets(int ranks, int nodes, const int *node_of, world_body *body, const void *argument);
int world_sockets_started(world_body *body, const void *argument);
/* What pici's messages go over: threads or MPI; sockets; MPI inside nodes and sockets between. */
enum bench_over { OVER_DEFAULT, OVER_SOCKETS, OVER_LEVELS };
#ifdef BENCH_MPI
/* MPI's own collectives are the peers in any case. */
int world_mpi(enum bench_over, world_body *body, const void *argument);
#endif
#ifdef BENCH_CUDA
/* Move elements to GPU memory, and compare with NCCL's collectives. Each rank of a node takes its own GPU, while there
 * are enough. device_end ends that. All ranks call both. */
void device_begin(struct world *, const struct settings *);
void device_end(struct world *);
#endif

/* ---- settings */

struct list {
    int n, v[MAX_LIST];
};

/* Elements are in GPU memory. By default, pici's messages go over NCCL for processes, and over memory for threads. */
enum device_use { DEVICE_NONE, DEVICE_DEFAULT, DEVICE_NCCL, DEVICE_MPI };

/* A lossy codec as it was named. */
struct bench_values {
    char name[32];
    struct pici_values values;
};

/* Parse a list of at most `most` codecs. Returns their number; 0: the list is invalid. */
int values_parse(struct bench_values *list, int most, char *text);
/* Add the squares of n elements' errors, and the squares of the exact elements, to sums. 0: not for this dtype. */
int values_differ(enum pici_dtype, const uint8_t *got, const uint8_t *exact, uint64_t n, double sums[2]);

struct settings {
    enum device_use device;
    size_t first, last, step; /* bytes */
    double factor;
    int by_send; /* bytes are of a rank's send buffer, not of its larger one */
    int reps, warmup, check;
    int calls; /* of a repetition, whose time is divided by it */
    int threads;
    int stream;        /* all-reduce of streams, instead of all else; */
    int balance;       /* and of both, without balanced owners and with them */
    int by_node;       /* print each node's work */
    const char *order; /* the only order that takes part, where there are several; or NULL */
    enum pici_dtype dtype;
    enum pici_op op;
    struct list collectives, algorithms, formats, spreads, zeros; /* zeros: 1: half of them are negative */
    struct list dense;                                            /* algorithms with a dense run; none: all */
    int codecs;
    struct bench_values codec[MAX_LIST];
    int sparsities;
    double sparsity[MAX_LIST]; /* percent */
    size_t screen;             /* dense peers far behind at this size are left out; 0: none are */
    const char *peers;         /* all, none, or algorithms, separated by commas */
    int targets;
    struct predictor *predictor; /* or NULL */
    const char *json_path;       /* or NULL; "-": stdout */
    FILE *table, *json;          /* or NULL */
};

/* One line of the table: a contestant, at a sparsity if it cares, and how it did. */
struct entry {
    int order;
    int peer;                      /* or -1: pici */
    int dense;                     /* one of those that the sparse ones are held against */
    enum pici_algorithm algorithm; /* pici's */
    int format;                    /* as in settings */
    const struct bench_values *values;
    double sparsity; /* of the data, percent */
    int negative;    /* half of its zeros are */
    int out;         /* left out, or cannot do this */
    double time[MAX_REPS];
    double wrong;                                               /* elements on all ranks; < 0: not checked */
    double wire_bytes, dense_bytes, encode_s, decode_s, wait_s; /* of all ranks, in the last repetition */
    double quantize_s, dequantize_s, events, lost;              /* with a lossy codec, like the next */
    double error; /* rms of what results are off / rms of exact ones; < 0: not known */
    double *left; /* [nodes] bytes that left each node then; NULL: unknown */
    double *took; /* [nodes][repetitions] seconds of the slowest rank of each node; NULL: not asked for */
};

/* A collective, a pattern of data, a size. */
struct point {
    enum pici_collective collective;
    enum spread spread;
    int first;      /* of its kind: print a heading */
    uint64_t count; /* as in the call; all_gatherv: what a rank contributes on average */
    size_t bytes;   /* of the larger buffer */
    int entries;
    struct entry *entry;
    size_t copied;         /* bytes that each rank's GPU copied, all at once; 0: none */
    double copy[MAX_REPS]; /* seconds of the slowest rank */
};

/* Measure all points; the number of wrong elements. */
double run_all(struct world *, const struct settings *);

/* The same of streams beside dense buffers: coll_stream.c. */
double run_streams(struct world *, const struct settings *);

/* What the library's model says of entries (coll_predict.c), for a machine known by name or a tune file. NULL: there is
 * neither. */
struct predictor *predictor_open(const char *machine);
void predictor_close(struct predictor *); /* or NULL */
/* Seconds; < 0: the model has no equation for this entry, AUTO among them. */
double predictor_seconds(struct predictor *, const struct world *, const struct settings *, const struct point *,
                         const struct entry *);
/* Count an error, and print the errors so far. */
void predictor_note(struct predictor *, double predicted, double measured);
void predictor_print(struct predictor *, FILE *);

/* What coll_run hands to coll_print, on rank 0. */
void print_head(const struct world *, const struct settings *);
void print_left_out(const struct world *, const struct settings *, const struct entry *, double behind);
void print_point(const struct world *, const struct settings *, const struct point *);
void print_foot(const struct settings *, double wrong);

#endif
