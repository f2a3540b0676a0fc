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

void measured_json(struct jsonout *j, const struct measured *m)
{
    jsonout_text(j, "name", m->name, m->name_len);
    if (m->shard)
        jsonout_string(j, "shard", m->shard);
    jsonout_string(j, "dtype", pici_dtype_name(m->dtype));
    if (m->dtype_text)
        jsonout_string(j, "source_dtype", m->dtype_text);
    jsonout_begin(j, "shape", '[');
    for (unsigned d = 0; d < m->rank; d++)
        jsonout_u64(j, NULL, m->shape[d]);
    jsonout_end(j, ']');
    jsonout_bool(j, "fortran_order", m->fortran);
    jsonout_bool(j, "big_endian", m->big_endian);
    if (m->view)
        jsonout_string(j, "view", m->view);
    if (m->kind)
        jsonout_string(j, "kind", m->kind);
}

static void json_sizes(struct jsonout *j, const struct sizes *s, uint64_t stored)
{
    jsonout_u64(j, "elements", s->elements);
    jsonout_u64(j, "nonzero", s->nnz);
    jsonout_real(j, "density", s->elements ? (double)s->nnz / (double)s->elements : 0);
    jsonout_u64(j, "bytes", s->dense_bytes);
    jsonout_begin(j, "blocks", '{');
    for (int f = 0; f < FORMATS; f++)
        jsonout_u64(j, pici_format_name((enum pici_format)f), s->bytes[f]);
    jsonout_u64(j, "auto", s->best);
    jsonout_end(j, '}');
    jsonout_string(j, "best", pici_format_name(sizes_best(s)));
    jsonout_real(j, "ratio", ratio(s->dense_bytes, s->best));
    jsonout_real(j, "entropy_bound_bytes", s->bound);
    jsonout_begin(j, "times_entropy_bound", '{');
    for (int f = 0; f < FORMATS; f++)
        jsonout_real(j, pici_format_name((enum pici_format)f), over(s, f));
    jsonout_end(j, '}');
    jsonout_begin(j, "hybrid_containers", '{');
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        jsonout_begin(j, pici_container_name((enum pici_container)c), '{');
        jsonout_u64(j, "tiles", s->mix.tiles[c]);
        jsonout_u64(j, "nonzero", s->mix.nnz[c]);
        jsonout_u64(j, "position_bytes", s->mix.position_bytes[c]);
        jsonout_u64(j, "value_bytes", s->mix.value_bytes[c]);
        jsonout_end(j, '}');
    }
    jsonout_end(j, '}');
    if (s->negative_zeros) {
        jsonout_begin(j, "negative_zeros", '{');
        jsonout_u64(j, "count", s->negative_zeros);
        jsonout_u64(j, "by_value_bytes", s->best - s->by_value_saves);
        jsonout_u64(j, "saved_bytes", s->by_value_saves);
        jsonout_real(j, "saved_percent", 100 * (double)s->by_value_saves / (double)s->best);
        jsonout_end(j, '}');
    }
    if (stored)
        jsonout_u64(j, "stored_bytes", stored);
}

static double gbs(const struct sizes *s, double seconds)
{
    return seconds > 0 ? (double)s->dense_bytes / seconds / 1e9 : (double)NAN;
}

static void json_rival(struct jsonout *j, const char *name, const struct sizes *s, const struct rival *r)
{
    jsonout_begin(j, name, '{');
    jsonout_u64(j, "bytes", r->bytes);
    jsonout_real(j, "compress_gb_per_second", gbs(s, r->compress));
    jsonout_real(j, "decompress_gb_per_second", gbs(s, r->decompress));
    jsonout_end(j, '}');
}

static void json_compare(struct jsonout *j, const struct report *r, const struct sizes *s)
{
    if (!r->zstd_level)
        return;
    jsonout_begin(j, "compare", '{');
    jsonout_u64(j, "zstd_level", (uint64_t)r->zstd_level);
    json_rival(j, "pici", s, &s->pici);
    json_rival(j, "zstd", s, &s->zstd);
    jsonout_end(j, '}');
}

