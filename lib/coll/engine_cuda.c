/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in a GPU's memory: the codec of pici/cuda.h, and the kernels below it. A queue is a stream.
 *
 * If the transport can send from the GPU's memory, messages are there too. Otherwise they are in pinned host memory.
 * The queue's stream copies a block to the message when its length is known, and from the message to a slot of the
 * queue before a kernel reads it. What the host must know (lengths, statuses, counts, headers of blocks) is written to
 * pinned memory by the kernels that produce it: a few bytes each, cheaper than a copy. The host never blocks: it polls
 * the queue's stream, which has only the queue's work. Its other CUDA calls do not invalidate another thread's
 * capture. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/engine.h"
#include "coll/engine_cuda.h"
#include "coll/engine_cuda_piece.h"
#include "coll/make.h"
#include "cuda/capture.h"
#include "cuda/reduce.h"
#include "cuda/values.h"
#include "pici/cuda.h"

enum { PREFIX = 32, LOOKS = 2000, READS = 32 };

int pici_cuda_move_ms = 60000, pici_cuda_halt_ms = 1000;

struct pici_queue {
    struct gpu *gpu;
    cudaStream_t stream;
    int pending;             /* work was begun, and is not known to have ended */
    enum pici_status status; /* the worst so far */
    unsigned used;           /* results in use */
    uint8_t *slots;          /* [blocks] of gpu->slot bytes, for blocks aligned to 16 */
    uint8_t *workspace;
    uint8_t *temp; /* a slice */

    uint64_t *scratch; /* [blocks][2], zero between calls of pici_cuda_count */
    uint8_t *controls; /* [blocks] workspaces of pici_cuda_read_cleared */
    uint8_t *losses;   /* workspace of pici_cuda_quantize */

    /* pinned memory; the GPU writes all but the prefix */
    struct pici_cuda_result *results; /* [blocks] */
    uint64_t *counts;                 /* [blocks] */
    struct pici_cuda_heads *heads;
    struct pici_cuda_head *head; /* [blocks] */
    struct pici_cuda_told *told; /* [blocks] losses of quantizing */
    uint64_t *bad;               /* 0, or the status of invalid dequantized arrays */
    uint8_t *prefix;

    /* reads not launched yet: their destinations do not overlap, their results and controls are consecutive */
    struct pici_cuda_decode reads[READS];
    unsigned waiting;
    int adding;
    enum pici_dtype reading;

    /* outputs of the work in flight */
    struct values_loss *loss; /* quantizing */
    int quantized;            /* entries of told in use */
    uint64_t *nonzeros;       /* counting */
    size_t *sizes;            /* encoding */
    int runs, arrays, in_slots;
    uint8_t *message;
    size_t offset, capacity;
    const uint8_t *looked;
};

struct gpu {
    cudaStream_t caller, moves; /* moves: copies messages between threads */
    struct pici_queue *queue;
    int device, queues; /* queues: number made */
    struct engine_needs needs;
    struct piece messages, sums, arrays, work, results;
    size_t slot, workspace, losses; /* bytes of one */
    char error[160];
};

static enum pici_status status_of(struct gpu *gpu, cudaError_t error, const char *operation)
{
    if (error == cudaSuccess)
        return PICI_OK;
    snprintf(gpu->error, sizeof gpu->error, "%s: %s", operation, cudaGetErrorString(error));
    (void)cudaGetLastError(); /* reported here: hide it from the caller's program */
    return error == cudaErrorMemoryAllocation ? PICI_E_NOMEM : PICI_E_DEVICE;
}

/* Pass on the codec's status. If the CUDA runtime failed, note its error message. */
static enum pici_status codec_status(struct gpu *gpu, enum pici_status status, const char *operation)
{
    if (status == PICI_E_DEVICE)
        (void)status_of(gpu, cudaGetLastError(), operation);
    return status;
}

