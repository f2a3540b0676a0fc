/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads. Each rank has a mailbox with a queue for each peer, which holds the peer's messages in
 * order. A sender copies a small message into the queue, so it need not wait for a slow receiver. For a large one, the
 * queue holds the address. The receiver copies from the sender's buffer to its own without holding a lock, so all ranks
 * copy in parallel.
 *
 * A rank's lock guards its mailbox and the ends of its sends. Only the rank's own thread uses its other members. No
 * thread holds two locks. */
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

enum { MAX_RANKS = 1 << 20 }; /* the limit of pici_comm_transport */

#define NO_FLIP UINT64_MAX

struct message {
    struct message *next;
    const struct pici_mover *mover; /* NULL: the data is in host memory */
    struct request *sender; /* owns the data and waits for the end; NULL: a small message, which the receiver owns */
    const uint8_t *data;
    size_t bytes;
    uint64_t flip; /* fault: the bit that changes, or NO_FLIP */
    int64_t due;   /* fault: the receiver does not see the message before this time; 0: none */
};

struct request {
    struct pool_item item;
    struct rank *owner;
    struct request *next; /* in the list of posted or ready requests */
    int sends, done;      /* of a send, the owner's lock guards done and status */
    enum pici_status status;
    size_t bytes;            /* sent, or received */
    struct message *arrived; /* of a receive, as the next three */
    uint8_t *into;
    size_t capacity;
    int from;
    struct message message; /* of a large send */
};

struct rank {
    struct group *group;
    int number;
    struct pool requests;
    struct request *posted;         /* receives without a message, oldest first */
    unsigned long long events_seen; /* events before the last wait ended */
    uint64_t *sent;                 /* [ranks] messages, for faults */
    struct pici_mover mover;        /* owns is NULL: all memory is host memory */
    int stuck;                      /* a mover gave up a copy that may still go on in this rank's memory */
    struct message *spare;          /* at most SPARE received small messages, to use again for sending */
    int spares;
    int silent; /* stalled by a fault */
    int gave_up;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_ullong events;         /* counts events that may end a request of this rank; each signals `changed` */
    enum pici_status left_status; /* not PICI_OK: why this rank takes no more messages */
    struct link {
        struct message *first, *last;
        enum pici_status ended; /* not PICI_OK: why no message follows */
    } * links;                  /* [ranks] */
};

struct group {
    int ranks;
    int cores; /* each rank has a core */
    atomic_int open;
    int faulty;
    struct pici_thread_faults faults;
    struct rank rank[];
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Report an event to a rank that may wait for it. Its lock is held. */
static void wake(struct rank *rank)
{
    rank->events++;
    pthread_cond_signal(&rank->changed);
}

/* ---- Faults ---- */

enum chance { DROP, DELAY, TRUNCATE, FLIP, STALL, REFUSE, HOW_LATE, HOW_SHORT, WHICH_BIT };

/* 64 pseudo-random bits for a message: SplitMix64's finalizer over the seed, the link, the message and the fault. */
static uint64_t draw(const struct rank *me, int receiver, uint64_t number, enum chance what)
{
    const uint64_t parts[] = {me->group->faults.seed, (uint64_t)me->number, (uint64_t)receiver, number, what};
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bits = (bits ^ parts[i]) + UINT64_C(0x9e3779b97f4a7c15);
        bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
        bits ^= bits >> 31;
    }
    return bits;
}

static int happens(const struct rank *me, int receiver, uint64_t number, enum chance what, double probability)
{
    return (double)(draw(me, receiver, number, what) >> 11) * 0x1p-53 < probability;
}

/* Apply faults to the next message to the receiver: change the message, or set *lost. PICI_E_NOMEM: refuse it. */
static enum pici_status misfortune(struct rank *me, int receiver, struct message *message, int *lost)
{
    const struct pici_thread_faults *faults = &me->group->faults;
    const uint64_t number = me->sent[receiver]++;
    if (happens(me, receiver, number, REFUSE, faults->refuse))
        return PICI_E_NOMEM;
    me->silent |= happens(me, receiver, number, STALL, faults->stall);
    *lost = me->silent || happens(me, receiver, number, DROP, faults->drop);
    if (message->bytes && happens(me, receiver, number, TRUNCATE, faults->truncate))
        message->bytes = (size_t)(draw(me, receiver, number, HOW_SHORT) % message->bytes);
    if (message->bytes && happens(me, receiver, number, FLIP, faults->flip))
        message->flip = draw(me, receiver, number, WHICH_BIT) % (8 * (uint64_t)message->bytes);
    if (faults->delay_ms > 0 && happens(me, receiver, number, DELAY, faults->delay))
        message->due = now() + (int64_t)(draw(me, receiver, number, HOW_LATE) % ((uint64_t)faults->delay_ms * 1000000));
    return PICI_OK;
}

