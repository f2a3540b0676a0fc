/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plans of neighbourhood all-gathers. They are compared with a slow one made from the definition, run with sets of
 * blocks instead of messages, and counted at sizes of thousands of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/neighbor.h"
#include "tests/util/util.h"

enum { MOST = 64, STEPS = 16 };

struct graph {
    int n;
    unsigned char edge[MOST][MOST]; /* from, to; the diagonal is set in places, and means nothing */
    int begin[MOST + 1];
    struct schedule_nodes nodes;
    int region_begin[MOST + 1]; /* parts of nodes */
    struct schedule_nodes regions;
    int leaf, gain;
    const char *name;
    uint64_t seed;
};

static int failures, graphs; /* graphs: checked */

static int fail(const struct graph *g, const char *what, int a, int b)
{
    if (failures++ < 20)
        printf("plain_neighbor_plan: %s seed %llu, %d ranks, %d nodes, %d regions, leaf %d, gain %d: %s (%d, %d)\n",
               g->name, (unsigned long long)g->seed, g->n, g->nodes.nodes, g->regions.nodes, g->leaf, g->gain, what, a,
               b);
    return 0;
}

/* ---- the slow plan */

/* sent[t][a][x][o]: at step t, a sends block o to x. The last step is STEPS. */
static unsigned char sent[STEPS + 1][MOST][MOST][MOST];
static int offloads;

static int wants(const struct graph *g, int o, int v)
{
    return o != v && g->edge[o][v];
}

static int node_at(const struct graph *g, int position)
{
    int node = 0;
    while (g->begin[node + 1] <= position)
        node++;
    return node;
}

static int region_at(const struct graph *g, int position)
{
    int region = 0;
    while (g->region_begin[region + 1] <= position)
        region++;
    return region;
}

static int wants_any(const struct graph *g, int o, int low, int high)
{
    int any = 0;
    for (int v = low; v < high; v++)
        any |= wants(g, o, v);
    return any;
}

static int slow_weight(const struct graph *g, const int *h, int a, int x, int low, int high)
{
    int w = 0;
    for (int v = low; v < high; v++) {
        int owed = 0, anyway = 0;
        for (int o = 0; o < g->n; o++) {
            owed |= h[o] == a && wants(g, o, v);
            anyway |= h[o] == x && v != x && wants(g, o, v);
        }
        w += owed && (anyway || v == x);
    }
    return w;
}

static void slow_side(const struct graph *g, int t, int al, int ah, int bl, int bh, const int *h, int *after)
{
    const int na = ah - al, nb = bh - bl, most = na > nb ? na : nb, capacity = (na + nb - 1) / nb;
    static int w[MOST][MOST];
    int agent[MOST], origins[MOST] = {0};
    for (int a = 0; a < na; a++) {
        agent[a] = -1;
        for (int x = 0; x < nb; x++)
            w[a][x] = slow_weight(g, h, al + a, bl + x, bl, bh);
    }
    for (;;) { /* the best pair that is still possible */
        int best_a = -1, best_x = -1;
        for (int distance = 0; distance < most; distance++)
            for (int a = 0; a < na; a++) {
                const int x = (a + distance) % most;
                if (x < nb && agent[a] < 0 && origins[x] < capacity && w[a][x] >= g->gain &&
                    (best_a < 0 || w[a][x] > w[best_a][best_x])) {
                    best_a = a;
                    best_x = x;
                }
            }
        if (best_a < 0)
            break;
        agent[best_a] = best_x;
        origins[best_x]++;
        offloads++;
    }
    for (int o = 0; o < g->n; o++) {
        if (h[o] < al || h[o] >= ah || !wants_any(g, o, bl, bh))
            continue;
        const int x = agent[h[o] - al];
        if (x >= 0) {
            sent[t][h[o]][bl + x][o] = 1;
            after[o] = bl + x;
        } else {
            for (int v = bl; v < bh; v++)
                if (wants(g, o, v))
                    sent[STEPS][h[o]][v][o] = 1;
        }
    }
}

