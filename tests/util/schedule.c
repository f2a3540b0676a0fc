/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { MOST = SCHEDULE_RANKS, CLAIMS = 1024 };

static char said[400];

__attribute__((format(printf, 1, 2))) static const char *say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    return said;
}

const enum pici_collective schedule_kinds[SCHEDULE_KINDS] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE,
                                                             PICI_BROADCAST};
const uint64_t schedule_shares[SCHEDULE_SHARES] = {SCHEDULE_SHARE, SCHEDULE_SHARE + 1};

int schedule_has(const struct schedule *s, enum pici_collective kind)
{
    return s->collectives >> kind & 1;
}

struct schedule_call schedule_call_of(enum pici_collective kind, int p, uint64_t share)
{
    return (struct schedule_call){.kind = kind, .ranks = p, .root = p / 2, .bytes = (uint64_t)p * share};
}

struct schedule_step *schedule_room(const struct schedule_limits *l, int ranks)
{
    const struct schedule_limits more = {
        .sends = l->sends + 2, .receives = l->receives + 2, .segments = l->segments + (ranks < MOST ? ranks : MOST)};
    struct schedule_step *s = test_alloc(sizeof *s + pici_schedule_step_bytes(&more));
    pici_schedule_step_init(s, &more, s + 1);
    return s;
}

/* ---- the two ends of a message */

static int same_segments(const struct schedule_message *a, const struct schedule_message *b)
{
    return a->count == b->count && memcmp(a->segments, b->segments, (size_t)a->count * sizeof *a->segments) == 0;
}

/* The only message of a list that has this peer; NULL: there is none, or there are several. */
static const struct schedule_message *only(const struct schedule_message *list, int n, int peer)
{
    const struct schedule_message *found = NULL;
    for (int i = 0; i < n; i++)
        if (list[i].peer == peer) {
            if (found)
                return NULL;
            found = &list[i];
        }
    return found;
}

/* How many segments the data has. */
static int segments_of(const struct schedule *s, int p)
{
    return s->undivided ? 1 : p;
}

static const char *check_list(const struct schedule *schedule, const struct schedule_message *list, int n, int most,
                              const struct schedule_limits *l, int p, int r)
{
    if (n < 0 || n > most)
        return say("%d messages in a step, at most %d", n, most);
    for (int i = 0; i < n; i++) {
        const struct schedule_message *m = &list[i];
        if (m->peer < 0 || m->peer >= p || m->peer == r)
            return say("a message with %d", m->peer);
        if (only(list, n, m->peer) != m)
            return say("several messages with %d in a step", m->peer);
        if (m->count < 1 || m->count > l->segments)
            return say("%d segments in a message, at most %d", m->count, l->segments);
        for (int j = 0; j < m->count; j++)
            if (m->segments[j] < 0 || m->segments[j] >= segments_of(schedule, p))
                return say("segment %d", m->segments[j]);
        for (int j = 1; j < m->count && p <= MOST; j++)
            for (int k = 0; k < j; k++)
                if (m->segments[j] == m->segments[k])
                    return say("segment %d twice in a message", m->segments[j]);
    }
    return NULL;
}

static const char *check_lists(const struct schedule *schedule, const struct schedule_step *s,
                               const struct schedule_limits *l, int p, int r)
{
    const char *bad = check_list(schedule, s->send, s->sends, l->sends, l, p, r);
    if (bad)
        return bad;
    if ((bad = check_list(schedule, s->receive, s->receives, l->receives, l, p, r)))
        return bad;
    for (int i = 0; i < s->sends; i++)
        if (s->send[i].action != SEND_ENCODE && s->send[i].action != SEND_FORWARD)
            return say("a sender's action %d", (int)s->send[i].action);
        else if (s->send[i].keep == KEEP_APART)
            return say("a message that is sent is kept apart");
    for (int i = 0; i < s->receives; i++)
        if (s->receive[i].action < RECEIVE_REDUCE || s->receive[i].action > RECEIVE_KEEP)
            return say("a receiver's action %d", (int)s->receive[i].action);
    return NULL;
}

/* What r's step says of its messages with q, and what q's says of them. */
static const char *check_pair(const struct schedule_step *mine, int r, const struct schedule_step *theirs, int q)
{
    const struct schedule_message *out = only(mine->send, mine->sends, q),
                                  *in = only(theirs->receive, theirs->receives, r);
    if (!out != !in)
        return out ? say("%d sends to %d, which does not receive", r, q)
                   : say("%d receives from %d, which does not send", q, r);
    if (out && !same_segments(out, in))
        return say("%d sends other segments than %d receives", r, q);
    return NULL;
}

