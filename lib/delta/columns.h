/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shards that are columns of tensors. Deltas of the whole tensors change them in place. */
#ifndef PICI_LIB_DELTA_COLUMNS_H
#define PICI_LIB_DELTA_COLUMNS_H

#include "delta/apply.h"

/* Makes the elements of the trail's base, a shard of columns. It checks no hashes: these cover whole tensors, or
 * consecutive elements. PICI_E_UNSUPPORTED: the tensor is stored as small deltas. */
enum pici_status pici_columns_make(struct apply_job *job, const struct trail *trail);

#endif
