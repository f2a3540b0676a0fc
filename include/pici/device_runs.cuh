/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The runs of packed blocks, by a warp: reading single values of a run, and choosing the codes of a run. Part of
 * pici/device.cuh. Specification: formats/packed.md. */
#ifndef PICI_DEVICE_RUNS_CUH
#define PICI_DEVICE_RUNS_CUH

#include "pici/device_groups.cuh"

namespace pici {

/* How to split the elements of a float dtype as wide as T. */
template <class T> PICI_DEV fmt_kind kind_of(unsigned dtype)
{
    return fmt_kind_of(sizeof(T) == 8 ? (unsigned)PICI_F64 : sizeof(T) == 4 ? (unsigned)PICI_F32 : dtype);
}

template <class T> PICI_DEV unsigned exponent_of(T value, const fmt_kind &kind)
{
    return (unsigned)(value >> kind.mantissa) & ((1u << kind.exponent) - 1);
}

/* The bits of a word of 64 that stand for values: number `first` and the next, of n. */
PICI_DEV uint64_t live_bits(unsigned first, unsigned n)
{
    return n <= first ? 0 : n - first >= 64 ? UINT64_MAX : (UINT64_C(1) << (n - first)) - 1;
}

/* ---- reading ---- */

/* A run that is open for reading, in shared memory. */
struct alignas(8) opened_run {
    uint64_t at;     /* its address */
    uint32_t planes; /* offsets of its parts in bytes, as in fmt_run_parts */
    uint32_t high, second, table, literals;
    uint32_t second_words; /* words of each second plane */
    uint32_t k1, k2;
    uint32_t kept;                       /* stored low bytes of each value */
    uint32_t zero_bytes;                 /* low bytes that are not stored */
    uint16_t escapes[RUN_MOST / 64];     /* before each row */
    uint16_t literals_at[RUN_MOST / 64]; /* before each word of the second planes */
};

/* Offset of the lane's byte of the padding of a run. The lower half of the lanes has the padding of part 3, the others
 * the padding after the run's values or literals. *exists: out: the lane has a byte. */
PICI_DEV unsigned run_padding(bool *exists, unsigned lane, const fmt_run &run, const fmt_kind &kind,
                              unsigned width_log2)
{
    const unsigned half = LANES / 2;
    const struct fmt_run_parts part = fmt_run_parts(&run, &kind);
    const unsigned end = run.k1 ? part.after : run.n << width_log2;
    const unsigned byte = lane < half ? part.padding + lane : end + lane - half;
    *exists = lane < half ? run.k1 && byte < part.words : byte < fmt_run_bytes(&run, &kind, width_log2);
    return byte;
}

/* Offset in run i of the lane's byte of the padding. */
PICI_DEV unsigned run_padding_at(const group &made_group, unsigned i, unsigned packed, unsigned width_log2,
                                 unsigned lane)
{
    fmt_run run;
    bool exists;
    run_said(run, made_group, i, packed, width_log2);
    return run_padding(&exists, lane, run, fmt_kind_of(packed % ONE_LEVEL), width_log2);
}

/* Open run i of a group for reading, after group_open found no fault: check the rules "padding" and "planes". Returns
 * the broken rule, or RULE_NONE. sub: out: for "padding", the lane that has the byte. */
template <class T>
PICI_DEV unsigned open_run(opened_run *to, unsigned &sub, const group &made_group, unsigned i, unsigned packed)
{
    const unsigned lane = hw::lane();
    const fmt_kind kind = kind_of<T>(packed % ONE_LEVEL);
    fmt_run run;
    bool exists;
    run_said(run, made_group, i, packed, LOG2<T>);
    const uint8_t *const at = made_group.record + hw::shfl(made_group.own_run, i);
    const struct fmt_run_parts part = fmt_run_parts(&run, &kind);
    const unsigned byte = run_padding(&exists, lane, run, kind, LOG2<T>);
    const unsigned dirty = hw::ballot(exists && hw::load(at + byte) != 0);
    sub = 0;
    if (dirty) {
        sub = hw::ffs(dirty) - 1;
        return RULE_PADDING;
    }
    const unsigned second_words = fmt_words(run.second_codes) / 8;
    hw::syncwarp(); /* no lane still reads the run that was open here */
    if (lane == 0) {
        hw::put(&to->at, (uint64_t)(uintptr_t)at);
        hw::put(&to->planes, (uint32_t)part.planes);
        hw::put(&to->high, (uint32_t)(kind.high == 8 ? part.high : part.words));
        hw::put(&to->second, (uint32_t)part.second);
        hw::put(&to->table, (uint32_t)part.table);
        hw::put(&to->literals, (uint32_t)part.literals);
        hw::put(&to->second_words, (uint32_t)second_words);
        hw::put(&to->k1, (uint32_t)run.k1);
        hw::put(&to->k2, (uint32_t)run.k2);
        hw::put(&to->kept, (uint32_t)(kind.low - run.zero_bytes));
        hw::put(&to->zero_bytes, (uint32_t)run.zero_bytes);
    }
    bool bad = false;
    /* ones: of each of the lane's two words, how many bits are 1 in all of so many planes */
    const auto put_ranks = [&](uint16_t *ranks, const unsigned(&ones)[2], unsigned total) {
        const unsigned own = ones[0] + ones[1], before = warp_scan(own);
        hw::put(ranks + 2 * lane, (uint16_t)before);
        hw::put(ranks + 2 * lane + 1, (uint16_t)(before + ones[0]));
        bad |= hw::shfl(before + own, LANES - 1) != total;
    };
    if (run.k1) {
        unsigned ones[2];
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++) {
            const unsigned row = 2 * lane + k;
            const uint64_t live = live_bits(row * RUN_ROW, run.n);
            const uint64_t *const planes = (const uint64_t *)(at + part.planes) + row * run.k1;
            const uint64_t *const high = (const uint64_t *)(at + part.words) + row * kind.high;
            uint64_t all = live;
            for (unsigned j = 0; live && j < run.k1; j++) {
                const uint64_t word = hw::load(planes + j);
                bad |= (word & ~live) != 0;
                all &= word;
            }
            for (unsigned j = 0; live && kind.high < 8 && j < kind.high; j++)
                bad |= (hw::load(high + j) & ~live) != 0;
            ones[k] = hw::popc(all);
        }
        put_ranks(to->escapes, ones, run.k2 ? run.second_codes : run.literals);
    }
    if (run.k2) {
        unsigned ones[2];
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++) {
            const unsigned number = 2 * lane + k;
            const uint64_t live = live_bits(number * 64, run.second_codes);
            uint64_t all = live;
            for (unsigned j = 0; live && j < run.k2; j++) {
                const uint64_t word = hw::load((const uint64_t *)(at + part.second) + j * second_words + number);
                bad |= (word & ~live) != 0;
                all &= word;
            }
            ones[k] = hw::popc(all);
        }
        put_ranks(to->literals_at, ones, run.literals);
    }
    if (run.k1 && kind.exponent < 8 * kind.stored)
        for (unsigned k = lane; k < (part.after - part.table) / kind.stored; k += LANES)
            bad |= (kind.stored == 1 ? hw::load(at + part.table + k)
                                     : hw::load((const uint16_t *)(at + part.table) + k)) >>
                       kind.exponent !=
                   0;
    hw::syncwarp();
    return hw::ballot(bad) ? (unsigned)RULE_PLANES : (unsigned)RULE_NONE;
}

