/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_apply_small, its forms for ranges and columns, and pici_changes: headers, directories, threads. */
#include "codec/small.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/nonzeros.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "sized.h"
#include "small_columns.h"

/* A small delta, or one of several consecutive parts, and the elements to change. */
struct apply {
    uint8_t *dst;            /* element `from` of the part */
    struct small_rows place; /* the layout of the elements from there on, if it has gaps: then all change, and */
    uint64_t skip;           /* this many elements of these rows come before them */
    const uint8_t *delta, *directory, *chunks_begin;
    size_t size;
    uint64_t count, chunks;
    uint64_t first, of;    /* of a part: elements before it, and of the whole */
    uint64_t row, columns; /* columns from `first` on: elements of the whole's rows, and of the part's; else 0 */
    uint64_t from, to;     /* elements of the part to change */
    uint64_t low, high;    /* chunks [low, high) contain them */
    unsigned width_log2, dtype, version, holds;
    int context; /* context chunks exist */
    struct small_shape shape;
};

/* Check the rules "size" to "directory" of the delta at `header`, and describe it. remaining: bytes from there on; a
 * delta that is not a part has exactly these. */
static enum pici_status parse(struct apply *job, const uint8_t *header, size_t remaining)
{
    if (remaining < SMALL_HDR_BYTES || memcmp(header, "PICD", 4) != 0)
        return PICI_E_CORRUPT;
    const unsigned version = header[SMALL_HDR_VERSION], flags = header[SMALL_HDR_FLAGS],
                   holds = header[SMALL_HDR_HOLDS], dtype = header[SMALL_HDR_DTYPE];
    if (version < SMALL_FORMAT_VERSION || version > SMALL_COLUMNS_VERSION)
        return PICI_E_VERSION;
    const int part = version != SMALL_FORMAT_VERSION, of_columns = version == SMALL_COLUMNS_VERSION,
              narrow = version >= SMALL_NARROW_VERSION && small_is_narrow(dtype, holds);
    const uint64_t size = load_le64(header + SMALL_HDR_LENGTH);
    if (fmt_width_log2(dtype) < 0 || flags > SMALL_FLAG_CHECKSUM || (version == SMALL_NARROW_VERSION && !narrow) ||
        (holds && !narrow) || (!flags && load_le64(header + SMALL_HDR_CHECKSUM)) || size > remaining ||
        (!part && size != remaining))
        return PICI_E_CORRUPT;
    const size_t before = small_header_bytes(version);
    const uint64_t count = load_le64(header + SMALL_HDR_COUNT), chunks = small_chunks(count);
    if (size < before)
        return PICI_E_CORRUPT;
    const uint64_t first = part ? load_le64(header + SMALL_PART_FIRST) : 0,
                   of = part ? load_le64(header + SMALL_PART_OF) : count,
                   row = of_columns ? load_le64(header + SMALL_COLUMNS_ROW) : 0;
    if (part && !of_columns && (count > of || (count == of && !narrow) || first > of - count))
        return PICI_E_CORRUPT;
    if (of_columns && (!row || of % row || of / row < 2 || count % (of / row)))
        return PICI_E_CORRUPT;
    const uint64_t columns = of_columns ? count / (of / row) : 0;
    if (of_columns && (columns >= row || first > row - columns))
        return PICI_E_CORRUPT;
    if (chunks > (size - before) / SMALL_ENTRY_BYTES)
        return PICI_E_CORRUPT;
    uint64_t end = before + SMALL_ENTRY_BYTES * chunks;
    *job = (struct apply){.delta = header,
                          .directory = header + before,
                          .chunks_begin = header + end,
                          .size = (size_t)size,
                          .count = count,
                          .chunks = chunks,
                          .first = first,
                          .of = of,
                          .row = row,
                          .columns = columns,
                          .dtype = dtype,
                          .version = version,
                          .holds = holds};
    for (uint64_t i = 0; i < chunks; i++)
        end += load_le32(job->directory + SMALL_ENTRY_BYTES * i) & ~SMALL_KIND_CONTEXT;
    job->width_log2 = (unsigned)fmt_width_log2(job->dtype);
    job->context = small_shape(&job->shape, dtype, narrow);
    return end == size ? PICI_OK : PICI_E_CORRUPT;
}

