/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads the metadata of a .pici file: file header, attributes, index and trailer. A forward reader builds the index of
 * the records that it reads, and compares it with the one in the file. */
#include <string.h>

#include "file/lz4.h"
#include "file/reader.h"
#include "xxh64.h"

/* The content of the body of a META, TENS or TABL record; checks its hash. A compressed one is kept in
 * reader->compressed. */
static enum pici_status described(struct pici_reader *reader, const struct pici_record *record, uint64_t least,
                                  uint64_t maximum, struct pici_buf *body, const char *purpose)
{
    struct pici_buf *stored = record->content_bytes ? &reader->compressed : body;
    const uint64_t content_size = record->content_bytes ? record->content_bytes : record->body_bytes;
    if (content_size < least || content_size > maximum || record->body_bytes > maximum)
        return pici_reader_wrong_length(reader, record);
    if (record->content_bytes && !pici_lz4_fits(record->body_bytes, content_size))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "compressed", "%" PRIu64 " bytes cannot decode to %" PRIu64,
                                record->body_bytes, content_size);
    enum pici_status status = pici_reader_body(reader, record, stored, purpose);
    if (!status && pici_xxh64(stored->data, stored->size, 0) != record->body_hash)
        status = pici_reader_fail(reader, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (status || !record->content_bytes)
        return status;
    if (pici_buf_fit(body, content_size))
        return pici_reader_no_memory(reader, purpose);
    body->size = (size_t)content_size;
    return pici_lz4_decompress(body->data, body->size, stored->data, stored->size)
               ? PICI_OK
               : pici_reader_fail(reader, PICI_E_CORRUPT, "compressed", "not an LZ4 block of %" PRIu64 " bytes",
                                  content_size);
}

static enum pici_status attributes(struct pici_reader *reader, struct pici_attrs *list, size_t skipped, uint32_t count)
{
    enum pici_status status = pici_attrs_parse(list, skipped, count);
    if (status == PICI_E_CORRUPT)
        return pici_reader_fail(reader, status, "attributes", "the attributes are malformed");
    return status ? pici_reader_no_memory(reader, "the attributes") : PICI_OK;
}

enum pici_status pici_reader_meta(struct pici_reader *reader, const struct pici_place *place, uint64_t *header_hash)
{
    struct pici_record record;
    pici_reader_look_at(reader, PART_META, FILE_HEADER_BYTES);
    enum pici_status status =
        place ? pici_reader_header_at(reader, &record, place) : pici_reader_header(reader, &record, 0);
    if (!status && record.kind != REC_META)
        status = pici_reader_wrong_kind(reader);
    if (!status)
        status = described(reader, &record, META_HEADER_BYTES, PICI_FILE_META_MAX, &reader->file_attrs.body,
                           "the file's attributes");
    if (status)
        return status;
    const uint8_t *bytes = reader->file_attrs.body.data;
    if (load_le32(bytes + 4))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "attributes", "bytes that must be zero are not");
    *header_hash = record.hash;
    status = attributes(reader, &reader->file_attrs, META_HEADER_BYTES, load_le32(bytes));
    reader->have_file_attrs = !status;
    return status;
}

enum pici_status pici_reader_tens(struct pici_reader *reader, const struct pici_record *record, uint64_t tensor,
                                  struct pici_desc *description)
{
    struct pici_buf *body = &reader->attrs.body;
    reader->attrs_of = PICI_FILE;
    enum pici_status status =
        described(reader, record, DESC_HEADER_BYTES, PICI_TENSOR_META_MAX, body, "the tensor's attributes");
    if (status)
        return status;
    if (!pici_desc_parse(description, body->data, body->size))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "description", "the description is malformed");
    status = attributes(reader, &reader->attrs, description->bytes, description->attribute_count);
    if (!status)
        reader->attrs_of = tensor;
    return status;
}

