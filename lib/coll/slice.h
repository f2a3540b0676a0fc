/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One slice on its way through the steps of a schedule: its buffers, its sums, its events in the trace. */
#ifndef PICI_LIB_COLL_SLICE_H
#define PICI_LIB_COLL_SLICE_H

#include "coll/request.h"

static inline const struct coll_layout *layout_of(const struct pici_request *request)
{
    return &request->call.resolved.layout;
}

/* ---- steps */

/* Step `step` of the schedule; and the step that a slice is at. */
void pici_slice_step_at(const struct pici_request *, int step, struct schedule_step *);
const struct schedule_step *pici_slice_step(const struct pici_request *, struct slice_run *);

/* ---- buffers of messages */

/* Take a free buffer, with one reference; and release a reference. Releasing the last one frees the buffer. */
struct coll_buffer *pici_slice_take(struct pici_request *);
void pici_slice_release(struct pici_request *, struct coll_buffer *);

/* Give the request's buffers their memory, `pitch` bytes apart, and make them free. */
void pici_slice_buffers(struct pici_request *, uint8_t *first, size_t pitch);

/* Keep the blocks of a segment, and so the buffer that they are in, for a later step; and stop keeping them. */
void pici_slice_keep(struct pici_request *, struct slice_run *, int segment, struct coll_buffer *,
                     const struct coll_blocks *);
void pici_slice_let_go(struct pici_request *, struct slice_run *, int segment);

/* Like pici_slice_keep, for a received message: copies the blocks to a buffer for such blocks. */
void pici_slice_keep_apart(struct pici_request *, struct slice_run *, int segment, const struct coll_blocks *);

/* The bytes of all blocks of a segment. */
size_t pici_slice_bytes(const struct coll_blocks *);

/* ---- elements. first_element: index of the slice's first element in the call's total; count: how many it has */

/* Begin a slice: it has no sums yet, and is at the first step. */
void pici_slice_begin(const struct pici_request *, struct slice_run *, uint64_t slice);

/* Where a segment's result belongs in the receive buffer. */
uint8_t *pici_slice_result(const struct pici_request *, int segment, uint64_t first_element);

/* Entries of the tables of rules (rules.h) for calls whose elements are in the caller's memory. */
void *pici_slice_result_at(const struct pici_request *, int segment, uint64_t first_element);
const void *pici_slice_contribution_at(const struct pici_request *, const struct slice_run *, int segment,
                                       struct coll_span);
void *pici_slice_slot_at(const struct pici_request *, const struct slice_run *, int slot);
void pici_slice_place_alone(struct pici_request *);
enum pici_status pici_slice_finish(struct pici_request *);
#define RULES_OF_MEMORY                                                                                                \
    .result_at = pici_slice_result_at, .contribution_at = pici_slice_contribution_at, .slot_at = pici_slice_slot_at,   \
    .place_alone = pici_slice_place_alone, .finish = pici_slice_finish

/* The number of a slice in its messages. */
uint64_t pici_slice_number(const struct pici_request *, const struct slice_run *);

/* Copy count elements of this rank's own contribution to where the call first needs them, which may be in place. */
void pici_slice_own(const struct pici_request *, struct pici_queue *, uint8_t *destination, const uint8_t *source,
                    uint64_t count);

/* This rank's sum of a segment; the first time it is a copy of its own contribution. */
uint8_t *pici_slice_sum(const struct pici_request *, struct slice_run *, int segment, struct coll_span);

/* The place of a sum that the caller overwrites. */
uint8_t *pici_slice_new_sum(const struct pici_request *, struct slice_run *, int segment, uint64_t first_element);

/* A sum was sent to another rank: free its memory. Sums in the receive buffer stay. */
void pici_slice_pass_on(struct slice_run *, int segment);

/* The elements that this rank encodes: its own contribution, a sum, or a result. */
const uint8_t *pici_slice_source(const struct pici_request *, const struct slice_run *, int segment, uint64_t *count);

/* ---- values: slice_values.c */

/* Whether the lossy codec makes the messages of the slice's step. */
int pici_slice_coded(const struct pici_request *, const struct slice_run *);

/* Begin to quantize the elements of a message to arrays: sets slice_run->sources and
 * slice_run->counts. slice_run->arrays is set. */
enum pici_status pici_slice_quantize(struct pici_request *, struct slice_run *, const struct schedule_message *);

/* After quantizing: count the losses. Begin to replace elements that this rank still uses by those that the receivers
 * will decode. */
enum pici_status pici_slice_quantized(struct pici_request *, struct slice_run *, const struct schedule_message *);

/* A table entry (rules.h) for calls in which sent elements have one place in the result. */
enum pici_status pici_slice_place_sent(struct pici_request *, const struct slice_run *, const struct schedule_message *,
                                       int i);

/* Places for the arrays of a received segment. */
void pici_slice_received(const struct pici_request *, const struct slice_run *, void *outputs[VALUES_ARRAYS]);

/* Begin to store count dequantized elements at destination, or to add them there. They come from received arrays, or
 * from the arrays of segment i of the last message made. */
enum pici_status pici_slice_dequantize(struct pici_request *, const struct slice_run *, enum engine_store,
                                       uint8_t *destination, uint64_t count, const void *const inputs[VALUES_ARRAYS],
                                       const uint64_t input_counts[VALUES_ARRAYS]);
enum pici_status pici_slice_dequantize_own(struct pici_request *, const struct slice_run *,
                                           const struct schedule_message *, int i, enum engine_store,
                                           uint8_t *destination);

/* ---- progress */

/* Whether the engine has done what the slice's stage began; *status: whether that succeeded. */
int pici_slice_ready(const struct pici_request *, const struct slice_run *, enum pici_status *status);

/* The time, if messages are timed; else 0. */
double pici_slice_now(const struct pici_request *);

/* Record that a message was made or received. tiles: NULL, or the tiles of each container in a sent message. */
void pici_slice_trace(struct pici_request *, const char *name, const struct slice_run *,
                      const struct schedule_message *, size_t wire, const uint64_t *tiles);

/* The messages of the slice's step were sent. */
void pici_slice_sent(struct slice_run *);

#endif
