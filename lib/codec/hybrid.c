/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/hybrid.h"

#include "bytes.h"
#include "sized.h"

/* ---- reading ---- */

unsigned pici_tile_elements(const struct pici_block *b, uint64_t t)
{
    const uint64_t left = b->count - t * TILE;
    return left < TILE ? (unsigned)left : TILE;
}

const uint8_t *pici_tile_descriptor(const struct pici_group *r, unsigned i)
{
    const uint32_t before = load_le32(r->record) & ((UINT32_C(1) << i) - 1);
    return r->record + 4 + __builtin_popcount(before);
}

static uint64_t offset_of(const struct pici_block *b, const uint8_t *p)
{
    return (uint64_t)(p - b->bytes);
}

/* Set n and container of a tile of len elements from the two bytes of its descriptor; 0 if it is not valid. *run:
 * the container is right only if the tile has a run of 256 nonzeros. */
static int read_descriptor(struct pici_tile *t, int *run, unsigned first, unsigned second, unsigned len,
                           unsigned width_log2)
{
    const unsigned n = first & DESCRIPTOR_TWO ? (first & 15) * 256 + second + 1 : first;
    const unsigned container = first & DESCRIPTOR_TWO ? first >> 4 & 3 : TILE_OFFSETS12;
    if ((first & DESCRIPTOR_TWO ? (first & 64) || !container : !n || n > OFFSETS12_MOST) || n > len)
        return 0;
    *run = container != fmt_container(n, len, width_log2, 0);
    if (*run && container != fmt_container(n, len, width_log2, 1))
        return 0;
    t->n = (uint16_t)n;
    t->container = (uint8_t)container;
    return 1;
}

enum pici_status pici_group_read(struct pici_group *r, const struct pici_block *b, uint64_t g, struct pici_fault *fault)
{
    const unsigned iw = b->at.index_width, w = b->at.width_log2, unit = fmt_unit(w);
    const uint64_t units = (b->at.block_bytes - b->at.body_offset) / unit, groups = fmt_groups(b->at.tiles);
    const uint64_t entry = b->at.index_offset + g * iw, begin = load_index(b->index, iw, g);
    uint64_t end = units;
    r->first = g * GROUP_TILES;
    r->tiles = b->at.tiles - r->first < GROUP_TILES ? (unsigned)(b->at.tiles - r->first) : GROUP_TILES;
    r->nnz = 0;
    r->runs = 0;
    if (g == 0 ? begin != 0 : begin > units)
        return pici_fault_at(fault, PICI_E_CORRUPT, entry, r->first, "directory");
    if (g + 1 < groups) {
        end = load_index(b->index, iw, g + 1);
        if (end < begin || end > units)
            return pici_fault_at(fault, PICI_E_CORRUPT, entry + iw, r->first + GROUP_TILES, "directory");
    }
    const uint8_t *const record = r->record = b->bytes + b->at.body_offset + begin * unit;
    const size_t bytes = (size_t)((end - begin) * unit);
    uint32_t bits = bytes ? load_le32(record) : 0;
    if (bytes && (!bits || (r->tiles < GROUP_TILES && bits >> r->tiles)))
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "occupancy");

    const uint8_t *first = record + 4, *second = first + __builtin_popcount(bits), *payload = second;
    for (size_t i = 0, some = (size_t)(second - first); i < some && 4 + some <= bytes; i++)
        payload += first[i] >> 7;
    if (bytes && (size_t)(payload - record) > bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "record-length");
    size_t metadata = bytes ? (size_t)(payload - record) : 0, stored = 0;
    for (unsigned i = 0; i < r->tiles; i++, bits >>= 1) {
        struct pici_tile *t = &r->tile[i];
        const unsigned len = pici_tile_elements(b, r->first + i);
        int run;
        *t = (struct pici_tile){.payload = b->bytes, .container = TILE_EMPTY};
        if (!(bits & 1))
            continue;
        if (!read_descriptor(t, &run, *first, *first & DESCRIPTOR_TWO ? *second : 0, len, w))
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, first), r->first + i, "descriptor");
        second += *first++ >> 7;
        r->runs |= (uint32_t)run << i;
        r->nnz += t->n;
        t->payload = payload; /* not read before the record's length has been checked */
        payload = (const uint8_t *)((uintptr_t)payload + fmt_payload(t->container, t->n));
        metadata += fmt_payload(t->container, t->n);
        stored += (size_t)fmt_stored(t->container, t->n, len) << w;
    }
    if (fmt_record(metadata, stored, w) != bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "record-length");
    const uint8_t *values = record + (bytes ? fmt_record_values(metadata, w) : 0), *bad = record + metadata;
    while (bad < values && !*bad)
        bad++;
    if (bad == values)
        for (bad += stored; bad < record + bytes && !*bad;)
            bad++;
    if (bad < record + bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, bad), PICI_NO_TILE, "padding");
    for (unsigned i = 0; i < r->tiles; i++) {
        struct pici_tile *t = &r->tile[i];
        t->values = values;
        if (t->n)
            values += (size_t)fmt_stored(t->container, t->n, pici_tile_elements(b, r->first + i)) << w;
    }
    return PICI_OK;
}

