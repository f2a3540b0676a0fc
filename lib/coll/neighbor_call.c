/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a neighbourhood all-gather does in a way of its own. Nothing but a tag in its messages shows that ranks make the
 * same call, unless they do not know the longest contribution, which is then the largest of those that hello tells; and
 * they agree on the result only if the caller wants that. A rank encodes its contribution as a message to itself, and
 * all messages forward blocks. A received block belongs in each slot of its owner. Messages differ much in length, so
 * each has a buffer of its own. */
#include <inttypes.h>
#include <stdio.h>

#include "bytes.h"
#include "codec/codec.h"
#include "coll/neighbor.h"
#include "coll/note.h"
#include "coll/slice.h"
#include "coll/take.h"
#include "format.h"
#include "predict/neighbor.h"
#include "xxh64.h"

enum {
    NUMBER_MASK = 0xff, /* of a plan's number, in messages */
    MEMORY = 64 << 20   /* bytes for messages, unless slices of one tile take more */
};

/* ---- slots */

/* The elements that slot i expects, and the first of them in the receive buffer. An empty slot may be said to be
 * anywhere. */
static uint64_t slot_of(const struct call_args *a, int i, uint64_t *first)
{
    const uint64_t n = a->varied ? a->recvcounts[i] : a->count;
    *first = !n ? 0 : a->varied ? a->displs[i] : (uint64_t)i * a->count;
    return n;
}

/* Where slot i receives this slice, and how many elements. */
static uint8_t *slice_of_slot(const struct pici_request *r, const struct slice_run *run, int i, uint64_t *n)
{
    const struct call_args *a = &r->call.args;
    const uint64_t each = layout_of(r)->slice, skip = run->slice * each;
    uint64_t first, len = slot_of(a, i, &first);
    const uint64_t at = skip < len ? skip : len;
    *n = len - at < each ? len - at : each;
    return a->recv ? a->recv + (first + at) * r->call.resolved.width : NULL;
}

/* ---- before any message */

/* The elements of the receive buffer, whose slots need not follow each other. */
static const char *count_slots(struct coll_call *c, uint64_t most, char *words, size_t bytes)
{
    const struct call_args *a = &c->args;
    c->resolved.total = 0;
    if (a->plan->sources && a->varied && (!a->recvcounts || !a->displs))
        return a->recvcounts ? "displs is null" : "recvcounts is null";
    for (int i = 0; i < a->plan->sources; i++) {
        uint64_t first, end;
        const uint64_t n = slot_of(a, i, &first);
        if (!fmt_muladd(&end, 1, first, n) || end > most) {
            snprintf(words, bytes, "entry %d of the sources, %" PRIu64 " elements at %" PRIu64 ", is beyond memory", i,
                     n, first);
            return words;
        }
        c->resolved.total = end > c->resolved.total ? end : c->resolved.total;
    }
    return NULL;
}

/* Also the longest contribution, as far as it is known. */
static const char *count(struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    const struct call_args *a = &c->args;
    struct call_resolved *to = &c->resolved;
    const uint64_t most = SIZE_MAX / 2 / to->width, allowed = a->plan->most_bytes;
    (void)comm;
    c->opts.scratch = NULL;
    to->said = (struct call_said){.kind = SAID_NEIGHBOR, .plan = a->plan->number, .op = a->plan->number & NUMBER_MASK};
    to->hello = !a->varied || allowed ? HELLO_NONE : HELLO_LONGEST;
    to->closing = c->opts.agree;
    to->longest = a->varied ? allowed / to->width : a->count;
    if (a->count > most || a->count > COLL_LONGEST)
        snprintf(words, bytes, "a count of %" PRIu64 " is beyond memory", a->count);
    else if (to->longest > most)
        snprintf(words, bytes, "the plan's most_bytes, %" PRIu64 ", is beyond memory", allowed);
    else if (a->varied && allowed && a->count > to->longest)
        snprintf(words, bytes, "sendcount is %" PRIu64 ", and the plan's most_bytes allows %" PRIu64, a->count,
                 to->longest);
    else
        return count_slots(c, most, words, bytes);
    return words;
}

