# SPDX-License-Identifier: BSD-3-Clause
"""Logs of deltas: folders from which servers load weights during training.

    log = pici.DeltaLog.create("weights.log", weights)      # the trainer: state 0
    log.append(weights, updated)                            # 1, and so on
    log.compact()                                           # now and then

    weights, number = pici.DeltaLog("weights.log").load()   # a server, when it starts
    weights, number = pici.DeltaLog("weights.log").load(weights, number)    # and later: the deltas since
    for weights, number in pici.DeltaLog("s3://bucket/run").follow():       # or each new state, on arrival

The rules of help(pici.deltas) about states and options hold here too.
"""
from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, overload

from . import _arrays, _codec, _looks, _remote
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import DTypeLike
from ._kwargs import Decoding, Pack
from ._ranges import u31, u64
from ._store import Found, is_url, local_path
from ._streams import Path, encoded
from .codec import pack_code
from .deltas import (
    BYTES,
    SAFETENSORS,
    Convert,
    Held,
    Out,
    State,
    arrays_of,
    converted,
    diff_opts,
    got,
    raw_code,
)
from .errors import ArgumentError, Error, ExistsError, IoError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


class LogState(NamedTuple):
    """A state of a log, and the delta from the previous state."""

    number: int
    #: bytes of its file
    bytes: int
    #: bytes of the delta; 0 of the oldest
    delta_bytes: int


