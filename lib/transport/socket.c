/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over connected stream sockets.
 *
 * On a socket a message is its length (8 bytes, little-endian) and its bytes. Each direction of each socket has a queue
 * of requests. A send writes to the socket at once, as much as the socket takes. One system call writes lengths and
 * data of several messages. Data is received in its final place. Only lengths are received in a buffer, together with
 * the bytes after them, so a short message takes one system call. Nothing is read from a socket before a receive is
 * posted, so an early message waits in the socket.
 *
 * Two ranks that share memory (shared.h) exchange the same stream of bytes there. Their socket carries only wake-ups
 * and the end.
 *
 * A length whose highest bit is set is a shutdown message. Its low 32 bits are a status: PICI_OK if the rank closes its
 * transport, else why it gave up. The 31 bits between are the rank that it lost, or its own. If a socket ends without
 * this message, the peer died. A rank that loses a peer gives up and tells all others, so all ranks that wait for each
 * other learn of it. */
#define _GNU_SOURCE
#include "transport/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bytes.h"
#include "coll/message.h"
#include "transport/nap.h"
#include "transport/pool.h"
#include "transport/secure.h"

enum {
    LENGTH_BYTES = 8,
    BUFFER = 16384,       /* for lengths and short messages of a peer */
    TOGETHER = 8,         /* messages in a system call */
    GLANCES = 24,         /* polls before sleeping, if each rank has a core */
    RELAX = 16,           /* pauses between two glances */
    YIELDS = 100,         /* yields of the processor after that, if ranks share memory */
    LONG_MS = 2,          /* during a longer yield another program ran */
    CROWDED = 500,        /* waits without yields after such a one: a sleeper gets the processor back sooner */
    NEAR_BUFFER = 262144, /* bytes sent to a peer on this node and not yet received; the system doubles it */
    BLINDLY = 2,          /* the most queues to try without polling */
    SKIPPED = 8,          /* tests that leave a queue alone after another request found it blocked */
    LAST_MS = 100,        /* time to finish half-sent messages, and to send shutdown messages */
    DRAINED = 256,        /* buffers of bytes to read then from each peer, and drop */
    NAMED = 4             /* ranks that the error message of a timeout names */
};

/* Bytes in a system call: they must fit in a 32-bit ssize_t. */
static const size_t most_bytes = (size_t)1 << 30;

static const uint64_t shutdown_bit = UINT64_C(1) << 63;

struct request {
    struct pool_item item;
    struct request *next; /* in its queue */
    struct peer *peer;
    int sends, done;
    int known; /* of a receive: the length has come */
    enum pici_status status;
    uint8_t length[LENGTH_BYTES]; /* of a send */
    uint8_t *data;
    size_t bytes;  /* length; of a receive, the capacity until the length is known */
    size_t offset; /* bytes sent, including the length's; or bytes of data received */
};

struct queue {
    struct request *first, *last;
    const void *blocked; /* the request, or the node, that found it unable to move; or NULL */
    int skipped;         /* tests since then that did not try */
};

struct peer {
    int fd;                  /* -1: this rank itself, or gone */
    struct shared *shared;   /* carries the messages, */
    struct stripes *stripes; /* or these do, fd is the first of them; both NULL: fd does, */
    struct secure *secure;   /* encrypted, if this is not NULL */
    enum pici_status gone;   /* not PICI_OK: why no more messages can be exchanged */
    struct queue outgoing, incoming;
    uint8_t *buffer;                 /* [BUFFER] */
    size_t filled_begin, filled_end; /* the bytes in it that are not taken yet */
    uint8_t last[LENGTH_BYTES];      /* the shutdown message for it, */
    size_t last_missing;             /* and the bytes of that to send */
};

struct node {
    int rank, ranks;
    struct peer *peers; /* [ranks] */
    uint8_t *buffers;   /* [ranks * BUFFER] */
    struct pollfd *polls;
    struct peer **polled; /* [2 * ranks] of polls */
    int *node_of;         /* [ranks] */
    struct pool requests;
    int ended;   /* a request ended since the last wait */
    int cores;   /* each rank of this node has one */
    int crowded; /* future waits that do not yield */
    int shares;  /* some rank shares memory with this one: looking there takes no system call */
    int culprit; /* the first rank that was lost, or -1 */
    int abandoned, kept;
    char error[160], waits[96]; /* error messages */
};

