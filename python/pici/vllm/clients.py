# SPDX-License-Identifier: BSD-3-Clause
"""A client for the trainer's engine: calls a vLLM in this process."""
from __future__ import annotations

from typing import Any, Optional


class LLMClient:
    """Wraps a vllm.LLM of this process, or an object with its methods, as a client of vLLM."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.llm.init_weight_transfer_engine({"init_info": init_info})

    def start_weight_update(self) -> None:
        self.llm.start_weight_update()

    def update_weights(self, update_info: Any) -> None:
        self.llm.update_weights({"update_info": update_info})

    def finish_weight_update(self, weight_version: Optional[str] = None) -> None:
        self.llm.finish_weight_update(weight_version)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        return bool(self.llm.reset_prefix_cache(reset_running_requests))

    def reset_encoder_cache(self) -> None:
        """Drop the results of image and sound encoders."""
        reset = getattr(getattr(self.llm, "llm_engine", None), "reset_encoder_cache", None)
        if reset is not None:
            reset()
