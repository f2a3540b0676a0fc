/* SPDX-License-Identifier: BSD-3-Clause
 *
 * References: tensors of a compressed folder that use the elements of another tensor (formats/folder.md). */
#ifndef PICI_TOOLS_PARSE_REFERENCE_H
#define PICI_TOOLS_PARSE_REFERENCE_H

#include "parse/parse.h"
#include "pici/file.h"

#define REFERENCE_ATTR "folder.same"

enum { REFERENCE_HEAD = 8 /* bytes of the attribute before the shape */ };

struct reference {
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;    /* the product of shape */
    const char *shard; /* [shard_size] the shard that has the elements, in the attribute; empty: the same shard */
    size_t shard_size;
    const char *name; /* [name_size] the tensor's name in that shard, in the attribute */
    size_t name_size;
};

/* Parse the attribute of the tensor `stored`. Checks its dtype and shape. */
bool reference_parse(struct reference *, const void *value, size_t size, const struct pici_tensor_info *stored,
                     struct parse_error *error);

/* The attribute's value. The caller frees it. NULL: no memory. */
char *reference_value(const struct reference *, size_t *size);

#endif