static void finish_first(struct node *node, struct queue *queue, enum pici_status status)
{
    struct request *request = queue->first;
    queue->first = request->next;
    queue->blocked = NULL;
    request->status = status;
    request->done = 1;
    node->ended = 1;
}

static int number(const struct node *node, const struct peer *peer)
{
    return (int)(peer - node->peers);
}

static void hang_up(struct peer *peer)
{
    pici_secure_close(peer->fd);
    peer->fd = -1;
    peer->secure = NULL;
    pici_shared_free(peer->shared);
    pici_stripes_free(peer->stripes);
    peer->shared = NULL;
    peer->stripes = NULL;
}

/* End all requests of a peer, because `culprit` failed and no more messages can be exchanged. */
static void lose(struct node *node, struct peer *peer, enum pici_status status, int culprit, const char *explanation)
{
    if (node->culprit < 0) {
        node->culprit = culprit;
        snprintf(node->error, sizeof node->error, "%s", explanation);
    }
    peer->gone = status;
    hang_up(peer);
    while (peer->outgoing.first)
        finish_first(node, &peer->outgoing, status);
    while (peer->incoming.first)
        finish_first(node, &peer->incoming, status);
}

/* A peer sent its shutdown message. */
static void take_shutdown(struct node *node, struct peer *peer, uint64_t word)
{
    const int from = number(node, peer), named = (int)(word >> 32 & 0x7fffffff),
              culprit = named < node->ranks ? named : from;
    const enum pici_status status = pici_msg_status((uint32_t)word);
    char explanation[128];
    if (!status)
        snprintf(explanation, sizeof explanation, "rank %d has freed its communicator", from);
    else if (culprit == from)
        snprintf(explanation, sizeof explanation, "rank %d aborted: %s", from, pici_strerror(status));
    else
        snprintf(explanation, sizeof explanation, "rank %d aborted after rank %d failed: %s", from, culprit,
                 pici_strerror(status));
    lose(node, peer, status ? status : PICI_E_PEER, culprit, explanation);
}

/* A call on a socket returned moved <= 0. Returns whether to call again. */
static int again(struct node *node, struct peer *peer, ssize_t moved)
{
    char explanation[128];
    const int error = moved < 0 ? errno : 0;
    enum pici_status status = PICI_E_TRANSPORT;
    const char *colon = ":", *what = strerror(error);
    if (error == EINTR || error == EAGAIN || error == EWOULDBLOCK)
        return error == EINTR;
    if (moved == 0 || error == EPIPE || error == ECONNRESET) {
        status = PICI_E_PEER;
        colon = "";
        what = "closed its connection: it exited or was killed";
    } else if (error == EBADMSG && peer->shared) {
        status = PICI_E_CORRUPT;
        colon = "";
        what = "damaged the memory that it shares with this rank";
    } else if (error == EBADMSG) {
        what = "its message was changed on the way";
    }
    snprintf(explanation, sizeof explanation, "rank %d%s %s", number(node, peer), colon, what);
    lose(node, peer, status, number(node, peer), explanation);
    return 0;
}

/* ---- receiving */

static ssize_t receive(struct peer *peer, struct iovec *parts, size_t count)
{
    if (peer->shared)
        return pici_shared_recv(peer->shared, peer->fd, parts, (int)count);
    if (peer->stripes)
        return pici_stripes_recv(peer->stripes, parts, (int)count);
    if (peer->secure)
        return pici_secure_recv(peer->secure, peer->fd, parts[0].iov_base, parts[0].iov_len);
    return recvmsg(peer->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = count}, MSG_DONTWAIT);
}

/* Read into the buffer. Returns whether something came. */
static int fill(struct node *node, struct peer *peer)
{
    if (peer->filled_begin) {
        memmove(peer->buffer, peer->buffer + peer->filled_begin, peer->filled_end - peer->filled_begin);
        peer->filled_end -= peer->filled_begin;
        peer->filled_begin = 0;
    }
    for (;;) {
        struct iovec part = {peer->buffer + peer->filled_end, BUFFER - peer->filled_end};
        const ssize_t moved = receive(peer, &part, 1);
        if (moved > 0) {
            peer->filled_end += (size_t)moved;
            return 1;
        }
        if (!again(node, peer, moved))
            return 0;
    }
}

