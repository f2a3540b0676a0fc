/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order in which the transport over NCCL issues its operations, without NCCL. Ranks go through the steps of a
 * collective. A rank's operation ends when its peers are at the same one; a rank's operations run one after the other.
 * All ranks come to the end, for 1 to 64 ranks. In some schedules all ranks exchange messages in every step; in others
 * only some have messages in a step, or several. In wrong orders they do not: that is a deadlock. The last line is "N
 * passed, N failed".
 *     emu_nccl_order [--quick]      above 24 ranks, only some numbers of them */
#include <stdint.h>
#include <string.h>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "emu_exchanges.h"
extern "C" {
#include "transport/nccl_transport.h"
}

enum { LIVE = 4 }; /* of nccl.c */

/* Is a header next, after so many headers and payloads? `ready`: by now the messages of that header's step were
 * begun. */
struct state {
    int rank;
    long headers, payloads;
    int more;
    bool ready;
};
typedef bool order(const state &);

static bool right(const state &s)
{
    return pici_nccl_header_next((uint64_t)s.headers, (uint64_t)s.payloads, s.more);
}

static bool never_ahead(const state &s)
{
    return s.headers == s.payloads;
}

static bool always_ahead(const state &s)
{
    return s.headers <= s.payloads + 1;
}

static bool two_ahead(const state &s)
{
    return s.headers == s.payloads || (s.more && s.headers <= s.payloads + 2);
}

static bool if_it_is_there(const state &s)
{
    return s.headers == s.payloads || (s.headers == s.payloads + 1 && s.ready);
}

static bool one_rank_never(const state &s)
{
    return s.rank ? right(s) : never_ahead(s);
}

/* How ranks issue operations. */
struct rules {
    order *next;
    bool counts_own = false; /* a rank counts only the steps in which it has messages */
    bool connects = false;   /* to issue an operation is to wait until the peers issue it */
};

/* An operation is 2k, the header of step k, or 2k + 1, its payload. */
struct rank {
    std::vector<step> steps;
    std::vector<std::vector<int>> peers;  /* of each operation */
    std::vector<long> own;                /* steps before each one in which it has messages */
    long posted = 0, sent = 0, taken = 0; /* by the loop over steps */
    long headers = 0, payloads = 0;       /* issued */
    long headers_ended = 0, payloads_ended = 0;
    std::vector<long> operations; /* issued, but for empty ones */
    std::vector<bool> issued, at_work, ended;
    size_t front = 0; /* of operations: the one at work */
};

struct model {
    std::vector<rank> ranks;
    rules by;
};

static bool idle(const rank &r, long k)
{
    return r.steps[(size_t)k].to.empty() && r.steps[(size_t)k].from.empty();
}

/* Is it still in NCCL's hands? */
static bool connecting(const model &m, const rank &r)
{
    if (!m.by.connects || r.operations.empty())
        return false;
    const size_t o = (size_t)r.operations.back();
    for (const int peer : r.peers[o])
        if (!m.ranks[(size_t)peer].issued[o])
            return true;
    return false;
}

/* The loop over steps, as far as it goes. */
static bool drive(const model &m, rank &r)
{
    if (connecting(m, r))
        return false;
    const long all = (long)r.steps.size();
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        if (r.posted < all && r.posted - r.taken < r.steps[(size_t)r.posted].window)
            again = ++r.posted;
        if (r.sent < r.posted && r.steps[(size_t)r.sent].after < r.taken &&
            r.sent - r.payloads_ended < r.steps[(size_t)r.sent].window)
            again = ++r.sent;
        if (r.taken < r.sent && r.taken < r.payloads_ended)
            again = ++r.taken;
        moved |= again;
    }
    return moved;
}

static void put(rank &r, long operation)
{
    const size_t o = (size_t)operation;
    r.issued[o] = true;
    if (r.peers[o].empty())
        r.ended[o] = true;
    else
        r.operations.push_back(operation);
}

/* What ended since, in order. */
static bool notice(rank &r)
{
    const long before = r.headers_ended + r.payloads_ended;
    while (r.headers_ended < r.headers && r.ended[2 * (size_t)r.headers_ended])
        r.headers_ended++;
    while (r.payloads_ended < r.payloads && r.ended[2 * (size_t)r.payloads_ended + 1])
        r.payloads_ended++;
    return r.headers_ended + r.payloads_ended > before;
}

