# SPDX-License-Identifier: BSD-3-Clause
"""Weights that are being trained in the frameworks for reinforcement learning, by their own hooks. Each module says of
which version of the framework it was written, and imports nothing of it before it is used:

    pici.rl.verl        a checkpoint engine, "pici"
    pici.rl.trl         a weight transfer of AsyncGRPOTrainer
    pici.rl.slime       hooks of slime and of SGLang: deltas of checkpoints in folders
    pici.rl.skyrl       compress_bytes() and decompress_bytes() for SkyRL's deltas
    pici.rl.nemo        a transport of NeMo-RL's payloads through a store

docs/reference/weights.md shows each. vLLM itself is served by pici.vllm.
"""
