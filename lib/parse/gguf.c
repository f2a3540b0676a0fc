/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char stem[] = "padding";
enum { STEM_BYTES = sizeof stem - 1, STEM_MOST_PLUS = 16, DEFAULT_ALIGNMENT = 32 };

/* The types of tensors by their numbers, and a dtype in a .pici file. Types without a name are obsolete. */
static const struct tensor_type {
    char name[8];
    uint8_t dtype;         /* enum pici_dtype */
    uint16_t block, bytes; /* elements of a block, which is a shape's unit, and its bytes */
} tensor_types[] = {
    [0] = {"F32", PICI_F32, 1, 4},        [1] = {"F16", PICI_F16, 1, 2},        [2] = {"Q4_0", PICI_U8, 32, 18},
    [3] = {"Q4_1", PICI_U8, 32, 20},      [6] = {"Q5_0", PICI_U8, 32, 22},      [7] = {"Q5_1", PICI_U8, 32, 24},
    [8] = {"Q8_0", PICI_U8, 32, 34},      [9] = {"Q8_1", PICI_U8, 32, 40},      [10] = {"Q2_K", PICI_U8, 256, 84},
    [11] = {"Q3_K", PICI_U8, 256, 110},   [12] = {"Q4_K", PICI_U8, 256, 144},   [13] = {"Q5_K", PICI_U8, 256, 176},
    [14] = {"Q6_K", PICI_U8, 256, 210},   [15] = {"Q8_K", PICI_U8, 256, 292},   [16] = {"IQ2_XXS", PICI_U8, 256, 66},
    [17] = {"IQ2_XS", PICI_U8, 256, 74},  [18] = {"IQ3_XXS", PICI_U8, 256, 98}, [19] = {"IQ1_S", PICI_U8, 256, 50},
    [20] = {"IQ4_NL", PICI_U8, 32, 18},   [21] = {"IQ3_S", PICI_U8, 256, 110},  [22] = {"IQ2_S", PICI_U8, 256, 82},
    [23] = {"IQ4_XS", PICI_U8, 256, 136}, [24] = {"I8", PICI_I8, 1, 1},         [25] = {"I16", PICI_I16, 1, 2},
    [26] = {"I32", PICI_I32, 1, 4},       [27] = {"I64", PICI_I64, 1, 8},       [28] = {"F64", PICI_F64, 1, 8},
    [29] = {"IQ1_M", PICI_U8, 256, 56},   [30] = {"BF16", PICI_BF16, 1, 2},     [34] = {"TQ1_0", PICI_U8, 256, 54},
    [35] = {"TQ2_0", PICI_U8, 256, 66},   [39] = {"MXFP4", PICI_U8, 32, 17},    [40] = {"NVFP4", PICI_U8, 64, 36},
    [41] = {"Q1_0", PICI_U8, 128, 18},
};

/* Types of values. Their bytes; 0: a string or an array. */
enum { VALUE_U32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9 };
static const uint8_t value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* The fewest bytes of a prefix, a string, a key with its value, and the description of a tensor. */
enum { PREFIX_LEAST = 24, STRING_LEAST = 8, KEY_LEAST = 13, TENSOR_LEAST = 24 };

/* Takes numbers and texts from the head. */
struct cursor {
    const uint8_t *head;
    uint64_t size, at;
    bool big_endian;
    bool short_of; /* the requested bytes end after the head, at `at` */
    struct parse_error *error;
};

/* Goes past bytes; false if they are not all in the head. */
static bool skip(struct cursor *cursor, uint64_t bytes)
{
    cursor->at += bytes; /* both are at most GGUF_MAX_HEADER */
    cursor->short_of = cursor->at > cursor->size;
    return !cursor->short_of;
}

static bool take_number(struct cursor *cursor, unsigned width, uint64_t *value)
{
    if (!skip(cursor, width))
        return false;
    const uint8_t *const bytes = cursor->head + cursor->at - width;
    *value = 0;
    for (unsigned i = 0; i < width; i++)
        *value = *value << 8 | bytes[cursor->big_endian ? i : width - 1 - i];
    return true;
}

