/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/compare.h"

#include <stdlib.h>
#include <string.h>

#include "term.h"

#ifdef PICI_HAVE_ZSTD
#include <zstd.h>

enum { REPS = 3 };

struct compare {
    ZSTD_CCtx *compressor;
    ZSTD_DCtx *decompressor;
    int level;
    struct scratch packed, back;
};

bool compare_possible(void)
{
    return true;
}

struct compare *compare_new(int level)
{
    struct compare *compare = calloc(1, sizeof *compare);
    if (!compare)
        return NULL;
    compare->level = level;
    compare->compressor = ZSTD_createCCtx();
    compare->decompressor = ZSTD_createDCtx();
    if (compare->compressor && compare->decompressor)
        return compare;
    compare_free(compare);
    return NULL;
}

void compare_free(struct compare *compare)
{
    if (!compare)
        return;
    ZSTD_freeCCtx(compare->compressor);
    ZSTD_freeDCtx(compare->decompressor);
    free(compare->packed.memory);
    free(compare->back.memory);
    free(compare);
}

static double median(double times[REPS])
{
    const double first = times[0], second = times[1], third = times[2];
    const double low = first < second ? first : second;
    const double high = first < second ? second : first;
    if (third < low)
        return low;
    return third < high ? third : high;
}

/* Compresses and decompresses once, with zstd or pici. False if the elements differ afterwards. */
static bool try(struct compare *compare, bool zstd, enum pici_dtype dtype, const void *elements, uint64_t count,
                size_t bytes, size_t *packed, double *compress, double *decompress)
{
    bool restored;
    double start = term_now();
    if (zstd) {
        *packed = ZSTD_compressCCtx(compare->compressor, compare->packed.memory, compare->packed.capacity, elements,
                                    bytes, compare->level);
        restored = !ZSTD_isError(*packed);
    } else {
        restored = pici_compress(compare->packed.memory, compare->packed.capacity, packed, elements, count, dtype,
                                 PICI_AUTO, NULL) == PICI_OK;
    }
    double middle = term_now();
    if (restored && zstd)
        restored = ZSTD_decompressDCtx(compare->decompressor, compare->back.memory, bytes, compare->packed.memory,
                                       *packed) == bytes;
    else if (restored)
        restored = pici_decompress(compare->back.memory, count, compare->packed.memory, *packed, NULL) == PICI_OK;
    *decompress = term_now() - middle;
    *compress = middle - start;
    return restored && memcmp(compare->back.memory, elements, bytes) == 0;
}

bool compare_add(struct compare *compare, enum pici_dtype dtype, const void *elements, uint64_t count,
                 struct rival *pici, struct rival *zstd)
{
    const size_t bytes = (size_t)count * pici_dtype_width(dtype), our_bound = pici_bound(PICI_AUTO, dtype, count),
                 zstd_bound = ZSTD_compressBound(bytes);
    struct rival *const rivals[2] = {pici, zstd};
    double compress[2][REPS], decompress[2][REPS];
    size_t packed[2];
    if (!count)
        return true;
    if (!our_bound || !scratch_fit(&compare->packed, our_bound > zstd_bound ? our_bound : zstd_bound) ||
        !scratch_fit(&compare->back, bytes))
        return false;
    for (int rep = -1; rep < REPS; rep++) /* -1: to warm up */
        for (int which = 0; which < 2; which++) {
            const int timed = rep < 0 ? 0 : rep;
            if (!try(compare, which, dtype, elements, count, bytes, &packed[which], &compress[which][timed],
                     &decompress[which][timed]))
                return false;
        }
    for (int which = 0; which < 2; which++) {
        rivals[which]->bytes += packed[which];
        rivals[which]->compress += median(compress[which]);
        rivals[which]->decompress += median(decompress[which]);
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

void compare_free(struct compare *compare)
{
    (void)compare;
}

bool compare_add(struct compare *compare, enum pici_dtype dtype, const void *elements, uint64_t count,
                 struct rival *pici, struct rival *zstd)
{
    (void)compare, (void)dtype, (void)elements, (void)count, (void)pici, (void)zstd;
    return false;
}

#endif
