/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with value codecs over the fake of NCCL, beside the host's. The last line is "N passed, N failed". */
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
        some_cases(team(over_nccl(p, &nccl)), 3, true, 6, &turn);
        for (ncclComm_t comm : nccl)
            ncclCommDestroy(comm);
        tally(emu::nccl_fault().empty(), "NCCL: %s", emu::nccl_fault().c_str());
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
