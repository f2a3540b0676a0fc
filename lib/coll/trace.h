/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Records a rank's collectives for a trace viewer: Chrome's trace-event format, array form. */
#ifndef PICI_LIB_COLL_TRACE_H
#define PICI_LIB_COLL_TRACE_H

#include "pici/coll.h"

struct trace;

/* An event. "send": a message sent; from begin to end it is encoded or forwarded. "recv": a message received, decoded
 * or added. "wait": a wait. "choose": the choice of an algorithm. "all-reduce", ...: a whole collective. Members that
 * do not apply are -1, 0 bytes or NULL, and are left out of the file. */
struct trace_event {
    const char *name;  /* short, without characters that JSON escapes */
    double begin, end; /* seconds, CLOCK_MONOTONIC */
    uint64_t sequence; /* of the collective */
    int phase;         /* 0 reduce-scatter, 1 all-gather */
    int step, slice;   /* slice of the segment */
    int peer;          /* rank */
    int inter;         /* 1: on another node, 0: on this one */
    int format;
    double density;
    int extrapolated; /* 1: the density was predicted, 0: it was counted */
    uint64_t dense_bytes, wire_bytes;
    uint64_t tiles[PICI_CONTAINERS]; /* of the hybrid blocks sent */
    const char *choice;              /* the algorithm chosen by predicted time, or NULL; then the next two hold */
    int dense;                       /* all messages are dense */
    double predicted;                /* seconds */
    const char *values;              /* the lossy codec of a message, or NULL */
    uint64_t events, nonfinite;      /* a collective with a codec: as in struct pici_coll_stats, like the next */
    double lost;
    int blocks;                  /* blocks of a message of a neighbourhood call, or 0 */
    const int *segments, *order; /* the owner of block i is rank order[segments[i]] */
};

/* An event to which no other members apply yet. */
struct trace_event pici_trace_event(const char *name, uint64_t sequence, double begin, double end);

enum { TRACE_OWNERS = 64 }; /* the most blocks of a message whose owners are named */

/* Create PATH.RANK. PICI_E_IO, PICI_E_NOMEM. In a viewer the rank is a process, whose threads are sends, receives,
 * waits and collectives. When a collective has ended, its events are in the file. At any time the file consists of
 * whole events and is a trace that viewers accept: an array, whose closing bracket may be missing. */
enum pici_status pici_trace_open(struct trace **, const char *path, int rank);
void pici_trace_add(struct trace *, const struct trace_event *); /* NULL trace: nothing */
/* PICI_E_IO: an event could not be written, now or earlier. */
enum pici_status pici_trace_close(struct trace *);

#endif
