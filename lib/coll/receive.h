/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes the messages that a slice receives in a step. */
#ifndef PICI_LIB_COLL_RECEIVE_H
#define PICI_LIB_COLL_RECEIVE_H

#include "coll/slice.h"

/* The blocks of a segment in a received message. */
struct coll_part {
    const uint8_t *bytes; /* their first byte, at this offset of the message, where this many bytes remain */
    size_t offset, remaining;
    int number, segment;   /* the segment's number in the message, and in the call */
    struct coll_span span; /* its elements in the slice; of a run that is passed on, the most that it may have */
    struct coll_blocks blocks;
    struct pici_block block[VALUES_ARRAYS]; /* their headers */
};

/* Check a part, and begin to decode, reduce or keep it as the schedule says. For calls in which a segment has one
 * place. Sets the part's blocks, and its number of elements if that was unknown. */
enum pici_status pici_receive_part(struct pici_request *, struct slice_run *, enum schedule_action, struct coll_part *);

/* Parts of pici_receive_part, for calls in which a segment has several places. The first parses the headers of a
 * segment's blocks, and sets the part's blocks. The second begins to decode a lossy codec's blocks to arrays, and sets
 * inputs and input_counts to these. Later work of the queue may use the arrays, until it receives another segment. */
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
