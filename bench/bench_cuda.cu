/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec on a GPU, compared with alternatives: a device-to-device copy, CUB's DeviceSelect of values and of pairs of
 * index and value, cuSPARSE's conversions between dense and CSR or COO, and a dense vector addition. All are measured
 * in one run with events, after a warm-up; the result is the median. Buffers are used in rotation; together they are
 * several times the size of L2.
 *
 * floor: the time to move the least number of bytes at the rate of the copy in the same table. For compress and
 * decompress these are the dense elements and the block, once each; for scatter-add the block, and each touched sector
 * of 32 bytes, read and written. Before anything is timed, blocks are compared with those of a simple two-pass encoder,
 * and decoded.
 *   bench_cuda [--quick] [--json] [--size MIB]... [--dtype f32|bf16] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cub/device/device_select.cuh>
#include <cusparse.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/tuple.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cuda_two_pass.cuh"
#include "pici/cuda.h"
#include "pici/device.cuh"

#define CUDA(call) check((call), #call, __LINE__)
#define SPARSE(call) check_status((int)(call), #call, __LINE__)

static void check(cudaError_t e, const char *call, int line)
{
    if (e) {
        fprintf(stderr, "bench_cuda.cu:%d: %s: %s\n", line, call, cudaGetErrorString(e));
        exit(1);
    }
}

static void check_status(int s, const char *call, int line)
{
    if (s) {
        fprintf(stderr, "bench_cuda.cu:%d: %s: %d\n", line, call, s);
        exit(1);
    }
}

static bool json;
static cudaStream_t stream;

/* ---- data ---- */

__host__ __device__ static uint64_t mix(uint64_t z)
{
    z = (z + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Floats between 1 and 2 of either sign, each present with a probability of `part` of 2^32. */
template <class T> __global__ void fill(T *p, uint64_t n, uint64_t seed, uint64_t part)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x) {
        const uint64_t r = mix(i ^ seed << 40);
        const T one = sizeof(T) == 4 ? (T)0x3f800000 : (T)0x3f80, bits = sizeof(T) == 4 ? (T)0x807fffff : (T)0x807f;
        p[i] = (uint32_t)r < part ? (T)(one | ((T)(r >> 32) & bits)) : (T)0;
    }
}

/* Count the sectors of 32 bytes that have a nonzero. */
template <class T> __global__ void count_sectors(const T *p, uint64_t n, unsigned long long *sum)
{
    constexpr unsigned PER = 32 / sizeof(T);
    unsigned long long own = 0;
    for (uint64_t s = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; s * PER < n;
         s += gridDim.x * (uint64_t)blockDim.x) {
        bool any = false;
        for (unsigned k = 0; k < PER && s * PER + k < n; k++)
            any |= p[s * PER + k] != 0;
        own += any;
    }
    atomicAdd(sum, own);
}

__global__ void differing(const uint4 *a, const uint4 *b, uint64_t quads, unsigned long long *sum)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < quads;
         i += gridDim.x * (uint64_t)blockDim.x) {
        const uint4 x = a[i], y = b[i];
        if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w)
            atomicAdd(sum, 1);
    }
}

static unsigned long long *device_counter()
{
    static unsigned long long *p;
    if (!p)
        CUDA(cudaMalloc(&p, 8));
    CUDA(cudaMemsetAsync(p, 0, 8, stream));
    return p;
}

