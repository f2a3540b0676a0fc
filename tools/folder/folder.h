/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder of files as an input: a checkpoint, or a compressed one by picitool (formats/folder.md). Functions return an
 * exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_FOLDER_FOLDER_H
#define PICI_TOOLS_FOLDER_FOLDER_H

#include "input/reading.h"
#include "input/tensors.h"
#include "output/outfolder.h"
#include "output/output.h"
#include "parse/folder_list.h"
#include "parse/shards.h"

struct folder_entry {
    const char *name;
    uint64_t bytes;
    enum tool_type type; /* of a file of a checkpoint, how it is compressed: TYPE_SAFETENSORS, a shard; TYPE_RAW, a file
                            of torch's distributed checkpoints; after folder_find_torch, TYPE_PT, one of torch.save;
                            TYPE_UNSET: it is copied */
};

struct folder_names {
    struct folder_entry *entry; /* [count] their names are owned */
    size_t count, capacity;
};

struct folder {
    const char *path;
    mode_t mode;
    struct folder_names files; /* in the order of the bytes of their names */
    struct folder_names below; /* the folders below, parents first; some may have no files */
    bool made;                 /* by picitool: list is set, else index */
    struct folder_list list;   /* all files except the list match its entries, with their lengths */
    struct shards index;       /* of a checkpoint: its .safetensors files, which are files; after folder_check, their
                            tensors, of which several shards may have one of the same name */
    char **text;               /* [index.shards] owned: the names of the tensors of each; or NULL */
};

/* Whether path is a folder, or a symbolic link to one. */
bool folder_is(const char *path);

/* Read the contents of a folder and the folders below: files, and links to files, which count as files. Skips folders
 * whose names begin with a dot, such as .git; rejects links to folders. */
int folder_open(struct folder *, const char *path);

/* The entry of this name, or NULL. */
const struct folder_entry *folder_find(const struct folder *, const char *name);

/* Find the .pt, .pth and .bin files of a checkpoint that torch.save wrote with uncompressed storages. A damaged one
 * causes a warning, and is copied. */
int folder_find_torch(struct folder *);

/* The number of the shard with this name; index.shards: none. */
size_t folder_shard(const struct folder *, const char *name);

/* What keeps a shard that folder_check has opened at path. Returns an exit status. */
typedef int folder_keep(void *ctx, struct input *in, const char *path);

/* Read the headers of the shards of a checkpoint, and compare them with its indexes, if there are any: one that says
 * something else is a warning; it is an error if no shard has the tensors of a file that it names and that is missing.
 * shard [index.shards]: the shards, which the caller closes with tensors_close also after an error; or NULL. Then there
 * is no `keep` either. */
int folder_check(struct folder *, struct tensors *shard, folder_keep *keep, void *context);

/* The bytes of all original files; of all files that a compressed folder has, by its list. */
uint64_t folder_original_bytes(const struct folder *);
uint64_t folder_stored_bytes(const struct folder *);

/* Its shards, for references from one to another; none of NULL, and of a folder without any. */
struct reading_shards folder_shards(const struct folder *);

/* Refuse a folder that is not, or is, made by picitool; a compressed one or a delta. */
int folder_expect_checkpoint(const struct folder *);
int folder_expect_made(const struct folder *, bool delta);

/* What has been read of an input, or written to an output, since its input_hash or output_hash. */
struct folder_sum folder_input_sum(const struct input *);
struct folder_sum folder_output_sum(const struct output *);

/* The length and the hash of a file. Copies it to `to_path`, unless that is NULL. */
int folder_copy(const char *path, const char *to_path, struct folder_sum *);

/* The same; the file must match this sum. */
int folder_copy_as(const char *path, const char *to_path, const struct folder_sum *want);

/* Check that file NAME of a folder, or its output, has this length and hash. */
int folder_match(const char *path, const struct folder_sum *found, const struct folder_sum *want);

void folder_close(struct folder *);

#endif
