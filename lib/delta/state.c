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
#include "parse/parse.h"
#include "pici/delta.h"
#include "sized.h"

const char *pici_state_type_name(enum pici_state_type type)
{
    static const char *const names[] = {"", "raw", "npy", "safetensors", "gguf"};
    return names[type];
}

enum pici_status pici_why(char *reason, enum pici_status status, const char *name, const char *what, ...)
{
    const int error = errno;
    va_list args;
    if (reason) {
        const int printed = snprintf(reason, PICI_WHY_BYTES, "%s: ", name);
        va_start(args, what);
        if (printed > 0 && printed < PICI_WHY_BYTES)
            vsnprintf(reason + printed, PICI_WHY_BYTES - (size_t)printed, what, args);
        va_end(args);
    }
    errno = error;
    return status;
}

int pici_delta_threads(int asked)
{
    const long threads = asked ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return threads > 0 ? (int)threads : 1;
}

enum pici_status pici_state_new(struct pici_state **output, const char *name, enum pici_state_type type,
                                const void *head, size_t head_len, pici_read_at_fn read, void *context)
{
    if (!output)
        return PICI_E_ARG;
    *output = NULL;
    if (!name || type < PICI_STATE_RAW || type > PICI_STATE_GGUF || (head_len && !head))
        return PICI_E_ARG;
    struct pici_state *const state = calloc(1, sizeof *state);
    if (!state)
        return PICI_E_NOMEM;
    state->name = strdup(name);
    state->head = malloc(head_len + 1);
    state->fd = -1;
    state->type = type;
    state->head_bytes = head_len;
    state->read = read;
    state->context = context;
    if (!state->name || !state->head) {
        pici_state_free(state);
        return PICI_E_NOMEM;
    }
    if (head_len)
        memcpy(state->head, head, head_len);
    *output = state;
    return PICI_OK;
}

/* Makes room for one more tensor. */
static enum pici_status grow(struct pici_state *state)
{
    if (state->count < state->capacity)
        return PICI_OK;
    const size_t capacity = state->capacity + state->capacity / 2 + 16;
    if (capacity > SIZE_MAX / sizeof *state->tensors)
        return PICI_E_NOMEM;
    struct state_tensor **const order = realloc(state->by_name, capacity * sizeof *order);
    if (!order)
        return PICI_E_NOMEM;
    state->by_name = order;
    struct state_tensor *const bigger = realloc(state->tensors, capacity * sizeof *bigger);
    if (!bigger)
        return PICI_E_NOMEM;
    state->tensors = bigger;
    state->capacity = capacity;
    return PICI_OK;
}

static int by_name(const void *left, const void *right)
{
    const struct state_tensor *first = *(struct state_tensor *const *)left,
                              *second = *(struct state_tensor *const *)right;
    return pici_parse_order(first->name, first->name_bytes, second->name, second->name_bytes);
}

struct state_tensor **pici_state_by_name(struct pici_state *state)
{
    for (size_t i = 0; i < state->count && !state->sorted; i++)
        state->by_name[i] = &state->tensors[i];
    if (!state->sorted && state->count)
        qsort(state->by_name, state->count, sizeof *state->by_name, by_name);
    state->sorted = true;
    return state->by_name;
}

uint64_t pici_state_number(struct pici_state *state, const char *name, size_t size)
{
    struct state_tensor wanted = {.name = name, .name_bytes = size}, *key = &wanted;
    if (!state->count)
        return UINT64_MAX;
    struct state_tensor *const *const ordered = pici_state_by_name(state), *const *const found =
                                                                               bsearch(&key, ordered, state->count,
                                                                                       sizeof *ordered, by_name);
    return found ? (uint64_t)(found - ordered) : UINT64_MAX;
}

const struct state_tensor *pici_state_find(struct pici_state *state, const char *name, size_t size)
{
    const uint64_t number = pici_state_number(state, name, size);
    return number == UINT64_MAX ? NULL : state->by_name[number];
}

static const struct pici_attr *attr_of(const struct pici_tensor *tensor, const char *key)
{
    for (size_t i = 0; i < tensor->n_attrs; i++)
        if (tensor->attrs[i].key && strcmp(tensor->attrs[i].key, key) == 0)
            return &tensor->attrs[i];
    return NULL;
}

