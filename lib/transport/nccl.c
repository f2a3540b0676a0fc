/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL. There both sides of a message must know its length, and the operations of a communicator
 * run one after the other, in the order in which they were issued. So an exchange k is two operations: its header
 * H(k), in which a rank sends the length of its message and receives that of the other, and its payload P(k), in
 * which it sends and receives so many bytes. An operation is a group of a send and a receive; a payload's are left
 * out where they are of no bytes.
 *
 * While P(k) is in flight the lengths of exchange k + 1 should get through already, or each message waits for a trip
 * to the host. So H(k+1) is issued before P(k) if `more` says that no rank waits for P(k) before it sends its next
 * message; else after it. Never two ahead: H(k+2) comes after P(k). The order follows from what `more` said alone,
 * never from what happens to be there, so it is the same on all ranks: H(0) P(0) H(1) H(2) P(1) P(2), say.
 *
 * This cannot lock up. Take the first operation in the order that does not end on all ranks. All those before it do,
 * and those alone are before it in any rank's stream. If it was issued on all ranks, it runs there, with the same
 * peers at work on the same operation, and ends. So on some rank it was not issued. If it is P(k): its header is
 * before it, so the lengths are known, and nothing else is needed. If it is H(k): message k was not sent or its
 * receive not posted. That waits for exchanges before k at the most; their payloads are before H(k) in the order, and
 * have ended, unless H(k) goes ahead of P(k-1). Then `more` was 1 for exchange k - 1, and message k waits for
 * exchanges before k - 1 at the most; P(k-2) is before H(k). Where NCCL does not return from issuing an operation
 * until the peers issue theirs, as when it connects, the same holds: they are not held up by anything but what is
 * before it.
 *
 * A message of the host's, which is small, goes by way of memory here, pinned and on the device. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pici/cuda.h"
#include "transport/nap.h"
#include "transport/nccl_transport.h"

enum { HOST_BYTES = 4096 }; /* of a message in the host's memory */

/* Exchanges from the first that has not ended to the last whose header was issued: P(k) is issued when H(k) has
 * ended, and with it P(k-2), which is before it; H(k+2) is the last header then. */
enum { LIVE = 4 };

int pici_nccl_seconds = 60;

struct request {
    struct request *kin;  /* the next of all requests */
    struct request *next; /* queued, or idle */
    uint8_t *data;
    size_t bytes; /* to be sent; or room for, and in the end received */
    int peer, more, on_device, done;
    enum pici_status status;
};

struct queue {
    struct request *first, **end;
};

struct exchange {
    struct request *send, *recv;
    cudaEvent_t header, payload; /* it has ended */
};

/* Twice the same: pinned, and on the device. */
struct slots {
    struct slot {
        uint64_t out_bytes, in_bytes;
        uint8_t out[HOST_BYTES], in[HOST_BYTES];
    } slot[LIVE];           /* of exchanges, by their number modulo LIVE */
    uint64_t host, hosts[]; /* [ranks] hashes of their names */
};

