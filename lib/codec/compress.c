/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_bound, pici_compress and pici_diff. */
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/hybrid.h"
#include "codec/packed.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "sized.h"

size_t pici_bound(enum pici_format format, enum pici_dtype dtype, uint64_t count)
{
    struct fmt_layout layout;
    unsigned longest = format == PICI_AUTO ? FMT_DENSE : (unsigned)format;
    if (longest == FMT_HYBRID && fmt_width_log2((unsigned)dtype) >= 0) {
        const uint64_t most = fmt_bound_hybrid((unsigned)dtype, count);
        return most > SIZE_MAX ? 0 : (size_t)most;
    }
    if (longest == FMT_PACKED) {
        const int known = fmt_width_log2((unsigned)dtype) >= 0 && fmt_is_float((unsigned)dtype);
        const uint64_t most = known ? fmt_bound_packed((unsigned)dtype, count) : 0;
        return most > SIZE_MAX ? 0 : (size_t)most;
    }
    if (longest > FMT_COO || fmt_width_log2((unsigned)dtype) < 0 ||
        !fmt_layout(&layout, longest, (unsigned)dtype, count, count) || layout.block_bytes > SIZE_MAX)
        return 0;
    return (size_t)layout.block_bytes;
}

/* The struct of version 0.2. After its members came only padding. */
struct opts_of_02 {
    size_t size;
    int threads, checksum;
    enum pici_zeros zeros;
};
_Static_assert(offsetof(struct pici_opts, pack) >= sizeof(struct opts_of_02), "pack was padding in version 0.2");

enum pici_status pici_opts_get(struct pici_opts *options, const struct pici_opts *given)
{
    static const struct pici_opts defaults = PICI_OPTS_INIT;
    *options = defaults;
    const size_t first = SIZED_THROUGH(struct pici_opts, checksum);
    const enum pici_status status = given ? sized_read(options, sizeof *options, first, given) : PICI_OK;
    if (status)
        return status;
    if ((unsigned)options->holds > PICI_HOLDS_E2M1X2)
        return PICI_E_UNSUPPORTED;
    return options->threads < 0 || options->checksum < 0 || options->checksum > 1 ||
                   (options->zeros != PICI_ZEROS_EXACT && options->zeros != PICI_ZEROS_BY_VALUE) ||
                   (options->pack != PICI_PACK_NONE && options->pack != PICI_PACK_PLANES &&
                    options->pack != PICI_PACK_FAST)
               ? PICI_E_ARG
               : PICI_OK;
}

void pici_copy_stored(void *dst, const void *src, size_t count, unsigned width_log2)
{
    uint8_t *target = dst;
    const uint8_t *from = src;
    size_t width = (size_t)1 << width_log2;
    if (!PICI_BIG_ENDIAN || width == 1) {
        if (count)
            memcpy(target, from, count * width);
        return;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < width; j++)
            target[i * width + j] = from[i * width + (width - 1 - j)];
}

/* One call of pici_compress or pici_diff, its arguments checked. */
struct job {
    uint8_t *block;
    size_t capacity;
    struct pici_source source;
    size_t count;
    unsigned dtype;
    int threads;  /* to use */
    int stream;   /* use non-temporal stores */
    int by_value; /* -0.0 is a zero, and in.move has the kernels for that */
    enum pici_pack pack;
};

static void zero_padding(const struct job *job, const struct fmt_layout *layout)
{
    uint64_t end = layout->index_offset + layout->index_bytes;
    memset(job->block + end, 0, (size_t)(layout->values_offset - end));
}

/* ---- bitmap ---- */

/* Pack the tile that begins with element `first` through a bounce buffer. It is a difference, or partial, or has too
 * little room for a kernel that writes past its end. room: number of values that fit. Returns the number of values, or
 * TILE + 1 if they do not fit. */
__attribute__((noinline)) static unsigned pack_tile_bounced(const struct job *job, size_t first, uint8_t *bits,
                                                            uint8_t *values, uint64_t capacity)
{
    uint8_t tile[TILE * 8] __attribute__((aligned(64))), output[TILE * 8 + PICI_SLACK], index[8];
    const size_t count = job->count - first < TILE ? job->count - first : TILE;
    struct pici_pack_run run = {.src = pici_source_tile(&job->source, first, count, tile),
                                .bits = bits,
                                .index = index,
                                .index_width = 4,
                                .values = output,
                                .tiles = 1,
                                .ahead = TILE << job->source.width_log2};
    job->source.move->pack(&run);
    if (run.next_value > capacity)
        return TILE + 1;
    memcpy(values, output, (size_t)run.next_value << job->source.width_log2);
    return (unsigned)run.next_value;
}

