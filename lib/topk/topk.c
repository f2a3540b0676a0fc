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
    SAMPLE_BYTES = 64 << 10,   /* of a sample that are in memory at a time */
    GUESS_FROM = 1 << 18,      /* GLOBAL: elements from which a sample tells where to look first */
    GUESS_SAMPLE = 1 << 13,    /* elements in that sample */
    COUNTED_AT_ONCE = 1 << 30, /* elements that the counters of a tally can count */
    STACK = 256 << 10
};

#define ALL_TIES UINT64_MAX

/* Magnitudes from low to high, of which `above` elements are larger. */
struct range {
    uint64_t low, high, above;
};

/* A selection among n elements of acc. It makes several passes over them, each by all threads. Between the passes acc
 * is in the residual, or in out if there is none. */
struct job {
    const struct pici_topk_kernels *kernels;
    struct pici_topk_terms terms;
    struct pici_topk_to to;
    uint8_t *acc;
    size_t n;
    unsigned width_log2;
    int threads;

    void (*pass)(struct job *, int i, size_t first, size_t n); /* the current pass: elements [first, first + n) */
    pthread_mutex_t lock;                                      /* of the three that a pass adds up */
    uint64_t nonzeros, reach, count[TOPK_BINS];
    uint64_t low;   /* of bin 0 of count */
    unsigned shift; /* a bin has 1 << shift magnitudes */
    int tally;      /* pass_sum makes a tally too */
    uint64_t least; /* reach: elements of at least this magnitude */

    /* what is kept: magnitudes from least on; of those equal to least only the first `ties` */
    uint64_t ties, ties_before[PICI_MAX_THREADS];

    uint64_t seed, step, sample; /* of a sample; its elements, an even number */
    int gathered;                /* the sample is in some */
    uint8_t *some;               /* [SAMPLE_BYTES] */
};

/* ---- passes */

static size_t part_begin(const struct job *j, int i)
{
    return i == j->threads ? j->n : (size_t)((uint64_t)(j->n / 64) * (unsigned)i / (unsigned)j->threads * 64);
}

static void pass_thread(void *context, int i)
{
    struct job *j = context;
    const size_t first = part_begin(j, i);
    j->pass(j, i, first, part_begin(j, i + 1) - first);
}

static void run(struct job *j, void (*pass)(struct job *, int i, size_t first, size_t n))
{
    j->pass = pass;
    j->nonzeros = j->reach = 0;
    memset(j->count, 0, sizeof j->count);
    if (j->threads > 1)
        pici_parallel(j->threads, STACK, pass_thread, j);
    else
        pass_thread(j, 0);
}

static void add_up(struct job *j, uint64_t nonzeros, uint64_t reach)
{
    pthread_mutex_lock(&j->lock);
    j->nonzeros += nonzeros;
    j->reach += reach;
    pthread_mutex_unlock(&j->lock);
}

static void add_counts(struct job *j, pici_topk_counts some)
{
    pthread_mutex_lock(&j->lock);
    for (int t = 0; t < TOPK_TABLES; t++)
        for (int b = 0; b < TOPK_BINS; b++)
            j->count[b] += some[t][b];
    pthread_mutex_unlock(&j->lock);
}

static const uint8_t *offset(const uint8_t *array, size_t bytes)
{
    return array ? array + bytes : NULL;
}

static uint8_t *offset_to(uint8_t *array, size_t bytes)
{
    return array ? array + bytes : NULL;
}

