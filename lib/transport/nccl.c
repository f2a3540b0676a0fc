/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL. NCCL wants both sides of a message to know its length, and runs the operations of a
 * communicator one after the other, in the order in which the rank issued them. So a step k of pici/transport.h is two
 * operations. In its header H(k) a rank sends the length of each of its messages to the receiver, and receives the
 * lengths of those for itself. Its payload P(k) is the messages. An operation is one NCCL group of sends and receives.
 * A rank without messages in a step issues nothing for it; messages of no bytes are left out of P(k).
 *
 * The order. While P(k) is in flight the lengths of step k + 1 should be exchanged already, or each message waits for a
 * round trip to the host. So H(k+1) comes before P(k) if `more` is 1 for step k, and after it if not. H(k+2) comes
 * after P(k) always. Nothing but `more` decides the order, least of all which messages have arrived. `more` is the same
 * on all ranks, so the order is: H(0) P(0) H(1) H(2) P(1) P(2), say.
 *
 * There is no deadlock. For the proof let every rank issue every operation; that of a rank without messages is empty,
 * and ends when it is issued. Suppose that some operation does not end on all ranks, and take the first in the order.
 * All operations before it end on all ranks. Had all ranks issued it, it would be the first that is left in every
 * rank's stream; then both sides of each of its messages are at work, and it ends. So some rank does not issue it.
 *   - If it is P(k), that rank waits for nothing but H(k), which is before it and ends.
 *   - If it is H(k), that rank waits until its messages of step k are begun, or it has said that there are none, and
 *     until step k - LIVE has ended, whose payload is before H(k). By the contract the former waits for messages of
 *     steps before k only. If P(k-1) is before H(k), the payloads of all these steps are before it, and end. If not,
 *     `more` was 1 for step k - 1, so messages of steps before k - 1 only are waited for, and P(k-2) is before H(k).
 * So every rank issues it: a contradiction. A call of NCCL may not return until the peers issue the same operation, as
 * when it connects, and an allocation until operations issued before it have ended. Neither changes the proof, since a
 * rank still waits for nothing but the operation itself and those before it. tests/gpu/emu_nccl_order.cc tests all
 this.
 *
 * A message in host memory, which is short, is staged in memory of the transport, pinned and on the device. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/capture.h"
#include "pici/cuda.h"
#include "transport/nap.h"
#include "transport/nccl_dense.h"
#include "transport/nccl_host.h"
#include "transport/nccl_transport.h"
#include "transport/pool.h"

enum { HOST_BYTES = 4096 }; /* of a message in host memory, at most */

/* Steps in flight: H(k) is issued only after step k - LIVE has ended. More would not help a rank that has messages in
 * all steps: it issues P(k) when H(k) has ended, and P(k-2) before that; then H(k+2) is the last header before
 * P(k+1). */
enum { LIVE = 4 };

int pici_nccl_seconds = 60;

struct request {
    struct pool_item item;
    struct request *next; /* of the same side */
    uint8_t *data;
    size_t bytes; /* to send; or capacity, then the length received */
    size_t at;    /* in host memory: where its bytes are staged in the step's room */
    int peer, on_device, done;
    enum pici_status status;
};

/* What a rank sends in a step, or what it receives. */
struct side {
    struct pool_item item;
    struct side *next; /* in its queue */
    int messages, begun;
    int more;
    struct request *first, **end;
};

/* Sides of steps whose headers are not issued yet. */
struct queue {
    struct side *first, **end;
    struct side *open; /* the last, if some of its messages are not begun, or NULL */
};

/* Memory that a step stages lengths and messages in: twice the same, pinned and on the device. */
struct room {
    struct room *older; /* of all rooms */
    uint8_t *pinned, *device;
    size_t bytes;
};

struct step {
    struct side *out, *in;
    struct room *room; /* lengths to send, lengths received, then messages in host memory */
    cudaEvent_t header, payload;
    int has_header, has_payload; /* the event is recorded: the operation is not empty */
};

