/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas of weights between two steps of an optimizer. Prints their length beside the least length once the
 * exponents of the old weights are known, and beside pici_diff's and zstd's; and the speed of each kernel table.
 *     delta_small [-r REPETITIONS] [-u] [-z] [FILE.safetensors]
 *     delta_small [-r REPETITIONS] [-u] [-z] -c OLD NEW
 * 2^23 weights: the f32 tensors of FILE over and over, each with 0.1% of noise; without FILE, a Gaussian network
 * without exact zeros. A step is RATE * sign * min(1, |gradient|), with a Gaussian gradient, in f32; then both are
 * rounded. -c: the weights of two raw files of f32 instead, as train --weights writes them. -u: of one thread, measure
 * processor time, on a machine that is busy with other things. -z: compare with zstd --patch-from, xdelta3 and bsdiff,
 * if installed, at the rates that have limits: takes minutes. Exits with status 1 if a limit is missed. */
#define _GNU_SOURCE
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "cpu/kernels.h"
#include "pici/delta.h"

enum { WEIGHTS = 1 << 23, MOST_REPS = 100 };

/* The project's limits for the length relative to the bound, and for GB/s of dense bytes with at most about 10%
 * changed. */
static const double limit_times = 1.10;
static const struct {
    const char *isa;
    double diff, apply;
} limit_speed[] = {{"scalar", 0.3, 0.4}, {"avx2", 0.6, 0.9}, {"avx512", 0.9, 1.5}};
static const double rates[] = {1e-6, 5e-6, 2e-5, 1e-4, 1e-3}; /* of bf16: 1.9, 4.6, 10, 25 and 67% change */
enum { LIMITED = 3 /* the first rates, which change about a tenth of bf16 at most, have limits */ };
static const double limit_zstd = 0.45;   /* relative to zstd -19 --patch-from */
static const double limit_threads = 1.6; /* speedup of two threads over one */

/* The f32 values of a file, without its head if it is a .safetensors file. */
static float *read_weights(const char *path, int raw, size_t *n)
{
    FILE *f = fopen(path, "rb");
    uint64_t head;
    if (!f || fread(&head, sizeof head, 1, f) != 1 || (!raw && head > 1 << 26) || fseek(f, 0, SEEK_END))
        die("cannot read the weights");
    const long end = ftell(f), begin = raw ? 0 : 8 + (long)head;
    *n = end > begin ? (size_t)(end - begin) / sizeof(float) : 0;
    float *w = malloc(*n * sizeof *w);
    if (!*n || !w || fseek(f, begin, SEEK_SET) || fread(w, sizeof *w, *n, f) != *n)
        die("cannot read the weights");
    fclose(f);
    return w;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Convert f32 to bits of dtype, rounded to nearest even. */
static uint32_t rounded(float f, enum pici_dtype dtype)
{
    const uint32_t u = bits_of(f);
    if (dtype == PICI_F32)
        return u;
    if (dtype == PICI_BF16)
        return (u + 0x7fff + (u >> 16 & 1)) >> 16;
    const uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a >= 0x477ff000) /* rounds to infinity; there are no NaNs */
        return sign | 0x7c00;
    if (a < 0x38800000) /* a denormal: multiples of 2^-24 */
        return sign | (uint32_t)lrint(fabs((double)f) * 0x1p24);
    return sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}

static void store_weight(uint8_t *to, size_t i, uint32_t u, size_t width)
{
    const uint16_t half = (uint16_t)u;
    if (width == 2)
        memcpy(to + 2 * i, &half, 2);
    else
        memcpy(to + 4 * i, &u, 4);
}

static uint32_t load_weight(const uint8_t *from, size_t i, size_t width)
{
    uint16_t half;
    uint32_t u;
    if (width == 2) {
        memcpy(&half, from + 2 * i, 2);
        return half;
    }
    memcpy(&u, from + 4 * i, 4);
    return u;
}

