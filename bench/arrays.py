# SPDX-License-Identifier: BSD-3-Clause
"""Sizes and seconds of chunks of arrays in Zarr (--zarr) or HDF5 (--hdf5), with pici beside the codecs that people use
there; one thread, in memory. Needs zarr, or h5py and hdf5plugin, and the package pici; for HDF5, HDF5_PLUGIN_PATH with
libpici_h5.so.

    python bench/arrays.py --zarr --mib 32 --rounds 3"""
import argparse
import io
import statistics
import time
import warnings

import numpy as np

CHUNK = 1 << 20  # bytes


def arrays(size):
    """Arrays of `size` bytes, by what they are like."""
    rng = np.random.default_rng(0)
    n = size // 4
    side = int(size**0.5)
    y, x = np.ogrid[:side, :side]
    blobs = np.zeros((side, side), bool)
    for _ in range(60):
        cy, cx, r = rng.integers(0, side), rng.integers(0, side), rng.integers(side // 100, side // 20)
        blobs |= (y - cy) ** 2 + (x - cx) ** 2 < r * r
    walk = np.cumsum(rng.standard_normal(n).astype(np.float32) * np.float32(0.01))
    return {
        "mask, u8, blobs": blobs.reshape(-1).astype(np.uint8),
        "counts, u16, Poisson 0.05": rng.poisson(0.05, size // 2).astype(np.uint16),
        "counts, u16, Poisson 3": rng.poisson(3, size // 2).astype(np.uint16),
        "gradient, f32, 1% nonzero": np.where(rng.random(n) < 0.01, rng.standard_normal(n), 0).astype(np.float32),
        "gradient, f32, 10% nonzero": np.where(rng.random(n) < 0.1, rng.standard_normal(n), 0).astype(np.float32),
        "weights, f32, normal": rng.standard_normal(n).astype(np.float32),
        "field, f32, random walk": walk.astype(np.float32),
        "field, f32, smooth": np.sin(np.linspace(0, 200, n)).astype(np.float32),
    }


def in_zarr(x):
    """For each codec: functions that write x and read it, and the bytes that were stored."""
    import numcodecs.blosc
    import pici.zarr
    import zarr

    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    numcodecs.blosc.set_nthreads(1)
    codecs = {
        "zstd (default)": {},
        "blosc lz4, shuffle": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")},
        "blosc zstd, bitshuffle": {"compressors": zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")},
        "pici": {"serializer": pici.zarr.PiciCodec(), "compressors": None},
        "pici, then zstd": {"serializer": pici.zarr.PiciCodec(), "compressors": zarr.codecs.ZstdCodec()},
    }
    for name, options in codecs.items():
        chunks = (CHUNK // x.itemsize,)

        def write(options=options, chunks=chunks):
            z = zarr.create_array({}, shape=x.shape, chunks=chunks, dtype=x.dtype, **options)
            z[...] = x
            return z

        yield name, write, lambda z: z[...], lambda z: z.nbytes_stored()


def in_hdf5(x):
    import h5py
    import hdf5plugin

    codecs = {
        "gzip 4, shuffle": {"compression": "gzip", "shuffle": True},
        "blosc lz4, shuffle": dict(hdf5plugin.Blosc(cname="lz4")),
        "blosc zstd, bitshuffle": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
        "bitshuffle lz4": dict(hdf5plugin.Bitshuffle()),
        "pici": {"compression": 318, "compression_opts": (1,)},
    }
    for name, options in codecs.items():

        def write(options=options):
            f = h5py.File(io.BytesIO(), "w")
            f.create_dataset("x", data=x, chunks=(CHUNK // x.itemsize,), **options)
            f.flush()
            return f

        yield name, write, lambda f: f["x"][...], lambda f: f["x"].id.get_storage_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zarr", action="store_true")
    parser.add_argument("--hdf5", action="store_true")
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for title, wanted, codecs in (("Zarr", chosen.zarr, in_zarr), ("HDF5", chosen.hdf5, in_hdf5)):
        if not wanted:
            continue
        print(f"{title}: share of the bytes; GB/s to write, and to read ({chosen.mib} MiB, median of {chosen.rounds})")
        for what, x in arrays(chosen.mib << 20).items():
            print(what)
            for name, write, read, stored in codecs(x):
                times = [], []
                for _ in range(chosen.rounds):
                    start = time.perf_counter()
                    made = write()
                    middle = time.perf_counter()
                    found = read(made)
                    end = time.perf_counter()
                    times[0].append(middle - start)
                    times[1].append(end - middle)
                if found.tobytes() != x.tobytes():
                    raise SystemExit(f"{name}: {what} did not come back")
                speeds = [x.nbytes / statistics.median(t) / 1e9 for t in times]
                print(f"  {name:24}{stored(made) / x.nbytes:8.4f}{speeds[0]:8.2f}{speeds[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