/* Returns false, with *error set, above the limit. */
static bool fits(struct cursor *cursor, uint64_t items, uint64_t bytes, const char *what)
{
    if (bytes <= GGUF_MAX_HEADER && items <= GGUF_MAX_HEADER / (bytes ? bytes : 1))
        return true;
    return pici_parse_fail(cursor->error, cursor->at, "%" PRIu64 " %s: a header above the limit of %d bytes", items,
                           what, GGUF_MAX_HEADER);
}

static bool take_text(struct cursor *cursor, uint64_t *bytes)
{
    return take_number(cursor, 8, bytes) && fits(cursor, *bytes, 1, "bytes of text") && skip(cursor, *bytes);
}

static bool scan_prefix(struct gguf_scan *scan, struct cursor *cursor)
{
    uint64_t version = 0, tensors, keys;
    if (!skip(cursor, 4))
        return false;
    if (memcmp(cursor->head, "GGUF", 4) != 0)
        return pici_parse_fail(cursor->error, 0, "not a GGUF file: it does not begin with GGUF");
    if (!skip(cursor, 4))
        return false;
    cursor->at = 4;
    cursor->big_endian = cursor->head[4] == 0 && cursor->head[5] == 0;
    take_number(cursor, 4, &version);
    if (version != 2 && version != 3)
        return pici_parse_fail(cursor->error, 4, "version %" PRIu64 " of GGUF; versions 2 and 3 are read%s", version,
                               version == 1 ? ", and llama.cpp makes them from it" : "");
    if (!take_number(cursor, 8, &tensors) || !take_number(cursor, 8, &keys))
        return false;
    if (!fits(cursor, tensors, TENSOR_LEAST, "tensors") || !fits(cursor, keys, KEY_LEAST, "keys"))
        return false;
    scan->tensors = scan->left = tensors;
    scan->keys = keys;
    scan->alignment = DEFAULT_ALIGNMENT;
    scan->big_endian = cursor->big_endian;
    scan->stage = GGUF_KEYS;
    return true;
}

static bool set_alignment(struct gguf_scan *scan, struct cursor *cursor, uint64_t type, uint64_t value, uint64_t offset)
{
    if (scan->aligned)
        return pici_parse_fail(cursor->error, offset, "general.alignment is given twice");
    if (type != VALUE_U32 || !value || value & (value - 1) || value > GGUF_MAX_ALIGNMENT)
        return pici_parse_fail(cursor->error, offset, "general.alignment is not a power of two up to %d, as u32",
                               GGUF_MAX_ALIGNMENT);
    scan->alignment = (uint32_t)value;
    scan->aligned = true;
    return true;
}

/* Scan a key and its value; for an array of strings, only the bytes before the first string. */
static bool scan_key(struct gguf_scan *scan, struct cursor *cursor)
{
    static const char alignment[] = "general.alignment";
    uint64_t bytes, type, element, count, value = 0;
    const uint64_t offset = cursor->at;
    if (!take_text(cursor, &bytes) || !take_number(cursor, 4, &type))
        return false;
    const char *const key = (const char *)cursor->head + offset + 8;
    if (type >= sizeof value_bytes)
        return pici_parse_fail(cursor->error, cursor->at - 4, "a value of type %" PRIu64 ", which is not known", type);
    if (value_bytes[type] && !take_number(cursor, value_bytes[type], &value))
        return false;
    if (type == VALUE_STRING && !take_text(cursor, &count))
        return false;
    if (type == VALUE_ARRAY) {
        if (!take_number(cursor, 4, &element) || !take_number(cursor, 8, &count))
            return false;
        if (element >= sizeof value_bytes || element == VALUE_ARRAY)
            return pici_parse_fail(cursor->error, cursor->at - 12, "an array of %s",
                                   element == VALUE_ARRAY ? "arrays, which is not read" : "a type that is not known");
        if (!fits(cursor, count, element == VALUE_STRING ? STRING_LEAST : value_bytes[element], "elements of an array"))
            return false;
        if (element != VALUE_STRING && !skip(cursor, count * value_bytes[element]))
            return false;
        scan->strings = element == VALUE_STRING ? count : 0;
    }
    if (bytes == sizeof alignment - 1 && memcmp(key, alignment, bytes) == 0 &&
        !set_alignment(scan, cursor, type, value, offset))
        return false;
    scan->keys--;
    return true;
}