/* Where a range is cut; 0: it is not. */
static int slow_cut(const struct graph *g, int low, int high)
{
    const int one_node = node_at(g, low) == node_at(g, high - 1);
    const int one_region = region_at(g, low) == region_at(g, high - 1);
    if (high - low <= 1 || (g->leaf ? high - low <= g->leaf : one_region))
        return 0;
    int middle = low + (high - low) / 2;
    for (int cut = low + 1, best = 1 << 30; cut < high && !one_region; cut++) {
        const int distance = abs((cut - low) - (high - cut));
        const int boundary =
            one_node ? region_at(g, cut) != region_at(g, cut - 1) : node_at(g, cut) != node_at(g, cut - 1);
        if (boundary && distance < best) {
            best = distance;
            middle = cut;
        }
    }
    return middle;
}

static int slow_plan(const struct graph *g, int t, int low, int high, const int *h)
{
    const int middle = slow_cut(g, low, high);
    int ha[MOST], hb[MOST];
    if (!middle) {
        for (int o = 0; o < g->n; o++)
            for (int v = low; v < high; v++)
                if (h[o] >= low && h[o] < high && v != h[o] && wants(g, o, v))
                    sent[STEPS][h[o]][v][o] = 1;
        return t;
    }
    for (int o = 0; o < g->n; o++) {
        ha[o] = h[o] >= low && h[o] < middle ? h[o] : -1;
        hb[o] = h[o] >= middle && h[o] < high ? h[o] : -1;
    }
    slow_side(g, t, low, middle, middle, high, h, hb);
    slow_side(g, t, middle, high, low, middle, h, ha);
    const int x = slow_plan(g, t + 1, low, middle, ha), y = slow_plan(g, t + 1, middle, high, hb);
    return x > y ? x : y;
}

/* ---- a plan, run with sets */

static struct neighbor_route *route[MOST];

static const struct neighbor_message *find(const struct neighbor_message *m, int begin, int end, int peer)
{
    for (int i = begin; i < end; i++)
        if (m[i].peer == peer)
            return &m[i];
    return NULL;
}

/* What each rank has before each step, and what is received. */
static int run_plan(const struct graph *g, uint64_t *messages)
{
    static unsigned char has[MOST][MOST], got[MOST][MOST];
    memset(has, 0, sizeof has);
    memset(got, 0, sizeof got);
    for (int r = 0; r < g->n; r++)
        has[r][r] = 1;
    for (int k = 0; k < route[0]->steps; k++) {
        static unsigned char later[MOST][MOST];
        memcpy(later, has, sizeof later);
        for (int r = 0; r < g->n; r++) {
            const struct neighbor_route *from = route[r];
            for (int i = from->send_begin[k]; i < from->send_begin[k + 1]; i++) {
                const struct neighbor_message *m = &from->send[i];
                if (m->peer == r)
                    continue;
                ++*messages;
                const struct neighbor_route *to = route[m->peer];
                const struct neighbor_message *in =
                    find(to->receive, to->receive_begin[k], to->receive_begin[k + 1], r);
                if (!in || in->count != m->count ||
                    memcmp(to->segments + in->first, from->segments + m->first, (size_t)m->count * sizeof(int)) != 0)
                    return fail(g, "sender and receiver differ", r, m->peer);
                for (int j = 0; j < m->count; j++) {
                    const int o = from->segments[m->first + j];
                    if (!has[r][o])
                        return fail(g, "sends a block that it does not have", r, o);
                    if (got[m->peer][o]++ || o == m->peer)
                        return fail(g, "receives a block twice", m->peer, o);
                    later[m->peer][o] = 1;
                }
                if (m->again) {
                    const struct neighbor_message *was = &from->send[from->send_begin[k] + m->again - 1];
                    if (was >= m || was->again || was->count != m->count ||
                        memcmp(from->segments + was->first, from->segments + m->first,
                               (size_t)m->count * sizeof(int)) != 0)
                        return fail(g, "is not the same message again", r, m->peer);
                }
            }
            for (int i = from->receive_begin[k]; i < from->receive_begin[k + 1]; i++) {
                const struct neighbor_route *to = route[from->receive[i].peer];
                if (!find(to->send, to->send_begin[k], to->send_begin[k + 1], r))
                    return fail(g, "expects a message that nobody sends", r, from->receive[i].peer);
            }
        }
        memcpy(has, later, sizeof has);
    }
    for (int r = 0; r < g->n; r++)
        for (int o = 0; o < g->n; o++)
            if (wants(g, o, r) && !got[r][o])
                return fail(g, "an edge is not served", o, r);
    return 1;
}

