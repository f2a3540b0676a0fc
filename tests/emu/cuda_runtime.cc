/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace {

struct buffer {
    uint8_t *map;
    size_t map_bytes, bytes, slack;
};

std::map<void *, buffer> buffers;
bool failed;

constexpr uint8_t PAINT = 0x5c;

} // namespace

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    buffer b;
    b.bytes = bytes;
    b.slack = (16 - bytes % 16) % 16;
    b.map_bytes = (bytes + b.slack + page - 1) / page * page + 2 * page;
    b.map = (uint8_t *)mmap(nullptr, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    uint8_t *end = b.map + b.map_bytes - page;
    mprotect(b.map, page, PROT_NONE);
    mprotect(end, page, PROT_NONE);
    uint8_t *at = end - b.slack - bytes;
    memset(b.map + page, PAINT, (size_t)(end - b.map) - page);
    memset(at, 0xa7, bytes);
#ifdef EMU_ASAN
    ASAN_POISON_MEMORY_REGION(b.map + page, (size_t)(end - b.map) - page);
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
#endif
    buffers[at] = b;
    *p = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    const auto found = buffers.find(p);
    if (found == buffers.end())
        abort();
    const buffer b = found->second;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *from = b.map + page, *end = b.map + b.map_bytes - page;
#ifdef EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(from, (size_t)(end - from));
#endif
    for (const uint8_t *q = from; q < end; q++)
        if ((q < (uint8_t *)p || q >= (uint8_t *)p + b.bytes) && *q != PAINT) {
            fprintf(stderr, "written outside a buffer of %zu bytes, at %td\n", b.bytes, q - (uint8_t *)p);
            failed = true;
            break;
        }
    munmap(b.map, b.map_bytes);
    buffers.erase(found);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    const bool was = failed;
    failed = false;
    return was ? cudaErrorLaunchFailure : cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "success" : e == cudaErrorLaunchFailure ? emu::error() : "out of memory";
}

void emu::launched(bool good)
{
    if (!good)
        failed = true;
}
