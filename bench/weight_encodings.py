#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bytes of a training step's message to the servers, per changed weight, by encoding.

usage: bench/weight_encodings.py [--weights N] [--json] [--svg FILE]
       bench/weight_encodings.py [--weights N] --speed

Normally distributed f32 weights; a step moves each by about the rate, as Adam does. Both are rounded to bf16, to
f8e4m3, and to e2m1. f8e4m3 has a scale for each block of 128 x 128. e2m1 has two elements in a byte, with a scale for
each 32 (MXFP4, powers of two) or 16 (NVFP4, f8e4m3). Scales are not counted. "bound" is the entropy of each new weight
given its old value. Other projects' encodings are written here from their public descriptions, only for their sizes:
    index    vLLM's sparse_nccl, TRL, verl, vime: a position of 4 bytes and the new value
    gaps     verl: the same with gaps of 3 bytes
    nemo     NeMo-RL: gaps of 2 bytes and the XOR of old and new values, both by zstd -1
    slime    slime: the XOR of all bytes, by zstd -1
    patch    zstd -19 --patch-from
A position of e2m1 is a byte's. Needs NumPy, zstd and pici. --svg: bytes a step for a million weights, as a picture.
--speed: instead, how fast small deltas are made and applied, in GB/s of dense bytes: processor time of one thread, the
best of 5, beside a copy.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np

import pici
from real_sizes import rounded

RATES = [1e-6, 3e-6, 1e-5]
NAMES = ["index", "gaps", "nemo", "slime", "patch", "pici", "bound"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def zstd(data, *options):
    return len(subprocess.run(["zstd", "-c", *options], input=bytes(data), stdout=-1, stderr=-3, check=True).stdout)


def patch(old, new):
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder, "old")
        base.write_bytes(old.tobytes())
        pathlib.Path(folder, "new").write_bytes(new.tobytes())
        command = ["zstd", "-19", "-c", f"--patch-from={base}", pathlib.Path(folder, "new")]
        return len(subprocess.run(command, stdout=-1, stderr=-3, check=True).stdout)


