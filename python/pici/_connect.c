/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making communicators, tuning them, and making plans on them. */
#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "_comm.h"
#include "_functions.h"
#include "_options.h"
#include "_plans.h"

/* A Failed with the library's reason why this thread's last attempt made no communicator. */
static PyObject *failed(enum pici_status s)
{
    return pici_py_failed(s, 0, lib.comm_error(NULL), 0);
}

/* The new communicator, as comm_* functions take it; or Failed. */
static PyObject *made(enum pici_status s, struct pici_comm *comm)
{
    return s ? failed(s) : pici_py_driver(comm);
}

/* comm_threads(n) -> a list of (driver, rank, ranks), one for each of n threads; or Failed. */
static PyObject *comm_threads(PyObject *self, PyObject *args)
{
    (void)self;
    int n;
    if (!PyArg_ParseTuple(args, "O&", pici_py_u31, &n))
        return NULL;
    struct pici_comm **comms = PyMem_Calloc((size_t)n + 1, sizeof *comms);
    if (!comms)
        return PyErr_NoMemory();
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.comm_threads(comms, n);
    PyEval_RestoreThread(state);
    PyObject *list = s ? failed(s) : PyList_New(0);
    for (int r = 0; !s && r < n; r++) {
        PyObject *one = list ? pici_py_driver(comms[r]) : NULL;
        if (!list)
            lib.comm_free(comms[r]);
        else if (!one || PyList_Append(list, one)) {
            Py_DecRef(list);
            list = NULL;
        }
        Py_DecRef(one);
    }
    PyMem_Free(comms);
    return list;
}

/* Close the descriptors in a tuple, except the rank's own. Keeps a set exception. */
static void close_all(PyObject *fds, int rank)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (Py_ssize_t i = 0; i < PyTuple_Size(fds); i++) {
        const long fd = PyLong_AsLong(PyTuple_GetItem(fds, i));
        PyErr_Clear();
        if (i != rank && fd >= 0 && fd <= INT_MAX)
            (void)close((int)fd);
    }
    PyErr_Restore(type, value, trace);
}

/* comm_sockets(fds, rank) -> (driver, rank, ranks), or Failed. fds: a tuple of descriptors. The communicator owns them;
 * if this fails, it closes them. */
static PyObject *comm_sockets(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *given;
    int rank;
    struct pici_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "O!O&", &PyTuple_Type, &given, pici_py_u31, &rank))
        return NULL;
    const Py_ssize_t ranks = PyTuple_Size(given);
    int *fds = PyMem_Malloc(((size_t)ranks + 1) * sizeof *fds);
    if (!fds)
        PyErr_NoMemory();
    if (!fds || !pici_py_ints(fds, given)) {
        close_all(given, rank);
        PyMem_Free(fds);
        return NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.comm_sockets(&comm, fds, rank, (int)ranks);
    PyEval_RestoreThread(state);
    PyMem_Free(fds);
    return made(s, comm);
}

/* comm_rendezvous(address, rank, ranks, token) -> (driver, rank, ranks), or Failed. address and token: bytes, or None.
 * rank -1 and ranks 0: from the environment. */
static PyObject *comm_rendezvous(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *address_object, *token_object;
    int rank, ranks;
    char *address = NULL, *token = NULL;
    struct pici_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "OiiO", &address_object, &rank, &ranks, &token_object) ||
        (address_object != Py_None && PyBytes_AsStringAndSize(address_object, &address, NULL)) ||
        (token_object != Py_None && PyBytes_AsStringAndSize(token_object, &token, NULL)))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.comm_rendezvous(&comm, address, rank, ranks, token);
    PyEval_RestoreThread(state);
    return made(s, comm);
}

/* ---- libraries for MPI and NCCL; their headers are not needed here */

/* A function of a library. On NULL an exception is set. */
static void *function_of(void *library, const char *name)
{
    (void)dlerror();
    void *p = dlsym(library, name);
    if (!p)
        PyErr_Format(PyExc_ImportError, "%s", dlerror());
    return p;
}

