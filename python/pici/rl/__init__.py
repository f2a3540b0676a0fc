# SPDX-License-Identifier: BSD-3-Clause
"""Weights in training, for frameworks of reinforcement learning, through their own hooks. Each module names the version
of the framework that it was written for, and imports the framework only on use:

    pici.rl.verl        a checkpoint engine, "pici"
    pici.rl.trl         a weight transfer of AsyncGRPOTrainer
    pici.rl.slime       hooks of slime and of SGLang: deltas of checkpoints in folders
    pici.rl.skyrl       compress_bytes() and decompress_bytes() for SkyRL's deltas
    pici.rl.nemo        a transport of NeMo-RL's payloads through a store

docs/reference/weights.md shows each. vLLM itself is served by pici.vllm.
"""
