/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Error messages; the clock; whether the process has forked. */
#ifndef PICI_LIB_COLL_NOTE_H
#define PICI_LIB_COLL_NOTE_H

#include "coll/comm.h"

/* Note an error message. A communicator keeps the first one, unless that is harmless. comm NULL: for making
 * communicators on this thread, which keeps the last note. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void pici_coll_note(struct pici_comm *, const char *format, ...);
/* Note that a message from or to a peer failed; returns status. */
enum pici_status pici_coll_lost(struct pici_comm *, int peer, enum pici_status status);
/* Seconds, monotonic. */
double pici_coll_now(void);
/* Differs between a process and its children. */
unsigned pici_coll_generation(void);

#endif
