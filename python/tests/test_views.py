# SPDX-License-Identifier: BSD-3-Clause
"""Views of the tensors of a file: second names, slices, permuted and conjugate tensors."""
import io
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

import pici

CODES = {"f32": 1, "f16": 3, "i16": 9, "u8": 8, "bf16": 4}


def row(tensor, name, dtype, shape, strides, offset=0, flags=0, word=""):
    """A view as formats/attributes.md has it."""
    fixed = struct.pack("<QQBBBBI", tensor, offset, CODES[dtype], len(shape), flags, len(word), len(name))
    text = name.encode() + b"\0" + word.encode()
    dims = struct.pack(f"<{2 * len(shape)}Q", *shape, *strides)
    return fixed + dims + text + bytes(8 - len(text) % 8)


def table(*rows):
    return struct.pack("<Q", len(rows)) + b"".join(rows)


def made(rows, tensors, stem=b"zip"):
    f = io.BytesIO()
    pici.save(f, tensors, attrs={"source.views": table(*rows), "source.unnamed": stem})
    return f.getvalue()


FLOATS = np.arange(60, dtype=np.float32)
VIEWS = [
    row(0, "again", "f32", (60,), (1,)),
    row(0, "rows", "f32", (2, 10), (10, 1), 20),
    row(1, "permuted", "f32", (5, 3, 4), (1, 20, 5)),
    row(1, "expanded", "f32", (4, 3), (0, 1), 9),
    row(1, "overlap", "f32", (5, 6), (1, 2), 3),
    row(1, "scalar", "f32", (), (), 59),
    row(1, "none", "f32", (0, 3), (3, 1), 60),
    row(1, "conj", "f32", (4, 3, 2), (2, 8, 1), 2, 1, "complex64"),
    row(1, "plain", "f32", (4, 3, 2), (2, 8, 1), 2, 0, "complex64"),
    row(1, "neg", "f32", (4,), (7,), 1, 2),
    row(1, "halves", "i16", (5,), (3,), 4),
]


