/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char *pici_parse_printable(char *output, size_t capacity, const void *text, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *next = text;
    size_t count = 0;
    size_t space = 0; /* the last position in output where "..." still fits */
    for (size_t i = 0; i < size; i++) {
        bool plain = next[i] >= 0x20 && next[i] < 0x7f;
        size_t want = plain ? 1 : 4;
        if (count + 4 <= capacity)
            space = count;
        if (count + want >= capacity) {
            memcpy(output + space, "...", 4);
            return output;
        }
        if (plain) {
            output[count] = (char)next[i];
        } else {
            memcpy(output + count, "\\x", 2);
            output[count + 2] = hex[next[i] >> 4];
            output[count + 3] = hex[next[i] & 15];
        }
        count += want;
    }
    output[count] = '\0';
    return output;
}

bool pici_parse_fail(struct parse_error *error, uint64_t offset, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->offset = offset;
    error->no_memory = false;
    vsnprintf(error->what, sizeof error->what, format, args);
    va_end(args);
    return false;
}

bool pici_parse_no_memory(struct parse_error *error, uint64_t offset, const char *what)
{
    pici_parse_fail(error, offset, "out of memory for %s", what);
    error->no_memory = true;
    return false;
}

size_t pici_parse_utf8(const uint8_t *text, const uint8_t *end)
{
    /* The range of the second byte depends on the first; it excludes overlong forms, surrogates and too large
     * values. */
    uint8_t least = 0x80, high = 0xbf;
    size_t count;
    if (text[0] < 0x80) {
        return 1;
    } else if (text[0] >= 0xc2 && text[0] <= 0xdf) {
        count = 2;
    } else if (text[0] >= 0xe0 && text[0] <= 0xef) {
        count = 3;
        least = text[0] == 0xe0 ? 0xa0 : least;
        high = text[0] == 0xed ? 0x9f : high;
    } else if (text[0] >= 0xf0 && text[0] <= 0xf4) {
        count = 4;
        least = text[0] == 0xf0 ? 0x90 : least;
        high = text[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if ((size_t)(end - text) < count || text[1] < least || text[1] > high)
        return 0;
    for (size_t i = 2; i < count; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return count;
}

size_t pici_parse_char(const uint8_t *text, const uint8_t *end, uint32_t *code_point)
{
    const size_t count = pici_parse_utf8(text, end);
    if (count == 0)
        return 0;
    *code_point = count == 1 ? text[0] : text[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++)
        *code_point = *code_point << 6 | (text[i] & 0x3f);
    return count;
}

bool pici_parse_hidden(uint32_t code_point)
{
    /* Unicode's general categories Cc, Cf, Zl and Zp, what has Default_Ignorable_Code_Point, and noncharacters. */
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
        {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };
    if ((code_point & 0xfffe) == 0xfffe) /* the last two of each plane */
        return true;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && ranges[i].first <= code_point; i++)
        if (code_point <= ranges[i].last)
            return true;
    return false;
}

bool pici_parse_shape(uint64_t output[PICI_RANK_MAX], unsigned *out_rank, const uint64_t *shape, unsigned rank,
                      uint64_t items, uint64_t item_elements, uint64_t count, size_t width)
{
    uint64_t product = width;
    bool fits = rank + (item_elements != 1) <= PICI_RANK_MAX && item_elements != 0;
    for (unsigned i = 0; i < rank && fits; i++)
        fits = parse_mul(&product, product, shape[i] ? shape[i] : 1, INT64_MAX);
    fits = fits && parse_mul(&product, product, item_elements, INT64_MAX) && items * item_elements == count;
    if (!fits) {
        *out_rank = 1;
        output[0] = count;
        return false;
    }
    *out_rank = rank;
    if (rank)
        memcpy(output, shape, rank * sizeof *shape);
    if (item_elements != 1)
        output[(*out_rank)++] = item_elements;
    return true;
}

int pici_parse_order(const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    const int order = memcmp(left, right, left_bytes < right_bytes ? left_bytes : right_bytes);
    return order ? order : (left_bytes > right_bytes) - (left_bytes < right_bytes);
}
