/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec's part for hybrid, and for packed but for its runs. */
#ifndef PICI_FORMATS_REF_HYBRID_H
#define PICI_FORMATS_REF_HYBRID_H

#include "ref_base.h"

/* Set the fields of h that follow from the others and from values_offset. Returns 0 if values_offset breaks a rule;
 * index_offset is set even then. */
int ref_hybrid_lay_out(struct ref_header *h, uint64_t values_offset);

/* Check the rules of the body. */
enum ref_status ref_hybrid_verify(const struct ref_header *h, const uint8_t *block, struct ref_fault *fault);

/* The body, with room for a header before it, to be freed; NULL without memory. h has format, flags, count, dtype,
 * width, index_width and tiles; version, nnz and the layout are set. version_1: no tile keeps signs. */
uint8_t *ref_hybrid_encode(struct ref_header *h, const void *src, int version_1);

/* Take all elements of a valid block; dst is zero unless they are added. REF_E_NOMEM: not all were. */
enum ref_status ref_hybrid_apply(const struct ref_header *h, void *dst, const uint8_t *block, int add);

#endif
