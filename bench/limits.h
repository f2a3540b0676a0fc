/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the codec is held to, by kind of core: how much of its limit each row had when it was last measured, and how
 * much of it is wanted. The limit of a row is the time of its passes over memory. Compress reads the dense elements and
 * writes the block. Decompress reads the block and writes the elements. bench prints what falls short, and asserts
 * nothing: a busy host is slower.
 *
 * After a change for the better, or on a core of a kind that has no rows: `build/bench --dtype f32 --cpu-time -r 9` on
 * an idle host prints them, "share of the limit". */
#ifndef PICI_BENCH_LIMITS_H
#define PICI_BENCH_LIMITS_H

#include "common.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

enum core { CORE_OTHER, ICE_LAKE, SAPPHIRE_RAPIDS, GRANITE_RAPIDS, ZEN_2, ZEN_3, ZEN_4, ZEN_5, CORE_KINDS };

static const char *const core_name[CORE_KINDS] = {"of another kind", "Ice Lake", "Sapphire Rapids", "Granite Rapids",
                                                  "Zen 2",           "Zen 3",    "Zen 4",           "Zen 5"};

/* The kind of core by a vendor's name and numbers, as CPUID gives them. Emerald Rapids has Sapphire Rapids' cores. */
static inline enum core core_by_numbers(int amd, unsigned family, unsigned model)
{
    if (amd && family == 0x17)
        return model >= 0x30 ? ZEN_2 : CORE_OTHER;
    if (amd && family == 0x19) {
        const int fourth = (model >= 0x10 && model <= 0x1f) || (model >= 0x60 && model <= 0x7f) || model >= 0xa0;
        return fourth ? ZEN_4 : ZEN_3;
    }
    if (amd)
        return family == 0x1a ? ZEN_5 : CORE_OTHER;
    if (family != 6)
        return CORE_OTHER;
    switch (model) {
    case 0x6a:
    case 0x6c: return ICE_LAKE;
    case 0x8f:
    case 0xcf: return SAPPHIRE_RAPIDS;
    case 0xad:
    case 0xae: return GRANITE_RAPIDS;
    default: return CORE_OTHER;
    }
}

/* The kind of core that this runs on. */
static inline enum core core_kind(void)
{
#if defined(__x86_64__) || defined(__i386__)
    unsigned most, signature, b, c, d;
    if (!__get_cpuid(0, &most, &b, &c, &d))
        return CORE_OTHER;
    const int intel = b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
    const int amd = b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
    if ((!intel && !amd) || !__get_cpuid(1, &signature, &b, &c, &d))
        return CORE_OTHER;
    const unsigned family = signature >> 8 & 15, model = signature >> 4 & 15;
    return core_by_numbers(amd, family == 15 ? family + (signature >> 20 & 255) : family,
                           model | (family == 6 || family == 15 ? signature >> 12 & 0xf0 : 0));
#else
    return CORE_OTHER;
#endif
}

enum { LIMIT_ROWS = 6, LIMIT_COLUMNS = 7 };

/* Percent of zeros: the columns of limits_seen and limits_memcpy. */
static const double limits_sparsity[LIMIT_COLUMNS] = {0, 50, 80, 90, 95, 99, 99.9};

/* One thread, 64 MiB, uniform positions: the share of its limit that each row had. Rows: compress, decompress and
 * scatter-add of pici's bitmap, then of hybrid. 0: not known. Decompress on Sapphire Rapids follows from the speeds in
 * docs/developers/measured/codec.md; compress does not, because they do not have its limit. */
static const struct limits_seen {
    enum core core;
    const char *isa;
    enum pici_dtype dtype;
    double share[LIMIT_ROWS][LIMIT_COLUMNS];
} limits_seen[] = {
    {SAPPHIRE_RAPIDS,
     "avx512",
     PICI_F32,
     {{0},
      {.97, 1.02, .89, .85, .90, .91, 1.04},
      {.57, .75, .95, .90, .80, .76, .46},
      {0},
      {1.16, 1.12, 1.12, .86, .88, .87, 1.01},
      {.51, .78, 1.01, .85, .85, .75, .55}}},
    {SAPPHIRE_RAPIDS,
     "avx2",
     PICI_F32,
     {{0},
      {.86, .88, .83, .76, .77, .91, .99},
      {.56, .71, .85, .82, .67, .67, .40},
      {0},
      {1.08, 1.09, 1.08, .76, .85, .86, .99},
      {.45, .73, .91, .73, .85, .74, .59}}},
    {ZEN_5,
     "avx512",
     PICI_F32,
     {{.73, .77, .81, .85, .77, .77, .77},
      {.75, .72, .60, .59, .42, .67, .86},
      {0},
      {.62, .55, .64, .76, .78, .65, .67},
      {.65, .77, .73, .57, .53, .68, .88},
      {0, .70, .78, .60, .49, .38, .10}}},
    {ZEN_3,
     "avx2",
     PICI_F32,
     {{1.11, .94, .93, .93, .96, .94, 1.02},
      {1.04, .95, .89, .91, .78, 1.10, 1.43},
      {.58, .67, .75, .84, .61, .58, .34},
      {1.25, 1.01, .92, .92, .90, .87, .88},
      {1.20, 1.21, 1.17, .83, .86, 1.37, 1.43},
      {.59, .79, .86, .85, .75, .59, .42}}},
    {ZEN_3,
     "avx2",
     PICI_BF16,
     {{1.08, .82, .77, .82, .93, 1.03, .97},
      {.96, .74, .60, .62, .55, .92, 1.22},
      {.51, .53, .58, .55, .47, .63, .31},
      {1.22, .78, .73, .61, .69, .79, .83},
      {1.16, 1.16, .99, .85, .87, .78, 1.64},
      {.45, .65, .71, .60, .71, .58, .35}}},
};

