/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An MPI program without pici calls: neighbourhood all-gathers, one scenario a run. It compares the results with PMPI_
 * functions': whole buffers, including bytes between and behind the slots.
 *   mpirun -n 4 neighbors SCENARIO
 * By tests/mpi/preload.sh. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1500, MOST = 64, ROOM = 1 << 20, UNTOUCHED = 0x5a };

static int rank, ranks, passed, failures, handled;
static unsigned char *in, *got, *want; /* [ROOM] */

static void check(int good, const char *what)
{
    passed += good;
    failures += !good;
    if (!good)
        printf("rank %d: FAIL %s\n", rank, what);
}

/* What a rank contributes: bytes, of which so many of 256 are not zero. */
static void contribution(unsigned char *to, int bytes, int r, int nonzeros)
{
    unsigned x = 12345u + (unsigned)r;
    for (int i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (int)(x >> 24) < nonzeros ? (unsigned char)(x >> 16) : 0;
    }
}

static void fill(int nonzeros)
{
    contribution(in, ROOM, rank, nonzeros);
    memset(got, UNTOUCHED, ROOM);
    memset(want, UNTOUCHED, ROOM);
}

static void same(const char *what)
{
    check(memcmp(got, want, ROOM) == 0, what);
}

static int sources_of(MPI_Comm comm)
{
    int kind, n = 0, out, weighted;
    MPI_Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        MPI_Cartdim_get(comm, &n);
        return 2 * n;
    }
    if (kind == MPI_GRAPH)
        MPI_Graph_neighbors_count(comm, rank, &n);
    else
        MPI_Dist_graph_neighbors_count(comm, &n, &out, &weighted);
    return n;
}

/* ---- topologies */

/* edges[from][to]: how often. Half of them with weights. */
static MPI_Comm graph_of(unsigned char edges[MOST][MOST], int weighted)
{
    int source[MOST * 4], destination[MOST * 4], weight[MOST * 4], in_degree = 0, out_degree = 0;
    MPI_Comm comm;
    for (int r = ranks - 1; r >= 0; r--) /* not in the order of ranks */
        for (int k = 0; k < edges[r][rank]; k++)
            source[in_degree++] = r;
    for (int k = 0; k < 4; k++) /* repeated ones are not neighbours in the list */
        for (int r = 0; r < ranks; r++)
            if (k < edges[rank][r])
                destination[out_degree++] = r;
    for (int i = 0; i < MOST * 4; i++)
        weight[i] = i + 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in_degree, source, weighted ? weight : MPI_UNWEIGHTED, out_degree,
                                   destination, weighted ? weight : MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    return comm;
}

enum { COMPLETE, LOOPS, ISOLATED, RING, TO_ONE, FROM_ONE, RANDOM, GRAPHS };

static MPI_Comm dist_graph(int kind)
{
    unsigned char edges[MOST][MOST] = {{0}};
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            switch (kind) {
            case COMPLETE: edges[a][b] = a != b; break;
            case LOOPS: edges[a][b] = a == b ? 2 : (unsigned char)(1 + (a + b) % 3); break;
            case ISOLATED: edges[a][b] = a != b && a != ranks - 1 && b != ranks - 1; break;
            case RING: edges[a][b] = b == (a + 1) % ranks; break;
            case TO_ONE: edges[a][b] = b == 0 && a != 0; break;
            case FROM_ONE: edges[a][b] = a == 0 && b != 0; break;
            default: edges[a][b] = (unsigned char)((unsigned)(a * 7 + b * 5 + 3) * 2654435761u >> 30); break;
            }
    return graph_of(edges, kind & 1);
}

static MPI_Comm cartesian(int a, int b, int wraps_a, int wraps_b)
{
    MPI_Comm comm;
    MPI_Cart_create(MPI_COMM_WORLD, b ? 2 : 1, (int[]){a, b}, (int[]){wraps_a, wraps_b}, 0, &comm);
    return comm;
}

static MPI_Comm old_graph(void)
{
    int index[MOST], edges[2 * MOST];
    MPI_Comm comm;
    for (int r = 0; r < ranks; r++) {
        index[r] = 2 * (r + 1);
        edges[2 * r] = (r + 1) % ranks;
        edges[2 * r + 1] = (r + ranks - 1) % ranks;
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &comm);
    return comm;
}

/* ---- calls beside MPI's own */

static void gather(MPI_Comm comm, int n, MPI_Datatype type, const char *what)
{
    MPI_Neighbor_allgather(in, n, type, got, n, type, comm);
    PMPI_Neighbor_allgather(in, n, type, want, n, type, comm);
    same(what);
}