enum pici_status pici_reader_table(struct pici_reader *reader, const struct pici_record *record)
{
    struct pici_buf *table = &reader->attrs.body; /* no tensor is the current one yet */
    const char *broken_rule;
    reader->attrs_of = PICI_FILE;
    enum pici_status status =
        described(reader, record, DESC_HEADER_BYTES, TABLE_MOST, table, "the tensors' descriptions");
    if (status)
        return status;
    const struct pici_buf *stored = record->content_bytes ? &reader->compressed : table;
    status = pici_index_table(&reader->index, table->data, table->size, &broken_rule);
    reader->where_tensor = reader->index.count; /* the first tensor that the index lacks, if any */
    if (status == PICI_E_CORRUPT)
        return pici_reader_fail(reader, status, broken_rule, "the table is malformed");
    if (!status)
        status = pici_index_close(&reader->index, record->offset, record->hash, stored->data, stored->size,
                                  record->content_bytes);
    reader->have_elements = 0;
    return status ? pici_reader_no_memory(reader, "the index") : PICI_OK;
}

enum pici_status pici_reader_small(struct pici_reader *reader, uint64_t tensor)
{
    size_t bytes;
    struct pici_desc description;
    const uint8_t *body;
    reader->attrs_of = PICI_FILE;
    if (pici_index_body(&reader->index, (size_t)tensor, &body, &bytes) || pici_buf_fit(&reader->attrs.body, bytes))
        return pici_reader_no_memory(reader, "the tensor's attributes");
    memcpy(reader->attrs.body.data, body, bytes);
    reader->attrs.body.size = bytes;
    pici_desc_parse(&description, body, bytes);
    enum pici_status status = attributes(reader, &reader->attrs, description.bytes, description.attribute_count);
    if (!status)
        reader->attrs_of = tensor;
    return status;
}

enum pici_status pici_reader_file_header(struct pici_reader *reader)
{
    uint8_t header[FILE_HEADER_BYTES];
    pici_reader_look_at(reader, PART_HEADER, 0);
    enum pici_status status = reader->read ? pici_reader_take(reader, header, sizeof header)
                                           : pici_reader_pull(reader, 0, header, sizeof header);
    if (status)
        return status;
    if (memcmp(header, FILE_MAGIC, 8) != 0)
        return pici_reader_fail(reader, PICI_E_CORRUPT, "magic", "not a .pici file");
    reader->version = load_le32(header + FILE_VERSION_AT);
    if (reader->version < FILE_VERSION_FIRST || reader->version > FILE_VERSION)
        return pici_reader_fail(reader, PICI_E_VERSION, "version", "version %" PRIu32 " of the format is unknown here",
                                reader->version);
    if (load_le32(header + FILE_RESERVED_AT))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "reserved", "bytes that must be zero are not");
    return PICI_OK;
}

