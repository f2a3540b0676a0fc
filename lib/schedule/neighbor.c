/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Distance halving: the plan of all virtual ranks. */
#include "schedule/neighbor.h"

#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1 };

struct planner {
    const struct neighbor_graph *graph;
    struct neighbor_route *route;
    int virtual_rank, leaf, gain;
    int halvings;             /* the depth of the deepest cut */
    int *node_of, *region_of; /* [ranks] */
    uint64_t *seen;           /* [ranks][words] bit v of row h: there is a message from h to v in the last step */
    struct neighbor_entries sent, received;
    size_t debts, pairs; /* room in the next arrays */
    uint64_t *owes,
        *owes_anyway; /* [debts] for each holder, a row of bits: the virtual ranks of `target` that it owes blocks, for
                       * holders in `from` and in `target` itself */
    uint16_t *weight; /* [pairs] of a virtual rank and an agent */
    uint32_t *order;  /* [pairs] by falling weight */
    int *agent;       /* [ranks] */
    int *origins;     /* [ranks] */
    uint64_t *passed; /* [ranks] blocks of the message to the agent so far */
    int failed;       /* no memory */
};

/* A run of virtual ranks: [low, high). */
struct range {
    int low, high;
};

static int size_of(struct range range)
{
    return range.high - range.low;
}

static int has(struct range range, int virtual_rank)
{
    return virtual_rank >= range.low && virtual_rank < range.high;
}

static const uint64_t *row(const struct planner *planner, int owner)
{
    return planner->graph->rows + (size_t)owner * planner->graph->words;
}

/* The words of a row that contain bits of a range, and the mask of the range's bits in such a word. */
static size_t first_word(struct range range)
{
    return (size_t)range.low / 64;
}

static size_t words_of(struct range range)
{
    return (size_t)(range.high - 1) / 64 - first_word(range) + 1;
}

static uint64_t mask(struct range range, size_t word)
{
    uint64_t bits = ~UINT64_C(0);
    if (word == (size_t)range.low / 64)
        bits &= ~UINT64_C(0) << range.low % 64;
    if (word == (size_t)(range.high - 1) / 64)
        bits &= ~UINT64_C(0) >> (63 - (range.high - 1) % 64);
    return bits;
}

static int lowest_bit(uint64_t bits)
{
#if defined __GNUC__
    return __builtin_ctzll(bits);
#else
    int n = 0;
    for (; !(bits & 1); bits >>= 1)
        n++;
    return n;
#endif
}

