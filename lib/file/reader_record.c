/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The base of the reader of .pici files: bytes from either kind of source, records, error messages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file/reader.h"
#include "xxh64.h"

/* ---- Error messages ---- */

static int say_where(const struct pici_reader *reader, char *message, size_t capacity)
{
    char quoted[PICI_QUOTE_CAP];
    struct pici_desc description;
    uint64_t at = reader->where_offset, tensor = reader->where_tensor;
    switch (reader->where) {
    case PART_HEADER: return snprintf(message, capacity, "the file header at byte %" PRIu64, at);
    case PART_META: return snprintf(message, capacity, "the file's attributes at byte %" PRIu64, at);
    case PART_NEXT: return snprintf(message, capacity, "the record at byte %" PRIu64, at);
    case PART_TENS:
        if (tensor >= reader->index.count) /* forward: the record that has its name is the one with the fault */
            return snprintf(message, capacity, "tensor %" PRIu64 " at byte %" PRIu64, tensor, at);
        pici_index_desc(&reader->index, (size_t)tensor, &description);
        return snprintf(message, capacity, "tensor %s at byte %" PRIu64,
                        pici_quote(quoted, description.name, description.name_size), at);
    case PART_INDEX: return snprintf(message, capacity, "the index at byte %" PRIu64, at);
    case PART_TRAILER: return snprintf(message, capacity, "the trailer at byte %" PRIu64, at);
    case PART_CHUNK: break;
    }
    pici_index_desc(&reader->index, (size_t)tensor, &description);
    pici_quote(quoted, description.name, description.name_size);
    const uint64_t first_element = reader->where_chunk * description.chunk_elements;
    const struct pici_table *table = pici_index_table_of(&reader->index, (size_t)tensor);
    return snprintf(
        message, capacity, "chunk %" PRIu64 " of tensor %s (elements %" PRIu64 " to %" PRIu64 ")%s at byte %" PRIu64,
        reader->where_chunk, quoted, first_element,
        first_element + pici_desc_chunk(&description, reader->where_chunk) - 1,
        table && table->elements[description.dtype] != description.count ? ", shared with other tensors," : "", at);
}

enum pici_status pici_reader_fail(struct pici_reader *reader, enum pici_status status, const char *broken_rule,
                                  const char *format, ...)
{
    va_list args;
    size_t capacity = sizeof reader->error, position = (size_t)say_where(reader, reader->error, capacity);
    position += (size_t)snprintf(reader->error + position, capacity - position, ": ");
    va_start(args, format);
    int count = vsnprintf(reader->error + position, capacity - position, format, args);
    va_end(args);
    position += count > 0 ? (size_t)count : 0;
    if (broken_rule && position < capacity)
        snprintf(reader->error + position, capacity - position, " (%s)", broken_rule);
    if (reader->read)
        reader->failed = status;
    return status;
}

enum pici_status pici_reader_refuse(struct pici_reader *reader, enum pici_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->error, sizeof reader->error, format, args);
    va_end(args);
    return status;
}

enum pici_status pici_reader_no_memory(struct pici_reader *reader, const char *purpose)
{
    return pici_reader_fail(reader, PICI_E_NOMEM, NULL, "out of memory for %s", purpose);
}

static enum pici_status io_error(struct pici_reader *reader, int error_number)
{
    char reason[128];
    return pici_reader_fail(reader, PICI_E_IO, NULL, "read error: %s",
                            pici_errno_text(error_number, reason, sizeof reason));
}

enum pici_status pici_reader_enter(struct pici_reader *reader)
{
    if (!reader)
        return PICI_E_ARG;
    if (reader->failed)
        return reader->failed;
    reader->error[0] = '\0';
    return PICI_OK;
}

void pici_reader_look_at(struct pici_reader *reader, enum pici_part part, uint64_t offset)
{
    reader->where = part;
    reader->where_offset = offset;
}

/* ---- Bytes ---- */

enum pici_status pici_reader_take_some(struct pici_reader *reader, uint8_t *bytes, size_t size, size_t *received)
{
    if (reader->ahead_used == reader->ahead_size && size < READER_IN_BYTES) {
        reader->ahead_used = reader->ahead_size = 0;
        int error_number = reader->read(reader->context, reader->ahead, READER_IN_BYTES, &reader->ahead_size);
        if (error_number || reader->ahead_size > READER_IN_BYTES) {
            reader->ahead_size = 0;
            return io_error(reader, error_number ? error_number : EIO);
        }
    }
    if (reader->ahead_used == reader->ahead_size && size >= READER_IN_BYTES) {
        int error_number = reader->read(reader->context, bytes, size, received);
        if (error_number || *received > size)
            return io_error(reader, error_number ? error_number : EIO);
    } else {
        *received = size < reader->ahead_size - reader->ahead_used ? size : reader->ahead_size - reader->ahead_used;
        memcpy(bytes, reader->ahead + reader->ahead_used, *received);
        reader->ahead_used += *received;
    }
    reader->consumed += *received;
    return PICI_OK;
}