static int is_context(const struct apply *job, uint64_t i, size_t *size)
{
    const uint32_t entry = load_le32(job->directory + SMALL_ENTRY_BYTES * i);
    *size = entry & ~SMALL_KIND_CONTEXT;
    return (entry & SMALL_KIND_CONTEXT) != 0;
}

/* Check the header of an XOR chunk. */
static enum pici_status parse_xor(const struct apply *job, uint64_t count, const uint8_t *chunk, size_t size,
                                  struct pici_block *block)
{
    const enum pici_status status = pici_block_parse(block, chunk, size, NULL);
    return status || block->format == FMT_PACKED || block->dtype != job->dtype || block->count != count ||
                   block->flags & FLAG_CHECKSUM
               ? PICI_E_CORRUPT
               : PICI_OK;
}

/* A thread's memory for decoding. */
struct memory {
    struct small_reader *reader;
    uint8_t *packed[2]; /* two chunks of elements that have gaps in the tensor */
};

static void memory_free(struct memory *memory)
{
    pici_small_reader_free(memory->reader);
    free(memory->packed[0]);
    free(memory->packed[1]);
}

/* Copy the elements of chunk i to packed[k], or with `back` from there to their places. PICI_E_NOMEM. */
static enum pici_status gather(const struct apply *job, struct memory *memory, int k, uint64_t i, int back)
{
    if (!memory->packed[k] && !(memory->packed[k] = malloc((size_t)SMALL_CHUNK << job->width_log2)))
        return PICI_E_NOMEM;
    small_rows_copy(memory->packed[k], job->dst, &job->place, job->skip + i * SMALL_CHUNK,
                    small_chunk_elements(job->count, i), job->width_log2, back);
    return PICI_OK;
}

/* Apply XOR chunk i to the elements in it that should change. */
static enum pici_status apply_xor(const struct apply *job, struct memory *memory, uint64_t i, const uint8_t *chunk,
                                  size_t size)
{
    const uint64_t begin = i * SMALL_CHUNK, count = small_chunk_elements(job->count, i),
                   from = job->from > begin ? job->from - begin : 0,
                   to = job->to - begin < count ? job->to - begin : count;
    uint8_t *dst;
    struct pici_block block;
    enum pici_status status = parse_xor(job, count, chunk, size, &block);
    if (!status && job->place.columns)
        status = gather(job, memory, 0, i, 0);
    if (status)
        return status;
    dst = job->place.columns ? memory->packed[0] : job->dst + ((begin + from - job->from) << job->width_log2);
    status = to - from == count ? pici_apply(dst, count, chunk, size, NULL)
                                : pici_apply_range(dst, from, to - from, chunk, size, NULL);
    if (!status && job->place.columns)
        return gather(job, memory, 0, i, 1);
    return status == PICI_E_ARG || status == PICI_E_VERSION || status == PICI_E_UNSUPPORTED ? PICI_E_CORRUPT : status;
}

/* Apply one or two context chunks. The last one is chunk i - 1. */
static enum pici_status apply_context(const struct apply *job, struct memory *memory, uint64_t i,
                                      struct small_part part[2], int parts)
{
    enum pici_status status = PICI_OK;
    if (!job->context)
        return PICI_E_CORRUPT;
    if (!memory->reader && !(memory->reader = pici_small_reader(job->count, &job->shape)))
        return PICI_E_NOMEM;
    for (int k = 0; k < parts && job->place.columns && !status; k++) {
        status = gather(job, memory, k, i - (uint64_t)(parts - k), 0);
        part[k].dst = memory->packed[k];
    }
    if (!status && !pici_small_apply(memory->reader, part, parts))
        status = PICI_E_CORRUPT;
    for (int k = 0; k < parts && job->place.columns && !status; k++)
        status = gather(job, memory, k, i - (uint64_t)(parts - k), 1);
    return status;
}

