/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads and checks the contents of a delta besides elements, and reads the small deltas of a tensor one by one. */
#include "delta/delta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "pici/delta.h"

const char *pici_delta_kind_name(enum delta_kind kind)
{
    static const char *const names[DELTA_KINDS] = {"xor", "small", "added", "replaced"};
    return names[kind];
}

static bool is_text(const struct pici_attr *attribute, const char *text)
{
    return attribute->key && attribute->len == strlen(text) && memcmp(attribute->value, text, attribute->len) == 0;
}

static enum pici_status broken(char *reason, const char *rule, const char *what)
{
    snprintf(reason, PICI_WHY_BYTES, "not a valid delta: %s (%s)", what, rule);
    return PICI_E_CORRUPT;
}

enum pici_status pici_delta_is(struct pici_reader *reader, bool *is_delta)
{
    struct pici_attr attribute;
    enum pici_status status = pici_reader_attr(reader, PICI_FILE, DELTA_VERSION, &attribute);
    *is_delta = !status && attribute.key;
    return status;
}

bool pici_delta_removed_next(const struct pici_attr *removed, size_t *offset, const char **name, size_t *size,
                             bool *good)
{
    const uint8_t *next = removed->value;
    const size_t remaining = removed->len - *offset;
    *good = true;
    if (!removed->key || !remaining)
        return false;
    *good = remaining >= 4;
    if (!*good)
        return false;
    next += *offset;
    *size = load_le32(next);
    *name = (const char *)next + 4;
    *good = *size <= remaining - 4;
    if (*good)
        *offset += 4 + *size;
    return *good;
}

/* Reads DELTA_BASE, which version 3 has. */
static enum pici_status read_base(struct delta *delta, struct pici_reader *reader, char *reason)
{
    struct pici_attr attribute;
    const enum pici_status status = pici_reader_attr(reader, PICI_FILE, DELTA_BASE, &attribute);
    delta->partial = delta->version == 3;
    if (status || !delta->partial)
        return status;
    if (!attribute.key || attribute.len != 16 || delta->removed || delta->type != PICI_STATE_SAFETENSORS)
        return broken(reason, "delta-base", "delta.base, or what does not go with it");
    delta->base_tensors = load_le64(attribute.value);
    delta->result_bytes = load_le64((const uint8_t *)attribute.value + 8);
    const enum pici_status found = pici_reader_attr(reader, PICI_FILE, STATE_HEAD, &attribute);
    return !found && attribute.key ? broken(reason, "delta-base", "it has its own head") : found;
}

/* Reads the attributes of the file. */
static enum pici_status read_file(struct delta *delta, struct pici_reader *reader, char *reason)
{
    struct pici_attr attribute;
    const char *name;
    size_t offset = 0, size;
    bool good;
    enum pici_status status = pici_reader_attr(reader, PICI_FILE, DELTA_VERSION, &attribute);
    if (status)
        return status;
    if (!attribute.key)
        return broken(reason, "delta-version", "the attribute delta.version is missing");
    delta->version = is_text(&attribute, "1");
    if (is_text(&attribute, "2"))
        delta->version = 2;
    if (is_text(&attribute, "3"))
        delta->version = 3;
    if (!delta->version) {
        broken(reason, "delta-version", "its version is unknown");
        return PICI_E_VERSION;
    }
    status = pici_reader_attr(reader, PICI_FILE, STATE_TYPE, &attribute);
    if (status)
        return status;
    for (delta->type = PICI_STATE_RAW;
         delta->type <= PICI_STATE_GGUF && !is_text(&attribute, pici_state_type_name(delta->type));)
        delta->type++;
    if (delta->type > PICI_STATE_GGUF)
        return broken(reason, "delta-type", "its source.type is unknown");
    status = pici_reader_attr(reader, PICI_FILE, DELTA_REMOVED, &attribute);
    if (status)
        return status;
    while (pici_delta_removed_next(&attribute, &offset, &name, &size, &good))
        delta->removed++;
    if (!good)
        return broken(reason, "delta-removed", "the list of removed tensors is malformed");
    return read_base(delta, reader, reason);
}

