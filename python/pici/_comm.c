/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators, for comm.py. A communicator is a capsule of a driver, a started collective a capsule of a flight.
 *
 * Functions release the GIL while the library works. Members of a driver and of a flight change only under the GIL,
 * except members that the library itself writes during a call. A driver in use by a thread is `busy`, and rejects other
 * threads, since only one thread may use a communicator at a time.
 *
 * A flight refers to the objects that own its buffers, and the driver's list refers to each flight, until its
 * collective has ended. So Python may drop communicators, requests and arrays in any order. */
#include "_comm.h"

#include "_functions.h"
#include "_plans.h"
#include "_options.h"
#include "_vectors.h"

/* Milliseconds between two checks of a waiting thread for signals, and for a close() by another thread. */
enum { PIECE_MS = 100 };

/* Results of functions here, in addition to enum pici_status. */
enum { BUSY = 1, CLOSED = 2 };

struct totals {
    uint64_t calls;
    struct pici_coll_stats stats;
};

struct driver {
    struct pici_comm *comm; /* NULL: closed */
    uint64_t number;        /* unique among drivers */
    int rank, ranks;
    bool busy;              /* a thread uses it */
    bool stop;              /* another thread closed it meanwhile: the thread that uses it must end its call */
    struct flight *flights; /* flights that have not ended */
    struct totals sum, last;
};

struct flight {
    struct flight *next;
    PyObject *driver; /* its capsule; NULL: the flight's own capsule was dropped before it ended */
    struct pici_request *request;
    bool ended;
    enum pici_status status;
    struct totals done;
    PyObject *send, *recv; /* owner of the buffers, until it has ended, */
    PyObject *residual;    /* or NULL */
    PyObject *extra;       /* what owns the plan, or NULL */
    uint64_t *counts;      /* of all_gatherv and all_to_allv, with the displs, until it has ended; or NULL */
};

static const char DRIVER[] = "pici.comm", FLIGHT[] = "pici.request";
static const struct totals none = {0, PICI_COLL_STATS_INIT};

/* ---- using a driver */

/* Begin to use a driver: 0, BUSY or CLOSED. */
static int enter(struct driver *d)
{
    if (!d->comm)
        return CLOSED;
    if (d->busy)
        return BUSY;
    d->busy = true;
    return 0;
}

static void add(struct driver *d, const struct pici_coll_stats *s)
{
    struct pici_coll_stats *sum = &d->sum.stats;
    d->sum.calls++;
    sum->wire_bytes += s->wire_bytes;
    sum->dense_bytes += s->dense_bytes;
    sum->inter_bytes += s->inter_bytes;
    for (size_t i = 0; i < sizeof sum->sends / sizeof *sum->sends; i++)
        sum->sends[i] += s->sends[i];
    sum->encode_s += s->encode_s;
    sum->decode_s += s->decode_s;
    sum->wait_s += s->wait_s;
    sum->events += s->events;
    sum->quantize_s += s->quantize_s;
    sum->dequantize_s += s->dequantize_s;
    sum->nonfinite += s->nonfinite;
    sum->lost += s->lost;
    d->last.calls = 1;
    d->last.stats = *s;
}

/* Note that the result is there, if the sent object is from sparse(). */
static void note_end(PyObject *send, enum pici_status status)
{
    if (pici_py_is_sparse(send))
        pici_py_sparse(send)->ended = !status;
}

/* Remove an ended flight from the driver's list. */
static void land(struct driver *d, struct flight *f, enum pici_status status)
{
    PyObject *send = f->send, *recv = f->recv, *residual = f->residual, *extra = f->extra;
    f->send = f->recv = f->residual = f->extra = NULL;
    PyMem_Free(f->counts);
    f->counts = NULL;
    note_end(send, status);
    f->ended = true;
    f->status = status;
    f->done.calls = 1;
    add(d, &f->done.stats);
    if (!f->driver)
        PyMem_Free(f);
    Py_DecRef(send); /* last, since this may run any Python code */
    Py_DecRef(recv);
    Py_DecRef(residual);
    Py_DecRef(extra);
}

