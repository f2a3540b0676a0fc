/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The benchmark's table of targets: kinds of core by their numbers, and what is looked up for them. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include "bench/limits.h"

Test(bench_limits, cores_by_their_numbers)
{
    cr_assert_eq(core_by_numbers(0, 6, 0x8f), SAPPHIRE_RAPIDS);
    cr_assert_eq(core_by_numbers(0, 6, 0xcf), SAPPHIRE_RAPIDS);
    cr_assert_eq(core_by_numbers(0, 6, 0x6a), ICE_LAKE);
    cr_assert_eq(core_by_numbers(0, 6, 0xad), GRANITE_RAPIDS);
    cr_assert_eq(core_by_numbers(0, 6, 0x55), CORE_OTHER);
    cr_assert_eq(core_by_numbers(0, 15, 0x8f), CORE_OTHER);
    cr_assert_eq(core_by_numbers(1, 0x17, 0x31), ZEN_2);
    cr_assert_eq(core_by_numbers(1, 0x17, 0x01), CORE_OTHER);
    cr_assert_eq(core_by_numbers(1, 0x19, 0x01), ZEN_3);
    cr_assert_eq(core_by_numbers(1, 0x19, 0x21), ZEN_3);
    cr_assert_eq(core_by_numbers(1, 0x19, 0x11), ZEN_4);
    cr_assert_eq(core_by_numbers(1, 0x19, 0x61), ZEN_4);
    cr_assert_eq(core_by_numbers(1, 0x19, 0xa0), ZEN_4);
    cr_assert_eq(core_by_numbers(1, 0x1a, 0x02), ZEN_5);
    cr_assert_eq(core_by_numbers(1, 6, 0x8f), CORE_OTHER);
    for (int core = 0; core < CORE_KINDS; core++)
        cr_assert(core_name[core] && *core_name[core]);
}

Test(bench_limits, rows)
{
    cr_assert_eq(limits_last(SAPPHIRE_RAPIDS, "avx512", PICI_F32, 5, 99.9), limits_seen[0].share[5][6]);
    cr_assert_eq(limits_last(SAPPHIRE_RAPIDS, "avx512", PICI_F32, 5, 70), 0);
    cr_assert_eq(limits_last(SAPPHIRE_RAPIDS, "avx512", PICI_F64, 5, 99), 0);
    cr_assert_eq(limits_last(CORE_OTHER, "avx512", PICI_F32, 5, 99), 0);
    cr_assert_null(limits_goal(CORE_OTHER, "avx512", PICI_F32));
    cr_assert_eq(limits_goal(ZEN_5, "avx512", PICI_F32)->least, 0.6);
    cr_assert_eq(limits_of_narrow("avx2", PICI_BF16, 50), 0.5);
    cr_assert_eq(limits_of_narrow("avx2", PICI_BF16, 80), 0);
    cr_assert_eq(limits_of_narrow("scalar", PICI_BF16, 50), 0);
    cr_assert_eq(limits_of_narrow("avx512", PICI_F32, 50), 0);
}
