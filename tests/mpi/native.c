/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's own collectives under ours, with permission: which calls are made by them, and that the results are right, in
 * one piece and in several. MPI_Allreduce and its like are counted on their way, by MPI's profiling interface. By
 * tests/mpi/programs.sh, under mpirun.
 *     mpi_native [--quick|--full]     --quick: no calls of many small pieces; --full: as without */
#include <stdlib.h>
#include <string.h>

#include "tests/util/mpi_tally.h"
#include "pici/mpi.h"
#include "transport/mpi_transport.h"

static int calls; /* of MPI's collectives, by the library */

#define INTERPOSED(name) MPI_##name

int INTERPOSED(Allreduce)(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    calls += comm != MPI_COMM_WORLD; /* the tally's */
    return PMPI_Allreduce(send, recv, count, type, op, comm);
}

int INTERPOSED(Reduce_scatter_block)(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm)
{
    calls++;
    return PMPI_Reduce_scatter_block(send, recv, count, type, op, comm);
}

int INTERPOSED(Allgather)(const void *send, int count, MPI_Datatype type, void *recv, int many, MPI_Datatype to,
                          MPI_Comm comm)
{
    calls++;
    return PMPI_Allgather(send, count, type, recv, many, to, comm);
}

/* ---- a call, whose elements are small whole numbers: exact in every type, and in any order */

struct call {
    enum pici_collective kind;
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t count;
    int in_place;
    int made; /* calls of MPI that are due */
};

/* A sum of 17 ranks fits in all types: Open MPI's sums of short integers do not wrap, but stop at the largest. */
static int value(int of, uint64_t i)
{
    return i % 5 ? 0 : (int)((uint64_t)(of % 4 + 1) * (i % 3) % 7);
}

static int is_float(enum pici_dtype t)
{
    return t <= PICI_F8E5M2;
}

/* A small whole number in a type that this test knows by its bits; f16 and bf16 as well. */
static void put(void *at, enum pici_dtype t, int v)
{
    const float f = (float)v;
    const double d = v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t bf16 = (uint16_t)(bits >> 16), f16 = v ? (uint16_t)((bits >> 13) - (112u << 10)) : 0;
    const int64_t n = v;
    if (is_float(t))
        memcpy(at,
               t == PICI_F64   ? (const void *)&d
               : t == PICI_F32 ? (const void *)&f
               : t == PICI_F16 ? (const void *)&f16
                               : (const void *)&bf16,
               pici_dtype_width(t));
    else
        memcpy(at, &n, pici_dtype_width(t)); /* on a little-endian machine */
}

static int result(const struct call *c, uint64_t i)
{
    int v = value(0, i);
    if (c->kind == PICI_ALL_GATHER)
        return value((int)(i / c->count), i % c->count);
    i += c->kind == PICI_REDUCE_SCATTER ? (uint64_t)rank * c->count : 0;
    v = value(0, i);
    for (int r = 1; r < ranks; r++) {
        const int x = value(r, i);
        v = c->op == PICI_MIN ? (x < v ? x : v) : c->op == PICI_MAX ? (x > v ? x : v) : v + x;
    }
    return v;
}

static void check(struct pici_comm *comm, const struct call *c)
{
    const size_t w = pici_dtype_width(c->dtype), all = (size_t)ranks * c->count;
    const uint64_t sends = c->kind == PICI_REDUCE_SCATTER ? all : c->count,
                   receives = c->kind == PICI_ALL_GATHER ? all : c->count;
    uint8_t *send = calloc(all + 1, w), *recv = calloc(all + 1, w), want[8];
    uint8_t *from = send, *to = recv;
    const char *wrong = NULL;
    char what[160];
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    o.native = 1;
    o.format = PICI_DENSE;
    if (c->in_place && c->kind == PICI_REDUCE_SCATTER)
        to = send + (size_t)rank * c->count * w;
    else if (c->in_place)
        from = c->kind == PICI_ALL_GATHER ? recv + (size_t)rank * c->count * w : recv;
    for (uint64_t i = 0; i < sends; i++)
        put(from + i * w, c->dtype, value(rank, i));
    calls = 0;
    const enum pici_status s = c->kind == PICI_ALL_GATHER ? pici_all_gather(from, to, c->count, c->dtype, comm, &o)
                               : c->kind == PICI_REDUCE_SCATTER
                                   ? pici_reduce_scatter(from, to, c->count, c->dtype, c->op, comm, &o)
                                   : pici_all_reduce(from, to, c->count, c->dtype, c->op, comm, &o);
    const int made = calls;
    if (s)
        wrong = pici_comm_error(comm);
    else if (made != c->made)
        wrong = made ? "MPI's collective was called, and not as often as is due" : "MPI's collective was not called";
    for (uint64_t i = 0; i < receives && !wrong; i++) {
        put(want, c->dtype, result(c, i));
        if (memcmp(to + i * w, want, w) != 0)
            wrong = "a wrong result";
    }
    for (uint64_t i = 0; i < sends && !c->in_place && !wrong; i++) {
        put(want, c->dtype, value(rank, i));
        if (memcmp(from + i * w, want, w) != 0)
            wrong = "the send buffer was changed";
    }
    for (uint64_t i = 0; i < all && c->in_place && c->kind == PICI_REDUCE_SCATTER && !wrong; i++) {
        put(want, c->dtype, value(rank, i));
        if (i / c->count != (uint64_t)rank && memcmp(send + i * w, want, w) != 0)
            wrong = "in place, a block of another rank was changed";
    }
    snprintf(what, sizeof what, "collective %d, %s, op %d, count %llu%s, pieces of %d bytes", (int)c->kind,
             pici_dtype_name(c->dtype), (int)c->op, (unsigned long long)c->count, c->in_place ? ", in place" : "",
             pici_mpi_piece);
    expect(wrong, what);
    free(send);
    free(recv);
}

