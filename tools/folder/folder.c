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

#include "parse/torch_old.h"
#include "term.h"

enum { QUOTE = 96, ENTRIES_MOST = 1 << 20, FOLDER_DEPTH_MOST = 16 };

bool folder_is(const char *path)
{
    struct stat file_info;
    return stat(path, &file_info) == 0 && S_ISDIR(file_info.st_mode);
}

/* Prints "FOLDER/NAME: what". Returns TOOL_BAD. */
static int bad_file(const struct folder *folder, const char *name, const char *what)
{
    char *const path = folder_path(folder->path, name, "");
    if (path)
        tool_bad(path, "%s", what);
    free(path);
    return TOOL_BAD;
}

/* Add a name to the list of files, or of folders below. */
static int add(struct folder *folder, struct folder_names *list, const char *what, const char *name, uint64_t bytes)
{
    if (list->count == ENTRIES_MOST)
        return tool_bad(folder->path, "has more than %d %s", ENTRIES_MOST, what);
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 64;
        struct folder_entry *const bigger = realloc(list->entry, capacity * sizeof *bigger);
        if (!bigger)
            return tool_nomem(folder->path, "the list of its contents");
        list->entry = bigger;
        list->capacity = capacity;
    }
    char *const copy = strdup(name);
    if (!copy)
        return tool_nomem(folder->path, "the list of its contents");
    list->entry[list->count++] = (struct folder_entry){.name = copy, .bytes = bytes};
    return TOOL_OK;
}

static int by_name(const void *left, const void *right)
{
    const struct folder_entry *first = left, *second = right;
    return strcmp(first->name, second->name);
}

const struct folder_entry *folder_find(const struct folder *folder, const char *name)
{
    const struct folder_entry wanted = {.name = name};
    return folder->files.count
               ? bsearch(&wanted, folder->files.entry, folder->files.count, sizeof *folder->files.entry, by_name)
               : NULL;
}

static int scan_at(struct folder *folder, int at, const char *name, const char *prefix, unsigned depth);

/* Adds an entry of a directory, unless it is one to skip. name: its path in the folder */
static int take_named(struct folder *folder, DIR *directory, const char *entry, const char *name, unsigned depth)
{
    struct stat file_info, followed;
    const char *reason;
    if (fstatat(dirfd(directory), entry, &file_info, AT_SYMLINK_NOFOLLOW) != 0 ||
        fstatat(dirfd(directory), entry, &followed, 0) != 0)
        return bad_file(folder, name, strerror(errno));
    if (S_ISDIR(followed.st_mode) && entry[0] == '.') /* such as .git and .cache */
        return TOOL_OK;
    if (S_ISDIR(followed.st_mode) && !S_ISDIR(file_info.st_mode))
        return bad_file(folder, name, "is a symbolic link to a folder: only links to files are followed");
    if (!S_ISDIR(file_info.st_mode) && !S_ISREG(followed.st_mode))
        return bad_file(folder, name, "is not a regular file");
    if (!shards_path_is_plain(name, strlen(name), &reason))
        return bad_file(folder, name, reason);
    if (S_ISDIR(file_info.st_mode)) {
        TRY(add(folder, &folder->below, "folders", name, 0));
        return scan_at(folder, dirfd(directory), entry, name, depth + 1);
    }
    return add(folder, &folder->files, "files", name, (uint64_t)followed.st_size);
}

static int take(struct folder *folder, DIR *directory, const char *entry, const char *prefix, unsigned depth)
{
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0)
        return TOOL_OK;
    char *const name = prefix ? folder_path(prefix, entry, "") : strdup(entry);
    const int status =
        name ? take_named(folder, directory, entry, name, depth) : tool_nomem(folder->path, "the list of files");
    free(name);
    return status;
}