/* Compute acc. Count its nonzeros, those that reach least, and with j->tally those in the bins. */
static void pass_sum(struct job *j, int i, size_t first, size_t n)
{
    uint64_t nonzeros = 0, reach = 0;
    (void)i;
    for (size_t some; n; first += some, n -= some) {
        pici_topk_counts count = {{0}};
        some = n < COUNTED_AT_ONCE ? n : COUNTED_AT_ONCE;
        for (size_t done = 0, now; done < some; done += now) {
            const size_t at = (first + done) << j->width_log2;
            struct pici_topk_terms t = j->terms;
            now = some - done < PIECE ? some - done : PIECE;
            t.gradient = offset(t.gradient, at);
            t.residual = offset(t.residual, at);
            t.velocity = offset_to(t.velocity, at);
            j->kernels->accumulate(j->acc + at, &t, now);
            nonzeros += j->kernels->at_least(j->acc + at, now, 1);
            reach += j->kernels->at_least(j->acc + at, now, j->least);
            if (j->tally)
                j->kernels->tally(count, j->acc + at, now, j->low, j->shift);
        }
        if (j->tally)
            add_counts(j, count);
    }
    add_up(j, nonzeros, reach);
}

static void pass_tally(struct job *j, int i, size_t first, size_t n)
{
    (void)i;
    for (size_t now; n; first += now, n -= now) {
        pici_topk_counts count = {{0}};
        now = n < COUNTED_AT_ONCE ? n : COUNTED_AT_ONCE;
        j->kernels->tally(count, j->acc + (first << j->width_log2), now, j->low, j->shift);
        add_counts(j, count);
    }
}

/* Count the elements equal to least. */
static void pass_ties(struct job *j, int i, size_t first, size_t n)
{
    const uint8_t *acc = j->acc + (first << j->width_log2);
    j->ties_before[i] = j->kernels->at_least(acc, n, j->least) - j->kernels->at_least(acc, n, j->least + 1);
}

static void pass_place(struct job *j, int i, size_t first, size_t n)
{
    const size_t end = first + n;
    size_t split = end; /* from there on, elements equal to least are not kept */
    if (j->ties != ALL_TIES) {
        const uint64_t before = j->ties_before[i];
        split = first + j->kernels->up_to(j->acc + (first << j->width_log2), n, j->least,
                                          j->ties > before ? j->ties - before : 0);
    }
    for (int after = 0; after < 2; after++) {
        const size_t from = after ? split : first, at = from << j->width_log2;
        const struct pici_topk_to to = {j->to.selected + at, offset_to(j->to.residual, at),
                                        offset_to(j->to.velocity, at)};
        j->kernels->place(&to, j->acc + at, (after ? end : split) - from, j->least + (uint64_t)after);
    }
}

/* ---- the k-th largest magnitude */

static uint64_t greatest(const struct job *j) /* magnitude of the dtype */
{
    return (UINT64_C(1) << ((8u << j->width_log2) - 1)) - 1;
}

static void tally_all(struct job *j)
{
    run(j, pass_tally);
}

/* The upper 64 bits of a * b. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Compute acc at positions [first, first + n) of the sample, n even, before pass_sum, which may overwrite the gradient.
 * A block of four random words gives two positions. */
static void gather(struct job *j, uint64_t first, size_t n)
{
    enum { AT_ONCE = 512 };
    const uint32_t key[2] = {(uint32_t)j->seed, (uint32_t)(j->seed >> 32)};
    const size_t width = (size_t)1 << j->width_log2;
    uint8_t gradient[AT_ONCE * 8], residual[AT_ONCE * 8], velocity[AT_ONCE * 8];
    struct pici_topk_terms t = j->terms;
    t.gradient = gradient;
    t.residual = t.residual ? residual : NULL;
    t.velocity = t.velocity ? velocity : NULL;
    for (size_t done = 0, now; done < n; done += now) {
        now = n - done < AT_ONCE ? n - done : AT_ONCE;
        for (size_t i = 0; i < now; i += 2) {
            const uint64_t block = (first + done + i) / 2;
            const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)j->step,
                                         (uint32_t)(j->step >> 32)};
            uint32_t word[4];
            philox4x32(word, counter, key);
            for (size_t k = 0; k < 2; k++) {
                const uint64_t random = (uint64_t)word[2 * k + 1] << 32 | word[2 * k];
                const size_t from = (size_t)multiply_high(random, j->n) * width, to = (i + k) * width;
                memcpy(gradient + to, j->terms.gradient + from, width);
                if (t.residual)
                    memcpy(residual + to, j->terms.residual + from, width);
                if (t.velocity)
                    memcpy(velocity + to, j->terms.velocity + from, width);
            }
        }
        j->kernels->accumulate(j->some + done * width, &t, now);
    }
}

