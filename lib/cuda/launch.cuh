/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Code shared by the kernels of lib/cuda and the functions that launch them. A kernel takes one struct of jobs by
 * value. The y coordinate of a thread block is the number of its job. */
#ifndef PICI_LIB_CUDA_LAUNCH_CUH
#define PICI_LIB_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "pici/cuda.h"
#include "pici/device.cuh"

#ifdef PICI_DEVICE_HW
#define PICI_KERNEL(threads, blocks) static void
#define PICI_BLOCK_MEMORY(name) uint8_t *name = emu::shared_memory()
#else
#define PICI_KERNEL(threads, blocks) static __global__ void __launch_bounds__(threads, blocks)
#define PICI_BLOCK_MEMORY(name) extern __shared__ __align__(16) uint8_t name[]
#endif

template <class P>
static inline cudaError_t launch(void (*kernel)(P), unsigned blocks_x, unsigned blocks_y, unsigned threads,
                                 unsigned shared, const P &parameters, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (shared > 48 << 10)
        error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    void *args[] = {(void *)&parameters};
    return error ? error : cudaLaunchKernel(kernel, dim3(blocks_x, blocks_y), dim3(threads), args, shared, stream);
}

enum { BATCH = 32 }; /* jobs of one kernel, limited because they are its arguments, of at most 4 KiB */

/* The first bytes of a job's workspace. All are zero when its first kernel begins. */
struct pici_cuda_control {
    uint64_t fault;    /* the first one found, as in device_block.cuh */
    uint32_t done;     /* thread blocks that have ended */
    uint32_t ticket;   /* partitions or groups claimed; hybrid by tiles: tiles, each twice */
    uint64_t nonzeros; /* hybrid, packed: nonzeros in the tiles of thread blocks that have ended, with SIGNS_SEEN */
    uint64_t units;    /* encoding hybrid, packed: units of all records, once the last group is laid out */
    uint64_t hybrid;   /* encoding packed: bytes of the records that a hybrid block would have */
    uint64_t choice;   /* lower half: 1 + the format of the shortest block, if it is not hybrid; 0 until that is known.
                        * Upper half, for PICI_AUTO: the shortest format other than hybrid and packed */
    uint64_t others;   /* bytes of a block in that format */
    uint64_t filled;   /* elements other than zeros; where zeros are exact, only +0.0 is a zero */
};

struct pici_cuda_encode_job {
    struct pici_cuda_encode call;
    struct pici_cuda_control *control;
    uint64_t *state; /* a word for each partition or group; hybrid by tiles: then also one for each tile */
};

struct pici_cuda_encode_jobs {
    struct pici_cuda_encode_job job[BATCH];
    unsigned dtype;
    bool by_value;    /* encode -0.0 as +0.0: dtype is one of floats, and no job has a base */
    bool one_level;   /* packed */
    bool if_shortest; /* kernels of several formats follow each other; one makes the block */
    bool of_all;      /* PICI_AUTO: the formats are all, or all but packed; control->choice has the other */
};

struct pici_cuda_decode_job {
    struct pici_cuda_decode call;
    struct pici_cuda_control *control;
};

struct pici_cuda_decode_jobs {
    struct pici_cuda_decode_job job[BATCH];
    unsigned dtype; /* 0: any, for verify */
};

/* Threads of a thread block, and thread blocks that fit on a multiprocessor, for elements of type T. Each warp has a
 * stage in shared memory. */
template <class T> constexpr unsigned ENCODE_THREADS = sizeof(T) == 8 ? 64 : 128;
template <class T> constexpr unsigned ENCODE_BLOCKS = sizeof(T) >= 4 ? 3 : 4;
template <class T> constexpr unsigned DECODE_THREADS = sizeof(T) == 8 ? 64 : 128;
template <class T> constexpr unsigned DECODE_BLOCKS = sizeof(T) >= 4 ? 3 : 4;
template <class T> constexpr unsigned ADD_BLOCKS = DECODE_BLOCKS<T>;

/* Tiles of a partition: one for each warp of a thread block. */
PICI_DEV_HOST constexpr unsigned encode_tiles(unsigned width)
{
    return width == 8 ? 2 : 4;
}

/* Encode hybrid blocks of at most TILEWISE_MOST tiles by tiles where that is faster. Their workspace has a word for
 * each group and one for each tile. */
constexpr uint64_t TILEWISE_MOST = 1024;

static inline bool is_aligned_to(const void *address, uintptr_t bytes)
{
    return (uintptr_t)address % bytes == 0;
}

static inline bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;
    return a_bytes && b_bytes && (a_begin < b_begin ? b_begin - a_begin < a_bytes : a_begin - b_begin < b_bytes);
}

