/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes of a .pici file by which decompress restores the original: its head, then the tensors in order.
 * picitool(1) documents them. */
#ifndef PICI_TOOLS_INPUT_ATTRS_H
#define PICI_TOOLS_INPUT_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/file.h"

#define ATTR_TYPE "source.type"     /* of the file: raw, npy, safetensors, gguf, pt, npz */
#define ATTR_HEAD "source.head"     /* of the file: the bytes outside all tensors */
#define ATTR_BEFORE "source.before" /* of a tensor: count of head bytes before it; absent: all that are left */
#define ATTR_DTYPE "source.dtype"   /* of a tensor: the original's name, such as "<c8" or "BOOL" */
#define ATTR_NPY "source.npy"       /* of a tensor: its .npy type, a Python literal, if the elements do not imply it */
#define ATTR_ENDIAN "source.endian" /* of a tensor: "big" if the original's elements are big-endian */
#define ATTR_ORDER "source.order"   /* of a tensor: "F" if its first index varies fastest */
#define ATTR_DEFLATE "source.deflate" /* of a tensor that the original deflates; see deflated.h */
#define ATTR_VIEW "source.view"       /* of a tensor, by version 0.2: its shape and strides in the original, in words */

/* Parse ATTR_BEFORE. False: not a number. */
bool attrs_before(const struct pici_attr *attr, uint64_t *bytes);

#endif
