# SPDX-License-Identifier: BSD-3-Clause
"""Collectives: all-reduce, reduce-scatter, all-gather and broadcast of arrays that are mostly zero, among ranks that
are threads, processes on one or many hosts, or GPUs. Messages are sent as sparse blocks where that takes less time. The
result is that of a dense run, bit for bit, and the same on all ranks.

    comms = pici.Comm.threads(4)            # one for each of 4 threads
    comm = pici.Comm.rendezvous()           # among processes, which pici-run starts, or you with variables set
    comm = pici.Comm.mpi()                  # under mpirun, by mpi4py

    total = comm.all_reduce(gradient)       # a new array
    comm.all_reduce(gradient, gradient)     # in place
    request = comm.all_reduce_start(gradient, gradient)
    ...                                     # gradient must not be used until wait() returns
    request.wait()

All ranks make the same calls in the same order, with the same count, dtype, op and options.

Arrays: those of help(pici.codec), in the host's memory; over NCCL those in the GPU's. Of the array that is sent, a copy
is made if it is not row-major. The array that is received into, recv, is written in place; it must be row-major, of the
same dtype, and of the right length. Its shape does not matter. Without recv the result is a new array: a tensor of
torch if a tensor was sent, else an ndarray. In place: for all_reduce recv is send; for reduce_scatter recv is this
rank's part of send; for all_gather and all_gatherv send is this rank's part of recv. broadcast writes its array in
place. Contributions to all_gatherv may differ in length. all_to_allv is never in place.
Complex numbers are summed and gathered, and have no minimum and maximum; bool has these (and, or), and no sum.

Options of the calls, which are the same on all ranks but for timeout, format and pack:
    op         "sum", "avg", "min", "max"
    dtype      the dtype of the elements, if their type does not say it: "bf16" for an array of uint16
    algorithm  "ring", "recursive", ...: docs/reference/algorithms.md; None: that of the communicator (tune());
               all_to_allv has one of its own only
    format     of sparse messages: "bitmap", "coo", "hybrid"; "dense": all messages are dense; None: the communicator's
    timeout    seconds without progress after which the call fails, or a timedelta; math.inf: none
    density    a hint: the fraction of elements of one rank that are not zero; not of broadcast, all_gatherv and
               all_to_allv, as latency, native, values and balance
    latency    a hint: seconds that a short message takes
    native     of blocking calls; True: dense data may go through the dense collective of MPI or NCCL, whose bits may
               differ. Such a call cannot be interrupted
    values     a lossy codec, which rounds the elements of messages: a Values, or a dict of its parameters, such as
               {"codec": "qsgd", "bits": 4, "residual": lost}; None: results are exact
    pack       whether messages of floats are packed: "auto", where that should take less time; "none"; "planes", all;
               None: the communicator's
    balance    how all_reduce and all_reduce_sparse cut the vector into a segment for each rank. "off": equally many
               elements; "on": about equally many nonzeros, which may change how floats are rounded; "auto": the
               latter for sparse vectors of integers, where it pays; None: the communicator's. Other calls ignore it
    zeros      of all_gather, all_gatherv and broadcast: "value" takes -0.0 for +0.0, for less traffic; "exact" keeps
               all bits

Sparse vectors, of which only indices and values are passed:

    indices, values = comm.all_reduce_sparse(indices, values, shape)     # NumPy or torch; sorted, each index once
    total = comm.all_reduce_sparse(x)                                    # of scipy.sparse, or a sparse tensor; the same
    part = comm.reduce_scatter_sparse(x)
    everything = comm.all_gather_sparse(x)
    same = comm.broadcast_sparse(x, root=0)                              # others pass one of that shape and type

indices are int32, int64, uint32 or uint64, in any order, and repeated ones are added: n of them for n values along the
first dimension of shape, or (k, n) for the first k dimensions. A value has the shape of the other dimensions, which
shape may leave out: rows of an embedding are values (n, 64), of a shape of (rows, 64) or rows. Time and memory follow
the indices, not the shape. out="dense" gives a dense array, "shorter" the one that takes fewer bytes; "sparse" is the
default, but not of a dense array, which a rank may pass in place of indices and values, though other ranks pass these.
MIN and MAX take what is not listed for 0. Options are dtype, algorithm, format, timeout, density, latency, pack
and balance; broadcast_sparse has not density, latency and balance. Each has a _start. What is wrong with the vector of
one rank ends the call on all of them, and breaks the communicator.

Threads: a communicator is driven by one thread at a time. A call while another thread is in one raises BusyError. The
GIL is released while the library works.

Errors: an exception of help(pici.errors) with the library's words. If it is raised while ranks exchange messages, all
ranks raise one, and the communicator is broken: later calls raise BrokenError. Close it on all ranks, and make another.

Ctrl-C: a waiting call looks for signals ten times a second. If KeyboardInterrupt, or another exception of a signal's
handler, ends a blocking call, the communicator is closed; its peers fail with PeerError, over MPI by their timeout. If
it ends Request.wait(), the request goes on, and can be waited for again.
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
from ._kwargs import no_pickle
from ._libraries import ALGORITHMS
from ._sparse import SparseCalls
from .errors import BrokenError, make

__all__ = ["Comm", "Request", "Stats"]

T = TypeVar("T")

_SENT = {name: code for name, code in _codec.FORMATS.items() if name not in ("packed", "auto")}

_open: weakref.WeakSet[Comm] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At the end of the program: over MPI, free communicators before MPI_Finalize, which mpi4py calls later."""
    for comm in list(_open):
        comm.close()


