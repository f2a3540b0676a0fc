# SPDX-License-Identifier: BSD-3-Clause
""".pici files: named tensors in checksummed chunks, read by random access and written as a stream.

A damaged or hostile file raises an exception and does nothing worse. Several threads may use the same File or Writer;
they take turns.
"""
from __future__ import annotations

import ctypes
import math
import operator
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _abi, _arrays
from ._abi import lib
from ._dlpack import DLPackArray
from ._dtypes import BY_CODE, DType, named
from .codec import format_code
from .errors import ArgumentError, Fault, make

Path = Union[str, "os.PathLike[str]"]


def _path(path: Path) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path has no zero bytes")
    return name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


# ---- Reading


class Tensor:
    """A tensor of an open file. Its elements are read only when they are asked for.

    t[...] is indexed like an ndarray, by integers, slices and an ellipsis, and returns a new ndarray. Leading integers
    and the first slice after them decide which chunks are read; the other indices are applied in memory.
    numpy.asarray(t) and from_dlpack(t) read all elements.
    """

    def __init__(self, file: File, info: _abi.TensorInfo) -> None:
        self._file = file
        self._index: int = info.index
        self._d = BY_CODE[info.dtype]
        self.name = _text(ctypes.string_at(info.name, info.name_len))
        #: "f32", "bf16", ...
        self.dtype = self._d.name
        self.shape: tuple[int, ...] = tuple(info.shape[: info.rank])
        #: number of elements
        self.size: int = info.count
        #: elements of each chunk but the last, which has the rest
        self.chunk_elements: int = info.chunk_elements
        #: bytes of this tensor's records in the file
        self.stored_bytes: int = info.stored_bytes

    def __repr__(self) -> str:
        return f"<pici.Tensor {self.name!r}: {self.dtype} {self.shape}>"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._d.storage.itemsize

    @property
    def attrs(self) -> dict[str, bytes]:
        """The tensor's attributes."""
        return self._file._attrs(self._index)

    def read(self, first: int = 0, count: Optional[int] = None, *, to: str = "numpy") -> Any:
        """Read elements [first, first + count), or all from first on, as a one-dimensional array in row-major order."""
        first = _abi.u64(first, "first")
        count = max(0, self.size - first) if count is None else _abi.u64(count, "count")
        if first + count > self.size:
            raise ValueError(f"elements [{first}, {first + count}) of a tensor of {self.size}")
        deliver = _arrays.delivery(self._d, to)
        return deliver(self._elements(first, count))

    def _elements(self, first: int, count: int) -> _arrays.Storage:
        out = _arrays.empty(self._d, count, self._file.max_bytes)
        with self._file._reading() as r:
            self._file._check(lib.pici_reader_read_range(r, self._index, first, count, out.ctypes.data))
        return out

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        ellipsis = [i for i, k in enumerate(keys) if k is Ellipsis]
        if len(keys) - len(ellipsis) > self.ndim or len(ellipsis) > 1:
            raise IndexError(f"{len(keys)} indices for {self.ndim} dimensions")
        if ellipsis:
            keys[ellipsis[0] : ellipsis[0] + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        deliver = _arrays.delivery(self._d, "numpy")
        # Leading integers and the slice after them select a contiguous run of elements; the rest is applied in memory.
        first, shape = 0, self.shape
        rest: list[Any] = []
        for i, k in enumerate(keys):
            row = math.prod(shape[1:])
            if isinstance(k, slice):
                chosen = range(*k.indices(shape[0]))
                low, high = (min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1) if chosen else (0, 0)
                first, shape = first + low * row, (high - low, *shape[1:])
                rest = [slice(None, None, chosen.step), *keys[i + 1 :]]
                break
            at = self._position(k, shape[0])
            first, shape = first + at * row, shape[1:]
        for k in rest:
            if not isinstance(k, slice):
                self._position(k)
        run = deliver(self._elements(first, math.prod(shape))).reshape(shape)
        return run[(*rest, Ellipsis) if ellipsis else tuple(rest)]

    @staticmethod
    def _position(key: Any, length: Optional[int] = None) -> int:
        if isinstance(key, (bool, np.bool_)):
            raise TypeError("a tensor of a file is not indexed by a mask: read it first")
        try:
            at = operator.index(key)
        except TypeError:
            raise TypeError(f"a tensor of a file is not indexed by {type(key).__name__}: read it first") from None
        if length is not None and not -length <= at < length:
            raise IndexError(f"index {at} is out of bounds for a dimension of {length}")
        return at if length is None or at >= 0 else at + length

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a tensor of a file is read into new memory")
        array: np.ndarray[Any, Any] = self[...]
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **wanted: Any) -> Any:
        return DLPackArray(self._elements(0, self.size).reshape(self.shape), self._d).__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


