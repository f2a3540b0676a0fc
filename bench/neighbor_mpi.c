/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare neighbourhood all-gathers under mpirun with the MPI's own MPI_Neighbor_allgather, the common-neighbour
 * algorithm (in groups of 2, 4 and 8), and the model. Times are medians of interleaved calls; the slowest rank counts.
 *     neighbor_mpi [-b BYTES] [-z PERCENT,...] [-r TIMES] [-p PER_NODE] [-l LINK] GRAPH...
 * GRAPH: as of bench_neighbor. PER_NODE: consecutive ranks per node; 0: as MPI says. LINK: bytes per second of a
 * node's link, for the model and for AUTO. Each route's time is also shown relative to the time that the busiest
 * node's link needs for its bytes. With -z, PERCENT of our data is zero; MPI's is dense anyway. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <mpi.h>
#include <unistd.h>

#include "bench/neighbor.h"
#include "pici/mpi.h"
#include "pici/neighbor.h"

enum contestant {
    MPI_OWN,
    DIRECT,
    HALVING,
    AUTO,
    COMMON_2,
    COMMON_4,
    COMMON_8,
    CONTESTANTS,
#ifdef PICI_SMPI /* one process has all ranks, and each keeps all contributions for the common-neighbour algorithm */
    RUN = COMMON_2
#else
    RUN = CONTESTANTS
#endif
};
enum { PLANS = 3, MOST_TIMES = 1000 };
static const char *const names[] = {"MPI", "direct", "halving", "auto", "common 2", "common 4", "common 8"};

static int rank, ranks;

struct place {
    int phase, peer, count;
    int blocks[8];
};

/* The messages of this rank in the common-neighbour algorithm. */
struct common {
    struct place *send, *recv;
    int sends, recvs;
    uint8_t *have; /* [ranks][bytes] */
    uint8_t *out, *in;
};

static void note(void *context, int phase, int from, int to, const int *blocks, int count)
{
    struct common *c = context;
    if (from != rank && to != rank)
        return;
    struct place p = {phase, from == rank ? to : from, count, {0}};
    memcpy(p.blocks, blocks, (size_t)count * sizeof *blocks);
    if (from == rank)
        c->send[c->sends++] = p;
    else
        c->recv[c->recvs++] = p;
}

static void run_common(struct common *c, size_t bytes, const uint8_t *own)
{
    MPI_Request *requests = bench_alloc((size_t)(c->sends + c->recvs), sizeof *requests);
    memcpy(c->have + (size_t)rank * bytes, own, bytes);
    for (int phase = 0; phase < 2; phase++) {
        int n = 0;
        uint8_t *in = c->in, *out = c->out;
        for (int i = 0; i < c->recvs; i++)
            if (c->recv[i].phase == phase) {
                const size_t len = (size_t)c->recv[i].count * bytes;
                MPI_Irecv(in, (int)len, MPI_BYTE, c->recv[i].peer, phase, MPI_COMM_WORLD, &requests[n++]);
                in += len;
            }
        for (int i = 0; i < c->sends; i++)
            if (c->send[i].phase == phase) {
                const size_t len = (size_t)c->send[i].count * bytes;
                for (int j = 0; j < c->send[i].count; j++)
                    memcpy(out + (size_t)j * bytes, c->have + (size_t)c->send[i].blocks[j] * bytes, bytes);
                MPI_Isend(out, (int)len, MPI_BYTE, c->send[i].peer, phase, MPI_COMM_WORLD, &requests[n++]);
                out += len;
            }
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        in = c->in;
        for (int i = 0; i < c->recvs; i++)
            for (int j = 0; j < c->recv[i].count && c->recv[i].phase == phase; j++, in += bytes)
                memcpy(c->have + (size_t)c->recv[i].blocks[j] * bytes, in, bytes);
    }
    free(requests);
}

