/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One call: its arguments, with all options resolved; and its layout: the schedule, who owns which elements, how
 * segments are cut into slices, and how much memory that takes. */
#ifndef PICI_LIB_COLL_LAYOUT_H
#define PICI_LIB_COLL_LAYOUT_H

#include "coll/comm.h"
#include "values/values.h"

struct call_rules;
struct neighbor_route;
struct pici_neighbor_plan;
struct stream_call;

enum { LAYOUT_PART = 64 /* equal parts of a segment are multiples of this many elements */ };
enum { LAYOUT_SLICES_WORTH = 64 << 10 /* dense bytes of a message: smaller slices cost more than they save */ };

/* Elements [first, first + count) of a call's total. */
struct coll_span {
    uint64_t first, count;
};

/* Depends only on values that are the same on all ranks. Counts are elements. */
struct coll_layout {
    const struct schedule *schedule;
    struct schedule_call shape;
    struct schedule_limits limits;
    int steps;
    int segments;               /* of the data: one per rank, or one in all */
    uint64_t slice;             /* elements of a slice, a multiple of TILE */
    uint64_t slices;            /* of a segment; the last may be empty; 0: there is no data to exchange */
    uint64_t unit;              /* if segments differ much: slices of shorter ones have multiples of this
                                 * many elements, so that most slices have data; else 0 */
    int window;                 /* slices at a time */
    int buffers;                /* for messages */
    size_t message;             /* bytes of a buffer */
    size_t block;               /* bytes of the longest block in neighbourhood calls and calls with streams; else 0 */
    size_t messages, sums;      /* bytes of all buffers, and of the sums outside the receive buffer */
    size_t part[VALUES_ARRAYS]; /* bytes of an array of the lossy codec, for a slice of a segment */
    int quantized;              /* the most segments in a message that the lossy codec encodes */
    size_t parts, arrays;       /* bytes of all arrays of such a slice, and of all slices in flight */
    size_t temp;                /* for elements that are dequantized or decoded before addition */
    struct choice choice;       /* the choice of the schedule; seconds < 0: it was not predicted */
    int dense;                  /* all messages are dense by choice, not by an option of the call */
};

/* The caller's arguments. */
struct call_args {
    const struct call_rules *rules; /* the rules of its kind of call */
    enum pici_collective kind;
    const uint8_t *send; /* or a copy of it (early.c) */
    uint8_t *recv;
    uint64_t count;
    enum pici_dtype dtype;
    enum pici_op op;
    int root;     /* of PICI_BROADCAST: a rank */
    int blocking; /* the public function returns at the end */
    int small;    /* elements in host memory, in dense messages that a transport of GPU memory carries too */
    /* for PICI_ALL_GATHERV and PICI_ALL_TO_ALLV, where displs may be NULL; and for a neighbourhood call with `varied`
     * set */
    const uint64_t *recvcounts, *displs;
    const uint64_t *sendcounts, *sdispls;  /* of PICI_ALL_TO_ALLV; sdispls may be NULL */
    const struct pici_neighbor_plan *plan; /* of a neighbourhood all-gather; then kind is PICI_ALL_GATHER */
    int varied;                            /* it is an all_gatherv */
    struct stream_call *stream; /* or NULL; with it, send and recv are NULL; the request owns it (engine_stream.h) */
};

/* The requested options: of the call, else of the settings. */
struct call_opts {
    enum pici_algorithm algorithm; /* AUTO: chosen by the layout */
    enum pici_format format;
    unsigned formats;
    struct policy_thresholds threshold;
    double bandwidth[POLICY_LINKS];
    unsigned known;          /* bits 1 << enum policy_link: this bandwidth was set */
    enum pici_packing pack;  /* NONE also where nothing can be packed */
    double density, latency; /* the caller's: density (0: unknown), and seconds of a message */
    int timeout_ms, checksum, window;
    uint64_t slice_bytes;      /* dense bytes of a message */
    int agree;                 /* of a neighbourhood call: ranks agree at the end */
    int native;                /* the transport library's own collective is permitted */
    int history;               /* densities counted in earlier calls are used */
    enum pici_balance balance; /* as asked for; never UNCHANGED */
    struct values values;      /* the lossy codec with its parameters */
    uint8_t *residual;         /* NULL, or where this rank's encodings add their losses, as long as send */
    struct pici_coll_stats *stats;
    void *scratch; /* the caller's, or NULL */
    size_t scratch_bytes;
};

/* How the ranks of a call learn whether all can take part. */
enum call_agreement {
    AGREE_CALL,    /* in a round of the call agreement */
    AGREE_LONGEST, /* there, with the longest contribution, which the layout needs */
    AGREE_STREAM,  /* there, with the most elements of any rank, which the layout needs */
    AGREE_NONE     /* no agreement: from its data */
};

/* The longest contribution that AGREE_LONGEST can carry, in elements. The call agreement sends a contribution as a
 * density: its fraction of this. */
static const uint64_t COLL_LONGEST = UINT64_C(1) << 52;

/* The count of stored elements that a rank reports if its data is dense. */
static const uint64_t COLL_DENSE = UINT64_MAX;

enum { SAID_NEIGHBOR = 4 }; /* the kind of a neighbourhood all-gather, which enum pici_collective leaves out */

/* The description of a call in the call agreement. Data messages carry op, too. */
struct call_said {
    unsigned kind, op, plan;
    uint64_t count;
};