static void unlink_flight(struct driver *d, struct flight *f)
{
    struct flight **at = &d->flights;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

/* Land dropped flights that have ended. The driver is in use. */
static void reap(struct driver *d)
{
    for (struct flight *f = d->flights, *next; f; f = next) {
        int done = 0;
        next = f->next;
        if (f->driver)
            continue;
        PyThreadState *state = PyEval_SaveThread();
        const enum pici_status s = lib.test(&f->request, &done);
        PyEval_RestoreThread(state);
        if (!done)
            return; /* later ones have not ended either */
        unlink_flight(d, f);
        land(d, f, s);
        next = d->flights; /* land() may have run code that dropped others */
    }
}

/* Free the communicator of a driver that is in use. All its flights end with PICI_E_BROKEN, unless they have ended. */
static void shut(struct driver *d)
{
    struct pici_comm *comm = d->comm;
    d->comm = NULL;
    PyThreadState *state = PyEval_SaveThread();
    lib.comm_free(comm);
    PyEval_RestoreThread(state);
    for (struct flight *f; (f = d->flights) != NULL;) {
        d->flights = f->next;
        land(d, f, lib.wait(&f->request));
    }
}

static void leave(struct driver *d)
{
    if (d->flights)
        reap(d);
    if (d->stop && d->comm)
        shut(d);
    d->busy = false;
}

/* Wait until a request has ended: returns 1 and sets *status. On the main thread, Python's signal handlers run from
 * time to time. -1: a handler raised an exception. 0: another thread closed the communicator. */
static int wait_patiently(struct driver *d, struct pici_request **request, enum pici_status *status)
{
    for (;;) {
        int done = 0;
        PyThreadState *state = PyEval_SaveThread();
        *status = lib.wait_for(request, PIECE_MS, &done);
        PyEval_RestoreThread(state);
        if (done || *status)
            return 1;
        if (PyErr_CheckSignals())
            return -1;
        if (d->stop)
            return 0;
    }
}

/* ---- arguments of collectives */

struct call {
    enum pici_collective kind;
    enum pici_dtype dtype;
    enum pici_op op;
    struct memory send, recv;
    uint64_t count;
    struct pici_coll_opts opts;
    struct pici_values values;
    PyObject *send_owner, *recv_owner, *residual_owner; /* borrowed; the last may be NULL */
    int root;                                           /* of broadcast */
    /* all_gatherv: free the first; the second follows it in memory. all_to_allv: these are of the received elements;
     * two arrays of the sent ones follow them. Else NULL. */
    uint64_t *counts, *displs, *sendcounts, *sdispls;
    struct sparse *sparse;           /* NULL: both buffers are dense */
    struct pici_neighbor_plan *plan; /* of a neighbourhood all-gather, with this number of sources */
    size_t sources;
    PyObject *extra; /* borrowed: owner of the plan, or NULL */
};

/* Whether the two overlap in a way that the collective does not support as in place. */
static bool overlap(const struct call *c, const struct driver *d)
{
    const uintptr_t s = (uintptr_t)c->send.p, r = (uintptr_t)c->recv.p, rank = (uintptr_t)d->rank;
    const size_t own = c->displs && !c->plan ? (size_t)c->displs[d->rank] * lib.dtype_width(c->dtype) : 0;
    const bool in_place = c->kind == PICI_ALL_TO_ALLV || c->plan ? false
                          : c->kind == PICI_ALL_GATHER           ? s == r + rank * c->send.bytes
                          : c->kind == PICI_ALL_GATHERV          ? s == r + own
                          : c->kind == PICI_REDUCE_SCATTER       ? r == s + rank * c->recv.bytes
                                                                 : s == r;
    return !in_place && c->send.bytes && s < r + c->recv.bytes && r < s + c->send.bytes;
}

/* The lossy codec of a call, from values() or None, and its residual, as long as the send buffer. */
static bool read_values(struct call *c, PyObject *values)
{
    struct memory residual;
    if (c->residual_owner == Py_None)
        c->residual_owner = NULL;
    if (values == Py_None)
        return true;
    const struct pici_values *given = pici_py_values(values);
    if (!given)
        return false;
    c->values = *given;
    c->opts.values = &c->values;
    if (!c->residual_owner)
        return true;
    if (!pici_py_place(&residual, c->residual_owner, true))
        return false;
    if (residual.bytes != c->send.bytes) {
        PyErr_Format(PyExc_ValueError, "the residual has %zu bytes and send %zu", residual.bytes, c->send.bytes);
        return false;
    }
    c->values.residual = residual.p;
    return true;
}

/* Whether all runs at displs are within this number of elements. */
static bool is_inside(const uint64_t *counts, const uint64_t *displs, size_t ranks, uint64_t room)
{
    for (size_t i = 0; i < ranks; i++)
        if (counts[i] > room || (counts[i] && displs[i] > room - counts[i]))
            return false;
    return true;
}

/* Whether send and recv have the lengths that the call needs. */
static bool fits(const struct call *c, size_t width, const struct driver *d)
{
    const size_t ranks = c->plan ? c->sources : (size_t)d->ranks,
                 one = c->kind == PICI_ALL_GATHER ? c->send.bytes : c->recv.bytes,
                 all = c->kind == PICI_ALL_GATHER ? c->recv.bytes : c->send.bytes,
                 times = c->kind == PICI_ALL_REDUCE || c->kind == PICI_BROADCAST ? 1 : ranks;
    if (c->plan && !c->counts)
        return c->send.bytes % width == 0 && c->send.bytes <= SIZE_MAX / (ranks + 1) &&
               c->recv.bytes == ranks * c->send.bytes;
    if (!c->counts)
        return one % width == 0 && all / times == one && all % times == 0;
    if (c->recv.bytes % width || !is_inside(c->counts, c->displs, ranks, c->recv.bytes / width))
        return false;
    return c->sendcounts
               ? c->send.bytes % width == 0 && is_inside(c->sendcounts, c->sdispls, ranks, c->send.bytes / width)
               : c->send.bytes % width == 0 && (c->plan || c->send.bytes == c->counts[d->rank] * width);
}

/* Parse extra, the arguments of some collectives. broadcast: the root. all_gatherv: the bytes of two arrays of
 * uint64_t, one after the other: the counts and the displs of all ranks. all_to_allv: four such arrays, for the
 * received and then for the sent elements. Calls on a plan: a tuple of the plan, and None or two such arrays for all
 * sources. Others: None. The call copies the arrays. */
static bool read_extra(struct call *c, PyObject *extra, const struct driver *d)
{
    size_t runs = (size_t)d->ranks;
    const int kind = (int)c->kind;
    if (kind == NEIGHBOR_ALL_GATHER || kind == NEIGHBOR_ALL_GATHERV) {
        PyObject *plan;
        if (!PyTuple_Check(extra) || !PyArg_ParseTuple(extra, "OO", &plan, &extra)) {
            PyErr_SetString(PyExc_TypeError, "a call on a plan needs the plan");
            return false;
        }
        if (!(c->plan = pici_py_plan(plan, d->number, &c->sources)))
            return false;
        c->extra = plan;
        runs = c->sources;
        if (kind == NEIGHBOR_ALL_GATHER)
            return true;
    }
    if (c->kind == PICI_BROADCAST) {
        const long root = PyLong_AsLong(extra);
        if (root == -1 && PyErr_Occurred())
            return false;
        c->root = root < 0 || root >= d->ranks ? -1 : (int)root;
        return true;
    }
    if (c->kind != PICI_ALL_GATHERV && c->kind != PICI_ALL_TO_ALLV && !c->plan)
        return true;
    const size_t arrays = c->kind == PICI_ALL_TO_ALLV ? 4 : 2, bytes = arrays * runs * sizeof *c->counts;
    char *from;
    Py_ssize_t given;
    if (PyBytes_AsStringAndSize(extra, &from, &given))
        return false;
    if ((size_t)given != bytes) {
        PyErr_Format(PyExc_ValueError, "counts: not one for each of %zu", runs);
        return false;
    }
    if (!(c->counts = PyMem_Malloc(bytes + 1))) {
        PyErr_NoMemory();
        return false;
    }
    memcpy(c->counts, from, bytes);
    c->displs = c->counts + runs;
    if (arrays == 4) {
        c->sendcounts = c->displs + runs;
        c->sdispls = c->sendcounts + runs;
    }
    return true;
}

/* A call of sparse vectors. The sent object is from sparse(), and receives the result too. */
static bool read_sparse(struct call *c, const struct driver *d)
{
    const uint64_t ranks = (uint64_t)d->ranks;
    struct sparse *s = c->sparse = pici_py_sparse(c->send_owner);
    uint64_t bytes = s->in.n;
    c->send = c->recv = (struct memory){NULL, 0};
    if (c->kind != PICI_ALL_REDUCE && c->kind != PICI_REDUCE_SCATTER && c->kind != PICI_ALL_GATHER &&
        c->kind != PICI_BROADCAST)
        PyErr_SetString(PyExc_ValueError, "no collective of sparse vectors");
    else if (s->used || s->dtype != c->dtype)
        PyErr_SetString(PyExc_ValueError, s->used ? "it was used before" : "it has another dtype");
    else if (c->kind == PICI_REDUCE_SCATTER)
        bytes /= ranks;
    else if (c->kind == PICI_ALL_GATHER && __builtin_mul_overflow(bytes, ranks, &bytes))
        PyErr_SetString(PyExc_OverflowError, "the result has too many elements");
    if (!PyErr_Occurred() && s->out.dense &&
        (__builtin_mul_overflow(bytes, (uint64_t)lib.dtype_width(c->dtype), &bytes) || bytes != s->room))
        PyErr_Format(PyExc_ValueError, "the result has %zu bytes, which is not what the call gives", s->room);
    s->used = true;
    return !PyErr_Occurred();
}

/* (driver, kind, send, recv, dtype, op, opts, blocks, values, residual, extra): opts is from coll_opts() or None,
 * values from values() or None. If send is from sparse(), recv is ignored. The caller frees c->counts, even after a
 * failure. */
static bool read_arguments(struct call *c, struct driver **d, PyObject **capsule, int *blocks, PyObject *args)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    int kind, dtype, op;
    PyObject *opts, *values, *extra;
    if (!PyArg_ParseTuple(args, "OiOOiiOpOOO", capsule, &kind, &c->send_owner, &c->recv_owner, &dtype, &op, &opts,
                          blocks, &values, &c->residual_owner, &extra))
        return false;
    const struct pici_coll_opts *given = opts == Py_None ? &defaults : pici_py_coll_opts(opts);
    *d = given ? PyCapsule_GetPointer(*capsule, DRIVER) : NULL;
    if (!*d)
        return false;
    c->kind = (enum pici_collective)kind;
    c->dtype = (enum pici_dtype)dtype;
    c->op = (enum pici_op)op;
    c->opts = *given;
    if (pici_py_is_sparse(c->send_owner)) {
        *blocks = 0;
        return read_sparse(c, *d) && read_extra(c, extra, *d) && read_values(c, values);
    }
    if (!pici_py_place(&c->send, c->send_owner, false) || !pici_py_place(&c->recv, c->recv_owner, true))
        return false;
    const size_t width = lib.dtype_width(c->dtype);
    if (!read_extra(c, extra, *d))
        return false;
    if (c->plan)
        *blocks = 0;
    if (!width || !fits(c, width, *d)) {
        PyErr_Format(PyExc_ValueError, "send has %zu bytes and recv %zu: these do not fit together", c->send.bytes,
                     c->recv.bytes);
        return false;
    }
    if (overlap(c, *d)) {
        PyErr_SetString(PyExc_ValueError,
                        "recv overlaps send: pass arrays that are apart, or, in place, the same memory "
                        "(of the longer array, this rank's part)");
        return false;
    }
    c->count =
        (c->kind == PICI_ALL_GATHER || c->kind == PICI_ALL_GATHERV || c->plan ? c->send.bytes : c->recv.bytes) / width;
    return read_values(c, values);
}

