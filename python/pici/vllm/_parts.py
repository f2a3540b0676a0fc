# SPDX-License-Identifier: BSD-3-Clause
"""Weights as bytes: whole, as small deltas, and as positions with new values, for groups of tensors.

A part is the message of one group: a .pici file of packed planes, a delta as save_delta() makes it, or a table in JSON
followed by hybrid blocks. Hashes cover all of them, and the library's checked readers read them.
"""
from __future__ import annotations

import ctypes
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

import numpy as np

from .. import _arrays, _codec, _gpu, _load, codec, deltas
from .._dlpack import DLPackArray
from .._dtypes import BY_CODE, DType, named
from .._streams import Sink
from ..errors import CorruptError

GROUP_BYTES = 16 << 20  # of a group: one is encoded while one is sent and one is checked
BLOCK = 1 << 22  # elements of a block of positions and values
SMALL, REPLACE = "small", "replace"

# Float types that vLLM's patches support, with the bits of their exponents. All bits except the sign make a NaN, which
# no patch has. Parts store values XORed with it, so that no value is the zero that means "unchanged".
_EXPONENTS = {"bf16": 0x7F80, "f16": 0x7C00, "f32": 0x7F800000, "f64": 0x7FF << 52}


class Meta(NamedTuple):
    """A tensor, without its elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * named(self.dtype).storage.itemsize


class OnGpu(NamedTuple):
    """Of a tensor in GPU memory: a copy in host memory, and if deltas are made there, a copy in GPU memory. No other
    code changes the copies.
    """

    host: Any
    there: Any = None


class Held:
    """A tensor in host memory, as its bits."""

    def __init__(self, name: str, array: Any) -> None:
        """Reads a row-major array in place, and copies others; or takes an OnGpu."""
        self.there = None
        if isinstance(array, OnGpu):
            array, self.there = array
        stored, self.dtype = _arrays.readable(array)
        if self.dtype.parts != 1:
            raise TypeError(f"{name!r} is {self.dtype.name}: weights are floats and integers")
        self.bits = stored.view(f"u{stored.itemsize}")
        self.meta = Meta(name, self.dtype.name, tuple(stored.shape))

    @classmethod
    def taken(cls, name: str, array: Any) -> Held:
        """A copy, unless the array is an OnGpu. A source may use the memory of one tensor for its next one. Copies took
        about 0.25 s for each GiB, and updates without them 1 s (Zen 3, 2 cores).
        """
        held = cls(name, array)
        return held if isinstance(array, OnGpu) else held.copy()

    def copy(self) -> Held:
        return Held(self.meta.name, DLPackArray(self.bits.view(self.dtype.storage).copy(), self.dtype))

    @property
    def array(self) -> DLPackArray:
        return DLPackArray(self.bits.view(self.dtype.storage), self.dtype)


def groups_of(metas: Iterable[Meta]) -> Iterator[list[Meta]]:
    """Consecutive tensors with about GROUP_BYTES together."""
    group: list[Meta] = []
    total = 0
    for meta in metas:
        if group and total + meta.bytes > GROUP_BYTES:
            yield group
            group, total = [], 0
        group.append(meta)
        total += meta.bytes
    if group:
        yield group


def whole(group: list[Held], threads: int) -> bytes:
    file = io.BytesIO()
    _load.save(file, {t.meta.name: t.array for t in group}, pack="planes", threads=threads)
    return file.getvalue()


def from_whole(data: Any, group: list[Meta], to: str, threads: int) -> dict[str, Any]:
    """The tensors of whole(), which must match the group's."""
    load: Callable[..., dict[str, Any]] = _load.load
    found = load(io.BytesIO(data), to=to, threads=threads)
    for meta in group:
        if meta.name not in found:
            raise CorruptError(f"tensor {meta.name!r} is missing")
        if tuple(found[meta.name].shape) != meta.shape:
            raise CorruptError(f"tensor {meta.name!r} has the shape {tuple(found[meta.name].shape)}, not {meta.shape}")
    return {meta.name: found[meta.name] for meta in group}


def changed(old: list[Held], new: list[Held]) -> list[int]:
    """How many elements of each tensor changed."""
    return [int(np.count_nonzero(a.bits != b.bits)) for a, b in zip(old, new)]


def small(old: list[Held], new: list[Held]) -> bytes:
    """The delta. Small deltas of new tensors on a GPU are made there."""
    file = io.BytesIO()
    sink = Sink(file)
    opts: _codec.DiffOpts = deltas.diff_opts(None, "auto", 1, 0)
    there = {b.meta.name.encode(): (a.bits, b.there) for a, b in zip(old, new) if b.there is not None}
    raised: list[BaseException] = []
    if there:
        maker, raised = _gpu.small_maker(there, codec.format_code("hybrid"))
        opts = (*opts[:4], False, ctypes.cast(maker, ctypes.c_void_p).value)
    before, after = ({t.meta.name: t.array for t in some} for some in (old, new))
    with deltas.Held(before) as base, deltas.Held(after) as result:
        done = _codec.diff_states(sink, base.handle, result.handle, opts)
    sink.reraise()
    if raised:
        raise raised[0]
    deltas.got(done)
    return file.getvalue()


