/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of the extension module _codec share: the memory of Python's objects, and functions of the library by
 * address. */
#ifndef PICI_PYTHON_OBJECTS_H
#define PICI_PYTHON_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>

struct memory {
    void *p;
    size_t bytes;
};

/* Find the memory of bytes (if it is only read), or of an ndarray that is row-major and in the host's byte order. On
 * false an exception is set. */
bool pici_py_find(struct memory *, PyObject *, bool write);

/* Store the address of a function of the library, address_of(name), in *function, a pointer to a function. On false an
 * exception is set. */
bool pici_py_bind(PyObject *address_of, const char *name, void *function);

/* To be called first. On false an exception is set. */
bool pici_py_objects_init(void);

#endif
