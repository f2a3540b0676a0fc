/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The containers of tiles in hybrid blocks: limits, payloads, descriptors and costs, shared by CPU and GPU code. Pure
 * functions of integers. Part of pici/device.cuh, not of the C interface. Specification: formats/hybrid.md. */
#ifndef PICI_CONTAINERS_H
#define PICI_CONTAINERS_H

#include "pici/pici.h"

/* A row for each container: its constant, its name, the bytes of a payload with this many nonzeros, and the bytes of
 * its descriptor. */
#define PICI_CONTAINER_ROWS(ROW)                                                                                       \
    ROW(OFFSETS12, "offsets12", (3 * nonzeros + 1) / 2, 1)                                                             \
    ROW(OFFSETS8, "offsets8", RUNS + nonzeros, 2)                                                                      \
    ROW(BITVECTOR, "bitvector", TILE_BITS_BYTES, 2)                                                                    \
    ROW(RAW, "raw", 0, 2)                                                                                              \
    ROW(EMPTY, "empty", 0, 0)

#ifdef PICI_DEV_HOST /* pici/device_hw.cuh */
#define PICI_CONTAINER_FN PICI_DEV_HOST
#else
#define PICI_CONTAINER_FN static inline
#endif

#ifdef __cplusplus
#define PICI_CONTAINER_ENUM enum : unsigned
namespace pici {
#else
#define PICI_CONTAINER_ENUM enum
#endif

PICI_CONTAINER_ENUM{
    TILE_ROWS = 64, TILE_COLS = 64, /* a column is one 64-bit word of the bitvector */
    TILE = TILE_ROWS * TILE_COLS,   /* elements */
    TILE_BITS_BYTES = TILE_COLS * 8 /* bytes of bitvector */
};

/* Tiles form groups, and each group has a record. A tile's container says where its nonzeros are. */
PICI_CONTAINER_ENUM{
    GROUP_TILES = 32,      RUN = 256, /* elements; an offset in a run is a byte */
    RUNS = TILE / RUN,                /* in a tile */
    OFFSETS12_MOST = 31,              /* nonzeros of a tile of PICI_OFFSETS12 */
    OFFSETS8_MOST = 496,              /* nonzeros of a tile of PICI_OFFSETS8; with more, a bitvector is shorter */
    DESCRIPTOR_TWO = 128,             /* set in the first byte of a descriptor of two bytes */
    DESCRIPTOR_SIGNS = 64,            /* set in the first byte for a tile that keeps signs; two bytes, too */
    SIGN_DESCRIPTOR = 4,              /* bytes */
    SIGN_FLIP = 32768, /* set in the first number of a sign descriptor: the list has the positive zeros */
    SIGNS_MOST = 554   /* bytes of the signs of a tile */
};

/* Bytes of the positions of a tile's nonzeros. */
PICI_CONTAINER_FN unsigned container_payload(unsigned container, unsigned nonzeros)
{
#define PAYLOAD(name, word, payload, descriptor) container == PICI_##name ? (unsigned)(payload):
    return PICI_CONTAINER_ROWS(PAYLOAD) 0;
#undef PAYLOAD
}

/* Bytes of the descriptor of a tile that keeps no signs. */
PICI_CONTAINER_FN unsigned container_descriptor_bytes(unsigned container)
{
#define BYTES(name, word, payload, descriptor) container == PICI_##name ? (unsigned)(descriptor):
    return PICI_CONTAINER_ROWS(BYTES) 0;
#undef BYTES
}

/* The container of a tile that keeps signs: it is not empty, but may have no nonzeros. full: it has a run of 256
 * nonzeros. */
PICI_CONTAINER_FN unsigned container_of_signs(unsigned nonzeros, int full)
{
    if (nonzeros <= OFFSETS12_MOST)
        return PICI_OFFSETS12;
    return full || nonzeros > OFFSETS8_MOST ? PICI_BITVECTOR : PICI_OFFSETS8;
}

/* The container of a tile of `elements` elements, nonzeros > 0. */
PICI_CONTAINER_FN unsigned container_of(unsigned nonzeros, unsigned elements, unsigned width_log2, int full)
{
    const unsigned best = container_of_signs(nonzeros, full);
    return (elements - nonzeros) << width_log2 < container_payload(best, nonzeros) ? (unsigned)PICI_RAW : best;
}

/* The number of values that a tile stores. */
PICI_CONTAINER_FN unsigned container_stored(unsigned container, unsigned nonzeros, unsigned elements)
{
    return container == PICI_RAW ? elements : nonzeros;
}

/* The bytes that a nonempty tile adds to a record. */
PICI_CONTAINER_FN unsigned container_cost(unsigned container, unsigned nonzeros, unsigned elements, unsigned width_log2)
{
    return container_descriptor_bytes(container) + container_payload(container, nonzeros) +
           (container_stored(container, nonzeros, elements) << width_log2);
}

/* The same for a tile that keeps `signs` bytes of signs. */
PICI_CONTAINER_FN unsigned container_cost_signs(unsigned container, unsigned nonzeros, unsigned signs,
                                                unsigned width_log2)
{
    return 2 + SIGN_DESCRIPTOR + container_payload(container, nonzeros) + signs + (nonzeros << width_log2);
}

/* The descriptor of a tile: the first byte in bits 0 to 7, the second, if there is one, in bits 8 to 15. */
PICI_CONTAINER_FN unsigned container_descriptor(unsigned container, unsigned nonzeros)
{
    return container == PICI_OFFSETS12
               ? nonzeros
               : DESCRIPTOR_TWO | container << 4 | (nonzeros - 1) >> 8 | ((nonzeros - 1) & 255) << 8;
}

/* The same for a tile that keeps signs. */
PICI_CONTAINER_FN unsigned container_descriptor_signs(unsigned container, unsigned nonzeros)
{
    return container == PICI_OFFSETS12 ? DESCRIPTOR_TWO | DESCRIPTOR_SIGNS | nonzeros << 8
                                       : DESCRIPTOR_SIGNS | container_descriptor(container, nonzeros);
}

/* The contents of a descriptor. */
struct container_said {
    unsigned container, n;
    int signs; /* the tile keeps signs */
    int full;  /* the container is valid only if the tile has a run of 256 nonzeros */
};

/* Read the descriptor of a tile of `elements` elements; second is 0 if it has one byte. Returns 0 if it is invalid. */
PICI_CONTAINER_FN int container_read(struct container_said *said, unsigned first, unsigned second, unsigned elements,
                                     unsigned width_log2)
{
    const int two_bytes = (first & DESCRIPTOR_TWO) != 0;
    const unsigned container = two_bytes ? first >> 4 & 3 : (unsigned)PICI_OFFSETS12;
    const unsigned nonzeros = !two_bytes ? first : container ? (first & 15) * 256 + second + 1 : second;
    said->container = container;
    said->n = nonzeros;
    said->signs = two_bytes && first & DESCRIPTOR_SIGNS;
    said->full = 0;
    if ((two_bytes && !container && first != (DESCRIPTOR_TWO | DESCRIPTOR_SIGNS)) || (!nonzeros && !said->signs) ||
        nonzeros > elements)
        return 0;
    said->full =
        container != (said->signs ? container_of_signs(nonzeros, 0) : container_of(nonzeros, elements, width_log2, 0));
    return !said->full || container == (said->signs ? container_of_signs(nonzeros, 1)
                                                    : container_of(nonzeros, elements, width_log2, 1));
}

#ifdef __cplusplus
} /* namespace pici */
#endif

#endif
