/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes of a .pici file in which compress describes the original file for decompress. The original is the head,
 * then the tensors in order. picitool(1) documents them. */
#ifndef PICI_TOOLS_INPUT_ATTRS_H
#define PICI_TOOLS_INPUT_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/file.h"

#define ATTR_TYPE "source.type"     /* of the file: raw, npy, safetensors, gguf, pt, npz */
#define ATTR_HEAD "source.head"     /* of the file: the bytes that are in no tensor */
#define ATTR_BEFORE "source.before" /* of a tensor: so many bytes of the head precede it. Without: all that are left */
#define ATTR_DTYPE "source.dtype"   /* of a tensor: as the original has it, as "<c8" or "BOOL" */
#define ATTR_NPY "source.npy"       /* of a tensor: its type in .npy, a literal of Python, if elements do not say it */
#define ATTR_ENDIAN "source.endian" /* of a tensor: "big" if the original's elements are big-endian */
#define ATTR_ORDER "source.order"   /* of a tensor: "F" if its first index is the fastest */
#define ATTR_DEFLATE "source.deflate" /* of a tensor: it is deflated in the original; see deflated.h */
#define ATTR_VIEW "source.view" /* of a tensor, by 0.2: the shape and strides that the original gives it, in words */

/* The number that ATTR_BEFORE has. False: it is no number. */
bool attrs_before(const struct pici_attr *attr, uint64_t *bytes);

#endif
