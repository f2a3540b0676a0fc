/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads a raw, .npy, .safetensors or .pt file strictly forward: a head of bytes, then tensors whose bytes follow each
 * other to the end of the file. Head and tensors, in order, are the whole file.
 *
 *   raw          no head; "data", and "tail" for the bytes of an incomplete last element
 *   npy          the header is the head; "data", and "tail" for bytes after the array
 *   safetensors  the header is the head; tensors in the order of their bytes
 *   pt           no head; the entries that are storages, of the dtype that is asked for or u8, in the order of their
 *                bytes, and "zip", "zip.1", ... for the bytes between and after them. Not from a stream
 *
 * Raw streams and the tails of .npy streams, whose lengths are not known, become tensors of at most PICI_CHUNK_MAX
 * elements: "data", "data.1", "data.2", ... Functions return an exit status and print the reason, as those of io.h
 * do. */
#ifndef PICI_TOOLS_SOURCE_H
#define PICI_TOOLS_SOURCE_H

#include "io.h"
#include "parse/npy.h"
#include "parse/safetensors.h"
#include "tool.h"
#include "parse/zip.h"

struct source_tensor {
    const char *name; /* [name_len bytes], then a NUL; lives until the next source_next */
    size_t name_len;
    const char *dtype_text; /* the file's own word, as "<f4" or "BF16" */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX]; /* the product is count. Items of several elements, as complex numbers, add a last
                                      dimension. More than PICI_RANK_MAX dimensions become [count] */
    uint64_t count;                /* elements */
    bool big_endian;               /* in the file; source_take gives host order */
    bool fortran;                  /* the first index is the fastest */
    bool filler;                   /* bytes outside all tensors of the file */
};

struct source {
    struct input *in;
    enum tool_type type;
    uint8_t *head; /* [head_len] */
    size_t head_len;
    uint64_t tensors; /* how many; 0: not known */

    /* the position */
    enum { SOURCE_DATA, SOURCE_TAIL, SOURCE_END } stage;
    uint64_t next;             /* number of the next tensor of the stage */
    enum pici_dtype raw_dtype; /* of pt too */
    struct npy npy;
    struct safetensors safetensors;
    struct zip zip;
    size_t entry;  /* the next of zip's */
    uint64_t done; /* bytes of the file before the next tensor */
    uint64_t left; /* bytes of the current tensor not read */
    uint8_t *part; /* [part_len] what was read ahead of a stream of unknown length */
    size_t part_len, part_at;
    bool from_part;    /* source_take takes from part */
    bool part_is_last; /* the stream has ended in part */
    size_t swap_width; /* 1, or the width of the current tensor's elements if they are not in host order */
    char name[40];
};

/* Determine the type, by o->type or else by the name (raw if that tells nothing), and read the head. */
int source_open(struct source *s, struct input *in, const char *path, const struct tool_options *o);

/* Go to the next tensor. *more is false after the last. The previous one must have been read completely. */
int source_next(struct source *s, struct source_tensor *t, bool *more);

/* Read bytes of the current tensor, whole elements, to buf in host byte order. */
int source_take(struct source *s, void *buf, size_t bytes);

/* The same without a copy where possible: *p is buf, or where the bytes already are until the next call. */
int source_give(struct source *s, void *buf, size_t bytes, const uint8_t **p);

void source_close(struct source *s);

/* Describe the tensor for a .pici file. Its attributes, at most SOURCE_ATTRS, are put at attrs. The result shares t's
 * pointers. */
enum { SOURCE_ATTRS = 3 };
struct pici_tensor source_describe(const struct source_tensor *t, struct pici_attr attrs[SOURCE_ATTRS]);

bool source_host_is_big_endian(void);

/* Reverse the bytes of each element of width bytes: 1, 2, 4 or 8. */
void source_swap(void *p, size_t bytes, size_t width);

/* The same if the host is not little-endian, as raw files are. */
void source_swap_raw(void *p, size_t bytes, size_t width);

#endif