static const char *buffers_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    const struct call_args *a = &c->args;
    const size_t width = c->resolved.width;
    const char *null = pici_coll_null(c);
    (void)comm;
    for (int i = 0; i < a->plan->sources && a->count && !null; i++) {
        uint64_t first, n = slot_of(a, i, &first);
        if (n && pici_overlap(a->send, a->count * width, a->recv + first * width, n * width))
            return "the send and receive buffers overlap";
    }
    return null;
}

/* ---- the layout */

/* Seconds of a call by a route, with slices of about the size that lay_out finds. */
static double route_seconds(const struct pici_neighbor_plan *plan, enum pici_route route, double bytes, int window,
                            uint64_t slice_bytes)
{
    const double widest = plan->widest[route] ? (double)plan->widest[route] : 1;
    double slices = bytes * widest / LAYOUT_SLICES_WORTH;
    slices = slices < window ? slices : window;
    slices = slices * (double)slice_bytes < bytes * widest ? bytes * widest / (double)slice_bytes : slices;
    return pici_neighbor_seconds(plan->by[route], bytes, slices > 1 ? slices : 1, plan->bandwidth);
}

enum pici_route pici_neighbor_choose(const struct pici_neighbor_plan *plan, uint64_t bytes, int window,
                                     uint64_t slice_bytes)
{
    if (!plan->by[PICI_ROUTE_HALVING] || !plan->by[PICI_ROUTE_DIRECT])
        return plan->by[PICI_ROUTE_HALVING] ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
    static const double margin = 1.2; /* of the prediction: steps that wait for each other take longer, if anything */
    const double halving = route_seconds(plan, PICI_ROUTE_HALVING, (double)bytes, window, slice_bytes),
                 direct = route_seconds(plan, PICI_ROUTE_DIRECT, (double)bytes, window, slice_bytes);
    return halving * margin <= direct ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
}

/* Bytes of memory for a message. */
static size_t room_of(const struct coll_layout *l, const struct neighbor_message *m)
{
    const size_t blocks = m->again ? 0 : (size_t)m->count; /* else only poison is ever written there */
    return pici_layout_aligned(MSG_BYTES + blocks * l->block);
}

/* Slices as for other calls, but shorter, or fewer at a time, if the messages of a rank would take too much memory. All
 * ranks know what the one with the most needs. */
static enum pici_status lay_out(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    const struct pici_neighbor_plan *plan = c->args.plan;
    const size_t width = c->resolved.width;
    const uint64_t longest = c->resolved.longest, slice_bytes = c->opts.slice_bytes;
    const enum pici_route route = pici_neighbor_choose(plan, longest * width, c->opts.window, slice_bytes);
    const struct neighbor_route *r = plan->by[route];
    const uint64_t widest = plan->widest[route] ? plan->widest[route] : 1,
                   unit = c->opts.values.codec->unit(&c->opts.values);
    const uint64_t least = LAYOUT_SLICES_WORTH / width / widest;
    *l = (struct coll_layout){.schedule = &pici_schedule_neighbor,
                              .segments = comm->ranks,
                              .shape = pici_layout_shape(comm, c),
                              .choice = {.seconds = -1}};
    l->shape.route = r;
    l->limits = r->limits;
    l->steps = r->steps;
    l->window = c->opts.window;
    uint64_t slice = longest / (uint64_t)c->opts.window, messages = 0;
    slice = slice > least ? slice : least;
    slice = slice_bytes / width / widest < slice ? slice_bytes / width / widest : slice;
    for (l->slice = slice / unit * unit;; l->slice = l->slice / 2 / unit * unit) {
        l->slice = l->slice ? l->slice : unit;
        l->slices = longest / l->slice + (longest % l->slice != 0);
        l->window = pici_layout_window(c, l->slices);
        l->block = pici_policy_longest(c->args.dtype, l->slice < longest ? l->slice : longest);
        if (!l->block || plan->blocks[route] > UINT64_MAX / COLL_MAX_WINDOW / l->block)
            return PICI_E_ARG;
        const uint64_t one = plan->blocks[route] * l->block;
        if (l->slice * width * widest <= LAYOUT_SLICES_WORTH || l->slice == unit)
            while (l->window > 1 && one * (uint64_t)l->window > MEMORY)
                l->window--;
        if (l->slice == unit && one * (uint64_t)l->window > SIZE_MAX / 4)
            return PICI_E_ARG;
        if (l->slice == unit || one * (uint64_t)l->window <= MEMORY)
            break;
    }
    for (int i = 0; i < r->send_begin[r->steps]; i++)
        messages += room_of(l, &r->send[i]);
    for (int i = 0; i < r->receive_begin[r->steps]; i++)
        messages += room_of(l, &r->receive[i]);
    messages *= (uint64_t)l->window;
    if (messages > SIZE_MAX / 2)
        return PICI_E_ARG;
    l->messages = l->slices ? (size_t)messages : 0;
    l->buffers = l->window * (r->send_begin[r->steps] + r->receive_begin[r->steps]);
    return PICI_OK;
}

