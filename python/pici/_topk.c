/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Top-k selection. */
#include "_functions.h"
#include "_objects.h"

/* The memory of an array that must be as long as another; NULL for None. */
static bool like(void **p, PyObject *o, size_t bytes)
{
    struct memory m;
    *p = NULL;
    if (o == Py_None)
        return true;
    if (!pici_py_find(&m, o, true))
        return false;
    if (m.bytes != bytes) {
        PyErr_Format(PyExc_ValueError, "%zu bytes, and the gradient has %zu", m.bytes, bytes);
        return false;
    }
    *p = m.p;
    return true;
}

/* topk(out, residual, velocity, gradient, dtype, (select, bucket, k, density, sample, rate, leak, momentum, seed, step,
 * threads)) -> the number of kept elements, or Failed. residual and velocity may be None. */
static PyObject *topk(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out_object, *residual_object, *velocity_object, *gradient_object;
    int dtype, select;
    struct memory gradient;
    void *out, *residual, *velocity;
    struct pici_topk_opts opts = PICI_TOPK_OPTS_INIT;
    uint64_t nnz = 0;
    if (!PyArg_ParseTuple(args, "OOOOi(iO&O&ddfffO&O&O&)", &out_object, &residual_object, &velocity_object,
                          &gradient_object, &dtype, &select, pici_py_u32, &opts.bucket, pici_py_u32, &opts.k,
                          &opts.density, &opts.sample, &opts.rate, &opts.leak, &opts.momentum, pici_py_u64, &opts.seed,
                          pici_py_u64, &opts.step, pici_py_u31, &opts.threads) ||
        !pici_py_find(&gradient, gradient_object, false) || !like(&out, out_object, gradient.bytes) ||
        !like(&residual, residual_object, gradient.bytes) || !like(&velocity, velocity_object, gradient.bytes))
        return NULL;
    opts.select = (enum pici_select)select;
    const size_t width = lib.dtype_width((enum pici_dtype)dtype);
    if (!width || gradient.bytes % width)
        return PyErr_Format(PyExc_ValueError, "%zu bytes are no elements of dtype %d", gradient.bytes, dtype);
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s =
        lib.topk(out, &nnz, residual, velocity, gradient.p, gradient.bytes / width, (enum pici_dtype)dtype, &opts);
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, 0, NULL, 0) : PyLong_FromUnsignedLongLong(nnz);
}

/* topk_warmup(step, steps_an_epoch) -> a density. */
static PyObject *topk_warmup(PyObject *self, PyObject *args)
{
    (void)self;
    uint64_t step, steps;
    if (!PyArg_ParseTuple(args, "O&O&", pici_py_u64, &step, pici_py_u64, &steps))
        return NULL;
    return PyFloat_FromDouble(lib.topk_warmup(step, steps));
}

PyMethodDef pici_py_selection_functions[] = {
    {"topk", topk, METH_VARARGS, NULL},
    {"topk_warmup", topk_warmup, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
