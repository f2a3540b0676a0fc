/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool apply of a folder that diff made: the shards of the result, each by its delta from the tensors of the base,
 * and the other files. */
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

/* Makes the state of the tensors of the base that a delta needs. The table of hashes is no tensor of the base, or one
 * too many. */
static int base_of(struct job *j, struct reading *reading, const char *file, struct pici_state **s)
{
    uint64_t n = 0;
    enum pici_status failed = pici_reader_count(reading->reader, &n);
    if (failed)
        return reading_failed(reading, failed);
    TRY(checkpoint_state(&j->base, s));
    for (uint64_t i = 0; i < n; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        failed = pici_reader_tensor(reading->reader, i, &tensor);
        if (failed)
            return reading_failed(reading, failed);
        TRY(checkpoint_add(&j->base, *s, tensor.name, tensor.name_len, file));
    }
    return TOOL_OK;
}

/* A shard of the result that is being made. */
struct shard {
    struct input in; /* its delta */
    struct reading r;
    struct pici_state *base;
    struct pici_deltas *deltas;
    struct output out;
};

static int make_shard(struct shard *k, struct folder_make *m, const struct folder_file *f, const char *to)
{
    struct job *const j = m->ctx;
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    const char *const name = k->in.name;
    char why[PICI_WHY_BYTES] = "";
    bool is;
    if (!k->in.regular)
        return tool_bad(name, "empty, or not a file that can be read at random");
    TRY(reading_open(&k->r, &k->in, m->each.threads, true));
    TRY(reading_is_delta(&k->r, &is));
    if (!is)
        return tool_bad(name, "not a delta");
    if (pici_deltas_new(&k->deltas))
        return tool_nomem(name, "the delta");
    enum pici_status status = pici_deltas_add(k->deltas, k->r.reader, name, why);
    if (!status)
        status = pici_deltas_get_info(k->deltas, &info);
    if (status)
        return tool_bad(why[0] ? NULL : name, "%s", why[0] ? why : pici_strerror(status));
    if (info.type != PICI_STATE_SAFETENSORS || info.bytes != f->original.bytes)
        return tool_bad(name, "is not the delta that " FOLDER_LIST_NAME " describes");
    TRY(base_of(j, &k->r, f->name, &k->base));
    TRY(checkpoint_output(&j->base, &k->out, to, k->in.fd));
    if (!m->each.no_sparse)
        output_sparse(&k->out);
    k->out.limit = limit_of(&m->each, k->in.bytes, 2 * j->base.bytes);
    output_hash(&k->out);
    TRY(output_claim(&k->out, name, info.bytes));
    TRY(j->apply(&k->out, k->base, k->deltas, name, info.bytes, &m->each));
    const struct folder_sum sum = folder_output_sum(&k->out);
    TRY(folder_match(name, &sum, &f->original));
    return output_commit(&k->out);
}

/* Writes the result of the delta `from` to the file `to`. */
static int apply_shard(struct folder_make *m, const struct folder_file *f, const char *from, const char *to)
{
    struct shard k = {.out.fd = -1};
    TRY(input_open(&k.in, from));
    const int status = make_shard(&k, m, f, to);
    output_discard(&k.out);
    pici_deltas_free(k.deltas);
    pici_state_free(k.base);
    reading_close(&k.r);
    input_close(&k.in);
    return status;
}

static int apply_part(struct folder_make *m, struct folder_file *f)
{
    const struct job *const j = m->ctx;
    const bool shard = f->kind == FOLDER_SHARD;
    char *const from =
        folder_path(f->kind == FOLDER_SAME ? j->base.f.path : j->delta.path, f->name, shard ? FOLDER_EXTENSION : "");
    char *const to = folder_path(m->to, f->name, "");
    const int status = !from || !to ? TOOL_BAD
                       : shard      ? apply_shard(m, f, from, to)
                                    : folder_copy_as(from, to, &f->original);
    free(from);
    free(to);
    return status;
}

static int by_length(const void *left, const void *right)
{
    const struct folder_file *x = *(const struct folder_file *const *)left,
                             *y = *(const struct folder_file *const *)right;
    return (x->original.bytes > y->original.bytes) - (x->original.bytes < y->original.bytes);
}

