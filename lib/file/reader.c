/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A reader of .pici files: opening and closing, tensors and their attributes. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/reader.h"
#include "codec/parallel.h"
#include "sized.h"

enum { LEAST_FILE = FILE_HEADER_BYTES + 2 * REC_LEAST + TRAILER_BYTES };

/* ---- Opening ---- */

static enum pici_status fill(struct pici_reader *reader, const struct pici_reader_opts *options)
{
    struct pici_reader_opts checked = PICI_READER_OPTS_INIT;
    reader->current = reader->attrs_of = reader->part.tensor = PICI_FILE;
    enum pici_status status = options ? sized_read(&checked, sizeof checked, sizeof checked, options) : PICI_OK;
    if (status == PICI_E_UNSUPPORTED)
        return pici_reader_refuse(reader, status, "options of a newer version are set");
    if (status || checked.threads < 0)
        return pici_reader_refuse(reader, PICI_E_ARG, "options are not initialized, or threads are negative");
    reader->threads = checked.threads;
    reader->slots = pici_thread_count(checked.threads, UINT64_MAX);
    reader->chunks = calloc((size_t)reader->slots, sizeof *reader->chunks);
    if (reader->chunks && reader->read)
        reader->ahead = malloc(READER_IN_BYTES);
    return reader->chunks && (reader->ahead || !reader->read) ? PICI_OK : pici_reader_no_memory(reader, "the reader");
}

static enum pici_status start(struct pici_reader *reader, const struct pici_reader_opts *options)
{
    enum pici_status status = fill(reader, options);
    if (!status && reader->read_at && reader->file_bytes < LEAST_FILE && reader->file_bytes >= FILE_HEADER_BYTES) {
        status = pici_reader_file_header(reader); /* gives a better message for other kinds of files */
        if (!status)
            status = pici_reader_fail(reader, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64,
                                      reader->file_bytes);
    } else if (!status) {
        status = pici_reader_file_header(reader);
    }
    if (!status && reader->read_at) {
        status = pici_reader_index(reader);
    } else if (!status) {
        uint64_t header_hash;
        status = pici_reader_meta(reader, NULL, &header_hash);
        if (!status && pici_index_begin(&reader->index, header_hash))
            status = pici_reader_no_memory(reader, "the index");
    }
    reader->failed = status;
    return status;
}

/* Allocate a reader. *out is null if the arguments are wrong or there is no memory. */
static struct pici_reader *make(struct pici_reader **out, int valid)
{
    return out ? *out = valid ? calloc(1, sizeof **out) : NULL : NULL;
}

enum pici_status pici_reader_open_stream(struct pici_reader **out, pici_read_fn read, void *context,
                                         const struct pici_reader_opts *options)
{
    struct pici_reader *reader = make(out, read != NULL);
    if (!reader)
        return out && read ? PICI_E_NOMEM : PICI_E_ARG;
    reader->read = read;
    reader->context = context;
    return start(reader, options);
}

enum pici_status pici_reader_open_fd(struct pici_reader **out, int descriptor, const struct pici_reader_opts *options)
{
    struct pici_reader *reader = make(out, 1);
    if (!reader)
        return out ? PICI_E_NOMEM : PICI_E_ARG;
    reader->read = pici_fd_read;
    reader->descriptor = descriptor;
    reader->context = &reader->descriptor;
    return start(reader, options);
}

enum pici_status pici_reader_open_at(struct pici_reader **out, pici_read_at_fn read_at, void *context,
                                     uint64_t file_bytes, const struct pici_reader_opts *options)
{
    int valid = read_at && file_bytes <= INT64_MAX;
    struct pici_reader *reader = make(out, valid);
    if (!reader)
        return out && valid ? PICI_E_NOMEM : PICI_E_ARG;
    reader->read_at = read_at;
    reader->context = context;
    reader->file_bytes = file_bytes;
    return start(reader, options);
}

static int memory_read_at(void *context, void *bytes, size_t size, uint64_t offset)
{
    const struct pici_reader *reader = context;
    memcpy(bytes, reader->memory + (size_t)offset, size);
    return 0;
}

enum pici_status pici_reader_open_memory(struct pici_reader **out, const void *file, size_t size,
                                         const struct pici_reader_opts *options)
{
    struct pici_reader *reader = make(out, file || !size);
    if (!reader)
        return out && (file || !size) ? PICI_E_NOMEM : PICI_E_ARG;
    reader->memory = file;
    reader->read_at = memory_read_at;
    reader->context = reader;
    reader->file_bytes = size;
    return start(reader, options);
}

