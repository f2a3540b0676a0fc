/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder of files as an input: a checkpoint, or a folder that picitool made (formats/folder.md). Functions return
 * an exit status and print the reason, as in input.h. */
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
    enum tool_type type; /* how compress stores a file of a checkpoint. TYPE_SAFETENSORS: as a shard. TYPE_RAW: it is
                          * from torch's distributed checkpoints. TYPE_PT: it is from torch.save; folder_find_torch sets
                          * this. TYPE_UNSET: as a copy */
};

struct folder_names {
    struct folder_entry *entry; /* [count] owns the names */
    size_t count, capacity;
};

struct folder {
    const char *path;
    mode_t mode;
    struct folder_names files; /* sorted by the bytes of their names */
    struct folder_names below; /* subfolders, parents first; some may have no files */
    bool made;                 /* picitool made the folder: list is set, else index */
    struct folder_list list;   /* matches the files on disk, except the list itself, and their lengths */
    struct shards index;       /* of a checkpoint: its .safetensors files, which `files` has too. After folder_check,
                                * also their tensors; several shards may have a tensor of one name */
    char **text;               /* [index.shards] owned: the names of each shard's tensors; or NULL */
};

/* Whether path is a folder, or a symbolic link to one. */
bool folder_is(const char *path);

/* Read the names of the files in a folder and its subfolders. A link to a file counts as a file. Skips folders whose
 * names begin with a dot, such as .git; rejects links to folders. */
int folder_open(struct folder *, const char *path);

/* The entry with this name, or NULL. */
const struct folder_entry *folder_find(const struct folder *, const char *name);

/* Find the .pt, .pth and .bin files of a checkpoint that torch.save wrote with uncompressed storages. A damaged file
 * causes a warning and becomes a copy. */
int folder_find_torch(struct folder *);

/* The number of the shard with this name; index.shards: none. */
size_t folder_shard(const struct folder *, const char *name);

/* Receives each shard that folder_check has opened at path. Returns an exit status. */
typedef int folder_keep(void *ctx, struct input *in, const char *path);

/* Read the headers of a checkpoint's shards, and compare them with its indexes, if it has any. An outdated index causes
 * a warning. An index that names a missing file is an error, unless another shard has the tensors of that file. shard
 * [index.shards]: receives the open shards, which the caller closes with tensors_close, also after an error. NULL:
 * folder_check closes them, and `keep` is not called. */
int folder_check(struct folder *, struct tensors *shard, folder_keep *keep, void *context);

/* The bytes of all original files; the bytes of all files that the list of a compressed folder names. */
uint64_t folder_original_bytes(const struct folder *);
uint64_t folder_stored_bytes(const struct folder *);

/* The shards that references may lead to. Empty for NULL, and for a folder without references. */
struct reading_shards folder_shards(const struct folder *);

/* Reject a folder that picitool made; reject a folder that is not, by `delta`, a delta or a compressed folder. */
int folder_expect_checkpoint(const struct folder *);
int folder_expect_made(const struct folder *, bool delta);

/* The length and hash of the bytes read or written since input_hash or output_hash. */
struct folder_sum folder_input_sum(const struct input *);
struct folder_sum folder_output_sum(const struct output *);

/* Find the length and hash of a file. Copies it to `to_path`, unless that is NULL. */
int folder_copy(const char *path, const char *to_path, struct folder_sum *);

/* The same, and reject a file that does not match `want`. */
int folder_copy_as(const char *path, const char *to_path, const struct folder_sum *want);

/* Check that the file at path, or the output for it, has this length and hash. */
int folder_match(const char *path, const struct folder_sum *found, const struct folder_sum *want);

void folder_close(struct folder *);

#endif
