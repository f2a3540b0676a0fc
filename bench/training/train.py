# SPDX-License-Identifier: BSD-3-Clause
"""One rank of one training run; bench/training/run starts them. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are as
torchrun sets them. Rank 0 appends a line of JSON to --json.

A run ends when the fraction of right test data reaches --level, or when their loss falls to --loss. With --epochs or
--steps it ends after so many instead. It always ends after --cap seconds of training. The clock runs while all ranks
train, including the first step with its connections. It stops while they evaluate the test data. With pici.torch.Outer
they do that after outer steps, when all have the same weights. Bytes are counted as they leave by the network
interface, including headers and acknowledgements; on loopback there are none.
"""
import argparse
import inspect
import itertools
import json
import os
import pathlib
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import prune

import data
import models
from contestants import CONTESTANTS

LEAST = 20  # steps of a run, so that the median time of a step means something


#: before a network is pruned: ten epochs of the digits; for texts, enough to know what weights matter
DENSE_STEPS = {"mlp": 310, "mlp-bf16": 310, "cnn": 310, "gpt": 30, "lstm": 30, "made-up": 100}


def loss_of(found, y):
    return nn.functional.cross_entropy(found.flatten(0, -2), y.flatten())


def train_dense(name, model, x, y, rate, seed):
    """On rank 0 alone, then its weights on all ranks. Nothing of this is timed."""
    if dist.get_rank() == 0:
        optimizer = models.optimizer(name, model, rate)
        for chosen in itertools.islice(batches(len(y), 128, 0, 1, seed), DENSE_STEPS[name]):
            optimizer.zero_grad()
            loss_of(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        model.zero_grad()
    for p in model.parameters():
        dist.broadcast(p.data, 0)


def prune_layers(model, fraction):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.Embedding)):
            prune.l1_unstructured(module, "weight", fraction)


