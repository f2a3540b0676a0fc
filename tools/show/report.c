/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "parse/npy.h"
#include "show/heat.h"
#include "term.h"

static double ratio(uint64_t dense, uint64_t other)
{
    return other ? (double)dense / (double)other : 0;
}

/* A format's bytes, as a multiple of the entropy bound; NaN if the bound is 0. */
static double over(const struct sizes *s, int f)
{
    return s->bound > 0 ? (double)s->bytes[f] / s->bound : (double)NAN;
}

void measured_json(struct jsonout *json, const struct measured *measured)
{
    jsonout_text(json, "name", measured->name, measured->name_len);
    if (measured->shard)
        jsonout_string(json, "shard", measured->shard);
    jsonout_string(json, "dtype", pici_dtype_name(measured->dtype));
    if (measured->dtype_text)
        jsonout_string(json, "source_dtype", measured->dtype_text);
    jsonout_begin(json, "shape", '[');
    for (unsigned d = 0; d < measured->rank; d++)
        jsonout_u64(json, NULL, measured->shape[d]);
    jsonout_end(json, ']');
    jsonout_bool(json, "fortran_order", measured->fortran);
    jsonout_bool(json, "big_endian", measured->big_endian);
    if (measured->view)
        jsonout_string(json, "view", measured->view);
    if (measured->kind)
        jsonout_string(json, "kind", measured->kind);
}

static void json_sizes(struct jsonout *json, const struct sizes *s, uint64_t stored)
{
    jsonout_u64(json, "elements", s->elements);
    jsonout_u64(json, "nonzero", s->nnz);
    jsonout_real(json, "density", s->elements ? (double)s->nnz / (double)s->elements : 0);
    jsonout_u64(json, "bytes", s->dense_bytes);
    jsonout_begin(json, "blocks", '{');
    for (int f = 0; f < FORMATS; f++)
        jsonout_u64(json, pici_format_name((enum pici_format)f), s->bytes[f]);
    jsonout_u64(json, "auto", s->best);
    jsonout_end(json, '}');
    jsonout_string(json, "best", pici_format_name(sizes_best(s)));
    jsonout_real(json, "ratio", ratio(s->dense_bytes, s->best));
    jsonout_real(json, "entropy_bound_bytes", s->bound);
    jsonout_begin(json, "times_entropy_bound", '{');
    for (int f = 0; f < FORMATS; f++)
        jsonout_real(json, pici_format_name((enum pici_format)f), over(s, f));
    jsonout_end(json, '}');
    jsonout_begin(json, "hybrid_containers", '{');
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        jsonout_begin(json, pici_container_name((enum pici_container)c), '{');
        jsonout_u64(json, "tiles", s->mix.tiles[c]);
        jsonout_u64(json, "nonzero", s->mix.nnz[c]);
        jsonout_u64(json, "position_bytes", s->mix.position_bytes[c]);
        jsonout_u64(json, "value_bytes", s->mix.value_bytes[c]);
        jsonout_end(json, '}');
    }
    jsonout_end(json, '}');
    if (s->negative_zeros) {
        jsonout_begin(json, "negative_zeros", '{');
        jsonout_u64(json, "count", s->negative_zeros);
        jsonout_u64(json, "by_value_bytes", s->best - s->by_value_saves);
        jsonout_u64(json, "saved_bytes", s->by_value_saves);
        jsonout_real(json, "saved_percent", 100 * (double)s->by_value_saves / (double)s->best);
        jsonout_end(json, '}');
    }
    if (stored)
        jsonout_u64(json, "stored_bytes", stored);
}

static double gbs(const struct sizes *s, double seconds)
{
    return seconds > 0 ? (double)s->dense_bytes / seconds / 1e9 : (double)NAN;
}

static void json_rival(struct jsonout *json, const char *name, const struct sizes *s, const struct rival *r)
{
    jsonout_begin(json, name, '{');
    jsonout_u64(json, "bytes", r->bytes);
    jsonout_real(json, "compress_gb_per_second", gbs(s, r->compress));
    jsonout_real(json, "decompress_gb_per_second", gbs(s, r->decompress));
    jsonout_end(json, '}');
}

