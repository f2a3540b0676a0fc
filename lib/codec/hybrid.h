/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The records of a hybrid block, group by group: read, or planned and written. Specification: formats/hybrid.md. */
#ifndef PICI_LIB_CODEC_HYBRID_H
#define PICI_LIB_CODEC_HYBRID_H

#include "codec/block.h"
#include "cpu/kernels.h"

/* A group of a block, its descriptors checked; what payloads and values hold is not. */
struct pici_group {
    uint64_t first;        /* tile */
    unsigned tiles, nnz;   /* nnz: as the descriptors say */
    const uint8_t *record; /* or its end, of a group without nonzeros */
    struct pici_tile tile[GROUP_TILES];
    uint32_t runs; /* tiles that must have a run of 256 nonzeros, or their container would be another */
};

/* Read group g: the rules from "directory" to a record's "padding". */
enum pici_status pici_group_read(struct pici_group *, const struct pici_block *, uint64_t g, struct pici_fault *);

/* Elements of tile t that exist. */
unsigned pici_tile_elements(const struct pici_block *, uint64_t t);

/* Has such a tile, a bitvector or raw, a run of 256 nonzeros? */
int pici_tile_has_run(const struct pici_tile *, unsigned len, unsigned width_log2);

/* Where the descriptor of tile i of a group is. */
const uint8_t *pici_tile_descriptor(const struct pici_group *, unsigned i);

/* What is encoded: the elements at src; with a base, in what bits they differ from it (their XOR). */
struct pici_source {
    const uint8_t *src, *base; /* base: or null */
    const struct pici_move *move;
    unsigned width_log2;
};

/* The tile that begins with element `first`, of which n <= TILE exist: where it is; or in made, if it is a difference, or if
 * it is partial, with zeros after its elements. */
const uint8_t *pici_source_tile(const struct pici_source *, size_t first, size_t n, uint8_t made[TILE * 8]);

/* A group to be written. */
struct pici_plan {
    uint64_t word[GROUP_TILES][TILE_COLS]; /* a bit an element, in their order */
    struct pici_tile tile[GROUP_TILES];    /* n and container */
    unsigned tiles;
    uint32_t nnz;
    size_t metadata, values, record; /* bytes */
};

/* Room to make things in: a tile that is partial or a difference, or the parts of a record whose place is not known yet,
 * payloads first. */
enum { ROOM_PAYLOADS = GROUP_TILES * (RUNS + OFFSETS8_MOST), ROOM_VALUES = 54 << 10 };
struct pici_room {
    uint8_t bytes[ROOM_PAYLOADS + ROOM_VALUES + PICI_SLACK] __attribute__((aligned(64)));
};

/* What is a group of this source to be expected like, after the one of this plan? */
enum pici_expect {
    EXPECT_ANY,
    EXPECT_ALIKE, /* all tiles of one container, a bitvector or raw: the place of the values is known beforehand */
    EXPECT_SPARSE /* no such tiles: payloads and values are short, and fit the room */
};
enum pici_expect pici_plan_expect(const struct pici_plan *, const struct pici_source *);

/* Look at the group of n elements from `first` on. */
void pici_plan_group(struct pici_plan *, struct pici_room *, const struct pici_source *, size_t first, size_t n);

/* Write its record; space, at least the record: bytes at out that may be written to, and there a little too many. stream: past
 * the caches. */
void pici_write_group(const struct pici_plan *, struct pici_room *, const struct pici_source *, size_t first, size_t n,
                      uint8_t *out, size_t space, int stream);

/* Two ways to look at each tile of a whole group once, for groups that are as expected; 0 for others, of which the plan is of no
 * use then.
 *
 * EXPECT_SPARSE: plan, and make payloads and values in the room, from where pici_write_sparse puts them into the record. */
int pici_plan_sparse(struct pici_plan *, struct pici_room *, const struct pici_source *, size_t first);
void pici_write_sparse(const struct pici_plan *, const struct pici_room *, unsigned width_log2, uint8_t *out,
                       int stream);

/* EXPECT_ALIKE, and no difference: write the record of a group whose tiles are like those of the plan, which is that of another
 * group, and becomes this one's; out has room for the longest and PICI_SLACK. */
int pici_write_alike(struct pici_plan *, const struct pici_source *, size_t first, uint8_t *out, int stream);

#endif
