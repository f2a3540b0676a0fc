/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/deflated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

enum { RATIO_MOST = 1032 /* the most bytes that a byte of deflated data can make */ };

size_t deflated_format(char text[DEFLATED_TEXT], const struct deflated *deflated)
{
    return (size_t)snprintf(text, DEFLATED_TEXT, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s", deflated->level,
                            deflated->header, deflated->bytes, deflated->crc, deflated->version);
}

bool deflated_parse(struct deflated *deflated, const void *value, size_t size, uint64_t dense)
{
    char text[DEFLATED_TEXT];
    const char *rest = text;
    uint64_t *const fields[] = {&deflated->level, &deflated->header, &deflated->bytes, &deflated->crc};
    if (size >= sizeof text || memchr(value, 0, size))
        return false;
    memcpy(text, value, size);
    text[size] = 0;
    for (int i = 0; i < 4; i++)
        if (!tool_parse_digits(&rest, fields[i]) || *rest++ != ' ')
            return false;
    if (strlen(rest) >= sizeof deflated->version)
        return false;
    memcpy(deflated->version, rest, strlen(rest) + 1);
    return deflated->level >= 1 && deflated->level <= 9 && deflated->crc <= UINT32_MAX &&
           dense / RATIO_MOST <= deflated->bytes;
}
