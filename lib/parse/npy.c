/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The text of the header is a Python literal: a dict of three keys. NumPy reads it with Python's own parser. This
 * parser accepts comments, and the part of the grammar that writers produce: strings, unsigned integers (with the L of
 * Python 2), True and False, tuples, and lists of tuples for structured types. */
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
    const uint8_t *file, *p, *end; /* the header is [file, end); p is the next byte */
    struct parse_error *err;
};

/* A part of the text. */
struct text {
    const uint8_t *p;
    size_t len;
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
    uint64_t n[NPY_MAX_RANK];
};

bool pici_npy_header_bytes(uint64_t *need, const uint8_t *first, size_t len, struct parse_error *err)
{
    for (size_t i = 0; i < sizeof magic && i < len; i++)
        if (first[i] != magic[i])
            return pici_parse_fail(err, i, "not a .npy file");
    if (len < NPY_PREFIX_BYTES)
        return pici_parse_fail(err, len, "the file ends inside the header");
    if (first[6] < 1 || first[6] > 3 || first[7] != 0)
        return pici_parse_fail(err, 6, ".npy version %d.%d is unknown", first[6], first[7]);
    uint32_t n = (uint32_t)(first[8] | first[9] << 8);
    if (first[6] > 1)
        n |= (uint32_t)first[10] << 16 | (uint32_t)first[11] << 24;
    if (n > NPY_MAX_HEADER_TEXT)
        return pici_parse_fail(err, 8, "a header of %" PRIu32 " bytes, above the limit of %d", n, NPY_MAX_HEADER_TEXT);
    if (n < 2)
        return pici_parse_fail(err, 8, "a header without text");
    *need = (first[6] > 1 ? 12 : 10) + (uint64_t)n;
    return true;
}

static uint64_t place(const struct cursor *c)
{
    return (uint64_t)(c->p - c->file);
}

/* Where a comment at p ends: before the end of its line, or before a byte that Python does not take. */
static const uint8_t *comment_end(const struct cursor *c, const uint8_t *p)
{
    while (p < c->end && *p != '\n' && *p != '\r' && *p != 0)
        p++;
    return p;
}

static void skip_space(struct cursor *c)
{
    for (; c->p < c->end; c->p++) {
        if (*c->p == '#')
            c->p = comment_end(c, c->p);
        if (c->p == c->end)
            break;
        bool line_end = *c->p == '\n' || (*c->p == '\r' && c->end - c->p > 1 && c->p[1] == '\n');
        if (*c->p != ' ' && *c->p != '\t' && !line_end)
            break;
    }
}

/* Whether the next byte, after white space, is ch. Does not take it. */
static bool at(struct cursor *c, char ch)
{
    skip_space(c);
    return c->p < c->end && *c->p == (uint8_t)ch;
}

static bool fail_wanted(struct cursor *c, const char *wanted)
{
    char seen[8];
    skip_space(c);
    if (c->p == c->end)
        return pici_parse_fail(c->err, place(c), "the header ends where %s should come", wanted);
    return pici_parse_fail(c->err, place(c), "'%s' where %s should come",
                           pici_parse_printable(seen, sizeof seen, c->p, 1), wanted);
}

/* Takes the byte ch, or fails. */
static bool take(struct cursor *c, char ch, const char *wanted)
{
    if (!at(c, ch))
        return fail_wanted(c, wanted);
    c->p++;
    return true;
}

/* Goes to the next element of a list that ends with the byte closing: takes the comma before it, if any. *more: there
 * is a next element. */
static bool next(struct cursor *c, char closing, const char *wanted, bool *more)
{
    bool comma = at(c, ',');
    c->p += comma;
    *more = !at(c, closing);
    return comma || !*more || fail_wanted(c, wanted);
}

