/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/count.h"

bool scratch_fit(struct scratch *scratch, size_t size)
{
    if (size > scratch->capacity) {
        free(scratch->memory);
        scratch->memory = malloc(size);
        scratch->capacity = scratch->memory ? size : 0;
    }
    return scratch->memory != NULL;
}

bool measure_breakdown(struct pici_breakdown *breakdown, struct scratch *scratch, enum pici_dtype dtype,
                       const void *elements, uint64_t count, enum pici_zeros zeros)
{
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.zeros = zeros;
    const size_t capacity = pici_bound(PICI_HYBRID, dtype, count);
    size_t size;
    *breakdown = (struct pici_breakdown)PICI_BREAKDOWN_INIT;
    return capacity && scratch_fit(scratch, capacity) &&
           pici_compress(scratch->memory, capacity, &size, elements, count, dtype, PICI_HYBRID, &codec_options) ==
               PICI_OK &&
           pici_breakdown(breakdown, scratch->memory, size) == PICI_OK;
}

bool measure_packed(uint64_t *bytes, struct scratch *scratch, enum pici_dtype dtype, const void *elements,
                    uint64_t count)
{
    const size_t capacity = pici_bound(PICI_PACKED, dtype, count);
    size_t size;
    *bytes = UINT64_MAX;
    if (!capacity) /* the dtype is not a float */
        return true;
    if (!scratch_fit(scratch, capacity) ||
        pici_compress(scratch->memory, capacity, &size, elements, count, dtype, PICI_PACKED, NULL) != PICI_OK)
        return false;
    *bytes = size;
    return true;
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

uint64_t measure_negative_zeros(enum pici_dtype dtype, const void *elements, uint64_t count)
{
    return is_float(dtype) ? count_negative_zeros(elements, (size_t)count, pici_dtype_width(dtype)) : 0;
}

void breakdown_sum(struct pici_breakdown *total, const struct pici_breakdown *breakdown)
{
    for (int container = 0; container < PICI_CONTAINERS; container++) {
        total->tiles[container] += breakdown->tiles[container];
        total->nnz[container] += breakdown->nnz[container];
        total->position_bytes[container] += breakdown->position_bytes[container];
        total->value_bytes[container] += breakdown->value_bytes[container];
    }
    total->other_bytes += breakdown->other_bytes;
    total->sign_tiles += breakdown->sign_tiles;
    total->sign_bytes += breakdown->sign_bytes;
    total->negative_zeros += breakdown->negative_zeros;
}

uint64_t hybrid_head(uint64_t elements)
{
    enum { HEADER = 48, GROUP = 32 * 4096, ENTRY = 4 };
    return (HEADER + (elements + GROUP - 1) / GROUP * ENTRY + 15) / 16 * 16;
}

static uint64_t breakdown_bytes(const struct pici_breakdown *breakdown)
{
    uint64_t bytes = breakdown->other_bytes;
    for (int container = 0; container < PICI_CONTAINERS; container++)
        bytes += breakdown->position_bytes[container] + breakdown->value_bytes[container];
    return bytes;
}

/* The bits to select `some` of `total` things at random. */
static double choice_bits(double some, double total)
{
    return some > 0 && some < total ? some * log2(total / some) + (total - some) * log2(total / (total - some)) : 0;
}

void sizes_end(struct sizes *sizes)
{
    const double elements = (double)sizes->elements, negative = (double)sizes->negative_zeros,
                 set = (double)sizes->nonzeros - negative;
    const double bits = choice_bits(set, elements) + choice_bits(negative, elements - set);
    sizes->bound = sizes->elements ? set * ((double)sizes->dense_bytes / elements) + bits / 8 : 0;
}

/* Computes the length of a block in each format. Returns the shortest. */
static uint64_t lengths(uint64_t bytes[FORMATS], enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                        const struct pici_breakdown *breakdown)
{
    /* pici_bound is the length of a block without zeros. A bitmap block is shorter by the values of its zeros. A coo
     * block depends only on the number of nonzeros, since positions always have 32 bits. */
    bytes[PICI_DENSE] = pici_bound(PICI_DENSE, dtype, elements);
    bytes[PICI_BITMAP] = pici_bound(PICI_BITMAP, dtype, elements) - (elements - nonzeros) * pici_dtype_width(dtype);
    bytes[PICI_COO] = pici_bound(PICI_COO, dtype, nonzeros);
    bytes[PICI_HYBRID] = breakdown_bytes(breakdown);
    uint64_t best = UINT64_MAX;
    for (int format = 0; format < FORMATS; format++)
        if (bytes[format] < best)
            best = bytes[format];
    return best;
}

void sizes_add(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
               const struct pici_breakdown *breakdown)
{
    uint64_t bytes[FORMATS];
    sizes->best += lengths(bytes, dtype, elements, nonzeros, breakdown);
    for (int format = 0; format < FORMATS; format++)
        sizes->bytes[format] += bytes[format];
    breakdown_sum(&sizes->breakdown, breakdown);
    sizes->elements += elements;
    sizes->nonzeros += nonzeros;
    sizes->dense_bytes += elements * pici_dtype_width(dtype);
}

void sizes_by_value(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                    const struct pici_breakdown *breakdown, uint64_t negative_zeros,
                    const struct pici_breakdown *by_value)
{
    uint64_t bytes[FORMATS];
    sizes->negative_zeros += negative_zeros;
    sizes->by_value_saves += lengths(bytes, dtype, elements, nonzeros, breakdown);
    sizes->by_value_saves -= lengths(bytes, dtype, elements, nonzeros - negative_zeros, by_value);
}

void sizes_packed(struct sizes *sizes, enum pici_dtype dtype, uint64_t elements, uint64_t nonzeros,
                  const struct pici_breakdown *breakdown, uint64_t packed)
{
    uint64_t bytes[FORMATS];
    const uint64_t best = lengths(bytes, dtype, elements, nonzeros, breakdown);
    sizes->packing_saves += packed < best ? best - packed : 0;
}

static void rival_sum(struct rival *total, const struct rival *rival)
{
    total->bytes += rival->bytes;
    total->compress += rival->compress;
    total->decompress += rival->decompress;
}

void sizes_sum(struct sizes *total, const struct sizes *sizes)
{
    for (int format = 0; format < FORMATS; format++)
        total->bytes[format] += sizes->bytes[format];
    breakdown_sum(&total->breakdown, &sizes->breakdown);
    rival_sum(&total->pici, &sizes->pici);
    rival_sum(&total->zstd, &sizes->zstd);
    total->bound += sizes->bound;
    total->negative_zeros += sizes->negative_zeros;
    total->by_value_saves += sizes->by_value_saves;
    total->packing_saves += sizes->packing_saves;
    total->best += sizes->best;
    total->elements += sizes->elements;
    total->nonzeros += sizes->nonzeros;
    total->dense_bytes += sizes->dense_bytes;
}

enum pici_format sizes_best(const struct sizes *sizes)
{
    int best = 0;
    for (int format = 1; format < FORMATS; format++)
        if (sizes->bytes[format] < sizes->bytes[best])
            best = format;
    return (enum pici_format)best;
}

struct measured *report_add(struct report *report, const char *name, size_t name_len)
{
    if (report->tensors == report->capacity) {
        size_t capacity = report->capacity ? 2 * report->capacity : 16;
        struct measured *bigger =
            capacity <= SIZE_MAX / sizeof *bigger ? realloc(report->tensor, capacity * sizeof *bigger) : NULL;
        if (!bigger)
            return NULL;
        report->tensor = bigger;
        report->capacity = capacity;
    }
    struct measured *measured = &report->tensor[report->tensors];
    *measured = (struct measured){.name = malloc(name_len + 1), .name_size = name_len};
    if (!measured->name)
        return NULL;
    memcpy(measured->name, name, name_len);
    measured->name[name_len] = 0;
    report->tensors++;
    return measured;
}

void report_refer(struct report *report, enum pici_dtype dtype, uint64_t elements)
{
    const uint64_t bytes = elements * pici_dtype_width(dtype);
    report->referred++;
    report->referred_bytes = report->referred_bytes <= UINT64_MAX - bytes ? report->referred_bytes + bytes : UINT64_MAX;
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
    free(report->density_map);
    if (report->grid)
        grid_free(report->grid);
    free(report->grid);
}
