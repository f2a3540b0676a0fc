/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tensors that a checkpoint has more than once, in one file or several. A compressed folder stores the first, and
 * references to it (formats/folder.md). */
#ifndef PICI_TOOLS_FOLDER_TWINS_H
#define PICI_TOOLS_FOLDER_TWINS_H

#include "folder/folder.h"

enum { TWINS_BYTES_LEAST = 4096 /* of a tensor; compress stores shorter ones each time */ };

/* One of several tensors of the same type and bytes. */
struct twin {
    size_t file;   /* its file's number in the list */
    size_t number; /* its number among the tensors of the file, in file order */
    char *name;    /* [name_size] */
    size_t name_size;
    uint64_t hash; /* XXH64 of its bytes */
    size_t first;  /* the index of the twin that is stored: the first one with views, else the first one, in the order
                    * of files and tensors. A twin with views is stored itself */
    bool viewed;   /* views lie in it */
    uint64_t offset, bytes;
    enum pici_dtype dtype;
};

struct twins {
    struct twin *twin; /* [count] sorted by file and number */
    size_t count;
};

/* Find the twins among the tensors of all shards of a list: by a sample of their bytes, then by hash, then by all
 * bytes. Free them with twins_free, also after an error. */
int twins_find(struct twins *, const struct folder *, const struct folder_list *);

/* The twin for tensor `number` of a file, or NULL. */
const struct twin *twins_at(const struct twins *, size_t file, size_t number);

/* Whether the twin is stored as a reference, to twin->first. */
bool twin_refers(const struct twins *, const struct twin *);

void twins_free(struct twins *);

#endif
