/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed blocks: hybrid's records with runs of packed values. Specification: formats/packed.md. */
#ifndef PICI_LIB_CODEC_PACKED_H
#define PICI_LIB_CODEC_PACKED_H

#include "codec/hybrid.h"
#include "cpu/planes.h"

/* ---- packed_read.c ---- */

/* The most values in the buffer: the rest of one run, and the next run. */
enum { VALUES_MOST = 2 * RUN_MOST };

/* The values of a group of a packed block, on their way to its tiles. */
struct pici_values {
    const struct pici_block *block;
    const struct pici_group *group;
    const struct pici_planes *planes;
    const uint8_t *run;      /* the next one to decode */
    unsigned next;           /* its number */
    unsigned first, decoded; /* values in the buffer: the number of the first, and their count */
    uint8_t bytes[VALUES_MOST * 8 + PICI_SLACK] __attribute__((aligned(64)));
    uint8_t bounce[RUN_MOST * 8 + PICI_SLACK]; /* for a run near the end of the block */
};

/* Begin with a group that pici_group_read accepted. */
void pici_values_begin(struct pici_values *, const struct pici_block *, const struct pici_group *);

/* Set the values of tile i of the group, and of the tiles after it whose values are in the buffer, up to `most` tiles.
 * Returns the number of tiles; 0 if a run breaks a rule. Callers ask for tiles in rising order. They may read
 * PICI_SLACK bytes after the values of each. */
unsigned pici_values_load(struct pici_values *, struct pici_group *, unsigned i, unsigned most);

/* If tile i is raw and whole, and one packed run, decode it straight to dst and return 1. stream: use non-temporal
 * stores if dst is aligned. *wrong: set if a rule is broken. */
int pici_values_straight(struct pici_values *, const struct pici_group *, unsigned i, uint8_t *dst, int stream,
                         int *wrong);

/* The number of the first value of tile i in its group. */
unsigned pici_values_before(const struct pici_block *, const struct pici_group *, unsigned i);

/* Check the rules "padding", "planes" and "choice" of the group's runs. */
enum pici_status pici_runs_verify(const struct pici_block *, const struct pici_group *, struct pici_fault *);

/* ---- packed_write.c ---- */

/* A packed block to make. */
struct pici_packed_make {
    uint8_t *block;
    size_t capacity;
    const struct pici_source *source;
    size_t count;
    unsigned dtype;
    int threads; /* to use */
    int stream;
    int one_level;
    int by_value;   /* source->move has the kernels by value */
    int if_shorter; /* the body may be missing if the block is no shorter than the hybrid one */
};

/* The result of pici_packed_write. */
struct pici_packed_made {
    struct fmt_layout layout;
    uint64_t nonzeros, kept;
    uint64_t hybrid_bytes; /* length of the hybrid block of the same elements */
};

/* Write the body of the block. PICI_E_SPACE: it does not fit; hybrid_bytes may be too small then.
 * PICI_E_ARG: the elements have changed. */
enum pici_status pici_packed_write(struct pici_packed_made *, const struct pici_packed_make *);

#endif
