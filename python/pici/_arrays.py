# SPDX-License-Identifier: BSD-3-Clause
"""Convert callers' arrays to memory that the library can read and write, and elements to arrays for callers."""
from __future__ import annotations

import importlib
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

import numpy as np

from . import _dlpack, _memory
from ._dtypes import BOOL, BY_CODE, BY_NAME, COMPLEX, COMPLEX32, F6, PLAIN
from ._dtypes import DType, DTypeLike, named, numpy_dtype, of_numpy
from .errors import LimitError

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

Storage = np.ndarray[Any, np.dtype[Any]]
Limit = Union[int, None, Literal["auto"]]

_LEAST_LIMIT = 1 << 30
_RATIO = 1024


def _seen(x: Any, written: bool = False) -> tuple[Storage, Optional[DType]]:
    """x as an ndarray, without a copy, and its dtype if supported. written: the library will write to it."""
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError("a masked array, whose mask would be lost: pass x.filled(value), or x.data for all elements")
    if isinstance(x, np.ndarray):
        x = np.asarray(x)  # no subclass
    else:
        if hasattr(x, "__dlpack__"):
            return _dlpack.imported(_dlpack.plain(x, written))
        try:
            x = np.asarray(memoryview(x))
        except TypeError:
            raise TypeError(
                f"{type(x).__name__} is no array: it has neither a buffer nor __dlpack__. Pass numpy.asarray of it"
            ) from None
    return x, of_numpy(x.dtype)


def _of_raw(x: Any, array: Storage, dtype: Optional[DTypeLike]) -> Storage:
    """Bytes of a type without element type (bytes, bytearray, mmap, a memoryview of these) as elements of the width of
    dtype."""
    if dtype is None or not isinstance(x, (bytes, bytearray, mmap.mmap, memoryview)):
        return array
    d = named(dtype)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous or d.itemsize == 1:
        return array
    if array.size % d.itemsize:
        raise ValueError(f"{array.size} bytes are no whole number of elements of {d.name}, {d.itemsize} bytes each")
    return array.view(d.storage if d.parts == 1 else numpy_dtype(d))


def _typed(array: Storage, found: Optional[DType], dtype: Optional[DTypeLike]) -> DType:
    """The dtype of the elements: the caller's, if it has their width; else the array's."""
    if dtype is None:
        if found is None:
            raise TypeError(
                f"unsupported element type {array.dtype}: pass dtype= to read the bits as another, as in dtype='u8' or "
                "dtype='bf16', or convert the values with array.astype"
            )
        return found
    wanted = named(dtype)
    if wanted.itemsize != array.dtype.itemsize:
        raise TypeError(
            f"cannot read elements of {array.dtype} as {wanted.name}: their widths differ. To convert values, "
            "pass array.astype(...)"
        )
    return wanted


def _stored(array: Storage, d: DType) -> Storage:
    """The elements in stored form. Complex numbers get another dimension, of two floats."""
    if d.parts == 1:
        return array.view(d.storage)
    return array.reshape(-1).view(d.storage).reshape(*array.shape, d.parts)


