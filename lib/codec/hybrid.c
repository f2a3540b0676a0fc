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

const uint8_t *pici_tile_sign_descriptor(const struct pici_group *r, unsigned i)
{
    const uint32_t bits = load_le32(r->record);
    const uint8_t *at = r->record + 4;
    for (unsigned left = (unsigned)__builtin_popcount(bits), k = 0; k < left; k++)
        at += r->record[4 + k] & DESCRIPTOR_TWO ? 2 : 1;
    return at + (size_t)SIGN_DESCRIPTOR * (unsigned)__builtin_popcount(r->signs & ((UINT32_C(1) << i) - 1));
}

static uint64_t offset_of(const struct pici_block *b, const uint8_t *p)
{
    return (uint64_t)(p - b->bytes);
}

/* Set n and container of a tile of len elements from the two bytes of its descriptor; 0 if it is not valid. *run:
 * the container is right only if the tile has a run of 256 nonzeros. *signs: the tile keeps signs. */
static int read_descriptor(struct pici_tile *t, int *run, int *signs, unsigned first, unsigned second, unsigned len,
                           unsigned width_log2)
{
    const int two = (first & DESCRIPTOR_TWO) != 0;
    const unsigned container = two ? first >> 4 & 3 : TILE_OFFSETS12;
    unsigned n = !two ? first : container ? (first & 15) * 256 + second + 1 : second;
    *signs = two && first & DESCRIPTOR_SIGNS;
    if ((two && !container && first != (DESCRIPTOR_TWO | DESCRIPTOR_SIGNS)) || (!n && !*signs) || n > len)
        return 0;
    *run = container != (*signs ? fmt_container_signs(n, 0) : fmt_container(n, len, width_log2, 0));
    if (*run && container != (*signs ? fmt_container_signs(n, 1) : fmt_container(n, len, width_log2, 1)))
        return 0;
    t->n = (uint16_t)n;
    t->container = (uint8_t)(n ? container : TILE_EMPTY);
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
    r->runs = r->signs = 0;
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

    /* by address: a payload may be beyond the end, and is not read before the record's length has been checked */
    const int version2 = b->at.version == FMT_VERSION_SIGNS;
    const uint8_t *first = record + 4, *second = first + __builtin_popcount(bits), *sign = second;
    size_t descriptors = 4 + (size_t)(second - first);
    for (size_t i = 0, some = (size_t)(second - first); i < some && 4 + some <= bytes; i++) {
        sign += first[i] >> 7;
        descriptors += first[i] >> 7;
        if (version2 && first[i] >> 6 == 3)
            descriptors += SIGN_DESCRIPTOR;
    }
    if (bytes && descriptors > bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "record-length");
    size_t metadata = bytes ? descriptors : 0, stored = 0, signs = 0;
    for (unsigned i = 0; i < r->tiles; i++, bits >>= 1) {
        struct pici_tile *t = &r->tile[i];
        const unsigned len = pici_tile_elements(b, r->first + i);
        int run, keeps;
        *t = (struct pici_tile){.payload = b->bytes, .container = TILE_EMPTY};
        if (!(bits & 1))
            continue;
        if (!read_descriptor(t, &run, &keeps, *first, *first & DESCRIPTOR_TWO ? *second : 0, len, w) ||
            (keeps && !version2))
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, first), r->first + i, "descriptor");
        second += *first++ >> 7;
        r->runs |= (uint32_t)run << i;
        r->nnz += t->n;
        t->payload = (const uint8_t *)((uintptr_t)record + metadata);
        metadata += fmt_payload(t->container, t->n);
        stored += (size_t)fmt_stored(t->container, t->n, len) << w;
        if (keeps) {
            r->signs |= UINT32_C(1) << i;
            if (!pici_signs_read_descriptor(&r->sign[i], sign, len - t->n))
                return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, sign), r->first + i, "signs");
            sign += SIGN_DESCRIPTOR;
            signs += pici_signs_bytes(&r->sign[i]);
        }
    }
    const uint8_t *at = (const uint8_t *)((uintptr_t)record + metadata);
    metadata += signs;
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
        if (r->signs >> i & 1) {
            r->sign[i].bytes = at;
            at += pici_signs_bytes(&r->sign[i]);
        }
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

int pici_tile_decode(uint8_t *out, const struct pici_tile *t, unsigned len, unsigned width_log2)
{
    const unsigned w = width_log2, payload = fmt_payload(t->container, t->n);
    const size_t stored = (size_t)fmt_stored(t->container, t->n, len) << w;
    const size_t zeros = t->container == TILE_RAW ? (size_t)(TILE - len) << w : PICI_SLACK;
    uint8_t values[TILE * 8 + PICI_SLACK], where[TILE_BITS_BYTES + PICI_SLACK];
    if (!t->n) {
        memset(out, 0, (size_t)TILE << w);
        return 1;
    }
    /* bounce buffers, because a kernel reads too much */
    memcpy(where, t->payload, payload);
    memset(where + payload, 0, PICI_SLACK);
    memcpy(values, t->values, stored);
    memset(values + stored, 0, zeros);
    const struct pici_tile copy = {where, values, t->n, t->container};
    struct pici_unpack_tiles one = {.dst = out, .tile = &copy, .tiles = 1};
    const struct pici_move *move = pici_isa()->move[w];
    /* stored values are nonzero, so any that lie past the end are counted here */
    return move->unpack_tiles(&one) == 1 && (len == TILE || !move->count(out + ((size_t)len << w), TILE - len));
}

