/* SPDX-License-Identifier: BSD-3-Clause */
#include "_objects.h"

#include <limits.h>

static PyObject *array_struct; /* "__array_struct__" */
static PyTypeObject *failed;

/* The target of __array_struct__: PyArrayInterface of NumPy's documentation. */
struct array_interface {
    int two; /* 2, to distinguish it from other structs */
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
    if (a && a->typekind == 'O') {
        PyErr_SetString(PyExc_TypeError, "an array of objects, which are no elements");
    } else if (a && (a->two != 2 || !(a->flags & C_CONTIGUOUS) || !(a->flags & NOT_SWAPPED))) {
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

bool pici_py_place(struct memory *m, PyObject *o, bool write)
{
    if (!PyTuple_Check(o))
        return pici_py_find(m, o, write);
    PyObject *address, *bytes, *owner;
    if (!PyArg_ParseTuple(o, "OOO", &address, &bytes, &owner))
        return false;
    m->p = PyLong_AsVoidPtr(address);
    m->bytes = PyLong_AsSize_t(bytes);
    return !PyErr_Occurred();
}

/* ---- numbers */

/* A number from 0 to `most`. */
static bool up_to(uint64_t *n, PyObject *o, uint64_t most)
{
    PyObject *index = PyNumber_Index(o);
    if (!index)
        return false;
    *n = PyLong_AsUnsignedLongLong(index);
    const bool fails = *n == UINT64_MAX && PyErr_Occurred();
    if (fails || *n > most)
        PyErr_Format(PyExc_OverflowError, "%R is not from 0 to %llu", index, (unsigned long long)most);
    Py_DecRef(index);
    return !fails && *n <= most;
}

int pici_py_u31(PyObject *o, void *to)
{
    uint64_t n;
    if (!up_to(&n, o, INT_MAX))
        return 0;
    *(int *)to = (int)n;
    return 1;
}

int pici_py_u32(PyObject *o, void *to)
{
    uint64_t n;
    if (!up_to(&n, o, UINT32_MAX))
        return 0;
    *(uint32_t *)to = (uint32_t)n;
    return 1;
}

int pici_py_u64(PyObject *o, void *to)
{
    return up_to(to, o, UINT64_MAX);
}

PyObject *pici_py_tuple(const uint64_t *numbers, size_t n)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number)) {
            Py_DecRef(tuple);
            return NULL;
        }
    }
    return tuple;
}

Py_ssize_t pici_py_numbers(uint64_t *numbers, Py_ssize_t most, PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "numbers are a tuple, not %R", tuple);
        return -1;
    }
    const Py_ssize_t n = PyTuple_Size(tuple);
    if (n > most) {
        PyErr_Format(PyExc_ValueError, "%zd numbers, more than %zd", n, most);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!pici_py_u64(PyTuple_GetItem(tuple, i), &numbers[i]))
            return -1;
    return n;
}

struct pici_tensor pici_py_tensor(const char *name, Py_ssize_t name_len, int dtype, Py_ssize_t rank,
                                  const uint64_t *shape)
{
    struct pici_tensor tensor = PICI_TENSOR_INIT;
    tensor.name = name;
    tensor.name_len = (size_t)name_len;
    tensor.dtype = (enum pici_dtype)dtype;
    tensor.rank = (unsigned)rank;
    tensor.shape = shape;
    return tensor;
}

bool pici_py_ints(int *numbers, PyObject *tuple)
{
    const Py_ssize_t n = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < n; i++) {
        const long number = PyLong_AsLong(PyTuple_GetItem(tuple, i));
        if (number == -1 && PyErr_Occurred())
            return false;
        if (number < INT_MIN || number > INT_MAX) {
            PyErr_Format(PyExc_OverflowError, "%ld is not from %d to %d", number, INT_MIN, INT_MAX);
            return false;
        }
        numbers[i] = (int)number;
    }
    return n >= 0;
}

/* ---- attributes */

static bool attribute(struct pici_attr *a, PyObject *pair)
{
    PyObject *key, *value;
    char *k, *v;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(pair, "SS", &key, &value) || PyBytes_AsStringAndSize(key, &k, NULL) ||
        PyBytes_AsStringAndSize(value, &v, &n))
        return false;
    *a = (struct pici_attr){k, v, (size_t)n};
    return true;
}

bool pici_py_attrs(struct attrs *attrs, PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "attributes are a tuple, not %R", tuple);
        return false;
    }
    const Py_ssize_t n = PyTuple_Size(tuple);
    attrs->n = (size_t)n;
    attrs->list = PyMem_Malloc((attrs->n + 1) * sizeof *attrs->list);
    if (!attrs->list) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyTuple_GetItem(tuple, i);
        if (!PyTuple_Check(pair) || !attribute(&attrs->list[i], pair)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, "an attribute is a key and a value, not %R", pair);
            PyMem_Free(attrs->list);
            return false;
        }
    }
    return true;
}

/* ---- failures */

PyObject *pici_py_failed(enum pici_status status, int code, const char *words, uint64_t offset)
{
    if (!words || !*words)
        words = lib.strerror(status);
    PyObject *result = PyStructSequence_New(failed);
    PyObject *values[] = {PyLong_FromLong(status), PyLong_FromLong(code),
                          PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace"),
                          PyLong_FromUnsignedLongLong(offset)};
    bool ok = result != NULL;
    for (Py_ssize_t i = 0; i < 4; i++) {
        ok = ok && values[i];
        if (result)
            PyStructSequence_SetItem(result, i, values[i]); /* which takes the reference */
        else
            Py_DecRef(values[i]);
    }
    if (ok)
        return result;
    Py_DecRef(result);
    return NULL;
}

bool pici_py_objects_init(PyObject *module)
{
    static PyStructSequence_Field fields[] = {
        {"status", "the number in enum pici_status"},
        {"code", "the value of errno; 0 if there is none"},
        {"words", "what is wrong"},
        {"offset", "in a file, of the record that is wrong"},
        {NULL, NULL},
    };
    static PyStructSequence_Desc failure = {"pici._codec.Failed", "A call of the library that failed.", fields, 4};
    array_struct = PyUnicode_InternFromString("__array_struct__");
    failed = PyStructSequence_NewType(&failure);
    return array_struct && failed && !PyObject_SetAttrString(module, "Failed", (PyObject *)failed);
}
