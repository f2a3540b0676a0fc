/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/reading.h"
#include "input/source.h"
#include "measure/measure.h"
#include "show/jsonout.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"

enum { COMPRESS, DECOMPRESS, SCATTER_ADD, OPS, LEAST_TIMED = 4 << 20, SCRATCH = 1 << 20 };

struct bench {
    const struct tool_options *o;
    const char *name; /* of the file's tensor; NULL: synthetic */
    char *name_storage;
    enum pici_dtype dtype;
    uint64_t n; /* elements */
    size_t bytes;
    uint8_t *src, *dst, *block;
    size_t block_cap;
    double *seconds; /* [1 + OPS * FORMATS][reps], memcpy first */
    struct jsonout json;
    struct suggest near; /* to --tensor */
};

static int out_of_memory(const struct bench *b)
{
    char text[TERM_TEXT];
    return tool_bad(b->name ? b->o->args[0] : NULL, "out of memory for %s of elements and what is made of them",
                    term_bytes(text, b->bytes));
}

/* ---- data */

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Random bits of a nonzero value. Floats are between 1 and 2 in magnitude, since denormals are slow on some CPUs. */
static uint64_t value(enum pici_dtype dtype, uint64_t random)
{
    switch (dtype) {
    case PICI_F64: return (random & UINT64_C(0x800fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    case PICI_F32: return (random & 0x807fffffu) | 0x3f800000u;
    case PICI_F16: return (random & 0x83ffu) | 0x3c00u;
    case PICI_BF16: return (random & 0x807fu) | 0x3f80u;
    case PICI_F8E4M3: return (random & 0x87u) | 0x38u;
    case PICI_F8E5M2: return (random & 0x83u) | 0x3cu;
    default: return random | 1;
    }
}

/* Fills uniformly random positions, the same in every run. */
static void fill(struct bench *b, double sparsity)
{
    size_t width = pici_dtype_width(b->dtype);
    uint64_t state = 1;
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t element = 0, r = next_random(&state);
        if ((double)(r >> 11) * 0x1p-53 >= sparsity)
            element = value(b->dtype, next_random(&state));
        uint8_t v8 = (uint8_t)element;
        uint16_t v16 = (uint16_t)element;
        uint32_t v32 = (uint32_t)element;
        memcpy(b->src + i * width,
               width == 1   ? (void *)&v8
               : width == 2 ? (void *)&v16
               : width == 4 ? (void *)&v32
                            : &element,
               width);
    }
}

/* Selects a tensor if it is longer than the one selected before: *buffer is then memory for its bytes, else NULL. */
static int take(struct bench *b, const char *name, size_t size, enum pici_dtype dtype, uint64_t n, uint8_t **buffer)
{
    uint64_t bytes = n * pici_dtype_width(dtype);
    const char *only = b->o->tensor;
    *buffer = NULL;
    if (only)
        suggest_word(&b->near, name);
    if (only ? strlen(only) != size || memcmp(only, name, size) != 0 : b->src && bytes <= b->bytes)
        return TOOL_OK;
    free(b->src);
    free(b->name_storage);
    b->src = bytes < SIZE_MAX ? malloc((size_t)bytes + 1) : NULL;
    b->name_storage = malloc(size + 1);
    if (!b->src || !b->name_storage)
        return tool_nomem(b->o->args[0], "the elements");
    memcpy(b->name_storage, name, size);
    b->name_storage[size] = 0;
    b->name = b->name_storage;
    b->dtype = dtype;
    b->n = n;
    b->bytes = (size_t)bytes;
    *buffer = b->src;
    return TOOL_OK;
}

static int take_from_source(struct bench *b, struct source *source, uint8_t *scratch)
{
    for (;;) {
        struct source_tensor tensor;
        bool more;
        uint8_t *into = NULL;
        TRY(source_next(source, &tensor, &more));
        if (!more)
            return TOOL_OK;
        if (!tensor.filler)
            TRY(take(b, tensor.title, tensor.title_size, tensor.dtype, tensor.count, &into));
        if (into)
            TRY(source_take(source, into, b->bytes));
        while (source->left)
            TRY(source_take(source, scratch, source->left < SCRATCH ? (size_t)source->left : SCRATCH));
    }
}

static int load_source(struct bench *b, struct input *input)
{
    struct source source;
    uint8_t *const scratch = malloc(SCRATCH);
    int status = scratch ? source_open(&source, input, b->o->args[0], b->o) : tool_nomem(input->name, "the input");
    if (!status) {
        status = take_from_source(b, &source, scratch);
        source_close(&source);
    }
    free(scratch);
    return status;
}

static int take_from_file(struct bench *b, struct reading *reading)
{
    for (;;) {
        struct pici_tensor_info tensor;
        bool more;
        uint8_t *into;
        TRY(reading_next(reading, &tensor, &more));
        if (!more)
            return TOOL_OK;
        TRY(take(b, tensor.name, tensor.name_len, tensor.dtype, tensor.count, &into));
        const enum pici_status status = into ? pici_reader_read(reading->reader, into, tensor.count) : PICI_OK;
        if (status)
            return reading_failed(reading, status);
    }
}

static int load_input(struct bench *b, struct input *input, struct reading *reading)
{
    enum reading_kind kind = READING_OTHER;
    if (!b->o->type && !b->o->dtype)
        TRY(reading_kind(input, b->o->args[0], &kind));
    if (kind == READING_BLOCK)
        return tool_usage(input->name, "is a bare block; bench takes tensors");
    if (kind == READING_FILE) {
        TRY(reading_open(reading, input, b->o->threads, true));
        TRY(take_from_file(b, reading));
    } else {
        TRY(load_source(b, input));
    }
    if (!b->name)
        return b->o->tensor ? tool_no_tensor(input->name, &b->near) : tool_bad(input->name, "has no tensors");
    return b->n ? TOOL_OK : tool_bad(input->name, "tensor %s has no elements", b->name);
}

/* Reads the longest tensor of the file, or that of --tensor. */
static int load(struct bench *b)
{
    struct input input;
    struct reading reading = {0};
    TRY(input_open(&input, b->o->args[0]));
    const int status = load_input(b, &input, &reading);
    reading_close(&reading);
    input_close(&input);
    return status;
}

/* ---- measuring */

static int by_value(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

/* The median of a row, in GB/s of dense bytes. */
static double speed(const struct bench *b, int row)
{
    int reps = b->o->reps;
    double *t = b->seconds + (size_t)row * (size_t)reps;
    qsort(t, (size_t)reps, sizeof *t, by_value);
    double median = reps % 2 ? t[reps / 2] : (t[reps / 2 - 1] + t[reps / 2]) / 2;
    return (double)b->bytes / median / 1e9;
}

/* Times one operation. Returns the seconds of one run. */
static enum pici_status time_op(struct bench *b, int op, enum pici_format f, size_t *size, double *seconds)
{
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = b->o->threads;
    /* Repeat what is too short for the clock. */
    size_t times = b->bytes < LEAST_TIMED ? LEAST_TIMED / b->bytes : 1;
    enum pici_status status = PICI_OK;
    double start = term_now();
    for (size_t i = 0; i < times && status == PICI_OK; i++)
        status = op == COMPRESS ? pici_compress(b->block, b->block_cap, size, b->src, b->n, b->dtype, f, &codec_options)
                 : op == DECOMPRESS ? pici_decompress(b->dst, b->n, b->block, *size, &codec_options)
                                    : pici_scatter_add(b->dst, b->n, b->block, *size, &codec_options);
    *seconds = (term_now() - start) / (double)times;
    return status;
}

static double time_memcpy(struct bench *b)
{
    size_t times = b->bytes < LEAST_TIMED ? LEAST_TIMED / b->bytes : 1;
    double start = term_now();
    for (size_t i = 0; i < times; i++) {
        memcpy(b->dst, b->src, b->bytes);
        __asm__ volatile("" : : "r"(b->dst) : "memory"); /* keeps the compiler from removing copies */
    }
    return (term_now() - start) / (double)times;
}

static bool skipped(const struct bench *b, int f)
{
    return b->o->format != PICI_AUTO && (int)b->o->format != f;
}

static void tell(struct bench *b, double sparsity, const size_t size[FORMATS])
{
    double copy = speed(b, 0);
    char bytes[TERM_TEXT];
    for (int f = 0; f < FORMATS; f++) {
        if (skipped(b, f))
            continue;
        double gbs[OPS];
        for (int op = 0; op < OPS; op++)
            gbs[op] = speed(b, 1 + OPS * f + op);
        const char *format = pici_format_name((enum pici_format)f);
        if (b->o->json) {
            static const char *const names[OPS] = {"compress", "decompress", "scatter_add"};
            jsonout_begin(&b->json, NULL, '{');
            jsonout_real(&b->json, "sparsity", sparsity);
            jsonout_string(&b->json, "format", format);
            jsonout_u64(&b->json, "block_bytes", size[f]);
            jsonout_begin(&b->json, "gb_per_second", '{');
            jsonout_real(&b->json, "memcpy", copy);
            for (int op = 0; op < OPS; op++)
                jsonout_real(&b->json, names[op], gbs[op]);
            jsonout_end(&b->json, '}');
            jsonout_end(&b->json, '}');
        } else {
            printf("%7.5g%%  %-6s  %8s", 100 * sparsity, format, term_bytes(bytes, size[f]));
            for (int op = 0; op < OPS; op++)
                printf("  %6.1f %5.2fx", gbs[op], gbs[op] / copy);
            printf("  %6.1f\n", copy);
        }
    }
    fflush(stdout);
}

/* Runs every operation once in each repetition, so that noise of the machine affects all of them alike. */
static int measure(struct bench *b, double sparsity)
{
    size_t size[FORMATS] = {0};
    memset(b->dst, 0, b->bytes);
    memset(b->block, 0, b->block_cap);
    for (int rep = -1; rep < b->o->reps; rep++) { /* -1: to warm up, and to check */
        double t = time_memcpy(b);
        if (rep >= 0)
            b->seconds[rep] = t;
        for (int f = 0; f < FORMATS; f++) {
            for (int op = 0; op < OPS && !skipped(b, f); op++) {
                enum pici_status status = time_op(b, op, (enum pici_format)f, &size[f], &t);
                if (status)
                    return tool_bad(b->name, "%s: %s", pici_format_name((enum pici_format)f), pici_strerror(status));
                if (rep < 0 && op == DECOMPRESS && memcmp(b->dst, b->src, b->bytes) != 0)
                    return tool_bad(b->name, "%s: decompressing gave other bytes",
                                    pici_format_name((enum pici_format)f));
                if (rep >= 0)
                    b->seconds[(size_t)(1 + OPS * f + op) * (size_t)b->o->reps + (size_t)rep] = t;
            }
        }
    }
    tell(b, sparsity, size);
    return TOOL_OK;
}

static int allocate(struct bench *b)
{
    for (int f = 0; f < FORMATS; f++) {
        size_t capacity = pici_bound((enum pici_format)f, b->dtype, b->n);
        if (!skipped(b, f) && capacity > b->block_cap)
            b->block_cap = capacity;
        if (!skipped(b, f) && capacity == 0)
            return out_of_memory(b);
    }
    if (!b->src)
        b->src = malloc(b->bytes);
    b->dst = malloc(b->bytes);
    b->block = malloc(b->block_cap);
    b->seconds = malloc((1 + OPS * FORMATS) * (size_t)b->o->reps * sizeof(double));
    return b->src && b->dst && b->block && b->seconds ? TOOL_OK : out_of_memory(b);
}

static void heading(struct bench *b)
{
    const struct tool_options *options = b->o;
    char bytes[TERM_TEXT];
    if (options->json) {
        b->json.f = stdout;
        jsonout_begin(&b->json, NULL, '{');
        if (b->name) {
            jsonout_string(&b->json, "file", tool_input_name(options->args[0]));
            jsonout_string(&b->json, "tensor", b->name);
        }
        jsonout_string(&b->json, "version", pici_version());
        jsonout_string(&b->json, "dtype", pici_dtype_name(b->dtype));
        jsonout_u64(&b->json, "elements", b->n);
        jsonout_u64(&b->json, "bytes", b->bytes);
        jsonout_u64(&b->json, "threads", (uint64_t)options->threads);
        jsonout_u64(&b->json, "repetitions", (uint64_t)options->reps);
        jsonout_begin(&b->json, "results", '[');
        return;
    }
    if (b->name) {
        term_puts(stdout, tool_input_name(options->args[0]));
        fputs(", tensor ", stdout);
        term_puts(stdout, b->name);
        fputs(": ", stdout);
    }
    printf("%s, %s, ", pici_dtype_name(b->dtype), term_bytes(bytes, b->bytes));
    if (options->threads)
        printf("%d thread%s", options->threads, options->threads == 1 ? "" : "s");
    else
        fputs("a thread for each core", stdout);
    printf("; GB/s of dense bytes and times memcpy, medians of %d\n\n", options->reps);
    puts("sparsity  format      size      compress     decompress    scatter-add  memcpy");
}

static int measure_all(struct bench *b)
{
    static const double all[] = {0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999};
    const double *list = b->o->sparsity ? b->o->sparsity : all;
    int lists = b->o->sparsity ? b->o->sparsities : (int)(sizeof all / sizeof *all);
    if (b->name) {
        struct density d;
        density_init(&d);
        density_add(&d, b->src, b->n, pici_dtype_width(b->dtype));
        return measure(b, 1 - (double)d.nnz / (double)b->n);
    }
    for (int i = 0; i < lists; i++) {
        fill(b, list[i]);
        TRY(measure(b, list[i]));
    }
    return TOOL_OK;
}

static int bench(struct bench *b)
{
    const struct tool_options *const options = b->o;
    if (options->nargs) {
        TRY(load(b));
    } else {
        b->n = options->bench_bytes / pici_dtype_width(b->dtype);
        b->bytes = (size_t)(b->n * pici_dtype_width(b->dtype));
        if (!b->n || b->bytes / pici_dtype_width(b->dtype) != b->n)
            return tool_usage(NULL, "bench: --size %" PRIu64 ": too small or too large", options->bench_bytes);
    }
    TRY(allocate(b));
    heading(b);
    const int status = measure_all(b);
    if (options->json) {
        jsonout_end(&b->json, ']');
        jsonout_end(&b->json, '}');
    }
    return status;
}

int verb_bench(const struct tool_options *options)
{
    struct bench b = {.o = options, .dtype = options->dtype ? (enum pici_dtype)options->dtype : PICI_F32};
    suggest_start(&b.near, options->tensor);
    if (options->nargs == 0 && (options->type || options->tensor))
        return tool_usage(NULL, "bench: --type and --tensor are for a FILE");
    if (options->nargs && (options->sparsity || options->bench_bytes_set))
        return tool_usage(NULL, "bench: --size and --sparsity are for synthetic data, without a FILE");
    const int status = bench(&b);
    free(b.name_storage);
    free(b.src);
    free(b.dst);
    free(b.block);
    free(b.seconds);
    return status;
}
