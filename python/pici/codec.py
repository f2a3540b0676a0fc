# SPDX-License-Identifier: BSD-3-Clause
"""Blocks: the encoding of an array's elements as bytes, and back.

Arrays in: a NumPy array, an object with __dlpack__ (a torch tensor), or an object with a buffer (array.array, mmap).
Calls read and write arrays in place. Calls on more than 32 KiB release the GIL, so do not change an array during a
call. bool is stored as u8, and a complex number as two floats.

dtype: the dtype of the elements, if the array's type does not give it: "bf16" for bf16 bits in an array of uint16. It
must have the same width, except for bytes, bytearray, mmap and memoryviews of these, which hold the elements' bytes in
host order. It is a name ("f32", "float32", "torch.float32") or a dtype of NumPy, ml_dtypes or torch.

threads: default 1; 0 is one for each core.

max_bytes: the most memory that a block may make a call allocate; more raises LimitError. A valid block of 48 bytes may
hold 2^60 zeros. "auto": 1 GiB or 1024 times the block, whichever is more. None: no limit.

to: the type of returned arrays.
    "numpy"   an ndarray; bf16 and f8 are types of ml_dtypes, which must be installed (else ImportError)
    "bits"    an ndarray; bf16 and f8 are uint16 and uint8
    "torch"   a torch tensor
    "dlpack"  an object for any library's from_dlpack
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union, overload

import numpy as np

from . import _arrays, _codec, _gpu
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import BOOL, BY_CODE, BY_NAME, F4, OPAQUE, DType, DTypeLike, named
from ._kwargs import Decoding, DecodingAs, Encoding, Pack, Zeros
from ._libraries import ALIASES
from ._ranges import u64
from .errors import ArgumentError, Error, Fault, SpaceError, UnsupportedError, make

if TYPE_CHECKING:
    import array
    import mmap

    import torch
    from typing_extensions import Unpack

Array = TypeVar("Array", bound=Sized)
Buffer = Union[bytearray, memoryview, Storage, "array.array[Any]", "mmap.mmap"]  # writable

_FORMAT_NAMES = {code: name for name, code in _codec.FORMATS.items()}
_DECOMPRESS, _RANGE, _ADD, _APPLY = range(4)  # operations of _codec.decode
_SMALL_MAGIC = b"PICD"
_INDEX = {name: np.dtype(kind) for name, kind in (("u32", "u4"), ("u64", "u8"), ("i32", "i4"), ("i64", "i8"))}


@dataclass(frozen=True)
class Info:
    """The contents of a block's header."""

    format: str
    dtype: str
    #: elements that were encoded
    count: int
    #: nonzero elements. In hybrid, without -0.0 whose sign is kept; in a dense block, count
    nnz: int
    #: bytes of the whole block
    block_bytes: int


def _refusal(status: int, block: Union[bytes, Storage, None] = None) -> Error:
    """The exception for a status. For an invalid block, it has the fault."""
    message = _codec.strerror(status)
    found = None if block is None else _codec.verify(block)
    if found is None:
        return make(status, message)
    _, offset, tile, rule = found
    where = f"at byte {offset}" + ("" if tile is None else f", tile {tile}")
    return make(status, f"{message}: rule '{rule}' is broken {where}", Fault(offset, tile, rule))


def _head(block: Union[bytes, Storage]) -> tuple[int, int, int, int, int]:
    """format, dtype, count, nnz and block_bytes of a block."""
    head = _codec.head(block)
    if isinstance(head, int):
        raise _refusal(head, block)
    return head


def format_code(name: str) -> int:
    try:
        return _codec.FORMATS[ALIASES.get(name, name)]
    except KeyError:
        raise ValueError(f"no format {name!r}: pass one of {', '.join(_codec.FORMATS)}") from None


def zeros_code(name: str) -> int:
    try:
        return _codec.ZEROS[name]
    except KeyError:
        raise ValueError(f"no zeros={name!r}: pass 'exact' or 'value'") from None


def pack_code(name: str) -> int:
    try:
        return _codec.PACK[name]
    except KeyError:
        raise ValueError(f"no pack={name!r}: pass 'none', 'planes' or 'fast'") from None