/* Take the description of a tensor. output: NULL to find only its length. */
static bool take_tensor(struct cursor *cursor, struct gguf_tensor *output, uint64_t *offset)
{
    uint64_t name_bytes, rank, type, dimensions[GGUF_MAX_RANK];
    const uint64_t begin = cursor->at;
    if (!take_text(cursor, &name_bytes) || !take_number(cursor, 4, &rank))
        return false;
    if (rank > GGUF_MAX_RANK)
        return pici_parse_fail(cursor->error, cursor->at - 4, "a tensor of %" PRIu64 " dimensions; GGUF has at most %d",
                               rank, GGUF_MAX_RANK);
    for (uint64_t i = 0; i < rank; i++)
        if (!take_number(cursor, 8, &dimensions[i]))
            return false;
    if (!take_number(cursor, 4, &type) || !take_number(cursor, 8, offset))
        return false;
    if (!output)
        return true;
    if (type >= sizeof tensor_types / sizeof *tensor_types || !tensor_types[type].name[0])
        return pici_parse_fail(cursor->error, cursor->at - 12, "a tensor of type %" PRIu64 ", which is not known",
                               type);
    const struct tensor_type *const of = &tensor_types[type];
    const uint64_t units = of->dtype == PICI_U8 ? of->bytes : 1; /* elements of a block in a .pici file */
    *output = (struct gguf_tensor){.name_bytes = (size_t)name_bytes,
                                   .source_dtype = of->name,
                                   .dtype = (enum pici_dtype)of->dtype,
                                   .rank = (unsigned)rank,
                                   .count = 1,
                                   .header_offset = begin};
    for (uint64_t i = 0; i < rank; i++) {
        if (i == 0 && dimensions[0] % of->block)
            return pici_parse_fail(cursor->error, begin, "a row of %" PRIu64 " elements is not whole blocks of %s",
                                   dimensions[0], of->name);
        const uint64_t dimension = i == 0 ? dimensions[0] / of->block : dimensions[i];
        if (!parse_mul(&output->shape[rank - 1 - i], dimension, i == 0 ? units : 1, INT64_MAX) ||
            !parse_mul(&output->count, output->count, output->shape[rank - 1 - i], INT64_MAX / of->bytes))
            return pici_parse_fail(cursor->error, begin, "the size of a tensor overflows");
    }
    if (rank == 0 && of->block != 1)
        return pici_parse_fail(cursor->error, begin, "one element is not whole blocks of %s", of->name);
    return true;
}

static bool scan_tensor(struct gguf_scan *scan, struct cursor *cursor)
{
    uint64_t offset;
    if (!take_tensor(cursor, NULL, &offset))
        return false;
    scan->left--;
    return true;
}

static bool scan_string(struct gguf_scan *scan, struct cursor *cursor)
{
    uint64_t bytes;
    if (!take_text(cursor, &bytes))
        return false;
    scan->strings--;
    return true;
}

/* Goes to the next stage, if this one is at its end. */
static void scan_stage(struct gguf_scan *scan)
{
    if (scan->stage == GGUF_KEYS && !scan->keys && !scan->strings) {
        scan->tensors_position = scan->position;
        scan->stage = GGUF_TENSORS;
    }
    if (scan->stage == GGUF_TENSORS && !scan->left) {
        if (scan->tensors) /* the padding after the descriptions */
            scan->position = (scan->position + scan->alignment - 1) / scan->alignment * scan->alignment;
        scan->stage = GGUF_END;
    }
}

