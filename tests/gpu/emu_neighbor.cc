/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers of buffers in a GPU's memory: over the fake of NCCL, and between threads. Random graphs,
 * routes, node maps and calls, compared byte for byte with a plain copy. An all-to-all by node over NCCL too, in which
 * ranks without elements of their own pass on others'. Ranks are threads. The last line is "N passed, N failed".
 *     emu_neighbor [--quick]      fewer cases */
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "pici/cuda.h"
#include "pici/nccl.h"
extern "C" {
#include "tests/util/neighbor.h"
}

enum { TIMEOUT_MS = 120000, PLANS = 2 };

/* Between threads, messages are in the GPU's memory or in pinned memory. */
enum way { NCCL, THREADS, WAYS };
static const char *const ways[] = {"NCCL", "threads"};

struct ranks {
    int p;
    enum way way;
    std::vector<ncclComm_t> nccl;
    std::vector<struct pici_comm *> threads;
    std::vector<std::string> wrong;
    std::atomic<unsigned> made{0}; /* ranks that have made their communicators */
};

static void prepare(ranks &all, int p, enum way way)
{
    all.p = p;
    all.way = way;
    all.wrong.resize((size_t)p);
    all.nccl.resize((size_t)p);
    all.threads.resize((size_t)p);
    if (way == NCCL)
        ncclCommInitAll(all.nccl.data(), p, nullptr);
    else
        tally(pici_comm_threads(all.threads.data(), p) == PICI_OK, "threads", pici_comm_error(nullptr));
}

static struct pici_comm *join(ranks &all, int rank, cudaStream_t stream)
{
    const size_t r = (size_t)rank;
    struct pici_comm *comm = all.threads[r];
    const enum pici_status s =
        all.way == NCCL ? pici_comm_nccl(&comm, all.nccl[r], stream) : pici_comm_cuda(comm, stream);
    if (s)
        all.wrong[r] = std::string("making: ") + pici_strerror(s) + ": " + pici_comm_error(nullptr);
    return s ? nullptr : comm;
}

/* The device of a rank: between threads, all have one. */
static int device_of(const ranks &all, int rank)
{
    return all.way == NCCL ? rank : 0;
}

/* Runs f(rank, its communicator, its stream) on a thread for each rank. */
template <typename F> static void run(const std::string &name, int p, enum way way, uint64_t seed, F f)
{
    ranks all;
    emu::defer(seed);
    prepare(all, p, way);
    std::vector<std::thread> threads;
    for (int r = 0; r < p; r++)
        threads.emplace_back([&all, r, &f] {
            cudaStream_t stream;
            cudaSetDevice(device_of(all, r));
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
            struct pici_comm *comm = join(all, r, stream);
            if (comm)
                all.wrong[(size_t)r] = f(r, comm, stream);
            pici_comm_free(comm);
            cudaStreamDestroy(stream);
        });
    for (auto &thread : threads)
        thread.join();
    for (int r = 0; r < p; r++)
        tally(all.wrong[(size_t)r].empty(), (name + ", rank " + std::to_string(r)).c_str(),
              all.wrong[(size_t)r].c_str());
    for (ncclComm_t comm : all.nccl)
        if (comm)
            ncclCommDestroy(comm);
    const std::string fault = emu::nccl_fault();
    tally(fault.empty() && emu::settle(), name.c_str(), fault.c_str());
}

/* ---- neighbourhoods ---- */

/* A case that a GPU's engine takes: no checksum, and not ZFP. */
static void some_case(struct neighbor_case *c, struct rng *rng, int p, uint64_t most)
{
    neighbor_case_random(c, rng, p, most);
    c->opts.checksum = -1;
    c->opts.timeout_ms = TIMEOUT_MS;
    if (c->values.codec == PICI_VALUES_ZFP)
        c->values = (struct pici_values)PICI_VALUES_INIT;
}

/* Replaces the buffers of a rank by copies on the device, and copies the result back. */
class on_device {
  public:
    on_device(struct neighbor_rank *rank, const struct neighbor_case *c)
        : k(rank), send(rank->send), recv(rank->recv), sent((size_t)c->count[rank->rank] * pici_dtype_width(c->dtype))
    {
        cudaMalloc((void **)&k->send, sent + 1);
        cudaMalloc((void **)&k->recv, k->bytes + 1);
        cudaMemcpy(k->send, send, sent, cudaMemcpyHostToDevice);
        cudaMemcpy(k->recv, recv, k->bytes, cudaMemcpyHostToDevice);
    }
    ~on_device()
    {
        cudaMemcpy(send, k->send, sent, cudaMemcpyDeviceToHost);
        cudaMemcpy(recv, k->recv, k->bytes, cudaMemcpyDeviceToHost);
        cudaFree(k->send);
        cudaFree(k->recv);
        k->send = send;
        k->recv = recv;
    }
    on_device(const on_device &) = delete;

