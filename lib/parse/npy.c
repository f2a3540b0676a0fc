/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The text of the header is a Python literal: a dict of three keys. NumPy reads it with Python's own parser. This
 * parser accepts comments, and the part of the grammar that writers produce. These are strings, unsigned integers (with
 * the L of Python 2), True and False, tuples, and lists of tuples for structured types. */
#include "parse/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NPY_MAX_DEPTH = 16,            /* of nested structures */
    NPY_MAX_ITEM_BYTES = INT32_MAX /* as in NumPy */
};

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct cursor {
    const uint8_t *file, *next, *end; /* the header is [file, end); *next is the next byte */
    struct parse_error *error;
};

/* A part of the text. */
struct text {
    const uint8_t *bytes;
    size_t size;
};

/* The type of one item. */
struct item {
    enum pici_dtype dtype;
    bool swap;
    bool plain;
    uint64_t elements;
    uint64_t bytes;
};

struct dims {
    unsigned rank;
    uint64_t dimension[NPY_MAX_RANK];
};

bool pici_npy_header_bytes(uint64_t *need, const uint8_t *first, size_t size, struct parse_error *error)
{
    for (size_t i = 0; i < sizeof magic && i < size; i++)
        if (first[i] != magic[i])
            return pici_parse_fail(error, i, "not a .npy file");
    if (size < NPY_PREFIX_BYTES)
        return pici_parse_fail(error, size, "the file ends inside the header");
    if (first[6] < 1 || first[6] > 3 || first[7] != 0)
        return pici_parse_fail(error, 6, ".npy version %d.%d is unknown", first[6], first[7]);
    uint32_t number = (uint32_t)(first[8] | first[9] << 8);
    if (first[6] > 1)
        number |= (uint32_t)first[10] << 16 | (uint32_t)first[11] << 24;
    if (number > NPY_MAX_HEADER_TEXT)
        return pici_parse_fail(error, 8, "a header of %" PRIu32 " bytes, above the limit of %d", number,
                               NPY_MAX_HEADER_TEXT);
    if (number < 2)
        return pici_parse_fail(error, 8, "a header without text");
    *need = (first[6] > 1 ? 12 : 10) + (uint64_t)number;
    return true;
}

static uint64_t place(const struct cursor *cursor)
{
    return (uint64_t)(cursor->next - cursor->file);
}

/* The end of a comment at text: before the end of its line, or before a byte that Python rejects. */
static const uint8_t *comment_end(const struct cursor *cursor, const uint8_t *text)
{
    while (text < cursor->end && *text != '\n' && *text != '\r' && *text != 0)
        text++;
    return text;
}

static void skip_space(struct cursor *cursor)
{
    for (; cursor->next < cursor->end; cursor->next++) {
        if (*cursor->next == '#')
            cursor->next = comment_end(cursor, cursor->next);
        if (cursor->next == cursor->end)
            break;
        bool line_end = *cursor->next == '\n' ||
                        (*cursor->next == '\r' && cursor->end - cursor->next > 1 && cursor->next[1] == '\n');
        if (*cursor->next != ' ' && *cursor->next != '\t' && !line_end)
            break;
    }
}

/* Whether the next byte, after white space, is expected. Does not take it. */
static bool at(struct cursor *cursor, char expected)
{
    skip_space(cursor);
    return cursor->next < cursor->end && *cursor->next == (uint8_t)expected;
}

static bool fail_wanted(struct cursor *cursor, const char *wanted)
{
    char seen[8];
    skip_space(cursor);
    if (cursor->next == cursor->end)
        return pici_parse_fail(cursor->error, place(cursor), "the header ends where %s should come", wanted);
    return pici_parse_fail(cursor->error, place(cursor), "'%s' where %s should come",
                           pici_parse_printable(seen, sizeof seen, cursor->next, 1), wanted);
}

/* Takes the byte expected, or fails. */
static bool take(struct cursor *cursor, char expected, const char *wanted)
{
    if (!at(cursor, expected))
        return fail_wanted(cursor, wanted);
    cursor->next++;
    return true;
}

