/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in a GPU's memory: the codec of pici/cuda.h, and the kernels below it. Each lane is a stream.
 *
 * If the transport can send from the GPU's memory, messages are there too. Otherwise they are in pinned host memory: a
 * block is copied on the lane's stream, to the message when its length is known, or from the message to a slot of the
 * lane before it is read. What the host must know (lengths, statuses, counts, headers of blocks) is written to pinned
 * memory by the kernels that produce it: a few bytes each, which cost less than a copy after them. The host polls the
 * lane's stream, in which there is nothing but the lane's work, and never blocks. Its other calls of CUDA do not
 * invalidate a capture that another thread has under way. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/engine.h"
#include "coll/engine_cuda.h"
#include "coll/make.h"
#include "cuda/capture.h"
#include "cuda/reduce.h"
#include "cuda/values.h"
#include "pici/cuda.h"

enum { ALIGN = 256, PREFIX = 32, LOOKS = 2000, READS = 32 };

int pici_cuda_move_ms = 60000, pici_cuda_halt_ms = 1000;

struct pici_lane {
    struct gpu *gpu;
    cudaStream_t stream;
    int pending;             /* work was begun, and is not known to have ended */
    enum pici_status status; /* the worst so far */
    unsigned used;           /* results in use */
    uint8_t *slots;          /* [blocks] of gpu->slot bytes: where blocks are aligned to 16 */
    uint8_t *workspace;
    uint8_t *temp; /* a slice */

    uint64_t *scratch; /* [blocks][2], zero between calls of pici_cuda_count */
    uint8_t *controls; /* [blocks] workspaces of pici_cuda_read_cleared */
    uint8_t *losses;   /* workspace of pici_cuda_narrow */

    /* pinned: all but the prefix written by the GPU */
    struct pici_cuda_result *results; /* [blocks] */
    uint64_t *counts;                 /* [blocks] */
    struct pici_cuda_heads *heads;
    struct pici_cuda_head *head; /* [blocks] */
    struct pici_cuda_told *told; /* [blocks] what was lost by narrowing */
    uint64_t *bad;               /* 0, or what is wrong with widened arrays */
    uint8_t *prefix;

    /* blocks to read that are not launched yet; each into other elements, with results and controls in a row */
    struct pici_cuda_decode reads[READS];
    unsigned waiting;
    int adding;
    enum pici_dtype reading;

    /* what is being made or looked at */
    struct values_loss *loss; /* narrowing */
    int narrowed;             /* of told, those in use */
    uint64_t *nnz;            /* counting */
    size_t *len;              /* encoding */
    int runs, arrays, in_slots;
    uint8_t *message;
    size_t at, cap;
    const uint8_t *looked;
};

/* A piece of memory that grows. */
struct piece {
    uint8_t *p;
    size_t bytes;
    int pinned;
};

struct gpu {
    cudaStream_t caller, moves; /* moves: of messages between threads */
    int device;
    struct pici_lane *lane;
    int lanes; /* made */
    struct engine_needs needs;
    struct piece messages, sums, arrays, work, results;
    size_t slot, workspace, losses; /* bytes of one */
    char error[160];
};

static enum pici_status status_of(struct gpu *g, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return PICI_OK;
    snprintf(g->error, sizeof g->error, "%s: %s", what, cudaGetErrorString(e));
    (void)cudaGetLastError(); /* reported here, so not to the caller's program too */
    return e == cudaErrorMemoryAllocation ? PICI_E_NOMEM : PICI_E_DEVICE;
}

/* The codec's status of a call. If the CUDA runtime refused, notes the runtime's words. */
static enum pici_status codec_status(struct gpu *g, enum pici_status s, const char *what)
{
    if (s == PICI_E_DEVICE)
        (void)status_of(g, cudaGetLastError(), what);
    return s;
}

