/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device functions that encode and decode blocks, for your own kernels. docs/reference/cuda.md has an example. They are
 * header-only: they need no library, but compute capability 8.0 or higher, and C++17.
 *
 *   tile_*, warp_*    called by all lanes of a warp; work on a tile, or on a share of a block
 *   block_*           called by all threads of a thread block, whose size is a multiple of 32; work on a whole block
 *   T                 uint8_t, uint16_t, uint32_t or uint64_t: elements are moved as bits of the dtype's width
 *   pointers          blocks are aligned to 16 bytes, elements to their width
 *   "stage"           shared memory that belongs to the warp: STAGE_BYTES<T> bytes, aligned to 16
 *   "a lane's"        marks arguments and results that may differ between lanes. All others must be the same in all
 *                     lanes of the warp, or for block_* in all threads of the thread block
 *
 * A tile is a matrix of 64 rows of 64 elements. Each lane owns two neighbouring columns of it, 2 * lane and 2 * lane +
 * 1, so that a warp reads and writes a row in one access. */
#ifndef PICI_DEVICE_CUH
#define PICI_DEVICE_CUH

#include "pici/device_blockwide.cuh"
#include "pici/device_coo.cuh"
#include "pici/device_dense.cuh"
#include "pici/device_hybrid_make.cuh"
#include "pici/device_read.cuh"
#include "pici/device_small_make.cuh"
#include "pici/device_tiles.cuh"

#endif
