/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/profiling.h"

int pmpi_comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    MPI_Group group;
    int rc = PMPI_Comm_group(comm, &group);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Comm_create(comm, group, copy);
    PMPI_Group_free(&group);
    return rc == MPI_SUCCESS ? PMPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN) : rc;
}
