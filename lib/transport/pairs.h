/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Chooses how each pair of ranks exchanges messages, once all ranks can continue. Ranks exchange offers
 * (greeting.h). */
#ifndef PICI_LIB_TRANSPORT_PAIRS_H
#define PICI_LIB_TRANSPORT_PAIRS_H

#include "transport/shared.h"
#include "transport/stripes.h"

/* The carrier of messages between this rank and another. Both NULL: their socket. */
struct pair {
    struct shared *shared;
    struct stripes *stripes;
};

struct pairs {
    const int *fds, *node_of; /* [ranks] */
    int rank, ranks, timeout_ms;

    /* This rank's settings: share memory with ranks of this node; the number of connections with others, and the ports
     * to listen at for them. */
    int share, connections, ports[2];

    struct pair *pair; /* [ranks] results; the caller owns them afterwards */

    /* The number of peers with which an offer failed, and an explanation of the first failure. */
    int failures;
    char explanation[160];
};

/* All ranks call this, with a socket for each. Shuts down the socket of a rank that does not answer in time.
 * PICI_E_NOMEM: all sockets were shut down. */
enum pici_status pici_pairs(struct pairs *);

#endif
