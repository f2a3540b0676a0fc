/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sparse vectors in collectives: a capsule with a rank's argument and its result, for one call. */
#ifndef PICI_PYTHON_VECTORS_H
#define PICI_PYTHON_VECTORS_H

#include "_objects.h"

struct sparse {
    enum pici_dtype dtype;
    struct pici_stream in;
    struct pici_stream_out out;
    size_t room;                                    /* bytes at out.dense, if the caller passed it */
    bool used;                                      /* a call used it, */
    bool ended;                                     /* and has ended without an error */
    PyObject *indices, *values, *dense, *out_dense; /* the owner of the memory, or NULL */
};

/* Whether an object is a capsule of this kind; and its contents. On NULL an exception is set. */
bool pici_py_is_sparse(PyObject *);
struct sparse *pici_py_sparse(PyObject *);

#endif
