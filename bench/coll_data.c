/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll_data.h"

#include <math.h>
#include <string.h>

enum { RUN = 32, BLOCK_ELEMENTS = 1024, PIECE = 1024, LARGEST = 7, LARGEST_SMOOTH = 1 << 19 };

const char *const spread_name[SPREADS] = {"uniform", "identical", "clustered", "block",
                                          "zipf",    "front",     "ranked",    "smooth"};

/* A float's sign, exponent and mantissa; mantissa 0: an integer. */
static const struct layout {
    int width, mantissa, bias, is_signed;
    int64_t exact; /* integers up to here are exact */
} layouts[] = {
    [PICI_F32] = {4, 23, 127, 1, 1 << 24}, [PICI_F64] = {8, 52, 1023, 1, 1 << 24}, [PICI_F16] = {2, 10, 15, 1, 1 << 11},
    [PICI_BF16] = {2, 7, 127, 1, 1 << 8},  [PICI_F8E4M3] = {1, 3, 7, 1, 16},       [PICI_F8E5M2] = {1, 2, 15, 1, 8},
    [PICI_I8] = {1, 0, 0, 1, INT8_MAX},    [PICI_U8] = {1, 0, 0, 0, UINT8_MAX},    [PICI_I16] = {2, 0, 0, 1, INT16_MAX},
    [PICI_U16] = {2, 0, 0, 0, UINT16_MAX}, [PICI_I32] = {4, 0, 0, 1, 1 << 24},     [PICI_U32] = {4, 0, 0, 0, 1 << 24},
    [PICI_I64] = {8, 0, 0, 1, 1 << 24},    [PICI_U64] = {8, 0, 0, 0, 1 << 24},
};

static uint64_t mix(uint64_t z) /* splitmix64's */
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* -0.0 among the values. */
#define NEGATIVE_ZERO INT64_MIN

static void store(uint8_t *dst, const struct layout *l, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value == NEGATIVE_ZERO) {
        bits = UINT64_C(1) << (8 * l->width - 1);
    } else if (l->mantissa && value) {
        const uint64_t magnitude = value < 0 ? 0 - bits : bits;
        const int e = 63 - __builtin_clzll(magnitude);
        const uint64_t fraction = e <= l->mantissa ? magnitude << (l->mantissa - e) : magnitude >> (e - l->mantissa);
        bits = (uint64_t)(e + l->bias - 1) << l->mantissa; /* the leading 1 of the fraction adds the other 1 */
        bits += fraction;
        bits |= (uint64_t)(value < 0) << (8 * l->width - 1);
    }
    const uint8_t x1 = (uint8_t)bits;
    const uint16_t x2 = (uint16_t)bits;
    const uint32_t x4 = (uint32_t)bits;
    switch (l->width) {
    case 1: memcpy(dst, &x1, 1); break;
    case 2: memcpy(dst, &x2, 2); break;
    case 4: memcpy(dst, &x4, 4); break;
    default: memcpy(dst, &bits, 8);
    }
}

/* One rank's elements, in order. */
struct stream {
    uint64_t seed, where, at; /* of the values; of the positions; the next element */
    uint64_t chance;          /* probability of a draw, times 2^32 */
    double rate;              /* SPREAD_ZIPF and _RANKED: the most frequent word's */
    uint64_t end;             /* SPREAD_FRONT: end of the elements that are not zero */
    uint64_t amplitude;
    int64_t unit; /* values are unit * 1..amplitude */
    enum spread spread;
    int is_signed, negative;
    int left; /* elements left of a run */
    struct smooth {
        double cosine[2 * SMOOTH_SIDE];     /* of multiples of pi / SMOOTH_SIDE */
        double amplitude[SMOOTH_MODES];     /* they add up to 1 */
        unsigned k[SMOOTH_MODES][3], shift; /* half waves along the sides; the phase in the table's steps */
        double row[SMOOTH_MODES];           /* amplitudes in the row of the previous element, if any */
        int has_row;
    } smooth;
};

/* Values are multiples of the result, and their sum over all ranks must be exact. */
static int64_t unit(const struct source *s)
{
    return s->op == PICI_AVG ? s->ranks : 1;
}

static int64_t amplitude(const struct source *s)
{
    const int64_t most = layouts[s->dtype].exact / ((int64_t)s->ranks * unit(s));
    const int64_t wanted = s->spread == SPREAD_SMOOTH ? LARGEST_SMOOTH : LARGEST;
    return most < wanted ? most : wanted;
}

int source_exact(const struct source *s)
{
    return amplitude(s) >= 1;
}

