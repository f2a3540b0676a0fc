/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff_small, pici_apply_small and pici_diff_small_bound: arguments, the header, the directory, threads. */
#include "codec/small.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "xxh64.h"

enum { STACK = 512 << 10 };

size_t pici_diff_small_bound(enum pici_format format, enum pici_dtype dtype, uint64_t count)
{
    const uint64_t whole = count / SMALL_CHUNK, remainder = count % SMALL_CHUNK;
    if (format == PICI_PACKED) /* not among the formats of chunks */
        return 0;
    const uint64_t each = pici_bound(format, dtype, SMALL_CHUNK),
                   last = remainder ? pici_bound(format, dtype, remainder) : 0;
    if (!each)
        return 0;
    /* each < 2^24, and whole < 2^45 */
    if (whole > (SIZE_MAX - SMALL_HDR_BYTES - SMALL_ENTRY_BYTES - last) / (each + SMALL_ENTRY_BYTES))
        return 0;
    return (size_t)(SMALL_HDR_BYTES + whole * (each + SMALL_ENTRY_BYTES) + (remainder ? last + SMALL_ENTRY_BYTES : 0));
}

static uint64_t hash(const uint8_t *delta, size_t size)
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
    uint8_t *delta;
    size_t capacity;
    const uint8_t *base, *src;
    uint64_t count, chunks;
    unsigned width_log2;
    enum pici_dtype dtype;
    enum pici_format format;
    int context; /* context chunks are tried */
    struct small_shape shape;
    atomic_size_t next, turn; /* chunk to take; chunk that is placed next */
    size_t offset;            /* where that one goes. Only the thread whose turn it is may use it */
    enum pici_status status;  /* likewise */
};

/* The chunk i. Returns its bytes, at *chunk, which is at `block` or the maker's; 0: none was made. */
static size_t make(const struct diff *job, uint64_t i, struct small_maker *maker, uint8_t *block, size_t capacity,
                   const uint8_t **chunk, int *context, enum pici_status *status)
{
    const uint64_t count = small_chunk_elements(job->count, i), first = i * SMALL_CHUNK;
    const uint8_t *const base = job->base + (first << job->width_log2);
    const uint8_t *const src = job->src + (first << job->width_log2);
    struct pici_opts options = PICI_OPTS_INIT;
    uint64_t least = 0;
    size_t size;
    const size_t bytes = maker ? pici_small_make(maker, chunk, &least, base, src, (size_t)count) : 0;
    *context = bytes != 0;
    if (bytes && bytes < least)
        return bytes;
    /* an XOR block that is not longer, if there is one */
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
    store_le32(job->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i,
               (uint32_t)size | (context ? SMALL_KIND_CONTEXT : 0));
    job->offset += size;
}

static void diff_thread(void *context, int thread)
{
    struct diff *const job = context;
    const uint64_t most = job->count < SMALL_CHUNK ? job->count : SMALL_CHUNK;
    const size_t capacity = pici_bound(job->format, job->dtype, most);
    uint8_t *const block = malloc(capacity);
    struct small_maker *const maker = job->context ? pici_small_maker(most, &job->shape) : NULL;
    const enum pici_status have = block && (maker || !job->context) ? PICI_OK : PICI_E_NOMEM;
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->chunks;) {
        enum pici_status status = have;
        const uint8_t *chunk = NULL;
        int is_context = 0;
        const size_t size = status ? 0 : make(job, i, maker, block, capacity, &chunk, &is_context, &status);
        while (atomic_load_explicit(&job->turn, memory_order_acquire) != i)
            sched_yield();
        place(job, i, chunk, size, is_context, status);
        if (job->status) /* take no more of them */
            atomic_store(&job->next, (size_t)job->chunks);
        atomic_store_explicit(&job->turn, i + 1, memory_order_release);
    }
    free(block);
    pici_small_maker_free(maker);
}

