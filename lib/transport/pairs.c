/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/address.h"
#include "transport/meet.h"
#include "transport/pending.h"

enum {
    GRACE_MS = 2000,   /* time that the other ranks have after one has failed */
    CONNECT_MS = 5000, /* the most that this rank waits for connections to a rank */
    ACCEPT_MS = 10000  /* the most that it waits to accept those that have been made */
};

/* The state of an exchange of offers. */
struct talk {
    struct pairs *pairs;
    struct meet_side *sides;    /* [ranks] */
    int *made;                  /* [ranks] descriptors of this rank's memory, or -1 */
    uint8_t *bytes;             /* [ranks * OFFER_BYTES] */
    int (*more)[STRIPES_MOST];  /* [ranks] connections, the existing one first; -1: not there yet */
    int *connections, *dropped; /* [ranks] their planned number; whether some of them are missing */
    struct pending pending;     /* accepts them; its listener is -1 if there is none */
    struct address here;
    int64_t deadline;
};

static int is_near(const struct pairs *pairs, int i)
{
    return pairs->node_of[i] == pairs->node_of[pairs->rank];
}

/* Note why an offer failed. error: errno, or 0 if a rank declined. */
static void note(struct pairs *pairs, int peer, enum offer_kind kind, int error)
{
    if (!error || pairs->failures++)
        return;
    snprintf(pairs->explanation, sizeof pairs->explanation, "%s with rank %d: %s",
             kind == OFFER_MEMORY ? "shares no memory" : "has only one connection", peer, strerror(error));
}

/* The kind of offer that this rank wants to exchange with another. */
static enum offer_kind wanted(const struct pairs *pairs, int i)
{
    if (pairs->share && is_near(pairs, i))
        return OFFER_MEMORY;
    return pairs->connections > 1 ? OFFER_CONNECTIONS : OFFER_NOTHING;
}

/* A deadline in most_ms, or in half of the time that is left: what comes after needs time too. */
static int64_t deadline_in(const struct talk *talk, int most_ms)
{
    const int64_t soon = pici_meet_deadline(most_ms), now = pici_meet_now(), half = now + (talk->deadline - now) / 2;
    return half < soon ? half : soon;
}

enum turn { OFFERS, ANSWERS, CONFIRMATIONS };

/* Send the messages of a turn to the ranks above this one (ANSWERS: below), and receive the messages of the others. */
static enum pici_status exchange(struct talk *talk, enum turn turn)
{
    const struct pairs *pairs = talk->pairs;
    for (int i = 0; i < pairs->ranks; i++) {
        uint8_t *offer = talk->bytes + (size_t)i * OFFER_BYTES;
        const int sends = (i > pairs->rank) == (turn != ANSWERS),
                  due = i != pairs->rank && (turn != CONFIRMATIONS || talk->connections[i]);
        talk->sides[i] = (struct meet_side){.fd = due ? pairs->fds[i] : -1,
                                            .outgoing = offer,
                                            .incoming = offer,
                                            .out_bytes = sends ? OFFER_BYTES : 0,
                                            .in_bytes = sends ? 0 : OFFER_BYTES};
    }
    return pici_meet(talk->sides, pairs->ranks, talk->deadline, GRACE_MS);
}

/* The offer that a rank sent. If it sent no valid one: shut its socket down, and return an offer of nothing. */
static struct greeting_offer offer_of(const struct talk *talk, int i)
{
    struct greeting_offer offer = {.kind = OFFER_NOTHING};
    if (talk->sides[i].status || pici_offer_get(&offer, talk->bytes + (size_t)i * OFFER_BYTES))
        shutdown(talk->pairs->fds[i], SHUT_RDWR);
    return offer;
}

/* ---- more connections */

static int make_token(char token[GREETING_TOKEN])
{
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    memset(token, 0, GREETING_TOKEN);
    const int made = fd >= 0 && read(fd, token, OFFER_TOKEN) == OFFER_TOKEN;
    if (fd >= 0)
        close(fd);
    return made;
}