static uint64_t pieces(const struct call *c)
{
    const uint64_t each = pici_dtype_width(c->dtype) * (c->kind == PICI_ALL_REDUCE ? 1 : (uint64_t)ranks);
    const uint64_t n = (uint64_t)pici_mpi_piece / each;
    return n ? (c->count + n - 1) / n : 0;
}

static void calls_with(struct pici_comm *comm, int piece, uint64_t count)
{
    static const enum pici_dtype known[] = {PICI_F32, PICI_F64, PICI_I8,  PICI_U8,  PICI_I16,
                                            PICI_U16, PICI_I32, PICI_U32, PICI_I64, PICI_U64},
                                 unknown[] = {PICI_F16, PICI_BF16};
    const int usual = pici_mpi_piece;
    pici_mpi_piece = piece ? piece : usual;
    for (int kind = PICI_ALL_GATHER; kind <= PICI_ALL_REDUCE; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct call c = {.kind = (enum pici_collective)kind, .count = count, .in_place = in_place};
            for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
                c.dtype = known[i];
                c.op = i % 3 == 0 ? PICI_SUM : i % 3 == 1 ? PICI_MIN : PICI_MAX;
                c.made = ranks > 1 ? (int)pieces(&c) : 0;
                check(comm, &c);
            }
            for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
                c.dtype = unknown[i];
                c.op = PICI_SUM;
                c.made = kind == PICI_ALL_GATHER && ranks > 1 ? (int)pieces(&c) : 0;
                check(comm, &c);
            }
        }
    pici_mpi_piece = usual;
}

/* An average is MPI's sum and our division; of integers it is ours alone. */
static void averages(struct pici_comm *comm)
{
    double send[64], recv[64];
    int32_t n[64], m[64];
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    const char *wrong = NULL;
    o.native = 1;
    o.format = PICI_DENSE;
    for (int i = 0; i < 64; i++) {
        send[i] = rank + i;
        n[i] = rank - i;
    }
    calls = 0;
    enum pici_status s = pici_all_reduce(send, recv, 64, PICI_F64, PICI_AVG, comm, &o);
    wrong = s ? pici_comm_error(comm) : calls != (ranks > 1) ? "not MPI's" : NULL;
    for (int i = 0; i < 64 && !wrong; i++)
        if (recv[i] != (double)(ranks * (ranks - 1) / 2 + ranks * i) / ranks)
            wrong = "a wrong average";
    expect(wrong, "an average of floats");
    calls = 0;
    s = pici_all_reduce(n, m, 64, PICI_I32, PICI_AVG, comm, &o);
    wrong = s ? pici_comm_error(comm) : calls ? "MPI's" : NULL;
    for (int i = 0; i < 64 && !wrong; i++)
        if (m[i] != (ranks * (ranks - 1) / 2 - ranks * i) / ranks)
            wrong = "a wrong average";
    expect(wrong, "an average of integers");
}

int main(int argc, char **argv)
{
    const int quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 2 || (argc == 2 && !quick && strcmp(argv[1], "--full") != 0)) {
        fprintf(stderr, "usage: mpi_native [--quick|--full]\n");
        return 2;
    }
    struct pici_comm *comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD)) {
        printf("FAIL pici_comm_mpi: %s\n", pici_comm_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    calls_with(comm, 0, 501);
    calls_with(comm, 1000, 501);
    if (!quick) {
        calls_with(comm, 8 * ranks, 23); /* an element of each rank at a time */
        calls_with(comm, 7, 23);         /* not even one of the wider types */
    }
    averages(comm);
    pici_comm_free(comm);
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