enum pici_status pici_reader_open_path(struct pici_reader **out, const char *path,
                                       const struct pici_reader_opts *options)
{
    struct pici_reader *reader = make(out, path != NULL);
    struct stat file_status;
    if (!reader)
        return out && path ? PICI_E_NOMEM : PICI_E_ARG;
    reader->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO would block */
    if (reader->descriptor < 0 || fstat(reader->descriptor, &file_status) != 0) {
        const int error_number = errno;
        snprintf(reader->error, sizeof reader->error, "cannot open: ");
        pici_errno_text(error_number, reader->error + strlen(reader->error),
                        sizeof reader->error - strlen(reader->error));
        if (reader->descriptor >= 0)
            close(reader->descriptor);
        errno = error_number;
        return reader->failed = PICI_E_IO;
    }
    reader->owns_descriptor = 1;
    if (!S_ISREG(file_status.st_mode))
        return reader->failed = pici_reader_refuse(reader, PICI_E_ARG, "not a regular file");
    reader->read_at = pici_fd_read_at;
    reader->context = &reader->descriptor;
    reader->file_bytes = (uint64_t)file_status.st_size;
    return start(reader, options);
}

void pici_reader_close(struct pici_reader *reader)
{
    if (!reader)
        return;
    for (int i = 0; reader->chunks && i < reader->slots; i++)
        pici_chunk_free(&reader->chunks[i]);
    for (int i = 0; reader->common && i < COMMON_KEPT; i++)
        pici_chunk_free(&reader->common[i]);
    pici_chunk_free(&reader->part);
    free(reader->chunks);
    free(reader->common);
    pici_buf_free(&reader->compressed);
    pici_buf_free(&reader->elements);
    free(reader->ahead);
    pici_index_free(&reader->index);
    pici_attrs_free(&reader->file_attrs);
    pici_attrs_free(&reader->attrs);
    free(reader->views.rows);
    free(reader->views.names);
    if (reader->owns_descriptor)
        close(reader->descriptor);
    free(reader);
}

const char *pici_reader_error(const struct pici_reader *reader)
{
    return reader ? reader->error : "out of memory, or a wrong argument";
}

uint64_t pici_reader_error_offset(const struct pici_reader *reader)
{
    return reader ? reader->where_offset : 0;
}

/* ---- Tensors ---- */

/* Copy the tensor's description to the caller's struct, which may be of another version. */
static enum pici_status give_info(const struct pici_reader *reader, size_t tensor, struct pici_tensor_info *theirs)
{
    struct pici_tensor_info tensor_info;
    struct pici_desc description;
    if (reader->read)
        pici_desc_parse(&description, reader->attrs.body.data,
                        reader->attrs.body.size); /* the index moves when it grows; this stays */
    else
        pici_index_desc(&reader->index, tensor, &description);
    tensor_info = (struct pici_tensor_info){.size = sizeof tensor_info,
                                            .index = tensor,
                                            .name = description.name,
                                            .name_len = description.name_size,
                                            .dtype = description.dtype,
                                            .rank = description.rank,
                                            .count = description.count,
                                            .chunk_elements = description.chunk_elements,
                                            .chunks = description.chunks,
                                            .attrs = description.attribute_count};
    for (unsigned k = 0; k < description.rank; k++)
        tensor_info.shape[k] = load_le64(description.shape + 8 * k);
    if (!reader->read)
        tensor_info.stored_bytes = pici_index_stored(&reader->index, tensor, reader->index_offset);
    return sized_write(theirs, &tensor_info, sizeof tensor_info, sizeof tensor_info);
}

/* Forward: the tensor is the current one, and its description in reader->attrs. */
static enum pici_status make_current(struct pici_reader *reader, uint64_t tensor, struct pici_tensor_info *tensor_info,
                                     int *has_more)
{
    reader->current = tensor;
    reader->elements_read = 0;
    *has_more = 1;
    return give_info(reader, (size_t)tensor, tensor_info);
}

/* Forward: the record after the current tensor. */
static enum pici_status next_record(struct pici_reader *reader, struct pici_tensor_info *tensor_info, int *has_more)
{
    struct pici_record record;
    struct pici_desc description;
    uint64_t i = reader->index.count;
    pici_reader_look_at(reader, PART_NEXT, reader->consumed);
    enum pici_status status = pici_reader_header(reader, &record, 0);
    if (status)
        return status;
    if (record.kind == REC_INDX) {
        pici_reader_look_at(reader, PART_INDEX, record.offset);
        reader->current = PICI_FILE;
        return pici_reader_end(reader, &record);
    }
    const int table = record.kind == REC_TABL && reader->version > FILE_VERSION_FIRST;
    if (record.kind != REC_TENS && !table)
        return pici_reader_wrong_kind(reader);
    pici_reader_look_at(reader, PART_TENS, record.offset);
    reader->where_tensor = i;
    if (table) {
        status = pici_reader_table(reader, &record);
        if (!status)
            status = pici_reader_small(reader, i);
    } else {
        status = pici_reader_tens(reader, &record, i, &description);
        if (!status &&
            pici_index_tensor(&reader->index, record.offset, record.hash, reader->attrs.body.data, description.bytes))
            status = pici_reader_no_memory(reader, "the index");
    }
    return status ? status : make_current(reader, i, tensor_info, has_more);
}

