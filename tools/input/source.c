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

void source_swap(void *elements, size_t bytes, size_t width)
{
    swap_elements(elements, bytes, width);
}

void source_swap_raw(void *elements, size_t bytes, size_t width)
{
    if (source_host_is_big_endian())
        source_swap(elements, bytes, width);
}

static int refuse(const struct source *source, const struct parse_error *error)
{
    char text[LOOKS_TEXT];
    return tool_bad_at(source->input->name, error->offset, "%s%s", error->what,
                       looks_after(source->input, source->head, source->head_size, source->type, text));
}

/* Reads the head up to `need` bytes, or to the end of the file. Memory grows with the bytes read, not with `need`. */
static int read_head(struct source *source, uint64_t need)
{
    while (source->head_size < need) {
        size_t want = need - source->head_size < HEAD_STEP ? (size_t)(need - source->head_size) : HEAD_STEP, received;
        if (want < source->head_size) /* double */
            want =
                need - source->head_size < source->head_size ? (size_t)(need - source->head_size) : source->head_size;
        uint8_t *bigger = want <= SIZE_MAX - source->head_size ? realloc(source->head, source->head_size + want) : NULL;
        if (!bigger)
            return tool_nomem(source->input->name, "the file's header");
        source->head = bigger;
        TRY(input_read(source->input, source->head + source->head_size, want, &received));
        source->head_size += received;
        if (received < want)
            break;
    }
    return TOOL_OK;
}

static uint64_t file_bytes(const struct source *source)
{
    return source->input->regular ? source->input->bytes : UINT64_MAX;
}

static int open_npy(struct source *source)
{
    struct parse_error error;
    uint64_t need;
    TRY(read_head(source, NPY_PREFIX_BYTES));
    if (!pici_npy_header_bytes(&need, source->head, source->head_size, &error))
        return refuse(source, &error);
    TRY(read_head(source, need));
    if (!pici_npy_parse(&source->npy, source->head, source->head_size, file_bytes(source), &error))
        return refuse(source, &error);
    source->tensors = source->input->regular ? 1 + (source->npy.trailing_bytes != 0) : 0;
    return TOOL_OK;
}

static int open_safetensors(struct source *source)
{
    struct parse_error error;
    uint64_t need;
    TRY(read_head(source, SAFETENSORS_PREFIX_BYTES));
    if (!pici_safetensors_header_bytes(&need, source->head, source->head_size, &error))
        return refuse(source, &error);
    TRY(read_head(source, need));
    if (!pici_safetensors_parse(&source->safetensors, source->head, source->head_size, file_bytes(source), &error))
        return refuse(source, &error);
    source->tensors = source->safetensors.count;
    return TOOL_OK;
}

static int open_gguf(struct source *source)
{
    struct parse_error error;
    struct gguf_scan scan = {0};
    uint64_t need = 0;
    do {
        TRY(read_head(source, need));
        if (!pici_gguf_header_bytes(&scan, &need, source->head, source->head_size, &error))
            return refuse(source, &error);
    } while (need > source->head_size);
    if (!pici_gguf_parse(&source->gguf, &scan, source->head, file_bytes(source), &error))
        return refuse(source, &error);
    source->tensors = source->input->regular ? source->gguf.count : 0;
    return TOOL_OK;
}

/* Rejects raw elements without a dtype; the file may be of another type. */
static int refuse_raw(struct source *source)
{
    uint8_t first[INPUT_PEEK];
    char text[LOOKS_TEXT];
    size_t received;
    TRY(input_peek(source->input, first, sizeof first, &received));
    if (*looks(source->input, first, received, TYPE_RAW, text))
        return tool_usage(source->input->name, "%s", text);
    return tool_usage(source->input->name, "unknown file type; use --dtype to read it as raw elements");
}

static int open_raw(struct source *source, const struct tool_options *options)
{
    if (!options->dtype)
        return refuse_raw(source);
    source->raw_dtype = (enum pici_dtype)options->dtype;
    source->tensors =
        source->input->regular ? 1 + (source->input->bytes % pici_dtype_width(source->raw_dtype) != 0) : 0;
    return TOOL_OK;
}

