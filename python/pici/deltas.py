# SPDX-License-Identifier: BSD-3-Clause
"""Deltas of whole files, and of dicts of arrays: the changes between two training steps, as a .pici file.

    pici.diff_files("step1.safetensors", "step2.safetensors", "d2.pici")
    pici.apply_files("step1.safetensors", "d2.pici", out="same-as-step2.safetensors")

    pici.save_delta(old, new, "d2.pici")            # dicts of arrays, such as model.state_dict()
    weights = pici.load_delta(old, "d2.pici")
    pici.apply_delta(weights, "d3.pici")            # in place; the result has undo() and commit()

A state is a .safetensors, .gguf, .npy or raw file, or a dict of arrays. A dict counts as a .safetensors file, so a
delta of dicts applies to files, and vice versa. Deltas match tensors by name, and store added or reshaped ones whole.
Hashes of every tensor verify the base and the result. A delta works in one direction. picitool diff and apply make and
read the same files (formats/delta.md).

The rules of help(pici.codec) about arrays, threads, max_bytes and `to` hold here too. Do not change arrays during a
call.
"""
from __future__ import annotations

import json
import math
import os
import resource
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Optional, TypeVar, Union, cast, overload

import numpy as np

from . import _arrays, _codec, _gpu, _looks
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import ALL, BOOL, COMPLEX, F4, F6, DType, DTypeLike, named
from ._kwargs import Decoding
from ._ranges import u31, u64
from ._streams import Path, Source, encoded
from .codec import changes, format_code, inspect
from .errors import ArgumentError, CorruptError, IoError, UnsupportedError, make

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

#: a file's path, or arrays by name
State = Union[Path, Mapping[str, Any]]

#: for arrays with some rows of a tensor: the number of rows before them, and the tensor's number of rows. Then, if rows
#: do not count along the first dimension, the dimension
Shards = Mapping[str, Union[tuple[int, int], tuple[int, int, int]]]

#: an array and its name to the array, or the arrays by name, that servers hold instead
Convert = Callable[[str, Any], Any]

_LITTLE = sys.byteorder == "little"
SAFETENSORS = _codec.STATE_SAFETENSORS
_CHOICES: dict[Optional[bool], int] = {
    None: _codec.DELTA_AUTO,
    True: _codec.DELTA_SMALLEST,
    False: _codec.DELTA_FASTEST,
}

# Types in the header of a .safetensors file.
WORDS: dict[DType, str] = {d: d.name.upper() for d in ALL}
WORDS.update({d: w for d in ALL for n, w in (("f8e4m3", "F8_E4M3"), ("f8e5m2", "F8_E5M2")) if d.name == n})
WORDS.update({BOOL: "BOOL", COMPLEX[0]: "C64"})
WORDS.update(
    {named("f8e8m0"): "F8_E8M0", named("f8e4m3fnuz"): "F8_E4M3FNUZ", named("f8e5m2fnuz"): "F8_E5M2FNUZ"},
)
WORDS[F4] = "F4"
WORD_TYPES = {word: d for d, word in WORDS.items()} | {"F6_E2M3": F6[0], "F6_E3M2": F6[1]}
#: types whose elements are smaller than a byte: so many elements take so many bytes
_SMALL = {"F4": (2, 1), "F6_E2M3": (4, 3), "F6_E3M2": (4, 3)}
BYTES = WORD_TYPES["U8"]


Result = TypeVar("Result")


def got(result: Union[Result, _codec.Failed], path: str = "") -> Result:
    """The result of a call, unless it failed."""
    if isinstance(result, _codec.Failed):
        raise make(result.status, result.words, code=result.code, path=path)
    return result


