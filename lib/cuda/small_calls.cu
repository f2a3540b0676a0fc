/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that make and apply small deltas, by the steps in small.cu. The elements of a shard of columns lie in rows.
 * The calls pack them in the workspace, make or apply a delta there, and copy them back. To find what a delta
 * changes, a call applies it to a copy there. */
#include "small.cuh"

#include "nonzeros.cuh"

using namespace pici;

constexpr unsigned ROWS_THREADS = 256;

/* Called by a thread block: copy elements [first, first + count), at most SMALL_CHUNK, from rows to `packed`, or
 * back. */
template <class T, bool BACK>
PICI_DEV void copy_rows(T *packed, T *rows, uint64_t first, uint32_t count, uint64_t columns, uint64_t stride)
{
    T *const from = rows + first / columns * stride;
    const uint64_t column = first % columns;
    for (uint32_t i = hw::thread(); i < count; i += hw::threads()) {
        const uint64_t at = column + i; /* long rows: at most one more row begins; otherwise it has less than 21 bits */
        const uint64_t row = columns > SMALL_CHUNK ? at >= columns : (uint32_t)at / (uint32_t)columns;
        T *const place = from + row * stride + (at - row * columns);
        if (BACK)
            hw::store(place, hw::load(packed + i));
        else
            hw::store(packed + i, hw::load(place));
    }
}

/* Elements to make a delta of. */
struct small_gather {
    void *packed[2];
    const void *rows[2];
    uint64_t count, chunks;
    struct small_rows place;
};

template <class T> PICI_KERNEL(ROWS_THREADS, 4) small_gather_kernel(const small_gather job)
{
    const unsigned which = hw::block_y();
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x())
        copy_rows<T, false>((T *)job.packed[which] + chunk * SMALL_CHUNK, (T *)(uintptr_t)job.rows[which],
                            chunk * SMALL_CHUNK, small_elements_of(job.count, chunk), job.place.columns,
                            job.place.stride);
}

/* The target of a delta that was found valid. */
struct small_move {
    small_job job; /* dst: in the workspace */
    void *rows;
};

template <class T, bool BACK> PICI_KERNEL(ROWS_THREADS, 4) small_move_kernel(const small_move move)
{
    if (hw::load(&move.job.result->status))
        return;
    const uint64_t chunks = hw::load(&move.job.control->units);
    for (uint64_t i = hw::block_x(); i < chunks; i += hw::blocks_x()) {
        const struct small_listed *const listed = move.job.lists + i;
        const struct small_placed *const placed = move.job.placed + i;
        copy_rows<T, BACK>((T *)move.job.dst + hw::load(&listed->element), (T *)move.rows + hw::load(&placed->before),
                           hw::load(&placed->first), hw::load(&listed->count), hw::load(&placed->columns),
                           hw::load(&placed->stride));
    }
}

template <class T> static cudaError_t launch_gather(const small_gather &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_gather_kernel<T>, blocks, 2, ROWS_THREADS, 0, job, stream);
}

template <class T>
static cudaError_t launch_move(const small_move &move, bool back, unsigned blocks, cudaStream_t stream)
{
    return back ? launch(small_move_kernel<T, true>, blocks, 1, ROWS_THREADS, 0, move, stream)
                : launch(small_move_kernel<T, false>, blocks, 1, ROWS_THREADS, 0, move, stream);
}

static cudaError_t launch_gathers(const small_gather &job, unsigned dtype, unsigned blocks, cudaStream_t stream)
{
#define LAUNCH(T) launch_gather<T>(job, blocks, stream)
    BY_WIDTH(dtype, LAUNCH)
#undef LAUNCH
}

static cudaError_t launch_moves(const small_move &move, bool back, unsigned blocks, cudaStream_t stream)
{
#define LAUNCH(T) launch_move<T>(move, back, blocks, stream)
    BY_WIDTH(move.job.dtype, LAUNCH)
#undef LAUNCH
}

static small_job job_of(const void *delta, uint64_t bytes, struct pici_cuda_result *result,
                        const small_elements &elements, enum pici_dtype dtype)
{
    small_job job = {};
    job.delta = (uint8_t *)(uintptr_t)delta;
    job.bytes = bytes;
    job.result = result;
    job.count = elements.count;
    job.chunks = small_chunks_of(elements.count);
    job.first = elements.first;
    job.of = elements.of;
    job.row = elements.row;
    job.columns = elements.columns;
    job.extent = elements.extent;
    job.place = elements.place;
    job.dtype = (unsigned)dtype;
    return job;
}

