/* SPDX-License-Identifier: BSD-3-Clause */
#define _DEFAULT_SOURCE /* realpath */
#include "folder/make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs.h"
#include "term.h"

static int make_one(void *context, size_t i)
{
    struct folder_make *const making = context;
    return making->make_file(making, &making->list.file[i]);
}

static int write_text(struct output *output, const char *path, const char *text, size_t size)
{
    TRY(output_open(output, path, NULL, false));
    TRY(output_write(output, text, size));
    return output_commit(output);
}

static int write_list(const struct folder_make *making)
{
    struct output output = {.fd = -1};
    size_t size;
    char *const path = folder_path(making->to, FOLDER_LIST_NAME, ""), *const text =
                                                                          folder_list_text(&making->list, &size);
    int status = TOOL_BAD;
    if (path)
        status = text ? write_text(&output, path, text, size) : tool_nomem(making->to, "the list of files");
    output_discard(&output);
    free(path);
    free(text);
    return status;
}

/* Prints the line for the folder, and adds it to the results. */
static void tell(const struct folder_make *making, const char *out_path, struct results *results, double seconds)
{
    uint64_t original = 0, stored = 0;
    for (size_t i = 0; i < making->list.files; i++) {
        original += making->list.file[i].original.bytes;
        stored += making->list.file[i].kind == FOLDER_SAME ? 0 : making->list.file[i].stored.bytes;
    }
    const struct output made = {.name = out_path, .position = making->restored ? original : stored};
    result_print(making->from->path, making->restored ? stored : original, &made, making->restored, seconds);
    if (results) {
        results->done++;
        results->dense += original;
        results->compressed += stored;
        results->seconds += seconds;
    }
}

/* Calls one(making, FOLDER) for the subfolders of the input, and for the folders of all files in the list, parents
 * first. It may call it several times for a folder. */
static int each_folder(const struct folder_make *making, int (*one)(const struct folder_make *, const char *))
{
    const char *last = "";
    char folder[SHARDS_NAME_MOST + 1];
    for (size_t i = 0; i < making->from->below.count; i++)
        TRY(one(making, making->from->below.entry[i].name));
    for (size_t i = 0; i < making->list.files; i++) {
        const char *const name = making->list.file[i].name, *slash = name;
        for (; (slash = strchr(slash, '/')); slash++) {
            const size_t size = (size_t)(slash - name);
            if (strncmp(last, name, size + 1) == 0) /* the previous file is in it too */
                continue;
            memcpy(folder, name, size);
            folder[size] = 0;
            TRY(one(making, folder));
        }
        last = name;
    }
    return TOOL_OK;
}

static int begin_folder(const struct folder_make *making, const char *name)
{
    char *const path = folder_path(making->to, name, "");
    int status = path ? TOOL_OK : TOOL_BAD;
    if (path && mkdir(path, 0700) != 0 && errno != EEXIST)
        status = tool_bad(path, "%s", strerror(errno));
    free(path);
    return status;
}

/* Gives a folder the permissions of the input's folder with this name, and syncs it to disk. */
static int end_folder(const struct folder_make *making, const char *name)
{
    struct stat file_info = {.st_mode = 0};
    char *const path = folder_path(making->to, name, ""), *const old_path = folder_path(making->from->path, name, "");
    int status = path && old_path ? TOOL_OK : TOOL_BAD;
    const int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (old_path)
        (void)stat(old_path, &file_info); /* if it does not exist, only the owner may read the new one */
    if (!status && (fd < 0 || fchmod(fd, (file_info.st_mode & 0777) | 0700) != 0 || outfolder_sync(fd) != 0))
        status = tool_bad(path, "%s", strerror(errno));
    if (!status && file_info.st_mode)
        (void)futimens(fd, (struct timespec[]){file_info.st_atim, file_info.st_mtim});
    if (fd >= 0)
        close(fd);
    free(path);
    free(old_path);
    return status;
}

int folder_refuse_inside(const char *input_path, const char *output_path)
{
    char *const copy = strdup(output_path);
    size_t size = copy ? strlen(copy) : 0;
    if (!copy)
        return tool_nomem(output_path, "a path");
    while (size > 1 && copy[size - 1] == '/')
        copy[--size] = 0;
    char *const slash = strrchr(copy, '/');
    if (slash)
        slash[slash == copy] = 0;
    char *const from_path = realpath(input_path, NULL), *const above = realpath(slash ? copy : ".", NULL);
    const size_t from_size = from_path ? strlen(from_path) : 0;
    const bool inside = from_path && above && strncmp(above, from_path, from_size) == 0 &&
                        (!above[from_size] || above[from_size] == '/');
    free(copy);
    free(from_path);
    free(above);
    return inside ? tool_usage(output_path, "is inside the input folder: choose a path outside it") : TOOL_OK;
}

/* The most files to make at a time: each has up to four descriptors, and pici_files_kept leaves three quarters. */
static size_t files_most(void)
{
    const long most = sysconf(_SC_OPEN_MAX);
    if (most < 0)
        return SIZE_MAX;
    return most < 16 ? 1 : (size_t)most / 8;
}

