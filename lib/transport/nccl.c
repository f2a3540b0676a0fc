/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL. NCCL requires both sides of a message to know its length. It runs the operations of a
 * communicator one after the other, in the order in which the rank issued them. So a step k of pici/transport.h is two
 * operations. In its header H(k) a rank sends the length of each of its messages to the receiver, and receives the
 * lengths of those for itself. Its payload P(k) is the messages. An operation is one NCCL group of sends and receives.
 * A rank without messages in a step issues nothing for it; messages of no bytes are left out of P(k).
 *
 * The order. While P(k) is in flight the lengths of step k + 1 should be exchanged already, or each message waits for a
 * round trip to the host. So H(k+1) comes before P(k) if `more` is 1 for step k, and after it if not. H(k+2) comes
 * after P(k) always. Only `more` decides the order; the arrival of messages never does. `more` is the same on all
 * ranks, so the order is too, for example H(0) P(0) H(1) H(2) P(1) P(2).
 *
 * There is no deadlock. For the proof, let every rank issue every operation; a rank without messages issues an empty
 * one, which ends at once. Take the first operation in the order that does not end on all ranks. If all ranks had
 * issued it, it would be the first unfinished operation in every rank's stream. Then both sides of each of its messages
 * would be at work, and it would end. So some rank does not issue it.
 *   - If it is P(k), that rank waits only for H(k), which is before it and ends.
 *   - If it is H(k), that rank waits for two things. First, step k - LIVE must have ended; its payload is before H(k).
 *     Second, the rank must have begun its messages of step k, or announced that there are none. By pici/transport.h
 *     that waits only for messages of steps before k. If P(k-1) is before H(k), so are the payloads of all these steps,
 *     and they end. If not, `more` was 1 for step k - 1. Then that waits only for messages of steps before k - 1, and
 *     P(k-2) is before H(k).
 * So every rank issues it: a contradiction. A call of NCCL may block until the peers issue the same operation, for
 * example to connect. An allocation may block until earlier operations have ended. Neither changes the proof: a rank
 * still waits only for the operation itself and those before it. tests/gpu/emu_nccl_order.cc tests all this.
 *
 * Messages in host memory are short. The transport stages them in its own memory, pinned and on the device. */
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

/* Steps in flight: H(k) is issued only after step k - LIVE has ended. More would not help a rank with messages in all
 * steps. It issues P(k) when H(k) has ended, and P(k-2) before that; then H(k+2) is the last header before P(k+1). */
enum { LIVE = 4 };

int pici_nccl_seconds = 60;

struct request {
    struct pool_item item;
    struct request *next; /* of the same side */
    uint8_t *data;
    size_t bytes;  /* to send; or capacity, then the length received */
    size_t offset; /* in host memory: where its bytes are staged in the step's room */
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

/* A step's memory for lengths and messages, allocated twice: pinned and on the device. */
struct room {
    struct room *older; /* in the list of all rooms */
    uint8_t *pinned, *device;
    size_t bytes;
};

struct step {
    struct side *outgoing, *incoming;
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
    uint64_t headers_ended, payloads_ended;             /* of those issued */
    enum { NOTHING, HOSTS, HEADER, PAYLOAD } launching; /* what NCCL is putting into the stream */
    struct room *rooms;                                 /* all */
    struct room *names; /* hash of this host's name, then [ranks] hashes of all ranks' hosts */
    cudaEvent_t hosts;
    int hosts_known;
    int given_up;
    int more; /* of the next send, if that is a step of its own */
    int looks;
    enum pici_status broken;
    char error[200];
};

/* ---- Failure ---- */

__attribute__((format(printf, 2, 3))) static void say(struct nccl *nccl, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(nccl->error, sizeof nccl->error, format, arguments);
    va_end(arguments);
}

/* Whether a call of CUDA succeeded. Its error is cleared, so the program's next call does not report it again. The
 * first failure ends the transport, because later operations in the order cannot run. */
static int cuda_good(struct nccl *nccl, cudaError_t error, const char *operation)
{
    if (error == cudaSuccess)
        return 1;
    (void)cudaGetLastError();
    if (!nccl->broken) {
        nccl->broken = error == cudaErrorMemoryAllocation ? PICI_E_NOMEM : PICI_E_DEVICE;
        say(nccl, "%s: %s", operation, cudaGetErrorString(error));
    }
    return 0;
}

static int nccl_good(struct nccl *nccl, ncclResult_t result, const char *operation)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return 1;
    if (!nccl->broken) {
        nccl->broken = PICI_E_TRANSPORT;
        say(nccl, "%s: %s: %s", operation, ncclGetErrorString(result), ncclGetLastError(nccl->comm));
    }
    return 0;
}