/* library(path) -> the loaded library, which stays loaded. OSError: loading failed. */
static PyObject *library(PyObject *self, PyObject *args)
{
    (void)self;
    const char *path;
    if (!PyArg_ParseTuple(args, "y", &path))
        return NULL;
    void *p = dlopen(path, RTLD_NOW);
    if (!p)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    return PyCapsule_New(p, "pici.library", NULL);
}

static void *library_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "pici.library");
}

/* mpi_version(library) -> the version string of the MPI that libpici_mpi was built for. */
static PyObject *mpi_version(PyObject *self, PyObject *capsule)
{
    (void)self;
    enum { MOST = 1 << 14 }; /* more than any MPI's MPI_MAX_LIBRARY_VERSION_STRING */
    void *mpi = library_of(capsule), *p = mpi ? function_of(mpi, "MPI_Get_library_version") : NULL;
    int (*version)(char *, int *), n = 0;
    char *text = p ? PyMem_Calloc(MOST, 1) : NULL;
    if (!text)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    memcpy(&version, &p, sizeof p);
    (void)version(text, &n);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    PyMem_Free(text);
    return result;
}

/* comm_mpi(library, address, bytes) -> (driver, rank, ranks), or Failed. address: of an MPI_Comm with this number of
 * bytes: a pointer in Open MPI, an int in MPICH. */
static PyObject *comm_mpi(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule, *address;
    Py_ssize_t bytes;
    enum pici_status (*of_pointer)(struct pici_comm **, void *) = NULL, (*of_int)(struct pici_comm **, int) = NULL;
    struct pici_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "OOn", &capsule, &address, &bytes))
        return NULL;
    void *mpi = library_of(capsule), *p = mpi ? function_of(mpi, "pici_comm_mpi") : NULL;
    void *at = p ? PyLong_AsVoidPtr(address) : NULL, *pointer = NULL;
    int number = 0;
    if (!at)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the address of a communicator is null");
    if (bytes == sizeof pointer) {
        memcpy(&pointer, at, sizeof pointer);
        memcpy(&of_pointer, &p, sizeof p);
    } else {
        memcpy(&number, at, sizeof number);
        memcpy(&of_int, &p, sizeof p);
    }
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = bytes == sizeof pointer ? of_pointer(&comm, pointer) : of_int(&comm, number);
    PyEval_RestoreThread(state);
    return made(s, comm);
}

/* comm_nccl(library, comm, stream) -> (driver, rank, ranks), or Failed. comm, stream: addresses of an ncclComm_t and of
 * a cudaStream_t. */
static PyObject *comm_nccl(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule, *comm_address, *stream_address;
    enum pici_status (*of)(struct pici_comm **, void *, void *);
    struct pici_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &comm_address, &stream_address))
        return NULL;
    void *given = PyLong_AsVoidPtr(comm_address), *stream = PyErr_Occurred() ? NULL : PyLong_AsVoidPtr(stream_address);
    void *nccl = PyErr_Occurred() ? NULL : library_of(capsule), *p = nccl ? function_of(nccl, "pici_comm_nccl") : NULL;
    if (!p)
        return NULL;
    memcpy(&of, &p, sizeof p);
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = of(&comm, given, stream);
    PyEval_RestoreThread(state);
    return made(s, comm);
}

