# SPDX-License-Identifier: BSD-3-Clause
"""Let the library read from and write to paths and binary file objects."""
from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import threading
from typing import Any, BinaryIO, Callable, Optional, TypeVar, Union, cast

from . import _codec

Path = Union[str, "os.PathLike[str]"]

_TEXT_MODE = "the file object is in text mode: open it with mode 'rb' or 'wb'"


def is_path(where: Any) -> bool:
    """Whether `where` is a path; else it is a binary file object."""
    if hasattr(where, "read") or hasattr(where, "write"):
        if isinstance(where, io.TextIOBase):
            raise TypeError(_TEXT_MODE)
        return False
    if isinstance(where, (str, bytes, os.PathLike)):
        return True
    raise TypeError(f"{type(where).__name__} is neither a path nor a binary file object: pass one of these")


def encoded(path: Path) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path has no zero bytes")
    return name


def display(where: Union[Path, BinaryIO]) -> str:
    """The name of a path or a file object in messages."""
    if is_path(where):
        return os.fsdecode(where)  # type: ignore[arg-type]
    name = getattr(where, "name", None)
    return name if isinstance(name, str) else repr(where)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def in_turn(method: _Method) -> _Method:
    """A method that one thread at a time runs, of an object with a threading.RLock in _lock. The lock is free after the
    call, even if a signal handler raises at any point (_codec.in_turn). A nested call in the same thread raises an
    error instead of waiting for itself."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        lock = self._lock
        if lock._is_owned():
            raise RuntimeError(f"{type(self).__name__} is called by a method that it calls itself")
        return _codec.in_turn(lock, method, (self, *args), named)

    return cast(_Method, call)


class _Calls:
    """A file object behind a callback of _codec. Keeps the first exception of a method in `failure`, even from a signal
    handler that runs before the method's first statement. The library call that failed because of it raises it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lock = threading.RLock()
        self.failure: Optional[BaseException] = None

    def reraise(self) -> None:
        """Raise the kept exception, if there is one."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Sink(_Calls):
    """A file object for writing."""

    @in_turn
    def write(self, rest: bytes) -> None:
        """Write bytes. Called by _codec."""
        while rest:
            written = self._file.write(rest)
            if written is None:
                if isinstance(self._file, io.RawIOBase):
                    raise BlockingIOError(errno.EAGAIN, "the file object does not block: make it blocking")
                return
            if not 0 < written <= len(rest):
                raise OSError(f"write() of the file object returned {written} for {len(rest)} bytes")
            rest = rest[written:]


class Source(_Calls):
    """The source of a reader: the file at a path, or a file object from its position to its end. A file object that
    cannot seek is read into memory."""

    def __init__(self, where: Union[Path, BinaryIO]) -> None:
        super().__init__(None if is_path(where) else where)
        self.path = None if self._file is not None else encoded(where)  # type: ignore[arg-type]
        self._data: Optional[bytes] = None
        self._first = 0
        #: bytes of the file, once it is open
        self.bytes = 0
        if self._file is None:
            return
        seekable = getattr(self._file, "seekable", None)
        if seekable is not None and seekable():
            self._first = self._file.tell()
            self._file.seek(0, os.SEEK_END)
            self.bytes = max(0, self._file.tell() - self._first)
        else:
            pieces = iter(lambda: self._piece(1 << 20), b"")
            self._data = b"".join(pieces)
            self.bytes = len(self._data)

    def _piece(self, n: int) -> bytes:
        data = self._file.read(n)
        if data is None:
            raise BlockingIOError(errno.EAGAIN, "the file object does not block: make it blocking")
        if isinstance(data, str):
            raise TypeError(_TEXT_MODE)
        if len(data) > n:
            raise ValueError(f"read({n}) of the file object returned {len(data)} bytes")
        return bytes(data)

    @in_turn
    def read_at(self, n: int, offset: int) -> bytes:
        """Read n bytes at offset. Called by _codec."""
        self._file.seek(self._first + offset)
        pieces: list[bytes] = []
        while n:
            pieces.append(self._piece(n))
            if not pieces[-1]:
                raise EOFError("the file object has become shorter since it was opened")
            n -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def open(self, threads: int) -> Union[_codec.Reader, _codec.Failed]:
        """A reader."""
        if self.path is not None:
            reader = _codec.reader_open_path(self.path, threads)
            with contextlib.suppress(OSError):
                self.bytes = os.stat(self.path).st_size
            return reader
        if self._data is not None:
            return _codec.reader_open_memory(self._data, threads)
        return _codec.reader_open_stream(self, self.bytes, threads)
