# SPDX-License-Identifier: BSD-3-Clause
"""The calls of a communicator: options, requests, statistics. comm.py documents them."""
from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Optional, TypedDict, TypeVar, Union, overload

from . import _buffers, _codec, _values
from ._arrays import Storage
from ._buffers import Buffer, Memory
from ._codec import (
    ALL_GATHER,
    ALL_GATHERV,
    ALL_TO_ALLV,
    ALL_REDUCE,
    BALANCES,
    BROADCAST,
    FORMATS,
    NEIGHBOR_ALL_GATHER,
    NEIGHBOR_ALL_GATHERV,
    OPS,
    PACKINGS,
    REDUCE_SCATTER,
    ZEROS,
)
from ._dtypes import BOOL, DType, DTypeLike
from ._gpu import Order
from ._kwargs import Unpack, Zeros, no_pickle, only, showing
from ._libraries import ALGORITHMS, ALIASES
from ._values import ValuesLike
from .errors import BrokenError, BusyError, Error, TimedOutError, UnsupportedError, make

if TYPE_CHECKING:
    from ._codec import CollOpts

Op = Literal["sum", "avg", "min", "max"]
Timeout = Union[float, datetime.timedelta]
Array = TypeVar("Array", bound=Sized)
Extra = Union[int, bytes, tuple[Any, Optional[bytes]], None]  # for some calls: _comm.c

BUSY, CLOSED = 1, 2  # results of _codec other than statuses
_NAMES = {
    ALL_GATHER: "all_gather",
    REDUCE_SCATTER: "reduce_scatter",
    ALL_REDUCE: "all_reduce",
    BROADCAST: "broadcast",
    ALL_GATHERV: "all_gatherv",
    ALL_TO_ALLV: "all_to_allv",
    NEIGHBOR_ALL_GATHER: "all_gather of neighbours",
    NEIGHBOR_ALL_GATHERV: "all_gatherv of neighbours",
}


@dataclass(frozen=True)
class Stats:
    """Statistics of calls on this rank."""

    calls: int
    #: bytes of all messages sent
    wire_bytes: int
    #: the size of the same messages with dense blocks
    dense_bytes: int
    #: the part of wire_bytes that went to ranks of other nodes
    inter_bytes: int
    #: blocks sent, by format
    sends: dict[str, int]
    #: seconds encoding, decoding and adding, waiting
    encode_s: float
    decode_s: float
    wait_s: float
    #: elements that a lossy codec rounded, counted once each time
    events: int = 0
    #: seconds of encode_s and decode_s that the codec took
    quantize_s: float = 0
    dequantize_s: float = 0
    #: buckets, units or elements that were not finite
    nonfinite: int = 0
    #: the sum of the squared errors of the events
    lost: float = 0

    @property
    def narrow_s(self) -> float:
        """Deprecated: the name of quantize_s until version 0.3."""
        return self.quantize_s

    @property
    def widen_s(self) -> float:
        """Deprecated: the name of dequantize_s until version 0.3."""
        return self.dequantize_s


def stats_of(of: Any, last: bool) -> Stats:
    given: Any = _codec.comm_stats(of, last)
    calls, wire, dense, inter, sends, *rest = given
    return Stats(calls, wire, dense, inter, dict(zip(FORMATS, sends)), *rest)


# ---- options


def choice(name: str, value: Any, choices: dict[str, int]) -> int:
    code = choices.get(ALIASES.get(value, value))
    if code is None:
        raise ValueError(f"{name}={value!r}: pass one of {', '.join(repr(choice) for choice in choices)}")
    return code


def check_op(op: str, d: DType) -> None:
    """TypeError if these elements do not support the operation, although their stored form does."""
    if d.parts != 1 and OPS[op] >= 2:
        raise TypeError(f"complex numbers have no order, for op={op!r}: pass 'sum' or 'avg'")
    if d is BOOL and OPS[op] < 2:
        raise TypeError(f"bool is not added, for op={op!r}: pass 'max' (or), 'min' (and), or view('u1') for counts")