/* Read the missing data of the first receive, and what follows in the same system call. Returns whether something
 * came. */
static int fill_data(struct node *node, struct peer *peer, struct request *request)
{
    const size_t missing = request->bytes - request->offset, wanted = missing < most_bytes ? missing : most_bytes;
    struct iovec parts[2] = {{request->data + request->offset, wanted}, {peer->buffer, BUFFER}};
    peer->filled_begin = peer->filled_end = 0; /* it was empty */
    for (;;) {
        const ssize_t moved = receive(peer, parts, wanted == missing ? 2 : 1);
        if (moved > 0) {
            const size_t of_data = (size_t)moved < wanted ? (size_t)moved : wanted;
            request->offset += of_data;
            peer->filled_end = (size_t)moved - of_data;
            return 1;
        }
        if (!again(node, peer, moved))
            return 0;
    }
}

/* Take the length of the first receive's message from the buffer. Returns 0 if the peer is gone now. */
static int take_length(struct node *node, struct peer *peer, struct request *request)
{
    const uint64_t length = load_le64(peer->buffer + peer->filled_begin);
    peer->filled_begin += LENGTH_BYTES;
    if (length & shutdown_bit) {
        take_shutdown(node, peer, length);
        return 0;
    }
    if (length > request->bytes) {
        char explanation[128];
        snprintf(explanation, sizeof explanation, "rank %d sent a message of %llu bytes where %llu are the most",
                 number(node, peer), (unsigned long long)length, (unsigned long long)request->bytes);
        lose(node, peer, PICI_E_CORRUPT, number(node, peer), explanation);
        return 0;
    }
    request->known = 1;
    request->bytes = (size_t)length;
    request->offset =
        request->bytes < peer->filled_end - peer->filled_begin ? request->bytes : peer->filled_end - peer->filled_begin;
    if (request->offset)
        memcpy(request->data, peer->buffer + peer->filled_begin, request->offset);
    peer->filled_begin += request->offset;
    return 1;
}

/* Complete the receives whose messages have arrived; without `reads`, only from the buffer. */
static void pump_in(struct node *node, struct peer *peer, int reads)
{
    struct request *request;
    while ((request = peer->incoming.first)) {
        if (!request->known) {
            if (peer->filled_end - peer->filled_begin < LENGTH_BYTES) {
                if (!reads || !fill(node, peer))
                    return;
                continue;
            }
            if (!take_length(node, peer, request))
                return;
        }
        if (request->offset < request->bytes) {
            if (!reads || !fill_data(node, peer, request))
                return;
            continue;
        }
        finish_first(node, &peer->incoming, PICI_OK);
    }
}

/* ---- sending */

static ssize_t give(struct peer *peer, struct iovec *parts, size_t count)
{
    if (peer->shared)
        return pici_shared_send(peer->shared, peer->fd, parts, (int)count);
    if (peer->stripes)
        return pici_stripes_send(peer->stripes, parts, (int)count);
    return pici_secure_send(peer->secure, peer->fd, parts, count);
}

/* A send failed because the peer closed its socket. Look for a shutdown message, which says more. */
static void read_shutdown(struct node *node, struct peer *peer, ssize_t moved)
{
    const int error = errno;
    if (peer->incoming.first)
        pump_in(node, peer, 1);
    if (!peer->gone && !peer->incoming.first && peer->filled_end - peer->filled_begin < LENGTH_BYTES)
        (void)fill(node, peer);
    if (peer->gone)
        return;
    if (!peer->incoming.first && peer->filled_end - peer->filled_begin >= LENGTH_BYTES &&
        load_le64(peer->buffer + peer->filled_begin) & shutdown_bit) {
        take_shutdown(node, peer, load_le64(peer->buffer + peer->filled_begin));
        return;
    }
    errno = error;
    (void)again(node, peer, moved);
}

/* Collect the unsent bytes of the first sends, for one system call. Returns the number of parts. */
static size_t gather(const struct queue *queue, struct iovec parts[2 * TOGETHER])
{
    size_t count = 0, bytes = 0;
    for (struct request *request = queue->first; request && count <= 2 * TOGETHER - 2 && bytes < most_bytes;
         request = request->next) {
        const size_t sent = request->offset > LENGTH_BYTES ? request->offset - LENGTH_BYTES : 0,
                     of_data = request->bytes - sent;
        if (request->offset < LENGTH_BYTES)
            parts[count++] = (struct iovec){request->length + request->offset, LENGTH_BYTES - request->offset};
        if (of_data)
            parts[count++] =
                (struct iovec){request->data + sent, of_data < most_bytes - bytes ? of_data : most_bytes - bytes};
        bytes += of_data;
    }
    return count;
}