struct nccl {
    ncclComm_t comm;
    int rank, ranks;
    cudaStream_t stream; /* NULL: one rank */
    struct pool requests, sides;
    struct queue sends, recvs;
    struct step step[LIVE];                             /* step k is at k modulo LIVE */
    uint64_t headers, payloads;                         /* issued */
    uint64_t headers_ended, payloads_ended;             /* of these */
    enum { NOTHING, HOSTS, HEADER, PAYLOAD } launching; /* NCCL is putting it into the stream */
    struct room *rooms;                                 /* all */
    struct room *names;                                 /* hash of this host's name, then [ranks] of all */
    cudaEvent_t hosts;
    int hosts_known;
    int given_up;
    int more; /* of the next send, if it is a step of its own */
    int looks;
    enum pici_status broken;
    char error[200];
};

/* ---- Failure ---- */

__attribute__((format(printf, 2, 3))) static void say(struct nccl *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(n->error, sizeof n->error, format, args);
    va_end(args);
}

/* Whether a call of CUDA succeeded. Its error is cleared, so the program's next call does not report it again. The
 * first failure ends the transport: what follows in the order cannot be done. */
static int cuda_good(struct nccl *n, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return 1;
    (void)cudaGetLastError();
    if (!n->broken) {
        n->broken = e == cudaErrorMemoryAllocation ? PICI_E_NOMEM : PICI_E_DEVICE;
        say(n, "%s: %s", what, cudaGetErrorString(e));
    }
    return 0;
}

static int nccl_good(struct nccl *n, ncclResult_t r, const char *what)
{
    if (r == ncclSuccess || r == ncclInProgress)
        return 1;
    if (!n->broken) {
        n->broken = PICI_E_TRANSPORT;
        say(n, "%s: %s: %s", what, ncclGetErrorString(r), ncclGetLastError(n->comm));
    }
    return 0;
}

/* ---- Staging memory ---- */

/* A room stays until close, even if a larger one replaces it: freeing memory of the device would wait for all that the
 * device does. NULL: no memory. */
static struct room *room_new(struct nccl *n, size_t bytes)
{
    struct room *r = calloc(1, sizeof *r);
    if (!r) {
        say(n, "no memory for messages in host memory");
        n->broken = PICI_E_NOMEM;
        return NULL;
    }
    r->older = n->rooms;
    n->rooms = r;
    r->bytes = bytes;
    const enum cudaStreamCaptureMode mode = capture_relax();
    const int made = cuda_good(n, cudaHostAlloc((void **)&r->pinned, bytes, cudaHostAllocDefault), "cudaHostAlloc") &&
                     cuda_good(n, cudaMalloc((void **)&r->device, bytes), "cudaMalloc");
    capture_restore(mode);
    return made ? r : NULL;
}

enum { ROOM_ALIGN = 16, ROOM_LEAST = ROOM_ALIGN + 2 * HOST_BYTES }; /* as an agreement round needs */

