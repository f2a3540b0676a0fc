/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "input/attrs.h"
#include "input/looks.h"
#include "term.h"

enum { HEAD_STEP = 1 << 20 };

bool source_host_is_big_endian(void)
{
    return *(const unsigned char *)&(uint16_t){1} == 0;
}

void source_swap(void *p, size_t bytes, size_t width)
{
    swap_elements(p, bytes, width);
}

void source_swap_raw(void *p, size_t bytes, size_t width)
{
    if (source_host_is_big_endian())
        source_swap(p, bytes, width);
}

static int refuse(const struct source *s, const struct parse_error *e)
{
    char text[LOOKS_TEXT];
    return tool_bad_at(s->in->name, e->offset, "%s%s", e->what,
                       looks_after(s->in, s->head, s->head_len, s->type, text));
}

/* Reads the head up to need bytes, or to the end of the file. Memory grows with the bytes read, not with need. */
static int read_head(struct source *s, uint64_t need)
{
    while (s->head_len < need) {
        size_t want = need - s->head_len < HEAD_STEP ? (size_t)(need - s->head_len) : HEAD_STEP, got;
        if (want < s->head_len) /* double */
            want = need - s->head_len < s->head_len ? (size_t)(need - s->head_len) : s->head_len;
        uint8_t *bigger = want <= SIZE_MAX - s->head_len ? realloc(s->head, s->head_len + want) : NULL;
        if (!bigger)
            return tool_nomem(s->in->name, "the file's header");
        s->head = bigger;
        TRY(input_read(s->in, s->head + s->head_len, want, &got));
        s->head_len += got;
        if (got < want)
            break;
    }
    return TOOL_OK;
}

static uint64_t file_bytes(const struct source *s)
{
    return s->in->regular ? s->in->bytes : UINT64_MAX;
}

static int open_npy(struct source *s)
{
    struct parse_error err;
    uint64_t need;
    TRY(read_head(s, NPY_PREFIX_BYTES));
    if (!pici_npy_header_bytes(&need, s->head, s->head_len, &err))
        return refuse(s, &err);
    TRY(read_head(s, need));
    if (!pici_npy_parse(&s->npy, s->head, s->head_len, file_bytes(s), &err))
        return refuse(s, &err);
    s->tensors = s->in->regular ? 1 + (s->npy.trailing_bytes != 0) : 0;
    return TOOL_OK;
}

static int open_safetensors(struct source *s)
{
    struct parse_error err;
    uint64_t need;
    TRY(read_head(s, SAFETENSORS_PREFIX_BYTES));
    if (!pici_safetensors_header_bytes(&need, s->head, s->head_len, &err))
        return refuse(s, &err);
    TRY(read_head(s, need));
    if (!pici_safetensors_parse(&s->safetensors, s->head, s->head_len, file_bytes(s), &err))
        return refuse(s, &err);
    s->tensors = s->safetensors.count;
    return TOOL_OK;
}

/* Raw elements whose type is not given: another kind of file, perhaps. */
static int refuse_raw(struct source *s)
{
    uint8_t first[INPUT_PEEK];
    char text[LOOKS_TEXT];
    size_t got;
    TRY(input_peek(s->in, first, sizeof first, &got));
    if (*looks(s->in, first, got, TYPE_RAW, text))
        return tool_usage(s->in->name, "%s", text);
    return tool_usage(s->in->name, "is taken as raw elements: needs --dtype, their type");
}

static int open_raw(struct source *s, const struct tool_options *o)
{
    if (!o->dtype)
        return refuse_raw(s);
    s->raw_dtype = (enum pici_dtype)o->dtype;
    s->tensors = s->in->regular ? 1 + (s->in->bytes % pici_dtype_width(s->raw_dtype) != 0) : 0;
    return TOOL_OK;
}

static int open_archive(struct source *s, const struct tool_options *o, const struct limit *exact)
{
    TRY(s->type == TYPE_NPZ ? archive_open_npz(&s->archive, s->in, exact) : archive_open_pt(&s->archive, s->in, exact));
    s->raw_dtype = o->dtype ? (enum pici_dtype)o->dtype : PICI_U8;
    s->head = s->archive.head;
    s->head_len = s->archive.head_len;
    s->archive.head = NULL;
    s->tensors = s->archive.parts;
    return TOOL_OK;
}

