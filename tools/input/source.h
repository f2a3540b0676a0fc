/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads a raw, .npy, .safetensors, .gguf, .pt or .npz file: a head of bytes, and tensors in the order of the file.
 * Concatenated, head and tensors are the whole file; in .pt and .npz files, parts of the head precede each tensor.
 *
 *   raw          no head; "data", and "tail" for the bytes of an incomplete last element
 *   npy          the header is the head; "data", and "tail" for bytes after the array
 *   safetensors  the header is the head; tensors in the order of their bytes
 *   gguf         the header is the head; tensors in the order of their bytes, and the bytes between and after them
 *   pt, npz      as archive.h reads them from a zip file; storages that the pickle does not describe have the requested
 *                dtype, or u8. Not from a stream
 *
 * Raw streams and the tails of .npy and .gguf streams have unknown lengths. They become tensors of at most
 * PICI_CHUNK_MAX elements: "data", "data.1", "data.2", ... Functions return an exit status and print the reason, as
 * in input.h. */
#ifndef PICI_TOOLS_INPUT_SOURCE_H
#define PICI_TOOLS_INPUT_SOURCE_H

#include "input/archive.h"
#include "input/deflated.h"
#include "input/input.h"
#include "parse/gguf.h"
#include "parse/npy.h"
#include "parse/safetensors.h"
#include "tool.h"

struct source_tensor {
    const char *name; /* [name_size bytes], then a NUL; lives until the next source_next */
    size_t name_size;
    const char *title; /* for people: the name; for a storage without one, the name of a tensor in it. Lives as long as
                        * name */
    size_t title_size;
    const char *dtype_text; /* the file's name for the dtype, such as "<f4" or "BF16" */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX]; /* the product is count. Items of several elements, such as complex numbers, add a
                                    * last dimension. More than PICI_RANK_MAX dimensions become [count] */
    uint64_t count;                /* elements */
    bool big_endian;               /* the file is big-endian; source_take returns host order */
    bool fortran;                  /* the first index varies fastest */
    bool filler;                   /* bytes outside all tensors of the file */
    const char *view;              /* the original's view of these elements, in words; "" or NULL: it is no view */
    const char *npy; /* [npy_size] its .npy type, a literal, if the elements do not imply it; or NULL. Lives as long
                      * as name */
    size_t npy_size;
    char before[24];             /* bytes of the head that precede it, in digits; "": all of them */
    char deflate[DEFLATED_TEXT]; /* the attribute of deflated.h; "": not deflated */
};

struct source {
    struct input *input;
    enum tool_type type;
    uint8_t *head; /* [head_size] */
    size_t head_size;
    uint64_t tensors; /* count of tensors; 0: unknown */

    /* the position */
    enum { SOURCE_DATA, SOURCE_TAIL, SOURCE_END } stage;
    uint64_t next;             /* number of the next tensor of the stage */
    enum pici_dtype raw_dtype; /* also for .pt */
    struct npy npy;
    struct safetensors safetensors;
    struct gguf gguf;
    struct archive archive;
    const struct archive_part *archived; /* the current tensor; NULL: the file is no archive */
    size_t head_position;                /* of the head before the current tensor */
    char view[512];
    char *literal; /* the current array's type */
    uint64_t left; /* unread bytes of the current tensor */
    uint8_t *part; /* [part_size] bytes read ahead from a stream of unknown length */
    size_t part_size, part_position;
    bool from_part;    /* source_take takes from part */
    bool part_is_last; /* the stream has ended in part */
    size_t swap_width; /* 1, or the width of the current tensor's elements if they are not in host order */
    char name[GGUF_NAME_ROOM];
};

/* Determine the type by options->type, else by the name (raw if the name is unknown), and read the head. */
int source_open(struct source *source, struct input *input, const char *path, const struct tool_options *options);

/* Like source_open, for a caller that must be able to restore the exact file. Deflates each deflated tensor again, to
 * check that the bytes are the same. Rejects a file whose deflated tensors exceed the limit in total. */
int source_open_exact(struct source *source, struct input *input, const char *path, const struct tool_options *options,
                      const struct limit *);

/* Go to the next tensor. *has_more is false after the last. The previous one must have been read completely. */
int source_next(struct source *source, struct source_tensor *tensor, bool *has_more);

/* Read the next bytes of the current tensor into buffer, in host byte order: a whole number of elements. */
int source_take(struct source *source, void *buffer, size_t bytes);

/* The same without a copy where possible. *elements is buffer, or points to the bytes until the next call. */
int source_give(struct source *source, void *buffer, size_t bytes, const uint8_t **elements);

void source_close(struct source *source);

/* The name of tensors that are not tensors of the original: the attribute source.unnamed of a .pici file. NULL if there
 * are none. Valid until the next source_next. */
const char *source_unnamed(const struct source *source);

/* Describe the tensor for a .pici file, with at most SOURCE_ATTRS attributes, stored at attrs. The result shares the
 * tensor's pointers. */
enum { SOURCE_ATTRS = 6 };
struct pici_tensor source_describe(const struct source_tensor *tensor, struct pici_attr attrs[SOURCE_ATTRS]);

bool source_host_is_big_endian(void);

/* Reverse the bytes of each element of width bytes: 1, 2, 4 or 8. */
void source_swap(void *elements, size_t bytes, size_t width);

/* The same if the host is not little-endian, as raw files are. */
void source_swap_raw(void *elements, size_t bytes, size_t width);

#endif