/* Work was begun on a lane, or failed to. */
static void begun(struct pici_lane *l, enum pici_status s, const char *what)
{
    l->pending = 1;
    if (s && !l->gpu->error[0])
        snprintf(l->gpu->error, sizeof l->gpu->error, "%s: %s", what, pici_strerror(s));
    if (s < l->status)
        l->status = s;
}

static void gpu_begun(struct pici_lane *l, cudaError_t e, const char *what)
{
    begun(l, status_of(l->gpu, e, what), what);
}

/* Launch the blocks to read, in one kernel: before any other work of the lane that may use what they are read to. */
static void launch_reads(struct pici_lane *l)
{
    const unsigned count = l->waiting;
    l->waiting = 0;
    if (count) {
        const enum pici_status s = pici_cuda_read_cleared(l->reads, count, l->reading, l->adding,
                                                          l->controls + (l->used - count) * PICI_CUDA_READ_WORKSPACE,
                                                          count * PICI_CUDA_READ_WORKSPACE, l->stream);
        if (s)
            l->used -= count; /* they have no results */
        begun(l, codec_status(l->gpu, s, "decoding"), "decoding");
    }
}

/* Copy what no block that waits to be read changes. */
static void copy_input(struct pici_lane *l, void *to, const void *from, size_t bytes)
{
    if (bytes)
        gpu_begun(l, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, l->stream), "cudaMemcpyAsync");
}

static void copy_bytes(struct pici_lane *l, void *to, const void *from, size_t bytes)
{
    launch_reads(l);
    copy_input(l, to, from, bytes);
}

/* ---- memory and lanes ---- */

static int gpu_owns(void *self, const void *p)
{
    const struct gpu *g = self;
    struct cudaPointerAttributes a = {.type = cudaMemoryTypeUnregistered};
    const cudaError_t e = p ? cudaPointerGetAttributes(&a, p) : cudaSuccess;
    if (e && cudaGetLastError() != cudaErrorInvalidValue)
        return -2;
    if (a.type == cudaMemoryTypeDevice && a.device != g->device)
        return -1;
    return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
}

static void piece_free(struct piece *p)
{
    const enum cudaStreamCaptureMode mode = capture_relax();
    if (p->p)
        (void)(p->pinned ? cudaFreeHost(p->p) : cudaFree(p->p));
    capture_restore(mode);
    p->p = NULL;
    p->bytes = 0;
}

static enum pici_status piece_grow(struct gpu *g, struct piece *p, size_t bytes, int pinned)
{
    if (p->p && p->bytes >= bytes && p->pinned == pinned)
        return PICI_OK;
    piece_free(p);
    p->pinned = pinned;
    const enum cudaStreamCaptureMode mode = capture_relax();
    cudaError_t e = pinned ? cudaHostAlloc((void **)&p->p, bytes ? bytes : 1, cudaHostAllocDefault)
                           : cudaMalloc((void **)&p->p, bytes ? bytes : 1);
    capture_restore(mode);
    p->bytes = e ? 0 : bytes;
    return status_of(g, e, pinned ? "cudaHostAlloc" : "cudaMalloc");
}

