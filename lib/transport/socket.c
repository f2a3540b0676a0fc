/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over connected stream sockets.
 *
 * On a socket a message is its length (8 bytes, little-endian) and its bytes. Each direction of each socket has a queue
 * of requests. What is sent goes to the socket at once, lengths and data of several messages in one system call, as far
 * as the socket takes it. Data is received in its final place. Only lengths are received in a buffer, and with them
 * what follows at once: so a short message takes one system call. Nothing is read from a socket before a receive is
 * posted, so a message that is early waits in the socket.
 *
 * A length whose highest bit is set says goodbye. Its low 32 bits are a status: PICI_OK, the rank closes its transport;
 * or why it gave up. The 31 bits between are the rank that it lost, or its own. A socket that ends without goodbye is
 * that of a rank that died. Who loses a peer gives up, and says so to all others; so all ranks learn of it that wait
 * for each other. */
#define _GNU_SOURCE
#include "transport/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "coll/message.h"
#include "transport/nap.h"
#include "transport/pool.h"

enum {
    LENGTH_BYTES = 8,
    BUFFER = 16384,       /* for lengths and short messages of a peer */
    TOGETHER = 8,         /* messages in a system call */
    GLANCES = 24,         /* without sleeping, where each rank has a core */
    RELAX = 16,           /* pauses between two of these */
    NEAR_BUFFER = 262144, /* bytes sent to a peer on this node and not yet received; the system doubles it */
    BLINDLY = 2,          /* queues that are tried without asking */
    SKIPPED = 8,          /* tests that leave a queue alone which another request found blocked */
    LAST_MS = 100,        /* to end messages that are half sent, before giving up */
    DRAINED = 256,        /* buffers of bytes that are read and dropped then, of each peer */
    NAMED = 4             /* ranks that the words of a timeout name */
};

/* Bytes in a system call: less than a ssize_t has on 32-bit machines. */
static const size_t most_bytes = (size_t)1 << 30;

static const uint64_t goodbye = UINT64_C(1) << 63;

struct request {
    struct pool_item item;
    struct request *next; /* in its queue */
    struct peer *peer;
    int sends, done;
    int known; /* of a receive: the length has come */
    enum pici_status status;
    uint8_t length[LENGTH_BYTES]; /* of a send */
    uint8_t *data;
    size_t bytes; /* of data; of a receive the capacity until the length is known */
    size_t at;    /* bytes sent, with those of the length; bytes of data received */
};

struct queue {
    struct request *first, *last;
    const void *blocked; /* who found that it cannot move: a request, or its rank; NULL: nobody */
    int skipped;         /* tests since then that did not try */
};

struct peer {
    int fd;                /* -1: this rank itself, or gone */
    enum pici_status gone; /* not PICI_OK: why nothing can be exchanged any more */
    struct queue out, in;
    uint8_t *buffer; /* [BUFFER] */
    size_t from, to; /* what is in it and not yet taken */
};

struct node {
    int rank, ranks;
    struct peer *peers; /* [ranks] */
    uint8_t *buffers;   /* [ranks * BUFFER] */
    struct pollfd *polls;
    struct peer **polled; /* [ranks] of polls */
    int *node_of;         /* [ranks] */
    struct pool requests;
    int ended;   /* a request ended since the last wait */
    int cores;   /* each rank of this node has one */
    int culprit; /* the first rank that was lost, or -1 */
    int abandoned, kept;
    char error[160], waits[96]; /* words */
};

static void finish_first(struct node *me, struct queue *q, enum pici_status s)
{
    struct request *r = q->first;
    q->first = r->next;
    q->blocked = NULL;
    r->status = s;
    r->done = 1;
    me->ended = 1;
}

static int number(const struct node *me, const struct peer *p)
{
    return (int)(p - me->peers);
}

/* End all requests of a peer, with which nothing can be exchanged any more because of `culprit`. */
static void lose(struct node *me, struct peer *p, enum pici_status s, int culprit, const char *words)
{
    if (me->culprit < 0) {
        me->culprit = culprit;
        snprintf(me->error, sizeof me->error, "%s", words);
    }
    p->gone = s;
    close(p->fd);
    p->fd = -1;
    while (p->out.first)
        finish_first(me, &p->out, s);
    while (p->in.first)
        finish_first(me, &p->in, s);
}

