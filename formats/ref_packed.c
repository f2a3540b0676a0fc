/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec's part for packed, written from packed.md alone: runs of values. */
#include "ref_packed.h"

#include <string.h>

enum { ROW = 64, COUNTS = 15, PAIRS = 10, ONE_LEVEL = 4 };

static const unsigned pair[PAIRS][2] = {{2, 0}, {3, 0}, {4, 0}, {1, 0}, {1, 2}, {1, 3}, {2, 2}, {2, 3}, {3, 2}, {3, 3}};

/* How to split the values of a dtype. */
struct kind {
    unsigned exponent, mantissa; /* bits */
    unsigned low;                /* bytes */
    unsigned high;               /* bits */
    unsigned stored;             /* bytes of a stored exponent */
};

static struct kind kind_of(unsigned dtype)
{
    static const struct kind kinds[] = {
        [REF_F32] = {8, 23, 2, 8, 1}, [REF_F64] = {11, 52, 6, 5, 2},  [REF_F16] = {5, 10, 1, 3, 1},
        [REF_BF16] = {8, 7, 0, 8, 1}, [REF_F8E4M3] = {4, 3, 0, 4, 1}, [REF_F8E5M2] = {5, 2, 0, 3, 1}};
    return kinds[dtype];
}

static uint64_t pad8(uint64_t x)
{
    return (x + 7) / 8 * 8;
}

static uint64_t words(uint64_t bits)
{
    return (bits + 63) / 64 * 8;
}

static unsigned exponent_of(const struct kind *d, uint64_t value)
{
    return (unsigned)(value >> d->mantissa & ((1u << d->exponent) - 1));
}

static uint64_t low_of(const struct kind *d, uint64_t value)
{
    return value & ((UINT64_C(1) << 8 * d->low) - 1);
}

static uint64_t high_of(const struct kind *d, uint64_t value)
{
    const uint64_t m = value & ((UINT64_C(1) << d->mantissa) - 1), sign = value >> (d->exponent + d->mantissa);
    return 2 * (m >> 8 * d->low) + sign;
}

/* Offsets of the parts of a packed run. */
struct parts {
    uint64_t low, high, pad, words, planes, second, table, literals, after, end;
};

static struct parts parts_of(const struct kind *d, const struct ref_run *run)
{
    struct parts p;
    const uint64_t entries = (1u << run->k1) - 1 + (run->k2 ? (1u << run->k2) - 1 : 0);
    p.low = 0;
    p.high = run->n * (d->low - run->t);
    p.pad = p.high + (d->high == 8 ? run->n : 0);
    p.words = pad8(p.pad);
    if (d->high < 8)
        p.high = p.words;
    p.planes = p.words + (d->high < 8 ? d->high * words(run->n) : 0);
    p.second = p.planes + run->k1 * words(run->n);
    p.table = p.second + run->k2 * words(run->n2);
    p.literals = p.table + entries * d->stored;
    p.after = p.literals + run->n3 * d->stored;
    p.end = pad8(p.after);
    return p;
}

/* ---- bits of words ---- */

static unsigned get_bit(const uint8_t *p, uint64_t word, unsigned i)
{
    return p[word * 8 + i / 8] >> i % 8 & 1;
}

static void put_bit(uint8_t *p, uint64_t word, unsigned i, unsigned bit)
{
    p[word * 8 + i / 8] |= (uint8_t)(bit << i % 8);
}

/* Number i of a row: its bit j is in word j of the k words of value i's row. */
static unsigned get_row(const uint8_t *p, unsigned k, unsigned i)
{
    unsigned v = 0;
    for (unsigned j = 0; j < k; j++)
        v |= get_bit(p, (uint64_t)(i / ROW) * k + j, i % ROW) << j;
    return v;
}

static void put_row(uint8_t *p, unsigned k, unsigned i, unsigned v)
{
    for (unsigned j = 0; j < k; j++)
        put_bit(p, (uint64_t)(i / ROW) * k + j, i % ROW, v >> j & 1);
}

/* Number i of planes: its bit j is bit i of plane j. A plane has plane_words words. */
static unsigned get_plane(const uint8_t *p, unsigned k, uint64_t plane_words, unsigned i)
{
    unsigned v = 0;
    for (unsigned j = 0; j < k; j++)
        v |= get_bit(p, j * plane_words + i / 64, i % 64) << j;
    return v;
}

static void put_plane(uint8_t *p, unsigned k, uint64_t plane_words, unsigned i, unsigned v)
{
    for (unsigned j = 0; j < k; j++)
        put_bit(p, j * plane_words + i / 64, i % 64, v >> j & 1);
}

/* ---- read ---- */

