/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_decompress, pici_decompress_range, pici_scatter_add, pici_apply and pici_inspect. */
#include <stdatomic.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/hybrid.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "sized.h"

/* What is done with the stored elements: decode them to dst, or add them to dst, or XOR them into dst. */
enum op { OP_DECODE, OP_ADD, OP_XOR };

/* One call; its arguments and the block's header have been checked. */
struct job {
    const struct pici_block *b;
    const struct pici_move *move;
    const struct pici_add *add; /* adds or XORs; null: decode */
    enum op op;
    int stream;
};

/* ---- pici ---- */

/* Decode or add tile t, with room for a whole tile at dst, from a bounce buffer of its values, and check all of its
 * rules. For a tile that is partial, or too near to the end of the block for a kernel, or that a kernel rejected.
 * *at: in, out: values before the tile. */
static int unpack_tile_bounced(const struct job *j, uint8_t *dst, uint64_t t, uint64_t *at)
{
    const struct pici_block *b = j->b;
    const uint8_t *bits = b->bits + t * TILE_BITS_BYTES;
    uint64_t left = b->count - t * TILE, nnz = 0;
    for (unsigned c = 0; c < TILE_COLS; c++) {
        uint64_t word = load_le64(bits + 8 * c);
        if (fmt_past_end(word, c, left))
            return 0;
        nnz += (uint64_t)__builtin_popcountll(word);
    }
    if (load_index(b->index, b->at.index_width, t) != *at || nnz > b->nnz - *at)
        return 0;

    static const uint8_t first[4];
    uint8_t values[TILE * 8 + PICI_SLACK];
    memcpy(values, b->values + (*at << b->at.width_log2), (size_t)(nnz << b->at.width_log2));
    memset(values + (nnz << b->at.width_log2), 0, PICI_SLACK);
    struct pici_unpack run = {
        .dst = dst, .bits = bits, .index = first, .index_width = 4, .values = values, .limit = nnz, .tiles = 1};
    *at += nnz;
    return (j->add ? j->add->unpack(&run) : j->move->unpack(&run)) == 1 && !run.zero;
}

/* Elements [first, first + n), which are part of one tile. */
static int unpack_part(const struct job *j, uint8_t *dst, uint64_t first, size_t n, uint64_t *at)
{
    uint8_t tile[TILE * 8];
    const struct job decode = {.b = j->b, .move = j->move};
    const unsigned w = j->b->at.width_log2;
    if (!unpack_tile_bounced(&decode, tile, first / TILE, at))
        return 0;
    const uint8_t *src = tile + (first % TILE << w);
    if (!j->add)
        memcpy(dst, src, n << w);
    else
        j->add->dense(dst, src, n);
    return 1;
}

/* Elements [first, first + n) of a bitmap block. */
static int unpack_pici(const struct job *j, uint8_t *dst, uint64_t first, size_t n)
{
    const struct pici_block *b = j->b;
    const unsigned iw = b->at.index_width, w = b->at.width_log2;
    const uint64_t slack = PICI_SLACK >> w;
    uint64_t at = n ? load_index(b->index, iw, first / TILE) : 0;
    if (at > b->nnz || (first < TILE && at))
        return 0;
    while (n) {
        uint64_t t = first / TILE;
        size_t off = (size_t)(first % TILE), done;
        if (off || n < TILE) {
            done = n < TILE - off ? n : TILE - off;
            if (!unpack_part(j, dst, first, done, &at))
                return 0;
        } else {
            struct pici_unpack run = {.dst = dst,
                                      .bits = b->bits + t * TILE_BITS_BYTES,
                                      .index = b->index + t * iw,
                                      .index_width = iw,
                                      .stream = j->stream,
                                      .values = b->values,
                                      .at = at,
                                      .limit = b->nnz < slack ? 0 : b->nnz - slack,
                                      .tiles = n / TILE};
            size_t tiles = j->add ? j->add->unpack(&run) : j->move->unpack(&run);
            at = run.at;
            if (run.zero)
                return 0;
            if (tiles == 0) {
                if (!unpack_tile_bounced(j, dst, t, &at))
                    return 0;
                tiles = 1;
            }
            done = tiles * TILE;
        }
        first += done;
        dst += done << w;
        n -= done;
    }
    /* the next entry, or nnz, confirms the last tile's count */
    uint64_t next = fmt_tiles(first);
    return at == (next < b->at.tiles ? load_index(b->index, iw, next) : b->nnz);
}

