/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Checks a call's options, and merges them with the settings. */
#ifndef PICI_LIB_COLL_OPTIONS_H
#define PICI_LIB_COLL_OPTIONS_H

#include "coll/layout.h"

/* Check for errors that are the same on all ranks; the call returns these at once. *checked: the options, with defaults
 * for members that the caller's struct does not have. */
enum pici_status pici_options_check(struct pici_coll_opts *checked, const struct pici_comm *, const struct call_args *,
                                    const struct pici_coll_opts *);

/* Write the call's statistics to the caller's struct, whose size was checked. */
void pici_options_stats(struct pici_coll_stats *theirs, const struct pici_coll_stats *);

/* Resolve a call's options and sizes. PICI_E_ARG: an option or an argument is wrong, perhaps on this rank alone; reason
 * [bytes, or NULL and 0] says which. */
enum pici_status pici_options_resolve(struct coll_call *, const struct pici_comm *, const struct pici_coll_opts *,
                                      char *reason, size_t bytes);

#endif