/* Note that work was begun on a queue, or failed to begin. */
static void begun(struct pici_queue *queue, enum pici_status status, const char *operation)
{
    queue->pending = 1;
    if (status && !queue->gpu->error[0])
        snprintf(queue->gpu->error, sizeof queue->gpu->error, "%s: %s", operation, pici_strerror(status));
    if (status < queue->status)
        queue->status = status;
}

static void gpu_begun(struct pici_queue *queue, cudaError_t error, const char *operation)
{
    begun(queue, status_of(queue->gpu, error, operation), operation);
}

/* Launch all waiting reads in one kernel. Must run before any other work of the queue that may use their
 * destinations. */
static void launch_reads(struct pici_queue *queue)
{
    const unsigned count = queue->waiting;
    queue->waiting = 0;
    if (count) {
        const enum pici_status status =
            pici_cuda_read_cleared(queue->reads, count, queue->reading, queue->adding,
                                   queue->controls + (queue->used - count) * PICI_CUDA_READ_WORKSPACE,
                                   count * PICI_CUDA_READ_WORKSPACE, queue->stream);
        /* no launch, no results */
        if (status)
            queue->used -= count;
        begun(queue, codec_status(queue->gpu, status, "decoding"), "decoding");
    }
}

/* Copy bytes that no waiting read writes. */
static void copy_input(struct pici_queue *queue, void *to, const void *from, size_t bytes)
{
    if (bytes)
        gpu_begun(queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue->stream), "cudaMemcpyAsync");
}

static void copy_bytes(struct pici_queue *queue, void *to, const void *from, size_t bytes)
{
    launch_reads(queue);
    copy_input(queue, to, from, bytes);
}

/* ---- memory and queues ---- */

static int gpu_owns(void *self, const void *address)
{
    const struct gpu *gpu = self;
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};
    const cudaError_t error = address ? cudaPointerGetAttributes(&attributes, address) : cudaSuccess;
    if (error && cudaGetLastError() != cudaErrorInvalidValue)
        return -2;
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != gpu->device)
        return -1;
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

static enum pici_status grow(struct gpu *gpu, struct piece *piece, size_t bytes, int pinned)
{
    return status_of(gpu, piece_grow(piece, bytes, pinned), pinned ? "cudaHostAlloc" : "cudaMalloc");
}

static enum pici_status make_queues(struct gpu *gpu, int queues)
{
    if (queues <= gpu->queues)
        return PICI_OK;
    struct pici_queue *more = realloc(gpu->queue, (size_t)queues * sizeof *more);
    if (!more) {
        snprintf(gpu->error, sizeof gpu->error, "no memory for %d queues", queues);
        return PICI_E_NOMEM;
    }
    gpu->queue = more;
    for (; gpu->queues < queues; gpu->queues++) {
        struct pici_queue *queue = &gpu->queue[gpu->queues];
        memset(queue, 0, sizeof *queue);
        enum pici_status status = status_of(gpu, cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking),
                                            "cudaStreamCreateWithFlags");
        if (status)
            return status;
    }
    return PICI_OK;
}

/* Place the arrays of a queue in GPU memory and in pinned memory; with NULL, only count their bytes. */
static void give(const struct gpu *gpu, struct pici_queue *queue, uint8_t *work, size_t *at_work, uint8_t *pinned,
                 size_t *at_pinned)
{
    const struct engine_needs *needs = &gpu->needs;
    const size_t blocks = (size_t)needs->blocks, results = blocks * sizeof *queue->results,
                 counts = blocks * sizeof *queue->counts;
    const int order = needs->op == PICI_MIN || needs->op == PICI_MAX;
    queue->slots = piece_take(work, at_work, blocks * gpu->slot);
    queue->workspace = piece_take(work, at_work, blocks * gpu->workspace);
    queue->temp = piece_take(work, at_work, order ? (size_t)needs->slice * pici_dtype_width(needs->dtype) : 0);
    queue->scratch = piece_take(work, at_work, 2 * counts);
    queue->controls = piece_take(work, at_work, blocks * PICI_CUDA_READ_WORKSPACE);
    queue->losses = piece_take(work, at_work, gpu->losses);
    queue->results = piece_take(pinned, at_pinned, results);
    queue->counts = piece_take(pinned, at_pinned, counts);
    queue->heads = piece_take(pinned, at_pinned, sizeof *queue->heads);
    queue->head = piece_take(pinned, at_pinned, blocks * sizeof *queue->head);
    queue->told = piece_take(pinned, at_pinned, blocks * sizeof *queue->told);
    queue->bad = piece_take(pinned, at_pinned, sizeof *queue->bad);
    queue->prefix = piece_take(pinned, at_pinned, PREFIX);
}

