/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A communicator, and a collective under way on it: what the files of the collectives share. */
#ifndef PICI_LIB_COLL_COMM_H
#define PICI_LIB_COLL_COMM_H

#include <sys/types.h>

#include "coll/engine.h"
#include "coll/message.h"
#include "coll/plan.h"
#include "coll/policy.h"
#include "coll/trace.h"
#include "format.h"
#include "pici/transport.h"

enum { COLL_MAX_RANKS = 1 << 20, COLL_MAX_WINDOW = 64, COLL_TEMP_BYTES = 64 << 10, COLL_ALIGN = 64 };

/* What pici_coll_opts leaves open: the environment's word, else the library's. */
struct coll_settings {
    enum pici_algorithm algorithm;
    enum pici_format format;
    float threshold[POLICY_LINKS]; /* < 0: the format's */
    int timeout_ms, checksum;
    int window;
    uint64_t slice_bytes; /* 0: by what the transport moves */
    const char *trace;    /* path, or NULL */
    double bandwidth[2];  /* by POLICY_INTER, POLICY_INTRA; bytes per second */
    unsigned formats;     /* that AUTO may choose; 0: all */
};

struct pici_comm {
    struct pici_transport transport;
    const struct pici_engine *engine; /* for elements in the host's memory */
    const struct pici_engine *other;  /* for elements that this one owns, with its context; or NULL */
    void *other_self;
    struct coll_settings settings;
    int rank, ranks;
    int position; /* order[position] == rank */
    int *order;   /* [ranks] plan's positions to ranks */
    int *node_of; /* [ranks] */
    int nodes;
    pid_t pid; /* of the process that made it */
    enum pici_status broken;
    char error[256];
    uint64_t sequence; /* of the next collective */
    uint8_t *scratch;
    size_t scratch_bytes;
    uint8_t *agreements;              /* the head's: memory of its coll_agreement */
    int leak;                         /* the transport may still use memory of the head's: it is never freed */
    struct pici_request *head, *tail; /* in the order started; only the head moves */
    struct pici_request *spare;       /* a blocking call's */
    struct trace *trace;
};

/* One collective, its arguments resolved. Counts are elements. */
struct coll_call {
    enum pici_collective kind;
    const uint8_t *send;
    uint8_t *recv;
    uint64_t count; /* the caller's */
    uint64_t total; /* of all segments */
    enum pici_dtype dtype;
    enum pici_op op;
    enum pici_algorithm algorithm;
    enum pici_format format;
    float threshold[POLICY_LINKS];
    double bandwidth[2];
    unsigned formats;
    int timeout_ms, checksum;
    size_t width;
    int steps[2];     /* of each phase; 0: the phase is not part of it */
    uint64_t slice;   /* elements, a multiple of TILE */
    uint64_t slices;  /* of a segment, the last maybe empty; 0: there is no data */
    int window;       /* slices at a time */
    int lanes;        /* of the engine; 0: it has none */
    int widest;       /* blocks in a message at the most */
    int buffers;      /* for messages */
    int held;         /* messages that a chain keeps at the most */
    int accumulators; /* a chain's */
    size_t message;   /* capacity of a buffer */
    size_t scratch;   /* bytes of all */
    size_t sums;      /* of which those are for the accumulators */
    struct pici_coll_stats *stats;
    size_t stats_bytes; /* of the caller's version */
    void *memory;       /* the caller's scratch, or NULL */
    size_t memory_bytes;
};

/* The elements of segment `position`, and those of its slice: [*first, *first + *n) of the total. */
void pici_coll_segment(const struct pici_comm *, const struct coll_call *, int position, uint64_t *first, uint64_t *n);
void pici_coll_slice(const struct pici_comm *, const struct coll_call *, int position, uint64_t slice, uint64_t *first,
                     uint64_t *n);

/* A message's memory. Free when nobody needs it. */
struct coll_buffer {
    uint8_t *bytes;
    size_t len;
    int users;
};

/* An encoded block that is still needed. */
struct coll_encoded {
    const uint8_t *block;
    size_t len;
    struct coll_buffer *message; /* that which holds this block and no other, or NULL */
    enum pici_format format;
};

/* What a chain has begun last. Its message is made, sent, and then another taken in. */
enum coll_stage {
    STAGE_REST,
    STAGE_COUNTING, /* the nonzeros of what is to be sent */
    STAGE_MAKING,   /* the message */
    STAGE_MADE,     /* which waits for its turn */
    STAGE_LOOKING,  /* at what came in */
    STAGE_TAKING,   /* that */
    STAGE_TAKEN     /* and waits for its turn */
};
enum coll_making { MAKE_BLOCKS, MAKE_FORWARD, MAKE_POISON };

