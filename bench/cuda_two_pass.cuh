/* SPDX-License-Identifier: BSD-3-Clause
 *
 * bitmap blocks the simple way: count each tile, scan the counts with CUB, read the elements again and place them. What
 * the library does in one pass must come out the same, and faster. */
#ifndef PICI_BENCH_CUDA_TWO_PASS_CUH
#define PICI_BENCH_CUDA_TWO_PASS_CUH

#include <cub/device/device_scan.cuh>

#include "pici/cuda.h"
#include "pici/device.cuh"

constexpr unsigned TWO_PASS_THREADS = 128;

template <class T> __global__ void two_pass_count(uint64_t *counts, const T *src, uint64_t n)
{
    const uint64_t t = blockIdx.x * (uint64_t)pici::warps() + pici::warp();
    if (t >= pici::tiles_of(n))
        return;
    const uint32_t nnz = pici::warp_sum((uint32_t)pici::warp_count(src, n, t, pici::tiles_of(n)));
    if (pici::hw::lane() == 0)
        counts[t] = nnz;
}

/* counts: of values before each tile, as scanned. */
template <class T>
__global__ void two_pass_place(const pici::making<T> m, const uint64_t *counts, struct pici_cuda_result *result)
{
    extern __shared__ __align__(16) uint8_t memory[];
    uint8_t *stage = pici::stage_of<pici::STAGE_BYTES<T>>((pici::block_memory *)memory);
    const uint64_t tiles = pici::tiles_of(m.to.count), t = blockIdx.x * (uint64_t)pici::warps() + pici::warp();
    if (t >= tiles)
        return;
    pici::held_tile<T> h;
    tile_load(h, pici::tile_at(m.src, m.to.count, t));
    const pici::columns c = pici::tile_columns(h);
    const unsigned before = pici::tile_offset(c), nnz = pici::tile_nnz(c);
    const uint64_t at = counts[t], fit = pici::values_that_fit(m);
    pici::put_columns(m.block + pici::HEADER_BYTES, t, c);
    pici::tile_pack(stage, h, c, before);
    pici::warp_copy_out((T *)(m.block + m.to.values_offset) + at, stage,
                        fit <= at        ? 0
                        : fit - at < nnz ? (unsigned)(fit - at)
                                         : nnz);
    if (pici::hw::lane() == 0)
        pici::store_index(m.block + m.to.index_offset, m.to.index_width, t, at);
    if (t + 1 == tiles) {
        const uint64_t len = make_end(m, at + nnz);
        if (pici::hw::lane() == 0)
            *result = pici_cuda_result{len, len ? PICI_OK : PICI_E_SPACE, 0, 0, 0};
    }
}

static inline size_t two_pass_workspace(uint64_t n)
{
    size_t scan = 0;
    const uint64_t tiles = pici::tiles_of(n);
    cub::DeviceScan::ExclusiveSum(nullptr, scan, (uint64_t *)nullptr, (uint64_t *)nullptr, (int64_t)tiles);
    return (scan + 255) / 256 * 256 + tiles * 8;
}

/* n > 0; workspace: two_pass_workspace(n). */
template <class T>
static cudaError_t two_pass_compress(void *block, size_t cap, struct pici_cuda_result *result, const T *src, uint64_t n,
                                     enum pici_dtype dtype, void *workspace, cudaStream_t stream)
{
    const uint64_t tiles = pici::tiles_of(n);
    const unsigned warps = TWO_PASS_THREADS / 32, blocks = (unsigned)((tiles + warps - 1) / warps);
    const unsigned shared = pici::MAKE_BYTES<T>(PICI_BITMAP, TWO_PASS_THREADS);
    size_t scan = two_pass_workspace(n) - tiles * 8;
    uint64_t *counts = (uint64_t *)((uint8_t *)workspace + scan);
    pici::making<T> m = {src, (uint8_t *)block, cap, pici::block_view()};
    m.to.format = PICI_BITMAP;
    m.to.dtype = (uint32_t)dtype;
    m.to.count = n;
    layout(m.to);
    cudaError_t e = cudaFuncSetAttribute(two_pass_place<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e)
        return e;
    two_pass_count<<<blocks, TWO_PASS_THREADS, 0, stream>>>(counts, src, n);
    e = cub::DeviceScan::ExclusiveSum(workspace, scan, counts, counts, (int64_t)tiles, stream);
    if (e)
        return e;
    two_pass_place<<<blocks, TWO_PASS_THREADS, shared, stream>>>(m, counts, result);
    return cudaGetLastError();
}

#endif
