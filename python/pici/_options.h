/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Options of collectives, which Python keeps in capsules. */
#ifndef PICI_PYTHON_OPTIONS_H
#define PICI_PYTHON_OPTIONS_H

#include "_objects.h"

/* The results of coll_opts() and values(). On NULL an exception is set. */
const struct pici_coll_opts *pici_py_coll_opts(PyObject *);
const struct pici_values *pici_py_values(PyObject *);

/* A function with keyword arguments, cast for a table as Python's documentation does. */
#define PICI_WITH_NAMES(function) ((PyCFunction)(void (*)(void))(function))

#endif
