/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici._codec: the library's functions on Python objects. This file has the functions for blocks, and calls by one
 * thread at a time. _functions.h lists the other files.
 *
 * The module uses the stable ABI of Python 3.9 only, so that one file serves every later CPython. That ABI has no
 * buffers. So Python passes arrays as ndarrays, and NumPy's array interface (__array_struct__) gives their memory.
 * codec.py makes ndarrays of everything else. Functions accept bytes objects directly.
 *
 * Calls that may take long release the GIL: here, calls that read or write more than QUICK bytes. The tuple of
 * arguments refers to each passed object, so it lives until the call returns. */
#include <limits.h>

#include "_functions.h"
#include "_objects.h"

enum {
    QUICK = 32768,       /* bytes: a shorter call takes a few microseconds, about as long as a switch of the GIL */
    SMALL_BLOCK = 16384, /* bytes: blocks of at most this length are made on the stack */
    DELTA_DTYPE = 5,     /* offset of the dtype in a small delta */
    PART_BYTES = 24      /* additional bytes of a part's delta */
};

/* Parse the elements of an array: (rows, row_length, first, count), as in struct pici_columns. False with an exception
 * if they are not n elements. */
static bool columns_of(struct pici_columns *columns, const uint64_t part[4], uint64_t n)
{
    *columns = (struct pici_columns)PICI_COLUMNS_INIT;
    columns->rows = part[0];
    columns->row_length = part[1];
    columns->first = part[2];
    columns->count = part[3];
    if (!part[3] || !part[0] ? n == 0 : n / part[3] == part[0] && n % part[3] == 0)
        return true;
    PyErr_Format(PyExc_ValueError, "%llu rows of %llu elements are not the %llu of the array",
                 (unsigned long long)part[0], (unsigned long long)part[3], (unsigned long long)n);
    return false;
}

static bool threads_of(PyObject *o, int *threads)
{
    const Py_ssize_t n = PyNumber_AsSsize_t(o, PyExc_ValueError);
    if (n == -1 && PyErr_Occurred())
        return false;
    if (n < 0 || n > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "threads is %zd, not from 0 (one for each core) to %d", n, INT_MAX);
        return false;
    }
    *threads = (int)n;
    return true;
}

static PyThreadState *release(size_t bytes)
{
    return bytes > QUICK ? PyEval_SaveThread() : NULL;
}

static void acquire(PyThreadState *released)
{
    if (released)
        PyEval_RestoreThread(released);
}

/* encode(base, source, dtype, format, threads, checksum, zeros, pack, small, out) -> block, or its length in out, or a
 * status < 0.
 *   base    an array of source's length, for a delta; or None
 *   small   with base: (rows, row_length, first, count, holds), to make a small delta of these elements of the tensor,
 *           with a number of enum pici_holds; or None
 *   dtype, format, zeros, pack   numbers of the enums
 *   out     an array to write the block to; or None, for new bytes */
