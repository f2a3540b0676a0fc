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
    COUNT_BYTES = 1 << 17, /* bytes of elements, counted in several ways while in the cache */
    MAP_SIDE = 256,        /* cells of the map on a terminal, which has fewer characters */
    DTYPE_TEXT = 64        /* maximum of characters of the original's type */
};

struct job {
    const struct tool_options *options;
    const char *path;
    struct input input;
    struct report report;
    bool pictured;           /* an image is wanted */
    bool in_page;            /* as part of a page */
    bool is_delta;           /* elements are bit differences: none is a negative zero */
    struct image *image;     /* NULL: none yet */
    struct compare *compare; /* NULL: not wanted */
    struct progress progress;
    struct scratch scratch;
    uint8_t *block, *piece; /* a whole bare block; a piece of the elements */
    bool found;             /* the tensor of --tensor has been found */
    struct suggest near;    /* names similar to --tensor */
};

/* Whether to inspect a tensor. */
static bool wanted(struct job *job, const char *name, size_t size) /* then a NUL */
{
    const char *only = job->options->tensor;
    bool yes = !only || (strlen(only) == size && memcmp(only, name, size) == 0);
    job->found = job->found || yes;
    if (only && !yes)
        suggest_word(&job->near, name);
    return yes;
}

/* Begins a picture of `tensors` tensors, if one is wanted. */
static int begin_image(struct job *job, uint64_t tensors)
{
    if (!job->pictured)
        return TOOL_OK;
    job->image = image_new(job->input.name, job->options->tensor ? 1 : tensors, job->in_page);
    return job->image ? TOOL_OK : tool_nomem(job->input.name, "the picture");
}

/* Begins a tensor of the report. */
static struct measured *begin(struct job *job, const char *name, size_t size, enum pici_dtype dtype,
                              const uint64_t *shape, unsigned rank, uint64_t elements, bool fortran,
                              const char *dtype_text, size_t dtype_len)
{
    struct measured *measured = report_add(&job->report, name, size);
    if (!measured)
        return NULL;
    measured->dtype = dtype;
    measured->rank = rank;
    measured->fortran = fortran;
    measured->shape = malloc(rank * sizeof *shape + 1);
    measured->dtype_text = dtype_text ? strndup(dtype_text, dtype_len < DTYPE_TEXT ? dtype_len : DTYPE_TEXT) : NULL;
    measured->sizes = calloc(1, sizeof *measured->sizes);
    if (!measured->shape || !measured->sizes || (dtype_text && !measured->dtype_text))
        return NULL;
    if (rank)
        memcpy(measured->shape, shape, rank * sizeof *shape);
    density_init(job->report.density_map);
    grid_free(job->report.grid);
    const unsigned side = job->image ? image_side(job->image) : MAP_SIDE;
    return grid_init(job->report.grid, shape, rank, elements, fortran, side) ? measured : NULL;
}

/* Counts elements in all ways except the ways of struct sizes. */
static void look(struct job *job, const struct measured *measured, const void *elements, uint64_t count)
{
    const size_t width = pici_dtype_width(measured->dtype);
    for (const unsigned char *position = elements; count;) {
        const uint64_t step = count < COUNT_BYTES / width ? count : COUNT_BYTES / width;
        density_add(job->report.density_map, position, step, width);
        grid_add(job->report.grid, position, step, width);
        position += step * width;
        count -= step;
    }
}

/* Counts the negative zeros among `count` elements. Finds the containers of their hybrid block by value; without
 * negative zeros, these are `breakdown`'s. */
static int look_by_value(struct job *job, const struct measured *measured, const void *elements, uint64_t count,
                         const struct pici_breakdown *breakdown, struct pici_breakdown *by_value,
                         uint64_t *negative_zeros)
{
    *negative_zeros = job->is_delta ? 0 : measure_negative_zeros(measured->dtype, elements, count);
    *by_value = *breakdown;
    return !*negative_zeros ||
                   measure_breakdown(by_value, &job->scratch, measured->dtype, elements, count, PICI_ZEROS_BY_VALUE)
               ? TOOL_OK
               : tool_nomem(job->input.name, "the measured blocks");
}

