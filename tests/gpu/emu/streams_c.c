/* SPDX-License-Identifier: BSD-3-Clause */
#include "streams_c.h"

#include <cuda_runtime_api.h>

int there_and_back(unsigned n, int what)
{
    const size_t bytes = n * sizeof(unsigned);
    cudaStream_t there = NULL, back = NULL;
    cudaEvent_t sent = NULL;
    void *source = NULL, *result = NULL, *device = NULL;
    if (cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking) ||
        cudaStreamCreateWithFlags(&back, cudaStreamNonBlocking) ||
        cudaEventCreateWithFlags(&sent, cudaEventDisableTiming) ||
        cudaHostAlloc(&source, bytes, cudaHostAllocDefault) || cudaMallocHost(&result, bytes) ||
        cudaMalloc(&device, bytes))
        return -1;
    unsigned *from = source, *to = result;
    for (unsigned i = 0; i < n; i++) {
        from[i] = i ^ 0x5a5a5a5au;
        to[i] = 0;
    }
    enum cudaError e = cudaMemsetAsync(device, 0, bytes, there);
    if (!e && !(what & RECORD_LAST))
        e = cudaEventRecord(sent, there);
    if (!e)
        e = cudaMemcpyAsync(device, source, bytes, cudaMemcpyDefault, there);
    if (!e && (what & RECORD_LAST))
        e = cudaEventRecord(sent, there);
    if (!e && (what & WAIT))
        e = cudaStreamWaitEvent(back, sent, 0);
    if (!e)
        e = cudaMemcpyAsync(result, device, bytes, cudaMemcpyDeviceToHost, back);
    if (!(what & KEEP_SOURCE))
        from[n / 2] = 0;
    if (!e && (what & SYNCHRONIZE))
        e = cudaStreamSynchronize(back);
    int arrived = 1;
    for (unsigned i = 0; i < n; i++)
        arrived &= to[i] == (i ^ 0x5a5a5a5au);
    if (cudaFree(device) || cudaFreeHost(source) || cudaFreeHost(result) || cudaEventDestroy(sent) ||
        cudaStreamDestroy(there) || cudaStreamDestroy(back))
        return -1;
    return e ? -1 : arrived;
}
