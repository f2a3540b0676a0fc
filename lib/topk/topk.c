/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_topk: arguments, threads, and selections among more elements than fit in a cache. */
#include "pici/topk.h"

#include <pthread.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/parallel.h"
#include "cpu/kernels.h"
#include "cpu/topk.h"
#include "philox.h"
#include "topk/accepts.h"

enum {
    PIECE = 4096,              /* elements that stay in the first cache from one kernel to the next */
    SAMPLE_BYTES = 64 << 10,   /* bytes of a sample in memory at a time */
    GUESS_FROM = 1 << 18,      /* GLOBAL: from this many elements on, a sample narrows the search */
    GUESS_SAMPLE = 1 << 13,    /* elements in that sample */
    COUNTED_AT_ONCE = 1 << 30, /* elements that the counters of a tally can count */
    STACK = 256 << 10
};

#define ALL_TIES UINT64_MAX

/* Magnitudes from low to high; `above` elements are larger. */
struct range {
    uint64_t low, high, above;
};

/* A selection among n elements of acc. All threads make several passes over them. Between the passes acc is in the
 * residual, or in the output if there is none. */
struct job {
    const struct pici_topk_kernels *kernels;
    struct pici_topk_terms terms;
    struct pici_topk_to target;
    uint8_t *sums;
    size_t elements;
    unsigned width_log2;
    int threads;

    void (*pass)(struct job *, int i, size_t first, size_t n); /* the current pass: elements [first, first + n) */
    pthread_mutex_t lock;                                      /* guards the three sums of a pass */
    uint64_t nonzeros, reach, counts[TOPK_BINS];
    uint64_t low;   /* of bin 0 of count */
    unsigned shift; /* a bin has 1 << shift magnitudes */
    int tally;      /* pass_sum makes a tally too */
    uint64_t least; /* reach: elements of at least this magnitude */
    /* pass_sum stores the magnitudes in [found_from, least) in the output, from the start of each thread's part on;
     * found_from 0: none */
    uint64_t found_from, found[PICI_MAX_THREADS];

    /* keep magnitudes from least on; of those equal to least only the first `ties` */
    uint64_t ties, ties_before[PICI_MAX_THREADS];

    uint64_t seed, step, sample; /* of a sample; its elements, an even number */
    int gathered;                /* `some` holds the sample */
    uint8_t *some;               /* [SAMPLE_BYTES] */
};

/* ---- passes */

static size_t part_begin(const struct job *job, int i)
{
    return i == job->threads ? job->elements
                             : (size_t)((uint64_t)(job->elements / 64) * (unsigned)i / (unsigned)job->threads * 64);
}

static void pass_thread(void *context, int i)
{
    struct job *job = context;
    const size_t first = part_begin(job, i);
    job->pass(job, i, first, part_begin(job, i + 1) - first);
}

static void run(struct job *job, void (*pass)(struct job *, int i, size_t first, size_t n))
{
    job->pass = pass;
    job->nonzeros = job->reach = 0;
    memset(job->counts, 0, sizeof job->counts);
    if (job->threads > 1)
        pici_parallel(job->threads, STACK, pass_thread, job);
    else
        pass_thread(job, 0);
}

static void add_up(struct job *job, uint64_t nonzeros, uint64_t reach)
{
    pthread_mutex_lock(&job->lock);
    job->nonzeros += nonzeros;
    job->reach += reach;
    pthread_mutex_unlock(&job->lock);
}

static void add_counts(struct job *job, pici_topk_counts some)
{
    pthread_mutex_lock(&job->lock);
    for (int table = 0; table < TOPK_TABLES; table++)
        for (int bin = 0; bin < TOPK_BINS; bin++)
            job->counts[bin] += some[table][bin];
    pthread_mutex_unlock(&job->lock);
}

static const uint8_t *offset(const uint8_t *array, size_t bytes)
{
    return array ? array + bytes : NULL;
}

static uint8_t *offset_to(uint8_t *array, size_t bytes)
{
    return array ? array + bytes : NULL;
}

/* Compute acc. Count its nonzeros and those that reach least, store what found_from asks for, and with job->tally count
 * those in the bins. */
