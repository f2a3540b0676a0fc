# SPDX-License-Identifier: BSD-3-Clause
"""References: tensors of a compressed folder whose elements are stored in another tensor of the folder
(formats/folder.md).
"""
from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NamedTuple, Optional, Protocol

import numpy as np

from . import _codec
from ._dtypes import BY_CODE, DType
from .errors import CorruptError
from .file import File, Tensor, found_as

KEY = "folder.same"
_BYTES_LEAST = 4096  # of a tensor; a writer stores shorter ones again
_SAMPLE = 4096  # bytes
_PIECE = 1 << 24  # bytes to compare at a time


class Reference(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]
    shard: str  # "": the same one
    name: str

    def value(self) -> bytes:
        shard = self.shard.encode()
        head = struct.pack("<BBHI", self.dtype.code, len(self.shape), len(shard), 0)
        return head + struct.pack(f"<{len(self.shape)}Q", *self.shape) + shard + self.name.encode()


def reference_of(t: Tensor) -> Optional[Reference]:
    """The target of a tensor's reference; None if it is not a reference."""
    value = t.attrs.get(KEY)
    if value is None:
        return None
    try:
        if t.shape != (0,) or t.dtype != "u8":
            raise ValueError
        code, rank, size, zero = struct.unpack_from("<BBHI", value)
        shape = struct.unpack_from(f"<{rank}Q", value, 8)
        at = 8 + 8 * rank
        shard, name, d = value[at : at + size], value[at + size :], BY_CODE[code]
        if zero or rank > _codec.RANK_MAX or len(shard) != size or math.prod(shape) * d.itemsize >= 1 << 63:
            raise ValueError
        return Reference(d, shape, shard.decode(), name.decode(errors="surrogateescape"))
    except (struct.error, KeyError, ValueError):
        raise CorruptError(f"{t.name!r} is a malformed reference") from None


def follow(t: Tensor, to: Reference, file: File) -> Tensor:
    """The tensor of a reference, made from the elements of its target in a file."""
    if to.name not in file:
        raise CorruptError(f"{t.name!r} refers to {to.name!r} of {file.path}, which is not there")
    target = file[to.name]
    if reference_of(target) is not None:
        raise CorruptError(f"{t.name!r} refers to {to.name!r} of {file.path}, which is a reference itself")
    return found_as(t, target, to.dtype, to.shape)


class _Held(Protocol):
    @property
    def data(self) -> Any:
        ...

    @property
    def dtype(self) -> DType:
        ...


_Keyed = tuple[Any, _Held]  # a tensor with its key


def _samples(data: Any) -> bytes:
    """The beginning, the middle and the end."""
    size = data.size
    return b"".join(data[at : at + _SAMPLE].tobytes() for at in (0, (size - _SAMPLE) // 2, size - _SAMPLE))


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(a[at : at + _PIECE], b[at : at + _PIECE]) for at in range(0, a.size, _PIECE))


def _alike(groups: Iterable[list[_Keyed]], key: Callable[[_Held], Any]) -> Iterator[list[_Keyed]]:
    """The groups of two or more, within these groups, that have the same key."""
    for group in groups:
        found: dict[Any, list[_Keyed]] = {}
        for keyed in group:
            found.setdefault(key(keyed[1]), []).append(keyed)
        yield from (alike for alike in found.values() if len(alike) > 1)


def twins(tensors: Iterable[tuple[Any, _Held]], hash_of: Callable[[Any], int]) -> Iterator[tuple[Any, Any]]:
    """By the key of each tensor that has the bytes of an earlier tensor of its type: the earlier tensor's key."""
    large = [(key, t) for key, t in tensors if t.data.size >= _BYTES_LEAST]
    sized = _alike([large], lambda t: (t.data.size, t.dtype.code))
    sampled = _alike(sized, lambda t: hash_of(np.frombuffer(_samples(t.data), np.uint8)))
    for (first, held), *others in _alike(sampled, lambda t: hash_of(t.data)):
        for key, t in others:
            if _same(held.data, t.data):
                yield key, first