/* A peer said goodbye. */
static void take_goodbye(struct node *me, struct peer *p, uint64_t word)
{
    const int from = number(me, p), named = (int)(word >> 32 & 0x7fffffff), culprit = named < me->ranks ? named : from;
    const enum pici_status s = pici_msg_status((uint32_t)word);
    char words[128];
    if (!s)
        snprintf(words, sizeof words, "rank %d has freed its communicator", from);
    else if (culprit == from)
        snprintf(words, sizeof words, "rank %d gave up: %s", from, pici_strerror(s));
    else
        snprintf(words, sizeof words, "rank %d gave up because of rank %d: %s", from, culprit, pici_strerror(s));
    lose(me, p, s ? s : PICI_E_PEER, culprit, words);
}

/* A call on a socket returned n <= 0. Returns whether to call again. */
static int again(struct node *me, struct peer *p, ssize_t n)
{
    char words[128];
    const int error = n < 0 ? errno : 0;
    if (error == EINTR)
        return 1;
    if (error == EAGAIN || error == EWOULDBLOCK)
        return 0;
    if (n == 0 || error == EPIPE || error == ECONNRESET) {
        snprintf(words, sizeof words, "rank %d has closed its connection: it ended or was killed", number(me, p));
        lose(me, p, PICI_E_PEER, number(me, p), words);
    } else {
        snprintf(words, sizeof words, "rank %d: %s", number(me, p), strerror(error));
        lose(me, p, PICI_E_TRANSPORT, number(me, p), words);
    }
    return 0;
}

/* ---- receiving */

/* Read into the buffer. Returns whether something came. */
static int fill(struct node *me, struct peer *p)
{
    if (p->from) {
        memmove(p->buffer, p->buffer + p->from, p->to - p->from);
        p->to -= p->from;
        p->from = 0;
    }
    for (;;) {
        const ssize_t n = recv(p->fd, p->buffer + p->to, BUFFER - p->to, MSG_DONTWAIT);
        if (n > 0) {
            p->to += (size_t)n;
            return 1;
        }
        if (!again(me, p, n))
            return 0;
    }
}

/* Read what is still missing of the first receive's data, and what follows at once. Returns whether something came. */
static int fill_data(struct node *me, struct peer *p, struct request *r)
{
    const size_t missing = r->bytes - r->at, wanted = missing < most_bytes ? missing : most_bytes;
    struct iovec at[2] = {{r->data + r->at, wanted}, {p->buffer, BUFFER}};
    struct msghdr message = {.msg_iov = at, .msg_iovlen = wanted == missing ? 2 : 1};
    p->from = p->to = 0; /* it was empty */
    for (;;) {
        const ssize_t n = recvmsg(p->fd, &message, MSG_DONTWAIT);
        if (n > 0) {
            const size_t of_data = (size_t)n < wanted ? (size_t)n : wanted;
            r->at += of_data;
            p->to = (size_t)n - of_data;
            return 1;
        }
        if (!again(me, p, n))
            return 0;
    }
}

/* Take the length of the first receive's message from the buffer. Returns 0 if the peer is gone now. */
static int take_length(struct node *me, struct peer *p, struct request *r)
{
    const uint64_t length = load_le64(p->buffer + p->from);
    p->from += LENGTH_BYTES;
    if (length & goodbye) {
        take_goodbye(me, p, length);
        return 0;
    }
    if (length > r->bytes) {
        char words[128];
        snprintf(words, sizeof words, "rank %d sent a message of %llu bytes where %llu are the most", number(me, p),
                 (unsigned long long)length, (unsigned long long)r->bytes);
        lose(me, p, PICI_E_CORRUPT, number(me, p), words);
        return 0;
    }
    r->known = 1;
    r->bytes = (size_t)length;
    r->at = r->bytes < p->to - p->from ? r->bytes : p->to - p->from;
    if (r->at)
        memcpy(r->data, p->buffer + p->from, r->at);
    p->from += r->at;
    return 1;
}

/* End receives as far as their messages have come. Without `reads`, those that are in the buffer. */
static void pump_in(struct node *me, struct peer *p, int reads)
{
    struct request *r;
    while ((r = p->in.first)) {
        if (!r->known) {
            if (p->to - p->from < LENGTH_BYTES) {
                if (!reads || !fill(me, p))
                    return;
                continue;
            }
            if (!take_length(me, p, r))
                return;
        }
        if (r->at < r->bytes) {
            if (!reads || !fill_data(me, p, r))
                return;
            continue;
        }
        finish_first(me, &p->in, PICI_OK);
    }
}

/* ---- sending */

