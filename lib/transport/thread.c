/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads. Each rank has a mailbox with a queue for each peer: the messages that the peer has
 * sent, in order. A small message is copied into the queue, so its sender need not wait for a slow receiver. Of a large
 * one the queue has the address: the receiver copies from the sender's buffer to its own, without holding a lock, so
 * all ranks copy at the same time.
 *
 * A rank's lock guards its mailbox and the ends of its sends. Only the rank's own thread uses the rest. No thread holds
 * two locks. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/nap.h"
#include "transport/pool.h"
#include "transport/thread.h"

enum { SMALL = 2048, SPARE = 16 }; /* a message of at most SMALL bytes is copied when it is sent */

enum { MAX_RANKS = 1 << 20 }; /* as pici_comm_transport has it */

#define NO_FLIP UINT64_MAX

struct message {
    struct message *next;
    const struct pici_mover *mover; /* NULL: the data is in host memory */
    struct request *sender;         /* owns the data and waits for the end; NULL: small, and the receiver's then */
    const uint8_t *data;
    size_t bytes;
    uint64_t flip; /* the fault: the bit that changes, or NO_FLIP */
    int64_t due;   /* the fault: the receiver does not see the message before this time; 0: no fault */
};

struct request {
    struct pool_item item;
    struct rank *owner;
    struct request *next; /* in the list of those posted, or ready */
    int sends, done;      /* of a send, the owner's lock guards done and status */
    enum pici_status status;
    size_t bytes;            /* sent, or received */
    struct message *arrived; /* this and the next three: of a receive */
    uint8_t *into;
    size_t cap;
    int from;
    struct message message; /* of a send of a large message */
};

struct rank {
    struct group *group;
    int number;
    struct pool requests;
    struct request *posted;  /* receives without a message, oldest first */
    unsigned long long seen; /* events before the last wait ended */
    uint64_t *sent;          /* [ranks] messages, for faults */
    struct pici_mover mover; /* owns is NULL: all memory is the host's */
    int stuck;               /* a mover gave up a copy that may still go on in this rank's memory */
    struct message *spare;   /* small messages that this rank has received, for those that it sends; at most SPARE */
    int spares;
    int silent; /* stalled by a fault */
    int gave_up;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_ullong events;  /* counts what may end a request of this rank; each signals `changed` */
    enum pici_status left; /* not PICI_OK: this rank takes no more messages, and why */
    struct link {
        struct message *first, *last;
        enum pici_status ended; /* not PICI_OK: no message follows, and why */
    } * from;                   /* [ranks] */
};

struct group {
    int ranks;
    int cores; /* each rank has one */
    atomic_int open;
    int faulty;
    struct pici_thread_faults faults;
    struct rank rank[];
};

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Leave the core's units to another thread on it for a moment. */
static inline void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

/* Report an event to a rank that may wait for it. Its lock is held. */
static void wake(struct rank *r)
{
    r->events++;
    pthread_cond_signal(&r->changed);
}

/* ---- Faults ---- */

enum chance { DROP, DELAY, TRUNCATE, FLIP, STALL, REFUSE, HOW_LATE, HOW_SHORT, WHICH_BIT };

/* 64 pseudo-random bits for a message: SplitMix64's finalizer over the seed, the link, the message and the fault. */
static uint64_t draw(const struct rank *me, int to, uint64_t number, enum chance what)
{
    const uint64_t parts[] = {me->group->faults.seed, (uint64_t)me->number, (uint64_t)to, number, what};
    uint64_t x = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        x = (x ^ parts[i]) + UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
    }
    return x;
}

static int happens(const struct rank *me, int to, uint64_t number, enum chance what, double probability)
{
    return (double)(draw(me, to, number, what) >> 11) * 0x1p-53 < probability;
}

/* Apply faults to the next message to `to`: change it, or set *lost. PICI_E_NOMEM: it is refused. */
static enum pici_status misfortune(struct rank *me, int to, struct message *m, int *lost)
{
    const struct pici_thread_faults *f = &me->group->faults;
    const uint64_t number = me->sent[to]++;
    if (happens(me, to, number, REFUSE, f->refuse))
        return PICI_E_NOMEM;
    me->silent |= happens(me, to, number, STALL, f->stall);
    *lost = me->silent || happens(me, to, number, DROP, f->drop);
    if (m->bytes && happens(me, to, number, TRUNCATE, f->truncate))
        m->bytes = (size_t)(draw(me, to, number, HOW_SHORT) % m->bytes);
    if (m->bytes && happens(me, to, number, FLIP, f->flip))
        m->flip = draw(me, to, number, WHICH_BIT) % (8 * (uint64_t)m->bytes);
    if (f->delay_ms > 0 && happens(me, to, number, DELAY, f->delay))
        m->due = now() + (int64_t)(draw(me, to, number, HOW_LATE) % ((uint64_t)f->delay_ms * 1000000));
    return PICI_OK;
}

