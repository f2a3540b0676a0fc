/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_mix: what the bytes of a hybrid block are used for. */
#include "codec/hybrid.h"

#include "sized.h"

_Static_assert(PICI_CONTAINERS <= PICI_CONTAINERS_ROOM, "the arrays of struct pici_mix never grow");

/* Until 0.2 its arrays had five elements; in 0.1 it ended with other_bytes. */
static const struct sized_layout mix_0_2 = {offsetof(struct pici_mix, tiles) + 21 * 8,
                                            offsetof(struct pici_mix, tiles) + 24 * 8,
                                            {{offsetof(struct pici_mix, tiles), 5 * 8},
                                             {offsetof(struct pici_mix, nnz), 5 * 8},
                                             {offsetof(struct pici_mix, position_bytes), 5 * 8},
                                             {offsetof(struct pici_mix, value_bytes), 5 * 8},
                                             {offsetof(struct pici_mix, other_bytes), 4 * 8}}};

enum pici_status pici_mix(struct pici_mix *mix, const void *block, size_t len)
{
    struct pici_block b;
    if (!mix || !sized_either(sized_of(mix), sizeof *mix, &mix_0_2) || !block)
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
            const int signs = r.signs >> i & 1;
            const unsigned c = signs && !t->n ? (unsigned)PICI_OFFSETS12 : t->container;
            m.tiles[c]++;
            if (c == PICI_EMPTY)
                continue;
            uint64_t positions = 1 + (signs || c != PICI_OFFSETS12) + container_payload(c, t->n);
            if (signs) {
                const uint64_t bytes = SIGN_DESCRIPTOR + pici_signs_bytes(&r.sign[i]);
                m.sign_tiles++;
                m.sign_bytes += bytes;
                m.negative_zeros += pici_signs_negative(&r.sign[i]);
                positions += bytes;
            }
            const uint64_t values = (uint64_t)container_stored(c, t->n, pici_tile_elements(&b, r.first + i))
                                    << b.at.width_log2;
            m.nnz[c] += t->n;
            m.position_bytes[c] += positions;
            m.value_bytes[c] += values;
            m.other_bytes -= positions + values;
        }
    }
    return sized_write_either(mix, &m, sizeof m, sizeof m, &mix_0_2);
}
