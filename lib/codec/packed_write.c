/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing the records of packed blocks. */
#include "codec/packed.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/parallel.h"

/* Bytes of the stack that a thread needs. */
enum { THREAD_STACK = 512 << 10 };

/* Where the runs of a group go. */
enum run_place {
    MEASURE, /* nowhere: only measure their lengths */
    DIRECT,  /* to their place, which has room for raw runs */
    BOUNCED, /* to their place, which may have no room after them */
    STREAMED /* the same, with non-temporal stores */
};

struct writer {
    const struct pici_packed_make *make;
    const struct pici_planes *planes;
    enum run_place destination;
    uint8_t *out;        /* where the next run goes */
    uint8_t *descriptor; /* where its descriptor goes */
    size_t bytes;        /* of all runs so far */
    size_t most;         /* room for runs, in bytes */
    int changed;         /* src has changed since it was measured: the runs need more room */
    unsigned held;       /* values in the buffer */
    uint8_t values[VALUES_MOST * 8 + PICI_SLACK] __attribute__((aligned(64)));
    uint8_t run[RUN_MOST * 8] __attribute__((aligned(64)));
};

static void write_run(struct writer *writer, const uint8_t *values, unsigned n)
{
    struct fmt_run run;
    uint8_t *const to = writer->destination == DIRECT ? writer->out : writer->run;
    const unsigned bytes = writer->planes->pack(to, &run, values, n, writer->make->one_level);
    writer->changed |= bytes > writer->most - writer->bytes;
    if (writer->changed)
        return;
    writer->bytes += bytes;
    if (writer->destination == MEASURE)
        return;
    if (writer->destination == STREAMED)
        writer->make->source->move->copy(writer->out, writer->run, bytes);
    else if (writer->destination == BOUNCED)
        memcpy(writer->out, writer->run, bytes);
    writer->out += bytes;
    fmt_run_write(writer->descriptor, &run);
    writer->descriptor += RUN_DESCRIPTOR;
}

/* Write the payloads and runs of the group of elements [first, first + n). payload: null to measure. Returns where the
 * payloads end. */
static uint8_t *write_tiles(struct writer *writer, const struct pici_group_layout *layout, struct pici_scratch *scratch,
                            size_t first, size_t n, uint8_t *payload)
{
    const struct pici_source *const source = writer->make->source;
    const unsigned width_log2 = source->width_log2;
    const int straight = !PICI_BIG_ENDIAN && !source->base && !writer->make->by_value;
    uint8_t ignored[RUNS + OFFSETS8_MOST];
    for (unsigned i = 0; i < layout->tiles; i++) {
        const size_t at = (size_t)i * TILE;
        const unsigned len = n - at < TILE ? (unsigned)(n - at) : TILE;
        if (!layout->tile[i].nonzeros)
            continue;
        const uint8_t *const src = pici_source_tile(source, first + at, len, scratch->bytes);
        if (straight && !writer->held && len == TILE && layout->tile[i].container == PICI_RAW) {
            write_run(writer, src, TILE);
            continue;
        }
        struct pici_pack_tiles one = {.src = src,
                                      .word = layout->word + i,
                                      .tile = layout->tile + i,
                                      .tiles = 1,
                                      .payload = payload ? payload : ignored,
                                      .values = writer->values + ((size_t)writer->held << width_log2)};
        source->move->pack_tiles(&one);
        payload = payload ? one.payload : NULL;
        writer->held += container_stored(layout->tile[i].container, layout->tile[i].nonzeros, len);
        if (writer->held >= RUN_MOST) {
            write_run(writer, writer->values, RUN_MOST);
            writer->held -= RUN_MOST;
            memmove(writer->values, writer->values + ((size_t)RUN_MOST << width_log2),
                    (size_t)writer->held << width_log2);
        }
    }
    if (writer->held)
        write_run(writer, writer->values, writer->held);
    writer->held = 0;
    return payload;
}

/* Bytes of a group's record before its runs. */
static size_t before_runs(const struct pici_group_layout *layout, unsigned width_log2)
{
    const size_t metadata =
        layout->metadata + (size_t)fmt_runs((unsigned)(layout->values >> width_log2)) * RUN_DESCRIPTOR;
    return (metadata + 7) & ~(size_t)7;
}

