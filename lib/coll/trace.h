/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A record of what the collectives of a rank did, for a trace viewer: Chrome's trace-event format, array form. */
#ifndef PICI_LIB_COLL_TRACE_H
#define PICI_LIB_COLL_TRACE_H

#include "pici/coll.h"

struct trace;

/* One message sent ("send": its span is the encoding, or the handing on), received ("recv": its span is the decoding or
 * adding), a time of waiting ("wait"), or a whole collective ("all-reduce", ...). What does not apply is -1 (or 0 bytes), and
 * is left out of the file. */
struct trace_event {
    const char *name;  /* short, and no escapes needed */
    double begin, end; /* seconds, CLOCK_MONOTONIC */
    uint64_t sequence; /* of the collective */
    int phase;         /* 0 reduce-scatter, 1 all-gather */
    int step, slice;   /* slice of the segment */
    int peer;          /* rank */
    int inter;         /* 1: on another node, 0: on this one */
    int format;
    double density;
    int extrapolated; /* 1: density was, 0: it was counted */
    uint64_t dense_bytes, wire_bytes;
    uint64_t tiles[PICI_CONTAINERS]; /* of the hybrid blocks sent */
};

/* Create PATH.RANK. PICI_E_IO, PICI_E_NOMEM. A viewer's process is the rank; its threads are the sends, the receives, the
 * waits and the collectives. A collective's events are in the file when it has ended; then, as at any time, the file is whole
 * events and a valid trace that viewers accept: an array, whose end may be missing. */
enum pici_status pici_trace_open(struct trace **, const char *path, int rank);
void pici_trace_add(struct trace *, const struct trace_event *); /* NULL trace: nothing */
/* PICI_E_IO if anything could not be written, now or before. */
enum pici_status pici_trace_close(struct trace *);

#endif
