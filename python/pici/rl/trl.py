# SPDX-License-Identifier: BSD-3-Clause
"""Weights from TRL's AsyncGRPOTrainer to vLLM servers, through pici.vllm.

    trainer = AsyncGRPOTrainer(..., weight_transfer=pici.rl.trl.WeightTransfer("http://server:8000"))

The server, with VLLM_SERVER_DEV_MODE=1:

    vllm serve MODEL --weight-transfer-config '{"backend": "pici"}'

Written for TRL 1.16 (trl/experimental/async_grpo/async_grpo_trainer.py: WeightTransferProtocol). Only its main process
calls this.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional, Union


class _Latest:
    """The iterator that TRL passes to the next send, as a source of weights."""

    def __init__(self) -> None:
        self.pairs: Iterator[tuple[str, Any]] = iter(())

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self.pairs


class WeightTransfer:
    """TRL's WeightTransferProtocol."""

    def __init__(
        self, servers: Union[str, Sequence[str]], *, client: Optional[Callable[[str], Any]] = None, **options: Any
    ) -> None:
        """servers: one URL or several of vLLM servers. client: makes a client from a URL; default: vLLM's
        HTTPVLLMWeightSyncClient. options: of PiciTrainerInitInfo, such as url= and encoding=."""
        self._urls = [servers] if isinstance(servers, str) else list(servers)
        self._client, self._options = client, options
        self._source = _Latest()
        self._clients: list[Any] = []
        self._engine: Any = None

    def init_weight_transfer(self) -> None:
        from ..vllm import PiciTrainerInitInfo, PiciTrainerWeightTransferEngine

        client = self._client
        if client is None:
            from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient

            client = HTTPVLLMWeightSyncClient
        self._clients = [client(url) for url in self._urls]
        info = PiciTrainerInitInfo(rank=0, **self._options)
        self._engine = PiciTrainerWeightTransferEngine.trainer_init(info, client=self._clients, source=self._source)

    def pause(self) -> None:
        """Make the servers hold their requests until resume()."""
        for url in self._urls:
            _post(f"{url}/pause?mode=keep")

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        self._source.pairs = iterator
        try:
            self._engine.send_weights()
        finally:
            self._source.pairs = iter(())

    def resume(self) -> None:
        for url in self._urls:
            _post(f"{url}/resume")

    def destroy(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None


def _post(url: str) -> None:
    import urllib.request

    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=300) as answer:
        answer.read()
