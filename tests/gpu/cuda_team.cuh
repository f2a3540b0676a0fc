/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by tests of collectives in GPU memory: ranks of this process over the threads' transport. One thread drives
 * them by turns, so that over the emulator a seed decides which rank and which stream advances. */
#ifndef PICI_TESTS_CUDA_TEAM_CUH
#define PICI_TESTS_CUDA_TEAM_CUH

#include "cuda_device.cuh"

extern "C" {
#include "coll/request.h"
}

/* Move all ranks on by turns, until they are done. devices: each rank has one, with its number. */
static std::vector<enum pici_status> drive(std::vector<struct pici_request *> &requests, bool devices = false)
{
    const size_t ranks = requests.size();
    std::vector<enum pici_status> status(ranks, PICI_OK);
    for (size_t left = ranks; left;) {
        const size_t i = rng_below(&rng, ranks);
        int done = 0;
        if (!requests[i])
            continue;
        if (devices)
            cudaSetDevice((int)i);
        status[i] = pici_test(&requests[i], &done);
        left -= (size_t)done;
    }
    return status;
}

/* Ranks of this process, each with a stream. */
class team {
  public:
    /* direct: messages in the GPU's memory */
    team(int ranks, bool direct) : comms((size_t)ranks)
    {
        if (pici_comm_threads(comms.data(), ranks)) {
            printf("FAIL no communicators\n");
            exit(1);
        }
        attach();
        for (struct pici_comm *comm : comms)
            if (!direct)
                comm->transport.memory = PICI_MEMORY_HOST;
    }
    /* Of communicators that were made, each on a device with the rank's number. */
    explicit team(const std::vector<struct pici_comm *> &made) : devices(true), comms(made)
    {
        attach();
    }
    ~team()
    {
        for (size_t i = 0; i < comms.size(); i++) {
            turn_to(i);
            pici_comm_free(comms[i]);
            cudaStreamDestroy(streams[i]);
        }
        turn_to(0);
    }
    team(const team &) = delete;
    /* Make a rank's device the current one. */
    void turn_to(size_t rank) const
    {
        if (devices)
            cudaSetDevice((int)rank);
    }
    const bool devices = false;
    std::vector<struct pici_comm *> comms;
    std::vector<cudaStream_t> streams;

  private:
    void attach()
    {
        for (size_t i = 0; i < comms.size(); i++) {
            cudaStream_t s;
            turn_to(i);
            cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
            streams.push_back(s);
            tally(pici_comm_cuda(comms[i], s) == PICI_OK, "pici_comm_cuda");
        }
        turn_to(0);
    }
};

/* Is this element a NaN? */
static inline bool is_nan(const uint8_t *p, enum pici_dtype dtype)
{
    uint64_t v = 0;
    memcpy(&v, p, pici_dtype_width(dtype));
    switch (dtype) {
    case PICI_F32: return (v & 0x7fffffff) > 0x7f800000;
    case PICI_F64: return (v & INT64_MAX) > UINT64_C(0x7ff0000000000000);
    case PICI_F16: return (v & 0x7fff) > 0x7c00;
    case PICI_BF16: return (v & 0x7fff) > 0x7f80;
    case PICI_F8E4M3: return (v & 0x7f) == 0x7f;
    case PICI_F8E5M2: return (v & 0x7f) > 0x7c;
    default: return false;
    }
}

/* Over the emulator: what follows in a stream happens late. */
static inline void dawdle(cudaStream_t s)
{
#ifdef PICI_DEVICE_HW
    for (uint64_t left = rng_below(&rng, 200); left; left--)
        emu::enqueue(s, [] { return true; });
#else
    (void)s;
#endif
}

#endif
