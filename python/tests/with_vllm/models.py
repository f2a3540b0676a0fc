# SPDX-License-Identifier: BSD-3-Clause
"""Tiny models that a real vLLM serves on the CPU, and steps of a training that is made up."""
import json
import os
import shutil
import subprocess
import sys
import unittest.mock

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from pici.vllm import _parts  # noqa: E402

_parts.GROUP_BYTES = 50_000  # so that tiny models have several groups

OPTIONS = dict(
    skip_tokenizer_init=True,
    enforce_eager=True,
    dtype="bfloat16",
    max_model_len=128,
    max_num_seqs=4,
    seed=0,
    block_size=32,
)
# the last one is longer than a block: vLLM keeps its keys and values for requests that begin in the same way
PROMPTS = [{"prompt_token_ids": ids} for ids in ([1, 2, 3], [7, 8, 9, 10], [(7 * i + 3) % 499 for i in range(96)])]


def make(folder, tied=False, hidden=64, seed=0):
    """A tiny Llama with random weights, saved as a checkpoint."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return load_file(f"{folder}/model.safetensors")


def stepped(weights, seed, share=0.02, size=0.05):
    """The weights after a step: some of them move."""
    g = torch.Generator().manual_seed(seed)
    return {
        name: (w.float() + size * torch.randn(w.shape, generator=g) * (torch.rand(w.shape, generator=g) < share)).to(
            w.dtype
        )
        for name, w in weights.items()
    }


def saved(folder, like, weights):
    """The checkpoint of a folder with other weights."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(like, folder)
    save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})


def start(folder, backend="pici"):
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    more = {"weight_transfer_config": WeightTransferConfig(backend=backend)} if backend else {}
    return LLM(model=str(folder), **OPTIONS, **more)


def tokens(llm):
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False)
    return [list(o.outputs[0].token_ids) for o in llm.generate(PROMPTS, params, use_tqdm=False)]


def state(llm):
    """Tokens, and hashes of the weights as vLLM has them: on a CPU, of those that are not packed."""
    return [tokens(llm), llm.collective_rpc("compute_weight_checksums")]


def state_of_fresh(folder):
    """The state of a vLLM that is started from a checkpoint: in a process of its own, since the end of one ends what
    all of a process need."""
    done = subprocess.run([sys.executable, __file__, folder], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


class Source:
    """A dict of weights that changes between steps."""

    def __init__(self, weights):
        self.weights = weights

    def __iter__(self):
        return iter(self.weights.items())


def s3(stack):
    """The URL of a folder in a server of S3, which is there until the stack ends. ImportError: there is no moto."""
    import fsspec.config
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    stack.callback(server.stop)
    host, port = server.get_host_and_port()
    options = dict(key="k", secret="s", endpoint_url=f"http://{host}:{port}")
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="bucket")
    stack.enter_context(unittest.mock.patch.dict(fsspec.config.conf, {"s3": options}))
    return "s3://bucket/run"


if __name__ == "__main__":
    print(json.dumps(state(start(sys.argv[1], None))))
