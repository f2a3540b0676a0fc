/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tensors of a raw, .npy or .safetensors file by name, read at random. Functions return an exit status, as those of
 * io.h. */
#ifndef PICI_TOOLS_TENSORS_H
#define PICI_TOOLS_TENSORS_H

#include "source.h"

/* What a file says of a tensor, in little memory: there may be millions of them. */
struct tensor_at {
    uint64_t *shape;  /* [rank] */
    const char *name; /* [name_len], then a NUL; in the memory of shape */
    size_t name_len;
    const char *dtype_text;
    uint64_t at, bytes; /* of the file */
    uint64_t count;
    enum pici_dtype dtype;
    uint8_t rank, width;
    bool big_endian, fortran, filler;
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

/* The tensor as its source gave it; what it points at is the list's. */
struct source_tensor tensors_source(const struct tensor_at *);

/* Reverse the bytes of each element of width bytes, if it is not in host order. */
void tensor_swap(bool big_endian, size_t width, void *buf, size_t bytes);

void tensors_close(struct tensors *);

#endif
