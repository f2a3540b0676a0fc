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
enum { ROWS = PICI_PACKED + 1 }; /* by format */

struct bench {
    const struct tool_options *options;
    const char *name; /* of the file's tensor; NULL: synthetic */
    char *name_storage;
    enum pici_dtype dtype;
    uint64_t elements;
    size_t bytes;
    uint8_t *source, *target, *block;
    size_t block_capacity;
    double *seconds; /* [1 + OPS * ROWS][reps], memcpy first */
    struct jsonout json;
    struct suggest near; /* names similar to --tensor */
};

static int out_of_memory(const struct bench *bench)
{
    char text[TERM_TEXT];
    return tool_bad(bench->name ? bench->options->args[0] : NULL, "out of memory for %s of elements and their blocks",
                    term_bytes(text, bench->bytes));
}

/* ---- data */

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t bits = *state += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* The bits of a float with exponent 0, and the length of its mantissa. */
static const struct {
    uint64_t one;
    unsigned mantissa, bits;
} floats[] = {
    [PICI_F32] = {0x3f800000, 23, 32}, [PICI_F64] = {UINT64_C(0x3ff0000000000000), 52, 64},
    [PICI_F16] = {0x3c00, 10, 16},     [PICI_BF16] = {0x3f80, 7, 16},
    [PICI_F8E4M3] = {0x38, 3, 8},      [PICI_F8E5M2] = {0x3c, 2, 8},
};

/* Random bits of a nonzero value. Floats are uniform in magnitude, but exponents stop at -5, since denormals are slow
 * on some CPUs. */
static uint64_t value(enum pici_dtype dtype, uint64_t random)
{
    if (dtype > PICI_F8E5M2)
        return random | 1;
    const unsigned mantissa = floats[dtype].mantissa;
    uint64_t below = 0;
    for (uint64_t coin = random ^ random >> 32; below < 5 && (coin >> 20 & 1); coin >>= 1)
        below++;
    const uint64_t fraction = random & ((UINT64_C(1) << mantissa) - 1), sign = random >> 63 << (floats[dtype].bits - 1);
    return sign | (floats[dtype].one - (below << mantissa)) | fraction;
}

/* Fills uniformly random positions, the same ones in every run. */
static void fill(struct bench *bench, double sparsity)
{
    size_t width = pici_dtype_width(bench->dtype);
    uint64_t state = 1;
    for (uint64_t i = 0; i < bench->elements; i++) {
        uint64_t element = 0, random = next_random(&state);
        if ((double)(random >> 11) * 0x1p-53 >= sparsity)
            element = value(bench->dtype, next_random(&state));
        uint8_t v8 = (uint8_t)element;
        uint16_t v16 = (uint16_t)element;
        uint32_t v32 = (uint32_t)element;
        const void *const bits[] = {[1] = &v8, [2] = &v16, [4] = &v32, [8] = &element}; /* by width */
        memcpy(bench->source + i * width, bits[width], width);
    }
}

/* Selects a tensor if it is longer than the one selected so far. *buffer: memory for its bytes, or NULL if not
 * selected. */
static int take(struct bench *bench, const char *name, size_t size, enum pici_dtype dtype, uint64_t elements,
                uint8_t **buffer)
{
    uint64_t bytes = elements * pici_dtype_width(dtype);
    const char *only = bench->options->tensor;
    *buffer = NULL;
    if (only)
        suggest_word(&bench->near, name);
    if (only ? strlen(only) != size || memcmp(only, name, size) != 0 : bench->source && bytes <= bench->bytes)
        return TOOL_OK;
    free(bench->source);
    free(bench->name_storage);
    bench->source = bytes < SIZE_MAX ? malloc((size_t)bytes + 1) : NULL;
    bench->name_storage = malloc(size + 1);
    if (!bench->source || !bench->name_storage)
        return tool_nomem(bench->options->args[0], "the elements");
    memcpy(bench->name_storage, name, size);
    bench->name_storage[size] = 0;
    bench->name = bench->name_storage;
    bench->dtype = dtype;
    bench->elements = elements;
    bench->bytes = (size_t)bytes;
    *buffer = bench->source;
    return TOOL_OK;
}

