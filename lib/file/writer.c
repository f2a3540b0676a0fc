/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing a .pici file, strictly forward. The writer buffers elements until it has a chunk for each thread. If the
 * caller passes that many at once, it encodes them from the caller's memory. The records are written in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "file/lz4.h"
#include "format.h"
#include "codec/parallel.h"
#include "sized.h"
#include "xxh64.h"

enum { OUT_BYTES = 64 << 10 };

/* The most bytes of a tensor that goes into a table, with its elements in common chunks; and of all tensors of a
 * table. */
enum { SMALL_ELEMENTS = 16 << 10, SMALL_DESCRIPTION = 4 << 10, TABLE_ELEMENTS = 64 << 10, TABLE_BYTES = 64 << 10 };

struct pici_writer {
    pici_write_fn write;
    void *context;
    int descriptor; /* of pici_writer_open_fd: context points at it */
    struct pici_writer_opts options;
    int slots; /* chunks encoded at a time */
    struct pici_packer *packers;

    uint64_t position; /* bytes of the file so far, including buffered ones */
    size_t buffered;   /* in output */
    uint8_t *output;   /* [OUT_BYTES] */

    struct pici_index index;
    struct pici_desc description; /* of the current tensor; its pointers are stale */
    uint64_t missing;             /* its missing bytes */
    struct pici_buf staged;       /* elements of an incomplete batch, */
    uint8_t *delta;               /* [slots] and whether each of its chunks has bytes of a delta */
    struct pici_buf body;         /* a record's body; in pici_writer_tensor, of a TENS record */
    struct pici_buf compressed;   /* the same, compressed */

    int small;                      /* the current tensor is in the open table; of the tensor: */
    size_t small_at;                /* where its elements begin in common, */
    int small_delta;                /* and whether some of them are a delta; of the table: */
    struct pici_buf common[DTYPES]; /* elements of each dtype, */
    int common_delta[DTYPES];       /* and whether some of them are a delta */

    enum pici_status failed; /* every further call returns it */
    int finished;
    char error[PICI_ERROR_CAP];
};

__attribute__((format(printf, 3, 4))) static enum pici_status fail(struct pici_writer *writer, enum pici_status status,
                                                                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(writer->error, sizeof writer->error, format, args);
    va_end(args);
    if (status != PICI_E_ARG)
        writer->failed = status;
    return status;
}

static enum pici_status no_memory(struct pici_writer *writer, const char *purpose)
{
    return fail(writer, PICI_E_NOMEM, "out of memory for %s, at byte %" PRIu64, purpose, writer->position);
}

/* ---- Bytes ---- */

static enum pici_status hand_over(struct pici_writer *writer, const void *bytes, size_t size)
{
    int error_number = size ? writer->write(writer->context, bytes, size) : 0;
    if (!error_number)
        return PICI_OK;
    char reason[128];
    fail(writer, PICI_E_IO, "write error: %s", pici_errno_text(error_number, reason, sizeof reason));
    errno = error_number;
    return PICI_E_IO;
}

static enum pici_status flush(struct pici_writer *writer)
{
    size_t size = writer->buffered;
    writer->buffered = 0;
    return hand_over(writer, writer->output, size);
}

static enum pici_status emit(struct pici_writer *writer, const void *bytes, size_t size)
{
    writer->position += size;
    if (size > OUT_BYTES - writer->buffered) {
        enum pici_status status = flush(writer);
        if (status)
            return status;
        if (size >= OUT_BYTES)
            return hand_over(writer, bytes, size);
    }
    if (size)
        memcpy(writer->output + writer->buffered, bytes, size);
    writer->buffered += size;
    return PICI_OK;
}

static enum pici_status emit_zeros(struct pici_writer *writer, size_t size)
{
    static const uint8_t zeros[16];
    return emit(writer, zeros, size);
}

/* A record's header; *hash is its header_hash. */
static enum pici_status emit_header(struct pici_writer *writer, enum pici_rec kind, uint64_t body_bytes,
                                    uint32_t content_bytes, uint64_t body_hash, uint64_t *header_hash)
{
    uint8_t header[REC_BYTES];
    store_le32(header + REC_KIND, kind);
    store_le32(header + REC_CONTENT, content_bytes);
    store_le64(header + REC_BODY_BYTES, body_bytes);
    store_le64(header + REC_BODY_HASH, body_hash);
    *header_hash = pici_xxh64(header, REC_HASH, 0);
    store_le64(header + REC_HASH, *header_hash);
    return emit(writer, header, sizeof header);
}

