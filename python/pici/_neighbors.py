# SPDX-License-Identifier: BSD-3-Clause
"""Neighbourhood all-gathers: plans, and the calls on them. Comm.neighbors() makes a plan."""
from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Optional, TypedDict, overload

from . import _buffers, _codec
from ._arrays import Storage
from ._buffers import Buffer, Memory
from ._calls import BUSY, CLOSED, Array, Request, Taken, Timeout, choice, taken, whole
from ._codec import NEIGHBOR_ALL_GATHER, NEIGHBOR_ALL_GATHERV
from ._dtypes import DTypeLike
from ._gathers import Gathers
from ._kwargs import Unpack, no_pickle, showing
from ._values import ValuesLike
from .errors import BrokenError, make

__all__ = ["NeighborInfo", "Neighbors"]

ROUTES = {"auto": 0, "direct": 1, "halving": 2}
LEVELS = {"node": 0, "socket": 1, "numa": 2}
_REGION = 3
_MOST = 2**31 - 1


class Neighboring(TypedDict, total=False):
    """Options of the calls on a plan."""

    dtype: Optional[DTypeLike]
    format: Optional[str]
    timeout: Optional[Timeout]
    pack: Optional[str]
    values: Optional[ValuesLike]


@dataclass(frozen=True)
class NeighborInfo:
    """The messages of a plan: totals of all ranks, for one call with one slice. struct pici_neighbor_info in
    pici/neighbor.h describes each member.
    """

    route: str
    steps: int
    edges: int
    messages: int
    inter_messages: int
    most_messages: int
    blocks: int
    inter_blocks: int
    least_inter: int
    widest: int
    offloads: int
    own_messages: int
    own_blocks: int
    hash: int
    seconds: float
    regions: int
    region_messages: int
    region_blocks: int


