/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/density.h"

#include <string.h>

#include "measure/count.h"

void density_init(struct density *density)
{
    memset(density, 0, sizeof *density);
    density->per = DENSITY_ROW;
}

/* Doubles the length of the cells, which halves their number. */
static void fold(struct density *density)
{
    for (size_t i = 0; i < DENSITY_CELLS / 2; i++)
        density->cell[i] = density->cell[2 * i] + density->cell[2 * i + 1];
    memset(density->cell + DENSITY_CELLS / 2, 0, sizeof density->cell / 2);
    density->per *= 2;
}

uint64_t density_add(struct density *density, const void *elements, uint64_t n, size_t width)
{
    const unsigned char *p = elements;
    uint64_t before = density->nnz;
    while (n) {
        if (density->elements / density->per == DENSITY_CELLS)
            fold(density);
        uint64_t take = density->per - density->elements % density->per;
        if (take > n)
            take = n;
        const uint64_t nnz = count_nonzeros(p, (size_t)take, width);
        density->cell[density->elements / density->per] += nnz;
        density->nnz += nnz;
        density->elements += take;
        p += take * width;
        n -= take;
    }
    return density->nnz - before;
}

size_t density_cells(const struct density *density)
{
    return (size_t)(density->elements / density->per + (density->elements % density->per != 0));
}

void density_part(const struct density *density, size_t i, size_t parts, uint64_t *nnz, uint64_t *elements)
{
    size_t cells = density_cells(density);
    size_t from = i * cells / parts, to = (i + 1) * cells / parts;
    *nnz = 0;
    for (size_t c = from; c < to; c++)
        *nnz += density->cell[c];
    uint64_t end = to == cells ? density->elements : to * density->per;
    *elements = end - from * density->per;
}
