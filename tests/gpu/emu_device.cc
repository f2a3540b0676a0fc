/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device functions over the emulator of thread blocks. On tiles beyond 2^32 elements: the last tiles of a block are
 * encoded, decoded and added by themselves, in memory of which only the pages in use exist. And how often a tile's
 * accesses to shared memory meet in a bank. The last line is "N passed, N failed".
 *   emu_device [--table]       print wavefronts, in Markdown */
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
static void check_bitmap(uint64_t before)
{
    far f;
    space block(48 + 520 * (FIRST + WARPS) + 64 + before + f.nnz);
    making<uint8_t> m = made_in<PICI_BITMAP>(f, block.at, 0);
    uint64_t end = 0;
    bool good = run(
        [&] {
            carry prefix = {before};
            const uint64_t e =
                make_partition<PICI_BITMAP>(m, FIRST / WARPS, (block_memory *)emu::shared_memory(), prefix);
            if (hw::thread() == 0)
                end = e;
        },
        MAKE_BYTES<uint8_t>(PICI_BITMAP, THREADS));
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
                                      const uint64_t found = warp_hybrid<decltype(how)::value, arith<PICI_U8>>(
                                          nnz, v, f.dst.at, FIRST + warp(), v.tiles, stage());
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

/* ---- bank conflicts ---- */

enum pattern { FULL, HALF_ROWS, TWO_OF_FOUR, RANDOM_50, RANDOM_10, PATTERNS };

static bool set(enum pattern p, unsigned row, unsigned column)
{
    switch (p) {
    case FULL: return true;
    case HALF_ROWS: return row % 2 == 0;
    case TWO_OF_FOUR: return column % 4 < 2;
    case RANDOM_50: return rand() % 2 == 0;
    default: return rand() % 10 == 0;
    }
}

enum { ENCODE, READ, APPLY, CALLS };

/* What a warp takes to encode a tile, to decode it, and to add it. */
template <class T, unsigned FORMAT> static void measure(emu::bank_tally (&t)[CALLS], unsigned dtype, enum pattern p)
{
    const size_t cap = pici_bound((enum pici_format)FORMAT, (enum pici_dtype)dtype, TILE);
    space src(TILE * sizeof(T)), dst(TILE * sizeof(T)), block(cap);
    T *const in = (T *)src.at, *const out = (T *)dst.at;
    srand(1);
    for (unsigned i = 0; i < TILE; i++)
        in[i] = set(p, i / COLS, i % COLS) ? (T)(1 + i % 100) : (T)0;
    uint64_t len = 0;
    int status[2] = {1, 1};
    const auto counted = [&](emu::bank_tally &to, unsigned shared, const std::function<void()> &kernel) {
        emu::count_banks(true);
        const bool good = emu::launch(1, 1, LANES, shared, kernel);
        to = emu::banks();
        emu::count_banks(false);
        tally(good, "one tile", emu::error());
    };
    counted(t[ENCODE], MAKE_BYTES<T>(FORMAT, LANES),
            [&] { len = block_compress<FORMAT>(block.at, cap, (const T *)in, TILE, dtype, emu::shared_memory()); });
    counted(t[READ], READ_BYTES<T>(LANES),
            [&] { status[0] = block_decompress(out, TILE, dtype, block.at, len, emu::shared_memory()); });
    tally(!status[0] && memcmp(in, out, TILE * sizeof(T)) == 0, "one tile decoded", "other elements");
    counted(t[APPLY], READ_BYTES<T>(LANES),
            [&] { status[1] = block_apply(out, TILE, dtype, block.at, len, emu::shared_memory()); });
    tally(!status[1] && out[0] == 0, "one tile applied", "other elements");
}

/* A regular tile in pici takes hardly more wavefronts than if no two lanes met in a bank. A random one, where lanes
 * access random banks, takes at most four times as many. In the other formats the values of a row follow one another:
 * two meet in a bank at most. */
static void check_conflicts(bool table)
{
    static const char *const patterns[PATTERNS] = {"full", "every second row", "columns 0 and 1 of 4", "50% random",
                                                   "10% random"};
    static const char *const formats[] = {"pici", "coo", "hybrid"}, *const calls[CALLS] = {"encode", "decode", "add"};
    static const struct {
        unsigned dtype, width;
    } types[] = {{PICI_U8, 1}, {PICI_U16, 2}, {PICI_U32, 4}, {PICI_U64, 8}};
    if (table)
        printf("| format, tile | u8 | u16 | u32 | u64 |\n|---|---|---|---|---|\n");
    for (unsigned f = 0; f < 3; f++)
        for (unsigned p = 0; p < PATTERNS; p++) {
            if (table)
                printf("| %s, %s |", formats[f], patterns[p]);
            for (const auto &type : types) {
                emu::bank_tally t[CALLS];
                const auto each = [&](auto zero) {
                    typedef decltype(zero) T;
                    if (f == 0)
                        measure<T, PICI_BITMAP>(t, type.dtype, (enum pattern)p);
                    else if (f == 1)
                        measure<T, PICI_COO>(t, type.dtype, (enum pattern)p);
                    else
                        measure<T, PICI_HYBRID>(t, type.dtype, (enum pattern)p);
                };
                switch (type.width) {
                case 1: each((uint8_t)0); break;
                case 2: each((uint16_t)0); break;
                case 4: each((uint32_t)0); break;
                default: each((uint64_t)0);
                }
                for (unsigned c = 0; c < CALLS; c++) {
                    char what[120], got[60];
                    const uint64_t least = t[c].least, most = f                ? 2 * least
                                                              : p >= RANDOM_50 ? 4 * least
                                                                               : least + least / 8;
                    snprintf(what, sizeof what, "bank conflicts: %s of %s, width %u, %s", calls[c], formats[f],
                             type.width, patterns[p]);
                    snprintf(got, sizeof got, "%u wavefronts, at most %u without conflicts", (unsigned)t[c].wavefronts,
                             (unsigned)t[c].least);
                    tally(t[c].wavefronts <= most, what, got);
                    if (table)
                        printf("%s%u of %u", c ? ", " : " ", (unsigned)t[c].wavefronts, (unsigned)t[c].least);
                }
                if (table)
                    printf(" |");
            }
            if (table)
                printf("\n");
        }
}

int main(int argc, char **argv)
{
    check_conflicts(argc > 1 && strcmp(argv[1], "--table") == 0);
    check_bitmap(0);
    check_bitmap((UINT64_C(1) << 32) + 77);
    check_coo();
    check_hybrid();
    check_dense();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
