/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Graphs on the emulator, as far as the tests use them. While a stream is captured, copies, fills and kernels are kept
 * instead of run; a launch of the graph queues them again, in their order. The same calls end a capture here as on a
 * GPU: waiting for the stream or querying it. Unless the capture is relaxed, so do allocating or freeing memory, and
 * waits and queries by a thread that is not. Events on a captured stream are not supported: they end the capture
 * too. */
#ifndef PICI_TESTS_EMU_CUDA_GRAPHS_H
#define PICI_TESTS_EMU_CUDA_GRAPHS_H

#include "cuda_runtime_api.h"

constexpr cudaError_t cudaErrorStreamCaptureInvalidated = (cudaError_t)901;

typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *); /* null, and an error: a call ended the capture */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

#endif
