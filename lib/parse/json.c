/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/json.h"

#include <inttypes.h>
#include <string.h>

enum { /* struct json.expect */
       WANT_VALUE,
       WANT_VALUE_OR_END, /* after [ */
       WANT_KEY,
       WANT_KEY_OR_END, /* after { */
       WANT_NEXT,       /* a value is complete: comma, closing bracket or the end of the text */
       WANT_NOTHING     /* failed */
};

void pici_json_init(struct json *j, const void *text, size_t len, uint64_t base, struct parse_error *error)
{
    *j = (struct json){.text = text, .len = len, .base = base, .error = error, .expect = WANT_VALUE};
}

static struct json_token token(enum json_type type, size_t start, size_t end)
{
    return (struct json_token){type, start, end - start};
}

static struct json_token fail(struct json *j, size_t at, const char *what)
{
    j->expect = WANT_NOTHING;
    pici_parse_fail(j->error, j->base + at, "%s", what);
    return token(JSON_ERROR, at, at);
}

/* Fails because something else than wanted comes: the end of the text, or another byte. */
static struct json_token fail_wanted(struct json *j, const char *wanted)
{
    char seen[8];
    j->expect = WANT_NOTHING;
    if (j->pos == j->len)
        pici_parse_fail(j->error, j->base + j->pos, "the JSON text ends where %s should come", wanted);
    else
        pici_parse_fail(j->error, j->base + j->pos, "'%s' where %s should come",
                        pici_parse_printable(seen, sizeof seen, j->text + j->pos, 1), wanted);
    return token(JSON_ERROR, j->pos, j->pos);
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static int hex_digit(uint8_t c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of the four hexadecimal digits at p, or -1. */
static int32_t hex4(const uint8_t *p, const uint8_t *end)
{
    int32_t v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Decodes the escape sequence at p, which begins with a backslash, to *c. Returns its length; 0 if it is not valid. */
static size_t escape(const uint8_t *p, const uint8_t *end, uint32_t *c)
{
    if (end - p < 2)
        return 0;
    switch (p[1]) {
    case '"':
    case '\\':
    case '/': *c = p[1]; return 2;
    case 'b': *c = '\b'; return 2;
    case 'f': *c = '\f'; return 2;
    case 'n': *c = '\n'; return 2;
    case 'r': *c = '\r'; return 2;
    case 't': *c = '\t'; return 2;
    case 'u': break;
    default: return 0;
    }
    int32_t u = hex4(p + 2, end);
    if (u < 0 || (u >= 0xdc00 && u <= 0xdfff))
        return 0;
    *c = (uint32_t)u;
    if (u < 0xd800 || u > 0xdbff)
        return 6;
    int32_t low = end - p >= 8 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *c = 0x10000 + ((*c - 0xd800) << 10 | ((uint32_t)low - 0xdc00));
    return 12;
}

/* Reads the string that begins at pos, with its quote. */
static struct json_token string(struct json *j, enum json_type type)
{
    const uint8_t *end = j->text + j->len;
    size_t start = j->pos + 1;
    for (size_t i = start; i < j->len;) {
        uint8_t c = j->text[i];
        uint32_t unused;
        if (c == '"') {
            j->pos = i + 1;
            return token(type, start, i);
        }
        if (c < 0x20)
            return fail(j, i, "a control character in a JSON string");
        size_t n = c == '\\' ? escape(j->text + i, end, &unused) : pici_parse_utf8(j->text + i, end);
        if (n == 0)
            return fail(j, i, c == '\\' ? "an invalid escape in a JSON string" : "invalid UTF-8");
        i += n;
    }
    return fail(j, start - 1, "a JSON string without an end");
}

/* Skips the digits at pos. False if there are none. */
static bool digits(struct json *j)
{
    size_t start = j->pos;
    while (j->pos < j->len && is_digit(j->text[j->pos]))
        j->pos++;
    return j->pos > start;
}

static bool at(const struct json *j, char c)
{
    return j->pos < j->len && j->text[j->pos] == (uint8_t)c;
}

static struct json_token number(struct json *j)
{
    size_t start = j->pos;
    j->pos += at(j, '-');
    if (at(j, '0'))
        j->pos++;
    else if (!digits(j))
        return fail_wanted(j, "a digit");
    if (at(j, '.')) {
        j->pos++;
        if (!digits(j))
            return fail_wanted(j, "a digit");
    }
    if (at(j, 'e') || at(j, 'E')) {
        j->pos++;
        j->pos += at(j, '+') || at(j, '-');
        if (!digits(j))
            return fail_wanted(j, "a digit");
    }
    j->expect = WANT_NEXT;
    return token(JSON_NUMBER, start, j->pos);
}

static struct json_token word(struct json *j, const char *text, enum json_type type)
{
    size_t start = j->pos;
    for (; *text; text++, j->pos++)
        if (!at(j, *text))
            return fail_wanted(j, "a JSON value");
    j->expect = WANT_NEXT;
    return token(type, start, j->pos);
}

static struct json_token open(struct json *j, bool array)
{
    if (j->depth == JSON_MAX_DEPTH)
        return fail(j, j->pos, "JSON nested too deep");
    uint64_t bit = UINT64_C(1) << j->depth++;
    j->in_array = array ? j->in_array | bit : j->in_array & ~bit;
    j->expect = array ? WANT_VALUE_OR_END : WANT_KEY_OR_END;
    j->pos++;
    return token(array ? JSON_ARRAY : JSON_OBJECT, j->pos - 1, j->pos);
}

static struct json_token close_container(struct json *j, bool array)
{
    j->depth--;
    j->expect = WANT_NEXT;
    j->pos++;
    return token(array ? JSON_ARRAY_END : JSON_OBJECT_END, j->pos - 1, j->pos);
}

static struct json_token value(struct json *j)
{
    switch (j->pos < j->len ? j->text[j->pos] : 0) {
    case '{': return open(j, false);
    case '[': return open(j, true);
    case 't': return word(j, "true", JSON_TRUE);
    case 'f': return word(j, "false", JSON_FALSE);
    case 'n': return word(j, "null", JSON_NULL);
    case '"': j->expect = WANT_NEXT; return string(j, JSON_STRING);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return number(j);
    default: return fail_wanted(j, "a JSON value");
    }
}

static void skip_space(struct json *j)
{
    while (at(j, ' ') || at(j, '\t') || at(j, '\n') || at(j, '\r'))
        j->pos++;
}

static struct json_token key(struct json *j)
{
    if (!at(j, '"'))
        return fail_wanted(j, "a key");
    struct json_token k = string(j, JSON_KEY);
    if (k.type == JSON_ERROR)
        return k;
    skip_space(j);
    if (!at(j, ':'))
        return fail_wanted(j, "a colon");
    j->pos++;
    j->expect = WANT_VALUE;
    return k;
}

struct json_token pici_json_next(struct json *j)
{
    if (j->expect == WANT_NOTHING)
        return token(JSON_ERROR, j->pos, j->pos);
    skip_space(j);
    bool array = j->depth > 0 && j->in_array >> (j->depth - 1) & 1;
    if (j->expect == WANT_NEXT) {
        if (j->depth == 0)
            return j->pos == j->len ? token(JSON_END, j->pos, j->pos) : fail_wanted(j, "the end");
        if (at(j, array ? ']' : '}'))
            return close_container(j, array);
        if (!at(j, ','))
            return fail_wanted(j, array ? "a comma or ']'" : "a comma or '}'");
        j->pos++;
        skip_space(j);
        j->expect = array ? WANT_VALUE : WANT_KEY;
    }
    switch (j->expect) {
    case WANT_VALUE_OR_END: return at(j, ']') ? close_container(j, true) : value(j);
    case WANT_KEY_OR_END: return at(j, '}') ? close_container(j, false) : key(j);
    case WANT_KEY: return key(j);
    default: return value(j);
    }
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0 << (4 - n) & 0xff) | c);
    return n;
}

size_t pici_json_string(const struct json *j, struct json_token t, char *out)
{
    const uint8_t *p = j->text + t.start, *end = p + t.len;
    size_t n = 0;
    while (p < end) {
        uint32_t c;
        if (*p != '\\') {
            out[n++] = (char)*p++;
        } else {
            p += escape(p, end, &c);
            n += put_utf8(out + n, c);
        }
    }
    return n;
}

bool pici_json_is(const struct json *j, struct json_token t, const char *word)
{
    char text[16 * 6]; /* each character may be written as \uXXXX */
    return t.len <= sizeof text && pici_json_string(j, t, text) == strlen(word) &&
           memcmp(text, word, strlen(word)) == 0;
}

bool pici_json_u64(const struct json *j, struct json_token t, uint64_t *value)
{
    uint64_t v = 0;
    if (t.type != JSON_NUMBER)
        return false;
    for (size_t i = t.start; i < t.start + t.len; i++) {
        uint8_t c = j->text[i];
        if (!is_digit(c) || v > (UINT64_MAX - (uint64_t)(c - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(c - '0');
    }
    *value = v;
    return true;
}

bool pici_json_expect(struct json *j, enum json_type type, const char *what, struct json_token *t)
{
    *t = pici_json_next(j);
    return t->type == type || (t->type != JSON_ERROR && pici_parse_fail(j->error, j->base + t->start, "%s", what));
}

bool pici_json_key(struct json *j, struct json_token *key)
{
    *key = pici_json_next(j);
    return key->type == JSON_KEY;
}
