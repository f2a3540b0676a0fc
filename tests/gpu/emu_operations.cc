/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many operations of CUDA's runtime a slice of an all-reduce over NCCL takes: each costs the host some
 * microseconds. The emulator of the runtime counts them, so that the engine for GPUs does not grow slow unnoticed. The
 * operations of one slice are what a call with one slice more receives addition. --table prints them. The last line is
 * "N passed, N failed". */
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "emu/nccl.h"
#include "emu/tally.h"
extern "C" {
#include "pici/cuda.h"
#include "transport/nccl_transport.h"
#include "tests/util/util.h"
}

enum { SLICE = 64 << 10 /* bytes of a segment's slice */ };

struct counts {
    uint64_t kernels, fills, copies, events, waits;
};

static counts now()
{
    return {emu::operations("kernel"), emu::operations("fill"), emu::operations("copy"),
            emu::operations("record of an event"), emu::operations("wait for an event")};
}

static counts operator-(const counts &a, const counts &b)
{
    return {a.kernels - b.kernels, a.fills - b.fills, a.copies - b.copies, a.events - b.events, a.waits - b.waits};
}

/* An all-reduce by ring of n floats, of which so many of a million are not zero: its operations on all ranks, from the
 * second call on, which allocates nothing. */
static counts reduce(int ranks, uint64_t n, unsigned ppm)
{
    struct rng rng = {7};
    std::vector<ncclComm_t> nccl((size_t)ranks);
    std::vector<struct pici_transport> transports((size_t)ranks);
    std::vector<struct pici_comm *> comms((size_t)ranks);
    std::vector<float *> at((size_t)ranks);
    std::vector<float> sum(n), own(n);
    counts taken = {};
    emu::defer(1);
    ncclCommInitAll(nccl.data(), ranks, nullptr);
    for (int r = 0; r < ranks; r++) {
        cudaSetDevice(r);
        cudaMalloc((void **)&at[(size_t)r], n * 4);
        if (pici_transport_nccl(&transports[(size_t)r], nccl[(size_t)r]))
            exit(1);
        transports[(size_t)r].nodes = nullptr; /* it would wait */
        if (pici_comm_transport(&comms[(size_t)r], &transports[(size_t)r]) || pici_comm_cuda(comms[(size_t)r], nullptr))
            exit(1);
    }
    for (int round = 0; round < 2; round++) {
        std::vector<struct pici_request *> requests((size_t)ranks);
        sum.assign(n, 0);
        for (int r = 0; r < ranks; r++) {
            cudaSetDevice(r);
            for (uint64_t i = 0; i < n; i++)
                sum[i] += own[i] = rng_chance(&rng, ppm) ? 1 + (float)(r + (int)(i & 7)) : 0;
            cudaMemcpy(at[(size_t)r], own.data(), n * 4, cudaMemcpyHostToDevice);
        }
        const counts before = now();
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        o.algorithm = PICI_ALGO_RING;
        o.slice_bytes = SLICE;
        o.window = 2;
        if (ppm >= 1000000)
            o.format = PICI_DENSE;
        for (int r = 0; r < ranks; r++) {
            cudaSetDevice(r);
            if (pici_all_reduce_start(at[(size_t)r], at[(size_t)r], n, PICI_F32, PICI_SUM, comms[(size_t)r], &o,
                                      &requests[(size_t)r]))
                exit(1);
        }
        for (int left = ranks, r = 0; left; r = (r + 1) % ranks) {
            int done = 0;
            cudaSetDevice(r);
            if (requests[(size_t)r]) {
                tally(pici_test(&requests[(size_t)r], &done) == PICI_OK, "all-reduce",
                      pici_comm_error(comms[(size_t)r]));
                left -= done;
            }
        }
        taken = now() - before;
        for (int r = 0; r < ranks; r++) {
            cudaSetDevice(r);
            cudaMemcpy(own.data(), at[(size_t)r], n * 4, cudaMemcpyDeviceToHost);
            tally(own == sum, "all-reduce", "another sum");
        }
    }
    for (int r = 0; r < ranks; r++) {
        cudaSetDevice(r);
        pici_comm_free(comms[(size_t)r]);
        cudaFree(at[(size_t)r]);
        ncclCommDestroy(nccl[(size_t)r]);
    }
    const std::string fault = emu::nccl_fault();
    tally(fault.empty() && emu::settle() && cudaGetLastError() == cudaSuccess, "the end", fault.c_str());
    return taken;
}

static void bound(const char *what, uint64_t got, uint64_t most)
{
    tally(got <= most, what, (std::to_string(got) + " of at most " + std::to_string(most)).c_str());
}

int main(int argc, char **argv)
{
    static const struct {
        int ranks;
        unsigned ppm;
        counts most;
    } all[] = {{2, 10000, {18, 4, 12, 8, 0}},
               {2, 1000000, {14, 0, 12, 8, 0}},
               {4, 10000, {92, 16, 72, 48, 0}},
               {4, 1000000, {76, 0, 72, 48, 0}}};
    for (const auto &x : all) {
        const uint64_t slice = (uint64_t)x.ranks * SLICE / 4;
        const counts c = reduce(x.ranks, 5 * slice, x.ppm) - reduce(x.ranks, 4 * slice, x.ppm);
        const std::string what = std::to_string(x.ranks) + " ranks, " + (x.ppm < 1000000 ? "sparse" : "dense");
        if (argc > 1 && strcmp(argv[1], "--table") == 0)
            printf("| %s | %u | %u | %u | %u | %u |\n", what.c_str(), (unsigned)c.kernels, (unsigned)c.fills,
                   (unsigned)c.copies, (unsigned)c.events, (unsigned)c.waits);
        bound((what + ": kernels").c_str(), c.kernels, x.most.kernels);
        bound((what + ": fills").c_str(), c.fills, x.most.fills);
        bound((what + ": copies").c_str(), c.copies, x.most.copies);
        bound((what + ": events").c_str(), c.events, x.most.events);
        bound((what + ": waits").c_str(), c.waits, x.most.waits);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