static enum pici_status make_lanes(struct gpu *g, int lanes)
{
    if (lanes <= g->lanes)
        return PICI_OK;
    struct pici_lane *more = realloc(g->lane, (size_t)lanes * sizeof *more);
    if (!more) {
        snprintf(g->error, sizeof g->error, "no memory for %d lanes", lanes);
        return PICI_E_NOMEM;
    }
    g->lane = more;
    for (; g->lanes < lanes; g->lanes++) {
        struct pici_lane *l = &g->lane[g->lanes];
        memset(l, 0, sizeof *l);
        enum pici_status s =
            status_of(g, cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        if (s)
            return s;
    }
    return PICI_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Allocate bytes of a piece of memory; with NULL, only count them. */
static void *take(uint8_t *piece, size_t *at, size_t bytes)
{
    void *p = piece ? piece + *at : NULL;
    *at += aligned(bytes);
    return p;
}

/* Place the arrays of a lane in GPU memory and in pinned memory; with NULL, only count their bytes. */
static void give(const struct gpu *g, struct pici_lane *l, uint8_t *work, size_t *at_work, uint8_t *pinned,
                 size_t *at_pinned)
{
    const struct engine_needs *n = &g->needs;
    const size_t blocks = (size_t)n->blocks, results = blocks * sizeof *l->results, counts = blocks * sizeof *l->counts;
    const int order = n->op == PICI_MIN || n->op == PICI_MAX;
    l->slots = take(work, at_work, blocks * g->slot);
    l->workspace = take(work, at_work, blocks * g->workspace);
    l->temp = take(work, at_work, order ? (size_t)n->slice * pici_dtype_width(n->dtype) : 0);
    l->scratch = take(work, at_work, 2 * counts);
    l->controls = take(work, at_work, blocks * PICI_CUDA_READ_WORKSPACE);
    l->losses = take(work, at_work, g->losses);
    l->results = take(pinned, at_pinned, results);
    l->counts = take(pinned, at_pinned, counts);
    l->heads = take(pinned, at_pinned, sizeof *l->heads);
    l->head = take(pinned, at_pinned, blocks * sizeof *l->head);
    l->told = take(pinned, at_pinned, blocks * sizeof *l->told);
    l->bad = take(pinned, at_pinned, sizeof *l->bad);
    l->prefix = take(pinned, at_pinned, PREFIX);
}

/* What the engine cannot do of a call. */
static enum pici_status refuse(struct gpu *g, const struct engine_needs *needs)
{
    int device = 0;
    const char *wrong = NULL;
    const enum pici_status s = status_of(g, cudaGetDevice(&device), "cudaGetDevice");
    if (device != g->device && !s)
        snprintf(g->error, sizeof g->error, "device %d is current, the communicator's is %d", device, g->device);
    if (s || device != g->device)
        return PICI_E_DEVICE;
    if (needs->arrays && needs->values->codec->id == PICI_VALUES_ZFP)
        wrong = "the value codec ZFP is for buffers in the host's memory";
    else if (needs->memory)
        wrong = "scratch memory of the caller's is for buffers in the host's";
    else if (needs->checksum)
        wrong = "a GPU makes blocks without checksums";
    snprintf(g->error, sizeof g->error, "%s", wrong ? wrong : "");
    return wrong ? PICI_E_UNSUPPORTED : PICI_OK;
}

/* Make slots and workspaces large enough for blocks of n elements. */
static void fit_blocks(struct gpu *g, enum pici_dtype dtype, uint64_t n)
{
    const size_t workspace = aligned(pici_cuda_workspace(dtype, n));
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        const size_t bytes = aligned(pici_bound((enum pici_format)f, dtype, n));
        g->slot = bytes > g->slot ? bytes : g->slot;
    }
    g->workspace = workspace > g->workspace ? workspace : g->workspace;
}

static enum pici_status measure(struct gpu *g, const struct engine_needs *needs)
{
    const struct values *v = needs->values;
    g->needs = *needs;
    g->needs.values = NULL; /* it may not stay */
    g->slot = g->workspace = g->losses = 0;
    fit_blocks(g, needs->dtype, needs->slice);
    for (int a = 0; needs->arrays && a < v->codec->arrays; a++)
        fit_blocks(g, v->codec->dtype(v, a), v->codec->most(v, a, needs->slice));
    return needs->arrays ? status_of(g, pici_cuda_losses_workspace(&g->losses), "cudaDeviceGetAttribute") : PICI_OK;
}

/* A lane has its memory, and nothing to do but to clear that. */
static enum pici_status open_lane(struct gpu *g, struct pici_lane *l)
{
    const size_t blocks = (size_t)g->needs.blocks;
    l->gpu = g;
    l->used = l->waiting = 0;
    l->nnz = NULL;
    l->len = NULL;
    l->loss = NULL;
    l->narrowed = 0;
    l->status = PICI_OK;
    l->pending = 1;
    *l->bad = 0;
    cudaError_t e = cudaMemsetAsync(l->scratch, 0, blocks * 2 * sizeof *l->scratch, l->stream);
    if (!e)
        e = cudaMemsetAsync(l->controls, 0, blocks * PICI_CUDA_READ_WORKSPACE, l->stream);
    if (!e && g->losses)
        e = cudaMemsetAsync(l->losses, 0, g->losses, l->stream);
    return status_of(g, e, "cudaMemsetAsync");
}

static enum pici_status gpu_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                 struct pici_lane **lanes)
{
    struct gpu *g = self;
    struct pici_lane none;
    size_t work = 0, pinned = 0;
    enum pici_status s = refuse(g, needs);
    if (s || (s = measure(g, needs)))
        return s;
    for (int i = 0; i < needs->lanes; i++)
        give(g, &none, NULL, &work, NULL, &pinned);
    if ((s = make_lanes(g, needs->lanes)) || (s = piece_grow(g, &g->work, work, 0)) ||
        (s = piece_grow(g, &g->results, pinned, 1)) ||
        (s = piece_grow(g, &g->messages, needs->messages, !needs->device)) ||
        (s = piece_grow(g, &g->sums, needs->sums, 0)) ||
        (needs->arrays && (s = piece_grow(g, &g->arrays, needs->arrays, 0))))
        return s;
    work = pinned = 0;
    for (int i = 0; i < needs->lanes && !s; i++) {
        lanes[i] = &g->lane[i];
        give(g, lanes[i], g->work.p, &work, g->results.p, &pinned);
        s = open_lane(g, lanes[i]);
    }
    *room = (struct engine_room){.messages = g->messages.p, .sums = g->sums.p, .arrays = g->arrays.p};
    return s;
}