static enum pici_status diff(struct diff *job, int threads, int checksum, size_t *size)
{
    if (job->capacity < SMALL_HDR_BYTES)
        return PICI_E_SPACE;
    memset(job->delta, 0, SMALL_HDR_BYTES); /* an unfinished delta must not begin with a valid header */
    if (job->chunks > (job->capacity - SMALL_HDR_BYTES) / SMALL_ENTRY_BYTES)
        return PICI_E_SPACE;
    job->offset = SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * (size_t)job->chunks;
    threads = pici_thread_count(threads, job->chunks);
    if (threads > 1)
        pici_parallel(threads, STACK, diff_thread, job);
    else if (job->chunks)
        diff_thread(job, 0);
    if (job->status)
        return job->status;
    uint8_t *const header = job->delta;
    header[SMALL_HDR_VERSION] = SMALL_FORMAT_VERSION;
    header[SMALL_HDR_DTYPE] = (uint8_t)job->dtype;
    header[SMALL_HDR_FLAGS] = checksum ? SMALL_FLAG_CHECKSUM : 0;
    store_le64(header + SMALL_HDR_COUNT, job->count);
    store_le64(header + SMALL_HDR_LENGTH, job->offset);
    memcpy(header + SMALL_HDR_MAGIC, "PICD", 4);
    if (checksum)
        store_le64(header + SMALL_HDR_CHECKSUM, hash(header, job->offset));
    *size = job->offset;
    return PICI_OK;
}

enum pici_status pici_diff_small(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                 uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                 const struct pici_opts *options)
{
    struct pici_opts checked;
    const int width_log2 = fmt_width_log2((unsigned)dtype);
    if (size)
        *size = 0;
    if (!block || !size || (count && (!base || !src)) || width_log2 < 0 || !pici_format_name(format) ||
        count > SIZE_MAX >> width_log2 || pici_overlap(block, capacity, src, count << width_log2) ||
        pici_overlap(block, capacity, base, count << width_log2))
        return PICI_E_ARG;
    const enum pici_status status = format == PICI_PACKED ? PICI_E_UNSUPPORTED : pici_opts_get(&checked, options);
    if (status)
        return status;
    struct diff job = {.delta = block,
                       .capacity = capacity,
                       .base = base,
                       .src = src,
                       .count = count,
                       .chunks = small_chunks(count),
                       .width_log2 = (unsigned)width_log2,
                       .dtype = dtype,
                       .format = format,
                       .status = PICI_OK};
    job.context = small_shape(&job.shape, (unsigned)dtype);
    atomic_init(&job.next, 0);
    atomic_init(&job.turn, 0);
    return diff(&job, checked.threads, checked.checksum, size);
}

/* ---- apply ---- */

/* Check the rules "size" to "directory". */
static enum pici_status check_header(const uint8_t *header, size_t size)
{
    if (size < SMALL_HDR_BYTES || memcmp(header, "PICD", 4) != 0)
        return PICI_E_CORRUPT;
    if (header[SMALL_HDR_VERSION] != SMALL_FORMAT_VERSION)
        return PICI_E_VERSION;
    const unsigned flags = header[SMALL_HDR_FLAGS];
    if (fmt_width_log2(header[SMALL_HDR_DTYPE]) < 0 || flags > SMALL_FLAG_CHECKSUM || header[SMALL_HDR_FLAGS + 1] ||
        (!flags && load_le64(header + SMALL_HDR_CHECKSUM)) || load_le64(header + SMALL_HDR_LENGTH) != size)
        return PICI_E_CORRUPT;
    const uint64_t chunks = small_chunks(load_le64(header + SMALL_HDR_COUNT));
    if (chunks > (size - SMALL_HDR_BYTES) / SMALL_ENTRY_BYTES)
        return PICI_E_CORRUPT;
    uint64_t end = SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * chunks;
    for (uint64_t i = 0; i < chunks; i++)
        end += load_le32(header + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i) & ~SMALL_KIND_CONTEXT;
    return end == size ? PICI_OK : PICI_E_CORRUPT;
}

struct apply {
    uint8_t *dst;
    const uint8_t *delta;
    uint64_t count, chunks;
    unsigned width_log2, dtype;
    int context; /* context chunks exist */
    struct small_shape shape;
    uint64_t group;     /* chunks that a thread takes at once */
    atomic_size_t next; /* group to take */
    atomic_int status;
};

static int is_context(const struct apply *job, uint64_t i, size_t *size)
{
    const uint32_t entry = load_le32(job->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i);
    *size = entry & ~SMALL_KIND_CONTEXT;
    return (entry & SMALL_KIND_CONTEXT) != 0;
}

