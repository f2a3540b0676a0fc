#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print the length of the blocks of real tensors in each format, as multiples of the entropy bound.

usage: bench/real_sizes.py [--picitool PROGRAM] [--json] [FILE...]
       bench/real_sizes.py --packed: the size of packed blocks of floats, relative to the dense bytes; needs NumPy

FILE: .npy, .safetensors or .pici; by default the files in ../shared/data/nn, of pruned networks, gradients and
activations. The bound is the values and the bits that positions drawn at random need; where nonzeros stand together,
hybrid can be below it. "auto" is each chunk in its smallest format.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# name: exponent bits, mantissa bits, NumPy's unsigned integer of the width
FLOATS = {
    "bf16": (8, 7, "u2"),
    "f32": (8, 23, "u4"),
    "f16": (5, 10, "u2"),
    "f8e4m3": (4, 3, "u1"),
    "f8e5m2": (5, 2, "u1"),
    "f64": (11, 52, "u8"),
}
DATA = pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "nn"
FORMATS = ["bitmap", "coo", "dense", "hybrid"]


def rounded(np, x, name):
    """The bits of f32 rounded to a type. f8: to the nearest of its finite values."""
    exponent, mantissa, unsigned = FLOATS[name]
    if name in ("f16", "f32", "f64"):
        return x.astype("f" + unsigned[1:]).view(unsigned)
    if name == "bf16":
        bits = x.view("u4").astype("u8")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")
    codes = np.arange(0x7F if name == "f8e4m3" else 0x7C)
    bias, low, high = (1 << exponent - 1) - 1, codes & (1 << mantissa) - 1, codes >> mantissa
    values = np.where(high, (low / 2.0**mantissa + 1) * 2.0 ** (high - bias), low * 2.0 ** (1 - bias - mantissa))
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(x))
    return (nearest + (np.signbit(x) << 7)).astype("u1")


def f32_tensors(np, path):
    """The f32 tensors of a .safetensors file."""
    raw = path.read_bytes()
    n = 8 + int.from_bytes(raw[:8], "little")
    tensors = [t for name, t in json.loads(raw[8:n]).items() if name != "__metadata__" and t["dtype"] == "F32"]
    return [np.frombuffer(raw[n + t["data_offsets"][0] : n + t["data_offsets"][1]], "<f4") for t in tensors]


def bound(np, bits, name):
    """Signs and mantissas as they are, and the entropy of each 4096 exponents, of the dense bytes."""
    exponent, mantissa, unsigned = FLOATS[name]
    total = 0.0
    for first in range(0, bits.size, 4096):
        tile = bits[first : first + 4096] >> mantissa & (1 << exponent) - 1
        fraction = np.unique(tile, return_counts=True)[1] / tile.size
        total += tile.size * (1 + mantissa - float(np.sum(fraction * np.log2(fraction))))
    return total / 8 / bits.nbytes


def packed(picitool):
    """Print the table, and return an exit status."""
    import numpy as np

    def of(pattern):
        found = []
        for path in sorted(DATA.glob(pattern)):
            npy = path.suffix == ".npy"
            found += [np.load(path).astype("f4").ravel()] if npy else f32_tensors(np, path)
        return np.concatenate(found) if found else None

    laplace = np.random.default_rng(1).laplace(size=1 << 24).astype("f4")
    rows = {
        "silero": of("silero*.safetensors"),
        "burn_mnist": of("burn*.safetensors"),
        "squeezenet's nonzeros": of("squeezenet*.safetensors"),
        "ad01's gradients, nonzeros": of("ad01_grad*.npy"),
        "the largest 1% of Laplace": laplace[np.abs(laplace) >= np.quantile(np.abs(laplace), 0.99)],
    }
    print(f"{'of the dense bytes (the bound)':28}" + "".join(f"{name:>16}" for name in FLOATS))
    for row, x in rows.items():
        if x is None:
            print(f"SKIPPED {row}: not in ../shared/data/nn", file=sys.stderr)
            continue
        line = f"{row:28}"
        for name in FLOATS:
            bits = rounded(np, x[x != 0], name)
            bits = bits[bits << 1 != 0] if name.startswith("f8") else bits
            with tempfile.TemporaryDirectory() as folder:
                raw, block = os.path.join(folder, "x.raw"), os.path.join(folder, "x.block")
                bits.astype("<" + FLOATS[name][2]).tofile(raw)
                subprocess.run([picitool, "block", "encode", "-q", "-d", name, "-f", "packed", raw, block], check=True)
                line += f"{os.path.getsize(block) / bits.nbytes:9.3f} ({bound(np, bits, name):.3f})"
        print(line)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picitool", default="build/picitool")
    parser.add_argument("--json", action="store_true", help="one array of records")
    parser.add_argument("--packed", action="store_true", help="packed blocks of floats, as fractions of dense bytes")
    parser.add_argument("file", nargs="*")
    args = parser.parse_args()
    if args.packed:
        return packed(args.picitool)
    files = args.file or sorted(str(p) for p in DATA.glob("*") if p.suffix in (".npy", ".safetensors"))
    if not files:
        print("SKIPPED sizes of real tensors: no .npy or .safetensors files in ../shared/data/nn", file=sys.stderr)
        return 77
    rows = []
    for name in files:
        done = subprocess.run([args.picitool, "inspect", "--json", name], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            return 1
        report = json.loads(done.stdout)
        total = report["total"]
        if not total["entropy_bound_bytes"]:
            continue  # nothing but zeros, or nothing at all
        rows.append(dict(total, file=pathlib.Path(name).name, dtypes=sorted({t["dtype"] for t in report["tensors"]})))
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return 0
    print(f"{'size / entropy bound':<40} {'dtype':<8} {'set':>7}", *(f"{f:>8}" for f in FORMATS + ["auto"]))
    for row in rows:
        times = [row["times_entropy_bound"][f] for f in FORMATS]
        times.append(row["blocks"]["auto"] / row["entropy_bound_bytes"])
        head = f"{row['file']:<40} {'+'.join(row['dtypes']):<8} {100 * row['density']:6.1f}%"
        print(head, *(f"{x:8.3f}" for x in times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
