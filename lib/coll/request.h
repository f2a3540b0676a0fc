/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A started collective: its state, its tables, its life from start to end. */
#ifndef PICI_LIB_COLL_REQUEST_H
#define PICI_LIB_COLL_REQUEST_H

#include "coll/layout.h"
#include "coll/message.h"

/* Memory of a message. Free when it has no references. */
struct coll_buffer {
    uint8_t *bytes;
    size_t size, capacity;
    int segments;   /* number of segments with blocks in it */
    int references; /* posted receives, sends, and kept blocks */
    int flights;    /* of the references, sends in flight: its bytes must not change */
};

/* The blocks of a segment in a message: one, or with a lossy codec one for each of its arrays. */
struct coll_blocks {
    const uint8_t *first; /* the others follow it */
    size_t sizes[VALUES_ARRAYS];
    enum pici_format format[VALUES_ARRAYS];
    int count;
    uint64_t elements; /* elements of the call in these blocks */
};

/* Kept blocks: a later step forwards them, or this one adds them. */
struct coll_encoded {
    struct coll_blocks blocks;
    struct coll_buffer *message; /* the buffer that holds them; NULL: no blocks of this segment are kept */
};

/* The current stage of a slice. In a step it makes and sends its messages, then processes the received ones. */
enum coll_stage {
    STAGE_REST,
    STAGE_QUANTIZING, /* making the arrays of a lossy codec for a message */
    STAGE_COUNTING,   /* counting the nonzeros of a message to send */
    STAGE_MAKING,     /* making a message */
    STAGE_MADE,       /* all messages of the step are made, and wait for their place in the order */
    STAGE_LOOKING,    /* reading the headers of a received message */
    STAGE_FIRST,      /* storing it as the first operand, before this rank's own data */
    STAGE_TAKING,     /* storing or adding it */
    STAGE_RECEIVED    /* all messages of the step are processed; the step waits for its place in the order */
};
enum coll_making { MAKE_BLOCKS, MAKE_FORWARD, MAKE_POISON };

/* One slice on its way through the steps; there are `window` of them at a time. */
struct slice_run {
    uint64_t slice;
    int step, messages_known;      /* the step that it is at; 1: `messages` are its own */
    struct schedule_step messages; /* its messages */
    int sent;                      /* the messages of the step were sent */
    int message;                   /* the current one; -1: the step has not begun */
    enum coll_stage stage;
    enum coll_making making;
    struct pici_queue *queue;
    struct coll_buffer **outgoing; /* [limits.sends] the messages made */
    uint64_t *counts, *nonzeros;   /* [limits.segments * VALUES_ARRAYS] blocks of a message, array by array */
    size_t *sizes;                 /* their bytes */
    const void **sources;          /* their elements, or arrays of the lossy codec */
    int arrays;                    /* of the current message, for each segment */
    int coded;                     /* the lossy codec makes it; else there is one array, the elements */
    enum pici_format formats[VALUES_ARRAYS];
    enum pici_format unpacked; /* the format of a packed message without packing */
    enum pici_format format;   /* of the last array, for the trace; of the current message like the next five lines */
    double density, begin;
    int extrapolated, dense;
    int by_value;            /* it has contributions to sums, where -0.0 has no effect */
    enum pici_status status; /* of storing or adding it */
    uint64_t dense_bytes, tiles[PICI_CONTAINERS];
    uint8_t *accumulated;         /* [limits.sums] slices */
    uint8_t *quantized;           /* [layout.quantized + 1] places for the arrays of a slice; the last is for received
                                   * ones */
    struct values_loss loss;      /* of the current message's encodings */
    int *slots, free_slots;       /* stack of the slots that are free */
    int *sum_slot;                /* [segments] where each one's sum is: SUM_NONE, SUM_IN_RECV, or 1 + its slot */
    struct coll_encoded *encoded; /* [segments] blocks that are kept; NULL if there are never any */
    struct coll_buffer *buffer_apart; /* the buffer for blocks that are kept apart; NULL: none has room */
    struct policy_history history;
};
enum { SUM_NONE = 0, SUM_IN_RECV = -1 };

/* A place in the common order of all ranks: rounds of `window` slices; in a round, step by step; in a step, slice by
 * slice. */
struct coll_place {
    uint64_t round;
    int step, slice_index;
};

struct coll_flight {
    void *request; /* of the transport */
    struct coll_buffer *buffer;
    int peer; /* rank */
    int done;
    size_t bytes;
    enum pici_status status;
};

/* Abilities of a rank in a call; ranks agree on the common ones. formats/agreement.md has the numbers. */
enum call_can {
    CAN_NATIVE = 1,     /* make the transport library's own collective, with permission */
    CAN_IN_PLACE = 2,   /* this rank's buffers are in place */
    CAN_APART = 4,      /* this rank's buffers are separate */
    CAN_ASK_NATIVE = 8, /* wants that collective: the call asks for dense data, and for no algorithm */
    CAN_TAKE_PACKED = 16,
    CAN_PACK = 32,         /* packs messages */
    CAN_PACK_ALL = 64,     /* packs messages at any cost */
    CAN_PACK_AVX2 = 128,   /* packs by kernels for AVX2 or faster ones */
    CAN_PACK_AVX512 = 256, /* packs by kernels for AVX-512 */
    CAN_BALANCE = 512      /* counts its nonzeros: its elements are in host memory or a list */
};