/* Reads the table of hashes, which is the last tensor. */
static enum pici_status read_hashes(struct delta *delta, struct pici_reader *reader, char *reason)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    uint64_t total, *table;
    enum pici_status status = pici_reader_count(reader, &total);
    if (status)
        return status;
    const uint64_t own = delta->partial ? 2 : 1; /* tables; with two, the hashes have a row more */
    if (total < own)
        return broken(reason, "delta-hashes", "there is no table of hashes");
    delta->tensors = total - own;
    status = pici_reader_tensor(reader, total - 1, &tensor);
    if (status)
        return status;
    if (tensor.dtype != PICI_U64 || tensor.rank != 2 || tensor.shape[1] != 2 || tensor.shape[0] < total - 1 ||
        (tensor.shape[0] > total - 1 && !delta->partial))
        return broken(reason, "delta-hashes", "the last tensor is not a table of hashes");
    /* delta->tensors is bounded by the index, which has been read */
    delta->kind = calloc((size_t)delta->tensors + 1, sizeof *delta->kind);
    delta->hash = calloc((size_t)delta->tensors + 1, sizeof *delta->hash);
    delta->small = calloc((size_t)delta->tensors + 1, sizeof *delta->small);
    delta->piece_row = calloc((size_t)delta->tensors + 1, sizeof *delta->piece_row);
    table = calloc((size_t)total, 2 * sizeof *table);
    if (!delta->kind || !delta->hash || !delta->small || !delta->piece_row || !table)
        snprintf(reason, PICI_WHY_BYTES, "out of memory for the table of hashes");
    status = reason[0] ? PICI_E_NOMEM : pici_reader_read_range(reader, total - 1, 0, 2 * (total - 1), table);
    for (uint64_t i = 0; !status && i < delta->tensors; i++)
        delta->hash[i] = (struct delta_hashes){table[2 * i], table[2 * i + 1]};
    if (!status && delta->partial)
        delta->identity = (struct delta_hashes){table[2 * delta->tensors], table[2 * delta->tensors + 1]};
    free(table);
    return status;
}

/* Reads the table of few changes, a piece at a time, so that memory is proportional to its contents: each change has a
 * nonzero byte. */
static enum pici_status read_few(struct delta *delta, struct pici_reader *reader, char *reason)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    enum pici_status status = pici_reader_tensor(reader, delta->tensors, &tensor);
    if (status)
        return status;
    if (tensor.dtype != PICI_U8 || tensor.rank != 1)
        return broken(reason, "delta-few", "the tensor before the last is not a table of few changes");
    size_t parsed = 0;
    uint64_t capacity = 1 << 16;
    for (uint64_t have = 0; have < tensor.count; capacity *= 2) {
        const uint64_t end = tensor.count < capacity ? tensor.count : capacity;
        bool nomem = end > SIZE_MAX;
        uint8_t *const more = nomem ? NULL : realloc(delta->few_bytes, (size_t)end);
        if (more) {
            delta->few_bytes = more;
            status = pici_reader_read_range(reader, delta->tensors, have, end - have, more + have);
            if (status)
                return status;
            have = end;
            parsed = pici_few_parse(delta, more, parsed, (size_t)have, &nomem);
        }
        if (!more || nomem) {
            snprintf(reason, PICI_WHY_BYTES, "out of memory for the table of few changes");
            return PICI_E_NOMEM;
        }
        if (parsed == SIZE_MAX)
            break;
    }
    return parsed == tensor.count ? PICI_OK : broken(reason, "delta-few", "the table of few changes is malformed");
}

