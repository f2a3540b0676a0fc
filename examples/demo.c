/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Trains a small network. Each step sends the largest 1% of the gradient as a pici block to a replica, which adds it to
 * its own weights. Then picitool compresses the last gradient to a file and restores it, and the codec is timed beside
 * memcpy.
 *     demo PICITOOL DIR      run by make demo
 * Needs only libc. Exits with status 1 if any result is not byte for byte what it must be. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pici/pici.h>
#include <pici/topk.h>

enum { IN = 1024, HIDDEN = 4096, OUT = 10, BATCH = 32, STEPS = 10, REPETITIONS = 15 };
enum { W1 = 0, B1 = W1 + IN * HIDDEN, W2 = B1 + HIDDEN, B2 = W2 + HIDDEN * OUT, PARAMS = B2 + OUT };

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "demo: %s: %s\n", what, why);
    exit(1);
}

static void must(enum pici_status s, const char *what)
{
    if (s != PICI_OK)
        die(what, pici_strerror(s));
}

static void *allocate(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        die("memory", strerror(errno));
    return p;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the network: two layers, ReLU, softmax, cross entropy */

/* Pseudo-random, uniform in [-1, 1); the same sequence in every run. */
static float uniform(void)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(state >> 40) / (1 << 23) - 1.0);
}

/* Generate an example x [IN]: noise around the centre of a random class. Returns the class. */
static int example(float *x)
{
    static float centre[OUT][IN];
    static int made;
    for (; made < OUT; made++)
        for (int i = 0; i < IN; i++)
            centre[made][i] = 0.5f * uniform();
    const int label = (int)((uniform() + 1) / 2 * OUT);
    for (int i = 0; i < IN; i++)
        x[i] = centre[label][i] + uniform();
    return label;
}

static void axpy(float *restrict y, float a, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Add rate times the gradient of one example's loss to g [PARAMS]. Returns the loss. */
static double learn(float *g, const float *w, const float *x, int label, float rate)
{
    static float hidden[HIDDEN], dhidden[HIDDEN];
    float p[OUT], top = -INFINITY, sum = 0;

    memcpy(hidden, w + B1, sizeof hidden);
    for (int i = 0; i < IN; i++)
        axpy(hidden, x[i], w + W1 + i * HIDDEN, HIDDEN);
    for (int o = 0; o < OUT; o++) {
        p[o] = w[B2 + o];
        for (int j = 0; j < HIDDEN; j++)
            p[o] += hidden[j] > 0 ? hidden[j] * w[W2 + o * HIDDEN + j] : 0;
        top = fmaxf(top, p[o]);
    }
    for (int o = 0; o < OUT; o++)
        sum += p[o] = expf(p[o] - top);

    memset(dhidden, 0, sizeof dhidden);
    for (int o = 0; o < OUT; o++) {
        const float d = rate * (p[o] / sum - (o == label));
        g[B2 + o] += d;
        for (int j = 0; j < HIDDEN; j++)
            if (hidden[j] > 0) {
                g[W2 + o * HIDDEN + j] += d * hidden[j];
                dhidden[j] += d * w[W2 + o * HIDDEN + j];
            }
    }
    axpy(g + B1, 1, dhidden, HIDDEN);
    for (int i = 0; i < IN; i++)
        axpy(g + W1 + i * HIDDEN, x[i], dhidden, HIDDEN);
    return -log((double)p[label] / (double)sum);
}

/* ---- the largest 1% */

/* Subtract a gradient [PARAMS] from pending. Replace the gradient by the largest 1% of the result, and keep the rest in
 * pending. Returns the number of kept elements. */
static uint64_t keep_largest(float *gradient, float *pending)
{
    struct pici_topk_opts opts = PICI_TOPK_OPTS_INIT;
    uint64_t kept;
    opts.select = PICI_SELECT_GLOBAL;
    opts.density = 0.01;
    opts.rate = -1;
    must(pici_topk(gradient, &kept, pending, NULL, gradient, PARAMS, PICI_F32, &opts), "topk");
    return kept;
}

/* ---- files */

/* A .safetensors file: eight bytes of length, a JSON header, the tensors' little-endian elements. */
static void write_safetensors(const char *path, const float *g)
{
    char header[512];
    int n = snprintf(header, sizeof header,
                     "{\"hidden.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]},"
                     "\"hidden.bias\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
                     "\"output.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]},"
                     "\"output.bias\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
                     IN, HIDDEN, 4 * W1, 4 * B1, HIDDEN, 4 * B1, 4 * W2, OUT, HIDDEN, 4 * W2, 4 * B2, OUT, 4 * B2,
                     4 * PARAMS);
    while (n % 8)
        header[n++] = ' ';

    FILE *f = fopen(path, "wb");
    if (!f)
        die(path, strerror(errno));
    for (int i = 0; i < 8; i++)
        putc(i < 4 ? n >> 8 * i & 0xff : 0, f);
    fwrite(header, 1, (size_t)n, f);
    for (size_t i = 0; i < PARAMS; i++) {
        uint32_t u;
        memcpy(&u, &g[i], sizeof u);
        const unsigned char le[4] = {u & 0xff, u >> 8 & 0xff, u >> 16 & 0xff, u >> 24};
        fwrite(le, 1, sizeof le, f);
    }
    if (ferror(f) | fclose(f))
        die(path, strerror(errno));
}

static unsigned char *read_file(const char *path, size_t *len)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st))
        die(path, strerror(errno));
    *len = (size_t)st.st_size;
    unsigned char *bytes = allocate(*len + 1);
    if (fread(bytes, 1, *len, f) != *len)
        die(path, "short read");
    fclose(f);
    return bytes;
}

