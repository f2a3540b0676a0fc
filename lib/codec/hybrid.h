/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The records of hybrid blocks, one for each group of tiles, and of packed blocks except their runs. Specifications:
 * formats/hybrid.md, formats/packed.md. */
#ifndef PICI_LIB_CODEC_HYBRID_H
#define PICI_LIB_CODEC_HYBRID_H

#include "codec/block.h"
#include "codec/signs.h"
#include "cpu/kernels.h"

/* ---- hybrid_read.c ---- */

/* A group of a block. Its descriptors are checked; payloads, signs and values are not. */
struct pici_group {
    uint64_t first;                     /* number of its first tile */
    unsigned tiles, nonzeros;           /* nonzeros: the sum of the descriptors */
    const uint8_t *record;              /* if all tiles are empty: where the next record begins */
    struct pici_tile tile[GROUP_TILES]; /* a tile with signs but no nonzeros has the container PICI_EMPTY */
    uint32_t full;  /* bit i: tile i must have a run of 256 nonzeros, because its container is right only then */
    uint32_t signs; /* bit i: tile i keeps signs */
    struct pici_signs tile_signs[GROUP_TILES]; /* of those tiles */
    /* packed: the number of values in the runs, the runs' descriptors, and the first run. Tiles have no values yet */
    unsigned values;
    const uint8_t *run_descriptors, *runs;
};

/* Read a group. Checks the rules from "directory" to a record's "padding". */
enum pici_status pici_group_read(struct pici_group *, const struct pici_block *, uint64_t number, struct pici_fault *);

/* Elements of a tile: TILE, or fewer in the last one. */
unsigned pici_tile_elements(const struct pici_block *, uint64_t tile);

/* Does a tile, stored as a bitvector or raw, have a run of 256 nonzeros? */
int pici_tile_has_run(const struct pici_tile *, unsigned elements, unsigned width_log2);

/* The first byte of the descriptor of tile i, and of its sign descriptor. */
const uint8_t *pici_tile_descriptor(const struct pici_group *, unsigned i);
const uint8_t *pici_tile_sign_descriptor(const struct pici_group *, unsigned i);

/* Decode a tile to TILE elements of 1 << width_log2 bytes in host order, without signs. elements: how many of them
 * exist. Returns 0 if the payload or the values break a rule. Does not check the rule "container". */
int pici_tile_decode(uint8_t *output, const struct pici_tile *, unsigned elements, unsigned width_log2);

/* ---- hybrid_signs.c ---- */

/* Do the words of a tile, a bit an element, have a run of 256 set bits? */
static inline int pici_words_have_run(const uint64_t word[TILE_COLS])
{
    for (int i = 0; i < TILE_COLS; i += RUN / 64)
        if ((word[i] & word[i + 1] & word[i + 2] & word[i + 3]) == UINT64_MAX)
            return 1;
    return 0;
}

/* Does a tile cost less if it keeps signs? If so, sets stored's nonzeros and container, *tile_signs and the list, and
 * clears the bits of negative zeros in word. tile: TILE elements; only the first `elements` exist. word: bits of the
 * nonzeros, negative zeros included. */
int pici_signs_pay(struct pici_signs *tile_signs, uint64_t list[TILE_COLS], struct pici_tile *stored,
                   uint64_t word[TILE_COLS], const uint8_t *tile, unsigned elements, unsigned width_log2);

/* Check the signs of tile i of a version-2 block's group. If the tile keeps none, check that it should not. tile: its
 * decoded elements. set: set their signs. Returns 0 if a rule is broken. */
int pici_tile_signs(uint8_t *tile, const struct pici_group *, unsigned i, unsigned elements, unsigned width_log2,
                    int set);

/* Can tile i of a version-2 block's group break the rule "signs"? If not, pici_tile_signs does nothing. */
int pici_tile_has_signs(const struct pici_group *, unsigned i, unsigned elements, unsigned width_log2);

/* ---- hybrid_write.c ---- */

