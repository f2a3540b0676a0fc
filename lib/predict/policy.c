/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/policy.h"

#include "format.h"

enum { PREFIX = 32 }; /* bytes of a message besides its blocks (formats/message.md) */

float pici_policy_threshold(const struct policy_thresholds *thresholds, enum pici_format format, enum policy_link link,
                            int gather)
{
    static const struct policy_thresholds bitmap = {{0.5F, 0.6F}, 0.1F}, coo = {{0.6F, 0.7F}, 0.5F};
    const struct policy_thresholds *usual = format == PICI_COO ? &coo : &bitmap;
    const float said = gather ? thresholds->gather : thresholds->reduce[link];
    if (said >= 0)
        return said;
    if (format == PICI_DENSE)
        return 1;
    return gather ? usual->gather : usual->reduce[link];
}

double pici_policy_sparsity(uint64_t nonzeros, uint64_t elements)
{
    return elements ? (double)(elements - nonzeros) / (double)elements : 1;
}

int pici_policy_dense(double sparsity, float threshold)
{
    return threshold > 0 && (float)sparsity <= threshold;
}

void pici_policy_begin(struct policy_history *history)
{
    *history = (struct policy_history){0};
}

int pici_policy_count(const struct policy_history *history, float threshold, int contributions, double *density)
{
    *density = POLICY_UNKNOWN;
    if (pici_policy_dense(1, threshold))
        return 0;
    if (!history->last_dense || history->doubted)
        return 1;
    *density = history->last_density;
    for (int more = contributions - history->contributions; more > 0 && *density < 1; more--) {
        /* in this form rounding cannot make the density fall */
        const double next = *density + history->first_density * (1 - *density);
        if (next == *density)
            break;
        *density = next;
    }
    return !pici_policy_dense(1 - *density, threshold);
}

void pici_policy_sent(struct policy_history *history, double density, int contributions, int dense)
{
    history->doubted = 0;
    if (density < 0)
        return;
    if (!history->sends++)
        history->first_density = density;
    history->last_density = density;
    history->contributions = contributions;
    history->last_dense = dense;
}

void pici_policy_received(struct policy_history *history, int dense)
{
    history->doubted |= !dense;
}

/* ---- bytes ---- */

/* The number of nonzeros of a block; their positions are not known. */
struct spread {
    double elements, nonzeros, density;
};

/* The probability that at least one of this many elements is not zero, if positions are independent. */
static double chance(const struct spread *spread, uint64_t elements)
{
    double none = 1, zero_chance = 1 - spread->density;
    if ((double)elements == spread->elements)
        return 1;
    for (; elements; elements >>= 1, zero_chance *= zero_chance)
        if (elements & 1)
            none *= zero_chance;
    return 1 - none;
}

/* The expected bytes of a tile of this many elements, in the container that is cheapest for the expected number of
 * nonzeros. Each real tile takes its own cheapest container, so the mean over tiles is at most this, and hardly
 * less. */
static double tile_bytes(const struct spread *spread, uint64_t elements, unsigned width)
{
    const double nonzeros = spread->density * (double)elements, some = chance(spread, elements);
    double where = TILE_BITS_BYTES, zeros = ((double)elements - nonzeros) * width, descriptor = 2 * some;
    if (nonzeros < OFFSETS12_MOST + 1) {
        where = 1.5 * nonzeros + some * (2 - some) / 4; /* half a byte more if the number is odd */
        descriptor = some;
    } else if (nonzeros <= OFFSETS8_MOST) {
        where = RUNS + nonzeros;
    }
    return nonzeros * width + (where < zeros ? where : zeros) + descriptor;
}

/* The expected bytes of a group of this many elements besides its tiles: occupancy and padding. */
static double group_bytes(const struct spread *spread, uint64_t elements, unsigned unit)
{
    return chance(spread, elements) * (4 + (unit - 1) / 2.0);
}

