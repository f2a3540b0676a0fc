/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The public functions that read elements of a .pici file, or verify the whole file. */
#include <stdio.h>

#include "file/reader.h"
#include "sized.h"

enum pici_status pici_reader_read(struct pici_reader *reader, void *destination, uint64_t elements)
{
    struct pici_desc description;
    enum pici_status status = pici_reader_enter(reader);
    if (status)
        return status;
    if (reader->current == PICI_FILE)
        return pici_reader_refuse(reader, PICI_E_ARG, "there is no current tensor");
    pici_reader_current(reader, &description);
    if (elements > description.count - reader->elements_read || (elements && !destination))
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or %" PRIu64 " elements where %" PRIu64 " remain",
                                  elements, (description.count - reader->elements_read));
    status = pici_reader_elements(reader, reader->current, &description, reader->elements_read, elements, CHUNK_DECODE,
                                  destination);
    if (!status)
        reader->elements_read += elements;
    return status;
}

/* Random access: the description of the tensor. */
static enum pici_status describe(struct pici_reader *reader, uint64_t tensor, struct pici_desc *description)
{
    enum pici_status status = pici_reader_enter(reader);
    if (status)
        return status;
    if (reader->read)
        return pici_reader_refuse(reader, PICI_E_ARG, "a forward reader has no random access");
    if (tensor >= reader->index.count)
        return pici_reader_refuse(reader, PICI_E_ARG, "no tensor %" PRIu64 ": there are %zu", tensor,
                                  reader->index.count);
    pici_index_desc(&reader->index, (size_t)tensor, description);
    return PICI_OK;
}

static enum pici_status range(struct pici_reader *reader, uint64_t tensor, uint64_t first_element, uint64_t elements,
                              enum pici_chunk_use use, void *destination)
{
    struct pici_desc description;
    enum pici_status status = describe(reader, tensor, &description);
    if (status)
        return status;
    if (first_element > description.count || elements > description.count - first_element || (elements && !destination))
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or elements [%" PRIu64 ", +%" PRIu64 ") of %" PRIu64,
                                  first_element, elements, description.count);
    return pici_reader_elements(reader, tensor, &description, first_element, elements, use, destination);
}

enum pici_status pici_reader_read_range(struct pici_reader *reader, uint64_t tensor, uint64_t first_element,
                                        uint64_t elements, void *destination)
{
    return range(reader, tensor, first_element, elements, CHUNK_DECODE, destination);
}

enum pici_status pici_reader_apply_range(struct pici_reader *reader, uint64_t tensor, uint64_t first_element,
                                         uint64_t elements, void *destination)
{
    return range(reader, tensor, first_element, elements, CHUNK_APPLY, destination);
}

enum pici_status pici_reader_chunk(struct pici_reader *reader, uint64_t tensor, uint64_t chunk_number,
                                   struct pici_chunk_info *info)
{
    struct pici_desc description;
    enum pici_status status = describe(reader, tensor, &description);
    if (status)
        return status;
    if (!info || sized_of(info) < sizeof *info || chunk_number >= description.chunks)
        return pici_reader_refuse(reader, PICI_E_ARG, "null, not initialized, or no chunk %" PRIu64 " of %" PRIu64,
                                  chunk_number, description.chunks);
    struct pici_chunk *part;
    status = pici_reader_open_part(reader, tensor, &description, chunk_number, &part);
    if (status)
        return status;
    struct pici_chunk_info checked = PICI_CHUNK_INFO_INIT;
    size_t size;
    const uint8_t *block = pici_chunk_block(part, &size);
    checked.offset = part->offset;
    checked.stored_bytes = part->stored.size;
    checked.first = chunk_number * description.chunk_elements;
    checked.zstd = part->kind == REC_ZSTD;
    status = pici_inspect(&checked.block, block, size);
    return status ? status : sized_write(info, &checked, sizeof checked, sizeof checked);
}

/* ---- Verification ---- */

static enum pici_status verify_forward(struct pici_reader *reader)
{
    for (;;) {
        struct pici_tensor_info tensor_info = PICI_TENSOR_INFO_INIT;
        struct pici_desc description;
        int has_more;
        enum pici_status status = pici_reader_next(reader, &tensor_info, &has_more);
        if (status || !has_more)
            return status;
        pici_reader_current(reader, &description);
        if (pici_index_table_of(&reader->index, (size_t)reader->current))
            continue; /* its chunk is checked when it is read, before the next record */
        for (uint64_t chunk_number = 0; chunk_number < description.chunks && !status;) {
            int taken = description.chunks - chunk_number < (uint64_t)reader->slots
                            ? (int)(description.chunks - chunk_number)
                            : reader->slots;
            status = pici_reader_chunks(reader, reader->current, &description, chunk_number, taken, CHUNK_VERIFY, NULL);
            chunk_number += (uint64_t)taken;
        }
        if (status)
            return status;
        reader->elements_read = description.count;
    }
}

/* The file of a random-access reader as the source of a forward reader. */
struct source {
    struct pici_reader *reader;
    uint64_t position;
};

static int read_on(void *context, void *bytes, size_t capacity, size_t *received)
{
    struct source *source = context;
    uint64_t remaining = source->reader->file_bytes - source->position;
    *received = remaining < capacity ? (size_t)remaining : capacity;
    int error_number =
        *received ? source->reader->read_at(source->reader->context, bytes, *received, source->position) : 0;
    source->position += *received;
    return error_number;
}

enum pici_status pici_reader_verify(struct pici_reader *reader)
{
    enum pici_status status = pici_reader_enter(reader);
    if (status)
        return status;
    if (reader->read && (reader->current != PICI_FILE || reader->ended))
        return pici_reader_refuse(reader, PICI_E_ARG, "the file has been read in part");
    if (reader->read)
        return verify_forward(reader);
    struct source source = {.reader = reader};
    struct pici_reader_opts options = PICI_READER_OPTS_INIT;
    struct pici_reader *forward_reader;
    options.threads = reader->threads;
    status = pici_reader_open_stream(&forward_reader, read_on, &source, &options);
    if (!status)
        status = verify_forward(forward_reader);
    if (status) {
        snprintf(reader->error, sizeof reader->error, "%s", pici_reader_error(forward_reader));
        reader->where_offset = pici_reader_error_offset(forward_reader);
    }
    pici_reader_close(forward_reader);
    return status;
}
