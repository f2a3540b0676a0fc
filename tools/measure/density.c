/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/density.h"

#include <string.h>

#include "measure/count.h"

void density_init(struct density *d)
{
    memset(d, 0, sizeof *d);
    d->per = DENSITY_ROW;
}

/* Doubles the length of the cells, which halves their number. */
static void fold(struct density *d)
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
            fold(d);
        uint64_t take = d->per - d->elements % d->per;
        if (take > n)
            take = n;
        const uint64_t nnz = count_nonzeros(p, (size_t)take, width);
        d->cell[d->elements / d->per] += nnz;
        d->nnz += nnz;
        d->elements += take;
        p += take * width;
        n -= take;
    }
    return d->nnz - before;
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