static enum pici_status emit_padding(struct pici_writer *writer)
{
    return emit_zeros(writer, (size_t)(-writer->position & 15));
}

/* ---- Attributes ---- */

static int by_key(const void *left_item, const void *right_item)
{
    return strcmp((*(const struct pici_attr *const *)left_item)->key,
                  (*(const struct pici_attr *const *)right_item)->key);
}

/* Sort the attributes by key. The caller frees *sorted. *bytes: their length in a record. */
static enum pici_status sort_attrs(struct pici_writer *writer, const struct pici_attr ***sorted,
                                   const struct pici_attr *attributes, size_t attribute_count, uint64_t *bytes)
{
    char quoted[PICI_QUOTE_CAP];
    *sorted = NULL;
    *bytes = 0;
    if (attribute_count && !attributes)
        return fail(writer, PICI_E_ARG, "attributes are null");
    if (attribute_count > PICI_FILE_META_MAX / ATTR_HEADER_BYTES)
        return fail(writer, PICI_E_ARG, "more attributes than a file holds");
    for (size_t i = 0; i < attribute_count; i++) {
        const struct pici_attr *attribute = &attributes[i];
        size_t size = attribute->key ? strlen(attribute->key) : 0;
        if (size < 1 || size > PICI_KEY_MAX)
            return fail(writer, PICI_E_ARG, "attribute %zu: a key has 1 to %u bytes", i, PICI_KEY_MAX);
        if (attribute->len > PICI_FILE_META_MAX || (attribute->len && !attribute->value))
            return fail(writer, PICI_E_ARG, "attribute %s: the value is %s", pici_quote(quoted, attribute->key, size),
                        attribute->value ? "too long" : "null");
        *bytes += ATTR_HEADER_BYTES + text_bytes(size) + text_bytes(attribute->len);
    }
    if (!attribute_count)
        return PICI_OK;
    const struct pici_attr **pointers = malloc(attribute_count * sizeof *pointers);
    if (!pointers)
        return no_memory(writer, "the attributes");
    for (size_t i = 0; i < attribute_count; i++)
        pointers[i] = &attributes[i];
    qsort(pointers, attribute_count, sizeof *pointers, by_key);
    for (size_t i = 1; i < attribute_count; i++)
        if (strcmp(pointers[i - 1]->key, pointers[i]->key) == 0) {
            fail(writer, PICI_E_ARG, "attribute %s comes twice",
                 pici_quote(quoted, pointers[i]->key, strlen(pointers[i]->key)));
            free(pointers);
            return PICI_E_ARG;
        }
    *sorted = pointers;
    return PICI_OK;
}

/* Append a text, and the zeros after it, to writer->body, which has room. */
static void add_text(struct pici_writer *writer, const void *bytes, size_t size)
{
    uint8_t *target = writer->body.data + writer->body.size;
    memset(target, 0, text_bytes(size));
    if (size)
        memcpy(target, bytes, size);
    writer->body.size += text_bytes(size);
}

/* Append the attributes to writer->body, which gets room for their `bytes`. */
static enum pici_status add_attrs(struct pici_writer *writer, const struct pici_attr *const *attributes,
                                  size_t attribute_count, uint64_t bytes)
{
    if (pici_buf_fit(&writer->body, writer->body.size + bytes))
        return no_memory(writer, "the attributes");
    for (size_t i = 0; i < attribute_count; i++) {
        uint8_t *header = writer->body.data + writer->body.size;
        size_t key_len = strlen(attributes[i]->key);
        store_le32(header, (uint32_t)key_len);
        store_le32(header + 4, (uint32_t)attributes[i]->len);
        writer->body.size += ATTR_HEADER_BYTES;
        add_text(writer, attributes[i]->key, key_len);
        add_text(writer, attributes[i]->value, attributes[i]->len);
    }
    return PICI_OK;
}

/* Bytes as they are stored: compressed, if they get shorter. */
struct stored {
    const uint8_t *bytes;
    size_t size;
    uint32_t content_bytes;
};

