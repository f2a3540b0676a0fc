/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tensors of a raw, .npy or .safetensors file by name, read at random. Functions return an exit status, as those of
 * io.h. */
#ifndef PICI_TOOLS_TENSORS_H
#define PICI_TOOLS_TENSORS_H

#include "source.h"

struct tensor_at {
    struct source_tensor t;
    uint64_t at, bytes; /* of the file */
    size_t width;
};

struct tensors {
    struct input in;
    struct source source;
    struct tensor_at *tensor; /* [n] in the order of the file */
    size_t n, room;
    struct tensor_at **by_name; /* [n] */
};

/* Open, and read what describes the tensors. What is not a regular file, or is empty, is refused. */
int tensors_open(struct tensors *, const char *path, const struct tool_options *o);

/* The tensor of this name, or NULL. */
const struct tensor_at *tensors_find(const struct tensors *, const char *name, size_t len);

/* Bytes [from, from + bytes) of a tensor, as they are in the file. */
int tensors_read(struct tensors *, const struct tensor_at *, uint64_t from, void *buf, size_t bytes);

/* Reverse the elements of such bytes if the file's are not in host order. */
void tensor_swap(const struct source_tensor *, void *buf, size_t bytes);

void tensors_close(struct tensors *);

#endif
