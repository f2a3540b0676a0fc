/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/guests.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/meet.h"

enum {
    GUEST_MS = 10000,
    HEARD_MS = 200 /* that a guest has at least, also if others want its descriptor */
};

void pici_guests_open(struct guests *g, int listener, const char token[GREETING_TOKEN])
{
    g->listener = listener;
    g->spare = fcntl(listener, F_DUPFD_CLOEXEC, 0); /* none: there is nothing to give up */
    g->error = g->n = g->strangers = 0;
    memcpy(g->token, token, GREETING_TOKEN);
}

int pici_guests_polls(const struct guests *g, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = g->error ? -1 : g->listener, .events = POLLIN};
    for (int i = 0; i < g->n; i++)
        polls[1 + i] = (struct pollfd){.fd = g->guest[i].fd, .events = POLLIN};
    return g->n + 1;
}

/* Take a guest from the list, which is in the order of arrival. Returns its socket. */
static int take(struct guests *g, int i)
{
    const int fd = g->guest[i].fd;
    g->n--;
    memmove(&g->guest[i], &g->guest[i + 1], (size_t)(g->n - i) * sizeof g->guest[0]);
    return fd;
}

static void turn_away(struct guests *g, int i)
{
    g->strangers++;
    close(take(g, i));
}

/* Read a guest's greeting. Returns 1 if it is whole, -1 if there will be none, else 0. */
static int read_more(struct guest *guest)
{
    while (guest->got < GREETING_BYTES) {
        const ssize_t n = recv(guest->fd, guest->bytes + guest->got, GREETING_BYTES - guest->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return pici_meet_left(guest->until) ? 0 : -1;
        if (n <= 0)
            return -1;
        guest->got += (size_t)n;
    }
    return 1;
}

/* Read what guest i has sent. Returns whether it is handed out. If it is turned away, *gone is 1. */
static int hear(struct guests *g, int i, int *fd, struct greeting *greeting, int *gone)
{
    const int whole = read_more(&g->guest[i]);
    *gone = whole != 0;
    if (!whole)
        return 0;
    /* the token is compared before anything else: a stranger does not learn what else is wrong */
    if (whole > 0 && pici_greeting_get(greeting, g->guest[i].bytes) == PICI_OK &&
        pici_greeting_token(greeting->token, g->token)) {
        *fd = take(g, i);
        return 1;
    }
    turn_away(g, i);
    return 0;
}

/* Accept a connection. Returns -1 if none waits, or none can be accepted. */
static int let_in(struct guests *g)
{
    for (;;) {
        const int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            return fd;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return -1;
        if (g->n == 0 || g->guest[0].until - pici_meet_now() > GUEST_MS - HEARD_MS) {
            g->error = errno;
            return -1;
        }
        turn_away(g, 0); /* a stranger's descriptor for one that may be a rank's */
    }
}

/* Read those that have sent something, or whose time is over. Returns whether a guest is handed out. */
static int hear_all(struct guests *g, int *fd, struct greeting *greeting)
{
    struct pollfd polls[GUESTS + 1];
    int gone;
    const int n = pici_guests_polls(g, polls) - 1;
    if (n <= 0 || poll(polls + 1, (nfds_t)n, 0) < 0)
        return 0;
    for (int i = 0, place = 0; i < n; i++) {
        gone = 0;
        if ((polls[1 + i].revents || !pici_meet_left(g->guest[place].until)) && hear(g, place, fd, greeting, &gone))
            return 1;
        place += !gone;
    }
    return 0;
}

int pici_guests_next(struct guests *g, int *fd, struct greeting *greeting)
{
    int gone;
    for (int i = 0; i < GUESTS_TURN && !g->error; i++) {
        const int next = let_in(g);
        if (next < 0)
            break;
        if (g->n == GUESTS)
            turn_away(g, 0);
        g->guest[g->n++] = (struct guest){.fd = next, .until = pici_meet_deadline(GUEST_MS)};
        if (hear(g, g->n - 1, fd, greeting, &gone)) /* a rank sends its greeting at once */
            return 1;
    }
    return hear_all(g, fd, greeting);
}

int pici_guests_give_up_spare(struct guests *g)
{
    if (g->spare < 0)
        return 0;
    close(g->spare);
    g->spare = -1;
    return 1;
}

void pici_guests_close(struct guests *g)
{
    while (g->n)
        close(take(g, g->n - 1));
    if (g->spare >= 0)
        close(g->spare);
    if (g->listener >= 0)
        close(g->listener);
    g->spare = g->listener = -1;
}