/* Counts a chunk. */
static int count(struct job *job, struct measured *measured, const void *elements, uint64_t elements_count)
{
    struct pici_breakdown breakdown, by_value;
    const uint64_t before = job->report.density_map->nonzeros;
    look(job, measured, elements, elements_count);
    const uint64_t nonzeros = job->report.density_map->nonzeros - before;
    if (!measure_breakdown(&breakdown, &job->scratch, measured->dtype, elements, elements_count, PICI_ZEROS_EXACT))
        return tool_nomem(job->input.name, "the measured blocks");
    sizes_add(measured->sizes, measured->dtype, elements_count, nonzeros, &breakdown);
    if (job->compare && !compare_add(job->compare, measured->dtype, elements, elements_count, &measured->sizes->pici,
                                     &measured->sizes->zstd))
        return tool_nomem(job->input.name, "the comparison");
    uint64_t negative_zeros, packed;
    if (!job->is_delta) {
        if (!measure_packed(&packed, &job->scratch, measured->dtype, elements, elements_count))
            return tool_nomem(job->input.name, "the measured blocks");
        sizes_packed(measured->sizes, measured->dtype, elements_count, nonzeros, &breakdown, packed);
    }
    TRY(look_by_value(job, measured, elements, elements_count, &breakdown, &by_value, &negative_zeros));
    sizes_by_value(measured->sizes, measured->dtype, elements_count, nonzeros, &breakdown, negative_zeros, &by_value);
    progress_at(&job->progress, job->input.position, job->report.total.dense_bytes + measured->sizes->dense_bytes);
    return TOOL_OK;
}

/* Ends a tensor: makes its sparkline and its panel. */
static int end(struct job *job, struct measured *measured)
{
    const struct density *density = job->report.density_map;
    size_t size;
    FILE *stream = open_memstream(&measured->spark, &size);
    if (!stream)
        return tool_nomem(job->input.name, "the density line");
    heat_line(stream, density, REPORT_SPARK);
    if (fclose(stream) != 0)
        return tool_nomem(job->input.name, "the density line");
    sizes_end(measured->sizes);
    sizes_sum(&job->report.total, measured->sizes);
    job->report.stored += measured->stored;
    if (job->image) {
        char shape[96], percent[TERM_TEXT], what[160], fold[GRID_TEXT], cell[GRID_TEXT];
        snprintf(what, sizeof what, "%s %s %s", term_percent(percent, density->nonzeros, density->elements),
                 pici_dtype_name(measured->dtype), term_shape(shape, sizeof shape, measured->shape, measured->rank));
        grid_fold_text(fold, job->report.grid, measured->shape, measured->rank);
        grid_cell_text(cell, job->report.grid);
        if (!image_add(job->image, measured->name, (const char *const[]){what, fold, cell}, job->report.grid))
            return tool_nomem(job->input.name, "the picture");
    }
    return TOOL_OK;
}

/* Whether to inspect a tensor of a .pici file. *title: the view that names an unnamed storage. */
static int is_wanted(struct job *job, struct reading *reading, const struct pici_tensor_info *tensor,
                     struct reading_views *views, struct pici_view *title, bool *inspected)
{
    struct pici_view view;
    TRY(reading_views(reading, tensor, views));
    title->name = NULL;
    *inspected = !views->unnamed && wanted(job, tensor->name, tensor->name_len);
    for (uint64_t i = 0; i < views->count; i++) {
        TRY(reading_view(reading, views->first + i, &view));
        *inspected = wanted(job, view.name, view.name_len) || *inspected;
        if (views->unnamed && i == 0)
            *title = view;
    }
    return TOOL_OK;
}