static int open_archive(struct source *source, const struct tool_options *options, const struct limit *exact)
{
    TRY(source->type == TYPE_NPZ ? archive_open_npz(&source->archive, source->input, exact)
                                 : archive_open_pt(&source->archive, source->input, exact));
    source->raw_dtype = options->dtype ? (enum pici_dtype)options->dtype : PICI_U8;
    source->head = source->archive.head;
    source->head_size = source->archive.head_size;
    source->archive.head = NULL;
    source->tensors = source->archive.parts;
    return TOOL_OK;
}

static int open_typed(struct source *source, const struct tool_options *options, const struct limit *exact)
{
    switch (source->type) {
    case TYPE_NPY: return open_npy(source);
    case TYPE_SAFETENSORS: return open_safetensors(source);
    case TYPE_GGUF: return open_gguf(source);
    case TYPE_PT:
    case TYPE_NPZ: return open_archive(source, options, exact);
    default: return open_raw(source, options);
    }
}

static int open_any(struct source *source, struct input *input, const char *path, const struct tool_options *options,
                    const struct limit *exact)
{
    memset(source, 0, sizeof *source);
    source->input = input;
    TRY(looks_type(input, path, options, &source->type));
    if (source->type != TYPE_RAW || !options->dtype)
        TRY(looks_refuse(input));
    if (source->type != TYPE_RAW && source->type != TYPE_PT && options->dtype)
        return tool_usage(input->name, "--dtype is for raw input and .pt; this is read as .%s",
                          tool_type_name(source->type));
    int status = open_typed(source, options, exact);
    if (status)
        source_close(source);
    return status;
}

int source_open(struct source *source, struct input *input, const char *path, const struct tool_options *options)
{
    return open_any(source, input, path, options, NULL);
}

int source_open_exact(struct source *source, struct input *input, const char *path, const struct tool_options *options,
                      const struct limit *limit)
{
    return open_any(source, input, path, options, limit);
}

void source_close(struct source *source)
{
    free(source->head);
    free(source->part);
    free(source->literal);
    archive_close(&source->archive);
    pici_safetensors_free(&source->safetensors);
    memset(&source->safetensors, 0, sizeof source->safetensors);
    pici_gguf_free(&source->gguf);
    source->head = source->part = NULL;
    source->literal = NULL;
}

struct pici_tensor source_describe(const struct source_tensor *tensor, struct pici_attr attrs[SOURCE_ATTRS])
{
    struct pici_tensor described = PICI_TENSOR_INIT;
    described.name = tensor->name;
    described.name_len = tensor->name_size;
    described.dtype = tensor->dtype;
    described.rank = tensor->rank;
    described.shape = tensor->shape;
    described.attrs = attrs;
    attrs[described.n_attrs++] = (struct pici_attr){ATTR_DTYPE, tensor->dtype_text, strlen(tensor->dtype_text)};
    if (tensor->npy)
        attrs[described.n_attrs++] = (struct pici_attr){ATTR_NPY, tensor->npy, tensor->npy_size};
    if (tensor->big_endian)
        attrs[described.n_attrs++] = (struct pici_attr){ATTR_ENDIAN, "big", 3};
    if (tensor->fortran)
        attrs[described.n_attrs++] = (struct pici_attr){ATTR_ORDER, "F", 1};
    if (tensor->before[0])
        attrs[described.n_attrs++] = (struct pici_attr){ATTR_BEFORE, tensor->before, strlen(tensor->before)};
    if (tensor->deflate[0])
        attrs[described.n_attrs++] = (struct pici_attr){ATTR_DEFLATE, tensor->deflate, strlen(tensor->deflate)};
    return described;
}

/* Describes a tensor: `rank` dimensions of items, which have item_elements elements each. */
static void describe(struct source *source, struct source_tensor *tensor, uint64_t count, const uint64_t *shape,
                     unsigned rank, uint64_t items, uint64_t item_elements)
{
    const size_t width = pici_dtype_width(tensor->dtype);
    tensor->count = count;
    if (!pici_parse_shape(tensor->shape, &tensor->rank, shape, rank, items, item_elements, count, width))
        tensor->fortran = false;
    source->left = count * width;
    source->swap_width = tensor->big_endian != source_host_is_big_endian() ? width : 1;
}