/* A META, TENS or TABL record. */
static enum pici_status emit_described(struct pici_writer *writer, enum pici_rec kind, const uint8_t *body, size_t size,
                                       struct stored *stored, uint64_t *header_hash)
{
    *stored = (struct stored){body, size, 0};
    if (writer->options.version > FILE_VERSION_FIRST) {
        if (pici_buf_fit(&writer->compressed, size))
            return no_memory(writer, "a description");
        const size_t shorter = pici_lz4_compress(writer->compressed.data, size - 1, body, size);
        if (shorter && pici_lz4_fits(shorter, size) && rec_bytes(shorter) < rec_bytes(size))
            *stored = (struct stored){writer->compressed.data, shorter, (uint32_t)size};
    }
    enum pici_status status = emit_header(writer, kind, stored->size, stored->content_bytes,
                                          pici_xxh64(stored->bytes, stored->size, 0), header_hash);
    if (!status)
        status = emit(writer, stored->bytes, stored->size);
    return status ? status : emit_padding(writer);
}

/* ---- Beginning ---- */

static enum pici_status begin(struct pici_writer *writer, const struct pici_attr *attributes, size_t attribute_count)
{
    uint8_t header[FILE_HEADER_BYTES] = FILE_MAGIC;
    const struct pici_attr **sorted;
    struct stored stored;
    uint64_t bytes, header_hash;
    enum pici_status status = sort_attrs(writer, &sorted, attributes, attribute_count, &bytes);
    if (!status && bytes > PICI_FILE_META_MAX - META_HEADER_BYTES)
        status = fail(writer, PICI_E_ARG, "the attributes take %" PRIu64 " bytes, more than %u", bytes,
                      PICI_FILE_META_MAX - META_HEADER_BYTES);
    if (!status) {
        store_le32(header + FILE_VERSION_AT, (uint32_t)writer->options.version);
        store_le32(header + FILE_RESERVED_AT, 0);
        status = emit(writer, header, sizeof header);
    }
    if (!status && pici_buf_fit(&writer->body, META_HEADER_BYTES + bytes))
        status = no_memory(writer, "the attributes");
    if (!status) {
        store_le32(writer->body.data, (uint32_t)attribute_count);
        store_le32(writer->body.data + 4, 0);
        writer->body.size = META_HEADER_BYTES;
        status = add_attrs(writer, sorted, attribute_count, bytes);
    }
    if (!status)
        status = emit_described(writer, REC_META, writer->body.data, writer->body.size, &stored, &header_hash);
    pici_buf_free(&writer->body); /* it may be long */
    pici_buf_free(&writer->compressed);
    if (!status && (status = pici_index_begin(&writer->index, header_hash)) != PICI_OK)
        no_memory(writer, "the index");
    free(sorted);
    return status;
}

static enum pici_status check_opts(struct pici_writer *writer, const struct pici_writer_opts *options)
{
    static const struct pici_writer_opts defaults = PICI_WRITER_OPTS_INIT;
    writer->options = defaults;
    const size_t first = SIZED_THROUGH(struct pici_writer_opts, chunk_elements);
    enum pici_status status = options ? sized_read(&writer->options, sizeof writer->options, first, options) : PICI_OK;
    if (!status && writer->options.reserved)
        status = PICI_E_UNSUPPORTED;
    if (status)
        return fail(writer, status,
                    status == PICI_E_ARG ? "options are not initialized" : "options of a newer version are set");
    if (writer->options.threads < 0 || !writer->options.chunk_elements ||
        writer->options.chunk_elements > PICI_CHUNK_MAX)
        return fail(writer, PICI_E_ARG, "threads are not negative, chunk elements are 1 to %u", PICI_CHUNK_MAX);
    if (!pici_format_name(writer->options.format))
        return fail(writer, PICI_E_ARG, "unknown format %d", (int)writer->options.format);
    if (writer->options.zeros != PICI_ZEROS_EXACT && writer->options.zeros != PICI_ZEROS_BY_VALUE)
        return fail(writer, PICI_E_ARG, "zeros are exact (0) or by value (1), not %d", (int)writer->options.zeros);
    if (writer->options.version > FILE_VERSION)
        return fail(writer, PICI_E_ARG, "versions of the file format are 1 and 2, not %" PRIu64,
                    writer->options.version);
    if (!writer->options.version)
        writer->options.version = FILE_VERSION;
    if (writer->options.pack != PICI_PACK_NONE && writer->options.pack != PICI_PACK_PLANES &&
        writer->options.pack != PICI_PACK_FAST)
        return fail(writer, PICI_E_ARG, "pack is none (0), planes (1) or fast (3), not %d", (int)writer->options.pack);
    if (writer->options.version == FILE_VERSION_FIRST &&
        (writer->options.pack || writer->options.format == PICI_PACKED))
        return fail(writer, PICI_E_ARG, "packed chunks need version 2 of the file format");
    status = pici_zstd_level(writer->options.zstd_level);
    if (status == PICI_E_UNSUPPORTED)
        return fail(writer, status, "needs zstd, which this build does not have");
    return status ? fail(writer, status, "zstd has no level %d", writer->options.zstd_level) : PICI_OK;
}

