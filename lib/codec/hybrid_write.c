/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Laying out and writing the records of hybrid blocks. */
#include "codec/hybrid.h"

#include <string.h>

#include "bytes.h"

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

/* Set the container of tile i, which has len elements, by its n, and add the tile to the layout. run: has it a run
 * of 256 nonzeros? */
static void layout_tile(struct pici_group_layout *p, unsigned i, unsigned len, unsigned width_log2, int run)
{
    struct pici_tile *t = &p->tile[i];
    t->container = PICI_EMPTY;
    if (!t->n)
        return;
    const unsigned container = container_of(t->n, len, width_log2, run);
    t->container = (uint8_t)container;
    p->nnz += t->n;
    p->metadata += container_descriptor_bytes(container) + container_payload(container, t->n);
    p->values += (size_t)container_stored(container, t->n, len) << width_log2;
}

static void layout_begin(struct pici_group_layout *p, unsigned tiles)
{
    p->tiles = tiles;
    p->metadata = p->values = 0;
    p->nnz = p->kept = p->signs = 0;
}

static void layout_end(struct pici_group_layout *p, unsigned width_log2)
{
    p->metadata += p->nnz || p->signs ? 4 : 0;
    p->record = (size_t)fmt_record(p->metadata, p->values, width_log2);
}

/* Elements of tile t of a group of n. */
static unsigned tile_elements(size_t t, size_t n)
{
    return n - t * TILE < TILE ? (unsigned)(n - t * TILE) : TILE;
}

/* Lay out tile i as one that keeps signs, if it costs less. tile: its elements. */
static void layout_signs(struct pici_group_layout *p, unsigned i, const uint8_t *tile, unsigned len,
                         unsigned width_log2)
{
    struct pici_tile *t = &p->tile[i];
    struct pici_signs *s = &p->sign[i];
    const struct pici_tile before = *t;
    if (!pici_signs_pay(s, p->list[i], t, p->word[i], tile, len, width_log2))
        return;
    p->signs |= UINT32_C(1) << i;
    p->nnz -= before.n - t->n;
    p->kept += pici_signs_negative(s);
    p->metadata += container_cost_signs(t->container, t->n, (unsigned)pici_signs_bytes(s), width_log2);
    p->metadata -= container_cost(before.container, before.n, len, width_log2);
    /* the costs count values too */
    const size_t were = (size_t)container_stored(before.container, before.n, len) << width_log2;
    const size_t are = (size_t)t->n << width_log2;
    p->metadata += were - are;
    p->values -= were - are;
}

