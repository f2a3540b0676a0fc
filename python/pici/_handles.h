/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Objects of the library as Python objects: capsules, which free them when they are dropped, or earlier by close(). A
 * handle refers to the objects that its contents use: a reader's source, the arrays of a state's elements. A handle
 * that another uses is closed after the other. */
#ifndef PICI_PYTHON_HANDLES_H
#define PICI_PYTHON_HANDLES_H

#include "_objects.h"

enum handle { READER, WRITER, OUTFILE, STATE, DELTAS, LOG, UPDATE };

/* A handle of a new object, which it frees, and which uses the object `kept` unless that is NULL. On NULL an exception
 * is set, and the new object is freed. */
PyObject *pici_py_handle(enum handle, void *made, PyObject *kept);

/* Whether an object is a handle of this kind. */
bool pici_py_is_handle(enum handle, PyObject *);

/* The contents of a handle. On NULL an exception is set: it is closed, a thread is in a call on it, or it has another
 * kind. */
void *pici_py_handled(enum handle, PyObject *);

/* The same, for a call that releases the GIL: until it leaves the handle, no other call begins, and the contents are
 * not freed. Leaving is the last act of a function, and returns the given result. */
void *pici_py_handle_enter(enum handle, PyObject *);
PyObject *pici_py_handle_leave(PyObject *, PyObject *result);

/* A handle uses one more object. On false an exception is set. */
bool pici_py_handle_keep(enum handle, PyObject *, PyObject *kept);

/* Take the contents out of a handle. On NULL an exception is set. */
void *pici_py_handle_take(enum handle, PyObject *);

#endif
