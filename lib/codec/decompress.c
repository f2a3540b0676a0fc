/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_decompress, pici_decompress_range, pici_scatter_add, pici_apply and pici_inspect. */
#include <stdatomic.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/hybrid.h"
#include "codec/packed.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "sized.h"

/* The use of the stored elements: decode them to dst, or add them to dst, or XOR them into dst. */
enum op { OP_DECODE, OP_ADD, OP_XOR };

/* One call; its arguments and the block's header have been checked. */
struct job {
    const struct pici_block *block;
    const struct pici_move *kernels;
    const struct pici_add *add_kernels; /* adds or XORs; null: decode */
    enum op op;
    int stream;
};

/* ---- bitmap ---- */

/* Decode or add a tile from a bounce buffer of its values, and check all of its rules. dst has space for a whole tile.
 * This is for tiles that are partial, too near to the block's end for a kernel, or rejected by a kernel. *value: in,
 * out: values before the tile. */
static int unpack_tile_bounced(const struct job *job, uint8_t *dst, uint64_t tile, uint64_t *value)
{
    const struct pici_block *block = job->block;
    const uint8_t *bits = block->bits + tile * TILE_BITS_BYTES;
    uint64_t remaining = block->count - tile * TILE, nonzeros = 0;
    for (unsigned column = 0; column < TILE_COLS; column++) {
        uint64_t word = load_le64(bits + 8 * column);
        if (fmt_past_end(word, column, remaining))
            return 0;
        nonzeros += (uint64_t)__builtin_popcountll(word);
    }
    if (load_index(block->index, block->layout.index_width, tile) != *value || nonzeros > block->nonzeros - *value)
        return 0;

    static const uint8_t first[4];
    uint8_t values[TILE * 8 + PICI_SLACK];
    memcpy(values, block->values + (*value << block->layout.width_log2),
           (size_t)(nonzeros << block->layout.width_log2));
    memset(values + (nonzeros << block->layout.width_log2), 0, PICI_SLACK);
    struct pici_unpack run = {
        .dst = dst, .bits = bits, .index = first, .index_width = 4, .values = values, .limit = nonzeros, .tiles = 1};
    *value += nonzeros;
    return (job->add_kernels ? job->add_kernels->unpack(&run) : job->kernels->unpack(&run)) == 1 && !run.zero;
}

/* Decode or add elements [first, first + count), a part of one tile. */
static int unpack_part(const struct job *job, uint8_t *dst, uint64_t first, size_t count, uint64_t *value)
{
    uint8_t tile[TILE * 8];
    const struct job decode = {.block = job->block, .kernels = job->kernels};
    const unsigned width_log2 = job->block->layout.width_log2;
    if (!unpack_tile_bounced(&decode, tile, first / TILE, value))
        return 0;
    const uint8_t *src = tile + (first % TILE << width_log2);
    if (!job->add_kernels)
        memcpy(dst, src, count << width_log2);
    else
        job->add_kernels->dense(dst, src, count);
    return 1;
}

/* Decode or add elements [first, first + count) of a bitmap block. */
static int unpack_bitmap(const struct job *job, uint8_t *dst, uint64_t first, size_t count)
{
    const struct pici_block *block = job->block;
    const unsigned index_width = block->layout.index_width, width_log2 = block->layout.width_log2;
    const uint64_t slack = PICI_SLACK >> width_log2;
    uint64_t value = count ? load_index(block->index, index_width, first / TILE) : 0;
    if (value > block->nonzeros || (first < TILE && value))
        return 0;
    while (count) {
        uint64_t tile = first / TILE;
        size_t within = (size_t)(first % TILE), done;
        if (within || count < TILE) {
            done = count < TILE - within ? count : TILE - within;
            if (!unpack_part(job, dst, first, done, &value))
                return 0;
        } else {
            struct pici_unpack run = {.dst = dst,
                                      .bits = block->bits + tile * TILE_BITS_BYTES,
                                      .index = block->index + tile * index_width,
                                      .index_width = index_width,
                                      .stream = job->stream,
                                      .values = block->values,
                                      .next_value = value,
                                      .limit = block->nonzeros < slack ? 0 : block->nonzeros - slack,
                                      .tiles = count / TILE};
            size_t tiles = job->add_kernels ? job->add_kernels->unpack(&run) : job->kernels->unpack(&run);
            value = run.next_value;
            if (run.zero)
                return 0;
            if (tiles == 0) {
                if (!unpack_tile_bounced(job, dst, tile, &value))
                    return 0;
                tiles = 1;
            }
            done = tiles * TILE;
        }
        first += done;
        dst += done << width_log2;
        count -= done;
    }
    /* the next entry, or nonzeros, confirms the last tile's count */
    uint64_t next = fmt_tiles(first);
    return value == (next < block->layout.tiles ? load_index(block->index, index_width, next) : block->nonzeros);
}

