/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref_values.h"

/* ---- floats as integers ---- */

/* A number that is not negative: m * 2^e. inexact: plus a bit more, less than 2^e. */
struct real {
    uint64_t m;
    int e, inexact;
};

struct kind {
    int mantissa, bias, top; /* bits of the mantissa; the largest exponent, which infinity has */
    unsigned width;
};

static struct kind kind_of(unsigned dtype)
{
    static const struct kind kinds[] = {{23, 127, 255, 4}, {52, 1023, 2047, 8}, {10, 15, 31, 2}, {7, 127, 255, 2}};
    return kinds[dtype - REF_F32];
}

static uint64_t sign_of(unsigned dtype)
{
    return UINT64_C(1) << (8 * kind_of(dtype).width - 1);
}

static uint64_t infinity_of(unsigned dtype)
{
    return (uint64_t)kind_of(dtype).top << kind_of(dtype).mantissa;
}

static uint64_t nan_of(unsigned dtype)
{
    return infinity_of(dtype) | UINT64_C(1) << (kind_of(dtype).mantissa - 1);
}

/* The number of these bits without a sign. Not for infinities and NaNs. */
static struct real real_of(uint64_t bits, unsigned dtype)
{
    const struct kind k = kind_of(dtype);
    const int exponent = (int)(bits >> k.mantissa);
    const uint64_t implicit = UINT64_C(1) << k.mantissa;
    struct real x = {bits & (implicit - 1), (exponent ? exponent : 1) - k.bias - k.mantissa, 0};
    x.m |= exponent ? implicit : 0;
    return x;
}

/* x with the highest bit of m set, unless m is 0. */
static struct real normal(struct real x)
{
    for (; x.m && !(x.m >> 63); x.m <<= 1)
        x.e--;
    return x;
}

/* Round to nearest even, as bits. Numbers beyond the greatest give infinity. */
static uint64_t round_to(struct real x, unsigned dtype)
{
    const struct kind k = kind_of(dtype);
    x = normal(x);
    if (!x.m)
        return 0;
    /* the unit in the last place of the result */
    int unit = x.e + 63 - k.mantissa;
    const int least = 1 - k.bias - k.mantissa;
    unit = unit < least ? least : unit;
    const int drop = unit - x.e;
    uint64_t kept = drop > 63 ? 0 : x.m >> drop;
    const uint64_t half = drop > 64 ? 0 : UINT64_C(1) << (drop - 1);
    const uint64_t rest = drop > 63 ? x.m : x.m & ((UINT64_C(1) << drop) - 1);
    if (half && (rest > half || (rest == half && (x.inexact || kept & 1))))
        kept++;
    const uint64_t bits = kept + ((uint64_t)(unit - least) << k.mantissa);
    return unit - least > k.top || bits > infinity_of(dtype) ? infinity_of(dtype) : bits;
}

static struct real product(struct real a, struct real b)
{
    a = normal(a);
    b = normal(b);
    const uint64_t a0 = (uint32_t)a.m, a1 = a.m >> 32, b0 = (uint32_t)b.m, b1 = b.m >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    uint64_t high = a1 * b1 + (middle >> 32) + (other >> 32), low = other << 32 | (uint32_t)(a0 * b0);
    int e = a.e + b.e + 64;
    for (int i = 0; i < 64 && !(high >> 63); i++) {
        high = high << 1 | low >> 63;
        low <<= 1;
        e--;
    }
    return (struct real){high, e, low != 0};
}

static struct real quotient(struct real a, struct real b)
{
    a = normal(a);
    b = normal(b);
    struct real q = {0, a.e - b.e - 63, 0};
    uint64_t rest = a.m;
    int over = 0; /* the bit above rest */
    for (int i = 0; i < 64; i++) {
        q.m <<= 1;
        if (over || rest >= b.m) {
            rest -= b.m;
            q.m |= 1;
        }
        over = (int)(rest >> 63);
        rest <<= 1;
    }
    q.inexact = rest != 0 || over;
    return q;
}

/* Operations on bits of f32 or f64 without signs. */
static uint64_t multiply(uint64_t a, uint64_t b, unsigned dtype)
{
    return round_to(product(real_of(a, dtype), real_of(b, dtype)), dtype);
}

static uint64_t divide(uint64_t a, uint64_t b, unsigned dtype)
{
    return round_to(quotient(real_of(a, dtype), real_of(b, dtype)), dtype);
}

/* 2^exponent. */
static uint64_t power(int exponent, unsigned dtype)
{
    return round_to((struct real){1, exponent, 0}, dtype);
}