static enum pici_status start(struct pici_writer *writer, const struct pici_attr *attributes, size_t attribute_count,
                              const struct pici_writer_opts *options)
{
    enum pici_status status = check_opts(writer, options);
    if (!status && !writer->write)
        status = fail(writer, PICI_E_ARG, "no callback");
    if (status)
        return status;
    writer->slots = pici_thread_count(writer->options.threads, UINT64_MAX);
    writer->packers = calloc((size_t)writer->slots, sizeof *writer->packers);
    writer->delta = calloc((size_t)writer->slots, 1);
    writer->output = malloc(OUT_BYTES);
    return writer->packers && writer->delta && writer->output ? begin(writer, attributes, attribute_count)
                                                              : no_memory(writer, "the writer");
}

enum pici_status pici_writer_open(struct pici_writer **out, pici_write_fn write, void *context,
                                  const struct pici_attr *attributes, size_t n_attrs,
                                  const struct pici_writer_opts *options)
{
    if (!out)
        return PICI_E_ARG;
    struct pici_writer *writer = *out = calloc(1, sizeof *writer);
    if (!writer)
        return PICI_E_NOMEM;
    writer->write = write;
    writer->context = context;
    enum pici_status status = start(writer, attributes, n_attrs, options);
    writer->failed = status;
    return status;
}

enum pici_status pici_writer_open_fd(struct pici_writer **out, int descriptor, const struct pici_attr *attributes,
                                     size_t n_attrs, const struct pici_writer_opts *options)
{
    if (!out)
        return PICI_E_ARG;
    struct pici_writer *writer = *out = calloc(1, sizeof *writer);
    if (!writer)
        return PICI_E_NOMEM;
    writer->write = pici_fd_write;
    writer->descriptor = descriptor;
    writer->context = &writer->descriptor;
    enum pici_status status = start(writer, attributes, n_attrs, options);
    writer->failed = status;
    return status;
}

/* ---- Chunks ---- */

static enum pici_status emit_chunk(struct pici_writer *writer, const struct pici_packer *packer)
{
    const struct pici_buf *body = packer->kind == REC_ZSTD ? &packer->frame : &packer->block;
    uint64_t offset = writer->position, header_hash,
             body_hash = packer->kind == REC_ZSTD ? pici_xxh64(body->data, body->size, 0)
                                                  : load_le64(body->data + HDR_CHECKSUM);
    enum pici_status status = emit_header(writer, packer->kind, body->size, 0, body_hash, &header_hash);
    if (!status)
        status = emit(writer, body->data, body->size);
    if (!status)
        status = emit_padding(writer);
    if (!status && (status = pici_index_chunk(&writer->index, offset, header_hash)) != PICI_OK)
        no_memory(writer, "the index");
    return status;
}

static enum pici_status emit_packed_chunk(struct pici_writer *writer, const struct pici_packer *packer)
{
    if (packer->status == PICI_E_NOMEM)
        return no_memory(writer, "a chunk");
    if (packer->status)
        return writer->failed =
                   fail(writer, packer->status, "cannot encode a chunk: %s", pici_strerror(packer->status));
    return emit_chunk(writer, packer);
}

