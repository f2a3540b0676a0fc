/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the runs of packed blocks. */
#include "codec/packed.h"

#include <string.h>

#include "bytes.h"

static unsigned width_of(const struct pici_values *values)
{
    return values->block->layout.width_log2;
}

/* Values of run i of a group. */
static unsigned run_values(const struct pici_group *group, unsigned i)
{
    const unsigned left = group->values - i * RUN_MOST;
    return left < RUN_MOST ? left : RUN_MOST;
}

static void read_run(struct fmt_run *run, struct fmt_kind *kind, const struct pici_block *block,
                     const struct pici_group *group, unsigned i)
{
    *kind = fmt_kind_of(block->dtype);
    (void)fmt_run_read(run, group->run_descriptors + (size_t)i * RUN_DESCRIPTOR, run_values(group, i), kind,
                       block->layout.width_log2, 0); /* pici_group_read has checked it */
}

/* The first nonzero byte of a run's padding, or null. */
static const uint8_t *bad_padding(const uint8_t *from, const struct fmt_run *run, const struct fmt_kind *kind,
                                  unsigned width_log2)
{
    const unsigned bytes = fmt_run_bytes(run, kind, width_log2);
    const struct fmt_run_parts at = fmt_run_parts(run, kind);
    for (unsigned i = at.padding; run->k1 && i < at.words; i++)
        if (from[i])
            return from + i;
    for (unsigned i = run->k1 ? at.after : run->n << width_log2; i < bytes; i++)
        if (from[i])
            return from + i;
    return NULL;
}

/* The run at p, or a copy of it if a kernel would read past the end of the block. */
static const uint8_t *readable(const struct pici_block *block, const uint8_t *p, size_t bytes, uint8_t *bounce)
{
    if ((size_t)(block->bytes + block->layout.block_bytes - p) >= bytes + PICI_SLACK)
        return p;
    memcpy(bounce, p, bytes);
    memset(bounce + bytes, 0, PICI_SLACK);
    return bounce;
}

/* Decode the next run to `to`. Returns 0 if it breaks a rule. */
static int next_run(struct pici_values *values, uint8_t *to)
{
    unsigned zeros;
    const unsigned width_log2 = width_of(values);
    struct fmt_kind kind;
    struct fmt_run run;
    read_run(&run, &kind, values->block, values->group, values->next);
    const unsigned bytes = fmt_run_bytes(&run, &kind, width_log2);
    const uint8_t *const from = values->run;
    values->run += bytes;
    values->next++;
    if (bad_padding(from, &run, &kind, width_log2))
        return 0;
    if (!run.k1) {
        memcpy(to, from, (size_t)run.n << width_log2);
        return 1;
    }
    return values->planes->unpack(to, &run, readable(values->block, from, bytes, values->bounce), 0, &zeros);
}

/* Skip runs until run i is next. */
static void skip_runs(struct pici_values *values, unsigned i)
{
    for (; values->next < i; values->next++) {
        struct fmt_kind kind;
        struct fmt_run run;
        read_run(&run, &kind, values->block, values->group, values->next);
        values->run += fmt_run_bytes(&run, &kind, width_of(values));
    }
}

void pici_values_begin(struct pici_values *values, const struct pici_block *block, const struct pici_group *group)
{
    values->block = block;
    values->group = group;
    values->planes = pici_isa()->planes[block->dtype];
    values->run = group->runs;
    values->next = values->first = values->decoded = 0;
}

/* Bring values [from, from + n), n <= RUN_MOST, into the buffer. */
static int have_values(struct pici_values *values, unsigned from, unsigned n)
{
    const unsigned width_log2 = width_of(values), done = values->first + values->decoded;
    if (from + n <= done)
        return 1;
    const unsigned left = from < done ? done - from : 0;
    if (left) {
        memmove(values->bytes, values->bytes + ((size_t)(from - values->first) << width_log2),
                (size_t)left << width_log2);
        values->first = from;
    } else {
        skip_runs(values, from / RUN_MOST);
        values->first = values->next * RUN_MOST;
    }
    values->decoded = left;
    while (from + n > values->first + values->decoded) {
        const unsigned run = run_values(values->group, values->next);
        if (!next_run(values, values->bytes + ((size_t)values->decoded << width_log2)))
            return 0;
        values->decoded += run;
    }
    return 1;
}

static unsigned stored_values(const struct pici_block *block, const struct pici_group *group, unsigned i)
{
    const struct pici_tile *tile = &group->tile[i];
    return tile->nonzeros
               ? container_stored(tile->container, tile->nonzeros, pici_tile_elements(block, group->first + i))
               : 0;
}