/* Tally the sample. A sample that does not fit in j->some is gathered in pieces, and anew each time, so that no sample
 * needs more memory. */
static void tally_sample(struct job *j)
{
    const size_t most = SAMPLE_BYTES >> j->width_log2;
    memset(j->count, 0, sizeof j->count);
    for (uint64_t done = 0, now; done < j->sample; done += now) {
        pici_topk_counts count = {{0}};
        now = j->sample - done < most ? j->sample - done : most;
        if (!j->gathered)
            gather(j, done, (size_t)now);
        j->gathered = j->sample <= most;
        j->kernels->tally(count, j->some, (size_t)now, j->low, j->shift);
        add_counts(j, count);
    }
}

/* Divide a range into bins. Its end becomes that of the last bin. Returns how many there are. */
static uint64_t set_bins(struct job *j, struct range *r)
{
    j->low = r->low;
    j->shift = 0;
    while ((r->high - r->low) >> j->shift >= TOPK_BINS)
        j->shift++;
    const uint64_t bins = ((r->high - r->low) >> j->shift) + 1, last = r->low + ((bins << j->shift) - 1);
    r->high = last < greatest(j) ? last : greatest(j);
    return bins;
}

/* Find the k-th largest of the magnitudes that `tally` counts, which is in the range: the bin that has it becomes the
 * next range. Set least and ties, so that the k largest are kept. tallied: the tally of the range is there. */
static void find_kth(struct job *j, void (*tally)(struct job *), uint64_t k, struct range r, int tallied)
{
    for (;; tallied = 0) {
        uint64_t b = set_bins(j, &r) - 1;
        if (!tallied)
            tally(j);
        for (; b && r.above + j->count[b] < k; b--)
            r.above += j->count[b];
        r.low += b << j->shift;
        j->least = r.low;
        j->ties = r.above + j->count[b] <= k ? ALL_TIES : k - r.above;
        if (j->shift == 0 || j->ties == ALL_TIES)
            return;
        r.high = r.low + ((UINT64_C(1) << j->shift) - 1);
        r.high = r.high < greatest(j) ? r.high : greatest(j);
    }
}

static struct range everything(const struct job *j)
{
    return (struct range){0, greatest(j), 0};
}

/* ---- selections */

static void place(struct job *j)
{
    if (j->ties != ALL_TIES) {
        if (j->threads > 1)
            run(j, pass_ties);
        uint64_t before = 0;
        for (int i = 0; i < j->threads; i++) {
            const uint64_t here = j->threads > 1 ? j->ties_before[i] : 0;
            j->ties_before[i] = before;
            before += here;
        }
    }
    run(j, pass_place);
}

/* A magnitude of which about `rank` elements of the sample are larger or equal; 0 if that is more than all. */
static uint64_t sample_rank(struct job *j, double rank)
{
    if (rank > (double)j->sample)
        return 0;
    find_kth(j, tally_sample, rank < 1 ? 1 : (uint64_t)rank, everything(j), 0);
    return j->least;
}

/* A range that most likely has the k-th largest magnitude: 4 standard deviations of its rank in a sample. */
static struct range guess(struct job *j, uint64_t k)
{
    struct range r = everything(j);
    if (j->n < GUESS_FROM)
        return r;
    j->sample = GUESS_SAMPLE;
    j->gathered = 0;
    const double rank = (double)k / (double)j->n * GUESS_SAMPLE;
    double deviation = 1; /* a little more than the root of rank */
    while (deviation * deviation < rank)
        deviation *= 1.2;
    r.low = sample_rank(j, rank + 4 * deviation + 4);
    if (rank > 4 * deviation + 1)
        r.high = sample_rank(j, rank - 4 * deviation);
    return r;
}