static void pass_sum(struct job *job, int i, size_t first, size_t bytes)
{
    struct pici_topk_survey survey = {.low = job->found_from, .least = job->least};
    if (job->found_from)
        survey.found = job->target.selected + (first << job->width_log2);
    for (size_t some; bytes; first += some, bytes -= some) {
        pici_topk_counts count;
        some = bytes < COUNTED_AT_ONCE ? bytes : COUNTED_AT_ONCE;
        if (job->tally)
            memset(count, 0, sizeof count);
        for (size_t done = 0, part; done < some; done += part) {
            const size_t position = (first + done) << job->width_log2;
            struct pici_topk_terms terms = job->terms;
            part = job->tally && some - done > PIECE ? PIECE : some - done;
            terms.gradient = offset(terms.gradient, position);
            terms.residual = offset(terms.residual, position);
            terms.velocity = offset_to(terms.velocity, position);
            job->kernels->survey(job->sums + position, &terms, part, &survey);
            if (job->tally)
                job->kernels->tally(count, job->sums + position, part, job->low, job->shift);
        }
        if (job->tally)
            add_counts(job, count);
    }
    job->found[i] = survey.count;
    add_up(job, survey.nonzeros, survey.reach);
}

static void pass_tally(struct job *job, int i, size_t first, size_t bytes)
{
    (void)i;
    for (size_t some; bytes; first += some, bytes -= some) {
        pici_topk_counts count = {{0}};
        some = bytes < COUNTED_AT_ONCE ? bytes : COUNTED_AT_ONCE;
        job->kernels->tally(count, job->sums + (first << job->width_log2), some, job->low, job->shift);
        add_counts(job, count);
    }
}

/* Count the elements equal to least. */
static void pass_ties(struct job *job, int i, size_t first, size_t count)
{
    const uint8_t *sums = job->sums + (first << job->width_log2);
    job->ties_before[i] =
        job->kernels->at_least(sums, count, job->least) - job->kernels->at_least(sums, count, job->least + 1);
}

static void pass_place(struct job *job, int i, size_t first, size_t count)
{
    const size_t end = first + count;
    size_t split = end; /* from there on, do not keep elements equal to least */
    if (job->ties != ALL_TIES) {
        const uint64_t before = job->ties_before[i];
        split = first + job->kernels->up_to(job->sums + (first << job->width_log2), count, job->least,
                                            job->ties > before ? job->ties - before : 0);
    }
    for (int after = 0; after < 2; after++) {
        const size_t from = after ? split : first, offset = from << job->width_log2;
        const struct pici_topk_to target = {job->target.selected + offset, offset_to(job->target.residual, offset),
                                            offset_to(job->target.velocity, offset), job->target.stream};
        job->kernels->place(&target, job->sums + offset, (after ? end : split) - from, job->least + (uint64_t)after);
    }
}

/* ---- the k-th largest magnitude */

static uint64_t greatest(const struct job *job) /* magnitude of the dtype */
{
    return (UINT64_C(1) << ((8u << job->width_log2) - 1)) - 1;
}

static void tally_all(struct job *job)
{
    run(job, pass_tally);
}

/* Tally what pass_sum found. */
static void tally_found(struct job *job)
{
    memset(job->counts, 0, sizeof job->counts);
    for (int i = 0; i < job->threads; i++) {
        const uint8_t *next = job->target.selected + (part_begin(job, i) << job->width_log2);
        for (uint64_t left = job->found[i], some; left; left -= some, next += some << job->width_log2) {
            pici_topk_counts count = {{0}};
            some = left < COUNTED_AT_ONCE ? left : COUNTED_AT_ONCE;
            job->kernels->tally(count, next, (size_t)some, job->low, job->shift);
            add_counts(job, count);
        }
    }
}

/* The upper 64 bits of a * b. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Copy elements at offsets. With a constant width, their loads do not wait for each other. */
static inline __attribute__((always_inline)) void pick_by(uint8_t *to, const uint8_t *array, const size_t *from,
                                                          size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * width, array + from[i], width);
}

static void pick(uint8_t *to, const uint8_t *array, const size_t *from, size_t count, unsigned width_log2)
{
    if (width_log2 == 1)
        pick_by(to, array, from, count, 2);
    else if (width_log2 == 2)
        pick_by(to, array, from, count, 4);
    else
        pick_by(to, array, from, count, 8);
}

/* Compute the sums at positions [first, first + count) of the sample, count even, before pass_sum, which may overwrite
 * the gradient. A block of four random words gives two positions. */
