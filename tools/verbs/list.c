/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder/folder.h"
#include "input/attrs.h"
#include "input/looks.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "input/view_text.h"
#include "output/result.h"
#include "parse/npy.h"
#include "show/inputs.h"
#include "show/report.h"
#include "term.h"
#include "tool.h"

enum { TYPE_TEXT = 16 }; /* maximum of shown characters + 1 */

static uint64_t capped_sum(uint64_t sum, uint64_t more)
{
    return sum <= UINT64_MAX - more ? sum + more : UINT64_MAX;
}

/* The properties of a delta that list shows. */
struct listed_delta {
    bool is_delta, whole; /* whole: tables and removed are set; false for a stream */
    struct delta tables;
    struct pici_attr removed;
};

/* The properties of a file or folder that list shows. */
struct listing {
    struct report report; /* its sizes have only elements and dense bytes */
    struct listed_delta delta;
    uint64_t chunks;
    char type[64]; /* of the original, or of a folder */
    bool other;    /* not a .pici file */
};

/* A .pt file may claim long tensors, by strides of 0. Each has fewer than 2^64 bytes, but their sum may be larger. */
static void count_elements(struct report *report, enum pici_dtype dtype, uint64_t count)
{
    report->total.elements = capped_sum(report->total.elements, count);
    report->total.dense_bytes = capped_sum(report->total.dense_bytes, count * pici_dtype_width(dtype));
}

/* Adds a tensor. NULL: no memory. */
static struct measured *add(struct report *report, const char *name, size_t size, enum pici_dtype dtype,
                            const uint64_t *shape, unsigned rank, uint64_t count)
{
    struct measured *measured = report_add(report, name, size);
    if (!measured || !(measured->shape = malloc(rank * sizeof *measured->shape + 1)))
        return NULL;
    measured->dtype = dtype;
    measured->rank = rank;
    if (rank)
        memcpy(measured->shape, shape, rank * sizeof *measured->shape);
    measured->elements = count;
    count_elements(report, dtype, count);
    return measured;
}

/* Keeps the original's name of the type only if the elements do not imply it: there may be millions of tensors. */
static bool keep_meaning(struct measured *measured, const char *text, size_t size)
{
    if (pici_npy_meaning_of(text, size, measured->dtype) == NPY_NUMBER)
        return true;
    measured->dtype_text = strndup(text, size);
    return measured->dtype_text != NULL;
}

static void count_stored(struct listing *listing, struct measured *measured, const struct pici_tensor_info *tensor)
{
    measured->stored = tensor->stored_bytes;
    measured->chunks = tensor->chunks;
    listing->chunks += tensor->chunks;
    listing->report.stored += measured->stored;
}

/* Adds a view of a tensor of a .pici file. stands: its row also represents the tensor, which has no row. */
static int add_view(struct listing *listing, struct reading *reading, const struct pici_tensor_info *tensor,
                    const struct pici_view *view, bool unnamed, bool stands)
{
    char text[VIEW_TEXT];
    const struct sizes saved = listing->report.total;
    struct measured *measured =
        add(&listing->report, view->name, view->name_len, view->dtype, view->shape, view->rank, view->count);
    if (!measured || !keep_meaning(measured, view->word, strlen(view->word)))
        return tool_nomem(reading->input->name, "the list of tensors");
    view_text_of(text, sizeof text, view, tensor, unnamed);
    if (text[0] && !(measured->view = strdup(text)))
        return tool_nomem(reading->input->name, "the list of tensors");
    listing->report.total = saved; /* it has the storage's elements already, or gets them below */
    if (!stands)
        return TOOL_OK;
    count_elements(&listing->report, tensor->dtype, tensor->count);
    count_stored(listing, measured, tensor);
    return reading_attr_is(reading, tensor->index, ATTR_ENDIAN, "big", &measured->big_endian);
}

static void text_of_reference(char text[VIEW_TEXT], const struct reference *reference)
{
    char name[VIEW_TEXT / 2];
    pici_parse_printable(name, sizeof name, reference->name, reference->name_size);
    snprintf(text, VIEW_TEXT, "same as %s%s%.*s", name, reference->shard_size ? " of " : "", (int)reference->shard_size,
             reference->shard);
}

