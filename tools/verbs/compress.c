/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "folder/twins.h"
#include "input/attrs.h"
#include "input/source.h"
#include "output/output.h"
#include "output/result.h"
#include "parse/reference.h"
#include "term.h"
#include "tool.h"

/* A file of a folder, and the folder's duplicate tensors. */
struct part {
    const struct twins *twins;
    const struct folder_list *list;
    size_t number; /* its number in the list */
};

enum { PIECE_MOST = 256 << 20 }; /* bytes read at a time; one longer chunk is still read at once */

struct job {
    struct input input;
    const struct part *part; /* NULL: the file is not one of a folder */
    size_t tensors;          /* count of tensors written so far */
    struct source source;
    struct output output;
    struct pici_writer *writer;
    struct progress progress;
    uint8_t *piece; /* a chunk for each thread; the writer encodes them without a copy */
    size_t chunks;  /* chunks in piece */
    uint32_t chunk_elements;
};

static int writer_failed(const struct job *job, enum pici_status status)
{
    return output_writer_failed(&job->output, job->writer, status);
}

/* Begins a tensor of the file. refers_to: write a reference to this twin; or NULL. */
static int begin_tensor(struct job *job, const struct source_tensor *tensor, const struct twin *refers_to)
{
    static const uint64_t nothing = 0;
    struct pici_attr attrs[SOURCE_ATTRS + 1];
    struct pici_tensor described = source_describe(tensor, attrs);
    char *value = NULL;
    if (refers_to) {
        struct reference reference = {.dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(reference.shape, tensor->shape, sizeof reference.shape);
        if (refers_to->file != job->part->number) {
            reference.shard = job->part->list->file[refers_to->file].name;
            reference.shard_size = strlen(reference.shard);
        }
        reference.name = refers_to->name;
        reference.name_size = refers_to->name_size;
        size_t size;
        if (!(value = reference_value(&reference, &size)))
            return tool_nomem(job->input.name, "a reference");
        attrs[described.n_attrs++] = (struct pici_attr){REFERENCE_ATTR, value, size};
        described.dtype = PICI_U8;
        described.rank = 1;
        described.shape = &nothing;
    }
    const enum pici_status status = pici_writer_tensor(job->writer, &described);
    free(value);
    if (status == PICI_E_ARG) /* such as a name that is too long for a .pici file */
        return tool_bad(job->input.name, "%s", pici_writer_error(job->writer));
    return status ? writer_failed(job, status) : TOOL_OK;
}

static int copy_tensor(struct job *job, const struct source_tensor *tensor)
{
    const struct twin *const twin = job->part ? twins_at(job->part->twins, job->part->number, job->tensors) : NULL;
    const bool refers = twin && twin_refers(job->part->twins, twin);
    struct pici_xxh64 hash;
    result_tensor(tensor->title, tensor->dtype, tensor->shape, tensor->rank);
    TRY(begin_tensor(job, tensor, refers ? &job->part->twins->twin[twin->first] : NULL));
    const size_t width = pici_dtype_width(tensor->dtype), most = job->chunks * job->chunk_elements * width;
    uint64_t remaining = tensor->count * width;
    job->tensors++;
    pici_xxh64_init(&hash, 0);
    while (remaining) {
        const uint8_t *elements;
        size_t step = remaining < most ? (size_t)remaining : most;
        TRY(source_give(&job->source, job->piece, step, &elements));
        if (twin)
            pici_xxh64_update(&hash, elements, step);
        const enum pici_status status = refers ? PICI_OK : pici_writer_data(job->writer, elements, step);
        if (status)
            return writer_failed(job, status);
        remaining -= step;
        progress_at(&job->progress, job->input.position, job->input.position);
    }
    if (twin && job->source.swap_width == 1 && pici_xxh64_digest(&hash) != twin->hash)
        return tool_bad(job->input.name, "tensor %s has changed while the folder was read", tensor->title);
    return TOOL_OK;
}

/* Packs floats unless a format is given: the same bytes on every host, even where packing is slow. */
static enum pici_pack pack_of(const struct tool_options *options)
{
    if (options->pack_given)
        return options->pack;
    return options->format == PICI_AUTO && options->file_version != 1 ? PICI_PACK_PLANES : PICI_PACK_NONE;
}

static int copy(struct job *job, const struct tool_options *options)
{
    const char *const type = tool_type_name(job->source.type), *const unnamed = source_unnamed(&job->source);
    struct pici_attr attrs[4] = {{ATTR_TYPE, type, strlen(type)}};
    size_t count = 1;
    if (job->source.head_size)
        attrs[count++] = (struct pici_attr){ATTR_HEAD, job->source.head, job->source.head_size};
    if (unnamed)
        attrs[count++] = (struct pici_attr){PICI_ATTR_UNNAMED, unnamed, strlen(unnamed)};
    if (job->source.archive.views)
        attrs[count++] = (struct pici_attr){PICI_ATTR_VIEWS, job->source.archive.views, job->source.archive.views_size};
    struct pici_writer_opts writer_options = PICI_WRITER_OPTS_INIT;
    writer_options.format = options->format;
    writer_options.threads = options->threads;
    writer_options.zstd_level = options->zstd;
    writer_options.zeros = options->zeros;
    writer_options.pack = pack_of(options);
    writer_options.version = (uint64_t)options->file_version;
    job->chunk_elements = writer_options.chunk_elements;
    job->chunks = tool_threads(options->threads);
    size_t chunk = writer_options.chunk_elements * sizeof(uint64_t);
    if (job->chunks > PIECE_MOST / chunk)
        job->chunks = PIECE_MOST / chunk;
    job->piece = malloc(job->chunks * chunk);
    if (!job->piece)
        return tool_nomem(job->input.name, "the elements of the chunks");
    enum pici_status status = pici_writer_open(&job->writer, output_put, &job->output, attrs, count, &writer_options);
    if (status)
        return writer_failed(job, status);
    progress_start(&job->progress, job->input.name, job->input.bytes);
    for (;;) {
        struct source_tensor tensor;
        bool has_more;
        TRY(source_next(&job->source, &tensor, &has_more));
        if (!has_more)
            break;
        TRY(copy_tensor(job, &tensor));
    }
    status = pici_writer_finish(job->writer);
    progress_end(&job->progress);
    return status ? writer_failed(job, status) : TOOL_OK;
}

static int compress_source(struct job *job, const char *path, const char *out_path, const struct tool_options *options,
                           struct results *results, struct folder_file *shard)
{
    const struct limit limit = input_limit(&job->input, options);
    const bool forward = shard && !tool_type_is_zip(options->type);
    if (forward)
        input_hash(&job->input);
    else if (shard)
        TRY(folder_copy(path, NULL, &shard->original));
    TRY(source_open_exact(&job->source, &job->input, path, options, &limit));
    TRY(output_open(&job->output, out_path, &job->input, options->force));
    output_times(&job->output, &job->input);
    job->output.limit = limit;
    if (shard)
        output_hash(&job->output);
    const double start = term_now(); /* after prompts, which may take long */
    TRY(copy(job, options));
    const double seconds = term_now() - start;
    if (shard && !forward) /* its hash was taken earlier */
        TRY(input_expect_unchanged(&job->input, path));
    TRY(output_commit(&job->output));
    if (!shard)
        return result_done(results, options, path, &job->input, &job->output, false, seconds);
    if (forward)
        shard->original = folder_input_sum(&job->input);
    shard->stored = folder_output_sum(&job->output);
    return TOOL_OK;
}

/* shard, part: for a file in a folder, the entry to fill in, and the file; else NULL. */
static int compress_file(const char *path, const char *out_path, const struct tool_options *options,
                         struct results *results, struct folder_file *shard, const struct part *part)
{
    struct job job = {.output.fd = -1, .part = part};
    TRY(input_open(&job.input, path));
    const int status = compress_source(&job, path, out_path, options, results, shard);
    pici_writer_close(job.writer);
    output_discard(&job.output);
    source_close(&job.source);
    input_close(&job.input);
    free(job.piece);
    return status;
}

/* Makes a file of a compressed folder. */
static int compress_part(struct folder_make *making, struct folder_file *file)
{
    struct tool_options options = making->each;
    const struct part part = {making->context, &making->list, (size_t)(file - making->list.file)};
    const bool shard = file->kind == FOLDER_SHARD;
    char *const from_path = folder_path(making->from->path, file->name, "");
    char *const to_path = folder_path(making->to, file->name, shard ? FOLDER_EXTENSION : "");
    options.type = folder_find(making->from, file->name)->type;
    options.dtype = options.type == TYPE_RAW ? PICI_U8 : 0;
    options.force = false;
    int status = TOOL_BAD;
    if (from_path && to_path)
        status = shard ? compress_file(from_path, to_path, &options, NULL, file, &part)
                       : folder_copy(from_path, to_path, &file->original);
    if (!shard)
        file->stored = file->original;
    free(from_path);
    free(to_path);
    return status;
}

/* Finds the folder's duplicate tensors. Files of version 1 store all of them, and copy files of torch.save. */
static int find_twins(struct folder_make *making)
{
    struct twins *const twins = making->context;
    if (making->options->file_version != 1)
        TRY(twins_find(twins, making->from, &making->list));
    bool *const references = &making->list.references;
    for (size_t i = 0; i < twins->count; i++)
        *references = *references || twin_refers(twins, &twins->twin[i]);
    for (size_t i = 0; i < making->from->files.count; i++)
        *references = *references || making->from->files.entry[i].type == TYPE_PT;
    return TOOL_OK;
}

static int compress_opened(struct folder *from, const struct tool_options *options, const char *out_path, void *sum)
{
    struct twins twins = {.count = 0};
    struct folder_make making = {.from = from,
                                 .options = options,
                                 .with_list = true,
                                 .prepare = find_twins,
                                 .make_file = compress_part,
                                 .context = &twins};
    TRY(folder_expect_checkpoint(from));
    TRY(folder_check(from, NULL, NULL, NULL));
    if (options->file_version != 1)
        TRY(folder_find_torch(from));
    TRY(folder_list_of(&making.list, from, true));
    const int status = folder_make(&making, out_path, sum);
    twins_free(&twins);
    folder_list_free(&making.list);
    return status;
}

/* The name of the compressed folder: the given one; else PATH.pici, or in the folder of --output-dir-flat. NULL: an
 * error, which has been printed. The caller frees it. */
static char *folder_output(const char *path, const struct tool_options *options)
{
    char *const beside = options->out ? strdup(options->out) : folder_output_name(path, FOLDER_EXTENSION);
    if (!beside && options->out)
        tool_nomem(path, "the output's name");
    if (!beside || options->out || !options->out_dir)
        return beside;
    char *const name = tool_output_name(beside, "", options->out_dir);
    if (!name)
        tool_nomem(path, "the output's name");
    free(beside);
    return name;
}

static int compress_folder(const char *path, const struct tool_options *options, void *sum)
{
    struct folder from;
    TRY(folder_open(&from, path));
    int status;
    if (options->type || options->dtype)
        status = tool_usage(path, "is a folder: --type and --dtype are for files");
    else if (options->zeros != PICI_ZEROS_EXACT)
        status = tool_usage(path, "is a folder, which is restored exactly: --zeros is for files");
    else
        status = folder_refuse_options(path, options);
    if (!status) {
        char *const out_path = folder_output(path, options);
        status = out_path ? compress_opened(&from, options, out_path, sum) : TOOL_BAD;
        free(out_path);
    }
    folder_close(&from);
    return status;
}

static int compress(const char *path, const struct tool_options *options, void *sum)
{
    if (folder_is(path))
        return compress_folder(path, options, sum);
    char *const out_path = options->out ? strdup(options->out) : tool_output_name(path, ".pici", options->out_dir);
    const int status =
        out_path ? compress_file(path, out_path, options, sum, NULL, NULL) : tool_nomem(path, "the output's name");
    free(out_path);
    return status;
}

int verb_compress(const struct tool_options *options)
{
    struct results results = {0};
    TRY(results_check(options, "compress"));
    if (options->file_version == 1 && (pack_of(options) || options->format == PICI_PACKED))
        return tool_usage(NULL, "compress: files of version 1 have no packed chunks");
    if (options->nargs > 1 && options->out)
        return tool_usage(NULL, "compress: standard output is one .pici file, and there are %d inputs", options->nargs);
    const int status = results_each(options, compress, &results);
    results_print(&results, options, false);
    return status;
}
