/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parse/json.h"

/* The dtypes of the reference implementation, with the bits of an item, and the dtype in a .pici file. */
static const struct source_dtype {
    char name[12];
    uint8_t bits;
    uint8_t dtype; /* enum pici_dtype */
    uint8_t item_elements;
} source_dtypes[] = {
    {"BOOL", 8, PICI_U8, 1},        {"F4", 4, PICI_U8, 0},          {"F6_E2M3", 6, PICI_U8, 0},
    {"F6_E3M2", 6, PICI_U8, 0},     {"U8", 8, PICI_U8, 1},          {"I8", 8, PICI_I8, 1},
    {"F8_E5M2", 8, PICI_F8E5M2, 1}, {"F8_E4M3", 8, PICI_F8E4M3, 1}, {"F8_E8M0", 8, PICI_U8, 1},
    {"F8_E4M3FNUZ", 8, PICI_U8, 1}, {"F8_E5M2FNUZ", 8, PICI_U8, 1}, {"I16", 16, PICI_I16, 1},
    {"U16", 16, PICI_U16, 1},       {"F16", 16, PICI_F16, 1},       {"BF16", 16, PICI_BF16, 1},
    {"I32", 32, PICI_I32, 1},       {"U32", 32, PICI_U32, 1},       {"F32", 32, PICI_F32, 1},
    {"C64", 64, PICI_F32, 2},       {"F64", 64, PICI_F64, 1},       {"I64", 64, PICI_I64, 1},
    {"U64", 64, PICI_U64, 1},
};

struct key {
    const char *name;
    size_t bytes;
    uint64_t offset; /* in the file */
};

struct keys {
    struct key *list;
    size_t count, capacity;
};

struct parser {
    struct json json;
    struct parse_error *error;
    struct safetensors *out;
    struct keys tensors, metadata;
    char *names_end; /* end of the used part of out->names, which has room for all keys of the text */
    size_t tensors_capacity, shapes_count, shapes_capacity;
};

bool pici_safetensors_header_bytes(uint64_t *need, const uint8_t *first, size_t size, struct parse_error *error)
{
    uint64_t count = 0;
    if (size < SAFETENSORS_PREFIX_BYTES)
        return pici_parse_fail(error, size, "the file ends inside the length of the header");
    for (int i = SAFETENSORS_PREFIX_BYTES; i-- > 0;)
        count = count << 8 | first[i];
    if (count > SAFETENSORS_MAX_HEADER_TEXT)
        return pici_parse_fail(error, 0, "a header of %" PRIu64 " bytes, above the limit of %d", count,
                               SAFETENSORS_MAX_HEADER_TEXT);
    *need = SAFETENSORS_PREFIX_BYTES + count;
    return true;
}

/* Makes room for one more than count elements of each bytes. Returns array, perhaps moved; NULL: out of memory. */
static void *grow(void *array, size_t count, size_t *capacity, size_t each)
{
    uint64_t bytes;
    if (count < *capacity)
        return array;
    size_t more = *capacity ? 2 * *capacity : 8;
    if (!parse_mul(&bytes, more, each, SIZE_MAX))
        return NULL;
    void *grown = realloc(array, (size_t)bytes);
    if (grown)
        *capacity = more;
    return grown;
}

/* The offset of a token in the file. */
static uint64_t place(struct json_token token)
{
    return SAFETENSORS_PREFIX_BYTES + token.start;
}

static bool no_memory(struct parser *parser, uint64_t offset)
{
    return pici_parse_no_memory(parser->error, offset, "the tensors of the header");
}

/* Appends a key, with its escapes resolved and a NUL. */
static bool add_key(struct parser *parser, struct keys *keys, struct json_token token)
{
    struct key *list = grow(keys->list, keys->count, &keys->capacity, sizeof *list);
    if (!list)
        return no_memory(parser, place(token));
    keys->list = list;
    struct key *key = &list[keys->count++];
    *key = (struct key){parser->names_end, pici_json_string(&parser->json, token, parser->names_end), place(token) - 1};
    parser->names_end += key->bytes;
    *parser->names_end++ = '\0';
    return true;
}

static int by_name(const void *remaining, const void *right)
{
    const struct key *first = remaining, *second = right;
    const int order = pici_parse_order(first->name, first->bytes, second->name, second->bytes);
    return order ? order : (first->offset > second->offset) - (first->offset < second->offset);
}

