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

static int add(struct recursed *r, char *path)
{
    if (r->nargs == r->room) {
        const int room = 2 * r->room + 16;
        char **const bigger = realloc(r->args, (size_t)room * sizeof *bigger);
        if (!bigger) {
            free(path);
            return tool_nomem(NULL, "the list of files");
        }
        r->args = bigger;
        r->room = room;
    }
    r->args[r->nargs++] = path;
    return TOOL_OK;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int look(struct recursed *r, const char *folder, bool compress, int depth)
{
    struct dirent **entry;
    const int n = depth > DEPTH_MOST ? -1 : scandir(folder, &entry, visible, alphasort);
    if (n < 0)
        return tool_bad(folder, "%s", depth > DEPTH_MOST ? "too many folders in one another" : strerror(errno));
    int status = TOOL_OK;
    for (int i = 0; i < n; i++) {
        const size_t capacity = strlen(folder) + strlen(entry[i]->d_name) + 2;
        char *const path = status ? NULL : malloc(capacity);
        struct stat info;
        if (path)
            snprintf(path, capacity, "%s/%s", folder, entry[i]->d_name);
        else if (!status)
            status = tool_nomem(folder, "the list of files");
        free(entry[i]);
        const bool there = path && lstat(path, &info) == 0;
        if (there && S_ISREG(info.st_mode) &&
            (compress ? tool_type_of(path) != TYPE_RAW : tool_has_extension(path, ".pici"))) {
            status = add(r, path);
            continue;
        }
        if (there && S_ISDIR(info.st_mode))
            status = look(r, path, compress, depth + 1);
        free(path);
    }
    free(entry);
    return status;
}

int recurse(struct recursed *r, const struct tool_options *options, bool compress)
{
    *r = (struct recursed){.args = NULL};
    for (int i = 0; i < options->nargs; i++) {
        struct stat info;
        if (stat(options->args[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            TRY(look(r, options->args[i], compress, 0));
            continue;
        }
        char *const copy = strdup(options->args[i]);
        if (!copy)
            return tool_nomem(NULL, "the list of files");
        TRY(add(r, copy));
    }
    return TOOL_OK;
}

void recurse_free(struct recursed *r)
{
    for (int i = 0; i < r->nargs; i++)
        free(r->args[i]);
    free(r->args);
}
