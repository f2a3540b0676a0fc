/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call as the program made it, by MPI. */
#ifndef PICI_PRELOAD_BY_MPI_H
#define PICI_PRELOAD_BY_MPI_H

#include "preload/call.h"

/* MPI's code. */
int pmpi_by_mpi(const struct call *);

#endif