/* How a chunk of the current tensor, or of the open table, is encoded: by one thread. */
static struct pici_pack_how pack_options(const struct pici_writer *writer, enum pici_dtype dtype, int delta)
{
    return (struct pici_pack_how){.dtype = dtype,
                                  .format = writer->options.format,
                                  .threads = 1,
                                  .zstd_level = writer->options.zstd_level,
                                  .zeros = writer->options.zeros,
                                  .pack = writer->options.pack,
                                  .delta = delta};
}

/* Write the open table, if there is one, and its chunks. */
static enum pici_status emit_table(struct pici_writer *writer)
{
    if (!writer->index.open)
        return PICI_OK;
    const struct pici_table *table = pici_index_table_of(&writer->index, writer->index.count - 1);
    const struct pici_buf *content = &writer->index.bodies[writer->index.newest].bytes;
    const uint64_t offset = writer->position;
    struct pici_packer *packer = &writer->packers[0];
    struct stored stored;
    uint64_t header_hash;
    enum pici_status status = emit_described(writer, REC_TABL, content->data, content->size, &stored, &header_hash);
    if (!status && (status = pici_index_close(&writer->index, offset, header_hash, stored.bytes, stored.size,
                                              stored.content_bytes)) != PICI_OK)
        no_memory(writer, "the index");
    for (int i = 0; i < DTYPES && !status; i++) {
        const struct pici_pack_how options = pack_options(writer, (enum pici_dtype)i, writer->common_delta[i]);
        writer->common[i].size = 0;
        writer->common_delta[i] = 0;
        if (!table->elements[i])
            continue;
        pici_pack_chunk(packer, NULL, writer->common[i].data, table->elements[i], &options);
        status = emit_packed_chunk(writer, packer);
    }
    return status;
}

/* ---- Tensors ---- */

/* Begin a public call: clears the error message. Returns the status of a failure that has ended the writer. */
static enum pici_status enter(struct pici_writer *writer)
{
    if (!writer)
        return PICI_E_ARG;
    if (writer->failed)
        return writer->failed;
    writer->error[0] = '\0';
    return writer->finished ? fail(writer, PICI_E_ARG, "the file is finished") : PICI_OK;
}

static enum pici_status incomplete(struct pici_writer *writer)
{
    struct pici_desc description;
    char quoted[PICI_QUOTE_CAP];
    pici_index_desc(&writer->index, writer->index.count - 1, &description);
    return fail(writer, PICI_E_ARG, "tensor %s: %" PRIu64 " of %" PRIu64 " bytes are missing",
                pici_quote(quoted, description.name, description.name_size), writer->missing,
                (description.count * description.width));
}

/* The tensor's description to writer->body and writer->description. */
static enum pici_status describe(struct pici_writer *writer, const struct pici_tensor *tensor)
{
    char quoted[PICI_QUOTE_CAP];
    uint64_t count;
    size_t width = pici_dtype_width(tensor->dtype), other;
    if ((tensor->name_len && !tensor->name) || (tensor->rank && !tensor->shape))
        return fail(writer, PICI_E_ARG, "a tensor whose name or shape is null");
    if (tensor->name_len > PICI_NAME_MAX)
        return fail(writer, PICI_E_ARG, "a tensor's name of %zu bytes, more than %u", tensor->name_len, PICI_NAME_MAX);
    pici_quote(quoted, tensor->name, tensor->name_len);
    if (!width)
        return fail(writer, PICI_E_ARG, "tensor %s: unknown dtype %d", quoted, (int)tensor->dtype);
    if (tensor->rank > PICI_RANK_MAX)
        return fail(writer, PICI_E_ARG, "tensor %s: %u dimensions, more than %u", quoted, tensor->rank, PICI_RANK_MAX);
    if (!pici_shape_count(&count, tensor->rank, tensor->shape, width))
        return fail(writer, PICI_E_ARG, "tensor %s: the shape is beyond 2^63 bytes", quoted);
    if (pici_index_find(&writer->index, tensor->name, tensor->name_len, &other))
        return fail(writer, PICI_E_ARG, "two tensors are named %s", quoted);