/* Bits of any float in another dtype. */
static uint64_t convert(uint64_t bits, unsigned from, unsigned to)
{
    const struct kind a = kind_of(from), b = kind_of(to);
    const uint64_t magnitude = bits & ~sign_of(from), sign = bits & sign_of(from) ? sign_of(to) : 0;
    if (magnitude < infinity_of(from))
        return sign | round_to(real_of(magnitude, from), to);
    uint64_t payload = magnitude - infinity_of(from);
    payload = b.mantissa >= a.mantissa ? payload << (b.mantissa - a.mantissa) : payload >> (a.mantissa - b.mantissa);
    return sign | infinity_of(to) | payload;
}

/* ---- random numbers ---- */

void ref_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t x[4], k[2] = {key[0], key[1]};
    for (int i = 0; i < 4; i++)
        x[i] = counter[i];
    for (int round = 0; round < 10; round++) {
        const uint64_t left = (uint64_t)x[0] * 0xd2511f53u, right = (uint64_t)x[2] * 0xcd9e8d57u;
        const uint32_t y[4] = {(uint32_t)(right >> 32) ^ x[1] ^ k[0], (uint32_t)right,
                               (uint32_t)(left >> 32) ^ x[3] ^ k[1], (uint32_t)left};
        for (int i = 0; i < 4; i++)
            x[i] = y[i];
        k[0] += 0x9e3779b9u;
        k[1] += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = x[i];
}

static uint32_t random_of(const struct ref_values *v, uint64_t i)
{
    const uint64_t at = v->first + i;
    const uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)(at / 4 >> 32), (uint32_t)v->sequence,
                                 v->phase << 31 | v->origin};
    const uint32_t key[2] = {(uint32_t)v->seed, (uint32_t)(v->seed >> 32)};
    uint32_t word[4];
    ref_philox(word, counter, key);
    return word[at % 4] >> 8;
}

/* ---- cast ---- */

static uint64_t cast(const struct ref_values *v, uint64_t x)
{
    uint64_t y = convert(x, v->dtype, v->cast);
    if ((x & ~sign_of(v->dtype)) > infinity_of(v->dtype))
        y |= nan_of(v->cast);
    return v->positive && !(y & ~sign_of(v->cast)) ? 0 : y;
}

static uint64_t uncast(const struct ref_values *v, uint64_t y)
{
    const uint64_t x = convert(y, v->cast, v->dtype);
    return v->dtype == REF_F64 && (x & ~sign_of(REF_F64)) > infinity_of(REF_F64) ? x | nan_of(REF_F64) : x;
}

/* ---- qsgd ---- */

static unsigned scale_type(const struct ref_values *v)
{
    return v->dtype == REF_F64 ? REF_F64 : REF_F32;
}

static unsigned width_of(const struct ref_values *v)
{
    return kind_of(v->dtype).width;
}

/* Element i without its sign, in the arithmetic of its bucket. */
static uint64_t magnitude_of(const struct ref_values *v, const void *src, uint64_t i)
{
    return convert(ref_load(src, i, width_of(v)) & ~sign_of(v->dtype), v->dtype, scale_type(v));
}

/* Is (a h)^2 >= sum, exactly? */
static int reaches(uint64_t a, unsigned dtype, int h, uint64_t sum)
{
    const struct real x = real_of(a, dtype), y = normal(real_of(sum, REF_F64));
    if (!x.m)
        return !y.m;
    const struct real square = product(x, x); /* its highest bit is set, and inexact says whether more follows */
    const int e = square.e + 2 * h;
    return e != y.e ? e > y.e : square.m >= y.m;
}

/* Add two doubles that are not negative. */
static uint64_t add_doubles(uint64_t a, uint64_t b)
{
    return ref_add(REF_F64, a, b);
}

