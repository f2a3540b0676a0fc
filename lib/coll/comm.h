/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A communicator: what all its collectives share. */
#ifndef PICI_LIB_COLL_COMM_H
#define PICI_LIB_COLL_COMM_H

#include "predict/choose.h"
#include "predict/density.h"
#include "coll/engine.h"
#include "schedule/balance.h"
#include "schedule/schedule.h"
#include "coll/settings.h"
#include "coll/trace.h"
#include "pici/transport.h"

struct stream_pieces;

/* The head's counts of nonzeros in ranges, and what follows from them (balance.h). */
struct coll_balance {
    struct schedule_balance cuts;
    uint64_t sum[BALANCE_RANGES], part[BALANCE_RANGES]; /* so far: of the last 2^round and m ranks (balance.c) */
    int finer;                                          /* how often the ranges were made finer */
};

struct pici_comm {
    struct pici_transport transport;
    int paired_only;                  /* the transport has the struct of 0.1: paired schedules only */
    const struct pici_engine *engine; /* for elements in the host's memory */
    void *engine_self;
    const struct pici_engine *other; /* for elements in memory that it owns; or NULL */
    void *other_self;
    struct coll_settings settings;
    struct densities densities; /* counted in earlier calls */
    struct chooser *chooser;
    const struct schedule *forced; /* tests: replaces AUTO's choice; or NULL */
    int rank, ranks;
    int virtual_rank; /* order[virtual_rank] == rank */
    int in_order;     /* all virtual ranks are ranks */
    int *order;       /* [ranks] virtual ranks to ranks */
    int *node_of;     /* [ranks] */
    int nodes;
    uint64_t order_hash;            /* of order */
    struct schedule_nodes on_nodes; /* which virtual ranks share a node */
    int *begin;                     /* [ranks + 1] its array */
    unsigned generation;            /* of the process that made it */
    enum pici_status broken;
    int failed;     /* a call failed, and only some ranks may know: the next call tells all */
    uint32_t plans; /* neighbourhood plans made so far */
    char error[256];
    int harmless;      /* it broke nothing: the next error replaces it */
    uint64_t sequence; /* of the next collective */
    struct coll_balance balance;
    uint8_t *agreements;          /* memory of the head's agreement rounds (early.h) */
    struct coll_call *last_laid;  /* the last call that got a layout; with a NULL schedule: there is none */
    struct stream_pieces *pieces; /* of the last call with a stream, or NULL (engine_stream.h) */
    void *tables;                 /* the head's arrays (request.c) */
    size_t tables_bytes;
    int leaks;                        /* the transport may still use memory of a call: it is never freed */
    struct pici_request *head, *tail; /* in the order started; only the head makes progress */
    struct pici_request *spare;       /* for blocking calls */
    struct trace *trace;
};

#endif
