/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas (formats/small-delta.md): a warp codes a context chunk, a thread block an XOR chunk. Thread block b has
 * slot b of the workspace, and takes chunks b, b + B, b + 2 B, ... of B thread blocks. A chunk's place depends on the
 * sizes of all before it, so chunks are made elsewhere and then copied; and an XOR chunk is copied before it is read,
 * to where it is aligned. */
#include "launch.cuh"
#include "pici/delta.h"

using namespace pici;

constexpr unsigned XOR_THREADS = 128, COPY_THREADS = 256;
enum : unsigned { AT_ONCE = 256 /* chunks, unless the caller says another number */ };

/* A chunk that is made: its bytes, and in the upper bits what it is. */
constexpr uint64_t MADE_CONTEXT = UINT64_C(1) << 63, MADE_MAYBE_LONGER = UINT64_C(1) << 62,
                   MADE_BYTES = MADE_MAYBE_LONGER - 1;

struct small_job {
    uint8_t *delta;
    uint64_t bytes; /* of the delta; or the capacity there */
    const uint64_t *len_at;
    struct pici_cuda_result *result;
    const void *base;
    const void *src;
    void *dst;
    uint64_t count, chunks;
    unsigned dtype, format;
    bool context; /* the dtype has context chunks */
    struct pici_cuda_control *control;
    uint64_t *table;     /* [chunks]: bytes that were made, then where a chunk begins */
    uint8_t *slots;      /* of slot_bytes each, one for each thread block */
    uint64_t slot_bytes; /* a multiple of 16, like the next */
    uint8_t *made;       /* [chunks] of made_bytes each */
    uint64_t made_bytes;
};

/* Called by `threads` threads: copy count bytes. `target` or `from` is aligned to 16; they do not overlap. */
PICI_DEV void copy_bytes(uint8_t *target, const uint8_t *from, uint64_t count, unsigned thread, unsigned threads)
{
    const uint64_t before = (0 - (uintptr_t)target) % 16 < count ? (0 - (uintptr_t)target) % 16 : count;
    const uint64_t quads = count - before < 20 ? 0 : (count - before - 4) / 16; /* a word beyond each may be read */
    for (uint64_t q = thread; q < quads; q += threads)
        hw::store((raw128 *)(target + before) + q, load_unaligned(from + before + 16 * q));
    for (uint64_t i = thread; i < count - 16 * quads; i += threads) {
        const uint64_t offset = i < before ? i : i + 16 * quads;
        hw::store(target + offset, hw::load(from + offset));
    }
}

/* ---- encoding ---- */

template <unsigned DTYPE> PICI_KERNEL(LANES, 16) small_make_kernel(const small_job job)
{
    using T = typename small_kind<DTYPE>::element;
    PICI_BLOCK_MEMORY(memory);
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        uint32_t least;
        const uint32_t bytes =
            warp_diff_small<DTYPE>(job.made + chunk * job.made_bytes, &least, (const T *)job.base + chunk * SMALL_CHUNK,
                                   (const T *)job.src + chunk * SMALL_CHUNK, small_elements_of(job.count, chunk),
                                   job.slots + hw::block_x() * job.slot_bytes, (small_memory *)memory);
        if (hw::lane() == 0)
            hw::store(job.table + chunk,
                      bytes ? bytes | MADE_CONTEXT | (bytes < least ? 0 : MADE_MAYBE_LONGER) : UINT64_C(0));
    }
}

