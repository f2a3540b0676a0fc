/* SPDX-License-Identifier: BSD-3-Clause
 *
 * While one thread captures a stream into a graph in the global mode, other calls are restricted. No thread may
 * allocate or free memory, or query or wait for a stream or an event: such a call fails, and so does the capture. A
 * thread in relaxed mode is exempt. So this library makes such calls between these two functions. */
#ifndef PICI_LIB_CUDA_CAPTURE_H
#define PICI_LIB_CUDA_CAPTURE_H

#include <cuda_runtime_api.h>

/* Exempt this thread until it passes the result to capture_restore. */
static inline enum cudaStreamCaptureMode capture_relax(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    /* this fails only if the GPU is lost; then the next call fails too */
    return cudaThreadExchangeStreamCaptureMode(&mode) ? cudaStreamCaptureModeGlobal : mode;
}

static inline void capture_restore(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

#endif
