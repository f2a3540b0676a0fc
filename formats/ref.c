/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 48, TILE = 4096, SIDE = 64, TILE_BYTES = 512, GROUP = 32, RUN = 256 };
enum { OFFSETS12, OFFSETS8, BITVECTOR, RAW }; /* containers */

unsigned ref_width(unsigned dtype)
{
    static const unsigned char widths[15] = {0, 4, 8, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8};
    return dtype < 15 ? widths[dtype] : 0;
}

uint64_t ref_get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

void ref_put(uint8_t *p, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

uint64_t ref_load(const void *array, uint64_t i, unsigned width)
{
    const uint8_t *p = (const uint8_t *)array + (size_t)i * width;
    uint16_t v2;
    uint32_t v4;
    uint64_t v8;
    switch (width) {
    case 1: return *p;
    case 2: memcpy(&v2, p, 2); return v2;
    case 4: memcpy(&v4, p, 4); return v4;
    default: memcpy(&v8, p, 8); return v8;
    }
}

void ref_store(void *array, uint64_t i, unsigned width, uint64_t bits)
{
    uint8_t *p = (uint8_t *)array + (size_t)i * width;
    uint16_t v2 = (uint16_t)bits;
    uint32_t v4 = (uint32_t)bits;
    switch (width) {
    case 1: *p = (uint8_t)bits; break;
    case 2: memcpy(p, &v2, 2); break;
    case 4: memcpy(p, &v4, 4); break;
    default: memcpy(p, &bits, 8); break;
    }
}

/* ---- XXH64 ---- */

#define XXH_P1 UINT64_C(0x9e3779b185ebca87)
#define XXH_P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define XXH_P3 UINT64_C(0x165667b19e3779f9)
#define XXH_P4 UINT64_C(0x85ebca77c2b2ae63)
#define XXH_P5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static uint64_t xxh_round(uint64_t acc, uint64_t lane)
{
    return rotate(acc + lane * XXH_P2, 31) * XXH_P1;
}

uint64_t ref_xxh64(const uint8_t *p, size_t len)
{
    size_t left = len;
    uint64_t h = XXH_P5;
    if (len >= 32) {
        uint64_t acc[4] = {XXH_P1 + XXH_P2, XXH_P2, 0, 0 - XXH_P1};
        for (; left >= 32; left -= 32, p += 32)
            for (unsigned i = 0; i < 4; i++)
                acc[i] = xxh_round(acc[i], ref_get(p + 8 * i, 8));
        h = rotate(acc[0], 1) + rotate(acc[1], 7) + rotate(acc[2], 12) + rotate(acc[3], 18);
        for (unsigned i = 0; i < 4; i++)
            h = (h ^ xxh_round(0, acc[i])) * XXH_P1 + XXH_P4;
    }
    h += len;
    for (; left >= 8; left -= 8, p += 8)
        h = rotate(h ^ xxh_round(0, ref_get(p, 8)), 27) * XXH_P1 + XXH_P4;
    for (; left >= 4; left -= 4, p += 4)
        h = rotate(h ^ ref_get(p, 4) * XXH_P1, 23) * XXH_P2 + XXH_P3;
    for (; left; left--, p++)
        h = rotate(h ^ *p * XXH_P5, 11) * XXH_P1;
    h = (h ^ h >> 33) * XXH_P2;
    h = (h ^ h >> 29) * XXH_P3;
    return h ^ h >> 32;
}

/* The hash needs the block in one piece with its checksum field zero, so it works on a copy. */
static enum ref_status hash_block(uint64_t *hash, const uint8_t *block, size_t len)
{
    uint8_t *copy = malloc(len);
    if (!copy)
        return REF_E_NOMEM;
    memcpy(copy, block, len);
    memset(copy + 40, 0, 8);
    *hash = ref_xxh64(copy, len);
    free(copy);
    return REF_OK;
}

void ref_seal(uint8_t *block, size_t len)
{
    block[7] |= 2;
    ref_put(block + 40, 8, 0);
    ref_put(block + 40, 8, ref_xxh64(block, len));
}

/* ---- verify ---- */

static enum ref_status breach(struct ref_fault *fault, enum ref_status status, const char *rule, uint64_t offset,
                              uint64_t tile)
{
    if (fault)
        *fault = (struct ref_fault){status, offset, tile, rule};
    return status;
}

static enum ref_status bad_header(struct ref_fault *fault, const char *rule, uint64_t offset)
{
    return breach(fault, REF_E_CORRUPT, rule, offset, REF_NO_TILE);
}

/* The layout of hybrid: the fields that follow from the header's count and nnz, and those that follow from its
 * values_offset. */
static int lay_out_hybrid(struct ref_header *h, uint64_t values_offset)
{
    h->groups = h->tiles / GROUP + (h->tiles % GROUP > 0);
    h->unit = h->width <= 2 ? 4 : 2 * h->width;
    h->index_offset = HEADER;
    h->records = (HEADER + h->groups * h->index_width + 15) / 16 * 16;
    h->values_offset = values_offset;
    if (values_offset < h->records || values_offset > h->records + 514 * h->tiles + h->groups * (3 + h->unit) ||
        (h->nnz == 0 && values_offset > h->records) || h->nnz > (UINT64_MAX - values_offset) / h->width)
        return 0;
    h->block_bytes = values_offset + h->nnz * h->width;
    return (h->block_bytes - h->records) % h->unit == 0;
}

/* Set the fields of h that follow from the others. Returns 0 if a length exceeds 64 bits; index_offset is set even
 * then. */
static int lay_out(struct ref_header *h)
{
    uint64_t entries = h->format == REF_PICI ? h->tiles : h->format == REF_COO ? h->nnz : 0;
    h->index_offset = HEADER + TILE_BYTES * h->tiles; /* tiles <= 2^52 */
    if (entries > (UINT64_MAX - 15 - h->index_offset) / h->index_width)
        return 0;
    h->values_offset = (h->index_offset + entries * h->index_width + 15) / 16 * 16;
    if (h->nnz > (UINT64_MAX - h->values_offset) / h->width)
        return 0;
    h->block_bytes = h->values_offset + h->nnz * h->width;
    return 1;
}

enum ref_status ref_header(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault)
{
    breach(fault, REF_OK, NULL, 0, 0);
    if (len < HEADER)
        return bad_header(fault, "size", len);
    if (memcmp(block, "\x50\x49\x43\x49", 4) != 0)
        return bad_header(fault, "magic", 0);
    if (block[4] != 1)
        return breach(fault, REF_E_VERSION, "version", 4, REF_NO_TILE);
    h->format = block[5];
    if (h->format > REF_HYBRID)
        return breach(fault, REF_E_UNSUPPORTED, "format", 5, REF_NO_TILE);
    h->dtype = block[6];
    h->width = ref_width(h->dtype);
    if (!h->width)
        return bad_header(fault, "dtype", 6);
    h->flags = block[7];
    if (h->flags & ~3u)
        return bad_header(fault, "flags", 7);
    h->count = ref_get(block + 8, 8);
    unsigned wide = h->format != REF_DENSE && h->count > UINT64_C(0x100000000);
    h->index_width = wide ? 8 : 4;
    if ((h->flags & 1) != wide)
        return bad_header(fault, "index-width", 7);
    h->nnz = ref_get(block + 16, 8);
    if (h->nnz > h->count || (h->format == REF_DENSE && h->nnz != h->count))
        return bad_header(fault, "nnz", 16);
    h->tiles = h->format == REF_PICI || h->format == REF_HYBRID ? h->count / TILE + (h->count % TILE > 0) : 0;
    int fits = h->format == REF_HYBRID ? lay_out_hybrid(h, ref_get(block + 32, 8)) : lay_out(h);
    if (ref_get(block + 24, 8) != h->index_offset)
        return bad_header(fault, "offsets", 24);
    if (!fits || ref_get(block + 32, 8) != h->values_offset)
        return bad_header(fault, "offsets", 32);
    h->checksum = ref_get(block + 40, 8);
    if (!(h->flags & 2) && h->checksum)
        return bad_header(fault, "checksum-flag", 40);
    return REF_OK;
}

static enum ref_status verify_padding(const struct ref_header *h, const uint8_t *block, uint64_t index_entries,
                                      struct ref_fault *fault)
{
    for (uint64_t i = h->index_offset + index_entries * h->index_width; i < h->values_offset; i++)
        if (block[i])
            return breach(fault, REF_E_CORRUPT, "padding", i, REF_NO_TILE);
    return REF_OK;
}

/* Stored value k of a block that is not hybrid. */
static uint64_t stored_value(const struct ref_header *h, const uint8_t *block, uint64_t k)
{
    return ref_get(block + h->values_offset + k * h->width, h->width);
}

/* Word c of tile t: a column, whose bit r is row r. */
static uint64_t bits_of_column(const uint8_t *block, uint64_t tile, unsigned col)
{
    return ref_get(block + HEADER + tile * TILE_BYTES + col * 8, 8);
}

static enum ref_status verify_pici(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    enum ref_status s = verify_padding(h, block, h->tiles, fault);
    uint64_t total = 0;
    for (uint64_t t = 0; t < h->tiles && s == REF_OK; t++) {
        uint64_t before = total;
        for (unsigned c = 0; c < SIDE; c++) {
            uint64_t word = bits_of_column(block, t, c);
            for (unsigned r = 0; r < SIDE; r++) {
                if (!(word >> r & 1))
                    continue;
                if (t * TILE + r * SIDE + c >= h->count)
                    return breach(fault, REF_E_CORRUPT, "past-end", HEADER + t * TILE_BYTES + c * 8, t);
                total++;
            }
        }
        uint64_t entry = h->index_offset + t * h->index_width;
        if (ref_get(block + entry, h->index_width) != before)
            return breach(fault, REF_E_CORRUPT, "tile-index", entry, t);
        if (total > h->nnz)
            return breach(fault, REF_E_CORRUPT, "tile-index", 16, t);
        for (uint64_t k = before; k < total; k++)
            if (!stored_value(h, block, k))
                return breach(fault, REF_E_CORRUPT, "stored-zero", h->values_offset + k * h->width, t);
    }
    if (s == REF_OK && total != h->nnz)
        return breach(fault, REF_E_CORRUPT, "tile-index", 16, REF_NO_TILE);
    return s;
}

static uint64_t position(const struct ref_header *h, const uint8_t *block, uint64_t k)
{
    return ref_get(block + h->index_offset + k * h->index_width, h->index_width);
}

static enum ref_status verify_coo(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    enum ref_status s = verify_padding(h, block, h->nnz, fault);
    for (uint64_t k = 0; k < h->nnz && s == REF_OK; k++) {
        uint64_t at = position(h, block, k), entry = h->index_offset + k * h->index_width;
        if (k > 0 && at <= position(h, block, k - 1))
            s = breach(fault, REF_E_CORRUPT, "rising", entry, at / TILE);
        else if (at >= h->count)
            s = breach(fault, REF_E_CORRUPT, "past-end", entry, REF_NO_TILE);
        else if (!stored_value(h, block, k))
            s = breach(fault, REF_E_CORRUPT, "stored-zero", h->values_offset + k * h->width, at / TILE);
    }
    return s;
}

/* ---- hybrid: a group at a time ---- */

struct tile {
    unsigned n, container;          /* n = 0: empty */
    uint64_t descriptor;            /* where its first byte is */
    uint64_t payload, values;       /* where they are */
    uint64_t payload_bytes, stored; /* stored: how many values */
};

struct group {
    uint64_t first; /* tile */
    unsigned tiles;
    uint64_t at, end; /* of the record */
    struct tile tile[GROUP];
};

static uint64_t tile_elements(const struct ref_header *h, uint64_t t)
{
    return h->count - t * TILE < TILE ? h->count - t * TILE : TILE;
}

static uint64_t payload_bytes(unsigned container, unsigned n)
{
    return container == OFFSETS12 ? (3 * n + 1) / 2 : container == OFFSETS8 ? 16 + n : container == BITVECTOR ? 512 : 0;
}

/* The container of a tile of len elements, n of them nonzero. full: it has a run of 256 nonzeros. */
static unsigned cheapest(const struct ref_header *h, unsigned n, uint64_t len, int full)
{
    unsigned best = RAW;
    uint64_t least = (len - n) * h->width;
    for (unsigned c = BITVECTOR + 1; c-- > 0;) {
        if ((c == OFFSETS12 && n > 31) || (c == OFFSETS8 && (n < 32 || full)))
            continue;
        if (payload_bytes(c, n) <= least) {
            least = payload_bytes(c, n);
            best = c;
        }
    }
    return best;
}

/* Read the descriptors of group g and compute its layout. Checks the rules up to the padding of its record. */
static enum ref_status read_group(struct group *r, const struct ref_header *h, const uint8_t *block, uint64_t g,
                                  struct ref_fault *fault)
{
    const uint64_t entry = HEADER + g * h->index_width, units = (h->block_bytes - h->records) / h->unit;
    uint64_t begin = ref_get(block + entry, h->index_width), end = units;
    *r = (struct group){.first = g * GROUP};
    r->tiles = h->tiles - r->first < GROUP ? (unsigned)(h->tiles - r->first) : GROUP;
    if (g == 0 && begin != 0)
        return breach(fault, REF_E_CORRUPT, "directory", entry, 0);
    if (g + 1 < h->groups) {
        end = ref_get(block + entry + h->index_width, h->index_width);
        if (end < begin || end > units)
            return breach(fault, REF_E_CORRUPT, "directory", entry + h->index_width, r->first + GROUP);
    }
    r->at = h->records + begin * h->unit;
    r->end = h->records + end * h->unit;
    if (r->at == r->end)
        return REF_OK;
    const uint64_t bits = ref_get(block + r->at, 4);
    unsigned some = 0, two = 0;
    if (bits == 0 || bits >> r->tiles != 0)
        return breach(fault, REF_E_CORRUPT, "occupancy", r->at, r->first);
    for (unsigned i = 0; i < r->tiles; i++)
        some += bits >> i & 1;
    if (r->at + 4 + some > r->end)
        return breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    for (unsigned i = 0; i < some; i++)
        two += block[r->at + 4 + i] >> 7;
    uint64_t at = r->at + 4, second = at + some, payload = second + two;
    if (payload > r->end)
        return breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    uint64_t stored = 0;
    for (unsigned i = 0; i < r->tiles; i++) {
        struct tile *t = &r->tile[i];
        const uint64_t len = tile_elements(h, r->first + i);
        if (!(bits >> i & 1))
            continue;
        t->descriptor = at;
        t->n = block[at];
        if (block[at] & 0x80) {
            t->n = (block[at] & 15) * 256 + block[second++] + 1;
            t->container = block[at] >> 4 & 3;
        }
        const int formed = block[at] & 0x80 ? !(block[at] & 0x40) && t->container : t->n >= 1 && t->n <= 31;
        if (!formed || t->n > len ||
            (t->container != cheapest(h, t->n, len, 0) && t->container != cheapest(h, t->n, len, 1)))
            return breach(fault, REF_E_CORRUPT, "descriptor", at, r->first + i);
        at++;
        t->payload = payload;
        payload += t->payload_bytes = payload_bytes(t->container, t->n);
        stored += t->stored = t->container == RAW ? len : t->n;
    }
    if ((payload - r->at + stored * h->width + h->unit - 1) / h->unit * h->unit != r->end - r->at)
        return breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    uint64_t value = (payload + h->width - 1) / h->width * h->width, after = value + stored * h->width;
    for (; payload < r->end; payload++)
        if ((payload < value || payload >= after) && block[payload])
            return breach(fault, REF_E_CORRUPT, "padding", payload, REF_NO_TILE);
    for (unsigned i = 0; i < r->tiles; i++) {
        r->tile[i].values = value;
        value += r->tile[i].stored * h->width;
    }
    return REF_OK;
}

static uint64_t tile_value(const struct ref_header *h, const uint8_t *block, const struct tile *t, uint64_t k)
{
    return ref_get(block + t->values + k * h->width, h->width);
}

/* The offsets of a tile's nonzeros, as the block has them: they may be invalid. Returns how many. place: where each
 * is in the block. */
static unsigned tile_offsets(uint64_t offset[TILE], uint64_t place[TILE], const struct ref_header *h,
                             const uint8_t *block, const struct tile *t)
{
    unsigned n = 0;
    const uint8_t *p = block + t->payload;
    switch (t->container) {
    case OFFSETS12:
        for (; n < t->n; n++) {
            place[n] = t->payload + n / 2 * 3 + n % 2;
            offset[n] = ref_get(block + place[n], 2) >> (n % 2 ? 4 : 0) & 4095;
        }
        return n;
    case OFFSETS8:
        for (unsigned run = 0; run < 16; run++)
            for (unsigned i = 0; i < p[run] && n < t->n; i++, n++) {
                place[n] = t->payload + 16 + n;
                offset[n] = run * RUN + block[place[n]];
            }
        return n;
    case BITVECTOR:
        for (unsigned i = 0; i < TILE; i++)
            if (p[i / 8] >> i % 8 & 1) {
                place[n] = t->payload + i / 64 * 8;
                offset[n++] = i;
            }
        return n;
    default:
        for (unsigned i = 0; i < t->stored; i++)
            if (tile_value(h, block, t, i)) {
                place[n] = t->values + i * h->width;
                offset[n++] = i;
            }
        return n;
    }
}

static int has_full_run(const uint64_t *offset, unsigned n)
{
    for (unsigned i = 0; i + RUN <= n; i++)
        if (offset[i] % RUN == 0 && offset[i + RUN - 1] == offset[i] + RUN - 1)
            return 1;
    return 0;
}

static enum ref_status verify_tile(const struct ref_header *h, const uint8_t *block, const struct tile *t, uint64_t i,
                                   struct ref_fault *fault)
{
    const uint64_t len = tile_elements(h, i);
    uint64_t offset[TILE], place[TILE];
    const int lists = t->container == OFFSETS12 || t->container == OFFSETS8;
    unsigned n = tile_offsets(offset, place, h, block, t);
    if (t->container == OFFSETS8) {
        unsigned sum = 0;
        for (unsigned run = 0; run < 16; run++)
            sum += block[t->payload + run];
        if (sum != t->n)
            return breach(fault, REF_E_CORRUPT, "tile-count", t->descriptor, i);
    }
    for (unsigned k = 0; k < n; k++) {
        if (lists && k > 0 && offset[k] <= offset[k - 1])
            return breach(fault, REF_E_CORRUPT, "rising", place[k], i);
        if (offset[k] >= len)
            return breach(fault, REF_E_CORRUPT, "past-end", place[k], i);
    }
    if (t->container == OFFSETS12 && t->n % 2 && block[t->payload + t->payload_bytes - 1] > 15)
        return breach(fault, REF_E_CORRUPT, "padding", t->payload + t->payload_bytes - 1, i);
    if (n != t->n)
        return breach(fault, REF_E_CORRUPT, "tile-count", t->descriptor, i);
    if (t->container != cheapest(h, n, len, has_full_run(offset, n)))
        return breach(fault, REF_E_CORRUPT, "container", t->descriptor, i);
    for (uint64_t k = 0; t->container != RAW && k < n; k++)
        if (tile_value(h, block, t, k) == 0)
            return breach(fault, REF_E_CORRUPT, "stored-zero", t->values + k * h->width, i);
    return REF_OK;
}

static enum ref_status verify_hybrid(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    uint64_t total = 0;
    for (uint64_t i = HEADER + h->groups * h->index_width; i < h->records; i++)
        if (block[i])
            return breach(fault, REF_E_CORRUPT, "padding", i, REF_NO_TILE);
    for (uint64_t g = 0; g < h->groups; g++) {
        struct group r;
        enum ref_status s = read_group(&r, h, block, g, fault);
        for (unsigned i = 0; i < r.tiles && !s; i++) {
            total += r.tile[i].n;
            if (r.tile[i].n)
                s = verify_tile(h, block, &r.tile[i], r.first + i, fault);
        }
        if (s)
            return s;
    }
    return total == h->nnz ? REF_OK : breach(fault, REF_E_CORRUPT, "total", 16, REF_NO_TILE);
}

/* Write the record of the group that begins with element `first` of src to p; returns its end. */
static uint8_t *encode_group(uint8_t *p, const struct ref_header *h, const void *src, uint64_t g)
{
    uint64_t tiles = h->tiles - g * GROUP < GROUP ? h->tiles - g * GROUP : GROUP, bits = 0;
    unsigned n[GROUP] = {0}, container[GROUP] = {0};
    uint64_t bytes = 4, stored = 0;
    for (uint64_t i = 0; i < tiles; i++) {
        const uint64_t first = (g * GROUP + i) * TILE, len = tile_elements(h, g * GROUP + i);
        uint64_t offset[TILE];
        for (uint64_t k = 0; k < len; k++)
            if (ref_load(src, first + k, h->width))
                offset[n[i]++] = k;
        if (!n[i])
            continue;
        bits |= UINT64_C(1) << i;
        container[i] = cheapest(h, n[i], len, has_full_run(offset, n[i]));
        bytes += (container[i] == OFFSETS12 ? 1 : 2) + payload_bytes(container[i], n[i]);
        stored += container[i] == RAW ? len : n[i];
    }
    if (!bits)
        return p;
    uint8_t *value = p + (bytes + h->width - 1) / h->width * h->width;
    uint8_t *end = p + (bytes + stored * h->width + h->unit - 1) / h->unit * h->unit;
    ref_put(p, 4, bits);
    p += 4;
    for (unsigned i = 0; i < tiles; i++)
        if (n[i])
            *p++ = (uint8_t)(container[i] == OFFSETS12 ? n[i] : 0x80 | container[i] << 4 | (n[i] - 1) / 256);
    for (unsigned i = 0; i < tiles; i++)
        if (n[i] && container[i] != OFFSETS12)
            *p++ = (uint8_t)((n[i] - 1) % 256);
    for (uint64_t i = 0; i < tiles; i++) {
        const uint64_t first = (g * GROUP + i) * TILE, len = tile_elements(h, g * GROUP + i);
        unsigned done = 0;
        for (uint64_t k = 0; k < len && n[i]; k++) {
            uint64_t v = ref_load(src, first + k, h->width);
            if (v || container[i] == RAW) {
                ref_put(value, h->width, v);
                value += h->width;
            }
            if (!v)
                continue;
            if (container[i] == BITVECTOR)
                p[k / 8] |= (uint8_t)(1u << k % 8);
            if (container[i] == OFFSETS8) {
                p[k / RUN]++;
                p[16 + done] = (uint8_t)k;
            }
            if (container[i] == OFFSETS12) {
                p[done / 2 * 3 + done % 2] |= (uint8_t)(k << done % 2 * 4);
                p[done / 2 * 3 + done % 2 + 1] |= (uint8_t)(k >> (done % 2 ? 4 : 8));
            }
            done++;
        }
        if (n[i])
            p += payload_bytes(container[i], n[i]);
    }
    return end;
}

/* ref_verify, which also returns the header in *h. */
static enum ref_status verify(struct ref_header *h, const uint8_t *block, size_t len, struct ref_fault *fault)
{
    enum ref_status s = ref_header(h, block, len, fault);
    if (s)
        return s;
    if (len != h->block_bytes)
        return bad_header(fault, "length", len < h->block_bytes ? len : h->block_bytes);
    if (h->flags & 2) {
        uint64_t hash;
        if ((s = hash_block(&hash, block, len)))
            return breach(fault, s, NULL, 0, 0);
        if (hash != h->checksum)
            return breach(fault, REF_E_CHECKSUM, "checksum", 40, REF_NO_TILE);
    }
    if (h->format == REF_PICI)
        return verify_pici(h, block, fault);
    if (h->format == REF_HYBRID)
        return verify_hybrid(h, block, fault);
    return h->format == REF_COO ? verify_coo(h, block, fault) : REF_OK;
}

enum ref_status ref_verify(const uint8_t *block, size_t len, struct ref_fault *fault)
{
    struct ref_header h;
    return verify(&h, block, len, fault);
}

/* ---- encode ---- */

uint8_t *ref_encode(size_t *len, const void *src, uint64_t n, unsigned dtype, unsigned format, int checksum)
{
    struct ref_header h = {.format = format, .dtype = dtype, .count = n, .width = ref_width(dtype)};
    *len = 0;
    if (!h.width || format > REF_HYBRID)
        return NULL;
    if (format != REF_DENSE && n > UINT64_C(0x100000000))
        h.flags = 1;
    h.index_width = h.flags ? 8 : 4;
    h.tiles = format == REF_PICI || format == REF_HYBRID ? n / TILE + (n % TILE > 0) : 0;
    for (uint64_t i = 0; i < n; i++)
        h.nnz += format == REF_DENSE || ref_load(src, i, h.width) != 0;
    if (format == REF_HYBRID) { /* as long as the longest */
        lay_out_hybrid(&h, 0);
        if (n > (SIZE_MAX - h.records - 2 * h.tiles - h.groups * (3 + h.unit)) / h.width)
            return NULL;
        h.block_bytes = h.records + n * h.width + 2 * h.tiles + h.groups * (3 + h.unit);
    } else if (!lay_out(&h) || h.block_bytes > SIZE_MAX) {
        return NULL;
    }
    uint8_t *block = calloc(1, (size_t)h.block_bytes);
    if (!block)
        return NULL;
    if (format == REF_HYBRID) {
        uint8_t *p = block + h.records;
        for (uint64_t g = 0; g < h.groups; g++) {
            ref_put(block + HEADER + g * h.index_width, h.index_width,
                    (uint64_t)(p - block - (ptrdiff_t)h.records) / h.unit);
            p = encode_group(p, &h, src, g);
        }
        h.block_bytes = (uint64_t)(p - block);
        h.values_offset = h.block_bytes - h.nnz * h.width;
    }
    const uint8_t head[8] = {0x50, 0x49, 0x43, 0x49, 1, (uint8_t)format, (uint8_t)dtype, (uint8_t)h.flags};
    memcpy(block, head, sizeof head);
    ref_put(block + 8, 8, n);
    ref_put(block + 16, 8, h.nnz);
    ref_put(block + 24, 8, h.index_offset);
    ref_put(block + 32, 8, h.values_offset);

    uint64_t k = 0;
    uint8_t *values = block + h.values_offset;
    if (format == REF_PICI) {
        for (uint64_t t = 0; t < h.tiles; t++) {
            ref_put(block + h.index_offset + t * h.index_width, h.index_width, k);
            for (unsigned c = 0; c < SIDE; c++)
                for (unsigned r = 0; r < SIDE; r++) {
                    uint64_t i = t * TILE + r * SIDE + c;
                    uint64_t v = i < n ? ref_load(src, i, h.width) : 0;
                    if (!v)
                        continue;
                    block[HEADER + t * TILE_BYTES + c * 8 + r / 8] |= (uint8_t)(1u << r % 8);
                    ref_put(values + k++ * h.width, h.width, v);
                }
        }
    } else if (format != REF_HYBRID) {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t v = ref_load(src, i, h.width);
            if (format == REF_COO) {
                if (!v)
                    continue;
                ref_put(block + h.index_offset + k * h.index_width, h.index_width, i);
            }
            ref_put(values + k++ * h.width, h.width, v);
        }
    }
    *len = (size_t)h.block_bytes;
    if (checksum)
        ref_seal(block, *len);
    return block;
}

