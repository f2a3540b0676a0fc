/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchanges of a collective, as lib/coll makes them: with whom, and which of them waits for which. */
#ifndef PICI_TESTS_EMU_EXCHANGES_H
#define PICI_TESTS_EMU_EXCHANGES_H

#include <vector>

extern "C" {
#include "coll/plan.h"
}

struct exchange {
    int to, from;
    long after; /* its send waits until the message received in that one was taken in; -1: for none */
    int more;   /* what the transport is told: the next one's does not wait for this one's */
    int window; /* sends, and receives, in flight at a time */
    bool data;
};

struct collective {
    enum plan_algorithm algorithm;
    int ranks, window;
    long slices;
};

static inline void agree(std::vector<exchange> &all, const collective &c, int rank)
{
    for (long far = 1; far < c.ranks; far *= 2)
        all.push_back({(int)((rank + far) % c.ranks), (int)((rank + c.ranks - far) % c.ranks), (long)all.size() - 1, 0,
                       1, false});
}

/* An all-reduce. `window` chains go through the steps by turns, each with a slice; the last round of slices may have
 * fewer. */
static inline std::vector<exchange> exchanges_of(const collective &c, int rank)
{
    std::vector<exchange> all;
    const int steps = pici_plan_steps(c.algorithm, c.ranks);
    agree(all, c, rank);
    long chains = 0; /* of the round before */
    for (long first = 0; first < c.slices; first += c.window) {
        const long next = c.slices - first < c.window ? c.slices - first : c.window;
        for (int step = 0; step < 2 * steps; step++) {
            struct pici_plan_step s;
            pici_plan_step(&s, c.algorithm, step < steps ? PLAN_REDUCE_SCATTER : PLAN_ALL_GATHER, c.ranks, rank,
                           step % steps);
            for (long chain = 0; chain < next; chain++) {
                const long k = (long)all.size();
                const long after = step ? k - next : first ? k - chains : k - 1 - chain;
                all.push_back({s.to, s.from, after, 0, c.window, true});
            }
        }
        chains = next;
    }
    agree(all, c, rank);
    for (size_t k = 0; k + 1 < all.size(); k++)
        all[k].more = all[k + 1].after < (long)k;
    return all;
}

#endif
