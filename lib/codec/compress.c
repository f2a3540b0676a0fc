/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_bound, pici_compress and pici_diff. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/hybrid.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "sized.h"

size_t pici_bound(enum pici_format format, enum pici_dtype dtype, uint64_t n)
{
    struct fmt_layout l;
    unsigned f = format == PICI_AUTO ? FMT_DENSE : (unsigned)format;
    if (f == FMT_HYBRID && fmt_width_log2((unsigned)dtype) >= 0) {
        const uint64_t most = fmt_bound_hybrid((unsigned)dtype, n);
        return most > SIZE_MAX ? 0 : (size_t)most;
    }
    if (f > FMT_COO || fmt_width_log2((unsigned)dtype) < 0 || !fmt_layout(&l, f, (unsigned)dtype, n, n) ||
        l.block_bytes > SIZE_MAX)
        return 0;
    return (size_t)l.block_bytes;
}

enum pici_status pici_opts_get(struct pici_opts *out, const struct pici_opts *in)
{
    static const struct pici_opts defaults = PICI_OPTS_INIT;
    *out = defaults;
    const size_t first = SIZED_THROUGH(struct pici_opts, checksum);
    const enum pici_status s = in ? sized_read(out, sizeof *out, first, in) : PICI_OK;
    if (s)
        return s;
    return out->threads < 0 || out->checksum < 0 || out->checksum > 1 ||
                   (out->zeros != PICI_ZEROS_EXACT && out->zeros != PICI_ZEROS_BY_VALUE)
               ? PICI_E_ARG
               : PICI_OK;
}

void pici_copy_stored(void *dst, const void *src, size_t n, unsigned width_log2)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t w = (size_t)1 << width_log2;
    if (!PICI_BIG_ENDIAN || w == 1) {
        if (n)
            memcpy(d, s, n * w);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < w; j++)
            d[i * w + j] = s[i * w + (w - 1 - j)];
}

/* One call of pici_compress or pici_diff, its arguments checked. */
struct job {
    uint8_t *block;
    size_t cap;
    struct pici_source in;
    size_t n;
    unsigned dtype;
    int threads;  /* to use */
    int stream;   /* use non-temporal stores */
    int by_value; /* -0.0 is a zero; in.move then has the kernels for that */
};

static void zero_padding(const struct job *j, const struct fmt_layout *l)
{
    uint64_t end = l->index_offset + l->index_bytes;
    memset(j->block + end, 0, (size_t)(l->values_offset - end));
}

/* ---- pici ---- */

/* Pack the tile that begins with element `first` through a bounce buffer: because it is a difference, or partial, or
 * because there is no room for what the kernel may write too much. room: number of values that fit. Returns the
 * number of values, or TILE + 1 if they do not fit. */
__attribute__((noinline)) static unsigned pack_tile_bounced(const struct job *j, size_t first, uint8_t *bits,
                                                            uint8_t *values, uint64_t room)
{
    uint8_t tile[TILE * 8] __attribute__((aligned(64))), out[TILE * 8 + PICI_SLACK], index[8];
    const size_t n = j->n - first < TILE ? j->n - first : TILE;
    struct pici_pack run = {.src = pici_source_tile(&j->in, first, n, tile),
                            .bits = bits,
                            .index = index,
                            .index_width = 4,
                            .values = out,
                            .tiles = 1,
                            .ahead = TILE << j->in.width_log2};
    j->in.move->pack(&run);
    if (run.at > room)
        return TILE + 1;
    memcpy(values, out, (size_t)run.at << j->in.width_log2);
    return (unsigned)run.at;
}

