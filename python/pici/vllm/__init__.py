# SPDX-License-Identifier: BSD-3-Clause
"""pici as a vLLM backend for weights in training: after each step servers get the changes.

The server:

    vllm serve MODEL --weight-transfer-config '{"backend": "pici"}'

The trainer:

    from vllm.distributed.weight_transfer import (
        HTTPVLLMWeightSyncClient, ModuleSource, WeightTransferTrainerFactory)
    engine = WeightTransferTrainerFactory.trainer_init(
        PiciTrainerInitInfo(rank=0, url="tcp://0.0.0.0:0"),
        client=HTTPVLLMWeightSyncClient("http://server:8000"), source=ModuleSource(model))
    engine.send_weights()       # once a step

vLLM (0.29 or later) finds the backend by the entry point "pici" of vllm.general_plugins, which is register() here. This
module imports neither vLLM nor torch. Documentation: docs/reference/weights.md.
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
    """Register the backend "pici" with vLLM, which calls this. A second call changes nothing."""
    factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
    for name, module, engine in (
        ("WeightTransferEngineFactory", "pici.vllm.server", "PiciWeightTransferEngine"),
        ("WeightTransferTrainerFactory", "pici.vllm.trainer", "PiciTrainerWeightTransferEngine"),
    ):
        with contextlib.suppress(ValueError):  # it is registered already
            getattr(factory, name).register_engine("pici", module, engine)


def __getattr__(name: str) -> Any:
    """Import the parts that need vLLM on first use. That registers a trainer: without a server in the process, vLLM
    loads no plugins there."""
    if name in _PLACES:
        if name != "LLMClient":
            register()
        return getattr(importlib.import_module(f"pici.vllm.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'pici.vllm' has no attribute {name!r}")
