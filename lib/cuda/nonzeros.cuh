/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Functions shared by the calls that return positions and values. */
#ifndef PICI_LIB_CUDA_NONZEROS_CUH
#define PICI_LIB_CUDA_NONZEROS_CUH

#include "coo.cuh"

/* Check a caller's arguments. elements: null, or the block's `of` elements. Sets control and state: the first *used
 * bytes of the workspace, which must be zero when the search begins. */
enum pici_status pici_cuda_nonzeros_check(struct pici_cuda_nonzeros *job, const void *block, size_t size,
                                          const uint64_t *size_at, const void *elements, void *workspace,
                                          size_t workspace_bytes, size_t *used);

#endif
