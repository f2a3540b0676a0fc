/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encodes and decodes blocks with one emulated thread block, and compares them with the library's.
 tests/gpu/emu/mutants * compiles it against damaged copies of pici/device.cuh. The exit status is 0 if no error was
 found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda_runtime.h"
#include "pici/device.cuh"

static unsigned wrong;

static void expect(bool good, const char *what)
{
    if (!good && wrong++ < 3)
        printf("  %s%s%s\n", what, *emu::error() ? ": " : "", emu::error());
}

enum { MIXED = 101 }; /* instead of a percentage: tiles for each of hybrid's containers */

/* Should element i be nonzero? With MIXED, tiles have by turns none, a few, more, half, all, or a run of 256 and a
 * few. */
static bool wanted(uint64_t i, unsigned percent)
{
    static const unsigned of4096[] = {0, 10, 100, 2000, 4096, 10};
    if (percent != MIXED)
        return (unsigned)rand() % 100 < percent;
    const unsigned kind = (unsigned)((i / pici::TILE + 2) % 6);
    return (unsigned)rand() % 4096 < of4096[kind] || (kind == 5 && i % pici::TILE / pici::RUN == 3);
}

/* negative: percent of the zeros that have a sign. */
template <class T, unsigned DTYPE, unsigned FORMAT> static void check(uint64_t n, unsigned percent, int negative = 0)
{
    const unsigned threads = 96, make = pici::MAKE_BYTES<T>(FORMAT, threads), read = pici::READ_BYTES<T>(threads);
    const unsigned shared = make > read ? make : read;
    const size_t bytes = n * sizeof(T), cap = pici_bound((enum pici_format)FORMAT, (enum pici_dtype)DTYPE, n);
    std::vector<T> src(n), sum(n), back(n);
    std::vector<uint8_t> want(cap);
    const T sign = (T)((T)1 << (8 * sizeof(T) - 1));
    size_t len;
    for (uint64_t i = 0; i < n; i++) {
        src[i] = wanted(i, percent) ? (T)(rand() % 250 + 1) : rand() % 100 < negative ? sign : (T)0;
        sum[i] = (T)rand();
    }
    if (pici_compress(want.data(), cap, &len, src.data(), n, (enum pici_dtype)DTYPE, (enum pici_format)FORMAT, NULL))
        abort();
    void *block, *dense;
    cudaMalloc(&block, len);
    cudaMalloc(&dense, bytes);
    memcpy(dense, src.data(), bytes);
    int status = 1;
    uint64_t made = 0;
    bool ran = emu::launch(1, 1, threads, shared, [&] {
        made = pici::block_compress<FORMAT>(block, len, (const T *)dense, n, DTYPE, emu::shared_memory());
    });
    expect(ran && made == len && memcmp(block, want.data(), len) == 0, "compress");
    void *other;
    const unsigned skew = percent == 50; /* elements; if not 0, rows cannot be read in pairs */
    cudaMalloc(&other, bytes + skew * sizeof(T));
    T *base = (T *)other + skew;
    for (uint64_t i = 0; i < n; i++) {
        base[i] = sum[i];
        ((T *)dense)[i] ^= sum[i];
    }
    memset(block, 0, len);
    ran = emu::launch(1, 1, threads, shared, [&] {
        made = pici::block_compress<FORMAT>(block, len, (const T *)dense, n, DTYPE, emu::shared_memory(),
                                            (const T *)base, true);
    });
    expect(ran && made == len && memcmp(block, want.data(), len) == 0, "delta");
    memcpy(block, want.data(), len);
    ran = emu::launch(1, 1, threads, read,
                      [&] { status = pici::block_apply(base, n, DTYPE, block, len, emu::shared_memory()); });
    expect(ran && status == 0 && memcmp(dense, base, bytes) == 0, "apply");
    cudaFree(other);
    status = 1;
    memcpy(block, want.data(), len);
    ran = emu::launch(1, 1, threads, shared, [&] {
        status = pici::block_decompress((T *)dense, n, DTYPE, block, len, emu::shared_memory());
        for (unsigned i = pici::hw::thread(); i < read / 4; i += threads) /* the memory is the caller's again */
            pici::hw::put((uint32_t *)emu::shared_memory() + i, 0xdeadbeefu);
    });
    expect(ran && status == 0 && memcmp(dense, src.data(), bytes) == 0, "decompress");
    memcpy(dense, sum.data(), bytes);
    pici_scatter_add(sum.data(), n, want.data(), len, NULL);
    ran = emu::launch(1, 1, threads, shared, [&] {
        status = pici::block_scatter_add<DTYPE>((T *)dense, n, block, len, emu::shared_memory());
    });
    expect(ran && status == 0 && memcmp(dense, sum.data(), bytes) == 0, "scatter-add");
    cudaFree(block);
    cudaFree(dense);
    expect(cudaGetLastError() == cudaSuccess, "written outside");
}