/* The messages of step t among [low, high), which is halved then. Over the cut, each rank sends at most one and
 * receives at most `capacity`. A block enters a half at most once, and never its owner's half. Then of the halves. */
static int check_halves(const struct graph *g, int t, int low, int high)
{
    const int middle = slow_cut(g, low, high);
    unsigned char entered[2][MOST] = {{0}};
    if (!middle)
        return 1;
    for (int r = low; r < high; r++) {
        const struct neighbor_route *a = route[r];
        const int upper = r >= middle, own = upper ? high - middle : middle - low, other = high - low - own;
        int sends = 0;
        for (int i = a->send_begin[t]; i < a->send_begin[t + 1]; i++) {
            const struct neighbor_message *m = &a->send[i];
            if (m->peer == r)
                continue;
            if (++sends > 1 || m->peer < low || m->peer >= high || (m->peer >= middle) == upper)
                return fail(g, "a rank sends more than one message in a halving step, or not over the cut", r, t);
            for (int j = 0; j < m->count; j++) {
                const int o = a->segments[m->first + j],
                          home = upper ? o < middle && o >= low : o >= middle && o < high;
                if (entered[!upper][o]++ || home)
                    return fail(g, "a block is relayed twice into a range, or home", o, t);
            }
        }
        if (a->receive_begin[t + 1] - a->receive_begin[t] > (other + own - 1) / own)
            return fail(g, "a rank has more origins than its capacity", r, t);
    }
    return check_halves(g, t + 1, low, middle) && check_halves(g, t + 1, middle, high);
}

/* A direct route made of a rank's own lists alone is the one made of the whole graph. */
static int compare_lists(const struct graph *g, int r)
{
    int to[MOST], from[MOST], sends = 0, receives = 0;
    for (int v = 0; v < g->n; v++) {
        if (wants(g, r, v))
            to[sends++] = v;
        if (wants(g, v, r))
            from[receives++] = v;
    }
    const struct neighbor_route *a = route[r];
    struct neighbor_route *b = pici_neighbor_lists(&g->nodes, g->n, r, to, sends, from, receives);
    const int out = a->send_begin[1], in = a->receive_begin[1];
    int same = b && b->steps == 1 && b->send_begin[1] == out && b->receive_begin[1] == in &&
               b->room_blocks == a->room_blocks && b->counts.messages == (uint64_t)sends &&
               memcmp(&b->limits, &a->limits, sizeof a->limits) == 0;
    for (int i = 0; i < out && same; i++)
        same = a->send[i].peer == b->send[i].peer && a->send[i].count == 1 && b->send[i].count == 1 &&
               b->segments[b->send[i].first] == r && a->send[i].again == b->send[i].again;
    for (int i = 0; i < in && same; i++)
        same = a->receive[i].peer == b->receive[i].peer && b->receive[i].count == 1 &&
               b->segments[b->receive[i].first] == b->receive[i].peer;
    pici_neighbor_free(b);
    return same ? 1 : fail(g, "a direct route by lists is another", r, sends);
}

static int count_inter(const struct graph *g, uint64_t *least)
{
    for (int o = 0; o < g->n; o++)
        for (int i = 0; i < g->nodes.nodes; i++)
            *least += i != node_at(g, o) && wants_any(g, o, g->begin[i], g->begin[i + 1]);
    return 1;
}

/* The messages between nodes in each step, and how long steps wait for each other. The first slice takes its steps one
 * after another. With infinitely many slices, only the busiest node's total counts. */
