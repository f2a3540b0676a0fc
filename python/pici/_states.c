/* SPDX-License-Identifier: BSD-3-Clause
 *
 * States, and deltas between them. One thread uses a state or a row. */
#include <errno.h>

#include "_functions.h"
#include "_states.h"

static PyObject *result_of(enum pici_status s, int code, const char *why)
{
    return s ? pici_py_failed(s, code, why, 0) : Py_BuildValue("");
}

/* ---- states */

/* state_new(name, type, head) -> a state without tensors, or Failed. name and head are bytes. */
static PyObject *state_new(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name, *head;
    Py_ssize_t head_len;
    int type;
    struct pici_state *made = NULL;
    if (!PyArg_ParseTuple(args, "yiy#", &name, &type, &head, &head_len))
        return NULL;
    const enum pici_status s =
        lib.state_new(&made, name, (enum pici_state_type)type, head, (size_t)head_len, NULL, NULL);
    return s ? pici_py_failed(s, 0, NULL, 0) : pici_py_handle(STATE, made, NULL);
}

/* state_open(path, type, dtype) -> a file as a state, or Failed. path: bytes. */
static PyObject *state_open(PyObject *self, PyObject *args)
{
    (void)self;
    const char *path;
    int type, dtype;
    char why[PICI_WHY_BYTES] = "";
    struct pici_state *made = NULL;
    if (!PyArg_ParseTuple(args, "yii", &path, &type, &dtype))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.state_open(&made, path, type, (enum pici_dtype)dtype, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : pici_py_handle(STATE, made, NULL);
}

/* Whether a tensor's elements take this number of bytes. */
static bool fits(const struct pici_tensor *t, size_t bytes)
{
    uint64_t need = lib.dtype_width(t->dtype);
    bool none = false;
    for (unsigned i = 0; i < t->rank; i++)
        none = none || !t->shape[i];
    for (unsigned i = 0; i < t->rank && need && !none; i++)
        need = t->shape[i] <= bytes / need ? need * t->shape[i] : 0;
    return none ? !bytes : need && need == bytes;
}

/* state_add(state, name, word, dtype, shape, elements[, part]) -> None, or Failed. Adds a tensor: an array, to which
 * the state refers. name and word are bytes; word is its type as the file names it. part: None, or (rows, row_length,
 * first, count, dim, ...): the array has these columns, as in struct pici_columns, of a tensor of these dimensions. */
static PyObject *state_add(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o, *shape, *elements, *part = Py_None;
    const char *name, *word;
    Py_ssize_t name_len;
    int dtype;
    struct memory data;
    uint64_t dims[PICI_RANK_MAX], whole[4 + PICI_RANK_MAX];
    if (!PyArg_ParseTuple(args, "Oy#yiOO|O", &o, &name, &name_len, &word, &dtype, &shape, &elements, &part) ||
        !pici_py_find(&data, elements, false))
        return NULL;
    struct pici_state *state = pici_py_handled(STATE, o);
    const Py_ssize_t rank = state ? pici_py_numbers(dims, PICI_RANK_MAX, shape) : -1;
    if (rank < 0)
        return NULL;
    const struct pici_attr attr = {"source.dtype", word, strlen(word)};
    struct pici_tensor t = pici_py_tensor(name, name_len, dtype, rank, dims);
    t.attrs = &attr;
    t.n_attrs = 1;
    if (!fits(&t, data.bytes))
        return PyErr_Format(PyExc_ValueError, "%zu bytes are not the elements of the tensor", data.bytes);
    const void *const at = data.bytes ? data.p : "";
    if (part == Py_None)
        return pici_py_handle_keep(STATE, o, elements) ? result_of(lib.state_add(state, &t, at, 0), 0, NULL) : NULL;
    const Py_ssize_t numbers = pici_py_numbers(whole, 4 + PICI_RANK_MAX, part);
    if (numbers < 0)
        return NULL;
    const size_t width = lib.dtype_width(t.dtype);
    const uint64_t n = width ? data.bytes / width : 0;
    if (numbers < 4 || !width || (whole[0] && whole[3] ? n / whole[3] != whole[0] || n % whole[3] : n))
        return PyErr_Format(PyExc_ValueError, "%zu bytes are not the elements of the part", data.bytes);
    if (!pici_py_handle_keep(STATE, o, elements))
        return NULL;
    struct pici_columns columns = PICI_COLUMNS_INIT;
    columns.rows = whole[0];
    columns.row_length = whole[1];
    columns.first = whole[2];
    columns.count = whole[3];
    t.rank = (unsigned)numbers - 4;
    t.shape = whole + 4;
    return result_of(lib.state_add_columns(state, &t, at, &columns), 0, NULL);
}

/* state_type(state) -> a number of enum pici_state_type. */
static PyObject *state_type(PyObject *self, PyObject *o)
{
    (void)self;
    const struct pici_state *state = pici_py_handled(STATE, o);
    return state ? PyLong_FromLong(lib.state_get_type(state)) : NULL;
}

/* state_hash(state) -> the length and the XXH64 of its file, or Failed. */
static PyObject *state_hash(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_state *made = pici_py_handled(STATE, o);
    uint64_t bytes, hash;
    char why[PICI_WHY_BYTES] = "";
    if (!made)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.state_hash(made, &bytes, &hash, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0)
             : Py_BuildValue("KK", (unsigned long long)bytes, (unsigned long long)hash);
}

/* ---- deltas */

int pici_py_diff_opts(PyObject *o, void *to)
{
    struct pici_diff_opts *opts = to;
    int choice, format;
    PyObject *small = Py_None;
    *opts = (struct pici_diff_opts)PICI_DIFF_OPTS_INIT;
    if (!PyTuple_Check(o)) {
        PyErr_Format(PyExc_TypeError, "the options are a tuple, not %R", o);
        return 0;
    }
    if (!PyArg_ParseTuple(o, "iiO&O&|pO", &choice, &format, pici_py_u31, &opts->threads, pici_py_u31, &opts->zstd_level,
                          &opts->list_all, &small))
        return 0;
    if (small != Py_None) { /* the address of a pici_small_fn, of ctypes */
        void *const address = PyLong_AsVoidPtr(small);
        if (!address && PyErr_Occurred())
            return 0;
        memcpy(&opts->small, &address, sizeof address);
    }
    opts->choice = (enum pici_delta_choice)choice;
    opts->format = (enum pici_format)format;
    return 1;
}

int pici_py_state(PyObject *o, void *to)
{
    struct pici_state *const state = pici_py_handled(STATE, o);
    *(struct pici_state **)to = state;
    return state != NULL;
}

/* A converter to a struct pici_deltas *. */
static int to_row(PyObject *o, void *to)
{
    struct pici_deltas *const row = pici_py_handled(DELTAS, o);
    *(struct pici_deltas **)to = row;
    return row != NULL;
}

PyObject *pici_py_too_long(void)
{
    return pici_py_failed(PICI_E_CORRUPT, 0, "the result is longer than the last delta states", 0);
}

/* diff_states(out, base, next, opts) -> None, or Failed. Writes the delta to out, the handle of an output file. opts:
 * as for pici_py_diff_opts(). */
static PyObject *diff_states(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out;
    struct pici_state *base, *next;
    struct pici_diff_opts opts;
    struct sink sink;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "OO&O&O&", &out, pici_py_state, &base, pici_py_state, &next, pici_py_diff_opts,
                          &opts) ||
        !pici_py_sink(&sink, out))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.diff_states(sink.write, sink.context, base, next, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return result_of(s, code, why);
}

