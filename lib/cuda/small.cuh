/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas on a GPU: the data of a job, and the steps of the calls. */
#ifndef PICI_LIB_CUDA_SMALL_CUH
#define PICI_LIB_CUDA_SMALL_CUH

#include "launch.cuh"
#include "pici/delta.h"
#include "small_columns.h"

/* A chunk to apply. Deltas in a row may have one chunk more for each delta than one delta of all their elements has. */
struct small_listed {
    uint64_t offset;  /* of the chunk's bytes, in the delta */
    uint64_t element; /* the first one, in dst */
    uint32_t count;   /* elements */
    uint32_t entry;   /* of the directory: size in bytes, and SMALL_CONTEXT */
};
enum : unsigned { ROW_MOST = 1024 /* deltas in a row */ };

/* Where the elements of a chunk lie in dst, for columns. */
struct small_placed {
    uint64_t first;           /* the chunk's first element, in its delta */
    uint64_t before;          /* elements of dst before the delta's first */
    uint64_t columns, stride; /* of the delta's rows in dst */
};

struct small_job {
    uint8_t *delta;
    uint64_t bytes; /* size of the delta, or the capacity there */
    const uint64_t *len_at;
    struct pici_cuda_result *result;
    const void *base;
    const void *src;
    void *dst;
    uint64_t count, chunks;
    uint64_t first, of;      /* of a part of a tensor: elements before it, and of the tensor */
    uint64_t row;            /* columns, where `first` is a column: elements of the tensor's rows; else 0 */
    uint64_t columns;        /* then */
    uint64_t extent;         /* elements from the first to the last in the caller's memory */
    struct small_rows place; /* their layout there */
    uint64_t staged;         /* bytes at the beginning of the workspace where they are consecutive */
    unsigned dtype, format;
    unsigned version, holds; /* apply: the latest version to accept */
    unsigned kind;           /* the dtype, or SMALL_E2M1X2; 0: there are no context chunks */
    struct pici_cuda_control *control;
    uint64_t *table;             /* diff: [chunks]: sizes of finished chunks, then where a chunk begins */
    struct small_listed *lists;  /* apply: [chunks + ROW_MOST]; `units` of the control counts the entries in use */
    struct small_placed *placed; /* beside these; null unless for columns */
    uint8_t *slots;              /* slot_bytes each, one for each thread block */
    uint64_t slot_bytes;         /* a multiple of 16, like made_bytes */
    uint8_t *made;               /* [chunks] of made_bytes each */
    uint64_t made_bytes;
};

/* Bytes of a workspace, for the functions of pici/cuda.h. gather: base and src are staged. of_columns: the call applies
 * deltas of columns, and stages dst. */
size_t pici_cuda_small_diff_workspace(unsigned format, unsigned dtype, uint64_t count, unsigned at_once, bool gather);
size_t pici_cuda_small_apply_workspace(unsigned dtype, uint64_t count, unsigned at_once, bool of_columns);

/* Check a job, and divide up the workspace. The caller has set the job's elements, staged bytes and, to apply, its
 * version. *blocks: the number of thread blocks to launch. */
enum pici_status pici_cuda_small_check_diff(small_job &job, enum pici_format format, const struct pici_opts *given,
                                            void *workspace, size_t workspace_bytes, unsigned *blocks);
enum pici_status pici_cuda_small_check_apply(small_job &job, void *workspace, size_t workspace_bytes, unsigned *blocks);

/* Launch kernels: to make a delta; to check one and list its chunks; and then to apply these. */
cudaError_t pici_cuda_small_launch_diff(const small_job &job, unsigned blocks, cudaStream_t stream);
cudaError_t pici_cuda_small_launch_open(const small_job &job, cudaStream_t stream);
cudaError_t pici_cuda_small_launch_apply(const small_job &job, unsigned blocks, cudaStream_t stream);

#endif