struct nccl {
    ncclComm_t comm;
    int rank, ranks;
    cudaStream_t stream; /* NULL: one rank */
    struct slots *pinned, *device;
    struct request *requests, *idle;
    struct queue sends, recvs; /* of no exchange yet */
    struct exchange exchange[LIVE];
    uint64_t headers, payloads;                         /* issued */
    uint64_t headers_ended, payloads_ended;             /* of these */
    enum { NOTHING, HOSTS, HEADER, PAYLOAD } launching; /* NCCL is putting it into the stream */
    cudaEvent_t hosts;
    int hosts_known;
    int more; /* of the next send */
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

/* Did CUDA do it? It is told here, so not once more by the program's next call. The first failure is the end: what
 * follows in the order cannot be done. */
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

/* ---- Operations ---- */

static int copy(struct nccl *n, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return !bytes || cuda_good(n, cudaMemcpyAsync(to, from, bytes, kind, n->stream), "cudaMemcpyAsync");
}

static void swap(struct nccl *n, const void *out, size_t out_bytes, int to, void *in, size_t in_bytes, int from)
{
    if ((!out_bytes && !in_bytes) || !nccl_good(n, ncclGroupStart(), "ncclGroupStart"))
        return;
    if (out_bytes)
        nccl_good(n, ncclSend(out, out_bytes, ncclUint8, to, n->comm, n->stream), "ncclSend");
    if (in_bytes)
        nccl_good(n, ncclRecv(in, in_bytes, ncclUint8, from, n->comm, n->stream), "ncclRecv");
    nccl_good(n, ncclGroupEnd(), "ncclGroupEnd"); /* whatever went wrong: this thread's group must end */
}

static struct request *dequeue(struct queue *q)
{
    struct request *r = q->first;
    q->first = r->next;
    if (!q->first)
        q->end = &q->first;
    return r;
}

static void issue_header(struct nccl *n)
{
    const size_t i = n->headers % LIVE;
    struct exchange *x = &n->exchange[i];
    struct slot *pinned = &n->pinned->slot[i], *device = &n->device->slot[i];
    x->send = dequeue(&n->sends);
    x->recv = dequeue(&n->recvs);
    pinned->out_bytes = x->send->bytes;
    if (copy(n, &device->out_bytes, &pinned->out_bytes, sizeof device->out_bytes, cudaMemcpyHostToDevice))
        swap(n, &device->out_bytes, sizeof device->out_bytes, x->send->peer, &device->in_bytes, sizeof device->in_bytes,
             x->recv->peer);
    n->launching = HEADER;
}

static void issue_payload(struct nccl *n)
{
    const size_t i = n->payloads % LIVE;
    const struct exchange *x = &n->exchange[i];
    struct request *out = x->send, *in = x->recv;
    struct slot *pinned = &n->pinned->slot[i], *device = &n->device->slot[i];
    if (pinned->in_bytes > in->bytes) {
        say(n, "rank %d announced %llu bytes where there is room for %zu", in->peer,
            (unsigned long long)pinned->in_bytes, in->bytes);
        n->broken = PICI_E_TRANSPORT; /* for the peer's payload nobody can wait */
        in->status = PICI_E_CORRUPT;
        in->bytes = 0;
        in->done = 1;
        return;
    }
    in->bytes = (size_t)pinned->in_bytes;
    if (!out->on_device && out->bytes)
        memcpy(pinned->out, out->data, out->bytes);
    if (out->on_device || copy(n, device->out, pinned->out, out->bytes, cudaMemcpyHostToDevice))
        swap(n, out->on_device ? out->data : device->out, out->bytes, out->peer, in->on_device ? in->data : device->in,
             in->bytes, in->peer);
    n->launching = PAYLOAD;
}

/* What NCCL was given is in the stream: what comes after it there. */
static void launched(struct nccl *n)
{
    size_t i;
    const struct request *in;
    switch (n->launching) {
    case NOTHING: break;
    case HOSTS:
        copy(n, n->pinned->hosts, n->device->hosts, (size_t)n->ranks * sizeof *n->pinned->hosts,
             cudaMemcpyDeviceToHost);
        cuda_good(n, cudaEventRecord(n->hosts, n->stream), "cudaEventRecord");
        break;
    case HEADER:
        i = n->headers++ % LIVE;
        copy(n, &n->pinned->slot[i].in_bytes, &n->device->slot[i].in_bytes, sizeof n->pinned->slot[i].in_bytes,
             cudaMemcpyDeviceToHost);
        cuda_good(n, cudaEventRecord(n->exchange[i].header, n->stream), "cudaEventRecord");
        break;
    case PAYLOAD:
        i = n->payloads++ % LIVE;
        in = n->exchange[i].recv;
        if (!in->on_device)
            copy(n, n->pinned->slot[i].in, n->device->slot[i].in, in->bytes, cudaMemcpyDeviceToHost);
        cuda_good(n, cudaEventRecord(n->exchange[i].payload, n->stream), "cudaEventRecord");
        break;
    }
    n->launching = NOTHING;
}

/* Is the stream past an event? Not yet is an error to CUDA, which the program's next call would be told. */
static int past(struct nccl *n, cudaEvent_t event)
{
    const cudaError_t e = cudaEventQuery(event);
    if (e == cudaErrorNotReady)
        (void)cudaGetLastError();
    return e != cudaErrorNotReady && cuda_good(n, e, "cudaEventQuery");
}

static void end_payload(struct nccl *n)
{
    const size_t i = n->payloads_ended++ % LIVE;
    const struct exchange *x = &n->exchange[i];
    if (!x->recv->on_device && x->recv->bytes)
        memcpy(x->recv->data, n->pinned->slot[i].in, x->recv->bytes);
    x->send->done = x->recv->done = 1;
    n->looks = 0;
}

/* Is it in the order's turn, and there? Then issue it. */
static int issue(struct nccl *n)
{
    const int more = n->headers > n->payloads && n->exchange[n->payloads % LIVE].send->more;
    if (pici_nccl_header_next(n->headers, n->payloads, more)) {
        if (!n->sends.first || !n->recvs.first)
            return 0;
        issue_header(n);
    } else {
        if (n->payloads == n->headers_ended)
            return 0;
        issue_payload(n);
    }
    return 1;
}

/* All that can be done without waiting. */
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
        /* in this order: where a header has ended, so have the payloads before it */
        for (; n->headers_ended < n->headers && past(n, n->exchange[n->headers_ended % LIVE].header); moved = 1)
            n->headers_ended++;
        for (; n->payloads_ended < n->payloads && past(n, n->exchange[n->payloads_ended % LIVE].payload); moved = 1)
            end_payload(n);
        if (!n->broken)
            moved |= issue(n);
    }
}