/* A slice on its way through the steps; there are `window` of them. */
struct coll_chain {
    uint64_t slice;
    int step; /* now, over both phases */
    int sent; /* this step's message was */
    enum coll_stage stage;
    enum coll_making making;
    struct pici_lane *lane;
    struct coll_buffer *out; /* the message that is made */
    uint64_t *n, *nnz;       /* [widest] of its blocks, */
    size_t *len;             /* [widest] and their bytes, */
    const void **src;        /* [widest] what they are made of */
    enum pici_format format; /* of the message at hand, as what follows */
    double density, begin;
    int extrapolated, dense;
    enum pici_status status; /* of taking it in */
    uint64_t dense_bytes, tiles[PICI_CONTAINERS];
    uint8_t *acc;                 /* ring: one slice; recursive: one a segment */
    uint8_t *has;                 /* [ranks] the accumulator of this segment is in use */
    struct coll_encoded *encoded; /* [ranks] all-gather: the blocks of these segments */
    struct coll_buffer **held;    /* whose bytes must stay */
    int holds;
    struct policy_chain policy;
};

/* Where one is in the order of messages. */
struct coll_place {
    uint64_t round;
    int step, chain;
};

struct coll_flight {
    void *request; /* of the transport */
    struct coll_buffer *buffer;
    int peer;
    int done;
    size_t bytes;
    enum pici_status status;
};

enum coll_state { COLL_WAITING, COLL_HELLO, COLL_DATA, COLL_CLOSING, COLL_DONE };

enum { AGREE_CALL_BYTES = 40, AGREE_BYTES = MSG_BYTES + 16 + 2 * AGREE_CALL_BYTES + 8 };

/* The dissemination of a status, and of what the ranks think the call is: one message each way a round. */
struct coll_agreement {
    int round, rounds, posted;
    struct coll_flight out, in;
    uint32_t low_rank, high_rank; /* who made the lowest and the highest of the calls that ranks speak of */
    uint8_t low[AGREE_CALL_BYTES], high[AGREE_CALL_BYTES];
};

struct pici_request {
    struct pici_request *next;
    struct pici_comm *comm; /* NULL: it was freed */
    struct coll_call call;
    enum coll_state state;
    enum pici_status status; /* this rank's knowledge so far; in the end everybody's */
    int culprit;             /* the rank that it came from; INT_MAX: not known */
    uint64_t sequence;
    struct pici_coll_stats stats;
    double begin, idle; /* seconds; idle: since when nothing moved, 0: it did */

    struct coll_agreement agree;

    const struct pici_engine *engine;
    void *self, *mark;        /* the engine's */
    uint8_t *messages, *sums; /* the call's scratch */
    struct coll_chain *chains;
    struct coll_buffer *buffers;
    struct coll_buffer **free; /* stack */
    int frees;
    struct coll_flight *sends, *recvs; /* [window] each; recvs is a ring */
    int sending, making;               /* sends in use; messages that are made but not sent */
    uint64_t posted, folded;           /* messages, of those that this rank receives */
    struct coll_place next_post, next_send, next_fold;
    uint8_t *temp; /* COLL_TEMP_BYTES, for fold */
    void *memory;  /* of all the arrays above */
};

/* comm.c: note why something failed. The first note of a communicator stays. comm NULL: for this thread. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void pici_coll_note(struct pici_comm *, const char *format, ...);
/* Note that a message from or to a peer failed; returns s. */
enum pici_status pici_coll_lost(struct pici_comm *, int peer, enum pici_status s);
double pici_coll_now(void);

/* More scratch memory, of so many bytes: PICI_E_NOMEM leaves what there is. */
enum pici_status pici_comm_grow(struct pici_comm *, size_t bytes);

/* Note a failure on this rank (culprit: who did it), keep to the plan. The worst status wins. */
void pici_coll_fail(struct pici_request *, enum pici_status, int culprit);

/* call.c: the communicator is broken: everything in flight is given up, and the head's request ends with this status, those
 * behind it with PICI_E_BROKEN. Peers may be told why. */
void pici_coll_break(struct pici_comm *, enum pici_status, enum pici_status why);

/* agree.c: begin, and move on; *done = 1 when every rank's word has come in. Returns a failure of the transport. */
int pici_coll_agree_rounds(int ranks); /* 2 * AGREE_BYTES of comm->agreements each */
void pici_coll_agree_begin(struct pici_request *, enum msg_kind);
enum pici_status pici_coll_agree(struct pici_request *, enum msg_kind, int *moved, int *done);

/* coll.c: the data. Begin, which may be a failure of this rank; move on: a failure of the transport. */
enum pici_status pici_coll_data_begin(struct pici_request *);
enum pici_status pici_coll_data(struct pici_request *, int *moved, int *done);
int pici_coll_busy(const struct pici_request *); /* has the engine something to do? */

#endif
