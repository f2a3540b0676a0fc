/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool apply for a folder that diff made: makes each shard of the result from its delta and the tensors of the
 * base, and copies the other files. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "folder/state.h"
#include "input/reading.h"
#include "verbs/folders.h"

struct job {
    struct checkpoint base;
    struct folder delta;
    delta_applier *apply;
};

/* Makes the base state for a delta. A delta without a head (version 3) needs the shard with its name; other deltas need
 * the tensors with their names. The base has no tensor for the delta's table of hashes; a spare one would do no
 * harm. */
static int base_of(struct job *job, struct reading *reading, const char *file, bool own_head, struct pici_state **state)
{
    const size_t number = folder_shard(&job->base.folder, file);
    uint64_t count = 0;
    if (!own_head && number >= job->base.folder.index.shards)
        return tool_bad(job->base.folder.path, "not the base of %s: has no %s", job->delta.path, file);
    if (!own_head)
        return checkpoint_shard(&job->base, number, state);
    enum pici_status failed = pici_reader_count(reading->reader, &count);
    if (failed)
        return reading_failed(reading, failed);
    TRY(checkpoint_state(&job->base, state));
    for (uint64_t i = 0; i < count; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        failed = pici_reader_tensor(reading->reader, i, &tensor);
        if (failed)
            return reading_failed(reading, failed);
        TRY(checkpoint_add(&job->base, *state, tensor.name, tensor.name_len, file));
    }
    return TOOL_OK;
}

/* A shard of the result, while it is made. */
struct shard {
    struct input input; /* its delta */
    struct reading reading;
    struct pici_state *base;
    struct pici_deltas *deltas;
    struct output output;
};

static int make_shard(struct shard *shard, struct folder_make *making, const struct folder_file *file,
                      const char *to_path)
{
    struct job *const job = making->context;
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    const char *const name = shard->input.name;
    char reason[PICI_WHY_BYTES] = "";
    bool is_delta;
    if (!shard->input.regular)
        return tool_bad(name, "is empty or not seekable: use a regular file");
    TRY(reading_open(&shard->reading, &shard->input, making->each.threads, true));
    TRY(reading_is_delta(&shard->reading, &is_delta));
    if (!is_delta)
        return tool_bad(name, "not a delta");
    if (pici_deltas_new(&shard->deltas))
        return tool_nomem(name, "the delta");
    enum pici_status status = pici_deltas_add(shard->deltas, shard->reading.reader, name, reason);
    if (!status)
        status = pici_deltas_get_info(shard->deltas, &info);
    if (status)
        return tool_failed(name, status, reason);
    if (info.type != PICI_STATE_SAFETENSORS || info.bytes != file->original.bytes)
        return tool_bad(name, "is not the delta that " FOLDER_LIST_NAME " describes");
    TRY(base_of(job, &shard->reading, file->name, info.head != NULL, &shard->base));
    TRY(checkpoint_output(&job->base, &shard->output, to_path, &shard->input));
    if (!making->each.no_sparse)
        output_sparse(&shard->output);
    shard->output.limit = limit_of(&making->each, shard->input.bytes, 2 * job->base.bytes);
    output_hash(&shard->output);
    TRY(output_claim(&shard->output, name, info.bytes));
    TRY(job->apply(&shard->output, shard->base, shard->deltas, name, info.bytes, &making->each));
    const struct folder_sum sum = folder_output_sum(&shard->output);
    TRY(folder_match(name, &sum, &file->original));
    return output_commit(&shard->output);
}

/* Applies the delta `from_path`, and writes the result to `to_path`. */
static int apply_shard(struct folder_make *making, const struct folder_file *file, const char *from_path,
                       const char *to_path)
{
    struct shard shard = {.output.fd = -1};
    TRY(input_open(&shard.input, from_path));
    const int status = make_shard(&shard, making, file, to_path);
    output_discard(&shard.output);
    pici_deltas_free(shard.deltas);
    pici_state_free(shard.base);
    reading_close(&shard.reading);
    input_close(&shard.input);
    return status;
}

static int apply_part(struct folder_make *making, struct folder_file *file)
{
    const struct job *const job = making->context;
    const bool shard = file->kind == FOLDER_SHARD;
    const char *const folder = file->kind == FOLDER_SAME ? job->base.folder.path : job->delta.path;
    char *const from_path = folder_path(folder, file->name, shard ? FOLDER_EXTENSION : "");
    char *const to_path = folder_path(making->to, file->name, "");
    int status = TOOL_BAD;
    if (from_path && to_path)
        status =
            shard ? apply_shard(making, file, from_path, to_path) : folder_copy_as(from_path, to_path, &file->original);
    free(from_path);
    free(to_path);
    return status;
}