static void pump_out(struct node *node, struct peer *peer)
{
    struct request *request;
    while (peer->outgoing.first) {
        struct iovec parts[2 * TOGETHER];
        const size_t count = gather(&peer->outgoing, parts);
        const ssize_t moved = give(peer, parts, count);
        if (moved < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            read_shutdown(node, peer, moved);
            return;
        }
        if (moved <= 0) {
            if (!again(node, peer, moved))
                return;
            continue;
        }
        for (size_t taken = (size_t)moved; taken;) {
            request = peer->outgoing.first;
            const size_t missing = LENGTH_BYTES + request->bytes - request->offset,
                         step = taken < missing ? taken : missing;
            request->offset += step;
            taken -= step;
            if (step == missing)
                finish_first(node, &peer->outgoing, PICI_OK);
        }
    }
}

/* ---- what a communicator calls */

static enum pici_status post(struct node *node, int number_of_peer, int sends, void *data, size_t bytes, void **request)
{
    struct peer *peer = &node->peers[number_of_peer];
    struct queue *queue = sends ? &peer->outgoing : &peer->incoming;
    if (peer->gone)
        return peer->gone;
    struct request *pending = pool_take(&node->requests, sizeof *pending);
    if (!pending) {
        if (!node->error[0])
            snprintf(node->error, sizeof node->error, "no memory for a message");
        return PICI_E_NOMEM;
    }
    pending->peer = peer;
    pending->sends = sends;
    pending->data = data;
    pending->bytes = bytes;
    store_le64(pending->length, bytes);
    if (queue->first)
        queue->last->next = pending;
    else
        queue->first = pending;
    queue->last = pending;
    *request = pending;
    if (queue->first != pending)
        return PICI_OK;
    if (sends)
        pump_out(node, peer);
    else
        pump_in(node, peer, 0);
    if (sends && queue->first)
        queue->blocked = pending;
    return PICI_OK;
}

static enum pici_status socket_send(void *context, int receiver, const void *data, size_t bytes, void **request)
{
    return post(context, receiver, 1, (void *)data, bytes, request); /* sends only read it */
}

static enum pici_status socket_recv(void *context, int sender, void *data, size_t capacity, void **request)
{
    return post(context, sender, 0, data, capacity, request);
}

/* Try to move a request's queue. A caller tests all its requests in turn, and one try per round is enough. So only the
 * request that found a queue blocked tries it again, or another one after SKIPPED tests. */
static void try_queue(struct node *node, const struct request *request)
{
    struct peer *peer = request->peer;
    struct queue *queue = request->sends ? &peer->outgoing : &peer->incoming;
    if (queue->blocked && queue->blocked != request && ++queue->skipped < SKIPPED)
        return;
    queue->skipped = 0;
    if (request->sends)
        pump_out(node, peer);
    else
        pump_in(node, peer, 1);
    if (queue->first)
        queue->blocked = request;
}

static enum pici_status socket_test(void *context, void *request, int *done, size_t *bytes)
{
    struct node *node = context;
    struct request *pending = request;
    if (!pending->done)
        try_queue(node, pending);
    *done = pending->done;
    if (!pending->done)
        return PICI_OK;
    const enum pici_status status = pending->status;
    if (bytes)
        *bytes = status ? 0 : pending->bytes;
    pool_give(&node->requests, &pending->item);
    return status;
}

/* The poll entry that tells when a peer is ready to send to, or to receive from. Sets *timeout_ms to 0 if it is ready
 * already. */
static struct pollfd poll_of(struct peer *peer, int sends, int receives, int *timeout_ms)
{
    struct pollfd entry = {.fd = peer->fd, .events = sends ? POLLOUT : 0};
    entry.events |= receives ? POLLIN : 0;
    if (peer->stripes)
        entry.fd = sends ? pici_stripes_sends(peer->stripes) : pici_stripes_receives(peer->stripes);
    if (!peer->shared && receives && pici_secure_waits(peer->secure))
        *timeout_ms = 0;
    if (!peer->shared)
        return entry;
    entry.events = POLLIN;
    if (*timeout_ms > 0 && pici_shared_waits(peer->shared, sends, receives))
        *timeout_ms = 0;
    return entry;
}