static void json_compare(struct jsonout *json, const struct report *report, const struct sizes *s)
{
    if (!report->zstd_level)
        return;
    jsonout_begin(json, "compare", '{');
    jsonout_u64(json, "zstd_level", (uint64_t)report->zstd_level);
    json_rival(json, "pici", s, &s->pici);
    json_rival(json, "zstd", s, &s->zstd);
    jsonout_end(json, '}');
}

void report_json(struct jsonout *json, const struct report *report)
{
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "file", report->file);
    jsonout_string(json, "type", report->type);
    if (report->file_bytes)
        jsonout_u64(json, "file_bytes", report->file_bytes);
    jsonout_begin(json, "tensors", '[');
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        jsonout_begin(json, NULL, '{');
        measured_json(json, measured);
        json_sizes(json, measured->sizes, measured->stored);
        json_compare(json, report, measured->sizes);
        jsonout_end(json, '}');
    }
    jsonout_end(json, ']');
    jsonout_begin(json, "total", '{');
    json_sizes(json, &report->total, report->stored);
    json_compare(json, report, &report->total);
    jsonout_end(json, '}');
    jsonout_end(json, '}');
}

static void print_heading(const struct report *report)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    term_puts(stdout, report->file);
    fputs(": ", stdout);
    term_puts(stdout, report->type);
    if (report->file_bytes)
        printf(", %s", term_bytes(bytes, report->file_bytes));
    printf(", %zu tensor%s, %" PRIu64 " elements", report->tensors, report->tensors == 1 ? "" : "s",
           report->total.elements);
    if (report->total.elements)
        printf(", %s nonzero", term_percent(percent, report->total.nnz, report->total.elements));
    puts("\n");
}

/* Prints the table of hybrid containers. */
static void print_mix(const struct sizes *s)
{
    char nonzero[TERM_TEXT], positions[TERM_TEXT], values[TERM_TEXT];
    printf("\n  %-9s  %10s  %8s  %10s  %10s\n", "hybrid's", "tiles", "nonzero", "positions", "values");
    for (int c = 0; c < PICI_CONTAINERS; c++)
        if (s->mix.tiles[c])
            printf("  %-9s  %10" PRIu64 "  %8s  %10s  %10s\n", pici_container_name((enum pici_container)c),
                   s->mix.tiles[c], term_percent(nonzero, s->mix.nnz[c], s->nnz ? s->nnz : 1),
                   term_bytes(positions, s->mix.position_bytes[c]), term_bytes(values, s->mix.value_bytes[c]));
}

static void print_one(const struct report *report)
{
    enum { MAP_WIDE = 96, MAP_HIGH = 24 };
    const struct measured *measured = &report->tensor[0];
    const struct sizes *s = measured->sizes;
    char text[256], bytes[TERM_TEXT], fold[GRID_TEXT];
    fputs("  name       ", stdout);
    term_puts(stdout, measured->name);
    printf("\n  dtype      %s", pici_dtype_name(measured->dtype));
    if (measured->dtype_text && strcmp(measured->dtype_text, pici_dtype_name(measured->dtype)) != 0) {
        fputs("  (", stdout);
        term_puts(stdout, measured->dtype_text);
        putchar(')');
    }
    printf("%s\n  shape      %s%s\n", measured->big_endian ? ", big-endian" : "",
           term_shape(text, sizeof text, measured->shape, measured->rank), measured->fortran ? ", Fortran order" : "");
    if (measured->view) {
        fputs("  original   ", stdout);
        term_puts(stdout, measured->view);
        putchar('\n');
    }
    if (measured->kind)
        printf("  kind       %s\n", measured->kind);
    printf("  elements   %" PRIu64 "\n  nonzero    %" PRIu64 "\n", s->elements, s->nnz);
    if (s->negative_zeros)
        printf("  -0.0       %" PRIu64 " of these\n", s->negative_zeros);
    puts("");
    for (int f = 0; f < FORMATS; f++) {
        printf("  %-9s  %10s", pici_format_name((enum pici_format)f), term_bytes(bytes, s->bytes[f]));
        printf("  %7.2fx", ratio(s->dense_bytes, s->bytes[f]));
        if (s->bound > 0)
            printf("  %8.2f of the entropy bound", over(s, f));
        printf("%s\n", (int)sizes_best(s) == f ? "  smallest" : "");
    }
    if (measured->stored)
        printf("  %-9s  %10s  %7.2fx\n", "stored", term_bytes(bytes, measured->stored),
               ratio(s->dense_bytes, measured->stored));
    if (!report->grid || !report->grid->elements)
        return;
    print_mix(s);
    unsigned width = term_width(stdout);
    width = width == 0 ? 64 : width < 8 ? 4 : width - 4 < MAP_WIDE ? width - 4 : MAP_WIDE;
    puts("");
    if (report->grid->wrapped) {
        uint64_t per = heat_map(stdout, report->map, 2, width, MAP_HIGH);
        printf("  density of each %" PRIu64 " elements, in their order\n", per);
        return;
    }
    heat_matrix(stdout, report->grid, 2, width, MAP_HIGH);
    printf("  matrix of %" PRIu64 " rows, down, and %" PRIu64 " columns, across", report->grid->rows,
           report->grid->columns);
    grid_fold_text(fold, report->grid, measured->shape, measured->rank);
    printf("%s%s\n", *fold ? ": " : "", fold);
}

