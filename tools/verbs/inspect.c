/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"
#include "folder/folder.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "input/source.h"
#include "input/view_text.h"
#include "measure/compare.h"
#include "output/result.h"
#include "show/heat.h"
#include "show/html.h"
#include "show/image.h"
#include "show/inputs.h"
#include "show/report.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"
#include "verbs/block.h"
enum {
    BLOCK_PIECE = 1 << 20,
    COUNT_BYTES = 1 << 17, /* of elements that are counted in several ways while they are in the cache */
    MAP_SIDE = 256,        /* cells of the map on a terminal; there are fewer characters */
    DTYPE_TEXT = 64        /* the most characters shown of the original's type */
};

struct job {
    const struct tool_options *o;
    const char *path;
    struct input in;
    struct report report;
    bool pictured;           /* an image is wanted */
    bool in_page;            /* as part of a page */
    bool is_delta;           /* elements are differences of bits: none is a negative zero */
    struct image *image;     /* NULL: none yet */
    struct compare *compare; /* NULL: not wanted */
    struct progress progress;
    struct scratch scratch;
    uint8_t *block, *piece; /* a whole bare block; a piece of the elements */
    bool found;             /* the tensor of --tensor has been found */
    struct suggest near;    /* names like that of --tensor */
};

/* Whether a tensor is to be inspected. */
static bool wanted(struct job *j, const char *name, size_t len) /* then a NUL */
{
    const char *only = j->o->tensor;
    bool yes = !only || (strlen(only) == len && memcmp(only, name, len) == 0);
    j->found = j->found || yes;
    if (only && !yes)
        suggest_word(&j->near, name);
    return yes;
}

/* Begins a picture of so many tensors, if one is wanted. */
static int begin_image(struct job *j, uint64_t tensors)
{
    if (!j->pictured)
        return TOOL_OK;
    j->image = image_new(j->in.name, j->o->tensor ? 1 : tensors, j->in_page);
    return j->image ? TOOL_OK : tool_nomem(j->in.name, "the picture");
}

/* Begins a tensor of the report. */
static struct measured *begin(struct job *j, const char *name, size_t len, enum pici_dtype dtype, const uint64_t *shape,
                              unsigned rank, uint64_t elements, bool fortran, const char *dtype_text, size_t dtype_len)
{
    struct measured *m = report_add(&j->report, name, len);
    if (!m)
        return NULL;
    m->dtype = dtype;
    m->rank = rank;
    m->fortran = fortran;
    m->shape = malloc(rank * sizeof *shape + 1);
    m->dtype_text = dtype_text ? strndup(dtype_text, dtype_len < DTYPE_TEXT ? dtype_len : DTYPE_TEXT) : NULL;
    m->sizes = calloc(1, sizeof *m->sizes);
    if (!m->shape || !m->sizes || (dtype_text && !m->dtype_text))
        return NULL;
    if (rank)
        memcpy(m->shape, shape, rank * sizeof *shape);
    density_init(j->report.map);
    grid_free(j->report.grid);
    return grid_init(j->report.grid, shape, rank, elements, fortran, j->image ? image_side(j->image) : MAP_SIDE) ? m
                                                                                                                 : NULL;
}

/* Counts elements in all ways but those of sizes. */
static void look(struct job *j, const struct measured *m, const void *elements, uint64_t n)
{
    const size_t width = pici_dtype_width(m->dtype);
    for (const unsigned char *p = elements; n;) {
        const uint64_t k = n < COUNT_BYTES / width ? n : COUNT_BYTES / width;
        density_add(j->report.map, p, k, width);
        grid_add(j->report.grid, p, k, width);
        p += k * width;
        n -= k;
    }
}

/* Counts the negative zeros among n elements, and finds the containers that their hybrid block would have by value:
 * mix if there are none. */
static int look_by_value(struct job *j, const struct measured *m, const void *elements, uint64_t n,
                         const struct pici_mix *mix, struct pici_mix *by_value, uint64_t *negative_zeros)
{
    *negative_zeros = j->is_delta ? 0 : measure_negative_zeros(m->dtype, elements, n);
    *by_value = *mix;
    return !*negative_zeros || measure_mix(by_value, &j->scratch, m->dtype, elements, n, PICI_ZEROS_BY_VALUE)
               ? TOOL_OK
               : tool_nomem(j->in.name, "the measured blocks");
}

