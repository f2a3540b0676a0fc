/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes of a .pici file in which compress describes the original file for decompress. The original is the head,
 * then the tensors in order. picitool(1) documents them. */
#ifndef PICI_TOOLS_INPUT_ATTRS_H
#define PICI_TOOLS_INPUT_ATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTR_TYPE "source.type"     /* of the file: raw, npy, safetensors, pt, npz */
#define ATTR_HEAD "source.head"     /* of the file: the bytes that are in no tensor */
#define ATTR_BEFORE "source.before" /* of a tensor: so many bytes of the head precede it. Without: all that are left */
#define ATTR_DTYPE "source.dtype"   /* of a tensor: as the original has it, as "<c8" or "BOOL" */
#define ATTR_ENDIAN "source.endian" /* of a tensor: "big" if the original's elements are big-endian */
#define ATTR_ORDER "source.order"   /* of a tensor: "F" if its first index is the fastest */
#define ATTR_DEFLATE "source.deflate" /* of a tensor: it is deflated in the original: a struct deflated */
#define ATTR_VIEW "source.view"       /* of a tensor: the shape and strides that the original gives it, in words */

/* The value of ATTR_DEFLATE: "LEVEL HEADER BYTES CRC VERSION", five words, all but the last decimal numbers. */
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
bool deflated_parse(struct deflated *, const void *value, size_t len, uint64_t dense);

#endif