static enum pici_status pack_serial(const struct job *job, const struct fmt_layout *layout, uint64_t *nonzeros)
{
    const uint64_t capacity = (job->capacity - layout->values_offset) >> job->source.width_log2;
    const uint64_t slack = PICI_SLACK >> job->source.width_log2;
    struct pici_pack_run run = {.bits = job->block + HDR_BYTES,
                                .index = job->block + layout->index_offset,
                                .index_width = layout->index_width,
                                .stream = job->stream,
                                .values = job->block + layout->values_offset,
                                .ahead = TILE << job->source.width_log2};
    size_t remaining = job->count;
    while (remaining) {
        size_t first = job->count - remaining, whole = remaining / TILE, safe = 0;
        if (!job->source.base && capacity - run.next_value > slack)
            safe = (size_t)((capacity - run.next_value - slack) / TILE);
        run.tiles = whole < safe ? whole : safe;
        size_t done = run.tiles;
        if (done) {
            run.src = job->source.src + (first << job->source.width_log2);
            job->source.move->pack(&run);
        } else {
            uint8_t *values = run.values + ((size_t)run.next_value << job->source.width_log2);
            unsigned packed = pack_tile_bounced(job, first, run.bits, values, capacity - run.next_value);
            if (packed > TILE)
                return PICI_E_SPACE;
            store_index(run.index, run.index_width, 0, run.next_value);
            run.next_value += packed;
            done = 1;
        }
        run.bits += done * TILE_BITS_BYTES;
        run.index += done * run.index_width;
        remaining -= remaining < done * TILE ? remaining : done * TILE;
    }
    *nonzeros = run.next_value;
    return PICI_OK;
}

/* Each thread takes the next chunk of tiles and makes its words. The threads sum the chunks' counts in order, so each
 * learns where its values go. Then it packs the values, with the elements still in its cache, and prefetches the chunk
 * that it will probably take next. This needs kernels that write exactly, because an extra byte could belong to the
 * next chunk. With other kernels, and for tiles that need a bounce buffer, the thread packs values together with the
 * words, into a buffer on the stack. */
enum { CHUNK_BYTES = 128 << 10 };

struct chunks {
    const struct job *job;
    const struct fmt_layout *layout;
    size_t chunk_tiles, chunks;
    atomic_size_t next; /* chunk to take */
    atomic_size_t turn; /* chunk whose count is added next */
    /* nonzeros of the chunks before turn; UINT64_MAX: they did not fit. Only the thread whose turn it is may use it */
    uint64_t nonzeros;
};

static void pack_chunks(void *context, int thread)
{
    struct chunks *chunks = context;
    const struct job *job = chunks->job;
    const struct fmt_layout *layout = chunks->layout;
    const unsigned width_log2 = job->source.width_log2;
    const uint64_t capacity = (job->capacity - layout->values_offset) >> width_log2;
    const int exact = job->stream && job->source.move->copy;
    const enum pici_pack_what what = exact ? PACK_WORDS : PACK_ALL;
    uint8_t buffer[CHUNK_BYTES + PICI_SLACK], index[CHUNK_BYTES / TILE * 4];
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&chunks->next, 1)) < chunks->chunks;) {
        const size_t tile = i * chunks->chunk_tiles, first = tile * TILE, remaining = job->count - first,
                     whole = job->source.base ? 0 : remaining / TILE;
        struct pici_pack_run run = {.what = what,
                                    .src = job->source.src + (first << width_log2),
                                    .bits = job->block + HDR_BYTES + tile * TILE_BITS_BYTES,
                                    .index = index,
                                    .index_width = 4,
                                    .stream = exact,
                                    .values = buffer,
                                    .tiles = whole < chunks->chunk_tiles ? whole : chunks->chunk_tiles,
                                    .ahead = (size_t)TILE << width_log2};
        if (exact)
            run.ahead = (size_t)job->threads * CHUNK_BYTES;
        job->source.move->pack(&run);
        size_t tiles = run.tiles, packed = (size_t)run.next_value;
        for (; tiles < chunks->chunk_tiles && remaining > tiles * TILE;
             tiles++) { /* a partial tile; with a base, all tiles */
            store_index(index, 4, tiles, packed);
            packed += pack_tile_bounced(job, first + tiles * TILE, run.bits + tiles * TILE_BITS_BYTES,
                                        buffer + (packed << width_log2), TILE);
        }

        while (atomic_load_explicit(&chunks->turn, memory_order_acquire) != i)
            sched_yield();
        const uint64_t base = chunks->nonzeros;
        const int fits = base <= capacity && packed <= capacity - base;
        chunks->nonzeros = fits ? base + packed : UINT64_MAX;
        atomic_store_explicit(&chunks->turn, i + 1, memory_order_release);
        if (!fits) {
            atomic_store(&chunks->next, chunks->chunks);
            continue;
        }
        for (size_t done_tiles = 0; done_tiles < tiles; done_tiles++)
            store_index(job->block + layout->index_offset, layout->index_width, tile + done_tiles,
                        base + load_le32(index + 4 * done_tiles));
        uint8_t *const output = job->block + layout->values_offset + ((size_t)base << width_log2);
        if (exact) {
            const size_t done = (size_t)run.next_value << width_log2;
            run.what = PACK_VALUES;
            run.values = output;
            run.next_value = 0;
            job->source.move->pack(&run);
            job->source.move->copy(output + done, buffer + done, (packed << width_log2) - done);
        } else {
            memcpy(output, buffer, packed << width_log2);
        }
    }
}