/* deltas_new() -> a row without deltas, or Failed. */
static PyObject *deltas_new(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    struct pici_deltas *row = NULL;
    const enum pici_status s = lib.deltas_new(&row);
    return s ? pici_py_failed(s, 0, NULL, 0) : pici_py_handle(DELTAS, row, NULL);
}

/* deltas_add(row, reader, name) -> None, or Failed. Adds a reader's delta; the row refers to the reader. */
static PyObject *deltas_add(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *row_object, *reader_object;
    const char *name;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "OOy", &row_object, &reader_object, &name))
        return NULL;
    struct pici_reader *reader = pici_py_handled(READER, reader_object);
    struct pici_deltas *row = reader ? pici_py_handled(DELTAS, row_object) : NULL;
    if (!row || !pici_py_handle_keep(DELTAS, row_object, reader_object))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.deltas_add(row, reader, name, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return result_of(s, code, why);
}

/* deltas_info(row, reader) -> the state type and the dtype of the base, the bytes of the result's file, and whether
 * that has its own head; or Failed. reader: of the last delta. */
static PyObject *deltas_info(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *reader_object;
    struct pici_deltas *row;
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    if (!PyArg_ParseTuple(args, "O&O", to_row, &row, &reader_object))
        return NULL;
    const struct pici_reader *reader = pici_py_handled(READER, reader_object);
    if (!reader)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.deltas_get_info(row, &info);
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, 0, lib.reader_error(reader), 0)
             : Py_BuildValue("iiKi", (int)info.type, (int)info.dtype, (unsigned long long)info.bytes,
                             info.head != NULL);
}

