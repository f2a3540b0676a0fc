/* SPDX-License-Identifier: BSD-3-Clause
 *
 * CAST: elements are rounded to a narrower float. */
#include "cpu/kernels.h"
#include "cpu/values.h"
#include "values/accepts.h"
#include "values/book.h"

static enum pici_dtype dtype(const struct values *v, int array)
{
    (void)array;
    return v->cast;
}

/* Which of the kernel's casts it is. */
static int which(const struct values *v)
{
    return v->cast == PICI_F16;
}

static enum pici_status narrow(const struct values *v, const struct values_where *where, void *const out[VALUES_ARRAYS],
                               uint64_t made[VALUES_ARRAYS], const void *src, uint64_t n, struct values_loss *loss)
{
    const struct pici_values_kernels *k = pici_isa()->values[v->dtype];
    const size_t wide = pici_dtype_width(v->dtype), width = pici_dtype_width(v->cast);
    (void)where;
    made[0] = n;
    if (!loss) {
        k->cast[which(v)](out[0], src, (size_t)n, v->positive);
        return PICI_OK;
    }
    for (uint64_t at = 0, now; at < n; at += now) {
        uint8_t back[VALUES_PIECE * sizeof(double)];
        uint8_t *const to = (uint8_t *)out[0] + at * width;
        const uint8_t *const from = (const uint8_t *)src + at * wide;
        now = n - at < VALUES_PIECE ? n - at : VALUES_PIECE;
        k->cast[which(v)](to, from, (size_t)now, v->positive);
        k->uncast[which(v)](back, to, (size_t)now);
        pici_values_book(v, loss, at, from, back, now, &loss->nonfinite);
    }
    return PICI_OK;
}

static enum pici_status widen(const struct values *v, void *dst, uint64_t first, uint64_t n, uint64_t total,
                              const void *const in[VALUES_ARRAYS], const uint64_t have[VALUES_ARRAYS])
{
    if (have[0] != total)
        return PICI_E_CORRUPT;
    const uint8_t *const from = in[0];
    if (n)
        pici_isa()->values[v->dtype]->uncast[which(v)](dst, from + first * pici_dtype_width(v->cast), (size_t)n);
    return PICI_OK;
}

const struct pici_codec pici_codec_cast = {.name = "cast",
                                           .id = PICI_VALUES_CAST,
                                           .arrays = 1,
                                           .accepts = values_cast_accepts,
                                           .unit = values_tile,
                                           .most = values_each,
                                           .dtype = dtype,
                                           .narrow = narrow,
                                           .widen = widen};
