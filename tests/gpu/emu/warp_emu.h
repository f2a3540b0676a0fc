/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Emulates thread blocks on the host: the functions that pici/device_hw.cuh has on a GPU. Every thread of a block is a
 * fiber. A fiber runs until it waits for others: lanes of its warp in a shuffle, ballot or __syncwarp, or threads of
 * its block in __syncthreads. Then another fiber runs, chosen by a seed. Several thread blocks are in flight, begun in
 * any order. A launch fails with a message if
 *   - lanes that meet disagree about the operation, its place in the source, or the mask, or are not in their own mask;
 *   - a shuffle reads a lane that is not in the mask;
 *   - threads wait for one that has ended or that waits elsewhere, or no thread makes progress;
 *   - two threads use a byte of shared memory, at least one of them writes, and no barrier orders the two (a shuffle or
 *     a ballot does not);
 *   - a thread reads a byte of shared memory that was not written, or accesses memory out of bounds;
 *   - two threads use a byte of device memory, at least one of them writes, and nothing orders the two (device_map.h);
 *   - an access is not aligned as a GPU needs it;
 *   - the launch exceeds what a GPU of compute capability 8.0 has.
 * A thread may also stop at any access to device memory, and others run. Accesses to device memory outside a buffer are
 * caught by guard pages or the address sanitizer. What goes around the functions below is not seen. */
#ifndef PICI_TESTS_WARP_EMU_H
#define PICI_TESTS_WARP_EMU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <string>

#include "access.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif

#define PICI_DEVICE_HW 1 /* pici/device_hw.cuh then defines nothing */
#define PICI_DEV static inline
#define PICI_DEV_COLD static
#define PICI_DEV_HOST static inline
#define PICI_DEV_MEMBER inline
#define PICI_DEV_TABLE static const
#define PICI_UNROLL
#define PICI_UNROLL_4
#define PICI_UNROLL_1

namespace emu {

/* Run a kernel with grid_x * grid_y thread blocks, each with so many threads and bytes of shared memory. False if it
 * failed. */
bool launch(unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes,
            const std::function<void()> &kernel);

/* Why the last launch failed, or "". */
const char *error();

/* Set the seed for the order in which fibers run. */
void seed(uint64_t);

/* The next number of the pseudorandom sequence with this state. */
uint64_t next_random(uint64_t &state);

/* The greatest number of thread blocks in flight at once. */
void resident(unsigned blocks);

/* Look for races in device memory, as until told otherwise; or do not. */
void watch_races(bool);

/* The hardware's limits. Bytes of shared memory of a thread block, and the bytes that a kernel need not request.
 * Threads of a thread block, and thread blocks of a grid in y. */
enum : unsigned {
    SHARED_MOST = 163 << 10,
    SHARED_UNASKED = 48 << 10,
    THREADS_MOST = 1024,
    GRID_Y_MOST = 65535,
    ARGUMENTS_MOST = 4096
};

/* Why a GPU does not have what a launch needs; "": it has. */
std::string lacking(unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes);

/* Count accesses to shared memory from now on, from 0. */
void count_banks(bool);

bank_tally banks();

/* ---- within a kernel ---- */

struct thread_id {
    unsigned thread, threads, block_x, block_y, blocks_x;
};
const thread_id &self();
uint8_t *shared_memory();

enum op { SHFL, SHFL_UP, SHFL_DOWN, BALLOT, SYNCWARP, SYNCTHREADS };

/* Wait for the lanes of mask. value: this lane's operand; arg: the operation's argument. Returns this lane's result. */
uint64_t meet(op, unsigned mask, uint64_t value, unsigned arg, unsigned line);
void touch_shared(const void *p, size_t bytes, bool write, bool atomic, unsigned line);
void aligned(const void *p, size_t bytes, unsigned line);
void touch_device(const void *p, size_t bytes, device_use, unsigned line);
void fence();
/* Write some bytes of shared memory, which are undefined until the thread calls copy_now. */
void copy_later(void *to, const void *bytes, size_t count, unsigned line);
void copy_now();
/* All lanes of a warp pass here: what they access before is not the same instruction as what they access after. */
void in_step();
/* Let other fibers run, in a loop that waits for them. */
void yield();
/* Let other fibers run, at random. */
void maybe_yield();
[[noreturn]] void fail(const char *format, ...);

} // namespace emu

