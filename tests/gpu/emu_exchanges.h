/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps that a transport goes through in a collective: who sends to whom, and which step waits for which. Schedules
 * of lib/coll, and others in which only some ranks have messages in a step, or several. */
#ifndef PICI_TESTS_EMU_EXCHANGES_H
#define PICI_TESTS_EMU_EXCHANGES_H

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "schedule/registry.h"
#include "pici/coll.h"
#include "tests/util/util.h"
}

/* ---- step lists: the messages of each step, as pairs of sender and receiver ---- */

using messages = std::vector<std::pair<int, int>>;

struct step_list {
    std::string name;
    int ranks;
    bool paired; /* in each step a rank sends one message and receives one */
    std::vector<messages> steps;
};

/* What a rank of p sends in each step of a schedule of lib/coll: to whom, and which segments. The only place that knows
 * how lib/coll says this. */
struct sent {
    int to;
    std::vector<int> segments;
};

static inline std::vector<std::vector<sent>> sent_by(const struct schedule *s, enum pici_collective kind, int p, int r,
                                                     const struct schedule_nodes *nodes = nullptr)
{
    const struct schedule_call call = {kind, p, r, p / 2, 1 << 20, nodes, NULL};
    struct schedule_limits limits;
    struct schedule_step step;
    std::vector<std::vector<sent>> steps;
    s->limits(s, &call, &limits);
    std::vector<uint64_t> memory(pici_schedule_step_bytes(&limits) / sizeof(uint64_t) + 1);
    pici_schedule_step_init(&step, &limits, memory.data());
    for (int k = 0; k < s->steps(s, &call); k++) {
        s->step(s, &call, k, &step);
        steps.emplace_back();
        for (int i = 0; i < step.sends; i++) {
            const struct schedule_message &m = step.send[i];
            steps.back().push_back({m.peer, {m.segments, m.segments + m.count}});
        }
    }
    return steps;
}

/* An all-reduce, or by a schedule for broadcasts one of those. */
static inline step_list flat(const struct schedule *by, int p, const struct schedule_nodes *nodes = nullptr)
{
    const bool spreads = by->collectives >> PICI_BROADCAST & 1;
    step_list s = {by->name, p, pici_schedule_paired(by, p) != 0, {}};
    for (int r = 0; r < p; r++) {
        const auto mine = sent_by(by, spreads ? PICI_BROADCAST : PICI_ALL_REDUCE, p, r, nodes);
        s.steps.resize(mine.size());
        for (size_t k = 0; k < mine.size(); k++)
            for (const auto &m : mine[k])
                s.steps[k].push_back({r, m.to});
    }
    return s;
}

/* The same by each schedule of lib/coll that can. */
static inline std::vector<step_list> flat_ones(int p)
{
    std::vector<step_list> all;
    for (const struct schedule *s = pici_schedules; s->name; s++)
        if (s->collectives >> PICI_ALL_REDUCE & 1)
            all.push_back(flat(s, p));
    for (const struct schedule *s = pici_broadcasts; s->name; s++)
        all.push_back(flat(s, p));
    return all;
}

/* An all-reduce by recursive doubling, for any p, written separately from the library's. Of the first 2 * rem ranks,
 * the even ones give their data to their neighbours before, and get the result after. */
static inline step_list doubling(int p)
{
    step_list s = {"doubling", p, (p & (p - 1)) == 0, {}};
    int p2 = 1;
    while (2 * p2 <= p)
        p2 *= 2;
    const int rem = p - p2;
    const auto rank_of = [rem](int v) { return v < rem ? 2 * v + 1 : v + rem; };
    messages fold, unfold;
    for (int i = 0; i < rem; i++) {
        fold.push_back({2 * i, 2 * i + 1});
        unfold.push_back({2 * i + 1, 2 * i});
    }
    if (rem)
        s.steps.push_back(fold);
    for (int far = 1; far < p2; far *= 2) {
        messages step;
        for (int v = 0; v < p2; v++)
            step.push_back({rank_of(v), rank_of(v ^ far)});
        s.steps.push_back(step);
    }
    if (rem)
        s.steps.push_back(unfold);
    return s;
}

/* An all-reduce on two levels: inside nodes of these sizes, and between nodes, for each lane among the ranks that carry
 * it. A small node's ranks carry several lanes; a node with fewer inner steps is idle in the others; a message without
 * segments is not sent. */
static inline step_list two_levels(enum pici_algorithm outer, const std::vector<int> &sizes)
{
    const int nodes = (int)sizes.size(), widest = *std::max_element(sizes.begin(), sizes.end());
    const struct schedule *inner = pici_schedule(widest <= 8 ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE);
    const struct schedule *between_nodes = pici_schedule(outer);
    step_list s = {std::string("nodes-") + between_nodes->name + " of", 0, false, {}};
    std::vector<int> first;
    for (const int size : sizes) {
        first.push_back(s.ranks);
        s.ranks += size;
        s.name += " " + std::to_string(size);
    }
    for (const auto kind : {PICI_REDUCE_SCATTER, PICI_ALL_GATHER}) {
        std::vector<messages> inside(sent_by(inner, kind, widest, 0).size());
        std::vector<messages> between(sent_by(between_nodes, kind, nodes, 0).size());
        for (int i = 0; i < nodes; i++) {
            for (int j = 0; j < sizes[(size_t)i]; j++) {
                const auto mine = sent_by(inner, kind, sizes[(size_t)i], j);
                for (size_t k = 0; k < mine.size(); k++)
                    for (const auto &m : mine[k])
                        inside[k].push_back({first[(size_t)i] + j, first[(size_t)i] + m.to});
            }
            const auto mine = sent_by(between_nodes, kind, nodes, i);
            for (int lane = 0; lane < widest; lane++)
                for (size_t k = 0; k < mine.size(); k++)
                    for (const auto &sends : mine[k]) {
                        const auto carrier = [&](int node) { return first[(size_t)node] + lane % sizes[(size_t)node]; };
                        const std::pair<int, int> m = {carrier(i), carrier(sends.to)};
                        bool segments = false;
                        for (const int segment : sends.segments)
                            segments |= lane < sizes[(size_t)segment];
                        if (segments && std::find(between[k].begin(), between[k].end(), m) == between[k].end())
                            between[k].push_back(m);
                    }
        }
        for (const auto &part : kind == PICI_ALL_GATHER ? std::vector<std::vector<messages>>{between, inside}
                                                        : std::vector<std::vector<messages>>{inside, between})
            s.steps.insert(s.steps.end(), part.begin(), part.end());
    }
    return s;
}

