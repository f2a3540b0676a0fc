/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_apply_small and pici_changes: the header, the directory, threads. */
#include "codec/small.h"

#include <stdatomic.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/nonzeros.h"
#include "codec/parallel.h"
#include "pici/delta.h"

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

/* Whether an XOR chunk begins with the header that it must have. */
static enum pici_status parse_xor(const struct apply *job, uint64_t count, const uint8_t *chunk, size_t size,
                                  struct pici_block *block)
{
    const enum pici_status status = pici_block_parse(block, chunk, size, NULL);
    return status || block->format == FMT_PACKED || block->dtype != job->dtype || block->count != count ||
                   block->flags & FLAG_CHECKSUM
               ? PICI_E_CORRUPT
               : PICI_OK;
}

static enum pici_status apply_xor(const struct apply *job, uint8_t *dst, uint64_t count, const uint8_t *chunk,
                                  size_t size)
{
    struct pici_block block;
    enum pici_status status = parse_xor(job, count, chunk, size, &block);
    if (status)
        return status;
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
            part[parts++] = (struct small_part){.chunk = chunk,
                                                .bytes = size,
                                                .count = (size_t)small_chunk_elements(job->count, i),
                                                .dst = job->dst + (i * SMALL_CHUNK << job->width_log2)};
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

/* Check what a delta's header says, and set all of *job but what threads need. */
static enum pici_status begin(struct apply *job, void *dst, const void *delta, size_t size)
{
    const uint8_t *const header = delta;
    const enum pici_status status = check_header(header, size);
    if (status)
        return status;
    const uint64_t count = load_le64(header + SMALL_HDR_COUNT);
    job->dst = dst;
    job->delta = header;
    job->count = count;
    job->chunks = small_chunks(count);
    job->dtype = header[SMALL_HDR_DTYPE];
    job->width_log2 = (unsigned)fmt_width_log2(job->dtype);
    job->context = small_shape(&job->shape, job->dtype);
    return PICI_OK;
}

static enum pici_status check_hash(const struct apply *job, size_t size)
{
    return job->delta[SMALL_HDR_FLAGS] &&
                   load_le64(job->delta + SMALL_HDR_CHECKSUM) != pici_small_hash(job->delta, size)
               ? PICI_E_CHECKSUM
               : PICI_OK;
}

enum pici_status pici_apply_small(void *dst, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options)
{
    struct pici_opts checked;
    struct apply job;
    enum pici_status status = block ? pici_opts_get(&checked, options) : PICI_E_ARG;
    if (status || (status = begin(&job, dst, block, size)) != PICI_OK)
        return status;
    if (count != job.count || (count && !dst) || count > SIZE_MAX >> job.width_log2 ||
        pici_overlap(dst, count << job.width_log2, block, size))
        return PICI_E_ARG;
    if ((status = check_hash(&job, size)) != PICI_OK)
        return status;
    const int threads = pici_thread_count(checked.threads, job.chunks);
    job.group = job.chunks > (uint64_t)threads ? 2 : 1;
    atomic_init(&job.next, 0);
    atomic_init(&job.status, PICI_OK);
    if (threads > 1)
        pici_parallel(threads, SMALL_STACK, apply_thread, &job);
    else if (job.chunks)
        apply_thread(&job, 0);
    return (enum pici_status)atomic_load(&job.status);
}

/* ---- changes ---- */

/* Adds what chunk i of a delta changes among elements [first, end), where dst is the base. */
static enum pici_status add_chunk(struct pici_found *found, const struct apply *job, struct small_reader **reader,
                                  uint64_t i, const uint8_t *chunk, uint64_t first, uint64_t end)
{
    size_t size;
    const int context = is_context(job, i, &size);
    const uint64_t begin = i * SMALL_CHUNK, count = small_chunk_elements(job->count, i);
    uint8_t *const base = job->dst + (begin << job->width_log2);
    if (!context) {
        struct pici_block block;
        const uint64_t from = first > begin ? first - begin : 0;
        if (parse_xor(job, count, chunk, size, &block) || pici_verify(chunk, size))
            return PICI_E_CORRUPT;
        return pici_found_block(found, chunk, size, from, (end - begin < count ? end - begin : count) - from, begin,
                                base);
    }
    struct small_part part = {.chunk = chunk, .bytes = size, .count = (size_t)count, .dst = base, .keep = 1};
    if (!job->context)
        return PICI_E_CORRUPT;
    if (!*reader && !(*reader = pici_small_reader(job->count, &job->shape)))
        return PICI_E_NOMEM;
    if (!pici_small_apply(*reader, &part, 1))
        return PICI_E_CORRUPT;
    pici_found_bits(found, part.changed, part.new_values, part.count, begin, first, end);
    return PICI_OK;
}

/* The changes of a small delta. */
static enum pici_status add_small(struct pici_found *found, const struct apply *job, uint64_t first, uint64_t n)
{
    struct small_reader *reader = NULL;
    enum pici_status status = PICI_OK;
    const uint8_t *chunk = job->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * (size_t)job->chunks;
    size_t size;
    for (uint64_t i = 0; !status && i < job->chunks && i * SMALL_CHUNK < first + n; i++, chunk += size) {
        is_context(job, i, &size);
        if (n && first < (i + 1) * SMALL_CHUNK)
            status = add_chunk(found, job, &reader, i, chunk, first, first + n);
    }
    pici_small_reader_free(reader);
    return status;
}

/* The changes of a block. */
static enum pici_status add_block(struct pici_found *found, const void *base, const void *block, size_t size,
                                  uint64_t base_n, uint64_t first, uint64_t n)
{
    struct pici_info info = PICI_INFO_INIT;
    enum pici_status status = pici_inspect(&info, block, size);
    if (!status && (base_n != info.count || (n && !base)))
        status = PICI_E_ARG;
    return status ? status : pici_found_all(found, block, size, first, n, base);
}

enum pici_status pici_changes(void *indices, size_t index_bytes, void *values, uint64_t capacity, uint64_t *count,
                              const void *base, uint64_t base_n, const void *delta, size_t size, uint64_t first,
                              uint64_t n)
{
    struct pici_found found;
    struct apply job;
    if (count)
        *count = 0;
    if (!count || !delta)
        return PICI_E_ARG;
    enum pici_status status = pici_found_begin(&found, indices, index_bytes, values, capacity, first, n);
    if (status)
        return status;
    if (size < 4 || memcmp(delta, "PICD", 4) != 0) {
        status = add_block(&found, base, delta, size, base_n, first, n);
    } else {
        status = begin(&job, (void *)(uintptr_t)base, delta, size);
        if (!status && (base_n != job.count || first > job.count || n > job.count - first || (n && !base)))
            status = PICI_E_ARG;
        found.width_log2 = status ? 0 : job.width_log2;
        status = status ? status : check_hash(&job, size);
        status = status ? status : add_small(&found, &job, first, n);
    }
    return status ? status : pici_found_end(&found, count);
}
