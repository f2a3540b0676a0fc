/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of the collectives in pici/coll.h. */
#ifndef PICI_LIB_COLL_ORDINARY_H
#define PICI_LIB_COLL_ORDINARY_H

#include "coll/rules.h"

/* The rules of a collective that exists. */
const struct call_rules *pici_ordinary_rules(enum pici_collective);

/* Table entries: any message may have any buffer; and gathers copy a rank's own contribution to the result. */
void pici_ordinary_set_buffers(struct pici_request *, uint8_t *memory);
int pici_ordinary_has_buffers(const struct pici_request *, int run, int step, int receives);
struct coll_buffer *pici_ordinary_acquire_buffer(struct pici_request *, int run, int step, int receives, int message);
void pici_ordinary_free_buffer(struct pici_request *, struct coll_buffer *);
void pici_ordinary_place_own(struct pici_request *, const struct slice_run *);
#define ORDINARY_BUFFERS                                                                                               \
    .set_buffers = pici_ordinary_set_buffers, .has_buffers = pici_ordinary_has_buffers,                                \
    .acquire_buffer = pici_ordinary_acquire_buffer, .free_buffer = pici_ordinary_free_buffer

#endif
