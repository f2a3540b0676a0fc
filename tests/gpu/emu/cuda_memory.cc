/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "cuda_state.h"

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

using emu::call;

namespace {

struct allocation {
    uint8_t *map;
    size_t map_bytes, bytes;
    cudaMemoryType type;
    int device;
    bool shut; /* inaccessible: device memory, once operations are deferred */
};

constexpr uint8_t PAINT = 0x5c, UNSET = 0xa7;

std::map<uint8_t *, allocation> allocations;
std::vector<uint8_t *> opened; /* to be made inaccessible again */

size_t page()
{
    static const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

void protect(const allocation &a, int protection)
{
    if (mprotect(a.map + page(), a.map_bytes - 2 * page(), protection))
        emu::die("mprotect failed: too many buffers?");
}

void open_one(uint8_t *at, allocation &a)
{
    if (!a.shut)
        return;
    protect(a, PROT_READ | PROT_WRITE);
    a.shut = false;
    opened.push_back(at);
}

/* The allocation that has all of these bytes, or some of them. */
std::map<uint8_t *, allocation>::iterator find(const void *p, size_t bytes, bool all = true)
{
    auto found = allocations.upper_bound((uint8_t *)p);
    if (!all && found != allocations.end() && found->first < (const uint8_t *)p + bytes)
        return found;
    if (found == allocations.begin())
        return allocations.end();
    found--;
    const size_t at = (size_t)((const uint8_t *)p - found->first), have = found->second.bytes;
    if (all ? at <= have && bytes <= have - at : at < have)
        return found;
    return allocations.end();
}

cudaError_t allocate(void **p, size_t bytes, cudaMemoryType type)
{
    const call c;
    if (emu::ends_capture("an allocation"))
        return cudaErrorStreamCaptureUnsupported;
    if (!p)
        return emu::refuse(cudaErrorInvalidValue);
    if (emu::sticky())
        return emu::sticky();
    const size_t slack = (16 - bytes % 16) % 16;
    allocation a;
    a.type = type;
    a.device = emu::current_device();
    a.bytes = bytes;
    a.map_bytes = (bytes + slack + page() - 1) / page() * page() + 2 * page();
    if (bytes > SIZE_MAX / 2)
        return emu::refuse(cudaErrorMemoryAllocation);
    a.map = (uint8_t *)mmap(nullptr, a.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a.map == MAP_FAILED)
        return emu::refuse(cudaErrorMemoryAllocation);
    protect(a, PROT_READ | PROT_WRITE);
    uint8_t *from = a.map + page(), *end = a.map + a.map_bytes - page(), *at = end - slack - bytes;
    memset(from, PAINT, (size_t)(end - from));
    memset(at, UNSET, bytes);
#ifdef EMU_ASAN
    ASAN_POISON_MEMORY_REGION(from, (size_t)(end - from));
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
#endif
    a.shut = false;
    if (emu::deferred() && type == cudaMemoryTypeDevice)
        opened.push_back(at);
    allocations[at] = a;
    opened.reserve(2 * allocations.size() + 1); /* so that the signal handler need not allocate */
    *p = at;
    return cudaSuccess;
}

cudaError_t release(void *p, cudaMemoryType type)
{
    const call c;
    if (emu::ends_capture("freeing memory"))
        return cudaErrorStreamCaptureUnsupported;
    if (!p)
        return emu::sticky();
    const auto found = allocations.find((uint8_t *)p);
    if (found == allocations.end() || found->second.type != type)
        emu::die("%p is freed, but was not allocated for this function", p);
    allocation &a = found->second;
    if (!emu::finish_device(a.device))
        emu::die("%p is freed while its device is blocked for ever (ranks need a device each): %s", p, emu::blocked());
    open_one(found->first, a);
    const uint8_t *from = a.map + page(), *end = a.map + a.map_bytes - page();
#ifdef EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(from, (size_t)(end - from));
#endif
    for (const uint8_t *q = from; q < end; q++) {
        if (q == (uint8_t *)p && a.bytes)
            q += a.bytes;
        if (q < end && *q != PAINT) {
            emu::fault(cudaErrorIllegalAddress, "written outside a buffer of %zu bytes, at %td", a.bytes,
                       q - (uint8_t *)p);
            break;
        }
    }
    munmap(a.map, a.map_bytes);
    allocations.erase(found);
    return emu::sticky();
}

/* Is one side of a copy, or the target of a fill, memory of a known kind? Pageable memory is
 * cudaMemoryTypeUnregistered. */
bool is_known(const void *p, size_t bytes, cudaMemoryType *type)
{
    const auto found = find(p, bytes);
    *type = found == allocations.end() ? cudaMemoryTypeUnregistered : found->second.type;
    if (found != allocations.end() || find(p, bytes, false) == allocations.end())
        return true;
    emu::fault(cudaErrorIllegalAddress, "%zu bytes at %p are not within a buffer", bytes, p);
    return false;
}

/* When a copy is queued: does its kind match its memory, and can it be done without waiting? */
cudaError_t check_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind, bool pageable)
{
    cudaMemoryType types[2];
    if (!is_known(to, bytes, types) || !is_known(from, bytes, types + 1))
        return emu::sticky();
    if ((uintptr_t)to < (uintptr_t)from + bytes && (uintptr_t)from < (uintptr_t)to + bytes)
        return emu::fault(cudaErrorInvalidValue, "a copy of %zu bytes from %p to %p, which overlap", bytes, from, to);
    const bool to_device = types[0] == cudaMemoryTypeDevice, from_device = types[1] == cudaMemoryTypeDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
        return emu::fault(cudaErrorInvalidMemcpyDirection, "a copy of kind %d from %s to %s memory", (int)kind,
                          from_device ? "device" : "host", to_device ? "device" : "host");
    if (!pageable && (types[0] == cudaMemoryTypeUnregistered || types[1] == cudaMemoryTypeUnregistered))
        return emu::fault(cudaErrorHostMemoryNotRegistered,
                          "cudaMemcpyAsync %s %p, which is not pinned: waits for the stream on a GPU",
                          types[0] == cudaMemoryTypeUnregistered ? "to" : "from",
                          types[0] == cudaMemoryTypeUnregistered ? to : from);
    return cudaSuccess;
}

/* When an operation runs: is its memory still allocated? */
bool is_there(const void *p, size_t bytes, bool pageable)
{
    if (pageable || find(p, bytes) != allocations.end())
        return true;
    emu::fault(cudaErrorIllegalAddress, "%zu bytes at %p were freed before they were used", bytes, p);
    return false;
}

cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool pageable)
{
    if (!bytes)
        return emu::sticky();
    if (!to || !from || (unsigned)kind > cudaMemcpyDefault)
        return emu::refuse(cudaErrorInvalidValue);
    pageable = pageable || emu::is_idle(stream); /* an idle stream has nothing to wait for */
    const cudaError_t e = emu::deferred() ? check_copy(to, from, bytes, kind, pageable) : cudaSuccess;
    if (e)
        return e;
    const bool any_to = find(to, bytes) == allocations.end(), any_from = find(from, bytes) == allocations.end();
    return emu::queue(stream, {"copy", [=] {
                                   if (is_there(to, bytes, any_to) && is_there(from, bytes, any_from))
                                       memmove(to, from, bytes);
                                   return true;
                               }});
}

