/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Alternatives for a user: general compressors beside the codec's formats, on the same data in the same run. One
 * thread each. In each repetition, every method compresses and decompresses once, after memcpy. Prints medians. */
#define _GNU_SOURCE
#include <blosc.h>
#include <getopt.h>
#include <lz4.h>
#include <zstd.h>

#include "common.h"

enum { MAX_REPS = 100 };

struct data {
    uint8_t *src, *dst, *out;
    size_t bytes, cap;
    enum pici_dtype dtype;
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
};

/* encode_fn compresses src to out, and returns the length. decode_fn decompresses len bytes of out to dst, and returns
 * the length. Both return 0 on failure. */
typedef size_t encode_fn(const struct data *, int parameter);
typedef size_t decode_fn(const struct data *, size_t len);

static size_t pici_encode(const struct data *d, int format)
{
    size_t len;
    return pici_compress(d->out, d->cap, &len, d->src, d->bytes / pici_dtype_width(d->dtype), d->dtype,
                         (enum pici_format)format, NULL)
               ? 0
               : len;
}

static size_t pici_decode(const struct data *d, size_t len)
{
    return pici_decompress(d->dst, d->bytes / pici_dtype_width(d->dtype), d->out, len, NULL) ? 0 : d->bytes;
}

static size_t zstd_encode(const struct data *d, int level)
{
    const size_t len = ZSTD_compressCCtx(d->cctx, d->out, d->cap, d->src, d->bytes, level);
    return ZSTD_isError(len) ? 0 : len;
}

static size_t zstd_decode(const struct data *d, size_t len)
{
    const size_t n = ZSTD_decompressDCtx(d->dctx, d->dst, d->bytes, d->out, len);
    return ZSTD_isError(n) ? 0 : n;
}

static size_t lz4_encode(const struct data *d, int unused)
{
    (void)unused;
    const int len = LZ4_compress_default((const char *)d->src, (char *)d->out, (int)d->bytes, (int)d->cap);
    return len > 0 ? (size_t)len : 0;
}

static size_t lz4_decode(const struct data *d, size_t len)
{
    const int n = LZ4_decompress_safe((const char *)d->out, (char *)d->dst, (int)len, (int)d->bytes);
    return n > 0 ? (size_t)n : 0;
}

static size_t blosc_encode(const struct data *d, int level)
{
    const int len = blosc_compress_ctx(level, BLOSC_BITSHUFFLE, pici_dtype_width(d->dtype), d->bytes, d->src, d->out,
                                       d->cap, "lz4", 0, 1);
    return len > 0 ? (size_t)len : 0;
}

static size_t blosc_decode(const struct data *d, size_t len)
{
    (void)len; /* in its header */
    const int n = blosc_decompress_ctx(d->out, d->dst, d->bytes, 1);
    return n > 0 ? (size_t)n : 0;
}

static const struct method {
    const char *name;
    encode_fn *encode;
    decode_fn *decode;
    int parameter;
} methods[] = {
    {"bitmap", pici_encode, pici_decode, PICI_BITMAP},
    {"coo", pici_encode, pici_decode, PICI_COO},
    {"auto", pici_encode, pici_decode, PICI_AUTO},
    {"zstd -1", zstd_encode, zstd_decode, 1},
    {"zstd -5", zstd_encode, zstd_decode, 5},
    {"lz4", lz4_encode, lz4_decode, 0},
    {"blosc bitshuffle+lz4", blosc_encode, blosc_decode, 5},
};
enum { METHODS = COUNT_OF(methods) };

struct result {
    size_t len;
    double encode_s, decode_s; /* medians */
};

static double time_encode(const struct method *m, const struct data *d, size_t *len)
{
    const double start = seconds(CLOCK_MONOTONIC);
    *len = m->encode(d, m->parameter);
    return seconds(CLOCK_MONOTONIC) - start;
}

static double time_decode(const struct method *m, const struct data *d, size_t len)
{
    const double start = seconds(CLOCK_MONOTONIC);
    const size_t n = m->decode(d, len);
    const double s = seconds(CLOCK_MONOTONIC) - start;
    if (n != d->bytes)
        die(m->name);
    return s;
}

/* Returns memcpy's median seconds, and sets a result for each method. */
static double measure(const struct data *d, int reps, struct result *result)
{
    double encode_s[METHODS][MAX_REPS], decode_s[METHODS][MAX_REPS], memcpy_s[MAX_REPS];

    for (int rep = -1; rep < reps; rep++) { /* -1: untimed, checked */
        const int at = rep < 0 ? 0 : rep;
        const double start = seconds(CLOCK_MONOTONIC);
        memcpy(d->dst, d->src, d->bytes);
        memcpy_s[at] = seconds(CLOCK_MONOTONIC) - start;
        for (size_t m = 0; m < METHODS; m++) {
            size_t len;
            encode_s[m][at] = time_encode(&methods[m], d, &len);
            if (!len || (rep >= 0 && len != result[m].len))
                die(methods[m].name);
            result[m].len = len;
            if (rep < 0)
                memset(d->dst, 0xaa, d->bytes);
            decode_s[m][at] = time_decode(&methods[m], d, len);
            if (rep < 0 && memcmp(d->dst, d->src, d->bytes))
                die(methods[m].name);
        }
    }
    for (size_t m = 0; m < METHODS; m++) {
        result[m].encode_s = median(encode_s[m], (size_t)reps);
        result[m].decode_s = median(decode_s[m], (size_t)reps);
    }
    return median(memcpy_s, (size_t)reps);
}

