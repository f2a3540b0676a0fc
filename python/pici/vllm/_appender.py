# SPDX-License-Identifier: BSD-3-Clause
"""The trainer's half without vLLM: writes weights to a delta log, a folder or URL that trainer and servers share."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Optional

import numpy as np

from ..errors import Error
from ..logs import DeltaLog
from ._parts import Held
from ._stats import Step
from ._stats import log as logger


class Appender:
    """Appends each step to a log. Creates the log, or continues an existing one."""

    def __init__(self, folder: str, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self.run = os.urandom(8).hex()
        self.version = -1
        self._old: dict[str, Held] = {}
        self._open()

    def _open(self) -> None:
        """Continue from the log's newest state."""
        self._old, self.version, self._base = {}, -1, 0
        try:
            self._log: Optional[DeltaLog] = DeltaLog(self._folder)
        except FileNotFoundError:
            self._log = None
        if self._log is not None:
            state, self.version = self._log.load(to="dlpack", threads=self._threads)
            self._old = {name: Held(name, array) for name, array in state.items()}
            self._base = self._log.base
        #: whether _old is the log's newest state
        self._sure = True

    def update(self, pairs: Iterable[tuple[str, Any]], step: Step) -> None:
        """Append the next weights: arrays in host memory. Copies each one before it asks for the next, so pairs may
        come in one buffer. So memory has two copies of all weights, the newest state's and the next one's.
        """
        if not self._sure:
            self._open()
        with step.stage("gather"):
            new: dict[str, Held] = {}
            for name, array in pairs:
                if name in new:
                    raise ValueError(f"tensor {name!r} comes twice")
                new[name] = Held.taken(name, array)
        if not new:
            raise ValueError("there are no weights to send")
        for name in [*new, *self._old] if self._old else []:
            old_meta, new_meta = (held[name].meta if name in held else "none" for held in (self._old, new))
            if old_meta != new_meta:
                raise ValueError(f"{self._folder} has other tensors: of {name!r}, {old_meta}, and not {new_meta}")
        self._sure = False  # until _old has the appended state: an error may come between
        with step.stage("encode"):
            arrays = {name: t.array for name, t in new.items()}
            log = self._log
            if log is not None:
                old = {name: t.array for name, t in self._old.items()}
                self.version = log.append(old, arrays, threads=self._threads)
            else:
                log = self._log = DeltaLog.create(self._folder, arrays, pack="planes", threads=self._threads)
                self.version = 0
        states = log.states()
        step.bytes = states[-1].delta_bytes or log.stored_bytes
        step.kind = "1 delta" if states[-1].delta_bytes else "whole"
        step.version = self.version
        step.elements = sum(t.bits.size for t in new.values())
        step.dense_bytes = sum(t.meta.bytes for t in new.values())
        if not self._old:
            step.changed = step.elements
        else:
            step.changed = sum(int(np.count_nonzero(self._old[name].bits != t.bits)) for name, t in new.items())
        self._old = new
        self._sure = True
        if sum(s.delta_bytes for s in states if s.number > self._base) > states[0].bytes:  # older ones are for readers
            with step.stage("compact"):
                try:
                    log.compact(threads=self._threads)
                    self._base = self.version
                except (Error, OSError) as e:  # the log is valid, only longer; the next step tries again
                    logger.warning("%s was not compacted: %s", self._folder, e)
