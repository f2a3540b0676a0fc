/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Early data: the data of a small all-reduce, which travels with the call agreement.
 *
 * If the number of ranks is a power of two, the rounds of the call agreement and the exchanges of doubling have the
 * same peers in the same order. So the message of round t has two parts: the rank's word of the call agreement, and the
 * data message of exchange t. The steps come from the schedule. The steps path's functions make and process the data
 * messages.
 *
 * Whether a call has early data depends only on values that are the same on all ranks that make the same call
 * (lay_out). A rank that makes another call, or cannot take part, sends its messages of the call agreement without
 * data. A rank that receives one without data lacks the sum for its next message, so from then on it sends none either.
 * After log2 p rounds all ranks are in the same state. Suppose that one began without data. After round t, all ranks
 * whose numbers differ from its own only in the lowest t + 1 bits have received a message without data. In the end
 * these are all ranks, and the call goes on as others do. If none began without data, none has ever received one
 * without.
 *
 * Poison and the status agreement report failures in the data, as in other calls. */
#include "coll/early.h"

#include <string.h>

#include "coll/send.h"
#include "coll/receive.h"

/* Places for messages: one sent, one received, one kept. A copy of the caller's data follows them. */
enum { PLACES = 3 };

/* Whether the transport can carry early data, and the number of ranks permits it. A transport whose elements are on
 * GPUs carries only short messages in the host's memory. */
static int has_early_data(const struct pici_comm *comm)
{
    return pici_early_ranks(comm->ranks) && comm->transport.memory != PICI_MEMORY_DEVICE;
}

size_t pici_early_place(const struct pici_comm *comm)
{
    const size_t bytes = has_early_data(comm) ? AGREE_BYTES + EARLY_MESSAGE : AGREE_ROOM;
    return pici_layout_aligned(bytes);
}

size_t pici_early_memory(const struct pici_comm *comm)
{
    return PLACES * pici_early_place(comm) + (has_early_data(comm) ? EARLY_DATA : 0);
}

static uint8_t *copy_of_data(const struct pici_comm *comm)
{
    return comm->agreements + PLACES * pici_early_place(comm);
}

/* Returns whether a call has early data, and then makes its layout. Depends only on values that are the same on all
 * ranks that agree. */
static int lay_out(struct coll_layout *layout, const struct pici_comm *comm, const struct coll_call *call)
{
    return call->args.kind == PICI_ALL_REDUCE && comm->in_order &&
           pici_early_fits(comm->ranks, call->args.dtype, call->resolved.total) && !call->opts.values.phases &&
           !pici_layout_choose(layout, comm, call) && layout->schedule->with_agreement && layout->slices == 1;
}

void pici_early_begin(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    struct coll_call *call = &request->call;
    if (!has_early_data(comm) || request->status || call->opts.native || request->engine != comm->engine ||
        !lay_out(&call->resolved.layout, comm, call))
        return;                                    /* the native collective may replace data messages */
    call->resolved.layout.message = EARLY_MESSAGE; /* this call's longest; one of a whole slice may be longer */
    pici_request_tables(request);
    pici_slice_buffers(request, comm->agreements + AGREE_BYTES, pici_early_place(comm));
    if (call->args.send == call->args.recv) /* the call builds sums there, but may have to start over */
        call->args.send =
            memcpy(copy_of_data(comm), call->args.send, (size_t)call->resolved.total * call->resolved.width);
    request->runs[0].queue = request->queues[0];
    request->runs[0].message = -1;
    pici_slice_begin(request, &request->runs[0], 0);
    request->early = 1;
}

void pici_early_make(struct pici_request *request)
{
    struct coll_agreement *agreement = &request->agree;
    struct slice_run *slice_run = &request->runs[0];
    int progressed;
    /* complete on return: the host's engine does not work in the background */
    pici_make_messages(request, slice_run, &progressed);
    agreement->outgoing.buffer = slice_run->outgoing[0];
    agreement->incoming.buffer = pici_slice_take(request);
    pici_slice_sent(slice_run);
    request->making--;
}

void pici_early_receive(struct pici_request *request, size_t bytes, int agreed)
{
    struct coll_agreement *agreement = &request->agree;
    struct slice_run *slice_run = &request->runs[0];
    int progressed;
    if (!bytes || !agreed) {
        request->early = 0;
        return;
    }
    pici_slice_release(request, agreement->outgoing.buffer);
    agreement->incoming.bytes -= AGREE_BYTES;
    agreement->incoming.status = agreement->incoming.bytes == bytes ? PICI_OK : PICI_E_CORRUPT;
    /* it has arrived, so the transport cannot fail */
    (void)pici_receive_messages(request, slice_run, &agreement->incoming, &progressed);
    pici_end_step(request, slice_run, &agreement->incoming);
}

void pici_early_undo(struct pici_request *request)
{
    struct coll_call *call = &request->call;
    if (has_early_data(request->comm) && call->args.send == copy_of_data(request->comm))
        memcpy(call->args.recv, call->args.send, (size_t)call->resolved.total * call->resolved.width);
}