static bool read_call(struct call *c, struct driver **d, PyObject **capsule, int *blocks, PyObject *args)
{
    c->counts = c->displs = c->sendcounts = c->sdispls = NULL;
    c->sparse = NULL;
    c->plan = NULL;
    c->extra = NULL;
    if (read_arguments(c, d, capsule, blocks, args))
        return true;
    PyMem_Free(c->counts);
    return false;
}

static enum pici_status start_sparse(const struct call *c, struct pici_comm *comm, struct pici_request **request)
{
    const struct pici_stream *in = &c->sparse->in;
    struct pici_stream_out *out = &c->sparse->out;
    switch (c->kind) {
    case PICI_ALL_GATHER: return lib.all_gather_stream_start(in, out, c->dtype, comm, &c->opts, request);
    case PICI_REDUCE_SCATTER: return lib.reduce_scatter_stream_start(in, out, c->dtype, c->op, comm, &c->opts, request);
    case PICI_BROADCAST: return lib.broadcast_stream_start(in, out, c->dtype, c->root, comm, &c->opts, request);
    default: return lib.all_reduce_stream_start(in, out, c->dtype, c->op, comm, &c->opts, request);
    }
}

static enum pici_status start(const struct call *c, struct pici_comm *comm, struct pici_request **request)
{
    if (c->sparse)
        return start_sparse(c, comm, request);
    if (c->plan)
        return c->counts ? lib.neighbor_all_gatherv_start(c->send.p, c->count, c->recv.p, c->counts, c->displs,
                                                          c->dtype, c->plan, &c->opts, request)
                         : lib.neighbor_all_gather_start(c->send.p, c->recv.p, c->count, c->dtype, c->plan, &c->opts,
                                                         request);
    switch (c->kind) {
    case PICI_ALL_GATHER:
        return lib.all_gather_start(c->send.p, c->recv.p, c->count, c->dtype, comm, &c->opts, request);
    case PICI_REDUCE_SCATTER:
        return lib.reduce_scatter_start(c->send.p, c->recv.p, c->count, c->dtype, c->op, comm, &c->opts, request);
    case PICI_BROADCAST: return lib.broadcast_start(c->recv.p, c->count, c->dtype, c->root, comm, &c->opts, request);
    case PICI_ALL_GATHERV:
        return lib.all_gatherv_start(c->send.p, c->count, c->recv.p, c->counts, c->displs, c->dtype, comm, &c->opts,
                                     request);
    case PICI_ALL_TO_ALLV:
        return lib.all_to_allv_start(c->send.p, c->sendcounts, c->sdispls, c->recv.p, c->counts, c->displs, c->dtype,
                                     comm, &c->opts, request);
    default: return lib.all_reduce_start(c->send.p, c->recv.p, c->count, c->dtype, c->op, comm, &c->opts, request);
    }
}