static void make_step(uint8_t *base, uint8_t *next, enum pici_dtype dtype, double rate, const float *file, size_t n)
{
    uint64_t state = 1;
    for (size_t i = 0; i < WEIGHTS; i++) {
        float w = file ? file[i % n] : (float)(0.05 * normal(&state));
        if (!isfinite(w))
            w = 0.01f;
        w *= (float)(1 + 1e-3 * normal(&state));
        const double g = normal(&state), s = rate * (uniform(&state) < 0.5 ? -1 : 1) * (fabs(g) < 1 ? fabs(g) : 1);
        store_weight(base, i, rounded(w, dtype), pici_dtype_width(dtype));
        store_weight(next, i, rounded((float)((double)w + s), dtype), pici_dtype_width(dtype));
    }
}

/* A lower bound in bits, for dtypes of 16 bits: positions, and differences of neighbours given the exponent of the old
 * weight. */
static double bound_of(const uint8_t *base, const uint8_t *next, enum pici_dtype dtype, size_t *changed)
{
    static uint32_t hist[256][1 << 16];
    const unsigned shift = dtype == PICI_F16 ? 10 : 7, exponents = dtype == PICI_F16 ? 31 : 255;
    double n[256] = {0}, k[256] = {0}, bits = 0;
    memset(hist, 0, sizeof hist);
    *changed = 0;
    for (size_t i = 0; i < WEIGHTS; i++) {
        const uint32_t a = load_weight(base, i, 2), b = load_weight(next, i, 2), e = a >> shift & exponents;
        n[e]++;
        if (a == b)
            continue;
        const uint32_t x = a ^ (0x7fff & (0 - (a >> 15))), y = b ^ (0x7fff & (0 - (b >> 15)));
        k[e]++;
        hist[e][(y - x) & 0xffff]++;
        ++*changed;
    }
    for (unsigned e = 0; e <= exponents; e++) {
        const double p = n[e] > 0 ? k[e] / n[e] : 0;
        bits += p > 0 && p < 1 ? -n[e] * (p * log2(p) + (1 - p) * log2(1 - p)) : 0;
        for (unsigned d = 0; d < 1 << 16; d++)
            bits += hist[e][d] ? -(double)hist[e][d] * log2(hist[e][d] / k[e]) : 0;
    }
    return bits;
}

struct run {
    uint8_t *base, *next, *dst, *delta;
    size_t n, bytes, cap, len; /* n: weights */
    enum pici_dtype dtype;
};

static clockid_t clock_of_one = CLOCK_MONOTONIC; /* of the speeds of one thread */

/* Seconds of one diff or apply. */
static double once(struct run *r, int apply, int threads, clockid_t clock)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = threads;
    if (apply)
        memcpy(r->dst, r->base, r->bytes);
    const double start = seconds(clock);
    const enum pici_status s =
        apply ? pici_apply_small(r->dst, r->n, r->delta, r->len, &opts)
              : pici_diff_small(r->delta, r->cap, &r->len, r->base, r->next, r->n, r->dtype, PICI_AUTO, &opts);
    const double t = seconds(clock) - start;
    if (s || (apply && memcmp(r->dst, r->next, r->bytes)))
        die("wrong result: a small delta");
    return t;
}

static const char *clock_words(void)
{
    return clock_of_one == CLOCK_MONOTONIC ? "" : ", processor time of one thread";
}

/* GB/s. */
static double speed(struct run *r, int apply, int threads, int reps)
{
    double t[MOST_REPS];
    for (int i = 0; i < reps; i++)
        t[i] = once(r, apply, threads, clock_of_one);
    return (double)r->bytes / median(t, (size_t)reps) / 1e9;
}

static void write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, n, 1, f) != 1 || fclose(f))
        die("cannot write a file");
}

/* Other programs that make deltas of files. "-F" and "-T" in the arguments stand for the old and the new file. */
static const struct peer {
    const char *name, *argv[8];
} peers[] = {
    {"zstd -3 --patch-from", {"zstd", "-q", "-3", "--patch-from", "-F", "-T", "-o", "d"}},
    {"zstd -19 --patch-from", {"zstd", "-q", "-19", "--patch-from", "-F", "-T", "-o", "d"}},
    {"xdelta3 -9", {"xdelta3", "-e", "-9", "-q", "-s", "-F", "-T", "d"}},
    {"bsdiff", {"bsdiff", "-F", "-T", "d"}},
};