/* XOR chunks, where there is no context chunk, or one that may be longer. */
template <class T, unsigned FORMAT> PICI_KERNEL(XOR_THREADS, 1) small_xor_kernel(const small_job job)
{
    PICI_BLOCK_MEMORY(memory);
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        const uint64_t made = job.context ? hw::load(job.table + chunk) : 0, limit = made & MADE_BYTES;
        uint8_t *const place = job.made + chunk * job.made_bytes, *const block =
                                                                      made ? job.slots + hw::block_x() * job.slot_bytes
                                                                           : place;
        if (made && !(made & MADE_MAYBE_LONGER))
            continue;
        const uint64_t size = block_compress<FORMAT>(
            block, made && limit < job.made_bytes ? limit : job.made_bytes, (const T *)job.src + chunk * SMALL_CHUNK,
            small_elements_of(job.count, chunk), job.dtype, memory, (const T *)job.base + chunk * SMALL_CHUNK);
        if (made && size)
            copy_bytes(place, block, size, hw::thread(), hw::threads());
        if (hw::thread() == 0 && (size || !made))
            hw::store(job.table + chunk, size);
        hw::syncthreads();
    }
}

/* One warp: where each chunk begins, the header and the directory. */
PICI_KERNEL(LANES, 1) small_place_kernel(const small_job job)
{
    const unsigned lane = hw::lane();
    uint64_t offset = SMALL_HEADER_BYTES + 4 * job.chunks;
    for (uint64_t from = 0; from < job.chunks; from += LANES) {
        const uint64_t chunk = from + lane, made = chunk < job.chunks ? hw::load(job.table + chunk) : 0,
                       own = made & MADE_BYTES;
        const uint64_t before = warp_scan(own);
        if (chunk < job.chunks) {
            hw::store((uint32_t *)(job.delta + SMALL_HEADER_BYTES) + chunk,
                      (uint32_t)own | (made & MADE_CONTEXT ? SMALL_CONTEXT : 0));
            hw::store(job.table + chunk, offset + before);
        }
        offset += hw::shfl(before + own, LANES - 1);
    }
    const bool fits = offset <= job.bytes;
    const int status = fits ? PICI_OK : PICI_E_SPACE;
    if (lane == 0) {
        uint64_t *const word = (uint64_t *)job.delta;
        hw::store(word, fits ? SMALL_MAGIC | (uint64_t)SMALL_VERSION << 32 | (uint64_t)job.dtype << 40 : 0);
        hw::store(word + 1, fits ? job.count : 0);
        hw::store(word + 2, fits ? offset : 0);
        hw::store(word + 3, UINT64_C(0));
        put_result(job.result, pici_cuda_result{fits ? offset : 0, status, 0, 0, 0});
    }
}

PICI_KERNEL(COPY_THREADS, 4) small_copy_kernel(const small_job job)
{
    if (hw::load(&job.result->status))
        return;
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        const uint64_t offset = hw::load(job.table + chunk),
                       end = chunk + 1 < job.chunks ? hw::load(job.table + chunk + 1) : hw::load(&job.result->len);
        copy_bytes(job.delta + offset, job.made + chunk * job.made_bytes, end - offset, hw::thread(), hw::threads());
    }
}

/* ---- decoding ---- */

/* What is wrong with the header, the directory and the checksum; also writes where each chunk begins. By a warp. */
PICI_DEV int check_delta(const small_job &job, uint64_t *size)
{
    const unsigned lane = hw::lane();
    *size = job.len_at ? hw::load(job.len_at) : job.bytes;
    if (*size > job.bytes)
        return PICI_E_ARG;
    if (*size < SMALL_HEADER_BYTES)
        return PICI_E_CORRUPT;
    const uint64_t *const word = (const uint64_t *)job.delta;
    const uint64_t first = hw::load(word), count = hw::load(word + 1);
    const unsigned dtype = first >> 40 & 255, flags = (unsigned)(first >> 48);
    if ((uint32_t)first != SMALL_MAGIC)
        return PICI_E_CORRUPT;
    if ((first >> 32 & 255) != SMALL_VERSION)
        return PICI_E_VERSION;
    if (width_log2(dtype) < 0 || flags > SMALL_HAS_CHECKSUM || (!flags && hw::load(word + 3)) ||
        hw::load(word + 2) != *size || small_chunks_of(count) > (*size - SMALL_HEADER_BYTES) / 4)
        return PICI_E_CORRUPT;
    uint64_t offset = SMALL_HEADER_BYTES + 4 * small_chunks_of(count);
    for (uint64_t from = 0; from < small_chunks_of(count); from += LANES) {
        const uint64_t chunk = from + lane;
        const uint32_t *const entry = (const uint32_t *)(job.delta + SMALL_HEADER_BYTES) + chunk;
        const uint64_t own = chunk < small_chunks_of(count) ? hw::load(entry) & ~SMALL_CONTEXT : 0,
                       before = warp_scan(own);
        if (chunk < small_chunks_of(count) && chunk < job.chunks)
            hw::store(job.table + chunk, offset + before);
        offset += hw::shfl(before + own, LANES - 1);
    }
    if (offset != *size)
        return PICI_E_CORRUPT;
    if (count != job.count || dtype != job.dtype)
        return PICI_E_ARG;
    return flags && warp_hash(job.delta, *size, SMALL_CHECKSUM_AT) != hw::load(word + 3) ? PICI_E_CHECKSUM : PICI_OK;
}