/* Make the call as a blocking one: only that can be the native collective. It cannot be interrupted. */
static enum pici_status block(const struct call *c, struct pici_comm *comm)
{
    switch (c->kind) {
    case PICI_ALL_GATHER: return lib.all_gather(c->send.p, c->recv.p, c->count, c->dtype, comm, &c->opts);
    case PICI_REDUCE_SCATTER:
        return lib.reduce_scatter(c->send.p, c->recv.p, c->count, c->dtype, c->op, comm, &c->opts);
    case PICI_BROADCAST: return lib.broadcast(c->recv.p, c->count, c->dtype, c->root, comm, &c->opts);
    case PICI_ALL_GATHERV:
        return lib.all_gatherv(c->send.p, c->count, c->recv.p, c->counts, c->displs, c->dtype, comm, &c->opts);
    case PICI_ALL_TO_ALLV:
        return lib.all_to_allv(c->send.p, c->sendcounts, c->sdispls, c->recv.p, c->counts, c->displs, c->dtype, comm,
                               &c->opts);
    default: return lib.all_reduce(c->send.p, c->recv.p, c->count, c->dtype, c->op, comm, &c->opts);
    }
}

/* ---- functions of the module */

static void driver_free(PyObject *capsule)
{
    struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
    if (d->comm) {
        d->busy = true;
        shut(d);
    }
    PyMem_Free(d);
}