class _Turn:
    """Gives a file's reader to one thread at a time. Raises if the file is closed."""

    def __init__(self, lock: threading.Lock, handle: ctypes.c_void_p) -> None:
        self._lock = lock
        self._handle = handle

    def __enter__(self) -> ctypes.c_void_p:
        self._lock.acquire()
        if not self._handle:
            self._lock.release()
            raise ValueError("the file is closed")
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class File(Mapping[str, Tensor]):
    """An open .pici file: a mapping from names to tensors, in the order of the file. Made by open()."""

    def __init__(self, path: Path, *, threads: int = 1, max_bytes: Optional[int] = _arrays.MAX_BYTES) -> None:
        opts = _abi.ReaderOpts(threads=_abi.u31(threads, "threads"))
        self.path = os.fspath(path)
        #: the most memory for the elements of one read; None: no limit
        self.max_bytes = max_bytes
        self._handle = ctypes.c_void_p()
        self._lock = threading.Lock()
        name = _path(path)
        ctypes.set_errno(0)
        status = lib.pici_reader_open_path(self._handle, name, opts)
        code = ctypes.get_errno()
        self._free = weakref.finalize(self, lib.pici_reader_close, ctypes.c_void_p(self._handle.value))
        self._free.atexit = False  # a thread may still be reading
        try:
            self._check(status, code)
        except BaseException:
            self.close()
            raise

    def _reading(self) -> _Turn:
        return _Turn(self._lock, self._handle)

    def _check(self, status: int, code: int = 0) -> None:
        """Raise the reader's error for a status. The caller holds the lock, or no other thread has the file yet."""
        if not status:
            return
        message = lib.pici_reader_error(self._handle).decode("utf-8", "replace") or lib.pici_strerror(status).decode()
        rule = re.search(r"\(([a-z-]+)\)$", message)
        fault = Fault(lib.pici_reader_error_offset(self._handle), None, rule[1]) if rule else None
        raise make(status, message, fault, code, str(self.path))

    def close(self) -> None:
        """Close the file. Arrays that were read stay valid; tensors can no longer be read."""
        with self._lock:
            self._handle.value = None
            self._free()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pici.File {self.path!r}{'' if self._handle else ', closed'}>"

    def __len__(self) -> int:
        n = ctypes.c_uint64()
        with self._reading() as r:
            self._check(lib.pici_reader_count(r, n))
        return n.value

    def __iter__(self) -> Iterator[str]:
        for i in range(len(self)):
            info = _abi.TensorInfo()
            with self._reading() as r:
                self._check(lib.pici_reader_tensor(r, i, info))
                name = ctypes.string_at(info.name, info.name_len)
            yield _text(name)

    def __getitem__(self, name: str) -> Tensor:
        if not isinstance(name, str):
            raise KeyError(name)
        info = _abi.TensorInfo()
        key = _bytes(name)
        with self._reading() as r:
            status = lib.pici_reader_find(r, key, len(key), info)
            if status == ArgumentError.status:
                raise KeyError(name)
            self._check(status)
            return Tensor(self, info)

    @property
    def attrs(self) -> dict[str, bytes]:
        """The attributes of the file itself."""
        return self._attrs(_abi.FILE)

    def _attrs(self, index: int) -> dict[str, bytes]:
        found = {}
        with self._reading() as r:
            n = ctypes.c_uint32()
            self._check(lib.pici_reader_attr_count(r, index, n))
            for i in range(n.value):
                a = _abi.Attr()
                self._check(lib.pici_reader_attr_at(r, index, i, a))
                found[_text(a.key)] = ctypes.string_at(a.value, a.len) if a.len else b""
        return found

    def verify(self) -> None:
        """Read the whole file and check every rule and every checksum."""
        with self._reading() as r:
            self._check(lib.pici_reader_verify(r))


