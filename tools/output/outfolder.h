/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder as an atomic output: it is made under a temporary name beside its final one, and one rename(2) puts it in
 * place. There is one at a time. Functions that return an int return an exit status (tool.h), and have printed the
 * reason if it is not TOOL_OK. */
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

/* Begin the folder `path`, for the files of the list. mode: its permissions; its owner gets all. Rejects, with
 * TOOL_USAGE, an existing folder, unless force is set or the user agrees on a terminal. Replacing removes its contents,
 * so it must then be empty, a checkpoint, or made by picitool, and have files only in folders that the new one has too.
 * list NULL: the existing folder was the input; then only its skipped folders are rejected. */
int outfolder_open(struct outfolder *, const char *path, mode_t mode, bool force, const struct folder_list *list);

/* fsync(2), where the file system supports it. Returns -1 with errno set on an error. */
int outfolder_sync(int fd);

/* Give the folder its name, after all files in it are complete. Removes the replaced folder. */
int outfolder_commit(struct outfolder *);

/* Remove the folder, unless it has been committed. Does nothing after a failed outfolder_open. */
void outfolder_discard(struct outfolder *);

/* Whether a folder is under construction. Outputs in it need no separate removal. */
bool outfolder_is_open(void);

/* Remove the temporary folder and do nothing else, in the handler of a signal that ends the process. */
void outfolder_unlink(void);

/* FOLDER/NAME and an extension, or "". The caller frees it. NULL, after a message: no memory. */
char *folder_path(const char *folder, const char *name, const char *extension);

#endif
