/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A program with its own libpici. Sums of floats by MPI_Allreduce have the bits of its pici_all_reduce, if the
 * preloaded library makes them. Neither library takes functions of the other. By tests/mpi/preload.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/mpi.h"

enum { N = 50000 };

static float in[N], by_mpi[N], by_pici[N];

static void fill(int rank)
{
    unsigned x = 12345u + (unsigned)rank;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        in[i] = x >> 28 ? 0 : (float)(x & 0xffff) / 7777.0f - 3;
    }
}

int main(int argc, char **argv)
{
    struct pici_comm *comm;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fill(rank);
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD) != PICI_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int differ = 0;
    for (int round = 0; round < 2; round++) {
        const int each = N / ranks;
        if (pici_all_reduce(in, by_pici, N, PICI_F32, PICI_SUM, comm, NULL) != PICI_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Allreduce(in, by_mpi, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        differ += memcmp(by_mpi, by_pici, sizeof by_mpi) != 0;
        if (pici_reduce_scatter(in, by_pici, (uint64_t)each, PICI_F32, PICI_SUM, comm, NULL) != PICI_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Reduce_scatter_block(in, by_mpi, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        differ += memcmp(by_mpi, by_pici, (size_t)each * sizeof *by_mpi) != 0;
    }
    pici_comm_free(comm);
    if (!rank)
        puts(differ ? "bits differ" : "4 passed");
    MPI_Finalize();
    return 0;
}