static enum pici_status pack_serial(const struct job *j, const struct fmt_layout *l, uint64_t *nnz)
{
    const uint64_t room = (j->cap - l->values_offset) >> j->in.width_log2;
    const uint64_t slack = PICI_SLACK >> j->in.width_log2;
    struct pici_pack run = {.bits = j->block + HDR_BYTES,
                            .index = j->block + l->index_offset,
                            .index_width = l->index_width,
                            .stream = j->stream,
                            .values = j->block + l->values_offset,
                            .ahead = TILE << j->in.width_log2};
    size_t left = j->n;
    while (left) {
        size_t first = j->n - left, whole = left / TILE, safe = 0;
        if (!j->in.base && room - run.at > slack)
            safe = (size_t)((room - run.at - slack) / TILE);
        run.tiles = whole < safe ? whole : safe;
        size_t done = run.tiles;
        if (done) {
            run.src = j->in.src + (first << j->in.width_log2);
            j->in.move->pack(&run);
        } else {
            uint8_t *values = run.values + ((size_t)run.at << j->in.width_log2);
            unsigned k = pack_tile_bounced(j, first, run.bits, values, room - run.at);
            if (k > TILE)
                return PICI_E_SPACE;
            store_index(run.index, run.index_width, 0, run.at);
            run.at += k;
            done = 1;
        }
        run.bits += done * TILE_BITS_BYTES;
        run.index += done * run.index_width;
        left -= left < done * TILE ? left : done * TILE;
    }
    *nnz = run.at;
    return PICI_OK;
}

/* Each thread takes the next chunk of tiles and makes its words. The chunks' counts are summed in order, which tells
 * the thread where its values go. Then it packs them, with the elements still in its cache, and prefetches the chunk
 * that it will probably take next. This needs kernels that write exactly, because a byte too many could be the next
 * chunk's. With other kernels, and for tiles that need a bounce buffer, values are packed together with the words,
 * into a buffer on the stack. */
enum { CHUNK_BYTES = 128 << 10 };

struct chunks {
    const struct job *job;
    const struct fmt_layout *layout;
    size_t chunk_tiles, chunks;
    atomic_size_t next; /* chunk to take */
    atomic_size_t turn; /* chunk whose count is added next */
    uint64_t
        nnz; /* of the chunks before turn; UINT64_MAX: they did not fit. Only the thread whose turn it is may use it */
};

static void pack_chunks(void *context, int thread)
{
    struct chunks *c = context;
    const struct job *j = c->job;
    const struct fmt_layout *l = c->layout;
    const unsigned w = j->in.width_log2;
    const uint64_t room = (j->cap - l->values_offset) >> w;
    const int exact = j->stream && j->in.move->copy;
    uint8_t buffer[CHUNK_BYTES + PICI_SLACK], index[CHUNK_BYTES / TILE * 4];
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&c->next, 1)) < c->chunks;) {
        const size_t tile = i * c->chunk_tiles, first = tile * TILE, left = j->n - first,
                     whole = j->in.base ? 0 : left / TILE;
        struct pici_pack run = {.what = exact ? PACK_WORDS : PACK_ALL,
                                .src = j->in.src + (first << w),
                                .bits = j->block + HDR_BYTES + tile * TILE_BITS_BYTES,
                                .index = index,
                                .index_width = 4,
                                .stream = exact,
                                .values = buffer,
                                .tiles = whole < c->chunk_tiles ? whole : c->chunk_tiles,
                                .ahead = exact ? (size_t)j->threads * CHUNK_BYTES : (size_t)TILE << w};
        j->in.move->pack(&run);
        size_t tiles = run.tiles, n = (size_t)run.at;
        for (; tiles < c->chunk_tiles && left > tiles * TILE; tiles++) { /* a partial tile; with a base, all tiles */
            store_index(index, 4, tiles, n);
            n +=
                pack_tile_bounced(j, first + tiles * TILE, run.bits + tiles * TILE_BITS_BYTES, buffer + (n << w), TILE);
        }

        while (atomic_load_explicit(&c->turn, memory_order_acquire) != i)
            sched_yield();
        const uint64_t base = c->nnz;
        const int fits = base <= room && n <= room - base;
        c->nnz = fits ? base + n : UINT64_MAX;
        atomic_store_explicit(&c->turn, i + 1, memory_order_release);
        if (!fits) {
            atomic_store(&c->next, c->chunks);
            continue;
        }
        for (size_t t = 0; t < tiles; t++)
            store_index(j->block + l->index_offset, l->index_width, tile + t, base + load_le32(index + 4 * t));
        uint8_t *const out = j->block + l->values_offset + ((size_t)base << w);
        if (exact) {
            const size_t done = (size_t)run.at << w;
            run.what = PACK_VALUES;
            run.values = out;
            run.at = 0;
            j->in.move->pack(&run);
            j->in.move->copy(out + done, buffer + done, (n << w) - done);
        } else {
            memcpy(out, buffer, n << w);
        }
    }
}