  private:
    struct neighbor_rank *k;
    uint8_t *send, *recv;
    size_t sent;
};

static std::string failed_call(const char *what, enum pici_status s, const struct pici_comm *comm)
{
    return std::string(what) + ": " + pici_strerror(s) + ": " + pici_comm_error(comm);
}

/* Two plans; a call on each, nonblocking if the seed says so, with an all-reduce between them. */
static std::string call(const struct neighbor_case *c, int rank, struct pici_comm *comm, bool blocking)
{
    struct neighbor_rank k[PLANS];
    struct pici_neighbor_plan *plan[PLANS] = {nullptr, nullptr};
    struct pici_request *request[PLANS] = {nullptr, nullptr};
    uint64_t *one;
    enum pici_status s = PICI_OK;
    for (int i = 0; i < PLANS; i++)
        neighbor_rank_init(&k[i], &c[i], rank);
    for (int i = 0; i < PLANS && !s; i++)
        s = neighbor_rank_plan(&k[i], &c[i], comm, &plan[i]);
    std::string wrong = s ? failed_call("a plan", s, comm) : "";
    if (!s) {
        const on_device first(&k[0], &c[0]), second(&k[1], &c[1]);
        cudaMalloc((void **)&one, sizeof *one);
        cudaMemsetAsync(one, 1, sizeof *one);
        cudaStreamSynchronize(nullptr);
        for (int i = 0; i < PLANS && !s; i++) {
            s = blocking ? neighbor_rank_call(&k[i], &c[i], plan[i])
                         : neighbor_rank_start(&k[i], &c[i], plan[i], &request[i]);
            if (!s && blocking && i == 0)
                s = pici_all_reduce(one, one, 1, PICI_U64, PICI_SUM, comm, nullptr);
        }
        for (int i = 0; i < PLANS && !s; i++)
            s = pici_wait(&request[i]);
        cudaFree(one);
        if (s)
            wrong = failed_call("a call", s, comm);
    }
    for (int i = 0; i < PLANS; i++) {
        const char *judged = wrong.empty() ? neighbor_rank_judge(&k[i], &c[i]) : nullptr;
        wrong = judged ? judged : wrong;
        pici_neighbor_plan_free(plan[i]);
        neighbor_rank_free(&k[i]);
    }
    return wrong;
}

static void neighborhoods(bool quick)
{
    uint64_t seed = 1;
    for (int p : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17})
        for (enum way way : {NCCL, THREADS})
            for (int i = 0; i < (quick ? 1 : p < 9 ? 6 : 2); i++, seed++) {
                struct neighbor_case c[PLANS];
                struct rng rng = {seed};
                some_case(&c[0], &rng, p, seed % 4 ? 1500 : 9000);
                some_case(&c[1], &rng, p, 600);
                memcpy(c[1].node_of, c[0].node_of, sizeof c[0].node_of);
                run(std::string(ways[way]) + ", " + neighbor_case_words(&c[0]), p, way, seed,
                    [&](int rank, struct pici_comm *comm, cudaStream_t) {
                        return call(c, rank, comm, (seed & 1) != 0);
                    });
            }
}

/* Rank 0's elements, longer than what NCCL's transport stages, reach the ranks of the other node through ranks that
 * neither send nor receive any themselves. */
static std::string relayed(int rank, struct pici_comm *comm, cudaStream_t stream)
{
    enum { LONG = 3000 };
    static const int node_of[] = {0, 0, 1, 1, 2, 2};
    const int far[] = {3, 5}, zero = 0;
    const bool receives = rank == 3 || rank == 5;
    const uint64_t counts[] = {LONG}, displs[] = {0};
    std::vector<uint32_t> host(LONG);
    struct pici_neighbor_plan *plan = nullptr;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_coll_opts call = PICI_COLL_OPTS_INIT;
    uint32_t *device = nullptr;
    std::string wrong;
    opts.route = PICI_ROUTE_HALVING;
    opts.gain = 1;
    call.format = PICI_DENSE;
    call.timeout_ms = TIMEOUT_MS;
    (void)stream;
    if (rank == 0 || receives)
        cudaMalloc((void **)&device, LONG * sizeof *device);
    for (size_t i = 0; i < LONG && rank == 0; i++)
        host[i] = (uint32_t)i + 1;
    if (device)
        cudaMemcpy(device, host.data(), LONG * sizeof *device, cudaMemcpyHostToDevice);
    enum pici_status s = pici_comm_set_nodes(comm, node_of);
    if (!s)
        s = pici_neighbor_plan_create(&plan, comm, receives, &zero, rank ? 0 : 2, far, &opts);
    if (!s)
        s = pici_neighbor_all_gatherv(device, rank ? 0 : LONG, device, counts, displs, PICI_U32, plan, &call);
    if (s)
        wrong = failed_call("a relayed call", s, comm);
    if (receives)
        cudaMemcpy(host.data(), device, LONG * sizeof *device, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < LONG && receives && wrong.empty(); i++)
        if (host[i] != i + 1)
            wrong = "wrong elements";
    pici_neighbor_plan_free(plan);
    cudaFree(device);
    return wrong;
}