def _encode(
    base: Optional[Storage],
    elements: Storage,
    d: DType,
    format: str,
    threads: int,
    checksum: bool,
    zeros: str,
    out: Any,
    small: Optional[tuple[int, int, int, int, int]] = None,
    pack: str = "none",
) -> Union[bytes, memoryview]:
    """The block of one array, or of the XOR of two arrays of the same length; new, or in the memory of out. With small,
    a small delta, always new. small: the result of part_of_tensor(), and whether an element holds two of 4 bits.
    """
    f, z, p = format_code(format), zeros_code(zeros), pack_code(pack)
    if out is None:
        block = _codec.encode(base, elements, d.code, f, threads, checksum, z, p, small, None)
        if isinstance(block, int):
            raise _refusal(block)
        return block
    room = np.frombuffer(out, np.uint8)
    length = _codec.encode(base, elements, d.code, f, threads, checksum, z, p, None, room)
    assert isinstance(length, int)
    if length == SpaceError.status:
        need = _codec.bound(f, d.code, elements.size, False)
        raise make(length, f"the block does not fit in the {room.size} bytes of out: {need} suffice, says bound()")
    if length < 0:
        raise _refusal(length)
    return room.data[:length]


def _into(what: int, out: Any, block: Any, dtype: Optional[DTypeLike], threads: int) -> None:
    """Apply a block with the same number of elements to out."""
    b = _arrays.octets(block)
    _, code, count, _, _ = _head(b)
    elements, d = _arrays.writable(out, BY_CODE[code], count, dtype)
    if what == _ADD and d in OPAQUE:
        raise TypeError(f"no arithmetic for {d.name}: decompress the block and add the elements yourself")
    if what == _ADD and d is BOOL:
        raise TypeError("bool is not added: pass array.view('u1'), whose sums are counts modulo 256")
    status = _codec.decode(what, elements, 0, b, threads)
    wrong = _arrays.mended(elements) if d is BOOL else 0
    if status:
        raise _refusal(status, b)
    if wrong:
        raise ValueError(f"an element is {wrong}, which is no bool: pass array.view('u1') for the bytes")


def bound(count: int, dtype: DTypeLike = "f32", format: str = "auto", *, small: bool = False) -> int:
    """The size in bytes of the longest block of `count` elements: always enough for compress(out=). small: of the
    longest small delta."""
    d = named(dtype)
    stored = u64(d.parts * u64(count, "count"), "the number of stored elements")
    length = _codec.bound(format_code(format), d.code, stored, small)
    if not length:
        raise ValueError(f"count is {count}: no block has so many elements")
    return length


@overload
def compress(array: Any, *, out: None = ..., **options: Unpack[Encoding]) -> bytes:
    ...


@overload
def compress(array: Any, *, out: Buffer, **options: Unpack[Encoding]) -> memoryview:
    ...


def compress(
    array: Any,
    *,
    format: str = "auto",
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    checksum: bool = False,
    zeros: Zeros = "exact",
    pack: Pack = "none",
    out: Optional[Buffer] = None,
) -> Union[bytes, memoryview]:
    """Encode all elements of array, in row-major order, as one block. The block does not store the shape.

    format: "dense", "bitmap", "coo", "hybrid", "packed" (floats only), or "auto": the one with the shortest block.
        "auto" considers packed only with pack.
    checksum: store an XXH64 of the block for decoders to check.
    zeros: "exact", or "value": store -0.0 of floats as +0.0. That saves much after multiplication by a mask.
    pack: "planes": with the formats "hybrid" and "auto", pack exponents of floats where that is shorter. "fast": the
        same, 2 to 3% longer, in less time. pici 0.2 cannot read such blocks.
    out: a writable buffer (bytearray, array of uint8) for the block, to save allocation; bound() bytes always suffice.
        The result is a memoryview of the block in out.
    """
    elements, d = _arrays.readable(array, dtype)
    return _encode(None, elements, d, format, threads, checksum, zeros, out, pack=pack)


def _as(d: DType, count: int, dtype: Optional[DTypeLike]) -> DType:
    """The type to give the `count` elements of a block of dtype d."""
    if dtype is None:
        return d
    wanted = named(dtype)
    if wanted.storage.itemsize != d.storage.itemsize or count % wanted.parts:
        raise TypeError(f"cannot read {count} elements of {d.name} as {wanted.name}: their widths differ")
    return wanted


