/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators among processes that know one address.
 *
 * Rank 0 listens there. Each other rank connects to it, listens at a port of its own, and joins with a greeting that
 * names this place. When all have joined, rank 0 sends each of them its verdict and, if that is good, the places of
 * all. Then rank i connects to ranks 1 to i - 1, and accepts connections of ranks i + 1 to p - 1. It already has a
 * connection to rank 0. The system completes a connection before the process accepts it, so only an encrypted one waits
 * for the other rank. The rest is as with sockets from the caller. */
#define _GNU_SOURCE
#include "pici/socket.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "coll/settings.h"
#include "pici/transport.h"
#include "transport/address.h"
#include "transport/pending.h"
#include "transport/meet.h"
#include "transport/secure.h"

enum {
    NAP_LEAST_MS = 10, /* between two attempts to reach rank 0; twice as long each time */
    NAP_MOST_MS = 250,
    ATTEMPT_MS = 5000,   /* for one of rank 0's addresses */
    FAULT_MS = 3000,     /* after an error: how long rank 0 waits for the other ranks, to tell them too */
    ANSWER_MS = 2000,    /* that rank 0 may take to answer after its own timeout */
    AGAIN_MOST_MS = 160, /* the longest pause before a rank greets again; twice as long each time */
    NAMED = 8            /* the most ranks that a message names */
};

struct party {
    int rank, ranks;
    int timeout_ms;
    int64_t deadline;
    const char *address;        /* of rank 0, as the caller writes it */
    char token[GREETING_TOKEN]; /* padded with zeros */
    struct coll_settings settings;
    int *fds;             /* [ranks] sockets to the ranks that have come; else -1 */
    struct place *places; /* [ranks] where they listen */
    int *unexpected;      /* sockets of ranks that do not belong here; they get the verdict too */
    int unexpected_count;
    int unread;                  /* rank 0 closed the connection before it read this rank's bytes */
    struct address zero_address; /* this end of the connection to rank 0; of rank 0 itself, where it listens */
    struct secure_keys *keys;    /* NULL: connections are not encrypted */
    struct pending pending;
    struct greeting_verdict fault;
};

/* Note an error, unless one is noted already. */
__attribute__((format(printf, 3, 4))) static enum pici_status fail(struct party *party, enum pici_status status,
                                                                   const char *format, ...)
{
    va_list arguments;
    if (party->fault.status)
        return party->fault.status;
    va_start(arguments, format);
    vsnprintf(party->fault.text, sizeof party->fault.text, format, arguments);
    va_end(arguments);
    party->fault.rank = (uint32_t)party->rank;
    party->fault.status = status;
    return status;
}

static struct greeting greeting_of(const struct party *party, enum greeting_kind kind, int peer)
{
    struct greeting greeting = pici_greeting(kind, party->rank, party->ranks, peer);
    memcpy(greeting.token, party->token, sizeof greeting.token);
    greeting.place = party->places[party->rank];
    return greeting;
}

/* ---- rank 0 */

/* A name may resolve to loopback here, as a host's own name often does, and then others cannot reach it. In that case
 * listen at all addresses. Like any address that others can reach, this requires a token. */
