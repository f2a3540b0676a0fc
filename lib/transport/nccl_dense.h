/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL's own collectives, as a transport's dense ones. */
#ifndef PICI_LIB_TRANSPORT_NCCL_DENSE_H
#define PICI_LIB_TRANSPORT_NCCL_DENSE_H

#include "pici/nccl.h"
#include "pici/transport.h"

/* Whether NCCL supports this collective with this dtype. */
int pici_nccl_dense_can(enum pici_collective, enum pici_dtype);

/* Run the collective in the stream, and wait for it for about timeout_ms; < 0: no limit. Returns NCCL's first failure.
 * Returns ncclInProgress at the timeout; NCCL still uses the buffers then. *cuda: CUDA's failure. */
ncclResult_t pici_nccl_dense(ncclComm_t, cudaStream_t, enum pici_collective, const void *send, void *recv,
                             uint64_t count, enum pici_dtype, enum pici_op, int timeout_ms, cudaError_t *cuda);

#endif
