/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Laying out and writing the records of hybrid blocks. */
#include "codec/hybrid.h"

#include <string.h>

#include "bytes.h"

const uint8_t *pici_source_tile(const struct pici_source *source, size_t first, size_t count, uint8_t buffer[TILE * 8])
{
    const unsigned width_log2 = source->width_log2;
    const uint8_t *src = source->src + (first << width_log2);
    if (source->base)
        source->move->difference(buffer, src, source->base + (first << width_log2), count);
    else if (count < TILE)
        memcpy(buffer, src, count << width_log2);
    else
        return src;
    memset(buffer + (count << width_log2), 0, (TILE - count) << width_log2);
    return buffer;
}

/* Set the container of tile i by its nonzeros, and add the tile to the layout. elements: of the tile. run: does it have
 * a run of 256 nonzeros? */
static void layout_tile(struct pici_group_layout *layout, unsigned i, unsigned elements, unsigned width_log2, int run)
{
    struct pici_tile *tile = &layout->tile[i];
    tile->container = PICI_EMPTY;
    if (!tile->nonzeros)
        return;
    const unsigned container = container_of(tile->nonzeros, elements, width_log2, run);
    tile->container = (uint8_t)container;
    layout->nonzeros += tile->nonzeros;
    layout->metadata += container_descriptor_bytes(container) + container_payload(container, tile->nonzeros);
    layout->values += (size_t)container_stored(container, tile->nonzeros, elements) << width_log2;
}

static void layout_begin(struct pici_group_layout *layout, unsigned tiles)
{
    layout->tiles = tiles;
    layout->metadata = layout->values = 0;
    layout->nonzeros = layout->kept = layout->signs = 0;
}

static void layout_end(struct pici_group_layout *layout, unsigned width_log2)
{
    layout->metadata += layout->nonzeros || layout->signs ? 4 : 0;
    layout->record = (size_t)fmt_record(layout->metadata, layout->values, width_log2);
}

/* The number of elements of a tile in a group of group_count elements. */
static unsigned tile_elements(size_t tile, size_t group_count)
{
    return group_count - tile * TILE < TILE ? (unsigned)(group_count - tile * TILE) : TILE;
}

/* Let tile i keep signs if that costs less. tile: its elements. */
static void layout_signs(struct pici_group_layout *layout, unsigned i, const uint8_t *tile, unsigned elements,
                         unsigned width_log2)
{
    struct pici_tile *stored = &layout->tile[i];
    struct pici_signs *tile_signs = &layout->tile_signs[i];
    const struct pici_tile before = *stored;
    if (!pici_signs_pay(tile_signs, layout->negatives[i], stored, layout->word[i], tile, elements, width_log2))
        return;
    layout->signs |= UINT32_C(1) << i;
    layout->nonzeros -= before.nonzeros - stored->nonzeros;
    layout->kept += pici_signs_negative(tile_signs);
    layout->metadata +=
        container_cost_signs(stored->container, stored->nonzeros, (unsigned)pici_signs_bytes(tile_signs), width_log2);
    layout->metadata -= container_cost(before.container, before.nonzeros, elements, width_log2);
    /* the costs count values too */
    const size_t were = (size_t)container_stored(before.container, before.nonzeros, elements) << width_log2;
    const size_t are = (size_t)stored->nonzeros << width_log2;
    layout->metadata += were - are;
    layout->values -= were - are;
}