static enum pici_status apply_xor(const struct apply *job, uint8_t *dst, uint64_t count, const uint8_t *chunk,
                                  size_t size)
{
    struct pici_block block;
    enum pici_status status = pici_block_parse(&block, chunk, size, NULL);
    if (status || block.format == FMT_PACKED || block.dtype != job->dtype || block.count != count ||
        block.flags & FLAG_CHECKSUM)
        return PICI_E_CORRUPT;
    status = pici_apply(dst, count, chunk, size, NULL);
    return status == PICI_E_ARG || status == PICI_E_VERSION || status == PICI_E_UNSUPPORTED ? PICI_E_CORRUPT : status;
}

/* Apply the chunks [i, end), which begin at chunk. */
static enum pici_status apply_group(const struct apply *job, struct small_reader **reader, uint64_t i, uint64_t end,
                                    const uint8_t *chunk)
{
    while (i < end) {
        struct small_part part[2];
        int parts = 0;
        size_t size;
        for (; parts < 2 && i < end && is_context(job, i, &size); i++, chunk += size)
            part[parts++] = (struct small_part){chunk, size, (size_t)small_chunk_elements(job->count, i),
                                                job->dst + (i * SMALL_CHUNK << job->width_log2)};
        enum pici_status status = PICI_OK;
        if (parts) {
            if (!job->context)
                return PICI_E_CORRUPT;
            if (!*reader && !(*reader = pici_small_reader(job->count, &job->shape)))
                return PICI_E_NOMEM;
            status = pici_small_apply(*reader, part, parts) ? PICI_OK : PICI_E_CORRUPT;
        } else {
            is_context(job, i, &size);
            status = apply_xor(job, job->dst + (i * SMALL_CHUNK << job->width_log2),
                               small_chunk_elements(job->count, i), chunk, size);
            i++;
            chunk += size;
        }
        if (status)
            return status;
    }
    return PICI_OK;
}

static void apply_thread(void *context, int thread)
{
    struct apply *const job = context;
    struct small_reader *reader = NULL;
    uint64_t offset = 0;
    const uint8_t *chunk = job->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * (size_t)job->chunks;
    (void)thread;
    for (uint64_t i; (i = atomic_fetch_add(&job->next, 1) * job->group) < job->chunks;) {
        const uint64_t end = job->chunks - i < job->group ? job->chunks : i + job->group;
        size_t size;
        for (; offset < i; offset++, chunk += size)
            is_context(job, offset, &size);
        const enum pici_status status = apply_group(job, &reader, i, end, chunk);
        if (status) {
            atomic_store(&job->status, status);
            atomic_store(&job->next, (size_t)(job->chunks / job->group + 1));
        }
    }
    pici_small_reader_free(reader);
}

enum pici_status pici_apply_small(void *dst, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options)
{
    struct pici_opts checked;
    enum pici_status status = block ? pici_opts_get(&checked, options) : PICI_E_ARG;
    if (status || (status = check_header(block, size)) != PICI_OK)
        return status;
    const uint8_t *const header = block;
    struct apply job = {
        .dst = dst, .delta = header, .count = count, .chunks = small_chunks(count), .dtype = header[SMALL_HDR_DTYPE]};
    job.width_log2 = (unsigned)fmt_width_log2(job.dtype);
    if (count != load_le64(header + SMALL_HDR_COUNT) || (count && !dst) || count > SIZE_MAX >> job.width_log2 ||
        pici_overlap(dst, count << job.width_log2, block, size))
        return PICI_E_ARG;
    if (header[SMALL_HDR_FLAGS] && load_le64(header + SMALL_HDR_CHECKSUM) != hash(header, size))
        return PICI_E_CHECKSUM;
    job.context = small_shape(&job.shape, job.dtype);
    const int threads = pici_thread_count(checked.threads, job.chunks);
    job.group = job.chunks > (uint64_t)threads ? 2 : 1;
    atomic_init(&job.next, 0);
    atomic_init(&job.status, PICI_OK);
    if (threads > 1)
        pici_parallel(threads, STACK, apply_thread, &job);
    else if (job.chunks)
        apply_thread(&job, 0);
    return (enum pici_status)atomic_load(&job.status);
}
