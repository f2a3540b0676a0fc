/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed messages: whether the ranks of a call can read them, and which messages of this rank are packed. */
#ifndef PICI_LIB_COLL_PACKING_H
#define PICI_LIB_COLL_PACKING_H

#include "coll/request.h"

/* What this rank can do with packed messages: bits, enum call_can. */
uint32_t pici_packing_can(const struct pici_request *);

/* After the call agreement, or in a call without one: set whether and how its messages are packed. */
void pici_packing_resolve(struct pici_request *);

/* Change the chosen format of a slice's message to PACKED if it is to be packed. counted: nonzeros are known. */
void pici_packing_choose(const struct pici_request *, struct slice_run *, const struct schedule_message *,
                         enum policy_link, int counted);

/* Examine the finished block of a message that was to be packed. Returns its format. */
enum pici_format pici_packing_made(struct pici_request *, const uint8_t *block, size_t size);

#endif