/* Listen at this rank's address on the connection with rank i, unless it listens already. Returns 0 on failure, and
 * sets errno. */
static int listen_for(struct talk *talk, int i)
{
    struct address here;
    char token[GREETING_TOKEN];
    if (!pici_address_own(talk->pairs->fds[i], &here))
        return 0;
    struct place place = pici_address_place(&here), other = pici_address_place(&talk->here);
    errno = EAFNOSUPPORT; /* not TCP */
    if (!place.family)
        return 0;
    if (talk->pending.listener >= 0) {
        errno = EADDRNOTAVAIL; /* another address of this host */
        return memcmp(place.address, other.address, sizeof place.address) == 0;
    }
    if (!make_token(token))
        return 0;
    if (!talk->pairs->ports[0]) {
        place.port = 0;
        here = pici_address_at(&place, &here);
    }
    const int fd = pici_address_listen(&here, talk->pairs->ports, talk->pairs->rank);
    if (fd < 0)
        return 0;
    talk->here = here;
    pici_pending_open(&talk->pending, fd, token, NULL);
    return 1;
}

static struct greeting_offer offer_connections(struct talk *talk, int i)
{
    struct greeting_offer offer = {.kind = OFFER_NOTHING};
    if (!listen_for(talk, i)) {
        offer.process = (uint32_t)errno;
        return offer;
    }
    offer.kind = OFFER_CONNECTIONS;
    offer.connections = (uint32_t)talk->pairs->connections;
    offer.port = (uint32_t)pici_address_place(&talk->here).port;
    memcpy(offer.token, talk->pending.token, sizeof offer.token);
    return offer;
}

/* Make the connections that a lower rank offers, until the deadline, and send each one's number over it. Returns 0 on
 * failure, and sets errno. */
static int connect_to(struct talk *talk, int rank, const struct greeting_offer *offer, int64_t deadline)
{
    const struct pairs *pairs = talk->pairs;
    struct address peer;
    struct greeting greeting = pici_greeting(GREETING_LINK, pairs->rank, pairs->ranks, rank);
    if (!pici_address_peer(pairs->fds[rank], &peer))
        return 0;
    struct place place = pici_address_place(&peer);
    errno = EPROTO;
    if (!place.family || offer->port < 1 || offer->port > 65535 || offer->connections < 2)
        return 0;
    place.port = (int)offer->port;
    peer = pici_address_at(&place, &peer);
    memcpy(greeting.token, offer->token, sizeof offer->token);
    const int count = offer->connections < (uint32_t)pairs->connections ? (int)offer->connections : pairs->connections;
    for (int i = 1; i < count; i++) {
        uint8_t bytes[GREETING_BYTES];
        greeting.host[0] = (char)i;
        pici_greeting_put(bytes, &greeting);
        const int fd = talk->more[rank][i] = pici_address_connect(&peer, deadline);
        if (fd < 0 || send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != (ssize_t)sizeof bytes)
            return 0;
    }
    talk->connections[rank] = count;
    return 1;
}

/* Accept the connections that the higher ranks made before they answered. */
static void accept_more(struct talk *talk)
{
    const struct pairs *pairs = talk->pairs;
    const int64_t deadline = deadline_in(talk, ACCEPT_MS);
    int missing = 0;
    for (int i = pairs->rank + 1; i < pairs->ranks; i++)
        missing += talk->connections[i] ? talk->connections[i] - 1 : 0;
    while (missing && !talk->pending.error && pici_meet_left(deadline)) {
        struct pollfd polls[PENDING + 1];
        struct greeting greeting;
        int fd;
        while (missing && pici_pending_next(&talk->pending, &fd, &greeting)) {
            const int64_t rank = greeting.rank, which = (unsigned char)greeting.host[0];
            const int due = greeting.kind == GREETING_LINK && rank > pairs->rank && rank < pairs->ranks && which &&
                            which < talk->connections[rank] && talk->more[rank][which] < 0;
            if (due)
                talk->more[rank][which] = fd;
            else
                close(fd);
            missing -= due;
        }
        if (missing)
            (void)poll(polls, (nfds_t)pici_pending_polls(&talk->pending, polls), pici_meet_left(deadline));
    }
}