/* Goes to the next element of a list that ends with the byte closing: takes the comma before it, if any. *more: there
 * is a next element. */
static bool next(struct cursor *cursor, char closing, const char *wanted, bool *more)
{
    bool comma = at(cursor, ',');
    cursor->next += comma;
    *more = !at(cursor, closing);
    return comma || !*more || fail_wanted(cursor, wanted);
}

/* Takes a string. *text is the text between the quotes, with its escapes; no name that matters here has any. */
static bool take_string(struct cursor *cursor, struct text *text, const char *wanted)
{
    if (at(cursor, 'u')) /* Python 2 wrote some strings with this prefix */
        cursor->next++;
    if (cursor->next == cursor->end || (*cursor->next != '\'' && *cursor->next != '"'))
        return fail_wanted(cursor, wanted);
    uint64_t start = place(cursor);
    uint8_t quote = *cursor->next++;
    text->bytes = cursor->next;
    for (bool escaped = false; cursor->next < cursor->end && (escaped || *cursor->next != quote); cursor->next++) {
        if (*cursor->next < 0x20)
            return pici_parse_fail(cursor->error, place(cursor), "a control character in a string");
        escaped = !escaped && *cursor->next == '\\';
    }
    if (cursor->next == cursor->end)
        return pici_parse_fail(cursor->error, start, "a string without an end");
    text->size = (size_t)(cursor->next++ - text->bytes);
    return true;
}

