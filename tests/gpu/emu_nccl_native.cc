/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL's own collectives under ours, with permission, over the fake of NCCL: which calls are made by them, and that
 * they wait for what the stream was given before. The last line is "N passed, N failed". */
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "pici/nccl.h"

static const int RANKS = 3;
static const size_t COUNT = 700;

struct call {
    enum pici_collective kind;
    enum pici_dtype dtype;
    enum pici_op op;
    bool in_place, native; /* native: NCCL's is due */
    int timeout_ms = 20000;
};

struct outcome {
    enum pici_status status = PICI_OK;
    bool right = true;
    uint64_t blocks = 0;
    std::string words;
    std::function<void()> release; /* what NCCL still uses */
};

static uint32_t element(int rank, uint64_t i)
{
    return i % 3 ? 0 : (uint32_t)((uint64_t)(rank + 1) * (i % 11));
}

/* As the type of the call: u32 or f32. */
static uint32_t bits_of(const call &c, uint32_t v)
{
    const float f = (float)v / (c.op == PICI_AVG ? RANKS : 1);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return c.dtype == PICI_F32 ? bits : c.op == PICI_AVG ? v / RANKS : v;
}

static uint32_t wanted(const call &c, int rank, uint64_t i)
{
    if (c.kind == PICI_ALL_GATHER)
        return bits_of(c, element((int)(i / COUNT), i % COUNT));
    uint32_t v = c.op == PICI_MIN ? ~0u : 0;
    for (int r = 0; r < RANKS; r++) {
        const uint32_t x = element(r, i + (c.kind == PICI_REDUCE_SCATTER ? (uint64_t)rank * COUNT : 0));
        v = c.op == PICI_MIN ? std::min(v, x) : c.op == PICI_MAX ? std::max(v, x) : v + x;
    }
    return bits_of(c, v);
}