/* output: null, or receives a copy of all elements. */
static void make_layout(struct pici_group_layout *layout, struct pici_scratch *scratch,
                        const struct pici_source *source, size_t first, size_t group_count, uint8_t *output, int stream)
{
    const unsigned width_log2 = source->width_log2;
    const size_t whole = source->base ? 0 : group_count / TILE;
    const uint8_t *const src = source->src + (first << width_log2);
    const size_t once = source->signs ? 1 : whole; /* search a tile for negative zeros while it is in the cache */
    uint32_t negative = 0;
    layout_begin(layout, (unsigned)fmt_tiles(group_count));
    for (size_t tile = 0; tile < whole; tile += once) {
        const size_t offset = tile * TILE << width_log2;
        if (output)
            source->move->copy_masks(output + offset, layout->word + tile, layout->tile + tile, src + offset, once,
                                     stream);
        else
            source->move->masks(layout->word + tile, layout->tile + tile, src + offset, once);
        if (source->signs && layout->tile[tile].nonzeros)
            negative |= (uint32_t)source->move->any_negative(src + offset, TILE, 0) << tile;
    }
    for (size_t tile = whole; tile < layout->tiles; tile++) {
        const unsigned count = tile_elements(tile, group_count);
        const uint8_t *elements = pici_source_tile(source, first + tile * TILE, count, scratch->bytes);
        source->move->masks(layout->word + tile, layout->tile + tile, elements, 1);
        if (source->signs)
            negative |= (uint32_t)source->move->any_negative(elements, count, 0) << tile;
        if (output)
            source->move->dense(output + (tile * TILE << width_log2), elements, count, 0);
    }
    for (unsigned tile = 0; tile < layout->tiles; tile++) {
        const unsigned count = tile_elements(tile, group_count);
        layout_tile(layout, tile, count, width_log2,
                    layout->tile[tile].nonzeros >= RUN && pici_words_have_run(layout->word[tile]));
        if (negative >> tile & 1)
            layout_signs(layout, tile, pici_source_tile(source, first + (size_t)tile * TILE, count, scratch->bytes),
                         count, width_log2);
    }
    layout_end(layout, width_log2);
}

void pici_group_layout_make(struct pici_group_layout *layout, struct pici_scratch *scratch,
                            const struct pici_source *source, size_t first, size_t count)
{
    make_layout(layout, scratch, source, first, count, NULL, 0);
}

void pici_group_copy(struct pici_group_layout *layout, struct pici_scratch *scratch, const struct pici_source *source,
                     size_t first, size_t count, uint8_t *output, int stream)
{
    make_layout(layout, scratch, source, first, count, output, stream);
}

/* Write the tile of elements [first, first + count) through scratch as a bounce buffer. It is a difference, or partial,
 * or a kernel would write beyond the end of the output. */
static void write_tile_bounced(struct pici_pack_tiles *run, struct pici_scratch *scratch,
                               const struct pici_source *source, size_t first, unsigned count)
{
    if (!run->tile->nonzeros)
        return;
    const size_t stored = (size_t)container_stored(run->tile->container, run->tile->nonzeros, count)
                          << source->width_log2;
    uint8_t *const output = scratch->bytes + TILE * 8;
    struct pici_pack_tiles one = *run;
    one.src = pici_source_tile(source, first, count, scratch->bytes);
    one.tiles = 1;
    one.stream = 0;
    one.values = output;
    source->move->pack_tiles(&one);
    memcpy(run->values, output, stored);
    run->payload = one.payload;
    run->values += stored;
}
_Static_assert(sizeof(struct pici_scratch) >= 2 * TILE * 8 + PICI_SLACK, "a tile and its values");

/* Write occupancy, descriptors and sign descriptors. Returns where the payloads begin. */
uint8_t *pici_group_write_descriptors(const struct pici_group_layout *layout, uint8_t *output)
{
    uint8_t *first = output + 4, *second;
    uint32_t bits = layout->signs;
    for (unsigned i = 0; i < layout->tiles; i++)
        bits |= (uint32_t)(layout->tile[i].nonzeros != 0) << i;
    second = first + __builtin_popcount(bits);
    for (unsigned i = 0; i < layout->tiles; i++) {
        const struct pici_tile *tile = &layout->tile[i];
        if (!(bits >> i & 1))
            continue;
        const unsigned container = tile->nonzeros ? tile->container : PICI_OFFSETS12;
        const unsigned descriptor = layout->signs >> i & 1 ? container_descriptor_signs(container, tile->nonzeros)
                                                           : container_descriptor(container, tile->nonzeros);
        *first++ = (uint8_t)descriptor;
        if (descriptor & DESCRIPTOR_TWO)
            *second++ = (uint8_t)(descriptor >> 8);
    }
    for (uint32_t signs = layout->signs; signs; signs &= signs - 1, second += SIGN_DESCRIPTOR)
        pici_signs_write_descriptor(second, &layout->tile_signs[__builtin_ctz(signs)]);
    store_le32(output, bits);
    return second;
}