static bool is(struct text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.bytes, word, text.size) == 0;
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Takes the digits at text. *digits: their number. False if their value *count would be above INT64_MAX. */
static bool take_digits(const uint8_t **text, const uint8_t *end, uint64_t *count, size_t *digits)
{
    const uint8_t *start = *text;
    for (*count = 0; *text < end && is_digit(**text); ++*text) {
        uint64_t digit = (uint64_t)(**text - '0');
        if (*count > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        *count = *count * 10 + digit;
    }
    *digits = (size_t)(*text - start);
    return true;
}

/* Takes a dimension. where: 'shape' or 'descr', for messages. */
static bool take_dim(struct cursor *cursor, uint64_t *count, const char *where)
{
    size_t digits;
    if (at(cursor, '-'))
        return pici_parse_fail(cursor->error, place(cursor), "%s has a negative dimension", where);
    uint64_t start = place(cursor);
    if (!take_digits(&cursor->next, cursor->end, count, &digits))
        return pici_parse_fail(cursor->error, start, "%s has a dimension beyond 63 bits", where);
    if (digits == 0)
        return fail_wanted(cursor, "a dimension");
    if (digits > 1 && cursor->file[start] == '0')
        return pici_parse_fail(cursor->error, start, "%s has a dimension with a leading zero", where);
    if (cursor->next < cursor->end && *cursor->next == 'L' &&
        cursor->file[6] < 3) /* Python 2 did not write version 3 */
        cursor->next++;
    return true;
}

/* Takes a tuple of dimensions. */
static bool take_dims(struct cursor *cursor, struct dims *dims, const char *where)
{
    if (!take(cursor, '(', "a tuple of dimensions"))
        return false;
    bool more = !at(cursor, ')');
    for (dims->rank = 0; more; dims->rank++) {
        if (dims->rank == NPY_MAX_RANK)
            return pici_parse_fail(cursor->error, place(cursor), "%s has more than %d dimensions", where, NPY_MAX_RANK);
        if (!take_dim(cursor, &dims->dimension[dims->rank], where))
            return false;
        if (dims->rank == 0 && !at(cursor, ','))
            return fail_wanted(cursor, "a comma"); /* (2) is a number, not a tuple */
        if (!next(cursor, ')', "a comma or ')'", &more))
            return false;
    }
    return take(cursor, ')', "')'");
}

/* The product of the dimensions and of the bytes of an item. As in NumPy, the other dimensions must fit in the limit
 * even if one is zero. */
static bool product(const struct dims *dims, uint64_t bytes, uint64_t limit, uint64_t *items)
{
    bool empty = false;
    *items = 1;
    for (unsigned i = 0; i < dims->rank; i++) {
        empty |= dims->dimension[i] == 0;
        if (dims->dimension[i] && !parse_mul(items, *items, dims->dimension[i], limit / (bytes ? bytes : 1)))
            return false;
    }
    *items = empty ? 0 : *items;
    return bytes <= limit;
}

/* Whether [text, end) is the [unit] of a time: a number and a name. Its meaning does not matter here. */
static bool is_unit(const uint8_t *text, const uint8_t *end)
{
    static const char *const units[] = {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"};
    uint64_t multiple;
    size_t digits;
    if (*text++ != '[' || !take_digits(&text, end, &multiple, &digits) || multiple > INT32_MAX)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t count = strlen(units[i]);
        if ((size_t)(end - text) == count + 1 && memcmp(text, units[i], count) == 0 && text[count] == ']')
            return true;
    }
    return false;
}

static enum pici_dtype signed_of(uint64_t bytes)
{
    switch (bytes) {
    case 1: return PICI_I8;
    case 2: return PICI_I16;
    case 4: return PICI_I32;
    default: return PICI_I64;
    }
}

/* [<>|=] kind size, and the [unit] of a time: what numpy.dtype.str writes. */
static bool understand_type(struct cursor *cursor, struct text type_text, struct item *item)
{
    char printable[40];
    const uint8_t *text = type_text.bytes, *end = type_text.bytes + type_text.size;
    bool big_endian = false, known = false;
    uint64_t count = 0;
    size_t digits = 0;
    uint64_t where = (uint64_t)(type_text.bytes - cursor->file);
    if (text < end && memchr("<>|=", *text, 4))
        big_endian = *text++ == '>';
    char kind = '\0';
    if (text < end)
        kind = (char)*text++;
    if (!take_digits(&text, end, &count, &digits) || count > NPY_MAX_ITEM_BYTES)
        return pici_parse_fail(cursor->error, where, "'descr' has an item beyond 2 GiB");
    if (kind == 'O' && text == end)
        return pici_parse_fail(cursor->error, where,
                               "an array of Python objects: its data are a pickle, which is not read");
    *item = (struct item){.dtype = PICI_U8, .elements = count, .bytes = count};
    switch (kind) {
    case 'b': known = count == 1; break;
    case 'i':
    case 'u':
        known = count == 1 || count == 2 || count == 4 || count == 8;
        item->elements = 1;
        item->dtype = signed_of(count);
        if (kind == 'u') /* each unsigned dtype follows its signed one */
            item->dtype = (enum pici_dtype)(item->dtype + 1);
        break;
    case 'f':
    case 'c': {
        uint64_t width = kind == 'c' ? count / 2 : count;
        known = count % (kind == 'c' ? 2 : 1) == 0 &&
                ((width == 2 && kind == 'f') || width == 4 || width == 8 || width == 12 || width == 16);
        if (width <= 8) {
            item->elements = kind == 'c' ? 2 : 1;
            item->dtype = width == 2 ? PICI_F16 : PICI_F32;
            if (width == 8)
                item->dtype = PICI_F64;
        }
        break;
    }
    case 'M':
    case 'm':
        known = count == 8;
        item->elements = 1;
        item->dtype = PICI_I64;
        if (text < end && is_unit(text, end))
            text = end;
        break;
    case 'S':
    case 'a':
    case 'V': known = true; break;
    case 'U':
        known = true;
        item->dtype = PICI_U32;
        item->bytes = 4 * count;
        break;
    default: break;
    }
    if (!known || text != end)
        return pici_parse_fail(cursor->error, where, "unknown type '%s' in 'descr'",
                               pici_parse_printable(printable, sizeof printable, type_text.bytes, type_text.size));
    if (item->bytes > NPY_MAX_ITEM_BYTES)
        return pici_parse_fail(cursor->error, where, "'descr' has an item beyond 2 GiB");
    item->swap = big_endian && pici_dtype_width(item->dtype) > 1;
    item->plain = kind == 'b' || kind == 'i' || kind == 'u' || ((kind == 'f' || kind == 'c') && item->dtype != PICI_U8);
    return true;
}

static bool take_type(struct cursor *c, struct item *item, int depth);

/* Takes one field of a structure, (name, type) or (name, type, shape), and adds its bytes. The name may be (title,
 * name). */
static bool take_field(struct cursor *cursor, uint64_t *bytes, int depth)
{
    struct text name;
    struct item item;
    struct dims dims = {0};
    uint64_t items = 1;
    bool more;
    if (!take(cursor, '(', "a field, '(name, type)'"))
        return false;
    if (at(cursor, '(')) {
        cursor->next++;
        if (!take_string(cursor, &name, "a title") || !take(cursor, ',', "a comma") ||
            !take_string(cursor, &name, "a name") || !next(cursor, ')', "')'", &more) || !take(cursor, ')', "')'"))
            return false;
    } else if (!take_string(cursor, &name, "a name")) {
        return false;
    }
    uint64_t start = place(cursor);
    if (!take(cursor, ',', "a comma") || !take_type(cursor, &item, depth) ||
        !next(cursor, ')', "a comma or ')'", &more))
        return false;
    if (more) {
        if (item.bytes == 0) /* NumPy takes ('|S0', 3) for '|S3' */
            return fail_wanted(cursor, "no shape, for the type has no bytes,");
        if (!at(cursor, '(')) {
            dims.rank = 1;
            if (!take_dim(cursor, &dims.dimension[0], "'descr'"))
                return false;
        } else if (!take_dims(cursor, &dims, "'descr'")) {
            return false;
        }
        if (!next(cursor, ')', "')'", &more))
            return false;
    }
    if (!product(&dims, item.bytes, NPY_MAX_ITEM_BYTES - *bytes, &items))
        return pici_parse_fail(cursor->error, start, "'descr' has an item beyond 2 GiB");
    *bytes += items * item.bytes;
    return take(cursor, ')', "')'");
}

/* Takes a type: a string, or a list of fields. */
static bool take_type(struct cursor *cursor, struct item *item, int depth)
{
    struct text text;
    if (!at(cursor, '['))
        return take_string(cursor, &text, "a type, as '<f4' or a list of fields,") &&
               understand_type(cursor, text, item);
    if (depth == NPY_MAX_DEPTH)
        return pici_parse_fail(cursor->error, place(cursor), "'descr' is nested too deep");
    cursor->next++;
    *item = (struct item){.dtype = PICI_U8};
    bool more = !at(cursor, ']');
    while (more)
        if (!take_field(cursor, &item->bytes, depth + 1) || !next(cursor, ']', "a comma or ']'", &more))
            return false;
    item->elements = item->bytes;
    return take(cursor, ']', "']'");
}

static bool take_bool(struct cursor *cursor, bool *value)
{
    *value = at(cursor, 'T');
    const char *word = *value ? "True" : "False";
    if ((size_t)(cursor->end - cursor->next) < strlen(word) || memcmp(cursor->next, word, strlen(word)) != 0)
        return fail_wanted(cursor, "True or False");
    cursor->next += strlen(word);
    return true;
}

/* Takes the dict; only white space may follow it. */
static bool take_header(struct cursor *cursor, struct npy *output, struct item *item, struct dims *dims,
                        uint64_t *shape_place)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char printable[40];
    unsigned seen = 0;
    if (!take(cursor, '{', "'{'"))
        return false;
    bool more = !at(cursor, '}');
    while (more) {
        struct text key;
        unsigned field = 0;
        if (!take_string(cursor, &key, "a key"))
            return false;
        while (field < 3 && !is(key, keys[field]))
            field++;
        if (field == 3 || seen & 1u << field)
            return pici_parse_fail(cursor->error, (uint64_t)(key.bytes - cursor->file), "%s key '%s'",
                                   field == 3 ? "unknown" : "duplicate",
                                   pici_parse_printable(printable, sizeof printable, key.bytes, key.size));
        seen |= 1u << field;
        if (!take(cursor, ':', "a colon"))
            return false;
        skip_space(cursor);
        const uint8_t *start = cursor->next;
        if (field == 0) {
            if (!take_type(cursor, item, 0))
                return false;
            output->type_at = (uint32_t)(start - cursor->file);
            output->type_bytes = (uint32_t)(cursor->next - start);
            size_t quotes = *start == 'u' ? 2 : 1;
            if (*start == '[')
                quotes = 0; /* a list has no quotes to cut */
            size_t after = quotes ? 1 : 0;
            pici_parse_printable(output->descr, sizeof output->descr, start + quotes,
                                 (size_t)(cursor->next - start) - quotes - after);
        } else if (field == 1) {
            if (!take_bool(cursor, &output->fortran_order))
                return false;
        } else {
            *shape_place = place(cursor);
            if (!take_dims(cursor, dims, "'shape'"))
                return false;
        }
        if (!next(cursor, '}', "a comma or '}'", &more))
            return false;
    }
    for (unsigned field = 0; field < 3; field++)
        if (!(seen & 1u << field))
            return pici_parse_fail(cursor->error, place(cursor), "a header without '%s'", keys[field]);
    cursor->next++;
    skip_space(cursor);
    return cursor->next == cursor->end || fail_wanted(cursor, "the end of the header");
}

