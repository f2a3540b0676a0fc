/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/guests.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/meet.h"

enum { GUEST_MS = 10000 };

void pici_guests_open(struct guests *g, int listener, const char token[GREETING_TOKEN])
{
    g->listener = listener;
    g->n = g->strangers = 0;
    memcpy(g->token, token, GREETING_TOKEN);
}

int pici_guests_polls(const struct guests *g, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = g->listener, .events = POLLIN};
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

/* Accept connections. Returns whether the list is full, so that more may wait. */
static int let_in(struct guests *g)
{
    while (g->n < GUESTS) {
        const int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            g->guest[g->n++] = (struct guest){.fd = fd, .until = pici_meet_deadline(GUEST_MS)};
        else if (errno != EINTR && errno != ECONNABORTED)
            return 0;
    }
    return 1;
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

/* Read what has come. Returns whether a guest is handed out. */
static int read_all(struct guests *g, int *fd, struct greeting *greeting)
{
    for (int i = 0; i < g->n;) {
        const int whole = read_more(&g->guest[i]);
        if (!whole) {
            i++;
            continue;
        }
        /* the token is compared before anything else: a stranger does not learn what else is wrong */
        if (whole > 0 && pici_greeting_get(greeting, g->guest[i].bytes) == PICI_OK &&
            pici_greeting_token(greeting->token, g->token)) {
            *fd = take(g, i);
            return 1;
        }
        turn_away(g, i);
    }
    return 0;
}

int pici_guests_next(struct guests *g, int *fd, struct greeting *greeting)
{
    for (;;) {
        const int full = let_in(g);
        if (read_all(g, fd, greeting))
            return 1;
        if (!full)
            return 0;
        if (g->n == GUESTS)
            turn_away(g, 0);
    }
}

void pici_guests_close(struct guests *g)
{
    while (g->n)
        close(take(g, g->n - 1));
    if (g->listener >= 0)
        close(g->listener);
    g->listener = -1;
}
