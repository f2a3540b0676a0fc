/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hashes of the pieces of a tensor, when a state has only a part of it. */
#ifndef PICI_LIB_DELTA_PIECES_H
#define PICI_LIB_DELTA_PIECES_H

#include "delta/delta.h"

/* The pieces of the base, or of the result. */
struct piece_hashes {
    const struct delta *delta; /* its table has the hashes; NULL: no delta has them */
    struct pici_reader *reader;
    uint64_t index; /* of the tensor, in that delta */
    const struct pici_tensor_info *tensor;
    bool result;
    const char *name, *first; /* of the file at fault; of the first delta in the row */
    struct pici_xxh64 so_far;
    bool begun;        /* so_far has the first elements of a piece */
    uint64_t verified; /* elements in pieces with a right hash */
};

/* Add elements [from, from + count) of the tensor, in the file's form, to the hashes of the pieces that lie completely
 * in the part. Compare the pieces that end. PICI_E_ARG: wrong base. PICI_E_CORRUPT: wrong result. */
enum pici_status pici_pieces_add(struct piece_hashes *, const uint8_t *elements, uint64_t from, uint64_t count,
                                 char *reason);

#endif
