/* SPDX-License-Identifier: BSD-3-Clause
 *
 * States: ordered sets of named tensors, in memory or read by a callback. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "delta/delta.h"
#include "file/file.h"
#include "sized.h"

enum { PIECE = 1 << 18 };

const char *pici_state_type_name(enum pici_state_type t)
{
    static const char *const names[] = {"", "raw", "npy", "safetensors"};
    return names[t];
}

enum pici_status pici_why(char *why, enum pici_status s, const char *name, const char *what, ...)
{
    const int e = errno;
    va_list args;
    if (why) {
        const int n = snprintf(why, PICI_WHY_BYTES, "%s: ", name);
        va_start(args, what);
        if (n > 0 && n < PICI_WHY_BYTES)
            vsnprintf(why + n, PICI_WHY_BYTES - (size_t)n, what, args);
        va_end(args);
    }
    errno = e;
    return s;
}

int pici_delta_threads(int asked)
{
    const long n = asked ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

enum pici_status pici_state_new(struct pici_state **out, const char *name, enum pici_state_type type, const void *head,
                                size_t head_len, pici_read_at_fn read, void *ctx)
{
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    if (!name || type < PICI_STATE_RAW || type > PICI_STATE_SAFETENSORS || (head_len && !head))
        return PICI_E_ARG;
    struct pici_state *const s = calloc(1, sizeof *s);
    if (!s)
        return PICI_E_NOMEM;
    s->name = strdup(name);
    s->head = malloc(head_len + 1);
    s->fd = -1;
    s->type = type;
    s->head_len = head_len;
    s->read = read;
    s->ctx = ctx;
    if (!s->name || !s->head) {
        pici_state_free(s);
        return PICI_E_NOMEM;
    }
    if (head_len)
        memcpy(s->head, head, head_len);
    *out = s;
    return PICI_OK;
}

/* Makes room for one more tensor. */
static enum pici_status grow(struct pici_state *s)
{
    if (s->n < s->room)
        return PICI_OK;
    const size_t room = s->room + s->room / 2 + 16;
    if (room > SIZE_MAX / sizeof *s->tensor)
        return PICI_E_NOMEM;
    struct state_tensor **const order = realloc(s->by_name, room * sizeof *order);
    if (!order)
        return PICI_E_NOMEM;
    s->by_name = order;
    struct state_tensor *const bigger = realloc(s->tensor, room * sizeof *bigger);
    if (!bigger)
        return PICI_E_NOMEM;
    s->tensor = bigger;
    s->room = room;
    return PICI_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct state_tensor *x = *(struct state_tensor *const *)a, *y = *(struct state_tensor *const *)b;
    const int order = memcmp(x->name, y->name, x->name_len < y->name_len ? x->name_len : y->name_len);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

const struct state_tensor *pici_state_find(struct pici_state *s, const char *name, size_t len)
{
    struct state_tensor wanted = {.name = name, .name_len = len}, *key = &wanted;
    if (!s->n)
        return NULL;
    for (size_t i = 0; i < s->n && !s->sorted; i++)
        s->by_name[i] = &s->tensor[i];
    if (!s->sorted)
        qsort(s->by_name, s->n, sizeof *s->by_name, by_name);
    s->sorted = true;
    struct state_tensor *const *found = bsearch(&key, s->by_name, s->n, sizeof *s->by_name, by_name);
    return found ? *found : NULL;
}

static const struct pici_attr *attr_of(const struct pici_tensor *t, const char *key)
{
    for (size_t i = 0; i < t->n_attrs; i++)
        if (t->attrs[i].key && strcmp(t->attrs[i].key, key) == 0)
            return &t->attrs[i];
    return NULL;
}

static bool attr_is(const struct pici_tensor *t, const char *key, const char *value)
{
    const struct pici_attr *const a = attr_of(t, key);
    return a && a->len == strlen(value) && memcmp(a->value, value, a->len) == 0;
}

enum pici_status pici_state_add(struct pici_state *s, const struct pici_tensor *theirs, const void *data,
                                uint64_t offset)
{
    uint64_t count;
    struct pici_tensor own = PICI_TENSOR_INIT;
    const struct pici_tensor *const t = &own;
    const enum pici_status status = s && theirs ? sized_read(&own, sizeof own, sizeof own, theirs) : PICI_E_ARG;
    if (status)
        return status;
    if ((t->name_len && !t->name) || t->rank > PICI_RANK_MAX || (t->rank && !t->shape) || (t->n_attrs && !t->attrs) ||
        (!data && !s->read))
        return PICI_E_ARG;
    const size_t width = pici_dtype_width(t->dtype), shape_bytes = t->rank * sizeof *t->shape;
    if (!width || !pici_shape_count(&count, t->rank, t->shape, width))
        return PICI_E_ARG;
    const struct pici_attr *const dtype = attr_of(t, STATE_DTYPE);
    const char *const text = dtype && dtype->len ? dtype->value : pici_dtype_name(t->dtype);
    const size_t text_len = dtype && dtype->len ? dtype->len : strlen(text);
    if (memchr(text, 0, text_len))
        return PICI_E_ARG;
    char *const copy = grow(s) ? NULL : malloc(shape_bytes + t->name_len + text_len + 1);
    if (!copy)
        return PICI_E_NOMEM;
    struct state_tensor *const to = &s->tensor[s->n];
    *to = (struct state_tensor){.shape = (uint64_t *)(void *)copy,
                                .name = copy + shape_bytes,
                                .name_len = t->name_len,
                                .dtype_text = copy + shape_bytes + t->name_len,
                                .data = data,
                                .offset = offset,
                                .bytes = count * width,
                                .count = count,
                                .dtype = t->dtype,
                                .rank = (uint8_t)t->rank,
                                .width = (uint8_t)width,
                                .big_endian = attr_is(t, STATE_ENDIAN, "big"),
                                .fortran = attr_is(t, STATE_ORDER, "F")};
    if (shape_bytes)
        memcpy(copy, t->shape, shape_bytes);
    if (t->name_len)
        memcpy(copy + shape_bytes, t->name, t->name_len);
    memcpy(copy + shape_bytes + t->name_len, text, text_len);
    copy[shape_bytes + t->name_len + text_len] = 0;
    s->sorted = false;
    s->n++;
    return PICI_OK;
}

enum pici_status pici_state_read(struct pici_state *s, const struct state_tensor *t, uint64_t from, void *buf,
                                 size_t bytes, char *why)
{
    char name[PICI_QUOTE_CAP], text[128];
    if (!bytes)
        return PICI_OK;
    if (t->data) {
        memcpy(buf, t->data + from, bytes);
        return PICI_OK;
    }
    const int e = s->read(s->ctx, buf, bytes, t->offset + from);
    if (!e)
        return PICI_OK;
    errno = e;
    return pici_why(why, PICI_E_IO, s->name, "tensor %s: %s", pici_quote(name, t->name, t->name_len),
                    pici_errno_text(e, text, sizeof text));
}

void pici_state_swap(bool big_endian, size_t width, void *buf, size_t bytes)
{
    if (big_endian != PICI_BIG_ENDIAN)
        swap_elements(buf, bytes, width);
}

enum pici_state_type pici_state_get_type(const struct pici_state *s)
{
    return s->type;
}

enum pici_status pici_state_hash(struct pici_state *s, uint64_t *bytes, uint64_t *hash, char *why)
{
    struct pici_xxh64 h;
    enum pici_status status = PICI_OK;
    if (why)
        why[0] = 0;
    if (!s || !bytes || !hash)
        return PICI_E_ARG;
    uint8_t *const piece = malloc(PIECE);
    if (!piece)
        return pici_why(why, PICI_E_NOMEM, s->name, "out of memory for a piece of it");
    pici_xxh64_init(&h, 0);
    pici_xxh64_update(&h, s->head, s->head_len);
    *bytes = s->head_len;
    for (size_t i = 0; i < s->n && !status; i++) {
        const struct state_tensor *const t = &s->tensor[i];
        *bytes += t->bytes;
        for (uint64_t at = 0, n; at < t->bytes && !status; at += n) {
            n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
            status = pici_state_read(s, t, at, piece, (size_t)n, why);
            if (!status)
                pici_xxh64_update(&h, piece, (size_t)n);
        }
    }
    *hash = pici_xxh64_digest(&h);
    free(piece);
    return status;
}

void pici_state_free(struct pici_state *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->tensor[i].shape);
    free(s->tensor);
    free(s->by_name);
    free(s->name);
    free(s->head);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