/* deltas_is_result(row, state) -> whether the state is the result already; or Failed. */
static PyObject *deltas_is_result(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_deltas *row;
    struct pici_state *base;
    int is = 0;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "O&O&", to_row, &row, pici_py_state, &base))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.deltas_is_result(row, base, &is, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : PyBool_FromLong(is);
}

/* apply_deltas(out, base, row, threads) -> None, or Failed. out: as for pici_py_sink(). */
static PyObject *apply_deltas(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out;
    struct pici_state *base;
    struct pici_deltas *row;
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    struct sink sink;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "OO&O&O&", &out, pici_py_state, &base, to_row, &row, pici_py_u31, &opts.threads) ||
        !pici_py_sink(&sink, out))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.apply_deltas(sink.write, sink.context, base, row, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return sink.too_long ? pici_py_too_long() : result_of(s, code, why);
}

/* update_new(base, row, threads) -> the changes of a row of deltas to a state of arrays; or Failed. The caller keeps
 * the arrays, which must be writable. */
static PyObject *update_new(PyObject *self, PyObject *args)
{
    (void)self;
    struct pici_state *base;
    struct pici_deltas *row;
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    struct pici_update *update = NULL;
    char why[PICI_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "O&O&O&", pici_py_state, &base, to_row, &row, pici_py_u31, &opts.threads))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    errno = 0;
    const enum pici_status s = lib.update_new(&update, base, row, &opts, why);
    const int code = errno;
    PyEval_RestoreThread(state);
    return s ? pici_py_failed(s, code, why, 0) : pici_py_handle(UPDATE, update, NULL);
}

/* update_switch(update) -> None, or Failed. */
static PyObject *update_switch(PyObject *self, PyObject *o)
{
    (void)self;
    struct pici_update *update = pici_py_handled(UPDATE, o);
    if (!update)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.update_switch(update);
    PyEval_RestoreThread(state);
    return result_of(s, 0, NULL);
}

/* update_parts(update) -> [(tensor, first, bytes of the block, whether hashes of it were checked)] */
static PyObject *update_parts(PyObject *self, PyObject *o)
{
    (void)self;
    const struct pici_update *update = pici_py_handled(UPDATE, o);
    PyObject *list = update ? PyList_New(0) : NULL;
    for (uint64_t i = 0; list && i < lib.update_count(update); i++) {
        struct pici_update_part part = PICI_UPDATE_PART_INIT;
        (void)lib.update_get(update, i, &part);
        PyObject *entry = Py_BuildValue("KKKN", (unsigned long long)part.tensor, (unsigned long long)part.first,
                                        (unsigned long long)part.block_bytes, PyBool_FromLong(part.verified));
        if (!entry || PyList_Append(list, entry)) {
            Py_DecRef(list);
            list = NULL;
        }
        Py_DecRef(entry);
    }
    return list;
}

/* update_block(update, i) -> the block of part i, as bytes. */
static PyObject *update_block(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o;
    uint64_t i;
    struct pici_update_part part = PICI_UPDATE_PART_INIT;
    if (!PyArg_ParseTuple(args, "OO&", &o, pici_py_u64, &i))
        return NULL;
    const struct pici_update *update = pici_py_handled(UPDATE, o);
    if (!update)
        return NULL;
    if (lib.update_get(update, i, &part))
        return PyErr_Format(PyExc_ValueError, "no part %llu", (unsigned long long)i);
    return PyBytes_FromStringAndSize(part.block, (Py_ssize_t)part.block_bytes);
}

PyMethodDef pici_py_state_functions[] = {
    {"state_new", state_new, METH_VARARGS, NULL},       {"state_open", state_open, METH_VARARGS, NULL},
    {"state_add", state_add, METH_VARARGS, NULL},       {"state_type", state_type, METH_O, NULL},
    {"state_hash", state_hash, METH_O, NULL},           {"diff_states", diff_states, METH_VARARGS, NULL},
    {"deltas_new", deltas_new, METH_NOARGS, NULL},      {"deltas_add", deltas_add, METH_VARARGS, NULL},
    {"deltas_info", deltas_info, METH_VARARGS, NULL},   {"deltas_is_result", deltas_is_result, METH_VARARGS, NULL},
    {"apply_deltas", apply_deltas, METH_VARARGS, NULL}, {"update_new", update_new, METH_VARARGS, NULL},
    {"update_switch", update_switch, METH_O, NULL},     {"update_parts", update_parts, METH_O, NULL},
    {"update_block", update_block, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL},
};
