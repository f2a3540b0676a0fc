/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes JSON (RFC 8259), value by value, with commas and escapes. The caller ends each object and array. key is NULL
 * in an array and at the top level. Errors are the FILE's. */
#ifndef PICI_TOOLS_SHOW_JSONOUT_H
#define PICI_TOOLS_SHOW_JSONOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct jsonout {
    FILE *file;
    unsigned depth;
    bool has_members; /* the innermost object or array has a member */
};

void jsonout_begin(struct jsonout *json, const char *key, char bracket); /* '{' or '[' */
void jsonout_end(struct jsonout *json, char bracket);                    /* '}' or ']'; at the top also a newline */
void jsonout_u64(struct jsonout *json, const char *key, uint64_t value); /* all digits */
void jsonout_bool(struct jsonout *json, const char *key, bool value);
void jsonout_null(struct jsonout *json, const char *key);

/* Write the fewest digits, at least 15, that read back as the same double; null for infinities and NaN. */
void jsonout_real(struct jsonout *json, const char *key, double value);

/* Write a text of `size` bytes, which may contain NULs. UTF-8 stays, except that characters that parse_hidden names
 * become \uNNNN. Each byte that is not UTF-8 becomes U+FFFD. */
void jsonout_text(struct jsonout *json, const char *key, const char *string, size_t size);

/* Write a NUL-terminated text. */
void jsonout_string(struct jsonout *json, const char *key, const char *string);

#endif