/* ---- Messages and requests ---- */

static struct request *request_new(struct rank *me)
{
    struct request *request = pool_take(&me->requests, sizeof *request);
    if (request)
        request->owner = me;
    return request;
}

static void request_end(struct request *request)
{
    pool_give(&request->owner->requests, &request->item);
}

/* The rank's mover if the memory is of the mover's kind, else NULL. */
static const struct pici_mover *mover_of(const struct rank *rank, const void *address)
{
    return rank->mover.owns && rank->mover.owns(rank->mover.self, address) ? &rank->mover : NULL;
}

/* Memory for a small message: a spare one if there is any. */
static struct message *small_message(struct rank *me)
{
    struct message *message = me->spare;
    if (!message)
        return malloc(sizeof *message + SMALL);
    me->spare = message->next;
    me->spares--;
    return message;
}

/* Keep a received small message for reuse. */
static void spare_message(struct rank *me, struct message *message)
{
    if (me->spares == SPARE) {
        free(message);
        return;
    }
    message->next = me->spare;
    me->spare = message;
    me->spares++;
}

/* The message of a send: the request's own member if it is large or not in host memory, else a copy. NULL: no
 * memory. */
static struct message *message_new(struct request *request, const void *data, size_t bytes)
{
    struct message *message = &request->message;
    const struct pici_mover *mover = mover_of(request->owner, data);
    const int small = bytes <= SMALL && !mover;
    if (small) {
        message = small_message(request->owner);
        if (!message)
            return NULL;
        if (bytes)
            memcpy(message + 1, data, bytes);
        data = message + 1;
    }
    *message = (struct message){
        .mover = mover, .sender = small ? NULL : request, .data = data, .bytes = bytes, .flip = NO_FLIP};
    request->done = small;
    return message;
}

/* A message was received, or never will be: free it if it is a copy, else end its sender's request. */
static void message_end(struct message *message, enum pici_status status)
{
    struct request *request = message->sender;
    if (!request) {
        free(message);
        return;
    }
    pthread_mutex_lock(&request->owner->lock);
    request->status = status;
    request->done = 1;
    wake(request->owner);
    pthread_mutex_unlock(&request->owner->lock);
}

static void stick(struct rank *rank)
{
    pthread_mutex_lock(&rank->lock);
    rank->stuck = 1;
    pthread_mutex_unlock(&rank->lock);
}

/* A mover gave up copying a message, and the copy may still go on: neither side may free its buffer. */
static enum pici_status give_up_copy(struct rank *me, const struct message *message)
{
    stick(me);
    if (message->sender)
        stick(message->sender->owner);
    return PICI_E_TRANSPORT;
}

/* Copy the message that arrived for a receive to the receive's buffer. */
static void take(struct request *request)
{
    const struct message *message = request->arrived;
    const struct pici_mover *into = mover_of(request->owner, request->into),
                            *mover = message->mover ? message->mover : into;
    if (message->bytes > request->capacity)
        request->status = PICI_E_CORRUPT;
    else {
        if (mover && message->bytes && !mover->move(mover->self, request->into, message->data, message->bytes))
            request->status = give_up_copy(request->owner, message);
        else if (!mover && message->bytes)
            memcpy(request->into, message->data, message->bytes);
        if (message->flip != NO_FLIP && !into)
            request->into[message->flip / 8] ^= (uint8_t)(1 << message->flip % 8);
        request->bytes = message->bytes;
    }
    if (message->sender)
        message_end(request->arrived, request->status == PICI_E_TRANSPORT ? request->status : PICI_OK);
    else if (request->status != PICI_E_TRANSPORT)
        spare_message(request->owner, request->arrived);
}

/* End posted receives whose messages have arrived. */
static void progress(struct rank *me)
{
    struct request *ready = NULL, **ready_end = &ready, *request;
    if (!me->posted)
        return;
    const int64_t time = me->group->faulty ? now() : 0; /* one time for all receives keeps the order */
    pthread_mutex_lock(&me->lock);
    for (struct request **offset = &me->posted; (request = *offset);) {
        struct link *link = &me->links[request->from];
        struct message *message = link->first;
        if (message ? message->due > time : !link->ended) {
            offset = &request->next;
            continue;
        }
        request->arrived = message;
        if (message)
            link->first = message->next;
        else
            request->status = link->ended;
        *offset = request->next;
        *ready_end = request;
        ready_end = &request->next;
    }
    pthread_mutex_unlock(&me->lock);
    *ready_end = NULL;
    for (request = ready; request; request = request->next) {
        if (request->arrived)
            take(request);
        request->done = 1;
    }
}

/* ---- What a communicator calls ---- */