enum pici_status pici_reader_next(struct pici_reader *reader, struct pici_tensor_info *tensor_info, int *has_more)
{
    enum pici_status status = pici_reader_enter(reader);
    if (status)
        return status;
    if (!tensor_info || !has_more || sized_of(tensor_info) < sizeof *tensor_info)
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or not initialized");
    *has_more = 0;
    if (reader->ended)
        return PICI_OK;
    if (reader->read) {
        status = pici_reader_pass(reader);
        if (status || reader->current == PICI_FILE || reader->current + 1 == reader->index.count)
            return status ? status : next_record(reader, tensor_info, has_more);
        status = pici_reader_small(reader, reader->current + 1); /* of the same table */
        return status ? status : make_current(reader, reader->current + 1, tensor_info, has_more);
    }
    uint64_t i = reader->current == PICI_FILE ? 0 : reader->current + 1;
    if (i == reader->index.count) {
        reader->current = PICI_FILE;
        reader->ended = 1;
        return PICI_OK;
    }
    reader->current = i;
    reader->elements_read = 0;
    *has_more = 1;
    return give_info(reader, (size_t)i, tensor_info);
}

static enum pici_status enter_random(struct pici_reader *reader)
{
    enum pici_status status = pici_reader_enter(reader);
    if (!status && reader->read)
        status = pici_reader_refuse(reader, PICI_E_ARG, "a forward reader has no random access");
    return status;
}

enum pici_status pici_reader_count(struct pici_reader *reader, uint64_t *tensors)
{
    enum pici_status status = enter_random(reader);
    if (!status && !tensors)
        status = pici_reader_refuse(reader, PICI_E_ARG, "null");
    if (!status)
        *tensors = reader->index.count;
    return status;
}

enum pici_status pici_reader_tensor(struct pici_reader *reader, uint64_t tensor, struct pici_tensor_info *tensor_info)
{
    enum pici_status status = enter_random(reader);
    if (status)
        return status;
    if (!tensor_info || sized_of(tensor_info) < sizeof *tensor_info)
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or not initialized");
    if (tensor >= reader->index.count)
        return pici_reader_refuse(reader, PICI_E_ARG, "no tensor %" PRIu64 ": there are %zu", tensor,
                                  reader->index.count);
    return give_info(reader, (size_t)tensor, tensor_info);
}

enum pici_status pici_reader_find(struct pici_reader *reader, const char *name, size_t name_len,
                                  struct pici_tensor_info *tensor_info)
{
    char quoted[PICI_QUOTE_CAP];
    size_t i;
    enum pici_status status = enter_random(reader);
    if (status)
        return status;
    if (!tensor_info || sized_of(tensor_info) < sizeof *tensor_info || (name_len && !name))
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or not initialized");
    if (!pici_index_find(&reader->index, name, name_len, &i))
        return pici_reader_refuse(reader, PICI_E_ARG, "no tensor is named %s", pici_quote(quoted, name, name_len));
    return give_info(reader, i, tensor_info);
}

/* ---- Attributes ---- */

/* The attributes of the tensor or the file. */
static enum pici_status attrs_of(struct pici_reader *reader, uint64_t tensor, const struct pici_attrs **attributes)
{
    enum pici_status status = pici_reader_enter(reader);
    if (status)
        return status;
    int is_kept = tensor == PICI_FILE ? reader->have_file_attrs : reader->attrs_of == tensor;
    if (!is_kept && (reader->read || (tensor != PICI_FILE && tensor >= reader->index.count)))
        return pici_reader_refuse(reader, PICI_E_ARG,
                                  "no tensor %" PRIu64 ", or not the current one of a forward reader", tensor);
    if (!is_kept)
        status = pici_reader_load_attrs(reader, tensor);
    *attributes = tensor == PICI_FILE ? &reader->file_attrs : &reader->attrs;
    return status;
}

enum pici_status pici_reader_attr(struct pici_reader *reader, uint64_t tensor, const char *key,
                                  struct pici_attr *attribute)
{
    const struct pici_attrs *attributes;
    uint32_t count;
    enum pici_status status = attrs_of(reader, tensor, &attributes);
    if (status)
        return status;
    if (!key || !attribute)
        return pici_reader_refuse(reader, PICI_E_ARG, "null");
    *attribute = (struct pici_attr){NULL, NULL, 0};
    if (pici_attrs_find(attributes, key, &count))
        pici_attrs_get(attributes, count, attribute);
    return PICI_OK;
}

enum pici_status pici_reader_attr_at(struct pici_reader *reader, uint64_t tensor, uint32_t number,
                                     struct pici_attr *attribute)
{
    const struct pici_attrs *attributes;
    enum pici_status status = attrs_of(reader, tensor, &attributes);
    if (status)
        return status;
    if (!attribute || number >= attributes->count)
        return pici_reader_refuse(reader, PICI_E_ARG, "no attribute %" PRIu32 ": there are %" PRIu32, number,
                                  attributes->count);
    pici_attrs_get(attributes, number, attribute);
    return PICI_OK;
}

enum pici_status pici_reader_attr_count(struct pici_reader *reader, uint64_t tensor, uint32_t *count)
{
    const struct pici_attrs *attributes;
    enum pici_status status = attrs_of(reader, tensor, &attributes);
    if (!status && !count)
        status = pici_reader_refuse(reader, PICI_E_ARG, "null");
    if (!status)
        *count = attributes->count;
    return status;
}