/* Sorts the keys. Of duplicates, reports the one that comes first in the text. */
static bool no_duplicates(struct parser *parser, struct keys *keys)
{
    const struct key *worst = NULL;
    char name[64];
    if (keys->count)
        qsort(keys->list, keys->count, sizeof *keys->list, by_name);
    for (size_t i = 1; i < keys->count; i++) {
        const struct key *key = &keys->list[i];
        if (key[-1].bytes == key->bytes && memcmp(key[-1].name, key->name, key->bytes) == 0 &&
            (!worst || key->offset < worst->offset))
            worst = key;
    }
    if (worst)
        return pici_parse_fail(parser->error, worst->offset, "duplicate key '%s'",
                               pici_parse_printable(name, sizeof name, worst->name, worst->bytes));
    return true;
}

static bool parse_metadata(struct parser *parser)
{
    struct json_token token;
    token = pici_json_next(&parser->json);
    if (token.type == JSON_ERROR || token.type == JSON_NULL)
        return token.type == JSON_NULL;
    if (token.type != JSON_OBJECT)
        return pici_parse_fail(parser->error, place(token), "'__metadata__' is not an object");
    while (pici_json_key(&parser->json, &token))
        if (!add_key(parser, &parser->metadata, token) ||
            !pici_json_expect(&parser->json, JSON_STRING, "a value in '__metadata__' is not a string", &token))
            return false;
    return token.type == JSON_OBJECT_END;
}

static bool parse_dtype(struct parser *parser, const struct source_dtype **source)
{
    struct json_token token;
    char text[40];
    if (!pici_json_expect(&parser->json, JSON_STRING, "'dtype' is not a string", &token))
        return false;
    for (size_t i = 0; i < sizeof source_dtypes / sizeof *source_dtypes; i++) {
        *source = &source_dtypes[i];
        if (pici_json_is(&parser->json, token, (*source)->name))
            return true;
    }
    return pici_parse_fail(parser->error, place(token), "unknown dtype '%s'",
                           pici_parse_printable(text, sizeof text, parser->json.text + token.start, token.size));
}

static bool parse_shape(struct parser *parser, struct safetensors_tensor *tensor, uint64_t *offset)
{
    struct json_token token;
    struct safetensors *output = parser->out;
    if (!pici_json_expect(&parser->json, JSON_ARRAY, "'shape' is not an array", &token))
        return false;
    *offset = place(token);
    tensor->items = 1;
    for (tensor->rank = 0;; tensor->rank++) {
        uint64_t count;
        token = pici_json_next(&parser->json);
        if (token.type == JSON_ARRAY_END)
            return true;
        if (token.type == JSON_ERROR)
            return false;
        if (!pici_json_u64(&parser->json, token, &count))
            return pici_parse_fail(parser->error, place(token),
                                   "a dimension in 'shape' is not an unsigned 64-bit integer");
        if (!parse_mul(&tensor->items, tensor->items, count, UINT64_MAX))
            return pici_parse_fail(parser->error, place(token), "the product of 'shape' overflows");
        uint64_t *shapes = grow(output->shapes, parser->shapes_count, &parser->shapes_capacity, sizeof *shapes);
        if (!shapes)
            return no_memory(parser, place(token));
        output->shapes = shapes;
        shapes[parser->shapes_count++] = count;
    }
}

static bool parse_offsets(struct parser *parser, struct safetensors_tensor *tensor, uint64_t *offset)
{
    struct json_token token;
    uint64_t pair[2];
    if (!pici_json_expect(&parser->json, JSON_ARRAY, "'data_offsets' is not an array", &token))
        return false;
    *offset = place(token);
    for (int i = 0; i < 2; i++) {
        token = pici_json_next(&parser->json);
        if (token.type == JSON_ERROR)
            return false;
        if (!pici_json_u64(&parser->json, token, &pair[i]))
            return pici_parse_fail(parser->error, place(token), "'data_offsets' is not two unsigned 64-bit integers");
    }
    if (!pici_json_expect(&parser->json, JSON_ARRAY_END, "'data_offsets' has more than two numbers", &token))
        return false;
    if (pair[0] > pair[1])
        return pici_parse_fail(parser->error, *offset, "'data_offsets' ends before it begins");
    /* all sums of offsets and file positions stay below 2^63 */
    if (pair[1] > (uint64_t)INT64_MAX - parser->out->data_offset)
        return pici_parse_fail(parser->error, *offset, "'data_offsets' overflows");
    tensor->begin = parser->out->data_offset + pair[0];
    tensor->end = parser->out->data_offset + pair[1];
    return true;
}