def _decode(
    what: int,
    block: Union[bytes, Storage],
    head: tuple[int, int, int, int, int],
    first: int,
    count: int,
    to: str,
    threads: int,
    max_bytes: Limit,
    dtype: Optional[DTypeLike],
) -> Any:
    """A new array of elements [first, first + count) of a block."""
    d = BY_CODE[head[1]]
    if dtype is not None:
        d = _as(d, count, dtype)
    deliver = _arrays.delivery(d, to)
    out = _arrays.empty(d, count, _arrays.limit(max_bytes, len(block)), threads)
    status = _codec.decode(what, out, first, block, threads)
    if status:
        raise _refusal(status, block)
    return deliver(out if d.parts == 1 else _arrays.shaped(out, d, (-1,)))


@overload
def decompress(
    block: Any, *, to: Literal["numpy", "bits"] = ..., out: None = ..., **options: Unpack[DecodingAs]
) -> Storage:
    ...


@overload
def decompress(block: Any, *, to: Literal["torch"], out: None = ..., **options: Unpack[DecodingAs]) -> torch.Tensor:
    ...


@overload
def decompress(block: Any, *, to: Literal["dlpack"], out: None = ..., **options: Unpack[DecodingAs]) -> DLPackArray:
    ...


@overload
def decompress(block: Any, *, dtype: Optional[DTypeLike] = ..., threads: int = ..., out: Array) -> Array:
    ...


def decompress(
    block: Any,
    *,
    to: str = "numpy",
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    max_bytes: Limit = "auto",
    out: Any = None,
) -> Any:
    """Decode all elements of a block, as a one-dimensional array.

    dtype: the dtype of the elements, if the block cannot store it: "bool" for a block of u8, "complex64" for one of
        f32.
    out: an array with as many elements of the same dtype. The call decodes into out and returns it. On an error its
        elements are unspecified. `to` and max_bytes then have no effect.
    """
    if out is not None:
        _into(_DECOMPRESS, out, block, dtype, threads)
        return out
    b = _arrays.octets(block)
    head = _head(b)
    return _decode(_DECOMPRESS, b, head, 0, head[2], to, threads, max_bytes, dtype)


@overload
def decompress_range(
    block: Any, first: int, count: int, *, to: Literal["numpy", "bits"] = ..., **options: Unpack[Decoding]
) -> Storage:
    ...


@overload
def decompress_range(
    block: Any, first: int, count: int, *, to: Literal["torch"], **options: Unpack[Decoding]
) -> torch.Tensor:
    ...


@overload
def decompress_range(
    block: Any, first: int, count: int, *, to: Literal["dlpack"], **options: Unpack[Decoding]
) -> DLPackArray:
    ...


def decompress_range(
    block: Any,
    first: int,
    count: int,
    *,
    to: str = "numpy",
    threads: int = 1,
    max_bytes: Limit = "auto",
) -> Any:
    """Decode elements [first, first + count) of a block. Reads and checks only the parts of the block that these
    elements need; does not check the checksum."""
    b = _arrays.octets(block)
    head = _head(b)
    first, count = _range(first, u64(count, "count"), head[2], "block")
    return _decode(_RANGE, b, head, first, count, to, threads, max_bytes, None)


def decompress_into(out: Any, block: Any, *, dtype: Optional[DTypeLike] = None, threads: int = 1) -> None:
    """decompress(block, out=out), without a result."""
    _into(_DECOMPRESS, out, block, dtype, threads)


def scatter_add(dst: Any, block: Any, *, dtype: Optional[DTypeLike] = None, threads: int = 1) -> None:
    """dst[i] += x for each nonzero element x of the block. The arithmetic depends on the dtype: IEEE 754 for f32 and
    f64; f16, bf16 and f8 in f32, rounded once; integers wrap. Where the block has zeros, dst keeps its bits.

    dst must have the block's dtype and number of elements. On an error its elements are unspecified."""
    _into(_ADD, dst, block, dtype, threads)


