/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport of one's own: collectives among processes; a pair of Unix sockets connects each two.
 *     transport [RANKS]
 * Adds sparse vectors of all processes and compares the sum with what it must be. Exit status 1: they differ.
 *
 * On a socket a message is its length (8 bytes, little-endian) and its bytes. Each direction of each connection has a
 * queue of requests, so messages from one rank to another keep their order. pici/transport.h requires no more: a rank
 * need not receive as many messages as it sends. Therefore `receives` and `sends`, which tell steps apart, stay NULL.
 * Nothing blocks: a request waits in its queue until the socket takes or gives its bytes, and every test serves all
 * queues. Needs libc alone.
 *
 * To use sockets, take the library's own transport (pici/socket.h): it is faster, and tells more of failures. This one
 * shows how little a transport must do. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pici/transport.h>

enum { MAX_RANKS = 16, LENGTH_BYTES = 8 };

/* ---- the transport */

struct request {
    struct request *next; /* in its queue, or in the list of those not in use */
    struct request *all;  /* the next of all, to free them */
    enum pici_status status;
    int done;
    uint8_t length[LENGTH_BYTES];
    uint8_t *data;
    size_t bytes; /* of data; of a receive the capacity until the length has arrived */
    size_t at;    /* bytes sent or received so far, including the length's */
};

struct queue {
    struct request *first, *last;
};

struct peer {
    int fd; /* -1: this rank itself, or gone */
    enum pici_status gone;
    struct queue out, in;
};

struct node {
    int rank, ranks;
    struct peer *peers; /* [ranks] */
    struct request *all, *idle;
    int ended; /* a request ended since the last wait */
    char error[128];
};

static void end_first(struct node *me, struct queue *q, enum pici_status s)
{
    struct request *r = q->first;
    q->first = r->next;
    r->status = s;
    r->done = 1;
    me->ended = 1;
}

/* End all requests of a peer, with which nothing can be exchanged any more. */
static void lose(struct node *me, struct peer *p, enum pici_status s, const char *why)
{
    snprintf(me->error, sizeof me->error, "rank %d: %s", (int)(p - me->peers), why);
    p->gone = s;
    close(p->fd);
    p->fd = -1;
    while (p->out.first)
        end_first(me, &p->out, s);
    while (p->in.first)
        end_first(me, &p->in, s);
}

/* A call on a socket returned n <= 0. Returns whether to call again. */
static int again(struct node *me, struct peer *p, ssize_t n)
{
    if (n < 0 && errno == EINTR)
        return 1;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n == 0 || errno == EPIPE || errno == ECONNRESET)
        lose(me, p, PICI_E_PEER, "closed its connection");
    else
        lose(me, p, PICI_E_TRANSPORT, strerror(errno));
    return 0;
}

