/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of the CUDA runtime that the library and its tests use, on the emulator; for C and C++. Each buffer ends
 * before an inaccessible page; the bytes between must not change.
 *
 * Until emu::defer, every operation completes before its call returns. After it, copies, fills, kernels, events and
 * waits for events are queued in their stream and run later. Every call first runs some of the operations that are
 * first in a stream. A seed determines which, how many, and which streams are slow. So operations that no event orders
 * run in any order, and those that were not waited for have often not run. Streams wait for each other only by events;
 * the null stream is like any other. Deferred operation also means:
 *   - host code cannot access device memory: it gets a segmentation fault, with a message;
 *   - cudaMemcpyAsync with host memory that is not pinned is a failure unless the stream is empty, because on a GPU it
 *     may wait for the stream;
 *   - a copy or a fill beyond a buffer, an overlapping copy, and a copy with the wrong direction are failures;
 *   - the use of a destroyed handle is a failure;
 *   - launching a kernel into a stream of another device than the current one, or recording an event there, is refused;
 *   - so is launching a kernel with more than a GPU has, or with more than 48 KiB of dynamic shared memory that nobody
 *     asked for;
 *   - waiting for a stream that is blocked for ever is a failure; freeing memory of its device, which waits for all of
 *     its streams, ends the
 *     program.
 * A failure persists: nearly every later call returns it, and cudaGetErrorString describes it.
 *
 * Any number of threads may call; they run one at a time. If there are several, a stream counts as blocked for ever
 * once none has done anything for a while. There are many devices, which can access each other's memory; ranks
 * select one each by cudaSetDevice. */
#ifndef PICI_TESTS_EMU_CUDA_RUNTIME_API_H
#define PICI_TESTS_EMU_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define EMU_ERRORS(X)                                                                                                  \
    X(cudaSuccess, 0, "no error")                                                                                      \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                                    \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                                                   \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                              \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                        \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                           \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                  \
    X(cudaErrorNotReady, 600, "device not ready")                                                                      \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                        \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                          \
    X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")              \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                       \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                      \
    X(cudaErrorUnknown, 999, "unknown error")

#define EMU_ERROR_VALUE(name, value, words) name = value,
enum cudaError { EMU_ERRORS(EMU_ERROR_VALUE) };
#undef EMU_ERROR_VALUE
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
    long reserved[8];
};

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount, l2CacheSize;
};

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16, /* 1, so that each thread block has many parts to do: emu::multiprocessors */
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#ifdef __cplusplus
#define EMU_DEFAULT(v) = v
extern "C" {
#else
#define EMU_DEFAULT(v)
#endif

/* Errors. As on a GPU, cudaGetLastError also returns cudaErrorNotReady. */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t);
const char *cudaGetErrorName(cudaError_t);

/* Devices. */
cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaGetDevice(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *, int device);
cudaError_t cudaDeviceGetAttribute(int *, enum cudaDeviceAttr, int device);
cudaError_t cudaDeviceSynchronize(void);

/* Memory. Freeing waits for all that is queued on the memory's device. */
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaHostAlloc(void **, size_t, unsigned flags);
cudaError_t cudaMallocHost(void **, size_t);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *, const void *);
cudaError_t cudaMemcpy(void *, const void *, size_t, enum cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t EMU_DEFAULT(NULL));
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t EMU_DEFAULT(NULL));

/* Streams. A destroyed stream still runs what is queued in it. */
cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *); /* never: there are no graphs */
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *);   /* see emu::captured_elsewhere */
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags EMU_DEFAULT(0));

/* Events. An event is in the state of its last record; a wait is for the record before it. Elapsed time is that of the
 * host between the records. */
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t EMU_DEFAULT(NULL));
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventDestroy(cudaEvent_t);

#ifdef __cplusplus
}

#include <functional>

#include "warp_emu.h"

namespace emu {

/* The number of multiprocessors that the devices say they have, at first 1. */
void multiprocessors(int count);

/* Defer operations from now on. Clears the failure and the queues; returns how many operations were still queued. */
size_t defer(uint64_t seed);

/* Queue an operation. It returns true once it is done, and false if it must be called again. It may access all
 * device memory, and must not wait. */
void enqueue(cudaStream_t, std::function<bool()>);

/* Run one operation that is first in a stream; false if none is ready. */
bool step();

/* Run all operations; false if some are blocked for ever. */
bool settle();

/* How long without progress counts as blocked for ever; ten seconds by default. */
void patience(unsigned milliseconds);

/* From now on, or no more, another thread captures in the global mode during this thread's calls. Allocating or freeing
 * memory, and querying or waiting for streams or events, then fails unless this thread is in another mode. */
void captured_elsewhere(bool);

/* How many operations the program has put into streams so far, of a kind: "kernel", "copy", "fill", "record of an
 * event", "wait for an event", or "foreign operation" from enqueue. */
uint64_t operations(const char *kind);

/* From now on operations of this kind do not end in streams of this device, or with -1 of any: the GPU hangs. NULL: it
 * hangs no more. */
void hang(const char *kind, int device);

/* How many buffers, of device memory or pinned, were allocated while this device was the current one, and not freed. */
size_t buffers(int device);

/* Are these bytes within one buffer of device memory? */
bool is_device(const void *, size_t);

/* What a kernel is launched with. */
struct shape {
    const void *kernel;
    unsigned x, y, threads;
    size_t shared;
};

/* Queue what launch() makes of a kernel, which run() calls; it returns false if the kernel failed. Refused: more than a
 * GPU has, and more dynamic shared memory than SHARED_UNASKED if the kernel was not allowed it. */
cudaError_t enqueue_kernel(const shape &, cudaStream_t, std::function<bool()> run);

/* Allow a kernel so many bytes of dynamic shared memory on the current device, from now on. */
cudaError_t allow_shared(const void *kernel, int bytes);

} // namespace emu
#endif

#endif