static int compare_nodes(const struct graph *g)
{
    static const double bandwidth[2] = {1e30, 1e9};
    const int nodes = g->nodes.nodes;
    uint32_t all[MOST][2] = {{0}}, busiest = 0, one_slice = 0;
    for (int part = 0; part < NEIGHBOR_PARTS; part++) {
        uint32_t here[MOST][2] = {{0}}, slowest = 0;
        for (int t = 0; t <= STEPS; t++)
            for (int r = 0; r < g->n && part == (t == STEPS ? NEIGHBOR_PARTS - 1 : t); r++)
                for (int x = 0; x < g->n; x++)
                    for (int o = 0; o < g->n && node_at(g, r) != node_at(g, x); o++) {
                        here[node_at(g, r)][0] += sent[t][r][x][o];
                        here[node_at(g, x)][1] += sent[t][r][x][o];
                    }
        for (int i = 0; i < 2 * nodes; i++) {
            const uint32_t blocks = here[i / 2][i % 2];
            if (route[0]->part[part * nodes + i / 2][i % 2] != blocks)
                return fail(g, "blocks between nodes", part, i / 2);
            slowest = blocks > slowest ? blocks : slowest;
            all[i / 2][i % 2] += blocks;
            busiest = all[i / 2][i % 2] > busiest ? all[i / 2][i % 2] : busiest;
        }
        one_slice += slowest;
    }
    const double wait =
        pici_neighbor_seconds(route[0], 1e9, 1, bandwidth) - pici_neighbor_seconds(route[0], 1e9, 1e30, bandwidth);
    if ((uint32_t)(wait + 0.5) != one_slice - busiest)
        return fail(g, "how long steps wait", (int)wait, (int)(one_slice - busiest));
    return 1;
}

/* The messages of the plan against those of the slow one. */
static int compare(const struct graph *g, int steps)
{
    uint64_t messages = 0, blocks = 0, inter = 0, most = 0, region_messages = 0, region_blocks = 0;
    if (route[0]->steps != steps + 1)
        return fail(g, "steps", route[0]->steps, steps + 1);
    for (int r = 0; r < g->n; r++) {
        const struct neighbor_route *a = route[r];
        uint64_t own = 0;
        for (int k = 0; k < a->steps; k++)
            for (int x = 0; x < g->n; x++) {
                const struct neighbor_message *m =
                    x == r ? NULL : find(a->send, a->send_begin[k], a->send_begin[k + 1], x);
                const unsigned char *want = sent[k == steps ? STEPS : k][r][x];
                const int another = node_at(g, r) == node_at(g, x) && region_at(g, r) != region_at(g, x);
                int at = 0;
                for (int o = 0; o < g->n; o++)
                    if (want[o]) {
                        if (!m || at >= m->count || a->segments[m->first + at++] != o)
                            return fail(g, "a block is not sent as it should be", r, o);
                        blocks++;
                        inter += node_at(g, r) != node_at(g, x);
                    }
                if (m && at != m->count)
                    return fail(g, "more blocks than it should send", r, x);
                own += m != NULL;
                region_messages += m && another;
                region_blocks += another ? (uint64_t)at : 0;
            }
        messages += own;
        most = own > most ? own : most;
    }
    if (!compare_nodes(g))
        return 0;
    const struct neighbor_counts *c = &route[0]->counts;
    if (c->messages != messages || c->blocks != blocks || c->inter_blocks != inter || c->most_messages != most)
        return fail(g, "counts", (int)c->messages, (int)messages);
    if (c->region_messages != region_messages || c->region_blocks != region_blocks)
        return fail(g, "counts between regions", (int)c->region_blocks, (int)region_blocks);
    return 1;
}

static struct neighbor_graph rows_of(const struct graph *g, uint64_t *rows)
{
    const size_t words = pici_neighbor_words(g->n);
    memset(rows, 0, (size_t)g->n * words * sizeof *rows);
    for (int o = 0; o < g->n; o++)
        for (int v = 0; v < g->n; v++)
            rows[(size_t)o * words + (size_t)v / 64] |= (uint64_t)g->edge[o][v] << v % 64;
    return (struct neighbor_graph){g->n, words, rows, &g->nodes,
                                   g->regions.nodes == g->nodes.nodes ? NULL : &g->regions};
}

static void free_routes(const struct graph *g)
{
    for (int r = 0; r < g->n; r++)
        pici_neighbor_free(route[r]);
}

/* A plan with other names for the ranks of a node serves the graph with these names. */
static void check_names(const struct graph *g, struct rng *r)
{
    static struct graph renamed;
    struct neighbor_route *old[MOST];
    int names[MOST];
    uint64_t messages = 0;
    for (int i = 0; i < g->n; i++) {
        const int first = g->begin[node_at(g, i)], other = first + (int)rng_below(r, (uint64_t)(i - first + 1));
        names[i] = i;
        names[i] = names[other];
        names[other] = i;
    }
    renamed = *g;
    for (int o = 0; o < g->n; o++)
        for (int v = 0; v < g->n; v++)
            renamed.edge[names[o]][names[v]] = g->edge[o][v];
    memcpy(old, route, sizeof old);
    for (int i = 0; i < g->n; i++) {
        route[names[i]] = old[i];
        pici_neighbor_rename(old[i], names);
        if (old[i]->virtual_rank != names[i])
            fail(g, "a route has another rank", i, names[i]);
    }
    run_plan(&renamed, &messages);
    if (messages != route[0]->counts.messages)
        fail(g, "another number of messages with other names", (int)messages, 0);
}