#define EMU_LINE unsigned line = (unsigned)__builtin_LINE()

namespace pici {

struct alignas(16) raw128 {
    uint64_t lo, hi;
};

namespace hw {

constexpr unsigned ALL = 0xffffffffu;

PICI_DEV unsigned thread()
{
    return emu::self().thread;
}

PICI_DEV unsigned threads()
{
    return emu::self().threads;
}

PICI_DEV unsigned lane()
{
    return emu::self().thread % 32;
}

PICI_DEV unsigned block_x()
{
    return emu::self().block_x;
}

PICI_DEV unsigned block_y()
{
    return emu::self().block_y;
}

PICI_DEV unsigned blocks_x()
{
    return emu::self().blocks_x;
}

template <class T> PICI_DEV T shfl(T v, unsigned from, unsigned mask = ALL, EMU_LINE)
{
    return (T)emu::meet(emu::SHFL, mask, (uint64_t)v, from, line);
}

template <class T> PICI_DEV T shfl_up(T v, unsigned by, unsigned mask = ALL, EMU_LINE)
{
    return (T)emu::meet(emu::SHFL_UP, mask, (uint64_t)v, by, line);
}

template <class T> PICI_DEV T shfl_down(T v, unsigned by, unsigned mask = ALL, EMU_LINE)
{
    return (T)emu::meet(emu::SHFL_DOWN, mask, (uint64_t)v, by, line);
}

PICI_DEV unsigned ballot(bool b, unsigned mask = ALL, EMU_LINE)
{
    return (unsigned)emu::meet(emu::BALLOT, mask, b, 0, line);
}

PICI_DEV void syncwarp(unsigned mask = ALL, EMU_LINE)
{
    emu::meet(emu::SYNCWARP, mask, 0, 0, line);
}

PICI_DEV void syncthreads(EMU_LINE)
{
    emu::meet(emu::SYNCTHREADS, ALL, 0, 0, line);
}

PICI_DEV unsigned popc(uint64_t v)
{
    return (unsigned)__builtin_popcountll(v);
}

PICI_DEV unsigned ffs(uint64_t v)
{
    return (unsigned)__builtin_ffsll((long long)v);
}

PICI_DEV unsigned log2(uint32_t v)
{
    return 31 - (unsigned)__builtin_clz(v);
}

PICI_DEV uint32_t funnel_l(uint32_t lo, uint32_t hi, unsigned bits)
{
    return (uint32_t)(((uint64_t)hi << 32 | lo) << bits >> 32);
}

template <class T> PICI_DEV T get(const T *p, EMU_LINE)
{
    emu::aligned(p, sizeof(T), line);
    emu::touch_shared(p, sizeof(T), false, false, line);
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}

template <class T> PICI_DEV void put(T *p, T v, EMU_LINE)
{
    emu::aligned(p, sizeof(T), line);
    emu::touch_shared(p, sizeof(T), true, false, line);
    memcpy(p, &v, sizeof v);
}

PICI_DEV void shared_max(uint64_t *p, uint64_t v, EMU_LINE)
{
    emu::aligned(p, sizeof v, line);
    emu::touch_shared(p, sizeof v, true, true, line);
    if (*p < v)
        *p = v;
}

template <class T> PICI_DEV void shared_add(T *p, T v, EMU_LINE)
{
    emu::aligned(p, sizeof v, line);
    emu::touch_shared(p, sizeof v, true, true, line);
    *p += v;
}

PICI_DEV void in_step()
{
    emu::in_step();
}

template <class T> PICI_DEV T load(const T *p, EMU_LINE)
{
    emu::aligned(p, sizeof(T), line);
    emu::touch_device(p, sizeof(T), emu::LOAD, line);
    return *p;
}

template <class T> PICI_DEV void store(T *p, T v, EMU_LINE)
{
    emu::aligned(p, sizeof(T), line);
    emu::touch_device(p, sizeof(T), emu::STORE, line);
    *p = v;
}

/* Nothing is there before the wait. */
template <class T> PICI_DEV void copy_async(T *to, const T *from, EMU_LINE)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "what cp.async can copy");
    emu::aligned(to, sizeof(T), line);
    const T v = load(from, line);
    emu::copy_later(to, &v, sizeof v, line);
}