bool pici_npy_parse(struct npy *output, const uint8_t *head, size_t size, uint64_t file_bytes,
                    struct parse_error *error)
{
    struct item item = {0};
    struct dims dims = {0};
    uint64_t shape_place = 0;
    *output = (struct npy){0};
    if (!pici_npy_header_bytes(&output->data_offset, head, size, error))
        return false;
    if (size < output->data_offset || file_bytes < output->data_offset)
        return pici_parse_fail(error, size < file_bytes ? size : file_bytes, "the file ends inside the header");
    struct cursor cursor = {head, head + (head[6] == 1 ? 10 : 12), head + output->data_offset, error};
    if (head[6] == 3) {
        size_t count;
        for (const uint8_t *text = cursor.next; text < cursor.end; text += count) {
            count = pici_parse_utf8(text, cursor.end);
            if (count == 0)
                return pici_parse_fail(error, (uint64_t)(text - head), "invalid UTF-8");
        }
    }
    if (!take_header(&cursor, output, &item, &dims, &shape_place))
        return false;

    if (!product(&dims, item.bytes, (uint64_t)INT64_MAX - output->data_offset, &output->items))
        return pici_parse_fail(error, shape_place, "'shape' means data beyond 2^63 bytes");
    output->dtype = item.dtype;
    output->swap = item.swap;
    output->plain = item.plain;
    output->rank = dims.rank;
    memcpy(output->shape, dims.dimension, sizeof output->shape);
    output->item_elements = item.elements;
    output->count = output->items * item.elements;
    output->data_bytes = output->items * item.bytes;
    if (file_bytes == UINT64_MAX)
        return true;
    uint64_t there = file_bytes - output->data_offset;
    if (there < output->data_bytes)
        return pici_parse_fail(error, file_bytes, "the file ends %" PRIu64 " bytes before the data do",
                               output->data_bytes - there);
    output->trailing_bytes = there - output->data_bytes;
    return true;
}

