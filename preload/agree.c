/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "preload/agree.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void pmpi_say(MPI_Comm comm, atomic_flag *said, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    if (rank || atomic_flag_test_and_set(said))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "pici: %s\n", text);
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void say_waiting(MPI_Comm comm, enum function function)
{
    const char *also = function == NEIGHBOR_ALLGATHER ? " Do all ranks give the same count, as MPI demands?" : "";
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    fprintf(stderr,
            "pici: rank %d has waited %d s for other ranks in %s; check that every host has LD_PRELOAD and the same "
            "PICI_PMPI variables.%s\n",
            rank, pmpi_settings()->wait_s, pmpi_function_name(function), also);
}

/* A nonblocking collective does not match the blocking one of a rank that has not loaded this library. So that rank
 * waits too, instead of receiving our words as its data. */
int pmpi_agree(MPI_Comm comm, enum function function, uint64_t words[PMPI_WORDS], MPI_Op op)
{
    static const struct timespec nap = {0, 50000};
    uint64_t own[PMPI_WORDS];
    MPI_Request request;
    int done = 0, said = 0;
    memcpy(own, words, sizeof own);
    int rc = PMPI_Iallreduce(own, words, PMPI_WORDS, MPI_UINT64_T, op, comm, &request);
    const double start = now_s();
    for (int looks = 0; rc == MPI_SUCCESS; looks++) {
        rc = PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            break;
        if (looks < 1000)
            sched_yield();
        else
            nanosleep(&nap, NULL);
        if (!said && now_s() - start > pmpi_settings()->wait_s) {
            say_waiting(comm, function);
            said = 1;
        }
    }
    return rc;
}
