/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The libraries link with NCCL's own; where there is a GPU, a communicator of one rank is made over it, and reduces.
 * Exit status 77: no GPU, as NCCL says. */
#include <stdio.h>

#include "pici/cuda.h"
#include "pici/nccl.h"

enum { N = 100000 };

static int wrong(const char *what, const char *why)
{
    printf("FAIL %s: %s\n0 passed, 1 failed\n", what, why);
    return 1;
}

int main(void)
{
    static float in[N], out[N];
    ncclComm_t nccl = NULL;
    struct pici_comm *comm = NULL;
    cudaStream_t stream = NULL;
    float *device = NULL;
    int version = 0;
    if (pici_comm_nccl(&comm, NULL, NULL) != PICI_E_ARG || comm)
        return wrong("no NCCL communicator", pici_comm_error(NULL));
    if (ncclGetVersion(&version) != ncclSuccess)
        return wrong("ncclGetVersion", "?");
    const ncclResult_t r = ncclCommInitAll(&nccl, 1, NULL);
    if (r != ncclSuccess) {
        printf("skip: NCCL %d: %s: %s\n", version, ncclGetErrorString(r), ncclGetLastError(NULL));
        return 77;
    }
    for (int i = 0; i < N; i += 97)
        in[i] = (float)i;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaMalloc((void **)&device, sizeof in) ||
        cudaMemcpyAsync(device, in, sizeof in, cudaMemcpyHostToDevice, stream))
        return wrong("CUDA", cudaGetErrorString(cudaGetLastError()));
    if (pici_comm_nccl(&comm, nccl, stream) != PICI_OK)
        return wrong("pici_comm_nccl", pici_comm_error(NULL));
    if (pici_all_reduce(device, device, N, PICI_F32, PICI_SUM, comm, NULL) != PICI_OK)
        return wrong("pici_all_reduce", pici_comm_error(comm));
    if (cudaMemcpyAsync(out, device, sizeof out, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream))
        return wrong("CUDA", cudaGetErrorString(cudaGetLastError()));
    for (int i = 0; i < N; i++)
        if (out[i] != in[i])
            return wrong("pici_all_reduce", "another sum");
    pici_comm_free(comm);
    cudaFree(device);
    cudaStreamDestroy(stream);
    ncclCommDestroy(nccl);
    printf("NCCL %d\n1 passed, 0 failed\n", version);
    return 0;
}
