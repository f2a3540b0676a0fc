/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/tensors.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)PICI_STATE_RAW == TYPE_RAW && (int)PICI_STATE_NPY == TYPE_NPY &&
                   (int)PICI_STATE_SAFETENSORS == TYPE_SAFETENSORS,
               "types of states are the first types of files");

/* Adds t, whose elements begin at the input's position, and skips them. */
static int add(struct tensors *s, const struct source_tensor *t)
{
    if (s->n == s->room) {
        size_t room = s->room + s->room / 2 + 16;
        struct tensor_at *bigger = room <= SIZE_MAX / sizeof *bigger ? realloc(s->tensor, room * sizeof *bigger) : NULL;
        if (!bigger)
            return tool_nomem(s->in.name, "the list of tensors");
        s->tensor = bigger;
        s->room = room;
    }
    struct tensor_at *to = &s->tensor[s->n];
    *to = (struct tensor_at){.name_len = t->name_len,
                             .dtype_text = t->dtype_text,
                             .at = s->in.at,
                             .count = t->count,
                             .dtype = t->dtype,
                             .rank = (uint8_t)t->rank,
                             .width = (uint8_t)pici_dtype_width(t->dtype),
                             .big_endian = t->big_endian,
                             .fortran = t->fortran,
                             .filler = t->filler};
    to->bytes = t->count * to->width;
    const size_t shape_bytes = t->rank * sizeof *t->shape;
    /* A source keeps a name only until source_next; that of an archive, the word for the type too. */
    const size_t word = tool_type_is_zip(s->source.type) ? strlen(t->dtype_text) + 1 : 0;
    char *copy = malloc(shape_bytes + t->name_len + 1 + word);
    if (!copy)
        return tool_nomem(s->in.name, "the name of a tensor");
    memcpy(copy, t->shape, shape_bytes);
    memcpy(copy + shape_bytes, t->name, t->name_len + 1);
    to->shape = (uint64_t *)(void *)copy;
    to->name = copy + shape_bytes;
    if (word)
        to->dtype_text = memcpy(copy + shape_bytes + t->name_len + 1, t->dtype_text, word);
    s->n++;
    if (tool_type_is_zip(s->source.type)) /* whose tensors are not read at random */
        return TOOL_OK;
    if (to->bytes > s->in.bytes || s->in.at > s->in.bytes - to->bytes)
        return tool_bad_at(s->in.name, s->in.bytes, "the file ends here, within its tensors");
    return input_seek(&s->in, s->in.at + to->bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct tensor_at *x = *(struct tensor_at *const *)a, *y = *(struct tensor_at *const *)b;
    const int order = memcmp(x->name, y->name, x->name_len < y->name_len ? x->name_len : y->name_len);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static int open_all(struct tensors *s, const char *path, const struct tool_options *o)
{
    TRY(input_open(&s->in, path));
    if (!s->in.regular)
        return tool_bad(s->in.name, "empty, or not a file that can be read at random");
    TRY(source_open(&s->source, &s->in, path, o));
    for (bool more = true; more;) {
        struct source_tensor t;
        TRY(source_next(&s->source, &t, &more));
        if (more)
            TRY(add(s, &t));
    }
    s->by_name = malloc((s->n + 1) * sizeof *s->by_name);
    if (!s->by_name)
        return tool_nomem(s->in.name, "the list of names");
    for (size_t i = 0; i < s->n; i++)
        s->by_name[i] = &s->tensor[i];
    qsort(s->by_name, s->n, sizeof *s->by_name, by_name);
    return TOOL_OK;
}

int tensors_open(struct tensors *s, const char *path, const struct tool_options *o)
{
    *s = (struct tensors){.in.fd = -1};
    const int status = open_all(s, path, o);
    if (status)
        tensors_close(s);
    return status;
}

struct pici_diff_opts tensors_diff_opts(const struct tool_options *o)
{
    static const enum pici_delta_choice choices[] = {
        [DELTA_CHOICE] = PICI_DELTA_AUTO, [DELTA_SMALLEST] = PICI_DELTA_SMALLEST, [DELTA_FASTEST] = PICI_DELTA_FASTEST};
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    opts.choice = choices[o->delta];
    opts.format = o->format;
    opts.threads = o->threads;
    opts.zstd_level = o->zstd;
    return opts;
}

int tensors_open_pair(struct tensors *base, struct tensors *next, char *const *paths, const struct tool_options *o)
{
    TRY(tensors_open(base, paths[0], o));
    TRY(tensors_open(next, paths[1], o));
    const enum tool_type type = next->source.type;
    if (base->source.type != type)
        return tool_usage(paths[1], "taken as %s, and the base as %s: use --type", tool_type_name(type),
                          tool_type_name(base->source.type));
    return tool_type_is_zip(type) ? tool_usage(paths[1], "diff is not for .%s files", tool_type_name(type)) : TOOL_OK;
}

const struct tensor_at *tensors_find(const struct tensors *s, const char *name, size_t len)
{
    struct tensor_at wanted = {.name = name, .name_len = len}, *key = &wanted;
    struct tensor_at *const *found = bsearch(&key, s->by_name, s->n, sizeof *s->by_name, by_name);
    return found ? *found : NULL;
}

int tensors_read(struct tensors *s, const struct tensor_at *t, uint64_t from, void *buf, size_t bytes)
{
    const int err = input_read_at(&s->in, buf, bytes, t->at + from);
    return err ? tool_bad_at(s->in.name, t->at + from, "%s", strerror(err)) : TOOL_OK;
}

struct source_tensor tensors_source(const struct tensor_at *t)
{
    struct source_tensor s = {.name = t->name,
                              .name_len = t->name_len,
                              .dtype_text = t->dtype_text,
                              .dtype = t->dtype,
                              .rank = t->rank,
                              .count = t->count,
                              .big_endian = t->big_endian,
                              .fortran = t->fortran,
                              .filler = t->filler};
    memcpy(s.shape, t->shape, t->rank * sizeof *t->shape);
    return s;
}

int tensors_state(struct tensors *s, struct pici_state **state)
{
    struct pici_attr attrs[SOURCE_ATTRS];
    free(s->by_name);
    s->by_name = NULL;
    enum pici_status failed = pici_state_new(state, s->in.name, (enum pici_state_type)s->source.type, s->source.head,
                                             s->source.head_len, input_read_at, &s->in);
    for (size_t i = 0; i < s->n; i++) {
        const struct source_tensor source = tensors_source(&s->tensor[i]);
        const struct pici_tensor t = source_describe(&source, attrs);
        if (!failed)
            failed = pici_state_add(*state, &t, NULL, s->tensor[i].at);
        free(s->tensor[i].shape);
    }
    free(s->tensor);
    s->tensor = NULL;
    s->n = 0;
    return failed == PICI_E_NOMEM ? tool_nomem(s->in.name, "the list of tensors")
           : failed               ? tool_bad(s->in.name, "%s", pici_strerror(failed))
                                  : TOOL_OK;
}

void tensor_swap(bool big_endian, size_t width, void *buf, size_t bytes)
{
    if (big_endian != source_host_is_big_endian())
        source_swap(buf, bytes, width);
}

void tensors_close(struct tensors *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->tensor[i].shape);
    free(s->tensor);
    free(s->by_name);
    source_close(&s->source);
    input_close(&s->in);
    *s = (struct tensors){.in.fd = -1};
}