/* As pici_group_write_descriptors, and write the padding before the values. */
static uint8_t *write_descriptors(const struct pici_group_layout *layout, unsigned width_log2, uint8_t *output)
{
    memset(output + layout->metadata, 0, (size_t)(fmt_record_values(layout->metadata, width_log2) - layout->metadata));
    return pici_group_write_descriptors(layout, output);
}

void pici_group_write(const struct pici_group_layout *layout, struct pici_scratch *scratch,
                      const struct pici_source *source, size_t first, size_t count, uint8_t *output, size_t space,
                      int stream)
{
    const unsigned width_log2 = source->width_log2;
    if (!layout->nonzeros && !layout->signs)
        return;
    size_t whole = source->base ? 0 : count / TILE;
    if (space - layout->record < PICI_SLACK ||
        whole < layout->tiles) /* later tiles must overwrite the bytes that a kernel writes past its end */
        for (size_t after = 0, tile = layout->tiles; tile-- > 0 && after < PICI_SLACK;) {
            after += layout->tile[tile].nonzeros
                         ? (size_t)container_stored(layout->tile[tile].container, layout->tile[tile].nonzeros,
                                                    tile_elements(tile, count))
                               << width_log2
                         : 0;
            whole = tile < whole ? tile : whole;
        }
    struct pici_pack_tiles run = {.src = source->src + (first << width_log2),
                                  .word = layout->word,
                                  .tile = layout->tile,
                                  .tiles = whole,
                                  .stream = stream && layout->values >= source->move->stream_least,
                                  .payload = write_descriptors(layout, width_log2, output),
                                  .values = output + fmt_record_values(layout->metadata, width_log2)};
    if (whole)
        source->move->pack_tiles(&run);
    for (size_t tile = whole; tile < layout->tiles; tile++) {
        run.word = layout->word + tile;
        run.tile = layout->tile + tile;
        write_tile_bounced(&run, scratch, source, first + tile * TILE, tile_elements(tile, count));
    }
    for (uint32_t signs = layout->signs; signs; signs &= signs - 1) {
        const unsigned i = (unsigned)__builtin_ctz(signs);
        run.payload = pici_signs_write(run.payload, &layout->tile_signs[i], layout->negatives[i]);
    }
    memset(run.values, 0, (size_t)(output + layout->record - run.values));
}

static int is_short(unsigned container)
{
    return container <= PICI_OFFSETS8 || container == PICI_EMPTY;
}

/* Bytes of scratch for values. With a base, the rest holds a tile of differences. */
static size_t scratch_values(const struct pici_source *source)
{
    return SCRATCH_VALUES - (source->base ? (size_t)TILE << source->width_log2 : 0);
}

