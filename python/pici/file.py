# SPDX-License-Identifier: BSD-3-Clause
""".pici files: named tensors in checksummed chunks, read by random access and written as a stream.

A file is a path or a binary file object. Reading a file object covers its position to its end; do not use it otherwise
meanwhile. If it cannot seek (a pipe, a socket's makefile), it is first read into memory. File objects are never closed.

A damaged or hostile file raises an exception and does no harm. Several threads may use the same File or Writer; they
take turns.

bool is stored as u8, and complex numbers as pairs of floats. A tensor's attribute "source.dtype" names the original
type as NumPy spells it: "|b1", "<c8", "<c16".
"""
from __future__ import annotations

import difflib
import itertools
import math
import operator
import os
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, NoReturn, Optional, TypeVar, Union, overload

import numpy as np

from . import _arrays, _codec, _looks, _strided
from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._dtypes import BOOL, BY_CODE, COMPLEX, OPAQUE, DType, DTypeLike, named, of_literal
from ._kwargs import Pack, Zeros, no_pickle
from ._ranges import u31, u64
from ._streams import Path, Sink, Source, display, encoded, in_turn, is_path
from .codec import format_code, pack_code, zeros_code
from .errors import ArgumentError, CorruptError, Error, Fault, IoError, LimitError, NoTensorError, make

if TYPE_CHECKING:
    import torch

Default = TypeVar("Default")
Result = TypeVar("Result")

_HINTS = 1000  # names; suggest similar names only in files with at most this many
_KEY_DTYPE = "source.dtype"  # an attribute of tensors, as picitool writes it
# Values of "source.dtype" for tensors of u8 or of pairs of floats, from NumPy (without a byte order), safetensors or
# torch.
_SPELLED = {
    **dict.fromkeys((b"b1", b"?", b"BOOL", b"bool"), BOOL),
    **dict.fromkeys((b"c8", b"C64", b"complex64"), COMPLEX[0]),
    **dict.fromkeys((b"c16", b"C128", b"complex128"), COMPLEX[1]),
    **{(d.narrow or d.name).encode(): d for d in OPAQUE},
    **{
        word: named(name)
        for word, name in (
            (b"F8_E8M0", "f8e8m0"),
            (b"F8_E4M3FNUZ", "f8e4m3fnuz"),
            (b"F8_E5M2FNUZ", "f8e5m2fnuz"),
            (b"F4", "f4e2m1x2"),
            (b"F6_E2M3", "f6e2m3"),
            (b"F6_E3M2", "f6e3m2"),
        )
    },
}
#: and its values for types that only NumPy has; source.npy describes these
_ONLY_NUMPY = re.compile(rb"\[|[<>|=]?(?:[MmUSV]|[fc]\d\d)")
_WRITTEN = {
    BOOL.name: b"|b1",
    COMPLEX[0].name: b"<c8",
    COMPLEX[1].name: b"<c16",
    **{d.name: (d.narrow or d.name).encode() for d in OPAQUE},
}


def spelled(d: DType) -> bytes:
    """The attribute source.dtype of a tensor of d; empty if its elements need none."""
    return _WRITTEN.get(d.name, b"")


def encoded_name(name: str, what: str = "a tensor's name") -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {type(name).__name__}: pass str({name!r})")
    return name.encode("utf-8", "surrogateescape")


# ---- Reading


class _Found(NamedTuple):
    """The result of _codec.reader_find() for a tensor."""

    number: int  # of the stored tensor
    name: str
    dtype: int
    shape: tuple[int, ...]
    elements: int
    chunk_elements: int
    stored_bytes: int
    stored_count: int  # elements of the stored tensor,
    stored_dtype: int  # and their dtype
    spelled: bytes  # the attribute source.dtype; b"" if there is none
    order: bytes  # source.order
    view: Optional[_strided.View]


def _found(members: Optional[tuple[Any, ...]]) -> Optional[_Found]:
    if members is None:
        return None
    *rest, view = members
    return _Found._make((*rest, None if view is None else _strided.View._make(view)))


