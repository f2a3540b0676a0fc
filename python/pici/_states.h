/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PYTHON_STATES_H
#define PICI_PYTHON_STATES_H

#include "_sinks.h"

/* A converter for PyArg_ParseTuple's "O&": (choice, format, threads, zstd) to a struct pici_diff_opts. */
int pici_py_diff_opts(PyObject *, void *to);

/* What a function returns that wrote more to an array than fits: a Failed. */
PyObject *pici_py_too_long(void);

#endif
