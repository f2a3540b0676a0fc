# SPDX-License-Identifier: BSD-3-Clause
"""References: tensors of a compressed folder whose elements another tensor of it has (formats/folder.md)."""
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
_BYTES_LEAST = 4096  # of a tensor; shorter ones are stored again


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
    """What an empty tensor refers to; None if it is no reference."""
    value = None if t.size or t.dtype != "u8" else t.attrs.get(KEY)
    if value is None:
        return None
    try:
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
    """The tensor that a reference is, of the elements of its target in a file."""
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


def twins(tensors: Iterable[tuple[Any, _Held]], hash_of: Callable[[Any], int]) -> Iterator[tuple[Any, Any]]:
    """Of tensors with keys: the key of each whose bytes an earlier one of its type has, and that one's key."""
    alike: dict[tuple[int, int], list[tuple[Any, _Held]]] = {}
    for key, t in tensors:
        if t.data.size >= _BYTES_LEAST:
            alike.setdefault((t.data.size, t.dtype.code), []).append((key, t))
    for group in alike.values():
        first: dict[int, tuple[Any, _Held]] = {}
        for key, t in group if len(group) > 1 else ():
            before = first.setdefault(hash_of(t.data), (key, t))
            if before[0] != key and np.array_equal(before[1].data, t.data):
                yield key, before[0]