static int length_of(int r)
{
    return r % 3 == 2 ? 0 : N + 100 * r;
}

/* Slots in falling order, with gaps, and offsets below 0. Returns how far the
 * buffer's address is from its beginning, in elements. */
static int slots(MPI_Comm comm, int *counts, int *displs)
{
    const int sources = sources_of(comm);
    int source[4 * MOST], destination[4 * MOST], weight[4 * MOST], kind, out = 0, at = 0;
    MPI_Topo_test(comm, &kind);
    if (kind == MPI_DIST_GRAPH) {
        int n, weighted;
        MPI_Dist_graph_neighbors_count(comm, &n, &out, &weighted);
        MPI_Dist_graph_neighbors(comm, sources, source, weight, out, destination, weight);
    } else if (kind == MPI_GRAPH) {
        MPI_Graph_neighbors(comm, rank, sources, source);
    } else {
        for (int d = 0; d < sources / 2; d++)
            MPI_Cart_shift(comm, d, 1, &source[2 * d], &source[2 * d + 1]);
    }
    for (int i = sources - 1; i >= 0; i--) {
        counts[i] = source[i] < 0 ? 7 : length_of(source[i]); /* nobody reads that of MPI_PROC_NULL */
        displs[i] = at - 1000;
        at += counts[i] + 5;
    }
    return 1000;
}

static void gatherv(MPI_Comm comm, MPI_Datatype type, int width, const char *what)
{
    int counts[4 * MOST], displs[4 * MOST];
    const int back = slots(comm, counts, displs) * width;
    MPI_Neighbor_allgatherv(in, length_of(rank), type, got + back, counts, displs, type, comm);
    PMPI_Neighbor_allgatherv(in, length_of(rank), type, want + back, counts, displs, type, comm);
    same(what);
}

static void all_types(MPI_Comm comm, const char *what)
{
    static const int NONZEROS[] = {0, 5, 256};
    for (int i = 0; i < 3; i++) {
        fill(NONZEROS[i]);
        gather(comm, N, MPI_FLOAT, what);
        gatherv(comm, MPI_FLOAT, 4, what);
    }
    fill(5);
    gather(comm, N, MPI_DOUBLE, what);
    gather(comm, N, MPI_SHORT, what);
    gather(comm, N + 1, MPI_BYTE, what);
    gather(comm, N, MPI_C_DOUBLE_COMPLEX, what);
    gatherv(comm, MPI_DOUBLE, 8, what);
    gatherv(comm, MPI_CHAR, 1, what);
    MPI_Comm_free(&comm);
}

/* 6 calls of the one function and 5 of the other for each topology. */
static void results(void)
{
    static const char *const NAME[] = {"complete", "loops", "isolated", "ring", "to one", "from one", "random"};
    for (int kind = 0; kind < GRAPHS; kind++)
        all_types(dist_graph(kind), NAME[kind]);
    all_types(cartesian(ranks, 0, 0, 0), "a line");
    all_types(cartesian(ranks, 0, 1, 0), "a circle");
    all_types(cartesian(2, ranks / 2, 1, 0), "twice the same neighbour");
    all_types(cartesian(1, ranks, 1, 1), "a dimension of one");
    all_types(cartesian(1, ranks, 0, 0), "a dimension of MPI_PROC_NULL");
    all_types(old_graph(), "a graph");
}

/* Ranks without a role in the call leave out its buffer and count. Open MPI 4.1
 * does nothing then if there is a role of the other kind, so that its result is
 * not what ours is compared with. */
static void absent(void)
{
    MPI_Comm comm = dist_graph(ISOLATED);
    const int n = rank == ranks - 1 ? 0 : N;
    fill(5);
    MPI_Neighbor_allgather(n ? in : NULL, n, MPI_FLOAT, n ? got : NULL, n, MPI_FLOAT, comm);
    PMPI_Neighbor_allgather(n ? in : NULL, n, MPI_FLOAT, n ? want : NULL, n, MPI_FLOAT, comm);
    same("a rank without neighbours");
    MPI_Comm_free(&comm);
    comm = dist_graph(TO_ONE);
    fill(5);
    const int to = rank ? 0 : N, from = rank ? N : 0;
    MPI_Neighbor_allgather(rank ? in : NULL, from, MPI_FLOAT, rank ? NULL : got, to, MPI_FLOAT, comm);
    for (int r = ranks - 1; r > 0 && !rank; r--) /* the order of the sources */
        contribution(want + (ranks - 1 - r) * N * 4, N * 4, r, 5);
    same("ranks that only send, or only receive");
    MPI_Comm_free(&comm);
}

