/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of streams over MPI, bit for bit as the dense calls. By tests/mpi/programs.sh, under mpirun.
 *     mpi_stream [--quick|--full]       --quick: twelve calls */
#include <stdio.h>
#include <string.h>

#include "pici/mpi.h"
#include "tests/util/mpi_tally.h"
#include "tests/util/stream.h"

int main(int argc, char **argv)
{
    int times = 60;
    if (argc > 1)
        times = strcmp(argv[1], "--quick") == 0 ? 12 : 400;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct rng rng = {(uint64_t)ranks};
    for (int i = 0; i < times; i++) {
        struct stream_case c;
        struct pici_comm *comm = NULL;
        char said[240], words[240];
        stream_case_random(&c, &rng, ranks, 30000);
        if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
            MPI_Abort(MPI_COMM_WORLD, 1);
        expect(stream_check(&c, comm, said), stream_case_words(&c, ranks, words));
        pici_comm_free(comm);
    }
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