/* A row has lost speed if its share is less than this part of the measured one. */
#define LIMITS_LOST 0.85

/* The goals of a kind of core: the geometric mean of compress and decompress of both formats over limits_sparsity. If
 * `least` is not 0, each share must be at least `least`. */
static const struct limits_wanted {
    enum core core;
    const char *isa;
    enum pici_dtype dtype;
    double mean, least;
} limits_wanted[] = {
    {ZEN_5, "avx512", PICI_F32, 0.8, 0.6},
    {ZEN_5, "avx2", PICI_F32, 0.65, 0},
    {ZEN_3, "avx2", PICI_F32, 0.65, 0},
};

/* The share that is wanted of scatter-add of narrow floats, on cores of any kind, where a third or more is nonzero. */
static const struct limits_narrow {
    enum pici_dtype dtype;
    double share;
} limits_narrow[] = {
    {PICI_BF16, 0.5},
    {PICI_F16, 0.5},
    {PICI_F8E4M3, 1 / 3.0},
    {PICI_F8E5M2, 1 / 3.0},
};

/* Multiples of memcpy's speed that are wanted on any core: f32 bitmap blocks, 64 MiB, one thread, uniform positions. */
static const struct limits_memcpy {
    const char *isa;
    double x[3][LIMIT_COLUMNS];
} limits_memcpy[] = {
    {"avx512",
     {{1.1, 1.35, 1.4, 1.5, 1.65, 1.9, 1.9}, {1.2, 1.75, 2.1, 2.1, 2.4, 3.8, 4.7}, {0.7, 1.0, 1.2, 1.5, 1.5, 7, 18}}},
    {"avx2",
     {{1.1, 1.4, 1.45, 1.5, 1.35, 1.9, 2.0}, {1.05, 1.5, 1.8, 1.9, 1.9, 3.5, 4.5}, {0.7, 1.0, 1.3, 1.45, 1.45, 7, 16}}},
    {"scalar",
     {{0.6, 0.65, 0.7, 0.9, 1.0, 1.3, 1.7},
      {0.38, 0.38, 0.75, 1.0, 1.1, 1.4, 1.9},
      {0.2, 0.25, 0.27, 0.38, 0.55, 1.5, 2.5}}},
};

/* The column of a sparsity, or -1. */
static inline int limits_column(double sparsity)
{
    for (int c = 0; c < LIMIT_COLUMNS; c++)
        if (limits_sparsity[c] == sparsity)
            return c;
    return -1;
}

/* What was seen of a row on this kind of core, or 0. */
static inline double limits_last(enum core core, const char *isa, enum pici_dtype dtype, size_t row, double sparsity)
{
    const int c = limits_column(sparsity);
    for (size_t i = 0; i < COUNT_OF(limits_seen) && c >= 0; i++) {
        const struct limits_seen *seen = &limits_seen[i];
        if (seen->core == core && seen->dtype == dtype && !strcmp(seen->isa, isa))
            return seen->share[row][c];
    }
    return 0;
}

/* The goals of an ISA on this kind of core, or NULL. */
static inline const struct limits_wanted *limits_goal(enum core core, const char *isa, enum pici_dtype dtype)
{
    for (size_t i = 0; i < COUNT_OF(limits_wanted); i++)
        if (limits_wanted[i].core == core && limits_wanted[i].dtype == dtype && !strcmp(limits_wanted[i].isa, isa))
            return &limits_wanted[i];
    return NULL;
}

/* The share that is wanted of scatter-add of narrow floats by vectors, or 0. */
static inline double limits_of_narrow(const char *isa, enum pici_dtype dtype, double sparsity)
{
    if (sparsity <= 67 && (!strcmp(isa, "avx2") || !strcmp(isa, "avx512")))
        for (size_t i = 0; i < COUNT_OF(limits_narrow); i++)
            if (limits_narrow[i].dtype == dtype)
                return limits_narrow[i].share;
    return 0;
}

#endif