static int open_any(struct source *s, struct input *in, const char *path, const struct tool_options *o,
                    const struct limit *exact)
{
    memset(s, 0, sizeof *s);
    s->in = in;
    TRY(looks_type(in, path, o, &s->type));
    if (s->type != TYPE_RAW || !o->dtype)
        TRY(looks_refuse(in));
    if (s->type != TYPE_RAW && s->type != TYPE_PT && o->dtype)
        return tool_usage(in->name, "--dtype is for raw input and .pt; this is taken as .%s", tool_type_name(s->type));
    int status = s->type == TYPE_NPY           ? open_npy(s)
                 : s->type == TYPE_SAFETENSORS ? open_safetensors(s)
                 : tool_type_is_zip(s->type)   ? open_archive(s, o, exact)
                                               : open_raw(s, o);
    if (status)
        source_close(s);
    return status;
}

int source_open(struct source *s, struct input *in, const char *path, const struct tool_options *o)
{
    return open_any(s, in, path, o, NULL);
}

int source_open_exact(struct source *s, struct input *in, const char *path, const struct tool_options *o,
                      const struct limit *limit)
{
    return open_any(s, in, path, o, limit);
}

void source_close(struct source *s)
{
    free(s->head);
    free(s->part);
    free(s->literal);
    archive_close(&s->archive);
    pici_safetensors_free(&s->safetensors);
    memset(&s->safetensors, 0, sizeof s->safetensors);
    s->head = s->part = NULL;
    s->literal = NULL;
}

struct pici_tensor source_describe(const struct source_tensor *t, struct pici_attr attrs[SOURCE_ATTRS])
{
    struct pici_tensor out = PICI_TENSOR_INIT;
    out.name = t->name;
    out.name_len = t->name_len;
    out.dtype = t->dtype;
    out.rank = t->rank;
    out.shape = t->shape;
    out.attrs = attrs;
    attrs[out.n_attrs++] = (struct pici_attr){ATTR_DTYPE, t->dtype_text, strlen(t->dtype_text)};
    if (t->npy)
        attrs[out.n_attrs++] = (struct pici_attr){ATTR_NPY, t->npy, t->npy_len};
    if (t->big_endian)
        attrs[out.n_attrs++] = (struct pici_attr){ATTR_ENDIAN, "big", 3};
    if (t->fortran)
        attrs[out.n_attrs++] = (struct pici_attr){ATTR_ORDER, "F", 1};
    if (t->before[0])
        attrs[out.n_attrs++] = (struct pici_attr){ATTR_BEFORE, t->before, strlen(t->before)};
    if (t->deflate[0])
        attrs[out.n_attrs++] = (struct pici_attr){ATTR_DEFLATE, t->deflate, strlen(t->deflate)};
    return out;
}

/* Describe a tensor: rank dimensions of items that have item_elements elements each. */
static void describe(struct source *s, struct source_tensor *t, uint64_t count, const uint64_t *shape, unsigned rank,
                     uint64_t items, uint64_t item_elements)
{
    const size_t width = pici_dtype_width(t->dtype);
    t->count = count;
    if (!pici_parse_shape(t->shape, &t->rank, shape, rank, items, item_elements, count, width))
        t->fortran = false;
    s->left = count * width;
    s->swap_width = t->big_endian != source_host_is_big_endian() ? width : 1;
}

static void set_name(struct source *s, struct source_tensor *t, const char *stem)
{
    if (s->next == 0)
        snprintf(s->name, sizeof s->name, "%s", stem);
    else
        snprintf(s->name, sizeof s->name, "%s.%" PRIu64, stem, s->next);
    t->name = s->name;
    t->name_len = strlen(s->name);
}

const char *source_unnamed(const struct source *s)
{
    if (!tool_type_is_zip(s->type))
        return s->type == TYPE_SAFETENSORS ? NULL : "tail";
    s->archive.stem[s->archive.stem_len] = 0;
    return s->archive.stem;
}

/* A tensor of plain elements. */
static void plain(struct source *s, struct source_tensor *t, const char *stem, enum pici_dtype dtype, uint64_t count)
{
    set_name(s, t, stem);
    t->dtype = dtype;
    t->dtype_text = pici_dtype_name(dtype);
    describe(s, t, count, &count, 1, count, 1);
    s->next++;
}

/* Reads ahead in a stream of unknown length, to learn how many elements follow. */
static int read_part(struct source *s, size_t width)
{
    size_t cap = (size_t)PICI_CHUNK_MAX * width;
    if (!s->part && !(s->part = malloc(cap)))
        return tool_nomem(s->in->name, "a piece of the stream");
    int status = input_read(s->in, s->part, cap, &s->part_len);
    s->part_at = 0;
    s->from_part = true;
    s->part_is_last = s->part_len < cap;
    return status;
}

