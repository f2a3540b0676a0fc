/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tensors that a checkpoint has more than once, in one file or several: a compressed folder stores the first, and
 * references to it (formats/folder.md). */
#ifndef PICI_TOOLS_FOLDER_TWINS_H
#define PICI_TOOLS_FOLDER_TWINS_H

#include "folder/folder.h"

enum { TWINS_BYTES_LEAST = 4096 /* of a tensor; shorter ones are stored again */ };

/* One of several tensors of the same type and bytes. */
struct twin {
    size_t file;   /* its file, by its number in the list, */
    size_t number; /* and which of that file's tensors it is, in the order of the file */
    char *name;    /* [name_size] */
    size_t name_size;
    uint64_t hash; /* XXH64 of its bytes */
    size_t first;  /* the number of the one that is stored: the first of them, in the order of files and of tensors, or
                      if views lie in some, the first of these; its own, if views lie in it */
    bool viewed;   /* views lie in it */
    uint64_t offset, bytes;
    enum pici_dtype dtype;
};

struct twins {
    struct twin *twin; /* [count] by file and number */
    size_t count;
};

/* Find the twins among the tensors of all shards of a list: by a sample of their bytes, then by the hash, and then by
 * all bytes. Free them with twins_free, also after an error. */
int twins_find(struct twins *, const struct folder *, const struct folder_list *);

/* The twin that tensor `number` of a file is, or NULL. */
const struct twin *twins_at(const struct twins *, size_t file, size_t number);

/* Whether it is a reference to another, twin->first of twins. */
bool twin_refers(const struct twins *, const struct twin *);

void twins_free(struct twins *);

#endif
