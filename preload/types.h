/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's datatypes as dtypes of ours. */
#ifndef PICI_PRELOAD_TYPES_H
#define PICI_PRELOAD_TYPES_H

#include <mpi.h>
#include <stddef.h>

#include "pici/pici.h"

enum kind { SIGNED, UNSIGNED, FLOAT, COMPLEX, RAW }; /* RAW: no arithmetic */

struct basic {
    enum kind kind;
    size_t bytes; /* of one; of complex both parts together */
};

/* The one basic type that all of a datatype's signature consists of. Nonzero: there is one. *plain (may be NULL): such
 * elements in memory, one after the other from the address on, in the signature's order. A derived type may be
 * taken for not plain although it is. */
int pmpi_basic(MPI_Datatype, struct basic *, int *plain);

/* Elements of which dtype a reduction adds, and how many make one basic type. Nonzero: there is a dtype. sums: the op
 * is MPI_SUM, and not a minimum or maximum. */
int pmpi_dtype_reduced(const struct basic *, int sums, enum pici_dtype *, int *each);

/* The same for an all-gather: elements of the same width, without arithmetic. */
int pmpi_dtype_gathered(const struct basic *, enum pici_dtype *, int *each);

/* Bytes of a datatype's signature; 0 if MPI does not know. */
MPI_Count pmpi_type_size(MPI_Datatype);

/* Copy `count` items of a datatype from buffer to packed, or back. Nonzero: all of them, without anything between. An
 * item of more than 1 GiB is refused. */
int pmpi_pack(const void *buffer, MPI_Count count, MPI_Datatype, void *packed, MPI_Comm);
int pmpi_unpack(const void *packed, void *buffer, MPI_Count count, MPI_Datatype, MPI_Comm);
#define PMPI_UNPACKING "MPI cannot unpack what was received"

#endif