static unsigned count_bits(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* ---- messages */

/* Add a message's block to the hash of the plan. */
static void hash_add(struct planner *planner, uint64_t block)
{
    uint64_t *hash = &planner->route->counts.hash;
    *hash = (*hash ^ block) * UINT64_C(0x9e3779b97f4a7c15);
    *hash ^= *hash >> 29;
}

/* Pass a block from one virtual rank to another. first: it is the first block of its message. */
static void pass(struct planner *planner, int step, int from, int target, int block, int first)
{
    struct neighbor_counts *counts = &planner->route->counts;
    const int inter = planner->node_of[from] != planner->node_of[target];
    struct neighbor_load *sender = &planner->route->load[from], *receiver = &planner->route->load[target];
    counts->blocks++;
    counts->inter_blocks += (uint64_t)inter;
    sender->blocks[0][inter]++;
    receiver->blocks[1][inter]++;
    if (inter) {
        int part = step < NEIGHBOR_PARTS - 1 ? step : NEIGHBOR_PARTS - 2;
        if (step == NEIGHBOR_LAST_STEP)
            part = NEIGHBOR_PARTS - 1;
        uint32_t(*node)[2] = planner->route->part + part * planner->graph->nodes->nodes;
        node[planner->node_of[from]][0]++;
        node[planner->node_of[target]][1]++;
    }
    const int another = !inter && planner->region_of[from] != planner->region_of[target];
    counts->region_blocks += (uint64_t)another;
    if (first) {
        counts->messages++;
        counts->inter_messages += (uint64_t)inter;
        counts->region_messages += (uint64_t)another;
        sender->messages[0][inter]++;
        receiver->messages[1][inter]++;
    }
    hash_add(planner, (uint64_t)(unsigned)step << 48 ^ (uint64_t)(unsigned)from << 32 ^
                          (uint64_t)(unsigned)target << 16 ^ (uint64_t)(unsigned)block);
    if (from == planner->virtual_rank)
        pici_neighbor_entry(&planner->sent, step, target, block);
    if (target == planner->virtual_rank)
        pici_neighbor_entry(&planner->received, step, from, block);
}

/* In the last step, pass a block from its holder to its destinations in a range, except the holder. */
static void finish(struct planner *planner, int holder, int block, struct range range)
{
    const uint64_t *destinations = row(planner, block);
    uint64_t *seen_row = planner->seen + (size_t)holder * planner->graph->words;
    for (size_t i = 0, word = first_word(range); i < words_of(range); i++, word++)
        for (uint64_t remaining = destinations[word] & mask(range, word); remaining; remaining &= remaining - 1) {
            const int destination = (int)(64 * word) + lowest_bit(remaining);
            const uint64_t bit = UINT64_C(1) << destination % 64;
            if (destination == holder || destination == block)
                continue;
            pass(planner, NEIGHBOR_LAST_STEP, holder, destination, block, !(seen_row[word] & bit));
            seen_row[word] |= bit;
        }
}

static int owes_into(const struct planner *planner, int block, struct range range)
{
    const uint64_t *destinations = row(planner, block);
    for (size_t i = 0, word = first_word(range); i < words_of(range); i++, word++)
        if (destinations[word] & mask(range, word))
            return 1;
    return 0;
}

/* ---- matching */

/* Make room for two halves. */
static int grow(struct planner *planner, struct range from, struct range target)
{
    const size_t most = (size_t)(size_of(from) > size_of(target) ? size_of(from) : size_of(target));
    const size_t words = words_of(from) > words_of(target) ? words_of(from) : words_of(target);
    if (most * words > planner->debts) {
        free(planner->owes);
        free(planner->owes_anyway);
        planner->debts = most * words;
        planner->owes = malloc(planner->debts * sizeof *planner->owes);
        planner->owes_anyway = malloc(planner->debts * sizeof *planner->owes_anyway);
    }
    if (most * most > planner->pairs) {
        free(planner->weight);
        free(planner->order);
        planner->pairs = most * most;
        planner->weight = malloc(planner->pairs * sizeof *planner->weight);
        planner->order = malloc(planner->pairs * sizeof *planner->order);
    }
    return planner->owes && planner->owes_anyway && planner->weight && planner->order;
}

/* Find the virtual ranks of `target` that the holders of each half owe blocks. */
static void find_debts(struct planner *planner, struct range from, struct range target, const int *holder)
{
    const size_t words = words_of(target);
    memset(planner->owes, 0, (size_t)size_of(from) * words * sizeof *planner->owes);
    memset(planner->owes_anyway, 0, (size_t)size_of(target) * words * sizeof *planner->owes_anyway);
    for (int owner = 0; owner < planner->graph->ranks; owner++) {
        if (!has(from, holder[owner]) && !has(target, holder[owner]))
            continue;
        uint64_t *debt = has(from, holder[owner]) ? planner->owes + (size_t)(holder[owner] - from.low) * words
                                                  : planner->owes_anyway + (size_t)(holder[owner] - target.low) * words;
        const uint64_t *destinations = row(planner, owner) + first_word(target);
        for (size_t word = 0; word < words; word++)
            debt[word] |= destinations[word] & mask(target, first_word(target) + word);
    }
    for (int receiver = target.low; receiver < target.high; receiver++)
        planner->owes_anyway[(size_t)(receiver - target.low) * words + (size_t)receiver / 64 - first_word(target)] &=
            ~(UINT64_C(1) << receiver % 64);
}

static unsigned weigh(const struct planner *planner, struct range from, struct range target, int origin, int agent)
{
    const size_t words = words_of(target);
    const uint64_t *owed = planner->owes + (size_t)(origin - from.low) * words;
    const uint64_t *owed_anyway = planner->owes_anyway + (size_t)(agent - target.low) * words;
    unsigned weight = (unsigned)(owed[(size_t)agent / 64 - first_word(target)] >> agent % 64 & 1);
    for (size_t i = 0; i < words; i++)
        weight += count_bits(owed[i] & owed_anyway[i]);
    return weight;
}

/* Match virtual ranks of `from`, the origins, with agents in `target`. Takes pairs by falling weight, then by rising
 * distance, then by rising origin. */
static void match(struct planner *planner, struct range from, struct range target)
{
    const int most = size_of(from) > size_of(target) ? size_of(from) : size_of(target);
    const int capacity = (size_of(from) + size_of(target) - 1) / size_of(target);
    const size_t pairs = (size_t)most * (size_t)size_of(from);
    uint32_t begin[NEIGHBOR_HALVED_RANKS + 2] = {
        0}; /* for each weight: where its pairs begin, counted from the heaviest */
    for (size_t pair = 0; pair < pairs; pair++) {
        const int origin = (int)(pair % (size_t)size_of(from)),
                  agent = (int)((pair / (size_t)size_of(from) + (size_t)origin) % (size_t)most);
        const unsigned weight =
            agent < size_of(target) ? weigh(planner, from, target, from.low + origin, target.low + agent) : 0;
        planner->weight[pair] = (uint16_t)(weight >= (unsigned)planner->gain ? weight : 0);
        begin[planner->weight[pair]]++;
    }
    uint32_t matched = 0;
    for (int weight = NEIGHBOR_HALVED_RANKS; weight > 0; weight--) {
        const uint32_t pairs_of_weight = begin[weight];
        begin[weight] = matched;
        matched += pairs_of_weight;
    }
    for (size_t pair = 0; pair < pairs; pair++)
        if (planner->weight[pair])
            planner->order[begin[planner->weight[pair]]++] = (uint32_t)pair;
    for (int i = from.low; i < from.high; i++)
        planner->agent[i] = NOBODY;
    for (int i = target.low; i < target.high; i++)
        planner->origins[i] = 0;
    for (uint32_t i = 0; i < matched; i++) {
        const size_t pair = planner->order[i];
        const int origin = (int)(pair % (size_t)size_of(from)),
                  agent = (int)((pair / (size_t)size_of(from) + (size_t)origin) % (size_t)most);
        if (planner->agent[from.low + origin] != NOBODY || planner->origins[target.low + agent] == capacity)
            continue;
        planner->agent[from.low + origin] = target.low + agent;
        planner->origins[target.low + agent]++;
        planner->route->counts.offloads++;
    }
}

/* ---- halving */

/* Hand over the blocks that `from` owes to `target`, at this depth. before: the holders in both; after: the new holders
 * in `target`. */
static void hand_over(struct planner *planner, int depth, struct range from, struct range target, const int *before,
                      int *after)
{
    find_debts(planner, from, target, before);
    match(planner, from, target);
    for (int i = from.low; i < from.high; i++)
        planner->passed[i] = 0;
    for (int owner = 0; owner < planner->graph->ranks; owner++) {
        const int holder = before[owner];
        if (!has(from, holder) || !owes_into(planner, owner, target))
            continue;
        if (planner->agent[holder] == NOBODY) {
            finish(planner, holder, owner, target);
            continue;
        }
        pass(planner, depth, holder, planner->agent[holder], owner, !planner->passed[holder]);
        planner->passed[holder]++;
        after[owner] = planner->agent[holder];
    }
}

static const struct schedule_nodes *regions_of(const struct neighbor_graph *graph)
{
    return graph->regions ? graph->regions : graph->nodes;
}

/* Where to cut a range: at the node boundary nearest to its middle; inside a node, at the region boundary nearest to
 * it; inside a region, at the middle. */
static int cut(const struct planner *planner, struct range range)
{
    const int one_node = planner->node_of[range.low] == planner->node_of[range.high - 1];
    const struct schedule_nodes *nodes = one_node ? regions_of(planner->graph) : planner->graph->nodes;
    const int low = pici_schedule_node(nodes, range.low), high = pici_schedule_node(nodes, range.high - 1);
    int best = 0, distance = 0;
    for (int node = low + 1; node <= high; node++) {
        const int from_middle = abs(2 * nodes->begin[node] - range.low - range.high);
        if (node == low + 1 || from_middle < distance) {
            best = nodes->begin[node];
            distance = from_middle;
        }
    }
    return low < high ? best : range.low + size_of(range) / 2;
}

static int is_leaf(const struct planner *planner, struct range range)
{
    if (size_of(range) <= (planner->leaf ? planner->leaf : 1))
        return 1;
    return !planner->leaf && planner->region_of[range.low] == planner->region_of[range.high - 1];
}

static void halve(struct planner *planner, int depth, struct range range, const int *holder)
{
    const int ranks = planner->graph->ranks;
    if (is_leaf(planner, range)) {
        for (int owner = 0; owner < ranks; owner++)
            if (has(range, holder[owner]))
                finish(planner, holder[owner], owner, range);
        return;
    }
    const int middle = cut(planner, range);
    const struct range low_half = {range.low, middle}, high_half = {middle, range.high};
    int *in_low = malloc(2 * (size_t)ranks * sizeof *in_low);
    if (planner->failed || !in_low || !grow(planner, low_half, high_half)) {
        planner->failed = 1;
        free(in_low);
        return;
    }
    int *in_high = in_low + ranks;
    for (int owner = 0; owner < ranks; owner++) {
        in_low[owner] = has(low_half, holder[owner]) ? holder[owner] : NOBODY;
        in_high[owner] = has(high_half, holder[owner]) ? holder[owner] : NOBODY;
    }
    planner->halvings = depth + 1 > planner->halvings ? depth + 1 : planner->halvings;
    hand_over(planner, depth, low_half, high_half, holder, in_high);
    hand_over(planner, depth, high_half, low_half, holder, in_low);
    halve(planner, depth + 1, low_half, in_low);
    halve(planner, depth + 1, high_half, in_high);
    free(in_low);
}

/* ---- plans */

static uint64_t count_edges(const struct neighbor_graph *graph)
{
    uint64_t edges = 0;
    for (int owner = 0; owner < graph->ranks; owner++) {
        const uint64_t *destinations = graph->rows + (size_t)owner * graph->words;
        for (size_t word = 0; word < graph->words; word++)
            edges += count_bits(destinations[word]);
        edges -= destinations[owner / 64] >> owner % 64 & 1;
    }
    return edges;
}

static void plan_directly(struct planner *planner)
{
    const struct range all = {0, planner->graph->ranks};
    for (int owner = 0; owner < planner->graph->ranks; owner++)
        finish(planner, owner, owner, all);
}

static void plan_by_halves(struct planner *planner)
{
    const size_t ranks = (size_t)planner->graph->ranks;
    int *own = malloc(ranks * sizeof *own);
    planner->agent = malloc(ranks * sizeof *planner->agent);
    planner->origins = malloc(ranks * sizeof *planner->origins);
    planner->passed = malloc(ranks * sizeof *planner->passed);
    if (own && planner->agent && planner->origins && planner->passed) {
        for (int owner = 0; owner < planner->graph->ranks; owner++)
            own[owner] = owner;
        halve(planner, 0, (struct range){0, planner->graph->ranks}, own);
    } else {
        planner->failed = 1;
    }
    free(own);
    free(planner->agent);
    free(planner->origins);
    free(planner->passed);
    free(planner->owes);
    free(planner->owes_anyway);
    free(planner->weight);
    free(planner->order);
}

static struct neighbor_route *plan(struct planner *planner, void (*by)(struct planner *))
{
    const size_t ranks = (size_t)planner->graph->ranks;
    struct neighbor_route *route = planner->route = calloc(1, sizeof *route);
    planner->node_of = malloc(ranks * sizeof *planner->node_of);
    planner->region_of = malloc(ranks * sizeof *planner->region_of);
    planner->seen = calloc(ranks * planner->graph->words, sizeof *planner->seen);
    if (route) {
        route->load = calloc(ranks, sizeof *route->load);
        route->part = calloc((size_t)NEIGHBOR_PARTS * (size_t)planner->graph->nodes->nodes, sizeof *route->part);
    }
    if (route && route->load && route->part && planner->node_of && planner->region_of && planner->seen) {
        for (int i = 0; i < planner->graph->ranks; i++) {
            planner->node_of[i] = pici_schedule_node(planner->graph->nodes, i);
            planner->region_of[i] = pici_schedule_node(regions_of(planner->graph), i);
        }
        route->virtual_rank = planner->virtual_rank;
        route->ranks = planner->graph->ranks;
        route->nodes = planner->graph->nodes;
        by(planner);
        route->steps = planner->halvings + 1;
        route->counts.edges = count_edges(planner->graph);
        for (int i = 0; i < planner->graph->ranks; i++) {
            const uint64_t sent = (uint64_t)route->load[i].messages[0][0] + route->load[i].messages[0][1];
            route->counts.most_messages = sent > route->counts.most_messages ? sent : route->counts.most_messages;
        }
    } else {
        planner->failed = 1;
    }
    free(planner->node_of);
    free(planner->region_of);
    free(planner->seen);
    if (!pici_neighbor_make_lists(planner->failed ? NULL : route, &planner->sent, &planner->received)) {
        pici_neighbor_free(route);
        return NULL;
    }
    return route;
}

struct neighbor_route *pici_neighbor_halving(const struct neighbor_graph *graph, int virtual_rank, int leaf, int gain)
{
    struct planner planner = {.graph = graph, .virtual_rank = virtual_rank, .leaf = leaf, .gain = gain};
    return plan(&planner, plan_by_halves);
}

struct neighbor_route *pici_neighbor_direct(const struct neighbor_graph *graph, int virtual_rank)
{
    struct planner planner = {.graph = graph, .virtual_rank = virtual_rank};
    return plan(&planner, plan_directly);
}

uint64_t pici_neighbor_least(const struct neighbor_graph *graph)
{
    uint64_t least = 0;
    for (int owner = 0; owner < graph->ranks; owner++) {
        const uint64_t *destinations = graph->rows + (size_t)owner * graph->words;
        const int home = pici_schedule_node(graph->nodes, owner);
        for (int node = 0; node < graph->nodes->nodes; node++) {
            const struct range range = {graph->nodes->begin[node], graph->nodes->begin[node + 1]};
            int wanted = 0;
            for (size_t i = 0, word = first_word(range); i < words_of(range); i++, word++)
                wanted |= (destinations[word] & mask(range, word)) != 0;
            least += node != home && wanted;
        }
    }
    return least;
}
