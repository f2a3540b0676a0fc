/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/deflated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

enum { RATIO_MOST = 1032 /* no byte of deflated data makes more */ };

size_t deflated_format(char text[DEFLATED_TEXT], const struct deflated *d)
{
    return (size_t)snprintf(text, DEFLATED_TEXT, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s", d->level,
                            d->header, d->bytes, d->crc, d->version);
}

bool deflated_parse(struct deflated *d, const void *value, size_t len, uint64_t dense)
{
    char text[DEFLATED_TEXT];
    const char *p = text;
    uint64_t *const to[] = {&d->level, &d->header, &d->bytes, &d->crc};
    if (len >= sizeof text || memchr(value, 0, len))
        return false;
    memcpy(text, value, len);
    text[len] = 0;
    for (int i = 0; i < 4; i++)
        if (!tool_parse_digits(&p, to[i]) || *p++ != ' ')
            return false;
    if (strlen(p) >= sizeof d->version)
        return false;
    memcpy(d->version, p, strlen(p) + 1);
    return d->level >= 1 && d->level <= 9 && d->crc <= UINT32_MAX && dense / RATIO_MOST <= d->bytes;
}
