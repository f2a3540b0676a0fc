# SPDX-License-Identifier: BSD-3-Clause
"""Logs of deltas: folders from which servers load weights that are being trained.

    log = pici.DeltaLog.create("weights.log", weights)      # the trainer: state 0
    log.append(weights, updated)                            # 1, and so on
    log.compact()                                           # now and then

    weights, number = pici.DeltaLog("weights.log").load()   # a server, when it starts
    weights, number = pici.DeltaLog("weights.log").load(weights, number)    # and later: the deltas since

What help(pici.deltas) says of states and options holds here too.
"""
from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, overload

from . import _arrays, _codec, _looks
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import DTypeLike
from ._kwargs import Decoding, Pack
from ._ranges import u31, u64
from ._streams import Path, encoded
from .codec import pack_code
from .deltas import (
    BYTES,
    SAFETENSORS,
    Held,
    Out,
    State,
    arrays_of,
    diff_opts,
    got,
    raw_code,
)
from .errors import ArgumentError, Error, ExistsError, IoError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


class LogState(NamedTuple):
    """A state of a log, and the delta that leads to it from the state before."""

    number: int
    #: bytes of its file
    bytes: int
    #: bytes of the delta; 0 of the oldest
    delta_bytes: int


class DeltaLog:
    """A folder that holds one state whole, the base, and the deltas from each state to the next: weights, after each
    step of training, for servers that load them. States are numbered from 0.

    A trainer appends. A server, which sees the folder or a copy of it, gets from any of its states to the newest, also
    after it was away, and when the copy is incomplete: it then gets as far as the deltas lead. Each change is whole or
    not at all, also if a process is killed. picitool log reads and writes the same folders (formats/delta-log.md).

    The object keeps nothing open; each call reads the manifest again."""

    def __init__(self, folder: Path) -> None:
        """The log in a folder, which exists."""
        self.folder = os.fsdecode(folder)
        with self._open():
            pass

    @classmethod
    def create(cls, folder: Path, state: State, *, pack: Pack = "none", threads: int = 1) -> DeltaLog:
        """Make a log; state 0 is a .safetensors, .npy or raw file, or a dict of arrays. The folder is created if it is
        missing; FileExistsError if it is a log already.

        pack: "planes" or "fast", as of save(), not for raw files: the base is stored as a .pici file, also what
            compact() makes the base. pici 0.2 does not read such a log."""
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
        # a file is copied, whatever is in it, unless it is packed
        with Held(state, BYTES.code, 0 if packing else _codec.STATE_RAW) as held:
            failed = _codec.log_create(encoded(folder), held.handle, os.fsencode(extension), packing, n)
            if failed is not None and failed.status == IoError.status and failed.code == errno.EEXIST:
                name = os.fsdecode(folder)
                raise ExistsError(errno.EEXIST, f"is a log already: pici.DeltaLog({name!r}) opens it", name)
            got(failed)
        return cls(folder)

    def __repr__(self) -> str:
        return f"<pici.DeltaLog {self.folder!r}>"

    def _open(self, write: bool = False) -> _Log:
        return _Log(self.folder, write)

    @property
    def newest(self) -> int:
        """The number of the newest state."""
        with self._open() as log:
            return log.newest

    @property
    def base(self) -> int:
        """The number of the state that is whole."""
        with self._open() as log:
            return log.base

    def states(self) -> list[LogState]:
        """All states from which there are deltas to the newest, and that one, in order."""
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
    ) -> int:
        """Append the delta from the newest state, which must be given, to a new one, and return its number.
        ArgumentError if the log has another newest state. Options: as for diff_files()."""
        opts = diff_opts(small, format, threads, zstd)
        with ExitStack() as stack:
            old = stack.enter_context(Held(newest, raw_code(newest, dtype)))
            after = stack.enter_context(Held(new, raw_code(new, dtype)))
            log = stack.enter_context(self._open(True))
            got(_codec.log_append(log.handle, old.handle, after.handle, opts))
            log.read()
            return log.newest
        raise AssertionError("not reached: the stack hides no exception")

    def apply(self, path: Path, *, force: bool = False, threads: int = 1) -> int:
        """Bring the file at path to the newest state, in one step, and return its number. If there is no such file, it
        is made from the base; with force, also if it is none of the states (else ArgumentError). In an incomplete copy
        the number is less than `newest`; the file then has that state."""
        n = u31(threads, "threads")
        given: Optional[bytes] = encoded(path) if os.path.lexists(path) else None
        while True:
            with self._open() as log, Out(path, True) as out:
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
        """The newest state as a dict of new arrays, and its number. In an incomplete copy the number is less than
        `newest`.

        state, number: a state that the caller has, and its number, as an earlier load() returned them: then only the
            deltas after it are read. Without number the state is found by its hash, which takes more time, and asks for
            the very bytes of its file. None: from the base.
        max_bytes: as for load_delta(). What it raises: as apply(); of a log of .npy or raw files ValueError."""
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
        # A state that is given may have a longer head than the log's, and leave it to the result.
        given_bytes = 0 if held is None else held.file_bytes()
        length = max(given_bytes, *(s.bytes for s in log.states()))
        # By what is stored: the numbers in the manifest are what the limit is for.
        stored = _stored_bytes(self.folder) + given_bytes
        most = _arrays.limit(max_bytes, stored)
        whole = _arrays.empty(BYTES, length, most, threads)
        given = None if held is None else held.handle
        known = None if number is None else u64(number, "number")
        done = _codec.log_apply(log.handle, given, known, whole, threads)
        if (isinstance(done, _codec.Failed) or done[3]) and log.compacted():
            return None
        start, end, written, _ = got(done)
        if held is not None and start == end:  # nothing was written: the state itself, copied
            written = held.write(whole)
        return whole[:written], end

    def compact(self, *, threads: int = 1) -> None:
        """Make the newest state the base, drop old deltas and remove files that do not belong to the log. The last
        deltas stay whose bytes are together at most those of the base, for servers that are behind."""
        n = u31(threads, "threads")
        with self._open(True) as log:
            got(_codec.log_compact(log.handle, n))


def _stored_bytes(folder: str) -> int:
    """The bytes of the files in a folder."""
    found = 0
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # a writer has removed it meanwhile
            found += entry.stat().st_size if entry.is_file() else 0
    return found


class _Log:
    """A log that is open."""

    def __init__(self, folder: str, write: bool = False) -> None:
        self.folder = folder
        self.handle = got(_codec.log_open(encoded(folder), write), folder)
        self.read()

    def read(self) -> None:
        self.first, self.base, self.newest = _codec.log_info(self.handle)

    def states(self) -> list[LogState]:
        numbers = range(self.first, self.newest + 1)
        return [LogState(number, *got(_codec.log_state(self.handle, number))) for number in numbers]

    def compacted(self) -> bool:
        """Whether another process has compacted the log since it was opened: files of it may be gone then."""
        other = False
        try:
            with _Log(self.folder) as log:
                other = (log.first, log.base) != (self.first, self.base)
        except (Error, OSError):
            pass  # the error that made the caller ask is the one to tell
        return other

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        _codec.close(self.handle)
