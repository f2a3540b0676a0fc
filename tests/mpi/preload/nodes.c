/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Preloaded too: two ranks of one machine seem to be a node, so that blocks are passed on between nodes. */
#include <mpi.h>

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *node)
{
    int rank = 0;
    (void)type, (void)info;
    PMPI_Comm_rank(comm, &rank);
    return PMPI_Comm_split(comm, rank / 2, key, node);
}