int pici_tile_has_run(const struct pici_tile *t, unsigned len, unsigned width_log2)
{
    for (unsigned first = 0; first + RUN <= len; first += RUN) {
        unsigned full = 0;
        if (t->container == TILE_BITS)
            while (full < RUN && load_le64(t->payload + (first + full) / 8) == UINT64_MAX)
                full += 64;
        else
            for (unsigned any = 1; full < RUN && any; full += any != 0) {
                any = 0;
                for (unsigned k = 0; k < 1u << width_log2; k++)
                    any |= t->values[((size_t)(first + full) << width_log2) + k];
            }
        if (full == RUN)
            return 1;
    }
    return 0;
}

enum pici_status pici_mix(struct pici_mix *mix, const void *block, size_t len)
{
    struct pici_block b;
    if (!mix || sized_of(mix) < sizeof *mix || !block)
        return PICI_E_ARG;
    enum pici_status s = pici_block_parse(&b, block, len, NULL);
    if (s || (s = pici_block_whole(&b, len, NULL)) != PICI_OK)
        return s;
    if (b.format != FMT_HYBRID)
        return PICI_E_ARG;
    struct pici_mix m = {.size = sizeof m, .other_bytes = b.at.block_bytes};
    struct pici_group r;
    const uint64_t groups = fmt_groups(b.at.tiles);
    for (uint64_t g = 0; g < groups; g++) {
        if ((s = pici_group_read(&r, &b, g, NULL)) != PICI_OK)
            return s;
        for (unsigned i = 0; i < r.tiles; i++) {
            const struct pici_tile *t = &r.tile[i];
            const unsigned c = t->container;
            m.tiles[c]++;
            if (c == TILE_EMPTY)
                continue;
            const uint64_t positions = 1 + (c != TILE_OFFSETS12) + fmt_payload(c, t->n);
            const uint64_t values = (uint64_t)fmt_stored(c, t->n, pici_tile_elements(&b, r.first + i))
                                    << b.at.width_log2;
            m.nnz[c] += t->n;
            m.position_bytes[c] += positions;
            m.value_bytes[c] += values;
            m.other_bytes -= positions + values;
        }
    }
    return sized_write(mix, &m, sizeof m, sizeof m);
}

/* ---- writing ---- */

enum {
    STREAM_LEAST = 16 << 10, /* bytes of a group's values from which non-temporal stores are faster */
    SPARSE_MANY = 100        /* nonzeros of a tile from which pack_sparse is faster */
};

const uint8_t *pici_source_tile(const struct pici_source *s, size_t first, size_t n, uint8_t buffer[TILE * 8])
{
    const unsigned w = s->width_log2;
    const uint8_t *src = s->src + (first << w);
    if (s->base)
        s->move->difference(buffer, src, s->base + (first << w), n);
    else if (n < TILE)
        memcpy(buffer, src, n << w);
    else
        return src;
    memset(buffer + (n << w), 0, (TILE - n) << w);
    return buffer;
}

static int words_have_run(const uint64_t word[TILE_COLS])
{
    for (int i = 0; i < TILE_COLS; i += RUN / 64)
        if ((word[i] & word[i + 1] & word[i + 2] & word[i + 3]) == UINT64_MAX)
            return 1;
    return 0;
}

/* Set the container of tile i, which has len elements, by its n, and add the tile to the layout. run: has it a run
 * of 256 nonzeros? */
static void layout_tile(struct pici_group_layout *p, unsigned i, unsigned len, unsigned width_log2, int run)
{
    struct pici_tile *t = &p->tile[i];
    t->container = TILE_EMPTY;
    if (!t->n)
        return;
    const unsigned container = fmt_container(t->n, len, width_log2, run);
    t->container = (uint8_t)container;
    p->nnz += t->n;
    p->metadata += 1 + (container != TILE_OFFSETS12) + fmt_payload(container, t->n);
    p->values += (size_t)fmt_stored(container, t->n, len) << width_log2;
}

static void layout_begin(struct pici_group_layout *p, unsigned tiles)
{
    p->tiles = tiles;
    p->metadata = p->values = 0;
    p->nnz = 0;
}

static void layout_end(struct pici_group_layout *p, unsigned width_log2)
{
    p->metadata += p->nnz ? 4 : 0;
    p->record = (size_t)fmt_record(p->metadata, p->values, width_log2);
}