/* Takes a string. *s is the text between the quotes, with its escapes; no name that matters here has any. */
static bool take_string(struct cursor *c, struct text *s, const char *wanted)
{
    if (at(c, 'u')) /* Python 2 wrote some strings with this prefix */
        c->p++;
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return fail_wanted(c, wanted);
    uint64_t start = place(c);
    uint8_t quote = *c->p++;
    s->p = c->p;
    for (bool escaped = false; c->p < c->end && (escaped || *c->p != quote); c->p++) {
        if (*c->p < 0x20)
            return pici_parse_fail(c->err, place(c), "a control character in a string");
        escaped = !escaped && *c->p == '\\';
    }
    if (c->p == c->end)
        return pici_parse_fail(c->err, start, "a string without an end");
    s->len = (size_t)(c->p++ - s->p);
    return true;
}

static bool is(struct text s, const char *word)
{
    return s.len == strlen(word) && memcmp(s.p, word, s.len) == 0;
}

static bool is_digit(uint8_t ch)
{
    return ch >= '0' && ch <= '9';
}

/* Takes the digits at p. *digits: how many there are. False if their value *n would be above INT64_MAX. */
static bool take_digits(const uint8_t **p, const uint8_t *end, uint64_t *n, size_t *digits)
{
    const uint8_t *start = *p;
    for (*n = 0; *p < end && is_digit(**p); ++*p) {
        uint64_t d = (uint64_t)(**p - '0');
        if (*n > ((uint64_t)INT64_MAX - d) / 10)
            return false;
        *n = *n * 10 + d;
    }
    *digits = (size_t)(*p - start);
    return true;
}

/* Takes a dimension. where: 'shape' or 'descr', for messages. */
static bool take_dim(struct cursor *c, uint64_t *n, const char *where)
{
    size_t digits;
    if (at(c, '-'))
        return pici_parse_fail(c->err, place(c), "%s has a negative dimension", where);
    uint64_t start = place(c);
    if (!take_digits(&c->p, c->end, n, &digits))
        return pici_parse_fail(c->err, start, "%s has a dimension beyond 63 bits", where);
    if (digits == 0)
        return fail_wanted(c, "a dimension");
    if (digits > 1 && c->file[start] == '0')
        return pici_parse_fail(c->err, start, "%s has a dimension with a leading zero", where);
    if (c->p < c->end && *c->p == 'L' && c->file[6] < 3) /* Python 2 did not write version 3 */
        c->p++;
    return true;
}

/* Takes a tuple of dimensions. */
static bool take_dims(struct cursor *c, struct dims *d, const char *where)
{
    if (!take(c, '(', "a tuple of dimensions"))
        return false;
    bool more = !at(c, ')');
    for (d->rank = 0; more; d->rank++) {
        if (d->rank == NPY_MAX_RANK)
            return pici_parse_fail(c->err, place(c), "%s has more than %d dimensions", where, NPY_MAX_RANK);
        if (!take_dim(c, &d->n[d->rank], where))
            return false;
        if (d->rank == 0 && !at(c, ','))
            return fail_wanted(c, "a comma"); /* (2) is a number, not a tuple */
        if (!next(c, ')', "a comma or ')'", &more))
            return false;
    }
    return take(c, ')', "')'");
}

/* The product of the dimensions and of the bytes of an item. As in NumPy, the others must fit in limit even beside a
 * zero. */
static bool product(const struct dims *d, uint64_t bytes, uint64_t limit, uint64_t *items)
{
    bool empty = false;
    *items = 1;
    for (unsigned i = 0; i < d->rank; i++) {
        empty |= d->n[i] == 0;
        if (d->n[i] && !parse_mul(items, *items, d->n[i], limit / (bytes ? bytes : 1)))
            return false;
    }
    *items = empty ? 0 : *items;
    return bytes <= limit;
}

/* Whether [p, end) is the [unit] of a time: a number and a name. Its meaning does not matter here. */
static bool is_unit(const uint8_t *p, const uint8_t *end)
{
    static const char *const units[] = {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"};
    uint64_t multiple;
    size_t digits;
    if (*p++ != '[' || !take_digits(&p, end, &multiple, &digits) || multiple > INT32_MAX)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]);
        if ((size_t)(end - p) == n + 1 && memcmp(p, units[i], n) == 0 && p[n] == ']')
            return true;
    }
    return false;
}

