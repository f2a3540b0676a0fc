#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A dense all-reduce of f32 over sockets, by pici and by gloo in turn: one rank of several.

    build/pici-run -n 4 python bench/gloo.py                                    ranks on this host, over loopback
    bench/net with 4 200mbit bench/net start 4 env GLOO_SOCKET_IFNAME=eth0 python bench/gloo.py      hosts (root)

Needs torch, and the package pici (or PYTHONPATH and PICI_LIBRARY). A repetition is one call of each, from a barrier to
the last rank's return; medians. Payload: what a rank must send at least, 2 (ranks - 1) / ranks of the bytes, by the
time. The results of both are compared before.
"""
import argparse
import os
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist

import pici


def start_gloo(comm):
    """Its store is on rank 0, at a port that is free there."""
    host = os.environ["PICI_RENDEZVOUS"].rpartition(":")[0].strip("[]")
    if host in ("127.0.0.1", "::1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    port = np.zeros(1, np.int64)
    store = dist.TCPStore(host, 0, comm.size, True, wait_for_workers=False) if comm.rank == 0 else None
    if store:
        port[0] = store.port
    comm.broadcast(port, 0)
    store = store or dist.TCPStore(host, int(port[0]), comm.size, False)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


def slowest(comm, call):
    """The seconds of a call on the rank where it takes longest."""
    comm.all_reduce(np.zeros(1))  # a barrier
    begin = time.perf_counter()
    call()
    return comm.all_reduce(np.array([time.perf_counter() - begin]), op="max")[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mib", type=float, default=8, help="bytes of each rank's tensor (%(default)s MiB)")
    p.add_argument("-r", "--repetitions", type=int, default=31, help="(%(default)s)")
    o = p.parse_args()
    torch.set_num_threads(1)
    comm = pici.Comm.rendezvous()
    start_gloo(comm)
    n = int(o.mib * (1 << 20)) // 4
    own = torch.rand(n, generator=torch.Generator().manual_seed(comm.rank)) + 0.5
    ours, theirs = torch.empty(n), torch.empty(n)
    calls = {"pici": lambda: comm.all_reduce(ours, ours), "gloo": lambda: dist.all_reduce(theirs)}
    times = {name: [] for name in calls}
    for repetition in range(-2, o.repetitions):  # the first two connect, and touch memory
        for name, call in calls.items():
            ours.copy_(own)
            theirs.copy_(own)
            seconds = slowest(comm, call)
            if repetition >= 0:
                times[name].append(seconds)
            elif name == "gloo":
                comm.all_reduce(ours, ours)
                if not torch.allclose(ours, theirs):
                    raise SystemExit(f"rank {comm.rank}: the results differ")
    if comm.rank == 0:
        least = 2 * (comm.size - 1) / comm.size * 4 * n
        print(f"all-reduce, {o.mib:g} MiB of f32, dense, {comm.size} ranks, medians of {o.repetitions}, in turn")
        print("          ms   fastest  slowest   payload, Mbit/s a rank")
        for name, t in times.items():
            middle = statistics.median(t)
            shown = [1e3 * x for x in (middle, min(t), max(t))]
            print(f"{name}  {shown[0]:8.2f}  {shown[1]:8.2f} {shown[2]:8.2f}   {8e-6 * least / middle:8.1f}")
        print(f"pici takes {statistics.median(times['pici']) / statistics.median(times['gloo']):.2f} of gloo's time")
    comm.all_reduce(np.zeros(1))  # nobody closes before all have come
    dist.destroy_process_group()
    comm.close()


if __name__ == "__main__":
    main()