/* ---- Messages and requests ---- */

static struct request *request_new(struct rank *me)
{
    struct request *q = pool_take(&me->requests, sizeof *q);
    if (q)
        q->owner = me;
    return q;
}

static void request_end(struct request *q)
{
    pool_give(&q->owner->requests, &q->item);
}

/* The rank's mover if the memory is of the mover's kind, else NULL. */
static const struct pici_mover *mover_of(const struct rank *r, const void *p)
{
    return r->mover.owns && r->mover.owns(r->mover.self, p) ? &r->mover : NULL;
}

/* Memory of a small message: of one that was received, if there is any. */
static struct message *small_message(struct rank *me)
{
    struct message *m = me->spare;
    if (!m)
        return malloc(sizeof *m + SMALL);
    me->spare = m->next;
    me->spares--;
    return m;
}

/* A small message was received. */
static void spare_message(struct rank *me, struct message *m)
{
    if (me->spares == SPARE) {
        free(m);
        return;
    }
    m->next = me->spare;
    me->spare = m;
    me->spares++;
}

/* The message of a send: the request's own if it is large or not in host memory, else a copy. NULL: no memory. */
static struct message *message_new(struct request *q, const void *data, size_t bytes)
{
    struct message *m = &q->message;
    const struct pici_mover *mover = mover_of(q->owner, data);
    const int small = bytes <= SMALL && !mover;
    if (small) {
        m = small_message(q->owner);
        if (!m)
            return NULL;
        if (bytes)
            memcpy(m + 1, data, bytes);
        data = m + 1;
    }
    *m = (struct message){.mover = mover, .sender = small ? NULL : q, .data = data, .bytes = bytes, .flip = NO_FLIP};
    q->done = small;
    return m;
}

/* A message was received, or never will be: free it, or end its sender's request. */
static void message_end(struct message *m, enum pici_status status)
{
    struct request *q = m->sender;
    if (!q) {
        free(m);
        return;
    }
    pthread_mutex_lock(&q->owner->lock);
    q->status = status;
    q->done = 1;
    wake(q->owner);
    pthread_mutex_unlock(&q->owner->lock);
}

static void stick(struct rank *r)
{
    pthread_mutex_lock(&r->lock);
    r->stuck = 1;
    pthread_mutex_unlock(&r->lock);
}

/* A mover gave up the copy of a message, which may go on: neither side may free its buffer. */
static enum pici_status give_up_copy(struct rank *me, const struct message *m)
{
    stick(me);
    if (m->sender)
        stick(m->sender->owner);
    return PICI_E_TRANSPORT;
}

/* Copy the message that arrived for a receive to the receive's buffer. */
static void take(struct request *q)
{
    const struct message *m = q->arrived;
    const struct pici_mover *into = mover_of(q->owner, q->into), *mover = m->mover ? m->mover : into;
    if (m->bytes > q->cap)
        q->status = PICI_E_CORRUPT;
    else {
        if (mover && m->bytes && !mover->move(mover->self, q->into, m->data, m->bytes))
            q->status = give_up_copy(q->owner, m);
        else if (!mover && m->bytes)
            memcpy(q->into, m->data, m->bytes);
        if (m->flip != NO_FLIP && !into)
            q->into[m->flip / 8] ^= (uint8_t)(1 << m->flip % 8);
        q->bytes = m->bytes;
    }
    if (m->sender)
        message_end(q->arrived, q->status == PICI_E_TRANSPORT ? q->status : PICI_OK);
    else if (q->status != PICI_E_TRANSPORT)
        spare_message(q->owner, q->arrived);
}

/* End posted receives whose messages have arrived. */
static void progress(struct rank *me)
{
    struct request *ready = NULL, **ready_end = &ready, *q;
    if (!me->posted)
        return;
    const int64_t time = me->group->faulty ? now() : 0; /* one time for all receives keeps the order */
    pthread_mutex_lock(&me->lock);
    for (struct request **at = &me->posted; (q = *at);) {
        struct link *l = &me->from[q->from];
        struct message *m = l->first;
        if (m ? m->due > time : !l->ended) {
            at = &q->next;
            continue;
        }
        q->arrived = m;
        if (m)
            l->first = m->next;
        else
            q->status = l->ended;
        *at = q->next;
        *ready_end = q;
        ready_end = &q->next;
    }
    pthread_mutex_unlock(&me->lock);
    *ready_end = NULL;
    for (q = ready; q; q = q->next) {
        if (q->arrived)
            take(q);
        q->done = 1;
    }
}

