/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The hardware functions that pici/device.cuh uses. An emulator can run the same device code on a host: it defines
 * PICI_DEVICE_HW and its own versions of these functions. Thread blocks are one-dimensional. Needs compute capability
 * 8.0 or higher. */
#ifndef PICI_DEVICE_HW_CUH
#define PICI_DEVICE_HW_CUH

#include <stdint.h>

#ifndef PICI_DEVICE_HW

#define PICI_DEV static __device__ __forceinline__      /* a function for the device */
#define PICI_DEV_COLD static __device__ __noinline__    /* rarely called, and needs many registers */
#define PICI_DEV_HOST static __host__ __device__ inline /* for both */
#define PICI_DEV_MEMBER __device__ __forceinline__
#define PICI_DEV_TABLE static __device__ const /* a constant array */
#define PICI_UNROLL _Pragma("unroll")
#define PICI_UNROLL_4 _Pragma("unroll 4")
#define PICI_UNROLL_1 _Pragma("unroll 1")

namespace pici {

/* 16 bytes for one load or store: two elements of 8 bytes, or several narrower ones. */
struct alignas(16) raw128 {
    uint64_t lo, hi;
};

namespace hw {

constexpr unsigned ALL = 0xffffffffu; /* the mask of all lanes of a warp */

PICI_DEV unsigned thread()
{
    return threadIdx.x;
}

PICI_DEV unsigned threads()
{
    return blockDim.x;
}

PICI_DEV unsigned lane()
{
    return threadIdx.x % 32;
}

PICI_DEV unsigned block_x()
{
    return blockIdx.x;
}

PICI_DEV unsigned block_y()
{
    return blockIdx.y;
}

PICI_DEV unsigned blocks_x()
{
    return gridDim.x;
}

/* ---- among the lanes of a warp ---- */

template <class T> PICI_DEV T shfl(T v, unsigned from, unsigned mask = ALL)
{
    return __shfl_sync(mask, v, (int)from);
}

template <class T> PICI_DEV T shfl_up(T v, unsigned by, unsigned mask = ALL)
{
    return __shfl_up_sync(mask, v, by);
}

template <class T> PICI_DEV T shfl_down(T v, unsigned by, unsigned mask = ALL)
{
    return __shfl_down_sync(mask, v, by);
}

PICI_DEV unsigned ballot(bool b, unsigned mask = ALL)
{
    return __ballot_sync(mask, b);
}

PICI_DEV void syncwarp(unsigned mask = ALL)
{
    __syncwarp(mask);
}

PICI_DEV void syncthreads()
{
    __syncthreads();
}

/* ---- bits ---- */

PICI_DEV unsigned popc(uint64_t value)
{
    return (unsigned)__popcll(value);
}

PICI_DEV unsigned ffs(uint64_t value) /* index of the lowest bit set, counted from 1; 0 for value == 0 */
{
    return (unsigned)__ffsll((long long)value);
}

PICI_DEV unsigned log2(uint32_t value) /* rounded down; value is not 0 */
{
    return 31 - (unsigned)__clz((int)value);
}

PICI_DEV uint32_t funnel_l(uint32_t lo, uint32_t hi, unsigned bits) /* the upper word of hi:lo << bits, bits < 32 */
{
    return __funnelshift_l(lo, hi, bits);
}

/* ---- shared memory ---- */

template <class T> PICI_DEV T get(const T *address)
{
    return *address;
}

template <class T> PICI_DEV void put(T *address, T value)
{
    *address = value;
}

/* All lanes of a warp pass here. Does nothing on a GPU. From it, an emulator that counts bank conflicts knows which
 * lanes' accesses are one instruction. */
PICI_DEV void in_step()
{
}

PICI_DEV void shared_max(uint64_t *address, uint64_t value) /* atomic */
{
    atomicMax((unsigned long long *)address, (unsigned long long)value);
}

PICI_DEV void shared_add(uint64_t *address, uint64_t value) /* atomic */
{
    atomicAdd((unsigned long long *)address, (unsigned long long)value);
}

PICI_DEV void shared_add(uint32_t *address, uint32_t value) /* atomic */
{
    atomicAdd(address, value);
}

/* ---- device memory. _once: the data is read or written only once, so caches need not keep it ---- */

PICI_DEV uint8_t load_once(const uint8_t *address)
{
    return __ldcs(address);
}

PICI_DEV uint16_t load_once(const uint16_t *address)
{
    return __ldcs(address);
}

PICI_DEV uint32_t load_once(const uint32_t *address)
{
    return __ldcs(address);
}

PICI_DEV uint64_t load_once(const uint64_t *address)
{
    return __ldcs((const unsigned long long *)address);
}

PICI_DEV raw128 load_once(const raw128 *address)
{
    const ulonglong2 words = __ldcs((const ulonglong2 *)address);
    return raw128{words.x, words.y};
}

PICI_DEV raw128 load(const raw128 *address)
{
    const ulonglong2 words = *(const ulonglong2 *)address;
    return raw128{words.x, words.y};
}

template <class T> PICI_DEV T load(const T *address)
{
    return *address;
}

PICI_DEV void store_once(uint8_t *address, uint8_t value)
{
    __stcs(address, value);
}

PICI_DEV void store_once(uint16_t *address, uint16_t value)
{
    __stcs(address, value);
}

PICI_DEV void store_once(uint32_t *address, uint32_t value)
{
    __stcs(address, value);
}

PICI_DEV void store_once(uint64_t *address, uint64_t value)
{
    __stcs((unsigned long long *)address, (unsigned long long)value);
}

PICI_DEV void store_once(raw128 *address, raw128 value)
{
    __stcs((ulonglong2 *)address, make_ulonglong2(value.lo, value.hi));
}

template <class T> PICI_DEV void store(T *address, T value)
{
    *address = value;
}

PICI_DEV void store(raw128 *address, raw128 value)
{
    *(ulonglong2 *)address = make_ulonglong2(value.lo, value.hi);
}

/* Copy a word of 4, 8 or 16 bytes from device memory to shared memory. This thread can read it after copy_async_wait(),
 * and others after the next barrier. */
template <class T> PICI_DEV void copy_async(T *target, const T *from)
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(target);
    if constexpr (sizeof(T) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
}

PICI_DEV void copy_async_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ---- between thread blocks ---- */

PICI_DEV uint32_t atomic_add(uint32_t *address, uint32_t value)
{
    return atomicAdd(address, value);
}

PICI_DEV uint64_t atomic_add(uint64_t *address, uint64_t value)
{
    return atomicAdd((unsigned long long *)address, (unsigned long long)value);
}

PICI_DEV void atomic_max(uint64_t *address, uint64_t value)
{
    atomicMax((unsigned long long *)address, (unsigned long long)value);
}

/* A word that several thread blocks use. The access orders no other memory. */
PICI_DEV uint64_t load_relaxed(const uint64_t *address)
{
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

PICI_DEV void store_relaxed(uint64_t *address, uint64_t value)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/* The final value of a word that others updated or stored as above. Fences order all of their updates before this
 * load. */
PICI_DEV uint64_t load_settled(const uint64_t *address)
{
    return load_relaxed(address);
}

PICI_DEV void fence()
{
    __threadfence();
}

PICI_DEV void pause() /* in a loop that waits for another thread block */
{
    __nanosleep(20);
}

/* ---- floats as bits. Denormals are never flushed, even if compiler flags ask for it. Callers handle NaNs ---- */

PICI_DEV uint32_t add_f32(uint32_t a, uint32_t b)
{
    float result;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(result);
}

PICI_DEV uint64_t add_f64(uint64_t a, uint64_t b)
{
    return (uint64_t)__double_as_longlong(
        __dadd_rn(__longlong_as_double((long long)a), __longlong_as_double((long long)b)));
}

PICI_DEV uint32_t mul_f32(uint32_t a, uint32_t b)
{
    float result;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(result);
}

PICI_DEV uint64_t mul_f64(uint64_t a, uint64_t b)
{
    return (uint64_t)__double_as_longlong(
        __dmul_rn(__longlong_as_double((long long)a), __longlong_as_double((long long)b)));
}

PICI_DEV uint32_t div_f32(uint32_t a, uint32_t b)
{
    float result;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(result);
}

PICI_DEV uint64_t div_f64(uint64_t a, uint64_t b)
{
    return (uint64_t)__double_as_longlong(
        __ddiv_rn(__longlong_as_double((long long)a), __longlong_as_double((long long)b)));
}

PICI_DEV uint64_t f64_of_f32(uint32_t a)
{
    double result;
    asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(__uint_as_float(a)));
    return (uint64_t)__double_as_longlong(result);
}

PICI_DEV uint32_t f32_of_f64(uint64_t a)
{
    float result;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(__longlong_as_double((long long)a)));
    return __float_as_uint(result);
}

PICI_DEV uint32_t f32_of_int(int32_t value)
{
    return __float_as_uint(__int2float_rn(value));
}

PICI_DEV uint64_t f64_of_int(int32_t value)
{
    return (uint64_t)__double_as_longlong(__int2double_rn(value));
}

PICI_DEV int32_t int_of_f32(uint32_t a) /* rounded toward 0; below 2^31 */
{
    return __float2int_rz(__uint_as_float(a));
}

PICI_DEV int32_t int_of_f64(uint64_t a)
{
    return __double2int_rz(__longlong_as_double((long long)a));
}

} // namespace hw
} // namespace pici

#endif
#endif
