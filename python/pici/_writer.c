/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing files, and output files, which are written atomically. */
#include <errno.h>

#include "_functions.h"
#include "_sinks.h"

/* ---- output files */

/* outfile_open(path, force) -> a file that appears at path (bytes) when it is committed; or Failed. */
static PyObject *outfile_open(PyObject *self, PyObject *args)
{
    (void)self;
    const char *path;
    int force;
    struct pici_outfile *out = NULL;
    if (!PyArg_ParseTuple(args, "yp", &path, &force))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.outfile_open(&out, path, force);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, NULL, 0) : pici_py_handle(OUTFILE, out, NULL);
}

/* outfile_write(out, data) -> 0, or a value of errno. */
static PyObject *outfile_write(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *data_object;
    struct memory data;
    if (!PyArg_ParseTuple(args, "OO", &o, &data_object) || !pici_py_find(&data, data_object, false))
        return NULL;
    struct pici_outfile *out = pici_py_handle_enter(OUTFILE, o);
    if (!out)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const int code = data.bytes ? lib.outfile_write(out, data.p, data.bytes) : 0;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, PyLong_FromLong(code));
}

/* outfile_commit(out) -> None, or Failed; out is closed. */
static PyObject *outfile_commit(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_outfile *out = pici_py_handle_take(OUTFILE, o);
    if (!out)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.outfile_commit(out);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, NULL, 0) : Py_BuildValue("");
}

/* ---- writers */

static PyObject *failed(const struct pici_writer *w, enum pici_status s, int code)
{
    return pici_py_failed(s, code, lib.writer_error(w), 0);
}

/* writer_open(out, attrs, format, threads, zstd, chunk_elements, zeros, pack) -> a writer, or Failed.
 *   out     the handle of an output file, or a Sink of _streams.py
 *   attrs   keys and values, bytes
 *   format, zeros, pack   numbers of the enums */
static PyObject *writer_open(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out, *given;
    int format, zeros, pack;
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_writer *w = NULL;
    struct attrs attrs;
    struct sink sink;
    if (!PyArg_ParseTuple(args, "OOiO&O&O&ii", &out, &given, &format, pici_py_u31, &opts.threads, pici_py_u31,
                          &opts.zstd_level, pici_py_u32, &opts.chunk_elements, &zeros, &pack))
        return NULL;
    opts.format = (enum pici_format)format;
    opts.zeros = (enum pici_zeros)zeros;
    opts.pack = (enum pici_pack)pack;
    if (!pici_py_stream(&sink, out) || !pici_py_attrs(&attrs, given))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.writer_open(&w, sink.write, sink.context, attrs.list, attrs.n, &opts);
    const int code = errno;
    PyEval_RestoreThread(state);
    PyMem_Free(attrs.list);
    if (!s)
        return pici_py_handle(WRITER, w, out);
    PyObject *result = failed(w, s, code);
    lib.writer_close(w);
    return result;
}

/* writer_tensor(writer, name, dtype, shape, attrs) -> None, or Failed. name: bytes; shape: a tuple. */
static PyObject *writer_tensor(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *shape, *given;
    const char *name;
    Py_ssize_t name_len;
    int dtype;
    struct attrs attrs;
    uint64_t dims[PICI_RANK_MAX];
    if (!PyArg_ParseTuple(args, "Oy#iOO", &o, &name, &name_len, &dtype, &shape, &given))
        return NULL;
    const Py_ssize_t rank = pici_py_numbers(dims, PICI_RANK_MAX, shape);
    if (rank < 0 || !pici_py_attrs(&attrs, given))
        return NULL;
    struct pici_writer *w = pici_py_handle_enter(WRITER, o);
    if (!w) {
        PyMem_Free(attrs.list);
        return NULL;
    }
    struct pici_tensor t = pici_py_tensor(name, name_len, dtype, rank, dims);
    t.attrs = attrs.list;
    t.n_attrs = attrs.n;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.writer_tensor(w, &t);
    const int code = errno;
    PyEval_RestoreThread(state);
    PyMem_Free(attrs.list);
    return pici_py_handle_leave(o, s ? failed(w, s, code) : Py_BuildValue(""));
}

/* writer_data(writer, elements) -> None, or Failed. */
static PyObject *writer_data(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *elements;
    struct memory data;
    if (!PyArg_ParseTuple(args, "OO", &o, &elements) || !pici_py_find(&data, elements, false))
        return NULL;
    struct pici_writer *w = pici_py_handle_enter(WRITER, o);
    if (!w)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.writer_data(w, data.p, data.bytes);
    const int code = errno;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, s ? failed(w, s, code) : Py_BuildValue(""));
}

/* writer_finish(writer) -> None, or Failed. */
static PyObject *writer_finish(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_writer *w = pici_py_handle_enter(WRITER, o);
    if (!w)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.writer_finish(w);
    const int code = errno;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, s ? failed(w, s, code) : Py_BuildValue(""));
}

PyMethodDef pici_py_writer_functions[] = {
    {"outfile_open", outfile_open, METH_VARARGS, NULL},   {"outfile_write", outfile_write, METH_VARARGS, NULL},
    {"outfile_commit", outfile_commit, METH_O, NULL},     {"writer_open", writer_open, METH_VARARGS, NULL},
    {"writer_tensor", writer_tensor, METH_VARARGS, NULL}, {"writer_data", writer_data, METH_VARARGS, NULL},
    {"writer_finish", writer_finish, METH_O, NULL},       {NULL, NULL, 0, NULL},
};