/* Counts a chunk. */
static int count(struct job *j, struct measured *m, const void *elements, uint64_t n)
{
    struct pici_mix mix, by_value;
    const uint64_t before = j->report.map->nnz;
    look(j, m, elements, n);
    const uint64_t nnz = j->report.map->nnz - before;
    if (!measure_mix(&mix, &j->scratch, m->dtype, elements, n, PICI_ZEROS_EXACT))
        return tool_nomem(j->in.name, "the measured blocks");
    sizes_add(m->sizes, m->dtype, n, nnz, &mix);
    if (j->compare && !compare_add(j->compare, m->dtype, elements, n, &m->sizes->pici, &m->sizes->zstd))
        return tool_nomem(j->in.name, "the comparison");
    uint64_t negative_zeros;
    TRY(look_by_value(j, m, elements, n, &mix, &by_value, &negative_zeros));
    sizes_by_value(m->sizes, m->dtype, n, nnz, &mix, negative_zeros, &by_value);
    progress_at(&j->progress, j->in.at, j->report.total.dense_bytes + m->sizes->dense_bytes);
    return TOOL_OK;
}

/* Ends a tensor: makes its sparkline and its panel. */
static int end(struct job *j, struct measured *m)
{
    const struct density *d = j->report.map;
    size_t len;
    FILE *f = open_memstream(&m->spark, &len);
    if (!f)
        return tool_nomem(j->in.name, "the density line");
    heat_line(f, d, REPORT_SPARK);
    if (fclose(f) != 0)
        return tool_nomem(j->in.name, "the density line");
    sizes_end(m->sizes);
    sizes_sum(&j->report.total, m->sizes);
    j->report.stored += m->stored;
    if (j->image) {
        char shape[96], percent[TERM_TEXT], what[160], fold[GRID_TEXT], cell[GRID_TEXT];
        snprintf(what, sizeof what, "%s %s %s", term_percent(percent, d->nnz, d->elements), pici_dtype_name(m->dtype),
                 term_shape(shape, sizeof shape, m->shape, m->rank));
        grid_fold_text(fold, j->report.grid, m->shape, m->rank);
        grid_cell_text(cell, j->report.grid);
        if (!image_add(j->image, m->name, (const char *const[]){what, fold, cell}, j->report.grid))
            return tool_nomem(j->in.name, "the picture");
    }
    return TOOL_OK;
}

/* Whether a tensor of a .pici file is to be inspected; *title: a view that a storage without a name is called after. */
static int is_wanted(struct job *j, struct reading *r, const struct pici_tensor_info *t, struct reading_views *views,
                     struct pici_view *title, bool *is)
{
    struct pici_view v;
    TRY(reading_views(r, t, views));
    title->name = NULL;
    *is = !views->unnamed && wanted(j, t->name, t->name_len);
    for (uint64_t i = 0; i < views->n; i++) {
        TRY(reading_view(r, views->first + i, &v));
        *is = wanted(j, v.name, v.name_len) || *is;
        if (views->unnamed && i == 0)
            *title = v;
    }
    return TOOL_OK;
}

/* Sets how the original sees the elements of a tensor: as a view, or by what 0.2 wrote of it. */
static int set_view(struct reading *r, const struct pici_tensor_info *t, const struct pici_view *title,
                    struct measured *m)
{
    char text[VIEW_TEXT], dims[160];
    struct pici_attr view = {0};
    if (title->name) {
        const size_t n =
            (size_t)snprintf(text, sizeof text, "shape %s ", term_shape(dims, sizeof dims, title->shape, title->rank));
        view_text_of(text + n, sizeof text - n, title, t, true);
        view = (struct pici_attr){ATTR_VIEW, text, strlen(text)};
    } else {
        TRY(reading_attr(r, t->index, ATTR_VIEW, &view));
    }
    if (view.key && !(m->view = strndup(view.value, view.len < VIEW_TEXT ? view.len : VIEW_TEXT)))
        return tool_nomem(r->in->name, "the list of tensors");
    return TOOL_OK;
}

