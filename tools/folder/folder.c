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

enum { QUOTE = 96, ENTRIES_MOST = 1 << 20, FOLDER_DEPTH_MOST = 16 };

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

static int scan_at(struct folder *f, int at, const char *name, const char *prefix, unsigned depth);

/* Takes an entry of the folder d, unless it is one to be left out. name: with the folders that it is in */
static int take_named(struct folder *f, DIR *d, const char *entry, const char *name, unsigned depth)
{
    struct stat st, followed;
    const char *why;
    if (fstatat(dirfd(d), entry, &st, AT_SYMLINK_NOFOLLOW) != 0 || fstatat(dirfd(d), entry, &followed, 0) != 0)
        return bad_file(f, name, strerror(errno));
    if (S_ISDIR(followed.st_mode) && entry[0] == '.') /* as .git and .cache are */
        return TOOL_OK;
    if (S_ISDIR(followed.st_mode) && !S_ISDIR(st.st_mode))
        return bad_file(f, name, "is a folder by a link: of links, those to files are taken");
    if (S_ISDIR(st.st_mode))
        return scan_at(f, dirfd(d), entry, name, depth + 1);
    if (!S_ISREG(followed.st_mode))
        return bad_file(f, name, "is not a regular file");
    if (!shards_path_is_plain(name, strlen(name), &why))
        return bad_file(f, name, why);
    return add(f, name, (uint64_t)followed.st_size);
}

static int take(struct folder *f, DIR *d, const char *entry, const char *prefix, unsigned depth)
{
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0)
        return TOOL_OK;
    char *const name = prefix ? folder_path(prefix, entry, "") : strdup(entry);
    const int status = name ? take_named(f, d, entry, name, depth) : tool_nomem(f->path, "the list of files");
    free(name);
    return status;
}

/* Takes what is in the folder `name` in the folder `at`. prefix: its path in f, or NULL: it is f */
static int scan_at(struct folder *f, int at, const char *name, const char *prefix, unsigned depth)
{
    struct stat st;
    const char *const shown = prefix ? prefix : "";
    if (depth > FOLDER_DEPTH_MOST)
        return bad_file(f, shown, "has too many folders in one another");
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (prefix ? O_NOFOLLOW : 0));
    DIR *const d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d || fstat(fd, &st) != 0) {
        const int err = errno;
        if (d)
            closedir(d);
        else if (fd >= 0)
            close(fd);
        return prefix ? bad_file(f, prefix, strerror(err)) : tool_bad(f->path, "%s", strerror(err));
    }
    if (!prefix)
        f->mode = st.st_mode;
    int status = TOOL_OK;
    for (struct dirent *e; !status && (errno = 0, e = readdir(d));)
        status = take(f, d, e->d_name, prefix, depth);
    if (!status && errno)
        status = tool_bad(f->path, "%s", strerror(errno));
    closedir(d);
    return status;
}