/* ---- coo ---- */

/* The first entry whose position is at least p, if positions rise; if they do not, any entry. */
static uint64_t lower_bound(const struct pici_block *b, uint64_t p)
{
    uint64_t lo = 0, n = b->nnz;
    while (n) {
        uint64_t half = n / 2;
        if (load_index(b->index, b->at.index_width, lo + half) < p) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo;
}

static int unpack_coo(const struct job *j, uint8_t *dst, uint64_t first, size_t n)
{
    const struct pici_block *b = j->b;
    struct pici_scatter run = {.dst = dst,
                               .first = first,
                               .n = n,
                               .index = b->index,
                               .values = b->values,
                               .index_width = b->at.index_width,
                               .i = first ? lower_bound(b, first) : 0,
                               .end = first + n < b->count ? lower_bound(b, first + n) : b->nnz};
    if (j->add)
        j->add->unpack_coo(&run);
    else
        j->move->unpack_coo(&run);
    return run.i == run.end && !run.zero;
}

/* ---- hybrid ---- */

/* Elements [off, off + n) of tile i of a group, which has len elements, by way of a bounce buffer. For a tile that is
 * too near to the end of the block for a kernel, or partial, or needed only in part, or that keeps signs. signs: check
 * and set these. */
__attribute__((noinline)) static int unpack_stored_tile(const struct job *j, uint8_t *dst, const struct pici_group *r,
                                                        unsigned i, unsigned len, unsigned off, size_t n, int signs)
{
    const unsigned w = j->b->at.width_log2;
    uint8_t tile[TILE * 8];
    const uint8_t *const src = tile + ((size_t)off << w);
    if (!r->tile[i].n && !signs) {
        if (!j->add)
            memset(dst, 0, n << w);
        return 1;
    }
    if (!pici_tile_decode(tile, &r->tile[i], len, w) ||
        (signs && !pici_tile_signs(tile, r, i, len, w, j->op != OP_ADD)))
        return 0;
    if (j->add)
        j->add->dense(dst, src, n);
    else if (j->stream && j->move->copy)
        j->move->copy(dst, src, n << w);
    else
        memcpy(dst, src, n << w);
    return 1;
}

/* What hybrid's rules for the whole block need to know of the groups that were read. */
struct groups_read {
    uint64_t nnz;
    uint32_t signs; /* a tile keeps signs */
};

/* Do the groups of a block, all of them, break a rule together? */
static int groups_wrong(const struct pici_block *b, const struct groups_read *all)
{
    return b->format == FMT_HYBRID && (all->nnz != b->nnz || (b->at.version == FMT_VERSION_SIGNS && !all->signs));
}

/* Elements [first, first + n) of a hybrid block. *seen: out: of the groups they are in. */
static int unpack_hybrid(const struct job *j, uint8_t *dst, uint64_t first, size_t n, struct groups_read *seen)
{
    const struct pici_block *b = j->b;
    const unsigned w = b->at.width_log2;
    const uint8_t *const end = b->bytes + b->at.block_bytes;
    const int version2 = b->at.version == FMT_VERSION_SIGNS;
    struct pici_group r;
    for (*seen = (struct groups_read){0, 0}; n;) {
        if (pici_group_read(&r, b, first / TILE / GROUP_TILES, NULL))
            return 0;
        seen->nnz += r.nnz;
        seen->signs |= r.signs;
        for (unsigned i = (unsigned)(first / TILE % GROUP_TILES); i < r.tiles && n;) {
            const unsigned len = pici_tile_elements(b, r.first + i), off = (unsigned)(first % TILE);
            unsigned tiles = 0;
            /* whole tiles that are followed by as many bytes as a kernel may read too many */
            while (!off && i + tiles < r.tiles && n / TILE > tiles) {
                const struct pici_tile *t = &r.tile[i + tiles];
                if (t->n && ((size_t)(end - t->values) <
                                 ((size_t)container_stored(t->container, t->n, TILE) << w) + PICI_SLACK ||
                             (size_t)(end - t->payload) < container_payload(t->container, t->n) + PICI_SLACK ||
                             (r.runs >> (i + tiles) & 1 && !pici_tile_has_run(t, TILE, w))))
                    break;
                if (version2 && pici_tile_has_signs(&r, i + tiles, TILE, w))
                    break;
                tiles++;
            }
            size_t done = (size_t)tiles * TILE;
            if (tiles) {
                const struct pici_unpack_tiles run = {
                    .dst = dst, .tile = r.tile + i, .tiles = tiles, .stream = j->stream};
                if ((j->add ? j->add->unpack_tiles(&run) : j->move->unpack_tiles(&run)) != tiles)
                    return 0;
                i += tiles;
            } else {
                done = n < len - off ? n : len - off;
                if ((r.runs >> i & 1 && !pici_tile_has_run(&r.tile[i], len, w)) ||
                    !unpack_stored_tile(j, dst, &r, i, len, off, done, version2 && pici_tile_has_signs(&r, i, len, w)))
                    return 0;
                i++;
            }
            first += done;
            dst += done << w;
            n -= done;
        }
    }
    return 1;
}

/* ---- dense, and all ---- */

__attribute__((noinline)) static int unpack_dense(const struct job *j, uint8_t *dst, uint64_t first, size_t n)
{
    const uint8_t *src = j->b->values + (first << j->b->at.width_log2);
    const unsigned w = j->b->at.width_log2;
    if (!j->add) {
        pici_copy_stored(dst, src, n, w);
    } else if (!PICI_BIG_ENDIAN) {
        j->add->dense(dst, src, n);
    } else {
        uint8_t tile[TILE * 8];
        for (size_t i = 0, now; i < n; i += now) {
            now = n - i < TILE ? n - i : TILE;
            pici_copy_stored(tile, src + (i << w), now, w);
            j->add->dense(dst + (i << w), tile, now);
        }
    }
    return 1;
}

/* *seen: out, for hybrid only. */
static int unpack(const struct job *j, uint8_t *dst, uint64_t first, size_t n, struct groups_read *seen)
{
    return j->b->format == FMT_PICI     ? unpack_pici(j, dst, first, n)
           : j->b->format == FMT_COO    ? unpack_coo(j, dst, first, n)
           : j->b->format == FMT_HYBRID ? unpack_hybrid(j, dst, first, n, seen)
                                        : unpack_dense(j, dst, first, n);
}

/* The whole block in parts, one a thread, of whole tiles or, in hybrid, of whole groups. */
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
    struct parts *p = context;
    const struct job *j = p->job;
    const uint64_t tiles = fmt_tiles(j->b->count), piece = j->b->format == FMT_HYBRID ? GROUP_TILES * TILE : TILE;
    const uint64_t pieces = piece == TILE ? tiles : fmt_groups(tiles);
    const uint64_t each = pieces / (unsigned)p->threads, rest = pieces % (unsigned)p->threads;
    uint64_t begin = each * (unsigned)i + ((unsigned)i < rest ? (unsigned)i : rest);
    uint64_t end = begin + each + ((unsigned)i < rest);
    uint64_t first = begin * piece, last = end * piece < j->b->count ? end * piece : j->b->count;
    if (!unpack(j, p->dst + (first << j->b->at.width_log2), first, (size_t)(last - first), &p->seen[i]))
        atomic_store(&p->wrong, 1);
}

