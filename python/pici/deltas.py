# SPDX-License-Identifier: BSD-3-Clause
"""Deltas of whole files, and of dicts of arrays: what changed between two steps of training, as a .pici file.

    pici.diff_files("step1.safetensors", "step2.safetensors", "d2.pici")
    pici.apply_files("step1.safetensors", "d2.pici", out="same-as-step2.safetensors")

    pici.save_delta("d2.pici", old, new)            # dicts of arrays, as model.state_dict()
    weights = pici.load_delta(old, "d2.pici")

A state is a .safetensors, .npy or raw file, or a dict of arrays; a dict counts as a .safetensors file, so a delta of
dicts applies to files, and the other way round. Tensors are matched by name. Those that were added or reshaped are
stored whole. Hashes of every tensor tell whether a delta belongs to a base, and whether the result is right. A delta
leads one way. picitool diff and apply make and read the same files (formats/delta.md).

What help(pici.codec) says of arrays, threads, max_bytes and `to` holds here too. Arrays must not change during a call.
"""
from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Optional, Union, cast, overload

import numpy as np

from . import _abi, _arrays, _looks
from ._abi import lib
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import ALL, BOOL, COMPLEX, DType, DTypeLike, named
from ._streams import Path, Source, _Calls, encoded
from .codec import format_code
from .errors import ArgumentError, CorruptError, IoError, make

if TYPE_CHECKING:
    import torch

#: a file's path, or arrays by name
State = Union[Path, Mapping[str, Any]]

_WHY = 512  # PICI_WHY_BYTES
_LITTLE = sys.byteorder == "little"
SAFETENSORS = 3  # PICI_STATE_SAFETENSORS
_CHOICES: dict[Optional[bool], int] = {None: 0, True: 1, False: 2}  # enum pici_delta_choice

# Types in the header of a .safetensors file.
_WORDS: dict[DType, str] = {d: d.name.upper() for d in ALL}
_WORDS.update({d: w for d in ALL for n, w in (("f8e4m3", "F8_E4M3"), ("f8e5m2", "F8_E5M2")) if d.name == n})
_WORDS.update({BOOL: "BOOL", COMPLEX[0]: "C64"})
_WORDS.update(
    {named("f8e8m0"): "F8_E8M0", named("f8e4m3fnuz"): "F8_E4M3FNUZ", named("f8e5m2fnuz"): "F8_E5M2FNUZ"},
)
WORD_TYPES = {word: d for d, word in _WORDS.items()}
BYTES = WORD_TYPES["U8"]


def check(status: int, why: Any, path: str = "") -> None:
    if status:
        code = ctypes.get_errno() if status == -41 else 0
        text = why.value.decode("utf-8", "replace") or lib.pici_strerror(status).decode()
        raise make(status, text, code=code, path=path)


def new_why() -> Any:
    ctypes.set_errno(0)
    return ctypes.create_string_buffer(_WHY)