static void run(const call &c, ncclComm_t nccl, int rank, outcome *o)
{
    const size_t all = RANKS * COUNT, own = (size_t)rank * COUNT;
    const size_t sends = c.kind == PICI_REDUCE_SCATTER ? all : COUNT,
                 receives = c.kind == PICI_ALL_GATHER ? all : COUNT;
    uint32_t *device, *pinned;
    cudaStream_t stream;
    struct pici_comm *comm = nullptr;
    cudaSetDevice(rank);
    cudaMalloc((void **)&device, 2 * all * 4);
    cudaHostAlloc((void **)&pinned, all * 4, cudaHostAllocDefault);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    emu::captured_elsewhere(true); /* what ends a capture in another thread is a failure */
    if (pici_comm_nccl(&comm, nccl, stream)) {
        o->status = PICI_E_TRANSPORT;
        o->words = pici_comm_error(nullptr);
        return;
    }
    uint32_t *send = device, *recv = device + all;
    if (c.in_place && c.kind == PICI_REDUCE_SCATTER)
        recv = send + own;
    else if (c.in_place)
        send = c.kind == PICI_ALL_GATHER ? recv + own : recv;
    for (size_t i = 0; i < sends; i++) /* an average is of what is not divided yet */
        pinned[i] = bits_of({c.kind, c.dtype, PICI_SUM, false, false}, element(rank, i));
    cudaMemcpyAsync(send, pinned, sends * 4, cudaMemcpyHostToDevice, stream); /* the call waits for it */
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.stats = &stats;
    opts.native = 1;
    opts.format = PICI_DENSE;
    opts.timeout_ms = c.timeout_ms;
    o->status = c.kind == PICI_ALL_GATHER       ? pici_all_gather(send, recv, COUNT, c.dtype, comm, &opts)
                : c.kind == PICI_REDUCE_SCATTER ? pici_reduce_scatter(send, recv, COUNT, c.dtype, c.op, comm, &opts)
                                                : pici_all_reduce(send, recv, COUNT, c.dtype, c.op, comm, &opts);
    o->words = pici_comm_error(comm);
    for (const uint64_t n : stats.sends)
        o->blocks += n;
    if (!o->status) {
        emu::captured_elsewhere(false);
        cudaMemcpyAsync(pinned, recv, receives * 4, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        emu::captured_elsewhere(true);
        for (size_t i = 0; i < receives; i++)
            o->right = o->right && pinned[i] == wanted(c, rank, i);
    }
    pici_comm_free(comm);
    emu::captured_elsewhere(false);
    const auto release = [=] {
        cudaSetDevice(rank);
        cudaStreamDestroy(stream);
        cudaFreeHost(pinned);
        cudaFree(device);
    };
    if (o->status == PICI_E_TIMEOUT)
        o->release = release;
    else
        release();
}

static void check(const call &c, uint64_t seed)
{
    emu::defer(seed);
    emu::nccl_eager(seed % 2 ? 0 : 100);
    ncclComm_t comms[RANKS];
    outcome out[RANKS];
    std::vector<std::thread> ranks;
    ncclCommInitAll(comms, RANKS, nullptr);
    for (int r = 0; r < RANKS; r++) {
        if (seed % 3 == 0)
            emu::nccl_slow(comms[r], r);
        ranks.emplace_back([&, r] { run(c, comms[r], r, &out[r]); });
    }
    for (auto &r : ranks)
        r.join();
    const std::string what = "collective " + std::to_string(c.kind) + ", " + pici_dtype_name(c.dtype) + ", op " +
                             std::to_string(c.op) + (c.in_place ? ", in place" : "") + ", seed " + std::to_string(seed);
    for (const auto &o : out) {
        tally(o.status == PICI_OK, what.c_str(), o.words.c_str());
        tally(o.right, what.c_str(), "a wrong result");
        tally((o.blocks == 0) == c.native, what.c_str(), c.native ? "not NCCL's" : "NCCL's");
    }
    for (auto comm : comms)
        ncclCommDestroy(comm);
    const std::string fault = emu::nccl_fault();
    tally(fault.empty() && emu::settle(), what.c_str(), fault.c_str());
}

/* NCCL's collective never ends: the call does, on each rank, and so does freeing what it used. */
static void stalled(uint64_t seed)
{
    const call c = {PICI_ALL_REDUCE, PICI_F32, PICI_SUM, false, true, 1000};
    emu::defer(seed);
    emu::nccl_stall(true);
    ncclComm_t comms[RANKS];
    outcome out[RANKS];
    std::vector<std::thread> ranks;
    ncclCommInitAll(comms, RANKS, nullptr);
    for (int r = 0; r < RANKS; r++) {
        emu::nccl_slow(comms[r], seed % 2 ? r : 0);
        ranks.emplace_back([&, r] { run(c, comms[r], r, &out[r]); });
    }
    for (auto &r : ranks)
        r.join();
    for (const auto &o : out)
        tally(o.status == PICI_E_TIMEOUT && o.words.find("took more than 1000 ms") != std::string::npos,
              "a collective that never ends", o.words.c_str());
    for (auto comm : comms)
        ncclCommAbort(comm);
    emu::nccl_stall(false);
    for (const auto &o : out)
        if (o.release)
            o.release();
    const std::string fault = emu::nccl_fault();
    tally(fault.empty() && emu::settle(), "after a collective that never ends", fault.c_str());
}

int main()
{
    uint64_t seed = 1;
    stalled(seed++);
    stalled(seed++);
    for (const auto kind : {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE})
        for (const bool in_place : {false, true})
            for (const auto op : {PICI_SUM, PICI_AVG, PICI_MIN, PICI_MAX}) {
                if (kind == PICI_ALL_GATHER && op != PICI_SUM)
                    continue;
                check({kind, PICI_F32, op, in_place, true}, seed++);
                check({kind, PICI_U32, op, in_place, op != PICI_AVG}, seed++);
            }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
