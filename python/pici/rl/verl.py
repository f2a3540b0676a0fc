# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint engine for verl: rollouts get changes, as small deltas over sockets.

    actor_rollout_ref.rollout.checkpoint_engine.backend=pici
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=pici.rl.verl

Rank 0 of the trainer sends. Each rollout worker keeps a copy of the weights in host memory, and yields all of them to
verl's loader. Options, in engine_kwargs.pici: host, which rollouts connect to, if the detected one is wrong; threads;
timeout, in seconds, for a step.

Names were read from verl-project/verl at 065ef9bf (verl/checkpoint_engine/base.py).
"""
from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Optional

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from ..vllm import _wire
from ..vllm._parts import SMALL, OnGpu
from ..vllm._publisher import Publisher, Weights
from ..vllm._replica import Refused, Replica, Source
from ..vllm._stats import Step


@CheckpointEngineRegistry.register("pici")
class PiciCheckpointEngine(CheckpointEngine):
    """The engine of a trainer's rank, or of a rollout worker."""

    def __init__(
        self,
        bucket_size: int = 0,
        is_master: bool = False,
        host: str = "",
        threads: int = 2,
        timeout: float = 600.0,
        to: str = "torch",
        **others: Any,
    ) -> None:
        """bucket_size: ignored; others: arguments of later versions of verl."""
        self.is_master = is_master
        self._host, self._threads, self._timeout = host, threads, timeout
        self._replica = Replica(SMALL, to, threads)
        self._source: Optional[Source] = None
        self._weights: Optional[Weights] = None
        self._publisher: Optional[Publisher] = None
        self._token = ""
        #: what the last step took
        self.step = Step("verl")

    def prepare(self) -> dict[str, Any]:
        """On the master: the address of the next weights, and their version."""
        if not self.is_master:
            return {}
        if self._weights is None or self._publisher is None:
            self._token = secrets.token_hex(16)
            self._weights = Weights(SMALL, self._threads)
            self._publisher = Publisher(self._weights, "0.0.0.0", 0, self._token)
        host = self._host or socket.gethostbyname(socket.gethostname())
        url = _wire.spelled("tcp", host, self._publisher.port)
        return {"url": url, "token": self._token, "run": self._weights.run, "version": self._weights.version + 1}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Every rollout worker connects to the master."""
        masters = [m for m in metadata[:actor_wg_world_size] if m]
        if len(masters) != 1:
            raise ValueError(f"{len(masters)} of {actor_wg_world_size} ranks of the trainer are masters, and not one")
        return {"master": [None] * actor_wg_world_size}, {"master": masters * rollout_world_size}

    def init_process_group(self, master: Optional[dict[str, Any]] = None, **others: Any) -> None:
        if master is not None:
            run, version = str(master["run"]), int(master["version"])
            self._source = Source(str(master["url"]), str(master["token"]), secrets.token_hex(8), run, version)

    def finalize(self) -> None:
        """Do nothing: the trainer keeps its socket, and rollouts their copies."""

    async def send_weights(self, weights: Iterable[tuple[str, Any]], global_steps: Optional[int] = None) -> None:
        """Take the next weights. Ranks that are not the master iterate only, as gathering needs."""
        if self._weights is None or self._publisher is None:
            for _ in weights:
                pass
            return
        step = self.step = Step("verl")
        with self._publisher.held_back():
            self._weights.update(_on_host(weights), step)
        step.report()

    async def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[tuple[str, Any]]:
        """All weights, after every hash was checked."""
        assert self._source is not None, "init_process_group() comes before"
        step = self.step = Step("verl rollout")
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                update = await asyncio.to_thread(self._replica.fetch, self._source, lambda metas: None, step)
                break
            except (Refused, OSError) as e:  # the trainer has not got so far, or the whole state is next
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._source.url}: no version {self._source.version}: {e}") from e
                await asyncio.sleep(0.2)
        self._replica.switch(update)
        self._replica.commit(update)
        step.version, step.kind = update.version, update.kind
        step.report()
        for name, x in self._replica.items():
            yield name, x


def _on_host(weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, tensor in weights:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach()
            host = tensor.cpu()
            tensor = host if host is tensor else OnGpu(host)
        yield name, tensor