class Tensor:
    """A tensor of an open file. It reads elements only on demand.

    Index t[...] like an ndarray, by integers, slices and an ellipsis; the result is a new ndarray. Leading integers and
    the first slice after them select the chunks to read; the other indices apply in memory. numpy.asarray(t) and
    from_dlpack(t) read all elements.

    Views that the file lists (formats/attributes.md, "Views") are tensors too: a second name of another tensor, a slice
    of it, or its elements in another order.
    """

    def __init__(self, file: File, found: _Found) -> None:
        view = found.view
        self._file = file
        self._index = found.number
        self._view = view
        self._d = BY_CODE[found.dtype]
        shape, spelled = found.shape, found.spelled
        d = _SPELLED.get(spelled[1:] if spelled[:1] in (b"<", b">", b"|", b"=") else spelled, self._d)
        if d.code == self._d.code and (d.parts == 1 or shape[-1:] == (d.parts,)):
            self._d = d
        if view is None and _ONLY_NUMPY.match(spelled):
            d = of_literal(file._attrs(found.number).get("source.npy", b""), self._d) or self._d
            self._d = d if d.parts == 1 or shape[-1:] == (d.parts,) else self._d
        if view is not None and self._d.parts != 1 and not _strided.whole(view, self._d.parts):
            self._d = BY_CODE[found.dtype]
        self._spelled = spelled
        self._storage = found.stored_count, found.stored_dtype
        self.name = found.name
        #: "f32", "bf16", ..., "bool", "complex64", "complex128", and names of types without arithmetic: "complex32",
        #: "f8e8m0", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1x2", "f6e2m3", "f6e3m2"; the str of types that only NumPy has
        self.dtype = self._d.name
        self.shape: tuple[int, ...] = shape if self._d.parts == 1 else shape[:-1]
        #: number of elements
        self.size: int = found.elements // self._d.parts
        #: stored elements of each chunk but the last, which has the rest
        self.chunk_elements: int = found.chunk_elements
        #: bytes of this tensor's records in the file; for a view, the bytes of its storage
        self.stored_bytes: int = found.stored_bytes
        #: "C", or "F" if the first index varies fastest in the file: picitool keeps the order of a .npy file
        self.order: Literal["C", "F"] = "F" if found.order == b"F" else "C"

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "pass the path and the name, and open the file again in the worker; or pass tensor[...]")

    def __repr__(self) -> str:
        return f"<pici.Tensor {self.name!r}: {self.dtype} {self.shape}>"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._d.itemsize

    @property
    def attrs(self) -> dict[str, bytes]:
        """The tensor's attributes. A view has only its type."""
        return self._file._attrs(self._index) if self._view is None else {_KEY_DTYPE: self._spelled}

    @overload
    def read(
        self, first: Optional[int] = ..., count: Optional[int] = ..., *, to: Literal["numpy", "bits"] = ...
    ) -> Storage:
        ...

    @overload
    def read(self, first: Optional[int] = ..., count: Optional[int] = ..., *, to: Literal["torch"]) -> torch.Tensor:
        ...

    @overload
    def read(self, first: Optional[int] = ..., count: Optional[int] = ..., *, to: Literal["dlpack"]) -> DLPackArray:
        ...

    def read(self, first: Optional[int] = None, count: Optional[int] = None, *, to: str = "numpy") -> Any:
        """Read the tensor, in its shape. With first or count: elements [first, first + count), or all from first on, as
        a one-dimensional array, in the order of the file (row-major unless `order` is "F"). For types that only NumPy
        has, `to` other than "numpy" reads the stored integers or bytes."""
        deliver = _arrays.delivery(self._d, to)
        if first is None and count is None:
            if self._view is not None:
                return self._of(self._needed(), to)
            return deliver(self._elements(0, self.size, self.shape, self.order))
        first = u64(0 if first is None else first, "first")
        count = max(0, self.size - first) if count is None else u64(count, "count")
        if first + count > self.size:
            raise ValueError(f"elements [{first}, {first + count}) of a tensor of {self.size}: its size is the end")
        return deliver(self._elements(first, count, (count,)))

    def _elements(
        self, first: int, count: int, shape: tuple[int, ...], order: Literal["C", "F"] = "C"
    ) -> _arrays.Storage:
        d = self._d
        at = 0
        if "folder.same" in self.attrs:
            if self.shape != (0,) or d.name != "u8":
                raise CorruptError(f"{self.name!r} is a malformed reference")
            raise ArgumentError(
                f"{self.name!r} of {self._file.path} refers to another tensor of the folder that the file is in: "
                "pici.load(folder) reads it"
            )
        if self._view is not None:
            if not _strided.is_run(self._view):
                run = _strided.run(self._view, d, first, count, self._needed(), self._file.max_bytes)
                return _arrays.shaped(run, d, shape, order)
            at = self._view.offset if count else 0  # without elements it may begin beyond the storage
        out = _arrays.empty(d, d.parts * count, self._file.max_bytes, self._file.threads)
        self._file._read_range(self._index, at + d.parts * first, d.parts * count, out)
        return _arrays.shaped(out, d, shape, order)

    @property
    def _key(self) -> tuple[int, int]:
        """The stored tensor that has the elements."""
        return id(self._file), self._index

    @property
    def _is_copied(self) -> bool:
        """Whether reading copies elements of the storage."""
        v = self._view
        return v is not None and bool(v.conjugate or v.negative or self._d.name == "complex32")

    def _storage_bytes(self, whole: bool) -> int:
        """Bytes of the stored elements that are read."""
        count, code = self._storage
        if not whole and self._view is not None:
            count = self._view.stored_count
        return count * BY_CODE[code].itemsize

    def _whole(self) -> _strided.Stored:
        """All elements of the stored tensor."""
        count, code = self._storage
        return self._file._stored(self._index, code, 0, count)

    def _needed(self) -> _strided.Stored:
        """The elements of its storage that a view needs."""
        v = self._view
        assert v is not None
        return self._file._stored(self._index, v.tensor_dtype, v.stored_first, v.stored_count)

    def _of(self, stored: _strided.Stored, to: str) -> Any:
        """The elements, as an array over the memory of a storage that has been read."""
        return _strided.deliver(self._view, self._d, self.shape, self.order, stored, to, self._file.max_bytes)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self._indexed(key, _arrays.delivery(self._d, "numpy"))

    def part(self, key: Any, to: str) -> Any:
        """t[key], in the type that `to` names."""
        if to == "numpy":
            return self[key]
        deliver = _arrays.delivery(self._d, to)
        return deliver(np.asarray(self._indexed(key, lambda elements: elements), order="C"))

    def _indexed(self, key: Any, deliver: Callable[[Storage], Any]) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        ellipsis = [i for i, k in enumerate(keys) if k is Ellipsis]
        if len(keys) - len(ellipsis) > self.ndim or len(ellipsis) > 1:
            raise IndexError(f"{len(keys)} indices for {self.ndim} dimensions")
        if ellipsis:
            keys[ellipsis[0] : ellipsis[0] + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        if self.order == "F":
            for k in keys:
                if not isinstance(k, slice):
                    self._position(k)
            whole = deliver(self._elements(0, self.size, self.shape, "F"))
            return whole[(*keys, Ellipsis) if ellipsis else tuple(keys)]
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
        run = deliver(self._elements(first, math.prod(shape), shape))
        return run[(*rest, Ellipsis) if ellipsis else tuple(rest)]

    @staticmethod
    def _position(key: Any, length: Optional[int] = None) -> int:
        if isinstance(key, (bool, np.bool_)):
            raise TypeError("a tensor of a file is not indexed by a mask: index t[...], which reads it")
        try:
            at = operator.index(key)
        except TypeError:
            raise TypeError(
                f"a tensor of a file is not indexed by {type(key).__name__}: index t[...], which reads it"
            ) from None
        if length is not None and not -length <= at < length:
            raise IndexError(f"index {at} is out of bounds for a dimension of {length}")
        return at if length is None or at >= 0 else at + length

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a tensor of a file is read into new memory: pass copy=None or True")
        array: np.ndarray[Any, Any] = self[...]
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **wanted: Any) -> Any:
        deliver = _arrays.delivery(self._d, "dlpack")
        array = self._elements(0, self.size, self.shape, self.order)
        return deliver(np.asarray(array, order="C")).__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


