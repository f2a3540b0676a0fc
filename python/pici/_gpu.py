# SPDX-License-Identifier: BSD-3-Clause
"""Small deltas between torch tensors in GPU memory, and the changes that deltas make there, by libpici_cuda, which is
loaded on first use. Also changes of such tensors in place, by torch alone. No test has run this on a GPU: tests use the
emulator, or stand-ins for GPU tensors.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _arrays, _codec, _transports
from ._dtypes import BOOL, F4, DType, named
from .errors import DeviceError, UnsupportedError, VersionError, make

AT_ONCE = 16  # chunks of 2^19 elements that are worked on: 10 MiB each of bf16
_COLUMNS = 4  # the version of small deltas of columns
_P, _N, _U64, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int
_SMALL_FN = ctypes.CFUNCTYPE(_I, _P, _P, _N, _U64, _U64, _P, _N, ctypes.POINTER(_N))


class _Opts(ctypes.Structure):
    _fields_ = [("size", _N)] + [(n, _I) for n in ("threads", "checksum", "zeros", "unused", "pack", "holds")]


class _Result(ctypes.Structure):
    _fields_ = [("len", _U64), ("status", ctypes.c_int32), ("rule", ctypes.c_uint32), ("offset", _U64), ("tile", _U64)]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libpici_cuda. ImportError, in words, where there is none."""
    loaded, _ = _transports.found("cuda", "An array in a GPU's memory", ctypes.CDLL)
    loaded.pici_diff_small_cuda_workspace.argtypes = [_I, _I, _U64, ctypes.c_uint]
    loaded.pici_apply_small_cuda_workspace.argtypes = [_I, _U64, ctypes.c_uint]
    loaded.pici_diff_small_part_cuda.argtypes = [_P, _N, _P, _P, _P, _U64, _U64, _U64, _I, _I, _P, _P, _N, _P]
    loaded.pici_apply_small_range_cuda.argtypes = [_P, _U64, _U64, _U64, _I, _P, _N, _P, _P, _P, _N, _P]
    loaded.pici_nonzeros_cuda_workspace.argtypes = [_I, _U64]
    loaded.pici_changes_small_cuda_workspace.argtypes = [_I, _U64, ctypes.c_uint]
    for call in (loaded.pici_changes_cuda, loaded.pici_changes_small_cuda):
        call.argtypes = [_P, _N, _P, _U64, _P, _P, _U64, _P, _N, _P, _P, _U64, _U64, _I, _P, _N, _P]
    for name in ("diff_small", "apply_small", "nonzeros", "changes_small"):
        getattr(loaded, f"pici_{name}_cuda_workspace").restype = _N
    return loaded


def has(x: Any) -> bool:
    """Whether this is a tensor in a GPU's memory."""
    return bool(getattr(x, "is_cuda", False))


def _torch() -> Any:
    return importlib.import_module("torch")


def dtype_of(x: Any, dtype: Any) -> DType:
    """The type of a tensor's elements; dtype: what the caller says of them."""
    d = named(x.dtype)
    if dtype is not None and named(dtype) != d:
        given = named(dtype)
        if given.storage.itemsize != d.storage.itemsize:
            raise TypeError(f"dtype={given.name} of a tensor of {d.name}")
        d = given
    if d.parts != 1:
        raise TypeError(f"elements of {d.name} are two each: pass dtype= for their parts")
    if not x.is_contiguous():
        raise ValueError("a tensor in a GPU's memory that is not contiguous: pass x.contiguous()")
    return d


