/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Selects the kernels: the best that the CPU and the operating system can run, or the lower ones that PICI_CPU
 * names. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"

#if PICI_HAVE_X86
/* __builtin_cpu_supports also checks (by XGETBV) that the operating system saves the registers. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

const struct pici_isa *const *pici_isas(void)
{
    static const struct pici_isa *const all[] = {
        &pici_isa_scalar,
#if PICI_HAVE_X86
        &pici_isa_avx2,
        &pici_isa_avx512,
#endif
#if PICI_HAVE_NEON
        &pici_isa_neon, /* a part of the architecture */
#endif
        NULL,
    };
#if PICI_HAVE_X86
    static const struct pici_isa *const to_scalar[] = {&pici_isa_scalar, NULL};
    static const struct pici_isa *const to_avx2[] = {&pici_isa_scalar, &pici_isa_avx2, NULL};
    __builtin_cpu_init();
    return has_avx512() ? all : has_avx2() ? to_avx2 : to_scalar;
#else
    return all;
#endif
}

/* The table that PICI_CPU names, or the last that this host can run. */
static const struct pici_isa *best_table(void)
{
    const struct pici_isa *const *t = pici_isas(), *best = *t;
    const char *at_most = getenv("PICI_CPU");
    for (; *t; t++) {
        best = *t;
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
