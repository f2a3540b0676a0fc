/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/machine.h"

#include <string.h>

#define CPU_VENDORS (1u << MODEL_RING | 1u << MODEL_RABENSEIFNER)

/* One core of an AMD EPYC with AVX-512, slices of 1 MiB that are not in the caches, nonzeros at random positions. The
 * 10th percentile of 128 measurements, since other programs ran at the same time. A slice is counted, and then encoded
 * from the cache. */
#define CPU_CODEC                                                                                                      \
    {                                                                                                                  \
        [PICI_DENSE] = {{600, {0}}, {400, {0}}, {1200, {0}}, {1350, {0}}},                                             \
        [PICI_BITMAP] = {{0},                                                                                          \
                         {370, {0, 90, 210, 300, 400}},                                                                \
                         {40, {200, 940, 1050, 1200, 1820}},                                                           \
                         {640, {0, 90, 1950, 2030, 2560}}},                                                            \
        [PICI_COO] = {{0},                                                                                             \
                      {200, {670, 530, 700, 1030, 2700}},                                                              \
                      {0, {250, 980, 1100, 1350, 5090}},                                                               \
                      {640, {0, 70, 230, 600, 3140}}},                                                                 \
        [PICI_HYBRID] = {{0},                                                                                          \
                         {230, {180, 260, 320, 410, 570}},                                                             \
                         {0, {270, 800, 1050, 1050, 1850}},                                                            \
                         {640, {20, 90, 230, 260, 1150}}},                                                             \
        [PICI_PACKED] = {{0},                                                                                          \
                         {230, {240, 475, 750, 1260, 1990}},                                                           \
                         {0, {280, 850, 1150, 1250, 2360}},                                                            \
                         {640, {25, 115, 280, 360, 710}}},                                                             \
    }

/* Hosts of the test network (bench/net): network namespaces behind links of `bytes` bytes per second. */
#define TEST_NETWORK(bytes)                                                                                            \
    {                                                                                                                  \
        .link = {{61e-6, 1 / (bytes)}, {9e-6, 3.1e-10}}, .node_beta = 1 / (bytes), .agree = 340e-6, .agree_ranks = 8,  \
        .codec = CPU_CODEC, .natives = CPU_VENDORS                                                                     \
    }

#define ETHERNET(alpha, bytes)                                                                                         \
    {                                                                                                                  \
        .link = {{alpha, 1 / (bytes)}, {5e-6, 2e-10}}, .node_beta = 1 / (bytes), .agree = 2 * (alpha),                 \
        .agree_ranks = 2, .codec = CPU_CODEC, .natives = CPU_VENDORS                                                   \
    }

const struct model_machine pici_model_machine = ETHERNET(50e-6, 1.25e8);

/* Rates of a codec on a GPU, in dense bytes per second: `reduce` to count, encode and add, `decode` to decode, `memory`
 * for copies and dense sums. The result is nanoseconds for a tile of 16 KiB, at any density. */
