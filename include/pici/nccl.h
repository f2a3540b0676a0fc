/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over NCCL, of elements in the memory of GPUs. In libpici_nccl, a library of its own: link with it, and
 * with libpici_cuda, libpici, NCCL and the CUDA runtime. */
#ifndef PICI_NCCL_H
#define PICI_NCCL_H

#include <nccl.h>

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over one of NCCL's, for elements on its GPU, which is the current device here and whenever the
 * communicator is used; buffers are used in the order of the stream (pici_comm_cuda). Collective; but a rank where it
 * fails does not tell the others: these wait for a minute, or find out in their first collective.
 *
 * Nothing of the NCCL communicator is changed. It is used for sends and receives, on a stream of our own, inside our
 * calls only; so do not use it from the start of a collective to its end, and it must live as long as ours is used.
 * NCCL connects to a peer at the first message to it, and, unless the communicator is one that does not block, waits
 * there for the peer, however long: put a rank in a thread of its own, at least. What waits for the whole device, as
 * cudaFree does, also waits for peers while a collective is under way.
 *
 * Ranks with the same NCCL_HOSTID, or without it the same host name and boot, share a node. Errors of NCCL are
 * PICI_E_TRANSPORT, those of CUDA PICI_E_DEVICE, with their words in pici_comm_error. After an error messages may be
 * stuck on the GPU. pici_comm_free does not wait for these: it leaves them their stream, events, scratch and some 64
 * KiB besides, for good. It calls nothing of NCCL's then, so call ncclCommAbort before it or after it, as you like.
 *
 * PICI_E_ARG: null, the device is not the current one, or an environment variable that makes no sense. PICI_E_DEVICE,
 * PICI_E_NOMEM, PICI_E_TRANSPORT. PICI_E_TIMEOUT: some rank did not call within a minute. PICI_E_IO: the file of
 * PICI_TRACE. */
PICI_API enum pici_status pici_comm_nccl(struct pici_comm **, ncclComm_t, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
