# SPDX-License-Identifier: BSD-3-Clause
"""The calls of a communicator that have a root or counts: broadcast, all_gatherv, all_to_allv. comm.py has more."""
from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Sequence
from typing import Any, Optional, overload

from . import _buffers
from ._arrays import Storage
from ._buffers import Buffer, Memory
from ._calls import Array, Calls, Gathering, Options, Request, Taken, taken, whole
from ._codec import ALL_GATHERV, ALL_TO_ALLV, BROADCAST
from ._kwargs import Unpack, showing


class Gathers(Calls):
    """Methods that Comm inherits."""

    @showing(Gathering)
    def broadcast(self, array: Array, root: int = 0, **options: Unpack[Gathering]) -> Array:
        """Copy the array of rank root into the arrays of all ranks, in place. Returns the array."""
        own = taken("broadcast", Gathering, options)
        buffer = self._spread(array, root, own)
        self._finish(BROADCAST, buffer, buffer.memory, 0, own, root)
        return array

    @showing(Gathering)
    def broadcast_start(self, array: Any, root: int = 0, **options: Unpack[Gathering]) -> Request:
        """broadcast(), nonblocking: returns at once."""
        own = taken("broadcast_start", Gathering, options)
        buffer = self._spread(array, root, own)
        return self._begin(BROADCAST, buffer, buffer.memory, 0, own, root, array)

    @overload
    def all_gatherv(
        self,
        send: Storage,
        counts: Sequence[int],
        recv: None = ...,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Gathering],
    ) -> Storage:
        ...

    @overload
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: None = ...,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Gathering],
    ) -> Any:
        ...

    @overload
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Array,
        displs: Optional[Sequence[int]] = ...,
        **options: Unpack[Gathering],
    ) -> Array:
        ...

    @showing(Gathering)
    def all_gatherv(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Any = None,
        displs: Optional[Sequence[int]] = None,
        **options: Unpack[Gathering],
    ) -> Any:
        """Gather the arrays of all ranks, which may differ in length, on all ranks. counts: the number of elements of
        each rank's array, possibly 0; the same on all ranks. Arrays follow each other by rank, joined along the first
        dimension, in a new array or in recv. displs: the elements of recv where the arrays begin instead; may differ
        from rank to rank. All other elements of recv stay unchanged."""
        own = taken("all_gatherv", Gathering, options)
        buffer, memory, result, extra = self._varied(send, counts, recv, displs, own)
        self._finish(ALL_GATHERV, buffer, memory, 0, own, extra)
        return result

    @showing(Gathering)
    def all_gatherv_start(
        self,
        send: Any,
        counts: Sequence[int],
        recv: Any = None,
        displs: Optional[Sequence[int]] = None,
        **options: Unpack[Gathering],
    ) -> Request:
        """all_gatherv(), nonblocking: returns at once."""
        own = taken("all_gatherv_start", Gathering, options)
        buffer, memory, result, extra = self._varied(send, counts, recv, displs, own)
        return self._begin(ALL_GATHERV, buffer, memory, 0, own, extra, result)

    @overload
    def all_to_allv(
        self,
        send: Storage,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: None = ...,
        sdispls: Optional[Sequence[int]] = ...,
        rdispls: Optional[Sequence[int]] = ...,
        **options: Unpack[Options],
    ) -> Storage:
        ...

    @overload
    def all_to_allv(
        self,
        send: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: None = ...,
        sdispls: Optional[Sequence[int]] = ...,
        rdispls: Optional[Sequence[int]] = ...,
        **options: Unpack[Options],
    ) -> Any:
        ...

    @overload
    def all_to_allv(
        self,
        send: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: Array,
        sdispls: Optional[Sequence[int]] = ...,
        rdispls: Optional[Sequence[int]] = ...,
        **options: Unpack[Options],
    ) -> Array:
        ...

    @showing(Options)
    def all_to_allv(
        self,
        send: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: Any = None,
        sdispls: Optional[Sequence[int]] = None,
        rdispls: Optional[Sequence[int]] = None,
        **options: Unpack[Options],
    ) -> Any:
        """Send sendcounts[i] elements to rank i, from element sdispls[i] of send on, and receive recvcounts[i] elements
        from it: that rank's sendcounts entry for this rank. Without sdispls, runs follow each other in send. Without
        rdispls, received runs follow each other, joined along the first dimension, in a new array or in recv. All other
        elements of recv stay unchanged. Not in place."""
        own = taken("all_to_allv", Options, options)
        buffer, memory, result, extra = self._exchanged(send, sendcounts, recvcounts, recv, sdispls, rdispls, own)
        self._finish(ALL_TO_ALLV, buffer, memory, 0, own, extra)
        return result

    @showing(Options)
    def all_to_allv_start(
        self,
        send: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: Any = None,
        sdispls: Optional[Sequence[int]] = None,
        rdispls: Optional[Sequence[int]] = None,
        **options: Unpack[Options],
    ) -> Request:
        """all_to_allv(), nonblocking: returns at once."""
        own = taken("all_to_allv_start", Options, options)
        buffer, memory, result, extra = self._exchanged(send, sendcounts, recvcounts, recv, sdispls, rdispls, own)
        return self._begin(ALL_TO_ALLV, buffer, memory, 0, own, extra, result)

    def _spread(self, array: Any, root: int, options: Taken) -> Buffer:
        whole("root", root, 0, self._size - 1)
        buffer = _buffers.read(array, "array", options.dtype, self._on_gpu)
        if buffer.fixed:
            raise ValueError(f"array: {buffer.fixed}")
        return buffer

    def _varied(
        self, send: Any, counts: Sequence[int], recv: Any, displs: Optional[Sequence[int]], options: Taken
    ) -> tuple[Buffer, Memory, Any, bytes]:
        """The buffer to send, the buffer to receive into, the result for the caller, counts and displs in stored
        elements.
        """
        buffer = _buffers.read(send, "send", options.dtype, self._on_gpu)
        parts = buffer.dtype.parts
        lengths = self._of_ranks("counts", counts)
        if buffer.n // parts != lengths[self._rank]:
            raise ValueError(f"send: {buffer.n // parts} elements, not the {lengths[self._rank]} of this rank's counts")
        if displs is not None and recv is None:
            raise ValueError("displs: pass recv too, since what lies between the arrays is left alone")
        first = self._firsts("displs", lengths, displs)
        extra = struct.pack(f"={2 * self._size}Q", *(parts * n for n in lengths), *(parts * n for n in first))
        memory, result = self._received(buffer, ("counts", "displs"), lengths, first, recv, displs is None, options)
        return buffer, memory, result, extra

    def _exchanged(
        self,
        send: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int],
        recv: Any,
        sdispls: Optional[Sequence[int]],
        rdispls: Optional[Sequence[int]],
        options: Taken,
    ) -> tuple[Buffer, Memory, Any, bytes]:
        """The buffer to send, the buffer to receive into, and the result for the caller. Then, in stored elements, the
        counts and displs of the received and of the sent elements.
        """
        buffer = _buffers.read(send, "send", options.dtype, self._on_gpu)
        parts = buffer.dtype.parts
        out, into = self._of_ranks("sendcounts", sendcounts), self._of_ranks("recvcounts", recvcounts)
        if out[self._rank] != into[self._rank]:
            raise ValueError(
                f"sendcounts[{self._rank}] is {out[self._rank]} and recvcounts[{self._rank}] {into[self._rank]}, "
                "of this rank itself"
            )
        if rdispls is not None and recv is None:
            raise ValueError("rdispls: pass recv too, since what lies between the arrays is left alone")
        from_, to = self._firsts("sdispls", out, sdispls), self._firsts("rdispls", into, rdispls)
        end = max((a + n for a, n in zip(from_, out) if n), default=0)
        if end * parts > buffer.n or (sdispls is None and end * parts != buffer.n):
            raise ValueError(f"send: {buffer.n // parts} elements, and sendcounts and sdispls reach to {end}")
        numbers = [parts * n for n in (*into, *to, *out, *from_)]
        memory, result = self._received(buffer, ("recvcounts", "rdispls"), into, to, recv, rdispls is None, options)
        return buffer, memory, result, struct.pack(f"={len(numbers)}Q", *numbers)

    def _firsts(self, name: str, lengths: list[int], displs: Optional[Sequence[int]]) -> list[int]:
        return [0, *itertools.accumulate(lengths)][:-1] if displs is None else self._of_ranks(name, displs)

    def _received(
        self,
        buffer: Buffer,
        names: tuple[str, str],
        lengths: list[int],
        first: list[int],
        recv: Any,
        joined: bool,
        options: Taken,
    ) -> tuple[Memory, Any]:
        """The buffer for arrays of these lengths, and the result for the caller. names: of counts and displs."""
        total, parts = sum(lengths), buffer.dtype.parts
        if recv is None:
            shape = _buffers.shape_of(buffer)
            row = math.prod(shape[1:])
            if total % (row or 1):
                raise ValueError(f"{names[0]}: {total} elements, no multiple of the {row} of a row of send: pass recv")
            result, memory = _buffers.fresh(buffer, (total // (row or 1), *shape[1:]), self._on_gpu)
            return memory, result
        room = total * parts
        if not joined:
            room = _buffers.read(recv, "recv", options.dtype, self._on_gpu).n
            end = max((a + n for a, n in zip(first, lengths) if n), default=0)
            if end * parts > room:
                raise ValueError(f"recv: {room // parts} elements, and {names[0]} and {names[1]} reach to {end}")
        return _buffers.written(recv, buffer, room, options.dtype, self._on_gpu), recv

    def _of_ranks(self, name: str, values: Sequence[int]) -> list[int]:
        if len(values) != self._size:
            raise ValueError(f"{name}: {len(values)} numbers for {self._size} ranks")
        return [whole(f"{name}[{i}]", operator.index(n), 0, 2**48) for i, n in enumerate(values)]
