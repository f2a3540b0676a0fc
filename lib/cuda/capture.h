/* SPDX-License-Identifier: BSD-3-Clause
 *
 * While one thread captures a stream into a graph in the global mode, no thread may allocate or free memory, or query
 * or wait for a stream or an event: such a call fails, and the capture does too. A thread in relaxed mode is exempt. So
 * this library makes such calls between these two. */
#ifndef PICI_LIB_CUDA_CAPTURE_H
#define PICI_LIB_CUDA_CAPTURE_H

#include <cuda_runtime_api.h>

/* This thread is exempt until capture_restore is called with what this returned. */
static inline enum cudaStreamCaptureMode capture_relax(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    /* it fails only if the GPU is lost; then what follows fails too */
    return cudaThreadExchangeStreamCaptureMode(&mode) ? cudaStreamCaptureModeGlobal : mode;
}

static inline void capture_restore(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

#endif
