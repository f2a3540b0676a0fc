/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads the chunks of a tensor. Each thread reads a whole chunk and decodes it directly to its place. If a call needs
 * only a part of a chunk, the reader keeps the chunk's block for the next call. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "file/reader.h"
#include "format.h"

/* ---- One chunk ---- */

/* Read the record of a chunk of `count` elements, without checking its body. place: null in a forward reader. */
static enum pici_status load_at(struct pici_reader *reader, struct pici_chunk *chunk, uint64_t tensor, uint64_t number,
                                enum pici_dtype dtype, uint64_t count, const struct pici_place *place)
{
    struct pici_record record;
    chunk->tensor = PICI_FILE;
    pici_reader_look_at(reader, PART_CHUNK, place ? place->offset : reader->consumed);
    reader->where_tensor = tensor;
    reader->where_chunk = number;
    enum pici_status status =
        place ? pici_reader_header_at(reader, &record, place) : pici_reader_header(reader, &record, 0);
    if (!status && record.kind != REC_BLCK && record.kind != REC_ZSTD)
        status = pici_reader_wrong_kind(reader);
    if (status)
        return status;
    chunk->kind = (enum pici_rec)record.kind;
    chunk->dtype = dtype;
    chunk->count = count;
    uint64_t maximum = pici_chunk_bound(chunk->dtype, chunk->count);
    if (chunk->kind == REC_BLCK ? record.body_bytes < HDR_BYTES || record.body_bytes > maximum
                                : record.body_bytes < 1 || record.body_bytes >= maximum)
        return pici_reader_wrong_length(reader, &record);
    status = pici_reader_body(reader, &record, &chunk->stored, "the chunk");
    if (!status && reader->read && pici_index_chunk(&reader->index, record.offset, record.hash))
        status = pici_reader_no_memory(reader, "the index");
    if (status)
        return status;
    chunk->number = number;
    chunk->offset = record.offset;
    chunk->body_hash = record.body_hash;
    chunk->tensor = tensor;
    return PICI_OK;
}

/* Read chunk number of the tensor. description's pointers are stale once the index has grown. */
static enum pici_status load(struct pici_reader *reader, struct pici_chunk *chunk, uint64_t tensor, uint64_t number,
                             const struct pici_desc *description)
{
    struct pici_place place;
    if (reader->read)
        return load_at(reader, chunk, tensor, number, description->dtype, pici_desc_chunk(description, number), NULL);
    pici_index_blck(&reader->index, (size_t)tensor, number, reader->index_offset, &place);
    return load_at(reader, chunk, tensor, number, description->dtype, place.count, &place);
}

/* Set the error message of a chunk that failed. */
static enum pici_status report(struct pici_reader *reader, const struct pici_chunk *chunk)
{
    enum pici_status status = chunk->status;
    const char *broken_rule = chunk->rule;
    pici_reader_look_at(reader, PART_CHUNK, chunk->offset);
    reader->where_tensor = chunk->tensor;
    reader->where_chunk = chunk->number;
    if (status == PICI_E_NOMEM)
        return pici_reader_no_memory(reader, "the chunk");
    if (!broken_rule)
        return pici_reader_fail(reader, status, NULL, "%s", pici_strerror(status));
    if (status == PICI_E_CHECKSUM && chunk->fault.status == PICI_OK)
        return pici_reader_fail(reader, status, broken_rule, "checksum mismatch");
    if (chunk->fault.status)
        return pici_reader_fail(reader, status, broken_rule,
                                "its block breaks the rule '%s' at byte %" PRIu64 " of the block", chunk->fault.rule,
                                chunk->fault.offset);
    static const struct {
        const char *rule, *words;
    } say[] = {{"zstd", "needs zstd, which this build does not have"},
               {"zstd-frame", "not a zstd frame of a block"},
               {"block-checksum", "its block has no checksum"},
               {"block-tensor", "its block is not of the tensor's dtype or of the chunk's length"}};
    for (size_t i = 0; i < sizeof say / sizeof say[0]; i++)
        if (strcmp(broken_rule, say[i].rule) == 0)
            return pici_reader_fail(reader, status, broken_rule, "%s", say[i].words);
    return pici_reader_fail(reader, status, broken_rule, "%s", pici_strerror(status));
}

/* ---- Several chunks ---- */

struct batch {
    struct pici_reader *reader;
    enum pici_chunk_use use;
    uint8_t *destination;
    size_t stride; /* bytes from a chunk's elements to the next chunk's */
    int threads;   /* inside each block */
};

