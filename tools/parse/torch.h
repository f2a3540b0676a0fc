/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the tensors in a pickle of torch.save: their names, and their views of storages. */
#ifndef PICI_TOOLS_PARSE_TORCH_H
#define PICI_TOOLS_PARSE_TORCH_H

#include "pici/pici.h"

#include "parse/parse.h"

enum {
    TORCH_MAX_RANK = 64,         /* as in torch */
    TORCH_MAX_METADATA = 64,     /* keys of a tensor's state bits */
    TORCH_MAX_DEPTH = 100,       /* levels of nested containers */
    TORCH_MAX_MEMORY = 128 << 20 /* bytes of all names, shapes and strides */
};

/* A tensor, or a storage outside of any tensor.
 *
 *   name      its path in the pickle: keys and indices, joined by dots, such as "optimizer.state.0.exp_avg"; "data" if
 *             it is the whole pickle. Omits the keys _parameters, _buffers and _modules of a pickled module
 *   dtype     float32 float64 float16 bfloat16, float8_e4m3fn float8_e5m2, int8 ... int64, uint8 ... uint64: the dtype
 *             of that name. bool, other float8, quantized and unknown types: u8 (qint8: i8; qint32: i32)
 *   complex   an item is two elements of f16, f32 or f64 */
struct torch_tensor {
    const char *name; /* [name_size], then a NUL */
    size_t name_size;
    const char *storage; /* [storage_size]: the storage's key, as "0". Not NUL-terminated */
    size_t storage_size;
    unsigned storage_item;    /* bytes of an item of the storage's class; the tensor's may differ */
    const char *source_dtype; /* torch's name, such as "complex64"; static */
    enum pici_dtype dtype;
    unsigned item_elements; /* elements per item: 1, or 2 for complex numbers */
    unsigned rank;
    const uint64_t *shape;   /* [rank] items */
    const uint64_t *strides; /* [rank] items */
    uint64_t offset;         /* its first item in the storage, in items */
    uint64_t items;          /* product of shape */
    uint64_t extent;         /* end of the tensor's last item in the storage, in items; 0 if it has no items */
    bool row_major;          /* the strides of a contiguous tensor */
    bool conjugate;          /* negate the imaginary parts */
    bool negative;           /* negate all numbers */
};

struct torch {
    struct torch_tensor *tensors; /* [count] in the order of the pickle */
    size_t count;
    char *names;    /* owned: the storage of all names */
    uint64_t *dims; /* owned: the storage of all shapes and strides */
};

/* Read a pickle. Lists a tensor once for each place where it occurs, but the tensors of a container only once.
 *   out    the caller frees it with torch_free, unless the result is false
 *   bytes  [size] the entry data.pkl, which must outlive out
 *   base   its offset in the file, for errors
 * False, with *error set: pickle_parse rejects the pickle, torch does not write such a tensor, a limit is exceeded, or
 * memory ran out. */
bool torch_parse(struct torch *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error);

void torch_free(struct torch *);

/* Whether the tensor's items are the first items of its storage, each once. Storage order is then row-major order of
 * the dimensions sorted by falling strides, which it writes to order [rank]. */
bool torch_is_dense(const struct torch_tensor *, unsigned order[TORCH_MAX_RANK]);

#endif