const char *schedule_check_ends(const struct schedule *s, const struct schedule_call *c, int k)
{
    struct schedule_limits l;
    struct schedule_call other = *c;
    s->limits(s, c, &l);
    struct schedule_step *mine = schedule_room(&l, c->ranks), *theirs = schedule_room(&l, c->ranks);
    s->step(s, c, k, mine);
    const char *bad = check_lists(s, mine, &l, c->ranks, c->virtual_rank);
    for (int i = 0; i < mine->sends && !bad; i++) {
        other.virtual_rank = mine->send[i].peer;
        s->step(s, &other, k, theirs);
        bad = check_pair(mine, c->virtual_rank, theirs, other.virtual_rank);
    }
    for (int i = 0; i < mine->receives && !bad; i++) {
        other.virtual_rank = mine->receive[i].peer;
        s->step(s, &other, k, theirs);
        bad = check_pair(theirs, other.virtual_rank, mine, c->virtual_rank);
    }
    free(mine);
    free(theirs);
    return bad;
}

/* ---- carrying out */

enum state { OWN, SUM, GONE }; /* of a segment on a rank: no sum was begun; there is one; it was passed on */

/* A block, or a rank's sum of a segment: the ranks whose contributions are in it, a number for the order of adding, and
 * whether it is complete. */
struct content {
    uint64_t set, order;
    int complete;
};

struct holder {
    enum state state[MOST];
    struct content sum[MOST];
    int placed[MOST]; /* the result arrived */
    int kept[MOST];   /* the number of the message, or of the buffer apart, in which its block is kept; 0: none */
    int apart, blocks_apart; /* that buffer's number, and blocks copied to it so far */
    struct content block[MOST];
    uint64_t
        claim[CLAIMS]; /* of each message that was to be kept, and none of whose segments was forwarded since: these */
    int claims;
};

struct walk {
    const struct schedule *s;
    struct schedule_call call;
    struct schedule_limits limits, used;
    int exact, messages, segments;
    uint64_t all;
    uint64_t order[MOST]; /* of each segment's result, once some rank has it */
    struct schedule_step *now[MOST];
    struct holder holder[MOST];
    struct content moving[MOST][MOST][MOST]; /* from, to, place in the message */
};

/* Whether results are those of a single rank, and nothing is added. */
static int gathers(const struct walk *w)
{
    return w->call.kind == PICI_ALL_GATHER || w->call.kind == PICI_BROADCAST;
}

/* Whether a rank has the data of a segment from the beginning, where nothing is added. */
static int has_it(const struct walk *w, int r, int g)
{
    return r == (w->call.kind == PICI_BROADCAST ? w->call.root : g);
}

static int in_recv(const struct walk *w, int r, int g)
{
    return g == r || w->limits.sums_in_recv || (w->call.kind == PICI_BROADCAST && has_it(w, r, g));
}

static int is_result(const struct walk *w, const struct content *c)
{
    return c->set == w->all && c->complete;
}