static void use_one(void *context, int taken)
{
    const struct batch *batch = context;
    pici_use_chunk(&batch->reader->chunks[taken], batch->use,
                   batch->use >= CHUNK_DECODE ? batch->destination + (size_t)taken * batch->stride : NULL,
                   batch->threads);
}

enum pici_status pici_reader_chunks(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                    uint64_t first_chunk, int chunk_count, enum pici_chunk_use use, void *destination)
{
    enum pici_status unread = PICI_OK;
    int loaded = 0;
    while (loaded < chunk_count && !unread) {
        unread = load(reader, &reader->chunks[loaded], tensor, first_chunk + (uint64_t)loaded, description);
        loaded += !unread;
    }
    struct batch batch = {.reader = reader,
                          .use = use,
                          .destination = destination,
                          .stride = description->chunk_elements * description->width};
    batch.threads = chunk_count == 1 ? reader->threads : 1;
    if (loaded)
        pici_chunks_parallel(loaded, use_one, &batch);
    for (int taken = 0; taken < loaded; taken++) /* report the first chunk with a fault */
        if (reader->chunks[taken].status)
            return report(reader, &reader->chunks[taken]);
    return unread;
}

/* The kept common chunk of the table and dtype, or else the chunk to replace by it. Null: no memory. */
static struct pici_chunk *kept_common(struct pici_reader *reader, const struct pici_table *table, enum pici_dtype dtype,
                                      int *is_kept)
{
    *is_kept = 0;
    if (!reader->common && (reader->common = calloc(COMMON_KEPT, sizeof *reader->common)))
        for (int i = 0; i < COMMON_KEPT; i++)
            reader->common[i].tensor = PICI_FILE;
    for (int i = 0; reader->common && i < COMMON_KEPT; i++) {
        struct pici_chunk *chunk = &reader->common[i];
        if (chunk->tensor != PICI_FILE && chunk->dtype == dtype &&
            pici_index_table_of(&reader->index, (size_t)chunk->tensor) == table) {
            *is_kept = 1;
            return chunk;
        }
    }
    return reader->common ? &reader->common[reader->oldest_common++ % COMMON_KEPT] : NULL;
}

/* The chunk kept for parts of the tensor; for a small tensor, the common chunk of its dtype. *is_kept: it is the
 * requested one. */
static struct pici_chunk *kept(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                               uint64_t number, int *is_kept)
{
    const struct pici_table *table = pici_index_table_of(&reader->index, (size_t)tensor);
    if (!table) {
        *is_kept = reader->part.tensor == tensor && reader->part.number == number;
        return &reader->part;
    }
    return kept_common(reader, table, description->dtype, is_kept);
}

enum pici_status pici_reader_open_part(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                       uint64_t number, struct pici_chunk **part)
{
    int is_kept;
    struct pici_chunk *chunk = *part = kept(reader, tensor, description, number, &is_kept);
    if (is_kept)
        return PICI_OK;
    enum pici_status status =
        chunk ? load(reader, chunk, tensor, number, description) : pici_reader_no_memory(reader, "the common chunks");
    if (status)
        return status;
    pici_use_chunk(chunk, reader->read ? CHUNK_VERIFY : CHUNK_OPEN, NULL,
                   1); /* forward: check all of it, as reads may end in it */
    if (!chunk->status)
        return PICI_OK;
    status = report(reader, chunk);
    chunk->tensor = PICI_FILE;
    return status;
}

/* Decode or apply elements of a chunk, from element `from` of the chunk on. */
static enum pici_status read_part(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                  uint64_t number, uint64_t from, uint64_t elements, enum pici_chunk_use use,
                                  void *destination)
{
    struct pici_chunk *chunk;
    struct pici_opts options = PICI_OPTS_INIT;
    options.threads = reader->threads;
    enum pici_status status = pici_reader_open_part(reader, tensor, description, number, &chunk);
    if (status)
        return status;
    size_t size;
    const uint8_t *block = pici_chunk_block(chunk, &size);
    status = (use == CHUNK_APPLY ? pici_apply_range : pici_decompress_range)(destination, from, elements, block, size,
                                                                             &options);
    if (!status)
        return PICI_OK;
    pici_use_chunk(chunk, CHUNK_VERIFY, NULL, 1); /* find the broken rule */
    if (!chunk->status)
        chunk->status = status;
    status = report(reader, chunk);
    chunk->tensor = PICI_FILE;
    return status;
}

/* ---- Small tensors ---- */

