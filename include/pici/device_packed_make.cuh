/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a group of a packed block by a thread block. Warps survey the tiles as for hybrid. Then each warp gathers
 * the values of a run in shared memory and chooses its codes. Once the position of the record is known, the warp
 * gathers the values again, mostly from a cache, and writes the run. Part of pici/device.cuh. Specification:
 * formats/packed.md. */
#ifndef PICI_DEVICE_PACKED_MAKE_CUH
#define PICI_DEVICE_PACKED_MAKE_CUH

#include "pici/device_group_make.cuh"

namespace pici {

/* ---- shared memory: after block_memory ---- */

/* The members of chosen_run, for a run of the group. */
struct alignas(8) made_run {
    uint64_t codes, seconds, entries;
    uint32_t top, second_codes, literals;
    uint8_t k1, k2, zero_bytes, unused;
};

/* The bits of a tile, later replaced by its payload: the first member of made_tile. */
constexpr unsigned MADE_BITS = TILE_BITS_BYTES;

/* The values of a run, and the second codes that do not yet fill a word. */
enum : unsigned { WAITING = 128 };
template <class T> constexpr unsigned RUN_BUFFER = RUN_MOST * sizeof(T) + WAITING;

/* Warps of a thread block of `threads` threads that work on runs. Their values must fit into the shared memory that all
 * GPUs have, 99 KiB. */
template <class T> PICI_DEV_HOST constexpr unsigned run_warps(unsigned threads)
{
    constexpr unsigned MOST = sizeof(T) == 8 ? 2 : sizeof(T) == 4 ? 5 : 8;
    return threads / LANES < MOST ? threads / LANES : MOST;
}

template <class T> constexpr unsigned PACK_BYTES(unsigned threads)
{
    return GROUP_TILES * (MADE_BITS + (unsigned)sizeof(made_run)) + run_warps<T>(threads) * RUN_BUFFER<T>;
}
static_assert(GROUP_TILES * sizeof(made_run) % 16 == 0 && WAITING % 16 == 0, "buffers are aligned");

struct pack_memory {
    uint8_t *bits;
    made_run *runs;
    uint8_t *buffer; /* the warp's, if it has one */
};

template <class T> PICI_DEV pack_memory pack_memory_of(block_memory *shared)
{
    uint8_t *const bits = (uint8_t *)(shared + 1);
    made_run *const runs = (made_run *)(bits + GROUP_TILES * MADE_BITS);
    return pack_memory{bits, runs, (uint8_t *)(runs + GROUP_TILES) + warp() * RUN_BUFFER<T>};
}

/* The tile's bits. No other member of this made_tile may be used. */
PICI_DEV made_tile *bits_of_tile(const pack_memory &memory, unsigned i)
{
    return (made_tile *)(memory.bits + i * MADE_BITS);
}

/* ---- gathering the values of a run ---- */

/* Store a tile's values that belong to a run of n at `values`. place: the index of the first, modulo 2^32. It is less
 * than n, or far more if the value belongs to an earlier run. raw: all elements are values. */
template <unsigned HOW, class T>
PICI_DEV void gather_rows(T *values, unsigned place, unsigned n, const dense_tile<const T> &dense, bool raw)
{
    constexpr unsigned AHEAD = SURVEY_ROWS<HOW, T>;
    const unsigned lane = hw::lane();
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += AHEAD) {
        const unsigned first = place + row * COLS;
        const unsigned last = first + AHEAD * COLS - 1;
        if (raw && first >= n && last >= n && first <= last)
            continue; /* none of these rows */
        raw_pair<T> pair[AHEAD];
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++)
            pair[r] = load_row<HOW>(dense, row + r);
        if (raw) {
            PICI_UNROLL
            for (unsigned r = 0; r < AHEAD; r++) {
                const unsigned k = first + r * COLS + 2 * lane;
                if (k < n)
                    hw::put(values + k, first_of<T>(pair[r]));
                if (k + 1 < n)
                    hw::put(values + (k + 1), second_of<T>(pair[r])); /* k may be the last number there is */
            }
        } else {
            place = rank_rows<T>(pair, place, [&](unsigned, T x, T y, unsigned, unsigned, unsigned k) {
                put_ranked(values, k, x, y, n);
            });
        }
    }
}