/* ---- What a communicator calls ---- */

static enum pici_status thread_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct rank *me = context, *peer = &me->group->rank[to];
    struct request *q = request_new(me);
    struct message *m = q ? message_new(q, data, bytes) : NULL;
    enum pici_status s = m ? PICI_OK : PICI_E_NOMEM;
    int lost = 0;
    if (!s && me->group->faulty)
        s = misfortune(me, to, m, &lost);
    if (!s && !lost) {
        pthread_mutex_lock(&peer->lock);
        s = peer->left;
        if (!s) {
            struct link *l = &peer->from[me->number];
            if (l->first)
                l->last->next = m;
            else
                l->first = m;
            l->last = m;
            m = NULL;
            wake(peer);
        }
        pthread_mutex_unlock(&peer->lock);
    }
    if (m)
        message_end(m, PICI_OK); /* not sent; or lost, which the sender does not learn */
    if (s) {
        if (q)
            request_end(q);
        return s;
    }
    q->sends = 1;
    q->bytes = bytes;
    *request = q;
    return PICI_OK;
}

static enum pici_status thread_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct rank *me = context;
    struct request *q = request_new(me), **at = &me->posted;
    if (!q)
        return PICI_E_NOMEM;
    q->from = from;
    q->into = data;
    q->cap = cap;
    while (*at)
        at = &(*at)->next;
    *at = q;
    *request = q;
    return PICI_OK;
}

static enum pici_status thread_test(void *context, void *request, int *done, size_t *bytes)
{
    struct rank *me = context;
    struct request *q = request;
    progress(me);
    if (q->sends)
        pthread_mutex_lock(&me->lock);
    const enum pici_status s = q->status;
    *done = q->done;
    if (q->sends)
        pthread_mutex_unlock(&me->lock);
    if (!*done)
        return PICI_OK;
    if (bytes)
        *bytes = q->bytes;
    request_end(q);
    return s;
}

/* A test may or may not have seen the events since the last wait ended, so sleep only if there were none. A short
 * message mostly comes before the system call that sleeps would have begun. */
static void thread_wait(void *context, int timeout_ms)
{
    struct rank *me = context;
    for (int i = 0; i < SPINS && me->group->cores; i++) {
        if (atomic_load_explicit(&me->events, memory_order_relaxed) != me->seen)
            break;
        relax();
    }
    int64_t until = now() + (int64_t)timeout_ms * 1000000;
    pthread_mutex_lock(&me->lock);
    for (const struct request *q = me->posted; q; q = q->next) {
        const struct message *m = me->from[q->from].first;
        if (m && m->due && m->due < until)
            until = m->due;
    }
    const struct timespec deadline = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    while (me->events == me->seen && pthread_cond_timedwait(&me->changed, &me->lock, &deadline) == 0)
        ;
    me->seen = me->events;
    pthread_mutex_unlock(&me->lock);
}

/* Remove this rank's messages from a peer's mailbox, from the first large one on: the small ones before it do not need
 * this rank's memory. Returns the list of those removed. This rank sends no more to the peer. */
static struct message *withdraw(const struct rank *me, struct rank *peer, enum pici_status why)
{
    struct link *l = &peer->from[me->number];
    struct message **at = &l->first, *cut, *last = NULL;
    pthread_mutex_lock(&peer->lock);
    while (*at && !(*at)->sender) {
        last = *at;
        at = &last->next;
    }
    cut = *at;
    *at = NULL;
    l->last = last;
    if (!me->silent) {
        l->ended = why;
        wake(peer);
    }
    pthread_mutex_unlock(&peer->lock);
    return cut;
}

static void end_all(struct message *m, enum pici_status status)
{
    for (struct message *next; m; m = next) {
        next = m->next;
        message_end(m, status);
    }
}

/* No other rank uses a buffer of this rank afterwards, unless a copy was given up. The peers of a stalled rank do not
 * learn that it gave up. */
static int thread_abandon(void *context, enum pici_status why)
{
    struct rank *me = context;
    const int ranks = me->group->ranks;
    if (me->gave_up)
        return me->stuck;
    if (!why)
        why = PICI_E_PEER;
    me->gave_up = 1;
    for (int r = 0; r < ranks; r++)
        if (r != me->number)
            end_all(withdraw(me, &me->group->rank[r], why), why);

    /* The sends that have not ended are being copied by peers at this moment. */
    pthread_mutex_lock(&me->lock);
    for (struct pool_item *item = me->requests.all; item; item = item->older) {
        const struct request *q = (const struct request *)item;
        while (q->sends && !q->done)
            pthread_cond_wait(&me->changed, &me->lock);
    }
    if (!me->silent)
        me->left = why;
    pthread_mutex_unlock(&me->lock);

    /* No peer adds a message any more. */
    for (int r = 0; r < ranks && !me->silent; r++) {
        pthread_mutex_lock(&me->lock);
        struct message *m = me->from[r].first;
        me->from[r].first = NULL;
        pthread_mutex_unlock(&me->lock);
        end_all(m, why);
    }
    return me->stuck; /* no peer takes a message of this rank any more, so none sets it */
}