/* ---- What a communicator calls ---- */

static void enqueue(struct queue *q, struct request *r)
{
    *q->end = r;
    q->end = &r->next;
}

static void request_end(struct nccl *n, struct request *q)
{
    q->next = n->idle;
    n->idle = q;
}

/* A request of these bytes, of which there may be none. */
static enum pici_status request_new(struct nccl *n, int peer, void *data, size_t bytes, struct request **out)
{
    struct cudaPointerAttributes where = {.type = cudaMemoryTypeDevice};
    struct request *q = n->idle;
    if (n->broken || (bytes && !cuda_good(n, cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes")))
        return n->broken;
    const int on_device = where.type == cudaMemoryTypeDevice || where.type == cudaMemoryTypeManaged;
    if (!on_device && bytes > HOST_BYTES) {
        say(n, "a message of up to %zu bytes in the host's memory, where NCCL takes the GPU's", bytes);
        return PICI_E_ARG;
    }
    if (q)
        n->idle = q->next;
    else {
        q = malloc(sizeof *q);
        if (!q)
            return PICI_E_NOMEM;
        q->kin = n->requests;
        n->requests = q;
    }
    *q = (struct request){.kin = q->kin, .data = data, .bytes = bytes, .peer = peer, .on_device = on_device};
    *out = q;
    return PICI_OK;
}

static void nccl_more(void *context, int more)
{
    struct nccl *n = context;
    n->more = more;
}

static enum pici_status nccl_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct nccl *n = context;
    struct request *q;
    enum pici_status s = request_new(n, to, (void *)data, bytes, &q);
    if (s)
        return s;
    q->more = n->more;
    n->more = 0; /* unless it is told so of the next */
    enqueue(&n->sends, q);
    advance(n);
    *request = q;
    return PICI_OK;
}

static enum pici_status nccl_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct nccl *n = context;
    struct request *q;
    enum pici_status s = request_new(n, from, data, cap, &q);
    if (s)
        return s;
    enqueue(&n->recvs, q);
    *request = q;
    return PICI_OK;
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
    request_end(n, q);
    return s;
}

static void nccl_wait(void *context, int timeout_ms)
{
    struct nccl *n = context;
    pici_transport_nap(&n->looks, timeout_ms);
}

/* Is anything of ours on its way? Even if no message's buffer is in use, whoever frees memory of the device then waits
 * for it. */
static int busy(const struct nccl *n)
{
    if (!n->stream)
        return 0;
    const cudaError_t e = cudaStreamQuery(n->stream);
    if (e != cudaSuccess)
        (void)cudaGetLastError();
    return n->launching || e != cudaSuccess;
}

/* NCCL has no word for it but the end of the communicator, which is the caller's. The peers have a timeout of their
 * own. */
static int nccl_abandon(void *context, enum pici_status why)
{
    (void)why;
    return busy(context);
}

static void nccl_close(void *context)
{
    struct nccl *n = context;
    if (!busy(n)) { /* else NCCL may still use all of it, and to free some would be to wait */
        for (int i = 0; i < LIVE; i++) {
            if (n->exchange[i].header)
                cudaEventDestroy(n->exchange[i].header);
            if (n->exchange[i].payload)
                cudaEventDestroy(n->exchange[i].payload);
        }
        if (n->hosts)
            cudaEventDestroy(n->hosts);
        if (n->stream)
            cudaStreamDestroy(n->stream);
        if (n->pinned)
            cudaFreeHost(n->pinned);
        if (n->device)
            cudaFree(n->device);
    }
    for (struct request *q = n->requests, *kin; q; q = kin) {
        kin = q->kin;
        free(q);
    }
    free(n);
}

static int64_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec;
}