/* The order by regions has each virtual rank once, in its node; a region is a run of it, in rising order. */
static void check_order(const struct graph *g, struct rng *r)
{
    int region_of[MOST], order[MOST], begin[MOST + 1], seen[MOST] = {0}, at = 0;
    const int kinds = 1 + (int)rng_below(r, 4);
    for (int i = 0; i < g->n; i++)
        region_of[i] = (int)rng_below(r, (uint64_t)kinds) - 1;
    const int regions = pici_neighbor_regions(&g->nodes, region_of, order, begin);
    if (begin[0] || begin[regions] != g->n)
        fail(g, "the order has no beginning or end", begin[0], begin[regions]);
    for (int region = 0; region < regions; region++)
        for (int i = begin[region]; i < begin[region + 1]; i++, at++) {
            const int first = i == begin[region], v = order[i], before = i ? order[i - 1] : -1;
            if (v < 0 || v >= g->n || seen[v]++ || node_at(g, v) != node_at(g, i))
                fail(g, "a virtual rank is not in its node, or there twice", i, v);
            else if (!first && (region_of[v] != region_of[before] || v < before))
                fail(g, "a region is not a run in rising order", i, v);
            for (int j = g->begin[node_at(g, i)]; first && j < v; j++)
                if (region_of[j] == region_of[v] || !seen[j])
                    fail(g, "a region does not begin with its lowest virtual rank, after those before", v, j);
        }
}

static void check(const struct graph *g)
{
    uint64_t rows[MOST], edges = 0, messages = 0, least = 0;
    const struct neighbor_graph graph = rows_of(g, rows);
    int h[MOST];
    for (int o = 0; o < g->n; o++) {
        h[o] = o;
        for (int v = 0; v < g->n; v++)
            edges += (uint64_t)wants(g, o, v);
    }
    memset(sent, 0, sizeof sent);
    offloads = 0;
    const int steps = slow_plan(g, 0, 0, g->n, h);
    for (int r = 0; r < g->n; r++)
        route[r] = pici_neighbor_halving(&graph, r, g->leaf, g->gain);
    const struct neighbor_counts *c = &route[0]->counts;
    for (int r = 1; r < g->n; r++)
        if (memcmp(&route[r]->counts.edges, &c->edges, offsetof(struct neighbor_counts, widest)) != 0 ||
            route[r]->counts.hash != c->hash)
            fail(g, "two ranks made different plans", 0, r);
    if (run_plan(g, &messages) && compare(g, steps) && check_halves(g, 0, 0, g->n) && count_inter(g, &least)) {
        if (c->edges != edges || c->offloads != (uint64_t)offloads || c->messages != messages ||
            pici_neighbor_least(&graph) != least || c->inter_blocks < least)
            fail(g, "edges, offloads, messages or least", (int)c->edges, (int)c->offloads);
        if (c->messages + (uint64_t)(g->gain - 1) * c->offloads > edges)
            fail(g, "more messages than the bound", (int)c->messages, (int)edges);
    }
    struct rng names = {g->seed + 5};
    check_names(g, &names);
    check_order(g, &names);
    free_routes(g);
    messages = 0;
    for (int r = 0; r < g->n; r++)
        route[r] = pici_neighbor_direct(&graph, r);
    if (run_plan(g, &messages) && (messages != edges || route[0]->steps != 1 || route[0]->counts.messages != edges))
        fail(g, "direct: messages are not edges", (int)messages, (int)edges);
    for (int r = 0; r < g->n; r++)
        compare_lists(g, r);
    free_routes(g);
}

/* ---- graphs */

enum kind { ER, MOORE, STAR, REVERSED_STAR, RING, BIPARTITE, POWER_LAW, ONE_HAS_ALL, KINDS };
static const char *const kind_names[] = {"random", "Moore",     "star",      "reversed star",
                                         "ring",   "bipartite", "power law", "one has all edges"};

