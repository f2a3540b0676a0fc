/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes a folder from another one: files on several threads, one progress line, one result. */
#ifndef PICI_TOOLS_FOLDER_MAKE_H
#define PICI_TOOLS_FOLDER_MAKE_H

#include "folder/folder.h"
#include "output/result.h"

struct folder_make {
    const struct folder *from;
    const struct tool_options *options;
    struct tool_options each;             /* folder_make sets it: options, with the threads for one file */
    struct folder_list list;              /* the files to make; the caller owns `file` */
    const char *to;                       /* folder_make sets it: the temporary folder */
    bool with_list;                       /* write the list too */
    bool restored;                        /* the input is the compressed folder */
    bool in_place;                        /* may replace `out`, even without --force */
    mode_t mode;                          /* permissions of the new folder; 0: as `from` has */
    int (*prepare)(struct folder_make *); /* NULL, or runs after the checks of the output and before the first file; may
                                           * take long */
    int (*make_file)(struct folder_make *, struct folder_file *); /* makes a file; several threads call it at a time */
    void *context;                                                /* the caller's */
};

/* Make the folder `out_path`, atomically. It must not be `from`, nor in it. */
int folder_make(struct folder_make *, const char *out_path, struct results *results);

/* Reject an output inside an input folder. */
int folder_refuse_inside(const char *input_path, const char *output_path);

/* Whether two paths name one folder. */
bool folder_same(const char *, const char *);

/* Reject options that folders do not support: standard output, and removal of the input. */
int folder_refuse_options(const char *path, const struct tool_options *options);

/* List the files of a checkpoint. .safetensors files are shards; with `all`, so are the other files that compress
 * packs. The rest are copies. The names are the folder's. After success, free the list with folder_list_free. */
int folder_list_of(struct folder_list *, const struct folder *, bool all);

/* The default name of the output: path without trailing slashes, and the extension. For "." and "..", uses the real
 * name of that folder. The caller frees it. NULL, after a message. */
char *folder_output_name(const char *path, const char *extension);

#endif
