/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec for hybrid, written from hybrid.md alone, a group at a time. Also for packed, except for its
 * runs, from packed.md. */
#include "ref_hybrid.h"
#include "ref_packed.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 32, RUN = 256 };
enum { OFFSETS12, OFFSETS8, BITVECTOR, RAW }; /* containers */

/* How a tile is stored. */
struct shape {
    int occupied, keeps; /* keeps: the signs of its zeros */
    unsigned n, container;
    unsigned m, flip, k, u; /* of the signs */
    uint64_t stored;        /* the number of values */
};

struct tile {
    struct shape shape;
    uint64_t descriptor, sign_descriptor;       /* offsets of the first byte of each */
    uint64_t payload, unary, remainder, values; /* offsets */
    const uint64_t *value;                      /* packed: the decoded values */
    uint64_t first_value;                       /* packed: the number of the tile's first value in its group */
};

struct group {
    uint64_t first; /* tile */
    unsigned tiles;
    uint64_t at, end; /* of the record */
    uint64_t runs;    /* packed: offset of the run descriptors */
    uint64_t *value;  /* packed: the values, to be freed */
    struct tile tile[GROUP];
};

int ref_hybrid_lay_out(struct ref_header *h, uint64_t values_offset)
{
    h->groups = h->tiles / GROUP + (h->tiles % GROUP > 0);
    const int packed = h->format == REF_PACKED;
    const unsigned least = packed ? 8 : 4;
    h->unit = 2 * h->width < least ? least : 2 * h->width;
    h->index_offset = REF_HEADER_BYTES;
    h->records = (REF_HEADER_BYTES + h->groups * h->index_width + 15) / 16 * 16;
    h->values_offset = values_offset;
    const uint64_t more = packed ? 5 * h->tiles + 16 * h->groups : 0;
    uint64_t most = h->records + (h->version == 2 ? 1072 : 514) * h->tiles + h->groups * (3 + h->unit) + more;
    if (packed) {
        if (h->nnz > (UINT64_MAX - most) / h->width)
            return 0;
        most += h->nnz * h->width;
    }
    if (values_offset < h->records || values_offset > most ||
        (h->version == 1 && h->nnz == 0 && values_offset > h->records) ||
        (!packed && h->nnz > (UINT64_MAX - values_offset) / h->width))
        return 0;
    h->block_bytes = values_offset + (packed ? 0 : h->nnz * h->width);
    return (h->block_bytes - h->records) % h->unit == 0;
}

/* ---- the lengths of a tile's parts ---- */

static uint64_t tile_elements(const struct ref_header *h, uint64_t t)
{
    return h->count - t * REF_TILE < REF_TILE ? h->count - t * REF_TILE : REF_TILE;
}

static uint64_t payload_bytes(unsigned container, unsigned n)
{
    return container == OFFSETS12 ? (3 * n + 1) / 2 : container == OFFSETS8 ? 16 + n : container == BITVECTOR ? 512 : 0;
}

static uint64_t unary_bytes(const struct shape *s)
{
    return (s->u + 7) / 8;
}

static uint64_t remainder_bytes(const struct shape *s)
{
    return (s->m * s->k + 7) / 8;
}

static uint64_t descriptor_bytes(const struct shape *s)
{
    return s->container == OFFSETS12 && !s->keeps ? 1 : 2;
}

static uint64_t cost(const struct ref_header *h, const struct shape *s)
{
    return descriptor_bytes(s) + (s->keeps ? 4 : 0) + payload_bytes(s->container, s->n) + unary_bytes(s) +
           remainder_bytes(s) + s->stored * h->width;
}

