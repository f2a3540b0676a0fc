#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch, and deltas, on tensors of a GPU, with the torch that is installed: a part of a run on a GPU
(tests/gpu/stages).

    torch_first.py [--cpu]

The package comes from the wheel beside this file, or, without one, from where Python finds it; libpici_nccl.so is
beside it too. --cpu: tensors of the host, and gloo in place of NCCL, to see that this program works. Two processes
share the GPU: NCCL lets them because each says that it is a host of its own (NCCL_HOSTID). The last line is "N passed,
N failed"; the exit status is 77 without a GPU.
"""
from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NO_GPU = 77
RANKS = 2
passed = failed = 0


def tally(good: bool, what: str) -> None:
    global passed, failed
    passed += good
    failed += not good
    if not good:
        print("FAIL", what, flush=True)


def attempt(what: str, check: Callable[[], bool]) -> None:
    """A check of which an exception is a failure, and what comes after it goes on."""
    try:
        tally(check(), what)
    except Exception as e:  # of whatever kind: the others are still worth a run
        tally(False, f"{what}: {type(e).__name__}: {e}")


def sample(torch: Any, dtype: Any, device: str, seed: int) -> Any:
    """A tensor of which 90% of the elements are zeros, of a length that is no whole number of tiles."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300_007, generator=generator).to(dtype)
    return torch.where(torch.rand(len(x), generator=generator) < 0.9, torch.zeros((), dtype=dtype), x).to(device)


def same(torch: Any, a: Any, b: Any) -> bool:
    bits = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return bool(torch.equal(a.cpu().view(bits), b.cpu().view(bits)))


def through_dlpack(torch: Any, pici: Any, x: Any, device: str) -> bool:
    back = torch.from_dlpack(pici.decompress(pici.compress(x.cpu()), to="dlpack")).to(device)
    return same(torch, x, back)


def by_kernels(torch: Any, pici: Any, x: Any) -> bool:
    """The kernels' block is the host's, and becomes the tensor again, all in the GPU's memory."""
    library = ctypes.CDLL(str(HERE / "libpici_nccl.so"), mode=ctypes.RTLD_GLOBAL)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.pici_cuda_workspace.restype = size
    dtype = {torch.float32: 1, torch.bfloat16: 4}[x.dtype]
    n, hybrid = x.numel(), 3
    block = pici.compress(x.cpu(), format="hybrid")
    space = library.pici_cuda_workspace(ctypes.c_int(dtype), ctypes.c_uint64(n))
    memory = torch.empty(space, dtype=torch.uint8, device=x.device)
    made = torch.zeros(len(block) + 16, dtype=torch.uint8, device=x.device)
    told = torch.zeros(64, dtype=torch.uint8, device=x.device)
    stream = pointer(torch.cuda.current_stream().cuda_stream)

    def at(tensor: Any) -> ctypes.c_void_p:
        return pointer(tensor.data_ptr())

    status = library.pici_compress_cuda(
        at(made), size(len(made)), at(told), at(x), ctypes.c_uint64(n), ctypes.c_int(dtype), ctypes.c_int(hybrid),
        at(memory), size(space), stream
    )  # fmt: skip
    length = int(told[:8].cpu().view(torch.int64)[0])
    if status or bytes(made[:length].cpu().numpy()) != bytes(block):
        return False
    back = torch.empty_like(x)
    status = library.pici_decompress_cuda(
        at(back), ctypes.c_uint64(n), ctypes.c_int(dtype), at(made), size(length), pointer(), at(told), at(memory),
        size(space), stream
    )  # fmt: skip
    return not status and same(torch, x, back)


def by_deltas(torch: Any, pici: Any, old: Any) -> bool:
    """A small delta that is made where the tensors are is the host's. It is applied there, and it and a block tell what
    changes."""
    new = torch.where(torch.arange(len(old), device=old.device) % 50 == 0, 2 * old, old)
    on_host = old.cpu(), new.cpu()
    small = pici.diff(old, new, small=True, format="hybrid")
    good = small == pici.diff(*on_host, small=True, format="hybrid")
    for delta in (small, pici.diff(*on_host)):
        patched = old.clone()
        at, values = pici.changes(old, delta, to="torch")
        patched[at] = values
        good = good and values.device == old.device and 0 < len(at) < len(old) // 50 and same(torch, patched, new)
    patched = old.clone()
    pici.apply(patched, small)
    return good and same(torch, patched, new)


def rank_main(rank: int, store: str, device: str) -> int:
    """A rank of a training: its averaged gradients are those that the host computes."""
    import torch
    import torch.distributed as dist

    import pici.torch

    on_gpu = device == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(pici.torch.State(), pici.torch.all_reduce_hook)
    inputs = [torch.randn(64, 512, generator=torch.Generator().manual_seed(1 + r)) for r in range(RANKS)]
    seconds = []
    for _ in range(5):
        ddp.zero_grad()
        begin = time.perf_counter()
        ddp(inputs[rank].to(device)).square().sum().backward()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    own = [p.grad.cpu().double() for p in model.parameters()]
    reference = [torch.zeros_like(g) for g in own]
    for x in inputs:
        model.zero_grad()
        model(x.to(device)).square().sum().backward()
        for total, p in zip(reference, model.parameters()):
            total += p.grad.cpu().double() / RANKS
    near = all(torch.allclose(g, r, rtol=1e-4, atol=1e-3) for g, r in zip(own, reference))
    tally(near, f"rank {rank}: gradients averaged by all_reduce_hook")
    if rank == 0:
        print(json.dumps({"what": "a step with all_reduce_hook", "ranks": RANKS, "us": 1e6 * sorted(seconds)[2]}))
    dist.destroy_process_group()
    return failed != 0


def train(device: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(RANKS):
            environment = dict(os.environ, NCCL_HOSTID=f"pici-{os.getpid()}-{rank}", NCCL_SOCKET_IFNAME="lo")
            command = [sys.executable, __file__, "--rank", str(rank), "--store", f"{folder}/store"]
            ranks.append(subprocess.Popen(command + (["--cpu"] if device == "cpu" else []), env=environment))
        for rank, process in enumerate(ranks):
            tally(process.wait() == 0, f"rank {rank} ended with status {process.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    args = parser.parse_args()
    device = "cpu" if args.cpu else "cuda"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        print("skip: no CUDA device: nothing of torch ran on a GPU")
        return NO_GPU
    os.environ.setdefault("PICI_TORCH_CUDA", "1")
    if (HERE / "libpici_nccl.so").exists():
        for name in ("PICI_NCCL_LIBRARY", "PICI_CUDA_LIBRARY"):  # it has the kernels too
            os.environ.setdefault(name, str(HERE / "libpici_nccl.so"))
    with tempfile.TemporaryDirectory() as site:
        for wheel in glob.glob(str(HERE / "pici-*.whl")):
            zipfile.ZipFile(wheel).extractall(site)
            sys.path.insert(0, site)
        if args.rank is not None:
            return rank_main(args.rank, args.store, device)
        import pici

        print(f"torch {torch.__version__}, pici {pici.__version__}, {device}")
        for dtype in (torch.float32, torch.bfloat16):
            x = sample(torch, dtype, device, 5)
            attempt(f"{dtype} through DLPack", lambda x=x: through_dlpack(torch, pici, x, device))
            attempt(f"{dtype} in deltas", lambda x=x: by_deltas(torch, pici, x))
            if device == "cuda":
                attempt(f"{dtype} by the kernels", lambda x=x: by_kernels(torch, pici, x))
        train(device)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
