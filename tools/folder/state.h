/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tensors of a sharded checkpoint by name, as states for pici_diff_states and pici_apply_deltas. Functions
 * return an exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_FOLDER_STATE_H
#define PICI_TOOLS_FOLDER_STATE_H

#include "folder/folder.h"
#include "pici/delta_file.h"

/* An open checkpoint. It needs few descriptors for any number of shards. Several threads may make and read
 * its states. */
struct checkpoint {
    struct folder folder;
    struct tensors *shard;   /* [folder.index.shards] */
    uint64_t *start;         /* [folder.index.shards] offset of each shard in the concatenation of all */
    size_t opened;           /* number opened so far */
    bool rest;               /* all shards rest */
    struct pici_perms perms; /* their common permissions */
    uint64_t bytes;          /* of all shards */
};

/* Open and check a checkpoint. rest: read each shard separately; it rests (input.h) until its input_wake. */
int checkpoint_open(struct checkpoint *, const char *path, bool rest);

/* Open the file `to_path` for output made from the checkpoint and another file; it gets that file's times. */
int checkpoint_output(const struct checkpoint *, struct output *output, const char *to_path, const struct input *);

/* A state without tensors, for checkpoint_add. The caller frees it. */
int checkpoint_state(struct checkpoint *, struct pici_state **);

/* Add the tensor with this name, if there is one, to a state. If several shards have one, the shard `file` takes
 * precedence, then the first shard. */
int checkpoint_add(const struct checkpoint *, struct pici_state *, const char *name, size_t size, const char *file);

/* Whether the checkpoint has a shard `file` with the same head as `other`. Then only the elements of their tensors
 * differ. */
bool checkpoint_same_head(const struct checkpoint *, const struct tensors *other, const char *file);

/* The state of shard `number` alone, with its head. The caller frees it. */
int checkpoint_shard(struct checkpoint *, size_t number, struct pici_state **);

void checkpoint_close(struct checkpoint *);

#endif