/* Check whether the engine supports a call, and note the reason if not. */
static enum pici_status refuse(struct gpu *gpu, const struct engine_needs *needs)
{
    int device = 0;
    const char *wrong = NULL;
    const enum pici_status status = status_of(gpu, cudaGetDevice(&device), "cudaGetDevice");
    if (device != gpu->device && !status)
        snprintf(gpu->error, sizeof gpu->error, "device %d is current, the communicator's is %d", device, gpu->device);
    if (status || device != gpu->device)
        return PICI_E_DEVICE;
    if (needs->arrays && needs->values->codec->id == PICI_VALUES_ZFP)
        wrong = "the lossy codec ZFP needs buffers in host memory";
    else if (needs->memory)
        wrong = "the option scratch needs buffers in host memory";
    else if (needs->checksum)
        wrong = "checksums need buffers in host memory";
    snprintf(gpu->error, sizeof gpu->error, "%s", wrong ? wrong : "");
    return wrong ? PICI_E_UNSUPPORTED : PICI_OK;
}

/* Make slots and workspaces large enough for blocks of count elements. */
static void fit_blocks(struct gpu *gpu, enum pici_dtype dtype, uint64_t count)
{
    const size_t workspace = piece_aligned(pici_cuda_workspace(dtype, count));
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        const size_t bytes = piece_aligned(pici_bound((enum pici_format)format, dtype, count));
        gpu->slot = bytes > gpu->slot ? bytes : gpu->slot;
    }
    gpu->workspace = workspace > gpu->workspace ? workspace : gpu->workspace;
}

static enum pici_status measure(struct gpu *gpu, const struct engine_needs *needs)
{
    const struct values *values = needs->values;
    gpu->needs = *needs;
    gpu->needs.values = NULL; /* it may not stay valid */
    gpu->slot = gpu->workspace = gpu->losses = 0;
    fit_blocks(gpu, needs->dtype, needs->slice);
    for (int array = 0; needs->arrays && array < values->codec->arrays; array++)
        fit_blocks(gpu, values->codec->dtype(values, array), values->codec->most(values, array, needs->slice));
    return needs->arrays ? status_of(gpu, pici_cuda_losses_workspace(&gpu->losses), "cudaDeviceGetAttribute") : PICI_OK;
}

/* Reset a queue that has its memory, and begin to clear the parts that must be zero. */
static enum pici_status open_queue(struct gpu *gpu, struct pici_queue *queue)
{
    const size_t blocks = (size_t)gpu->needs.blocks;
    queue->gpu = gpu;
    queue->used = queue->waiting = 0;
    queue->nonzeros = NULL;
    queue->sizes = NULL;
    queue->loss = NULL;
    queue->quantized = 0;
    queue->status = PICI_OK;
    queue->pending = 1;
    *queue->bad = 0;
    cudaError_t error = cudaMemsetAsync(queue->scratch, 0, blocks * 2 * sizeof *queue->scratch, queue->stream);
    if (!error)
        error = cudaMemsetAsync(queue->controls, 0, blocks * PICI_CUDA_READ_WORKSPACE, queue->stream);
    if (!error && gpu->losses)
        error = cudaMemsetAsync(queue->losses, 0, gpu->losses, queue->stream);
    return status_of(gpu, error, "cudaMemsetAsync");
}

