/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators among processes that know one address.
 *
 * Rank 0 listens there. Each other rank connects to it, listens at a port of its own, and joins: its greeting has that
 * place. When all have joined, rank 0 sends each of them its verdict and, if that is good, the places of all. Then rank
 * i connects to the ranks 1 to i - 1, and accepts connections of the ranks i + 1 to p - 1; its connection to rank 0 it
 * has. A connection is accepted by the system before the process accepts it, so no rank waits for another while it
 * connects. The rest is as for sockets of the caller. */
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
#include "transport/guests.h"
#include "transport/meet.h"

enum {
    NAP_LEAST_MS = 10, /* between two attempts to reach rank 0; twice as long each time */
    NAP_MOST_MS = 250,
    ATTEMPT_MS = 5000,   /* for one of rank 0's addresses */
    FAULT_MS = 3000,     /* that ranks have left to come, once something is wrong, so that they are told too */
    ANSWER_MS = 2000,    /* that rank 0 may take to answer after its own timeout */
    AGAIN_MOST_MS = 160, /* the longest pause before a rank greets again; twice as long each time */
    NAMED = 8            /* ranks that are named in a message at the most */
};

struct party {
    int rank, ranks;
    int timeout_ms;
    int64_t deadline;
    const char *address;        /* of rank 0, as the caller writes it */
    char token[GREETING_TOKEN]; /* padded with zeros */
    struct coll_settings settings;
    int *fds;             /* [ranks] sockets to those that are there; else -1 */
    struct place *places; /* [ranks] where they listen */
    int *odd;             /* sockets of ranks that should not be there: they are told the verdict */
    int odds;
    int unread;          /* rank 0 has closed the connection before it read what this rank sent */
    struct address zero; /* this end of the connection to rank 0; of rank 0 itself, where it listens */
    struct guests guests;
    struct greeting_verdict fault;
};

/* Note what is wrong, if nothing was before. */
__attribute__((format(printf, 3, 4))) static enum pici_status fail(struct party *p, enum pici_status s,
                                                                   const char *format, ...)
{
    va_list args;
    if (p->fault.status)
        return p->fault.status;
    va_start(args, format);
    vsnprintf(p->fault.words, sizeof p->fault.words, format, args);
    va_end(args);
    p->fault.rank = (uint32_t)p->rank;
    p->fault.status = s;
    return s;
}

static struct greeting greeting_of(const struct party *p, enum greeting_kind kind, int peer)
{
    struct greeting g = pici_greeting(kind, p->rank, p->ranks, peer);
    memcpy(g.token, p->token, sizeof g.token);
    g.place = p->places[p->rank];
    return g;
}

/* ---- rank 0 */

/* A name that means loopback here, as a host's own name may, is no address that others can reach: then listen at all
 * addresses. That needs a token, as any address does that others reach. */
