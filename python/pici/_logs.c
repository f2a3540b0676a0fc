/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas. Paths are bytes. One thread uses a log. */
#include <errno.h>

#include "_functions.h"
#include "_states.h"

/* log_create(folder, state, extension, pack, threads) -> None, or Failed. pack: 0 for a base that is a copy. */
static PyObject *log_create(PyObject *self, PyObject *args)
{
    (void)self;
    const char *folder, *extension;
    PyObject *o;
    int pack;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "yOyiO&", &folder, &o, &extension, &pack, pici_py_u31, &opts.threads))
        return NULL;
    opts.pack = (enum pici_pack)pack;
    struct pici_state *base = pici_py_handled(STATE, o);
    if (!base)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = pack ? lib.log_create_packed(folder, base, extension, &opts, why)
                                    : lib.log_create(folder, base, extension, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : Py_BuildValue("");
}

/* log_open(folder, write) -> a log, or Failed. */
static PyObject *log_open(PyObject *self, PyObject *args)
{
    (void)self;
    const char *folder;
    int write;
    char why[PICI_WHY_BYTES] = "";
    struct pici_log *log = NULL;
    if (!PyArg_ParseTuple(args, "yp", &folder, &write))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.log_open(&log, folder, write, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : pici_py_handle(LOG, log, NULL);
}

/* log_info(log) -> the numbers of its oldest state, its base and its newest state; the stored bytes of the base. */
static PyObject *log_info(PyObject *self, PyObject *o)
{
    (void)self;
    const struct pici_log *log = pici_py_handled(LOG, o);
    struct pici_log_info info = PICI_LOG_INFO_INIT;
    if (!log)
        return NULL;
    (void)lib.log_get_info(log, &info); /* which does not fail */
    typedef unsigned long long number;
    return Py_BuildValue("KKKK", (number)info.first, (number)info.base, (number)info.newest, (number)info.stored_bytes);
}

/* log_state(log, number) -> bytes of a state's file, and of the delta that leads to it; or Failed. */
static PyObject *log_state(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o;
    uint64_t number;
    struct pici_log_state found = PICI_LOG_STATE_INIT;
    if (!PyArg_ParseTuple(args, "OO&", &o, pici_py_u64, &number))
        return NULL;
    const struct pici_log *log = pici_py_handled(LOG, o);
    if (!log)
        return NULL;
    const enum pici_status s = lib.log_get_state(log, number, &found);
    return s ? pici_py_failed(s, 0, NULL, 0)
             : Py_BuildValue("KK", (unsigned long long)found.bytes, (unsigned long long)found.delta_bytes);
}

/* log_append(log, newest, next, opts) -> None, or Failed. opts: as for diff_states(). */
static PyObject *log_append(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o;
    struct pici_state *newest, *next;
    struct pici_diff_opts opts;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "OO&O&O&", &o, pici_py_state, &newest, pici_py_state, &next, pici_py_diff_opts, &opts))
        return NULL;
    struct pici_log *log = pici_py_handled(LOG, o);
    if (!log)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.log_append(log, newest, next, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : Py_BuildValue("");
}

/* The state to start from: the path of a file, a state, or None. */
static bool read_given(PyObject *given, char **path, struct pici_state **state)
{
    if (given == Py_None)
        return true;
    if (PyBytes_Check(given))
        return !PyBytes_AsStringAndSize(given, path, NULL);
    return pici_py_state(given, state);
}

/* log_apply(log, given, number, out, threads) -> (from, to, written, words), or Failed. Writes the newest reachable
 * state.
 *   given         the state to start from: the path of a file, a state, or None: the base of the log
 *   number        of the given state, if known; or None
 *   out           as for pici_py_sink()
 *   from, to      the numbers of both states; written: bytes, if out is an array
 *   words         the reason why it is not the newest of all; "" if it is */
static PyObject *log_apply(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *given, *number, *out;
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    uint64_t from = PICI_LOG_UNKNOWN, to = 0;
    struct sink sink;
    struct pici_state *held = NULL;
    char why[PICI_WHY_BYTES] = "", *path = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO&", &o, &given, &number, &out, pici_py_u31, &opts.threads) ||
        (number != Py_None && !pici_py_u64(number, &from)) || !pici_py_sink(&sink, out))
        return NULL;
    const struct pici_log *log = pici_py_handled(LOG, o);
    if (!log || !read_given(given, &path, &held))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = held ? lib.log_apply_state(log, held, sink.write, sink.context, &from, &to, &opts, why)
                                    : lib.log_apply(log, path, sink.write, sink.context, &from, &to, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    if (sink.too_long)
        return pici_py_too_long();
    if (s)
        return pici_py_failed(s, code, why, 0);
    typedef unsigned long long written;
    return Py_BuildValue("KKKN", (written)from, (written)to, (written)sink.at,
                         PyUnicode_DecodeUTF8(why, (Py_ssize_t)strlen(why), "replace"));
}

/* log_compact(log, threads) -> None, or Failed. */
static PyObject *log_compact(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o;
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "OO&", &o, pici_py_u31, &opts.threads))
        return NULL;
    struct pici_log *log = pici_py_handled(LOG, o);
    if (!log)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.log_compact(log, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : Py_BuildValue("");
}

PyMethodDef pici_py_log_functions[] = {
    {"log_create", log_create, METH_VARARGS, NULL},
    {"log_open", log_open, METH_VARARGS, NULL},
    {"log_info", log_info, METH_O, NULL},
    {"log_state", log_state, METH_VARARGS, NULL},
    {"log_append", log_append, METH_VARARGS, NULL},
    {"log_apply", log_apply, METH_VARARGS, NULL},
    {"log_compact", log_compact, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