/* ---- decode and add ---- */

/* Set element i of dst to v, or add v to it. */
static void take(const struct ref_header *h, void *dst, uint64_t i, uint64_t v, int add)
{
    if (!add)
        ref_store(dst, i, h->width, v);
    else if (v)
        ref_store(dst, i, h->width, ref_add(h->dtype, ref_load(dst, i, h->width), v));
}

static void take_group(const struct ref_header *h, void *dst, const uint8_t *block, uint64_t g, int add)
{
    uint64_t offset[TILE], place[TILE];
    struct group r;
    read_group(&r, h, block, g, NULL);
    for (unsigned i = 0; i < r.tiles; i++) {
        const struct tile *t = &r.tile[i];
        const unsigned n = t->n ? tile_offsets(offset, place, h, block, t) : 0;
        for (unsigned k = 0; k < n; k++)
            take(h, dst, (r.first + i) * TILE + offset[k], tile_value(h, block, t, t->container == RAW ? offset[k] : k),
                 add);
    }
}

static enum ref_status apply(void *dst, uint64_t n, const uint8_t *block, size_t len, int add)
{
    struct ref_header h;
    enum ref_status s = verify(&h, block, len, NULL);
    if (s)
        return s;
    if (n != h.count)
        return REF_E_ARG;
    if (!add)
        for (uint64_t i = 0; i < n; i++)
            ref_store(dst, i, h.width, 0);
    if (h.format == REF_PICI) {
        uint64_t k = 0;
        for (uint64_t t = 0; t < h.tiles; t++)
            for (unsigned c = 0; c < SIDE; c++) {
                uint64_t word = bits_of_column(block, t, c);
                for (unsigned r = 0; r < SIDE; r++)
                    if (word >> r & 1)
                        take(&h, dst, t * TILE + r * SIDE + c, stored_value(&h, block, k++), add);
            }
    } else if (h.format == REF_HYBRID) {
        for (uint64_t g = 0; g < h.groups; g++)
            take_group(&h, dst, block, g, add);
    } else {
        for (uint64_t k = 0; k < h.nnz; k++)
            take(&h, dst, h.format == REF_COO ? position(&h, block, k) : k, stored_value(&h, block, k), add);
    }
    return REF_OK;
}

