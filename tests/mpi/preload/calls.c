/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An MPI program that knows nothing of pici: collectives whose results it checks, one scenario a run.
 *   mpirun -n 3 calls SCENARIO
 * By tests/mpi/preload.sh, with and without the preloaded library, which also reads what that counted. */
#include "calls.h"

#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>

/* ---- all collectives, for one C type */

#define COLLECTIVES(name, type, of)                                                                                    \
    static void name(MPI_Datatype mpi, MPI_Op op, const char *what)                                                    \
    {                                                                                                                  \
        const int p = ranks, each = N / p;                                                                             \
        type *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);                                             \
        int *counts = zeroed((size_t)p * sizeof *counts), wrong = 0;                                                   \
        for (int i = 0; i < N; i++)                                                                                    \
            in[i] = (type)of(rank, i);                                                                                 \
        MPI_Allreduce(in, out, N, mpi, op, MPI_COMM_WORLD);                                                            \
        for (int i = 0; i < N; i++)                                                                                    \
            wrong += out[i] != (type)reduced(op, of, p, i);                                                            \
        memcpy(out, in, N * sizeof *in);                                                                               \
        MPI_Allreduce(MPI_IN_PLACE, out, N, mpi, op, MPI_COMM_WORLD);                                                  \
        for (int i = 0; i < N; i++)                                                                                    \
            wrong += out[i] != (type)reduced(op, of, p, i);                                                            \
        check(!wrong, what);                                                                                           \
        wrong = 0;                                                                                                     \
        for (int r = 0; r < p; r++)                                                                                    \
            counts[r] = each;                                                                                          \
        for (int how = 0; how < 4; how++) { /* block or not, in place or not */                                        \
            const int in_place = how & 1;                                                                              \
            for (int i = 0; i < N; i++)                                                                                \
                out[i] = in_place ? in[i] : (type)99;                                                                  \
            const void *from = in_place ? MPI_IN_PLACE : in;                                                           \
            if (how & 2)                                                                                               \
                MPI_Reduce_scatter_block(from, out, each, mpi, op, MPI_COMM_WORLD);                                    \
            else                                                                                                       \
                MPI_Reduce_scatter(from, out, counts, mpi, op, MPI_COMM_WORLD);                                        \
            for (int i = 0; i < each; i++)                                                                             \
                wrong += out[i] != (type)reduced(op, of, p, (long)rank * each + i);                                    \
            for (int i = each; i < N; i++) /* as it was */                                                             \
                wrong += out[i] != (in_place ? in[i] : (type)99);                                                      \
        }                                                                                                              \
        check(!wrong, "reduce_scatter");                                                                               \
        wrong = 0;                                                                                                     \
        for (int in_place = 0; in_place < 2; in_place++) {                                                             \
            memset(out, 0, N * sizeof *out);                                                                           \
            memcpy(out + (size_t)rank * (size_t)each, in, (size_t)each * sizeof *in);                                  \
            MPI_Allgather(in_place ? MPI_IN_PLACE : in, each, mpi, out, each, mpi, MPI_COMM_WORLD);                    \
            for (int i = 0; i < each * p; i++)                                                                         \
                wrong += out[i] != (type)of(i / each, i % each);                                                       \
        }                                                                                                              \
        check(!wrong, "allgather");                                                                                    \
        free(in);                                                                                                      \
        free(out);                                                                                                     \
        free(counts);                                                                                                  \
    }

COLLECTIVES(of_float, float, value)
COLLECTIVES(of_double, double, value)
COLLECTIVES(of_char, signed char, value)
COLLECTIVES(of_short, short, value)
COLLECTIVES(of_int, int, value)
COLLECTIVES(of_long, long long, value)
COLLECTIVES(of_uchar, unsigned char, natural)
COLLECTIVES(of_ushort, unsigned short, natural)
COLLECTIVES(of_uint, unsigned, natural)
COLLECTIVES(of_ulong, unsigned long long, natural)
COLLECTIVES(of_complex, float complex, value)
COLLECTIVES(of_zcomplex, double complex, value)

