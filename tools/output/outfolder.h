/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder as an output, which appears whole or not at all: it is made under a temporary name beside the one that it
 * gets, and one rename(2) gives it that. There is one at a time. Functions that return an int return an exit status
 * (tool.h), and have printed the reason if it is not TOOL_OK. */
#ifndef PICI_TOOLS_OUTPUT_OUTFOLDER_H
#define PICI_TOOLS_OUTPUT_OUTFOLDER_H

#include <stdbool.h>
#include <sys/types.h>

#include "parse/folder_list.h"

struct outfolder {
    const char *name; /* to show */
    char *base_name;  /* its name in parent */
    char *path;       /* of the temporary folder */
    int parent, fd;   /* descriptors of both folders; -1: closed */
    bool replaces;    /* a folder of this name is replaced */
    mode_t mode;      /* that the folder gets */
};

/* Begin the folder `path`, for the files of the list. mode: the permissions that it gets; its owner gets all. Refuses,
 * with TOOL_USAGE, an existing one unless force or the user, asked on a terminal, agrees; and then any but a folder
 * that is empty, or a checkpoint, or made by picitool, and has no files in folders but in those that the new one has
 * too, since what it has is removed. list: NULL: the existing one was read, so of its folders only those are refused
 * that were left out. */
int outfolder_open(struct outfolder *, const char *path, mode_t mode, bool force, const struct folder_list *list);

/* fsync(2), where the file system has it. Returns -1 with errno set on an error. */
int outfolder_sync(int fd);

/* Give the folder its name, after all files in it are complete. What it replaces is removed. */
int outfolder_commit(struct outfolder *);

/* Remove the folder, unless it has been committed. Does nothing after a failed outfolder_open. */
void outfolder_discard(struct outfolder *);

/* Whether a folder is being made. Outputs in it need no removal of their own. */
bool outfolder_is_open(void);

/* Remove the temporary folder and do nothing else, in a handler of a signal that ends the process. */
void outfolder_unlink(void);

/* FOLDER/NAME and an extension, or "". The caller frees it. NULL, after a message: no memory. */
char *folder_path(const char *folder, const char *name, const char *extension);

#endif