/* [<>|=] kind size, and the [unit] of a time: what numpy.dtype.str writes. */
static bool understand_type(struct cursor *c, struct text s, struct item *item)
{
    char printable[40];
    const uint8_t *p = s.p, *end = s.p + s.len;
    bool big = false, known = false;
    uint64_t n = 0;
    size_t digits = 0;
    uint64_t where = (uint64_t)(s.p - c->file);
    if (p < end && memchr("<>|=", *p, 4))
        big = *p++ == '>';
    char kind = '\0';
    if (p < end)
        kind = (char)*p++;
    if (!take_digits(&p, end, &n, &digits) || n > NPY_MAX_ITEM_BYTES)
        return pici_parse_fail(c->err, where, "'descr' has an item beyond 2 GiB");
    if (kind == 'O' && p == end)
        return pici_parse_fail(c->err, where, "an array of Python objects: its data are a pickle, which is not read");
    *item = (struct item){.dtype = PICI_U8, .elements = n, .bytes = n};
    switch (kind) {
    case 'b': known = n == 1; break;
    case 'i':
    case 'u':
        known = n == 1 || n == 2 || n == 4 || n == 8;
        item->elements = 1;
        item->dtype = n == 1 ? PICI_I8 : n == 2 ? PICI_I16 : n == 4 ? PICI_I32 : PICI_I64;
        if (kind == 'u') /* each unsigned dtype follows its signed one */
            item->dtype = (enum pici_dtype)(item->dtype + 1);
        break;
    case 'f':
    case 'c': {
        uint64_t width = kind == 'c' ? n / 2 : n;
        known = n % (kind == 'c' ? 2 : 1) == 0 &&
                ((width == 2 && kind == 'f') || width == 4 || width == 8 || width == 12 || width == 16);
        if (width <= 8) {
            item->elements = kind == 'c' ? 2 : 1;
            item->dtype = width == 2 ? PICI_F16 : width == 4 ? PICI_F32 : PICI_F64;
        }
        break;
    }
    case 'M':
    case 'm':
        known = n == 8;
        item->elements = 1;
        item->dtype = PICI_I64;
        if (p < end && is_unit(p, end))
            p = end;
        break;
    case 'S':
    case 'a':
    case 'V': known = true; break;
    case 'U':
        known = true;
        item->dtype = PICI_U32;
        item->bytes = 4 * n;
        break;
    default: break;
    }
    if (!known || p != end)
        return pici_parse_fail(c->err, where, "unknown type '%s' in 'descr'",
                               pici_parse_printable(printable, sizeof printable, s.p, s.len));
    if (item->bytes > NPY_MAX_ITEM_BYTES)
        return pici_parse_fail(c->err, where, "'descr' has an item beyond 2 GiB");
    item->swap = big && pici_dtype_width(item->dtype) > 1;
    item->plain = kind == 'b' || kind == 'i' || kind == 'u' || ((kind == 'f' || kind == 'c') && item->dtype != PICI_U8);
    return true;
}

static bool take_type(struct cursor *c, struct item *item, int depth);

/* Takes one field of a structure, (name, type) or (name, type, shape), and adds its bytes. The name may be (title,
 * name). */
