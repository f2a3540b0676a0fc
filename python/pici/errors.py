# SPDX-License-Identifier: BSD-3-Clause
"""An exception for each status of the library."""
from __future__ import annotations

import errno
from typing import NamedTuple, Optional


class Fault(NamedTuple):
    """Where and why bytes are not as they must be."""

    #: byte of the block at which the breach shows; of a .pici file: where the record begins that has it
    offset: int
    #: tile of the block (elements tile * 4096 and on) that it concerns, if one
    tile: Optional[int]
    #: the rule's name in formats/block.md, hybrid.md or file.md
    rule: str


class Error(Exception):
    """The base of all below."""

    #: the number in enum pici_status; None if it was not the library that refused
    status: Optional[int] = None
    #: what is wrong with the bytes, if it is the bytes
    fault: Optional[Fault] = None


class LimitError(Error, ValueError):
    """More memory than max_bytes would be needed for what the bytes claim to hold."""


class ArgumentError(Error, ValueError):
    status = -1


class SpaceError(Error):
    status = -2


class UnsupportedError(Error):
    """Valid, but not in this build or version: zstd that was not built in, a format of a later version."""

    status = -3


class CorruptError(Error, ValueError):
    """A rule of the format is broken; fault says which, and where."""

    status = -20


class VersionError(Error, ValueError):
    """A version of the format that this library does not know."""

    status = -21


class ChecksumError(Error, ValueError):
    """The bytes are not those that were written."""

    status = -22


class NoMemoryError(Error, MemoryError):
    status = -40


class IoError(Error, OSError):
    status = -41


class NotFoundError(IoError, FileNotFoundError):
    pass


class ExistsError(IoError, FileExistsError):
    pass


class NoPermissionError(IoError, PermissionError):
    pass


class PeerError(Error):
    status = -42


class TransportError(Error):
    status = -43


class TimedOutError(Error, TimeoutError):
    status = -44


class DeviceError(Error):
    status = -45


class BrokenError(Error):
    status = -46


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
    )
    if c.status is not None
}

_IO = {
    errno.ENOENT: NotFoundError,
    errno.EEXIST: ExistsError,
    errno.EACCES: NoPermissionError,
    errno.EPERM: NoPermissionError,
}


def make(status: int, message: str, fault: Optional[Fault] = None, code: int = 0, path: str = "") -> Error:
    """The exception for a status. code: an errno value that says more of an IoError about path."""
    cls = CLASSES.get(status, Error)
    error: Error
    if cls is IoError:
        error = _IO.get(code, IoError)(code, message, path) if code else IoError(message)
    else:
        error = cls(message)
        error.status = status
    error.fault = fault
    return error
