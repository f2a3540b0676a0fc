/* SPDX-License-Identifier: BSD-3-Clause */
#include "folder/state.h"

#include <stdlib.h>
#include <string.h>

static int keep(void *context, struct input *input, const char *path)
{
    struct checkpoint *const checkpoint = context;
    TRY(output_perms(&checkpoint->perms, input->name, input->fd));
    return input_rest(input, path, checkpoint->rest ? SIZE_MAX : checkpoint->opened++);
}

static int open_all(struct checkpoint *checkpoint, const char *path)
{
    TRY(folder_open(&checkpoint->folder, path));
    TRY(folder_expect_checkpoint(&checkpoint->folder));
    const size_t count = checkpoint->folder.index.shards;
    checkpoint->shard = calloc(count + 1, sizeof *checkpoint->shard);
    checkpoint->start = calloc(count + 1, sizeof *checkpoint->start);
    if (!checkpoint->shard || !checkpoint->start)
        return tool_nomem(path, "the list of shards");
    TRY(folder_check(&checkpoint->folder, checkpoint->shard, keep, checkpoint));
    for (size_t i = 0; i < count; i++) {
        checkpoint->start[i] = checkpoint->bytes;
        checkpoint->bytes += checkpoint->shard[i].input.bytes;
    }
    return TOOL_OK;
}

int checkpoint_open(struct checkpoint *checkpoint, const char *path, bool rest)
{
    *checkpoint = (struct checkpoint){.rest = rest};
    const int status = open_all(checkpoint, path);
    if (status)
        checkpoint_close(checkpoint);
    return status;
}

/* A pici_read_at_fn for the concatenation of all shards. No tensor crosses a shard's end. */
static int read_at(void *context, void *buffer, size_t size, uint64_t offset)
{
    const struct checkpoint *const checkpoint = context;
    size_t shard = 0;
    for (size_t above = checkpoint->folder.index.shards; above - shard > 1;) {
        const size_t middle = shard + (above - shard) / 2;
        if (checkpoint->start[middle] <= offset)
            shard = middle;
        else
            above = middle;
    }
    struct input input = checkpoint->shard[shard].input; /* a copy, since its position changes */
    return input_read_at(&input, buffer, size, offset - checkpoint->start[shard]);
}

int checkpoint_state(struct checkpoint *checkpoint, struct pici_state **state)
{
    return pici_state_new(state, checkpoint->folder.path, PICI_STATE_SAFETENSORS, NULL, 0, read_at, checkpoint)
               ? tool_nomem(checkpoint->folder.path, "the list of tensors")
               : TOOL_OK;
}

int checkpoint_add(const struct checkpoint *checkpoint, struct pici_state *state, const char *name, size_t size,
                   const char *file)
{
    const struct shards_tensor *const entry =
        shards_find_in(&checkpoint->folder.index, name, size, folder_shard(&checkpoint->folder, file));
    struct pici_attr attrs[SOURCE_ATTRS];
    if (!entry)
        return TOOL_OK;
    const struct tensor_at *const tensor = tensors_find(&checkpoint->shard[entry->shard], name, size);
    const struct source_tensor source = tensors_source(tensor);
    const struct pici_tensor described = source_describe(&source, attrs);
    const enum pici_status failed =
        pici_state_add(state, &described, NULL, checkpoint->start[entry->shard] + tensor->offset);
    if (!failed)
        return TOOL_OK;
    return failed == PICI_E_NOMEM ? tool_nomem(checkpoint->folder.path, "the list of tensors")
                                  : tool_bad(checkpoint->folder.path, "%s", pici_strerror(failed));
}

bool checkpoint_same_head(const struct checkpoint *checkpoint, const struct tensors *other, const char *file)
{
    const size_t number = folder_shard(&checkpoint->folder, file);
    if (number >= checkpoint->folder.index.shards)
        return false;
    const struct source *const mine = &checkpoint->shard[number].source, *const theirs = &other->source;
    return mine->head_size == theirs->head_size && memcmp(mine->head, theirs->head, mine->head_size) == 0;
}

int checkpoint_shard(struct checkpoint *checkpoint, size_t number, struct pici_state **state)
{
    const struct tensors *const shard = &checkpoint->shard[number];
    struct pici_attr attrs[SOURCE_ATTRS];
    enum pici_status failed = pici_state_new(state, shard->input.name, PICI_STATE_SAFETENSORS, shard->source.head,
                                             shard->source.head_size, read_at, checkpoint);
    for (size_t i = 0; !failed && i < shard->count; i++) {
        const struct source_tensor source = tensors_source(&shard->tensor[i]);
        const struct pici_tensor described = source_describe(&source, attrs);
        failed = pici_state_add(*state, &described, NULL, checkpoint->start[number] + shard->tensor[i].offset);
    }
    if (!failed)
        return TOOL_OK;
    return failed == PICI_E_NOMEM ? tool_nomem(shard->input.name, "the list of tensors")
                                  : tool_bad(shard->input.name, "%s", pici_strerror(failed));
}

int checkpoint_output(const struct checkpoint *checkpoint, struct output *output, const char *to_path,
                      const struct input *input)
{
    struct pici_perms perms = {0};
    TRY(output_perms(&perms, to_path, input->fd));
    pici_perms_narrow(&perms, &checkpoint->perms);
    const int status = output_open_as(output, to_path, NULL, &perms, false);
    pici_perms_free(&perms);
    if (!status)
        output_times(output, input);
    return status;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    for (size_t i = 0; checkpoint->shard && i < checkpoint->folder.index.shards; i++)
        tensors_close(&checkpoint->shard[i]);
    free(checkpoint->shard);
    free(checkpoint->start);
    pici_perms_free(&checkpoint->perms);
    folder_close(&checkpoint->folder);
    *checkpoint = (struct checkpoint){.bytes = 0};
}
