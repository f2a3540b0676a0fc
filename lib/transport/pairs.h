/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How each two ranks exchange messages, once all have said that they can go on: by offers (greeting.h). */
#ifndef PICI_LIB_TRANSPORT_PAIRS_H
#define PICI_LIB_TRANSPORT_PAIRS_H

#include "transport/shared.h"
#include "transport/stripes.h"

/* What carries the messages of this rank and another. Both NULL: their socket. */
struct pair {
    struct shared *shared;
    struct stripes *stripes;
};

struct pairs {
    const int *fds, *node_of; /* [ranks] */
    int rank, ranks, timeout_ms;

    /* This rank's own settings: share memory with ranks of this node; have so many connections with others, for which
     * to listen at one of these ports. */
    int share, connections, ports[2];

    struct pair *pair; /* [ranks] results, which the caller owns then */

    /* Of how many ranks that was wanted and could not be had, and for the first of them what, and why. */
    int failures;
    char explanation[160];
};

/* All ranks call this, with a socket for each. A rank that does not do its part in time has its socket shut down.
 * PICI_E_NOMEM: all sockets are. */
enum pici_status pici_pairs(struct pairs *);

#endif