/* Elements [first, first + count) of a tensor of `of`. */
static small_elements part_of(uint64_t count, uint64_t first, uint64_t of)
{
    small_elements elements = {};
    elements.first = first;
    elements.count = elements.extent = count;
    elements.of = of;
    return elements;
}

enum pici_status pici_diff_small_part_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                           const void *base, const void *src, uint64_t count, uint64_t first,
                                           uint64_t of, enum pici_dtype dtype, enum pici_format format,
                                           const struct pici_opts *given, void *workspace, size_t workspace_bytes,
                                           cudaStream_t stream)
{
    unsigned blocks;
    small_job job = job_of(block, capacity, result, part_of(count, first, of), dtype);
    job.base = base;
    job.src = src;
    if (count > of || first > of - count)
        return PICI_E_ARG;
    const enum pici_status status = pici_cuda_small_check_diff(job, format, given, workspace, workspace_bytes, &blocks);
    if (status)
        return status;
    return pici_cuda_small_launch_diff(job, blocks, stream) ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_diff_small_cuda(void *block, size_t capacity, struct pici_cuda_result *result, const void *base,
                                      const void *src, uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                      void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    return pici_diff_small_part_cuda(block, capacity, result, base, src, count, 0, count, dtype, format, NULL,
                                     workspace, workspace_bytes, stream);
}

enum pici_status pici_apply_small_range_cuda(void *dst, uint64_t count, uint64_t first, uint64_t of,
                                             enum pici_dtype dtype, const void *block, size_t size,
                                             const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                             size_t workspace_bytes, cudaStream_t stream)
{
    unsigned blocks;
    small_job job = job_of(block, size, result, part_of(count, first, of), dtype);
    job.len_at = len_at;
    job.dst = dst;
    job.version = SMALL_NARROW_VERSION;
    if (count > of || first > of - count)
        return PICI_E_ARG;
    const enum pici_status status = pici_cuda_small_check_apply(job, workspace, workspace_bytes, &blocks);
    if (status)
        return status;
    cudaError_t error = pici_cuda_small_launch_open(job, stream);
    if (!error)
        error = pici_cuda_small_launch_apply(job, blocks, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_apply_small_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                       const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream)
{
    return pici_apply_small_range_cuda(dst, count, 0, count, dtype, block, size, len_at, result, workspace,
                                       workspace_bytes, stream);
}

/* ---- columns ---- */

size_t pici_diff_small_columns_cuda_workspace(enum pici_format format, enum pici_dtype dtype,
                                              const struct pici_columns *columns, unsigned at_once)
{
    small_elements elements;
    if (small_elements_read(&elements, columns))
        return 0;
    return pici_cuda_small_diff_workspace((unsigned)format, (unsigned)dtype, elements.count, at_once,
                                          elements.place.columns != 0);
}

size_t pici_apply_small_columns_cuda_workspace(enum pici_dtype dtype, const struct pici_columns *columns,
                                               unsigned at_once)
{
    small_elements elements;
    if (small_elements_read(&elements, columns))
        return 0;
    return pici_cuda_small_apply_workspace((unsigned)dtype, elements.count, at_once, true);
}

static enum pici_status columns_job(small_job *job, const void *delta, uint64_t bytes, struct pici_cuda_result *result,
                                    const struct pici_columns *columns, enum pici_dtype dtype)
{
    small_elements elements;
    const enum pici_status status = small_elements_read(&elements, columns);
    if (!status)
        *job = job_of(delta, bytes, result, elements, dtype);
    return status;
}

enum pici_status pici_diff_small_columns_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                              const void *base, const void *src, const struct pici_columns *columns,
                                              enum pici_dtype dtype, enum pici_format format,
                                              const struct pici_opts *options, void *workspace, size_t workspace_bytes,
                                              cudaStream_t stream)
{
    unsigned blocks;
    small_job job;
    enum pici_status status = columns_job(&job, block, capacity, result, columns, dtype);
    if (status)
        return status;
    const bool gather = job.place.columns != 0;
    job.base = base;
    job.src = src;
    const uint64_t each = staged_bytes(job.count, job.dtype);
    job.staged = gather ? 2 * each : 0;
    status = pici_cuda_small_check_diff(job, format, options, workspace, workspace_bytes, &blocks);
    if (status)
        return status;
    cudaError_t error = cudaSuccess;
    if (gather) {
        uint8_t *const staged = (uint8_t *)workspace;
        const small_gather rows = {{staged, staged + each}, {base, src}, job.count, job.chunks, job.place};
        job.base = staged;
        job.src = staged + each;
        error = launch_gathers(rows, job.dtype, blocks, stream);
    }
    if (!error)
        error = pici_cuda_small_launch_diff(job, blocks, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_apply_small_columns_cuda(void *dst, const struct pici_columns *columns, enum pici_dtype dtype,
                                               const void *block, size_t size, const uint64_t *size_at,
                                               struct pici_cuda_result *result, void *workspace, size_t workspace_bytes,
                                               cudaStream_t stream)
{
    unsigned blocks;
    small_job job;
    enum pici_status status = columns_job(&job, block, size, result, columns, dtype);
    if (status)
        return status;
    job.len_at = size_at;
    job.dst = dst;
    job.version = SMALL_COLUMNS_VERSION;
    job.staged = staged_bytes(job.count, job.dtype);
    status = pici_cuda_small_check_apply(job, workspace, workspace_bytes, &blocks);
    if (status)
        return status;
    job.dst = workspace;
    const small_move move = {job, dst};
    cudaError_t error = pici_cuda_small_launch_open(job, stream);
    if (job.chunks && !error)
        error = launch_moves(move, false, blocks, stream);
    if (!error)
        error = pici_cuda_small_launch_apply(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_moves(move, true, blocks, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}

/* ---- what a delta changes ---- */

size_t pici_changes_small_cuda_workspace(enum pici_dtype dtype, uint64_t of, unsigned at_once)
{
    const size_t applied = pici_cuda_small_apply_workspace((unsigned)dtype, of, at_once, false),
                 searched = pici_nonzeros_cuda_workspace(dtype, of);
    return !applied || !searched || searched > SIZE_MAX - applied ? 0 : searched + applied;
}

enum pici_status pici_changes_small_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                         uint64_t *count, const void *base, uint64_t of, const void *block, size_t size,
                                         const uint64_t *size_at, struct pici_cuda_result *result, uint64_t first,
                                         uint64_t n, enum pici_dtype dtype, void *workspace, size_t workspace_bytes,
                                         cudaStream_t stream)
{
    struct pici_cuda_nonzeros search = {indices,     values,          capacity, count,   result,  first,   n,       of,
                                        index_bytes, (unsigned)dtype, nullptr,  nullptr, nullptr, nullptr, nullptr, 0};
    size_t used;
    unsigned blocks;
    enum pici_status status =
        pici_cuda_nonzeros_check(&search, block, size, size_at, base, workspace, workspace_bytes, &used);
    if (status)
        return status;
    uint8_t *const elements = (uint8_t *)workspace + used;
    const unsigned width_log2 = (unsigned)pici::width_log2(search.dtype);
    small_job job = job_of(block, size, result, part_of(of, 0, of), dtype);
    job.len_at = size_at;
    job.dst = (void *)(uintptr_t)base; /* checked below */
    job.version = SMALL_NARROW_VERSION;
    job.staged = staged_bytes(of, search.dtype);
    status = pici_cuda_small_check_apply(job, elements, workspace_bytes - used, &blocks);
    if (status)
        return status;
    job.dst = elements;
    search.src = elements + (first << width_log2);
    search.base = search.old = (const uint8_t *)base + (first << width_log2);
    cudaError_t error = cudaMemsetAsync(workspace, 0, used, stream);
    if (of && !error)
        error = cudaMemcpyAsync(elements, base, of << width_log2, cudaMemcpyDefault, stream);
    if (!error)
        error = pici_cuda_small_launch_open(job, stream);
    if (!error)
        error = pici_cuda_small_launch_apply(job, blocks, stream);
    if (!error)
        error = pici_cuda_launch_nonzeros(search, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}
