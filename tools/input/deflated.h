/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The attribute of a tensor that is deflated in the original file: "LEVEL HEADER BYTES CRC VERSION", five words, all
 * but the last decimal numbers. */
#ifndef PICI_TOOLS_INPUT_DEFLATED_H
#define PICI_TOOLS_INPUT_DEFLATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEFLATED_TEXT = 96, DEFLATED_VERSION = 24 };

struct deflated {
    uint64_t level;  /* of zlib, 1 to 9 */
    uint64_t header; /* bytes of the head, the last ones before the tensor, that are in the same deflated data */
    uint64_t bytes;  /* of the deflated data */
    uint64_t crc;    /* and their CRC-32 */
    char version[DEFLATED_VERSION]; /* of the zlib that was seen to make them */
};

/* Write the attribute's value to text; returns its length. */
size_t deflated_format(char text[DEFLATED_TEXT], const struct deflated *);

/* Parse such a value. dense: bytes of the tensor. False: malformed, or deflated data of that length cannot hold
 * them. */
bool deflated_parse(struct deflated *, const void *value, size_t size, uint64_t dense);

#endif
