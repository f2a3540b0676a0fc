/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the parts of the extension module _codec: the memory of Python's objects, numbers, and failures of the
 * library. If a function here returns false or NULL, it has set an exception. */
#ifndef PICI_PYTHON_OBJECTS_H
#define PICI_PYTHON_OBJECTS_H

#include "_library.h"
#include "_python.h"

struct memory {
    void *p;
    size_t bytes;
};

/* Find the memory of bytes (only to read it), or of an ndarray in row-major and host byte order. */
bool pici_py_find(struct memory *, PyObject *, bool write);

/* The same; also the memory of a tuple (address, bytes, owner), which Python makes of tensors. */
bool pici_py_place(struct memory *, PyObject *, bool write);

/* Converters for PyArg_ParseTuple's "O&": to an int from 0 on, a uint32_t, a uint64_t. OverflowError if the number is
 * out of range. */
int pici_py_u31(PyObject *, void *to);
int pici_py_u32(PyObject *, void *to);
int pici_py_u64(PyObject *, void *to);

/* A tuple of n numbers; and the numbers of a tuple, at most `most`: returns how many, or -1. */
PyObject *pici_py_tuple(const uint64_t *, size_t n);
Py_ssize_t pici_py_numbers(uint64_t *, Py_ssize_t most, PyObject *tuple);

/* A tensor without attributes. Shares the pointers. */
struct pici_tensor pici_py_tensor(const char *name, Py_ssize_t name_len, int dtype, Py_ssize_t rank,
                                  const uint64_t *shape);

/* The numbers of a tuple as ints; the array has room for all. */
bool pici_py_ints(int *, PyObject *tuple);

/* Attributes [n] from a tuple of keys and values, which are bytes. They point into the tuple. Free list with
 * PyMem_Free. */
struct attrs {
    struct pici_attr *list;
    size_t n;
};
bool pici_py_attrs(struct attrs *, PyObject *tuple);

/* The result after a failed call of the library: a Failed (_codec.pyi). code: the value of errno, or 0; words: the
 * library's message, or "" for the status's message; offset: in a file. */
PyObject *pici_py_failed(enum pici_status, int code, const char *words, uint64_t offset);

/* Call this first, with the module. */
bool pici_py_objects_init(PyObject *module);

#endif