/* Tell the higher ranks whether their connections are all there, and hear it from the lower ones. If some are missing,
 * both ranks continue with one. */
static enum pici_status confirm(struct talk *talk)
{
    struct pairs *pairs = talk->pairs;
    for (int i = pairs->rank + 1; i < pairs->ranks; i++) {
        struct greeting_offer offer = {.kind = OFFER_CONNECTIONS};
        int there = 1;
        while (there < talk->connections[i] && talk->more[i][there] >= 0)
            there++;
        if (there < talk->connections[i]) {
            const int error = talk->pending.error ? talk->pending.error : ETIMEDOUT;
            offer = (struct greeting_offer){.kind = OFFER_NOTHING, .process = (uint32_t)error};
            note(pairs, i, OFFER_CONNECTIONS, error);
        }
        pici_offer_put(talk->bytes + (size_t)i * OFFER_BYTES, &offer);
        talk->dropped[i] = !offer.kind;
    }
    const enum pici_status status = exchange(talk, CONFIRMATIONS);
    for (int i = 0; i < pairs->rank && !status; i++) {
        if (!talk->connections[i])
            continue;
        const struct greeting_offer offer = offer_of(talk, i);
        talk->dropped[i] = offer.kind != OFFER_CONNECTIONS;
        if (talk->dropped[i])
            note(pairs, i, OFFER_CONNECTIONS, (int)offer.process);
    }
    return status;
}

/* Use the connections with a rank. Without memory for that, neither rank can continue: the other one may already use
 * them. */
static void use_more(struct talk *talk, int i)
{
    struct pairs *pairs = talk->pairs;
    if (!talk->connections[i] || talk->dropped[i])
        return;
    talk->more[i][0] = pairs->fds[i];
    pairs->pair[i].stripes = pici_stripes(talk->more[i], talk->connections[i]);
    if (!pairs->pair[i].stripes)
        shutdown(pairs->fds[i], SHUT_RDWR);
    for (int k = 0; k < STRIPES_MOST && pairs->pair[i].stripes; k++)
        talk->more[i][k] = -1;
}

/* ---- the exchange */

static void make_offers(struct talk *talk)
{
    struct pairs *pairs = talk->pairs;
    int near = 0;
    for (int i = 0; i < pairs->ranks; i++)
        near += is_near(pairs, i);
    for (int i = pairs->rank + 1; i < pairs->ranks; i++) {
        struct greeting_offer offer = {.kind = OFFER_NOTHING};
        const enum offer_kind kind = wanted(pairs, i);
        if (kind == OFFER_MEMORY)
            pairs->pair[i].shared = pici_shared_make(&offer, pici_shared_ring_bytes(near), &talk->made[i]);
        if (kind == OFFER_CONNECTIONS)
            offer = offer_connections(talk, i);
        if (kind && !offer.kind)
            note(pairs, i, kind, (int)offer.process);
        pici_offer_put(talk->bytes + (size_t)i * OFFER_BYTES, &offer);
    }
}

