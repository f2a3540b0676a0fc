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

/* A format's bytes as a multiple of the entropy bound; NaN if the bound is 0. */
static double over(const struct sizes *sizes, int format)
{
    return sizes->bound > 0 ? (double)sizes->bytes[format] / sizes->bound : (double)NAN;
}

void measured_json(struct jsonout *json, const struct measured *measured)
{
    jsonout_text(json, "name", measured->name, measured->name_size);
    if (measured->shard)
        jsonout_string(json, "shard", measured->shard);
    jsonout_string(json, "dtype", pici_dtype_name(measured->dtype));
    if (measured->dtype_text)
        jsonout_string(json, "source_dtype", measured->dtype_text);
    jsonout_begin(json, "shape", '[');
    for (unsigned dimension = 0; dimension < measured->rank; dimension++)
        jsonout_u64(json, NULL, measured->shape[dimension]);
    jsonout_end(json, ']');
    jsonout_bool(json, "fortran_order", measured->fortran);
    jsonout_bool(json, "big_endian", measured->big_endian);
    if (measured->view)
        jsonout_string(json, "view", measured->view);
    if (measured->kind)
        jsonout_string(json, "kind", measured->kind);
}

static void json_sizes(struct jsonout *json, const struct sizes *sizes, uint64_t stored)
{
    jsonout_u64(json, "elements", sizes->elements);
    jsonout_u64(json, "nonzero", sizes->nonzeros);
    jsonout_real(json, "density", sizes->elements ? (double)sizes->nonzeros / (double)sizes->elements : 0);
    jsonout_u64(json, "bytes", sizes->dense_bytes);
    jsonout_begin(json, "blocks", '{');
    for (int format = 0; format < FORMATS; format++)
        jsonout_u64(json, pici_format_name((enum pici_format)format), sizes->bytes[format]);
    jsonout_u64(json, "auto", sizes->best);
    jsonout_end(json, '}');
    jsonout_string(json, "best", pici_format_name(sizes_best(sizes)));
    jsonout_real(json, "ratio", ratio(sizes->dense_bytes, sizes->best));
    jsonout_real(json, "entropy_bound_bytes", sizes->bound);
    jsonout_begin(json, "times_entropy_bound", '{');
    for (int format = 0; format < FORMATS; format++)
        jsonout_real(json, pici_format_name((enum pici_format)format), over(sizes, format));
    jsonout_end(json, '}');
    jsonout_begin(json, "hybrid_containers", '{');
    for (int container = 0; container < PICI_CONTAINERS; container++) {
        jsonout_begin(json, pici_container_name((enum pici_container)container), '{');
        jsonout_u64(json, "tiles", sizes->breakdown.tiles[container]);
        jsonout_u64(json, "nonzero", sizes->breakdown.nnz[container]);
        jsonout_u64(json, "position_bytes", sizes->breakdown.position_bytes[container]);
        jsonout_u64(json, "value_bytes", sizes->breakdown.value_bytes[container]);
        jsonout_end(json, '}');
    }
    jsonout_end(json, '}');
    if (sizes->negative_zeros) {
        jsonout_begin(json, "negative_zeros", '{');
        jsonout_u64(json, "count", sizes->negative_zeros);
        jsonout_u64(json, "by_value_bytes", sizes->best - sizes->by_value_saves);
        jsonout_u64(json, "saved_bytes", sizes->by_value_saves);
        jsonout_real(json, "saved_percent", 100 * (double)sizes->by_value_saves / (double)sizes->best);
        jsonout_end(json, '}');
    }
    if (sizes->packing_saves) {
        jsonout_begin(json, "packing", '{');
        jsonout_u64(json, "packed_bytes", sizes->best - sizes->packing_saves);
        jsonout_u64(json, "less_bytes", sizes->packing_saves);
        jsonout_real(json, "less_percent", 100 * (double)sizes->packing_saves / (double)sizes->best);
        jsonout_end(json, '}');
    }
    if (stored)
        jsonout_u64(json, "stored_bytes", stored);
}

static double gbs(const struct sizes *sizes, double seconds)
{
    return seconds > 0 ? (double)sizes->dense_bytes / seconds / 1e9 : (double)NAN;
}

