# SPDX-License-Identifier: BSD-3-Clause
"""Collectives: all-reduce, reduce-scatter, all-gather and broadcast of arrays with mostly zero elements, among ranks
that are threads, processes on one or many hosts, or GPUs. A rank sends messages as sparse blocks where that takes less
time. The result has the bits of a dense run, and is the same on all ranks.

    comms = pici.Comm.threads(4)            # one for each of 4 threads
    comm = pici.Comm.rendezvous()           # among processes that pici-run starts, or that you start with variables
    comm = pici.Comm.mpi()                  # under mpirun, by mpi4py

    total = comm.all_reduce(gradient)       # a new array
    comm.all_reduce(gradient, gradient)     # in place
    request = comm.all_reduce_start(gradient, gradient)
    ...                                     # do not use gradient until wait() returns
    request.wait()

All ranks make the same calls in the same order, with the same count, dtype, op and options.

Arrays: as in help(pici.codec), in host memory; over NCCL in GPU memory. A call copies send if it is not row-major, and
writes to recv in place. recv must be row-major, with the same dtype and the right length; its shape does not matter.
Without recv the result is a new array: a torch tensor if send is one, else an ndarray.
In place: for all_reduce recv is send; for reduce_scatter recv is this rank's part of send; for all_gather and
all_gatherv send is this rank's part of recv. broadcast writes its array in place. all_to_allv is never in place.
Contributions to all_gatherv may differ in length.
Complex numbers support sums and gathers, but not min and max. bool supports min and max (and, or), but not sums.

Options of calls; all except timeout, format and pack must be the same on all ranks:
    op         "sum", "avg", "min", "max"
    dtype      the dtype of the elements, if the array's type does not give it: "bf16" for an array of uint16
    algorithm  "ring", "recursive", ...: docs/reference/algorithms.md; None: the communicator's (tune()). all_to_allv
               has only its own
    format     of sparse messages: "bitmap", "coo", "hybrid"; "dense": all messages are dense; None: the communicator's
    timeout    the call fails after this many seconds, or a timedelta, without progress; math.inf: never
    density    a hint: the fraction of nonzero elements on one rank. broadcast, all_gatherv and all_to_allv do not have
               density, latency, native, values and balance
    latency    a hint: seconds that a short message takes
    native     for blocking calls. True: dense data may use the dense collective of MPI or NCCL, whose bits may differ.
               You cannot interrupt such a call
    values     a lossy codec for the elements of messages: a Values, or a dict of its parameters, such as {"codec":
               "qsgd", "bits": 4, "residual": lost}; None: results are exact
    pack       packing of float messages: "auto": where that should take less time; "none"; "planes": all; None: the
               communicator's
    balance    how all_reduce and all_reduce_sparse cut the vector into one segment per rank. "off": equally many
               elements. "on": about equally many nonzeros, which may change the rounding of floats. "auto": as "on" for
               sparse vectors of integers where it pays, else as "off". None: the communicator's. Other calls ignore it
    zeros      for all_gather, all_gatherv and broadcast: "value" sends -0.0 as +0.0, for less traffic; "exact" keeps
               all bits

Sparse vectors, as indices and values:

    indices, values = comm.all_reduce_sparse(indices, values, shape)     # NumPy or torch; sorted, each index once
    total = comm.all_reduce_sparse(x)                                    # of scipy.sparse, or a sparse tensor; the same
    part = comm.reduce_scatter_sparse(x)
    everything = comm.all_gather_sparse(x)
    same = comm.broadcast_sparse(x, root=0)                              # others pass one of this shape and type

indices are int32, int64, uint32 or uint64, in any order; the call adds values of repeated indices. n indices select
along the first dimension of shape, (k, n) along the first k. A value has the shape of the other dimensions, which shape
may omit: rows of an embedding are values (n, 64), with a shape of (rows, 64) or rows. Time and memory grow with the
indices, not with the shape.
A rank may pass a dense array instead of indices and values, even if other ranks pass these. out="dense" gives a dense
array, out="shorter" the form with fewer bytes; the default is "sparse", or "dense" for a dense array. min and max treat
unlisted elements as 0. Options: dtype, algorithm, format, timeout, density, latency, pack and balance; broadcast_sparse
does not have density, latency and balance. Each call has a _start. An invalid vector on one rank ends the call on all
ranks, and breaks the communicator.

Neighbourhoods, in which a rank receives from some ranks only (docs/reference/neighbor.md):

    plan = comm.neighbors(sources, destinations)     # made once, by all ranks
    got = plan.all_gather(send)                      # the arrays of sources, in this order
    got = plan.all_gatherv(send, counts)             # counts: how many elements each source sends

Threads: only one thread at a time may use a communicator. A call during another thread's call raises BusyError. The
library releases the GIL while it works.

Errors: calls raise exceptions of help(pici.errors) with the library's message. After an error during an exchange of
messages, all ranks raise one, and the communicator is broken: later calls raise BrokenError. Close it on all ranks, and
make another.

Ctrl-C: a waiting call checks for signals ten times a second. If KeyboardInterrupt, or another exception of a signal
handler, ends a blocking call, the call closes the communicator. Peers then fail with PeerError, over MPI by their
timeout. If it ends Request.wait(), the request continues, and you can wait for it again.
"""
from __future__ import annotations

