/* SPDX-License-Identifier: BSD-3-Clause */
#include "density.h"

#include <string.h>

void density_init(struct density *d)
{
    memset(d, 0, sizeof *d);
    d->per = DENSITY_ROW;
}

enum { COUNT_MOST = 1 << 20 };

/* Counts the nonzeros of n elements, at most COUNT_MOST. Each width has a loop of its own, which the compiler
 * vectorizes. */
#define COUNT(name, type)                                                                                              \
    static uint64_t name(const unsigned char *p, size_t n)                                                             \
    {                                                                                                                  \
        unsigned nnz = 0;                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                                               \
            type v;                                                                                                    \
            memcpy(&v, p + i * sizeof v, sizeof v);                                                                    \
            nnz += v != 0;                                                                                             \
        }                                                                                                              \
        return nnz;                                                                                                    \
    }

COUNT(count8, uint8_t)
COUNT(count16, uint16_t)
COUNT(count32, uint32_t)
COUNT(count64, uint64_t)

void density_fold(struct density *d)
{
    for (size_t i = 0; i < DENSITY_CELLS / 2; i++)
        d->cell[i] = d->cell[2 * i] + d->cell[2 * i + 1];
    memset(d->cell + DENSITY_CELLS / 2, 0, sizeof d->cell / 2);
    d->per *= 2;
}

uint64_t density_add(struct density *d, const void *elements, uint64_t n, size_t width)
{
    const unsigned char *p = elements;
    uint64_t before = d->nnz;
    while (n) {
        if (d->elements / d->per == DENSITY_CELLS)
            density_fold(d);
        uint64_t take = d->per - d->elements % d->per;
        if (take > n)
            take = n;
        if (take > COUNT_MOST)
            take = COUNT_MOST;
        size_t k = (size_t)take;
        uint64_t nnz = width == 1   ? count8(p, k)
                       : width == 2 ? count16(p, k)
                       : width == 4 ? count32(p, k)
                                    : count64(p, k);
        d->cell[d->elements / d->per] += nnz;
        d->nnz += nnz;
        d->elements += take;
        p += k * width;
        n -= take;
    }
    return d->nnz - before;
}

void density_by_tile(struct density *d)
{
    while (d->per < DENSITY_TILE)
        density_fold(d);
}

size_t density_cells(const struct density *d)
{
    return (size_t)(d->elements / d->per + (d->elements % d->per != 0));
}

void density_part(const struct density *d, size_t i, size_t parts, uint64_t *nnz, uint64_t *elements)
{
    size_t cells = density_cells(d);
    size_t from = i * cells / parts, to = (i + 1) * cells / parts;
    *nnz = 0;
    for (size_t c = from; c < to; c++)
        *nnz += d->cell[c];
    uint64_t end = to == cells ? d->elements : to * d->per;
    *elements = end - from * d->per;
}
