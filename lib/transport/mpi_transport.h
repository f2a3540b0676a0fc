/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over MPI, for its tests. */
#ifndef PICI_LIB_TRANSPORT_MPI_TRANSPORT_H
#define PICI_LIB_TRANSPORT_MPI_TRANSPORT_H

#include "pici/mpi.h"
#include "pici/transport.h"

/* Fill in a transport over a duplicate of an intracommunicator. Collective; the same status on all ranks. PICI_E_ARG,
 * PICI_E_NOMEM, PICI_E_TRANSPORT. */
enum pici_status pici_transport_mpi(struct pici_transport *, MPI_Comm);

/* The most bytes in one MPI call; the same on all ranks. Only tests change it, with nothing in flight. */
extern int pici_mpi_piece;

#endif
