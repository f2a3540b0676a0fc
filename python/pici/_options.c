/* SPDX-License-Identifier: BSD-3-Clause */
#include "_options.h"

#include "_functions.h"

static const char OPTS[] = "pici.opts", VALUES[] = "pici.values";

static void box_free(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

/* A capsule with a copy of a struct. */
static PyObject *boxed(const char *name, const void *p, size_t n)
{
    void *copy = PyMem_Malloc(n);
    if (!copy)
        return PyErr_NoMemory();
    memcpy(copy, p, n);
    PyObject *capsule = PyCapsule_New(copy, name, box_free);
    if (!capsule)
        PyMem_Free(copy);
    return capsule;
}

/* coll_opts(*, ...) -> options of calls. Missing arguments have their defaults. */
static PyObject *coll_opts(PyObject *self, PyObject *args, PyObject *named)
{
    (void)self;
    static const char *const names[] = {"algorithm", "format", "timeout_ms", "density", "latency",
                                        "native",    "zeros",  "pack",       "balance", NULL};
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    int algorithm = opts.algorithm, format = opts.format, zeros = opts.zeros, pack = opts.pack;
    int balance = opts.balance;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$iiiddiiii", (char **)(uintptr_t)names, &algorithm, &format,
                                     &opts.timeout_ms, &opts.density, &opts.latency, &opts.native, &zeros, &pack,
                                     &balance))
        return NULL;
    opts.algorithm = (enum pici_algorithm)algorithm;
    opts.format = (enum pici_format)format;
    opts.zeros = (enum pici_zeros)zeros;
    opts.pack = (enum pici_packing)pack;
    opts.balance = (enum pici_balance)balance;
    return boxed(OPTS, &opts, sizeof opts);
}

/* values(*, ...) -> a lossy codec. Missing arguments have their defaults. */
static PyObject *values_of(PyObject *self, PyObject *args, PyObject *named)
{
    (void)self;
    static const char *const names[] = {"codec", "phases", "cast",      "bits", "norm", "rounding", "bucket",
                                        "seed",  "rate",   "tolerance", "nx",   "ny",   NULL};
    struct pici_values v = PICI_VALUES_INIT;
    int codec = v.codec, cast = v.cast, norm = v.norm, rounding = v.rounding;
    uint32_t phases = v.phases;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$iO&iO&iiO&O&ddO&O&", (char **)(uintptr_t)names, &codec,
                                     pici_py_u32, &phases, &cast, pici_py_u31, &v.bits, &norm, &rounding, pici_py_u32,
                                     &v.bucket, pici_py_u64, &v.seed, &v.rate, &v.tolerance, pici_py_u32, &v.nx,
                                     pici_py_u32, &v.ny))
        return NULL;
    v.codec = (enum pici_value_codec)codec;
    v.phases = phases;
    v.cast = (enum pici_dtype)cast;
    v.norm = (enum pici_norm)norm;
    v.rounding = (enum pici_rounding)rounding;
    return boxed(VALUES, &v, sizeof v);
}

const struct pici_coll_opts *pici_py_coll_opts(PyObject *o)
{
    return PyCapsule_GetPointer(o, OPTS);
}

const struct pici_values *pici_py_values(PyObject *o)
{
    return PyCapsule_GetPointer(o, VALUES);
}

PyMethodDef pici_py_option_functions[] = {
    {"coll_opts", PICI_WITH_NAMES(coll_opts), METH_VARARGS | METH_KEYWORDS, NULL},
    {"values", PICI_WITH_NAMES(values_of), METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};
