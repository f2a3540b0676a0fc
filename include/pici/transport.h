/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How bytes move between ranks: what a communicator is built on. The library has transports for threads, MPI and NCCL.
 * A program supplies another by filling in this struct; examples/transport.c is one, over sockets.
 *
 * Messages from one rank to another arrive in the order in which they were sent: the nth message sent to a peer is the
 * nth that the peer receives from this rank. Messages of different pairs of ranks have no order, and a rank may send
 * more messages than it receives, or fewer. Many messages may be in flight.
 *
 * The thread that drives the communicator calls all functions, one at a time, never one inside another. Only wait may
 * block.
 *
 * Steps. Some transports must know which messages are in flight together; NCCL's does. They have the members `receives`
 * and `sends`. Other transports leave both NULL and can skip this paragraph. All ranks of a communicator go through the
 * same number of steps in the same order. In a step a rank sends at most one message to a given peer, and what it sends
 * to a peer in step k that peer receives in step k. A rank may send several messages in a step, one or none, and
 * receive several, one or none. For step k a rank
 *   1. calls receives(n) and posts the step's n receives, then
 *   2. calls sends(n, more) and begins the step's n sends.
 * Receives may be posted some steps ahead, for instance those of step k + 1 before sends(k). What a rank does for step
 * k waits only for the end of messages of steps before k; if `more` was 1 for step k - 1, only of steps before k - 1.
 * If the caller never calls the two functions, the nth receive and the nth send of a rank are step n. */
#ifndef PICI_TRANSPORT_H
#define PICI_TRANSPORT_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a transport takes the bytes of messages. HOST: in host memory only. ANY: in host memory or a GPU's. DEVICE:
 * messages that hold elements in a GPU's memory only, the short ones of agreement rounds in host memory. */
enum pici_memory { PICI_MEMORY_HOST = 0, PICI_MEMORY_ANY = 1, PICI_MEMORY_DEVICE = 2 };

/* Memory other than the host's, for transports within a process. */
struct pici_mover {
    void *self;
    int (*owns)(void *self, const void *p); /* whether an address is in such memory */

    /* Copy between any two places, of such memory or the host's. 0: it failed. Called by any thread. */
    int (*move)(void *self, void *to, const void *from, size_t bytes);
};

struct pici_transport {
    size_t size;   /* PICI_TRANSPORT_INIT */
    void *context; /* passed to every function */
    int rank, ranks;

    /* Begin to send bytes of data (may be 0) to rank `to`, which is never this one. The caller leaves data unchanged
     * until the request is done. */
    enum pici_status (*send)(void *context, int to, const void *data, size_t bytes, void **request);

    /* Begin to receive the next message from rank `from`, of at most cap bytes, into data. */
    enum pici_status (*recv)(void *context, int from, void *data, size_t cap, void **request);

    /* *done = 1: the request has ended and is freed; *bytes (may be NULL) is the length that was sent or received. A
     * request that failed returns its status, with *done = 1. A message longer than cap is PICI_E_CORRUPT; a peer that
     * is gone is PICI_E_PEER. */
    enum pici_status (*test)(void *context, void *request, int *done, size_t *bytes);

    /* Sleep until a request of this rank might have ended, at most timeout_ms. If a request has ended since the last
     * wait, return at once, whether it was tested or not. May return early. NULL: the caller yields the processor and
     * tests again. */
    void (*wait)(void *context, int timeout_ms);

    /* Give up all requests of this rank; `why` may be passed on to the peers. Returns 0 if no buffer is in use any
     * more. Returns 1 if some may still be read or written; the caller then never frees them. The next call is
     * close. */
    int (*abandon)(void *context, enum pici_status why);

    /* Free the context. No request is in flight, or all were abandoned. */
    void (*close)(void *context);

    /* Write which ranks share a node, in the form that pici_comm_set_nodes takes. Called once. NULL: all share one. */
    enum pici_status (*nodes)(void *context, int *node_of);

    /* The last failure in words, or "". NULL: there are no words. */
    const char *(*error)(void *context);

    enum pici_memory memory;

    /* The form of `sends` in version 0.1, for one message each way in every step: the nth send and the nth receive of
     * this rank are step n. Called before each send, with the same `more` that `sends` takes. Not called if `sends` is
     * not NULL. May be NULL. */
    void (*more)(void *context, int more);

    /* The struct of version 0.1 ends here. A transport with that size gets only calls in which every rank sends one
     * message and receives one in each step. Of the next two members both are NULL, or none is. */

    /* The next n receives of this rank (n >= 0) are those of its next step. */
    void (*receives)(void *context, int n);

    /* The next n sends of this rank (n >= 0) are those of its next step, for which `receives` was called before. more =
     * 1: there is another step after this one, and it depends only on what ranks received in steps before this one.
     * Then the transport may begin that step before this one ends, and may wait for it to begin. more = 0: the next
     * step may depend on this one. All ranks pass the same value for a step. */
    void (*sends)(void *context, int n, int more);

    /* For transports within a process, which copy messages themselves. From now on messages of this rank may also be in
     * the mover's memory. The mover is copied; peers call it from their threads. No message is in flight. NULL:
     * `memory` alone says where messages may be. */
    void (*mover)(void *context, const struct pici_mover *);
};
#define PICI_TRANSPORT_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_transport), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, PICI_MEMORY_HOST, 0, 0, 0, 0                   \
    }

/* Make a communicator of one rank over a transport, which is copied. The communicator closes the transport, and this
 * call does if it fails. Not collective.
 * PICI_E_ARG: null, a required function is missing, rank or ranks out of range, or an environment variable is invalid
 * (pici_comm_error(NULL) names it). PICI_E_NOMEM. PICI_E_IO: the file of PICI_TRACE cannot be written. */
PICI_API enum pici_status pici_comm_transport(struct pici_comm **, const struct pici_transport *);

/* For functions that make communicators over a transport of their own: record in words why that failed. The text is
 * copied. pici_comm_error(NULL) returns it on this thread until the next communicator is made. */
PICI_API void pici_comm_failed(const char *why);

#ifdef __cplusplus
}
#endif
#endif