/* Sets the original's view of a tensor's elements: a view, or the attribute that version 0.2 wrote. */
static int set_view(struct reading *reading, const struct pici_tensor_info *tensor, const struct pici_view *title,
                    struct measured *measured)
{
    char text[VIEW_TEXT], dims[160];
    struct pici_attr view = {0};
    if (title->name) {
        const size_t used =
            (size_t)snprintf(text, sizeof text, "shape %s ", term_shape(dims, sizeof dims, title->shape, title->rank));
        view_text_of(text + used, sizeof text - used, title, tensor, true);
        view = (struct pici_attr){ATTR_VIEW, text, strlen(text)};
    } else {
        TRY(reading_attr(reading, tensor->index, ATTR_VIEW, &view));
    }
    if (view.key && !(measured->view = strndup(view.value, view.len < VIEW_TEXT ? view.len : VIEW_TEXT)))
        return tool_nomem(reading->input->name, "the list of tensors");
    return TOOL_OK;
}

/* Inspects a tensor of a .pici file. */
static int inspect_stored(struct job *job, struct reading *reading, const struct pici_tensor_info *tensor,
                          const struct pici_view *title)
{
    struct pici_attr dtype = {0};
    bool fortran, matches;
    TRY(reading_attr_is(reading, tensor->index, ATTR_ORDER, "F", &fortran));
    TRY(reading_attr(reading, tensor->index, ATTR_DTYPE, &dtype));
    if (title->name)
        dtype = (struct pici_attr){ATTR_DTYPE, title->word, strlen(title->word)};
    const char *const name = title->name ? title->name : tensor->name;
    const size_t name_size = title->name ? title->name_len : tensor->name_len;
    struct measured *measured = begin(job, name, name_size, tensor->dtype, tensor->shape, tensor->rank, tensor->count,
                                      fortran, dtype.key ? dtype.value : NULL, dtype.len);
    if (!measured)
        return tool_nomem(job->input.name, "the list of tensors");
    measured->stored = tensor->stored_bytes;
    TRY(set_view(reading, tensor, title, measured));
    for (enum delta_kind kind = DELTA_XOR; job->is_delta && kind < DELTA_KINDS; kind++) {
        TRY(reading_attr_is(reading, tensor->index, DELTA_KIND, pici_delta_kind_name(kind), &matches));
        if (matches)
            measured->kind = pici_delta_kind_name(kind);
    }
    TRY(reading_attr_is(reading, tensor->index, ATTR_ENDIAN, "big", &measured->big_endian));
    for (uint64_t done = 0, n = 1; n;) {
        TRY(reading_piece(reading, tensor, &done, &n));
        const char *elements = reading->piece;
        for (uint64_t at = 0; at < n; at += tensor->chunk_elements)
            TRY(count(job, measured, elements + at * pici_dtype_width(tensor->dtype),
                      n - at < tensor->chunk_elements ? n - at : tensor->chunk_elements));
    }
    return end(job, measured);
}

/* Prints where the elements of --tensor's tensor are, if another file has them. */
static int refuse_other(const struct job *job, const struct pici_tensor_info *tensor, const struct reference *reference)
{
    char name[96], shard[96];
    return tool_bad(job->input.name, "tensor %s is the same as tensor '%s' of %s: inspect that", tensor->name,
                    pici_parse_printable(name, sizeof name, reference->name, reference->name_size),
                    pici_parse_printable(shard, sizeof shard, reference->shard, reference->shard_size));
}

