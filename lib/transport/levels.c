/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport on two levels. A message's peer alone decides which level carries it, so messages between two ranks
 * stay in order.
 *
 * Steps. One level may have steps, as NCCL's transport does. Every step of the communicator is then a step of that
 * level too, often with no messages. So this transport collects the level's messages and begins them once it knows the
 * whole step. It begins messages of the other level at once. By pici/transport.h, what a rank does for a step waits for
 * earlier steps only. This holds for each level alone too.
 *
 * GPU memory. If a level supports host memory only, GPU data is staged in host memory: when a send begins, or when a
 * receive has ended. The engine's mover copies.
 *
 * Death. A transport with steps does not notice that a peer is gone. Ranks of a node exchange no messages over the
 * outer level. So a rank posts a receive there for each peer of its node, which ends when the peer is gone. Messages
 * that the peer sent inside the node may still be on their way, so its requests fail only after a grace period. */
#define _POSIX_C_SOURCE 200809L
#include "transport/levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/nap.h"
#include "transport/pool.h"

enum { INNER, OUTER, LEVELS };

int pici_levels_grace_ms = 2000;

/* Host memory for a message in a GPU's memory. */
struct stage {
    struct stage *next; /* in the list of unused stages */
    size_t bytes;
    uint8_t data[];
};

struct request {
    struct pool_item item;
    struct request *next; /* in an incomplete step */
    struct level *level;
    void *below; /* the level's own request; NULL: not begun */
    int sends, peer;
    void *data;
    size_t bytes; /* to send; of a receive, the capacity */
    struct stage *stage;
    enum pici_status status; /* not PICI_OK: why it could not begin */
};

/* The messages of a step in one direction, of a level with steps. */
struct step {
    int due; /* messages still to be posted */
    int more, count;
    struct request *first, **end;
};

struct level {
    struct pici_transport transport;
    struct pici_mover mover; /* copies to host memory; owns is NULL: the transport does not need that */
    int running;             /* requests in flight */
};

struct watched {
    void *request; /* of the outer level, or NULL */
    int64_t gone;  /* when it ended, in milliseconds; 0: it has not */
    uint8_t byte;
};

struct levels {
    struct level level[LEVELS];
    int rank, ranks;
    int *number;            /* [ranks] in the inner level, or -1 */
    int *node_of;           /* [ranks] */
    struct level *stepping; /* the level with steps, or NULL */
    struct step sends, receives;
    struct watched *watched; /* [ranks], or NULL */
    struct pool requests;
    struct stage *stages; /* not in use */
    int ended;            /* a request failed since the last wait */
    int looks, owns, abandoned;
    int keeps_stages; /* a level may still use stages */
    char error[160], waits[480];
};

static int64_t milliseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static struct level *level_of(struct levels *levels, int peer)
{
    return &levels->level[levels->number[peer] >= 0 ? INNER : OUTER];
}

static int number_at(const struct levels *levels, const struct request *request)
{
    return request->level == &levels->level[INNER] ? levels->number[request->peer] : request->peer;
}

/* ---- copies in host memory */

static struct stage *stage_take(struct levels *levels, size_t bytes)
{
    for (struct stage **at = &levels->stages; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes) {
            struct stage *stage = *at;
            *at = stage->next;
            return stage;
        }
    struct stage *stage = levels->stages; /* too small: replace it by a larger one */
    if (stage)
        levels->stages = stage->next;
    free(stage);
    stage = bytes <= SIZE_MAX - sizeof *stage ? malloc(sizeof *stage + bytes) : NULL;
    if (stage)
        stage->bytes = bytes;
    return stage;
}

static void stage_give(struct levels *levels, struct request *request)
{
    if (!request->stage)
        return;
    request->stage->next = levels->stages;
    levels->stages = request->stage;
    request->stage = NULL;
}