static enum pici_status compress_pici(const struct job *j, uint64_t *nnz)
{
    struct fmt_layout l;
    if (!fmt_layout(&l, FMT_PICI, j->dtype, j->n, 0) || l.block_bytes > j->cap)
        return PICI_E_SPACE;
    if (j->threads > 1) {
        struct chunks c = {.job = j, .layout = &l, .chunk_tiles = CHUNK_BYTES / TILE >> j->in.width_log2};
        c.chunks = (size_t)((l.tiles + c.chunk_tiles - 1) / c.chunk_tiles);
        pici_parallel(j->threads, CHUNK_BYTES + (256 << 10), pack_chunks, &c);
        *nnz = c.nnz;
        if (*nnz == UINT64_MAX)
            return PICI_E_SPACE;
    } else {
        enum pici_status s = pack_serial(j, &l, nnz);
        if (s)
            return s;
    }
    zero_padding(j, &l);
    return PICI_OK;
}

/* ---- counting, and coo ---- */

/* Where in an input nonzeros are, for a buffer with few: bit i stands for tiles i * each to (i + 1) * each - 1. */
enum { WHERE_BITS = 1 << 16 };
struct where {
    uint64_t bits[WHERE_BITS / 64];
    uint64_t each;
};

static void where_add(struct where *w, uint64_t tile)
{
    w->bits[tile / w->each / 64] |= UINT64_C(1) << tile / w->each % 64;
}

static int where_has(const struct where *w, uint64_t tile)
{
    return w->bits[tile / w->each / 64] >> tile / w->each % 64 & 1;
}

/* The input in parts, one a thread: first each thread counts its nonzeros, then it writes their entries. */
struct parts {
    const struct job *job;
    const struct where *where;             /* null: anywhere */
    struct fmt_layout layout;              /* of the coo block */
    uint64_t before[PICI_MAX_THREADS + 1]; /* nonzeros of the parts before each */
    atomic_int changed;                    /* src changed between counting and writing */
};

static size_t part_begin(const struct job *j, int i)
{
    uint64_t tiles = fmt_tiles(j->n), t = tiles / (unsigned)j->threads * (unsigned)i;
    uint64_t rest = tiles % (unsigned)j->threads;
    t += (unsigned)i < rest ? (unsigned)i : rest;
    return t * TILE < j->n ? (size_t)(t * TILE) : j->n;
}

/* Nonzeros of elements [first, end). */
__attribute__((noinline)) static uint64_t count(const struct job *j, size_t first, size_t end)
{
    uint8_t buffer[TILE * 8] __attribute__((aligned(64)));
    uint64_t nnz = 0;
    if (!j->in.base && first < end)
        return j->in.move->count(j->in.src + (first << j->in.width_log2), end - first);
    for (size_t n; first < end; first += n) {
        n = end - first < TILE ? end - first : TILE;
        nnz += j->in.move->count(pici_source_tile(&j->in, first, n, buffer), n);
    }
    return nnz;
}

static void count_part(void *context, int i)
{
    struct parts *p = context;
    size_t a = part_begin(p->job, i), b = part_begin(p->job, i + 1);
    p->before[i + 1] = p->where ? 0 : count(p->job, a, b);
    for (size_t n; p->where && a < b; a += n) {
        n = b - a < TILE ? b - a : TILE;
        if (where_has(p->where, a / TILE))
            p->before[i + 1] += count(p->job, a, a + n);
    }
}

static void run_parts(struct parts *p, void (*work)(void *, int))
{
    if (p->job->threads > 1)
        pici_parallel(p->job->threads, 256 << 10, work, p);
    else
        work(p, 0);
}

static uint64_t count_parts(struct parts *p)
{
    run_parts(p, count_part);
    p->before[0] = 0;
    for (int i = 0; i < p->job->threads; i++)
        p->before[i + 1] += p->before[i];
    return p->before[p->job->threads];
}

/* Write the entries of one part. Kernels write a little too much, so near the part's end they write to a bounce
 * buffer. */
