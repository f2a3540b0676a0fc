/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Throughput of the codec, compared with passes over memory.
 *
 * For each sparsity, a repetition times every yardstick (memcpy and other passes over memory). Then it times
 * compress, decompress and scatter-add of pici and hybrid, with every kernel table that this host can run. Each is
 * timed once per repetition, so that noise of the host affects all alike. Tables show medians over the repetitions.
 * First come the shares of each row's limit, beside those that its kind of core had (limits.h). Then come GB/s (1e9
 * bytes) of dense bytes. Results are checked before any timing. Without arguments, all sections are printed. The
 * first gives the sizes of blocks; their limits determine the exit status. With arguments that describe data, only
 * that table is printed. */
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>

#include "common.h"
#include "cpu/kernels.h"
#include "delta.h"
#include "limits.h"
#include "sizes.h"
#include "topk.h"
#include "values.h"
#include "yardstick.h"

enum { MAX_ISAS = 8, MAX_THREADS = 64, MAX_REPS = 1000 };
enum { RESIDENT_BYTES = 16 << 20, UNRELATED_BYTES = 64 << 20 }; /* see measure() */
enum op { COMPRESS, DECOMPRESS, SCATTER_ADD, OPS };
static const enum pici_format formats[] = {PICI_BITMAP, PICI_HYBRID};
enum { FORMATS = COUNT_OF(formats), KINDS = FORMATS * OPS }; /* rows of an ISA: each op for each format */
_Static_assert((int)KINDS == (int)LIMIT_ROWS, "limits.h has a row for each op and format");
static const char op_letter[] = "CDA";
static const char *const op_name[] = {"compress", "decompress", "scatter_add"};

struct section {
    enum pici_dtype dtype;
    size_t bytes;
    enum pattern pattern;
    int threads; /* above 1: measured in addition to one thread */
    int checksum;
    int huge; /* pages */
    int reps;
    size_t columns;
    double sparsity[MAX_COLUMNS];
};

static struct {
    const struct pici_isa *isa[MAX_ISAS];
    size_t isas;
    int best; /* print the fastest repetition instead of the median */
    clockid_t clock;
    enum core core;
    int json;
    size_t records; /* JSON records printed so far */
    size_t block_bytes[FORMATS][MAX_COLUMNS];
} run;

/* The rows measured: the yardsticks, then KINDS for each ISA; all of these again for the second number of threads. */
enum { MAX_ROWS = 2 * (YARDSTICKS + KINDS * MAX_ISAS) };

static size_t rows_per_threads(void)
{
    return YARDSTICKS + KINDS * run.isas;
}

/* The ISA of a row after the yardsticks. */
static const struct pici_isa *row_isa(size_t row)
{
    return run.isa[(row - YARDSTICKS) / KINDS];
}

static enum op row_op(size_t row)
{
    return (enum op)((row - YARDSTICKS) % OPS);
}

static size_t row_format(size_t row) /* index of formats */
{
    return (row - YARDSTICKS) % KINDS / OPS;
}

static const char *isa_label(const struct pici_isa *isa)
{
    return !strcmp(isa->name, "scalar")   ? "portable"
           : !strcmp(isa->name, "avx2")   ? "AVX2"
           : !strcmp(isa->name, "avx512") ? "AVX-512"
           : !strcmp(isa->name, "neon")   ? "NEON"
                                          : isa->name;
}

/* Has limits.h figures for this section? */
static int has_limits(const struct section *s, int threads)
{
    return s->bytes == (size_t)64 << 20 && s->pattern == UNIFORM && threads == 1 && !s->checksum && !s->huge;
}

/* The target of a row as a multiple of memcpy, or 0 for none. */
static double target(const struct section *s, int threads, size_t row, double sparsity)
{
    const int column = limits_column(sparsity);
    if (formats[row_format(row)] != PICI_BITMAP || s->dtype != PICI_F32 || !has_limits(s, threads) || column < 0)
        return 0;
    for (size_t i = 0; i < COUNT_OF(limits_memcpy); i++)
        if (!strcmp(limits_memcpy[i].isa, row_isa(row)->name))
            return limits_memcpy[i].x[row_op(row)][column];
    return 0;
}

