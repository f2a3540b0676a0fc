/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "folder/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "term.h"

enum { QUOTE = 96, ENTRIES_MOST = 1 << 20 };

bool folder_is(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Prints "FOLDER/NAME: what". Returns TOOL_BAD. */
static int bad_file(const struct folder *f, const char *name, const char *what)
{
    char *const path = folder_path(f->path, name, "");
    if (path)
        tool_bad(path, "%s", what);
    free(path);
    return TOOL_BAD;
}

static int add(struct folder *f, const char *name, uint64_t bytes)
{
    if (f->entries == ENTRIES_MOST)
        return tool_bad(f->path, "has more than %d files", ENTRIES_MOST);
    if (f->entries == f->room) {
        const size_t room = 2 * f->room + 64;
        struct folder_entry *const bigger = realloc(f->entry, room * sizeof *bigger);
        if (!bigger)
            return tool_nomem(f->path, "the list of files");
        f->entry = bigger;
        f->room = room;
    }
    char *const copy = strdup(name);
    if (!copy)
        return tool_nomem(f->path, "the list of files");
    f->entry[f->entries].name = copy;
    f->entry[f->entries++].bytes = bytes;
    return TOOL_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct folder_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

const struct folder_entry *folder_find(const struct folder *f, const char *name)
{
    const struct folder_entry wanted = {.name = name};
    return f->entries ? bsearch(&wanted, f->entry, f->entries, sizeof *f->entry, by_name) : NULL;
}

/* Takes an entry of the directory d, unless it is one to be left out. */
static int take(struct folder *f, DIR *d, const char *name)
{
    struct stat st;
    const char *why;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return TOOL_OK;
    if (fstatat(dirfd(d), name, &st, 0) != 0)
        return bad_file(f, name, strerror(errno));
    if (S_ISDIR(st.st_mode) && name[0] == '.') /* as .git and .cache are */
        return TOOL_OK;
    if (S_ISDIR(st.st_mode))
        return bad_file(f, name, "is a folder: of a folder, only files are taken");
    if (!S_ISREG(st.st_mode))
        return bad_file(f, name, "is not a regular file");
    if (!shards_name_is_plain(name, strlen(name), &why))
        return bad_file(f, name, why);
    return add(f, name, (uint64_t)st.st_size);
}

static int take_all(struct folder *f, DIR *d)
{
    struct stat st;
    if (fstat(dirfd(d), &st) != 0)
        return tool_bad(f->path, "%s", strerror(errno));
    f->mode = st.st_mode;
    for (struct dirent *e; errno = 0, e = readdir(d);)
        TRY(take(f, d, e->d_name));
    return errno ? tool_bad(f->path, "%s", strerror(errno)) : TOOL_OK;
}

static int scan(struct folder *f)
{
    DIR *const d = opendir(f->path);
    if (!d)
        return tool_bad(f->path, "%s", strerror(errno));
    const int status = take_all(f, d);
    closedir(d);
    if (f->entries)
        qsort(f->entry, f->entries, sizeof *f->entry, by_name);
    return status;
}

/* Reads a file of the folder that has at most so many bytes. The caller frees *text. */
static int slurp(const struct folder *f, const char *name, uint64_t most, uint8_t **text, size_t *len)
{
    char *const path = folder_path(f->path, name, "");
    const int status = path ? input_slurp_path(path, most, text, len) : TOOL_BAD;
    free(path);
    return status;
}

static int parse_failed(const struct folder *f, const char *name, const struct parse_error *err)
{
    char *const path = folder_path(f->path, name, "");
    if (path)
        tool_bad_at(path, err->offset, "%s", err->what);
    free(path);
    return TOOL_BAD;
}

/* Reads the list of a folder that picitool made, and looks for its files. */
static int read_list(struct folder *f)
{
    struct parse_error err;
    uint8_t *text;
    size_t len, stored = 0;
    char name[SHARDS_NAME_MOST + sizeof FOLDER_EXTENSION];
    TRY(slurp(f, FOLDER_LIST_NAME, FOLDER_LIST_MOST, &text, &len));
    f->made = folder_list_parse(&f->list, (const char *)text, len, &err);
    free(text);
    if (!f->made)
        return parse_failed(f, FOLDER_LIST_NAME, &err);
    for (size_t i = 0; i < f->list.files; i++) {
        const struct folder_file *const file = &f->list.file[i];
        if (file->kind == FOLDER_SAME)
            continue;
        snprintf(name, sizeof name, "%s%s", file->name, file->kind == FOLDER_SHARD ? FOLDER_EXTENSION : "");
        const struct folder_entry *const e = folder_find(f, name);
        if (!e)
            return bad_file(f, name, "is missing: " FOLDER_LIST_NAME " names it");
        if (e->bytes != file->stored.bytes)
            return bad_file(f, name, "has not the length that " FOLDER_LIST_NAME " says: it is incomplete or another");
        stored++;
    }
    for (size_t i = 0; stored + 1 < f->entries && i < f->entries; i++) {
        const char *const is = f->entry[i].name;
        const size_t n = strlen(is), tail = strlen(FOLDER_EXTENSION);
        const struct folder_file *file = folder_list_find(&f->list, is);
        if (strcmp(is, FOLDER_LIST_NAME) == 0 || (file && file->kind == FOLDER_COPY))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n > tail ? n - tail : 0), is);
        file = folder_list_find(&f->list, name);
        if (!tool_has_extension(is, FOLDER_EXTENSION) || !file || file->kind != FOLDER_SHARD)
            return bad_file(f, is, "is not in " FOLDER_LIST_NAME ": move it elsewhere");
    }
    return TOOL_OK;
}

