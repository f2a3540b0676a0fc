/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over NCCL, for elements in the memory of GPUs. They are in a library of their own: link with
 * libpici_nccl, libpici_cuda, libpici, NCCL and the CUDA runtime. */
#ifndef PICI_NCCL_H
#define PICI_NCCL_H

#include <nccl.h>

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over one of NCCL's, for elements in the memory of its GPU. That GPU is the current device in this
 * call and whenever the communicator is used; buffers are used in the order of the stream (pici_comm_cuda). Collective.
 * A rank where the call fails does not tell the others: they wait for a minute, or fail in their first collective.
 *
 * The NCCL communicator is not changed. The library uses it for sends and receives on a stream of its own, only inside
 * its calls. Do not use it from the start of a collective to its end; it must live as long as the new communicator is
 * used. NCCL connects to a peer when the first message to it is issued, and waits there for the peer without limit,
 * unless the NCCL communicator is nonblocking: give each rank a thread of its own at least. A call that waits for the
 * whole device, such as cudaFree, also waits for peers while a collective is in flight.
 *
 * Ranks with the same NCCL_HOSTID share a node; without it, ranks with the same host name and boot. An error of NCCL is
 * PICI_E_TRANSPORT, one of CUDA PICI_E_DEVICE, with its words in pici_comm_error. After an error messages may be stuck
 * on the GPU. pici_comm_free does not wait for them and never frees what they use: their stream, events and memory. It
 * then calls nothing of NCCL, so ncclCommAbort may be called before it or after it.
 *
 * PICI_E_ARG: null, the GPU is not the current device, or an invalid environment variable. PICI_E_DEVICE, PICI_E_NOMEM,
 * PICI_E_TRANSPORT. PICI_E_TIMEOUT: some rank did not call within a minute. PICI_E_IO: the file of PICI_TRACE cannot be
 * written. */
PICI_API enum pici_status pici_comm_nccl(struct pici_comm **, ncclComm_t, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