/* Types without arithmetic, or of integers that are C's in no obvious way. */
static void odd_types(void)
{
    const MPI_Datatype RAW[] = {MPI_BYTE, MPI_CHAR, MPI_C_BOOL, MPI_WCHAR, MPI_LOGICAL, MPI_C_DOUBLE_COMPLEX};
    const int each = N / ranks;
    unsigned char *in = zeroed(N * 16), *out = zeroed(N * 16), *want = zeroed(N * 16);
    MPI_Aint *a = zeroed(N * sizeof *a), *b = zeroed(N * sizeof *b);
    int wrong = 0;
    for (size_t t = 0; t < sizeof RAW / sizeof *RAW; t++) {
        int size = 0;
        MPI_Type_size(RAW[t], &size);
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < each * size; i++)
                want[r * each * size + i] = (unsigned char)value(r, i);
        memcpy(in, want + rank * each * size, (size_t)(each * size));
        memset(out, 9, N * 16);
        MPI_Allgather(in, each, RAW[t], out, each, RAW[t], MPI_COMM_WORLD);
        wrong += memcmp(out, want, (size_t)(ranks * each * size)) != 0;
    }
    check(!wrong, "allgather of types without arithmetic");
    for (int i = 0; i < N; i++)
        a[i] = value(rank, i);
    MPI_Allreduce(a, b, N, MPI_AINT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += b[i] != reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "MPI_AINT");
    free(in);
    free(out);
    free(want);
    free(a);
    free(b);
}

