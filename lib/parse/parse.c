/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char *pici_parse_printable(char *out, size_t cap, const void *text, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = text;
    size_t n = 0;
    size_t room = 0; /* the last position in out where "..." still fits */
    for (size_t i = 0; i < len; i++) {
        bool plain = p[i] >= 0x20 && p[i] < 0x7f;
        size_t want = plain ? 1 : 4;
        if (n + 4 <= cap)
            room = n;
        if (n + want >= cap) {
            memcpy(out + room, "...", 4);
            return out;
        }
        if (plain) {
            out[n] = (char)p[i];
        } else {
            memcpy(out + n, "\\x", 2);
            out[n + 2] = hex[p[i] >> 4];
            out[n + 3] = hex[p[i] & 15];
        }
        n += want;
    }
    out[n] = '\0';
    return out;
}

bool pici_parse_fail(struct parse_error *err, uint64_t offset, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->offset = offset;
    vsnprintf(err->what, sizeof err->what, format, args);
    va_end(args);
    return false;
}

size_t pici_parse_utf8(const uint8_t *p, const uint8_t *end)
{
    /* The range of the second byte depends on the first; it excludes overlong forms, surrogates and too large
     * values. */
    uint8_t low = 0x80, high = 0xbf;
    size_t n;
    if (p[0] < 0x80) {
        return 1;
    } else if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        n = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        n = 3;
        low = p[0] == 0xe0 ? 0xa0 : low;
        high = p[0] == 0xed ? 0x9f : high;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        n = 4;
        low = p[0] == 0xf0 ? 0x90 : low;
        high = p[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if ((size_t)(end - p) < n || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t pici_parse_char(const uint8_t *p, const uint8_t *end, uint32_t *c)
{
    const size_t n = pici_parse_utf8(p, end);
    if (n == 0)
        return 0;
    *c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        *c = *c << 6 | (p[i] & 0x3f);
    return n;
}

bool pici_parse_hidden(uint32_t c)
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
    if ((c & 0xfffe) == 0xfffe) /* the last two of each plane */
        return true;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && ranges[i].first <= c; i++)
        if (c <= ranges[i].last)
            return true;
    return false;
}

bool pici_parse_shape(uint64_t out[PICI_RANK_MAX], unsigned *out_rank, const uint64_t *shape, unsigned rank,
                      uint64_t items, uint64_t item_elements, uint64_t count, size_t width)
{
    uint64_t product = width;
    bool fits = rank + (item_elements != 1) <= PICI_RANK_MAX && item_elements != 0;
    for (unsigned i = 0; i < rank && fits; i++)
        fits = parse_mul(&product, product, shape[i] ? shape[i] : 1, INT64_MAX);
    fits = fits && parse_mul(&product, product, item_elements, INT64_MAX) && items * item_elements == count;
    if (!fits) {
        *out_rank = 1;
        out[0] = count;
        return false;
    }
    *out_rank = rank;
    if (rank)
        memcpy(out, shape, rank * sizeof *shape);
    if (item_elements != 1)
        out[(*out_rank)++] = item_elements;
    return true;
}