static void set_name(struct source *source, struct source_tensor *tensor, const char *stem)
{
    if (source->next == 0)
        snprintf(source->name, sizeof source->name, "%s", stem);
    else
        snprintf(source->name, sizeof source->name, "%s.%" PRIu64, stem, source->next);
    tensor->name = source->name;
    tensor->name_size = strlen(source->name);
}

const char *source_unnamed(const struct source *source)
{
    if (source->type == TYPE_GGUF)
        return source->gguf.stem;
    if (!tool_type_is_zip(source->type))
        return source->type == TYPE_SAFETENSORS ? NULL : "tail";
    source->archive.stem[source->archive.stem_size] = 0;
    return source->archive.stem;
}

/* Describes a vector of elements. */
static void plain(struct source *source, struct source_tensor *tensor, const char *stem, enum pici_dtype dtype,
                  uint64_t count)
{
    set_name(source, tensor, stem);
    tensor->dtype = dtype;
    tensor->dtype_text = pici_dtype_name(dtype);
    describe(source, tensor, count, &count, 1, count, 1);
    source->next++;
}

/* Reads ahead in a stream of unknown length, to count the elements that follow. */
static int read_part(struct source *source, size_t width)
{
    size_t capacity = (size_t)PICI_CHUNK_MAX * width;
    if (!source->part && !(source->part = malloc(capacity)))
        return tool_nomem(source->input->name, "a piece of the stream");
    int status = input_read(source->input, source->part, capacity, &source->part_size);
    source->part_position = 0;
    source->from_part = true;
    source->part_is_last = source->part_size < capacity;
    return status;
}

static int next_raw(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    size_t width = pici_dtype_width(source->raw_dtype);
    if (source->stage == SOURCE_DATA && source->input->regular && source->next == 0) {
        plain(source, tensor, "data", source->raw_dtype, source->input->bytes / width);
        return TOOL_OK;
    }
    if (source->stage == SOURCE_DATA && !source->input->regular && !source->part_is_last) {
        TRY(read_part(source, width));
        if (source->part_size >= width || source->next == 0) {
            plain(source, tensor, "data", source->raw_dtype, source->part_size / width);
            return TOOL_OK;
        }
    }
    uint64_t tail = source->input->regular ? source->input->bytes % width : source->part_size % width;
    *has_more = source->stage == SOURCE_DATA && tail != 0;
    source->stage = source->stage == SOURCE_DATA ? SOURCE_TAIL : SOURCE_END;
    source->next = 0;
    if (*has_more)
        plain(source, tensor, "tail", PICI_U8, tail);
    return TOOL_OK;
}

/* Describes the array of source->npy. head: its header. */
static int describe_npy(struct source *source, struct source_tensor *tensor, const uint8_t *head)
{
    const struct npy *npy = &source->npy;
    free(source->literal);
    source->literal = npy->plain ? NULL : pici_npy_literal(&tensor->npy_size, head, npy);
    tensor->npy = source->literal;
    if (!tensor->npy && !npy->plain)
        return tool_nomem(source->input->name, "the type of an array");
    tensor->dtype = npy->dtype;
    tensor->dtype_text = npy->descr;
    tensor->big_endian = npy->swap;
    tensor->fortran = npy->fortran_order && npy->rank > 1;
    describe(source, tensor, npy->count, npy->shape, npy->rank, npy->items, npy->item_elements);
    return TOOL_OK;
}

/* Describes the bytes after the last tensor of a stream. */
static int next_tail(struct source *source, struct source_tensor *tensor, const char *stem, bool *has_more)
{
    *has_more = false;
    if (source->part_is_last)
        return TOOL_OK;
    TRY(read_part(source, 1));
    *has_more = source->part_size != 0;
    if (*has_more)
        plain(source, tensor, stem, PICI_U8, source->part_size);
    return TOOL_OK;
}

