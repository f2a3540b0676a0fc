#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of dense bf16 weights beside other compressors: in memory, and as files.

usage: bench/weights.py [--memory BYTES] [--files BYTES] [--rates MB,...] [--folder FOLDER] [--reps N] [--json]

The weights come from ../shared/data/nn, rounded to bf16 and repeated; without that folder, they are normally
distributed. Repeated weights are alike only at distances that no compressor here sees, but lmz's deduplication, which
is off. --memory: length and GB/s of dense bytes, one thread each, processor time, medians, beside a copy. lmz works on
files,
    in /dev/shm.
--files: bytes, seconds to write and to sync, seconds from a cold page cache to a dict of arrays. All cores.
--rates: instead of --files, seconds from a cold page cache to a dict of torch tensors, on a disk limited to this many
    MB/s (1e6 bytes; 0: no limit). The kernel limits this process (cgroup v1, blkio; root). Reads a byte of each page of
    tensors that safetensors maps.
Names the compressors that are not installed, and skips them.
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

import pici
from real_sizes import DATA, f32_tensors, rounded

FILES = ["silero_vad_16k.safetensors", "burn_mnist.safetensors"]


def weights(count):
    """So many bf16, as their bits."""
    paths = [DATA / name for name in FILES]
    if all(path.exists() for path in paths):
        some = np.concatenate([x for path in paths for x in f32_tensors(np, path)])
    else:
        print("no ../shared/data/nn: normally distributed weights", file=sys.stderr)
        some = np.random.default_rng(1).standard_normal(1 << 20).astype(np.float32) * 0.02
    return np.resize(rounded(np, some, "bf16"), count)


def imported(name, skipped):
    try:
        return __import__(name)
    except ImportError as e:
        skipped.append(f"{name}: {e}")
        return None


def timed(call, clock=time.perf_counter):
    start = clock()
    result = call()
    return clock() - start, result


def processor(call):
    """Seconds of this process's processor time, which other programs change less."""
    return timed(call, time.process_time)


# ---- in memory


def of_lmz(lmz, folder):
    path = os.path.join(folder, "x.safetensors")

    def make(x):
        save(path, {"x": x})
        seconds, _ = processor(lambda: lmz.compress(path, path + ".lmz", workers=1, dedup=False, delta=False))
        return seconds, os.path.getsize(path + ".lmz")

    def read(_):
        seconds, _ = processor(lambda: lmz.decompress(path + ".lmz", path + ".back", workers=1, overwrite=True))
        with open(path, "rb") as a, open(path + ".back", "rb") as b:
            assert a.read() == b.read()
        return seconds

    return make, read


def in_memory(size, reps, folder, skipped):
    x = weights(size // 2)
    copy = np.empty_like(x)
    copy[:] = x
    found = {}

    def pici_row(pack):
        block, back = np.empty(pici.bound(x.size, "bf16", format="packed"), np.uint8), np.empty_like(x)

        def make(_):
            seconds, made = processor(lambda: pici.compress(x, dtype="bf16", pack=pack, out=block))
            found[pack] = made
            return seconds, len(made)

        def read(_):
            seconds, _ = processor(lambda: pici.decompress(found[pack], out=back, dtype="bf16"))
            assert np.array_equal(back, x)
            return seconds

        return make, read

    rows = {"pici, planes": pici_row("planes"), "pici, fast": pici_row("fast")}
    zipnn = imported("zipnn", skipped)
    if zipnn:
        z = zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)

        def make(_):
            own = bytes(bytearray(x.tobytes()))  # compress() changes its argument
            seconds, found["zipnn"] = processor(lambda: z.compress(own))
            return seconds, len(found["zipnn"])

        def read(_):
            seconds, back = processor(lambda: z.decompress(found["zipnn"]))
            assert bytes(back) == x.tobytes()
            return seconds

        rows["zipnn"] = make, read
    lmz = imported("lmz", skipped)
    if lmz:
        rows["lmz"] = of_lmz(lmz, folder)
    times = {name: ([], []) for name in rows}
    copies, lengths = [], {}
    for rep in range(reps + 1):
        seconds, _ = processor(lambda: np.copyto(copy, x))
        copies += [seconds] * (rep > 0)
        for name, (make, read) in rows.items():
            seconds, lengths[name] = make(x)
            times[name][0].extend([seconds] * (rep > 0))  # the first is not counted
            times[name][1].extend([read(x)] * (rep > 0))
    gb = x.nbytes / 1e9
    yardstick = gb / statistics.median(copies)
    return [
        {
            "what": name,
            "length": lengths[name] / x.nbytes,
            "compress": gb / statistics.median(times[name][0]),
            "decompress": gb / statistics.median(times[name][1]),
            "copy": yardstick,
        }
        for name in rows
    ]