def number(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:  # a NaN too
        raise ValueError(f"{name} is {value}, not from {low:g} to {high:g}")
    return value


def whole(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, float) or not low <= value <= high:
        raise ValueError(f"{name} is {value}, not a whole number from {low} to {high}")
    return value


def milliseconds(timeout: Timeout) -> int:
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    if not seconds > 0:
        raise ValueError(f"timeout is {seconds} s, not above 0: math.inf means none, and None the communicator's")
    return -1 if seconds == math.inf else min(max(1, round(1000 * seconds)), 2**31 - 1)


class Options(TypedDict, total=False):
    """Options of all calls."""

    dtype: Optional[DTypeLike]
    algorithm: Optional[str]
    format: Optional[str]
    timeout: Optional[Timeout]
    pack: Optional[str]


class Gathering(Options, total=False):
    """Options of calls without a codec."""

    zeros: Zeros


class Starting(Options, total=False):
    """Options of nonblocking calls that may have a codec."""

    density: Optional[float]
    latency: Optional[float]
    values: Optional[ValuesLike]
    balance: Optional[str]


class Calling(Starting, total=False):
    """Options of blocking calls that may have a codec."""

    native: Optional[bool]
    vendor: Optional[bool]  # deprecated: the name of native until version 0.3


class StartingGather(Starting, total=False):
    zeros: Zeros


class CallingGather(Calling, total=False):
    zeros: Zeros


@functools.lru_cache(maxsize=256)
def options_of(
    algorithm: Optional[str],
    format: Optional[str],
    timeout: Optional[Timeout],
    density: Optional[float],
    latency: Optional[float],
    native: Optional[bool],
    zeros: str,
    pack: Optional[str],
    balance: Optional[str],
) -> Optional[CollOpts]:
    """The options as _codec takes them; None: all defaults."""
    given: dict[str, Any] = {}
    if algorithm is not None:
        given["algorithm"] = choice("algorithm", algorithm, ALGORITHMS)
    if format is not None:
        given["format"] = choice("format", format, FORMATS)
    if timeout is not None:
        given["timeout_ms"] = milliseconds(timeout)
    if density is not None:
        given["density"] = number("density", density, 0, 1)
    if latency is not None:
        given["latency"] = number("latency", latency, 0, 3600)
    if native is not None:
        given["native"] = 1 if native else -1
    if zeros != "exact":
        given["zeros"] = choice("zeros", zeros, ZEROS)
    if pack is not None:
        given["pack"] = choice("pack", pack, PACKINGS)
    if balance is not None:
        given["balance"] = choice("balance", balance, BALANCES)
    return _codec.coll_opts(**given) if given else None


class Taken(NamedTuple):
    """The checked options of a call."""

    dtype: Optional[DTypeLike] = None
    algorithm: Optional[str] = None
    values: Optional[ValuesLike] = None
    native: Optional[bool] = None
    opts: Optional[CollOpts] = None  # in _codec's form


_NONE = Taken()


def taken(call: str, known: Any, options: Any) -> Taken:
    """Check the options of a call. known: the TypedDict of its options."""
    if not options:
        return _NONE
    only(call, known, options)
    get = options.get
    algorithm, native = get("algorithm"), get("native")
    native = get("vendor") if native is None else native
    opts = options_of(
        algorithm,
        get("format"),
        get("timeout"),
        get("density"),
        get("latency"),
        native,
        get("zeros", "exact"),
        get("pack"),
        get("balance"),
    )
    return Taken(get("dtype"), algorithm, get("values"), native, opts)


# ---- requests


class Request:
    """A started collective. It makes progress in wait() and test(), and in other calls on the communicator; requests
    run in the order in which you started them.

    The request keeps its arrays until it has ended; do not use them before. If you drop a request, it continues without
    a result: later calls on the communicator end it, and close() abandons it."""

    def __init__(self, comm: Calls, flight: Any, result: Any) -> None:
        self._comm = comm
        self._flight = flight
        self._result = result

    def wait(self) -> Any:
        """Wait until it has ended. Returns the array with the result."""
        status = _codec.comm_wait(self._flight, True)
        if status:
            raise self._comm._refusal(status)
        return self._result

    def test(self) -> bool:
        """Make progress without waiting. Returns whether the request has ended."""
        status = _codec.comm_wait(self._flight, False)
        if status:
            raise self._comm._refusal(status)
        return status is not None

    @property
    def done(self) -> bool:
        """Whether wait() or test() has seen the end of the request, or the communicator was closed."""
        return self.stats.calls == 1

    @property
    def stats(self) -> Stats:
        """Statistics of the call, once it is done."""
        return stats_of(self._flight, True)

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "wait for it where it was started")

    def __repr__(self) -> str:
        return f"<pici.Request of {self._comm!r}, {'done' if self.done else 'in flight'}>"