static int take_from_source(struct bench *bench, struct source *source, uint8_t *scratch)
{
    for (;;) {
        struct source_tensor tensor;
        bool has_more;
        uint8_t *into = NULL;
        TRY(source_next(source, &tensor, &has_more));
        if (!has_more)
            return TOOL_OK;
        if (!tensor.filler)
            TRY(take(bench, tensor.title, tensor.title_size, tensor.dtype, tensor.count, &into));
        if (into)
            TRY(source_take(source, into, bench->bytes));
        while (source->left)
            TRY(source_take(source, scratch, source->left < SCRATCH ? (size_t)source->left : SCRATCH));
    }
}

static int load_source(struct bench *bench, struct input *input)
{
    struct source source;
    uint8_t *const scratch = malloc(SCRATCH);
    int status = scratch ? source_open(&source, input, bench->options->args[0], bench->options)
                         : tool_nomem(input->name, "the input");
    if (!status) {
        status = take_from_source(bench, &source, scratch);
        source_close(&source);
    }
    free(scratch);
    return status;
}

static int take_from_file(struct bench *bench, struct reading *reading)
{
    for (;;) {
        struct pici_tensor_info tensor;
        bool has_more;
        uint8_t *into;
        TRY(reading_next(reading, &tensor, &has_more));
        if (!has_more)
            return TOOL_OK;
        TRY(take(bench, tensor.name, tensor.name_len, tensor.dtype, tensor.count, &into));
        const enum pici_status status = into ? pici_reader_read(reading->reader, into, tensor.count) : PICI_OK;
        if (status)
            return reading_failed(reading, status);
    }
}

static int load_input(struct bench *bench, struct input *input, struct reading *reading)
{
    enum reading_kind kind = READING_OTHER;
    if (!bench->options->type && !bench->options->dtype)
        TRY(reading_kind(input, bench->options->args[0], &kind));
    if (kind == READING_BLOCK)
        return tool_usage(input->name, "is a bare block; bench takes tensors");
    if (kind == READING_FILE) {
        TRY(reading_open(reading, input, bench->options->threads, true));
        TRY(take_from_file(bench, reading));
    } else {
        TRY(load_source(bench, input));
    }
    if (!bench->name)
        return bench->options->tensor ? tool_no_tensor(input->name, &bench->near)
                                      : tool_bad(input->name, "has no tensors");
    if (bench->options->format == PICI_PACKED && !pici_bound(PICI_PACKED, bench->dtype, 1))
        return tool_usage(input->name, "tensor %s is of %s; packed blocks are of floats", bench->name,
                          pici_dtype_name(bench->dtype));
    return bench->elements ? TOOL_OK : tool_bad(input->name, "tensor %s has no elements", bench->name);
}

/* Reads the tensor of --tensor, by default the longest one. */
static int load(struct bench *bench)
{
    struct input input;
    struct reading reading = {0};
    TRY(input_open(&input, bench->options->args[0]));
    const int status = load_input(bench, &input, &reading);
    reading_close(&reading);
    input_close(&input);
    return status;
}

/* ---- measuring */

static int by_value(const void *left, const void *right)
{
    double first = *(const double *)left, second = *(const double *)right;
    return (first > second) - (first < second);
}

/* The median of a row, in GB/s of dense bytes. */
static double speed(const struct bench *bench, int row)
{
    int reps = bench->options->reps;
    double *times = bench->seconds + (size_t)row * (size_t)reps;
    qsort(times, (size_t)reps, sizeof *times, by_value);
    double median = reps % 2 ? times[reps / 2] : (times[reps / 2 - 1] + times[reps / 2]) / 2;
    return (double)bench->bytes / median / 1e9;
}

static enum pici_status run_op(struct bench *bench, int op, enum pici_format format, size_t *size,
                               const struct pici_opts *codec_options)
{
    switch (op) {
    case COMPRESS:
        return pici_compress(bench->block, bench->block_capacity, size, bench->source, bench->elements, bench->dtype,
                             format, codec_options);
    case DECOMPRESS: return pici_decompress(bench->target, bench->elements, bench->block, *size, codec_options);
    default: return pici_scatter_add(bench->target, bench->elements, bench->block, *size, codec_options);
    }
}

