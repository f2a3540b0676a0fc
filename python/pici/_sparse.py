# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of sparse vectors, which are indices and values: all_reduce_sparse() and others. comm.py documents them.

A vector has a shape. Indices select along its first dimensions; the others are the shape of a value. The library has
rows of as many elements, with one index each. If a rank's vector is invalid, the rank makes a call that the library
rejects: so all ranks get the error, and none waits."""
from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, Optional, Union, overload

import numpy as np

from . import _buffers, _codec
from ._arrays import Storage
from ._buffers import Buffer, Memory
from ._calls import Op, Options, Request, Taken, check_op, choice, taken
from ._calls import whole as whole_number
from ._codec import ALL_GATHER, ALL_REDUCE, BROADCAST, OPS, REDUCE_SCATTER, STREAM_FORMS
from ._dtypes import BY_NAME, DTypeLike, numpy_dtype
from ._gathers import Gathers
from ._kwargs import Unpack, showing
from .errors import ArgumentError, UnsupportedError, make

Out = Literal["sparse", "dense", "shorter"]
Shape = tuple[int, ...]

_INDICES = {
    name: np.dtype(full) for name, full in zip(("i32", "u32", "i64", "u64"), "int32 uint32 int64 uint64".split())
}
_I32_MOST = 1 << 31  # indices


class Sparse(Options, total=False):
    """Options of the calls here."""

    density: Optional[float]
    latency: Optional[float]
    balance: Optional[str]


class _Vector(NamedTuple):
    """The vector that a rank passes."""

    buffer: Buffer  # the values; or all elements
    shape: Shape
    k: int  # dimensions that are indexed
    nnz: int  # -1: dense
    indices: Optional[Memory]
    given: np.dtype[Any]  # the dtype of the caller's indices,
    wide: np.dtype[Any]  # and the dtype that the library gets
    #: makes the caller's result from a list: indices [k, nnz], values, shape
    made: Callable[[Storage, Any, Shape], Any]

    @property
    def run(self) -> int:
        return math.prod(self.shape[self.k :]) * self.buffer.dtype.parts


class _Memory:
    """Memory that a capsule owns, as an array of bytes."""

    def __init__(self, owner: Any, address: int, bytes: int) -> None:
        self._owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (bytes,), "typestr": "|u1"}


def _bytes_of(owner: Any, place: tuple[int, int]) -> Storage:
    return np.asarray(_Memory(owner, *place)) if place[1] else np.empty(0, np.uint8)


def _is_torch(x: Any) -> bool:
    return isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))


def _shown(x: Any) -> str:
    return f"an array of shape {tuple(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"


# ---- sending


def _length(shape: Shape) -> int:
    n = math.prod(shape)
    if n >= 1 << 63:
        raise ValueError(f"shape: {n} elements are too many")
    return n


def _flat(coordinates: Sequence[Storage], shape: Shape) -> Storage:
    """The place of each index in row-major order. Each coordinate must be within its dimension, since another element
    would have the same place."""
    flat = np.zeros(coordinates[0].size, np.int64)
    for i, (x, most) in enumerate(zip(coordinates, shape)):
        if x.size and not (0 <= int(x.min()) and int(x.max()) < most):
            wrong = int(x.min()) if int(x.min()) < 0 else int(x.max())
            raise ValueError(f"indices: {wrong} in dimension {i}, which has {most} indices, from 0 on")
        flat *= most
        flat += x.astype(np.int64, copy=False)
    return flat


def _indices(x: Any, shape: Shape, k: int) -> tuple[Memory, np.dtype[Any], np.dtype[Any], int]:
    """A caller's indices as the library takes them; their dtype, the library's dtype, and their number."""
    if k < 1:
        raise ValueError("indices: none of the dimensions is indexed")
    buffer = _buffers.read(x, "indices")
    index = _INDICES.get(buffer.dtype.name)
    if index is None:
        raise TypeError(f"indices: elements of {buffer.dtype.name}, not int32, int64, uint32 or uint64")
    rows = math.prod(shape[:k])
    if k == 1 and (index != np.int32 or rows <= _I32_MOST):  # else a negative index would become a large one
        return buffer.memory, index, index, buffer.n
    array = buffer.like.numpy() if _is_torch(buffer.like) else buffer.like
    own = array.reshape(k, -1)
    flat = _flat(list(own), shape) if k > 1 else own[0].astype(np.int64)
    return flat, index, flat.dtype, flat.size


def _shape_of(shape: Any, k: int, row: Shape) -> Shape:
    """The whole shape: the caller's may omit the values' dimensions."""
    sizes = tuple(operator.index(n) for n in (shape if isinstance(shape, Sequence) else (shape,)))
    if any(n < 0 for n in sizes):
        raise ValueError(f"shape: {sizes}, with a negative number")
    if len(sizes) == k:
        sizes += row
    if len(sizes) != k + len(row) or sizes[k:] != row:
        raise ValueError(f"shape: {sizes}, but there are {k} indices a value, and a value has the shape {row}")
    _length(sizes)
    return sizes


def _pair(indices: Any, values: Any, shape: Any, dtype: Optional[DTypeLike]) -> _Vector:
    buffer = _buffers.read(values, "values", dtype)
    of_indices, of_values = tuple(getattr(indices, "shape", ())), _buffers.shape_of(buffer)
    if len(of_indices) not in (1, 2) or not of_values or of_indices[-1] != of_values[0]:
        raise ValueError(
            f"indices: {_shown(indices)}, and values of {of_values}: pass as many of both, of an index for each "
            "dimension (k, n), or (n,) for one"
        )
    k = of_indices[0] if len(of_indices) == 2 else 1
    whole = _shape_of(shape, k, of_values[1:])
    memory, index, wide, nnz = _indices(indices, whole, k)

    def made(found: Storage, result: Any, _: Shape) -> Any:
        own = found if len(of_indices) == 2 else found[0]
        return (sys.modules["torch"].from_numpy(own) if _is_torch(indices) else own), result

    return _Vector(buffer, whole, k, nnz, memory, index, wide, made)


def _of_scipy(x: Any, dtype: Optional[DTypeLike]) -> _Vector:
    coo = x.tocoo()
    coordinates = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
    shape = tuple(map(int, coo.shape))
    _length(shape)
    flat = _flat(coordinates, shape)
    kind, form = type(coo), x.format

    def made(found: Storage, result: Any, whole: Shape) -> Any:
        matrix = kind((result, tuple(found)), shape=whole)
        matrix.has_canonical_format = True
        return matrix if form == "coo" else matrix.asformat(form)

    buffer = _buffers.read(coo.data, "values", dtype)
    return _Vector(buffer, shape, len(shape), flat.size, flat, flat.dtype, flat.dtype, made)


def coalesced(indices: Any, values: Any, shape: Shape) -> Any:
    """A torch tensor with sorted, unique indices."""
    torch = sys.modules["torch"]
    try:
        made = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    except TypeError:  # before torch 2.0
        made = torch.sparse_coo_tensor(indices, values, shape)
    return made._coalesced_(True)


def _of_torch(x: Any, dtype: Optional[DTypeLike]) -> _Vector:
    torch = sys.modules["torch"]
    layout = x.layout
    if layout not in (torch.sparse_coo, torch.sparse_csr):
        raise TypeError(f"a tensor of layout {layout}: pass a sparse COO or CSR one, or a dense one")
    if x.device.type != "cpu":
        raise BufferError(f"a tensor on {x.device}: bring it to the host first, as with tensor.cpu()")
    x = x.detach()
    if layout is torch.sparse_csr:
        x = x.to_sparse()
    shape, k = tuple(x.shape), x.sparse_dim()
    memory, index, wide, nnz = _indices(x._indices(), shape, k)

    def made(found: Storage, result: Any, whole: Shape) -> Any:
        places = torch.from_numpy(found.astype(np.int64, copy=False))
        tensor = coalesced(places, result, whole)
        return tensor if layout is torch.sparse_coo else tensor.to_sparse_csr()

    return _Vector(_buffers.read(x._values(), "values", dtype), shape, k, nnz, memory, index, wide, made)


def _of_dense(x: Any, dtype: Optional[DTypeLike]) -> _Vector:
    buffer = _buffers.read(x, "indices", dtype)
    shape = tuple(_buffers.shape_of(buffer))
    index = np.dtype(np.int64)

    def made(found: Storage, result: Any, whole: Shape) -> Any:
        if _is_torch(x):
            return coalesced(sys.modules["torch"].from_numpy(found), result, whole)
        return (found if len(whole) > 1 else found[0]), result

    return _Vector(buffer, shape or (1,), max(1, len(shape)), -1, None, index, index, made)


def _read(indices: Any, values: Any, shape: Any, dtype: Optional[DTypeLike]) -> _Vector:
    if values is not None:
        if shape is None:
            raise TypeError("shape: pass the whole vector's shape, with indices and values")
        return _pair(indices, values, shape, dtype)
    if shape is not None:
        raise TypeError("values: pass them, with indices and shape; or an array that has all of these alone")
    if type(indices).__module__.startswith("scipy.sparse"):
        return _of_scipy(indices, dtype)
    if _is_torch(indices) and str(indices.layout) != "torch.strided":
        return _of_torch(indices, dtype)
    return _of_dense(indices, dtype)


# ---- receiving


def _elements(buffer: Buffer, raw: Storage, shape: Shape) -> Any:
    """Bytes of a result as an array of the sent array's type."""
    like = buffer.like
    if _is_torch(like):
        torch = sys.modules["torch"]
        return torch.from_numpy(raw).view(like.dtype).reshape(shape) if raw.size else like.new_empty(shape)
    return raw.view(numpy_dtype(buffer.dtype) if like is None else like.dtype).reshape(shape)


