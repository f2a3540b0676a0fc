/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The index of a .pici file. The writer and the forward reader build it entry by entry; the random-access reader loads
 * it. Names are in sorted runs, each at least twice as long as the next, and merged as they grow: O(n log n) for any
 * names. With a hash table an attacker could choose names that collide. */
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "file/lz4.h"

/* ---- Memory ---- */

enum pici_status pici_buf_fit(struct pici_buf *buffer, uint64_t needed)
{
    if (needed <= buffer->capacity)
        return PICI_OK;
    uint8_t *bytes = needed > SIZE_MAX / 2 ? NULL : realloc(buffer->data, (size_t)needed);
    if (!bytes)
        return PICI_E_NOMEM;
    buffer->data = bytes;
    buffer->capacity = (size_t)needed;
    return PICI_OK;
}

/* Make room for `needed` more bytes; the capacity grows by half. */
static enum pici_status more(struct pici_buf *buffer, uint64_t needed)
{
    if (needed <= buffer->capacity - buffer->size)
        return PICI_OK;
    if (needed > SIZE_MAX / 2)
        return PICI_E_NOMEM;
    uint64_t need = buffer->size + needed, grown = (uint64_t)buffer->capacity + buffer->capacity / 2 + 64;
    return pici_buf_fit(buffer, need > grown ? need : grown);
}

void pici_buf_free(struct pici_buf *buffer)
{
    free(buffer->data);
    *buffer = (struct pici_buf){0};
}

static enum pici_status append(struct pici_buf *buffer, const void *bytes, size_t size)
{
    enum pici_status status = more(buffer, size);
    if (!status) {
        memcpy(buffer->data + buffer->size, bytes, size);
        buffer->size += size;
    }
    return status;
}

static size_t get(const struct pici_buf *buffer, size_t number)
{
    size_t value;
    memcpy(&value, buffer->data + number * sizeof value, sizeof value);
    return value;
}

static void put(struct pici_buf *buffer, size_t number, size_t value)
{
    memcpy(buffer->data + number * sizeof value, &value, sizeof value);
}

int pici_all_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return 0;
    return 1;
}

/* ---- Descriptions ---- */

int pici_shape_count(uint64_t *count, unsigned rank, const uint64_t *shape, size_t width)
{
    const uint64_t maximum = INT64_MAX / width;
    uint64_t product = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0) {
            *count = 0;
            return 1;
        }
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] > maximum / product)
            return 0;
        product *= shape[i];
    }
    *count = product;
    return 1;
}

int pici_desc_parse(struct pici_desc *description, const uint8_t *bytes, size_t size)
{
    if (size < DESC_HEADER_BYTES)
        return 0;
    description->dtype = (enum pici_dtype)bytes[DESC_DTYPE];
    description->rank = bytes[DESC_RANK];
    description->chunk_elements = load_le32(bytes + DESC_CHUNK);
    description->name_size = load_le32(bytes + DESC_NAME_LEN);
    description->attribute_count = load_le32(bytes + DESC_ATTRS);
    description->width = pici_dtype_width(description->dtype);
    if (!description->width || description->rank > PICI_RANK_MAX || bytes[DESC_RESERVED] || bytes[DESC_RESERVED + 1] ||
        !description->chunk_elements || description->chunk_elements > PICI_CHUNK_MAX ||
        description->name_size > PICI_NAME_MAX)
        return 0;
    size_t name_at = DESC_HEADER_BYTES + 8 * (size_t)description->rank;
    description->bytes = name_at + text_bytes(description->name_size);
    if (description->bytes > size)
        return 0;
    uint64_t shape[PICI_RANK_MAX];
    description->shape = bytes + DESC_HEADER_BYTES;
    for (unsigned i = 0; i < description->rank; i++)
        shape[i] = load_le64(description->shape + 8 * i);
    if (!pici_shape_count(&description->count, description->rank, shape, description->width))
        return 0;
    description->chunks =
        description->count / description->chunk_elements + (description->count % description->chunk_elements != 0);
    description->name = (const char *)bytes + name_at;
    return pici_all_zero(bytes + name_at + description->name_size,
                         description->bytes - name_at - description->name_size);
}

