/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The attribute of a tensor that the original file deflates: five words "LEVEL HEADER BYTES CRC VERSION". All but
 * the last are decimal numbers. */
#ifndef PICI_TOOLS_INPUT_DEFLATED_H
#define PICI_TOOLS_INPUT_DEFLATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEFLATED_TEXT = 96, DEFLATED_VERSION = 24 };

struct deflated {
    uint64_t level;                 /* of zlib, 1 to 9 */
    uint64_t header;                /* head bytes directly before the tensor that are in the same deflated data */
    uint64_t bytes;                 /* length of the deflated data */
    uint64_t crc;                   /* CRC-32 of the deflated data */
    char version[DEFLATED_VERSION]; /* the zlib version that reproduced the data */
};

/* Write the attribute's value to text; returns its length. */
size_t deflated_format(char text[DEFLATED_TEXT], const struct deflated *);

/* Parse the attribute's value. dense: bytes of the tensor. False: it is malformed, or the deflated data is too short
 * for so large a tensor. */
bool deflated_parse(struct deflated *, const void *value, size_t size, uint64_t dense);

#endif
