/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The signs of a tile's zeros: whether storing them pays, and whether a block's are right. */
#include "codec/hybrid.h"

#include <string.h>

/* The cost of a tile that stores negative zeros as nonzero elements. word: with their bits. */
static unsigned cost_without(const uint64_t word[TILE_COLS], unsigned count, unsigned elements, unsigned width_log2)
{
    const unsigned container = container_of(count, elements, width_log2, count >= RUN && pici_words_have_run(word));
    return container_cost(container, count, elements, width_log2);
}

int pici_signs_pay(struct pici_signs *tile_signs, uint64_t list[TILE_COLS], struct pici_tile *stored,
                   uint64_t word[TILE_COLS], const uint8_t *tile, unsigned elements, unsigned width_log2)
{
    uint64_t by_value[1][TILE_COLS], negative[TILE_COLS];
    struct pici_tile by_value_tile;
    pici_isa()->by_value[width_log2]->masks(by_value, &by_value_tile, tile, 1);
    if (by_value_tile.nonzeros == stored->nonzeros)
        return 0;
    for (unsigned i = 0; i < TILE_COLS; i++)
        negative[i] = word[i] & ~by_value[0][i];
    pici_signs_make(tile_signs, list, by_value[0], negative, elements);
    const unsigned container =
        container_of_signs(by_value_tile.nonzeros, by_value_tile.nonzeros >= RUN && pici_words_have_run(by_value[0]));
    const unsigned cost =
        container_cost_signs(container, by_value_tile.nonzeros, (unsigned)pici_signs_bytes(tile_signs), width_log2);
    if (cost >= cost_without(word, stored->nonzeros, elements, width_log2))
        return 0;
    memcpy(word, by_value[0], sizeof by_value[0]);
    stored->nonzeros = by_value_tile.nonzeros;
    stored->container = (uint8_t)(by_value_tile.nonzeros ? container : PICI_EMPTY);
    return 1;
}

int pici_tile_has_signs(const struct pici_group *group, unsigned i, unsigned elements, unsigned width_log2)
{
    const struct pici_tile *stored = &group->tile[i];
    return group->signs >> i & 1 ||
           pici_isa()->move[width_log2]->any_negative(
               stored->values, container_stored(stored->container, stored->nonzeros, elements), 1);
}

int pici_tile_signs(uint8_t *tile, const struct pici_group *group, unsigned i, unsigned elements, unsigned width_log2,
                    int set)
{
    const struct pici_tile *stored = &group->tile[i];
    const struct pici_signs *tile_signs = &group->tile_signs[i];
    const struct pici_move *move = pici_isa()->move[width_log2];
    uint64_t word[1][TILE_COLS], other[TILE_COLS];
    struct pici_tile by_bits;
    move->masks(word, &by_bits, tile, 1);
    if (!(group->signs >> i & 1)) {
        struct pici_signs would;
        return !pici_signs_pay(&would, other, &by_bits, word[0], tile, elements, width_log2);
    }
    if (move->any_negative(tile, TILE, 0) || !pici_signs_read(other, tile_signs, word[0], elements))
        return 0;
    if (set)
        move->negate(tile, (const uint64_t *)other);
    for (unsigned k = 0; k < TILE_COLS; k++)
        other[k] |= word[0][k];
    const unsigned container = stored->nonzeros ? stored->container : PICI_OFFSETS12;
    const unsigned cost =
        container_cost_signs(container, stored->nonzeros, (unsigned)pici_signs_bytes(tile_signs), width_log2);
    return cost < cost_without(other, stored->nonzeros + pici_signs_negative(tile_signs), elements, width_log2);
}
