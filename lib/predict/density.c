/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/density.h"

#include <string.h>

double pici_density_of(const struct density_count *counted)
{
    const double least = 0x1p-64,
                 density = counted->elements ? (double)counted->nonzeros / (double)counted->elements : 0;
    return counted->elements && density < least ? least : density;
}

static int is_of(const struct density_entry *entry, enum pici_collective collective, enum pici_dtype dtype,
                 uint64_t count)
{
    return entry->kind == collective && entry->dtype == dtype && entry->count == count;
}

void pici_density_keep(struct densities *all, enum pici_collective collective, enum pici_dtype dtype, uint64_t count,
                       const double density[DENSITIES])
{
    struct density_entry *entry = all->entry, *oldest = entry;
    for (; entry < all->entry + DENSITY_CALLS && !is_of(entry, collective, dtype, count); entry++)
        if (entry->used < oldest->used)
            oldest = entry;
    if (entry == all->entry + DENSITY_CALLS) {
        entry = oldest;
        *entry = (struct density_entry){.kind = collective, .dtype = dtype, .count = count};
    }
    entry->used = ++all->uses;
    for (int i = 0; i < DENSITIES; i++)
        if (density[i] > 0)
            entry->density[i] = density[i];
}

const struct density_entry *pici_density_find(const struct densities *all, enum pici_collective collective,
                                              enum pici_dtype dtype, uint64_t count)
{
    for (const struct density_entry *entry = all->entry; entry < all->entry + DENSITY_CALLS; entry++)
        if (is_of(entry, collective, dtype, count))
            return entry;
    return NULL;
}
