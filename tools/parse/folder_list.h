/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The list of the files of a folder that compress or diff made (formats/folder.md). */
#ifndef PICI_TOOLS_PARSE_FOLDER_LIST_H
#define PICI_TOOLS_PARSE_FOLDER_LIST_H

#include <stdint.h>

#include "parse/parse.h"

#define FOLDER_LIST_NAME "pici-folder"
#define FOLDER_EXTENSION ".pici" /* of the files that hold shards */
enum { FOLDER_LIST_MOST = 1 << 26 /* bytes */ };

/* How a file of the original is stored. */
enum folder_kind {
    FOLDER_COPY,  /* as it is */
    FOLDER_SHARD, /* in NAME.pici: compressed, or as a delta from the base */
    FOLDER_SAME,  /* not at all: the base has the same. In a delta only */
    FOLDER_KINDS
};

/* A whole file: its length and its XXH64. */
struct folder_sum {
    uint64_t bytes, hash;
};

struct folder_file {
    const char *name; /* shards_path_is_plain, not FOLDER_LIST_NAME; NUL-terminated */
    enum folder_kind kind;
    struct folder_sum original;
    struct folder_sum stored; /* of a shard: NAME.pici; else as original */
};

struct folder_list {
    bool delta;
    bool references;          /* tensors of shards may be references; not of a delta */
    struct folder_file *file; /* [files] in the order of the bytes of their names, no two of which are the same; nor is
                                 one a shard's name with FOLDER_EXTENSION */
    size_t files;
    char *text; /* owned: the storage of the names; or NULL */
};

/* Parse text of size bytes. On an error, error->what says what is wrong, and list needs no folder_list_free. */
bool folder_list_parse(struct folder_list *list, const char *text, size_t size, struct parse_error *error);

/* The text of a list. The caller frees it. NULL: no memory. */
char *folder_list_text(const struct folder_list *list, size_t *size);

/* The file of this name, or NULL. */
const struct folder_file *folder_list_find(const struct folder_list *list, const char *name);

/* Frees what folder_list_parse allocated. */
void folder_list_free(struct folder_list *list);

#endif
