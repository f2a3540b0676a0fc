/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What all ranks of a communicator find out about each other, and what one of them says. */
#ifndef PICI_PRELOAD_AGREE_H
#define PICI_PRELOAD_AGREE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>

#include "preload/settings.h"

enum { PMPI_WORDS = 8 };

/* Combine the words of all ranks by an op. The maximum of a value and that of its complement show whether all have the
 * same. Collective. A rank that waits for others says so after some time, and goes on waiting: ranks may be hours late.
 * Returns MPI's code. */
int pmpi_agree(MPI_Comm, enum function, uint64_t words[PMPI_WORDS], MPI_Op);

/* Print a line to stderr on rank 0 of the communicator, once a process for each flag. */
__attribute__((format(printf, 3, 4))) void pmpi_say(MPI_Comm, atomic_flag *said, const char *format, ...);

#endif
