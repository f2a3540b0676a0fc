/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "input/attrs.h"
#include "input/source.h"
#include "output/output.h"
#include "output/result.h"
#include "term.h"
#include "tool.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes read at a time, unless one chunk is longer */

struct job {
    struct input in;
    struct source source;
    struct output out;
    struct pici_writer *writer;
    struct progress progress;
    uint8_t *piece; /* a chunk for each thread, so that the writer encodes them where they are */
    size_t chunks;  /* in it */
    uint32_t chunk_elements;
};

static int writer_failed(const struct job *j, enum pici_status status)
{
    return output_writer_failed(&j->out, j->writer, status);
}

static int copy_tensor(struct job *j, const struct source_tensor *tensor)
{
    struct pici_attr attrs[SOURCE_ATTRS];
    struct pici_tensor out = source_describe(tensor, attrs);
    result_tensor(tensor->title, tensor->dtype, tensor->shape, tensor->rank);
    enum pici_status status = pici_writer_tensor(j->writer, &out);
    if (status == PICI_E_ARG) /* as a name that is too long for a .pici file */
        return tool_bad(j->in.name, "%s", pici_writer_error(j->writer));
    if (status)
        return writer_failed(j, status);
    const size_t width = pici_dtype_width(tensor->dtype), most = j->chunks * j->chunk_elements * width;
    uint64_t left = tensor->count * width;
    while (left) {
        const uint8_t *p;
        size_t k = left < most ? (size_t)left : most;
        TRY(source_give(&j->source, j->piece, k, &p));
        status = pici_writer_data(j->writer, p, k);
        if (status)
            return writer_failed(j, status);
        left -= k;
        progress_at(&j->progress, j->in.position, j->in.position);
    }
    return TOOL_OK;
}

static int copy(struct job *j, const struct tool_options *options)
{
    const char *const type = tool_type_name(j->source.type), *const unnamed = source_unnamed(&j->source);
    struct pici_attr attrs[4] = {{ATTR_TYPE, type, strlen(type)}};
    size_t n = 1;
    if (j->source.head_size)
        attrs[n++] = (struct pici_attr){ATTR_HEAD, j->source.head, j->source.head_size};
    if (unnamed)
        attrs[n++] = (struct pici_attr){PICI_ATTR_UNNAMED, unnamed, strlen(unnamed)};
    if (j->source.archive.views)
        attrs[n++] = (struct pici_attr){PICI_ATTR_VIEWS, j->source.archive.views, j->source.archive.views_size};
    struct pici_writer_opts writer_options = PICI_WRITER_OPTS_INIT;
    writer_options.format = options->format;
    writer_options.threads = options->threads;
    writer_options.zstd_level = options->zstd;
    writer_options.zeros = options->zeros;
    j->chunk_elements = writer_options.chunk_elements;
    j->chunks = tool_threads(options->threads);
    size_t chunk = writer_options.chunk_elements * sizeof(uint64_t);
    if (j->chunks > PIECE_MOST / chunk)
        j->chunks = PIECE_MOST / chunk;
    j->piece = malloc(j->chunks * chunk);
    if (!j->piece)
        return tool_nomem(j->in.name, "the elements of the chunks");
    enum pici_status status = pici_writer_open(&j->writer, output_put, &j->out, attrs, n, &writer_options);
    if (status)
        return writer_failed(j, status);
    progress_start(&j->progress, j->in.name, j->in.bytes);
    for (;;) {
        struct source_tensor tensor;
        bool more;
        TRY(source_next(&j->source, &tensor, &more));
        if (!more)
            break;
        TRY(copy_tensor(j, &tensor));
    }
    status = pici_writer_finish(j->writer);
    progress_end(&j->progress);
    return status ? writer_failed(j, status) : TOOL_OK;
}

