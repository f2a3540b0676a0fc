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

void pici_json_init(struct json *json, const void *text, size_t size, uint64_t base, struct parse_error *error)
{
    *json = (struct json){.text = text, .size = size, .base = base, .error = error, .expect = WANT_VALUE};
}

static struct json_token token(enum json_type type, size_t start, size_t end)
{
    return (struct json_token){type, start, end - start};
}

static struct json_token fail(struct json *json, size_t offset, const char *what)
{
    json->expect = WANT_NOTHING;
    pici_parse_fail(json->error, json->base + offset, "%s", what);
    return token(JSON_ERROR, offset, offset);
}

/* Fails because the next byte, or the end of the text, is not the wanted one. */
static struct json_token fail_wanted(struct json *json, const char *wanted)
{
    char seen[8];
    json->expect = WANT_NOTHING;
    if (json->position == json->size)
        pici_parse_fail(json->error, json->base + json->position, "the JSON text ends where %s should come", wanted);
    else
        pici_parse_fail(json->error, json->base + json->position, "'%s' where %s should come",
                        pici_parse_printable(seen, sizeof seen, json->text + json->position, 1), wanted);
    return token(JSON_ERROR, json->position, json->position);
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static int hex_digit(uint8_t byte)
{
    if (is_digit(byte))
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* The value of the four hexadecimal digits at next, or -1. */
static int32_t hex4(const uint8_t *next, const uint8_t *end)
{
    int32_t value = 0;
    if (end - next < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(next[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Decodes the escape sequence at next, which begins with a backslash, to *code_point. Returns its length; 0 if it is
 * not valid. */
static size_t escape(const uint8_t *next, const uint8_t *end, uint32_t *code_point)
{
    if (end - next < 2)
        return 0;
    switch (next[1]) {
    case '"':
    case '\\':
    case '/': *code_point = next[1]; return 2;
    case 'b': *code_point = '\b'; return 2;
    case 'f': *code_point = '\f'; return 2;
    case 'n': *code_point = '\n'; return 2;
    case 'r': *code_point = '\r'; return 2;
    case 't': *code_point = '\t'; return 2;
    case 'u': break;
    default: return 0;
    }
    int32_t code = hex4(next + 2, end);
    if (code < 0 || (code >= 0xdc00 && code <= 0xdfff))
        return 0;
    *code_point = (uint32_t)code;
    if (code < 0xd800 || code > 0xdbff)
        return 6;
    int32_t low = end - next >= 8 && next[6] == '\\' && next[7] == 'u' ? hex4(next + 8, end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *code_point = 0x10000 + ((*code_point - 0xd800) << 10 | ((uint32_t)low - 0xdc00));
    return 12;
}

/* Reads the string whose opening quote is at json->position. */
static struct json_token string(struct json *json, enum json_type type)
{
    const uint8_t *end = json->text + json->size;
    size_t start = json->position + 1;
    for (size_t i = start; i < json->size;) {
        uint8_t byte = json->text[i];
        uint32_t unused;
        if (byte == '"') {
            json->position = i + 1;
            return token(type, start, i);
        }
        if (byte < 0x20)
            return fail(json, i, "a control character in a JSON string");
        size_t count = byte == '\\' ? escape(json->text + i, end, &unused) : pici_parse_utf8(json->text + i, end);
        if (count == 0)
            return fail(json, i, byte == '\\' ? "an invalid escape in a JSON string" : "invalid UTF-8");
        i += count;
    }
    return fail(json, start - 1, "a JSON string without an end");
}

/* Skips the digits at json->position. False if there are none. */
static bool digits(struct json *json)
{
    size_t start = json->position;
    while (json->position < json->size && is_digit(json->text[json->position]))
        json->position++;
    return json->position > start;
}

static bool at(const struct json *json, char byte)
{
    return json->position < json->size && json->text[json->position] == (uint8_t)byte;
}

static struct json_token number(struct json *json)
{
    size_t start = json->position;
    json->position += at(json, '-');
    if (at(json, '0'))
        json->position++;
    else if (!digits(json))
        return fail_wanted(json, "a digit");
    if (at(json, '.')) {
        json->position++;
        if (!digits(json))
            return fail_wanted(json, "a digit");
    }
    if (at(json, 'e') || at(json, 'E')) {
        json->position++;
        json->position += at(json, '+') || at(json, '-');
        if (!digits(json))
            return fail_wanted(json, "a digit");
    }
    json->expect = WANT_NEXT;
    return token(JSON_NUMBER, start, json->position);
}

static struct json_token word(struct json *json, const char *text, enum json_type type)
{
    size_t start = json->position;
    for (; *text; text++, json->position++)
        if (!at(json, *text))
            return fail_wanted(json, "a JSON value");
    json->expect = WANT_NEXT;
    return token(type, start, json->position);
}

static struct json_token open(struct json *json, bool array)
{
    if (json->depth == JSON_MAX_DEPTH)
        return fail(json, json->position, "JSON nested too deep");
    uint64_t level = UINT64_C(1) << json->depth++;
    json->in_array = array ? json->in_array | level : json->in_array & ~level;
    json->expect = array ? WANT_VALUE_OR_END : WANT_KEY_OR_END;
    json->position++;
    return token(array ? JSON_ARRAY : JSON_OBJECT, json->position - 1, json->position);
}

static struct json_token close_container(struct json *json, bool array)
{
    json->depth--;
    json->expect = WANT_NEXT;
    json->position++;
    return token(array ? JSON_ARRAY_END : JSON_OBJECT_END, json->position - 1, json->position);
}

static struct json_token value(struct json *json)
{
    switch (json->position < json->size ? json->text[json->position] : 0) {
    case '{': return open(json, false);
    case '[': return open(json, true);
    case 't': return word(json, "true", JSON_TRUE);
    case 'f': return word(json, "false", JSON_FALSE);
    case 'n': return word(json, "null", JSON_NULL);
    case '"': json->expect = WANT_NEXT; return string(json, JSON_STRING);
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
    case '9': return number(json);
    default: return fail_wanted(json, "a JSON value");
    }
}

static void skip_space(struct json *json)
{
    while (at(json, ' ') || at(json, '\t') || at(json, '\n') || at(json, '\r'))
        json->position++;
}

static struct json_token key(struct json *json)
{
    if (!at(json, '"'))
        return fail_wanted(json, "a key");
    struct json_token token = string(json, JSON_KEY);
    if (token.type == JSON_ERROR)
        return token;
    skip_space(json);
    if (!at(json, ':'))
        return fail_wanted(json, "a colon");
    json->position++;
    json->expect = WANT_VALUE;
    return token;
}

struct json_token pici_json_next(struct json *json)
{
    if (json->expect == WANT_NOTHING)
        return token(JSON_ERROR, json->position, json->position);
    skip_space(json);
    bool array = json->depth > 0 && json->in_array >> (json->depth - 1) & 1;
    if (json->expect == WANT_NEXT) {
        if (json->depth == 0)
            return json->position == json->size ? token(JSON_END, json->position, json->position)
                                                : fail_wanted(json, "the end");
        if (at(json, array ? ']' : '}'))
            return close_container(json, array);
        if (!at(json, ','))
            return fail_wanted(json, array ? "a comma or ']'" : "a comma or '}'");
        json->position++;
        skip_space(json);
        json->expect = array ? WANT_VALUE : WANT_KEY;
    }
    switch (json->expect) {
    case WANT_VALUE_OR_END: return at(json, ']') ? close_container(json, true) : value(json);
    case WANT_KEY_OR_END: return at(json, '}') ? close_container(json, false) : key(json);
    case WANT_KEY: return key(json);
    default: return value(json);
    }
}

static size_t put_utf8(char *output, uint32_t code_point)
{
    if (code_point < 0x80) {
        output[0] = (char)code_point;
        return 1;
    }
    size_t count = code_point < 0x800 ? 2 : 3;
    if (code_point >= 0x10000)
        count = 4;
    for (size_t i = count - 1; i > 0; i--, code_point >>= 6)
        output[i] = (char)(0x80 | (code_point & 0x3f));
    output[0] = (char)((0xf0 << (4 - count) & 0xff) | code_point);
    return count;
}

size_t pici_json_string(const struct json *json, struct json_token token, char *output)
{
    const uint8_t *next = json->text + token.start, *end = next + token.size;
    size_t count = 0;
    while (next < end) {
        uint32_t code_point;
        if (*next != '\\') {
            output[count++] = (char)*next++;
        } else {
            next += escape(next, end, &code_point);
            count += put_utf8(output + count, code_point);
        }
    }
    return count;
}

bool pici_json_is(const struct json *json, struct json_token token, const char *word)
{
    char text[16 * 6]; /* each character may be written as \uXXXX */
    return token.size <= sizeof text && pici_json_string(json, token, text) == strlen(word) &&
           memcmp(text, word, strlen(word)) == 0;
}

bool pici_json_u64(const struct json *json, struct json_token token, uint64_t *value)
{
    uint64_t parsed = 0;
    if (token.type != JSON_NUMBER)
        return false;
    for (size_t i = token.start; i < token.start + token.size; i++) {
        uint8_t byte = json->text[i];
        if (!is_digit(byte) || parsed > (UINT64_MAX - (uint64_t)(byte - '0')) / 10)
            return false;
        parsed = parsed * 10 + (uint64_t)(byte - '0');
    }
    *value = parsed;
    return true;
}

bool pici_json_expect(struct json *json, enum json_type type, const char *what, struct json_token *token)
{
    *token = pici_json_next(json);
    return token->type == type ||
           (token->type != JSON_ERROR && pici_parse_fail(json->error, json->base + token->start, "%s", what));
}

bool pici_json_key(struct json *json, struct json_token *key)
{
    *key = pici_json_next(json);
    return key->type == JSON_KEY;
}
