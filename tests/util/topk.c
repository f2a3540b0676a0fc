/* SPDX-License-Identifier: BSD-3-Clause */
#include "topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "util.h"

/* ---- floats as integers */

struct layout {
    int exponent, mantissa; /* bits */
};

static const struct layout layouts[] = {
    [PICI_F32] = {8, 23}, [PICI_F64] = {11, 52}, [PICI_F16] = {5, 10}, [PICI_BF16] = {8, 7}};

/* A finite number: m * 2^e, and a little more if sticky. */
struct number {
    int negative, sticky, e;
    uint64_t m;
};

static int bias(const struct layout *f)
{
    return (1 << (f->exponent - 1)) - 1;
}

static uint64_t infinity(const struct layout *f) /* its magnitude */
{
    return ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
}

static uint64_t magnitude(const struct layout *f, uint64_t bits)
{
    return bits & ((UINT64_C(1) << (f->exponent + f->mantissa)) - 1);
}

static struct number unpack(const struct layout *f, uint64_t bits)
{
    const uint64_t one = UINT64_C(1) << f->mantissa, m = magnitude(f, bits);
    const int exponent = (int)(m >> f->mantissa);
    struct number x = {(int)(bits >> (f->exponent + f->mantissa) & 1), 0, 1 - bias(f) - f->mantissa, m};
    if (exponent) {
        x.m = (m & (one - 1)) | one;
        x.e += exponent - 1;
    }
    return x;
}

/* Round to nearest even. Where x is sticky, m has two bits more than the result. */
static uint64_t pack(const struct layout *f, struct number x)
{
    const uint64_t sign = (uint64_t)x.negative << (f->exponent + f->mantissa);
    const int least = 1 - bias(f) - f->mantissa;
    int bits = 0, ulp;
    while (bits < 64 && x.m >> bits)
        bits++;
    ulp = x.e + bits - (f->mantissa + 1);
    ulp = ulp < least ? least : ulp;
    const int drop = ulp - x.e;
    uint64_t r;
    if (drop <= 0) {
        r = x.m << -drop;
    } else if (drop > 64) {
        r = 0;
    } else {
        const uint64_t rest = drop == 64 ? x.m : x.m & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
        r = drop == 64 ? 0 : x.m >> drop;
        r += rest > half || (rest == half && (x.sticky || (r & 1)));
    }
    if (r >> (f->mantissa + 1)) {
        r >>= 1;
        ulp++;
    }
    if (r >> f->mantissa) /* not a denormal */
        r += (uint64_t)(ulp - least) << f->mantissa;
    return sign | (r < infinity(f) && ulp - least < 1 << f->exponent ? r : infinity(f));
}

static uint64_t multiply(enum pici_dtype t, uint64_t factor, uint64_t element) /* factor is finite */
{
    const struct layout *f = &layouts[t];
    const uint64_t m = magnitude(f, element), quiet = UINT64_C(1) << (f->mantissa - 1);
    if (m > infinity(f))
        return element | quiet;
    const struct number a = unpack(f, factor), b = unpack(f, element);
    const int negative = a.negative ^ b.negative;
    const uint64_t sign = (uint64_t)negative << (f->exponent + f->mantissa);
    if (m == infinity(f))
        return a.m ? sign | m : ref_add(t, m, m | UINT64_C(1) << (f->exponent + f->mantissa)); /* invalid */
    if (!a.m || !b.m)
        return sign;
    /* at the most 2 * 53 bits; bits below the upper 64 are sticky */
    const uint64_t a0 = a.m & UINT32_MAX, a1 = a.m >> 32, b0 = b.m & UINT32_MAX, b1 = b.m >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & UINT32_MAX);
    uint64_t high = a1 * b1 + (middle >> 32) + (other >> 32), low = other << 32 | (a0 * b0 & UINT32_MAX);
    struct number x = {negative, 0, a.e + b.e, low};
    while (high) {
        x.sticky |= (int)(low & 1);
        low = low >> 1 | high << 63;
        high >>= 1;
        x.e++;
    }
    x.m = low;
    return pack(f, x);
}