/* Adds the content of the folder `name` in the folder `at`. prefix: its path in folder; NULL: it is folder itself */
static int scan_at(struct folder *folder, int at, const char *name, const char *prefix, unsigned depth)
{
    struct stat file_info;
    const char *const shown = prefix ? prefix : "";
    if (depth > FOLDER_DEPTH_MOST)
        return bad_file(folder, shown, "has folders nested too deeply");
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (prefix ? O_NOFOLLOW : 0));
    DIR *const directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory || fstat(fd, &file_info) != 0) {
        const int error = errno;
        if (directory)
            closedir(directory);
        else if (fd >= 0)
            close(fd);
        return prefix ? bad_file(folder, prefix, strerror(error)) : tool_bad(folder->path, "%s", strerror(error));
    }
    if (!prefix)
        folder->mode = file_info.st_mode;
    int status = TOOL_OK;
    for (struct dirent *entry; !status && (errno = 0, entry = readdir(directory));)
        status = take(folder, directory, entry->d_name, prefix, depth);
    if (!status && errno)
        status = tool_bad(folder->path, "%s", strerror(errno));
    closedir(directory);
    return status;
}

static int scan(struct folder *folder)
{
    const int status = scan_at(folder, AT_FDCWD, folder->path, NULL, 0);
    if (folder->files.count)
        qsort(folder->files.entry, folder->files.count, sizeof *folder->files.entry, by_name);
    return status;
}

/* Reads a file of at most `most` bytes. The caller frees *text. */
static int slurp(const struct folder *folder, const char *name, uint64_t most, uint8_t **text, size_t *size)
{
    char *const path = folder_path(folder->path, name, "");
    const int status = path ? input_slurp_path(path, most, text, size) : TOOL_BAD;
    free(path);
    return status;
}

static int parse_failed(const struct folder *folder, const char *name, const struct parse_error *error)
{
    char *const path = folder_path(folder->path, name, "");
    if (path)
        tool_bad_at(path, error->offset, "%s", error->what);
    free(path);
    return TOOL_BAD;
}

/* Reads the list of a folder that picitool made, and checks that its files exist. */
static int read_list(struct folder *folder)
{
    struct parse_error error;
    uint8_t *text;
    size_t size, stored = 0;
    char expected[SHARDS_NAME_MOST + sizeof FOLDER_EXTENSION];
    TRY(slurp(folder, FOLDER_LIST_NAME, FOLDER_LIST_MOST, &text, &size));
    folder->made = folder_list_parse(&folder->list, (const char *)text, size, &error);
    free(text);
    if (!folder->made)
        return parse_failed(folder, FOLDER_LIST_NAME, &error);
    for (size_t i = 0; i < folder->list.files; i++) {
        const struct folder_file *const file = &folder->list.file[i];
        if (file->kind == FOLDER_SAME)
            continue;
        snprintf(expected, sizeof expected, "%s%s", file->name, file->kind == FOLDER_SHARD ? FOLDER_EXTENSION : "");
        const struct folder_entry *const entry = folder_find(folder, expected);
        if (!entry)
            return bad_file(folder, expected, "is missing: " FOLDER_LIST_NAME " names it");
        if (entry->bytes != file->stored.bytes)
            return bad_file(folder, expected,
                            "has another size than " FOLDER_LIST_NAME " says: it is incomplete, or the wrong file");
        stored++;
    }
    for (size_t i = 0; stored + 1 < folder->files.count && i < folder->files.count; i++) {
        const char *const name = folder->files.entry[i].name;
        const size_t name_size = strlen(name), tail = strlen(FOLDER_EXTENSION);
        const struct folder_file *file = folder_list_find(&folder->list, name);
        if (strcmp(name, FOLDER_LIST_NAME) == 0 || (file && file->kind == FOLDER_COPY))
            continue;
        snprintf(expected, sizeof expected, "%.*s", (int)(name_size > tail ? name_size - tail : 0), name);
        file = folder_list_find(&folder->list, expected);
        if (!tool_has_extension(name, FOLDER_EXTENSION) || !file || file->kind != FOLDER_SHARD)
            return bad_file(folder, name, "is not in " FOLDER_LIST_NAME ": move it elsewhere");
    }
    for (size_t i = 0; i < folder->below.count; i++)
        if (folder_list_find(&folder->list, folder->below.entry[i].name))
            return bad_file(folder, folder->below.entry[i].name, "is a folder: " FOLDER_LIST_NAME " names a file");
    return TOOL_OK;
}