/* Adds a tensor of a .pici file. described: the tensor itself, or the tensor that a small delta leads to. */
static int add_tensor(struct listing *listing, struct reading *reading, const struct pici_tensor_info *tensor,
                      const struct pici_tensor_info *described)
{
    struct pici_attr type = {0};
    struct pici_tensor_info referred = *described;
    struct reference reference;
    bool refers;
    char same[VIEW_TEXT] = "";
    TRY(reading_reference(reading, tensor, &reference, &refers));
    if (refers) {
        referred.dtype = reference.dtype;
        referred.rank = reference.rank;
        referred.count = reference.count;
        memcpy(referred.shape, reference.shape, sizeof referred.shape);
        described = &referred;
        text_of_reference(same, &reference);
        report_refer(&listing->report, reference.dtype, reference.count);
    }
    struct measured *measured = add(&listing->report, tensor->name, tensor->name_len, described->dtype,
                                    described->shape, described->rank, described->count);
    if (!measured)
        return tool_nomem(reading->input->name, "the list of tensors");
    count_stored(listing, measured, tensor);
    TRY(reading_attr_is(reading, tensor->index, ATTR_ENDIAN, "big", &measured->big_endian));
    TRY(reading_attr_is(reading, tensor->index, ATTR_ORDER, "F", &measured->fortran));
    TRY(reading_attr(reading, tensor->index, ATTR_DTYPE, &type));
    if (type.key && !keep_meaning(measured, type.value, type.len))
        return tool_nomem(reading->input->name, "the list of tensors");
    TRY(reading_attr(reading, tensor->index, ATTR_VIEW, &type));
    if (refers)
        type = (struct pici_attr){ATTR_VIEW, same, strlen(same)};
    if (type.key && !(measured->view = strndup(type.value, type.len < VIEW_TEXT ? type.len : VIEW_TEXT)))
        return tool_nomem(reading->input->name, "the list of tensors");
    return TOOL_OK;
}

/* Adds a tensor of a .pici file and its views. The first view's row represents an unnamed storage. Bytes between
 * tensors get no row. */
static int add_stored(struct listing *listing, struct reading *reading, const struct pici_tensor_info *tensor,
                      const struct pici_tensor_info *described, struct reading_views *views)
{
    struct pici_view view;
    bool row = false;
    TRY(reading_views(reading, tensor, views));
    for (uint64_t i = 0; i < views->count; i++) {
        TRY(reading_view(reading, views->first + i, &view));
        if (i == 0 && !views->unnamed)
            TRY(add_tensor(listing, reading, tensor, described));
        TRY(add_view(listing, reading, tensor, &view, views->unnamed, i == 0 && views->unnamed));
        row = true;
    }
    return row || views->unnamed ? TOOL_OK : add_tensor(listing, reading, tensor, described);
}

/* Reads the index, or a whole stream. delta: show the tensors that small deltas lead to; or NULL. */
static int gather(struct listing *listing, struct reading *reading, const struct delta *delta)
{
    struct reading_views views = {0};
    for (;;) {
        struct pici_tensor_info tensor;
        bool has_more;
        TRY(reading_next(reading, &tensor, &has_more));
        if (!has_more)
            return TOOL_OK;
        struct pici_tensor_info described = tensor;
        if (delta && tensor.index < delta->tensors) {
            const enum pici_status status = pici_delta_tensor(delta, reading->reader, tensor.index, &described);
            if (status)
                return reading_failed(reading, status);
        }
        TRY(add_stored(listing, reading, &tensor, &described, &views));
    }
}

/* Adds each tensor in the pickle of a .pt file; several may share a storage. */
static int gather_torch(struct archive *archive, struct report *report)
{
    char view[256];
    uint64_t shape[TORCH_MAX_RANK + 1];
    for (size_t i = 0; i < archive->torch.count; i++) {
        const struct torch_tensor *tensor = &archive->torch.tensors[i];
        unsigned rank = tensor->rank;
        if (rank)
            memcpy(shape, tensor->shape, rank * sizeof *shape);
        if (tensor->item_elements > 1)
            shape[rank++] = tensor->item_elements;
        struct measured *measured = add(report, tensor->name, tensor->name_size, tensor->dtype, shape, rank,
                                        tensor->items * tensor->item_elements);
        if (!measured || !(measured->dtype_text = strdup(tensor->source_dtype)))
            return tool_nomem(archive->input->name, "the list of tensors");
        archive_view(archive, i, view, sizeof view);
        if (view[0] && !(measured->view = strdup(view)))
            return tool_nomem(archive->input->name, "the list of tensors");
        measured->big_endian = archive->big_endian && pici_dtype_width(tensor->dtype) > 1;
    }
    return TOOL_OK;
}

