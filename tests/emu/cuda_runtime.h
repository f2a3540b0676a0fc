/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of the CUDA runtime that the library and its tests use, over the emulator; for C and for C++. Each buffer
 * ends before a page that cannot be touched; the bytes between the two must stay as they were.
 *
 * Everything has happened when a call returns, until emu::defer is called. From then on copies, fills, kernels, events
 * and waits for events are queued in their stream and happen later. Every call runs some operations that are first in
 * their streams; a seed decides which and how many, and which streams are slow. So operations that no event orders
 * happen in any order, and an operation that nobody waited for has often not happened. Streams wait for each other by
 * events alone; the null stream is one more stream. Then
 *   - only operations may touch device memory: anything else is a segmentation fault, with a message;
 *   - cudaMemcpyAsync from or to memory that is not pinned is a failure if its stream has queued operations: on a GPU
 *     it may wait for the stream;
 *   - so is a copy or a fill beyond a buffer, a copy onto itself, or one in another direction than it says;
 *   - so is the use of a handle that was destroyed;
 *   - a kernel launched into a stream of another device than the current one is refused, as is an event recorded there;
 *   - waiting for a stream that is blocked for ever is a failure; freeing memory of its device, which waits for all
 *     streams of that device, ends the program.
 * A failure stays: nearly every call returns it from then on, and cudaGetErrorString describes it.
 *
 * Any number of threads may call; they take turns. While there are several, a stream counts as blocked for ever once no
 * thread has done anything for a while. There are many devices, which use each other's memory: cudaSetDevice gives each
 * rank its own. */
#ifndef PICI_TESTS_EMU_CUDA_RUNTIME_H
#define PICI_TESTS_EMU_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define EMU_ERRORS(X)                                                                                                  \
    X(cudaSuccess, 0, "no error")                                                                                      \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                                    \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                                                   \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                        \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                           \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                  \
    X(cudaErrorNotReady, 600, "device not ready")                                                                      \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                        \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                          \
    X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")              \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                       \
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
    int major, minor;
};

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16, /* 1: few, so that a thread block has many parts to do */
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

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#ifdef __cplusplus
#define EMU_DEFAULT(v) = v
extern "C" {
#else
#define EMU_DEFAULT(v)
#endif

/* Errors. As on a GPU, cudaErrorNotReady is a last error too. */
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

/* Streams. A destroyed one still does what is queued in it. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *); /* there are no graphs: none is */
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags EMU_DEFAULT(0));

/* Events. An event is in the state of its last record; a wait is for the record before it. */
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

/* From now on, operations are queued. Forgets the failure, and what is still queued: returns how much that was. */
size_t defer(uint64_t seed);

/* Queue an operation. It returns true once it has happened, false while it must be tried again. It may touch all device
 * memory, and must not wait. */
void enqueue(cudaStream_t, std::function<bool()>);

/* Run one operation that stands first in a stream; false if none can happen now. */
bool step();

/* Run all; false if some are blocked for ever. */
bool settle();

/* That while: ten seconds, if not said. */
void patience(unsigned milliseconds);

/* Do these bytes lie in one buffer of device memory? */
bool is_device(const void *, size_t);

/* What launch() puts in a stream: false if the kernel failed. */
cudaError_t enqueue_kernel(cudaStream_t, std::function<bool()>);

} // namespace emu

template <class P>
static inline cudaError_t launch(void (*kernel)(P), unsigned x, unsigned y, unsigned threads, unsigned shared,
                                 const P &p, cudaStream_t stream)
{
    return emu::enqueue_kernel(stream, [=] { return emu::launch(x, y, threads, shared, [&] { kernel(p); }); });
}
#endif

#endif