static void print_text(const struct data *d, double sparsity, double memcpy_s, const struct result *r)
{
    printf("\n%s, %g%% zeros; memcpy %.2f GB/s\n", pici_dtype_name(d->dtype), sparsity,
           (double)d->bytes / memcpy_s / 1e9);
    printf("  %-22s %10s %10s %16s %16s\n", "", "size", "ratio", "compress GB/s", "decompress GB/s");
    for (size_t m = 0; m < METHODS; m++)
        printf("  %-22s %9.3f%% %10.2f %16.2f %16.2f\n", methods[m].name, 100.0 * (double)r[m].len / (double)d->bytes,
               (double)d->bytes / (double)r[m].len, (double)d->bytes / r[m].encode_s / 1e9,
               (double)d->bytes / r[m].decode_s / 1e9);
    fflush(stdout);
}

static void print_json(const struct data *d, enum pattern pattern, double sparsity, double memcpy_s,
                       const struct result *r)
{
    static int records;
    for (size_t m = 0; m < METHODS; m++)
        printf("%s\n  {\"dtype\":\"%s\",\"bytes\":%zu,\"pattern\":\"%s\",\"sparsity\":%g,\"method\":\"%s\",\"len\":%zu,"
               "\"compress_s\":%.9g,\"decompress_s\":%.9g,\"memcpy_s\":%.9g}",
               records++ ? "," : "", pici_dtype_name(d->dtype), d->bytes, pattern_name[pattern], sparsity,
               methods[m].name, r[m].len, r[m].encode_s, r[m].decode_s, memcpy_s);
}

static const char usage[] = "usage: peers [options]\n"
                            "  --dtype NAME       one dtype, instead of f32 and then bf16\n"
                            "  --size BYTES[KMG]  dense bytes, 64M; at most 1G\n"
                            "  --pattern NAME     uniform, clustered or block\n"
                            "  --sparsity LIST    percentages, 50,90,99,99.9\n"
                            "  -r, --reps N       repetitions, 5\n"
                            "  --json             one array of records\n";

static _Noreturn void bad_usage(void)
{
    fputs(usage, stderr);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"dtype", 1, NULL, 'd'}, {"size", 1, NULL, 's'}, {"pattern", 1, NULL, 'p'}, {"sparsity", 1, NULL, 'y'},
        {"reps", 1, NULL, 'r'},  {"json", 0, NULL, 'j'}, {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0},
    };
    enum pici_dtype dtypes[] = {PICI_F32, PICI_BF16};
    size_t dtype_count = COUNT_OF(dtypes), columns = 4;
    double sparsity[MAX_COLUMNS] = {50, 90, 99, 99.9};
    struct data d = {.bytes = (size_t)64 << 20};
    enum pattern pattern = UNIFORM;
    int reps = 5, json = 0, c;

    while ((c = getopt_long(argc, argv, "r:h", options, NULL)) != -1)
        switch (c) {
        case 'd':
            if (!parse_dtype(optarg, &dtypes[0]))
                bad_usage();
            dtype_count = 1;
            break;
        case 's':
            d.bytes = parse_size(optarg) / 8 * 8;
            if (!d.bytes || d.bytes > (size_t)1 << 30)
                bad_usage();
            break;
        case 'p':
            if (!parse_pattern(optarg, &pattern))
                bad_usage();
            break;
        case 'y':
            if (!(columns = parse_sparsities(optarg, sparsity)))
                bad_usage();
            break;
        case 'r':
            reps = atoi(optarg);
            if (reps < 1 || reps > MAX_REPS)
                bad_usage();
            break;
        case 'j': json = 1; break;
        case 'h': fputs(usage, stdout); return 0;
        default: bad_usage();
        }
    if (optind < argc)
        bad_usage();

    /* Room for the worst case of each: coo of i8 is five bytes an element. */
    d.cap = pici_bound(PICI_COO, PICI_I8, d.bytes);
    d.cap = d.cap > ZSTD_compressBound(d.bytes) ? d.cap : ZSTD_compressBound(d.bytes);
    d.src = buffer(d.bytes, 0);
    d.dst = buffer(d.bytes, 0);
    d.out = buffer(d.cap, 0);
    d.cctx = ZSTD_createCCtx();
    d.dctx = ZSTD_createDCtx();
    if (!d.cctx || !d.dctx)
        die("out of memory");

    char line[256];
    if (json)
        printf("[");
    else
        printf("pici %s, zstd %s, lz4 %s, blosc %s; %s\ncpu: %s\n%g MiB dense, %s; median of %d repetitions, 1 thread; "
               "size: of the dense bytes\n",
               pici_version(), ZSTD_versionString(), LZ4_versionString(), BLOSC_VERSION_STRING, COMPILER,
               cpu_model(line, sizeof line), (double)d.bytes / (1 << 20), pattern_name[pattern], reps);
    for (size_t t = 0; t < dtype_count; t++)
        for (size_t i = 0; i < columns; i++) {
            struct result result[METHODS];
            d.dtype = dtypes[t];
            fill(d.src, d.bytes / pici_dtype_width(d.dtype), d.dtype, 1 - sparsity[i] / 100, pattern);
            const double memcpy_s = measure(&d, reps, result);
            if (json)
                print_json(&d, pattern, sparsity[i], memcpy_s, result);
            else
                print_text(&d, sparsity[i], memcpy_s, result);
        }
    if (json)
        printf("\n]\n");
    ZSTD_freeCCtx(d.cctx);
    ZSTD_freeDCtx(d.dctx);
    free(d.src);
    free(d.dst);
    free(d.out);
    return fflush(stdout) || ferror(stdout);
}
