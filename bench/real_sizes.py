#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print how long the blocks of real tensors are in each format, as multiples of the entropy bound.

usage: bench/real_sizes.py [--picitool PROGRAM] [--json] [FILE...]

FILE: .npy, .safetensors or .pici; by default those of ../shared/data/nn, of pruned networks, gradients and activations.
The bound is the values and the bits that positions drawn at random need; where nonzeros stand together, hybrid can be
below it. "auto" is each chunk in its smallest format.
"""
import argparse
import json
import pathlib
import subprocess
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "nn"
FORMATS = ["bitmap", "coo", "dense", "hybrid"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picitool", default="build/picitool")
    parser.add_argument("--json", action="store_true", help="one array of records")
    parser.add_argument("file", nargs="*")
    args = parser.parse_args()
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
