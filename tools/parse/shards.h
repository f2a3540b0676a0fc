/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the index of a checkpoint in shards, as model.safetensors.index.json: a JSON object with "weight_map", which
 * says in which file each tensor is, and "metadata", which may have "total_size", the bytes of all tensors.
 *
 * All rules are enforced: strict JSON in valid UTF-8; no duplicate tensors; a shard's name is a file's name as
 * shards_name_is_plain wants it, and ends in .safetensors. Other keys, and other metadata, are skipped. */
#ifndef PICI_TOOLS_PARSE_SHARDS_H
#define PICI_TOOLS_PARSE_SHARDS_H

#include "parse/parse.h"

#define SHARDS_EXTENSION ".safetensors"
#define SHARDS_INDEX ".safetensors.index.json" /* the end of the index's name */

enum {
    SHARDS_TEXT_MOST = 100000000, /* bytes of an index, the limit of a .safetensors header too */
    SHARDS_NAME_MOST = 240        /* bytes of a file's name: there is room for an extension */
};

/* Which shard a tensor is in. */
struct shards_tensor {
    const char *name; /* UTF-8, escapes resolved, NUL-terminated; may hold NULs and controls */
    size_t name_size;
    uint32_t shard; /* its number */
};

struct shards {
    struct shards_tensor *tensor; /* [tensors] by name */
    size_t tensors;
    const char **shard; /* [shards] names of files, in the order of their bytes */
    size_t shards;
    bool has_total; /* "total_size" is there, as an unsigned integer */
    uint64_t total;
    char *text; /* owned: the storage of all names */
};

/* Whether the name is that of a file in a folder, which nothing need be escaped in: 1 to SHARDS_NAME_MOST bytes of
 * UTF-8 without '/' and hidden characters; not "." or "..", and not beginning with ".pici-", as temporary files do.
 * *reason: what is wrong, in words, or NULL. */
bool shards_name_is_plain(const char *name, size_t size, const char **reason);

/* Whether the name is that of a file in a folder or in folders below it: at most SHARDS_NAME_MOST bytes, of which each
 * part between slashes is as shards_name_is_plain wants it. */
bool shards_path_is_plain(const char *name, size_t size, const char **reason);

/* Parse text of size bytes, which may be freed afterwards. Memory is proportional to size. False, with *error set: a
 * rule is broken, or out of memory; out needs no shards_free then. */
bool shards_parse(struct shards *out, const void *text, size_t size, struct parse_error *error);

/* The first tensor of this name, or NULL. Of several, the one in the shard, if there is one. */
const struct shards_tensor *shards_find(const struct shards *, const char *name, size_t size);
const struct shards_tensor *shards_find_in(const struct shards *, const char *name, size_t size, size_t shard);

/* Sort tensors by name, and those of one name by shard, for the functions above. */
void shards_sort(struct shards *);

void shards_free(struct shards *);

#endif