bool pici_gguf_header_bytes(struct gguf_scan *scan, uint64_t *need, const uint8_t *head, size_t size,
                            struct parse_error *error)
{
    if (size < scan->asked)
        return pici_parse_fail(error, size, "the file ends inside the header");
    *need = 0;
    while (scan->stage != GGUF_END && !*need) {
        struct cursor cursor = {head, size, scan->position, scan->big_endian, false, error};
        bool complete;
        if (scan->stage == GGUF_PREFIX)
            complete = scan_prefix(scan, &cursor);
        else if (scan->stage == GGUF_TENSORS)
            complete = scan_tensor(scan, &cursor);
        else
            complete = scan->strings ? scan_string(scan, &cursor) : scan_key(scan, &cursor);
        if (!complete && !cursor.short_of)
            return false;
        if (complete)
            scan->position = cursor.at;
        else
            *need = cursor.at;
        scan_stage(scan);
    }
    uint64_t least = PREFIX_LEAST;
    if (scan->stage != GGUF_PREFIX)
        least = scan->position + scan->strings * STRING_LEAST + scan->keys * KEY_LEAST + scan->left * TENSOR_LEAST;
    *need = least > *need ? least : *need;
    if (*need > GGUF_MAX_HEADER)
        return pici_parse_fail(error, scan->position, "a header above the limit of %d bytes", GGUF_MAX_HEADER);
    scan->asked = *need;
    return true;
}

/* ---- parsing */

static int by_name(const void *left, const void *right)
{
    const struct gguf_tensor *first = left, *second = right;
    const int order = pici_parse_order(first->name, first->name_bytes, second->name, second->name_bytes);
    return order ? order
                 : (first->header_offset > second->header_offset) - (first->header_offset < second->header_offset);
}

static int by_data(const void *left, const void *right)
{
    const struct gguf_tensor *first = left, *second = right;
    if (first->begin != second->begin)
        return first->begin < second->begin ? -1 : 1;
    if (first->end != second->end)
        return first->end < second->end ? -1 : 1;
    return first->header_offset < second->header_offset ? -1 : first->header_offset > second->header_offset;
}

static bool fail_at(const struct gguf_tensor *tensor, const char *what, struct parse_error *error)
{
    char name[64];
    return pici_parse_fail(error, tensor->header_offset, "tensor '%s' %s",
                           pici_parse_printable(name, sizeof name, tensor->name, tensor->name_bytes), what);
}

/* Sorts by name. Rejects duplicates, and finds a stem for the fillers' names that no tensor has. */
static bool check_names(struct gguf *output, struct parse_error *error)
{
    const struct gguf_tensor *twice = NULL;
    size_t plus = 0;
    if (output->count)
        qsort(output->tensors, output->count, sizeof *output->tensors, by_name);
    for (size_t i = 0; i < output->count; i++) {
        const struct gguf_tensor *const tensor = &output->tensors[i];
        const size_t run =
            strncmp(tensor->name, stem, STEM_BYTES) == 0 ? strspn(tensor->name + STEM_BYTES, "+") + 1 : 0;
        plus = run > plus ? run : plus;
        if (plus > STEM_MOST_PLUS)
            return fail_at(tensor, "has a name reserved for bytes between tensors", error);
        if (i && tensor[-1].name_bytes == tensor->name_bytes &&
            memcmp(tensor[-1].name, tensor->name, tensor->name_bytes) == 0 &&
            (!twice || tensor->header_offset < twice->header_offset))
            twice = tensor;
    }
    memcpy(output->stem, stem, sizeof stem);
    memset(output->stem + STEM_BYTES, '+', plus);
    output->stem[STEM_BYTES + plus] = 0;
    return twice ? fail_at(twice, "occurs twice", error) : true;
}