/* The size in bytes of the program's delta from file a to file b of the directory, or -1 if it is not installed. */
static long peer_bytes(const struct peer *p, const char *dir, double *took)
{
    const char *argv[10] = {NULL};
    for (size_t i = 0; i < COUNT_OF(p->argv) && p->argv[i]; i++)
        argv[i] = strcmp(p->argv[i], "-F") == 0 ? "a" : strcmp(p->argv[i], "-T") == 0 ? "b" : p->argv[i];
    const double start = seconds(CLOCK_MONOTONIC);
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        if (chdir(dir) == 0 && freopen("/dev/null", "w", stderr)) /* hides zstd's advice */
            execvp(argv[0], (char *const *)argv);                 /* it does not change its arguments */
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        die("a program that makes deltas failed");
    *took = seconds(CLOCK_MONOTONIC) - start;
    if (WEXITSTATUS(status) == 127)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "%s/d", dir);
    FILE *f = fopen(path, "rb");
    const long n = !WEXITSTATUS(status) && f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    if (f)
        fclose(f);
    unlink(path);
    if (n <= 0)
        die("a program that makes deltas failed");
    return n;
}

static int print_peers(const struct run *r, int limits)
{
    char dir[] = "/tmp/delta_small.XXXXXX", a[64], b[64];
    int missed = 0;
    if (!mkdtemp(dir))
        die("no temporary directory");
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    write_file(a, r->base, r->bytes);
    write_file(b, r->next, r->bytes);
    for (size_t i = 0; i < COUNT_OF(peers); i++) {
        double took;
        const long n = peer_bytes(&peers[i], dir, &took);
        if (n < 0) {
            printf("    %-21s is not installed\n", peers[i].name);
            continue;
        }
        const double times = (double)r->len / (double)n;
        const int over = limits && strcmp(peers[i].name, "zstd -19 --patch-from") == 0 && times > limit_zstd;
        printf("    %-21s %9ld bytes; ours are %.3f of it%s; %.4f GB/s\n", peers[i].name, n, times,
               over ? " (missed!)" : "", (double)r->bytes / took / 1e9);
        fflush(stdout);
        missed += over;
    }
    unlink(a);
    unlink(b);
    rmdir(dir);
    return missed;
}

/* Alternate between one thread and two, so that other programs slow both down. */
static int print_threads(struct run *r, int reps, int limits)
{
    int missed = 0;
    printf("    2 threads");
    for (int apply = 0; apply < 2; apply++) {
        double t[2][MOST_REPS];
        for (int i = 0; i < reps; i++)
            for (int k = 0; k < 2; k++)
                t[k][i] = once(r, apply, 1 + k, CLOCK_MONOTONIC);
        const double one = median(t[0], (size_t)reps), two = median(t[1], (size_t)reps);
        const int slow = limits && one / two < limit_threads;
        printf("  %s %5.2f, %.2f times one%s", apply ? "apply" : "diff", (double)r->bytes / two / 1e9, one / two,
               slow ? " (missed!)" : "");
        missed += slow;
    }
    printf("\n");
    return missed;
}

static int print_speeds(struct run *r, int reps, int limits)
{
    int missed = 0;
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        const double diff = speed(r, 0, 1, reps), apply = speed(r, 1, 1, reps);
        printf("    %-8s diff %5.2f  apply %5.2f", (*isa)->name, diff, apply);
        for (size_t i = 0; limits && i < COUNT_OF(limit_speed); i++)
            if (strcmp(limit_speed[i].isa, (*isa)->name) == 0) {
                const int slow = diff < limit_speed[i].diff || apply < limit_speed[i].apply;
                printf("  (limits %g, %g%s)", limit_speed[i].diff, limit_speed[i].apply, slow ? ": missed!" : "");
                missed += slow;
            }
        printf("\n");
    }
    pici_isa_force(NULL);
    return missed + print_threads(r, reps, limits);
}

