/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A file as a state: raw, .npy or .safetensors. */
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
#include "parse/npy.h"
#include "parse/safetensors.h"

struct opening {
    const char *path;
    char *why;
    int fd;
    uint64_t bytes; /* of the file */
    uint8_t *head;  /* [head_len] */
    size_t head_len;
    struct pici_state *state;
};

static enum pici_status io_failed(const struct opening *o, int e)
{
    char text[128];
    errno = e;
    return pici_why(o->why, PICI_E_IO, o->path, "%s", pici_errno_text(e, text, sizeof text));
}

static enum pici_status nomem(const struct opening *o)
{
    return pici_why(o->why, PICI_E_NOMEM, o->path, "out of memory for the descriptions of its tensors");
}

static enum pici_status malformed(const struct opening *o, const struct parse_error *err)
{
    return pici_why(o->why, PICI_E_CORRUPT, o->path, "offset %llu: %s", (unsigned long long)err->offset, err->what);
}

/* Reads the first bytes of the file to o->head, at most all. */
static enum pici_status read_head(struct opening *o, uint64_t need)
{
    const size_t len = (size_t)(need < o->bytes ? need : o->bytes);
    uint8_t *const p = realloc(o->head, len + 1);
    if (!p)
        return nomem(o);
    o->head = p;
    o->head_len = len;
    const int e = len ? pici_fd_read_at(&o->fd, p, len, 0) : 0;
    return e ? io_failed(o, e) : PICI_OK;
}

static enum pici_status make_state(struct opening *o, enum pici_state_type type)
{
    const enum pici_status s = pici_state_new(&o->state, o->path, type, o->head, o->head_len, pici_fd_read_at, NULL);
    if (s)
        return nomem(o);
    o->state->fd = o->fd;
    o->state->ctx = &o->state->fd;
    o->fd = -1; /* the state closes it */
    return PICI_OK;
}

static enum pici_status add(struct opening *o, const struct pici_tensor *t, uint64_t at)
{
    return pici_state_add(o->state, t, NULL, at) ? nomem(o) : PICI_OK;
}

/* Adds n elements at `at` that have no shape. */
static enum pici_status add_plain(struct opening *o, const char *name, enum pici_dtype dtype, uint64_t n, uint64_t at)
{
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = 1;
    t.shape = &n;
    return add(o, &t, at);
}

static enum pici_status open_raw(struct opening *o, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t tail = o->bytes % width;
    enum pici_status s = make_state(o, PICI_STATE_RAW);
    if (!s)
        s = add_plain(o, "data", dtype, o->bytes / width, 0);
    if (!s && tail)
        s = add_plain(o, "tail", PICI_U8, tail, o->bytes - tail);
    return s;
}

static enum pici_status open_npy(struct opening *o)
{
    struct parse_error err;
    struct npy n;
    uint64_t need, shape[PICI_RANK_MAX];
    struct pici_attr attrs[3];
    struct pici_tensor t = PICI_TENSOR_INIT;
    enum pici_status s = read_head(o, NPY_PREFIX_BYTES);
    if (s)
        return s;
    if (!pici_npy_header_bytes(&need, o->head, o->head_len, &err))
        return malformed(o, &err);
    s = read_head(o, need);
    if (s)
        return s;
    if (!pici_npy_parse(&n, o->head, o->head_len, o->bytes, &err))
        return malformed(o, &err);
    t.name = "data";
    t.name_len = 4;
    t.dtype = n.dtype;
    t.shape = shape;
    t.attrs = attrs;
    const bool shaped =
        pici_parse_shape(shape, &t.rank, n.shape, n.rank, n.items, n.item_elements, n.count, pici_dtype_width(n.dtype));
    attrs[t.n_attrs++] = (struct pici_attr){STATE_DTYPE, n.descr, strlen(n.descr)};
    if (n.swap)
        attrs[t.n_attrs++] = (struct pici_attr){STATE_ENDIAN, "big", 3};
    if (shaped && n.fortran_order && n.rank > 1)
        attrs[t.n_attrs++] = (struct pici_attr){STATE_ORDER, "F", 1};
    s = make_state(o, PICI_STATE_NPY);
    if (!s)
        s = add(o, &t, n.data_offset);
    if (!s && n.trailing_bytes)
        s = add_plain(o, "tail", PICI_U8, n.trailing_bytes, n.data_offset + n.data_bytes);
    return s;
}