# ---- files


def save(path, tensors):
    head, at = {}, 0
    for name, x in tensors.items():
        head[name] = {"dtype": "BF16", "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            f.write(x.data)


def load(path):
    """A dict of new arrays."""
    with open(path, "rb", buffering=0) as f:  # Python's buffer reads large arrays in small pieces
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        whole = np.empty(os.path.getsize(path) - 8 - n, np.uint8)
        done = 0
        while done < whole.size:
            done += f.readinto(whole[done:])
    return {k: whole[slice(*t["data_offsets"])].view(np.uint16).reshape(t["shape"]) for k, t in head.items()}


def synced(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def forget(path):
    """Drop a file from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def as_files(size, reps, folder, skipped):
    side = 4096
    many = max(1, size // (side * side * 2))
    x = weights(many * side * side).reshape(many, side, side)
    tensors = {f"layer.{i}.weight": x[i] for i in range(many)}
    plain = os.path.join(folder, "model.safetensors")
    save(plain, tensors)
    back = plain + ".back"

    def run(*command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def through(*command):
        def read(path):
            run(*command, path, *(["-o", back] if command[0] == "zstd" else [back]))
            return load(back)

        return read

    rows = {
        "safetensors": (".safetensors.copy", lambda path: save(path, tensors), load),
        "pici.save, planes": (".pici", lambda path: save_pici(path, tensors), load_pici),
    }
    if shutil.which("zstd"):
        write = lambda path: run("zstd", "-q", "-f", "-1", "-T0", plain, "-o", path)
        rows["zstd -1"] = (".zst", write, through("zstd", "-q", "-f", "-d"))
    else:
        skipped.append("zstd: no such program")
    lmz = imported("lmz", skipped)
    if lmz:

        def read(path):
            return {k: np.frombuffer(lmz.read_tensor(path, k)[2], np.uint16).reshape(x.shape[1:]) for k in tensors}

        rows["lmz"] = (".lmz", lambda path: lmz.compress(plain, path, dedup=False, delta=False), read)
    found = []
    for name, (extension, write, read) in rows.items():
        path, writes, reads = plain + extension, [], []
        for _ in range(reps):
            if os.path.exists(path):
                os.unlink(path)
            seconds, _ = timed(lambda: (write(path), synced(path)))
            writes.append(seconds)
            forget(path)
            forget(plain)
            seconds, loaded = timed(lambda: read(path))
            reads.append(seconds)
            assert all(np.array_equal(loaded[k].view(np.uint16), tensors[k]) for k in tensors)
            del loaded
        bytes_ = os.path.getsize(path)
        found.append({"what": name, "bytes": bytes_, "length": bytes_ / x.nbytes})
        found[-1].update(write=statistics.median(writes), read=statistics.median(reads))
        os.unlink(path)
    return found


# ---- files on slower disks


class Throttle:
    """Reads of this process from the disk of a folder, held back by the kernel."""

    GROUP = "/sys/fs/cgroup/blkio/pici-weights"

    def __init__(self, folder):
        device = os.stat(folder).st_dev
        block = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        if os.path.exists(block + "/partition"):
            block = os.path.dirname(block)
        with open(block + "/dev") as f:
            self.disk = f.read().strip()
        os.makedirs(self.GROUP, exist_ok=True)

    def __enter__(self):
        self._move(self.GROUP)
        return self

    def __exit__(self, *_):
        self._move(os.path.dirname(self.GROUP))
        os.rmdir(self.GROUP)

    @staticmethod
    def _move(group):
        with open(f"{group}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    def limit(self, bytes_a_second):
        with open(f"{self.GROUP}/blkio.throttle.read_bps_device", "w") as f:
            f.write(f"{self.disk} {bytes_a_second}")


def at_rates(size, rates, reps, folder, skipped):
    torch = imported("torch", skipped)
    library = torch and imported("safetensors.torch", skipped)
    if not library:
        return []
    side = 4096
    many = max(1, size // (side * side * 2))
    x = weights(many * side * side).reshape(many, side, side)
    plain, packed = (os.path.join(folder, "rates" + end) for end in (".safetensors", ".pici"))
    save(plain, {f"layer.{i}.weight": x[i] for i in range(many)})
    save_pici(packed, {f"layer.{i}.weight": x[i] for i in range(many)})

    def mapped(path):
        found = library.torch.load_file(path)
        for t in found.values():
            t.view(torch.int16).view(-1)[:: 4096 // t.element_size()].sum()
        return found

    rows = {
        "safetensors.torch.load_file": (plain, mapped),
        "a read into one array": (plain, load),
        "pici.load": (packed, lambda path: pici.load(path, to="torch", threads=0, max_bytes=None)),
    }
    found = []
    with Throttle(folder) as throttle:
        for rate in rates:
            throttle.limit(rate * 1000000)
            times = {name: [] for name in rows}
            for _ in range(reps):
                for name, (path, read) in rows.items():
                    forget(path)
                    seconds, loaded = timed(lambda: read(path))
                    times[name].append(seconds)
                    some = loaded["layer.0.weight"]
                    bits = some if isinstance(some, np.ndarray) else some.view(torch.int16).numpy().view(np.uint16)
                    assert np.array_equal(bits, x[0])
                    del loaded, some, bits
            for name, (path, _) in rows.items():
                found.append({"rate": rate, "what": name, "bytes": os.path.getsize(path)})
                found[-1].update(read=statistics.median(times[name]), least=min(times[name]), most=max(times[name]))
    return found


def save_pici(path, tensors):
    with pici.create(path, pack="planes", threads=0, overwrite=True) as w:
        for name, x in tensors.items():
            w.add(name, x, dtype="bf16")


def load_pici(path):
    return pici.load(path, to="bits", threads=0, max_bytes=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", type=int, default=64 << 20, help="bytes; 0: not in memory")
    parser.add_argument("--files", type=int, default=1 << 30, help="bytes; 0: no files")
    parser.add_argument("--rates", help="MB/s of the disk, with commas; in place of --files, of its bytes")
    parser.add_argument("--folder", help="for files of twice as many bytes; default: a temporary one here")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    skipped, found = [], {}
    if args.memory:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            found["memory"] = in_memory(args.memory, args.reps, folder, skipped)
    if args.files:
        with tempfile.TemporaryDirectory(dir=args.folder or ".") as folder:
            if args.rates:
                rates = [int(rate) for rate in args.rates.split(",")]
                found["rates"] = at_rates(args.files, rates, args.reps, folder, skipped)
            else:
                found["files"] = as_files(args.files, args.reps, folder, skipped)
    for what in dict.fromkeys(skipped):
        print(f"SKIPPED {what}", file=sys.stderr)
    if args.json:
        json.dump(found, sys.stdout, indent=1)
        print()
        return
    for r in found.get("memory", []):
        print(
            f"{r['what']:20} {r['length']:.4f}  compress {r['compress']:6.2f} GB/s ({r['compress'] / r['copy']:.2f} of "
            f"a copy)  decompress {r['decompress']:6.2f} ({r['decompress'] / r['copy']:.2f})"
        )
    for r in found.get("files", []):
        print(
            f"{r['what']:20} {r['bytes']:12} bytes {r['length']:.4f}  write {r['write']:6.2f} s  "
            f"read {r['read']:6.2f} s"
        )
    for r in found.get("rates", []):
        print(
            f"{r['rate']:6} MB/s  {r['what']:28} {r['bytes']:12} bytes  read {r['read']:6.2f} s "
            f"({r['least']:.2f} to {r['most']:.2f})"
        )


if __name__ == "__main__":
    main()