static size_t round_up(size_t bytes)
{
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

/* Give each message in host memory its place behind the lengths, and the step a room that has them all. 0: no
 * memory. */
static int make_room(struct nccl *n, struct step *x)
{
    const struct side *sides[] = {x->out, x->in};
    size_t at = round_up(((size_t)x->out->messages + (size_t)x->in->messages) * sizeof(uint64_t));
    for (int i = 0; i < 2; i++)
        for (struct request *q = sides[i]->first; q; q = q->next)
            if (!q->on_device) {
                q->at = at;
                at += round_up(q->bytes);
            }
    if (at <= x->room->bytes)
        return 1;
    struct room *larger = room_new(n, at > 2 * x->room->bytes ? at : 2 * x->room->bytes);
    if (larger)
        x->room = larger;
    return larger != NULL;
}

static int copy(struct nccl *n, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return !bytes || cuda_good(n, cudaMemcpyAsync(to, from, bytes, kind, n->stream), "cudaMemcpyAsync");
}

static int to_device(struct nccl *n, const struct room *r, size_t at, size_t bytes)
{
    return copy(n, r->device + at, r->pinned + at, bytes, cudaMemcpyHostToDevice);
}

static int to_pinned(struct nccl *n, const struct room *r, size_t at, size_t bytes)
{
    return copy(n, r->pinned + at, r->device + at, bytes, cudaMemcpyDeviceToHost);
}

/* Where the lengths of received messages are in a step's room; those of sent ones are at its beginning. */
static size_t lengths_received(const struct step *x)
{
    return (size_t)x->out->messages * sizeof(uint64_t);
}

/* ---- Operations ---- */

/* One send and one receive of a group; of no bytes: none. */
static void send_part(struct nccl *n, const void *data, size_t bytes, int to)
{
    if (bytes)
        nccl_good(n, ncclSend(data, bytes, ncclUint8, to, n->comm, n->stream), "ncclSend");
}

static void recv_part(struct nccl *n, void *data, size_t bytes, int from)
{
    if (bytes)
        nccl_good(n, ncclRecv(data, bytes, ncclUint8, from, n->comm, n->stream), "ncclRecv");
}

static struct step *step_at(struct nccl *n, uint64_t k)
{
    return &n->step[k % LIVE];
}

static struct side *dequeue(struct queue *q)
{
    struct side *s = q->first;
    q->first = s->next;
    if (!q->first)
        q->end = &q->first;
    return s;
}

static void issue_header(struct nccl *n)
{
    struct step *x = step_at(n, n->headers);
    x->out = dequeue(&n->sends);
    x->in = dequeue(&n->recvs);
    x->has_header = x->out->messages || x->in->messages;
    if (!x->has_header) {
        n->headers++;
        return;
    }
    if (!make_room(n, x))
        return;
    uint64_t *length = (uint64_t *)x->room->pinned;
    for (const struct request *q = x->out->first; q; q = q->next)
        *length++ = q->bytes;
    if (to_device(n, x->room, 0, lengths_received(x)) && nccl_good(n, ncclGroupStart(), "ncclGroupStart")) {
        uint8_t *at = x->room->device;
        for (const struct request *q = x->out->first; q; q = q->next, at += sizeof(uint64_t))
            send_part(n, at, sizeof(uint64_t), q->peer);
        for (const struct request *q = x->in->first; q; q = q->next, at += sizeof(uint64_t))
            recv_part(n, at, sizeof(uint64_t), q->peer);
        nccl_good(n, ncclGroupEnd(), "ncclGroupEnd"); /* after any failure: this thread's group must end */
    }
    n->launching = HEADER;
}

/* Take the lengths that came. 0: a message is too long for its receive. Then the transport ends: the peer's payload
 * cannot be received. */
static int take_lengths(struct nccl *n, const struct step *x)
{
    const uint64_t *length = (const uint64_t *)(x->room->pinned + lengths_received(x));
    for (struct request *q = x->in->first; q; q = q->next, length++) {
        if (*length > q->bytes) {
            if (!n->broken)
                say(n, "rank %d announced %llu bytes where there is room for %zu", q->peer, (unsigned long long)*length,
                    q->bytes);
            n->broken = PICI_E_TRANSPORT;
            q->status = PICI_E_CORRUPT;
            q->done = 1;
        }
        q->bytes = q->done ? 0 : (size_t)*length;
    }
    return !n->broken;
}

/* The bytes of a message that the operation reads or writes. */
static uint8_t *bytes_of(const struct step *x, const struct request *q)
{
    return q->on_device ? q->data : x->room->device + q->at;
}

static void issue_payload(struct nccl *n)
{
    struct step *x = step_at(n, n->payloads);
    x->has_payload = 0;
    if (x->has_header && !take_lengths(n, x))
        return;
    for (const struct request *q = x->out->first; q; q = q->next) {
        x->has_payload |= q->bytes > 0;
        if (q->on_device || !q->bytes)
            continue;
        memcpy(x->room->pinned + q->at, q->data, q->bytes);
        to_device(n, x->room, q->at, q->bytes);
    }
    for (const struct request *q = x->in->first; q; q = q->next)
        x->has_payload |= q->bytes > 0;
    if (!x->has_payload) {
        n->payloads++;
        return;
    }
    if (!n->broken && nccl_good(n, ncclGroupStart(), "ncclGroupStart")) {
        for (const struct request *q = x->out->first; q; q = q->next)
            send_part(n, bytes_of(x, q), q->bytes, q->peer);
        for (const struct request *q = x->in->first; q; q = q->next)
            recv_part(n, bytes_of(x, q), q->bytes, q->peer);
        nccl_good(n, ncclGroupEnd(), "ncclGroupEnd");
    }
    n->launching = PAYLOAD;
}

/* NCCL has put into the stream what it was given: add what comes after it there. */
static void launched(struct nccl *n)
{
    const struct step *x;
    switch (n->launching) {
    case NOTHING: break;
    case HOSTS:
        to_pinned(n, n->names, sizeof(uint64_t), (size_t)n->ranks * sizeof(uint64_t));
        cuda_good(n, cudaEventRecord(n->hosts, n->stream), "cudaEventRecord");
        break;
    case HEADER:
        x = step_at(n, n->headers++);
        to_pinned(n, x->room, lengths_received(x), (size_t)x->in->messages * sizeof(uint64_t));
        cuda_good(n, cudaEventRecord(x->header, n->stream), "cudaEventRecord");
        break;
    case PAYLOAD:
        x = step_at(n, n->payloads++);
        for (const struct request *q = x->in->first; q; q = q->next)
            if (!q->on_device)
                to_pinned(n, x->room, q->at, q->bytes);
        cuda_good(n, cudaEventRecord(x->payload, n->stream), "cudaEventRecord");
        break;
    }
    n->launching = NOTHING;
}

/* Whether the stream is past an event. If not, CUDA reports an error, which the program's next call must not see. */
static int past(struct nccl *n, cudaEvent_t event)
{
    const enum cudaStreamCaptureMode mode = capture_relax();
    const cudaError_t e = cudaEventQuery(event);
    capture_restore(mode);
    if (e == cudaErrorNotReady)
        (void)cudaGetLastError();
    return e != cudaErrorNotReady && cuda_good(n, e, "cudaEventQuery");
}

static int header_ended(struct nccl *n)
{
    const struct step *x = step_at(n, n->headers_ended);
    return !x->has_header || past(n, x->header);
}

static int payload_ended(struct nccl *n)
{
    const struct step *x = step_at(n, n->payloads_ended);
    return !x->has_payload || past(n, x->payload);
}

static void end_step(struct nccl *n)
{
    const struct step *x = step_at(n, n->payloads_ended++);
    struct side *sides[] = {x->out, x->in};
    for (const struct request *q = x->in->first; q; q = q->next)
        if (!q->on_device && q->bytes)
            memcpy(q->data, x->room->pinned + q->at, q->bytes);
    for (int i = 0; i < 2; i++) {
        for (struct request *q = sides[i]->first; q; q = q->next)
            q->done = 1;
        pool_give(&n->sides, &sides[i]->item);
    }
    n->looks = 0;
}

/* Whether all messages of the first side were begun. */
static int complete(const struct queue *q)
{
    return q->first && q->first->begun == q->first->messages;
}

/* Issue the next operation of the order, if all that it needs is there. */
static int issue(struct nccl *n)
{
    const int more = n->headers > n->payloads && step_at(n, n->payloads)->out->more;
    if (pici_nccl_header_next(n->headers, n->payloads, more)) {
        if (n->headers == n->payloads_ended + LIVE || !complete(&n->sends) || !complete(&n->recvs))
            return 0;
        issue_header(n);
    } else {
        if (n->payloads == n->headers_ended)
            return 0;
        issue_payload(n);
    }
    return 1;
}

/* Do all that can be done without waiting. */
static void advance(struct nccl *n)
{
    int moved = n->stream != NULL;
    while (moved && !n->broken) {
        ncclResult_t r = ncclSuccess;
        moved = 0;
        if (!nccl_good(n, ncclCommGetAsyncError(n->comm, &r), "ncclCommGetAsyncError") || !nccl_good(n, r, "NCCL"))
            return;
        if (n->launching) {
            if (r == ncclInProgress)
                return;
            launched(n);
        }
        if (!n->hosts_known)
            n->hosts_known = past(n, n->hosts);
        /* headers first: once a header has ended, so have the payloads before it */
        for (; n->headers_ended < n->headers && header_ended(n); moved = 1)
            n->headers_ended++;
        for (; n->payloads_ended < n->payloads && payload_ended(n); moved = 1)
            end_step(n);
        if (!n->broken)
            moved |= issue(n);
    }
}

/* ---- What a communicator calls ---- */

/* Begin a side of a step, of so many messages. */
static void announce(struct nccl *n, struct queue *to, int messages, int more)
{
    if (n->broken || (n->ranks == 1 && !messages))
        return;
    if (messages < 0 || to->open) {
        say(n, "a step of %d messages begins where %d of the one before are missing", messages,
            to->open ? to->open->messages - to->open->begun : 0);
        n->broken = PICI_E_ARG;
        return;
    }
    struct side *s = pool_take(&n->sides, sizeof *s);
    if (!s) {
        say(n, "no memory for a step");
        n->broken = PICI_E_NOMEM;
        return;
    }
    s->messages = messages;
    s->more = more;
    s->end = &s->first;
    *to->end = s;
    to->end = &s->next;
    to->open = messages ? s : NULL;
}

static void nccl_receives(void *context, int messages)
{
    struct nccl *n = context;
    announce(n, &n->recvs, messages, 0);
}

static void nccl_sends(void *context, int messages, int more)
{
    struct nccl *n = context;
    announce(n, &n->sends, messages, more);
    if (!messages)
        advance(n);
}

static void nccl_more(void *context, int more)
{
    struct nccl *n = context;
    n->more = more;
}

/* Add a message of so many bytes, or none, to the step that was announced; without one to a step of its own. */
static enum pici_status begin(struct nccl *n, struct queue *to, int peer, void *data, size_t bytes, int more,
                              void **request)
{
    struct cudaPointerAttributes where = {.type = cudaMemoryTypeDevice};
    if (n->broken || (bytes && !cuda_good(n, cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes")))
        return n->broken;
    const int on_device = where.type == cudaMemoryTypeDevice || where.type == cudaMemoryTypeManaged;
    if (!on_device && bytes > HOST_BYTES) {
        say(n, "a message of up to %zu bytes in host memory, where NCCL takes the GPU's", bytes);
        return PICI_E_ARG;
    }
    struct request *q = pool_take(&n->requests, sizeof *q);
    if (!q)
        return PICI_E_NOMEM;
    if (!to->open)
        announce(n, to, 1, more);
    if (n->broken) {
        pool_give(&n->requests, &q->item);
        return n->broken;
    }
    q->data = data;
    q->bytes = bytes;
    q->peer = peer;
    q->on_device = on_device;
    struct side *s = to->open;
    *s->end = q;
    s->end = &q->next;
    if (++s->begun == s->messages)
        to->open = NULL;
    *request = q;
    return PICI_OK;
}

static enum pici_status nccl_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct nccl *n = context;
    enum pici_status s = begin(n, &n->sends, to, (void *)data, bytes, n->more, request);
    if (s)
        return s;
    n->more = 0; /* until the caller tells it of the next */
    advance(n);
    return PICI_OK;
}

static enum pici_status nccl_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct nccl *n = context;
    return begin(n, &n->recvs, from, data, cap, 0, request);
}

static enum pici_status nccl_test(void *context, void *request, int *done, size_t *bytes)
{
    struct nccl *n = context;
    struct request *q = request;
    if (!q->done)
        advance(n);
    if (!q->done && n->broken) {
        q->status = n->broken;
        q->bytes = 0;
        q->done = 1;
    }
    *done = q->done;
    if (!q->done)
        return PICI_OK;
    const enum pici_status s = q->status;
    if (bytes)
        *bytes = q->bytes;
    pool_give(&n->requests, &q->item);
    return s;
}

static void nccl_wait(void *context, int timeout_ms)
{
    struct nccl *n = context;
    pici_transport_nap(&n->looks, 0, timeout_ms);
}

/* Whether an operation is in flight. While one is, freeing memory of the device waits for it, even if no message's
 * buffer is in use. */
static int busy(const struct nccl *n)
{
    if (!n->stream)
        return 0;
    const enum cudaStreamCaptureMode mode = capture_relax();
    const cudaError_t e = cudaStreamQuery(n->stream);
    capture_restore(mode);
    if (e != cudaSuccess)
        (void)cudaGetLastError();
    return n->launching || e != cudaSuccess;
}

/* Only the end of the NCCL communicator would stop its operations, and that is the caller's. The peers have a timeout
 * of their own. */
static int nccl_abandon(void *context, enum pici_status why)
{
    struct nccl *n = context;
    (void)why;
    n->given_up = 1;
    return busy(n);
}

static void nccl_close(void *context)
{
    struct nccl *n = context;
    if (!busy(n)) { /* else NCCL may still use all of it, and freeing some would wait */
        const enum cudaStreamCaptureMode mode = capture_relax();
        for (int i = 0; i < LIVE; i++) {
            if (n->step[i].header)
                cudaEventDestroy(n->step[i].header);
            if (n->step[i].payload)
                cudaEventDestroy(n->step[i].payload);
        }
        if (n->hosts)
            cudaEventDestroy(n->hosts);
        if (n->stream)
            cudaStreamDestroy(n->stream);
        /* after a failure the GPU may hang in another stream, which freeing would wait for */
        for (const struct room *r = n->given_up ? NULL : n->rooms; r; r = r->older) {
            cudaFreeHost(r->pinned);
            cudaFree(r->device);
        }
        capture_restore(mode);
    }
    for (struct room *r = n->rooms, *older; r; r = older) {
        older = r->older;
        free(r);
    }
    pool_free(&n->requests);
    pool_free(&n->sides);
    free(n);
}

static int64_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec;
}

/* The number of a node is the lowest rank on it. */
static enum pici_status nccl_nodes(void *context, int *node_of)
{
    struct nccl *n = context;
    const int64_t end = seconds() + pici_nccl_seconds;
    n->looks = 0;
    for (advance(n); n->stream && !n->hosts_known; advance(n)) {
        if (!n->broken && seconds() > end) {
            say(n, "some rank did not make its communicator within %d s", pici_nccl_seconds);
            n->broken = PICI_E_TIMEOUT;
        }
        if (n->broken)
            return n->broken;
        pici_transport_nap(&n->looks, 0, 1);
    }
    const uint64_t *host = n->stream ? (const uint64_t *)n->names->pinned + 1 : NULL;
    for (int r = 0; r < n->ranks; r++) {
        node_of[r] = 0;
        while (host && host[node_of[r]] != host[r])
            node_of[r]++;
    }
    return PICI_OK;
}

static const char *nccl_error(void *context)
{
    struct nccl *n = context;
    return n->error;
}

static enum pici_status nccl_dense_ready(void *context, enum pici_collective kind, const void *send, const void *recv,
                                         uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    const struct nccl *n = context;
    (void)send, (void)recv, (void)count, (void)op;
    return n->broken ? n->broken : pici_nccl_dense_can(kind, dtype) ? PICI_OK : PICI_E_UNSUPPORTED;
}

/* No message is in flight, so all operations issued before have ended, on this rank; and those of peers that have not
 * are before this one in the same order. */
static enum pici_status nccl_dense(void *context, enum pici_collective kind, const void *send, void *recv,
                                   uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms)
{
    struct nccl *n = context;
    cudaError_t cuda;
    if (n->broken)
        return n->broken;
    const ncclResult_t r = pici_nccl_dense(n->comm, n->stream, kind, send, recv, count, dtype, op, timeout_ms, &cuda);
    n->looks = 0;
    if (r == ncclInProgress) { /* what comes after it in the stream would wait for it */
        n->broken = PICI_E_TIMEOUT;
        n->launching = PAYLOAD; /* it may not be in the stream yet, so an idle stream would mean nothing */
        say(n, "a collective of NCCL took more than %d ms", timeout_ms);
    }
    if (nccl_good(n, r, "a collective of NCCL"))
        cuda_good(n, cuda, "cudaStreamQuery");
    return n->broken; /* 0, PICI_OK, if all is well */
}

/* ---- Making one ---- */

static int event_new(struct nccl *n, cudaEvent_t *event)
{
    return cuda_good(n, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

/* Make all that needs a GPU. */
static void prepare(struct nccl *n)
{
    if (!cuda_good(n, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") ||
        !event_new(n, &n->hosts) || !(n->names = room_new(n, ((size_t)n->ranks + 1) * sizeof(uint64_t))))
        return;
    for (int i = 0; i < LIVE; i++)
        if (!event_new(n, &n->step[i].header) || !event_new(n, &n->step[i].payload) ||
            !(n->step[i].room = room_new(n, ROOM_LEAST)))
            return;
    const uint64_t own = pici_nccl_host();
    uint8_t *names = n->names->device;
    memcpy(n->names->pinned, &own, sizeof own);
    if (to_device(n, n->names, 0, sizeof own) &&
        nccl_good(n, ncclAllGather(names, names + sizeof own, 1, ncclUint64, n->comm, n->stream), "ncclAllGather"))
        n->launching = HOSTS;
    advance(n);
}

/* Find rank, ranks and device; or what is wrong. */
static enum pici_status look(struct nccl *n)
{
    int theirs = -1, current = -1;
    if (!nccl_good(n, ncclCommCount(n->comm, &n->ranks), "ncclCommCount") ||
        !nccl_good(n, ncclCommUserRank(n->comm, &n->rank), "ncclCommUserRank") ||
        !nccl_good(n, ncclCommCuDevice(n->comm, &theirs), "ncclCommCuDevice") ||
        !cuda_good(n, cudaGetDevice(&current), "cudaGetDevice"))
        return n->broken;
    if (theirs == current)
        return PICI_OK;
    say(n, "the communicator is of device %d, the current device is %d", theirs, current);
    return PICI_E_ARG;
}

enum pici_status pici_transport_nccl(struct pici_transport *t, ncclComm_t comm)
{
    if (!t || !comm) {
        pici_comm_failed("no NCCL communicator");
        return PICI_E_ARG;
    }
    struct nccl *n = calloc(1, sizeof *n);
    if (!n) {
        pici_comm_failed("no memory for a transport over NCCL");
        return PICI_E_NOMEM;
    }
    n->comm = comm;
    n->sends.end = &n->sends.first;
    n->recvs.end = &n->recvs.first;
    enum pici_status s = look(n);
    if (!s && n->ranks > 1) {
        prepare(n);
        s = n->broken;
    }
    if (s) {
        pici_comm_failed(n->error);
        nccl_close(n);
        return s;
    }
    *t = (struct pici_transport){
        .size = sizeof *t,
        .context = n,
        .rank = n->rank,
        .ranks = n->ranks,
        .send = nccl_send,
        .recv = nccl_recv,
        .test = nccl_test,
        .wait = nccl_wait,
        .abandon = nccl_abandon,
        .close = nccl_close,
        .nodes = nccl_nodes,
        .error = nccl_error,
        .memory = PICI_MEMORY_DEVICE,
        .more = nccl_more,
        .receives = nccl_receives,
        .sends = nccl_sends,
        .dense_ready = nccl_dense_ready,
        .dense = nccl_dense,
    };
    return PICI_OK;
}

enum pici_status pici_comm_nccl(struct pici_comm **out, ncclComm_t comm, cudaStream_t stream)
{
    struct pici_transport t;
    if (!out) {
        pici_comm_failed("no place for the communicator");
        return PICI_E_ARG;
    }
    *out = NULL;
    enum pici_status s = pici_transport_nccl(&t, comm);
    if (s || (s = pici_comm_transport(out, &t)))
        return s;
    s = pici_comm_cuda(*out, stream);
    if (s) {
        pici_comm_failed(pici_strerror(s)); /* pici_comm_transport succeeded and left no words */
        pici_comm_free(*out);
        *out = NULL;
    }
    return s;
}
