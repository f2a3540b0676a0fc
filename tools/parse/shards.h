/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the index of a sharded checkpoint, such as model.safetensors.index.json. It is a JSON object with
 * "weight_map", which maps tensors to files, and "metadata", which may have "total_size", the bytes of all tensors.
 *
 * Enforces strict JSON in valid UTF-8, unique tensors, and shard names that shards_name_is_plain accepts and that end
 * in .safetensors. Skips other keys and other metadata. */
#ifndef PICI_TOOLS_PARSE_SHARDS_H
#define PICI_TOOLS_PARSE_SHARDS_H

#include "parse/parse.h"

#define SHARDS_EXTENSION ".safetensors"
#define SHARDS_INDEX ".safetensors.index.json" /* end of an index's name */

enum {
    SHARDS_TEXT_MOST = 100000000, /* bytes of an index; .safetensors headers have the same limit */
    SHARDS_NAME_MOST = 240        /* bytes of a file's name; leaves room for an extension */
};

/* A tensor and its shard. */
struct shards_tensor {
    const char *name; /* UTF-8, escapes resolved, NUL-terminated; may hold NULs and controls */
    size_t name_size;
    uint32_t shard; /* number of the shard */
};

struct shards {
    struct shards_tensor *tensor; /* [tensors] sorted by name */
    size_t tensors;
    const char **shard; /* [shards] file names, sorted by their bytes */
    size_t shards;
    bool has_total; /* the index has "total_size", an unsigned integer */
    uint64_t total;
    char *text; /* owned: the storage of all names */
};

/* Whether the name is a plain file name: 1 to SHARDS_NAME_MOST bytes of UTF-8, without '/' and hidden characters. It is
 * not "." or "..", and does not begin with ".pici-" as temporary files do. *reason: the fault, in words, or NULL. */
bool shards_name_is_plain(const char *name, size_t size, const char **reason);

/* Whether the name is a plain path to a file in a folder or its subfolders: at most SHARDS_NAME_MOST bytes, and plain
 * names between the slashes. */
bool shards_path_is_plain(const char *name, size_t size, const char **reason);

/* Parse text of `size` bytes. The caller may free it afterwards. Memory is proportional to size. False, with *error
 * set: the index breaks a rule, or memory ran out; out then needs no shards_free. */
bool shards_parse(struct shards *out, const void *text, size_t size, struct parse_error *error);

/* The first tensor with this name, or NULL. shards_find_in prefers the one in the shard, if there is one. */
const struct shards_tensor *shards_find(const struct shards *, const char *name, size_t size);
const struct shards_tensor *shards_find_in(const struct shards *, const char *name, size_t size, size_t shard);

/* Sort the tensors by name, then by shard, for the functions above. */
void shards_sort(struct shards *);

void shards_free(struct shards *);

#endif