    size_t name_at = DESC_HEADER_BYTES + 8 * (size_t)tensor->rank, bytes = name_at + text_bytes(tensor->name_len);
    if (pici_buf_fit(&writer->body, bytes))
        return no_memory(writer, "the tensor's description");
    uint8_t *data = writer->body.data;
    memset(data, 0, bytes);
    data[DESC_DTYPE] = (uint8_t)tensor->dtype;
    data[DESC_RANK] = (uint8_t)tensor->rank;
    store_le32(data + DESC_CHUNK, writer->options.chunk_elements);
    store_le32(data + DESC_NAME_LEN, (uint32_t)tensor->name_len);
    store_le32(data + DESC_ATTRS, (uint32_t)tensor->n_attrs);
    for (unsigned i = 0; i < tensor->rank; i++)
        store_le64(data + DESC_HEADER_BYTES + 8 * i, tensor->shape[i]);
    if (tensor->name_len)
        memcpy(data + name_at, tensor->name, tensor->name_len);
    writer->body.size = bytes;
    return PICI_OK;
}

/* Copy the caller's struct. After an error the writer remains usable. */
static enum pici_status take_tensor(struct pici_writer *writer, struct pici_tensor *checked,
                                    const struct pici_tensor *tensor)
{
    enum pici_status status = sized_read(checked, sizeof *checked, sizeof *checked, tensor);
    if (status == PICI_E_UNSUPPORTED) {
        fail(writer, PICI_E_ARG, "members of a newer version of the tensor are set");
        return status;
    }
    return status ? fail(writer, status, "a tensor that is not initialized") : PICI_OK;
}

/* Whether the tensor of writer->description, whose description and attributes are writer->body, goes into a table. */
static int is_small(const struct pici_writer *writer)
{
    const struct pici_desc *description = &writer->description;
    return writer->options.version > FILE_VERSION_FIRST && description->count <= description->chunk_elements &&
           description->count <= SMALL_ELEMENTS / description->width && writer->body.size <= SMALL_DESCRIPTION;
}

/* Begin a record of its own for the tensor. */
static enum pici_status begin_tensor(struct pici_writer *writer)
{
    struct stored stored;
    uint64_t header_hash = 0;
    enum pici_status status = emit_table(writer);
    const uint64_t offset = writer->position;
    if (!status)
        status = emit_described(writer, REC_TENS, writer->body.data, writer->body.size, &stored, &header_hash);
    if (!status && (status = pici_index_tensor(&writer->index, offset, header_hash, writer->body.data,
                                               writer->description.bytes)) != PICI_OK)
        no_memory(writer, "the index");
    return status;
}

/* Put the tensor into the open table; into the next one if that is full. */
static enum pici_status begin_small(struct pici_writer *writer)
{
    const struct pici_desc *description = &writer->description;
    enum pici_status status = PICI_OK;
    if (writer->index.open) {
        const struct pici_table *table = pici_index_table_of(&writer->index, writer->index.count - 1);
        if (table->bytes + writer->body.size > TABLE_BYTES ||
            table->element_bytes + description->count * description->width > TABLE_ELEMENTS)
            status = emit_table(writer);
    }
    struct pici_buf *common = &writer->common[description->dtype];
    if (!status && (pici_buf_fit(common, description->count ? TABLE_ELEMENTS : 0) ||
                    pici_index_small(&writer->index, writer->body.data, writer->body.size)))
        status = no_memory(writer, "the elements of small tensors");
    writer->small_at = common->size;
    writer->small_delta = 0;
    return status;
}

enum pici_status pici_writer_tensor(struct pici_writer *writer, const struct pici_tensor *tensor)
{
    struct pici_tensor checked = PICI_TENSOR_INIT;
    const struct pici_attr **sorted;
    uint64_t bytes;
    enum pici_status status = enter(writer);
    if (status)
        return status;
    if (writer->missing)
        return incomplete(writer);
    if (!tensor)
        return fail(writer, PICI_E_ARG, "tensor is null");
    status = take_tensor(writer, &checked, tensor);
    if (status)
        return status;
    status = sort_attrs(writer, &sorted, checked.attrs, checked.n_attrs, &bytes);
    if (!status)
        status = describe(writer, &checked);
    if (!status && bytes > PICI_TENSOR_META_MAX - writer->body.size)
        status = fail(writer, PICI_E_ARG, "a tensor's name and attributes take %" PRIu64 " bytes, more than %u",
                      (bytes + writer->body.size), PICI_TENSOR_META_MAX);
    if (!status)
        status = add_attrs(writer, sorted, checked.n_attrs, bytes);
    free(sorted);
    if (status)
        return status;
    pici_desc_parse(&writer->description, writer->body.data, writer->body.size);
    writer->small = is_small(writer);
    status = writer->small ? begin_small(writer) : begin_tensor(writer);
    if (!status)
        writer->missing = writer->description.count * writer->description.width;
    return status;
}

