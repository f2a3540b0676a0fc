/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas (formats/small-delta.md): a warp codes a context chunk, a thread block codes an XOR chunk. Of B
 * thread blocks, number b has slot b of the workspace, and takes chunks b, b + B, b + 2 B, ... A chunk's place
 * depends on the sizes of all chunks before it, so chunks are made elsewhere and then copied. An XOR chunk is copied
 * to an aligned place before it is read. small_calls.cu has the functions of pici/cuda.h. */
#include "small.cuh"

using namespace pici;

/* Threads that make or apply an XOR chunk, by the width of an element: each warp has a stage in shared memory. */
template <class T> constexpr unsigned XOR_THREADS = sizeof(T) == 8 ? 64 : 128;
constexpr unsigned COPY_THREADS = 256;
constexpr unsigned SHARED_LEAST = 99 << 10; /* bytes that every GPU has for a thread block */
enum : unsigned { AT_ONCE = 256 /* chunks, unless the caller gives another number */ };

/* A finished chunk: its size in bytes, and its kind in the upper bits. */
constexpr uint64_t MADE_CONTEXT = UINT64_C(1) << 63, MADE_MAYBE_LONGER = UINT64_C(1) << 62,
                   MADE_BYTES = MADE_MAYBE_LONGER - 1;

/* Called by `threads` threads: copy `count` bytes. `target` or `from` is aligned to 16. They do not overlap. */
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
    if (version == SMALL_VERSION)
        return SMALL_HEADER_BYTES;
    return version == SMALL_COLUMNS_VERSION ? SMALL_COLUMNS_HEADER_BYTES : SMALL_PART_HEADER_BYTES;
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

/* Make XOR chunks, where there is no context chunk, or where it may be longer. */
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

/* One warp: store where each chunk begins, the header and the directory. */
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
        if (head >= SMALL_PART_HEADER_BYTES) {
            hw::store(word + 4, job.first);
            hw::store(word + 5, job.of);
        }
        if (head >= SMALL_COLUMNS_HEADER_BYTES)
            hw::store(word + 6, job.row);
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
    uint64_t row, columns; /* columns: elements of the tensor's rows, and of the delta's; else 0 */
    unsigned version, dtype, flags, holds;
    bool narrow;
};

/* Check the rule "part" for a part or for columns. */
PICI_DEV bool is_within(small_header *header)
{
    if (!header->row)
        return header->count <= header->of && (header->count < header->of || header->narrow) &&
               header->first <= header->of - header->count;
    const uint64_t rows = header->of / header->row;
    header->columns = rows ? header->count / rows : 0;
    return header->of % header->row == 0 && rows >= 2 && header->count % rows == 0 && header->columns < header->row &&
           header->first <= header->row - header->columns;
}

/* Read the header at `at`, where `left` bytes remain, and check the rules "size" to "part". latest: the latest version
 * to accept. */
PICI_DEV int read_header(small_header *header, const uint8_t *at, uint64_t left, unsigned latest)
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
    if (header->version < SMALL_VERSION || header->version > latest)
        return PICI_E_VERSION;
    const bool part = header->version != SMALL_VERSION, of_columns = header->version == SMALL_COLUMNS_VERSION;
    header->narrow = header->version >= SMALL_NARROW_VERSION && small_is_narrow(header->dtype, header->holds);
    const uint32_t head = header_bytes(header->version);
    if (width_log2(header->dtype) < 0 || header->flags > SMALL_HAS_CHECKSUM ||
        (header->version == SMALL_NARROW_VERSION && !header->narrow) || (header->holds && !header->narrow) ||
        (!header->flags && header->checksum) || header->bytes > left || (!part && header->bytes != left) ||
        header->bytes < head)
        return PICI_E_CORRUPT;
    header->first = part ? load_bytes(at + SMALL_FIRST_AT, 8) : 0;
    header->of = part ? load_bytes(at + SMALL_OF_AT, 8) : header->count;
    header->row = of_columns ? load_bytes(at + SMALL_ROW_AT, 8) : 0;
    header->columns = 0;
    if ((of_columns && !header->row) || (part && !is_within(header)))
        return PICI_E_CORRUPT;
    return header->chunks > (header->bytes - head) / 4 ? PICI_E_CORRUPT : PICI_OK;
}

