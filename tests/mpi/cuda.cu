/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare collectives over MPI on buffers in GPU memory, over the emulated CUDA runtime, with the same calls in host
 * memory. MPI first takes messages from that memory, then from pinned memory, while copies and kernels happen late.
 * Which is which only the emulator knows: to MPI all of it is ordinary memory, and can be touched before anything is
 * deferred. By tests/mpi/programs.sh, under mpirun. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "tests/util/mpi_tally.h"

extern "C" {
#include "tests/util/coll.h"
#include "pici/cuda.h"
#include "pici/mpi.h"
}

static struct rng rng = {1};
static uint64_t hybrids, tiles; /* sent by this rank: blocks, and those that were counted in them */

/* What the host's buffers have before the call; behind the stream that brings it, the call; and what it left. */
static const char *compare(const struct coll_case *c, struct coll_rank *host, const struct coll_job *job,
                           struct pici_comm *comm, cudaStream_t stream)
{
    const size_t width = pici_dtype_width(c->dtype), send = (size_t)coll_sends(c, ranks) * width,
                 recv = (size_t)coll_receives(c, ranks) * width,
                 own = c->in_place && c->collective == PICI_ALL_GATHER ? (size_t)rank * (size_t)c->count * width : 0,
                 at = !c->in_place                           ? (send + 15) / 16 * 16
                      : c->collective == PICI_REDUCE_SCATTER ? (size_t)rank * (size_t)c->count * width
                                                             : 0,
                 bytes = at + recv > own + send ? at + recv : own + send;
    const char *wrong = NULL;
    struct coll_rank device = {};
    uint8_t *memory = NULL, *pinned = NULL;
    if (cudaMalloc((void **)&memory, bytes) || cudaMallocHost((void **)&pinned, bytes))
        return "no memory";
    memset(pinned, 0x5c, bytes);
    if (send)
        memcpy(pinned + own, job->send[rank], send);
    cudaMemcpyAsync(memory, pinned, bytes, cudaMemcpyHostToDevice, stream);
    device.sent = memory + own;
    device.received = memory + at;
    device.opts = host->opts;
    device.opts.stats = &device.stats;
    device.stats.size = sizeof device.stats;
    if (coll_rank_call(&device, c, comm))
        wrong = pici_comm_error(comm);
    cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    if (!wrong && recv && memcmp(pinned + at, host->received, recv) != 0)
        wrong = "not the host's bytes";
    if (!wrong && !c->in_place && send && memcmp(pinned, job->send[rank], send) != 0)
        wrong = "what was sent has changed";
    hybrids += device.stats.sends[PICI_HYBRID];
    for (uint64_t n : device.stats.tiles)
        tiles += n;
    cudaFree(memory);
    cudaFreeHost(pinned);
    const cudaError_t e = cudaGetLastError();
    return wrong || !e ? wrong : cudaGetErrorString(e);
}

static void check(const struct coll_case *c, struct pici_comm *comm, cudaStream_t stream)
{
    struct coll_job job;
    struct coll_rank host = {};
    coll_job_make(&job, c, ranks);
    coll_rank_place(&host, c, &job, comm);
    const char *wrong = coll_rank_call(&host, c, comm) ? pici_comm_error(comm) : coll_rank_judge(&host, c, &job, rank);
    expect(wrong ? wrong : compare(c, &host, &job, comm, stream), coll_case_words(c, ranks));
    coll_rank_free(&host);
    coll_job_free(&job);
}

static void calls(const char *direct)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_BF16, PICI_F64, PICI_I32};
    static const enum pici_op ops[] = {PICI_SUM, PICI_AVG, PICI_MAX};
    static const uint64_t counts[] = {0, 1, 100, 4097, 9000, 30000};
    struct pici_comm *comm = NULL;
    cudaStream_t stream = NULL;
    setenv("PICI_MPI_CUDA", direct, 1);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD) || pici_comm_cuda(comm, stream)) {
        printf("FAIL no communicator: %s\n", pici_comm_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    hybrids = tiles = 0;
    for (unsigned i = 0; i < 36; i++) {
        struct coll_case c = {};
        c.dtype = dtypes[i % 4];
        c.op = ops[i / 4 % 3];
        c.collective = (enum pici_collective)(PICI_ALL_GATHER + i / 12);
        c.opts.algorithm = coll_algorithm(rng_below(&rng, (uint64_t)coll_algorithms()), c.collective);
        c.count = counts[rng_below(&rng, 6)];
        coll_case_options(&c, &rng, ranks);
        c.opts.checksum = -1; /* a GPU makes none */
        c.own_scratch = 0;
        c.tame = 1; /* a NaN's sign is each machine's own */
        check(&c, comm, stream);
    }
    const uint64_t count = 9000; /* of a call that certainly sends hybrid blocks */
    const struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct coll_case c = {};
    c.collective = PICI_ALL_REDUCE;
    c.dtype = PICI_F32;
    c.op = PICI_SUM;
    c.count = count;
    c.pattern = PATTERN_1;
    c.seed = c.tame = 1;
    c.opts = opts;
    c.opts.format = PICI_HYBRID;
    check(&c, comm, stream);
    expect(ranks > 1 && !hybrids ? "no hybrid block was sent" : NULL, "where messages are");
    expect(hybrids && !tiles != (*direct == '1') ? "not where they should be" : NULL, "where messages are");
    pici_comm_free(comm);
    cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    calls("1");
    emu::defer((uint64_t)rank);
    calls("0");
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