/* ---- datatypes */

static MPI_Datatype spaced(int kind)
{
    MPI_Datatype a, b;
    if (kind)
        MPI_Type_indexed(3, (int[]){1, 1, 2}, (int[]){6, 0, 2}, MPI_FLOAT, &a);
    else
        MPI_Type_vector(4, 1, 2, MPI_FLOAT, &a);
    MPI_Type_create_resized(a, 0, 9 * sizeof(float), &b);
    MPI_Type_free(&a);
    MPI_Type_commit(&b);
    return b;
}

static void types(void)
{
    MPI_Comm comm[] = {dist_graph(LOOPS), cartesian(2, ranks / 2, 0, 1)};
    MPI_Datatype one = spaced(rank & 1), other = spaced(!(rank & 1)), mixed, piece, at;
    int counts[4 * MOST], displs[4 * MOST];
    MPI_Aint address;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_SHORT, MPI_DOUBLE}, &mixed);
    MPI_Type_commit(&mixed);
    for (int k = 0; k < 2; k++) {
        fill(5);
        MPI_Neighbor_allgather(in, N / 4, one, got, N / 4, other, comm[k]);
        PMPI_Neighbor_allgather(in, N / 4, one, want, N / 4, other, comm[k]);
        same("derived types");
        fill(5);
        MPI_Neighbor_allgather(in, N, MPI_FLOAT, got, N / 4, other, comm[k]);
        PMPI_Neighbor_allgather(in, N, MPI_FLOAT, want, N / 4, other, comm[k]);
        same("received as a derived type");
        fill(5);
        gather(comm[k], N, mixed, "several basic types");
        gather(comm[k], N, MPI_LONG_DOUBLE, "a type without a dtype");
        gather(comm[k], N, MPI_FLOAT_INT, "pairs");
        fill(5);
        const int back = slots(comm[k], counts, displs) * 9 * (int)sizeof(float);
        MPI_Neighbor_allgatherv(in, length_of(rank), one, got + back, counts, displs, other, comm[k]);
        PMPI_Neighbor_allgatherv(in, length_of(rank), one, want + back, counts, displs, other, comm[k]);
        same("derived types with counts");
        fill(5);
        for (int b = 0; b < 2; b++) { /* addresses are part of the type */
            MPI_Get_address(b ? want : got, &address);
            MPI_Type_create_hindexed(1, (int[]){N}, &address, MPI_FLOAT, &piece);
            MPI_Type_create_resized(piece, 0, N * sizeof(float), &at);
            MPI_Type_free(&piece);
            MPI_Type_commit(&at);
            (b ? PMPI_Neighbor_allgather : MPI_Neighbor_allgather)(in, N, MPI_FLOAT, MPI_BOTTOM, 1, at, comm[k]);
            MPI_Type_free(&at);
        }
        same("absolute addresses");
        MPI_Comm_free(&comm[k]);
    }
    /* Of two pairs of ranks each has a type of its own. */
    unsigned char edges[MOST][MOST] = {{0}};
    for (int r = 0; r + 1 < ranks; r += 2)
        edges[r][r + 1] = edges[r + 1][r] = 1;
    comm[0] = graph_of(edges, 0);
    const MPI_Datatype own = rank & 2 ? MPI_DOUBLE : MPI_SHORT;
    for (int i = 0; i < 4; i++)
        counts[i] = N - 1, displs[i] = 3; /* shorts that are no whole number of doubles */
    fill(5);
    MPI_Neighbor_allgatherv(in, N - 1, own, got, counts, displs, own, comm[0]);
    PMPI_Neighbor_allgatherv(in, N - 1, own, want, counts, displs, own, comm[0]);
    same("edges of different types");
    MPI_Comm_free(&comm[0]);
    MPI_Type_free(&one);
    MPI_Type_free(&other);
    MPI_Type_free(&mixed);
}