int ref_run_read(struct ref_run *run, const struct ref_header *h, const uint8_t *descriptor, unsigned n)
{
    const struct kind d = kind_of(h->dtype);
    const uint64_t raw = pad8((uint64_t)n * h->width);
    const unsigned first = descriptor[0];
    *run = (struct ref_run){.n = n, .k1 = first % 8, .k2 = first / 8 % 4, .t = first / 32};
    run->n2 = (unsigned)ref_get(descriptor + 1, 2);
    run->n3 = (unsigned)ref_get(descriptor + 3, 2);
    run->bytes = raw;
    if (first == 0 && run->n2 == 0 && run->n3 == 0) {
        run->raw = 1;
        return 1;
    }
    int legal = 0;
    for (unsigned i = 0; i < (h->flags & 4 ? ONE_LEVEL : PAIRS); i++)
        legal |= run->k1 == pair[i][0] && run->k2 == pair[i][1];
    if (!legal || run->t > d.low || run->n2 > n || run->n3 > (run->k2 ? run->n2 : n) || (!run->k2 && run->n2))
        return 0;
    run->bytes = parts_of(&d, run).end;
    return run->bytes < raw;
}

/* The first byte of [from, to) that is not zero, or `to`. */
static uint64_t not_zero(const uint8_t *p, uint64_t from, uint64_t to)
{
    while (from < to && !p[from])
        from++;
    return from;
}

const char *ref_run_decode(uint64_t *value, uint64_t *at, const struct ref_header *h, const struct ref_run *run,
                           const uint8_t *p)
{
    const struct kind d = kind_of(h->dtype);
    if (run->raw) {
        const uint64_t used = (uint64_t)run->n * h->width;
        for (unsigned i = 0; i < run->n; i++)
            value[i] = ref_get(p + (uint64_t)i * h->width, h->width);
        *at = not_zero(p, used, run->bytes);
        return *at < run->bytes ? "padding" : NULL;
    }
    const struct parts q = parts_of(&d, run);
    *at = not_zero(p, q.pad, q.words);
    if (*at == q.words)
        *at = not_zero(p, q.after, q.end);
    if (*at != q.end)
        return "padding";
    *at = 0;

    const unsigned rows = (run->n + ROW - 1) / ROW, first = 1u << run->k1, second = 1u << run->k2;
    for (unsigned i = run->n; i < rows * ROW; i++)
        if (get_row(p + q.planes, run->k1, i) || (d.high != 8 && get_row(p + q.high, d.high, i)))
            return "planes";
    for (unsigned i = run->n2; i < 8 * words(run->n2); i++)
        if (get_plane(p + q.second, run->k2, words(run->n2) / 8, i))
            return "planes";
    for (uint64_t i = q.table; i < q.after; i += d.stored)
        if (ref_get(p + i, d.stored) >> d.exponent)
            return "planes";

    unsigned escapes = 0, literals = 0;
    for (unsigned i = 0; i < run->n; i++) {
        const unsigned code = get_row(p + q.planes, run->k1, i);
        uint64_t place = q.table + code * d.stored;
        int literal = 0;
        if (code == first - 1) {
            literal = 1;
            if (run->k2) {
                if (escapes == run->n2)
                    return "planes";
                const unsigned again = get_plane(p + q.second, run->k2, words(run->n2) / 8, escapes++);
                literal = again == second - 1;
                place = q.table + (first - 1 + again) * d.stored;
            }
        }
        if (literal) {
            if (literals == run->n3)
                return "planes";
            place = q.literals + literals++ * d.stored;
        }
        const unsigned kept = d.low - run->t;
        const uint64_t x = ref_get(p + place, d.stored);
        const uint64_t high = d.high == 8 ? p[q.high + i] : get_row(p + q.high, d.high, i);
        const uint64_t low = kept ? ref_get(p + q.low + (uint64_t)i * kept, kept) << 8 * run->t : 0;
        value[i] = (high & 1) << (d.exponent + d.mantissa) | x << d.mantissa | (high >> 1) << 8 * d.low | low;
    }
    return escapes == run->n2 && literals == run->n3 ? NULL : "planes";
}

/* ---- encode ---- */

