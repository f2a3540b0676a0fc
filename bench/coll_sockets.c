/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as processes, over sockets. pici-run, or a similar environment, may have started them on any hosts.
 * Otherwise this program forks them, and connects each pair over TCP on loopback. The benchmark's own messages use a
 * second communicator, so that the first carries only measured data. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll.h"
#include "common.h"
#include "pici/socket.h"

enum { HOST_BYTES = 256, CONNECTIONS = 2 }; /* of each two ranks: one for each communicator */

struct socket_world {
    struct world world;
    struct pici_comm *all; /* for the benchmark itself */
};

static void combine(struct world *w, void *v, uint64_t n, enum pici_dtype t, enum pici_op op)
{
    struct pici_comm *all = ((struct socket_world *)w)->all;
    if (pici_all_reduce(v, v, n, t, op, all, NULL))
        die(pici_comm_error(all));
}

static void barrier(struct world *w)
{
    double one = 1;
    combine(w, &one, 1, PICI_F64, PICI_SUM);
}

static void sum(struct world *w, double *v, int n)
{
    combine(w, v, (uint64_t)n, PICI_F64, PICI_SUM);
}

static void max(struct world *w, double *v, int n)
{
    combine(w, v, (uint64_t)n, PICI_F64, PICI_MAX);
}

static void share(struct world *w, void *data, size_t bytes)
{
    if (w->rank)
        memset(data, 0, bytes);
    combine(w, data, bytes, PICI_U8, PICI_SUM);
}

/* Run the body as one rank. node_of: [ranks]. */
static int be_rank(struct pici_comm *comm, struct pici_comm *all, int nodes, const int *node_of, world_body *body,
                   const void *argument)
{
    const int rank = pici_comm_rank(comm), ranks = pici_comm_size(comm);
    struct socket_world s = {.all = all};
    struct world *w = &s.world;
    *w = (struct world){.rank = rank,
                        .ranks = ranks,
                        .nodes = nodes,
                        .orders = 1,
                        .order = {{"-", rank, comm}},
                        .node_of = node_of,
                        .processes = 1,
                        .library = "sockets"};
    for (int r = 0; r < ranks; r++) {
        w->locals += node_of[r] == node_of[rank];
        w->local += r < rank && node_of[r] == node_of[rank];
    }
    w->barrier = barrier;
    w->sum = sum;
    w->max = max;
    w->share = share;
    if (pici_comm_set_nodes(comm, node_of) || pici_comm_set_nodes(all, node_of))
        die("pici_comm_set_nodes");
    const int status = body(w, argument);
    barrier(w); /* no rank leaves while another is still reading */
    pici_comm_free(comm);
    pici_comm_free(all);
    return status;
}

/* ---- ranks that are there already */

static struct pici_comm *meet(void)
{
    struct pici_comm *comm;
    if (pici_comm_rendezvous(&comm, NULL, 0, 0, NULL))
        die(pici_comm_error(NULL));
    return comm;
}

/* Find the ranks that share a host and a network namespace, as the library does. */
static int find_nodes(struct pici_comm *all, int *node_of)
{
    const int ranks = pici_comm_size(all);
    char own[HOST_BYTES] = "", *hosts = calloc((size_t)ranks, HOST_BYTES);
    int nodes = 0;
    if (!hosts)
        die("out of memory");
    const ssize_t n = readlink("/proc/self/ns/net", own, HOST_BYTES / 2);
    gethostname(own + (n > 0 ? n : 0), HOST_BYTES / 2 - 1);
    if (pici_all_gather(own, hosts, HOST_BYTES, PICI_U8, all, NULL))
        die(pici_comm_error(all));
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        while (memcmp(hosts + (size_t)same * HOST_BYTES, hosts + (size_t)r * HOST_BYTES, HOST_BYTES) != 0)
            same++;
        node_of[r] = same == r ? nodes++ : node_of[same];
    }
    free(hosts);
    return nodes;
}

int world_sockets_started(world_body *body, const void *argument)
{
    struct pici_comm *comm = meet(), *all = meet();
    int *node_of = calloc((size_t)pici_comm_size(comm), sizeof *node_of);
    if (!node_of)
        die("out of memory");
    const int nodes = find_nodes(all, node_of);
    const int status = be_rank(comm, all, nodes, node_of, body, argument);
    free(node_of);
    return status;
}

/* ---- ranks that are forked */

/* Two ends of a connection on loopback. */
static void connect_pair(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len) || (pair[0] = socket(AF_INET, SOCK_STREAM, 0)) < 0 ||
        connect(pair[0], (struct sockaddr *)&at, sizeof at) || (pair[1] = accept(listener, NULL, NULL)) < 0) {
        perror("bench_coll: a connection on loopback");
        exit(1);
    }
    close(listener);
}

static int forked_rank(int *fds, int rank, int ranks, int nodes, const int *node_of, world_body *body,
                       const void *argument)
{
    struct pici_comm *comm[CONNECTIONS];
    const size_t row = (size_t)ranks, block = row * row;
    for (size_t i = 0; i < CONNECTIONS * block; i++)
        if (i / row % row != (size_t)rank && i / row % row != i % row)
            close(fds[i]);
    for (int c = 0; c < CONNECTIONS; c++)
        if (pici_comm_sockets(&comm[c], fds + (size_t)c * block + (size_t)rank * row, rank, ranks))
            die(pici_comm_error(NULL));
    return be_rank(comm[0], comm[1], nodes, node_of, body, argument);
}

int world_sockets(int ranks, int nodes, const int *node_of, world_body *body, const void *argument)
{
    const size_t row = (size_t)ranks;
    int *fds = calloc(CONNECTIONS * row * row, sizeof *fds), rank = 0;
    if (!fds)
        die("out of memory");
    for (size_t c = 0; c < CONNECTIONS; c++)
        for (size_t a = 0; a < row; a++)
            for (size_t b = 0; b < a; b++) {
                int pair[2];
                connect_pair(pair);
                fds[(c * row + a) * row + b] = pair[0];
                fds[(c * row + b) * row + a] = pair[1];
            }
    fflush(NULL);
    for (int child = 1; child < ranks && !rank; child++) {
        const pid_t pid = fork();
        if (pid < 0)
            die("cannot fork");
        if (pid == 0)
            rank = child;
    }
    int status = forked_rank(fds, rank, ranks, nodes, node_of, body, argument);
    free(fds);
    if (rank)
        _exit(status);
    for (int child = 1; child < ranks; child++) {
        int end;
        if (wait(&end) < 0 || !WIFEXITED(end) || WEXITSTATUS(end))
            status = 1;
    }
    return status;
}
