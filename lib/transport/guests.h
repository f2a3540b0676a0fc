/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Accepting connections of which only some are those of ranks. Of a stranger no more than a greeting's bytes are read,
 * for at most some seconds, and nothing is sent to it. A turn is a bounded amount of work, however many strangers
 * connect meanwhile: the caller looks at its deadline between turns. */
#ifndef PICI_LIB_TRANSPORT_GUESTS_H
#define PICI_LIB_TRANSPORT_GUESTS_H

#include <poll.h>

#include "transport/greeting.h"

enum {
    GUESTS = 64,     /* that have not said who they are; one more, and the oldest is read once more, or dropped */
    GUESTS_TURN = 64 /* connections that are accepted in a turn */
};

struct guest {
    int fd;
    int64_t until;
    size_t received;
    uint8_t bytes[GREETING_BYTES];
};

struct guests {
    int listener;
    int spare; /* a descriptor to give up when there are no more */
    int error; /* errno, if a connection waits and cannot be accepted. Until the caller sets it to 0, none is accepted,
                * and the listener is not polled */
    char token[GREETING_TOKEN]; /* that they must know */
    int waiting, strangers;     /* waiting now; turned away so far */
    struct guest guest[GUESTS];
};

void pici_guests_open(struct guests *, int listener, const char token[GREETING_TOKEN]);

/* Entries for poll: at most GUESTS + 1. Returns how many. */
int pici_guests_polls(const struct guests *, struct pollfd *);

/* A turn: accept connections, and read what has come, without waiting. A guest that knows the token ends it and is
 * handed out: its socket, which the caller owns then, and its greeting. Returns 0 if there was none; more connections
 * may wait to be accepted. */
int pici_guests_next(struct guests *, int *fd, struct greeting *);

/* Returns whether there was one. */
int pici_guests_give_up_spare(struct guests *);

/* Drop those that wait, and close the listening socket. */
void pici_guests_close(struct guests *);

#endif