static size_t widest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A tensor's dtype and shape for a table. F: Fortran order; BE: big-endian in its original file. */
enum { DTYPE_CELL = 32, SHAPE_CELL = 256 };

static const char *dtype_cell(char buffer[DTYPE_CELL], const struct measured *measured)
{
    static const char *const meanings[] = {[NPY_BOOL] = "bool", [NPY_COMPLEX] = "complex"};
    const enum npy_meaning meaning =
        measured->dtype_text ? pici_npy_meaning_of(measured->dtype_text, strlen(measured->dtype_text), measured->dtype)
                             : NPY_NUMBER;
    const char *const word = meaning == NPY_NUMBER  ? ""
                             : meaning == NPY_OTHER ? measured->dtype_text
                                                    : meanings[meaning];
    snprintf(buffer, DTYPE_CELL, "%s%s%s%s", pici_dtype_name(measured->dtype), *word ? " " : "", word,
             measured->big_endian ? " BE" : "");
    return buffer;
}

static const char *shape_cell(char buffer[SHAPE_CELL], const struct measured *measured)
{
    term_shape(buffer, 60, measured->shape, measured->rank);
    const size_t n = strlen(buffer);
    snprintf(buffer + n, SHAPE_CELL - n, "%s%s%s%s%s", measured->fortran ? " F" : "", measured->view ? " " : "",
             measured->view ? measured->view : "", measured->kind ? " " : "", measured->kind ? measured->kind : "");
    return buffer;
}

void columns_fit(struct columns *c, const struct report *report, size_t rest)
{
    char text[SHAPE_CELL];
    size_t terminal = term_width(stdout);
    *c = (struct columns){.name = 5, .dtype = 5, .shape = 5, .cut = terminal != 0};
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        c->name = widest(c->name, term_puts(NULL, measured->name));
        c->dtype = widest(c->dtype, strlen(dtype_cell(text, measured)));
        c->shape = widest(c->shape, term_puts(NULL, shape_cell(text, measured)));
    }
    /* On a terminal, names are cut to fit, down to a dozen characters. */
    rest += 2 + c->dtype + 2 + c->shape;
    c->fits = !c->cut || c->name + rest <= terminal;
    if (!c->fits)
        c->name = terminal > rest + 12 ? terminal - rest : c->name < 12 ? c->name : 12;
}

static void columns_put(const struct columns *c, const char *name, const char *dtype, const char *shape)
{
    term_column(stdout, name, c->name, c->cut);
    printf("  %-*s  ", (int)c->dtype, dtype);
    term_column(stdout, shape, c->shape, false); /* it may have words of the file */
}

void columns_head(const struct columns *c)
{
    term_on(stdout, TERM_BOLD);
    columns_put(c, "NAME", "DTYPE", "SHAPE");
}

void columns_end(void)
{
    term_off(stdout);
    putchar('\n');
}