static enum pici_status gpu_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                 struct pici_queue **queues)
{
    struct gpu *gpu = self;
    struct pici_queue none;
    size_t work = 0, pinned = 0;
    enum pici_status status = refuse(gpu, needs);
    if (status || (status = measure(gpu, needs)))
        return status;
    for (int i = 0; i < needs->queues; i++)
        give(gpu, &none, NULL, &work, NULL, &pinned);
    if ((status = make_queues(gpu, needs->queues)) || (status = grow(gpu, &gpu->work, work, 0)) ||
        (status = grow(gpu, &gpu->results, pinned, 1)) ||
        (status = grow(gpu, &gpu->messages, needs->messages, !needs->device)) ||
        (status = grow(gpu, &gpu->sums, needs->sums, 0)) ||
        (needs->arrays && (status = grow(gpu, &gpu->arrays, needs->arrays, 0))))
        return status;
    work = pinned = 0;
    for (int i = 0; i < needs->queues && !status; i++) {
        queues[i] = &gpu->queue[i];
        give(gpu, queues[i], gpu->work.memory, &work, gpu->results.memory, &pinned);
        status = open_queue(gpu, queues[i]);
    }
    *room =
        (struct engine_room){.messages = gpu->messages.memory, .sums = gpu->sums.memory, .arrays = gpu->arrays.memory};
    return status;
}

static enum pici_status gpu_enter(void *self, void **mark)
{
    struct gpu *gpu = self;
    cudaEvent_t event;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    gpu->error[0] = '\0';
    enum pici_status status = status_of(gpu, cudaStreamIsCapturing(gpu->caller, &capture), "cudaStreamIsCapturing");
    if (!status && capture != cudaStreamCaptureStatusNone) {
        snprintf(gpu->error, sizeof gpu->error, "the stream is being captured into a graph");
        status = PICI_E_DEVICE;
    }
    if (status)
        return status;
    status = status_of(gpu, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    if (status)
        return status;
    status = status_of(gpu, cudaEventRecord(event, gpu->caller), "cudaEventRecord");
    if (status)
        (void)cudaEventDestroy(event);
    else
        *mark = event;
    return status;
}

static enum pici_status gpu_begin(void *self, void *mark, int queues)
{
    struct gpu *gpu = self;
    enum pici_status status = PICI_OK;
    for (int i = 0; i < queues && mark && !status; i++) {
        status = status_of(gpu, cudaStreamWaitEvent(gpu->queue[i].stream, (cudaEvent_t)mark, 0), "cudaStreamWaitEvent");
        gpu->queue[i].pending = 1; /* the wait is work too */
    }
    if (mark)
        (void)cudaEventDestroy((cudaEvent_t)mark);
    return status;
}

/* Compares addresses only: the GPU may be lost. */
static int gpu_holds(void *self, const void *address)
{
    const struct gpu *gpu = self;
    const uintptr_t at = (uintptr_t)address - (uintptr_t)gpu->messages.memory;
    return gpu->messages.memory && !gpu->messages.pinned && at < gpu->messages.bytes;
}

static int64_t milliseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Wait for a stream until `end`. Returns cudaErrorNotReady if it is still busy then. Polls without sleeping at first,
 * since most waits are short. */
static cudaError_t await(cudaStream_t stream, int64_t end)
{
    static const struct timespec nap = {0, 50000};
    const enum cudaStreamCaptureMode mode = capture_relax();
    int looks = 0;
    cudaError_t error;
    for (; (error = cudaStreamQuery(stream)) == cudaErrorNotReady && milliseconds() < end; looks++)
        if (looks >= LOOKS)
            nanosleep(&nap, NULL);
    capture_restore(mode);
    /* clear the last error, which may be cudaErrorNotReady */
    if (error || looks)
        (void)cudaGetLastError();
    return error;
}

/* The copy's error has no message: gpu->error belongs to another thread. */
static int gpu_move(void *self, void *to, const void *from, size_t bytes)
{
    struct gpu *gpu = self;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu->moves);
    if (error)
        (void)cudaGetLastError();
    return !error && await(gpu->moves, milliseconds() + pici_cuda_move_ms) == cudaSuccess;
}