static bool attr_is(const struct pici_tensor *tensor, const char *key, const char *value)
{
    const struct pici_attr *const attribute = attr_of(tensor, key);
    return attribute && attribute->len == strlen(value) && memcmp(attribute->value, value, attribute->len) == 0;
}

/* A part of a tensor: its elements [first, first + count); or, if row is not 0, columns [first, first + columns) of
 * each row of `row` elements. */
struct part {
    uint64_t first, count, row, columns;
    bool is_of; /* the tensor has `of` elements: */
    uint64_t of;
};

static enum pici_status add(struct pici_state *state, const struct pici_tensor *theirs, const void *data,
                            uint64_t offset, const struct part *part)
{
    uint64_t count;
    struct pici_tensor copied = PICI_TENSOR_INIT;
    const struct pici_tensor *const tensor = &copied;
    const enum pici_status status =
        state && theirs ? sized_read(&copied, sizeof copied, sizeof copied, theirs) : PICI_E_ARG;
    if (status)
        return status;
    if ((tensor->name_len && !tensor->name) || tensor->rank > PICI_RANK_MAX || (tensor->rank && !tensor->shape) ||
        (tensor->n_attrs && !tensor->attrs) || (!data && !state->read))
        return PICI_E_ARG;
    const size_t width = pici_dtype_width(tensor->dtype), shape_bytes = tensor->rank * sizeof *tensor->shape;
    if (!width || !pici_shape_count(&count, tensor->rank, tensor->shape, width))
        return PICI_E_ARG;
    if (part && !part->row && (part->count > count || part->first > count - part->count))
        return PICI_E_ARG;
    if (part && part->is_of && part->of != count)
        return PICI_E_ARG;
    const struct pici_attr *const dtype = attr_of(tensor, STATE_DTYPE);
    const char *const text = dtype && dtype->len ? dtype->value : pici_dtype_name(tensor->dtype);
    const size_t text_len = dtype && dtype->len ? dtype->len : strlen(text);
    if (memchr(text, 0, text_len))
        return PICI_E_ARG;
    char *const copy = grow(state) ? NULL : malloc(shape_bytes + tensor->name_len + text_len + 1);
    if (!copy)
        return PICI_E_NOMEM;
    struct state_tensor *const added = &state->tensors[state->count];
    *added = (struct state_tensor){.shape = (uint64_t *)(void *)copy,
                                   .name = copy + shape_bytes,
                                   .name_bytes = tensor->name_len,
                                   .dtype_text = copy + shape_bytes + tensor->name_len,
                                   .data = data,
                                   .offset = offset,
                                   .bytes = (part ? part->count : count) * width,
                                   .count = part ? part->count : count,
                                   .first = part ? part->first : 0,
                                   .of = count,
                                   .row = part ? part->row : 0,
                                   .columns = part ? part->columns : 0,
                                   .dtype = tensor->dtype,
                                   .rank = (uint8_t)tensor->rank,
                                   .width = (uint8_t)width,
                                   .big_endian = attr_is(tensor, STATE_ENDIAN, "big"),
                                   .fortran = attr_is(tensor, STATE_ORDER, "F"),
                                   .flat = part && !part->row && tensor->rank == 1};
    if (shape_bytes)
        memcpy(copy, tensor->shape, shape_bytes);
    if (tensor->name_len)
        memcpy(copy + shape_bytes, tensor->name, tensor->name_len);
    memcpy(copy + shape_bytes + tensor->name_len, text, text_len);
    copy[shape_bytes + tensor->name_len + text_len] = 0;
    state->sorted = false;
    state->parts |= added->count != added->of || added->flat;
    state->count++;
    return PICI_OK;
}

enum pici_status pici_state_add(struct pici_state *state, const struct pici_tensor *tensor, const void *data,
                                uint64_t offset)
{
    return add(state, tensor, data, offset, NULL);
}

enum pici_status pici_state_add_part(struct pici_state *state, const struct pici_tensor *tensor, const void *data,
                                     uint64_t first, uint64_t n)
{
    const struct part part = {.first = first, .count = n};
    return data ? add(state, tensor, data, 0, &part) : PICI_E_ARG;
}