static int by_length(const void *left, const void *right)
{
    const struct folder_file *first = *(const struct folder_file *const *)left,
                             *second = *(const struct folder_file *const *)right;
    return (first->original.bytes > second->original.bytes) - (first->original.bytes < second->original.bytes);
}

/* Whether the files of the base, whose lengths match, have the hashes of the result. Checks short files first. order:
 * room for all files. */
static int has_hashes(const struct job *job, const struct folder_file **order, bool *has)
{
    const struct folder_list *const list = &job->delta.list;
    for (size_t i = 0; i < list->files; i++)
        order[i] = &list->file[i];
    qsort(order, list->files, sizeof *order, by_length);
    *has = true;
    for (size_t i = 0; *has && i < list->files; i++) {
        struct folder_sum sum;
        char *const path = folder_path(job->base.folder.path, order[i]->name, "");
        const int status = path ? folder_copy(path, NULL, &sum) : TOOL_BAD;
        free(path);
        TRY(status);
        *has = sum.hash == order[i]->original.hash;
    }
    return TOOL_OK;
}

/* Whether the base already is the result, for example after an earlier run in place. */
static int is_result(const struct job *job, bool *same)
{
    const struct folder_list *const list = &job->delta.list;
    *same = list->files == job->base.folder.files.count;
    for (size_t i = 0; *same && i < list->files; i++) {
        const struct folder_entry *const entry = folder_find(&job->base.folder, list->file[i].name);
        *same = entry && entry->bytes == list->file[i].original.bytes;
    }
    if (!*same)
        return TOOL_OK;
    const struct folder_file **const order = calloc(list->files + 1, sizeof *order);
    if (!order)
        return tool_nomem(job->delta.path, "the list of files");
    const int status = has_hashes(job, order, same);
    free(order);
    return status;
}

/* Warns about files of the base that the exchange removes, except shards and indexes, which the delta replaces. */
static void warn_of_removed(const struct job *job)
{
    const struct folder *const folder = &job->base.folder;
    for (size_t i = 0; i < folder->files.count; i++) {
        const char *const name = folder->files.entry[i].name;
        if (tool_has_extension(name, SHARDS_INDEX) || folder_shard(folder, name) < folder->index.shards ||
            folder_list_find(&job->delta.list, name))
            continue;
        char *const path = folder_path(folder->path, name, "");
        if (path)
            tool_warn(path, "is not in the result, and is removed");
        free(path);
    }
}

static int apply_opened(struct job *job, const struct tool_options *options)
{
    struct folder_make making = {.from = &job->delta,
                                 .mode = job->base.folder.mode,
                                 .options = options,
                                 .list = job->delta.list,
                                 .restored = true,
                                 .in_place = options->in_place,
                                 .make_file = apply_part,
                                 .context = job};
    const char *const out_path = options->in_place ? options->args[0] : options->out;
    bool done = false;
    TRY(folder_expect_made(&job->delta, true));
    if (!options->in_place && folder_same(options->args[0], out_path))
        return tool_usage(out_path, "is the base: use --in-place");
    for (size_t i = 0; i < making.list.files; i++) {
        const struct folder_file *const file = &making.list.file[i];
        if (file->kind == FOLDER_SAME && !folder_find(&job->base.folder, file->name))
            return tool_bad(job->base.folder.path, "not the base of %s: has no %s", job->delta.path, file->name);
    }
    if (options->in_place)
        TRY(is_result(job, &done));
    if (done)
        return TOOL_OK;
    if (options->in_place)
        warn_of_removed(job);
    return folder_make(&making, out_path, NULL);
}

/* Opens both folders, and applies the delta to the base. */
static int open_and_apply(struct job *job, const struct tool_options *options)
{
    TRY(checkpoint_open(&job->base, options->args[0], false));
    TRY(folder_open(&job->delta, options->args[1]));
    return apply_opened(job, options);
}

int apply_folders(const struct tool_options *options, delta_applier *apply)
{
    struct job job = {.apply = apply};
    if (options->nargs != 2)
        return tool_usage(NULL, "apply: folders take one delta at a time: apply the deltas one by one");
    for (int i = 0; i < 2; i++)
        if (!folder_is(options->args[i]))
            return tool_usage(options->args[i], "is a file, and %s is a folder", options->args[!i]);
    TRY(folder_refuse_options(options->args[1], options));
    TRY(folder_refuse_inside(options->args[0], options->in_place
                                                   ? options->args[1]
                                                   : options->out)); /* in place, replacing the base would remove the
                                                                      * delta */
    const int status = open_and_apply(&job, options);
    folder_close(&job.delta);
    checkpoint_close(&job.base);
    return status;
}
