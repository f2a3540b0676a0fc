/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Included before preload/fortran.c, to link it with wide.c: Fortran's integers are wider than an int, as Open MPI can
 * be built, and memory is that program's. MPICH's Fortran functions are its own. */
#ifndef PICI_TESTS_MPI_PRELOAD_WIDE_H
#define PICI_TESTS_MPI_PRELOAD_WIDE_H

#include <mpi.h>
#include <stdint.h>

#undef MPI_Fint
#define MPI_Fint int64_t
#define calloc wide_calloc /* stdlib.h declares it so */
#define free wide_free

#endif
