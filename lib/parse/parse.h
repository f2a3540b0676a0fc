/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parsers of other formats share: reporting errors, and showing untrusted bytes. */
#ifndef PICI_LIB_PARSE_PARSE_H
#define PICI_LIB_PARSE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pici/file.h"

/* Where and why bytes were refused. Set whenever a parser returns false, and only then. */
struct parse_error {
    uint64_t offset; /* position of the error in the file */
    bool no_memory;  /* the bytes may be valid: memory was missing */
    char what[176];  /* a phrase without a full stop, printable ASCII: "'shape' has a negative dimension" */
};

/* Write untrusted text to output, for a message or a table: printable ASCII unchanged, other bytes as \xNN. Cuts text
 * that does not fit, and ends it in "...". NUL-terminated; capacity must be at least 8. Returns output. */
char *pici_parse_printable(char *output, size_t capacity, const void *text, size_t size);

/* Fill *err, with a message as of printf. Untrusted text must have passed pici_parse_printable. Returns false. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
bool pici_parse_fail(struct parse_error *err, uint64_t offset, const char *format, ...);

/* Likewise for want of memory for `what`. */
bool pici_parse_no_memory(struct parse_error *err, uint64_t offset, const char *what);

/* Compares names, as for qsort(): as unsigned bytes; a prefix of another name comes first. */
int pici_parse_order(const char *left, size_t left_bytes, const char *right, size_t right_bytes);

/* The shape in a .pici file of `items` items of this shape, each of item_elements elements of width bytes. Items of
 * several elements, such as complex numbers, add a last dimension. False if that does not fit; the result is then
 * [count]. It does not fit with more than PICI_RANK_MAX dimensions, a product of 2^63 bytes or more (as beside a
 * dimension of zero), or items smaller than an element. */
bool pici_parse_shape(uint64_t output[PICI_RANK_MAX], unsigned *out_rank, const uint64_t *shape, unsigned rank,
                      uint64_t items, uint64_t item_elements, uint64_t count, size_t width);

/* *product = a * b. False, and *product is unchanged, if the result is above limit. */
static inline bool parse_mul(uint64_t *product, uint64_t a, uint64_t b, uint64_t limit)
{
    if (b && a > limit / b)
        return false;
    *product = a * b;
    return true;
}

/* The length of the UTF-8 sequence at text, end - text >= 1. 0 if it is invalid: overlong forms, surrogates and values
 * above U+10FFFF are. */
size_t pici_parse_utf8(const uint8_t *text, const uint8_t *end);

/* The same; also decodes the sequence to *code_point, unless the result is 0. */
size_t pici_parse_char(const uint8_t *text, const uint8_t *end, uint32_t *code_point);

/* Whether a code point is invisible or changes how other text looks. These are controls (C0, DEL, C1), separators of
 * lines and paragraphs, format characters (some change the direction of writing), characters without a glyph, and
 * noncharacters. Escape them when you show untrusted text. */
bool pici_parse_hidden(uint32_t code_point);

#endif