static enum pici_status gpu_enter(void *self, void **mark)
{
    struct gpu *g = self;
    cudaEvent_t event;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    g->error[0] = '\0';
    enum pici_status s = status_of(g, cudaStreamIsCapturing(g->caller, &capture), "cudaStreamIsCapturing");
    if (!s && capture != cudaStreamCaptureStatusNone) {
        snprintf(g->error, sizeof g->error, "the stream is being captured into a graph");
        s = PICI_E_DEVICE;
    }
    if (s)
        return s;
    s = status_of(g, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    if (s)
        return s;
    s = status_of(g, cudaEventRecord(event, g->caller), "cudaEventRecord");
    if (s)
        (void)cudaEventDestroy(event);
    else
        *mark = event;
    return s;
}

static enum pici_status gpu_begin(void *self, void *mark, int lanes)
{
    struct gpu *g = self;
    enum pici_status s = PICI_OK;
    for (int i = 0; i < lanes && mark && !s; i++) {
        s = status_of(g, cudaStreamWaitEvent(g->lane[i].stream, (cudaEvent_t)mark, 0), "cudaStreamWaitEvent");
        g->lane[i].pending = 1; /* the wait is work too */
    }
    if (mark)
        (void)cudaEventDestroy((cudaEvent_t)mark);
    return s;
}

/* By comparing addresses: the GPU may be lost. */
static int gpu_holds(void *self, const void *p)
{
    const struct gpu *g = self;
    const uintptr_t at = (uintptr_t)p - (uintptr_t)g->messages.p;
    return g->messages.p && !g->messages.pinned && at < g->messages.bytes;
}

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Wait for a stream until that time. What is not done by then: cudaErrorNotReady. Looks often at first, since most
 * waits are short. */
static cudaError_t await(cudaStream_t stream, int64_t end)
{
    static const struct timespec nap = {0, 50000};
    const enum cudaStreamCaptureMode mode = capture_relax();
    int looks = 0;
    cudaError_t e;
    for (; (e = cudaStreamQuery(stream)) == cudaErrorNotReady && milliseconds() < end; looks++)
        if (looks >= LOOKS)
            nanosleep(&nap, NULL);
    capture_restore(mode);
    if (e || looks)
        (void)cudaGetLastError(); /* cudaErrorNotReady too, which cudaGetLastError would report */
    return e;
}

/* The copy's error has no words: g->error belongs to another thread. */
static int gpu_move(void *self, void *to, const void *from, size_t bytes)
{
    struct gpu *g = self;
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->moves);
    if (e)
        (void)cudaGetLastError();
    return !e && await(g->moves, milliseconds() + pici_cuda_move_ms) == cudaSuccess;
}