static void pump_out(struct node *me, struct peer *p)
{
    struct request *r;
    while ((r = p->out.first)) {
        const int in_length = r->at < LENGTH_BYTES;
        const uint8_t *from = in_length ? r->length + r->at : r->data + (r->at - LENGTH_BYTES);
        const size_t left = (in_length ? LENGTH_BYTES : LENGTH_BYTES + r->bytes) - r->at;
        const ssize_t n = left ? send(p->fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (left && n <= 0) {
            if (!again(me, p, n))
                return;
            continue;
        }
        r->at += (size_t)n;
        if (r->at == LENGTH_BYTES + r->bytes)
            end_first(me, &p->out, PICI_OK);
    }
}

/* Reads only while a receive is posted. A message that is early stays in the socket, so its sender waits. */
static void pump_in(struct node *me, struct peer *p)
{
    struct request *r;
    while ((r = p->in.first)) {
        const int in_length = r->at < LENGTH_BYTES;
        uint8_t *to = in_length ? r->length + r->at : r->data + (r->at - LENGTH_BYTES);
        const size_t left = (in_length ? LENGTH_BYTES : LENGTH_BYTES + r->bytes) - r->at;
        const ssize_t n = left ? recv(p->fd, to, left, MSG_DONTWAIT) : 0;
        if (left && n <= 0) {
            if (!again(me, p, n))
                return;
            continue;
        }
        r->at += (size_t)n;
        if (in_length && r->at == LENGTH_BYTES) {
            uint64_t length = 0;
            for (int i = LENGTH_BYTES; i-- > 0;)
                length = length << 8 | r->length[i];
            if (length > r->bytes) {
                lose(me, p, PICI_E_CORRUPT, "sent a message that is too long");
                return;
            }
            r->bytes = (size_t)length;
        }
        if (r->at == LENGTH_BYTES + r->bytes)
            end_first(me, &p->in, PICI_OK);
    }
}

static enum pici_status post(struct node *me, struct peer *p, struct queue *q, void *data, size_t bytes, void **request)
{
    struct request *r = me->idle;
    if (p->gone)
        return p->gone;
    if (r)
        me->idle = r->next;
    else {
        r = malloc(sizeof *r);
        if (!r)
            return PICI_E_NOMEM;
        r->all = me->all;
        me->all = r;
    }
    r->next = NULL;
    r->status = PICI_OK;
    r->done = 0;
    r->data = data;
    r->bytes = bytes;
    r->at = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        r->length[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    if (q->first)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
    *request = r;
    return PICI_OK;
}

static enum pici_status node_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct node *me = context;
    return post(me, &me->peers[to], &me->peers[to].out, (void *)data, bytes, request); /* which is only read */
}

static enum pici_status node_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct node *me = context;
    return post(me, &me->peers[from], &me->peers[from].in, data, cap, request);
}

static enum pici_status node_test(void *context, void *request, int *done, size_t *bytes)
{
    struct node *me = context;
    struct request *r = request;
    for (int i = 0; i < me->ranks; i++) {
        pump_out(me, &me->peers[i]);
        pump_in(me, &me->peers[i]);
    }
    *done = r->done;
    if (!r->done)
        return PICI_OK;
    if (bytes)
        *bytes = r->bytes;
    r->next = me->idle;
    me->idle = r;
    return r->status;
}

/* A test of one request may have ended others: then do not sleep. */
static void node_wait(void *context, int timeout_ms)
{
    struct node *me = context;
    struct pollfd fds[MAX_RANKS];
    nfds_t n = 0;
    if (!me->ended) {
        for (int i = 0; i < me->ranks; i++) {
            const struct peer *p = &me->peers[i];
            const short events = (short)((p->out.first ? POLLOUT : 0) | (p->in.first ? POLLIN : 0));
            if (events)
                fds[n++] = (struct pollfd){.fd = p->fd, .events = events};
        }
        (void)poll(fds, n, timeout_ms); /* if it fails, the caller is back early, and tests */
    }
    me->ended = 0;
}

/* Close all connections, which tells the peers. The system has copied what was sent, so no buffer is in use. */
static int node_abandon(void *context, enum pici_status why)
{
    struct node *me = context;
    for (int i = 0; i < me->ranks; i++)
        if (me->peers[i].fd >= 0)
            lose(me, &me->peers[i], why, "given up");
    return 0;
}

static void node_close(void *context)
{
    struct node *me = context;
    for (int i = 0; i < me->ranks; i++)
        if (me->peers[i].fd >= 0)
            close(me->peers[i].fd);
    for (struct request *r = me->all, *next; r; r = next) {
        next = r->all;
        free(r);
    }
    free(me->peers);
    free(me);
}

static const char *node_error(void *context)
{
    return ((struct node *)context)->error;
}