class File(Mapping[str, Tensor]):
    """An open .pici file: a mapping from names to tensors, in the order of the file. Made by open()."""

    def __init__(self, path: Union[Path, BinaryIO], *, threads: int = 1, max_bytes: Limit = "auto") -> None:
        #: as given to open()
        self.threads = u31(threads, "threads")
        self.path = display(path)
        self._handle: Optional[_codec.Reader] = None
        self._lock = threading.RLock()
        self._source = Source(path)
        self._names: Optional[list[str]] = None
        opened = self._source.open(self.threads)
        if isinstance(opened, _codec.Failed):
            raise self._failure(opened, opened.code)
        self._handle = opened
        #: the most memory for the elements of one read; None: no limit
        self.max_bytes = _arrays.limit(max_bytes, self._source.bytes)

    def _reader(self) -> _codec.Reader:
        """The open reader. The caller holds the lock, so that only one thread uses it."""
        if self._handle is None:
            raise ValueError("the file is closed: read its tensors inside the with statement, or open it again")
        return self._handle

    def _failure(self, failed: _codec.Failed, code: int = 0) -> Error:
        """The exception for a call that failed. The caller holds the lock, or no other thread has the file yet."""
        if failed.status == IoError.status:
            self._source.reraise()
        message = failed.words
        rule = re.search(r"\(([a-z-]+)\)$", message)
        if failed.status == CorruptError.status and self._source.path is not None:
            kind = _looks.words(_looks.first_of(self.path))
            message = f"{self.path} is {kind}" if kind else message
        if message == "not a regular file":
            kind = "a folder: pici.load() reads one of tensors" if os.path.isdir(self.path) else message
            message = f"{self.path} is {kind}"
        fault = Fault(failed.offset, None, rule[1]) if rule else None
        return make(failed.status, message, fault, code, self.path)

    def _got(self, result: Union[Result, _codec.Failed]) -> Result:
        """The result of a call, unless it failed. The caller holds the lock."""
        if isinstance(result, _codec.Failed):
            raise self._failure(result)
        return result

    @in_turn
    def close(self) -> None:
        """Close the file. Arrays that were read stay valid; tensors can no longer be read."""
        reader, self._handle = self._handle, None
        if reader is not None:
            _codec.close(reader)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "open it again in the worker, by its path")

    def __repr__(self) -> str:
        return f"<pici.File {self.path!r}{', closed' if self._handle is None else ''}>"

    def __len__(self) -> int:
        return len(self._listed())

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed())

    @in_turn
    def _listed(self) -> list[str]:
        """The names of all tensors; views follow their storage."""
        reader = self._reader()
        if self._names is None:
            self._names = self._got(_codec.reader_names(reader))
        return self._names

    def _stored(self, index: int, code: int, first: int, count: int) -> _strided.Stored:
        """Elements of a tensor as they are stored."""
        d = BY_CODE[code]
        out = _arrays.empty(d, count, self.max_bytes, self.threads)
        self._read_range(index, first, count, out)
        return _strided.Stored(out, first)

    @in_turn
    def _read_range(self, index: int, first: int, count: int, out: Storage) -> None:
        """Read values of a tensor to an array."""
        self._got(_codec.reader_read(self._reader(), index, first, count, out))

    @in_turn
    def _find(self, name: object) -> Optional[_Found]:
        """The description of a tensor, by name."""
        reader = self._reader()
        return _found(self._got(_codec.reader_find(reader, name)) if isinstance(name, str) else None)

    @in_turn
    def _find_stored(self, index: int) -> Optional[_Found]:
        return _found(self._got(_codec.reader_stored(self._reader(), index)))

    def _all_stored(self) -> Iterator[Tensor]:
        """The stored tensors, in the order of the file, including those that the original does not have, but without
        views."""
        for index in itertools.count():
            found = self._find_stored(index)
            if found is None:
                return
            yield Tensor(self, found)

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def __getitem__(self, name: str) -> Tensor:
        found = self.get(name)
        if found is None:
            raise self._no_tensor(name)
        return found

    @overload
    def get(self, name: str) -> Optional[Tensor]:
        ...

    @overload
    def get(self, name: str, default: Union[Tensor, Default]) -> Union[Tensor, Default]:
        ...

    def get(self, name: str, default: Any = None) -> Any:
        """The tensor with this name; default if there is none."""
        found = self._find(name)
        return default if found is None else Tensor(self, found)

    def _no_tensor(self, name: object) -> NoTensorError:
        near = []
        if isinstance(name, str) and len(self) <= _HINTS:  # the time grows with the number of names
            near = difflib.get_close_matches(name, list(self), 1)
        hint = f"did you mean {near[0]!r}?" if near else "list(file) has all names"
        return NoTensorError(f"no tensor {name!r} in {self.path}: {hint}")

    @property
    def attrs(self) -> dict[str, bytes]:
        """The attributes of the file itself."""
        return self._attrs(None)

    @in_turn
    def _attrs(self, index: Optional[int]) -> dict[str, bytes]:
        """The attributes of a tensor, or of the file."""
        return self._got(_codec.reader_attrs(self._reader(), index))

    @in_turn
    def verify(self) -> None:
        """Read the whole file and check every rule and every checksum."""
        self._got(_codec.reader_verify(self._reader()))


