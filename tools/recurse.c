/* SPDX-License-Identifier: BSD-3-Clause */
#define _DEFAULT_SOURCE
#include "recurse.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MOST = 64 };

static int add(struct recursed *found, char *path)
{
    if (found->nargs == found->capacity) {
        const int room = 2 * found->capacity + 16;
        char **const bigger = realloc(found->args, (size_t)room * sizeof *bigger);
        if (!bigger) {
            free(path);
            return tool_nomem(NULL, "the list of files");
        }
        found->args = bigger;
        found->capacity = room;
    }
    found->args[found->nargs++] = path;
    return TOOL_OK;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Adds the files of a folder and below it. Continues after an error. Returns the worst status. */
static int look(struct recursed *found, const char *folder, bool compress, int depth);

/* Looks at one entry of a folder. Frees `path`, or adds it to the list. */
static int look_at(struct recursed *found, char *path, bool compress, int depth)
{
    struct stat file_info;
    int status = TOOL_OK;
    const bool there = lstat(path, &file_info) == 0;
    if (!there && errno != ENOENT) /* ENOENT: it has been removed meanwhile */
        status = tool_bad(path, "%s", strerror(errno));
    if (there && S_ISREG(file_info.st_mode) &&
        (compress ? tool_type_of(path) != TYPE_RAW : tool_has_extension(path, ".pici")))
        return add(found, path);
    if (there && S_ISDIR(file_info.st_mode))
        status = look(found, path, compress, depth + 1);
    free(path);
    return status;
}

static int look(struct recursed *found, const char *folder, bool compress, int depth)
{
    struct dirent **entry;
    const int count = depth > DEPTH_MOST ? -1 : scandir(folder, &entry, visible, alphasort);
    if (count < 0)
        return tool_bad(folder, "%s", depth > DEPTH_MOST ? "folders are nested too deeply" : strerror(errno));
    int worst = TOOL_OK;
    for (int i = 0; i < count; i++) {
        const size_t capacity = strlen(folder) + strlen(entry[i]->d_name) + 2;
        char *const path = malloc(capacity);
        if (path)
            snprintf(path, capacity, "%s/%s", folder, entry[i]->d_name);
        free(entry[i]);
        const int status = path ? look_at(found, path, compress, depth) : tool_nomem(folder, "the list of files");
        worst = status > worst ? status : worst;
    }
    free(entry);
    return worst;
}

int recurse(struct recursed *found, const struct tool_options *options, bool compress)
{
    int worst = TOOL_OK;
    *found = (struct recursed){.args = NULL};
    for (int i = 0; i < options->nargs; i++) {
        struct stat file_info;
        int status;
        if (stat(options->args[i], &file_info) == 0 && S_ISDIR(file_info.st_mode)) {
            status = look(found, options->args[i], compress, 0);
        } else {
            char *const copy = strdup(options->args[i]);
            status = copy ? add(found, copy) : tool_nomem(NULL, "the list of files");
        }
        worst = status > worst ? status : worst;
    }
    return worst;
}

void recurse_free(struct recursed *found)
{
    for (int i = 0; i < found->nargs; i++)
        free(found->args[i]);
    free(found->args);
}
