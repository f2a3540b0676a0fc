/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking in the messages that a slice receives in a step. */
#ifndef PICI_LIB_COLL_RECEIVE_H
#define PICI_LIB_COLL_RECEIVE_H

#include "coll/slice.h"

/* The blocks of a segment in a received message. */
struct coll_part {
    const uint8_t *bytes; /* where they begin: at this byte of the message, whose rest has so many */
    size_t offset, remaining;
    int number, segment;   /* the segment's number in the message, and in the call */
    struct coll_span span; /* its elements, of the slice; of a run that is passed on the most that it may have */
    struct coll_blocks blocks;
    struct pici_block block[VALUES_ARRAYS]; /* their headers */
};

/* Check a part, and begin to decode, reduce or keep it as the schedule says. For calls in which a segment has one
 * place. Sets the part's blocks, and how many elements it has where that was not known. */
enum pici_status pici_receive_part(struct pici_request *, struct slice_run *, enum schedule_action, struct coll_part *);

/* What that does with a lossy codec, for calls in which a segment has several places: parse the headers of a segment's
 * blocks, and set the part's; then begin to decode them to the arrays of which inputs and input_counts become those.
 * All that uses the queue afterwards has them, until another segment is received. */
enum pici_status pici_receive_parse(struct pici_request *, const struct slice_run *, struct coll_part *);
enum pici_status pici_receive_arrays(struct pici_request *, struct slice_run *, const struct coll_part *,
                                     const void *inputs[VALUES_ARRAYS], uint64_t input_counts[VALUES_ARRAYS]);

/* Process the received messages of a slice's step in the order of its list, without waiting. When all are processed,
 * its stage is STAGE_RECEIVED. Notes errors. flights: its receives. Returns a failure of the transport. */
enum pici_status pici_receive_messages(struct pici_request *, struct slice_run *, struct coll_flight *flights,
                                       int *progressed);

/* A slice's step has ended: free its buffers and go to the next step, or to the next slice. */
void pici_end_step(struct pici_request *, struct slice_run *, struct coll_flight *flights);

#endif
