# SPDX-License-Identifier: BSD-3-Clause
"""One mirror for all workers of a server on a host. One worker, the leader, gets updates; all load from its memory.

The worker that holds the folder's lock leads while its process lives. It reports its progress in a JSON file, and the
others wait for it. The memory belongs to the leader (memfd_create), and ends with it.
"""
from __future__ import annotations

import fcntl
import itertools
import json
import math
import mmap
import os
import shutil
import tempfile
import time
from contextlib import suppress
from typing import Any

import numpy as np

from .. import _arrays
from .._dtypes import named
from ._parts import Held, Meta

_ALIGN = 64
_serial = itertools.count()
_POLL = 0.005  # seconds
_LONGEST = 1800.0


class LeaderError(RuntimeError):
    """The leader did not get an update."""


def folder_of_server(name: str) -> str:
    """The folder of a server's workers on a host. Its name has their common parent process and the server's name; under
    Ray all servers of a host have the same parent.
    """
    parent = os.getppid()
    with open(f"/proc/{parent}/stat", "rb") as f:
        began = f.read().rpartition(b")")[2].split()[19].decode()  # another process may get the same number later
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    return os.path.join(base, f"pici-{os.getuid()}-{parent}-{began}{name}")


class Memory:
    """The weights of a mirror, in memory that the user's other processes can map."""

    def __init__(self, metas: list[Meta]) -> None:
        self.table: list[tuple[str, str, tuple[int, ...], int]] = []
        end = 0
        for meta in metas:
            self.table.append((*meta, end))
            end += meta.bytes + -meta.bytes % _ALIGN
        self._fd = os.memfd_create("pici-mirror")
        try:
            os.ftruncate(self._fd, max(end, 1))
            self._map = mmap.mmap(self._fd, max(end, 1))
        except BaseException:
            self.close()
            raise
        #: for attach(); the last number distinguishes it from earlier memory with the same descriptor
        self.place = [os.getpid(), self._fd, next(_serial)]

    def arrays(self, to: str) -> dict[str, Any]:
        return _views(self._map, self.table, to)

    def close(self) -> None:
        """Close the descriptor. The memory stays while a process maps it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _views(memory: mmap.mmap, table: Any, to: str) -> dict[str, Any]:
    found = {}
    for name, dtype, shape, offset in table:
        d = named(dtype)
        bits = np.frombuffer(memory, d.storage, math.prod(shape), offset).reshape(tuple(shape))
        found[name] = _arrays.delivery(d, to)(bits)
    return found


def fill(arrays: dict[str, Any], given: dict[str, Any]) -> None:
    for name, x in given.items():
        Held(name, arrays[name]).bits[...] = Held(name, x).bits


def attach(place: list[int], table: Any, to: str) -> dict[str, Any]:
    """The weights of a leader's Memory."""
    with open(f"/proc/{place[0]}/fd/{place[1]}", "r+b") as f:
        return _views(mmap.mmap(f.fileno(), 0), table, to)


class Board:
    """The leader's messages to the others."""

    def __init__(self, folder: str) -> None:
        _sweep(os.path.dirname(folder))
        self._folder = folder
        while True:
            os.makedirs(folder, 0o700, exist_ok=True)
            if os.stat(folder).st_uid != os.getuid():
                raise LeaderError(f"{folder} is another user's")
            try:
                self._lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue  # it was removed meanwhile
            self.leads = self._take()
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), os.stat(os.path.join(folder, "lock"))):
                    return
            os.close(self._lock)

    def _take(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write(self, **state: Any) -> None:
        path = os.path.join(self._folder, "state")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(state, f)
        os.replace(path + ".new", path)

    def read(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, "state"), encoding="utf-8") as f:
                state = json.load(f)
        except FileNotFoundError:
            return {}
        return state if isinstance(state, dict) else {}

    def wait(self, ticket: str, *phases: str) -> dict[str, Any]:
        """Wait until the leader is in one of these phases of the update with this ticket."""
        deadline = time.monotonic() + _LONGEST
        while True:
            state = self.read()
            if state.get("ticket") == ticket and state.get("phase") in phases:
                return state
            if self._take():
                self.leads = True
                raise LeaderError("the worker that gets updates for all of this host is gone")
            if time.monotonic() > deadline:
                raise LeaderError(f"the worker that gets updates for all of this host is not {phases[0]} yet")
            time.sleep(_POLL)

    @property
    def _mark(self) -> str:
        return os.path.join(self._folder, "broken")

    def mark(self) -> None:
        """Note that a worker's weights differ from the mirror: the next update must be the whole state."""
        with open(self._mark, "w", encoding="ascii"):
            pass

    def unmark(self) -> bool:
        """Whether a worker's weights differed from the mirror. Clears the note."""
        try:
            os.unlink(self._mark)
        except FileNotFoundError:
            return False
        return True

    def close(self) -> None:
        if self._lock >= 0 and self.leads:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _sweep(base: str) -> None:
    """Remove folders of killed servers. A server in another PID namespace, such as a container's, may have the same
    base, and its processes do not show in /proc. But while it lives, its leader holds the lock.
    """
    for name in os.listdir(base):
        parts = name.split("-")
        if len(parts) == 4 and parts[:2] == ["pici", str(os.getuid())] and not os.path.exists(f"/proc/{parts[2]}"):
            folder = os.path.join(base, name)
            try:
                lock = os.open(os.path.join(folder, "lock"), os.O_RDWR)
            except OSError:
                continue  # one that begins
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(lock)