class Order:
    """The stream in whose order a communicator uses arrays in a GPU's memory."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    @contextlib.contextmanager
    def with_torch(self, device: Any) -> Iterator[None]:
        """What torch does here on its current stream is in this order too: after all that is in the stream so far, and
        before what comes later. That holds for memory that torch's allocator gives out here, which work in the current
        stream may still use."""
        cuda = _torch().cuda
        current = cuda.current_stream(device)
        if current.cuda_stream == self._stream:
            yield
            return
        own = cuda.ExternalStream(self._stream, device) if self._stream else cuda.default_stream(device)
        current.wait_stream(own)
        yield
        own.wait_stream(current)


class _Room:
    """Memory of a tensor's GPU, of torch's allocator, and the stream that is current there."""

    def __init__(self, x: Any) -> None:
        self._device, self._torch = x.device, _torch()
        self._kept: list[Any] = []
        self.stream = self._torch.cuda.current_stream(x.device).cuda_stream

    def bytes(self, count: int) -> Any:
        self._kept.append(self._torch.empty(max(count, 1), dtype=self._torch.uint8, device=self._device))
        return self._kept[-1]

    def copied(self, data: Any) -> Any:
        host = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        self._kept.append(host.to(self._device))
        return self._kept[-1]


def _host_bytes(x: Any, count: int) -> bytes:
    """The first bytes, when all before in the stream is done."""
    return bytes(x[:count].cpu().numpy().tobytes())


def _read(result: Any) -> _Result:
    return _Result.from_buffer_copy(_host_bytes(result, ctypes.sizeof(_Result)))


def _check(status: int, what: str) -> None:
    if status:
        raise make(status, f"{what} in a GPU's memory")


def diff(base: Any, new: Any, d: DType, format: int, first: int, of: int, capacity: int) -> bytes:
    """The small delta from base to new, contiguous tensors of d on one GPU: elements [first, ...) of a tensor of `of`.
    capacity: the longest delta's bytes.
    """
    lib, count, holds = library(), new.numel(), int(d is F4)
    with _torch().cuda.device(new.device):
        room = _Room(new)
        space = lib.pici_diff_small_cuda_workspace(format, d.code, count, AT_ONCE)
        workspace, result, delta = room.bytes(space), room.bytes(ctypes.sizeof(_Result)), room.bytes(capacity)
        opts = _Opts(ctypes.sizeof(_Opts), 1, 0, 0, 0, 0, holds)
        status = lib.pici_diff_small_part_cuda(
            delta.data_ptr(), capacity, result.data_ptr(), base.data_ptr(), new.data_ptr(), count, first, of, d.code,
            format, ctypes.byref(opts), workspace.data_ptr(), space, room.stream,
        )  # fmt: skip
        _check(status, "a small delta")
        found = _read(result)
        _check(found.status, "a small delta")
        return _host_bytes(delta, found.len)


def small_maker(pairs: dict[bytes, tuple[Any, Any]], lowest: int) -> tuple[Any, list[BaseException]]:
    """A pici_small_fn that makes small deltas of some tensors on a GPU, and a list of the exceptions that it raised.
    pairs: by name, the old elements in host memory, and the new tensor on the GPU. It leaves other names, and dtypes
    without small deltas, to the caller. lowest: the format of chunks that are not context chunks.
    """
    raised: list[BaseException] = []

    def made(_: Any, name: int, length: int, first: int, count: int, block: int, capacity: int, size: Any) -> int:
        pair = pairs.get(ctypes.string_at(name, length))
        if pair is None:
            return UnsupportedError.status
        try:
            old, new = pair
            after = new.reshape(-1)[first : first + count]
            d = named(after.dtype)
            d = F4 if d.name == "u8" else d
            with _torch().cuda.device(after.device):
                before = _Room(after).copied(memoryview(old.reshape(-1)[first : first + count]).cast("B"))
                most = min(capacity, _codec.bound(lowest, d.code, count, True))
                data = diff(before, after, d, lowest, 0, count, most)
            ctypes.memmove(block, data, len(data))
            size[0] = len(data)
            return 0
        except BaseException as e:
            raised.append(e)
            return DeviceError.status

    return _SMALL_FN(made), raised


def apply(dst: Any, d: DType, deltas: Sequence[Any], first: int, of: int) -> None:
    """Apply small deltas to a contiguous tensor in place, one after the other."""
    lib, count = library(), dst.numel()
    with _torch().cuda.device(dst.device):
        room = _Room(dst)
        space = lib.pici_apply_small_cuda_workspace(d.code, count, AT_ONCE)
        workspace, result = room.bytes(space), room.bytes(ctypes.sizeof(_Result))
        for data in deltas:
            delta = room.copied(data)
            status = lib.pici_apply_small_range_cuda(
                dst.data_ptr(), count, first, of, d.code, delta.data_ptr(), len(data), None, result.data_ptr(),
                workspace.data_ptr(), space, room.stream,
            )  # fmt: skip
            _check(status, "apply")
            _check(_read(result).status, "a small delta that is applied to an array")


def finder(
    base: Any, d: DType, delta: Any, first: int, count: int, index_bytes: int
) -> Callable[[int], tuple[int, int, Any, Any]]:
    """A function that finds what a delta changes among elements [first, first + count) of a contiguous tensor. Of a
    room, it returns a status, how many changes there are, and tensors of that length: positions, counted from first,
    and the bits of new values, as integers. index_bytes: of a position, 4 or 8."""
    lib, torch, of = library(), _torch(), base.numel()
    small = bytes(delta[:4]) == b"PICD"
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    told_bytes = ctypes.sizeof(_Result) + 8  # with the number of changes, so that one copy brings both
    with torch.cuda.device(base.device):
        room = _Room(base)
        if small:
            call, space = lib.pici_changes_small_cuda, lib.pici_changes_small_cuda_workspace(d.code, of, AT_ONCE)
        else:
            call, space = lib.pici_changes_cuda, lib.pici_nonzeros_cuda_workspace(d.code, of)
        workspace, there = room.bytes(space), room.copied(delta)
        result = room.bytes(told_bytes)

    def find(capacity: int) -> tuple[int, int, Any, Any]:
        with torch.cuda.device(base.device):
            indices = torch.empty(capacity, dtype=kinds[index_bytes], device=base.device)
            values = torch.empty(capacity, dtype=kinds[d.storage.itemsize], device=base.device)
            status = call(
                indices.data_ptr(), index_bytes, values.data_ptr(), capacity, result.data_ptr() + told_bytes - 8,
                base.data_ptr(), of, there.data_ptr(), len(delta), None, result.data_ptr(), first, count, d.code,
                workspace.data_ptr(), space, room.stream,
            )  # fmt: skip
            _check(status, "changes")
            told = _host_bytes(result, told_bytes)
        status, found = _Result.from_buffer_copy(told).status, int.from_bytes(told[-8:], sys.byteorder)
        if small and status == UnsupportedError.status:
            raise make(status, "more than 1024 small deltas in a row, for a tensor in a GPU's memory: pass x.cpu()")
        if small and status == VersionError.status and delta[4] == _COLUMNS:
            status = UnsupportedError.status
        return status, found, indices, values

    return find


def typed(bits: Any, like: Any, d: DType) -> Any:
    """Integers as elements of d, the type of a tensor's elements or what its caller says of them."""
    if d is BOOL and bits.numel() and int(bits.max()) > 1:
        raise ValueError(f"an element is {int(bits.max())}, which is no bool: pass x.view(torch.uint8) for the bytes")
    return bits.view(like.dtype if named(like.dtype) == d else _arrays.torch_dtype(_torch(), d))