static int next_raw(struct source *s, struct source_tensor *t, bool *more)
{
    size_t width = pici_dtype_width(s->raw_dtype);
    if (s->stage == SOURCE_DATA && s->in->regular && s->next == 0) {
        plain(s, t, "data", s->raw_dtype, s->in->bytes / width);
        return TOOL_OK;
    }
    if (s->stage == SOURCE_DATA && !s->in->regular && !s->part_is_last) {
        TRY(read_part(s, width));
        if (s->part_len >= width || s->next == 0) {
            plain(s, t, "data", s->raw_dtype, s->part_len / width);
            return TOOL_OK;
        }
    }
    uint64_t tail = s->in->regular ? s->in->bytes % width : s->part_len % width;
    *more = s->stage == SOURCE_DATA && tail != 0;
    s->stage = s->stage == SOURCE_DATA ? SOURCE_TAIL : SOURCE_END;
    s->next = 0;
    if (*more)
        plain(s, t, "tail", PICI_U8, tail);
    return TOOL_OK;
}

/* The array that s->npy describes, by the header at head. */
static int describe_npy(struct source *s, struct source_tensor *t, const uint8_t *head)
{
    const struct npy *n = &s->npy;
    free(s->literal);
    s->literal = n->plain ? NULL : pici_npy_literal(&t->npy_len, head, n);
    t->npy = s->literal;
    if (!t->npy && !n->plain)
        return tool_nomem(s->in->name, "the type of an array");
    t->dtype = n->dtype;
    t->dtype_text = n->descr;
    t->big_endian = n->swap;
    t->fortran = n->fortran_order && n->rank > 1;
    describe(s, t, n->count, n->shape, n->rank, n->items, n->item_elements);
    return TOOL_OK;
}

static int next_npy(struct source *s, struct source_tensor *t, bool *more)
{
    const struct npy *n = &s->npy;
    if (s->stage == SOURCE_DATA) {
        set_name(s, t, "data");
        s->stage = SOURCE_TAIL;
        return describe_npy(s, t, s->head);
    }
    if (s->in->regular) {
        *more = s->next == 0 && n->trailing_bytes;
        if (*more)
            plain(s, t, "tail", PICI_U8, n->trailing_bytes);
        return TOOL_OK;
    }
    *more = false;
    if (s->part_is_last)
        return TOOL_OK;
    TRY(read_part(s, 1));
    *more = s->part_len != 0;
    if (*more)
        plain(s, t, "tail", PICI_U8, s->part_len);
    return TOOL_OK;
}

static int next_safetensors(struct source *s, struct source_tensor *t, bool *more)
{
    if (s->next < s->safetensors.count) {
        const struct safetensors_tensor *from = &s->safetensors.tensors[s->next++];
        t->name = from->name;
        t->name_len = from->name_bytes;
        t->dtype = from->dtype;
        t->dtype_text = from->source_dtype;
        describe(s, t, from->count, from->shape, from->rank, from->items, from->item_elements);
        return TOOL_OK;
    }
    *more = false;
    return TOOL_OK;
}

/* Bytes of a zip file as elements of a dtype, if they are a whole number of them. */
static void describe_bytes(struct source *s, struct source_tensor *t, enum pici_dtype dtype)
{
    const uint64_t bytes = s->archived->bytes;
    t->dtype = bytes % pici_dtype_width(dtype) ? PICI_U8 : dtype;
    const uint64_t count = bytes / pici_dtype_width(t->dtype);
    describe(s, t, count, &count, 1, count, 1);
}

static void describe_deflated(const struct source *s, struct source_tensor *t)
{
    const struct archive_part *p = s->archived;
    const struct zip_entry *e = &s->archive.zip.entries[p->number];
    if (!p->level)
        return;
    struct deflated d = {.level = p->level, .header = p->header, .bytes = e->end - e->begin, .crc = p->crc};
    snprintf(d.version, sizeof d.version, "%s", unzip_version());
    deflated_format(t->deflate, &d);
}

