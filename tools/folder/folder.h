/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A folder of files as an input: a checkpoint, or what picitool made of one (formats/folder.md). Functions return an
 * exit status and print the reason, as those of input.h do. */
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
    struct folder_names below; /* the folders below, those that others are in first; some may have no files */
    bool made;                 /* by picitool: list is set, else index */
    struct folder_list list;   /* all files but the list are stored as it says, and have the lengths that it says */
    struct shards index;       /* of a checkpoint: its .safetensors files, which are files; after folder_check, their
                            tensors, of which several shards may have one of the same name */
    char **text;               /* [index.shards] owned: the names of the tensors of each; or NULL */
};

/* Whether path is a folder, or a symbolic link to one. */
bool folder_is(const char *path);

/* Read what is in a folder and the folders below: files, and links to files, which count as the files. Folders whose
 * names begin with a dot, as .git, are left out; links to folders are refused. */
int folder_open(struct folder *, const char *path);

/* The entry of this name, or NULL. */
const struct folder_entry *folder_find(const struct folder *, const char *name);

/* Look into the .pt, .pth and .bin files of a checkpoint for those of torch.save whose storages are not compressed. One
 * that is damaged is a warning: it is copied. */
int folder_find_torch(struct folder *);

/* The number of the shard that is called so; index.shards: none. */
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

/* The length and the hash of a file, which is copied to `to_path`, unless that is NULL. */
int folder_copy(const char *path, const char *to_path, struct folder_sum *);

/* The same; the file must be the one of this sum. */
int folder_copy_as(const char *path, const char *to_path, const struct folder_sum *want);

/* Check that file NAME of a folder, or what is made of it, has this length and hash. */
int folder_match(const char *path, const struct folder_sum *found, const struct folder_sum *want);

void folder_close(struct folder *);

#endif
