/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shards of columns of tensors, which deltas of the whole change where they lie. */
#ifndef PICI_LIB_DELTA_COLUMNS_H
#define PICI_LIB_DELTA_COLUMNS_H

#include "delta/apply.h"

/* Makes the elements of a shard of columns, which the trail's base is. Hashes are of whole tensors and of pieces in a
 * row, so none is checked. PICI_E_UNSUPPORTED: the tensor is stored as small deltas. */
enum pici_status pici_columns_make(struct apply_job *job, const struct trail *trail);

#endif