static void gather(struct job *job, uint64_t first, size_t count)
{
    enum { AT_ONCE = 512 };
    const uint32_t philox_key[2] = {(uint32_t)job->seed, (uint32_t)(job->seed >> 32)};
    const size_t width = (size_t)1 << job->width_log2;
    uint8_t gradient[AT_ONCE * 8], residual[AT_ONCE * 8], velocity[AT_ONCE * 8];
    size_t from[AT_ONCE];
    struct pici_topk_terms terms = job->terms;
    terms.gradient = gradient;
    terms.residual = terms.residual ? residual : NULL;
    terms.velocity = terms.velocity ? velocity : NULL;
    for (size_t done = 0, some; done < count; done += some) {
        some = count - done < AT_ONCE ? count - done : AT_ONCE;
        for (size_t i = 0; i < some; i += 2) {
            const uint64_t block = (first + done + i) / 2;
            const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)job->step,
                                         (uint32_t)(job->step >> 32)};
            uint32_t word[4];
            philox4x32(word, counter, philox_key);
            for (size_t k = 0; k < 2; k++) {
                const uint64_t random = (uint64_t)word[2 * k + 1] << 32 | word[2 * k];
                from[i + k] = (size_t)multiply_high(random, job->elements) << job->width_log2;
            }
        }
        pick(gradient, job->terms.gradient, from, some, job->width_log2);
        if (terms.residual)
            pick(residual, job->terms.residual, from, some, job->width_log2);
        if (terms.velocity)
            pick(velocity, job->terms.velocity, from, some, job->width_log2);
        job->kernels->accumulate(job->some + done * width, &terms, some);
    }
}

/* Tally the sample. If a sample does not fit in job->some, each tally gathers it again in pieces, so that no sample
 * needs more memory. */
static void tally_sample(struct job *job)
{
    const size_t most = SAMPLE_BYTES >> job->width_log2;
    memset(job->counts, 0, sizeof job->counts);
    for (uint64_t done = 0, some; done < job->sample; done += some) {
        pici_topk_counts count = {{0}};
        some = job->sample - done < most ? job->sample - done : most;
        if (!job->gathered)
            gather(job, done, (size_t)some);
        job->gathered = job->sample <= most;
        job->kernels->tally(count, job->some, (size_t)some, job->low, job->shift);
        add_counts(job, count);
    }
}

/* Divide a range into bins. Its end becomes the end of the last bin. Returns how many there are. */
static uint64_t set_bins(struct job *job, struct range *range)
{
    job->low = range->low;
    job->shift = 0;
    while ((range->high - range->low) >> job->shift >= TOPK_BINS)
        job->shift++;
    const uint64_t bins = ((range->high - range->low) >> job->shift) + 1,
                   last = range->low + ((bins << job->shift) - 1);
    range->high = last < greatest(job) ? last : greatest(job);
    return bins;
}

/* Find the k-th largest of the magnitudes that `tally` counts. It is in the range, and its bin becomes the next range.
 * Set least and ties to keep the k largest. tallied: the range is tallied already. */
static void find_kth(struct job *job, void (*tally)(struct job *), uint64_t k, struct range range, int tallied)
{
    for (;; tallied = 0) {
        uint64_t bin = set_bins(job, &range) - 1;
        if (!tallied)
            tally(job);
        for (; bin && range.above + job->counts[bin] < k; bin--)
            range.above += job->counts[bin];
        range.low += bin << job->shift;
        job->least = range.low;
        job->ties = range.above + job->counts[bin] <= k ? ALL_TIES : k - range.above;
        if (job->shift == 0 || job->ties == ALL_TIES)
            return;
        range.high = range.low + ((UINT64_C(1) << job->shift) - 1);
        range.high = range.high < greatest(job) ? range.high : greatest(job);
    }
}

static struct range everything(const struct job *job)
{
    return (struct range){0, greatest(job), 0};
}

/* ---- selections */

static void place(struct job *job)
{
    if (job->ties != ALL_TIES) {
        if (job->threads > 1)
            run(job, pass_ties);
        uint64_t before = 0;
        for (int i = 0; i < job->threads; i++) {
            const uint64_t here = job->threads > 1 ? job->ties_before[i] : 0;
            job->ties_before[i] = before;
            before += here;
        }
    }
    run(job, pass_place);
}

/* A magnitude that about `rank` elements of the sample reach; 0 if the sample has fewer elements. */
static uint64_t sample_rank(struct job *job, double rank)
{
    if (rank > (double)job->sample)
        return 0;
    find_kth(job, tally_sample, rank < 1 ? 1 : (uint64_t)rank, everything(job), 0);
    return job->least;
}

