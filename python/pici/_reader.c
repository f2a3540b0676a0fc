/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading files, and views of their tensors. Functions release the GIL whenever the library may read. file.py ensures
 * that one thread at a time uses a reader. */
#include <errno.h>

#include "_functions.h"
#include "_sinks.h"

static const char VIEW[] = "pici.view", KEY_DTYPE[] = "source.dtype", KEY_ORDER[] = "source.order";

static PyObject *failed(struct pici_reader *r, enum pici_status s, int code)
{
    return pici_py_failed(s, code, lib.reader_error(r), lib.reader_error_offset(r));
}

/* The result of a reader's _open function, as a handle. */
static PyObject *opened(struct pici_reader *r, enum pici_status s, int code, PyObject *kept)
{
    if (!s)
        return pici_py_handle(READER, r, kept);
    PyObject *result = failed(r, s, code);
    lib.reader_close(r);
    return result;
}

/* reader_open_path(path, threads) -> a reader of the file at path (bytes); or Failed. */
static PyObject *open_path(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_reader *r = NULL;
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    const char *path;
    if (!PyArg_ParseTuple(args, "yO&", &path, pici_py_u31, &opts.threads))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.reader_open_path(&r, path, &opts);
    const int code = errno;
    PyEval_RestoreThread(state);
    return opened(r, s, code, NULL);
}

/* reader_open_memory(data, threads) -> a reader of bytes; or Failed. */
static PyObject *open_memory(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_reader *r = NULL;
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    PyObject *data;
    struct memory m;
    if (!PyArg_ParseTuple(args, "SO&", &data, pici_py_u31, &opts.threads) || !pici_py_find(&m, data, false))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.reader_open_memory(&r, m.p, m.bytes, &opts);
    PyEval_RestoreThread(state);
    return opened(r, s, 0, data);
}

/* reader_open_stream(source, bytes, threads) -> a reader of a Source of _streams.py with this number of bytes; or
 * Failed. */
static PyObject *open_stream(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_reader *r = NULL;
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    PyObject *source;
    uint64_t bytes;
    if (!PyArg_ParseTuple(args, "OO&O&", &source, pici_py_u64, &bytes, pici_py_u31, &opts.threads))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.reader_open_at(&r, pici_py_read_at, source, bytes, &opts);
    const int code = errno;
    PyEval_RestoreThread(state);
    return opened(r, s, code, source);
}

static PyObject *text(const char *p, size_t n)
{
    return PyUnicode_DecodeUTF8(p, (Py_ssize_t)n, "surrogateescape");
}

/* Append to a list, and drop o, which may be NULL. */
static bool append(PyObject *list, PyObject *o)
{
    const bool ok = o && !PyList_Append(list, o);
    Py_DecRef(o);
    return ok;
}

/* ---- names */

/* Whether the original has the name of a stored tensor. A name that a view has too means the view. */
static enum pici_status is_shown(struct pici_reader *r, const struct pici_tensor_info *t, bool views, bool *shown)
{
    struct pici_view v = PICI_VIEW_INIT;
    int shadowed = 0, unnamed = 0;
    enum pici_status s = views ? lib.reader_find_view(r, t->name, t->name_len, &v, &shadowed) : PICI_OK;
    s = s ? s : lib.reader_is_unnamed(r, t->name, t->name_len, &unnamed);
    *shown = !shadowed && !unnamed;
    return s;
}

/* The number of a reader's tensors, and of its views. */
static enum pici_status count(struct pici_reader *r, uint64_t *tensors, uint64_t *views)
{
    PyThreadState *state = PyEval_SaveThread();
    enum pici_status s = lib.reader_view_count(r, views);
    s = s ? s : lib.reader_count(r, tensors);
    PyEval_RestoreThread(state);
    return s;
}

