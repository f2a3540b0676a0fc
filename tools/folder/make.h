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
    struct folder_list list;              /* of the files to make; the caller owns `file` */
    const char *to;                       /* set: the temporary folder */
    bool with_list;                       /* write the list too */
    bool restored;                        /* the input is the compressed one of the two */
    bool in_place;                        /* may replace `out`, even without --force */
    mode_t mode;                          /* permissions of the new folder; 0: those of `from` */
    int (*prepare)(struct folder_make *); /* NULL, or long preparations before the first file, after checking the
                                           * output */
    int (*make_file)(struct folder_make *, struct folder_file *); /* makes a file; runs on several threads at a time */
    void *context;                                                /* for it */
};

/* Make the folder `out_path`, atomically. It must not be `from`, nor in it. */
int folder_make(struct folder_make *, const char *out_path, struct results *results);

/* Reject an output inside an input folder. */
int folder_refuse_inside(const char *input_path, const char *output_path);

/* Whether two paths name one folder. */
bool folder_same(const char *, const char *);

/* Reject options that folders do not support: standard output, and removal of the input. */
int folder_refuse_options(const char *path, const struct tool_options *options);

/* Make the list of the files of a checkpoint: its .safetensors files, or if all, all that is compressed, as shards, and
 * copies of the others. Unless this fails, free it with folder_list_free. The names are the folder's. */
int folder_list_of(struct folder_list *, const struct folder *, bool all);

/* The default name of the output: path with the extension appended, without slashes at its end; of "." and "..", beside
 * the folder that these are. The caller frees it. NULL, after a message. */
char *folder_output_name(const char *path, const char *extension);

#endif
