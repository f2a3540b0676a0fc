/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the codec on a GPU is compared with: CUB's DeviceSelect of values and of pairs of index and value, cuSPARSE's
 * conversions between dense and CSR or COO, and bitmap blocks made in two passes with CUB. Not over the emulator, which
 * has neither library. */
#ifndef PICI_BENCH_CUDA_PEERS_CUH
#define PICI_BENCH_CUDA_PEERS_CUH

#include <cub/device/device_select.cuh>
#include <cusparse.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/tuple.h>

#include "cuda_bench.cuh"
#include "cuda_two_pass.cuh"

#define SPARSE(call) check_status((int)(call), #call, __LINE__)

static void check_status(int s, const char *call, int line)
{
    if (s) {
        fprintf(stderr, "bench_cuda: line %d: %s: %d\n", line, call, s);
        exit(1);
    }
}

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

/* Our block made in two passes must be the library's; then its time. */
template <class T>
static void two_pass_rows(const table &t, const sets<T> &b, unsigned count, uint64_t n, enum pici_dtype dtype,
                          size_t cap, uint64_t len, double least)
{
    scratch block(cap), workspace(two_pass_workspace(n)), result(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const told = (struct pici_cuda_result *)result.at;
    const auto make = [&](unsigned i) {
        CUDA(two_pass_compress<T>(block.at, cap, told, b.src[i], n, dtype, workspace.at, stream));
    };
    CUDA(cudaMemsetAsync(block.at, 0, cap, stream));
    make(0);
    fetch(told, "two passes");
    must_equal(b.block[0], block.at, len, "the block of two passes");
    row(t, "compress", "pici, two passes with CUB", time_of(count, t.bytes, make), least);
}

#endif