static PyObject *encode(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *base_object, *source_object, *threads, *small_object, *out_object;
    int dtype, format, checksum, zeros, pack;
    uint64_t part[5] = {0};
    struct pici_columns columns;
    struct memory base = {NULL, 0}, source, out = {NULL, 0};
    struct pici_opts opts = PICI_OPTS_INIT;
    if (!PyArg_ParseTuple(args, "OOiiOpiiOO", &base_object, &source_object, &dtype, &format, &threads, &checksum,
                          &zeros, &pack, &small_object, &out_object) ||
        !threads_of(threads, &opts.threads) || !pici_py_find(&source, source_object, false))
        return NULL;
    opts.checksum = checksum;
    opts.zeros = (enum pici_zeros)zeros;
    opts.pack = (enum pici_pack)pack;
    const bool delta = base_object != Py_None, fresh = out_object == Py_None, small_delta = small_object != Py_None;
    const Py_ssize_t numbers = small_delta ? pici_py_numbers(part, 5, small_object) : 5;
    if (numbers < 0)
        return NULL;
    if (numbers != 5)
        return PyErr_Format(PyExc_ValueError, "a part is five numbers, not %zd", numbers);
    opts.holds = (enum pici_holds)part[4];
    const size_t width = lib.dtype_width((enum pici_dtype)dtype);
    if ((delta && !pici_py_find(&base, base_object, false)) || (!fresh && !pici_py_find(&out, out_object, true)))
        return NULL;
    if (!width || source.bytes % width || (delta && base.bytes != source.bytes))
        return PyErr_Format(PyExc_ValueError, "%zu bytes are no elements of dtype %d", source.bytes, dtype);
    const uint64_t n = source.bytes / width;
    if (small_delta && !columns_of(&columns, part, n))
        return NULL;

    uint8_t small[SMALL_BLOCK];
    if (fresh) {
        out.bytes =
            (small_delta ? lib.diff_small_bound : lib.bound)((enum pici_format)format, (enum pici_dtype)dtype, n) +
            (small_delta ? PART_BYTES : 0);
        out.p = out.bytes <= sizeof small ? small : PyMem_Malloc(out.bytes);
        if (!out.p)
            return PyErr_NoMemory();
    }
    size_t len = 0;
    PyThreadState *state = release(source.bytes);
    enum pici_status s;
    if (delta && small_delta)
        s = lib.diff_small_columns(out.p, out.bytes, &len, base.p, source.p, &columns, (enum pici_dtype)dtype,
                                   (enum pici_format)format, &opts);
    else if (delta)
        s = lib.diff(out.p, out.bytes, &len, base.p, source.p, n, (enum pici_dtype)dtype, (enum pici_format)format,
                     &opts);
    else
        s = lib.compress(out.p, out.bytes, &len, source.p, n, (enum pici_dtype)dtype, (enum pici_format)format, &opts);
    acquire(state);
    PyObject *result = s       ? PyLong_FromLong(s)
                       : fresh ? PyBytes_FromStringAndSize(out.p, (Py_ssize_t)len)
                               : PyLong_FromSize_t(len);
    if (fresh && out.p != small)
        PyMem_Free(out.p);
    return result;
}

/* head(block) -> (format, dtype, count, nnz, block_bytes), or a status < 0. */
static PyObject *head(PyObject *self, PyObject *block_object)
{
    (void)self;
    struct memory block;
    struct pici_info info = PICI_INFO_INIT;
    if (!pici_py_find(&block, block_object, false))
        return NULL;
    const enum pici_status s = lib.inspect(&info, block.p, block.bytes);
    if (s)
        return PyLong_FromLong(s);
    return Py_BuildValue("iiKKK", (int)info.format, (int)info.dtype, (unsigned long long)info.count,
                         (unsigned long long)info.nnz, (unsigned long long)info.block_bytes);
}

/* verify(block) -> None, or (status, offset, tile, rule); tile is None if the fault is not in one tile. */
static PyObject *verify(PyObject *self, PyObject *block_object)
{
    (void)self;
    struct memory block;
    struct pici_fault fault = PICI_FAULT_INIT;
    if (!pici_py_find(&block, block_object, false))
        return NULL;
    PyThreadState *state = release(block.bytes);
    const enum pici_status s = lib.verify_at(block.p, block.bytes, &fault);
    acquire(state);
    if (!s)
        return Py_BuildValue("");
    if (fault.tile == PICI_NO_TILE)
        return Py_BuildValue("iKOs", (int)s, (unsigned long long)fault.offset, Py_None, fault.rule);
    return Py_BuildValue("iKKs", (int)s, (unsigned long long)fault.offset, (unsigned long long)fault.tile, fault.rule);
}

/* Get the deltas to apply to n elements of out. Returns false with an exception. */
static bool find_deltas(const void **delta, size_t *size, Py_ssize_t count, PyObject *deltas, size_t bytes, uint64_t n)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        struct memory found;
        if (!pici_py_find(&found, PyTuple_GetItem(deltas, i), false))
            return false;
        const size_t width = found.bytes > DELTA_DTYPE ? lib.dtype_width(((const uint8_t *)found.p)[DELTA_DTYPE]) : 0;
        if (!width || bytes % width || bytes / width != n) {
            PyErr_Format(PyExc_ValueError, "%zu bytes are not the delta's elements", bytes);
            return false;
        }
        delta[i] = found.p;
        size[i] = found.bytes;
    }
    return true;
}

/* apply_small(out, n, part, deltas, threads) -> status. out: an array of n elements of the deltas' dtype. deltas: a
 * tuple. part: (rows, row_length, first, count), the place of the elements in the tensor. */