static int next_npy(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    const struct npy *npy = &source->npy;
    if (source->stage == SOURCE_DATA) {
        set_name(source, tensor, "data");
        source->stage = SOURCE_TAIL;
        return describe_npy(source, tensor, source->head);
    }
    if (source->input->regular) {
        *has_more = source->next == 0 && npy->trailing_bytes;
        if (*has_more)
            plain(source, tensor, "tail", PICI_U8, npy->trailing_bytes);
        return TOOL_OK;
    }
    return next_tail(source, tensor, "tail", has_more);
}

static int next_safetensors(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    if (source->next < source->safetensors.count) {
        const struct safetensors_tensor *from = &source->safetensors.tensors[source->next++];
        tensor->name = from->name;
        tensor->name_size = from->name_bytes;
        tensor->dtype = from->dtype;
        tensor->dtype_text = from->source_dtype;
        describe(source, tensor, from->count, &from->count, 1, from->count, 1);
        pici_safetensors_shape(from, tensor->shape, &tensor->rank);
        return TOOL_OK;
    }
    *has_more = false;
    return TOOL_OK;
}

static int next_gguf(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    const struct gguf *const gguf = &source->gguf;
    if (source->stage == SOURCE_DATA && source->next == gguf->count) {
        source->stage = SOURCE_TAIL;
        source->next = gguf->fillers; /* number of the next filler */
    }
    if (source->stage == SOURCE_TAIL) {
        *has_more = false;
        const int status = source->input->regular ? TOOL_OK : next_tail(source, tensor, gguf->stem, has_more);
        tensor->filler = true;
        return status;
    }
    const struct gguf_tensor *const from = &gguf->tensors[source->next++];
    tensor->filler = !from->name;
    tensor->name = from->name ? from->name : pici_gguf_filler(gguf, from->number, source->name);
    tensor->name_size = from->name ? from->name_bytes : strlen(source->name);
    tensor->dtype = from->dtype;
    tensor->dtype_text = from->source_dtype;
    tensor->big_endian = gguf->big_endian && pici_dtype_width(from->dtype) > 1;
    describe(source, tensor, from->count, from->shape, from->rank, from->count, 1);
    return TOOL_OK;
}

/* Describes bytes of a zip file as elements of a dtype, if their length allows. */
static void describe_bytes(struct source *source, struct source_tensor *tensor, enum pici_dtype dtype)
{
    const uint64_t bytes = source->archived->bytes;
    tensor->dtype = bytes % pici_dtype_width(dtype) ? PICI_U8 : dtype;
    const uint64_t count = bytes / pici_dtype_width(tensor->dtype);
    describe(source, tensor, count, &count, 1, count, 1);
}

static void describe_deflated(const struct source *source, struct source_tensor *tensor)
{
    const struct archive_part *part = source->archived;
    const struct zip_entry *entry = &source->archive.zip.entries[part->number];
    if (!part->level)
        return;
    struct deflated deflated = {
        .level = part->level, .header = part->header, .bytes = entry->end - entry->begin, .crc = part->crc};
    snprintf(deflated.version, sizeof deflated.version, "%s", unzip_version());
    deflated_format(tensor->deflate, &deflated);
}

/* Describes a storage by its tensor. Elements and dimensions are in storage order. */
static void describe_storage(struct source *source, struct source_tensor *tensor)
{
    const struct archive_part *part = source->archived;
    const struct torch_tensor *described = &source->archive.torch.tensors[part->tensor];
    unsigned order[TORCH_MAX_RANK];
    uint64_t shape[TORCH_MAX_RANK];
    tensor->big_endian = source->archive.big_endian && pici_dtype_width(described->dtype) > 1;
    tensor->fortran = part->fortran;
    if (part->whole) {
        tensor->dtype = described->dtype;
        torch_is_dense(described, order);
        for (unsigned i = 0; i < described->rank; i++)
            shape[i] = described->shape[described->row_major || tensor->fortran ? i : order[i]];
        describe(source, tensor, part->bytes / pici_dtype_width(described->dtype), shape, described->rank,
                 described->items, described->item_elements);
    } else {
        describe_bytes(source, tensor, described->dtype);
    }
    tensor->dtype_text = described->source_dtype;
    if (!part->unnamed)
        return;
    memcpy(source->view, "shape ", 6);
    term_shape(source->view + 6, sizeof source->view / 2, described->shape, described->rank);
    const size_t used = strlen(source->view);
    source->view[used] = ' ';
    archive_view(&source->archive, part->tensor, source->view + used + 1, sizeof source->view - used - 1);
    tensor->view = source->view;
}