/* Between a dtype and f32; a NaN keeps its sign and the upper bits of its payload. */
static uint64_t convert(enum pici_dtype from, enum pici_dtype to, uint64_t bits)
{
    const struct layout *f = &layouts[from], *g = &layouts[to];
    const uint64_t m = magnitude(f, bits), sign = bits >> (f->exponent + f->mantissa) & 1;
    if (from == to)
        return bits;
    if (m >= infinity(f)) {
        const uint64_t payload = m - infinity(f);
        const int shift = g->mantissa - f->mantissa;
        return sign << (g->exponent + g->mantissa) | infinity(g) | (shift > 0 ? payload << shift : payload >> -shift);
    }
    return pack(g, unpack(f, bits));
}

/* ---- the sum */

static enum pici_dtype computed_in(enum pici_dtype t)
{
    return t == PICI_F64 ? PICI_F64 : PICI_F32;
}

/* leak * residual and similar products of a float and an element of dtype, as bits of f64 (f64) or f32 (others).
 * Elements of f16 and bf16 are widened to f32. */
static uint64_t product(float factor, uint64_t element, enum pici_dtype t)
{
    const enum pici_dtype c = computed_in(t);
    uint32_t bits;
    memcpy(&bits, &factor, sizeof bits);
    return multiply(c, convert(PICI_F32, c, bits), convert(t, c, element));
}

static uint64_t sum(uint64_t *velocity, const uint64_t *residual, uint64_t gradient, enum pici_dtype t,
                    const struct pici_topk_opts *o)
{
    const enum pici_dtype c = computed_in(t);
    uint64_t x = product(o->rate, gradient, t);
    if (velocity) {
        *velocity = convert(c, t, ref_add(c, product(o->momentum, *velocity, t), x));
        x = convert(t, c, *velocity);
    }
    if (residual)
        x = ref_add(c, product(o->leak, *residual, t), x);
    return convert(c, t, x);
}

/* ---- the selection */

struct ranked {
    uint64_t magnitude, index;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude)
        return x->magnitude < y->magnitude ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

/* Mark the k largest of n, but no zeros. Returns how many. */
static uint64_t mark(unsigned char *kept, const struct ranked *of, uint64_t n, uint64_t k)
{
    struct ranked *sorted = test_alloc((size_t)n * sizeof *sorted);
    uint64_t marked = 0;
    memcpy(sorted, of, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_rank);
    for (; marked < n && marked < k && sorted[marked].magnitude; marked++)
        kept[sorted[marked].index] = 1;
    free(sorted);
    return marked;
}

void topk_reference(void *out, uint64_t *nnz, void *residual, void *velocity, const void *gradient, uint64_t n,
                    enum pici_dtype t, const struct pici_topk_opts *o)
{
    const unsigned width = ref_width(t);
    uint64_t *acc = test_alloc((size_t)n * sizeof *acc);
    struct ranked *rank = test_alloc((size_t)n * sizeof *rank);
    unsigned char *kept = test_alloc((size_t)n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = residual ? ref_load(residual, i, width) : 0, u = velocity ? ref_load(velocity, i, width) : 0;
        acc[i] = sum(velocity ? &u : NULL, residual ? &r : NULL, ref_load(gradient, i, width), t, o);
        if (velocity)
            ref_store(velocity, i, width, u);
        rank[i] = (struct ranked){magnitude(&layouts[t], acc[i]), i};
        kept[i] = 0;
    }
    *nnz = 0;
    if (o->select == PICI_SELECT_GLOBAL) {
        volatile double target = o->density * (double)n; /* a double, also where more bits are computed with */
        *nnz = mark(kept, rank, n, (uint64_t)ceil(target));
    } else {
        for (uint64_t first = 0, m; first < n; first += m) {
            m = n - first < o->bucket ? n - first : o->bucket;
            *nnz += mark(kept, rank + first, m, ((uint64_t)o->k * m + o->bucket - 1) / o->bucket);
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        ref_store(out, i, width, kept[i] ? acc[i] : 0);
        if (residual)
            ref_store(residual, i, width, kept[i] ? 0 : acc[i]);
        if (velocity && kept[i])
            ref_store(velocity, i, width, 0);
    }
    free(acc);
    free(rank);
    free(kept);
}