static double hybrid_bytes(unsigned dtype, uint64_t elements, uint64_t nonzeros)
{
    struct fmt_layout layout;
    (void)fmt_layout_hybrid(&layout, FMT_VERSION, dtype, elements, 0, 0);
    if (!nonzeros)
        return (double)layout.body_offset;
    const struct spread spread = {(double)elements, (double)nonzeros, (double)nonzeros / (double)elements};
    const unsigned width = 1u << layout.width_log2, unit = fmt_unit(layout.width_log2);
    const uint64_t group = (uint64_t)GROUP_TILES * TILE, tiles = elements / TILE, groups = elements / group;
    double bytes = (double)layout.body_offset + (double)groups * group_bytes(&spread, group, unit);
    if (tiles)
        bytes += (double)tiles * tile_bytes(&spread, TILE, width);
    if (elements % TILE)
        bytes += tile_bytes(&spread, elements % TILE, width);
    if (elements % group)
        bytes += group_bytes(&spread, elements % group, unit);
    return bytes;
}

size_t pici_policy_bytes(enum pici_format format, enum pici_dtype dtype, const uint64_t *elements,
                         const uint64_t *nonzeros, int blocks)
{
    size_t bytes = 0;
    if ((unsigned)format > FMT_HYBRID || fmt_width_log2((unsigned)dtype) < 0)
        return 0;
    for (int i = 0; i < blocks; i++) {
        struct fmt_layout layout;
        if (format == PICI_HYBRID) {
            const double more = hybrid_bytes((unsigned)dtype, elements[i], nonzeros[i]);
            if (more >= (double)(SIZE_MAX - bytes))
                return 0;
            layout.block_bytes = (uint64_t)(more + 0.5);
        } else if (!fmt_layout(&layout, (unsigned)format, (unsigned)dtype, elements[i],
                               format == PICI_DENSE ? elements[i] : nonzeros[i])) {
            return 0;
        }
        if (layout.block_bytes > SIZE_MAX - bytes)
            return 0;
        bytes += (size_t)layout.block_bytes;
    }
    return bytes;
}

/* ---- time ---- */

/* Nanoseconds for a tile of f32: `empty` without nonzeros, and `more` in addition, interpolated linearly between
 * `points` nonzeros. The first row is to encode and to add, the second to encode and to decode. For other widths
 * `empty` is proportional to the bytes of a tile, and so is `more` for narrower types; wider types have the `more` of
 * f32. Measured with slices of 4 MiB that are not in the caches, one thread, on a Xeon with AVX-512. For slices in the
 * caches compare picitool bench --format auto --size 4M --sparsity 0,80,90,95,99,100. */
enum { POINTS = 5 };
static const double points[POINTS] = {41, 205, 410, 819, TILE}; /* 1, 5, 10, 20 and 100% */
static const struct {
    double empty, more[POINTS];
} coding[2][FMT_HYBRID + 1] = {
    {[FMT_BITMAP] = {1170, {600, 2090, 2210, 2330, 3860}},
     [FMT_COO] = {1560, {830, 2190, 2970, 4050, 12900}},
     [FMT_HYBRID] = {690, {420, 1240, 2200, 1560, 4600}}},
    {[FMT_BITMAP] = {1930, {700, 1890, 2100, 2030, 2730}},
     [FMT_COO] = {3240, {340, 450, 740, 1690, 9280}},
     [FMT_HYBRID] = {1670, {620, 1650, 1870, 1630, 3040}}},
};

