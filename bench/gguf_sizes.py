#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files of the types that llama.cpp uses, by picitool and by zstd: shares of the bytes and MB/s, and whether the
same bytes come back.

    python bench/gguf_sizes.py [--types BF16 Q8_0 ...] [--rounds 3] [--picitool build/picitool]

The weights are real ones, of ../shared/data/nn, each once, since quantized copies would be alike; without that folder,
normally distributed. One thread; medians. Needs gguf (PyPI), NumPy, zstd, and the package pici for bench/weights.py.
"""
import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import gguf
import gguf.quants
import numpy as np

from real_sizes import DATA, f32_tensors
from weights import FILES

ROW = 4096  # elements


def real():
    paths = [DATA / name for name in FILES]
    if all(path.exists() for path in paths):
        return np.concatenate([x for path in paths for x in f32_tensors(np, path)])
    print("no ../shared/data/nn: normally distributed weights")
    return np.random.default_rng(1).standard_normal(1 << 20).astype(np.float32) * np.float32(0.02)


def write(path, kind, rows):
    writer = gguf.GGUFWriter(path, "llama")
    quantized = gguf.quants.quantize(rows, kind)
    writer.add_tensor("blk.0.ffn_up.weight", quantized, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measured(path, pack, unpack, rounds):
    """The share of the bytes, and MB/s to pack and to unpack."""
    packed, back = path.with_suffix(".packed"), path.with_suffix(".back")
    times = {"pack": [], "unpack": []}
    for _ in range(rounds):
        for name, command in ("pack", pack(path, packed)), ("unpack", unpack(packed, back)):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            times[name].append(time.perf_counter() - start)
    size = path.stat().st_size
    if path.read_bytes() != back.read_bytes():
        raise SystemExit(f"{path.name}: other bytes come back")
    speeds = [size / statistics.median(t) / 1e6 for t in times.values()]
    return packed.stat().st_size / size, *speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_0"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picitool", default="build/picitool")
    options = parser.parse_args()
    zstd = ["zstd", "-q", "-f", "--single-thread"]
    tool, whole = options.picitool, ["-q", "--force", "-T", "1", "-o"]
    ways = {}
    for more in [], ["--zstd=3"]:
        ways[" ".join(["picitool", *more])] = (
            lambda path, out, more=more: [tool, "compress", *more, *whole, out, path],
            lambda path, out: [tool, "decompress", *whole, out, path],
        )
    for level in "-3", "-19":
        ways[f"zstd {level}"] = (
            lambda path, out, level=level: [*zstd, level, "-o", out, path],
            lambda path, out: [*zstd, "-d", "-o", out, path],
        )
    values = real()
    rows = values[: values.size // ROW * ROW].reshape(-1, ROW)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{rows.size} weights: share of the bytes, MB/s to compress, MB/s to decompress\n")
        print(f"| type | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}", flush=True)
        for name in options.types:
            path = pathlib.Path(folder) / f"{name}.gguf"
            write(path, gguf.GGMLQuantizationType[name], rows)
            cells = [measured(path, *way, options.rounds) for way in ways.values()]
            print(f"| {name} | {' | '.join(f'{s:.3f}, {w:.0f}, {r:.0f}' for s, w, r in cells)} |", flush=True)


if __name__ == "__main__":
    main()
