/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of NCCL that the library uses, among ranks of one process, over deferred streams (emu::defer). It gives no
 * more guarantees than NCCL. A message is transferred only while both sides run it. The operations of a communicator
 * run one after another in the order of issue; operations of a group run together. What NCCL leaves undefined is a
 * fault: counts that differ, memory that is not the device's, a communicator that is used before it is ready. Ranks
 * that wait for each other in a cycle deadlock: emu::settle() reports that.
 *
 * Valid C, as NCCL's header is. */
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

/* Create the communicators of all ranks. devices NULL: rank r uses device r. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ranks, const int *devices);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
/* Create one rank's communicator on the current device; waits for the others. */
ncclResult_t ncclCommInitRank(ncclComm_t *, int ranks, ncclUniqueId, int rank);
/* A message to it that it did not receive is a fault. */
ncclResult_t ncclCommDestroy(ncclComm_t);
/* Its operations end at once, incomplete; those of its peers stay blocked. */
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
/* Only types of 32 and 64 bits; no products. */
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);

#ifdef __cplusplus
}

namespace emu {

/* The first fault, or ""; clears it. A program that ends with a fault that was not read exits with an error. */
std::string nccl_fault();

/* Make ncclCommGetAsyncError return this from now on. */
void nccl_break(ncclComm_t, ncclResult_t);

/* Make the next call that puts an operation into a stream fail. */
void nccl_refuse(ncclComm_t, ncclResult_t);

/* Make a communicator nonblocking (ncclConfig_t): ncclGroupEnd returns ncclInProgress, and its operations are put
 * into the stream only after ncclCommGetAsyncError has returned ncclInProgress `looks` times. */
void nccl_slow(ncclComm_t, int looks);

/* From now on, or no more, reductions begin and do not end: a rank is lost. */
void nccl_stall(bool);

/* Buffer messages of up to so many bytes: the sender does not wait for the receiver. NCCL buffers some. */
void nccl_eager(size_t bytes);

} // namespace emu
#endif
#endif