/* Reads the dtype and shape that the small deltas of tensor i result in. */
static enum pici_status read_small(struct delta *delta, uint64_t i, struct pici_reader *reader, char *reason)
{
    struct delta_small *const small = &delta->small[i];
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    struct pici_attr attribute;
    enum pici_dtype dtype = PICI_F32;
    enum pici_status status = pici_reader_tensor(reader, i, &tensor);
    if (!status && delta->version < 2)
        return broken(reason, "delta-kind", "a tensor has no valid delta.kind");
    if (!status && (tensor.dtype != PICI_U8 || tensor.rank != 1))
        return broken(reason, "delta-small", "small deltas that are not u8 of one dimension");
    if (!status)
        status = pici_reader_attr(reader, i, DELTA_DTYPE, &attribute);
    if (status)
        return status;
    while (dtype <= PICI_U8 && !(delta_small_name(dtype) && is_text(&attribute, delta_small_name(dtype))))
        dtype++;
    if (dtype > PICI_U8 || (delta_is_narrow(dtype) && !delta->partial))
        return broken(reason, "delta-small", "a tensor has no valid delta.dtype");
    status = pici_reader_attr(reader, i, DELTA_SHAPE, &attribute);
    if (status)
        return status;
    if (!attribute.key || attribute.len % 8 || attribute.len > 8 * PICI_RANK_MAX)
        return broken(reason, "delta-small", "a tensor has no valid delta.shape");
    *small = (struct delta_small){dtype, (unsigned)(attribute.len / 8), malloc(attribute.len + 1), 1};
    if (!small->shape) {
        snprintf(reason, PICI_WHY_BYTES, "out of memory for a shape");
        return PICI_E_NOMEM;
    }
    const uint8_t *next = attribute.value;
    for (unsigned dim_index = 0; dim_index < small->rank; dim_index++, next += 8) {
        const uint64_t dimension = load_le64(next);
        small->shape[dim_index] = dimension;
        if (!dimension || dimension > (UINT64_C(1) << 61) / small->count)
            return broken(reason, "delta-small", "a tensor has no valid delta.shape");
        small->count *= dimension;
    }
    return PICI_OK;
}

static enum pici_status read_kind(struct delta *delta, uint64_t i, struct pici_reader *reader, char *reason)
{
    struct pici_attr attribute;
    enum delta_kind kind = DELTA_XOR;
    enum pici_status status = pici_reader_attr(reader, i, DELTA_KIND, &attribute);
    if (status)
        return status;
    while (kind < DELTA_KINDS && !is_text(&attribute, pici_delta_kind_name(kind)))
        kind++;
    if (kind == DELTA_KINDS)
        return broken(reason, "delta-kind", "a tensor has no valid delta.kind");
    if (!delta_needs_base(kind) && delta->hash[i].base)
        return broken(reason, "delta-hashes", "a hash of a base tensor that does not exist");
    if (delta->partial && !delta_needs_base(kind))
        return broken(reason, "delta-kind", "a tensor is neither xor nor small");
    delta->kind[i] = (uint8_t)kind;
    delta->kinds[kind]++;
    return kind == DELTA_SMALL ? read_small(delta, i, reader, reason) : PICI_OK;
}

/* Finds the pieces' rows in the table of hashes. */
static enum pici_status find_pieces(struct delta *delta, struct pici_reader *reader, char *reason)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    enum pici_status status = pici_reader_tensor(reader, delta->tensors + 1, &tensor);
    const uint64_t rows = tensor.shape[0];
    uint64_t next = delta->tensors + 1;
    for (uint64_t i = 0; !status && i < delta->tensors; i++) {
        status = pici_delta_tensor(delta, reader, i, &tensor);
        const uint64_t pieces = status ? 0 : delta_piece_rows(tensor.count);
        delta->piece_row[i] = next;
        if (pieces > rows - next)
            return broken(reason, "delta-hashes", "the table of hashes has too few rows");
        next += pieces;
    }
    return status || next == rows ? status : broken(reason, "delta-hashes", "the table of hashes has too many rows");
}

enum pici_status pici_delta_piece_hash(const struct delta *delta, struct pici_reader *reader, uint64_t i,
                                       uint64_t piece, bool result, uint64_t *hash)
{
    return pici_reader_read_range(reader, delta->tensors + 1, 2 * (delta->piece_row[i] + piece) + result, 1, hash);
}

enum pici_status pici_delta_open(struct delta *delta, struct pici_reader *reader, char *reason)
{
    *delta = (struct delta){0};
    reason[0] = 0;
    enum pici_status status = read_file(delta, reader, reason);
    if (!status)
        status = read_hashes(delta, reader, reason);
    for (uint64_t i = 0; !status && i < delta->tensors; i++)
        status = read_kind(delta, i, reader, reason);
    if (!status && delta->partial)
        status = find_pieces(delta, reader, reason);
    if (!status && delta->partial)
        status = read_few(delta, reader, reason);
    if (status)
        pici_delta_close(delta);
    return status;
}

