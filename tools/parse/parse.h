/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parsers of other people's files share: how they report what is wrong, and how they print untrusted bytes. */
#ifndef PICI_TOOLS_PARSE_PARSE_H
#define PICI_TOOLS_PARSE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where and why bytes were refused. Set whenever a parser returns false, and only then. */
struct parse_error {
    uint64_t offset; /* byte of the file where it shows */
    char what[176];  /* a phrase without a full stop, printable ASCII: "'shape' has a negative dimension" */
};

/* Bytes of untrusted text as they may appear in a message or in a table: printable ASCII as it is, the rest as \xNN,
 * cut off with "..." when it does not fit. NUL-terminated; out must have room for 8 bytes or more. Returns out. */
char *parse_printable(char *out, size_t cap, const void *text, size_t len);

/* Fill *err as printf does; control characters must not come in (see parse_printable). Returns false. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
bool parse_fail(struct parse_error *err, uint64_t offset, const char *format, ...);

/* *product = a * b. False, and *product unchanged, if that is above limit. */
static inline bool parse_mul(uint64_t *product, uint64_t a, uint64_t b, uint64_t limit)
{
    if (b && a > limit / b)
        return false;
    *product = a * b;
    return true;
}

/* Bytes of the UTF-8 sequence at p, which has end - p >= 1 bytes; 0 if it is not one (overlong forms, surrogates and
 * values above U+10FFFF included). */
size_t parse_utf8(const uint8_t *p, const uint8_t *end);

/* The same, and the code point of the sequence at *c; *c is not set if the result is 0. */
size_t parse_char(const uint8_t *p, const uint8_t *end, uint32_t *c);

/* Whether a code point can make text look other than it is: controls (C0, DEL, C1), line and paragraph separators, format
 * characters such as those that change the writing direction, characters that show nothing, and noncharacters. Whoever
 * shows untrusted text escapes these. */
bool parse_hidden(uint32_t c);

#endif