/* Gather the values of run i of a group. They are visible to the warp on return. */
template <class T>
PICI_DEV void gather_run(T *values, const making<T> &work, uint64_t first, const group &made_group, unsigned i)
{
    const unsigned from = i * RUN_MOST, n = run_values(made_group, i), lane = hw::lane();
    const unsigned elements = made_group.bits >> lane & 1 ? elements_of(work.to.count, first + lane) : 0;
    const unsigned stored = elements ? container_stored(made_group.container, made_group.n, elements) : 0;
    hw::syncwarp(); /* no lane still reads the buffer */
    for (unsigned tiles =
             hw::ballot(stored && made_group.own_values < from + n && made_group.own_values + stored > from);
         tiles; tiles &= tiles - 1) {
        const unsigned tile = hw::ffs(tiles) - 1;
        const unsigned place = hw::shfl(made_group.own_values, tile) - from;
        const bool raw = hw::shfl(made_group.container, tile) == PICI_RAW;
        dense_tile<const T> dense = source_tile(work, first + tile);
        dense.by_value |= (made_group.signs >> tile & 1) != 0;
        by_any_access(dense, [&](auto how) { gather_rows<how.value>(values, place, n, dense, raw); });
    }
    hw::syncwarp();
}

/* ---- writing a run ---- */

/* Second codes for the planes. They wait in shared memory until they fill words. */
struct second_planes {
    uint8_t *waiting;
    uint64_t *to; /* word 0 of plane 0 */
    unsigned k2, words;
    unsigned come = 0, gone = 0; /* second codes added so far, and those already in the planes */

    /* Add the second codes of the lanes in `escapes`. */
    PICI_DEV_MEMBER void add(unsigned second, unsigned escapes)
    {
        const unsigned below = (1u << hw::lane()) - 1;
        if (escapes >> hw::lane() & 1)
            hw::put(waiting + (come + hw::popc(escapes & below)) % WAITING, (uint8_t)second);
        come += hw::popc(escapes);
        if (come - gone >= 64)
            flush();
    }
    /* Write a word of each plane. */
    PICI_DEV_MEMBER void flush()
    {
        const unsigned lane = hw::lane();
        hw::syncwarp();
        const unsigned lo = gone + lane < come ? hw::get(waiting + (gone + lane) % WAITING) : 0;
        const unsigned hi = gone + 32 + lane < come ? hw::get(waiting + (gone + 32 + lane) % WAITING) : 0;
        for (unsigned j = 0; j < k2; j++) {
            const uint64_t word = hw::ballot(lo >> j & 1) | (uint64_t)hw::ballot(hi >> j & 1) << 32;
            if (lane == 0)
                hw::store(to + j * words + gone / 64, word);
        }
        hw::syncwarp();
        gone += 64;
    }
    PICI_DEV_MEMBER void end()
    {
        if (gone < come)
            flush();
    }
};

/* Store bit j of each lane's two numbers in word j of a row, at the bits `lane` and 32 + `lane`. */
PICI_DEV void put_planes(uint64_t *row, unsigned planes, unsigned lo, unsigned hi)
{
    uint64_t own = 0;
    for (unsigned j = 0; j < planes; j++) {
        const uint64_t word = hw::ballot(lo >> j & 1) | (uint64_t)hw::ballot(hi >> j & 1) << 32;
        own = hw::lane() == j ? word : own;
    }
    if (hw::lane() < planes)
        hw::store(row + hw::lane(), own);
}