/* The elements of chunk i, if all change; NULL if they have gaps. */
static uint8_t *chunk_at(const struct apply *job, uint64_t i)
{
    return job->place.columns ? NULL : job->dst + ((i * SMALL_CHUNK - job->from) << job->width_log2);
}

/* Apply the chunks [i, end), which begin at chunk. */
static enum pici_status apply_group(const struct apply *job, struct memory *memory, uint64_t i, uint64_t end,
                                    const uint8_t *chunk)
{
    enum pici_status status = PICI_OK;
    while (i < end && !status) {
        struct small_part part[2];
        int parts = 0;
        size_t size;
        for (; parts < 2 && i < end && is_context(job, i, &size); i++, chunk += size)
            part[parts++] = (struct small_part){.chunk = chunk,
                                                .bytes = size,
                                                .count = (size_t)small_chunk_elements(job->count, i),
                                                .dst = chunk_at(job, i)};
        if (parts) {
            status = apply_context(job, memory, i, part, parts);
            continue;
        }
        is_context(job, i, &size);
        status = apply_xor(job, memory, i, chunk, size);
        i++;
        chunk += size;
    }
    return status;
}

/* Several deltas of the same elements. Each thread applies all of them in turn to a few chunks at a time. */
struct fold {
    const struct apply *jobs; /* [count] */
    size_t count;
    uint64_t low, high, group; /* chunks, and how many of them a thread takes at once */
    atomic_size_t next;        /* group to take */
    atomic_int status;
};

/* A thread's position in the chunks of a delta. */
struct chunk_cursor {
    uint64_t number;
    const uint8_t *chunk;
};

static void stop(struct fold *fold, enum pici_status status)
{
    atomic_store(&fold->status, status);
    atomic_store(&fold->next, (size_t)((fold->high - fold->low) / fold->group + 1));
}

static void fold_thread(void *context, int thread)
{
    struct fold *const fold = context;
    struct memory memory = {NULL, {NULL, NULL}};
    struct chunk_cursor one = {0, NULL}, *cursors = &one;
    (void)thread;
    if (fold->count > 1)
        cursors = malloc(fold->count * sizeof *cursors);
    if (!cursors) {
        stop(fold, PICI_E_NOMEM);
        return;
    }
    for (size_t k = 0; k < fold->count; k++)
        cursors[k] = (struct chunk_cursor){0, fold->jobs[k].chunks_begin};
    for (uint64_t i; (i = fold->low + atomic_fetch_add(&fold->next, 1) * fold->group) < fold->high;) {
        const uint64_t end = fold->high - i < fold->group ? fold->high : i + fold->group;
        enum pici_status status = PICI_OK;
        for (size_t k = 0; k < fold->count && !status; k++) {
            struct chunk_cursor *const cursor = &cursors[k];
            size_t size;
            for (; cursor->number < i; cursor->number++, cursor->chunk += size)
                is_context(&fold->jobs[k], cursor->number, &size);
            status = apply_group(&fold->jobs[k], &memory, i, end, cursor->chunk);
        }
        if (status)
            stop(fold, status);
    }
    memory_free(&memory);
    if (cursors != &one)
        free(cursors);
}

/* Apply deltas of the same elements that change the same range. */
static enum pici_status apply_fold(const struct apply *jobs, size_t count, int threads)
{
    struct fold fold = {.jobs = jobs, .count = count, .low = jobs->low, .high = jobs->high};
    const uint64_t chunks = fold.high - fold.low;
    threads = pici_thread_count(threads, chunks);
    fold.group = chunks > (uint64_t)threads ? 2 : 1;
    atomic_init(&fold.next, 0);
    atomic_init(&fold.status, PICI_OK);
    if (threads > 1)
        pici_parallel(threads, SMALL_STACK, fold_thread, &fold);
    else if (chunks)
        fold_thread(&fold, 0);
    return (enum pici_status)atomic_load(&fold.status);
}

