# SPDX-License-Identifier: BSD-3-Clause
"""Sums of the calls' statistics. With PICI_TORCH_STATS=1, a line at the end of the program shows them."""
from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple


class Selected(NamedTuple):
    """A selection's statistics: its seconds, the number of elements, and the number left."""

    elements: int
    nonzeros: int
    seconds: float


class Stats:
    """Sums over calls. Times are in seconds, of this rank's thread of the communicator."""

    def __init__(self) -> None:
        self.calls = 0
        self.wire_bytes = 0  # sent
        self.dense_bytes = 0  # the size of the same messages with dense blocks
        self.packed = 0  # blocks that were sent packed
        self.select_s = 0.0  # top-k
        self.encode_s = 0.0
        self.decode_s = 0.0
        self.wait_s = 0.0
        self.elements = 0  # that top-k selected from
        self.nonzeros = 0  # that were left
        self.events = 0  # how often an element was rounded
        self.lost = 0.0  # the squares of what was rounded off

    def add_call(self, stats: Any) -> None:
        """Add a call of a pici.Comm, from its statistics."""
        self.calls += 1
        self.wire_bytes += stats.wire_bytes
        self.dense_bytes += stats.dense_bytes
        self.packed += stats.sends["packed"]
        self.encode_s += stats.encode_s
        self.decode_s += stats.decode_s
        self.wait_s += stats.wait_s
        self.events += stats.events
        self.lost += stats.lost

    def add_selection(self, selected: Selected) -> None:
        self.elements += selected.elements
        self.nonzeros += selected.nonzeros
        self.select_s += selected.seconds

    def as_dict(self) -> dict[str, float]:
        named = dict(vars(self))
        elements, nonzeros = named.pop("elements"), named.pop("nonzeros")
        named["density"] = nonzeros / elements if elements else 1.0
        return named

    def line(self) -> str:
        saved = f"{self.dense_bytes / self.wire_bytes:.3g} times as much" if self.wire_bytes else "as much"
        line = (
            f"pici.torch: {self.calls} calls, {self.wire_bytes / 1e6:.4g} MB sent, dense {saved}, "
            f"{self.encode_s:.3g} s encoding, {self.decode_s:.3g} s decoding, {self.wait_s:.3g} s waiting"
        )
        if self.elements:
            line += f"; top-k: density {self.nonzeros / self.elements:.3g}, {self.select_s:.3g} s"
        if self.packed:
            line += f"; {self.packed} blocks packed"
        return line


def total(parts: Iterable[Stats]) -> Stats:
    sums = Stats()
    for stats in parts:
        for name, value in vars(stats).items():
            setattr(sums, name, getattr(sums, name) + value)
    return sums


_all: list[Stats] = []


def report_at_exit(stats: Stats) -> None:
    """Print stats in a line at the end of the program."""
    if not _all:
        atexit.register(_report, os.getpid())
    _all.append(stats)


def _report(pid: int) -> None:
    if os.getpid() != pid:  # a fork
        return
    print(total(_all).line(), file=sys.stderr, flush=True)