/* ---- types as literals */

enum { PREFIX = 10 /* bytes before the text of version 1 */ };

static bool is_ascii(const char *text, size_t size)
{
    bool ascii = true;
    for (size_t i = 0; i < size; i++)
        ascii = ascii && (uint8_t)text[i] < 0x80;
    return ascii;
}

static bool is_utf8(const uint8_t *text, const uint8_t *end)
{
    size_t count = 1;
    for (; text < end && count; text += count)
        count = pici_parse_utf8(text, end);
    return count != 0;
}

bool pici_npy_type(struct npy_type *output, const char *literal, size_t size)
{
    struct parse_error error;
    struct item item = {0};
    uint8_t *head = size <= NPY_MAX_HEADER_TEXT ? malloc(PREFIX + size + 1) : NULL;
    if (!head)
        return false;
    memcpy(head, magic, sizeof magic);
    memcpy(head + 6, (uint8_t[]){1, 0, 0, 0}, 4); /* version 1, which allows the most */
    memcpy(head + PREFIX, literal, size);
    struct cursor cursor = {head, head + PREFIX, head + PREFIX + size, &error};
    const bool good = is_utf8(cursor.next, cursor.end) && size && strchr("[u'\"", *literal) &&
                      take_type(&cursor, &item, 0) && cursor.next == cursor.end;
    free(head);
    *output = (struct npy_type){item.dtype, item.elements, item.swap, item.plain};
    return good;
}

