/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The emulator of thread blocks itself: that it does what a GPU does, and that kernels with a fault are caught, each
 * for what is wrong with it. The last line is "N passed, N failed". */
#include <string.h>

#include "cuda_runtime.h"
#include "tally.h"

using namespace pici;

static uint32_t out[256]; /* of a kernel, by thread */

/* Whatever the order in which its threads run, the kernel fails, and for this reason. */
template <class K> static void caught(const char *what, const char *why, unsigned threads, K kernel)
{
    for (uint64_t s = 1; s <= 10; s++) {
        emu::seed(s);
        const bool good = emu::launch(1, 1, threads, 1024, kernel);
        tally(!good && strstr(emu::error(), why), what, good ? "not caught" : emu::error());
    }
}

template <class K> static bool runs(unsigned blocks, unsigned threads, K kernel)
{
    bool all = true;
    for (uint64_t s = 1; s <= 10; s++) {
        emu::seed(s);
        memset(out, 0, sizeof out);
        const bool good = emu::launch(blocks, 1, threads, 1024, kernel);
        if (!good)
            printf("  %s\n", emu::error());
        all &= good;
    }
    return all;
}

static uint32_t *words()
{
    return (uint32_t *)emu::shared_memory();
}

static void good_kernels()
{
    tally(runs(1, 32,
               [] {
                   uint32_t n = hw::lane();
                   for (unsigned by = 16; by; by /= 2)
                       n += hw::shfl_down(n, by);
                   out[hw::lane()] = hw::shfl(n, 0);
               }) &&
              out[0] == 496 && out[31] == 496,
          "sum by shfl_down", "not 496");
    tally(runs(1, 32, [] { out[hw::lane()] = hw::shfl_up(100 + hw::lane(), 3); }) && out[0] == 100 && out[2] == 102 &&
              out[3] == 100 && out[31] == 128,
          "shfl_up keeps the lanes that have none below", "");
    tally(runs(1, 32, [] { out[hw::lane()] = hw::shfl_down(hw::lane(), 5); }) && out[26] == 31 && out[27] == 27,
          "shfl_down keeps the lanes that have none above", "");
    tally(runs(1, 32, [] { out[hw::lane()] = hw::ballot(hw::lane() % 3 == 0); }) && out[7] == 0x49249249u, "ballot",
          "");
    tally(runs(1, 32,
               [] {
                   if (hw::lane() < 4)
                       out[hw::lane()] = hw::ballot(true, 15);
               }) &&
              out[3] == 15,
          "ballot of four lanes", "");
    tally(runs(1, 96,
               [] {
                   hw::put(words() + hw::thread(), 7 * hw::thread());
                   hw::syncthreads();
                   out[hw::thread()] = hw::get(words() + 95 - hw::thread());
                   hw::syncthreads();
                   hw::put(words() + hw::thread(), 1u);
               }) &&
              out[0] == 665 && out[95] == 0,
          "shared memory across warps", "");
    tally(runs(1, 64,
               [] {
                   uint32_t *own = words() + hw::thread() / 32 * 32;
                   for (unsigned round = 0; round < 5; round++) {
                       hw::put(own + hw::lane(), hw::lane() + round);
                       hw::syncwarp();
                       out[hw::thread()] = hw::get(own + (31 - hw::lane()));
                       hw::syncwarp();
                   }
               }) &&
              out[0] == 35 && out[63] == 4,
          "shared memory within a warp", "");
    static uint32_t ticket;
    static uint64_t flag[64];
    for (unsigned resident = 1; resident <= 4; resident++) {
        emu::resident(resident);
        bool all = true;
        for (unsigned s = 0; s < 10; s++) {
            ticket = 0;
            memset(flag, 0, sizeof flag);
            emu::seed(s);
            all &= emu::launch(64, 1, 32, 64, [] {
                /* blocks in the order of tickets, each after the one before */
                const uint32_t t = hw::shfl(hw::lane() == 0 ? hw::atomic_add(&ticket, 1u) : 0, 0);
                while (t && hw::load_relaxed(flag + t - 1) == 0)
                    hw::pause();
                if (hw::lane() == 0)
                    hw::store_relaxed(flag + t, t ? flag[t - 1] + 1 : 1);
            });
        }
        tally(all && flag[63] == 64, "blocks that wait for one another, by ticket", emu::error());
    }
    emu::resident(3);
}