static void run(const char *const argv[])
{
    int column = printf("   $ picitool");
    for (int i = 1; argv[i]; i++) {
        if (column + 1 + (int)strlen(argv[i]) > 78)
            column = printf(" \\\n        ") - 3;
        column += printf(" %s", argv[i]);
    }
    printf("\n");
    fflush(stdout);

    int status;
    const pid_t child = fork();
    if (child == 0) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        die(argv[0], strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        die(argv[0], "failed");
}

/* ---- speed */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct work {
    float *dst;
    const float *src;
    unsigned char *block;
    size_t cap, len;
    enum pici_format format;
};

static void do_memcpy(struct work *w)
{
    memcpy(w->dst, w->src, PARAMS * sizeof(float));
}

static void do_compress(struct work *w)
{
    must(pici_compress(w->block, w->cap, &w->len, w->src, PARAMS, PICI_F32, w->format, NULL), "compress");
}

static void do_decompress(struct work *w)
{
    must(pici_decompress(w->dst, PARAMS, w->block, w->len, NULL), "decompress");
}

static void do_scatter_add(struct work *w)
{
    must(pici_scatter_add(w->dst, PARAMS, w->block, w->len, NULL), "scatter-add");
}

/* Median speed of an operation, in GB/s of dense bytes. */
static double speed(void (*operation)(struct work *), struct work *w)
{
    double t[REPETITIONS];
    operation(w);
    for (int i = 0; i < REPETITIONS; i++) {
        const double start = seconds();
        operation(w);
        t[i] = seconds() - start;
    }
    qsort(t, REPETITIONS, sizeof *t, by_value);
    return PARAMS * sizeof(float) / t[REPETITIONS / 2] / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: demo PICITOOL DIR\n");
        return 2;
    }
    const size_t dense = PARAMS * sizeof(float), cap = pici_bound(PICI_AUTO, PICI_F32, PARAMS);
    const double mib = (double)dense / (1 << 20);
    float *weights = allocate(dense), *replica = allocate(dense), *pending = allocate(dense), *send = allocate(dense);
    float *x = allocate(IN * sizeof(float));
    unsigned char *block = allocate(cap);
    uint64_t kept = 0;
    size_t len;

    printf("1. A %d x %d x %d network learns. Each step sends the largest 1%% of its\n"
           "   gradient, %.1f MiB dense, to a replica as a block, in the format that AUTO\n"
           "   chooses. What is not sent waits for the next step.\n\n"
           "      step    loss    values sent        block    of dense   format\n",
           IN, HIDDEN, OUT, mib);
    for (size_t i = 0; i < PARAMS; i++)
        weights[i] = uniform() * (i < W2 ? 0.03f : 0.015f);
    memcpy(replica, weights, dense);
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        memset(send, 0, dense);
        for (int b = 0; b < BATCH; b++) {
            const int label = example(x);
            loss += learn(send, weights, x, label, 0.1f / BATCH);
        }
        kept = keep_largest(send, pending);
        must(pici_compress(block, cap, &len, send, PARAMS, PICI_F32, PICI_AUTO, NULL), "compress");
        must(pici_scatter_add(weights, PARAMS, block, len, NULL), "scatter-add");
        must(pici_scatter_add(replica, PARAMS, block, len, NULL), "scatter-add");
        struct pici_info info = PICI_INFO_INIT;
        must(pici_inspect(&info, block, len), "inspect");
        printf("      %4d  %6.3f  %13llu  %7.1f KiB  %9.2f%%   %s\n", step, loss / BATCH, (unsigned long long)kept,
               (double)len / 1024, 100 * (double)len / (double)dense, pici_format_name(info.format));
        fflush(stdout);
    }
    if (memcmp(weights, replica, dense))
        die("replica", "its weights differ");
    printf("\n   The replica, which saw the blocks alone, has the same weights, byte for byte.\n\n");

    printf("2. The last gradient sent, as a .safetensors file, to a .pici file and back.\n\n");
    char in[1024], packed[1024], back[1024];
    if (snprintf(in, sizeof in, "%s/gradient.safetensors", argv[2]) >= (int)sizeof in ||
        snprintf(packed, sizeof packed, "%s/gradient.pici", argv[2]) >= (int)sizeof packed ||
        snprintf(back, sizeof back, "%s/restored.safetensors", argv[2]) >= (int)sizeof back)
        die(argv[2], "name too long");
    if (mkdir(argv[2], 0777) && errno != EEXIST)
        die(argv[2], strerror(errno));
    write_safetensors(in, send);
    run((const char *[]){argv[1], "compress", "--force", "-o", packed, in, NULL});
    run((const char *[]){argv[1], "inspect", packed, NULL});
    run((const char *[]){argv[1], "decompress", "--force", "-o", back, packed, NULL});
    size_t in_len, packed_len, back_len;
    unsigned char *in_bytes = read_file(in, &in_len), *back_bytes = read_file(back, &back_len);
    free(read_file(packed, &packed_len));
    if (in_len != back_len || memcmp(in_bytes, back_bytes, in_len))
        die(back, "differs from what was compressed");
    printf("\n   %zu bytes became %zu (%.2f%%), and came back byte for byte.\n\n", in_len, packed_len,
           100 * (double)packed_len / (double)in_len);

    struct work w = {replica, send, block, cap, 0, PICI_AUTO};
    const double copy = speed(do_memcpy, &w);
    do_compress(&w);
    struct pici_info chosen = PICI_INFO_INIT;
    must(pici_inspect(&chosen, block, w.len), "inspect");
    printf("3. Speed on that gradient: one thread, median of %d, GB/s of the %.1f MiB dense;\n"
           "   in parentheses, times memcpy. The last column marks what AUTO chooses.\n\n"
           "                  block      compress    decompress    scatter-add\n"
           "   memcpy                %5.1f\n",
           REPETITIONS, mib, copy);
    static const enum pici_format formats[] = {PICI_HYBRID, PICI_BITMAP, PICI_COO};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        w.format = formats[i];
        const double c = speed(do_compress, &w), d = speed(do_decompress, &w);
        if (memcmp(w.dst, w.src, dense))
            die(pici_format_name(w.format), "decoded to something else");
        const double a = speed(do_scatter_add, &w);
        printf("   %-6s  %8.1f KiB  %5.1f (%4.1f)  %5.1f (%4.1f)  %6.1f (%4.1f)%s\n", pici_format_name(w.format),
               (double)w.len / 1024, c, c / copy, d, d / copy, a, a / copy, w.format == chosen.format ? "  AUTO" : "");
    }
    free(in_bytes);
    free(back_bytes);
    free(block);
    free(x);
    free(send);
    free(pending);
    free(replica);
    free(weights);
    return 0;
}
