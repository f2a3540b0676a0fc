/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the tests of all transports share. No test framework, no thread, no MPI: each rank calls for itself. */
#ifndef PICI_TESTS_TRANSPORT_UTIL_H
#define PICI_TESTS_TRANSPORT_UTIL_H

#include "pici/transport.h"

struct traffic {
    uint64_t seed;
    int messages;      /* from each rank to each other, at most if one_sided */
    int one_sided;     /* how many go from one rank to another, if any, the seed says for each pair and direction */
    int window;        /* of sends and of receives in flight with a peer */
    size_t longest;    /* bytes of a message at the most */
    size_t each_bytes; /* not 0: the length of every message */
};

/* Send messages of pseudo-random lengths and contents to every peer, and receive such messages from every peer. Test
 * the requests in random order, and compare the received messages and their order with the sent ones. All ranks call it
 * with the same traffic. Null if all is well; else what is not, in words that live as long as the thread. */
const char *exchange(const struct pici_transport *, const struct traffic *);

/* Wait for the end of one request, up to ten seconds: PICI_E_TIMEOUT. */
enum pici_status finish(const struct pici_transport *, void *request, size_t *bytes);

/* Let the required functions and wait of a transport pass through *inner, a copy of it. *inner becomes its context, and
 * must be the first member of a struct of the caller. The caller then replaces the functions that it watches; these get
 * that struct as their context. */
void transport_wrap(struct pici_transport *, struct pici_transport *inner);

#endif
