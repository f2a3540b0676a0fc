/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Objects of the library as objects of Python: capsules, which free them when they are dropped, or before, by close().
 * A handle refers to the objects that its own one uses: what a reader reads, what a state's elements are in. One that
 * another handle uses is not closed before that. */
#ifndef PICI_PYTHON_HANDLES_H
#define PICI_PYTHON_HANDLES_H

#include "_objects.h"

enum handle { READER, WRITER, OUTFILE, STATE, DELTAS, LOG, UPDATE };

/* A handle of what was made, which it frees, and which uses the object kept, if that is not NULL. On NULL an exception
 * is set, and what was made is freed. */
PyObject *pici_py_handle(enum handle, void *made, PyObject *kept);

/* Whether an object is a handle of this kind. */
bool pici_py_is_handle(enum handle, PyObject *);

/* What a handle has. On NULL an exception is set: it is closed, a thread is in a call on it, or it is of no such
 * kind. */
void *pici_py_handled(enum handle, PyObject *);

/* The same, for a call during which the GIL is released: until it leaves the handle, no other is made, and what the
 * handle has is not freed. Leaving returns the result that is given, as the last act of a function. */
void *pici_py_handle_enter(enum handle, PyObject *);
PyObject *pici_py_handle_leave(PyObject *, PyObject *result);

/* A handle uses one more object. On false an exception is set. */
bool pici_py_handle_keep(enum handle, PyObject *, PyObject *kept);

/* What a handle has, which it has no longer. On NULL an exception is set. */
void *pici_py_handle_take(enum handle, PyObject *);

#endif