static int gpu_halt(void *self)
{
    struct gpu *gpu = self;
    const int64_t end = milliseconds() + pici_cuda_halt_ms;
    int late = await(gpu->moves, end) == cudaErrorNotReady;
    for (int i = 0; i < gpu->queues; i++)
        late |= await(gpu->queue[i].stream, end) == cudaErrorNotReady;
    return late;
}

static void gpu_close(void *self, int leak)
{
    struct gpu *gpu = self;
    const enum cudaStreamCaptureMode mode = capture_relax();
    for (int i = 0; i < gpu->queues && !leak; i++)
        (void)cudaStreamDestroy(gpu->queue[i].stream);
    (void)cudaStreamDestroy(gpu->moves);
    capture_restore(mode);
    if (!leak) { /* freeing waits for work in flight, which may never end */
        piece_free(&gpu->messages);
        piece_free(&gpu->sums);
        piece_free(&gpu->arrays);
        piece_free(&gpu->work);
        piece_free(&gpu->results);
    }
    free(gpu->queue);
    free(gpu);
}

static const char *gpu_error(void *self)
{
    const struct gpu *gpu = self;
    return gpu->error;
}

/* ---- a queue's end ---- */

/* Store the lengths of the blocks, now known, and begin to copy blocks from slots to their places in the message.
 * Returns whether the blocks are in slots. */
static int place_blocks(struct pici_queue *queue)
{
    size_t offset = queue->offset;
    for (int i = 0; i < queue->runs * queue->arrays && !queue->status; i++) {
        const int k = i % queue->arrays * queue->runs + i / queue->arrays;
        const struct pici_cuda_result *result = &queue->results[k];
        if (result->status || result->len > queue->capacity - offset) {
            begun(queue, result->status ? (enum pici_status)result->status : PICI_E_SPACE, "a block");
            break;
        }
        queue->sizes[k] = (size_t)result->len;
        if (queue->in_slots)
            copy_bytes(queue, queue->message + offset, queue->slots + (size_t)k * queue->gpu->slot, queue->sizes[k]);
        offset += queue->sizes[k];
    }
    queue->sizes = NULL;
    queue->used = 0;
    return queue->in_slots;
}

/* Collect the results of the lossy codecs' kernels, which have ended. */
static void end_values(struct pici_queue *queue)
{
    for (int i = 0; i < queue->quantized && !queue->status; i++) {
        queue->loss->nonfinite += queue->told[i].nonfinite;
        queue->loss->squares += queue->told[i].squares;
    }
    queue->loss = NULL;
    queue->quantized = 0;
    if (*queue->bad)
        begun(queue, (enum pici_status)(int32_t)*queue->bad, "arrays of a lossy codec");
    *queue->bad = 0;
}

static enum pici_status gpu_ready(struct pici_queue *queue, int *done)
{
    *done = 0;
    launch_reads(queue);
    if (queue->pending) {
        const enum cudaStreamCaptureMode mode = capture_relax();
        const cudaError_t error = cudaStreamQuery(queue->stream);
        capture_restore(mode);
        if (error == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* cudaGetLastError would report it */
            return PICI_OK;
        }
        if (error)
            gpu_begun(queue, error, "the GPU");
        end_values(queue);
        queue->pending = 0;
        if (queue->nonzeros)
            memcpy(queue->nonzeros, queue->counts, (size_t)queue->runs * (size_t)queue->arrays * sizeof(uint64_t));
        queue->nonzeros = NULL;
        if (queue->sizes && place_blocks(queue))
            return PICI_OK;
        for (unsigned i = 0; i < queue->used && !error; i++)
            if (queue->results[i].status < queue->status)
                queue->status = (enum pici_status)queue->results[i].status;
        queue->used = 0;
    }
    *done = 1;
    const enum pici_status status = queue->status;
    queue->status = PICI_OK;
    return status;
}

/* ---- what queues do ---- */