/* Bytes of workspace for elements, rounded up to align the next part. 0: the dtype is unknown, or the size
 * overflows. */
static inline uint64_t staged_bytes(uint64_t count, unsigned dtype)
{
    const int width_log2 = pici::width_log2(dtype);
    return width_log2 < 0 || count > SIZE_MAX / 64 ? 0 : ((count << width_log2) + 15) / 16 * 16;
}

/* Read a caller's options, or the defaults for null. Returns an error for options that no GPU encoder supports. */
enum pici_status pici_cuda_options(struct pici_opts *checked, const struct pici_opts *given);

/* The number of multiprocessors of the current device. */
static inline cudaError_t multiprocessors(int *count)
{
    int device = 0;
    const cudaError_t error = cudaGetDevice(&device);
    return error ? error : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

/* Launch a kernel on jobs. The largest has `parts` parts, each the work of one thread block. Launches just enough
 * thread blocks to fill the device: each takes parts until none are left. */
template <class P>
static inline cudaError_t launch_jobs(void (*kernel)(P), uint64_t parts, unsigned jobs, unsigned threads,
                                      unsigned shared, unsigned per_multiprocessor, const P &parameters,
                                      cudaStream_t stream)
{
    int all = 0;
    const cudaError_t error = multiprocessors(&all);
    if (error)
        return error;
    const uint64_t fill = ((uint64_t)all * per_multiprocessor + jobs - 1) / jobs;
    const uint64_t blocks = parts < fill ? parts : fill;
    return launch(kernel, blocks ? (unsigned)blocks : 1, jobs, threads, shared, parameters, stream);
}

namespace pici {

/* Called by all threads, at their end. True in the first warp of a job's last thread block to end. All work of the
 * job's other threads comes before this warp's next operations. */
PICI_DEV bool last_of_job(pici_cuda_control *control)
{
    uint32_t before = 0;
    hw::syncthreads();
    if (warp() != 0)
        return false;
    if (hw::lane() == 0) {
        /* one thread does this between barriers, so that fences and barriers order every thread's accesses */
        hw::fence();
        before = hw::atomic_add(&control->done, 1u);
        hw::fence();
    }
    before = hw::shfl(before, 0);
    hw::syncwarp();
    return before + 1 == hw::blocks_x();
}

/* Called by one thread: write a job's result. */
PICI_DEV void put_result(pici_cuda_result *target, const pici_cuda_result &result)
{
    hw::store(&target->len, result.len);
    hw::store(&target->status, result.status);
    hw::store(&target->rule, result.rule);
    hw::store(&target->offset, result.offset);
    hw::store(&target->tile, result.tile);
}

} // namespace pici

/* Return LAUNCH(T), where T is the unsigned integer of the dtype's width. */
#define BY_WIDTH(dtype, LAUNCH)                                                                                        \
    switch (pici::width_log2(dtype)) {                                                                                 \
    case 0: return LAUNCH(uint8_t);                                                                                    \
    case 1: return LAUNCH(uint16_t);                                                                                   \
    case 2: return LAUNCH(uint32_t);                                                                                   \
    default: return LAUNCH(uint64_t);                                                                                  \
    }

/* In compress.cu, coo.cu, hybrid.cu, packed.cu, decompress.cu, add.cu and verify.cu. elements, bytes: the elements and
 * the block size of the largest job. */
cudaError_t pici_cuda_launch_encode(const struct pici_cuda_encode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_dense(const struct pici_cuda_encode_jobs *, unsigned count, uint64_t elements,
                                   cudaStream_t);
cudaError_t pici_cuda_launch_coo(const struct pici_cuda_encode_jobs *, unsigned count, uint64_t elements, cudaStream_t);
cudaError_t pici_cuda_launch_count(const struct pici_cuda_encode_jobs *, unsigned count, uint64_t elements,
                                   cudaStream_t);
cudaError_t pici_cuda_launch_hybrid(const struct pici_cuda_encode_jobs *, unsigned count, uint64_t elements,
                                    cudaStream_t);
cudaError_t pici_cuda_launch_packed(const struct pici_cuda_encode_jobs *, unsigned count, uint64_t elements,
                                    cudaStream_t);
cudaError_t pici_cuda_launch_decode(const struct pici_cuda_decode_jobs *, unsigned count, uint64_t elements,
                                    cudaStream_t);
cudaError_t pici_cuda_launch_add(const struct pici_cuda_decode_jobs *, unsigned count, uint64_t elements, cudaStream_t);
cudaError_t pici_cuda_launch_apply(const struct pici_cuda_decode_jobs *, unsigned count, uint64_t elements,
                                   cudaStream_t);
cudaError_t pici_cuda_launch_verify(const struct pici_cuda_decode_jobs *, unsigned count, uint64_t bytes, cudaStream_t);

#endif