def readable(x: Any, dtype: Optional[DTypeLike] = None) -> tuple[Storage, DType]:
    """The elements of x in stored form, for reading: row-major and in host byte order. Copies x only if necessary."""
    if type(x) is np.ndarray and dtype is None:
        plain = PLAIN.get(x.dtype)
        if plain is not None and x.flags.c_contiguous:
            return x, plain
    array, found = _seen(x)
    array = _of_raw(x, array, dtype)
    d = _typed(array, found, dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return _stored(array, d), d


def writable(
    x: Any, wanted: DType, count: int, dtype: Optional[DTypeLike] = None, what: str = ""
) -> tuple[Storage, DType]:
    """The memory of x itself, for writing a block of dtype `wanted` with `count` elements. With `what`, x is the
    argument of that name, which must be like a gradient. _codec, or the caller, checks that it is writable."""
    if type(x) is np.ndarray and dtype is None and PLAIN.get(x.dtype) is wanted and x.size == count:
        if x.flags.c_contiguous:
            return x, wanted
    array, found = _seen(x, True)
    array = _of_raw(x, array, dtype)
    d = _typed(array, found, dtype)
    if d.code != wanted.code:
        hint = f": pass dtype='{wanted.name}' if they are its bits" if d.itemsize == wanted.itemsize else ""
        if what:
            raise TypeError(f"the elements of {what} are {d.name}, but gradient's are {wanted.name}{hint}")
        raise TypeError(f"the elements are {d.name}, the block's {wanted.name}{hint}")
    if array.size * d.parts != count and what:
        raise ValueError(f"there are {array.size} elements in {what}, and {count} in gradient")
    if array.size * d.parts != count:
        raise ValueError(f"there are {array.size * d.parts} elements; the block has {count}: inspect(block).count")
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError(
            f"{what or 'an array to write to'} must be row-major and in the host's byte order: write to a copy, made "
            "by numpy.array(array, array.dtype.newbyteorder('='), order='C'), and assign it back by array[...] = copy"
        )
    return _stored(array, d), d


def scattered(x: Any, dtype: Optional[DTypeLike]) -> Optional[tuple[Storage, DType]]:
    """The elements of x in place, for writing, if they are not row-major; else None."""
    array, found = _seen(x, True)
    return None if array.flags.c_contiguous else (array, _typed(array, found, dtype))


def octets(x: Any) -> Union[bytes, Storage]:
    """The bytes of a block, without a copy."""
    return x if type(x) is bytes else np.frombuffer(x, np.uint8)


def limit(max_bytes: Limit, stored: int) -> Optional[int]:
    """The most bytes of elements for a block or a file of `stored` bytes. None: no limit."""
    return max(_LEAST_LIMIT, _RATIO * stored) if max_bytes == "auto" else max_bytes


def bounded(d: DType, count: int, most: Optional[int], position: int = 0) -> None:
    """LimitError if the stored elements take more than `most` bytes; None: no limit. position: additional bytes for
    each."""
    need = count * (d.storage.itemsize + position)
    if most is not None and need > most:
        raise LimitError(
            f"{count} elements of {d.name}{' and their positions' if position else ''} take {need} bytes, more than "
            f"max_bytes allows, {most}: pass max_bytes={need}, or None for no limit, if you trust the source"
        )


def empty(d: DType, count: int, most: Optional[int], threads: int) -> Storage:
    """A new array for `count` stored elements, a number from untrusted bytes: LimitError if they take more than `most`
    bytes. None: no limit. threads: the number that will write to it."""
    bounded(d, count, most)
    return _memory.empty(count, d.storage, threads)


def shaped(elements: Storage, d: DType, shape: tuple[int, ...], order: Literal["C", "F"] = "C") -> Storage:
    """One-dimensional stored elements in a shape of whole elements. Complex numbers get their type."""
    if d.parts != 1:
        elements = elements.view(numpy_dtype(d))
    return elements.reshape(shape, order=order)


def mended(array: Storage) -> int:
    """The greatest invalid byte of an array of bool after a write; 0 if all are valid. Invalid ones become True: NumPy
    does not expect them."""
    most = int(array.max()) if array.size else 0
    if most <= 1:
        return 0
    np.minimum(array, 1, out=array)
    return most


def _booleans(array: Storage) -> Storage:
    if array.size and array.max() > 1:
        raise ValueError(f"an element is {array.max()}, which is no bool: pass to='bits' for the bytes")
    return array.view(np.bool_)


def _pairs(array: Storage) -> Storage:
    """Numbers of complex32, a type that NumPy lacks, as two f16 each."""
    return np.ascontiguousarray(array).view(COMPLEX32.storage).reshape(*array.shape, 2)


def torch_dtype(torch: Any, d: DType) -> Any:
    """torch's dtype; TypeError if it has none."""
    name = "uint8" if d in F6 else d.narrow or (d.storage.name if d.plain else d.name)
    if not hasattr(torch, name):
        raise TypeError(f"torch {torch.__version__} has no {name}: ask for to='bits' or 'dlpack'")
    return getattr(torch, name)


def delivery(d: DType, to: str) -> Callable[[Storage], Any]:
    """A function from shaped() elements to the type that `to` names. Raises at once if that type is not available."""
    if d in F6:
        d = BY_NAME["u8"]
    if d.only_numpy is not None and to != "numpy":
        plain = delivery(BY_CODE[d.code], to)
        return lambda array: plain(_stored(array, d))
    if d is COMPLEX32 and to in ("numpy", "bits"):
        return _pairs
    if to == "numpy":
        if d is BOOL:
            return _booleans
        if d in COMPLEX or (d.only_numpy is not None and d.parts != 1):
            return lambda array: array
        dtype = numpy_dtype(d)
        return lambda array: array.view(dtype)
    if to == "bits":
        return lambda array: array
    if to == "dlpack":
        if d is BOOL:
            return lambda array: _dlpack.DLPackArray(_booleans(array).view(d.storage), d)
        return lambda array: _dlpack.DLPackArray(array, d)
    if to == "torch":
        try:
            torch = importlib.import_module("torch")
        except ImportError as e:
            raise ImportError("to='torch' needs torch: install it, or ask for to='numpy'") from e
        if d is BOOL:
            return lambda array: torch.from_numpy(_booleans(array))
        if d is COMPLEX32:
            return lambda array: torch.from_numpy(array.view("i4")).view(torch.complex32)
        if not d.narrow:
            return lambda array: torch.from_numpy(array)
        kind = torch_dtype(torch, d)
        bits = np.dtype("i2" if d.storage.itemsize == 2 else "u1")  # which every torch has
        return lambda array: torch.from_numpy(array.view(bits)).view(kind)
    raise ValueError(f"to={to!r}: pass 'numpy', 'bits', 'torch' or 'dlpack'")
