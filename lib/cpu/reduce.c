/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/reduce.h"

#include <string.h>

#include "cpu/kernels.h"

#define IEEE(bits, m)                                                                                                  \
    {                                                                                                                  \
        PICI_IS_FLOAT, m, (UINT64_C(1) << (bits - 1)) - (UINT64_C(1) << m) - 1,                                        \
            (UINT64_C(1) << (bits - 1)) - (UINT64_C(1) << m), UINT64_C(1) << (m - 1)                                   \
    }
#define INTEGER(is, bits)                                                                                              \
    {                                                                                                                  \
        is, 0, 0, UINT64_MAX >> (65 - bits), 0                                                                         \
    }

enum { FIRST_INTEGER = 7 };

static const struct pici_kind kinds[DTYPE_LAST + 1] = {
    {PICI_IS_SIGNED, 0, 0, 0, 0}, /* no dtype */
    IEEE(32, 23),
    IEEE(64, 52),
    IEEE(16, 10),
    IEEE(16, 7),
    {PICI_IS_FLOAT, 3, 0x7e, 0x7e, 0}, /* f8e4m3 */
    IEEE(8, 2),
    INTEGER(PICI_IS_SIGNED, 8),
    INTEGER(PICI_IS_UNSIGNED, 8),
    INTEGER(PICI_IS_SIGNED, 16),
    INTEGER(PICI_IS_UNSIGNED, 16),
    INTEGER(PICI_IS_SIGNED, 32),
    INTEGER(PICI_IS_UNSIGNED, 32),
    INTEGER(PICI_IS_SIGNED, 64),
    INTEGER(PICI_IS_UNSIGNED, 64),
};

void pici_reduce(uint8_t *dst, const uint8_t *src, size_t count, unsigned dtype, int max)
{
    pici_isa()->reduce[fmt_width_log2(dtype)]->order(dst, src, count, &kinds[dtype], max);
}

void pici_positive_zeros(uint8_t *dst, const uint8_t *src, size_t count, unsigned dtype, int quiet)
{
    const struct pici_kind *kind = &kinds[dtype];
    const int w = fmt_width_log2(dtype);
    if (kind->type == PICI_IS_FLOAT)
        pici_isa()->reduce[w]->positive_zeros(dst, src, count, kind, quiet);
    else if (count && dst != src)
        memcpy(dst, src, count << w);
}

/* Divide integers of up to 32 bits as doubles, for speed. The result is right: if x / by is not an integer, it differs
 * from the nearest one by at least 1 / by > 2^-31. It is less than 2^32, so a double cannot round to that integer. */
#define DIVIDE_INTEGER(name, type, quotient)                                                                           \
    static void divide_##name(uint8_t *dst, size_t n, const struct pici_kind *k, int by)                               \
    {                                                                                                                  \
        typedef type any __attribute__((aligned(1), may_alias));                                                       \
        (void)k;                                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                                               \
            any *at = (any *)dst + i;                                                                                  \
            const type x = *at;                                                                                        \
            *at = (type)(quotient);                                                                                    \
        }                                                                                                              \
    }
DIVIDE_INTEGER(i8, int8_t, (double)x / by)
DIVIDE_INTEGER(u8, uint8_t, (double)x / by)
DIVIDE_INTEGER(i16, int16_t, (double)x / by)
DIVIDE_INTEGER(u16, uint16_t, (double)x / by)
DIVIDE_INTEGER(i32, int32_t, (double)x / by)
DIVIDE_INTEGER(u32, uint32_t, (double)x / by)
DIVIDE_INTEGER(i64, int64_t, x / by)
DIVIDE_INTEGER(u64, uint64_t, x / (uint64_t)by)

/* Narrow floats are rounded twice: the quotient first to the p = 24 or 53 bits of a lane, then to the m + 1 bits of the
 * dtype. The result equals the result of one rounding. To differ, the first rounding would have to reach a midpoint c
 * between two neighbouring values, while x / by is not c. Let e be the quotient's exponent (for denormals the least
 * one). Then x, c and c * by are multiples of u = 2^(e - m - 1). x and c * by differ, so x / by is at least u / by away
 * from c. The first rounding moves the quotient by at most 2^(e - p). That is less than u / by if by < 2^(p - m - 1).
 * In float this holds for by up to 2^13 with f16, and further with the other dtypes; in double always. */
void pici_divide(uint8_t *dst, size_t count, unsigned dtype, int by)
{
    typedef void divide(uint8_t *, size_t, const struct pici_kind *, int);
    static divide *const of_integer[] = {divide_i8,  divide_u8,  divide_i16, divide_u16,
                                         divide_i32, divide_u32, divide_i64, divide_u64};
    const struct pici_kind *kind = &kinds[dtype];
    const int w = fmt_width_log2(dtype);
    const struct pici_reduce *floats = pici_isa()->reduce[w];
    divide *kernel = by > 4096 ? floats->divide_by_many : floats->divide;
    if (kind->type != PICI_IS_FLOAT)
        kernel = of_integer[dtype - FIRST_INTEGER];
    if (w > 0 || count < 256) {
        kernel(dst, count, kind, by);
        return;
    }
    uint8_t quotient[256]; /* of every possible byte */
    for (unsigned i = 0; i < 256; i++)
        quotient[i] = (uint8_t)i;
    kernel(quotient, 256, kind, by);
    for (size_t i = 0; i < count; i++)
        dst[i] = quotient[dst[i]];
}