static double coding_ns(unsigned format, unsigned dtype, uint64_t elements, uint64_t nonzeros, int gather)
{
    const double tiles = (double)elements / TILE, nonzeros_each = elements ? (double)nonzeros / tiles : 0;
    const double *more = coding[gather][format].more;
    double before = 0, point_before = 0;
    int i = 0;
    for (; i < POINTS - 1 && nonzeros_each > points[i]; i++) {
        before = more[i];
        point_before = points[i];
    }
    const double fraction = (nonzeros_each - point_before) / (points[i] - point_before);
    const double width_factor = (double)(1u << fmt_width_log2(dtype)) / 4,
                 narrow_factor = width_factor < 1 ? width_factor : 1;
    return tiles *
           (width_factor * coding[gather][format].empty + narrow_factor * (before + fraction * (more[i] - before)));
}

double pici_policy_seconds(enum pici_format format, enum pici_dtype dtype, const uint64_t *elements,
                           const uint64_t *nonzeros, int blocks, const struct policy_auto *auto_options)
{
    const size_t bytes = format == PICI_DENSE ? 0 : pici_policy_bytes(format, dtype, elements, nonzeros, blocks);
    double nanoseconds = 0;
    if (!bytes)
        return -1;
    for (int i = 0; i < blocks; i++)
        nanoseconds += coding_ns((unsigned)format, (unsigned)dtype, elements[i], nonzeros[i], auto_options->gather);
    return (double)bytes / auto_options->bandwidth +
           1e-9 * nanoseconds * (auto_options->cost_scale > 0 ? auto_options->cost_scale : 1);
}

int pici_policy_tiny(enum pici_dtype dtype, const uint64_t *elements, int blocks,
                     const struct policy_auto *auto_options)
{
    uint64_t all = 0;
    double least = coding_ns(FMT_BITMAP, (unsigned)dtype, TILE, 0, auto_options->gather);
    for (int i = 0; i < blocks; i++)
        all += elements[i] < TILE ? elements[i] : TILE;
    for (unsigned sparse_format = FMT_COO; sparse_format <= FMT_HYBRID; sparse_format++) {
        const double nanoseconds = coding_ns(sparse_format, (unsigned)dtype, TILE, 0, auto_options->gather);
        least = nanoseconds < least ? nanoseconds : least;
    }
    return all < TILE && (double)(all * pici_dtype_width(dtype)) / auto_options->bandwidth <
                             1e-9 * least * (auto_options->cost_scale > 0 ? auto_options->cost_scale : 1);
}

enum pici_format pici_policy_format(enum pici_format format, enum pici_dtype dtype, const uint64_t *elements,
                                    const uint64_t *nonzeros, int blocks, const struct policy_auto *auto_options)
{
    if (format != PICI_AUTO)
        return format;
    enum pici_format best = PICI_DENSE;
    double least = -1;
    for (unsigned sparse_format = FMT_BITMAP; sparse_format <= FMT_HYBRID; sparse_format++) {
        const double seconds =
            auto_options->formats >> sparse_format & 1
                ? pici_policy_seconds((enum pici_format)sparse_format, dtype, elements, nonzeros, blocks, auto_options)
                : -1;
        if (seconds >= 0 && (least < 0 || seconds < least)) {
            least = seconds;
            best = (enum pici_format)sparse_format;
        }
    }
    const size_t dense = pici_policy_bytes(PICI_DENSE, dtype, elements, nonzeros, blocks);
    return dense && dense <= pici_policy_bytes(best, dtype, elements, nonzeros, blocks) ? PICI_DENSE : best;
}

/* ---- packed messages */

/* By dtype: packed bytes of normally distributed values, of one level, as a fraction of their bytes. For each table of
 * kernels: the nanoseconds that a byte of them takes longer than in a dense block, to encode and add, and to encode and
 * decode. Measured with slices of 1 MiB read from memory, one thread, on a Xeon with AVX-512. Beside a sparse block it
 * takes longer: its values are not where a kernel for packed values wants them. */