/* ---- coo ---- */

/* The first entry at this position or a later one. If positions do not rise, any entry. */
static uint64_t lower_bound(const struct pici_block *block, uint64_t position)
{
    uint64_t first = 0, count = block->nonzeros;
    while (count) {
        uint64_t half = count / 2;
        if (load_index(block->index, block->layout.index_width, first + half) < position) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

static int unpack_coo(const struct job *job, uint8_t *dst, uint64_t first, size_t count)
{
    const struct pici_block *block = job->block;
    const uint64_t last = first + count;
    struct pici_scatter run = {.dst = dst,
                               .first = first,
                               .count = count,
                               .index = block->index,
                               .values = block->values,
                               .index_width = block->layout.index_width,
                               .next = first ? lower_bound(block, first) : 0,
                               .end = block->nonzeros};
    if (last < block->count)
        run.end = lower_bound(block, last);
    if (job->add_kernels)
        job->add_kernels->unpack_coo(&run);
    else
        job->kernels->unpack_coo(&run);
    return run.next == run.end && !run.zero;
}

/* ---- hybrid ---- */

/* Decode or add elements [within, within + count) of tile i of a group, through a bounce buffer. This is for tiles that
 * are partial, needed only in part, too near to the block's end for a kernel, or keep signs. elements: of the tile.
 * signs: check and set signs. */
__attribute__((noinline)) static int unpack_stored_tile(const struct job *job, uint8_t *dst,
                                                        const struct pici_group *group, unsigned i, unsigned elements,
                                                        unsigned within, size_t count, int signs)
{
    const unsigned width_log2 = job->block->layout.width_log2;
    uint8_t tile[TILE * 8];
    const uint8_t *const src = tile + ((size_t)within << width_log2);
    if (!group->tile[i].nonzeros && !signs) {
        if (!job->add_kernels)
            memset(dst, 0, count << width_log2);
        return 1;
    }
    if (!pici_tile_decode(tile, &group->tile[i], elements, width_log2) ||
        (signs && !pici_tile_signs(tile, group, i, elements, width_log2, job->op != OP_ADD)))
        return 0;
    if (job->add_kernels)
        job->add_kernels->dense(dst, src, count);
    else if (job->stream && job->kernels->copy)
        job->kernels->copy(dst, src, count << width_log2);
    else
        memcpy(dst, src, count << width_log2);
    return 1;
}

/* What the groups read so far contribute to hybrid's rules for the whole block. */
struct groups_read {
    uint64_t nonzeros;
    uint32_t signs; /* a tile keeps signs */
};

/* Do all groups of a block together break a rule? */
static int groups_wrong(const struct pici_block *block, const struct groups_read *all)
{
    return fmt_has_groups(block->format) &&
           (all->nonzeros != block->nonzeros || (block->layout.version == FMT_VERSION_SIGNS && !all->signs));
}

/* Decode or add elements [first, first + count) of a hybrid block, or with `packed` of a packed one. *seen: out, for
 * their groups. */
static int unpack_groups(const struct job *job, uint8_t *dst, uint64_t first, size_t count, struct groups_read *seen,
                         struct pici_values *packed)
{
    const struct pici_block *block = job->block;
    const unsigned width_log2 = block->layout.width_log2;
    const uint8_t *const end = block->bytes + block->layout.block_bytes;
    const int version2 = block->layout.version == FMT_VERSION_SIGNS;
    struct pici_group group;
    for (*seen = (struct groups_read){0, 0}; count;) {
        if (pici_group_read(&group, block, first / TILE / GROUP_TILES, NULL))
            return 0;
        seen->nonzeros += group.nonzeros;
        seen->signs |= group.signs;
        if (packed)
            pici_values_begin(packed, block, &group);
        for (unsigned i = (unsigned)(first / TILE % GROUP_TILES); i < group.tiles && count;) {
            const unsigned elements = pici_tile_elements(block, group.first + i), within = (unsigned)(first % TILE);
            unsigned tiles = 0, most = GROUP_TILES;
            int wrong = 0;
            if (packed && !within && count >= TILE && !version2 && !job->add_kernels &&
                pici_values_straight(packed, &group, i, dst, job->stream, &wrong)) {
                if (wrong)
                    return 0;
                i++;
                first += TILE;
                dst += (size_t)TILE << width_log2;
                count -= TILE;
                continue;
            }
            if (packed && (most = pici_values_load(packed, &group, i, count / TILE > 1 ? GROUP_TILES : 1)) == 0)
                return 0;
            /* whole tiles, followed by enough bytes for a kernel that reads past their end */
            while (!within && i + tiles < group.tiles && count / TILE > tiles && tiles < most) {
                const struct pici_tile *tile = &group.tile[i + tiles];
                const size_t bytes = (size_t)container_stored(tile->container, tile->nonzeros, TILE) << width_log2;
                if (tile->nonzeros &&
                    ((!packed && (size_t)(end - tile->values) < bytes + PICI_SLACK) ||
                     (size_t)(end - tile->payload) < container_payload(tile->container, tile->nonzeros) + PICI_SLACK ||
                     (group.full >> (i + tiles) & 1 && !pici_tile_has_run(tile, TILE, width_log2))))
                    break;
                if (version2 && pici_tile_has_signs(&group, i + tiles, TILE, width_log2))
                    break;
                tiles++;
            }
            size_t done = (size_t)tiles * TILE;
            if (tiles) {
                const struct pici_unpack_tiles run = {
                    .dst = dst, .tile = group.tile + i, .tiles = tiles, .stream = job->stream};
                if ((job->add_kernels ? job->add_kernels->unpack_tiles(&run) : job->kernels->unpack_tiles(&run)) !=
                    tiles)
                    return 0;
                i += tiles;
            } else {
                done = count < elements - within ? count : elements - within;
                if ((group.full >> i & 1 && !pici_tile_has_run(&group.tile[i], elements, width_log2)) ||
                    !unpack_stored_tile(job, dst, &group, i, elements, within, done,
                                        version2 && pici_tile_has_signs(&group, i, elements, width_log2)))
                    return 0;
                i++;
            }
            first += done;
            dst += done << width_log2;
            count -= done;
        }
    }
    return 1;
}

static int unpack_hybrid(const struct job *job, uint8_t *dst, uint64_t first, size_t count, struct groups_read *seen)
{
    return unpack_groups(job, dst, first, count, seen, NULL);
}

__attribute__((noinline)) static int unpack_packed(const struct job *job, uint8_t *dst, uint64_t first, size_t count,
                                                   struct groups_read *seen)
{
    struct pici_values values;
    return unpack_groups(job, dst, first, count, seen, &values);
}

/* ---- dense, and all ---- */

__attribute__((noinline)) static int unpack_dense(const struct job *job, uint8_t *dst, uint64_t first, size_t count)
{
    const uint8_t *src = job->block->values + (first << job->block->layout.width_log2);
    const unsigned width_log2 = job->block->layout.width_log2;
    if (!job->add_kernels) {
        pici_copy_stored(dst, src, count, width_log2);
    } else if (!PICI_BIG_ENDIAN) {
        job->add_kernels->dense(dst, src, count);
    } else {
        uint8_t tile[TILE * 8];
        for (size_t i = 0, some; i < count; i += some) {
            some = count - i < TILE ? count - i : TILE;
            pici_copy_stored(tile, src + (i << width_log2), some, width_log2);
            job->add_kernels->dense(dst + (i << width_log2), tile, some);
        }
    }
    return 1;
}

/* *seen: out, for hybrid and packed only. */
static int unpack(const struct job *job, uint8_t *dst, uint64_t first, size_t count, struct groups_read *seen)
{
    switch (job->block->format) {
    case FMT_BITMAP: return unpack_bitmap(job, dst, first, count);
    case FMT_COO: return unpack_coo(job, dst, first, count);
    case FMT_HYBRID: return unpack_hybrid(job, dst, first, count, seen);
    case FMT_PACKED: return unpack_packed(job, dst, first, count, seen);
    default: return unpack_dense(job, dst, first, count);
    }
}

/* The whole block in parts, one for each thread, of whole tiles or, in hybrid, of whole groups. */
struct parts {
    const struct job *job;
    uint8_t *dst;
    int threads;
    atomic_int wrong;
    struct groups_read seen[PICI_MAX_THREADS]; /* hybrid: of each part */
};

_Static_assert((int)PICI_PIECE_TILES >= (int)GROUP_TILES, "each thread has at least one group");

static void unpack_thread(void *context, int i)
{
    struct parts *parts = context;
    const struct job *job = parts->job;
    const uint64_t tiles = fmt_tiles(job->block->count),
                   piece = fmt_has_groups(job->block->format) ? GROUP_TILES * TILE : TILE;
    const uint64_t pieces = piece == TILE ? tiles : fmt_groups(tiles);
    const uint64_t each = pieces / (unsigned)parts->threads, remainder = pieces % (unsigned)parts->threads;
    uint64_t begin = each * (unsigned)i + ((unsigned)i < remainder ? (unsigned)i : remainder);
    uint64_t end = begin + each + ((unsigned)i < remainder);
    uint64_t first = begin * piece, last = end * piece < job->block->count ? end * piece : job->block->count;
    if (!unpack(job, parts->dst + (first << job->block->layout.width_log2), first, (size_t)(last - first),
                &parts->seen[i]))
        atomic_store(&parts->wrong, 1);
}

/* Parse the header of a complete block. */
static enum pici_status parse(struct pici_block *parsed, const void *block, size_t size)
{
    enum pici_status status = pici_block_parse(parsed, block, size, NULL);
    return status ? status : pici_block_whole(parsed, size, NULL);
}

static enum pici_status check_output(const struct pici_block *block, const void *dst, uint64_t count, size_t size)
{
    unsigned width_log2 = block->layout.width_log2;
    if ((!dst && count) || count > SIZE_MAX >> width_log2 || pici_overlap(dst, count << width_log2, block->bytes, size))
        return PICI_E_ARG;
    return PICI_OK;
}

static const struct pici_add *kernels(const struct pici_block *block, enum op operation)
{
    switch (operation) {
    case OP_ADD: return pici_isa()->add[block->dtype];
    case OP_XOR: return pici_isa()->xors[block->layout.width_log2];
    default: return NULL;
    }
}

/* Decode or add a block with a checked header to dst, which has block->count elements. output: number of elements of
 * the array that contains dst. */
static enum pici_status whole(void *dst, const struct pici_block *block, int threads, enum op operation,
                              uint64_t output)
{
    enum pici_status status = pici_block_checksum(block, NULL);
    if (status || (status = pici_block_padding(block, NULL)) != PICI_OK)
        return status;
    struct job job = {.block = block,
                      .kernels = pici_isa()->move[block->layout.width_log2],
                      .add_kernels = kernels(block, operation),
                      .op = operation,
                      .stream = output >= (uint64_t)PICI_STREAM_BYTES >> block->layout.width_log2};
    struct parts parts;
    parts.job = &job;
    parts.dst = dst;
    parts.threads = pici_thread_count(threads, fmt_tiles(block->count) / PICI_PIECE_TILES);
    atomic_init(&parts.wrong, 0);
    struct groups_read all = {0, 0};
    if (block->count == 0)
        return groups_wrong(block, &all) ? PICI_E_CORRUPT : PICI_OK;
    if (parts.threads > 1)
        pici_parallel(parts.threads, block->format == FMT_PACKED ? 512 << 10 : 256 << 10, unpack_thread, &parts);
    else
        unpack_thread(&parts, 0);
    if (atomic_load(&parts.wrong))
        return PICI_E_CORRUPT;
    for (int i = 0; fmt_has_groups(block->format) && i < parts.threads; i++) {
        all.nonzeros += parts.seen[i].nonzeros;
        all.signs |= parts.seen[i].signs;
    }
    return groups_wrong(block, &all) ? PICI_E_CORRUPT : PICI_OK;
}

/* The same from untrusted bytes, after checking the caller's arguments. */
static enum pici_status call(void *dst, uint64_t count, const void *block, size_t size, const struct pici_opts *options,
                             enum op operation)
{
    struct pici_opts checked;
    struct pici_block parsed;
    enum pici_status status = block ? pici_opts_get(&checked, options) : PICI_E_ARG;
    if (status || (status = parse(&parsed, block, size)) != PICI_OK)
        return status;
    if (count != parsed.count || check_output(&parsed, dst, count, size))
        return PICI_E_ARG;
    return whole(dst, &parsed, checked.threads, operation, count);
}

enum pici_status pici_block_decode(void *dst, const struct pici_block *block, uint64_t output)
{
    return whole(dst, block, 1, OP_DECODE, output);
}

enum pici_status pici_block_add(void *dst, const struct pici_block *block)
{
    return whole(dst, block, 1, OP_ADD, block->count);
}

enum pici_status pici_decompress(void *dst, uint64_t count, const void *block, size_t size,
                                 const struct pici_opts *options)
{
    return call(dst, count, block, size, options, OP_DECODE);
}

enum pici_status pici_scatter_add(void *dst, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options)
{
    return call(dst, count, block, size, options, OP_ADD);
}

enum pici_status pici_apply(void *dst, uint64_t count, const void *block, size_t size, const struct pici_opts *options)
{
    return call(dst, count, block, size, options, OP_XOR);
}

static enum pici_status range(void *dst, uint64_t first, uint64_t count, const void *block, size_t size,
                              const struct pici_opts *options, enum op operation)
{
    struct pici_opts checked;
    struct pici_block parsed;
    enum pici_status status = block ? pici_opts_get(&checked, options) : PICI_E_ARG;
    if (status || (status = parse(&parsed, block, size)) != PICI_OK)
        return status;
    if (first > parsed.count || count > parsed.count - first || check_output(&parsed, dst, count, size))
        return PICI_E_ARG;
    struct job job = {.block = &parsed,
                      .kernels = pici_isa()->move[parsed.layout.width_log2],
                      .add_kernels = kernels(&parsed, operation),
                      .op = operation,
                      .stream = count << parsed.layout.width_log2 >= PICI_STREAM_BYTES};
    struct groups_read seen = {0, 0};
    if (count && !unpack(&job, dst, first, (size_t)count, &seen))
        return PICI_E_CORRUPT;
    return count == parsed.count && groups_wrong(&parsed, &seen) ? PICI_E_CORRUPT : PICI_OK;
}

enum pici_status pici_decompress_range(void *dst, uint64_t first, uint64_t count, const void *block, size_t size,
                                       const struct pici_opts *options)
{
    return range(dst, first, count, block, size, options, OP_DECODE);
}

enum pici_status pici_apply_range(void *dst, uint64_t first, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options)
{
    return range(dst, first, count, block, size, options, OP_XOR);
}

enum pici_status pici_inspect(struct pici_info *info, const void *block, size_t size)
{
    struct pici_block parsed;
    if (!info || sized_of(info) < sizeof *info || !block)
        return PICI_E_ARG;
    enum pici_status status = pici_block_parse(&parsed, block, size, NULL);
    if (status)
        return status;
    if (parsed.layout.block_bytes > SIZE_MAX)
        return PICI_E_UNSUPPORTED;
    const struct pici_info found = {.size = sizeof found,
                                    .format = (enum pici_format)parsed.format,
                                    .dtype = (enum pici_dtype)parsed.dtype,
                                    .count = parsed.count,
                                    .nnz = parsed.nonzeros,
                                    .block_bytes = (size_t)parsed.layout.block_bytes};
    return sized_write(info, &found, sizeof found, sizeof found);
}
