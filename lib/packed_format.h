/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of packed blocks; pici/runs.h has the layout of their runs. Pure integer functions, as in format.h.
 * Specification: formats/packed.md. */
#ifndef PICI_LIB_PACKED_FORMAT_H
#define PICI_LIB_PACKED_FORMAT_H

#include "format.h"
#include "pici/runs.h"

/* The layout of a packed block of this length of a float dtype. Returns 0 if there is no such block; index_offset is
 * set even then. */
FMT_FN int fmt_layout_packed(struct fmt_layout *l, unsigned version, unsigned dtype, uint64_t count, uint64_t nnz,
                             uint64_t block_bytes)
{
    const int signs = version == FMT_VERSION_SIGNS;
    uint64_t most;
    (void)fmt_layout_hybrid(l, version, dtype, count, 0, 0); /* sets all but the lengths */
    const uint64_t groups = fmt_groups(l->tiles), unit = fmt_unit_packed(l->width_log2);
    const uint64_t tile = TILE_BITS_BYTES + 2 + FMT_PACKED_TILE + (signs ? SIGN_DESCRIPTOR + SIGNS_MOST : 0);
    const uint64_t rest = l->body_offset + l->tiles * tile + groups * (3 + FMT_PACKED_GROUP + unit);
    l->values_offset = l->block_bytes = block_bytes;
    return fmt_muladd(&most, nnz, UINT64_C(1) << l->width_log2, rest) && block_bytes >= l->body_offset &&
           block_bytes <= (nnz || signs ? most : l->body_offset) && (block_bytes - l->body_offset) % unit == 0;
}

/* Bytes of the longest packed block; 0 if that exceeds 64 bits. */
FMT_FN uint64_t fmt_bound_packed(unsigned dtype, uint64_t count)
{
    struct fmt_layout l;
    uint64_t bytes;
    (void)fmt_layout_hybrid(&l, FMT_VERSION, dtype, count, 0, 0);
    const uint64_t group = 3 + FMT_PACKED_GROUP + fmt_unit_packed(l.width_log2);
    const uint64_t rest = l.body_offset + (2 + FMT_PACKED_TILE) * l.tiles + fmt_groups(l.tiles) * group;
    return fmt_muladd(&bytes, count, UINT64_C(1) << l.width_log2, rest) ? bytes : 0;
}

#endif