/* The same in an all-to-all by node: rank 1 carries rank 0's elements for rank 3. */
static std::string carried(int rank, struct pici_comm *comm, cudaStream_t stream)
{
    enum { LONG = 3000, RANKS = 4 };
    static const int node_of[] = {0, 0, 1, 1};
    uint64_t sends[RANKS] = {0}, receives[RANKS] = {0};
    std::vector<uint32_t> host(LONG);
    struct pici_coll_opts call = PICI_COLL_OPTS_INIT;
    uint32_t *device = nullptr;
    std::string wrong;
    call.format = PICI_DENSE;
    call.timeout_ms = TIMEOUT_MS;
    (void)stream;
    sends[3] = rank == 0 ? LONG : 0;
    receives[0] = rank == 3 ? LONG : 0;
    if (rank == 0 || rank == 3)
        cudaMalloc((void **)&device, LONG * sizeof *device);
    for (size_t i = 0; i < LONG && rank == 0; i++)
        host[i] = (uint32_t)i + 1;
    if (device)
        cudaMemcpy(device, host.data(), LONG * sizeof *device, cudaMemcpyHostToDevice);
    enum pici_status s = pici_comm_set_nodes(comm, node_of);
    if (!s)
        s = pici_all_to_allv(device, sends, nullptr, device, receives, nullptr, PICI_U32, comm, &call);
    if (s)
        wrong = failed_call("an all-to-all", s, comm);
    if (rank == 3)
        cudaMemcpy(host.data(), device, LONG * sizeof *device, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < LONG && rank == 3 && wrong.empty(); i++)
        if (host[i] != i + 1)
            wrong = "wrong elements";
    cudaFree(device);
    return wrong;
}

/* Lists that do not agree are an error of the plan. */
static std::string disagreeing(int rank, struct pici_comm *comm, cudaStream_t stream)
{
    const int other = 1 - rank;
    struct pici_neighbor_plan *plan = nullptr;
    (void)stream;
    const enum pici_status s = pici_neighbor_plan_create(&plan, comm, 1, &other, rank, &other, nullptr);
    if (s != PICI_E_PEER || plan || !strstr(pici_comm_error(comm), "the edge from rank 0 to rank 1"))
        return failed_call("lists that do not agree", s, comm);
    return "";
}

/* Buffers in host memory are an error of the call, as in other collectives over NCCL. */
static std::string in_host_memory(int rank, struct pici_comm *comm, cudaStream_t stream)
{
    const int other = 1 - rank;
    float data[2] = {1, 2};
    struct pici_neighbor_plan *plan = nullptr;
    struct pici_coll_opts call = PICI_COLL_OPTS_INIT;
    (void)stream;
    call.timeout_ms = TIMEOUT_MS;
    enum pici_status s = pici_neighbor_plan_create(&plan, comm, 1, &other, 1, &other, nullptr);
    if (s)
        return failed_call("a plan", s, comm);
    s = pici_neighbor_all_gather(data, data + 1, 1, PICI_F32, plan, &call);
    pici_neighbor_plan_free(plan);
    if (s != PICI_E_ARG || !strstr(pici_comm_error(comm), "host memory"))
        return failed_call("buffers in host memory", s, comm);
    return "";
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (enum way way : {NCCL, THREADS}) {
        run(std::string(ways[way]) + ", relays", 6, way, 1, relayed);
        run(std::string(ways[way]) + ", carriers", 4, way, 2, carried);
    }
    run("NCCL, lists that do not agree", 2, NCCL, 3, disagreeing);
    run("NCCL, buffers in host memory", 2, NCCL, 4, in_host_memory);
    neighborhoods(quick);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