PICI_KERNEL(LANES, 1) small_open_kernel(const small_job job)
{
    uint64_t size;
    const int status = check_delta(job, &size);
    if (hw::lane() == 0)
        put_result(job.result, pici_cuda_result{status ? 0 : size, status, 0, 0, 0});
}

/* The bytes of chunk chunk, and whether it is a context chunk. */
PICI_DEV uint32_t chunk_bytes(const small_job &job, uint64_t chunk, bool *context)
{
    const uint32_t entry = hw::load((const uint32_t *)(job.delta + SMALL_HEADER_BYTES) + chunk);
    *context = (entry & SMALL_CONTEXT) != 0;
    return entry & ~SMALL_CONTEXT;
}

template <unsigned DTYPE> PICI_KERNEL(LANES, 16) small_read_kernel(const small_job job)
{
    using T = typename small_kind<DTYPE>::element;
    PICI_BLOCK_MEMORY(memory);
    if (hw::load(&job.result->status))
        return;
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        bool context;
        const uint32_t bytes = chunk_bytes(job, chunk, &context);
        if (context && !warp_apply_small<DTYPE>((T *)job.dst + chunk * SMALL_CHUNK, small_elements_of(job.count, chunk),
                                                job.delta + hw::load(job.table + chunk), bytes,
                                                job.slots + hw::block_x() * job.slot_bytes, (small_memory *)memory))
            hw::atomic_max(&job.control->fault, UINT64_C(1));
    }
}

/* Apply the XOR chunk at `block`, which is aligned. By a thread block. */
template <class T>
PICI_DEV bool apply_xor(const small_job &job, uint64_t chunk, const uint8_t *block, uint32_t bytes, uint8_t *memory)
{
    const uint32_t count = small_elements_of(job.count, chunk);
    block_view view = block_view();
    if (parse(view, block, bytes).rule || view.format == PICI_PACKED || view.flags & FLAG_CHECKSUM)
        return false;
    return !block_apply((T *)job.dst + chunk * SMALL_CHUNK, count, job.dtype, block, bytes, memory);
}

/* XOR chunks; and the end: the thread block that ends last writes the status. */
template <class T> PICI_KERNEL(XOR_THREADS, 2) small_apply_xor_kernel(const small_job job)
{
    PICI_BLOCK_MEMORY(memory);
    const bool valid = hw::load(&job.result->status) == PICI_OK;
    bool good = true;
    for (uint64_t chunk = hw::block_x(); valid && chunk < job.chunks; chunk += hw::blocks_x()) {
        bool context;
        const uint32_t bytes = chunk_bytes(job, chunk, &context);
        uint8_t *const block = job.slots + hw::block_x() * job.slot_bytes;
        if (context) {
            good = good && job.context;
            continue;
        }
        if (bytes < HEADER_BYTES || bytes > job.slot_bytes) {
            good = false;
            continue;
        }
        copy_bytes(block, job.delta + hw::load(job.table + chunk), bytes, hw::thread(), hw::threads());
        hw::syncthreads();
        good = apply_xor<T>(job, chunk, block, bytes, memory) && good;
        hw::syncthreads();
    }
    if (!good && hw::thread() == 0)
        hw::atomic_max(&job.control->fault, UINT64_C(1));
    if (last_of_job(job.control) && hw::lane() == 0 && valid && hw::load_settled(&job.control->fault)) {
        hw::store(&job.result->len, UINT64_C(0));
        hw::store(&job.result->status, (int32_t)PICI_E_CORRUPT);
    }
}

