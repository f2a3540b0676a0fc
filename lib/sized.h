/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Public structs begin with their own size, which tells versions apart. One rule for all of them:
 *
 *   a size below that of the struct's first version          PICI_E_ARG
 *   smaller than ours (an older caller)                      members beyond the caller's size have their defaults
 *   larger than ours (a newer caller)                        read: nonzero bytes beyond ours are PICI_E_UNSUPPORTED;
 *                                                            written: bytes beyond ours become zero
 *
 * The size is sizeof, so it includes padding at the end, with arbitrary bits. So a member never begins in the end
 * padding of a released struct: callers of that release have the same size with and without the member. A member
 * `unused`, which is never read, fills the place; padding at the end of today's struct is a member too.
 * tools/dev/check-structs enforces both.
 *
 * An output struct may have had another layout in the past, with smaller sizes than today's: its callers get that
 * layout.
 */
#ifndef PICI_LIB_SIZED_H
#define PICI_LIB_SIZED_H

#include <string.h>

#include "pici/pici.h"

/* Bytes of a struct up to and including a member: the size of the version that ended with it. Padding at the end counts
 * as in sizeof, so for a struct whose first version is today's use sizeof. */
#define SIZED_THROUGH(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

static inline size_t sized_of(const void *theirs)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    return size;
}

/* Copy a caller's struct over ours [bytes], which holds the defaults; ours->size stays. first: bytes of the first
 * version. */
static inline enum pici_status sized_read(void *ours, size_t bytes, size_t first, const void *theirs)
{
    const size_t size = sized_of(theirs);
    if (size < first)
        return PICI_E_ARG;
    for (size_t i = bytes; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return PICI_E_UNSUPPORTED;
    const size_t common = size < bytes ? size : bytes;
    memcpy((unsigned char *)ours + sizeof size, (const unsigned char *)theirs + sizeof size, common - sizeof size);
    return PICI_OK;
}

/* A layout that a struct had in earlier versions: pieces of today's struct, one after another from the first one's
 * place on. */
struct sized_piece {
    size_t offset, bytes;
};

struct sized_layout {
    size_t first, last; /* bytes in the first version that had it, and in the last */
    struct sized_piece piece[5];
};

/* Copy our result [bytes] to a caller's struct, up to its size; theirs->size stays. On PICI_E_ARG theirs does not
 * change. */
static inline enum pici_status sized_write(void *theirs, const void *ours, size_t bytes, size_t first)
{
    const size_t size = sized_of(theirs);
    if (size < first)
        return PICI_E_ARG;
    const size_t common = size < bytes ? size : bytes;
    memcpy((unsigned char *)theirs + sizeof size, (const unsigned char *)ours + sizeof size, common - sizeof size);
    if (size > bytes)
        memset((unsigned char *)theirs + bytes, 0, size - bytes);
    return PICI_OK;
}

/* Whether sized_write_either() takes a struct of this size. first: as there. */
static inline int sized_either(size_t size, size_t first, const struct sized_layout *old)
{
    return size >= first || (size >= old->first && size <= old->last);
}

/* sized_write(), also of an earlier layout. first: bytes of the first version with today's layout. */
static inline enum pici_status sized_write_either(void *theirs, const void *ours, size_t bytes, size_t first,
                                                  const struct sized_layout *old)
{
    const size_t size = sized_of(theirs);
    if (size >= first)
        return sized_write(theirs, ours, bytes, first);
    if (!sized_either(size, first, old))
        return PICI_E_ARG;
    size_t offset = old->piece->offset;
    for (const struct sized_piece *p = old->piece; offset < size; offset += p++->bytes)
        memcpy((unsigned char *)theirs + offset, (const unsigned char *)ours + p->offset,
               p->bytes < size - offset ? p->bytes : size - offset);
    return PICI_OK;
}

#endif