/* What docs/reference/mpi.md says of sums that wrap, of NaN and of -0.0. */
static void corners(void)
{
    float *x = zeroed(N * sizeof *x), *y = zeroed(N * sizeof *y);
    signed char *small = zeroed(N), *sum = zeroed(N);
    int wrong = 0;
    memset(small, 100, N);
    MPI_Allreduce(small, sum, N, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += sum[i] != (signed char)(100 * ranks);
    check(!wrong, "sums of int8 wrap");
    for (int i = 0; i < N; i += 3)
        x[i] = -0.0f;
    MPI_Allreduce(x, y, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += signbit(y[i]) != 0;
    check(!wrong, "a sum is never -0.0");
    for (int i = 0; i < N; i++)
        x[i] = i % 7 == 0 && rank == 1 ? NAN : (i + rank) % 2 ? -0.0f : 0.0f;
    for (int least = 0; least < 2; least++) {
        MPI_Allreduce(x, y, N, MPI_FLOAT, least ? MPI_MIN : MPI_MAX, MPI_COMM_WORLD);
        for (int i = 0; i < N; i++)
            wrong += i % 7 == 0 ? !isnan(y[i]) : y[i] != 0 || (signbit(y[i]) != 0) != least;
    }
    check(!wrong, "minima and maxima of NaN and -0.0");
    free(x);
    free(y);
    free(small);
    free(sum);
}

static void results(void)
{
    const MPI_Op OP[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    for (int i = 0; i < 3; i++) {
        of_float(MPI_FLOAT, OP[i], "float");
        of_double(MPI_DOUBLE, OP[i], "double");
        of_char(MPI_INT8_T, OP[i], "int8");
        of_short(MPI_SHORT, OP[i], "short");
        of_int(MPI_INT, OP[i], "int");
        of_long(MPI_LONG_LONG, OP[i], "long long");
        of_uchar(MPI_UNSIGNED_CHAR, OP[i], "unsigned char");
        of_ushort(MPI_UINT16_T, OP[i], "uint16");
        of_uint(MPI_UNSIGNED, OP[i], "unsigned");
        of_ulong(MPI_UINT64_T, OP[i], "uint64");
    }
    of_complex(MPI_C_FLOAT_COMPLEX, MPI_SUM, "complex");
    of_zcomplex(MPI_C_DOUBLE_COMPLEX, MPI_SUM, "double complex");
}

/* ---- functions whose counts are MPI_Count */

static void large(void)
{
#if MPI_VERSION >= 4
    const int each = N / ranks;
    float *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);
    MPI_Count *counts = zeroed((size_t)ranks * sizeof *counts);
    int wrong = 0;
    for (int i = 0; i < N; i++)
        in[i] = (float)value(rank, i);
    for (int r = 0; r < ranks; r++)
        counts[r] = each;
    MPI_Allreduce_c(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "MPI_Allreduce_c");
    for (int block = 0; block < 2; block++) {
        if (block)
            MPI_Reduce_scatter_block_c(in, out, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        else
            MPI_Reduce_scatter_c(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < each; i++)
            wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, rank * each + i);
    }
    check(!wrong, "MPI_Reduce_scatter_c");
    MPI_Allgather_c(in, each, MPI_FLOAT, out, each, MPI_FLOAT, MPI_COMM_WORLD);
    for (int i = 0; i < each * ranks; i++)
        wrong += out[i] != (float)value(i / each, i % each);
    check(!wrong, "MPI_Allgather_c");
    free(in);
    free(out);
    free(counts);
#else
    printf("skip: this MPI has no functions with MPI_Count\n");
#endif
}

/* ---- derived types */

enum { ITEMS = 500, ITEM = 4, SPAN = 12 }; /* an item: 4 floats among 12 */

struct layout {
    MPI_Datatype type;
    int at[ITEM]; /* where an item's elements are, in order */
    int absolute; /* addresses are part of the type */
};

static struct layout layout_of(int kind, float *buffer)
{
    struct layout l = {.at = {0, 3, 6, 9}};
    MPI_Datatype t = MPI_DATATYPE_NULL, u;
    const int disordered[] = {6, 0, 9, 3}, ones[] = {1, 1, 1, 1};
    MPI_Aint where;
    switch (kind) {
    case 0: /* float, spaced */ MPI_Type_vector(ITEM, 1, 3, MPI_FLOAT, &t); break;
    case 1: /* in another order than in memory */
        MPI_Type_indexed(ITEM, ones, disordered, MPI_FLOAT, &t);
        memcpy(l.at, disordered, sizeof disordered);
        break;
    case 2: /* a struct of a duplicate and of what does not occur */
    {
        const int lengths[] = {1, 0, 3};
        MPI_Datatype types[3] = {MPI_FLOAT, MPI_DOUBLE, MPI_FLOAT};
        const MPI_Aint at[] = {0, 8, 4};
        MPI_Type_dup(MPI_FLOAT, &types[0]);
        MPI_Type_create_struct(3, lengths, at, types, &t);
        MPI_Type_free(&types[0]);
        memcpy(l.at, (int[]){0, 1, 2, 3}, sizeof l.at);
        break;
    }
    case 3: /* part of an array */
        MPI_Type_create_subarray(2, (int[]){3, 4}, (int[]){2, 2}, (int[]){1, 1}, MPI_ORDER_C, MPI_FLOAT, &t);
        memcpy(l.at, (int[]){5, 6, 9, 10}, sizeof l.at);
        break;
    case 4: /* absolute addresses */
        MPI_Get_address(buffer, &where);
        MPI_Type_create_hindexed(ITEM, ones, (MPI_Aint[]){where, where + 3 * 4, where + 6 * 4, where + 9 * 4},
                                 MPI_FLOAT, &t);
        l.absolute = 1;
        break;
    default: /* spaced by its extent alone */
        MPI_Type_contiguous(ITEM, MPI_FLOAT, &t);
        memcpy(l.at, (int[]){0, 1, 2, 3}, sizeof l.at);
    }
    MPI_Type_create_resized(t, 0, SPAN * sizeof(float), &u);
    MPI_Type_free(&t);
    MPI_Type_commit(&u);
    l.type = u;
    return l;
}

static void fill(float *to, const struct layout *l, int from)
{
    for (int i = 0; i < ITEMS * SPAN; i++)
        to[i] = 77;
    for (int i = 0; i < ITEMS * ITEM; i++)
        to[i / ITEM * SPAN + l->at[i % ITEM]] = (float)value(from, i);
}

static int differs(const float *got, const struct layout *l, int from)
{
    float *want = zeroed(ITEMS * SPAN * sizeof *want);
    fill(want, l, from);
    const int d = memcmp(got, want, ITEMS * SPAN * sizeof *want) != 0;
    free(want);
    return d;
}

static void derived(void)
{
    const size_t block = ITEMS * SPAN;
    float *in = zeroed(block * sizeof *in), *out = zeroed((size_t)ranks * block * sizeof *out);
    for (int kind = 0; kind < 6; kind++) {
        const int other = rank == 1 ? 5 - kind : kind; /* rank 1 has other types, of the same signature */
        struct layout send = layout_of(other, in), recv = layout_of(kind, out);
        fill(in, &send, rank);
        for (size_t i = 0; i < (size_t)ranks * block; i++)
            out[i] = 77;
        MPI_Allgather(send.absolute ? MPI_BOTTOM : (void *)in, ITEMS, send.type,
                      recv.absolute ? MPI_BOTTOM : (void *)out, ITEMS, recv.type, MPI_COMM_WORLD);
        int wrong = 0;
        for (int r = 0; r < ranks; r++)
            wrong += differs(out + (size_t)r * block, &recv, r);
        check(!wrong, "derived type");

        for (size_t i = 0; i < (size_t)ranks * block; i++)
            out[i] = 77;
        fill(out + (size_t)rank * block, &recv, rank);
        MPI_Allgather(MPI_IN_PLACE, -3, MPI_DATATYPE_NULL, recv.absolute ? MPI_BOTTOM : (void *)out, ITEMS, recv.type,
                      MPI_COMM_WORLD);
        for (int r = 0; r < ranks; r++)
            wrong += differs(out + (size_t)r * block, &recv, r);
        check(!wrong, "derived type in place");
        MPI_Type_free(&send.type);
        MPI_Type_free(&recv.type);
    }
    free(in);
    free(out);
}

/* Pairs have the signature of two elements. Ranks other than 1 receive these. */
static void pairs(void)
{
    const int n = 2 * ITEMS * ITEM;
    int *in = zeroed((size_t)n * sizeof *in), *out = zeroed((size_t)ranks * (size_t)n * sizeof *out), wrong = 0;
    for (int i = 0; i < n; i++)
        in[i] = (int)value(rank, i);
    if (rank == 1)
        MPI_Allgather(in, n, MPI_INT, out, n / 2, MPI_2INT, MPI_COMM_WORLD);
    else
        MPI_Allgather(in, n / 2, MPI_2INT, out, n, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks * n; i++)
        wrong += out[i] != (int)value(i / n, i % n);
    check(!wrong, "pairs");
    free(in);
    free(out);
}

/* ---- what is not ours */

static void multiply(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        ((float *)inout)[i] *= ((float *)in)[i];
}

static void decisions(void)
{
    float *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);
    long double *wide_in = zeroed(N * sizeof *wide_in), *wide_out = zeroed(N * sizeof *wide_out);
    int *counts = zeroed((size_t)ranks * sizeof *counts), wrong = 0;
    MPI_Op own;
    MPI_Comm self, half, inter;
    for (int i = 0; i < N; i++) {
        in[i] = (float)value(rank, i);
        wide_in[i] = value(rank, i);
    }
    MPI_Op_create(multiply, 1, &own);
    MPI_Allreduce(in, out, 100, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); /* small: 400 bytes */
    for (int i = 0; i < 100; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD); /* op */
    for (int i = 0; i < N; i++)
        wrong += out[i] != (float)reduced(MPI_PROD, value, ranks, i);
    MPI_Allreduce(in, out, N, MPI_FLOAT, own, MPI_COMM_WORLD); /* op */
    for (int i = 0; i < N; i++)
        wrong += out[i] != (float)reduced(MPI_PROD, value, ranks, i);
    MPI_Allreduce(wide_in, wide_out, N, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD); /* type */
#if defined OPEN_MPI /* MPICH, as Debian builds it, goes on with this */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    wrong += MPI_Allreduce(in, out, N / 2, MPI_C_FLOAT_COMPLEX, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS; /* type */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
#endif
    for (int i = 0; i < N; i++)
        wrong += wide_out[i] != reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "small, op, type");

    struct {
        float value;
        int where;
    } *pairs = zeroed(N * sizeof *pairs), *found = zeroed(N * sizeof *found);
    for (int i = 0; i < N; i++) {
        pairs[i].value = (float)value(rank, i);
        pairs[i].where = rank;
    }
    MPI_Allreduce(pairs, found, N, MPI_FLOAT_INT, MPI_MAXLOC, MPI_COMM_WORLD); /* op */
    for (int i = 0; i < N; i++)
        wrong += found[i].value != (float)reduced(MPI_MAX, value, ranks, i);
    MPI_Allgather(pairs, N / ranks, MPI_FLOAT_INT, found, N / ranks, MPI_FLOAT_INT, MPI_COMM_WORLD); /* type */
    for (int i = 0; i < N / ranks * ranks; i++)
        wrong += found[i].where != i / (N / ranks);
    check(!wrong, "pairs");

    for (int r = 0; r < ranks; r++)
        counts[r] = N / ranks / 2 + r;
    MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); /* unequal counts */
    for (int i = 0, first = N / ranks / 2 * rank + rank * (rank - 1) / 2; i < counts[rank]; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, first + i);
    check(!wrong, "unequal counts");

    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &self);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, self); /* one rank */
    check(!memcmp(in, out, N * sizeof *in), "one rank");
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 5, &inter);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, inter); /* intercommunicator: the sum of the other group */
    for (int i = 0; i < N; i++) {
        const int all = reduced(MPI_SUM, value, ranks, i);
        wrong += out[i] != (float)(rank > 0 ? value(0, i) : all - value(0, i));
    }
    check(!wrong, "intercommunicator");
    MPI_Bcast(out, 4, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(in, out, 0, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); /* small: nothing */

    MPI_Op_free(&own);
    MPI_Comm_free(&self);
    MPI_Comm_free(&half);
    MPI_Comm_free(&inter);
    free(in);
    free(out);
    free(wide_in);
    free(wide_out);
    free(pairs);
    free(found);
    free(counts);
}

