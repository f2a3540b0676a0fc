/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One stream of bytes over several connections of two ranks: each connection in turn carries the next STRIPE_BYTES. A
 * link with a long delay needs more bytes in flight than the system allows one connection. */
#ifndef PICI_LIB_TRANSPORT_STRIPES_H
#define PICI_LIB_TRANSPORT_STRIPES_H

#include <sys/types.h>
#include <sys/uio.h>

enum { STRIPE_BYTES = 1 << 16, STRIPES_MOST = 64 };

struct stripes;

/* Make stripes over count sockets, 2 to STRIPES_MOST. pici_stripes_free closes all but the first, which stays the
 * caller's. NULL: no memory; nothing is closed. */
struct stripes *pici_stripes(const int *fds, int count);

void pici_stripes_free(struct stripes *);

/* As sendmsg and recvmsg, without waiting. */
ssize_t pici_stripes_send(struct stripes *, const struct iovec *, int parts);
ssize_t pici_stripes_recv(struct stripes *, const struct iovec *, int parts);

/* The sockets for the next byte to send, and for the next to receive. */
int pici_stripes_sends(const struct stripes *);
int pici_stripes_receives(const struct stripes *);

/* Socket i; -1: there are no more. */
int pici_stripes_fd(const struct stripes *, int i);

#endif