/* out: null, or where all elements are copied to. */
static void make_layout(struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                        size_t first, size_t n, uint8_t *out, int stream)
{
    const unsigned w = s->width_log2;
    const size_t whole = s->base ? 0 : n / TILE;
    const uint8_t *const src = s->src + (first << w);
    const size_t once = s->signs ? 1 : whole; /* a tile is searched for negative zeros while it is in the cache */
    uint32_t negative = 0;
    layout_begin(p, (unsigned)fmt_tiles(n));
    for (size_t t = 0; t < whole; t += once) {
        const size_t at = t * TILE << w;
        if (out)
            s->move->copy_masks(out + at, p->word + t, p->tile + t, src + at, once, stream);
        else
            s->move->masks(p->word + t, p->tile + t, src + at, once);
        if (s->signs && p->tile[t].n)
            negative |= (uint32_t)s->move->any_negative(src + at, TILE, 0) << t;
    }
    for (size_t t = whole; t < p->tiles; t++) {
        const unsigned len = tile_elements(t, n);
        const uint8_t *tile = pici_source_tile(s, first + t * TILE, len, scratch->bytes);
        s->move->masks(p->word + t, p->tile + t, tile, 1);
        if (s->signs)
            negative |= (uint32_t)s->move->any_negative(tile, len, 0) << t;
        if (out)
            s->move->dense(out + (t * TILE << w), tile, len, 0);
    }
    for (unsigned t = 0; t < p->tiles; t++) {
        const unsigned len = tile_elements(t, n);
        layout_tile(p, t, len, w, p->tile[t].n >= RUN && pici_words_have_run(p->word[t]));
        if (negative >> t & 1)
            layout_signs(p, t, pici_source_tile(s, first + (size_t)t * TILE, len, scratch->bytes), len, w);
    }
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
    const size_t stored = (size_t)container_stored(run->tile->container, run->tile->n, n) << s->width_log2;
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

/* Write occupancy, descriptors, sign descriptors and the padding before the values; returns where the payloads
 * begin. */
static uint8_t *write_descriptors(const struct pici_group_layout *p, unsigned width_log2, uint8_t *out)
{
    uint8_t *first = out + 4, *second;
    uint32_t bits = p->signs;
    for (unsigned i = 0; i < p->tiles; i++)
        bits |= (uint32_t)(p->tile[i].n != 0) << i;
    second = first + __builtin_popcount(bits);
    for (unsigned i = 0; i < p->tiles; i++) {
        const struct pici_tile *t = &p->tile[i];
        if (!(bits >> i & 1))
            continue;
        const unsigned container = t->n ? t->container : PICI_OFFSETS12;
        const unsigned descriptor =
            p->signs >> i & 1 ? container_descriptor_signs(container, t->n) : container_descriptor(container, t->n);
        *first++ = (uint8_t)descriptor;
        if (descriptor & DESCRIPTOR_TWO)
            *second++ = (uint8_t)(descriptor >> 8);
    }
    for (uint32_t signs = p->signs; signs; signs &= signs - 1, second += SIGN_DESCRIPTOR)
        pici_signs_write_descriptor(second, &p->sign[__builtin_ctz(signs)]);
    store_le32(out, bits);
    memset(out + p->metadata, 0, (size_t)(fmt_record_values(p->metadata, width_log2) - p->metadata));
    return second;
}

void pici_group_write(const struct pici_group_layout *p, struct pici_scratch *scratch, const struct pici_source *s,
                      size_t first, size_t n, uint8_t *out, size_t space, int stream)
{
    const unsigned width_log2 = s->width_log2;
    if (!p->nnz && !p->signs)
        return;
    size_t whole = s->base ? 0 : n / TILE;
    if (space - p->record < PICI_SLACK ||
        whole < p->tiles) /* what a kernel writes too much must be overwritten by later tiles */
        for (size_t after = 0, t = p->tiles; t-- > 0 && after < PICI_SLACK;) {
            after += p->tile[t].n ? (size_t)container_stored(p->tile[t].container, p->tile[t].n, tile_elements(t, n))
                                        << width_log2
                                  : 0;
            whole = t < whole ? t : whole;
        }
    struct pici_pack_tiles run = {.src = s->src + (first << width_log2),
                                  .word = p->word,
                                  .tile = p->tile,
                                  .tiles = whole,
                                  .stream = stream && p->values >= s->move->stream_least,
                                  .payload = write_descriptors(p, width_log2, out),
                                  .values = out + fmt_record_values(p->metadata, width_log2)};
    if (whole)
        s->move->pack_tiles(&run);
    for (size_t t = whole; t < p->tiles; t++) {
        run.word = p->word + t;
        run.tile = p->tile + t;
        write_tile_bounced(&run, scratch, s, first + t * TILE, tile_elements(t, n));
    }
    for (uint32_t signs = p->signs; signs; signs &= signs - 1) {
        const unsigned i = (unsigned)__builtin_ctz(signs);
        run.payload = pici_signs_write(run.payload, &p->sign[i], p->list[i]);
    }
    memset(run.values, 0, (size_t)(out + p->record - run.values));
}

static int is_short(unsigned container)
{
    return container <= PICI_OFFSETS8 || container == PICI_EMPTY;
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
        const int once = n >= s->move->sparse_many; /* predicted from the tile before */
        run.src = pici_source_tile(s, first + (size_t)i * TILE, TILE,
                                   scratch->bytes + SCRATCH_PAYLOADS + values + PICI_SLACK);
        run.word = p->word + i;
        run.tile = p->tile + i;
        if (once)
            p->tile[i].n = (uint16_t)s->move->pack_sparse(run.payload, run.values, run.src, most);
        else
            s->move->masks(p->word + i, p->tile + i, run.src, 1);
        n = p->tile[i].n;
        layout_tile(p, i, TILE, w, !once && n >= RUN && pici_words_have_run(p->word[i]));
        if (n > most || !is_short(run.tile->container))
            return 0;
        if (!once) {
            s->move->pack_tiles(&run);
        } else if (n) {
            run.payload += container_payload(run.tile->container, n);
            run.values += (size_t)n << w;
        }
        if (s->signs && s->move->any_negative(run.values - ((size_t)n << w), n, 1))
            return 0;
    }
    layout_end(p, w);
    return 1;
}

void pici_group_write_sparse(const struct pici_group_layout *p, const struct pici_scratch *scratch,
                             const struct pici_source *s, uint8_t *out, int stream)
{
    const unsigned width_log2 = s->width_log2;
    if (!p->nnz)
        return;
    uint8_t *const payload = write_descriptors(p, width_log2, out);
    memcpy(payload, scratch->bytes, (size_t)(out + p->metadata - payload));
    uint8_t *const values = out + fmt_record_values(p->metadata, width_log2);
    if (stream && p->values >= s->move->stream_least && s->move->copy)
        s->move->copy(values, scratch->bytes + SCRATCH_PAYLOADS, p->values);
    else
        memcpy(values, scratch->bytes + SCRATCH_PAYLOADS, p->values);
    memset(values + p->values, 0, (size_t)(out + p->record - (values + p->values)));
}

int pici_group_write_alike(struct pici_group_layout *p, const struct pici_source *s, size_t first, uint8_t *out,
                           int stream)
{
    const unsigned container = p->tile[0].container, width_log2 = s->width_log2;
    p->tiles = GROUP_TILES;
    p->kept = p->signs = 0;
    p->metadata = 4 + GROUP_TILES * (2 + (size_t)container_payload(container, TILE));
    struct pici_pack_tiles run = {.src = s->src + (first << width_log2),
                                  .tiles = GROUP_TILES,
                                  .stream = stream,
                                  .signs = s->signs,
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
    if (p->signs)
        return PREDICT_ANY;
    for (unsigned i = 0; i < p->tiles; i++) {
        alike += p->tile[i].container == container;
        sparse += is_short(p->tile[i].container);
    }
    return sparse == p->tiles && p->values <= scratch_values(s)                             ? PREDICT_SPARSE
           : alike == GROUP_TILES && (container == PICI_BITVECTOR || container == PICI_RAW) ? PREDICT_ALIKE
                                                                                            : PREDICT_ANY;
}