/* ---- Data ---- */

struct batch {
    struct pici_writer *writer;
    const uint8_t *base, *source; /* base: null, or the base of the delta */
    uint64_t elements;
    int threads; /* inside each block */
};

static void pack(void *context, int number)
{
    const struct batch *batch = context;
    const struct pici_desc *description = &batch->writer->description;
    const uint64_t first_element = (uint64_t)number * description->chunk_elements;
    const size_t position = (size_t)first_element * description->width;
    const uint8_t *base = batch->base ? batch->base + position : NULL;
    uint64_t count = batch->elements - first_element;
    if (count > description->chunk_elements)
        count = description->chunk_elements;
    struct pici_pack_how options =
        pack_options(batch->writer, description->dtype, base || batch->writer->delta[number]);
    options.threads = batch->threads;
    pici_pack_chunk(&batch->writer->packers[number], base, batch->source + position, count, &options);
}

/* Encode and write the elements of at most writer->slots chunks. Only the tensor's last chunk may be shorter than the
 * others. */
static enum pici_status put_chunks(struct pici_writer *writer, const void *base_elements, const void *source,
                                   uint64_t elements)
{
    int chunk_count = (int)((elements - 1) / writer->description.chunk_elements) + 1;
    struct batch batch = {.writer = writer, .base = base_elements, .source = source, .elements = elements};
    batch.threads = chunk_count == 1 ? writer->options.threads : 1;
    pici_chunks_parallel(chunk_count, pack, &batch);
    memset(writer->delta, 0, (size_t)chunk_count);
    enum pici_status status = PICI_OK;
    for (int i = 0; i < chunk_count && !status; i++)
        status = emit_packed_chunk(writer, &writer->packers[i]);
    return status;
}

/* Append elements to a buffer with room for them; of a delta, the difference. */
static void stage(struct pici_buf *buffer, const uint8_t *base_elements, const uint8_t *bytes, size_t size)
{
    uint8_t *target = buffer->data + buffer->size;
    memcpy(target, bytes, size);
    for (size_t i = 0; base_elements && i < size; i++)
        target[i] ^= base_elements[i];
    buffer->size += size;
}

/* Note that the next size bytes of the batch are a delta. */
static void note_delta(struct pici_writer *writer, size_t size)
{
    const size_t chunk_bytes = writer->description.chunk_elements * writer->description.width,
                 first = writer->staged.size / chunk_bytes, last = (writer->staged.size + size - 1) / chunk_bytes;
    memset(writer->delta + first, 1, last - first + 1);
}

/* If zeros count by value, -0.0 in a small tensor becomes +0.0 here, except in a delta: both kinds may share a
 * chunk. */
static void clear_signs(struct pici_writer *writer)
{
    const size_t width = writer->description.width, sign_at = PICI_BIG_ENDIAN ? 0 : width - 1;
    struct pici_buf *common = &writer->common[writer->description.dtype];
    if (writer->small_delta || writer->options.zeros == PICI_ZEROS_EXACT || !fmt_is_float(writer->description.dtype))
        return;
    for (uint8_t *element = common->data + writer->small_at; element < common->data + common->size; element += width) {
        element[sign_at] ^= 0x80;
        if (!pici_all_zero(element, width))
            element[sign_at] ^= 0x80;
    }
}

/* Elements of the current tensor, which is small. */
static void put_small(struct pici_writer *writer, const uint8_t *base_elements, const uint8_t *bytes, size_t size)
{
    const enum pici_dtype dtype = writer->description.dtype;
    stage(&writer->common[dtype], base_elements, bytes, size);
    if (base_elements)
        writer->small_delta = writer->common_delta[dtype] = 1;
    writer->missing -= size;
    if (!writer->missing)
        clear_signs(writer);
}

