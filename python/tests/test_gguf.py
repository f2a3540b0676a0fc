# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files: .pici files that picitool (PICITOOL) made of them, with the package gguf if it is there, and deltas."""
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import pici

try:
    import gguf
except ImportError:
    gguf = None

TOOL = os.environ.get("PICITOOL")
# Of picitool, which has the sanitizer's runtime already.
OWN = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def made(tensors, order="<"):
    """A GGUF file of (name, number of the type, shape, bytes), with a gap after each tensor."""
    head, data = b"GGUF" + struct.pack(order + "IQQ", 3, len(tensors), 0), b""
    for name, kind, shape, elements in tensors:
        head += struct.pack(order + "Q", len(name)) + name.encode() + struct.pack(order + "I", len(shape))
        head += struct.pack(f"{order}{len(shape)}QIQ", *shape[::-1], kind, len(data))
        data += elements + bytes(-len(elements) % 32)
    return head + bytes(-len(head) % 32) + data


class Gguf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.w = np.arange(35, dtype=np.float32).reshape(5, 7)

    def compress(self, path):
        subprocess.run([TOOL, "compress", "-q", "-o", self.dir / "x.pici", path], check=True, env=OWN)
        return self.dir / "x.pici"

    @unittest.skipUnless(TOOL, "GGUF files in .pici files: PICITOOL is not set")
    def test_tensors_by_name(self):
        for order in "<>":
            path = self.dir / "x.gguf"
            w = self.w.astype(self.w.dtype.newbyteorder(order)).tobytes()
            path.write_bytes(made([("w", 0, (5, 7), w), ("q", 8, (2, 64), bytes(range(136)))], order))
            packed = self.compress(path)
            for load in pici.load, pici.load_file:
                found = load(packed)
                self.assertEqual(sorted(found), ["q", "w"])
                np.testing.assert_array_equal(found["w"], self.w)
                self.assertEqual(found["q"].tobytes(), bytes(range(136)))
                self.assertEqual(found["q"].shape, (2, 68))
            with pici.open(packed) as f:
                self.assertEqual(f["w"].shape, (5, 7))
            with self.assertRaisesRegex(pici.Error, "a GGUF file: picitool compress converts it to .pici"):
                pici.load(path)
            packed.unlink()

    def test_deltas(self):
        for order in "<>":
            old, new, delta, same = (self.dir / n for n in ("a.gguf", "b.gguf", "d.pici", "c.gguf"))
            w = self.w.astype(self.w.dtype.newbyteorder(order))
            old.write_bytes(made([("w", 0, (5, 7), w.tobytes())], order))
            w[2, 3] = -1
            new.write_bytes(made([("w", 0, (5, 7), w.tobytes())], order))
            pici.diff_files(old, new, delta, overwrite=True)
            pici.apply_files(old, delta, out=same, overwrite=True)
            self.assertEqual(same.read_bytes(), new.read_bytes())

    def test_damaged(self):
        whole = made([("w", 0, (5, 7), self.w.tobytes())])
        good, bad = self.dir / "a.gguf", self.dir / "b.gguf"
        good.write_bytes(whole)
        for size in range(1, len(whole) - 20, 7):
            bad.write_bytes(whole[:size])
            with self.assertRaises(pici.CorruptError):
                pici.diff_files(good, bad, self.dir / "d.pici")

    @unittest.skipUnless(gguf, "GGUF files of the package gguf: it is not installed")
    @unittest.skipUnless(TOOL, "GGUF files of the package gguf: PICITOOL is not set")
    def test_library(self):
        path = self.dir / "x.gguf"
        r = np.random.default_rng(1)
        x = r.standard_normal((4, 256)).astype(np.float32)
        blocks = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0)
        halves = gguf.quants.quantize(x, gguf.GGMLQuantizationType.BF16)
        w = gguf.GGUFWriter(path, "llama")
        w.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(100)])
        w.add_tensor("w", x)
        w.add_tensor("half", x.astype(np.float16))
        w.add_tensor("bf16", halves, raw_dtype=gguf.GGMLQuantizationType.BF16)
        w.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        found = pici.load(self.compress(path), to="bits")
        for t in gguf.GGUFReader(path).tensors:
            self.assertEqual(found[t.name].tobytes(), t.data.tobytes(), t.name)
            self.assertEqual(found[t.name].shape[0], 4)
        self.assertEqual(found["bf16"].shape, (4, 256))
        dense = gguf.quants.dequantize(found["blocks"], gguf.GGMLQuantizationType.Q8_0)
        self.assertLess(np.abs(dense - x).max(), 0.05)


if __name__ == "__main__":
    unittest.main()
