#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training whose gradients are averaged by pici: one line more than a program without it.

    torchrun --nproc_per_node 2 examples/torch_ddp.py                  lossless
    torchrun --nproc_per_node 2 examples/torch_ddp.py --density 0.01   the largest 1%, with error feedback
    torchrun --nproc_per_node 2 examples/torch_ddp.py --hook none      torch's own all-reduce

On several hosts: torchrun --nnodes 4 --nproc_per_node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29400 ...
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn

import pici.torch

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--hook", choices=["pici", "none"], default="pici")
arguments.add_argument("--density", type=float, default=1.0, help="below 1: only the largest elements are sent")
arguments.add_argument("--steps", type=int, default=60)
arguments.add_argument("--data", help="a .npz file with x [n, 784] and y [n]; without it, made-up digits")
o = arguments.parse_args()

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(0)  # the same weights on every rank
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
ddp = nn.parallel.DistributedDataParallel(model)

# This is all that changes. The lossless hook gives every rank the same bits, for any gradients. The other hook also
# keeps what it does not send, and adds it to the next gradient. `state` holds that rest, and belongs in checkpoints.
state = None
if o.hook == "pici" and o.density < 1:
    state = pici.torch.TopKState(density=o.density)
    ddp.register_comm_hook(state, pici.torch.topk_hook)
elif o.hook == "pici":
    ddp.register_comm_hook(None, pici.torch.all_reduce_hook)

# Each rank trains on digits of its own: every ranks-th one.
if o.data:
    import numpy as np

    with np.load(o.data) as arrays:
        x, y = torch.from_numpy(arrays["x"]).float() / 255, torch.from_numpy(arrays["y"]).long()
else:
    made_up = torch.Generator().manual_seed(1)
    centres = torch.randn(10, 784, generator=made_up)
    y = torch.randint(10, (4096,), generator=made_up)
    x = centres[y] + torch.randn(4096, 784, generator=made_up)
x, y = x[rank::ranks], y[rank::ranks]

optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(o.steps):
    batch = torch.arange(32 * step, 32 * (step + 1)) % len(x)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(ddp(x[batch]), y[batch])
    loss.backward()  # gradients are averaged while this runs
    optimizer.step()
    if rank == 0 and step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")

# All ranks have the same weights: the sum on rank 0 equals the sum on every rank.
mine = sum(p.detach().double().sum() for p in model.parameters())
first = mine.clone()
dist.broadcast(first, 0)
assert torch.equal(mine, first), f"rank {rank} has other weights than rank 0"

if state is not None:
    # What was not sent yet is this rank's own. Save it as you save the optimizer's state, a file for each rank, and
    # give it back by state.load_state_dict() when you resume.
    saved = state.state_dict(ddp)
    if rank == 0:
        print(f"errors of {len(saved['errors']['rank 0'])} tensors to save; {state.stats()}")
dist.destroy_process_group()
