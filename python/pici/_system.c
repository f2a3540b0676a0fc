/* SPDX-License-Identifier: BSD-3-Clause
 *
 * System calls that Python's modules lack, or make without releasing the GIL. */
#define _GNU_SOURCE /* madvise, syscall */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "_functions.h"
#include "_objects.h"

/* advise(address, bytes, advice) -> 0, or a value of errno: madvise(2). */
static PyObject *advise(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *address;
    uint64_t bytes;
    int advice;
    if (!PyArg_ParseTuple(args, "OO&i", &address, pici_py_u64, &bytes, &advice))
        return NULL;
    void *begin = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const int code = madvise(begin, (size_t)bytes, advice) ? errno : 0;
    PyEval_RestoreThread(state);
    return PyLong_FromLong(code);
}

struct mapping {
    void *begin;
    size_t bytes;
};

static void unmap(PyObject *capsule)
{
    struct mapping *m = PyCapsule_GetPointer(capsule, "pici.mapping");
    (void)munmap(m->begin, m->bytes);
    PyMem_Free(m);
}

/* map_file(fd, bytes) -> (mapping, address): maps the first bytes of a file read-only, while the mapping lives. Unlike
 * mmap.mmap it keeps no descriptor. OSError. */
static PyObject *map_file(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    uint64_t bytes;
    if (!PyArg_ParseTuple(args, "iO&", &fd, pici_py_u64, &bytes))
        return NULL;
    void *begin = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (begin == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    struct mapping *m = PyMem_Malloc(sizeof *m);
    if (m)
        *m = (struct mapping){begin, (size_t)bytes};
    PyObject *capsule = m ? PyCapsule_New(m, "pici.mapping", unmap) : PyErr_NoMemory();
    if (!capsule) {
        (void)munmap(begin, (size_t)bytes);
        PyMem_Free(m);
        return NULL;
    }
    return Py_BuildValue("NN", capsule, PyLong_FromVoidPtr(begin));
}

/* rename_with(from, to, flags) -> 0, or a value of errno: renameat2(2). ENOSYS: the system does not have it. */
static PyObject *rename_with(PyObject *self, PyObject *args)
{
    (void)self;
    const char *from, *to;
    int flags;
    if (!PyArg_ParseTuple(args, "yyi", &from, &to, &flags))
        return NULL;
#ifdef SYS_renameat2
    enum { HERE = -100 }; /* AT_FDCWD */
    PyThreadState *state = PyEval_SaveThread();
    const int code = syscall(SYS_renameat2, HERE, from, HERE, to, flags) ? errno : 0;
    PyEval_RestoreThread(state);
    return PyLong_FromLong(code);
#else
    return PyLong_FromLong(ENOSYS);
#endif
}

PyMethodDef pici_py_system_functions[] = {
    {"advise", advise, METH_VARARGS, NULL},
    {"map_file", map_file, METH_VARARGS, NULL},
    {"rename_with", rename_with, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