/* Those that lib/coll has. */
static inline step_list on_nodes(enum pici_algorithm algorithm, const std::vector<int> &sizes)
{
    std::vector<int> begin = {0};
    for (const int size : sizes)
        begin.push_back(begin.back() + size);
    const struct schedule_nodes nodes = {(int)sizes.size(), begin.data()};
    return flat(pici_schedule(algorithm), begin.back(), &nodes);
}

/* Ranks cut into nodes of 1 to `most`. */
static inline std::vector<int> some_nodes(int ranks, int most, struct rng *rng)
{
    std::vector<int> sizes;
    for (int left = ranks; left; left -= sizes.back())
        sizes.push_back(1 + (int)rng_below(rng, (uint64_t)std::min(left, most)));
    return sizes;
}

/* By turns a rank sends to all others, and receives from all others. */
static inline step_list stars(int p)
{
    step_list s = {"one to many and many to one", p, false, {}};
    for (int k = 0; k < 8; k++) {
        messages step;
        for (int r = 0; r < p; r++)
            if (r != k % p)
                step.push_back(k % 2 ? std::make_pair(k % p, r) : std::make_pair(r, k % p));
        s.steps.push_back(step);
    }
    return s;
}

/* Any ranks send to any, at most one message from one to another in a step; some steps are empty for all. */
static inline step_list random_steps(int p, int steps, struct rng *rng)
{
    static const unsigned ppm[] = {0, 20000, 100000, 300000, 1000000};
    step_list s = {"random steps", p, false, {}};
    for (int k = 0; k < steps; k++) {
        const unsigned dense = ppm[rng_below(rng, sizeof ppm / sizeof *ppm)];
        messages step;
        for (int a = 0; a < p; a++)
            for (int b = 0; b < p; b++)
                if (a != b && rng_chance(rng, p > 8 ? dense / 8 : dense))
                    step.push_back({a, b});
        s.steps.push_back(step);
    }
    return s;
}

/* ---- what a transport is told ---- */

struct collective {
    step_list of;
    int window; /* slices in flight, which go through the steps in turn */
    long slices;
};

static inline std::string name_of(const collective &c)
{
    return std::to_string(c.of.ranks) + " ranks, " + c.of.name + ", window " + std::to_string(c.window);
}

/* A step of all ranks. */
struct stage {
    messages all;
    long after; /* waits until the messages of that step, and of those before it, were processed; -1: for none */
    int more;   /* the next one does not wait for this one */
    int window; /* steps with sends in flight at a time, and with receives */
    bool data;
};

/* The same for one rank. */
struct step {
    std::vector<int> to, from;
    long after;
    int more, window;
    bool data;
};

static inline void agree(std::vector<stage> &all, int ranks)
{
    const bool power = (ranks & (ranks - 1)) == 0;
    for (int far = 1; far < ranks; far *= 2) {
        messages step;
        for (int r = 0; r < ranks; r++)
            step.push_back({r, power ? r ^ far : (r + far) % ranks});
        all.push_back({step, (long)all.size() - 1, 0, 1, false});
    }
}

/* The steps of a collective: agreement rounds, the data, agreement rounds. The last round of slices may have fewer. */
static inline std::vector<stage> stages_of(const collective &c)
{
    std::vector<stage> all;
    agree(all, c.of.ranks);
    long before = 0; /* slices in the round before */
    for (long first = 0; first < c.slices; first += c.window) {
        const long next = std::min(c.slices - first, (long)c.window);
        for (size_t k = 0; k < c.of.steps.size(); k++)
            for (long slice = 0; slice < next; slice++) {
                const long i = (long)all.size(), after = k ? i - next : first ? i - before : i - 1 - slice;
                all.push_back({c.of.steps[k], after, 0, c.window, true});
            }
        before = next;
    }
    agree(all, c.of.ranks);
    for (size_t k = 0; k + 1 < all.size(); k++)
        all[k].more = all[k + 1].after < (long)k;
    return all;
}

/* Each step waits for as much as it may, at random: for the step before it, or if that has `more`, for the one before
 * that. */
static inline std::vector<stage> random_stages(const step_list &s, struct rng *rng)
{
    std::vector<stage> all;
    for (size_t k = 0; k < s.steps.size(); k++) {
        const int before = k ? all[k - 1].more : 0, more = k + 1 < s.steps.size() && rng_below(rng, 3) > 0;
        all.push_back({s.steps[k], (long)k - 1 - before, more, 1 + before + (int)rng_below(rng, 3), true});
    }
    return all;
}

static inline std::vector<step> steps_of(const std::vector<stage> &all, int rank)
{
    std::vector<step> mine;
    for (const auto &s : all) {
        mine.push_back({{}, {}, s.after, s.more, s.window, s.data});
        for (const auto &m : s.all) {
            if (m.first == rank)
                mine.back().to.push_back(m.second);
            if (m.second == rank)
                mine.back().from.push_back(m.first);
        }
    }
    return mine;
}

#endif