void pici_delta_close(struct delta *delta)
{
    for (uint64_t i = 0; delta->small && i < delta->tensors; i++)
        free(delta->small[i].shape);
    free(delta->kind);
    free(delta->hash);
    free(delta->small);
    free(delta->piece_row);
    free(delta->few);
    free(delta->few_bytes);
    delta->few = NULL;
    delta->few_bytes = NULL;
    delta->few_count = 0;
    delta->kind = NULL;
    delta->hash = NULL;
    delta->small = NULL;
    delta->piece_row = NULL;
}

enum pici_status pici_delta_tensor(const struct delta *delta, struct pici_reader *reader, uint64_t i,
                                   struct pici_tensor_info *tensor)
{
    const enum pici_status status = pici_reader_tensor(reader, i, tensor);
    if (status || i >= delta->tensors || delta->kind[i] != DELTA_SMALL)
        return status;
    const struct delta_small *const small = &delta->small[i];
    tensor->dtype = small->dtype;
    tensor->rank = small->rank;
    if (small->rank)
        memcpy(tensor->shape, small->shape, small->rank * sizeof *small->shape);
    tensor->count = small->count;
    tensor->chunk_elements = DELTA_PIECE;
    tensor->chunks = small->count / DELTA_PIECE + (small->count % DELTA_PIECE != 0);
    return status;
}

/* ---- small deltas */

enum { HEAD = 32, HEAD_DTYPE = 5, HEAD_COUNT = 8, HEAD_LENGTH = 16 }; /* formats/small-delta.md */

enum pici_status pici_delta_pieces_begin(struct delta_pieces *pieces, struct pici_reader *reader, uint64_t i)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    const enum pici_status status = pici_reader_tensor(reader, i, &tensor);
    pieces->reader = reader;
    pieces->tensor = i;
    pieces->offset = 0;
    pieces->passed = 0;
    pieces->end = status ? 0 : tensor.count;
    return status;
}

/* Check the header of the next small delta. *size: its bytes. */
static enum pici_status next_size(const struct delta_pieces *pieces, enum pici_dtype dtype, uint64_t count,
                                  uint64_t *size)
{
    uint8_t head[HEAD];
    if (pieces->end - pieces->offset < HEAD)
        return PICI_E_CORRUPT;
    const enum pici_status status = pici_reader_read_range(pieces->reader, pieces->tensor, pieces->offset, HEAD, head);
    if (status)
        return status;
    *size = load_le64(head + HEAD_LENGTH);
    return load_le64(head + HEAD_COUNT) != count || head[HEAD_DTYPE] != (uint8_t)dtype || *size < HEAD ||
                   *size > pieces->end - pieces->offset || *size > pici_diff_small_bound(PICI_HYBRID, dtype, count)
               ? PICI_E_CORRUPT
               : PICI_OK;
}

enum pici_status pici_delta_pieces_next(struct delta_pieces *pieces, enum pici_dtype dtype, uint64_t count)
{
    uint64_t size;
    enum pici_status status = next_size(pieces, dtype, count, &size);
    if (status)
        return status;
    if (size > pieces->capacity) {
        free(pieces->delta);
        pieces->delta = malloc((size_t)size);
        pieces->capacity = pieces->delta ? (size_t)size : 0;
        if (!pieces->delta)
            return PICI_E_NOMEM;
    }
    status = pici_reader_read_range(pieces->reader, pieces->tensor, pieces->offset, size, pieces->delta);
    pieces->offset += size;
    pieces->size = (size_t)size;
    return status;
}

enum pici_status pici_delta_pieces_pass(struct delta_pieces *pieces, enum pici_dtype dtype, uint64_t count)
{
    uint64_t size;
    const enum pici_status status = next_size(pieces, dtype, count, &size);
    pieces->offset += status ? 0 : size;
    return status;
}

bool pici_delta_pieces_done(const struct delta_pieces *pieces)
{
    return pieces->offset == pieces->end;
}

void pici_delta_pieces_free(struct delta_pieces *pieces)
{
    free(pieces->delta);
    *pieces = (struct delta_pieces){0};
}
