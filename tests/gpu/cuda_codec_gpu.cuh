/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of cuda_codec.cu that runs on a GPU only: more than 2^32 elements, graphs and concurrent streams. */
#ifndef PICI_TESTS_CUDA_CODEC_GPU_CUH
#define PICI_TESTS_CUDA_CODEC_GPU_CUH

static __global__ void count_differences(const uint8_t *a, const uint8_t *b, uint64_t n, unsigned long long *count)
{
    unsigned long long own = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x)
        own += a[i] != b[i];
    if (own)
        atomicAdd(count, own);
}

/* More than 2^32 elements of a byte, most of them zero and then none: compress, decompress, apply twice. */
static void check_long(enum pici_format format)
{
    const uint64_t n = (UINT64_C(1) << 32) + 5 * 4096 + 77;
    const size_t cap = pici_bound(format, PICI_U8, n), space = pici_cuda_workspace(PICI_U8, n);
    size_t room, all;
    if (cudaMemGetInfo(&room, &all) || room < 2 * n + cap + space + ((size_t)256 << 20)) {
        printf("skip: 2^32 elements in %s: %zu MiB of device memory\n", pici_format_name(format), room >> 20);
        return;
    }
    buffer src(n), dst(n), block(cap), workspace(space), count(8);
    result_buffer result;
    const auto differences = [&] {
        cudaMemsetAsync(count.at, 0, 8, stream);
        count_differences<<<4096, 256, 0, stream>>>(src.at, dst.at, n, (unsigned long long *)count.at);
        uint64_t v = 1;
        cudaMemcpyAsync(&v, count.at, 8, cudaMemcpyDeviceToHost, stream);
        return device_good() ? v : 1;
    };
    for (const int fill : {0, 1}) {
        if (fill && format == PICI_COO)
            continue; /* a block of 9 bytes an element */
        cudaMemsetAsync(src.at, fill, n, stream);
        for (uint64_t at = 4095; at < n; at += n / 5000) /* of different bytes, some about 2^32 */
            cudaMemsetAsync(src.at + at, 7 + (int)(at % 200), 1, stream);
        cudaMemsetAsync(src.at + n - 9000, 3, 9000, stream);
        enum pici_status s =
            pici_compress_cuda(block.at, cap, result.to(), src.at, n, PICI_U8, format, workspace.at, space, stream);
        const struct pici_cuda_result made = result.read();
        tally(!s && !made.status && made.len <= cap, "compress of 2^32 elements in %s: %d, %d",
              pici_format_name(format), s, made.status);
        s = pici_verify_cuda(block.at, (size_t)made.len, NULL, result.to(), workspace.at, space, stream);
        tally(!s && !result.read().status, "verify of 2^32 elements in %s: %d", pici_format_name(format), s);
        cudaMemsetAsync(dst.at, 0x5a, n, stream);
        s = pici_decompress_cuda(dst.at, n, PICI_U8, block.at, (size_t)made.len, NULL, result.to(), workspace.at, space,
                                 stream);
        tally(!s && !result.read().status && differences() == 0, "decompress of 2^32 elements in %s: %d",
              pici_format_name(format), s);
        cudaMemsetAsync(dst.at, 0, n, stream);
        s = pici_apply_cuda(dst.at, n, PICI_U8, block.at, (size_t)made.len, NULL, result.to(), workspace.at, space,
                            stream);
        tally(!s && !result.read().status && differences() == 0, "apply of 2^32 elements in %s: %d",
              pici_format_name(format), s);
    }
}

/* In a graph that is run again on other data: compress, decompress and add; then encode the delta from the input to
 * the sum, and apply it. Several streams run at the same time. */
static void check_streams(enum pici_format format)
{
    enum { N = 3000000, STREAMS = 4, CALLS = 5 };
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
        }
        device_good();
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