def _interruptible(make_it: Callable[[], T]) -> T:
    """Call a function that may wait for long and looks for no signals. In the main thread it runs in another one, so
    that Ctrl-C ends the wait; what it makes is then dropped."""
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
    levels(). help(pici.comm) says how to use it. close() it, or use it in a with block, when all ranks are done: to
    peers that still wait for it a rank that closes is gone."""

    def __init__(self) -> None:
        raise TypeError(
            "Comm() cannot be called: use Comm.threads, Comm.sockets, Comm.rendezvous, Comm.mpi, Comm.nccl or "
            "Comm.levels"
        )

    @classmethod
    def _of(cls, made: _codec.Made, over: str) -> Comm:
        self = cls.__new__(cls)
        self._driver, self._rank, self._size = made
        self._over = over
        self._on_gpu = over == "NCCL"
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

        fds: socket objects, or file descriptors. They belong to the communicator then: objects are detached, and all
        sockets are closed with it, or if this fails. Data is not encrypted; an SSLSocket is refused."""
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
        others have come. Collective.

        What is None comes from the environment: PICI_RENDEZVOUS, PICI_RANK, PICI_RANKS and PICI_TOKEN, which pici-run
        sets. token: the same on all ranks; a connection that does not begin with it is closed. It may be empty only
        where all ranks listen at loopback addresses. Data is not encrypted."""
        rank = None if rank is None else whole("rank", rank, 0, (1 << 20) - 1)
        ranks = None if ranks is None else whole("ranks", ranks, 1, 1 << 20)
        return cls._of(_interruptible(lambda: _transports.rendezvous(address, rank, ranks, token)), "sockets")

    @classmethod
    def mpi(cls, comm: Any = None) -> Comm:
        """A communicator over a duplicate of mpi4py's comm, by default COMM_WORLD. Collective. Needs libpici_mpi, built
        for the same MPI: make mpi MPICC=mpicc makes it. It is looked for at PICI_MPI_LIBRARY, beside libpici, and where
        the loader looks.

        Ctrl-C does not end this call. With MPI_THREAD_SINGLE, all calls must be made by the thread that initialized
        MPI."""
        return cls._of(_transports.over_mpi(comm), "MPI")

    @classmethod
    def nccl(cls, comm_ptr: int, stream: int = 0) -> Comm:
        """A communicator over an ncclComm_t, for arrays in the memory of its GPU: tensors of torch, or arrays with
        __cuda_array_interface__. THIS HAS NOT RUN ON A GPU YET. Collective. Needs libpici_nccl as a shared library
        (make nccl-shared), which is looked for as libpici_mpi is, with PICI_NCCL_LIBRARY.

        comm_ptr: its address, as ProcessGroupNCCL._comm_ptr() of torch says it; it must live as long as this.
        stream: the address of the cudaStream_t in whose order arrays are used, as torch.cuda.Stream.cuda_stream. The
        GPU must be the current device in every call."""
        return cls._of(_transports.over_nccl(comm_ptr, stream), "NCCL")

    @classmethod
    def levels(cls, inner: Comm, outer: Comm) -> Comm:
        """One communicator of two: messages between ranks of a node go over inner, all others over outer. outer joins
        all ranks, and the result has its rank and size; inner joins the ranks of this rank's node. Collective.

        Both are parts of the result then, and closed; if this fails, both are still to be closed. If one is over NCCL,
        so are arrays in the GPU's memory, and both cannot be. Ctrl-C does not end this call, but the timeout of outer
        does."""
        if not isinstance(inner, Comm) or not isinstance(outer, Comm):
            raise TypeError("inner and outer: pass communicators, of pici.Comm")
        if inner is outer:
            raise ValueError("inner and outer are the same communicator")
        made = _codec.comm_levels(inner._driver, outer._driver)
        if isinstance(made, int):
            raise inner._refusal(made)
        self = cls._of(_transports.made(made), f"{inner._over} inside nodes, {outer._over} between")
        self._on_gpu = inner._on_gpu or outer._on_gpu
        for part in (inner, outer):
            part.close()
        return self

    # -- what it is

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
        """Whether it was closed, by close() or by an exception that interrupted a call."""
        return self._closed or _codec.comm_error(self._driver) == CLOSED

    @property
    def error(self) -> str:
        """What broke the communicator, in the library's words; "" if it is not broken."""
        words = _codec.comm_error(self._driver)
        if words == BUSY:
            raise self._refusal(BUSY)
        return words if isinstance(words, str) else ""

    @property
    def stats(self) -> Stats:
        """What the last call did that has ended."""
        return stats_of(self._driver, True)

    @property
    def totals(self) -> Stats:
        """What all calls so far did."""
        return stats_of(self._driver, False)

    def __repr__(self) -> str:
        words = _codec.comm_error(self._driver)
        state = "closed" if words == CLOSED else "" if words == BUSY or not words else f"broken: {words}"
        return f"<pici.Comm rank {self._rank} of {self._size}, {self._over}{state and ', '}{state}>"

    # -- its life

    def close(self) -> None:
        """Free it. Requests in flight are abandoned; peers that wait for this rank fail with PeerError. Not collective.
        If another thread is in a call, that call ends within about 0.1 s with BrokenError; a call with native=True is
        ended first."""
        self._closed = True
        _codec.comm_close(self._driver)
        _open.discard(self)

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "make one in each process, by Comm.rendezvous() or Comm.mpi()")

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how it works

    def set_nodes(self, nodes: Iterable[int]) -> None:
        """Which ranks share a node (a host): the number of each rank's node. Ranks with equal numbers share one. All
        ranks must pass the same before their next call."""
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
        """Change how later calls work; what is None stays. Not collective, but algorithm, window, slice_bytes, history
        and balance must be the same on all ranks. struct pici_tune in pici/coll.h describes each; bandwidths are in
        bytes per second, timeout is in seconds. formats: those that may be chosen, as ["coo", "hybrid"]."""
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
        """Raise the exception for what a change returned."""
        if status == BrokenError.status and not self.error:
            raise make(status, "requests are in flight on the communicator: wait for them first")
        if status:
            raise self._refusal(status)