static void large(void)
{
#if MPI_VERSION >= 4
    MPI_Comm comm = dist_graph(LOOPS);
    MPI_Count counts[4 * MOST];
    MPI_Aint displs[4 * MOST];
    fill(5);
    for (int i = 0; i < 4 * MOST; i++)
        counts[i] = N, displs[i] = (MPI_Aint)i * (N + 3);
    MPI_Neighbor_allgather_c(in, N, MPI_FLOAT, got, N, MPI_FLOAT, comm);
    PMPI_Neighbor_allgather_c(in, N, MPI_FLOAT, want, N, MPI_FLOAT, comm);
    same("MPI_Neighbor_allgather_c");
    MPI_Neighbor_allgatherv_c(in, N, MPI_FLOAT, got, counts, displs, MPI_FLOAT, comm);
    PMPI_Neighbor_allgatherv_c(in, N, MPI_FLOAT, want, counts, displs, MPI_FLOAT, comm);
    same("MPI_Neighbor_allgatherv_c");
    MPI_Comm_free(&comm);
#else
    printf("skip: this MPI has no functions with MPI_Count\n");
#endif
}

/* ---- decisions */

static void once(MPI_Comm comm, int n, const char *what)
{
    fill(5);
    gather(comm, n, MPI_FLOAT, what);
    MPI_Comm_free(&comm);
}

/* Ranks in pairs, or with loops alone. */
static MPI_Comm pairs(int loops)
{
    unsigned char edges[MOST][MOST] = {{0}};
    for (int r = 0; r < ranks; r++)
        edges[r][loops ? r : r ^ 1] = 1;
    return graph_of(edges, 0);
}

static void decisions(void)
{
    int counts[MOST], displs[MOST];
    MPI_Comm plain, two, comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &plain);
    MPI_Comm_set_errhandler(plain, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* whose handler Open MPI calls */
    check(MPI_Neighbor_allgather(in, N, MPI_FLOAT, got, N, MPI_FLOAT, plain) != MPI_SUCCESS, "no topology");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&plain);
    once(dist_graph(COMPLETE), 10, "small");
    once(pairs(1), N, "no edges");
    once(pairs(0), rank < 2 ? N : 2 * N, "unequal counts");
    MPI_Cart_create(MPI_COMM_SELF, 1, (int[]){1}, (int[]){1}, 0, &comm);
    once(comm, N, "one rank");
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &two);
    MPI_Cart_create(two, 1, (int[]){2}, (int[]){1}, 0, &comm);
    once(comm, N, "two ranks");
    MPI_Comm_free(&two);

    /* After a small call pauses of 1, 2 and 4 calls, until one is large: the
   * second call is MPI's, and the last ours. */
    static const int LARGE[14] = {0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    comm = dist_graph(COMPLETE);
    for (int i = 0; i < 14; i++) {
        const int n = LARGE[i] ? N : 10;
        for (int k = 0; k < ranks; k++)
            counts[k] = n, displs[k] = k * n;
        fill(5);
        MPI_Neighbor_allgatherv(in, n, MPI_FLOAT, got, counts, displs, MPI_FLOAT, comm);
        PMPI_Neighbor_allgatherv(in, n, MPI_FLOAT, want, counts, displs, MPI_FLOAT, comm);
        same("small calls and large ones");
    }
    MPI_Comm_free(&comm);
}

/* What MPI forbids, and does not notice: of two pairs of ranks only one has
 * enough for a call of ours, in which it waits for the other. */
static void parts(void)
{
    once(pairs(0), rank < 2 ? 10 : N, "small in one part only");
}

/* Rank 1 sends what it overwrites, which MPI leaves open. The call is MPI's. */
static void overlap(void)
{
    MPI_Comm comm = dist_graph(COMPLETE);
    check(MPI_Neighbor_allgather(rank == 1 ? got : in, N, MPI_FLOAT, got, N, MPI_FLOAT, comm) == MPI_SUCCESS,
          "overlapping buffers");
    MPI_Comm_free(&comm);
}

static void thrice(MPI_Comm comm)
{
    for (int i = 0; i < 3; i++) {
        fill(5);
        gather(comm, N, MPI_FLOAT, "one of three");
    }
    MPI_Comm_free(&comm);
}

static void twice(void)
{
    thrice(dist_graph(COMPLETE));
}

static void circle(void)
{
    thrice(cartesian(ranks, 0, 1, 0));
}

/* ---- memory, unpacking: failures of tests/mpi/preload/failing.c on rank 1 */

static int *flag(const char *name)
{
    int *f = dlsym(RTLD_DEFAULT, name);
    if (!f)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return f;
}