static enum pici_status copy(struct levels *levels, const struct level *level, void *to, const void *from, size_t bytes)
{
    if (!bytes || level->mover.move(level->mover.self, to, from, bytes))
        return PICI_OK;
    snprintf(levels->error, sizeof levels->error, "a copy between the memories of host and GPU failed");
    return PICI_E_DEVICE;
}

/* ---- beginning messages */

static enum pici_status begin(struct levels *levels, struct request *request)
{
    struct level *level = request->level;
    const struct pici_transport *transport = &level->transport;
    const int peer = number_at(levels, request);
    void *data = request->data;
    enum pici_status status = PICI_OK;
    if (level->mover.owns && level->mover.owns(level->mover.self, data)) {
        request->stage = stage_take(levels, request->bytes);
        if (!request->stage) {
            snprintf(levels->error, sizeof levels->error, "no memory for a copy of a message");
            return PICI_E_NOMEM;
        }
        data = request->stage->data;
        if (request->sends)
            status = copy(levels, level, data, request->data, request->bytes);
    }
    if (!status && request->sends)
        status = transport->send(transport->context, peer, data, request->bytes, &request->below);
    else if (!status)
        status = transport->recv(transport->context, peer, data, request->bytes, &request->below);
    if (status) {
        request->below = NULL;
        stage_give(levels, request);
    } else
        level->running++;
    return status;
}

/* All messages of a step in one direction are posted: begin the messages of the level that has steps. */
static void step_complete(struct levels *levels, struct step *step)
{
    const struct pici_transport *transport = &levels->stepping->transport;
    struct request *request = step->first, *next;
    if (step == &levels->receives)
        transport->receives(transport->context, step->count);
    else
        transport->sends(transport->context, step->count, step->more);
    step->first = NULL;
    for (; request; request = next) {
        next = request->next;
        request->status = begin(levels, request);
        levels->ended |= request->status != PICI_OK;
    }
}

static void step_begin(struct levels *levels, struct step *step, int due, int more)
{
    *step = (struct step){.due = due, .more = more};
    step->end = &step->first;
    if (!due)
        step_complete(levels, step);
}

static void levels_receives(void *context, int n)
{
    struct levels *levels = context;
    step_begin(levels, &levels->receives, n, 0);
}

static void levels_sends(void *context, int n, int more)
{
    struct levels *levels = context;
    step_begin(levels, &levels->sends, n, more);
}

static enum pici_status post(struct levels *levels, int peer, int sends, void *data, size_t bytes, void **out)
{
    struct step *step = sends ? &levels->sends : &levels->receives;
    struct request *request = pool_take(&levels->requests, sizeof *request);
    enum pici_status status = request ? PICI_OK : PICI_E_NOMEM;
    if (request) {
        request->level = level_of(levels, peer);
        request->sends = sends;
        request->peer = peer;
        request->data = data;
        request->bytes = bytes;
        if (request->level != levels->stepping)
            status = begin(levels, request);
        else {
            *step->end = request;
            step->end = &request->next;
            step->count++;
        }
        if (status)
            pool_give(&levels->requests, &request->item);
        else
            *out = request;
    }
    if (levels->stepping && --step->due == 0)
        step_complete(levels, step);
    return status;
}

static enum pici_status levels_send(void *context, int receiver, const void *data, size_t bytes, void **request)
{
    return post(context, receiver, 1, (void *)data, bytes, request); /* which is only read */
}

static enum pici_status levels_recv(void *context, int sender, void *data, size_t capacity, void **request)
{
    return post(context, sender, 0, data, capacity, request);
}

/* ---- peers that are gone */

/* Begin to watch the peers of the node. If a peer cannot be watched and dies, calls end by their timeout. */
static void watch_all(struct levels *levels)
{
    const struct pici_transport *outer = &levels->level[OUTER].transport;
    for (int i = 0; i < levels->ranks; i++)
        if (i != levels->rank && levels->number[i] >= 0 &&
            outer->recv(outer->context, i, &levels->watched[i].byte, 1, &levels->watched[i].request))
            levels->watched[i].request = NULL;
}

