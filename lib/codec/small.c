/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff_small, its forms for parts and columns, and pici_diff_small_bound: arguments, the header, the directory,
 * threads. */
#include "codec/small.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "small_columns.h"
#include "xxh64.h"

size_t pici_diff_small_bound(enum pici_format format, enum pici_dtype dtype, uint64_t count)
{
    const uint64_t whole = count / SMALL_CHUNK, remainder = count % SMALL_CHUNK;
    if (format == PICI_PACKED) /* not among the formats of chunks */
        return 0;
    const uint64_t each = pici_bound(format, dtype, SMALL_CHUNK),
                   last = remainder ? pici_bound(format, dtype, remainder) : 0;
    if (!each)
        return 0;
    /* one-byte elements may need version 3, whose header is longer */
    const uint64_t before = fmt_width_log2((unsigned)dtype) ? SMALL_HDR_BYTES : SMALL_PART_BYTES;
    /* each < 2^24, and whole < 2^45 */
    if (whole > (SIZE_MAX - before - SMALL_ENTRY_BYTES - last) / (each + SMALL_ENTRY_BYTES))
        return 0;
    return (size_t)(before + whole * (each + SMALL_ENTRY_BYTES) + (remainder ? last + SMALL_ENTRY_BYTES : 0));
}

uint64_t pici_small_hash(const uint8_t *delta, size_t size)
{
    const uint64_t none = 0;
    struct pici_xxh64 state;
    pici_xxh64_init(&state, 0);
    pici_xxh64_update(&state, delta, SMALL_HDR_CHECKSUM);
    pici_xxh64_update(&state, &none, sizeof none);
    pici_xxh64_update(&state, delta + SMALL_HDR_BYTES, size - SMALL_HDR_BYTES);
    return pici_xxh64_digest(&state);
}

/* ---- diff ---- */

struct diff {
    uint8_t *delta, *directory;
    size_t capacity;
    const uint8_t *base, *src;
    uint64_t count, chunks;
    uint64_t first, of; /* elements before this part, and of the whole; count == of: not a part */
    uint64_t row;       /* for columns, the first being `first`: elements of the whole's rows */
    struct small_rows place;
    unsigned width_log2;
    enum pici_dtype dtype;
    enum pici_format format;
    unsigned version, holds;
    int context; /* try context chunks */
    struct small_shape shape;
    atomic_size_t next, turn; /* chunk to take; chunk that is placed next */
    size_t offset;            /* where the chunk `turn` goes. Only the thread whose turn it is may use it */
    enum pici_status status;  /* likewise */
};

/* Make chunk i. Sets *chunk, in `block` or the maker's memory. Returns its bytes; 0 on failure. */
static size_t make(const struct diff *job, uint64_t i, struct small_maker *maker, uint8_t *block, size_t capacity,
                   uint8_t *packed, const uint8_t **chunk, int *context, enum pici_status *status)
{
    const uint64_t count = small_chunk_elements(job->count, i), first = i * SMALL_CHUNK;
    const uint8_t *base = job->base + (first << job->width_log2), *src = job->src + (first << job->width_log2);
    struct pici_opts options = PICI_OPTS_INIT;
    uint64_t least = 0;
    size_t size;
    if (job->place.columns) {
        uint8_t *const other = packed + ((size_t)count << job->width_log2);
        small_rows_copy(packed, (uint8_t *)(uintptr_t)job->base, &job->place, first, count, job->width_log2, 0);
        small_rows_copy(other, (uint8_t *)(uintptr_t)job->src, &job->place, first, count, job->width_log2, 0);
        base = packed;
        src = other;
    }
    const size_t bytes = maker ? pici_small_make(maker, chunk, &least, base, src, (size_t)count) : 0;
    *context = bytes != 0;
    if (bytes && bytes < least)
        return bytes;
    /* try an XOR block that is not longer */
    const enum pici_status made = pici_diff(block, bytes && bytes < capacity ? bytes : capacity, &size, base, src,
                                            count, job->dtype, job->format, &options);
    if (made == PICI_E_SPACE && bytes)
        return bytes;
    *context = 0;
    *chunk = block;
    *status = made;
    return made ? 0 : size;
}

static void place(struct diff *job, uint64_t i, const uint8_t *chunk, size_t size, int context, enum pici_status status)
{
    if (job->status)
        return;
    if (status || size > job->capacity - job->offset) {
        job->status = status ? status : PICI_E_SPACE;
        return;
    }
    memcpy(job->delta + job->offset, chunk, size);
    store_le32(job->directory + SMALL_ENTRY_BYTES * i, (uint32_t)size | (context ? SMALL_KIND_CONTEXT : 0));
    job->offset += size;
}

static void diff_thread(void *context, int thread)
{
    struct diff *const job = context;
    const uint64_t most = job->count < SMALL_CHUNK ? job->count : SMALL_CHUNK;
    const size_t capacity = pici_bound(job->format, job->dtype, most);
    uint8_t *const block = malloc(capacity);
    uint8_t *const packed = job->place.columns ? malloc((size_t)most << (job->width_log2 + 1)) : NULL;
    struct small_maker *const maker = job->context ? pici_small_maker(most, &job->shape) : NULL;
    const enum pici_status have =
        block && (maker || !job->context) && (packed || !job->place.columns) ? PICI_OK : PICI_E_NOMEM;
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->chunks;) {
        enum pici_status status = have;
        const uint8_t *chunk = NULL;
        int is_context = 0;
        const size_t size = status ? 0 : make(job, i, maker, block, capacity, packed, &chunk, &is_context, &status);
        while (atomic_load_explicit(&job->turn, memory_order_acquire) != i)
            sched_yield();
        place(job, i, chunk, size, is_context, status);
        if (job->status) /* take no more chunks */
            atomic_store(&job->next, (size_t)job->chunks);
        atomic_store_explicit(&job->turn, i + 1, memory_order_release);
    }
    free(block);
    free(packed);
    pici_small_maker_free(maker);
}

