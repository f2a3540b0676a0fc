/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the benchmark of the codec on a GPU is made of: data, comparisons in device memory, times by events, and rows of
 * its table. Also compiled over the emulator, where times mean nothing. To be included once in a program. */
#ifndef PICI_BENCH_CUDA_BENCH_CUH
#define PICI_BENCH_CUDA_BENCH_CUH

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cuda/launch.cuh"

#define CUDA(call) check((call), #call, __LINE__)

static void check(cudaError_t e, const char *call, int line)
{
    if (e) {
        fprintf(stderr, "bench_cuda: line %d: %s: %s\n", line, call, cudaGetErrorString(e));
        exit(1);
    }
}

static bool json;
static cudaStream_t stream;

/* ---- data ---- */

PICI_DEV uint64_t mixed(uint64_t z)
{
    z = (z + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

PICI_DEV uint64_t own_number() /* of a thread in the grid */
{
    return pici::hw::block_x() * (uint64_t)pici::hw::threads() + pici::hw::thread();
}

PICI_DEV uint64_t all_threads()
{
    return pici::hw::blocks_x() * (uint64_t)pici::hw::threads();
}

/* Run a kernel of grid-stride loops over n items. */
template <class P> static void over(void (*kernel)(P), uint64_t n, const P &parameters)
{
    CUDA(launch(kernel, (unsigned)std::min<uint64_t>(2048, n / 256 + 1), 1, 256, 0, parameters, stream));
}

struct elements {
    void *to;
    const void *from; /* or NULL */
    uint64_t n, seed, part;
    unsigned long long *sum;
};

/* Floats between 1 and 2 of either sign, each present with a probability of `part` of 2^32. */
template <class T> PICI_KERNEL(256, 1) fill(const elements e)
{
    for (uint64_t i = own_number(); i < e.n; i += all_threads()) {
        const uint64_t r = mixed(i ^ e.seed << 40);
        const T one = sizeof(T) == 4 ? (T)0x3f800000 : (T)0x3f80, bits = sizeof(T) == 4 ? (T)0x807fffff : (T)0x807f;
        pici::hw::store((T *)e.to + i, (uint32_t)r < e.part ? (T)(one | ((T)(r >> 32) & bits)) : (T)0);
    }
}

/* What a step of training makes of weights: `part` of 2^32 of them change by one unit in the last place. */
template <class T> PICI_KERNEL(256, 1) step(const elements e)
{
    for (uint64_t i = own_number(); i < e.n; i += all_threads()) {
        const uint64_t r = mixed(i ^ e.seed << 40);
        const T old = pici::hw::load_once((const T *)e.from + i);
        pici::hw::store((T *)e.to + i, (uint32_t)r < e.part ? (T)(old + (r >> 63 ? 1 : (T)-1)) : old);
    }
}

/* Count the sectors of 32 bytes in which `to` has a nonzero, or differs from `from`. */
template <class T> PICI_KERNEL(256, 1) count_sectors(const elements e)
{
    constexpr unsigned PER = 32 / sizeof(T);
    uint64_t own = 0;
    for (uint64_t s = own_number(); s * PER < e.n; s += all_threads()) {
        bool any = false;
        for (unsigned k = 0; k < PER && s * PER + k < e.n; k++) {
            const T old = e.from ? pici::hw::load_once((const T *)e.from + s * PER + k) : (T)0;
            any |= pici::hw::load_once((const T *)e.to + s * PER + k) != old;
        }
        own += any;
    }
    if (own)
        pici::hw::atomic_add((uint64_t *)e.sum, own);
}

/* n: units of 16 bytes. */
PICI_KERNEL(256, 1) differing(const elements e)
{
    for (uint64_t i = own_number(); i < e.n; i += all_threads()) {
        const pici::raw128 a = pici::hw::load_once((const pici::raw128 *)e.to + i);
        const pici::raw128 b = pici::hw::load_once((const pici::raw128 *)e.from + i);
        if (a.lo != b.lo || a.hi != b.hi)
            pici::hw::atomic_add((uint64_t *)e.sum, (uint64_t)1);
    }
}

/* n: units of 16 bytes. */
template <class T, enum pici_dtype DTYPE> PICI_KERNEL(256, 1) dense_add(const elements e)
{
    for (uint64_t i = own_number(); i < e.n; i += all_threads()) {
        const pici::raw128 a = pici::hw::load_once((const pici::raw128 *)e.to + i);
        const pici::raw128 b = pici::hw::load_once((const pici::raw128 *)e.from + i);
        pici::hw::store_once((pici::raw128 *)e.to + i, pici::dense_quad<pici::arith<DTYPE>, T>(a, b));
    }
}

static unsigned long long *device_counter()
{
    static void *p;
    if (!p)
        CUDA(cudaMalloc(&p, 8));
    CUDA(cudaMemsetAsync(p, 0, 8, stream));
    return (unsigned long long *)p;
}

static unsigned long long counter_value(const unsigned long long *p)
{
    unsigned long long v;
    CUDA(cudaMemcpyAsync(&v, p, 8, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    return v;
}

/* Sectors of 32 bytes with a nonzero, or that differ from base. */
template <class T> static double sectors_of(const T *p, const T *base, uint64_t n)
{
    unsigned long long *sum = device_counter();
    over(count_sectors<T>, n * sizeof(T) / 32 + 1, elements{(void *)p, base, n, 0, 0, sum});
    return (double)counter_value(sum);
}

/* Buffers are whole units of 16 bytes, with zeros beyond their end. */
static void must_equal(const void *a, const void *b, size_t bytes, const char *what)
{
    unsigned long long *sum = device_counter();
    over(differing, (bytes + 15) / 16, elements{(void *)a, b, (bytes + 15) / 16, 0, 0, sum});
    if (counter_value(sum)) {
        fprintf(stderr, "bench_cuda: %s differs\n", what);
        exit(1);
    }
}

/* ---- time ---- */

static unsigned times = 21;

/* Median seconds of a call on buffers 0, 1, ... of a rotation. before: called before each call, untimed; or NULL. */
static double time_of(unsigned sets, size_t bytes, const std::function<void(unsigned)> &call,
                      const std::function<void(unsigned)> &before = NULL)
{
    const unsigned inner = bytes >= (size_t)64 << 20 || before ? 1 : 16, warm = 3;
    std::vector<double> seconds;
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    unsigned next = 0;
    for (unsigned i = 0; i < times + warm; i++) {
        float ms;
        if (before)
            before(next % sets);
        CUDA(cudaEventRecord(begin, stream));
        for (unsigned k = 0; k < inner; k++)
            call(next++ % sets);
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        if (i >= warm)
            seconds.push_back(ms * 1e-3 / inner);
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    std::sort(seconds.begin(), seconds.end());
    return seconds[times / 2];
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
        printf("{\"dtype\": \"%s\", \"bytes\": %zu, \"sparsity\": %g, \"operation\": \"%s\", \"by\": \"%s\", "
               "\"us\": %.3f, \"gb_s\": %.2f, \"of_floor\": %.4f}\n",
               t.dtype, t.bytes, t.sparsity, operation, who, 1e6 * seconds, 1e-9 * (double)t.bytes / seconds,
               floor / seconds);
    else
        printf("%-5s %8.2f MiB %6.1f%%  %-12s %-28s %11.2f us %9.1f GB/s %6.3f\n", t.dtype, (double)t.bytes / (1 << 20),
               100 * t.sparsity, operation, who, 1e6 * seconds, 1e-9 * (double)t.bytes / seconds, floor / seconds);
    fflush(stdout);
}

/* Buffers that are used in rotation. */
template <class T> struct sets {
    std::vector<T *> src, dst;
    std::vector<uint8_t *> block;
};

/* Device memory until the end of its scope. */
class scratch {
  public:
    explicit scratch(size_t bytes)
    {
        CUDA(cudaMalloc(&at, bytes));
    }
    ~scratch()
    {
        cudaFree(at);
    }
    scratch(const scratch &) = delete;
    void *at;
};

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

#endif
