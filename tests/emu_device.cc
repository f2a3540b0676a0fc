/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device functions on tiles beyond 2^32 elements, over the emulator of thread blocks: the last tiles of a block are
 * encoded, decoded and added by themselves, in memory of which only the pages in use exist. The last line is "N passed,
 * N failed". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "emu/cuda_runtime.h"
#include "emu/tally.h"
#include "pici/device.cuh"

using namespace pici;

/* Address space, zero until it is written. */
class space {
  public:
    explicit space(size_t n) : bytes(n + 65536)
    {
        void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            printf("FAIL no address space for %zu bytes\n", bytes);
            exit(1);
        }
        at = (uint8_t *)p;
    }
    ~space()
    {
        munmap(at, bytes);
    }
    space(const space &) = delete;
    uint8_t *at;

  private:
    size_t bytes;
};

/* A thread block of 4 warps does the last 4 tiles, which are those from tile 2^20 on. */
constexpr unsigned THREADS = 128, WARPS = THREADS / LANES;
constexpr uint64_t FIRST = UINT64_C(1) << 20, N = (FIRST + WARPS) * TILE - 1000, FROM = FIRST * TILE;

static bool run(const std::function<void()> &kernel, size_t shared)
{
    return emu::launch(1, 1, THREADS, shared, kernel);
}

static void say(bool good, const char *format, const char *what)
{
    char name[100];
    snprintf(name, sizeof name, "%s: %s", format, what);
    tally(good, name, *emu::error() ? emu::error() : "other bytes");
}

/* Bytes, every seventh of them nonzero. */
struct far {
    space src, dst;
    std::vector<uint8_t> want; /* the elements from FROM on */
    uint64_t nnz = 0;

    far() : src(N), dst(N), want(N - FROM)
    {
        for (size_t i = 0; i < want.size(); i++)
            if (i % 7 == 3) {
                want[i] = (uint8_t)(i % 251 + 1);
                nnz++;
            }
        memcpy(src.at + FROM, want.data(), want.size());
    }
    bool decoded() const
    {
        return memcmp(dst.at + FROM, want.data(), want.size()) == 0;
    }
    bool doubled() const
    {
        for (size_t i = 0; i < want.size(); i++)
            if (dst.at[FROM + i] != (uint8_t)(2 * want[i]))
                return false;
        return true;
    }
};

template <unsigned FORMAT> static making<uint8_t> made_in(const far &f, uint8_t *block, uint64_t nnz)
{
    making<uint8_t> m = {f.src.at, block, UINT64_C(1) << 40, block_view(), nullptr, false};
    m.to.format = FORMAT;
    m.to.dtype = PICI_U8;
    m.to.count = N;
    m.to.nnz = nnz;
    layout(m.to);
    return m;
}

static uint8_t *stage()
{
    return stage_of<READ_STAGE_BYTES<uint8_t>>((block_memory *)emu::shared_memory());
}

static block_view view_of(const making<uint8_t> &m, uint64_t nnz)
{
    block_view v = m.to;
    v.bytes = m.block;
    v.nnz = nnz;
    layout(v);
    return v;
}

/* before: values of the tiles before, which are said to be there. */
static void check_pici(uint64_t before)
{
    far f;
    space block(48 + 520 * (FIRST + WARPS) + 64 + before + f.nnz);
    making<uint8_t> m = made_in<PICI_PICI>(f, block.at, 0);
    uint64_t end = 0;
    bool good = run(
        [&] {
            carry prefix = {before};
            const uint64_t e = make_partition<PICI_PICI>(m, FIRST / WARPS, (block_memory *)emu::shared_memory(), prefix);
            if (hw::thread() == 0)
                end = e;
        },
        MAKE_BYTES<uint8_t>(PICI_PICI, THREADS));
    say(good && end == before + f.nnz, "pici", "encoding");
    const block_view v = view_of(m, before + f.nnz);
    uint64_t fault = 0;
    const auto read = [&](auto how) {
        const uint64_t found = tile_read<decltype(how)::value, arith<PICI_U8>>(v, FIRST + warp(), f.dst.at, stage());
        if (found)
            fault = found;
    };
    good = run([&] { read(std::integral_constant<reading, DECODE>()); }, READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.decoded(), "pici", "decoding");
    good = run([&] { read(std::integral_constant<reading, ADD>()); }, READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.doubled(), "pici", "adding");
}