static int scan(struct folder *f)
{
    const int status = scan_at(f, AT_FDCWD, f->path, NULL, 0);
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

enum tool_type folder_part_type(const struct folder_entry *e)
{
    return tool_has_extension(e->name, SHARDS_EXTENSION)             ? TYPE_SAFETENSORS
           : tool_has_extension(e->name, ".distcp") && e->bytes != 0 ? TYPE_RAW
                                                                     : TYPE_UNSET;
}

/* Finds the shards of a checkpoint. */
static int find_shards(struct folder *f)
{
    size_t raw = 0, made = 0;
    f->index.shard = malloc((f->entries + 1) * sizeof *f->index.shard);
    f->text = calloc(f->entries + 1, sizeof *f->text);
    if (!f->index.shard || !f->text)
        return tool_nomem(f->path, "the list of shards");
    for (size_t i = 0; i < f->entries; i++) {
        const enum tool_type type = folder_part_type(&f->entry[i]);
        if (type == TYPE_SAFETENSORS)
            f->index.shard[f->index.shards++] = f->entry[i].name;
        raw += type == TYPE_RAW;
        made += tool_has_extension(f->entry[i].name, SHARDS_EXTENSION FOLDER_EXTENSION);
    }
    if (!f->index.shards && !raw && made)
        return bad_file(f, FOLDER_LIST_NAME, "is missing: the folder has files that were compressed");
    return f->index.shards || raw ? TOOL_OK
                                  : tool_bad(f->path, "is a directory without " SHARDS_EXTENSION " or .distcp files");
}

int folder_open(struct folder *f, const char *path)
{
    *f = (struct folder){.path = path};
    int status = scan(f);
    if (!status)
        status = folder_find(f, FOLDER_LIST_NAME) ? read_list(f) : find_shards(f);
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

/* ---- the tensors of the shards, and the indexes that say where they are */

/* Adds the tensors of shard i. */
static int add_tensors(struct folder *f, const struct tensors *t, size_t i)
{
    struct shards *const x = &f->index;
    size_t bytes = 1;
    for (size_t k = 0; k < t->n; k++)
        bytes += t->tensor[k].name_len + 1;
    struct shards_tensor *const bigger = realloc(x->tensor, (x->tensors + t->n + 1) * sizeof *bigger);
    if (bigger)
        x->tensor = bigger;
    char *p = f->text[i] = bigger ? malloc(bytes) : NULL;
    if (!p)
        return tool_nomem(f->path, "the list of tensors");
    for (size_t k = 0; k < t->n; k++) {
        const size_t len = t->tensor[k].name_len;
        memcpy(p, t->tensor[k].name, len);
        p[len] = 0;
        x->tensor[x->tensors++] = (struct shards_tensor){.name = p, .name_len = len, .shard = (uint32_t)i};
        p += len + 1;
    }
    return TOOL_OK;
}

/* The shards that folder_check opens. */
struct checked {
    struct tensors *shard; /* NULL: they are closed again */
    folder_keep *keep;
    void *ctx;
    uint64_t *bytes; /* [index.shards] of the tensors of each */
};

static int check_opened(struct folder *f, struct checked *c, size_t i, struct tensors *t, const char *path)
{
    TRY(add_tensors(f, t, i));
    c->bytes[i] = t->in.bytes - t->source.head_len;
    t->in.name = f->index.shard[i]; /* path is freed */
    return c->shard ? c->keep(c->ctx, &t->in, path) : TOOL_OK;
}

static int check_one(struct folder *f, struct checked *c, size_t i)
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

/* An index that is compared with the shards. */
struct compared {
    const struct folder *f;
    const char *name; /* of its file */
    struct shards index;
    size_t *shard;  /* [index.shards] the number in the folder of each, or f->index.shards: there is no such file */
    bool *named;    /* [f->index.shards] the index names it */
    bool told;      /* that it is out of date */
    uint64_t bytes; /* of the tensors of those that it names */
};

/* Warns, once, of a tensor that is not where the index says. */
static void tell_stale(struct compared *c, const struct shards_tensor *t, const char *where, const char *shard)
{
    char name[QUOTE];
    char *const path = c->told ? NULL : folder_path(c->f->path, c->name, "");
    if (path)
        tool_warn(path, "is out of date: tensor '%s' is %s %s; it is kept as it is",
                  pici_parse_printable(name, sizeof name, t->name, t->name_len), where, shard);
    free(path);
    c->told = true;
}

/* Looks for each tensor of the index in the shards. */
static int compare_there(struct compared *c)
{
    const struct shards *const has = &c->f->index;
    for (size_t i = 0; i < c->index.tensors; i++) {
        const struct shards_tensor *const t = &c->index.tensor[i];
        const size_t shard = c->shard[t->shard];
        const struct shards_tensor *const found = shards_find_in(has, t->name, t->name_len, shard);
        if (!found && shard == has->shards)
            return bad_file(c->f, c->index.shard[t->shard], "is missing: the index names it");
        if (!found || found->shard != shard)
            tell_stale(c, t, "not in", c->index.shard[t->shard]);
    }
    return TOOL_OK;
}

static int compare_opened(struct compared *c, const uint64_t *bytes)
{
    const struct folder *const f = c->f;
    const char *const slash = strrchr(c->name, '/');
    const size_t prefix = slash ? (size_t)(slash - c->name) + 1 : 0;
    char shard[2 * SHARDS_NAME_MOST + 2];
    for (size_t i = 0; i < c->index.shards; i++) {
        snprintf(shard, sizeof shard, "%.*s%s", (int)prefix, c->name, c->index.shard[i]);
        c->shard[i] = folder_shard(f, shard);
        if (c->shard[i] == f->index.shards)
            continue;
        c->named[c->shard[i]] = true;
        c->bytes += bytes[c->shard[i]];
    }
    TRY(compare_there(c));
    for (size_t i = 0; !c->told && i < f->index.tensors; i++) {
        const struct shards_tensor *const t = &f->index.tensor[i];
        if (c->named[t->shard] && !shards_find(&c->index, t->name, t->name_len))
            tell_stale(c, t, "also in", f->index.shard[t->shard]);
    }
    if (!c->told && c->index.has_total && c->index.total != c->bytes)
        tool_warn(f->path, "%s says that the tensors have %" PRIu64 " bytes, and they have %" PRIu64, c->name,
                  c->index.total, c->bytes);
    return TOOL_OK;
}

/* Compares an index with the shards. An index that is out of date is no error: what is stored is the files. */
static int compare_index(const struct folder *f, const char *name, const uint64_t *bytes)
{
    struct compared c = {.f = f, .name = name};
    struct parse_error err;
    uint8_t *text;
    size_t len;
    TRY(slurp(f, name, SHARDS_TEXT_MOST, &text, &len));
    const bool good = shards_parse(&c.index, text, len, &err);
    free(text);
    if (!good) {
        char *const path = folder_path(f->path, name, "");
        if (path)
            tool_warn(path, "is no index of shards: offset %" PRIu64 ": %s; it is kept as it is", err.offset, err.what);
        free(path);
        return TOOL_OK;
    }
    c.shard = malloc((c.index.shards + 1) * sizeof *c.shard);
    c.named = calloc(f->index.shards + 1, sizeof *c.named);
    const int status = c.shard && c.named ? compare_opened(&c, bytes) : tool_nomem(f->path, "the list of tensors");
    free(c.shard);
    free(c.named);
    shards_free(&c.index);
    return status;
}

static int check_all(struct folder *f, struct checked *c)
{
    for (size_t i = 0; i < f->index.shards; i++)
        TRY(check_one(f, c, i));
    shards_sort(&f->index);
    for (size_t i = 0; i < f->entries; i++)
        if (tool_has_extension(f->entry[i].name, SHARDS_INDEX))
            TRY(compare_index(f, f->entry[i].name, c->bytes));
    return TOOL_OK;
}

int folder_check(struct folder *f, struct tensors *shard, folder_keep *keep, void *ctx)
{
    struct checked c = {shard, keep, ctx, calloc(f->index.shards + 1, sizeof *c.bytes)};
    const int status = c.bytes ? check_all(f, &c) : tool_nomem(f->path, "the list of tensors");
    free(c.bytes);
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
    if (to) {
        TRY(output_open(&c->out, to, &c->in, false));
        output_times(&c->out, &c->in);
    }
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
    for (size_t i = 0; f->text && i < f->entries; i++)
        free(f->text[i]);
    free(f->text);
    for (size_t i = 0; i < f->entries; i++)
        free((void *)f->entry[i].name);
    free(f->entry);
    folder_list_free(&f->list);
    shards_free(&f->index);
    *f = (struct folder){0};
}
