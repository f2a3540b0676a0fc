# SPDX-License-Identifier: BSD-3-Clause
"""Views of the tensors of a file (formats/attributes.md) as arrays: shapes and strides over elements in memory."""
from __future__ import annotations

import importlib
import math
import sys
from typing import Any, Literal, NamedTuple, Optional

import numpy as np

from . import _arrays, _codec
from ._dtypes import BOOL, BY_CODE, COMPLEX32, DType, numpy_dtype

_BIG = sys.byteorder == "big"


class View(NamedTuple):
    """A struct pici_view, as _codec.reader_find() returns it."""

    handle: _codec.View
    dtype: int
    tensor_dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    elements: int
    stored_first: int
    stored_count: int
    conjugate: bool
    negative: bool


class Stored:
    """Elements of a stored tensor, from element `first` on, one-dimensional."""

    def __init__(self, elements: _arrays.Storage, first: int) -> None:
        self.elements = elements
        self.first = first
        self._base: Any = None

    def base(self, torch: Any) -> Any:
        """A torch tensor of integers. All tensors of one object share a torch storage."""
        if self._base is None:
            width = self.elements.itemsize
            self._base = torch.from_numpy(self.elements.view("u1" if width == 1 else f"i{width}"))
        return self._base


def is_run(v: View) -> bool:
    """Whether the elements follow one another in the stored tensor, without negations."""
    if v.conjugate or v.negative or BY_CODE[v.dtype].storage.itemsize != BY_CODE[v.tensor_dtype].storage.itemsize:
        return False
    row = 1
    for n, stride in zip(reversed(v.shape), reversed(v.strides)):
        if n > 1 and stride != row:
            return False
        row *= n
    return True


def whole(v: View, parts: int) -> bool:
    """Whether items of this many elements, the last dimension, lie contiguous in the stored tensor, at multiples of
    their size.
    """
    return v.strides[-1] == 1 and v.offset % parts == 0 and all(s % parts == 0 for s in v.strides[:-1])


def _start(v: View, d: DType, stored: Stored) -> int:
    """Bytes of `stored` before the first element."""
    return v.offset * d.storage.itemsize - stored.first * stored.elements.itemsize


def run(v: View, d: DType, first: int, count: int, stored: Stored, most: Optional[int]) -> _arrays.Storage:
    """A row-major copy of elements [first, first + count) of the view, in stored form, with the view's signs."""
    out = _arrays.empty(d, d.parts * count, most, 1)
    status = _codec.view_copy(v.handle, stored.elements, stored.first, d.parts * first, d.parts * count, out)
    assert status == 0
    return out


def steps(v: View) -> list[int]:
    """The strides. A dimension without a second index may have any. It gets the stride that it has in a row-major
    array, which torch needs to view the last dimension as another type.
    """
    found, row = [], 1
    for n, s in zip(reversed(v.shape), reversed(v.strides)):
        found.append(s if n > 1 and v.elements else row)
        row = min(found[-1] * max(n, 1), 1 << 62)
    return found[::-1]


def _resolved(v: View, d: DType, shape: tuple[int, ...], stored: Stored, most: Optional[int]) -> _arrays.Storage:
    """A row-major copy, with the signs that the view gives."""
    out = run(v, d, 0, v.elements // d.parts, stored, most)
    return _arrays.shaped(out, d, shape)


def _array(v: View, d: DType, shape: tuple[int, ...], stored: Stored, most: Optional[int]) -> _arrays.Storage:
    """A NumPy array of d's storage, or of complex numbers: a copy if signs change, else over the memory of stored."""
    if v.conjugate or v.negative or (_BIG and stored.elements.itemsize != d.storage.itemsize):
        return _resolved(v, d, shape, stored, most)
    dtype = d.storage if d.parts == 1 else numpy_dtype(d)
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    item = d.storage.itemsize
    strides = tuple(s * item for s in steps(v)[: len(shape)])
    return np.ndarray(shape, dtype, stored.elements.data, _start(v, d, stored), strides)


def _tensor(
    d: DType, shape: tuple[int, ...], strides: tuple[int, ...], start: int, stored: Stored, view: Optional[View]
) -> Any:
    """A torch tensor over the memory of stored, lazily conjugate or negative like the view. strides: in items; start:
    in bytes.
    """
    torch = importlib.import_module("torch")
    flat = stored.base(torch)
    if flat.element_size() < d.itemsize:
        most = flat.numel() - flat.numel() % (d.itemsize // flat.element_size())
        flat = flat[:most]
    x = flat.view(torch.uint8 if d is BOOL else _arrays.torch_dtype(torch, d))
    x = x.as_strided(shape, strides, start // d.itemsize)
    if d is BOOL:
        if x.numel() and int(x.max()) > 1:
            raise ValueError(f"an element is {int(x.max())}, which is no bool: pass to='bits' for the bytes")
        x = x.view(torch.bool)
    if view is not None and view.conjugate:
        x = x.conj()
    return torch._neg_view(x) if view is not None and view.negative else x


def _usual(shape: tuple[int, ...], order: str) -> tuple[int, ...]:
    """The strides of an array in the order of its elements."""
    strides, row = [], 1
    for n in shape if order == "F" else reversed(shape):
        strides.append(row)
        row *= n
    return tuple(strides if order == "F" else reversed(strides))


def deliver(
    view: Optional[View],
    d: DType,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    stored: Stored,
    to: str,
    most: Optional[int],
) -> Any:
    """The elements of a view of dtype d and this shape, in the type that `to` names. view None: all stored ones."""
    if view is not None and d in (BOOL, COMPLEX32) and view.elements > view.stored_count:  # reads or copies them
        _arrays.bounded(d, view.elements, most)
    mixed = _BIG and stored.elements.itemsize != d.storage.itemsize
    if to != "torch" or mixed or (view is not None and view.conjugate and d.parts == 1):
        if view is None:
            array = _arrays.shaped(stored.elements, d, shape, order)
        else:
            array = _array(view, d, shape, stored, most)
        return _arrays.delivery(d, to)(array)
    if view is None:
        return _tensor(d, shape, _usual(shape, order), 0, stored, None)
    strides = tuple(s // d.parts for s in steps(view)[: len(shape)])
    return _tensor(d, shape, strides, _start(view, d, stored), stored, view)