/* Inspects a tensor of a .pici file. */
static int inspect_stored(struct job *j, struct reading *r, const struct pici_tensor_info *t,
                          const struct pici_view *title)
{
    struct pici_attr dtype = {0};
    bool fortran, is;
    TRY(reading_attr_is(r, t->index, ATTR_ORDER, "F", &fortran));
    TRY(reading_attr(r, t->index, ATTR_DTYPE, &dtype));
    if (title->name)
        dtype = (struct pici_attr){ATTR_DTYPE, title->word, strlen(title->word)};
    struct measured *m =
        begin(j, title->name ? title->name : t->name, title->name ? title->name_len : t->name_len, t->dtype, t->shape,
              t->rank, t->count, fortran, dtype.key ? dtype.value : NULL, dtype.len);
    if (!m)
        return tool_nomem(j->in.name, "the list of tensors");
    m->stored = t->stored_bytes;
    TRY(set_view(r, t, title, m));
    for (enum delta_kind k = DELTA_XOR; j->is_delta && k < DELTA_KINDS; k++) {
        TRY(reading_attr_is(r, t->index, DELTA_KIND, pici_delta_kind_name(k), &is));
        if (is)
            m->kind = pici_delta_kind_name(k);
    }
    TRY(reading_attr_is(r, t->index, ATTR_ENDIAN, "big", &m->big_endian));
    for (uint64_t done = 0, n = 1; n;) {
        TRY(reading_piece(r, t, &done, &n));
        const char *p = r->piece;
        for (uint64_t at = 0; at < n; at += t->chunk_elements)
            TRY(count(j, m, p + at * pici_dtype_width(t->dtype),
                      n - at < t->chunk_elements ? n - at : t->chunk_elements));
    }
    return end(j, m);
}

static int inspect_reading(struct job *j, struct reading *r)
{
    /* No default limit: nothing is written, and the number of chunks in the file bounds the work. */
    const struct limit limit = {j->o->max_size.given, j->o->max_size.bytes, NULL};
    uint64_t tensors = 0;
    TRY(reading_open(r, &j->in, j->o->threads, true));
    TRY(reading_is_delta(r, &j->is_delta));
    j->report.type = j->is_delta ? "delta" : "pici";
    const enum pici_status s = j->in.regular ? pici_reader_count(r->reader, &tensors) : PICI_OK;
    if (s)
        return reading_failed(r, s);
    TRY(begin_image(j, tensors));
    struct reading_views views = {0};
    for (uint64_t bytes = 0;;) {
        struct pici_tensor_info t;
        struct pici_view title = PICI_VIEW_INIT;
        bool more, is;
        TRY(reading_next(r, &t, &more));
        if (!more)
            return TOOL_OK;
        TRY(is_wanted(j, r, &t, &views, &title, &is));
        if (!is)
            continue;
        bytes += t.count * pici_dtype_width(t.dtype);
        if (bytes > limit_now(&limit))
            return limit_refused(&limit, j->in.name, bytes);
        TRY(inspect_stored(j, r, &t, &title));
    }
}

static int inspect_file(struct job *j)
{
    struct reading r;
    const int status = inspect_reading(j, &r);
    reading_close(&r);
    return status;
}

static int inspect_tensors(struct job *j, struct source *s)
{
    const struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    const struct limit limit = {j->o->max_size.given, j->o->max_size.bytes, NULL};
    j->report.type = tool_type_name(s->type);
    j->piece = malloc(opts.chunk_elements * sizeof(uint64_t));
    if (!j->piece)
        return tool_nomem(j->in.name, "a chunk of elements");
    TRY(begin_image(j, s->tensors));
    for (uint64_t bytes = 0;;) {
        struct source_tensor t;
        bool more;
        TRY(source_next(s, &t, &more));
        if (!more)
            return TOOL_OK;
        size_t width = pici_dtype_width(t.dtype);
        struct measured *m = NULL;
        if (!t.filler && wanted(j, t.title, t.title_len)) {
            m = begin(j, t.title, t.title_len, t.dtype, t.shape, t.rank, t.count, t.fortran, t.dtype_text,
                      strlen(t.dtype_text));
            if (!m)
                return tool_nomem(j->in.name, "the list of tensors");
            m->big_endian = t.big_endian;
            if (t.view && t.view[0] && !(m->view = strdup(t.view)))
                return tool_nomem(j->in.name, "the list of tensors");
            bytes = bytes <= UINT64_MAX - t.count * width ? bytes + t.count * width : UINT64_MAX;
            if (bytes > limit_now(&limit))
                return limit_refused(&limit, j->in.name, bytes);
        } else if (s->archived) { /* which can be left where it is */
            continue;
        }
        for (uint64_t left = t.count, n; left; left -= n) {
            n = left < opts.chunk_elements ? left : opts.chunk_elements;
            TRY(source_take(s, j->piece, (size_t)n * width));
            if (m)
                TRY(count(j, m, j->piece, n));
        }
        if (m)
            TRY(end(j, m));
    }
}

static int inspect_source(struct job *j)
{
    struct source s;
    TRY(source_open(&s, &j->in, j->path, j->o));
    const int status = inspect_tensors(j, &s);
    source_close(&s);
    return status;
}