enum pici_status pici_state_add_columns(struct pici_state *state, const struct pici_tensor *tensor, const void *data,
                                        const struct pici_columns *theirs)
{
    struct pici_columns columns = PICI_COLUMNS_INIT;
    const enum pici_status status =
        theirs && data ? sized_read(&columns, sizeof columns, sizeof columns, theirs) : PICI_E_ARG;
    if (status)
        return status;
    if (columns.count > columns.row_length || columns.first > columns.row_length - columns.count ||
        (columns.stride && columns.stride != columns.count) ||
        (columns.row_length && columns.rows > UINT64_MAX / columns.row_length))
        return PICI_E_ARG;
    struct part part = {.first = columns.first,
                        .count = columns.rows * columns.count,
                        .is_of = true,
                        .of = columns.rows * columns.row_length};
    if (columns.rows > 1 && columns.count < columns.row_length) {
        part.row = columns.row_length;
        part.columns = columns.count;
    }
    return add(state, tensor, data, 0, &part);
}

enum pici_status pici_state_whole(const struct pici_state *state, char *reason)
{
    return state->parts ? pici_why(reason, PICI_E_UNSUPPORTED, state->name, "has parts of tensors") : PICI_OK;
}

enum pici_status pici_state_read(struct pici_state *state, const struct state_tensor *tensor, uint64_t from,
                                 void *buffer, size_t bytes, char *reason)
{
    char name[PICI_QUOTE_CAP], text[128];
    if (!bytes)
        return PICI_OK;
    if (tensor->data) {
        memcpy(buffer, tensor->data + from, bytes);
        return PICI_OK;
    }
    const int error = state->read(state->context, buffer, bytes, tensor->offset + from);
    if (!error)
        return PICI_OK;
    errno = error;
    return pici_why(reason, PICI_E_IO, state->name, "tensor %s: %s", pici_quote(name, tensor->name, tensor->name_bytes),
                    pici_errno_text(error, text, sizeof text));
}

enum pici_status pici_state_hash_tensor(struct pici_state *state, const struct state_tensor *tensor, uint64_t from,
                                        struct pici_xxh64 *hash, char *reason)
{
    uint8_t piece[1 << 16];
    for (uint64_t count; from < tensor->bytes; from += count) {
        count = tensor->bytes - from < sizeof piece ? tensor->bytes - from : sizeof piece;
        const enum pici_status status = pici_state_read(state, tensor, from, piece, (size_t)count, reason);
        if (status)
            return status;
        pici_xxh64_update(hash, piece, (size_t)count);
    }
    return PICI_OK;
}

void pici_state_swap(bool big_endian, size_t width, void *buffer, size_t bytes)
{
    if (big_endian != PICI_BIG_ENDIAN)
        swap_elements(buffer, bytes, width);
}

enum pici_state_type pici_state_get_type(const struct pici_state *state)
{
    return state->type;
}

enum pici_status pici_state_hash(struct pici_state *state, uint64_t *bytes, uint64_t *hash, char *reason)
{
    struct pici_xxh64 running;
    enum pici_status status = PICI_OK;
    if (reason)
        reason[0] = 0;
    if (!state || !bytes || !hash)
        return PICI_E_ARG;
    if ((status = pici_state_whole(state, reason)) != PICI_OK)
        return status;
    pici_xxh64_init(&running, 0);
    pici_xxh64_update(&running, state->head, state->head_bytes);
    *bytes = state->head_bytes;
    for (size_t i = 0; i < state->count && !status; i++) {
        *bytes += state->tensors[i].bytes;
        status = pici_state_hash_tensor(state, &state->tensors[i], 0, &running, reason);
    }
    *hash = pici_xxh64_digest(&running);
    return status;
}

void pici_state_free(struct pici_state *state)
{
    if (!state)
        return;
    for (size_t i = 0; i < state->count; i++)
        free(state->tensors[i].shape);
    free(state->tensors);
    free(state->by_name);
    free(state->name);
    free(state->head);
    if (state->fd >= 0)
        close(state->fd);
    free(state);
}

enum pici_status pici_state_tensor_hash(struct pici_state *state, size_t i, uint64_t *found, char *reason)
{
    struct pici_xxh64 hash;
    pici_xxh64_init(&hash, 0);
    const enum pici_status status = pici_state_hash_tensor(state, &state->tensors[i], 0, &hash, reason);
    *found = pici_xxh64_digest(&hash);
    return status;
}
