/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/policy.h"

#include "format.h"

enum { PREFIX = 32 }; /* bytes of a message besides its blocks (formats/message.md) */

float pici_policy_threshold(const struct policy_thresholds *t, enum pici_format format, enum policy_link link,
                            int gather)
{
    static const struct policy_thresholds pici = {{0.5F, 0.6F}, 0.1F}, coo = {{0.6F, 0.7F}, 0.5F};
    const struct policy_thresholds *usual = format == PICI_COO ? &coo : &pici;
    const float said = gather ? t->gather : t->reduce[link];
    if (said >= 0)
        return said;
    return format == PICI_DENSE ? 1 : gather ? usual->gather : usual->reduce[link];
}

double pici_policy_sparsity(uint64_t nnz, uint64_t n)
{
    return n ? (double)(n - nnz) / (double)n : 1;
}

int pici_policy_dense(double sparsity, float threshold)
{
    return threshold > 0 && (float)sparsity <= threshold;
}

void pici_policy_begin(struct policy_history *h)
{
    *h = (struct policy_history){0};
}

int pici_policy_count(const struct policy_history *h, float threshold, int contributions, double *density)
{
    *density = POLICY_UNKNOWN;
    if (pici_policy_dense(1, threshold))
        return 0;
    if (!h->last_dense || h->doubted)
        return 1;
    *density = h->last;
    for (int m = contributions - h->contributions; m > 0 && *density < 1; m--) {
        const double next =
            *density + h->first * (1 - *density); /* in this form rounding cannot make the density fall */
        if (next == *density)
            break;
        *density = next;
    }
    return !pici_policy_dense(1 - *density, threshold);
}

void pici_policy_sent(struct policy_history *h, double density, int contributions, int dense)
{
    h->doubted = 0;
    if (density < 0)
        return;
    if (!h->sends++)
        h->first = density;
    h->last = density;
    h->contributions = contributions;
    h->last_dense = dense;
}

void pici_policy_received(struct policy_history *h, int dense)
{
    h->doubted |= !dense;
}

/* ---- bytes ---- */

/* The number of nonzeros of a block; their positions are not known. */
struct spread {
    double n, nnz, density;
};

/* The probability that at least one of len elements is not zero, if positions are independent. */
static double chance(const struct spread *s, uint64_t len)
{
    double none = 1, x = 1 - s->density;
    if ((double)len == s->n)
        return 1;
    for (; len; len >>= 1, x *= x)
        if (len & 1)
            none *= x;
    return 1 - none;
}

/* The expected bytes of a tile of len elements. The container is taken to be the one that is cheapest for the expected
 * number of nonzeros. Each tile takes its own cheapest container, so the mean over tiles is at most this, and hardly
 * less. */
static double tile_bytes(const struct spread *s, uint64_t len, unsigned width)
{
    const double m = s->density * (double)len, some = chance(s, len);
    double where = TILE_BITS_BYTES, zeros = ((double)len - m) * width, descriptor = 2 * some;
    if (m < OFFSETS12_MOST + 1) {
        where = 1.5 * m + some * (2 - some) / 4; /* half a byte more if the number is odd */
        descriptor = some;
    } else if (m <= OFFSETS8_MOST) {
        where = RUNS + m;
    }
    return m * width + (where < zeros ? where : zeros) + descriptor;
}

/* The expected bytes of a group of len elements besides its tiles: occupancy and padding. */
static double group_bytes(const struct spread *s, uint64_t len, unsigned unit)
{
    return chance(s, len) * (4 + (unit - 1) / 2.0);
}

static double hybrid_bytes(unsigned dtype, uint64_t n, uint64_t nnz)
{
    struct fmt_layout l;
    (void)fmt_layout_hybrid(&l, FMT_VERSION, dtype, n, 0, 0);
    if (!nnz)
        return (double)l.body_offset;
    const struct spread s = {(double)n, (double)nnz, (double)nnz / (double)n};
    const unsigned width = 1u << l.width_log2, unit = fmt_unit(l.width_log2);
    const uint64_t group = (uint64_t)GROUP_TILES * TILE, tiles = n / TILE, groups = n / group;
    double bytes = (double)l.body_offset + (double)groups * group_bytes(&s, group, unit);
    if (tiles)
        bytes += (double)tiles * tile_bytes(&s, TILE, width);
    if (n % TILE)
        bytes += tile_bytes(&s, n % TILE, width);
    if (n % group)
        bytes += group_bytes(&s, n % group, unit);
    return bytes;
}

size_t pici_policy_bytes(enum pici_format format, enum pici_dtype dtype, const uint64_t *n, const uint64_t *nnz,
                         int blocks)
{
    size_t bytes = 0;
    if ((unsigned)format > FMT_HYBRID || fmt_width_log2((unsigned)dtype) < 0)
        return 0;
    for (int i = 0; i < blocks; i++) {
        struct fmt_layout l;
        if (format == PICI_HYBRID) {
            const double more = hybrid_bytes((unsigned)dtype, n[i], nnz[i]);
            if (more >= (double)(SIZE_MAX - bytes))
                return 0;
            l.block_bytes = (uint64_t)(more + 0.5);
        } else if (!fmt_layout(&l, (unsigned)format, (unsigned)dtype, n[i], format == PICI_DENSE ? n[i] : nnz[i])) {
            return 0;
        }
        if (l.block_bytes > SIZE_MAX - bytes)
            return 0;
        bytes += (size_t)l.block_bytes;
    }
    return bytes;
}