/* A range that most likely has the k-th largest magnitude: 4 standard deviations of its rank in a sample. */
static struct range guess(struct job *job, uint64_t k)
{
    struct range range = everything(job);
    if (job->elements < GUESS_FROM)
        return range;
    job->sample = GUESS_SAMPLE;
    job->gathered = 0;
    const double rank = (double)k / (double)job->elements * GUESS_SAMPLE;
    double deviation = 1; /* a little more than the root of rank */
    while (deviation * deviation < rank)
        deviation *= 1.2;
    range.low = sample_rank(job, rank + 4 * deviation + 4);
    if (rank > 4 * deviation + 1)
        range.high = sample_rank(job, rank - 4 * deviation);
    return range;
}

/* Keep the k largest. Returns how many there are. The first pass may store the magnitudes in the guessed range in the
 * output, if the sums are not there. Then the next passes read only these. */
static uint64_t select_exact(struct job *job, uint64_t k)
{
    struct range range = guess(job, k);
    const int stores = range.low && job->sums != job->target.selected;
    uint64_t in_range = 0;
    job->found_from = stores ? range.low : 0;
    job->tally = !stores;
    const uint64_t bins = stores ? 0 : set_bins(job, &range);
    job->least = range.high + 1;
    run(job, pass_sum);
    range.above = job->reach;
    for (uint64_t bin = 0; bin < bins; bin++)
        in_range += job->counts[bin];
    for (int i = 0; stores && i < job->threads; i++)
        in_range += job->found[i];
    if (job->nonzeros <= k) {
        k = job->nonzeros;
        job->least = 1;
        job->ties = ALL_TIES;
    } else if (range.above < k && k <= range.above + in_range) {
        find_kth(job, stores ? tally_found : tally_all, k, range, !stores);
    } else {
        find_kth(job, tally_all, k, everything(job), 0);
    }
    place(job);
    return k;
}

/* The least integer that is not less than value >= 0. */
static double round_up(double value)
{
    if (value >= 9007199254740992.) /* 2^53: an integer */
        return value;
    const double down = (double)(uint64_t)value;
    return down < value ? down + 1 : down;
}

/* Keep about the k largest, by a threshold from a sample. Returns how many. */
static uint64_t select_sampled(struct job *job, uint64_t k, double density)
{
    const uint64_t threshold = sample_rank(job, round_up(density * (double)job->sample));
    job->tally = 0;
    job->found_from = 0;
    job->least = threshold ? threshold : 1;
    run(job, pass_sum);
    uint64_t kept = job->reach;
    const uint64_t exist = job->nonzeros;
    job->ties = ALL_TIES;
    if (exist <= k) {
        kept = exist;
        job->least = 1;
    } else if (kept > k && kept - k > k) {
        find_kth(job, tally_all, k, (struct range){job->least, greatest(job), 0}, 0);
        kept = k;
    } else if (kept < k && kept < k - kept) {
        find_kth(job, tally_all, k, everything(job), 0);
        kept = k;
    }
    place(job);
    return kept;
}

static int thread_count(int threads, uint64_t count)
{
    return pici_thread_count(threads, count / (PICI_PIECE_TILES * TILE));
}

/* Whole buckets for each thread. */
struct bucket_parts {
    const struct pici_topk_kernels *kernels;
    struct pici_topk_buckets buckets;
    unsigned width_log2;
    int threads;
    uint64_t kept[PICI_MAX_THREADS];
};

static void buckets_thread(void *context, int i)
{
    struct bucket_parts *parts = context;
    struct pici_topk_buckets part = parts->buckets;
    const uint64_t buckets = part.elements / part.bucket, each = buckets / (unsigned)parts->threads;
    const size_t first = (size_t)(each * (unsigned)i) * part.bucket, position = first << parts->width_log2;
    part.elements = i + 1 == parts->threads ? part.elements - first : (size_t)each * part.bucket;
    part.terms.gradient = offset(part.terms.gradient, position);
    part.terms.residual = offset(part.terms.residual, position);
    part.terms.velocity = offset_to(part.terms.velocity, position);
    part.target = (struct pici_topk_to){part.target.selected + position, offset_to(part.target.residual, position),
                                        part.terms.velocity, 0};
    parts->kept[i] = parts->kernels->buckets(&part);
}

