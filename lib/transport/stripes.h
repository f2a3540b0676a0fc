/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One stream of bytes over several connections of two ranks: stripes of STRIPE_BYTES go over one after the other, in
 * turn. A link with a long delay takes more bytes in flight than a connection is given. */
#ifndef PICI_LIB_TRANSPORT_STRIPES_H
#define PICI_LIB_TRANSPORT_STRIPES_H

#include <sys/types.h>
#include <sys/uio.h>

enum { STRIPE_BYTES = 1 << 16, STRIPES_MOST = 64 };

struct stripes;

/* Over count sockets, 2 to STRIPES_MOST, the first of which is the caller's; the others are closed with the stripes.
 * NULL: no memory; nothing is closed. */
struct stripes *pici_stripes(const int *fds, int count);

void pici_stripes_free(struct stripes *);

/* As sendmsg and recvmsg, without waiting. */
ssize_t pici_stripes_send(struct stripes *, const struct iovec *, int parts);
ssize_t pici_stripes_recv(struct stripes *, const struct iovec *, int parts);

/* The sockets that the next byte goes over, and comes over. */
int pici_stripes_sends(const struct stripes *);
int pici_stripes_receives(const struct stripes *);

/* Socket i; -1: there are no more. */
int pici_stripes_fd(const struct stripes *, int i);

#endif