static enum pici_status thread_send(void *context, int receiver, const void *data, size_t bytes, void **request)
{
    struct rank *me = context, *peer = &me->group->rank[receiver];
    struct request *pending = request_new(me);
    struct message *message = pending ? message_new(pending, data, bytes) : NULL;
    enum pici_status s = message ? PICI_OK : PICI_E_NOMEM;
    int lost = 0;
    if (!s && me->group->faulty)
        s = misfortune(me, receiver, message, &lost);
    if (!s && !lost) {
        pthread_mutex_lock(&peer->lock);
        s = peer->left_status;
        if (!s) {
            struct link *link = &peer->links[me->number];
            if (link->first)
                link->last->next = message;
            else
                link->first = message;
            link->last = message;
            message = NULL;
            wake(peer);
        }
        pthread_mutex_unlock(&peer->lock);
    }
    /* not sent, or lost without the sender's knowledge */
    if (message)
        message_end(message, PICI_OK);
    if (s) {
        if (pending)
            request_end(pending);
        return s;
    }
    pending->sends = 1;
    pending->bytes = bytes;
    *request = pending;
    return PICI_OK;
}

static enum pici_status thread_recv(void *context, int sender, void *data, size_t capacity, void **request)
{
    struct rank *me = context;
    struct request *pending = request_new(me), **offset = &me->posted;
    if (!pending)
        return PICI_E_NOMEM;
    pending->from = sender;
    pending->into = data;
    pending->capacity = capacity;
    while (*offset)
        offset = &(*offset)->next;
    *offset = pending;
    *request = pending;
    return PICI_OK;
}

static enum pici_status thread_test(void *context, void *request, int *done, size_t *bytes)
{
    struct rank *me = context;
    struct request *pending = request;
    progress(me);
    if (pending->sends)
        pthread_mutex_lock(&me->lock);
    const enum pici_status status = pending->status;
    *done = pending->done;
    if (pending->sends)
        pthread_mutex_unlock(&me->lock);
    if (!*done)
        return PICI_OK;
    if (bytes)
        *bytes = pending->bytes;
    request_end(pending);
    return status;
}

/* Tests may have missed events since the last wait ended, so sleep only if there were none. Spin first: a short message
 * mostly arrives before a system call could put this thread to sleep. */
static void thread_wait(void *context, int timeout_ms)
{
    struct rank *me = context;
    for (int i = 0; i < SPINS && me->group->cores; i++) {
        if (atomic_load_explicit(&me->events, memory_order_relaxed) != me->events_seen)
            break;
        pici_transport_relax(1);
    }
    int64_t until = now() + (int64_t)timeout_ms * 1000000;
    pthread_mutex_lock(&me->lock);
    for (const struct request *request = me->posted; request; request = request->next) {
        const struct message *message = me->links[request->from].first;
        if (message && message->due && message->due < until)
            until = message->due;
    }
    const struct timespec deadline = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    while (me->events == me->events_seen && pthread_cond_timedwait(&me->changed, &me->lock, &deadline) == 0)
        ;
    me->events_seen = me->events;
    pthread_mutex_unlock(&me->lock);
}

/* Remove this rank's messages from a peer's mailbox, from the first large one on. The small ones before it do not need
 * this rank's memory. Returns the removed messages. This rank sends no more to the peer. */
static struct message *withdraw(const struct rank *me, struct rank *peer, enum pici_status reason)
{
    struct link *link = &peer->links[me->number];
    struct message **offset = &link->first, *cut, *last = NULL;
    pthread_mutex_lock(&peer->lock);
    while (*offset && !(*offset)->sender) {
        last = *offset;
        offset = &last->next;
    }
    cut = *offset;
    *offset = NULL;
    link->last = last;
    if (!me->silent) {
        link->ended = reason;
        wake(peer);
    }
    pthread_mutex_unlock(&peer->lock);
    return cut;
}

static void end_all(struct message *message, enum pici_status status)
{
    for (struct message *next; message; message = next) {
        next = message->next;
        message_end(message, status);
    }
}

/* No other rank uses a buffer of this rank afterwards, unless a copy was given up. The peers of a stalled rank do not
 * learn that it gave up. */
