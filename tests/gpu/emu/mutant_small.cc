/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes and applies chunks of small deltas by one emulated warp, and compares them with the library's.
 * tests/gpu/emu/mutants compiles it against damaged copies of the device functions. The exit status is 0 if no error
 was * found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda_runtime.h"
#include "pici/delta.h"
#include "pici/device.cuh"

static unsigned wrong, contexts;
static const char *of = "";

static void expect(bool good, const char *what)
{
    if (!good && wrong++ < 5)
        printf("  %s: %s%s%s\n", of, what, *emu::error() ? ": " : "", emu::error());
}

/* What a step makes of an element: few change, those of small exponents oftener and by more; zeros become something. */
enum step { USUAL, FEW, MANY, RANDOM, STEPS };

template <class K>
static void fill(std::vector<typename K::element> &base, std::vector<typename K::element> &src, step s)
{
    using T = typename K::element;
    for (size_t i = 0; i < base.size(); i++) {
        const uint64_t r = (uint64_t)rand() << 31 ^ (uint64_t)rand();
        const unsigned e = K::EXPONENTS / 2 - (unsigned)(rand() % 16) * (unsigned)(rand() % 3);
        uint32_t v = (uint32_t)(r & 1) << (8 * sizeof(T) - 1) | e << K::MANTISSA | (uint32_t)(r >> 8 & 127);
        if (rand() % 8 == 0)
            v = 0;
        if (s == RANDOM)
            v = (uint32_t)r;
        base[i] = src[i] = (T)v;
        const unsigned one_in = s == FEW ? 300 : s == USUAL ? 2 + e / 8 : s == MANY ? 1 : 3;
        if ((unsigned)rand() % one_in)
            continue;
        const unsigned by = (unsigned)(rand() % 8 ? rand() % 3 : rand() % 5000) + 1;
        if (s == RANDOM)
            src[i] = (T)rand();
        else if ((v & ~((uint32_t)1 << (8 * sizeof(T) - 1))) == 0)
            src[i] = (T)((uint32_t)(rand() % 2) << (8 * sizeof(T) - 1) |
                         (K::EXPONENTS / 2 - 20 - (unsigned)(rand() % 3 ? 0 : rand() % (s == MANY ? 40 : 4)))
                             << K::MANTISSA |
                         (uint32_t)(rand() % 3 ? 7 : rand() % 120));
        else
            src[i] = (T)(rand() % 2 ? v + by : v - by);
    }
}

static bool same(const std::vector<uint8_t> &a, const void *b)
{
    return memcmp(a.data(), b, a.size()) == 0;
}

template <unsigned KIND> static void check(uint32_t n, step s, unsigned damages)
{
    using K = pici::small_kind<KIND>;
    using T = typename K::element;
    const bool pairs = KIND == pici::SMALL_E2M1X2;
    const enum pici_dtype dtype = pairs ? PICI_U8 : (enum pici_dtype)KIND;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = pairs ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
    static char name[80];
    snprintf(name, sizeof name, "%s, %u elements, step %d", pairs ? "e2m1x2" : pici_dtype_name(dtype), n, (int)s);
    of = name;
    std::vector<T> base(n), src(n);
    fill<K>(base, src, s);
    const size_t cap = pici_diff_small_bound(PICI_BITMAP, dtype, n);
    std::vector<uint8_t> delta(cap);
    size_t len = 0;
    if (pici_diff_small(delta.data(), cap, &len, base.data(), src.data(), n, dtype, PICI_BITMAP, &opts))
        abort();
    uint32_t entry;
    const size_t head = delta[4] == 3 ? 52 : 36; /* and the directory */
    memcpy(&entry, delta.data() + head - 4, 4);
    const bool context = entry >> 31;
    contexts += context;
    const std::vector<uint8_t> want(delta.data() + head, delta.data() + len),
        start((uint8_t *)base.data(), (uint8_t *)(base.data() + n)),
        end((uint8_t *)src.data(), (uint8_t *)(src.data() + n));

    void *a, *b, *chunk, *room;
    cudaMalloc(&a, n * sizeof(T));
    cudaMalloc(&b, n * sizeof(T));
    cudaMalloc(&chunk, pici::small_limit<T>(n));
    cudaMalloc(&room, pici::SMALL_MAKE_BYTES<T>(n << K::PAIRS));
    memcpy(a, base.data(), n * sizeof(T));
    memcpy(b, src.data(), n * sizeof(T));
    uint32_t made = 0, least = 0;
    bool ran = emu::launch(1, 1, 32, sizeof(pici::small_memory), [&] {
        uint32_t own;
        const uint32_t bytes = pici::warp_diff_small<KIND>((uint8_t *)chunk, &own, (const T *)a, (const T *)b, n,
                                                           (uint8_t *)room, (pici::small_memory *)emu::shared_memory());
        made = bytes;
        least = own;
    });
    expect(ran, "making ran");
    if (context)
        expect(made == want.size() && same(want, chunk), "the chunk's bytes");
    else
        expect((!made || made >= want.size()) && least <= want.size(), "no chunk, or a longer one");
    cudaFree(room);

    for (unsigned d = 0; context && d <= damages; d++) {
        std::vector<uint8_t> damaged = delta;
        damaged.resize(len);
        for (unsigned k = d ? 1 + (unsigned)rand() % 2 : 0; k; k--)
            damaged[head + (unsigned)rand() % (rand() % 2         ? len - head
                                               : len - head < 200 ? len - head
                                                                  : 200)] ^= (uint8_t)(1 << rand() % 8);
        std::vector<T> out = base;
        const bool valid = !pici_apply_small(out.data(), n, damaged.data(), len, NULL);
        void *in;
        const unsigned skew = (unsigned)rand() % 4;
        cudaMalloc(&in, len - head + skew);
        cudaMalloc(&room, pici::SMALL_READ_BYTES<T>(n << K::PAIRS));
        memcpy((uint8_t *)in + skew, damaged.data() + head, len - head);
        memcpy(a, base.data(), n * sizeof(T));
        bool good = false;
        ran = emu::launch(1, 1, 32, sizeof(pici::small_memory), [&] {
            good = pici::warp_apply_small<KIND>((T *)a, n, (const uint8_t *)in + skew, (uint32_t)(len - head),
                                                (uint8_t *)room, (pici::small_memory *)emu::shared_memory());
        });
        expect(ran && good == valid, d ? "a damaged chunk" : "a chunk is valid");
        expect(same(good ? (d ? std::vector<uint8_t>((uint8_t *)out.data(), (uint8_t *)(out.data() + n)) : end) : start,
                    a),
               d ? "what a damaged chunk leaves" : "the result");
        cudaFree(in);
        cudaFree(room);
    }
    cudaFree(a);
    cudaFree(b);
    cudaFree(chunk);
    expect(cudaGetLastError() == cudaSuccess, "written outside");
}

template <unsigned KIND> static void check_all(unsigned damages)
{
    for (const uint32_t n : {1u, 33u, 700u, 2500u, 6000u})
        for (int s = 0; s < STEPS; s++)
            check<KIND>(n, (step)s, n == 6000 ? damages : damages / 2);
}

int main(int argc, char **argv)
{
    const unsigned damages = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
    srand(1);
    emu::seed(1);
    check_all<PICI_BF16>(damages);
    check_all<PICI_F32>(damages);
    check_all<PICI_F16>(damages);
    check_all<PICI_F8E4M3>(damages);
    check_all<PICI_F8E5M2>(damages);
    check_all<pici::SMALL_E2M1X2>(damages);
    of = "all";
    expect(contexts >= 20, "context chunks");
    return wrong != 0;
}
