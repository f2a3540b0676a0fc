/* SPDX-License-Identifier: BSD-3-Clause */
#include "plugins/hdf5/chunk.h"

#include <stdlib.h>
#include <string.h>

#include "lib/bytes.h"

enum pici_status chunk_encode(void **block, size_t *size, const void *bytes, size_t len, struct chunk_kind kind,
                              enum pici_pack pack)
{
    *block = NULL;
    *size = 0;
    size_t width = pici_dtype_width(kind.dtype);
    if (!width)
        return PICI_E_ARG;
    if (len % width) {
        kind.dtype = PICI_U8;
        width = 1;
    }
    void *swapped = NULL;
    if (kind.big_endian != PICI_BIG_ENDIAN && width > 1 && len) {
        swapped = malloc(len);
        if (!swapped)
            return PICI_E_NOMEM;
        memcpy(swapped, bytes, len);
        swap_elements(swapped, len, width);
        bytes = swapped;
    }
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.checksum = 1;
    opts.pack = pack;
    const size_t room = pici_bound(PICI_AUTO, kind.dtype, len / width);
    enum pici_status s = PICI_E_NOMEM;
    *block = room ? malloc(room) : NULL;
    if (*block)
        s = pici_compress(*block, room, size, bytes, len / width, kind.dtype, PICI_AUTO, &opts);
    free(swapped);
    if (s) {
        free(*block);
        *block = NULL;
    }
    return s;
}

enum pici_status chunk_decode(void **bytes, size_t *len, const void *block, size_t size, size_t limit, bool big_endian)
{
    struct pici_info info = PICI_INFO_INIT;
    *bytes = NULL;
    *len = 0;
    enum pici_status s = pici_inspect(&info, block, size);
    if (s)
        return s;
    const size_t width = pici_dtype_width(info.dtype);
    if (info.count > limit / width)
        return PICI_E_SPACE;
    const size_t need = (size_t)info.count * width;
    void *room = malloc(need ? need : 1);
    if (!room)
        return PICI_E_NOMEM;
    s = pici_decompress(room, info.count, block, size, NULL);
    if (s) {
        free(room);
        return s;
    }
    if (big_endian != PICI_BIG_ENDIAN)
        swap_elements(room, need, width);
    *bytes = room;
    *len = need;
    return PICI_OK;
}
