/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Accepts connections, only some of them from ranks. An unauthenticated peer has not sent the token yet. This code
 * reads at most a greeting's bytes from it, for at most some seconds, and sends nothing to it. A turn is a bounded
 * amount of work, for any number of connecting peers: the caller checks its deadline between turns. */
#ifndef PICI_LIB_TRANSPORT_PENDING_H
#define PICI_LIB_TRANSPORT_PENDING_H

#include <poll.h>

#include "transport/greeting.h"

struct secure_keys;

enum {
    PENDING = 64,     /* peers without a greeting; one more makes the oldest be read a last time, then dropped */
    PENDING_TURN = 64 /* connections accepted in a turn */
};

struct pending_peer {
    int fd;
    int64_t until;
    size_t received;
    uint8_t bytes[GREETING_BYTES];
};

struct pending {
    int listener;
    int spare; /* a descriptor to give up when the process has no more */
    int error; /* errno, if a waiting connection cannot be accepted. Until the caller sets it to 0, no connection is
                * accepted, and the listener is not polled */
    const struct secure_keys *keys; /* that peers must have too; NULL: connections are not encrypted */
    char token[GREETING_TOKEN];     /* that peers must know */
    int waiting, rejected;          /* waiting now; rejected so far: no greeting in time, or another token */
    struct pending_peer peer[PENDING];
};

void pici_pending_open(struct pending *, int listener, const char token[GREETING_TOKEN], const struct secure_keys *);

/* Entries for poll: at most PENDING + 1. Returns how many. */
int pici_pending_polls(const struct pending *, struct pollfd *);

/* A turn: accept connections and read from them, without waiting. A peer that knows the token ends the turn and is
 * handed out: its greeting, and its socket, which the caller then owns. Returns 0 if there was none; more connections
 * may wait to be accepted. */
int pici_pending_next(struct pending *, int *fd, struct greeting *);

/* Returns whether there was one. */
int pici_pending_give_up_spare(struct pending *);

/* Drop the waiting peers, and close the listening socket. */
void pici_pending_close(struct pending *);

#endif
