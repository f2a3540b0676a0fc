/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Random access by name to the tensors of a raw, .npy, .safetensors or .gguf file, and to uncompressed tensors of a
 * zip file; only the list for compressed ones. Functions return an exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_INPUT_TENSORS_H
#define PICI_TOOLS_INPUT_TENSORS_H

#include "input/source.h"
#include "pici/delta_file.h"

/* A compact description of a tensor: a file may have millions of them. */
struct tensor_at {
    uint64_t *shape;  /* [rank] */
    const char *name; /* [name_size], then a NUL; shares the allocation of shape */
    size_t name_size;
    const char *dtype_text;
    uint64_t offset, bytes; /* of the file */
    uint64_t count;
    enum pici_dtype dtype;
    uint8_t rank, width;
    bool big_endian, fortran, filler;
    bool in_place; /* the file has its elements uncompressed, at offset; else offset is not set */
    bool unnamed;  /* a filler, or a storage that only views use: not a tensor of the original */
    bool viewed;   /* views lie in it */
};

struct tensors {
    struct input input;
    struct source source;
    struct tensor_at *tensor; /* [count] in the order of the file */
    size_t count, capacity;
    struct tensor_at **by_name; /* [count] */
};

/* Open a file and read the descriptions of its tensors. Rejects empty files and files that are not regular. */
int tensors_open(struct tensors *, const char *path, const struct tool_options *options);

/* Open the two files of a diff, paths[2], which must have one type that supports deltas. The caller initializes *base
 * and *next to {.input.fd = -1}, and closes both even after an error. */
int tensors_open_pair(struct tensors *base, struct tensors *next, char *const *paths,
                      const struct tool_options *options);

/* The options of a diff, except progress. */
struct pici_diff_opts tensors_diff_opts(const struct tool_options *options);

/* The tensor with this name, or NULL. */
const struct tensor_at *tensors_find(const struct tensors *, const char *name, size_t size);

/* Read bytes [from, from + bytes) of a tensor, in the file's byte order. */
int tensors_read(struct tensors *, const struct tensor_at *, uint64_t from, void *buffer, size_t bytes);

/* Make a state of the file, for pici_diff_states and pici_apply_deltas. The list of tensors moves to the state. The
 * file must stay open until the state is freed. */
int tensors_state(struct tensors *, struct pici_state **);

/* Restore the source's description of a tensor. Its pointers point into the list. */
struct source_tensor tensors_source(const struct tensor_at *);

/* Swap the bytes of each element if big_endian differs from the host's order. */
void tensor_swap(bool big_endian, size_t width, void *buffer, size_t bytes);

void tensors_close(struct tensors *);

#endif