static int read_index(struct folder *f)
{
    struct parse_error err;
    uint8_t *text;
    size_t len;
    for (size_t i = 0; i < f->entries; i++)
        if (tool_has_extension(f->entry[i].name, SHARDS_INDEX)) {
            if (f->index_name)
                return tool_bad(f->path, "has several indexes of shards, %s and %s: move one elsewhere", f->index_name,
                                f->entry[i].name);
            f->index_name = f->entry[i].name;
        }
    if (!f->index_name)
        return tool_bad(f->path, "is a directory without an index of shards, as model" SHARDS_INDEX);
    TRY(slurp(f, f->index_name, SHARDS_TEXT_MOST, &text, &len));
    const bool good = shards_parse(&f->index, text, len, &err);
    free(text);
    if (!good)
        return parse_failed(f, f->index_name, &err);
    for (size_t i = 0; i < f->index.shards; i++)
        if (!folder_find(f, f->index.shard[i]))
            return bad_file(f, f->index.shard[i], "is missing: the index names it");
    return TOOL_OK;
}

int folder_open(struct folder *f, const char *path)
{
    *f = (struct folder){.path = path};
    int status = scan(f);
    if (!status)
        status = folder_find(f, FOLDER_LIST_NAME) ? read_list(f) : read_index(f);
    if (status)
        folder_close(f);
    return status;
}

static int by_bytes(const void *name, const void *shard)
{
    return strcmp(name, *(const char *const *)shard);
}

size_t folder_shard(const struct folder *f, const char *name)
{
    const struct shards *const x = &f->index;
    const char **const found = x->shards ? bsearch(name, x->shard, x->shards, sizeof *x->shard, by_bytes) : NULL;
    return found ? (size_t)(found - x->shard) : x->shards;
}

/* Compares the tensors of shard i with the index. seen [index.tensors] */
static int check_shard(const struct folder *f, const struct tensors *t, size_t i, bool *seen)
{
    char name[QUOTE];
    for (size_t k = 0; k < t->n; k++) {
        const struct shards_tensor *const at = shards_find(&f->index, t->tensor[k].name, t->tensor[k].name_len);
        pici_parse_printable(name, sizeof name, t->tensor[k].name, t->tensor[k].name_len);
        if (!at)
            return tool_bad(t->in.name, "tensor '%s' is not in %s", name, f->index_name);
        if (at->shard != i)
            return tool_bad(t->in.name, "tensor '%s' is in this file, and %s says %s", name, f->index_name,
                            f->index.shard[at->shard]);
        seen[at - f->index.tensor] = true;
    }
    return TOOL_OK;
}

/* The shards that folder_check opens. */
struct checked {
    struct tensors *shard; /* NULL: they are closed again */
    folder_keep *keep;
    void *ctx;
    bool *seen; /* [index.tensors] */
    uint64_t bytes;
};

static int check_opened(const struct folder *f, struct checked *c, size_t i, struct tensors *t, const char *path)
{
    TRY(check_shard(f, t, i, c->seen));
    c->bytes += t->in.bytes - t->source.head_len;
    t->in.name = f->index.shard[i]; /* path is freed */
    return c->shard ? c->keep(c->ctx, &t->in, path) : TOOL_OK;
}

static int check_one(const struct folder *f, struct checked *c, size_t i)
{
    const struct tool_options o = {.type = TYPE_SAFETENSORS};
    struct tensors one = {.in.fd = -1}, *const t = c->shard ? &c->shard[i] : &one;
    char *const path = folder_path(f->path, f->index.shard[i], "");
    int status = path ? tensors_open(t, path, &o) : TOOL_BAD;
    if (!status)
        status = check_opened(f, c, i, t, path);
    tensors_close(&one);
    free(path);
    return status;
}