static void pack_coo_part(void *context, int i)
{
    struct parts *p = context;
    const struct job *j = p->job;
    const struct fmt_layout *l = &p->layout;
    const unsigned iw = l->index_width, w = 1u << j->in.width_log2;
    uint8_t *index = j->block + l->index_offset, *values = j->block + l->values_offset;
    uint8_t index_end[TILE * 8 + PICI_SLACK], values_end[TILE * 8 + PICI_SLACK];
    uint8_t buffer[TILE * 8] __attribute__((aligned(64)));
    uint64_t at = p->before[i], end = p->before[i + 1];
    for (size_t first = part_begin(j, i), stop = part_begin(j, i + 1), n; first < stop; first += n) {
        n = stop - first < TILE ? stop - first : TILE;
        if (p->where && !where_has(p->where, first / TILE))
            continue;
        const uint8_t *src = pici_source_tile(&j->in, first, n, buffer);
        if (end - at >= TILE + PICI_SLACK) {
            at += j->in.move->pack_coo(index + at * iw, iw, values + at * w, src, n, first);
        } else {
            size_t k = j->in.move->pack_coo(index_end, iw, values_end, src, n, first);
            if (k > end - at) {
                at = UINT64_MAX;
                break;
            }
            memcpy(index + at * iw, index_end, k * iw);
            memcpy(values + at * w, values_end, k * w);
            at += k;
        }
    }
    if (at != end)
        atomic_store(&p->changed, 1);
}

static enum pici_status compress_coo(const struct job *j, struct parts *p, uint64_t nnz)
{
    if (!fmt_layout(&p->layout, FMT_COO, j->dtype, j->n, nnz) || p->layout.block_bytes > j->cap)
        return PICI_E_SPACE;
    if (nnz)
        run_parts(p, pack_coo_part);
    zero_padding(j, &p->layout);
    return atomic_load(&p->changed) ? PICI_E_ARG : PICI_OK;
}

/* ---- hybrid ---- */

/* When PICI_AUTO gives up a block before its end, because it will choose another format. */
enum give_up {
    NEVER,
    IF_LONGER,  /* hybrid: its records so far are not shorter than their elements */
    IF_SHORTER, /* dense: hybrid's records so far would be shorter than their elements */
    IF_SURELY   /* dense: by so much that hybrid's block is shorter, whatever follows */
};

/* Each thread takes the next group and lays out its record. The records' lengths are summed in the order of the
 * groups, which tells the thread where its record goes. Then it writes it. */
struct records {
    const struct job *job;
    const struct fmt_layout *layout;
    size_t cap, groups;
    int dense; /* write a dense block instead; the lengths are those that the records would have */
    enum give_up when;
    struct where *where; /* null, or where nonzeros are to be noted */
    atomic_size_t next;  /* group to take */
    atomic_size_t turn;  /* group whose length is added next */
    size_t end; /* of the records before turn; SIZE_MAX: they did not fit, or the block was given up. For the thread
                 * whose turn it is, as nnz */
    uint64_t nnz;
    uint64_t kept; /* negative zeros of which the sign is kept: not among nnz */
};

/* Is the block to be given up when the records of groups 0 to g end at `end`? */
static int gives_up(const struct records *r, size_t g, size_t end)
{
    const struct job *j = r->job;
    const unsigned w = j->in.width_log2;
    const size_t records = end - (size_t)r->layout->body_offset;
    if (r->when == NEVER || g + 1 == r->groups)
        return 0;
    const size_t elements = (g + 1) * GROUP_TILES * TILE, bytes = elements << w;
    if (r->when == IF_SURELY) { /* the longest records of the other groups */
        const uint64_t rest = fmt_bound_hybrid(j->dtype, j->n - elements);
        return rest && r->layout->body_offset + records + rest < HDR_BYTES + ((uint64_t)j->n << w);
    }
    return (records < bytes) == (r->when == IF_SHORTER);
}

/* Add the record of group g, whose turn it is. Returns whether there is room for it, and the block not given up. */
static int add_record(struct records *r, size_t g, const struct pici_group_layout *layout)
{
    const size_t at = r->end;
    const int good = at <= r->cap && layout->record <= r->cap - at && !gives_up(r, g, at + layout->record);
    r->end = good ? at + layout->record : SIZE_MAX;
    r->nnz += layout->nnz;
    r->kept += layout->kept;
    for (unsigned i = 0; r->where && i < layout->tiles; i++)
        if (layout->tile[i].n || layout->signs >> i & 1)
            where_add(r->where, g * GROUP_TILES + i);
    atomic_store_explicit(&r->turn, g + 1, memory_order_release);
    if (!good)
        atomic_store(&r->next, r->groups);
    return good;
}

