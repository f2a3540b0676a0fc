/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Early data: the data of a small all-reduce, which travels with hello.
 *
 * If the number of ranks is a power of two, the rounds of hello and the exchanges of doubling have the same peers in
 * the same order. So the message of round t is the word of hello, and behind it the data message of exchange t. The
 * steps are those of the schedule, and the functions that make messages and take them in are those of the steps path.
 *
 * Whether a call has early data follows from what is the same on all ranks that make the same call
 * (lay_out). A rank that makes another call, or cannot take part, says hello without data. A rank that
 * receives hello without data lacks the sum of which its next message would be, so from then on it sends none either.
 * After log2 p rounds all ranks are in the same state. If one began without data, then after round t all ranks whose
 * numbers differ from its own in the lowest t + 1 bits only have received hello without data; in the end these are all.
 * Then the call goes on as others do. If none began without data, none has ever received hello without.
 *
 * What fails in the data is told by poison and in the closing round, as in other calls. */
#include "coll/early.h"

#include <string.h>

#include "coll/send.h"
#include "coll/take.h"

/* A rank holds a message that it sends, one that it receives, and one that it keeps. Behind their places there is one
 * for a copy of the caller's data. */
enum { PLACES = 3 };

/* Whether the transport can carry early data, and its ranks may have such. A transport whose elements are on GPUs
 * carries only short messages in the host's memory. */
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

/* Whether a call has early data, and then its layout. A function of what is the same on all ranks if they agree. */
static int lay_out(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    return c->args.kind == PICI_ALL_REDUCE && comm->in_order &&
           pici_early_fits(comm->ranks, c->args.dtype, c->resolved.total) && !c->opts.values.phases &&
           !pici_layout_choose(l, comm, c) && l->schedule->with_hello && l->slices == 1;
}

void pici_early_begin(struct pici_request *r)
{
    struct pici_comm *comm = r->comm;
    struct coll_call *c = &r->call;
    if (!has_early_data(comm) || r->status || c->opts.vendor || r->engine != comm->engine ||
        !lay_out(&c->resolved.at, comm, c))
        return;                             /* the vendor's collective may take the place of data messages */
    c->resolved.at.message = EARLY_MESSAGE; /* of its longest, which a message of a whole slice may exceed */
    pici_request_tables(r);
    pici_slice_buffers(r, comm->agreements + AGREE_BYTES, pici_early_place(comm));
    if (c->args.send == c->args.recv) /* sums are built there, but the call may have to begin anew */
        c->args.send = memcpy(copy_of_data(comm), c->args.send, (size_t)c->resolved.total * c->resolved.width);
    r->runs[0].lane = r->lanes[0];
    r->runs[0].message = -1;
    pici_slice_begin(r, &r->runs[0], 0);
    r->early = 1;
}

void pici_early_make(struct pici_request *r)
{
    struct coll_agreement *a = &r->agree;
    struct slice_run *run = &r->runs[0];
    int moved;
    pici_make_messages(r, run, &moved); /* it is made: the host's engine has finished when a function returns */
    a->out.buffer = run->out[0];
    a->in.buffer = pici_slice_take(r);
    pici_slice_sent(run);
    r->making--;
}

void pici_early_take(struct pici_request *r, size_t bytes, int agreed)
{
    struct coll_agreement *a = &r->agree;
    struct slice_run *run = &r->runs[0];
    int moved;
    if (!bytes || !agreed) {
        r->early = 0;
        return;
    }
    pici_slice_drop(r, a->out.buffer);
    a->in.bytes -= AGREE_BYTES;
    a->in.status = a->in.bytes == bytes ? PICI_OK : PICI_E_CORRUPT;
    (void)pici_take_messages(r, run, &a->in, &moved); /* it has arrived, so the transport cannot fail */
    pici_end_step(r, run, &a->in);
}

void pici_early_undo(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    if (has_early_data(r->comm) && c->args.send == copy_of_data(r->comm))
        memcpy(c->args.recv, c->args.send, (size_t)c->resolved.total * c->resolved.width);
}