/* Keep the k largest. Returns how many there are. */
static uint64_t select_exact(struct job *j, uint64_t k)
{
    struct range r = guess(j, k);
    uint64_t in_range = 0;
    j->tally = 1;
    const uint64_t bins = set_bins(j, &r);
    j->least = r.high + 1;
    run(j, pass_sum);
    r.above = j->reach;
    for (uint64_t b = 0; b < bins; b++)
        in_range += j->count[b];
    if (j->nonzeros <= k) {
        k = j->nonzeros;
        j->least = 1;
        j->ties = ALL_TIES;
    } else if (r.above < k && k <= r.above + in_range) {
        find_kth(j, tally_all, k, r, 1);
    } else {
        find_kth(j, tally_all, k, everything(j), 0);
    }
    place(j);
    return k;
}

/* The least integer that is not less than x >= 0. */
static double round_up(double x)
{
    if (x >= 9007199254740992.) /* 2^53: an integer */
        return x;
    const double down = (double)(uint64_t)x;
    return down < x ? down + 1 : down;
}

/* Keep about the k largest, by a threshold from a sample. Returns how many. */
static uint64_t select_sampled(struct job *j, uint64_t k, double density)
{
    const uint64_t threshold = sample_rank(j, round_up(density * (double)j->sample));
    j->tally = 0;
    j->least = threshold ? threshold : 1;
    run(j, pass_sum);
    uint64_t kept = j->reach;
    const uint64_t exist = j->nonzeros;
    j->ties = ALL_TIES;
    if (exist <= k) {
        kept = exist;
        j->least = 1;
    } else if (kept > k && kept - k > k) {
        find_kth(j, tally_all, k, (struct range){j->least, greatest(j), 0}, 0);
        kept = k;
    } else if (kept < k && kept < k - kept) {
        find_kth(j, tally_all, k, everything(j), 0);
        kept = k;
    }
    place(j);
    return kept;
}

static int thread_count(int threads, uint64_t n)
{
    return pici_thread_count(threads, n / (PICI_PIECE_TILES * TILE));
}

/* Whole buckets for each thread. */
struct bucket_parts {
    const struct pici_topk_kernels *kernels;
    struct pici_topk_buckets all;
    unsigned width_log2;
    int threads;
    uint64_t kept[PICI_MAX_THREADS];
};

static void buckets_thread(void *context, int i)
{
    struct bucket_parts *p = context;
    struct pici_topk_buckets part = p->all;
    const uint64_t buckets = part.elements / part.bucket, each = buckets / (unsigned)p->threads;
    const size_t first = (size_t)(each * (unsigned)i) * part.bucket, at = first << p->width_log2;
    part.elements = i + 1 == p->threads ? part.elements - first : (size_t)each * part.bucket;
    part.terms.gradient = offset(part.terms.gradient, at);
    part.terms.residual = offset(part.terms.residual, at);
    part.terms.velocity = offset_to(part.terms.velocity, at);
    part.target =
        (struct pici_topk_to){part.target.selected + at, offset_to(part.target.residual, at), part.terms.velocity};
    p->kept[i] = p->kernels->buckets(&part);
}

static uint64_t select_buckets(const struct job *j, const struct pici_topk_opts *o)
{
    struct bucket_parts p = {.kernels = j->kernels,
                             .all = {j->terms, j->to, j->n, o->bucket, o->k},
                             .width_log2 = j->width_log2,
                             .threads = thread_count(o->threads, j->n)};
    uint64_t kept = 0;
    if (p.threads > 1)
        pici_parallel(p.threads, STACK, buckets_thread, &p);
    else
        buckets_thread(&p, 0);
    for (int i = 0; i < p.threads; i++)
        kept += p.kept[i];
    return kept;
}