static enum pici_status compress_bitmap(const struct job *job, uint64_t *nonzeros)
{
    struct fmt_layout layout;
    if (!fmt_layout(&layout, FMT_BITMAP, job->dtype, job->count, 0) || layout.block_bytes > job->capacity)
        return PICI_E_SPACE;
    if (job->threads > 1) {
        struct chunks chunks = {
            .job = job, .layout = &layout, .chunk_tiles = CHUNK_BYTES / TILE >> job->source.width_log2};
        chunks.chunks = (size_t)((layout.tiles + chunks.chunk_tiles - 1) / chunks.chunk_tiles);
        pici_parallel(job->threads, CHUNK_BYTES + (256 << 10), pack_chunks, &chunks);
        *nonzeros = chunks.nonzeros;
        if (*nonzeros == UINT64_MAX)
            return PICI_E_SPACE;
    } else {
        enum pici_status status = pack_serial(job, &layout, nonzeros);
        if (status)
            return status;
    }
    zero_padding(job, &layout);
    return PICI_OK;
}

/* ---- counting, and coo ---- */

/* Where an input has nonzeros, if it has few. Bit i stands for tiles_per_bit tiles, from tile i * tiles_per_bit on. */
enum { WHERE_BITS = 1 << 16 };
struct where {
    uint64_t bits[WHERE_BITS / 64];
    uint64_t tiles_per_bit;
};

static void where_add(struct where *where, uint64_t tile)
{
    where->bits[tile / where->tiles_per_bit / 64] |= UINT64_C(1) << tile / where->tiles_per_bit % 64;
}

static int where_has(const struct where *where, uint64_t tile)
{
    return where->bits[tile / where->tiles_per_bit / 64] >> tile / where->tiles_per_bit % 64 & 1;
}

/* The input in parts, one for each thread. Each thread first counts its nonzeros, then writes their entries. */
struct parts {
    const struct job *job;
    const struct where *where;             /* null: anywhere */
    struct fmt_layout layout;              /* of the coo block */
    uint64_t before[PICI_MAX_THREADS + 1]; /* nonzeros of the parts before each */
    atomic_int changed;                    /* src changed between counting and writing */
};

static size_t part_begin(const struct job *job, int i)
{
    uint64_t tiles = fmt_tiles(job->count), begin = tiles / (unsigned)job->threads * (unsigned)i;
    uint64_t remainder = tiles % (unsigned)job->threads;
    begin += (unsigned)i < remainder ? (unsigned)i : remainder;
    return begin * TILE < job->count ? (size_t)(begin * TILE) : job->count;
}

/* Nonzeros of elements [first, end). */
__attribute__((noinline)) static uint64_t count_nonzeros(const struct job *job, size_t first, size_t end)
{
    uint8_t buffer[TILE * 8] __attribute__((aligned(64)));
    uint64_t nonzeros = 0;
    if (!job->source.base && first < end)
        return job->source.move->count(job->source.src + (first << job->source.width_log2), end - first);
    for (size_t count; first < end; first += count) {
        count = end - first < TILE ? end - first : TILE;
        nonzeros += job->source.move->count(pici_source_tile(&job->source, first, count, buffer), count);
    }
    return nonzeros;
}