static void draw_edges(struct graph *g, enum kind kind, struct rng *r, uint32_t density, int radius, int dimensions)
{
    const int n = g->n;
    const int side = dimensions == 1 ? n : dimensions == 2 ? (n >= 36 ? 6 : n >= 9 ? 3 : 1) : (n >= 27 ? 3 : 1);
    g->name = kind_names[kind];
    memset(g->edge, 0, sizeof g->edge);
    for (int o = 0; o < n; o++)
        for (int v = 0; v < n; v++) {
            int edge = 0, a = o, b = v;
            switch (kind) {
            case ER: edge = rng_chance(r, density); break;
            case MOORE:
                edge = 1;
                for (int d = 0; d < dimensions; d++, a /= side, b /= side) {
                    const int apart = abs(a % side - b % side);
                    edge &= apart <= radius || side - apart <= radius;
                }
                edge &= a == b;
                break;
            case STAR: edge = o == n / 2; break;
            case REVERSED_STAR: edge = v == n / 2; break;
            case RING: edge = (o + 1) % n == v || (v + 1) % n == o; break;
            case BIPARTITE: edge = o % 2 != v % 2; break;
            case POWER_LAW: edge = rng_chance(r, 1000000u / (unsigned)(1 + (o < v ? o : v))); break;
            default: edge = o == 1 || v == 1; break;
            }
            g->edge[o][v] = (unsigned char)edge;
        }
    if (rng_chance(r, 200000)) /* an isolated rank */
        for (int v = 0, alone = (int)rng_below(r, (uint64_t)n); v < n; v++)
            g->edge[alone][v] = g->edge[v][alone] = 0;
}

/* One node, a node each, even ones, 1 + the rest, 5 + 3 + 1 again and again, any. */
static void draw_nodes(struct graph *g, struct rng *r)
{
    static const int pattern[] = {5, 3, 1};
    const uint64_t how = rng_below(r, 6);
    const int even = 1 + (int)rng_below(r, 8);
    int i = 0, at = 0;
    g->begin[0] = 0;
    while (at < g->n) {
        int size = how == 0   ? g->n
                   : how == 1 ? 1
                   : how == 2 ? even
                   : how == 3 ? (i ? g->n : 1)
                   : how == 4 ? pattern[i % 3]
                              : 1 + (int)rng_below(r, (uint64_t)g->n);
        at = size < g->n - at ? at + size : g->n;
        g->begin[++i] = at;
    }
    g->nodes = (struct schedule_nodes){i, g->begin};
}

/* Half of the time nodes are regions; else they have up to four each, of any sizes. */
static void draw_regions(struct graph *g, struct rng *r)
{
    const int many = rng_chance(r, 500000);
    int regions = 0;
    for (int node = 0; node < g->nodes.nodes; node++)
        for (int i = g->begin[node]; i < g->begin[node + 1]; i++)
            if (i == g->begin[node] ||
                (many && rng_chance(r, 4000000u / (uint32_t)(g->begin[node + 1] - g->begin[node] + 3))))
                g->region_begin[regions++] = i;
    g->region_begin[regions] = g->n;
    g->regions = (struct schedule_nodes){regions, g->region_begin};
}

static void small_graphs(void)
{
    static const uint32_t densities[] = {0, 50000, 100000, 200000, 300000, 500000, 700000, 1000000};
    static struct graph g;
    const int seeds = test_full() ? 200 : 8;
    for (int seed = 0; seed < seeds; seed++)
        for (int kind = 0; kind < (int)KINDS; kind++)
            for (int density = 0; density < 8; density++) {
                struct rng r = {(uint64_t)(seed * 1000 + kind * 10 + density)};
                g.seed = r.state;
                g.n = seed == 0 && kind == ER ? density + 1 : 1 + (int)rng_below(&r, rng_chance(&r, 500000) ? 64 : 20);
                g.gain = 1 + (int)rng_below(&r, 3);
                g.leaf = rng_chance(&r, 500000) ? 0 : 1 + (int)rng_below(&r, 6);
                if (rng_chance(&r, 100000))
                    g.leaf = g.n;
                draw_edges(&g, (enum kind)kind, &r, densities[density], 1 + density % 2, 1 + density % 3);
                draw_nodes(&g, &r);
                draw_regions(&g, &r);
                check(&g);
                graphs++;
                if (kind != ER && kind != MOORE && kind != POWER_LAW && density == 1)
                    break;
            }
}