def _coordinates(flat: Storage, shape: Shape, index: np.dtype[Any]) -> Storage:
    """The indices of each dimension, [k, nnz], from places in row-major order."""
    if len(shape) == 1:
        return (flat.view(index) if flat.itemsize == index.itemsize else flat.astype(index))[None]
    found = np.empty((len(shape), flat.size), index)
    rest = flat.astype(np.int64, copy=False)
    for i in reversed(range(1, len(shape))):
        rest, found[i] = np.divmod(rest, max(1, shape[i]))
    found[0] = rest
    return found


class _Result:
    """The result of a call, a vector of shape `shape`; call it once the call has ended."""

    def __init__(self, vector: _Vector, shape: Shape, capsule: Any, dense: Any) -> None:
        self._parts = vector, shape, capsule, dense
        self._made: Any = None
        self._known = False

    def __call__(self) -> Any:
        if not self._known:
            self._made, self._known = self._make(*self._parts), True
            del self._parts
        return self._made

    def _make(self, vector: _Vector, shape: Shape, capsule: Any, dense: Any) -> Any:
        form, nnz, width, places, values, all_of = _codec.sparse_result(capsule)
        if form == STREAM_FORMS["dense"]:
            return dense if all_of is None else _elements(vector.buffer, _bytes_of(capsule, all_of), shape)
        k, index = vector.k, vector.given
        if max(shape[:k]) > np.iinfo(index).max + 1:
            index = np.dtype(f"{index.kind}8")
        found = _coordinates(_bytes_of(capsule, places).view(f"u{width}"), shape[:k], index)
        result = _elements(vector.buffer, _bytes_of(capsule, values), (nnz, *shape[k:]))
        return vector.made(found, result, shape)