static PyObject *apply_small(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out_object, *part_object, *deltas, *threads;
    struct memory out;
    struct pici_columns columns;
    struct pici_opts opts = PICI_OPTS_INIT;
    uint64_t n, part[4] = {0};
    if (!PyArg_ParseTuple(args, "OO&OOO", &out_object, pici_py_u64, &n, &part_object, &deltas, &threads) ||
        !threads_of(threads, &opts.threads) || !pici_py_find(&out, out_object, true) ||
        pici_py_numbers(part, 4, part_object) < 0 || !columns_of(&columns, part, n))
        return NULL;
    if (!PyTuple_Check(deltas))
        return PyErr_Format(PyExc_TypeError, "deltas are a tuple, not %R", deltas);
    const Py_ssize_t count = PyTuple_Size(deltas);
    const void **const delta = PyMem_Calloc((size_t)count + 1, sizeof *delta);
    size_t *const size = PyMem_Calloc((size_t)count + 1, sizeof *size);
    PyObject *result = NULL;
    if (!delta || !size) {
        PyErr_NoMemory();
    } else if (find_deltas(delta, size, count, deltas, out.bytes, n)) {
        PyThreadState *state = release(out.bytes);
        const enum pici_status s = lib.apply_small_columns(out.p, &columns, delta, size, (size_t)count, &opts);
        acquire(state);
        result = PyLong_FromLong(s);
    }
    PyMem_Free(delta);
    PyMem_Free(size);
    return result;
}

/* nonzeros(base, block, first, n, indices, index_bytes, values, width) -> (status, count). The nonzeros among elements
 * [first, first + n) of a block. With base, the array of all elements that a delta was made from: the delta's changes.
 *   indices   an array of positions of index_bytes each, 4 or 8
 *   values    an array for as many elements, of width bytes each */
static PyObject *nonzeros(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *base_object, *block_object, *indices_object, *values_object;
    int index_bytes, width;
    uint64_t first, n, count = 0;
    struct memory base = {NULL, 0}, block, indices, values;
    if (!PyArg_ParseTuple(args, "OOO&O&OiOi", &base_object, &block_object, pici_py_u64, &first, pici_py_u64, &n,
                          &indices_object, &index_bytes, &values_object, &width) ||
        (base_object != Py_None && !pici_py_find(&base, base_object, false)) ||
        !pici_py_find(&block, block_object, false) || !pici_py_find(&indices, indices_object, true) ||
        !pici_py_find(&values, values_object, true))
        return NULL;
    const uint8_t *const head = block.p;
    const bool small = block.bytes > DELTA_DTYPE && memcmp(head, "PICD", 4) == 0;
    struct pici_info info = PICI_INFO_INIT;
    enum pici_status s = small ? PICI_OK : lib.inspect(&info, block.p, block.bytes);
    if (s)
        return Py_BuildValue("iK", (int)s, 0ULL);
    const size_t found = lib.dtype_width(small ? head[DELTA_DTYPE] : info.dtype);
    if ((index_bytes != 4 && index_bytes != 8) || width < 1 || (size_t)width != found ||
        indices.bytes / (size_t)index_bytes != values.bytes / (size_t)width || base.bytes % (size_t)width)
        return PyErr_Format(PyExc_ValueError, "arrays that do not fit the block");
    PyThreadState *state = release(base.bytes + n * (size_t)width / 64 + block.bytes);
    const uint64_t capacity = values.bytes / (size_t)width;
    if (base_object != Py_None)
        s = lib.changes(indices.p, (size_t)index_bytes, values.p, capacity, &count, base.p, base.bytes / (size_t)width,
                        block.p, block.bytes, first, n);
    else
        s = lib.nonzeros(indices.p, (size_t)index_bytes, values.p, capacity, &count, block.p, block.bytes, first, n);
    acquire(state);
    return Py_BuildValue("iK", (int)s, (unsigned long long)count);
}

/* The use of a block. */
enum { DECOMPRESS, RANGE, ADD, APPLY };

/* decode(what, out, first, block, threads) -> status. out: an array of the block's dtype, with as many elements as the
 * block; for RANGE, it receives elements from first on. */
