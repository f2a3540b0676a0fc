# SPDX-License-Identifier: BSD-3-Clause
"""The filter of HDF5, through h5py and h5dump. HDF5_PLUGIN_PATH is the folder with libpici_h5.so (make hdf5)."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import pici
from test_zarr import is_same, some

try:
    import h5py
except ImportError:
    h5py = None

FILTER = 318
FOLDER = os.environ.get("HDF5_PLUGIN_PATH", "")
HAS_PLUGIN = Path(FOLDER, "libpici_h5.so").exists() if FOLDER else False
STRUCTURE = np.dtype([("x", "<f4"), ("y", ">i2"), ("z", "u1")])
DTYPES = "f4 f8 f2 i1 u1 i2 u2 i4 u4 i8 u8 ? c8 c16 >f4 >f8 >u2 >i8 >c8 S5 V3 V12"


def raw(dataset, at=(0, 0)):
    """The parameters of a dataset's filter, and the bytes of a chunk."""
    plist = dataset.id.get_create_plist()
    return plist.get_filter(0)[2], dataset.id.read_direct_chunk(at)[1]


@unittest.skipUnless(h5py, "h5py is not installed")
@unittest.skipUnless(HAS_PLUGIN, "HDF5_PLUGIN_PATH names no folder with libpici_h5.so (make hdf5)")
class Filter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "x.h5")

    def write(self, x, name="x", **options):
        with h5py.File(self.path, "a") as f:
            given = {"chunks": (4, 5), "compression": FILTER, **options}
            f.create_dataset(name, data=x, **given)

    def read(self, name="x"):
        with h5py.File(self.path, "r") as f:
            return f[name][...]

    def test_dtypes(self):
        kinds = {"f4": "f32", "c16": "f64", ">f4": "f32", ">u2": "u16", "S5": "u8", "V3": "u8", "V12": "u32", "?": "u8"}
        for number, word in enumerate(DTYPES.split()):
            dtype = np.dtype(word)
            x = some("u1", (9, 11 * dtype.itemsize)).view(dtype) if dtype.kind == "V" else some(dtype, (9, 11))
            self.write(x, f"x{number}")
            self.assertTrue(is_same(self.read(f"x{number}"), x), word)
            with h5py.File(self.path, "r") as f:
                _, block = raw(f[f"x{number}"])
                if word in kinds:
                    self.assertEqual(pici.inspect(block).dtype, kinds[word], word)
                if word == ">f4":  # the elements, not their bytes in that order
                    first = np.ascontiguousarray(x[:4, :5], "f4")
                    self.assertEqual(pici.decompress(block).tobytes(), first.tobytes())
        x = some(STRUCTURE, (9, 11))
        self.write(x, "structure")
        self.assertTrue(is_same(self.read("structure"), x))

    def test_options(self):
        x = np.random.default_rng(0).standard_normal((64, 64)).astype("f4")
        sizes = {}
        for pack in (0, 1, 3, None):
            options = {} if pack is None else {"compression_opts": (pack,)}
            self.write(x, f"x{pack}", chunks=(64, 64), **options)
            with h5py.File(self.path, "r") as f:
                (found, _, dtype, size), block = raw(f[f"x{pack}"])
                self.assertEqual((found, dtype, size), (1 if pack is None else pack, 1, x.nbytes))
                sizes[pack] = len(block)
            self.assertTrue(is_same(self.read(f"x{pack}"), x))
        self.assertEqual(sizes[None], sizes[1])
        self.assertLess(sizes[1], 0.9 * sizes[0])
        with self.assertRaisesRegex((ValueError, RuntimeError), "pici: the parameter is 0|set local"):
            self.write(x, "wrong", compression_opts=(7,))

    def test_other_filters(self):
        x = some("f4", (9, 11))
        for name, options in (("after", {"fletcher32": True}), ("before", {"shuffle": True})):
            self.write(x, name, **options)
            self.assertTrue(is_same(self.read(name), x))
        with h5py.File(self.path, "a") as f:  # compressed before: blocks have fewer bytes than a chunk
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((64, 64))
            plist.set_deflate(1)
            plist.set_filter(FILTER, h5py.h5z.FLAG_OPTIONAL, (1,))
            ones = np.ones((64, 64), "f4")
            made = h5py.h5d.create(f.id, b"deflated", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((64, 64)), plist)
            h5py.Dataset(made)[...] = ones
        self.assertTrue(is_same(self.read("deflated"), ones))
        words = [f"text {i}".encode() for i in range(12)]
        self.write(np.array(words, object), "words", chunks=(5,), dtype=h5py.string_dtype())
        self.assertEqual(list(self.read("words")), words)

    def test_damaged(self):
        x = some("f4", (8, 10))
        self.write(x)
        with h5py.File(self.path, "r") as f:
            _, block = raw(f["x"])
        huge = pici.compress(np.zeros(1 << 28, "u1"))
        wrong = [block[:i] for i in range(0, len(block), 5)]
        wrong += [block[:i] + bytes([block[i] ^ 16]) + block[i + 1 :] for i in range(len(block))]
        lengths = [pici.compress(np.ones(n, "f4")) for n in (0, 1, 19, 21)]  # of 20
        for bad in (*wrong[1:], *lengths, block + b"x", huge):
            with h5py.File(self.path, "r+") as f:
                f["x"].id.write_direct_chunk((0, 0), bad)
            with self.assertRaises((OSError, RuntimeError)), h5py.File(self.path, "r") as f:
                f["x"][:4, :5]
            with h5py.File(self.path, "r") as f:
                self.assertTrue(is_same(f["x"][4:], x[4:]))  # other chunks

    @unittest.skipUnless(shutil.which("h5dump"), "h5dump is not installed")
    def test_h5dump(self):
        self.write(np.arange(40, dtype="f4").reshape(5, 8))
        said = subprocess.run(["h5dump", "-d", "/x", self.path], check=True, capture_output=True, text=True).stdout
        self.assertIn("(4,0): 32, 33, 34, 35, 36, 37, 38, 39", said)
        said = subprocess.run(["h5dump", "-pH", self.path], check=True, capture_output=True, text=True).stdout
        self.assertIn("pici: lossless blocks", said)
        with h5py.File(self.path, "r+") as f:
            f["x"].id.write_direct_chunk((0, 0), pici.compress(np.zeros(1 << 28, "u1")))
        damaged = subprocess.run(["h5dump", "-E", "-d", "/x", self.path], capture_output=True, text=True)
        self.assertNotEqual(damaged.returncode, 0)
        self.assertIn("pici: the block has more bytes than the chunk", damaged.stderr)
