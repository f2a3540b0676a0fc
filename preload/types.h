/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Maps MPI's datatypes to pici's dtypes. */
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

/* Find the one basic type that a datatype's whole signature consists of. Nonzero: there is one. *plain (may be NULL):
 * the elements are contiguous in memory, from the address on, in the signature's order. It may be 0 for a plain derived
 * type. */
int pmpi_basic(MPI_Datatype, struct basic *, int *plain);

/* Find the dtype of a reduction's elements, and the number of elements in one basic type. Nonzero: there is a dtype.
 * sums: the op is MPI_SUM, not a minimum or maximum. */
int pmpi_dtype_reduced(const struct basic *, int sums, enum pici_dtype *, int *each);

/* Like pmpi_dtype_reduced, for an all-gather: elements of the same width, without arithmetic. */
int pmpi_dtype_gathered(const struct basic *, enum pici_dtype *, int *each);

/* Bytes of a datatype's signature; 0 if MPI does not know. */
MPI_Count pmpi_type_size(MPI_Datatype);

/* Copy `count` items of a datatype from buffer to packed, or back. Nonzero: it has copied all, without gaps. Refuses
 * items of more than 1 GiB. */
int pmpi_pack(const void *buffer, MPI_Count count, MPI_Datatype, void *packed, MPI_Comm);
int pmpi_unpack(const void *packed, void *buffer, MPI_Count count, MPI_Datatype, MPI_Comm);
#define PMPI_UNPACKING "MPI cannot unpack what was received"

#endif
