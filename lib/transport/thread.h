/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads of a process, and its faults, for tests. */
#ifndef PICI_LIB_TRANSPORT_THREAD_H
#define PICI_LIB_TRANSPORT_THREAD_H

#include "pici/transport.h"

/* Fill in transports[ranks], of one group. PICI_E_NOMEM, PICI_E_ARG. Each is closed on its own; the group lives until
 * the last is. A rank that closes is gone: requests of its peers that it cannot meet any more end with PICI_E_PEER, or
 * with the status that it abandoned with. Small messages (256 bytes) that it sent before are still delivered. */
enum pici_status pici_transport_threads(struct pici_transport *transports, int ranks);

/* From now on this rank's messages may also be in memory that is not the host's, and is moved by another function than memcpy. Its
 * peers call it too, from their threads. No message is in flight. Does nothing to any other transport than one of threads. */
struct pici_mover {
    void *self;
    int (*owns)(void *self, const void *p); /* is it such memory? */
    int (*move)(void *self, void *to, const void *from,
                size_t bytes); /* from anywhere to anywhere; 0: it did not work */
};
void pici_transport_threads_mover(struct pici_transport *, const struct pici_mover *);

/* What goes wrong, each with its probability per message, drawn from the seed, the link and the message's number (not
 * from timing). */
struct pici_thread_faults {
    uint64_t seed;
    double drop;     /* the message is never delivered; the sender does not know */
    double delay;    /* it is delivered up to delay_ms later */
    double truncate; /* it loses bytes at its end */
    double flip;     /* one bit of it changes, if it is received into the host's memory */
    double stall;    /* the sender falls silent: nothing that it sends from this one on is delivered, nor its end */
    double refuse;   /* send fails with PICI_E_NOMEM */
    int delay_ms;
};

/* For tests: from now on; on a transport that pici_transport_threads made; concerns the whole group. Before any
 * message. */
void pici_transport_threads_faults(struct pici_transport *, const struct pici_thread_faults *);

#endif