/* Encode by value: the library's block, of elements some of whose zeros have a sign. */
template <class T, unsigned DTYPE, unsigned FORMAT> static void check_by_value(uint64_t n, unsigned percent)
{
    const unsigned threads = 96, shared = pici::MAKE_BYTES<T>(FORMAT, threads);
    const size_t bytes = n * sizeof(T), cap = pici_bound((enum pici_format)FORMAT, (enum pici_dtype)DTYPE, n);
    const unsigned skew = percent == 50;
    const T sign = (T)((T)1 << (8 * sizeof(T) - 1));
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.zeros = PICI_ZEROS_BY_VALUE;
    std::vector<uint8_t> want(cap);
    void *block, *dense;
    cudaMalloc(&dense, bytes + skew * sizeof(T));
    T *src = (T *)dense + skew;
    for (uint64_t i = 0; i < n; i++)
        src[i] = wanted(i, percent) ? (T)(rand() % 250 + 1) : rand() % 2 ? sign : (T)0;
    size_t len;
    if (pici_compress(want.data(), cap, &len, src, n, (enum pici_dtype)DTYPE, (enum pici_format)FORMAT, &opts))
        abort();
    cudaMalloc(&block, len);
    uint64_t made = 0;
    const bool ran = emu::launch(1, 1, threads, shared, [&] {
        made = pici::block_compress<FORMAT>(block, len, (const T *)src, n, DTYPE, emu::shared_memory(),
                                            (const T *)nullptr, true);
    });
    expect(ran && made == len && memcmp(block, want.data(), len) == 0, "by value");
    cudaFree(block);
    cudaFree(dense);
}

/* Encode and decode a tile at a time by a single warp, with no barriers but those in the functions. */
template <class T> static void check_warp()
{
    std::vector<T> src(pici::TILE), back(pici::TILE), values(pici::TILE), want;
    for (T &x : src)
        x = rand() % 3 ? (T)0 : (T)(rand() % 250 + 1);
    for (unsigned c = 0; c < pici::COLS; c++)
        for (unsigned r = 0; r < pici::ROWS; r++)
            if (src[r * pici::COLS + c])
                want.push_back(src[r * pici::COLS + c]);
    unsigned nnz = 0;
    const bool ran = emu::launch(1, 1, 32, pici::COO_STAGE_BYTES<T>, [&] {
        uint8_t *stage = emu::shared_memory();
        pici::held_tile<T> h;
        tile_load(h, pici::tile_at((const T *)src.data(), pici::TILE, 0));
        pici::tile_pack_coo(stage, h);
        pici::warp_copy_out<pici::IN_ORDER>(values.data(), stage, pici::tile_nnz(pici::tile_columns(h)));
        pici::hw::syncwarp();
        const pici::columns c = pici::tile_columns(h);
        const unsigned before = pici::tile_offset(c), n = pici::tile_nnz(c);
        pici::tile_pack(stage, h, c, before);
        pici::warp_copy_out(values.data(), stage, n);
        T *staged;
        pici::hw::syncwarp();
        pici::warp_copy_in<true>(staged, stage, (const T *)values.data(), n);
        pici::tile_scatter(pici::tile_at(back.data(), pici::TILE, 0), (const T *)staged, c, before);
        if (pici::hw::lane() == 0)
            nnz = n;
    });
    expect(ran && nnz == want.size() && memcmp(values.data(), want.data(), nnz * sizeof(T)) == 0, "a tile's values");
    expect(ran && back == src, "a tile");
}

