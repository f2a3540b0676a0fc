/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators among processes, of one host or of many, over TCP or any other connected stream sockets. Data is not
 * encrypted by default. docs/tutorials/first-cluster.md has an example, and explains the errors. */
#ifndef PICI_SOCKET_H
#define PICI_SOCKET_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over sockets that the caller has connected, one for each pair of ranks.
 *   fds [ranks]   fds[r]: a connected stream socket whose other end is rank r's fds[rank]; fds[rank] is ignored
 * Collective: each rank introduces itself over each socket, and returns when all ranks have. So all ranks must make the
 * call at about the same time, within the timeout (PICI_TIMEOUT_MS). Each returns the same status.
 *
 * The communicator owns the sockets from now on. pici_comm_free closes them. If this call fails, it closes them before
 * it returns, but no descriptors other than sockets. A socket must have no unread data, and nobody else may use it. TCP
 * sockets get the option TCP_NODELAY; all get FD_CLOEXEC. A lost peer raises no signal.
 *
 * Ranks on the same host (the same boot of a kernel) and in the same network namespace share a node, unless
 * pici_comm_set_nodes says otherwise. If a rank dies, ranks that exchange messages with it notice at once, and notify
 * all others: PICI_E_PEER, and pici_comm_error names the rank. If a host vanishes silently, the timeout ends the call.
 *
 * PICI_E_ARG: on some rank: null, rank or ranks out of range, an fds[r] that is not a stream socket or occurs twice, or
 * an environment variable with an invalid value. PICI_E_PEER: a rank runs another version, is not the rank that fds
 * states, or closed a socket. PICI_E_TIMEOUT: a rank is silent. PICI_E_NOMEM, PICI_E_TRANSPORT. PICI_E_IO: the file of
 * PICI_TRACE cannot be written. pici_comm_error(NULL) names the rank. */
PICI_API enum pici_status pici_comm_sockets(struct pici_comm **, const int *fds, int rank, int ranks);

/* Make a communicator among processes that know one address. Rank 0 listens there until all others have connected, and
 * sends each the addresses of the others; then every pair connects. Collective, as above; ranks may arrive in any
 * order, within the timeout.
 *   address   "HOST:PORT", where rank 0 listens: a name, an IPv4 address, or an IPv6 address in brackets.
 *             NULL: PICI_RENDEZVOUS
 *   rank      -1, or 0 if ranks is 0: PICI_RANK
 *   ranks     0: PICI_RANKS
 *   token     at most 64 bytes, the same on all ranks; a rank closes connections that do not begin with it. NULL:
 *             PICI_TOKEN, or "" if that is not set. An empty token is allowed only if all ranks listen at loopback
 *             addresses. Other hosts cannot reach these, but other users of this host can
 * Each rank except 0 listens at the address of the interface through which it reaches rank 0, or of PICI_SOCKET_IFNAME.
 * The system chooses the port, or PICI_SOCKET_PORTS (LOW-HIGH) limits it. Ranks send the token in plain text: it keeps
 * out peers that do not know it, but not those who can read the network. PICI_SOCKET_TLS=1 encrypts connections with a
 * key derived from the token, which is then not sent, or with certificates (docs/tutorials/first-cluster.md,
 * "Encryption"). Without OpenSSL in the build, that is PICI_E_UNSUPPORTED.
 *
 * Errors as above. PICI_E_ARG also: an address, token or variable is invalid or missing. That rank does not join: it
 * alone returns this status, at once, and the others return PICI_E_TIMEOUT. PICI_E_TRANSPORT: rank 0 cannot listen at
 * the address, or a connection fails. PICI_E_PEER: ranks pass different `ranks`, two pass the same rank, or a token is
 * wrong. PICI_E_TIMEOUT: a rank did not arrive; on the others the error names it. */
PICI_API enum pici_status pici_comm_rendezvous(struct pici_comm **, const char *address, int rank, int ranks,
                                               const char *token);

#ifdef __cplusplus
}
#endif
#endif
