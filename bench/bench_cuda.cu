/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec on a GPU, compared with alternatives. These are a device-to-device copy, CUB's DeviceSelect of values and
 * of pairs of index and value, cuSPARSE's conversions between dense and CSR or COO, and a dense vector addition. All
 * are measured in one run with events, after a warm-up; the result is the median. Buffers are used in rotation;
 * together they are several times the size of L2. Small deltas have rows where 90% of the elements or more are zeros:
 * there that is the share of unchanged weights.
 *
 * floor: the time to move the least number of bytes at the rate of the copy in the same table. For compress and
 * decompress these are the dense elements and the block, once each; for scatter-add the block, and each touched sector
 * of 32 bytes, read and written. Before timing, it compares blocks with a simple two-pass encoder's, and decodes them.
 * Over the emulator there are no rows of other libraries, and the times mean nothing.
 *   bench_cuda [--quick] [--json] [--size MIB|KIBK]... [--zeros PERCENT,...] [--times N] [--dtype f32|bf16] */
#include "cuda_bench.cuh"
#ifndef PICI_DEVICE_HW
#include "cuda_peers.cuh"
#endif
#include "pici/delta.h"

static uint64_t part_of(double share)
{
    return (uint64_t)(share * 4294967296.0);
}

/* Make, check and time a small delta of weights; `t` gives the share of unchanged ones. */
template <class T, enum pici_dtype DTYPE> static void small_delta_rows(const table &t, uint64_t n, size_t l2)
{
    const unsigned count = (unsigned)std::min<size_t>(4 * l2 / t.bytes + 1, 64);
    const size_t bytes = n * sizeof(T), cap = pici_diff_small_bound(PICI_HYBRID, DTYPE, n) + 16;
    const size_t diff_space = pici_diff_small_cuda_workspace(PICI_HYBRID, DTYPE, n, 0);
    const size_t apply_space = pici_apply_small_cuda_workspace(DTYPE, n, 0);
    scratch base(bytes * count), live(bytes * count), delta(cap), workspace(std::max(diff_space, apply_space)),
        told(sizeof(struct pici_cuda_result)), next(bytes);
    struct pici_cuda_result *const result = (struct pici_cuda_result *)told.at;
    const auto of = [&](const scratch &s, unsigned i) { return (T *)s.at + i * n; };
    for (unsigned i = 0; i < count; i++) /* the same weights, at other addresses */
        over(fill<T>, n, elements{of(base, i), NULL, n, 7, part_of(1), NULL});
    over(step<T>, n, elements{next.at, base.at, n, 8, part_of(1 - t.sparsity), NULL});
    const auto diff = [&](unsigned i) {
        must(pici_diff_small_cuda(delta.at, cap, result, of(base, i), next.at, n, DTYPE, PICI_HYBRID, workspace.at,
                                  diff_space, stream));
    };
    diff(0);
    const uint64_t len = fetch(result, "a small delta").len;
    const auto restore = [&](unsigned i) {
        CUDA(cudaMemcpyAsync(of(live, i), base.at, bytes, cudaMemcpyDeviceToDevice, stream));
    };
    const auto apply = [&](unsigned i) {
        must(pici_apply_small_cuda(of(live, i), n, DTYPE, delta.at, len, NULL, result, workspace.at, apply_space,
                                   stream));
    };
    restore(0);
    apply(0);
    fetch(result, "a small delta is applied");
    must_equal(live.at, next.at, bytes, "what a small delta makes");
    row(t, "diff", "small delta", time_of(count, bytes, diff), 2 * (double)bytes + (double)len);
    row(t, "apply", "small delta", time_of(count, bytes, apply, restore),
        (double)len + 64 * sectors_of<T>((const T *)next.at, (const T *)base.at, n));
    fetch(result, "a small delta is applied");
}