/* Describes a storage by a tensor. Elements are in the order of the storage, and so are the dimensions. */
static void describe_storage(struct source *s, struct source_tensor *t)
{
    const struct archive_part *p = s->archived;
    const struct torch_tensor *of = &s->archive.torch.tensors[p->tensor];
    unsigned order[TORCH_MAX_RANK];
    uint64_t shape[TORCH_MAX_RANK];
    t->big_endian = s->archive.big_endian && pici_dtype_width(of->dtype) > 1;
    t->fortran = p->fortran;
    if (p->whole) {
        t->dtype = of->dtype;
        torch_is_dense(of, order);
        for (unsigned i = 0; i < of->rank; i++)
            shape[i] = of->shape[of->row_major || t->fortran ? i : order[i]];
        describe(s, t, p->bytes / pici_dtype_width(of->dtype), shape, of->rank, of->items, of->item_elements);
    } else {
        describe_bytes(s, t, of->dtype);
    }
    t->dtype_text = of->source_dtype;
    if (!p->unnamed)
        return;
    memcpy(s->view, "shape ", 6);
    term_shape(s->view + 6, sizeof s->view / 2, of->shape, of->rank);
    const size_t n = strlen(s->view);
    s->view[n] = ' ';
    archive_view(&s->archive, p->tensor, s->view + n + 1, sizeof s->view - n - 1);
    t->view = s->view;
}

static int describe_array(struct source *s, struct source_tensor *t)
{
    const struct archive_part *p = s->archived;
    const uint8_t *const head = s->head + s->head_at - p->header;
    struct parse_error err;
    pici_npy_parse(&s->npy, head, p->header, UINT64_MAX, &err); /* which it did before */
    return describe_npy(s, t, head);
}

static int next_archived(struct source *s, struct source_tensor *t, bool *more)
{
    struct archive *a = &s->archive;
    *more = s->next < a->parts;
    if (!*more)
        return input_seek(s->in, s->in->bytes);
    const struct archive_part *p = s->archived = &a->part[s->next++];
    s->head_at += (size_t)p->before;
    t->title = archive_title(a, p, &t->title_len);
    t->name = archive_name(a, p, &t->name_len);
    t->filler = p->kind == ARCHIVE_FILLER;
    snprintf(t->before, sizeof t->before, "%" PRIu64, p->before);
    if (p->kind == ARCHIVE_ARRAY) {
        TRY(describe_array(s, t));
    } else if (p->tensor != ARCHIVE_NONE) {
        describe_storage(s, t);
    } else {
        describe_bytes(s, t, p->kind == ARCHIVE_STORAGE ? s->raw_dtype : PICI_U8);
        t->dtype_text = p->kind == ARCHIVE_KEPT && !a->zip.entries[p->number].stored ? "compressed entry"
                        : p->kind == ARCHIVE_KEPT                                    ? "entry"
                                                                                     : pici_dtype_name(t->dtype);
    }
    if (!t->filler)
        describe_deflated(s, t);
    return archive_begin(a, p);
}

/* Checks the end of the input. The length of a regular file is known; a .safetensors stream must end here too. */
static int expect_end(struct source *s)
{
    uint8_t byte;
    size_t got;
    TRY(input_peek(s->in, &byte, 1, &got));
    if (!got)
        return TOOL_OK;
    return tool_bad_at(s->in->name, s->in->at,
                       s->in->regular ? "the file has grown since it was opened" : "bytes after the last tensor");
}

int source_next(struct source *s, struct source_tensor *t, bool *more)
{
    memset(t, 0, sizeof *t);
    *more = true;
    TRY(s->type == TYPE_NPY           ? next_npy(s, t, more)
        : s->type == TYPE_SAFETENSORS ? next_safetensors(s, t, more)
        : tool_type_is_zip(s->type)   ? next_archived(s, t, more)
                                      : next_raw(s, t, more));
    if (*more && !t->title) {
        t->title = t->name;
        t->title_len = t->name_len;
    }
    return *more ? TOOL_OK : expect_end(s);
}

int source_take(struct source *s, void *buf, size_t bytes)
{
    size_t got;
    if (s->from_part) {
        memcpy(buf, s->part + s->part_at, bytes);
        s->part_at += bytes;
    } else if (s->archived) {
        TRY(archive_take(&s->archive, s->archived, buf, bytes, s->left));
    } else {
        TRY(input_read(s->in, buf, bytes, &got));
        if (got < bytes)
            return tool_bad_at(s->in->name, s->in->at, "the file ends here, %" PRIu64 " bytes too early",
                               s->left - got);
    }
    s->left -= bytes;
    source_swap(buf, bytes, s->swap_width);
    return TOOL_OK;
}

int source_give(struct source *s, void *buf, size_t bytes, const uint8_t **p)
{
    *p = buf;
    if (!s->from_part || s->swap_width != 1)
        return source_take(s, buf, bytes);
    *p = s->part + s->part_at;
    s->part_at += bytes;
    s->left -= bytes;
    return TOOL_OK;
}