def open(path: Union[Path, BinaryIO], *, threads: int = 1, max_bytes: Limit = "auto") -> File:
    """Open a .pici file: a path or a binary file object. Reads its header and index, and elements only on demand.

    A delta of picitool diff is a .pici file too: its attrs have "delta.version", and its tensors are the XOR of both
    versions.

    threads: for reads that span chunks; default 1, 0 is one for each core.
    max_bytes: the most memory for the elements of one read; more raises LimitError. A short valid file may hold very
        many zeros. "auto": 1 GiB or 1024 times the file, whichever is more. None: no limit.
    """
    return File(path, threads=threads, max_bytes=max_bytes)


def loaded(tensors: Iterable[Tensor], to: str, most: Optional[int]) -> dict[str, Any]:
    """All elements of tensors, by name. Views of one tensor of a file share its memory. LimitError if they take more
    than `most` bytes; None: no limit."""
    tensors = list(tensors)
    users = Counter(t._key for t in tensors)
    sizes = {t._key: t._storage_bytes(users[t._key] > 1) for t in tensors}
    need = sum(sizes.values()) + sum(t.nbytes for t in tensors if t._is_copied)
    if most is not None and need > most:
        raise LimitError(
            f"the tensors take {need} bytes, more than max_bytes allows, {most}: pass max_bytes={need}, or None for no "
            "limit, if you trust the source"
        )
    found: dict[str, Any] = {}
    shared: dict[Any, _strided.Stored] = {}
    for t in tensors:
        if users[t._key] == 1:
            found[t.name] = t.read(to=to)  # type: ignore[call-overload]
            continue
        if t._key not in shared:
            shared[t._key] = t._whole()
        found[t.name] = t._of(shared[t._key], to)
    return found


