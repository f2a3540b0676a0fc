/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec of small deltas, written from small-delta.md alone: slow, an element at a time. */
#ifndef PICI_FORMATS_REF_SMALL_H
#define PICI_FORMATS_REF_SMALL_H

#include "ref_base.h"
#include "ref_small_twist.h"

enum { REF_SMALL_CHUNK = 1 << 19 };

/* Encode what leads from base to src, n elements each (host order); format: of the XOR chunks, not AUTO. Returns the
 * delta, to be freed; NULL without memory, or if dtype or format is unknown. */
uint8_t *ref_small_encode(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype, unsigned format,
                          int checksum);

/* Likewise of elements [first, first + n) of `of`: version 2, unless these are all, or 3. */
uint8_t *ref_small_encode_part(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                               unsigned dtype, unsigned format, int checksum);

/* Likewise of u8 elements that hold two e2m1 each. */
uint8_t *ref_small_encode_pairs(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                                unsigned format, int checksum);

/* Columns [first, first + count) of `rows` rows, two at least, of `row` elements, more than count. */
struct ref_columns {
    uint64_t rows, row, first, count;
};

/* Likewise of columns, whose elements are at base and src, row by row without a gap: version 4. */
uint8_t *ref_small_encode_columns(size_t *len, const void *base, const void *src, const struct ref_columns *,
                                  unsigned dtype, unsigned format, int checksum, int pairs);

/* Apply to n elements at dst (host order), which are the base. REF_E_ARG: n is not the count. After an error dst is
 * unchanged. */
enum ref_status ref_small_apply(void *dst, uint64_t n, const uint8_t *delta, size_t len);

/* Apply to elements [first, first + n) of `of`, which are at dst. REF_E_ARG too: the delta, or the row of them, has not
 * all of these; or a context chunk has some and not all of its elements among them. */
enum ref_status ref_small_apply_range(void *dst, uint64_t n, uint64_t first, uint64_t of, const uint8_t *delta,
                                      size_t len);

/* Apply to columns, which are at dst without a gap. REF_E_ARG too: the deltas are not of columns of such rows, or have
 * not all of these, or one has some of these and others. */
enum ref_status ref_small_apply_columns(void *dst, const struct ref_columns *, const uint8_t *delta, size_t len);

/* The context chunk of n elements, n <= REF_SMALL_CHUNK, to be freed. pairs: u8 elements hold two e2m1
 * each. NULL without memory or if there is none: *len is then 0. */
uint8_t *ref_small_context(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype, int pairs,
                           enum ref_small_twist);

/* Decode one to dst, which is a copy of base. REF_E_CORRUPT: it is none of these elements. */
enum ref_status ref_small_read_context(void *dst, const void *base, uint64_t n, unsigned dtype, int pairs,
                                       const uint8_t *chunk, size_t len);

#endif