PyObject *pici_py_driver(struct pici_comm *comm)
{
    static uint64_t drivers;
    struct driver *d = PyMem_Malloc(sizeof *d);
    if (d)
        *d = (struct driver){.comm = comm,
                             .number = ++drivers,
                             .rank = lib.comm_rank(comm),
                             .ranks = lib.comm_size(comm),
                             .sum = none,
                             .last = none};
    PyObject *capsule = d ? PyCapsule_New(d, DRIVER, driver_free) : PyErr_NoMemory();
    if (!capsule) {
        lib.comm_free(comm);
        PyMem_Free(d);
        return NULL;
    }
    return Py_BuildValue("Nii", capsule, d->rank, d->ranks);
}

int pici_py_driver_enter(PyObject *capsule, struct pici_comm **comm, uint64_t *number)
{
    struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
    const int refused = d ? enter(d) : -1;
    *comm = refused ? NULL : d->comm;
    *number = d ? d->number : 0;
    return refused;
}

void pici_py_driver_leave(PyObject *capsule)
{
    leave(PyCapsule_GetPointer(capsule, DRIVER));
}

/* comm_levels(inner, outer) -> (driver, rank, ranks) of a communicator made of both, whose drivers are then closed;
 * Failed; BUSY or CLOSED. */
static PyObject *comm_levels(PyObject *self, PyObject *args)
{
    (void)self;
    struct driver *d[2];
    PyObject *capsules[2];
    struct pici_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "OO", &capsules[0], &capsules[1]))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (!(d[i] = PyCapsule_GetPointer(capsules[i], DRIVER)))
            return NULL;
    int refused = enter(d[0]);
    if (!refused && (refused = enter(d[1])))
        leave(d[0]);
    if (refused)
        return PyLong_FromLong(refused);
    PyThreadState *state = PyEval_SaveThread();
    const enum pici_status s = lib.comm_levels(&comm, d[0]->comm, d[1]->comm);
    PyEval_RestoreThread(state);
    if (!s)
        d[0]->comm = d[1]->comm = NULL;
    PyObject *result = s ? pici_py_failed(s, 0, lib.comm_error(NULL), 0) : pici_py_driver(comm);
    for (int i = 0; i < 2; i++)
        leave(d[i]);
    return result;
}