def diff(
    base: Any,
    new: Any,
    *,
    format: str = "auto",
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    checksum: bool = False,
    small: bool = False,
    offset: int = 0,
    of: Optional[int] = None,
    axis: int = 0,
) -> bytes:
    """Encode the changes from base to new, two arrays of the same shape and dtype, as one block: the XOR of their
    elements, without a temporary array. Options: as for compress(). Signs of zeros are always kept.

    small: make a small delta instead. It is several times shorter for f32, f16, bf16 and f8 after a training step, but
        takes more time. Also for 4-bit floats: bytes with dtype="mxfp4" or "nvfp4", two names of the type "f4e2m1x2";
        their scales are separate arrays. Coding uses the elements of base, so a small delta turns base into new, but
        not new into base. Only apply() reads it.
    offset, of: with small, base and new are a rank's shard: rows [offset, offset + len(base)) of a tensor with `of`
        rows. Rows count along the first dimension; in a flat tensor they are elements. The delta stores this position;
        apply() rejects it elsewhere. b"".join(deltas) of all ranks that have rows, in their order, is one delta of the
        whole tensor.
    axis: count along this dimension instead. 1: columns, as in a row-parallel layer. The delta stores the axis too.
        Deltas of columns apply to a shard that has all of each delta's columns. Deltas of all columns apply to the
        whole tensor too.

    The block does not record its base. To detect a wrong base, store a hash with the block.

    With small, both arrays may be contiguous torch tensors in GPU memory. libpici_cuda then makes the delta there: the
    same bytes, without a checksum. format="auto" means "hybrid". No test has run that on a GPU."""
    on_gpu = _gpu.has(base) and _gpu.has(new)
    if on_gpu and not small:
        raise ValueError("tensors in a GPU's memory: pass small=True, or x.cpu() of both")
    if on_gpu and base.device != new.device:
        raise ValueError(f"the tensors are on {base.device} and {new.device}: bring them to one GPU")
    old, d = (base, _gpu.dtype_of(base, dtype)) if on_gpu else _arrays.readable(base, dtype)
    elements, found = (new, _gpu.dtype_of(new, dtype)) if on_gpu else _arrays.readable(new, dtype)
    if found != d:
        raise TypeError(f"the elements are {d.name} in one array and {found.name} in the other: convert one of them")
    if tuple(old.shape) != tuple(elements.shape):
        raise ValueError(f"the arrays differ in shape, {old.shape} and {elements.shape}: reshape one of them")
    if not small and (of is not None or offset):
        raise ValueError("a block does not store its elements' position: pass small=True, for any dtype")
    if on_gpu:
        if checksum:
            raise ValueError("a delta that is made on a GPU has no checksum: that would take longer than the delta")
        capacity = bound(math.prod(old.shape), BY_CODE[d.code].name, format="hybrid", small=True) + 16
        code = format_code("hybrid" if format == "auto" else format)
        return _gpu.diff(old, elements, d, code, *_part_on_gpu(old, offset, of, axis), capacity)
    part = (*part_of_tensor(old, offset, of, axis), int(d is F4)) if small else None
    block = _encode(old, elements, d, format, threads, checksum, "exact", None, part)
    assert isinstance(block, bytes)
    return block


def _part_on_gpu(x: Any, offset: int, of: Optional[int], axis: int) -> tuple[int, int]:
    """The number of elements before a part of a tensor, and of the tensor."""
    shape = np.broadcast_to(np.uint8(0), tuple(x.shape))
    rows, length, first, count = part_of_tensor(shape, offset, of, axis)
    if rows > 1 and count < length:
        raise ValueError("columns of a tensor in a GPU's memory: pass axis=0, or x.cpu()")
    return first, rows * length


def part_of_tensor(elements: Storage, offset: int, of: Optional[int], axis: int) -> tuple[int, int, int, int]:
    """The place of an array in a tensor that has `of` rows, or elements along axis. None: the array is the tensor. As
    in struct pici_columns: rows, elements of a row, the array's first element of a row, and their number."""
    first = u64(offset, "offset")
    if of is None:
        if first:
            raise ValueError("offset without of: pass how many rows the whole tensor has")
        return 1, elements.size, 0, elements.size
    if not elements.ndim:
        raise ValueError("an array without dimensions is no part of a tensor")
    if not 0 <= axis < elements.ndim:
        raise ValueError(f"axis={axis} of an array of {elements.ndim} dimensions")
    rows = elements.shape[axis]
    if first + rows > u64(of, "of"):
        what = "columns" if axis else "rows"
        raise ValueError(f"{what} [{first}, {first + rows}) of a tensor that has {of}")
    above, each = math.prod(elements.shape[:axis]), math.prod(elements.shape[axis + 1 :])
    u64(above * of * each, "the elements of the tensor")
    return above, of * each, first * each, rows * each