/* A transport over these connected sockets, which it closes; fds[rank] is not used. */
static enum pici_status make_transport(struct pici_transport *out, const int *fds, int rank, int ranks)
{
    struct pici_transport t = PICI_TRANSPORT_INIT;
    struct node *me = calloc(1, sizeof *me);
    if (!me || !(me->peers = calloc((size_t)ranks, sizeof *me->peers))) {
        free(me);
        pici_comm_failed("no memory for a transport");
        return PICI_E_NOMEM;
    }
    me->rank = rank;
    me->ranks = ranks;
    for (int i = 0; i < ranks; i++)
        me->peers[i].fd = i == rank ? -1 : fds[i];
    t.context = me;
    t.rank = rank;
    t.ranks = ranks;
    t.send = node_send;
    t.recv = node_recv;
    t.test = node_test;
    t.wait = node_wait;
    t.abandon = node_abandon;
    t.close = node_close;
    t.error = node_error;
    *out = t;
    return PICI_OK;
}

static enum pici_status make_communicator(struct pici_comm **comm, const int *fds, int rank, int ranks)
{
    struct pici_transport t;
    enum pici_status s = make_transport(&t, fds, rank, ranks);
    *comm = NULL;
    return s ? s : pici_comm_transport(comm, &t); /* which closes it if it fails */
}

/* ---- the program */

enum { N = 1000000 };

/* Element i of a rank's vector: 99 of 100 are zero, the others small integers, whose sums are exact. */
static float element(int rank, uint32_t i)
{
    uint32_t x = (i + 1) * 2654435761u ^ (uint32_t)(rank + 1) * 2246822519u;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    x ^= x >> 16;
    return x % 100 ? 0 : (float)(x >> 8 & 15) - 7.5f;
}

static int work(const int *fds, int rank, int ranks)
{
    struct pici_comm *comm;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    float *vector = malloc(N * sizeof *vector);
    uint32_t wrong = 0;
    opts.stats = &stats;
    enum pici_status s = vector ? make_communicator(&comm, fds, rank, ranks) : PICI_E_NOMEM;
    if (s) {
        fprintf(stderr, "transport: rank %d: %s: %s\n", rank, pici_strerror(s), pici_comm_error(NULL));
        free(vector);
        return 1;
    }
    for (uint32_t i = 0; i < N; i++)
        vector[i] = element(rank, i);
    s = pici_all_reduce(vector, vector, N, PICI_F32, PICI_SUM, comm, &opts);
    if (s)
        fprintf(stderr, "transport: rank %d: %s: %s\n", rank, pici_strerror(s), pici_comm_error(comm));
    for (uint32_t i = 0; !s && i < N; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += element(r, i);
        wrong += vector[i] != sum;
    }
    if (wrong)
        fprintf(stderr, "transport: rank %d: %u elements are wrong\n", rank, (unsigned)wrong);
    if (rank == 0 && !s)
        printf("%d processes, all-reduce of %d floats, 1%% nonzero: %.2f MB sent by the first, %.2f MB had it been "
               "dense\n",
               ranks, N, (double)stats.wire_bytes * 1e-6, (double)stats.dense_bytes * 1e-6);
    pici_comm_free(comm);
    free(vector);
    return s || wrong;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    const long wanted = argc > 1 ? strtol(argv[1], &end, 10) : 4;
    if (argc > 2 || (end && *end) || wanted < 1 || wanted > MAX_RANKS) {
        fprintf(stderr, "usage: transport [RANKS], from 1 to %d\n", MAX_RANKS);
        return 1;
    }
    const int ranks = (int)wanted;
    int fds[MAX_RANKS][MAX_RANKS], failed = 0, rank = 0;
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
                perror("transport: socketpair");
                return 1;
            }
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
    for (int child = 1; child < ranks && rank == 0; child++) {
        const pid_t pid = fork();
        if (pid < 0) {
            perror("transport: fork");
            return 1; /* the children find their connections closed */
        }
        if (pid == 0)
            rank = child;
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            if (a != b && a != rank)
                close(fds[a][b]);
    failed = work(fds[rank], rank, ranks);
    for (int child = 1; child < ranks && rank == 0; child++) {
        int status;
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
            failed = 1;
    }
    return failed;
}
