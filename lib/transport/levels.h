/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport of a communicator on two levels: messages between ranks of a node go over one transport, all others
 * over another. */
#ifndef PICI_LIB_TRANSPORT_LEVELS_H
#define PICI_LIB_TRANSPORT_LEVELS_H

#include "pici/transport.h"

/* Fill in a transport over two. It has the ranks of `outer`. node_of [ranks]: the lowest rank on each rank's node.
 * number [ranks]: a rank's number in `inner`, or -1 for ranks of other nodes. Arrays and structs are copied. At most
 * one of the two has steps. PICI_E_NOMEM: nothing is closed.
 *
 * close() closes both, once pici_transport_levels_own was called. */
enum pici_status pici_transport_levels(struct pici_transport *, const struct pici_transport *inner,
                                       const struct pici_transport *outer, const int *number, const int *node_of);
void pici_transport_levels_own(const struct pici_transport *);

/* For tests: how many milliseconds a request inside a node may take after its peer is gone. */
extern int pici_levels_grace_ms;

#endif
