/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The list of files in a folder that compress or diff made (formats/folder.md). */
#ifndef PICI_TOOLS_PARSE_FOLDER_LIST_H
#define PICI_TOOLS_PARSE_FOLDER_LIST_H

#include <stdint.h>

#include "parse/parse.h"

#define FOLDER_LIST_NAME "pici-folder"
#define FOLDER_EXTENSION ".pici" /* extension of the files that store shards */
enum { FOLDER_LIST_MOST = 1 << 26 /* bytes */ };

/* How a file of the original is stored. */
enum folder_kind {
    FOLDER_COPY,  /* unchanged */
    FOLDER_SHARD, /* in NAME.pici: compressed, or as a delta from the base */
    FOLDER_SAME,  /* not stored: the base has the same file. Only in a delta */
    FOLDER_KINDS
};

/* Length and XXH64 of a whole file. */
struct folder_sum {
    uint64_t bytes, hash;
};

struct folder_file {
    const char *name; /* shards_path_is_plain, not FOLDER_LIST_NAME; NUL-terminated */
    enum folder_kind kind;
    struct folder_sum original;
    struct folder_sum stored; /* a shard: of NAME.pici; else equal to original */
};

struct folder_list {
    bool delta;
    bool references;          /* tensors of shards may be references; false for a delta */
    struct folder_file *file; /* [files] sorted by the bytes of their names, without duplicates. No name is a shard's
                               * name plus FOLDER_EXTENSION */
    size_t files;
    char *text; /* owned: the storage of the names; or NULL */
};

/* Parse text of `size` bytes. On an error, error->what has the reason, and list needs no folder_list_free. */
bool folder_list_parse(struct folder_list *list, const char *text, size_t size, struct parse_error *error);

/* The text of a list. The caller frees it. NULL: no memory. */
char *folder_list_text(const struct folder_list *list, size_t *size);

/* The file with this name, or NULL. */
const struct folder_file *folder_list_find(const struct folder_list *list, const char *name);

/* Frees what folder_list_parse allocated. */
void folder_list_free(struct folder_list *list);

#endif
