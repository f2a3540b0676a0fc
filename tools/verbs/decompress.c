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

static int copy_tensors(struct restore *restore, struct progress *progress)
{
    for (;;) {
        struct pici_tensor_info tensor;
        bool has_more;
        TRY(reading_next(restore->reading, &tensor, &has_more));
        if (!has_more)
            return restore_end(restore);
        TRY(reading_follow(restore->reading, &tensor));
        result_tensor(tensor.name, tensor.dtype, tensor.shape, tensor.rank);
        TRY(restore_tensor(restore, &tensor, progress));
    }
}

static int copy(struct reading *reading, struct output *output)
{
    struct restore restore;
    struct progress progress;
    TRY(restore_open(&restore, reading, output));
    progress_start(&progress, reading->input->name, reading->input->bytes);
    const int status = copy_tensors(&restore, &progress);
    progress_end(&progress);
    restore_close(&restore);
    return status;
}

/* Finds the first tensor that the original deflates, by the index; false if there is none. */
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

/* Finds the length of the output by the index; 0: unknown. Rejects a file that needs zlib, in a build without it. Opens
 * a file that is read forward a second time for this. Ignores errors, since reading the file will find them. */
static int look_ahead(const struct reading *reading, uint64_t *bytes)
{
    struct input *input = reading->input;
    const struct input saved = *input;
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
    *input = saved;
    return status;
}

static int refuse_delta(const struct reading *reading)
{
    bool is;
    TRY(reading_is_delta(reading, &is));
    return is ? tool_bad(reading->input->name, "is a delta: restore it with picitool apply and its base") : TOOL_OK;
}

/* Makes the name of the output: the given one, IN without .pici, or "-" for "-". The caller frees it. */
static int output_name(const char *input_path, const struct tool_options *options, char **output_path)
{
    const bool stream = strcmp(input_path, "-") == 0;
    if (!options->out && !stream && !tool_has_extension(input_path, ".pici"))
        return tool_usage(input_path, "does not end in .pici: use -o OUT");
    *output_path = options->out ? strdup(options->out) : tool_output_name(input_path, "", options->out_dir);
    if (!*output_path)
        return tool_nomem(input_path, "the output's name");
    if (!options->out && !stream)
        (*output_path)[strlen(*output_path) - strlen(".pici")] = 0;
    return TOOL_OK;
}

struct job {
    const struct folder *from; /* NULL: the file is not one of a folder */
    struct input input;
    struct reading reading;
    struct output output;
};

static int restore_file(struct job *job, const char *path, const char *out_path, const struct tool_options *options,
                        struct results *results, const struct folder_file *shard)
{
    /* Read the header first: an input that is not a .pici file creates no output. */
    const struct limit limit =
        job->from ? limit_of(options, folder_stored_bytes(job->from), 0) : input_limit(&job->input, options);
    uint64_t claimed;
    TRY(options->keep_going ? reading_salvage(&job->reading, &job->input, options->threads, limit_now(&limit))
                            : reading_open(&job->reading, &job->input, options->threads, false));
    if (job->from)
        reading_in_folder(&job->reading, folder_shards(job->from), shard->name);
    TRY(refuse_delta(&job->reading));
    TRY(output_open(&job->output, out_path, &job->input, options->force));
    output_times(&job->output, &job->input);
    job->output.limit = limit;
    if (shard)
        output_hash(&job->output);
    const double start = term_now(); /* after prompts, which may take long */
    if (!options->no_sparse)
        output_sparse(&job->output);
    TRY(look_ahead(&job->reading, &claimed));
    TRY(output_claim(&job->output, job->input.name, claimed));
    TRY(copy(&job->reading, &job->output));
    const double seconds = term_now() - start;
    if (shard) {
        const struct folder_sum restored = folder_output_sum(&job->output);
        TRY(folder_match(path, &restored, &shard->original));
    }
    TRY(output_commit(&job->output));
    if (job->reading.lost)
        return TOOL_BAD;
    return shard ? TOOL_OK : result_done(results, options, path, &job->input, &job->output, true, seconds);
}

/* shard: the expected output, for a file in the folder `from`; or both are NULL. */
static int decompress_file(const char *path, const char *out_path, const struct tool_options *options,
                           struct results *results, const struct folder *from, const struct folder_file *shard)
{
    struct job job = {.output.fd = -1, .from = from};
    TRY(input_open(&job.input, path));
    const int status = restore_file(&job, path, out_path, options, results, shard);
    output_discard(&job.output);
    reading_close(&job.reading);
    input_close(&job.input);
    return status;
}

/* Restores a file of a compressed folder. */
static int decompress_part(struct folder_make *making, struct folder_file *file)
{
    struct tool_options options = making->each;
    const bool shard = file->kind == FOLDER_SHARD;
    char *const from_path = folder_path(making->from->path, file->name, shard ? FOLDER_EXTENSION : "");
    char *const to_path = folder_path(making->to, file->name, "");
    options.force = false;
    int status = TOOL_BAD;
    if (from_path && to_path)
        status = shard ? decompress_file(from_path, to_path, &options, NULL, making->from, file)
                       : folder_copy_as(from_path, to_path, &file->original);
    free(from_path);
    free(to_path);
    return status;
}

static int decompress_opened(const struct folder *from, const struct tool_options *options, char **out_path, void *sum)
{
    struct folder_make making = {
        .from = from, .options = options, .list = from->list, .restored = true, .make_file = decompress_part};
    TRY(folder_expect_made(from, false));
    char *const name = folder_output_name(from->path, ""); /* without trailing slashes */
    const int status = name ? output_name(name, options, out_path) : TOOL_BAD;
    free(name);
    TRY(status);
    return folder_make(&making, *out_path, sum);
}

static int decompress_folder(const char *path, const struct tool_options *options, void *sum)
{
    struct folder from;
    char *out_path = NULL;
    if (options->keep_going)
        return tool_usage(path, "is a folder: --keep-going is for the .pici files in it");
    TRY(folder_refuse_options(path, options));
    TRY(folder_open(&from, path));
    const int status = decompress_opened(&from, options, &out_path, sum);
    free(out_path);
    folder_close(&from);
    return status;
}

static int decompress(const char *path, const struct tool_options *options, void *sum)
{
    char *out_path;
    if (folder_is(path))
        return decompress_folder(path, options, sum);
    TRY(output_name(path, options, &out_path));
    const int status = decompress_file(path, out_path, options, sum, NULL, NULL);
    free(out_path);
    return status;
}

int verb_decompress(const struct tool_options *options)
{
    struct results results = {0};
    TRY(results_check(options, "decompress"));
    const int status = results_each(options, decompress, &results);
    results_print(&results, options, true);
    return status;
}
