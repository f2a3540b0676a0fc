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
static int base_of(struct job *j, struct reading *r, struct pici_state **s)
{
    uint64_t n = 0;
    enum pici_status failed = pici_reader_count(r->reader, &n);
    int status = failed ? reading_failed(r, failed) : checkpoint_state(&j->base, s);
    for (uint64_t i = 0; status == TOOL_OK && i < n; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        failed = pici_reader_tensor(r->reader, i, &t);
        status = failed ? reading_failed(r, failed) : checkpoint_add(&j->base, *s, t.name, t.name_len);
    }
    return status;
}

/* Writes the result of the delta that r reads to the file `to`. */
static int make_shard(struct folder_make *m, struct folder_file *f, struct reading *r, const char *to)
{
    struct job *const j = m->ctx;
    struct pici_state *base = NULL;
    struct pici_deltas *deltas = NULL;
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    struct output out = {.fd = -1};
    const size_t shards = j->base.f.index.shards;
    char why[PICI_WHY_BYTES] = "";
    bool is;
    int *const fd = malloc((shards + 1) * sizeof *fd);
    int status = fd ? reading_is_delta(r, &is) : tool_nomem(to, "the list of shards");
    if (status == TOOL_OK && !is)
        status = tool_bad(r->in->name, "not a delta");
    if (status == TOOL_OK && pici_deltas_new(&deltas))
        status = tool_nomem(r->in->name, "the delta");
    if (status == TOOL_OK) {
        enum pici_status s = pici_deltas_add(deltas, r->reader, r->in->name, why);
        if (!s)
            s = pici_deltas_get_info(deltas, &info);
        if (s)
            status = tool_bad(why[0] ? NULL : r->in->name, "%s", why[0] ? why : pici_strerror(s));
    }
    if (status == TOOL_OK && (info.type != PICI_STATE_SAFETENSORS || info.bytes != f->original.bytes))
        status = tool_bad(r->in->name, "is not the delta that " FOLDER_LIST_NAME " describes");
    if (status == TOOL_OK)
        status = base_of(j, r, &base);
    if (status == TOOL_OK) {
        memcpy(fd, j->base.fd, shards * sizeof *fd);
        fd[shards] = r->in->fd;
        status = output_open_from(&out, to, NULL, fd, shards + 1, false);
    }
    if (status == TOOL_OK) {
        if (!m->each.no_sparse)
            output_sparse(&out);
        out.limit = limit_of(&m->each, r->in->bytes, 2 * j->base.bytes);
        output_hash(&out);
        status = output_claim(&out, r->in->name, info.bytes);
    }
    if (status == TOOL_OK)
        status = j->apply(&out, base, deltas, r->in->name, info.bytes, &m->each);
    const struct folder_sum sum = folder_output_sum(&out);
    if (status == TOOL_OK)
        status = folder_match(r->in->name, &sum, &f->original);
    if (status == TOOL_OK)
        status = output_commit(&out);
    output_discard(&out);
    pici_deltas_free(deltas);
    pici_state_free(base);
    free(fd);
    return status;
}

static int apply_shard(struct folder_make *m, struct folder_file *f, const char *from, const char *to)
{
    struct input in;
    struct reading r = {0};
    int status = input_open(&in, from);
    if (status)
        return status;
    status = in.regular ? reading_open(&r, &in, m->each.threads, true)
                        : tool_bad(from, "empty, or not a file that can be read at random");
    if (status == TOOL_OK)
        status = make_shard(m, f, &r, to);
    reading_close(&r);
    input_close(&in);
    return status;
}

static int apply_part(struct folder_make *m, struct folder_file *f)
{
    const struct job *const j = m->ctx;
    const bool shard = f->kind == FOLDER_SHARD;
    char *const from =
        folder_path(f->kind == FOLDER_SAME ? j->base.f.path : j->delta.path, f->name, shard ? FOLDER_EXTENSION : "");
    char *const to = folder_path(m->to, f->name, "");
    struct folder_sum is;
    int status = !from || !to ? TOOL_BAD : shard ? apply_shard(m, f, from, to) : folder_copy(from, to, &is);
    if (status == TOOL_OK && !shard)
        status = folder_match(from, &is, &f->original);
    free(from);
    free(to);
    return status;
}