class Views(unittest.TestCase):
    def setUp(self):
        self.data = made(VIEWS, {"a": FLOATS, "zip.1": FLOATS, "zip": np.arange(9, dtype=np.uint8)})
        pairs = FLOATS[2:58]
        z = np.ndarray((4, 3), np.complex64, pairs.tobytes(), 0, (8, 32))
        strided = np.lib.stride_tricks.as_strided
        self.want = {
            "a": FLOATS,
            "again": FLOATS,
            "rows": FLOATS[20:40].reshape(2, 10),
            "permuted": FLOATS.reshape(3, 4, 5).transpose(2, 0, 1),
            "expanded": np.broadcast_to(FLOATS[9:12], (4, 3)),
            "overlap": strided(FLOATS[3:], (5, 6), (4, 8)),
            "scalar": FLOATS[59].reshape(()),
            "none": np.empty((0, 3), np.float32),
            "conj": z.conj(),
            "plain": z,
            "neg": -FLOATS[1:29:7],
            "halves": FLOATS.astype("<f4").view("<i2")[4:17:3],
        }

    def same(self, got, want):
        self.assertEqual(got.dtype, want.dtype)
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_array_equal(got, want)

    def test_load(self):
        got = pici.load(io.BytesIO(self.data))
        self.assertEqual(list(got), list(self.want))
        for name, want in self.want.items():
            self.same(got[name], want)
        got["a"][20] = 777
        self.assertEqual(got["rows"][0, 0], 777)
        self.assertEqual(got["again"][20], 777)
        got["plain"][0, 0] = 5 + 6j
        self.assertEqual(list(got["permuted"].transpose(1, 2, 0).reshape(-1)[2:4]), [5, 6])
        self.assertEqual(got["conj"][0, 0], 2 - 3j)  # a copy

    def test_one_by_one(self):
        f = pici.open(io.BytesIO(self.data))
        self.assertEqual(len(f), len(self.want))
        for name, want in self.want.items():
            t = f[name]
            self.assertEqual((t.shape, t.size, t.order), (want.shape, want.size, "C"))
            self.same(t.read(), want)
            if want.ndim:
                self.same(t[...], want)
                self.same(t[1:], want[1:])
                self.same(t.read(want.size // 3, want.size // 2), want.reshape(-1)[want.size // 3 :][: want.size // 2])
            if want.size:
                self.same(np.asarray(t), want)
            self.assertIn(name, f)
        for name in ("zip", "zip.1"):
            self.assertNotIn(name, f)
            self.assertRaises(pici.NoTensorError, f.__getitem__, name)
        self.assertRaisesRegex(pici.NoTensorError, "did you mean 'permuted'", f.__getitem__, "permute")

    def test_few_elements_of_many(self):
        f = pici.open(io.BytesIO(made([row(0, "v", "f32", (1 << 29, 2), (0, 2))], {"zip": FLOATS})))
        self.same(f["v"][1 << 28], FLOATS[:3:2])
        self.assertRaises(pici.LimitError, f["v"].read, 0, 1 << 30)
        for dtype, word in (("u8", "bool"), ("f16", "complex32")):
            shape, strides = ((1 << 29, 2), (0, 1)) if word == "complex32" else ((1 << 40,), (0,))
            storage = {"zip": np.zeros(4, np.float16 if word == "complex32" else np.uint8)}
            data = made([row(0, "v", dtype, shape, strides, 0, 0, word)], storage)
            self.assertRaises(pici.LimitError, pici.load, io.BytesIO(data))

    def test_halves_in_pairs(self):
        halves = np.arange(12, dtype=np.float16)
        f = pici.open(io.BytesIO(made([row(0, "v", "f16", (2, 3, 2), (2, 4, 1), 0, 0, "complex32")], {"zip": halves})))
        want = halves.reshape(3, 2, 2).transpose(1, 0, 2).reshape(-1)
        np.testing.assert_array_equal(np.asarray(f["v"].read(0, 4)).reshape(-1), want[:8])

    def test_any_stride_of_one(self):
        rows = [row(0, "v", "f32", (1, 3), (1 << 63, 1)), row(0, "e", "f32", (0,), (1 << 63,), 1 << 40)]
        data = made(rows, {"zip": FLOATS})
        got, f = pici.load(io.BytesIO(data)), pici.open(io.BytesIO(data))
        self.same(got["v"], FLOATS[:3].reshape(1, 3))
        self.same(f["e"][...], np.empty(0, np.float32))

    def test_a_tensor_of_a_views_name(self):
        f = pici.open(io.BytesIO(made([row(1, "a", "f32", (4,), (2,))], {"a": FLOATS, "b": -FLOATS}, b"zip")))
        self.assertEqual(list(f).count("a"), 1)
        self.same(f["a"].read(), -FLOATS[:8:2])

    def test_some_names(self):
        got = pici.load(io.BytesIO(self.data), names=["permuted", "neg"])
        self.assertEqual(list(got), ["permuted", "neg"])
        self.same(got["permuted"], self.want["permuted"])

    def test_limit(self):
        many = made([row(0, "x", "f32", (1 << 40, 3), (0, 1))], {"zip": FLOATS})
        self.assertEqual(pici.load(io.BytesIO(many))["x"].shape, (1 << 40, 3))
        many = made([row(0, "x", "f32", (1 << 40, 3), (0, 1), 0, 2)], {"zip": FLOATS})
        self.assertRaises(pici.LimitError, pici.load, io.BytesIO(many))
        self.assertRaises(pici.LimitError, pici.load, io.BytesIO(self.data), max_bytes=100)

    def test_malformed(self):
        good = table(*VIEWS[2:4])
        for n in range(len(good)):
            f = io.BytesIO()
            pici.save(f, {"a": FLOATS, "zip.1": FLOATS}, attrs={"source.views": good[:n]})
            self.assertRaisesRegex(pici.CorruptError, "source.views", pici.load, io.BytesIO(f.getvalue()))
        beyond = made([row(0, "x", "f32", (2,), (3,), 58)], {"zip": FLOATS})
        self.assertRaisesRegex(pici.CorruptError, "source.views", pici.load, io.BytesIO(beyond))

    def test_names_that_are_left_out(self):
        f = io.BytesIO()
        names = ("x.y", "x.y.12", "x.y.z", "x.y.", "xzy", "x.y.1\n")
        pici.save(f, {n: FLOATS for n in names}, attrs={"source.unnamed": b"x.y"})
        self.assertEqual(list(pici.load(io.BytesIO(f.getvalue()))), ["x.y.z", "x.y.", "xzy", "x.y.1\n"])

    def test_bits_and_bf16(self):
        data = made(
            [row(0, "t", "bf16", (3, 4), (1, 3)), row(0, "n", "bf16", (2,), (5,), 1, 2)],
            {"zip": np.arange(12, dtype=np.uint16)},
        )
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "x.pici"
            path.write_bytes(data)
            got = pici.load(path, to="bits")
        np.testing.assert_array_equal(got["t"], np.arange(12, dtype=np.uint16).reshape(4, 3).T)
        np.testing.assert_array_equal(got["n"], np.array([1, 6], np.uint16) ^ 0x8000)


if __name__ == "__main__":
    unittest.main()
