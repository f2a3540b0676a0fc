/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Distance halving: the plan of all positions. */
#include "schedule/neighbor.h"

#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1 };

struct planner {
    const struct neighbor_graph *g;
    struct neighbor_route *route;
    int position, leaf, gain;
    int halvings;   /* the depth of the deepest cut */
    int *node_of;   /* [ranks] */
    uint64_t *seen; /* [ranks][words] bit v of row h: there is a message from h to v in the last step */
    struct neighbor_entries sent, received;
    size_t debts, pairs;          /* room in the next arrays */
    uint64_t *owes, *owes_anyway; /* [debts] rows of bits of one half for each position of a half: what holders in the
                                   * one half owe to it, and holders in it themselves */
    uint16_t *weight;             /* [pairs] of a position and an agent */
    uint32_t *order;              /* [pairs] by falling weight */
    int *agent;                   /* [ranks] */
    int *origins;                 /* [ranks] */
    uint64_t *passed;             /* [ranks] blocks of the message to the agent so far */
    int failed;                   /* no memory */
};

/* A run of positions: [low, high). */
struct range {
    int low, high;
};

static int size_of(struct range r)
{
    return r.high - r.low;
}

static int has(struct range r, int position)
{
    return position >= r.low && position < r.high;
}

static const uint64_t *row(const struct planner *p, int o)
{
    return p->g->out + (size_t)o * p->g->words;
}

/* The words of a row in which a range has bits, and which bits of such a word are the range's. */
static size_t first_word(struct range r)
{
    return (size_t)r.low / 64;
}

static size_t words_of(struct range r)
{
    return (size_t)(r.high - 1) / 64 - first_word(r) + 1;
}

static uint64_t mask(struct range r, size_t word)
{
    uint64_t m = ~UINT64_C(0);
    if (word == (size_t)r.low / 64)
        m &= ~UINT64_C(0) << r.low % 64;
    if (word == (size_t)(r.high - 1) / 64)
        m &= ~UINT64_C(0) >> (63 - (r.high - 1) % 64);
    return m;
}

static int lowest_bit(uint64_t x)
{
#if defined __GNUC__
    return __builtin_ctzll(x);
#else
    int n = 0;
    for (; !(x & 1); x >>= 1)
        n++;
    return n;
#endif
}

static unsigned count_bits(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(x * UINT64_C(0x0101010101010101) >> 56);
}

/* ---- messages */

