/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/tensors.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)PICI_STATE_RAW == TYPE_RAW && (int)PICI_STATE_NPY == TYPE_NPY &&
                   (int)PICI_STATE_SAFETENSORS == TYPE_SAFETENSORS && (int)PICI_STATE_GGUF == TYPE_GGUF,
               "types of states are the first types of files");

/* Adds `tensor`, whose elements begin at the input's position, and skips them. */
static int add(struct tensors *tensors, const struct source_tensor *tensor)
{
    if (tensors->count == tensors->capacity) {
        size_t capacity = tensors->capacity + tensors->capacity / 2 + 16;
        struct tensor_at *bigger =
            capacity <= SIZE_MAX / sizeof *bigger ? realloc(tensors->tensor, capacity * sizeof *bigger) : NULL;
        if (!bigger)
            return tool_nomem(tensors->input.name, "the list of tensors");
        tensors->tensor = bigger;
        tensors->capacity = capacity;
    }
    struct tensor_at *added = &tensors->tensor[tensors->count];
    *added = (struct tensor_at){.name_size = tensor->name_size,
                                .dtype_text = tensor->dtype_text,
                                .offset = tensors->input.position,
                                .count = tensor->count,
                                .dtype = tensor->dtype,
                                .rank = (uint8_t)tensor->rank,
                                .width = (uint8_t)pici_dtype_width(tensor->dtype),
                                .big_endian = tensor->big_endian,
                                .fortran = tensor->fortran,
                                .filler = tensor->filler,
                                .unnamed = tensor->filler};
    added->bytes = tensor->count * added->width;
    const struct archive_part *const part = tensors->source.archived; /* NULL: not of a zip file */
    added->in_place = !part || archive_in_place(&tensors->source.archive, part);
    if (part) {
        added->offset = part->offset;
        added->unnamed = part->unnamed;
        added->viewed = part->viewed;
    }
    const size_t shape_bytes = tensor->rank * sizeof *tensor->shape;
    /* A source keeps a name only until source_next; an archive, also the word for the type. */
    const size_t word_size = tool_type_is_zip(tensors->source.type) ? strlen(tensor->dtype_text) + 1 : 0;
    char *copy = malloc(shape_bytes + tensor->name_size + 1 + word_size);
    if (!copy)
        return tool_nomem(tensors->input.name, "the name of a tensor");
    memcpy(copy, tensor->shape, shape_bytes);
    memcpy(copy + shape_bytes, tensor->name, tensor->name_size + 1);
    added->shape = (uint64_t *)(void *)copy;
    added->name = copy + shape_bytes;
    if (word_size)
        added->dtype_text = memcpy(copy + shape_bytes + tensor->name_size + 1, tensor->dtype_text, word_size);
    tensors->count++;
    if (part) /* the zip directory has its offset */
        return TOOL_OK;
    if (added->bytes > tensors->input.bytes || tensors->input.position > tensors->input.bytes - added->bytes)
        return tool_bad_at(tensors->input.name, tensors->input.bytes, "unexpected end of file inside the tensors");
    return input_seek(&tensors->input, tensors->input.position + added->bytes);
}

static int by_name(const void *left, const void *right)
{
    const struct tensor_at *first = *(struct tensor_at *const *)left, *second = *(struct tensor_at *const *)right;
    const int order =
        memcmp(first->name, second->name, first->name_size < second->name_size ? first->name_size : second->name_size);
    return order ? order : (first->name_size > second->name_size) - (first->name_size < second->name_size);
}

static int open_all(struct tensors *tensors, const char *path, const struct tool_options *options)
{
    TRY(input_open(&tensors->input, path));
    if (!tensors->input.regular)
        return tool_bad(tensors->input.name, "is empty or not seekable: use a regular file");
    TRY(source_open(&tensors->source, &tensors->input, path, options));
    for (bool has_more = true; has_more;) {
        struct source_tensor tensor;
        TRY(source_next(&tensors->source, &tensor, &has_more));
        if (has_more)
            TRY(add(tensors, &tensor));
    }
    tensors->by_name = malloc((tensors->count + 1) * sizeof *tensors->by_name);
    if (!tensors->by_name)
        return tool_nomem(tensors->input.name, "the list of names");
    for (size_t i = 0; i < tensors->count; i++)
        tensors->by_name[i] = &tensors->tensor[i];
    qsort(tensors->by_name, tensors->count, sizeof *tensors->by_name, by_name);
    return TOOL_OK;
}