/* The unsigned integer that combines the parts of a value. */
template <class T> struct whole_of {
    typedef uint32_t type;
};
template <> struct whole_of<uint64_t> {
    typedef uint64_t type;
};

/* A value of a run, with its codes. */
template <class T> struct coded {
    T value;
    unsigned code, second; /* second: 0 if there is none */
};

/* Value i of an open run. i is a lane's. */
template <class T> PICI_DEV coded<T> run_value(const opened_run *run, unsigned i, const fmt_kind &kind)
{
    typedef typename whole_of<T>::type W;
    const uint8_t *const at = (const uint8_t *)(uintptr_t)hw::get(&run->at);
    const unsigned k1 = hw::get(&run->k1), row = i / RUN_ROW, bit = i % RUN_ROW;
    if (!k1)
        return coded<T>{hw::load((const T *)at + i), 0, 0};
    const uint64_t *const planes = (const uint64_t *)(at + hw::get(&run->planes)) + row * k1;
    uint64_t all = UINT64_MAX;
    unsigned code = 0, second = 0, entry;
    for (unsigned j = 0; j < k1; j++) {
        const uint64_t word = hw::load(planes + j);
        all &= word;
        code |= (unsigned)(word >> bit & 1) << j;
    }
    unsigned part = hw::get(&run->table);
    entry = code;
    if (code == (1u << k1) - 1) {
        const unsigned k2 = hw::get(&run->k2);
        unsigned number = hw::get(run->escapes + row) + hw::popc(all & ((UINT64_C(1) << bit) - 1));
        if (k2) {
            const unsigned words = hw::get(&run->second_words), its = number % 64;
            const uint64_t *const seconds = (const uint64_t *)(at + hw::get(&run->second)) + number / 64;
            all = UINT64_MAX;
            for (unsigned j = 0; j < k2; j++) {
                const uint64_t word = hw::load(seconds + j * words);
                all &= word;
                second |= (unsigned)(word >> its & 1) << j;
            }
            entry = code + second;
            number = hw::get(run->literals_at + number / 64) + hw::popc(all & ((UINT64_C(1) << its) - 1));
        }
        if (second == (1u << k2) - 1) { /* also true if there are no second codes */
            part = hw::get(&run->literals);
            entry = number;
        }
    }
    const W exponent = kind.stored == 1 ? hw::load(at + part + entry) : hw::load((const uint16_t *)(at + part) + entry);
    const uint8_t *const highs = at + hw::get(&run->high);
    W high = 0, low = 0;
    if (kind.high == 8)
        high = hw::load(highs + i);
    else
        for (unsigned j = 0; j < kind.high; j++)
            high |= (W)(hw::load((const uint64_t *)highs + row * kind.high + j) >> bit & 1) << j;
    const unsigned kept = hw::get(&run->kept);
    if (kept % 2 == 0)
        for (unsigned k = 0; k < kept; k += 2)
            low |= (W)hw::load((const uint16_t *)(at + i * kept + k)) << 8 * k;
    else
        for (unsigned k = 0; k < kept; k++)
            low |= (W)hw::load(at + i * kept + k) << 8 * k;
    const W value = (high & 1) << (kind.exponent + kind.mantissa) | exponent << kind.mantissa |
                    (high >> 1) << 8 * kind.low | low << 8 * hw::get(&run->zero_bytes);
    return coded<T>{(T)value, code, second};
}