/* comm_call(driver, kind, send, recv, dtype, op, opts, blocks, values, residual, extra) -> a status, BUSY or CLOSED.
 * blocks: whether to make a blocking call. If a signal handler raises an exception, this closes the communicator. */
static PyObject *comm_call(PyObject *self, PyObject *args)
{
    (void)self;
    struct driver *d;
    struct call c;
    struct totals t = none;
    struct pici_request *request = NULL;
    PyObject *capsule;
    int blocks;
    if (!read_call(&c, &d, &capsule, &blocks, args))
        return NULL;
    const int refused = enter(d);
    if (refused) {
        PyMem_Free(c.counts);
        return PyLong_FromLong(refused);
    }
    c.opts.stats = &t.stats;

    int done = 0, ended = 1;
    PyThreadState *state = PyEval_SaveThread();
    enum pici_status s = blocks ? block(&c, d->comm) : start(&c, d->comm, &request);
    const bool began = blocks ? !s : request != NULL;
    if (request)
        s = lib.wait_for(&request, PIECE_MS, &done);
    PyEval_RestoreThread(state);
    if (request && !s) {
        ended = PyErr_CheckSignals() ? -1 : d->stop ? 0 : wait_patiently(d, &request, &s);
        if (ended != 1) {
            shut(d);
            (void)lib.wait(&request); /* it ended with the communicator; this frees it */
        }
    }
    PyMem_Free(c.counts);
    if (began && ended == 1)
        note_end(c.send_owner, s);
    if (began)
        add(d, &t.stats);
    leave(d);
    return ended < 0 ? NULL : PyLong_FromLong(ended ? (long)s : CLOSED);
}