/* The greatest length of a record. */
static size_t record_most(const struct pici_group_layout *layout, unsigned width_log2)
{
    const size_t runs = layout->values + 8; /* only the last one is not a multiple of 8 */
    return (size_t)fmt_record_packed(before_runs(layout, width_log2), runs, width_log2);
}

static int is_empty(const struct pici_group_layout *layout)
{
    return !layout->nonzeros && !layout->signs;
}

static size_t measure_record(struct writer *writer, const struct pici_group_layout *layout,
                             struct pici_scratch *scratch, size_t first, size_t n)
{
    const unsigned width_log2 = writer->make->source->width_log2;
    if (is_empty(layout))
        return 0;
    writer->destination = MEASURE;
    writer->bytes = 0;
    writer->most = SIZE_MAX;
    write_tiles(writer, layout, scratch, first, n, NULL);
    return (size_t)fmt_record_packed(before_runs(layout, width_log2), writer->bytes, width_log2);
}

/* Write a record at out; returns its length. most: room for runs, in bytes. */
static size_t write_record(struct writer *writer, enum run_place destination, const struct pici_group_layout *layout,
                           struct pici_scratch *scratch, size_t first, size_t n, uint8_t *out, size_t most)
{
    const unsigned width_log2 = writer->make->source->width_log2;
    if (is_empty(layout))
        return 0;
    const size_t before = before_runs(layout, width_log2);
    writer->destination = destination;
    writer->bytes = 0;
    writer->most = most;
    writer->out = out + before;
    writer->descriptor = pici_group_write_descriptors(layout, out);
    const size_t descriptors = (size_t)fmt_runs((unsigned)(layout->values >> width_log2)) * RUN_DESCRIPTOR;
    uint8_t *end = write_tiles(writer, layout, scratch, first, n, writer->descriptor + descriptors);
    for (uint32_t signs = layout->signs; signs; signs &= signs - 1) {
        const unsigned i = (unsigned)__builtin_ctz(signs);
        end = pici_signs_write(end, &layout->tile_signs[i], layout->negatives[i]);
    }
    memset(end, 0, (size_t)(out + before - end));
    const size_t record = (size_t)fmt_record_packed(before, writer->bytes, width_log2);
    memset(out + before + writer->bytes, 0, record - before - writer->bytes);
    return record;
}

/* Each thread takes the next group and makes its record, in memory of its own if there are other threads. The threads
 * sum the records' lengths in the order of the groups, so each learns where its record goes. */
struct groups {
    const struct pici_packed_make *make;
    const struct fmt_layout *layout;
    size_t groups;
    atomic_size_t next; /* group to take */
    atomic_size_t turn; /* group whose record is added next */
    size_t end; /* of the records before turn; SIZE_MAX: they did not fit. Only the thread whose turn it is may use
                 * end and the next line's members */
    uint64_t nonzeros, kept, hybrid;
    atomic_int changed; /* src changed between measuring and writing */
    atomic_int measure; /* packing has not paid so far: records are only measured */
    atomic_int pays;    /* packing pays after all, and records are missing */
};

/* Add the record of group g, whose turn it is. Returns where it goes, or SIZE_MAX if there is no room. */
static size_t add_record(struct groups *groups, size_t g, const struct pici_group_layout *layout, size_t record)
{
    const struct pici_packed_make *const make = groups->make;
    const size_t at = groups->end;
    const int fits = at <= make->capacity && record <= make->capacity - at;
    groups->nonzeros += layout->nonzeros;
    groups->kept += layout->kept;
    groups->hybrid += layout->record;
    if (fits)
        store_index(make->block + HDR_BYTES, groups->layout->index_width, g,
                    (at - groups->layout->body_offset) / fmt_unit_packed(make->source->width_log2));
    groups->end = fits ? at + record : SIZE_MAX;
    if (make->if_shorter && fits && groups->end > groups->hybrid)
        atomic_store(&groups->measure, 1);
    if (fits && groups->end < groups->hybrid && atomic_load(&groups->measure)) {
        atomic_store(&groups->pays, 1);
        atomic_store(&groups->next, groups->groups);
    }
    atomic_store_explicit(&groups->turn, g + 1, memory_order_release);
    if (!fits)
        atomic_store(&groups->next, groups->groups);
    return fits ? at : SIZE_MAX;
}