size_t pici_chunk_bound(enum pici_dtype dtype, uint64_t count)
{
    size_t maximum = 0;
    for (int format = PICI_DENSE; format <= PICI_PACKED; format++) {
        size_t bound = pici_bound((enum pici_format)format, dtype, count);
        maximum = bound > maximum ? bound : maximum;
    }
    return maximum;
}

/* ---- Attributes ---- */

/* Check attributes at bytes: *used_bytes is their length. at: null, or receives their offsets, which begin at
 * `skipped`. PICI_E_CORRUPT: they break the rule "attributes", or take more than size bytes. PICI_E_NOMEM. */
static enum pici_status walk_attrs(const uint8_t *bytes, size_t size, uint32_t count, size_t *used_bytes,
                                   struct pici_buf *at, size_t skipped)
{
    const char *previous_key = NULL;
    size_t position = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (size - position < ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        size_t key_len = load_le32(bytes + position), value_len = load_le32(bytes + position + 4);
        if (key_len < 1 || key_len > PICI_KEY_MAX || value_len > PICI_FILE_META_MAX)
            return PICI_E_CORRUPT;
        size_t key_bytes = text_bytes(key_len), value_bytes = text_bytes(value_len);
        if (key_bytes + value_bytes > size - position - ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        const uint8_t *key = bytes + position + ATTR_HEADER_BYTES, *value = key + key_bytes;
        if (memchr(key, 0, key_len) || !pici_all_zero(key + key_len, key_bytes - key_len) ||
            !pici_all_zero(value + value_len, value_bytes - value_len))
            return PICI_E_CORRUPT;
        if (previous_key && strcmp(previous_key, (const char *)key) >= 0) /* strcmp compares unsigned bytes */
            return PICI_E_CORRUPT;
        const size_t offset = skipped + position;
        enum pici_status status = at ? append(at, &offset, sizeof offset) : PICI_OK;
        if (status)
            return status;
        previous_key = (const char *)key;
        position += ATTR_HEADER_BYTES + key_bytes + value_bytes;
    }
    *used_bytes = position;
    return PICI_OK;
}

enum pici_status pici_attrs_parse(struct pici_attrs *attributes, size_t skipped, uint32_t count)
{
    size_t used_bytes;
    attributes->count = 0;
    attributes->offsets.size = 0;
    enum pici_status status = walk_attrs(attributes->body.data + skipped, attributes->body.size - skipped, count,
                                         &used_bytes, &attributes->offsets, skipped);
    if (status)
        return status;
    attributes->count = count;
    return skipped + used_bytes == attributes->body.size ? PICI_OK : PICI_E_CORRUPT;
}

void pici_attrs_get(const struct pici_attrs *attributes, uint32_t number, struct pici_attr *attribute)
{
    const uint8_t *bytes = attributes->body.data + get(&attributes->offsets, number);
    attribute->key = (const char *)bytes + ATTR_HEADER_BYTES;
    attribute->value = bytes + ATTR_HEADER_BYTES + text_bytes(load_le32(bytes));
    attribute->len = load_le32(bytes + 4);
}

int pici_attrs_find(const struct pici_attrs *attributes, const char *key, uint32_t *number)
{
    uint32_t low = 0, high = attributes->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct pici_attr at;
        pici_attrs_get(attributes, middle, &at);
        int order = strcmp(at.key, key);
        if (order == 0) {
            *number = middle;
            return 1;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

void pici_attrs_free(struct pici_attrs *attributes)
{
    pici_buf_free(&attributes->body);
    pici_buf_free(&attributes->offsets);
    attributes->count = 0;
}

/* ---- Names in order ---- */

static const struct pici_entry *entry_of(const struct pici_index *index, size_t tensor)
{
    return (const struct pici_entry *)(const void *)index->entries.data + tensor;
}

static struct pici_table *table_at(const struct pici_index *index, size_t number)
{
    return (struct pici_table *)(void *)index->tables.data + number;
}

static const uint8_t *description_at(const struct pici_index *index, size_t tensor)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    return entry->table == NO_TABLE ? index->bytes.data + entry->position + INDEX_ENTRY_BYTES
                                    : index->small.data + entry->position;
}

static const char *name_of(const struct pici_index *index, size_t tensor, size_t *size)
{
    const uint8_t *desc = description_at(index, tensor);
    *size = load_le32(desc + DESC_NAME_LEN);
    return (const char *)desc + DESC_HEADER_BYTES + 8 * (size_t)desc[DESC_RANK];
}

/* Compare the tensor's name with another, as memcmp does. */
static int compare(const struct pici_index *index, size_t tensor, const char *name, size_t size)
{
    size_t own_size;
    const char *own_name = name_of(index, tensor, &own_size);
    size_t count = own_size < size ? own_size : size;
    int order = count ? memcmp(own_name, name, count) : 0;
    return order ? order : (own_size > size) - (own_size < size);
}

/* Merge the last two runs. */
static void merge(struct pici_index *index)
{
    size_t left_start = index->run_starts[index->run_count - 2], right_next = index->run_starts[index->run_count - 1],
           left = right_next - left_start, output = left_start, left_next = 0;
    size_t spare = index->count; /* the left run moves after the numbers in use */
    memcpy(index->order.data + spare * sizeof left_start, index->order.data + left_start * sizeof left_start,
           left * sizeof left_start);
    while (left_next < left && right_next < index->count) {
        size_t left_tensor = get(&index->order, spare + left_next), right_tensor = get(&index->order, right_next), size;
        const char *name = name_of(index, right_tensor, &size);
        int first = compare(index, left_tensor, name, size) <= 0;
        put(&index->order, output++, first ? left_tensor : right_tensor);
        left_next += first;
        right_next += !first;
    }
    while (left_next < left)
        put(&index->order, output++, get(&index->order, spare + left_next++));
    index->run_count--;
}

/* Enter the last tensor in the order of names. pici_index_find and pici_index_unique find equal names. */
static enum pici_status enter(struct pici_index *index)
{
    size_t i = index->count;
    enum pici_status status = i > SIZE_MAX / 64 ? PICI_E_NOMEM : PICI_OK;
    if (!status) {
        index->order.size = i * 2 * sizeof i;
        status = more(&index->order, 2 * sizeof i);
    }
    if (status)
        return status;
    put(&index->order, i, i);
    index->count++;
    index->run_starts[index->run_count++] = i;
    while (index->run_count > 1 &&
           index->count - index->run_starts[index->run_count - 1] ==
               index->run_starts[index->run_count - 1] - index->run_starts[index->run_count - 2])
        merge(index);
    return PICI_OK;
}

int pici_index_find(const struct pici_index *index, const char *name, size_t size, size_t *tensor)
{
    size_t end = index->count;
    for (int run = index->run_count; run-- > 0; end = index->run_starts[run]) {
        size_t low = index->run_starts[run], high = end;
        while (low < high) {
            size_t middle = low + (high - low) / 2, position = get(&index->order, middle);
            int order = compare(index, position, name, size);
            if (order == 0) {
                *tensor = position;
                return 1;
            }
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
    }
    return 0;
}

int pici_index_unique(struct pici_index *index, size_t *tensor)
{
    while (index->run_count > 1)
        merge(index);
    for (size_t k = 1; k < index->count; k++) {
        size_t size;
        const char *name = name_of(index, *tensor = get(&index->order, k), &size);
        if (compare(index, get(&index->order, k - 1), name, size) == 0)
            return 0;
    }
    return 1;
}

/* ---- The index ---- */

enum pici_status pici_index_begin(struct pici_index *index, uint64_t meta_hash)
{
    uint8_t header[INDEX_HEADER_BYTES];
    store_le64(header, 0);
    store_le64(header + 8, meta_hash);
    return append(&index->bytes, header, sizeof header);
}

enum pici_status pici_index_tensor(struct pici_index *index, uint64_t offset, uint64_t header_hash,
                                   const uint8_t *description, size_t bytes)
{
    uint8_t head[INDEX_ENTRY_BYTES];
    const struct pici_entry entry = {.table = NO_TABLE, .position = index->bytes.size};
    store_le64(head, offset);
    store_le64(head + 8, header_hash);
    enum pici_status status = more(&index->bytes, sizeof head + (uint64_t)bytes);
    if (!status)
        status = append(&index->entries, &entry, sizeof entry);
    if (!status)
        status = append(&index->bytes, head, sizeof head);
    if (!status)
        status = append(&index->bytes, description, bytes);
    if (!status)
        status = enter(index);
    if (!status)
        store_le64(index->bytes.data, index->count);
    return status;
}

enum pici_status pici_index_chunk(struct pici_index *index, uint64_t offset, uint64_t header_hash)
{
    uint8_t entry[INDEX_CHUNK_BYTES];
    store_le64(entry, offset);
    store_le64(entry + 8, header_hash);
    return append(&index->bytes, entry, sizeof entry);
}

/* ---- Tables of small tensors ---- */

/* The number of the last table. */
static size_t last_table(const struct pici_index *index)
{
    return index->tables.size / sizeof(struct pici_table) - 1;
}

enum pici_status pici_index_small(struct pici_index *index, const uint8_t *body, size_t bytes)
{
    const struct pici_table fresh = {.first = index->count};
    enum pici_status status = index->tables.size / sizeof fresh < NO_TABLE ? PICI_OK : PICI_E_NOMEM;
    if (!status && !index->open) {
        status = append(&index->tables, &fresh, sizeof fresh);
        index->bodies[index->newest].bytes.size = 0;
        index->bodies[index->newest].table = last_table(index) + 1;
    }
    if (status)
        return status;
    index->open = 1;
    struct pici_table *table = table_at(index, last_table(index));
    struct pici_desc description;
    pici_desc_parse(&description, body, bytes);
    const struct pici_entry entry = {.position = index->small.size,
                                     .table = (uint32_t)last_table(index),
                                     .within = (uint32_t)table->bytes,
                                     .first = table->elements[description.dtype],
                                     .before = table->element_bytes};
    status = append(&index->small, body, description.bytes);
    if (!status)
        status = append(&index->bodies[index->newest].bytes, body, bytes);
    if (!status)
        status = append(&index->entries, &entry, sizeof entry);
    if (!status)
        status = enter(index);
    if (status)
        return status;
    table->count++;
    table->bytes += bytes;
    table->elements[description.dtype] += (uint32_t)description.count;
    table->element_bytes += (uint32_t)(description.count * description.width);
    return PICI_OK;
}

enum pici_status pici_index_table(struct pici_index *index, const uint8_t *data, size_t bytes, const char **broken_rule)
{
    uint64_t remaining = COMMON_MOST;
    for (size_t position = 0, attrs; position < bytes;) {
        struct pici_desc description;
        *broken_rule = "description";
        if (!pici_desc_parse(&description, data + position, bytes - position))
            return PICI_E_CORRUPT;
        *broken_rule = "attributes";
        enum pici_status status = walk_attrs(data + position + description.bytes, bytes - position - description.bytes,
                                             description.attribute_count, &attrs, NULL, 0);
        if (status)
            return status;
        *broken_rule = "table";
        if (description.count > description.chunk_elements || description.count * description.width > remaining)
            return PICI_E_CORRUPT;
        remaining -= description.count * description.width;
        status = pici_index_small(index, data + position, description.bytes + attrs);
        if (status)
            return status;
        position += description.bytes + attrs;
    }
    return PICI_OK;
}

enum pici_status pici_index_close(struct pici_index *index, uint64_t offset, uint64_t header_hash, const uint8_t *body,
                                  size_t bytes, uint32_t content_bytes)
{
    static const uint8_t zeros[8];
    uint8_t head[INDEX_TABLE_BYTES] = {0};
    struct pici_table *table = table_at(index, last_table(index));
    table->entry = index->bytes.size;
    store_le64(head, offset);
    store_le64(head + 8, header_hash);
    store_le32(head + INDEX_TABLE_CONTENT, content_bytes);
    store_le64(head + INDEX_TABLE_BODY, bytes);
    enum pici_status status = append(&index->bytes, head, sizeof head);
    if (!status)
        status = append(&index->bytes, body, bytes);
    if (!status)
        status = append(&index->bytes, zeros, -bytes & 7);
    table->chunks = index->bytes.size;
    index->open = 0;
    store_le64(index->bytes.data, index->count);
    return status;
}

struct pici_table *pici_index_table_of(const struct pici_index *index, size_t tensor)
{
    const uint32_t number = entry_of(index, tensor)->table;
    return number == NO_TABLE ? NULL : table_at(index, number);
}

uint64_t pici_index_first(const struct pici_index *index, size_t tensor)
{
    return entry_of(index, tensor)->first;
}

/* The number of a table's chunks before the chunk of dtype; dtype DTYPES: of all its chunks. */
static size_t chunks_before(const struct pici_table *table, unsigned dtype)
{
    size_t size = 0;
    for (unsigned earlier = 0; earlier < dtype; earlier++)
        size += table->elements[earlier] != 0;
    return size;
}

/* ---- An index that was read ---- */

/* Whether a record can begin at offset: the previous one fits before it, and it fits before the end. */
static int follows(uint64_t offset, uint64_t previous, uint64_t end_offset)
{
    return offset % 16 == 0 && offset > previous && offset - previous >= REC_LEAST && offset <= end_offset &&
           end_offset - offset >= REC_LEAST;
}

int pici_lz4_fits(uint64_t bytes, uint64_t content_bytes)
{
    return bytes < content_bytes && (content_bytes + LZ4_RATIO - 1) / LZ4_RATIO <= bytes;
}

/* The content of the table whose entry is at data. PICI_E_CORRUPT: it has none. PICI_E_NOMEM. */
static enum pici_status table_content(struct pici_buf *content, const uint8_t *data)
{
    const uint64_t content_bytes = load_le32(data + INDEX_TABLE_CONTENT), bytes = load_le64(data + INDEX_TABLE_BODY);
    const uint8_t *body = data + INDEX_TABLE_BYTES;
    enum pici_status status = pici_buf_fit(content, content_bytes ? content_bytes : bytes);
    if (status)
        return status;
    content->size = (size_t)(content_bytes ? content_bytes : bytes);
    if (content_bytes)
        return pici_lz4_decompress(content->data, content->size, body, (size_t)bytes) ? PICI_OK : PICI_E_CORRUPT;
    memcpy(content->data, body, content->size);
    return PICI_OK;
}

enum pici_status pici_index_body(struct pici_index *index, size_t tensor, const uint8_t **body, size_t *bytes)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    const struct pici_table *table = table_at(index, entry->table);
    enum pici_status status = PICI_OK;
    struct pici_body *kept = index->bodies;
    while (kept < index->bodies + BODIES_KEPT && kept->table != (size_t)entry->table + 1)
        kept++;
    if (kept == index->bodies + BODIES_KEPT) {
        /* Reading tables in order uses one place again and again. A reader that goes back may come again: keep the last
         * table, and replace the oldest. */
        if ((size_t)entry->table + 1 < index->bodies[index->newest].table)
            index->newest = (index->newest + 1) % BODIES_KEPT;
        kept = &index->bodies[index->newest];
        status = table_content(&kept->bytes, index->bytes.data + table->entry);
        kept->table = status ? 0 : (size_t)entry->table + 1;
    }
    if (status)
        return status;
    *body = kept->bytes.data + entry->within;
    *bytes = (tensor + 1 < table->first + table->count ? entry[1].within : table->bytes) - entry->within;
    return PICI_OK;
}

/* Load the entry of a table at data. *used_bytes: its bytes without its chunks. */
static enum pici_status load_table(struct pici_index *index, const uint8_t *data, size_t size, size_t *used_bytes,
                                   const char **broken_rule)
{
    enum pici_status status = PICI_E_CORRUPT;
    if (size < INDEX_TABLE_BYTES || load_le32(data + INDEX_TABLE_ZERO))
        return status;
    const uint64_t content_bytes = load_le32(data + INDEX_TABLE_CONTENT), bytes = load_le64(data + INDEX_TABLE_BODY);
    const uint8_t *body = data + INDEX_TABLE_BYTES;
    const size_t maximum = size - INDEX_TABLE_BYTES, padding = -bytes & 7;
    if (bytes > maximum || padding > maximum - bytes || !pici_all_zero(body + bytes, padding))
        return status;
    *used_bytes = INDEX_TABLE_BYTES + (size_t)bytes + padding;
    *broken_rule = "body-length";
    const uint64_t table_bytes = content_bytes ? content_bytes : bytes;
    if (table_bytes > TABLE_MOST || table_bytes < DESC_HEADER_BYTES || bytes > TABLE_MOST)
        return status;
    *broken_rule = "compressed";
    if (content_bytes && !pici_lz4_fits(bytes, content_bytes))
        return status;
    struct pici_buf table = {0};
    status = table_content(&table, data);
    if (!status)
        status = pici_index_table(index, table.data, table.size, broken_rule);
    pici_buf_free(&table);
    return status;
}

/* Load the entry of a tensor or a table. *used_bytes: its bytes without its chunks. *chunks: their number. */
static enum pici_status load_entry(struct pici_index *index, size_t position, uint32_t version, size_t *used_bytes,
                                   uint64_t *chunks, const char **broken_rule)
{
    const uint8_t *bytes = index->bytes.data + position;
    const size_t size = index->bytes.size - position;
    if (version > FILE_VERSION_FIRST && size > INDEX_TABLE_ZERO && !bytes[INDEX_TABLE_ZERO]) {
        enum pici_status status = load_table(index, bytes, size, used_bytes, broken_rule);
        if (status)
            return status;
        struct pici_table *table = table_at(index, last_table(index));
        table->entry = position;
        table->chunks = position + *used_bytes;
        *chunks = chunks_before(table, DTYPES);
        index->open = 0;
        return PICI_OK;
    }
    const struct pici_entry entry = {.table = NO_TABLE, .position = position};
    struct pici_desc description;
    *broken_rule = "description";
    if (!pici_desc_parse(&description, bytes + INDEX_ENTRY_BYTES, size - INDEX_ENTRY_BYTES))
        return PICI_E_CORRUPT;
    *used_bytes = INDEX_ENTRY_BYTES + description.bytes;
    *chunks = description.chunks;
    enum pici_status status = append(&index->entries, &entry, sizeof entry);
    return status ? status : enter(index);
}

enum pici_status pici_index_load(struct pici_index *index, uint64_t index_offset, uint32_t version,
                                 const char **broken_rule)
{
    const uint8_t *bytes = index->bytes.data;
    size_t position = INDEX_HEADER_BYTES, size = index->bytes.size, used_bytes;
    uint64_t count = load_le64(bytes), previous = FILE_HEADER_BYTES, chunks;
    while (index->count < count) {
        *broken_rule = "index";
        if (size - position < INDEX_ENTRY_BYTES)
            return PICI_E_CORRUPT;
        uint64_t offset = load_le64(bytes + position);
        if (!follows(offset, previous, index_offset))
            return PICI_E_CORRUPT;
        previous = offset;
        enum pici_status status = load_entry(index, position, version, &used_bytes, &chunks, broken_rule);
        if (status)
            return status;
        *broken_rule = "index";
        position += used_bytes;
        if (chunks > (size - position) / INDEX_CHUNK_BYTES)
            return PICI_E_CORRUPT;
        for (uint64_t chunk_number = 0; chunk_number < chunks; chunk_number++, position += INDEX_CHUNK_BYTES) {
            offset = load_le64(bytes + position);
            if (!follows(offset, previous, index_offset))
                return PICI_E_CORRUPT;
            previous = offset;
        }
    }
    index->bodies[index->newest].table = 0; /* the first table read takes this place */
    *broken_rule = "index";
    return position == size && index->count == count ? PICI_OK : PICI_E_CORRUPT;
}

void pici_index_desc(const struct pici_index *index, size_t tensor, struct pici_desc *desc)
{
    const struct pici_buf *holder = entry_of(index, tensor)->table == NO_TABLE ? &index->bytes : &index->small;
    const uint8_t *bytes = description_at(index, tensor);
    pici_desc_parse(desc, bytes, holder->size - (size_t)(bytes - holder->data)); /* it was checked when it was added */
}

/* The entry of the tensor's record. */
static const uint8_t *record_of(const struct pici_index *index, size_t tensor)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    return index->bytes.data + (entry->table == NO_TABLE ? entry->position : table_at(index, entry->table)->entry);
}

/* The offset of the tensor's first record; of the index if there is no such tensor. */
static uint64_t begins(const struct pici_index *index, size_t tensor, uint64_t index_offset)
{
    return tensor < index->count ? load_le64(record_of(index, tensor)) : index_offset;
}

/* The chunks of the tensor, or of its table: their place in the index, their number, and the first tensor after
 * them. */
static const uint8_t *chunks_of(const struct pici_index *index, size_t tensor, const struct pici_desc *description,
                                uint64_t *count, size_t *after)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    if (entry->table == NO_TABLE) {
        *count = description->chunks;
        *after = tensor + 1;
        return index->bytes.data + entry->position + INDEX_ENTRY_BYTES + description->bytes;
    }
    const struct pici_table *table = table_at(index, entry->table);
    *count = chunks_before(table, DTYPES);
    *after = table->first + table->count;
    return index->bytes.data + table->chunks;
}