static unsigned long long counter_value(const unsigned long long *p)
{
    unsigned long long v;
    CUDA(cudaMemcpyAsync(&v, p, 8, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    return v;
}

/* Buffers are whole units of 16 bytes, with zeros beyond their end. */
static void must_equal(const void *a, const void *b, size_t bytes, const char *what)
{
    unsigned long long *sum = device_counter();
    differing<<<1024, 256, 0, stream>>>((const uint4 *)a, (const uint4 *)b, (bytes + 15) / 16, sum);
    CUDA(cudaGetLastError());
    if (counter_value(sum)) {
        fprintf(stderr, "bench_cuda: %s differs\n", what);
        exit(1);
    }
}

/* ---- time ---- */

/* Median seconds of a call on buffers 0, 1, ... of a rotation. */
static double time_of(unsigned sets, size_t bytes, const std::function<void(unsigned)> &call)
{
    enum { TIMES = 21, WARM = 3 };
    const unsigned inner = bytes >= (size_t)64 << 20 ? 1 : 16;
    std::vector<double> seconds;
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    unsigned next = 0;
    for (unsigned i = 0; i < TIMES + WARM; i++) {
        float ms;
        CUDA(cudaEventRecord(begin, stream));
        for (unsigned k = 0; k < inner; k++)
            call(next++ % sets);
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        if (i >= WARM)
            seconds.push_back(ms * 1e-3 / inner);
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    std::sort(seconds.begin(), seconds.end());
    return seconds[TIMES / 2];
}

struct table {
    const char *dtype;
    size_t bytes;          /* dense */
    double sparsity, rate; /* of the copy: bytes read and written a second */
};

static void row(const table &t, const char *operation, const char *who, double seconds, double least_bytes)
{
    const double floor = least_bytes / t.rate;
    if (json)
        printf("{\"dtype\": \"%s\", \"bytes\": %zu, \"sparsity\": %g, \"operation\": \"%s\", \"by\": \"%s\", \"us\": "
               "%.3f, "
               "\"gb_s\": %.2f, \"of_floor\": %.4f}\n",
               t.dtype, t.bytes, t.sparsity, operation, who, 1e6 * seconds, 1e-9 * (double)t.bytes / seconds,
               floor / seconds);
    else
        printf("%-5s %8.0f MiB %6.1f%%  %-12s %-28s %11.2f us %9.1f GB/s %6.3f\n", t.dtype, (double)t.bytes / (1 << 20),
               100 * t.sparsity, operation, who, 1e6 * seconds, 1e-9 * (double)t.bytes / seconds, floor / seconds);
    fflush(stdout);
}

/* ---- alternatives ---- */

struct not_zero {
    template <class T> __device__ bool operator()(T v) const
    {
        return v != 0;
    }
    template <class I, class T> __device__ bool operator()(const thrust::tuple<I, T> &v) const
    {
        return thrust::get<1>(v) != 0;
    }
};

template <class T> __global__ void dense_add(T *, const T *, uint64_t);

template <> __global__ void dense_add(uint32_t *dst, const uint32_t *src, uint64_t n)
{
    float4 *d = (float4 *)dst;
    const float4 *s = (const float4 *)src;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n / 4;
         i += gridDim.x * (uint64_t)blockDim.x) {
        float4 a = d[i];
        const float4 b = s[i];
        a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
        d[i] = a;
    }
}

template <> __global__ void dense_add(uint16_t *dst, const uint16_t *src, uint64_t n)
{
    pici::raw128 *d = (pici::raw128 *)dst;
    const pici::raw128 *s = (const pici::raw128 *)src;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n / 8; i += gridDim.x * (uint64_t)blockDim.x)
        d[i] = pici::dense_quad<pici::arith<PICI_BF16>, uint16_t>(d[i], s[i]);
}

template <class T> struct sets {
    std::vector<T *> src, dst;
    std::vector<uint8_t *> block;
};

/* cuSPARSE: the dense side as a matrix of rows of 4096. Indices of 32 bits. */
template <class T>
static void cusparse_rows(const table &t, const sets<T> &b, unsigned count, uint64_t n, uint64_t nnz,
                          double compress_bytes)
{
    const cudaDataType type = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF;
    const int64_t cols = 4096, rows = (int64_t)(n / 4096);
    cusparseHandle_t handle;
    SPARSE(cusparseCreate(&handle));
    SPARSE(cusparseSetStream(handle, stream));
    int *offsets, *columns;
    T *values;
    CUDA(cudaMalloc(&offsets, (size_t)(rows + 1) * 4 + nnz * 4 + 16));
    CUDA(cudaMalloc(&columns, nnz * 4 + 16));
    CUDA(cudaMalloc(&values, nnz * sizeof(T) + 16));
    for (int coo = 0; coo <= 1; coo++) {
        cusparseSpMatDescr_t sparse;
        if (coo)
            SPARSE(cusparseCreateCoo(&sparse, rows, cols, (int64_t)nnz, offsets, columns, values, CUSPARSE_INDEX_32I,
                                     CUSPARSE_INDEX_BASE_ZERO, type));
        else
            SPARSE(cusparseCreateCsr(&sparse, rows, cols, (int64_t)nnz, offsets, columns, values, CUSPARSE_INDEX_32I,
                                     CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type));
        std::vector<cusparseDnMatDescr_t> dense(count), back(count);
        for (unsigned i = 0; i < count; i++) {
            SPARSE(cusparseCreateDnMat(&dense[i], rows, cols, cols, b.src[i], type, CUSPARSE_ORDER_ROW));
            SPARSE(cusparseCreateDnMat(&back[i], rows, cols, cols, b.dst[i], type, CUSPARSE_ORDER_ROW));
        }
        size_t bytes = 0, bytes2 = 0;
        void *scratch;
        SPARSE(cusparseDenseToSparse_bufferSize(handle, dense[0], sparse, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
        SPARSE(cusparseSparseToDense_bufferSize(handle, sparse, back[0], CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &bytes2));
        CUDA(cudaMalloc(&scratch, (bytes > bytes2 ? bytes : bytes2) + 16));
        /* the rotated inputs have different numbers of nonzeros, but a descriptor has one: always use the first
         * input */
        const double s = time_of(1, t.bytes, [&](unsigned) {
            SPARSE(
                cusparseDenseToSparse_analysis(handle, dense[0], sparse, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, scratch));
            SPARSE(
                cusparseDenseToSparse_convert(handle, dense[0], sparse, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, scratch));
        });
        row(t, "compress", coo ? "cuSPARSE DenseToSparse COO" : "cuSPARSE DenseToSparse CSR", s, compress_bytes);
        const double s2 = time_of(count, t.bytes, [&](unsigned i) {
            SPARSE(cusparseSparseToDense(handle, sparse, back[i], CUSPARSE_SPARSETODENSE_ALG_DEFAULT, scratch));
        });
        row(t, "decompress", coo ? "cuSPARSE SparseToDense COO" : "cuSPARSE SparseToDense CSR", s2, compress_bytes);
        for (unsigned i = 0; i < count; i++) {
            SPARSE(cusparseDestroyDnMat(dense[i]));
            SPARSE(cusparseDestroyDnMat(back[i]));
        }
        SPARSE(cusparseDestroySpMat(sparse));
        CUDA(cudaFree(scratch));
    }
    CUDA(cudaFree(offsets));
    CUDA(cudaFree(columns));
    CUDA(cudaFree(values));
    SPARSE(cusparseDestroy(handle));
}

template <class T> static void cub_rows(const table &t, const sets<T> &b, unsigned count, uint64_t n, double least)
{
    uint64_t *selected;
    size_t bytes = 0, bytes2 = 0;
    uint32_t *index;
    T *values;
    void *scratch;
    CUDA(cudaMalloc(&selected, 8));
    CUDA(cudaMalloc(&values, n * sizeof(T)));
    CUDA(cudaMalloc(&index, n * 4));
    const auto in = [&](unsigned i) {
        return thrust::make_zip_iterator(
            thrust::make_tuple(thrust::counting_iterator<uint32_t>(0), (const T *)b.src[i]));
    };
    const auto out = thrust::make_zip_iterator(thrust::make_tuple(index, values));
    CUDA(cub::DeviceSelect::If(nullptr, bytes, b.src[0], values, selected, (int64_t)n, not_zero(), stream));
    CUDA(cub::DeviceSelect::If(nullptr, bytes2, in(0), out, selected, (int64_t)n, not_zero(), stream));
    CUDA(cudaMalloc(&scratch, (bytes > bytes2 ? bytes : bytes2) + 16));
    row(t, "compress", "CUB DeviceSelect values",
        time_of(count, t.bytes,
                [&](unsigned i) {
                    CUDA(cub::DeviceSelect::If(scratch, bytes, b.src[i], values, selected, (int64_t)n, not_zero(),
                                               stream));
                }),
        least);
    row(t, "compress", "CUB DeviceSelect pairs",
        time_of(count, t.bytes,
                [&](unsigned i) {
                    CUDA(cub::DeviceSelect::If(scratch, bytes2, in(i), out, selected, (int64_t)n, not_zero(), stream));
                }),
        least);
    CUDA(cudaFree(selected));
    CUDA(cudaFree(values));
    CUDA(cudaFree(index));
    CUDA(cudaFree(scratch));
}

/* ---- a table ---- */

static struct pici_cuda_result fetch(const struct pici_cuda_result *p, const char *what)
{
    struct pici_cuda_result r;
    CUDA(cudaMemcpyAsync(&r, p, sizeof r, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    if (r.status) {
        fprintf(stderr, "bench_cuda: %s: %s\n", what, pici_strerror((enum pici_status)r.status));
        exit(1);
    }
    return r;
}

static void must(enum pici_status s)
{
    if (s) {
        fprintf(stderr, "bench_cuda: %s\n", pici_strerror(s));
        exit(1);
    }
}

template <class T, enum pici_dtype DTYPE> static void bench(size_t bytes, double sparsity, size_t l2)
{
    const uint64_t n = bytes / sizeof(T);
    const size_t cap = pici_bound(PICI_COO, DTYPE, n) + 16, pici_cap = pici_bound(PICI_BITMAP, DTYPE, n) + 16;
    const size_t space = std::max(pici_cuda_workspace(DTYPE, n), two_pass_workspace(n));
    const unsigned count = (unsigned)std::min<size_t>(4 * l2 / bytes + 1, 256);
    table t = {sizeof(T) == 4 ? "f32" : "bf16", bytes, sparsity, 0};
    sets<T> b;
    struct pici_cuda_result *result;
    void *workspace;
    uint8_t *block2;
    CUDA(cudaMalloc(&result, sizeof *result));
    CUDA(cudaMalloc(&workspace, space));
    CUDA(cudaMalloc(&block2, cap));
    for (unsigned i = 0; i < count; i++) {
        T *src, *dst;
        uint8_t *block;
        CUDA(cudaMalloc(&src, bytes));
        CUDA(cudaMalloc(&dst, bytes));
        CUDA(cudaMalloc(&block, pici_cap));
        b.src.push_back(src);
        b.dst.push_back(dst);
        b.block.push_back(block);
        fill<<<1024, 256, 0, stream>>>(src, n, i + 1, (uint64_t)((1 - sparsity) * 4294967296.0));
        CUDA(cudaGetLastError());
    }

    /* check the results before timing */
    std::vector<uint64_t> lens;
    for (unsigned i = 0; i < count; i++) {
        CUDA(cudaMemsetAsync(b.block[i], 0, pici_cap, stream));
        CUDA(cudaMemsetAsync(block2, 0, pici_cap, stream));
        CUDA(cudaMemsetAsync(b.dst[i], 0xa5, bytes, stream));
        must(pici_compress_cuda(b.block[i], pici_cap, result, b.src[i], n, DTYPE, PICI_BITMAP, workspace, space,
                                stream));
        const uint64_t len = fetch(result, "compress").len;
        lens.push_back(len);
        CUDA(two_pass_compress<T>(block2, pici_cap, result, b.src[i], n, DTYPE, workspace, stream));
        fetch(result, "two passes");
        must_equal(b.block[i], block2, len, "the block of two passes");
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
    unsigned long long *sum = device_counter();
    count_sectors<<<1024, 256, 0, stream>>>(b.src[0], n, sum);
    const double sectors = (double)counter_value(sum);
    uint64_t nnz;
    CUDA(cudaMemcpy(&nnz, b.block[0] + 16, 8, cudaMemcpyDeviceToHost));

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
    row(t, "compress", "pici, two passes with CUB",
        time_of(count, bytes,
                [&](unsigned i) {
                    CUDA(two_pass_compress<T>(b.block[i], pici_cap, result, b.src[i], n, DTYPE, workspace, stream));
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
                    dense_add<<<2048, 256, 0, stream>>>(b.dst[i], (const T *)b.src[i], n);
                    CUDA(cudaGetLastError());
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
    CUDA(cudaFree(block2));
    cub_rows(t, b, count, n, least);
    if (nnz < (uint64_t)1 << 31 && n % 4096 == 0)
        cusparse_rows(t, b, count, n, nnz, least);
    for (unsigned i = 0; i < count; i++) {
        CUDA(cudaFree(b.src[i]));
        CUDA(cudaFree(b.dst[i]));
        CUDA(cudaFree(b.block[i]));
    }
    CUDA(cudaFree(result));
    CUDA(cudaFree(workspace));
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
        else if (a == "--size" && i + 1 < argc)
            sizes.push_back((size_t)strtoull(argv[++i], NULL, 10) << 20);
        else if (a == "--dtype" && i + 1 < argc) {
            const std::string d = argv[++i];
            f32 = d == "f32";
            bf16 = d == "bf16";
        } else {
            fprintf(stderr, "usage: bench_cuda [--quick] [--json] [--size MIB]... [--dtype f32|bf16]\n");
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
