/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A GPU that hangs during a collective: on one rank or on all of them, operations of one kind begin and do not end.
 * Messages go from GPU to GPU between threads, through pinned memory, or over the fake of NCCL; there, operations of
 * NCCL's hang too. The call ends on every rank, by its timeout or because a peer's ended; so do calls after it. The
 * communicators are freed while the GPU still hangs: that waits for nothing, keeps what the GPU may still use, and
 * frees everything else. The last line is "N passed, N failed". */
#include <string>

#include "cuda_device.cuh"
#include "emu/nccl.h"

extern "C" {
#include "coll/comm.h"
#include "coll/engine_cuda.h"
#include "transport/nccl_transport.h"
}

enum { RANKS = 3, N = 60000, TIMEOUT_MS = 20, TRIES = 10 };

enum way { DIRECT, STAGED, NCCL };
static const char *const ways[] = {"from GPU to GPU", "through pinned memory", "over NCCL"};

struct hang {
    enum way way;
    const char *kind; /* of operation */
    int rank;         /* whose GPU hangs; -1: all */
    unsigned steps;   /* of the call, before */
};

/* Ranks, each with a device, a stream and a buffer on it. */
struct ranks {
    ncclComm_t nccl[RANKS];
    struct pici_comm *comms[RANKS];
    cudaStream_t streams[RANKS];
    void *at[RANKS];
    size_t before[RANKS]; /* buffers on its device, without those of its communicator */
    struct pici_request *requests[RANKS];
    enum pici_status status[RANKS]; /* of the call */
};

static void make_ranks(ranks *t, const hang &h)
{
    if (h.way == NCCL)
        ncclCommInitAll(t->nccl, RANKS, nullptr);
    else
        tally(pici_comm_threads(t->comms, RANKS) == PICI_OK, "communicators of threads");
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        cudaStreamCreateWithFlags(&t->streams[r], cudaStreamNonBlocking);
        cudaMalloc(&t->at[r], N * sizeof(float));
        cudaMemsetAsync(t->at[r], 0, N * sizeof(float), t->streams[r]);
        cudaStreamSynchronize(t->streams[r]);
        t->before[r] = emu::buffers(r);
        if (h.way == NCCL) {
            struct pici_transport over;
            tally(pici_transport_nccl(&over, t->nccl[r]) == PICI_OK, "a transport over NCCL");
            over.nodes = nullptr; /* it would wait */
            tally(pici_comm_transport(&t->comms[r], &over) == PICI_OK, "a communicator over NCCL");
        }
        tally(pici_comm_cuda(t->comms[r], t->streams[r]) == PICI_OK, "pici_comm_cuda");
        if (h.way == STAGED)
            t->comms[r]->transport.memory = PICI_MEMORY_HOST;
    }
}

static void begin(ranks *t)
{
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    o.slice_bytes = 1;
    o.timeout_ms = TIMEOUT_MS;
    o.algorithm = PICI_ALGO_RING;
    o.format = PICI_BITMAP;
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        tally(!pici_all_reduce_start(t->at[r], t->at[r], N, PICI_F32, PICI_SUM, t->comms[r], &o, &t->requests[r]),
              "a call begins");
    }
}

/* So many steps of each rank. false: a call ended. */
static bool steps(ranks *t, unsigned count)
{
    for (unsigned k = 0; k < count * RANKS; k++) {
        int done = 0;
        cudaSetDevice((int)(k % RANKS));
        t->status[k % RANKS] = pici_test(&t->requests[k % RANKS], &done);
        if (done)
            return false;
    }
    return true;
}

/* All ranks move on by turns, until their calls end. */
static void end(ranks *t)
{
    for (unsigned k = 0, left = RANKS; left; k++) {
        int done = 0;
        if (k % RANKS == 0)
            left = RANKS;
        cudaSetDevice((int)(k % RANKS));
        if (t->requests[k % RANKS])
            t->status[k % RANKS] = pici_test(&t->requests[k % RANKS], &done);
        if (!t->requests[k % RANKS])
            left--;
    }
}

/* The call failed as the headers say: for lack of progress here or on a peer, or since a copy from one GPU to another
 * was given up. A call after it is refused. */