/* ---- choosing ---- */

/* A run being made, and the codes of exponents. Bits 4 * j to 4 * j + 3 of a word are the code of exponent top - j. j =
 * RUN_COUNTS is for all others. */
struct chosen_run {
    fmt_run run;
    unsigned top;
    uint64_t codes, seconds;
    uint64_t entries; /* bits 4 * q to 4 * q + 3 are top - exponent of entry q of the table; RUN_COUNTS: its exponent is
                       * 0, and no value has it */

    PICI_DEV_MEMBER unsigned place(unsigned exponent) const
    {
        const unsigned below = top - exponent;
        return 4 * (below < RUN_COUNTS ? below : (unsigned)RUN_COUNTS);
    }
    PICI_DEV_MEMBER unsigned code(unsigned exponent) const
    {
        return codes >> place(exponent) & 15;
    }
    PICI_DEV_MEMBER unsigned second(unsigned exponent) const
    {
        return seconds >> place(exponent) & 15;
    }
    PICI_DEV_MEMBER unsigned entry(unsigned q) const
    {
        const unsigned below = entries >> 4 * q & 15;
        return below < RUN_COUNTS ? top - below : 0;
    }
};

/* Choose k1, k2 and the codes from the counts of the sample's exponents. Returns 0 if the run is raw. */
template <class T>
PICI_DEV_COLD bool choose_codes(chosen_run *chosen, const uint64_t *counts, const fmt_kind kind, bool one_level)
{
    fmt_run_table table = fmt_run_table();
    uint16_t count[RUN_COUNTS];
    for (unsigned j = 0; j < RUN_COUNTS; j++)
        count[j] = (uint16_t)(counts[j / 8 * 2 + j % 2] >> j % 8 / 2 * 16);
    const unsigned n = chosen->run.n;
    if (!fmt_run_choose(&chosen->run, &table, chosen->top, count, n == RUN_MOST ? RUN_MOST / 4 : n, &kind, LOG2<T>,
                        one_level))
        return false;
    const unsigned entries = fmt_run_entries(&chosen->run);
    chosen->codes = chosen->seconds = chosen->entries = 0;
    for (unsigned j = 0; j <= RUN_COUNTS; j++) {
        chosen->codes |= (uint64_t)table.code[j] << 4 * j;
        chosen->seconds |= (uint64_t)table.second_code[j] << 4 * j;
        /* an entry that no value has is 0, and so may be one that values have: then its code is there */
        const bool used = j < entries && table.exponent[j];
        chosen->entries |= (uint64_t)(used ? chosen->top - table.exponent[j] : RUN_COUNTS) << 4 * j;
    }
    return true;
}