static enum pici_status check_hash(const struct apply *job)
{
    return job->delta[SMALL_HDR_FLAGS] &&
                   load_le64(job->delta + SMALL_HDR_CHECKSUM) != pici_small_hash(job->delta, job->size)
               ? PICI_E_CHECKSUM
               : PICI_OK;
}

/* The elements to change, which begin at dst. */
struct range {
    uint8_t *dst;
    struct small_elements elements;
};

/* The parts of a delta, whose headers are checked one by one. */
struct parts {
    const uint8_t *next;
    size_t remaining;
    struct apply job; /* the one at hand */
    uint64_t end;     /* the element, or the column, after it */
};

/* Take the next part. *more: whether there was one. */
static enum pici_status next_part(struct parts *parts, int *more)
{
    const struct apply before = parts->job;
    const struct apply *const job = &parts->job;
    *more = parts->remaining > 0 || !before.dtype;
    if (!*more)
        return PICI_OK;
    const enum pici_status status = parse(&parts->job, parts->next, parts->remaining);
    if (status)
        return status;
    if (before.dtype &&
        (before.version == SMALL_FORMAT_VERSION || job->version != before.version || job->dtype != before.dtype ||
         job->holds != before.holds || job->of != before.of || job->row != before.row || job->first < parts->end))
        return PICI_E_CORRUPT;
    parts->end = job->first + (job->row ? job->columns : job->count);
    parts->next += job->size;
    parts->remaining -= job->size;
    return PICI_OK;
}

/* Express a range in the unit of a part, elements or columns: [*first, *end). Returns 0 if the range is another kind of
 * shard. */
static int window(const struct apply *job, const struct small_elements *range, uint64_t *first, uint64_t *end)
{
    *first = range->first;
    *end = range->first + (range->row ? range->columns : range->count);
    if (job->of != range->of || (range->row && range->row != job->row))
        return 0;
    if (!job->row || range->row)
        return 1;
    *end = job->row; /* of all elements */
    return range->count == range->of && (!range->place.columns || range->place.columns == job->row);
}

/* Set the elements that a part changes in a range with the window [first, end). Returns whether there are any; -1 if
 * the range has some, but not all, of the part's columns. */
static int clip(struct apply *job, const struct range *range, uint64_t first, uint64_t end)
{
    const uint64_t count = job->row ? job->columns : job->count, from = job->first > first ? job->first : first,
                   to = job->first + count < end ? job->first + count : end;
    if (from >= to)
        return 0;
    job->from = 0;
    job->to = job->count;
    job->place = range->elements.place;
    job->skip = job->first;
    job->dst = range->dst;
    if (job->row) {
        const uint64_t stride = job->place.columns ? job->place.stride : end - first;
        if (to - from < count)
            return -1;
        job->dst += (job->first - first) << job->width_log2;
        job->place = (struct small_rows){stride > job->columns ? job->columns : 0, stride};
        job->skip = 0;
    } else if (!job->place.columns) {
        job->from = from - job->first;
        job->to = to - job->first;
        job->dst += (from - first) << job->width_log2;
    }
    job->low = job->from / SMALL_CHUNK;
    job->high = small_chunks(job->to);
    return 1;
}

/* Whether the range contains every context chunk that it overlaps. */
static int is_whole(const struct apply *job)
{
    size_t size;
    const uint64_t last = job->high - 1;
    return (job->from == job->low * SMALL_CHUNK || !is_context(job, job->low, &size)) &&
           (job->to == last * SMALL_CHUNK + small_chunk_elements(job->count, last) || !is_context(job, last, &size));
}

