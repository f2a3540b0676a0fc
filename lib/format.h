/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of a block: its constants, and pure integer functions. pici/containers.h has the containers of hybrid's
 * tiles. Needs no special hardware, so that host, device and tests can share it. Specifications: formats/block.md,
 * formats/hybrid.md; packed_format.h is for formats/packed.md. */
#ifndef PICI_LIB_FORMAT_H
#define PICI_LIB_FORMAT_H

#include <stdint.h>

#include "pici/containers.h"

#ifdef __cplusplus
using pici::GROUP_TILES, pici::SIGN_DESCRIPTOR, pici::SIGNS_MOST, pici::TILE, pici::TILE_BITS_BYTES, pici::TILE_COLS,
    pici::TILE_ROWS;
#endif

#ifdef __CUDACC__
#define FMT_FN static __host__ __device__ inline
#else
#define FMT_FN static inline
#endif

/* Byte offsets of the header's fields. */
enum {
    HDR_MAGIC = 0,
    HDR_VERSION = 4,
    HDR_FORMAT = 5,
    HDR_DTYPE = 6,
    HDR_FLAGS = 7,
    HDR_COUNT = 8,
    HDR_NNZ = 16,
    HDR_INDEX_OFFSET = 24,
    HDR_VALUES_OFFSET = 32,
    HDR_CHECKSUM = 40,
    HDR_BYTES = 48
};

/* The name of the format bitmap until version 0.3: accepted wherever a user or a file names a format. */
#define FMT_BITMAP_ALIAS "pici"

enum {
    FMT_VERSION = 1,
    FMT_VERSION_SIGNS = 2 /* hybrid with a tile that keeps signs */
};
enum { FMT_DENSE = 0, FMT_BITMAP = 1, FMT_COO = 2, FMT_HYBRID = 3, FMT_PACKED = 4 };
enum { FLAG_INDEX64 = 1, FLAG_CHECKSUM = 2, FLAG_ALL = 3, FLAG_ONE_LEVEL = 4 /* packed */ };
enum { DTYPE_FIRST = 1, DTYPE_FLOAT_LAST = 6, DTYPE_LAST = 14 };

/* log2 of the bytes of an element of dtype; -1 for a dtype that does not exist. */
FMT_FN int fmt_width_log2(unsigned dtype)
{
    /* two bits a dtype, from dtype 1 on: f32 f64 f16 bf16 f8 f8 i8 u8 i16 u16 i32 u32 i64 u64 */
    const uint32_t w = 2u | 3u << 2 | 1u << 4 | 1u << 6 | 0u << 8 | 0u << 10 | 0u << 12 | 0u << 14 | 1u << 16 |
                       1u << 18 | 2u << 20 | 2u << 22 | 3u << 24 | 3u << 26;
    return dtype < DTYPE_FIRST || dtype > DTYPE_LAST ? -1 : (int)(w >> 2 * (dtype - 1) & 3);
}

/* Is a valid dtype one of floats? */
FMT_FN int fmt_is_float(unsigned dtype)
{
    return dtype <= DTYPE_FLOAT_LAST;
}

/* Offsets and lengths of the parts of a block. */
struct fmt_layout {
    uint64_t tiles;         /* bitmap, hybrid and packed: tiles; else 0 */
    uint64_t index_offset;  /* bytes */
    uint64_t index_bytes;   /* without the padding */
    uint64_t body_offset;   /* bytes: where the padding ends; hybrid, packed: first record; else values_offset */
    uint64_t values_offset; /* bytes */
    uint64_t block_bytes;
    unsigned index_width; /* bytes: 4 or 8; 0 in dense */
    unsigned width_log2;  /* of an element */
    unsigned version;     /* of the block */
};

FMT_FN uint64_t fmt_tiles(uint64_t count)
{
    return count / TILE + (count % TILE != 0);
}

/* Bytes of an index entry; depends on the count alone. */
FMT_FN unsigned fmt_index_width(uint64_t count)
{
    return count > UINT64_C(1) << 32 ? 8 : 4;
}

FMT_FN unsigned fmt_flags(unsigned format, uint64_t count)
{
    return format != FMT_DENSE && fmt_index_width(count) == 8 ? FLAG_INDEX64 : 0;
}

/* Has column c of a tile of `remaining` elements a bit set beyond its end? */
FMT_FN int fmt_past_end(uint64_t word, unsigned c, uint64_t remaining)
{
    uint64_t rows = remaining > c ? (remaining - c + TILE_COLS - 1) / TILE_COLS : 0;
    return rows < TILE_ROWS && word >> rows != 0;
}

/* *r = a * b + c; returns 0 if that exceeds 64 bits. */
FMT_FN int fmt_muladd(uint64_t *r, uint64_t a, uint64_t b, uint64_t c)
{
    if (b && a > (UINT64_MAX - c) / b)
        return 0;
    *r = a * b + c;
    return 1;
}

/* ---- hybrid ---- */

FMT_FN uint64_t fmt_groups(uint64_t tiles)
{
    return tiles / GROUP_TILES + (tiles % GROUP_TILES != 0);
}

/* The unit of records, in bytes: they are aligned to it, and the directory counts in it. */
FMT_FN unsigned fmt_unit(unsigned width_log2)
{
    return width_log2 <= 1 ? 4 : 2u << width_log2;
}