/* State of the check of deltas in a row. */
struct small_row {
    uint64_t listed;  /* chunks to apply */
    uint64_t covered; /* end of the elements covered so far; for columns, a column, as in the next two */
    uint64_t end;     /* end of the last delta */
    uint64_t window;  /* end of the elements to cover */
    bool wrong;       /* a delta is not of these elements */
    bool cut;         /* a chunk has only some of them */
    bool stray;       /* a context chunk, but its dtype has none */
    bool forged;      /* a checksum is wrong */
};

/* Set *window to the end of the elements to change, or of the columns, in the delta's numbering of the tensor. Returns
 * false if the job's elements are another kind of shard. */
PICI_DEV bool find_window(const small_job &job, const small_header &header, uint64_t *window)
{
    *window = job.first + (job.row ? job.columns : job.count);
    if (header.of != job.of || (job.row && job.row != header.row))
        return false;
    if (!header.row || job.row)
        return true;
    *window = header.row; /* the whole tensor */
    return job.count == job.of && (!job.place.columns || job.place.columns == header.row);
}

/* Write the place of a chunk's elements. element: index of the first in dst, if they are consecutive. */
PICI_DEV void put_placed(small_placed *placed, const small_job &job, const small_header &header, uint64_t chunk,
                         uint64_t element, uint64_t window)
{
    if (header.row) {
        hw::store(&placed->first, chunk * SMALL_CHUNK);
        hw::store(&placed->before, header.first - job.first);
        hw::store(&placed->columns, header.columns);
        hw::store(&placed->stride, job.place.columns ? job.place.stride : window - job.first);
    } else {
        hw::store(&placed->first, element);
        hw::store(&placed->before, UINT64_C(0));
        hw::store(&placed->columns, job.place.columns ? job.place.columns : job.count);
        hw::store(&placed->stride, job.place.stride);
    }
}

/* Check the rule "directory". If `take`, list the chunks that have some of the elements. window: from find_window. */
PICI_DEV int list_chunks(const small_job &job, const small_header &header, bool take, uint64_t window, small_row *row)
{
    const unsigned lane = hw::lane();
    const uint32_t head = header_bytes(header.version);
    const uint64_t end = job.first + job.count, most = job.chunks + ROW_MOST;
    const bool context = small_has_context(header.dtype, header.narrow);
    /* columns: the job's columns before the delta's, and a virtual start of the delta after their elements */
    const uint64_t columns_before = header.first - job.first,
                   origin = header.row ? job.first + header.of / header.row * columns_before : header.first;
    uint64_t offset = head + 4 * header.chunks;
    for (uint64_t from = 0; from < header.chunks; from += LANES) {
        const uint64_t chunk = from + lane, first = origin + chunk * SMALL_CHUNK;
        const bool is_there = chunk < header.chunks;
        const uint32_t entry = is_there ? (uint32_t)load_bytes(header.at + head + 4 * chunk, 4) : 0,
                       own = entry & ~SMALL_CONTEXT, count = is_there ? small_elements_of(header.count, chunk) : 0;
        const uint64_t before = warp_scan((uint64_t)own);
        const bool some = is_there && job.count && take && first < end && first + count > job.first,
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
            if (job.placed)
                put_placed(job.placed + place, job, header, chunk, first - job.first, window);
        }
        row->listed += hw::popc(who);
        offset += hw::shfl(before + own, LANES - 1);
    }
    return offset == header.bytes ? PICI_OK : PICI_E_CORRUPT;
}

/* Check the header, the directory and the place of a delta, the first one or a later one. Lists its chunks. Returns a
 * status. */