/* Zipf's law for word u n of n: its element is zero with a probability of exp(-rate / u). The mean of that over u in
 * (0, 1] is exp(-rate) - rate E1(rate). The exponential integral E1 is a series. */
static double zipf_zeros(double rate)
{
    double e1 = -0.57721566490153286 - log(rate), term = 1;
    for (int k = 1; k < 60; k++) {
        term *= -rate / k;
        e1 -= term / k;
    }
    return exp(-rate) - rate * e1;
}

/* The rate that gives this density, which is below 0.999. */
static double zipf_rate(double density)
{
    double low = 1e-12, high = 8;
    for (int i = 0; i < 60; i++) {
        const double rate = sqrt(low * high);
        *(1 - zipf_zeros(rate) < density ? &low : &high) = rate;
    }
    return low;
}

/* The probability that the word with this rank, from 1 on, occurs in as many draws as the rate says. */
static double ranked_chance(double rate, double rank)
{
    return -expm1(-rate * pow(rank, -1.1));
}

/* The rate that gives this density among n elements. The mean of the chances uses 64 intervals of each doubling. */
static double ranked_rate(double density, uint64_t n)
{
    enum { STEPS = 64 };
    static _Thread_local double last_density, last_rate;
    static _Thread_local uint64_t last_n;
    double low = 1e-12, high = 1e18;
    if (density == last_density && n == last_n)
        return last_rate;
    for (int i = 0; i < 80; i++) {
        const double rate = sqrt(low * high), factor = pow(2, 1. / STEPS);
        double sum = 0;
        for (double rank = 1; rank < (double)n; rank *= factor)
            sum += ranked_chance(rate, rank * sqrt(factor)) * rank * (factor - 1);
        *(sum < density * (double)n ? &low : &high) = rate;
    }
    last_density = density;
    last_n = n;
    return last_rate = low;
}

static int occupied(struct stream *s, uint64_t i)
{
    if (s->spread == SPREAD_RANKED)
        return (double)(mix(s->where + i) >> 32) < ranked_chance(s->rate, (double)i + 1) * 4294967296.0;
    if (s->spread == SPREAD_FRONT && i >= s->end)
        return 0;
    if (s->spread == SPREAD_ZIPF && s->rate > 0) {
        const double u = ((double)(mix(i * 2 + 1) >> 32) + 1) / 4294967296.0; /* the same on all ranks */
        return (double)(mix(s->where + i) >> 32) < -expm1(-s->rate / u) * 4294967296.0;
    }
    if (s->spread == SPREAD_BLOCK)
        return mix(s->where + i / BLOCK_ELEMENTS) >> 32 < s->chance;
    const int drawn = mix(s->where + i) >> 32 < s->chance;
    if (s->spread != SPREAD_CLUSTERED)
        return drawn;
    s->left = drawn ? RUN : s->left - (s->left > 0);
    return s->left > 0;
}

/* Waves as in turbulence: shorter waves have smaller amplitudes, |k|^(-11/6). */
static void smooth_open(struct smooth *f, uint64_t seed)
{
    double all = 0;
    for (int i = 0; i < 2 * SMOOTH_SIDE; i++)
        f->cosine[i] = cos(i * 3.14159265358979323846 / SMOOTH_SIDE);
    for (int m = 0; m < SMOOTH_MODES; m++) {
        double square = 0;
        for (int d = 0; d < 3; d++) {
            f->k[m][d] = (unsigned)(mix(seed + (unsigned)(3 * m + d)) % 12);
            square += f->k[m][d] * f->k[m][d];
        }
        all += f->amplitude[m] = pow(square > 1 ? square : 1, -11. / 12);
    }
    for (int m = 0; m < SMOOTH_MODES; m++)
        f->amplitude[m] /= all;
    f->shift = (unsigned)(mix(seed) >> 32);
    f->has_row = 0;
}

static double wave(const struct smooth *f, int m, int d, uint64_t at)
{
    return f->cosine[(f->k[m][d] * (unsigned)at + f->shift * (unsigned)(m + d + 1)) % (2 * SMOOTH_SIDE)];
}

/* Element i of the field, from -1 to 1. */
static double smooth_value(struct smooth *f, uint64_t i)
{
    const uint64_t x = i % SMOOTH_SIDE, y = i / SMOOTH_SIDE % SMOOTH_SIDE, z = i / SMOOTH_SIDE / SMOOTH_SIDE;
    double sum = 0;
    for (int m = 0; m < SMOOTH_MODES && (!x || !f->has_row); m++)
        f->row[m] = f->amplitude[m] * wave(f, m, 1, y) * wave(f, m, 2, z);
    f->has_row = 1;
    for (int m = 0; m < SMOOTH_MODES; m++)
        sum += f->row[m] * wave(f, m, 0, x);
    return sum;
}