def _shard_words(rows: int, row_length: int, first: int, count: int) -> str:
    if rows > 1 and count < row_length:
        return f"columns [{first}, {first + count}) of {rows} rows of {row_length} elements"
    if rows * count == rows * row_length:
        return f"all of {rows * count} elements"
    return f"elements [{first}, {first + count}) of {row_length}"


def _delta_words(delta: Union[bytes, Storage]) -> str:
    """The elements that a small delta covers, in words; of joined deltas, the first one's."""
    head = bytes(delta[:56])
    words = [int.from_bytes(head[at : at + 8], "little") for at in range(0, len(head) - 7, 8)]
    version, count = head[4], words[1]
    if version == 1:
        return _shard_words(1, count, 0, count)
    if version < 4:
        return _shard_words(1, words[5], words[4], count)
    rows = words[5] // max(words[6], 1)
    return _shard_words(rows, words[6], words[4], count // max(rows, 1))


def apply(
    dst: Any,
    block: Any,
    *more: Any,
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    offset: int = 0,
    of: Optional[int] = None,
    axis: int = 0,
) -> None:
    """dst[i] ^= x for each nonzero element x of the block, in place. A block from diff(base, new) turns base into new,
    and new into base; a small delta only turns base into new.

    dst must have the block's dtype and number of elements. On an error its elements are unspecified: if you cannot
    restore dst, verify() the block first.

    more: blocks to apply after block. If all are small deltas, this takes one pass over dst.
    offset, of: dst has only rows [offset, offset + len(dst)) of a tensor with `of` rows, as for diff(). The small delta
        covers the whole tensor, these rows, or several parts in a row. With a delta of the whole tensor, the rows must
        have all or none of the 524288 elements of each chunk. A wrong base is rejected only if exponents of its
        elements differ.
    axis: as for diff(). dst may then be a view of columns. Deltas of other columns, of rows or of the whole tensor are
        rejected, with a message that names their elements.

    With small deltas, dst may be a contiguous torch tensor in GPU memory. libpici_cuda then applies them there, one
    after the other. No test has run that on a GPU."""
    blocks = [_arrays.octets(b) for b in (block, *more)]
    if _gpu.has(dst):
        if not all(bytes(b[:4]) == _SMALL_MAGIC for b in blocks):
            raise ValueError("a tensor in a GPU's memory takes small deltas: pass those, or apply to x.cpu()")
        d = _gpu.dtype_of(dst, dtype)
        _gpu.apply(dst, d, blocks, *_part_on_gpu(dst, offset, of, axis))
        return
    if all(bytes(b[:4]) == _SMALL_MAGIC and len(b) >= 32 and b[5] in BY_CODE for b in blocks):
        view = _arrays.scattered(dst, dtype) if axis else None
        if view is None:
            _apply_small(dst, tuple(blocks), dtype, threads, offset, of, axis)
            return
        packed = view[0].copy(order="C")
        _apply_small(packed, tuple(blocks), view[1].name, threads, offset, of, axis)
        view[0][...] = packed
        return
    if of is not None or offset:
        raise ValueError("a block does not store where its elements lie: apply small deltas to a part, or the whole")
    for b in blocks:
        if bytes(b[:4]) == _SMALL_MAGIC and len(b) >= 32 and b[5] in BY_CODE:
            _apply_small(dst, (b,), dtype, threads, 0, None, 0)
        else:
            _into(_APPLY, dst, b, dtype, threads)


def _apply_small(
    dst: Any,
    deltas: tuple[Union[bytes, Storage], ...],
    dtype: Optional[DTypeLike],
    threads: int,
    offset: int,
    of: Optional[int],
    axis: int,
) -> None:
    """Apply small deltas (formats/small-delta.md) to dst. The caller has checked their first bytes."""
    code, count = _delta_head(deltas[0])
    if of is not None or offset:
        count = _arrays.readable(dst, dtype)[0].size
    elements, d = _arrays.writable(dst, BY_CODE[code], count, dtype)
    part = part_of_tensor(elements, offset, of, axis)
    status = _codec.apply_small(elements, count, part, deltas, threads)
    wrong = _arrays.mended(elements) if d is BOOL else 0
    if status == ArgumentError.status:
        raise make(
            status,
            f"the array has {_shard_words(*part)}, and the first delta is of {_delta_words(deltas[0])}: they must have "
            "all that the array has, be counted along the same axis, and of columns of one delta it must have all or "
            "none. Of a delta of rows, or of the whole, it must have all or none of each chunk of 524288 elements: "
            "diff(offset=, of=, axis=) makes deltas of any parts",
        )
    if status:
        raise _refusal(status)
    if wrong:
        raise ValueError(f"an element is {wrong}, which is no bool: pass array.view('u1') for the bytes")


#: finds positions and values for which there is room: a status, how many there are, and two arrays
Find = Callable[[int], tuple[int, int, Any, Any]]


def _kind(d: DType, index: str, count: int) -> np.dtype[Any]:
    """The type of positions among `count` elements."""
    if index not in _INDEX:
        raise ValueError(f"index={index!r}: pass one of {', '.join(_INDEX)}")
    if d.parts != 1:
        raise TypeError(f"elements of {d.name} are two each: pass dtype='{BY_CODE[d.code].name}' for their parts")
    if count > np.iinfo(_INDEX[index]).max + 1:
        raise ValueError(f"{count} elements: pass index='u64' or 'i64', or fewer")
    return _INDEX[index]


def _found(
    find: Find, block: Union[bytes, Storage], d: DType, kind: np.dtype[Any], guess: int, max_bytes: Limit
) -> tuple[int, Any, Any]:
    """Call find() with enough room. Returns the number found, and the arrays, perhaps longer. guess: the number."""
    most, room = _arrays.limit(max_bytes, len(block)), guess
    if most is not None:  # check the found number, not the guess
        room = min(room, most // (kind.itemsize + d.storage.itemsize))
    while True:
        status, found, indices, values = find(room)
        if status != SpaceError.status:
            break
        _arrays.bounded(d, found, most, kind.itemsize)
        room = found
    if status == UnsupportedError.status and bytes(block[:4]) == _SMALL_MAGIC:
        raise make(
            status, f"a small delta of {_delta_words(block)}: changes() reads only deltas of rows and of whole tensors"
        )
    if status:
        raise _refusal(status, None if bytes(block[:4]) == _SMALL_MAGIC else block)
    return found, indices, values


def _positions(
    base: Optional[Storage],
    block: Union[bytes, Storage],
    d: DType,
    first: int,
    count: int,
    guess: int,
    index: str,
    to: str,
    max_bytes: Limit,
) -> tuple[Any, Any]:
    """The positions and values that _codec.nonzeros() finds among `count` elements. guess: their number."""
    kind, deliver = _kind(d, index, count), _arrays.delivery(d, to)

    def find(room: int) -> tuple[int, int, Storage, Storage]:
        indices, values = np.empty(room, kind), np.empty(room, d.storage)
        out = indices, kind.itemsize, values, d.storage.itemsize
        return (*_codec.nonzeros(base, block, first, count, *out), indices, values)

    found, indices, values = _found(find, block, d, kind, min(guess, count), max_bytes)
    if 2 * found < indices.size:
        indices, values = indices[:found].copy(), values[:found].copy()
    at = indices[:found]
    if to == "torch" and index.startswith("u"):  # torch accepts no other index type
        index, at = "i64", at.astype(np.int64)
    return _arrays.delivery(BY_NAME[index], to)(at), deliver(values[:found])


def _positions_on_gpu(
    base: Any, delta: Union[bytes, Storage], d: DType, first: int, count: int, index: str, max_bytes: Limit
) -> tuple[Any, Any]:
    """The positions and new values of a delta's changes among `count` elements of a tensor in a GPU's memory."""
    kind = _kind(d, "i64" if index.startswith("u") and index in _INDEX else index, count)
    guess = 3 * len(delta) if bytes(delta[:4]) == _SMALL_MAGIC else _head(delta)[3]
    find = _gpu.finder(base, d, delta, first, count, kind.itemsize)
    found, indices, values = _found(find, delta, d, kind, min(guess, count), max_bytes)
    if 2 * found < indices.numel():
        indices, values = indices[:found].clone(), values[:found].clone()
    return indices[:found], _gpu.typed(values[:found], base, d)


def _range(first: int, count: Optional[int], total: int, what: str) -> tuple[int, int]:
    """The first and the count of elements [first, first + count) of `total`; None: all from first on."""
    first = u64(first, "first")
    count = total - min(first, total) if count is None else u64(count, "count")
    if first + count > total:
        hint = ": inspect() tells its count" if what == "block" else ""
        raise ValueError(f"elements [{first}, {first + count}) of a {what} of {total}{hint}")
    return first, count


def nonzeros(
    block: Any,
    first: int = 0,
    count: Optional[int] = None,
    *,
    index: str = "u32",
    to: str = "numpy",
    dtype: Optional[DTypeLike] = None,
    max_bytes: Limit = "auto",
) -> tuple[Any, Any]:
    """The positions and values of the nonzeros of a block, or of its elements [first, first + count): two arrays of one
    dimension, in order. An element with only its sign bit set counts as nonzero.

    index: the type of positions, "u32", "u64", "i32" or "i64"; they count from `first`. With to="torch", i64 replaces
        unsigned types.
    Otherwise as for decompress_range(); for a whole block, the call checks everything."""
    b = _arrays.octets(block)
    head = _head(b)
    first, n = _range(first, count, head[2], "block")
    d = _as(BY_CODE[head[1]], n, dtype)
    return _positions(None, b, d, first, n, head[3], index, to, max_bytes)


def changes(
    base: Any,
    delta: Any,
    first: int = 0,
    count: Optional[int] = None,
    *,
    index: str = "u32",
    to: Optional[str] = None,
    dtype: Optional[DTypeLike] = None,
    max_bytes: Limit = "auto",
) -> tuple[Any, Any]:
    """The positions and new values of the elements that a delta changes, or of those among [first, first + count): for
    programs that patch weights in place. Does not change base.

    base: the base of the delta, from diff(base, new), with or without small. It may be a contiguous torch tensor in GPU
        memory. libpici_cuda then finds the changes there, and both results are tensors there. No test has run that on a
        GPU.
    to: as for nonzeros(); None is "torch" for a tensor in GPU memory, which takes no other, and else "numpy".
    Otherwise as for nonzeros(). Raises the exceptions of apply()."""
    b = _arrays.octets(delta)
    code, n = _delta_head(b)
    on_gpu = _gpu.has(base)
    if on_gpu and to not in (None, "torch"):
        raise ValueError(
            f"to={to!r} of a tensor in a GPU's memory: its changes are torch tensors there, or pass x.cpu()"
        )
    elements, d = (base, _gpu.dtype_of(base, dtype)) if on_gpu else _arrays.readable(base, dtype)
    if d.code != code:
        hint = f": pass dtype='{BY_CODE[code].name}' if they are its bits"
        raise TypeError(f"the elements are {d.name}, the delta's {BY_CODE[code].name}{hint}")
    size = math.prod(elements.shape)
    if size != n:
        raise ValueError(f"there are {size} elements; the delta has {n}")
    first, some = _range(first, count, n, "delta")
    if on_gpu:
        return _positions_on_gpu(elements, b, d, first, some, index, max_bytes)
    return _positions(elements, b, d, first, some, 3 * len(b), index, to or "numpy", max_bytes)


def _delta_head(delta: Union[bytes, Storage]) -> tuple[int, int]:
    """The dtype and the count of a delta of either kind."""
    if bytes(delta[:4]) == _SMALL_MAGIC and len(delta) >= 32 and delta[5] in BY_CODE:
        at = 40 if delta[4] >= 2 and len(delta) >= 48 else 8  # of a part: the elements of the whole
        return int(delta[5]), int.from_bytes(bytes(delta[at : at + 8]), "little")
    _, code, count, _, _ = _head(delta)
    return code, count


def inspect(block: Any) -> Info:
    """Read a block's header, and check every rule that needs only the header. The first 48 bytes of a block suffice: a
    reader of a stream then learns the block's size from block_bytes of the result."""
    format, dtype, count, nnz, block_bytes = _head(_arrays.octets(block))
    return Info(_FORMAT_NAMES[format], BY_CODE[dtype].name, count, nnz, block_bytes)


def verify(block: Any) -> None:
    """Check a block against every rule of the format, and its checksum if there is one. Raises CorruptError,
    ChecksumError, VersionError or UnsupportedError; the exception's fault names the broken rule and its place."""
    b = _arrays.octets(block)
    found = _codec.verify(b)
    if found is not None:
        raise _refusal(found[0], b)
