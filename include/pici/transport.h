/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Transports move bytes between the ranks of a communicator. The library has transports for threads, sockets, MPI and
 * NCCL. To add your own, fill in struct pici_transport; examples/transport.c is a minimal one over sockets.
 *
 * Messages between two ranks arrive in order: the nth message that a rank sends to a peer is the nth that the peer
 * receives from that rank. There is no order between messages of different pairs of ranks. A rank may send more
 * messages than it receives, or fewer. Many messages may be in flight.
 *
 * The thread that uses the communicator calls all functions except a mover's, one at a time and never recursively. Only
 * wait may block.
 *
 * Steps. Some transports, such as the one over NCCL, must know which messages are in flight together. They set the
 * members `receives` and `sends`. Other transports leave both NULL and can skip this paragraph. All ranks of a
 * communicator make the same number of steps in the same order. In a step a rank may send any number of messages, but
 * at most one to each peer, and receive any number; both may be 0. A peer receives the message of step k in its step k.
 * For step k a rank
 *   1. calls receives(n) and posts the step's n receives, then
 *   2. calls sends(n, more) and begins the step's n sends.
 * A rank may post receives some steps ahead, for example the receives of step k + 1 before sends(k). In step k a rank
 * waits only for messages of steps before k. If `more` was 1 for step k - 1, it waits only for messages of steps before
 * k - 1. If the caller never calls the two functions, each step has one receive and one send: the nth receive and the
 * nth send of a rank are step n. */
#ifndef PICI_TRANSPORT_H
#define PICI_TRANSPORT_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where message buffers may be. HOST: host memory only. ANY: host or GPU memory. DEVICE: messages with elements only in
 * GPU memory, and short messages in host memory, of up to 2 KiB: agreement rounds and neighbourhood plans send them. */
enum pici_memory { PICI_MEMORY_HOST = 0, PICI_MEMORY_ANY = 1, PICI_MEMORY_DEVICE = 2 };

/* Access to memory other than host memory, such as a GPU's; for transports within a process. */
struct pici_mover {
    void *self;
    int (*owns)(void *self, const void *p); /* whether an address is in such memory */

    /* Copy between two addresses, each in such memory or in host memory. Nonzero: done. 0: it failed. Any thread may
     * call it. */
    int (*move)(void *self, void *to, const void *from, size_t bytes);
};

struct pici_transport {
    size_t size;   /* PICI_TRANSPORT_INIT */
    void *context; /* passed to every function */
    int rank, ranks;

    /* Begin to send `bytes` bytes (may be 0) at data to rank `to`, never this rank. The caller does not change data
     * until the request is done. On an error there is no request. */
    enum pici_status (*send)(void *context, int to, const void *data, size_t bytes, void **request);

    /* Begin to receive the next message from rank `from`, of at most cap bytes, into data. */
    enum pici_status (*recv)(void *context, int from, void *data, size_t cap, void **request);

    /* Report whether a request has ended. If so: set *done = 1, free the request, and set *bytes (bytes may be NULL) to
     * the size sent or received. For a failed request, return its status, with *done = 1. A message longer than cap is
     * PICI_E_CORRUPT; a lost peer is PICI_E_PEER. */
    enum pici_status (*test)(void *context, void *request, int *done, size_t *bytes);

    /* Sleep until a request of this rank may have ended, for at most timeout_ms milliseconds. Return at once if a
     * request has ended since the last wait, even if it was already tested. May return early. NULL: the caller yields
     * the processor and tests again. */
    void (*wait)(void *context, int timeout_ms);

    /* Cancel all requests of this rank because of the error `why`, which the transport may pass on to the peers.
     * Returns 0 if the transport no longer uses any buffer, or 1 if it may still read or write some; the caller then
     * never frees them. The only call after this one is close. */
    int (*abandon)(void *context, enum pici_status why);

    /* Free the context. All requests have ended, or the caller has called abandon. */
    void (*close)(void *context);

