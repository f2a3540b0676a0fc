/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/balance.h"

#include "schedule/schedule.h"

enum { ONE = 1 << 16, UNIT = 64 /* elements */ };

void pici_balance_even(struct schedule_balance *balance, uint64_t n)
{
    for (uint64_t i = 0; i <= BALANCE_RANGES; i++)
        balance->first[i] = n / BALANCE_RANGES * i + n % BALANCE_RANGES * i / BALANCE_RANGES;
}

/* The expected nonzeros of the sum of `ranks` ranges, each with this many elements, as a fraction of all ranks'
 * nonzeros, in parts of ONE. The fraction is (1 - (1 - d)^ranks) / (ranks * d), where d is the density of one range. */
static uint64_t united(uint64_t nonzeros, uint64_t elements, int ranks)
{
    enum { BITS = 31, RARE = 1 << 10 /* below, hardly any nonzeros share a position */ };
    const uint64_t all = UINT64_C(1) << BITS;
    uint64_t part = nonzeros / (uint64_t)ranks, none = all, square;
    if (part >= elements)
        return ONE / (uint64_t)ranks;
    while (elements >> 32) {
        elements >>= 1;
        part >>= 1;
    }
    const uint64_t density = (part << BITS) / elements;
    if (density < RARE)
        return ONE;
    square = all - density;
    for (int left = ranks; left; left >>= 1) {
        if (left & 1)
            none = none * square >> BITS;
        square = square * square >> BITS;
    }
    const uint64_t fraction = (all - none) * ONE / (density * (uint64_t)ranks);
    return fraction < ONE ? fraction : ONE;
}

void pici_balance_weigh(struct schedule_balance *balance, const uint64_t nonzeros[BALANCE_RANGES], int ranks)
{
    const uint64_t others = (uint64_t)ranks - 1, n = balance->first[BALANCE_RANGES];
    uint64_t weight[BALANCE_RANGES], most = 0, sum = 0;
    unsigned large = 0;
    for (int i = 0; i < BALANCE_RANGES; i++)
        most = nonzeros[i] > most ? nonzeros[i] : most;
    while (most >> large >> 40)
        large++;
    for (int i = 0; i < BALANCE_RANGES; i++) { /* each nonzero travels once to the owner, and its sum once to each other
                                                * rank */
        const uint64_t elements = balance->first[i + 1] - balance->first[i];
        const uint64_t times = (ONE + others * united(nonzeros[i], elements, ranks)) / (uint64_t)ranks;
        weight[i] = elements ? (nonzeros[i] >> large) * times : 0;
        sum += weight[i];
    }
    for (large = 0; sum >> large >> 31;)
        large++;
    balance->before[0] = 0;
    for (int i = 0; i < BALANCE_RANGES; i++)
        balance->before[i + 1] = balance->before[i] + (weight[i] >> large);
    balance->unit = n / (uint64_t)ranks >= UNIT * UNIT ? UNIT : 1;
}

/* The range that contains an element, or a weight: the last one that begins at or before it. */
static int range_of(const uint64_t begin[BALANCE_RANGES + 1], uint64_t what)
{
    int low = 0, high = BALANCE_RANGES;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (begin[middle] <= what)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* floor(part * whole / of), part <= of < 2^32 */
static uint64_t share(uint64_t part, uint64_t whole, uint64_t of)
{
    return of ? part * (whole / of) + part * (whole % of) / of : 0;
}

uint64_t pici_balance_weight(const struct schedule_balance *balance, uint64_t element)
{
    const int i = range_of(balance->first, element);
    uint64_t part = element - balance->first[i], elements = balance->first[i + 1] - balance->first[i];
    if (element >= balance->first[BALANCE_RANGES])
        return balance->before[BALANCE_RANGES];
    while (elements >> 32) {
        elements >>= 1;
        part >>= 1;
    }
    return balance->before[i] + share(part, balance->before[i + 1] - balance->before[i], elements);
}

uint64_t pici_balance_place(const struct schedule_balance *balance, uint64_t weight)
{
    if (!weight)
        return 0;
    if (weight >= balance->before[BALANCE_RANGES])
        return balance->first[BALANCE_RANGES];
    const int i = range_of(balance->before, weight);
    const uint64_t element =
        balance->first[i] + share(weight - balance->before[i], balance->first[i + 1] - balance->first[i],
                                  balance->before[i + 1] - balance->before[i]);
    return element / balance->unit * balance->unit;
}

int pici_balance_skewed(const struct schedule_balance *balance, int ranks)
{
    const uint64_t n = balance->first[BALANCE_RANGES], sum = balance->before[BALANCE_RANGES];
    for (int i = 0; i < ranks; i++) {
        uint64_t first, count;
        pici_schedule_segment(n, ranks, i, &first, &count);
        const uint64_t weight = pici_balance_weight(balance, first + count) - pici_balance_weight(balance, first);
        if (4 * weight * (uint64_t)ranks > 5 * sum)
            return 1;
    }
    return 0;
}

int pici_balance_coarse(const struct schedule_balance *balance, int ranks)
{
    const uint64_t sum = balance->before[BALANCE_RANGES], half = sum / (2 * (uint64_t)ranks), few = sum / 16;
    for (int i = 0; i < BALANCE_RANGES; i++) {
        const uint64_t weight = balance->before[i + 1] - balance->before[i];
        if (weight > half && weight > few && balance->first[i + 1] - balance->first[i] > balance->unit)
            return 1;
    }
    return 0;
}

void pici_balance_refine(struct schedule_balance *balance)
{
    const uint64_t sum = balance->before[BALANCE_RANGES];
    uint64_t first[BALANCE_RANGES + 1];
    for (uint64_t i = 0; i <= BALANCE_RANGES; i++)
        first[i] = pici_balance_place(balance, sum * i / BALANCE_RANGES);
    for (int i = 0; i <= BALANCE_RANGES; i++)
        balance->first[i] = first[i];
}