void pici_index_blck(const struct pici_index *index, size_t tensor, uint64_t chunk_number, uint64_t index_offset,
                     struct pici_place *place)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    struct pici_desc description;
    uint64_t count;
    size_t after;
    pici_index_desc(index, tensor, &description);
    const uint8_t *bytes = chunks_of(index, tensor, &description, &count, &after);
    if (entry->table == NO_TABLE) {
        place->count = pici_desc_chunk(&description, chunk_number);
    } else {
        const struct pici_table *table = table_at(index, entry->table);
        chunk_number = chunks_before(table, description.dtype);
        place->count = table->elements[description.dtype];
    }
    bytes += (size_t)chunk_number * INDEX_CHUNK_BYTES;
    place->offset = load_le64(bytes);
    place->hash = load_le64(bytes + 8);
    place->end = chunk_number + 1 < count ? load_le64(bytes + INDEX_CHUNK_BYTES) : begins(index, after, index_offset);
}

void pici_index_tens(const struct pici_index *index, size_t tensor, uint64_t index_offset, struct pici_place *place)
{
    struct pici_desc description;
    uint64_t count;
    size_t after;
    pici_index_desc(index, tensor, &description);
    const uint8_t *bytes = record_of(index, tensor), *chunks = chunks_of(index, tensor, &description, &count, &after);
    place->offset = load_le64(bytes);
    place->hash = load_le64(bytes + 8);
    place->end = count ? load_le64(chunks) : begins(index, after, index_offset);
}