static int by_length(const void *a, const void *b)
{
    const struct folder_file *x = *(const struct folder_file *const *)a, *y = *(const struct folder_file *const *)b;
    return (x->original.bytes > y->original.bytes) - (x->original.bytes < y->original.bytes);
}

/* Whether the base is the result already, as after an earlier run in place. Looks at short files first. */
static int is_result(const struct job *j, bool *is)
{
    const struct folder_list *const l = &j->delta.list;
    const struct folder_file **const order = calloc(l->files + 1, sizeof *order);
    int status = order ? TOOL_OK : tool_nomem(j->delta.path, "the list of files");
    *is = order && l->files == j->base.f.entries;
    for (size_t i = 0; *is && i < l->files; i++) {
        const struct folder_entry *const e = folder_find(&j->base.f, l->file[i].name);
        *is = e && e->bytes == l->file[i].original.bytes;
        order[i] = &l->file[i];
    }
    if (*is)
        qsort(order, l->files, sizeof *order, by_length);
    for (size_t i = 0; status == TOOL_OK && *is && i < l->files; i++) {
        struct folder_sum sum;
        char *const path = folder_path(j->base.f.path, order[i]->name, "");
        status = path ? folder_copy(path, NULL, &sum) : TOOL_BAD;
        *is = status == TOOL_OK && sum.hash == order[i]->original.hash;
        free(path);
    }
    free(order);
    return status;
}

/* Names the files of the base that the exchange removes. Its shards and index are not meant: the delta is of them. */
static void warn_of_removed(const struct job *j)
{
    const struct folder *const f = &j->base.f;
    for (size_t i = 0; i < f->entries; i++) {
        const char *const name = f->entry[i].name;
        if (name == f->index_name || folder_shard(f, name) < f->index.shards || folder_list_find(&j->delta.list, name))
            continue;
        char *const path = folder_path(f->path, name, "");
        if (path)
            tool_warn(path, "is not in the result, and is removed");
        free(path);
    }
}

static int apply_opened(struct job *j, const struct tool_options *o)
{
    struct folder_make m = {.from = &j->delta,
                            .mode = j->base.f.mode,
                            .o = o,
                            .list = j->delta.list,
                            .restored = true,
                            .in_place = o->in_place,
                            .one = apply_part,
                            .ctx = j};
    const char *const out = o->in_place ? o->args[0] : o->out;
    bool done = false;
    int status = folder_expect_made(&j->delta, true);
    if (status == TOOL_OK && !o->in_place && folder_same(o->args[0], out))
        status = tool_usage(out, "is the base: use --in-place");
    for (size_t i = 0; status == TOOL_OK && i < m.list.files; i++) {
        const struct folder_file *const f = &m.list.file[i];
        if (f->kind == FOLDER_SAME && !folder_find(&j->base.f, f->name))
            status = tool_bad(j->base.f.path, "not the base of %s: has no %s", j->delta.path, f->name);
    }
    if (status == TOOL_OK && o->in_place)
        status = is_result(j, &done);
    if (status == TOOL_OK && o->in_place && !done)
        warn_of_removed(j);
    return status || done ? status : folder_make(&m, out, NULL);
}

int apply_folders(const struct tool_options *o, delta_applier *apply)
{
    struct job j = {.apply = apply};
    if (o->nargs != 2)
        return tool_usage(NULL, "apply: of folders, one delta at a time");
    for (int i = 0; i < 2; i++)
        if (!folder_is(o->args[i]))
            return tool_usage(o->args[i], "is a file, and %s is a folder", o->args[!i]);
    int status = folder_refuse_options(o->args[1], o);
    if (status == TOOL_OK)
        status = checkpoint_open(&j.base, o->args[0]);
    if (status == TOOL_OK)
        status = folder_open(&j.delta, o->args[1]);
    if (status == TOOL_OK)
        status = apply_opened(&j, o);
    folder_close(&j.delta);
    checkpoint_close(&j.base);
    return status;
}