/* Choose the parameters of a run of n values, as every encoder does. value(i) is value i; any lane may call it. */
template <class T, class VALUE>
PICI_DEV chosen_run warp_choose(VALUE value, unsigned n, const fmt_kind &kind, bool one_level)
{
    const unsigned lane = hw::lane();
    const auto sampled = [&](unsigned i) { return n < RUN_MOST || fmt_run_sampled(i / RUN_ROW); };
    chosen_run chosen = chosen_run();
    chosen.run.n = n;
    T bits = 0;
    unsigned most = 0;
    for (unsigned i = lane; i < n; i += LANES) {
        const T x = value(i);
        const unsigned exponent = exponent_of(x, kind);
        bits |= x;
        most = sampled(i) && exponent > most ? exponent : most;
    }
    for (unsigned by = LANES / 2; by; by /= 2)
        bits |= hw::shfl_down(bits, by);
    bits = hw::shfl(bits, 0);
    while (chosen.run.zero_bytes < kind.low && !(bits >> 8 * chosen.run.zero_bytes & 255))
        chosen.run.zero_bytes++;
    for (unsigned by = LANES / 2; by >= 4; by /= 2) { /* a lane's values have numbers that are the lane modulo 4 */
        const unsigned other = hw::shfl_down(most, by);
        most = other > most ? other : most;
    }
    unsigned largest[4];
    PICI_UNROLL
    for (unsigned c = 0; c < 4; c++)
        largest[c] = hw::shfl(most, c);
    chosen.top = fmt_run_top(largest, n, &kind);
    /* 16 counters of 8 bits, which a lane's at most 128 values cannot overflow; then of 16 bits */
    uint64_t own[2] = {0, 0}, counts[4];
    for (unsigned i = lane; i < n; i += LANES) {
        const unsigned below = chosen.top - exponent_of(value(i), kind);
        if (sampled(i) && below < RUN_COUNTS) {
            own[0] += below < 8 ? UINT64_C(1) << 8 * below : 0;
            own[1] += below < 8 ? 0 : UINT64_C(1) << 8 * (below - 8);
        }
    }
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++)
        counts[k] = warp_sum(own[k / 2] >> 8 * (k % 2) & UINT64_C(0x00ff00ff00ff00ff));
    const unsigned raw = fmt_run_raw(n, LOG2<T>);
    fmt_run &run = chosen.run;
    if (choose_codes<T>(&chosen, counts, kind, one_level)) {
        const unsigned a = (1u << run.k1) - 1, b = (1u << run.k2) - 1;
        uint32_t both = 0; /* escapes, and literals in the upper half */
        for (unsigned i = lane; i < n; i += LANES) {
            const unsigned exponent = exponent_of(value(i), kind);
            const bool escape = chosen.code(exponent) == a;
            both += escape ? 1 : 0;
            both += escape && chosen.second(exponent) == b ? 1u << 16 : 0;
        }
        both = warp_sum(both);
        run.second_codes = run.k2 ? both & 0xffff : 0;
        run.literals = both >> 16;
        if (fmt_run_parts(&run, &kind).bytes < raw)
            return chosen;
    }
    run = fmt_run();
    run.n = n;
    return chosen;
}

/* Would an encoder make this open run, with this descriptor, from its values? */
template <class T> PICI_DEV bool good_choice(const opened_run *of, const fmt_run &said, unsigned packed)
{
    const fmt_kind kind = kind_of<T>(packed % ONE_LEVEL);
    const chosen_run chosen =
        warp_choose<T>([&](unsigned i) { return run_value<T>(of, i, kind).value; }, said.n, kind, packed >= ONE_LEVEL);
    const fmt_run &run = chosen.run;
    if (run.k1 != said.k1 || run.k2 != said.k2 || run.zero_bytes != said.zero_bytes ||
        run.second_codes != said.second_codes || run.literals != said.literals)
        return false;
    if (!run.k1)
        return true;
    const unsigned lane = hw::lane(), a = (1u << run.k1) - 1;
    bool bad = false;
    if (lane < fmt_run_entries(&run)) {
        const uint8_t *const table = (const uint8_t *)(uintptr_t)hw::get(&of->at) + hw::get(&of->table);
        const unsigned entry = kind.stored == 1 ? hw::load(table + lane) : hw::load((const uint16_t *)table + lane);
        bad = entry != chosen.entry(lane);
    }
    for (unsigned i = lane; i < run.n; i += LANES) {
        const coded<T> its = run_value<T>(of, i, kind);
        const unsigned exponent = exponent_of(its.value, kind), code = chosen.code(exponent);
        bad |= its.code != code || (run.k2 && code == a && its.second != chosen.second(exponent));
    }
    return hw::ballot(bad) == 0;
}

