/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_breakdown: what the bytes of a hybrid or packed block are used for. */
#include "codec/packed.h"

#include "sized.h"

_Static_assert(PICI_CONTAINERS <= PICI_CONTAINERS_ROOM, "the arrays of struct pici_breakdown never grow");

/* Until 0.2 its arrays had five elements; in 0.1 it ended with other_bytes. */
static const struct sized_layout breakdown_0_2 = {offsetof(struct pici_breakdown, tiles) + 21 * 8,
                                                  offsetof(struct pici_breakdown, tiles) + 24 * 8,
                                                  {{offsetof(struct pici_breakdown, tiles), 5 * 8},
                                                   {offsetof(struct pici_breakdown, nnz), 5 * 8},
                                                   {offsetof(struct pici_breakdown, position_bytes), 5 * 8},
                                                   {offsetof(struct pici_breakdown, value_bytes), 5 * 8},
                                                   {offsetof(struct pici_breakdown, other_bytes), 4 * 8}}};

/* Add the runs of a group to the breakdown. Returns their bytes; 0 in hybrid, which has no runs. */
static uint64_t count_runs(struct pici_breakdown *breakdown, const struct pici_block *block,
                           const struct pici_group *group)
{
    const unsigned width_log2 = block->layout.width_log2;
    uint64_t bytes = 0;
    for (unsigned done = 0, i = 0; done < group->values; done += RUN_MOST, i++) {
        const struct fmt_kind kind = fmt_kind_of(block->dtype);
        const unsigned remaining = group->values - done, count = remaining < RUN_MOST ? remaining : RUN_MOST;
        struct fmt_run run;
        (void)fmt_run_read(&run, group->run_descriptors + (size_t)i * RUN_DESCRIPTOR, count, &kind, width_log2, 0);
        const unsigned length = fmt_run_bytes(&run, &kind, width_log2);
        breakdown->runs++;
        breakdown->unpacked_bytes += (uint64_t)count << width_log2;
        bytes += length;
        if (!run.k1)
            continue;
        breakdown->packed_runs++;
        breakdown->exponent_bytes += length - fmt_run_parts(&run, &kind).planes;
    }
    return bytes;
}

enum pici_status pici_breakdown(struct pici_breakdown *output, const void *block, size_t size)
{
    struct pici_block parsed;
    if (!output || !sized_either(sized_of(output), sizeof *output, &breakdown_0_2) || !block)
        return PICI_E_ARG;
    enum pici_status status = pici_block_parse(&parsed, block, size, NULL);
    if (status || (status = pici_block_whole(&parsed, size, NULL)) != PICI_OK)
        return status;
    if (!fmt_has_groups(parsed.format))
        return PICI_E_ARG;
    struct pici_breakdown breakdown = {.size = sizeof breakdown, .other_bytes = parsed.layout.block_bytes};
    struct pici_group group;
    const uint64_t groups = fmt_groups(parsed.layout.tiles);
    for (uint64_t number = 0; number < groups; number++) {
        if ((status = pici_group_read(&group, &parsed, number, NULL)) != PICI_OK)
            return status;
        const uint64_t runs = count_runs(&breakdown, &parsed, &group);
        for (unsigned i = 0; i < group.tiles; i++) {
            const struct pici_tile *tile = &group.tile[i];
            const int signs = group.signs >> i & 1;
            const unsigned container = signs && !tile->nonzeros ? (unsigned)PICI_OFFSETS12 : tile->container;
            breakdown.tiles[container]++;
            if (container == PICI_EMPTY)
                continue;
            uint64_t positions =
                1 + (signs || container != PICI_OFFSETS12) + container_payload(container, tile->nonzeros);
            if (signs) {
                const uint64_t bytes = SIGN_DESCRIPTOR + pici_signs_bytes(&group.tile_signs[i]);
                breakdown.sign_tiles++;
                breakdown.sign_bytes += bytes;
                breakdown.negative_zeros += pici_signs_negative(&group.tile_signs[i]);
                positions += bytes;
            }
            const uint64_t stored =
                container_stored(container, tile->nonzeros, pici_tile_elements(&parsed, group.first + i));
            const uint64_t values = group.values ? runs * stored / group.values : stored << parsed.layout.width_log2;
            breakdown.nnz[container] += tile->nonzeros;
            breakdown.position_bytes[container] += positions;
            breakdown.value_bytes[container] += values;
            breakdown.other_bytes -= positions + values;
        }
    }
    return sized_write_either(output, &breakdown, sizeof breakdown, sizeof breakdown, &breakdown_0_2);
}

/* The name until version 0.3, for programs linked with the library then; the amalgamation does not need it. */
#ifdef PICI_BUILD
#undef pici_mix
PICI_API enum pici_status pici_mix(struct pici_breakdown *breakdown, const void *block, size_t size);

enum pici_status pici_mix(struct pici_breakdown *breakdown, const void *block, size_t size)
{
    return pici_breakdown(breakdown, block, size);
}
#endif