static int gpu_halt(void *self)
{
    struct gpu *g = self;
    const int64_t end = milliseconds() + pici_cuda_halt_ms;
    int late = await(g->moves, end) == cudaErrorNotReady;
    for (int i = 0; i < g->lanes; i++)
        late |= await(g->lane[i].stream, end) == cudaErrorNotReady;
    return late;
}

static void gpu_close(void *self, int leak)
{
    struct gpu *g = self;
    const enum cudaStreamCaptureMode mode = capture_relax();
    for (int i = 0; i < g->lanes && !leak; i++)
        (void)cudaStreamDestroy(g->lane[i].stream);
    (void)cudaStreamDestroy(g->moves);
    capture_restore(mode);
    if (!leak) { /* freeing waits for work in flight, which may never end */
        piece_free(&g->messages);
        piece_free(&g->sums);
        piece_free(&g->arrays);
        piece_free(&g->work);
        piece_free(&g->results);
    }
    free(g->lane);
    free(g);
}

static const char *gpu_error(void *self)
{
    const struct gpu *g = self;
    return g->error;
}

/* ---- a lane's end ---- */

/* The lengths of the blocks are known: begin to copy the blocks to their places in the message, if they are in slots.
 * Returns whether copies were begun. */
static int place_blocks(struct pici_lane *l)
{
    size_t at = l->at;
    for (int i = 0; i < l->runs * l->arrays && !l->status; i++) {
        const int k = i % l->arrays * l->runs + i / l->arrays;
        const struct pici_cuda_result *r = &l->results[k];
        if (r->status || r->len > l->cap - at) {
            begun(l, r->status ? (enum pici_status)r->status : PICI_E_SPACE, "a block");
            break;
        }
        l->len[k] = (size_t)r->len;
        if (l->in_slots)
            copy_bytes(l, l->message + at, l->slots + (size_t)k * l->gpu->slot, l->len[k]);
        at += l->len[k];
    }
    l->len = NULL;
    l->used = 0;
    return l->in_slots;
}

/* What kernels of value codecs have found is known. */
static void end_values(struct pici_lane *l)
{
    for (int i = 0; i < l->narrowed && !l->status; i++) {
        l->loss->nonfinite += l->told[i].nonfinite;
        l->loss->squares += l->told[i].squares;
    }
    l->loss = NULL;
    l->narrowed = 0;
    if (*l->bad)
        begun(l, (enum pici_status)(int32_t)*l->bad, "arrays of a value codec");
    *l->bad = 0;
}

static enum pici_status gpu_ready(struct pici_lane *l, int *done)
{
    *done = 0;
    launch_reads(l);
    if (l->pending) {
        const enum cudaStreamCaptureMode mode = capture_relax();
        const cudaError_t e = cudaStreamQuery(l->stream);
        capture_restore(mode);
        if (e == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* cudaGetLastError would report it */
            return PICI_OK;
        }
        if (e)
            gpu_begun(l, e, "the GPU");
        end_values(l);
        l->pending = 0;
        if (l->nnz)
            memcpy(l->nnz, l->counts, (size_t)l->runs * (size_t)l->arrays * sizeof *l->nnz);
        l->nnz = NULL;
        if (l->len && place_blocks(l))
            return PICI_OK;
        for (unsigned i = 0; i < l->used && !e; i++)
            if (l->results[i].status < l->status)
                l->status = (enum pici_status)l->results[i].status;
        l->used = 0;
    }
    *done = 1;
    const enum pici_status s = l->status;
    l->status = PICI_OK;
    return s;
}