/* Random access: the TABL record at place must be what the index says. */
static enum pici_status check_table(struct pici_reader *reader, struct pici_table *table,
                                    const struct pici_place *place)
{
    const uint8_t *listed = reader->index.bytes.data + table->entry;
    struct pici_record record;
    struct pici_buf *body = &reader->compressed;
    enum pici_status status = pici_reader_header_at(reader, &record, place);
    if (!status && record.kind != REC_TABL)
        status = pici_reader_wrong_kind(reader);
    const uint64_t bytes = load_le64(listed + INDEX_TABLE_BODY);
    int matches =
        !status && record.body_bytes == bytes && record.content_bytes == load_le32(listed + INDEX_TABLE_CONTENT);
    if (matches)
        status = pici_reader_body(reader, &record, body, "the tensors' descriptions");
    if (!status && matches && pici_xxh64(body->data, body->size, 0) != record.body_hash)
        status = pici_reader_fail(reader, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (status)
        return status;
    matches = matches && memcmp(body->data, listed + INDEX_TABLE_BYTES, body->size) == 0;
    table->checked = matches;
    return matches ? PICI_OK
                   : pici_reader_fail(reader, PICI_E_CORRUPT, "index", "not as the index describes the tensors");
}

enum pici_status pici_reader_load_attrs(struct pici_reader *reader, uint64_t tensor)
{
    struct pici_place place;
    struct pici_record record;
    struct pici_desc seen, listed;
    uint64_t header_hash;
    if (tensor == PICI_FILE) {
        place = (struct pici_place){.offset = FILE_HEADER_BYTES, .end = reader->index_offset};
        place.hash = load_le64(reader->index.bytes.data + 8);
        if (reader->index.count) {
            struct pici_place first;
            pici_index_tens(&reader->index, 0, reader->index_offset, &first);
            place.end = first.offset;
        }
        return pici_reader_meta(reader, &place, &header_hash);
    }
    pici_index_tens(&reader->index, (size_t)tensor, reader->index_offset, &place);
    pici_reader_look_at(reader, PART_TENS, place.offset);
    reader->where_tensor = tensor;
    struct pici_table *table = pici_index_table_of(&reader->index, (size_t)tensor);
    if (table) {
        enum pici_status bad = table->checked ? PICI_OK : check_table(reader, table, &place);
        return bad ? bad : pici_reader_small(reader, tensor);
    }
    enum pici_status status = pici_reader_header_at(reader, &record, &place);
    if (!status && record.kind != REC_TENS)
        status = pici_reader_wrong_kind(reader);
    if (!status)
        status = pici_reader_tens(reader, &record, tensor, &seen);
    if (status)
        return status;
    pici_index_desc(&reader->index, (size_t)tensor, &listed);
    if (seen.bytes != listed.bytes ||
        memcmp(seen.shape - DESC_HEADER_BYTES, listed.shape - DESC_HEADER_BYTES, seen.bytes) != 0) {
        reader->attrs_of = PICI_FILE;
        return pici_reader_fail(reader, PICI_E_CORRUPT, "index", "not as the index describes the tensor");
    }
    return PICI_OK;
}

/* ---- The end of the file ---- */

static enum pici_status check_trailer(struct pici_reader *reader, const uint8_t *trailer_bytes)
{
    if (memcmp(trailer_bytes + TRAILER_MAGIC, FILE_END_MAGIC, 8) != 0)
        return pici_reader_fail(reader, PICI_E_CORRUPT, "trailer-magic", "the file does not end as a .pici file does");
    if (pici_xxh64(trailer_bytes, TRAILER_HASH, 0) != load_le64(trailer_bytes + TRAILER_HASH))
        return pici_reader_fail(reader, PICI_E_CHECKSUM, "trailer-hash", "checksum mismatch");
    return PICI_OK;
}

static enum pici_status wrong_trailer(struct pici_reader *reader)
{
    return pici_reader_fail(reader, PICI_E_CORRUPT, "trailer", "the trailer does not fit the index");
}

static enum pici_status check_names(struct pici_reader *reader)
{
    size_t i;
    if (pici_index_unique(&reader->index, &i))
        return PICI_OK;
    struct pici_desc description;
    char quoted[PICI_QUOTE_CAP];
    pici_index_desc(&reader->index, i, &description);
    return pici_reader_fail(reader, PICI_E_CORRUPT, "name", "two tensors are named %s",
                            pici_quote(quoted, description.name, description.name_size));
}

/* Forward: compare the INDX record with the index of the records before it. */
static enum pici_status compare_index(struct pici_reader *reader, const struct pici_record *record)
{
    const struct pici_buf *expected = &reader->index.bytes;
    uint8_t piece[4096];
    struct pici_xxh64 hash_state;
    int matches = 1;
    if (record->body_bytes != expected->size)
        return pici_reader_wrong_length(reader, record);
    pici_xxh64_init(&hash_state, 0);
    for (size_t position = 0; position < expected->size; position += sizeof piece) {
        size_t size = expected->size - position < sizeof piece ? expected->size - position : sizeof piece;
        enum pici_status status = pici_reader_take(reader, piece, size);
        if (status)
            return status;
        pici_xxh64_update(&hash_state, piece, size);
        matches = matches && memcmp(piece, expected->data + position, size) == 0;
    }
    size_t padding = -expected->size & 15;
    enum pici_status status = pici_reader_take(reader, piece, padding);
    if (status)
        return status;
    if (!pici_all_zero(piece, padding))
        return pici_reader_fail(reader, PICI_E_CORRUPT, "padding", "bytes that must be zero are not");
    if (pici_xxh64_digest(&hash_state) != record->body_hash)
        return pici_reader_fail(reader, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    status = check_names(reader);
    if (!status && !matches)
        status = pici_reader_fail(reader, PICI_E_CORRUPT, "index", "the index does not match the records before it");
    return status;
}

enum pici_status pici_reader_end(struct pici_reader *reader, const struct pici_record *record)
{
    uint8_t trailer_bytes[TRAILER_BYTES], excess;
    size_t received;
    enum pici_status status = compare_index(reader, record);
    if (status)
        return status;
    pici_reader_look_at(reader, PART_TRAILER, reader->consumed);
    status = pici_reader_take(reader, trailer_bytes, sizeof trailer_bytes);
    if (!status)
        status = check_trailer(reader, trailer_bytes);
    if (!status && (load_le64(trailer_bytes + TRAILER_INDEX) != record->offset ||
                    load_le64(trailer_bytes + TRAILER_INDEX_HASH) != record->hash))
        status = wrong_trailer(reader);
    if (!status)
        status = pici_reader_take_some(reader, &excess, 1, &received);
    if (!status && received)
        status = pici_reader_fail(reader, PICI_E_CORRUPT, "trailing", "more bytes follow");
    reader->ended = !status;
    return status;
}

enum pici_status pici_reader_index(struct pici_reader *reader)
{
    uint8_t trailer_bytes[TRAILER_BYTES];
    uint64_t trailer = reader->file_bytes - TRAILER_BYTES;
    struct pici_record record;
    const char *broken_rule;
    pici_reader_look_at(reader, PART_TRAILER, trailer);
    enum pici_status status = pici_reader_pull(reader, trailer, trailer_bytes, sizeof trailer_bytes);
    if (!status)
        status = check_trailer(reader, trailer_bytes);
    if (status)
        return status;
    uint64_t at = reader->index_offset = load_le64(trailer_bytes + TRAILER_INDEX);
    if (at % 16 || at < FILE_HEADER_BYTES + REC_LEAST || at > trailer - REC_LEAST)
        return wrong_trailer(reader);
    pici_reader_look_at(reader, PART_INDEX, at);
    status = pici_reader_header(reader, &record, at);
    if (!status && record.kind != REC_INDX)
        status = pici_reader_wrong_kind(reader);
    if (!status && record.hash != load_le64(trailer_bytes + TRAILER_INDEX_HASH))
        status = wrong_trailer(reader);
    if (!status && (record.body_bytes < INDEX_HEADER_BYTES || record.body_bytes > trailer ||
                    rec_bytes(record.body_bytes) != trailer - at))
        status = pici_reader_wrong_length(reader, &record);
    if (!status)
        status = pici_reader_body(reader, &record, &reader->index.bytes, "the index");
    if (!status && pici_xxh64(reader->index.bytes.data, reader->index.bytes.size, 0) != record.body_hash)
        status = pici_reader_fail(reader, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (status)
        return status;
    status = pici_index_load(&reader->index, at, reader->version, &broken_rule);
    if (status)
        return status == PICI_E_NOMEM ? pici_reader_no_memory(reader, "the names in the index")
                                      : pici_reader_fail(reader, status, broken_rule, "the index is malformed");
    return check_names(reader);
}
