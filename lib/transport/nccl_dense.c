/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/nccl_dense.h"

#include <time.h>

#include "cuda/capture.h"
#include "transport/nap.h"

/* 0: NCCL has no arithmetic for it. */
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

int pici_nccl_dense_can(enum pici_collective kind, enum pici_dtype dtype)
{
    ncclDataType_t type;
    return kind == PICI_ALL_GATHER || type_of(dtype, &type);
}

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Wait until NCCL has put the operation into the stream, if it does that later, and the stream is past it.
 * ncclInProgress: not in time. */
static ncclResult_t finish(ncclComm_t comm, cudaStream_t stream, int timeout_ms, cudaError_t *cuda)
{
    const int64_t end = timeout_ms < 0 ? INT64_MAX : milliseconds() + timeout_ms;
    for (int looks = 0, late = 0; !late; pici_transport_nap(&looks, 0, 1)) {
        late = milliseconds() > end; /* and then a last look */
        ncclResult_t r = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &r);
        if (asked != ncclSuccess || (r != ncclSuccess && r != ncclInProgress))
            return asked != ncclSuccess ? asked : r;
        if (r == ncclInProgress)
            continue;
        const enum cudaStreamCaptureMode mode = capture_relax();
        *cuda = cudaStreamQuery(stream);
        capture_restore(mode);
        if (*cuda != cudaErrorNotReady)
            return ncclSuccess;
        (void)cudaGetLastError(); /* the program's next call of CUDA must not see that it is not ready */
        *cuda = cudaSuccess;
    }
    return ncclInProgress;
}

ncclResult_t pici_nccl_dense(ncclComm_t comm, cudaStream_t stream, enum pici_collective kind, const void *send,
                             void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms,
                             cudaError_t *cuda)
{
    const ncclRedOp_t how = op == PICI_MIN ? ncclMin : op == PICI_MAX ? ncclMax : ncclSum;
    ncclDataType_t type = ncclUint8;
    ncclResult_t r;
    *cuda = cudaSuccess;
    if (kind == PICI_ALL_GATHER) {
        r = ncclAllGather(send, recv, (size_t)count * pici_dtype_width(dtype), ncclUint8, comm, stream);
    } else if (!type_of(dtype, &type)) {
        return ncclInvalidArgument;
    } else if (kind == PICI_REDUCE_SCATTER) {
        r = ncclReduceScatter(send, recv, (size_t)count, type, how, comm, stream);
    } else {
        r = ncclAllReduce(send, recv, (size_t)count, type, how, comm, stream);
    }
    return r == ncclSuccess || r == ncclInProgress ? finish(comm, stream, timeout_ms, cuda) : r;
}