/* Check all headers of a delta, and whether it can be applied to a range. *alone: out: the part that covers the whole
 * range, if there is one. */
static enum pici_status check(const struct range *range, const void *delta, size_t size, struct apply *alone)
{
    struct parts parts = {.next = delta, .remaining = size};
    const uint64_t extent = range->elements.extent;
    enum pici_status status, hash = PICI_OK;
    uint64_t first = 0, end = 0, covered = 0;
    int more, wrong = 0;
    alone->size = 0;
    while ((status = next_part(&parts, &more)) == PICI_OK && more) {
        struct apply *const job = &parts.job;
        hash = hash ? hash : check_hash(job);
        if (!window(job, &range->elements, &first, &end) || extent > SIZE_MAX >> job->width_log2 ||
            (extent && (!range->dst || pici_overlap(range->dst, extent << job->width_log2, delta, size)))) {
            wrong = 1;
            continue;
        }
        covered = covered < first ? first : covered;
        const int some = clip(job, range, first, end);
        if (some) {
            wrong |= some < 0 || job->first > covered || !is_whole(job);
            if (covered == first && parts.end >= end)
                *alone = *job;
            covered = parts.end;
        }
    }
    if (status)
        return status;
    return wrong || covered < end ? PICI_E_ARG : hash;
}

/* Apply a delta whose headers have all been checked. */
static enum pici_status apply_parts(const struct range *range, const void *delta, size_t size, int threads)
{
    struct parts parts = {.next = delta, .remaining = size};
    enum pici_status status;
    uint64_t first, end;
    int more;
    while ((status = next_part(&parts, &more)) == PICI_OK && more)
        if (window(&parts.job, &range->elements, &first, &end) && clip(&parts.job, range, first, end) > 0 &&
            (status = apply_fold(&parts.job, 1, threads)) != PICI_OK)
            break;
    return status;
}

static enum pici_status apply_deltas(const struct range *range, const void *const *deltas, const size_t *sizes,
                                     size_t count, const struct pici_opts *options)
{
    struct pici_opts checked;
    enum pici_status status = pici_opts_get(&checked, options);
    if (!status && (!deltas || !sizes || !count))
        status = PICI_E_ARG;
    if (status)
        return status;
    struct apply one = {.size = 0}, *jobs = &one;
    if (count > 1)
        jobs = calloc(count, sizeof *jobs);
    if (!jobs)
        return PICI_E_NOMEM;
    int alike = 1; /* all have the same elements, so they can be folded */
    for (size_t k = 0; k < count && !status; k++) {
        status = deltas[k] ? check(range, deltas[k], sizes[k], &jobs[k]) : PICI_E_ARG;
        alike = alike && jobs[k].size && jobs[k].first == jobs->first && jobs[k].count == jobs->count &&
                jobs[k].row == jobs->row;
        if (!status && k &&
            ((const uint8_t *)deltas[k])[SMALL_HDR_DTYPE] != ((const uint8_t *)*deltas)[SMALL_HDR_DTYPE])
            status = PICI_E_ARG;
    }
    if (!status && alike)
        status = apply_fold(jobs, count, checked.threads);
    for (size_t k = 0; k < count && !status && !alike; k++)
        status = apply_parts(range, deltas[k], sizes[k], checked.threads);
    if (jobs != &one)
        free(jobs);
    return status;
}

enum pici_status pici_apply_small_range(void *dst, uint64_t n, uint64_t first, uint64_t of, const void *const *deltas,
                                        const size_t *sizes, size_t count, const struct pici_opts *options)
{
    const struct range range = {dst, {.first = first, .count = n, .of = of, .extent = n}};
    return n > of || first > of - n ? PICI_E_ARG : apply_deltas(&range, deltas, sizes, count, options);
}

enum pici_status pici_apply_small_columns(void *dst, const struct pici_columns *columns, const void *const *deltas,
                                          const size_t *sizes, size_t count, const struct pici_opts *options)
{
    struct range range = {.dst = dst};
    const enum pici_status status = small_elements_read(&range.elements, columns);
    return status ? status : apply_deltas(&range, deltas, sizes, count, options);
}

