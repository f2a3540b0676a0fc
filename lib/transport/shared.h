/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that two ranks of a host share, with a ring each way: it carries what their socket would. The socket stays: a
 * byte on it wakes a rank that waits, and its end is the end of the peer.
 *
 * One rank makes the memory (a file without a name, memfd_create) and tells the other its process and descriptor. The
 * other opens that through /proc, which the system lets processes of the same user do, and takes it only if it is the
 * file that was named, of the right size, sealed so that it stays so, and not yet taken. Once both have it mapped no
 * descriptor of it is open, and no file has a name: nothing is left when they die. */
#ifndef PICI_LIB_TRANSPORT_SHARED_H
#define PICI_LIB_TRANSPORT_SHARED_H

#include <sys/types.h>
#include <sys/uio.h>

#include "transport/greeting.h"
#include "transport/ring.h"

struct shared;

/* The bytes of each ring where so many ranks of a host share memory in pairs. */
uint32_t pici_shared_ring_bytes(int ranks);

/* Make the memory, and the offer of it. *fd is to be closed when the peer has answered. On failure NULL, *fd is -1, and
 * the offer is of nothing and says why. */
struct shared *pici_shared_make(struct greeting_offer *, uint32_t ring_bytes, int *fd);

/* Open what a peer offers. NULL: errno is why not. */
struct shared *pici_shared_open(const struct greeting_offer *);

void pici_shared_free(struct shared *);

/* As sendmsg and recvmsg on the peer's socket, without waiting: errno is EAGAIN if nothing can be moved now; EPIPE or 0
 * if the peer has ended, and all that it sent is read; EBADMSG if it has damaged the memory. */
ssize_t pici_shared_send(struct shared *, int fd, const struct iovec *, int parts);
ssize_t pici_shared_recv(struct shared *, int fd, const struct iovec *, int parts);

/* Write a stream's last word. */
void pici_shared_end(struct shared *, const uint8_t last[RING_LAST]);

/* Before the socket is polled for input: have the peer wake this rank when it has received, or sent, something. Returns
 * whether it has already. Afterwards: the same with zeros. */
int pici_shared_waits(struct shared *, int sends, int receives);

/* The socket has input: wake-ups, or its end. Takes some at a time, so that no peer can keep this rank busy. */
void pici_shared_hear(struct shared *, int fd);

#endif
