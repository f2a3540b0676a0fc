/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL, for its tests. */
#ifndef PICI_LIB_TRANSPORT_NCCL_TRANSPORT_H
#define PICI_LIB_TRANSPORT_NCCL_TRANSPORT_H

#include "pici/nccl.h"
#include "pici/transport.h"

/* Fill in a transport over a communicator, which is used and not changed. Returns without waiting for the others,
 * though all must call it; the transport's nodes() waits for them. PICI_E_ARG, PICI_E_DEVICE, PICI_E_NOMEM,
 * PICI_E_TRANSPORT. */
enum pici_status pici_transport_nccl(struct pici_transport *, ncclComm_t);

/* How long nodes() waits for a rank that does not come. Changed by tests only. */
extern int pici_nccl_seconds;

/* The order of operations, which all ranks keep (nccl.c): after so many headers and payloads, is a header the next?
 * more: of the exchange whose payload would be next. */
static inline int pici_nccl_header_next(uint64_t headers, uint64_t payloads, int more)
{
    return headers == payloads || (more && headers == payloads + 1);
}

#endif