static void count_part(void *context, int i)
{
    struct parts *parts = context;
    size_t begin = part_begin(parts->job, i), end = part_begin(parts->job, i + 1);
    parts->before[i + 1] = parts->where ? 0 : count_nonzeros(parts->job, begin, end);
    for (size_t some; parts->where && begin < end; begin += some) {
        some = end - begin < TILE ? end - begin : TILE;
        if (where_has(parts->where, begin / TILE))
            parts->before[i + 1] += count_nonzeros(parts->job, begin, begin + some);
    }
}

static void run_parts(struct parts *parts, void (*work)(void *, int))
{
    if (parts->job->threads > 1)
        pici_parallel(parts->job->threads, 256 << 10, work, parts);
    else
        work(parts, 0);
}

static uint64_t count_parts(struct parts *parts)
{
    run_parts(parts, count_part);
    parts->before[0] = 0;
    for (int i = 0; i < parts->job->threads; i++)
        parts->before[i + 1] += parts->before[i];
    return parts->before[parts->job->threads];
}

/* Write the entries of one part. Kernels may write past their end, so near the part's end they use a bounce buffer. */
static void pack_coo_part(void *context, int i)
{
    struct parts *parts = context;
    const struct job *job = parts->job;
    const struct fmt_layout *layout = &parts->layout;
    const unsigned index_width = layout->index_width, width = 1u << job->source.width_log2;
    uint8_t *index = job->block + layout->index_offset, *values = job->block + layout->values_offset;
    uint8_t index_end[TILE * 8 + PICI_SLACK], values_end[TILE * 8 + PICI_SLACK];
    uint8_t buffer[TILE * 8] __attribute__((aligned(64)));
    uint64_t position = parts->before[i], end = parts->before[i + 1];
    for (size_t first = part_begin(job, i), stop = part_begin(job, i + 1), some; first < stop; first += some) {
        some = stop - first < TILE ? stop - first : TILE;
        if (parts->where && !where_has(parts->where, first / TILE))
            continue;
        const uint8_t *src = pici_source_tile(&job->source, first, some, buffer);
        if (end - position >= TILE + PICI_SLACK) {
            position += job->source.move->pack_coo(index + position * index_width, index_width,
                                                   values + position * width, src, some, first);
        } else {
            size_t packed = job->source.move->pack_coo(index_end, index_width, values_end, src, some, first);
            if (packed > end - position) {
                position = UINT64_MAX;
                break;
            }
            memcpy(index + position * index_width, index_end, packed * index_width);
            memcpy(values + position * width, values_end, packed * width);
            position += packed;
        }
    }
    if (position != end)
        atomic_store(&parts->changed, 1);
}

static enum pici_status compress_coo(const struct job *job, struct parts *parts, uint64_t nonzeros)
{
    if (!fmt_layout(&parts->layout, FMT_COO, job->dtype, job->count, nonzeros) ||
        parts->layout.block_bytes > job->capacity)
        return PICI_E_SPACE;
    if (nonzeros)
        run_parts(parts, pack_coo_part);
    zero_padding(job, &parts->layout);
    return atomic_load(&parts->changed) ? PICI_E_ARG : PICI_OK;
}

/* ---- hybrid ---- */

/* When PICI_AUTO gives up a block before its end, because it will choose another format. */
enum give_up {
    NEVER,
    IF_LONGER,  /* hybrid: its records so far are no shorter than their elements */
    IF_SHORTER, /* dense: hybrid's records so far would be shorter than their elements */
    IF_SURELY   /* dense: hybrid's block would be shorter for any remaining elements */
};

/* Each thread takes the next group and lays out its record. The threads sum the records' sizes in the order of the
 * groups, so each learns where its record goes. Then it writes the record. */
struct records {
    const struct job *job;
    const struct fmt_layout *layout;
    size_t capacity, groups;
    int dense; /* write a dense block instead, and only compute the records' sizes */
    enum give_up give_up;
    struct where *where; /* null, or notes where nonzeros are */
    atomic_size_t next;  /* group to take */
    atomic_size_t turn;  /* group whose size is added next */
    size_t end; /* of the records before turn; SIZE_MAX: they did not fit, or the block was given up. Only the thread
                 * whose turn it is may use end and nonzeros */
    uint64_t nonzeros;
    uint64_t kept; /* negative zeros with a kept sign, not among nonzeros */
};

