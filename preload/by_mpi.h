/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes a call of the program by MPI, unchanged. */
#ifndef PICI_PRELOAD_BY_MPI_H
#define PICI_PRELOAD_BY_MPI_H

#include "preload/call.h"

/* Returns MPI's code. */
int pmpi_by_mpi(const struct call *);

#endif