static const struct packing_costs {
    double ratio, more[POLICY_KERNELS][2];
} packing_of[DTYPE_FLOAT_LAST + 1] = {
    [PICI_F32] = {0.850, {{0.84, 0.81}, {0.16, 0.10}, {0.18, 0.10}}},
    [PICI_F64] = {0.881, {{1.07, 1.00}, {0.63, 0.59}, {0.56, 0.53}}},
    [PICI_F16] = {0.888, {{1.72, 1.53}, {0.63, 0.51}, {0.41, 0.32}}},
    [PICI_BF16] = {0.700, {{1.28, 1.13}, {0.36, 0.24}, {0.18, 0.10}}},
    [PICI_F8E4M3] = {0.904, {{4.29, 4.08}, {1.16, 1.03}, {0.75, 0.62}}},
    [PICI_F8E5M2] = {0.779, {{3.16, 3.00}, {0.88, 0.75}, {0.45, 0.39}}},
};
static const double SPARSE_MORE[POLICY_KERNELS] = {0.4, 0.25, 0.2};

/* Of a message: the bytes of a run besides its values, and the seconds before the first of them. */
enum { RUN_BYTES = 64 };
static const double PACKING_BEGINS = 1e-6;

double pici_policy_packed(enum pici_dtype dtype, double values, double ratio)
{
    const double bytes = values * (double)pici_dtype_width(dtype);
    if (!fmt_is_float((unsigned)dtype) || ratio >= 1)
        return bytes;
    const double packed = bytes * (ratio > 0 ? ratio : packing_of[dtype].ratio) + RUN_BYTES;
    return packed < bytes ? packed : bytes;
}

int pici_policy_packs(const struct policy_packing *packing, enum pici_format unpacked, enum pici_dtype dtype,
                      double values, enum policy_link link, int gather, double ratio)
{
    if (!fmt_is_float((unsigned)dtype) || packing->pack != PICI_PACKING_AUTO)
        return fmt_is_float((unsigned)dtype) && packing->pack == PICI_PACKING_PLANES;
    const double bytes = values * (double)pici_dtype_width(dtype),
                 saved = bytes - pici_policy_packed(dtype, values, ratio);
    const double(*const more)[2] = packing_of[dtype].more;
    double slower = 1e-9 * more[packing->kernels][gather];
    if (packing->more[gather] > 0) /* measured for f32 by the ranks' own kernels */
        slower = packing->more[gather] * more[packing->kernels][gather] /
                 packing_of[PICI_F32].more[packing->kernels][gather];
    if (unpacked != PICI_DENSE)
        slower += 1e-9 * SPARSE_MORE[packing->kernels];
    return packing->bandwidth[link] > 0 && saved / packing->bandwidth[link] > bytes * slower + PACKING_BEGINS;
}

double pici_policy_slower(enum policy_kernels kernels, enum pici_format unpacked, enum pici_dtype dtype, int gather)
{
    const struct packing_costs *const costs = &packing_of[dtype];
    double nanoseconds = costs->more[kernels][gather] - costs->more[POLICY_AVX512][gather];
    if (unpacked != PICI_DENSE)
        nanoseconds += SPARSE_MORE[kernels] - SPARSE_MORE[POLICY_AVX512];
    return 1e-9 * nanoseconds;
}

/* The bytes of the longest block of this many elements in any format; 0: more than size_t holds. */
size_t pici_policy_longest(enum pici_dtype dtype, uint64_t elements)
{
    size_t longest = 0;
    const enum pici_format last = fmt_is_float((unsigned)dtype) ? PICI_PACKED : PICI_HYBRID;
    for (int format = PICI_DENSE; format <= (int)last; format++) {
        const size_t bound = pici_bound((enum pici_format)format, dtype, elements);
        if (!bound)
            return 0;
        longest = bound > longest ? bound : longest;
    }
    return longest;
}

int pici_early_fits(int ranks, enum pici_dtype dtype, uint64_t elements)
{
    return pici_early_ranks(ranks) && elements && elements <= EARLY_DATA / pici_dtype_width(dtype) &&
           pici_policy_longest(dtype, elements) <= EARLY_MESSAGE - PREFIX;
}