/* The order of a sum whose operands have these. */
static uint64_t order_of_sum(uint64_t first, uint64_t second)
{
    uint64_t x = first * UINT64_C(0x9e3779b97f4a7c15) + (second ^ second >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    return x ^ x >> 31;
}

static void begin_walk(struct walk *w)
{
    const int p = w->call.ranks;
    w->all = UINT64_MAX >> (64 - p);
    w->segments = segments_of(w->s, p);
    for (int r = 0; r < p; r++)
        for (int g = 0; g < w->segments; g++) {
            struct holder *h = &w->holder[r];
            if (!gathers(w)) {
                h->sum[g].set = h->sum[g].order = UINT64_C(1) << r;
            } else if (has_it(w, r, g)) {
                h->sum[g] = (struct content){w->all, 1, 1};
                h->state[g] = SUM;
            } else {
                h->state[g] = GONE; /* it never was here */
            }
        }
}

/* How much of what the limits limit a rank holds now. */
static const char *check_held(struct walk *w, int r)
{
    const struct holder *h = &w->holder[r];
    int sums = 0, kept = 0;
    for (int g = 0; g < w->segments; g++) {
        int first = h->kept[g] != 0;
        for (int i = 0; i < g; i++)
            first &= h->kept[i] != h->kept[g];
        kept += first;
        sums += h->state[g] == SUM && !in_recv(w, r, g);
    }
    w->used.sums = sums > w->used.sums ? sums : w->used.sums;
    w->used.kept = kept > w->used.kept ? kept : w->used.kept;
    if (sums > w->limits.sums)
        return say("%d sums at a time, at most %d", sums, w->limits.sums);
    return kept > w->limits.kept ? say("%d messages kept at a time, at most %d", kept, w->limits.kept) : NULL;
}

/* The buffer apart for one more block: another one if that before is full, or free again. */
static int apart(struct walk *w, struct holder *h)
{
    int used = 0;
    for (int g = 0; g < w->call.ranks; g++)
        used |= h->kept[g] == h->apart;
    if (!h->apart || !used || h->blocks_apart == w->limits.segments) {
        h->apart = ++w->messages;
        h->blocks_apart = 0;
    }
    h->blocks_apart++;
    return h->apart;
}

static const char *keep(struct walk *w, int r, int g, const struct content *block, int is_apart)
{
    struct holder *h = &w->holder[r];
    if (h->kept[g])
        return say("a block of segment %d is kept already", g);
    h->kept[g] = is_apart ? apart(w, h) : w->messages;
    h->block[g] = *block;
    return NULL;
}

/* A message is to be kept for a later one. */
static void claim(struct holder *h, const struct schedule_message *m)
{
    uint64_t segments = 0;
    for (int i = 0; i < m->count; i++)
        segments |= UINT64_C(1) << m->segments[i];
    if (h->claims == CLAIMS)
        abort();
    h->claim[h->claims++] = segments;
}

/* This is that later one. */
static void forward(struct holder *h, const struct schedule_message *m)
{
    for (int i = 0; i < m->count; i++)
        for (int j = h->claims - 1; j >= 0; j--)
            if (h->claim[j] >> m->segments[i] & 1)
                h->claim[j] = h->claim[--h->claims];
}

static const char *send_block(struct walk *w, int r, const struct schedule_message *m, int g, int reduces,
                              struct content *out)
{
    struct holder *h = &w->holder[r];
    if (m->action == SEND_FORWARD) {
        if (!h->kept[g])
            return say("forwards segment %d, which is not kept", g);
        *out = h->block[g];
        if (!m->keep)
            h->kept[g] = 0;
        return NULL;
    }
    if (h->state[g] == GONE)
        return say("encodes segment %d, which it does not have any more", g);
    if (h->placed[g] && h->state[g] == OWN)
        return say("encodes its contribution to segment %d, where the result may be", g);
    *out = h->sum[g];
    if (m->keep)
        return keep(w, r, g, out, 0);
    if (w->now[r]->phase == PHASE_REDUCE && (reduces ? !w->limits.sums_in_recv : !in_recv(w, r, g)))
        h->state[g] = GONE;
    return NULL;
}

static const char *send_message(struct walk *w, int r, const struct schedule_message *m)
{
    const struct schedule_step *theirs = w->now[m->peer];
    const enum schedule_action take = only(theirs->receive, theirs->receives, r)->action;
    const int reduces = take == RECEIVE_REDUCE || take == RECEIVE_REDUCE_REVERSED;
    int most = 0;
    w->messages++;
    if (m->action == SEND_FORWARD)
        forward(&w->holder[r], m);
    if (m->keep)
        claim(&w->holder[r], m);
    for (int i = 0; i < m->count; i++) {
        struct content *out = &w->moving[r][m->peer][i];
        const char *bad = send_block(w, r, m, m->segments[i], reduces, out);
        if (bad)
            return bad;
        const int contributions = __builtin_popcountll(out->set);
        most = contributions > most ? contributions : most;
    }
    if (w->now[r]->phase == PHASE_REDUCE && (most > m->contributions || m->contributions > w->call.ranks))
        return say("sums of %d contributions, it says %d", most, m->contributions);
    if (w->now[r]->phase == PHASE_REDUCE && w->exact && most != m->contributions)
        return say("sums of %d contributions, it says that there are %d", most, m->contributions);
    return check_held(w, r);
}

/* reversed: the kept block of this step is added to what comes in. */
static const char *reduce_block(struct walk *w, int r, int g, const struct content *in, int reversed)
{
    struct holder *h = &w->holder[r];
    if (gathers(w) || h->state[g] == GONE)
        return say("adds to segment %d, of which it has nothing", g);
    if (in->complete || h->sum[g].complete || h->placed[g])
        return say("adds to segment %d what is complete, or adds to that", g);
    if (h->sum[g].set & in->set)
        return say("adds a contribution to segment %d twice", g);
    if (reversed && (!h->kept[g] || h->block[g].set != h->sum[g].set || h->block[g].order != h->sum[g].order))
        return say("adds its own sum of segment %d, which it has not sent", g);
    h->sum[g].order = reversed ? order_of_sum(in->order, h->sum[g].order) : order_of_sum(h->sum[g].order, in->order);
    h->sum[g].set |= in->set;
    h->state[g] = SUM;
    if (reversed)
        h->kept[g] = 0;
    return NULL;
}

static const char *place_block(struct walk *w, int r, int g, const struct content *in)
{
    struct holder *h = &w->holder[r];
    if (!is_result(w, in))
        return say("places segment %d, which is no result yet", g);
    if (w->call.kind == PICI_REDUCE_SCATTER && g != r)
        return say("places segment %d, which is another's", g);
    if (h->placed[g] || (h->state[g] == SUM && in_recv(w, r, g) && is_result(w, &h->sum[g])))
        return say("receives the result of segment %d twice", g);
    h->placed[g] = 1;
    if (h->state[g] == SUM && in_recv(w, r, g))
        h->sum[g] = *in; /* that is where it was */
    return NULL;
}

static const char *receive_message(struct walk *w, int r, const struct schedule_message *m)
{
    const int reversed = m->action == RECEIVE_REDUCE_REVERSED;
    w->messages++;
    if (reversed)
        forward(&w->holder[r], m); /* what was kept for this is used */
    if (m->action == RECEIVE_KEEP && !m->keep)
        return say("receives a message for nothing");
    if (m->keep)
        claim(&w->holder[r], m);
    for (int i = 0; i < m->count; i++) {
        const struct content *in = &w->moving[m->peer][r][i];
        const int g = m->segments[i];
        if (reversed && (m->contributions == 1) != (__builtin_popcountll(in->set) == 1))
            return say("a sum of %d contributions, it says %d", __builtin_popcountll(in->set), m->contributions);
        const char *bad = reversed || m->action == RECEIVE_REDUCE ? reduce_block(w, r, g, in, reversed)
                          : m->action == RECEIVE_PLACE            ? place_block(w, r, g, in)
                                                                  : NULL;
        if (bad || (m->keep && (bad = keep(w, r, g, in, m->keep == KEEP_APART))))
            return bad;
    }
    return check_held(w, r);
}

/* Which sums are said to be complete: those, and no others. */
static const char *check_complete(struct walk *w, int r)
{
    struct holder *h = &w->holder[r];
    const enum schedule_complete what = w->now[r]->complete;
    if (gathers(w))
        return what == COMPLETE_NONE ? NULL : say("completes a sum where there are none");
    if (what == COMPLETE_OWN && w->s->undivided)
        return say("completes its own segment, of which there is none");
    for (int g = 0; g < w->segments; g++) {
        const int told = what == COMPLETE_ALL || (what == COMPLETE_OWN && g == r);
        const int is = h->state[g] == SUM && h->sum[g].set == w->all && !h->sum[g].complete;
        if (told != is)
            return told ? say("completes the sum of segment %d, which is not", g)
                        : say("does not say that the sum of segment %d is complete", g);
        h->sum[g].complete |= told;
        if (told && w->order[g] && w->order[g] != h->sum[g].order)
            return say("computes segment %d in another order than another rank", g);
        w->order[g] = told ? h->sum[g].order : w->order[g];
    }
    return NULL;
}

static const char *check_result(const struct walk *w, int r)
{
    const struct holder *h = &w->holder[r];
    if (h->claims)
        return say("keeps a message and does not forward it");
    for (int g = 0; g < w->segments; g++)
        if ((w->call.kind != PICI_REDUCE_SCATTER || g == r) && !h->placed[g] &&
            !(h->state[g] == SUM && in_recv(w, r, g) && is_result(w, &h->sum[g])))
            return say("has no result of segment %d", g);
    return NULL;
}

/* Phase, lists, both ends of all messages. */
static const char *check_step(struct walk *w, int r, enum schedule_phase before)
{
    const int p = w->call.ranks;
    const struct schedule_step *s = w->now[r];
    const enum schedule_phase only_one = gathers(w) ? PHASE_GATHER : PHASE_REDUCE;
    if (s->phase != w->now[0]->phase || s->phase < before || s->phase > PHASE_GATHER ||
        (w->call.kind != PICI_ALL_REDUCE && s->phase != only_one))
        return say("phase %d", (int)s->phase);
    if (pici_schedule_paired(w->s, p) && (s->sends != 1 || s->receives != 1))
        return say("it says that it is paired");
    for (int q = 0; q < p; q++) {
        const char *bad = q == r ? NULL : check_pair(s, r, w->now[q], q);
        if (bad)
            return bad;
    }
    return NULL;
}

static void note_used(struct schedule_limits *used, const struct schedule_step *s)
{
    used->sends = s->sends > used->sends ? s->sends : used->sends;
    used->receives = s->receives > used->receives ? s->receives : used->receives;
    for (int i = 0; i < s->sends; i++)
        used->segments = s->send[i].count > used->segments ? s->send[i].count : used->segments;
}

/* One step of all ranks. *r: which rank was looked at last. */
static const char *walk_step(struct walk *w, int k, int *r)
{
    const int p = w->call.ranks;
    const enum schedule_phase before = k ? w->now[0]->phase : PHASE_REDUCE;
    const char *bad = NULL;
    for (*r = 0; *r < p && !bad; ++*r) {
        w->call.virtual_rank = *r;
        w->s->step(w->s, &w->call, k, w->now[*r]);
        bad = check_lists(w->s, w->now[*r], &w->limits, p, *r);
        if (bad)
            return bad;
        note_used(&w->used, w->now[*r]);
    }
    for (*r = 0; *r < p; ++*r)
        if ((bad = check_step(w, *r, before)))
            return bad;
    for (*r = 0; *r < p; ++*r)
        for (int i = 0; i < w->now[*r]->sends; i++)
            if ((bad = send_message(w, *r, &w->now[*r]->send[i])))
                return bad;
    for (*r = 0; *r < p; ++*r) {
        for (int i = 0; i < w->now[*r]->receives; i++)
            if ((bad = receive_message(w, *r, &w->now[*r]->receive[i])))
                return bad;
        if ((bad = check_complete(w, *r)))
            return bad;
    }
    return NULL;
}

/* What does not depend on the position is the same on all. */
static const char *check_shape(const struct schedule *s, const struct schedule_call *c, int steps,
                               const struct schedule_limits *l)
{
    for (int r = 0; r < c->ranks; r++) {
        struct schedule_call at = *c;
        struct schedule_limits other;
        at.virtual_rank = r;
        memset(&other, 0, sizeof other);
        s->limits(s, &at, &other);
        if (s->steps(s, &at) != steps || memcmp(&other, l, sizeof other) != 0)
            return say("rank %d has other limits, or another number of steps", r);
    }
    static const struct schedule_limits none;
    return !steps && memcmp(l, &none, sizeof none) != 0 ? say("limits without steps") : NULL;
}

const char *schedule_check(const struct schedule *s, const struct schedule_call *c, int exact,
                           struct schedule_limits *used)
{
    if (c->ranks > MOST)
        abort();
    /* no more of its table than these ranks need: a whole one has megabytes */
    struct walk *w = calloc(1, offsetof(struct walk, moving) + (size_t)c->ranks * sizeof w->moving[0]);
    char where[sizeof said];
    int r = 0, k = 0;
    if (!w)
        abort();
    w->s = s;
    w->call = *c;
    w->call.virtual_rank = 0;
    w->exact = exact;
    s->limits(s, &w->call, &w->limits);
    const int steps = s->steps(s, &w->call);
    const char *bad = check_shape(s, c, steps, &w->limits);
    begin_walk(w);
    for (int i = 0; i < c->ranks; i++)
        w->now[i] = schedule_room(&w->limits, c->ranks);
    for (; k < steps && !bad; k++)
        bad = walk_step(w, k, &r);
    for (int i = 0; i < c->ranks && !bad && c->ranks > 1; i++)
        bad = check_result(w, r = i);
    if (bad) {
        snprintf(where, sizeof where, "%.40s, collective %d, %d ranks, %llu bytes, step %d, rank %d: %.200s", s->name,
                 (int)c->kind, c->ranks, (unsigned long long)c->bytes, k - 1, r, bad);
        bad = strcpy(said, where);
    }
    w->used.sums_in_recv = w->limits.sums_in_recv;
    if (used)
        *used = w->used;
    for (int i = 0; i < c->ranks; i++)
        free(w->now[i]);
    free(w);
    return bad;
}

int schedule_is_paired(const struct schedule *s, const struct schedule_call *c)
{
    struct schedule_call at = *c;
    struct schedule_limits l;
    int paired = 1;
    s->limits(s, c, &l);
    struct schedule_step *now = schedule_room(&l, c->ranks);
    for (int k = 0; k < s->steps(s, c); k++)
        for (at.virtual_rank = 0; at.virtual_rank < c->ranks; at.virtual_rank++) {
            s->step(s, &at, k, now);
            paired &= now->sends == 1 && now->receives == 1;
        }
    free(now);
    return paired;
}
