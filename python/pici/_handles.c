/* SPDX-License-Identifier: BSD-3-Clause */
#include "_handles.h"

#include <sys/types.h>
#include <unistd.h>

#include "_functions.h"

static const char *const NAMES[] = {
    [READER] = "pici.reader", [WRITER] = "pici.writer", [OUTFILE] = "pici.outfile", [STATE] = "pici.state",
    [DELTAS] = "pici.deltas", [LOG] = "pici.log",       [UPDATE] = "pici.update",
};

struct held {
    enum handle kind;
    void *made;     /* NULL: closed */
    PyObject *kept; /* a list of the objects that it uses; or NULL */
    int users;      /* open handles that use this one */
    bool busy;      /* a thread is in a call on it, without the GIL */
    bool stop;      /* another thread closed it meanwhile: the thread in the call must free it */
    pid_t pid;      /* of the process that made it */
};

/* The contents of a handle; NULL if the object is not a handle. */
static struct held *held_of(PyObject *o)
{
    for (enum handle kind = READER; kind <= UPDATE; kind++)
        if (pici_py_is_handle(kind, o))
            return PyCapsule_GetPointer(o, NAMES[kind]);
    return NULL;
}

static void free_made(enum handle kind, void *made)
{
    switch (kind) {
    case READER: lib.reader_close(made); break;
    case WRITER: lib.writer_close(made); break;
    case OUTFILE: lib.outfile_abort(made); break;
    case STATE: lib.state_free(made); break;
    case DELTAS: lib.deltas_free(made); break;
    case LOG: lib.log_close(made); break;
    case UPDATE: lib.update_free(made); break;
    }
}

/* Whether this is a forked child's copy of a handle that its parent still uses. The copy must not remove a file in
 * progress, and does not have a writer's threads. */
static bool is_of_parent(const struct held *h)
{
    return (h->kind == WRITER || h->kind == OUTFILE) && h->pid != getpid();
}

/* Free the contents, and then drop the objects that it used. Keeps a set exception. */
static void shut(struct held *h)
{
    void *made = h->made;
    PyObject *kept = h->kept;
    h->made = NULL;
    h->kept = NULL;
    if (made && !is_of_parent(h)) {
        PyThreadState *state = PyEval_SaveThread();
        free_made(h->kind, made);
        PyEval_RestoreThread(state);
    }
    for (Py_ssize_t i = 0; kept && i < PyList_Size(kept); i++) {
        struct held *used = held_of(PyList_GetItem(kept, i));
        if (!used)
            continue;
        used->users--;
        if (h->stop && used->kind == OUTFILE)
            shut(used); /* of a writer abandoned during a call */
    }
    Py_DecRef(kept);
}

static void drop(PyObject *capsule)
{
    struct held *h = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    shut(h);
    PyMem_Free(h);
}

static bool keep(struct held *h, PyObject *kept)
{
    if (!h->kept)
        h->kept = PyList_New(0);
    if (!h->kept || PyList_Append(h->kept, kept))
        return false;
    struct held *used = held_of(kept);
    if (used)
        used->users++;
    return true;
}

PyObject *pici_py_handle(enum handle kind, void *made, PyObject *kept)
{
    struct held *h = PyMem_Malloc(sizeof *h);
    if (h)
        *h = (struct held){.kind = kind, .made = made, .pid = getpid()};
    PyObject *capsule = h ? PyCapsule_New(h, NAMES[kind], drop) : PyErr_NoMemory();
    if (!capsule) {
        free_made(kind, made);
        PyMem_Free(h);
        return NULL;
    }
    if (kept && !keep(h, kept)) {
        Py_DecRef(capsule);
        return NULL;
    }
    return capsule;
}

bool pici_py_is_handle(enum handle kind, PyObject *o)
{
    return PyCapsule_IsValid(o, NAMES[kind]);
}

/* The contents of an open handle that no thread is calling. */
static struct held *opened(enum handle kind, PyObject *o)
{
    if (!pici_py_is_handle(kind, o)) {
        PyErr_Format(PyExc_TypeError, "%R is no %s", o, NAMES[kind]);
        return NULL;
    }
    struct held *h = PyCapsule_GetPointer(o, NAMES[kind]);
    if (!h->made || h->stop) {
        PyErr_Format(PyExc_ValueError, "the %s is closed", NAMES[kind]);
        return NULL;
    }
    if (h->busy) {
        PyErr_Format(PyExc_ValueError, "another thread is in a call on the %s", NAMES[kind]);
        return NULL;
    }
    return h;
}

void *pici_py_handled(enum handle kind, PyObject *o)
{
    struct held *h = opened(kind, o);
    return h ? h->made : NULL;
}

void *pici_py_handle_enter(enum handle kind, PyObject *o)
{
    struct held *h = opened(kind, o);
    if (!h)
        return NULL;
    h->busy = true;
    return h->made;
}

PyObject *pici_py_handle_leave(PyObject *o, PyObject *result)
{
    struct held *h = held_of(o);
    h->busy = false;
    if (h->stop)
        shut(h);
    return result;
}

bool pici_py_handle_keep(enum handle kind, PyObject *o, PyObject *kept)
{
    struct held *h = opened(kind, o);
    return h && keep(h, kept);
}

/* Whether no other handle uses this one. If one does, an exception is set. */
static bool is_free(const struct held *h)
{
    if (h->users)
        PyErr_Format(PyExc_ValueError, "the %s is in use", NAMES[h->kind]);
    return !h->users;
}

void *pici_py_handle_take(enum handle kind, PyObject *o)
{
    struct held *h = opened(kind, o);
    if (!h || !is_free(h))
        return NULL;
    void *made = h->made;
    h->made = NULL;
    return made;
}

/* close(handle) -> whether it is closed now. Frees its contents: a reader, a writer, an unfinished file, a state, a row
 * of deltas or a log. Does nothing if it is closed. If another thread is in a call on it, that thread frees it, and a
 * writer's file, at the end of the call. */
static PyObject *close_handle(PyObject *self, PyObject *o)
{
    (void)self;
    struct held *h = held_of(o);
    if (!h)
        return PyErr_Format(PyExc_TypeError, "%R is no handle", o);
    if (!is_free(h))
        return NULL;
    if (h->busy)
        h->stop = true;
    else
        shut(h);
    return PyBool_FromLong(!h->busy);
}

PyMethodDef pici_py_handle_functions[] = {
    {"close", close_handle, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
