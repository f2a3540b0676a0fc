/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "output/restore.h"
#include "output/result.h"
#include "parse/unzip.h"
#include "term.h"
#include "tool.h"

static int copy_tensors(struct restore *to, struct progress *p)
{
    for (;;) {
        struct pici_tensor_info tensor;
        bool more;
        TRY(reading_next(to->reading, &tensor, &more));
        if (!more)
            return restore_end(to);
        result_tensor(tensor.name, tensor.dtype, tensor.shape, tensor.rank);
        TRY(restore_tensor(to, &tensor, p));
    }
}

static int copy(struct reading *reading, struct output *output)
{
    struct restore to;
    struct progress p;
    TRY(restore_open(&to, reading, output));
    progress_start(&p, reading->input->name, reading->input->bytes);
    const int status = copy_tensors(&to, &p);
    progress_end(&p);
    restore_close(&to);
    return status;
}

/* The first tensor that was deflated, by the index; false if there is none. */
static bool is_deflated(struct pici_reader *reader, struct pici_tensor_info *tensor)
{
    uint64_t tensors = 0;
    struct pici_attr attr = {0};
    enum pici_status status = pici_reader_count(reader, &tensors);
    for (uint64_t i = 0; !status && !attr.key && i < tensors; i++) {
        *tensor = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
        status = pici_reader_attr(reader, i, ATTR_DEFLATE, &attr);
        if (!status && attr.key)
            status = pici_reader_tensor(reader, i, tensor);
    }
    return !status && attr.key;
}

/* Finds the length of the output by the index; 0: not known. Refuses what this build cannot deflate. A file that is
 * read forward is opened once more for that. Errors of the file are ignored here, since reading it will find them. */
static int look_ahead(const struct reading *reading, uint64_t *bytes)
{
    struct input *input = reading->input;
    const struct input was = *input;
    struct pici_reader *again = NULL;
    struct pici_tensor_info tensor;
    int status = TOOL_OK;
    *bytes = 0;
    if (!reading->at_random && input->regular &&
        pici_reader_open_at(&again, input_read_at, input, input->bytes, NULL) != PICI_OK) {
        pici_reader_close(again);
        again = NULL;
    }
    struct pici_reader *reader = reading->at_random ? reading->reader : again;
    if (reader && limit_claimed(reader, UINT64_MAX, bytes) != PICI_OK)
        *bytes = 0;
    if (reader && !reading->keep_going && !unzip_inflates() && is_deflated(reader, &tensor))
        status = restore_no_zlib(input->name, tensor.name);
    pici_reader_close(again);
    *input = was;
    return status;
}

static int refuse_delta(const struct reading *reading)
{
    bool is;
    TRY(reading_is_delta(reading, &is));
    return is ? tool_bad(reading->input->name, "a delta, which needs its base: use picitool apply") : TOOL_OK;
}

/* Makes the name of the output: as given, or IN without .pici, or - for -. The caller frees it. */
static int output_name(const char *in, const struct tool_options *options, char **out)
{
    const bool stream = strcmp(in, "-") == 0;
    if (!options->out && !stream && !tool_has_extension(in, ".pici"))
        return tool_usage(in, "does not end in .pici: use -o OUT");
    *out = options->out ? strdup(options->out) : tool_output_name(in, "", options->out_dir);
    if (!*out)
        return tool_nomem(in, "the output's name");
    if (!options->out && !stream)
        (*out)[strlen(*out) - strlen(".pici")] = 0;
    return TOOL_OK;
}

struct job {
    struct input in;
    struct reading r;
    struct output out;
};

static int restore_file(struct job *j, const char *path, const char *out_path, const struct tool_options *options,
                        struct results *sum, const struct folder_file *shard)
{
    /* Read the header first, so that nothing is created for an input that is not a .pici file. */
    const struct limit limit = input_limit(&j->in, options);
    uint64_t claimed;
    TRY(options->keep_going ? reading_salvage(&j->r, &j->in, options->threads, limit_now(&limit))
                            : reading_open(&j->r, &j->in, options->threads, false));
    TRY(refuse_delta(&j->r));
    TRY(output_open(&j->out, out_path, &j->in, options->force));
    output_times(&j->out, &j->in);
    j->out.limit = limit;
    if (shard)
        output_hash(&j->out);
    const double start = term_now(); /* a question may have been asked before */
    if (!options->no_sparse)
        output_sparse(&j->out);
    TRY(look_ahead(&j->r, &claimed));
    TRY(output_claim(&j->out, j->in.name, claimed));
    TRY(copy(&j->r, &j->out));
    const double seconds = term_now() - start;
    if (shard) {
        const struct folder_sum is = folder_output_sum(&j->out);
        TRY(folder_match(path, &is, &shard->original));
    }
    TRY(output_commit(&j->out));
    if (j->r.lost)
        return TOOL_BAD;
    return shard ? TOOL_OK : result_done(sum, options, path, &j->in, &j->out, true, seconds);
}

/* shard: what the output must be, of a file in a folder; or NULL. */
static int decompress_file(const char *path, const char *out_path, const struct tool_options *options,
                           struct results *sum, const struct folder_file *shard)
{
    struct job j = {.out.fd = -1};
    TRY(input_open(&j.in, path));
    const int status = restore_file(&j, path, out_path, options, sum, shard);
    output_discard(&j.out);
    reading_close(&j.r);
    input_close(&j.in);
    return status;
}

/* Restores a file of a compressed folder. */
static int decompress_part(struct folder_make *m, struct folder_file *f)
{
    struct tool_options options = m->each;
    const bool shard = f->kind == FOLDER_SHARD;
    char *const from = folder_path(m->from->path, f->name, shard ? FOLDER_EXTENSION : "");
    char *const to = folder_path(m->to, f->name, "");
    options.force = false;
    const int status = !from || !to ? TOOL_BAD
                       : shard      ? decompress_file(from, to, &options, NULL, f)
                                    : folder_copy_as(from, to, &f->original);
    free(from);
    free(to);
    return status;
}

static int decompress_opened(const struct folder *from, const struct tool_options *options, char **out, void *sum)
{
    struct folder_make m = {.from = from, .o = options, .list = from->list, .restored = true, .one = decompress_part};
    TRY(folder_expect_made(from, false));
    char *const name = folder_output_name(from->path, ""); /* without slashes at its end */
    const int status = name ? output_name(name, options, out) : TOOL_BAD;
    free(name);
    TRY(status);
    return folder_make(&m, *out, sum);
}

static int decompress_folder(const char *path, const struct tool_options *options, void *sum)
{
    struct folder from;
    char *out = NULL;
    if (options->keep_going)
        return tool_usage(path, "is a folder: --keep-going is for the .pici files in it");
    TRY(folder_refuse_options(path, options));
    TRY(folder_open(&from, path));
    const int status = decompress_opened(&from, options, &out, sum);
    free(out);
    folder_close(&from);
    return status;
}

static int decompress(const char *path, const struct tool_options *options, void *sum)
{
    char *out;
    if (folder_is(path))
        return decompress_folder(path, options, sum);
    TRY(output_name(path, options, &out));
    const int status = decompress_file(path, out, options, sum, NULL);
    free(out);
    return status;
}

int verb_decompress(const struct tool_options *options)
{
    struct results sum = {0};
    TRY(results_check(options, "decompress"));
    const int status = results_each(options, decompress, &sum);
    results_print(&sum, options, true);
    return status;
}
