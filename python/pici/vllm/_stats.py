# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of a step, for logging. PICI_STATS=1 also prints a line for each on standard error."""
from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("pici.vllm")


class Step:
    """Bytes and seconds of one update."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.version = -1
        self.kind = ""
        self.bytes = 0  # sent or received
        self.dense_bytes = 0  # of all weights
        self.changed = 0  # elements
        self.elements = 0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def line(self) -> str:
        parts = [f"{self.who}: version {self.version}" + (f", {self.kind}" if self.kind else "")]
        if self.elements:
            parts.append(f"{self.changed / self.elements:.3%} of {self.elements} weights changed")
        of = f" of {self.dense_bytes}" if self.dense_bytes else ""
        parts.append(f"{self.bytes}{of} bytes")
        parts += [f"{name} {seconds:.3f} s" for name, seconds in self.seconds.items()]
        return ", ".join(parts)

    def report(self) -> None:
        line = self.line()
        log.info("%s", line)
        if os.environ.get("PICI_STATS") == "1":
            print(f"pici.vllm: {line}", file=sys.stderr, flush=True)