/* Call this after polling with a timeout. */
static void end_poll(struct peer *peer, int events)
{
    if (!peer->shared)
        return;
    (void)pici_shared_waits(peer->shared, 0, 0);
    if (events)
        pici_shared_hear(peer->shared, peer->fd);
}

/* Wait for queues that can move, and move them. Without a timeout, try few queues without polling, which takes fewer
 * system calls. Returns the number of sockets that poll found ready. */
static int look(struct node *node, int timeout_ms)
{
    const int waits = timeout_ms > 0;
    nfds_t polled = 0;
    int queues = 0, ready = 0;
    for (int i = 0; i < node->ranks; i++) {
        struct peer *peer = &node->peers[i];
        const int sends = peer->outgoing.first != NULL, receives = peer->incoming.first != NULL;
        if (!sends && !receives)
            continue;
        queues += peer->shared ? 0 : sends + receives;
        if (peer->stripes && sends && receives) { /* they may use different sockets */
            node->polls[polled] = poll_of(peer, 0, 1, &timeout_ms);
            node->polled[polled++] = peer;
        }
        node->polls[polled] = poll_of(peer, sends, receives && !(peer->stripes && sends), &timeout_ms);
        node->polled[polled++] = peer;
    }
    const int blindly = !waits && queues <= BLINDLY;
    if (!blindly)
        ready = poll(node->polls, polled, timeout_ms);
    for (nfds_t i = 0; i < polled; i++) {
        struct peer *peer = node->polled[i];
        const int found = ready > 0 ? node->polls[i].revents : 0, events = blindly ? POLLIN | POLLOUT : found,
                  over = events & (POLLERR | POLLHUP | POLLNVAL), shares = peer->shared != NULL,
                  inside = pici_secure_waits(peer->secure); /* poll does not see these bytes */
        if (waits)
            end_poll(peer, events);
        if (peer->incoming.first && (shares || inside || events & POLLIN || over))
            pump_in(node, peer, 1);
        if (peer->outgoing.first && (shares || events & POLLOUT || over))
            pump_out(node, peer);
    }
    for (nfds_t i = 0; i < polled; i++) {
        struct peer *peer = node->polled[i];
        peer->incoming.blocked = peer->incoming.first ? node : NULL;
        peer->outgoing.blocked = peer->outgoing.first ? node : NULL;
        peer->incoming.skipped = peer->outgoing.skipped = 0;
    }
    return ready;
}

/* Do not sleep if a test of one request has ended others. Glance first: a short message mostly arrives before a system
 * call could put this thread to sleep. */
static void socket_wait(void *context, int timeout_ms)
{
    struct node *node = context;
    const int glances = node->cores ? GLANCES : 0, yields = node->shares && !node->crowded ? YIELDS : 0;
    int64_t before = pici_transport_ms();
    node->crowded -= node->crowded > 0;
    for (int i = 0; i < glances + yields && !node->ended && timeout_ms > 0; i++) {
        (void)look(node, 0);
        if (node->ended)
            break;
        if (i < glances) {
            pici_transport_relax(RELAX);
            continue;
        }
        sched_yield();
        const int64_t after = pici_transport_ms();
        if (after - before >= LONG_MS) {
            node->crowded = CROWDED;
            break;
        }
        before = after;
    }
    if (!node->ended) {
        const int64_t end = pici_transport_ms() + timeout_ms;
        int64_t remainder = timeout_ms;
        while (look(node, remainder < 0 ? 0 : (int)remainder) > 0 && !node->ended && remainder > 0)
            remainder = end - pici_transport_ms();
    }
    node->ended = 0;
}

/* ---- the end */

/* Whether a part of a message was sent, so that the peer waits for the rest. A record that was begun is sent too. */
static int half_sent(const struct peer *peer)
{
    return peer->fd >= 0 && peer->outgoing.first &&
           (peer->outgoing.first->offset > 0 || pici_secure_staged(peer->secure));
}

