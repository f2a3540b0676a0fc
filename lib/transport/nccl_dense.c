/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/nccl_dense.h"

#include "cuda/capture.h"
#include "transport/nap.h"

/* Returns 0 if NCCL has no arithmetic for the dtype. */
static int type_of(enum pici_dtype dtype, ncclDataType_t *type)
{
    switch (dtype) {
    case PICI_F32: *type = ncclFloat32; return 1;
    case PICI_F64: *type = ncclFloat64; return 1;
    case PICI_F16: *type = ncclFloat16; return 1;
    case PICI_BF16: *type = ncclBfloat16; return 1;
    case PICI_I8: *type = ncclInt8; return 1;
    case PICI_U8: *type = ncclUint8; return 1;
    case PICI_I32: *type = ncclInt32; return 1;
    case PICI_U32: *type = ncclUint32; return 1;
    case PICI_I64: *type = ncclInt64; return 1;
    case PICI_U64: *type = ncclUint64; return 1;
    default: return 0;
    }
}

int pici_nccl_dense_can(enum pici_collective collective, enum pici_dtype dtype)
{
    ncclDataType_t type;
    return collective == PICI_ALL_GATHER || type_of(dtype, &type);
}

/* Wait until the stream has completed the operation, which NCCL may enqueue late. Returns ncclInProgress at the
 * timeout. */
static ncclResult_t finish(ncclComm_t comm, cudaStream_t stream, int timeout_ms, cudaError_t *cuda)
{
    const int64_t end = timeout_ms < 0 ? INT64_MAX : pici_transport_ms() + timeout_ms;
    for (int looks = 0, late = 0; !late; pici_transport_nap(&looks, 0, 1)) {
        late = pici_transport_ms() > end; /* then look once more */
        ncclResult_t result = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
        if (asked != ncclSuccess || (result != ncclSuccess && result != ncclInProgress))
            return asked != ncclSuccess ? asked : result;
        if (result == ncclInProgress)
            continue;
        const enum cudaStreamCaptureMode mode = capture_relax();
        *cuda = cudaStreamQuery(stream);
        capture_restore(mode);
        if (*cuda != cudaErrorNotReady)
            return ncclSuccess;
        (void)cudaGetLastError(); /* clear cudaErrorNotReady, so that the program's next CUDA call does not see it */
        *cuda = cudaSuccess;
    }
    return ncclInProgress;
}

ncclResult_t pici_nccl_dense(ncclComm_t comm, cudaStream_t stream, enum pici_collective collective, const void *send,
                             void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op operation, int timeout_ms,
                             cudaError_t *cuda)
{
    ncclRedOp_t how = operation == PICI_MAX ? ncclMax : ncclSum;
    if (operation == PICI_MIN)
        how = ncclMin;
    ncclDataType_t type = ncclUint8;
    ncclResult_t result;
    *cuda = cudaSuccess;
    if (collective == PICI_ALL_GATHER) {
        result = ncclAllGather(send, recv, (size_t)count * pici_dtype_width(dtype), ncclUint8, comm, stream);
    } else if (!type_of(dtype, &type)) {
        return ncclInvalidArgument;
    } else if (collective == PICI_REDUCE_SCATTER) {
        result = ncclReduceScatter(send, recv, (size_t)count, type, how, comm, stream);
    } else {
        result = ncclAllReduce(send, recv, (size_t)count, type, how, comm, stream);
    }
    return result == ncclSuccess || result == ncclInProgress ? finish(comm, stream, timeout_ms, cuda) : result;
}