def stored_shape(word: str, shape: Iterable[int]) -> tuple[int, ...]:
    """The shape in a .pici file of a tensor of a .safetensors file. If elements are smaller than a byte, its last
    dimension counts bytes; without a whole number of bytes, it has one dimension."""
    found = tuple(shape)
    elements, octets = _SMALL.get(word, (1, 1))
    if not found or elements == 1:
        return found
    if found[-1] % elements:
        return (math.prod(found) * octets // elements,)
    return (*found[:-1], found[-1] // elements * octets)


def _shape_of(x: Storage, d: DType) -> list[int]:
    """The shape that a .safetensors file would state."""
    if d is F4:
        return [*x.shape[:-1], 2 * x.shape[-1]]
    return list(x.shape if d.parts == 1 else x.shape[:-1])


def safetensors_head(
    taken: Mapping[str, tuple[Storage, DType]], metadata: Optional[Mapping[str, str]] = None
) -> tuple[list[str], bytes]:
    """The order in which safetensors writes arrays, so that each begins at a multiple of its width; and the bytes
    before them in the file."""
    order = sorted(taken, key=lambda name: (-taken[name][1].storage.itemsize, name))
    end, places = 0, {}
    for name in order:
        places[name] = [end, end + taken[name][0].nbytes]
        end = places[name][1]
    about = {} if metadata is None else {"__metadata__": dict(metadata)}
    entries = {
        name: {"dtype": WORDS[d], "shape": _shape_of(x, d), "data_offsets": places[name]}
        for name, (x, d) in taken.items()
    }
    text = json.dumps({**about, **entries}, separators=(",", ":"), ensure_ascii=False).encode()
    return order, (len(text) + -len(text) % 8).to_bytes(8, "little") + text + b" " * (-len(text) % 8)


class Held:
    """An open state, and all that it points to. close() frees it."""

    def __init__(self, state: State, code: int = 0, kind: int = 0, shards: Optional[Shards] = None) -> None:
        """code: the dtype of a raw file. kind: enum pici_state_type; 0: by the file's name. shards: of arrays."""
        self._shards = shards or {}
        self._kept: list[Storage] = []
        self._head = b""
        self._path = None if isinstance(state, Mapping) else os.fsdecode(state)
        if isinstance(state, Mapping):
            self._arrays(state)
            return
        opened = _codec.state_open(encoded(state), kind, code)
        failed = isinstance(opened, _codec.Failed) and opened.status != IoError.status
        found = _looks.words(_looks.first_of(self._path or "")) if failed else None
        if found and not (kind and _looks.is_safetensors(_looks.first_of(self._path or ""))):
            assert isinstance(opened, _codec.Failed)
            raise make(opened.status, f"{self._path} is {found}")
        self.handle = got(opened, os.fsdecode(state))

    def _arrays(self, state: Mapping[str, Any]) -> None:
        taken = {name: taken_array(name, x) for name, x in state.items()}
        order, head = safetensors_head(taken)
        self.names = order
        self._head = head
        self.handle = got(_codec.state_new(b"the arrays", SAFETENSORS, head))
        for name in order:
            x, d = taken[name]
            octets = x.reshape(-1).view(np.uint8)  # in the file's byte order, which may not be the host's
            part = part_of(x, self._shards[name], name, d.parts) if name in self._shards else None
            got(_codec.state_add(self.handle, name.encode(), WORDS[d].encode(), d.code, x.shape, octets, part))
            self._kept.append(x)

    def write(self, room: Storage) -> int:
        """Write the bytes of the state's file to an array. Returns their number."""
        at = 0
        pieces = [np.frombuffer(self._head, np.uint8), *self._kept] if self._path is None else [self._stored()]
        for x in pieces:
            if x.nbytes > room.size - at:
                raise CorruptError("the result is longer than the last delta states")
            room[at : at + x.nbytes] = x.reshape(-1).view(np.uint8)
            at += x.nbytes
        return at

    def _stored(self) -> Storage:
        assert self._path is not None
        return np.fromfile(self._path, np.uint8)

    def file_bytes(self) -> int:
        """The length of the state's file."""
        if self._path is not None:
            return os.stat(self._path).st_size
        return len(self._head) + sum(x.nbytes for x in self._kept)

    def close(self) -> None:
        _codec.close(self.handle)
        self._kept.clear()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def part_of(x: Storage, shard: tuple[int, ...], name: str, parts: int = 1) -> tuple[int, ...]:
    """The place of an array in a tensor, as in struct pici_columns (rows, elements of a row, the array's first, and
    their number), and the shape of the tensor. parts: the numbers in an element; if there are several, they are the
    array's last dimension."""
    try:
        offset, of, axis = (*shard, 0) if len(shard) == 2 else shard
    except (TypeError, ValueError):
        raise TypeError(
            f"{name!r}: a shard is (rows before it, rows of the tensor), or these and an axis, not {shard!r}"
        ) from None
    dims = x.ndim if parts == 1 else x.ndim - 1
    if dims < 1:
        raise ValueError(f"{name!r}: an array without dimensions is no part of a tensor")
    if not 0 <= axis < dims:
        raise ValueError(f"{name!r}: axis {axis} of an array of {dims} dimensions")
    first, rows = u64(offset, "offset"), x.shape[axis]
    if first + rows > u64(of, "of"):
        what = "columns" if axis else "rows"
        raise ValueError(f"{name!r}: {what} [{first}, {first + rows}) of a tensor that has {of}")
    above, each = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    total = u64(above * of * each, "the elements of the tensor")
    where = (above, of * each, first * each, rows * each) if above != 1 else (1, total, first * each, x.size)
    if parts != 1 and x.ndim == 2:  # flat: the tensor may have any shape
        return *where, total
    return *where, *x.shape[:axis], of, *x.shape[axis + 1 :]


def raw_code(state: State, dtype: Optional[DTypeLike]) -> int:
    """The dtype of a raw file's elements, which is required; 0 if the state is not a raw file."""
    if isinstance(state, Mapping) or os.fsdecode(state).lower().endswith((".npy", ".safetensors", ".gguf")):
        return 0
    if dtype is None:
        first = _looks.first_of(os.fsdecode(state))
        if _looks.stands_in(first):
            raise ValueError(f"{os.fsdecode(state)} is {_looks.words(first)}")
        raise ValueError(
            f"{os.fsdecode(state)} is taken as raw elements: pass dtype=, their type, or name it .safetensors, .gguf "
            "or .npy"
        )
    return named(dtype).code


def diff_opts(small: Optional[bool], format: str, threads: int, zstd: int) -> tuple[int, int, int, int]:
    if small not in _CHOICES:
        raise ValueError(f"small={small!r}: pass True, False or None")
    return _CHOICES[small], format_code(format), u31(threads, "threads"), u31(zstd, "zstd")


def check_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{text!r}: a text of a .safetensors file is UTF-8, which has no surrogates") from None


def taken_array(name: Any, x: Any) -> tuple[Storage, DType]:
    """The bytes of an array in its .safetensors file."""
    if not isinstance(name, str):
        raise TypeError(f"a tensor's name is a str, not {type(name).__name__}: pass str({name!r})")
    check_utf8(name)
    if name == "__metadata__":
        raise ValueError("'__metadata__' is no name of a tensor in a .safetensors file: rename it")
    try:
        elements, d = _arrays.readable(x)
    except (TypeError, ValueError, BufferError, RuntimeError) as e:
        raise type(e)(f"{name!r}: {e}") from None
    if d not in WORDS:
        how = "its parts as two tensors" if d.parts != 1 else "its bytes, as x.view(torch.uint8)"
        raise TypeError(f"{name!r}: a .safetensors file has no {d.name}: store {how}")
    if d is F4 and not elements.ndim:
        elements = elements.reshape(1)  # no file has a scalar of two numbers
    if elements.ndim > _codec.RANK_MAX:
        raise ValueError(f"{name!r}: {elements.ndim} dimensions; there can be {_codec.RANK_MAX}: reshape the array")
    if _LITTLE:
        return elements, d
    return elements.astype(elements.dtype.newbyteorder("<")), d


class Out:
    """An atomic write: the file appears at its path at commit()."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        self.path = os.fsdecode(path)
        self.handle = self._got(_codec.outfile_open(encoded(path), bool(overwrite)))

    def _got(self, result: Union[Result, _codec.Failed]) -> Result:
        if isinstance(result, _codec.Failed):
            message = os.strerror(result.code) if result.code else result.words
            raise make(result.status, message, code=result.code, path=self.path)
        return result

    def commit(self) -> None:
        self._got(_codec.outfile_commit(self.handle))

    def __enter__(self) -> Out:
        return self

    def __exit__(self, *_: object) -> None:
        _codec.close(self.handle)


def diff_files(
    base: State,
    new: State,
    delta: Path,
    *,
    small: Optional[bool] = None,
    format: str = "auto",
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    zstd: int = 0,
    overwrite: bool = False,
    convert: Optional[Convert] = None,
) -> None:
    """Write the delta from one state to another to the path delta.

    base, new: files, both .safetensors, .gguf, .npy or raw; or dicts of arrays.
    small: store f32, f16, bf16, f8, and u8 that holds 4-bit floats, as small deltas. After a training step these are
        several times shorter, and take more time. None: where they are at least an eighth shorter, judged by the first
        changed elements.
    format, zstd: of all other tensors; as for create().
    dtype: of the elements of raw files.
    overwrite: replace an existing file; else FileExistsError.
    convert: for a trainer whose servers hold another type. convert(name, array) runs for each array of a dict, base or
        new, but not for files. It returns a replacement: an array, or a dict of arrays by name (8-bit weights and their
        scales). A weight that moves by less than a step of the servers' type does not change there. So the delta of
        converted weights is far shorter than a delta of the trainer's weights, and it is exact.
    """
    if convert is not None and not isinstance(base, Mapping) and not isinstance(new, Mapping):
        raise TypeError("convert= is of arrays, and base and new are files: convert these before")
    base, new = converted(base, convert), converted(new, convert)
    opts = diff_opts(small, format, threads, zstd)
    with ExitStack() as stack:
        old = stack.enter_context(Held(base, raw_code(base, dtype)))
        after = stack.enter_context(Held(new, raw_code(new, dtype)))
        if _codec.state_type(old.handle) != _codec.state_type(after.handle):
            raise ValueError("base and new are of different types: pass two files of one type, or two dicts")
        out = stack.enter_context(Out(delta, overwrite))
        got(_codec.diff_states(out.handle, old.handle, after.handle, opts), out.path)
        out.commit()


def converted(state: State, convert: Optional[Convert]) -> State:
    """A state with its arrays converted by convert()."""
    if convert is None or not isinstance(state, Mapping):
        return state
    made: dict[str, Any] = {}
    for name, array in state.items():
        found = convert(name, array)
        several = found if isinstance(found, Mapping) else {name: found}
        if twice := made.keys() & several.keys():
            raise ValueError(f"convert() made {', '.join(sorted(twice))} twice")
        made.update(several)
    return made


def _old_order(first: Any, second: Any, third: Any) -> bool:
    """Whether save_delta() has the arguments of 0.2: the path first. With three paths, existing files decide."""
    if isinstance(third, Mapping) or isinstance(first, Mapping) or isinstance(second, Mapping):
        return isinstance(third, Mapping)
    if not os.path.exists(third):
        return False
    return not os.path.exists(first) or _looks.first_of(os.fsdecode(first)).startswith(b"\x89PICI")


def save_delta(
    base: State,
    new: State,
    path: Path,
    *,
    small: Optional[bool] = None,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    overwrite: bool = False,
    convert: Optional[Convert] = None,
) -> None:
    """Write the delta between two dicts of arrays: diff_files(base, new, path). save_delta(path, base, new), the order
    of 0.2, is deprecated."""
    if _old_order(base, new, path):
        warnings.warn(
            "save_delta(path, base, new) is deprecated: pass save_delta(base, new, path)", DeprecationWarning, 2
        )
        path, base, new = base, new, path  # type: ignore[assignment]
    diff_files(
        base, new, path, small=small, format=format, threads=threads, zstd=zstd, overwrite=overwrite, convert=convert
    )


class _Resting:
    """A file object for Source that opens its file only to read it."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def seekable(self) -> bool:
        return True

    def seek(self, at: int, whence: int = os.SEEK_SET) -> int:
        self._at = at + (os.stat(self._path).st_size if whence == os.SEEK_END else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, n: int) -> bytes:
        with open(self._path, "rb") as f:
            f.seek(self._at)
            data = f.read(n)
        self._at += len(data)
        return data


class Row:
    """A sequence of deltas. Keeps as many open as the process has spare descriptors."""

    def __init__(self, deltas: tuple[Path, ...], threads: int) -> None:
        self._readers: list[_codec.Reader] = []
        self._sources: list[Source] = []
        if not deltas:
            raise TypeError("there is no delta: pass the paths of one or several, in order")
        self.handle = got(_codec.deltas_new())
        try:
            self._open(deltas, threads)
        except BaseException:
            self.close()
            raise

    def _open(self, deltas: tuple[Path, ...], threads: int) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        kept = 200 if most == resource.RLIM_INFINITY else min(200, most // 4)
        for i, path in enumerate(deltas):
            source = Source(path if i < kept else cast(BinaryIO, _Resting(path)))
            self._sources.append(source)
            name = os.fsdecode(path)
            reader = source.open(threads)
            self._reraise(reader)
            if isinstance(reader, _codec.Failed):
                code = reader.code if reader.status == IoError.status else 0
                raise make(reader.status, os.strerror(code) if code else reader.words, code=code, path=name)
            self._readers.append(reader)
            self._got(_codec.deltas_add(self.handle, reader, os.fsencode(name)), name)
        #: the state type and the dtype of the base, and the bytes of the result, unless its head is the base's
        self.type, self._dtype, self.bytes, self.own_head = self._got(
            _codec.deltas_info(self.handle, self._readers[-1])
        )

    def _reraise(self, result: Any) -> None:
        """Raise the exception of a callback that made a call fail, if there was one."""
        if isinstance(result, _codec.Failed) and result.status == IoError.status:
            for source in self._sources:
                source.reraise()

    def _got(self, result: Union[Result, _codec.Failed], path: str = "") -> Result:
        """The result of a call that may read the deltas, unless it failed."""
        self._reraise(result)
        return got(result, path)

    def close(self) -> None:
        _codec.close(self.handle)
        for reader in self._readers:
            _codec.close(reader)
        self._readers.clear()

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def base(self, state: State, shards: Optional[Shards] = None) -> Held:
        """The base, as a file of the type that the first delta names."""
        return Held(state, self._dtype, self.type, shards)

    def to_file(self, out: Out, base: Held, threads: int) -> None:
        self._got(_codec.apply_deltas(out.handle, base.handle, self.handle, threads), out.path)

    def to_memory(self, base: Held, threads: int, most: Optional[int]) -> Storage:
        """The bytes of the result. More than `most` raises LimitError; None: no limit."""
        # Deltas without a head keep most elements of the base.
        whole = _arrays.empty(BYTES, self.bytes if self.own_head else base.file_bytes(), most, threads)
        self._got(_codec.apply_deltas(whole, base.handle, self.handle, threads))
        return whole

    def is_result(self, state: Held) -> bool:
        """Whether a state is known to be the result already."""
        done = _codec.deltas_is_result(self.handle, state.handle)
        self._reraise(done)
        return done is True


def apply_files(
    base: State, *deltas: Path, out: Optional[Path] = None, threads: int = 1, overwrite: bool = False
) -> None:
    """Apply the deltas to base, in order, and write the result.

    out: the path of the result. None: replace the file base atomically, unless it already is the result.
    overwrite: replace an existing file out; else FileExistsError.

    ArgumentError: base is not the first delta's base. CorruptError: a delta is damaged, or does not apply to the result
    of the one before. After an exception nothing has changed."""
    n = u31(threads, "threads")
    if out is None and isinstance(base, Mapping):
        raise TypeError("base is a dict: pass out=, or use load_delta()")
    with ExitStack() as stack:
        row = stack.enter_context(Row(deltas, n))
        old = stack.enter_context(row.base(base))
        where: Path = base if out is None else out  # type: ignore[assignment]
        file = stack.enter_context(Out(where, overwrite or out is None))
        try:
            row.to_file(file, old, n)
        except ArgumentError:
            if out is None and row.is_result(old):
                return
            raise
        file.commit()


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["numpy", "bits"] = ..., **options: Unpack[Decoding]
) -> dict[str, Storage]:
    ...


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["torch"], **options: Unpack[Decoding]
) -> dict[str, torch.Tensor]:
    ...


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["dlpack"], **options: Unpack[Decoding]
) -> dict[str, DLPackArray]:
    ...