/* Whether a peer has been gone for the grace period, so that no message of it is still on its way. */
static int is_gone(struct levels *levels, int peer)
{
    const struct pici_transport *outer = &levels->level[OUTER].transport;
    struct watched *watched = levels->watched ? &levels->watched[peer] : NULL;
    int ended = 0;
    if (watched && watched->request) {
        (void)outer->test(outer->context, watched->request, &ended, NULL); /* ends when the peer is gone */
        if (ended) {
            watched->request = NULL;
            watched->gone = milliseconds();
        }
    }
    return watched && watched->gone && milliseconds() - watched->gone >= pici_levels_grace_ms;
}

/* ---- the end of messages */

static enum pici_status levels_test(void *context, void *tested, int *done, size_t *bytes)
{
    struct levels *levels = context;
    struct request *request = tested;
    struct level *level = request->level;
    enum pici_status status = request->status;
    size_t moved = 0;
    *done = status != PICI_OK;
    if (request->below) {
        status = level->transport.test(level->transport.context, request->below, done, &moved);
        if (!*done && level == &levels->level[INNER] && is_gone(levels, request->peer)) {
            snprintf(levels->error, sizeof levels->error, "rank %d is gone", request->peer);
            /* the level may use the buffer until the caller abandons it, which comes next */
            return *done = 1, PICI_E_PEER;
        }
        if (*done)
            level->running--;
        if (*done && !status && request->stage && !request->sends)
            status = copy(levels, level, request->data, request->stage->data, moved);
    }
    if (!*done)
        return PICI_OK;
    levels->looks = 0;
    stage_give(levels, request);
    pool_give(&levels->requests, &request->item);
    if (bytes)
        *bytes = moved;
    return status;
}

/* If only one level has requests in flight, sleep in that level. No sleep can wait for both. */
static void levels_wait(void *context, int timeout_ms)
{
    struct levels *levels = context;
    const struct level *inner = &levels->level[INNER], *outer = &levels->level[OUTER],
                       *one = inner->running ? inner : outer;
    if (!levels->ended) {
        if (one->transport.wait && !(inner->running && outer->running) && !levels->watched)
            one->transport.wait(one->transport.context, timeout_ms);
        else
            pici_transport_nap(&levels->looks, 0, timeout_ms);
    }
    levels->ended = 0;
}

/* A failure on one level ends both. */
static int levels_abandon(void *context, enum pici_status reason)
{
    struct levels *levels = context;
    levels->abandoned = 1;
    for (int i = 0; i < LEVELS; i++)
        if (levels->level[i].transport.abandon(levels->level[i].transport.context, reason))
            levels->keeps_stages = 1;
    return levels->keeps_stages;
}

static void levels_close(void *context)
{
    struct levels *levels = context;
    const struct pici_transport *outer = &levels->level[OUTER].transport;
    /* the receives that watch peers are still in flight */
    if (levels->owns && levels->watched && !levels->abandoned && outer->abandon(outer->context, PICI_OK))
        levels->keeps_stages = 1;
    for (int i = 0; i < LEVELS && levels->owns; i++)
        levels->level[i].transport.close(levels->level[i].transport.context);
    if (!levels->keeps_stages) {
        for (struct stage *stage = levels->stages, *next; stage; stage = next) {
            next = stage->next;
            free(stage);
        }
        for (struct pool_item *item = levels->requests.all; item; item = item->older)
            free(((struct request *)item)->stage);
        free(levels->watched);
    }
    pool_free(&levels->requests);
    free(levels->number);
    free(levels->node_of);
    free(levels);
}

static enum pici_status levels_nodes(void *context, int *node_of)
{
    const struct levels *levels = context;
    memcpy(node_of, levels->node_of, (size_t)levels->ranks * sizeof *node_of);
    return PICI_OK;
}

