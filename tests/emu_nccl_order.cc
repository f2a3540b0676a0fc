/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order in which the transport over NCCL issues its operations, without NCCL: ranks go through the exchanges of
 * an all-reduce, an operation ends when its peers are at the same one, and those of a rank run one after the other.
 * All come to the end, for 1 to 64 ranks; in orders that are wrong they do not. The last line is "N passed, N
 * failed". */
#include <stdint.h>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "emu_exchanges.h"
extern "C" {
#include "transport/nccl_transport.h"
#include "util.h"
}

/* Is a header next, after so many headers and payloads? `ready`: the header's message was sent, by now. */
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

struct rank {
    std::vector<exchange> exchanges;
    long posted = 0, sent = 0, taken = 0; /* by the loop over steps */
    long headers = 0, payloads = 0;       /* issued */
    std::vector<long> operations;         /* 2k: a header, 2k + 1: a payload */
    std::vector<bool> issued, at_work, ended;
    size_t front = 0; /* of operations: the one at work */
};

struct model {
    std::vector<rank> ranks;
    order *next;
    bool connects; /* to issue an operation is to wait until the peers issue it */
};

static const exchange &of(const rank &r, long operation)
{
    return r.exchanges[(size_t)(operation / 2)];
}

/* Is it still in NCCL's hands? */
static bool connecting(const model &m, const rank &r)
{
    if (!m.connects || r.operations.empty())
        return false;
    const size_t o = (size_t)r.operations.back();
    const exchange &x = of(r, (long)o);
    return !m.ranks[(size_t)x.to].issued[o] || !m.ranks[(size_t)x.from].issued[o];
}

/* The loop over steps, as far as it goes. */
static bool drive(const model &m, rank &r)
{
    if (connecting(m, r))
        return false;
    const long all = (long)r.exchanges.size();
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        if (r.posted < all && r.posted - r.taken < r.exchanges[(size_t)r.posted].window)
            again = ++r.posted;
        if (r.sent < r.posted && r.exchanges[(size_t)r.sent].after < r.taken)
            again = ++r.sent;
        if (r.taken < r.sent && r.ended[2 * (size_t)r.taken + 1])
            again = ++r.taken;
        moved |= again;
    }
    return moved;
}

static bool issue(model &m, int number)
{
    rank &r = m.ranks[(size_t)number];
    const long all = (long)r.exchanges.size();
    if (r.payloads == all || connecting(m, r))
        return false;
    const int more = r.headers > r.payloads ? r.exchanges[(size_t)r.payloads].more : 0;
    const bool header = r.headers < all && m.next({number, r.headers, r.payloads, more, r.headers < r.sent});
    if (header ? r.headers == r.sent : r.headers == r.payloads || !r.ended[2 * (size_t)r.payloads])
        return false;
    const long o = header ? 2 * r.headers++ : 2 * r.payloads++ + 1;
    r.operations.push_back(o);
    r.issued[(size_t)o] = true;
    return true;
}

static bool run(model &m, rank &r)
{
    if (r.front == r.operations.size())
        return false;
    const size_t o = (size_t)r.operations[r.front];
    const exchange &x = of(r, (long)o);
    const bool was = r.at_work[o];
    r.at_work[o] = true;
    if (!m.ranks[(size_t)x.to].at_work[o] || !m.ranks[(size_t)x.from].at_work[o])
        return !was;
    r.ended[o] = true;
    r.front++;
    return true;
}

/* Do all come to the end? seed 0: each rank in turn, as far as it goes; for what can happen next stays possible, so
 * that is as good as any other turn, unless the order depends on it. */
static bool ends(const collective &c, order *next, bool connects, uint64_t seed)
{
    struct rng rng = {seed};
    model m = {std::vector<rank>((size_t)c.ranks), next, connects};
    long left = 0;
    for (int i = 0; i < c.ranks; i++) {
        rank &r = m.ranks[(size_t)i];
        r.exchanges = exchanges_of(c, i);
        r.issued.resize(2 * r.exchanges.size());
        r.at_work = r.ended = r.issued;
        left += (long)r.exchanges.size();
    }
    for (long idle = 0; idle < (seed ? 60 : 1) * c.ranks && left;) {
        const int i = seed ? (int)rng_below(&rng, (uint64_t)c.ranks) : (int)(idle % c.ranks);
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
        idle = moved ? 0 : idle + 1;
    }
    return left == 0;
}

int main()
{
    char what[200];
    static const enum plan_algorithm algorithms[] = {PLAN_RING, PLAN_RECURSIVE};
    static const int windows[] = {1, 2, 4};
    for (int p = 1; p <= 64; p++)
        for (const auto algorithm : algorithms)
            for (const int window : windows) {
                const collective c = {algorithm, p, window, 2 * window - (window > 1)};
                snprintf(what, sizeof what, "%d ranks, %s, window %d", p, algorithm == PLAN_RING ? "ring" : "recursive",
                         window);
                tally(ends(c, right, false, 0), what, "deadlocks");
                if (p <= 24)
                    tally(ends(c, right, true, 0), what, "deadlocks while it connects");
                if (p <= 8)
                    tally(ends(c, right, p & 1, (uint64_t)p), what, "deadlocks, by a seed");
            }

    /* What is wrong with another order, and where it shows. */
    static const struct {
        const char *what;
        order *next;
        int window;
        bool good;
    } orders[] = {{"never ahead: slow, but right", never_ahead, 4, true},
                  {"ahead though the next message waits for this one", always_ahead, 1, false},
                  {"two ahead", two_ahead, 2, false},
                  {"ahead if the message happens to be there", if_it_is_there, 4, false},
                  {"not the same on all ranks", one_rank_never, 4, false}};
    for (const auto &o : orders)
        for (int p = 2; p <= 17; p += 3)
            for (const auto algorithm : algorithms) {
                const collective c = {algorithm, p, o.window, 2 * o.window - (o.window > 1)};
                bool all = true;
                for (uint64_t seed = 1; seed <= 20 && all; seed++)
                    all = ends(c, o.next, false, seed);
                snprintf(what, sizeof what, "%s: %d ranks", o.what, p);
                tally(all == o.good, what, all ? "does not deadlock" : "deadlocks");
            }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
