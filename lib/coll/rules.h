/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tables of the differences between kinds of calls: the collectives' in ordinary.c, the neighbourhood all-gathers' in
 * neighbor_call.c, the all-to-all's in alltoall.c. All other code on a call's path uses its table. */
#ifndef PICI_LIB_COLL_RULES_H
#define PICI_LIB_COLL_RULES_H

#include "pici/coll.h"
#include "schedule/schedule.h"

struct coll_buffer;
struct coll_call;
struct coll_layout;
struct coll_part;
struct coll_span;
struct pici_request;
struct slice_run;

struct call_rules {
    const char *name;      /* in traces; NULL: the collective's name */
    const char *host_only; /* the error message for buffers in GPU memory; NULL: they are allowed */
    const char *mismatch;  /* the error message if messages have another tag; NULL: they have none */
    int algorithms;        /* the options algorithm and zeros are allowed */
    int codecs;            /* lossy codecs are possible */
    int choice;            /* AUTO may choose by predicted time, and use the transport's own collective */
    int unrelated;         /* messages of a slice are unrelated: do not predict nonzeros from one to the next */
    int traces_blocks;     /* traces name the blocks of a message */

    /* ---- before the ranks have agreed */

    /* Add up the elements of the call, whose options are resolved, and set how the call agreement and messages describe
     * it. The error message for wrong counts or other arguments, which is in `explanation` [bytes] if they are not
     * constant; NULL: nothing. */
    const char *(*count)(struct coll_call *, const struct pici_comm *, char *explanation, size_t bytes);

    /* The same for the buffers: null, or an overlap other than in place. */
    const char *(*buffers_wrong)(const struct coll_call *, const struct pici_comm *);

    /* A layout with the most memory of any that the call may get. */
    enum pici_status (*lay_out)(struct coll_layout *, const struct pici_comm *, const struct coll_call *);

    /* ---- when they have */

    /* The layout, the same on all ranks. */
    enum pici_status (*prepare)(struct pici_request *);

    /* The elements of a segment. */
    struct coll_span (*segment)(const struct coll_layout *, const struct pici_comm *, const struct coll_call *,
                                int segment);

    /* ---- buffers of messages. receives: of those that a slice (run: its index) receives in a step; else, sends */

    void (*set_buffers)(struct pici_request *, uint8_t *memory);
    int (*has_buffers)(const struct pici_request *, int run, int step, int receives); /* all that the step needs */
    struct coll_buffer *(*acquire_buffer)(struct pici_request *, int run, int step, int receives, int message);
    void (*free_buffer)(struct pici_request *, struct coll_buffer *);

    /* ---- elements */

    /* At a slice's first step: copy this rank's contribution to its place in the result. */
    void (*place_own)(struct pici_request *, const struct slice_run *);

    /* What the call's engine takes for the address of elements: of a segment's result, from this element of the call's
     * total on; of this rank's contribution to a slice of a segment; of a sum in a slot of the slice. */
    void *(*result_at)(const struct pici_request *, int segment, uint64_t first_element);
    const void *(*contribution_at)(const struct pici_request *, const struct slice_run *, int segment,
                                   struct coll_span);
    void *(*slot_at)(const struct pici_request *, const struct slice_run *, int slot);

    /* A result that this rank has just quantized, of the segment number i of a message: begin to put what the receivers
     * will decode in its place. NULL where lossy codecs are not possible. */
    enum pici_status (*place_sent)(struct pici_request *, const struct slice_run *, const struct schedule_message *,
                                   int i);

    /* A single rank: what it contributes is the result. */
    void (*place_alone)(struct pici_request *);

    /* Check a part of a received message, and begin to take it in. Sets its blocks. */
    enum pici_status (*receive_part)(struct pici_request *, struct slice_run *, enum schedule_action,
                                     struct coll_part *);

    /* All data are there, and the ranks have not agreed on a status yet: complete the result. */
    enum pici_status (*finish)(struct pici_request *);
};

#endif