/* Times one operation. Returns the seconds of one run. */
static enum pici_status time_op(struct bench *bench, int op, enum pici_format format, size_t *size, double *seconds)
{
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = bench->options->threads;
    /* Repeat operations that are too short for the clock. */
    size_t times = bench->bytes < LEAST_TIMED ? LEAST_TIMED / bench->bytes : 1;
    enum pici_status status = PICI_OK;
    double start = term_now();
    for (size_t i = 0; i < times && status == PICI_OK; i++)
        status = run_op(bench, op, format, size, &codec_options);
    *seconds = (term_now() - start) / (double)times;
    return status;
}

static double time_memcpy(struct bench *bench)
{
    size_t times = bench->bytes < LEAST_TIMED ? LEAST_TIMED / bench->bytes : 1;
    double start = term_now();
    for (size_t i = 0; i < times; i++) {
        memcpy(bench->target, bench->source, bench->bytes);
        __asm__ volatile("" : : "r"(bench->target) : "memory"); /* keeps the compiler from removing copies */
    }
    return (term_now() - start) / (double)times;
}

static bool skipped(const struct bench *bench, int format)
{
    if (!pici_bound((enum pici_format)format, bench->dtype, 1)) /* packed is not possible for integers */
        return true;
    return bench->options->format != PICI_AUTO && (int)bench->options->format != format;
}

static void tell(struct bench *bench, double sparsity, const size_t size[ROWS])
{
    double copy = speed(bench, 0);
    char bytes[TERM_TEXT];
    for (int index = 0; index < ROWS; index++) {
        if (skipped(bench, index))
            continue;
        double speeds[OPS];
        for (int op = 0; op < OPS; op++)
            speeds[op] = speed(bench, 1 + OPS * index + op);
        const char *format = pici_format_name((enum pici_format)index);
        if (bench->options->json) {
            static const char *const names[OPS] = {"compress", "decompress", "scatter_add"};
            jsonout_begin(&bench->json, NULL, '{');
            jsonout_real(&bench->json, "sparsity", sparsity);
            jsonout_string(&bench->json, "format", format);
            jsonout_u64(&bench->json, "block_bytes", size[index]);
            jsonout_begin(&bench->json, "gb_per_second", '{');
            jsonout_real(&bench->json, "memcpy", copy);
            for (int op = 0; op < OPS; op++)
                jsonout_real(&bench->json, names[op], speeds[op]);
            jsonout_end(&bench->json, '}');
            jsonout_end(&bench->json, '}');
        } else {
            printf("%7.5g%%  %-6s  %8s", 100 * sparsity, format, term_bytes(bytes, size[index]));
            for (int op = 0; op < OPS; op++)
                printf("  %6.1f %5.2fx", speeds[op], speeds[op] / copy);
            printf("  %6.1f\n", copy);
        }
    }
    fflush(stdout);
}

/* Runs each operation once per repetition, so that noise affects all of them equally. */
static int measure(struct bench *bench, double sparsity)
{
    size_t size[ROWS] = {0};
    memset(bench->target, 0, bench->bytes);
    memset(bench->block, 0, bench->block_capacity);
    for (int rep = -1; rep < bench->options->reps; rep++) { /* -1: warms up, and checks the results */
        double time = time_memcpy(bench);
        if (rep >= 0)
            bench->seconds[rep] = time;
        for (int format = 0; format < ROWS; format++) {
            for (int op = 0; op < OPS && !skipped(bench, format); op++) {
                enum pici_status status = time_op(bench, op, (enum pici_format)format, &size[format], &time);
                if (status)
                    return tool_bad(bench->name, "%s: %s", pici_format_name((enum pici_format)format),
                                    pici_strerror(status));
                if (rep < 0 && op == DECOMPRESS && memcmp(bench->target, bench->source, bench->bytes) != 0)
                    return tool_bad(bench->name, "%s: decompressing gave other bytes",
                                    pici_format_name((enum pici_format)format));
                if (rep >= 0)
                    bench->seconds[(size_t)(1 + OPS * format + op) * (size_t)bench->options->reps + (size_t)rep] = time;
            }
        }
    }
    tell(bench, sparsity, size);
    return TOOL_OK;
}