static void stream_open(struct stream *out, const struct source *s, int rank, uint64_t first)
{
    const double d = s->density;
    double chance = s->spread == SPREAD_CLUSTERED ? 1 - pow(1 - d, 1.0 / RUN) : d; /* that a run begins */
    if (s->spread == SPREAD_FRONT)
        chance = d < 1. / 8 ? 8 * d : 1;
    *out = (struct stream){
        .seed = mix((uint64_t)rank + 1) << 1,
        .at = first,
        .chance = (uint64_t)(chance * 4294967296.0 + 0.5),
        .rate = s->spread == SPREAD_ZIPF && d > 0 && d < 0.999 ? zipf_rate(d) : 0,
        .unit = unit(s),
        .amplitude = amplitude(s) > 0 ? (uint64_t)amplitude(s) : 1,
        .spread = s->spread,
        .is_signed = layouts[s->dtype].is_signed,
        .negative = s->negative && layouts[s->dtype].mantissa,
    };
    out->end = s->n / 8;
    if (s->spread == SPREAD_RANKED)
        out->rate = ranked_rate(d, s->n);
    if (s->spread == SPREAD_SMOOTH)
        smooth_open(&out->smooth, out->seed);
    out->where = s->spread == SPREAD_IDENTICAL ? 1 : out->seed + 1;
    if (s->spread == SPREAD_CLUSTERED) /* runs that began earlier */
        for (uint64_t i = first < RUN ? 0 : first - RUN; i < first; i++)
            occupied(out, i);
}

static int64_t stream_next(struct stream *s)
{
    const uint64_t i = s->at++;
    if (s->spread == SPREAD_SMOOTH) {
        const double value = smooth_value(&s->smooth, i) * (double)s->amplitude;
        return s->unit * (int64_t)(s->is_signed ? value : fabs(value));
    }
    const int zero = !occupied(s, i);
    if (zero && !s->negative)
        return 0;
    const uint64_t r = mix(s->seed ^ mix(i));
    if (zero)
        return r & 1 ? NEGATIVE_ZERO : 0;
    const int64_t value = s->unit * (int64_t)(1 + ((r >> 32) * s->amplitude >> 32));
    return s->is_signed && r & 1 ? -value : value;
}

void source_fill(const struct source *s, void *dst, int rank, uint64_t n)
{
    const struct layout *l = &layouts[s->dtype];
    struct stream in;
    stream_open(&in, s, rank, 0);
    for (uint64_t i = 0; i < n; i++)
        store((uint8_t *)dst + i * (unsigned)l->width, l, stream_next(&in));
}

static int64_t number(int64_t value)
{
    return value == NEGATIVE_ZERO ? 0 : value;
}

/* Is a before b? -0.0 is before +0.0. */
static int before(int64_t a, int64_t b)
{
    return number(a) < number(b) || (a == NEGATIVE_ZERO && b == 0);
}

static int64_t combine(enum pici_op op, int64_t a, int64_t b)
{
    switch (op) {
    case PICI_MIN: return before(a, b) ? a : b;
    case PICI_MAX: return before(a, b) ? b : a;
    default: return number(a) + number(b);
    }
}

uint64_t source_wrong(const struct source *s, const void *got, int rank, int ranks, uint64_t first, uint64_t n)
{
    const struct layout *l = &layouts[s->dtype];
    const size_t width = (size_t)l->width;
    const int sums = !s->gather && (s->op == PICI_SUM || s->op == PICI_AVG);
    int64_t want[PIECE];
    uint64_t wrong = 0;
    for (uint64_t done = 0; done < n; done += PIECE) {
        const int piece = n - done < PIECE ? (int)(n - done) : PIECE;
        for (int r = rank; r < rank + ranks; r++) {
            struct stream in;
            stream_open(&in, s, r, first + done);
            for (int i = 0; i < piece; i++) {
                const int64_t value = stream_next(&in);
                want[i] = r > rank ? combine(s->op, want[i], value) : sums ? number(value) : value;
            }
        }
        for (int i = 0; i < piece; i++) {
            uint8_t bytes[8];
            store(bytes, l, s->op == PICI_AVG ? want[i] / s->ranks : want[i]);
            wrong += memcmp(bytes, (const uint8_t *)got + (done + (unsigned)i) * width, width) != 0;
        }
    }
    return wrong;
}
