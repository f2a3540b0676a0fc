/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Positions and values that blocks store, or that deltas change. The call decodes all elements in the workspace; the
 * kernels of coo.cu then search them. small_calls.cu has the call for small deltas. */
#include "nonzeros.cuh"

#include "reduce.h"

size_t pici_nonzeros_cuda_workspace(enum pici_dtype dtype, uint64_t of)
{
    const size_t searched = pici_cuda_workspace(dtype, of);
    return of > SIZE_MAX / 64 || !searched ? 0 : searched + (size_t)staged_bytes(of, (unsigned)dtype);
}

struct region {
    const void *at;
    uint64_t bytes;
};

/* Does one of the first `written` regions overlap another region? */
static bool any_overlap(const struct region *regions, unsigned written, unsigned count)
{
    for (unsigned i = 0; i < written; i++)
        for (unsigned k = i + 1; k < count; k++)
            if (overlap(regions[i].at, regions[i].bytes, regions[k].at, regions[k].bytes))
                return true;
    return false;
}

enum pici_status pici_cuda_nonzeros_check(struct pici_cuda_nonzeros *job, const void *block, size_t size,
                                          const uint64_t *size_at, const void *elements, void *workspace,
                                          size_t workspace_bytes, size_t *used)
{
    const int width_log2 = pici::width_log2(job->dtype);
    if (width_log2 < 0 || (job->index_bytes != 4 && job->index_bytes != 8) || job->of > SIZE_MAX / 64 ||
        job->first > job->of || job->n > job->of - job->first ||
        (job->index_bytes == 4 && job->n > UINT64_C(1) << 32) || (job->capacity && !job->indices && !job->values) ||
        !job->count || !job->result || !block || !workspace)
        return PICI_E_ARG;
    const uintptr_t width = (uintptr_t)1 << width_log2;
    const uint64_t most = job->capacity < job->n ? job->capacity : job->n;
    const struct region regions[] = {{job->indices, job->indices ? most * job->index_bytes : 0},
                                     {job->values, job->values ? most << width_log2 : 0},
                                     {job->count, sizeof *job->count},
                                     {job->result, sizeof *job->result},
                                     {workspace, workspace_bytes},
                                     {block, size},
                                     {elements, elements ? job->of << width_log2 : 0}};
    if (!is_aligned_to(job->indices, job->index_bytes) || !is_aligned_to(job->values, width) ||
        !is_aligned_to(job->count, 8) || !is_aligned_to(job->result, 8) || !is_aligned_to(workspace, 16) ||
        !is_aligned_to(block, 16) || !is_aligned_to(elements, width) || !is_aligned_to(size_at, 8) ||
        any_overlap(regions, 5, 7) || (size_at && overlap(workspace, workspace_bytes, size_at, sizeof *size_at)))
        return PICI_E_ARG;
    *used = pici_cuda_workspace((enum pici_dtype)job->dtype, job->of);
    job->control = (struct pici_cuda_control *)workspace;
    job->state = (uint64_t *)(job->control + 1);
    return workspace_bytes < *used ? PICI_E_ARG : PICI_OK;
}

/* base: null, or the base of the delta block. */
static enum pici_status search_block(struct pici_cuda_nonzeros job, const void *block, size_t size,
                                     const uint64_t *size_at, const void *base, void *workspace, size_t workspace_bytes,
                                     cudaStream_t stream)
{
    size_t used;
    enum pici_status status =
        pici_cuda_nonzeros_check(&job, block, size, size_at, base, workspace, workspace_bytes, &used);
    if (!status && workspace_bytes - used < staged_bytes(job.of, job.dtype))
        status = PICI_E_ARG;
    if (status)
        return status;
    uint8_t *const elements = (uint8_t *)workspace + used;
    const uint64_t before = job.first << pici::width_log2(job.dtype);
    const struct pici_cuda_decode decode = {elements, job.of, block, size, size_at, job.result};
    job.src = elements + before;
    job.old = base ? (const uint8_t *)base + before : nullptr;
    if (cudaMemsetAsync(workspace, 0, used, stream))
        return PICI_E_DEVICE;
    status = pici_cuda_read_cleared(&decode, 1, (enum pici_dtype)job.dtype, 0, workspace, sizeof *job.control, stream);
    if (!status && pici_cuda_launch_nonzeros(job, stream))
        status = PICI_E_DEVICE;
    return status;
}

enum pici_status pici_nonzeros_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity, uint64_t *count,
                                    const void *block, size_t size, const uint64_t *size_at,
                                    struct pici_cuda_result *result, uint64_t first, uint64_t n, uint64_t of,
                                    enum pici_dtype dtype, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_nonzeros job = {
        indices,     values,          capacity, count,   result,  first,   n,       of,
        index_bytes, (unsigned)dtype, nullptr,  nullptr, nullptr, nullptr, nullptr, 0};
    return search_block(job, block, size, size_at, nullptr, workspace, workspace_bytes, stream);
}

enum pici_status pici_changes_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity, uint64_t *count,
                                   const void *base, uint64_t of, const void *block, size_t size,
                                   const uint64_t *size_at, struct pici_cuda_result *result, uint64_t first, uint64_t n,
                                   enum pici_dtype dtype, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_nonzeros job = {
        indices,     values,          capacity, count,   result,  first,   n,       of,
        index_bytes, (unsigned)dtype, nullptr,  nullptr, nullptr, nullptr, nullptr, 0};
    if (of && !base)
        return PICI_E_ARG;
    return search_block(job, block, size, size_at, base, workspace, workspace_bytes, stream);
}