static enum pici_status listen_as_zero(struct party *party, const char *host, const char *port)
{
    static const int any[2];
    struct addrinfo *found, *number;
    int fd = -1, error = 0;
    const int named = pici_address_resolve(host, port, &found);
    if (named)
        return fail(party, PICI_E_ARG, "the address \"%.100s\": %s", party->address, gai_strerror(named));
    for (const struct addrinfo *candidate = found; candidate && fd < 0; candidate = candidate->ai_next) {
        party->zero_address = pici_address_of(candidate);
        struct place place = pici_address_place(&party->zero_address);
        const struct addrinfo numbers = {.ai_flags = AI_NUMERICHOST};
        const int is_name = getaddrinfo(host, NULL, &numbers, &number) != 0;
        if (!is_name)
            freeaddrinfo(number);
        if (is_name && pici_place_loopback(&place) && party->token[0] && strcmp(host, "localhost") != 0) {
            memset(place.address, 0, sizeof place.address);
            party->zero_address = pici_address_at(&place, &party->zero_address);
        }
        if (!party->token[0] && !pici_place_loopback(&place)) {
            freeaddrinfo(found);
            return fail(party, PICI_E_ARG,
                        "the address \"%.100s\" is reachable from other hosts: set a token (PICI_TOKEN)",
                        party->address);
        }
        fd = pici_address_listen(&party->zero_address, any, 0);
        error = errno;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return fail(party, PICI_E_TRANSPORT, "cannot listen at %.100s: %s", party->address, strerror(error));
    party->places[0] = pici_address_place(&party->zero_address);
    pici_pending_open(&party->pending, fd, party->token, party->keys);
    return PICI_OK;
}

/* Keep the socket of a rank that has come, or note why it does not belong here. Returns 0 if too many do not belong. */
static int welcome(struct party *party, int fd, const struct greeting *greeting, const struct greeting *own)
{
    char explanation[VERDICT_TEXT];
    int wrong = pici_greeting_wrong(greeting, own, -1, explanation, sizeof explanation);
    if (!wrong && party->fds[greeting->rank] >= 0) {
        struct address address;
        char here[ADDRESS_TEXT], there[ADDRESS_TEXT];
        struct place one = {0}, other = {0};
        if (pici_address_peer(party->fds[greeting->rank], &address))
            one = pici_address_place(&address);
        if (pici_address_peer(fd, &address))
            other = pici_address_place(&address);
        pici_address_text(&one, here);
        pici_address_text(&other, there);
        snprintf(explanation, sizeof explanation, "two processes claim rank %lu: from %s and from %s",
                 (unsigned long)greeting->rank, here, there);
        wrong = 1;
    }
    if (!wrong && (greeting->place.family == 0) != (own->kind == GREETING_LINK)) {
        snprintf(explanation, sizeof explanation, "rank %lu does not say where it listens",
                 (unsigned long)greeting->rank);
        wrong = 1;
    }
    if (!wrong) {
        party->fds[greeting->rank] = fd;
        party->places[greeting->rank] = own->kind == GREETING_JOIN ? greeting->place : party->places[greeting->rank];
        return 1;
    }
    (void)fail(party, PICI_E_PEER, "%s", explanation);
    if (party->unexpected_count == party->ranks)
        return 0;
    party->unexpected[party->unexpected_count++] = fd;
    return 1;
}

/* Whether a rank that has joined is gone, or sends too early. */
static int has_left(int fd)
{
    char byte;
    const ssize_t received = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return received >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Wait until an unauthenticated peer, or one of `count` sockets, has an event. Returns 0 without memory. */
static int wait_for(const struct party *party, const int *fds, int count, int timeout_ms)
{
    struct pollfd *polls = calloc((size_t)count + PENDING + 1, sizeof *polls);
    if (!polls)
        return 0;
    int polled = pici_pending_polls(&party->pending, polls);
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            polls[polled++] = (struct pollfd){.fd = fds[i], .events = POLLIN | POLLRDHUP};
    (void)poll(polls, (nfds_t)polled, timeout_ms); /* if poll fails, the caller tries all */
    free(polls);
    return 1;
}

/* Note a timeout that names the missing ranks from `first` on. */
static void name_missing(struct party *party, int first)
{
    char list[NAMED * 12 + 32] = "";
    size_t offset = 0;
    int missing = 0;
    for (int i = first; i < party->ranks; i++) {
        if (i == party->rank || party->fds[i] >= 0)
            continue;
        if (missing++ < NAMED)
            offset += (size_t)snprintf(list + offset, sizeof list - offset, "%s%d", offset ? ", " : "", i);
    }
    if (missing > NAMED)
        snprintf(list + offset, sizeof list - offset, " and %d more", missing - NAMED);
    char rejected[64] = "";
    if (party->pending.rejected)
        snprintf(rejected, sizeof rejected, "; rejected %d connection%s (bad token%s)", party->pending.rejected,
                 party->pending.rejected > 1 ? "s" : "", party->keys ? ", or no PICI_SOCKET_TLS" : "");
    (void)fail(party, PICI_E_TIMEOUT, "timed out after %d ms waiting for rank%s %s of %d%s", party->timeout_ms,
               missing > 1 ? "s" : "", list, party->ranks, rejected);
}

/* Accept the waiting ranks. Returns the number of missing ranks that came. *most: the largest number of other ranks
 * that any rank has named. */
static int welcome_all(struct party *party, const struct greeting *own, int *most)
{
    struct greeting greeting;
    int fd, came = 0;
    while (pici_pending_next(&party->pending, &fd, &greeting)) {
        /* a second process with a rank's number is no missing rank */
        came += greeting.rank >= (uint32_t)party->ranks || party->fds[greeting.rank] < 0;
        if (!welcome(party, fd, &greeting, own))
            pici_secure_close(fd);
        if (greeting.ranks > (uint32_t)*most && greeting.ranks <= COLL_MAX_RANKS)
            *most = (int)greeting.ranks - 1;
    }
    return came;
}

static enum pici_status answer(struct party *party);

/* Rank 0 has no descriptor for another connection. Answer and close the existing ones, so that the other ranks can
 * connect and get the error too. Returns the number closed. */
static int make_room(struct party *party)
{
    int closed = party->unexpected_count;
    (void)fail(party, PICI_E_TRANSPORT, "cannot accept another connection: %s", strerror(party->pending.error));
    (void)answer(party);
    for (int i = 1; i < party->ranks; i++)
        if (party->fds[i] >= 0) {
            pici_secure_close(party->fds[i]);
            party->fds[i] = -1;
            closed++;
        }
    for (int i = 0; i < party->unexpected_count; i++)
        pici_secure_close(party->unexpected[i]);
    party->unexpected_count = 0;
    return closed + pici_pending_give_up_spare(&party->pending);
}

/* Let all others join, or as many as come in time. After an error, wait briefly for the rest: for as many as any rank
 * has named. */
static enum pici_status let_join(struct party *party)
{
    const struct greeting own = pici_greeting(GREETING_JOIN, 0, party->ranks, 0);
    int64_t deadline = party->deadline;
    int came = 0, most = party->ranks - 1;
    while (came < most && pici_meet_left(deadline)) {
        came += welcome_all(party, &own, &most);
        /* a peer that has only just come keeps its descriptor for now */
        const int stuck = party->pending.error && (party->pending.waiting || !make_room(party));
        if (!stuck)
            party->pending.error = 0;
        for (int i = 1; i < party->ranks; i++)
            if (party->fds[i] >= 0 && has_left(party->fds[i])) {
                (void)fail(party, PICI_E_PEER, "rank %d joined, but disconnected before all ranks had joined", i);
                pici_secure_close(party->fds[i]);
                party->fds[i] = -1;
            }
        if (party->fault.status && deadline > pici_meet_deadline(FAULT_MS))
            deadline = pici_meet_deadline(FAULT_MS);
        const int remaining = pici_meet_left(deadline);
        if (came < most &&
            !wait_for(party, party->fds, party->ranks, stuck && remaining > NAP_MOST_MS ? NAP_MOST_MS : remaining))
            return fail(party, PICI_E_NOMEM, "no memory for %d ranks", party->ranks);
        party->pending.error = 0;
    }
    came += welcome_all(party, &own, &most); /* finds a second process with the number of a rank that has joined */
    if (came < most)
        name_missing(party, 1);
    return party->fault.status;
}

/* Find a rank that only its own host can reach while other ranks are on other hosts: they cannot connect. */
static void look_at_places(struct party *party)
{
    int near = -1, far = -1;
    for (int i = 1; i < party->ranks; i++)
        if (pici_place_loopback(&party->places[i]))
            near = i;
        else
            far = i;
    if (near >= 0 && far >= 0)
        (void)fail(party, PICI_E_ARG,
                   "rank %d can be reached only from its own host, and rank %d is on another: PICI_SOCKET_IFNAME names "
                   "the network interface to use",
                   near, far);
}

/* Send the verdict to all ranks that have come. If it is good, send the places of all too. */
static enum pici_status answer(struct party *party)
{
    const int sockets = party->ranks + party->unexpected_count;
    const size_t bytes = VERDICT_BYTES + (party->fault.status ? 0 : (size_t)party->ranks * PLACE_BYTES);
    struct meet_side *sides = calloc((size_t)sockets, sizeof *sides);
    uint8_t *output = malloc(bytes);
    enum pici_status s = sides && output ? PICI_OK : PICI_E_NOMEM;
    if (!s) {
        pici_verdict_put(output, &party->fault);
        for (int i = 0; i < party->ranks && !party->fault.status; i++)
            pici_place_put(output + VERDICT_BYTES + (size_t)i * PLACE_BYTES, &party->places[i]);
        for (int i = 0; i < sockets; i++)
            sides[i] = (struct meet_side){.fd = i < party->ranks ? party->fds[i] : party->unexpected[i - party->ranks],
                                          .outgoing = output,
                                          .out_bytes = bytes};
        s = pici_meet(sides, sockets, pici_meet_deadline(party->timeout_ms), ANSWER_MS);
    }
    for (int i = 0; i < party->ranks && !s; i++)
        if (sides[i].status)
            (void)fail(party, sides[i].status, "rank %d disconnected before all ranks had joined", i);
    free(sides);
    free(output);
    return s ? fail(party, s, "no memory for %d ranks", party->ranks) : party->fault.status;
}

static enum pici_status be_zero(struct party *party, const char *host, const char *port)
{
    enum pici_status status = listen_as_zero(party, host, port);
    if (status)
        return status;
    if (!let_join(party))
        look_at_places(party);
    pici_pending_close(&party->pending); /* before any rank goes on: the next rendezvous may be at the same address */
    return answer(party);
}

/* ---- the others */

static void nap(int ms)
{
    const struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* Connect to rank 0, as soon as it listens. */
static enum pici_status reach_zero(struct party *party, const char *host, const char *port)
{
    int error = 0, named = 0;
    for (int pause = NAP_LEAST_MS;; pause = 2 * pause < NAP_MOST_MS ? 2 * pause : NAP_MOST_MS) {
        struct addrinfo *found = NULL;
        named = pici_address_resolve(host, port, &found);
        if (named && named != EAI_AGAIN)
            return fail(party, PICI_E_ARG, "the address \"%.100s\": %s", party->address, gai_strerror(named));
        for (const struct addrinfo *candidate = named ? NULL : found; candidate && party->fds[0] < 0;
             candidate = candidate->ai_next) {
            const struct address address = pici_address_of(candidate);
            const struct place place = pici_address_place(&address);
            if (!party->token[0] && !pici_place_loopback(&place)) {
                freeaddrinfo(found);
                return fail(party, PICI_E_ARG,
                            "the address \"%.100s\" is reachable from other hosts: set a token (PICI_TOKEN)",
                            party->address);
            }
            const int64_t soon = pici_meet_deadline(ATTEMPT_MS);
            party->fds[0] = pici_address_connect(&address, soon < party->deadline ? soon : party->deadline);
            error = errno;
        }
        if (!named)
            freeaddrinfo(found);
        if (party->fds[0] >= 0 && !pici_secure_begin(party->keys, party->fds[0], 0))
            return fail(party, PICI_E_NOMEM, "no memory for a rendezvous");
        if (party->fds[0] >= 0)
            break;
        const int remaining = pici_meet_left(party->deadline);
        if (!remaining)
            return fail(party, PICI_E_TIMEOUT, "timed out after %d ms connecting to rank 0 at %.100s: %s",
                        party->timeout_ms, party->address, named ? gai_strerror(named) : strerror(error));
        nap(pause < remaining ? pause : remaining);
    }
    if (!pici_address_own(party->fds[0], &party->zero_address))
        return fail(party, PICI_E_TRANSPORT, "the connection to rank 0: %s", strerror(errno));
    return PICI_OK;
}

/* Listen where the other ranks can reach this one. */
static enum pici_status listen_as_other(struct party *party)
{
    const char *name = party->settings.interface;
    static const int any[2];
    struct address address = party->zero_address;
    if (name && !pici_address_interface(name, party->zero_address.storage.ss_family, &address))
        return fail(party, PICI_E_ARG, "PICI_SOCKET_IFNAME: the network interface \"%.40s\" has no address", name);
    struct place place = pici_address_place(&address);
    if (!party->token[0] && !pici_place_loopback(&place))
        return fail(
            party, PICI_E_ARG,
            "this rank would listen on an address that is reachable from other hosts: set a token (PICI_TOKEN)");
    place.port = 0;
    address = pici_address_at(&place, &address);
    const int fd = pici_address_listen(&address, party->settings.ports[0] ? party->settings.ports : any, party->rank);
    if (fd < 0 && party->settings.ports[0])
        return fail(party, PICI_E_TRANSPORT, "cannot listen at a port of %d to %d (PICI_SOCKET_PORTS): %s",
                    party->settings.ports[0], party->settings.ports[1], strerror(errno));
    if (fd < 0)
        return fail(party, PICI_E_TRANSPORT, "cannot listen: %s", strerror(errno));
    party->places[party->rank] = pici_address_place(&address);
    pici_pending_open(&party->pending, fd, party->token, party->keys);
    return PICI_OK;
}

/* Whether a peer closed a connection before it read everything: then the system reports a reset. */
static int is_unread(const struct meet_side *side)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    return side->status == PICI_E_PEER &&
           (side->error || side->deaf || (getsockopt(side->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error));
}

/* Exchange bytes with rank 0. */
static enum pici_status with_zero(struct party *party, const uint8_t *output, size_t out_bytes, uint8_t *in,
                                  size_t in_bytes)
{
    struct meet_side side = {
        .fd = party->fds[0], .outgoing = output, .out_bytes = out_bytes, .incoming = in, .in_bytes = in_bytes};
    const int timeout_ms = party->timeout_ms < 0 ? -1 : party->timeout_ms + ANSWER_MS;
    enum pici_status status = pici_meet(&side, 1, pici_meet_deadline(timeout_ms), 0);
    party->unread = is_unread(&side);
    if (status)
        return fail(party, status, "no memory for a rendezvous");
    if (side.status == PICI_E_PEER)
        return fail(
            party, PICI_E_PEER,
            "rank 0 at %.100s rejected the connection: check that the token and PICI_SOCKET_TLS are the same, and "
            "that no other process is rank %d",
            party->address, party->rank);
    if (side.status && side.error)
        return fail(party, side.status, "no answer from rank 0 at %.100s: %s", party->address, strerror(side.error));
    if (side.status)
        return fail(party, side.status, "no answer from rank 0 at %.100s", party->address);
    return PICI_OK;
}

/* Greet rank 0, and receive its verdict. If too many unauthenticated peers wait, rank 0 drops the oldest connections
 * without a greeting. One of them may be this rank's: then connect again. */
static enum pici_status greet_zero(struct party *party, const char *host, const char *port, uint8_t *verdict)
{
    const struct greeting own = greeting_of(party, GREETING_JOIN, 0);
    const int64_t deadline = party->deadline;
    uint8_t greeting[GREETING_BYTES];
    pici_greeting_put(greeting, &own);
    enum pici_status status = with_zero(party, greeting, sizeof greeting, verdict, VERDICT_BYTES);
    for (int pause = NAP_LEAST_MS; status && party->unread && pause <= AGAIN_MOST_MS; pause *= 2) {
        const struct greeting_verdict fault = party->fault;
        const int64_t soon = pici_meet_deadline(ATTEMPT_MS);
        party->fault = (struct greeting_verdict){0};
        pici_secure_close(party->fds[0]);
        party->fds[0] = -1;
        nap(pause);
        party->deadline = soon < deadline ? soon : deadline;
        if (reach_zero(party, host, port)) {
            party->fault = fault;
            break;
        }
        status = with_zero(party, greeting, sizeof greeting, verdict, VERDICT_BYTES);
    }
    party->deadline = deadline;
    return status;
}

/* Tell rank 0 where this rank listens, and learn where the others do. */
static enum pici_status join(struct party *party, const char *host, const char *port)
{
    const size_t bytes = (size_t)party->ranks * PLACE_BYTES;
    uint8_t verdict[VERDICT_BYTES], *table;
    struct greeting_verdict answer_of_zero;
    enum pici_status status = greet_zero(party, host, port, verdict);
    if (status)
        return status;
    if (pici_verdict_get(&answer_of_zero, verdict))
        return fail(party, PICI_E_PEER, "the peer at %.100s is not rank 0 of this job: check PICI_RENDEZVOUS",
                    party->address);
    if (answer_of_zero.status) {
        party->fault = answer_of_zero;
        return answer_of_zero.status;
    }
    table = malloc(bytes);
    if (!table)
        return fail(party, PICI_E_NOMEM, "no memory for %d ranks", party->ranks);
    status = with_zero(party, NULL, 0, table, bytes);
    for (int i = 1; i < party->ranks && !status; i++)
        if (pici_place_get(&party->places[i], table + (size_t)i * PLACE_BYTES) || !party->places[i].family)
            status = fail(party, PICI_E_CORRUPT, "rank 0 does not say where rank %d listens", i);
    free(table);
    return status;
}

/* Connect to a lower rank other than 0, and greet it. */
static enum pici_status link_to(struct party *party, int rank)
{
    const struct address target = pici_address_at(&party->places[rank], &party->zero_address);
    struct greeting own = greeting_of(party, GREETING_LINK, rank);
    uint8_t greeting[GREETING_BYTES];
    char address_text[ADDRESS_TEXT];
    own.place = (struct place){0};
    pici_greeting_put(greeting, &own);
    pici_address_text(&party->places[rank], address_text);
    const int fd = party->fds[rank] = pici_address_connect(&target, party->deadline);
    if (fd < 0)
        return fail(party, errno == ETIMEDOUT ? PICI_E_TIMEOUT : PICI_E_TRANSPORT, "rank %d at %s: %s", rank,
                    address_text, strerror(errno));
    if (!pici_secure_begin(party->keys, fd, 0))
        return fail(party, PICI_E_NOMEM, "no memory for a rendezvous");
    struct meet_side side = {.fd = fd, .outgoing = greeting, .out_bytes = sizeof greeting};
    const enum pici_status status = pici_meet(&side, 1, party->deadline, 0);
    if (status || side.status)
        return fail(party, status ? status : side.status, "rank %d at %s closed the connection", rank, address_text);
    return PICI_OK;
}

/* Rank 0 has ended its connection: read its greeting, and its verdict if it sent one. */
static enum pici_status hear_zero(struct party *party)
{
    uint8_t in[GREETING_BYTES + VERDICT_BYTES];
    struct meet_side side = {.fd = party->fds[0], .incoming = in, .in_bytes = sizeof in};
    struct greeting_verdict verdict;
    if (pici_meet(&side, 1, pici_meet_now(), 0) == PICI_OK && side.status == PICI_OK &&
        pici_verdict_get(&verdict, in + GREETING_BYTES) == PICI_OK && verdict.status) {
        party->fault = verdict;
        return verdict.status;
    }
    return fail(party, PICI_E_PEER, "rank 0 aborted while the ranks connected to each other");
}

/* Accept connections of the higher ranks. Rank 0 is the first to know that one of them is gone, and then closes its
 * connection. */
static enum pici_status let_link(struct party *party)
{
    const struct greeting own = pici_greeting(GREETING_LINK, party->rank, party->ranks, 0);
    int missing = party->ranks - 1 - party->rank;
    while (missing && !party->fault.status && pici_meet_left(party->deadline)) {
        struct greeting greeting;
        struct pollfd zero = {.fd = party->fds[0], .events = POLLRDHUP};
        int fd;
        while (pici_pending_next(&party->pending, &fd, &greeting)) {
            if (greeting.rank <= (uint32_t)party->rank || !welcome(party, fd, &greeting, &own)) {
                (void)fail(party, PICI_E_PEER, "rank %lu connected to rank %d", (unsigned long)greeting.rank,
                           party->rank);
                pici_secure_close(fd);
            }
            missing--;
        }
        if (missing <= 0)
            break;
        if (party->pending.error && !party->pending.waiting)
            return fail(party, PICI_E_TRANSPORT, "cannot accept another connection: %s",
                        strerror(party->pending.error));
        if (poll(&zero, 1, 0) > 0)
            return hear_zero(party);
        /* rank 0 may have sent bytes already, so do not wait for its socket */
        const int remaining = pici_meet_left(party->deadline);
        if (!wait_for(party, NULL, 0, remaining < NAP_MOST_MS ? remaining : NAP_MOST_MS))
            return fail(party, PICI_E_NOMEM, "no memory for %d ranks", party->ranks);
        party->pending.error = 0;
    }
    if (missing && !party->fault.status)
        name_missing(party, party->rank + 1);
    return party->fault.status;
}

static enum pici_status be_other(struct party *party, const char *host, const char *port)
{
    enum pici_status status = reach_zero(party, host, port);
    if (!status)
        status = listen_as_other(party);
    if (!status)
        status = join(party, host, port);
    party->deadline = pici_meet_deadline(party->timeout_ms);
    for (int i = 1; i < party->rank && !status; i++)
        status = link_to(party, i);
    if (!status)
        status = let_link(party);
    pici_pending_close(&party->pending);
    return status;
}

/* ---- rank 0 and the others */

/* Make keys from the token, or from the files that the environment names. Encrypted connections carry a substitute for
 * the token. */
static enum pici_status encrypt_pairs(struct party *party)
{
    const struct coll_settings *settings = &party->settings;
    const struct secure_files files = {settings->tls_certificate, settings->tls_key, settings->tls_authority};
    char token[GREETING_TOKEN + 1] = "", explanation[VERDICT_TEXT];
    enum pici_status status;
    memcpy(token, party->token, GREETING_TOKEN);
    if (!token[0])
        return fail(party, PICI_E_ARG, "PICI_SOCKET_TLS needs a token: set one (PICI_TOKEN)");
    party->keys = pici_secure_keys(token, &files, &status, explanation, sizeof explanation);
    if (!party->keys)
        return fail(party, status, "%s", explanation);
    pici_secure_token(party->keys, party->token);
    return PICI_OK;
}

/* Fill in from the environment what the caller leaves out. */
static enum pici_status resolve(struct party *party, const char *address, int rank, int ranks, const char *token)
{
    const struct coll_settings *settings = &party->settings;
    party->rank = rank < 0 || (ranks == 0 && rank == 0) ? settings->rank : rank;
    party->ranks = ranks == 0 ? settings->ranks : ranks;
    party->address = address ? address : settings->rendezvous;
    party->timeout_ms = settings->timeout_ms;
    if (!token)
        token = settings->token ? settings->token : "";
    if (!party->ranks)
        return fail(party, PICI_E_ARG, "number of ranks not set: pass it, set PICI_RANKS, or start with pici-run");
    if (party->rank < 0)
        return fail(party, PICI_E_ARG, "rank not set: pass it, set PICI_RANK, or start with pici-run");
    if (party->ranks < 1 || party->ranks > COLL_MAX_RANKS || party->rank >= party->ranks)
        return fail(party, PICI_E_ARG, "rank %d out of range (world size %d)", party->rank, party->ranks);
    if (!party->address && party->ranks > 1)
        return fail(party, PICI_E_ARG,
                    "address of rank 0 not set: pass it, set PICI_RENDEZVOUS, or start with pici-run");
    if (settings->interface && !if_nametoindex(settings->interface))
        return fail(party, PICI_E_ARG, "PICI_SOCKET_IFNAME: there is no network interface \"%.40s\"",
                    settings->interface);
    if (strlen(token) > GREETING_TOKEN)
        return fail(party, PICI_E_ARG, "the token has %zu bytes, more than %d", strlen(token), GREETING_TOKEN);
    memcpy(party->token, token, strlen(token));
    return settings->tls ? encrypt_pairs(party) : PICI_OK;
}

static enum pici_status gather(struct party *party)
{
    char host[ADDRESS_HOST], port[ADDRESS_PORT];
    const size_t count = (size_t)party->ranks;
    party->fds = malloc(count * sizeof *party->fds);
    party->unexpected = malloc(count * sizeof *party->unexpected);
    party->places = calloc(count, sizeof *party->places);
    if (!party->fds || !party->unexpected || !party->places) {
        free(party->fds);
        party->fds = NULL; /* there are no sockets to close yet */
        return fail(party, PICI_E_NOMEM, "no memory for %d ranks", party->ranks);
    }
    for (int i = 0; i < party->ranks; i++)
        party->fds[i] = -1;
    if (party->address && !pici_address_parse(party->address, host, port))
        return fail(party, PICI_E_ARG, "the address \"%.100s\" is not HOST:PORT", party->address);
    if (party->ranks == 1)
        return PICI_OK;
    party->deadline = pici_meet_deadline(party->timeout_ms);
    return party->rank ? be_other(party, host, port) : be_zero(party, host, port);
}

enum pici_status pici_comm_rendezvous(struct pici_comm **output, const char *address, int rank, int ranks,
                                      const char *token)
{
    struct party *party = calloc(1, sizeof *party);
    char explanation[VERDICT_TEXT + 32];
    if (output)
        *output = NULL;
    if (!output || !party) {
        pici_comm_failed(output ? "no memory for a rendezvous" : "the pointer to the new communicator is NULL");
        free(party);
        return output ? PICI_E_NOMEM : PICI_E_ARG;
    }
    party->pending.listener = party->pending.spare = -1;
    enum pici_status status = pici_settings_read(&party->settings, explanation, sizeof explanation);
    if (status) {
        pici_comm_failed(explanation);
        free(party);
        return status;
    }
    status = resolve(party, address, rank, ranks, token);
    if (status) {
        pici_comm_failed(party->fault.text);
        free(party);
        return status;
    }
    status = gather(party);
    /* the communicator owns the sockets, even if this call fails */
    if (!status)
        status = pici_comm_sockets(output, party->fds, party->rank, party->ranks);
    else {
        snprintf(explanation, sizeof explanation, "rank %lu: %s", (unsigned long)party->fault.rank, party->fault.text);
        pici_comm_failed(explanation);
        for (int i = 0; i < party->ranks && party->fds; i++)
            if (party->fds[i] >= 0)
                pici_secure_close(party->fds[i]);
    }
    for (int i = 0; i < party->unexpected_count; i++)
        pici_secure_close(party->unexpected[i]);
    free(party->fds);
    free(party->unexpected);
    free(party->places);
    pici_secure_keys_free(party->keys);
    free(party);
    return status;
}