static enum tool_type type_by_name(const struct folder_entry *entry)
{
    if (tool_has_extension(entry->name, SHARDS_EXTENSION))
        return TYPE_SAFETENSORS;
    return tool_has_extension(entry->name, ".distcp") && entry->bytes != 0 ? TYPE_RAW : TYPE_UNSET;
}

/* Finds the shards of a checkpoint. */
static int find_shards(struct folder *folder)
{
    size_t raw = 0, made = 0;
    folder->index.shard = malloc((folder->files.count + 1) * sizeof *folder->index.shard);
    folder->text = calloc(folder->files.count + 1, sizeof *folder->text);
    if (!folder->index.shard || !folder->text)
        return tool_nomem(folder->path, "the list of shards");
    for (size_t i = 0; i < folder->files.count; i++) {
        const enum tool_type type = folder->files.entry[i].type = type_by_name(&folder->files.entry[i]);
        if (type == TYPE_SAFETENSORS)
            folder->index.shard[folder->index.shards++] = folder->files.entry[i].name;
        raw += type == TYPE_RAW;
        made += tool_has_extension(folder->files.entry[i].name, SHARDS_EXTENSION FOLDER_EXTENSION);
    }
    if (!folder->index.shards && !raw && made)
        return bad_file(folder, FOLDER_LIST_NAME, "is missing: the folder has files that were compressed");
    return folder->index.shards || raw
               ? TOOL_OK
               : tool_bad(folder->path, "is a directory without " SHARDS_EXTENSION " or .distcp files");
}

int folder_open(struct folder *folder, const char *path)
{
    *folder = (struct folder){.path = path};
    int status = scan(folder);
    if (!status)
        status = folder_find(folder, FOLDER_LIST_NAME) ? read_list(folder) : find_shards(folder);
    if (status)
        folder_close(folder);
    return status;
}

/* The reason why a tensor keeps a file of torch.save from being a shard, or NULL. */
static const char *reason_of(const struct tensor_at *tensor)
{
    if (!tensor->in_place)
        return "it has compressed storages";
    return tensor->name_size > PICI_NAME_MAX ? "it has a name that is too long for a .pici file" : NULL;
}

/* Sets the type of an entry that may be a file of torch.save. */
static int look_into(struct folder_entry *entry, const char *path)
{
    static const uint8_t zip[] = {'P', 'K', 3, 4};
    enum { OLD = 16 }; /* bytes that identify a file before torch 1.6 */
    const struct tool_options options = {.type = TYPE_PT};
    struct input input;
    uint8_t first[OLD];
    TRY(input_open(&input, path));
    const bool is_torch = input.regular && input.bytes >= sizeof first &&
                          !input_read_at(&input, first, sizeof first, 0) &&
                          (memcmp(first, zip, sizeof zip) == 0 || torch_old_begins(first, sizeof first));
    input_close(&input);
    if (!is_torch) /* from another program */
        return TOOL_OK;
    struct tensors tensors;
    tool_mute(); /* compressing the file prints its warnings */
    const int status = tensors_open(&tensors, path, &options);
    const char *reason = tool_unmute();
    if (!status) {
        reason = NULL;
        for (size_t i = 0; !reason && i < tensors.count; i++)
            reason = reason_of(&tensors.tensor[i]);
        entry->type = reason || !tensors.source.archive.pickle ? TYPE_UNSET : TYPE_PT;
        tensors_close(&tensors);
    }
    if (reason)
        tool_warn(path, "%s; it is copied unchanged", reason);
    return TOOL_OK;
}

int folder_find_torch(struct folder *folder)
{
    for (size_t i = 0; i < folder->files.count; i++) {
        struct folder_entry *const entry = &folder->files.entry[i];
        if (tool_type_of(entry->name) != TYPE_PT && !tool_has_extension(entry->name, ".bin"))
            continue;
        char *const path = folder_path(folder->path, entry->name, "");
        const int status = path ? look_into(entry, path) : TOOL_BAD;
        free(path);
        TRY(status);
    }
    return TOOL_OK;
}

static int by_bytes(const void *name, const void *shard)
{
    return strcmp(name, *(const char *const *)shard);
}

