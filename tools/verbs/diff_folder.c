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
    const char *const file = j->next.f.index.shard[i];
    const struct shards_tensor *last = NULL;
    TRY(checkpoint_state(&j->base, s));
    for (size_t k = 0; k < shard->count; k++)
        TRY(checkpoint_add(&j->base, *s, shard->tensor[k].name, shard->tensor[k].name_size, file));
    for (size_t k = 0; i == 0 && k < j->base.f.index.tensors; k++) {
        const struct shards_tensor *const t = &j->base.f.index.tensor[k];
        const bool again = last && last->name_len == t->name_len && memcmp(last->name, t->name, t->name_len) == 0;
        last = t;
        if (!again && !shards_find(&j->next.f.index, t->name, t->name_len))
            TRY(checkpoint_add(&j->base, *s, t->name, t->name_len, ""));
    }
    return TOOL_OK;
}

/* The delta of a shard that is being made. */
struct shard {
    struct input *in; /* the new one */
    struct pici_state *from, *next;
    struct output out;
};

static int make_shard(struct shard *k, struct folder_make *m, struct folder_file *f, const char *to)
{
    struct job *const j = m->ctx;
    const size_t i = folder_shard(&j->next.f, f->name);
    struct input *const input = k->in = &j->next.shard[i].input;
    char why[PICI_WHY_BYTES];
    TRY(input_wake(input));
    TRY(base_of(j, i, &k->from));
    TRY(tensors_state(&j->next.shard[i], &k->next));
    if (pici_state_hash(k->next, &f->original.bytes, &f->original.hash, why))
        return tool_bad(NULL, "%s", why);
    TRY(checkpoint_output(&j->base, &k->out, to, input->fd));
    k->out.limit = limit_of(&m->each, f->original.bytes + j->base.bytes, 0);
    output_hash(&k->out);
    TRY(j->make(&k->out, k->from, k->next, f->name, f->original.bytes, &m->each));
    TRY(input_expect_unchanged(input,
                               input->reopen_path ? input->reopen_path : input->name)); /* it was hashed before */
    TRY(output_commit(&k->out));
    f->stored = folder_output_sum(&k->out);
    return TOOL_OK;
}

static int diff_shard(struct folder_make *m, struct folder_file *f, const char *to)
{
    struct shard k = {.out.fd = -1};
    const int status = make_shard(&k, m, f, to);
    output_discard(&k.out);
    pici_state_free(k.from);
    pici_state_free(k.next);
    if (k.in)
        input_close(k.in);
    return status;
}

/* Whether the base has the same file, at `old`. Sets the sum of the new one, unless the base has none of its length. */
static int is_same(const char *old, const char *new, struct folder_sum *sum, bool *same)
{
    struct folder_sum was;
    TRY(folder_copy(old, NULL, &was));
    TRY(folder_copy(new, NULL, sum));
    *same = was.bytes == sum->bytes && was.hash == sum->hash;
    return TOOL_OK;
}

/* A file that is no shard is stored unless the base has the same. */
static int diff_other(struct folder_make *m, struct folder_file *f, const char *to)
{
    struct job *const j = m->ctx;
    const struct folder_entry *const had = folder_find(&j->base.f, f->name), *is = folder_find(&j->next.f, f->name);
    char *const old = had && had->bytes == is->bytes ? folder_path(j->base.f.path, f->name, "") : NULL;
    char *const new = folder_path(j->next.f.path, f->name, "");
    bool same = false;
    int status = !new ? TOOL_BAD : old ? is_same(old, new, &f->original, &same) : TOOL_OK;
    if (same)
        f->kind = FOLDER_SAME;
    else if (!status)
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

static int open_and_make(struct job *j, struct folder_make *m)
{
    TRY(checkpoint_open(&j->base, m->o->args[0], false));
    TRY(checkpoint_open(&j->next, m->o->args[1], true));
    TRY(folder_list_of(&m->list, &j->next.f, false));
    m->list.delta = true;
    return folder_make(m, m->o->out, NULL);
}

int diff_folders(const struct tool_options *options, delta_maker *make)
{
    struct job j = {.make = make};
    struct folder_make m = {.from = &j.next.f, .o = options, .with_list = true, .one = diff_part, .ctx = &j};
    for (int i = 0; i < 2; i++)
        if (!folder_is(options->args[i]))
            return tool_usage(options->args[i], "is a file, and %s is a folder", options->args[!i]);
    if (options->type || options->dtype)
        return tool_usage(options->args[1], "is a folder: --type and --dtype are for files");
    TRY(folder_refuse_options(options->args[1], options));
    if (folder_same(options->args[0], options->out))
        return tool_usage(options->out, "is the base");
    TRY(folder_refuse_inside(options->args[0], options->out));
    const int status = open_and_make(&j, &m);
    folder_list_free(&m.list);
    checkpoint_close(&j.next);
    checkpoint_close(&j.base);
    return status;
}