char *pici_npy_literal(size_t *size, const uint8_t *head, const struct npy *npy)
{
    const uint8_t *from = head + npy->type_at;
    char *output = malloc(2 * (size_t)npy->type_bytes + 1);
    *size = 0;
    for (uint32_t i = 0; output && i < npy->type_bytes; i++) {
        const bool latin = head[6] < 3 && from[i] >= 0x80;
        if (latin)
            output[(*size)++] = (char)(0xc0 | from[i] >> 6);
        output[(*size)++] = (char)(latin ? 0x80 | (from[i] & 0x3f) : from[i]);
    }
    return output;
}

/* Writes ", 'fortran_order': ..., 'shape': (...), }" to output, which has space for it. */
static size_t put_rest(char *output, size_t capacity, bool fortran_order, const uint64_t *shape, unsigned rank)
{
    size_t offset =
        (size_t)snprintf(output, capacity, ", 'fortran_order': %s, 'shape': (", fortran_order ? "True" : "False");
    for (unsigned dim = 0; dim < rank; dim++) { /* at most 22 characters each */
        const char *separator = rank == 1 ? "," : "";
        if (dim + 1 < rank)
            separator = ", ";
        offset += (size_t)snprintf(output + offset, capacity - offset, "%" PRIu64 "%s", shape[dim], separator);
    }
    return offset + (size_t)snprintf(output + offset, capacity - offset, "), }");
}

/* Ends a header whose text ends at `offset`: spaces, and the prefix, which is of 12 bytes in versions other than 1. */
static size_t end_header(char *output, size_t offset, uint8_t version)
{
    enum { ALIGN = 64 };
    const size_t fixed = version == 1 ? PREFIX : PREFIX + 2, total = (offset + 1 + ALIGN - 1) / ALIGN * ALIGN;
    const uint32_t text = (uint32_t)(total - fixed);
    memset(output + offset, ' ', total - offset - 1);
    output[total - 1] = '\n';
    memcpy(output, magic, sizeof magic);
    memcpy(output + 6, (char[]){(char)version, 0, (char)text, (char)(text >> 8), (char)(text >> 16), 0}, fixed - 6);
    return total;
}

char *pici_npy_typed_header(size_t *size, const char *literal, size_t literal_len, bool fortran_order,
                            const uint64_t *shape, unsigned rank)
{
    struct npy_type type;
    static const char key[] = "{'descr': ";
    if (!pici_npy_type(&type, literal, literal_len))
        return NULL;
    uint8_t version = literal_len < 60000 ? 1 : 2;
    if (!is_ascii(literal, literal_len))
        version = 3;
    size_t offset = version == 1 ? PREFIX : PREFIX + 2;
    char *output = malloc(NPY_WRITE_ROOM + literal_len);
    if (!output)
        return NULL;
    memcpy(output + offset, key, sizeof key - 1);
    offset += sizeof key - 1;
    memcpy(output + offset, literal, literal_len);
    if (type.swap) /* the literal of such a type is a string that begins with its byte order */
        *(char *)memchr(output + offset, '>', literal_len) = '<';
    offset += literal_len;
    offset += put_rest(output + offset, NPY_WRITE_ROOM - 100, fortran_order, shape, rank);
    *size = end_header(output, offset, version);
    return output;
}