/* ---- time ---- */

/* Nanoseconds for a tile of f32: `empty` without nonzeros, and `more` in addition for so many nonzeros, interpolated
 * linearly. The first row is to encode and to add, the second to encode and to decode. For other widths `empty` is
 * proportional to the bytes of a tile, and so is `more` for narrower types; for wider types `more` is that of f32.
 * Measured with slices of 4 MiB that are not in the caches, one thread, on a Xeon with AVX-512. For slices in the
 * caches compare picitool bench --format auto --size 4M --sparsity 0,80,90,95,99,100. */
enum { POINTS = 5 };
static const double points[POINTS] = {41, 205, 410, 819, TILE}; /* 1, 5, 10, 20 and 100% */
static const struct {
    double empty, more[POINTS];
} coding[2][FMT_HYBRID + 1] = {
    {[FMT_PICI] = {1170, {600, 2090, 2210, 2330, 3860}},
     [FMT_COO] = {1560, {830, 2190, 2970, 4050, 12900}},
     [FMT_HYBRID] = {690, {420, 1240, 2200, 1560, 4600}}},
    {[FMT_PICI] = {1930, {700, 1890, 2100, 2030, 2730}},
     [FMT_COO] = {3240, {340, 450, 740, 1690, 9280}},
     [FMT_HYBRID] = {1670, {620, 1650, 1870, 1630, 3040}}},
};

static double coding_ns(unsigned format, unsigned dtype, uint64_t n, uint64_t nnz, int gather)
{
    const double tiles = (double)n / TILE, m = n ? (double)nnz / tiles : 0;
    const double *more = coding[gather][format].more;
    double before = 0, at = 0;
    int i = 0;
    for (; i < POINTS - 1 && m > points[i]; i++) {
        before = more[i];
        at = points[i];
    }
    const double along = (m - at) / (points[i] - at);
    const double wide = (double)(1u << fmt_width_log2(dtype)) / 4, narrow = wide < 1 ? wide : 1;
    return tiles * (wide * coding[gather][format].empty + narrow * (before + along * (more[i] - before)));
}

double pici_policy_seconds(enum pici_format format, enum pici_dtype dtype, const uint64_t *n, const uint64_t *nnz,
                           int blocks, const struct policy_auto *by)
{
    const size_t bytes = format == PICI_DENSE ? 0 : pici_policy_bytes(format, dtype, n, nnz, blocks);
    double ns = 0;
    if (!bytes)
        return -1;
    for (int i = 0; i < blocks; i++)
        ns += coding_ns((unsigned)format, (unsigned)dtype, n[i], nnz[i], by->gather);
    return (double)bytes / by->bandwidth + 1e-9 * ns * (by->cost_scale > 0 ? by->cost_scale : 1);
}

int pici_policy_tiny(enum pici_dtype dtype, const uint64_t *n, int blocks, const struct policy_auto *by)
{
    uint64_t all = 0;
    double least = coding_ns(FMT_PICI, (unsigned)dtype, TILE, 0, by->gather);
    for (int i = 0; i < blocks; i++)
        all += n[i] < TILE ? n[i] : TILE;
    for (unsigned f = FMT_COO; f <= FMT_HYBRID; f++) {
        const double ns = coding_ns(f, (unsigned)dtype, TILE, 0, by->gather);
        least = ns < least ? ns : least;
    }
    return all < TILE && (double)(all * pici_dtype_width(dtype)) / by->bandwidth <
                             1e-9 * least * (by->cost_scale > 0 ? by->cost_scale : 1);
}

enum pici_format pici_policy_format(enum pici_format format, enum pici_dtype dtype, const uint64_t *n,
                                    const uint64_t *nnz, int blocks, const struct policy_auto *by)
{
    if (format != PICI_AUTO)
        return format;
    enum pici_format best = PICI_DENSE;
    double least = -1;
    for (unsigned f = FMT_PICI; f <= FMT_HYBRID; f++) {
        const double s =
            by->formats >> f & 1 ? pici_policy_seconds((enum pici_format)f, dtype, n, nnz, blocks, by) : -1;
        if (s >= 0 && (least < 0 || s < least)) {
            least = s;
            best = (enum pici_format)f;
        }
    }
    const size_t dense = pici_policy_bytes(PICI_DENSE, dtype, n, nnz, blocks);
    return dense && dense <= pici_policy_bytes(best, dtype, n, nnz, blocks) ? PICI_DENSE : best;
}

/* The bytes of the longest block of n elements in any format; 0: more than size_t holds. */
size_t pici_policy_longest(enum pici_dtype dtype, uint64_t n)
{
    size_t longest = 0;
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        const size_t bound = pici_bound((enum pici_format)f, dtype, n);
        if (!bound)
            return 0;
        longest = bound > longest ? bound : longest;
    }
    return longest;
}

int pici_early_fits(int ranks, enum pici_dtype dtype, uint64_t n)
{
    return pici_early_ranks(ranks) && n && n <= EARLY_DATA / pici_dtype_width(dtype) &&
           pici_policy_longest(dtype, n) <= EARLY_MESSAGE - PREFIX;
}
