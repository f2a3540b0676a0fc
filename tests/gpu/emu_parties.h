/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks over the fake of NCCL, each with a device of its number: what the tests of the transport share. */
#ifndef PICI_TESTS_EMU_PARTIES_H
#define PICI_TESTS_EMU_PARTIES_H

#include <stdlib.h>

#include <string>
#include <vector>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "emu_exchanges.h"
extern "C" {
#include "pici/cuda.h"
#include "transport/nccl_transport.h"
#include "tests/util/util.h"
}

enum { CAP = 6000, ON_HOST = 4096 }; /* bytes of a message, at most, on the device and in host memory */

struct party {
    ncclComm_t comm = nullptr;
    struct pici_transport t = PICI_TRANSPORT_INIT;
    std::vector<step> steps;
    std::vector<std::vector<void *>> sends, recvs; /* of each step the requests that were begun and have not ended */
    std::vector<size_t> sends_left, recvs_left;    /* of each step, not ended */
    uint8_t *device = nullptr;                     /* [2 * window][ranks][CAP] sent from, received into */
    std::vector<uint8_t> host, want;               /* [2 * window][ranks][ON_HOST]; scratch */
    size_t posted = 0, sent = 0, taken = 0;        /* steps */
    bool announced_receives = false, announced_sends = false; /* of the next of these */
    std::string wrong;
};

static inline std::string words(const char *what, enum pici_status s, const struct pici_transport &t)
{
    return std::string(what) + ": " + pici_strerror(s) + " " + t.error(t.context);
}

/* Which node a rank says it is on. */
static inline int node_of(int rank)
{
    return rank % 3 == 2 ? 0 : rank;
}

static inline std::vector<party> make(int ranks, bool said, bool slow)
{
    std::vector<ncclComm_t> comms((size_t)ranks);
    std::vector<party> all((size_t)ranks);
    ncclCommInitAll(comms.data(), ranks, nullptr);
    for (int r = 0; r < ranks; r++) {
        party &p = all[(size_t)r];
        cudaSetDevice(r);
        if (slow)
            emu::nccl_slow(comms[(size_t)r], r % 3);
        if (said)
            setenv("NCCL_HOSTID", ("host " + std::to_string(node_of(r))).c_str(), 1);
        p.comm = comms[(size_t)r];
        const enum pici_status s = pici_transport_nccl(&p.t, p.comm);
        if (s)
            p.wrong = std::string("making: ") + pici_comm_error(nullptr);
        unsetenv("NCCL_HOSTID");
    }
    return all;
}

static inline void check_nodes(std::vector<party> &all, bool said)
{
    for (size_t r = 0; r < all.size(); r++) {
        std::vector<int> nodes(all.size(), -1);
        cudaSetDevice((int)r);
        if (all[r].t.nodes(all[r].t.context, nodes.data()))
            all[r].wrong = std::string("nodes: ") + all[r].t.error(all[r].t.context);
        for (size_t i = 0; i < all.size() && all[r].wrong.empty(); i++)
            if (nodes[i] != (said ? node_of((int)i) : 0))
                all[r].wrong = "rank " + std::to_string(i) + " is not on node " + std::to_string(nodes[i]);
    }
}

static inline void drop(std::vector<party> &all)
{
    for (size_t r = 0; r < all.size(); r++) {
        cudaSetDevice((int)r);
        if (all[r].t.context)
            all[r].t.close(all[r].t.context);
        cudaFree(all[r].device);
        ncclCommDestroy(all[r].comm);
    }
}

#endif