static int make_all(struct folder_make *making, struct outfolder *to, const char *out_path, struct results *results)
{
    size_t large = 0;
    making->each = *making->options;
    making->to = to->path;
    for (size_t i = 0; i < making->list.files; i++)
        large += making->list.file[i].kind == FOLDER_SHARD;
    const unsigned at_a_time = jobs_at_a_time(large < files_most() ? large : files_most(),
                                              tool_threads(making->options->threads), &making->each.threads);
    const double start = term_now(); /* after prompts, which may take long */
    if (making->prepare)
        TRY(making->prepare(making));
    TRY(each_folder(making, begin_folder));
    progress_all_start(making->from->path, folder_original_bytes(making->from));
    const int status = jobs_run(making->list.files, at_a_time, false, make_one, making);
    progress_all_end();
    TRY(status);
    TRY(each_folder(making, end_folder));
    if (making->with_list)
        TRY(write_list(making));
    struct stat file_info;
    if (stat(making->from->path, &file_info) == 0)
        (void)futimens(to->fd, (struct timespec[]){file_info.st_atim, file_info.st_mtim});
    TRY(outfolder_commit(to));
    tell(making, out_path, results, term_now() - start);
    return TOOL_OK;
}

int folder_make(struct folder_make *making, const char *out_path, struct results *results)
{
    struct outfolder to;
    if (folder_same(out_path, making->from->path))
        return tool_usage(out_path, "is the input");
    if (output_is_made(out_path))
        return tool_usage(out_path, "is another output of this run");
    TRY(folder_refuse_inside(making->from->path, out_path));
    const mode_t mode = making->mode ? making->mode : making->from->mode;
    const bool force = making->options->force || making->in_place;
    TRY(outfolder_open(&to, out_path, mode, force, making->in_place ? NULL : &making->list));
    const int status = make_all(making, &to, out_path, results);
    outfolder_discard(&to);
    return status ? status : output_add_made(out_path);
}

bool folder_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int folder_refuse_options(const char *path, const struct tool_options *options)
{
    if (options->out && strcmp(options->out, "-") == 0)
        return tool_usage(path, "is a folder, and so is its output: it cannot go to standard output");
    return options->remove ? tool_usage(path, "is a folder: --rm is for files") : TOOL_OK;
}

/* Whether an entry of a checkpoint becomes a shard: a .safetensors file, or with `all` any file that compress packs. */
static bool is_shard(const struct folder_entry *entry, bool all)
{
    return entry->type == TYPE_SAFETENSORS || (all && entry->type != TYPE_UNSET);
}

/* Whether a shard will be stored under this name. */
static bool is_stored(const struct folder *folder, const char *name, bool all)
{
    char shard[SHARDS_NAME_MOST + 1];
    if (!tool_has_extension(name, FOLDER_EXTENSION))
        return false;
    snprintf(shard, sizeof shard, "%.*s", (int)(strlen(name) - strlen(FOLDER_EXTENSION)), name);
    const struct folder_entry *const entry = folder_find(folder, shard);
    return entry && is_shard(entry, all);
}

int folder_list_of(struct folder_list *list, const struct folder *folder, bool all)
{
    char stored[SHARDS_NAME_MOST + sizeof FOLDER_EXTENSION];
    *list = (struct folder_list){.file = calloc(folder->files.count, sizeof *list->file), .files = folder->files.count};
    if (!list->file)
        return tool_nomem(folder->path, "the list of files");
    for (size_t i = 0; i < folder->below.count; i++)
        if (strcmp(folder->below.entry[i].name, FOLDER_LIST_NAME) == 0 ||
            is_stored(folder, folder->below.entry[i].name, all)) {
            folder_list_free(list);
            return tool_bad(folder->path, "has the folder %s, a name that it needs for a file: rename it",
                            folder->below.entry[i].name);
        }
    for (size_t i = 0; i < folder->files.count; i++) {
        const char *const name = folder->files.entry[i].name;
        const bool shard = is_shard(&folder->files.entry[i], all);
        list->file[i] = (struct folder_file){.name = name, .kind = shard ? FOLDER_SHARD : FOLDER_COPY};
        snprintf(stored, sizeof stored, "%s" FOLDER_EXTENSION, name);
        if (shard && strlen(stored) > SHARDS_NAME_MOST) {
            folder_list_free(list);
            return tool_bad(folder->path, "has %s, stored as " FOLDER_EXTENSION " under a name of %zu bytes: rename it",
                            name, strlen(stored));
        }
        if (shard && folder_find(folder, stored)) {
            folder_list_free(list);
            return tool_bad(folder->path, "has %s and also %s, the name that its compressed file needs", name, stored);
        }
    }
    return TOOL_OK;
}

char *folder_output_name(const char *path, const char *extension)
{
    size_t size = strlen(path);
    char *const name = malloc(size + strlen(extension) + 1);
    if (!name) {
        tool_nomem(path, "the output's name");
        return NULL;
    }
    while (size > 1 && path[size - 1] == '/')
        size--;
    memcpy(name, path, size);
    name[size] = 0;
    const char *const slash = strrchr(name, '/'), *const last = slash ? slash + 1 : name;
    if (strcmp(last, ".") != 0 && strcmp(last, "..") != 0) {
        strcpy(name + size, extension);
        return name;
    }
    free(name); /* use its name in its parent folder */
    char *const real = realpath(path, NULL);
    if (!real)
        tool_bad(path, "%s", strerror(errno));
    char *const named = real ? folder_output_name(real, extension) : NULL;
    free(real);
    return named;
}