class InMemory:
    """Bytes as a file with a path."""

    def __init__(self, data: Any) -> None:
        self._fd = os.memfd_create("pici-delta")
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except BaseException:
            os.close(self._fd)
            raise
        self.path = f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        os.close(self._fd)


def from_small(state: Mapping[str, Any], parts: list[Any], threads: int) -> deltas.Update:
    """The changes of deltas in a row to a group: checked, but not yet made."""
    files: list[InMemory] = []
    try:
        for data in parts:
            files.append(InMemory(data))
        return deltas.apply_delta(state, *(f.path for f in files), stage=True, threads=threads)
    finally:
        for f in files:
            f.close()


class Patch(NamedTuple):
    """New values of a tensor: all, or the values at some positions."""

    meta: Meta
    indices: Optional[Any]
    values: Any


def _block_dtype(d: DType) -> str:
    return BY_CODE[d.code].name


def _marker(d: DType) -> int:
    return (1 << (8 * d.storage.itemsize - 1)) - 1


def _sparse(old: Held, new: Held, count: int) -> bool:
    """Whether to send a tensor as positions and values."""
    exponent = _EXPONENTS.get(old.dtype.name)
    if exponent is None or 2 * count > new.bits.size:
        return False
    values = new.bits[old.bits != new.bits]
    return not bool(((values & values.dtype.type(_marker(old.dtype))) > exponent).any())  # a NaN says "unchanged" there


def replace(old: list[Held], new: list[Held], counts: list[int]) -> bytes:
    table: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    for a, b, count in zip(old, new, counts):
        if not count:
            continue
        sparse = _sparse(a, b, count)
        before, after = a.bits.reshape(-1), b.bits.reshape(-1)
        lengths = []
        for first in range(0, max(after.size, 1), BLOCK):
            part = after[first : first + BLOCK]
            if sparse:
                mark = part.dtype.type(_marker(b.dtype))
                part = np.where(before[first : first + BLOCK] != part, part ^ mark, part.dtype.type(0))
            name = "hybrid" if sparse else "auto"
            block = codec.compress(part, format=name, dtype=_block_dtype(b.dtype), checksum=True)
            blocks.append(block)
            lengths.append(len(block))
        table.append({"name": b.meta.name, "dtype": b.meta.dtype, "shape": b.meta.shape, "sparse": sparse})
        table[-1]["blocks"] = lengths
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(blocks)


def from_replace(data: Any, group: list[Meta], to: str) -> list[Patch]:
    """The patches of replace(), whose tensors must be tensors of the group."""
    view = memoryview(data)
    known = {meta.name: meta for meta in group}
    end = 8 + int.from_bytes(view[:8], "little")
    try:
        if end > len(view):
            raise ValueError("the table is cut off")
        table = json.loads(bytes(view[8:end]))
        entries = [(str(t["name"]), str(t["dtype"]), tuple(map(int, t["shape"])), t["sparse"] is True) for t in table]
        lengths = [[int(n) for n in t["blocks"]] for t in table]
    except (ValueError, KeyError, TypeError) as e:
        raise CorruptError(f"the table of patches is damaged: {e}") from None
    patches = []
    for (name, dtype, shape, sparse), sizes in zip(entries, lengths):
        meta = Meta(name, dtype, shape)
        if known.get(name) != meta:
            raise CorruptError(f"tensor {name!r}: a patch of {dtype} {shape}, the weights are {known.get(name)}")
        blocks = []
        for size in sizes:
            if not 0 < size <= len(view) - end:
                raise CorruptError(f"tensor {name!r}: a block is cut off")
            blocks.append(view[end : end + size])
            end += size
        try:
            patches.append(_patch(meta, blocks, sparse, to))
        except CorruptError as e:
            raise CorruptError(f"tensor {name!r}: {e}") from None
    if end != len(view):
        raise CorruptError("bytes follow the last patch")
    return patches


def _patch(meta: Meta, blocks: list[memoryview], sparse: bool, to: str) -> Patch:
    d, count, first = named(meta.dtype), math.prod(meta.shape), 0
    places, values = [], []
    for block in blocks:
        info = codec.inspect(block)
        if info.dtype != _block_dtype(d) or info.count != min(BLOCK, count - first):
            raise CorruptError(f"a block of {info.count} {info.dtype}")
        codec.verify(block)
        if sparse:
            at, bits = codec.nonzeros(block, index="i64", to="bits", max_bytes=None)
            bits = bits.view(f"u{bits.itemsize}")
            places.append(at + first)
            values.append((bits ^ bits.dtype.type(_marker(d))).view(d.storage))
        else:
            values.append(codec.decompress(block, to="bits", max_bytes=None))
        first += info.count
    if first != count:
        raise CorruptError(f"{first} of {count} elements")
    deliver = _arrays.delivery(d, to)
    found = np.concatenate(values) if values else np.empty(0, d.storage)
    if not sparse:
        return Patch(meta, None, deliver(found))
    positions = np.concatenate(places) if places else np.empty(0, np.int64)
    return Patch(meta, _arrays.delivery(named("i64"), to)(positions), deliver(found))