/* Whether gather_torch has listed the content of this part. */
static bool is_listed(const struct archive *archive, size_t part)
{
    return archive->torch.count && part < archive->parts && archive->part[part].tensor != ARCHIVE_NONE;
}

static int add_tensors(struct report *report, struct tensors *all)
{
    TRY(gather_torch(&all->source.archive, report));
    for (size_t i = 0; i < all->count; i++) {
        const struct tensor_at *t = &all->tensor[i];
        if (t->filler || is_listed(&all->source.archive, i))
            continue;
        struct measured *measured = add(report, t->name, t->name_size, t->dtype, t->shape, t->rank, t->count);
        if (!measured || !keep_meaning(measured, t->dtype_text, strlen(t->dtype_text)))
            return tool_nomem(all->input.name, "the list of tensors");
        measured->big_endian = t->big_endian;
        measured->fortran = t->fortran;
    }
    return TOOL_OK;
}

/* Reads the header of a file that is not a .pici file. */
static int gather_source(struct report *report, const char *path, const struct tool_options *options)
{
    struct tensors all;
    TRY(tensors_open(&all, path, options));
    report->type = tool_type_name(all.source.type);
    report->file_bytes = all.input.bytes;
    const int status = add_tensors(report, &all);
    tensors_close(&all);
    return status;
}

static int gather_delta(struct reading *reading, struct listed_delta *delta)
{
    TRY(reading_is_delta(reading, &delta->is_delta));
    if (!delta->is_delta || !reading->input->regular)
        return TOOL_OK;
    TRY(reading_delta(reading, &delta->tables));
    delta->whole = true;
    return reading_attr(reading, PICI_FILE, DELTA_REMOVED, &delta->removed);
}

static void list_delta_json(struct jsonout *json, const struct listed_delta *delta)
{
    size_t position = 0, size;
    const char *name;
    bool good;
    jsonout_begin(json, "delta", '{');
    for (int kind = 0; delta->whole && kind < DELTA_KINDS; kind++)
        jsonout_u64(json, pici_delta_kind_name((enum delta_kind)kind), delta->tables.kinds[kind]);
    if (delta->whole && delta->tables.partial)
        jsonout_u64(json, "few", delta->tables.few_count);
    if (delta->whole) {
        jsonout_begin(json, "removed", '[');
        while (pici_delta_removed_next(&delta->removed, &position, &name, &size, &good))
            jsonout_text(json, NULL, name, size);
        jsonout_end(json, ']');
    }
    jsonout_end(json, '}');
}

static void list_delta(const struct listed_delta *delta)
{
    size_t position = 0, size;
    const char *name;
    bool good;
    for (int kind = 0; kind < DELTA_KINDS; kind++)
        printf("%s%" PRIu64 " %s", kind ? ", " : "\n", delta->tables.kinds[kind],
               pici_delta_kind_name((enum delta_kind)kind));
    if (delta->tables.partial)
        printf(", %zu with few changes of %" PRIu64 " in all", delta->tables.few_count, delta->tables.base_tensors);
    printf(", %" PRIu64 " removed%s", delta->tables.removed, delta->tables.removed ? ":" : "");
    while (pici_delta_removed_next(&delta->removed, &position, &name, &size, &good)) {
        putchar(' ');
        term_text(stdout, name, size);
    }
    puts("");
}

static void list_json(struct jsonout *json, const struct listing *listing)
{
    const struct report *const report = &listing->report;
    report_json_begin(json, report, "source");
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        jsonout_begin(json, NULL, '{');
        measured_json(json, measured);
        jsonout_u64(json, "elements", measured->elements);
        jsonout_u64(json, "bytes", measured->elements * pici_dtype_width(measured->dtype));
        if (measured->stored)
            jsonout_u64(json, "stored_bytes", measured->stored);
        jsonout_u64(json, "chunks", measured->chunks);
        jsonout_end(json, '}');
    }
    jsonout_end(json, ']');
    jsonout_begin(json, "total", '{');
    jsonout_u64(json, "elements", report->total.elements);
    jsonout_u64(json, "bytes", report->total.dense_bytes);
    if (report->stored)
        jsonout_u64(json, "stored_bytes", report->stored);
    jsonout_u64(json, "chunks", listing->chunks);
    jsonout_end(json, '}');
    report_json_referred(json, report);
    if (listing->delta.is_delta)
        list_delta_json(json, &listing->delta);
    jsonout_end(json, '}');
}