#define NS(bytes) (16384e9 / (bytes))
#define SPARSE_ON_GPU(reduce, decode)                                                                                  \
    {                                                                                                                  \
        {0}, {0.3 * NS(reduce), {0}}, {0.5 * NS(reduce), {0}},                                                         \
        {                                                                                                              \
            NS(decode),                                                                                                \
            {                                                                                                          \
                0                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GPU_CODEC(reduce, decode, memory)                                                                              \
    {                                                                                                                  \
        [PICI_DENSE] = {{0.2 * NS(reduce), {0}}, {2 * NS(memory), {0}}, {3 * NS(memory), {0}}, {2 * NS(memory), {0}}}, \
        [PICI_BITMAP] = SPARSE_ON_GPU(reduce, decode), [PICI_COO] = SPARSE_ON_GPU(reduce, decode),                     \
        [PICI_HYBRID] = SPARSE_ON_GPU(reduce, decode)                                                                  \
    }

/* Rates of the codec on a GPU, implied by the papers' gains at 99% zeros. Decoding takes 5.25 times the link's
 * bandwidth; counting, encoding and adding take 2.5 times. The link is the flat ring's 85 GB/s on Perlmutter. */
#define A100_CODEC GPU_CODEC(2.5 * 85e9, 5.25 * 85e9, 1.3e12)

static const struct machine machines[] = {
    {"perlmutter",
     "4 A100 GPUs a node, NVLink, four 200 Gbit/s NICs a node; NCCL",
     "Link rates: the papers' description of the machine (SpCCL, PCCL). Latencies, and the rates of NCCL's flat ring: "
     "effective constants that fit the ratios that PCCL prints; no paper prints them. Codec: implied by SpCCL's gains "
     "at 99% zeros (5.25 for all-gather, 2.5 for reduce-scatter). Nothing of this was measured by us.",
     4,
     128 << 20,
     {.link = {{0.5e-3, 1 / 25e9}, {3e-6, 1 / 200e9}},
      .node_beta = 1 / 100e9,
      .agree = 20e-6,
      .agree_ranks = 2,
      .codec = A100_CODEC,
      .natives = 1u << MODEL_RING | 1u << MODEL_TREE,
      .native = {10e-6, 1 / 85e9},
      .memory_beta = 1 / 1.3e12}},
    {"perlmutter-flat",
     "the same, as SpCCL used it: rings over all GPUs, regardless of nodes",
     "Rates of NCCL's flat ring: effective constants that fit the ratios that PCCL prints. Codec: implied by SpCCL's "
     "gains at 99% zeros (5.25 times the ring's rate to decode, 2.5 times to count, encode and add). Nothing of this "
     "was measured by us.",
     4,
     128 << 20,
     {.link = {{10e-6, 1 / 85e9}, {10e-6, 1 / 85e9}},
      .node_beta = 1 / 85e9,
      .agree = 20e-6,
      .agree_ranks = 2,
      .codec = A100_CODEC,
      .natives = 1u << MODEL_RING,
      .native = {10e-6, 1 / 85e9}}},
    {"frontier",
     "8 GCDs of MI250X a node, four 200 Gbit/s NICs a node, one for two GCDs; RCCL",
     "Link rates: PCCL's description of the machine. Latencies, and the rates of RCCL's flat ring: effective constants "
     "that fit the ratios that PCCL prints for all-gather. They do not explain its reduce-scatter (50 to 168 times). "
     "Codec: as Perlmutter's. None of this is our own measurement.",
     8,
     128 << 20,
     {.link = {{0.6e-3, 1 / 12.5e9}, {5e-6, 1 / 60e9}},
      .node_beta = 1 / 100e9,
      .agree = 20e-6,
      .agree_ranks = 2,
      .codec = A100_CODEC,
      .natives = 1u << MODEL_RING,
      .native = {80e-6, 1 / 37e9},
      .memory_beta = 1 / 1.3e12}},
    {"gige-100", "the test network at 100 Mbit/s: hosts with a core for each rank",
     "200 Mbit/s, measured by bench/net over Open MPI (TCP); its rate in proportion.", 1, 1 << 20,
     TEST_NETWORK(11.3e6)},
    {"gige-200", "the test network at 200 Mbit/s: hosts with a core for each rank",
     "Bandwidth: dense rings of 64 MiB in bench/net over Open MPI (docs/developers). Latencies: assumed. "
     "Codec: one core of an AMD EPYC with AVX-512.",
     1, 1 << 20, TEST_NETWORK(22.6e6)},
    {"gige-500", "the test network at 500 Mbit/s: hosts with a core for each rank",
     "200 Mbit/s, measured by bench/net over Open MPI (TCP); its rate in proportion.", 1, 1 << 20,
     TEST_NETWORK(56.5e6)},
    {"ethernet-1g", "Gigabit Ethernet, a core for each rank: the constants that the library has",
     "Nominal rate; 50 us a message is an assumption. Codec: one core of an AMD EPYC with AVX-512.", 4, 1 << 20,
     ETHERNET(50e-6, 1.25e8)},
    {"ethernet-10g", "10 Gbit/s Ethernet, a core for each rank",
     "Nominal rate; 30 us a message is an assumption. Codec: one core of an AMD EPYC with AVX-512.", 4, 1 << 20,
     ETHERNET(30e-6, 1.25e9)},
    {"ethernet-100g", "100 Gbit/s Ethernet, a core for each rank",
     "Nominal rate; 15 us a message is an assumption. Codec: one core of an AMD EPYC with AVX-512.", 8, 1 << 20,
     ETHERNET(15e-6, 1.25e10)},
    {"simulated",
     "the simulated network of FACTORS=1 bench/sim run switch, whose ranks compute in no time",
     "Links of 1 Gbit/s and 10 us, as bench/sim writes them; a message between nodes takes two of them.",
     1,
     1 << 20,
     {.link = {{20e-6, 1 / 1.25e8}, {1e-6, 1 / 5e9}},
      .node_beta = 1 / 1.25e8,
      .agree = 160e-6,
      .agree_ranks = 16,
      .natives = CPU_VENDORS}},
};

const struct machine *pici_machine(int i)
{
    return i >= 0 && (size_t)i < sizeof machines / sizeof *machines ? &machines[i] : NULL;
}

const struct machine *pici_machine_named(const char *name)
{
    for (int i = 0; pici_machine(i); i++)
        if (strcmp(machines[i].name, name) == 0)
            return &machines[i];
    return NULL;
}
