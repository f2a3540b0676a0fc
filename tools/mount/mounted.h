/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The content of a mount: the original files of a compressed folder, or of one .pici file, as nodes of a file system.
 * Several threads may read. */
#ifndef PICI_TOOLS_MOUNT_MOUNTED_H
#define PICI_TOOLS_MOUNT_MOUNTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "tool.h"

struct mounted_node {
    const char *path; /* from the root, which is "" */
    bool is_folder;
    uint64_t bytes;
    struct timespec changed;
    size_t file; /* its number among the stored files */
};

struct mounted;

/* Open the folder or file at path. cache: bytes of chunks to keep. Returns an exit status, and has printed the reason
 * if it is not TOOL_OK. */
int mounted_open(struct mounted **, const char *path, uint64_t cache);

/* The nodes, sorted by the bytes of their paths. Node 0 is the root. */
size_t mounted_count(const struct mounted *);
const struct mounted_node *mounted_node(const struct mounted *, size_t node);
uint64_t mounted_bytes(const struct mounted *);

/* Find the node with this name in a folder. False: there is none. */
bool mounted_find(const struct mounted *, size_t folder, const char *name, size_t *node);

/* Find the next child of `folder` after the node `after`; start with after = folder. *name points into its path. False:
 * there is none. */
bool mounted_next(const struct mounted *, size_t folder, size_t after, size_t *node, const char **name);

/* The parent folder of a node; for the root, the root. */
size_t mounted_parent(const struct mounted *, size_t node);

/* Prepare a file for reading; check the hash of a file that is stored as a copy. These functions return 0 or an errno
 * value. For damaged data, they return EIO, and print a line with file and tensor, once. */
int mounted_start(struct mounted *, size_t node);
int mounted_read(struct mounted *, size_t node, void *buffer, uint64_t offset, size_t size, size_t *received);

void mounted_close(struct mounted *);

#endif