/* Append the names of tensor i and of its views, from view *at on. On false an exception is set, or *s is a failure. */
static bool append_names(PyObject *names, struct pici_reader *r, uint64_t i, uint64_t views, uint64_t *at,
                         enum pici_status *s)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    bool shown;
    *s = lib.reader_tensor(r, i, &t);
    *s = *s ? *s : is_shown(r, &t, views > 0, &shown);
    if (*s || (shown && !append(names, text(t.name, t.name_len))))
        return false;
    for (; *at < views; ++*at) {
        struct pici_view v = PICI_VIEW_INIT;
        *s = lib.reader_view(r, *at, &v);
        if (*s)
            return false;
        if (v.tensor != i)
            break;
        if (!append(names, text(v.name, v.name_len)))
            return false;
    }
    return true;
}

/* reader_names(reader) -> the names of all tensors; names of views follow their storage; or Failed. */
static PyObject *reader_names(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_reader *r = pici_py_handle_enter(READER, o);
    uint64_t tensors = 0, views = 0, at = 0;
    if (!r)
        return NULL;
    enum pici_status s = count(r, &tensors, &views);
    PyObject *names = s ? NULL : PyList_New(0);
    bool ok = names != NULL;
    for (uint64_t i = 0; ok && i < tensors; i++) /* the descriptions are in memory */
        ok = append_names(names, r, i, views, &at, &s);
    if (!ok) {
        Py_DecRef(names);
        names = s ? failed(r, s, 0) : NULL;
    }
    return pici_py_handle_leave(o, names);
}

/* ---- one tensor */

/* The description of a found tensor. */
struct found {
    struct pici_tensor_info info; /* the stored tensor */
    struct pici_view view;
    int is_view;
    struct pici_attr dtype, order; /* its attributes, if it is not a view */
};

/* The attributes of a found stored tensor. */
static enum pici_status find_words(struct pici_reader *r, struct found *f)
{
    if (!f->info.attrs)
        return PICI_OK;
    const enum pici_status s = lib.reader_attr(r, f->info.index, KEY_DTYPE, &f->dtype);
    return s ? s : lib.reader_attr(r, f->info.index, KEY_ORDER, &f->order);
}

/* PICI_E_ARG: there is no such tensor. */
static enum pici_status find(struct pici_reader *r, const char *name, size_t n, struct found *f)
{
    uint64_t views = 0;
    int unnamed = 0;
    enum pici_status s = lib.reader_view_count(r, &views);
    if (!s && views)
        s = lib.reader_find_view(r, name, n, &f->view, &f->is_view);
    if (s)
        return s;
    if (f->is_view)
        return lib.reader_tensor(r, f->view.tensor, &f->info);
    s = lib.reader_is_unnamed(r, name, n, &unnamed);
    if (s || unnamed)
        return s ? s : PICI_E_ARG;
    s = lib.reader_find(r, name, n, &f->info);
    return s ? s : find_words(r, f);
}

static void view_free(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, VIEW));
}

/* A view as the members of View in _strided.py; None if there is none. */
static PyObject *view_of(const struct found *f)
{
    if (!f->is_view)
        return Py_BuildValue("");
    struct pici_view *v = PyMem_Malloc(sizeof *v);
    if (!v)
        return PyErr_NoMemory();
    *v = f->view;
    v->name = v->word = NULL; /* which end with the reader */
    PyObject *capsule = PyCapsule_New(v, VIEW, view_free);
    if (!capsule) {
        PyMem_Free(v);
        return NULL;
    }
    typedef unsigned long long number;
    return Py_BuildValue("NiiNNKKKKNN", capsule, (int)v->dtype, (int)v->tensor_dtype, pici_py_tuple(v->shape, v->rank),
                         pici_py_tuple(v->strides, v->rank), (number)v->offset, (number)v->count,
                         (number)v->stored_first, (number)v->stored_count, PyBool_FromLong(v->conjugate),
                         PyBool_FromLong(v->negative));
}

static PyObject *bytes_of(const struct pici_attr *a)
{
    return PyBytes_FromStringAndSize(a->len ? a->value : "", (Py_ssize_t)a->len);
}