static void gpu_copy(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                     enum pici_dtype dtype)
{
    copy_bytes(queue, destination, source, (size_t)count * pici_dtype_width(dtype));
}

static void gpu_positive_zeros(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                               enum pici_dtype dtype, int quiet)
{
    launch_reads(queue);
    gpu_begun(queue, pici_cuda_positive_zeros(destination, source, count, (unsigned)dtype, quiet, queue->stream),
              "clearing signs of zeros");
}

static void gpu_count(struct pici_queue *queue, const void *const *source, const uint64_t *count, int runs,
                      const struct engine_array *array, int arrays, uint64_t *nonzeros)
{
    struct pici_cuda_count jobs[32];
    launch_reads(queue);
    for (int i = 0, k; i < runs * arrays; i += k) {
        const struct engine_array *current = &array[i / runs];
        const int remaining = runs - i % runs; /* of this array */
        for (k = 0; k < (int)(sizeof jobs / sizeof *jobs) && k < remaining; k++)
            jobs[k] = (struct pici_cuda_count){source[i + k], count[i + k], &queue->counts[i + k],
                                               &queue->scratch[2 * (i + k)]};
        gpu_begun(queue, pici_cuda_count(jobs, (unsigned)k, (unsigned)current->dtype, current->by_value, queue->stream),
                  "counting");
    }
    queue->nonzeros = nonzeros;
    queue->runs = runs;
    queue->arrays = arrays;
}

static void gpu_prefix(struct pici_queue *queue, uint8_t *message, const uint8_t *prefix, size_t bytes)
{
    if (!queue->gpu->needs.device) {
        memcpy(message, prefix, bytes);
        return;
    }
    memcpy(queue->prefix, prefix, bytes);
    copy_bytes(queue, message, queue->prefix, bytes);
}

