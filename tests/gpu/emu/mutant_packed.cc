/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encodes, decodes, adds and verifies packed blocks with one emulated thread block, and compares with the library's.
 * tests/gpu/emu/mutants compiles it against damaged copies of pici/device.cuh. The exit status is 0 if no error was
 * found. */
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

enum { THREADS = 96, TWO = 101, OUTLIER = 102 };

/* Verify a block as pici_verify_at does. */
template <class T> static void check_verify(const uint8_t *block, size_t len)
{
    struct pici_fault want = PICI_FAULT_INIT;
    const enum pici_status status = pici_verify_at(block, len, &want);
    void *copy;
    cudaMalloc(&copy, len);
    memcpy(copy, block, len);
    uint64_t first = 0, nonzeros = 0;
    pici::finding seen = {0, 0, 0};
    bool ran = emu::launch(1, 1, THREADS, THREADS / 32 * pici::VERIFY_STAGE_BYTES, [&] {
        pici::block_view view = pici::block_view();
        if (pici::parse(view, (const uint8_t *)copy, len).rule)
            return;
        const pici::found its =
            pici::warp_read<pici::VERIFY, void>(view, (T *)nullptr, pici::warp(), pici::warps(),
                                                emu::shared_memory() + pici::warp() * pici::VERIFY_STAGE_BYTES);
        first = its.fault > first ? its.fault : first;
        nonzeros += pici::hw::lane() == 0 ? its.nnz : 0;
    });
    ran = emu::launch(1, 1, 32, 0,
                      [&] {
                          pici::block_view view = pici::block_view();
                          const pici::breach header = pici::parse(view, (const uint8_t *)copy, len);
                          const pici::finding its =
                              header.rule ? pici::finding{header.rule, header.at, PICI_NO_TILE}
                                          : pici::warp_explain(view, pici::whole_fault(view, first, nonzeros));
                          if (pici::hw::lane() == 0)
                              seen = its;
                      }) &&
          ran;
    cudaFree(copy);
    expect(ran && pici::rule_status(seen.rule) == (int)status &&
               (!status || (seen.at == want.offset && seen.tile == want.tile)),
           "verify");
}

/* percent: of nonzeros. beyond: of 100 values, how many have any exponent; TWO: there are two exponents; OUTLIER: and
 * value 5 has the greatest. brief: low bytes of mantissas are 0. cleared: so many of the first elements, every second
 * one, are zero. */
