/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/attrs.h"

#include <string.h>

#include "tool.h"

bool attrs_before(const struct pici_attr *attr, uint64_t *bytes)
{
    char text[24];
    const char *rest = text;
    if (attr->len >= sizeof text)
        return false;
    memcpy(text, attr->value, attr->len);
    text[attr->len] = 0;
    return tool_parse_digits(&rest, bytes) && rest == text + attr->len;
}
