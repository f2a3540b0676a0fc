/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A file as a state: raw, .npy, .safetensors or .gguf. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "delta/delta.h"
#include "file/file.h"
#include "parse/gguf.h"
#include "parse/npy.h"
#include "parse/safetensors.h"

struct opening {
    const char *path;
    char *reason;
    int fd;
    uint64_t bytes; /* of the file */
    uint8_t *head;  /* [head_bytes] */
    size_t head_bytes;
    struct pici_state *state;
};

static enum pici_status io_failed(const struct opening *opening, int error)
{
    char text[128];
    errno = error;
    return pici_why(opening->reason, PICI_E_IO, opening->path, "%s", pici_errno_text(error, text, sizeof text));
}

static enum pici_status nomem(const struct opening *opening)
{
    return pici_why(opening->reason, PICI_E_NOMEM, opening->path, "out of memory for the descriptions of its tensors");
}

static enum pici_status malformed(const struct opening *opening, const struct parse_error *error)
{
    return pici_why(opening->reason, error->no_memory ? PICI_E_NOMEM : PICI_E_CORRUPT, opening->path, "offset %llu: %s",
                    (unsigned long long)error->offset, error->what);
}

/* Reads the first `need` bytes of the file, or all, to opening->head. Keeps the bytes that it has already. */
static enum pici_status read_head(struct opening *opening, uint64_t need)
{
    const size_t size = (size_t)(need < opening->bytes ? need : opening->bytes), there = opening->head_bytes;
    if (size <= there)
        return PICI_OK;
    uint8_t *const p = realloc(opening->head, size + 1);
    if (!p)
        return nomem(opening);
    opening->head = p;
    opening->head_bytes = size;
    const int error = pici_fd_read_at(&opening->fd, p + there, size - there, there);
    return error ? io_failed(opening, error) : PICI_OK;
}

static enum pici_status make_state(struct opening *opening, enum pici_state_type type)
{
    const enum pici_status status =
        pici_state_new(&opening->state, opening->path, type, opening->head, opening->head_bytes, pici_fd_read_at, NULL);
    if (status)
        return nomem(opening);
    opening->state->fd = opening->fd;
    opening->state->context = &opening->state->fd;
    opening->fd = -1; /* the state closes it */
    return PICI_OK;
}

static enum pici_status add(struct opening *opening, const struct pici_tensor *tensor, uint64_t offset)
{
    return pici_state_add(opening->state, tensor, NULL, offset) ? nomem(opening) : PICI_OK;
}

/* Adds count elements without a shape, which begin at the offset. */
static enum pici_status add_plain(struct opening *opening, const char *name, enum pici_dtype dtype, uint64_t count,
                                  uint64_t offset)
{
    struct pici_tensor tensor = PICI_TENSOR_INIT;
    tensor.name = name;
    tensor.name_len = strlen(name);
    tensor.dtype = dtype;
    tensor.rank = 1;
    tensor.shape = &count;
    return add(opening, &tensor, offset);
}

static enum pici_status open_raw(struct opening *opening, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t tail = opening->bytes % width;
    enum pici_status status = make_state(opening, PICI_STATE_RAW);
    if (!status)
        status = add_plain(opening, "data", dtype, opening->bytes / width, 0);
    if (!status && tail)
        status = add_plain(opening, "tail", PICI_U8, tail, opening->bytes - tail);
    return status;
}

static enum pici_status open_npy(struct opening *opening)
{
    struct parse_error error;
    struct npy npy;
    uint64_t need, shape[PICI_RANK_MAX];
    struct pici_attr attributes[3];
    struct pici_tensor tensor = PICI_TENSOR_INIT;
    enum pici_status status = read_head(opening, NPY_PREFIX_BYTES);
    if (status)
        return status;
    if (!pici_npy_header_bytes(&need, opening->head, opening->head_bytes, &error))
        return malformed(opening, &error);
    status = read_head(opening, need);
    if (status)
        return status;
    if (!pici_npy_parse(&npy, opening->head, opening->head_bytes, opening->bytes, &error))
        return malformed(opening, &error);
    tensor.name = "data";
    tensor.name_len = 4;
    tensor.dtype = npy.dtype;
    tensor.shape = shape;
    tensor.attrs = attributes;
    const bool shaped = pici_parse_shape(shape, &tensor.rank, npy.shape, npy.rank, npy.items, npy.item_elements,
                                         npy.count, pici_dtype_width(npy.dtype));
    attributes[tensor.n_attrs++] = (struct pici_attr){STATE_DTYPE, npy.descr, strlen(npy.descr)};
    if (npy.swap)
        attributes[tensor.n_attrs++] = (struct pici_attr){STATE_ENDIAN, "big", 3};
    if (shaped && npy.fortran_order && npy.rank > 1)
        attributes[tensor.n_attrs++] = (struct pici_attr){STATE_ORDER, "F", 1};
    status = make_state(opening, PICI_STATE_NPY);
    if (!status)
        status = add(opening, &tensor, npy.data_offset);
    if (!status && npy.trailing_bytes)
        status = add_plain(opening, "tail", PICI_U8, npy.trailing_bytes, npy.data_offset + npy.data_bytes);
    return status;
}