/* One column's data. */
struct data {
    uint8_t *src, *dst, *block[FORMATS], *unrelated;
    size_t cap, len[FORMATS];
    uint64_t n;
    enum pici_dtype dtype;
    uint32_t *place; /* indices of the nonzeros of src */
    size_t places;
};

static void ok(enum pici_status s, const char *what)
{
    if (s) {
        fprintf(stderr, "bench: %s: %s\n", what, pici_strerror(s));
        exit(1);
    }
}

static void codec(struct data *d, size_t f, enum op op, const struct pici_opts *opts)
{
    if (op == COMPRESS)
        ok(pici_compress(d->block[f], d->cap, &d->len[f], d->src, d->n, d->dtype, formats[f], opts), "compress");
    else if (op == DECOMPRESS)
        ok(pici_decompress(d->dst, d->n, d->block[f], d->len[f], opts), "decompress");
    else
        ok(pici_scatter_add(d->dst, d->n, d->block[f], d->len[f], opts), "scatter-add");
}

/* Check that every table encodes the same block, decodes it to the source, gives the source when added to zeros, and
 * gives the same sum. */
static void check(struct data *d, size_t f, const struct section *s, int threads)
{
    const struct pici_opts opts = {sizeof opts, threads, s->checksum, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    const size_t bytes = d->n * pici_dtype_width(d->dtype);
    uint8_t *const addend = buffer(bytes, 0), *const sum = buffer(bytes, 0), *const block = buffer(d->cap, 0);
    size_t len = 0;

    fill(addend, d->n, d->dtype, 0.5, CLUSTERED);

    for (size_t i = 0; i < run.isas; i++) {
        pici_isa_force(run.isa[i]);
        memset(d->block[f], 0xaa, d->cap);
        codec(d, f, COMPRESS, &opts);
        if (i && (d->len[f] != len || memcmp(d->block[f], block, len)))
            die("wrong result: kernels disagree on a block");
        len = d->len[f];
        memcpy(block, d->block[f], len);

        memset(d->dst, 0xaa, bytes);
        codec(d, f, DECOMPRESS, &opts);
        if (memcmp(d->dst, d->src, bytes))
            die("wrong result: decompress is not the inverse of compress");

        memset(d->dst, 0, bytes);
        codec(d, f, SCATTER_ADD, &opts);
        if (memcmp(d->dst, d->src, bytes))
            die("wrong result: scatter-add to zero is not the source");

        memcpy(d->dst, addend, bytes);
        codec(d, f, SCATTER_ADD, &opts);
        if (i && memcmp(d->dst, sum, bytes))
            die("wrong result: kernels disagree on a sum");
        memcpy(sum, d->dst, bytes);
    }
    free(addend);
    free(sum);
    free(block);
}

static void find_places(struct data *d)
{
    const size_t width = pici_dtype_width(d->dtype);
    uint64_t x = 0;
    d->places = 0;
    for (uint64_t i = 0; i < d->n; i++) {
        memcpy(&x, d->src + i * width, width);
        d->place[d->places] = (uint32_t)i;
        d->places += x != 0;
    }
}

/* Scatter-add without a block: one load and one early prefetch for each nonzero. */
static void touch(uint8_t *dst, size_t width, const uint32_t *place, size_t n)
{
    enum { AHEAD = 64 };
    for (size_t i = 0; i < n; i++) {
        uint8_t *const p = dst + place[i] * width;
        __builtin_prefetch(dst + place[i + AHEAD < n ? i + AHEAD : n - 1] * width, 1, 2);
        *p = (uint8_t)(*p + 1);
    }
}

struct slice {
    enum yardstick what;
    uint8_t *dst;
    const uint8_t *src;
    size_t bytes, width;
    const uint32_t *place; /* indices in the whole buffer */
    size_t places;
};

static void *slice_main(void *arg)
{
    const struct slice *s = arg;
    if (s->what == PLACES)
        touch(s->dst, s->width, s->place, s->places);
    else
        yardstick(s->what, s->dst, s->src, s->bytes);
    return NULL;
}

/* Run a yardstick over the whole buffer. It starts and joins threads as the codec does. */
static void yardstick_threads(enum yardstick what, struct data *d, size_t bytes, int threads)
{
    pthread_t thread[MAX_THREADS];
    struct slice slice[MAX_THREADS];
    const size_t each = bytes / (size_t)threads / 4096 * 4096;
    for (int i = 0; i < threads; i++) {
        const size_t at = (size_t)i * each, some = d->places / (size_t)threads;
        slice[i] = (struct slice){.what = what,
                                  .dst = what == PLACES ? d->dst : d->dst + at,
                                  .src = d->src + at,
                                  .bytes = i + 1 == threads ? bytes - at : each,
                                  .width = pici_dtype_width(d->dtype),
                                  .place = d->place + (size_t)i * some,
                                  .places = i + 1 == threads ? d->places - (size_t)i * some : some};
        if (i && pthread_create(&thread[i], NULL, slice_main, &slice[i]))
            die("cannot start a thread");
    }
    slice_main(&slice[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(thread[i], NULL);
}

/* Seconds of a row for one pass. A small buffer gets several passes, so that it stays in the cache. Before a large
 * buffer, unrelated data fills the cache, so that no row profits from the data of the row before. */
static double measure(size_t row, struct data *d, const struct section *s, int threads, int passes)
{
    const struct pici_opts opts = {sizeof opts, threads, s->checksum, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    const size_t bytes = d->n * pici_dtype_width(d->dtype);
    if (row >= YARDSTICKS)
        pici_isa_force(row_isa(row));
    if (passes == 1)
        yardstick(READ, NULL, d->unrelated, UNRELATED_BYTES);
    const double start = seconds(run.clock);
    for (int i = 0; i < passes; i++)
        if (row < YARDSTICKS)
            yardstick_threads((enum yardstick)row, d, bytes, threads);
        else
            codec(d, row_format(row), row_op(row), &opts);
    return (seconds(run.clock) - start) / passes;
}

/* seconds[row][column] of one section. */
static void measure_section(const struct section *s, double median_s[][MAX_COLUMNS], double least_s[][MAX_COLUMNS])
{
    const size_t rows = rows_per_threads();
    const size_t total = s->threads > 1 ? 2 * rows : rows;
    const int passes = s->bytes < RESIDENT_BYTES ? (int)(RESIDENT_BYTES / s->bytes) : 1;
    struct data d = {.n = s->bytes / pici_dtype_width(s->dtype), .dtype = s->dtype};
    double *const sample = calloc(total * (size_t)s->reps, sizeof *sample);
    if (!sample)
        die("out of memory");
    if (d.n > UINT32_MAX)
        die("--size: more than 2^32 elements");
    for (size_t f = 0; f < FORMATS; f++)
        d.cap = pici_bound(formats[f], s->dtype, d.n) > d.cap ? pici_bound(formats[f], s->dtype, d.n) : d.cap;
    d.src = buffer(s->bytes, s->huge);
    d.dst = buffer(s->bytes, s->huge);
    for (size_t f = 0; f < FORMATS; f++)
        d.block[f] = buffer(d.cap, s->huge);
    d.unrelated = buffer(UNRELATED_BYTES, 0);
    d.place = buffer((size_t)(d.n + 1) * sizeof *d.place, 0);

    for (size_t c = 0; c < s->columns; c++) {
        fill(d.src, d.n, s->dtype, 1 - s->sparsity[c] / 100, s->pattern);
        find_places(&d);
        for (size_t f = 0; f < FORMATS; f++)
            check(&d, f, s, s->threads);
        for (int rep = -1; rep < s->reps; rep++) /* -1: warm-up, not timed */
            for (size_t row = 0; row < total; row++) {
                const double t = measure(row % rows, &d, s, row < rows ? 1 : s->threads, passes);
                if (rep >= 0)
                    sample[row * (size_t)s->reps + (size_t)rep] = t;
            }
        for (size_t f = 0; f < FORMATS; f++)
            run.block_bytes[f][c] = d.len[f];
        for (size_t row = 0; row < total; row++) {
            median_s[row][c] = median(sample + row * (size_t)s->reps, (size_t)s->reps);
            least_s[row][c] = least(sample + row * (size_t)s->reps, (size_t)s->reps);
        }
    }
    free(d.src);
    free(d.dst);
    for (size_t f = 0; f < FORMATS; f++)
        free(d.block[f]);
    free(d.unrelated);
    free(d.place);
    free(sample);
}

static void row_label(char *label, size_t bytes, size_t row)
{
    if (row < YARDSTICKS)
        snprintf(label, bytes, "%s", yardstick_name((enum yardstick)row));
    else
        snprintf(label, bytes, "%s %s%c", isa_label(row_isa(row)), row_format(row) ? "hybrid " : "",
                 op_letter[row_op(row)]);
}

static void heading(const char *what, const struct section *s)
{
    printf("\n%-34s", what);
    for (size_t c = 0; c < s->columns; c++) {
        char percent[16];
        snprintf(percent, sizeof percent, "%g%%", s->sparsity[c]);
        printf(" %10s", percent);
    }
    printf("\n");
}

/* Seconds that a row takes at least. Compress reads the elements and writes the block; decompress reads the block and
 * writes the elements: as zeros, or with `pages`, as zeros whose pages are asked for before. Scatter-add changes
 * elements in place, or only the nonzeros. t[row]: the row's seconds. */
static double limit_seconds(const struct section *s, double t[][MAX_COLUMNS], size_t row, size_t c, int pages)
{
    const int portable = !strcmp(row_isa(row)->name, "scalar");
    const double block = (double)run.block_bytes[row_format(row)][c] / (double)s->bytes;
    switch (row_op(row)) {
    case COMPRESS: return t[READ][c] + block * t[portable ? MEMSET : WRITE][c];
    case DECOMPRESS: return t[portable ? MEMSET : pages ? ZERO_PAGES : WRITE_ZERO][c] + block * t[READ][c];
    default: return t[PLACES][c] < t[REWRITE][c] ? t[PLACES][c] : t[REWRITE][c];
    }
}

static double share_of_limit(const struct section *s, double t[][MAX_COLUMNS], size_t row, size_t c)
{
    return limit_seconds(s, t, row, c, 0) / t[row][c];
}

/* Print one ISA's compress and decompress over all formats: the geometric mean of their shares, and the target. */
static void print_mean(const struct section *s, int threads, double t[][MAX_COLUMNS], size_t isa)
{
    const int known = has_limits(s, threads) && s->columns == LIMIT_COLUMNS &&
                      !memcmp(s->sparsity, limits_sparsity, sizeof limits_sparsity);
    const struct limits_wanted *wanted = known ? limits_goal(run.core, run.isa[isa]->name, s->dtype) : NULL;
    double logarithms = 0, by_pages = 0, lowest = INFINITY;
    size_t n = 0;
    for (size_t row = YARDSTICKS + isa * KINDS; row < YARDSTICKS + (isa + 1) * KINDS; row++)
        for (size_t c = 0; row_op(row) != SCATTER_ADD && c < s->columns; c++, n++) {
            const double share = share_of_limit(s, t, row, c);
            logarithms += log(share);
            by_pages += log(limit_seconds(s, t, row, c, 1) / t[row][c]);
            lowest = share < lowest ? share : lowest;
        }
    const double mean = exp(logarithms / (double)n);
    printf("  %s: geometric mean of C and D %.2f, the least %.2f", isa_label(run.isa[isa]), mean, lowest);
    if (wanted && wanted->least > 0)
        printf("; wanted: %.2f and %.2f%s", wanted->mean, wanted->least,
               mean < wanted->mean || lowest < wanted->least ? " (missed)" : "");
    else if (wanted)
        printf("; wanted: %.2f%s", wanted->mean, mean < wanted->mean ? " (missed)" : "");
    printf("\n");
    printf("    with %s as the limit of D: %.2f\n", yardstick_name(ZERO_PAGES), exp(by_pages / (double)n));
}

/* Print each row's share of its limit, and where it is below the figure of its kind of core, or below the target. */
static void print_shares(const struct section *s, int threads, double t[][MAX_COLUMNS])
{
    const size_t rows = rows_per_threads();
    char label[64];
    size_t lost = 0, missed = 0;
    snprintf(label, sizeof label, "share of the limit, %d thread%s", threads, threads > 1 ? "s" : "");
    heading(label, s);
    for (size_t row = YARDSTICKS; row < rows; row++) {
        const char *isa = row_isa(row)->name;
        row_label(label, sizeof label, row);
        printf("  %-32s", label);
        for (size_t c = 0; c < s->columns; c++) {
            const int known = has_limits(s, threads);
            const double share = share_of_limit(s, t, row, c), sparsity = s->sparsity[c];
            const double last = known ? limits_last(run.core, isa, s->dtype, (row - YARDSTICKS) % KINDS, sparsity) : 0;
            const double want = known && row_op(row) == SCATTER_ADD ? limits_of_narrow(isa, s->dtype, sparsity) : 0;
            const int less = share < LIMITS_LOST * last, short_of = share < want;
            lost += less;
            missed += short_of;
            printf(" %8.2f%s%s", share, less ? "<" : " ", short_of ? "!" : " ");
        }
        printf("\n");
    }
    printf("  limits: of C %s and, of the block, %s (portable: %s)\n", yardstick_name(READ), yardstick_name(WRITE),
           yardstick_name(MEMSET));
    printf("          of D %s (portable: %s) and, of the block, %s\n", yardstick_name(WRITE_ZERO),
           yardstick_name(MEMSET), yardstick_name(READ));
    printf("          of A the sooner of %s and %s\n", yardstick_name(REWRITE), yardstick_name(PLACES));
    for (size_t isa = 0; isa < run.isas; isa++)
        print_mean(s, threads, t, isa);
    if (lost)
        printf("  %zu shares are less than %g of those that cores of this kind had (<)\n", lost, LIMITS_LOST);
    if (missed)
        printf("  %zu shares are less than wanted (!)\n", missed);
}

/* Print the tables of one thread count. t[row]: the row's seconds. */
static void print_tables(const struct section *s, int threads, double t[][MAX_COLUMNS])
{
    const size_t rows = rows_per_threads();
    char title[64], label[64];
    size_t targets = 0, missed = 0;

    print_shares(s, threads, t);
    snprintf(title, sizeof title, "GB/s, %d thread%s", threads, threads > 1 ? "s" : "");
    heading(title, s);
    for (size_t row = 0; row < rows; row++) {
        row_label(label, sizeof label, row);
        printf("  %-32s", label);
        for (size_t c = 0; c < s->columns; c++)
            printf(" %10.2f", (double)s->bytes / t[row][c] / 1e9);
        printf("\n");
    }

    heading("times memcpy", s);
    for (size_t row = YARDSTICKS; row < rows; row++) {
        row_label(label, sizeof label, row);
        printf("  %-32s", label);
        size_t row_targets = 0;
        for (size_t c = 0; c < s->columns; c++) {
            const double x = t[MEMCPY][c] / t[row][c], want = target(s, threads, row, s->sparsity[c]);
            row_targets += want > 0;
            missed += x < want;
            printf(" %9.2f%s", x, x < want ? "!" : " ");
        }
        printf("\n");
        targets += row_targets;
        if (row_targets) {
            printf("  %-32s", "    target");
            for (size_t c = 0; c < s->columns; c++)
                printf(" %9.2f ", target(s, threads, row, s->sparsity[c]));
            printf("\n");
        }
    }
    if (targets)
        printf("  %zu of %zu targets missed (!)\n", missed, targets);

    /* target: at most a tenth slower than pici, and faster from 99% zeros on; none for scatter-add */
    heading("hybrid, times bitmap", s);
    for (size_t row = YARDSTICKS; row < rows; row++) {
        if (formats[row_format(row)] == PICI_BITMAP)
            continue;
        row_label(label, sizeof label, row);
        printf("  %-32s", label);
        for (size_t c = 0; c < s->columns; c++) {
            const double x = t[row - OPS][c] / t[row][c], want = s->sparsity[c] >= 99 ? 1 : 0.9;
            printf(" %9.2f%s", x, row_op(row) != SCATTER_ADD && threads == 1 && x < want ? "!" : " ");
        }
        printf("\n");
    }
}

static void print_scaling(const struct section *s, double t[][MAX_COLUMNS])
{
    const size_t rows = rows_per_threads();
    char title[64], label[64];
    snprintf(title, sizeof title, "times one thread, %d threads", s->threads);
    heading(title, s);
    for (size_t row = 0; row < rows; row++) {
        row_label(label, sizeof label, row);
        printf("  %-32s", label);
        for (size_t c = 0; c < s->columns; c++)
            printf(" %9.2f ", t[row][c] / t[rows + row][c]);
        printf("\n");
    }
}

static void print_json(const struct section *s, int threads, double median_s[][MAX_COLUMNS],
                       double best_s[][MAX_COLUMNS])
{
    for (size_t row = 0; row < rows_per_threads(); row++)
        for (size_t c = 0; c < s->columns; c++) {
            const int yard = row < YARDSTICKS;
            printf("%s\n  "
                   "{\"core\":\"%s\",\"dtype\":\"%s\",\"bytes\":%zu,\"pattern\":\"%s\",\"sparsity\":%g,\"threads\":%d,"
                   "\"checksum\":%d,\"huge_pages\":%d,\"repetitions\":%d,\"kernels\":\"%s\",\"format\":\"%s\","
                   "\"what\":\"%s\",\"median_s\":%.9g,\"best_s\":%.9g,\"gb_s\":%.4g,\"memcpy_ratio\":%.4g",
                   run.records++ ? "," : "", core_name[run.core], pici_dtype_name(s->dtype), s->bytes,
                   pattern_name[s->pattern], s->sparsity[c], threads, s->checksum, s->huge, s->reps,
                   yard ? "" : row_isa(row)->name, yard ? "" : pici_format_name(formats[row_format(row)]),
                   yard ? yardstick_name((enum yardstick)row) : op_name[row_op(row)], median_s[row][c], best_s[row][c],
                   (double)s->bytes / median_s[row][c] / 1e9, median_s[MEMCPY][c] / median_s[row][c]);
            const double want = yard ? 0 : target(s, threads, row, s->sparsity[c]);
            if (!yard)
                printf(",\"block_bytes\":%zu,\"share_of_limit\":%.4g", run.block_bytes[row_format(row)][c],
                       share_of_limit(s, run.best ? best_s : median_s, row, c));
            if (want > 0)
                printf(",\"target\":%g", want);
            printf("}");
        }
}

static void do_section(const struct section *s)
{
    static double median_s[MAX_ROWS][MAX_COLUMNS], best_s[MAX_ROWS][MAX_COLUMNS];
    double(*t)[MAX_COLUMNS] = run.best ? best_s : median_s;
    const size_t rows = rows_per_threads();

    if (!run.json) {
        char threads[32] = "";
        if (s->threads > 1)
            snprintf(threads, sizeof threads, ", 1 and %d threads", s->threads);
        printf("\n== %s, %g MiB dense, %s%s%s%s; %s of %d repetitions%s ==\n", pici_dtype_name(s->dtype),
               (double)s->bytes / (1 << 20), pattern_name[s->pattern], s->checksum ? ", checksum" : "",
               s->huge ? ", huge pages" : "", threads, run.best ? "best" : "median", s->reps,
               run.clock == CLOCK_MONOTONIC ? "" : ", processor time");
        fflush(stdout);
    }
    measure_section(s, median_s, best_s);
    for (int second = 0; second <= (s->threads > 1); second++) {
        const int threads = second ? s->threads : 1;
        const size_t at = second ? rows : 0;
        if (run.json)
            print_json(s, threads, median_s + at, best_s + at);
        else
            print_tables(s, threads, t + at);
    }
    if (!run.json && s->threads > 1)
        print_scaling(s, t);
    fflush(stdout);
}

/* All sections, in the order of interest. */
static void all_sections(const struct section *base)
{
    static const enum pici_dtype others[] = {PICI_BF16, PICI_F64, PICI_I8};
    do_section(base);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        struct section s = *base;
        s.dtype = others[i];
        do_section(&s);
    }
    for (enum pattern p = CLUSTERED; p <= BLOCK; p++) {
        struct section s = *base;
        s.pattern = p;
        do_section(&s);
    }
    for (size_t mib = 4; mib; mib /= 4) {
        struct section s = *base;
        s.bytes = mib << 20;
        do_section(&s);
    }
    char line[256];
    const char *policy = huge_pages(line, sizeof line);
    if (strcmp(policy, "madvise") == 0 || strcmp(policy, "always") == 0) {
        struct section s = *base;
        s.huge = 1;
        do_section(&s);
    }
    if (run.clock == CLOCK_MONOTONIC) {
        struct section s = *base;
        s.threads = 2;
        do_section(&s);
    }
}

static const char usage[] =
    "usage: bench [options]\n"
    "  --isa NAME         one kernel table (scalar, avx2, avx512, neon) instead of all that run here\n"
    "  --dtype NAME       f32\n"
    "  --size BYTES[KMG]  dense bytes, 64M\n"
    "  --pattern NAME     uniform, clustered or block\n"
    "  --sparsity LIST    percentages, 0,50,80,90,95,99,99.9\n"
    "  --threads N        measure N threads as well as one\n"
    "  --checksum         blocks with a checksum\n"
    "  --huge-pages       buffers in huge pages (by madvise)\n"
    "  -r, --reps N       repetitions, 15\n"
    "  --best             print the fastest repetition instead of the median\n"
    "  --cpu-time         processor time, for a machine busy with other things; one thread only\n"
    "  --sizes            sizes compared with the entropy bound; nothing is timed\n"
    "  --delta            deltas: of 1G of bf16, 0.1, 1 and 3% changed, unless --dtype, --size and --sparsity say "
    "otherwise\n"
    "  --topk             top-k selection with a residual: 8M of f32, unless --dtype and --size say otherwise\n"
    "  --values           lossy codecs, quantizing and dequantizing: 64M of f32, unless --size says otherwise\n"
    "  --quick            sizes and the first timed section, 3 repetitions\n"
    "  --json             one array of records\n"
    "Without --dtype, --size, --pattern, --sparsity, --threads, --checksum, --huge-pages, --sizes, --delta, --topk,\n"
    "--values or --quick: all sections. The exit status is 1 if sizes are beyond their limits.\n";

static _Noreturn void bad_usage(void)
{
    fputs(usage, stderr);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"isa", 1, NULL, 'i'},        {"dtype", 1, NULL, 'd'},   {"size", 1, NULL, 's'},     {"pattern", 1, NULL, 'p'},
        {"sparsity", 1, NULL, 'y'},   {"threads", 1, NULL, 't'}, {"reps", 1, NULL, 'r'},     {"checksum", 0, NULL, 'c'},
        {"huge-pages", 0, NULL, 'g'}, {"best", 0, NULL, 'b'},    {"cpu-time", 0, NULL, 'u'}, {"quick", 0, NULL, 'q'},
        {"json", 0, NULL, 'j'},       {"help", 0, NULL, 'h'},    {"sizes", 0, NULL, 'z'},    {"delta", 0, NULL, 'D'},
        {"topk", 0, NULL, 'k'},       {"values", 0, NULL, 'v'},  {NULL, 0, NULL, 0},
    };
    struct section s = {PICI_F32, (size_t)64 << 20, UNIFORM, 1, 0, 0, 15, LIMIT_COLUMNS, {0}};
    const char *isa = NULL;
    int one = 0, quick = 0, sizes = 0, delta = 0, topk = 0, values = 0, missed = 0, c;
    unsigned given = 0; /* bit 0: dtype, bit 1: size, bit 2: sparsity */

    memcpy(s.sparsity, limits_sparsity, sizeof limits_sparsity);
    run.clock = CLOCK_MONOTONIC;
    run.core = core_kind();
    while ((c = getopt_long(argc, argv, "r:h", options, NULL)) != -1) {
        one |= c && strchr("dspytcgq", c) != NULL;
        given |= c == 'd' ? 1u : c == 's' ? 2u : c == 'y' ? 4u : 0u;
        switch (c) {
        case 'i': isa = optarg; break;
        case 'd':
            if (!parse_dtype(optarg, &s.dtype))
                bad_usage();
            break;
        case 's':
            if ((s.bytes = parse_size(optarg) / 8 * 8) == 0)
                bad_usage();
            break;
        case 'p':
            if (!parse_pattern(optarg, &s.pattern))
                bad_usage();
            break;
        case 'y':
            if (!(s.columns = parse_sparsities(optarg, s.sparsity)))
                bad_usage();
            break;
        case 't':
            s.threads = atoi(optarg);
            if (s.threads < 1 || s.threads > MAX_THREADS)
                bad_usage();
            break;
        case 'r':
            s.reps = atoi(optarg);
            if (s.reps < 1 || s.reps > MAX_REPS)
                bad_usage();
            break;
        case 'c': s.checksum = 1; break;
        case 'g': s.huge = 1; break;
        case 'b': run.best = 1; break;
        case 'u': run.clock = CLOCK_THREAD_CPUTIME_ID; break;
        case 'q': quick = 1; break;
        case 'z': sizes = 1; break;
        case 'D': delta = 1; break;
        case 'k': topk = 1; break;
        case 'v': values = 1; break;
        case 'j': run.json = 1; break;
        case 'h': fputs(usage, stdout); return 0;
        default: bad_usage();
        }
    }
    if (optind < argc || (s.threads > 1 && run.clock != CLOCK_MONOTONIC))
        bad_usage();
    if (quick)
        s.reps = 3;

    for (const struct pici_isa *const *p = pici_isas(); *p && run.isas < MAX_ISAS; p++)
        if (!isa || !strcmp(isa, (*p)->name))
            run.isa[run.isas++] = *p;
    if (!run.isas) {
        fprintf(stderr, "bench: this host cannot run %s\n", isa);
        return 1;
    }

    if (run.json)
        printf("[");
    else {
        char line[256];
        printf("pici %s, %s\n", pici_version(), COMPILER);
        printf("cpu: %s; core: %s; kernels:", cpu_model(line, sizeof line), core_name[run.core]);
        for (size_t i = 0; i < run.isas; i++)
            printf(" %s", run.isa[i]->name);
        printf("\nbuffers: page-aligned, touched before; transparent huge pages: %s\n", huge_pages(line, sizeof line));
        printf("C compress, D decompress, A scatter-add; columns: share of zeros\n");
    }
    if (values) {
        print_values(given & 2 ? s.bytes : (size_t)64 << 20, s.reps, run.best, run.isa, run.isas, run.clock, run.json,
                     &run.records);
    } else if (topk) {
        print_topk(given & 1 ? s.dtype : PICI_F32, given & 2 ? s.bytes : (size_t)8 << 20, s.threads, s.reps, run.best,
                   run.isa, run.isas, run.clock, run.json, &run.records);
    } else if (delta) {
        double changed[MAX_COLUMNS] = {0.1, 1, 3};
        for (size_t i = 0; given & 4 && i < s.columns; i++)
            changed[i] = 100 - s.sparsity[i];
        missed = print_delta(given & 1 ? s.dtype : PICI_BF16, given & 2 ? s.bytes : (size_t)1 << 30, changed,
                             given & 4 ? s.columns : 3, s.threads, s.reps, run.isa, run.isas, run.clock, run.json,
                             &run.records);
    } else if (sizes || quick || !one) {
        missed = print_sizes(run.json, &run.records);
        missed += print_sign_sizes(run.json, &run.records);
    }
    fflush(stdout);
    if (delta || topk || values)
        ;
    else if (one)
        do_section(&s);
    else if (!sizes)
        all_sections(&s);
    if (run.json)
        printf("\n]\n");
    return fflush(stdout) || ferror(stdout) || missed;
}