void columns_row(const struct columns *c, const struct measured *measured)
{
    char dtype[DTYPE_CELL], shape[SHAPE_CELL];
    columns_put(c, measured->name, dtype_cell(dtype, measured), shape_cell(shape, measured));
}

void columns_total(const struct columns *c)
{
    term_on(stdout, TERM_BOLD);
    columns_put(c, "total", "", "");
}

/* The columns of a table of sizes after the first ones. */
struct extent {
    bool dense, stored, spark;
};

static void put_sizes(const struct extent *e, const struct sizes *s, uint64_t stored, const char *best)
{
    char text[TERM_TEXT];
    printf("  %7s", term_percent(text, s->nnz, s->elements));
    for (int f = e->dense ? PICI_DENSE : PICI_BITMAP; f < FORMATS; f++)
        printf("  %8s", term_bytes(text, s->bytes[f]));
    if (e->stored)
        printf("  %8s", stored ? term_bytes(text, stored) : "-");
    printf("  %-6s  %6.2f", best, ratio(s->dense_bytes, s->best));
}

static void print_table(const struct report *report)
{
    enum { NAME_LEAST = 16, SIZE = 10, SPARK = 2 + REPORT_SPARK };
    struct extent e = {.dense = true, .stored = report->stored != 0, .spark = true};
    struct columns c;
    size_t rest = 9 + 4 * SIZE + (e.stored ? SIZE : 0) + 8 + 8;
    /* On a narrow terminal, leave out sparklines first, then the dense size, before names become too short. */
    columns_fit(&c, report, rest + SPARK);
    if (!c.fits && c.name < NAME_LEAST) {
        e.spark = false;
        columns_fit(&c, report, rest);
    }
    if (!c.fits && c.name < NAME_LEAST) {
        e.dense = false;
        columns_fit(&c, report, rest - SIZE);
    }
    columns_head(&c);
    printf("  %7s%s  %8s  %8s  %8s", "DENSITY", e.dense ? "     DENSE" : "", "PICI", "COO", "HYBRID");
    printf("%s  %-6s  %6s%s", e.stored ? "    STORED" : "", "BEST", "RATIO", e.spark ? "  WHERE" : "");
    columns_end();
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        columns_row(&c, measured);
        put_sizes(&e, measured->sizes, measured->stored, pici_format_name(sizes_best(measured->sizes)));
        heat_on(stdout, measured->sizes->nnz, measured->sizes->elements);
        printf("%s%s", e.spark ? "  " : "", e.spark ? measured->spark : "");
        columns_end();
    }
    columns_total(&c);
    put_sizes(&e, &report->total, report->stored, "");
    columns_end();
}

/* What the signs of zeros cost. */
static void print_negative_zeros(const struct sizes *s)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    printf("\n  %" PRIu64 " negative zeros keep their signs. By value (compress --zeros=value) they\n"
           "  are plain zeros: %s less, %s of the smallest blocks.\n",
           s->negative_zeros, term_bytes(bytes, s->by_value_saves), term_percent(percent, s->by_value_saves, s->best));
}

static void print_rival(const char *name, const struct sizes *s, const struct rival *r)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    printf("  %-9s  %10s  %7s  %7.2f GB/s  %7.2f GB/s\n", name, term_bytes(bytes, r->bytes),
           term_percent(percent, r->bytes, s->dense_bytes), gbs(s, r->compress), gbs(s, r->decompress));
}

/* Speeds are of dense bytes. */
static void print_compare(const struct report *report)
{
    char zstd[TERM_TEXT];
    snprintf(zstd, sizeof zstd, "zstd -%d", report->zstd_level);
    printf("\n  %-9s  %10s  %7s  %12s  %12s   one thread, the same chunks\n", "", "size", "", "compress", "decompress");
    print_rival("pici", &report->total, &report->total.pici);
    print_rival(zstd, &report->total, &report->total.zstd);
}

void report_print(const struct report *report)
{
    print_heading(report);
    if (report->tensors == 1)
        print_one(report);
    else if (report->tensors)
        print_table(report);
    if (report->total.negative_zeros)
        print_negative_zeros(&report->total);
    if (report->zstd_level && report->total.elements)
        print_compare(report);
}