/* Give up the block when the records of groups 0 to `group` end at `end`? */
static int gives_up(const struct records *records, size_t group, size_t end)
{
    const struct job *job = records->job;
    const unsigned width_log2 = job->source.width_log2;
    const size_t record_bytes = end - (size_t)records->layout->body_offset;
    if (records->give_up == NEVER || group + 1 == records->groups)
        return 0;
    const size_t elements = (group + 1) * GROUP_TILES * TILE, bytes = elements << width_log2;
    if (records->give_up == IF_SURELY) { /* the longest records of the other groups */
        const uint64_t remainder = fmt_bound_hybrid(job->dtype, job->count - elements);
        return remainder && records->layout->body_offset + record_bytes + remainder <
                                HDR_BYTES + ((uint64_t)job->count << width_log2);
    }
    return (record_bytes < bytes) == (records->give_up == IF_SHORTER);
}

/* Add the record of the group whose turn it is. Returns 0 if there is no space for it, or the block is given up. */
static int add_record(struct records *records, size_t group, const struct pici_group_layout *layout)
{
    const size_t begin = records->end;
    const int good = begin <= records->capacity && layout->record <= records->capacity - begin &&
                     !gives_up(records, group, begin + layout->record);
    records->end = good ? begin + layout->record : SIZE_MAX;
    records->nonzeros += layout->nonzeros;
    records->kept += layout->kept;
    for (unsigned i = 0; records->where && i < layout->tiles; i++)
        if (layout->tile[i].nonzeros || layout->signs >> i & 1)
            where_add(records->where, group * GROUP_TILES + i);
    atomic_store_explicit(&records->turn, group + 1, memory_order_release);
    if (!good)
        atomic_store(&records->next, records->groups);
    return good;
}

static void write_records(void *context, int thread)
{
    struct records *records = context;
    const struct job *job = records->job;
    const unsigned width_log2 = job->source.width_log2;
    const size_t whole = (size_t)GROUP_TILES * TILE;
    struct pici_group_layout layout;
    struct pici_scratch scratch;
    enum pici_prediction predicted = PREDICT_SPARSE; /* a wrong guess costs little */
    (void)thread;
    for (size_t group; (group = atomic_fetch_add(&records->next, 1)) < records->groups;) {
        const size_t first = group * whole, remaining = job->count - first,
                     count = remaining < whole ? remaining : whole;
        if (records->dense) {
            pici_group_copy(&layout, &scratch, &job->source, first, count,
                            job->block + HDR_BYTES + (first << width_log2), job->stream);
            while (atomic_load_explicit(&records->turn, memory_order_acquire) != group)
                sched_yield();
            (void)add_record(records, group, &layout);
            continue;
        }
        if (count < whole)
            predicted = PREDICT_ANY;
        /* the longest record of whole tiles is shorter than twice its elements */
        if (predicted == PREDICT_ALIKE && !job->source.base && job->threads == 1 && records->end <= records->capacity &&
            (records->capacity - records->end) / 2 >> width_log2 >= count &&
            pici_group_write_alike(&layout, &job->source, first, job->block + records->end, job->stream)) {
            store_index(job->block + HDR_BYTES, records->layout->index_width, group,
                        (records->end - records->layout->body_offset) / fmt_unit(width_log2));
            (void)add_record(records, group, &layout);
            continue;
        }
        const int sparse =
            predicted == PREDICT_SPARSE && pici_group_layout_sparse(&layout, &scratch, &job->source, first);
        if (!sparse)
            pici_group_layout_make(&layout, &scratch, &job->source, first, count);
        predicted = pici_group_predict(&layout, &job->source);

        while (atomic_load_explicit(&records->turn, memory_order_acquire) != group)
            sched_yield();
        const size_t begin = records->end;
        if (!add_record(records, group, &layout))
            continue;
        store_index(job->block + HDR_BYTES, records->layout->index_width, group,
                    (begin - records->layout->body_offset) / fmt_unit(width_log2));
        if (sparse)
            pici_group_write_sparse(&layout, &scratch, &job->source, job->block + begin, job->stream);
        else
            pici_group_write(&layout, &scratch, &job->source, first, count, job->block + begin,
                             job->threads > 1 ? layout.record : records->capacity - begin, job->stream);
    }
}

static void run_records(struct records *records)
{
    records->groups = (size_t)fmt_groups(records->layout->tiles);
    records->end = (size_t)records->layout->body_offset;
    if (records->job->threads > 1)
        pici_parallel(records->job->threads, 256 << 10, write_records, records);
    else
        write_records(records, 0);
}

/* Write a hybrid body in at most `capacity` bytes, which is at most job->capacity. where: null, or out. *nonzeros,
 * *kept: out, as in struct records. PICI_E_SPACE: it does not fit, or was given up. */