static bool take_field(struct cursor *c, uint64_t *bytes, int depth)
{
    struct text name;
    struct item item;
    struct dims d = {0};
    uint64_t items = 1;
    bool more;
    if (!take(c, '(', "a field, '(name, type)'"))
        return false;
    if (at(c, '(')) {
        c->p++;
        if (!take_string(c, &name, "a title") || !take(c, ',', "a comma") || !take_string(c, &name, "a name") ||
            !next(c, ')', "')'", &more) || !take(c, ')', "')'"))
            return false;
    } else if (!take_string(c, &name, "a name")) {
        return false;
    }
    uint64_t start = place(c);
    if (!take(c, ',', "a comma") || !take_type(c, &item, depth) || !next(c, ')', "a comma or ')'", &more))
        return false;
    if (more) {
        if (item.bytes == 0) /* NumPy takes ('|S0', 3) for '|S3' */
            return fail_wanted(c, "no shape, for the type has no bytes,");
        if (!at(c, '(')) {
            d.rank = 1;
            if (!take_dim(c, &d.n[0], "'descr'"))
                return false;
        } else if (!take_dims(c, &d, "'descr'")) {
            return false;
        }
        if (!next(c, ')', "')'", &more))
            return false;
    }
    if (!product(&d, item.bytes, NPY_MAX_ITEM_BYTES - *bytes, &items))
        return pici_parse_fail(c->err, start, "'descr' has an item beyond 2 GiB");
    *bytes += items * item.bytes;
    return take(c, ')', "')'");
}

/* Takes a type: a string, or a list of fields. */
static bool take_type(struct cursor *c, struct item *item, int depth)
{
    struct text s;
    if (!at(c, '['))
        return take_string(c, &s, "a type, as '<f4' or a list of fields,") && understand_type(c, s, item);
    if (depth == NPY_MAX_DEPTH)
        return pici_parse_fail(c->err, place(c), "'descr' is nested too deep");
    c->p++;
    *item = (struct item){.dtype = PICI_U8};
    bool more = !at(c, ']');
    while (more)
        if (!take_field(c, &item->bytes, depth + 1) || !next(c, ']', "a comma or ']'", &more))
            return false;
    item->elements = item->bytes;
    return take(c, ']', "']'");
}

static bool take_bool(struct cursor *c, bool *value)
{
    *value = at(c, 'T');
    const char *word = *value ? "True" : "False";
    if ((size_t)(c->end - c->p) < strlen(word) || memcmp(c->p, word, strlen(word)) != 0)
        return fail_wanted(c, "True or False");
    c->p += strlen(word);
    return true;
}

/* Takes the dict; only white space may follow it. */
static bool take_header(struct cursor *c, struct npy *out, struct item *item, struct dims *dims, uint64_t *shape_place)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char printable[40];
    unsigned seen = 0;
    if (!take(c, '{', "'{'"))
        return false;
    bool more = !at(c, '}');
    while (more) {
        struct text key;
        unsigned k = 0;
        if (!take_string(c, &key, "a key"))
            return false;
        while (k < 3 && !is(key, keys[k]))
            k++;
        if (k == 3 || seen & 1u << k)
            return pici_parse_fail(c->err, (uint64_t)(key.p - c->file), "%s key '%s'", k == 3 ? "unknown" : "duplicate",
                                   pici_parse_printable(printable, sizeof printable, key.p, key.len));
        seen |= 1u << k;
        if (!take(c, ':', "a colon"))
            return false;
        skip_space(c);
        const uint8_t *start = c->p;
        if (k == 0) {
            if (!take_type(c, item, 0))
                return false;
            out->type_at = (uint32_t)(start - c->file);
            out->type_bytes = (uint32_t)(c->p - start);
            size_t quotes = *start == '[' ? 0 : *start == 'u' ? 2 : 1; /* before the text; one less after it */
            size_t after = quotes ? 1 : 0;
            pici_parse_printable(out->descr, sizeof out->descr, start + quotes,
                                 (size_t)(c->p - start) - quotes - after);
        } else if (k == 1) {
            if (!take_bool(c, &out->fortran_order))
                return false;
        } else {
            *shape_place = place(c);
            if (!take_dims(c, dims, "'shape'"))
                return false;
        }
        if (!next(c, '}', "a comma or '}'", &more))
            return false;
    }
    for (unsigned k = 0; k < 3; k++)
        if (!(seen & 1u << k))
            return pici_parse_fail(c->err, place(c), "a header without '%s'", keys[k]);
    c->p++;
    skip_space(c);
    return c->p == c->end || fail_wanted(c, "the end of the header");
}