/* Write a packed run to a block. waiting: WAITING bytes of shared memory. */
template <class T>
PICI_DEV void write_packed(uint8_t *to, uint8_t *waiting, const T *values, const chosen_run &chosen,
                           const fmt_kind &kind)
{
    const fmt_run &run = chosen.run;
    const struct fmt_run_parts part = fmt_run_parts(&run, &kind);
    const unsigned lane = hw::lane(), below = (1u << lane) - 1, kept = kind.low - run.zero_bytes;
    const unsigned a = (1u << run.k1) - 1, b = (1u << run.k2) - 1;
    second_planes seconds = {waiting, (uint64_t *)(to + part.second), run.k2, fmt_words(run.second_codes) / 8};
    unsigned literals = 0;
    const auto put_literals = [&](bool literal, unsigned exponent) {
        const unsigned mask = hw::ballot(literal), at = literals + hw::popc(mask & below);
        if (literal && kind.stored == 1)
            hw::store(to + part.literals + at, (uint8_t)exponent);
        else if (literal)
            hw::store((uint16_t *)(to + part.literals) + at, (uint16_t)exponent);
        literals += hw::popc(mask);
    };
    PICI_UNROLL_1
    for (unsigned row = 0; row * RUN_ROW < run.n; row++) {
        unsigned high[2], code[2];
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++) { /* halves of the row */
            const unsigned i = row * RUN_ROW + 32 * k + lane;
            const bool live = i < run.n;
            const T value = live ? hw::get(values + i) : (T)0;
            const unsigned exponent = exponent_of(value, kind);
            const uint64_t low = (uint64_t)value >> 8 * run.zero_bytes;
            high[k] = (unsigned)((uint64_t)value >> 8 * kind.low << 1 & ((1u << kind.high) - 1)) |
                      (unsigned)(value >> (8 * sizeof(T) - 1));
            code[k] = live ? chosen.code(exponent) : 0;
            const bool escape = live && code[k] == a;
            const unsigned second = escape ? chosen.second(exponent) : 0;
            if (run.k2)
                seconds.add(second, hw::ballot(escape));
            put_literals(escape && second == b, exponent);
            if (live && kept % 2 == 0)
                for (unsigned byte = 0; byte < kept; byte += 2)
                    hw::store((uint16_t *)(to + i * kept + byte), (uint16_t)(low >> 8 * byte));
            else if (live)
                for (unsigned byte = 0; byte < kept; byte++)
                    hw::store(to + i * kept + byte, (uint8_t)(low >> 8 * byte));
            if (live && kind.high == 8)
                hw::store(to + part.high + i, (uint8_t)high[k]);
        }
        if (kind.high < 8)
            put_planes((uint64_t *)(to + part.words) + row * kind.high, kind.high, high[0], high[1]);
        put_planes((uint64_t *)(to + part.planes) + row * run.k1, run.k1, code[0], code[1]);
    }
    seconds.end();
    if (lane < fmt_run_entries(&run)) {
        if (kind.stored == 1)
            hw::store(to + part.table + lane, (uint8_t)chosen.entry(lane));
        else
            hw::store((uint16_t *)(to + part.table) + lane, (uint16_t)chosen.entry(lane));
    }
}

/* Write a run to a block. */
template <class T> PICI_DEV void write_run(uint8_t *to, uint8_t *buffer, const chosen_run &chosen, const fmt_kind &kind)
{
    bool exists;
    if (chosen.run.k1)
        write_packed(to, buffer + RUN_MOST * sizeof(T), (const T *)buffer, chosen, kind);
    else
        warp_copy_out<IN_ORDER>((T *)to, buffer, chosen.run.n);
    const unsigned byte = run_padding(&exists, hw::lane(), chosen.run, kind, LOG2<T>);
    if (exists)
        hw::store(to + byte, (uint8_t)0);
}

/* ---- groups ---- */

PICI_DEV void put_made(made_run *to, const chosen_run &chosen)
{
    hw::put(&to->codes, chosen.codes);
    hw::put(&to->seconds, chosen.seconds);
    hw::put(&to->entries, chosen.entries);
    hw::put(&to->top, (uint32_t)chosen.top);
    hw::put(&to->second_codes, (uint32_t)chosen.run.second_codes);
    hw::put(&to->literals, (uint32_t)chosen.run.literals);
    hw::put(&to->k1, (uint8_t)chosen.run.k1);
    hw::put(&to->k2, (uint8_t)chosen.run.k2);
    hw::put(&to->zero_bytes, (uint8_t)chosen.run.zero_bytes);
}

PICI_DEV fmt_run get_run(const made_run *of, unsigned n)
{
    fmt_run run = fmt_run();
    run.n = n;
    run.k1 = hw::get(&of->k1);
    run.k2 = hw::get(&of->k2);
    run.zero_bytes = hw::get(&of->zero_bytes);
    run.second_codes = hw::get(&of->second_codes);
    run.literals = hw::get(&of->literals);
    return run;
}

PICI_DEV chosen_run get_made(const made_run *of, unsigned n)
{
    return chosen_run{get_run(of, n), hw::get(&of->top), hw::get(&of->codes), hw::get(&of->seconds),
                      hw::get(&of->entries)};
}

/* Called by a warp: write a group's run descriptors. Each lane has a run. */
PICI_DEV void put_run_descriptors(uint8_t *record, const group &made_group, const fmt_run &run)
{
    uint8_t descriptor[RUN_DESCRIPTOR];
    fmt_run_write(descriptor, &run);
    for (unsigned i = 0; hw::lane() < fmt_runs(made_group.count) && i < RUN_DESCRIPTOR; i++)
        hw::store(record + made_group.runs_at + hw::lane() * RUN_DESCRIPTOR + i, descriptor[i]);
}

