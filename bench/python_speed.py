#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The speed of the Python package: calls on 1 KiB, also of collectives, and decoding into new arrays beside a.copy().

    bench/python_speed.py [--quick] [MIB...]        sizes of arrays; default 64 and 1024

Needs the package pici, installed or by PYTHONPATH. Small calls: the median of batches of 20 calls. Arrays of f32 with
90% and 99% zeros at random positions: GB/s of dense bytes, median and best of rounds in which all rows take turns. A
result is freed before the next call. "first" releases the memory that is kept (keep_memory), so pages are new.
"""
import statistics
import sys
import threading
import time

import numpy as np

import pici


def small_calls(rounds):
    x = np.where(np.random.default_rng(0).random(256) < 0.1, 1, 0).astype(np.float32)
    block = pici.compress(x)
    room, out = np.empty(pici.bound(x.size), np.uint8), np.empty_like(x)
    calls = {
        "compress(x)": lambda: pici.compress(x),
        "compress(x, out=room)": lambda: pici.compress(x, out=room),
        "decompress(block)": lambda: pici.decompress(block),
        "decompress(block, out=x)": lambda: pici.decompress(block, out=out),
        "scatter_add(x, block)": lambda: pici.scatter_add(out, block),
        "inspect(block)": lambda: pici.inspect(block),
    }
    print("calls on 1 KiB, us (median)")
    for name, call in calls.items():
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(20):
                call()
            times.append((time.perf_counter() - start) / 20 * 1e6)
        print(f"  {name:26} {statistics.median(times):6.2f}")


def collectives(rounds):
    """Of a rank alone a call is what Python and the library's bookkeeping take; among two threads both need the GIL."""
    x = np.where(np.random.default_rng(0).random(256) < 0.1, 1, 0).astype(np.float32)
    for ranks in (1, 2):
        calls = {
            "all_reduce(x)": lambda c, a: c.all_reduce(a),
            "all_reduce(x, x)": lambda c, a: c.all_reduce(a, a),
            "all_reduce_start(x, x).wait()": lambda c, a: c.all_reduce_start(a, a).wait(),
        }
        print(f"collectives on 1 KiB among threads, {ranks} rank{'s' * (ranks > 1)}, us (median)")
        for name, call in calls.items():
            times = []

            def work(comm):
                mine = x.copy()
                for _ in range(rounds):
                    start = time.perf_counter()
                    for _ in range(20):
                        call(comm, mine)
                    if comm.rank == 0:
                        times.append((time.perf_counter() - start) / 20 * 1e6)
                mine[:] = 0

            comms = pici.Comm.threads(ranks)
            others = [threading.Thread(target=work, args=(comm,)) for comm in comms[1:]]
            for other in others:
                other.start()
            work(comms[0])
            for other in others:
                other.join()
            print(f"  {name:30} {statistics.median(times):6.2f}")


def new_arrays(mib, zeros, rounds):
    rng = np.random.default_rng(1)
    n = mib << 18
    x = rng.random(n, np.float32)
    x[rng.random(n, np.float32) < zeros] = 0
    block = pici.compress(x, threads=0)
    out = np.empty_like(x)

    def first(threads):
        pici.keep_memory(0)
        pici.keep_memory(1 << 30)
        return pici.decompress(block, threads=threads)

    rows = {
        "a.copy()": lambda: x.copy(),
        "decompress(block), first": lambda: first(1),
        "decompress(block)": lambda: pici.decompress(block),
        "decompress(block, threads=2), first": lambda: first(2),
        "decompress(block, threads=2)": lambda: pici.decompress(block, threads=2),
        "decompress(block, out=a)": lambda: pici.decompress(block, out=out),
        "decompress(block, out=a, threads=2)": lambda: pici.decompress(block, out=out, threads=2),
    }
    times = {name: [] for name in rows}
    for _ in range(rounds + 1):  # the first to warm up
        for name, call in rows.items():
            start = time.perf_counter()
            result = call()
            times[name].append(time.perf_counter() - start)
            assert result.size == n
            del result
    print(f"{mib} MiB, {zeros:.0%} zeros, GB/s (median and best of {rounds})")
    for name, seconds in times.items():
        speeds = [x.nbytes / s / 1e9 for s in (statistics.median(seconds[1:]), min(seconds[1:]))]
        print(f"  {name:36} {speeds[0]:6.2f} {speeds[1]:6.2f}")


def main():
    quick = "--quick" in sys.argv
    sizes = [int(a) for a in sys.argv[1:] if a != "--quick"] or ([16] if quick else [64, 1024])
    small_calls(100 if quick else 3000)
    collectives(20 if quick else 1000)
    for mib in sizes:
        for zeros in (0.9, 0.99):
            new_arrays(mib, zeros, 3 if quick else max(5, 2000 // mib))


if __name__ == "__main__":
    main()