static int inspect_block(struct job *j)
{
    size_t len;
    struct pici_info info = PICI_INFO_INIT;
    TRY(input_slurp(&j->in, &j->block, &len));
    TRY(block_open(j->in.name, j->block, len, j->o, &info));
    j->report.type = "block";
    j->found = true;
    TRY(begin_image(j, 1));
    const char *const format = pici_format_name(info.format);
    struct measured *const m = begin(j, format, strlen(format), info.dtype, &info.count, 1, info.count, false, NULL, 0);
    j->piece = malloc(BLOCK_PIECE * sizeof(uint64_t));
    if (!m || !j->piece)
        return tool_nomem(j->in.name, "a piece of the block");
    /* pieces are whole groups, whose records do not depend on other groups */
    struct pici_mix all = PICI_MIX_INIT, all_by_value = PICI_MIX_INIT, mix, by_value;
    uint64_t negative_zeros = 0, negative;
    all.other_bytes = all_by_value.other_bytes = hybrid_head(info.count);
    for (uint64_t done = 0; done < info.count; done += BLOCK_PIECE) {
        uint64_t n = info.count - done < BLOCK_PIECE ? info.count - done : BLOCK_PIECE;
        enum pici_status s = pici_decompress_range(j->piece, done, n, j->block, len, NULL);
        if (s)
            return tool_bad(j->in.name, "%s", pici_strerror(s));
        if (!measure_mix(&mix, &j->scratch, info.dtype, j->piece, n, PICI_ZEROS_EXACT))
            return tool_nomem(j->in.name, "the measured blocks");
        look(j, m, j->piece, n);
        if (j->compare && !compare_add(j->compare, info.dtype, j->piece, n, &m->sizes->pici, &m->sizes->zstd))
            return tool_nomem(j->in.name, "the comparison");
        TRY(look_by_value(j, m, j->piece, n, &mix, &by_value, &negative));
        mix.other_bytes -= hybrid_head(n);
        by_value.other_bytes -= hybrid_head(n);
        mix_sum(&all, &mix);
        mix_sum(&all_by_value, &by_value);
        negative_zeros += negative;
    }
    const uint64_t nnz = j->report.map->nnz;
    sizes_add(m->sizes, info.dtype, info.count, nnz, &all);
    sizes_by_value(m->sizes, info.dtype, info.count, nnz, &all, negative_zeros, &all_by_value);
    m->stored = len;
    return end(j, m);
}

static int inspect(struct job *j)
{
    enum reading_kind kind = READING_OTHER;
    if (!j->o->type && !j->o->dtype)
        TRY(reading_kind(&j->in, j->path, &kind));
    j->report.file = j->in.name;
    j->report.file_bytes = j->in.bytes;
    j->report.map = malloc(sizeof *j->report.map);
    j->report.grid = calloc(1, sizeof *j->report.grid);
    if (!j->report.map || !j->report.grid)
        return tool_nomem(j->in.name, "the density map");
    progress_start(&j->progress, j->in.name, j->in.bytes);
    const int status = kind == READING_FILE    ? inspect_file(j)
                       : kind == READING_BLOCK ? inspect_block(j)
                                               : inspect_source(j);
    progress_end(&j->progress);
    free(j->piece);
    free(j->block);
    j->piece = j->block = NULL;
    return status || j->found || !j->o->tensor ? status : tool_no_tensor(j->in.name, &j->near);
}

static void end_job(struct job *j)
{
    image_free(j->image);
    compare_free(j->compare);
    report_free(&j->report);
    free(j->scratch.p);
    input_close(&j->in);
}

static int begin_compare(struct job *j)
{
    if (!j->o->compare)
        return TOOL_OK;
    if (!compare_possible())
        return tool_usage(NULL, "inspect: --compare needs zstd, which this build does not have");
    j->report.zstd_level = j->o->compare;
    j->compare = compare_new(j->o->compare);
    return j->compare ? TOOL_OK : tool_nomem(j->in.name, "the comparison");
}

/* Inspects a file, and makes the pictures of it that are wanted. */
static int inspect_and_draw(struct job *j, struct output *png, struct output *svg)
{
    const struct tool_options *const o = j->o;
    TRY(begin_compare(j));
    if (o->png)
        TRY(output_open(png, o->png, &j->in, o->force));
    if (o->svg)
        TRY(output_open(svg, o->svg, &j->in, o->force));
    TRY(inspect(j));
    if (o->png)
        TRY(image_png(j->image, png));
    if (o->svg)
        TRY(image_svg(j->image, svg));
    if (o->png)
        TRY(output_commit(png));
    if (o->svg)
        TRY(output_commit(svg));
    return TOOL_OK;
}