# ---- calls


class Calls:
    """Methods that Comm inherits; more are in _gathers.py."""

    _driver: Any
    _rank: int
    _size: int
    _over: str
    _closed: bool
    _on_gpu: Optional[Order]  # of the stream of arrays in a GPU's memory; None: they are in the host's
    _native: bool  # the library below has collectives of its own,
    _permits: bool  # and the environment permits their use

    @overload
    def all_reduce(self, send: Storage, recv: None = ..., op: Op = ..., **options: Unpack[Calling]) -> Storage:
        ...

    @overload
    def all_reduce(self, send: Any, recv: None = ..., op: Op = ..., **options: Unpack[Calling]) -> Any:
        ...

    @overload
    def all_reduce(self, send: Any, recv: Array, op: Op = ..., **options: Unpack[Calling]) -> Array:
        ...

    @showing(Calling)
    def all_reduce(self, send: Any, recv: Any = None, op: Op = "sum", **options: Unpack[Calling]) -> Any:
        """The sum (or another op) of the arrays of all ranks, on all ranks. The result has the shape of send."""
        return self._call(ALL_REDUCE, send, recv, op, taken("all_reduce", Calling, options))

    @showing(Starting)
    def all_reduce_start(self, send: Any, recv: Any = None, op: Op = "sum", **options: Unpack[Starting]) -> Request:
        """all_reduce(), nonblocking: returns at once."""
        return self._start(ALL_REDUCE, send, recv, op, taken("all_reduce_start", Starting, options))

    @overload
    def reduce_scatter(self, send: Storage, recv: None = ..., op: Op = ..., **options: Unpack[Calling]) -> Storage:
        ...

    @overload
    def reduce_scatter(self, send: Any, recv: None = ..., op: Op = ..., **options: Unpack[Calling]) -> Any:
        ...

    @overload
    def reduce_scatter(self, send: Any, recv: Array, op: Op = ..., **options: Unpack[Calling]) -> Array:
        ...

    @showing(Calling)
    def reduce_scatter(self, send: Any, recv: Any = None, op: Op = "sum", **options: Unpack[Calling]) -> Any:
        """Each rank's part of the sum (or another op) of the arrays of all ranks: one equal part per rank, along the
        first dimension. recv has the length of one part."""
        return self._call(REDUCE_SCATTER, send, recv, op, taken("reduce_scatter", Calling, options))

    @showing(Starting)
    def reduce_scatter_start(self, send: Any, recv: Any = None, op: Op = "sum", **options: Unpack[Starting]) -> Request:
        """reduce_scatter(), nonblocking: returns at once."""
        return self._start(REDUCE_SCATTER, send, recv, op, taken("reduce_scatter_start", Starting, options))

    @overload
    def all_gather(self, send: Storage, recv: None = ..., **options: Unpack[CallingGather]) -> Storage:
        ...

    @overload
    def all_gather(self, send: Any, recv: None = ..., **options: Unpack[CallingGather]) -> Any:
        ...

    @overload
    def all_gather(self, send: Any, recv: Array, **options: Unpack[CallingGather]) -> Array:
        ...

    @showing(CallingGather)
    def all_gather(self, send: Any, recv: Any = None, **options: Unpack[CallingGather]) -> Any:
        """The arrays of all ranks, by rank, joined along the first dimension, on all ranks. recv has the length of all
        arrays."""
        return self._call(ALL_GATHER, send, recv, "sum", taken("all_gather", CallingGather, options))

    @showing(StartingGather)
    def all_gather_start(self, send: Any, recv: Any = None, **options: Unpack[StartingGather]) -> Request:
        """all_gather(), nonblocking: returns at once."""
        return self._start(ALL_GATHER, send, recv, "sum", taken("all_gather_start", StartingGather, options))

    @staticmethod
    def _asked(kind: int, options: Taken) -> str:
        """The option that may be unsupported, for an error message."""
        lossy = "" if options.values is None else " with this codec, dtype and op"
        return f"algorithm={options.algorithm!r} for {_NAMES[kind]}{lossy}"

    def _refusal(self, status: int, what: str = "") -> Error:
        """The exception for a result of _codec. what: the call, and an option that it may not support."""
        if status == BUSY:
            return BusyError(
                "another thread is in a call on this communicator: give each thread its own, or take turns by a lock"
            )
        if status == CLOSED and not self._closed:
            return BrokenError("the communicator is closed, since a call on it was interrupted: make another")
        if status == CLOSED:
            return BrokenError("the communicator is closed: make another")
        said = _codec.comm_error(self._driver)
        if not said or isinstance(said, int):  # rejected before it sent anything; or closed, or in use, meanwhile
            words = _codec.strerror(status)
            if status == UnsupportedError.status:
                return make(status, f"{words}: {what}")
            if status == BrokenError.status:
                return make(status, "the communicator is closed, or another process made it: make another")
            return make(status, words)
        if status == BrokenError.status:
            return make(status, f"the communicator failed before: {said}. Close it on all ranks, and make another")
        hint = " If ranks may be so late, pass a longer timeout=." if status == TimedOutError.status else ""
        return make(status, f"{said}.{hint} The communicator is broken: close it on all ranks, and make another")

    def _prepared(
        self, kind: int, send: Any, recv: Any, op: str, dtype: Optional[DTypeLike]
    ) -> tuple[Buffer, Memory, int, Any]:
        """The buffer to send, the buffer to receive into, the op, and the result for the caller."""
        buffer = _buffers.read(send, "send", dtype, self._on_gpu)
        code = OPS.get(op, -1)
        if code < 0:
            choice("op", op, OPS)
        d = buffer.dtype
        if kind != ALL_GATHER:
            check_op(op, d)
        if recv is None:
            result, memory = _buffers.fresh(buffer, self._shape(kind, _buffers.shape_of(buffer)), self._on_gpu)
            return buffer, memory, code, result
        n = buffer.n
        if kind == ALL_GATHER:
            n *= self._size
        elif kind == REDUCE_SCATTER:
            if n % (self._size * d.parts):
                raise ValueError(f"send: {n // d.parts} elements, not a multiple of {self._size} ranks")
            n //= self._size
        return buffer, _buffers.written(recv, buffer, n, dtype, self._on_gpu), code, recv

    def _shape(self, kind: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a new array for a result."""
        if kind == ALL_REDUCE:
            return shape
        first, rest = shape[:1] or (1,), shape[1:]
        if kind == ALL_GATHER:
            return (first[0] * self._size, *rest)
        if first[0] % self._size:
            raise ValueError(
                f"send: a shape of {shape}, whose first dimension is not a multiple of {self._size} ranks: pass "
                "send.reshape(-1), or recv"
            )
        return (first[0] // self._size, *rest)

    def _call(self, kind: int, send: Any, recv: Any, op: str, options: Taken) -> Any:
        buffer, memory, code, result = self._prepared(kind, send, recv, op, options.dtype)
        blocks = self._native and (self._permits if options.native is None else options.native)
        self._finish(kind, buffer, memory, code, options, None, blocks)
        return result

    def _start(self, kind: int, send: Any, recv: Any, op: str, options: Taken) -> Request:
        buffer, memory, code, result = self._prepared(kind, send, recv, op, options.dtype)
        return self._begin(kind, buffer, memory, code, options, None, result)

    def _arguments(
        self,
        kind: int,
        buffer: Buffer,
        memory: Memory,
        op: int,
        options: Taken,
        extra: Extra,
        blocks: bool,
    ) -> tuple[Any, ...]:
        """The arguments of _codec.comm_call and comm_start."""
        codec, residual = _values.prepared(options.values, buffer, options.dtype, self._on_gpu)
        driver, opts = self._driver, options.opts
        return driver, kind, buffer.memory, memory, buffer.dtype.code, op, opts, blocks, codec, residual, extra

    def _finish(
        self,
        kind: int,
        buffer: Buffer,
        memory: Memory,
        op: int,
        options: Taken,
        extra: Extra,
        blocks: bool = False,
    ) -> None:
        status = _codec.comm_call(*self._arguments(kind, buffer, memory, op, options, extra, blocks))
        if status:
            raise self._refusal(status, self._asked(kind, options))

    def _begin(
        self,
        kind: int,
        buffer: Buffer,
        memory: Memory,
        op: int,
        options: Taken,
        extra: Extra,
        result: Any,
    ) -> Request:
        flight = _codec.comm_start(*self._arguments(kind, buffer, memory, op, options, extra, False))
        if isinstance(flight, int):
            raise self._refusal(flight, self._asked(kind, options))
        return Request(self, flight, result)
