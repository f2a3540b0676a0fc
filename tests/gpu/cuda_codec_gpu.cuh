/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of cuda_codec.cu that runs on a GPU only: more than 2^32 elements. */
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

#endif