/* Whether the files of the base, of these lengths, have the hashes of the result. Looks at short files first. order:
 * room for all of them. */
static int has_hashes(const struct job *j, const struct folder_file **order, bool *has)
{
    const struct folder_list *const l = &j->delta.list;
    for (size_t i = 0; i < l->files; i++)
        order[i] = &l->file[i];
    qsort(order, l->files, sizeof *order, by_length);
    *has = true;
    for (size_t i = 0; *has && i < l->files; i++) {
        struct folder_sum sum;
        char *const path = folder_path(j->base.f.path, order[i]->name, "");
        const int status = path ? folder_copy(path, NULL, &sum) : TOOL_BAD;
        free(path);
        TRY(status);
        *has = sum.hash == order[i]->original.hash;
    }
    return TOOL_OK;
}

/* Whether the base is the result already, as after an earlier run in place. */
static int is_result(const struct job *j, bool *is)
{
    const struct folder_list *const l = &j->delta.list;
    *is = l->files == j->base.f.entries;
    for (size_t i = 0; *is && i < l->files; i++) {
        const struct folder_entry *const e = folder_find(&j->base.f, l->file[i].name);
        *is = e && e->bytes == l->file[i].original.bytes;
    }
    if (!*is)
        return TOOL_OK;
    const struct folder_file **const order = calloc(l->files + 1, sizeof *order);
    if (!order)
        return tool_nomem(j->delta.path, "the list of files");
    const int status = has_hashes(j, order, is);
    free(order);
    return status;
}

/* Names the files of the base that the exchange removes. Its shards and indexes are not meant: the delta is of them. */
static void warn_of_removed(const struct job *j)
{
    const struct folder *const folder = &j->base.f;
    for (size_t i = 0; i < folder->entries; i++) {
        const char *const name = folder->entry[i].name;
        if (tool_has_extension(name, SHARDS_INDEX) || folder_shard(folder, name) < folder->index.shards ||
            folder_list_find(&j->delta.list, name))
            continue;
        char *const path = folder_path(folder->path, name, "");
        if (path)
            tool_warn(path, "is not in the result, and is removed");
        free(path);
    }
}

static int apply_opened(struct job *j, const struct tool_options *options)
{
    struct folder_make m = {.from = &j->delta,
                            .mode = j->base.f.mode,
                            .o = options,
                            .list = j->delta.list,
                            .restored = true,
                            .in_place = options->in_place,
                            .one = apply_part,
                            .ctx = j};
    const char *const out = options->in_place ? options->args[0] : options->out;
    bool done = false;
    TRY(folder_expect_made(&j->delta, true));
    if (!options->in_place && folder_same(options->args[0], out))
        return tool_usage(out, "is the base: use --in-place");
    for (size_t i = 0; i < m.list.files; i++) {
        const struct folder_file *const f = &m.list.file[i];
        if (f->kind == FOLDER_SAME && !folder_find(&j->base.f, f->name))
            return tool_bad(j->base.f.path, "not the base of %s: has no %s", j->delta.path, f->name);
    }
    if (options->in_place)
        TRY(is_result(j, &done));
    if (done)
        return TOOL_OK;
    if (options->in_place)
        warn_of_removed(j);
    return folder_make(&m, out, NULL);
}

/* Opens both folders, and applies one to the other. */
static int open_and_apply(struct job *j, const struct tool_options *options)
{
    TRY(checkpoint_open(&j->base, options->args[0], false));
    TRY(folder_open(&j->delta, options->args[1]));
    return apply_opened(j, options);
}

int apply_folders(const struct tool_options *options, delta_applier *apply)
{
    struct job j = {.apply = apply};
    if (options->nargs != 2)
        return tool_usage(NULL, "apply: of folders, one delta at a time");
    for (int i = 0; i < 2; i++)
        if (!folder_is(options->args[i]))
            return tool_usage(options->args[i], "is a file, and %s is a folder", options->args[!i]);
    TRY(folder_refuse_options(options->args[1], options));
    TRY(folder_refuse_inside(options->args[0], options->in_place
                                                   ? options->args[1]
                                                   : options->out)); /* in place, the delta would be removed */
    const int status = open_and_apply(&j, options);
    folder_close(&j.delta);
    checkpoint_close(&j.base);
    return status;
}