static int inspect_reading(struct job *job, struct reading *reading)
{
    /* No default limit: inspect writes nothing, and the number of chunks bounds the work. */
    const struct limit limit = {job->options->max_size.given, job->options->max_size.bytes, NULL};
    uint64_t tensors = 0;
    TRY(reading_open(reading, &job->input, job->options->threads, true));
    TRY(reading_is_delta(reading, &job->is_delta));
    job->report.type = job->is_delta ? "delta" : "pici";
    const enum pici_status status = job->input.regular ? pici_reader_count(reading->reader, &tensors) : PICI_OK;
    if (status)
        return reading_failed(reading, status);
    TRY(begin_image(job, tensors));
    struct reading_views views = {0};
    for (uint64_t bytes = 0;;) {
        struct pici_tensor_info tensor;
        struct pici_view title = PICI_VIEW_INIT;
        bool has_more, inspected;
        TRY(reading_next(reading, &tensor, &has_more));
        if (!has_more)
            return TOOL_OK;
        TRY(is_wanted(job, reading, &tensor, &views, &title, &inspected));
        struct reference reference;
        bool refers;
        TRY(reading_reference(reading, &tensor, &reference, &refers));
        if (!inspected)
            continue;
        if (refers && !job->options->tensor) {
            report_refer(&job->report, reference.dtype, reference.count);
            continue;
        }
        if (refers && reference.shard_size)
            return refuse_other(job, &tensor, &reference);
        if (refers)
            TRY(reading_follow(reading, &tensor));
        bytes += tensor.count * pici_dtype_width(tensor.dtype);
        if (bytes > limit_now(&limit))
            return limit_refused(&limit, job->input.name, bytes);
        TRY(inspect_stored(job, reading, &tensor, &title));
    }
}

static int inspect_file(struct job *job)
{
    struct reading reading;
    const int status = inspect_reading(job, &reading);
    reading_close(&reading);
    return status;
}

static int inspect_tensors(struct job *job, struct source *source)
{
    const struct pici_writer_opts writer_options = PICI_WRITER_OPTS_INIT;
    const struct limit limit = {job->options->max_size.given, job->options->max_size.bytes, NULL};
    job->report.type = tool_type_name(source->type);
    job->piece = malloc(writer_options.chunk_elements * sizeof(uint64_t));
    if (!job->piece)
        return tool_nomem(job->input.name, "a chunk of elements");
    TRY(begin_image(job, source->tensors));
    for (uint64_t bytes = 0;;) {
        struct source_tensor tensor;
        bool has_more;
        TRY(source_next(source, &tensor, &has_more));
        if (!has_more)
            return TOOL_OK;
        size_t width = pici_dtype_width(tensor.dtype);
        struct measured *measured = NULL;
        if (!tensor.filler && wanted(job, tensor.title, tensor.title_size)) {
            measured = begin(job, tensor.title, tensor.title_size, tensor.dtype, tensor.shape, tensor.rank,
                             tensor.count, tensor.fortran, tensor.dtype_text, strlen(tensor.dtype_text));
            if (!measured)
                return tool_nomem(job->input.name, "the list of tensors");
            measured->big_endian = tensor.big_endian;
            if (tensor.view && tensor.view[0] && !(measured->view = strdup(tensor.view)))
                return tool_nomem(job->input.name, "the list of tensors");
            bytes = bytes <= UINT64_MAX - tensor.count * width ? bytes + tensor.count * width : UINT64_MAX;
            if (bytes > limit_now(&limit))
                return limit_refused(&limit, job->input.name, bytes);
        } else if (source->archived) { /* a tensor of an archive can be skipped */
            continue;
        }
        for (uint64_t remaining = tensor.count, n; remaining; remaining -= n) {
            n = remaining < writer_options.chunk_elements ? remaining : writer_options.chunk_elements;
            TRY(source_take(source, job->piece, (size_t)n * width));
            if (measured)
                TRY(count(job, measured, job->piece, n));
        }
        if (measured)
            TRY(end(job, measured));
    }
}

static int inspect_source(struct job *job)
{
    struct source source;
    TRY(source_open(&source, &job->input, job->path, job->options));
    const int status = inspect_tensors(job, &source);
    source_close(&source);
    return status;
}