enum coll_state { COLL_WAITING, COLL_AGREE_CALL, COLL_DATA, COLL_AGREE_STATUS, COLL_DONE };

/* The dissemination of a status, of the ranks' calls and of densities: one message sent and one received in each
 * round. */
struct coll_agreement {
    int round, rounds, posted;
    struct coll_flight outgoing, incoming;
    uint8_t *said, *heard;   /* the messages of the round */
    enum pici_status status; /* the worst of the ranks known so far, as of the start of their rounds */
    int culprit;
    uint32_t low_rank, high_rank; /* who made the lowest and the highest of the calls known */
    uint32_t abilities;           /* common abilities of the known ranks: bits, enum call_can */
    uint8_t low[AGREE_CALL_BYTES], high[AGREE_CALL_BYTES];
    double density[DENSITIES]; /* the largest known of each */
    uint64_t stored;           /* likewise: the elements that a rank has; COLL_DENSE: one has no stream */
};

/* For an all-to-all (mismatch.h): the lowest rank with an unexpected count. */
struct coll_mismatch {
    int found;
    uint32_t from, to;
    uint64_t sent, expected; /* sent: UINT64_MAX if it is not known */
};

struct pici_request {
    struct pici_request *next;
    struct pici_comm *comm; /* NULL after the request's end: it may have been freed */
    struct coll_call call;
    enum coll_state state;
    enum pici_status status; /* the worst that this rank knows of; in the end the result on all ranks */
    int culprit;             /* the rank that it came from; INT_MAX: not known */
    uint64_t sequence;
    uint32_t tag; /* in its messages; 0: they have none */
    struct pici_coll_stats stats;
    double begin, idle_since; /* seconds; idle_since: when progress stopped; 0: it did not */

    struct coll_agreement agree;
    struct density_count counted[DENSITIES]; /* the nonzeros that this rank counted */
    int early;                               /* the data travels with the call agreement, so far */
    int balancing;                           /* counts of nonzeros travel with it, to balance owners */
    struct coll_mismatch mismatch;
    double pack_ratio; /* of the values in the last packed message: packed bytes / unpacked bytes; 0: there was none */

    const struct coll_path *path; /* of the data, once the layout is chosen */
    const struct pici_engine *engine;
    void *engine_self, *mark; /* the engine's */
    struct engine_room room;

    /* tables, in the communicator's memory */
    struct pici_queue **queues; /* [window] */
    struct slice_run *runs;     /* [window] */
    struct coll_buffer *buffers;
    struct coll_buffer **free_buffers; /* stack */
    int free_count;
    struct coll_flight *sends;    /* [window * limits.sends] */
    struct coll_flight *receives; /* [window][limits.receives]: rows in a ring */
    int sending, making;          /* sends in flight; messages of begun steps that are not sent yet */
    struct schedule_step posting; /* step posting_step of the schedule */
    int posting_step;
    int called;              /* the native path: its call was made */
    uint64_t posted, passed; /* places whose receives were posted; places passed */
    struct coll_place next_post, next_send, next_pass;
};

/* How the data of a call moves. begin may fail on this rank alone. move makes progress and fails if the transport does.
 * busy: the engine has work, so do not sleep in the transport. */
struct coll_path {
    const char *name;
    enum pici_status (*begin)(struct pici_request *);
    enum pici_status (*move)(struct pici_request *, int *progressed, int *done);
    int (*busy)(const struct pici_request *);
};

/* Note a failure (culprit: its rank). The call continues with the schedule. The worst status wins. */
void pici_coll_fail(struct pici_request *, enum pici_status, int culprit);

/* Queue a request for a call with checked options. The call agreement reports errors of this rank to all ranks. */
void pici_request_queue(struct pici_request *, const struct call_args *, struct pici_comm *,
                        const struct pici_coll_opts *);

/* Provide the head's memory: scratch and tables for any possible layout. */
enum pici_status pici_request_room(struct pici_request *);

/* End the head: write its statistics; the next request becomes the head. */
void pici_request_finish(struct pici_comm *);

/* Break the communicator: abandon everything in flight. The head ends with this status, the requests behind it with
 * PICI_E_BROKEN. The transport may pass `why` on to the peers. */
void pici_coll_break(struct pici_comm *, enum pici_status, enum pici_status why);

/* The error message of an engine's status: the engine's own, if it has one. */
const char *pici_request_error(const struct pici_request *, enum pici_status);

/* Place the head's tables in the communicator's memory, once the layout is chosen. */
void pici_request_tables(struct pici_request *);

/* End the head with its status. Other ranks may not know the status; the next call tells them. */
void pici_request_failed(struct pici_comm *);

/* Count a message that was given to the transport. */
void pici_request_sent(struct pici_request *, int peer, size_t bytes);

/* Tell the transport, if it has these functions, how many of the next receives or sends belong to one step. */
void pici_step_receives(struct pici_comm *, int n);
void pici_step_sends(struct pici_comm *, int n, int more);

#endif
