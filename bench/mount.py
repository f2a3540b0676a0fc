#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compare reads of a file that picitool mount shows with reads of the plain file: in order and at random, cold and
warm.

    python bench/mount.py [--mib 128] [--threads 2] [--cache BYTES] [--picitool build/picitool] [--dir DIR]

Reads a file of bf16 weights. Prints MB/s of reading it in order, in pieces of 1 MiB, and microseconds for a random read
of 4 KiB: medians of --reps. Cold: the mount is new, and the kernel drops both files' pages (posix_fadvise); the disk
keeps its own cache. Warm: the same once more. picitool mount gets --cache BYTES, such as 8M. With it, the kernel also
drops the mounted file's pages before the warm run, so that picitool answers from its cache. Needs NumPy and /dev/fuse.
"""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import numpy


def weights(path, mib):
    """A .safetensors file of one tensor: normal bf16."""
    n = mib << 19
    values = numpy.random.default_rng(1).standard_normal(n, dtype="f4").view("u4") >> 16
    head = b'{"w":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}' % (n, 2 * n)
    path.write_bytes(len(head).to_bytes(8, "little") + head + values.astype("<u2").tobytes())


def forget(path):
    os.sync()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_order(path):
    """MB/s."""
    start, size = time.perf_counter(), 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            size += len(piece)
    return size / (time.perf_counter() - start) / 1e6


def at_random(path, reads=400):
    """Microseconds for a read; the same places each time."""
    places, size = random.Random(2), path.stat().st_size
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    start = time.perf_counter()
    for _ in range(reads):
        os.pread(fd, 4096, places.randrange(size - 4096))
    seconds = time.perf_counter() - start
    os.close(fd)
    return seconds / reads * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", help="of picitool, as 8M; warm reads are then not those of the kernel")
    parser.add_argument("--picitool", default="build/picitool")
    parser.add_argument("--dir", help="where the files are made; default: the folder for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as place:
        place = pathlib.Path(place)
        plain, packed, at = place / "model.safetensors", place / "model.safetensors.pici", place / "at"
        at.mkdir()
        weights(plain, options.mib)
        subprocess.run([options.picitool, "compress", "-q", plain], check=True)
        print(f"{options.mib} MiB of bf16, stored as {packed.stat().st_size / plain.stat().st_size:.3f} of that")
        for what, unit, measure in (("in order", "MB/s", in_order), ("at random", "us", at_random)):
            times = {}
            for _ in range(options.reps):
                cache = ["--cache", options.cache] if options.cache else []
                mount = [options.picitool, "mount", "-T", str(options.threads), *cache, packed, at]
                with subprocess.Popen(mount, stdout=subprocess.PIPE) as process:
                    try:
                        process.stdout.readline()
                        for name, path, stored in ("plain", plain, plain), ("mount", at / plain.name, packed):
                            forget(stored)
                            for state in "cold", "warm":
                                if options.cache and state == "warm" and name == "mount":
                                    forget(path)
                                times.setdefault(f"{name} {state}", []).append(measure(path))
                    finally:
                        process.terminate()
            print(f"{what}, {unit}: " + ", ".join(f"{k} {statistics.median(v):.0f}" for k, v in times.items()))


if __name__ == "__main__":
    main()