/* Skips the value of an unknown key. */
static bool skip_value(struct parser *parser)
{
    unsigned open = 0;
    do {
        const struct json_token token = pici_json_next(&parser->json);
        if (token.type == JSON_ERROR)
            return false;
        open += token.type == JSON_OBJECT || token.type == JSON_ARRAY;
        open -= token.type == JSON_OBJECT_END || token.type == JSON_ARRAY_END;
    } while (open);
    return true;
}

static bool parse_tensor(struct parser *parser, const struct key *key)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    const struct source_dtype *source = NULL;
    struct safetensors_tensor *tensors =
        grow(parser->out->tensors, parser->out->count, &parser->tensors_capacity, sizeof *parser->out->tensors);
    struct json_token token;
    uint64_t shape_offset = 0, data_offset = 0, bits = 0;
    unsigned seen = 0;
    char text[64];
    if (!tensors)
        return no_memory(parser, key->offset);
    parser->out->tensors = tensors;
    struct safetensors_tensor *tensor = &tensors[parser->out->count++];
    *tensor = (struct safetensors_tensor){.name = key->name, .name_bytes = key->bytes, .header_offset = key->offset};
    if (!pici_json_expect(&parser->json, JSON_OBJECT, "a tensor that is not an object", &token))
        return false;
    while (pici_json_key(&parser->json, &token)) {
        unsigned which = 0;
        if (pici_json_is(&parser->json, token, "dtype"))
            which = DTYPE;
        else if (pici_json_is(&parser->json, token, "shape"))
            which = SHAPE;
        else if (pici_json_is(&parser->json, token, "data_offsets"))
            which = OFFSETS;
        if (which == 0 && !skip_value(parser))
            return false;
        if (which == 0)
            continue;
        if (seen & which)
            return pici_parse_fail(
                parser->error, place(token) - 1, "duplicate key '%s' in a tensor",
                pici_parse_printable(text, sizeof text, parser->json.text + token.start, token.size));
        seen |= which;
        bool good = false;
        switch (which) {
        case DTYPE: good = parse_dtype(parser, &source); break;
        case SHAPE: good = parse_shape(parser, tensor, &shape_offset); break;
        default: good = parse_offsets(parser, tensor, &data_offset); break;
        }
        if (!good)
            return false;
    }
    if (token.type == JSON_ERROR)
        return false;
    if (seen != ALL)
        return pici_parse_fail(parser->error, place(token), "a tensor without '%s'",
                               seen & DTYPE ? seen & SHAPE ? "data_offsets" : "shape" : "dtype");
    if (!parse_mul(&bits, tensor->items, source->bits, UINT64_MAX))
        return pici_parse_fail(parser->error, shape_offset, "the size of 'shape' in %s overflows", source->name);
    if (bits % 8)
        return pici_parse_fail(parser->error, shape_offset, "'shape' in %s is not a whole number of bytes",
                               source->name);
    if (bits / 8 != tensor->end - tensor->begin)
        return pici_parse_fail(parser->error, data_offset,
                               "'data_offsets' spans %" PRIu64 " bytes, 'shape' in %s needs %" PRIu64,
                               tensor->end - tensor->begin, source->name, bits / 8);
    tensor->source_dtype = source->name;
    tensor->dtype = (enum pici_dtype)source->dtype;
    tensor->item_elements = source->item_elements;
    tensor->item_bits = source->bits;
    tensor->count = source->item_elements ? tensor->items * source->item_elements : bits / 8;
    return true;
}

static bool parse_header(struct parser *parser)
{
    struct json_token token;
    if (!pici_json_expect(&parser->json, JSON_OBJECT, "the header is not a JSON object", &token))
        return false;
    while (pici_json_key(&parser->json, &token))
        if (!add_key(parser, &parser->tensors, token) ||
            !(pici_json_is(&parser->json, token, "__metadata__")
                  ? parse_metadata(parser)
                  : parse_tensor(parser, &parser->tensors.list[parser->tensors.count - 1])))
            return false;
    return token.type == JSON_OBJECT_END && pici_json_expect(&parser->json, JSON_END, "", &token) &&
           no_duplicates(parser, &parser->metadata) && no_duplicates(parser, &parser->tensors);
}