def open(path: Path, *, threads: int = 1, max_bytes: Optional[int] = _arrays.MAX_BYTES) -> File:
    """Open a .pici file. Reads its header and index; elements are read when they are asked for.

    A delta that picitool diff writes is such a file too: its attrs have "delta.version", and its tensors are the XOR of
    both versions.

    threads: for reads that span chunks; default 1, 0 is one for each core.
    max_bytes: the most memory for the elements of one read, default 1 GiB; more raises LimitError. A short file can
    truthfully claim very many zeros. None lifts the limit.
    """
    return File(path, threads=threads, max_bytes=max_bytes)


# ---- Writing


class _Attrs(NamedTuple):
    array: Any  # for the library
    n: int
    kept: list[Any]  # what it points at


def _attributes(attrs: Optional[Mapping[str, bytes]]) -> _Attrs:
    given = [(_bytes(k), bytes(v)) for k, v in (attrs or {}).items()]
    array = (_abi.Attr * max(1, len(given)))()
    for a, (key, value) in zip(array, given):
        if b"\0" in key:
            raise ValueError("a key has no zero bytes")
        a.key, a.value, a.len = key, ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p), len(value)
    return _Attrs(array, len(given), given)


def _abandon(writer: ctypes.c_void_p, out: ctypes.c_void_p) -> None:
    lib.pici_writer_close(writer)
    lib.pici_outfile_abort(out)