static enum pici_status listen_as_zero(struct party *p, const char *host, const char *port)
{
    static const int any[2];
    struct addrinfo *found, *number;
    int fd = -1, error = 0;
    const int named = pici_address_resolve(host, port, &found);
    if (named)
        return fail(p, PICI_E_ARG, "the address \"%.100s\": %s", p->address, gai_strerror(named));
    for (const struct addrinfo *i = found; i && fd < 0; i = i->ai_next) {
        p->zero = pici_address_of(i);
        struct place place = pici_address_place(&p->zero);
        const struct addrinfo numbers = {.ai_flags = AI_NUMERICHOST};
        const int is_name = getaddrinfo(host, NULL, &numbers, &number) != 0;
        if (!is_name)
            freeaddrinfo(number);
        if (is_name && pici_place_loopback(&place) && p->token[0] && strcmp(host, "localhost") != 0) {
            memset(place.address, 0, sizeof place.address);
            p->zero = pici_address_at(&place, &p->zero);
        }
        if (!p->token[0] && !pici_place_loopback(&place)) {
            freeaddrinfo(found);
            return fail(p, PICI_E_ARG, "the address \"%.100s\" can be reached from other hosts: that needs a token",
                        p->address);
        }
        fd = pici_address_listen(&p->zero, any, 0);
        error = errno;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return fail(p, PICI_E_TRANSPORT, "cannot listen at %.100s: %s", p->address, strerror(error));
    p->places[0] = pici_address_place(&p->zero);
    pici_guests_open(&p->guests, fd, p->token);
    return PICI_OK;
}

/* A rank has come: keep its socket, or note why it should not be there. Returns 0 if there are too many of these. */
static int welcome(struct party *p, int fd, const struct greeting *g, const struct greeting *own)
{
    char words[VERDICT_WORDS];
    int wrong = pici_greeting_wrong(g, own, -1, words, sizeof words);
    if (!wrong && p->fds[g->rank] >= 0) {
        struct address a;
        char here[ADDRESS_WORDS], there[ADDRESS_WORDS];
        struct place one = {0}, other = {0};
        if (pici_address_peer(p->fds[g->rank], &a))
            one = pici_address_place(&a);
        if (pici_address_peer(fd, &a))
            other = pici_address_place(&a);
        pici_address_words(&one, here);
        pici_address_words(&other, there);
        snprintf(words, sizeof words, "two processes are rank %lu: from %s and from %s", (unsigned long)g->rank, here,
                 there);
        wrong = 1;
    }
    if (!wrong && (g->place.family == 0) != (own->kind == GREETING_LINK)) {
        snprintf(words, sizeof words, "rank %lu does not say where it listens", (unsigned long)g->rank);
        wrong = 1;
    }
    if (!wrong) {
        p->fds[g->rank] = fd;
        p->places[g->rank] = own->kind == GREETING_JOIN ? g->place : p->places[g->rank];
        return 1;
    }
    (void)fail(p, PICI_E_PEER, "%s", words);
    if (p->odds == p->ranks)
        return 0;
    p->odd[p->odds++] = fd;
    return 1;
}

/* Whether a rank that has joined is gone, or says what it should not yet say. */
static int has_left(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Wait until a guest moves, or one of so many sockets. Returns 0 without memory. */
static int wait_for(const struct party *p, const int *fds, int n, int timeout_ms)
{
    struct pollfd *polls = calloc((size_t)n + GUESTS + 1, sizeof *polls);
    if (!polls)
        return 0;
    int k = pici_guests_polls(&p->guests, polls);
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            polls[k++] = (struct pollfd){.fd = fds[i], .events = POLLIN | POLLRDHUP};
    (void)poll(polls, (nfds_t)k, timeout_ms); /* if it fails, all are tried */
    free(polls);
    return 1;
}

/* Name the ranks from `first` on that are not there. */
static void name_missing(struct party *p, int first)
{
    char list[NAMED * 12 + 32] = "";
    size_t at = 0;
    int missing = 0;
    for (int i = first; i < p->ranks; i++) {
        if (i == p->rank || p->fds[i] >= 0)
            continue;
        if (missing++ < NAMED)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", i);
    }
    if (missing > NAMED)
        snprintf(list + at, sizeof list - at, " and %d more", missing - NAMED);
    (void)fail(p, PICI_E_TIMEOUT, "rank%s %s of %d did not come in %d ms; connections without the token: %d",
               missing > 1 ? "s" : "", list, p->ranks, p->timeout_ms, p->guests.strangers);
}

/* Take in those that wait. Returns how many others than before have come; *most is how many anybody says there are. */
static int welcome_all(struct party *p, const struct greeting *own, int *most)
{
    struct greeting g;
    int fd, came = 0;
    while (pici_guests_next(&p->guests, &fd, &g)) {
        came +=
            g.rank >= (uint32_t)p->ranks || p->fds[g.rank] < 0; /* a second process as a rank is none that is missing */
        if (!welcome(p, fd, &g, own))
            close(fd);
        if (g.ranks > (uint32_t)*most && g.ranks <= COLL_MAX_RANKS)
            *most = (int)g.ranks - 1;
    }
    return came;
}

static enum pici_status answer(struct party *p);

/* No connection can be accepted, for want of descriptors. Those that are there are told and closed, so that there are
 * descriptors again, for the rest to be told. Returns how many were closed. */
static int make_room(struct party *p)
{
    int closed = p->odds;
    (void)fail(p, PICI_E_TRANSPORT, "cannot accept another connection: %s", strerror(p->guests.error));
    (void)answer(p);
    for (int i = 1; i < p->ranks; i++)
        if (p->fds[i] >= 0) {
            close(p->fds[i]);
            p->fds[i] = -1;
            closed++;
        }
    for (int i = 0; i < p->odds; i++)
        close(p->odd[i]);
    p->odds = 0;
    return closed + pici_guests_give_up_spare(&p->guests);
}

/* Let all others join, or as many as come in time. After a fault, wait a little for the rest: as many as anybody says
 * that there are. */
static enum pici_status let_join(struct party *p)
{
    const struct greeting own = pici_greeting(GREETING_JOIN, 0, p->ranks, 0);
    int64_t deadline = p->deadline;
    int came = 0, most = p->ranks - 1;
    while (came < most && pici_meet_left(deadline)) {
        came += welcome_all(p, &own, &most);
        /* a guest that has only just come keeps its descriptor for now */
        const int stuck = p->guests.error && (p->guests.n || !make_room(p));
        if (!stuck)
            p->guests.error = 0;
        for (int i = 1; i < p->ranks; i++)
            if (p->fds[i] >= 0 && has_left(p->fds[i])) {
                (void)fail(p, PICI_E_PEER, "rank %d came, but left before all others were there", i);
                close(p->fds[i]);
                p->fds[i] = -1;
            }
        if (p->fault.status && deadline > pici_meet_deadline(FAULT_MS))
            deadline = pici_meet_deadline(FAULT_MS);
        const int left = pici_meet_left(deadline);
        if (came < most && !wait_for(p, p->fds, p->ranks, stuck && left > NAP_MOST_MS ? NAP_MOST_MS : left))
            return fail(p, PICI_E_NOMEM, "no memory for %d ranks", p->ranks);
        p->guests.error = 0;
    }
    came += welcome_all(p, &own, &most); /* a second process as a rank that has joined */
    if (came < most)
        name_missing(p, 1);
    return p->fault.status;
}

/* Ranks of several hosts cannot all connect if one of them listens where only its own host can reach it. */
static void look_at_places(struct party *p)
{
    int near = -1, far = -1;
    for (int i = 1; i < p->ranks; i++)
        if (pici_place_loopback(&p->places[i]))
            near = i;
        else
            far = i;
    if (near >= 0 && far >= 0)
        (void)fail(p, PICI_E_ARG,
                   "rank %d can be reached only from its own host, and rank %d is on another: PICI_SOCKET_IFNAME names "
                   "the network interface to use",
                   near, far);
}

/* Send the verdict to all that are there, and the places of all if it is good. */
static enum pici_status answer(struct party *p)
{
    const int n = p->ranks + p->odds;
    const size_t bytes = VERDICT_BYTES + (p->fault.status ? 0 : (size_t)p->ranks * PLACE_BYTES);
    struct meet_side *sides = calloc((size_t)n, sizeof *sides);
    uint8_t *out = malloc(bytes);
    enum pici_status s = sides && out ? PICI_OK : PICI_E_NOMEM;
    if (!s) {
        pici_verdict_put(out, &p->fault);
        for (int i = 0; i < p->ranks && !p->fault.status; i++)
            pici_place_put(out + VERDICT_BYTES + (size_t)i * PLACE_BYTES, &p->places[i]);
        for (int i = 0; i < n; i++)
            sides[i] = (struct meet_side){
                .fd = i < p->ranks ? p->fds[i] : p->odd[i - p->ranks], .out = out, .out_bytes = bytes};
        s = pici_meet(sides, n, pici_meet_deadline(p->timeout_ms), ANSWER_MS);
    }
    for (int i = 0; i < p->ranks && !s; i++)
        if (sides[i].status)
            (void)fail(p, sides[i].status, "rank %d left before all others were there", i);
    free(sides);
    free(out);
    return s ? fail(p, s, "no memory for %d ranks", p->ranks) : p->fault.status;
}

static enum pici_status be_zero(struct party *p, const char *host, const char *port)
{
    enum pici_status s = listen_as_zero(p, host, port);
    if (s)
        return s;
    if (!let_join(p))
        look_at_places(p);
    pici_guests_close(&p->guests); /* before anybody goes on: the next rendezvous may be at the same address */
    return answer(p);
}

/* ---- the others */

static void nap(int ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Connect to rank 0, as soon as it listens. */
static enum pici_status reach_zero(struct party *p, const char *host, const char *port)
{
    int error = 0, named = 0;
    for (int pause = NAP_LEAST_MS;; pause = 2 * pause < NAP_MOST_MS ? 2 * pause : NAP_MOST_MS) {
        struct addrinfo *found = NULL;
        named = pici_address_resolve(host, port, &found);
        if (named && named != EAI_AGAIN)
            return fail(p, PICI_E_ARG, "the address \"%.100s\": %s", p->address, gai_strerror(named));
        for (const struct addrinfo *i = named ? NULL : found; i && p->fds[0] < 0; i = i->ai_next) {
            const struct address a = pici_address_of(i);
            const struct place place = pici_address_place(&a);
            if (!p->token[0] && !pici_place_loopback(&place)) {
                freeaddrinfo(found);
                return fail(p, PICI_E_ARG, "the address \"%.100s\" can be reached from other hosts: that needs a token",
                            p->address);
            }
            const int64_t soon = pici_meet_deadline(ATTEMPT_MS);
            p->fds[0] = pici_address_connect(&a, soon < p->deadline ? soon : p->deadline);
            error = errno;
        }
        if (!named)
            freeaddrinfo(found);
        if (p->fds[0] >= 0)
            break;
        const int left = pici_meet_left(p->deadline);
        if (!left)
            return fail(p, PICI_E_TIMEOUT, "rank 0 could not be reached at %.100s in %d ms: %s", p->address,
                        p->timeout_ms, named ? gai_strerror(named) : strerror(error));
        nap(pause < left ? pause : left);
    }
    if (!pici_address_own(p->fds[0], &p->zero))
        return fail(p, PICI_E_TRANSPORT, "the connection to rank 0: %s", strerror(errno));
    return PICI_OK;
}

/* Listen where the other ranks can reach this one. */
static enum pici_status listen_as_other(struct party *p)
{
    const char *name = p->settings.interface;
    static const int any[2];
    struct address at = p->zero;
    if (name && !pici_address_interface(name, p->zero.at.ss_family, &at))
        return fail(p, PICI_E_ARG, "PICI_SOCKET_IFNAME: the network interface \"%.40s\" has no address", name);
    struct place place = pici_address_place(&at);
    if (!p->token[0] && !pici_place_loopback(&place))
        return fail(p, PICI_E_ARG, "this rank would listen where other hosts can reach it: that needs a token");
    place.port = 0;
    at = pici_address_at(&place, &at);
    const int fd = pici_address_listen(&at, p->settings.ports[0] ? p->settings.ports : any, p->rank);
    if (fd < 0 && p->settings.ports[0])
        return fail(p, PICI_E_TRANSPORT, "cannot listen at a port of %d to %d (PICI_SOCKET_PORTS): %s",
                    p->settings.ports[0], p->settings.ports[1], strerror(errno));
    if (fd < 0)
        return fail(p, PICI_E_TRANSPORT, "cannot listen: %s", strerror(errno));
    p->places[p->rank] = pici_address_place(&at);
    pici_guests_open(&p->guests, fd, p->token);
    return PICI_OK;
}

/* Whether a peer has closed a connection before it read all that was sent: the system resets that. */
static int is_unread(const struct meet_side *s)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    return s->status == PICI_E_PEER &&
           (s->error || s->deaf || (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error));
}

/* Exchange bytes with rank 0. */
static enum pici_status with_zero(struct party *p, const uint8_t *out, size_t out_bytes, uint8_t *in, size_t in_bytes)
{
    struct meet_side side = {.fd = p->fds[0], .out = out, .out_bytes = out_bytes, .in = in, .in_bytes = in_bytes};
    const int timeout_ms = p->timeout_ms < 0 ? -1 : p->timeout_ms + ANSWER_MS;
    enum pici_status s = pici_meet(&side, 1, pici_meet_deadline(timeout_ms), 0);
    if (s)
        return fail(p, s, "no memory for a rendezvous");
    p->unread = is_unread(&side);
    if (side.status == PICI_E_PEER)
        return fail(p, PICI_E_PEER,
                    "rank 0 at %.100s closed the connection: is the token the same, and is no other process rank %d?",
                    p->address, p->rank);
    if (side.status)
        return fail(p, side.status, "rank 0 at %.100s does not answer%s%s", p->address, side.error ? ": " : "",
                    side.error ? strerror(side.error) : "");
    return PICI_OK;
}

/* Greet rank 0, and receive its verdict. In a crowd of strangers it drops the oldest connections of which it has read
 * nothing yet, and one of them may be this rank's: connect again. */
static enum pici_status greet_zero(struct party *p, const char *host, const char *port, uint8_t *verdict)
{
    const struct greeting g = greeting_of(p, GREETING_JOIN, 0);
    const int64_t deadline = p->deadline;
    uint8_t greeting[GREETING_BYTES];
    pici_greeting_put(greeting, &g);
    enum pici_status s = with_zero(p, greeting, sizeof greeting, verdict, VERDICT_BYTES);
    for (int pause = NAP_LEAST_MS; s && p->unread && pause <= AGAIN_MOST_MS; pause *= 2) {
        const struct greeting_verdict fault = p->fault;
        const int64_t soon = pici_meet_deadline(ATTEMPT_MS);
        p->fault = (struct greeting_verdict){0};
        close(p->fds[0]);
        p->fds[0] = -1;
        nap(pause);
        p->deadline = soon < deadline ? soon : deadline;
        if (reach_zero(p, host, port)) {
            p->fault = fault;
            break;
        }
        s = with_zero(p, greeting, sizeof greeting, verdict, VERDICT_BYTES);
    }
    p->deadline = deadline;
    return s;
}

/* Tell rank 0 where this rank listens, and learn where the others do. */
static enum pici_status join(struct party *p, const char *host, const char *port)
{
    const size_t bytes = (size_t)p->ranks * PLACE_BYTES;
    uint8_t verdict[VERDICT_BYTES], *table;
    struct greeting_verdict v;
    enum pici_status s = greet_zero(p, host, port, verdict);
    if (s)
        return s;
    if (pici_verdict_get(&v, verdict))
        return fail(p, PICI_E_PEER, "what listens at %.100s is not rank 0", p->address);
    if (v.status) {
        p->fault = v;
        return v.status;
    }
    table = malloc(bytes);
    if (!table)
        return fail(p, PICI_E_NOMEM, "no memory for %d ranks", p->ranks);
    s = with_zero(p, NULL, 0, table, bytes);
    for (int i = 1; i < p->ranks && !s; i++)
        if (pici_place_get(&p->places[i], table + (size_t)i * PLACE_BYTES) || !p->places[i].family)
            s = fail(p, PICI_E_CORRUPT, "rank 0 does not say where rank %d listens", i);
    free(table);
    return s;
}

/* Connect to a lower rank but 0, and say who this is. */
static enum pici_status link_to(struct party *p, int rank)
{
    const struct address to = pici_address_at(&p->places[rank], &p->zero);
    struct greeting g = greeting_of(p, GREETING_LINK, rank);
    uint8_t greeting[GREETING_BYTES];
    char words[ADDRESS_WORDS];
    g.place = (struct place){0};
    pici_greeting_put(greeting, &g);
    pici_address_words(&p->places[rank], words);
    const int fd = p->fds[rank] = pici_address_connect(&to, p->deadline);
    if (fd < 0)
        return fail(p, errno == ETIMEDOUT ? PICI_E_TIMEOUT : PICI_E_TRANSPORT, "rank %d at %s: %s", rank, words,
                    strerror(errno));
    struct meet_side side = {.fd = fd, .out = greeting, .out_bytes = sizeof greeting};
    const enum pici_status s = pici_meet(&side, 1, p->deadline, 0);
    if (s || side.status)
        return fail(p, s ? s : side.status, "rank %d at %s closed the connection", rank, words);
    return PICI_OK;
}

/* Rank 0 has greeted, and may have said that it cannot go on. */
static enum pici_status hear_zero(struct party *p)
{
    uint8_t in[GREETING_BYTES + VERDICT_BYTES];
    struct meet_side side = {.fd = p->fds[0], .in = in, .in_bytes = sizeof in};
    struct greeting_verdict v;
    if (pici_meet(&side, 1, pici_meet_now(), 0) == PICI_OK && side.status == PICI_OK &&
        pici_verdict_get(&v, in + GREETING_BYTES) == PICI_OK && v.status) {
        p->fault = v;
        return v.status;
    }
    return fail(p, PICI_E_PEER, "rank 0 gave up while the ranks connected to each other");
}

/* Accept connections of the higher ranks. Rank 0 knows first if one of them is gone: it closes its connection then. */
static enum pici_status let_link(struct party *p)
{
    const struct greeting own = pici_greeting(GREETING_LINK, p->rank, p->ranks, 0);
    int missing = p->ranks - 1 - p->rank;
    while (missing && !p->fault.status && pici_meet_left(p->deadline)) {
        struct greeting g;
        struct pollfd zero = {.fd = p->fds[0], .events = POLLRDHUP};
        int fd;
        while (pici_guests_next(&p->guests, &fd, &g)) {
            if (g.rank <= (uint32_t)p->rank || !welcome(p, fd, &g, &own)) {
                (void)fail(p, PICI_E_PEER, "rank %lu connected to rank %d", (unsigned long)g.rank, p->rank);
                close(fd);
            }
            missing--;
        }
        if (missing <= 0)
            break;
        if (p->guests.error && !p->guests.n)
            return fail(p, PICI_E_TRANSPORT, "cannot accept another connection: %s", strerror(p->guests.error));
        if (poll(&zero, 1, 0) > 0)
            return hear_zero(p);
        /* rank 0 may say something already, so its socket is not one to wait for */
        const int left = pici_meet_left(p->deadline);
        if (!wait_for(p, NULL, 0, left < NAP_MOST_MS ? left : NAP_MOST_MS))
            return fail(p, PICI_E_NOMEM, "no memory for %d ranks", p->ranks);
        p->guests.error = 0;
    }
    if (missing && !p->fault.status)
        name_missing(p, p->rank + 1);
    return p->fault.status;
}

static enum pici_status be_other(struct party *p, const char *host, const char *port)
{
    enum pici_status s = reach_zero(p, host, port);
    if (!s)
        s = listen_as_other(p);
    if (!s)
        s = join(p, host, port);
    p->deadline = pici_meet_deadline(p->timeout_ms);
    for (int i = 1; i < p->rank && !s; i++)
        s = link_to(p, i);
    if (!s)
        s = let_link(p);
    pici_guests_close(&p->guests);
    return s;
}

/* ---- both */

/* Take what the caller leaves out from the environment. */
static enum pici_status resolve(struct party *p, const char *address, int rank, int ranks, const char *token)
{
    const struct coll_settings *set = &p->settings;
    p->rank = rank < 0 || (ranks == 0 && rank == 0) ? set->rank : rank;
    p->ranks = ranks == 0 ? set->ranks : ranks;
    p->address = address ? address : set->rendezvous;
    p->timeout_ms = set->timeout_ms;
    token = token ? token : set->token ? set->token : "";
    if (!p->ranks)
        return fail(p, PICI_E_ARG, "the number of ranks: neither given nor in PICI_RANKS (pici-run sets it)");
    if (p->rank < 0)
        return fail(p, PICI_E_ARG, "the number of this rank: neither given nor in PICI_RANK (pici-run sets it)");
    if (p->ranks < 1 || p->ranks > COLL_MAX_RANKS || p->rank >= p->ranks)
        return fail(p, PICI_E_ARG, "rank %d of %d", p->rank, p->ranks);
    if (!p->address && p->ranks > 1)
        return fail(p, PICI_E_ARG, "the address of rank 0: neither given nor in PICI_RENDEZVOUS (pici-run sets it)");
    if (set->interface && !if_nametoindex(set->interface))
        return fail(p, PICI_E_ARG, "PICI_SOCKET_IFNAME: there is no network interface \"%.40s\"", set->interface);
    if (strlen(token) > GREETING_TOKEN)
        return fail(p, PICI_E_ARG, "the token has %zu bytes, more than %d", strlen(token), GREETING_TOKEN);
    memcpy(p->token, token, strlen(token));
    return PICI_OK;
}

static enum pici_status gather(struct party *p)
{
    char host[ADDRESS_HOST], port[ADDRESS_PORT];
    const size_t n = (size_t)p->ranks;
    p->fds = malloc(n * sizeof *p->fds);
    p->odd = malloc(n * sizeof *p->odd);
    p->places = calloc(n, sizeof *p->places);
    if (!p->fds || !p->odd || !p->places) {
        free(p->fds);
        p->fds = NULL; /* which has no sockets to close yet */
        return fail(p, PICI_E_NOMEM, "no memory for %d ranks", p->ranks);
    }
    for (int i = 0; i < p->ranks; i++)
        p->fds[i] = -1;
    if (p->address && !pici_address_parse(p->address, host, port))
        return fail(p, PICI_E_ARG, "the address \"%.100s\" is not HOST:PORT", p->address);
    if (p->ranks == 1)
        return PICI_OK;
    p->deadline = pici_meet_deadline(p->timeout_ms);
    return p->rank ? be_other(p, host, port) : be_zero(p, host, port);
}

enum pici_status pici_comm_rendezvous(struct pici_comm **out, const char *address, int rank, int ranks,
                                      const char *token)
{
    struct party *p = calloc(1, sizeof *p);
    char words[VERDICT_WORDS + 32];
    if (out)
        *out = NULL;
    if (!out || !p) {
        pici_comm_failed(out ? "no memory for a rendezvous" : "no place for the communicator");
        free(p);
        return out ? PICI_E_NOMEM : PICI_E_ARG;
    }
    p->guests.listener = p->guests.spare = -1;
    enum pici_status s = pici_settings_read(&p->settings, words, sizeof words);
    if (s) {
        pici_comm_failed(words);
        free(p);
        return s;
    }
    s = resolve(p, address, rank, ranks, token);
    if (s) {
        pici_comm_failed(p->fault.words);
        free(p);
        return s;
    }
    s = gather(p);
    if (!s)
        s = pici_comm_sockets(out, p->fds, p->rank, p->ranks); /* it owns the sockets, also if it fails */
    else {
        snprintf(words, sizeof words, "rank %lu: %s", (unsigned long)p->fault.rank, p->fault.words);
        pici_comm_failed(words);
        for (int i = 0; i < p->ranks && p->fds; i++)
            if (p->fds[i] >= 0)
                close(p->fds[i]);
    }
    for (int i = 0; i < p->odds; i++)
        close(p->odd[i]);
    free(p->fds);
    free(p->odd);
    free(p->places);
    free(p);
    return s;
}
