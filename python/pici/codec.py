# SPDX-License-Identifier: BSD-3-Clause
"""Blocks: one run of elements each, encoded.

Elements come as a NumPy array, as anything that has __dlpack__ (a torch tensor), or as anything with a buffer
(array.array, mmap); dtype= takes them for another dtype of their width, as "bf16" where they are its bits in uint16.
They are read and written in place, and must stay as they are meanwhile: the GIL is released.

threads: 1; 0 is one for each core. max_bytes: a block of 48 bytes can truthfully claim 2^60 zeros, so what would take
more memory is refused (LimitError); None lifts the limit.

to: what elements come back as.
    "numpy"   an ndarray; bf16 and f8 have a type of ml_dtypes, which must be installed (else ImportError)
    "bits"    the same, but bf16 and f8 are uint16 and uint8
    "torch"   a torch tensor
    "dlpack"  an object for any library's from_dlpack
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import _abi, _arrays
from ._abi import lib
from ._dtypes import BY_CODE, DType
from .errors import Error, Fault, make

_FORMAT_NAMES = {code: name for name, code in _abi.FORMATS.items()}


@dataclass(frozen=True)
class Info:
    """What a block's header says."""

    format: str
    dtype: str
    #: elements of the dense run
    count: int
    #: values stored (dense: count)
    nnz: int
    #: length of the whole block
    block_bytes: int


def _refusal(status: int, block: Optional[_arrays.Storage] = None) -> Error:
    """The exception for a status; with what is wrong with the block, if it is the block."""
    message = lib.pici_strerror(status).decode()
    if block is None:
        return make(status, message)
    found = _abi.Fault()
    if lib.pici_verify_at(block.ctypes.data, block.size, found) == 0:
        return make(status, message)
    rule = found.rule.decode()
    tile = None if found.tile == _abi.NO_TILE else found.tile
    where = f"at byte {found.offset}" + ("" if tile is None else f", tile {tile}")
    return make(status, f"{message}: rule '{rule}' is broken {where}", Fault(found.offset, tile, rule))


def _check(status: int, block: Optional[_arrays.Storage] = None) -> None:
    if status:
        raise _refusal(status, block)


def _opts(threads: int, checksum: bool = False) -> _abi.Opts:
    return _abi.Opts(threads=_abi.u31(threads, "threads"), checksum=int(bool(checksum)))


def _head(block: _arrays.Storage) -> tuple[DType, int]:
    """dtype and count."""
    info = _abi.Info()
    _check(lib.pici_inspect(info, block.ctypes.data, block.size), block)
    return BY_CODE[info.dtype], info.count


def _encode(function: Any, d: DType, sources: list[_arrays.Storage], format: str, opts: _abi.Opts) -> bytes:
    """The block that a function makes of one array, or of several of the same length."""
    f, n = format_code(format), sources[0].size
    block = np.empty(lib.pici_bound(f, d.code, n), np.uint8)
    used = ctypes.c_size_t()
    _check(function(block.ctypes.data, block.size, used, *(s.ctypes.data for s in sources), n, d.code, f, opts))
    return block[: used.value].tobytes()


def _into(function: Any, out: Any, block: Any, dtype: Optional[str], threads: int) -> None:
    """What a function does to out with a block of as many elements."""
    b = _arrays.octets(block)
    opts = _opts(threads)
    d, count = _head(b)
    dst = _arrays.writable(out, d, count, dtype)
    _check(function(dst.ctypes.data, count, b.ctypes.data, b.size, opts), b)


def format_code(name: str) -> int:
    try:
        return _abi.FORMATS[name]
    except KeyError:
        raise ValueError(f"no format {name!r}: there are {', '.join(_abi.FORMATS)}") from None


def compress(
    array: Any, *, format: str = "auto", dtype: Optional[str] = None, threads: int = 1, checksum: bool = False
) -> bytes:
    """One block of all elements of array, in row-major order; the shape is not kept.

    format: "dense", "pici", "coo", "hybrid", or "auto", which is the smallest of them.
    checksum: store an XXH64 of the block, which readers check.
    """
    elements, d = _arrays.readable(array, dtype)
    return _encode(lib.pici_compress, d, [elements], format, _opts(threads, checksum))


