/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Searches for positions and values of elements in device memory, with the kernels for coo blocks. */
#ifndef PICI_LIB_CUDA_COO_CUH
#define PICI_LIB_CUDA_COO_CUH

#include "launch.cuh"

/* Elements to search: n elements that follow the `first` first elements of `of`. */
struct pici_cuda_nonzeros {
    void *indices, *values; /* out, [capacity]; either may be null */
    uint64_t capacity, *count;
    struct pici_cuda_result *result; /* status of the elements' producer; if that is PICI_OK, of the search */
    uint64_t first, n, of;
    size_t index_bytes;
    unsigned dtype;
    const void *src;  /* [n elements] */
    const void *base; /* null, or [n elements] to XOR with src before the search */
    const void *old;  /* null, or [n elements] to XOR with the values found */
    struct pici_cuda_control *control;
    uint64_t *state; /* a word for each partition, as in encoding coo */
    uint64_t parts;  /* partitions; set by the launch */
};

/* Search. */
cudaError_t pici_cuda_launch_nonzeros(const struct pici_cuda_nonzeros &job, cudaStream_t stream);

#endif