/* The container of a tile of len elements, n of them nonzero. full: it has a run of 256 nonzeros. */
static unsigned cheapest(const struct ref_header *h, unsigned n, uint64_t len, int full, int keeps)
{
    unsigned best = keeps ? BITVECTOR : RAW;
    uint64_t least = keeps ? payload_bytes(BITVECTOR, n) : (len - n) * h->width;
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

/* The parameter of the Rice codes of m numbers below z. */
static unsigned rice_parameter(uint64_t m, uint64_t z)
{
    unsigned k = 0;
    while (m && 25 * (m << k) <= 6 * (2 * z - m))
        k++;
    return k;
}

/* ---- the best shape of a tile ---- */

/* A tile of len elements, with or without its signs kept. */
static struct shape shape_of(const struct ref_header *h, const uint64_t *element, uint64_t len, int keeps)
{
    struct shape s = {.keeps = keeps};
    unsigned run = 0, negative = 0;
    int full = 0;
    for (uint64_t i = 0; i < len; i++) {
        const int minus = keeps && ref_negative_zero(h->dtype, element[i]), nonzero = element[i] != 0 && !minus;
        negative += (unsigned)minus;
        s.n += (unsigned)nonzero;
        run = (i % RUN ? run : 0) + (unsigned)nonzero;
        full |= run == RUN;
    }
    s.occupied = s.n || keeps;
    s.container = s.occupied ? cheapest(h, s.n, len, full, keeps) : 0;
    s.stored = s.container == RAW ? len : s.n;
    if (!keeps)
        return s;

    const unsigned z = (unsigned)len - s.n;
    unsigned gap = 0;
    s.flip = negative > z - negative;
    s.m = s.flip ? z - negative : negative;
    s.k = rice_parameter(s.m, z);
    for (uint64_t i = 0; i < len; i++) {
        const int minus = ref_negative_zero(h->dtype, element[i]);
        if (element[i] != 0 && !minus)
            continue;
        if (minus == !s.flip) {
            s.u += (gap >> s.k) + 1;
            gap = 0;
        } else {
            gap++;
        }
    }
    return s;
}

static struct shape best_shape(const struct ref_header *h, const uint64_t *element, uint64_t len)
{
    const struct shape plain = shape_of(h, element, len, 0);
    for (uint64_t i = 0; i < len; i++)
        if (ref_negative_zero(h->dtype, element[i])) {
            const struct shape keeps = shape_of(h, element, len, 1);
            return cost(h, &keeps) < cost(h, &plain) ? keeps : plain;
        }
    return plain;
}

/* ---- read ---- */

/* Read the descriptor of a tile of len elements at p, with its second byte at second and its sign descriptor at signs.
 * Returns the rule that is broken, or NULL. */
static const char *read_shape(struct shape *s, const struct ref_header *h, uint64_t len, const uint8_t *p,
                              const uint8_t *second, const uint8_t *signs)
{
    const unsigned first = *p;
    s->occupied = 1;
    s->keeps = h->version == 2 && first >= 192;
    s->container = first < 128 ? OFFSETS12 : first >> 4 & 3;
    s->n = first < 128 ? first : first == 192 ? *second : (first & 15) * 256 + *second + 1;
    if (s->keeps ? first > 239 || (first > 192 && first < 208) || (first == 192 && s->n > 31)
                 : first < 1 || (first > 31 && first < 144) || first > 191)
        return "descriptor";
    if (s->n > len ||
        (s->container != cheapest(h, s->n, len, 0, s->keeps) && s->container != cheapest(h, s->n, len, 1, s->keeps)))
        return "descriptor";
    s->stored = s->container == RAW ? len : s->n;
    if (!s->keeps)
        return NULL;

    const unsigned z = (unsigned)len - s->n, listed = (unsigned)ref_get(signs, 2);
    s->m = listed % 32768;
    s->flip = listed / 32768;
    s->u = (unsigned)ref_get(signs + 2, 2);
    if (2 * s->m > z || (s->flip ? 2 * s->m == z : s->m == 0))
        return "signs";
    s->k = rice_parameter(s->m, z);
    if (s->m ? s->u < s->m || s->u > s->m + ((z - s->m) >> s->k) : s->u != 0)
        return "signs";
    return NULL;
}

/* packed: decode the runs at p. Checks the rules `padding`, `planes` and `choice`. */
static enum ref_status read_runs(struct group *r, const struct ref_header *h, const uint8_t *block, uint64_t at,
                                 uint64_t stored, struct ref_fault *fault)
{
    static const uint64_t room = 16;
    r->value = malloc(GROUP * REF_TILE * sizeof *r->value);
    uint8_t *const again = malloc(REF_RUN * room);
    enum ref_status s = r->value && again ? REF_OK : ref_breach(fault, REF_E_NOMEM, NULL, 0, 0);
    for (uint64_t i = 0; i < stored && !s; i += REF_RUN) {
        const unsigned n = stored - i < REF_RUN ? (unsigned)(stored - i) : REF_RUN;
        const uint64_t descriptor = r->runs + i / REF_RUN * REF_RUN_DESCRIPTOR;
        struct ref_run run;
        uint8_t chosen[REF_RUN_DESCRIPTOR];
        uint64_t bad;
        ref_run_read(&run, h, block + descriptor, n);
        const char *rule = ref_run_decode(r->value + i, &bad, h, &run, block + at);
        if (rule) {
            const uint64_t tile = strcmp(rule, "padding") ? r->first : REF_NO_TILE;
            s = ref_breach(fault, REF_E_CORRUPT, rule, at + bad, tile);
        } else if (!h->any_choice) {
            memset(again, 0, REF_RUN * room);
            const uint64_t bytes = ref_run_encode(chosen, again, h, r->value + i, n);
            if (bytes != run.bytes || memcmp(chosen, block + descriptor, sizeof chosen) ||
                memcmp(again, block + at, bytes))
                s = ref_breach(fault, REF_E_CORRUPT, "choice", descriptor, r->first);
        }
        at += run.bytes;
    }
    free(again);
    return s;
}

/* Read the descriptors of group g and compute its layout. Checks the rules up to the padding of its record, and in
 * packed the runs. The caller frees the values. */
static enum ref_status read_group(struct group *r, const struct ref_header *h, const uint8_t *block, uint64_t g,
                                  struct ref_fault *fault)
{
    const uint64_t entry = REF_HEADER_BYTES + g * h->index_width, units = (h->block_bytes - h->records) / h->unit;
    uint64_t begin = ref_get(block + entry, h->index_width), end = units;
    *r = (struct group){.first = g * GROUP};
    r->tiles = h->tiles - r->first < GROUP ? (unsigned)(h->tiles - r->first) : GROUP;
    if (g == 0 && begin != 0)
        return ref_breach(fault, REF_E_CORRUPT, "directory", entry, 0);
    if (g + 1 < h->groups) {
        end = ref_get(block + entry + h->index_width, h->index_width);
        if (end < begin || end > units)
            return ref_breach(fault, REF_E_CORRUPT, "directory", entry + h->index_width, r->first + GROUP);
    }
    r->at = h->records + begin * h->unit;
    r->end = h->records + end * h->unit;
    if (r->at == r->end)
        return REF_OK;
    const uint64_t bits = ref_get(block + r->at, 4);
    unsigned some = 0, two = 0, keep = 0;
    if (bits == 0 || bits >> r->tiles != 0)
        return ref_breach(fault, REF_E_CORRUPT, "occupancy", r->at, r->first);
    for (unsigned i = 0; i < r->tiles; i++)
        some += (unsigned)(bits >> i & 1);
    uint64_t at = r->at + 4, second = at + some;
    if (second > r->end)
        return ref_breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    for (uint64_t i = at; i < second; i++) {
        two += block[i] >= 128;
        keep += h->version == 2 && block[i] >= 192;
    }
    uint64_t signs = second + two, payload = signs + 4 * keep;
    if (payload > r->end)
        return ref_breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    uint64_t stored = 0;
    for (unsigned i = 0; i < r->tiles; i++) {
        struct tile *t = &r->tile[i];
        if (!(bits >> i & 1))
            continue;
        t->descriptor = at++;
        t->sign_descriptor = signs;
        const uint8_t *const p = block + t->descriptor;
        const char *rule = read_shape(&t->shape, h, tile_elements(h, r->first + i), p, block + second, block + signs);
        if (rule)
            return ref_breach(fault, REF_E_CORRUPT, rule, strcmp(rule, "signs") ? t->descriptor : signs, r->first + i);
        second += *p >= 128;
        signs += t->shape.keeps ? 4 : 0;
        t->payload = payload;
        payload += payload_bytes(t->shape.container, t->shape.n);
        stored += t->shape.stored;
    }
    uint64_t runs_bytes = 0;
    if (h->format == REF_PACKED) {
        const uint64_t more = (stored + REF_RUN - 1) / REF_RUN * REF_RUN_DESCRIPTOR;
        r->runs = signs;
        if (r->runs + more > r->end)
            return ref_breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
        for (uint64_t i = 0; i < stored; i += REF_RUN) {
            const uint64_t p = r->runs + i / REF_RUN * REF_RUN_DESCRIPTOR;
            struct ref_run run;
            if (!ref_run_read(&run, h, block + p, stored - i < REF_RUN ? (unsigned)(stored - i) : REF_RUN))
                return ref_breach(fault, REF_E_CORRUPT, "run", p, r->first);
            runs_bytes += run.bytes;
        }
        for (unsigned i = 0; i < r->tiles; i++)
            r->tile[i].payload += more;
        payload += more;
    }
    for (unsigned i = 0; i < r->tiles; i++) {
        struct tile *t = &r->tile[i];
        t->unary = payload;
        t->remainder = t->unary + unary_bytes(&t->shape);
        payload = t->remainder + remainder_bytes(&t->shape);
    }
    const uint64_t align = h->format == REF_PACKED ? 8 : h->width;
    uint64_t value = (payload + align - 1) / align * align;
    const uint64_t after = value + (h->format == REF_PACKED ? runs_bytes : stored * h->width);
    if ((after - r->at + h->unit - 1) / h->unit * h->unit != r->end - r->at)
        return ref_breach(fault, REF_E_CORRUPT, "record-length", r->at, r->first);
    for (; payload < r->end; payload++)
        if ((payload < value || payload >= after) && block[payload])
            return ref_breach(fault, REF_E_CORRUPT, "padding", payload, REF_NO_TILE);
    if (h->format == REF_PACKED) {
        const enum ref_status s = read_runs(r, h, block, value, stored, fault);
        uint64_t number = 0;
        for (unsigned i = 0; i < r->tiles && !s; i++) {
            r->tile[i].value = r->value + number;
            r->tile[i].first_value = number;
            number += r->tile[i].shape.stored;
        }
        return s;
    }
    for (unsigned i = 0; i < r->tiles; i++) {
        r->tile[i].values = value;
        value += r->tile[i].shape.stored * h->width;
    }
    return REF_OK;
}

static uint64_t tile_value(const struct ref_header *h, const uint8_t *block, const struct tile *t, uint64_t k)
{
    if (t->value)
        return t->value[k];
    return ref_get(block + t->values + k * h->width, h->width);
}

/* The offsets of a tile's nonzeros as the block stores them, perhaps invalid. Returns their number. place: the position
 * of each in the block. */
static unsigned tile_offsets(uint64_t offset[REF_TILE], uint64_t place[REF_TILE], const struct ref_header *h,
                             const uint8_t *block, const struct tile *t)
{
    unsigned n = 0;
    const uint8_t *p = block + t->payload;
    switch (t->shape.container) {
    case OFFSETS12:
        for (; n < t->shape.n; n++) {
            place[n] = t->payload + n / 2 * 3 + n % 2;
            offset[n] = ref_get(block + place[n], 2) >> (n % 2 ? 4 : 0) & 4095;
        }
        return n;
    case OFFSETS8:
        for (unsigned run = 0; run < 16; run++)
            for (unsigned i = 0; i < p[run] && n < t->shape.n; i++, n++) {
                place[n] = t->payload + 16 + n;
                offset[n] = run * RUN + block[place[n]];
            }
        return n;
    case BITVECTOR:
        for (unsigned i = 0; i < REF_TILE; i++)
            if (p[i / 8] >> i % 8 & 1) {
                place[n] = t->payload + i / 64 * 8;
                offset[n++] = i;
            }
        return n;
    default:
        for (unsigned i = 0; i < t->shape.stored; i++)
            if (tile_value(h, block, t, i)) {
                place[n] = t->values + i * h->width;
                offset[n++] = i;
            }
        return n;
    }
}

static unsigned bit(const uint8_t *array, uint64_t i)
{
    return array[i / 8] >> i % 8 & 1;
}

/* Set listed[j] to 1 for each number j below z that a tile's signs list. Returns 0 if they are invalid. */
static int read_signs(uint8_t listed[REF_TILE], const uint8_t *block, const struct tile *t, unsigned z)
{
    const struct shape *s = &t->shape;
    const uint8_t *unary = block + t->unary, *remainder = block + t->remainder;
    uint64_t number = 0; /* the first number of the next gap */
    unsigned ones = 0, zeros = 0;
    memset(listed, 0, REF_TILE);
    for (unsigned i = s->u; i < 8 * unary_bytes(s); i++)
        if (bit(unary, i))
            return 0;
    for (unsigned i = s->m * s->k; i < 8 * remainder_bytes(s); i++)
        if (bit(remainder, i))
            return 0;
    if (s->u && !bit(unary, s->u - 1))
        return 0;
    for (unsigned i = 0; i < s->u; i++) {
        if (!bit(unary, i)) {
            zeros++;
            continue;
        }
        if (ones == s->m)
            return 0;
        uint64_t gap = (uint64_t)zeros << s->k;
        for (unsigned b = 0; b < s->k; b++)
            gap += (uint64_t)bit(remainder, ones * s->k + b) << b;
        number += gap;
        if (number >= z)
            return 0;
        listed[number++] = 1;
        ones++;
        zeros = 0;
    }
    return ones == s->m;
}

/* The elements of a tile with valid offsets. Returns 0 if its signs are invalid. */
static int read_elements(uint64_t element[REF_TILE], const struct ref_header *h, const uint8_t *block,
                         const struct tile *t, uint64_t len)
{
    uint64_t offset[REF_TILE], place[REF_TILE];
    uint8_t listed[REF_TILE], nonzero[REF_TILE] = {0};
    const unsigned n = tile_offsets(offset, place, h, block, t);
    memset(element, 0, REF_TILE * sizeof *element);
    for (unsigned k = 0; k < n; k++) {
        element[offset[k]] = tile_value(h, block, t, t->shape.container == RAW ? offset[k] : k);
        nonzero[offset[k]] = 1;
    }
    if (!t->shape.keeps)
        return 1;
    if (!read_signs(listed, block, t, (unsigned)len - n))
        return 0;
    for (uint64_t i = 0, number = 0; i < len; i++)
        if (!nonzero[i] && listed[number++] != t->shape.flip)
            element[i] = UINT64_C(1) << (8 * h->width - 1);
    return 1;
}

/* ---- verify ---- */

static int has_full_run(const uint64_t *offset, unsigned n)
{
    for (unsigned i = 0; i + RUN <= n; i++)
        if (offset[i] % RUN == 0 && offset[i + RUN - 1] == offset[i] + RUN - 1)
            return 1;
    return 0;
}

/* Check the part of `signs` that hybrid.md calls the rest. */
static enum ref_status verify_signs(const struct ref_header *h, const uint8_t *block, const struct tile *t, uint64_t i,
                                    struct ref_fault *fault)
{
    uint64_t element[REF_TILE];
    const uint64_t len = tile_elements(h, i);
    if (h->version == 2 &&
        (!read_elements(element, h, block, t, len) || best_shape(h, element, len).keeps != t->shape.keeps))
        return ref_breach(fault, REF_E_CORRUPT, "signs", t->shape.keeps ? t->sign_descriptor : t->descriptor, i);
    return REF_OK;
}

static enum ref_status verify_tile(const struct ref_header *h, const uint8_t *block, const struct group *r,
                                   const struct tile *t, uint64_t i, struct ref_fault *fault)
{
    const uint64_t len = tile_elements(h, i);
    const unsigned container = t->shape.container;
    uint64_t offset[REF_TILE], place[REF_TILE];
    const int lists = container == OFFSETS12 || container == OFFSETS8;
    unsigned n = tile_offsets(offset, place, h, block, t);
    if (container == OFFSETS8) {
        unsigned sum = 0;
        for (unsigned run = 0; run < 16; run++)
            sum += block[t->payload + run];
        if (sum != t->shape.n)
            return ref_breach(fault, REF_E_CORRUPT, "tile-count", t->descriptor, i);
    }
    for (unsigned k = 0; k < n; k++) {
        if (lists && k > 0 && offset[k] <= offset[k - 1])
            return ref_breach(fault, REF_E_CORRUPT, "rising", place[k], i);
        if (offset[k] >= len)
            return ref_breach(fault, REF_E_CORRUPT, "past-end", place[k], i);
    }
    const uint64_t last = t->payload + payload_bytes(container, n) - 1;
    if (container == OFFSETS12 && n % 2 && block[last] > 15)
        return ref_breach(fault, REF_E_CORRUPT, "padding", last, i);
    if (n != t->shape.n)
        return ref_breach(fault, REF_E_CORRUPT, "tile-count", t->descriptor, i);
    if (container != cheapest(h, n, len, has_full_run(offset, n), t->shape.keeps))
        return ref_breach(fault, REF_E_CORRUPT, "container", t->descriptor, i);
    for (uint64_t k = 0; container != RAW && k < n; k++) {
        const uint64_t v = tile_value(h, block, t, k);
        if (v == 0 || (t->shape.keeps && ref_negative_zero(h->dtype, v)))
            return ref_breach(fault, REF_E_CORRUPT, "stored-zero",
                              h->format == REF_PACKED ? r->runs + (t->first_value + k) / REF_RUN * REF_RUN_DESCRIPTOR
                                                      : t->values + k * h->width,
                              i);
    }
    return verify_signs(h, block, t, i, fault);
}

enum ref_status ref_hybrid_verify(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault)
{
    uint64_t total = 0;
    int keeps = 0;
    for (uint64_t i = REF_HEADER_BYTES + h->groups * h->index_width; i < h->records; i++)
        if (block[i])
            return ref_breach(fault, REF_E_CORRUPT, "padding", i, REF_NO_TILE);
    for (uint64_t g = 0; g < h->groups; g++) {
        struct group r;
        enum ref_status s = read_group(&r, h, block, g, fault);
        for (unsigned i = 0; i < r.tiles && !s; i++) {
            total += r.tile[i].shape.n;
            keeps |= r.tile[i].shape.keeps;
            if (r.tile[i].shape.occupied)
                s = verify_tile(h, block, &r, &r.tile[i], r.first + i, fault);
        }
        free(r.value);
        if (s)
            return s;
    }
    if (total != h->nnz)
        return ref_breach(fault, REF_E_CORRUPT, "total", 16, REF_NO_TILE);
    return keeps == (h->version == 2) ? REF_OK : ref_breach(fault, REF_E_CORRUPT, "version", 4, REF_NO_TILE);
}

/* ---- decode and add ---- */

enum ref_status ref_hybrid_apply(const struct ref_header *h, void *dst, const uint8_t *block, int add)
{
    for (uint64_t g = 0; g < h->groups; g++) {
        struct group r;
        const enum ref_status s = read_group(&r, h, block, g, NULL);
        for (unsigned i = 0; i < r.tiles && !s; i++) {
            const struct tile *t = &r.tile[i];
            const uint64_t first = (r.first + i) * REF_TILE, len = tile_elements(h, r.first + i);
            uint64_t element[REF_TILE];
            if (!t->shape.occupied)
                continue;
            read_elements(element, h, block, t, len);
            for (uint64_t k = 0; k < len; k++)
                if (!(add && t->shape.keeps && ref_negative_zero(h->dtype, element[k])))
                    ref_take(h, dst, first + k, element[k], add);
        }
        free(r.value);
        if (s)
            return s;
    }
    return REF_OK;
}

/* ---- encode ---- */

static void write_positions(uint8_t *p, const uint64_t *element, uint64_t len, const struct ref_header *h,
                            const struct shape *s)
{
    unsigned done = 0;
    for (uint64_t k = 0; k < len; k++) {
        if (!element[k] || (s->keeps && ref_negative_zero(h->dtype, element[k])))
            continue;
        if (s->container == BITVECTOR)
            p[k / 8] |= (uint8_t)(1u << k % 8);
        if (s->container == OFFSETS8) {
            p[k / RUN]++;
            p[16 + done] = (uint8_t)k;
        }
        if (s->container == OFFSETS12) {
            p[done / 2 * 3 + done % 2] |= (uint8_t)(k << done % 2 * 4);
            p[done / 2 * 3 + done % 2 + 1] |= (uint8_t)(k >> (done % 2 ? 4 : 8));
        }
        done++;
    }
}

static void write_signs(uint8_t *unary, uint8_t *remainder, const uint64_t *element, uint64_t len,
                        const struct ref_header *h, const struct shape *s)
{
    unsigned gap = 0, u = 0, r = 0;
    for (uint64_t i = 0; i < len; i++) {
        const int minus = ref_negative_zero(h->dtype, element[i]);
        if (element[i] && !minus)
            continue;
        if (minus == (int)s->flip) {
            gap++;
            continue;
        }
        u += gap >> s->k;
        unary[u / 8] |= (uint8_t)(1u << u % 8);
        u++;
        for (unsigned b = 0; b < s->k; b++, r++)
            remainder[r / 8] |= (uint8_t)((gap >> b & 1) << r % 8);
        gap = 0;
    }
}

/* Write the record of group g of src to p, where the memory is zero. Returns its end. Updates *version and *nnz. */
static uint8_t *encode_group(uint8_t *p, struct ref_header *h, const void *src, uint64_t g, int version_1)
{
    const uint64_t first = g * GROUP, tiles = h->tiles - first < GROUP ? h->tiles - first : GROUP;
    void *const elements = malloc(GROUP * sizeof(uint64_t[REF_TILE]));
    uint64_t(*const element)[REF_TILE] = elements, bits = 0, bytes = 4, stored = 0;
    struct shape shape[GROUP] = {{0}};
    if (!element)
        return NULL;
    for (uint64_t i = 0; i < tiles; i++) {
        const uint64_t len = tile_elements(h, first + i);
        struct shape *s = &shape[i];
        for (uint64_t k = 0; k < len; k++)
            element[i][k] = ref_load(src, (first + i) * REF_TILE + k, h->width);
        *s = version_1 ? shape_of(h, element[i], len, 0) : best_shape(h, element[i], len);
        if (!s->occupied)
            continue;
        bits |= UINT64_C(1) << i;
        bytes += cost(h, s) - s->stored * h->width;
        stored += s->stored;
        h->nnz += s->n;
        if (s->keeps)
            h->version = 2;
    }
    const int packed = h->format == REF_PACKED;
    uint8_t *const record = p, *descriptor = NULL;
    uint8_t *value = p + (bytes + h->width - 1) / h->width * h->width;
    uint8_t *end = bits ? p + (bytes + stored * h->width + h->unit - 1) / h->unit * h->unit : p;
    if (bits) {
        ref_put(p, 4, bits);
        p += 4;
    }
    for (unsigned i = 0; i < tiles; i++) {
        const struct shape *s = &shape[i];
        const unsigned low = s->container == OFFSETS12 ? 0 : (s->n - 1) / 256;
        if (s->occupied)
            *p++ = (uint8_t)(descriptor_bytes(s) == 1 ? s->n : 128 + 64 * (unsigned)s->keeps + 16 * s->container + low);
    }
    for (unsigned i = 0; i < tiles; i++)
        if (shape[i].occupied && descriptor_bytes(&shape[i]) == 2)
            *p++ = (uint8_t)(shape[i].container == OFFSETS12 ? shape[i].n : shape[i].n - 1);
    for (unsigned i = 0; i < tiles; i++)
        if (shape[i].keeps) {
            ref_put(p, 2, shape[i].m + 32768 * shape[i].flip);
            ref_put(p + 2, 2, shape[i].u);
            p += 4;
        }
    if (packed) {
        descriptor = p;
        p += (stored + REF_RUN - 1) / REF_RUN * REF_RUN_DESCRIPTOR;
    }
    for (unsigned i = 0; i < tiles; i++)
        if (shape[i].occupied) {
            write_positions(p, element[i], tile_elements(h, first + i), h, &shape[i]);
            p += payload_bytes(shape[i].container, shape[i].n);
        }
    for (unsigned i = 0; i < tiles; i++)
        if (shape[i].keeps) {
            uint8_t *const remainder = p + unary_bytes(&shape[i]);
            write_signs(p, remainder, element[i], tile_elements(h, first + i), h, &shape[i]);
            p = remainder + remainder_bytes(&shape[i]);
        }
    if (packed)
        value = record + (p - record + 7) / 8 * 8;
    uint64_t of_run[REF_RUN], held = 0, left = stored;
    for (unsigned i = 0; i < tiles; i++)
        for (uint64_t k = 0; k < tile_elements(h, first + i) && shape[i].occupied; k++) {
            const uint64_t v = element[i][k];
            if (shape[i].container != RAW && (!v || (shape[i].keeps && ref_negative_zero(h->dtype, v))))
                continue;
            if (!packed) {
                ref_put(value, h->width, v);
                value += h->width;
                continue;
            }
            of_run[held++] = v;
            if (held == REF_RUN || held == left) {
                value += ref_run_encode(descriptor, value, h, of_run, (unsigned)held);
                descriptor += REF_RUN_DESCRIPTOR;
                left -= held;
                held = 0;
            }
        }
    if (packed && bits)
        end = record + (value - record + h->unit - 1) / h->unit * h->unit;
    free(elements);
    return end;
}

uint8_t *ref_hybrid_encode(struct ref_header *h, const void *src, int version_1)
{
    h->version = 1;
    h->nnz = 0;
    ref_hybrid_lay_out(h, 0);
    const int packed = h->format == REF_PACKED;
    const uint64_t rest = h->records + (packed ? 7 : 2) * h->tiles + h->groups * ((packed ? 19 : 3) + h->unit);
    if (h->count > (SIZE_MAX - rest) / h->width)
        return NULL;
    const uint64_t most = rest + h->count * h->width;
    uint8_t *const block = calloc(1, (size_t)most), *p = block ? block + h->records : NULL;
    for (uint64_t g = 0; g < h->groups && p; g++) {
        ref_put(block + REF_HEADER_BYTES + g * h->index_width, h->index_width,
                (uint64_t)(p - block - (ptrdiff_t)h->records) / h->unit);
        p = encode_group(p, h, src, g, version_1);
    }
    if (!p) {
        free(block);
        return NULL;
    }
    h->block_bytes = (uint64_t)(p - block);
    h->values_offset = h->block_bytes - (packed ? 0 : h->nnz * h->width);
    return block;
}
