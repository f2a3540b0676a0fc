# SPDX-License-Identifier: BSD-3-Clause
"""Make send and receive buffers of collectives from callers' arrays, and new arrays for results.

The memory of a buffer has the form that _codec takes. It is an ndarray of the stored elements; or (address, bytes,
owner) for torch tensors, which this module reads without DLPack, and for GPU memory. Messages begin with the name of
the argument.
"""
from __future__ import annotations

import contextlib
import functools
import math
import sys
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _arrays, _memory
from ._arrays import Storage
from ._dtypes import OPAQUE, PLAIN, DType, DTypeLike, named, numpy_dtype, of_numpy
from ._gpu import Order

Memory = Union[Storage, tuple[int, int, Any]]


class Buffer(NamedTuple):
    memory: Memory
    dtype: DType
    #: stored elements: a complex number has two
    n: int
    #: an ndarray or a tensor of the same shape and type; None: there is none in the host's memory
    like: Any
    #: "", or the reason why it cannot receive
    fixed: str


def _typed(found: Optional[DType], width: int, name: Any, dtype: Optional[DTypeLike]) -> DType:
    """The dtype to use. found, width, name: the elements' own dtype, or None if it is not supported; its bytes; its
    name.
    """
    if dtype is None:
        if found is None or found in OPAQUE:
            raise TypeError(f"unsupported element type {name}: pass dtype= to read the bits as another")
        return found
    wanted = named(dtype)
    if wanted in OPAQUE:
        raise TypeError(f"no arithmetic for {wanted.name}: pass dtype='u8' to move its bytes")
    if wanted.itemsize != width:
        raise TypeError(f"cannot read elements of {name} as {wanted.name}: their widths differ")
    return wanted


_SCATTERED = "it is not row-major: pass a contiguous copy, and assign that back afterwards"
_READ_ONLY = "it is read-only: pass an array that may be written"


@functools.lru_cache(maxsize=None)
def _of_torch(dtype: Any) -> Optional[DType]:
    try:
        return named(dtype)
    except ValueError:
        return None


def _tensor(x: Any, dtype: Optional[DTypeLike], on_gpu: Optional[Order]) -> Buffer:
    if str(x.layout) != "torch.strided":
        raise TypeError(f"a tensor of layout {x.layout}: pass a dense one, as with to_dense()")
    if x.requires_grad:
        raise ValueError("a tensor that requires grad, which collectives do not support: pass its detach()")
    if x.is_conj() or x.is_neg():
        raise ValueError("a lazy conjugate or negative: pass its resolve_conj().resolve_neg()")
    if x.device.type != ("cuda" if on_gpu else "cpu"):
        raise BufferError(f"a tensor on {x.device}: " + _WHERE[on_gpu is not None])
    d = _typed(_of_torch(x.dtype), x.element_size(), x.dtype, dtype)
    whole = x.is_contiguous()
    if not whole:
        with on_gpu.with_torch(x.device) if on_gpu else contextlib.nullcontext():
            x = x.contiguous()
    n = x.numel()
    return Buffer((x.data_ptr(), n * x.element_size(), x), d, n * d.parts, x, "" if whole else _SCATTERED)


_WHERE = {
    False: "bring it to the host first, as with tensor.cpu(), or use Comm.nccl",
    True: "the communicator is NCCL's, for arrays in the memory of its GPU",
}


def _on_gpu(x: Any, dtype: Optional[DTypeLike]) -> Buffer:
    """An array in a GPU's memory, of any library but torch."""
    described = getattr(x, "__cuda_array_interface__", None)
    if described is None:
        raise BufferError(f"{type(x).__name__} has no __cuda_array_interface__: {_WHERE[True]}")
    kind, shape = np.dtype(described["typestr"]), tuple(described["shape"])
    d = _typed(of_numpy(kind), kind.itemsize, kind, dtype)
    n = math.prod(shape)
    strides = described.get("strides")
    expected: list[int] = []
    unit = kind.itemsize
    for length in reversed(shape):
        expected.insert(0, unit)
        unit *= length
    scattered = strides is not None and any(
        length > 1 and stride != unit for length, stride, unit in zip(shape, strides, expected)
    )
    if n and (scattered or described.get("mask") is not None):
        raise ValueError("an array that is not row-major, or has a mask: pass a contiguous copy")
    address, read_only = described["data"]
    return Buffer((int(address), n * kind.itemsize, x), d, n * d.parts, None, _READ_ONLY if read_only else "")