/* base: null unless the elements are a delta. */
static enum pici_status put(struct pici_writer *writer, const uint8_t *base_elements, const void *data, size_t bytes)
{
    enum pici_status status = enter(writer);
    if (status)
        return status;
    if (bytes && !data)
        return fail(writer, PICI_E_ARG, "data is null");
    if (bytes > writer->missing)
        return fail(writer, PICI_E_ARG, "%zu bytes of data where %" PRIu64 " are missing", bytes, writer->missing);
    const uint8_t *next = data;
    if (writer->small && bytes) {
        put_small(writer, base_elements, next, bytes);
        return PICI_OK;
    }
    while (bytes && !status) {
        uint64_t batch = (uint64_t)writer->slots * writer->description.chunk_elements * writer->description.width,
                 whole = writer->staged.size + writer->missing;
        if (whole > batch)
            whole = batch; /* a batch, or the rest of the tensor */
        if (!writer->staged.size && bytes >= whole) {
            writer->missing -= whole;
            status = put_chunks(writer, base_elements, next, whole / writer->description.width);
            next += whole;
            base_elements = base_elements ? base_elements + whole : NULL;
            bytes -= (size_t)whole;
            continue;
        }
        size_t size = whole - writer->staged.size < bytes ? (size_t)(whole - writer->staged.size) : bytes;
        if (pici_buf_fit(&writer->staged, whole))
            return no_memory(writer, "a chunk");
        if (base_elements && size)
            note_delta(writer, size);
        stage(&writer->staged, base_elements, next, size);
        writer->missing -= size;
        next += size;
        base_elements = base_elements ? base_elements + size : NULL;
        bytes -= size;
        if (writer->staged.size == whole) {
            writer->staged.size = 0;
            status = put_chunks(writer, NULL, writer->staged.data, whole / writer->description.width);
        }
    }
    return status;
}

enum pici_status pici_writer_data(struct pici_writer *writer, const void *data, size_t bytes)
{
    return put(writer, NULL, data, bytes);
}

enum pici_status pici_writer_diff(struct pici_writer *writer, const void *base_elements, const void *data, size_t bytes)
{
    if (writer && bytes && !base_elements)
        return writer->failed ? writer->failed : fail(writer, PICI_E_ARG, "the base is null");
    return put(writer, base_elements, data, bytes);
}

/* ---- The end ---- */

static enum pici_status emit_index(struct pici_writer *writer)
{
    const struct pici_buf *body = &writer->index.bytes;
    uint64_t offset = writer->position, header_hash;
    uint8_t trailer[TRAILER_BYTES];
    enum pici_status status =
        emit_header(writer, REC_INDX, body->size, 0, pici_xxh64(body->data, body->size, 0), &header_hash);
    if (!status)
        status = emit(writer, body->data, body->size);
    if (!status)
        status = emit_padding(writer);
    if (status)
        return status;
    store_le64(trailer + TRAILER_INDEX, offset);
    store_le64(trailer + TRAILER_INDEX_HASH, header_hash);
    store_le64(trailer + TRAILER_HASH, pici_xxh64(trailer, TRAILER_HASH, 0));
    memcpy(trailer + TRAILER_MAGIC, FILE_END_MAGIC, 8);
    return emit(writer, trailer, sizeof trailer);
}

enum pici_status pici_writer_finish(struct pici_writer *writer)
{
    enum pici_status status = enter(writer);
    if (status)
        return status;
    if (writer->missing)
        return incomplete(writer);
    status = emit_table(writer);
    if (!status)
        status = emit_index(writer);
    if (!status)
        status = flush(writer);
    writer->finished = !status;
    return status;
}

const char *pici_writer_error(const struct pici_writer *writer)
{
    return writer ? writer->error : "out of memory, or a wrong argument";
}

void pici_writer_close(struct pici_writer *writer)
{
    if (!writer)
        return;
    for (int i = 0; writer->packers && i < writer->slots; i++)
        pici_packer_free(&writer->packers[i]);
    free(writer->packers);
    free(writer->delta);
    free(writer->output);
    pici_buf_free(&writer->staged);
    pici_buf_free(&writer->body);
    pici_buf_free(&writer->compressed);
    for (int i = 0; i < DTYPES; i++)
        pici_buf_free(&writer->common[i]);
    pici_index_free(&writer->index);
    free(writer);
}