/* Choose the table by rank, and which exponents are used. Returns 0 if the run is raw. */
static int choose(struct ref_run *run, unsigned *table, int *used, const struct kind *d, const struct ref_header *h,
                  const uint64_t *value)
{
    const unsigned n = run->n, whole = n == REF_RUN, most = (1u << d->exponent) - 1;
    unsigned top[4] = {0, 0, 0, 0}, count[COUNTS] = {0}, rank[COUNTS], sum[COUNTS + 1] = {0}, samples = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < n; i++) {
            const unsigned row = i / ROW, x = exponent_of(d, value[i]);
            if (whole && row % 4 != row / 4 % 4)
                continue;
            if (pass == 0) {
                top[i % 4] = x > top[i % 4] ? x : top[i % 4];
                samples++;
            } else if (x <= top[0] && top[0] - x < COUNTS) {
                count[top[0] - x]++;
            }
        }
        if (pass == 1)
            break;
        for (unsigned c = 1; c < 4; c++)
            if (n < 256 ? top[c] > top[0] : top[c] < top[0])
                top[0] = top[c];
        top[0] = top[0] < most ? top[0] + 1 : most;
    }
    for (unsigned j = 0; j < COUNTS; j++) {
        unsigned before = 0;
        for (unsigned i = 0; i < COUNTS; i++)
            before += count[i] > count[j] || (i < j && count[i] == count[j]);
        rank[before] = j;
    }
    for (unsigned q = 0; q < COUNTS; q++)
        sum[q + 1] = sum[q] + count[rank[q]];
    for (unsigned q = 0; q < COUNTS; q++) {
        used[q] = count[rank[q]] > 0;
        table[q] = used[q] ? top[0] - rank[q] : 0;
    }

    const uint64_t raw = pad8((uint64_t)n * h->width);
    const unsigned times = whole ? 4 : 1;
    uint64_t best = UINT64_MAX;
    struct ref_run expected = *run;
    for (unsigned i = 0; i < (h->flags & 4 ? ONE_LEVEL : PAIRS); i++) {
        expected.k1 = pair[i][0];
        expected.k2 = pair[i][1];
        const unsigned a = (1u << expected.k1) - 1, b = (1u << expected.k2) - 1;
        expected.n2 = expected.k2 ? times * (samples - sum[a]) : 0;
        expected.n3 = times * (samples - sum[a + b]);
        const uint64_t bytes = parts_of(d, &expected).end;
        if (bytes < best) {
            best = bytes;
            run->k1 = expected.k1;
            run->k2 = expected.k2;
        }
    }
    return best <= raw - raw / 64;
}

/* The entry of exponent x among the first `entries`, or that number. */
static unsigned entry_of(unsigned x, const unsigned *table, const int *used, unsigned entries)
{
    for (unsigned q = 0; q < entries; q++)
        if (used[q] && table[q] == x)
            return q;
    return entries;
}

uint64_t ref_run_encode(uint8_t *descriptor, uint8_t *run, const struct ref_header *h, const uint64_t *value,
                        unsigned n)
{
    const struct kind d = kind_of(h->dtype);
    const uint64_t raw = pad8((uint64_t)n * h->width);
    struct ref_run r = {.n = n};
    unsigned table[COUNTS];
    int used[COUNTS];
    for (unsigned zero = 1; zero && r.t < d.low; r.t += zero)
        for (unsigned i = 0; i < n; i++)
            zero &= (value[i] >> 8 * r.t & 255) == 0;
    int packs = choose(&r, table, used, &d, h, value);
    const unsigned a = (1u << r.k1) - 1, b = r.k2 ? (1u << r.k2) - 1 : 0;
    for (unsigned i = 0; i < n && packs; i++) {
        const unsigned q = entry_of(exponent_of(&d, value[i]), table, used, a + b);
        r.n2 += r.k2 && q >= a;
        r.n3 += q == a + b;
    }
    const struct parts p = parts_of(&d, &r);
    if (!packs || p.end >= raw) {
        memset(descriptor, 0, REF_RUN_DESCRIPTOR);
        for (unsigned i = 0; i < n; i++)
            ref_put(run + (uint64_t)i * h->width, h->width, value[i]);
        return raw;
    }
    descriptor[0] = (uint8_t)(r.k1 + 8 * r.k2 + 32 * r.t);
    ref_put(descriptor + 1, 2, r.n2);
    ref_put(descriptor + 3, 2, r.n3);
    unsigned escapes = 0, literals = 0;
    for (unsigned q = 0; q < a + b; q++)
        ref_put(run + p.table + q * d.stored, d.stored, table[q]);
    for (unsigned i = 0; i < n; i++) {
        const unsigned x = exponent_of(&d, value[i]), q = entry_of(x, table, used, a + b), kept = d.low - r.t;
        put_row(run + p.planes, r.k1, i, q < a ? q : a);
        if (r.k2 && q >= a)
            put_plane(run + p.second, r.k2, words(r.n2) / 8, escapes++, q - a);
        if (q == a + b)
            ref_put(run + p.literals + literals++ * d.stored, d.stored, x);
        if (d.high == 8)
            run[p.high + i] = (uint8_t)high_of(&d, value[i]);
        else
            put_row(run + p.high, d.high, i, (unsigned)high_of(&d, value[i]));
        if (kept)
            ref_put(run + p.low + (uint64_t)i * kept, kept, low_of(&d, value[i]) >> 8 * r.t);
    }
    return p.end;
}
