/* SPDX-License-Identifier: BSD-3-Clause */
#include "_objects.h"

static PyObject *array_struct; /* "__array_struct__" */

/* What __array_struct__ points at: PyArrayInterface of NumPy's documentation. */
struct array_interface {
    int two; /* 2, to tell it from other structs */
    int nd;
    char typekind;
    int itemsize;
    int flags;
    Py_intptr_t *shape;
    Py_intptr_t *strides;
    void *data;
    PyObject *descr;
};
enum { C_CONTIGUOUS = 0x1, NOT_SWAPPED = 0x200, WRITEABLE = 0x400 };

bool pici_py_find(struct memory *m, PyObject *o, bool write)
{
    if (!write && PyBytes_Check(o)) {
        Py_ssize_t n;
        if (PyBytes_AsStringAndSize(o, (char **)&m->p, &n))
            return false;
        m->bytes = (size_t)n;
        return true;
    }
    PyObject *capsule = PyObject_GetAttr(o, array_struct);
    if (!capsule)
        return false;
    const struct array_interface *a = PyCapsule_GetPointer(capsule, NULL);
    bool ok = false;
    if (a && (a->two != 2 || !(a->flags & C_CONTIGUOUS) || !(a->flags & NOT_SWAPPED))) {
        PyErr_SetString(PyExc_ValueError,
                        write ? "the array to write to is not row-major, or not in the host's byte order"
                              : "the array is not row-major, or not in the host's byte order: pass "
                                "numpy.ascontiguousarray(array, array.dtype.newbyteorder('='))");
    } else if (a && write && !(a->flags & WRITEABLE)) {
        PyErr_SetString(PyExc_ValueError, "the array to write to is read-only: pass one whose flags.writeable is True. "
                                          "array.copy() is one, but the result is then in the copy only");
    } else if (a) {
        m->p = a->data;
        m->bytes = (size_t)a->itemsize;
        for (int i = 0; i < a->nd; i++)
            m->bytes *= (size_t)a->shape[i];
        ok = true;
    }
    Py_DecRef(capsule);
    return ok;
}

bool pici_py_bind(PyObject *address_of, const char *name, void *function)
{
    PyObject *address = PyObject_CallFunction(address_of, "s", name);
    void *p = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_DecRef(address);
    if (!p && !PyErr_Occurred())
        PyErr_Format(PyExc_ImportError, "libpici has no %s", name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

bool pici_py_objects_init(void)
{
    array_struct = PyUnicode_InternFromString("__array_struct__");
    return array_struct != NULL;
}
