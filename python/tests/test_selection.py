# SPDX-License-Identifier: BSD-3-Clause
"""Top-k selection agrees with NumPy; arrays of every kind; what is refused."""
import math
import unittest

import numpy as np

import pici
from test_dlpack import Foreign, ml_dtypes, torch

FLOATS = ["f4", "f8", "f2"]


def gradients(dtype, n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def largest(acc, count):
    """Which elements of acc are its `count` largest, of equal ones the first."""
    order = np.lexsort((np.arange(acc.size), -np.abs(acc)))
    kept = np.zeros(acc.size, bool)
    kept[order[:count]] = True
    return kept & (acc != 0)


def expected(acc, select="bucket", bucket=512, k=4, density=0.01):
    if select == "global":
        return largest(acc, math.ceil(density * acc.size))
    parts = [acc[i : i + bucket] for i in range(0, acc.size, bucket)]
    return np.concatenate([largest(p, -(-k * p.size // bucket)) for p in parts])


class Selection(unittest.TestCase):
    def test_as_numpy(self):
        for dtype in FLOATS:
            for n in (1, 100, 512, 5000, 30001):
                for options in ({}, {"bucket": 100, "k": 7}, {"select": "global"}, {"select": "global", "density": 1}):
                    with self.subTest(dtype=dtype, n=n, **options):
                        g, r = gradients(dtype, n), gradients(dtype, n, 1)
                        wide = np.float32 if dtype == "f2" else dtype
                        half = r.astype(wide) * np.asarray(0.5, wide)
                        acc = (half + g.astype(wide) * np.asarray(3, wide)).astype(dtype)
                        kept = expected(acc, **options)
                        out, nnz = pici.topk(g, r, rate=3, leak=0.5, **options)
                        self.assertEqual((out.dtype, nnz), (g.dtype, kept.sum()))
                        np.testing.assert_array_equal(out, np.where(kept, acc, 0))
                        np.testing.assert_array_equal(r, np.where(kept, 0, acc))

    def test_momentum(self):
        g, r, u = (gradients("f4", 4096, seed) for seed in range(3))
        v = u * np.float32(0.9) + g
        acc = r + v
        kept = expected(acc)
        out, nnz = pici.topk(g, r, u, momentum=0.9)
        self.assertEqual(nnz, 32)
        for array, want in ((out, np.where(kept, acc, 0)), (r, np.where(kept, 0, acc)), (u, np.where(kept, 0, v))):
            np.testing.assert_array_equal(array, want)

    def test_shape_and_place(self):
        g = gradients("f4", 6000).reshape(60, 100)
        out, nnz = pici.topk(g)
        self.assertEqual((out.shape, np.count_nonzero(out)), (g.shape, nnz))
        self.assertEqual(pici.topk(g.T)[0].shape, (100, 60))
        other = np.empty_like(g)
        result, _ = pici.topk(g, out=other)
        self.assertIs(result, other)
        np.testing.assert_array_equal(other, out)
        result, _ = pici.topk(g, out=g)
        self.assertIs(result, g)
        np.testing.assert_array_equal(g, out)
        empty, nnz = pici.topk(np.zeros((0, 3), np.float32))
        self.assertEqual((empty.shape, nnz), ((0, 3), 0))

    def test_sampled(self):
        g = gradients("f4", 300000)
        out, nnz = pici.topk(g, select="sampled")
        self.assertTrue(1500 <= nnz <= 6000)
        self.assertEqual(np.abs(g[out == 0]).max() < np.abs(out[out != 0]).min(), True)
        counts = {pici.topk(g, select="sampled", step=step, seed=seed)[1] for step in range(3) for seed in range(3)}
        self.assertGreater(len(counts), 3)
        self.assertEqual(pici.topk(g, select="sampled", sample=1)[1], 3000)

    def test_threads(self):
        g = gradients("f4", 1100000)
        for select in ("bucket", "global", "sampled"):
            one, many = pici.topk(g, select=select), pici.topk(g, select=select, threads=4)
            self.assertEqual((one[1], one[0].tobytes()), (many[1], many[0].tobytes()))

    def test_bf16(self):
        g = gradients("f4", 5000)
        bits = (g.view("u4") >> 16).astype("u2")
        cut = (bits.astype("u4") << 16).view("f4")
        residual = np.zeros_like(bits)
        out, nnz = pici.topk(bits, residual, dtype="bf16", to="bits", k=16)
        kept = expected(cut, k=16)
        np.testing.assert_array_equal(out, np.where(kept, bits, 0))
        np.testing.assert_array_equal(residual, np.where(kept, 0, bits))
        self.assertEqual(nnz, kept.sum())
        again, _ = pici.topk(Foreign(bits, "bf16"), Foreign(np.zeros_like(bits), "bf16"), to="dlpack", k=16)
        self.assertEqual(pici.compress(again), pici.compress(out, dtype="bf16"))
        if ml_dtypes:
            out, _ = pici.topk(bits.view(ml_dtypes.bfloat16), k=16)
            self.assertEqual(out.dtype, ml_dtypes.bfloat16)
            np.testing.assert_array_equal(out.view("u2"), np.where(kept, bits, 0))

    @unittest.skipUnless(torch, "no torch: its tensors, in and out")
    def test_torch(self):
        for name in ("float32", "float64", "float16", "bfloat16"):
            g = torch.randn(50, 100).to(getattr(torch, name))
            residual = torch.zeros_like(g)
            out, nnz = pici.topk(g, residual, to="torch")
            self.assertEqual((out.dtype, out.shape, int((out != 0).sum())), (g.dtype, g.shape, nnz))
            self.assertTrue(torch.equal(out + residual, g))
            before = out.clone()
            into, _ = pici.topk(g, torch.zeros_like(g), out=g)
            self.assertIs(into, g)
            self.assertTrue(torch.equal(g, before))

    def test_refusals(self):
        g = gradients("f4", 1000)
        for wrong in (
            {"select": "all"},
            {"bucket": 0},
            {"k": 0},
            {"k": 513},
            {"k": 2**32},
            {"density": 0},
            {"density": 1.5},
            {"density": math.nan},
            {"sample": -1},
            {"rate": math.inf},
            {"rate": 1e300},
            {"leak": 2},
            {"leak": math.nan},
            {"momentum": 1},
            {"momentum": 0.5},
            {"velocity": g.copy()},
            {"seed": -1},
            {"step": 2**64},
            {"threads": -1},
            {"to": "list"},
            {"residual": g[:500]},
            {"residual": np.zeros(2000, "f4")[::2]},
        ):
            with self.subTest(**wrong):
                (name,) = wrong
                with self.assertRaisesRegex(ValueError, name if name != "residual" else "gradient|row-major"):
                    pici.topk(g, **wrong)
        for what in ("residual", "out"):
            for x in (np.zeros(2000, "f4")[::2], [0.0] * 1000):
                self.assertRaisesRegex((TypeError, ValueError), f"^{what}", pici.topk, g, **{what: x})
        read_only = np.zeros_like(g)
        read_only.flags.writeable = False
        self.assertRaisesRegex(ValueError, "residual is read-only", pici.topk, g, read_only)
        self.assertRaisesRegex(TypeError, "residual are f64", pici.topk, g, np.zeros(1000))
        for dtype in ("i4", "?", "c8", "u1"):
            self.assertRaisesRegex(TypeError, "takes f32", pici.topk, np.zeros(1000, dtype))
        for arrays in ({"residual": g}, {"residual": g, "out": np.zeros_like(g)}):
            self.assertRaisesRegex(pici.ArgumentError, "overlap", pici.topk, g, **arrays)

    def test_warmup(self):
        self.assertEqual([pici.topk_warmup(10 * e + 9, 10) for e in range(5)], [0.25, 0.0625, 4**-3, 4**-4, 0.001])
        self.assertEqual(pici.topk_warmup(0, 0), 0.001)
        self.assertRaises(ValueError, pici.topk_warmup, -1, 10)
