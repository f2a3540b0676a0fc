/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over connected stream sockets. */
#ifndef PICI_LIB_TRANSPORT_SOCKET_H
#define PICI_LIB_TRANSPORT_SOCKET_H

#include "transport/pairs.h"
#include "pici/transport.h"

/* Fill in a transport over fds[ranks], one socket for each peer, which it closes; fds[rank] is ignored. node_of[ranks]:
 * which ranks share a node. Both arrays are copied. PICI_E_NOMEM: nothing is closed. */
enum pici_status pici_transport_sockets(struct pici_transport *, const int *fds, const int *node_of, int rank,
                                        int ranks);

/* keep = 1: close() does nothing. keep = 0: close() works again. */
void pici_transport_sockets_keep(const struct pici_transport *, int keep);

/* Exchange messages with a peer over a pair's carrier instead of their socket. The transport frees the carrier. Call
 * this before the first message of either rank. */
void pici_transport_sockets_pair(const struct pici_transport *, int peer, const struct pair *);

#endif