/* The parameter of the Rice codes of m listed zeros of z, m > 0. */
FMT_FN unsigned fmt_rice(unsigned m, unsigned z)
{
    unsigned k = 0;
    while (25 * m << k <= 6 * (2 * z - m))
        k++;
    return k;
}

/* Bytes of the signs of a tile that lists m zeros of z, with u unary bits. */
FMT_FN unsigned fmt_signs(unsigned m, unsigned z, unsigned u)
{
    return m ? (u + 7) / 8 + (m * fmt_rice(m, z) + 7) / 8 : 0;
}

/* Offset of the values in a record with this many bytes of metadata, which precede padding and values. */
FMT_FN uint64_t fmt_record_values(uint64_t metadata, unsigned width_log2)
{
    const uint64_t remainder = (UINT64_C(1) << width_log2) - 1;
    return (metadata + remainder) & ~remainder;
}

/* Bytes of a record with these bytes of metadata and of values. */
FMT_FN uint64_t fmt_record(uint64_t metadata, uint64_t values, unsigned width_log2)
{
    const uint64_t remainder = fmt_unit(width_log2) - 1;
    return (fmt_record_values(metadata, width_log2) + values + remainder) & ~remainder;
}

/* Does a format have groups of tiles: is it hybrid or packed? */
FMT_FN int fmt_has_groups(unsigned format)
{
    return format == FMT_HYBRID || format == FMT_PACKED;
}

/* May a block be of this version? */
FMT_FN int fmt_version(unsigned version, unsigned format, unsigned dtype)
{
    return version == FMT_VERSION || (version == FMT_VERSION_SIGNS && fmt_has_groups(format) && fmt_is_float(dtype));
}

/* The layout of a hybrid block of a valid dtype with this values_offset in its header. Returns 0 if there is no such
 * block; index_offset is set even then. */
FMT_FN int fmt_layout_hybrid(struct fmt_layout *l, unsigned version, unsigned dtype, uint64_t count, uint64_t nonzeros,
                             uint64_t values_offset)
{
    const int signs = version == FMT_VERSION_SIGNS;
    l->version = version;
    l->tiles = fmt_tiles(count);
    l->index_width = fmt_index_width(count);
    l->width_log2 = (unsigned)fmt_width_log2(dtype);
    l->index_offset = HDR_BYTES;
    const uint64_t groups = fmt_groups(l->tiles); /* all that follows is below 2^63 */
    const unsigned unit = fmt_unit(l->width_log2);
    l->index_bytes = groups * l->index_width;
    l->body_offset = (HDR_BYTES + l->index_bytes + 15) & ~UINT64_C(15);
    l->values_offset = values_offset;
    const uint64_t tile = TILE_BITS_BYTES + 2 + (signs ? SIGN_DESCRIPTOR + SIGNS_MOST : 0);
    const uint64_t most = nonzeros || signs ? l->tiles * tile + groups * (3 + unit) : 0;
    return values_offset >= l->body_offset && values_offset - l->body_offset <= most &&
           fmt_muladd(&l->block_bytes, nonzeros, UINT64_C(1) << l->width_log2, values_offset) &&
           (l->block_bytes - l->body_offset) % unit == 0;
}

/* Bytes of the longest hybrid block; 0 if that exceeds 64 bits. */
FMT_FN uint64_t fmt_bound_hybrid(unsigned dtype, uint64_t count)
{
    struct fmt_layout l;
    uint64_t bytes;
    (void)fmt_layout_hybrid(&l, FMT_VERSION, dtype, count, 0, 0);
    const uint64_t remainder = l.body_offset + 2 * l.tiles + fmt_groups(l.tiles) * (3 + fmt_unit(l.width_log2));
    return fmt_muladd(&bytes, count, UINT64_C(1) << l.width_log2, remainder) ? bytes : 0;
}

/* ---- dense, bitmap, coo ---- */

/* The layout of a dense, bitmap or coo block of a valid dtype with `nonzeros` values (dense: nonzeros == count).
 * Returns 0 if a length exceeds 64 bits; index_offset is set even then. */
FMT_FN int fmt_layout(struct fmt_layout *l, unsigned format, unsigned dtype, uint64_t count, uint64_t nonzeros)
{
    l->version = FMT_VERSION;
    l->tiles = format == FMT_BITMAP ? fmt_tiles(count) : 0;
    l->index_width = format == FMT_DENSE ? 0 : fmt_index_width(count);
    l->width_log2 = (unsigned)fmt_width_log2(dtype);
    l->index_offset = HDR_BYTES + l->tiles * TILE_BITS_BYTES; /* below 2^62 */
    uint64_t end;
    if (!fmt_muladd(&end, format == FMT_BITMAP ? l->tiles : nonzeros, l->index_width, l->index_offset) ||
        end > UINT64_MAX - 15)
        return 0;
    l->index_bytes = end - l->index_offset;
    l->values_offset = format == FMT_DENSE ? (uint64_t)HDR_BYTES : (end + 15) & ~UINT64_C(15);
    l->body_offset = l->values_offset;
    return fmt_muladd(&l->block_bytes, nonzeros, UINT64_C(1) << l->width_log2, l->values_offset);
}

#endif