PICI_DEV void copy_async_wait()
{
    emu::copy_now();
}

template <class T> PICI_DEV T load_once(const T *p, EMU_LINE)
{
    return load(p, line);
}

template <class T> PICI_DEV void store_once(T *p, T v, EMU_LINE)
{
    store(p, v, line);
}

template <class T> PICI_DEV T atomic_add(T *p, T v, EMU_LINE)
{
    emu::aligned(p, sizeof(T), line);
    emu::maybe_yield();
    emu::touch_device(p, sizeof(T), emu::UPDATE, line);
    const T old = *p;
    *p = old + v;
    return old;
}

PICI_DEV void atomic_max(uint64_t *p, uint64_t v, EMU_LINE)
{
    emu::aligned(p, sizeof v, line);
    emu::maybe_yield();
    emu::touch_device(p, sizeof v, emu::UPDATE, line);
    if (*p < v)
        *p = v;
}

PICI_DEV uint64_t load_relaxed(const uint64_t *p, EMU_LINE)
{
    emu::aligned(p, sizeof *p, line);
    emu::maybe_yield();
    emu::touch_device(p, sizeof *p, emu::RELAXED_LOAD, line);
    return *p;
}

PICI_DEV void store_relaxed(uint64_t *p, uint64_t v, EMU_LINE)
{
    emu::aligned(p, sizeof v, line);
    emu::maybe_yield();
    emu::touch_device(p, sizeof v, emu::RELAXED_STORE, line);
    *p = v;
}

PICI_DEV uint64_t load_settled(const uint64_t *p, EMU_LINE)
{
    return load(p, line);
}

PICI_DEV void fence()
{
    emu::maybe_yield();
    emu::fence();
}

PICI_DEV void pause()
{
    emu::yield();
}

PICI_DEV uint32_t add_f32(uint32_t a, uint32_t b)
{
    float x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x += y;
    memcpy(&a, &x, 4);
    return a;
}

PICI_DEV uint64_t add_f64(uint64_t a, uint64_t b)
{
    double x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    x += y;
    memcpy(&a, &x, 8);
    return a;
}

PICI_DEV uint32_t mul_f32(uint32_t a, uint32_t b)
{
    float x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x *= y;
    memcpy(&a, &x, 4);
    return a;
}

PICI_DEV uint64_t mul_f64(uint64_t a, uint64_t b)
{
    double x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    x *= y;
    memcpy(&a, &x, 8);
    return a;
}

PICI_DEV uint32_t div_f32(uint32_t a, uint32_t b)
{
    float x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x /= y;
    memcpy(&a, &x, 4);
    return a;
}

PICI_DEV uint64_t div_f64(uint64_t a, uint64_t b)
{
    double x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    x /= y;
    memcpy(&a, &x, 8);
    return a;
}

PICI_DEV uint64_t f64_of_f32(uint32_t a)
{
    float x;
    memcpy(&x, &a, 4);
    const double wide = (double)x;
    uint64_t bits;
    memcpy(&bits, &wide, 8);
    return bits;
}

PICI_DEV uint32_t f32_of_f64(uint64_t a)
{
    double x;
    memcpy(&x, &a, 8);
    const float narrow = (float)x;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    return bits;
}

PICI_DEV uint32_t f32_of_int(int32_t v)
{
    const float x = (float)v;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

PICI_DEV uint64_t f64_of_int(int32_t v)
{
    const double x = v;
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

PICI_DEV int32_t int_of_f32(uint32_t a)
{
    float x;
    memcpy(&x, &a, 4);
    return (int32_t)x;
}

PICI_DEV int32_t int_of_f64(uint64_t a)
{
    double x;
    memcpy(&x, &a, 8);
    return (int32_t)x;
}

} // namespace hw
} // namespace pici

#endif