static void write_groups(void *context, int thread)
{
    struct groups *groups = context;
    const struct pici_packed_make *const make = groups->make;
    const unsigned width_log2 = make->source->width_log2;
    const size_t whole = (size_t)GROUP_TILES * TILE, most = fmt_bound_packed(make->dtype, whole);
    const enum run_place exactly = make->stream && make->source->move->copy ? STREAMED : BOUNCED;
    uint8_t *const own = make->threads > 1 ? malloc(most) : NULL; /* without this memory, runs are packed twice */
    struct pici_group_layout layout;
    struct pici_scratch scratch;
    struct writer writer;
    (void)thread;
    writer.make = make;
    writer.planes = pici_isa()->planes[make->dtype];
    writer.held = 0;
    writer.changed = 0;
    for (size_t g; (g = atomic_fetch_add(&groups->next, 1)) < groups->groups;) {
        const size_t first = g * whole, left = make->count - first, n = left < whole ? left : whole;
        pici_group_layout_make(&layout, &scratch, make->source, first, n);
        const int measure = atomic_load(&groups->measure);
        size_t record = 0;
        if (own && !measure)
            record = write_record(&writer, DIRECT, &layout, &scratch, first, n, own, SIZE_MAX);
        else if (make->threads > 1)
            record = measure_record(&writer, &layout, &scratch, first, n);
        while (atomic_load_explicit(&groups->turn, memory_order_acquire) != g)
            sched_yield();
        if (make->threads == 1) {
            const size_t at = groups->end, room = at <= make->capacity ? make->capacity - at : 0;
            const size_t most_here = record_most(&layout, width_log2);
            if (room >= most_here && !measure) {
                const enum run_place destination = exactly == BOUNCED ? DIRECT : exactly;
                record = write_record(&writer, destination, &layout, &scratch, first, n, make->block + at, SIZE_MAX);
                (void)add_record(groups, g, &layout, record);
                continue;
            }
            record = measure_record(&writer, &layout, &scratch, first, n);
        }
        const size_t at = add_record(groups, g, &layout, record);
        if (at == SIZE_MAX || measure)
            continue;
        if (!own) {
            const size_t measured = writer.bytes;
            (void)write_record(&writer, exactly, &layout, &scratch, first, n, make->block + at, measured);
            if (writer.changed || writer.bytes != measured)
                atomic_store(&groups->changed, 1);
        } else if (exactly == STREAMED && record) {
            make->source->move->copy(make->block + at, own, record);
        } else {
            memcpy(make->block + at, own, record);
        }
    }
    free(own);
}

enum pici_status pici_packed_write(struct pici_packed_made *made, const struct pici_packed_make *make)
{
    struct fmt_layout *const block_layout = &made->layout;
    (void)fmt_layout_packed(block_layout, FMT_VERSION, make->dtype, make->count, 0, 0);
    if (block_layout->body_offset > make->capacity)
        return PICI_E_SPACE;
    struct groups groups = {.make = make,
                            .layout = block_layout,
                            .groups = (size_t)fmt_groups(block_layout->tiles),
                            .end = (size_t)block_layout->body_offset};
    groups.hybrid = block_layout->body_offset;
    memset(make->block + HDR_BYTES, 0, (size_t)block_layout->body_offset - HDR_BYTES);
    if (make->threads > 1)
        pici_parallel(make->threads, THREAD_STACK, write_groups, &groups);
    else
        write_groups(&groups, 0);
    if (atomic_load(&groups.pays)) {
        struct pici_packed_make whole = *make;
        whole.if_shorter = 0;
        return pici_packed_write(made, &whole);
    }
    made->nonzeros = groups.nonzeros;
    made->kept = groups.kept;
    made->hybrid_bytes = groups.hybrid;
    if (groups.end == SIZE_MAX)
        return PICI_E_SPACE;
    if (atomic_load(&groups.changed))
        return PICI_E_ARG;
    return fmt_layout_packed(block_layout, groups.kept ? FMT_VERSION_SIGNS : FMT_VERSION, make->dtype, make->count,
                             groups.nonzeros, groups.end)
               ? PICI_OK
               : PICI_E_ARG;
}