/* Send more of the first message, and of others in a record with it, but none of those behind. */
static void send_rest(struct node *node, struct peer *peer)
{
    struct request *last = peer->outgoing.first;
    size_t staged = pici_secure_staged(peer->secure), missing;
    for (; staged > (missing = LENGTH_BYTES + last->bytes - last->offset) && last->next; last = last->next)
        staged -= missing;
    struct request *behind = last->next;
    last->next = NULL;
    pump_out(node, peer);
    if (peer->outgoing.first)
        last->next = behind;
    else
        peer->outgoing.first = behind;
}

static void send_last(struct peer *peer)
{
    while (peer->last_missing) {
        struct iovec part = {peer->last + LENGTH_BYTES - peer->last_missing, peer->last_missing};
        const ssize_t moved = give(peer, &part, 1);
        if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (moved > 0)
            peer->last_missing -= (size_t)moved;
        else if (errno != EINTR)
            peer->last_missing = 0; /* the peer is gone */
    }
}

/* Send shutdown messages to the peers that take them soon. A half-sent message would swallow one, so finish it
 * first. In shared memory there is always room for the shutdown message; part() writes it. */
static void end_messages(struct node *node, uint64_t word)
{
    const int64_t end = pici_transport_ms() + LAST_MS;
    for (int i = 0; i < node->ranks; i++) {
        store_le64(node->peers[i].last, word);
        node->peers[i].last_missing = node->peers[i].shared ? 0 : LENGTH_BYTES;
    }
    for (;;) {
        nfds_t polled = 0;
        const int64_t remainder = end - pici_transport_ms();
        int timeout_ms = remainder > 0 ? (int)remainder : 0;
        for (int i = 0; i < node->ranks; i++) {
            struct peer *peer = &node->peers[i];
            if (half_sent(peer))
                send_rest(node, peer);
            if (peer->fd >= 0 && !half_sent(peer))
                send_last(peer);
            if (peer->fd >= 0 && (half_sent(peer) || peer->last_missing)) {
                node->polls[polled] = poll_of(peer, 1, 0, &timeout_ms);
                node->polled[polled++] = peer;
            }
        }
        if (!polled || remainder <= 0)
            return;
        const int ready = poll(node->polls, polled, timeout_ms);
        for (nfds_t i = 0; i < polled; i++)
            end_poll(node->polled[i], ready > 0 ? node->polls[i].revents : 0);
    }
}

/* Close the socket of a peer. drains: read its bytes first. Otherwise closing would reset the connection, and the peer
 * might lose unread bytes. After a half-sent message the peer learns only from the closed socket. */
static void part(struct peer *peer, int drains)
{
    if (peer->shared && !half_sent(peer))
        pici_shared_end(peer->shared, peer->last);
    for (int k = 0, fd = peer->fd; fd >= 0; fd = peer->stripes ? pici_stripes_fd(peer->stripes, ++k) : -1) {
        shutdown(fd, SHUT_WR);
        for (int i = 0; i < DRAINED && drains; i++)
            if (recv(fd, peer->buffer, BUFFER, MSG_DONTWAIT) <= 0)
                break;
    }
    hang_up(peer);
}

/* The next rank from `from` on that this rank waits for: for a message, or with `sends` to take one. -1: none. */
static int awaited(const struct node *node, int from, int sends)
{
    while (from < node->ranks && !(sends ? node->peers[from].outgoing.first : node->peers[from].incoming.first))
        from++;
    return from < node->ranks ? from : -1;
}

/* The system has copied all sent bytes, so no buffer is in use afterwards. */
static int socket_abandon(void *context, enum pici_status reason)
{
    struct node *node = context;
    int culprit = node->culprit;
    if (node->abandoned)
        return 0;
    node->abandoned = 1;
    if (culprit < 0 && reason == PICI_E_TIMEOUT)
        culprit = awaited(node, 0, awaited(node, 0, 0) < 0);
    if (culprit < 0)
        culprit = node->rank;
    if (!reason)
        reason = PICI_E_PEER;
    end_messages(node, shutdown_bit | (uint64_t)culprit << 32 | (uint32_t)reason);
    for (int i = 0; i < node->ranks; i++) {
        struct peer *peer = &node->peers[i];
        if (peer->fd >= 0)
            part(peer, 1);
        peer->gone = reason;
        while (peer->outgoing.first)
            finish_first(node, &peer->outgoing, reason);
        while (peer->incoming.first)
            finish_first(node, &peer->incoming, reason);
    }
    return 0;
}