PICI_DEV int take_delta(const small_job &job, const small_header &header, const small_header *before, small_row *row)
{
    const bool alike = find_window(job, header, &row->window) && header.dtype == job.dtype;
    const uint64_t end = header.first + (header.row ? header.columns : header.count);
    const bool some = alike && job.count && header.count && header.first < row->window && end > job.first;
    const bool cut = header.row && (header.first < job.first || end > row->window);
    const int status = list_chunks(job, header, some && !cut, row->window, row);
    if (status)
        return status;
    if (before->at && (before->version == SMALL_VERSION || header.version != before->version ||
                       header.dtype != before->dtype || header.holds != before->holds || header.of != before->of ||
                       header.row != before->row || header.first < row->end))
        return PICI_E_CORRUPT;
    row->end = end;
    if (header.flags && warp_hash<false>(header.at, header.bytes, SMALL_CHECKSUM_AT) != header.checksum)
        row->forged = true;
    if (!alike) {
        row->wrong = true;
    } else if (some) {
        row->wrong = row->wrong || cut || header.first > row->covered;
        row->covered = end;
    }
    return PICI_OK;
}

/* Called by a warp: check headers, directories and checksums, and list the chunks. On an error, there are none to
 * apply. */
PICI_DEV int check_deltas(const small_job &job, uint64_t *size)
{
    *size = job.len_at ? hw::load(job.len_at) : job.bytes;
    if (*size > job.bytes)
        return PICI_E_ARG;
    small_row row = {0, job.first, 0, 0, false, false, false, false};
    small_header header = {}, before = {};
    uint64_t offset = 0;
    do {
        int status = read_header(&header, job.delta + offset, *size - offset,
                                 offset ? (unsigned)SMALL_COLUMNS_VERSION : job.version);
        if (!status)
            status = take_delta(job, header, &before, &row);
        if (status)
            return status;
        before = header;
        offset += header.bytes;
    } while (offset < *size);
    if (row.wrong || row.cut || row.covered < row.window)
        return PICI_E_ARG;
    if (row.listed > job.chunks + ROW_MOST)
        return PICI_E_UNSUPPORTED;
    if (row.forged)
        return PICI_E_CHECKSUM;
    if (row.stray)
        return PICI_E_CORRUPT;
    if (hw::lane() == 0)
        hw::store(&job.control->units, row.listed);
    return PICI_OK;
}

PICI_KERNEL(LANES, 1) small_open_kernel(const small_job job)
{
    uint64_t size;
    const int status = check_deltas(job, &size);
    if (hw::lane() == 0)
        put_result(job.result, pici_cuda_result{status ? 0 : size, status, 0, 0, 0});
}

/* Listed chunk i. */
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

/* Called by a thread block: apply the XOR chunk at `block`, which is aligned. */
template <class T>
PICI_DEV bool apply_xor(const small_job &job, const small_listed &chunk, const uint8_t *block, uint8_t *memory)
{
    block_view view = block_view();
    if (parse(view, block, chunk.entry).rule || view.format == PICI_PACKED || view.flags & FLAG_CHECKSUM)
        return false;
    return !block_apply((T *)job.dst + chunk.element, chunk.count, job.dtype, block, chunk.entry, memory);
}

