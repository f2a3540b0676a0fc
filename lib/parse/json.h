/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A strict JSON tokenizer (RFC 8259) for text in memory: one token a call, no allocation, no recursion. It checks
 * grammar, UTF-8, escapes (surrogates in pairs only) and numbers. */
#ifndef PICI_LIB_PARSE_JSON_H
#define PICI_LIB_PARSE_JSON_H

#include "parse/parse.h"

enum json_type {
    JSON_ERROR, /* see json.error; every later call returns it too */
    JSON_END,   /* the text was one value and white space; every later call returns it too */
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY, /* a string before a colon; its value comes next */
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
};

enum { JSON_MAX_DEPTH = 64 }; /* objects and arrays inside one another; deeper is an error */

struct json_token {
    enum json_type type;
    size_t start, size; /* in the text; of strings and keys, without the quotes */
};

struct json {
    const uint8_t *text;
    size_t size, position;
    uint64_t in_array; /* bit d: the container at depth d + 1 is an array */
    unsigned depth;    /* containers that are open */
    uint8_t expect;    /* internal: what may come next */
    uint64_t base;     /* added to offsets in errors */
    struct parse_error *error;
};

/* Start at the beginning of text [size bytes], which must outlive the tokens. base: its offset in the file, for
 * errors. */
void pici_json_init(struct json *, const void *text, size_t size, uint64_t base, struct parse_error *error);

/* The next token. A container is a begin token, its keys and values, and an end token. Commas and colons are checked
 * and are no tokens. */
struct json_token pici_json_next(struct json *);

/* Take the next token, which must be of this type. False if it is not: the error is `what`, at the token, unless the
 * text is malformed. */
bool pici_json_expect(struct json *, enum json_type, const char *what, struct json_token *);

/* Take the next key of the open object. False at the object's end, with *key its end token, and if the text is
 * malformed. */
bool pici_json_key(struct json *, struct json_token *key);

/* Resolve the escapes of a key or string: UTF-8 to output, which has space for token.size bytes (no escape grows),
 * without a terminator. Returns its length. */
size_t pici_json_string(const struct json *, struct json_token, char *output);

/* Whether a key or string is this word, of at most 16 characters of ASCII, however it is escaped. */
bool pici_json_is(const struct json *, struct json_token, const char *word);

/* The token's value, if it is a number written as an unsigned integer (digits only) of 64 bits. */
bool pici_json_u64(const struct json *, struct json_token, uint64_t *value);

#endif