/* Add a message's block to the hash of the plan. */
static void hash_add(struct planner *p, uint64_t x)
{
    uint64_t *h = &p->route->counts.hash;
    *h = (*h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    *h ^= *h >> 29;
}

/* A block goes from one position to another; first: as the first of its message. */
static void pass(struct planner *p, int step, int from, int to, int block, int first)
{
    struct neighbor_counts *c = &p->route->counts;
    const int inter = p->node_of[from] != p->node_of[to];
    struct neighbor_load *sender = &p->route->load[from], *receiver = &p->route->load[to];
    c->blocks++;
    c->inter_blocks += (uint64_t)inter;
    sender->blocks[0][inter]++;
    receiver->blocks[1][inter]++;
    if (inter) {
        const int part = step < NEIGHBOR_PARTS - 1    ? step
                         : step == NEIGHBOR_LAST_STEP ? NEIGHBOR_PARTS - 1
                                                      : NEIGHBOR_PARTS - 2;
        uint32_t(*node)[2] = p->route->part + part * p->g->nodes->nodes;
        node[p->node_of[from]][0]++;
        node[p->node_of[to]][1]++;
    }
    if (first) {
        c->messages++;
        c->inter_messages += (uint64_t)inter;
        sender->messages[0][inter]++;
        receiver->messages[1][inter]++;
    }
    hash_add(p, (uint64_t)(unsigned)step << 48 ^ (uint64_t)(unsigned)from << 32 ^ (uint64_t)(unsigned)to << 16 ^
                    (uint64_t)(unsigned)block);
    if (from == p->position)
        pici_neighbor_entry(&p->sent, step, to, block);
    if (to == p->position)
        pici_neighbor_entry(&p->received, step, from, block);
}

/* A block goes from its holder to those of its destinations that are in a range, but for the holder, in the last
 * step. */
static void finish(struct planner *p, int holder, int block, struct range r)
{
    const uint64_t *out = row(p, block);
    uint64_t *seen = p->seen + (size_t)holder * p->g->words;
    for (size_t i = 0, w = first_word(r); i < words_of(r); i++, w++)
        for (uint64_t left = out[w] & mask(r, w); left; left &= left - 1) {
            const int to = (int)(64 * w) + lowest_bit(left);
            const uint64_t bit = UINT64_C(1) << to % 64;
            if (to == holder || to == block)
                continue;
            pass(p, NEIGHBOR_LAST_STEP, holder, to, block, !(seen[w] & bit));
            seen[w] |= bit;
        }
}

static int owes_into(const struct planner *p, int block, struct range r)
{
    const uint64_t *out = row(p, block);
    for (size_t i = 0, w = first_word(r); i < words_of(r); i++, w++)
        if (out[w] & mask(r, w))
            return 1;
    return 0;
}

/* ---- matching */

/* Make room for two halves. */
static int grow(struct planner *p, struct range from, struct range to)
{
    const size_t most = (size_t)(size_of(from) > size_of(to) ? size_of(from) : size_of(to));
    const size_t words = words_of(from) > words_of(to) ? words_of(from) : words_of(to);
    if (most * words > p->debts) {
        free(p->owes);
        free(p->owes_anyway);
        p->debts = most * words;
        p->owes = malloc(p->debts * sizeof *p->owes);
        p->owes_anyway = malloc(p->debts * sizeof *p->owes_anyway);
    }
    if (most * most > p->pairs) {
        free(p->weight);
        free(p->order);
        p->pairs = most * most;
        p->weight = malloc(p->pairs * sizeof *p->weight);
        p->order = malloc(p->pairs * sizeof *p->order);
    }
    return p->owes && p->owes_anyway && p->weight && p->order;
}

/* What the holders of each half owe to positions of `to`. */
static void find_debts(struct planner *p, struct range from, struct range to, const int *holder)
{
    const size_t words = words_of(to);
    memset(p->owes, 0, (size_t)size_of(from) * words * sizeof *p->owes);
    memset(p->owes_anyway, 0, (size_t)size_of(to) * words * sizeof *p->owes_anyway);
    for (int o = 0; o < p->g->ranks; o++) {
        if (!has(from, holder[o]) && !has(to, holder[o]))
            continue;
        uint64_t *debt = has(from, holder[o]) ? p->owes + (size_t)(holder[o] - from.low) * words
                                              : p->owes_anyway + (size_t)(holder[o] - to.low) * words;
        const uint64_t *out = row(p, o) + first_word(to);
        for (size_t w = 0; w < words; w++)
            debt[w] |= out[w] & mask(to, first_word(to) + w);
    }
    for (int x = to.low; x < to.high; x++)
        p->owes_anyway[(size_t)(x - to.low) * words + (size_t)x / 64 - first_word(to)] &= ~(UINT64_C(1) << x % 64);
}

static unsigned weigh(const struct planner *p, struct range from, struct range to, int a, int x)
{
    const size_t words = words_of(to);
    const uint64_t *d = p->owes + (size_t)(a - from.low) * words;
    const uint64_t *e = p->owes_anyway + (size_t)(x - to.low) * words;
    unsigned w = (unsigned)(d[(size_t)x / 64 - first_word(to)] >> x % 64 & 1);
    for (size_t i = 0; i < words; i++)
        w += count_bits(d[i] & e[i]);
    return w;
}

/* Give agents in `to` to positions of `from`: pairs by falling weight, then by rising distance, then by rising a. */
static void match(struct planner *p, struct range from, struct range to)
{
    const int most = size_of(from) > size_of(to) ? size_of(from) : size_of(to);
    const int capacity = (size_of(from) + size_of(to) - 1) / size_of(to);
    const size_t pairs = (size_t)most * (size_t)size_of(from);
    uint32_t begin[NEIGHBOR_HALVED_RANKS + 2] = {
        0}; /* of each weight: where its pairs begin, counted from the heaviest */
    for (size_t k = 0; k < pairs; k++) {
        const int a = (int)(k % (size_t)size_of(from)),
                  x = (int)((k / (size_t)size_of(from) + (size_t)a) % (size_t)most);
        const unsigned w = x < size_of(to) ? weigh(p, from, to, from.low + a, to.low + x) : 0;
        p->weight[k] = (uint16_t)(w >= (unsigned)p->gain ? w : 0);
        begin[p->weight[k]]++;
    }
    uint32_t at = 0;
    for (int w = NEIGHBOR_HALVED_RANKS; w > 0; w--) {
        const uint32_t n = begin[w];
        begin[w] = at;
        at += n;
    }
    for (size_t k = 0; k < pairs; k++)
        if (p->weight[k])
            p->order[begin[p->weight[k]]++] = (uint32_t)k;
    for (int i = from.low; i < from.high; i++)
        p->agent[i] = NOBODY;
    for (int i = to.low; i < to.high; i++)
        p->origins[i] = 0;
    for (uint32_t i = 0; i < at; i++) {
        const size_t k = p->order[i];
        const int a = (int)(k % (size_t)size_of(from)),
                  x = (int)((k / (size_t)size_of(from) + (size_t)a) % (size_t)most);
        if (p->agent[from.low + a] != NOBODY || p->origins[to.low + x] == capacity)
            continue;
        p->agent[from.low + a] = to.low + x;
        p->origins[to.low + x]++;
        p->route->counts.offloads++;
    }
}

/* ---- halving */

/* What `from` owes to `to`, at this depth. before: the holders in both; after: those in `to`, from now on. */
static void hand_over(struct planner *p, int depth, struct range from, struct range to, const int *before, int *after)
{
    find_debts(p, from, to, before);
    match(p, from, to);
    for (int i = from.low; i < from.high; i++)
        p->passed[i] = 0;
    for (int o = 0; o < p->g->ranks; o++) {
        const int a = before[o];
        if (!has(from, a) || !owes_into(p, o, to))
            continue;
        if (p->agent[a] == NOBODY) {
            finish(p, a, o, to);
            continue;
        }
        pass(p, depth, a, p->agent[a], o, !p->passed[a]);
        p->passed[a]++;
        after[o] = p->agent[a];
    }
}

/* Where a range is cut: at the boundary of a node that is nearest to its middle, or at the middle. */
static int cut(const struct schedule_nodes *n, struct range r)
{
    const int low = pici_schedule_node(n, r.low), high = pici_schedule_node(n, r.high - 1);
    int best = 0, distance = 0;
    for (int node = low + 1; node <= high; node++) {
        const int d = abs(2 * n->begin[node] - r.low - r.high);
        if (node == low + 1 || d < distance) {
            best = n->begin[node];
            distance = d;
        }
    }
    return low < high ? best : r.low + size_of(r) / 2;
}

static int is_leaf(const struct planner *p, struct range r)
{
    if (size_of(r) <= (p->leaf ? p->leaf : 1))
        return 1;
    return !p->leaf && p->node_of[r.low] == p->node_of[r.high - 1];
}

static void halve(struct planner *p, int depth, struct range r, const int *holder)
{
    const int ranks = p->g->ranks;
    if (is_leaf(p, r)) {
        for (int o = 0; o < ranks; o++)
            if (has(r, holder[o]))
                finish(p, holder[o], o, r);
        return;
    }
    const int middle = cut(p->g->nodes, r);
    const struct range a = {r.low, middle}, b = {middle, r.high};
    int *in_a = malloc(2 * (size_t)ranks * sizeof *in_a);
    if (p->failed || !in_a || !grow(p, a, b)) {
        p->failed = 1;
        free(in_a);
        return;
    }
    int *in_b = in_a + ranks;
    for (int o = 0; o < ranks; o++) {
        in_a[o] = has(a, holder[o]) ? holder[o] : NOBODY;
        in_b[o] = has(b, holder[o]) ? holder[o] : NOBODY;
    }
    p->halvings = depth + 1 > p->halvings ? depth + 1 : p->halvings;
    hand_over(p, depth, a, b, holder, in_b);
    hand_over(p, depth, b, a, holder, in_a);
    halve(p, depth + 1, a, in_a);
    halve(p, depth + 1, b, in_b);
    free(in_a);
}

/* ---- all of it */

static uint64_t count_edges(const struct neighbor_graph *g)
{
    uint64_t edges = 0;
    for (int o = 0; o < g->ranks; o++) {
        const uint64_t *out = g->out + (size_t)o * g->words;
        for (size_t w = 0; w < g->words; w++)
            edges += count_bits(out[w]);
        edges -= out[o / 64] >> o % 64 & 1;
    }
    return edges;
}

static void plan_directly(struct planner *p)
{
    const struct range all = {0, p->g->ranks};
    for (int o = 0; o < p->g->ranks; o++)
        finish(p, o, o, all);
}

static void plan_by_halves(struct planner *p)
{
    const size_t n = (size_t)p->g->ranks;
    int *own = malloc(n * sizeof *own);
    p->agent = malloc(n * sizeof *p->agent);
    p->origins = malloc(n * sizeof *p->origins);
    p->passed = malloc(n * sizeof *p->passed);
    if (own && p->agent && p->origins && p->passed) {
        for (int o = 0; o < p->g->ranks; o++)
            own[o] = o;
        halve(p, 0, (struct range){0, p->g->ranks}, own);
    } else {
        p->failed = 1;
    }
    free(own);
    free(p->agent);
    free(p->origins);
    free(p->passed);
    free(p->owes);
    free(p->owes_anyway);
    free(p->weight);
    free(p->order);
}

static struct neighbor_route *plan(struct planner *p, void (*by)(struct planner *))
{
    const size_t n = (size_t)p->g->ranks;
    struct neighbor_route *route = p->route = calloc(1, sizeof *route);
    p->node_of = malloc(n * sizeof *p->node_of);
    p->seen = calloc(n * p->g->words, sizeof *p->seen);
    if (route) {
        route->load = calloc(n, sizeof *route->load);
        route->part = calloc((size_t)NEIGHBOR_PARTS * (size_t)p->g->nodes->nodes, sizeof *route->part);
    }
    if (route && route->load && route->part && p->node_of && p->seen) {
        for (int i = 0; i < p->g->ranks; i++)
            p->node_of[i] = pici_schedule_node(p->g->nodes, i);
        route->position = p->position;
        route->ranks = p->g->ranks;
        route->nodes = p->g->nodes;
        by(p);
        route->steps = p->halvings + 1;
        route->counts.edges = count_edges(p->g);
        for (int i = 0; i < p->g->ranks; i++) {
            const uint64_t sent = (uint64_t)route->load[i].messages[0][0] + route->load[i].messages[0][1];
            route->counts.most_messages = sent > route->counts.most_messages ? sent : route->counts.most_messages;
        }
    } else {
        p->failed = 1;
    }
    free(p->node_of);
    free(p->seen);
    if (!pici_neighbor_make_lists(p->failed ? NULL : route, &p->sent, &p->received)) {
        pici_neighbor_free(route);
        return NULL;
    }
    return route;
}

struct neighbor_route *pici_neighbor_halving(const struct neighbor_graph *g, int position, int leaf, int gain)
{
    struct planner p = {.g = g, .position = position, .leaf = leaf, .gain = gain};
    return plan(&p, plan_by_halves);
}

struct neighbor_route *pici_neighbor_direct(const struct neighbor_graph *g, int position)
{
    struct planner p = {.g = g, .position = position};
    return plan(&p, plan_directly);
}

uint64_t pici_neighbor_least(const struct neighbor_graph *g)
{
    uint64_t least = 0;
    for (int o = 0; o < g->ranks; o++) {
        const uint64_t *out = g->out + (size_t)o * g->words;
        const int home = pici_schedule_node(g->nodes, o);
        for (int node = 0; node < g->nodes->nodes; node++) {
            const struct range r = {g->nodes->begin[node], g->nodes->begin[node + 1]};
            int wanted = 0;
            for (size_t i = 0, w = first_word(r); i < words_of(r); i++, w++)
                wanted |= (out[w] & mask(r, w)) != 0;
            least += node != home && wanted;
        }
    }
    return least;
}