/* comm_tune(driver, *, ...) -> a status, BUSY or CLOSED. Missing arguments change nothing. */
static PyObject *comm_tune(PyObject *self, PyObject *args, PyObject *named)
{
    (void)self;
    static const char *const names[] = {"",
                                        "algorithm",
                                        "window",
                                        "slice_bytes",
                                        "format",
                                        "formats",
                                        "inter_threshold",
                                        "intra_threshold",
                                        "ag_threshold",
                                        "checksum",
                                        "inter_bandwidth",
                                        "intra_bandwidth",
                                        "timeout_ms",
                                        "history",
                                        "pack",
                                        "balance",
                                        NULL};
    PyObject *capsule;
    struct pici_tune tune = PICI_TUNE_INIT;
    int algorithm = tune.algorithm, format = tune.format, pack = tune.pack, balance = tune.balance;
    uint32_t formats = tune.formats;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$iiO&iO&fffiddiiii", (char **)(uintptr_t)names, &capsule,
                                     &algorithm, &tune.window, pici_py_u64, &tune.slice_bytes, &format, pici_py_u32,
                                     &formats, &tune.inter_threshold, &tune.intra_threshold, &tune.ag_threshold,
                                     &tune.checksum, &tune.inter_bandwidth, &tune.intra_bandwidth, &tune.timeout_ms,
                                     &tune.history, &pack, &balance))
        return NULL;
    tune.algorithm = (enum pici_algorithm)algorithm;
    tune.format = (enum pici_format)format;
    tune.formats = formats;
    tune.pack = (enum pici_packing)pack;
    tune.balance = (enum pici_balance)balance;
    struct pici_comm *comm;
    uint64_t number;
    long s = pici_py_driver_enter(capsule, &comm, &number);
    if (!s) {
        s = lib.comm_tune(comm, &tune);
        pici_py_driver_leave(capsule);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLong(s);
}

/* neighbors_new(driver, sources, destinations, route, most_bytes, leaf, gain, level, region) -> a plan; or a status,
 * BUSY or CLOSED. sources and destinations: tuples of ranks. */
static PyObject *neighbors_new(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *driver, *sources, *destinations;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_neighbor_plan *plan = NULL;
    struct pici_comm *comm;
    uint64_t number;
    int route, level;
    if (!PyArg_ParseTuple(args, "OO!O!O&O&O&O&O&i", &driver, &PyTuple_Type, &sources, &PyTuple_Type, &destinations,
                          pici_py_u31, &route, pici_py_u64, &opts.most_bytes, pici_py_u31, &opts.leaf, pici_py_u31,
                          &opts.gain, pici_py_u31, &level, &opts.region))
        return NULL;
    opts.route = (enum pici_route)route;
    opts.level = (enum pici_level)level;
    const size_t n = (size_t)PyTuple_Size(sources), m = (size_t)PyTuple_Size(destinations);
    if (n > INT_MAX || m > INT_MAX)
        return PyErr_Format(PyExc_OverflowError, "there are too many neighbours");
    int *lists = PyMem_Malloc((n + m + 1) * sizeof *lists);
    if (!lists)
        return PyErr_NoMemory();
    long s = pici_py_ints(lists, sources) && pici_py_ints(lists + n, destinations)
                 ? pici_py_driver_enter(driver, &comm, &number)
                 : -1;
    if (!s) {
        PyThreadState *state = PyEval_SaveThread();
        s = lib.neighbor_plan_create(&plan, comm, (int)n, lists, (int)m, lists + n, &opts);
        PyEval_RestoreThread(state);
        pici_py_driver_leave(driver);
    }
    PyMem_Free(lists);
    if (plan)
        return pici_py_plan_new(plan, number, n);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(s);
}

PyMethodDef pici_py_connect_functions[] = {
    {"comm_threads", comm_threads, METH_VARARGS, NULL},
    {"comm_sockets", comm_sockets, METH_VARARGS, NULL},
    {"comm_rendezvous", comm_rendezvous, METH_VARARGS, NULL},
    {"library", library, METH_VARARGS, NULL},
    {"mpi_version", mpi_version, METH_O, NULL},
    {"comm_mpi", comm_mpi, METH_VARARGS, NULL},
    {"comm_nccl", comm_nccl, METH_VARARGS, NULL},
    {"comm_tune", PICI_WITH_NAMES(comm_tune), METH_VARARGS | METH_KEYWORDS, NULL},
    {"neighbors_new", neighbors_new, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