static void check_coo()
{
    far f;
    space block(48 + 9 * f.nnz + 64);
    const making<uint8_t> m = made_in<PICI_COO>(f, block.at, f.nnz);
    bool good = run(
        [&] {
            carry prefix = {0};
            make_partition<PICI_COO>(m, FIRST / WARPS, (block_memory *)emu::shared_memory(), prefix);
        },
        MAKE_BYTES<uint8_t>(PICI_COO, THREADS));
    say(good, "coo", "encoding");
    const block_view v = view_of(m, f.nnz);
    uint64_t fault = 0;
    good = run(
        [&] {
            const uint64_t t = FIRST + warp(), found = warp_coo_decode(v, t, t + 1, f.dst.at, stage());
            if (found)
                fault = found;
        },
        READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.decoded(), "coo", "decoding");
    good = run(
        [&] {
            const uint64_t found = warp_coo_entries<ADD, arith<PICI_U8>>(v, f.dst.at, warp(), warps());
            if (found)
                fault = found;
        },
        READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.doubled(), "coo", "adding");
}

static void check_hybrid()
{
    far f;
    space block(48 + 8 * groups_of(tiles_of(N)) + 64 + 2 * (N - FROM));
    making<uint8_t> m = made_in<PICI_HYBRID>(f, block.at, 0);
    group_end end = {0, 0, false};
    bool good = run(
        [&] {
            carry prefix = {0};
            const group_end e = make_group(m, FIRST / GROUP_TILES, (block_memory *)emu::shared_memory(), prefix);
            if (hw::thread() == 0)
                end = e;
        },
        MAKE_BYTES<uint8_t>(PICI_HYBRID, THREADS));
    say(good && end.nnz == f.nnz, "hybrid", "encoding");
    end_of_groups(m, end.units, end.nnz, end.signs);
    const block_view v = view_of(m, end.nnz);
    uint64_t fault = 0;
    const auto read = [&](auto how) { /* as many shares as tiles */
        uint64_t nnz;
        const uint64_t found = warp_hybrid<decltype(how)::value, arith<PICI_U8>>(nnz, v, f.dst.at, FIRST + warp(),
                                                                                v.tiles, stage());
        if (found)
            fault = found;
    };
    good = run([&] { read(std::integral_constant<reading, DECODE>()); }, READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.decoded(), "hybrid", "decoding");
    good = run([&] { read(std::integral_constant<reading, ADD>()); }, READ_BYTES<uint8_t>(THREADS));
    say(good && !fault && f.doubled(), "hybrid", "adding");
}

static void check_dense()
{
    far f;
    const uint64_t shares = N / 16 / LANES; /* so many warps have a quad a lane each, and a few of them a second */
    const auto share = [&] { return FROM / 16 / LANES + warp(); };
    for (unsigned k = 0; k < (N - FROM) / 16 / LANES / WARPS; k++) {
        const bool good = run(
            [&] { warp_dense<DECODE, void>(f.dst.at, (const uint8_t *)f.src.at, N, share() + k * WARPS, shares); }, 0);
        if (!good)
            break;
    }
    const size_t whole = (N - FROM) / 16 / LANES / WARPS * WARPS * LANES * 16;
    say(whole > 14000 && memcmp(f.dst.at + FROM, f.want.data(), whole) == 0, "dense", "copying");
    uint64_t counted = 0;
    const bool good = run(
        [&] {
            const uint64_t own = warp_sum(warp_count((const uint8_t *)f.src.at, N, FIRST + warp(), tiles_of(N)));
            if (hw::lane() == 0)
                hw::atomic_add(&counted, own);
        },
        0);
    say(good && counted == f.nnz, "coo", "counting");
}

int main(void)
{
    check_pici(0);
    check_pici((UINT64_C(1) << 32) + 77);
    check_coo();
    check_hybrid();
    check_dense();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