static int inspect_block(struct job *job)
{
    size_t size;
    struct pici_info info = PICI_INFO_INIT;
    TRY(input_slurp(&job->input, &job->block, &size));
    TRY(block_open(job->input.name, job->block, size, job->options, &info));
    job->report.type = "block";
    job->found = true;
    TRY(begin_image(job, 1));
    const char *const format = pici_format_name(info.format);
    struct measured *const measured =
        begin(job, format, strlen(format), info.dtype, &info.count, 1, info.count, false, NULL, 0);
    job->piece = malloc(BLOCK_PIECE * sizeof(uint64_t));
    if (!measured || !job->piece)
        return tool_nomem(job->input.name, "a piece of the block");
    /* pieces are whole groups; records of groups are independent */
    struct pici_breakdown all = PICI_BREAKDOWN_INIT, all_by_value = PICI_BREAKDOWN_INIT, breakdown, by_value;
    uint64_t negative_zeros = 0, negative, packed, all_packed = hybrid_head(info.count);
    all.other_bytes = all_by_value.other_bytes = hybrid_head(info.count);
    for (uint64_t done = 0; done < info.count; done += BLOCK_PIECE) {
        uint64_t n = info.count - done < BLOCK_PIECE ? info.count - done : BLOCK_PIECE;
        enum pici_status status = pici_decompress_range(job->piece, done, n, job->block, size, NULL);
        if (status)
            return tool_bad(job->input.name, "%s", pici_strerror(status));
        if (!measure_breakdown(&breakdown, &job->scratch, info.dtype, job->piece, n, PICI_ZEROS_EXACT))
            return tool_nomem(job->input.name, "the measured blocks");
        look(job, measured, job->piece, n);
        if (job->compare &&
            !compare_add(job->compare, info.dtype, job->piece, n, &measured->sizes->pici, &measured->sizes->zstd))
            return tool_nomem(job->input.name, "the comparison");
        if (!measure_packed(&packed, &job->scratch, info.dtype, job->piece, n))
            return tool_nomem(job->input.name, "the measured blocks");
        all_packed = packed == UINT64_MAX ? packed : all_packed + packed - hybrid_head(n);
        TRY(look_by_value(job, measured, job->piece, n, &breakdown, &by_value, &negative));
        breakdown.other_bytes -= hybrid_head(n);
        by_value.other_bytes -= hybrid_head(n);
        breakdown_sum(&all, &breakdown);
        breakdown_sum(&all_by_value, &by_value);
        negative_zeros += negative;
    }
    const uint64_t nonzeros = job->report.density_map->nonzeros;
    sizes_add(measured->sizes, info.dtype, info.count, nonzeros, &all);
    sizes_packed(measured->sizes, info.dtype, info.count, nonzeros, &all, all_packed);
    sizes_by_value(measured->sizes, info.dtype, info.count, nonzeros, &all, negative_zeros, &all_by_value);
    measured->stored = size;
    return end(job, measured);
}

static int inspect(struct job *job)
{
    enum reading_kind kind = READING_OTHER;
    if (!job->options->type && !job->options->dtype)
        TRY(reading_kind(&job->input, job->path, &kind));
    job->report.file = job->input.name;
    job->report.file_bytes = job->input.bytes;
    job->report.density_map = malloc(sizeof *job->report.density_map);
    job->report.grid = calloc(1, sizeof *job->report.grid);
    if (!job->report.density_map || !job->report.grid)
        return tool_nomem(job->input.name, "the density map");
    progress_start(&job->progress, job->input.name, job->input.bytes);
    int status;
    if (kind == READING_FILE)
        status = inspect_file(job);
    else
        status = kind == READING_BLOCK ? inspect_block(job) : inspect_source(job);
    progress_end(&job->progress);
    free(job->piece);
    free(job->block);
    job->piece = job->block = NULL;
    return status || job->found || !job->options->tensor ? status : tool_no_tensor(job->input.name, &job->near);
}

