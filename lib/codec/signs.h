/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The signs of a tile's zeros, which a hybrid block of version 2 keeps. Specification: formats/hybrid.md, "Signs". A
 * word has a bit for each of 64 elements of a tile, as in the bitvector. The zeros of a tile are numbered in order. A
 * list of zeros is 64 words with a bit for each number. */
#ifndef PICI_LIB_CODEC_SIGNS_H
#define PICI_LIB_CODEC_SIGNS_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

/* The sign descriptor, and where the signs are. */
struct pici_signs {
    const uint8_t *bytes; /* when reading: the unary bits, then the remainders */
    uint16_t zeros;       /* of both signs */
    uint16_t listed;      /* zeros of the rarer sign */
    uint16_t unary;       /* bits */
    uint8_t flip;         /* the list has the positive zeros */
};

/* Bytes of unary bits and remainders. */
size_t pici_signs_bytes(const struct pici_signs *);

unsigned pici_signs_negative(const struct pici_signs *);

/* List the negative zeros of a tile, and set *signs. word: bits of the tile's nonzeros. negative: bits of its negative
 * zeros. */
void pici_signs_make(struct pici_signs *signs, uint64_t list[TILE_COLS], const uint64_t word[TILE_COLS],
                     const uint64_t negative[TILE_COLS], unsigned elements);

/* Write the descriptor; write unary bits and remainders, and return where they end. */
void pici_signs_write_descriptor(uint8_t *output, const struct pici_signs *);
uint8_t *pici_signs_write(uint8_t *output, const struct pici_signs *, const uint64_t list[TILE_COLS]);

/* Read the descriptor of a tile with this number of zeros. Returns 0 if it breaks a rule. */
int pici_signs_read_descriptor(struct pici_signs *, const uint8_t *descriptor, unsigned zeros);

/* Read the signs of a tile: sets the bits of its negative zeros. word: bits of the tile's nonzeros. Returns 0 if unary
 * bits or remainders break a rule. */
int pici_signs_read(uint64_t negative[TILE_COLS], const struct pici_signs *, const uint64_t word[TILE_COLS],
                    unsigned elements);

#endif