/* The first tensor of a table with elements of that dtype. There must be one. */
static size_t first_of(const struct pici_reader *reader, const struct pici_table *table, enum pici_dtype dtype)
{
    struct pici_desc description;
    size_t i = table->first;
    for (pici_index_desc(&reader->index, i, &description); description.dtype != dtype || !description.count;
         pici_index_desc(&reader->index, i, &description))
        i++;
    return i;
}

/* Forward: read the common chunks of the current tensor's table, unless they were read already. */
static enum pici_status read_common(struct pici_reader *reader)
{
    const struct pici_table *table = pici_index_table_of(&reader->index, (size_t)reader->current);
    struct pici_chunk *chunk = &reader->chunks[0];
    size_t position = 0;
    if (reader->have_elements)
        return PICI_OK;
    if (pici_buf_fit(&reader->elements, table->element_bytes))
        return pici_reader_no_memory(reader, "the elements of small tensors");
    for (int number = 0; number < DTYPES; number++) {
        const enum pici_dtype dtype = (enum pici_dtype)number;
        if (!table->elements[number])
            continue;
        enum pici_status status =
            load_at(reader, chunk, first_of(reader, table, dtype), 0, dtype, table->elements[number], NULL);
        if (status)
            return status;
        pici_use_chunk(chunk, CHUNK_DECODE, reader->elements.data + position, 1);
        if (chunk->status)
            return report(reader, chunk);
        reader->elements_at[number] = position;
        position += table->elements[number] * pici_dtype_width(dtype);
    }
    reader->have_elements = 1;
    return PICI_OK;
}

/* Elements of a small tensor. Forward: of the current one. */
static enum pici_status small_elements(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                       uint64_t first_element, uint64_t elements, enum pici_chunk_use use,
                                       void *destination)
{
    if (!elements)
        return PICI_OK;
    first_element += pici_index_first(&reader->index, (size_t)tensor);
    if (!reader->read)
        return read_part(reader, tensor, description, 0, first_element, elements, use, destination);
    enum pici_status status = read_common(reader);
    if (!status)
        memcpy(destination,
               reader->elements.data + reader->elements_at[description->dtype] +
                   (size_t)first_element * description->width,
               (size_t)elements * description->width);
    return status;
}

/* ---- All of them ---- */

enum pici_status pici_reader_elements(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                      uint64_t first_element, uint64_t elements, enum pici_chunk_use use,
                                      void *destination)
{
    const uint64_t chunk = description->chunk_elements;
    uint8_t *target = destination;
    if (pici_index_table_of(&reader->index, (size_t)tensor))
        return small_elements(reader, tensor, description, first_element, elements, use, destination);
    while (elements) {
        uint64_t number = first_element / chunk, from = first_element % chunk,
                 available = pici_desc_chunk(description, number) - from;
        enum pici_status status;
        if (from || available > elements) {
            available = available < elements ? available : elements;
            status = read_part(reader, tensor, description, number, from, available, use, target);
        } else {
            uint64_t whole =
                first_element + elements == description->count ? description->chunks - number : elements / chunk;
            int taken = whole < (uint64_t)reader->slots ? (int)whole : reader->slots;
            status = pici_reader_chunks(reader, tensor, description, number, taken, use, target);
            available = number + (uint64_t)taken == description->chunks ? description->count - first_element
                                                                        : (uint64_t)taken * chunk;
        }
        if (status)
            return status;
        target += (size_t)available * description->width;
        first_element += available;
        elements -= available;
    }
    return PICI_OK;
}

/* ---- The current tensor ---- */

void pici_reader_current(const struct pici_reader *reader, struct pici_desc *description)
{
    if (reader->read)
        pici_desc_parse(description, reader->attrs.body.data, reader->attrs.body.size);
    else
        pici_index_desc(&reader->index, (size_t)reader->current, description);
}

enum pici_status pici_reader_pass(struct pici_reader *reader)
{
    struct pici_desc description;
    if (reader->current == PICI_FILE)
        return PICI_OK;
    pici_reader_current(reader, &description);
    if (pici_index_table_of(&reader->index, (size_t)reader->current)) {
        reader->elements_read = description.count;
        return reader->current + 1 < reader->index.count ? PICI_OK : read_common(reader);
    }
    uint64_t chunk_number =
        reader->elements_read / description.chunk_elements + (reader->elements_read % description.chunk_elements != 0);
    for (enum pici_status status; chunk_number < description.chunks; chunk_number++)
        if ((status = pici_reader_chunks(reader, reader->current, &description, chunk_number, 1, CHUNK_HASH, NULL)) !=
            PICI_OK)
            return status;
    reader->elements_read = description.count;
    return PICI_OK;
}
