/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How bytes move between ranks: what a communicator stands on. The library brings transports for threads and MPI;
 * anyone can supply another by filling in this struct. examples/transport.c is one, over sockets.
 *
 * Messages from one rank to another arrive in the order in which they were sent: the nth message sent to a peer is the
 * nth that is received from this rank there. Nothing else is ordered. Many may be in flight. All functions are called
 * by the thread that drives the communicator, one at a time, never inside another; none may block but wait.
 *
 * Each rank receives as many messages as it sends. Its nth receive is posted before its nth send, and the two are an
 * exchange; what it sends in exchange n its peer receives in exchange n. That message depends on what the rank received
 * in exchanges before n only (before n - 1, if `more` was 1 for exchange n - 1). */
#ifndef PICI_TRANSPORT_H
#define PICI_TRANSPORT_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the bytes of a message may be: in the host's memory; there, or in a GPU's; of messages that hold elements, in a
 * GPU's alone. */
enum pici_memory { PICI_MEMORY_HOST = 0, PICI_MEMORY_ANY = 1, PICI_MEMORY_DEVICE = 2 };

struct pici_transport {
    size_t size;   /* PICI_TRANSPORT_INIT */
    void *context; /* handed to every function */
    int rank, ranks;

    /* Begin to send bytes of data (may be 0) to rank `to`, never this one; data stays as it is until the request is
     * done. */
    enum pici_status (*send)(void *context, int to, const void *data, size_t bytes, void **request);

    /* Begin to receive the next message from rank `from`, of at most cap bytes, into data. */
    enum pici_status (*recv)(void *context, int from, void *data, size_t cap, void **request);

    /* Has it ended? *done = 1: yes; the request is gone, *bytes (may be NULL) is the length of what was received or
     * sent. Ended badly: the status, *done = 1. A message longer than cap is PICI_E_CORRUPT; a peer that is gone
     * PICI_E_PEER. */
    enum pici_status (*test)(void *context, void *request, int *done, size_t *bytes);

    /* Nothing can be done until a request of this rank ends: sleep until one might have, at most timeout_ms. An end
     * since the last wait, whether tested or not, must not be slept through. May return early. NULL: the caller yields
     * the processor and tests again. */
    void (*wait)(void *context, int timeout_ms);

    /* Give up on all requests of this rank; `why` may be passed on to the peers. Returns 0 if no buffer is used any
     * more, 1 if some may yet be read or written: the caller then never frees them. Only close follows. */
    int (*abandon)(void *context, enum pici_status why);

    /* Free the context. No request is in flight, or all were abandoned. */
    void (*close)(void *context);

    /* Write which ranks share a node, as pici_comm_set_nodes takes it. Called once. NULL: all share one. */
    enum pici_status (*nodes)(void *context, int *node_of);

    /* The last failure in words, or "". NULL: it has none. */
    const char *(*error)(void *context);

    enum pici_memory memory;

    /* NULL, or told before each send: does the next send of this rank come without waiting for the message that is
     * received in exchange for this one? The same on all ranks. */
    void (*more)(void *context, int more);
};
#define PICI_TRANSPORT_INIT {sizeof(struct pici_transport), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, PICI_MEMORY_HOST, 0}

/* Make a communicator of one rank over a transport, which is copied; the communicator closes it, here too if this
 * fails. Not collective. PICI_E_ARG: null, a function that must be there is not, rank or ranks out of range, or an
 * environment variable that makes no sense (pici_comm_error(NULL) names it). PICI_E_NOMEM. PICI_E_IO: the file of
 * PICI_TRACE. */
PICI_API enum pici_status pici_comm_transport(struct pici_comm **, const struct pici_transport *);

/* For functions that make communicators over a transport of their own: why one failed, in words. It is copied, and is
 * what pici_comm_error(NULL) says on this thread until another one is made. */
PICI_API void pici_comm_failed(const char *why);

#ifdef __cplusplus
}
#endif
#endif