size_t folder_shard(const struct folder *folder, const char *name)
{
    const struct shards *const index = &folder->index;
    const char **const found =
        index->shards ? bsearch(name, index->shard, index->shards, sizeof *index->shard, by_bytes) : NULL;
    return found ? (size_t)(found - index->shard) : index->shards;
}

/* ---- the tensors of the shards, and the indexes */

/* Adds the tensors of shard `number`. */
static int add_tensors(struct folder *folder, const struct tensors *tensors, size_t number)
{
    struct shards *const index = &folder->index;
    size_t bytes = 1;
    for (size_t k = 0; k < tensors->count; k++)
        bytes += tensors->tensor[k].name_size + 1;
    struct shards_tensor *const bigger = realloc(index->tensor, (index->tensors + tensors->count + 1) * sizeof *bigger);
    if (bigger)
        index->tensor = bigger;
    char *position = folder->text[number] = bigger ? malloc(bytes) : NULL;
    if (!position)
        return tool_nomem(folder->path, "the list of tensors");
    for (size_t k = 0; k < tensors->count; k++) {
        const size_t size = tensors->tensor[k].name_size;
        memcpy(position, tensors->tensor[k].name, size);
        position[size] = 0;
        index->tensor[index->tensors++] =
            (struct shards_tensor){.name = position, .name_size = size, .shard = (uint32_t)number};
        position += size + 1;
    }
    return TOOL_OK;
}

/* The shards that folder_check opens. */
struct checked {
    struct tensors *shard; /* NULL: each is closed after its check */
    folder_keep *keep;
    void *context;
    uint64_t *bytes; /* [index.shards] bytes of each shard's tensors */
};

static int check_opened(struct folder *folder, struct checked *checked, size_t number, struct tensors *tensors,
                        const char *path)
{
    TRY(add_tensors(folder, tensors, number));
    checked->bytes[number] = tensors->input.bytes - tensors->source.head_size;
    tensors->input.name = folder->index.shard[number]; /* the caller frees path */
    return checked->shard ? checked->keep(checked->context, &tensors->input, path) : TOOL_OK;
}

static int check_one(struct folder *folder, struct checked *checked, size_t number)
{
    const struct tool_options options = {.type = TYPE_SAFETENSORS};
    struct tensors closed_again = {.input.fd = -1}, *const tensors =
                                                        checked->shard ? &checked->shard[number] : &closed_again;
    char *const path = folder_path(folder->path, folder->index.shard[number], "");
    int status = path ? tensors_open(tensors, path, &options) : TOOL_BAD;
    if (!status)
        status = check_opened(folder, checked, number, tensors, path);
    tensors_close(&closed_again);
    free(path);
    return status;
}

/* An index that is compared with the shards. */
struct compared {
    const struct folder *folder;
    const char *name; /* of its file */
    struct shards index;
    size_t *shard;  /* [index.shards] each shard's number in the folder; folder->index.shards: no such file */
    bool *named;    /* [folder->index.shards] the index names it */
    bool warned;    /* a warning says that it is out of date */
    uint64_t bytes; /* of the tensors of the shards that it names */
};

/* Warns, once, about a tensor that is not where the index has it. */
static void tell_stale(struct compared *compared, const struct shards_tensor *tensor, const char *where,
                       const char *shard)
{
    char name[QUOTE];
    char *const path = compared->warned ? NULL : folder_path(compared->folder->path, compared->name, "");
    if (path)
        tool_warn(path, "is out of date: tensor '%s' is %s %s; it is kept unchanged",
                  pici_parse_printable(name, sizeof name, tensor->name, tensor->name_size), where, shard);
    free(path);
    compared->warned = true;
}

/* Looks for each tensor of the index in the shards. An error if neither the tensor nor its shard exists. */
static int compare_there(struct compared *compared)
{
    const struct shards *const has = &compared->folder->index;
    for (size_t i = 0; i < compared->index.tensors; i++) {
        const struct shards_tensor *const tensor = &compared->index.tensor[i];
        const size_t shard = compared->shard[tensor->shard];
        const struct shards_tensor *const found = shards_find_in(has, tensor->name, tensor->name_size, shard);
        if (!found && shard == has->shards)
            return bad_file(compared->folder, compared->index.shard[tensor->shard], "is missing: the index names it");
        if (!found || found->shard != shard)
            tell_stale(compared, tensor, "not in", compared->index.shard[tensor->shard]);
    }
    return TOOL_OK;
}

