/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The runs of packed blocks: the offsets of their parts, and the choices of an encoder, shared by CPU and GPU code.
 * Pure functions of integers. Part of pici/device.cuh, not of the C interface. Specification: formats/packed.md. */
#ifndef PICI_RUNS_H
#define PICI_RUNS_H

#include <stdint.h>

#include "pici/containers.h"

#ifdef __cplusplus
namespace pici {
#endif

PICI_CONTAINER_ENUM{
    RUN_MOST = 4096,    /* values of a run */
    RUN_ROW = 64,       /* values of a row */
    RUN_COUNTS = 15,    /* exponents that an encoder counts */
    RUN_DESCRIPTOR = 5, /* bytes */
    RUN_LOW_MOST = 6,   /* low bytes of a mantissa */
    RUN_PLANES = 4,     /* planes of a code */
    RUN_SECOND = 3      /* planes of a second code */
};

/* How an encoder splits a float. */
struct fmt_kind {
    uint8_t exponent, mantissa; /* bits */
    uint8_t low;                /* bytes of the mantissa that are stored unpacked */
    uint8_t high;               /* bits: the rest of the mantissa, and the sign */
    uint8_t stored;             /* bytes of a stored exponent */
};

PICI_CONTAINER_FN struct fmt_kind fmt_kind_of(unsigned float_dtype)
{
    const struct fmt_kind kinds[PICI_F8E5M2] = {{8, 23, 2, 8, 1}, {11, 52, 6, 5, 2}, {5, 10, 1, 3, 1},
                                                {8, 7, 0, 8, 1},  {4, 3, 0, 4, 1},   {5, 2, 0, 3, 1}};
    return kinds[float_dtype - 1];
}

/* A run of n values. */
struct fmt_run {
    unsigned n;
    unsigned k1, k2;       /* planes of codes and of second codes; k1 is 0 in a raw run */
    unsigned zero_bytes;   /* low bytes of the mantissas that are zero and not stored */
    unsigned second_codes; /* escapes of the first codes, if k2 > 0 */
    unsigned literals;     /* escapes without an entry in the table */
};

/* Offsets in a packed run. */
struct fmt_run_parts {
    unsigned low, high, padding, words, planes, second, table, literals, after, bytes;
};

PICI_CONTAINER_FN unsigned fmt_pad8(unsigned x)
{
    return (x + 7) & ~7u;
}

/* Bytes of the 64-bit words for this many bits. */
PICI_CONTAINER_FN unsigned fmt_words(unsigned bits)
{
    return (bits + 63) / 64 * 8;
}

/* Entries of the table. */
PICI_CONTAINER_FN unsigned fmt_run_entries(const struct fmt_run *run)
{
    return (1u << run->k1) + (1u << run->k2) - 2;
}

PICI_CONTAINER_FN struct fmt_run_parts fmt_run_parts(const struct fmt_run *run, const struct fmt_kind *kind)
{
    struct fmt_run_parts at;
    const unsigned high = kind->high == 8 ? run->n : 0, words = kind->high == 8 ? 0 : kind->high * fmt_words(run->n);
    at.low = 0;
    at.high = run->n * (kind->low - run->zero_bytes);
    at.padding = at.high + high;
    at.words = fmt_pad8(at.padding);
    at.planes = at.words + words;
    at.second = at.planes + run->k1 * fmt_words(run->n);
    at.table = at.second + run->k2 * fmt_words(run->second_codes);
    at.literals = at.table + fmt_run_entries(run) * kind->stored;
    at.after = at.literals + run->literals * kind->stored;
    at.bytes = fmt_pad8(at.after);
    return at;
}

/* Bytes of a raw run. */
PICI_CONTAINER_FN unsigned fmt_run_raw(unsigned n, unsigned width_log2)
{
    return fmt_pad8(n << width_log2);
}

PICI_CONTAINER_FN unsigned fmt_run_bytes(const struct fmt_run *run, const struct fmt_kind *kind, unsigned width_log2)
{
    return run->k1 ? fmt_run_parts(run, kind).bytes : fmt_run_raw(run->n, width_log2);
}

/* The number of runs for this many values. */
PICI_CONTAINER_FN unsigned fmt_runs(unsigned values)
{
    return (values + RUN_MOST - 1) / RUN_MOST;
}

PICI_CONTAINER_FN void fmt_run_write(uint8_t descriptor[RUN_DESCRIPTOR], const struct fmt_run *run)
{
    descriptor[0] = (uint8_t)(run->k1 | run->k2 << 3 | run->zero_bytes << 5);
    descriptor[1] = (uint8_t)run->second_codes;
    descriptor[2] = (uint8_t)(run->second_codes >> 8);
    descriptor[3] = (uint8_t)run->literals;
    descriptor[4] = (uint8_t)(run->literals >> 8);
}

/* Read the descriptor of a run of n values. Returns 0 if it breaks the rule "run". */
PICI_CONTAINER_FN int fmt_run_read(struct fmt_run *run, const uint8_t descriptor[RUN_DESCRIPTOR], unsigned n,
                                   const struct fmt_kind *kind, unsigned width_log2, int one_level)
{
    run->n = n;
    run->k1 = descriptor[0] & 7u;
    run->k2 = descriptor[0] >> 3 & 3u;
    run->zero_bytes = descriptor[0] >> 5;
    run->second_codes = descriptor[1] | (unsigned)descriptor[2] << 8;
    run->literals = descriptor[3] | (unsigned)descriptor[4] << 8;
    if (run->k1 == 0)
        return descriptor[0] == 0 && run->second_codes == 0 && run->literals == 0;
    const int pair = run->k2 == 0 ? run->k1 <= 4 : run->k1 <= 3 && run->k2 >= 2 && !one_level;
    const unsigned most = run->k2 ? run->second_codes : n;
    return pair && run->zero_bytes <= kind->low && run->second_codes <= (run->k2 ? n : 0) && run->literals <= most &&
           fmt_run_parts(run, kind).bytes < fmt_run_raw(n, width_log2);
}

/* Whether row r of a full run is in the sample. */
PICI_CONTAINER_FN int fmt_run_sampled(unsigned r)
{
    return r % 4 == r / 4 % 4;
}

/* The exponents that have a code. */
struct fmt_run_table {
    unsigned top;
    uint16_t exponent[RUN_COUNTS + 1]; /* by entry */
    uint8_t code[RUN_COUNTS + 1];      /* by top - exponent; RUN_COUNTS stands for all others */
    uint8_t second_code[RUN_COUNTS + 1];
};

/* `top` of a table. largest[j]: the largest exponent of the sample's values i with i mod 4 = j. */
PICI_CONTAINER_FN unsigned fmt_run_top(const unsigned largest[4], unsigned n, const struct fmt_kind *kind)
{
    unsigned m = largest[0];
    for (unsigned i = 1; i < 4; i++)
        if (n < 256 ? largest[i] > m : largest[i] < m)
            m = largest[i];
    const unsigned most = (1u << kind->exponent) - 1;
    return m < most ? m + 1 : most;
}

/* Set k1, k2 and the table of a run from its n, zero_bytes and counts: count[i] of the sample's values have the
 * exponent top - i. Returns 0 if the run is raw. */
PICI_CONTAINER_FN int fmt_run_choose(struct fmt_run *run, struct fmt_run_table *table, unsigned top,
                                     const uint16_t count[RUN_COUNTS], unsigned sample, const struct fmt_kind *kind,
                                     unsigned width_log2, int one_level)
{
    const uint8_t pairs[10] = {0x02, 0x03, 0x04, 0x01, 0x21, 0x31, 0x22, 0x32, 0x23, 0x33}; /* k1 + 16 * k2 */
    const unsigned n = run->n, times = n == RUN_MOST ? 4 : 1, raw = fmt_run_raw(n, width_log2);
    int key[RUN_COUNTS + 1], above[RUN_COUNTS + 1];
    unsigned rank[RUN_COUNTS + 1], sum[RUN_COUNTS + 1];
    for (unsigned i = 0; i <= RUN_COUNTS; i++) {
        key[i] = i < RUN_COUNTS ? (int)(count[i] * 16 + RUN_COUNTS - i) : -1;
        above[i] = 0;
    }
    for (unsigned j = 0; j < RUN_COUNTS; j++)
        for (unsigned i = 0; i <= RUN_COUNTS; i++)
            above[i] += key[i] < key[j];
    for (unsigned i = 0; i < RUN_COUNTS; i++)
        rank[above[i]] = i;
    sum[0] = 0;
    for (unsigned q = 0; q < RUN_COUNTS; q++)
        sum[q + 1] = sum[q] + count[rank[q]];

    struct fmt_run bare = *run;
    bare.k1 = bare.k2 = bare.second_codes = bare.literals = 0;
    const unsigned base = fmt_run_parts(&bare, kind).planes, row_words = fmt_words(n);
    unsigned least = UINT32_MAX, best = 0;
    for (unsigned i = 0; i < (one_level ? 4u : 10u); i++) {
        const unsigned k1 = pairs[i] & 15u, k2 = pairs[i] >> 4, a = (1u << k1) - 1, b = (1u << k2) - 1;
        const unsigned second = k2 ? k2 * fmt_words(times * (sample - sum[a])) : 0;
        const unsigned bytes =
            base + k1 * row_words + second + fmt_pad8((a + b + times * (sample - sum[a + b])) * kind->stored);
        if (bytes < least) {
            least = bytes;
            best = i;
        }
    }
    if (least > raw - raw / 64)
        return 0;
    run->k1 = pairs[best] & 15u;
    run->k2 = pairs[best] >> 4;
    const unsigned a = (1u << run->k1) - 1, b = (1u << run->k2) - 1;
    table->top = top;
    for (unsigned i = 0; i <= RUN_COUNTS; i++) {
        table->exponent[i] = 0;
        table->code[i] = (uint8_t)a;
        table->second_code[i] = (uint8_t)b;
    }
    for (unsigned q = 0; q < a + b; q++) {
        const unsigned i = rank[q];
        if (!count[i])
            break;
        table->exponent[q] = (uint16_t)(top - i);
        if (q < a)
            table->code[i] = (uint8_t)q;
        else
            table->second_code[i] = (uint8_t)(q - a);
    }
    return 1;
}

/* ---- records ---- */

PICI_CONTAINER_ENUM{
    FMT_PACKED_TILE = 5, FMT_PACKED_GROUP = 16 /* most bytes of run descriptors and padding, in addition to hybrid's */
};

/* The unit of records, in bytes. */
PICI_CONTAINER_FN unsigned fmt_unit_packed(unsigned width_log2)
{
    return width_log2 == 3 ? 16 : 8;
}

/* Bytes of a record with these bytes of metadata and runs. */
PICI_CONTAINER_FN uint64_t fmt_record_packed(uint64_t metadata, uint64_t runs, unsigned width_log2)
{
    const uint64_t rest = fmt_unit_packed(width_log2) - 1;
    return (((metadata + 7) & ~UINT64_C(7)) + runs + rest) & ~rest;
}

#ifdef __cplusplus
} /* namespace pici */
#endif

#endif