/* Elements of tile t of a group of n. */
static unsigned tile_elements(size_t t, size_t n)
{
    return n - t * TILE < TILE ? (unsigned)(n - t * TILE) : TILE;
}

/* out: null, or where all elements are copied to. */
static void make_layout(struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                        size_t first, size_t n, uint8_t *out, int stream)
{
    const unsigned w = s->width_log2;
    const size_t whole = s->base ? 0 : n / TILE;
    const uint8_t *const src = s->src + (first << w);
    layout_begin(p, (unsigned)fmt_tiles(n));
    if (out)
        s->move->copy_masks(out, p->word, p->tile, src, whole, stream);
    else
        s->move->masks(p->word, p->tile, src, whole);
    for (size_t t = whole; t < p->tiles; t++) {
        const unsigned len = tile_elements(t, n);
        const uint8_t *tile = pici_source_tile(s, first + t * TILE, len, scratch->bytes);
        s->move->masks(p->word + t, p->tile + t, tile, 1);
        if (out)
            s->move->dense(out + (t * TILE << w), tile, len, 0);
    }
    for (unsigned t = 0; t < p->tiles; t++)
        layout_tile(p, t, tile_elements(t, n), w, p->tile[t].n >= RUN && words_have_run(p->word[t]));
    layout_end(p, w);
}

void pici_group_layout_make(struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                            size_t first, size_t n)
{
    make_layout(p, scratch, s, first, n, NULL, 0);
}

void pici_group_copy(struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                     size_t first, size_t n, uint8_t *out, int stream)
{
    make_layout(p, scratch, s, first, n, out, stream);
}

/* Write the tile of n elements from `first` on through scratch, as a bounce buffer: because it is a difference, or
 * partial, or because out has no space for what a kernel writes too much. */
static void write_tile_bounced(struct pici_pack_tiles *run, struct pici_scratch *scratch, const struct pici_source *s,
                               size_t first, unsigned n)
{
    if (!run->tile->n)
        return;
    const size_t stored = (size_t)fmt_stored(run->tile->container, run->tile->n, n) << s->width_log2;
    uint8_t *const out = scratch->bytes + TILE * 8;
    struct pici_pack_tiles one = *run;
    one.src = pici_source_tile(s, first, n, scratch->bytes);
    one.tiles = 1;
    one.stream = 0;
    one.values = out;
    s->move->pack_tiles(&one);
    memcpy(run->values, out, stored);
    run->payload = one.payload;
    run->values += stored;
}
_Static_assert(sizeof(struct pici_scratch) >= 2 * TILE * 8 + PICI_SLACK, "a tile and its values");

/* Write occupancy, descriptors and the padding before the values; returns where the payloads begin. */
static uint8_t *write_descriptors(const struct pici_group_layout *p, unsigned width_log2, uint8_t *out)
{
    uint8_t *first = out + 4, *second = first;
    uint32_t bits = 0;
    for (unsigned i = 0; i < p->tiles; i++)
        second += p->tile[i].n != 0;
    for (unsigned i = 0; i < p->tiles; i++) {
        const struct pici_tile *t = &p->tile[i];
        if (!t->n)
            continue;
        const unsigned descriptor = fmt_descriptor(t->container, t->n);
        bits |= UINT32_C(1) << i;
        *first++ = (uint8_t)descriptor;
        if (t->container != TILE_OFFSETS12)
            *second++ = (uint8_t)(descriptor >> 8);
    }
    store_le32(out, bits);
    memset(out + p->metadata, 0, (size_t)(fmt_record_values(p->metadata, width_log2) - p->metadata));
    return second;
}

void pici_group_write(const struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                      size_t first, size_t n, uint8_t *out, size_t space, int stream)
{
    const unsigned width_log2 = s->width_log2;
    if (!p->nnz)
        return;
    size_t whole = s->base ? 0 : n / TILE;
    if (space - p->record < PICI_SLACK ||
        whole < p->tiles) /* what a kernel writes too much must be overwritten by later tiles */
        for (size_t after = 0, t = p->tiles; t-- > 0 && after < PICI_SLACK;) {
            after += p->tile[t].n
                         ? (size_t)fmt_stored(p->tile[t].container, p->tile[t].n, tile_elements(t, n)) << width_log2
                         : 0;
            whole = t < whole ? t : whole;
        }
    struct pici_pack_tiles run = {.src = s->src + (first << width_log2),
                                  .word = p->word,
                                  .tile = p->tile,
                                  .tiles = whole,
                                  .stream = stream && p->values >= STREAM_LEAST,
                                  .payload = write_descriptors(p, width_log2, out),
                                  .values = out + fmt_record_values(p->metadata, width_log2)};
    if (whole)
        s->move->pack_tiles(&run);
    for (size_t t = whole; t < p->tiles; t++) {
        run.word = p->word + t;
        run.tile = p->tile + t;
        write_tile_bounced(&run, scratch, s, first + t * TILE, tile_elements(t, n));
    }
    memset(run.values, 0, (size_t)(out + p->record - run.values));
}

