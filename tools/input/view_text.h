/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a tensor lies in its storage, in words. */
#ifndef PICI_TOOLS_INPUT_VIEW_TEXT_H
#define PICI_TOOLS_INPUT_VIEW_TEXT_H

#include "pici/file.h"

#include <stdbool.h>

enum { VIEW_TEXT = 512 };

struct view_words {
    unsigned rank;
    const uint64_t *strides; /* [rank]; or NULL: row-major */
    bool is_part;            /* the storage has other elements too, or another tensor's name */
    uint64_t offset;
    const char *of; /* [of_size] the tensor that names the storage; NULL: none */
    size_t of_size;
    bool conjugate, negative;
};

/* "strides [1, 3]", "from 12 of embed.weight", "conjugate"; "" for a plain tensor. Returns buffer. */
const char *view_text(char *buffer, size_t capacity, const struct view_words *);

/* The same for a view in a .pici file; `stored` is its storage. unnamed: no tensor names the storage. */
const char *view_text_of(char *buffer, size_t capacity, const struct pici_view *, const struct pici_tensor_info *stored,
                         bool unnamed);

#endif
