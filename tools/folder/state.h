/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tensors of a checkpoint in shards by name, as states for pici_diff_states and pici_apply_deltas. Functions return
 * an exit status and print the reason, as those of input.h do. */
#ifndef PICI_TOOLS_FOLDER_STATE_H
#define PICI_TOOLS_FOLDER_STATE_H

#include "folder/folder.h"
#include "pici/delta_file.h"

/* A checkpoint that is open. Several threads may make and read states of it. */
struct checkpoint {
    struct folder f;
    struct tensors *shard; /* [f.index.shards] */
    uint64_t *start;       /* [f.index.shards] where a shard begins if all are taken as one file */
    int *fd;               /* [f.index.shards + 1]: their descriptors; the last one is the caller's */
    uint64_t bytes;        /* of all shards */
};

/* Open and check a checkpoint. */
int checkpoint_open(struct checkpoint *, const char *path);

/* A state without tensors, for checkpoint_add. The caller frees it. */
int checkpoint_state(struct checkpoint *, struct pici_state **);

/* Add the tensor of this name, if the checkpoint has one, to a state. */
int checkpoint_add(const struct checkpoint *, struct pici_state *, const char *name, size_t len);

void checkpoint_close(struct checkpoint *);

#endif