static void write_records(void *context, int thread)
{
    struct records *r = context;
    const struct job *j = r->job;
    const unsigned w = j->in.width_log2;
    const size_t whole = (size_t)GROUP_TILES * TILE;
    struct pici_group_layout layout;
    struct pici_scratch scratch;
    enum pici_prediction predicted = PREDICT_SPARSE; /* cheap to find out if it is not */
    (void)thread;
    for (size_t g; (g = atomic_fetch_add(&r->next, 1)) < r->groups;) {
        const size_t first = g * whole, left = j->n - first, n = left < whole ? left : whole;
        if (r->dense) {
            pici_group_copy(&layout, &scratch, &j->in, first, n, j->block + HDR_BYTES + (first << w), j->stream);
            while (atomic_load_explicit(&r->turn, memory_order_acquire) != g)
                sched_yield();
            (void)add_record(r, g, &layout);
            continue;
        }
        if (n < whole)
            predicted = PREDICT_ANY;
        /* the longest record of whole tiles is shorter than twice its elements */
        if (predicted == PREDICT_ALIKE && !j->in.base && j->threads == 1 && r->end <= r->cap &&
            (r->cap - r->end) / 2 >> w >= n &&
            pici_group_write_alike(&layout, &j->in, first, j->block + r->end, j->stream)) {
            store_index(j->block + HDR_BYTES, r->layout->index_width, g,
                        (r->end - r->layout->body_offset) / fmt_unit(w));
            (void)add_record(r, g, &layout);
            continue;
        }
        const int sparse = predicted == PREDICT_SPARSE && pici_group_layout_sparse(&layout, &scratch, &j->in, first);
        if (!sparse)
            pici_group_layout_make(&layout, &scratch, &j->in, first, n);
        predicted = pici_group_predict(&layout, &j->in);

        while (atomic_load_explicit(&r->turn, memory_order_acquire) != g)
            sched_yield();
        const size_t at = r->end;
        if (!add_record(r, g, &layout))
            continue;
        store_index(j->block + HDR_BYTES, r->layout->index_width, g, (at - r->layout->body_offset) / fmt_unit(w));
        if (sparse)
            pici_group_write_sparse(&layout, &scratch, &j->in, j->block + at, j->stream);
        else
            pici_group_write(&layout, &scratch, &j->in, first, n, j->block + at,
                             j->threads > 1 ? layout.record : r->cap - at, j->stream);
    }
}

static void run_records(struct records *r)
{
    r->groups = (size_t)fmt_groups(r->layout->tiles);
    r->end = (size_t)r->layout->body_offset;
    if (r->job->threads > 1)
        pici_parallel(r->job->threads, 256 << 10, write_records, r);
    else
        write_records(r, 0);
}

/* cap: bytes that it may use; may be less than j->cap. where: null, or out. *nnz, *kept: out, as in struct records.
 * PICI_E_SPACE: it does not fit, or was given up. */
static enum pici_status compress_hybrid(const struct job *j, size_t cap, enum give_up when, struct where *where,
                                        struct fmt_layout *l, uint64_t *nnz, uint64_t *kept)
{
    (void)fmt_layout_hybrid(l, FMT_VERSION, j->dtype, j->n, 0, 0);
    if (l->body_offset > cap)
        return PICI_E_SPACE;
    struct records r = {.job = j, .layout = l, .cap = cap, .when = when, .where = where};
    if (where) {
        memset(where, 0, sizeof *where);
        where->each = l->tiles / WHERE_BITS + 1;
    }
    memset(j->block + HDR_BYTES, 0, (size_t)l->body_offset - HDR_BYTES);
    run_records(&r);
    if (r.end == SIZE_MAX)
        return PICI_E_SPACE;
    *nnz = r.nnz;
    *kept = r.kept;
    return fmt_layout_hybrid(l, r.kept ? FMT_VERSION_SIGNS : FMT_VERSION, j->dtype, j->n, r.nnz,
                             r.end - (r.nnz << j->in.width_log2))
               ? PICI_OK
               : PICI_E_ARG;
}

