/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Agreements of all ranks of a communicator, and messages that one rank prints. */
#ifndef PICI_PRELOAD_AGREE_H
#define PICI_PRELOAD_AGREE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>

#include "preload/settings.h"

enum { PMPI_WORDS = 8 };

/* Combine the words of all ranks by an op. Collective. The maxima of a value and of its complement show whether all
 * ranks have the same value. A rank that waits long for others prints a message, and goes on waiting: ranks may be
 * hours late. Returns MPI's code. */
int pmpi_agree(MPI_Comm, enum function, uint64_t words[PMPI_WORDS], MPI_Op);

/* Print a line to stderr on rank 0 of the communicator, once per process and flag. */
__attribute__((format(printf, 3, 4))) void pmpi_say(MPI_Comm, atomic_flag *said, const char *format, ...);

#endif