void report_json(struct jsonout *j, const struct report *r)
{
    jsonout_begin(j, NULL, '{');
    jsonout_string(j, "file", r->file);
    jsonout_string(j, "type", r->type);
    if (r->file_bytes)
        jsonout_u64(j, "file_bytes", r->file_bytes);
    jsonout_begin(j, "tensors", '[');
    for (size_t i = 0; i < r->tensors; i++) {
        const struct measured *m = &r->tensor[i];
        jsonout_begin(j, NULL, '{');
        measured_json(j, m);
        json_sizes(j, m->sizes, m->stored);
        json_compare(j, r, m->sizes);
        jsonout_end(j, '}');
    }
    jsonout_end(j, ']');
    jsonout_begin(j, "total", '{');
    json_sizes(j, &r->total, r->stored);
    json_compare(j, r, &r->total);
    jsonout_end(j, '}');
    jsonout_end(j, '}');
}

static void print_heading(const struct report *r)
{
    char bytes[TERM_TEXT], percent[TERM_TEXT];
    term_puts(stdout, r->file);
    fputs(": ", stdout);
    term_puts(stdout, r->type);
    if (r->file_bytes)
        printf(", %s", term_bytes(bytes, r->file_bytes));
    printf(", %zu tensor%s, %" PRIu64 " elements", r->tensors, r->tensors == 1 ? "" : "s", r->total.elements);
    if (r->total.elements)
        printf(", %s nonzero", term_percent(percent, r->total.nnz, r->total.elements));
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

static void print_one(const struct report *r)
{
    enum { MAP_WIDE = 96, MAP_HIGH = 24 };
    const struct measured *m = &r->tensor[0];
    const struct sizes *s = m->sizes;
    char text[256], bytes[TERM_TEXT], fold[GRID_TEXT];
    fputs("  name       ", stdout);
    term_puts(stdout, m->name);
    printf("\n  dtype      %s", pici_dtype_name(m->dtype));
    if (m->dtype_text && strcmp(m->dtype_text, pici_dtype_name(m->dtype)) != 0) {
        fputs("  (", stdout);
        term_puts(stdout, m->dtype_text);
        putchar(')');
    }
    printf("%s\n  shape      %s%s\n", m->big_endian ? ", big-endian" : "",
           term_shape(text, sizeof text, m->shape, m->rank), m->fortran ? ", Fortran order" : "");
    if (m->view) {
        fputs("  original   ", stdout);
        term_puts(stdout, m->view);
        putchar('\n');
    }
    if (m->kind)
        printf("  kind       %s\n", m->kind);
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
    if (m->stored)
        printf("  %-9s  %10s  %7.2fx\n", "stored", term_bytes(bytes, m->stored), ratio(s->dense_bytes, m->stored));
    if (!r->grid || !r->grid->elements)
        return;
    print_mix(s);
    unsigned width = term_width(stdout);
    width = width == 0 ? 64 : width < 8 ? 4 : width - 4 < MAP_WIDE ? width - 4 : MAP_WIDE;
    puts("");
    if (r->grid->wrapped) {
        uint64_t per = heat_map(stdout, r->map, 2, width, MAP_HIGH);
        printf("  density of each %" PRIu64 " elements, in their order\n", per);
        return;
    }
    heat_matrix(stdout, r->grid, 2, width, MAP_HIGH);
    printf("  matrix of %" PRIu64 " rows, down, and %" PRIu64 " columns, across", r->grid->rows, r->grid->columns);
    grid_fold_text(fold, r->grid, m->shape, m->rank);
    printf("%s%s\n", *fold ? ": " : "", fold);
}

static size_t widest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A tensor's dtype and shape for a table. F: Fortran order; BE: big-endian in its original file. */
enum { DTYPE_CELL = 32, SHAPE_CELL = 256 };

static const char *dtype_cell(char buf[DTYPE_CELL], const struct measured *m)
{
    static const char *const meanings[] = {[NPY_BOOL] = "bool", [NPY_COMPLEX] = "complex"};
    const enum npy_meaning meaning =
        m->dtype_text ? pici_npy_meaning_of(m->dtype_text, strlen(m->dtype_text), m->dtype) : NPY_NUMBER;
    const char *const word = meaning == NPY_NUMBER ? "" : meaning == NPY_OTHER ? m->dtype_text : meanings[meaning];
    snprintf(buf, DTYPE_CELL, "%s%s%s%s", pici_dtype_name(m->dtype), *word ? " " : "", word,
             m->big_endian ? " BE" : "");
    return buf;
}

static const char *shape_cell(char buf[SHAPE_CELL], const struct measured *m)
{
    term_shape(buf, 60, m->shape, m->rank);
    const size_t n = strlen(buf);
    snprintf(buf + n, SHAPE_CELL - n, "%s%s%s%s%s", m->fortran ? " F" : "", m->view ? " " : "", m->view ? m->view : "",
             m->kind ? " " : "", m->kind ? m->kind : "");
    return buf;
}

void columns_fit(struct columns *c, const struct report *r, size_t rest)
{
    char text[SHAPE_CELL];
    size_t terminal = term_width(stdout);
    *c = (struct columns){.name = 5, .dtype = 5, .shape = 5, .cut = terminal != 0};
    for (size_t i = 0; i < r->tensors; i++) {
        const struct measured *m = &r->tensor[i];
        c->name = widest(c->name, term_puts(NULL, m->name));
        c->dtype = widest(c->dtype, strlen(dtype_cell(text, m)));
        c->shape = widest(c->shape, term_puts(NULL, shape_cell(text, m)));
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

void columns_row(const struct columns *c, const struct measured *m)
{
    char dtype[DTYPE_CELL], shape[SHAPE_CELL];
    columns_put(c, m->name, dtype_cell(dtype, m), shape_cell(shape, m));
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

static void print_table(const struct report *r)
{
    enum { NAME_LEAST = 16, SIZE = 10, SPARK = 2 + REPORT_SPARK };
    struct extent e = {.dense = true, .stored = r->stored != 0, .spark = true};
    struct columns c;
    size_t rest = 9 + 4 * SIZE + (e.stored ? SIZE : 0) + 8 + 8;
    /* On a narrow terminal, leave out sparklines first, then the dense size, before names become too short. */
    columns_fit(&c, r, rest + SPARK);
    if (!c.fits && c.name < NAME_LEAST) {
        e.spark = false;
        columns_fit(&c, r, rest);
    }
    if (!c.fits && c.name < NAME_LEAST) {
        e.dense = false;
        columns_fit(&c, r, rest - SIZE);
    }
    columns_head(&c);
    printf("  %7s%s  %8s  %8s  %8s", "DENSITY", e.dense ? "     DENSE" : "", "PICI", "COO", "HYBRID");
    printf("%s  %-6s  %6s%s", e.stored ? "    STORED" : "", "BEST", "RATIO", e.spark ? "  WHERE" : "");
    columns_end();
    for (size_t i = 0; i < r->tensors; i++) {
        const struct measured *m = &r->tensor[i];
        columns_row(&c, m);
        put_sizes(&e, m->sizes, m->stored, pici_format_name(sizes_best(m->sizes)));
        heat_on(stdout, m->sizes->nnz, m->sizes->elements);
        printf("%s%s", e.spark ? "  " : "", e.spark ? m->spark : "");
        columns_end();
    }
    columns_total(&c);
    put_sizes(&e, &r->total, r->stored, "");
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
static void print_compare(const struct report *r)
{
    char zstd[TERM_TEXT];
    snprintf(zstd, sizeof zstd, "zstd -%d", r->zstd_level);
    printf("\n  %-9s  %10s  %7s  %12s  %12s   one thread, the same chunks\n", "", "size", "", "compress", "decompress");
    print_rival("pici", &r->total, &r->total.pici);
    print_rival(zstd, &r->total, &r->total.zstd);
}

void report_print(const struct report *r)
{
    print_heading(r);
    if (r->tensors == 1)
        print_one(r);
    else if (r->tensors)
        print_table(r);
    if (r->total.negative_zeros)
        print_negative_zeros(&r->total);
    if (r->zstd_level && r->total.elements)
        print_compare(r);
}