static int compare_opened(struct compared *compared, const uint64_t *bytes)
{
    const struct folder *const folder = compared->folder;
    const char *const slash = strrchr(compared->name, '/');
    const size_t prefix = slash ? (size_t)(slash - compared->name) + 1 : 0;
    char shard[2 * SHARDS_NAME_MOST + 2];
    for (size_t i = 0; i < compared->index.shards; i++) {
        snprintf(shard, sizeof shard, "%.*s%s", (int)prefix, compared->name, compared->index.shard[i]);
        compared->shard[i] = folder_shard(folder, shard);
        if (compared->shard[i] == folder->index.shards)
            continue;
        compared->named[compared->shard[i]] = true;
        compared->bytes += bytes[compared->shard[i]];
    }
    TRY(compare_there(compared));
    for (size_t i = 0; !compared->warned && i < folder->index.tensors; i++) {
        const struct shards_tensor *const tensor = &folder->index.tensor[i];
        if (compared->named[tensor->shard] && !shards_find(&compared->index, tensor->name, tensor->name_size))
            tell_stale(compared, tensor, "also in", folder->index.shard[tensor->shard]);
    }
    if (!compared->warned && compared->index.has_total && compared->index.total != compared->bytes)
        tool_warn(folder->path, "%s says that the tensors have %" PRIu64 " bytes, and they have %" PRIu64,
                  compared->name, compared->index.total, compared->bytes);
    return TOOL_OK;
}

/* Compares an index with the shards. An outdated index is no error, since compress stores the files as they are. */
static int compare_index(const struct folder *folder, const char *name, const uint64_t *bytes)
{
    struct compared compared = {.folder = folder, .name = name};
    struct parse_error error;
    uint8_t *text;
    size_t size;
    TRY(slurp(folder, name, SHARDS_TEXT_MOST, &text, &size));
    const bool good = shards_parse(&compared.index, text, size, &error);
    free(text);
    if (!good) {
        char *const path = folder_path(folder->path, name, "");
        if (path)
            tool_warn(path, "is not an index of shards: offset %" PRIu64 ": %s; it is kept unchanged", error.offset,
                      error.what);
        free(path);
        return TOOL_OK;
    }
    compared.shard = malloc((compared.index.shards + 1) * sizeof *compared.shard);
    compared.named = calloc(folder->index.shards + 1, sizeof *compared.named);
    const int status = compared.shard && compared.named ? compare_opened(&compared, bytes)
                                                        : tool_nomem(folder->path, "the list of tensors");
    free(compared.shard);
    free(compared.named);
    shards_free(&compared.index);
    return status;
}

static int check_all(struct folder *folder, struct checked *checked)
{
    for (size_t i = 0; i < folder->index.shards; i++)
        TRY(check_one(folder, checked, i));
    shards_sort(&folder->index);
    for (size_t i = 0; i < folder->files.count; i++)
        if (tool_has_extension(folder->files.entry[i].name, SHARDS_INDEX))
            TRY(compare_index(folder, folder->files.entry[i].name, checked->bytes));
    return TOOL_OK;
}

int folder_check(struct folder *folder, struct tensors *shard, folder_keep *keep, void *context)
{
    struct checked checked = {shard, keep, context, calloc(folder->index.shards + 1, sizeof *checked.bytes)};
    const int status = checked.bytes ? check_all(folder, &checked) : tool_nomem(folder->path, "the list of tensors");
    free(checked.bytes);
    return status;
}

uint64_t folder_original_bytes(const struct folder *folder)
{
    uint64_t bytes = 0;
    for (size_t i = 0; !folder->made && i < folder->files.count; i++)
        bytes += folder->files.entry[i].bytes;
    for (size_t i = 0; folder->made && i < folder->list.files; i++)
        bytes = bytes > UINT64_MAX - folder->list.file[i].original.bytes ? UINT64_MAX
                                                                         : bytes + folder->list.file[i].original.bytes;
    return bytes;
}