/* ---- arguments ---- */

static uint64_t chunk_elements(uint64_t count)
{
    return count < SMALL_CHUNK ? count : (uint64_t)SMALL_CHUNK;
}

static uint64_t up16(uint64_t bytes)
{
    return small_up16(bytes);
}

static uint64_t table_bytes(uint64_t count)
{
    return sizeof(pici_cuda_control) + up16(8 * small_chunks_of(count));
}

/* The longest block of count elements in a format, or in any. */
static uint64_t longest(unsigned dtype, unsigned format, uint64_t count)
{
    return up16(pici_bound((enum pici_format)format, (enum pici_dtype)dtype, count));
}

static uint64_t longest_of_any(unsigned dtype, uint64_t count)
{
    uint64_t most = 0;
    for (unsigned f = PICI_DENSE; f <= PICI_HYBRID; f++)
        most = longest(dtype, f, count) > most ? longest(dtype, f, count) : most;
    return most;
}

/* Bytes of a slot, and of a chunk that is made. */
static uint64_t make_slot(unsigned dtype, unsigned format, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest(dtype, format, most);
    uint64_t room = small_has_context(dtype) ? SMALL_MAKE_BYTES<uint16_t>(most) : 0;
    if (dtype == PICI_F32)
        room = SMALL_MAKE_BYTES<uint32_t>(most);
    return room > block ? room : block;
}

static uint64_t made_bytes(unsigned dtype, unsigned format, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest(dtype, format, most),
                   context = up16(small_limit<uint8_t>(0) + (most << pici::width_log2(dtype)));
    return small_has_context(dtype) && context > block ? context : block;
}

static uint64_t read_slot(unsigned dtype, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest_of_any(dtype, most);
    uint64_t room = small_has_context(dtype) ? SMALL_READ_BYTES<uint16_t>(most) : 0;
    if (dtype == PICI_F32)
        room = SMALL_READ_BYTES<uint32_t>(most);
    return room > block ? room : block;
}

/* fixed + at_once * slot + chunks * made bytes; 0 if that does not fit in size_t. */
static size_t workspace_of(uint64_t count, unsigned at_once, uint64_t slot, uint64_t made)
{
    const uint64_t chunks = small_chunks_of(count), most = at_once ? at_once : AT_ONCE;
    const uint64_t slots = chunks < most ? chunks : most;
    uint64_t bytes = 0;
    if (count > SIZE_MAX / 64 || !pici::muladd(&bytes, chunks, made, table_bytes(count)) ||
        !pici::muladd(&bytes, slots, slot, bytes) || bytes > SIZE_MAX)
        return 0;
    return (size_t)bytes;
}

static bool is_format(unsigned format)
{
    return format == PICI_DENSE || format == PICI_BITMAP || format == PICI_COO || format == PICI_HYBRID;
}

size_t pici_diff_small_cuda_workspace(enum pici_format format, enum pici_dtype dtype, uint64_t count, unsigned at_once)
{
    if (pici::width_log2((unsigned)dtype) < 0 || !is_format((unsigned)format))
        return 0;
    return workspace_of(count, at_once, make_slot((unsigned)dtype, (unsigned)format, count),
                        made_bytes((unsigned)dtype, (unsigned)format, count));
}

size_t pici_apply_small_cuda_workspace(enum pici_dtype dtype, uint64_t count, unsigned at_once)
{
    return pici::width_log2((unsigned)dtype) < 0 ? 0
                                                 : workspace_of(count, at_once, read_slot((unsigned)dtype, count), 0);
}