/* Print lengths, other programs and speeds, for base and next. bound: in bytes, 0 if unknown. */
static int print_run(struct run *r, double bound, int limits, int reps, int others)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t old_len, changed = 0;
    int missed = 0;
    const size_t width = pici_dtype_width(r->dtype);
    for (size_t i = 0; i < r->n; i++)
        changed += load_weight(r->base, i, width) != load_weight(r->next, i, width);
    if (pici_diff(r->delta, r->cap, &old_len, r->base, r->next, r->n, r->dtype, PICI_AUTO, &opts))
        die("pici_diff failed");
    once(r, 0, 1, CLOCK_MONOTONIC);
    printf("%.2f%% changed; %zu bytes, %.2f bits a weight; pici_diff %zu", 100.0 * (double)changed / (double)r->n,
           r->len, 8.0 * (double)r->len / (double)r->n, old_len);
    if (bound > 0) {
        const double times = (double)r->len / bound;
        missed = limits && times > limit_times;
        printf("; %.3f of the bound %.0f%s", times, bound, missed ? " (missed!)" : "");
    }
    printf("\n");
    fflush(stdout);
    if (others)
        missed += print_peers(r, limits);
    return missed + print_speeds(r, reps, limits);
}

static int print_rate(struct run *r, double rate, const float *file, size_t n, int reps, int others)
{
    size_t changed = 0;
    make_step(r->base, r->next, r->dtype, rate, file, n);
    const double bound = r->dtype == PICI_F32 ? 0 : bound_of(r->base, r->next, r->dtype, &changed) / 8;
    const int in_limits = rate <= rates[LIMITED - 1];
    printf("  rate %g: ", rate);
    return print_run(r, bound, r->dtype == PICI_BF16 && file && in_limits, reps, others && file && in_limits);
}

static void run_open(struct run *r, enum pici_dtype dtype, size_t n)
{
    *r = (struct run){.dtype = dtype, .n = n, .bytes = n * pici_dtype_width(dtype)};
    const size_t one = pici_diff_small_bound(PICI_HYBRID, dtype, n), other = pici_bound(PICI_HYBRID, dtype, n);
    r->cap = one > other ? one : other;
    r->base = buffer(r->bytes, 0);
    r->next = buffer(r->bytes, 0);
    r->dst = buffer(r->bytes, 0);
    r->delta = buffer(r->cap, 0);
}

static void run_close(struct run *r)
{
    free(r->base);
    free(r->next);
    free(r->dst);
    free(r->delta);
}

static void print_checkpoints(const char *old, const char *new, int reps, int others)
{
    struct run r;
    size_t n, m;
    float *const from = read_weights(old, 1, &n), *const to = read_weights(new, 1, &m);
    if (n != m)
        die("two files of different lengths");
    run_open(&r, PICI_F32, n);
    memcpy(r.base, from, r.bytes);
    memcpy(r.next, to, r.bytes);
    printf("small deltas: f32, %zu weights of two files; GB/s of dense bytes%s, median of %d\n  ", n, clock_words(),
           reps);
    print_run(&r, 0, 0, reps, others);
    run_close(&r);
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    static const enum pici_dtype dtypes[] = {PICI_BF16, PICI_F16, PICI_F32};
    int reps = 7, others = 0, checkpoints = 0, missed = 0, c;
    while ((c = getopt(argc, argv, "r:uzc")) != -1) {
        reps = c == 'r' ? atoi(optarg) : reps;
        others |= c == 'z';
        clock_of_one = c == 'u' ? CLOCK_THREAD_CPUTIME_ID : clock_of_one;
        checkpoints |= c == 'c';
        if (c == '?' || reps < 1 || reps > MOST_REPS) {
            fprintf(stderr, "usage: delta_small [-r REPETITIONS] [-u] [-z] [FILE.safetensors | -c OLD NEW]\n");
            return 2;
        }
    }
    if (checkpoints && argc - optind == 2) {
        print_checkpoints(argv[optind], argv[optind + 1], reps, others);
        return 0;
    }
    size_t n = 0;
    float *const file = optind < argc ? read_weights(argv[optind], 0, &n) : NULL;
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        struct run r;
        run_open(&r, dtypes[i], WEIGHTS);
        printf("small deltas: %s, 2^23 weights%s; GB/s of dense bytes%s, median of %d\n", pici_dtype_name(r.dtype),
               file ? "" : " of a Gaussian network", clock_words(), reps);
        for (size_t k = 0; k < COUNT_OF(rates); k++)
            missed += print_rate(&r, rates[k], file, n, reps, others);
        run_close(&r);
    }
    printf("limits: %g of the bound, %g of zstd -19, speeds; %d missed (!)\n", limit_times, limit_zstd, missed);
    free(file);
    return missed != 0;
}