bool pici_npy_parse(struct npy *out, const uint8_t *head, size_t len, uint64_t file_bytes, struct parse_error *err)
{
    struct item item = {0};
    struct dims dims = {0};
    uint64_t shape_place = 0;
    *out = (struct npy){0};
    if (!pici_npy_header_bytes(&out->data_offset, head, len, err))
        return false;
    if (len < out->data_offset || file_bytes < out->data_offset)
        return pici_parse_fail(err, len < file_bytes ? len : file_bytes, "the file ends inside the header");
    struct cursor c = {head, head + (head[6] == 1 ? 10 : 12), head + out->data_offset, err};
    if (head[6] == 3) {
        size_t n;
        for (const uint8_t *p = c.p; p < c.end; p += n) {
            n = pici_parse_utf8(p, c.end);
            if (n == 0)
                return pici_parse_fail(err, (uint64_t)(p - head), "invalid UTF-8");
        }
    }
    if (!take_header(&c, out, &item, &dims, &shape_place))
        return false;

    if (!product(&dims, item.bytes, (uint64_t)INT64_MAX - out->data_offset, &out->items))
        return pici_parse_fail(err, shape_place, "'shape' means data beyond 2^63 bytes");
    out->dtype = item.dtype;
    out->swap = item.swap;
    out->plain = item.plain;
    out->rank = dims.rank;
    memcpy(out->shape, dims.n, sizeof out->shape);
    out->item_elements = item.elements;
    out->count = out->items * item.elements;
    out->data_bytes = out->items * item.bytes;
    if (file_bytes == UINT64_MAX)
        return true;
    uint64_t there = file_bytes - out->data_offset;
    if (there < out->data_bytes)
        return pici_parse_fail(err, file_bytes, "the file ends %" PRIu64 " bytes before the data do",
                               out->data_bytes - there);
    out->trailing_bytes = there - out->data_bytes;
    return true;
}

/* ---- types as literals */

enum { PREFIX = 10 /* bytes before the text of version 1 */ };

static bool is_ascii(const char *p, size_t len)
{
    bool ascii = true;
    for (size_t i = 0; i < len; i++)
        ascii = ascii && (uint8_t)p[i] < 0x80;
    return ascii;
}

static bool is_utf8(const uint8_t *p, const uint8_t *end)
{
    size_t n = 1;
    for (; p < end && n; p += n)
        n = pici_parse_utf8(p, end);
    return n != 0;
}

bool pici_npy_type(struct npy_type *out, const char *literal, size_t len)
{
    struct parse_error err;
    struct item item = {0};
    uint8_t *head = len <= NPY_MAX_HEADER_TEXT ? malloc(PREFIX + len + 1) : NULL;
    if (!head)
        return false;
    memcpy(head, magic, sizeof magic);
    memcpy(head + 6, (uint8_t[]){1, 0, 0, 0}, 4); /* of version 1, which allows most */
    memcpy(head + PREFIX, literal, len);
    struct cursor c = {head, head + PREFIX, head + PREFIX + len, &err};
    const bool ok = is_utf8(c.p, c.end) && len && strchr("[u'\"", *literal) && take_type(&c, &item, 0) && c.p == c.end;
    free(head);
    *out = (struct npy_type){item.dtype, item.elements, item.swap, item.plain};
    return ok;
}

char *pici_npy_literal(size_t *len, const uint8_t *head, const struct npy *n)
{
    const uint8_t *from = head + n->type_at;
    char *to = malloc(2 * (size_t)n->type_bytes + 1);
    *len = 0;
    for (uint32_t i = 0; to && i < n->type_bytes; i++) {
        const bool latin = head[6] < 3 && from[i] >= 0x80;
        if (latin)
            to[(*len)++] = (char)(0xc0 | from[i] >> 6);
        to[(*len)++] = (char)(latin ? 0x80 | (from[i] & 0x3f) : from[i]);
    }
    return to;
}