/* Levels report their own rank numbers. */
static const char *levels_error(void *context)
{
    static const char *const names[LEVELS] = {"inside the node, by the inner communicator's ranks", "between nodes"};
    struct levels *levels = context;
    int offset = 0;
    if (levels->error[0])
        return levels->error;
    levels->waits[0] = '\0';
    for (int i = 0; i < LEVELS && offset < (int)sizeof levels->waits; i++) {
        const struct pici_transport *transport = &levels->level[i].transport;
        const char *error = transport->error ? transport->error(transport->context) : "";
        if (error[0])
            offset += snprintf(levels->waits + offset, sizeof levels->waits - (size_t)offset, "%s%s: %s",
                               offset ? "; " : "", names[i], error);
    }
    return levels->waits;
}

static void levels_mover(void *context, const struct pici_mover *mover)
{
    struct levels *levels = context;
    for (int i = 0; i < LEVELS; i++) {
        struct level *level = &levels->level[i];
        if (level->transport.mover)
            level->transport.mover(level->transport.context, mover);
        else if (level->transport.memory == PICI_MEMORY_HOST)
            level->mover = *mover;
    }
}

/* ---- making one */

static void copy_transport(struct pici_transport *to, const struct pici_transport *from)
{
    *to = (struct pici_transport)PICI_TRANSPORT_INIT;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
}

enum pici_status pici_transport_levels(struct pici_transport *transport, const struct pici_transport *inner,
                                       const struct pici_transport *outer, const int *number, const int *node_of)
{
    const size_t ranks = (size_t)outer->ranks;
    struct levels *levels = calloc(1, sizeof *levels);
    if (!levels)
        return PICI_E_NOMEM;
    copy_transport(&levels->level[INNER].transport, inner);
    copy_transport(&levels->level[OUTER].transport, outer);
    levels->rank = outer->rank;
    levels->ranks = outer->ranks;
    levels->number = malloc(ranks * sizeof *levels->number);
    levels->node_of = malloc(ranks * sizeof *levels->node_of);
    for (int i = 0; i < LEVELS; i++)
        if (levels->level[i].transport.receives)
            levels->stepping = &levels->level[i];
    const int watches = levels->stepping == &levels->level[INNER];
    levels->watched = watches ? calloc(ranks, sizeof *levels->watched) : NULL;
    if (!levels->number || !levels->node_of || (watches && !levels->watched)) {
        levels_close(levels);
        return PICI_E_NOMEM;
    }
    memcpy(levels->number, number, ranks * sizeof *number);
    memcpy(levels->node_of, node_of, ranks * sizeof *node_of);
    const enum pici_memory memory[LEVELS] = {inner->memory, outer->memory};
    enum pici_memory both = PICI_MEMORY_ANY;
    if (memory[INNER] == PICI_MEMORY_HOST || memory[OUTER] == PICI_MEMORY_HOST)
        both = PICI_MEMORY_HOST;
    if (memory[INNER] == PICI_MEMORY_DEVICE || memory[OUTER] == PICI_MEMORY_DEVICE)
        both = PICI_MEMORY_DEVICE;
    *transport = (struct pici_transport){
        .size = sizeof *transport,
        .context = levels,
        .rank = outer->rank,
        .ranks = outer->ranks,
        .send = levels_send,
        .recv = levels_recv,
        .test = levels_test,
        .wait = levels_wait,
        .abandon = levels_abandon,
        .close = levels_close,
        .nodes = levels_nodes,
        .error = levels_error,
        .memory = both,
        .mover = levels_mover,
        .receives = levels->stepping ? levels_receives : NULL,
        .sends = levels->stepping ? levels_sends : NULL,
    };
    return PICI_OK;
}

void pici_transport_levels_own(const struct pici_transport *transport)
{
    struct levels *levels = transport->context;
    levels->owns = 1;
    if (levels->watched)
        watch_all(levels);
}