/* The members of Found in file.py. */
static PyObject *found_as(const struct found *f)
{
    typedef unsigned long long number;
    const struct pici_tensor_info *t = &f->info;
    const struct pici_view *v = &f->view;
    return Py_BuildValue(
        "KNiNKIKKiNNN", (number)t->index, f->is_view ? text(v->name, v->name_len) : text(t->name, t->name_len),
        (int)(f->is_view ? v->dtype : t->dtype),
        f->is_view ? pici_py_tuple(v->shape, v->rank) : pici_py_tuple(t->shape, t->rank),
        (number)(f->is_view ? v->count : t->count), (unsigned)t->chunk_elements, (number)t->stored_bytes,
        (number)t->count, (int)t->dtype, f->is_view ? PyBytes_FromString(v->word) : bytes_of(&f->dtype),
        bytes_of(&f->order), view_of(f));
}

/* reader_find(reader, name) -> the description of the tensor with this name; None if there is none; or Failed.
 * reader_stored(reader, index): the same for a stored tensor, by its number. */
static PyObject *reader_find(PyObject *self, PyObject *args)
{
    (void)self;
    struct found f = {.info = PICI_TENSOR_INFO_INIT, .view = PICI_VIEW_INIT};
    PyObject *o, *name;
    if (!PyArg_ParseTuple(args, "OU", &o, &name))
        return NULL;
    PyObject *key = pici_py_handled(READER, o) ? PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape") : NULL;
    if (!key && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear(); /* no name in a file has such a character */
        return Py_BuildValue("");
    }
    char *p;
    Py_ssize_t n;
    struct pici_reader *r = key && !PyBytes_AsStringAndSize(key, &p, &n) ? pici_py_handle_enter(READER, o) : NULL;
    if (!r) {
        Py_DecRef(key);
        return NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = find(r, p, (size_t)n, &f);
    const int code = errno;
    PyEval_RestoreThread(state);
    Py_DecRef(key);
    return pici_py_handle_leave(o, s == PICI_E_ARG ? Py_BuildValue("") : s ? failed(r, s, code) : found_as(&f));
}

/* PICI_E_ARG: there is no such tensor. */
static enum pici_status find_stored(struct pici_reader *r, uint64_t index, struct found *f)
{
    uint64_t tensors = 0;
    enum pici_status s = lib.reader_count(r, &tensors);
    if (s || index >= tensors)
        return s ? s : PICI_E_ARG;
    s = lib.reader_tensor(r, index, &f->info);
    return s ? s : find_words(r, f);
}

static PyObject *reader_stored(PyObject *self, PyObject *args)
{
    (void)self;
    struct found f = {.info = PICI_TENSOR_INFO_INIT, .view = PICI_VIEW_INIT};
    PyObject *o;
    uint64_t index;
    if (!PyArg_ParseTuple(args, "OO&", &o, pici_py_u64, &index))
        return NULL;
    struct pici_reader *r = pici_py_handle_enter(READER, o);
    if (!r)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = find_stored(r, index, &f);
    const int code = errno;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, s == PICI_E_ARG ? Py_BuildValue("") : s ? failed(r, s, code) : found_as(&f));
}

/* reader_attrs(reader, index) -> the attributes of a tensor, or of the file (None), by key; or Failed. */
static PyObject *reader_attrs(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *index;
    uint64_t i = PICI_FILE;
    uint32_t n = 0;
    if (!PyArg_ParseTuple(args, "OO", &o, &index) || (index != Py_None && !pici_py_u64(index, &i)))
        return NULL;
    struct pici_reader *r = pici_py_handle_enter(READER, o);
    if (!r)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    enum pici_status s = lib.reader_attr_count(r, i, &n); /* which reads them */
    const int code = errno;
    PyEval_RestoreThread(state);
    PyObject *found = s ? NULL : PyDict_New();
    bool ok = found != NULL;
    for (uint32_t k = 0; ok && k < n; k++) {
        struct pici_attr a;
        s = lib.reader_attr_at(r, i, k, &a);
        PyObject *key = s ? NULL : text(a.key, strlen(a.key)), *value = s ? NULL : bytes_of(&a);
        ok = key && value && !PyObject_SetItem(found, key, value);
        Py_DecRef(key);
        Py_DecRef(value);
    }
    if (!ok) {
        Py_DecRef(found);
        found = s ? failed(r, s, code) : NULL;
    }
    return pici_py_handle_leave(o, found);
}

