/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The signs of a tile's zeros: whether they pay, and whether those of a block that was read are right. */
#include "codec/hybrid.h"

#include <string.h>

/* What a tile costs whose negative zeros are nonzero elements: word has their bits too. */
static unsigned cost_without(const uint64_t word[TILE_COLS], unsigned n, unsigned len, unsigned width_log2)
{
    const unsigned container = container_of(n, len, width_log2, n >= RUN && pici_words_have_run(word));
    return container_cost(container, n, len, width_log2);
}

int pici_signs_pay(struct pici_signs *s, uint64_t list[TILE_COLS], struct pici_tile *t, uint64_t word[TILE_COLS],
                   const uint8_t *tile, unsigned len, unsigned width_log2)
{
    uint64_t by_value[1][TILE_COLS], negative[TILE_COLS];
    struct pici_tile now;
    pici_isa()->by_value[width_log2]->masks(by_value, &now, tile, 1);
    if (now.n == t->n)
        return 0;
    for (unsigned i = 0; i < TILE_COLS; i++)
        negative[i] = word[i] & ~by_value[0][i];
    pici_signs_make(s, list, by_value[0], negative, len);
    const unsigned container = container_of_signs(now.n, now.n >= RUN && pici_words_have_run(by_value[0]));
    const unsigned cost = container_cost_signs(container, now.n, (unsigned)pici_signs_bytes(s), width_log2);
    if (cost >= cost_without(word, t->n, len, width_log2))
        return 0;
    memcpy(word, by_value[0], sizeof by_value[0]);
    t->n = now.n;
    t->container = (uint8_t)(now.n ? container : PICI_EMPTY);
    return 1;
}

int pici_tile_has_signs(const struct pici_group *r, unsigned i, unsigned len, unsigned width_log2)
{
    const struct pici_tile *t = &r->tile[i];
    return r->signs >> i & 1 ||
           pici_isa()->move[width_log2]->any_negative(t->values, container_stored(t->container, t->n, len), 1);
}

int pici_tile_signs(uint8_t *tile, const struct pici_group *r, unsigned i, unsigned len, unsigned width_log2, int set)
{
    const struct pici_tile *t = &r->tile[i];
    const struct pici_signs *s = &r->sign[i];
    const struct pici_move *move = pici_isa()->move[width_log2];
    uint64_t word[1][TILE_COLS], other[TILE_COLS];
    struct pici_tile now;
    move->masks(word, &now, tile, 1);
    if (!(r->signs >> i & 1)) {
        struct pici_signs would;
        return !pici_signs_pay(&would, other, &now, word[0], tile, len, width_log2);
    }
    if (move->any_negative(tile, TILE, 0) || !pici_signs_read(other, s, word[0], len))
        return 0;
    if (set)
        move->negate(tile, (const uint64_t *)other);
    for (unsigned k = 0; k < TILE_COLS; k++)
        other[k] |= word[0][k];
    const unsigned container = t->n ? t->container : PICI_OFFSETS12;
    const unsigned cost = container_cost_signs(container, t->n, (unsigned)pici_signs_bytes(s), width_log2);
    return cost < cost_without(other, t->n + pici_signs_negative(s), len, width_log2);
}