static enum pici_status add_safetensors(struct opening *o, const struct safetensors *all)
{
    enum pici_status s = make_state(o, PICI_STATE_SAFETENSORS);
    for (size_t i = 0; i < all->count && !s; i++) {
        const struct safetensors_tensor *const from = &all->tensors[i];
        struct pici_tensor t = PICI_TENSOR_INIT;
        uint64_t shape[PICI_RANK_MAX];
        const struct pici_attr dtype = {STATE_DTYPE, from->source_dtype, strlen(from->source_dtype)};
        t.name = from->name;
        t.name_len = from->name_bytes;
        t.dtype = from->dtype;
        t.shape = shape;
        t.attrs = &dtype;
        t.n_attrs = 1;
        pici_parse_shape(shape, &t.rank, from->shape, from->rank, from->items, from->item_elements, from->count,
                         pici_dtype_width(from->dtype));
        s = add(o, &t, from->begin);
    }
    return s;
}

static enum pici_status open_safetensors(struct opening *o)
{
    struct parse_error err;
    struct safetensors all;
    uint64_t need;
    enum pici_status s = read_head(o, SAFETENSORS_PREFIX_BYTES);
    if (s)
        return s;
    if (!pici_safetensors_header_bytes(&need, o->head, o->head_len, &err))
        return malformed(o, &err);
    s = read_head(o, need);
    if (s)
        return s;
    if (!pici_safetensors_parse(&all, o->head, o->head_len, o->bytes, &err))
        return malformed(o, &err);
    s = add_safetensors(o, &all);
    pici_safetensors_free(&all);
    return s;
}

/* Opens the file and finds its length. */
static enum pici_status open_file(struct opening *o)
{
    struct stat st;
    o->fd = open(o->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (o->fd < 0 || fstat(o->fd, &st) != 0)
        return io_failed(o, errno);
    if (!S_ISREG(st.st_mode) || st.st_size <= 0)
        return pici_why(o->why, PICI_E_ARG, o->path, "is empty or not seekable: use a regular file");
    o->bytes = (uint64_t)st.st_size;
    return PICI_OK;
}

static enum pici_state_type type_of(const char *path)
{
    const char *const slash = strrchr(path, '/'), *const dot = strrchr(slash ? slash : path, '.');
    return dot && strcasecmp(dot, ".npy") == 0           ? PICI_STATE_NPY
           : dot && strcasecmp(dot, ".safetensors") == 0 ? PICI_STATE_SAFETENSORS
                                                         : PICI_STATE_RAW;
}

enum pici_status pici_state_open(struct pici_state **out, const char *path, int type, enum pici_dtype dtype, char *why)
{
    struct opening o = {.path = path, .why = why, .fd = -1};
    if (why)
        why[0] = 0;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    if (!path || type < 0 || type > PICI_STATE_SAFETENSORS)
        return PICI_E_ARG;
    if (!type)
        type = (int)type_of(path);
    if (type == PICI_STATE_RAW && !pici_dtype_width(dtype))
        return PICI_E_ARG;
    enum pici_status s = open_file(&o);
    if (!s)
        s = type == PICI_STATE_NPY           ? open_npy(&o)
            : type == PICI_STATE_SAFETENSORS ? open_safetensors(&o)
                                             : open_raw(&o, dtype);
    const int e = errno;
    if (s)
        pici_state_free(o.state);
    else
        *out = o.state;
    if (o.fd >= 0)
        close(o.fd);
    free(o.head);
    errno = e;
    return s;
}