def f8_value(code):
    code = code.astype(np.int32)
    return np.where(code < 8, code * 2.0**-9, (8 + code % 8) * 2.0 ** (code // 8 - 10))


def bf16(weights):
    return rounded(np, weights, "bf16")


def f8(weights):
    blocks = weights.reshape(-1, 128 * 128)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(448)
    return rounded(np, np.ascontiguousarray((blocks / scale).reshape(-1)), "f8e4m3")


def e2m1(blocks, scale):
    """The codes, one a byte."""
    code = np.searchsorted((E2M1[1:] + E2M1[:-1]) / 2, np.abs(blocks / scale))
    return (code | np.signbit(blocks) << 3).astype(np.uint8).reshape(-1)


def mxfp4(weights):
    blocks = weights.reshape(-1, 32)
    return e2m1(blocks, 2.0 ** (np.floor(np.log2(np.abs(blocks).max(axis=1, keepdims=True))) - 2))


def nvfp4(weights):
    blocks = weights.reshape(-1, 16)
    whole = np.float32(6 * 448 / 0.2)  # of the tensor, which a framework keeps while weights stay below 0.2
    largest = np.abs(blocks).max(axis=1, keepdims=True) / 6 * whole
    scale = f8_value(np.maximum(rounded(np, np.ascontiguousarray(largest, np.float32), "f8e4m3"), 1))
    return e2m1(blocks, scale / whole)


def bound(old, new):
    """Bytes: order 0, by the old value."""
    values, at = np.unique(old, return_inverse=True)
    kinds, to = np.unique(new, return_inverse=True)
    pairs, counts = np.unique(at.astype(np.int64) * len(kinds) + to, return_counts=True)
    total = np.bincount(at, minlength=len(values))[pairs // len(kinds)]
    return float(-(counts * np.log2(counts / total)).sum()) / 8


def measure(name, old, new):
    """Bytes by encoding. old, new: codes, one an element."""
    least, changed = bound(old, new), int((old != new).sum())
    old, new = packed(name, old), packed(name, new)
    at = np.flatnonzero(old != new)
    flipped, gaps = old ^ new, np.diff(at, prepend=0)
    found = {
        "index": len(at) * (4 + old.itemsize),
        "gaps": len(at) * (3 + old.itemsize),
        "nemo": zstd(gaps.astype(np.uint16).tobytes(), "-1") + zstd(flipped[at].tobytes(), "-1"),
        "slime": zstd(flipped.tobytes(), "-1"),
        "patch": patch(old, new),
        "pici": len(pici.diff(old, new, small=True, dtype=name)),
        "bound": least,
    }
    return changed, found


def packed(name, bits):
    return bits[::2] | bits[1::2] << 4 if name in ("mxfp4", "nvfp4") else bits


def best(call, size):
    """GB/s of a call."""
    seconds = []
    for _ in range(5):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return size / min(seconds) / 1e9


def speeds(name, old, new):
    old, new = (np.ascontiguousarray(packed(name, x)) for x in (old, new))
    delta = pici.diff(old, new, small=True, dtype=name)
    back = [old.copy() for _ in range(5)]
    left = iter(back)
    diff = best(lambda: pici.diff(old, new, small=True, dtype=name), old.nbytes)
    apply = best(lambda: pici.apply(next(left), delta, dtype=name), old.nbytes)
    if any(not np.array_equal(x, new) for x in back):
        raise SystemExit(f"{name}: the delta leads elsewhere")
    return diff, apply, best(lambda: np.copyto(back[0], new), old.nbytes)


def picture(rows, weights, path):
    loader = importlib.machinery.SourceFileLoader("plot", str(pathlib.Path(__file__).with_name("plot")))
    plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot", loader))
    loader.exec_module(plot)
    panels = []
    for name in ("bf16", "f8e4m3", "mxfp4"):
        mine = [r for r in rows if r["dtype"] == name]
        series = []
        for n, colour in zip(NAMES, plot.COLOURS):
            points = [(r["share"] * 100, r[n] * 1e6 / weights) for r in mine]
            series.append((n, colour, "3 3" if n == "bound" else "", points))
        x_axis, y_axis = plot.axes(series)
        ticks = [(r["share"] * 100, f"{r['share']:.2%}") for r in mine]
        marks = plot.ticks_1_2_5(y_axis.low, y_axis.high)
        y_ticks = [(v, f"{v / 1e3:g} KB" if v < 1e6 else f"{v / 1e6:g} MB") for v in marks]
        what = "changed weights"
        panels.append(plot.panel(name, series, x_axis, y_axis, ticks, y_ticks, what, "bytes per million weights"))
    text = plot.sheet([panels])
    pathlib.Path(path).write_text(text.replace(">", ">\n<!-- SPDX-License-Identifier: BSD-3-Clause -->", 1))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--weights", type=int, default=1 << 21, help="a multiple of 16384 (%(default)s)")
    p.add_argument("--json", action="store_true")
    p.add_argument("--svg", metavar="FILE")
    p.add_argument("--speed", action="store_true")
    o = p.parse_args()
    rng = np.random.default_rng(1)
    master = (0.02 * rng.standard_normal(o.weights)).astype(np.float32)
    moves = np.clip(rng.standard_normal(o.weights), -3, 3).astype(np.float32)
    rows = []
    if o.speed:
        print("| weights, rate | changed | diff | apply | copy |\n|---|---|---|---|---|")
    for name, convert in (("bf16", bf16), ("f8e4m3", f8), ("mxfp4", mxfp4), ("nvfp4", nvfp4)):
        old = convert(master)
        for rate in RATES:
            new = convert(master - np.float32(rate) * moves)
            if o.speed:
                each = " | ".join(f"{x:.2f}" for x in speeds(name, old, new))
                print(f"| {name}, {rate:g} | {np.mean(old != new):.2%} | {each} |", flush=True)
                continue
            changed, found = measure(name, old, new)
            rows.append({"dtype": name, "rate": rate, "share": changed / o.weights, "changed": changed, **found})
    if o.speed:
        return
    if o.svg:
        picture(rows, o.weights, o.svg)
    if o.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"| {o.weights} weights, rate | changed | " + " | ".join(NAMES) + " | pici / bound |")
    print("|---|---|" + "---|" * len(NAMES) + "---|")
    for r in rows:
        each = " | ".join(f"{r[n] / r['changed']:.2f}" for n in NAMES)
        ratio = r["pici"] / r["bound"]
        print(f"| {r['dtype']}, {r['rate']:g} | {r['share']:.2%} | {each} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
