/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of plans for neighbourhood all-gathers, and their time by the model, without running them. Prints messages,
 * blocks between nodes, and the time to make the plan. Then it prints predicted times of direct, halving and common
 * neighbours (the best of groups of 2, 4 and 8) by bytes of a contribution.
 *     bench_neighbor [-n RANKS,...] [-p PER_NODE] [-b BYTES,...] [-i INTER] [-a INTRA] [GRAPH]...
 * GRAPH: a density, mooreR, or a Matrix Market file. INTER, INTRA: bytes per second of links. */
#define _POSIX_C_SOURCE 200809L
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench/neighbor.h"

enum { MOST = 16 };

struct numbers {
    int n;
    double at[MOST];
};

static struct numbers read_numbers(const char *text)
{
    struct numbers x = {0, {0}};
    char *end;
    for (; x.n < MOST; text = end + 1) {
        x.at[x.n++] = strtod(text, &end);
        if (*end != ',')
            break;
    }
    return x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* the computation has one thread */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void count_load(void *context, int phase, int from, int to, const int *blocks, int count)
{
    struct neighbor_route *r = context;
    const int inter = pici_schedule_node(r->nodes, from) != pici_schedule_node(r->nodes, to);
    (void)phase;
    (void)blocks;
    r->load[from].messages[0][inter]++;
    r->load[to].messages[1][inter]++;
    r->load[from].blocks[0][inter] += (uint32_t)count;
    r->load[to].blocks[1][inter] += (uint32_t)count;
    r->counts.messages++;
    r->counts.inter_blocks += (uint64_t)(inter ? count : 0);
}

/* Common neighbours as a route that has loads only. */
static struct neighbor_route *common(const struct bench_graph *g, const struct schedule_nodes *nodes, int k)
{
    struct neighbor_route *r = bench_alloc(1, sizeof *r);
    r->load = bench_alloc((size_t)g->n, sizeof *r->load);
    r->ranks = g->n;
    r->nodes = nodes;
    bench_common(g, k, count_load, r);
    return r;
}

static void row(const char *what, int n, int per_node, const struct numbers *bytes, const double bandwidth[2],
                int predict)
{
    struct bench_graph g;
    struct schedule_nodes nodes;
    if (!bench_graph(&g, n, what))
        exit(1);
    bench_even_nodes(&nodes, n, per_node);
    const struct neighbor_graph graph = {n, g.words, g.out, &nodes, NULL};
    const double begin = now();
    struct neighbor_route *halving = pici_neighbor_halving(&graph, 0, 0, 2);
    const double took = now() - begin;
    struct neighbor_route *direct = pici_neighbor_direct(&graph, 0);
    if (!halving || !direct)
        exit(1);
    const struct neighbor_counts *h = &halving->counts, *d = &direct->counts;
    if (!predict) {
        printf("| %s, %d x %d | %llu | %llu | %llu | %llu | %llu | %llu | %.3f |\n", g.name, n, per_node,
               (unsigned long long)h->edges, (unsigned long long)h->messages, (unsigned long long)h->most_messages,
               (unsigned long long)d->inter_blocks, (unsigned long long)h->inter_blocks,
               (unsigned long long)pici_neighbor_least(&graph), took);
    } else {
        struct neighbor_route *best[3];
        for (int i = 0; i < 3; i++)
            best[i] = common(&g, &nodes, 2 << i);
        printf("| %s, %d x %d |", g.name, n, per_node);
        for (int i = 0; i < bytes->n; i++) {
            const double one = bench_seconds(direct, bytes->at[i], 1, bandwidth);
            double least = bench_seconds(best[0], bytes->at[i], best[0]->counts.widest, bandwidth);
            for (int k = 1; k < 3; k++) {
                const double t = bench_seconds(best[k], bytes->at[i], best[k]->counts.widest, bandwidth);
                least = t < least ? t : least;
            }
            printf(" %.3g ms, %.2f, %.2f |", 1e3 * one, one / least,
                   one / bench_seconds(halving, bytes->at[i], h->widest, bandwidth));
        }
        printf("\n");
        for (int i = 0; i < 3; i++)
            pici_neighbor_free(best[i]);
    }
    pici_neighbor_free(halving);
    pici_neighbor_free(direct);
    free(g.out);
    free((void *)(uintptr_t)nodes.begin);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"0.05", "0.1", "0.3", "0.5", "0.7", "moore1", "moore2"};
    struct numbers ranks = read_numbers("64,512,2048"), bytes = read_numbers("32,4096,65536,1048576");
    double bandwidth[2] = {5e9, 12.5e9};
    int per_node = 32;
    for (int c; (c = getopt(argc, argv, "n:p:b:i:a:")) != -1;)
        switch (c) {
        case 'n': ranks = read_numbers(optarg); break;
        case 'p': per_node = atoi(optarg); break;
        case 'b': bytes = read_numbers(optarg); break;
        case 'i': bandwidth[1] = atof(optarg); break;
        case 'a': bandwidth[0] = atof(optarg); break;
        default:
            fprintf(stderr, "usage: bench_neighbor [-n RANKS,...] [-p PER_NODE] [-b BYTES,...] [GRAPH]...\n");
            return 2;
        }
    for (int predict = 0; predict < 2; predict++) {
        if (!predict)
            printf(
                "| graph, ranks x a node | edges | messages: halving | most by a rank | blocks between nodes: direct "
                "| halving | least | seconds to plan |\n|---|---|---|---|---|---|---|---|\n");
        else
            printf("\nPredicted: direct, and how many times as fast common neighbours (best of 2, 4, 8) and halving "
                   "are; links of %g B/s between nodes, %g B/s inside\n\n| graph, ranks x a node |",
                   bandwidth[1], bandwidth[0]);
        for (int i = 0; predict && i < bytes.n; i++)
            printf(" %g B |", bytes.at[i]);
        for (int i = 0; predict && i <= bytes.n; i++)
            printf("%s", i ? "---|" : "\n|---|");
        printf("%s", predict ? "\n" : "");
        for (int i = 0; i < ranks.n; i++)
            for (int j = 0; j < (optind < argc ? argc - optind : 7); j++)
                row(optind < argc ? argv[optind + j] : usual[j], (int)ranks.at[i], per_node, &bytes, bandwidth,
                    predict);
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("\nmemory of this process at the most: %ld KiB\n", used.ru_maxrss);
    return 0;
}