def found_as(t: Tensor, target: Tensor, d: DType, shape: tuple[int, ...]) -> Tensor:
    """A tensor with the name and type of t, and the elements of another file's tensor."""
    count = math.prod(shape)
    if target._storage != (count, d.code) or target._view is not None:
        raise CorruptError(
            f"{t.name!r} refers to {target.name!r} of {target._file.path}, which has another type, or another number "
            "of elements"
        )
    attrs = t.attrs
    return Tensor(
        target._file,
        _Found(
            number=target._index,
            name=t.name,
            dtype=d.code,
            shape=shape,
            elements=count,
            chunk_elements=target.chunk_elements,
            stored_bytes=t.stored_bytes,
            stored_count=count,
            stored_dtype=d.code,
            spelled=attrs.get(_KEY_DTYPE, b""),
            order=attrs.get("source.order", b""),
            view=None,
        ),
    )


# ---- Writing


def _attribute(key: str, value: bytes) -> tuple[bytes, bytes]:
    name = encoded_name(key, "the key of an attribute")
    if not 1 <= len(name) <= _codec.KEY_MAX or b"\0" in name:
        raise ArgumentError(
            f"the key {key!r} of an attribute is {len(name)} bytes: pass 1 to {_codec.KEY_MAX}, none zero"
        )
    if not isinstance(value, (bytes, bytearray, memoryview)):
        how = "value.encode()" if isinstance(value, str) else "its bytes, as in str(value).encode()"
        raise TypeError(f"attrs[{key!r}] is {type(value).__name__}, and attributes are bytes: pass {how}")
    return name, bytes(value)