static void list_row(uint64_t elements, uint64_t dense_bytes, uint64_t stored, uint64_t chunks)
{
    char bytes[TERM_TEXT];
    printf("  %12" PRIu64 "  %8s", elements, term_bytes(bytes, dense_bytes));
    if (stored)
        printf("  %8s  %6.2f", term_bytes(bytes, stored), (double)dense_bytes / (double)stored);
    else
        printf("  %8s  %6s", "-", "-");
    printf("  %6" PRIu64, chunks);
    columns_end();
}

static void list_print(const struct listing *listing)
{
    const struct report *const report = &listing->report;
    char bytes[TERM_TEXT];
    term_puts(stdout, report->file);
    if (listing->other) {
        fputs(": ", stdout);
        term_puts(stdout, report->type);
    } else {
        printf(listing->delta.is_delta ? ": delta" : ": pici");
    }
    if (*report->type && !listing->other) {
        printf(", from ");
        term_puts(stdout, report->type);
    }
    if (report->file_bytes)
        printf(", %s", term_bytes(bytes, report->file_bytes));
    printf(", %zu tensor%s\n\n", report->tensors, report->tensors == 1 ? "" : "s");
    if (!report->tensors)
        return;
    struct columns columns;
    columns_fit(&columns, report, 2 + 12 + 2 + 8 + 2 + 8 + 2 + 6 + 2 + 6);
    columns_head(&columns);
    printf("  %12s  %8s  %8s  %6s  %6s", "ELEMENTS", "BYTES", "STORED", "RATIO", "CHUNKS");
    columns_end();
    for (size_t i = 0; i < report->tensors; i++) {
        const struct measured *measured = &report->tensor[i];
        columns_row(&columns, measured);
        list_row(measured->elements, measured->elements * pici_dtype_width(measured->dtype), measured->stored,
                 measured->chunks);
    }
    columns_total(&columns);
    list_row(report->total.elements, report->total.dense_bytes, report->stored, listing->chunks);
    report_print_referred(report);
    if (listing->delta.whole)
        list_delta(&listing->delta);
}

/* Prints a listing. */
static void list_show(struct inputs *inputs, const struct listing *listing)
{
    if (inputs->options->json) {
        list_json(&inputs->json, listing);
    } else {
        inputs_next(inputs);
        list_print(listing);
    }
}

/* Adds a delta's counts and removed names to a folder's. The caller frees total->removed.value. */
static int add_delta(struct listed_delta *total, const struct listed_delta *delta)
{
    total->is_delta = total->is_delta || delta->is_delta;
    total->whole = total->whole || delta->whole;
    for (int kind = 0; kind < DELTA_KINDS; kind++)
        total->tables.kinds[kind] += delta->tables.kinds[kind];
    total->tables.removed += delta->tables.removed;
    if (!delta->removed.len)
        return TOOL_OK;
    uint8_t *const names = realloc((void *)total->removed.value, total->removed.len + delta->removed.len);
    if (!names)
        return TOOL_BAD;
    memcpy(names + total->removed.len, delta->removed.value, delta->removed.len);
    total->removed = (struct pici_attr){DELTA_REMOVED, names, total->removed.len + delta->removed.len};
    return TOOL_OK;
}

/* Reads the tensor descriptions of a shard that picitool made. */
static int gather_opened(struct listing *listing, struct input *input, struct reading *reading,
                         struct listed_delta *delta)
{
    TRY(reading_open(reading, input, 1, true));
    TRY(gather_delta(reading, delta));
    TRY(gather(listing, reading, delta->whole ? &delta->tables : NULL));
    return add_delta(&listing->delta, delta) ? tool_nomem(input->name, "the names of removed tensors") : TOOL_OK;
}

static int gather_made(struct listing *listing, const char *path)
{
    struct input input;
    struct reading reading;
    struct listed_delta delta = {0};
    TRY(input_open(&input, path));
    const int status = gather_opened(listing, &input, &reading, &delta);
    pici_delta_close(&delta.tables);
    reading_close(&reading);
    input_close(&input);
    return status;
}