/* ---- what is never ours, once each; with counts of the other kind and persistent too, where MPI has that */

static void start(MPI_Request *q)
{
    MPI_Start(q);
    MPI_Wait(q, MPI_STATUS_IGNORE);
    MPI_Request_free(q);
}

#define NEVER_OURS(x, Count, Place)                                                                                    \
    static void never_ours##x(MPI_Comm comm, const float *in, float *out)                                              \
    {                                                                                                                  \
        enum { MOST = 64 };                                                                                            \
        const MPI_Datatype t = MPI_FLOAT;                                                                              \
        MPI_Request q[9];                                                                                              \
        MPI_Status status[9];                                                                                          \
        Count counts[MOST];                                                                                            \
        Place at[MOST];                                                                                                \
        for (int r = 0; r < MOST; r++) {                                                                               \
            counts[r] = 10;                                                                                            \
            at[r] = 10 * r;                                                                                            \
        }                                                                                                              \
        MPI_Bcast##x(out, 10, t, 0, comm);                                                                             \
        MPI_Reduce##x(in, out, 10, t, MPI_SUM, 0, comm);                                                               \
        MPI_Allgatherv##x(in, 10, t, out, counts, at, t, comm);                                                        \
        MPI_Ibcast##x(out, 10, t, 0, comm, &q[0]);                                                                     \
        MPI_Ireduce##x(in, out + 100, 10, t, MPI_SUM, 0, comm, &q[1]);                                                 \
        MPI_Iallreduce##x(in, out + 200, 10, t, MPI_SUM, comm, &q[2]);                                                 \
        MPI_Ireduce_scatter##x(in, out + 300, counts, t, MPI_SUM, comm, &q[3]);                                        \
        MPI_Ireduce_scatter_block##x(in, out + 400, 10, t, MPI_SUM, comm, &q[4]);                                      \
        MPI_Iallgather##x(in, 10, t, out + 500, 10, t, comm, &q[5]);                                                   \
        MPI_Iallgatherv##x(in, 10, t, out + 1200, counts, at, t, comm, &q[6]);                                         \
        MPI_Ineighbor_allgather##x(in, 10, t, out + 1900, 10, t, comm, &q[7]);                                         \
        MPI_Ineighbor_allgatherv##x(in, 10, t, out + 2000, counts, at, t, comm, &q[8]);                                \
        check(MPI_Waitall(9, q, status) == MPI_SUCCESS && out[200] == (float)ranks &&                                  \
                  out[1200 + 10 * ranks - 1] == 1 && out[2019] == 1,                                                   \
              "nonblocking" #x);                                                                                       \
    }
NEVER_OURS(, int, int)

#if MPI_VERSION >= 4
NEVER_OURS(_c, MPI_Count, MPI_Aint)

#define PERSISTENT(x, Count, Place)                                                                                    \
    static void persistent##x(MPI_Comm comm, const float *in, float *out)                                              \
    {                                                                                                                  \
        enum { MOST = 64 };                                                                                            \
        const MPI_Datatype t = MPI_FLOAT;                                                                              \
        MPI_Request q[9];                                                                                              \
        Count counts[MOST];                                                                                            \
        Place at[MOST];                                                                                                \
        for (int r = 0; r < MOST; r++) {                                                                               \
            counts[r] = 10;                                                                                            \
            at[r] = 10 * r;                                                                                            \
        }                                                                                                              \
        MPI_Bcast_init##x(out, 10, t, 0, comm, MPI_INFO_NULL, &q[0]);                                                  \
        MPI_Reduce_init##x(in, out, 10, t, MPI_SUM, 0, comm, MPI_INFO_NULL, &q[1]);                                    \
        MPI_Allreduce_init##x(in, out + 200, 10, t, MPI_SUM, comm, MPI_INFO_NULL, &q[2]);                              \
        MPI_Reduce_scatter_init##x(in, out, counts, t, MPI_SUM, comm, MPI_INFO_NULL, &q[3]);                           \
        MPI_Reduce_scatter_block_init##x(in, out, 10, t, MPI_SUM, comm, MPI_INFO_NULL, &q[4]);                         \
        MPI_Allgather_init##x(in, 10, t, out, 10, t, comm, MPI_INFO_NULL, &q[5]);                                      \
        MPI_Allgatherv_init##x(in, 10, t, out, counts, at, t, comm, MPI_INFO_NULL, &q[6]);                             \
        MPI_Neighbor_allgather_init##x(in, 10, t, out, 10, t, comm, MPI_INFO_NULL, &q[7]);                             \
        MPI_Neighbor_allgatherv_init##x(in, 10, t, out, counts, at, t, comm, MPI_INFO_NULL, &q[8]);                    \
        out[200] = 0;                                                                                                  \
        for (int i = 0; i < 9; i++)                                                                                    \
            start(&q[i]);                                                                                              \
        check(out[200] == (float)ranks, "persistent" #x);                                                              \
    }
PERSISTENT(, int, int)
PERSISTENT(_c, MPI_Count, MPI_Aint)
#endif

static void never(void)
{
    float in[1000], out[4000] = {0};
    MPI_Comm comm;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, (int[]){1}, 0, &comm);
    for (int i = 0; i < 1000; i++)
        in[i] = 1;
    never_ours(comm, in, out);
#if MPI_VERSION >= 4
    never_ours_c(comm, in, out);
    persistent(comm, in, out);
    persistent_c(comm, in, out);
#else
    (void)start;
#endif
    MPI_Comm_free(&comm);
}

/* ---- communicators */

static int copies;

static int copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in;
    *(void **)out = NULL;
    copies++;
    *flag = 1;
    return MPI_SUCCESS;
}

