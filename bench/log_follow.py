#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A log of deltas in a store: how many steps a second a trainer appends and a reader follows, and the bytes that are
read beside those that are written.

    python3 bench/log_follow.py [--weights 8e6] [--steps 20] [--rate 3e-6] [--url s3://bucket/run]

Without --url by moto's server of S3, in a process of its own on loopback (pip install s3fs moto[server]). The reader is
a process of its own too. bf16 weights, random; a step moves each weight of an f32 copy by about the rate, as Adam does.
The trainer appends as fast as it can; the reader follows, skips states if it is behind, and ends with the newest.
"""
import argparse
import json
import multiprocessing
import os
import time

import numpy as np

import pici
from pici._dlpack import DLPackArray
from pici._dtypes import named


def bf16(x):
    """f32 values as bf16, rounded to nearest even."""
    bits = x.view(np.uint32)
    d = named("bf16")
    return DLPackArray(
        ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(d.storage),
        d,
    )


def served(queue):
    """moto's server, in a process of its own."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    queue.put(server.get_host_and_port())
    time.sleep(3600)


def follow(url, options, last, queue):
    log = pici.DeltaLog(url, storage_options=options)
    seen, begun, before = 0, 0.0, 0
    for _, number in log.follow(poll=0.01, timeout=300, to="dlpack"):
        if not begun:  # the base has been read
            begun, before = time.perf_counter(), log._remote.store.read_bytes
            queue.put("ready")
        seen += 1
        if number == last:
            break
    queue.put((seen - 1, time.perf_counter() - begun, log._remote.store.read_bytes - before))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--weights", type=float, default=8e6)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--rate", type=float, default=3e-6)
    p.add_argument("--url")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    url, options, server = o.url, None, None
    if url is None:
        server = context.Process(target=served, args=(queue,), daemon=True)
        server.start()
        host, port = queue.get(timeout=120)
        url, options = "s3://bucket/run", dict(key="k", secret="s", endpoint_url=f"http://{host}:{port}")
        import s3fs

        s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="bucket")
    rng = np.random.default_rng(1)
    master = {f"layers.{i}.weight": rng.standard_normal(int(o.weights) // 8, np.float32) / 50 for i in range(8)}
    states = [{name: bf16(x) for name, x in master.items()}]
    for _ in range(o.steps):
        for x in master.values():
            x -= np.float32(o.rate) * np.clip(rng.standard_normal(x.size, np.float32), -3, 3)
        states.append({name: bf16(x) for name, x in master.items()})
    log = pici.DeltaLog.create(url, states[0], pack="planes", storage_options=options)
    reader = context.Process(target=follow, args=(url, options, o.steps, queue), daemon=True)
    reader.start()
    assert queue.get(timeout=120) == "ready"
    written, began = log._remote.store.written_bytes, time.perf_counter()
    for i in range(o.steps):
        log.append(states[i], states[i + 1])
    appended = time.perf_counter() - began
    written = log._remote.store.written_bytes - written
    seen, seconds, read = queue.get(timeout=300)
    reader.join()
    deltas = sum(s.delta_bytes for s in log.states())
    found = {
        "url": url.split("/")[0] + ("" if server is None else " (moto)"),
        "weights": int(o.weights),
        "steps": o.steps,
        "appended_per_s": o.steps / appended,
        "followed_per_s": o.steps / seconds,
        "states_seen": seen,
        "delta_bytes": deltas,
        "written_bytes": written,
        "read_bytes": read,
    }
    if o.json:
        print(json.dumps(found))
        return
    print(f"{found['url']}, {int(o.weights)} bf16 weights, {o.steps} steps, {os.cpu_count()} cores")
    print(
        f"appended {found['appended_per_s']:.2f} steps/s, followed {found['followed_per_s']:.2f} ({seen} states seen)"
    )
    print(f"deltas {deltas} bytes; written {written} with manifests; read {read}")


if __name__ == "__main__":
    main()
