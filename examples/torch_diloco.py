#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Local SGD: ranks train by themselves, and average what they have learned after every 20 steps (DiLoCo).

    torchrun --nproc_per_node 4 examples/torch_diloco.py                        changes of the weights, exactly
    torchrun --nproc_per_node 4 examples/torch_diloco.py --method bits          of 4 bits
    torchrun --nproc_per_node 4 examples/torch_diloco.py --method sparseloco    the largest 2%, of 2 bits
    torchrun --nproc_per_node 4 examples/torch_diloco.py --method ddp           gradients in each step, by gloo
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn

import pici.torch

methods = ["dense", "bits", "topk", "sparseloco", "visible", "ddp"]
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--method", choices=methods, default="dense")
arguments.add_argument("--inner-steps", type=int, default=20)
arguments.add_argument("--steps", type=int, default=600)
arguments.add_argument("--fragments", type=int, default=1)
arguments.add_argument("--overlap", type=int, default=0)
arguments.add_argument("--bits", type=int)
arguments.add_argument("--density", type=float)
arguments.add_argument("--momentum", type=float)
arguments.add_argument("--lr", type=float)
arguments.add_argument("--seed", type=int, default=0)
o = arguments.parse_args()

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(o.seed)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
trained = nn.parallel.DistributedDataParallel(model) if o.method == "ddp" else model

# This is all that changes: the object here, and outer.step() after each step of the optimizer.
outer = None
if o.method != "ddp":
    options = {"fragments": o.fragments, "overlap": o.overlap, "bits": o.bits, "density": o.density}
    outer = pici.torch.Outer(model, o.inner_steps, method=o.method, momentum=o.momentum, lr=o.lr, **options)

task = torch.randn(64, 10, generator=torch.Generator().manual_seed(5))


def batch(generator):
    """Made-up inputs, and the class of each."""
    x = torch.randn(64, 64, generator=generator)
    return x, ((x @ task) + 0.5 * torch.tanh(x) @ task.flip(1)).argmax(1)


optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
own = torch.Generator().manual_seed(1000 * o.seed + rank)  # each rank has inputs of its own
for step in range(o.steps):
    x, y = batch(own)
    optimizer.zero_grad()
    nn.functional.cross_entropy(trained(x), y).backward()
    optimizer.step()
    if outer:
        outer.step()
if outer:
    outer.finish()

test = torch.Generator().manual_seed(99)
right = sum((model(x).argmax(1) == y).float().mean().item() for x, y in (batch(test) for _ in range(20))) / 20
if rank == 0:
    sent = f", {outer.stats()['wire_bytes'] / 1e6:.2f} MB sent" if outer else ""
    print(f"{o.method}: {100 * right:.1f}% right{sent}")
dist.destroy_process_group()