class SparseRequest(Request):
    """A request that makes its result at its end."""

    def wait(self) -> Any:
        return super().wait()()


# ---- calls


class SparseCalls(Gathers):
    """Methods that Comm inherits."""

    @overload
    def all_reduce_sparse(
        self,
        indices: Storage,
        values: Storage,
        shape: Union[int, Sequence[int]],
        op: Op = ...,
        **options: Unpack[Sparse],
    ) -> tuple[Storage, Storage]:
        ...

    @overload
    def all_reduce_sparse(
        self,
        indices: Any,
        values: Any = ...,
        shape: Union[int, Sequence[int], None] = ...,
        op: Op = ...,
        out: Optional[Out] = ...,
        **options: Unpack[Sparse],
    ) -> Any:
        ...

    @showing(Sparse)
    def all_reduce_sparse(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        op: Op = "sum",
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Any:
        """The sum (or another op) of the sparse vectors of all ranks, on all ranks: indices and values, sorted and each
        once. See help(pici.comm)."""
        own = taken("all_reduce_sparse", Sparse, options)
        return self._call_sparse(ALL_REDUCE, indices, values, shape, op, out, own)

    @showing(Sparse)
    def all_reduce_sparse_start(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        op: Op = "sum",
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Request:
        """all_reduce_sparse(), nonblocking: returns at once. The arrays must not change until wait() returns."""
        own = taken("all_reduce_sparse_start", Sparse, options)
        return self._start_sparse(ALL_REDUCE, indices, values, shape, op, out, own)

    @showing(Sparse)
    def reduce_scatter_sparse(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        op: Op = "sum",
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Any:
        """Each rank's part of the same sum: one equal part per rank, along the first dimension. Indices count from the
        part's beginning."""
        own = taken("reduce_scatter_sparse", Sparse, options)
        return self._call_sparse(REDUCE_SCATTER, indices, values, shape, op, out, own)

    @showing(Sparse)
    def reduce_scatter_sparse_start(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        op: Op = "sum",
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Request:
        """reduce_scatter_sparse(), nonblocking: returns at once. The arrays must not change until wait() returns."""
        own = taken("reduce_scatter_sparse_start", Sparse, options)
        return self._start_sparse(REDUCE_SCATTER, indices, values, shape, op, out, own)

    @showing(Sparse)
    def all_gather_sparse(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Any:
        """The sparse vectors of all ranks, joined along the first dimension, by rank, on all ranks."""
        own = taken("all_gather_sparse", Sparse, options)
        return self._call_sparse(ALL_GATHER, indices, values, shape, "sum", out, own)

    @showing(Sparse)
    def all_gather_sparse_start(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        out: Optional[Out] = None,
        **options: Unpack[Sparse],
    ) -> Request:
        """all_gather_sparse(), nonblocking: returns at once. The arrays must not change until wait() returns."""
        own = taken("all_gather_sparse_start", Sparse, options)
        return self._start_sparse(ALL_GATHER, indices, values, shape, "sum", out, own)

    @showing(Options)
    def broadcast_sparse(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        root: int = 0,
        out: Optional[Out] = None,
        **options: Unpack[Options],
    ) -> Any:
        """The sparse vector of rank root, on all ranks: sorted, each index once. Other ranks pass a vector of the same
        shape and dtype, for example without indices; the call ignores its contents."""
        own = taken("broadcast_sparse", Options, options)
        return self._call_sparse(BROADCAST, indices, values, shape, "sum", out, own, root)

    @showing(Options)
    def broadcast_sparse_start(
        self,
        indices: Any,
        values: Any = None,
        shape: Union[int, Sequence[int], None] = None,
        root: int = 0,
        out: Optional[Out] = None,
        **options: Unpack[Options],
    ) -> Request:
        """broadcast_sparse(), nonblocking: returns at once. The arrays must not change until wait() returns."""
        own = taken("broadcast_sparse_start", Options, options)
        return self._start_sparse(BROADCAST, indices, values, shape, "sum", out, own, root)

    def _vector(
        self, kind: int, indices: Any, values: Any, shape: Any, op: str, dtype: Optional[DTypeLike], root: int
    ) -> tuple[_Vector, Shape]:
        """The vector to send, and the shape of the result."""
        vector = _read(indices, values, shape, dtype)
        if kind in (ALL_REDUCE, REDUCE_SCATTER):
            check_op(op, vector.buffer.dtype)
        elif kind == BROADCAST and self._rank != root and vector.nnz > 0:
            vector = vector._replace(nnz=0)
        whole = vector.shape
        if kind == ALL_GATHER:
            whole = (whole[0] * self._size, *whole[1:])
            _length(whole)
        elif kind == REDUCE_SCATTER:
            if whole[0] % self._size:
                raise ValueError(f"shape: {whole}, whose first dimension is not a multiple of {self._size} ranks")
            whole = (whole[0] // self._size, *whole[1:])
        return vector, whole

    def _prepared_sparse(
        self, kind: int, indices: Any, values: Any, shape: Any, op: str, out: Optional[str], options: Taken, root: int
    ) -> tuple[_Vector, Any, _Result]:
        choice("op", op, OPS)
        whole_number("root", root, 0, self._size - 1)
        if out is not None:
            choice("out", out, STREAM_FORMS)
        if self._on_gpu:
            raise UnsupportedError("sparse vectors are in the host's memory: not over NCCL")
        try:
            vector, whole = self._vector(kind, indices, values, shape, op, options.dtype, root)
            return self._capsule(vector, whole, out or ("dense" if vector.nnz < 0 else "sparse"))
        except Exception:
            self._tell(kind, op, options, root)
            raise

    @staticmethod
    def _capsule(vector: _Vector, whole: Shape, form: str) -> tuple[_Vector, Any, _Result]:
        buffer, dense, memory = vector.buffer, None, None
        if form == "dense":
            dense, memory = _buffers.fresh(buffer, whole)
        n, run = math.prod(vector.shape) * buffer.dtype.parts, max(1, vector.run)
        listed = vector.nnz if vector.nnz > 0 and vector.run else 0
        indices, values = (vector.indices, buffer.memory) if listed else (None, None)
        all_of = buffer.memory if vector.nnz < 0 else None
        capsule = _codec.sparse(
            buffer.dtype.code,
            n,
            run,
            listed,
            vector.wide.itemsize,
            indices,
            values,
            all_of,
            STREAM_FORMS[form],
            run,
            memory if n else None,
        )
        return vector, capsule, _Result(vector, whole, capsule, dense)

    def _tell(self, kind: int, op: str, options: Taken, root: int) -> None:
        """Make all ranks fail, since this rank's vector is invalid: pass a list without indices, or where no list is
        read, rows longer than the result."""
        longer = self._size**2 + 1
        wrong = _codec.sparse(BY_NAME["f32"].code, self._size, 1, 1, 8, None, None, None, 0, longer, None)
        _codec.comm_call(
            self._driver, kind, wrong, None, BY_NAME["f32"].code, OPS[op], options.opts, False, None, None, root
        )

    def _wrong(self, e: ArgumentError, vector: _Vector) -> NoReturn:
        """Name a negative index as the caller wrote it."""
        if vector.nnz > 0 and vector.wide.kind == "i":
            own = vector.indices
            array = np.asarray(_Memory(own[2], *own[:2])).view(vector.wide) if isinstance(own, tuple) else own
            assert array is not None
            least = int(array.argmin())
            if array.flat[least] < 0:
                raise make(e.status, f"indices: {array.flat[least]}, at place {least}, is negative. {e}") from None
        raise e

    def _arguments_sparse(
        self, kind: int, vector: _Vector, capsule: Any, op: str, options: Taken, root: int
    ) -> tuple[Any, ...]:
        code = vector.buffer.dtype.code
        return self._driver, kind, capsule, None, code, OPS[op], options.opts, False, None, None, root

    def _call_sparse(
        self,
        kind: int,
        indices: Any,
        values: Any,
        shape: Any,
        op: str,
        out: Optional[str],
        options: Taken,
        root: int = 0,
    ) -> Any:
        vector, capsule, result = self._prepared_sparse(kind, indices, values, shape, op, out, options, root)
        status = _codec.comm_call(*self._arguments_sparse(kind, vector, capsule, op, options, root))
        if status:
            e = self._refusal(status, self._asked(kind, options))
            if isinstance(e, ArgumentError):
                self._wrong(e, vector)
            raise e
        return result()

    def _start_sparse(
        self,
        kind: int,
        indices: Any,
        values: Any,
        shape: Any,
        op: str,
        out: Optional[str],
        options: Taken,
        root: int = 0,
    ) -> Request:
        vector, capsule, result = self._prepared_sparse(kind, indices, values, shape, op, out, options, root)
        flight = _codec.comm_start(*self._arguments_sparse(kind, vector, capsule, op, options, root))
        if isinstance(flight, int):
            raise self._refusal(flight, self._asked(kind, options))
        return SparseRequest(self, flight, result)