enum ref_status ref_decode(void *dst, uint64_t n, const uint8_t *block, size_t len)
{
    return apply(dst, n, block, len, 0);
}

enum ref_status ref_scatter_add(void *dst, uint64_t n, const uint8_t *block, size_t len)
{
    return apply(dst, n, block, len, 1);
}

/* ---- arithmetic ---- */

struct floating {
    unsigned exponent, mantissa; /* bits */
    int infinity;                /* the highest exponent is infinity and NaNs, as in IEEE 754 */
};

/* 1 if this host's default NaN is negative. */
static uint64_t default_nan_sign(void)
{
    volatile float x = INFINITY;
    x = x - x;
    uint32_t bits;
    float y = x;
    memcpy(&bits, &y, 4);
    return bits >> 31;
}

static uint64_t shift_right_sticky(uint64_t x, unsigned by)
{
    return by > 63 ? x != 0 : by ? x >> by | (x << (64 - by) != 0) : x;
}

static uint64_t add_floats(const struct floating *f, uint64_t a, uint64_t b)
{
    const unsigned m = f->mantissa;
    const uint64_t one = UINT64_C(1) << m, top = (UINT64_C(1) << f->exponent) - 1;
    const uint64_t sign_bit = one << f->exponent, inf = top * one, quiet = one / 2;
    const uint64_t magnitude = sign_bit - 1;
    const uint64_t first_nan = f->infinity ? inf + 1 : magnitude;
    if ((a & magnitude) >= first_nan)
        return f->infinity ? a | quiet : a;
    if ((b & magnitude) >= first_nan)
        return f->infinity ? b | quiet : b;
    if (f->infinity && (a & magnitude) == inf)
        return b == (a ^ sign_bit) ? inf | quiet | (default_nan_sign() ? sign_bit : 0) : a;
    if (f->infinity && (b & magnitude) == inf)
        return b;
    if ((a & magnitude) < (b & magnitude)) {
        uint64_t swap = a;
        a = b;
        b = swap;
    }

    /* significands with three more bits: guard, round, sticky. A denormal has the exponent of the smallest normal. */
    uint64_t ea = (a & magnitude) >> m, eb = (b & magnitude) >> m;
    uint64_t sa = ((a & (one - 1)) | (ea ? one : 0)) << 3, sb = ((b & (one - 1)) | (eb ? one : 0)) << 3;
    uint64_t e = ea ? ea : 1, sign = a & sign_bit;
    uint64_t distance = e - (eb ? eb : 1);
    sb = shift_right_sticky(sb, distance > 64 ? 64 : (unsigned)distance);
    int same = sign == (b & sign_bit);
    uint64_t s = same ? sa + sb : sa - sb;
    if (!s)
        return same ? sign : 0; /* -0 only from -0 + -0 */
    for (; s >= one << 4; e++)
        s = shift_right_sticky(s, 1);
    for (; s < one << 3 && e > 1; e--)
        s <<= 1;
    uint64_t rest = s & 7;
    s >>= 3;
    if (rest > 4 || (rest == 4 && (s & 1)))
        s++;
    /* a carry out of the significand increments the exponent, and so does a denormal that became normal */
    uint64_t bits = s >= one ? (e - 1) * one + s : s;
    if (f->infinity)
        return sign | (bits >= inf ? inf : bits);
    return sign | (bits >= magnitude ? magnitude : bits);
}

uint64_t ref_add(unsigned dtype, uint64_t dst, uint64_t x)
{
    static const struct floating floats[7] = {{0, 0, 0}, {8, 23, 1}, {11, 52, 1}, {5, 10, 1},
                                              {8, 7, 1}, {4, 3, 0},  {5, 2, 1}};
    if (dtype <= REF_F8E5M2)
        return add_floats(&floats[dtype], dst, x);
    unsigned unused = 64 - 8 * ref_width(dtype);
    return (dst + x) << unused >> unused;
}