static bool issue(model &m, int number)
{
    rank &r = m.ranks[(size_t)number];
    const long all = (long)r.steps.size();
    const bool noticed = notice(r);
    if (connecting(m, r))
        return noticed;
    bool skipped = false;
    for (; m.by.counts_own && r.headers < r.sent && idle(r, r.headers); skipped = true)
        put(r, 2 * r.headers++);
    for (; m.by.counts_own && r.payloads < r.headers && idle(r, r.payloads); skipped = true)
        put(r, 2 * r.payloads++ + 1);
    if (r.payloads == all || skipped)
        return noticed || skipped;
    const int more = r.headers > r.payloads ? r.steps[(size_t)r.payloads].more : 0;
    const long headers = m.by.counts_own ? r.own[(size_t)r.headers] : r.headers;
    const long payloads = m.by.counts_own ? r.own[(size_t)r.payloads] : r.payloads;
    const bool header = r.headers < all && m.by.next({number, headers, payloads, more, r.headers < r.sent});
    if (header ? r.headers == r.sent || r.headers == r.payloads_ended + LIVE : r.payloads == r.headers_ended)
        return noticed;
    put(r, header ? 2 * r.headers++ : 2 * r.payloads++ + 1);
    return true;
}

static bool run(model &m, rank &r)
{
    if (r.front == r.operations.size())
        return false;
    const size_t o = (size_t)r.operations[r.front];
    const bool was = r.at_work[o];
    r.at_work[o] = true;
    for (const int peer : r.peers[o])
        if (!m.ranks[(size_t)peer].at_work[o])
            return !was;
    r.ended[o] = true;
    r.front++;
    return true;
}

/* Do all come to the end? seed 0: each rank in turn, until it must wait. Possible next operations stay possible, so
 * this turn is as good as any other, unless the order depends on it. */
static bool ends(const std::vector<stage> &stages, int ranks, const rules &by, uint64_t seed)
{
    struct rng rng = {seed}, bytes = {stages.size()};
    model m = {std::vector<rank>((size_t)ranks), by};
    long left = 0;
    for (int i = 0; i < ranks; i++) {
        rank &r = m.ranks[(size_t)i];
        r.steps = steps_of(stages, i);
        r.issued.resize(2 * r.steps.size());
        r.at_work = r.ended = r.issued;
        r.peers.resize(2 * r.steps.size());
        r.own.push_back(0);
        for (size_t k = 0; k < r.steps.size(); k++)
            r.own.push_back(r.own.back() + !idle(r, (long)k));
        left += (long)r.steps.size();
    }
    for (size_t k = 0; k < stages.size(); k++)
        for (const auto &message : stages[k].all) {
            const int from = message.first, to = message.second;
            const bool empty = rng_chance(&bytes, 50000); /* it has no bytes, and so no part in the payload */
            for (size_t o = 2 * k; o < 2 * k + (empty ? 1 : 2); o++) {
                m.ranks[(size_t)from].peers[o].push_back(to);
                m.ranks[(size_t)to].peers[o].push_back(from);
            }
        }
    for (long still = 0; still < (seed ? 60 : 1) * ranks && left;) {
        const int i = seed ? (int)rng_below(&rng, (uint64_t)ranks) : (int)(still % ranks);
        rank &r = m.ranks[(size_t)i];
        const long before = r.taken;
        bool moved = false;
        if (seed) {
            const uint64_t what = rng_below(&rng, 3);
            moved = what == 0 ? drive(m, r) : what == 1 ? issue(m, i) : run(m, r);
        } else
            while (drive(m, r) || issue(m, i) || run(m, r))
                moved = true;
        left -= r.taken - before;
        still = moved ? 0 : still + 1;
    }
    return left == 0;
}

static void all_end(const std::string &what, const std::vector<stage> &stages, int ranks)
{
    tally(ends(stages, ranks, {right}, 0), what.c_str(), "deadlock");
    if (ranks <= 24)
        tally(ends(stages, ranks, {right, false, true}, 0), what.c_str(), "deadlock while it connects");
    if (ranks <= 8)
        tally(ends(stages, ranks, {right, false, (ranks & 1) != 0}, (uint64_t)ranks), what.c_str(),
              "deadlock, by a seed");
}

static long slices(int window)
{
    return 2 * window - (window > 1);
}

