/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Positions and values of elements in device memory, which are found as those of coo blocks. */
#ifndef PICI_LIB_CUDA_COO_CUH
#define PICI_LIB_CUDA_COO_CUH

#include "launch.cuh"

/* Elements to search: n that follow `first` others, of `of`. */
struct pici_cuda_nonzeros {
    void *indices, *values; /* out, [capacity]; either may be null */
    uint64_t capacity, *count;
    struct pici_cuda_result *result; /* of what makes the elements; if that is PICI_OK, of the search */
    uint64_t first, n, of;
    size_t index_bytes;
    unsigned dtype;
    const void *src;  /* [n elements] */
    const void *base; /* null, or [n elements]: src is XORed with them, and searched for what is not zero then */
    const void *old;  /* null, or [n elements]: what is found is XORed with them */
    struct pici_cuda_control *control;
    uint64_t *state; /* a word for each partition, as to encode coo */
    uint64_t parts;  /* partitions; set by the launch */
};

/* Search. */
cudaError_t pici_cuda_launch_nonzeros(const struct pici_cuda_nonzeros &job, cudaStream_t stream);

#endif
