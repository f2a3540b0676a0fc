/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of cuda_codec.cu with graphs and concurrent streams. Over the emulator, what is in the streams runs in any
 * order that they allow. */
#ifndef PICI_TESTS_CUDA_GRAPHS_CUH
#define PICI_TESTS_CUDA_GRAPHS_CUH

#ifdef PICI_DEVICE_HW
#include "tests/gpu/emu/cuda_graphs.h"
#endif

/* In a graph that is run again on other data: compress, decompress and add; then encode the delta from the input to
 * the sum, and apply it. Several streams run at the same time. */
static void check_streams(enum pici_format format)
{
    enum { N = on_gpu ? 3000000 : 33000, STREAMS = on_gpu ? 4 : 3, CALLS = 5 };
    const size_t bytes = (size_t)N * 4, cap = pici_bound(format, PICI_F32, N), space = pici_cuda_workspace(PICI_F32, N);
    struct {
        buffer *src, *out, *back, *delta, *workspace;
        result_buffer *results[CALLS];
        cudaStream_t stream;
        cudaGraphExec_t exec;
    } s[STREAMS];
    for (auto &k : s) {
        k.src = new buffer(bytes);
        k.out = new buffer(cap);
        k.back = new buffer(bytes);
        k.delta = new buffer(cap);
        k.workspace = new buffer(space);
        struct pici_cuda_result *to[CALLS];
        for (unsigned i = 0; i < CALLS; i++) {
            k.results[i] = new result_buffer;
            to[i] = k.results[i]->to();
        }
        cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking);
        cudaGraph_t graph;
        cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeGlobal);
        const enum pici_status called[CALLS] = {
            pici_compress_cuda(k.out->at, cap, to[0], k.src->at, N, PICI_F32, format, k.workspace->at, space, k.stream),
            pici_decompress_cuda(k.back->at, N, PICI_F32, k.out->at, cap, &to[0]->len, to[1], k.workspace->at, space,
                                 k.stream),
            pici_scatter_add_cuda(k.back->at, N, PICI_F32, k.out->at, cap, &to[0]->len, to[2], k.workspace->at, space,
                                  k.stream),
            pici_diff_cuda(k.delta->at, cap, to[3], k.src->at, k.back->at, N, PICI_F32, format, k.workspace->at, space,
                           k.stream),
            pici_apply_cuda(k.src->at, N, PICI_F32, k.delta->at, cap, &to[3]->len, to[4], k.workspace->at, space,
                            k.stream)};
        const cudaError_t e = cudaStreamEndCapture(k.stream, &graph);
        for (unsigned i = 0; i < CALLS; i++)
            tally(!called[i], "graph, call %u: %d", i, called[i]);
        tally(!e && cudaGraphInstantiate(&k.exec, graph, 0) == cudaSuccess, "graph: %d", e);
        cudaGraphDestroy(graph);
    }
    for (unsigned round = 0; round < 3; round++) {
        std::vector<std::vector<uint8_t>> in(STREAMS);
        for (unsigned i = 0; i < STREAMS; i++) {
            in[i].resize(bytes);
            pattern_fill(in[i].data(), N, PICI_F32, (enum pattern)(PATTERN_1 + (i + round) % 5), &rng);
            s[i].src->put(in[i].data());
            device_good(); /* the elements are not in pinned memory: the stream must be idle */
        }
        for (auto &k : s)
            cudaGraphLaunch(k.exec, k.stream);
        for (unsigned i = 0; i < STREAMS; i++) {
            cudaStreamSynchronize(s[i].stream);
            size_t len, delta_len;
            uint8_t *block = ref_encode(&len, in[i].data(), N, PICI_F32, format, 0);
            std::vector<uint8_t> sum = in[i], changed = in[i];
            ref_scatter_add(sum.data(), N, block, len);
            as_on_gpu(sum.data(), in[i].data(), in[i].data(), N, PICI_F32);
            for (size_t b = 0; b < bytes; b++)
                changed[b] ^= sum[b];
            uint8_t *delta = ref_encode(&delta_len, changed.data(), N, PICI_F32, format, 0);
            for (unsigned c = 0; c < CALLS; c++) {
                const struct pici_cuda_result r = s[i].results[c]->read();
                tally(!r.status && r.len == (c < 3 ? len : delta_len), "graph %u, round %u, call %u: %d, length %zu", i,
                      round, c, r.status, (size_t)r.len);
            }
            tally(memcmp(s[i].out->get(len).data(), block, len) == 0 &&
                      memcmp(s[i].back->get(bytes).data(), sum.data(), bytes) == 0,
                  "graph %u, round %u: a block, or the sum with it", i, round);
            tally(memcmp(s[i].delta->get(delta_len).data(), delta, delta_len) == 0 &&
                      memcmp(s[i].src->get(bytes).data(), sum.data(), bytes) == 0,
                  "graph %u, round %u: a delta, or what it was applied to", i, round);
            free(block);
            free(delta);
        }
    }
    for (auto &k : s) {
        cudaGraphExecDestroy(k.exec);
        cudaStreamDestroy(k.stream);
        for (buffer *b : {k.src, k.out, k.back, k.delta, k.workspace})
            delete b;
        for (result_buffer *r : k.results)
            delete r;
    }
}

#endif
