#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reinforcement learning in a loop: vLLM writes, torch learns, and pici brings each step's weights to vLLM.

    VLLM_ENABLE_V1_MULTIPROCESSING=0 python examples/rl_sync.py [MODEL] [--steps 8]

MODEL is a folder with a checkpoint; without one, a tiny Llama with random weights is made. The reward is a toy: the
share of tokens below 256. Needs vLLM, transformers and pici. docs/reference/weights.md has the same for servers on
other hosts.
"""
import argparse
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from vllm import LLM, SamplingParams
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer import ModuleSource, WeightTransferTrainerFactory

from pici.vllm import LLMClient, PiciTrainerInitInfo

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("model", nargs="?")
p.add_argument("--steps", type=int, default=8)
p.add_argument("--rate", type=float, default=2e-5, help="of Adam (%(default)s)")
o = p.parse_args()
if o.model is None:
    o.model = tempfile.mkdtemp(prefix="rl_sync-")
    size = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4)
    tiny = LlamaConfig(vocab_size=512, num_key_value_heads=2, eos_token_id=None, initializer_range=0.1, **size)
    AutoModelForCausalLM.from_config(tiny).to(torch.bfloat16).save_pretrained(o.model)

server = LLM(o.model, skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16", max_model_len=64,
             weight_transfer_config=WeightTransferConfig(backend="pici"))  # fmt: skip
policy = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32)
sync = WeightTransferTrainerFactory.trainer_init(
    PiciTrainerInitInfo(rank=0, url="tcp://127.0.0.1:0", convert=lambda name, w: w.to(torch.bfloat16)),
    client=LLMClient(server), source=ModuleSource(policy))  # fmt: skip
optimizer = torch.optim.AdamW(policy.parameters(), lr=o.rate)
prompts = [{"prompt_token_ids": [i, i + 1, i + 2]} for i in range(16)]
for step in range(o.steps + 1):
    began = time.perf_counter()
    sync.send_weights()  # this is the line: the first sends all, the others what changed
    seconds, sent = time.perf_counter() - began, sync.step
    out = server.generate(prompts, SamplingParams(max_tokens=24, seed=step, detokenize=False), use_tqdm=False)
    tokens = torch.tensor([r.prompt_token_ids + list(r.outputs[0].token_ids) for r in out])
    reward = (tokens[:, 3:] < 256).float().mean(1)
    chosen = policy(tokens).logits[:, 2:-1].log_softmax(-1).gather(2, tokens[:, 3:, None]).squeeze(2)
    loss = -(chosen.sum(1) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: reward {reward.mean():.3f}; {sent.changed / sent.elements:.2%} of the weights changed, "
          f"{sent.bytes} bytes of {sent.dense_bytes} in {seconds:.3f} s", flush=True)  # fmt: skip
sync.shutdown()
