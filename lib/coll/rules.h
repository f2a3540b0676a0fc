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
    const char *name;     /* in traces; NULL: the collective's name */
    const char *mismatch; /* the error message if messages have another tag; NULL: they have none */
    int algorithms;       /* the options algorithm and zeros are allowed */
    int codecs;           /* lossy codecs are possible */
    int choice;           /* AUTO may choose by predicted time, and use the transport's own collective */
    int unrelated;        /* messages of a slice are unrelated: do not predict nonzeros from one to the next */
    int traces_blocks;    /* traces name the blocks of a message */

    /* ---- before the ranks have agreed */

    /* Add up the elements of the call, whose options are resolved, and set its description in the call agreement and in
     * messages. Returns an error message for wrong arguments, which may be in `explanation` [bytes], or NULL. */
    const char *(*count)(struct coll_call *, const struct pici_comm *, char *explanation, size_t bytes);

    /* Returns an error message for wrong buffers: null ones, or an overlap other than in place. NULL: none is wrong. */
    const char *(*buffers_wrong)(const struct coll_call *, const struct pici_comm *);

    /* A layout with the most memory of any that the call may get. */
    enum pici_status (*lay_out)(struct coll_layout *, const struct pici_comm *, const struct coll_call *);

    /* ---- after the ranks have agreed */

    /* The layout, the same on all ranks. */
    enum pici_status (*prepare)(struct pici_request *);

    /* The elements of a segment. */
    struct coll_span (*segment)(const struct coll_layout *, const struct pici_comm *, const struct coll_call *,
                                int segment);

    /* ---- buffers of messages that a slice receives in a step, or sends (receives: 0). run: the slice's index */

    void (*set_buffers)(struct pici_request *, uint8_t *memory);
    int (*has_buffers)(const struct pici_request *, int run, int step, int receives); /* all that the step needs */
    struct coll_buffer *(*acquire_buffer)(struct pici_request *, int run, int step, int receives, int message);
    void (*free_buffer)(struct pici_request *, struct coll_buffer *);

    /* ---- elements */

    /* At a slice's first step: copy this rank's contribution to its place in the result. */
    void (*place_own)(struct pici_request *, const struct slice_run *);

    /* Addresses of elements, as the call's engine understands them. result_at: a segment's result, from this element of
     * the call's total on. contribution_at: this rank's contribution to a slice of a segment. slot_at: a sum in a slot
     * of the slice. */
    void *(*result_at)(const struct pici_request *, int segment, uint64_t first_element);
    const void *(*contribution_at)(const struct pici_request *, const struct slice_run *, int segment,
                                   struct coll_span);
    void *(*slot_at)(const struct pici_request *, const struct slice_run *, int slot);

    /* Begin to replace a result that this rank has just quantized, segment number i of a message, by the elements that
     * the receivers will decode. May be NULL without lossy codecs. */
    enum pici_status (*place_sent)(struct pici_request *, const struct slice_run *, const struct schedule_message *,
                                   int i);

    /* With a single rank: its contribution is the result. */
    void (*place_alone)(struct pici_request *);

    /* Check a part of a received message, and begin to process it. Sets its blocks. */
    enum pici_status (*receive_part)(struct pici_request *, struct slice_run *, enum schedule_action,
                                     struct coll_part *);

    /* Complete the result, when all data have arrived, before the status agreement. */
    enum pici_status (*finish)(struct pici_request *);
};

#endif
