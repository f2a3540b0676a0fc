/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators among processes, of one host or of many, over TCP or any other connected stream sockets. Data is not
 * encrypted. docs/tutorials/first-cluster.md has an example, and what the errors mean. */
#ifndef PICI_SOCKET_H
#define PICI_SOCKET_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over sockets that the caller has connected, one for each pair of ranks.
 *   fds [ranks]   fds[r]: a connected stream socket whose other end is rank r's fds[rank]; fds[rank] is ignored
 * Collective: each rank says over each socket who it is, and returns when all have. So all ranks must make the call at
 * about the same time, within the timeout (PICI_TIMEOUT_MS), and each returns the same status.
 *
 * The communicator owns the sockets from now on. pici_comm_free closes them; if this call fails, it closes them before
 * it returns (but no other kind of file that the caller took for a socket). Nothing may be unread on a socket, and
 * nobody else may use it. Sockets of TCP get the option TCP_NODELAY; all get FD_CLOEXEC. No signal is raised when a
 * peer is gone.
 *
 * Ranks on the same host (the same boot of a kernel) and in the same network namespace share a node, unless
 * pici_comm_set_nodes says otherwise. A rank that dies is noticed at once by those that exchange messages with it, and
 * through them by all: PICI_E_PEER, and pici_comm_error names it. A host that vanishes without a word is noticed by the
 * timeout.
 *
 * PICI_E_ARG: null, rank or ranks out of range, an fds[r] that is no stream socket or is there twice, or an environment
 * variable with an invalid value, on some rank. PICI_E_PEER: a rank runs another version, or is another rank than the
 * caller's fds say, or closed a socket. PICI_E_TIMEOUT: a rank says nothing. PICI_E_NOMEM, PICI_E_TRANSPORT.
 * PICI_E_IO: the file of PICI_TRACE cannot be written. pici_comm_error(NULL) names the rank. */
PICI_API enum pici_status pici_comm_sockets(struct pici_comm **, const int *fds, int rank, int ranks);

/* Make a communicator among processes that know one address. Rank 0 listens there until all others have come, and then
 * tells each where the others are; every pair connects. Collective, as above; ranks may come in any order, within the
 * timeout.
 *   address   "HOST:PORT", where rank 0 listens: a name, an IPv4 address, or an IPv6 address in brackets.
 *             NULL: PICI_RENDEZVOUS
 *   rank      -1, or 0 if ranks is 0: PICI_RANK
 *   ranks     0: PICI_RANKS
 *   token     at most 64 bytes, the same on all ranks; a connection that does not begin with it is closed.
 *             NULL: PICI_TOKEN; if that is not set, "". An empty token is allowed only if all ranks listen at loopback
 *             addresses, which other hosts cannot reach, but other users of this host can
 * A rank but 0 listens at the address of the interface over which it reaches rank 0, or of PICI_SOCKET_IFNAME, at a
 * port that the system chooses, or one of PICI_SOCKET_PORTS (LOW-HIGH). The token is sent as it is: it keeps out peers
 * that do not know it, but not those who can listen to the network. With PICI_SOCKET_TLS=1 connections are encrypted by
 * a key made of the token, which is not sent, or with certificates (docs/tutorials/first-cluster.md, "Encryption").
 * PICI_E_UNSUPPORTED then: the library was built without OpenSSL.
 *
 * Errors as above. PICI_E_ARG too: an address, a token or a variable that makes no sense, or is missing. That rank does
 * not join, so it alone returns this status, at once; the others miss it, and return PICI_E_TIMEOUT. PICI_E_TRANSPORT:
 * rank 0 cannot listen at the address, or a connection fails. PICI_E_PEER: ranks differ in their number of ranks, two
 * have the same number, or a token is wrong. PICI_E_TIMEOUT: a rank did not come; on those that came the error names
 * it. */
PICI_API enum pici_status pici_comm_rendezvous(struct pici_comm **, const char *address, int rank, int ranks,
                                               const char *token);

#ifdef __cplusplus
}
#endif
#endif
