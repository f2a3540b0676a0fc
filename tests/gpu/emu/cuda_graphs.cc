/* SPDX-License-Identifier: BSD-3-Clause */
#include <map>
#include <memory>
#include <vector>

#include "cuda_graphs.h"
#include "cuda_state.h"

struct CUgraph_st {
    std::vector<emu::operation> operations; /* in order: of one stream */
};

struct CUgraphExec_st {
    std::vector<emu::operation> operations;
};

namespace {

struct capture {
    cudaStreamCaptureMode mode;
    bool broken; /* a call ended it */
    std::unique_ptr<CUgraph_st> graph;
};

std::map<cudaStream_t, capture> captures;

} // namespace

bool emu::captures(cudaStream_t stream)
{
    return ::captures.count(stream) != 0;
}

cudaError_t emu::capture(cudaStream_t stream, const operation &o, bool forks)
{
    ::capture &c = ::captures.at(stream);
    if (forks)
        c.broken = true;
    if (c.broken)
        return refuse(cudaErrorStreamCaptureInvalidated);
    c.graph->operations.push_back(o);
    return cudaSuccess;
}

bool emu::breaks_capture(cudaStream_t stream)
{
    bool any = false;
    for (auto &entry : ::captures)
        if (stream ? entry.first == stream : entry.second.mode != cudaStreamCaptureModeRelaxed)
            any = entry.second.broken = true;
    return any;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    const emu::call c;
    if (!stream || mode > cudaStreamCaptureModeRelaxed || emu::captures(stream))
        return emu::refuse(stream ? cudaErrorInvalidValue : cudaErrorStreamCaptureUnsupported);
    captures[stream] = {mode, false, std::make_unique<CUgraph_st>()};
    return emu::sticky();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const emu::call c;
    const auto found = captures.find(stream);
    *graph = nullptr;
    if (found == captures.end())
        return emu::refuse(cudaErrorInvalidValue);
    const bool broken = found->second.broken;
    if (!broken)
        *graph = found->second.graph.release();
    captures.erase(found);
    return broken ? emu::refuse(cudaErrorStreamCaptureInvalidated) : emu::sticky();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    const emu::call c;
    if (!graph)
        return emu::refuse(cudaErrorInvalidValue);
    *executable = new CUgraphExec_st{graph->operations};
    return emu::sticky();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    const emu::call c;
    cudaError_t e = executable ? cudaSuccess : emu::refuse(cudaErrorInvalidValue);
    for (size_t i = 0; !e && i < executable->operations.size(); i++)
        e = emu::queue(stream, executable->operations[i]);
    return e;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    delete executable;
    return cudaSuccess;
}
