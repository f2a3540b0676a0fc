# SPDX-License-Identifier: BSD-3-Clause
"""The trainer's half without vLLM: weights that servers get from a delta log, a folder that both see."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..logs import DeltaLog
from ._parts import Held
from ._stats import Step


class Appender:
    """Appends each step to a log, which is made if it is missing, and continued if it is there."""

    def __init__(self, folder: str, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self.run = os.urandom(8).hex()
        self.version = -1
        self._old: dict[str, Held] = {}
        if _is_log(folder):
            state, self.version = DeltaLog(folder).load(to="dlpack", threads=threads)
            self._old = {name: Held(name, array) for name, array in state.items()}

    def update(self, pairs: Iterable[tuple[str, Any]], step: Step) -> None:
        """Append the next weights: arrays in the host's memory, which are read during the call only."""
        with step.stage("gather"):
            new = {name: Held(name, array) for name, array in pairs}
        if not new:
            raise ValueError("there are no weights to send")
        same = {n: t.meta for n, t in self._old.items()} == {n: t.meta for n, t in new.items()}
        before = _stored(self._folder)
        with step.stage("encode"):
            arrays = {name: t.array for name, t in new.items()}
            if self._old:
                old = {name: t.array for name, t in self._old.items()}
                log = DeltaLog(self._folder)
                self.version = log.append(old, arrays, threads=self._threads)
            else:
                log = DeltaLog.create(self._folder, arrays, pack="planes", threads=self._threads)
                self.version = 0
        states = log.states()
        step.bytes = _stored(self._folder) - before
        step.kind = "1 delta" if states[-1].delta_bytes else "whole"
        step.version = self.version
        step.elements = sum(t.bits.size for t in new.values())
        step.dense_bytes = sum(t.meta.bytes for t in new.values())
        if not same:
            step.changed = step.elements
            self._old = {name: t.copy() for name, t in new.items()}
        else:
            for name, t in new.items():
                count = int(np.count_nonzero(self._old[name].bits != t.bits))
                step.changed += count
                if count:
                    self._old[name].bits[...] = t.bits
        if sum(s.delta_bytes for s in states) > states[0].bytes:
            with step.stage("compact"):
                log.compact(threads=self._threads)


def _stored(folder: str) -> int:
    """The bytes of the files in a folder, if it is there."""
    if not os.path.isdir(folder):
        return 0
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def _is_log(folder: str) -> bool:
    try:
        DeltaLog(folder)
    except OSError:
        return False
    return True
