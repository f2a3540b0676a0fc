#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Steps of DistributedDataParallel with a large embedding; a batch touches few of its rows. Runs over pici, over gloo
with sparse gradients, and over gloo with dense ones, in turn. One rank of several.

    torchrun --nproc_per_node 4 bench/embedding.py                           ranks on this host, over loopback
    bench/net with 4 200mbit bench/net start 4 env GLOO_SOCKET_IFNAME=eth0 PICI_SOCKET_IFNAME=eth0 \\
        python bench/embedding.py                                            hosts (root)

Needs torch 2.14 or later, and the package pici (or PYTHONPATH and PICI_LIBRARY). A step is forward, backward with the
average of the gradient, and SGD, from a barrier to the last rank's end; medians. "Sent" counts the bytes that leave a
host by its network interfaces, headers too; over loopback it is unknown. Before, it compares the gradients of all
three.
"""
import argparse
import os
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import pici.torch  # noqa: F401  torch 2.14 does not find the backend by itself

#: a backend, whether gradients are sparse, and options of pici's all-reduce for a hook, or None
WAYS = {
    "pici": ("cpu:pici", True, None),
    "pici-doubling": ("gloo", True, {"algorithm": "doubling"}),
    "pici-ring": ("gloo", True, {"algorithm": "ring"}),
    "gloo-sparse": ("gloo", True, None),
    "gloo-dense": ("gloo", False, None),
}


def sent_bytes():
    """What this host has sent so far by all interfaces but loopback."""
    rows = [line.split(":") for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return sum(int(counters.split()[8]) for name, counters in rows if name.strip() != "lo")


def batch(o, rank, step):
    """The rows of a rank, each once: the rows of o.common are the same on all ranks."""
    shared = torch.Generator().manual_seed(step)
    own = torch.Generator().manual_seed(1000003 * (rank + 1) + step)
    count = max(1, round(o.rows * o.touched))
    common = round(count * o.common)
    ids = torch.cat(
        [torch.randint(o.rows, (common,), generator=shared), torch.randint(o.rows, (count - common,), generator=own)]
    )
    return ids.unique()


class Way:
    """The model over one way to average its gradient."""

    def __init__(self, o, name):
        backend, sparse, opts = WAYS[name]
        torch.manual_seed(0)
        self.table = nn.Embedding(o.rows, o.width, sparse=sparse)
        self.ddp = nn.parallel.DistributedDataParallel(self.table, process_group=dist.new_group(backend=backend))
        if opts is not None:
            self.ddp.register_comm_hook(pici.torch.State(opts=opts), pici.torch.all_reduce_hook)
        self.optimizer = torch.optim.SGD(self.table.parameters(), lr=0.1)

    def step(self, ids):
        self.optimizer.zero_grad()
        self.ddp(ids).square().sum().backward()
        self.optimizer.step()

    def gradient(self, ids):
        """Of some rows."""
        self.step(ids)
        found = self.table.weight.grad
        return (found.coalesce() if found.is_sparse else found).index_select(0, ids).to_dense()


def slowest(call):
    """The seconds of a call on the rank where it takes longest, of the processor on all ranks, and the bytes sent."""
    dist.barrier()
    sent, cpu, begin = sent_bytes(), time.process_time(), time.perf_counter()
    call()
    seconds = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    spent = torch.tensor([time.process_time() - cpu, sent_bytes() - sent], dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    dist.all_reduce(spent)
    return seconds.item(), *(spent / dist.get_world_size()).tolist()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=1000000, help="of the embedding (%(default)s)")
    p.add_argument("--width", type=int, default=64, help="elements of a row (%(default)s)")
    p.add_argument("--touched", type=float, default=0.01, help="the fraction of rows in a batch (%(default)s)")
    p.add_argument("--common", type=float, default=0, help="the fraction of these that all ranks share (%(default)s)")
    p.add_argument("--ways", default="pici,gloo-sparse,gloo-dense", help=f"of {', '.join(WAYS)} (%(default)s)")
    p.add_argument("-r", "--repetitions", type=int, default=7, help="(%(default)s)")
    o = p.parse_args()
    names = o.ways.split(",")
    unknown = set(names).difference(WAYS)
    if unknown:
        p.error(f"--ways: {', '.join(unknown)}: none of {', '.join(WAYS)}")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ways = {name: Way(o, name) for name in names}
    gradients = [way.gradient(batch(o, rank, 0)) for way in ways.values()]
    for name, found in zip(names, gradients):
        if not torch.allclose(found, gradients[0], rtol=1e-5, atol=1e-6):
            raise SystemExit(f"rank {rank}: the gradients of {names[0]} and {name} differ")
    del gradients
    times = {name: [] for name in names}
    load = os.getloadavg()[0]
    for repetition in range(-1, o.repetitions):
        ids = batch(o, rank, repetition + 2)
        for name, way in ways.items():
            measured = slowest(lambda: way.step(ids))
            if repetition >= 0:
                times[name].append(measured)
    if rank == 0:
        print(
            f"{o.rows} x {o.width}, {o.touched:.2%} of the rows on each of {ranks} ranks, {o.common:.0%} common, "
            f"medians of {o.repetitions}, load {load:.1f} to {os.getloadavg()[0]:.1f}"
        )
        print("                     ms   fastest   slowest   CPU, ms a rank   sent, MB a rank")
        for name, rows in times.items():
            seconds, cpu, sent = zip(*rows)
            middle = [1e3 * x for x in (statistics.median(seconds), min(seconds), max(seconds), statistics.median(cpu))]
            print(f"{name:14} {middle[0]:8.1f}  {middle[1]:8.1f}  {middle[2]:8.1f}   {middle[3]:12.1f}", end="   ")
            print(f"{1e-6 * statistics.median(sent):13.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