static void bad_kernels()
{
    /* a read that nothing orders comes before the write, or after: there is no telling which */
    caught("a missing __syncwarp", "shared memory", 32, [] {
        hw::put(words() + hw::lane(), 1u);
        hw::get(words() + (hw::lane() ^ 1));
    });
    caught("a shuffle where __syncwarp is due", "race in shared memory", 32, [] {
        hw::put(words() + hw::lane(), 1u);
        hw::shfl(1u, 0);
        hw::get(words() + (hw::lane() ^ 1));
    });
    caught("a missing __syncwarp before the next round", "race in shared memory", 32, [] {
        hw::put(words() + hw::lane(), 1u);
        hw::syncwarp();
        hw::get(words() + (hw::lane() ^ 1));
        hw::put(words() + hw::lane(), 2u);
    });
    caught("__syncwarp where __syncthreads is due", "shared memory", 64, [] {
        hw::put(words() + hw::thread(), 1u);
        hw::syncwarp();
        hw::get(words() + (hw::thread() ^ 32));
    });
    caught("two lanes that write one place", "race in shared memory", 32,
           [] { hw::put(words() + hw::lane() / 2, 1u); });
    caught("two lanes that write parts of one word", "race in shared memory", 32,
           [] { hw::put((uint16_t *)words() + (hw::lane() + 1) / 2, (uint16_t)1); });
    caught("three readers, and a writer that one of them is in a warp with", "race in shared memory", 64, [] {
        if (hw::thread() == 0)
            hw::put(words(), 1u);
        hw::syncthreads();
        hw::get(words());
        hw::syncwarp();
        if (hw::thread() == 0)
            hw::put(words(), 2u);
    });
    caught("a mask without oneself", "not in its own mask", 32, [] { hw::ballot(true, 0x7fffffff); });
    caught("a mask with a lane that has ended", "has ended", 32, [] {
        if (hw::lane() != 9)
            hw::ballot(true);
    });
    caught("a mask with a lane that goes elsewhere", "mask", 32, [] {
        if (hw::lane() < 16)
            hw::ballot(true);
        else
            hw::shfl(1u, 0);
    });
    caught("masks that differ", "ballot", 32, [] { hw::ballot(true, hw::lane() < 16 ? 0xffffffff : 0xffff0000); });
    caught("two places in the code", "mask", 32, [] {
        if (hw::lane() < 16)
            hw::ballot(true);
        else
            hw::ballot(true);
    });
    caught("a warp's operation in half a warp", "mask", 32, [] {
        if (hw::lane() < 16)
            hw::syncwarp();
        hw::syncthreads();
    });
    caught("a shuffle from a lane that is not in the mask", "not in mask", 32, [] {
        if (hw::lane() < 8)
            hw::shfl(1u, 8, 0xff);
    });
    caught("__syncthreads in half a block", "has ended", 64, [] {
        if (hw::thread() < 32)
            hw::syncthreads();
    });
    caught("two __syncthreads", "syncthreads", 64, [] {
        if (hw::thread() < 32)
            hw::syncthreads();
        else
            hw::syncthreads();
    });
    caught("shared memory that nobody wrote", "nobody wrote", 32, [] { hw::get(words() + 200); });
    caught("shared memory beyond its end", "outside shared memory", 32, [] { hw::put(words() + 256, 1u); });
    caught("a misaligned access", "not aligned", 32, [] { hw::put((uint32_t *)((uint8_t *)words() + 2), 1u); });
    caught("a misaligned pair in device memory", "not aligned", 32,
           [] { hw::load((const uint64_t *)((const uint8_t *)out + 4)); });
    caught("waiting for what never comes", "nobody gets on", 32, [] {
        while (hw::load_relaxed((const uint64_t *)out) != 12345)
            hw::pause();
    });
    /* blocks that wait for the one before by number: right on a GPU only if they happen to begin in that order */
    static uint64_t flag[8];
    memset(flag, 0, sizeof flag);
    emu::resident(1);
    emu::seed(3);
    const bool good = emu::launch(8, 1, 32, 64, [] {
        while (hw::block_x() && hw::load_relaxed(flag + hw::block_x() - 1) == 0)
            hw::pause();
        hw::store_relaxed(flag + hw::block_x(), 1);
    });
    tally(!good && strstr(emu::error(), "nobody gets on"), "blocks that wait by number", emu::error());
    emu::resident(3);

    void *p;
    cudaMalloc(&p, 41);
    ((volatile uint8_t *)p)[0] = 1;
#ifndef EMU_ASAN /* which would end all */
    ((volatile uint8_t *)p)[41] = 1;
    cudaFree(p);
    tally(cudaGetLastError() != cudaSuccess, "a byte written beyond a buffer", "not caught");
#else
    cudaFree(p);
#endif
}

int main(void)
{
    good_kernels();
    bad_kernels();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