int pici_group_layout_sparse(struct pici_group_layout *layout, struct pici_scratch *scratch,
                             const struct pici_source *source, size_t first)
{
    const unsigned width_log2 = source->width_log2;
    const size_t values = scratch_values(source);
    struct pici_pack_tiles run = {.tiles = 1, .payload = scratch->bytes, .values = scratch->bytes + SCRATCH_PAYLOADS};
    layout_begin(layout, GROUP_TILES);
    for (unsigned i = 0, nonzeros = 0; i < GROUP_TILES; i++) {
        const size_t remaining = (values - layout->values) >> width_log2;
        const unsigned most = remaining < OFFSETS8_MOST ? (unsigned)remaining : OFFSETS8_MOST;
        const int once = nonzeros >= source->move->sparse_many; /* predicted from the tile before */
        run.src = pici_source_tile(source, first + (size_t)i * TILE, TILE,
                                   scratch->bytes + SCRATCH_PAYLOADS + values + PICI_SLACK);
        run.word = layout->word + i;
        run.tile = layout->tile + i;
        if (once)
            layout->tile[i].nonzeros = (uint16_t)source->move->pack_sparse(run.payload, run.values, run.src, most);
        else
            source->move->masks(layout->word + i, layout->tile + i, run.src, 1);
        nonzeros = layout->tile[i].nonzeros;
        layout_tile(layout, i, TILE, width_log2, !once && nonzeros >= RUN && pici_words_have_run(layout->word[i]));
        if (nonzeros > most || !is_short(run.tile->container))
            return 0;
        if (!once) {
            source->move->pack_tiles(&run);
        } else if (nonzeros) {
            run.payload += container_payload(run.tile->container, nonzeros);
            run.values += (size_t)nonzeros << width_log2;
        }
        if (source->signs && source->move->any_negative(run.values - ((size_t)nonzeros << width_log2), nonzeros, 1))
            return 0;
    }
    layout_end(layout, width_log2);
    return 1;
}

void pici_group_write_sparse(const struct pici_group_layout *layout, const struct pici_scratch *scratch,
                             const struct pici_source *source, uint8_t *output, int stream)
{
    const unsigned width_log2 = source->width_log2;
    if (!layout->nonzeros)
        return;
    uint8_t *const payload = write_descriptors(layout, width_log2, output);
    memcpy(payload, scratch->bytes, (size_t)(output + layout->metadata - payload));
    uint8_t *const values = output + fmt_record_values(layout->metadata, width_log2);
    if (stream && layout->values >= source->move->stream_least && source->move->copy)
        source->move->copy(values, scratch->bytes + SCRATCH_PAYLOADS, layout->values);
    else
        memcpy(values, scratch->bytes + SCRATCH_PAYLOADS, layout->values);
    memset(values + layout->values, 0, (size_t)(output + layout->record - (values + layout->values)));
}

int pici_group_write_alike(struct pici_group_layout *layout, const struct pici_source *source, size_t first,
                           uint8_t *output, int stream)
{
    const unsigned container = layout->tile[0].container, width_log2 = source->width_log2;
    layout->tiles = GROUP_TILES;
    layout->kept = layout->signs = 0;
    layout->metadata = 4 + GROUP_TILES * (2 + (size_t)container_payload(container, TILE));
    struct pici_pack_tiles run = {.src = source->src + (first << width_log2),
                                  .tiles = GROUP_TILES,
                                  .stream = stream,
                                  .signs = source->signs,
                                  .payload = output + 4 + (size_t)2 * GROUP_TILES,
                                  .values = output + fmt_record_values(layout->metadata, width_log2)};
    const uint8_t *const values = run.values;
    if (source->move->pack_alike(&run, layout->tile) < GROUP_TILES)
        return 0;
    layout->nonzeros = 0;
    for (unsigned i = 0; i < GROUP_TILES; i++)
        layout->nonzeros += layout->tile[i].nonzeros;
    layout->values = (size_t)(run.values - values);
    layout->record = (size_t)fmt_record(layout->metadata, layout->values, width_log2);
    write_descriptors(layout, width_log2, output);
    memset(run.values, 0, (size_t)(output + layout->record - run.values));
    return 1;
}

enum pici_prediction pici_group_predict(const struct pici_group_layout *layout, const struct pici_source *source)
{
    const unsigned container = layout->tile[0].container;
    unsigned alike = 0, sparse = 0;
    if (layout->signs)
        return PREDICT_ANY;
    for (unsigned i = 0; i < layout->tiles; i++) {
        alike += layout->tile[i].container == container;
        sparse += is_short(layout->tile[i].container);
    }
    if (sparse == layout->tiles && layout->values <= scratch_values(source))
        return PREDICT_SPARSE;
    if (alike == GROUP_TILES && (container == PICI_BITVECTOR || container == PICI_RAW))
        return PREDICT_ALIKE;
    return PREDICT_ANY;
}