/* The elements to encode: src, or with a base the XOR of both. */
struct pici_source {
    const uint8_t *src, *base; /* base: may be null */
    const struct pici_move *move;
    unsigned width_log2;
    int signs; /* tiles may keep signs: the elements are floats, and encoded exactly */
};

/* The tile of count <= TILE elements from `first` on. Returns its place in src. With a base, or for a partial tile,
 * fills the buffer with the tile and zeros up to TILE elements, and returns the buffer. */
const uint8_t *pici_source_tile(const struct pici_source *, size_t first, size_t count, uint8_t buffer[TILE * 8]);

/* The layout of a group's record, before it is written. */
struct pici_group_layout {
    uint64_t word[GROUP_TILES][TILE_COLS]; /* row words: a bit an element */
    struct pici_tile tile[GROUP_TILES];    /* nonzeros and container of each tile */
    unsigned tiles;
    uint32_t nonzeros;
    uint32_t kept;                             /* negative zeros of tiles that keep signs; not among the nonzeros */
    uint32_t signs;                            /* bit i: tile i keeps signs, and the next two members are set */
    struct pici_signs tile_signs[GROUP_TILES]; /* without bytes */
    uint64_t negatives[GROUP_TILES][TILE_COLS];
    size_t metadata, values, record; /* bytes before the values' padding, of values, and of the whole record */
};

/* A buffer for a partial tile or a difference. It also holds payloads, then values, of a record whose place is not
 * known yet. */
enum { SCRATCH_PAYLOADS = GROUP_TILES * (RUNS + OFFSETS8_MOST), SCRATCH_VALUES = 54 << 10 };
struct pici_scratch {
    uint8_t bytes[SCRATCH_PAYLOADS + SCRATCH_VALUES + PICI_SLACK] __attribute__((aligned(64)));
};

/* What the next group will probably be like. */
enum pici_prediction {
    PREDICT_ANY,
    PREDICT_ALIKE, /* all tiles have the same container, bitvector or raw: their values begin at a known offset */
    PREDICT_SPARSE /* no bitvector and no raw tile: payloads and values fit in the scratch buffer */
};
/* Predict the next group from the one just laid out. */
enum pici_prediction pici_group_predict(const struct pici_group_layout *, const struct pici_source *);

/* Lay out the group of elements [first, first + count). */
void pici_group_layout_make(struct pici_group_layout *, struct pici_scratch *, const struct pici_source *, size_t first,
                            size_t count);

/* The same, and copy the elements to output in stored order. stream: use non-temporal stores. */
void pici_group_copy(struct pici_group_layout *, struct pici_scratch *, const struct pici_source *, size_t first,
                     size_t count, uint8_t *output, int stream);

/* Write occupancy, descriptors and sign descriptors. Returns where they end. */
uint8_t *pici_group_write_descriptors(const struct pici_group_layout *, uint8_t *output);

/* Write the record to output. space: bytes that may be written there, at least the record's; garbage may follow the
 * record. stream: use non-temporal stores. */
void pici_group_write(const struct pici_group_layout *, struct pici_scratch *, const struct pici_source *, size_t first,
                      size_t count, uint8_t *output, size_t space, int stream);

/* Faster functions for a group of GROUP_TILES whole tiles. They read each tile once. They return 0 and leave the layout
 * undefined if the group is not as predicted.
 *
 * PREDICT_SPARSE: lay out the group, with payloads and values in scratch. pici_group_write_sparse copies these to the
 * record. */
int pici_group_layout_sparse(struct pici_group_layout *, struct pici_scratch *, const struct pici_source *,
                             size_t first);
void pici_group_write_sparse(const struct pici_group_layout *, const struct pici_scratch *, const struct pici_source *,
                             uint8_t *output, int stream);

/* PREDICT_ALIKE, without a base: write the record of the group. On entry, the layout describes an earlier group; all
 * tiles here must have the container of its first tile. On return, it is the layout of this group. output has space for
 * the longest record and PICI_SLACK. */
int pici_group_write_alike(struct pici_group_layout *, const struct pici_source *, size_t first, uint8_t *output,
                           int stream);

#endif