/* ---- detecting accesses to device memory by host code ---- */

struct sigaction before;

void on_fault(int, siginfo_t *info, void *)
{
    const uint8_t *at = (const uint8_t *)info->si_addr;
    for (auto &entry : allocations) {
        allocation &a = entry.second;
        if (at < a.map || at >= a.map + a.map_bytes)
            continue;
        if (emu::executing() && a.shut && at >= a.map + page() && at < a.map + a.map_bytes - page()) {
            open_one(entry.first, a);
            return;
        }
        char text[200];
        const int n = snprintf(text, sizeof text, "emulated CUDA: %s touches byte %td of a buffer of %zu bytes of %s\n",
                               emu::executing() ? "an operation" : "host code", at - entry.first, a.bytes,
                               a.type == cudaMemoryTypeDevice ? "device memory" : "pinned memory");
        if (n > 0 && write(2, text, (size_t)n) < 0)
            _exit(1);
    }
    sigaction(SIGSEGV, &before, nullptr); /* the access faults again, with the handler from before */
}

} // namespace

void emu::watch_memory()
{
    static bool watching;
    for (const auto &entry : allocations)
        if (!entry.second.shut && entry.second.type == cudaMemoryTypeDevice)
            opened.push_back(entry.first);
    if (watching)
        return;
    watching = true;
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before);
}

void emu::shut_memory()
{
    for (uint8_t *at : opened) {
        const auto found = allocations.find(at);
        if (found == allocations.end() || found->second.type != cudaMemoryTypeDevice)
            continue; /* freed since */
        protect(found->second, PROT_NONE);
        found->second.shut = true;
    }
    opened.clear();
}

size_t emu::buffers(int device)
{
    const call c;
    return (size_t)std::count_if(allocations.begin(), allocations.end(),
                                 [=](const auto &entry) { return entry.second.device == device; });
}

bool emu::is_device(const void *p, size_t bytes)
{
    const call c;
    const auto found = find(p, bytes);
    return found != allocations.end() && found->second.type == cudaMemoryTypeDevice;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    return allocate(p, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *p)
{
    return release(p, cudaMemoryTypeDevice);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    if (flags > (cudaHostAllocPortable | cudaHostAllocMapped))
        return emu::refuse(cudaErrorInvalidValue);
    return allocate(p, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return allocate(p, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *p)
{
    return release(p, cudaMemoryTypeHost);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    const call c;
    if (!a)
        return emu::refuse(cudaErrorInvalidValue);
    const auto found = find(p, 1);
    *a = cudaPointerAttributes();
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = const_cast<void *>(p);
    if (found != allocations.end()) {
        a->type = found->second.type;
        a->device = found->second.device;
        a->devicePointer = const_cast<void *>(p);
        if (a->type == cudaMemoryTypeDevice)
            a->hostPointer = nullptr;
    }
    return emu::sticky();
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e;
    {
        const call c;
        e = copy(to, from, bytes, kind, nullptr, true);
    }
    return e ? e : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const call c;
    return copy(to, from, bytes, kind, stream, false);
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t bytes, cudaStream_t stream)
{
    const call c;
    if (!bytes)
        return emu::sticky();
    if (!p)
        return emu::refuse(cudaErrorInvalidValue);
    cudaMemoryType type = cudaMemoryTypeDevice;
    if (emu::deferred() && !is_known(p, bytes, &type))
        return emu::sticky();
    if (type == cudaMemoryTypeUnregistered)
        return emu::fault(cudaErrorIllegalAddress, "a fill of %p, which is not in a buffer", p);
    return emu::queue(stream, {"fill", [=] {
                                   if (is_there(p, bytes, !emu::deferred()))
                                       memset(p, v, bytes);
                                   return true;
                               }});
}
