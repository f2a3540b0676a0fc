/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The contents of DLPack's capsules, for _dlpack.py. The structs match DLPack's dlpack.h. */
#include "_functions.h"
#include "_objects.h"

struct tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides: in elements; NULL: row-major */
    uint64_t byte_offset;
};

struct versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    struct tensor tensor;
};

static const char PLAIN[] = "dltensor", VERSIONED[] = "dltensor_versioned";

/* The tensor in a capsule, and its flags. On NULL an exception is set. */
static struct tensor *tensor_of(PyObject *capsule, uint64_t *flags)
{
    *flags = 0;
    if (PyCapsule_IsValid(capsule, PLAIN))
        return PyCapsule_GetPointer(capsule, PLAIN);
    if (!PyCapsule_IsValid(capsule, VERSIONED)) {
        PyErr_SetString(PyExc_BufferError, "not a DLPack capsule, or one that was used already");
        return NULL;
    }
    struct versioned *v = PyCapsule_GetPointer(capsule, VERSIONED);
    if (v->major != 1) {
        PyErr_Format(PyExc_BufferError, "DLPack of version %u.%u is not known here", (unsigned)v->major,
                     (unsigned)v->minor);
        return NULL;
    }
    *flags = v->flags;
    return &v->tensor;
}

/* A tuple of n numbers; None for NULL. */
static PyObject *numbers(const int64_t *p, int32_t n)
{
    if (!p && n)
        return Py_BuildValue("");
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(p[i]);
        if (!number || PyTuple_SetItem(tuple, i, number)) {
            Py_DecRef(tuple);
            return NULL;
        }
    }
    return tuple;
}

/* dlpack_open(o) -> (address, code, bits, lanes, shape, strides, flags). strides: in elements, or None: row-major.
 * BufferError: an unknown kind of capsule. */
static PyObject *dlpack_open(PyObject *self, PyObject *capsule)
{
    (void)self;
    uint64_t flags;
    const struct tensor *t = tensor_of(capsule, &flags);
    if (!t)
        return NULL;
    const uintptr_t address = (uintptr_t)t->data + (uintptr_t)t->byte_offset;
    return Py_BuildValue("KiiiNNK", (unsigned long long)address, (int)t->code, (int)t->bits, (int)t->lanes,
                         numbers(t->shape, t->ndim), numbers(t->strides, t->ndim), (unsigned long long)flags);
}

/* dlpack_retype(capsule, code, bits, lanes) -> None. Sets the type of its elements. */
static PyObject *dlpack_retype(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule;
    unsigned char code, bits;
    short lanes;
    uint64_t flags;
    if (!PyArg_ParseTuple(args, "Obbh", &capsule, &code, &bits, &lanes))
        return NULL;
    struct tensor *t = tensor_of(capsule, &flags);
    if (!t)
        return NULL;
    t->code = code;
    t->bits = bits;
    t->lanes = (uint16_t)lanes;
    return Py_BuildValue("");
}

PyMethodDef pici_py_capsule_functions[] = {
    {"dlpack_open", dlpack_open, METH_O, NULL},
    {"dlpack_retype", dlpack_retype, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