enum npy_meaning pici_npy_meaning_of(const char *source_dtype, size_t size, enum pici_dtype dtype)
{
    static const struct {
        const char *word;
        enum npy_meaning meaning;
        enum pici_dtype dtype;
    } words[] = {{"b1", NPY_BOOL, PICI_U8},
                 {"?", NPY_BOOL, PICI_U8},
                 {"BOOL", NPY_BOOL, PICI_U8},
                 {"bool", NPY_BOOL, PICI_U8},
                 {"c8", NPY_COMPLEX, PICI_F32},
                 {"c16", NPY_COMPLEX, PICI_F64},
                 {"C64", NPY_COMPLEX, PICI_F32},
                 {"C128", NPY_COMPLEX, PICI_F64},
                 {"complex64", NPY_COMPLEX, PICI_F32},
                 {"complex128", NPY_COMPLEX, PICI_F64},
                 {"complex32", NPY_OTHER, PICI_F16},
                 {"F4", NPY_OTHER, PICI_U8},
                 {"F6_E2M3", NPY_OTHER, PICI_U8},
                 {"F6_E3M2", NPY_OTHER, PICI_U8},
                 {"F8_E8M0", NPY_OTHER, PICI_U8},
                 {"F8_E4M3FNUZ", NPY_OTHER, PICI_U8},
                 {"F8_E5M2FNUZ", NPY_OTHER, PICI_U8},
                 {"float8_e8m0fnu", NPY_OTHER, PICI_U8},
                 {"float8_e4m3fnuz", NPY_OTHER, PICI_U8},
                 {"float8_e5m2fnuz", NPY_OTHER, PICI_U8},
                 {"float4_e2m1fn_x2", NPY_OTHER, PICI_U8},
                 {"qint8", NPY_OTHER, PICI_I8},
                 {"quint8", NPY_OTHER, PICI_U8},
                 {"qint32", NPY_OTHER, PICI_I32}};
    if (size && memchr("<>|=", source_dtype[0], 4)) {
        source_dtype++;
        size--;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (dtype == words[i].dtype && size == strlen(words[i].word) && memcmp(source_dtype, words[i].word, size) == 0)
            return words[i].meaning;
    return NPY_NUMBER;
}

size_t pici_npy_write_header(char output[NPY_WRITE_ROOM], enum pici_dtype dtype, enum npy_meaning meaning,
                             bool fortran_order, const uint64_t *shape, unsigned rank)
{
    static const char descr[][4] = {
        [PICI_F32] = "<f4",    [PICI_F64] = "<f8", [PICI_F16] = "<f2", [PICI_BF16] = "|V2", [PICI_F8E4M3] = "|V1",
        [PICI_F8E5M2] = "|V1", [PICI_I8] = "|i1",  [PICI_U8] = "|u1",  [PICI_I16] = "<i2",  [PICI_U16] = "<u2",
        [PICI_I32] = "<i4",    [PICI_U32] = "<u4", [PICI_I64] = "<i8", [PICI_U64] = "<u8"};
    const char *type = descr[dtype];
    if (meaning == NPY_BOOL)
        type = "|b1";
    else if (meaning == NPY_COMPLEX)
        type = dtype == PICI_F32 ? "<c8" : "<c16";
    size_t offset = PREFIX + (size_t)snprintf(output + PREFIX, NPY_WRITE_ROOM - PREFIX, "{'descr': '%s'", type);
    offset += put_rest(output + offset, NPY_WRITE_ROOM - offset, fortran_order, shape, rank);
    return end_header(output, offset, 1);
}