unsigned pici_values_before(const struct pici_block *block, const struct pici_group *group, unsigned i)
{
    unsigned before = 0;
    for (unsigned k = 0; k < i; k++)
        before += stored_values(block, group, k);
    return before;
}

unsigned pici_values_load(struct pici_values *values, struct pici_group *group, unsigned i, unsigned most)
{
    const struct pici_block *const block = values->block;
    const unsigned from = pici_values_before(block, group, i);
    unsigned tiles = 0, count = 0;
    while (tiles < most && i + tiles < group->tiles) {
        const unsigned more = stored_values(block, group, i + tiles);
        if (count + more > RUN_MOST)
            break;
        count += more;
        tiles++;
    }
    if (count && !have_values(values, from, count))
        return 0;
    const uint8_t *at = values->bytes + (count ? (size_t)(from - values->first) << width_of(values) : 0);
    for (unsigned k = i; k < i + tiles; k++) {
        group->tile[k].values = at;
        at += (size_t)stored_values(block, group, k) << width_of(values);
    }
    return tiles;
}

int pici_values_straight(struct pici_values *values, const struct pici_group *group, unsigned i, uint8_t *dst,
                         int stream, int *wrong)
{
    const struct pici_block *const block = values->block;
    const struct pici_tile *const tile = &group->tile[i];
    const unsigned width_log2 = width_of(values), from = pici_values_before(block, group, i);
    if (PICI_BIG_ENDIAN || tile->container != PICI_RAW || group->full >> i & 1 || from % RUN_MOST ||
        from < values->first + values->decoded || pici_tile_elements(block, group->first + i) < TILE)
        return 0;
    struct fmt_kind kind;
    struct fmt_run run;
    unsigned zeros;
    skip_runs(values, from / RUN_MOST);
    read_run(&run, &kind, block, group, values->next);
    if (!run.k1)
        return 0;
    const unsigned bytes = fmt_run_bytes(&run, &kind, width_log2);
    const uint8_t *const input = values->run;
    *wrong = bad_padding(input, &run, &kind, width_log2) ||
             !values->planes->unpack(dst, &run, readable(block, input, bytes, values->bounce),
                                     stream && (uintptr_t)dst % 64 == 0, &zeros) ||
             zeros + tile->nonzeros != TILE;
    values->run += bytes;
    values->next++;
    values->first = values->next * RUN_MOST;
    values->decoded = 0;
    return 1;
}

enum pici_status pici_runs_verify(const struct pici_block *block, const struct pici_group *group,
                                  struct pici_fault *fault)
{
    const unsigned width_log2 = block->layout.width_log2, runs = fmt_runs(group->values);
    const struct pici_planes *const planes = pici_isa()->planes[block->dtype];
    const uint8_t *run_bytes = group->runs;
    uint8_t decoded[RUN_MOST * 8], other[RUN_MOST * 8 + PICI_SLACK];
    for (unsigned i = 0; i < runs; i++) {
        const uint8_t *const descriptor = group->run_descriptors + (size_t)i * RUN_DESCRIPTOR;
        struct fmt_kind kind;
        struct fmt_run run, chosen;
        unsigned zeros;
        uint8_t again[RUN_DESCRIPTOR];
        read_run(&run, &kind, block, group, i);
        const unsigned bytes = fmt_run_bytes(&run, &kind, width_log2);
        const uint8_t *const bad = bad_padding(run_bytes, &run, &kind, width_log2);
        if (bad)
            return pici_fault_at(fault, PICI_E_CORRUPT, (uint64_t)(bad - block->bytes), PICI_NO_TILE, "padding");
        if (!run.k1)
            memcpy(decoded, run_bytes, (size_t)run.n << width_log2);
        else if (!planes->unpack(decoded, &run, readable(block, run_bytes, bytes, other), 0, &zeros))
            return pici_fault_at(fault, PICI_E_CORRUPT, (uint64_t)(run_bytes - block->bytes), group->first, "planes");
        const unsigned length = planes->pack(other, &chosen, decoded, run.n, (block->flags & FLAG_ONE_LEVEL) != 0);
        fmt_run_write(again, &chosen);
        if (length != bytes || memcmp(again, descriptor, sizeof again) != 0 || memcmp(other, run_bytes, bytes) != 0)
            return pici_fault_at(fault, PICI_E_CORRUPT, (uint64_t)(descriptor - block->bytes), group->first, "choice");
        run_bytes += bytes;
    }
    return PICI_OK;
}
