/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the tests of sockets share: ranks that are threads, each with its end of a pair of sockets for each peer. */
#ifndef PICI_TESTS_SOCKET_UTIL_H
#define PICI_TESTS_SOCKET_UTIL_H

#include "pici/socket.h"
#include "pici/transport.h"

enum { SOCKET_RANKS = 17 };

/* fds[a * p + b]: a's end of the pair of a and b; -1 where a is b. Aborts without sockets. */
void socket_pairs(int *fds, int p);

/* A port of 127.0.0.1, or with v6 of ::1, at which nobody listens. 0: there is no such address. */
int socket_port(int v6);

/* Send all these bytes, or abort. */
void socket_say(int fd, const void *bytes, size_t n);

/* Ranks that make communicators at the same time. */
struct socket_team {
    int p;
    int row;                              /* entries of fds for each rank: p, unless this is only a part of the ranks */
    int fds[SOCKET_RANKS * SOCKET_RANKS]; /* for sockets; else address is used */
    const char *address, *token;
    int rank[SOCKET_RANKS], ranks[SOCKET_RANKS]; /* what each says; ranks 0: as the environment has it */
    const char *odd_token;                       /* the last one's, if not NULL */
    struct pici_comm *comm[SOCKET_RANKS];
    enum pici_status status[SOCKET_RANKS];
    char words[SOCKET_RANKS][512];
    double seconds; /* that the last of them took */
};

/* As many ranks as usual: rank i of p. */
void socket_team_init(struct socket_team *, int p);

/* Make the communicators: over the sockets, or over a rendezvous if there is an address. */
void socket_team_make(struct socket_team *);

/* Free the communicators that were made. */
void socket_team_free(struct socket_team *);

/* Whether all ranks returned this status, each with such a phrase in its words. Prints those that did not. */
int socket_team_all(const struct socket_team *, enum pici_status, const char *phrase);

/* Whether a descriptor is open; how many are. */
int socket_is_open(int fd);
int socket_count_open(void);

/* Have the transports of ranks a and b, which are t[a] and t[b], share memory; or have three connections, of which the
 * first are their sockets. */
void socket_share(struct pici_transport *t, int a, int b);
void socket_stripe(struct pici_transport *t, int a, int b, int a_fd, int b_fd);

double socket_seconds(void);

#endif
