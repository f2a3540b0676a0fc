# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of callers as memory that the library can read and write."""
from __future__ import annotations

import importlib
from typing import Any, Callable, Optional

import numpy as np

from . import _dlpack
from ._dtypes import BY_NUMPY, DType, named, numpy_dtype
from .errors import LimitError

Storage = np.ndarray[Any, np.dtype[Any]]

MAX_BYTES = 1 << 30


def _seen(x: Any) -> tuple[Storage, Optional[DType]]:
    """x as an ndarray, without a copy, and its dtype if it is one of the fourteen."""
    if isinstance(x, np.ndarray):
        x = np.asarray(x)  # no subclass
    else:
        if hasattr(x, "__dlpack__"):
            return _dlpack.imported(x)
        try:
            x = np.asarray(memoryview(x))
        except TypeError:
            raise TypeError(f"{type(x).__name__} is no array: it has neither a buffer nor __dlpack__") from None
    return x, BY_NUMPY.get(x.dtype.name)


def _typed(array: Storage, found: Optional[DType], dtype: Optional[str]) -> DType:
    """The dtype of the elements: the one that the caller names, if it has their width; else the one that was found."""
    if dtype is None:
        if found is None:
            raise TypeError(f"elements of {array.dtype} are of no dtype here: dtype= says which to take them for")
        return found
    wanted = named(dtype)
    if wanted.storage.itemsize != array.dtype.itemsize:
        raise TypeError(f"elements of {array.dtype} cannot be taken for {dtype}: they differ in width")
    return wanted


def readable(x: Any, dtype: Optional[str] = None) -> tuple[Storage, DType]:
    """The elements of x, to be read: row-major and in the host's byte order. Copied only if x is not."""
    array, found = _seen(x)
    d = _typed(array, found, dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return array.view(d.storage), d


def writable(x: Any, wanted: DType, count: int, dtype: Optional[str] = None) -> Storage:
    """The memory of x itself, to be written, for a block of dtype `wanted` with `count` elements."""
    array, found = _seen(x)
    d = _typed(array, found, dtype)
    if d != wanted:
        hint = f"; dtype='{wanted.name}' if they are its bits" if d.storage.itemsize == wanted.storage.itemsize else ""
        raise TypeError(f"the elements are {d.name}, the block's {wanted.name}{hint}")
    if array.size != count:
        raise ValueError(f"there are {array.size} elements; the block has {count}")
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError("what is written to must be row-major and in the host's byte order")
    if not array.flags.writeable:
        raise ValueError("what is to be written to is read-only")
    return array.view(d.storage)


def octets(x: Any) -> Storage:
    """The bytes of a block, without a copy."""
    return np.frombuffer(x, np.uint8)


def empty(d: DType, count: int, max_bytes: Optional[int]) -> Storage:
    """A new array for `count` elements, a number that comes from untrusted bytes: LimitError beyond max_bytes."""
    need = count * d.storage.itemsize
    if max_bytes is not None and need > max_bytes:
        raise LimitError(f"{count} elements of {d.name} take {need} bytes; max_bytes is {max_bytes}")
    return np.empty(count, d.storage)


def delivery(d: DType, to: str) -> Callable[[Storage], Any]:
    """A function from stored elements to the type that `to` asks for. Raises now if that type is not available."""
    if to == "numpy":
        dtype = numpy_dtype(d)
        return lambda array: array.view(dtype)
    if to == "bits":
        return lambda array: array
    if to == "dlpack":
        return lambda array: _dlpack.DLPackArray(array, d)
    if to == "torch":
        torch = importlib.import_module("torch")
        if not d.narrow:
            return lambda array: torch.from_numpy(array)
        if not hasattr(torch, d.narrow):
            raise TypeError(f"torch {torch.__version__} has no {d.narrow}: ask for to='bits' or 'dlpack'")
        bits = np.dtype("i2" if d.storage.itemsize == 2 else "u1")  # which every torch has
        return lambda array: torch.from_numpy(array.view(bits)).view(getattr(torch, d.narrow))
    raise ValueError(f"to={to!r}: there are 'numpy', 'bits', 'dlpack' and 'torch'")