/* Writes ", 'fortran_order': ..., 'shape': (...), }" to out, which has room for it. */
static size_t put_rest(char *out, size_t room, bool fortran_order, const uint64_t *shape, unsigned rank)
{
    size_t at = (size_t)snprintf(out, room, ", 'fortran_order': %s, 'shape': (", fortran_order ? "True" : "False");
    for (unsigned d = 0; d < rank; d++) /* at most 22 characters each */
        at += (size_t)snprintf(out + at, room - at, "%" PRIu64 "%s", shape[d],
                               d + 1 < rank ? ", "
                               : rank == 1  ? ","
                                            : "");
    return at + (size_t)snprintf(out + at, room - at, "), }");
}

/* Ends a header whose text ends at `at`: spaces, and the prefix, which is of 12 bytes in versions other than 1. */
static size_t end_header(char *out, size_t at, uint8_t version)
{
    enum { ALIGN = 64 };
    const size_t fixed = version == 1 ? PREFIX : PREFIX + 2, all = (at + 1 + ALIGN - 1) / ALIGN * ALIGN;
    const uint32_t text = (uint32_t)(all - fixed);
    memset(out + at, ' ', all - at - 1);
    out[all - 1] = '\n';
    memcpy(out, magic, sizeof magic);
    memcpy(out + 6, (char[]){(char)version, 0, (char)text, (char)(text >> 8), (char)(text >> 16), 0}, fixed - 6);
    return all;
}

char *pici_npy_typed_header(size_t *len, const char *literal, size_t literal_len, bool fortran_order,
                            const uint64_t *shape, unsigned rank)
{
    struct npy_type type;
    static const char key[] = "{'descr': ";
    if (!pici_npy_type(&type, literal, literal_len))
        return NULL;
    const uint8_t version = !is_ascii(literal, literal_len) ? 3 : literal_len < 60000 ? 1 : 2;
    size_t at = version == 1 ? PREFIX : PREFIX + 2;
    char *out = malloc(NPY_WRITE_ROOM + literal_len);
    if (!out)
        return NULL;
    memcpy(out + at, key, sizeof key - 1);
    at += sizeof key - 1;
    memcpy(out + at, literal, literal_len);
    if (type.swap) /* such a type is a string that begins with its byte order */
        *(char *)memchr(out + at, '>', literal_len) = '<';
    at += literal_len;
    at += put_rest(out + at, NPY_WRITE_ROOM - 100, fortran_order, shape, rank);
    *len = end_header(out, at, version);
    return out;
}

enum npy_meaning pici_npy_meaning_of(const char *source_dtype, size_t len, enum pici_dtype dtype)
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
    if (len && memchr("<>|=", source_dtype[0], 4)) {
        source_dtype++;
        len--;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (dtype == words[i].dtype && len == strlen(words[i].word) && memcmp(source_dtype, words[i].word, len) == 0)
            return words[i].meaning;
    return NPY_NUMBER;
}

size_t pici_npy_write_header(char out[NPY_WRITE_ROOM], enum pici_dtype dtype, enum npy_meaning meaning,
                             bool fortran_order, const uint64_t *shape, unsigned rank)
{
    static const char descr[][4] = {
        [PICI_F32] = "<f4",    [PICI_F64] = "<f8", [PICI_F16] = "<f2", [PICI_BF16] = "|V2", [PICI_F8E4M3] = "|V1",
        [PICI_F8E5M2] = "|V1", [PICI_I8] = "|i1",  [PICI_U8] = "|u1",  [PICI_I16] = "<i2",  [PICI_U16] = "<u2",
        [PICI_I32] = "<i4",    [PICI_U32] = "<u4", [PICI_I64] = "<i8", [PICI_U64] = "<u8"};
    const char *type = meaning == NPY_BOOL      ? "|b1"
                       : meaning != NPY_COMPLEX ? descr[dtype]
                       : dtype == PICI_F32      ? "<c8"
                                                : "<c16";
    size_t at = PREFIX + (size_t)snprintf(out + PREFIX, NPY_WRITE_ROOM - PREFIX, "{'descr': '%s'", type);
    at += put_rest(out + at, NPY_WRITE_ROOM - at, fortran_order, shape, rank);
    return end_header(out, at, 1);
}