static void json_rival(struct jsonout *json, const char *name, const struct sizes *sizes, const struct rival *rival)
{
    jsonout_begin(json, name, '{');
    jsonout_u64(json, "bytes", rival->bytes);
    jsonout_real(json, "compress_gb_per_second", gbs(sizes, rival->compress));
    jsonout_real(json, "decompress_gb_per_second", gbs(sizes, rival->decompress));
    jsonout_end(json, '}');
}

static void json_compare(struct jsonout *json, const struct report *report, const struct sizes *sizes)
{
    if (!report->zstd_level)
        return;
    jsonout_begin(json, "compare", '{');
    jsonout_u64(json, "zstd_level", (uint64_t)report->zstd_level);
    json_rival(json, "pici", sizes, &sizes->pici);
    json_rival(json, "zstd", sizes, &sizes->zstd);
    jsonout_end(json, '}');
}

void report_json_begin(struct jsonout *json, const struct report *report, const char *type_key)
{
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "file", report->file);
    jsonout_string(json, type_key, report->type);
    if (report->file_bytes)
        jsonout_u64(json, "file_bytes", report->file_bytes);
    jsonout_begin(json, "tensors", '[');
}

void report_json(struct jsonout *json, const struct report *report)
{
    report_json_begin(json, report, "type");
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
    report_json_referred(json, report);
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
        printf(", %s nonzero", term_percent(percent, report->total.nonzeros, report->total.elements));
    puts("\n");
}

/* Prints the table of hybrid containers. */
static void print_breakdown(const struct sizes *sizes)
{
    char nonzero[TERM_TEXT], positions[TERM_TEXT], values[TERM_TEXT];
    printf("\n  %-9s  %10s  %8s  %10s  %10s\n", "hybrid's", "tiles", "nonzero", "positions", "values");
    for (int container = 0; container < PICI_CONTAINERS; container++)
        if (sizes->breakdown.tiles[container])
            printf("  %-9s  %10" PRIu64 "  %8s  %10s  %10s\n", pici_container_name((enum pici_container)container),
                   sizes->breakdown.tiles[container],
                   term_percent(nonzero, sizes->breakdown.nnz[container], sizes->nonzeros ? sizes->nonzeros : 1),
                   term_bytes(positions, sizes->breakdown.position_bytes[container]),
                   term_bytes(values, sizes->breakdown.value_bytes[container]));
}

static void print_one(const struct report *report)
{
    enum { MAP_WIDE = 96, MAP_HIGH = 24 };
    const struct measured *measured = &report->tensor[0];
    const struct sizes *sizes = measured->sizes;
    char text[256], bytes[TERM_TEXT], fold[GRID_TEXT];
    fputs("  name       ", stdout);
    term_puts(stdout, measured->name);
    printf("\n  dtype      %s", pici_dtype_name(measured->dtype));
    if (measured->dtype_text && strcmp(measured->dtype_text, pici_dtype_name(measured->dtype)) != 0) {
        fputs("  (", stdout);
        term_puts(stdout, measured->dtype_text);
        putchar(')');
    }
    printf("%s\n", measured->big_endian ? ", big-endian" : "");
    printf("  shape      %s%s\n", term_shape(text, sizeof text, measured->shape, measured->rank),
           measured->fortran ? ", Fortran order" : "");
    if (measured->view) {
        fputs("  original   ", stdout);
        term_puts(stdout, measured->view);
        putchar('\n');
    }
    if (measured->kind)
        printf("  kind       %s\n", measured->kind);
    printf("  elements   %" PRIu64 "\n  nonzero    %" PRIu64 "\n", sizes->elements, sizes->nonzeros);
    if (sizes->negative_zeros)
        printf("  -0.0       %" PRIu64 " of these\n", sizes->negative_zeros);
    puts("");
    for (int format = 0; format < FORMATS; format++) {
        printf("  %-9s  %10s", pici_format_name((enum pici_format)format), term_bytes(bytes, sizes->bytes[format]));
        printf("  %7.2fx", ratio(sizes->dense_bytes, sizes->bytes[format]));
        if (sizes->bound > 0)
            printf("  %8.2f of the entropy bound", over(sizes, format));
        printf("%s\n", (int)sizes_best(sizes) == format ? "  smallest" : "");
    }
    if (measured->stored)
        printf("  %-9s  %10s  %7.2fx\n", "stored", term_bytes(bytes, measured->stored),
               ratio(sizes->dense_bytes, measured->stored));
    if (!report->grid || !report->grid->elements)
        return;
    print_breakdown(sizes);
    unsigned width = term_width(stdout);
    if (width == 0)
        width = 64;
    else if (width < 8)
        width = 4;
    else
        width = width - 4 < MAP_WIDE ? width - 4 : MAP_WIDE;
    puts("");
    if (report->grid->wrapped) {
        uint64_t per = heat_map(stdout, report->density_map, 2, width, MAP_HIGH);
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
    const char *word = "";
    if (meaning == NPY_OTHER)
        word = measured->dtype_text;
    else if (meaning != NPY_NUMBER)
        word = meanings[meaning];
    const char *const gap = *word ? " " : "";
    snprintf(buffer, DTYPE_CELL, "%s%s%s%s", pici_dtype_name(measured->dtype), gap, word,
             measured->big_endian ? " BE" : "");
    return buffer;
}

static const char *shape_cell(char buffer[SHAPE_CELL], const struct measured *measured)
{
    term_shape(buffer, 60, measured->shape, measured->rank);
    const char *const words[] = {measured->fortran ? "F" : NULL, measured->view, measured->kind};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t used = strlen(buffer);
        if (words[i])
            snprintf(buffer + used, SHAPE_CELL - used, " %s", words[i]);
    }
    return buffer;
}