template <class T, enum pici_dtype DTYPE> static void bench(size_t bytes, double sparsity, size_t l2)
{
    const uint64_t n = bytes / sizeof(T);
    const size_t cap = pici_bound(PICI_COO, DTYPE, n) + 16, pici_cap = pici_bound(PICI_BITMAP, DTYPE, n) + 16;
    const size_t space = pici_cuda_workspace(DTYPE, n);
    const unsigned count = (unsigned)std::min<size_t>(4 * l2 / bytes + 1, 256);
    table t = {sizeof(T) == 4 ? "f32" : "bf16", bytes, sparsity, 0};
    sets<T> b;
    scratch told(sizeof(struct pici_cuda_result)), memory(space), other_block(cap);
    struct pici_cuda_result *const result = (struct pici_cuda_result *)told.at;
    void *const workspace = memory.at;
    uint8_t *const block2 = (uint8_t *)other_block.at;
    for (unsigned i = 0; i < count; i++) {
        void *src, *dst, *block;
        CUDA(cudaMalloc(&src, bytes));
        CUDA(cudaMalloc(&dst, bytes));
        CUDA(cudaMalloc(&block, pici_cap));
        b.src.push_back((T *)src);
        b.dst.push_back((T *)dst);
        b.block.push_back((uint8_t *)block);
        over(fill<T>, n, elements{src, NULL, n, i + 1, part_of(1 - sparsity), NULL});
    }

    /* check the results before timing */
    std::vector<uint64_t> lens;
    for (unsigned i = 0; i < count; i++) {
        CUDA(cudaMemsetAsync(b.block[i], 0, pici_cap, stream));
        CUDA(cudaMemsetAsync(b.dst[i], 0xa5, bytes, stream));
        must(pici_compress_cuda(b.block[i], pici_cap, result, b.src[i], n, DTYPE, PICI_BITMAP, workspace, space,
                                stream));
        const uint64_t len = fetch(result, "compress").len;
        lens.push_back(len);
        must(pici_verify_cuda(b.block[i], len, NULL, result, workspace, space, stream));
        fetch(result, "verify");
        must(pici_decompress_cuda(b.dst[i], n, DTYPE, b.block[i], len, NULL, result, workspace, space, stream));
        fetch(result, "decompress");
        must_equal(b.dst[i], b.src[i], bytes, "what was decompressed");
        CUDA(cudaMemsetAsync(b.dst[i], 0, bytes, stream));
        must(pici_scatter_add_cuda(b.dst[i], n, DTYPE, b.block[i], len, NULL, result, workspace, space, stream));
        fetch(result, "scatter-add");
        must_equal(b.dst[i], b.src[i], bytes, "zero and what was added");
    }
    const uint64_t len = lens[0];
    const double sectors = sectors_of<T>(b.src[0], NULL, n);

    const double copy = time_of(count, bytes, [&](unsigned i) {
        CUDA(cudaMemcpyAsync(b.dst[i], b.src[i], bytes, cudaMemcpyDeviceToDevice, stream));
    });
    t.rate = 2 * (double)bytes / copy;
    row(t, "copy", "cudaMemcpyAsync", copy, 2 * (double)bytes);

    const double least = (double)bytes + (double)len, least_add = (double)len + 64 * sectors;
    row(t, "compress", "pici",
        time_of(count, bytes,
                [&](unsigned i) {
                    must(pici_compress_cuda(b.block[i], pici_cap, result, b.src[i], n, DTYPE, PICI_BITMAP, workspace,
                                            space, stream));
                }),
        least);
    row(t, "decompress", "pici",
        time_of(count, bytes,
                [&](unsigned i) {
                    must(pici_decompress_cuda(b.dst[i], n, DTYPE, b.block[i], lens[i], NULL, result, workspace, space,
                                              stream));
                }),
        least);
    fetch(result, "decompress");
    row(t, "scatter-add", "pici",
        time_of(count, bytes,
                [&](unsigned i) {
                    must(pici_scatter_add_cuda(b.dst[i], n, DTYPE, b.block[i], lens[i], NULL, result, workspace, space,
                                               stream));
                }),
        least_add);
    fetch(result, "scatter-add");
    row(t, "scatter-add", "dense vector add",
        time_of(count, bytes,
                [&](unsigned i) {
                    over(dense_add<T, DTYPE>, bytes / 16, elements{b.dst[i], b.src[i], bytes / 16, 0, 0, NULL});
                }),
        least_add);

    struct pici_opts fast = PICI_OPTS_INIT;
    fast.pack = PICI_PACK_FAST;
    const struct {
        enum pici_format format;
        const char *name;
        const struct pici_opts *opts;
    } others[] = {{PICI_HYBRID, "hybrid", NULL},
                  {PICI_COO, "coo", NULL},
                  {PICI_PACKED, "packed", NULL},
                  {PICI_PACKED, "packed, one level", &fast}};
    for (const auto &o : others) {
        const auto make = [&](unsigned i) {
            must(pici_compress_opts_cuda(block2, cap, result, b.src[i], n, DTYPE, o.format, o.opts, workspace, space,
                                         stream));
        };
        /* check the results before timing */
        make(0);
        const uint64_t other = fetch(result, o.name).len;
        must(pici_verify_cuda(block2, other, NULL, result, workspace, space, stream));
        fetch(result, o.name);
        CUDA(cudaMemsetAsync(b.dst[0], 0xa5, bytes, stream));
        must(pici_decompress_cuda(b.dst[0], n, DTYPE, block2, other, NULL, result, workspace, space, stream));
        fetch(result, o.name);
        must_equal(b.dst[0], b.src[0], bytes, "what was decompressed");

        row(t, "compress", o.name, time_of(count, bytes, make), (double)(bytes + other));
        make(0);
        row(t, "decompress", o.name,
            time_of(count, bytes,
                    [&](unsigned i) {
                        must(pici_decompress_cuda(b.dst[i], n, DTYPE, block2, other, NULL, result, workspace, space,
                                                  stream));
                    }),
            (double)(bytes + other));
        fetch(result, o.name);
        row(t, "scatter-add", o.name,
            time_of(count, bytes,
                    [&](unsigned i) {
                        must(pici_scatter_add_cuda(b.dst[i], n, DTYPE, block2, other, NULL, result, workspace, space,
                                                   stream));
                    }),
            (double)other + 64 * sectors);
        fetch(result, o.name);
    }
    if (sparsity >= .9)
        small_delta_rows<T, DTYPE>(t, n, l2);
#ifndef PICI_DEVICE_HW
    two_pass_rows<T>(t, b, count, n, DTYPE, pici_cap, len, least);
    cub_rows(t, b, count, n, least);
    uint64_t nnz;
    CUDA(cudaMemcpy(&nnz, b.block[0] + 16, 8, cudaMemcpyDeviceToHost));
    if (nnz < (uint64_t)1 << 31 && n % 4096 == 0)
        cusparse_rows(t, b, count, n, nnz, least);
#endif
    for (unsigned i = 0; i < count; i++) {
        CUDA(cudaFree(b.src[i]));
        CUDA(cudaFree(b.dst[i]));
        CUDA(cudaFree(b.block[i]));
    }
}

