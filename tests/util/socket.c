/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "coll.h"
#include "transport/socket.h"

double socket_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int socket_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

int socket_count_open(void)
{
    int count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += socket_is_open(fd);
    return count;
}

void socket_pairs(int *fds, int p)
{
    for (int a = 0; a < p; a++) {
        fds[a * p + a] = -1;
        for (int b = 0; b < a; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
                abort();
            fds[a * p + b] = pair[0];
            fds[b * p + a] = pair[1];
        }
    }
}

void socket_say(int fd, const void *bytes, size_t n)
{
    if (n && send(fd, bytes, n, MSG_NOSIGNAL) != (ssize_t)n)
        abort();
}

/* Below the ports that the system gives to connections: else one of these could take it meanwhile. */
int socket_port(int v6)
{
    static int next;
    if (!next)
        next = (int)getpid() % 10000;
    for (int i = 0; i < 1000; i++) {
        const int port = 12000 + next++ % 15000, family = v6 ? AF_INET6 : AF_INET;
        const int fd = socket(family, SOCK_STREAM, 0);
        struct sockaddr_in v4_at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct sockaddr_in6 v6_at = {
            .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
        v4_at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int bound = fd >= 0 && (v6 ? bind(fd, (struct sockaddr *)&v6_at, sizeof v6_at)
                                         : bind(fd, (struct sockaddr *)&v4_at, sizeof v4_at)) == 0;
        if (fd >= 0)
            close(fd);
        if (bound)
            return port;
    }
    return 0;
}

void socket_team_init(struct socket_team *t, int p)
{
    memset(t, 0, sizeof *t);
    t->p = t->row = p;
    for (int i = 0; i < p; i++) {
        t->rank[i] = i;
        t->ranks[i] = p;
    }
}

static void make(void *context, int i)
{
    struct socket_team *t = context;
    const char *token = t->odd_token && i == t->p - 1 ? t->odd_token : t->token;
    if (t->address)
        t->status[i] = pici_comm_rendezvous(&t->comm[i], t->address, t->rank[i], t->ranks[i], token);
    else
        t->status[i] = pici_comm_sockets(&t->comm[i], t->fds + (size_t)i * (size_t)t->row, t->rank[i], t->ranks[i]);
    snprintf(t->words[i], sizeof t->words[i], "%s", t->status[i] ? pici_comm_error(NULL) : "");
}

void socket_team_make(struct socket_team *t)
{
    const double begin = socket_seconds();
    coll_threads(t->p, make, t);
    t->seconds = socket_seconds() - begin;
}

void socket_team_free(struct socket_team *t)
{
    for (int i = 0; i < t->p; i++) {
        pici_comm_free(t->comm[i]);
        t->comm[i] = NULL;
    }
}

int socket_team_all(const struct socket_team *t, enum pici_status s, const char *phrase)
{
    int good = 1;
    for (int i = 0; i < t->p; i++) {
        if (t->status[i] == s && strstr(t->words[i], phrase) && !t->comm[i] == (s != PICI_OK))
            continue;
        printf("rank %d: %s: %s; not %s and \"%s\"\n", i, pici_strerror(t->status[i]), t->words[i], pici_strerror(s),
               phrase);
        good = 0;
    }
    return good;
}

void socket_share(struct pici_transport *t, int a, int b)
{
    struct greeting_offer offer;
    int fd;
    struct shared *made = pici_shared_make(&offer, RING_LEAST, &fd), *opened = made ? pici_shared_open(&offer) : NULL;
    if (!opened)
        abort();
    close(fd);
    pici_transport_sockets_pair(&t[a], b, &(struct pair){.shared = made});
    pici_transport_sockets_pair(&t[b], a, &(struct pair){.shared = opened});
}

void socket_stripe(struct pici_transport *t, int a, int b, int a_fd, int b_fd)
{
    int one[3] = {a_fd}, other[3] = {b_fd};
    for (int i = 1; i < 3; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            abort();
        one[i] = pair[0];
        other[i] = pair[1];
    }
    pici_transport_sockets_pair(&t[a], b, &(struct pair){.stripes = pici_stripes(one, 3)});
    pici_transport_sockets_pair(&t[b], a, &(struct pair){.stripes = pici_stripes(other, 3)});
}
