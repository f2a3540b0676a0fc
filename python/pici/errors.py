# SPDX-License-Identifier: BSD-3-Clause
"""An exception class for each status of the library."""
from __future__ import annotations

import errno
from typing import NamedTuple, Optional


class Fault(NamedTuple):
    """The broken rule of the format, and its place."""

    #: byte of the block that breaks the rule; in a .pici file, the first byte of the record that does
    offset: int
    #: the tile of the block that breaks it (elements tile * 4096 and on); None: not in one tile
    tile: Optional[int]
    #: name of the rule in formats/block.md, hybrid.md or file.md
    rule: str


class Error(Exception):
    """The base class of all exceptions here."""

    #: the number in enum pici_status; None if the error does not come from the library
    status: Optional[int] = None
    #: the broken rule of the format, if the error is in the bytes
    fault: Optional[Fault] = None


class LimitError(Error, ValueError):
    """The contents would need more memory than max_bytes."""


class ArgumentError(Error, ValueError):
    """The call is wrong: an argument is out of range, or two overlap."""

    status = -1


class SpaceError(Error):
    """The output does not fit in its capacity."""

    status = -2


class UnsupportedError(Error):
    """Valid, but not supported by this build or version: zstd in a build without it, or a format of a later version."""

    status = -3


class CorruptError(Error, ValueError):
    """The bytes break a rule of the format; `fault` names the rule and its place."""

    status = -20


class VersionError(Error, ValueError):
    """The library does not know this version of the format."""

    status = -21


class ChecksumError(Error, ValueError):
    """A checksum does not match."""

    status = -22


class NoMemoryError(Error, MemoryError):
    """The library could not allocate memory."""

    status = -40


class IoError(Error, OSError):
    """A file could not be read or written; errno says why, if known."""

    status = -41


class NotFoundError(IoError, FileNotFoundError):
    """There is no such file."""


class ExistsError(IoError, FileExistsError):
    """The file exists, and overwrite was not given."""


class NoPermissionError(IoError, PermissionError):
    """The system does not permit this."""


class NoTensorError(Error, KeyError):
    """The file has no tensor of this name."""

    __str__ = Exception.__str__  # a KeyError shows the repr


class BusyError(Error, RuntimeError):
    """Another thread is using the communicator. Only one thread may at a time."""


class PeerError(Error):
    """Another rank is gone, or made a different call."""

    status = -42


class TransportError(Error):
    """The transport under a communicator failed."""

    status = -43


class TimedOutError(Error, TimeoutError):
    """No progress within the time limit."""

    status = -44


class DeviceError(Error):
    """A call of the CUDA runtime failed."""

    status = -45


class BrokenError(Error):
    """The communicator failed earlier, was closed, or a call on it was interrupted."""

    status = -46


class SyncError(IoError):
    """The file is written and visible, but a power failure may undo that."""

    status = -47


#: by status
CLASSES: dict[int, type[Error]] = {
    c.status: c
    for c in (
        ArgumentError,
        SpaceError,
        UnsupportedError,
        CorruptError,
        VersionError,
        ChecksumError,
        NoMemoryError,
        IoError,
        PeerError,
        TransportError,
        TimedOutError,
        DeviceError,
        BrokenError,
        SyncError,
    )
    if c.status is not None
}

_IO = {
    errno.ENOENT: NotFoundError,
    errno.EEXIST: ExistsError,
    errno.EACCES: NoPermissionError,
    errno.EPERM: NoPermissionError,
}


#: what to do about a failure of the system
_ADVICE = {
    errno.EEXIST: "; pass overwrite=True to replace it",
    errno.EISDIR: "; pass the path of a file",
    errno.ENOSPC: "; free some space, or write elsewhere",
}


def _shown(text: str) -> str:
    """text, safe for a terminal: it may quote names from a file, so hidden characters are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def about(error: Exception, what: str) -> Exception:
    """The error, with its subject before it."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{what}: {error.args[0]}",)
    return error


def make(status: int, message: str, fault: Optional[Fault] = None, code: int = 0, path: str = "") -> Error:
    """The exception for a status. code, path: the errno value and the file of an IoError, if known."""
    cls = CLASSES.get(status, Error)
    error: Error
    message = _shown(message)
    if cls is IoError:
        text = message + _ADVICE.get(code, "")
        error = _IO.get(code, IoError)(code, text, *([path] if path else [])) if code else IoError(text)
    else:
        error = cls(message)
        error.status = status
    error.fault = fault
    return error