    /* Write node_of[ranks]: which ranks share a node, as for pici_comm_set_nodes. Called once, while the communicator
     * is made; on an error the communicator is not made. NULL: all ranks share one node. */
    enum pici_status (*nodes)(void *context, int *node_of);

    /* Return a description of the last failure, or without a failure, of what this rank waits for; or "". NULL: no
     * descriptions. */
    const char *(*error)(void *context);

    enum pici_memory memory;

    /* The `sends` of version 0.1, where each step has one message each way: the nth send and the nth receive of this
     * rank are step n. Called before each send, with the same `more` as `sends`. Not called if `sends` is not NULL. May
     * be NULL. */
    void (*more)(void *context, int more);

    /* The struct of version 0.1 ends here. A transport with that size works only with algorithms in which every rank
     * sends and receives one message in each step. Set both of the next two members, or neither. */

    /* The next n receives of this rank (n >= 0) belong to its next step. */
    void (*receives)(void *context, int n);

    /* The next n sends of this rank (n >= 0) belong to its next step; the caller has already called `receives` for it.
     * more = 1: another step follows, and it depends only on messages of steps before this one. The transport may then
     * begin the next step before this one ends, and may delay the end of this one until the next begins. more = 0: the
     * next step may depend on this one. All ranks pass the same value for a step. */
    void (*sends)(void *context, int n, int more);

    /* For transports within a process, which copy messages themselves. From this call on, messages of this rank may
     * also be in the mover's memory. The transport copies the struct; threads of peers call its functions. No message
     * is in flight during this call. NULL: only `memory` says where messages may be. */
    void (*mover)(void *context, const struct pici_mover *);

    /* The dense collective of the library below (MPI_Allreduce, ncclAllReduce, ...), used only if the caller permits it
     * (opts->native). Set both of the next two members, or neither.
     *
     * Check that this rank can make such a call with these buffers, and get the memory for it; send nothing. op is not
     * PICI_AVG. Any error: it cannot. The ranks make the call only if all can. */
    enum pici_status (*dense_ready)(void *context, enum pici_collective, const void *send, const void *recv,
                                    uint64_t count, enum pici_dtype, enum pici_op);

    /* Make the call. All ranks do, in the same order, while none of their own messages is in flight. Either all ranks
     * call in place or none does. Arguments as in pici_all_gather and its like; op is not PICI_AVG. May block; returns
     * when recv has the result. timeout_ms: if the library supports a limit, the call fails with PICI_E_TIMEOUT after
     * this time, and so does the transport; < 0: no limit. The buffers may then stay in use until the transport is
     * closed. */
    enum pici_status (*dense)(void *context, enum pici_collective, const void *send, void *recv, uint64_t count,
                              enum pici_dtype, enum pici_op, int timeout_ms);
};
#define PICI_TRANSPORT_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_transport), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, PICI_MEMORY_HOST, 0, 0, 0, 0, 0, 0             \
    }

/* Make this rank's communicator over a transport. The call copies the struct. pici_comm_free closes the transport. If
 * this call fails, it closes the transport before it returns. Not collective.
 * PICI_E_ARG: null, a required function is missing (send, recv, test, abandon, close), rank or ranks out of range, or
 * an environment variable is invalid (pici_comm_error(NULL) names it). PICI_E_UNSUPPORTED: the struct is of a later
 * version, with members that this library does not know. PICI_E_NOMEM. PICI_E_IO: the file of PICI_TRACE cannot be
 * written. Errors of `nodes` are passed through. */
PICI_API enum pici_status pici_comm_transport(struct pici_comm **, const struct pici_transport *);

/* For functions that make communicators over their own transport: record why that failed. The call copies the text.
 * pici_comm_error(NULL) returns it on this thread until the next attempt to make a communicator. */
PICI_API void pici_comm_failed(const char *why);

#ifdef __cplusplus
}
#endif
#endif