def decompress(block: Any, *, to: str = "numpy", threads: int = 1, max_bytes: Optional[int] = _arrays.MAX_BYTES) -> Any:
    """All elements of a block, in one dimension."""
    b = _arrays.octets(block)
    opts = _opts(threads)
    d, count = _head(b)
    deliver = _arrays.delivery(d, to)
    out = _arrays.empty(d, count, max_bytes)
    _check(lib.pici_decompress(out.ctypes.data, count, b.ctypes.data, b.size, opts), b)
    return deliver(out)


def decompress_range(
    block: Any,
    first: int,
    count: int,
    *,
    to: str = "numpy",
    threads: int = 1,
    max_bytes: Optional[int] = _arrays.MAX_BYTES,
) -> Any:
    """Elements [first, first + count) of a block. Reads, and checks, what of the block they need, not the checksum."""
    b = _arrays.octets(block)
    opts = _opts(threads)
    first, count = _abi.u64(first, "first"), _abi.u64(count, "count")
    d, n = _head(b)
    if first + count > n:
        raise ValueError(f"elements [{first}, {first + count}) of a block of {n}")
    deliver = _arrays.delivery(d, to)
    out = _arrays.empty(d, count, max_bytes)
    _check(lib.pici_decompress_range(out.ctypes.data, first, count, b.ctypes.data, b.size, opts), b)
    return deliver(out)


def decompress_into(out: Any, block: Any, *, dtype: Optional[str] = None, threads: int = 1) -> None:
    """All elements of a block to out, which has as many of the same dtype: an array that is used again saves the time
    in which the system makes a new one. On an error its elements are unspecified."""
    _into(lib.pici_decompress, out, block, dtype, threads)


def scatter_add(dst: Any, block: Any, *, dtype: Optional[str] = None, threads: int = 1) -> None:
    """dst[i] += x for each element x that the block stores, in the dtype's own arithmetic: IEEE for f32 and f64; f16,
    bf16 and f8 in f32, rounded once; integers wrap. Elements that are zero in the block keep their bits.

    dst has as many elements as the block, of the same dtype. On an error they are unspecified."""
    _into(lib.pici_scatter_add, dst, block, dtype, threads)


def diff(
    base: Any,
    new: Any,
    *,
    format: str = "auto",
    dtype: Optional[str] = None,
    threads: int = 1,
    checksum: bool = False,
) -> bytes:
    """One block of what changed from base to new, two arrays of the same shape and dtype: of the XOR of their elements,
    bit for bit and without a temporary array. Options as for compress().

    It does not say what it is a delta of: keep a hash beside it where that could be mistaken."""
    old, d = _arrays.readable(base, dtype)
    elements, found = _arrays.readable(new, dtype)
    if found != d:
        raise TypeError(f"the elements are {d.name} in one array and {found.name} in the other")
    if old.shape != elements.shape:
        raise ValueError(f"the arrays differ in shape: {old.shape} and {elements.shape}")
    return _encode(lib.pici_diff, d, [old, elements], format, _opts(threads, checksum))


def apply(dst: Any, block: Any, *, dtype: Optional[str] = None, threads: int = 1) -> None:
    """dst[i] ^= x for each element x that the block stores, in place: what diff(base, new) made turns base into new,
    and new back into base.

    dst has as many elements as the block, of the same dtype. On an error they are unspecified: verify() the block first
    where they cannot be had again."""
    _into(lib.pici_apply, dst, block, dtype, threads)


def inspect(block: Any) -> Info:
    """What the header says, checked as far as a header can be: the first 48 bytes of a block are enough, so that a
    reader of a stream learns how many follow."""
    b = _arrays.octets(block)
    info = _abi.Info()
    _check(lib.pici_inspect(info, b.ctypes.data, b.size), b)
    return Info(_FORMAT_NAMES[info.format], BY_CODE[info.dtype].name, info.count, info.nnz, info.block_bytes)


def verify(block: Any) -> None:
    """Check every rule of the format, and the checksum if there is one. Raises CorruptError, ChecksumError,
    VersionError or UnsupportedError, whose fault says where and why."""
    b = _arrays.octets(block)
    found = _abi.Fault()
    _check(lib.pici_verify_at(b.ctypes.data, b.size, found), b)