static int check_all(const struct folder *f, struct checked *c)
{
    for (size_t i = 0; i < f->index.shards; i++)
        TRY(check_one(f, c, i));
    for (size_t i = 0; i < f->index.tensors; i++)
        if (!c->seen[i]) {
            char name[QUOTE], what[QUOTE + 64];
            const struct shards_tensor *const t = &f->index.tensor[i];
            snprintf(what, sizeof what, "has no tensor '%s', which the index says is in it",
                     pici_parse_printable(name, sizeof name, t->name, t->name_len));
            return bad_file(f, f->index.shard[t->shard], what);
        }
    if (f->index.has_total && f->index.total != c->bytes)
        tool_warn(f->path, "%s says that the tensors have %" PRIu64 " bytes, and they have %" PRIu64, f->index_name,
                  f->index.total, c->bytes);
    return TOOL_OK;
}

int folder_check(const struct folder *f, struct tensors *shard, folder_keep *keep, void *ctx)
{
    struct checked c = {shard, keep, ctx, calloc(f->index.tensors, sizeof *c.seen), 0};
    const int status = c.seen ? check_all(f, &c) : tool_nomem(f->path, "the list of tensors");
    free(c.seen);
    return status;
}

uint64_t folder_original_bytes(const struct folder *f)
{
    uint64_t bytes = 0;
    for (size_t i = 0; !f->made && i < f->entries; i++)
        bytes += f->entry[i].bytes;
    for (size_t i = 0; f->made && i < f->list.files; i++)
        bytes =
            bytes > UINT64_MAX - f->list.file[i].original.bytes ? UINT64_MAX : bytes + f->list.file[i].original.bytes;
    return bytes;
}

int folder_expect_checkpoint(const struct folder *f)
{
    return !f->made ? TOOL_OK
                    : tool_usage(f->path, f->list.delta ? "is a delta: picitool apply applies it"
                                                        : "is compressed: picitool decompress restores it");
}

int folder_expect_made(const struct folder *f, bool delta)
{
    if (!f->made)
        return tool_usage(f->path, "is a checkpoint as it is, not %s of one",
                          delta ? "the delta" : "a compressed folder");
    return f->list.delta == delta ? TOOL_OK
           : delta                ? tool_usage(f->path, "is compressed, not a delta")
                                  : tool_bad(f->path, "a delta, which needs its base: use picitool apply");
}

struct folder_sum folder_input_sum(const struct input *in)
{
    return (struct folder_sum){in->at, pici_xxh64_digest(&in->hash)};
}

struct folder_sum folder_output_sum(const struct output *out)
{
    return (struct folder_sum){out->at, pici_xxh64_digest(&out->hash)};
}

/* A file that is read, and copied if there is a `to`. */
struct copy {
    struct input in;
    struct output out;
    struct progress progress;
    uint8_t *piece;
};

static int copy(struct copy *c, const char *path, const char *to, struct folder_sum *sum)
{
    enum { PIECE = 1 << 18 };
    c->piece = malloc(PIECE);
    if (!c->piece)
        return tool_nomem(path, "a piece of the file");
    TRY(input_open(&c->in, path));
    input_hash(&c->in);
    progress_start(&c->progress, path, c->in.bytes);
    if (to)
        TRY(output_open(&c->out, to, &c->in, false));
    for (size_t got = PIECE; got == PIECE;) {
        TRY(input_read(&c->in, c->piece, PIECE, &got));
        if (to)
            TRY(output_write(&c->out, c->piece, got));
        progress_at(&c->progress, c->in.at, c->in.at);
    }
    *sum = folder_input_sum(&c->in);
    progress_end(&c->progress);
    return to ? output_commit(&c->out) : TOOL_OK;
}

int folder_copy(const char *path, const char *to, struct folder_sum *sum)
{
    struct copy c = {.in.fd = -1, .out.fd = -1};
    const int status = copy(&c, path, to, sum);
    progress_end(&c.progress);
    output_discard(&c.out);
    input_close(&c.in);
    free(c.piece);
    return status;
}

int folder_copy_as(const char *path, const char *to, const struct folder_sum *want)
{
    struct folder_sum is;
    TRY(folder_copy(path, to, &is));
    return folder_match(path, &is, want);
}

int folder_match(const char *path, const struct folder_sum *is, const struct folder_sum *want)
{
    if (is->bytes == want->bytes && is->hash == want->hash)
        return TOOL_OK;
    return tool_bad(path,
                    "has %" PRIu64 " bytes of XXH64 %016" PRIx64 ", and must have %" PRIu64 " of %016" PRIx64
                    " (" FOLDER_LIST_NAME ")",
                    is->bytes, is->hash, want->bytes, want->hash);
}

void folder_close(struct folder *f)
{
    for (size_t i = 0; i < f->entries; i++)
        free((void *)f->entry[i].name);
    free(f->entry);
    folder_list_free(&f->list);
    shards_free(&f->index);
    *f = (struct folder){0};
}