static int allocate(struct bench *bench)
{
    for (int format = 0; format < ROWS; format++) {
        size_t capacity = pici_bound((enum pici_format)format, bench->dtype, bench->elements);
        if (!skipped(bench, format) && capacity > bench->block_capacity)
            bench->block_capacity = capacity;
        if (!skipped(bench, format) && capacity == 0)
            return out_of_memory(bench);
    }
    if (!bench->source)
        bench->source = malloc(bench->bytes);
    bench->target = malloc(bench->bytes);
    bench->block = malloc(bench->block_capacity);
    bench->seconds = malloc((1 + OPS * ROWS) * (size_t)bench->options->reps * sizeof(double));
    return bench->source && bench->target && bench->block && bench->seconds ? TOOL_OK : out_of_memory(bench);
}

static void heading(struct bench *bench)
{
    const struct tool_options *options = bench->options;
    char bytes[TERM_TEXT];
    if (options->json) {
        bench->json.file = stdout;
        jsonout_begin(&bench->json, NULL, '{');
        if (bench->name) {
            jsonout_string(&bench->json, "file", tool_input_name(options->args[0]));
            jsonout_string(&bench->json, "tensor", bench->name);
        }
        jsonout_string(&bench->json, "version", pici_version());
        jsonout_string(&bench->json, "dtype", pici_dtype_name(bench->dtype));
        jsonout_u64(&bench->json, "elements", bench->elements);
        jsonout_u64(&bench->json, "bytes", bench->bytes);
        jsonout_u64(&bench->json, "threads", (uint64_t)options->threads);
        jsonout_u64(&bench->json, "repetitions", (uint64_t)options->reps);
        jsonout_begin(&bench->json, "results", '[');
        return;
    }
    if (bench->name) {
        term_puts(stdout, tool_input_name(options->args[0]));
        fputs(", tensor ", stdout);
        term_puts(stdout, bench->name);
        fputs(": ", stdout);
    }
    printf("%s, %s, ", pici_dtype_name(bench->dtype), term_bytes(bytes, bench->bytes));
    if (options->threads)
        printf("%d thread%s", options->threads, options->threads == 1 ? "" : "s");
    else
        fputs("a thread for each core", stdout);
    printf("; GB/s of dense bytes and times memcpy, medians of %d\n\n", options->reps);
    puts("sparsity  format      size      compress     decompress    scatter-add  memcpy");
}

static int measure_all(struct bench *bench)
{
    static const double all[] = {0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999};
    const double *list = bench->options->sparsity ? bench->options->sparsity : all;
    int lists = bench->options->sparsity ? bench->options->sparsities : (int)(sizeof all / sizeof *all);
    if (bench->name) {
        struct density density;
        density_init(&density);
        density_add(&density, bench->source, bench->elements, pici_dtype_width(bench->dtype));
        return measure(bench, 1 - (double)density.nonzeros / (double)bench->elements);
    }
    for (int i = 0; i < lists; i++) {
        fill(bench, list[i]);
        TRY(measure(bench, list[i]));
    }
    return TOOL_OK;
}

static int bench(struct bench *run)
{
    const struct tool_options *const options = run->options;
    if (options->nargs) {
        TRY(load(run));
    } else {
        run->elements = options->bench_bytes / pici_dtype_width(run->dtype);
        run->bytes = (size_t)(run->elements * pici_dtype_width(run->dtype));
        if (!run->elements || run->bytes / pici_dtype_width(run->dtype) != run->elements)
            return tool_usage(NULL, "bench: --size %" PRIu64 ": too small or too large", options->bench_bytes);
    }
    TRY(allocate(run));
    heading(run);
    const int status = measure_all(run);
    if (options->json) {
        jsonout_end(&run->json, ']');
        jsonout_end(&run->json, '}');
    }
    return status;
}

int verb_bench(const struct tool_options *options)
{
    struct bench run = {.options = options, .dtype = options->dtype ? (enum pici_dtype)options->dtype : PICI_F32};
    suggest_start(&run.near, options->tensor);
    if (options->nargs == 0 && options->format == PICI_PACKED && !pici_bound(PICI_PACKED, run.dtype, 1))
        return tool_usage(NULL, "bench: packed blocks are of floats");
    if (options->nargs == 0 && (options->type || options->tensor))
        return tool_usage(NULL, "bench: --type and --tensor need a FILE");
    if (options->nargs && (options->sparsity || options->bench_bytes_set))
        return tool_usage(NULL, "bench: --size and --sparsity are for synthetic data: omit FILE");
    const int status = bench(&run);
    free(run.name_storage);
    free(run.source);
    free(run.target);
    free(run.block);
    free(run.seconds);
    return status;
}
