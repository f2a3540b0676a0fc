/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL, for its tests. */
#ifndef PICI_LIB_TRANSPORT_NCCL_TRANSPORT_H
#define PICI_LIB_TRANSPORT_NCCL_TRANSPORT_H

#include "pici/nccl.h"
#include "pici/transport.h"

/* Fill in a transport over a communicator, which the transport uses and does not change. All ranks must call it, but it
 * returns without waiting for the others; the transport's nodes() waits for them. PICI_E_ARG, PICI_E_DEVICE,
 * PICI_E_NOMEM, PICI_E_TRANSPORT. */
enum pici_status pici_transport_nccl(struct pici_transport *, ncclComm_t);

/* Seconds that nodes() waits for a rank that has not called. Only tests change it. */
extern int pici_nccl_seconds;

/* The order of operations, the same on all ranks (nccl.c). Returns whether a header is next, once `headers` headers and
 * `payloads` payloads were issued. more: of the step whose payload would be next. */
static inline int pici_nccl_header_next(uint64_t headers, uint64_t payloads, int more)
{
    return headers == payloads || (more && headers == payloads + 1);
}

#endif