/* Values that follow from the arguments and options. */
struct call_resolved {
    size_t width;   /* bytes of an element */
    uint64_t total; /* elements of all segments */
    int by_value;   /* floats whose -0.0 counts as +0.0: in sums, and in all-gather on request */
    int unusable;   /* no layout exists for these options or counts */
    int native; /* after the call agreement: all ranks permit the transport library's own collective, and can make it */
    struct policy_packing packing;   /* after the call agreement: of this rank's messages */
    struct policy_packing predicted; /* the packing that the choice of an algorithm assumes for all ranks */
    enum call_agreement agreement;
    int closing; /* the call ends with a status agreement */
    struct call_said said;
    uint64_t basis;         /* hash of the data that the choice of an algorithm depends on; 0: on the call alone */
    uint64_t longest;       /* elements of the longest contribution, where these differ; before the end of
                             * AGREE_LONGEST, this rank's */
    uint64_t stored;        /* elements that this rank stores, COLL_DENSE without a stream; with one, after
                             * the call agreement: the most of any rank */
    uint64_t fill;          /* the most elements that a sum may store, if no rank is dense; else 0 */
    uint64_t counts_hash;   /* of PICI_ALL_GATHERV: of recvcounts */
    const uint64_t *packed; /* replaces null displs (PICI_ALL_TO_ALLV: sdispls, then displs), once there
                             * are tables */
    const struct schedule_balance *balance; /* after the call agreement: how segments are cut; NULL: evenly */
    struct coll_layout layout;
};

struct coll_call {
    struct call_args args;
    struct call_opts opts;
    struct call_resolved resolved;
};

/* Whether ranks receive other ranks' elements unchanged, without additions. */
static inline int coll_gathers(enum pici_collective collective)
{
    return collective == PICI_ALL_GATHER || collective == PICI_BROADCAST || collective == PICI_ALL_GATHERV ||
           collective == PICI_ALL_TO_ALLV;
}

/* The name of a collective, or of a kind in call_said, for errors and traces. */
const char *pici_coll_name(unsigned kind);

/* An error message if a buffer is null that must not be; NULL: none is. */
const char *pici_coll_null(const struct coll_call *);

/* Whether the send buffer is this rank's part of the receive buffer, or the other way round. */
int pici_coll_in_place(const struct coll_call *, const struct pici_comm *);

/* Before the ranks have agreed: a layout with the most memory that any schedule needs that they may choose. PICI_E_ARG:
 * beyond memory. PICI_E_UNSUPPORTED: the transport cannot carry the schedule. */
enum pici_status pici_layout_most(struct coll_layout *, const struct pici_comm *, const struct coll_call *);

/* After the ranks have agreed: the layout, the same on all ranks. */
enum pici_status pici_layout_choose(struct coll_layout *, const struct pici_comm *, const struct coll_call *);

/* The shape that a schedule depends on; and the number of slices in flight if a segment has `slices`. */
struct schedule_call pici_layout_shape(const struct pici_comm *, const struct coll_call *);
int pici_layout_window(const struct coll_call *, uint64_t slices);

/* Round elements down to whole units, but to one unit at least. */
static inline uint64_t pici_layout_units(uint64_t elements, uint64_t unit)
{
    return elements < unit ? unit : elements / unit * unit;
}

static inline size_t pici_layout_aligned(size_t bytes)
{
    return (bytes + COLL_ALIGN - 1) & ~(size_t)(COLL_ALIGN - 1);
}

/* The most bytes that a message has for count elements of a segment, exact or as the arrays of the lossy codec; 0: more
 * than size_t holds. */
size_t pici_layout_longest(const struct coll_call *, uint64_t count);

/* Set the memory for the lossy codec's arrays: for each slice in flight, the arrays of `quantized` segments of a
 * message, and the arrays of one received segment. The layout must have its slices. Returns whether that exceeds
 * size_t. */
int pici_layout_arrays(struct coll_layout *, const struct coll_call *, int quantized);

/* Entries of the tables of rules (rules.h): which elements a rank owns, the sum and the hash of all contributions, and
 * errors of buffers. The entries of all_gatherv are in layout_gatherv.c. */
struct coll_span pici_layout_segment(const struct coll_layout *, const struct pici_comm *, const struct coll_call *,
                                     int segment);
struct coll_span pici_layout_contribution(const struct coll_layout *, const struct pici_comm *,
                                          const struct coll_call *, int segment);
const char *pici_layout_count(struct coll_call *, const struct pici_comm *, char *explanation, size_t bytes);
const char *pici_layout_slots_wrong(const struct coll_call *, const struct pici_comm *);

/* Whether some of n runs of elements overlap. */
int pici_layout_overlap(const uint64_t *counts, const uint64_t *displs, int n);

/* For all_gatherv and all_to_allv without displs, whose contributions are contiguous: the bytes of the table of their
 * places, 0 for other calls; and the table itself. */
size_t pici_layout_packed_bytes(const struct coll_call *, const struct pici_comm *);
void pici_layout_pack(struct coll_call *, const struct pici_comm *, uint64_t *packed);

/* Bytes of scratch in the host's memory. */
size_t pici_layout_scratch(const struct coll_layout *);

/* The elements of a segment, numbered by its owner's virtual rank, and the elements of one slice of it. The call must
 * have its layout. */
struct coll_span pici_coll_segment(const struct pici_comm *, const struct coll_call *, int segment);
struct coll_span pici_coll_slice(const struct pici_comm *, const struct coll_call *, int segment, uint64_t slice);

#endif