def load_delta(
    base: State, *deltas: Path, to: str = "numpy", threads: int = 1, max_bytes: Limit = "auto"
) -> dict[str, Any]:
    """Apply the deltas, in order, to base: a .safetensors file or a dict of arrays. Returns the result as a dict of new
    arrays, which share one piece of memory. Exceptions: see apply_files()."""
    n = u31(threads, "threads")
    with Row(deltas, n) as row, row.base(base) as old:
        if row.type != SAFETENSORS:
            raise ValueError("the deltas are not of .safetensors files or dicts: use apply_files()")
        stored = old.file_bytes() + sum(os.path.getsize(path) for path in deltas)
        whole = row.to_memory(old, n, _arrays.limit(max_bytes, stored))
    return arrays_of(whole, to)


class Update:
    """The changes of deltas to a state of arrays, made by apply_delta(). Until commit(), it keeps the difference of old
    and new arrays: one or two bytes for each changed element."""

    def __init__(self, state: Mapping[str, Any], deltas: tuple[Path, ...], threads: int, shards: Shards) -> None:
        on_gpu = {name: x for name, x in state.items() if _gpu.has(x)}
        host = {name: _gpu.host_copy(name, x) if name in on_gpu else x for name, x in state.items()}
        for name, x in host.items():
            _in_place(name, x)
        with Row(deltas, threads) as row, row.base(host, shards) as held:
            if row.type != SAFETENSORS:
                raise ValueError("the deltas are not of .safetensors files or dicts: use apply_files()")
            made = _codec.update_new(held.handle, row.handle, threads)
            row._reraise(made)
            self._handle: Optional[_codec.Update] = got(made)
            self._names, self._arrays = held.names, list(held._kept)
        parts = _codec.update_parts(self._handle)
        self._parts = [(self._names[tensor], tensor, first) for tensor, first, _, _ in parts]
        #: the names of the tensors that change
        self.changed: list[str] = list(dict.fromkeys(name for name, _, _ in self._parts))
        #: the changed shards without a checked hash for all of their elements
        self.unverified: list[str] = list(dict.fromkeys(self._names[n] for n, _, _, verified in parts if not verified))
        #: bytes kept for undo()
        self.bytes: int = sum(length for _, _, length, _ in parts)
        #: whether the arrays have the result of the deltas
        self.switched = False
        self._places: Optional[_gpu.Places] = self._placed(on_gpu) if on_gpu else None

    def _placed(self, on_gpu: Mapping[str, Any]) -> _gpu.Places:
        """The changes of tensors in GPU memory."""
        places = _gpu.Places()
        for (name, tensor, first), (indices, values) in zip(self._parts, self._found("bits", "u64")):
            if name in on_gpu:
                bits = self._arrays[tensor].reshape(-1).view(values.dtype)
                at = indices + np.uint64(first)
                places.add(on_gpu[name], at, bits[at], values)
        return places

    def _found(self, to: str, index: str) -> Iterator[tuple[Any, Any]]:
        """The positions and new values of each part."""
        for i, (_, tensor, first) in enumerate(self._parts):
            block = _codec.update_block(self._open(), i)
            info = inspect(block)
            base = self._arrays[tensor].reshape(-1)[first : first + info.count]
            yield changes(base, block, dtype=info.dtype, to=to, index=index)

    def _open(self) -> _codec.Update:
        if self._handle is None:
            raise ValueError("the update was committed: its old state is gone")
        return self._handle

    def switch(self) -> None:
        """Change the arrays to the deltas' result. They must not have changed before."""
        if self.switched:
            raise ValueError("the arrays are switched already: undo() goes back")
        self._switch(True)

    def undo(self) -> None:
        """Restore the old arrays. They must be as switch() left them."""
        if not self.switched:
            raise ValueError("the arrays are what they were: switch() changes them")
        self._switch(False)

    def _switch(self, becomes: bool) -> None:
        got(_codec.update_switch(self._open()))
        try:
            if self._places:
                self._places.put(becomes)
        except BaseException:
            got(_codec.update_switch(self._open()))
            raise
        self.switched = becomes

    def commit(self) -> None:
        """Drop the changes: undo() and switch() no longer work. The arrays do not change."""
        if self._handle is not None:
            _codec.close(self._handle)
            self._handle = self._places = None
            self._arrays.clear()

    def patches(self, to: str = "numpy", index: str = "u32") -> Iterator[tuple[str, int, Any, Any]]:
        """The changes as tuples (name, first, indices, values). Positions count from element `first` of the array (of a
        shard: of the shard itself); values are the new ones. An array may have several tuples. Only before switch().
        Options as for changes()."""
        self._open()
        if self.switched:
            raise ValueError("the arrays are switched already: undo() goes back")
        for (name, _, first), (indices, values) in zip(self._parts, self._found(to, index)):
            yield name, first, indices, values

    def __enter__(self) -> Update:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self.switched and self._handle is not None:
            self.undo()
        self.commit()


