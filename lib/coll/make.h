/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Changing communicators, besides the public functions. */
#ifndef PICI_LIB_COLL_MAKE_H
#define PICI_LIB_COLL_MAKE_H

#include "pici/coll.h"

struct pici_engine;
struct schedule;

/* For libraries with an engine: use it from the next call on for the buffers that it owns. The communicator closes it.
 * On an error the caller keeps it. PICI_E_BROKEN: broken, or requests are in flight. PICI_E_UNSUPPORTED: the table is
 * of another version. */
PICI_API enum pici_status pici_comm_engine(struct pici_comm *, const struct pici_engine *, void *self);

/* Free a communicator without closing its transport. */
void pici_comm_shell(struct pici_comm *);

/* For tests: use this schedule, which need not be in the registry, in calls whose options and settings leave the
 * algorithm open. NULL: as usual. */
void pici_comm_force(struct pici_comm *, const struct schedule *);

#endif
