/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Offsets in the attribute PICI_ATTR_VIEWS of a .pici file (formats/attributes.md). */
#ifndef PICI_LIB_VIEW_FORMAT_H
#define PICI_LIB_VIEW_FORMAT_H

enum { PICI_VIEWS_HEADER = 8 /* the number of views, and then each of them: */ };
enum { PICI_VIEW_TENSOR = 0, PICI_VIEW_OFFSET = 8, PICI_VIEW_DTYPE = 16, PICI_VIEW_RANK = 17, PICI_VIEW_FLAGS = 18 };
enum { PICI_VIEW_WORD = 19, PICI_VIEW_NAME = 20, PICI_VIEW_FIXED = 24 /* then shape, strides, name and word */ };
enum { PICI_VIEW_CONJUGATE = 1, PICI_VIEW_NEGATIVE = 2 /* flags */ };

#endif