def _in_place(name: Any, x: Any) -> None:
    """Reject an array if the call could change only a copy of it."""
    try:
        array, _ = _arrays._seen(x, True)
    except (TypeError, ValueError, BufferError) as e:
        raise type(e)(f"{name!r}: {e}") from None
    if not (array.flags.c_contiguous and array.dtype.isnative and array.flags.writeable and _LITTLE):
        raise ValueError(
            f"{name!r}: arrays to change in place must be row-major, in the host's byte order and writable; "
            "use load_delta(), which makes new arrays"
        )


def apply_delta(
    state: Mapping[str, Any],
    *deltas: Path,
    stage: bool = False,
    threads: int = 1,
    shards: Optional[Shards] = None,
    strict: bool = False,
) -> Update:
    """Apply the deltas, in order and in place, to a dict of arrays, such as a torch model.state_dict() on the CPU. The
    call first checks the hashes of every tensor, before and after, in one pass. Only then does it change the first
    tensor.

    stage: change nothing yet. switch() of the result does, in the time of an XOR of the changes.
    shards: {name: (offset, of)} for arrays that hold only rows [offset, offset + len(array)) of a tensor with `of`
        rows, counted along the first dimension. A flat array counts elements, for any shape of the tensor. (offset, of,
        axis): counted along another dimension, as columns. The dict must have all names of the deltas; arrays that are
        not in shards are whole, and a shard may be empty. The call decodes only the changes in a shard. In a tensor
        stored as small deltas, a shard must begin and end at a multiple of 524288 elements, or at the tensor's end,
        else UnsupportedError. For columns, the call checks no hash, and rejects tensors stored as small deltas;
        save_delta(small=False) writes none. Deltas of dicts of the same arrays have hashes of tensors and of their
        pieces of 524288 elements. The call checks the pieces that a shard covers fully. It does not check a shard's
        other elements, nor, if there are shards, tensors that no delta lists. There, only small deltas detect a wrong
        base, where exponents differ; otherwise the result is silently wrong. So number the states.
    strict: UnsupportedError if a shard changes that the call could not check completely. `unverified` of the result has
        the names of these shards.

    The result has undo(), which restores the old state until commit(). In a with statement, an exception restores the
    old state; otherwise the end of the block commits.

    ArgumentError: state is not the first delta's base. CorruptError: a delta is damaged, or does not apply to the
    result of the one before. UnsupportedError: a delta adds, removes or replaces tensors. After an exception nothing
    has changed. Several names for one piece of memory (tied weights) change once.

    Torch tensors on a GPU must be contiguous. The call copies them to host memory, checks the hashes there, and keeps
    the copies until commit(). It copies changes back as positions and values."""
    if not isinstance(state, Mapping):
        raise TypeError("state is not a dict of arrays: apply_files() changes files")
    missing = [name for name in shards or {} if name not in state]
    if missing:
        raise ValueError(f"shards has {missing[0]!r}, which state has not")
    update = Update(state, deltas, u31(threads, "threads"), shards or {})
    if strict and update.unverified:
        raise UnsupportedError(
            f"tensor {update.unverified[0]!r} is a shard, and changes: no delta has a hash of it, or not of all of it"
        )
    if not stage:
        update.switch()
    return update


def arrays_of(whole: Storage, to: str, names: Optional[Container[str]] = None) -> dict[str, Any]:
    """Views of the tensors of a .safetensors file in memory, in the order of its header. names: copies of these
    alone."""
    end = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    try:
        entries = json.loads(whole[8:end].tobytes())
        found = {}
        for name, t in entries.items():
            if name == "__metadata__" or (names is not None and name not in names):
                continue
            d = WORD_TYPES[t["dtype"]]
            first, last = t["data_offsets"]
            elements = whole[end + first : end + last]
            if names is not None or elements.ctypes.data % d.storage.itemsize:
                elements = np.array(elements)
            elements = elements.view(d.storage.newbyteorder("<"))
            if not _LITTLE:
                elements = elements.astype(d.storage)
            shaped = _arrays.shaped(elements.view(d.storage), d, stored_shape(t["dtype"], t["shape"]))
            found[name] = _arrays.delivery(d, to)(shaped)
        return found
    except KeyError as e:
        raise ValueError(f"a tensor has the type {e}, which has no arrays: use apply_files()") from None
    except (AttributeError, TypeError) as e:
        raise CorruptError(f"the result is no .safetensors file: {e}") from None