/* reader_read(reader, index, first, count, out) -> None, or Failed. out: an array for these elements. */
static PyObject *reader_read(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    PyObject *o, *out_object;
    uint64_t index, first, n;
    struct memory out;
    if (!PyArg_ParseTuple(args, "OO&O&O&O", &o, pici_py_u64, &index, pici_py_u64, &first, pici_py_u64, &n, &out_object))
        return NULL;
    struct pici_reader *r = pici_py_handled(READER, o);
    if (!r || !pici_py_find(&out, out_object, true))
        return NULL;
    enum pici_status s = lib.reader_tensor(r, index, &t);
    if (s)
        return failed(r, s, 0);
    const size_t width = lib.dtype_width(t.dtype);
    if (out.bytes % width || out.bytes / width != n)
        return PyErr_Format(PyExc_ValueError, "%zu bytes are not the elements that are read", out.bytes);
    if (!pici_py_handle_enter(READER, o))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    s = lib.reader_read_range(r, index, first, n, out.p);
    const int code = errno;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, s ? failed(r, s, code) : Py_BuildValue(""));
}

/* reader_verify(reader) -> None, or Failed. */
static PyObject *reader_verify(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_reader *r = pici_py_handle_enter(READER, o);
    if (!r)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.reader_verify(r);
    const int code = errno;
    PyEval_RestoreThread(state);
    return pici_py_handle_leave(o, s ? failed(r, s, code) : Py_BuildValue(""));
}

/* view_copy(view, stored, stored_first, first, count, out) -> a status. view: the first member of a View; stored: an
 * array of elements of its storage, from element stored_first on; out: an array for these elements. */
static PyObject *view_copy(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *stored_object, *out_object;
    uint64_t stored_first, first, n;
    struct memory stored, out;
    if (!PyArg_ParseTuple(args, "OOO&O&O&O", &o, &stored_object, pici_py_u64, &stored_first, pici_py_u64, &first,
                          pici_py_u64, &n, &out_object))
        return NULL;
    const struct pici_view *given = PyCapsule_GetPointer(o, VIEW);
    if (!given || !pici_py_find(&stored, stored_object, false) || !pici_py_find(&out, out_object, true))
        return NULL;
    struct pici_view v = *given;
    const size_t width = lib.dtype_width(v.dtype);
    const uint64_t before = v.stored_first - stored_first, have = stored.bytes / lib.dtype_width(v.tensor_dtype);
    if (stored_first > v.stored_first || before > have || have - before < v.stored_count || out.bytes % width ||
        out.bytes / width != n) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not match the view's elements");
        return NULL;
    }
    v.stored_first = stored_first;
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.view_copy(&v, stored.p, first, n, out.p);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(s);
}

PyMethodDef pici_py_reader_functions[] = {
    {"reader_open_path", open_path, METH_VARARGS, NULL},
    {"reader_open_memory", open_memory, METH_VARARGS, NULL},
    {"reader_open_stream", open_stream, METH_VARARGS, NULL},
    {"reader_names", reader_names, METH_O, NULL},
    {"reader_find", reader_find, METH_VARARGS, NULL},
    {"reader_stored", reader_stored, METH_VARARGS, NULL},
    {"reader_attrs", reader_attrs, METH_VARARGS, NULL},
    {"reader_read", reader_read, METH_VARARGS, NULL},
    {"reader_verify", reader_verify, METH_O, NULL},
    {"view_copy", view_copy, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
