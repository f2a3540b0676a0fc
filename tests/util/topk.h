/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A slow pici_topk, written from pici/topk.h alone. It sorts, and computes in integers. */
#ifndef PICI_TESTS_TOPK_UTIL_H
#define PICI_TESTS_TOPK_UTIL_H

#include "pici/topk.h"

/* What pici_topk must do for a correct call with PICI_SELECT_BUCKET or PICI_SELECT_GLOBAL. */
void topk_reference(void *out, uint64_t *nnz, void *residual, void *velocity, const void *gradient, uint64_t n,
                    enum pici_dtype, const struct pici_topk_opts *);

#endif
