/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff of checkpoints in shards: a folder with a delta for each shard of the new one. Its tensors are found in
 * the base by name, whichever shard of that they are in. */
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

/* The state of the base that shard i is compared with: the tensors of its names. With the first shard, also those that
 * no shard has any more, so that its delta lists them as removed. */
static int base_of(struct job *j, size_t i, struct pici_state **s)
{
    const struct tensors *const shard = &j->next.shard[i];
    int status = checkpoint_state(&j->base, s);
    for (size_t k = 0; status == TOOL_OK && k < shard->n; k++)
        status = checkpoint_add(&j->base, *s, shard->tensor[k].name, shard->tensor[k].name_len);
    for (size_t k = 0; status == TOOL_OK && i == 0 && k < j->base.f.index.tensors; k++) {
        const struct shards_tensor *const t = &j->base.f.index.tensor[k];
        if (!shards_find(&j->next.f.index, t->name, t->name_len))
            status = checkpoint_add(&j->base, *s, t->name, t->name_len);
    }
    return status;
}

static int diff_shard(struct folder_make *m, struct folder_file *f, const char *to)
{
    struct job *const j = m->ctx;
    const size_t i = folder_shard(&j->next.f, f->name), shards = j->base.f.index.shards;
    struct tensors *const shard = &j->next.shard[i];
    struct pici_state *from = NULL, *next = NULL;
    struct output out = {.fd = -1};
    char why[PICI_WHY_BYTES];
    int *const fd = malloc((shards + 1) * sizeof *fd);
    if (!fd)
        return tool_nomem(to, "the list of shards");
    memcpy(fd, j->base.fd, shards * sizeof *fd);
    fd[shards] = shard->in.fd;
    int status = base_of(j, i, &from);
    if (status == TOOL_OK)
        status = tensors_state(shard, &next);
    if (status == TOOL_OK && pici_state_hash(next, &f->original.bytes, &f->original.hash, why))
        status = tool_bad(NULL, "%s", why);
    if (status == TOOL_OK)
        status = output_open_from(&out, to, NULL, fd, shards + 1, false);
    if (status == TOOL_OK) {
        out.limit = limit_of(&m->each, f->original.bytes + j->base.bytes, 0);
        output_hash(&out);
        status = j->make(&out, from, next, f->name, f->original.bytes, &m->each);
    }
    if (status == TOOL_OK)
        status = output_commit(&out);
    f->stored = folder_output_sum(&out);
    output_discard(&out);
    pici_state_free(from);
    pici_state_free(next);
    free(fd);
    return status;
}

/* A file that is no shard is stored unless the base has the same. */
static int diff_other(struct folder_make *m, struct folder_file *f, const char *to)
{
    struct job *const j = m->ctx;
    const struct folder_entry *const had = folder_find(&j->base.f, f->name), *is = folder_find(&j->next.f, f->name);
    char *const old = had && had->bytes == is->bytes ? folder_path(j->base.f.path, f->name, "") : NULL;
    char *const new = folder_path(j->next.f.path, f->name, "");
    struct folder_sum was;
    int status = new ? TOOL_OK : TOOL_BAD;
    if (status == TOOL_OK && old) {
        status = folder_copy(old, NULL, &was);
        if (status == TOOL_OK)
            status = folder_copy(new, NULL, &f->original);
        if (status == TOOL_OK && was.bytes == f->original.bytes && was.hash == f->original.hash)
            f->kind = FOLDER_SAME;
    }
    if (status == TOOL_OK && f->kind != FOLDER_SAME)
        status = folder_copy(new, to, &f->original);
    f->stored = f->original;
    free(old);
    free(new);
    return status;
}

static int diff_part(struct folder_make *m, struct folder_file *f)
{
    const bool shard = f->kind == FOLDER_SHARD;
    char *const to = folder_path(m->to, f->name, shard ? FOLDER_EXTENSION : "");
    const int status = !to ? TOOL_BAD : shard ? diff_shard(m, f, to) : diff_other(m, f, to);
    free(to);
    return status;
}

int diff_folders(const struct tool_options *o, delta_maker *make)
{
    struct job j = {.make = make};
    struct folder_make m = {.from = &j.next.f, .o = o, .with_list = true, .one = diff_part, .ctx = &j};
    for (int i = 0; i < 2; i++)
        if (!folder_is(o->args[i]))
            return tool_usage(o->args[i], "is a file, and %s is a folder", o->args[!i]);
    if (o->type || o->dtype)
        return tool_usage(o->args[1], "is a folder: --type and --dtype are for files");
    int status = folder_refuse_options(o->args[1], o);
    if (status == TOOL_OK && folder_same(o->args[0], o->out))
        status = tool_usage(o->out, "is the base");
    if (status == TOOL_OK)
        status = checkpoint_open(&j.base, o->args[0]);
    if (status == TOOL_OK)
        status = checkpoint_open(&j.next, o->args[1]);
    if (status == TOOL_OK)
        status = folder_list_of(&m.list, &j.next.f);
    m.list.delta = true;
    if (status == TOOL_OK)
        status = folder_make(&m, o->out, NULL);
    folder_list_free(&m.list);
    checkpoint_close(&j.next);
    checkpoint_close(&j.base);
    return status;
}
