/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The attributes by which compress tells decompress, in a .pici file, what the original file was like. The original is
 * the head, then the tensors in order. Documented in picitool(1). */
#ifndef PICI_TOOLS_ATTRS_H
#define PICI_TOOLS_ATTRS_H

#define ATTR_TYPE "source.type"     /* of the file: raw, npy, safetensors */
#define ATTR_HEAD "source.head"     /* of the file: the bytes before the first tensor */
#define ATTR_DTYPE "source.dtype"   /* of a tensor: as the original has it, as "<c8" or "BOOL" */
#define ATTR_ENDIAN "source.endian" /* of a tensor: "big" if the original's elements are big-endian */
#define ATTR_ORDER "source.order"   /* of a tensor: "F" if its first index is the fastest */

#endif