/* Called by a warp: write the payload and the signs of tile i of a group to its record. *tile may be used again at
 * once. */
template <class T>
PICI_DEV void packed_tile(const making<T> &work, uint64_t first, const group &made_group, uint8_t *record, unsigned i,
                          const made_tile *tile)
{
    const unsigned count = hw::shfl(made_group.n, i), container = hw::shfl(made_group.container, i);
    const uint32_t payload = hw::shfl(made_group.payload, i), signs = hw::shfl(made_group.own_signs, i);
    if (made_group.signs >> i & 1)
        tile_write_signs(record + signs, source_tile(work, first + i));
    if (count)
        warp_copy_out<IN_ORDER>(record + payload, tile->bits, container_payload(container, count));
    hw::syncwarp();
}

/* Encode group `number` of a packed block, as make_group does for hybrid. There are three barriers; prefix is used
 * between the last two. hybrid: out: the size of a hybrid block's record of the same tiles. */
template <class T, class PREFIX>
PICI_DEV group_end make_packed_group(const making<T> &work, uint64_t number, block_memory *shared, PREFIX &prefix,
                                     uint32_t *hybrid = nullptr)
{
    const pack_memory memory = pack_memory_of<T>(shared);
    const auto made = [&](unsigned i) { return bits_of_tile(memory, i); };
    const unsigned lane = hw::lane(), unit = fmt_unit_packed(LOG2<T>), packers = run_warps<T>(hw::threads());
    const fmt_kind kind = kind_of<T>(work.to.dtype);
    const uint64_t first = number * GROUP_TILES, left = work.to.tiles - first;
    const unsigned tiles = left < GROUP_TILES ? (unsigned)left : (unsigned)GROUP_TILES;
    const surveyed own_surveyed = survey_group(shared, work, first, tiles, made, false);
    group made_group;
    const uint32_t as_hybrid = group_from<true>(made_group, work, first, own_surveyed),
                   nonzeros = warp_sum(made_group.n);
    if (hybrid)
        *hybrid = as_hybrid;
    const unsigned runs = fmt_runs(made_group.count);
    T *const values = (T *)memory.buffer;
    PICI_UNROLL_1
    for (unsigned i = warp(); warp() < packers && i < runs; i += packers) {
        gather_run(values, work, first, made_group, i);
        const chosen_run chosen =
            warp_choose<T>([&](unsigned k) { return hw::get((const T *)values + k); }, run_values(made_group, i), kind,
                           (work.to.flags & FLAG_ONE_LEVEL) != 0);
        if (lane == 0)
            put_made(memory.runs + i, chosen);
    }
    hw::syncthreads();
    fmt_run own_run = fmt_run();
    if (lane < runs)
        own_run = get_run(memory.runs + lane, run_values(made_group, lane));
    const uint32_t bytes =
        group_lay_runs(made_group, lane < runs ? fmt_run_bytes(&own_run, &kind, LOG2<T>) : 0, LOG2<T>);
    if (warp() == 0)
        prefix.publish(bytes / unit);
    PICI_UNROLL_1
    for (unsigned i = warp(); i < tiles; i += warps())
        tile_payload(made(i), hw::shfl(made_group.container, i), hw::shfl(made_group.n, i));
    if (warp() == 0) {
        const uint64_t base = prefix.resolve(bytes / unit);
        if (lane == 0)
            hw::put(&shared->base, base);
    }
    hw::syncthreads();
    const uint64_t base = hw::get(&shared->base), end = base + bytes / unit;
    const bool fits = work.to.body_offset + end * unit <= work.cap;
    uint8_t *const record = record_at(work, base);
    if (warp() == 0) {
        group_head(work, number, made_group, base, bytes, fits);
        if (fits)
            put_run_descriptors(record, made_group, own_run);
    }
    PICI_UNROLL_1
    for (unsigned i = warp(); fits && i < tiles; i += warps())
        packed_tile(work, first, made_group, record, i, made(i));
    PICI_UNROLL_1
    for (unsigned i = warp(); fits && warp() < packers && i < runs; i += packers) {
        if (runs > packers) /* otherwise the values are still there */
            gather_run(values, work, first, made_group, i);
        write_run<T>(record + hw::shfl(made_group.own_run, i), memory.buffer,
                     get_made(memory.runs + i, run_values(made_group, i)), kind);
    }
    return group_end{end, nonzeros, made_group.signs != 0};
}

} // namespace pici

#endif
