/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of cuda_small.cu with graphs. */
#ifndef PICI_TESTS_CUDA_SMALL_GRAPHS_CUH
#define PICI_TESTS_CUDA_SMALL_GRAPHS_CUH

#include <algorithm>

#ifdef PICI_DEVICE_HW
#include "tests/gpu/emu/cuda_graphs.h"
#endif

/* In a graph that runs again on other data: make the delta of a part of a tensor, and apply it to its base. The host
 * does not learn the delta's size. */
static void check_graph(enum pici_dtype dtype, enum pici_holds holds, enum pici_format format)
{
    static const enum step steps[] = {STEP_USUAL, STEP_TINY, STEP_RANDOM, STEP_NONE};
    const uint64_t n = 3001, first = 10, of = n + 20;
    const size_t bytes = (size_t)n * pici_dtype_width(dtype), cap = pici_diff_small_bound(format, dtype, n) + 16,
                 space = std::max(pici_diff_small_cuda_workspace(format, dtype, n, 1),
                                  pici_apply_small_cuda_workspace(dtype, n, 1));
    buffer base(bytes), src(bytes), delta(cap), workspace(space);
    result_buffer made, applied;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = holds;
    cudaStream_t own;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaStreamBeginCapture(own, cudaStreamCaptureModeGlobal);
    const enum pici_status diff = pici_diff_small_part_cuda(delta.at, cap, made.to(), base.at, src.at, n, first, of,
                                                            dtype, format, &opts, workspace.at, space, own);
    const enum pici_status apply = pici_apply_small_range_cuda(base.at, n, first, of, dtype, delta.at, cap,
                                                               &made.to()->len, applied.to(), workspace.at, space, own);
    const bool captured = !cudaStreamEndCapture(own, &graph) && !cudaGraphInstantiate(&executable, graph, 0);
    tally(!diff && !apply && captured, "a graph of small deltas: %d, %d", (int)diff, (int)apply);
    if (captured) {
        cudaGraphDestroy(graph);
        for (const enum step step : steps) {
            const struct sample s = part_of(dtype, holds, format, n, first, of, step);
            base.put(s.base.data());
            src.put(s.src.data());
            device_good(); /* the elements are not in pinned memory: the stream must be idle */
            tally(!cudaGraphLaunch(executable, own) && !cudaStreamSynchronize(own), "%s: launch of a graph", s.name);
            const struct pici_cuda_result from_diff = made.read(), from_apply = applied.read();
            tally(!from_diff.status && from_diff.len == s.delta.size() && starts_with(delta, s.delta, s.delta.size()),
                  "%s: a graph's delta: %d", s.name, (int)from_diff.status);
            tally(!from_apply.status && from_apply.len == s.delta.size() && starts_with(base, s.src, bytes),
                  "%s: applied by a graph: %d", s.name, (int)from_apply.status);
        }
        cudaGraphExecDestroy(executable);
    }
    cudaStreamDestroy(own);
}

static void graphs(void)
{
    check_graph(PICI_BF16, PICI_HOLDS_ONE, PICI_HYBRID);
    check_graph(PICI_F8E4M3, PICI_HOLDS_ONE, PICI_COO);
    check_graph(PICI_U8, PICI_HOLDS_E2M1X2, PICI_BITMAP);
    check_graph(PICI_F32, PICI_HOLDS_ONE, PICI_DENSE);
}

#endif
