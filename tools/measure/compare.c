/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/compare.h"

#include <stdlib.h>
#include <string.h>

#include "term.h"

#ifdef PICI_HAVE_ZSTD
#include <zstd.h>

enum { REPS = 3 };

struct compare {
    ZSTD_CCtx *in;
    ZSTD_DCtx *out;
    int level;
    struct scratch packed, back;
};

bool compare_possible(void)
{
    return true;
}

struct compare *compare_new(int level)
{
    struct compare *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->level = level;
    c->in = ZSTD_createCCtx();
    c->out = ZSTD_createDCtx();
    if (c->in && c->out)
        return c;
    compare_free(c);
    return NULL;
}

void compare_free(struct compare *c)
{
    if (!c)
        return;
    ZSTD_freeCCtx(c->in);
    ZSTD_freeDCtx(c->out);
    free(c->packed.memory);
    free(c->back.memory);
    free(c);
}

static double median(double t[REPS])
{
    const double a = t[0], b = t[1], c = t[2];
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

/* Compress and decompress once, with one of the two. False if the elements do not come back. */
static bool try(struct compare *c, bool zstd, enum pici_dtype dtype, const void *elements, uint64_t n, size_t bytes,
                size_t *packed, double *compress, double *decompress)
{
    bool ok;
    double start = term_now();
    if (zstd) {
        *packed = ZSTD_compressCCtx(c->in, c->packed.memory, c->packed.capacity, elements, bytes, c->level);
        ok = !ZSTD_isError(*packed);
    } else {
        ok =
            pici_compress(c->packed.memory, c->packed.capacity, packed, elements, n, dtype, PICI_AUTO, NULL) == PICI_OK;
    }
    double middle = term_now();
    if (ok && zstd)
        ok = ZSTD_decompressDCtx(c->out, c->back.memory, bytes, c->packed.memory, *packed) == bytes;
    else if (ok)
        ok = pici_decompress(c->back.memory, n, c->packed.memory, *packed, NULL) == PICI_OK;
    *decompress = term_now() - middle;
    *compress = middle - start;
    return ok && memcmp(c->back.memory, elements, bytes) == 0;
}

bool compare_add(struct compare *c, enum pici_dtype dtype, const void *elements, uint64_t n, struct rival *pici,
                 struct rival *zstd)
{
    const size_t bytes = (size_t)n * pici_dtype_width(dtype), a = pici_bound(PICI_AUTO, dtype, n),
                 b = ZSTD_compressBound(bytes);
    struct rival *const of[2] = {pici, zstd};
    double compress[2][REPS], decompress[2][REPS];
    size_t packed[2];
    if (!n)
        return true;
    if (!a || !scratch_fit(&c->packed, a > b ? a : b) || !scratch_fit(&c->back, bytes))
        return false;
    for (int rep = -1; rep < REPS; rep++) /* -1: to warm up */
        for (int z = 0; z < 2; z++)
            if (!try(c, z, dtype, elements, n, bytes, &packed[z], &compress[z][rep < 0 ? 0 : rep],
                     &decompress[z][rep < 0 ? 0 : rep]))
                return false;
    for (int z = 0; z < 2; z++) {
        of[z]->bytes += packed[z];
        of[z]->compress += median(compress[z]);
        of[z]->decompress += median(decompress[z]);
    }
    return true;
}

#else

struct compare {
    int none;
};

bool compare_possible(void)
{
    return false;
}

struct compare *compare_new(int level)
{
    (void)level;
    return NULL;
}

void compare_free(struct compare *c)
{
    (void)c;
}

bool compare_add(struct compare *c, enum pici_dtype dtype, const void *elements, uint64_t n, struct rival *pici,
                 struct rival *zstd)
{
    (void)c, (void)dtype, (void)elements, (void)n, (void)pici, (void)zstd;
    return false;
}

#endif