static int describe_array(struct source *source, struct source_tensor *tensor)
{
    const struct archive_part *part = source->archived;
    const uint8_t *const head = source->head + source->head_position - part->header;
    struct parse_error error;
    pici_npy_parse(&source->npy, head, part->header, UINT64_MAX, &error); /* cannot fail: it succeeded before */
    return describe_npy(source, tensor, head);
}

static int next_archived(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    struct archive *archive = &source->archive;
    *has_more = source->next < archive->parts;
    if (!*has_more)
        return input_seek(source->input, source->input->bytes);
    const struct archive_part *part = source->archived = &archive->part[source->next++];
    source->head_position += (size_t)part->head_before;
    tensor->title = archive_title(archive, part, &tensor->title_size);
    tensor->name = archive_name(archive, part, &tensor->name_size);
    tensor->filler = part->kind == ARCHIVE_FILLER;
    snprintf(tensor->before, sizeof tensor->before, "%" PRIu64, part->head_before);
    if (part->kind == ARCHIVE_ARRAY) {
        TRY(describe_array(source, tensor));
    } else if (part->tensor != ARCHIVE_NONE) {
        describe_storage(source, tensor);
    } else {
        describe_bytes(source, tensor, part->kind == ARCHIVE_STORAGE ? source->raw_dtype : PICI_U8);
        tensor->dtype_text = pici_dtype_name(tensor->dtype);
        if (part->kind == ARCHIVE_KEPT)
            tensor->dtype_text = archive->zip.entries[part->number].stored ? "entry" : "compressed entry";
    }
    if (!tensor->filler)
        describe_deflated(source, tensor);
    return archive_begin(archive, part);
}

/* Checks the end of the input. The length of a regular file is known; a .safetensors stream must end here too. */
static int expect_end(struct source *source)
{
    uint8_t byte;
    size_t received;
    TRY(input_peek(source->input, &byte, 1, &received));
    if (!received)
        return TOOL_OK;
    return tool_bad_at(source->input->name, source->input->position,
                       source->input->regular ? "the file has grown since it was opened"
                                              : "bytes after the last tensor");
}

static int next_typed(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    switch (source->type) {
    case TYPE_NPY: return next_npy(source, tensor, has_more);
    case TYPE_SAFETENSORS: return next_safetensors(source, tensor, has_more);
    case TYPE_GGUF: return next_gguf(source, tensor, has_more);
    case TYPE_PT:
    case TYPE_NPZ: return next_archived(source, tensor, has_more);
    default: return next_raw(source, tensor, has_more);
    }
}

int source_next(struct source *source, struct source_tensor *tensor, bool *has_more)
{
    memset(tensor, 0, sizeof *tensor);
    *has_more = true;
    TRY(next_typed(source, tensor, has_more));
    if (*has_more && !tensor->title) {
        tensor->title = tensor->name;
        tensor->title_size = tensor->name_size;
    }
    return *has_more ? TOOL_OK : expect_end(source);
}

int source_take(struct source *source, void *buffer, size_t bytes)
{
    size_t received;
    if (source->from_part) {
        memcpy(buffer, source->part + source->part_position, bytes);
        source->part_position += bytes;
    } else if (source->archived) {
        TRY(archive_take(&source->archive, source->archived, buffer, bytes, source->left));
    } else {
        TRY(input_read(source->input, buffer, bytes, &received));
        if (received < bytes)
            return tool_bad_at(source->input->name, source->input->position,
                               "unexpected end of file: %" PRIu64 " bytes are missing", source->left - received);
    }
    source->left -= bytes;
    source_swap(buffer, bytes, source->swap_width);
    return TOOL_OK;
}

int source_give(struct source *source, void *buffer, size_t bytes, const uint8_t **elements)
{
    *elements = buffer;
    if (!source->from_part || source->swap_width != 1)
        return source_take(source, buffer, bytes);
    *elements = source->part + source->part_position;
    source->part_position += bytes;
    source->left -= bytes;
    return TOOL_OK;
}