/* There is no memory for a call that is longer than the first. MPI makes it, and all that follow. */
static void memory(void)
{
    enum { LONG = 1 << 20 };
    MPI_Comm comm = dist_graph(COMPLETE);
    float *own = calloc(LONG, sizeof *own), *all = calloc((size_t)ranks * LONG, sizeof *all);
    int wrong = 0;
    if (!own || !all)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fill(5);
    gather(comm, N, MPI_FLOAT, "before");
    for (int i = 0; i < LONG; i += 50)
        own[i] = (float)(rank + 1);
    *flag("no_scratch") = rank == 1;
    MPI_Neighbor_allgather(own, LONG, MPI_FLOAT, all, LONG, MPI_FLOAT, comm);
    *flag("no_scratch") = 0;
    for (int k = 0, from = ranks - 1; k < ranks - 1; k++, from--) { /* the sources are in falling order */
        from -= from == rank;
        for (int i = 0; i < LONG; i++)
            wrong += all[(size_t)k * LONG + (size_t)i] != (float)(i % 50 ? 0 : from + 1);
    }
    check(!wrong, "no memory");
    fill(5);
    gather(comm, N, MPI_FLOAT, "after that");
    MPI_Comm_free(&comm);
    free(own);
    free(all);
}

/* ---- communicators, errors, a GPU */

static void communicators(void)
{
    fill(5);
    for (int i = 0; i < 1000; i++) {
        MPI_Comm comm = cartesian(ranks, 0, 1, 0);
        MPI_Neighbor_allgather(in, N, MPI_FLOAT, got, N, MPI_FLOAT, comm);
        if (i % 50 == 0)
            gather(comm, N, MPI_FLOAT, "one of 1000 communicators");
        MPI_Comm_free(&comm);
    }
}

static void handle(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    handled += *error == MPI_ERR_OTHER;
}

/* Rank 1 does not expect what rank 0 sends. The next call is MPI's. */
static void errors(void)
{
    int counts[MOST], displs[MOST];
    MPI_Comm comm = dist_graph(COMPLETE);
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handle, &own);
    MPI_Comm_set_errhandler(comm, own);
    for (int k = 0; k < ranks; k++)
        counts[k] = N, displs[k] = k * N;
    counts[ranks - 2] -= rank == 1 ? 100 : 0; /* the sources are in falling order */
    MPI_Neighbor_allgatherv(in, N, MPI_FLOAT, got, counts, displs, MPI_FLOAT, comm);
    check(handled == (rank == 1), "another count");
    counts[ranks - 2] = N;
    fill(5);
    MPI_Neighbor_allgatherv(in, N, MPI_FLOAT, got, counts, displs, MPI_FLOAT, comm);
    PMPI_Neighbor_allgatherv(in, N, MPI_FLOAT, want, counts, displs, MPI_FLOAT, comm);
    same("the call after an error");
    check(handled == (rank == 1), "no more errors");
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
}

static void unpacking(void)
{
    MPI_Comm comm = dist_graph(COMPLETE);
    MPI_Datatype apart = spaced(0);
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handle, &own);
    MPI_Comm_set_errhandler(comm, own);
    fill(5);
    *flag("no_unpacking") = rank == 1;
    MPI_Neighbor_allgather(in, N, MPI_FLOAT, got, N / 4, apart, comm);
    *flag("no_unpacking") = 0;
    check(handled == (rank == 1), "unpacking");
    MPI_Errhandler_free(&own);
    MPI_Type_free(&apart);
    MPI_Comm_free(&comm);
}

/* An imitation of CUDA's driver, on rank 1, between two calls. */
static void gpu(void)
{
    MPI_Comm comm = dist_graph(COMPLETE);
    for (int i = 0; i < 3; i++) {
        if (i == 1 && rank == 1 && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
            check(0, "no libcuda.so.1 to load");
        fill(5);
        gather(comm, N, MPI_FLOAT, "before and after a GPU");
    }
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } SCENARIO[] = {
        {"results", results},     {"absent", absent},
        {"types", types},         {"large", large},
        {"decisions", decisions}, {"parts", parts},
        {"overlap", overlap},     {"twice", twice},
        {"memory", memory},       {"unpacking", unpacking},
        {"circle", circle},       {"communicators", communicators},
        {"errors", errors},       {"gpu", gpu},
    };
    int all = 0;
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    in = calloc(3, ROOM);
    if (!in || ranks > MOST)
        MPI_Abort(MPI_COMM_WORLD, 1);
    got = in + ROOM;
    want = got + ROOM;
    for (size_t i = 0; i < sizeof SCENARIO / sizeof *SCENARIO; i++)
        if (strcmp(argv[1], SCENARIO[i].name) == 0) {
            SCENARIO[i].run();
            passed++;
        }
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank && !all)
        printf("%d passed\n", passed);
    free(in);
    MPI_Finalize();
    return failures || !passed;
}