static void end_job(struct job *job)
{
    image_free(job->image);
    compare_free(job->compare);
    report_free(&job->report);
    free(job->scratch.memory);
    input_close(&job->input);
}

static int begin_compare(struct job *job)
{
    if (!job->options->compare)
        return TOOL_OK;
    if (!compare_possible())
        return tool_usage(NULL, "inspect: --compare needs zstd, which this build does not have");
    job->report.zstd_level = job->options->compare;
    job->compare = compare_new(job->options->compare);
    return job->compare ? TOOL_OK : tool_nomem(job->input.name, "the comparison");
}

/* Inspects a file, and draws the requested pictures. */
static int inspect_and_draw(struct job *job, struct output *png, struct output *svg)
{
    const struct tool_options *const options = job->options;
    TRY(begin_compare(job));
    if (options->png)
        TRY(output_open(png, options->png, &job->input, options->force));
    if (options->svg)
        TRY(output_open(svg, options->svg, &job->input, options->force));
    TRY(inspect(job));
    if (options->png)
        TRY(image_png(job->image, png));
    if (options->svg)
        TRY(image_svg(job->image, svg));
    if (options->png)
        TRY(output_commit(png));
    if (options->svg)
        TRY(output_commit(svg));
    return TOOL_OK;
}

static int inspect_one(const char *path, const struct tool_options *options, void *context)
{
    struct inputs *inputs = context;
    struct output png = {.fd = -1}, svg = {.fd = -1};
    struct job job = {.options = options, .path = path, .pictured = options->png || options->svg};
    suggest_start(&job.near, options->tensor);
    TRY(input_open(&job.input, path));
    const int status = inspect_and_draw(&job, &png, &svg);
    if (!status && options->json) {
        report_json(&inputs->json, &job.report);
    } else if (!status) {
        inputs_next(inputs);
        report_print(&job.report);
    }
    output_discard(&png);
    output_discard(&svg);
    end_job(&job);
    return status;
}

/* Whether the stored file at path has the tensor that `near` looks for. Else gives `near` its names. True if it cannot
 * be read, which inspect reports. */
static bool has_tensor(const char *path, struct suggest *near)
{
    struct pici_reader *reader = NULL;
    struct pici_view view = PICI_VIEW_INIT;
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    const size_t size = strlen(near->typed);
    uint64_t tensors = 0;
    int found = 0;
    const bool has = pici_reader_open_path(&reader, path, NULL) != PICI_OK ||
                     pici_reader_find_view(reader, near->typed, size, &view, &found) != PICI_OK || found ||
                     pici_reader_find(reader, near->typed, size, &tensor) != PICI_E_ARG ||
                     pici_reader_count(reader, &tensors) != PICI_OK;
    for (uint64_t i = 0; !has && i < tensors && pici_reader_tensor(reader, i, &tensor) == PICI_OK; i++)
        suggest_word(near, tensor.name);
    pici_reader_close(reader);
    return has;
}

/* Whether shard `number` of a checkpoint has the tensor that `near` looks for. Else gives `near` its names. */
static bool shard_has(const struct folder *folder, size_t number, struct suggest *near)
{
    const struct shards *const index = &folder->index;
    const struct shards_tensor *const found = shards_find_in(index, near->typed, strlen(near->typed), number);
    const bool has = found && found->shard == number;
    for (size_t i = 0; !has && i < index->tensors; i++)
        if (index->tensor[i].shard == number)
            suggest_word(near, index->tensor[i].name);
    return has;
}

