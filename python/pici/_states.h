/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PYTHON_STATES_H
#define PICI_PYTHON_STATES_H

#include "_sinks.h"

/* Converters for PyArg_ParseTuple's "O&": (choice, format, threads, zstd[, list_all]) to a struct pici_diff_opts; and a
 * handle to a struct pici_state *. */
int pici_py_diff_opts(PyObject *, void *to);
int pici_py_state(PyObject *, void *to);

/* The result of a function whose array was too short: a Failed. */
PyObject *pici_py_too_long(void);

#endif