template <class T, unsigned DTYPE>
static void check(uint64_t n, unsigned percent, unsigned beyond, bool one_level, bool brief = false,
                  unsigned cleared = 0)
{
    const pici::fmt_kind kind = pici::fmt_kind_of(DTYPE);
    const enum pici_dtype dtype = (enum pici_dtype)DTYPE;
    const unsigned make = pici::MAKE_BYTES<T>(PICI_PACKED, THREADS), read = pici::READ_BYTES<T>(THREADS);
    const size_t bytes = n * sizeof(T), cap = pici_bound(PICI_PACKED, dtype, n);
    std::vector<T> src(n), sum(n);
    std::vector<uint8_t> want(cap);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = one_level ? PICI_PACK_FAST : PICI_PACK_PLANES;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t random = (uint64_t)rand() << 32 ^ (uint64_t)rand() << 16 ^ (uint64_t)rand();
        const unsigned most = (1u << kind.exponent) - 1, fall = (unsigned)__builtin_ctz((unsigned)rand() | 1u << 12);
        uint64_t exponent = (unsigned)rand() % 100 < beyond ? random % (most + 1) : (most - 5 - fall) & most;
        if (beyond > 100)
            exponent = i == 5 && beyond == OUTLIER ? most : most - 20 - i % 2;
        uint64_t mantissa = random * UINT64_C(0x9e3779b97f4a7c15) & ((UINT64_C(1) << kind.mantissa) - 1);
        if (brief)
            mantissa &= ~UINT64_C(0xff);
        src[i] = (unsigned)rand() % 100 < percent && (i % 2 || i / 2 >= cleared)
                     ? (T)((random >> 40 & 1) << (8 * sizeof(T) - 1) | exponent << kind.mantissa | mantissa)
                     : (T)0;
        sum[i] = (T)((uint64_t)rand() << kind.mantissa >> 2);
    }
    size_t len;
    if (pici_compress(want.data(), cap, &len, src.data(), n, dtype, PICI_PACKED, &opts))
        abort();
    void *block, *dense;
    cudaMalloc(&block, len);
    cudaMalloc(&dense, bytes);
    memcpy(dense, src.data(), bytes);
    uint64_t made = 0;
    int status = 1;
    bool ran = emu::launch(1, 1, THREADS, make, [&] {
        made = pici::block_compress<PICI_PACKED>(block, len, (const T *)dense, n, DTYPE, emu::shared_memory(),
                                                 (const T *)nullptr, false, one_level);
    });
    expect(ran && made == len && memcmp(block, want.data(), len) == 0, "compress");
    memcpy(block, want.data(), len);
    ran = emu::launch(1, 1, THREADS, read,
                      [&] { status = pici::block_decompress((T *)dense, n, DTYPE, block, len, emu::shared_memory()); });
    expect(ran && status == 0 && memcmp(dense, src.data(), bytes) == 0, "decompress");
    memcpy(dense, sum.data(), bytes);
    pici_scatter_add(sum.data(), n, want.data(), len, NULL);
    status = 1;
    ran = emu::launch(1, 1, THREADS, read, [&] {
        status = pici::block_scatter_add<DTYPE>((T *)dense, n, block, len, emu::shared_memory());
    });
    expect(ran && status == 0 && memcmp(dense, sum.data(), bytes) == 0, "scatter-add");
    cudaFree(block);
    cudaFree(dense);
    expect(cudaGetLastError() == cudaSuccess, "written outside");
    check_verify<T>(want.data(), len);
    for (unsigned i = 0; i < 24; i++) {
        std::vector<uint8_t> copy(want.begin(), want.begin() + (ptrdiff_t)len);
        const size_t at = 64 + (unsigned)rand() % (i % 3 ? len - 64 : len < 104 ? len - 64 : 40);
        copy[at] ^= (uint8_t)(1u << rand() % 8);
        check_verify<T>(copy.data(), len);
    }
    for (unsigned i = 0; n < 100 && i < 32; i++) { /* the last bytes */
        std::vector<uint8_t> copy(want.begin(), want.begin() + (ptrdiff_t)len);
        copy[len - 1 - i] ^= (uint8_t)(1u << rand() % 8);
        check_verify<T>(copy.data(), len);
    }
    for (unsigned i = 0; i < 24; i++) { /* where the second planes, the table and the literals are */
        std::vector<uint8_t> copy(want.begin(), want.begin() + (ptrdiff_t)len);
        copy[len - 1 - (unsigned)rand() % (len / 4)] ^= (uint8_t)(1u << rand() % 8);
        check_verify<T>(copy.data(), len);
    }
}

int main(void)
{
    check<uint16_t, PICI_BF16>(4096 * 5 + 778, 100, 4, false);
    check<uint16_t, PICI_BF16>(4096 * 3, 60, 2, true);
    check<uint16_t, PICI_BF16>(4096 * 3, 100, 2, true, false, 1001);
    check<uint32_t, PICI_F32>(4096 * 2 + 1001, 70, 3, false, true);
    check<uint16_t, PICI_BF16>(4096 + 1700, 100, 2, false, false, 1639); /* the second run is shorter than a few rows */
    check<uint64_t, PICI_F64>(1500, 100, 3, false);
    check<uint16_t, PICI_F16>(4096 + 70, 100, 10, false);
    check<uint8_t, PICI_F8E5M2>(4096 * 35 + 5, 4, 0, false);
    check<uint8_t, PICI_F8E4M3>(700, 100, 0, true);
    /* few values, so that damage meets the bits of words that stand for none */
    check<uint16_t, PICI_BF16>(70, 100, 2, false);
    check<uint16_t, PICI_BF16>(70, 100, TWO, false);
    check<uint16_t, PICI_BF16>(70, 100, OUTLIER, false);
    check<uint16_t, PICI_F16>(200, 100, 0, false);
    check<uint16_t, PICI_F16>(250, 100, 0, true);
    return wrong != 0;
}