static int is_short(unsigned container)
{
    return container <= TILE_OFFSETS8 || container == TILE_EMPTY;
}

/* Bytes of scratch for values. With a base, the rest holds a tile of differences. */
static size_t scratch_values(const struct pici_source *s)
{
    return SCRATCH_VALUES - (s->base ? (size_t)TILE << s->width_log2 : 0);
}

int pici_group_layout_sparse(struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                             size_t first)
{
    const unsigned w = s->width_log2;
    const size_t values = scratch_values(s);
    struct pici_pack_tiles run = {.tiles = 1, .payload = scratch->bytes, .values = scratch->bytes + SCRATCH_PAYLOADS};
    layout_begin(p, GROUP_TILES);
    for (unsigned i = 0, n = 0; i < GROUP_TILES; i++) {
        const size_t left = (values - p->values) >> w;
        const unsigned most = left < OFFSETS8_MOST ? (unsigned)left : OFFSETS8_MOST;
        const int once = n >= SPARSE_MANY; /* predicted from the tile before */
        run.src = pici_source_tile(s, first + (size_t)i * TILE, TILE,
                                   scratch->bytes + SCRATCH_PAYLOADS + values + PICI_SLACK);
        run.word = p->word + i;
        run.tile = p->tile + i;
        if (once)
            p->tile[i].n = (uint16_t)s->move->pack_sparse(run.payload, run.values, run.src, most);
        else
            s->move->masks(p->word + i, p->tile + i, run.src, 1);
        n = p->tile[i].n;
        layout_tile(p, i, TILE, w, !once && n >= RUN && words_have_run(p->word[i]));
        if (n > most || !is_short(run.tile->container))
            return 0;
        if (!once) {
            s->move->pack_tiles(&run);
        } else if (n) {
            run.payload += fmt_payload(run.tile->container, n);
            run.values += (size_t)n << w;
        }
    }
    layout_end(p, w);
    return 1;
}

void pici_group_write_sparse(const struct pici_group_layout *p, const struct pici_scratch *scratch, unsigned width_log2,
                             uint8_t *out, int stream)
{
    if (!p->nnz)
        return;
    uint8_t *const payload = write_descriptors(p, width_log2, out);
    memcpy(payload, scratch->bytes, (size_t)(out + p->metadata - payload));
    uint8_t *const values = out + fmt_record_values(p->metadata, width_log2);
    if (stream && p->values >= STREAM_LEAST && pici_isa()->copy)
        pici_isa()->copy(values, scratch->bytes + SCRATCH_PAYLOADS, p->values);
    else
        memcpy(values, scratch->bytes + SCRATCH_PAYLOADS, p->values);
    memset(values + p->values, 0, (size_t)(out + p->record - (values + p->values)));
}

int pici_group_write_alike(struct pici_group_layout *p, const struct pici_source *s, size_t first, uint8_t *out,
                           int stream)
{
    const unsigned container = p->tile[0].container, width_log2 = s->width_log2;
    p->tiles = GROUP_TILES;
    p->metadata = 4 + GROUP_TILES * (2 + (size_t)fmt_payload(container, TILE));
    struct pici_pack_tiles run = {.src = s->src + (first << width_log2),
                                  .tiles = GROUP_TILES,
                                  .stream = stream,
                                  .payload = out + 4 + (size_t)2 * GROUP_TILES,
                                  .values = out + fmt_record_values(p->metadata, width_log2)};
    const uint8_t *const values = run.values;
    if (s->move->pack_alike(&run, p->tile) < GROUP_TILES)
        return 0;
    p->nnz = 0;
    for (unsigned i = 0; i < GROUP_TILES; i++)
        p->nnz += p->tile[i].n;
    p->values = (size_t)(run.values - values);
    p->record = (size_t)fmt_record(p->metadata, p->values, width_log2);
    write_descriptors(p, width_log2, out);
    memset(run.values, 0, (size_t)(out + p->record - run.values));
    return 1;
}

enum pici_prediction pici_group_predict(const struct pici_group_layout *p, const struct pici_source *s)
{
    const unsigned container = p->tile[0].container;
    unsigned alike = 0, sparse = 0;
    for (unsigned i = 0; i < p->tiles; i++) {
        alike += p->tile[i].container == container;
        sparse += is_short(p->tile[i].container);
    }
    return sparse == p->tiles && p->values <= scratch_values(s)                        ? PREDICT_SPARSE
           : alike == GROUP_TILES && (container == TILE_BITS || container == TILE_RAW) ? PREDICT_ALIKE
                                                                                       : PREDICT_ANY;
}
