/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Accepting connections of which only some are those of ranks. Of a stranger no more than a greeting's bytes are read,
 * for at most some seconds, and nothing is sent to it. */
#ifndef PICI_LIB_TRANSPORT_GUESTS_H
#define PICI_LIB_TRANSPORT_GUESTS_H

#include <poll.h>

#include "transport/greeting.h"

enum { GUESTS = 64 }; /* that have not said who they are; one more, and the oldest is dropped */

struct guest {
    int fd;
    int64_t until;
    size_t got;
    uint8_t bytes[GREETING_BYTES];
};

struct guests {
    int listener;
    char token[GREETING_TOKEN]; /* that they must know */
    int n, strangers;           /* waiting now; turned away so far */
    struct guest guest[GUESTS];
};

void pici_guests_open(struct guests *, int listener, const char token[GREETING_TOKEN]);

/* Entries for poll: at most GUESTS + 1. Returns how many. */
int pici_guests_polls(const struct guests *, struct pollfd *);

/* Accept and read what can be without waiting. A guest that knows the token is handed out: its socket, which the caller
 * owns then, and its greeting. Returns 0 if there is none. */
int pici_guests_next(struct guests *, int *fd, struct greeting *);

/* Drop those that wait, and close the listening socket. */
void pici_guests_close(struct guests *);

#endif