enum pici_status pici_reader_take(struct pici_reader *reader, void *bytes, size_t size)
{
    for (size_t have = 0, received; have < size; have += received) {
        enum pici_status status = pici_reader_take_some(reader, (uint8_t *)bytes + have, size - have, &received);
        if (status)
            return status;
        if (!received)
            return pici_reader_fail(reader, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64,
                                    reader->consumed);
    }
    return PICI_OK;
}

enum pici_status pici_reader_pull(struct pici_reader *reader, uint64_t offset, void *bytes, size_t size)
{
    if (size > reader->file_bytes || offset > reader->file_bytes - size)
        return pici_reader_fail(reader, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64,
                                reader->file_bytes);
    int error_number = reader->read_at(reader->context, bytes, size, offset);
    return error_number ? io_error(reader, error_number) : PICI_OK;
}

/* ---- Records ---- */

enum pici_status pici_reader_header(struct pici_reader *reader, struct pici_record *record, uint64_t offset)
{
    uint8_t header[REC_BYTES];
    record->offset = reader->read ? reader->consumed : offset;
    reader->where_offset = record->offset;
    enum pici_status status = reader->read ? pici_reader_take(reader, header, sizeof header)
                                           : pici_reader_pull(reader, offset, header, sizeof header);
    if (status)
        return status;
    record->kind = load_le32(header + REC_KIND);
    record->body_bytes = load_le64(header + REC_BODY_BYTES);
    record->body_hash = load_le64(header + REC_BODY_HASH);
    record->hash = load_le64(header + REC_HASH);
    if (pici_xxh64(header, REC_HASH, 0) != record->hash)
        return pici_reader_fail(reader, PICI_E_CHECKSUM, "header-hash", "checksum mismatch in the record's header");
    record->content_bytes = load_le32(header + REC_CONTENT);
    const int describes = record->kind == REC_META || record->kind == REC_TENS || record->kind == REC_TABL;
    if (record->content_bytes && (reader->version == FILE_VERSION_FIRST || !describes))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "kind", "bytes that must be zero are not");
    return PICI_OK;
}

/* Whether the record ends at `end`. */
static int ends_at(const struct pici_record *record, uint64_t end_offset)
{
    return record->body_bytes <= end_offset &&
           rec_bytes(record->body_bytes) ==
               end_offset - record->offset; /* the first comparison keeps rec_bytes from wrapping */
}

enum pici_status pici_reader_header_at(struct pici_reader *reader, struct pici_record *record,
                                       const struct pici_place *place)
{
    enum pici_status status = pici_reader_header(reader, record, place->offset);
    if (!status && (record->hash != place->hash || !ends_at(record, place->end)))
        status = pici_reader_fail(reader, PICI_E_CORRUPT, "index", "not the record that the index has here");
    return status;
}

enum pici_status pici_reader_wrong_kind(struct pici_reader *reader)
{
    return pici_reader_fail(reader, PICI_E_CORRUPT, "kind", "a record of a kind that is not allowed here");
}

enum pici_status pici_reader_wrong_length(struct pici_reader *reader, const struct pici_record *record)
{
    return pici_reader_fail(reader, PICI_E_CORRUPT, "body-length", "a body of %" PRIu64 " bytes is out of its limits",
                            record->body_bytes);
}

enum pici_status pici_reader_body(struct pici_reader *reader, const struct pici_record *record, struct pici_buf *body,
                                  const char *purpose)
{
    uint64_t all = rec_bytes(record->body_bytes) - REC_BYTES;
    enum pici_status status = PICI_OK;
    body->size = 0;
    if (reader->read) {
        while (!status && body->size < all) { /* grow by at most the bytes read so far, and 64 KiB */
            uint64_t count = all - body->size, stride = (uint64_t)body->size + READER_IN_BYTES;
            count = count < stride ? count : stride;
            if (pici_buf_fit(body, body->size + count))
                return pici_reader_no_memory(reader, purpose);
            status = pici_reader_take(reader, body->data + body->size, (size_t)count);
            body->size += (size_t)count;
        }
    } else {
        if (pici_buf_fit(body, all))
            return pici_reader_no_memory(reader, purpose);
        status = pici_reader_pull(reader, record->offset + REC_BYTES, body->data, (size_t)all);
    }
    if (status)
        return status;
    body->size = (size_t)record->body_bytes;
    if (!pici_all_zero(body->data + body->size, (size_t)all - body->size))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "padding", "bytes that must be zero are not");
    return PICI_OK;
}