static int thread_abandon(void *context, enum pici_status reason)
{
    struct rank *me = context;
    const int ranks = me->group->ranks;
    if (me->gave_up)
        return me->stuck;
    if (!reason)
        reason = PICI_E_PEER;
    me->gave_up = 1;
    for (int r = 0; r < ranks; r++)
        if (r != me->number)
            end_all(withdraw(me, &me->group->rank[r], reason), reason);

    /* Peers are copying the sends that have not ended: wait for them. */
    pthread_mutex_lock(&me->lock);
    for (struct pool_item *item = me->requests.all; item; item = item->older) {
        const struct request *request = (const struct request *)item;
        while (request->sends && !request->done)
            pthread_cond_wait(&me->changed, &me->lock);
    }
    if (!me->silent)
        me->left_status = reason;
    pthread_mutex_unlock(&me->lock);

    /* No peer adds a message any more. */
    for (int r = 0; r < ranks && !me->silent; r++) {
        pthread_mutex_lock(&me->lock);
        struct message *message = me->links[r].first;
        me->links[r].first = NULL;
        pthread_mutex_unlock(&me->lock);
        end_all(message, reason);
    }
    return me->stuck; /* no peer sets it any more, because none takes a message of this rank */
}

static void thread_mover(void *context, const struct pici_mover *mover)
{
    struct rank *me = context;
    me->mover = *mover;
}

static void group_free(struct group *group, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        struct rank *rank = &group->rank[i];
        for (int from = 0; from < group->ranks; from++)
            end_all(rank->links[from].first, PICI_E_PEER);
        pthread_cond_destroy(&rank->changed);
        pthread_mutex_destroy(&rank->lock);
        for (struct message *message = rank->spare, *next; message; message = next) {
            next = message->next;
            free(message);
        }
        free(rank->links);
        free(rank->sent);
    }
    free(group);
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

static int rank_init(struct rank *rank, struct group *group, int number)
{
    pthread_condattr_t attribute;
    int failed = 1;
    rank->group = group;
    rank->number = number;
    rank->links = calloc((size_t)group->ranks, sizeof *rank->links);
    rank->sent = calloc((size_t)group->ranks, sizeof *rank->sent);
    if (rank->links && rank->sent && pthread_condattr_init(&attribute) == 0) {
        failed =
            pthread_condattr_setclock(&attribute, CLOCK_MONOTONIC) || pthread_cond_init(&rank->changed, &attribute);
        pthread_condattr_destroy(&attribute);
        if (!failed && pthread_mutex_init(&rank->lock, NULL)) {
            pthread_cond_destroy(&rank->changed);
            failed = 1;
        }
    }
    if (failed) {
        free(rank->links);
        free(rank->sent);
    }
    return failed;
}

enum pici_status pici_transport_threads(struct pici_transport *transports, int ranks)
{
    if (!transports || ranks < 1)
        return PICI_E_ARG;
    if ((size_t)ranks > (SIZE_MAX - sizeof(struct group)) / sizeof(struct rank))
        return PICI_E_NOMEM;
    struct group *group = calloc(1, sizeof *group + (size_t)ranks * sizeof *group->rank);
    if (!group)
        return PICI_E_NOMEM;
    group->ranks = ranks;
    group->cores = pici_transport_cores(ranks);
    atomic_init(&group->open, ranks);
    for (int i = 0; i < ranks; i++)
        if (rank_init(&group->rank[i], group, i)) {
            group_free(group, i);
            return PICI_E_NOMEM;
        }
    for (int i = 0; i < ranks; i++)
        transports[i] = (struct pici_transport){
            .size = sizeof *transports,
            .context = &group->rank[i],
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

void pici_transport_threads_faults(struct pici_transport *transport, const struct pici_thread_faults *faults)
{
    struct rank *rank = transport->context;
    rank->group->faults = *faults;
    rank->group->faulty = 1;
}

/* ---- Communicators ---- */

enum pici_status pici_comm_threads(struct pici_comm **comms, int ranks)
{
    char reason[256];
    if (!comms || ranks < 1 || ranks > MAX_RANKS) {
        snprintf(reason, sizeof reason, "%d ranks", ranks);
        pici_comm_failed(comms ? reason : "the pointer to the new communicators is NULL");
        return PICI_E_ARG;
    }
    for (int i = 0; i < ranks; i++)
        comms[i] = NULL;
    struct pici_transport *transports = calloc((size_t)ranks, sizeof *transports);
    enum pici_status status = transports ? pici_transport_threads(transports, ranks) : PICI_E_NOMEM;
    if (status) {
        snprintf(reason, sizeof reason, "no memory for %d ranks", ranks);
        pici_comm_failed(reason);
        free(transports);
        return status;
    }
    int i = 0;
    for (; i < ranks && status == PICI_OK; i++)
        status = pici_comm_transport(&comms[i], &transports[i]); /* on failure it closes the transport */
    if (status) {
        snprintf(reason, sizeof reason, "%s", pici_comm_error(NULL));
        for (; i < ranks; i++)
            transports[i].close(transports[i].context);
        for (i = 0; i < ranks; i++) {
            pici_comm_free(comms[i]);
            comms[i] = NULL;
        }
        pici_comm_failed(reason);
    }
    free(transports);
    return status;
}