/* Are these bytes valid as a part of a call: aligned, and apart from the delta, the result and the workspace? */
static bool is_apart(const small_job &job, const void *memory, uint64_t bytes, uintptr_t alignment,
                     const void *workspace, size_t workspace_bytes)
{
    return (uintptr_t)memory % alignment == 0 && !overlap(memory, bytes, job.delta, job.bytes) &&
           !overlap(memory, bytes, job.result, sizeof *job.result) &&
           !overlap(memory, bytes, workspace, workspace_bytes);
}

/* Divide up the workspace. Returns how many thread blocks have a slot; 0: it is too small. */
static unsigned divide(small_job &job, uint8_t *workspace, size_t bytes, uint64_t slot, uint64_t made)
{
    const uint64_t fixed = table_bytes(job.count) + job.chunks * made, left = bytes < fixed ? 0 : bytes - fixed;
    const uint64_t slots = slot ? left / slot : 1;
    job.control = (pici_cuda_control *)workspace;
    job.table = (uint64_t *)(workspace + sizeof *job.control);
    job.made = workspace + table_bytes(job.count);
    job.made_bytes = made;
    job.slots = job.made + job.chunks * made;
    job.slot_bytes = slot;
    if (bytes < fixed)
        return 0;
    if (!job.chunks)
        return 1;
    const uint64_t blocks = slots < job.chunks ? slots : job.chunks;
    return (unsigned)(blocks < 1 << 16 ? blocks : 1 << 16);
}

/* What diff and apply share of the arguments. */
static enum pici_status check_job(const small_job &job, const void *workspace, size_t workspace_bytes)
{
    const int width_log2 = pici::width_log2(job.dtype);
    if (width_log2 < 0 || !job.delta || !job.result || !workspace || (uintptr_t)job.delta % 16 ||
        (uintptr_t)job.result % 8 || (uintptr_t)workspace % 16 || job.count > SIZE_MAX / 64 ||
        overlap(job.result, sizeof *job.result, job.delta, job.bytes) ||
        overlap(workspace, workspace_bytes, job.delta, job.bytes) ||
        overlap(workspace, workspace_bytes, job.result, sizeof *job.result))
        return PICI_E_ARG;
    return PICI_OK;
}

/* ---- launches ---- */

template <unsigned DTYPE> static cudaError_t launch_make(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_make_kernel<DTYPE>, blocks, 1, LANES, sizeof(small_memory), job, stream);
}

template <unsigned DTYPE> static cudaError_t launch_read(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_read_kernel<DTYPE>, blocks, 1, LANES, sizeof(small_memory), job, stream);
}

static cudaError_t launch_make_of(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    switch (job.dtype) {
    case PICI_F32: return launch_make<PICI_F32>(job, blocks, stream);
    case PICI_F16: return launch_make<PICI_F16>(job, blocks, stream);
    default: return launch_make<PICI_BF16>(job, blocks, stream);
    }
}

static cudaError_t launch_read_of(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    switch (job.dtype) {
    case PICI_F32: return launch_read<PICI_F32>(job, blocks, stream);
    case PICI_F16: return launch_read<PICI_F16>(job, blocks, stream);
    default: return launch_read<PICI_BF16>(job, blocks, stream);
    }
}

template <class T, unsigned FORMAT>
static cudaError_t launch_xor(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_xor_kernel<T, FORMAT>, blocks, 1, XOR_THREADS, MAKE_BYTES<T>(FORMAT, XOR_THREADS), job, stream);
}

template <class T> static cudaError_t launch_xor_of(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    switch (job.format) {
    case PICI_DENSE: return launch_xor<T, PICI_DENSE>(job, blocks, stream);
    case PICI_BITMAP: return launch_xor<T, PICI_BITMAP>(job, blocks, stream);
    case PICI_COO: return launch_xor<T, PICI_COO>(job, blocks, stream);
    default: return launch_xor<T, PICI_HYBRID>(job, blocks, stream);
    }
}

