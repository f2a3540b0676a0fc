/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device functions that encode and decode blocks, to be called from your own kernels. docs/cuda.md has an example.
 * Needs no library, compute capability 8.0, and C++17.
 *
 *   tile_*, warp_*    called by all lanes of a warp; work on a tile, or on a share of a block
 *   block_*           called by all threads of a thread block, a multiple of 32; work on a whole block
 *   T                 uint8_t, uint16_t, uint32_t or uint64_t: elements are moved as bits of the dtype's width
 *   pointers          blocks are aligned to 16 bytes, elements to their width
 *   "stage"           shared memory that belongs to the warp: STAGE_BYTES<T> bytes, aligned to 16
 *   "a lane's"        arguments and results that may differ from lane to lane; all others must be the same in all
 *                     lanes, or in all threads of the thread block for block_*
 *
 * Each lane owns two neighbouring columns of a tile, 2 * lane and 2 * lane + 1, so that a warp reads and writes a
 * row at once. */
#ifndef PICI_DEVICE_CUH
#define PICI_DEVICE_CUH

#include "pici/device_blockwide.cuh"
#include "pici/device_coo.cuh"
#include "pici/device_dense.cuh"
#include "pici/device_hybrid.cuh"
#include "pici/device_tiles.cuh"

#endif
