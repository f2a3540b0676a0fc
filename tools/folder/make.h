/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes one folder of another: files on several threads, one progress over all, one result. */
#ifndef PICI_TOOLS_FOLDER_MAKE_H
#define PICI_TOOLS_FOLDER_MAKE_H

#include "folder/folder.h"
#include "output/result.h"

struct folder_make {
    const struct folder *from;
    const struct tool_options *options;
    struct tool_options each;             /* set: options, with the threads for one file */
    struct folder_list list;              /* of the files that are made; file is the caller's */
    const char *to;                       /* set: the temporary folder */
    bool with_list;                       /* write the list too */
    bool restored;                        /* the input is the compressed one of the two */
    bool in_place;                        /* `out` may be replaced, also without --force */
    mode_t mode;                          /* permissions of the new folder; 0: those of `from` */
    int (*prepare)(struct folder_make *); /* NULL, or what takes long, before the first file: the output was checked */
    int (*make_file)(struct folder_make *, struct folder_file *); /* makes a file; runs on several threads at a time */
    void *context;                                                /* for it */
};

/* Make the folder `out_path`, whole or not at all. It must not be `from`, nor in it. */
int folder_make(struct folder_make *, const char *out_path, struct results *results);

/* Refuse an output in a folder that is read, which would then have it. */
int folder_refuse_inside(const char *input_path, const char *output_path);

/* Whether two paths are of one folder. */
bool folder_same(const char *, const char *);

/* Refuse options that are not for folders: standard output, and the removal of the input. */
int folder_refuse_options(const char *path, const struct tool_options *options);

/* Make the list of the files of a checkpoint: its .safetensors files, or if all, all that is compressed, as shards, and
 * copies of the others. Unless this fails, free it with folder_list_free. The names are the folder's. */
int folder_list_of(struct folder_list *, const struct folder *, bool all);

/* The default name of the output: path with the extension appended, without slashes at its end; of "." and "..", beside
 * the folder that these are. The caller frees it. NULL, after a message. */
char *folder_output_name(const char *path, const char *extension);

#endif