/* Write the body of a dense block, for which there is room. Returns the length that a hybrid block would have, and sets
 * *nnz and *kept; 0 if it was given up. */
static uint64_t copy_and_measure(const struct job *j, enum give_up when, uint64_t *nnz, uint64_t *kept)
{
    struct fmt_layout l;
    (void)fmt_layout_hybrid(&l, FMT_VERSION, j->dtype, j->n, 0, 0);
    struct records r = {.job = j, .layout = &l, .cap = SIZE_MAX - 1, .dense = 1, .when = when};
    run_records(&r);
    *nnz = r.nnz;
    *kept = r.kept;
    return r.end == SIZE_MAX ? 0 : r.end;
}

/* ---- all formats ---- */

/* The length of a block of format (not hybrid) with nnz nonzeros; UINT64_MAX if that is beyond 64 bits. */
static uint64_t length(const struct job *j, unsigned format, uint64_t nnz)
{
    struct fmt_layout l;
    return fmt_layout(&l, format, j->dtype, j->n, format == FMT_DENSE ? j->n : nnz) ? l.block_bytes : UINT64_MAX;
}

/* The smallest format other than hybrid; of equal ones, that with the lowest number. */
static unsigned smallest(const struct job *j, uint64_t nnz)
{
    unsigned best = FMT_DENSE;
    for (unsigned f = FMT_PICI; f <= FMT_COO; f++)
        if (length(j, f, nnz) < length(j, best, nnz))
            best = f;
    return best;
}

/* Would the first tile be raw in a hybrid block? */
static int begins_raw(const struct job *j)
{
    const unsigned n = j->n < TILE ? (unsigned)j->n : TILE;
    const unsigned nnz = (unsigned)count(j, 0, n);
    return nnz && container_of(nnz, n, j->in.width_log2, 0) == PICI_RAW;
}

enum { NO_FORMAT = 254 };

/* The format that AUTO uses: the smallest; of equal ones, that with the lowest number. It is hybrid or dense, but for
 * some short blocks. So one of these two is encoded at once, as the first tile suggests, and counted meanwhile. It is
 * given up for the other if that proves shorter on the way. *done: the block of the format returned is complete but for
 * its header. */
static unsigned auto_format(const struct job *j, struct parts *p, struct where *where, uint64_t *nnz,
                            struct fmt_layout *l, int *done)
{
    const uint64_t dense = length(j, FMT_DENSE, 0);
    const int room = dense <= j->cap; /* if not, all formats that fit are shorter than dense */
    uint64_t hybrid = 0;              /* its length; 0: not known */
    uint64_t kept = 0;
    unsigned made = room && begins_raw(j) ? FMT_DENSE : FMT_HYBRID;
    for (int attempt = 0; !hybrid && made != NO_FORMAT; attempt++) /* the third, or the fourth, is never given up */
        if (made == FMT_DENSE) {
            hybrid = copy_and_measure(j, attempt == 0 ? IF_SHORTER : attempt == 1 ? IF_SURELY : NEVER, nnz, &kept);
            made = hybrid ? FMT_DENSE : FMT_HYBRID;
        } else {
            const size_t cap = room ? (size_t)dense - 1 : j->cap;
            if (compress_hybrid(j, cap, room && attempt == 0 ? IF_LONGER : NEVER, where, l, nnz, &kept) == PICI_OK)
                hybrid = l->block_bytes;
            else
                made = room ? FMT_DENSE : NO_FORMAT;
        }
    if (made == NO_FORMAT) { /* hybrid is longer than every format that fits */
        *nnz = count_parts(p);
        hybrid = UINT64_MAX;
        kept = 0;
    }
    const unsigned best = smallest(j, *nnz + kept);
    const unsigned format = hybrid < length(j, best, *nnz + kept) ? (unsigned)FMT_HYBRID : best;
    if (format != FMT_HYBRID)
        *nnz += kept;
    if (format == FMT_COO && made != NO_FORMAT && *nnz) {
        p->before[1] = *nnz;
        p->where = made == FMT_HYBRID ? where : NULL;
        if (j->threads > 1)
            count_parts(p);
    }
    *done = format == made;
    return format;
}