/* ---- the values of a tile ---- */

/* The place of a tile's values in a hybrid block. packed_values has the same interface. */
template <class T> struct plain_values {
    const T *at;

    PICI_DEV_MEMBER T load(unsigned i) const
    {
        return hw::load_once(at + i);
    }
    PICI_DEV_MEMBER T load_again(unsigned i) const
    {
        return hw::load(at + i);
    }
    template <bool PUT> PICI_DEV_MEMBER bool copy_in(T *&values, uint8_t *stage, unsigned n) const
    {
        return warp_copy_in<PUT, IN_ORDER>(values, stage, at, n);
    }
    PICI_DEV_MEMBER unsigned find_zero(unsigned n) const
    {
        return warp_find_zero(at, n);
    }
};

/* The values of a tile in a packed block. They are in at most two open runs, one with an even and one with an odd
 * number. */
template <class T> struct packed_values {
    const opened_run *runs;
    unsigned first; /* number of the tile's first value in its group */
    unsigned dtype;

    PICI_DEV_MEMBER T load(unsigned i) const
    {
        const unsigned number = first + i;
        return run_value<T>(runs + number / RUN_MOST % 2, number % RUN_MOST, kind_of<T>(dtype)).value;
    }
    PICI_DEV_MEMBER T load_again(unsigned i) const
    {
        return load(i);
    }
    template <bool PUT> PICI_DEV_MEMBER bool copy_in(T *&values, uint8_t *stage, unsigned n) const
    {
        bool zero = false;
        values = (T *)stage;
        PICI_UNROLL_1
        for (unsigned i = hw::lane(); i < n; i += LANES) {
            const T value = load(i);
            zero |= value == 0;
            if constexpr (PUT)
                hw::put(values + i, value);
        }
        if constexpr (PUT)
            hw::syncwarp();
        return zero;
    }
    PICI_DEV_MEMBER unsigned find_zero(unsigned n) const
    {
        for (unsigned at = 0; at < n; at += LANES) {
            const unsigned i = at + hw::lane(), zeros = hw::ballot(i < n && load(i) == 0);
            if (zeros)
                return at + hw::ffs(zeros) - 1;
        }
        return n;
    }
};

/* The runs open in the two places. */
struct open_runs {
    opened_run *place;
    uint32_t numbers = UINT32_MAX; /* in halves of a word */

    PICI_DEV_MEMBER bool has(unsigned i) const
    {
        return (numbers >> 16 * (i % 2) & 0xffff) == i;
    }
    PICI_DEV_MEMBER void set(unsigned i, unsigned number)
    {
        numbers = (numbers & 0xffffu << 16 * (1 - i % 2)) | (number & 0xffff) << 16 * (i % 2);
    }
};

/* Open the runs that hold `stored` values of a tile. first: the number of the first value in its group. With VERIFY,
 * check "choice" of the runs whose first value is among them. Returns a fault. */
template <reading DO, class T>
PICI_DEV uint64_t open_runs_of(open_runs &open, const group &made_group, unsigned packed, uint64_t number,
                               unsigned first, unsigned stored)
{
    uint64_t wrong = 0;
    PICI_UNROLL_1
    for (unsigned i = first / RUN_MOST; i * RUN_MOST < first + stored; i++) {
        unsigned rule = RULE_NONE, sub = 0;
        opened_run *const place = open.place + i % 2;
        if (!open.has(i)) {
            rule = open_run<T>(place, sub, made_group, i, packed);
            open.set(i, rule ? UINT32_MAX : i);
        }
        if constexpr (DO == VERIFY) {
            if (!rule && i * RUN_MOST >= first) {
                fmt_run said;
                run_said(said, made_group, i, packed, LOG2<T>);
                rule = good_choice<T>(place, said, packed) ? (unsigned)RULE_NONE : (unsigned)RULE_CHOICE;
            }
        }
        if (rule)
            wrong = first_fault(wrong, group_fault(number, GROUP_RUN_BODY, i, rule, sub));
    }
    return wrong;
}

} // namespace pici

#endif
