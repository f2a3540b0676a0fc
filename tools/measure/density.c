/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/density.h"

#include <string.h>

#include "measure/count.h"

void density_init(struct density *density)
{
    memset(density, 0, sizeof *density);
    density->cell_elements = DENSITY_ROW;
}

/* Doubles the length of the cells, which halves their number. */
static void fold(struct density *density)
{
    for (size_t i = 0; i < DENSITY_CELLS / 2; i++)
        density->cell[i] = density->cell[2 * i] + density->cell[2 * i + 1];
    memset(density->cell + DENSITY_CELLS / 2, 0, sizeof density->cell / 2);
    density->cell_elements *= 2;
}

uint64_t density_add(struct density *density, const void *elements, uint64_t count, size_t width)
{
    const unsigned char *position = elements;
    uint64_t before = density->nonzeros;
    while (count) {
        if (density->elements / density->cell_elements == DENSITY_CELLS)
            fold(density);
        uint64_t take = density->cell_elements - density->elements % density->cell_elements;
        if (take > count)
            take = count;
        const uint64_t nonzeros = count_nonzeros(position, (size_t)take, width);
        density->cell[density->elements / density->cell_elements] += nonzeros;
        density->nonzeros += nonzeros;
        density->elements += take;
        position += take * width;
        count -= take;
    }
    return density->nonzeros - before;
}

size_t density_cells(const struct density *density)
{
    return (size_t)(density->elements / density->cell_elements + (density->elements % density->cell_elements != 0));
}

void density_part(const struct density *density, size_t part, size_t parts, uint64_t *nonzeros, uint64_t *elements)
{
    size_t cells = density_cells(density);
    size_t from = part * cells / parts, to = (part + 1) * cells / parts;
    *nonzeros = 0;
    for (size_t cell = from; cell < to; cell++)
        *nonzeros += density->cell[cell];
    uint64_t end = to == cells ? density->elements : to * density->cell_elements;
    *elements = end - from * density->cell_elements;
}