/* ---- what lanes do ---- */

static void gpu_copy(struct pici_lane *l, void *dst, const void *src, uint64_t n, enum pici_dtype dtype)
{
    copy_bytes(l, dst, src, (size_t)n * pici_dtype_width(dtype));
}

static void gpu_positive_zeros(struct pici_lane *l, void *dst, const void *src, uint64_t n, enum pici_dtype dtype,
                               int quiet)
{
    launch_reads(l);
    gpu_begun(l, pici_cuda_positive_zeros(dst, src, n, (unsigned)dtype, quiet, l->stream), "clearing signs of zeros");
}

static void gpu_count(struct pici_lane *l, const void *const *src, const uint64_t *n, int runs,
                      const struct engine_array *array, int arrays, uint64_t *nnz)
{
    struct pici_cuda_count jobs[32];
    launch_reads(l);
    for (int i = 0, k; i < runs * arrays; i += k) {
        const struct engine_array *a = &array[i / runs];
        const int left = runs - i % runs; /* of this array */
        for (k = 0; k < (int)(sizeof jobs / sizeof *jobs) && k < left; k++)
            jobs[k] = (struct pici_cuda_count){src[i + k], n[i + k], &l->counts[i + k], &l->scratch[2 * (i + k)]};
        gpu_begun(l, pici_cuda_count(jobs, (unsigned)k, (unsigned)a->dtype, a->by_value, l->stream), "counting");
    }
    l->nnz = nnz;
    l->runs = runs;
    l->arrays = arrays;
}

static void gpu_prefix(struct pici_lane *l, uint8_t *message, const uint8_t *prefix, size_t bytes)
{
    if (!l->gpu->needs.device) {
        memcpy(message, prefix, bytes);
        return;
    }
    memcpy(l->prefix, prefix, bytes);
    copy_bytes(l, message, l->prefix, bytes);
}