static enum pici_status compress_hybrid(const struct job *job, size_t capacity, enum give_up when, struct where *where,
                                        struct fmt_layout *layout, uint64_t *nonzeros, uint64_t *kept)
{
    (void)fmt_layout_hybrid(layout, FMT_VERSION, job->dtype, job->count, 0, 0);
    if (layout->body_offset > capacity)
        return PICI_E_SPACE;
    struct records records = {.job = job, .layout = layout, .capacity = capacity, .give_up = when, .where = where};
    if (where) {
        memset(where, 0, sizeof *where);
        where->tiles_per_bit = layout->tiles / WHERE_BITS + 1;
    }
    memset(job->block + HDR_BYTES, 0, (size_t)layout->body_offset - HDR_BYTES);
    run_records(&records);
    if (records.end == SIZE_MAX)
        return PICI_E_SPACE;
    *nonzeros = records.nonzeros;
    *kept = records.kept;
    const unsigned version = records.kept ? FMT_VERSION_SIGNS : FMT_VERSION;
    const uint64_t values_offset = records.end - (records.nonzeros << job->source.width_log2);
    if (!fmt_layout_hybrid(layout, version, job->dtype, job->count, records.nonzeros, values_offset))
        return PICI_E_ARG;
    return PICI_OK;
}

/* Write the body of a dense block, which must fit. Returns the size that a hybrid block would have, or 0 if the body
 * was given up. Sets *nonzeros and *kept. */
static uint64_t copy_and_measure(const struct job *job, enum give_up when, uint64_t *nonzeros, uint64_t *kept)
{
    struct fmt_layout layout;
    (void)fmt_layout_hybrid(&layout, FMT_VERSION, job->dtype, job->count, 0, 0);
    struct records records = {.job = job, .layout = &layout, .capacity = SIZE_MAX - 1, .dense = 1, .give_up = when};
    run_records(&records);
    *nonzeros = records.nonzeros;
    *kept = records.kept;
    return records.end == SIZE_MAX ? 0 : records.end;
}

/* ---- packed ---- */

static enum pici_status compress_packed(const struct job *job, struct pici_packed_made *made, int if_shorter)
{
    const struct pici_packed_make make = {.block = job->block,
                                          .capacity = job->capacity,
                                          .source = &job->source,
                                          .count = job->count,
                                          .dtype = job->dtype,
                                          .threads = job->threads,
                                          .stream = job->stream,
                                          .one_level = job->pack == PICI_PACK_FAST,
                                          .by_value = job->by_value,
                                          .if_shorter = if_shorter};
    return pici_packed_write(made, &make);
}

/* ---- all formats ---- */

/* Bytes of a block of this format (not hybrid) with this many nonzeros; UINT64_MAX if that is beyond 64 bits. */
static uint64_t block_size(const struct job *job, unsigned format, uint64_t nonzeros)
{
    struct fmt_layout layout;
    const uint64_t values = format == FMT_DENSE ? job->count : nonzeros;
    return fmt_layout(&layout, format, job->dtype, job->count, values) ? layout.block_bytes : UINT64_MAX;
}

/* The smallest format other than hybrid; among equal ones, the one with the lowest number. */
static unsigned smallest(const struct job *job, uint64_t nonzeros)
{
    unsigned best = FMT_DENSE;
    for (unsigned format = FMT_BITMAP; format <= FMT_COO; format++)
        if (block_size(job, format, nonzeros) < block_size(job, best, nonzeros))
            best = format;
    return best;
}

/* Would the first tile be raw in a hybrid block? */
static int begins_raw(const struct job *job)
{
    const unsigned elements = job->count < TILE ? (unsigned)job->count : TILE;
    const unsigned nonzeros = (unsigned)count_nonzeros(job, 0, elements);
    return nonzeros && container_of(nonzeros, elements, job->source.width_log2, 0) == PICI_RAW;
}

enum { NO_FORMAT = 254 };

/* What AUTO has made so far. */
struct automatic {
    const struct job *job;
    struct where *where;
    struct fmt_layout *layout; /* of the hybrid block */
    uint64_t dense_bytes;
    uint64_t hybrid_bytes; /* known once a body is complete */
    uint64_t nonzeros, kept;
    unsigned made; /* the format of the complete body, or NO_FORMAT */
};

