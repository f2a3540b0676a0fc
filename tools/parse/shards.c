/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parse/json.h"

/* A tensor during parsing. */
struct entry {
    struct shards_tensor tensor;
    const char *file; /* [file_size], then a NUL */
    size_t file_size;
    uint64_t offset; /* of the tensor's name in the index */
};

struct parser {
    struct json json;
    struct parse_error *error;
    struct shards *shards;
    struct entry *entry; /* [count] */
    size_t count, capacity;
    char *end; /* end of the used part of shards->text, which has room for all strings of the index */
    bool has_map;
};

bool shards_name_is_plain(const char *name, size_t size, const char **reason)
{
    const uint8_t *position = (const uint8_t *)name, *const end = position + size;
    uint32_t character;
    *reason = NULL;
    if (!size)
        *reason = "it is empty";
    else if (size > SHARDS_NAME_MOST)
        *reason = "it is too long";
    else if (memchr(name, '/', size))
        *reason = "it has a slash";
    if (!*reason && name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')))
        *reason = "it is a folder";
    if (!*reason && size >= 6 && memcmp(name, ".pici-", 6) == 0)
        *reason = "temporary files begin so";
    for (size_t step; !*reason && position < end; position += step) {
        step = pici_parse_char(position, end, &character);
        if (!step || pici_parse_hidden(character)) {
            *reason = "it has hidden characters";
            break;
        }
    }
    return !*reason;
}

bool shards_path_is_plain(const char *name, size_t size, const char **reason)
{
    *reason = size > SHARDS_NAME_MOST ? "it is too long" : NULL;
    for (size_t start = 0, part_size; !*reason && start <= size; start += part_size + 1) {
        const char *const slash = start < size ? memchr(name + start, '/', size - start) : NULL;
        part_size = slash ? (size_t)(slash - name) - start : size - start;
        (void)shards_name_is_plain(name + start, part_size, reason);
    }
    return !*reason;
}

static bool no_memory(struct parser *parser)
{
    return pici_parse_fail(parser->error, 0, "out of memory for the index");
}

/* Skips the value that begins with `token`. */
static bool skip_from(struct parser *parser, struct json_token token)
{
    unsigned depth = 0;
    for (;; token = pici_json_next(&parser->json)) {
        if (token.type == JSON_ERROR)
            return false;
        depth += token.type == JSON_OBJECT || token.type == JSON_ARRAY;
        depth -= token.type == JSON_OBJECT_END || token.type == JSON_ARRAY_END;
        if (!depth && token.type != JSON_KEY)
            return true;
    }
}

/* Copies a key or string, resolves its escapes, and adds a NUL. */
static const char *keep(struct parser *parser, struct json_token token, size_t *size)
{
    const char *const text = parser->end;
    *size = pici_json_string(&parser->json, token, parser->end);
    parser->end += *size;
    *parser->end++ = 0; /* the room of the quotes */
    return text;
}

static bool parse_metadata(struct parser *parser)
{
    struct json_token token;
    if (!pici_json_expect(&parser->json, JSON_OBJECT, "'metadata' is not an object", &token))
        return false;
    while (pici_json_key(&parser->json, &token)) {
        const bool total = pici_json_is(&parser->json, token, "total_size");
        token = pici_json_next(&parser->json);
        if (total)
            parser->shards->has_total = pici_json_u64(&parser->json, token, &parser->shards->total);
        if (!skip_from(parser, token))
            return false;
    }
    return token.type == JSON_OBJECT_END;
}

static bool parse_entry(struct parser *parser, struct json_token key)
{
    struct json_token token;
    const char *reason;
    char shown[64];
    if (!pici_json_expect(&parser->json, JSON_STRING, "a tensor's file in 'weight_map' is not a string", &token))
        return false;
    if (parser->count == parser->capacity) {
        const size_t capacity = parser->capacity ? 2 * parser->capacity : 64;
        struct entry *const bigger = realloc(parser->entry, capacity * sizeof *bigger);
        if (!bigger)
            return no_memory(parser);
        parser->entry = bigger;
        parser->capacity = capacity;
    }
    struct entry *const entry = &parser->entry[parser->count++];
    *entry = (struct entry){.offset = key.start - 1};
    entry->tensor.name = keep(parser, key, &entry->tensor.name_size);
    entry->file = keep(parser, token, &entry->file_size);
    const size_t tail = strlen(SHARDS_EXTENSION);
    if (shards_name_is_plain(entry->file, entry->file_size, &reason) &&
        (entry->file_size <= tail || memcmp(entry->file + entry->file_size - tail, SHARDS_EXTENSION, tail) != 0))
        reason = "it does not end in " SHARDS_EXTENSION;
    return !reason || pici_parse_fail(parser->error, token.start - 1, "'%s' is not the name of a shard: %s",
                                      pici_parse_printable(shown, sizeof shown, entry->file, entry->file_size), reason);
}

static bool parse_map(struct parser *parser)
{
    struct json_token token;
    if (!pici_json_expect(&parser->json, JSON_OBJECT, "'weight_map' is not an object", &token))
        return false;
    parser->has_map = true;
    while (pici_json_key(&parser->json, &token))
        if (!parse_entry(parser, token))
            return false;
    return token.type == JSON_OBJECT_END;
}

static bool parse_index(struct parser *parser)
{
    struct json_token token;
    bool has_metadata = false;
    if (!pici_json_expect(&parser->json, JSON_OBJECT, "the index is not a JSON object", &token))
        return false;
    while (pici_json_key(&parser->json, &token)) {
        const bool map = pici_json_is(&parser->json, token, "weight_map"),
                   metadata = pici_json_is(&parser->json, token, "metadata");
        if ((map && parser->has_map) || (metadata && has_metadata))
            return pici_parse_fail(parser->error, token.start - 1, "duplicate key '%s'",
                                   map ? "weight_map" : "metadata");
        has_metadata = has_metadata || metadata;
        bool read;
        if (map)
            read = parse_map(parser);
        else
            read = metadata ? parse_metadata(parser) : skip_from(parser, pici_json_next(&parser->json));
        if (!read)
            return false;
    }
    if (token.type == JSON_ERROR || !pici_json_expect(&parser->json, JSON_END, "", &token))
        return false;
    return parser->count ||
           pici_parse_fail(parser->error, 0,
                           parser->has_map ? "'weight_map' is empty" : "an index without 'weight_map'");
}

static int by_file(const void *left, const void *right)
{
    const struct entry *first = left, *second = right;
    return pici_parse_order(first->file, first->file_size, second->file, second->file_size);
}

static int by_name(const void *left, const void *right)
{
    const struct shards_tensor *first = left, *second = right;
    return pici_parse_order(first->name, first->name_size, second->name, second->name_size);
}

static int by_name_and_shard(const void *left, const void *right)
{
    const struct shards_tensor *first = left, *second = right;
    const int order = by_name(first, second);
    return order ? order : (first->shard > second->shard) - (first->shard < second->shard);
}

/* Sorts by name, then by place: the error names the last duplicate in the text. */
static int by_name_and_place(const void *left, const void *right)
{
    const struct entry *first = left, *second = right;
    const int order = by_name(&first->tensor, &second->tensor);
    return order ? order : (first->offset > second->offset) - (first->offset < second->offset);
}

/* Numbers the shards, and sorts the tensors. */
static bool arrange(struct parser *parser)
{
    struct shards *const shards = parser->shards;
    char shown[64];
    shards->tensor = malloc(parser->count * sizeof *shards->tensor);
    shards->shard = malloc(parser->count * sizeof *shards->shard);
    if (!shards->tensor || !shards->shard)
        return no_memory(parser);
    qsort(parser->entry, parser->count, sizeof *parser->entry, by_file);
    for (size_t i = 0; i < parser->count; i++) {
        if (!i || by_file(&parser->entry[i - 1], &parser->entry[i]) != 0)
            shards->shard[shards->shards++] = parser->entry[i].file;
        parser->entry[i].tensor.shard = (uint32_t)(shards->shards - 1);
    }
    qsort(parser->entry, parser->count, sizeof *parser->entry, by_name_and_place);
    for (size_t i = 0; i < parser->count; i++) {
        shards->tensor[i] = parser->entry[i].tensor;
        if (i && by_name(&shards->tensor[i - 1], &shards->tensor[i]) == 0)
            return pici_parse_fail(
                parser->error, parser->entry[i].offset, "tensor '%s' occurs twice",
                pici_parse_printable(shown, sizeof shown, shards->tensor[i].name, shards->tensor[i].name_size));
    }
    shards->tensors = parser->count;
    return true;
}

bool shards_parse(struct shards *out, const void *text, size_t size, struct parse_error *error)
{
    struct parser parser = {.error = error, .shards = out};
    *out = (struct shards){0};
    if (size > SHARDS_TEXT_MOST)
        return pici_parse_fail(error, 0, "an index of %zu bytes, above the limit of %d", size, SHARDS_TEXT_MOST);
    pici_json_init(&parser.json, text, size, 0, error);
    parser.end = out->text = malloc(size + 1);
    const bool valid = (out->text || no_memory(&parser)) && parse_index(&parser) && arrange(&parser);
    free(parser.entry);
    if (!valid)
        shards_free(out);
    return valid;
}

const struct shards_tensor *shards_find(const struct shards *shards, const char *name, size_t size)
{
    const struct shards_tensor key = {.name = name, .name_size = size};
    size_t low = 0;
    for (size_t high = shards->tensors; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (by_name(&shards->tensor[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < shards->tensors && by_name(&shards->tensor[low], &key) == 0 ? &shards->tensor[low] : NULL;
}

const struct shards_tensor *shards_find_in(const struct shards *shards, const char *name, size_t size, size_t shard)
{
    const struct shards_tensor *const first = shards_find(shards, name, size), *const end =
                                                                                   shards->tensor + shards->tensors;
    for (const struct shards_tensor *tensor = first; tensor && tensor < end && by_name(tensor, first) == 0; tensor++)
        if (tensor->shard == shard)
            return tensor;
    return first;
}

void shards_sort(struct shards *shards)
{
    if (shards->tensors)
        qsort(shards->tensor, shards->tensors, sizeof *shards->tensor, by_name_and_shard);
}

void shards_free(struct shards *shards)
{
    free(shards->tensor);
    free(shards->shard);
    free(shards->text);
    *shards = (struct shards){0};
}
