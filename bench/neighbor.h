/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Graphs for the benchmarks of neighbourhood all-gathers, and the common-neighbour algorithm to compare with. */
#ifndef BENCH_NEIGHBOR_H
#define BENCH_NEIGHBOR_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/neighbor.h"
#include "examples/matrix_market.h"

struct bench_graph {
    char name[80];
    int n;
    size_t words;
    uint64_t *out; /* [n][words] bit v of row o: o sends to v */
};

static inline void *bench_alloc(size_t n, size_t each)
{
    void *p = calloc(n ? n : 1, each);
    if (!p) {
        fprintf(stderr, "bench-neighbor: no memory\n");
        exit(1);
    }
    return p;
}

static inline int bench_edge(const struct bench_graph *g, int o, int v)
{
    return g->out[(size_t)o * g->words + (size_t)v / 64] >> v % 64 & 1;
}

static inline void bench_put_edge(struct bench_graph *g, int o, int v)
{
    if (o != v)
        g->out[(size_t)o * g->words + (size_t)v / 64] |= UINT64_C(1) << v % 64;
}

static inline void bench_open_graph(struct bench_graph *g, int n)
{
    g->n = n;
    g->words = pici_neighbor_words(n);
    g->out = bench_alloc((size_t)n * g->words, sizeof *g->out);
}

/* Each edge with this probability. */
static inline void bench_random_graph(struct bench_graph *g, int n, double density)
{
    uint64_t state = 77;
    bench_open_graph(g, n);
    snprintf(g->name, sizeof g->name, "ER %g", density);
    for (int o = 0; o < n; o++)
        for (int v = 0; v < n; v++) {
            uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
            z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
            z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
            z ^= z >> 31;
            if ((double)(z >> 11) * 0x1p-53 < density)
                bench_put_edge(g, o, v);
        }
}

/* The two sides of a torus of n ranks: the most even ones. */
static inline int bench_side(int n)
{
    int side = 1;
    for (int i = 1; i * i <= n; i++)
        side = n % i ? side : i;
    return side;
}

/* All within `radius` in both dimensions of a torus. */
static inline void bench_moore_graph(struct bench_graph *g, int n, int radius)
{
    const int x = n / bench_side(n), y = bench_side(n);
    bench_open_graph(g, n);
    snprintf(g->name, sizeof g->name, "Moore r=%d, %dx%d", radius, y, x);
    for (int o = 0; o < n; o++)
        for (int dy = -radius; dy <= radius; dy++)
            for (int dx = -radius; dx <= radius; dx++)
                bench_put_edge(g, o, (o / x + dy % y + y) % y * x + (o % x + dx % x + x) % x);
}

/* Who needs whose stripe of a dense matrix that is multiplied from the left. 0: the file cannot be read. */
static inline int bench_matrix_graph(struct bench_graph *g, int n, const char *path)
{
    struct matrix x;
    char why[160];
    if (!matrix_read(&x, path, why, sizeof why)) {
        fprintf(stderr, "bench-neighbor: %s: %s\n", path, why);
        return 0;
    }
    const char *slash = strrchr(path, '/');
    bench_open_graph(g, n);
    snprintf(g->name, sizeof g->name, "SpMM %.60s", slash ? slash + 1 : path);
    for (uint32_t r = 0; r < x.rows; r++)
        for (size_t i = x.begin[r]; i < x.begin[r + 1]; i++)
            bench_put_edge(g, (int)((uint64_t)x.column[i] * (uint64_t)n / x.rows),
                           (int)((uint64_t)r * (uint64_t)n / x.rows));
    matrix_free(&x);
    return 1;
}

/* "0.3": random; "moore1": Moore; else a Matrix Market file. */
static inline int bench_graph(struct bench_graph *g, int n, const char *what)
{
    char *end;
    const double density = strtod(what, &end);
    if (end != what && !*end)
        bench_random_graph(g, n, density);
    else if (strncmp(what, "moore", 5) == 0)
        bench_moore_graph(g, n, atoi(what + 5) > 0 ? atoi(what + 5) : 1);
    else
        return bench_matrix_graph(g, n, what);
    return 1;
}

/* The seconds of a call that the library predicts by default. Slices have at least 64 KiB and at most 1 MiB; there are
 * 4 if that is between. widest: blocks of the longest message; if not known, of this position's. */
static inline double bench_seconds(const struct neighbor_route *r, double bytes, uint64_t widest,
                                   const double bandwidth[2])
{
    const double least = 64 << 10, most = 1 << 20, window = 4, all = bytes * (double)(widest ? widest : 1);
    double slices = all / least < window ? all / least : window;
    slices = slices < all / most ? all / most : slices;
    return pici_neighbor_seconds(r, bytes, slices < 1 ? 1 : slices, bandwidth);
}

static inline void bench_even_nodes(struct schedule_nodes *nodes, int n, int per_node)
{
    int *begin = bench_alloc((size_t)n + 2, sizeof *begin);
    nodes->nodes = 0;
    for (int at = 0; at < n; at += per_node)
        begin[nodes->nodes++] = at;
    begin[nodes->nodes] = n;
    nodes->begin = begin;
}

/* ---- common neighbours
 *
 * Groups of k consecutive ranks. In phase 0 the members of a group send each other their blocks. In phase 1 a rank
 * outside of the group that needs blocks of several members gets all of them from one member, in turn. A block that no
 * other member's receiver needs goes directly. */

/* Called for each message: from, to, and the first of `count` blocks in `blocks`. */
typedef void bench_message(void *context, int phase, int from, int to, const int *blocks, int count);

static inline void bench_common(const struct bench_graph *g, int k, bench_message *tell, void *context)
{
    int *blocks = bench_alloc((size_t)k, sizeof *blocks);
    for (int first = 0; first < g->n; first += k) {
        const int end = first + k < g->n ? first + k : g->n;
        for (int a = first; a < end; a++)
            for (int b = first; b < end; b++)
                if (a != b)
                    tell(context, 0, a, b, &a, 1);
        int turn = 0;
        for (int v = 0; v < g->n; v++) {
            int n = 0;
            if (v >= first && v < end)
                continue;
            for (int o = first; o < end; o++)
                if (bench_edge(g, o, v))
                    blocks[n++] = o;
            if (n == 1)
                tell(context, 1, blocks[0], v, blocks, 1);
            else if (n)
                tell(context, 1, first + turn++ % (end - first), v, blocks, n);
        }
    }
    free(blocks);
}

#endif