/* Percentages, separated by commas, as shares. False: they are not. */
static bool shares_of(const char *list, std::vector<double> *shares)
{
    shares->clear();
    for (char *end;; list = end + 1) {
        shares->push_back(strtod(list, &end) / 100);
        if (end == list || !(shares->back() >= 0 && shares->back() <= 1))
            return false;
        if (*end != ',')
            return *end == 0;
    }
}

int main(int argc, char **argv)
{
    std::vector<size_t> sizes;
    std::vector<double> sparsities = {0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999};
    bool f32 = true, bf16 = true, quick = false;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        if (a == "--json")
            json = true;
        else if (a == "--quick")
            quick = true;
        else if (a == "--size" && i + 1 < argc) {
            char *unit;
            const size_t size = (size_t)strtoull(argv[++i], &unit, 10);
            sizes.push_back(size << (*unit == 'K' ? 10 : 20));
        } else if (a == "--times" && i + 1 < argc)
            times = (unsigned)std::max(1, atoi(argv[++i]));
        else if (a == "--zeros" && i + 1 < argc && shares_of(argv[i + 1], &sparsities))
            i++;
        else if (a == "--dtype" && i + 1 < argc) {
            const std::string d = argv[++i];
            f32 = d == "f32";
            bf16 = d == "bf16";
        } else {
            fprintf(stderr, "usage: bench_cuda [--quick] [--json] [--size MIB|KIBK]... [--zeros PERCENT,...] "
                            "[--times N] [--dtype f32|bf16]\n");
            return 2;
        }
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skip: no CUDA device: nothing ran on a GPU\n");
        return 77;
    }
    cudaDeviceProp device;
    CUDA(cudaGetDeviceProperties(&device, 0));
    CUDA(cudaStreamCreate(&stream));
    if (quick)
        sparsities = {0.5, 0.99};
    if (sizes.empty())
        sizes = quick ? std::vector<size_t>{(size_t)64 << 20}
                      : std::vector<size_t>{(size_t)1 << 20, (size_t)64 << 20, (size_t)1 << 30, (size_t)4 << 30};
    if (!json)
        printf("%s, %d multiprocessors, L2 %.0f MiB\n%-5s %12s %7s  %-12s %-28s %14s %14s %6s\n", device.name,
               device.multiProcessorCount, (double)device.l2CacheSize / (1 << 20), "dtype", "dense", "zeros",
               "operation", "by", "median", "dense", "floor");
    for (size_t bytes : sizes)
        for (double s : sparsities) {
            if (f32)
                bench<uint32_t, PICI_F32>(bytes, s, (size_t)device.l2CacheSize);
            if (bf16)
                bench<uint16_t, PICI_BF16>(bytes, s, (size_t)device.l2CacheSize);
        }
    return 0;
}