/* Write a dense body. Returns 0 if it was given up. */
static int make_dense(struct automatic *made, enum give_up give_up)
{
    made->hybrid_bytes = copy_and_measure(made->job, give_up, &made->nonzeros, &made->kept);
    made->made = made->hybrid_bytes ? FMT_DENSE : NO_FORMAT;
    return made->made == FMT_DENSE;
}

/* Write a hybrid body that is shorter than a dense one. Returns 0 if it does not fit, or was given up. */
static int make_hybrid(struct automatic *made, enum give_up give_up)
{
    const struct job *job = made->job;
    const size_t most = made->dense_bytes <= job->capacity ? (size_t)made->dense_bytes - 1 : job->capacity;
    const enum pici_status status =
        compress_hybrid(job, most, give_up, made->where, made->layout, &made->nonzeros, &made->kept);
    made->made = status == PICI_OK ? FMT_HYBRID : NO_FORMAT;
    if (status == PICI_OK)
        made->hybrid_bytes = made->layout->block_bytes;
    return status == PICI_OK;
}

/* Write a dense or a hybrid body, whichever is shorter. Each attempt that gives up leads to the next; the last, a dense
 * one, never gives up. */
static void make_shorter(struct automatic *made)
{
    if (made->dense_bytes > made->job->capacity) /* all formats that fit are shorter than dense */
        (void)make_hybrid(made, NEVER);
    else if (begins_raw(made->job))
        (void)(make_dense(made, IF_SHORTER) || make_hybrid(made, NEVER) || make_dense(made, NEVER));
    else
        (void)(make_hybrid(made, IF_LONGER) || make_dense(made, IF_SURELY) || make_hybrid(made, NEVER) ||
               make_dense(made, NEVER));
}

/* The format that AUTO uses: the smallest one; among equal ones, the one with the lowest number. Except for some short
 * blocks it is hybrid or dense. So this makes one of these two first, which also counts the nonzeros. *done: the block
 * of the returned format is complete except for its header. */
static unsigned auto_format(const struct job *job, struct parts *parts, struct where *where, uint64_t *nonzeros,
                            struct fmt_layout *layout, int *done)
{
    struct automatic made = {
        .job = job, .where = where, .layout = layout, .dense_bytes = block_size(job, FMT_DENSE, 0)};
    make_shorter(&made);
    if (made.made == NO_FORMAT) { /* hybrid is longer than every format that fits */
        made.nonzeros = count_parts(parts);
        made.kept = 0;
        made.hybrid_bytes = UINT64_MAX;
    }
    *nonzeros = made.nonzeros + made.kept;
    unsigned format = smallest(job, *nonzeros);
    if (made.hybrid_bytes < block_size(job, format, *nonzeros)) {
        format = FMT_HYBRID;
        *nonzeros = made.nonzeros;
    }
    if (format == FMT_COO && made.made != NO_FORMAT && *nonzeros) {
        parts->before[1] = *nonzeros;
        parts->where = made.made == FMT_HYBRID ? where : NULL;
        if (job->threads > 1)
            count_parts(parts);
    }
    *done = format == made.made;
    return format;
}

__attribute__((noinline)) static void copy_dense(const struct job *job)
{
    uint8_t buffer[TILE * 8] __attribute__((aligned(64))), *output = job->block + HDR_BYTES;
    if (job->by_value)
        job->source.move->dense(output, job->source.src, job->count, job->stream);
    else if (!job->source.base)
        pici_copy_stored(output, job->source.src, job->count, job->source.width_log2);
    for (size_t first = 0, some; job->source.base && first < job->count; first += some) {
        some = job->count - first < TILE ? job->count - first : TILE;
        pici_copy_stored(output + (first << job->source.width_log2),
                         pici_source_tile(&job->source, first, some, buffer), some, job->source.width_log2);
    }
}

/* Write the body of a packed block if the caller asked to pack. Returns whether it is shorter than a block of the
 * requested format. */
static int packs(const struct job *job, enum pici_format format, struct pici_packed_made *made)
{
    if (job->pack == PICI_PACK_NONE || (format != PICI_HYBRID && format != PICI_AUTO) ||
        compress_packed(job, made, 1) != PICI_OK || made->layout.block_bytes >= made->hybrid_bytes)
        return 0;
    const uint64_t nonzeros = made->nonzeros + made->kept;
    return format == PICI_HYBRID || made->layout.block_bytes < block_size(job, smallest(job, nonzeros), nonzeros);
}

static enum pici_status compress(const struct job *job, enum pici_format format, int checksum, size_t *size)
{
    struct parts parts = {.job = job};
    struct where where; /* for AUTO */
    unsigned chosen = (unsigned)format;
    uint64_t nonzeros = 0, kept;
    enum pici_status status = PICI_OK;
    struct fmt_layout layout;
    int done = 0;

