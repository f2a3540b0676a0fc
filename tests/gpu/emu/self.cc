/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tests of the emulator of thread blocks: it does what a GPU does, and it rejects faulty kernels, each with the
 * right message. The last line is "N passed, N failed". */
#include <string.h>

#include "cuda_runtime.h"
#include "tally.h"

using namespace pici;

static uint32_t out[256]; /* output of a kernel, one for each thread */

/* In device memory. */
static uint64_t data, flag, sum, done;

static void clear()
{
    data = flag = sum = done = 0;
}

/* In every order of its threads, the kernel fails with this message. */
template <class K>
static void caught(const char *what, const char *why, unsigned threads, K kernel, unsigned blocks = 1)
{
    for (uint64_t s = 1; s <= 10; s++) {
        emu::seed(s);
        clear();
        const bool good = emu::launch(blocks, 1, threads, 1024, kernel);
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
    static uint64_t flags[64];
    for (unsigned resident = 1; resident <= 4; resident++) {
        emu::resident(resident);
        bool all = true;
        for (unsigned s = 0; s < 10; s++) {
            ticket = 0;
            memset(flags, 0, sizeof flags);
            emu::seed(s);
            all &= emu::launch(64, 1, 32, 64, [] {
                /* thread blocks take tickets; each waits for the one before */
                const uint32_t t = hw::shfl(hw::lane() == 0 ? hw::atomic_add(&ticket, 1u) : 0, 0);
                while (t && hw::load_relaxed(flags + t - 1) == 0)
                    hw::pause();
                if (hw::lane() == 0)
                    hw::store_relaxed(flags + t, t ? flags[t - 1] + 1 : 1);
            });
        }
        tally(all && flags[63] == 64, "blocks that wait for one another, by ticket", emu::error());
    }
    emu::resident(3);
}

static void bad_kernels()
{
    /* a read that no barrier orders may come before or after the write */
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
    caught("a mask without the lane itself", "not in its own mask", 32, [] { hw::ballot(true, 0x7fffffff); });
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
    caught("shared memory that was not written", "was not written", 32, [] { hw::get(words() + 200); });
    caught("shared memory beyond its end", "outside shared memory", 32, [] { hw::put(words() + 256, 1u); });
    caught("a misaligned access", "not aligned", 32, [] { hw::put((uint32_t *)((uint8_t *)words() + 2), 1u); });
    caught("a misaligned pair in device memory", "not aligned", 32,
           [] { hw::load((const uint64_t *)((const uint8_t *)out + 4)); });
    caught("waiting for what never happens", "no thread makes progress", 32, [] {
        while (hw::load_relaxed((const uint64_t *)out) != 12345)
            hw::pause();
    });
    /* each thread block waits for the one with the number before: works on a GPU only if they begin in that order */
    static uint64_t flags[8];
    memset(flags, 0, sizeof flags);
    emu::resident(1);
    emu::seed(3);
    const bool good = emu::launch(8, 1, 32, 64, [] {
        while (hw::block_x() && hw::load_relaxed(flags + hw::block_x() - 1) == 0)
            hw::pause();
        hw::store_relaxed(flags + hw::block_x(), 1);
    });
    tally(!good && strstr(emu::error(), "no thread makes progress"), "blocks that wait by number", emu::error());
    emu::resident(3);

    void *p;
    cudaMalloc(&p, 41);
    ((volatile uint8_t *)p)[0] = 1;
#ifndef EMU_ASAN /* it would end the program */
    ((volatile uint8_t *)p)[41] = 1;
    cudaFree(p);
    tally(cudaGetLastError() != cudaSuccess, "a byte written beyond a buffer", "not caught");
#else
    cudaFree(p);
#endif
}

/* ---- device memory ---- */

/* Thread block 0 hands data over to thread block 1, each by thread 0; with or without the fences. */
static void hand_over(bool release, bool acquire)
{
    if (hw::thread() != 0)
        return;
    if (hw::block_x() == 0) {
        hw::store(&data, UINT64_C(7));
        if (release)
            hw::fence();
        hw::store_relaxed(&flag, UINT64_C(1));
    } else {
        while (hw::load_relaxed(&flag) == 0)
            hw::pause();
        if (acquire)
            hw::fence();
        out[0] = (uint32_t)hw::load(&data);
    }
}

/* All thread blocks add to a sum, and the one that ends last reads it. */
static void add_up(bool release, bool acquire)
{
    hw::atomic_add(&sum, UINT64_C(1));
    hw::syncthreads();
    if (hw::thread() == 0) {
        if (release)
            hw::fence();
        const bool last = hw::atomic_add(&done, UINT64_C(1)) + 1 == hw::blocks_x();
        if (acquire)
            hw::fence();
        if (last)
            out[0] = (uint32_t)hw::load_settled(&sum);
    }
}

static void device_memory()
{
    const char *const race = "race in device memory";
    alignas(16) static uint32_t device[256];
    for (uint64_t s = 1; s <= 10; s++) {
        clear();
        emu::seed(s);
        out[0] = 0;
        bool good = emu::launch(2, 1, 32, 0, [] { hand_over(true, true); });
        tally(good && out[0] == 7, "data handed over with fences", emu::error());
        good = emu::launch(5, 1, 64, 0, [] { add_up(true, true); });
        tally(good && out[0] == 5 * 64, "a sum of all thread blocks", emu::error());
    }
    tally(runs(2, 64,
               [] {
                   uint32_t *own = device + hw::block_x() * 64;
                   hw::store(own + hw::thread(), 1u);
                   hw::syncthreads();
                   hw::store(own + (hw::thread() ^ 32), 2u);
                   hw::syncwarp();
                   hw::load(own + (hw::thread() ^ 33));
                   hw::load((const uint8_t *)device + 4 * 128);
               }),
          "device memory across warps and thread blocks", emu::error());

    caught(
        "data handed over without the first fence", race, 32, [] { hand_over(false, true); }, 2);
    caught(
        "data handed over without the second fence", race, 32, [] { hand_over(true, false); }, 2);
    caught(
        "a sum of all thread blocks without the first fence", race, 64, [] { add_up(false, true); }, 5);
    caught(
        "a sum of all thread blocks without the second fence", race, 64, [] { add_up(true, false); }, 5);
    caught(
        "a plain load of a word that is stored relaxed", race, 32,
        [] {
            if (hw::block_x() == 0 && hw::thread() == 0)
                hw::store_relaxed(&flag, UINT64_C(1));
            else
                hw::load(&flag);
        },
        2);
    caught(
        "a plain load and store of a word that is updated", race, 32,
        [] {
            if (hw::block_x() == 0)
                hw::atomic_max(&sum, (uint64_t)hw::thread());
            else
                hw::store(&sum, hw::load(&sum) + 1);
        },
        2);
    caught(
        "a word of two thread blocks, of which each writes a half", race, 32,
        [] {
            if (hw::thread() == 0) {
                const uint32_t half = hw::block_x() ? 0xffffu : 0xffff0000u;
                hw::store(device, (hw::load(device) & ~half) | (0x12341234u & half));
            }
        },
        2);
    caught(
        "reading what another thread block writes", race, 32,
        [] {
            if (hw::block_x() == 0)
                hw::store((uint8_t *)device + hw::thread(), (uint8_t)1);
            else
                hw::load((const raw128 *)device);
        },
        2);
    caught("reading what another warp writes, with __syncwarp alone", race, 64, [] {
        hw::store(device + hw::thread(), 1u);
        hw::syncwarp();
        hw::load(device + (hw::thread() ^ 32));
    });
    caught(
        "writing what several thread blocks read", race, 32,
        [] {
            hw::load(device + 9);
            if (hw::block_x() == 2 && hw::thread() == 0)
                hw::store(device + 9, 1u);
        },
        3);
    emu::watch_races(false);
    const bool good = emu::launch(2, 1, 32, 0, [] { hw::store(device, (uint32_t)hw::block_x()); });
    emu::watch_races(true);
    tally(good, "a race that is not looked for", emu::error());
}

static void late_copies()
{
    alignas(16) static uint32_t from[64];
    for (unsigned i = 0; i < 64; i++)
        from[i] = i;
    tally(runs(1, 32,
               [] {
                   hw::copy_async(words() + hw::lane(), (const uint32_t *)from + hw::lane());
                   hw::copy_async_wait();
                   hw::syncwarp();
                   out[hw::lane()] = hw::get(words() + (hw::lane() ^ 1));
               }) &&
              out[0] == 1 && out[31] == 30,
          "a late copy", "other words");
    tally(runs(1, 32,
               [] {
                   hw::copy_async(words() + hw::lane(), (const uint32_t *)from + hw::lane());
                   out[hw::lane()] = hw::get(words() + hw::lane());
                   hw::copy_async_wait();
               }) &&
              (out[0] != 0 || out[1] != 1 || out[31] != 31),
          "a late copy that is not waited for", "is there");
    caught("a late copy that others read without a barrier", "race in shared memory", 32, [] {
        hw::copy_async(words() + hw::lane(), (const uint32_t *)from + hw::lane());
        hw::syncwarp();
        hw::copy_async_wait();
        hw::get(words() + (hw::lane() ^ 1));
    });
    caught("a late copy that is never waited for", "ends before its copy", 32,
           [] { hw::copy_async(words() + hw::lane(), (const uint32_t *)from + hw::lane()); });
}

static void limits()
{
    const auto nothing = [] {};
    tally(emu::launch(1, 1, 1024, 163 << 10, nothing), "all that a thread block can have", emu::error());
    tally(!emu::launch(1, 1, 32, (163 << 10) + 16, nothing) && strstr(emu::error(), "shared memory"),
          "too much shared memory", emu::error());
    tally(!emu::launch(1, 1, 1056, 0, nothing) && strstr(emu::error(), "threads"), "too many threads", emu::error());
    tally(!emu::launch(1, 65536, 32, 0, nothing) && strstr(emu::error(), "grid"), "too many thread blocks in y",
          emu::error());
    tally(!emu::launch(0, 1, 32, 0, nothing) && strstr(emu::error(), "grid"), "no thread block", emu::error());
}

/* The kernel takes so many wavefronts of shared memory. */
template <class K> static void takes(const char *what, uint64_t instructions, uint64_t wavefronts, K kernel)
{
    emu::count_banks(true);
    const bool good = emu::launch(1, 1, 32, 1 << 16, kernel);
    const emu::bank_tally t = emu::banks();
    emu::count_banks(false);
    char got[100];
    snprintf(got, sizeof got, "%s%u instructions, %u wavefronts", emu::error(), (unsigned)t.instructions,
             (unsigned)t.wavefronts);
    tally(good && t.instructions == instructions && t.wavefronts == wavefronts, what, got);
}

static void bank_conflicts()
{
    takes("a row of words", 1, 1, [] { hw::put(words() + hw::lane(), 1u); });
    takes("two words of each bank", 1, 2, [] { hw::put(words() + 2 * hw::lane(), 1u); });
    takes("a column of words", 1, 32, [] { hw::put(words() + 32 * hw::lane(), 1u); });
    takes("bytes of one word", 1, 1, [] { hw::put((uint8_t *)words() + hw::lane(), (uint8_t)1); });
    takes("a row of 8 bytes", 1, 2, [] { hw::put((uint64_t *)words() + hw::lane(), UINT64_C(1)); });
    takes("every second of 8 bytes", 1, 4, [] { hw::put((uint64_t *)words() + 2 * hw::lane(), UINT64_C(1)); });
    takes("a row of 16 bytes", 1, 4, [] { hw::put((raw128 *)words() + hw::lane(), raw128{1, 2}); });
    takes("one word, read by all", 2, 2, [] {
        if (hw::lane() == 0)
            hw::put(words(), 1u);
        hw::syncwarp();
        hw::get(words());
    });
    takes("rows that some lanes skip", 4, 4, [] {
        for (unsigned r = 0; r < 4; r++) {
            if ((hw::lane() + r) % 3)
                hw::put(words() + 32 * r + hw::lane(), 1u);
            hw::in_step();
        }
    });
}

int main(void)
{
    good_kernels();
    bad_kernels();
    device_memory();
    late_copies();
    limits();
    bank_conflicts();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
