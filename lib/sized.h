/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Public structs begin with their own size, which tells versions apart. One rule for all of them:
 *
 *   a size below that of the struct's first version          PICI_E_ARG
 *   smaller than ours (an older caller)                      members beyond the caller's size have their defaults
 *   larger than ours (a newer caller)                        read: what is not zero beyond ours is PICI_E_UNSUPPORTED;
 *                                                            written: what is beyond ours becomes zero
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

/* Copy our result [bytes] to a caller's struct as far as that one goes; theirs->size stays. PICI_E_ARG leaves theirs
 * alone. */
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

#endif
