/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of the extension module _codec share: the memory of Python's objects, numbers, and failures of the
 * library. On false or NULL of a function here an exception is set. */
#ifndef PICI_PYTHON_OBJECTS_H
#define PICI_PYTHON_OBJECTS_H

#include "_library.h"
#include "_python.h"

struct memory {
    void *p;
    size_t bytes;
};

/* Find the memory of bytes (if it is only read), or of an ndarray that is row-major and in the host's byte order. */
bool pici_py_find(struct memory *, PyObject *, bool write);

/* The same; or that of a tuple (address, bytes, owner), which Python makes of tensors. */
bool pici_py_place(struct memory *, PyObject *, bool write);

/* Converters for PyArg_ParseTuple's "O&": to an int from 0 on, a uint32_t, a uint64_t. OverflowError if the number is
 * out of range. */
int pici_py_u31(PyObject *, void *to);
int pici_py_u32(PyObject *, void *to);
int pici_py_u64(PyObject *, void *to);

/* A tuple of n numbers, and the numbers of a tuple, of which there may be at most `most`; how many, or -1. */
PyObject *pici_py_tuple(const uint64_t *, size_t n);
Py_ssize_t pici_py_numbers(uint64_t *, Py_ssize_t most, PyObject *tuple);

/* A tensor without attributes. Shares the pointers. */
struct pici_tensor pici_py_tensor(const char *name, Py_ssize_t name_len, int dtype, Py_ssize_t rank,
                                  const uint64_t *shape);

/* The numbers of a tuple as ints, of which there is room for all. */
bool pici_py_ints(int *, PyObject *tuple);

/* Attributes: [n] of a tuple of keys and values, bytes, at which they point. list is to be freed by PyMem_Free. */
struct attrs {
    struct pici_attr *list;
    size_t n;
};
bool pici_py_attrs(struct attrs *, PyObject *tuple);

/* What a function returns if a call of the library failed: a Failed (_codec.pyi). code: the value of errno, or 0;
 * words: the library's, or "" for those of the status; offset: in a file. */
PyObject *pici_py_failed(enum pici_status, int code, const char *words, uint64_t offset);

/* To be called first, with the module. */
bool pici_py_objects_init(PyObject *module);

#endif