/* Parse the header of a block of which all bytes are present. */
static enum pici_status parse(struct pici_block *b, const void *block, size_t len)
{
    enum pici_status s = pici_block_parse(b, block, len, NULL);
    return s ? s : pici_block_whole(b, len, NULL);
}

static enum pici_status check_output(const struct pici_block *b, const void *dst, uint64_t n, size_t len)
{
    unsigned w = b->at.width_log2;
    if ((!dst && n) || n > SIZE_MAX >> w || pici_overlap(dst, n << w, b->bytes, len))
        return PICI_E_ARG;
    return PICI_OK;
}

static const struct pici_add *kernels(const struct pici_block *b, enum op op)
{
    return op == OP_ADD ? pici_isa()->add[b->dtype] : op == OP_XOR ? pici_isa()->xors[b->at.width_log2] : NULL;
}

/* Decode or add a block whose header was checked to dst [b->count elements]. output: elements of the array that dst
 * is all or a part of. */
static enum pici_status whole(void *dst, const struct pici_block *b, int threads, enum op op, uint64_t output)
{
    enum pici_status s = pici_block_checksum(b, NULL);
    if (s || (s = pici_block_padding(b, NULL)) != PICI_OK)
        return s;
    struct job j = {.b = b,
                    .move = pici_isa()->move[b->at.width_log2],
                    .add = kernels(b, op),
                    .op = op,
                    .stream = output >= (uint64_t)PICI_STREAM_BYTES >> b->at.width_log2};
    struct parts p;
    p.job = &j;
    p.dst = dst;
    p.threads = pici_thread_count(threads, fmt_tiles(b->count) / PICI_PIECE_TILES);
    atomic_init(&p.wrong, 0);
    struct groups_read all = {0, 0};
    if (b->count == 0)
        return groups_wrong(b, &all) ? PICI_E_CORRUPT : PICI_OK;
    if (p.threads > 1)
        pici_parallel(p.threads, 256 << 10, unpack_thread, &p);
    else
        unpack_thread(&p, 0);
    if (atomic_load(&p.wrong))
        return PICI_E_CORRUPT;
    for (int i = 0; b->format == FMT_HYBRID && i < p.threads; i++) {
        all.nnz += p.seen[i].nnz;
        all.signs |= p.seen[i].signs;
    }
    return groups_wrong(b, &all) ? PICI_E_CORRUPT : PICI_OK;
}