static int words_have_run(const uint64_t word[TILE_COLS])
{
    for (int i = 0; i < TILE_COLS; i += RUN / 64)
        if ((word[i] & word[i + 1] & word[i + 2] & word[i + 3]) == UINT64_MAX)
            return 1;
    return 0;
}

/* What a tile costs whose negative zeros are nonzero elements: word has their bits too. */
static unsigned cost_without(const uint64_t word[TILE_COLS], unsigned n, unsigned len, unsigned width_log2)
{
    const unsigned container = fmt_container(n, len, width_log2, n >= RUN && words_have_run(word));
    return fmt_cost(container, n, len, width_log2);
}

/* Does a tile cost less if it keeps signs? tile: its TILE elements, of which len exist. word: in, bits of the nonzeros,
 * negative zeros among them; out, without these. Sets t's n and container, s and the list, if it does. */
static int pays(struct pici_signs *s, uint64_t list[TILE_COLS], struct pici_tile *t, uint64_t word[TILE_COLS],
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
    const unsigned container = fmt_container_signs(now.n, now.n >= RUN && words_have_run(by_value[0]));
    const unsigned cost = fmt_cost_signs(container, now.n, (unsigned)pici_signs_bytes(s), width_log2);
    if (cost >= cost_without(word, t->n, len, width_log2))
        return 0;
    memcpy(word, by_value[0], sizeof by_value[0]);
    t->n = now.n;
    t->container = (uint8_t)(now.n ? container : TILE_EMPTY);
    return 1;
}

int pici_tile_has_signs(const struct pici_group *r, unsigned i, unsigned len, unsigned width_log2)
{
    const struct pici_tile *t = &r->tile[i];
    return r->signs >> i & 1 ||
           pici_isa()->move[width_log2]->any_negative(t->values, fmt_stored(t->container, t->n, len), 1);
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
        return !pays(&would, other, &now, word[0], tile, len, width_log2);
    }
    if (move->any_negative(tile, TILE, 0) || !pici_signs_read(other, s, word[0], len))
        return 0;
    if (set)
        move->negate(tile, (const uint64_t *)other);
    for (unsigned k = 0; k < TILE_COLS; k++)
        other[k] |= word[0][k];
    const unsigned container = t->n ? t->container : TILE_OFFSETS12;
    const unsigned cost = fmt_cost_signs(container, t->n, (unsigned)pici_signs_bytes(s), width_log2);
    return cost < cost_without(other, t->n + pici_signs_negative(s), len, width_log2);
}

enum pici_status pici_mix(struct pici_mix *mix, const void *block, size_t len)
{
    struct pici_block b;
    enum { FIRST = SIZED_THROUGH(struct pici_mix, other_bytes) };
    if (!mix || sized_of(mix) < FIRST || !block)
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
            const unsigned c = signs && !t->n ? (unsigned)TILE_OFFSETS12 : t->container;
            m.tiles[c]++;
            if (c == TILE_EMPTY)
                continue;
            uint64_t positions = 1 + (signs || c != TILE_OFFSETS12) + fmt_payload(c, t->n);
            if (signs) {
                const uint64_t bytes = SIGN_DESCRIPTOR + pici_signs_bytes(&r.sign[i]);
                m.sign_tiles++;
                m.sign_bytes += bytes;
                m.negative_zeros += pici_signs_negative(&r.sign[i]);
                positions += bytes;
            }
            const uint64_t values = (uint64_t)fmt_stored(c, t->n, pici_tile_elements(&b, r.first + i))
                                    << b.at.width_log2;
            m.nnz[c] += t->n;
            m.position_bytes[c] += positions;
            m.value_bytes[c] += values;
            m.other_bytes -= positions + values;
        }
    }
    return sized_write(mix, &m, sizeof m, FIRST);
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
    if (!pays(s, p->list[i], t, p->word[i], tile, len, width_log2))
        return;
    p->signs |= UINT32_C(1) << i;
    p->nnz -= before.n - t->n;
    p->kept += pici_signs_negative(s);
    p->metadata += fmt_cost_signs(t->container, t->n, (unsigned)pici_signs_bytes(s), width_log2);
    p->metadata -= fmt_cost(before.container, before.n, len, width_log2);
    /* the costs count values too */
    const size_t were = (size_t)fmt_stored(before.container, before.n, len) << width_log2;
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
        layout_tile(p, t, len, w, p->tile[t].n >= RUN && words_have_run(p->word[t]));
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
        const unsigned container = t->n ? t->container : TILE_OFFSETS12;
        const unsigned descriptor =
            p->signs >> i & 1 ? fmt_descriptor_signs(container, t->n) : fmt_descriptor(container, t->n);
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
    for (uint32_t signs = p->signs; signs; signs &= signs - 1) {
        const unsigned i = (unsigned)__builtin_ctz(signs);
        run.payload = pici_signs_write(run.payload, &p->sign[i], p->list[i]);
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
        if (s->signs && s->move->any_negative(run.values - ((size_t)n << w), n, 1))
            return 0;
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
    p->kept = p->signs = 0;
    p->metadata = 4 + GROUP_TILES * (2 + (size_t)fmt_payload(container, TILE));
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
    return sparse == p->tiles && p->values <= scratch_values(s)                        ? PREDICT_SPARSE
           : alike == GROUP_TILES && (container == TILE_BITS || container == TILE_RAW) ? PREDICT_ALIKE
                                                                                       : PREDICT_ANY;
}