uint64_t folder_stored_bytes(const struct folder *folder)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < folder->list.files; i++)
        bytes += folder->list.file[i].stored.bytes;
    return bytes;
}

struct reading_shards folder_shards(const struct folder *folder)
{
    if (!folder || !folder->list.references)
        return (struct reading_shards){.folder = NULL};
    return (struct reading_shards){folder->path, &folder->list};
}

int folder_expect_checkpoint(const struct folder *folder)
{
    if (!folder->made)
        return TOOL_OK;
    return tool_usage(folder->path, folder->list.delta ? "is a delta: picitool apply applies it"
                                                       : "is compressed: picitool decompress restores it");
}

int folder_expect_made(const struct folder *folder, bool delta)
{
    if (!folder->made)
        return tool_usage(folder->path, "is an uncompressed checkpoint, not %s",
                          delta ? "a delta" : "a compressed folder");
    if (folder->list.delta == delta)
        return TOOL_OK;
    return delta ? tool_usage(folder->path, "is compressed, not a delta")
                 : tool_bad(folder->path, "is a delta: restore it with picitool apply and its base");
}

struct folder_sum folder_input_sum(const struct input *input)
{
    return (struct folder_sum){input->position, pici_xxh64_digest(&input->hash)};
}

struct folder_sum folder_output_sum(const struct output *output)
{
    return (struct folder_sum){output->position, pici_xxh64_digest(&output->hash)};
}

/* A file that is hashed, and copied unless to_path is NULL. */
struct copy {
    struct input input;
    struct output output;
    struct progress progress;
    uint8_t *piece;
};

static int copy(struct copy *copied, const char *path, const char *to_path, struct folder_sum *sum)
{
    enum { PIECE = 1 << 18 };
    copied->piece = malloc(PIECE);
    if (!copied->piece)
        return tool_nomem(path, "a piece of the file");
    TRY(input_open(&copied->input, path));
    input_hash(&copied->input);
    progress_start(&copied->progress, path, copied->input.bytes);
    if (to_path) {
        TRY(output_open(&copied->output, to_path, &copied->input, false));
        output_times(&copied->output, &copied->input);
    }
    for (size_t received = PIECE; received == PIECE;) {
        TRY(input_read(&copied->input, copied->piece, PIECE, &received));
        if (to_path)
            TRY(output_write(&copied->output, copied->piece, received));
        progress_at(&copied->progress, copied->input.position, copied->input.position);
    }
    *sum = folder_input_sum(&copied->input);
    progress_end(&copied->progress);
    return to_path ? output_commit(&copied->output) : TOOL_OK;
}

int folder_copy(const char *path, const char *to_path, struct folder_sum *sum)
{
    struct copy copied = {.input.fd = -1, .output.fd = -1};
    const int status = copy(&copied, path, to_path, sum);
    progress_end(&copied.progress);
    output_discard(&copied.output);
    input_close(&copied.input);
    free(copied.piece);
    return status;
}

int folder_copy_as(const char *path, const char *to_path, const struct folder_sum *want)
{
    struct folder_sum sum;
    TRY(folder_copy(path, to_path, &sum));
    return folder_match(path, &sum, want);
}

int folder_match(const char *path, const struct folder_sum *found, const struct folder_sum *want)
{
    if (found->bytes == want->bytes && found->hash == want->hash)
        return TOOL_OK;
    return tool_bad(path,
                    "is the wrong file, or damaged: it has %" PRIu64 " bytes of XXH64 %016" PRIx64 ", expected %" PRIu64
                    " of %016" PRIx64 " (" FOLDER_LIST_NAME ")",
                    found->bytes, found->hash, want->bytes, want->hash);
}

static void free_names(struct folder_names *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)list->entry[i].name);
    free(list->entry);
}

void folder_close(struct folder *folder)
{
    for (size_t i = 0; folder->text && i < folder->files.count; i++)
        free(folder->text[i]);
    free(folder->text);
    free_names(&folder->files);
    free_names(&folder->below);
    folder_list_free(&folder->list);
    shards_free(&folder->index);
    *folder = (struct folder){0};
}
