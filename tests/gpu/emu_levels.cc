/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators on two levels with elements in a GPU's memory, over the fake of NCCL: NCCL inside nodes and sockets
 * between, so that messages to other nodes go through host memory; and threads inside and NCCL between. Ranks are
 * threads. Every algorithm gives exact sums, and a rank that is gone ends the others' calls. The last line is
 * "N passed, N failed". */
#include <stdlib.h>
#include <string.h>

#include <string>
#include <thread>
#include <vector>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "pici/nccl.h"
extern "C" {
#include "tests/util/socket.h"
#include "transport/levels.h"
}

enum { COUNT = 5000, TIMEOUT_MS = 120000 };

enum shape { NCCL_INSIDE, NCCL_BETWEEN };
static const char *const shapes[] = {"NCCL inside, sockets between", "threads inside, NCCL between"};

struct ranks {
    enum shape shape;
    std::vector<int> node_of;
    std::vector<std::vector<ncclComm_t>> nccl; /* of each node, or of all */
    std::vector<struct pici_comm *> threads;   /* of each rank */
    struct socket_team team;                   /* fds */
    std::vector<std::string> wrong;
};

static int place_of(const ranks &all, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++)
        place += all.node_of[(size_t)r] == all.node_of[(size_t)rank];
    return place;
}

/* What is made before the threads begin. */
static void prepare(ranks &all)
{
    const int p = (int)all.node_of.size(), nodes = all.node_of.back() + 1;
    all.wrong.resize((size_t)p);
    all.threads.resize((size_t)p);
    all.nccl.resize(all.shape == NCCL_INSIDE ? (size_t)nodes : 1);
    for (int node = 0; node < nodes; node++) {
        std::vector<int> devices;
        for (int r = 0; r < p; r++)
            if (all.node_of[(size_t)r] == node)
                devices.push_back(r);
        if (all.shape == NCCL_INSIDE) {
            all.nccl[(size_t)node].resize(devices.size());
            ncclCommInitAll(all.nccl[(size_t)node].data(), (int)devices.size(), devices.data());
            continue;
        }
        std::vector<struct pici_comm *> comms(devices.size());
        tally(pici_comm_threads(comms.data(), (int)comms.size()) == PICI_OK, "threads", pici_comm_error(nullptr));
        for (size_t i = 0; i < comms.size(); i++)
            all.threads[(size_t)devices[i]] = comms[i];
    }
    if (all.shape == NCCL_INSIDE) {
        socket_team_init(&all.team, p);
        socket_pairs(all.team.fds, p);
        return;
    }
    all.nccl[0].resize((size_t)p);
    ncclCommInitAll(all.nccl[0].data(), p, nullptr);
}

/* The rank's communicator; NULL: wrong says why. */
static struct pici_comm *join(ranks &all, int rank, cudaStream_t stream)
{
    const size_t r = (size_t)rank;
    const int p = (int)all.node_of.size();
    struct pici_comm *inner = all.threads[r], *outer = nullptr, *comm = nullptr;
    const bool inside = all.shape == NCCL_INSIDE;
    ncclComm_t nccl = inside ? all.nccl[(size_t)all.node_of[r]][(size_t)place_of(all, rank)] : all.nccl[0][r];
    enum pici_status s = pici_comm_nccl(inside ? &inner : &outer, nccl, stream);
    if (!s && inside)
        s = pici_comm_sockets(&outer, all.team.fds + rank * p, rank, p);
    if (!s)
        s = pici_comm_levels(&comm, inner, outer);
    if (s)
        all.wrong[r] = std::string("making: ") + pici_strerror(s) + ": " + pici_comm_error(nullptr);
    return comm;
}

/* A small integer, mostly 0. */
static float element(int rank, size_t i)
{
    return i % 7 ? 0 : (float)((i + (size_t)rank) % 5);
}

static void check_sums(ranks &all, int rank, struct pici_comm *comm, float *device, float *pinned, cudaStream_t stream)
{
    const int p = (int)all.node_of.size();
    for (int a = PICI_ALGO_AUTO; pici_algorithm_name((enum pici_algorithm)a); a++) {
        struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
        opts.algorithm = (enum pici_algorithm)a;
        opts.timeout_ms = TIMEOUT_MS;
        opts.slice_bytes = 4096; /* several slices are in flight */
        for (size_t i = 0; i < COUNT; i++)
            pinned[i] = element(rank, i);
        cudaMemcpyAsync(device, pinned, COUNT * sizeof *device, cudaMemcpyHostToDevice, stream);
        const enum pici_status s = pici_all_reduce(device, device, COUNT, PICI_F32, PICI_SUM, comm, &opts);
        if (s) {
            all.wrong[(size_t)rank] = std::string(pici_algorithm_name(opts.algorithm)) + ": " + pici_comm_error(comm);
            return;
        }
        emu::captured_elsewhere(false);
        cudaMemcpyAsync(pinned, device, COUNT * sizeof *device, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        emu::captured_elsewhere(true);
        for (size_t i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int r = 0; r < p; r++)
                sum += element(r, i);
            if (pinned[i] != sum)
                all.wrong[(size_t)rank] = std::string(pici_algorithm_name(opts.algorithm)) + ": a wrong sum";
        }
    }
}