static enum pici_status add_safetensors(struct opening *opening, const struct safetensors *all)
{
    enum pici_status status = make_state(opening, PICI_STATE_SAFETENSORS);
    for (size_t i = 0; i < all->count && !status; i++) {
        const struct safetensors_tensor *const from = &all->tensors[i];
        struct pici_tensor tensor = PICI_TENSOR_INIT;
        uint64_t shape[PICI_RANK_MAX];
        const struct pici_attr dtype = {STATE_DTYPE, from->source_dtype, strlen(from->source_dtype)};
        tensor.name = from->name;
        tensor.name_len = from->name_bytes;
        tensor.dtype = from->dtype;
        tensor.shape = shape;
        tensor.attrs = &dtype;
        tensor.n_attrs = 1;
        pici_safetensors_shape(from, shape, &tensor.rank);
        status = add(opening, &tensor, from->begin);
    }
    return status;
}

static enum pici_status open_safetensors(struct opening *opening)
{
    struct parse_error error;
    struct safetensors all;
    uint64_t need;
    enum pici_status status = read_head(opening, SAFETENSORS_PREFIX_BYTES);
    if (status)
        return status;
    if (!pici_safetensors_header_bytes(&need, opening->head, opening->head_bytes, &error))
        return malformed(opening, &error);
    status = read_head(opening, need);
    if (status)
        return status;
    if (!pici_safetensors_parse(&all, opening->head, opening->head_bytes, opening->bytes, &error))
        return malformed(opening, &error);
    status = add_safetensors(opening, &all);
    pici_safetensors_free(&all);
    return status;
}

static enum pici_status add_gguf(struct opening *opening, const struct gguf *all)
{
    enum pici_status status = make_state(opening, PICI_STATE_GGUF);
    for (size_t i = 0; i < all->count && !status; i++) {
        const struct gguf_tensor *const from = &all->tensors[i];
        struct pici_tensor tensor = PICI_TENSOR_INIT;
        char filler[GGUF_NAME_ROOM];
        uint64_t shape[PICI_RANK_MAX];
        const struct pici_attr attributes[] = {{STATE_DTYPE, from->source_dtype, strlen(from->source_dtype)},
                                               {STATE_ENDIAN, "big", 3}};
        tensor.name = from->name ? from->name : pici_gguf_filler(all, from->number, filler);
        tensor.name_len = from->name ? from->name_bytes : strlen(filler);
        tensor.dtype = from->dtype;
        pici_parse_shape(shape, &tensor.rank, from->shape, from->rank, from->count, 1, from->count,
                         pici_dtype_width(from->dtype));
        tensor.shape = shape;
        tensor.attrs = attributes;
        tensor.n_attrs = all->big_endian && pici_dtype_width(from->dtype) > 1 ? 2 : 1;
        status = add(opening, &tensor, from->begin);
    }
    return status;
}

static enum pici_status open_gguf(struct opening *opening)
{
    struct parse_error error;
    struct gguf_scan scan = {0};
    struct gguf all;
    uint64_t need = 0;
    do {
        const enum pici_status status = read_head(opening, need);
        if (status)
            return status;
        if (!pici_gguf_header_bytes(&scan, &need, opening->head, opening->head_bytes, &error))
            return malformed(opening, &error);
    } while (need > opening->head_bytes);
    if (!pici_gguf_parse(&all, &scan, opening->head, opening->bytes, &error))
        return malformed(opening, &error);
    const enum pici_status status = add_gguf(opening, &all);
    pici_gguf_free(&all);
    return status;
}

/* Opens the file and finds its length. */
static enum pici_status open_file(struct opening *opening)
{
    struct stat found;
    opening->fd = open(opening->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (opening->fd < 0 || fstat(opening->fd, &found) != 0)
        return io_failed(opening, errno);
    if (S_ISDIR(found.st_mode))
        return pici_why(opening->reason, PICI_E_ARG, opening->path, "is a directory");
    if (!S_ISREG(found.st_mode) || found.st_size <= 0)
        return pici_why(opening->reason, PICI_E_ARG, opening->path, "is empty or not seekable: use a regular file");
    opening->bytes = (uint64_t)found.st_size;
    return PICI_OK;
}

static enum pici_state_type type_of(const char *path)
{
    const char *const slash = strrchr(path, '/'), *const dot = strrchr(slash ? slash : path, '.');
    if (dot && strcasecmp(dot, ".npy") == 0)
        return PICI_STATE_NPY;
    if (dot && strcasecmp(dot, ".gguf") == 0)
        return PICI_STATE_GGUF;
    return dot && strcasecmp(dot, ".safetensors") == 0 ? PICI_STATE_SAFETENSORS : PICI_STATE_RAW;
}

static enum pici_status open_as(struct opening *opening, int type, enum pici_dtype dtype)
{
    switch (type) {
    case PICI_STATE_NPY: return open_npy(opening);
    case PICI_STATE_SAFETENSORS: return open_safetensors(opening);
    case PICI_STATE_GGUF: return open_gguf(opening);
    default: return open_raw(opening, dtype);
    }
}

enum pici_status pici_state_open(struct pici_state **output, const char *path, int type, enum pici_dtype dtype,
                                 char *reason)
{
    struct opening opening = {.path = path, .reason = reason, .fd = -1};
    if (reason)
        reason[0] = 0;
    if (!output)
        return PICI_E_ARG;
    *output = NULL;
    if (!path || type < 0 || type > PICI_STATE_GGUF)
        return PICI_E_ARG;
    if (!type)
        type = (int)type_of(path);
    if (type == PICI_STATE_RAW && !pici_dtype_width(dtype))
        return PICI_E_ARG;
    enum pici_status status = open_file(&opening);
    if (!status)
        status = open_as(&opening, type, dtype);
    const int error = errno;
    if (status)
        pici_state_free(opening.state);
    else
        *output = opening.state;
    if (opening.fd >= 0)
        close(opening.fd);
    free(opening.head);
    errno = error;
    return status;
}