    if (format == PICI_COO)
        nonzeros = count_parts(&parts);
    if (job->capacity < HDR_BYTES)
        return PICI_E_SPACE;
    memset(job->block, 0, HDR_BYTES); /* an unfinished block must not begin with a valid header */
    struct pici_packed_made packed;
    if (packs(job, format, &packed)) {
        chosen = FMT_PACKED;
        done = 1;
    } else if (format == PICI_AUTO) {
        chosen = auto_format(job, &parts, &where, &nonzeros, &layout, &done);
    }
    if (chosen == FMT_PACKED) {
        status = done ? PICI_OK : compress_packed(job, &packed, 0);
        layout = packed.layout;
        nonzeros = packed.nonzeros;
    } else if (chosen == FMT_HYBRID) {
        status = done ? PICI_OK : compress_hybrid(job, job->capacity, NEVER, NULL, &layout, &nonzeros, &kept);
    } else if (chosen == FMT_BITMAP) {
        status = compress_bitmap(job, &nonzeros);
    } else if (chosen == FMT_COO) {
        status = compress_coo(job, &parts, nonzeros);
    } else {
        nonzeros = job->count;
        if (job->count > (job->capacity - HDR_BYTES) >> job->source.width_log2)
            return PICI_E_SPACE;
        if (!done)
            copy_dense(job);
    }
    if (status)
        return status;
    if (!fmt_has_groups(chosen) && !fmt_layout(&layout, chosen, job->dtype, job->count, nonzeros))
        return PICI_E_SPACE;
    unsigned flags = fmt_flags(chosen, job->count) | (checksum ? FLAG_CHECKSUM : 0u);
    if (chosen == FMT_PACKED && job->pack == PICI_PACK_FAST)
        flags |= FLAG_ONE_LEVEL;
    pici_block_emit(job->block, &layout, chosen, job->dtype, flags, job->count, nonzeros);
    if (checksum)
        store_le64(job->block + HDR_CHECKSUM, pici_block_hash(job->block, (size_t)layout.block_bytes));
    *size = (size_t)layout.block_bytes;
    return PICI_OK;
}

/* base: may be null. */
static enum pici_status encode(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                               uint64_t count, enum pici_dtype dtype, enum pici_format format,
                               const struct pici_opts *options)
{
    struct pici_opts checked;
    int width_log2 = fmt_width_log2((unsigned)dtype);
    if (!block || !size || (!src && count) || width_log2 < 0 || !pici_format_name(format) ||
        count > SIZE_MAX >> width_log2 || pici_overlap(block, capacity, src, count << width_log2) ||
        pici_overlap(block, capacity, base, base ? count << width_log2 : 0))
        return PICI_E_ARG;
    enum pici_status status = pici_opts_get(&checked, options);
    if (status)
        return status;
    const int is_float = fmt_is_float((unsigned)dtype);
    if (format == PICI_PACKED && !is_float)
        return PICI_E_UNSUPPORTED;
    const int by_value = checked.zeros == PICI_ZEROS_BY_VALUE && !base && is_float;
    struct job job = {.block = block,
                      .capacity = capacity,
                      .source = {src, base, (by_value ? pici_isa()->by_value : pici_isa()->move)[width_log2],
                                 (unsigned)width_log2, .signs = !by_value && is_float},
                      .count = (size_t)count,
                      .dtype = (unsigned)dtype,
                      .threads = pici_thread_count(checked.threads, fmt_tiles(count) / PICI_PIECE_TILES),
                      .stream = count << width_log2 >= PICI_STREAM_BYTES,
                      .by_value = by_value,
                      .pack = is_float && (!base || format == PICI_PACKED) ? checked.pack : PICI_PACK_NONE};
    return compress(&job, format, checked.checksum, size);
}

enum pici_status pici_compress(void *block, size_t capacity, size_t *size, const void *src, uint64_t count,
                               enum pici_dtype dtype, enum pici_format format, const struct pici_opts *options)
{
    if (size)
        *size = 0;
    return encode(block, capacity, size, NULL, src, count, dtype, format, options);
}

enum pici_status pici_diff(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                           uint64_t count, enum pici_dtype dtype, enum pici_format format,
                           const struct pici_opts *options)
{
    if (size)
        *size = 0;
    return count && !base ? PICI_E_ARG : encode(block, capacity, size, base, src, count, dtype, format, options);
}
