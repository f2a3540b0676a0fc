/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder as an atomic output. It is made under a temporary name beside its final one, then renamed. Only one is open
 * at a time. Functions that return an int return an exit status (tool.h), and have printed the reason if it is not
 * TOOL_OK. */
#ifndef PICI_TOOLS_OUTPUT_OUTFOLDER_H
#define PICI_TOOLS_OUTPUT_OUTFOLDER_H

#include <stdbool.h>
#include <sys/types.h>

#include "parse/folder_list.h"

struct outfolder {
    const char *name; /* to show */
    char *base_name;  /* its name in parent */
    char *path;       /* path of the temporary folder */
    int parent, fd;   /* descriptors of both folders; -1: closed */
    bool unreadable;  /* parent may be written but not read, so it cannot be synced */
    bool replaces;    /* it replaces a folder of this name */
    mode_t mode;      /* permissions of the final folder */
};

/* Begin the folder `path`, for the files of the list. mode: its permissions; the owner gets all. Rejects an existing
 * folder with TOOL_USAGE, unless force is set or the user agrees on a terminal. A replaced folder must be empty, a
 * checkpoint, or made by picitool; all of its files must be in folders that the new one has too. list NULL: the
 * existing folder is the input; then only skipped folders in it are rejected. */
int outfolder_open(struct outfolder *, const char *path, mode_t mode, bool force, const struct folder_list *list);

/* fsync(2), where the file system supports it. Returns -1 with errno set on an error. */
int outfolder_sync(int fd);

/* Rename the folder to its final name, after all files in it are complete. Removes the replaced folder. */
int outfolder_commit(struct outfolder *);

/* Remove the folder, unless it has been committed. Does nothing after a failed outfolder_open. */
void outfolder_discard(struct outfolder *);

/* Whether a folder is under construction. Outputs in it need no separate removal. */
bool outfolder_is_open(void);

/* Remove the temporary folder. For the handler of a signal that ends the process. */
void outfolder_unlink(void);

/* FOLDER/NAME and an extension, or "". The caller frees it. NULL, after a message: no memory. */
char *folder_path(const char *folder, const char *name, const char *extension);

#endif