static int compress_source(struct job *j, const char *path, const char *out, const struct tool_options *options,
                           struct results *sum, struct folder_file *shard)
{
    const struct limit limit = input_limit(&j->in, options);
    if (shard)
        input_hash(&j->in);
    TRY(source_open_exact(&j->source, &j->in, path, options, &limit));
    TRY(output_open(&j->out, out, &j->in, options->force));
    output_times(&j->out, &j->in);
    j->out.limit = limit;
    if (shard)
        output_hash(&j->out);
    const double start = term_now(); /* a question may have been asked before */
    TRY(copy(j, options));
    const double seconds = term_now() - start;
    TRY(output_commit(&j->out));
    if (!shard)
        return result_done(sum, options, path, &j->in, &j->out, false, seconds);
    shard->original = folder_input_sum(&j->in);
    shard->stored = folder_output_sum(&j->out);
    return TOOL_OK;
}

/* shard: what is to be filled in of a file in a folder; or NULL. */
static int compress_file(const char *path, const char *out, const struct tool_options *options, struct results *sum,
                         struct folder_file *shard)
{
    struct job j = {.out.fd = -1};
    TRY(input_open(&j.in, path));
    const int status = compress_source(&j, path, out, options, sum, shard);
    pici_writer_close(j.writer);
    output_discard(&j.out);
    source_close(&j.source);
    input_close(&j.in);
    free(j.piece);
    return status;
}

/* Makes a file of a compressed folder. */
static int compress_part(struct folder_make *m, struct folder_file *f)
{
    struct tool_options options = m->each;
    const bool shard = f->kind == FOLDER_SHARD;
    char *const from = folder_path(m->from->path, f->name, "");
    char *const to = folder_path(m->to, f->name, shard ? FOLDER_EXTENSION : "");
    options.type = shard ? folder_part_type(folder_find(m->from, f->name)) : TYPE_UNSET;
    options.dtype = options.type == TYPE_RAW ? PICI_U8 : 0;
    options.force = false;
    int status = !from || !to ? TOOL_BAD
                 : shard      ? compress_file(from, to, &options, NULL, f)
                              : folder_copy(from, to, &f->original);
    if (!shard)
        f->stored = f->original;
    free(from);
    free(to);
    return status;
}

static int compress_opened(struct folder *from, const struct tool_options *options, const char *out, void *sum)
{
    struct folder_make m = {.from = from, .o = options, .with_list = true, .one = compress_part};
    TRY(folder_expect_checkpoint(from));
    TRY(folder_check(from, NULL, NULL, NULL));
    TRY(folder_list_of(&m.list, from, true));
    const int status = folder_make(&m, out, sum);
    folder_list_free(&m.list);
    return status;
}

static int compress_folder(const char *path, const struct tool_options *options, void *sum)
{
    struct folder from;
    TRY(folder_open(&from, path));
    int status = options->type || options->dtype ? tool_usage(path, "is a folder: --type and --dtype are for files")
                 : options->zeros != PICI_ZEROS_EXACT
                     ? tool_usage(path, "is a folder, which is restored exactly: --zeros is for files")
                     : folder_refuse_options(path, options);
    if (!status) {
        char *const out = options->out ? strdup(options->out) : folder_output_name(path, FOLDER_EXTENSION);
        status = out ? compress_opened(&from, options, out, sum) : TOOL_BAD;
        free(out);
    }
    folder_close(&from);
    return status;
}

static int compress(const char *path, const struct tool_options *options, void *sum)
{
    if (folder_is(path))
        return compress_folder(path, options, sum);
    char *const out = options->out ? strdup(options->out) : tool_output_name(path, ".pici", options->out_dir);
    const int status = out ? compress_file(path, out, options, sum, NULL) : tool_nomem(path, "the output's name");
    free(out);
    return status;
}

int verb_compress(const struct tool_options *options)
{
    struct results sum = {0};
    TRY(results_check(options, "compress"));
    if (options->nargs > 1 && options->out)
        return tool_usage(NULL, "compress: standard output is one .pici file, and there are %d inputs", options->nargs);
    const int status = results_each(options, compress, &sum);
    results_print(&sum, options, false);
    return status;
}
