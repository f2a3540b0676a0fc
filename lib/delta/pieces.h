/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hashes of the pieces of a tensor, of which a state has a part. */
#ifndef PICI_LIB_DELTA_PIECES_H
#define PICI_LIB_DELTA_PIECES_H

#include "delta/delta.h"

/* The pieces of the base, or of the result. */
struct piece_hashes {
    const struct delta *delta; /* whose table has the hashes; NULL: none has */
    struct pici_reader *reader;
    uint64_t index; /* the tensor's, in that delta */
    const struct pici_tensor_info *tensor;
    bool result;
    const char *name, *first; /* of the file at fault; of the first delta in the row */
    struct pici_xxh64 so_far;
    bool begun;        /* so_far has the first elements of a piece */
    uint64_t verified; /* elements of pieces that were right */
};

/* Add elements [from, from + count) of the tensor, as they are in its file, to the hashes of the pieces that the part
 * has all of, and compare those that end. PICI_E_ARG: the base is another. PICI_E_CORRUPT: the result is. */
enum pici_status pici_pieces_add(struct piece_hashes *, const uint8_t *elements, uint64_t from, uint64_t count,
                                 char *reason);

#endif