static void open_common(struct common *c, const struct bench_graph *g, int k, size_t bytes)
{
    const size_t most = (size_t)ranks * 2 + 16;
    size_t out = 0, in = 0;
    *c = (struct common){.send = bench_alloc(most, sizeof *c->send), .recv = bench_alloc(most, sizeof *c->recv)};
    bench_common(g, k, note, c);
    for (int i = 0; i < c->sends; i++)
        out += (size_t)c->send[i].count;
    for (int i = 0; i < c->recvs; i++)
        in += (size_t)c->recv[i].count;
    c->have = bench_alloc((size_t)ranks, bytes);
    c->out = bench_alloc(out, bytes);
    c->in = bench_alloc(in, bytes);
}

static void close_common(struct common *c)
{
    free(c->send);
    free(c->recv);
    free(c->have);
    free(c->out);
    free(c->in);
}

/* ---- MPI's own */

struct linear {
    MPI_Comm graph;
    const int *source, *destination;
    int sources, destinations;
};

#ifdef PICI_SMPI /* SimGrid has no graph communicators: send one message per edge, as Open MPI and MPICH do */
static void open_linear(struct linear *l)
{
    l->graph = MPI_COMM_NULL;
}

static void run_linear(const struct linear *l, const float *send, float *recv, size_t n)
{
    MPI_Request *requests = bench_alloc((size_t)(l->sources + l->destinations), sizeof *requests);
    for (int i = 0; i < l->sources; i++)
        MPI_Irecv(recv + (size_t)i * n, (int)n, MPI_FLOAT, l->source[i], 2, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < l->destinations; i++)
        MPI_Isend(send, (int)n, MPI_FLOAT, l->destination[i], 2, MPI_COMM_WORLD, &requests[l->sources + i]);
    MPI_Waitall(l->sources + l->destinations, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

static void close_linear(struct linear *l)
{
    (void)l;
}
#else
static void open_linear(struct linear *l)
{
    int *weights = bench_alloc((size_t)ranks, sizeof *weights);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, l->sources, l->source, weights, l->destinations, l->destination,
                                   weights, MPI_INFO_NULL, 0, &l->graph);
    free(weights);
}

static void run_linear(const struct linear *l, const float *send, float *recv, size_t n)
{
    MPI_Neighbor_allgather(send, (int)n, MPI_FLOAT, recv, (int)n, MPI_FLOAT, l->graph);
}

static void close_linear(struct linear *l)
{
    MPI_Comm_free(&l->graph);
}
#endif

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_size);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

