/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tests of kernels share, on a GPU and over the emulator: a tally, and memory of the device. To be included
 * once in a program. */
#ifndef PICI_TESTS_CUDA_DEVICE_CUH
#define PICI_TESTS_CUDA_DEVICE_CUH

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda/launch.cuh"
extern "C" {
#include "formats/ref.h"
#include "tests/util/util.h"
}

#ifdef PICI_DEVICE_HW
static const bool on_gpu = false;
#else
static const bool on_gpu = true;
#endif
__attribute__((unused)) static bool thorough = on_gpu; /* the emulator is slow, and so are the checkers of memory */

/* Of the command line: a few inputs of each kind, for checkers of memory that have a minute; and of several processes
 * that share the inputs, which one this is. */
__attribute__((unused)) static bool smallest;
static unsigned share, shares = 1, turns;

static unsigned passed, failed;
static struct rng rng = {1};
static cudaStream_t stream;

__attribute__((format(printf, 2, 3))) static void tally(bool good, const char *format, ...)
{
    if (good) {
        passed++;
        return;
    }
    va_list args;
    va_start(args, format);
    printf("FAIL ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    if (++failed > 50) {
        printf("too many\n%u passed, %u failed\n", passed, failed);
        exit(1);
    }
}

/* Options that programs have in common: --quick, --smallest, --share K/N. False: it is none of them. */
static inline bool device_option(const char *option, const char *value, int *taken)
{
    if (strcmp(option, "--quick") == 0)
        thorough = false;
    else if (strcmp(option, "--smallest") == 0)
        thorough = false, smallest = true;
    else if (strcmp(option, "--share") == 0 && value && sscanf(value, "%u/%u", &share, &shares) == 2 && share < shares)
        ++*taken;
    else
        return false;
    return true;
}

/* Whether the next input is this process's. */
static inline bool is_own()
{
    return turns++ % shares == share;
}

/* Before all else. False, having said so, where there is no device to run on. */
static bool device_begin(void)
{
#ifdef PICI_DEVICE_HW
    printf("thread blocks emulated on the host: no GPU was used\n");
#else
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skip: no CUDA device: nothing ran on a GPU\n");
        return false;
    }
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    printf("on %s, compute capability %d.%d\n", device.name, device.major, device.minor);
    cudaStreamCreate(&stream);
#endif
    return true;
}

/* Everything so far has happened, and nothing went wrong on the device. */
static inline bool device_good(void)
{
    const cudaError_t e = cudaStreamSynchronize(stream), last = cudaGetLastError();
    if (!e && !last)
        return true;
    printf("device: %s\n", cudaGetErrorString(e ? e : last));
    if (on_gpu && e) { /* nothing works after that */
        printf("%u passed, %u failed\n", passed, failed + 1);
        exit(1);
    }
    return false;
}

/* Device memory, skew bytes from an address aligned to 16. */
class buffer {
  public:
    explicit buffer(size_t n, size_t skew = 0, const void *from = NULL) : bytes(n)
    {
        if (cudaMalloc(&base, n + skew ? n + skew : 1) != cudaSuccess) {
            printf("FAIL no device memory\n");
            exit(1);
        }
        at = (uint8_t *)base + skew;
        if (from)
            put(from);
    }
    ~buffer()
    {
        cudaStreamSynchronize(stream);
        cudaFree(base);
    }
    buffer(const buffer &) = delete;
    void put(const void *from)
    {
        cudaMemcpyAsync(at, from, bytes, cudaMemcpyHostToDevice, stream);
    }
    std::vector<uint8_t> get(size_t n) const
    {
        std::vector<uint8_t> v(n + 1);
        cudaMemcpyAsync(v.data(), at, n, cudaMemcpyDeviceToHost, stream);
        device_good();
        return v;
    }
    uint8_t *at;
    size_t bytes;

  private:
    void *base;
};

class result_buffer : public buffer {
  public:
    result_buffer() : buffer(sizeof(struct pici_cuda_result))
    {
    }
    struct pici_cuda_result *to()
    {
        return (struct pici_cuda_result *)at;
    }
    struct pici_cuda_result read() const
    {
        struct pici_cuda_result r;
        cudaMemcpyAsync(&r, at, sizeof r, cudaMemcpyDeviceToHost, stream);
        if (!device_good())
            r.status = 1;
        return r;
    }
};

static inline uint64_t first_word(const buffer &b, unsigned i = 0)
{
    uint64_t v;
    memcpy(&v, b.get(16).data() + 8 * i, sizeof v);
    return v;
}

/* An element's alignment that is enough, and sometimes no more than that. */
static inline size_t some_skew(enum pici_dtype dtype)
{
    return rng_chance(&rng, 500000) ? 0 : rng_below(&rng, 5) * pici_dtype_width(dtype);
}

static inline size_t align16(size_t n)
{
    return (n + 15) / 16 * 16;
}

#endif