def host_copy(name: str, x: Any) -> Any:
    """A copy in the host's memory of a tensor that is to be changed in place."""
    if not x.is_contiguous():
        raise ValueError(f"{name!r}: a tensor in a GPU's memory that is changed in place must be contiguous")
    return x.detach().cpu()


class Places:
    """Elements of tensors in a GPU's memory that change: where they are, what they were, and what they become. They are
    in that memory too."""

    def __init__(self) -> None:
        self._all: list[tuple[Any, ...]] = []

    def add(self, x: Any, indices: Any, old: Any, new: Any) -> None:
        """indices, old, new: NumPy arrays; unsigned integers of the elements' width."""
        torch, word = _torch(), f"i{new.itemsize}"
        flat = x.detach().reshape(-1).view(getattr(torch, f"int{8 * new.itemsize}"))
        there = [torch.from_numpy(a).to(x.device) for a in (indices.astype("i8"), old.view(word), new.view(word))]
        self._all.append((flat, *there))

    def put(self, becomes: bool) -> None:
        """Set all of them, in the order of each GPU's current stream. If that fails, they are what they were."""
        torch, begun = _torch(), 0
        try:
            for flat, indices, old, new in self._all:
                begun += 1
                with torch.inference_mode(flat.is_inference()):
                    flat[indices] = new if becomes else old
        except BaseException:
            for flat, indices, old, new in self._all[:begun]:
                with contextlib.suppress(Exception), torch.inference_mode(flat.is_inference()):
                    flat[indices] = old if becomes else new
            raise