/* Step lists of p ranks, of all kinds. */
static std::vector<step_list> step_lists(int p, struct rng *rng)
{
    std::vector<step_list> all = flat_ones(p);
    all.push_back(doubling(p));
    all.push_back(on_nodes(PICI_ALGO_NODES_RING, some_nodes(p, p > 16 ? 12 : 5, rng)));
    all.push_back(on_nodes(PICI_ALGO_NODES_RECURSIVE, some_nodes(p, p > 16 ? 8 : 4, rng)));
    all.push_back(stars(p));
    all.push_back(random_steps(p, 12, rng));
    return all;
}

/* lib/coll has the schedule that is expected. */
static void same(step_list has, step_list expected)
{
    for (auto *list : {&has, &expected})
        for (auto &step : list->steps)
            std::sort(step.begin(), step.end());
    tally(has.steps == expected.steps && has.paired == expected.paired,
          (expected.name + ", " + std::to_string(expected.ranks) + " ranks").c_str(), "other messages");
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    struct rng rng = {1};
    for (int p = 1; p <= 64; p++) {
        const bool beside = p % 16 == 0 || p % 16 == 15 || p % 32 == 1; /* powers of two, and those beside them */
        if (quick && p > 24 && !beside)
            continue;
        same(flat(pici_schedule(PICI_ALGO_DOUBLING), p), doubling(p));
        for (int i = 0; i < 4; i++) {
            const auto sizes = some_nodes(p, i < 2 ? 4 : p, &rng);
            same(on_nodes(PICI_ALGO_NODES_RING, sizes), two_levels(PICI_ALGO_RING, sizes));
            same(on_nodes(PICI_ALGO_NODES_RECURSIVE, sizes), two_levels(PICI_ALGO_RECURSIVE, sizes));
        }
        for (const auto &s : step_lists(p, &rng))
            for (const int window : {1, 2, 4}) {
                const collective c = {s, window, slices(window)};
                all_end(name_of(c), stages_of(c), p);
            }
        for (int i = 0; i < 4; i++)
            all_end(std::to_string(p) + " ranks, any order", random_stages(random_steps(p, 60, &rng), &rng), p);
    }

    /* What is wrong with another order, and where it shows. */
    static const struct {
        const char *what;
        rules by;
        int window;
        bool good, one_sided; /* one_sided: wrong only where some ranks have no messages in a step */
    } orders[] = {{"never ahead: slow, but right", {never_ahead}, 4, true, false},
                  {"ahead though the next message waits for this one", {always_ahead}, 1, false, false},
                  {"two ahead", {two_ahead}, 2, false, false},
                  {"ahead if the message happens to be there", {if_it_is_there}, 4, false, false},
                  {"not the same on all ranks", {one_rank_never}, 4, false, false},
                  {"a rank leaves out steps in which it has no messages", {right, true}, 4, false, true}};
    for (const auto &o : orders)
        for (int p = 2; p <= 17; p += 3) {
            for (const auto &s : step_lists(p, &rng)) {
                if ((!s.paired || s.steps.size() < 2) && !o.good)
                    continue; /* it may show or not: below */
                const collective c = {s, o.window, slices(o.window)};
                bool all = true;
                for (uint64_t seed = 1; seed <= 20 && all; seed++)
                    all = ends(stages_of(c), p, o.by, seed);
                tally(all == (o.good || o.one_sided), (o.what + (", " + name_of(c))).c_str(),
                      all ? "no deadlock" : "deadlock");
            }
            bool all = true;
            for (uint64_t seed = 1; seed <= 60 && all; seed++)
                all = ends(random_stages(random_steps(p, 60, &rng), &rng), p, o.by, seed);
            tally(all == o.good, (o.what + (", any order of " + std::to_string(p))).c_str(),
                  all ? "no deadlock" : "deadlock");
        }
    for (const auto &o : orders) {
        if (o.good)
            continue;
        /* in schedules of the library's kind with unequal ranks: each wrong order shows in some */
        bool all = true;
        for (int p = 3; p <= 17 && all; p++)
            for (const auto &s : {doubling(p), two_levels(PICI_ALGO_RING, some_nodes(p, 4, &rng)),
                                  two_levels(PICI_ALGO_RECURSIVE, some_nodes(p, 4, &rng)), stars(p)})
                for (uint64_t seed = 1; seed <= 5 && all && !s.paired; seed++)
                    all = ends(stages_of({s, o.window, slices(o.window)}), p, o.by, seed);
        tally(!all, o.what, "no deadlock where some ranks have no messages in a step");
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