class DeltaLog:
    """A folder with one complete state, the base, and the deltas from each state to the next: for example the weights
    after each training step, for servers. States are numbered from 0.

    A trainer appends. A server with the folder, or a copy of it, gets from any state to the newest, even after a break.
    From an incomplete copy it gets to the last state that the deltas reach. Changes are atomic, even if a process is
    killed. picitool log reads and writes the same folders (formats/delta-log.md).

    The folder may be a URL of a store, such as s3://bucket/run, through the package fsspec; http:// and https:// are
    read-only. Calls retry failed requests a few times, and keep downloads in temporary files during the call.

    The object keeps nothing open; each call reads the manifest again."""

    def __init__(self, folder: Path, *, storage_options: Optional[Mapping[str, Any]] = None) -> None:
        """The log in an existing folder, or at a URL. storage_options: for fsspec's file system."""
        self._place(folder, storage_options)
        with self._open():
            pass

    def _place(self, folder: Path, options: Optional[Mapping[str, Any]]) -> None:
        self.folder = os.fsdecode(local_path(folder))
        if options is not None and not is_url(self.folder):
            raise ValueError(f"storage_options are for URLs, and not for {self.folder}")
        self._remote = _remote.Remote(self.folder, options) if is_url(self.folder) else None

    @classmethod
    def create(
        cls,
        folder: Path,
        state: State,
        *,
        pack: Pack = "none",
        threads: int = 1,
        storage_options: Optional[Mapping[str, Any]] = None,
    ) -> DeltaLog:
        """Make a log; state 0 is a .safetensors, .npy or raw file, or a dict of arrays. Creates the folder if it is
        missing; FileExistsError if it already is a log.

        pack: "planes" or "fast", as for save(), but not for raw files: store this base, and the bases of compact(), as
            .pici files. pici 0.2 cannot read such a log.
        """
        packing, n = pack_code(pack), u31(threads, "threads")
        if not isinstance(state, Mapping):
            first = _looks.first_of(os.fsdecode(state))
            if first.startswith(b"PK\x03\x04") or _looks.stands_in(first):
                raise ValueError(
                    f"{os.fsdecode(state)} is {_looks.words(first)}; a log is of .safetensors, .npy and raw files"
                )
        extension = ".safetensors" if isinstance(state, Mapping) else os.path.splitext(os.fsdecode(state))[1]
        if len(extension.encode()) > 15 or extension.split() != [extension]:
            extension = ""
        if packing and extension not in (".safetensors", ".npy"):
            raise ValueError(f"{os.fsdecode(state)}: pack={pack!r} is for .safetensors and .npy files")  # type: ignore
        log = cls.__new__(cls)
        log._place(folder, storage_options)
        exists = ExistsError(errno.EEXIST, f"is a log already: pici.DeltaLog({log.folder!r}) opens it", log.folder)
        with ExitStack() as stack:
            # without pack, the log copies a file and does not parse it
            held = stack.enter_context(Held(state, BYTES.code, 0 if packing else _codec.STATE_RAW))
            where = log.folder
            if log._remote is not None:
                log._remote.store.check_writable()
                if log._remote.found().data is not None:
                    raise exists
                where = stack.enter_context(tempfile.TemporaryDirectory(prefix="pici-log-"))
            failed = _codec.log_create(encoded(where), held.handle, os.fsencode(extension), packing, n)
            if failed is not None and failed.status == IoError.status and failed.code == errno.EEXIST:
                raise exists
            got(failed)
            if log._remote is not None and not log._remote.publish(where, Found(None)):
                raise exists
        return log

    def __repr__(self) -> str:
        return f"<pici.DeltaLog {self.folder!r}>"

    def _open(self, write: bool = False) -> _Log:
        return _Log(self.folder, write) if self._remote is None else _RemoteLog(self._remote, write)

    @property
    def newest(self) -> int:
        """The number of the newest state."""
        with self._open() as log:
            return log.newest

    @property
    def base(self) -> int:
        """The number of the complete state."""
        with self._open() as log:
            return log.base

    @property
    def stored_bytes(self) -> int:
        """The bytes of the manifest and of all files that it names."""
        with self._open() as log:
            return log.manifest_bytes() + log.base_bytes + sum(state.delta_bytes for state in log.states())

    def states(self) -> list[LogState]:
        """All states with deltas to the newest, and the newest, in order."""
        with self._open() as log:
            return log.states()

    def append(
        self,
        newest: State,
        new: State,
        *,
        small: Optional[bool] = None,
        format: str = "auto",
        dtype: Optional[DTypeLike] = None,
        threads: int = 1,
        zstd: int = 0,
        convert: Optional[Convert] = None,
    ) -> int:
        """Append the delta from the newest state, which you must pass, to a new one, and return its number.
        ArgumentError if the log has another newest state. Options: as for diff_files().

        At a URL, if two writers append at once, one of them gets this error."""
        newest, new = converted(newest, convert), converted(new, convert)
        opts = diff_opts(small, format, threads, zstd)
        with ExitStack() as stack:
            old = stack.enter_context(Held(newest, raw_code(newest, dtype)))
            after = stack.enter_context(Held(new, raw_code(new, dtype)))
            for again in range(_CONFLICTS):
                with self._open(True) as log:
                    log.prepare_append()
                    failed = _codec.log_append(log.handle, old.handle, after.handle, opts)
                    if again and failed is not None and failed.status == ArgumentError.status:
                        raise ArgumentError(
                            f"{self.folder}: another writer has appended state {log.newest} meanwhile: load it, and "
                            "append to that"
                        )
                    got(failed)
                    log.read()
                    if log.publish():
                        return log.newest
        raise _busy(self.folder)

    def apply(self, path: Path, *, force: bool = False, threads: int = 1) -> int:
        """Update the file at path to the newest state, atomically, and return its number. If there is no file, create
        it from the base. A file that is none of the states raises ArgumentError; with force, it is replaced. From an
        incomplete copy, the file gets an earlier state, with a number below `newest`."""
        n = u31(threads, "threads")
        given: Optional[bytes] = encoded(path) if os.path.lexists(path) else None
        while True:
            with self._open() as log, Out(path, True) as out:
                log.fetch(given, None, n)
                done = _codec.log_apply(log.handle, given, None, out.handle, n)
                if isinstance(done, _codec.Failed) and done.status == ArgumentError.status:
                    if given is not None and force:
                        given = None  # again, with a new output: the call may have written to this one
                        continue
                if (isinstance(done, _codec.Failed) or done[3]) and log.compacted():
                    continue
                start, end, _, _ = got(done, out.path)
                if given is None or start != end:
                    out.commit()
                return end

    @overload
    def load(
        self,
        state: Optional[State] = ...,
        number: Optional[int] = ...,
        *,
        to: Literal["numpy", "bits"] = ...,
        **options: Unpack[Decoding],
    ) -> tuple[dict[str, Storage], int]:
        ...

    @overload
    def load(
        self,
        state: Optional[State] = ...,
        number: Optional[int] = ...,
        *,
        to: Literal["torch"],
        **options: Unpack[Decoding],
    ) -> tuple[dict[str, torch.Tensor], int]:
        ...

    @overload
    def load(
        self,
        state: Optional[State] = ...,
        number: Optional[int] = ...,
        *,
        to: Literal["dlpack"],
        **options: Unpack[Decoding],
    ) -> tuple[dict[str, DLPackArray], int]:
        ...

    def load(
        self,
        state: Optional[State] = None,
        number: Optional[int] = None,
        *,
        to: str = "numpy",
        threads: int = 1,
        max_bytes: Limit = "auto",
    ) -> tuple[dict[str, Any], int]:
        """The newest state as a dict of new arrays, and its number. From an incomplete copy, an earlier state, with a
        number below `newest`.

        state, number: your state and its number, as an earlier load() returned them. The call then reads only the
            deltas after it. Without number it finds the state by its hash, which takes more time and needs exactly the
            bytes of its file. None: start from the base.
        max_bytes: as for load_delta(). Exceptions: as apply(); ValueError for a log of .npy or raw files."""
        n = u31(threads, "threads")
        with ExitStack() as stack:
            held = None if state is None else stack.enter_context(Held(state, 0, SAFETENSORS))
            while True:
                with self._open() as log:
                    found = self._load(log, held, number, n, max_bytes)
                    if found is not None:
                        return arrays_of(found[0], to), found[1]
        raise AssertionError("not reached: the stack hides no exception")

    def _load(
        self, log: _Log, held: Optional[Held], number: Optional[int], threads: int, max_bytes: Limit
    ) -> Optional[tuple[Any, int]]:
        """The bytes and the number of the newest state; None if the log was compacted before they were read."""
        # The caller's state may have a longer head than the log's, and pass it on to the result.
        given_bytes = 0 if held is None else held.file_bytes()
        length = max(given_bytes, *(s.bytes for s in log.states()))
        # Limit by stored bytes: the manifest's numbers are untrusted.
        given = None if held is None else held.handle
        known = None if number is None else u64(number, "number")
        log.fetch(given, known, threads)
        stored = _stored_bytes(log.folder) + given_bytes
        most = _arrays.limit(max_bytes, stored)
        whole = _arrays.empty(BYTES, length, most, threads)
        done = _codec.log_apply(log.handle, given, known, whole, threads)
        if (isinstance(done, _codec.Failed) or done[3]) and log.compacted():
            return None
        start, end, written, _ = got(done)
        if held is not None and start == end:  # nothing was written: the state itself, copied
            written = held.write(whole)
        return whole[:written], end

    def compact(self, *, threads: int = 1) -> None:
        """Make the newest state the base, drop old deltas and remove files that do not belong to the log. For servers
        that are behind, keeps the last deltas, up to the size of the base."""
        n = u31(threads, "threads")
        for _ in range(_CONFLICTS):
            with self._open(True) as log:
                log.fetch(None, None, n)
                failed = _codec.log_compact(log.handle, n)
                if failed is not None and log.compacted():
                    continue
                got(failed)
                if log.publish():
                    log.clean()
                    return
        raise _busy(self.folder)

    def follow(
        self,
        state: Optional[State] = None,
        number: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        poll: float = 1.0,
        to: Literal["numpy", "bits", "torch", "dlpack"] = "numpy",
        **options: Unpack[Decoding],
    ) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield each newest state and its number, as load() returns them: the newest now, unless it is the one that you
        pass, and then each newer one. Skips states that follow each other quickly. Reads only appended deltas, unless a
        compaction has dropped them. Do not change yielded arrays: the next deltas apply to them.

        state, number: as for load(). timeout: end after this many seconds without a new state; None: never.
        poll: seconds between two reads of the manifest."""
        last = time.monotonic()
        while True:
            with self._open() as log:
                first, newest = log.first, log.newest
            if number is None or newest != number:
                gone = number is not None and not first <= number <= newest
                found, reached = self.load(None if gone else state, None if gone else number, to=to, **options)
                if reached != number:
                    last = time.monotonic()
                    yield found, reached
                    state, number = found, reached
                    continue
            left = poll if timeout is None else min(poll, last + timeout - time.monotonic())
            if left <= 0 and timeout is not None:
                return
            time.sleep(max(left, 0))


_CONFLICTS = 5  # with other writers, in one call


def _busy(folder: str) -> IoError:
    return IoError(f"{folder}: other writers have changed it {_CONFLICTS} times meanwhile; nothing was changed")


def _stored_bytes(folder: str) -> int:
    """The bytes of the files in a folder."""
    found = 0
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # a writer has removed it meanwhile
            found += entry.stat().st_size if entry.is_file() else 0
    return found


class _Log:
    """An open log."""

    def __init__(self, folder: str, write: bool = False) -> None:
        self.folder = folder
        self.handle = got(_codec.log_open(encoded(folder), write), folder)
        self.read()

    def read(self) -> None:
        self.first, self.base, self.newest, self.base_bytes = _codec.log_info(self.handle)

    def manifest_bytes(self) -> int:
        return os.stat(os.path.join(self.folder, _remote.MANIFEST)).st_size

    def states(self) -> list[LogState]:
        numbers = range(self.first, self.newest + 1)
        return [LogState(number, *got(_codec.log_state(self.handle, number))) for number in numbers]

    def again(self) -> _Log:
        """The log in its current state."""
        return _Log(self.folder)

    def compacted(self) -> bool:
        """Whether another process has compacted the log since it was opened, so that files may be missing."""
        other = False
        try:
            with self.again() as log:
                other = (log.first, log.base) != (self.first, self.base)
        except (Error, OSError):
            pass  # report the caller's error instead
        return other

    # ---- logs in a store

    def fetch(self, given: Any, number: Optional[int], threads: int) -> None:
        """Get the files for the path to the newest state, from a state as log_apply() takes it."""

    def prepare_append(self) -> None:
        """Get the files that an append needs."""

    def publish(self) -> bool:
        """Publish the changes. False: others have changed the log meanwhile, and nothing was published."""
        return True

    def clean(self) -> None:
        """Remove files that no longer belong to the log."""

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        _codec.close(self.handle)


class _RemoteLog(_Log):
    """An open log in a store, as a folder with some of its files."""

    def __init__(self, remote: _remote.Remote, write: bool = False) -> None:
        self._copy = _remote.Copy(remote, write)
        try:
            super().__init__(self._copy.folder, write)
        except BaseException as e:
            self._copy.tell(e)
            self._copy.close()
            raise

    def again(self) -> _Log:
        return _RemoteLog(self._copy.remote)

    def fetch(self, given: Any, number: Optional[int], threads: int) -> None:
        entries = self._copy.entries()
        if given is None:
            number = entries.base_number
        elif number is None:
            # With none of its files, the log leads from a state to that state.
            done = _codec.log_apply(self.handle, given, None, _arrays.empty(BYTES, 0, None, 1), threads)
            if isinstance(done, _codec.Failed):
                return  # the caller finds this out too
            number = done[0]
        wanted = [entry for to, entry in entries.deltas.items() if to > number]
        self._copy.remote.fetch(self.folder, [entries.base, *wanted] if given is None else wanted)

    def prepare_append(self) -> None:
        entries = self._copy.entries()
        if entries.packed:
            self._copy.remote.fetch_head(self.folder, entries.base)

    def publish(self) -> bool:
        return self._copy.remote.publish(self.folder, self._copy.old)

    def clean(self) -> None:
        self._copy.remote.clean(self._copy.old.data or b"")

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        super().__exit__(kind, error, trace)
        self._copy.close()
        if error is not None:
            self._copy.tell(error)