/* A send failed: the peer has closed its socket. What it said before says more. */
static void hear_goodbye(struct node *me, struct peer *p, ssize_t n)
{
    const int error = errno;
    if (p->in.first)
        pump_in(me, p, 1);
    else if (p->to - p->from < LENGTH_BYTES)
        (void)fill(me, p);
    if (p->gone)
        return;
    if (!p->in.first && p->to - p->from >= LENGTH_BYTES && load_le64(p->buffer + p->from) & goodbye) {
        take_goodbye(me, p, load_le64(p->buffer + p->from));
        return;
    }
    errno = error;
    (void)again(me, p, n);
}

/* The bytes of the first sends that the socket has not taken: arrays for a system call. Returns how many. */
static size_t gather(const struct queue *q, struct iovec at[2 * TOGETHER])
{
    size_t n = 0, bytes = 0;
    for (struct request *r = q->first; r && n <= 2 * TOGETHER - 2 && bytes < most_bytes; r = r->next) {
        const size_t sent = r->at > LENGTH_BYTES ? r->at - LENGTH_BYTES : 0, of_data = r->bytes - sent;
        if (r->at < LENGTH_BYTES)
            at[n++] = (struct iovec){r->length + r->at, LENGTH_BYTES - r->at};
        if (of_data)
            at[n++] = (struct iovec){r->data + sent, of_data < most_bytes - bytes ? of_data : most_bytes - bytes};
        bytes += of_data;
    }
    return n;
}

static void pump_out(struct node *me, struct peer *p)
{
    struct request *r;
    while (p->out.first) {
        struct iovec at[2 * TOGETHER];
        struct msghdr message = {.msg_iov = at, .msg_iovlen = gather(&p->out, at)};
        const ssize_t n = sendmsg(p->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            hear_goodbye(me, p, n);
            return;
        }
        if (n <= 0) {
            if (!again(me, p, n))
                return;
            continue;
        }
        for (size_t taken = (size_t)n; taken;) {
            r = p->out.first;
            const size_t missing = LENGTH_BYTES + r->bytes - r->at, step = taken < missing ? taken : missing;
            r->at += step;
            taken -= step;
            if (step == missing)
                finish_first(me, &p->out, PICI_OK);
        }
    }
}

/* ---- what a communicator calls */

static enum pici_status post(struct node *me, int number_of_peer, int sends, void *data, size_t bytes, void **request)
{
    struct peer *p = &me->peers[number_of_peer];
    struct queue *q = sends ? &p->out : &p->in;
    if (p->gone)
        return p->gone;
    struct request *r = pool_take(&me->requests, sizeof *r);
    if (!r) {
        if (!me->error[0])
            snprintf(me->error, sizeof me->error, "no memory for a message");
        return PICI_E_NOMEM;
    }
    r->peer = p;
    r->sends = sends;
    r->data = data;
    r->bytes = bytes;
    store_le64(r->length, bytes);
    if (q->first)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
    *request = r;
    if (q->first != r)
        return PICI_OK;
    if (sends)
        pump_out(me, p);
    else
        pump_in(me, p, 0);
    if (sends && q->first)
        q->blocked = r;
    return PICI_OK;
}

static enum pici_status socket_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    return post(context, to, 1, (void *)data, bytes, request); /* which is only read */
}

static enum pici_status socket_recv(void *context, int from, void *data, size_t cap, void **request)
{
    return post(context, from, 0, data, cap, request);
}

/* Try to move a request's queue. A queue that was found blocked is tried again by the request that found it so, and
 * after some tests of others: a caller tests all its requests in turn, and one try for all of them is enough. */
static void try_queue(struct node *me, const struct request *r)
{
    struct peer *p = r->peer;
    struct queue *q = r->sends ? &p->out : &p->in;
    if (q->blocked && q->blocked != r && ++q->skipped < SKIPPED)
        return;
    q->skipped = 0;
    if (r->sends)
        pump_out(me, p);
    else
        pump_in(me, p, 1);
    if (q->first)
        q->blocked = r;
}

static enum pici_status socket_test(void *context, void *request, int *done, size_t *bytes)
{
    struct node *me = context;
    struct request *r = request;
    if (!r->done)
        try_queue(me, r);
    *done = r->done;
    if (!r->done)
        return PICI_OK;
    const enum pici_status s = r->status;
    if (bytes)
        *bytes = s ? 0 : r->bytes;
    pool_give(&me->requests, &r->item);
    return s;
}

/* Move all queues that can move, after waiting for that. Without a timeout, few queues are tried at once: that takes
 * fewer system calls than to ask which of them can move. Returns how many sockets were ready, as far as known. */