static void flight_free(PyObject *capsule)
{
    struct flight *f = PyCapsule_GetPointer(capsule, FLIGHT);
    PyObject *driver = f->driver;
    if (f->ended)
        PyMem_Free(f);
    else
        f->driver = NULL; /* the driver lands it */
    Py_DecRef(driver);
}

/* comm_start(the same, blocks: False) -> flight; or a status, BUSY or CLOSED. */
static PyObject *comm_start(PyObject *self, PyObject *args)
{
    (void)self;
    struct driver *d;
    struct call c;
    PyObject *capsule;
    int blocks;
    if (!read_call(&c, &d, &capsule, &blocks, args))
        return NULL;
    struct flight *f = PyMem_Malloc(sizeof *f);
    if (f)
        *f = (struct flight){.ended = true, .done = none};
    PyObject *result = f ? PyCapsule_New(f, FLIGHT, flight_free) : PyErr_NoMemory();
    if (!result) {
        PyMem_Free(f);
        PyMem_Free(c.counts);
        return NULL;
    }
    long s = enter(d);
    if (!s) {
        c.opts.stats = &f->done.stats;
        PyThreadState *state = PyEval_SaveThread();
        s = start(&c, d->comm, &f->request);
        PyEval_RestoreThread(state);
        if (!s) {
            struct flight **last = &d->flights;
            while (*last)
                last = &(*last)->next;
            *last = f;
            f->ended = false;
            Py_IncRef(f->driver = capsule);
            Py_IncRef(f->send = c.send_owner);
            Py_IncRef(f->recv = c.recv_owner);
            Py_IncRef(f->residual = c.residual_owner);
            Py_IncRef(f->extra = c.extra);
            f->counts = c.counts;
            c.counts = NULL;
        }
        leave(d);
    }
    PyMem_Free(c.counts);
    if (!s)
        return result;
    Py_DecRef(result);
    return PyLong_FromLong(s);
}

/* comm_wait(flight, wait) -> its status; or BUSY. wait false: do not wait, and return None if it has not ended. After
 * an exception of a signal handler it remains in flight. */
static PyObject *comm_wait(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule;
    int wait;
    if (!PyArg_ParseTuple(args, "Op", &capsule, &wait))
        return NULL;
    struct flight *f = PyCapsule_GetPointer(capsule, FLIGHT);
    if (!f)
        return NULL;
    if (f->ended)
        return PyLong_FromLong(f->status);
    struct driver *d = PyCapsule_GetPointer(f->driver, DRIVER);
    const int refused = enter(d);
    if (refused)
        return PyLong_FromLong(refused);
    enum pici_status s;
    int ended = 0;
    if (wait) {
        ended = wait_patiently(d, &f->request, &s);
    } else {
        PyThreadState *state = PyEval_SaveThread();
        s = lib.test(&f->request, &ended);
        PyEval_RestoreThread(state);
    }
    if (ended > 0) {
        unlink_flight(d, f);
        land(d, f, s);
    }
    leave(d); /* closes the communicator if another thread asked for it */
    if (ended < 0)
        return NULL;
    return f->ended ? PyLong_FromLong(f->status) : Py_BuildValue("");
}