static enum pici_status diff(struct diff *job, int threads, int checksum, size_t *size)
{
    const size_t before = small_header_bytes(job->version);
    if (job->capacity < before)
        return PICI_E_SPACE;
    memset(job->delta, 0, before); /* an unfinished delta must not begin with a valid header */
    if (job->chunks > (job->capacity - before) / SMALL_ENTRY_BYTES)
        return PICI_E_SPACE;
    job->directory = job->delta + before;
    job->offset = before + SMALL_ENTRY_BYTES * (size_t)job->chunks;
    threads = pici_thread_count(threads, job->chunks);
    if (threads > 1)
        pici_parallel(threads, SMALL_STACK, diff_thread, job);
    else if (job->chunks)
        diff_thread(job, 0);
    if (job->status)
        return job->status;
    uint8_t *const header = job->delta;
    header[SMALL_HDR_VERSION] = (uint8_t)job->version;
    header[SMALL_HDR_HOLDS] = (uint8_t)job->holds;
    header[SMALL_HDR_DTYPE] = (uint8_t)job->dtype;
    header[SMALL_HDR_FLAGS] = checksum ? SMALL_FLAG_CHECKSUM : 0;
    store_le64(header + SMALL_HDR_COUNT, job->count);
    store_le64(header + SMALL_HDR_LENGTH, job->offset);
    if (job->version != SMALL_FORMAT_VERSION) {
        store_le64(header + SMALL_PART_FIRST, job->first);
        store_le64(header + SMALL_PART_OF, job->of);
    }
    if (job->version == SMALL_COLUMNS_VERSION)
        store_le64(header + SMALL_COLUMNS_ROW, job->row);
    memcpy(header + SMALL_HDR_MAGIC, "PICD", 4);
    if (checksum)
        store_le64(header + SMALL_HDR_CHECKSUM, pici_small_hash(header, job->offset));
    *size = job->offset;
    return PICI_OK;
}

/* Makes the delta of elements that were checked to be within the whole. */
static enum pici_status diff_elements(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                      const struct small_elements *elements, enum pici_dtype dtype,
                                      enum pici_format format, const struct pici_opts *options)
{
    struct pici_opts checked;
    const int width_log2 = fmt_width_log2((unsigned)dtype);
    if (!block || (elements->extent && (!base || !src)) || width_log2 < 0 || !pici_format_name(format) ||
        elements->extent > SIZE_MAX >> width_log2 ||
        pici_overlap(block, capacity, src, elements->extent << width_log2) ||
        pici_overlap(block, capacity, base, elements->extent << width_log2))
        return PICI_E_ARG;
    const enum pici_status status = format == PICI_PACKED ? PICI_E_UNSUPPORTED : pici_opts_get(&checked, options);
    if (status)
        return status;
    if (checked.holds && !small_is_narrow((unsigned)dtype, checked.holds))
        return PICI_E_ARG;
    const int narrow = small_is_narrow((unsigned)dtype, checked.holds);
    struct diff job = {.delta = block,
                       .capacity = capacity,
                       .base = base,
                       .src = src,
                       .count = elements->count,
                       .chunks = small_chunks(elements->count),
                       .first = elements->first,
                       .of = elements->of,
                       .row = elements->row,
                       .place = elements->place,
                       .width_log2 = (unsigned)width_log2,
                       .dtype = dtype,
                       .format = format,
                       .holds = checked.holds,
                       .status = PICI_OK};
    if (job.row)
        job.version = SMALL_COLUMNS_VERSION;
    else if (narrow)
        job.version = SMALL_NARROW_VERSION;
    else
        job.version = job.count == job.of ? SMALL_FORMAT_VERSION : SMALL_PART_VERSION;
    job.context = small_shape(&job.shape, (unsigned)dtype, narrow);
    atomic_init(&job.next, 0);
    atomic_init(&job.turn, 0);
    return diff(&job, checked.threads, checked.checksum, size);
}

enum pici_status pici_diff_small_part(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                      uint64_t count, uint64_t first, uint64_t of, enum pici_dtype dtype,
                                      enum pici_format format, const struct pici_opts *options)
{
    const struct small_elements elements = {.first = first, .count = count, .of = of, .extent = count};
    if (size)
        *size = 0;
    if (!size || count > of || first > of - count)
        return PICI_E_ARG;
    return diff_elements(block, capacity, size, base, src, &elements, dtype, format, options);
}

enum pici_status pici_diff_small_columns(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                         const struct pici_columns *columns, enum pici_dtype dtype,
                                         enum pici_format format, const struct pici_opts *options)
{
    struct small_elements elements;
    if (size)
        *size = 0;
    const enum pici_status status = size ? small_elements_read(&elements, columns) : PICI_E_ARG;
    return status ? status : diff_elements(block, capacity, size, base, src, &elements, dtype, format, options);
}

enum pici_status pici_diff_small(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                 uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                 const struct pici_opts *options)
{
    return pici_diff_small_part(block, capacity, size, base, src, count, 0, count, dtype, format, options);
}