/* ---- counts of large graphs, beside those that are known */

#define MOORE_TORUS (-1.0) /* in place of a density: 32 x 64, all eight neighbours */
static const struct known {
    int n, per_node;
    double density;
    double messages, most, inter, slack;
} known[] = {
    {540, 36, 0.1, 0, 0, 0, 0},
    {540, 36, 0.3, 0, 0, 0, 0},
    {540, 36, 0.7, 0, 0, 0, 0},
    {2160, 36, 0.05, 68927, 77, 116753, 0.05},
    {2160, 36, 0.3, 87638, 41, 127440, 0.05},
    {2160, 36, 0.7, 88394, 41, 127440, 0.05},
    {32, 4, 0.5, 190, 9, 221, 0.15},
    {16, 4, 0.7, 79, 5, 48, 0.15},
    {2048, 32, MOORE_TORUS, 8192, 4, 6016, 0},
};

static int is_edge(const struct known *k, struct rng *r, int o, int v)
{
    enum { X = 64, Y = 32 };
    if (k->density != MOORE_TORUS)
        return rng_chance(r, (uint32_t)(k->density * 1e6));
    const int dx = (o % X - v % X + X) % X, dy = (o / X - v / X + Y) % Y;
    return (dx <= 1 || dx == X - 1) && (dy <= 1 || dy == Y - 1);
}

static void large(const struct known *k)
{
    const int n = k->n;
    const size_t words = pici_neighbor_words(n);
    uint64_t *rows = calloc((size_t)n * words, sizeof *rows);
    int *begin = malloc(((size_t)n / (size_t)k->per_node + 2) * sizeof *begin);
    struct schedule_nodes nodes = {0, begin};
    struct rng r = {77};
    for (int at = 0; at < n; at += k->per_node)
        begin[nodes.nodes++] = at;
    begin[nodes.nodes] = n;
    for (int o = 0; o < n; o++)
        for (int v = 0; v < n; v++)
            if (o != v && is_edge(k, &r, o, v))
                rows[(size_t)o * words + (size_t)v / 64] |= UINT64_C(1) << v % 64;
    const struct neighbor_graph graph = {n, words, rows, &nodes, NULL};
    struct neighbor_route *route0 = pici_neighbor_halving(&graph, 0, 0, 2);
    const struct neighbor_counts *c = &route0->counts;
    const uint64_t least = pici_neighbor_least(&graph);
    if (c->messages + c->offloads > c->edges)
        failures += printf("plain_neighbor_plan: %d ranks: more messages than the bound\n", n) > 0;
    if (n >= 540 && k->density >= 0.1 && (double)c->inter_blocks > 1.06 * (double)least)
        failures += printf("plain_neighbor_plan: %d ranks: %llu blocks between nodes, the least is %llu\n", n,
                           (unsigned long long)c->inter_blocks, (unsigned long long)least) > 0;
    const double got[] = {(double)c->messages, (double)c->most_messages, (double)c->inter_blocks},
                 want[] = {k->messages, k->most, k->inter};
    for (int i = 0; i < 3 && k->messages > 0; i++)
        if (got[i] > want[i] * (1 + k->slack) + (i == 1 && k->slack > 0 ? 2 : 0) ||
            (i != 1 && got[i] < want[i] * (1 - k->slack)))
            failures += printf("plain_neighbor_plan: %d ranks, density %g: count %d is %g, not about %g\n", n,
                               k->density, i, got[i], want[i]) > 0;
    if (getenv("PICI_TEST_VERBOSE"))
        printf("%5d x %d, %.2f: edges %llu messages %llu most %llu inter %llu least %llu\n", n, k->per_node, k->density,
               (unsigned long long)c->edges, (unsigned long long)c->messages, (unsigned long long)c->most_messages,
               (unsigned long long)c->inter_blocks, (unsigned long long)least);
    pici_neighbor_free(route0);
    free(rows);
    free(begin);
}