/* Made, used and freed one after the other, some of them with a communicator of ours; and more of them at a time than
 * ours may be. */
static void communicators(void)
{
    enum { AT_A_TIME = 20 };
    MPI_Comm comm[AT_A_TIME];
    int key;
    MPI_Comm_create_keyval(copied, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL);
    for (int i = 0; i < 1000; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[0]);
        sum_on(comm[0], "one of 1000");
        if (i % 20 == 0)
            sum_on(comm[0], "one of 50 that call twice");
        MPI_Comm_free(&comm[0]);
    }
    for (int i = 0; i < AT_A_TIME; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
    for (int i = 0; i < 2 * AT_A_TIME; i++)
        sum_on(comm[i % AT_A_TIME], "one of 20");
    for (int i = 0; i < AT_A_TIME; i++)
        MPI_Comm_free(&comm[i]);
    check(copies == 1000 + AT_A_TIME, "attributes are copied by the program's own calls alone");
    sum_on(MPI_COMM_WORLD, "first");
    sum_on(MPI_COMM_WORLD, "freed places are used again");
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Comm_free_keyval(&key);
}

/* The second eligible call of a communicator is the first of ours. */
static void twice(void)
{
    sum_on(MPI_COMM_WORLD, "first");
    sum_on(MPI_COMM_WORLD, "second");
    sum_on(MPI_COMM_WORLD, "third");
}