static void thread_mover(void *context, const struct pici_mover *mover)
{
    struct rank *me = context;
    me->mover = *mover;
}

static void group_free(struct group *g, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        struct rank *r = &g->rank[i];
        for (int from = 0; from < g->ranks; from++)
            end_all(r->from[from].first, PICI_E_PEER);
        pthread_cond_destroy(&r->changed);
        pthread_mutex_destroy(&r->lock);
        for (struct message *m = r->spare, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        free(r->from);
        free(r->sent);
    }
    free(g);
}

static void thread_close(void *context)
{
    struct rank *me = context;
    thread_abandon(me, PICI_E_PEER);
    pool_free(&me->requests);
    if (atomic_fetch_sub(&me->group->open, 1) == 1)
        group_free(me->group, me->group->ranks);
}

/* ---- Making a group ---- */

static int rank_init(struct rank *r, struct group *g, int number)
{
    pthread_condattr_t attr;
    int failed = 1;
    r->group = g;
    r->number = number;
    r->from = calloc((size_t)g->ranks, sizeof *r->from);
    r->sent = calloc((size_t)g->ranks, sizeof *r->sent);
    if (r->from && r->sent && pthread_condattr_init(&attr) == 0) {
        failed = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) || pthread_cond_init(&r->changed, &attr);
        pthread_condattr_destroy(&attr);
        if (!failed && pthread_mutex_init(&r->lock, NULL)) {
            pthread_cond_destroy(&r->changed);
            failed = 1;
        }
    }
    if (failed) {
        free(r->from);
        free(r->sent);
    }
    return failed;
}

enum pici_status pici_transport_threads(struct pici_transport *transports, int ranks)
{
    if (!transports || ranks < 1)
        return PICI_E_ARG;
    if ((size_t)ranks > (SIZE_MAX - sizeof(struct group)) / sizeof(struct rank))
        return PICI_E_NOMEM;
    struct group *g = calloc(1, sizeof *g + (size_t)ranks * sizeof *g->rank);
    if (!g)
        return PICI_E_NOMEM;
    g->ranks = ranks;
    g->cores = pici_transport_cores(ranks);
    atomic_init(&g->open, ranks);
    for (int i = 0; i < ranks; i++)
        if (rank_init(&g->rank[i], g, i)) {
            group_free(g, i);
            return PICI_E_NOMEM;
        }
    for (int i = 0; i < ranks; i++)
        transports[i] = (struct pici_transport){
            .size = sizeof *transports,
            .context = &g->rank[i],
            .rank = i,
            .ranks = ranks,
            .send = thread_send,
            .recv = thread_recv,
            .test = thread_test,
            .wait = thread_wait,
            .abandon = thread_abandon,
            .close = thread_close,
            .mover = thread_mover,
        };
    return PICI_OK;
}

void pici_transport_threads_faults(struct pici_transport *t, const struct pici_thread_faults *faults)
{
    struct rank *r = t->context;
    r->group->faults = *faults;
    r->group->faulty = 1;
}

/* ---- Communicators ---- */

enum pici_status pici_comm_threads(struct pici_comm **comms, int ranks)
{
    char why[256];
    if (!comms || ranks < 1 || ranks > MAX_RANKS) {
        snprintf(why, sizeof why, "%d ranks", ranks);
        pici_comm_failed(comms ? why : "no place for the communicators");
        return PICI_E_ARG;
    }
    for (int i = 0; i < ranks; i++)
        comms[i] = NULL;
    struct pici_transport *t = calloc((size_t)ranks, sizeof *t);
    enum pici_status s = t ? pici_transport_threads(t, ranks) : PICI_E_NOMEM;
    if (s) {
        snprintf(why, sizeof why, "no memory for %d ranks", ranks);
        pici_comm_failed(why);
        free(t);
        return s;
    }
    int i = 0;
    for (; i < ranks && s == PICI_OK; i++)
        s = pici_comm_transport(&comms[i], &t[i]); /* closes the transport if it fails */
    if (s) {
        snprintf(why, sizeof why, "%s", pici_comm_error(NULL));
        for (; i < ranks; i++)
            t[i].close(t[i].context);
        for (i = 0; i < ranks; i++) {
            pici_comm_free(comms[i]);
            comms[i] = NULL;
        }
        pici_comm_failed(why);
    }
    free(t);
    return s;
}
