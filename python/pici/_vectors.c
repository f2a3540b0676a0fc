/* SPDX-License-Identifier: BSD-3-Clause */
#include "_vectors.h"

#include "_functions.h"

static const char SPARSE[] = "pici.sparse";

bool pici_py_is_sparse(PyObject *o)
{
    return PyCapsule_IsValid(o, SPARSE) != 0;
}

struct sparse *pici_py_sparse(PyObject *o)
{
    return PyCapsule_GetPointer(o, SPARSE);
}

/* Drop the references to the caller's arrays. */
static void drop(struct sparse *s)
{
    PyObject *owners[] = {s->indices, s->values, s->dense, s->out_dense};
    s->indices = s->values = s->dense = s->out_dense = NULL;
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        Py_DecRef(owners[i]); /* works for NULL too; last, since this may run any Python code */
}

static void sparse_free(PyObject *capsule)
{
    struct sparse *s = pici_py_sparse(capsule);
    lib.stream_free(&s->out);
    drop(s);
    PyMem_Free(s);
}

/* The memory of an array, or of None. Its bytes must be `count` times `each`. Takes a reference to its owner. */
static bool hold(const void **p, PyObject **owner, PyObject *o, bool write, uint64_t count, uint64_t each,
                 const char *name)
{
    struct memory m;
    if (o == Py_None)
        return true;
    if (!pici_py_place(&m, o, write))
        return false;
    if (each && (m.bytes % each || m.bytes / each != count))
        return PyErr_Format(PyExc_ValueError, "%s: %zu bytes, not %llu times %llu", name, m.bytes,
                            (unsigned long long)count, (unsigned long long)each) != NULL;
    *p = m.p;
    Py_IncRef(*owner = o);
    return true;
}

/* Whether the arrays' lengths match the numbers. */
static bool fill(struct sparse *s, PyObject *indices, PyObject *values, PyObject *dense, PyObject *result)
{
    struct pici_stream *in = &s->in;
    const uint64_t width = lib.dtype_width(s->dtype);
    const void *room = NULL;
    uint64_t row;
    if (!width || __builtin_mul_overflow(in->run, width, &row) || !row ||
        (in->index_width != 4 && in->index_width != 8)) {
        PyErr_SetString(PyExc_ValueError, "no such dtype, or rows of no length, or no such indices");
        return false;
    }
    if (!hold(&in->indices, &s->indices, indices, false, in->nnz, (uint64_t)in->index_width, "indices") ||
        !hold(&in->values, &s->values, values, false, in->nnz, row, "values") ||
        !hold(&in->dense, &s->dense, dense, false, in->n, width, "dense") ||
        !hold(&room, &s->out_dense, result, true, 0, 0, "the result"))
        return false;
    struct memory m = {NULL, 0};
    if (room && !pici_py_place(&m, result, true))
        return false;
    s->out.dense = m.p;
    s->room = m.bytes;
    return true;
}

/* sparse(dtype, n, run, nnz, index_width, indices, values, dense, want, out_run, out_dense) -> a rank's argument for a
 * collective of sparse vectors, for one call of comm_call or comm_start. Arrays: as for comm_call, or None. Without
 * indices the call fails on all ranks. */
static PyObject *sparse(PyObject *self, PyObject *args)
{
    (void)self;
    static const struct pici_stream in = PICI_STREAM_INIT;
    static const struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    PyObject *indices, *values, *dense, *result;
    int dtype, want;
    struct sparse *s = PyMem_Malloc(sizeof *s);
    if (!s)
        return PyErr_NoMemory();
    *s = (struct sparse){.in = in, .out = out};
    if (!PyArg_ParseTuple(args, "iO&O&O&iOOOiO&O", &dtype, pici_py_u64, &s->in.n, pici_py_u64, &s->in.run, pici_py_u64,
                          &s->in.nnz, &s->in.index_width, &indices, &values, &dense, &want, pici_py_u64, &s->out.run,
                          &result)) {
        PyMem_Free(s);
        return NULL;
    }
    s->dtype = (enum pici_dtype)dtype;
    s->out.want = (enum pici_stream_form)want;
    PyObject *capsule = fill(s, indices, values, dense, result) ? PyCapsule_New(s, SPARSE, sparse_free) : NULL;
    if (!capsule) {
        drop(s);
        PyMem_Free(s);
    }
    return capsule;
}

/* An array of a result: (address, bytes). */
static PyObject *array_of(const void *p, uint64_t bytes)
{
    return Py_BuildValue("NK", PyLong_FromVoidPtr((void *)(uintptr_t)p), (unsigned long long)bytes);
}

/* sparse_result(sparse) -> (form, nnz, index_width, indices, values, dense): the result of the ended call. Arrays are
 * (address, bytes), in memory that the capsule owns; without elements the address is 0. dense: None if the caller
 * passed it. ValueError: there is no result. Drops the references to the caller's arrays. */
static PyObject *sparse_result(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct sparse *s = pici_py_sparse(capsule);
    if (!s)
        return NULL;
    if (!s->ended) {
        PyErr_SetString(PyExc_ValueError, "there is no result: the call has not ended, or failed");
        return NULL;
    }
    const struct pici_stream_out *out = &s->out;
    const uint64_t width = lib.dtype_width(s->dtype);
    const bool rows = out->form == PICI_STREAM_SPARSE;
    const uint64_t nnz = rows ? out->nnz : 0;
    PyObject *result = Py_BuildValue("iKiNNN", (int)out->form, (unsigned long long)nnz, out->index_width,
                                     array_of(out->indices, nnz * (uint64_t)out->index_width),
                                     array_of(out->values, nnz * out->run * width),
                                     rows || !out->owned ? Py_BuildValue("") : array_of(out->dense, out->n * width));
    drop(s);
    return result;
}

PyMethodDef pici_py_sparse_functions[] = {
    {"sparse", sparse, METH_VARARGS, NULL},
    {"sparse_result", sparse_result, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