static int look(struct node *me, int timeout_ms)
{
    nfds_t n = 0;
    int queues = 0, ready = 0;
    for (int i = 0; i < me->ranks; i++) {
        struct peer *p = &me->peers[i];
        if (!p->out.first && !p->in.first)
            continue;
        const int sends = p->out.first != NULL, receives = p->in.first != NULL;
        queues += sends + receives;
        me->polls[n].fd = p->fd;
        me->polls[n].events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
        me->polled[n++] = p;
    }
    const int blindly = timeout_ms == 0 && queues <= BLINDLY;
    if (!blindly)
        ready = poll(me->polls, n, timeout_ms);
    for (nfds_t i = 0; i < n && (blindly || ready > 0); i++) {
        struct peer *p = me->polled[i];
        const int events = blindly ? POLLIN | POLLOUT : me->polls[i].revents;
        const int over = events & (POLLERR | POLLHUP | POLLNVAL);
        if (p->in.first && (events & POLLIN || over))
            pump_in(me, p, 1);
        if (p->out.first && (events & POLLOUT || over))
            pump_out(me, p);
    }
    for (nfds_t i = 0; i < n; i++) {
        struct peer *p = me->polled[i];
        p->in.blocked = p->in.first ? me : NULL;
        p->out.blocked = p->out.first ? me : NULL;
        p->in.skipped = p->out.skipped = 0;
    }
    return ready;
}

/* Leave the core's units to another thread on it for a moment. */
static void relax(void)
{
    for (int i = 0; i < RELAX; i++) {
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile("yield");
#endif
    }
}

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A test of one request may have ended others: then do not sleep. A short message mostly comes before the system call
 * that sleeps would have begun. */
static void socket_wait(void *context, int timeout_ms)
{
    struct node *me = context;
    for (int i = 0; i < GLANCES && me->cores && !me->ended && timeout_ms > 0; i++) {
        (void)look(me, 0);
        if (!me->ended)
            relax();
    }
    if (!me->ended) {
        const int64_t end = milliseconds() + timeout_ms;
        int64_t rest = timeout_ms;
        while (look(me, rest < 0 ? 0 : (int)rest) > 0 && !me->ended && rest > 0)
            rest = end - milliseconds();
    }
    me->ended = 0;
}

/* ---- the end */

/* Whether a part of a message was sent, so that the peer waits for the rest. */
static int half_sent(const struct peer *p)
{
    return p->fd >= 0 && p->out.first && p->out.first->at > 0;
}

/* Send more of it, but nothing of the messages behind it. */
static void send_rest(struct node *me, struct peer *p)
{
    struct request *behind = p->out.first->next;
    p->out.first->next = NULL;
    pump_out(me, p);
    if (p->out.first)
        p->out.first->next = behind;
    else
        p->out.first = behind;
}

/* A message that is half sent would swallow the goodbye: end it, if the peer takes it soon. */
static void end_messages(struct node *me)
{
    const int64_t end = milliseconds() + LAST_MS;
    for (;;) {
        nfds_t n = 0;
        for (int i = 0; i < me->ranks; i++)
            if (half_sent(&me->peers[i]))
                send_rest(me, &me->peers[i]);
        for (int i = 0; i < me->ranks; i++)
            if (half_sent(&me->peers[i]))
                me->polls[n++] = (struct pollfd){.fd = me->peers[i].fd, .events = POLLOUT};
        const int64_t rest = end - milliseconds();
        if (!n || rest <= 0)
            return;
        (void)poll(me->polls, n, (int)rest);
    }
}

/* Say goodbye to a peer, and close its socket. What it has sent is read: else closing would reset the connection, and
 * the peer might lose what it has not read. */
static void part(struct peer *p, uint64_t word, int drains)
{
    uint8_t length[LENGTH_BYTES];
    store_le64(length, word);
    if (!half_sent(p))
        (void)!send(p->fd, length, sizeof length, MSG_DONTWAIT | MSG_NOSIGNAL); /* else it learns by the end */
    shutdown(p->fd, SHUT_WR);
    for (int i = 0; i < DRAINED && drains; i++)
        if (recv(p->fd, p->buffer, BUFFER, MSG_DONTWAIT) <= 0)
            break;
    close(p->fd);
    p->fd = -1;
}

/* The next rank from `from` on of which a message is due; with `sends`, which does not take one. -1: none. */
static int awaited(const struct node *me, int from, int sends)
{
    while (from < me->ranks && !(sends ? me->peers[from].out.first : me->peers[from].in.first))
        from++;
    return from < me->ranks ? from : -1;
}