uint64_t pici_index_stored(const struct pici_index *index, size_t tensor, uint64_t index_offset)
{
    const struct pici_entry *entry = entry_of(index, tensor);
    struct pici_desc description;
    uint64_t count;
    size_t after;
    pici_index_desc(index, tensor, &description);
    chunks_of(index, tensor, &description, &count, &after);
    if (entry->table == NO_TABLE)
        return begins(index, after, index_offset) - begins(index, tensor, index_offset);
    /* Divide the table's records in proportion to the tensors' descriptions and elements. All parts add up to the
     * total. */
    const struct pici_table *table = table_at(index, entry->table);
    const uint64_t record_bytes = begins(index, after, index_offset) - begins(index, tensor, index_offset);
    const uint64_t table_bytes = table->bytes + table->element_bytes, begin = (uint64_t)entry->within + entry->before;
    const uint64_t end = (tensor + 1 < table->first + table->count ? entry[1].within : table->bytes) + entry->before +
                         description.count * description.width;
    return record_bytes * end / table_bytes - record_bytes * begin / table_bytes;
}

void pici_index_free(struct pici_index *index)
{
    pici_buf_free(&index->bytes);
    pici_buf_free(&index->entries);
    pici_buf_free(&index->small);
    pici_buf_free(&index->tables);
    for (int i = 0; i < BODIES_KEPT; i++)
        pici_buf_free(&index->bodies[i].bytes);
    pici_buf_free(&index->order);
    index->count = 0;
    index->run_count = 0;
}
