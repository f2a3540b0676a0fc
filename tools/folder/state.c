/* SPDX-License-Identifier: BSD-3-Clause */
#include "folder/state.h"

#include <stdlib.h>

static int keep(void *context, struct input *input, const char *path)
{
    struct checkpoint *const c = context;
    TRY(output_perms(&c->perms, input->name, input->fd));
    return input_rest(input, path, c->rest ? SIZE_MAX : c->opened++);
}

static int open_all(struct checkpoint *c, const char *path)
{
    TRY(folder_open(&c->folder, path));
    TRY(folder_expect_checkpoint(&c->folder));
    const size_t n = c->folder.index.shards;
    c->shard = calloc(n + 1, sizeof *c->shard);
    c->start = calloc(n + 1, sizeof *c->start);
    if (!c->shard || !c->start)
        return tool_nomem(path, "the list of shards");
    TRY(folder_check(&c->folder, c->shard, keep, c));
    for (size_t i = 0; i < n; i++) {
        c->start[i] = c->bytes;
        c->bytes += c->shard[i].input.bytes;
    }
    return TOOL_OK;
}

int checkpoint_open(struct checkpoint *c, const char *path, bool rest)
{
    *c = (struct checkpoint){.rest = rest};
    const int status = open_all(c, path);
    if (status)
        checkpoint_close(c);
    return status;
}

/* A pici_read_at_fn of all shards as one file. No tensor is in two. */
static int read_at(void *context, void *p, size_t n, uint64_t offset)
{
    const struct checkpoint *const c = context;
    size_t i = 0;
    for (size_t above = c->folder.index.shards; above - i > 1;) {
        const size_t middle = i + (above - i) / 2;
        if (c->start[middle] <= offset)
            i = middle;
        else
            above = middle;
    }
    struct input input = c->shard[i].input; /* whose position changes */
    return input_read_at(&input, p, n, offset - c->start[i]);
}

int checkpoint_state(struct checkpoint *c, struct pici_state **s)
{
    return pici_state_new(s, c->folder.path, PICI_STATE_SAFETENSORS, NULL, 0, read_at, c)
               ? tool_nomem(c->folder.path, "the list of tensors")
               : TOOL_OK;
}

int checkpoint_add(const struct checkpoint *c, struct pici_state *s, const char *name, size_t size, const char *file)
{
    const struct shards_tensor *const at = shards_find_in(&c->folder.index, name, size, folder_shard(&c->folder, file));
    struct pici_attr attrs[SOURCE_ATTRS];
    if (!at)
        return TOOL_OK;
    const struct tensor_at *const t = tensors_find(&c->shard[at->shard], name, size);
    const struct source_tensor source = tensors_source(t);
    const struct pici_tensor out = source_describe(&source, attrs);
    const enum pici_status failed = pici_state_add(s, &out, NULL, c->start[at->shard] + t->offset);
    return failed == PICI_E_NOMEM ? tool_nomem(c->folder.path, "the list of tensors")
           : failed               ? tool_bad(c->folder.path, "%s", pici_strerror(failed))
                                  : TOOL_OK;
}

int checkpoint_output(const struct checkpoint *c, struct output *output, const char *to, int fd)
{
    struct pici_perms perms = {0};
    TRY(output_perms(&perms, to, fd));
    pici_perms_narrow(&perms, &c->perms);
    const int status = output_open_as(output, to, NULL, &perms, false);
    pici_perms_free(&perms);
    return status;
}

void checkpoint_close(struct checkpoint *c)
{
    for (size_t i = 0; c->shard && i < c->folder.index.shards; i++)
        tensors_close(&c->shard[i]);
    free(c->shard);
    free(c->start);
    pici_perms_free(&c->perms);
    folder_close(&c->folder);
    *c = (struct checkpoint){.bytes = 0};
}
