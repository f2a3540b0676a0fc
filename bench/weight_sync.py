#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What it takes to bring a step's weights to vLLM: bytes for each weight that changed, and seconds by stage.

    VLLM_ENABLE_V1_MULTIPROCESSING=0 python bench/weight_sync.py [--hidden 1024] [--layers 8] [--encoding small]

A Llama with random weights (bf16), served by a vLLM in this process over a socket of loopback. Each step moves each
weight of an f32 copy by about the rate, as Adam does. Beside it: the bytes of positions (int32) with values, and of all
weights, and how long each takes over a link of 200 Mbit/s. Needs vLLM, transformers and pici.
"""
import argparse
import os
import tempfile

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: E402
from vllm import LLM  # noqa: E402
from vllm.config import WeightTransferConfig  # noqa: E402
from vllm.distributed.weight_transfer import WeightTransferTrainerFactory  # noqa: E402

from pici.vllm import LLMClient, PiciTrainerInitInfo  # noqa: E402

LINK = 200e6 / 8  # bytes a second


def checkpoint(folder, hidden, layers):
    size = dict(hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, vocab_size=16384)
    config = LlamaConfig(num_attention_heads=hidden // 64, num_key_value_heads=hidden // 128, eos_token_id=None, **size)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return {name: w.detach().float() for name, w in model.named_parameters()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--steps", type=int, default=3, help="at each rate (%(default)s)")
    p.add_argument("--rates", type=float, nargs="+", default=[1e-6, 3e-6, 1e-5])
    p.add_argument("--encoding", default="small")
    p.add_argument("--threads", type=int, default=2)
    o = p.parse_args()
    folder = tempfile.TemporaryDirectory()
    master = checkpoint(folder.name, o.hidden, o.layers)
    weights = {name: w.bfloat16() for name, w in master.items()}
    options = dict(skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16", max_model_len=128, max_num_seqs=4)
    llm = LLM(folder.name, weight_transfer_config=WeightTransferConfig(backend="pici"), **options)

    class Source:
        def __iter__(self):
            return iter(weights.items())

    info = PiciTrainerInitInfo(rank=0, url="tcp://127.0.0.1:0", encoding=o.encoding, threads=o.threads)
    sync = WeightTransferTrainerFactory.trainer_init(info, client=LLMClient(llm), source=Source())
    engine = llm.llm_engine.model_executor.driver_worker.worker.weight_transfer_engine
    print(f"{sum(w.numel() for w in weights.values())} weights, {o.encoding}, {o.threads} threads")
    print("                                        | seconds: trainer        | server")
    print("rate      changed  bytes/changed    bytes  | gather encode   send  | receive verify   load")
    torch.manual_seed(1)
    for rate in [0.0] + [rate for rate in o.rates for _ in range(o.steps)]:
        for name, w in master.items():
            if rate:
                w.sub_(rate * torch.randn(w.shape).clamp_(-3, 3))
                weights[name].copy_(w)
        sync.send_weights()
        step, at_server = sync.step, engine._step.seconds
        t = step.seconds
        names = ("receive", "verify", "load")
        print(
            f"{rate or 'whole':<8}  {step.changed / step.elements:7.2%}  {step.bytes / max(step.changed, 1):13.3f} "
            f"{step.bytes:9} | {t['gather']:6.2f} {t.get('encode', 0):6.2f} {t['send']:6.2f}  |  "
            + " ".join(f"{at_server.get(name, 0):6.2f}" for name in names),
            flush=True,
        )
        if rate:
            others = {"pici": step.bytes, "int32 + bf16": 6 * step.changed, "all": step.dense_bytes}
            print("    over 200 Mbit/s: " + ", ".join(f"{name} {n / LINK:.2f} s" for name, n in others.items()))
    sync.shutdown()


if __name__ == "__main__":
    main()
