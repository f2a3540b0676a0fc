/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tensors of a checkpoint in shards by name, as states for pici_diff_states and pici_apply_deltas. Functions return
 * an exit status and print the reason, as those of input.h do. */
#ifndef PICI_TOOLS_FOLDER_STATE_H
#define PICI_TOOLS_FOLDER_STATE_H

#include "folder/folder.h"
#include "pici/delta_file.h"

/* A checkpoint that is open; however many shards it has, few descriptors are. Several threads may make and read states
 * of it. */
struct checkpoint {
    struct folder folder;
    struct tensors *shard;   /* [folder.index.shards] */
    uint64_t *start;         /* [folder.index.shards] where a shard begins if all are taken as one file */
    size_t opened;           /* how many have been opened so far */
    bool rest;               /* all shards rest */
    struct pici_perms perms; /* what all of them permit */
    uint64_t bytes;          /* of all shards */
};

/* Open and check a checkpoint. rest: each shard is read by itself, and rests (input.h) until its input_wake. */
int checkpoint_open(struct checkpoint *, const char *path, bool rest);

/* Open the file `to_path` for what is made of the checkpoint and of another file, whose times it gets. */
int checkpoint_output(const struct checkpoint *, struct output *output, const char *to_path, const struct input *);

/* A state without tensors, for checkpoint_add. The caller frees it. */
int checkpoint_state(struct checkpoint *, struct pici_state **);

/* Add the tensor of this name, if the checkpoint has one, to a state. Of several, the one in the shard that is called
 * as the file, or else in the first. */
int checkpoint_add(const struct checkpoint *, struct pici_state *, const char *name, size_t size, const char *file);

/* Whether the checkpoint has a shard `file` that begins with the same head as another: its tensors then differ in
 * elements at most. */
bool checkpoint_same_head(const struct checkpoint *, const struct tensors *other, const char *file);

/* The state of shard `number` alone, with its head. The caller frees it. */
int checkpoint_shard(struct checkpoint *, size_t number, struct pici_state **);

void checkpoint_close(struct checkpoint *);

#endif
