/* SPDX-License-Identifier: BSD-3-Clause
 *
 * As calls.c: MPI_Bcast, MPI_Reduce and MPI_Allgatherv.
 *   mpirun -n 3 verbs SCENARIO
 * By tests/mpi/preload.sh, with and without the preloaded library. */
#include "calls.h"

#include <locale.h>
#include <stdint.h>

/* ---- each root, in place or not, and what must stay as it was */

#define REDUCE(name, type, of)                                                                                         \
    static void name(MPI_Datatype mpi, MPI_Op op)                                                                      \
    {                                                                                                                  \
        type *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);                                             \
        int wrong = 0;                                                                                                 \
        for (int i = 0; i < N; i++)                                                                                    \
            in[i] = (type)of(rank, i);                                                                                 \
        for (int root = 0; root < ranks; root++)                                                                       \
            for (int in_place = 0; in_place < 2; in_place++) {                                                         \
                for (int i = 0; i < N; i++)                                                                            \
                    out[i] = in_place && rank == root ? in[i] : (type)99;                                              \
                /* MPI says nothing of what ranks other than the root pass to receive in */                            \
                MPI_Reduce(in_place &&rank == root ? MPI_IN_PLACE : in, rank == root || in_place ? out : NULL, N, mpi, \
                           op, root, MPI_COMM_WORLD);                                                                  \
                for (int i = 0; i < N; i++)                                                                            \
                    wrong += out[i] != (rank == root ? (type)reduced(op, of, ranks, i) : (type)99) ||                  \
                             in[i] != (type)of(rank, i);                                                               \
            }                                                                                                          \
        check(!wrong, "MPI_Reduce of " #type);                                                                         \
        free(in);                                                                                                      \
        free(out);                                                                                                     \
    }
REDUCE(reduce_float, float, value)
REDUCE(reduce_double, double, value)
REDUCE(reduce_int, int, value)
REDUCE(reduce_ushort, unsigned short, natural)