/* A number in the call's messages that differs if the ranks do not make the same call. */
static uint32_t tag_of(const struct coll_call *c)
{
    const struct coll_layout *l = &c->resolved.at;
    uint8_t p[48];
    store_le64(p, c->args.plan->hash);
    store_le64(p + 8, c->args.plan->number);
    store_le64(p + 16, c->resolved.longest);
    store_le64(p + 24, l->slice);
    store_le64(p + 32, (uint64_t)l->window << 32 | (uint64_t)c->args.dtype << 8 | (unsigned)c->args.varied << 1 |
                           (unsigned)c->opts.agree);
    store_le64(p + 40, (uint64_t)l->steps);
    return (uint32_t)pici_xxh64(p, sizeof p, 0);
}

/* A rank that is not able to begin cannot even send poison. A source of an all_gatherv cannot send more than the
 * longest contribution; messages do not show that it sends less than expected if its last slice is a whole one, or if
 * nobody sends anything. */
static enum pici_status prepare(struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    enum pici_status s = c->resolved.lost ? r->status : pici_request_room(r);
    if (s)
        return s;
    r->tag = tag_of(c);
    for (int i = 0; i < c->args.plan->sources && c->args.varied && !r->status; i++)
        if (c->args.recvcounts[i] > c->resolved.longest) {
            pici_coll_note(r->comm, "entry %d of recvcounts on rank %d is more than any rank sends", i, r->comm->rank);
            pici_coll_fail(r, PICI_E_PEER, r->comm->rank);
        }
    return PICI_OK;
}

/* A rank that relays a contribution does not know how long it is. */
static struct coll_span segment(const struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c,
                                int segment)
{
    (void)l;
    return (struct coll_span){0, segment == comm->position ? c->args.count : c->resolved.longest};
}

/* ---- buffers: one for each message of each slice in flight, as long as that message may be */

/* The first of the buffers of a step's messages, of which there are *n. */
static struct coll_buffer *buffers_of(const struct pici_request *r, int run, int step, int receives, int *n)
{
    const struct neighbor_route *route = layout_of(r)->shape.route;
    const int sends = route->send_begin[route->steps], all = sends + route->receive_begin[route->steps];
    const int *begin = receives ? route->receive_begin : route->send_begin;
    *n = begin[step + 1] - begin[step];
    return r->buffers + run * all + (receives ? sends : 0) + begin[step];
}

static void set_buffers(struct pici_request *r, uint8_t *memory)
{
    const struct coll_layout *l = layout_of(r);
    const struct neighbor_route *route = l->shape.route;
    struct coll_buffer *b = r->buffers;
    for (int run = 0; run < l->window; run++)
        for (int receives = 0; receives < 2; receives++) {
            const struct neighbor_message *m = receives ? route->receive : route->send;
            for (int i = 0; i < (receives ? route->receive_begin : route->send_begin)[route->steps]; i++, b++) {
                *b = (struct coll_buffer){.bytes = memory, .room = room_of(l, &m[i])};
                memory += b->room;
            }
        }
}