/* Buckets that are too long for the kernel, one by one. */
static uint64_t select_long_buckets(struct job *j, const struct pici_topk_opts *o)
{
    const struct pici_topk_terms terms = j->terms;
    const struct pici_topk_to to = j->to;
    uint8_t *const acc = j->acc;
    const size_t n = j->n;
    uint64_t kept = 0;
    for (size_t first = 0; first < n; first += j->n) {
        const size_t at = first << j->width_log2;
        j->n = n - first < o->bucket ? n - first : o->bucket;
        j->terms.gradient = offset(terms.gradient, at);
        j->terms.residual = offset(terms.residual, at);
        j->terms.velocity = offset_to(terms.velocity, at);
        j->to = (struct pici_topk_to){to.selected + at, offset_to(to.residual, at), j->terms.velocity};
        j->acc = acc + at;
        j->threads = thread_count(o->threads, j->n);
        kept += select_exact(j, ((uint64_t)o->k * j->n + o->bucket - 1) / o->bucket);
    }
    return kept;
}

/* ---- the call */

enum pici_status pici_topk(void *out, uint64_t *nnz, void *residual, void *velocity, const void *gradient, uint64_t n,
                           enum pici_dtype dtype, const struct pici_topk_opts *opts)
{
    struct pici_topk_opts o;
    const size_t width = pici_dtype_width(dtype);
    const enum pici_status s = topk_opts_get(&o, opts);
    if (s)
        return s;
    if (!nnz || !width || n > SIZE_MAX / width)
        return PICI_E_ARG;
    const struct pici_topk_kernels *kernels = pici_isa()->topk[dtype];
    if (!kernels)
        return PICI_E_UNSUPPORTED;
    if (n == 0) {
        *nnz = 0;
        return PICI_OK;
    }
    const void *arrays[] = {out, gradient, residual, velocity};
    const uint64_t bytes = n * width;
    if (!out || !gradient || !velocity != !(o.momentum > 0))
        return PICI_E_ARG;
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++)
            if (arrays[a] && arrays[b] && !(b == 1 && out == gradient) &&
                pici_overlap(arrays[a], bytes, arrays[b], bytes))
                return PICI_E_ARG;

    uint8_t some[SAMPLE_BYTES]; /* not initialized: most calls do not use it */
    struct job j = {.kernels = kernels,
                    .terms = {gradient, residual, velocity, o.rate, o.leak, o.momentum},
                    .to = {out, residual, velocity},
                    .acc = residual ? residual : out,
                    .n = (size_t)n,
                    .width_log2 = (unsigned)fmt_width_log2((unsigned)dtype),
                    .threads = thread_count(o.threads, n),
                    .seed = o.seed,
                    .step = o.step,
                    .some = some,
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    if (o.select == PICI_SELECT_BUCKET) {
        *nnz = o.bucket <= TOPK_BUCKET_MOST ? select_buckets(&j, &o) : select_long_buckets(&j, &o);
        return PICI_OK;
    }
    const double target = round_up(o.density * (double)n);
    const uint64_t k = target < (double)n ? (uint64_t)target : n;
    const double by_share = round_up(o.sample * (double)n), by_density = round_up(100 / o.density);
    const double sample = by_share > by_density ? by_share : by_density;
    if (o.select == PICI_SELECT_GLOBAL || sample >= (double)n) {
        *nnz = select_exact(&j, k);
    } else {
        j.sample = ((uint64_t)sample + 1) / 2 * 2; /* whole pairs */
        *nnz = select_sampled(&j, k, o.density);
    }
    return PICI_OK;
}

double pici_topk_warmup(uint64_t step, uint64_t steps_an_epoch)
{
    static const double density[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256};
    const uint64_t epoch = steps_an_epoch ? step / steps_an_epoch : UINT64_MAX;
    return epoch < sizeof density / sizeof *density ? density[epoch] : 0.001;
}