/* comm_stats(driver, last) -> (calls, wire_bytes, dense_bytes, inter_bytes, sends by format in a tuple, encode_s,
 * decode_s, wait_s, events, quantize_s, dequantize_s, nonfinite, lost), of all calls, or of the last one. The first
 * argument may also be a flight: the statistics of one call. */
static PyObject *comm_stats(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule;
    int last;
    if (!PyArg_ParseTuple(args, "Op", &capsule, &last))
        return NULL;
    const struct totals *t;
    if (PyCapsule_IsValid(capsule, FLIGHT)) {
        const struct flight *f = PyCapsule_GetPointer(capsule, FLIGHT);
        t = f->ended ? &f->done : &none;
    } else {
        const struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
        if (!d)
            return NULL;
        t = last ? &d->last : &d->sum;
    }
    const struct pici_coll_stats *s = &t->stats;
    typedef unsigned long long number;
    return Py_BuildValue("KKKK(KKKKK)dddKddKd", (number)t->calls, (number)s->wire_bytes, (number)s->dense_bytes,
                         (number)s->inter_bytes, (number)s->sends[0], (number)s->sends[1], (number)s->sends[2],
                         (number)s->sends[3], (number)s->sends[4], s->encode_s, s->decode_s, s->wait_s,
                         (number)s->events, s->quantize_s, s->dequantize_s, (number)s->nonfinite, s->lost);
}

/* BUSY or CLOSED if the driver is not usable; else 0. */
static int refusal(const struct driver *d)
{
    return !d->comm ? CLOSED : d->busy ? BUSY : 0;
}

/* comm_error(driver) -> the library's message for the first failure; "" if there was none; or BUSY or CLOSED. */
static PyObject *comm_error(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
    if (!d)
        return NULL;
    const int refused = refusal(d);
    if (refused)
        return PyLong_FromLong(refused);
    const char *words = lib.comm_error(d->comm);
    return PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace");
}

/* comm_set_nodes(driver, nodes) -> a status, BUSY or CLOSED. nodes: a tuple, the node of each rank. */
static PyObject *comm_set_nodes(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule, *nodes;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyTuple_Type, &nodes))
        return NULL;
    struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
    if (!d)
        return NULL;
    const Py_ssize_t n = PyTuple_Size(nodes);
    if (n != d->ranks)
        return PyErr_Format(PyExc_ValueError, "%zd nodes, not one for each of %d ranks", n, d->ranks);
    int *numbers = PyMem_Malloc((size_t)n * sizeof *numbers);
    if (!numbers)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (pici_py_ints(numbers, nodes)) {
        const int refused = refusal(d);
        result = PyLong_FromLong(refused ? refused : lib.comm_set_nodes(d->comm, numbers));
    }
    PyMem_Free(numbers);
    return result;
}

/* comm_close(driver) -> None. If another thread uses the communicator, that thread closes it, within about PIECE_MS. */
static PyObject *comm_close(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct driver *d = PyCapsule_GetPointer(capsule, DRIVER);
    if (!d)
        return NULL;
    if (d->busy) {
        d->stop = true;
    } else if (d->comm) {
        d->busy = true;
        shut(d);
        d->busy = false;
    }
    return Py_BuildValue("");
}

PyMethodDef pici_py_comm_functions[] = {
    {"comm_call", comm_call, METH_VARARGS, NULL},
    {"comm_start", comm_start, METH_VARARGS, NULL},
    {"comm_wait", comm_wait, METH_VARARGS, NULL},
    {"comm_stats", comm_stats, METH_VARARGS, NULL},
    {"comm_error", comm_error, METH_O, NULL},
    {"comm_set_nodes", comm_set_nodes, METH_VARARGS, NULL},
    {"comm_levels", comm_levels, METH_VARARGS, NULL},
    {"comm_close", comm_close, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
