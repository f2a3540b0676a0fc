# SPDX-License-Identifier: BSD-3-Clause
"""Blocks: the encoding of an array's elements as bytes, and back.

Arrays in: a NumPy array, an object with __dlpack__ (a torch tensor), or an object with a buffer (array.array, mmap).
Arrays are read and written in place. The GIL is released meanwhile, so they must not be changed during a call.

dtype: the dtype of the elements, if their type does not say it: "bf16" for bf16 whose bits are in an array of uint16.
It must have the same width.

threads: default 1; 0 is one for each core.

max_bytes: the most memory that a block's claim may cause to be allocated, default 1 GiB; more raises LimitError. A
block of 48 bytes can truthfully claim 2^60 zeros. None lifts the limit.

to: the type in which elements are returned.
    "numpy"   an ndarray; bf16 and f8 are types of ml_dtypes, which must be installed (else ImportError)
    "bits"    an ndarray; bf16 and f8 are uint16 and uint8
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
    """The contents of a block's header."""

    format: str
    dtype: str
    #: elements that were encoded
    count: int
    #: nonzero elements; in a dense block, count
    nnz: int
    #: bytes of the whole block
    block_bytes: int


def _refusal(status: int, block: Optional[_arrays.Storage] = None) -> Error:
    """The exception for a status. If the block is what is wrong, it has the fault."""
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
    """dtype and count of a block."""
    info = _abi.Info()
    _check(lib.pici_inspect(info, block.ctypes.data, block.size), block)
    return BY_CODE[info.dtype], info.count


def _encode(function: Any, d: DType, sources: list[_arrays.Storage], format: str, opts: _abi.Opts) -> bytes:
    """The block that a C function makes of one array, or of two arrays of the same length."""
    f, n = format_code(format), sources[0].size
    block = np.empty(lib.pici_bound(f, d.code, n), np.uint8)
    used = ctypes.c_size_t()
    _check(function(block.ctypes.data, block.size, used, *(s.ctypes.data for s in sources), n, d.code, f, opts))
    return block[: used.value].tobytes()


def _into(function: Any, out: Any, block: Any, dtype: Optional[str], threads: int) -> None:
    """Call a C function that changes out by a block of as many elements."""
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
    """Encode all elements of array, in row-major order, as one block. The block does not store the shape.

    format: "dense", "pici", "coo", "hybrid", or "auto", the one with the shortest block.
    checksum: store an XXH64 of the block, which decoders check.
    """
    elements, d = _arrays.readable(array, dtype)
    return _encode(lib.pici_compress, d, [elements], format, _opts(threads, checksum))


def decompress(block: Any, *, to: str = "numpy", threads: int = 1, max_bytes: Optional[int] = _arrays.MAX_BYTES) -> Any:
    """Decode all elements of a block, as a one-dimensional array."""
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
    """Decode elements [first, first + count) of a block. Reads, and checks, only the parts of the block that these
    elements need; does not check the checksum."""
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
    """Decode all elements of a block into out, an array with as many elements of the same dtype. Faster than
    decompress() where an array can be reused. On an error its elements are unspecified."""
    _into(lib.pici_decompress, out, block, dtype, threads)


def scatter_add(dst: Any, block: Any, *, dtype: Optional[str] = None, threads: int = 1) -> None:
    """dst[i] += x for each nonzero element x of the block. The arithmetic is that of the dtype: IEEE 754 for f32 and
    f64; f16, bf16 and f8 in f32, rounded once; integers wrap. Where the block has zeros, dst keeps its bits.

    dst has as many elements as the block, of the same dtype. On an error its elements are unspecified."""
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
    """Encode what changed from base to new, two arrays of the same shape and dtype, as one block: the XOR of their
    elements, without a temporary array. Options: as for compress().

    The block does not record which array it applies to. Where a mix-up is possible, keep a hash beside it."""
    old, d = _arrays.readable(base, dtype)
    elements, found = _arrays.readable(new, dtype)
    if found != d:
        raise TypeError(f"the elements are {d.name} in one array and {found.name} in the other")
    if old.shape != elements.shape:
        raise ValueError(f"the arrays differ in shape: {old.shape} and {elements.shape}")
    return _encode(lib.pici_diff, d, [old, elements], format, _opts(threads, checksum))


def apply(dst: Any, block: Any, *, dtype: Optional[str] = None, threads: int = 1) -> None:
    """dst[i] ^= x for each nonzero element x of the block, in place. A block from diff(base, new) turns base into new,
    and new into base.

    dst has as many elements as the block, of the same dtype. On an error its elements are unspecified: if dst cannot be
    restored, verify() the block first."""
    _into(lib.pici_apply, dst, block, dtype, threads)


def inspect(block: Any) -> Info:
    """Read a block's header, checking every rule that the header alone can break. The first 48 bytes of a block are
    enough: block_bytes of the result then tells a reader of a stream how many bytes the block has."""
    b = _arrays.octets(block)
    info = _abi.Info()
    _check(lib.pici_inspect(info, b.ctypes.data, b.size), b)
    return Info(_FORMAT_NAMES[info.format], BY_CODE[info.dtype].name, info.count, info.nnz, info.block_bytes)


def verify(block: Any) -> None:
    """Check a block against every rule of the format, and its checksum if there is one. Raises CorruptError,
    ChecksumError, VersionError or UnsupportedError; the exception's fault says which rule is broken, and where."""
    b = _arrays.octets(block)
    found = _abi.Fault()
    _check(lib.pici_verify_at(b.ctypes.data, b.size, found), b)