__attribute__((noinline)) static void copy_dense(const struct job *j)
{
    uint8_t buffer[TILE * 8] __attribute__((aligned(64))), *out = j->block + HDR_BYTES;
    if (j->by_value)
        j->in.move->dense(out, j->in.src, j->n, j->stream);
    else if (!j->in.base)
        pici_copy_stored(out, j->in.src, j->n, j->in.width_log2);
    for (size_t first = 0, n; j->in.base && first < j->n; first += n) {
        n = j->n - first < TILE ? j->n - first : TILE;
        pici_copy_stored(out + (first << j->in.width_log2), pici_source_tile(&j->in, first, n, buffer), n,
                         j->in.width_log2);
    }
}

static enum pici_status compress(const struct job *j, enum pici_format format, int checksum, size_t *len)
{
    struct parts parts = {.job = j};
    struct where where; /* for AUTO */
    unsigned f = (unsigned)format;
    uint64_t nnz = 0, kept;
    enum pici_status s = PICI_OK;
    struct fmt_layout l;
    int done = 0;

    if (format == PICI_COO)
        nnz = count_parts(&parts);
    if (j->cap < HDR_BYTES)
        return PICI_E_SPACE;
    memset(j->block, 0, HDR_BYTES); /* an unfinished block must not begin with a valid header */
    if (format == PICI_AUTO)
        f = auto_format(j, &parts, &where, &nnz, &l, &done);
    if (f == FMT_HYBRID) {
        s = done ? PICI_OK : compress_hybrid(j, j->cap, NEVER, NULL, &l, &nnz, &kept);
    } else if (f == FMT_PICI) {
        s = compress_pici(j, &nnz);
    } else if (f == FMT_COO) {
        s = compress_coo(j, &parts, nnz);
    } else {
        nnz = j->n;
        if (j->n > (j->cap - HDR_BYTES) >> j->in.width_log2)
            return PICI_E_SPACE;
        if (!done)
            copy_dense(j);
    }
    if (s)
        return s;
    if (f != FMT_HYBRID && !fmt_layout(&l, f, j->dtype, j->n, nnz))
        return PICI_E_SPACE;
    unsigned flags = fmt_flags(f, j->n) | (checksum ? FLAG_CHECKSUM : 0u);
    pici_block_emit(j->block, &l, f, j->dtype, flags, j->n, nnz);
    if (checksum)
        store_le64(j->block + HDR_CHECKSUM, pici_block_hash(j->block, (size_t)l.block_bytes));
    *len = (size_t)l.block_bytes;
    return PICI_OK;
}

/* base: may be null. */
static enum pici_status encode(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                               enum pici_dtype dtype, enum pici_format format, const struct pici_opts *opts)
{
    struct pici_opts o;
    int w = fmt_width_log2((unsigned)dtype);
    if (!block || !len || (!src && n) || w < 0 || !pici_format_name(format) || n > SIZE_MAX >> w ||
        pici_overlap(block, cap, src, n << w) || pici_overlap(block, cap, base, base ? n << w : 0))
        return PICI_E_ARG;
    enum pici_status s = pici_opts_get(&o, opts);
    if (s)
        return s;
    const int by_value = o.zeros == PICI_ZEROS_BY_VALUE && !base && fmt_is_float((unsigned)dtype);
    struct job j = {.block = block,
                    .cap = cap,
                    .in = {src, base, (by_value ? pici_isa()->by_value : pici_isa()->move)[w], (unsigned)w,
                           .signs = !by_value && fmt_is_float((unsigned)dtype)},
                    .n = (size_t)n,
                    .dtype = (unsigned)dtype,
                    .threads = pici_thread_count(o.threads, fmt_tiles(n) / PICI_PIECE_TILES),
                    .stream = n << w >= PICI_STREAM_BYTES,
                    .by_value = by_value};
    return compress(&j, format, o.checksum, len);
}

enum pici_status pici_compress(void *block, size_t cap, size_t *len, const void *src, uint64_t n, enum pici_dtype dtype,
                               enum pici_format format, const struct pici_opts *opts)
{
    if (len)
        *len = 0;
    return encode(block, cap, len, NULL, src, n, dtype, format, opts);
}

enum pici_status pici_diff(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                           enum pici_dtype dtype, enum pici_format format, const struct pici_opts *opts)
{
    if (len)
        *len = 0;
    return n && !base ? PICI_E_ARG : encode(block, cap, len, base, src, n, dtype, format, opts);
}
