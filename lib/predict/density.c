/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/density.h"

#include <string.h>

double pici_density_of(const struct density_count *c)
{
    const double least = 0x1p-64, density = c->n ? (double)c->nnz / (double)c->n : 0;
    return c->n && density < least ? least : density;
}

static int is_of(const struct density_entry *e, enum pici_collective kind, enum pici_dtype dtype, uint64_t count)
{
    return e->kind == kind && e->dtype == dtype && e->count == count;
}

void pici_density_keep(struct densities *all, enum pici_collective kind, enum pici_dtype dtype, uint64_t count,
                       const double density[DENSITIES])
{
    struct density_entry *e = all->entry, *oldest = e;
    for (; e < all->entry + DENSITY_CALLS && !is_of(e, kind, dtype, count); e++)
        if (e->used < oldest->used)
            oldest = e;
    if (e == all->entry + DENSITY_CALLS) {
        e = oldest;
        *e = (struct density_entry){.kind = kind, .dtype = dtype, .count = count};
    }
    e->used = ++all->uses;
    for (int i = 0; i < DENSITIES; i++)
        if (density[i] > 0)
            e->density[i] = density[i];
}

const struct density_entry *pici_density_find(const struct densities *all, enum pici_collective kind,
                                              enum pici_dtype dtype, uint64_t count)
{
    for (const struct density_entry *e = all->entry; e < all->entry + DENSITY_CALLS; e++)
        if (is_of(e, kind, dtype, count))
            return e;
    return NULL;
}