/* Graphs of 2048 ranks by their counts: every rank makes the same plan, within the bounds. */
static void many_large(int times)
{
    enum { N = 2048, WORDS = N / 64 };
    static const uint32_t densities[] = {1000, 10000, 50000, 100000, 300000, 500000, 700000, 1000000};
    static uint64_t rows[N * WORDS];
    static int begin[N + 1];
    for (int i = 0; i < times; i++) {
        struct rng r = {(uint64_t)i + 900};
        struct schedule_nodes nodes = {0, begin};
        const int per_node = 1 + (int)rng_below(&r, 64), gain = 1 + (int)rng_below(&r, 3),
                  other = 1 + (int)rng_below(&r, N - 1);
        for (int at = 0; at < N; at += per_node)
            begin[nodes.nodes++] = at;
        begin[nodes.nodes] = N;
        memset(rows, 0, sizeof rows);
        for (int o = 0; o < N; o++)
            for (int v = 0; v < N; v++)
                rows[o * WORDS + v / 64] |= (uint64_t)rng_chance(&r, densities[i % 8]) << v % 64;
        const struct neighbor_graph graph = {N, WORDS, rows, &nodes, NULL};
        struct neighbor_route *a = pici_neighbor_halving(&graph, 0, 0, gain),
                              *b = pici_neighbor_halving(&graph, other, 0, gain);
        const struct neighbor_counts *c = &a->counts, *d = &b->counts;
        uint64_t messages = 0, blocks = 0;
        for (int p = 0; p < N; p++)
            for (int link = 0; link < 2; link++) {
                messages += a->load[p].messages[1][link];
                blocks += a->load[p].blocks[0][link];
            }
        if (c->hash != d->hash || c->messages != d->messages || c->blocks != d->blocks ||
            c->messages + (uint64_t)(gain - 1) * c->offloads > c->edges ||
            c->inter_blocks < pici_neighbor_least(&graph) || messages != c->messages || blocks != c->blocks)
            failures +=
                printf("plain_neighbor_plan: large graph %d: counts, or rank %d has another plan\n", i, other) > 0;
        pici_neighbor_free(a);
        pici_neighbor_free(b);
    }
    graphs += times;
}

/* Random graphs of 64 ranks of a node in four regions: messages and blocks between regions, by node and by region, and
 * the fewest blocks. The table of docs/reference/neighbor.md. */
static void by_regions(void)
{
    enum { N = 64, NUMBERS = 5 };
    static const uint32_t densities[] = {50000, 100000, 300000, 500000, 700000};
    static const uint64_t want[][NUMBERS] = {{202, 192, 155, 144, 109},
                                             {395, 339, 297, 218, 158},
                                             {1233, 718, 953, 214, 192},
                                             {2021, 921, 1550, 201, 192},
                                             {2806, 1028, 2155, 192, 192}};
    static const int node_begin[] = {0, N}, region_begin[] = {0, 16, 32, 48, N};
    const struct schedule_nodes nodes = {1, node_begin}, regions = {4, region_begin};
    for (int i = 0; i < 5; i++) {
        struct rng r = {77};
        uint64_t rows[N] = {0};
        for (int o = 0; o < N; o++)
            for (int v = 0; v < N; v++)
                if (o != v && rng_chance(&r, densities[i]))
                    rows[o] |= UINT64_C(1) << v;
        const struct neighbor_graph graph = {N, 1, rows, &nodes, &regions}, as_nodes = {N, 1, rows, &regions, NULL};
        struct neighbor_route *direct = pici_neighbor_direct(&graph, 0),
                              *halving = pici_neighbor_halving(&graph, 0, 0, 2);
        const uint64_t got[NUMBERS] = {direct->counts.messages, halving->counts.messages, direct->counts.region_blocks,
                                       halving->counts.region_blocks, pici_neighbor_least(&as_nodes)};
        for (int k = 0; k < NUMBERS; k++)
            if (got[k] != want[i][k])
                failures += printf("plain_neighbor_plan: four regions, graph %d: number %d is %llu, not %llu\n", i, k,
                                   (unsigned long long)got[k], (unsigned long long)want[i][k]) > 0;
        pici_neighbor_free(direct);
        pici_neighbor_free(halving);
    }
    graphs += 5;
}

int main(void)
{
    small_graphs();
    by_regions();
    many_large(test_full() ? 200 : 4);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        large(&known[i]);
    graphs += (int)(sizeof known / sizeof *known);
    printf("%d passed, %d failed\n", failures < graphs ? graphs - failures : 0, failures);
    return failures != 0;
}
