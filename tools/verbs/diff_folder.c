/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff for sharded checkpoints: makes a folder with a delta for each new shard. Finds its tensors in the base
 * by name, in any shard. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "folder/state.h"
#include "verbs/folders.h"

struct job {
    struct checkpoint base, next;
    delta_maker *make;
};

/* Adds the tensors of the base that no new shard has. state NULL: only count them. */
static int add_removed(struct job *job, struct pici_state *state, size_t *count)
{
    const struct shards_tensor *last = NULL;
    *count = 0;
    for (size_t k = 0; k < job->base.folder.index.tensors; k++) {
        const struct shards_tensor *const tensor = &job->base.folder.index.tensor[k];
        const bool again =
            last && last->name_size == tensor->name_size && memcmp(last->name, tensor->name, tensor->name_size) == 0;
        last = tensor;
        if (again || shards_find(&job->next.folder.index, tensor->name, tensor->name_size))
            continue;
        ++*count;
        if (state)
            TRY(checkpoint_add(&job->base, state, tensor->name, tensor->name_size, ""));
    }
    return TOOL_OK;
}

/* Makes the base state for shard `number`: the base's shard with that name, if its head is the same; else the tensors
 * with its names. For the first shard, adds the tensors that no new shard has, so that its delta lists them as
 * removed. */
static int base_of(struct job *job, size_t number, struct pici_state **state)
{
    const struct tensors *const shard = &job->next.shard[number];
    const char *const file = job->next.folder.index.shard[number];
    size_t removed = 0;
    if (number == 0)
        TRY(add_removed(job, NULL, &removed));
    if (!removed && checkpoint_same_head(&job->base, shard, file))
        return checkpoint_shard(&job->base, folder_shard(&job->base.folder, file), state);
    TRY(checkpoint_state(&job->base, state));
    for (size_t k = 0; k < shard->count; k++)
        TRY(checkpoint_add(&job->base, *state, shard->tensor[k].name, shard->tensor[k].name_size, file));
    return number == 0 ? add_removed(job, *state, &removed) : TOOL_OK;
}

/* The delta of a shard, while it is made. */
struct shard {
    struct input *input; /* the new one */
    struct pici_state *from, *next;
    struct output output;
};

static int make_shard(struct shard *shard, struct folder_make *making, struct folder_file *file, const char *to_path)
{
    struct job *const job = making->context;
    const size_t number = folder_shard(&job->next.folder, file->name);
    struct input *const input = shard->input = &job->next.shard[number].input;
    char reason[PICI_WHY_BYTES];
    TRY(input_wake(input));
    TRY(base_of(job, number, &shard->from));
    TRY(tensors_state(&job->next.shard[number], &shard->next));
    if (pici_state_hash(shard->next, &file->original.bytes, &file->original.hash, reason))
        return tool_bad(NULL, "%s", reason);
    TRY(checkpoint_output(&job->base, &shard->output, to_path, input));
    shard->output.limit = limit_of(&making->each, file->original.bytes + job->base.bytes, 0);
    output_hash(&shard->output);
    TRY(job->make(&shard->output, shard->from, shard->next, file->name, file->original.bytes, &making->each));
    TRY(input_expect_unchanged(input,
                               input->reopen_path ? input->reopen_path : input->name)); /* its hash was taken earlier */
    TRY(output_commit(&shard->output));
    file->stored = folder_output_sum(&shard->output);
    return TOOL_OK;
}

static int diff_shard(struct folder_make *making, struct folder_file *file, const char *to_path)
{
    struct shard shard = {.output.fd = -1};
    const int status = make_shard(&shard, making, file, to_path);
    output_discard(&shard.output);
    pici_state_free(shard.from);
    pici_state_free(shard.next);
    if (shard.input)
        input_close(shard.input);
    return status;
}

/* Whether the base has the same file, at `old`. Sets the sum of the new file, unless their lengths differ. */
static int is_same(const char *old, const char *new, struct folder_sum *sum, bool *same)
{
    struct folder_sum old_sum;
    TRY(folder_copy(old, NULL, &old_sum));
    TRY(folder_copy(new, NULL, sum));
    *same = old_sum.bytes == sum->bytes && old_sum.hash == sum->hash;
    return TOOL_OK;
}

/* Handles a file that is no shard: copies it, unless the base has the same file. */
static int diff_other(struct folder_make *making, struct folder_file *file, const char *to_path)
{
    struct job *const job = making->context;
    const struct folder_entry *const before = folder_find(&job->base.folder, file->name),
                                     *now = folder_find(&job->next.folder, file->name);
    char *const old = before && before->bytes == now->bytes ? folder_path(job->base.folder.path, file->name, "") : NULL;
    char *const new = folder_path(job->next.folder.path, file->name, "");
    bool same = false;
    int status = new ? TOOL_OK : TOOL_BAD;
    if (new &&old)
        status = is_same(old, new, &file->original, &same);
    if (same)
        file->kind = FOLDER_SAME;
    else if (!status)
        status = folder_copy(new, to_path, &file->original);
    file->stored = file->original;
    free(old);
    free(new);
    return status;
}

static int diff_part(struct folder_make *making, struct folder_file *file)
{
    const bool shard = file->kind == FOLDER_SHARD;
    char *const to_path = folder_path(making->to, file->name, shard ? FOLDER_EXTENSION : "");
    int status = TOOL_BAD;
    if (to_path)
        status = shard ? diff_shard(making, file, to_path) : diff_other(making, file, to_path);
    free(to_path);
    return status;
}

static int open_and_make(struct job *job, struct folder_make *making)
{
    TRY(checkpoint_open(&job->base, making->options->args[0], false));
    TRY(checkpoint_open(&job->next, making->options->args[1], true));
    TRY(folder_list_of(&making->list, &job->next.folder, false));
    making->list.delta = true;
    return folder_make(making, making->options->out, NULL);
}

int diff_folders(const struct tool_options *options, delta_maker *make)
{
    struct job job = {.make = make};
    struct folder_make making = {
        .from = &job.next.folder, .options = options, .with_list = true, .make_file = diff_part, .context = &job};
    for (int i = 0; i < 2; i++)
        if (!folder_is(options->args[i]))
            return tool_usage(options->args[i], "is a file, and %s is a folder", options->args[!i]);
    if (options->type || options->dtype)
        return tool_usage(options->args[1], "is a folder: --type and --dtype are for files");
    TRY(folder_refuse_options(options->args[1], options));
    if (folder_same(options->args[0], options->out))
        return tool_usage(options->out, "is the base");
    TRY(folder_refuse_inside(options->args[0], options->out));
    const int status = open_and_make(&job, &making);
    folder_list_free(&making.list);
    checkpoint_close(&job.next);
    checkpoint_close(&job.base);
    return status;
}
