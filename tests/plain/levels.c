/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators on two levels among threads, for a run under ThreadSanitizer and on other machines: over threads inside
 * nodes, and sockets or threads between them. Every collective with each algorithm. Needs libc alone. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/socket.h"
#include "tests/util/util.h"

enum { WATCHDOG_S = 900, MOST = 6, A_NODE = 2 };

struct parts {
    struct pici_comm *inner[MOST], *outer[MOST], *comm[MOST];
    enum pici_status status[MOST];
};

static void join(void *context, int rank)
{
    struct parts *parts = context;
    parts->status[rank] = pici_comm_levels(&parts->comm[rank], parts->inner[rank], parts->outer[rank]);
}

static void check(int p, int over_sockets, struct rng *rng)
{
    struct parts parts = {.status = {PICI_OK}};
    struct socket_team sockets;
    struct coll_team team = {.p = p};
    for (int r = 0; r < p; r += A_NODE)
        if (pici_comm_threads(&parts.inner[r], p - r < A_NODE ? p - r : A_NODE))
            abort();
    if (over_sockets) {
        socket_team_init(&sockets, p);
        socket_pairs(sockets.fds, p);
        socket_team_make(&sockets);
        if (!socket_team_all(&sockets, PICI_OK, ""))
            abort();
        memcpy(parts.outer, sockets.comm, (size_t)p * sizeof *parts.outer);
    } else if (pici_comm_threads(parts.outer, p))
        abort();
    coll_threads(p, join, &parts);
    for (int r = 0; r < p; r++)
        if (parts.status[r]) {
            tally("on two levels", pici_strerror(parts.status[r]));
            exit(1);
        }
    memcpy(team.comm, parts.comm, sizeof parts.comm);
    for (int a = 0; a <= coll_algorithms(); a++)
        for (int i = 0; i < COLL_COLLECTIVES; i++) {
            struct coll_case c;
            if (!coll_has((enum pici_algorithm)a, coll_collectives[i]))
                continue;
            coll_case_random(&c, rng, p);
            c.collective = coll_collectives[i];
            c.opts.algorithm = (enum pici_algorithm)a;
            c.count = rng_below(rng, 3) ? rng_below(rng, 9000) : rng_below(rng, 40);
            coll_case_options(&c, rng, p);
            for (int r = 0; r < p; r++)
                c.node_of[r] = r / A_NODE * A_NODE;
            tally(over_sockets ? "threads and sockets" : "threads twice", coll_team_check(&team, &c));
        }
    coll_team_free(&team);
}

int main(void)
{
    struct rng rng = {1};
    alarm(WATCHDOG_S);
    for (int p = 1; p <= MOST; p++)
        for (int over_sockets = 0; over_sockets < 2; over_sockets++)
            check(p, over_sockets, &rng);
    return tally_end();
}