static uint64_t norm(const struct ref_values *v, const void *src, uint64_t n, uint64_t greatest)
{
    const unsigned type = scale_type(v);
    const uint64_t top = convert(infinity_of(v->dtype) - 1, v->dtype, type);
    uint64_t sum[16] = {0}, low = 0, high = top;
    int h = 0;
    if (v->dtype == REF_F64)
        h = greatest >= power(480, type) ? -520 : greatest < power(-400, type) ? 600 : 0;
    for (uint64_t j = 0; j < n; j++) {
        const uint64_t x = multiply(convert(magnitude_of(v, src, j), type, REF_F64), power(h, REF_F64), REF_F64);
        sum[j % 16] = add_doubles(sum[j % 16], multiply(x, x, REF_F64));
    }
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] = add_doubles(sum[i], sum[i + half]);
    while (low < high) { /* the least that reaches it, or top */
        const uint64_t middle = low + (high - low) / 2;
        if (reaches(middle, type, h, sum[0]))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The level of a finite magnitude x for a scale m > 0. */
static unsigned level_of(const struct ref_values *v, uint64_t x, uint64_t m, uint64_t i)
{
    const unsigned type = scale_type(v), s = (1u << (v->bits - 1)) - 1;
    const uint64_t levels = round_to((struct real){s, 0, 0}, type);
    const uint64_t pre = power(m < power(-60, type) ? 64 : 0, type);
    const uint64_t inverse = divide(levels, multiply(m, pre, type), type);
    uint64_t t = multiply(multiply(x, pre, type), inverse, type);
    t = t < levels ? t : levels;
    const struct real r = real_of(t, type); /* r.e < 0 */
    const int places = -r.e;
    const unsigned l = places > 63 ? 0 : (unsigned)(r.m >> places);
    const uint64_t part = places > 63 ? r.m : r.m & ((UINT64_C(1) << places) - 1); /* of 2^-places */
    if (v->nearest)
        return l + (places <= 64 && part >= UINT64_C(1) << (places - 1));
    const uint64_t u = random_of(v, i);
    if (places <= 24)
        return l + (u < part << (24 - places));
    /* u 2^(places - 24) < part? part has at most 53 bits */
    return l +
           (u ? places - 24 < 53 && u << (places - 24) >> (places - 24) == u && u << (places - 24) < part : part > 0);
}

static void put_code(uint8_t *codes, uint64_t j, unsigned bits, unsigned code)
{
    codes[j * bits / 8] = (uint8_t)(codes[j * bits / 8] | (code & ((1u << bits) - 1)) << j * bits % 8);
}

static unsigned get_code(const uint8_t *codes, uint64_t j, unsigned bits)
{
    return codes[j * bits / 8] >> j * bits % 8 & ((1u << bits) - 1);
}

static void quantise(const struct ref_values *v, void *scales, uint8_t *codes, const void *src, uint64_t n)
{
    const unsigned type = scale_type(v);
    for (uint64_t j = 0; j < (n * v->bits + 7) / 8; j++)
        codes[j] = 0;
    for (uint64_t first = 0, bucket = 0; first < n; first += v->bucket, bucket++) {
        const uint64_t end = n - first < v->bucket ? n : first + v->bucket;
        uint64_t m = 0;
        int finite = 1;
        for (uint64_t j = first; j < end; j++) {
            const uint64_t x = magnitude_of(v, src, j);
            finite &= x < infinity_of(type);
            m = x > m ? x : m;
        }
        if (!finite)
            m = nan_of(type);
        else if (m && v->l2)
            m = norm(v, (const uint8_t *)src + first * width_of(v), end - first, m);
        ref_store(scales, bucket, kind_of(type).width, m);
        for (uint64_t j = first; j < end && finite && m; j++) {
            const unsigned l = level_of(v, magnitude_of(v, src, j), m, j);
            put_code(codes, j, v->bits, ref_load(src, j, width_of(v)) & sign_of(v->dtype) ? 0 - l : l);
        }
    }
}

static enum ref_status dequantise(const struct ref_values *v, void *dst, const void *scales, const uint8_t *codes,
                                  uint64_t n)
{
    const unsigned type = scale_type(v), s = (1u << (v->bits - 1)) - 1;
    for (uint64_t j = 0; j < n; j++) {
        const uint64_t m = ref_load(scales, j / v->bucket, kind_of(type).width);
        const unsigned code = get_code(codes, j, v->bits), negative = code > s,
                       level = negative ? 2 * s + 2 - code : code;
        if ((m >= infinity_of(type) && m != nan_of(type)) || level > s || ((!m || m == nan_of(type)) && level))
            return REF_E_CORRUPT;
        uint64_t x = level == s ? m : 0;
        if (m == nan_of(type)) {
            ref_store(dst, j, width_of(v), nan_of(v->dtype));
            continue;
        }
        if (level && level < s)
            x = multiply(round_to((struct real){level, 0, 0}, type),
                         divide(m, round_to((struct real){s, 0, 0}, type), type), type);
        ref_store(dst, j, width_of(v), convert(x | (negative ? sign_of(type) : 0), type, v->dtype));
    }
    for (uint64_t bit = n * v->bits; bit % 8; bit++)
        if (codes[bit / 8] >> bit % 8 & 1)
            return REF_E_CORRUPT;
    return REF_OK;
}

/* ---- zfp: all but its streams ---- */

uint64_t ref_zfp_unit(const struct ref_values *v)
{
    return v->ny ? (uint64_t)4 * v->nx * v->ny : v->nx ? (uint64_t)4 * v->nx : 4096;
}

/* Padded size in bytes of a stream of n elements at the rate. */
static uint64_t ref_zfp_bytes(const struct ref_values *v, uint64_t n)
{
    const uint64_t x = v->nx ? v->nx : n, y = v->ny ? v->ny : v->nx ? n / x : 1, z = n / x / y;
    const uint64_t blocks = ((x + 3) / 4) * ((y + 3) / 4) * ((z + 3) / 4);
    const double of_block = v->ny ? 64 : v->nx ? 16 : 4; /* elements */
    const uint64_t bits = blocks * (uint64_t)(of_block * v->rate + 0.5);
    return (bits + 63) / 64 * 8;
}

static enum ref_status unzfp(const struct ref_values *v, uint8_t *dst, const void *lengths, const uint8_t *payload,
                             uint64_t have, uint64_t n)
{
    const unsigned width = width_of(v);
    for (int pass = 0; pass < 2; pass++) {
        uint64_t at = 0;
        for (uint64_t first = 0, i = 0; first < n; first += ref_zfp_unit(v), i++) {
            const uint64_t now = n - first < ref_zfp_unit(v) ? n - first : ref_zfp_unit(v);
            const uint64_t length = ref_load(lengths, i, 4), raw = length == UINT32_MAX,
                           bytes = raw ? now * width : 8 * length;
            if (!raw && (bytes >= now * width || (length && v->rate > 0 && bytes != ref_zfp_bytes(v, now))))
                return REF_E_CORRUPT;
            for (uint64_t j = 0; j < now && pass && (raw || !length); j++)
                ref_store(dst, first + j, width, raw ? ref_get(payload + at + j * width, width) : 0);
            at += bytes;
        }
        if (at != have)
            return REF_E_CORRUPT;
    }
    return REF_OK;
}

/* ---- all of them ---- */

void ref_values_counts(uint64_t count[REF_VALUES_ARRAYS], unsigned width[REF_VALUES_ARRAYS], const struct ref_values *v,
                       uint64_t n)
{
    if (v->codec == REF_CAST) {
        count[0] = n;
        count[1] = 0;
        width[0] = kind_of(v->cast).width;
    } else if (v->codec == REF_ZFP) {
        count[0] = n / ref_zfp_unit(v) + (n % ref_zfp_unit(v) != 0);
        count[1] = n * width_of(v);
        width[0] = 4;
    } else {
        count[0] = (n + v->bucket - 1) / v->bucket;
        count[1] = (n * v->bits + 7) / 8;
        width[0] = kind_of(scale_type(v)).width;
    }
    width[1] = 1;
}

void ref_values_quantize(void *const out[REF_VALUES_ARRAYS], const struct ref_values *v, const void *src, uint64_t n)
{
    if (v->codec == REF_QSGD)
        quantise(v, out[0], out[1], src, n);
    else
        for (uint64_t j = 0; j < n; j++)
            ref_store(out[0], j, kind_of(v->cast).width, cast(v, ref_load(src, j, width_of(v))));
}

enum ref_status ref_values_dequantize(void *dst, const struct ref_values *v, const void *const in[REF_VALUES_ARRAYS],
                                      const uint64_t count[REF_VALUES_ARRAYS], uint64_t n)
{
    uint64_t want[REF_VALUES_ARRAYS];
    unsigned width[REF_VALUES_ARRAYS];
    ref_values_counts(want, width, v, n);
    if (count[0] != want[0] || (v->codec == REF_QSGD && count[1] != want[1]))
        return REF_E_CORRUPT;
    if (v->codec == REF_ZFP)
        return unzfp(v, dst, in[0], in[1], count[1], n);
    if (v->codec == REF_QSGD)
        return dequantise(v, dst, in[0], in[1], n);
    for (uint64_t j = 0; j < n; j++)
        ref_store(dst, j, width_of(v), uncast(v, ref_load(in[0], j, width[0])));
    return REF_OK;
}

void ref_values_accumulate(void *residual, const struct ref_values *v, const void *x, const void *y, uint64_t n,
                           unsigned times)
{
    const unsigned type = scale_type(v);
    const uint64_t sign = sign_of(type), factor = round_to((struct real){times, 0, 0}, type);
    for (uint64_t j = 0; j < n; j++) {
        const uint64_t a = convert(ref_load(x, j, width_of(v)), v->dtype, type);
        const uint64_t b = convert(ref_load(y, j, width_of(v)), v->dtype, type);
        const uint64_t r = convert(ref_load(residual, j, width_of(v)), v->dtype, type);
        if ((a & ~sign) >= infinity_of(type) || (b & ~sign) >= infinity_of(type))
            continue;
        const uint64_t loss = ref_add(type, a, b ^ sign);
        const uint64_t accumulated =
            (loss & ~sign) < infinity_of(type) ? (loss & sign) | multiply(loss & ~sign, factor, type) : loss;
        const uint64_t sum = ref_add(type, r, accumulated);
        ref_store(residual, j, width_of(v), convert(sum, type, v->dtype));
    }
}