static PyObject *decode(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *out_object, *block_object, *threads;
    int what;
    uint64_t first;
    struct memory out, block;
    struct pici_opts opts = PICI_OPTS_INIT;
    struct pici_info info = PICI_INFO_INIT;
    if (!PyArg_ParseTuple(args, "iOO&OO", &what, &out_object, pici_py_u64, &first, &block_object, &threads) ||
        !threads_of(threads, &opts.threads) || !pici_py_find(&out, out_object, true) ||
        !pici_py_find(&block, block_object, false))
        return NULL;
    enum pici_status s = lib.inspect(&info, block.p, block.bytes);
    if (s)
        return PyLong_FromLong(s);
    const uint64_t n = out.bytes / lib.dtype_width(info.dtype);
    if (out.bytes % lib.dtype_width(info.dtype) || (what != RANGE && n != info.count))
        return PyErr_Format(PyExc_ValueError, "%zu bytes are not the block's elements", out.bytes);
    PyThreadState *state = release(out.bytes > block.bytes ? out.bytes : block.bytes);
    switch (what) {
    case DECOMPRESS: s = lib.decompress(out.p, n, block.p, block.bytes, &opts); break;
    case RANGE: s = lib.decompress_range(out.p, first, n, block.p, block.bytes, &opts); break;
    case ADD: s = lib.scatter_add(out.p, n, block.p, block.bytes, &opts); break;
    case APPLY: s = lib.apply(out.p, n, block.p, block.bytes, &opts); break;
    default: s = PICI_E_ARG;
    }
    acquire(state);
    return PyLong_FromLong(s);
}

/* in_turn(lock, method, args, named) -> method(*args, **named), called while this thread holds the lock, a
 * threading.RLock. No signal handler runs between the lock's methods and the call: handlers run between bytecodes, or
 * in a method that waits and then fails. So the lock is free afterwards, after any exception. Python's own "with" and
 * "try" do not ensure that. In CPython 3.9 a handler may run before the first statement of a "finally", in 3.14 before
 * the first of a "with". */
static PyObject *in_turn(PyObject *self, PyObject *all)
{
    PyObject *lock, *method, *args, *named, *type, *value, *trace;
    (void)self;
    if (!PyArg_ParseTuple(all, "OOO!O!:in_turn", &lock, &method, &PyTuple_Type, &args, &PyDict_Type, &named))
        return NULL;
    PyObject *done = PyObject_CallMethod(lock, "acquire", NULL);
    if (!done)
        return NULL;
    Py_DecRef(done);
    PyObject *result = PyObject_Call(method, args, named);
    PyErr_Fetch(&type, &value, &trace);
    done = PyObject_CallMethod(lock, "release", NULL);
    if (done) {
        PyErr_Restore(type, value, trace);
    } else {
        Py_DecRef(type);
        Py_DecRef(value);
        Py_DecRef(trace);
        Py_DecRef(result);
        result = NULL;
    }
    Py_DecRef(done);
    return result;
}

PyMODINIT_FUNC PyInit__codec(void);

PyMODINIT_FUNC PyInit__codec(void)
{
    static PyMethodDef functions[] = {
        {"encode", encode, METH_VARARGS, NULL},
        {"head", head, METH_O, NULL},
        {"verify", verify, METH_O, NULL},
        {"decode", decode, METH_VARARGS, NULL},
        {"apply_small", apply_small, METH_VARARGS, NULL},
        {"nonzeros", nonzeros, METH_VARARGS, NULL},
        {"in_turn", in_turn, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
    };
    static struct PyModuleDef module = {
        PyModuleDef_HEAD_INIT, "pici._codec", NULL, -1, functions, NULL, NULL, NULL, NULL};
    PyMethodDef *const more[] = {
        pici_py_library_functions, pici_py_constant_functions, pici_py_handle_functions,   pici_py_reader_functions,
        pici_py_writer_functions,  pici_py_state_functions,    pici_py_log_functions,      pici_py_selection_functions,
        pici_py_option_functions,  pici_py_comm_functions,     pici_py_connect_functions,  pici_py_capsule_functions,
        pici_py_system_functions,  pici_py_sparse_functions,   pici_py_neighbor_functions,
    };
    PyObject *made = PyModule_Create(&module);
    bool ok = made && pici_py_objects_init(made) && pici_py_add_constants(made);
    for (size_t i = 0; ok && i < sizeof more / sizeof *more; i++)
        ok = !PyModule_AddFunctions(made, more[i]);
    if (ok)
        return made;
    Py_DecRef(made);
    return NULL;
}