/* Apply XOR chunks, and finish: the last thread block to end writes the status. */
template <class T> PICI_KERNEL(XOR_THREADS<T>, 2) small_apply_xor_kernel(const small_job job)
{
    PICI_BLOCK_MEMORY(memory);
    const uint64_t chunks = hw::load(&job.control->units);
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
    if (last_of_job(job.control) && hw::lane() == 0 && hw::load_settled(&job.control->fault)) {
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

static uint64_t read_table(uint64_t count, bool placed)
{
    const uint64_t each = sizeof(small_listed) + (placed ? sizeof(small_placed) : 0);
    return sizeof(pici_cuda_control) + up16(each * (small_chunks_of(count) + ROW_MOST));
}

/* The size of the longest block of `count` elements in a format, or in any. */
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

/* The kind of context chunks to make: the dtype, SMALL_E2M1X2, or 0 for none. narrow: see small_has_context. */
static unsigned kind_of(unsigned dtype, bool narrow, unsigned holds)
{
    if (!small_has_context(dtype, narrow))
        return 0;
    return holds ? (unsigned)SMALL_E2M1X2 : dtype;
}

/* The kind of context chunks to read, where the delta tells whether there are any. */
static unsigned read_kind(unsigned dtype)
{
    const bool narrow = small_is_narrow(dtype, dtype == PICI_U8 ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE);
    return kind_of(dtype, narrow, dtype == PICI_U8);
}

/* bytes_of(E, n), where `count` elements of a kind are n elements of the coder's type E. */
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

/* Device memory in bytes that a warp needs to encode, or to decode, a chunk of `count` elements. */
static uint64_t make_room(unsigned kind, uint64_t count)
{
    return room(kind, count, [](auto element, uint64_t n) { return SMALL_MAKE_BYTES<decltype(element)>(n); });
}

static uint64_t read_room(unsigned kind, uint64_t count)
{
    return room(kind, count, [](auto element, uint64_t n) { return SMALL_READ_BYTES<decltype(element)>(n); });
}

/* Sizes of a slot and of a finished chunk. */
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

/* table + at_once * slot + chunks * made bytes; 0 if that does not fit into size_t. */
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

size_t pici_cuda_small_diff_workspace(unsigned format, unsigned dtype, uint64_t count, unsigned at_once, bool gather)
{
    if (pici::width_log2(dtype) < 0 || !is_format(format))
        return 0;
    const unsigned kind = read_kind(dtype);
    return workspace_of(make_table(count) + (gather ? 2 * staged_bytes(count, dtype) : 0), count, at_once,
                        make_slot(kind, dtype, format, count), made_bytes(kind, dtype, format, count));
}

size_t pici_cuda_small_apply_workspace(unsigned dtype, uint64_t count, unsigned at_once, bool of_columns)
{
    if (pici::width_log2(dtype) < 0)
        return 0;
    return workspace_of(read_table(count, of_columns) + (of_columns ? staged_bytes(count, dtype) : 0), count, at_once,
                        read_slot(dtype, count), 0);
}

size_t pici_diff_small_cuda_workspace(enum pici_format format, enum pici_dtype dtype, uint64_t count, unsigned at_once)
{
    return pici_cuda_small_diff_workspace((unsigned)format, (unsigned)dtype, count, at_once, false);
}

size_t pici_apply_small_cuda_workspace(enum pici_dtype dtype, uint64_t count, unsigned at_once)
{
    return pici_cuda_small_apply_workspace((unsigned)dtype, count, at_once, false);
}

/* Is this memory valid for a call: aligned, and apart from the delta, the result and the workspace? */
static bool is_apart(const small_job &job, const void *memory, uint64_t bytes, uintptr_t alignment,
                     const void *workspace, size_t workspace_bytes)
{
    return (uintptr_t)memory % alignment == 0 && !overlap(memory, bytes, job.delta, job.bytes) &&
           !overlap(memory, bytes, job.result, sizeof *job.result) &&
           !overlap(memory, bytes, workspace, workspace_bytes);
}

/* Divide up the workspace, which begins with the staged elements and `table` bytes. Returns the number of thread blocks
 * that have a slot, or 0 if it is too small. */
static unsigned divide(small_job &job, uint8_t *workspace, size_t bytes, uint64_t table, uint64_t slot, uint64_t made)
{
    if (bytes < job.staged)
        return 0;
    workspace += job.staged;
    bytes -= job.staged;
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

/* Check the arguments that diff and apply share. */
static enum pici_status check_job(const small_job &job, const void *workspace, size_t workspace_bytes)
{
    const int width_log2 = pici::width_log2(job.dtype);
    if (width_log2 < 0 || !job.delta || !job.result || !workspace || (uintptr_t)job.delta % 16 ||
        (uintptr_t)job.result % 8 || (uintptr_t)workspace % 16 || job.count > SIZE_MAX / 64 ||
        job.extent > SIZE_MAX / 64 || overlap(job.result, sizeof *job.result, job.delta, job.bytes) ||
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

static cudaError_t launch_apply_xors(const small_job &job, unsigned blocks, cudaStream_t stream){
#define LAUNCH(T) launch_apply_xor<T>(job, blocks, stream)
    BY_WIDTH(job.dtype, LAUNCH)
#undef LAUNCH
}

cudaError_t pici_cuda_small_launch_diff(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (job.chunks && job.kind)
        error = launch_make_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_xors(job, blocks, stream);
    if (!error)
        error = launch(small_place_kernel, 1, 1, LANES, 0, job, stream);
    if (job.chunks && !error)
        error = launch(small_copy_kernel, blocks, 1, COPY_THREADS, 0, job, stream);
    return error;
}

cudaError_t pici_cuda_small_launch_open(const small_job &job, cudaStream_t stream)
{
    const cudaError_t error = cudaMemsetAsync(job.control, 0, sizeof *job.control, stream);
    return error ? error : launch(small_open_kernel, 1, 1, LANES, 0, job, stream);
}

cudaError_t pici_cuda_small_launch_apply(const small_job &job, unsigned blocks, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (job.chunks && job.kind)
        error = launch_read_of(job, blocks, stream);
    if (job.chunks && !error)
        error = launch_apply_xors(job, blocks, stream);
    return error;
}

/* ---- checks ---- */

enum pici_status pici_cuda_small_check_diff(small_job &job, enum pici_format format, const struct pici_opts *given,
                                            void *workspace, size_t workspace_bytes, unsigned *blocks)
{
    struct pici_opts options;
    enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (!status)
        status = pici_cuda_options(&options, given);
    if (status)
        return status;
    if (format == PICI_AUTO)
        return PICI_E_UNSUPPORTED;
    job.format = (unsigned)format;
    job.holds = (unsigned)options.holds;
    const bool narrow = small_is_narrow(job.dtype, job.holds);
    const uint64_t bytes = job.extent << pici::width_log2(job.dtype);
    const uintptr_t width = (uintptr_t)1 << pici::width_log2(job.dtype);
    if (!is_format(job.format) || (job.count && (!job.base || !job.src)) || (job.holds && !narrow) ||
        !is_apart(job, job.base, bytes, width, workspace, workspace_bytes) ||
        !is_apart(job, job.src, bytes, width, workspace, workspace_bytes))
        return PICI_E_ARG;
    if (job.row)
        job.version = SMALL_COLUMNS_VERSION;
    else if (narrow)
        job.version = SMALL_NARROW_VERSION;
    else
        job.version = job.count == job.of ? SMALL_VERSION : SMALL_PART_VERSION;
    job.kind = kind_of(job.dtype, narrow, job.holds);
    *blocks = divide(job, (uint8_t *)workspace, workspace_bytes, make_table(job.count),
                     make_slot(job.kind, job.dtype, job.format, job.count),
                     made_bytes(job.kind, job.dtype, job.format, job.count));
    if (!*blocks)
        return PICI_E_ARG;
    const uint32_t head = header_bytes(job.version);
    return job.bytes < head || (job.bytes - head) / 4 < job.chunks ? PICI_E_SPACE : PICI_OK;
}

enum pici_status pici_cuda_small_check_apply(small_job &job, void *workspace, size_t workspace_bytes, unsigned *blocks)
{
    const enum pici_status status = check_job(job, workspace, workspace_bytes);
    if (status)
        return status;
    const bool of_columns = job.version == SMALL_COLUMNS_VERSION;
    const uint64_t bytes = job.extent << pici::width_log2(job.dtype);
    job.kind = read_kind(job.dtype);
    if ((job.count && !job.dst) || (uintptr_t)job.len_at % 8 ||
        (job.len_at && overlap(workspace, workspace_bytes, job.len_at, 8)) ||
        !is_apart(job, job.dst, bytes, (uintptr_t)1 << pici::width_log2(job.dtype), workspace, workspace_bytes))
        return PICI_E_ARG;
    *blocks = divide(job, (uint8_t *)workspace, workspace_bytes, read_table(job.count, of_columns),
                     read_slot(job.dtype, job.count), 0);
    if (of_columns)
        job.placed = (struct small_placed *)(job.lists + job.chunks + ROW_MOST);
    return *blocks ? PICI_OK : PICI_E_ARG;
}
