#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sharded training of a pruned network (FSDP2, torch 2.13 or later), whose collectives go through pici.

    torchrun --nproc_per_node 2 examples/torch_fsdp.py

Each rank keeps a shard of every weight. FSDP2 gathers a layer's weights before it runs, and scatters the sums of its
gradients after it. Of a pruned layer most of both is zero, and pici sends only the rest.
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pici.torch


class PrunedLinear(nn.Linear):
    """A layer whose smallest weights stay zero. The mask is a buffer, which FSDP2 leaves whole on every rank."""

    def __init__(self, inputs, outputs, pruned):
        super().__init__(inputs, outputs)
        size = self.weight.detach().abs()
        self.register_buffer("mask", size > size.flatten().kthvalue(max(1, int(pruned * size.numel()))).values)
        self.weight.data *= self.mask

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.mask, self.bias)  # so the gradient is masked, too


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--steps", type=int, default=60)
arguments.add_argument("--pruned", type=float, default=0.9, help="the fraction of weights that stays zero")
o = arguments.parse_args()

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(0)  # the same weights on every rank
layers = [PrunedLinear(784, 1024, o.pruned), nn.ReLU(), PrunedLinear(1024, 1024, o.pruned), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(1024, 10))

mesh = init_device_mesh("cpu", (ranks,))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
pici.torch.fully_shard(model)  # this is all that changes: the modules' collectives are pici's now

# Each rank trains on digits of its own, which are made up.
made_up = torch.Generator().manual_seed(1)
centres = torch.randn(10, 784, generator=made_up)
y = torch.randint(10, (4096,), generator=made_up)
x = centres[y] + torch.randn(4096, 784, generator=made_up)
x, y = x[rank::ranks], y[rank::ranks]

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(o.steps):
    batch = torch.arange(32 * step, 32 * (step + 1)) % len(x)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")
dist.destroy_process_group()