/* A buffer may still be in flight, sent on by the slice before. */
static int has_buffers(const struct pici_request *r, int run, int step, int receives)
{
    int n, free = 1;
    const struct coll_buffer *b = buffers_of(r, run, step, receives, &n);
    for (int i = 0; i < n; i++)
        free &= b[i].users == 0;
    return free;
}

static struct coll_buffer *take_buffer(struct pici_request *r, int run, int step, int receives, int message)
{
    int n;
    struct coll_buffer *b = buffers_of(r, run, step, receives, &n) + message;
    b->users = 1;
    b->flights = 0;
    return b;
}

static void free_buffer(struct pici_request *r, struct coll_buffer *b)
{
    (void)r, (void)b; /* it has no users any more: that is all */
}

/* ---- elements */

static void place_own(struct pici_request *r, const struct slice_run *run)
{
    const struct call_args *a = &r->call.args;
    const struct pici_neighbor_plan *plan = a->plan;
    const int own = r->comm->position;
    const struct coll_span s = pici_coll_slice(r->comm, &r->call, own, run->slice);
    for (int i = plan->slot_begin[own]; i < plan->slot_begin[own + 1]; i++) {
        uint64_t room;
        uint8_t *slot = slice_of_slot(r, run, plan->slots[i], &room);
        if (room != s.n) {
            pici_coll_note(r->comm, "entry %d of recvcounts on rank %d is not its own count", plan->slots[i],
                           r->comm->rank);
            pici_coll_fail(r, PICI_E_PEER, r->comm->rank);
            return;
        }
        r->engine->copy(run->lane, slot, a->send + s.first * r->call.resolved.width, s.n, a->dtype);
    }
}

/* Check the header of a block, and decode the block into all slots of its owner. A relay does not know how long the
 * contributions of an all_gatherv are, nor what is in a block. A buffer for messages that are sent on has room for
 * blocks no longer than those of an encoder. */
static enum pici_status take_part(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                  struct coll_part *p)
{
    const struct coll_call *c = &r->call;
    const struct pici_neighbor_plan *plan = c->args.plan;
    struct pici_block *b = &p->block[0];
    (void)action;
    enum pici_status s = pici_block_parse(b, r->engine->head(run->lane, p->number, p->at), p->left, NULL);
    if (!s &&
        (b->dtype != (unsigned)c->args.dtype || b->at.block_bytes > p->left ||
         b->at.block_bytes > layout_of(r)->block || (c->args.varied ? b->count > p->span.n : b->count != p->span.n)))
        s = PICI_E_CORRUPT;
    if (!s)
        p->blocks = (struct coll_blocks){
            .first = p->bytes, .len = {(size_t)b->at.block_bytes}, .format = {(enum pici_format)b->format}, .count = 1};
    for (int i = plan->slot_begin[p->segment]; i < plan->slot_begin[p->segment + 1] && !s; i++) {
        uint64_t n;
        uint8_t *slot = slice_of_slot(r, run, plan->slots[i], &n);
        if (b->count != n) {
            pici_coll_note(r->comm, "rank %d sends another count than entry %d of recvcounts on rank %d",
                           r->comm->order[p->segment], plan->slots[i], r->comm->rank);
            return PICI_E_PEER;
        }
        s = r->engine->decode(run->lane, slot, p->bytes, b, c->resolved.total);
    }
    return s;
}

const struct call_rules pici_neighbor_rules = {.name = "neighbor-all-gather",
                                               .host_only = "a neighbourhood all-gather of buffers in a GPU's memory",
                                               .mismatch = "with another count, plan, dtype or option",
                                               .traces_blocks = 1,
                                               .count = count,
                                               .buffers_wrong = buffers_wrong,
                                               .lay_out = lay_out,
                                               .prepare = prepare,
                                               .segment = segment,
                                               .set_buffers = set_buffers,
                                               .has_buffers = has_buffers,
                                               .take_buffer = take_buffer,
                                               .free_buffer = free_buffer,
                                               .place_own = place_own,
                                               .take_part = take_part};