enum pici_status pici_small_get_columns(struct pici_columns *columns, const void *delta, size_t size)
{
    struct pici_columns found = PICI_COLUMNS_INIT;
    struct parts parts = {.next = delta, .remaining = size};
    int more;
    if (!columns || !delta)
        return PICI_E_ARG;
    const enum pici_status status = next_part(&parts, &more);
    if (status)
        return status;
    const struct apply *const job = &parts.job;
    found.rows = job->row ? job->of / job->row : 1;
    found.row_length = job->row ? job->row : job->of;
    found.first = job->first;
    found.count = job->row ? job->columns : job->count;
    return sized_write(columns, &found, sizeof found, sizeof found);
}

enum pici_status pici_apply_small(void *dst, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options)
{
    return pici_apply_small_range(dst, count, 0, count, &block, &size, 1, options);
}

/* ---- changes ---- */

/* Adds the changes by chunk i of a part among elements [first, end) of the whole. job->dst: the part's elements in the
 * base. */
static enum pici_status add_chunk(struct pici_found *found, const struct apply *job, struct small_reader **reader,
                                  uint64_t i, const uint8_t *chunk, uint64_t first, uint64_t end)
{
    size_t size;
    const int context = is_context(job, i, &size);
    const uint64_t begin = job->first + i * SMALL_CHUNK, count = small_chunk_elements(job->count, i);
    uint8_t *const base = job->dst + (i * SMALL_CHUNK << job->width_log2);
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

/* The changes of a part. */
static enum pici_status add_part(struct pici_found *found, const struct apply *job, uint64_t first, uint64_t end)
{
    struct small_reader *reader = NULL;
    enum pici_status status = PICI_OK;
    const uint8_t *chunk = job->chunks_begin;
    size_t size;
    for (uint64_t i = 0; !status && i < job->high; i++, chunk += size) {
        is_context(job, i, &size);
        if (i >= job->low)
            status = add_chunk(found, job, &reader, i, chunk, first, end);
    }
    pici_small_reader_free(reader);
    return status;
}

/* The changes of a small delta. */
static enum pici_status add_small(struct pici_found *found, const uint8_t *base, uint64_t base_n, const void *delta,
                                  size_t size, uint64_t first, uint64_t n)
{
    struct parts parts = {.next = delta, .remaining = size};
    struct apply alone;
    /* chunks are decoded completely, so the range is all of base */
    const struct range whole = {(uint8_t *)(uintptr_t)base, {.count = base_n, .of = base_n, .extent = base_n}},
                       range = {whole.dst, {.first = first, .count = n, .of = base_n, .extent = n}};
    enum pici_status status = check(&whole, delta, size, &alone);
    int more;
    if (!status && (first > base_n || n > base_n - first))
        status = PICI_E_ARG;
    if (status)
        return status;
    while ((status = next_part(&parts, &more)) == PICI_OK && more) {
        struct apply *const job = &parts.job;
        found->width_log2 = job->width_log2;
        if (job->row)
            return PICI_E_UNSUPPORTED;
        if (!clip(job, &range, first, first + n))
            continue;
        job->dst = whole.dst + (job->first << job->width_log2);
        if ((status = add_part(found, job, first, first + n)) != PICI_OK)
            break;
    }
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
    if (count)
        *count = 0;
    if (!count || !delta)
        return PICI_E_ARG;
    enum pici_status status = pici_found_begin(&found, indices, index_bytes, values, capacity, first, n);
    if (status)
        return status;
    status = size < 4 || memcmp(delta, "PICD", 4) != 0 ? add_block(&found, base, delta, size, base_n, first, n)
                                                       : add_small(&found, base, base_n, delta, size, first, n);
    return status ? status : pici_found_end(&found, count);
}
