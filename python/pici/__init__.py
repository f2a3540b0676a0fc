# SPDX-License-Identifier: BSD-3-Clause
"""pici: a lossless codec for dense buffers that are mostly zero, and files of tensors.

    block = pici.compress(gradient)             # bytes
    pici.scatter_add(total, block)              # total += gradient, touching only what the block stores
    gradient = pici.decompress(block)

    delta = pici.diff(old, new)                 # what changed, bit for bit
    pici.apply(old, delta)                      # old equals new now

    pici.save("model.pici", {"w": w})
    with pici.open("model.pici") as f:
        rows = f["w"][10:20]                    # reads only the chunks that hold these rows

pici.codec says which arrays are accepted and returned, pici.file how files are read and written, and pici.errors what
is raised.
"""
from . import _abi
from .codec import (
    Info,
    apply,
    compress,
    decompress,
    decompress_into,
    decompress_range,
    diff,
    inspect,
    scatter_add,
    verify,
)
from .errors import (
    ArgumentError,
    BrokenError,
    ChecksumError,
    CorruptError,
    DeviceError,
    Error,
    Fault,
    IoError,
    LimitError,
    NoMemoryError,
    PeerError,
    SpaceError,
    TimedOutError,
    TransportError,
    UnsupportedError,
    VersionError,
)
from .file import File, Tensor, Writer, create, open, save

__version__: str = _abi.lib.pici_version().decode()

__all__ = [
    "ArgumentError",
    "BrokenError",
    "ChecksumError",
    "CorruptError",
    "DeviceError",
    "Error",
    "Fault",
    "File",
    "Info",
    "IoError",
    "LimitError",
    "NoMemoryError",
    "PeerError",
    "SpaceError",
    "Tensor",
    "TimedOutError",
    "TransportError",
    "UnsupportedError",
    "VersionError",
    "Writer",
    "apply",
    "compress",
    "create",
    "decompress",
    "decompress_into",
    "decompress_range",
    "diff",
    "inspect",
    "open",
    "save",
    "scatter_add",
    "verify",
]