static void judge(const ranks &t, const hang &h, int r)
{
    const enum pici_status s = t.status[r];
    const char *words = pici_comm_error(t.comms[r]);
    const std::string what = std::string(ways[h.way]) + ", a " + h.kind + " of " +
                             (h.rank < 0 ? "all ranks" : "rank 1") + " after " + std::to_string(h.steps) +
                             " steps: rank " + std::to_string(r);
    tally(s == PICI_E_TIMEOUT || (h.way == DIRECT && s == PICI_E_TRANSPORT), "%s: %s", what.c_str(), pici_strerror(s));
    tally(strstr(words, s == PICI_E_TIMEOUT ? "no progress" : "transport error") || strstr(words, "timed out"),
          "%s: %s", what.c_str(), words);
    cudaSetDevice(r);
    const enum pici_status next = pici_all_reduce(t.at[r], t.at[r], N, PICI_F32, PICI_SUM, t.comms[r], NULL);
    tally(next == PICI_E_BROKEN, "%s: the next call: %s", what.c_str(), pici_strerror(next));
}

/* A communicator is freed while the GPU hangs: nothing waits for that. What may be in use is kept; between threads that
 * is the rank's whose GPU hangs, or whose message was being copied. */
static void free_comm(const ranks &t, const hang &h, int r)
{
    const bool fine = h.way != NCCL && h.rank >= 0 && r != h.rank && t.status[r] == PICI_E_TIMEOUT;
    cudaSetDevice(r);
    pici_comm_free(t.comms[r]);
    const size_t kept = emu::buffers(r) - t.before[r];
    tally(!fine || !kept, "%s, a %s after %u steps: rank %d, whose GPU is fine, kept %zu buffers", ways[h.way], h.kind,
          h.steps, r, kept);
}

/* false: the call ended before the GPU was to hang, since this program did not run for a while. */
static bool try_hang(const hang &h)
{
    ranks t;
    emu::defer(h.steps + 1);
    make_ranks(&t, h);
    if (!h.steps)
        emu::hang(h.kind, h.rank);
    begin(&t);
    const bool in_time = steps(&t, h.steps);
    emu::hang(h.kind, h.rank);
    end(&t);
    for (int r = 0; r < RANKS && in_time; r++)
        judge(t, h, r);
    for (int r = 0; r < RANKS; r++)
        free_comm(t, h, r);
    tally(cudaGetLastError() == cudaSuccess, "while a GPU hangs: %s", cudaGetErrorString(cudaPeekAtLastError()));
    emu::hang(nullptr, -1);
    for (int r = 0; r < RANKS && h.way == NCCL; r++)
        ncclCommAbort(t.nccl[r]);
    tally(emu::settle(), "%s, a %s: something is stuck", ways[h.way], h.kind);
    tally(cudaGetLastError() == cudaSuccess, "%s, a %s after %u steps of rank %d: then %s", ways[h.way], h.kind,
          h.steps, h.rank, cudaGetErrorString(cudaPeekAtLastError()));
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        cudaFree(t.at[r]);
        cudaStreamDestroy(t.streams[r]);
    }
    const std::string fault = emu::nccl_fault();
    tally(fault.empty(), "NCCL: %s", fault.c_str());
    return in_time;
}

/* A GPU that has failed for good does not say whose memory a buffer is in: a call must not take it for the host's. */
static void failed_gpu(void)
{
    ranks t;
    emu::defer(1);
    make_ranks(&t, {STAGED, "", -1, 0});
    cudaSetDevice(0);
    cudaMemsetAsync(t.at[0], 0, N * sizeof(float) + 1, nullptr); /* beyond the buffer */
    begin(&t);
    end(&t);
    for (int r = 0; r < RANKS; r++) {
        tally(t.status[r] == PICI_E_DEVICE, "a GPU that failed: rank %d: %s", r, pici_strerror(t.status[r]));
        pici_comm_free(t.comms[r]);
    }
    emu::defer(1); /* clears the failure */
}

int main()
{
    static const struct {
        const char *kind;
        bool late, nccl; /* late: there are such operations after the first steps. nccl: over NCCL only */
    } kinds[] = {{"copy", true, false},
                 {"kernel", true, false},
                 {"fill", true, false},
                 {"record of an event", false, false},
                 {"wait for an event", false, false},
                 {"foreign operation", true, true}};
    setvbuf(stdout, nullptr, _IOLBF, 0);
    device_begin();
    emu::seed(1);
    pici_cuda_move_ms = pici_cuda_halt_ms = TIMEOUT_MS;
    for (const auto &k : kinds)
        for (const enum way way : {DIRECT, STAGED, NCCL})
            for (const int rank : {-1, 1})
                for (const unsigned steps : {0u, 2u}) {
                    if ((k.nccl && way != NCCL) || (steps && !k.late))
                        continue;
                    bool tried = false;
                    for (int i = 0; i < TRIES && !tried; i++)
                        tried = try_hang({way, k.kind, rank, steps});
                    if (!tried)
                        printf("skip: %s, a %s after %u steps: the call timed out before, each time\n", ways[way],
                               k.kind, steps);
                }
    failed_gpu();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