static void take_offers(struct talk *talk)
{
    struct pairs *pairs = talk->pairs;
    const int64_t last = deadline_in(talk, INT_MAX);
    for (int i = 0; i < pairs->rank; i++) {
        const struct greeting_offer offer = offer_of(talk, i);
        const enum offer_kind kind = wanted(pairs, i);
        struct greeting_offer answer = {.kind = OFFER_NOTHING, .process = offer.kind ? 0 : offer.process};
        if (kind && offer.kind == kind) {
            const int64_t soon = pici_meet_deadline(CONNECT_MS);
            int taken;
            if (kind == OFFER_MEMORY)
                taken = (pairs->pair[i].shared = pici_shared_open(&offer)) != NULL;
            else
                taken = connect_to(talk, i, &offer, last < soon ? last : soon);
            answer.kind = taken ? kind : OFFER_NOTHING;
            answer.process = taken ? 0 : (uint32_t)errno;
            answer.connections = (uint32_t)talk->connections[i];
        }
        if (kind)
            note(pairs, i, kind, (int)answer.process);
        pici_offer_put(talk->bytes + (size_t)i * OFFER_BYTES, &answer);
    }
}

static void take_answers(struct talk *talk)
{
    struct pairs *pairs = talk->pairs;
    for (int i = pairs->rank + 1; i < pairs->ranks; i++) {
        const struct greeting_offer answer = offer_of(talk, i);
        const enum offer_kind kind = wanted(pairs, i);
        if (kind == OFFER_CONNECTIONS && answer.kind == kind && answer.connections > 1 &&
            answer.connections <= (uint32_t)pairs->connections)
            talk->connections[i] = (int)answer.connections;
        if (answer.kind == OFFER_MEMORY && pairs->pair[i].shared)
            continue;
        if (pairs->pair[i].shared || (kind == OFFER_CONNECTIONS && !answer.kind))
            note(pairs, i, kind, (int)answer.process);
        pici_shared_free(pairs->pair[i].shared);
        pairs->pair[i].shared = NULL;
    }
}

static enum pici_status agree(struct talk *talk)
{
    make_offers(talk);
    enum pici_status status = exchange(talk, OFFERS);
    if (status)
        return status;
    take_offers(talk);
    status = exchange(talk, ANSWERS);
    if (status)
        return status;
    take_answers(talk);
    accept_more(talk);
    status = confirm(talk);
    for (int i = 0; i < talk->pairs->ranks && !status; i++)
        use_more(talk, i);
    return status;
}

enum pici_status pici_pairs(struct pairs *pairs)
{
    const size_t count = (size_t)pairs->ranks;
    struct talk talk = {.pairs = pairs,
                        .sides = calloc(count, sizeof *talk.sides),
                        .made = malloc(count * sizeof *talk.made),
                        .bytes = calloc(count, OFFER_BYTES),
                        .more = malloc(count * sizeof *talk.more),
                        .connections = calloc(count, sizeof *talk.connections),
                        .dropped = calloc(count, sizeof *talk.dropped),
                        .pending.listener = -1,
                        .pending.spare = -1,
                        .deadline = pici_meet_deadline(pairs->timeout_ms)};
    enum pici_status status = PICI_E_NOMEM;
    pairs->failures = 0;
    memset(pairs->pair, 0, count * sizeof *pairs->pair);
    if (talk.sides && talk.made && talk.bytes && talk.more && talk.connections && talk.dropped) {
        memset(talk.made, -1, count * sizeof *talk.made);
        memset(talk.more, -1, count * sizeof *talk.more);
        status = agree(&talk);
        for (int i = 0; i < pairs->ranks; i++) {
            if (talk.made[i] >= 0)
                close(talk.made[i]);
            for (int k = 1; k < STRIPES_MOST; k++)
                if (talk.more[i][k] >= 0)
                    close(talk.more[i][k]);
        }
        pici_pending_close(&talk.pending);
    }
    for (int i = 0; i < pairs->ranks && status; i++) {
        pici_shared_free(pairs->pair[i].shared);
        pairs->pair[i].shared = NULL;
        if (i != pairs->rank)
            shutdown(pairs->fds[i], SHUT_RDWR);
    }
    free(talk.sides);
    free(talk.made);
    free(talk.bytes);
    free(talk.more);
    free(talk.connections);
    free(talk.dropped);
    return status;
}