static void gpu_put(struct pici_lane *l, uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (l->gpu->needs.device)
        copy_bytes(l, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static enum pici_status gpu_encode(struct pici_lane *l, uint8_t *message, size_t at, size_t cap, size_t *len,
                                   const void *const *src, const uint64_t *n, int runs,
                                   const struct engine_array *array, int arrays, int checksum)
{
    const struct gpu *g = l->gpu;
    struct pici_cuda_encode jobs[32];
    struct pici_opts opts = PICI_OPTS_INIT;
    (void)checksum; /* room refused it */
    launch_reads(l);
    l->in_slots = !(g->needs.device && runs * arrays == 1);
    enum pici_status s = PICI_OK;
    for (int i = 0, k; i < runs * arrays && !s; i += k) {
        const struct engine_array *a = &array[i / runs];
        const int left = runs - i % runs;
        for (k = 0; k < (int)(sizeof jobs / sizeof *jobs) && k < left; k++)
            jobs[k] =
                (struct pici_cuda_encode){.block = l->in_slots ? l->slots + (size_t)(i + k) * g->slot : message + at,
                                          .cap = l->in_slots ? g->slot : cap - at,
                                          .result = &l->results[i + k],
                                          .src = src[i + k],
                                          .n = n[i + k]};
        opts.zeros = a->by_value && a->format != PICI_DENSE ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        s = pici_compress_batch_opts_cuda(jobs, (size_t)k, a->dtype, a->format, &opts,
                                          l->workspace + (size_t)i * g->workspace, (size_t)k * g->workspace, l->stream);
    }
    l->pending = 1;
    if (s)
        return codec_status(l->gpu, s, "encoding");
    l->message = message;
    l->at = at;
    l->cap = cap;
    l->len = len;
    l->runs = runs;
    l->arrays = arrays;
    l->used = (unsigned)(runs * arrays);
    return PICI_OK;
}

static void gpu_look(struct pici_lane *l, const uint8_t *message, size_t bytes, int blocks)
{
    l->looked = message;
    if (!l->gpu->needs.device)
        return;
    launch_reads(l);
    gpu_begun(l, pici_cuda_look(l->heads, l->head, message, bytes, (unsigned)blocks, l->stream), "looking");
}

static const uint8_t *gpu_head(struct pici_lane *l, int i, size_t at)
{
    static const uint8_t none[48];
    if (!l->gpu->needs.device)
        return l->looked + (i < 0 ? 0 : at);
    if (i < 0)
        return l->heads->prefix;
    return (uint64_t)i <= l->heads->found && l->head[i].at == at ? l->head[i].header : none;
}

/* A copy of a block that the GPU can read, aligned; or the block itself, if it is. */
static const void *legible(struct pici_lane *l, const void *block, size_t len)
{
    if (l->gpu->needs.device && (uintptr_t)block % 16 == 0)
        return block;
    uint8_t *slot = l->slots + l->used * l->gpu->slot;
    copy_input(l, slot, block, len);
    return slot;
}

static int apart_from(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p < q ? q - p >= a_bytes : p - q >= b_bytes;
}

static enum pici_status read_block(struct pici_lane *l, void *dst, const uint8_t *block, const struct pici_block *b,
                                   int add)
{
    struct gpu *g = l->gpu;
    const size_t len = (size_t)b->at.block_bytes;
    if (len > g->slot || l->used == (unsigned)g->needs.blocks)
        return PICI_E_CORRUPT; /* longer than any block of a slice */
    const enum pici_dtype dtype = (enum pici_dtype)b->dtype;
    const size_t bytes = (size_t)b->count * pici_dtype_width(dtype);
    int apart = l->waiting < READS && l->adding == add && l->reading == dtype;
    for (unsigned i = 0; i < l->waiting && apart; i++)
        apart = apart_from(dst, bytes, l->reads[i].dst, (size_t)l->reads[i].n * pici_dtype_width(dtype));
    if (!apart)
        launch_reads(l);
    const void *from = legible(l, block, len);
    l->reads[l->waiting++] =
        (struct pici_cuda_decode){.dst = dst, .n = b->count, .block = from, .len = len, .result = &l->results[l->used]};
    l->adding = add;
    l->reading = dtype;
    l->used++;
    l->pending = 1;
    return PICI_OK;
}

static enum pici_status gpu_decode(struct pici_lane *l, void *dst, const uint8_t *block, const struct pici_block *b,
                                   uint64_t output)
{
    (void)output;
    return read_block(l, dst, block, b, 0);
}

static enum pici_status gpu_fold(struct pici_lane *l, void *dst, const uint8_t *block, const struct pici_block *b,
                                 enum pici_op op, void *temp, uint64_t temp_elements)
{
    (void)temp;
    (void)temp_elements;
    if (op != PICI_MIN && op != PICI_MAX)
        return read_block(l, dst, block, b, 1);
    enum pici_status s = read_block(l, l->temp, block, b, 0);
    launch_reads(l);
    if (!s)
        gpu_begun(l, pici_cuda_order(dst, l->temp, b->count, b->dtype, op == PICI_MAX, l->stream), "comparing");
    return s;
}

/* read_block needs no more of the header. */
static enum pici_status gpu_fold_own(struct pici_lane *l, void *dst, const uint8_t *block, size_t len, uint64_t n,
                                     enum pici_dtype dtype, enum pici_op op, void *temp, uint64_t temp_elements)
{
    struct pici_block b = {.dtype = (unsigned)dtype, .count = n};
    b.at.block_bytes = len;
    return gpu_fold(l, dst, block, &b, op, temp, temp_elements);
}

static enum pici_status gpu_narrow(struct pici_lane *l, const struct values *v, const struct values_where *where,
                                   void *const out[VALUES_ARRAYS], uint64_t made[VALUES_ARRAYS], const void *src,
                                   uint64_t n, struct values_loss *loss)
{
    struct pici_cuda_losses to = {.workspace = l->losses};
    for (int a = 0; a < v->codec->arrays; a++)
        made[a] = v->codec->most(v, a, n);
    launch_reads(l);
    if (!n)
        return PICI_OK;
    if (loss) {
        to.residual = loss->residual;
        to.times = loss->times;
        to.told = &l->told[l->narrowed++];
        l->loss = loss;
    }
    gpu_begun(l, pici_cuda_narrow(out, src, n, v, where, loss ? &to : NULL, l->stream), "narrowing");
    return PICI_OK;
}

static enum pici_cuda_widening widening_of(const struct engine_values *e, enum engine_widen how)
{
    if (how == WIDEN_FOLD)
        return e->op == PICI_MIN ? WIDENED_MIN : e->op == PICI_MAX ? WIDENED_MAX : WIDENED_SUM;
    return !e->by_value ? WIDENED : e->quiet ? WIDENED_QUIET : WIDENED_POSITIVE;
}

/* Elements are added by the kernel that widens them, without a place for them. */
static enum pici_status gpu_widen(struct pici_lane *l, const struct engine_values *e, enum engine_widen how, void *dst,
                                  uint64_t n, const void *const in[VALUES_ARRAYS], const uint64_t have[VALUES_ARRAYS],
                                  void *temp, size_t temp_bytes)
{
    const struct values *v = e->values;
    (void)temp;
    (void)temp_bytes;
    for (int a = 0; a < v->codec->arrays; a++)
        if (have[a] != v->codec->most(v, a, n))
            return PICI_E_CORRUPT;
    launch_reads(l);
    gpu_begun(l, pici_cuda_widen(dst, n, in, v, widening_of(e, how), l->bad, l->stream), "widening");
    return PICI_OK;
}

static void gpu_containers(struct pici_lane *l, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    if (!l->gpu->needs.device)
        (void)pici_mix(&mix, block, len); /* without tiles, if the block is not hybrid */
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles[i] += mix.tiles[i];
}

static void gpu_divide(struct pici_lane *l, void *dst, uint64_t n, enum pici_dtype dtype, int ranks)
{
    launch_reads(l);
    gpu_begun(l, pici_cuda_divide(dst, n, (unsigned)dtype, ranks, l->stream), "dividing");
}

/* cost_scale: from the memory traffic that docs/cuda.md counts, on a GPU of 3 TB/s, beside the host's constants. It is
 * not measured. */
static const struct pici_engine engine = {
    .size = sizeof(struct pici_engine),
    .name = "CUDA",
    .asynchronous = 1,
    .cost_scale = 0.01,
    .owns = gpu_owns,
    .enter = gpu_enter,
    .begin = gpu_begin,
    .room = gpu_room,
    .holds = gpu_holds,
    .move = gpu_move,
    .halt = gpu_halt,
    .close = gpu_close,
    .error = gpu_error,
    .ready = gpu_ready,
    .copy = gpu_copy,
    .positive_zeros = gpu_positive_zeros,
    .count = gpu_count,
    .prefix = gpu_prefix,
    .encode = gpu_encode,
    .put = gpu_put,
    .look = gpu_look,
    .head = gpu_head,
    .decode = gpu_decode,
    .fold = gpu_fold,
    .fold_own = gpu_fold_own,
    .narrow = gpu_narrow,
    .widen = gpu_widen,
    .containers = gpu_containers,
    .divide = gpu_divide,
};

enum pici_status pici_comm_cuda(struct pici_comm *comm, cudaStream_t stream)
{
    if (!comm)
        return PICI_E_ARG;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return PICI_E_NOMEM;
    g->caller = stream;
    enum pici_status s = status_of(g, cudaGetDevice(&g->device), "cudaGetDevice");
    if (!s)
        s = status_of(g, cudaStreamCreateWithFlags(&g->moves, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (!s && (s = pici_comm_engine(comm, &engine, g)))
        (void)cudaStreamDestroy(g->moves);
    if (s)
        free(g);
    return s;
}