/* ---- Staging memory ---- */

/* A room stays until close, even if a larger one replaces it: freeing device memory would wait for all work on the
 * device. Returns NULL without memory. */
static struct room *room_new(struct nccl *nccl, size_t bytes)
{
    struct room *room = calloc(1, sizeof *room);
    if (!room) {
        say(nccl, "no memory for messages in host memory");
        nccl->broken = PICI_E_NOMEM;
        return NULL;
    }
    room->older = nccl->rooms;
    nccl->rooms = room;
    room->bytes = bytes;
    const enum cudaStreamCaptureMode mode = capture_relax();
    const int made =
        cuda_good(nccl, cudaHostAlloc((void **)&room->pinned, bytes, cudaHostAllocDefault), "cudaHostAlloc") &&
        cuda_good(nccl, cudaMalloc((void **)&room->device, bytes), "cudaMalloc");
    capture_restore(mode);
    return made ? room : NULL;
}

enum { ROOM_ALIGN = 16, ROOM_LEAST = ROOM_ALIGN + 2 * HOST_BYTES }; /* enough for an agreement round */

static size_t round_up(size_t bytes)
{
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

/* Assign each message in host memory a place after the lengths, and give the step a room for all. Returns 0 without
 * memory. */
static int make_room(struct nccl *nccl, struct step *step)
{
    const struct side *sides[] = {step->outgoing, step->incoming};
    size_t offset = round_up(((size_t)step->outgoing->messages + (size_t)step->incoming->messages) * sizeof(uint64_t));
    for (int i = 0; i < 2; i++)
        for (struct request *request = sides[i]->first; request; request = request->next)
            if (!request->on_device) {
                request->offset = offset;
                offset += round_up(request->bytes);
            }
    if (offset <= step->room->bytes)
        return 1;
    struct room *larger = room_new(nccl, offset > 2 * step->room->bytes ? offset : 2 * step->room->bytes);
    if (larger)
        step->room = larger;
    return larger != NULL;
}

static int copy(struct nccl *nccl, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return !bytes || cuda_good(nccl, cudaMemcpyAsync(to, from, bytes, kind, nccl->stream), "cudaMemcpyAsync");
}

static int to_device(struct nccl *nccl, const struct room *room, size_t offset, size_t bytes)
{
    return copy(nccl, room->device + offset, room->pinned + offset, bytes, cudaMemcpyHostToDevice);
}

static int to_pinned(struct nccl *nccl, const struct room *room, size_t offset, size_t bytes)
{
    return copy(nccl, room->pinned + offset, room->device + offset, bytes, cudaMemcpyDeviceToHost);
}

/* The offset of the received lengths in a step's room. The sent lengths are at its beginning. */
static size_t lengths_received(const struct step *step)
{
    return (size_t)step->outgoing->messages * sizeof(uint64_t);
}

/* ---- Operations ---- */

/* Add one send, or one receive, to a group. Add nothing for 0 bytes. */
static void send_part(struct nccl *nccl, const void *data, size_t bytes, int receiver)
{
    if (bytes)
        nccl_good(nccl, ncclSend(data, bytes, ncclUint8, receiver, nccl->comm, nccl->stream), "ncclSend");
}

static void recv_part(struct nccl *nccl, void *data, size_t bytes, int sender)
{
    if (bytes)
        nccl_good(nccl, ncclRecv(data, bytes, ncclUint8, sender, nccl->comm, nccl->stream), "ncclRecv");
}

static struct step *step_at(struct nccl *nccl, uint64_t number)
{
    return &nccl->step[number % LIVE];
}

static struct side *dequeue(struct queue *queue)
{
    struct side *side = queue->first;
    queue->first = side->next;
    if (!queue->first)
        queue->end = &queue->first;
    return side;
}

static void issue_header(struct nccl *nccl)
{
    struct step *step = step_at(nccl, nccl->headers);
    step->outgoing = dequeue(&nccl->sends);
    step->incoming = dequeue(&nccl->recvs);
    step->has_header = step->outgoing->messages || step->incoming->messages;
    if (!step->has_header) {
        nccl->headers++;
        return;
    }
    if (!make_room(nccl, step))
        return;
    uint64_t *length = (uint64_t *)step->room->pinned;
    for (const struct request *request = step->outgoing->first; request; request = request->next)
        *length++ = request->bytes;
    if (to_device(nccl, step->room, 0, lengths_received(step)) && nccl_good(nccl, ncclGroupStart(), "ncclGroupStart")) {
        uint8_t *length_at = step->room->device;
        for (const struct request *request = step->outgoing->first; request;
             request = request->next, length_at += sizeof(uint64_t))
            send_part(nccl, length_at, sizeof(uint64_t), request->peer);
        for (const struct request *request = step->incoming->first; request;
             request = request->next, length_at += sizeof(uint64_t))
            recv_part(nccl, length_at, sizeof(uint64_t), request->peer);
        nccl_good(nccl, ncclGroupEnd(), "ncclGroupEnd"); /* even after a failure: this thread's group must end */
    }
    nccl->launching = HEADER;
}

/* Read the received lengths. Returns 0 if a message is longer than its receive allows. That ends the transport, which
 * cannot receive the peer's payload. */
static int take_lengths(struct nccl *nccl, const struct step *step)
{
    const uint64_t *length = (const uint64_t *)(step->room->pinned + lengths_received(step));
    for (struct request *request = step->incoming->first; request; request = request->next, length++) {
        if (*length > request->bytes) {
            if (!nccl->broken)
                say(nccl, "rank %d announced %llu bytes where there is room for %zu", request->peer,
                    (unsigned long long)*length, request->bytes);
            nccl->broken = PICI_E_TRANSPORT;
            request->status = PICI_E_CORRUPT;
            request->done = 1;
        }
        request->bytes = request->done ? 0 : (size_t)*length;
    }
    return !nccl->broken;
}

/* The device memory that the operation reads or writes for a message. */
static uint8_t *bytes_of(const struct step *step, const struct request *request)
{
    return request->on_device ? request->data : step->room->device + request->offset;
}

static void issue_payload(struct nccl *nccl)
{
    struct step *step = step_at(nccl, nccl->payloads);
    step->has_payload = 0;
    if (step->has_header && !take_lengths(nccl, step))
        return;
    for (const struct request *request = step->outgoing->first; request; request = request->next) {
        step->has_payload |= request->bytes > 0;
        if (request->on_device || !request->bytes)
            continue;
        memcpy(step->room->pinned + request->offset, request->data, request->bytes);
        to_device(nccl, step->room, request->offset, request->bytes);
    }
    for (const struct request *request = step->incoming->first; request; request = request->next)
        step->has_payload |= request->bytes > 0;
    if (!step->has_payload) {
        nccl->payloads++;
        return;
    }
    if (!nccl->broken && nccl_good(nccl, ncclGroupStart(), "ncclGroupStart")) {
        for (const struct request *request = step->outgoing->first; request; request = request->next)
            send_part(nccl, bytes_of(step, request), request->bytes, request->peer);
        for (const struct request *request = step->incoming->first; request; request = request->next)
            recv_part(nccl, bytes_of(step, request), request->bytes, request->peer);
        nccl_good(nccl, ncclGroupEnd(), "ncclGroupEnd");
    }
    nccl->launching = PAYLOAD;
}

/* NCCL has put the operation into the stream: add the work that follows it. */
static void launched(struct nccl *nccl)
{
    const struct step *step;
    switch (nccl->launching) {
    case NOTHING: break;
    case HOSTS:
        to_pinned(nccl, nccl->names, sizeof(uint64_t), (size_t)nccl->ranks * sizeof(uint64_t));
        cuda_good(nccl, cudaEventRecord(nccl->hosts, nccl->stream), "cudaEventRecord");
        break;
    case HEADER:
        step = step_at(nccl, nccl->headers++);
        to_pinned(nccl, step->room, lengths_received(step), (size_t)step->incoming->messages * sizeof(uint64_t));
        cuda_good(nccl, cudaEventRecord(step->header, nccl->stream), "cudaEventRecord");
        break;
    case PAYLOAD:
        step = step_at(nccl, nccl->payloads++);
        for (const struct request *request = step->incoming->first; request; request = request->next)
            if (!request->on_device)
                to_pinned(nccl, step->room, request->offset, request->bytes);
        cuda_good(nccl, cudaEventRecord(step->payload, nccl->stream), "cudaEventRecord");
        break;
    }
    nccl->launching = NOTHING;
}

/* Whether the stream is past an event. If not, CUDA reports an error, which the program's next call must not see. */
static int past(struct nccl *nccl, cudaEvent_t event)
{
    const enum cudaStreamCaptureMode mode = capture_relax();
    const cudaError_t error = cudaEventQuery(event);
    capture_restore(mode);
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError();
    return error != cudaErrorNotReady && cuda_good(nccl, error, "cudaEventQuery");
}

static int header_ended(struct nccl *nccl)
{
    const struct step *step = step_at(nccl, nccl->headers_ended);
    return !step->has_header || past(nccl, step->header);
}

static int payload_ended(struct nccl *nccl)
{
    const struct step *step = step_at(nccl, nccl->payloads_ended);
    return !step->has_payload || past(nccl, step->payload);
}

static void end_step(struct nccl *nccl)
{
    const struct step *step = step_at(nccl, nccl->payloads_ended++);
    struct side *sides[] = {step->outgoing, step->incoming};
    for (const struct request *request = step->incoming->first; request; request = request->next)
        if (!request->on_device && request->bytes)
            memcpy(request->data, step->room->pinned + request->offset, request->bytes);
    for (int i = 0; i < 2; i++) {
        for (struct request *request = sides[i]->first; request; request = request->next)
            request->done = 1;
        pool_give(&nccl->sides, &sides[i]->item);
    }
    nccl->looks = 0;
}

/* Whether all messages of the first side were begun. */
static int complete(const struct queue *queue)
{
    return queue->first && queue->first->begun == queue->first->messages;
}

/* Issue the next operation in the order, if it is ready. */
static int issue(struct nccl *nccl)
{
    const int more = nccl->headers > nccl->payloads && step_at(nccl, nccl->payloads)->outgoing->more;
    if (pici_nccl_header_next(nccl->headers, nccl->payloads, more)) {
        if (nccl->headers == nccl->payloads_ended + LIVE || !complete(&nccl->sends) || !complete(&nccl->recvs))
            return 0;
        issue_header(nccl);
    } else {
        if (nccl->payloads == nccl->headers_ended)
            return 0;
        issue_payload(nccl);
    }
    return 1;
}

/* Make all progress that needs no waiting. */
static void advance(struct nccl *nccl)
{
    int moved = nccl->stream != NULL;
    while (moved && !nccl->broken) {
        ncclResult_t result = ncclSuccess;
        moved = 0;
        if (!nccl_good(nccl, ncclCommGetAsyncError(nccl->comm, &result), "ncclCommGetAsyncError") ||
            !nccl_good(nccl, result, "NCCL"))
            return;
        if (nccl->launching) {
            if (result == ncclInProgress)
                return;
            launched(nccl);
        }
        if (!nccl->hosts_known)
            nccl->hosts_known = past(nccl, nccl->hosts);
        /* headers first: once a header has ended, so have the payloads before it */
        for (; nccl->headers_ended < nccl->headers && header_ended(nccl); moved = 1)
            nccl->headers_ended++;
        for (; nccl->payloads_ended < nccl->payloads && payload_ended(nccl); moved = 1)
            end_step(nccl);
        if (!nccl->broken)
            moved |= issue(nccl);
    }
}

/* ---- What a communicator calls ---- */

/* Begin one side of a step with this number of messages. */
static void announce(struct nccl *nccl, struct queue *to, int messages, int more)
{
    if (nccl->broken || (nccl->ranks == 1 && !messages))
        return;
    if (messages < 0 || to->open) {
        say(nccl, "a step of %d messages begins where %d of the one before are missing", messages,
            to->open ? to->open->messages - to->open->begun : 0);
        nccl->broken = PICI_E_ARG;
        return;
    }
    struct side *side = pool_take(&nccl->sides, sizeof *side);
    if (!side) {
        say(nccl, "no memory for a step");
        nccl->broken = PICI_E_NOMEM;
        return;
    }
    side->messages = messages;
    side->more = more;
    side->end = &side->first;
    *to->end = side;
    to->end = &side->next;
    to->open = messages ? side : NULL;
}

static void nccl_receives(void *context, int messages)
{
    struct nccl *nccl = context;
    announce(nccl, &nccl->recvs, messages, 0);
}

static void nccl_sends(void *context, int messages, int more)
{
    struct nccl *nccl = context;
    announce(nccl, &nccl->sends, messages, more);
    if (!messages)
        advance(nccl);
}

static void nccl_more(void *context, int more)
{
    struct nccl *nccl = context;
    nccl->more = more;
}

/* Add a message, which may be empty, to the announced step. If none was announced, the message is a step of its own. */
static enum pici_status begin(struct nccl *nccl, struct queue *to, int peer, void *data, size_t bytes, int more,
                              void **request)
{
    struct cudaPointerAttributes where = {.type = cudaMemoryTypeDevice};
    if (nccl->broken || (bytes && !cuda_good(nccl, cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes")))
        return nccl->broken;
    const int on_device = where.type == cudaMemoryTypeDevice || where.type == cudaMemoryTypeManaged;
    if (!on_device && bytes > HOST_BYTES) {
        say(nccl, "a message of up to %zu bytes in host memory; NCCL takes only GPU memory", bytes);
        return PICI_E_ARG;
    }
    struct request *pending = pool_take(&nccl->requests, sizeof *pending);
    if (!pending)
        return PICI_E_NOMEM;
    if (!to->open)
        announce(nccl, to, 1, more);
    if (nccl->broken) {
        pool_give(&nccl->requests, &pending->item);
        return nccl->broken;
    }
    pending->data = data;
    pending->bytes = bytes;
    pending->peer = peer;
    pending->on_device = on_device;
    struct side *side = to->open;
    *side->end = pending;
    side->end = &pending->next;
    if (++side->begun == side->messages)
        to->open = NULL;
    *request = pending;
    return PICI_OK;
}

static enum pici_status nccl_send(void *context, int receiver, const void *data, size_t bytes, void **request)
{
    struct nccl *nccl = context;
    enum pici_status status = begin(nccl, &nccl->sends, receiver, (void *)data, bytes, nccl->more, request);
    if (status)
        return status;
    nccl->more = 0; /* until the caller sets it for the next send */
    advance(nccl);
    return PICI_OK;
}

static enum pici_status nccl_recv(void *context, int sender, void *data, size_t capacity, void **request)
{
    struct nccl *nccl = context;
    return begin(nccl, &nccl->recvs, sender, data, capacity, 0, request);
}

static enum pici_status nccl_test(void *context, void *request, int *done, size_t *bytes)
{
    struct nccl *nccl = context;
    struct request *pending = request;
    if (!pending->done)
        advance(nccl);
    if (!pending->done && nccl->broken) {
        pending->status = nccl->broken;
        pending->bytes = 0;
        pending->done = 1;
    }
    *done = pending->done;
    if (!pending->done)
        return PICI_OK;
    const enum pici_status status = pending->status;
    if (bytes)
        *bytes = pending->bytes;
    pool_give(&nccl->requests, &pending->item);
    return status;
}

static void nccl_wait(void *context, int timeout_ms)
{
    struct nccl *nccl = context;
    pici_transport_nap(&nccl->looks, 0, timeout_ms);
}

/* Whether an operation is in flight. If so, freeing device memory would wait for it, even if no message's buffer is in
 * use. */
static int busy(const struct nccl *nccl)
{
    if (!nccl->stream)
        return 0;
    const enum cudaStreamCaptureMode mode = capture_relax();
    const cudaError_t error = cudaStreamQuery(nccl->stream);
    capture_restore(mode);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return nccl->launching || error != cudaSuccess;
}

/* Only destroying the NCCL communicator would stop its operations, and the caller owns that. The peers have a timeout
 * of their own. */
static int nccl_abandon(void *context, enum pici_status reason)
{
    struct nccl *nccl = context;
    (void)reason;
    nccl->given_up = 1;
    return busy(nccl);
}

static void nccl_close(void *context)
{
    struct nccl *nccl = context;
    if (!busy(nccl)) { /* else NCCL may still use the memory, and freeing it would wait */
        const enum cudaStreamCaptureMode mode = capture_relax();
        for (int i = 0; i < LIVE; i++) {
            if (nccl->step[i].header)
                cudaEventDestroy(nccl->step[i].header);
            if (nccl->step[i].payload)
                cudaEventDestroy(nccl->step[i].payload);
        }
        if (nccl->hosts)
            cudaEventDestroy(nccl->hosts);
        if (nccl->stream)
            cudaStreamDestroy(nccl->stream);
        /* after a failure the GPU may hang in another stream, and freeing would wait for that */
        for (const struct room *room = nccl->given_up ? NULL : nccl->rooms; room; room = room->older) {
            cudaFreeHost(room->pinned);
            cudaFree(room->device);
        }
        capture_restore(mode);
    }
    for (struct room *room = nccl->rooms, *older; room; room = older) {
        older = room->older;
        free(room);
    }
    pool_free(&nccl->requests);
    pool_free(&nccl->sides);
    free(nccl);
}

static int64_t seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec;
}

/* The number of a node is the lowest rank on it. */
static enum pici_status nccl_nodes(void *context, int *node_of)
{
    struct nccl *nccl = context;
    const int64_t end = seconds() + pici_nccl_seconds;
    nccl->looks = 0;
    for (advance(nccl); nccl->stream && !nccl->hosts_known; advance(nccl)) {
        if (!nccl->broken && seconds() > end) {
            say(nccl, "some rank did not make its communicator within %d s", pici_nccl_seconds);
            nccl->broken = PICI_E_TIMEOUT;
        }
        if (nccl->broken)
            return nccl->broken;
        pici_transport_nap(&nccl->looks, 0, 1);
    }
    const uint64_t *host = nccl->stream ? (const uint64_t *)nccl->names->pinned + 1 : NULL;
    for (int r = 0; r < nccl->ranks; r++) {
        node_of[r] = 0;
        while (host && host[node_of[r]] != host[r])
            node_of[r]++;
    }
    return PICI_OK;
}

static const char *nccl_error(void *context)
{
    struct nccl *nccl = context;
    return nccl->error;
}

static enum pici_status nccl_dense_ready(void *context, enum pici_collective collective, const void *send,
                                         const void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    const struct nccl *nccl = context;
    (void)send, (void)recv, (void)count, (void)op;
    if (!nccl->broken && !pici_nccl_dense_can(collective, dtype))
        return PICI_E_UNSUPPORTED;
    return nccl->broken; /* 0, PICI_OK, if all is well */
}

/* No message is in flight, so this rank's earlier operations have ended. A peer's may not have, but they come before
 * this one in the same order. */
static enum pici_status nccl_dense(void *context, enum pici_collective collective, const void *send, void *recv,
                                   uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms)
{
    struct nccl *nccl = context;
    cudaError_t cuda;
    if (nccl->broken)
        return nccl->broken;
    const ncclResult_t result =
        pici_nccl_dense(nccl->comm, nccl->stream, collective, send, recv, count, dtype, op, timeout_ms, &cuda);
    nccl->looks = 0;
    if (result == ncclInProgress) { /* later operations in the stream would wait for it */
        nccl->broken = PICI_E_TIMEOUT;
        nccl->launching = PAYLOAD; /* it may not be in the stream yet, so an idle stream would mean nothing */
        say(nccl, "a collective of NCCL took more than %d ms", timeout_ms);
    }
    if (nccl_good(nccl, result, "a collective of NCCL"))
        cuda_good(nccl, cuda, "cudaStreamQuery");
    return nccl->broken; /* 0, PICI_OK, if all is well */
}

/* ---- Making one ---- */

static int event_new(struct nccl *nccl, cudaEvent_t *event)
{
    return cuda_good(nccl, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

/* Create everything that needs a GPU. */
static void prepare(struct nccl *nccl)
{
    if (!cuda_good(nccl, cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking),
                   "cudaStreamCreateWithFlags") ||
        !event_new(nccl, &nccl->hosts) || !(nccl->names = room_new(nccl, ((size_t)nccl->ranks + 1) * sizeof(uint64_t))))
        return;
    for (int i = 0; i < LIVE; i++)
        if (!event_new(nccl, &nccl->step[i].header) || !event_new(nccl, &nccl->step[i].payload) ||
            !(nccl->step[i].room = room_new(nccl, ROOM_LEAST)))
            return;
    const uint64_t own = pici_nccl_host();
    uint8_t *names = nccl->names->device;
    memcpy(nccl->names->pinned, &own, sizeof own);
    if (to_device(nccl, nccl->names, 0, sizeof own) &&
        nccl_good(nccl, ncclAllGather(names, names + sizeof own, 1, ncclUint64, nccl->comm, nccl->stream),
                  "ncclAllGather"))
        nccl->launching = HOSTS;
    advance(nccl);
}

/* Read rank, ranks and device from NCCL, and check them. */
static enum pici_status look(struct nccl *nccl)
{
    int theirs = -1, current = -1;
    if (!nccl_good(nccl, ncclCommCount(nccl->comm, &nccl->ranks), "ncclCommCount") ||
        !nccl_good(nccl, ncclCommUserRank(nccl->comm, &nccl->rank), "ncclCommUserRank") ||
        !nccl_good(nccl, ncclCommCuDevice(nccl->comm, &theirs), "ncclCommCuDevice") ||
        !cuda_good(nccl, cudaGetDevice(&current), "cudaGetDevice"))
        return nccl->broken;
    if (theirs == current)
        return PICI_OK;
    say(nccl, "the communicator is of device %d, the current device is %d", theirs, current);
    return PICI_E_ARG;
}

enum pici_status pici_transport_nccl(struct pici_transport *transport, ncclComm_t comm)
{
    if (!transport || !comm) {
        pici_comm_failed("no NCCL communicator");
        return PICI_E_ARG;
    }
    struct nccl *nccl = calloc(1, sizeof *nccl);
    if (!nccl) {
        pici_comm_failed("no memory for a transport over NCCL");
        return PICI_E_NOMEM;
    }
    nccl->comm = comm;
    nccl->sends.end = &nccl->sends.first;
    nccl->recvs.end = &nccl->recvs.first;
    enum pici_status status = look(nccl);
    if (!status && nccl->ranks > 1) {
        prepare(nccl);
        status = nccl->broken;
    }
    if (status) {
        pici_comm_failed(nccl->error);
        nccl_close(nccl);
        return status;
    }
    *transport = (struct pici_transport){
        .size = sizeof *transport,
        .context = nccl,
        .rank = nccl->rank,
        .ranks = nccl->ranks,
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
    struct pici_transport transport;
    if (!out) {
        pici_comm_failed("the pointer to the new communicator is NULL");
        return PICI_E_ARG;
    }
    *out = NULL;
    enum pici_status status = pici_transport_nccl(&transport, comm);
    if (status || (status = pici_comm_transport(out, &transport)))
        return status;
    status = pici_comm_cuda(*out, stream);
    if (status) {
        pici_comm_failed(pici_strerror(status)); /* pici_comm_transport succeeded and left no error message */
        pici_comm_free(*out);
        *out = NULL;
    }
    return status;
}