/* A node is known by the lowest rank on it. */
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
        pici_transport_nap(&n->looks, 1);
    }
    for (int r = 0; r < n->ranks; r++) {
        node_of[r] = 0;
        while (n->stream && n->pinned->hosts[node_of[r]] != n->pinned->hosts[r])
            node_of[r]++;
    }
    return PICI_OK;
}

static const char *nccl_error(void *context)
{
    struct nccl *n = context;
    return n->error;
}

/* ---- Making one ---- */

/* FNV-1a. */
static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return h;
}

/* What NCCL takes for a host's name: a word of the user's, or else what no two running systems have in common. */
static uint64_t host(void)
{
    char name[256] = "", boot[64] = "";
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const char *said = getenv("NCCL_HOSTID");
    if (said && said[0])
        return hash(h, said);
    gethostname(name, sizeof name - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f) {
        if (!fgets(boot, sizeof boot, f))
            boot[0] = '\0';
        fclose(f);
    }
    return hash(hash(h, name), boot);
}

static int event_new(struct nccl *n, cudaEvent_t *event)
{
    return cuda_good(n, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

/* All that needs a GPU. */
static void prepare(struct nccl *n)
{
    const size_t bytes = sizeof(struct slots) + (size_t)n->ranks * sizeof *n->pinned->hosts;
    if (!cuda_good(n, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") ||
        !cuda_good(n, cudaHostAlloc((void **)&n->pinned, bytes, cudaHostAllocDefault), "cudaHostAlloc") ||
        !cuda_good(n, cudaMalloc((void **)&n->device, bytes), "cudaMalloc") || !event_new(n, &n->hosts))
        return;
    for (int i = 0; i < LIVE; i++)
        if (!event_new(n, &n->exchange[i].header) || !event_new(n, &n->exchange[i].payload))
            return;
    n->pinned->host = host();
    if (copy(n, &n->device->host, &n->pinned->host, sizeof n->device->host, cudaMemcpyHostToDevice) &&
        nccl_good(n, ncclAllGather(&n->device->host, n->device->hosts, 1, ncclUint64, n->comm, n->stream),
                  "ncclAllGather"))
        n->launching = HOSTS;
    advance(n);
}

/* Who we are; or what is wrong. */
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
        pici_comm_failed(pici_strerror(s)); /* of the communicator nothing failed */
        pici_comm_free(*out);
        *out = NULL;
    }
    return s;
}
