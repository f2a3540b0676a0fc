/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that two ranks of a host share, with a ring in each direction. It replaces their socket for messages. The
 * socket stays open: a byte on it wakes a waiting rank, and its end means that the peer has ended.
 *
 * One rank makes the memory (a file without a name, memfd_create) and tells the other its process and descriptor. The
 * other opens it through /proc, which the system permits to processes of the same user. It accepts only the named file,
 * with the right size, sealed against changes of the size, and not yet taken. Once both have mapped it, no descriptor
 * is open and the file has no name. So nothing remains when they die. */
#ifndef PICI_LIB_TRANSPORT_SHARED_H
#define PICI_LIB_TRANSPORT_SHARED_H

#include <sys/types.h>
#include <sys/uio.h>

#include "transport/greeting.h"
#include "transport/ring.h"

struct shared;

/* The size of each ring in bytes, if `ranks` ranks of a host share memory in pairs. */
uint32_t pici_shared_ring_bytes(int ranks);

/* Make the memory, and the offer of it. The caller closes *fd after the peer has answered. On failure returns NULL and
 * an offer of nothing with the errno; *fd is -1. */
struct shared *pici_shared_make(struct greeting_offer *, uint32_t ring_bytes, int *fd);

/* Open the memory that a peer offers. Returns NULL on failure, and sets errno. */
struct shared *pici_shared_open(const struct greeting_offer *);

void pici_shared_free(struct shared *);

/* As sendmsg and recvmsg on the peer's socket, without waiting. errno is EAGAIN if nothing can move now, and EBADMSG if
 * the peer has damaged the memory. After the peer has ended, send fails with EPIPE, and recv returns 0 once it has read
 * everything. */
ssize_t pici_shared_send(struct shared *, int fd, const struct iovec *, int parts);
ssize_t pici_shared_recv(struct shared *, int fd, const struct iovec *, int parts);

/* Write the last bytes of the stream. */
void pici_shared_end(struct shared *, const uint8_t last[RING_LAST]);

/* Call this before polling the socket for input. It makes the peer wake this rank once this rank can send, or receive.
 * Returns whether it can already. Call it with zeros after polling. */
int pici_shared_waits(struct shared *, int sends, int receives);

/* Read the socket's input: wake-ups, or its end. Reads a limited number at a time, so that no peer can keep this rank
 * busy. */
void pici_shared_hear(struct shared *, int fd);

#endif
