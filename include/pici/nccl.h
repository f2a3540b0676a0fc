/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over NCCL, for elements in GPU memory. Link with libpici_nccl, libpici_cuda, libpici, NCCL and the CUDA
 * runtime. */
#ifndef PICI_NCCL_H
#define PICI_NCCL_H

#include <nccl.h>

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over an NCCL communicator, for elements in the memory of its GPU. That GPU must be the current
 * device in this call and in every later call on the new communicator. Collectives use their buffers in the order of
 * the given stream, as pici_comm_cuda describes. This call is collective. A rank on which it fails does not notify the
 * others: they wait here for up to a minute, or fail in their first collective.
 *
 * The library does not change the NCCL communicator. It uses it for sends and receives on its own stream, and only
 * inside its calls. Do not use the NCCL communicator between the start and the end of a collective. It must live as
 * long as the new communicator is used.
 *
 * NCCL connects to a peer when the first message to it is issued. Unless the NCCL communicator is nonblocking, it then
 * waits for that peer without a time limit. So each rank needs at least its own thread. A call that waits for the whole
 * device, such as cudaFree, also waits for the peers while a collective is in flight.
 *
 * Ranks with the same NCCL_HOSTID share a node; without that variable, ranks with the same host name and boot ID do. An
 * NCCL error becomes PICI_E_TRANSPORT and a CUDA error PICI_E_DEVICE; pici_comm_error gives its text. After an error,
 * messages may be stuck on the GPU. pici_comm_free then does not wait for them and calls no NCCL function, so you may
 * call ncclCommAbort before or after it. It never frees the stream and events of these messages, nor the transport's
 * memory (some 100 KiB): freeing that would wait for all work on the GPU.
 *
 * PICI_E_ARG: null, the GPU is not the current device, or an invalid environment variable. PICI_E_DEVICE, PICI_E_NOMEM,
 * PICI_E_TRANSPORT. PICI_E_TIMEOUT: some rank did not call within a minute. PICI_E_IO: the file of PICI_TRACE cannot be
 * written. */
PICI_API enum pici_status pici_comm_nccl(struct pici_comm **, ncclComm_t, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