class Writer:
    """A .pici file that is being written. It appears at its path, whole, at close(). If an exception leaves the with
    statement, it does not appear. Made by create()."""

    def __init__(
        self,
        path: Path,
        *,
        format: str = "auto",
        threads: int = 1,
        zstd: int = 0,
        chunk_elements: int = 1 << 20,
        attrs: Optional[Mapping[str, bytes]] = None,
        overwrite: bool = False,
    ) -> None:
        if not 1 <= chunk_elements <= _abi.CHUNK_MAX:
            raise ValueError(f"chunk_elements is {chunk_elements}, not from 1 to {_abi.CHUNK_MAX}")
        opts = _abi.WriterOpts(
            format=format_code(format),
            threads=_abi.u31(threads, "threads"),
            zstd_level=_abi.u31(zstd, "zstd"),
            chunk_elements=chunk_elements,
        )
        a = _attributes(attrs)
        name = _path(path)
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._current: Optional[DType] = None
        self._writer, out = ctypes.c_void_p(), ctypes.c_void_p()
        status = lib.pici_outfile_open(out, name, bool(overwrite))
        if status:
            self._raise(status, ctypes.get_errno())
        write = ctypes.cast(lib.pici_outfile_write, ctypes.c_void_p)
        status = lib.pici_writer_open(self._writer, write, out, a.array, a.n, opts)
        self._out = out
        self._free = weakref.finalize(self, _abandon, ctypes.c_void_p(self._writer.value), out)
        try:
            self._check(status)
        except BaseException:
            self.abort()
            raise

    def _raise(self, status: int, code: int) -> None:
        message = os.strerror(code) if code else lib.pici_strerror(status).decode()
        raise make(status, message, code=code, path=str(self.path))

    def _check(self, status: int) -> None:
        if status:
            raise make(status, lib.pici_writer_error(self._writer).decode("utf-8", "replace"))

    def _open(self) -> ctypes.c_void_p:
        if not self._writer:
            raise ValueError("the file is closed")
        return self._writer

    def begin(
        self, name: str, shape: tuple[int, ...], dtype: str, *, attrs: Optional[Mapping[str, bytes]] = None
    ) -> None:
        """Begin a tensor; append() adds its elements. The tensor before must be complete."""
        d = named(dtype)
        a = _attributes(attrs)
        key = _bytes(name)
        dims = [_abi.u64(n, "a dimension") for n in shape]
        if len(dims) > _abi.RANK_MAX:
            raise ValueError(f"{len(dims)} dimensions; there can be {_abi.RANK_MAX}")
        t = _abi.Tensor(
            name=key,
            name_len=len(key),
            dtype=d.code,
            rank=len(dims),
            shape=(ctypes.c_uint64 * max(1, len(dims)))(*dims),
            attrs=a.array,
            n_attrs=a.n,
        )
        with self._lock:
            self._check(lib.pici_writer_tensor(self._open(), t))
            self._current = d

    def append(self, array: Any, *, dtype: Optional[str] = None) -> None:
        """Append elements to the current tensor, any number of them, in row-major order."""
        elements, d = _arrays.readable(array, dtype)
        with self._lock:
            w = self._open()
            if d != self._current:
                raise TypeError(f"the elements are {d.name}, the tensor's {self._current and self._current.name}")
            self._check(lib.pici_writer_data(w, elements.ctypes.data, elements.nbytes))

    def add(
        self, name: str, array: Any, *, dtype: Optional[str] = None, attrs: Optional[Mapping[str, bytes]] = None
    ) -> None:
        """Write a whole tensor with the shape of array."""
        elements, d = _arrays.readable(array, dtype)
        self.begin(name, elements.shape, d.name, attrs=attrs)
        self.append(elements, dtype=d.name)

    def close(self) -> None:
        """Write the index and make the file appear at its path. If this raises, no file appears. A second call does
        nothing."""
        with self._lock:
            if not self._writer:
                return
            try:
                self._check(lib.pici_writer_finish(self._writer))
            except BaseException:
                self._abort()
                raise
            self._free.detach()
            lib.pici_writer_close(self._writer)
            self._writer.value = None
            status = lib.pici_outfile_commit(self._out)
            if status:
                self._raise(status, ctypes.get_errno())

    def abort(self) -> None:
        """Give up: remove what was written. Does nothing after close()."""
        with self._lock:
            self._abort()

    def _abort(self) -> None:
        self._writer.value = None
        self._free()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def create(
    path: Path,
    *,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    chunk_elements: int = 1 << 20,
    attrs: Optional[Mapping[str, bytes]] = None,
    overwrite: bool = False,
) -> Writer:
    """Begin to write a .pici file. Nothing appears at path before close().

    format: of the chunks; "auto" takes the shortest for each.
    threads: default 1; 0 is one for each core.
    zstd: a level of libzstd; a chunk is stored as a zstd frame if that is shorter than its block. 0: no zstd.
    chunk_elements: elements of a chunk, from 1 to 2^22.
    attrs: attributes of the file: keys and values to keep beside the tensors.
    overwrite: replace an existing file, at close(); else FileExistsError.
    """
    return Writer(
        path,
        format=format,
        threads=threads,
        zstd=zstd,
        chunk_elements=chunk_elements,
        attrs=attrs,
        overwrite=overwrite,
    )


def save(path: Path, tensors: Mapping[str, Any], **options: Any) -> None:
    """Write arrays to a .pici file, by name. options: as for create()."""
    with create(path, **options) as w:
        for name, array in tensors.items():
            w.add(name, array)
