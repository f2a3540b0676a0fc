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

static int scan(struct folder *f)
{
    struct stat st;
    const char *why;
    DIR *const d = opendir(f->path);
    if (!d || fstat(dirfd(d), &st) != 0) {
        const int e = errno;
        if (d)
            closedir(d);
        return tool_bad(f->path, "%s", strerror(e));
    }
    f->mode = st.st_mode;
    int status = TOOL_OK;
    for (struct dirent *e; status == TOOL_OK && (errno = 0, e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, 0) != 0)
            status = bad_file(f, e->d_name, strerror(errno));
        else if (S_ISDIR(st.st_mode) && e->d_name[0] == '.') /* as .git and .cache are */
            continue;
        else if (!S_ISREG(st.st_mode))
            status = bad_file(f, e->d_name,
                              S_ISDIR(st.st_mode) ? "is a folder: of a folder, only files are taken"
                                                  : "is not a regular file");
        else if (!shards_name_is_plain(e->d_name, strlen(e->d_name), &why))
            status = bad_file(f, e->d_name, why);
        else
            status = add(f, e->d_name, (uint64_t)st.st_size);
        errno = 0;
    }
    if (status == TOOL_OK && errno)
        status = tool_bad(f->path, "%s", strerror(errno));
    closedir(d);
    if (f->entries)
        qsort(f->entry, f->entries, sizeof *f->entry, by_name);
    return status;
}

/* Reads a file of the folder that has at most so many bytes. The caller frees *text. */
static int slurp(const struct folder *f, const char *name, uint64_t most, uint8_t **text, size_t *len)
{
    struct input in;
    char *const path = folder_path(f->path, name, "");
    int status = path ? input_open(&in, path) : TOOL_BAD;
    if (status == TOOL_OK) {
        status = in.bytes > most ? tool_bad(path, "longer than the limit of %" PRIu64 " bytes", most)
                                 : input_slurp(&in, text, len);
        input_close(&in);
    }
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
    int status = slurp(f, FOLDER_LIST_NAME, FOLDER_LIST_MOST, &text, &len);
    if (status)
        return status;
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
    int status = slurp(f, f->index_name, SHARDS_TEXT_MOST, &text, &len);
    if (status)
        return status;
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
    if (status == TOOL_OK)
        status = folder_find(f, FOLDER_LIST_NAME) ? read_list(f) : read_index(f);
    if (status)
        folder_close(f);
    return status;
}

size_t folder_shard(const struct folder *f, const char *name)
{
    size_t i = 0;
    while (i < f->index.shards && strcmp(f->index.shard[i], name) != 0)
        i++;
    return i;
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

int folder_check(const struct folder *f, struct tensors *open)
{
    const struct tool_options o = {.type = TYPE_SAFETENSORS};
    bool *const seen = calloc(f->index.tensors, sizeof *seen);
    uint64_t bytes = 0;
    int status = seen ? TOOL_OK : tool_nomem(f->path, "the list of tensors");
    for (size_t i = 0; status == TOOL_OK && i < f->index.shards; i++) {
        struct tensors one = {.n = 0}, *const t = open ? &open[i] : &one;
        char *const path = folder_path(f->path, f->index.shard[i], "");
        status = path ? tensors_open(t, path, &o) : TOOL_BAD;
        if (status == TOOL_OK) {
            status = check_shard(f, t, i, seen);
            bytes += t->in.bytes - t->source.head_len;
            t->in.name = f->index.shard[i]; /* path is freed */
            if (!open)
                tensors_close(t);
        }
        free(path);
    }
    for (size_t i = 0; status == TOOL_OK && i < f->index.tensors; i++)
        if (!seen[i]) {
            char name[QUOTE], what[QUOTE + 64];
            const struct shards_tensor *const t = &f->index.tensor[i];
            snprintf(what, sizeof what, "has no tensor '%s', which the index says is in it",
                     pici_parse_printable(name, sizeof name, t->name, t->name_len));
            status = bad_file(f, f->index.shard[t->shard], what);
        }
    if (status == TOOL_OK && f->index.has_total && f->index.total != bytes)
        tool_warn(f->path, "%s says that the tensors have %" PRIu64 " bytes, and they have %" PRIu64, f->index_name,
                  f->index.total, bytes);
    free(seen);
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

int folder_copy(const char *path, const char *to, struct folder_sum *sum)
{
    enum { PIECE = 1 << 18 };
    struct input in;
    struct output out = {.fd = -1};
    struct progress progress;
    uint8_t *const piece = malloc(PIECE);
    int status = piece ? input_open(&in, path) : tool_nomem(path, "a piece of the file");
    if (status) {
        free(piece);
        return status;
    }
    input_hash(&in);
    progress_start(&progress, path, in.bytes);
    if (to)
        status = output_open(&out, to, &in, false);
    for (size_t got = PIECE; status == TOOL_OK && got == PIECE;) {
        status = input_read(&in, piece, PIECE, &got);
        if (status == TOOL_OK && to)
            status = output_write(&out, piece, got);
        progress_at(&progress, in.at, in.at);
    }
    progress_end(&progress);
    if (status == TOOL_OK && to)
        status = output_commit(&out);
    *sum = folder_input_sum(&in);
    output_discard(&out);
    input_close(&in);
    free(piece);
    return status;
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
