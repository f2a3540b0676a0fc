/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/pending.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/meet.h"
#include "transport/secure.h"

enum {
    PENDING_MS = 10000,
    HEARD_MS = 200 /* that a peer has at least, even if others need its descriptor */
};

void pici_pending_open(struct pending *pending, int listener, const char token[GREETING_TOKEN],
                       const struct secure_keys *keys)
{
    pending->keys = keys;
    pending->listener = listener;
    pending->spare = fcntl(listener, F_DUPFD_CLOEXEC, 0); /* on failure there is nothing to give up */
    pending->error = pending->waiting = pending->rejected = 0;
    memcpy(pending->token, token, GREETING_TOKEN);
}

int pici_pending_polls(const struct pending *pending, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = pending->error ? -1 : pending->listener, .events = POLLIN};
    for (int i = 0; i < pending->waiting; i++)
        polls[1 + i] = (struct pollfd){.fd = pending->peer[i].fd, .events = POLLIN};
    return pending->waiting + 1;
}

/* Remove a peer from the list, which is in order of arrival. Returns its socket. */
static int take(struct pending *pending, int i)
{
    const int fd = pending->peer[i].fd;
    pending->waiting--;
    memmove(&pending->peer[i], &pending->peer[i + 1], (size_t)(pending->waiting - i) * sizeof pending->peer[0]);
    return fd;
}

static void reject(struct pending *pending, int i)
{
    pending->rejected++;
    pici_secure_close(take(pending, i));
}

/* Read a peer's greeting. Returns 1 if it is complete, -1 if it never will be, else 0. */
static int read_more(struct pending_peer *peer)
{
    while (peer->received < GREETING_BYTES) {
        const ssize_t received = pici_secure_recv(pici_secure_of(peer->fd), peer->fd, peer->bytes + peer->received,
                                                  GREETING_BYTES - peer->received);
        if (received < 0 && errno == EINTR)
            continue;
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return pici_meet_left(peer->until) ? 0 : -1;
        if (received <= 0)
            return -1;
        peer->received += (size_t)received;
    }
    return 1;
}

/* Read what peer i has sent. Returns whether it is handed out. *gone: out: it has left the list, handed out or
 * rejected. */
static int hear(struct pending *pending, int i, int *fd, struct greeting *greeting, int *gone)
{
    const int whole = read_more(&pending->peer[i]);
    *gone = whole != 0;
    if (!whole)
        return 0;
    /* the token is compared before anything else: a peer without the token does not learn what else is wrong */
    if (whole > 0 && pici_greeting_get(greeting, pending->peer[i].bytes) == PICI_OK &&
        pici_greeting_token(greeting->token, pending->token)) {
        *fd = take(pending, i);
        return 1;
    }
    reject(pending, i);
    return 0;
}

/* Accept a connection. Returns -1 if none waits, or none can be accepted. */
static int let_in(struct pending *pending)
{
    for (;;) {
        const int fd = accept4(pending->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && pici_secure_begin(pending->keys, fd, 1))
            return fd;
        if (fd >= 0) {
            close(fd);
            errno = ENOMEM;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return -1;
        if (pending->waiting == 0 || pending->peer[0].until - pici_meet_now() > PENDING_MS - HEARD_MS) {
            pending->error = errno;
            return -1;
        }
        reject(pending, 0); /* free the descriptor of an unauthenticated peer for one that may be a rank's */
    }
}

/* Read from the peers that have sent bytes or run out of time. Returns whether one is handed out. */
static int hear_all(struct pending *pending, int *fd, struct greeting *greeting)
{
    struct pollfd polls[PENDING + 1];
    int gone;
    const int count = pici_pending_polls(pending, polls) - 1;
    if (count <= 0 || poll(polls + 1, (nfds_t)count, 0) < 0)
        return 0;
    for (int i = 0, place = 0; i < count; i++) {
        gone = 0;
        if ((polls[1 + i].revents || !pici_meet_left(pending->peer[place].until)) &&
            hear(pending, place, fd, greeting, &gone))
            return 1;
        place += !gone;
    }
    return 0;
}

int pici_pending_next(struct pending *pending, int *fd, struct greeting *greeting)
{
    for (int i = 0; i < PENDING_TURN && !pending->error; i++) {
        int handed_out = 0, gone = 0;
        const int next = let_in(pending);
        if (next < 0)
            break;
        if (pending->waiting == PENDING) { /* its greeting may have come since it was accepted */
            handed_out = hear(pending, 0, fd, greeting, &gone);
            if (!gone)
                reject(pending, 0);
        }
        pending->peer[pending->waiting++] = (struct pending_peer){.fd = next, .until = pici_meet_deadline(PENDING_MS)};
        if (handed_out || hear(pending, pending->waiting - 1, fd, greeting, &gone)) /* a rank greets at once */
            return 1;
    }
    return hear_all(pending, fd, greeting);
}

int pici_pending_give_up_spare(struct pending *pending)
{
    if (pending->spare < 0)
        return 0;
    close(pending->spare);
    pending->spare = -1;
    return 1;
}

void pici_pending_close(struct pending *pending)
{
    while (pending->waiting)
        pici_secure_close(take(pending, pending->waiting - 1));
    if (pending->spare >= 0)
        close(pending->spare);
    if (pending->listener >= 0)
        close(pending->listener);
    pending->spare = pending->listener = -1;
}
