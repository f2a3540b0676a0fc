/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Preloaded too: a program may have memory for pici's communicators, and MPI_Unpack, fail on a rank. And it counts how
 * often somebody looks whether a library is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

extern int no_scratch, no_unpacking, library_looks;
int no_scratch;   /* aligned_alloc, which pici calls for scratch memory alone, fails */
int no_unpacking; /* PMPI_Unpack fails */
int library_looks;

void *aligned_alloc(size_t align, size_t bytes)
{
    void *p = NULL;
    return no_scratch || posix_memalign(&p, align, bytes) != 0 ? NULL : p;
}

int PMPI_Unpack(const void *in, int bytes, int *position, void *out, int n, MPI_Datatype type, MPI_Comm comm)
{
    return no_unpacking ? MPI_ERR_OTHER : MPI_Unpack(in, bytes, position, out, n, type, comm);
}

void *dlopen(const char *name, int mode)
{
    void *(*const next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    library_looks += (mode & RTLD_NOLOAD) != 0;
    return next(name, mode);
}