static void gpu_put(struct pici_queue *queue, uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (queue->gpu->needs.device)
        copy_bytes(queue, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static enum pici_status gpu_encode(struct pici_queue *queue, uint8_t *message, size_t offset, size_t capacity,
                                   size_t *size, const void *const *source, const uint64_t *count, int runs,
                                   const struct engine_array *array, int arrays, int checksum)
{
    const struct gpu *gpu = queue->gpu;
    struct pici_cuda_encode jobs[32];
    struct pici_opts opts = PICI_OPTS_INIT;
    (void)checksum; /* room refused it */
    launch_reads(queue);
    queue->in_slots = !(gpu->needs.device && runs * arrays == 1);
    enum pici_status status = PICI_OK;
    for (int i = 0, k; i < runs * arrays && !status; i += k) {
        const struct engine_array *current = &array[i / runs];
        const int remaining = runs - i % runs;
        for (k = 0; k < (int)(sizeof jobs / sizeof *jobs) && k < remaining; k++)
            jobs[k] = (struct pici_cuda_encode){.block = queue->in_slots ? queue->slots + (size_t)(i + k) * gpu->slot
                                                                         : message + offset,
                                                .cap = queue->in_slots ? gpu->slot : capacity - offset,
                                                .result = &queue->results[i + k],
                                                .src = source[i + k],
                                                .n = count[i + k]};
        opts.zeros = current->by_value && current->format != PICI_DENSE ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        status = pici_compress_batch_opts_cuda(jobs, (size_t)k, current->dtype, current->format, &opts,
                                               queue->workspace + (size_t)i * gpu->workspace,
                                               (size_t)k * gpu->workspace, queue->stream);
    }
    queue->pending = 1;
    if (status)
        return codec_status(queue->gpu, status, "encoding");
    queue->message = message;
    queue->offset = offset;
    queue->capacity = capacity;
    queue->sizes = size;
    queue->runs = runs;
    queue->arrays = arrays;
    queue->used = (unsigned)(runs * arrays);
    return PICI_OK;
}

static void gpu_look(struct pici_queue *queue, const uint8_t *message, size_t bytes, int blocks)
{
    queue->looked = message;
    if (!queue->gpu->needs.device)
        return;
    launch_reads(queue);
    gpu_begun(queue, pici_cuda_look(queue->heads, queue->head, message, bytes, (unsigned)blocks, queue->stream),
              "looking");
}

static const uint8_t *gpu_head(struct pici_queue *queue, int i, size_t offset)
{
    static const uint8_t none[48];
    if (!queue->gpu->needs.device)
        return queue->looked + (i < 0 ? 0 : offset);
    if (i < 0)
        return queue->heads->prefix;
    return (uint64_t)i <= queue->heads->found && queue->head[i].offset == offset ? queue->head[i].header : none;
}

/* A block that the GPU can read, aligned to 16: a copy, unless the block itself is one. */
static const void *legible(struct pici_queue *queue, const void *block, size_t size)
{
    if (queue->gpu->needs.device && (uintptr_t)block % 16 == 0)
        return block;
    uint8_t *slot = queue->slots + queue->used * queue->gpu->slot;
    copy_input(queue, slot, block, size);
    return slot;
}

static int apart_from(const void *one, size_t one_bytes, const void *other, size_t other_bytes)
{
    const uintptr_t one_begin = (uintptr_t)one, other_begin = (uintptr_t)other;
    return one_begin < other_begin ? other_begin - one_begin >= one_bytes : one_begin - other_begin >= other_bytes;
}

static enum pici_status read_block(struct pici_queue *queue, void *destination, const uint8_t *block,
                                   const struct pici_block *parsed, int add)
{
    struct gpu *gpu = queue->gpu;
    const size_t size = (size_t)parsed->layout.block_bytes;
    /* longer than any block of a slice */
    if (size > gpu->slot || queue->used == (unsigned)gpu->needs.blocks)
        return PICI_E_CORRUPT;
    const enum pici_dtype dtype = (enum pici_dtype)parsed->dtype;
    const size_t width = pici_dtype_width(dtype), bytes = (size_t)parsed->count * width;
    int apart = queue->waiting < READS && queue->adding == add && queue->reading == dtype;
    for (unsigned i = 0; i < queue->waiting && apart; i++)
        apart = apart_from(destination, bytes, queue->reads[i].dst, (size_t)queue->reads[i].n * width);
    if (!apart)
        launch_reads(queue);
    const void *from = legible(queue, block, size);
    queue->reads[queue->waiting++] = (struct pici_cuda_decode){
        .dst = destination, .n = parsed->count, .block = from, .len = size, .result = &queue->results[queue->used]};
    queue->adding = add;
    queue->reading = dtype;
    queue->used++;
    queue->pending = 1;
    return PICI_OK;
}

static enum pici_status gpu_decode(struct pici_queue *queue, void *destination, const uint8_t *block,
                                   const struct pici_block *parsed, uint64_t output)
{
    (void)output;
    return read_block(queue, destination, block, parsed, 0);
}

static enum pici_status gpu_reduce(struct pici_queue *queue, void *destination, const uint8_t *block,
                                   const struct pici_block *parsed, enum pici_op op, void *temp, uint64_t temp_elements)
{
    (void)temp, (void)temp_elements;
    if (op != PICI_MIN && op != PICI_MAX)
        return read_block(queue, destination, block, parsed, 1);
    enum pici_status status = read_block(queue, queue->temp, block, parsed, 0);
    launch_reads(queue);
    if (status)
        return status;
    gpu_begun(queue,
              pici_cuda_order(destination, queue->temp, parsed->count, parsed->dtype, op == PICI_MAX, queue->stream),
              "comparing");
    return PICI_OK;
}

/* Sets only the header fields that read_block needs. */
static enum pici_status gpu_reduce_own(struct pici_queue *queue, void *destination, const uint8_t *block, size_t size,
                                       uint64_t count, enum pici_dtype dtype, enum pici_op op, void *temp,
                                       uint64_t temp_elements)
{
    struct pici_block parsed = {.dtype = (unsigned)dtype, .count = count};
    parsed.layout.block_bytes = size;
    return gpu_reduce(queue, destination, block, &parsed, op, temp, temp_elements);
}

static enum pici_status gpu_quantize(struct pici_queue *queue, const struct values *values,
                                     const struct values_where *context, void *const outputs[VALUES_ARRAYS],
                                     uint64_t made_counts[VALUES_ARRAYS], const void *source, uint64_t count,
                                     struct values_loss *loss)
{
    struct pici_cuda_losses to = {.workspace = queue->losses};
    for (int array = 0; array < values->codec->arrays; array++)
        made_counts[array] = values->codec->most(values, array, count);
    launch_reads(queue);
    if (!count)
        return PICI_OK;
    if (loss) {
        to.residual = loss->residual;
        to.times = loss->times;
        to.report = &queue->told[queue->quantized++];
        queue->loss = loss;
    }
    gpu_begun(queue, pici_cuda_quantize(outputs, source, count, values, context, loss ? &to : NULL, queue->stream),
              "quantizing");
    return PICI_OK;
}

static enum pici_cuda_dequantizing dequantizing_of(const struct engine_values *usage, enum engine_store action)
{
    if (action == STORE_REDUCE && usage->op == PICI_MIN)
        return DEQUANTIZED_MIN;
    if (action == STORE_REDUCE)
        return usage->op == PICI_MAX ? DEQUANTIZED_MAX : DEQUANTIZED_SUM;
    if (!usage->by_value)
        return DEQUANTIZED;
    return usage->quiet ? DEQUANTIZED_QUIET : DEQUANTIZED_POSITIVE;
}

/* The kernel that dequantizes elements also adds them, so it needs no temp. */
static enum pici_status gpu_dequantize(struct pici_queue *queue, const struct engine_values *usage,
                                       enum engine_store action, void *destination, uint64_t count,
                                       const void *const inputs[VALUES_ARRAYS],
                                       const uint64_t input_counts[VALUES_ARRAYS], void *temp, size_t temp_bytes)
{
    const struct values *values = usage->values;
    (void)temp, (void)temp_bytes;
    for (int array = 0; array < values->codec->arrays; array++)
        if (input_counts[array] != values->codec->most(values, array, count))
            return PICI_E_CORRUPT;
    launch_reads(queue);
    gpu_begun(queue,
              pici_cuda_dequantize(destination, count, inputs, values, dequantizing_of(usage, action), queue->bad,
                                   queue->stream),
              "dequantizing");
    return PICI_OK;
}

static void gpu_containers(struct pici_queue *queue, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block, size_t size)
{
    struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
    /* a block that is not hybrid has no tiles */
    if (!queue->gpu->needs.device)
        (void)pici_breakdown(&breakdown, block, size);
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles[i] += breakdown.tiles[i];
}

static void gpu_divide(struct pici_queue *queue, void *destination, uint64_t count, enum pici_dtype dtype, int ranks)
{
    launch_reads(queue);
    gpu_begun(queue, pici_cuda_divide(destination, count, (unsigned)dtype, ranks, queue->stream), "dividing");
}

/* cost_scale is an estimate, not measured: the memory traffic in docs/reference/cuda.md on a GPU of 3 TB/s, relative to
 * the host's constants. */
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
    .reduce = gpu_reduce,
    .reduce_own = gpu_reduce_own,
    .quantize = gpu_quantize,
    .dequantize = gpu_dequantize,
    .containers = gpu_containers,
    .divide = gpu_divide,
};

enum pici_status pici_comm_cuda(struct pici_comm *comm, cudaStream_t stream)
{
    if (!comm)
        return PICI_E_ARG;
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return PICI_E_NOMEM;
    gpu->caller = stream;
    enum pici_status status = status_of(gpu, cudaGetDevice(&gpu->device), "cudaGetDevice");
    if (!status)
        status =
            status_of(gpu, cudaStreamCreateWithFlags(&gpu->moves, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (!status && (status = pici_comm_engine(comm, &engine, gpu)))
        (void)cudaStreamDestroy(gpu->moves);
    if (status)
        free(gpu);
    return status;
}