static void socket_close(void *context)
{
    struct node *node = context;
    if (node->kept)
        return;
    end_messages(node, shutdown_bit | (uint64_t)node->rank << 32);
    for (int i = 0; i < node->ranks; i++)
        if (node->peers[i].fd >= 0)
            part(&node->peers[i], 0);
    pool_free(&node->requests);
    free(node->peers);
    free(node->buffers);
    free(node->polls);
    free(node->polled);
    free(node->node_of);
    free(node);
}

static enum pici_status socket_nodes(void *context, int *node_of)
{
    const struct node *node = context;
    memcpy(node_of, node->node_of, (size_t)node->ranks * sizeof *node_of);
    return PICI_OK;
}

/* Without a failure, the text names the ranks that this one waits for: a call that times out reports it. */
static const char *socket_error(void *context)
{
    struct node *node = context;
    const int sends = awaited(node, 0, 0) < 0;
    int offset = 0, remaining = NAMED, i;
    if (node->error[0])
        return node->error;
    node->waits[0] = '\0';
    const char *before = sends ? "waiting to send data to rank " : "waiting for a message from rank ";
    for (i = awaited(node, 0, sends); i >= 0 && remaining; i = awaited(node, i + 1, sends), remaining--) {
        offset += snprintf(node->waits + offset, sizeof node->waits - (size_t)offset, "%s%d", before, i);
        before = ", ";
    }
    if (i >= 0)
        snprintf(node->waits + offset, sizeof node->waits - (size_t)offset, ", ...");
    return node->waits;
}

/* ---- making one */

/* near: the peer is on this node. Then sent bytes wait for the receiver in this host's memory, and more than
 * NEAR_BUFFER would leave the caches before they are read. Without the limit, 8 MiB of dense data take up to a third
 * longer. For other hosts the system chooses by the link. */
static void set_options(int fd, int near)
{
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* sockets of other kinds lack it */
    if (near)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){NEAR_BUFFER}, sizeof(int));
}

enum pici_status pici_transport_sockets(struct pici_transport *transport, const int *fds, const int *node_of, int rank,
                                        int ranks)
{
    const size_t count = (size_t)ranks;
    struct node *node = calloc(1, sizeof *node);
    if (!node)
        return PICI_E_NOMEM;
    node->rank = rank;
    node->ranks = ranks;
    node->culprit = -1;
    node->peers = calloc(count, sizeof *node->peers);
    node->buffers = count <= SIZE_MAX / BUFFER ? malloc(count * BUFFER) : NULL;
    node->polls = calloc(2 * count, sizeof *node->polls);
    node->polled = calloc(2 * count, sizeof *node->polled);
    node->node_of = calloc(count, sizeof *node->node_of);
    if (!node->peers || !node->buffers || !node->polls || !node->polled || !node->node_of) {
        node->ranks = 0; /* nothing to close */
        socket_close(node);
        return PICI_E_NOMEM;
    }
    int here = 0;
    for (int i = 0; i < ranks; i++) {
        node->peers[i].fd = i == rank ? -1 : fds[i];
        node->peers[i].secure = i == rank ? NULL : pici_secure_of(fds[i]);
        node->peers[i].buffer = node->buffers + (size_t)i * BUFFER;
        node->node_of[i] = node_of[i];
        here += node_of[i] == node_of[rank];
        if (i != rank)
            set_options(fds[i], node_of[i] == node_of[rank]);
    }
    node->cores = pici_transport_cores(here);
    *transport = (struct pici_transport){
        .size = sizeof *transport,
        .context = node,
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

void pici_transport_sockets_keep(const struct pici_transport *transport, int keep)
{
    ((struct node *)transport->context)->kept = keep;
}

void pici_transport_sockets_pair(const struct pici_transport *transport, int peer, const struct pair *pair)
{
    struct node *node = transport->context;
    const int near = node->node_of[peer] == node->node_of[node->rank];
    node->peers[peer].shared = pair->shared;
    node->peers[peer].stripes = pair->stripes;
    node->shares += pair->shared != NULL;
    for (int i = 1; pair->stripes && pici_stripes_fd(pair->stripes, i) >= 0; i++)
        set_options(pici_stripes_fd(pair->stripes, i), near);
}