def _attributes(attrs: Optional[Mapping[str, bytes]]) -> _codec.Attrs:
    return tuple(_attribute(k, v) for k, v in (attrs or {}).items())


class _New(NamedTuple):
    """A tensor to begin."""

    dtype: DType
    name: bytes
    shape: tuple[int, ...]
    attrs: _codec.Attrs


def _new(name: str, shape: Iterable[int], d: DType, attrs: Optional[Mapping[str, bytes]]) -> _New:
    word = spelled(d)
    a = _attributes({**({_KEY_DTYPE: word} if word else {}), **(attrs or {})})
    key = encoded_name(name)
    dims = [u64(n, "a dimension") for n in shape] + ([d.parts] if d.parts != 1 else [])
    if len(dims) > _codec.RANK_MAX:
        raise ValueError(f"{len(dims)} dimensions; there can be {_codec.RANK_MAX}: reshape the array")
    return _New(d, key, tuple(dims), a)


def _abandon(writer: _codec.Writer, out: Union[_codec.OutFile, Sink]) -> None:
    """Free a writer, which may call its sink until then, and remove its file. At exit another thread may still be in a
    call on it, which uses both."""
    if _codec.close(writer) and not isinstance(out, Sink):
        _codec.close(out)


class Writer:
    """A .pici file under construction, made by create(). The write is atomic: the file appears at its path at close(),
    and not at all if an exception leaves the with statement. A file object receives data at once; without close() it is
    incomplete, and readers report that."""

    def __init__(
        self,
        path: Union[Path, BinaryIO],
        *,
        format: str = "auto",
        threads: int = 1,
        zstd: int = 0,
        chunk_elements: int = 1 << 20,
        zeros: Zeros = "exact",
        pack: Pack = "none",
        attrs: Optional[Mapping[str, bytes]] = None,
        overwrite: bool = False,
    ) -> None:
        if not 1 <= chunk_elements <= _codec.CHUNK_MAX:
            raise ValueError(f"chunk_elements is {chunk_elements}, not from 1 to {_codec.CHUNK_MAX}")
        numbers = (
            format_code(format),
            u31(threads, "threads"),
            u31(zstd, "zstd"),
            chunk_elements,
            zeros_code(zeros),
            pack_code(pack),
        )
        a = _attributes(attrs)
        self.path = display(path)
        self._lock = threading.RLock()
        self._current: Optional[DType] = None
        self._writer: Optional[_codec.Writer] = None
        self._sink = None if is_path(path) else Sink(path)
        out: Union[_codec.OutFile, Sink, _codec.Failed] = self._sink or _codec.outfile_open(
            encoded(path), bool(overwrite)  # type: ignore[arg-type]
        )
        if isinstance(out, _codec.Failed):
            raise self._not_made(out)
        self._out = out
        writer = _codec.writer_open(out, a, *numbers)
        if isinstance(writer, _codec.Failed):
            if not isinstance(out, Sink):
                _codec.close(out)
            raise self._failure(writer)
        self._writer = writer
        self._free = weakref.finalize(self, _abandon, writer, out)

    def _not_made(self, failed: _codec.Failed) -> Error:
        """The exception for a call on the output file."""
        message = os.strerror(failed.code) if failed.code else failed.words
        return make(failed.status, message, code=failed.code, path=self.path)

    def _failure(self, failed: _codec.Failed) -> Error:
        """The exception for a call on the writer."""
        if self._sink is not None:
            self._sink.reraise()
        return make(failed.status, failed.words, code=failed.code, path=self.path)

    def _check(self, failed: Optional[_codec.Failed]) -> None:
        if failed is not None:
            raise self._failure(failed)

    def _open(self) -> _codec.Writer:
        """The writer. The caller holds the lock."""
        if self._writer is None:
            raise ValueError("the file is closed: write inside the with statement, or create another")
        return self._writer

    def begin(
        self, name: str, shape: Iterable[int], dtype: DTypeLike, *, attrs: Optional[Mapping[str, bytes]] = None
    ) -> None:
        """Begin a tensor; append() adds its elements. The previous tensor must be complete."""
        self._write(_new(name, shape, named(dtype), attrs), None, None)

    def append(self, array: Any, *, dtype: Optional[DTypeLike] = None) -> None:
        """Append any number of elements to the current tensor, in row-major order."""
        self._write(None, *_arrays.readable(array, dtype))

    @in_turn
    def _write(self, new: Optional[_New], elements: Optional[Storage], d: Optional[DType]) -> None:
        """Begin a tensor, or append elements, or both, so that no other thread's tensor comes between."""
        w = self._open()
        if new is not None:
            self._check(_codec.writer_tensor(w, new.name, new.dtype.code, new.shape, new.attrs))
            self._current = new.dtype
        if elements is None or d is None:
            return
        if self._current is None:
            raise ValueError("there is no tensor to append to: call begin() first, or add() for a whole one")
        if d != self._current:
            raise TypeError(
                f"the elements are {d.name}, the tensor's {self._current.name}: convert them, or pass dtype= if "
                "they are its bits"
            )
        self._check(_codec.writer_data(w, elements))

    def add(
        self,
        name: str,
        array: Any,
        *,
        dtype: Optional[DTypeLike] = None,
        attrs: Optional[Mapping[str, bytes]] = None,
    ) -> None:
        """Write a whole tensor, with the shape of array."""
        elements, d = _arrays.readable(array, dtype)
        shape = elements.shape if d.parts == 1 else elements.shape[:-1]
        self._write(_new(name, shape, d, attrs), elements, d)

    @in_turn
    def close(self) -> None:
        """Write the index, and put the file at its path. If this raises, no file appears. A second call does
        nothing."""
        if self._writer is None:
            return
        try:
            self._check(_codec.writer_finish(self._writer))
        except BaseException:
            self._abort()
            raise
        self._free.detach()
        writer, self._writer = self._writer, None
        _codec.close(writer)
        if isinstance(self._out, Sink):
            return
        failed = _codec.outfile_commit(self._out)
        if failed is not None:
            raise self._not_made(failed)

    @in_turn
    def abort(self) -> None:
        """Discard the file. Does nothing after close()."""
        self._abort()

    def _abort(self) -> None:
        self._writer = None
        self._free()

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "one process writes a file: send it the arrays")

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
    path: Union[Path, BinaryIO],
    *,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    chunk_elements: int = 1 << 20,
    zeros: Zeros = "exact",
    pack: Pack = "none",
    attrs: Optional[Mapping[str, bytes]] = None,
    overwrite: bool = False,
) -> Writer:
    """Begin to write a .pici file, to a path or a binary file object. Nothing appears at path before close().

    format: of the chunks; "auto": the shortest for each chunk.
    threads: default 1; 0 is one for each core.
    zstd: a level of libzstd; the writer stores a chunk as a zstd frame if that is shorter than its block. 0: no zstd.
    chunk_elements: elements of a chunk, from 1 to 2^22.
    zeros: "exact", or "value": store -0.0 of floats as +0.0. That saves much after multiplication by a mask.
    pack: "planes": pack exponents of floats where that is shorter. "fast": the same, 2 to 3% longer, in less time. pici
        0.2 cannot read such files.
    attrs: attributes of the file: keys and values (bytes) to keep beside the tensors.
    overwrite: replace an existing file, at close(); else FileExistsError. No effect on a file object.
    """
    return Writer(
        path,
        format=format,
        threads=threads,
        zstd=zstd,
        chunk_elements=chunk_elements,
        zeros=zeros,
        pack=pack,
        attrs=attrs,
        overwrite=overwrite,
    )