void columns_fit(struct columns *columns, const struct report *report, size_t rest)
{
    char text[SHAPE_CELL];
    size_t terminal = term_width(stdout);
    *columns = (struct columns){.name = 5, .dtype = 5, .shape = 5, .cut = terminal != 0};
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        columns->name = widest(columns->name, term_puts(NULL, measured->name));
        columns->dtype = widest(columns->dtype, strlen(dtype_cell(text, measured)));
        columns->shape = widest(columns->shape, term_puts(NULL, shape_cell(text, measured)));
    }
    /* On a terminal, cut names to fit, to no less than a dozen characters. */
    rest += 2 + columns->dtype + 2 + columns->shape;
    columns->fits = !columns->cut || columns->name + rest <= terminal;
    if (!columns->fits && terminal > rest + 12)
        columns->name = terminal - rest;
    else if (!columns->fits && columns->name > 12)
        columns->name = 12;
}

static void columns_put(const struct columns *columns, const char *name, const char *dtype, const char *shape)
{
    term_column(stdout, name, columns->name, columns->cut);
    printf("  %-*s  ", (int)columns->dtype, dtype);
    term_column(stdout, shape, columns->shape, false); /* it may contain text from the file */
}

void columns_head(const struct columns *columns)
{
    term_on(stdout, TERM_BOLD);
    columns_put(columns, "NAME", "DTYPE", "SHAPE");
}

void columns_end(void)
{
    term_off(stdout);
    putchar('\n');
}

void columns_row(const struct columns *columns, const struct measured *measured)
{
    char dtype[DTYPE_CELL], shape[SHAPE_CELL];
    columns_put(columns, measured->name, dtype_cell(dtype, measured), shape_cell(shape, measured));
}

void columns_total(const struct columns *columns)
{
    term_on(stdout, TERM_BOLD);
    columns_put(columns, "total", "", "");
}

/* The columns of a table of sizes after the first ones. */
struct extent {
    bool has_dense, has_stored, has_spark;
};

static void put_sizes(const struct extent *extent, const struct sizes *sizes, uint64_t stored, const char *best)
{
    char text[TERM_TEXT];
    printf("  %7s", term_percent(text, sizes->nonzeros, sizes->elements));
    for (int format = extent->has_dense ? PICI_DENSE : PICI_BITMAP; format < FORMATS; format++)
        printf("  %8s", term_bytes(text, sizes->bytes[format]));
    if (extent->has_stored)
        printf("  %8s", stored ? term_bytes(text, stored) : "-");
    printf("  %-6s  %6.2f", best, ratio(sizes->dense_bytes, sizes->best));
}

