/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives over the fake of NCCL, with lossy codecs and without, beside the host's. The last line is "N passed, N
 * failed". */
#include "cuda_values_team.cuh"

#include "emu/nccl.h"
extern "C" {
#include "transport/nccl_transport.h"
}

/* Communicators over the fake of NCCL. */
static std::vector<struct pici_comm *> over_nccl(int p, std::vector<ncclComm_t> *nccl)
{
    std::vector<struct pici_comm *> comms((size_t)p);
    nccl->resize((size_t)p);
    ncclCommInitAll(nccl->data(), p, nullptr);
    for (size_t i = 0; i < comms.size(); i++) {
        struct pici_transport t;
        cudaSetDevice((int)i);
        tally(pici_transport_nccl(&t, (*nccl)[i]) == PICI_OK, "a transport over NCCL");
        t.nodes = nullptr; /* it would wait */
        tally(pici_comm_transport(&comms[i], &t) == PICI_OK, "a communicator over NCCL");
    }
    return comms;
}

enum { DTYPES = PICI_U64 - PICI_F32 + 1 };
static const enum pici_collective kinds[] = {PICI_ALL_REDUCE, PICI_REDUCE_SCATTER, PICI_ALL_GATHER};

/* Floats as they are, among them NaNs, infinities and -0.0, by each algorithm but the first two, for each collective
 * that it has. Several slices. */
static void many_elements(const team &host, const team &gpu)
{
    const int p = (int)gpu.comms.size();
    struct values_case c = {};
    c.exact = 1;
    c.dtype = PICI_F32;
    for (int a = PICI_ALGO_SPLIT; a <= coll_algorithms(); a++)
        for (const auto kind : kinds)
            for (const auto data : {DATA_SPECIAL, DATA_SPARSE}) {
                c.algorithm = (enum pici_algorithm)a;
                if (!coll_has(c.algorithm, kind))
                    continue;
                c.collective = kind;
                c.data = data;
                c.op = data == DATA_SPARSE ? PICI_SUM : (enum pici_op)(c.seed % 4);
                c.count = (kind == PICI_ALL_REDUCE ? (uint64_t)p : 1) * 9001;
                c.window = 1 + (int)(c.seed % 2);
                c.in_place = data == DATA_SPARSE;
                compare(host, gpu, &c);
                c.seed++;
            }
}

/* No elements, one, some fewer and one more than ranks, and a part of a tile: every dtype, op and algorithm. */
static void few_elements(const team &host, const team &gpu)
{
    const uint64_t p = gpu.comms.size(), counts[] = {0, 1, p - 1, p, p + 1, 700};
    struct values_case c = {};
    c.exact = 1;
    for (int a = PICI_ALGO_RING; a <= coll_algorithms(); a++)
        for (const auto kind : kinds)
            for (const uint64_t count : counts) {
                c.algorithm = (enum pici_algorithm)a;
                if (!coll_has(c.algorithm, kind))
                    continue;
                c.collective = kind;
                c.count = count;
                c.dtype = (enum pici_dtype)(PICI_F32 + (c.seed + p) % DTYPES);
                c.op = (enum pici_op)(c.seed / DTYPES % 4);
                c.data = c.seed % 3 ? DATA_SPECIAL : DATA_SPARSE;
                c.window = 1 + (int)(c.seed % 2);
                c.in_place = (int)(c.seed / 2 % 2);
                compare(host, gpu, &c);
                c.seed++;
            }
    for (int dtype = 0; dtype < DTYPES && p == 3; dtype++)
        for (int op = 0; op < 4; op++, c.seed++) {
            c.dtype = (enum pici_dtype)(PICI_F32 + dtype);
            c.op = (enum pici_op)op;
            c.collective = kinds[c.seed % 2];
            c.algorithm = coll_algorithm(c.seed, c.collective);
            c.count = 4099;
            c.data = op ? DATA_SPECIAL : DATA_SPARSE;
            compare(host, gpu, &c);
        }
}

/* Without lossy codecs. The last node is shorter or longer than the others. */
static void exact_cases(const team &gpu)
{
    const int p = (int)gpu.comms.size();
    const team host(p, true);
    std::vector<int> node_of;
    for (int i = 0; i < p; i++)
        node_of.push_back(i < (p > 3 ? 3 : 2) ? 0 : 1);
    set_nodes(host, gpu, node_of);
    few_elements(host, gpu);
    if (p >= 4)
        many_elements(host, gpu);
}

int main()
{
    unsigned turn = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!device_begin())
        return 77;
    emu::seed(1);
    emu::defer(1);
    for (int p : {1, 2, 3, 4, 5}) {
        emu::watch_races(p == 2); /* which takes time; cuda_values does more */
        std::vector<ncclComm_t> nccl;
        {
            const team gpu(over_nccl(p, &nccl));
            some_cases(gpu, 3, true, 6, &turn);
            exact_cases(gpu);
        }
        for (ncclComm_t comm : nccl)
            ncclCommDestroy(comm);
        tally(emu::nccl_fault().empty(), "NCCL: %s", emu::nccl_fault().c_str());
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