static int inspect_one(const char *path, const struct tool_options *o, void *ctx)
{
    struct inputs *inputs = ctx;
    struct output png = {.fd = -1}, svg = {.fd = -1};
    struct job j = {.o = o, .path = path, .pictured = o->png || o->svg};
    suggest_start(&j.near, o->tensor);
    TRY(input_open(&j.in, path));
    const int status = inspect_and_draw(&j, &png, &svg);
    if (!status && o->json) {
        report_json(&inputs->json, &j.report);
    } else if (!status) {
        inputs_next(inputs);
        report_print(&j.report);
    }
    output_discard(&png);
    output_discard(&svg);
    end_job(&j);
    return status;
}

/* Adds an operand to the list, or the shards that are in it if it is a folder, which is open then. */
static int add_operand(const char *path, struct folder *f, char ***args, int *nargs)
{
    if (f && !f->made && !f->index.shards)
        return tool_usage(path, "has no " SHARDS_EXTENSION " files, of which inspect would show the tensors");
    if (f && !f->made)
        TRY(folder_check(f, NULL, NULL, NULL));
    const size_t most = !f ? 1 : f->made ? f->list.files : f->index.shards;
    char **const bigger = realloc(*args, ((size_t)*nargs + most + 1) * sizeof *bigger);
    if (!bigger)
        return tool_nomem(path, "the list of files");
    *args = bigger;
    for (size_t k = 0; k < most; k++) {
        if (f && f->made && f->list.file[k].kind != FOLDER_SHARD)
            continue;
        char *const one = !f        ? strdup(path)
                          : f->made ? folder_path(path, f->list.file[k].name, FOLDER_EXTENSION)
                                    : folder_path(path, f->index.shard[k], "");
        if (!one)
            return TOOL_BAD;
        bigger[(*nargs)++] = one;
    }
    return TOOL_OK;
}

/* Makes the list of operands in which folders are replaced by the shards in them; folders that cannot be read are left
 * out. The caller frees them. Returns the worst status. */
static int expand_folders(const struct tool_options *o, char ***args, int *nargs)
{
    int worst = TOOL_OK;
    *args = NULL;
    *nargs = 0;
    for (int i = 0; i < o->nargs; i++) {
        struct folder f = {0};
        const bool folder = folder_is(o->args[i]);
        int status = folder ? folder_open(&f, o->args[i]) : TOOL_OK;
        if (!status)
            status = add_operand(o->args[i], folder ? &f : NULL, args, nargs);
        folder_close(&f);
        worst = status > worst ? status : worst;
    }
    return worst;
}

static int inspect_all(const struct tool_options *o)
{
    struct tool_options all = *o;
    int worst = expand_folders(o, &all.args, &all.nargs);
    const int status = all.nargs > 1 && (o->png || o->svg)
                           ? tool_usage(NULL, "inspect: a picture is of one file, and there are %d", all.nargs)
                           : inputs_print(&all, o->base ? inspect_delta : inspect_one);
    worst = status > worst ? status : worst;
    for (int i = 0; i < all.nargs; i++)
        free(all.args[i]);
    free(all.args);
    return worst;
}

int verb_inspect(const struct tool_options *o)
{
    if (o->png && o->svg && strcmp(o->png, o->svg) == 0)
        return tool_usage(o->png, "cannot be both --png and --svg");
    if (o->base && (o->png || o->svg || o->tensor || o->compare))
        return tool_usage(NULL, "inspect: --base is without a picture, --tensor and --compare");
    TRY(results_check(o, "inspect"));
    return inspect_all(o);
}

static int report(struct job *j, struct output *page, const char *path)
{
    TRY(output_open(page, path, &j->in, j->o->force));
    TRY(inspect(j));
    TRY(html_report(&j->report, j->image, page));
    return output_commit(page);
}

int verb_report(const struct tool_options *o)
{
    struct output page = {.fd = -1};
    struct job j = {.o = o, .path = o->args[0], .pictured = true, .in_page = true};
    char *path = o->out ? strdup(o->out) : tool_output_name(o->args[0], ".html", NULL);
    if (!path)
        return tool_nomem(o->args[0], "the output's name");
    suggest_start(&j.near, o->tensor);
    int status = input_open(&j.in, o->args[0]);
    if (!status) {
        status = report(&j, &page, path);
        output_discard(&page);
        end_job(&j);
    }
    free(path);
    return status;
}