static void reduce(void)
{
    const MPI_Op OP[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    for (int i = 0; i < 3; i++) {
        reduce_float(MPI_FLOAT, OP[i]);
        reduce_double(MPI_DOUBLE, OP[i]);
        reduce_int(MPI_INT, OP[i]);
        reduce_ushort(MPI_UINT16_T, OP[i]);
    }
}

/* Sums of floats that depend on their order: those of MPI_Allreduce. */
static void same_sums(void)
{
    float *in = zeroed(N * sizeof *in), *to_all = zeroed(N * sizeof *in), *to_one = zeroed(N * sizeof *in);
    for (int i = 0; i < N; i++)
        in[i] = (float)value(rank, i) / (3.0f + (float)rank);
    for (int root = 0; root < ranks; root++) {
        MPI_Allreduce(in, to_all, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce(in, to_one, N, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
        check(rank != root || !memcmp(to_all, to_one, N * sizeof *in), "MPI_Reduce has the bits of MPI_Allreduce");
    }
    free(in);
    free(to_all);
    free(to_one);
}

/* As bytes of several types; and -0.0 keeps its sign. */
static void broadcast(void)
{
    const MPI_Datatype TYPE[] = {MPI_FLOAT, MPI_DOUBLE, MPI_BYTE, MPI_INT, MPI_C_DOUBLE_COMPLEX, MPI_SHORT};
    unsigned char *data = zeroed(N * 16), *want = zeroed(N * 16);
    for (size_t t = 0; t < sizeof TYPE / sizeof *TYPE; t++)
        for (int root = 0; root < ranks; root++) {
            int size = 0;
            MPI_Type_size(TYPE[t], &size);
            for (int i = 0; i < N * size; i++)
                want[i] = (unsigned char)value(root + (int)t, i);
            want[3] = 0x80;
            if (rank == root)
                memcpy(data, want, (size_t)(N * size));
            else
                memset(data, 7, N * 16);
            MPI_Bcast(data, N, TYPE[t], root, MPI_COMM_WORLD);
            check(!memcmp(data, want, (size_t)(N * size)), "MPI_Bcast");
        }
    free(data);
    free(want);
}

/* Rank 1 has the elements one after the other, other ranks each third of an array: the signature is the same. */
static void broadcast_derived(void)
{
    enum { EACH = 3 };
    float *data = zeroed(N * EACH * sizeof *data);
    MPI_Datatype spaced;
    MPI_Type_vector(N, 1, EACH, MPI_FLOAT, &spaced);
    MPI_Type_commit(&spaced);
    for (int root = 0; root < ranks; root++) {
        const int apart = rank == 1 ? 1 : EACH;
        int wrong = 0;
        for (int i = 0; i < N * EACH; i++)
            data[i] = rank == root && i % apart == 0 ? (float)value(root, i / apart) : 77;
        if (rank == 1)
            MPI_Bcast(data, N, MPI_FLOAT, root, MPI_COMM_WORLD);
        else
            MPI_Bcast(data, 1, spaced, root, MPI_COMM_WORLD);
        for (int i = 0; i < N * EACH; i++)
            wrong += data[i] != (i % apart || i / apart >= N ? 77 : (float)value(root, i / apart));
        check(!wrong || (rank == 1 && root == 1), "MPI_Bcast of a derived type");
    }
    MPI_Type_free(&spaced);
    free(data);
}

/* Lengths that differ, none too, one after the other or with gaps or in another order; in place or not. */
struct parts {
    int counts[64], displs[64], all;
};

static struct parts parts_of(int kind)
{
    struct parts parts = {.all = 0};
    const int each = N / ranks;
    for (int i = 0; i < ranks; i++) {
        const int r = kind == 2 ? ranks - 1 - i : i;
        parts.counts[r] = r == 1 ? 0 : each - 5 * r;
        parts.displs[r] = parts.all;
        parts.all += parts.counts[r] + (kind ? 3 : 0);
    }
    return parts;
}

static void gather_parts(void)
{
    double *in = zeroed(N * sizeof *in), *out = zeroed(2 * N * sizeof *out), *want = zeroed(2 * N * sizeof *want);
    for (int kind = 0; kind < 3; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const struct parts parts = parts_of(kind);
            for (int i = 0; i < 2 * N; i++)
                out[i] = want[i] = 77;
            for (int r = 0; r < ranks; r++)
                for (int i = 0; i < parts.counts[r]; i++)
                    want[parts.displs[r] + i] = value(r, i);
            for (int i = 0; i < parts.counts[rank]; i++)
                (in_place ? out + parts.displs[rank] : in)[i] = value(rank, i);
            MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, parts.counts[rank], MPI_DOUBLE, out, parts.counts,
                           parts.displs, MPI_DOUBLE, MPI_COMM_WORLD);
            check(!memcmp(out, want, 2 * N * sizeof *out), "MPI_Allgatherv");
        }
    free(in);
    free(out);
    free(want);
}

/* Each second of an array on all ranks but 1; and places before the buffer's beginning. */
static void gather_derived(void)
{
    const struct parts parts = parts_of(1);
    float *in = zeroed(2 * N * sizeof *in), *out = zeroed(4 * N * sizeof *out), *want = zeroed(4 * N * sizeof *want);
    MPI_Datatype vector, spaced;
    MPI_Type_vector(1, 1, 2, MPI_FLOAT, &vector);
    MPI_Type_create_resized(vector, 0, 2 * sizeof(float), &spaced);
    MPI_Type_commit(&spaced);
    for (int backward = 0; backward < 2; backward++) {
        const int apart = rank == 1 ? 1 : 2;
        int displs[64];
        for (int r = 0; r < ranks; r++)
            displs[r] = parts.displs[r] - (backward ? parts.all : 0);
        for (int i = 0; i < 4 * N; i++)
            out[i] = want[i] = 77;
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < parts.counts[r]; i++)
                want[apart * (parts.displs[r] + i)] = (float)value(r, i);
        for (int i = 0; i < 2 * N; i++)
            in[i] = i % apart || i / apart >= parts.counts[rank] ? 55 : (float)value(rank, i / apart);
        const MPI_Datatype type = rank == 1 ? MPI_FLOAT : spaced;
        MPI_Allgatherv(in, parts.counts[rank], type, out + (backward ? apart * parts.all : 0), parts.counts, displs,
                       type, MPI_COMM_WORLD);
        check(!memcmp(out, want, 4 * N * sizeof *out), "MPI_Allgatherv of a derived type");
    }
    MPI_Type_free(&vector);
    MPI_Type_free(&spaced);
    free(in);
    free(out);
    free(want);
}

static void large(void)
{
#if MPI_VERSION >= 4
    float *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);
    MPI_Count counts[64];
    MPI_Aint displs[64];
    int wrong = 0;
    for (int r = 0; r < ranks; r++) {
        counts[r] = N / ranks;
        displs[r] = (ranks - 1 - r) * (N / ranks);
    }
    for (int i = 0; i < N; i++)
        in[i] = (float)value(rank, i);
    MPI_Reduce_c(in, out, N, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < N; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    MPI_Allgatherv_c(in, counts[rank], MPI_FLOAT, out, counts, displs, MPI_FLOAT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < N / ranks; i++)
            wrong += out[displs[r] + i] != (float)value(r, i);
    MPI_Bcast_c(in, N, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += in[i] != (float)value(0, i);
    check(!wrong, "functions with MPI_Count");
    free(in);
    free(out);
#else
    printf("skip: this MPI has no functions with MPI_Count\n");
#endif
}

/* Sums of floats that may lose precision, if the user has said so: near what they are, and other bits; the same on all
 * ranks. What is not a sum of floats by MPI_Allreduce stays exact. */
static void lossy(void)
{
    float *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out), *first = zeroed(N * sizeof *first);
    int *whole = zeroed(N * sizeof *whole);
    int differ = 0, wrong = 0;
    for (int i = 0; i < N; i++) {
        in[i] = 1 + (float)((i * 37 + rank * 101) % 1000) / 999.0f;
        whole[i] = value(rank, i);
    }
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        float want = 0;
        for (int r = 0; r < ranks; r++)
            want += 1 + (float)((i * 37 + r * 101) % 1000) / 999.0f;
        differ += out[i] != want;
        wrong += !(out[i] > want * 0.97f && out[i] < want * 1.03f);
    }
    check(!wrong && differ > N / 2, "sums that lose precision");
    memcpy(first, out, N * sizeof *out);
    MPI_Bcast(first, N, MPI_FLOAT, 0, MPI_COMM_WORLD);
    check(!memcmp(first, out, N * sizeof *out), "the same on all ranks");
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        float want = 0;
        for (int r = 0; r < ranks; r++) {
            const float one = 1 + (float)((i * 37 + r * 101) % 1000) / 999.0f;
            want = one > want ? one : want;
        }
        wrong += out[i] != want;
    }
    MPI_Allreduce(MPI_IN_PLACE, whole, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        wrong += whole[i] != reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "what loses nothing");
    free(in);
    free(out);
    free(first);
    free(whole);
}

int main(int argc, char **argv)
{
    static const struct scenario SCENARIO[] = {
        {"reduce", reduce},
        {"same_sums", same_sums},
        {"broadcast", broadcast},
        {"broadcast_derived", broadcast_derived},
        {"gather_parts", gather_parts},
        {"gather_derived", gather_derived},
        {"large", large},
        {"lossy", lossy},
        {NULL, NULL},
    };
    setlocale(LC_ALL, "");
    return run_scenario(argc, argv, SCENARIO);
}