static cudaError_t launch_xors(const small_job &job, unsigned blocks, cudaStream_t stream)
{
#define LAUNCH(T) launch_xor_of<T>(job, blocks, stream)
    BY_WIDTH(job.dtype, LAUNCH)
#undef LAUNCH
}

template <class T> static cudaError_t launch_apply_xor(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_apply_xor_kernel<T>, blocks, 1, XOR_THREADS, READ_BYTES<T>(XOR_THREADS), job, stream);
}

static cudaError_t launch_apply_xors(const small_job &job, unsigned blocks, cudaStream_t stream)
{
#define LAUNCH(T) launch_apply_xor<T>(job, blocks, stream)
    BY_WIDTH(job.dtype, LAUNCH)
#undef LAUNCH
}

enum pici_status pici_diff_small_cuda(void *block, size_t capacity, struct pici_cuda_result *result, const void *base,
                                      const void *src, uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                      void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    small_job job = {};
    job.delta = (uint8_t *)block;
    job.bytes = capacity;
    job.result = result;
    job.base = base;
    job.src = src;
    job.count = count;
    job.chunks = small_chunks_of(count);
    job.dtype = (unsigned)dtype;
    job.context = small_has_context(job.dtype);
    job.format = (unsigned)format;
    const enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (status)
        return status;
    if (format == PICI_AUTO || dtype == PICI_F8E4M3 || dtype == PICI_F8E5M2)
        return PICI_E_UNSUPPORTED;
    const uint64_t bytes = count << pici::width_log2(job.dtype);
    const uintptr_t width = (uintptr_t)1 << pici::width_log2(job.dtype);
    if (!is_format(job.format) || (count && (!base || !src)) ||
        !is_apart(job, base, bytes, width, workspace, workspace_bytes) ||
        !is_apart(job, src, bytes, width, workspace, workspace_bytes))
        return PICI_E_ARG;
    const unsigned blocks = divide(job, (uint8_t *)workspace, workspace_bytes, make_slot(job.dtype, job.format, count),
                                   made_bytes(job.dtype, job.format, count));
    if (!blocks)
        return PICI_E_ARG;
    if (capacity < SMALL_HEADER_BYTES || (capacity - SMALL_HEADER_BYTES) / 4 < job.chunks)
        return PICI_E_SPACE;
    cudaError_t error = cudaSuccess;
    if (job.chunks && job.context)
        error = launch_make_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_xors(job, blocks, stream);
    if (!error)
        error = launch(small_place_kernel, 1, 1, LANES, 0, job, stream);
    if (job.chunks && !error)
        error = launch(small_copy_kernel, blocks, 1, COPY_THREADS, 0, job, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_apply_small_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                       const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream)
{
    small_job job = {};
    job.delta = (uint8_t *)block;
    job.bytes = size;
    job.len_at = len_at;
    job.result = result;
    job.dst = dst;
    job.count = count;
    job.chunks = small_chunks_of(count);
    job.dtype = (unsigned)dtype;
    job.context = small_has_context(job.dtype);
    const enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (status)
        return status;
    const uint64_t bytes = count << pici::width_log2(job.dtype);
    if ((count && !dst) || (uintptr_t)len_at % 8 || (len_at && overlap(workspace, workspace_bytes, len_at, 8)) ||
        !is_apart(job, dst, bytes, (uintptr_t)1 << pici::width_log2(job.dtype), workspace, workspace_bytes))
        return PICI_E_ARG;
    const unsigned blocks = divide(job, (uint8_t *)workspace, workspace_bytes, read_slot(job.dtype, count), 0);
    if (!blocks)
        return PICI_E_ARG;
    cudaError_t error = cudaMemsetAsync(job.control, 0, sizeof *job.control, stream);
    if (!error)
        error = launch(small_open_kernel, 1, 1, LANES, 0, job, stream);
    if (job.chunks && !error && job.context)
        error = launch_read_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_apply_xors(job, blocks, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}
