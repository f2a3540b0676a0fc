/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas (formats/small-delta.md): a warp codes a context chunk, a thread block an XOR chunk. Thread block b has
 * slot b of the workspace, and takes chunks b, b + B, b + 2 B, ... of B thread blocks. A chunk's place depends on the
 * sizes of all before it, so chunks are made elsewhere and then copied; and an XOR chunk is copied before it is read,
 * to where it is aligned. */
#include "launch.cuh"
#include "pici/delta.h"

using namespace pici;

/* Threads that make or apply an XOR chunk, by the width of an element: each warp has a stage in shared memory. */
template <class T> constexpr unsigned XOR_THREADS = sizeof(T) == 8 ? 64 : 128;
constexpr unsigned COPY_THREADS = 256;
constexpr unsigned SHARED_LEAST = 99 << 10; /* bytes that every GPU has for a thread block: 8.6, 8.9 and 12.0 no more */
enum : unsigned { AT_ONCE = 256 /* chunks, unless the caller says another number */ };

/* A chunk that is made: its bytes, and in the upper bits what it is. */
constexpr uint64_t MADE_CONTEXT = UINT64_C(1) << 63, MADE_MAYBE_LONGER = UINT64_C(1) << 62,
                   MADE_BYTES = MADE_MAYBE_LONGER - 1;

/* A chunk that is applied. Deltas in a row may have more chunks than one delta of all their elements: one more for
 * each of them. */
struct small_listed {
    uint64_t offset;  /* of its bytes, in the delta */
    uint64_t element; /* of dst, the first */
    uint32_t count;   /* elements */
    uint32_t entry;   /* of the directory: bytes, and SMALL_CONTEXT */
};
enum : unsigned { ROW_MOST = 1024 /* deltas in a row */ };

struct small_job {
    uint8_t *delta;
    uint64_t bytes; /* of the delta; or the capacity there */
    const uint64_t *len_at;
    struct pici_cuda_result *result;
    const void *base;
    const void *src;
    void *dst;
    uint64_t count, chunks;
    uint64_t first, of; /* of a part of a tensor: elements before it, and of the tensor */
    unsigned dtype, format;
    unsigned version, holds;
    unsigned kind; /* the dtype, or SMALL_E2M1X2; 0: there are no context chunks */
    struct pici_cuda_control *control;
    uint64_t *table;            /* diff: [chunks]: bytes that were made, then where a chunk begins */
    struct small_listed *lists; /* apply: [chunks + ROW_MOST], of which `units` of the control are used */
    uint8_t *slots;             /* of slot_bytes each, one for each thread block */
    uint64_t slot_bytes;        /* a multiple of 16, like the next */
    uint8_t *made;              /* [chunks] of made_bytes each */
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

PICI_DEV_HOST uint32_t header_bytes(unsigned version)
{
    return version == SMALL_VERSION ? SMALL_HEADER_BYTES : SMALL_PART_HEADER_BYTES;
}

/* ---- encoding ---- */

template <unsigned KIND> PICI_KERNEL(LANES, 16) small_make_kernel(const small_job job)
{
    using T = typename small_kind<KIND>::element;
    PICI_BLOCK_MEMORY(memory);
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        uint32_t least;
        const uint32_t bytes =
            warp_diff_small<KIND>(job.made + chunk * job.made_bytes, &least, (const T *)job.base + chunk * SMALL_CHUNK,
                                  (const T *)job.src + chunk * SMALL_CHUNK, small_elements_of(job.count, chunk),
                                  job.slots + hw::block_x() * job.slot_bytes, (small_memory *)memory);
        if (hw::lane() == 0)
            hw::store(job.table + chunk,
                      bytes ? bytes | MADE_CONTEXT | (bytes < least ? 0 : MADE_MAYBE_LONGER) : UINT64_C(0));
    }
}