/* Reads the tensor descriptions of a folder. For a checkpoint, call folder_check first. */
static int gather_folder(struct listing *listing, const struct folder *folder)
{
    for (size_t i = 0; i < (folder->made ? folder->list.files : folder->files.count); i++) {
        const struct folder_file *const file = folder->made ? &folder->list.file[i] : NULL;
        const char *const name = file ? file->name : folder->files.entry[i].name;
        const size_t before = listing->report.tensors;
        struct tool_options options = {.type = file ? TYPE_UNSET : folder->files.entry[i].type};
        options.dtype = options.type == TYPE_RAW ? PICI_U8 : 0;
        if (file ? file->kind != FOLDER_SHARD : options.type == TYPE_UNSET)
            continue;
        char *const path = folder_path(folder->path, name, file ? FOLDER_EXTENSION : "");
        int status = TOOL_BAD;
        if (path)
            status = file ? gather_made(listing, path) : gather_source(&listing->report, path, &options);
        free(path);
        TRY(status);
        for (size_t number = before; number < listing->report.tensors; number++)
            listing->report.tensor[number].shard = name;
    }
    return TOOL_OK;
}

static int list_opened(struct listing *listing, struct folder *folder, const struct tool_options *options)
{
    size_t shards = 0;
    if (options->type || options->dtype)
        return tool_usage(folder->path, "is a folder: --type and --dtype are for files");
    if (!folder->made)
        TRY(folder_check(folder, NULL, NULL, NULL));
    TRY(gather_folder(listing, folder));
    for (size_t i = 0; i < folder->list.files; i++)
        shards += folder->list.file[i].kind == FOLDER_SHARD;
    for (size_t i = 0; !folder->made && i < folder->files.count; i++)
        shards += folder->files.entry[i].type != TYPE_UNSET;
    const char *kind = "checkpoint";
    if (folder->made)
        kind = folder->list.delta ? "delta" : "compressed";
    snprintf(listing->type, sizeof listing->type, "%s in %zu shard%s", kind, shards, shards == 1 ? "" : "s");
    listing->report.file = folder->path;
    listing->report.type = listing->type;
    listing->report.file_bytes = 0;
    for (size_t i = 0; i < folder->files.count; i++)
        listing->report.file_bytes += folder->files.entry[i].bytes;
    return TOOL_OK;
}

static int list_folder(const char *path, const struct tool_options *options, struct inputs *inputs)
{
    struct folder folder;
    struct listing listing = {.other = true};
    TRY(folder_open(&folder, path));
    const int status = list_opened(&listing, &folder, options);
    if (!status)
        list_show(inputs, &listing);
    free((void *)listing.delta.removed.value);
    report_free(&listing.report);
    folder_close(&folder);
    return status;
}

static int list_file(struct listing *listing, struct input *input, struct reading *reading, const char *path,
                     const struct tool_options *options)
{
    enum reading_kind kind = READING_OTHER;
    struct pici_attr type;
    listing->report.file = input->name;
    listing->report.file_bytes = input->bytes;
    listing->report.type = listing->type;
    if (!options->type && !options->dtype)
        TRY(reading_kind(input, path, &kind));
    enum tool_type looks = TYPE_RAW;
    if (kind == READING_OTHER)
        TRY(looks_type(input, path, options, &looks));
    listing->other = kind == READING_OTHER && (options->type || options->dtype || looks != TYPE_RAW);
    if (listing->other && input->regular && strcmp(path, "-") == 0) /* the descriptor is read again */
        (void)lseek(input->fd, 0, SEEK_SET);
    if (listing->other)
        return gather_source(&listing->report, path, options);
    TRY(reading_open(reading, input, 1, true));
    TRY(reading_attr(reading, PICI_FILE, ATTR_TYPE, &type));
    if (type.key && type.len < TYPE_TEXT)
        memcpy(listing->type, type.value, type.len);
    TRY(gather_delta(reading, &listing->delta));
    return gather(listing, reading, listing->delta.whole ? &listing->delta.tables : NULL);
}

static int list(const char *path, const struct tool_options *options, void *context)
{
    if (folder_is(path))
        return list_folder(path, options, context);
    struct input input;
    struct reading reading = {0};
    struct listing listing = {.other = false};
    TRY(input_open(&input, path));
    const int status = list_file(&listing, &input, &reading, path, options);
    if (!status)
        list_show(context, &listing);
    pici_delta_close(&listing.delta.tables);
    report_free(&listing.report);
    reading_close(&reading);
    input_close(&input);
    return status;
}

int verb_list(const struct tool_options *options)
{
    TRY(results_check(options, "list"));
    return inputs_print(options, list);
}