static void require(enum pici_status s, const struct pici_comm *comm)
{
    if (s) {
        fprintf(stderr, "neighbor_mpi: rank %d: %s (%s)\n", rank, pici_strerror(s), pici_comm_error(comm));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

struct setting {
    size_t bytes;
    int times, per_node;
    double link;
};

/* Random elements, `zeros` per cent of them zero. */
static void fill(float *x, size_t n, double zeros, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (double)(seed >> 40) / 0x1p24 * 100 < zeros ? 0 : 1 + (float)(seed >> 44 & 0xffff);
    }
}

static void measure(const char *what, double zeros, const struct setting *o)
{
    struct bench_graph g;
    struct pici_comm *comm = NULL;
    struct pici_neighbor_plan *plan[PLANS] = {NULL};
    struct pici_neighbor_info info[PLANS];
    struct common common[3];
    static double t[CONTESTANTS][MOST_TIMES];
    if (!bench_graph(&g, ranks, what))
        MPI_Abort(MPI_COMM_WORLD, 1);
    int *source = bench_alloc((size_t)ranks, sizeof *source), sources = 0;
    int *destination = bench_alloc((size_t)ranks, sizeof *destination), destinations = 0;
    int *node_of = bench_alloc((size_t)ranks, sizeof *node_of);
    for (int i = 0; i < ranks; i++) {
        node_of[i] = i / (o->per_node ? o->per_node : 1);
        if (bench_edge(&g, i, rank))
            source[sources++] = i;
        if (bench_edge(&g, rank, i))
            destination[destinations++] = i;
    }
    const size_t n = o->bytes / sizeof(float);
    float *send = bench_alloc(n, sizeof *send), *recv = bench_alloc((size_t)sources * n, sizeof *recv);
    float *want = bench_alloc((size_t)sources * n, sizeof *want);
    fill(send, n, zeros, (uint64_t)rank + 1);
    for (int i = 0; i < sources; i++)
        fill(want + (size_t)i * n, n, zeros, (uint64_t)source[i] + 1);
    struct linear linear = {
        .source = source, .destination = destination, .sources = sources, .destinations = destinations};
    open_linear(&linear);
    require(pici_comm_mpi(&comm, MPI_COMM_WORLD), NULL);
    if (o->per_node)
        require(pici_comm_set_nodes(comm, node_of), comm);
    for (int i = 0; i < PLANS; i++) {
        static const enum pici_route route_of[] = {PICI_ROUTE_DIRECT, PICI_ROUTE_HALVING, PICI_ROUTE_AUTO};
        struct pici_neighbor_opts po = PICI_NEIGHBOR_OPTS_INIT;
        po.route = route_of[i];
        po.most_bytes = o->bytes; /* pici_neighbor_plan_info returns AUTO's choice for this */
        info[i] = (struct pici_neighbor_info)PICI_NEIGHBOR_INFO_INIT;
        require(pici_neighbor_plan_create(&plan[i], comm, sources, source, destinations, destination, &po), comm);
        require(pici_neighbor_plan_info(plan[i], &info[i]), comm);
    }
    for (int i = 0; i < RUN - COMMON_2; i++)
        open_common(&common[i], &g, 2 << i, n * sizeof *send);
    uint64_t wire[CONTESTANTS] = {0};
    for (int i = -1; i < o->times; i++) /* the first call warms up */
        for (int who = 0; who < RUN; who++) {
            struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
            struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
            opts.stats = &stats;
            MPI_Barrier(MPI_COMM_WORLD);
            const double begin = MPI_Wtime();
            if (who == MPI_OWN)
                run_linear(&linear, send, recv, n);
            else if (who <= AUTO)
                require(pici_neighbor_all_gather(send, recv, n, PICI_F32, plan[who - DIRECT], &opts), comm);
            else
                run_common(&common[who - COMMON_2], n * sizeof *send, (const uint8_t *)send);
            double took = MPI_Wtime() - begin, slowest;
            MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            wire[who] = stats.inter_bytes;
            for (int k = 0; who > AUTO && k < sources; k++)
                memcpy(recv + (size_t)k * n, common[who - COMMON_2].have + (size_t)source[k] * n * sizeof *send,
                       n * sizeof *send);
            if (sources && memcmp(recv, want, (size_t)sources * n * sizeof *want) != 0) {
                fprintf(stderr, "neighbor_mpi: rank %d: %s gives other bytes\n", rank, names[who]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            memset(recv, 0, (size_t)sources * n * sizeof *recv);
            if (i >= 0)
                t[who][i] = slowest;
        }
    uint64_t *all = bench_alloc((size_t)ranks, sizeof wire); /* bytes that each rank sends to other nodes */
    MPI_Gather(wire, CONTESTANTS, MPI_UINT64_T, all, CONTESTANTS, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        uint64_t busiest[CONTESTANTS] = {0};
        memset(wire, 0, sizeof wire);
        for (int who = 0; who < CONTESTANTS; who++) {
            uint64_t node = 0;
            for (int i = 0; i < ranks; i++) {
                node =
                    i && node_of[i] == node_of[i - 1] ? node + all[i * CONTESTANTS + who] : all[i * CONTESTANTS + who];
                busiest[who] = node > busiest[who] ? node : busiest[who];
                wire[who] += all[i * CONTESTANTS + who];
            }
        }
        struct schedule_nodes nodes;
        bench_even_nodes(&nodes, ranks, o->per_node ? o->per_node : 1);
        const struct neighbor_graph graph_of = {ranks, g.words, g.out, &nodes, NULL};
        struct neighbor_route *route[2] = {pici_neighbor_direct(&graph_of, 0),
                                           pici_neighbor_halving(&graph_of, 0, 0, 2)};
        const double bandwidth[2] = {5e9, o->link}, own = median(t[MPI_OWN], o->times);
        double seconds[CONTESTANTS] = {own};
        for (int who = 1; who < RUN; who++)
            seconds[who] = median(t[who], o->times);
        const double least = fmin(seconds[COMMON_2], fmin(seconds[COMMON_4], seconds[COMMON_8]));
        printf(
            "| %s, %d x %d | %g%% | %.4f | %.2f | %.2f | %.2f | %.2f, %s | %.4f | %.4f | %llu | %llu | %.2f | %.2f |\n",
            g.name, ranks, o->per_node, zeros, own, RUN > COMMON_2 ? own / least : 0, own / seconds[DIRECT],
            own / seconds[HALVING], own / seconds[AUTO], info[2].route == PICI_ROUTE_HALVING ? "halving" : "direct",
            bench_seconds(route[0], (double)o->bytes, info[0].widest, bandwidth),
            bench_seconds(route[1], (double)o->bytes, info[1].widest, bandwidth), (unsigned long long)wire[DIRECT],
            (unsigned long long)wire[HALVING], seconds[DIRECT] * o->link / (double)busiest[DIRECT],
            seconds[HALVING] * o->link / (double)busiest[HALVING]);
        fflush(stdout);
        pici_neighbor_free(route[0]);
        pici_neighbor_free(route[1]);
        free((void *)(uintptr_t)nodes.begin);
    }
    free(all);
    for (int i = 0; i < RUN - COMMON_2; i++)
        close_common(&common[i]);
    for (int i = 0; i < PLANS; i++)
        pici_neighbor_plan_free(plan[i]);
    pici_comm_free(comm);
    close_linear(&linear);
    free(source);
    free(destination);
    free(node_of);
    free(send);
    free(recv);
    free(want);
    free(g.out);
}

int main(int argc, char **argv)
{
    struct setting o = {1 << 20, 7, 0, 25e6};
    char usual[] = "0,95", *zeros = usual;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int c; (c = getopt(argc, argv, "b:z:r:p:l:")) != -1;)
        switch (c) {
        case 'b': o.bytes = strtoull(optarg, NULL, 10); break;
        case 'z': zeros = optarg; break;
        case 'r': o.times = atoi(optarg); break;
        case 'p': o.per_node = atoi(optarg); break;
        case 'l': o.link = atof(optarg); break;
        default: MPI_Finalize(); return 2;
        }
    if (o.times < 1 || o.times > MOST_TIMES || o.bytes < 4 || o.bytes > 1 << 28 || o.per_node < 0 || !(o.link > 0)) {
        fprintf(stderr,
                "usage: neighbor_mpi [-b BYTES] [-z PERCENT,...] [-r TIMES] [-p PER_NODE] [-l LINK] GRAPH...\n");
        MPI_Finalize();
        return 2;
    }
    char link[32];
    snprintf(link, sizeof link, "%.0f", o.link);
    setenv("PICI_INTER_BANDWIDTH", link, 0);
    if (rank == 0)
        printf("| graph, ranks x a node | zeros | MPI, seconds | times as fast: common neighbours | direct | halving | "
               "auto, and its route | model, dense: direct | halving | bytes between nodes: direct | halving | "
               "seconds / busiest link's: direct | halving |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = optind; i < argc; i++)
        for (char *z = zeros, *end;; z = end + 1) {
            measure(argv[i], strtod(z, &end), &o);
            if (*end != ',')
                break;
        }
    MPI_Finalize();
    return 0;
}
