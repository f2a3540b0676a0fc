/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tests under mpirun share: who one is, and a tally of all ranks. Include once a program. */
#ifndef PICI_TESTS_MPI_TALLY_H
#define PICI_TESTS_MPI_TALLY_H

#include <mpi.h>
#include <stdio.h>

static int rank, ranks, passed, failed;

/* Collective. Counted once if it holds on all ranks: nothing is wrong. */
static void expect(const char *wrong, const char *what)
{
    int here = wrong != NULL, anywhere = 0;
    if (wrong)
        printf("FAIL %s, rank %d of %d: %s\n", what, rank, ranks, wrong);
    MPI_Allreduce(&here, &anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    passed += !anywhere;
    failed += anywhere;
}

#endif