def sent_bytes(link):
    """What this host has sent so far by all interfaces but loopback; None: there are no others, or ranks use none."""
    if link == "loopback":
        return None
    rows = [line.split(":") for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    sent = [int(counters.split()[8]) for name, counters in rows if name.strip() != "lo"]
    return sum(sent) if sent else None


def batches(n, batch, rank, ranks, seed):
    """The digits of this rank's batches, without an end: each digit once an epoch, on one of the ranks."""
    order = np.random.default_rng(seed)
    while True:
        shuffled = order.permutation(n)
        for first in range(0, n - batch * ranks + 1, batch * ranks):
            yield torch.from_numpy(shuffled[first + rank * batch : first + (rank + 1) * batch])


def look(model, x, y, seconds):
    """Rank 0's seconds, the fraction of right digits, and the loss, on all ranks. Each rank looks at some digits."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = y[rank::ranks]
    with torch.no_grad():
        found = model(x[rank::ranks])
        right, loss = (found.argmax(-1) == own).sum(), loss_of(found, own) * own.numel()
    sums = torch.tensor([seconds if rank == 0 else 0, float(right), float(loss)], dtype=torch.float64)
    dist.all_reduce(sums)
    return sums[0].item(), sums[1].item() / y.numel(), sums[2].item() / y.numel()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--contestant", choices=CONTESTANTS, required=True)
    args.add_argument("--model", choices=models.MAKERS, default="mlp")
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--level", type=float, help="percent of the test data; by default that of the network")
    args.add_argument("--loss", type=float, help="of the test data, at which a run ends, in place of the level")
    args.add_argument("--cap", type=float, default=90, help="seconds")
    args.add_argument("--epochs", type=int, help="train so long, whatever the level")
    args.add_argument("--steps", type=int, help="the same in steps")
    args.add_argument("--batch", type=int, default=32, help="a rank")
    args.add_argument("--learning-rate", type=float)
    args.add_argument("--every", type=int, default=10, help="steps between two looks at the test digits")
    args.add_argument("--data", type=pathlib.Path)
    args.add_argument("--link", default="loopback", help="what the record says of the network")
    args.add_argument("--json", type=pathlib.Path)
    o = args.parse_args()
    o.level = data.LEVELS[o.model] if o.level is None else o.level
    way = CONTESTANTS[o.contestant]
    torch.set_num_threads(1)
    if way.backend != "gloo" or way.outer:
        import pici.torch  # noqa: F401  torch before 2.15 does not find the backend by itself
    dist.init_process_group(way.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (torch.from_numpy(a) for a in data.load(o.model, o.data))
    split = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))  # the same for all seeds
    x, y = x[split], y[split]
    test = data.TEST_WINDOWS if y.dim() > 1 else data.TEST
    train_x, train_y, test_x, test_y = x[test:], y[test:], x[:test], y[:test]

    torch.manual_seed(o.seed)
    model = models.MAKERS[o.model]()
    weights = sum(p.numel() for p in model.parameters())
    if way.pruned:
        train_dense(o.model, model, train_x, train_y, o.learning_rate, o.seed + 1000)
        prune_layers(model, way.pruned)
    # The masks of pruned layers are buffers. They never change, so they need not be broadcast at every step.
    known = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # before 2.15
    outer = None
    if way.outer:
        outer, trained = pici.torch.Outer(model, **way.outer), model
    else:
        trained = nn.parallel.DistributedDataParallel(model, **{name: False}, **way.options)
        way.register(trained)
    optimizer = models.optimizer(o.model, trained, o.learning_rate)
    every = outer.inner_steps if outer else o.every
    load = os.getloadavg()[0]
    # seconds: of training so far; sent: bytes
    curve, times, seconds, sent, reached = [(0, *look(model, test_x, test_y, 0))], [], 0.0, 0, False
    last = o.steps or o.epochs and o.epochs * (len(train_y) // (o.batch * ranks))  # the step that ends the training
    cpu, worked, began, before = 0.0, time.process_time(), time.perf_counter(), sent_bytes(o.link)
    for chosen in batches(len(train_y), o.batch, rank, ranks, o.seed):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss_of(trained(train_x[chosen]), train_y[chosen]).backward()
        optimizer.step()
        if outer:
            outer.step()
            if len(times) + 1 == last:
                outer.finish()
        times.append(time.perf_counter() - start)
        if len(times) % every and len(times) != last:
            continue
        seconds += time.perf_counter() - began
        cpu += time.process_time() - worked
        sent += sent_bytes(o.link) - before if before is not None else 0
        common, right, loss = look(model, test_x, test_y, seconds)
        curve.append((len(times), round(common, 4), right, round(loss, 5)))
        reached = reached or (right >= o.level / 100 if o.loss is None else loss <= o.loss)
        ends = len(times) == last if last else reached and len(times) >= LEAST
        if ends or common >= o.cap:
            break
        worked, began, before = time.process_time(), time.perf_counter(), sent_bytes(o.link)
    total = torch.tensor([sent, cpu], dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        record = {
            "bench": "training",
            "contestant": o.contestant,
            "what": way.what,
            "model": o.model,
            "weights": weights,
            "link": o.link,
            "ranks": ranks,
            "batch": o.batch,
            "seed": o.seed,
            "level": o.level,
            "loss": o.loss,
            "cap": o.cap,
            "epochs": o.epochs,
            "steps_asked": o.steps,
            "steps": len(times),
            "finished": len(times) == last,
            "step_seconds": statistics.median(times),
            "step_bytes": total[0].item() / ranks / len(times) if before is not None else None,
            "step_cpu_seconds": total[1].item() / ranks / len(times),  # of all threads of a rank
            "load": [load, os.getloadavg()[0]],  # of this machine in the last minute, before and after
            "torch": torch.__version__,
            "curve": curve,
        }
        line = json.dumps(record)
        if o.json:
            with open(o.json, "a") as f:
                f.write(line + "\n")
        else:
            print(line)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        raise SystemExit("train.py is one rank of several: start it by bench/training/run, or torchrun")
    main()
