/* SPDX-License-Identifier: BSD-3-Clause
 *
 * XXH64 (Yann Collet's xxHash, 64-bit), of a buffer or of several pieces. Tested against libxxhash. */
#ifndef PICI_LIB_XXH64_H
#define PICI_LIB_XXH64_H

#include <stddef.h>
#include <stdint.h>

#include "shared.h"

struct pici_xxh64 {
    uint64_t lane[4];
    uint64_t seed;
    uint64_t total;   /* bytes so far */
    uint8_t held[32]; /* the total % 32 bytes that do not fill a stripe yet */
};

void pici_xxh64_init(struct pici_xxh64 *, uint64_t seed);
void pici_xxh64_update(struct pici_xxh64 *, const void *data, size_t n);
uint64_t pici_xxh64_digest(const struct pici_xxh64 *);
PICI_SHARED uint64_t pici_xxh64(const void *p, size_t n, uint64_t seed);

#endif