import atexit
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Optional, TypeVar, Union

from . import _codec, _transports
from ._calls import BUSY, CLOSED, Request, Stats, Timeout, choice, milliseconds, number, stats_of, whole
from ._gpu import Order
from ._kwargs import no_pickle
from ._libraries import ALGORITHMS
from ._neighbors import NeighborInfo, Neighbors
from ._sparse import SparseCalls
from .errors import BrokenError, make

__all__ = ["Comm", "NeighborInfo", "Neighbors", "Request", "Stats"]

T = TypeVar("T")

_SENT = {name: code for name, code in _codec.FORMATS.items() if name not in ("packed", "auto")}

_open: weakref.WeakSet[Comm] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At exit: over MPI, free communicators before MPI_Finalize, which mpi4py calls later."""
    for comm in list(_open):
        comm.close()


def _interruptible(make_it: Callable[[], T]) -> T:
    """Call a function that may wait long without checking for signals. From the main thread, it runs in another thread,
    so that Ctrl-C ends the wait; its result is then dropped."""
    if threading.current_thread() is not threading.main_thread():
        return make_it()
    made: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(make_it())
        except BaseException as e:
            failed.append(e)

    helper = threading.Thread(target=run, name="pici-connect", daemon=True)
    helper.start()
    helper.join()
    if failed:
        raise failed[0]
    return made[0]


class Comm(SparseCalls):
    """A communicator: this rank's end of a group of ranks. Made by threads(), sockets(), rendezvous(), mpi(), nccl() or
    levels(). help(pici.comm) explains its use. close() it, or leave its with block, when all ranks are done: peers that
    still wait for this rank then fail."""

    def __init__(self) -> None:
        raise TypeError(
            "Comm() cannot be called: use Comm.threads, Comm.sockets, Comm.rendezvous, Comm.mpi, Comm.nccl or "
            "Comm.levels"
        )

    @classmethod
    def _of(cls, made: _codec.Made, over: str, order: Optional[Order] = None) -> Comm:
        self = cls.__new__(cls)
        self._driver, self._rank, self._size = made
        self._over = over
        self._on_gpu = order
        self._closed = False
        self._native = over in ("MPI", "NCCL")
        self._permits = os.environ.get("PICI_NATIVE", os.environ.get("PICI_VENDOR")) == "1"
        _open.add(self)
        return self

    @classmethod
    def threads(cls, n: int) -> list[Comm]:
        """Communicators among n threads of this process, one for each."""
        n = whole("n", n, 1, 1 << 20)
        return [cls._of(made, "threads") for made in _transports.over_threads(n)]

    @classmethod
    def sockets(cls, fds: Sequence[Union[int, socket.socket, None]], rank: int, ranks: Optional[int] = None) -> Comm:
        """A communicator over connected stream sockets, one for each pair of ranks: fds[r] is this rank's end of the
        connection whose other end is rank r's fds[rank]; fds[rank] is ignored. Collective.

        fds: socket objects, or file descriptors. The communicator takes them over: it detaches objects, and closes all
        sockets at close(), or if this call fails. Data is not encrypted; an SSLSocket is rejected."""
        sockets = list(fds)
        ranks = whole("ranks", len(sockets) if ranks is None else ranks, 1, 1 << 20)
        rank = whole("rank", rank, 0, ranks - 1)
        if len(sockets) != ranks:
            raise ValueError(f"fds has {len(sockets)} sockets, not {ranks}, one for each rank")
        for r, s in enumerate(sockets):
            if r != rank and not isinstance(s, (int, socket.socket)):
                raise TypeError(f"fds[{r}] is {s!r}: pass a socket, or its file descriptor")
            if isinstance(s, int):
                whole(f"fds[{r}]", s, -(2**31), 2**31 - 1)
            if type(s).__module__ == "ssl":
                raise TypeError(f"fds[{r}] is an SSLSocket, whose encryption would be bypassed: pass a plain socket")
        numbers = [s if isinstance(s, int) else s.detach() if isinstance(s, socket.socket) else -1 for s in sockets]
        return cls._of(_interruptible(lambda: _transports.over_sockets(numbers, rank)), "sockets")

    @classmethod
    def rendezvous(
        cls,
        address: Optional[str] = None,
        rank: Optional[int] = None,
        ranks: Optional[int] = None,
        token: Optional[str] = None,
    ) -> Comm:
        """A communicator over TCP, among processes that know one address: "HOST:PORT", where rank 0 listens until all
        others have connected. Collective.

        None: take the value from the environment: PICI_RENDEZVOUS, PICI_RANK, PICI_RANKS and PICI_TOKEN, which pici-run
        sets. token: the same on all ranks; a rank closes connections that do not begin with it. It may be empty only if
        all ranks listen at loopback addresses. Data is not encrypted, unless PICI_SOCKET_TLS=1."""
        rank = None if rank is None else whole("rank", rank, 0, (1 << 20) - 1)
        ranks = None if ranks is None else whole("ranks", ranks, 1, 1 << 20)
        return cls._of(_interruptible(lambda: _transports.rendezvous(address, rank, ranks, token)), "sockets")

    @classmethod
    def mpi(cls, comm: Any = None) -> Comm:
        """A communicator over a duplicate of mpi4py's comm, by default COMM_WORLD. Collective. Needs libpici_mpi, built
        for the same MPI by make mpi MPICC=mpicc. pici searches PICI_MPI_LIBRARY, the folder of libpici, and the
        loader's path.

        Ctrl-C does not end this call. With MPI_THREAD_SINGLE, only the thread that initialized MPI may make calls."""
        return cls._of(_transports.over_mpi(comm), "MPI")

    @classmethod
    def nccl(cls, comm_ptr: int, stream: int = 0) -> Comm:
        """A communicator over an ncclComm_t, for arrays in its GPU's memory: torch tensors, or arrays with
        __cuda_array_interface__. THIS HAS NOT RUN ON A GPU YET. Collective. Needs libpici_nccl as a shared library
        (make nccl-shared); pici searches PICI_NCCL_LIBRARY, then as for libpici_mpi.

        comm_ptr: its address, as from ProcessGroupNCCL._comm_ptr() of torch; it must outlive this communicator.
        stream: the address of a cudaStream_t, such as torch.cuda.Stream.cuda_stream; calls use arrays in its order. The
            GPU must be the current device in every call."""
        return cls._of(_transports.over_nccl(comm_ptr, stream), "NCCL", Order(stream))

    @classmethod
    def levels(cls, inner: Comm, outer: Comm) -> Comm:
        """Combine two communicators: messages inside a node go over inner, all others over outer. outer joins all
        ranks, and the result has its rank and size; inner joins the ranks of this rank's node. Collective.

        The result takes both over, and they count as closed; if this fails, close both yourself. If one is over NCCL,
        arrays are in GPU memory; both cannot be over NCCL. Ctrl-C does not end this call, but the timeout of outer
        does."""
        if not isinstance(inner, Comm) or not isinstance(outer, Comm):
            raise TypeError("inner and outer: pass communicators, of pici.Comm")
        if inner is outer:
            raise ValueError("inner and outer are the same communicator")
        made = _codec.comm_levels(inner._driver, outer._driver)
        if isinstance(made, int):
            raise inner._refusal(made)
        over = f"{inner._over} inside nodes, {outer._over} between"
        self = cls._of(_transports.made(made), over, inner._on_gpu or outer._on_gpu)
        for part in (inner, outer):
            part.close()
        return self

    # -- properties

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether close(), or an exception that interrupted a call, has closed it."""
        return self._closed or _codec.comm_error(self._driver) == CLOSED

    @property
    def error(self) -> str:
        """The library's description of what broke the communicator; "" if it is not broken."""
        words = _codec.comm_error(self._driver)
        if words == BUSY:
            raise self._refusal(BUSY)
        return words if isinstance(words, str) else ""

    @property
    def stats(self) -> Stats:
        """Statistics of the last call that has ended."""
        return stats_of(self._driver, True)

    @property
    def totals(self) -> Stats:
        """Statistics of all calls so far."""
        return stats_of(self._driver, False)

    def __repr__(self) -> str:
        words = _codec.comm_error(self._driver)
        state = "closed" if words == CLOSED else "" if words == BUSY or not words else f"broken: {words}"
        return f"<pici.Comm rank {self._rank} of {self._size}, {self._over}{state and ', '}{state}>"

    # -- end

    def close(self) -> None:
        """Free it, and abandon requests in flight; peers that wait for this rank fail with PeerError. Not collective.
        Another thread's call ends within about 0.1 s with BrokenError; close() waits for a call with native=True."""
        self._closed = True
        _codec.comm_close(self._driver)
        _open.discard(self)

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "make one in each process, by Comm.rendezvous() or Comm.mpi()")

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- neighbourhoods

    def neighbors(
        self,
        sources: Iterable[int],
        destinations: Iterable[int],
        *,
        route: str = "auto",
        most_bytes: int = 0,
        leaf: int = 0,
        gain: int = 0,
        level: str = "node",
        region: Optional[int] = None,
    ) -> Neighbors:
        """Make a plan for neighbourhood all-gathers. This rank receives from the ranks in sources, and sends to those
        in destinations. All ranks make it, with the same options; both ends of an edge list it equally often. route:
        "direct", a message for each edge; "halving", ranks relay for each other; "auto", the route predicted to be
        faster. most_bytes: the most that a rank sends in all_gatherv, which saves a round in each call. leaf, gain: as
        in struct pici_neighbor_opts. level: ranks of a "node", a CPU "socket" or a "numa" domain send each other their
        blocks directly; a rank's affinity gives its socket or domain. region: the number of this rank's own region
        instead, which may differ between ranks. After set_nodes(), make a new plan. Ctrl-C does not end this call."""
        return Neighbors._of(self, sources, destinations, route, (most_bytes, leaf, gain), level, region)

    # -- settings

    def set_nodes(self, nodes: Iterable[int]) -> None:
        """Set which ranks share a node (a host): the number of each rank's node. Ranks with equal numbers share one.
        All ranks must pass the same numbers before their next call."""
        numbers = [whole("a node", node, -(2**31), 2**31 - 1) for node in nodes]
        if len(numbers) != self._size:
            raise ValueError(f"nodes has {len(numbers)} numbers, not {self._size}, one for each rank")
        self._accept(_codec.comm_set_nodes(self._driver, tuple(numbers)))

    def tune(
        self,
        *,
        algorithm: Optional[str] = None,
        window: Optional[int] = None,
        slice_bytes: Optional[int] = None,
        format: Optional[str] = None,
        formats: Optional[Iterable[str]] = None,
        inter_threshold: Optional[float] = None,
        intra_threshold: Optional[float] = None,
        ag_threshold: Optional[float] = None,
        checksum: Optional[bool] = None,
        inter_bandwidth: Optional[float] = None,
        intra_bandwidth: Optional[float] = None,
        timeout: Optional[Timeout] = None,
        history: Optional[bool] = None,
        pack: Optional[str] = None,
        balance: Optional[str] = None,
    ) -> None:
        """Change the parameters of later calls; None changes nothing. Not collective, but algorithm, window,
        slice_bytes, history and balance must be the same on all ranks. struct pici_tune in pici/coll.h describes each;
        bandwidths are in bytes per second, timeout is in seconds. formats: the allowed formats, such as ["coo",
        "hybrid"]."""
        given: dict[str, Any] = {}
        if algorithm is not None:
            given["algorithm"] = choice("algorithm", algorithm, {n: i for n, i in ALGORITHMS.items() if i})
        if window is not None:
            given["window"] = whole("window", window, 1, 64)
        if slice_bytes is not None:
            given["slice_bytes"] = whole("slice_bytes", slice_bytes, 1, 2**40)
        if format is not None:
            given["format"] = choice("format", format, _SENT)
        if formats is not None:
            given["formats"] = sum({1 << choice("formats", name, _SENT) for name in formats})
            if not given["formats"]:
                raise ValueError("formats is empty: pass at least one name")
        for name, share in (("inter", inter_threshold), ("intra", intra_threshold), ("ag", ag_threshold)):
            if share is not None:
                given[f"{name}_threshold"] = number(f"{name}_threshold", share, 0, 1)
        for name, rate in (("inter", inter_bandwidth), ("intra", intra_bandwidth)):
            if rate is not None:
                given[f"{name}_bandwidth"] = number(f"{name}_bandwidth", rate, 1, 1e18)
        for name, on in (("checksum", checksum), ("history", history)):
            if on is not None:
                given[name] = 1 if on else -1
        if pack is not None:
            given["pack"] = choice("pack", pack, _codec.PACKINGS)
        if balance is not None:
            given["balance"] = choice("balance", balance, _codec.BALANCES)
        if timeout is not None:
            given["timeout_ms"] = milliseconds(timeout)
        self._accept(_codec.comm_tune(self._driver, **given))

    def _accept(self, status: int) -> None:
        """Raise the exception for the status of a change."""
        if status == BrokenError.status and not self.error:
            raise make(status, "requests are in flight on the communicator: wait for them first")
        if status:
            raise self._refusal(status)
