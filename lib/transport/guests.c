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

void pici_guests_open(struct guests *guests, int listener, const char token[GREETING_TOKEN])
{
    guests->listener = listener;
    guests->spare = fcntl(listener, F_DUPFD_CLOEXEC, 0); /* none: there is nothing to give up */
    guests->error = guests->waiting = guests->strangers = 0;
    memcpy(guests->token, token, GREETING_TOKEN);
}

int pici_guests_polls(const struct guests *guests, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = guests->error ? -1 : guests->listener, .events = POLLIN};
    for (int i = 0; i < guests->waiting; i++)
        polls[1 + i] = (struct pollfd){.fd = guests->guest[i].fd, .events = POLLIN};
    return guests->waiting + 1;
}

/* Take a guest from the list, which is in the order of arrival. Returns its socket. */
static int take(struct guests *guests, int i)
{
    const int fd = guests->guest[i].fd;
    guests->waiting--;
    memmove(&guests->guest[i], &guests->guest[i + 1], (size_t)(guests->waiting - i) * sizeof guests->guest[0]);
    return fd;
}

static void turn_away(struct guests *guests, int i)
{
    guests->strangers++;
    close(take(guests, i));
}

/* Read a guest's greeting. Returns 1 if it is whole, -1 if there will be none, else 0. */
static int read_more(struct guest *guest)
{
    while (guest->received < GREETING_BYTES) {
        const ssize_t received =
            recv(guest->fd, guest->bytes + guest->received, GREETING_BYTES - guest->received, MSG_DONTWAIT);
        if (received < 0 && errno == EINTR)
            continue;
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return pici_meet_left(guest->until) ? 0 : -1;
        if (received <= 0)
            return -1;
        guest->received += (size_t)received;
    }
    return 1;
}

/* Read what guest i has sent. Returns whether it is handed out. If it is turned away, *gone is 1. */
static int hear(struct guests *guests, int i, int *fd, struct greeting *greeting, int *gone)
{
    const int whole = read_more(&guests->guest[i]);
    *gone = whole != 0;
    if (!whole)
        return 0;
    /* the token is compared before anything else: a stranger does not learn what else is wrong */
    if (whole > 0 && pici_greeting_get(greeting, guests->guest[i].bytes) == PICI_OK &&
        pici_greeting_token(greeting->token, guests->token)) {
        *fd = take(guests, i);
        return 1;
    }
    turn_away(guests, i);
    return 0;
}

/* Accept a connection. Returns -1 if none waits, or none can be accepted. */
static int let_in(struct guests *guests)
{
    for (;;) {
        const int fd = accept4(guests->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            return fd;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return -1;
        if (guests->waiting == 0 || guests->guest[0].until - pici_meet_now() > GUEST_MS - HEARD_MS) {
            guests->error = errno;
            return -1;
        }
        turn_away(guests, 0); /* a stranger's descriptor for one that may be a rank's */
    }
}

/* Read those that have sent something, or whose time is over. Returns whether a guest is handed out. */
static int hear_all(struct guests *guests, int *fd, struct greeting *greeting)
{
    struct pollfd polls[GUESTS + 1];
    int gone;
    const int count = pici_guests_polls(guests, polls) - 1;
    if (count <= 0 || poll(polls + 1, (nfds_t)count, 0) < 0)
        return 0;
    for (int i = 0, place = 0; i < count; i++) {
        gone = 0;
        if ((polls[1 + i].revents || !pici_meet_left(guests->guest[place].until)) &&
            hear(guests, place, fd, greeting, &gone))
            return 1;
        place += !gone;
    }
    return 0;
}

int pici_guests_next(struct guests *guests, int *fd, struct greeting *greeting)
{
    for (int i = 0; i < GUESTS_TURN && !guests->error; i++) {
        int handed_out = 0, gone = 0;
        const int next = let_in(guests);
        if (next < 0)
            break;
        if (guests->waiting == GUESTS) { /* its greeting may have come since it was accepted */
            handed_out = hear(guests, 0, fd, greeting, &gone);
            if (!gone)
                turn_away(guests, 0);
        }
        guests->guest[guests->waiting++] = (struct guest){.fd = next, .until = pici_meet_deadline(GUEST_MS)};
        if (handed_out || hear(guests, guests->waiting - 1, fd, greeting, &gone)) /* a rank greets at once */
            return 1;
    }
    return hear_all(guests, fd, greeting);
}

int pici_guests_give_up_spare(struct guests *guests)
{
    if (guests->spare < 0)
        return 0;
    close(guests->spare);
    guests->spare = -1;
    return 1;
}

void pici_guests_close(struct guests *guests)
{
    while (guests->waiting)
        close(take(guests, guests->waiting - 1));
    if (guests->spare >= 0)
        close(guests->spare);
    if (guests->listener >= 0)
        close(guests->listener);
    guests->spare = guests->listener = -1;
}