def _array(x: Any, dtype: Optional[DTypeLike]) -> Buffer:
    array, found = _arrays._seen(x)
    d = _typed(found, array.dtype.itemsize, array.dtype, dtype)
    fixed = ""
    if not array.flags.writeable:
        fixed = _READ_ONLY
    elif not array.flags.c_contiguous:
        fixed = _SCATTERED
    elif not array.dtype.isnative:
        fixed = "it is not in the host's byte order: pass a copy in that order, and assign that back afterwards"
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    like: Optional[Storage] = array
    if d.narrow and dtype is None and array.dtype == d.storage:  # by DLPack: the bits of bf16 or f8
        like = None
    return Buffer(_arrays._stored(array, d), d, array.size * d.parts, like, fixed)


def read(x: Any, name: str, dtype: Optional[DTypeLike] = None, on_gpu: Optional[Order] = None) -> Buffer:
    """An array as a buffer; a copy if it is not row-major and in the host's byte order. on_gpu: None if the elements
    must be in the host's memory. name: of the argument, for messages."""
    if type(x) is np.ndarray and dtype is None and not on_gpu:
        plain = PLAIN.get(x.dtype)
        if plain is not None and x.flags.c_contiguous:
            return Buffer(x, plain, x.size, x, "" if x.flags.writeable else _READ_ONLY)
    try:
        if isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ())):
            return _tensor(x, dtype, on_gpu)
        return _on_gpu(x, dtype) if on_gpu else _array(x, dtype)
    except (TypeError, ValueError, BufferError) as e:
        raise type(e)(f"{name}: {e}") from None


def written(
    x: Any,
    send: Buffer,
    count: int,
    dtype: Optional[DTypeLike] = None,
    on_gpu: Optional[Order] = None,
    name: str = "recv",
) -> Memory:
    """The memory of the argument recv, or of another argument, for `count` stored elements of the dtype of send."""
    b = read(x, name, dtype, on_gpu)
    if b.dtype is not send.dtype:
        raise TypeError(f"{name}: elements of {b.dtype.name}, but send has {send.dtype.name}: pass arrays of one dtype")
    if b.n != count:
        raise ValueError(f"{name}: {b.n // b.dtype.parts} elements, not {count // b.dtype.parts}, which the call gives")
    if b.fixed:
        raise ValueError(f"{name}: {b.fixed}")
    return b.memory


def fresh(send: Buffer, shape: tuple[int, ...], on_gpu: Optional[Order] = None) -> tuple[Any, Memory]:
    """A new array for a result, of the sent array's type, and its memory."""
    like, d = send.like, send.dtype
    if isinstance(send.memory, tuple) and like is not None:
        with on_gpu.with_torch(like.device) if on_gpu else contextlib.nullcontext():
            made = like.new_empty(shape)
        return made, (made.data_ptr(), made.numel() * made.element_size(), made)
    if like is None:
        if isinstance(send.memory, tuple):
            raise TypeError("recv: pass an array for the result, since send is on a GPU and no tensor of torch")
        try:
            dtype = numpy_dtype(d)
        except ImportError:
            raise ImportError(
                f"NumPy has no {d.name} for the result: install ml_dtypes, or pass recv, an array of the same type"
            ) from None
    else:
        dtype = like.dtype
    big = math.prod(shape) * dtype.itemsize >= _memory.LEAST
    array = _memory.empty(math.prod(shape), dtype, 1).reshape(shape) if big else np.empty(shape, dtype)
    return array, array if like is send.memory else _arrays._stored(array, d)


def shape_of(send: Buffer) -> tuple[int, ...]:
    """The shape of the sent array."""
    if send.like is not None:
        return tuple(send.like.shape)
    if isinstance(send.memory, tuple):
        return tuple(send.memory[2].__cuda_array_interface__["shape"])
    return send.memory.shape