/* Adds an operand to the list; for an open folder, adds its shards instead: all of them, or those with `tensor`. */
static int add_operand(const char *path, struct folder *folder, const char *tensor, char ***args, int *nargs)
{
    const int before = *nargs;
    struct suggest near;
    suggest_start(&near, tensor);
    if (folder && !folder->made && !folder->index.shards)
        return tool_usage(path, "has no " SHARDS_EXTENSION " files; inspect would show their tensors");
    if (folder && !folder->made)
        TRY(folder_check(folder, NULL, NULL, NULL));
    size_t most = 1;
    if (folder)
        most = folder->made ? folder->list.files : folder->index.shards;
    char **const bigger = realloc(*args, ((size_t)*nargs + most + 1) * sizeof *bigger);
    if (!bigger)
        return tool_nomem(path, "the list of files");
    *args = bigger;
    for (size_t number = 0; number < most; number++) {
        if (folder && folder->made && folder->list.file[number].kind != FOLDER_SHARD)
            continue;
        char *added;
        if (!folder)
            added = strdup(path);
        else
            added = folder->made ? folder_path(path, folder->list.file[number].name, FOLDER_EXTENSION)
                                 : folder_path(path, folder->index.shard[number], "");
        if (!added)
            return TOOL_BAD;
        if (!folder || !tensor || (folder->made ? has_tensor(added, &near) : shard_has(folder, number, &near)))
            bigger[(*nargs)++] = added;
        else
            free(added);
    }
    return folder && tensor && *nargs == before ? tool_no_tensor(path, &near) : TOOL_OK;
}

/* Makes the list of operands, with folders replaced by their shards. Skips folders that cannot be read. The caller
 * frees the list. Returns the worst status. */
static int expand_folders(const struct tool_options *options, char ***args, int *nargs)
{
    int worst = TOOL_OK;
    *args = NULL;
    *nargs = 0;
    for (int i = 0; i < options->nargs; i++) {
        struct folder opened = {0};
        const bool folder = folder_is(options->args[i]);
        int status = folder ? folder_open(&opened, options->args[i]) : TOOL_OK;
        if (!status)
            status = add_operand(options->args[i], folder ? &opened : NULL, options->tensor, args, nargs);
        folder_close(&opened);
        worst = status > worst ? status : worst;
    }
    return worst;
}

static int inspect_all(const struct tool_options *options)
{
    struct tool_options all = *options;
    int worst = expand_folders(options, &all.args, &all.nargs);
    int status;
    if (all.nargs > 1 && (options->png || options->svg))
        status = tool_usage(NULL, "inspect: --png and --svg take one file, not %d: run inspect for each", all.nargs);
    else
        status = inputs_print(&all, options->base ? inspect_delta : inspect_one);
    worst = status > worst ? status : worst;
    for (int i = 0; i < all.nargs; i++)
        free(all.args[i]);
    free(all.args);
    return worst;
}

int verb_inspect(const struct tool_options *options)
{
    if (options->png && options->svg && strcmp(options->png, options->svg) == 0)
        return tool_usage(options->png, "cannot be both --png and --svg");
    if (options->base && (options->png || options->svg || options->tensor || options->compare))
        return tool_usage(NULL, "inspect: --base cannot be combined with --png, --svg, --tensor or --compare");
    TRY(results_check(options, "inspect"));
    return inspect_all(options);
}

static int report(struct job *job, struct output *page, const char *path)
{
    TRY(output_open(page, path, &job->input, job->options->force));
    TRY(inspect(job));
    TRY(html_report(&job->report, job->image, page));
    return output_commit(page);
}

int verb_report(const struct tool_options *options)
{
    struct output page = {.fd = -1};
    struct job job = {.options = options, .path = options->args[0], .pictured = true, .in_page = true};
    char *path = options->out ? strdup(options->out) : tool_output_name(options->args[0], ".html", NULL);
    if (!path)
        return tool_nomem(options->args[0], "the output's name");
    suggest_start(&job.near, options->tensor);
    int status = input_open(&job.input, options->args[0]);
    if (!status) {
        status = report(&job, &page, path);
        output_discard(&page);
        end_job(&job);
    }
    free(path);
    return status;
}