/* Host memory is refused, as over NCCL alone. */
static void check_host(ranks &all, int rank, struct pici_comm *comm)
{
    static float data[4];
    const enum pici_status s = pici_all_reduce(data, data, 4, PICI_F32, PICI_SUM, comm, nullptr);
    if (s != PICI_E_ARG)
        all.wrong[(size_t)rank] = pici_strerror(s);
}

/* The first of node 0 leaves, the others call. */
static void check_death(ranks &all, int rank, struct pici_comm **comm, float *device)
{
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.timeout_ms = TIMEOUT_MS;
    if (rank == 0) {
        pici_comm_free(*comm);
        *comm = nullptr;
        return;
    }
    const enum pici_status s = pici_all_reduce(device, device, COUNT, PICI_F32, PICI_SUM, *comm, &opts);
    if (s != PICI_E_PEER)
        all.wrong[(size_t)rank] = std::string(pici_strerror(s)) + ": " + pici_comm_error(*comm);
}

enum what { SUMS, HOST, DEATH };
static const char *const whats[] = {"sums", "elements in host memory", "a rank is gone"};

static void run(ranks &all, int rank, enum what what)
{
    float *device, *pinned;
    cudaStream_t stream;
    cudaSetDevice(rank);
    cudaMalloc((void **)&device, COUNT * sizeof *device);
    cudaHostAlloc((void **)&pinned, COUNT * sizeof *pinned, cudaHostAllocDefault);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    emu::captured_elsewhere(true); /* what ends a capture in another thread is a failure */
    struct pici_comm *comm = join(all, rank, stream);
    if (comm && what == SUMS)
        check_sums(all, rank, comm, device, pinned, stream);
    if (comm && what == HOST)
        check_host(all, rank, comm);
    if (comm && what == DEATH)
        check_death(all, rank, &comm, device);
    pici_comm_free(comm);
    emu::captured_elsewhere(false);
    if (what == DEATH)
        return; /* the fake still has operations */
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    cudaFree(device);
}

static void check(enum shape shape, const std::vector<int> &node_of, enum what what, uint64_t seed)
{
    const std::string name =
        std::string(shapes[shape]) + ", " + std::to_string(node_of.size()) + " ranks, " + whats[what];
    ranks all = {shape, node_of, {}, {}, {}, {}};
    emu::defer(seed);
    std::vector<std::thread> threads;
    prepare(all);
    for (int r = 0; r < (int)node_of.size(); r++)
        threads.emplace_back([&all, r, what] { run(all, r, what); });
    for (auto &thread : threads)
        thread.join();
    for (size_t r = 0; r < node_of.size(); r++)
        tally(all.wrong[r].empty(), (name + ", rank " + std::to_string(r)).c_str(), all.wrong[r].c_str());
    for (auto &node : all.nccl)
        for (ncclComm_t comm : node)
            what == DEATH ? ncclCommAbort(comm) : ncclCommDestroy(comm);
    const std::string fault = emu::nccl_fault();
    tally(what == DEATH || (fault.empty() && emu::settle()), name.c_str(), fault.c_str());
}

/* Both are over NCCL. */
static void check_refused()
{
    struct pici_comm *one = nullptr, *two = nullptr, *comm = nullptr;
    ncclComm_t nccl[2];
    ncclCommInitAll(nccl, 1, nullptr);
    ncclCommInitAll(nccl + 1, 1, nullptr);
    cudaSetDevice(0);
    tally(!pici_comm_nccl(&one, nccl[0], nullptr) && !pici_comm_nccl(&two, nccl[1], nullptr), "one rank each",
          pici_comm_error(nullptr));
    tally(pici_comm_levels(&comm, one, two) == PICI_E_UNSUPPORTED && !comm, "both over NCCL", pici_comm_error(nullptr));
    pici_comm_free(one);
    pici_comm_free(two);
    for (ncclComm_t c : nccl)
        ncclCommDestroy(c);
}

int main()
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    pici_levels_grace_ms = 100;
    for (enum shape shape : {NCCL_INSIDE, NCCL_BETWEEN})
        for (const std::vector<int> &nodes :
             {std::vector<int>{0, 1}, std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 0, 1}})
            check(shape, nodes, SUMS, nodes.size());
    check(NCCL_INSIDE, {0, 0, 1, 1}, HOST, 7);
    check_refused();
    check(NCCL_INSIDE, {0, 0, 1, 1}, DEATH, 8);
    check(NCCL_INSIDE, {0, 0}, DEATH, 9);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
