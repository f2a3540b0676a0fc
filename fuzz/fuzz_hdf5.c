/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a chunk of an HDF5 dataset to read, within the limit in the first byte, and as a chunk to write.
 * Written chunks must read back as the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "plugins/hdf5/chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    static const enum pici_pack packs[] = {PICI_PACK_NONE, PICI_PACK_PLANES, PICI_PACK_FAST};
    const struct chunk_kind kind = {(enum pici_dtype)(data[0] % 16), data[0] & 128};
    const size_t limit = (size_t)data[0] << 8, rest = len - 1;
    uint8_t *chunk = memory(rest); /* exact size, so that the sanitizer knows its end */
    if (rest)
        memcpy(chunk, data + 1, rest);
    void *block, *bytes;
    size_t size, found;
    enum pici_status s = chunk_decode(&bytes, &found, chunk, rest, limit, kind.big_endian);
    require((s == PICI_OK) == (bytes != NULL) && found <= limit && (!s || !found));
    free(bytes);

    s = chunk_encode(&block, &size, chunk, rest, kind, packs[data[0] % 3]);
    require(s == (pici_dtype_width(kind.dtype) ? PICI_OK : PICI_E_ARG) && (s == PICI_OK) == (block != NULL));
    if (!s) {
        require(chunk_decode(&bytes, &found, block, size, rest, kind.big_endian) == PICI_OK && found == rest);
        require(rest == 0 || memcmp(bytes, chunk, rest) == 0);
        free(bytes);
        require(rest == 0 || chunk_decode(&bytes, &found, block, size, rest - 1, kind.big_endian) == PICI_E_SPACE);
        require(chunk_decode(&bytes, &found, block, size - 1, rest, kind.big_endian) != PICI_OK);
    }
    free(block);
    free(chunk);
    return 0;
}