/* XOR chunks, where there is no context chunk, or one that may be longer. */
template <class T, unsigned FORMAT> PICI_KERNEL(XOR_THREADS<T>, 1) small_xor_kernel(const small_job job)
{
    PICI_BLOCK_MEMORY(memory);
    for (uint64_t chunk = hw::block_x(); chunk < job.chunks; chunk += hw::blocks_x()) {
        const uint64_t made = job.kind ? hw::load(job.table + chunk) : 0, limit = made & MADE_BYTES;
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
    const uint32_t head = header_bytes(job.version);
    uint64_t offset = head + 4 * job.chunks;
    for (uint64_t from = 0; from < job.chunks; from += LANES) {
        const uint64_t chunk = from + lane, made = chunk < job.chunks ? hw::load(job.table + chunk) : 0,
                       own = made & MADE_BYTES;
        const uint64_t before = warp_scan(own);
        if (chunk < job.chunks) {
            hw::store((uint32_t *)(job.delta + head) + chunk,
                      (uint32_t)own | (made & MADE_CONTEXT ? SMALL_CONTEXT : 0));
            hw::store(job.table + chunk, offset + before);
        }
        offset += hw::shfl(before + own, LANES - 1);
    }
    const bool fits = offset <= job.bytes;
    const int status = fits ? PICI_OK : PICI_E_SPACE;
    if (lane == 0) {
        uint64_t *const word = (uint64_t *)job.delta;
        hw::store(word, fits ? SMALL_MAGIC | (uint64_t)job.version << 32 | (uint64_t)job.dtype << 40 |
                                   (uint64_t)job.holds << 56
                             : 0);
        hw::store(word + 1, fits ? job.count : 0);
        hw::store(word + 2, fits ? offset : 0);
        hw::store(word + 3, UINT64_C(0));
        if (head == SMALL_PART_HEADER_BYTES) {
            hw::store(word + 4, job.first);
            hw::store(word + 5, job.of);
        }
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

/* The header of a delta. */
struct small_header {
    const uint8_t *at;
    uint64_t bytes, count, chunks, first, of, checksum;
    unsigned version, dtype, flags, holds;
};

/* Read the header at `at`, with `left` bytes from there on, and check the rules "size" to "part". */
PICI_DEV int read_header(small_header *header, const uint8_t *at, uint64_t left)
{
    if (left < SMALL_HEADER_BYTES || load_bytes(at, 4) != SMALL_MAGIC)
        return PICI_E_CORRUPT;
    const uint64_t kind = load_bytes(at + 4, 4);
    header->at = at;
    header->version = kind & 255;
    header->dtype = kind >> 8 & 255;
    header->flags = kind >> 16 & 255;
    header->holds = kind >> 24 & 255;
    header->count = load_bytes(at + 8, 8);
    header->bytes = load_bytes(at + 16, 8);
    header->checksum = load_bytes(at + SMALL_CHECKSUM_AT, 8);
    header->chunks = small_chunks_of(header->count);
    if (header->version < SMALL_VERSION || header->version > SMALL_NARROW_VERSION)
        return PICI_E_VERSION;
    const bool part = header->version != SMALL_VERSION, narrow = header->version == SMALL_NARROW_VERSION;
    const uint32_t head = header_bytes(header->version);
    if (width_log2(header->dtype) < 0 || header->flags > SMALL_HAS_CHECKSUM ||
        (narrow ? !small_is_narrow(header->dtype, header->holds) : header->holds != 0) ||
        (!header->flags && header->checksum) || header->bytes > left || (!part && header->bytes != left) ||
        header->bytes < head)
        return PICI_E_CORRUPT;
    header->first = part ? load_bytes(at + SMALL_FIRST_AT, 8) : 0;
    header->of = part ? load_bytes(at + SMALL_OF_AT, 8) : header->count;
    if (part && (header->count > header->of || (header->count == header->of && !narrow) ||
                 header->first > header->of - header->count))
        return PICI_E_CORRUPT;
    return header->chunks > (header->bytes - head) / 4 ? PICI_E_CORRUPT : PICI_OK;
}

/* What is found out of the deltas in a row. */
struct small_row {
    uint64_t listed;  /* chunks to apply */
    uint64_t covered; /* the element after those that are covered so far */
    uint64_t end;     /* after the last delta's */
    bool wrong;       /* they are not of these elements */
    bool cut;         /* a chunk has only some of them */
    bool stray;       /* a context chunk where there is none of the dtype */
    bool forged;      /* a checksum is wrong */
};

/* Check the rule "directory", and list the chunks that have some of the elements. */
PICI_DEV int list_chunks(const small_job &job, const small_header &header, small_row *row)
{
    const unsigned lane = hw::lane();
    const uint32_t head = header_bytes(header.version);
    const uint64_t end = job.first + job.count, most = job.chunks + ROW_MOST;
    const bool context = small_has_context(header.dtype, header.version);
    uint64_t offset = head + 4 * header.chunks;
    for (uint64_t from = 0; from < header.chunks; from += LANES) {
        const uint64_t chunk = from + lane, first = header.first + chunk * SMALL_CHUNK;
        const bool is_there = chunk < header.chunks;
        const uint32_t entry = is_there ? (uint32_t)load_bytes(header.at + head + 4 * chunk, 4) : 0,
                       own = entry & ~SMALL_CONTEXT, count = is_there ? small_elements_of(header.count, chunk) : 0;
        const uint64_t before = warp_scan((uint64_t)own);
        const bool some = is_there && job.count && header.of == job.of && first < end && first + count > job.first,
                   all = some && first >= job.first && first + count <= end;
        const unsigned who = hw::ballot(some);
        const uint64_t place = row->listed + hw::popc(who & lanes_below());
        row->cut = hw::ballot(some && !all) || row->cut;
        row->stray = hw::ballot(some && entry & SMALL_CONTEXT && !context) || row->stray;
        if (all && place < most) {
            struct small_listed *const listed = job.lists + place;
            hw::store(&listed->offset, (uint64_t)(header.at - job.delta) + offset + before);
            hw::store(&listed->element, first - job.first);
            hw::store(&listed->count, count);
            hw::store(&listed->entry, entry);
        }
        row->listed += hw::popc(who);
        offset += hw::shfl(before + own, LANES - 1);
    }
    return offset == header.bytes ? PICI_OK : PICI_E_CORRUPT;
}

/* The first delta, or one that follows others: what is wrong with its header, its directory and its place. Lists its
 * chunks. */
PICI_DEV int take_delta(const small_job &job, const small_header &header, const small_header *before, small_row *row)
{
    const int status = list_chunks(job, header, row);
    if (status)
        return status;
    if (before->at &&
        (before->version == SMALL_VERSION || header.version != before->version || header.dtype != before->dtype ||
         header.holds != before->holds || header.of != before->of || header.first < row->end))
        return PICI_E_CORRUPT;
    row->end = header.first + header.count;
    if (header.flags && warp_hash<false>(header.at, header.bytes, SMALL_CHECKSUM_AT) != header.checksum)
        row->forged = true;
    if (header.of != job.of || header.dtype != job.dtype) {
        row->wrong = true;
    } else if (job.count && header.count && header.first < job.first + job.count && row->end > job.first) {
        row->wrong = row->wrong || header.first > row->covered;
        row->covered = row->end;
    }
    return PICI_OK;
}

/* What is wrong with the headers, the directories and the checksums; also lists the chunks. By a warp. */
PICI_DEV int check_deltas(const small_job &job, uint64_t *size)
{
    *size = job.len_at ? hw::load(job.len_at) : job.bytes;
    if (*size > job.bytes)
        return PICI_E_ARG;
    small_row row = {0, job.first, 0, false, false, false, false};
    small_header header = {}, before = {};
    uint64_t offset = 0;
    do {
        int status = read_header(&header, job.delta + offset, *size - offset);
        if (!status)
            status = take_delta(job, header, &before, &row);
        if (status)
            return status;
        before = header;
        offset += header.bytes;
    } while (offset < *size);
    if (hw::lane() == 0)
        hw::store(&job.control->units, row.listed);
    if (row.wrong || row.cut || row.covered < job.first + job.count)
        return PICI_E_ARG;
    if (row.listed > job.chunks + ROW_MOST)
        return PICI_E_UNSUPPORTED;
    if (row.forged)
        return PICI_E_CHECKSUM;
    return row.stray ? PICI_E_CORRUPT : PICI_OK;
}

PICI_KERNEL(LANES, 1) small_open_kernel(const small_job job)
{
    uint64_t size;
    const int status = check_deltas(job, &size);
    if (hw::lane() == 0)
        put_result(job.result, pici_cuda_result{status ? 0 : size, status, 0, 0, 0});
}

/* A chunk that is listed. */
PICI_DEV small_listed listed_chunk(const small_job &job, uint64_t i)
{
    const struct small_listed *const listed = job.lists + i;
    return small_listed{hw::load(&listed->offset), hw::load(&listed->element), hw::load(&listed->count),
                        hw::load(&listed->entry)};
}

template <unsigned KIND> PICI_KERNEL(LANES, 16) small_read_kernel(const small_job job)
{
    using T = typename small_kind<KIND>::element;
    PICI_BLOCK_MEMORY(memory);
    if (hw::load(&job.result->status))
        return;
    const uint64_t chunks = hw::load(&job.control->units);
    for (uint64_t i = hw::block_x(); i < chunks; i += hw::blocks_x()) {
        const small_listed chunk = listed_chunk(job, i);
        if (chunk.entry & SMALL_CONTEXT &&
            !warp_apply_small<KIND>((T *)job.dst + chunk.element, chunk.count, job.delta + chunk.offset,
                                    chunk.entry & ~SMALL_CONTEXT, job.slots + hw::block_x() * job.slot_bytes,
                                    (small_memory *)memory))
            hw::atomic_max(&job.control->fault, UINT64_C(1));
    }
}

/* Apply the XOR chunk at `block`, which is aligned. By a thread block. */
template <class T>
PICI_DEV bool apply_xor(const small_job &job, const small_listed &chunk, const uint8_t *block, uint8_t *memory)
{
    block_view view = block_view();
    if (parse(view, block, chunk.entry).rule || view.format == PICI_PACKED || view.flags & FLAG_CHECKSUM)
        return false;
    return !block_apply((T *)job.dst + chunk.element, chunk.count, job.dtype, block, chunk.entry, memory);
}

/* XOR chunks; and the end: the thread block that ends last writes the status. */
template <class T> PICI_KERNEL(XOR_THREADS<T>, 2) small_apply_xor_kernel(const small_job job)
{
    PICI_BLOCK_MEMORY(memory);
    const bool valid = hw::load(&job.result->status) == PICI_OK;
    const uint64_t chunks = valid ? hw::load(&job.control->units) : 0;
    bool good = true;
    for (uint64_t i = hw::block_x(); i < chunks; i += hw::blocks_x()) {
        const small_listed chunk = listed_chunk(job, i);
        uint8_t *const block = job.slots + hw::block_x() * job.slot_bytes;
        if (chunk.entry & SMALL_CONTEXT)
            continue;
        if (chunk.entry < HEADER_BYTES || chunk.entry > job.slot_bytes) {
            good = false;
            continue;
        }
        copy_bytes(block, job.delta + chunk.offset, chunk.entry, hw::thread(), hw::threads());
        hw::syncthreads();
        good = apply_xor<T>(job, chunk, block, memory) && good;
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

static uint64_t make_table(uint64_t count)
{
    return sizeof(pici_cuda_control) + up16(8 * small_chunks_of(count));
}

static uint64_t read_table(uint64_t count)
{
    return sizeof(pici_cuda_control) + up16(sizeof(small_listed) * (small_chunks_of(count) + ROW_MOST));
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

/* Whose context chunks there may be: the dtype or SMALL_E2M1X2, or 0. */
static unsigned kind_of(unsigned dtype, unsigned version, unsigned holds)
{
    if (!small_has_context(dtype, version))
        return 0;
    return holds ? (unsigned)SMALL_E2M1X2 : dtype;
}

/* The same where the delta tells. */
static unsigned read_kind(unsigned dtype)
{
    const bool narrow = small_is_narrow(dtype, dtype == PICI_U8 ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE);
    return kind_of(dtype, narrow ? SMALL_NARROW_VERSION : SMALL_VERSION, dtype == PICI_U8);
}

/* bytes_of(E, n) of the coder's n elements of type E that `count` elements of a kind are. */
template <class F> static uint64_t room(unsigned kind, uint64_t count, F bytes_of)
{
    switch (kind) {
    case 0: return 0;
    case PICI_F32: return bytes_of(uint32_t(), count);
    case PICI_F8E4M3:
    case PICI_F8E5M2: return bytes_of(uint8_t(), count);
    case SMALL_E2M1X2: return bytes_of(uint8_t(), 2 * count);
    default: return bytes_of(uint16_t(), count);
    }
}

/* Bytes of device memory that a warp needs to encode a chunk of so many elements, or to decode it. */
static uint64_t make_room(unsigned kind, uint64_t count)
{
    return room(kind, count, [](auto element, uint64_t n) { return SMALL_MAKE_BYTES<decltype(element)>(n); });
}

static uint64_t read_room(unsigned kind, uint64_t count)
{
    return room(kind, count, [](auto element, uint64_t n) { return SMALL_READ_BYTES<decltype(element)>(n); });
}

/* Bytes of a slot, and of a chunk that is made. */
static uint64_t make_slot(unsigned kind, unsigned dtype, unsigned format, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest(dtype, format, most), room = make_room(kind, most);
    return room > block ? room : block;
}

static uint64_t made_bytes(unsigned kind, unsigned dtype, unsigned format, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest(dtype, format, most),
                   context = up16(small_limit<uint8_t>(0) + (most << pici::width_log2(dtype)));
    return kind && context > block ? context : block;
}

static uint64_t read_slot(unsigned dtype, uint64_t count)
{
    const uint64_t most = chunk_elements(count), block = longest_of_any(dtype, most),
                   room = read_room(read_kind(dtype), most);
    return room > block ? room : block;
}

/* table + at_once * slot + chunks * made bytes; 0 if that does not fit in size_t. */
static size_t workspace_of(uint64_t table, uint64_t count, unsigned at_once, uint64_t slot, uint64_t made)
{
    const uint64_t chunks = small_chunks_of(count), most = at_once ? at_once : AT_ONCE;
    const uint64_t slots = chunks < most ? chunks : most;
    uint64_t bytes = 0;
    if (count > SIZE_MAX / 64 || !pici::muladd(&bytes, chunks, made, table) ||
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
    const unsigned kind = read_kind((unsigned)dtype);
    return workspace_of(make_table(count), count, at_once, make_slot(kind, (unsigned)dtype, (unsigned)format, count),
                        made_bytes(kind, (unsigned)dtype, (unsigned)format, count));
}

size_t pici_apply_small_cuda_workspace(enum pici_dtype dtype, uint64_t count, unsigned at_once)
{
    if (pici::width_log2((unsigned)dtype) < 0)
        return 0;
    return workspace_of(read_table(count), count, at_once, read_slot((unsigned)dtype, count), 0);
}

/* Are these bytes valid as a part of a call: aligned, and apart from the delta, the result and the workspace? */
static bool is_apart(const small_job &job, const void *memory, uint64_t bytes, uintptr_t alignment,
                     const void *workspace, size_t workspace_bytes)
{
    return (uintptr_t)memory % alignment == 0 && !overlap(memory, bytes, job.delta, job.bytes) &&
           !overlap(memory, bytes, job.result, sizeof *job.result) &&
           !overlap(memory, bytes, workspace, workspace_bytes);
}

/* Divide up the workspace, which begins with `table` bytes. Returns how many thread blocks have a slot; 0: it is too
 * small. */
static unsigned divide(small_job &job, uint8_t *workspace, size_t bytes, uint64_t table, uint64_t slot, uint64_t made)
{
    const uint64_t fixed = table + job.chunks * made, left = bytes < fixed ? 0 : bytes - fixed;
    const uint64_t slots = slot ? left / slot : 1;
    job.control = (pici_cuda_control *)workspace;
    job.table = (uint64_t *)(workspace + sizeof *job.control);
    job.lists = (struct small_listed *)job.table;
    job.made = workspace + table;
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

template <unsigned KIND> static cudaError_t launch_make(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_make_kernel<KIND>, blocks, 1, LANES, sizeof(small_memory), job, stream);
}

template <unsigned KIND> static cudaError_t launch_read(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    return launch(small_read_kernel<KIND>, blocks, 1, LANES, sizeof(small_memory), job, stream);
}

/* Call LAUNCH<kind>(job, blocks, stream). */
#define BY_KIND(LAUNCH)                                                                                                \
    switch (job.kind) {                                                                                                \
    case PICI_F32: return LAUNCH<PICI_F32>(job, blocks, stream);                                                       \
    case PICI_F16: return LAUNCH<PICI_F16>(job, blocks, stream);                                                       \
    case PICI_F8E4M3: return LAUNCH<PICI_F8E4M3>(job, blocks, stream);                                                 \
    case PICI_F8E5M2: return LAUNCH<PICI_F8E5M2>(job, blocks, stream);                                                 \
    case SMALL_E2M1X2: return LAUNCH<SMALL_E2M1X2>(job, blocks, stream);                                               \
    default: return LAUNCH<PICI_BF16>(job, blocks, stream);                                                            \
    }

static cudaError_t launch_make_of(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    BY_KIND(launch_make)
}

static cudaError_t launch_read_of(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    BY_KIND(launch_read)
}

template <class T, unsigned FORMAT>
static cudaError_t launch_xor(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    constexpr unsigned threads = XOR_THREADS<T>, shared = MAKE_BYTES<T>(FORMAT, threads);
    static_assert(shared <= SHARED_LEAST, "a thread block has so much on every GPU");
    return launch(small_xor_kernel<T, FORMAT>, blocks, 1, threads, shared, job, stream);
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
    constexpr unsigned threads = XOR_THREADS<T>, shared = READ_BYTES<T>(threads);
    static_assert(shared <= SHARED_LEAST, "a thread block has so much on every GPU");
    return launch(small_apply_xor_kernel<T>, blocks, 1, threads, shared, job, stream);
}

static cudaError_t launch_apply_xors(const small_job &job, unsigned blocks, cudaStream_t stream)
{
#define LAUNCH(T) launch_apply_xor<T>(job, blocks, stream)
    BY_WIDTH(job.dtype, LAUNCH)
#undef LAUNCH
}

enum pici_status pici_diff_small_part_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                           const void *base, const void *src, uint64_t count, uint64_t first,
                                           uint64_t of, enum pici_dtype dtype, enum pici_format format,
                                           const struct pici_opts *given, void *workspace, size_t workspace_bytes,
                                           cudaStream_t stream)
{
    struct pici_opts options;
    small_job job = {};
    job.delta = (uint8_t *)block;
    job.bytes = capacity;
    job.result = result;
    job.base = base;
    job.src = src;
    job.count = count;
    job.chunks = small_chunks_of(count);
    job.first = first;
    job.of = of;
    job.dtype = (unsigned)dtype;
    job.format = (unsigned)format;
    enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (!status)
        status = pici_cuda_options(&options, given);
    if (status)
        return status;
    if (format == PICI_AUTO)
        return PICI_E_UNSUPPORTED;
    job.holds = (unsigned)options.holds;
    const bool narrow = small_is_narrow(job.dtype, job.holds);
    const uint64_t bytes = count << pici::width_log2(job.dtype);
    const uintptr_t width = (uintptr_t)1 << pici::width_log2(job.dtype);
    if (!is_format(job.format) || (count && (!base || !src)) || count > of || first > of - count ||
        (job.holds && !narrow) || !is_apart(job, base, bytes, width, workspace, workspace_bytes) ||
        !is_apart(job, src, bytes, width, workspace, workspace_bytes))
        return PICI_E_ARG;
    if (narrow)
        job.version = SMALL_NARROW_VERSION;
    else
        job.version = count == of ? SMALL_VERSION : SMALL_PART_VERSION;
    job.kind = kind_of(job.dtype, job.version, job.holds);
    const unsigned blocks =
        divide(job, (uint8_t *)workspace, workspace_bytes, make_table(count),
               make_slot(job.kind, job.dtype, job.format, count), made_bytes(job.kind, job.dtype, job.format, count));
    if (!blocks)
        return PICI_E_ARG;
    const uint32_t head = header_bytes(job.version);
    if (capacity < head || (capacity - head) / 4 < job.chunks)
        return PICI_E_SPACE;
    cudaError_t error = cudaSuccess;
    if (job.chunks && job.kind)
        error = launch_make_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_xors(job, blocks, stream);
    if (!error)
        error = launch(small_place_kernel, 1, 1, LANES, 0, job, stream);
    if (job.chunks && !error)
        error = launch(small_copy_kernel, blocks, 1, COPY_THREADS, 0, job, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
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
    small_job job = {};
    job.delta = (uint8_t *)block;
    job.bytes = size;
    job.len_at = len_at;
    job.result = result;
    job.dst = dst;
    job.count = count;
    job.chunks = small_chunks_of(count);
    job.first = first;
    job.of = of;
    job.dtype = (unsigned)dtype;
    const enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (status)
        return status;
    job.kind = read_kind(job.dtype);
    const uint64_t bytes = count << pici::width_log2(job.dtype);
    if ((count && !dst) || count > of || first > of - count || (uintptr_t)len_at % 8 ||
        (len_at && overlap(workspace, workspace_bytes, len_at, 8)) ||
        !is_apart(job, dst, bytes, (uintptr_t)1 << pici::width_log2(job.dtype), workspace, workspace_bytes))
        return PICI_E_ARG;
    const unsigned blocks =
        divide(job, (uint8_t *)workspace, workspace_bytes, read_table(count), read_slot(job.dtype, count), 0);
    if (!blocks)
        return PICI_E_ARG;
    cudaError_t error = cudaMemsetAsync(job.control, 0, sizeof *job.control, stream);
    if (!error)
        error = launch(small_open_kernel, 1, 1, LANES, 0, job, stream);
    if (job.chunks && !error && job.kind)
        error = launch_read_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_apply_xors(job, blocks, stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_apply_small_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                       const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream)
{
    return pici_apply_small_range_cuda(dst, count, 0, count, dtype, block, size, len_at, result, workspace,
                                       workspace_bytes, stream);
}
