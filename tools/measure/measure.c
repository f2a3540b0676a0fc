/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/count.h"

bool scratch_fit(struct scratch *t, size_t n)
{
    if (n > t->capacity) {
        free(t->memory);
        t->memory = malloc(n);
        t->capacity = t->memory ? n : 0;
    }
    return t->memory != NULL;
}

bool measure_mix(struct pici_mix *mix, struct scratch *t, enum pici_dtype dtype, const void *elements, uint64_t n,
                 enum pici_zeros zeros)
{
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.zeros = zeros;
    const size_t capacity = pici_bound(PICI_HYBRID, dtype, n);
    size_t size;
    *mix = (struct pici_mix)PICI_MIX_INIT;
    return capacity && scratch_fit(t, capacity) &&
           pici_compress(t->memory, capacity, &size, elements, n, dtype, PICI_HYBRID, &codec_options) == PICI_OK &&
           pici_mix(mix, t->memory, size) == PICI_OK;
}

static bool is_float(enum pici_dtype dtype)
{
    switch (dtype) {
    case PICI_F32:
    case PICI_F64:
    case PICI_F16:
    case PICI_BF16:
    case PICI_F8E4M3:
    case PICI_F8E5M2: return true;
    default: return false;
    }
}

uint64_t measure_negative_zeros(enum pici_dtype dtype, const void *elements, uint64_t n)
{
    return is_float(dtype) ? count_negative_zeros(elements, (size_t)n, pici_dtype_width(dtype)) : 0;
}

void mix_sum(struct pici_mix *total, const struct pici_mix *mix)
{
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        total->tiles[c] += mix->tiles[c];
        total->nnz[c] += mix->nnz[c];
        total->position_bytes[c] += mix->position_bytes[c];
        total->value_bytes[c] += mix->value_bytes[c];
    }
    total->other_bytes += mix->other_bytes;
    total->sign_tiles += mix->sign_tiles;
    total->sign_bytes += mix->sign_bytes;
    total->negative_zeros += mix->negative_zeros;
}

uint64_t hybrid_head(uint64_t n)
{
    enum { HEADER = 48, GROUP = 32 * 4096, ENTRY = 4 };
    return (HEADER + (n + GROUP - 1) / GROUP * ENTRY + 15) / 16 * 16;
}

static uint64_t mix_bytes(const struct pici_mix *mix)
{
    uint64_t bytes = mix->other_bytes;
    for (int c = 0; c < PICI_CONTAINERS; c++)
        bytes += mix->position_bytes[c] + mix->value_bytes[c];
    return bytes;
}

/* The bits that tell which `some` of n things these are, at random. */
static double choice_bits(double some, double n)
{
    return some > 0 && some < n ? some * log2(n / some) + (n - some) * log2(n / (n - some)) : 0;
}

void sizes_end(struct sizes *s)
{
    const double n = (double)s->elements, negative = (double)s->negative_zeros, set = (double)s->nnz - negative;
    const double bits = choice_bits(set, n) + choice_bits(negative, n - set);
    s->bound = s->elements ? set * ((double)s->dense_bytes / n) + bits / 8 : 0;
}

/* The length of a block in each format. Returns that of the shortest. */
static uint64_t lengths(uint64_t bytes[FORMATS], enum pici_dtype dtype, uint64_t n, uint64_t nnz,
                        const struct pici_mix *mix)
{
    /* pici_bound is the length of a block without zeros. A pici block is shorter by the values of its zeros. A coo
     * block of nnz values is as long as one of nnz elements without zeros: positions have 32 bits at either count. */
    bytes[PICI_DENSE] = pici_bound(PICI_DENSE, dtype, n);
    bytes[PICI_BITMAP] = pici_bound(PICI_BITMAP, dtype, n) - (n - nnz) * pici_dtype_width(dtype);
    bytes[PICI_COO] = pici_bound(PICI_COO, dtype, nnz);
    bytes[PICI_HYBRID] = mix_bytes(mix);
    uint64_t best = UINT64_MAX;
    for (int f = 0; f < FORMATS; f++)
        if (bytes[f] < best)
            best = bytes[f];
    return best;
}

void sizes_add(struct sizes *s, enum pici_dtype dtype, uint64_t n, uint64_t nnz, const struct pici_mix *mix)
{
    uint64_t bytes[FORMATS];
    s->best += lengths(bytes, dtype, n, nnz, mix);
    for (int f = 0; f < FORMATS; f++)
        s->bytes[f] += bytes[f];
    mix_sum(&s->mix, mix);
    s->elements += n;
    s->nnz += nnz;
    s->dense_bytes += n * pici_dtype_width(dtype);
}

void sizes_by_value(struct sizes *s, enum pici_dtype dtype, uint64_t n, uint64_t nnz, const struct pici_mix *mix,
                    uint64_t negative_zeros, const struct pici_mix *by_value)
{
    uint64_t bytes[FORMATS];
    s->negative_zeros += negative_zeros;
    s->by_value_saves += lengths(bytes, dtype, n, nnz, mix);
    s->by_value_saves -= lengths(bytes, dtype, n, nnz - negative_zeros, by_value);
}

static void rival_sum(struct rival *total, const struct rival *r)
{
    total->bytes += r->bytes;
    total->compress += r->compress;
    total->decompress += r->decompress;
}

void sizes_sum(struct sizes *total, const struct sizes *s)
{
    for (int f = 0; f < FORMATS; f++)
        total->bytes[f] += s->bytes[f];
    mix_sum(&total->mix, &s->mix);
    rival_sum(&total->pici, &s->pici);
    rival_sum(&total->zstd, &s->zstd);
    total->bound += s->bound;
    total->negative_zeros += s->negative_zeros;
    total->by_value_saves += s->by_value_saves;
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

struct measured *report_add(struct report *report, const char *name, size_t name_len)
{
    if (report->tensors == report->room) {
        size_t capacity = report->room ? 2 * report->room : 16;
        struct measured *bigger =
            capacity <= SIZE_MAX / sizeof *bigger ? realloc(report->tensor, capacity * sizeof *bigger) : NULL;
        if (!bigger)
            return NULL;
        report->tensor = bigger;
        report->room = capacity;
    }
    struct measured *measured = &report->tensor[report->tensors];
    *measured = (struct measured){.name = malloc(name_len + 1), .name_len = name_len};
    if (!measured->name)
        return NULL;
    memcpy(measured->name, name, name_len);
    measured->name[name_len] = 0;
    report->tensors++;
    return measured;
}

void report_free(struct report *report)
{
    for (size_t i = 0; i < report->tensors; i++) {
        free(report->tensor[i].name);
        free(report->tensor[i].dtype_text);
        free(report->tensor[i].shape);
        free(report->tensor[i].sizes);
        free(report->tensor[i].spark);
        free(report->tensor[i].view);
    }
    free(report->tensor);
    free(report->map);
    if (report->grid)
        grid_free(report->grid);
    free(report->grid);
}