int tensors_open(struct tensors *tensors, const char *path, const struct tool_options *options)
{
    *tensors = (struct tensors){.input.fd = -1};
    const int status = open_all(tensors, path, options);
    if (status)
        tensors_close(tensors);
    return status;
}

struct pici_diff_opts tensors_diff_opts(const struct tool_options *options)
{
    static const enum pici_delta_choice choices[] = {
        [DELTA_CHOICE] = PICI_DELTA_AUTO, [DELTA_SMALLEST] = PICI_DELTA_SMALLEST, [DELTA_FASTEST] = PICI_DELTA_FASTEST};
    struct pici_diff_opts diff_options = PICI_DIFF_OPTS_INIT;
    diff_options.choice = choices[options->delta];
    diff_options.format = options->format;
    diff_options.threads = options->threads;
    diff_options.zstd_level = options->zstd;
    return diff_options;
}

int tensors_open_pair(struct tensors *base, struct tensors *next, char *const *paths,
                      const struct tool_options *options)
{
    TRY(tensors_open(base, paths[0], options));
    TRY(tensors_open(next, paths[1], options));
    const enum tool_type type = next->source.type;
    if (base->source.type != type)
        return tool_usage(paths[1], "is read as %s, but the base as %s: set one type with --type", tool_type_name(type),
                          tool_type_name(base->source.type));
    return tool_type_is_zip(type) ? tool_usage(paths[1], "diff does not support .%s files", tool_type_name(type))
                                  : TOOL_OK;
}

const struct tensor_at *tensors_find(const struct tensors *tensors, const char *name, size_t size)
{
    struct tensor_at wanted = {.name = name, .name_size = size}, *key = &wanted;
    struct tensor_at *const *found = bsearch(&key, tensors->by_name, tensors->count, sizeof *tensors->by_name, by_name);
    return found ? *found : NULL;
}

int tensors_read(struct tensors *tensors, const struct tensor_at *t, uint64_t from, void *buffer, size_t bytes)
{
    const int error = input_read_at(&tensors->input, buffer, bytes, t->offset + from);
    return error ? tool_bad_at(tensors->input.name, t->offset + from, "%s", strerror(error)) : TOOL_OK;
}

struct source_tensor tensors_source(const struct tensor_at *t)
{
    struct source_tensor source = {.name = t->name,
                                   .name_size = t->name_size,
                                   .dtype_text = t->dtype_text,
                                   .dtype = t->dtype,
                                   .rank = t->rank,
                                   .count = t->count,
                                   .big_endian = t->big_endian,
                                   .fortran = t->fortran,
                                   .filler = t->filler};
    memcpy(source.shape, t->shape, t->rank * sizeof *t->shape);
    return source;
}

int tensors_state(struct tensors *tensors, struct pici_state **state)
{
    struct pici_attr attrs[SOURCE_ATTRS];
    free(tensors->by_name);
    tensors->by_name = NULL;
    enum pici_status failed =
        pici_state_new(state, tensors->input.name, (enum pici_state_type)tensors->source.type, tensors->source.head,
                       tensors->source.head_size, input_read_at, &tensors->input);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct source_tensor source = tensors_source(&tensors->tensor[i]);
        const struct pici_tensor described = source_describe(&source, attrs);
        if (!failed)
            failed = pici_state_add(*state, &described, NULL, tensors->tensor[i].offset);
        free(tensors->tensor[i].shape);
    }
    free(tensors->tensor);
    tensors->tensor = NULL;
    tensors->count = 0;
    if (!failed)
        return TOOL_OK;
    return failed == PICI_E_NOMEM ? tool_nomem(tensors->input.name, "the list of tensors")
                                  : tool_bad(tensors->input.name, "%s", pici_strerror(failed));
}

void tensor_swap(bool big_endian, size_t width, void *buffer, size_t bytes)
{
    if (big_endian != source_host_is_big_endian())
        source_swap(buffer, bytes, width);
}

void tensors_close(struct tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        free(tensors->tensor[i].shape);
    free(tensors->tensor);
    free(tensors->by_name);
    source_close(&tensors->source);
    input_close(&tensors->input);
    *tensors = (struct tensors){.input.fd = -1};
}