static int by_data(const void *remaining, const void *right)
{
    const struct safetensors_tensor *first = remaining, *second = right;
    if (first->begin != second->begin)
        return first->begin < second->begin ? -1 : 1;
    if (first->end != second->end)
        return first->end < second->end ? -1 : 1;
    return first->header_offset < second->header_offset ? -1 : first->header_offset > second->header_offset;
}

/* Checks that the tensors' data leave no gap, do not overlap and end with the file. */
static bool check_layout(struct safetensors *output, uint64_t file_bytes, struct parse_error *error)
{
    char name[64];
    uint64_t end = output->data_offset;
    if (output->count)
        qsort(output->tensors, output->count, sizeof *output->tensors, by_data);
    for (size_t i = 0; i < output->count; i++) {
        const struct safetensors_tensor *tensor = &output->tensors[i];
        if (tensor->begin != end)
            return pici_parse_fail(error, tensor->header_offset, "the data of tensor '%s' %s",
                                   pici_parse_printable(name, sizeof name, tensor->name, tensor->name_bytes),
                                   tensor->begin > end ? "leave a hole before them" : "overlap another's");
        end = tensor->end;
    }
    output->file_bytes = end;
    if (file_bytes == UINT64_MAX || file_bytes == end)
        return true;
    if (file_bytes < end)
        return pici_parse_fail(error, file_bytes, "the file ends %" PRIu64 " bytes before the last tensor does",
                               end - file_bytes);
    return pici_parse_fail(error, end, "%" PRIu64 " bytes that belong to no tensor", file_bytes - end);
}

bool pici_safetensors_parse(struct safetensors *output, const uint8_t *head, size_t size, uint64_t file_bytes,
                            struct parse_error *error)
{
    struct parser parser = {.error = error, .out = output};
    *output = (struct safetensors){0};
    if (!pici_safetensors_header_bytes(&output->data_offset, head, size, error))
        return false;
    if (size < output->data_offset || file_bytes < output->data_offset)
        return pici_parse_fail(error, size < file_bytes ? size : file_bytes, "the file ends inside the header");
    size_t text_bytes = (size_t)(output->data_offset - SAFETENSORS_PREFIX_BYTES);
    pici_json_init(&parser.json, head + SAFETENSORS_PREFIX_BYTES, text_bytes, SAFETENSORS_PREFIX_BYTES, error);
    /* A key's two quotes leave room for its NUL. One byte more, since malloc(0) may return NULL. */
    parser.names_end = output->names = malloc(text_bytes + 1);
    bool good = output->names ? parse_header(&parser) : pici_parse_no_memory(error, 0, "the names of the header");
    const uint64_t *shape = output->shapes;
    for (size_t i = 0; good && i < output->count; i++) {
        if (output->tensors[i].rank == 0)
            continue;
        output->tensors[i].shape = shape;
        shape += output->tensors[i].rank;
    }
    output->metadata_count = parser.metadata.count;
    free(parser.tensors.list);
    free(parser.metadata.list);
    good = good && check_layout(output, file_bytes, error);
    if (!good)
        pici_safetensors_free(output);
    return good;
}

void pici_safetensors_shape(const struct safetensors_tensor *tensor, uint64_t shape[PICI_RANK_MAX], unsigned *rank)
{
    const unsigned last = tensor->rank ? tensor->rank - 1 : 0;
    const unsigned items = tensor->item_bits == 4 ? 2 : 4; /* the least number that fills whole bytes */
    if (tensor->item_elements || !tensor->rank || tensor->rank > PICI_RANK_MAX || tensor->shape[last] % items) {
        pici_parse_shape(shape, rank, tensor->shape, tensor->rank, tensor->items, tensor->item_elements, tensor->count,
                         pici_dtype_width(tensor->dtype));
        return;
    }
    uint64_t packed[PICI_RANK_MAX];
    memcpy(packed, tensor->shape, tensor->rank * sizeof *packed);
    packed[last] = packed[last] / items * (items * tensor->item_bits / 8);
    pici_parse_shape(shape, rank, packed, tensor->rank, tensor->count, 1, tensor->count, 1);
}

void pici_safetensors_free(struct safetensors *file)
{
    free(file->tensors);
    free(file->names);
    free(file->shapes);
    *file = (struct safetensors){0};
}
