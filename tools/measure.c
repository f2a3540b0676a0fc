/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

void sizes_add(struct sizes *s, enum pici_dtype dtype, uint64_t n, uint64_t nnz)
{
    /* pici_bound is the length of a block without zeros. A pici block is shorter by the zeros' values; a coo block of nnz
     * values is as long as one of nnz elements without zeros, for its positions are 32 bits wide at either count. */
    uint64_t width = pici_dtype_width(dtype), best = UINT64_MAX;
    const uint64_t bytes[FORMATS] = {[PICI_DENSE] = pici_bound(PICI_DENSE, dtype, n),
                                     [PICI_PICI] = pici_bound(PICI_PICI, dtype, n) - (n - nnz) * width,
                                     [PICI_COO] = pici_bound(PICI_COO, dtype, nnz)};
    for (int f = 0; f < FORMATS; f++) {
        s->bytes[f] += bytes[f];
        if (bytes[f] < best)
            best = bytes[f];
    }
    s->best += best;
    s->elements += n;
    s->nnz += nnz;
    s->dense_bytes += n * width;
}

void sizes_sum(struct sizes *total, const struct sizes *s)
{
    for (int f = 0; f < FORMATS; f++)
        total->bytes[f] += s->bytes[f];
    total->best += s->best;
    total->elements += s->elements;
    total->nnz += s->nnz;
    total->dense_bytes += s->dense_bytes;
}

enum pici_format sizes_best(const struct sizes *s)
{
    int best = 0;
    for (int f = 1; f < FORMATS; f++)
        if (s->bytes[f] < s->bytes[best])
            best = f;
    return (enum pici_format)best;
}

struct measured *report_add(struct report *r, const char *name, size_t name_len)
{
    if (r->tensors == r->room) {
        size_t room = r->room ? 2 * r->room : 16;
        struct measured *bigger = room <= SIZE_MAX / sizeof *bigger ? realloc(r->tensor, room * sizeof *bigger) : NULL;
        if (!bigger)
            return NULL;
        r->tensor = bigger;
        r->room = room;
    }
    struct measured *m = &r->tensor[r->tensors];
    *m = (struct measured){.name = malloc(name_len + 1), .name_len = name_len};
    if (!m->name)
        return NULL;
    memcpy(m->name, name, name_len);
    m->name[name_len] = 0;
    r->tensors++;
    return m;
}

void report_free(struct report *r)
{
    for (size_t i = 0; i < r->tensors; i++) {
        free(r->tensor[i].name);
        free(r->tensor[i].dtype_text);
        free(r->tensor[i].shape);
        free(r->tensor[i].spark);
    }
    free(r->tensor);
    free(r->map);
}
