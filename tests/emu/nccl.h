/* SPDX-License-Identifier: BSD-3-Clause
 *
 * As much of NCCL as the library uses, among ranks of one process, over streams that are deferred (emu::defer). It is
 * as unkind as NCCL may be: a message gets through when both sides are at work on it, the operations of a
 * communicator run one after the other in the order of issue, and those of a group together. What NCCL leaves
 * undefined is a fault: counts that differ, memory that is not the device's, a communicator used while it is not
 * ready. Ranks that wait for each other in a circle stay stuck: emu::settle() says so.
 *
 * Valid C, as NCCL's own is. */
#ifndef PICI_TESTS_EMU_NCCL_H
#define PICI_TESTS_EMU_NCCL_H

#include "cuda_runtime.h"

#ifdef __cplusplus
#include <string>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

/* Communicators of all ranks; devices NULL: rank r has device r. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ranks, const int *devices);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
/* One of them, on the current device; waits for the others. */
ncclResult_t ncclCommInitRank(ncclComm_t *, int ranks, ncclUniqueId, int rank);
/* A message to it that it did not receive is a fault. */
ncclResult_t ncclCommDestroy(ncclComm_t);
/* Its operations end, as they are; those of its peers stay stuck. */
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclCommCount(const ncclComm_t, int *ranks);
ncclResult_t ncclCommUserRank(const ncclComm_t, int *rank);
ncclResult_t ncclCommCuDevice(const ncclComm_t, int *device);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
const char *ncclGetErrorString(ncclResult_t);
const char *ncclGetLastError(ncclComm_t);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t, ncclComm_t, cudaStream_t);
/* Of 32 and 64 bits only; no products. */
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);

#ifdef __cplusplus
}

namespace emu {

/* What was done wrong first, or ""; and forget it. A program that ends without having asked ends with an error. */
std::string nccl_fault();

/* From now on ncclCommGetAsyncError says this. */
void nccl_break(ncclComm_t, ncclResult_t);

/* The next call that puts an operation into a stream fails. */
void nccl_refuse(ncclComm_t, ncclResult_t);

/* A communicator that does not block (ncclConfig_t): ncclGroupEnd says ncclInProgress, and its operations are in the
 * stream only when ncclCommGetAsyncError has said ncclInProgress so many times. */
void nccl_slow(ncclComm_t, int looks);

/* Messages of so many bytes or fewer are on their way as soon as the sender is at work, and it does not wait. NCCL
 * buffers some. */
void nccl_eager(size_t bytes);

} // namespace emu
#endif
#endif
