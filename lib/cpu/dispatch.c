/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Selects the best kernels that the CPU and the operating system can run, or lower ones that PICI_CPU names. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/width.h"
#if PICI_HAVE_X86
#include <cpuid.h>
#endif

/* Signed and unsigned integers of one width share an entry: two's complement addition is the same for both. */
#define BY_WIDTH(isa, member)                                                                                          \
    {                                                                                                                  \
        &isa##_8.member, &isa##_16.member, &isa##_32.member, &isa##_64.member                                          \
    }
#define BY_FLOAT(isa, member)                                                                                          \
    {                                                                                                                  \
        NULL, &isa##_32.member[0], &isa##_64.member[0], &isa##_16.member[0], &isa##_16.member[1]                       \
    }
#define TABLE(isa)                                                                                                     \
    static const struct pici_isa table_##isa = {                                                                       \
        .name = #isa,                                                                                                  \
        .move = BY_WIDTH(pici_##isa, move),                                                                            \
        .by_value = BY_WIDTH(pici_##isa, by_value),                                                                    \
        .add = {NULL, &pici_##isa##_32.floats[0], &pici_##isa##_64.floats[0], &pici_##isa##_16.floats[0],              \
                &pici_##isa##_16.floats[1], &pici_##isa##_8.floats[0], &pici_##isa##_8.floats[1],                      \
                &pici_##isa##_8.integer, &pici_##isa##_8.integer, &pici_##isa##_16.integer, &pici_##isa##_16.integer,  \
                &pici_##isa##_32.integer, &pici_##isa##_32.integer, &pici_##isa##_64.integer,                          \
                &pici_##isa##_64.integer},                                                                             \
        .xors = BY_WIDTH(pici_##isa, xors),                                                                            \
        .lists = BY_WIDTH(pici_##isa, lists),                                                                          \
        .planes = {NULL, &pici_##isa##_32.planes[0], &pici_##isa##_64.planes[0], &pici_##isa##_16.planes[0],           \
                   &pici_##isa##_16.planes[1], &pici_##isa##_8.planes[0], &pici_##isa##_8.planes[1]},                  \
        .reduce = BY_WIDTH(pici_##isa, reduce),                                                                        \
        .small = {&pici_##isa##_8.small, &pici_##isa##_16.small, &pici_##isa##_32.small, NULL},                        \
        .coder = &pici_##isa##_32.coder,                                                                               \
        .bits = &pici_##isa##_64.bits,                                                                                 \
        .topk = BY_FLOAT(pici_##isa, topk),                                                                            \
        .values = BY_FLOAT(pici_##isa, values),                                                                        \
    };

TABLE(scalar)
#if PICI_HAVE_X86
TABLE(avx2)
TABLE(avx512)
#endif
#if PICI_HAVE_NEON
TABLE(neon)
#endif

#if PICI_HAVE_X86
static int has_f16c(void) /* not every clang's __builtin_cpu_supports knows this name */
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_F16C;
}

/* __builtin_cpu_supports also checks (by XGETBV) that the operating system saves the registers. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq");
}
#endif

const struct pici_isa *const *pici_isas(void)
{
    static const struct pici_isa *const all[] = {
        &table_scalar,
#if PICI_HAVE_X86
        &table_avx2,
        &table_avx512,
#endif
#if PICI_HAVE_NEON
        &table_neon, /* a part of the architecture */
#endif
        NULL,
    };
#if PICI_HAVE_X86
    static const struct pici_isa *const to_scalar[] = {&table_scalar, NULL};
    static const struct pici_isa *const to_avx2[] = {&table_scalar, &table_avx2, NULL};
    __builtin_cpu_init();
    if (has_avx512())
        return all;
    return has_avx2() ? to_avx2 : to_scalar;
#else
    return all;
#endif
}

/* The table that PICI_CPU names, or the best that this host can run. */
static const struct pici_isa *best_table(void)
{
    const struct pici_isa *const *table = pici_isas(), *best = *table;
    const char *at_most = getenv("PICI_CPU");
    for (; *table; table++) {
        best = *table;
        if (at_most && strcmp(at_most, best->name) == 0)
            break;
    }
    return best;
}

static _Atomic(const struct pici_isa *) current;

const struct pici_isa *pici_isa(void)
{
    const struct pici_isa *isa = atomic_load_explicit(&current, memory_order_acquire);
    if (!isa) {
        isa = best_table();
        atomic_store_explicit(&current, isa, memory_order_release);
    }
    return isa;
}

void pici_isa_force(const struct pici_isa *isa)
{
    atomic_store_explicit(&current, isa, memory_order_release);
}
