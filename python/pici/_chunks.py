# SPDX-License-Identifier: BSD-3-Clause
"""Convert chunks of arrays to blocks and back, for any dtype of NumPy but objects. The codecs for Zarr share this."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import numpy as np

from . import _arrays
from ._dtypes import BY_CODE, of_numpy
from ._kwargs import Pack
from .codec import compress, decompress, format_code, inspect, pack_code
from .errors import CorruptError

_INTEGERS = {"M": "i8", "m": "i8", "U": "u4"}


class Options(NamedTuple):
    """A codec's configuration. It has no effect on reading a chunk."""

    format: str = "auto"
    pack: Pack = "planes"
    checksum: bool = True

    def check(self) -> None:
        """ValueError or TypeError if a value is invalid."""
        format_code(self.format)
        pack_code(self.pack)
        if not isinstance(self.checksum, bool):
            raise TypeError(f"checksum={self.checksum!r}: pass True or False")


def like(dtype: np.dtype[Any]) -> Optional[np.dtype[Any]]:
    """The type that stores elements of a dtype, in the same byte order: integers for times and text, bytes for
    structures and all others. None: the dtype itself. TypeError for objects.
    """
    if dtype.hasobject:
        raise TypeError(f"elements of {dtype} are objects, which pici does not store: use vlen-utf8 or vlen-bytes")
    if of_numpy(dtype) is not None:
        return None
    kind = _INTEGERS.get(dtype.kind, "u1") if dtype.itemsize else "u1"
    return np.dtype(f"{dtype.byteorder if dtype.byteorder in '<>' else '='}{kind}")


def _little(array: Any) -> Any:
    """Convert structures to little-endian members, since an array's description cannot state another order."""
    little = array.dtype.newbyteorder("<")
    if array.dtype.names is None or array.dtype == little:
        return array
    made = np.zeros(array.shape, little)
    made[...] = array
    return made


def encode(array: Any, options: Options) -> bytes:
    """The block of an array's elements in row-major order. It has no shape."""
    stored = like(array.dtype)
    if stored is not None:
        array = _little(np.ascontiguousarray(array).reshape(-1))
        array = array.view(stored) if array.dtype.itemsize else np.empty(0, stored)
    return compress(array, format=options.format, pack=options.pack, checksum=options.checksum)


def decode(block: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """The elements of a block as an array of this dtype and shape. CorruptError if they do not match."""
    stored = like(dtype)
    as_bytes = stored is not None and stored.itemsize == 1
    native = dtype.newbyteorder("<" if as_bytes else "=")
    kind = native if stored is None else stored.newbyteorder("=")
    elements, d = _arrays.readable(np.empty(0, kind))
    count = int(np.prod(shape, dtype=object)) * (dtype.itemsize // d.storage.itemsize)
    info = inspect(block)
    wanted = BY_CODE[d.code].name
    if (info.count, info.dtype) != (count, wanted):
        raise CorruptError(f"the chunk has {info.count} elements of {info.dtype}, and not {count} of {wanted}")
    if not count:
        return np.empty(shape, dtype)
    found = decompress(block, dtype=d.name, max_bytes=None)  # the array's shape limits it
    return found.view(native).reshape(shape).astype(dtype, copy=False)