/* Decode a block tile by tile with a single warp, which uses the stage again at once. */
template <class T, unsigned DTYPE> static void check_tiles(uint64_t n)
{
    const size_t cap = pici_bound(PICI_BITMAP, (enum pici_dtype)DTYPE, n);
    std::vector<uint8_t> block(cap);
    std::vector<T> src(n), back(n);
    size_t len;
    for (T &x : src)
        x = rand() % 2 ? (T)0 : (T)(rand() % 250 + 1);
    if (pici_compress(block.data(), cap, &len, src.data(), n, (enum pici_dtype)DTYPE, PICI_BITMAP, NULL))
        abort();
    uint64_t fault = 0;
    const bool ran = emu::launch(1, 1, 32, pici::READ_STAGE_BYTES<T>, [&] {
        pici::block_view v = pici::block_view();
        if (pici::parse(v, block.data(), len).rule)
            return;
        for (uint64_t t = 0; t < v.tiles; t++) {
            const uint64_t f =
                pici::tile_read<pici::DECODE, pici::arith<DTYPE>>(v, t, back.data(), emu::shared_memory());
            if (f && pici::hw::lane() == 0)
                fault = f;
        }
    });
    expect(ran && !fault && back == src, "tiles of a block");
}

int main(void)
{
    static const uint64_t sizes[] = {1, 4096 * 7, 4096 * 4 + 778};
    check_warp<uint16_t>();
    check_warp<uint32_t>();
    check_warp<uint64_t>();
    for (uint64_t n : sizes)
        for (unsigned percent : {2, 50}) {
            check<uint8_t, PICI_U8, PICI_BITMAP>(n, percent);
            check<uint32_t, PICI_U32, PICI_BITMAP>(n, percent);
            check<uint16_t, PICI_U16, PICI_COO>(n, percent);
            check<uint64_t, PICI_U64, PICI_COO>(n, percent);
            check<uint32_t, PICI_F32, PICI_DENSE>(n, percent);
        }
    /* one tile in 21 ends at a quad and inside a word, which the next of its warp would hide */
    for (unsigned percent = 3; percent <= 10; percent++)
        check<uint8_t, PICI_U8, PICI_BITMAP>(4096 * 7, percent);
    for (uint64_t n : {4096 * 32 + 778, 4096 * 6}) {
        check<uint16_t, PICI_U16, PICI_HYBRID>(n, MIXED);
        check<uint32_t, PICI_U32, PICI_HYBRID>(n, MIXED);
    }
    check_tiles<uint32_t, PICI_U32>(4096 * 3 + 100);
    check<uint16_t, PICI_BF16, PICI_HYBRID>(4096 * 32 + 778, MIXED, 10);
    check<uint32_t, PICI_F32, PICI_HYBRID>(4096 * 6, MIXED, 50);
    for (unsigned percent : {2, 50}) {
        check_by_value<uint8_t, PICI_F8E4M3, PICI_BITMAP>(4096 * 4 + 778, percent);
        check_by_value<uint32_t, PICI_F32, PICI_BITMAP>(4096 * 4, percent);
        check_by_value<uint16_t, PICI_BF16, PICI_COO>(4096 * 4 + 778, percent);
        check_by_value<uint64_t, PICI_F64, PICI_COO>(4096 * 4, percent);
        check_by_value<uint16_t, PICI_F16, PICI_DENSE>(4096 * 4 + 778, percent);
        check_by_value<uint32_t, PICI_I32, PICI_BITMAP>(4096, percent);
    }
    check_by_value<uint32_t, PICI_F32, PICI_HYBRID>(4096 * 32 + 778, MIXED);
    check<uint8_t, PICI_U8, PICI_HYBRID>(4096 * 7 + 5, MIXED);
    check<uint64_t, PICI_U64, PICI_HYBRID>(4096 * 7 + 5, MIXED);
    return wrong != 0;
}