/* The system has copied what was sent, so no buffer is in use afterwards. */
static int socket_abandon(void *context, enum pici_status why)
{
    struct node *me = context;
    int culprit = me->culprit;
    if (me->abandoned)
        return 0;
    me->abandoned = 1;
    if (culprit < 0 && why == PICI_E_TIMEOUT)
        culprit = awaited(me, 0, awaited(me, 0, 0) < 0);
    if (culprit < 0)
        culprit = me->rank;
    if (!why)
        why = PICI_E_PEER;
    end_messages(me);
    for (int i = 0; i < me->ranks; i++) {
        struct peer *p = &me->peers[i];
        if (p->fd >= 0)
            part(p, goodbye | (uint64_t)culprit << 32 | (uint32_t)why, 1);
        p->gone = why;
        while (p->out.first)
            finish_first(me, &p->out, why);
        while (p->in.first)
            finish_first(me, &p->in, why);
    }
    return 0;
}

static void socket_close(void *context)
{
    struct node *me = context;
    if (me->kept)
        return;
    for (int i = 0; i < me->ranks; i++)
        if (me->peers[i].fd >= 0)
            part(&me->peers[i], goodbye | (uint64_t)me->rank << 32, 0);
    pool_free(&me->requests);
    free(me->peers);
    free(me->buffers);
    free(me->polls);
    free(me->polled);
    free(me->node_of);
    free(me);
}

static enum pici_status socket_nodes(void *context, int *node_of)
{
    const struct node *me = context;
    memcpy(node_of, me->node_of, (size_t)me->ranks * sizeof *node_of);
    return PICI_OK;
}

/* Without a failure: for whom this rank waits, since a call that times out asks for the words. */
static const char *socket_error(void *context)
{
    struct node *me = context;
    const int sends = awaited(me, 0, 0) < 0;
    int at = 0, left = NAMED, i;
    if (me->error[0])
        return me->error;
    me->waits[0] = '\0';
    for (i = awaited(me, 0, sends); i >= 0 && left; i = awaited(me, i + 1, sends), left--)
        at += snprintf(me->waits + at, sizeof me->waits - (size_t)at, "%s%d",
                       at      ? ", "
                       : sends ? "data is not taken by rank "
                               : "no message from rank ",
                       i);
    if (i >= 0)
        snprintf(me->waits + at, sizeof me->waits - (size_t)at, ", ...");
    return me->waits;
}

/* ---- making one */

/* near: the peer is on this node. Then what is sent waits for its receiver in this host's memory; more than this would
 * leave the caches before it is read. 8 MiB of dense data take up to a third longer without the limit. To other hosts
 * the system chooses, by the link. */
static void set_options(int fd, int near)
{
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* sockets of other kinds lack it */
    if (near)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){NEAR_BUFFER}, sizeof(int));
}

enum pici_status pici_transport_sockets(struct pici_transport *t, const int *fds, const int *node_of, int rank,
                                        int ranks)
{
    const size_t n = (size_t)ranks;
    struct node *me = calloc(1, sizeof *me);
    if (!me)
        return PICI_E_NOMEM;
    me->rank = rank;
    me->ranks = ranks;
    me->culprit = -1;
    me->peers = calloc(n, sizeof *me->peers);
    me->buffers = n <= SIZE_MAX / BUFFER ? malloc(n * BUFFER) : NULL;
    me->polls = calloc(n, sizeof *me->polls);
    me->polled = calloc(n, sizeof *me->polled);
    me->node_of = calloc(n, sizeof *me->node_of);
    if (!me->peers || !me->buffers || !me->polls || !me->polled || !me->node_of) {
        me->ranks = 0; /* nothing to close */
        socket_close(me);
        return PICI_E_NOMEM;
    }
    int here = 0;
    for (int i = 0; i < ranks; i++) {
        me->peers[i].fd = i == rank ? -1 : fds[i];
        me->peers[i].buffer = me->buffers + (size_t)i * BUFFER;
        me->node_of[i] = node_of[i];
        here += node_of[i] == node_of[rank];
        if (i != rank)
            set_options(fds[i], node_of[i] == node_of[rank]);
    }
    me->cores = pici_transport_cores(here);
    *t = (struct pici_transport){
        .size = sizeof *t,
        .context = me,
        .rank = rank,
        .ranks = ranks,
        .send = socket_send,
        .recv = socket_recv,
        .test = socket_test,
        .wait = socket_wait,
        .abandon = socket_abandon,
        .close = socket_close,
        .nodes = socket_nodes,
        .error = socket_error,
    };
    return PICI_OK;
}

void pici_transport_sockets_keep(const struct pici_transport *t, int keep)
{
    ((struct node *)t->context)->kept = keep;
}