/* The same from untrusted bytes, after checking the caller's arguments. */
static enum pici_status call(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *opts,
                             enum op op)
{
    struct pici_opts o;
    struct pici_block b;
    enum pici_status s = block ? pici_opts_get(&o, opts) : PICI_E_ARG;
    if (s || (s = parse(&b, block, len)) != PICI_OK)
        return s;
    if (n != b.count || check_output(&b, dst, n, len))
        return PICI_E_ARG;
    return whole(dst, &b, o.threads, op, n);
}

enum pici_status pici_block_decode(void *dst, const struct pici_block *b, uint64_t output)
{
    return whole(dst, b, 1, OP_DECODE, output);
}

enum pici_status pici_block_add(void *dst, const struct pici_block *b)
{
    return whole(dst, b, 1, OP_ADD, b->count);
}

enum pici_status pici_decompress(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *opts)
{
    return call(dst, n, block, len, opts, OP_DECODE);
}

enum pici_status pici_scatter_add(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *opts)
{
    return call(dst, n, block, len, opts, OP_ADD);
}

enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *opts)
{
    return call(dst, n, block, len, opts, OP_XOR);
}

static enum pici_status range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                              const struct pici_opts *opts, enum op op)
{
    struct pici_opts o;
    struct pici_block b;
    enum pici_status s = block ? pici_opts_get(&o, opts) : PICI_E_ARG;
    if (s || (s = parse(&b, block, len)) != PICI_OK)
        return s;
    if (first > b.count || n > b.count - first || check_output(&b, dst, n, len))
        return PICI_E_ARG;
    struct job j = {.b = &b,
                    .move = pici_isa()->move[b.at.width_log2],
                    .add = kernels(&b, op),
                    .op = op,
                    .stream = n << b.at.width_log2 >= PICI_STREAM_BYTES};
    struct groups_read seen = {0, 0};
    if (n && !unpack(&j, dst, first, (size_t)n, &seen))
        return PICI_E_CORRUPT;
    return n == b.count && groups_wrong(&b, &seen) ? PICI_E_CORRUPT : PICI_OK;
}

enum pici_status pici_decompress_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                                       const struct pici_opts *opts)
{
    return range(dst, first, n, block, len, opts, OP_DECODE);
}

enum pici_status pici_apply_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                                  const struct pici_opts *opts)
{
    return range(dst, first, n, block, len, opts, OP_XOR);
}

enum pici_status pici_inspect(struct pici_info *info, const void *block, size_t len)
{
    struct pici_block b;
    if (!info || sized_of(info) < sizeof *info || !block)
        return PICI_E_ARG;
    enum pici_status s = pici_block_parse(&b, block, len, NULL);
    if (s)
        return s;
    if (b.at.block_bytes > SIZE_MAX)
        return PICI_E_UNSUPPORTED;
    const struct pici_info found = {.size = sizeof found,
                                    .format = (enum pici_format)b.format,
                                    .dtype = (enum pici_dtype)b.dtype,
                                    .count = b.count,
                                    .nnz = b.nnz,
                                    .block_bytes = (size_t)b.at.block_bytes};
    return sized_write(info, &found, sizeof found, sizeof found);
}