static void print_table(const struct report *report)
{
    enum { NAME_LEAST = 16, SIZE = 10, SPARK = 2 + REPORT_SPARK };
    struct extent extent = {.has_dense = true, .has_stored = report->stored != 0, .has_spark = true};
    struct columns columns;
    size_t rest = 9 + 4 * SIZE + (extent.has_stored ? SIZE : 0) + 8 + 8;
    /* On a narrow terminal, leave out sparklines first, then the dense size, before names become too short. */
    columns_fit(&columns, report, rest + SPARK);
    if (!columns.fits && columns.name < NAME_LEAST) {
        extent.has_spark = false;
        columns_fit(&columns, report, rest);
    }
    if (!columns.fits && columns.name < NAME_LEAST) {
        extent.has_dense = false;
        columns_fit(&columns, report, rest - SIZE);
    }
    columns_head(&columns);
    printf("  %7s%s  %8s  %8s  %8s", "DENSITY", extent.has_dense ? "     DENSE" : "", "BITMAP", "COO", "HYBRID");
    const char *const where = extent.has_spark ? "  WHERE" : "";
    printf("%s  %-6s  %6s%s", extent.has_stored ? "    STORED" : "", "BEST", "RATIO", where);
    columns_end();
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        columns_row(&columns, measured);
        put_sizes(&extent, measured->sizes, measured->stored, pici_format_name(sizes_best(measured->sizes)));
        heat_on(stdout, measured->sizes->nonzeros, measured->sizes->elements);
        if (extent.has_spark)
            printf("  %s", measured->spark);
        columns_end();
    }
    columns_total(&columns);
    put_sizes(&extent, &report->total, report->stored, "");
    columns_end();
}

/* Prints the cost of the signs of zeros. */
static void print_negative_zeros(const struct sizes *sizes)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    printf("\n  %" PRIu64 " negative zeros keep their signs. By value (compress --zeros=value) they\n"
           "  are plain zeros: %s less, %s of the smallest blocks.\n",
           sizes->negative_zeros, term_bytes(bytes, sizes->by_value_saves),
           term_percent(percent, sizes->by_value_saves, sizes->best));
}

/* Prints the savings of packed exponents, if above 1%. */
static void print_packing(const struct sizes *sizes)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    if (sizes->packing_saves <= sizes->best / 100)
        return;
    printf("\n  Packed exponents (compress --pack planes): %s less, %s of the smallest blocks.\n",
           term_bytes(bytes, sizes->packing_saves), term_percent(percent, sizes->packing_saves, sizes->best));
}

static void print_rival(const char *name, const struct sizes *sizes, const struct rival *rival)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    printf("  %-9s  %10s  %7s  %7.2f GB/s  %7.2f GB/s\n", name, term_bytes(bytes, rival->bytes),
           term_percent(percent, rival->bytes, sizes->dense_bytes), gbs(sizes, rival->compress),
           gbs(sizes, rival->decompress));
}

/* Prints the comparison with zstd. Speeds count dense bytes. */
static void print_compare(const struct report *report)
{
    char zstd[TERM_TEXT];
    snprintf(zstd, sizeof zstd, "zstd -%d", report->zstd_level);
    printf("\n  %-9s  %10s  %7s  %12s  %12s   one thread, the same chunks\n", "", "size", "", "compress", "decompress");
    print_rival("pici", &report->total, &report->total.pici);
    print_rival(zstd, &report->total, &report->total.zstd);
}

void report_print_referred(const struct report *report)
{
    char bytes[TERM_TEXT];
    if (report->referred)
        printf("\n  %" PRIu64 " tensor%s of %s: stored once, here or in another shard.\n", report->referred,
               report->referred == 1 ? "" : "s", term_bytes(bytes, report->referred_bytes));
}

void report_json_referred(struct jsonout *json, const struct report *report)
{
    if (!report->referred)
        return;
    jsonout_begin(json, "referred", '{');
    jsonout_u64(json, "tensors", report->referred);
    jsonout_u64(json, "bytes", report->referred_bytes);
    jsonout_end(json, '}');
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
    print_packing(&report->total);
    report_print_referred(report);
    if (report->zstd_level && report->total.elements)
        print_compare(report);
}
