/* SPDX-License-Identifier: BSD-3-Clause */
#include "_sinks.h"

#include <errno.h>

/* End a callback: returns 0, or an errno value if an exception is set. The first exception becomes the attribute
 * `failure` of the stream; the library call that failed because of it raises it. Runs no Python code that a signal
 * could interrupt. */
static int ended(PyObject *stream, bool ok)
{
    if (ok)
        return 0;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    PyObject *first = PyObject_GetAttrString(stream, "failure");
    if (!first || (first == Py_None && PyObject_SetAttrString(stream, "failure", value)))
        PyErr_WriteUnraisable(stream);
    Py_DecRef(first);
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(trace);
    return EIO;
}

/* A pici_write_fn. stream: a Sink of _streams.py. */
static int stream_write(void *stream, const void *p, size_t n)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallMethod(stream, "write", "y#", (const char *)p, (Py_ssize_t)n);
    const int e = ended(stream, result != NULL);
    Py_DecRef(result);
    PyGILState_Release(state);
    return e;
}

int pici_py_read_at(void *source, void *p, size_t n, uint64_t offset)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *data = PyObject_CallMethod(source, "read_at", "nK", (Py_ssize_t)n, (unsigned long long)offset);
    char *from;
    Py_ssize_t given;
    bool ok = data && !PyBytes_AsStringAndSize(data, &from, &given);
    if (ok && (size_t)given != n) {
        PyErr_Format(PyExc_ValueError, "read_at() returned %zd bytes, not %zu", given, n);
        ok = false;
    }
    if (ok)
        memcpy(p, from, n);
    const int e = ended(source, ok);
    Py_DecRef(data);
    PyGILState_Release(state);
    return e;
}

/* A pici_write_fn. context: a sink. */
static int room_write(void *context, const void *p, size_t n)
{
    struct sink *s = context;
    if (n > s->room.bytes - s->at) {
        s->too_long = true;
        return ENOSPC;
    }
    memcpy((char *)s->room.p + s->at, p, n);
    s->at += n;
    return 0;
}

bool pici_py_stream(struct sink *s, PyObject *o)
{
    *s = (struct sink){.write = stream_write, .context = o};
    if (pici_py_is_handle(OUTFILE, o)) {
        s->write = lib.outfile_write;
        s->context = pici_py_handled(OUTFILE, o);
        return s->context != NULL;
    }
    if (PyObject_HasAttrString(o, "write"))
        return true;
    PyErr_Format(PyExc_TypeError, "%R is not written to", o);
    return false;
}

bool pici_py_sink(struct sink *s, PyObject *o)
{
    if (pici_py_is_handle(OUTFILE, o) || PyObject_HasAttrString(o, "write"))
        return pici_py_stream(s, o);
    *s = (struct sink){.write = room_write, .context = s};
    return pici_py_find(&s->room, o, true);
}
