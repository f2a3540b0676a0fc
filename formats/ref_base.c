/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The base of the reference codec for every format: elements and integers in memory, XXH64, and arithmetic. */
#include "ref_base.h"

#include <math.h>
#include <string.h>

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

int ref_negative_zero(unsigned dtype, uint64_t bits)
{
    return dtype >= REF_F32 && dtype <= REF_F8E5M2 && bits == UINT64_C(1) << (8 * ref_width(dtype) - 1);
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

enum ref_status ref_breach(struct ref_fault *fault, enum ref_status status, const char *rule, uint64_t offset,
                           uint64_t tile)
{
    if (fault)
        *fault = (struct ref_fault){status, offset, tile, rule};
    return status;
}

/* ---- arithmetic ---- */

struct floating {
    unsigned exponent, mantissa; /* bits */
    int infinity;                /* the highest exponent is infinity and NaNs, as in IEEE 754 */
};

/* Returns 1 if this host's default NaN is negative. */
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

void ref_take(const struct ref_header *h, void *dst, uint64_t i, uint64_t v, int add)
{
    if (!add)
        ref_store(dst, i, h->width, v);
    else if (v)
        ref_store(dst, i, h->width, ref_add(h->dtype, ref_load(dst, i, h->width), v));
}