/* Around 131072 bytes, the least that is ours by default. */
static void limits(void)
{
    enum { LEAST = 131072 / sizeof(float) };
    float *in = zeroed(LEAST * sizeof *in), *out = zeroed(LEAST * sizeof *out);
    long wrong = 0;
    for (int i = 0; i < LEAST; i++)
        in[i] = (float)value(rank, i);
    for (int round = 0; round < 4; round++) {
        const int n = LEAST - round % 2;
        memset(out, 0, LEAST * sizeof *out);
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    }
    check(!wrong, "around the least number of bytes");
    free(in);
    free(out);
}

/* ---- threads */

enum { THREADS = 4 };

static void *in_thread(void *comm)
{
    float in[3000], out[3000];
    long wrong = 0;
    for (int i = 0; i < 3000; i++)
        in[i] = (float)value(rank, i);
    for (int round = 0; round < 10; round++) {
        MPI_Allreduce(in, out, 3000, MPI_FLOAT, MPI_SUM, *(MPI_Comm *)comm);
        for (int i = 0; i < 3000; i++)
            wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    }
    return (void *)(intptr_t)wrong;
}

static void threads(void)
{
    MPI_Comm comm[THREADS];
    pthread_t thread[THREADS];
    void *wrong;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[t]);
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&thread[t], NULL, in_thread, &comm[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], &wrong);
        check(!wrong, "a thread's sums");
    }
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comm[t]);
}

int main(int argc, char **argv)
{
    static const struct scenario SCENARIO[] = {
        {"results", results},
        {"odd_types", odd_types},
        {"corners", corners},
        {"large", large},
        {"derived", derived},
        {"pairs", pairs},
        {"decisions", decisions},
        {"never", never},
        {"twice", twice},
        {"communicators", communicators},
        {"limits", limits},
        {"threads", threads},
        {NULL, NULL},
    };
    return run_scenario(argc, argv, SCENARIO);
}
