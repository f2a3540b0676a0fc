# SPDX-License-Identifier: BSD-3-Clause
"""The communicator of a torch process group, and the thread that makes its calls.

    c = communicator(group)                        # the same one each time; collective the first time
    future = c.submit(lambda comm: comm.all_reduce(x, x, op="avg"))
    future.wait()                                  # the result, or the exception that the call raised
    native(future)                                 # the same for C++ code such as DDP

One thread makes the calls of a communicator, in the order of submit(); the library releases the GIL while it works. The
ranks find each other through the group's store (pici/_peers.py), under pici/GROUP/RESTART/made/n: RESTART counts
torchrun's restarts, n the communicators that this store had for the group. The ranks compare settings under
.../agreed/n.
"""
from __future__ import annotations

import atexit
import datetime
import logging
import os
import queue
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch.autograd.profiler import record_function
from torch.distributed import distributed_c10d as c10d

from .. import _peers
from .._calls import Timeout, milliseconds
from ..comm import Comm
from ..errors import BrokenError, PeerError
from . import _stats

Call = Callable[[Comm], Any]

_log = logging.getLogger("pici.torch")

_EXIT_S = 2.0  # how long the end of the program waits for calls in progress


def flag(name: str) -> bool:
    """An environment variable that is 0 or 1."""
    text = os.environ.get(name, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{name}={text}: not 0 or 1")
    return text == "1"


def outer() -> str:
    """The connection between hosts for CUDA tensors: PICI_TORCH_OUTER, "" or "sockets"."""
    text = os.environ.get("PICI_TORCH_OUTER", "")
    if text not in ("", "sockets"):
        raise ValueError(f"PICI_TORCH_OUTER={text}: not sockets")
    return text


def native(future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
    """A future with an error that C++ code sees: a RuntimeError with the text of the exception. set_exception() stores
    the exception as a value, which such code would take for the result."""
    then: torch.futures.Future[Any] = future.then(_value)
    return then


def _value(future: torch.futures.Future[Any]) -> Any:
    return future.value()


class _Job:
    """A submitted call. stream: the CUDA stream in whose order the result is ready."""

    def __init__(self, call: Call, future: Any, stream: Any = None) -> None:
        self.call, self.future, self.stream = call, future, stream

    def end(self, result: Any) -> None:
        if self.stream is None:
            self.future.set_result(result)
        else:
            with torch.cuda.stream(self.stream):
                self.future.set_result(result)


class _Driver:
    """The work of a communicator's thread. It does not refer to the Communicator, so that this can be dropped."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Optional[_Job]] = queue.SimpleQueue()  # None: the end
        self.comm: Optional[Comm] = None
        self.broken = False
        self.sockets: list[tuple[int, int, int]] = []  # as _peers.identities() has them
        self.made = threading.Event()
        self.failure: Optional[BaseException] = None  # of making the communicator

    def run(self, make: list[Callable[[], Comm]]) -> None:
        try:
            comm = self.comm = make.pop()()
        except BaseException as e:
            self.failure = e
            return
        finally:
            self.made.set()
        while True:
            job = self.jobs.get()
            if job is None:
                break
            try:
                result = job.call(comm)
            except BaseException as e:
                self.broken = comm.closed or bool(comm.error)
                job.future.set_exception(e)
            else:
                job.end(result)
                del result
            del job  # with its tensors, before the next one is waited for
        comm.close()
        while not self.jobs.empty():
            job = self.jobs.get()
            if job is not None:
                job.future.set_exception(_closed())


def _closed() -> BrokenError:
    return BrokenError("the communicator is closed")


def _check_environment() -> None:
    for name in ("PICI_TORCH_STATS", "PICI_TORCH_CUDA"):
        flag(name)
    outer()


def _seconds(timeout: Timeout) -> float:
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout


class _Store:
    """A torch store with clear errors."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def _ask(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._store, method)(*args)
        except RuntimeError as e:
            raise PeerError(
                f"torch's store does not answer ({str(e).splitlines()[0]}): the process that holds it, mostly rank 0, "
                "ended before the ranks of this group were connected, which they are at their first call"
            ) from e

    def set(self, key: str, text: str) -> None:
        self._ask("set", key, text)

    def get(self, key: str) -> Any:
        return self._ask("get", key)

    def add(self, key: str, number: int) -> int:
        return int(self._ask("add", key, number))


def _place(store: Any, group: str, rank: int, what: str) -> _Store:
    """A place of the group's store that nothing else uses: the n-th of that kind on each rank, counted in the store."""
    prefix = f"pici/{group}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    n = _Store(store).add(f"{prefix}/{what}/{rank}", 1)
    return _Store(dist.PrefixStore(f"{prefix}/{what}/{n}", store))


def _connected(
    store: Any, rank: int, size: int, timeout: Timeout, group: str, look: Callable[[], object], what: str
) -> tuple[Comm, list[tuple[int, int, int]]]:
    """A communicator over sockets, and these as _peers.identities() has them."""
    if size == 1:
        return Comm.sockets([-1], 0, 1), []
    place = _place(store, group, rank, what)
    fds = _peers.connect(place, rank, size, _seconds(timeout), _check_environment, look)
    sockets = _peers.identities(fds)
    comm = Comm.sockets(fds, rank, size)
    algorithm = os.environ.get("PICI_ALGORITHM", "auto")
    _log.info(
        "rank %d of %d of group %r: connected from %s, algorithm %s",
        *(rank, size, group, _peers.own_address(), algorithm),
    )
    return comm, sockets


class Communicator:
    """A pici.Comm over sockets among ranks that share a torch Store, and a thread that uses it. Collective.
        timeout   for connecting, and of calls without one
        group     a name, the same on all ranks
        look      called while this rank waits for others: raises if one of them is gone
    ValueError: an invalid environment variable. TimedOutError, PeerError: the ranks are not connected."""

    stats: _stats.Stats  #: sums over all calls, as these add to it

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: Timeout,
        group: str = "",
        look: Callable[[], object] = lambda: None,
    ) -> None:
        driver = _Driver()

        def make() -> Comm:
            comm, driver.sockets = _connected(store, rank, size, timeout, group, look, "made")
            return comm

        self._begin(driver, make, rank, size, timeout)

    @classmethod
    def made_by(cls, make: Callable[[], Comm], rank: int, size: int, timeout: Timeout) -> Communicator:
        """A communicator over another transport. make: called in the thread that will use the result."""
        self = cls.__new__(cls)
        self._begin(_Driver(), make, rank, size, timeout)
        return self

    def _begin(self, driver: _Driver, make: Callable[[], Comm], rank: int, size: int, timeout: Timeout) -> None:
        milliseconds(timeout)  # raises if it is invalid
        self.rank, self.size, self.timeout = rank, size, timeout
        self.stats = _stats.Stats()
        self._driver = driver
        self._thread = threading.Thread(target=self._driver.run, args=([make],), name="pici.torch", daemon=True)
        self._thread.start()
        self._driver.made.wait()
        if self._driver.failure is not None:
            raise self._driver.failure
        self._end = weakref.finalize(self, self._driver.jobs.put, None)
        self._end.atexit = False  # _close_all() does more
        _alive.add(self)
        if flag("PICI_TORCH_STATS") and (dist.get_rank() if dist.is_initialized() else rank) == 0:
            _stats.report_at_exit(self.stats)

    def submit(
        self, call: Call, devices: Optional[list[torch.device]] = None, stream: Any = None
    ) -> torch.futures.Future[Any]:
        """Make a call after all earlier ones. devices, stream: of CUDA tensors, the stream on which the call works."""
        if not self._end.alive:
            raise _closed()
        future: torch.futures.Future[Any]
        future = torch.futures.Future(devices=devices) if devices else torch.futures.Future()
        self._driver.jobs.put(_Job(call, future, stream))
        return future

    @property
    def broken(self) -> bool:
        """Whether a call failed so that all later ones will fail."""
        return self._driver.broken

    def drain(self) -> None:
        """Wait for the end of all submitted calls, with or without errors."""
        self.submit(lambda comm: None).wait()

    def close(self, timeout: Optional[float] = None) -> None:
        """End the thread after the submitted calls, and free the communicator. timeout: seconds to wait for them;
        afterwards they continue."""
        self._end()
        self._thread.join(timeout)

    def abort(self) -> None:
        """Break the connections: a call in flight, and later ones, fail on all ranks."""
        if self._driver.comm is not None:
            self._driver.comm.close()

    def forked(self) -> None:
        """In the child of a fork: close its copies of the sockets. The communicator is the parent's; but while a socket
        is open anywhere, peers do not notice the end of the parent."""
        self._end.detach()
        _peers.close_copies(self._driver.sockets)


def log_call(name: str, elements: int, last: Any) -> None:
    """Log the bytes that a call sent, and its time."""
    _log.debug(
        "%s: %d elements, %d bytes sent of %d dense, %.4f s encoding, %.4f s decoding, %.4f s waiting",
        *(name, elements, last.wire_bytes, last.dense_bytes, last.encode_s, last.decode_s, last.wait_s),
    )


def profiled(name: str, submit: Callable[[], Any]) -> tuple[Any, Any]:
    """The future of a call, which submit() returns, and a future that ends when the profiler has recorded it, or None:
    its event ends with the call."""
    if not getattr(torch.autograd, "_profiler_enabled", bool)():
        return submit(), None
    with record_function(f"pici:{name}") as event:
        future = submit()
        return future, event._call_end_callbacks_on_future(future)


class _Made:
    """The communicator of a group; one thread at a time makes it. Threads for different groups do not wait for each
    other: another rank may have another order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.communicator: Optional[Communicator] = None


_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()
_of_group: weakref.WeakKeyDictionary[Any, _Made] = weakref.WeakKeyDictionary()
_of_group_lock = threading.Lock()


@atexit.register
def _close_all() -> None:
    for c in list(_alive):
        c.close(timeout=_EXIT_S)


def _after_fork() -> None:
    for c in list(_alive):
        c.forked()


os.register_at_fork(after_in_child=_after_fork)


def resolved(group: Optional[dist.ProcessGroup]) -> dist.ProcessGroup:
    """The group, or the default one for None."""
    if group is None:
        default: dist.ProcessGroup = c10d._get_default_group()
        return default
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{group!r} is no process group that this rank is in")
    return group


def global_rank(group: dist.ProcessGroup, rank: int) -> int:
    """The number among all ranks of a rank of a group."""
    return rank if group is dist.group.WORLD else int(dist.get_global_rank(group, rank))


def cpu_backend(group: dist.ProcessGroup) -> Any:
    """The backend of a group for the CPU; None if it has none."""
    if not hasattr(group, "_get_backend"):  # an old torch, in which the group is the backend
        return group
    try:
        return group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None


class Watch:
    """Detects the end of a rank while this one waits for it in a store, which does not report that. It uses a gloo
    barrier, whose connections do. All ranks of the group must make one at the same time. Without gloo it detects
    nothing."""

    def __init__(self, backend: Any) -> None:
        self._barrier = None
        name = backend.getBackendName() if hasattr(backend, "getBackendName") else backend.name() if backend else ""
        if name in ("gloo", "pici"):
            self._barrier = backend.barrier(_c10d.BarrierOptions())

    def look(self) -> None:
        """PeerError: a rank has ended."""
        if self._barrier is None or not self._barrier.is_completed():
            return
        barrier, self._barrier = self._barrier, None
        try:
            barrier.wait()
        except RuntimeError as e:
            if "imed out" in str(e):  # as the wait in the store will, which names the ranks
                return
            raise PeerError(f"a rank ended before all were connected: {str(e).splitlines()[0]}") from e


def group_timeout(group: dist.ProcessGroup, store: Any) -> Timeout:
    """The timeout of a group: of its CPU backend, or else of its store."""
    backend = cpu_backend(group)
    for owner in (getattr(backend, "options", None), store):
        for member in ("_timeout", "timeout"):
            timeout = getattr(owner, member, None)
            if isinstance(timeout, datetime.timedelta):
                return timeout
    default: Timeout = c10d.default_pg_timeout
    return default


def _registered(group: dist.ProcessGroup) -> tuple[Any, str]:
    """The store of a group, and its name, where the versions of torch keep them."""
    world: Any = getattr(c10d, "_world", None)
    stores, names = (world.pg_map, world.pg_names) if world is not None else (c10d._pg_map, c10d._pg_names)
    if group not in stores:
        raise ValueError("the process group was destroyed")
    return stores[group][1], names[group]


def communicator(group: Optional[dist.ProcessGroup] = None) -> Communicator:
    """The communicator of a process group, None: of the default one. All ranks of the group must make the first call,
    which connects them. It ends with the group."""
    group = resolved(group)
    with _of_group_lock:
        made = _of_group.setdefault(group, _Made())
    with made.lock:
        if made.communicator is None:
            store, name = _registered(group)
            timeout, watch = group_timeout(group, store), Watch(cpu_backend(group))
            made.communicator = Communicator(
                store, dist.get_rank(group), dist.get_world_size(group), timeout, name, watch.look
            )
        return made.communicator


def comm(group: Optional[dist.ProcessGroup] = None) -> Comm:
    """A pici.Comm among the ranks of a process group, None: of the default one, for tensors in host memory. All ranks
    of the group must call it; each call connects them anew. help(pici.comm) explains its use. close() it afterwards.
    Its calls have the group's timeout."""
    return over_sockets(resolved(group), "comm")


def over_sockets(group: dist.ProcessGroup, what: str) -> Comm:
    """A communicator among the ranks of a group, connected anew. what: its purpose, a key in the store. Collective."""
    store, name = _registered(group)
    timeout, watch = group_timeout(group, store), Watch(cpu_backend(group))
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    made, _ = _connected(store, rank, size, timeout, name, watch.look, what)
    made.tune(timeout=timeout)
    return made


def _host() -> str:
    """An identifier of this host, as in NCCL: NCCL_HOSTID, or else its name and boot."""
    said = os.environ.get("NCCL_HOSTID", "")
    if said:
        return said
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def host_mates(group: dist.ProcessGroup) -> list[int]:
    """The global ranks of a group's members on this rank's host, in ascending order. Collective."""
    store, name = _registered(group)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    place = _place(store, name, rank, "hosts")
    place.set(str(rank), _host())
    hosts = [bytes(place.get(str(r))).decode() for r in range(size)]
    return [global_rank(group, r) for r in range(size) if hosts[r] == hosts[rank]]


def agree(group: dist.ProcessGroup, settings: Callable[[], str]) -> None:
    """Compare settings that all ranks of a group must share. settings() returns them in words; the other ranks get its
    exception too. All ranks must call this."""
    size = dist.get_world_size(group)
    if size == 1:
        settings()
        return
    store, name = _registered(group)
    rank, timeout = dist.get_rank(group), group_timeout(group, store)
    watch = Watch(cpu_backend(group))
    _peers.agree(_place(store, name, rank, "agreed"), rank, size, _seconds(timeout), settings, watch.look)
