/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Random access to the tensors of a raw, .npy, .safetensors or .gguf file, by name, and to uncompressed tensors of a
 * zip file; for others, only the list. Functions return an exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_INPUT_TENSORS_H
#define PICI_TOOLS_INPUT_TENSORS_H

#include "input/source.h"
#include "pici/delta_file.h"

/* The description of a tensor in little memory: there may be millions of them. */
struct tensor_at {
    uint64_t *shape;  /* [rank] */
    const char *name; /* [name_size], then a NUL; in the memory of shape */
    size_t name_size;
    const char *dtype_text;
    uint64_t offset, bytes; /* of the file */
    uint64_t count;
    enum pici_dtype dtype;
    uint8_t rank, width;
    bool big_endian, fortran, filler;
    bool in_place; /* the file has its elements uncompressed at offset; else that is not set */
    bool unnamed;  /* it is not a tensor of the original: a filler, or a storage that only views use */
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

/* Open the two files of a diff, paths[2], which must have one type that supports deltas. Close both even on an error;
 * *base and *next were {.in.fd = -1}. */
int tensors_open_pair(struct tensors *base, struct tensors *next, char *const *paths,
                      const struct tool_options *options);

/* The options of a diff, except progress. */
struct pici_diff_opts tensors_diff_opts(const struct tool_options *options);

/* The tensor of this name, or NULL. */
const struct tensor_at *tensors_find(const struct tensors *, const char *name, size_t size);

/* Bytes [from, from + bytes) of a tensor, in the file's form. */
int tensors_read(struct tensors *, const struct tensor_at *, uint64_t from, void *buffer, size_t bytes);

/* The file as a state for pici_diff_states and pici_apply_deltas, to which the list of tensors moves. It reads from the
 * file, which must stay open until the state is freed. */
int tensors_state(struct tensors *, struct pici_state **);

/* The tensor as its source gave it. Its pointers point into the list. */
struct source_tensor tensors_source(const struct tensor_at *);

/* Swap the bytes of each element of width bytes, if it is not in host order. */
void tensor_swap(bool big_endian, size_t width, void *buffer, size_t bytes);

void tensors_close(struct tensors *);

#endif
