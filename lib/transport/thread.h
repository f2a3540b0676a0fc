/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads of a process, and the faults that tests inject into it. */
#ifndef PICI_LIB_TRANSPORT_THREAD_H
#define PICI_LIB_TRANSPORT_THREAD_H

#include "pici/transport.h"

/* Fill in transports[ranks], of one group. PICI_E_NOMEM, PICI_E_ARG. Each is closed on its own; the last close frees
 * the group. After a rank has closed, its peers' requests to it end with PICI_E_PEER, or with its status of abandon().
 * Small messages (at most 2048 bytes) that it sent before are still delivered. */
enum pici_status pici_transport_threads(struct pici_transport *transports, int ranks);

/* Faults, each with its probability per message. The seed, the link and the message's number decide which happen;
 * timing does not. */
struct pici_thread_faults {
    uint64_t seed;
    double drop;     /* the message is never delivered, and the sender does not learn that */
    double delay;    /* it arrives up to delay_ms late */
    double truncate; /* it loses bytes at its end */
    double flip;     /* one bit of it changes, if it is received into host memory */
    double stall;    /* from this message on, none of the sender's arrives; peers do not learn of its close */
    double refuse;   /* send returns PICI_E_NOMEM */
    int delay_ms;
};

/* For tests: set the faults of the whole group of a transport that pici_transport_threads made. Before any message. */
void pici_transport_threads_faults(struct pici_transport *, const struct pici_thread_faults *);

#endif
