# SPDX-License-Identifier: BSD-3-Clause
"""pici as a backend of vLLM for weights that are being trained: after each step servers get what changed.

The server:     vllm serve MODEL --weight-transfer-config '{"backend": "pici"}'

The trainer:    from vllm.distributed.weight_transfer import (
                    HTTPVLLMWeightSyncClient, ModuleSource, WeightTransferTrainerFactory)
                engine = WeightTransferTrainerFactory.trainer_init(
                    PiciTrainerInitInfo(rank=0, url="tcp://0.0.0.0:0"),
                    client=HTTPVLLMWeightSyncClient("http://server:8000"), source=ModuleSource(model))
                engine.send_weights()       # once a step

vLLM (0.29 or later) finds the backend by the entry point "pici" of vllm.general_plugins, which is register() here.
Importing this imports neither vLLM nor torch; docs/reference/weights.md is its page.
"""
from __future__ import annotations

import contextlib
import importlib
from typing import Any

_PLACES = {
    "PiciTrainerInitInfo": "trainer",
    "PiciTrainerWeightTransferEngine": "trainer",
    "SendError": "trainer",
    "PiciInitInfo": "server",
    "PiciUpdateInfo": "server",
    "PiciWeightTransferEngine": "server",
    "LLMClient": "clients",
}

__all__ = ["register", *_PLACES]


def register() -> None:
    """Make the backend "pici" known to vLLM; vLLM calls it. Calling it again changes nothing."""
    factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
    for name, module, engine in (
        ("WeightTransferEngineFactory", "pici.vllm.server", "PiciWeightTransferEngine"),
        ("WeightTransferTrainerFactory", "pici.vllm.trainer", "PiciTrainerWeightTransferEngine"),
    ):
        with contextlib.suppress(ValueError):  # it is registered already
            getattr(factory, name).register_engine("pici", module, engine)


def __getattr__(name: str) -> Any:
    """What needs vLLM is imported when it is first used. A trainer is registered by that: without a server in its
    process, vLLM loads no plugins there."""
    if name in _PLACES:
        if name != "LLMClient":
            register()
        return getattr(importlib.import_module(f"pici.vllm.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'pici.vllm' has no attribute {name!r}")