static uint64_t select_buckets(const struct job *job, const struct pici_topk_opts *options)
{
    struct bucket_parts parts = {.kernels = job->kernels,
                                 .buckets = {job->terms, job->target, job->elements, options->bucket, options->k},
                                 .width_log2 = job->width_log2,
                                 .threads = thread_count(options->threads, job->elements)};
    uint64_t kept = 0;
    if (parts.threads > 1)
        pici_parallel(parts.threads, STACK, buckets_thread, &parts);
    else
        buckets_thread(&parts, 0);
    for (int i = 0; i < parts.threads; i++)
        kept += parts.kept[i];
    return kept;
}

/* Select in buckets that are too long for the kernel, one by one. */
static uint64_t select_long_buckets(struct job *job, const struct pici_topk_opts *options)
{
    const struct pici_topk_terms terms = job->terms;
    const struct pici_topk_to target = job->target;
    uint8_t *const sums = job->sums;
    const size_t count = job->elements;
    uint64_t kept = 0;
    for (size_t first = 0; first < count; first += job->elements) {
        const size_t position = first << job->width_log2;
        job->elements = count - first < options->bucket ? count - first : options->bucket;
        job->terms.gradient = offset(terms.gradient, position);
        job->terms.residual = offset(terms.residual, position);
        job->terms.velocity = offset_to(terms.velocity, position);
        job->target = (struct pici_topk_to){target.selected + position, offset_to(target.residual, position),
                                            job->terms.velocity, target.stream};
        job->sums = sums + position;
        job->threads = thread_count(options->threads, job->elements);
        kept += select_exact(job, ((uint64_t)options->k * job->elements + options->bucket - 1) / options->bucket);
    }
    return kept;
}

/* ---- the call */

enum pici_status pici_topk(void *output, uint64_t *nonzeros, void *residual, void *velocity, const void *gradient,
                           uint64_t count, enum pici_dtype dtype, const struct pici_topk_opts *given)
{
    struct pici_topk_opts options;
    const size_t width = pici_dtype_width(dtype);
    const enum pici_status status = topk_opts_get(&options, given);
    if (status)
        return status;
    if (!nonzeros || !width || count > SIZE_MAX / width)
        return PICI_E_ARG;
    const struct pici_topk_kernels *kernels = pici_isa()->topk[dtype];
    if (!kernels)
        return PICI_E_UNSUPPORTED;
    if (count == 0) {
        *nonzeros = 0;
        return PICI_OK;
    }
    const void *arrays[] = {output, gradient, residual, velocity};
    const uint64_t bytes = count * width;
    if (!output || !gradient || !velocity != !(options.momentum > 0))
        return PICI_E_ARG;
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++)
            if (arrays[a] && arrays[b] && !(b == 1 && output == gradient) &&
                pici_overlap(arrays[a], bytes, arrays[b], bytes))
                return PICI_E_ARG;

    uint8_t some[SAMPLE_BYTES]; /* not initialized: most calls do not use it */
    struct job job = {.kernels = kernels,
                      .terms = {gradient, residual, velocity, options.rate, options.leak, options.momentum},
                      .target = {output, residual, velocity, residual && bytes >= PICI_STREAM_BYTES},
                      .sums = residual ? residual : output,
                      .elements = (size_t)count,
                      .width_log2 = (unsigned)fmt_width_log2((unsigned)dtype),
                      .threads = thread_count(options.threads, count),
                      .seed = options.seed,
                      .step = options.step,
                      .some = some,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    if (options.select == PICI_SELECT_BUCKET) {
        *nonzeros =
            options.bucket <= TOPK_BUCKET_MOST ? select_buckets(&job, &options) : select_long_buckets(&job, &options);
        return PICI_OK;
    }
    const double target = round_up(options.density * (double)count);
    const uint64_t k = target < (double)count ? (uint64_t)target : count;
    const double by_share = round_up(options.sample * (double)count), by_density = round_up(100 / options.density);
    const double sample = by_share > by_density ? by_share : by_density;
    if (options.select == PICI_SELECT_GLOBAL || sample >= (double)count) {
        *nonzeros = select_exact(&job, k);
    } else {
        job.sample = ((uint64_t)sample + 1) / 2 * 2; /* whole pairs */
        *nonzeros = select_sampled(&job, k, options.density);
    }
    return PICI_OK;
}

double pici_topk_warmup(uint64_t step, uint64_t steps_an_epoch)
{
    static const double density[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256};
    const uint64_t epoch = steps_an_epoch ? step / steps_an_epoch : UINT64_MAX;
    return epoch < sizeof density / sizeof *density ? density[epoch] : 0.001;
}