class Held:
    """A state that is open, and what it points at. close() frees it."""

    def __init__(self, state: State, code: int = 0, kind: int = 0) -> None:
        """code: the dtype of a raw file. kind: enum pici_state_type; 0: by the file's name."""
        self.handle = ctypes.c_void_p()
        self._kept: list[Storage] = []
        self._head = b""
        self._path = None if isinstance(state, Mapping) else os.fsdecode(state)
        if isinstance(state, Mapping):
            self._arrays(state)
            return
        why = new_why()
        status = lib.pici_state_open(self.handle, encoded(state), kind, code, why)
        found = _looks.words(_looks.first_of(self._path or "")) if status and status != IoError.status else None
        if found and not (kind and _looks.is_safetensors(_looks.first_of(self._path or ""))):
            raise make(status, f"{self._path} is {found}")
        check(status, why, os.fsdecode(state))

    def _arrays(self, state: Mapping[str, Any]) -> None:
        taken = {name: _taken(name, x) for name, x in state.items()}
        # In the order in which safetensors writes them, so that each begins at a multiple of its width.
        order = sorted(taken, key=lambda name: (-taken[name][1].storage.itemsize, name))
        end, places = 0, {}
        for name in order:
            places[name] = [end, end + taken[name][0].nbytes]
            end = places[name][1]
        text = json.dumps(
            {
                name: {"dtype": _WORDS[d], "shape": list(x.shape if d.parts == 1 else x.shape[:-1])}
                | {"data_offsets": places[name]}
                for name, (x, d) in taken.items()
            },
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()
        self._head = head = (len(text) + -len(text) % 8).to_bytes(8, "little") + text + b" " * (-len(text) % 8)
        status = lib.pici_state_new(self.handle, b"the arrays", SAFETENSORS, head, len(head), None, None)
        for name in order:
            status = status or self._add(name, *taken[name])
        if status:
            self.close()
            raise make(status, lib.pici_strerror(status).decode())

    def _add(self, name: str, x: Storage, d: DType) -> int:
        key, word = name.encode(), _WORDS[d].encode()
        attrs = (_abi.Attr * 1)()
        attrs[0].key, attrs[0].len = b"source.dtype", len(word)
        attrs[0].value = ctypes.cast(ctypes.c_char_p(word), ctypes.c_void_p)
        t = _abi.Tensor(
            name=key,
            name_len=len(key),
            dtype=d.code,
            rank=x.ndim,
            shape=(ctypes.c_uint64 * max(1, x.ndim))(*x.shape),
            attrs=attrs,
            n_attrs=1,
        )
        self._kept.append(x)
        return int(lib.pici_state_add(self.handle, t, x.ctypes.data, 0))

    def write(self, sink: Memory) -> None:
        """Write the bytes of the state's file."""
        if self._path is not None:
            data = np.fromfile(self._path, np.uint8)
            sink.write(data.ctypes.data, data.size)
            return
        sink.write(ctypes.cast(ctypes.c_char_p(self._head), ctypes.c_void_p).value or 0, len(self._head))
        for x in self._kept:
            sink.write(x.ctypes.data, x.nbytes)

    def file_bytes(self) -> int:
        """The length of the state's file."""
        if self._path is not None:
            return os.stat(self._path).st_size
        return len(self._head) + sum(x.nbytes for x in self._kept)

    def close(self) -> None:
        lib.pici_state_free(self.handle)
        self.handle.value = None
        self._kept.clear()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raw_code(state: State, dtype: Optional[DTypeLike]) -> int:
    """The dtype of a raw file's elements, which must be known; 0 if the state is no raw file."""
    if isinstance(state, Mapping) or os.fsdecode(state).lower().endswith((".npy", ".safetensors")):
        return 0
    if dtype is None:
        raise ValueError(
            f"{os.fsdecode(state)} is taken as raw elements: pass dtype=, their type, or name it .safetensors or .npy"
        )
    return named(dtype).code


def diff_opts(small: Optional[bool], format: str, threads: int, zstd: int) -> _abi.DiffOpts:
    if small not in _CHOICES:
        raise ValueError(f"small={small!r}: pass True, False or None")
    return _abi.DiffOpts(
        choice=_CHOICES[small],
        format=format_code(format),
        threads=_abi.u31(threads, "threads"),
        zstd_level=_abi.u31(zstd, "zstd"),
    )


def _taken(name: Any, x: Any) -> tuple[Storage, DType]:
    """An array as the bytes that its .safetensors file would have."""
    if not isinstance(name, str):
        raise TypeError(f"a tensor's name is a str, not {type(name).__name__}: pass str({name!r})")
    if name == "__metadata__":
        raise ValueError("'__metadata__' is no name of a tensor in a .safetensors file: rename it")
    try:
        elements, d = _arrays.readable(x)
    except (TypeError, ValueError, BufferError) as e:
        raise type(e)(f"{name!r}: {e}") from None
    if d not in _WORDS:
        how = "its parts as two tensors" if d.parts != 1 else "its bytes, as x.view(torch.uint8)"
        raise TypeError(f"{name!r}: a .safetensors file has no {d.name}: store {how}")
    if elements.ndim > _abi.RANK_MAX:
        raise ValueError(f"{name!r}: {elements.ndim} dimensions; there can be {_abi.RANK_MAX}: reshape the array")
    if _LITTLE:
        return elements, d
    return elements.astype(elements.dtype.newbyteorder("<")), d


class Out:
    """A file that appears at its path at commit(), or not at all."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        self.path = os.fsdecode(path)
        self.handle = ctypes.c_void_p()
        self.check(lib.pici_outfile_open(self.handle, encoded(path), bool(overwrite)))

    def check(self, status: int) -> None:
        if status:
            code = ctypes.get_errno()
            message = os.strerror(code) if code else lib.pici_strerror(status).decode()
            raise make(status, message, code=code, path=self.path)

    def commit(self) -> None:
        handle, self.handle = self.handle, ctypes.c_void_p()
        ctypes.set_errno(0)
        self.check(lib.pici_outfile_commit(handle))

    def __enter__(self) -> Out:
        return self

    def __exit__(self, *_: object) -> None:
        lib.pici_outfile_abort(self.handle)
        self.handle.value = None


WRITE_FILE = ctypes.cast(lib.pici_outfile_write, ctypes.c_void_p)


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
) -> None:
    """Write the delta that leads from one state to another to the path delta.

    base, new: files, both .safetensors, .npy or raw; or dicts of arrays.
    small: store f32, f16 and bf16 as small deltas, which are several times shorter after a step of training and take
        more time. None: where they are at least an eighth shorter, as the first elements that changed tell.
    format, zstd: of what is not a small delta; as for create().
    dtype: of the elements of raw files.
    overwrite: replace an existing file; else FileExistsError.
    """
    opts = diff_opts(small, format, threads, zstd)
    with ExitStack() as stack:
        old = stack.enter_context(Held(base, raw_code(base, dtype)))
        after = stack.enter_context(Held(new, raw_code(new, dtype)))
        kinds = [lib.pici_state_get_type(s.handle) for s in (old, after)]
        if kinds[0] != kinds[1]:
            raise ValueError("base and new are of different types: pass two files of one type, or two dicts")
        out = stack.enter_context(Out(delta, overwrite))
        why = new_why()
        check(lib.pici_diff_states(WRITE_FILE, out.handle, old.handle, after.handle, opts, why), why, out.path)
        out.commit()


def save_delta(
    path: Path,
    base: State,
    new: State,
    *,
    small: Optional[bool] = None,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    overwrite: bool = False,
) -> None:
    """Write the delta between two dicts of arrays: diff_files(base, new, path)."""
    diff_files(base, new, path, small=small, format=format, threads=threads, zstd=zstd, overwrite=overwrite)


class _Resting:
    """A file that is open only while it is read, as a file object for Source."""

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
    """Deltas in a row. As many are kept open as the process has descriptors to spare."""

    def __init__(self, deltas: tuple[Path, ...], threads: int) -> None:
        self.handle = ctypes.c_void_p()
        self._readers: list[ctypes.c_void_p] = []
        self._sources: list[Source] = []
        if not deltas:
            raise TypeError("there is no delta: pass the paths of one or several, in order")
        try:
            self._open(deltas, threads)
        except BaseException:
            self.close()
            raise

    def _open(self, deltas: tuple[Path, ...], threads: int) -> None:
        status = lib.pici_deltas_new(self.handle)
        if status:
            raise make(status, lib.pici_strerror(status).decode())
        opts = _abi.ReaderOpts(threads=threads)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        kept = 200 if most == resource.RLIM_INFINITY else min(200, most // 4)
        for i, path in enumerate(deltas):
            reader, why = ctypes.c_void_p(), new_why()
            source = Source(path if i < kept else cast(BinaryIO, _Resting(path)))
            self._sources.append(source)
            status = source.open(reader, opts)
            self._readers.append(reader)
            name = os.fsdecode(path)
            if status:
                code = ctypes.get_errno() if status == -41 else 0
                text = os.strerror(code) if code else lib.pici_reader_error(reader).decode("utf-8", "replace")
                raise make(status, text or lib.pici_strerror(status).decode(), code=code, path=name)
            check(lib.pici_deltas_add(self.handle, reader, os.fsencode(name), why), why, name)
        self.info = _abi.DeltasInfo()
        status = lib.pici_deltas_get_info(self.handle, self.info)
        if status:
            raise make(status, lib.pici_reader_error(self._readers[-1]).decode("utf-8", "replace"))

    def close(self) -> None:
        lib.pici_deltas_free(self.handle)
        self.handle.value = None
        for reader in self._readers:
            lib.pici_reader_close(reader)
        self._readers.clear()
        self._sources.clear()

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def base(self, state: State) -> Held:
        """The base, as a file of the type that the first delta names."""
        return Held(state, self.info.dtype, self.info.type)

    def to_file(self, out: Out, base: Held, threads: int) -> None:
        why = new_why()
        opts = _abi.ApplyOpts(threads=threads)
        check(lib.pici_apply_deltas(WRITE_FILE, out.handle, base.handle, self.handle, opts, why), why, out.path)

    def to_memory(self, base: Held, threads: int, most: Optional[int]) -> Storage:
        """The bytes of the result. most: LimitError if there are more; None: no limit."""
        whole = _arrays.empty(BYTES, self.info.bytes, most, threads)
        sink, why = Memory(whole), new_why()
        opts = _abi.ApplyOpts(threads=threads)
        status = lib.pici_apply_deltas(_abi.WRITE, sink.context, base.handle, self.handle, opts, why)
        sink.reraise()
        check(status, why)
        return whole


def apply_files(
    base: State, *deltas: Path, out: Optional[Path] = None, threads: int = 1, overwrite: bool = False
) -> None:
    """Write the state that the deltas, in order, lead to from base.

    out: the path of the result; None: the file base is replaced, in one step. If it is the result already, it stays.
    overwrite: replace an existing file out; else FileExistsError.

    ArgumentError: base is not what the first delta was made from. CorruptError: a delta is damaged, or is not one of
    the result of the delta before. Nothing is changed then."""
    n = _abi.u31(threads, "threads")
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
            already, why = ctypes.c_int(), new_why()
            if out is None and not lib.pici_deltas_is_result(row.handle, old.handle, already, why) and already.value:
                return
            raise
        file.commit()


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["numpy", "bits"] = ..., threads: int = ..., max_bytes: Limit = ...
) -> dict[str, Storage]:
    ...


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["torch"], threads: int = ..., max_bytes: Limit = ...
) -> dict[str, torch.Tensor]:
    ...


@overload
def load_delta(
    base: State, *deltas: Path, to: Literal["dlpack"], threads: int = ..., max_bytes: Limit = ...
) -> dict[str, DLPackArray]:
    ...


def load_delta(
    base: State, *deltas: Path, to: str = "numpy", threads: int = 1, max_bytes: Limit = "auto"
) -> dict[str, Any]:
    """The state that the deltas, in order, lead to from base, as a dict of new arrays: of a .safetensors file or of
    arrays. What it raises: see apply_files(). The arrays share one piece of memory."""
    n = _abi.u31(threads, "threads")
    with Row(deltas, n) as row, row.base(base) as old:
        if row.info.type != SAFETENSORS:
            raise ValueError("the deltas are not of .safetensors files or dicts: use apply_files()")
        stored = sum(os.path.getsize(path) for path in deltas)
        if not isinstance(base, Mapping):
            stored += os.path.getsize(base)
        whole = row.to_memory(old, n, _arrays.limit(max_bytes, stored))
    return arrays_of(whole, to)


class Memory(_Calls):
    """Memory that the library writes to, from its beginning to its end."""

    def __init__(self, room: Storage) -> None:
        super().__init__(None)
        self._room = room
        #: bytes written
        self.at = 0

    def write(self, p: int, n: int) -> None:
        """Take n bytes at p. Called by _codec."""
        if n > self._room.size - self.at:
            raise CorruptError("the result is longer than the last delta states")
        ctypes.memmove(self._room.ctypes.data + self.at, p, n)
        self.at += n


def arrays_of(whole: Storage, to: str) -> dict[str, Any]:
    """The tensors of a .safetensors file in memory, as views of it, in the order of its header."""
    end = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    try:
        entries = json.loads(whole[8:end].tobytes())
        found = {}
        for name, t in entries.items():
            if name == "__metadata__":
                continue
            d = WORD_TYPES[t["dtype"]]
            first, last = t["data_offsets"]
            elements = whole[end + first : end + last]
            if elements.ctypes.data % d.storage.itemsize:
                elements = elements.copy()
            elements = elements.view(d.storage.newbyteorder("<"))
            if not _LITTLE:
                elements = elements.astype(d.storage)
            shaped = _arrays.shaped(elements.view(d.storage), d, tuple(t["shape"]))
            found[name] = _arrays.delivery(d, to)(shaped)
        return found
    except KeyError as e:
        raise ValueError(f"a tensor has the type {e}, of which there are no arrays: use apply_files()") from None
    except (AttributeError, TypeError) as e:
        raise CorruptError(f"the result is no .safetensors file: {e}") from None