static void add_filler(struct gguf *output, uint64_t begin, uint64_t end)
{
    output->tensors[output->count++] = (struct gguf_tensor){.number = output->fillers++,
                                                            .source_dtype = "u8",
                                                            .dtype = PICI_U8,
                                                            .rank = 1,
                                                            .shape = {end - begin},
                                                            .count = end - begin,
                                                            .begin = begin,
                                                            .end = end};
}

/* Sorts by place in the file, and lists the fillers between tensors. The list has room for them. */
static bool lay_out(struct gguf *output, uint64_t file_bytes, struct parse_error *error)
{
    const size_t count = output->count;
    output->end = output->data_offset;
    if (count)
        qsort(output->tensors, count, sizeof *output->tensors, by_data);
    for (size_t i = 0; i < count; i++) {
        const struct gguf_tensor *const tensor = &output->tensors[i];
        if (tensor->begin < output->end)
            return fail_at(tensor, "overlaps another", error);
        if (tensor->begin > output->end)
            add_filler(output, output->end, tensor->begin);
        output->end = tensor->end;
    }
    if (file_bytes != UINT64_MAX && file_bytes < output->end)
        return pici_parse_fail(error, file_bytes, "the file ends %" PRIu64 " bytes before the last tensor does",
                               output->end - file_bytes);
    if (file_bytes != UINT64_MAX && file_bytes > output->end) {
        add_filler(output, output->end, file_bytes);
        output->end = file_bytes;
    }
    if (output->count > count)
        qsort(output->tensors, output->count, sizeof *output->tensors, by_data);
    return true;
}

static bool parse_tensors(struct gguf *output, const struct gguf_scan *scan, const uint8_t *head,
                          struct parse_error *error)
{
    struct cursor cursor = {head, scan->position, scan->tensors_position, scan->big_endian, false, error};
    char *names_end = output->names;
    for (uint64_t i = 0; i < scan->tensors; i++) {
        struct gguf_tensor *const tensor = &output->tensors[i];
        uint64_t offset;
        if (!take_tensor(&cursor, tensor, &offset))
            return false;
        tensor->name = memcpy(names_end, head + tensor->header_offset + 8, tensor->name_bytes);
        names_end += tensor->name_bytes;
        *names_end++ = 0;
        const uint64_t bytes = tensor->count * pici_dtype_width(tensor->dtype);
        if (offset > (uint64_t)INT64_MAX - GGUF_MAX_HEADER || bytes > INT64_MAX - GGUF_MAX_HEADER - offset)
            return fail_at(tensor, "has an offset that overflows", error);
        tensor->begin = scan->position + offset;
        tensor->end = tensor->begin + bytes;
        output->count++;
    }
    return true;
}

bool pici_gguf_parse(struct gguf *output, const struct gguf_scan *scan, const uint8_t *head, uint64_t file_bytes,
                     struct parse_error *error)
{
    *output = (struct gguf){.data_offset = scan->position, .big_endian = scan->big_endian};
    output->tensors = calloc(2 * (size_t)scan->tensors + 1, sizeof *output->tensors);
    output->names = malloc((size_t)(scan->position - scan->tensors_position) + 1);
    const bool good = output->tensors && output->names
                          ? parse_tensors(output, scan, head, error) && check_names(output, error) &&
                                lay_out(output, file_bytes, error)
                          : pici_parse_no_memory(error, scan->tensors_position, "the tensors of the header");
    if (!good)
        pici_gguf_free(output);
    return good;
}

char *pici_gguf_filler(const struct gguf *file, uint64_t number, char buffer[GGUF_NAME_ROOM])
{
    if (number)
        snprintf(buffer, GGUF_NAME_ROOM, "%s.%" PRIu64, file->stem, number);
    else
        snprintf(buffer, GGUF_NAME_ROOM, "%s", file->stem);
    return buffer;
}

void pici_gguf_free(struct gguf *file)
{
    free(file->tensors);
    free(file->names);
    *file = (struct gguf){0};
}