class Neighbors:
    """A plan of neighbourhood all-gathers, made by Comm.neighbors(). A rank receives the arrays of its sources, in the
    order in which it listed them. The calls have some options of help(pici.comm): dtype, format, timeout, pack, values.
    An error makes the call fail on the ranks that depend on it; others may return.
    """

    def __init__(self) -> None:
        raise TypeError("Neighbors() cannot be called: use Comm.neighbors")

    _comm: Gathers
    _plan: Any
    _sources: int

    @classmethod
    def _of(
        cls,
        comm: Gathers,
        sources: Iterable[int],
        destinations: Iterable[int],
        route: str,
        numbers: tuple[int, ...],
        level: str,
        region: Optional[int],
    ) -> Neighbors:
        def listed(name: str, ranks: Iterable[int]) -> tuple[int, ...]:
            return tuple(whole(f"a rank of {name}", operator.index(r), 0, comm._size - 1) for r in ranks)

        into, out = listed("sources", sources), listed("destinations", destinations)
        most, leaf, gain = numbers
        whole("most_bytes", most, 0, 2**63 - 1)
        whole("leaf", leaf, 0, _MOST)
        whole("gain", gain, 0, _MOST)
        by = choice("level", level, LEVELS)
        if region is not None and by:
            raise ValueError(f"level {level!r} finds the region of each rank: pass region alone")
        number = 0 if region is None else whole("region", operator.index(region), -(2**31), _MOST)
        way = choice("route", route, ROUTES)
        made = _codec.neighbors_new(
            comm._driver, into, out, way, most, leaf, gain, by if region is None else _REGION, number
        )
        if isinstance(made, int):
            if made in (BUSY, CLOSED) or made == BrokenError.status:
                raise comm._refusal(made)
            said = _codec.comm_error(comm._driver)
            raise make(made, said if isinstance(said, str) and said else _codec.strerror(made))
        self = cls.__new__(cls)
        self._comm, self._plan, self._sources = comm, made, len(into)
        return self

    @property
    def info(self) -> NeighborInfo:
        """The messages of the plan."""
        route, *rest = _codec.neighbors_info(self._plan)
        numbers: Any = rest
        return NeighborInfo(list(ROUTES)[route], *numbers)

    @overload
    def all_gather(self, send: Storage, recv: None = ..., **options: Unpack[Neighboring]) -> Storage:
        ...

    @overload
    def all_gather(self, send: Any, recv: None = ..., **options: Unpack[Neighboring]) -> Any:
        ...

    @overload
    def all_gather(self, send: Any, recv: Array, **options: Unpack[Neighboring]) -> Array:
        ...

    @showing(Neighboring)
    def all_gather(self, send: Any, recv: Any = None, **options: Unpack[Neighboring]) -> Any:
        """The arrays of all sources, one after the other, joined along the first dimension. All ranks send equally
        many elements. Not in place."""
        own = taken("all_gather", Neighboring, options)
        buffer, memory, result = self._equal(send, recv, own)
        self._comm._finish(NEIGHBOR_ALL_GATHER, buffer, memory, 0, own, (self._plan, None))
        return result

    @showing(Neighboring)
    def all_gather_start(self, send: Any, recv: Any = None, **options: Unpack[Neighboring]) -> Request:
        """all_gather(), nonblocking: returns at once."""
        own = taken("all_gather_start", Neighboring, options)
        buffer, memory, result = self._equal(send, recv, own)
        return self._comm._begin(NEIGHBOR_ALL_GATHER, buffer, memory, 0, own, (self._plan, None), result)

    @overload
    def all_gatherv(
        self,
        send: Storage,
        counts: Sequence[int],
        recv: None = ...,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Neighboring],
    ) -> Storage:
        ...

    @overload
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: None = ...,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Neighboring],
    ) -> Any:
        ...

    @overload
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Array,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Neighboring],
    ) -> Array:
        ...

    @showing(Neighboring)
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Any = None,
        displs: Optional[Sequence[int]] = None,
        **options: Unpack[Neighboring],
    ) -> Any:
        """The arrays of all sources, which may differ in length. counts: how many elements each source sends. The
        arrays follow each other, as in all_gather(). With displs, array i begins at element displs[i] of recv instead,
        and all other elements of recv stay unchanged.
        """
        own = taken("all_gatherv", Neighboring, options)
        buffer, memory, result, extra = self._varied(send, counts, recv, displs, own)
        self._comm._finish(NEIGHBOR_ALL_GATHERV, buffer, memory, 0, own, (self._plan, extra))
        return result

    @showing(Neighboring)
    def all_gatherv_start(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Any = None,
        displs: Optional[Sequence[int]] = None,
        **options: Unpack[Neighboring],
    ) -> Request:
        """all_gatherv(), nonblocking: returns at once."""
        own = taken("all_gatherv_start", Neighboring, options)
        buffer, memory, result, extra = self._varied(send, counts, recv, displs, own)
        return self._comm._begin(NEIGHBOR_ALL_GATHERV, buffer, memory, 0, own, (self._plan, extra), result)

    def _equal(self, send: Any, recv: Any, options: Taken) -> tuple[Buffer, Memory, Any]:
        buffer = _buffers.read(send, "send", options.dtype)
        if recv is None:
            first, *rest = _buffers.shape_of(buffer) or (1,)
            result, memory = _buffers.fresh(buffer, (first * self._sources, *rest))
            return buffer, memory, result
        return buffer, _buffers.written(recv, buffer, buffer.n * self._sources, options.dtype), recv

    def _varied(
        self, send: Any, counts: Sequence[int], recv: Any, displs: Optional[Sequence[int]], options: Taken
    ) -> tuple[Buffer, Memory, Any, bytes]:
        """The buffer to send, the buffer to receive into, the result for the caller, counts and displs in stored
        elements.
        """
        buffer = _buffers.read(send, "send", options.dtype)
        parts = buffer.dtype.parts
        lengths = self._of_sources("counts", counts)
        if displs is not None and recv is None:
            raise ValueError("displs: pass recv too, since what lies between the arrays is left alone")
        first = [0, *itertools.accumulate(lengths)][:-1] if displs is None else self._of_sources("displs", displs)
        extra = struct.pack(f"={2 * self._sources}Q", *(parts * n for n in lengths), *(parts * n for n in first))
        names = ("counts", "displs")
        memory, result = self._comm._received(buffer, names, lengths, first, recv, displs is None, options)
        return buffer, memory, result, extra

    def _of_sources(self, name: str, values: Sequence[int]) -> list[int]:
        if len(values) != self._sources:
            raise ValueError(f"{name}: {len(values)} numbers for {self._sources} sources")
        return [whole(f"{name}[{i}]", operator.index(n), 0, 2**48) for i, n in enumerate(values)]

    def __reduce__(self) -> NoReturn:
        no_pickle(self, "make one in each process")

    def __repr__(self) -> str:
        return f"<pici.Neighbors of {self._comm!r}, {self._sources} sources>"
