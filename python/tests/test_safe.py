# SPDX-License-Identifier: BSD-3-Clause
"""load_file, save_file and safe_open do what those of safetensors do, which they are compared with where it is
installed; and raw bytes are taken for elements."""
import json
import mmap
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import pici
from pici import _original

try:
    import safetensors
    import safetensors.numpy
except ImportError:
    safetensors = None

NEEDS = unittest.skipUnless(safetensors, "the package safetensors is not installed")


def arrays():
    rng = np.random.default_rng(1)
    return {
        "layer.weight": rng.standard_normal((40, 30)).astype(np.float32),
        "half": rng.standard_normal(7).astype(np.float16),
        "mask": rng.random((3, 5)) < 0.5,
        "steps": np.int64(7),
        "empty": np.zeros((0, 4), np.uint8),
        "é": np.arange(6, dtype=">i2").reshape(2, 3),
    }


class Safe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.path = self.dir / "x.pici"

    def same(self, got, want):
        self.assertEqual(set(got), set(want))
        for name, x in want.items():
            self.assertEqual((got[name].shape, got[name].dtype), (x.shape, x.dtype.newbyteorder("=")), name)
            np.testing.assert_array_equal(got[name], x)

    def test_there_and_back(self):
        pici.save_file(arrays(), self.path, {"format": "np", "who": "é"})
        pici.save_file(arrays(), str(self.path), {"format": "np", "who": "é"})  # replaces it
        self.same(pici.load_file(self.path), arrays())
        with pici.safe_open(self.path, framework="np") as f:
            self.assertEqual(set(f.keys()), set(arrays()))
            self.assertEqual(f.metadata(), {"format": "np", "who": "é"})
            self.same({name: f.get_tensor(name) for name in f.keys()}, arrays())
            part = f.get_slice("layer.weight")
            self.assertEqual((part.get_shape(), part.get_dtype()), ([40, 30], "F32"))
            np.testing.assert_array_equal(part[3:9, ::2], arrays()["layer.weight"][3:9, ::2])
            with self.assertRaisesRegex(pici.NoTensorError, "no tensor 'nope'"):
                f.get_tensor("nope")
        with self.assertRaisesRegex(ValueError, "the file is closed"):
            f.keys()
        pici.save(self.path, arrays(), overwrite=True)  # of which there is no .safetensors file
        with pici.safe_open(self.path, "numpy") as f:
            self.assertIsNone(f.metadata())

    def test_some_names(self):
        """load() of a few tensors of a .safetensors file, alone or in a folder, reads and checks these alone."""
        head = b'{"mask":{"dtype":"BOOL","shape":[1048576],"data_offsets":[0,1048576]},'
        head += b'"x":{"dtype":"F32","shape":[3],"data_offsets":[1048576,1048588]}}'
        theirs = self.dir / "x.safetensors"
        rest = b"\2" * 1048576 + np.arange(3, dtype="<f4").tobytes()
        theirs.write_bytes(len(head).to_bytes(8, "little") + head + rest)
        for path in (theirs, self.dir):
            with self.assertRaisesRegex(ValueError, "no bool"):
                pici.load(path)
            found = pici.load(path, names=["x"])
            self.same(found, {"x": np.arange(3, dtype=np.float32)})
            found["x"][0] = 7
            base = found["x"]
            while isinstance(base.base, np.ndarray):
                base = base.base
            self.assertEqual((base.nbytes, base.base), (12, None))  # not the whole file
            with self.assertRaisesRegex(pici.NoTensorError, "no tensor 'y'"):
                pici.load(path, names=["x", "y"])
        self.assertEqual(theirs.read_bytes()[-12:-8], bytes(4))

    def test_words(self):
        with pici.create(self.path, overwrite=True) as w:
            w.add("x", np.zeros((4, 6), np.uint8), attrs={"source.dtype": b"F6_E2M3"})
            w.add("y", np.zeros((4, 6), np.uint8), attrs={"source.dtype": b"F6_E3M2"})
        with pici.safe_open(self.path, framework="np") as f:
            self.assertEqual([f.get_slice(name).get_dtype() for name in "xy"], ["F6_E2M3", "F6_E3M2"])
        for call in (pici.open, lambda path: pici.safe_open(path, "np")):
            with self.assertRaisesRegex(pici.ArgumentError, f"{self.dir} is a folder: pici.load"):
                call(self.dir)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "framework='tf'"):
            pici.safe_open(self.path, "tf")
        with self.assertRaisesRegex(ValueError, "device='cuda'"):
            pici.safe_open(self.path, "np", device="cuda")
        with self.assertRaisesRegex(TypeError, r"metadata\['step'\]"):
            pici.save_file(arrays(), self.path, {"step": 7})
        with self.assertRaisesRegex(TypeError, "has no complex128"):
            pici.save_file({"z": np.zeros(3, complex)}, self.path)
        for names, metadata in (("\udce9", {}), ("x", {"\udce9": ""}), ("x", {"who": "\udce9"})):
            with self.assertRaisesRegex(pici.ArgumentError, r"^'\\udce9': .* no surrogates"):
                pici.save_file({names: np.zeros(3)}, self.path, metadata)
        self.assertFalse(self.path.exists())
        for head in (b"12345678{", b"12345678[]", b"12345678" + b"[" * 100000, b'12345678{"__metadata__": {"a": 1}}'):
            with pici.create(
                self.path, attrs={"source.type": b"safetensors", "source.head": head}, overwrite=True
            ) as w:
                w.add("x", np.ones(3))
            with self.assertRaises(pici.CorruptError), pici.safe_open(self.path, "np") as f:
                f.metadata()

    def test_own_memory(self):
        """To change what was read changes no later read."""
        head = b'{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} '
        theirs = self.dir / "x.safetensors"
        theirs.write_bytes(len(head).to_bytes(8, "little") + head + np.arange(6, dtype="<f4").tobytes())
        pici.save_file({"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, self.path)
        for path in (theirs, self.path):
            with pici.safe_open(path, "np") as f:
                f.get_tensor("x")[:] = 9
                f.get_slice("x")[1:, :2][:] = 9
                self.assertEqual(f.get_slice("x")[1:, 1:].tolist(), [[4, 5]])
                self.assertEqual(f.get_tensor("x").tolist(), [[0, 1, 2], [3, 4, 5]])
                self.assertIs(type(f.get_tensor("x")), np.ndarray)
        with open(theirs, "rb") as f, self.assertRaisesRegex(TypeError, "pass the path"):
            pici.load(f)

    @NEEDS
    def test_files_of_safetensors(self):
        wanted = {name: np.asarray(x, x.dtype.newbyteorder("=")) for name, x in arrays().items()}
        theirs = self.dir / "x.safetensors"
        safetensors.numpy.save_file(wanted, theirs, {"format": "np"})
        self.same(pici.load_file(theirs), wanted)
        with pici.safe_open(theirs, "np") as f, safetensors.safe_open(theirs, "np") as g:
            self.assertEqual((set(f.keys()), f.metadata()), (set(g.keys()), g.metadata()))
            self.same({name: f.get_tensor(name) for name in f.keys()}, wanted)
            mine, other = f.get_slice("layer.weight"), g.get_slice("layer.weight")
            self.assertEqual((mine.get_shape(), mine.get_dtype()), (other.get_shape(), other.get_dtype()))
            np.testing.assert_array_equal(mine[3:5], other[3:5])
            f.get_tensor("half")[:] = 0  # a copy: the file stays
        self.same(safetensors.numpy.load_file(theirs), wanted)

    @NEEDS
    @unittest.skipUnless(os.environ.get("PICITOOL"), "safetensors of picitool: PICITOOL is not set")
    def test_picitool_restores_it(self):
        pici.save_file(arrays(), self.path, {"format": "np"})
        restored = self.dir / "y.safetensors"
        subprocess.run([os.environ["PICITOOL"], "decompress", "-q", "-o", restored, self.path], check=True)
        self.same(safetensors.numpy.load_file(restored), arrays())
        with safetensors.safe_open(restored, "np") as f:
            self.assertEqual(f.metadata(), {"format": "np"})
        with pici.open(self.path) as f:
            self.assertEqual(b"".join(_original.pieces(f)), restored.read_bytes())

    def test_originals(self):
        head = json.dumps({"x": 1}).encode()
        attrs = {"source.head": head}
        for before, end in ((b"3", head[3:]), (None, b"")):
            with pici.create(self.path, attrs=attrs, overwrite=True) as w:
                w.add("x", np.arange(5, dtype=np.int16), attrs={"source.before": before} if before else None)
            with pici.open(self.path) as f:
                got = b"".join(_original.pieces(f))
            self.assertEqual(got, head[: len(head) - len(end)] + np.arange(5, dtype="<i2").tobytes() + end)
        pairs = np.arange(6, dtype=np.float16).reshape(3, 2)
        for word, x in ((b"complex32", pairs), (b"<c8", pairs.astype(np.float32)), (b"", pairs)):
            with pici.create(self.path, overwrite=True) as w:
                w.add("x", x, attrs={"source.dtype": word, "source.endian": b"big"})
            with pici.open(self.path) as f:  # each part of a number is in this order
                self.assertEqual(b"".join(_original.pieces(f)), x.astype(x.dtype.newbyteorder(">")).tobytes())
        for bad in ({"source.before": b"99"}, {"source.before": b"-1"}, {"source.deflate": b""}):
            with pici.create(self.path, attrs=attrs, overwrite=True) as w:
                w.add("x", np.zeros(5), attrs=bad)
            with pici.open(self.path) as f, self.assertRaises((pici.CorruptError, pici.UnsupportedError)):
                list(_original.pieces(f))


class Raw(unittest.TestCase):
    def test_bytes(self):
        x = np.arange(1000, dtype=np.float32)
        block = pici.compress(x)
        with tempfile.TemporaryFile() as f:
            f.write(x.tobytes())
            f.flush()
            with mmap.mmap(f.fileno(), 0) as mapped:
                self.assertEqual(pici.compress(mapped, dtype="f32"), block)
        odd = memoryview(b"x" + x.tobytes())[1:]  # at an odd address
        for raw in (x.tobytes(), bytearray(x.tobytes()), memoryview(x.tobytes()), odd):
            self.assertEqual(pici.compress(raw, dtype="f32"), block)
            self.assertEqual(pici.inspect(pici.compress(raw)).dtype, "u8")
        self.assertEqual(pici.inspect(pici.compress(x.tobytes(), dtype="complex64")).count, 1000)
        self.assertEqual(pici.inspect(pici.compress(b"", dtype="bf16")).count, 0)
        out = bytearray(4000)
        pici.decompress(block, out=out, dtype="f32")
        self.assertEqual(out, x.tobytes())
        total = bytearray(x.tobytes())
        pici.scatter_add(total, block, dtype="f32")
        self.assertEqual(total, (2 * x).tobytes())

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "7 bytes are no whole number of elements of f32, 4 bytes each"):
            pici.compress(bytes(7), dtype="f32")
        with self.assertRaisesRegex(TypeError, "their widths differ"):  # an array says what it has
            pici.compress(np.zeros(8, np.uint8), dtype="f32")
        with self.assertRaisesRegex(TypeError, "their widths differ"):
            pici.compress(memoryview(bytes(8)).cast("h"), dtype="f32")
