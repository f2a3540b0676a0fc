# SPDX-License-Identifier: BSD-3-Clause
"""What torch.save writes, picitool compresses and pici.load reads is what torch.load reads: shapes, strides, signs, and
which tensors share memory."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

import pici


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(10, 4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.emb.weight


def storage(t):
    return t.untyped_storage()._cdata


@unittest.skipUnless(os.environ.get("PICITOOL"), ".pt files that picitool compressed: PICITOOL is not set")
class Views(unittest.TestCase):
    def compressed(self, state):
        """Path of a .pici file, and what torch loads of the .pt file."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pt, stored, back = (Path(folder.name) / name for name in ("x.pt", "x.pici", "y.pt"))
        torch.save(state, pt)
        tool = os.environ["PICITOOL"]
        subprocess.run([tool, "compress", "-q", "-o", stored, pt], check=True)
        subprocess.run([tool, "decompress", "-q", "-o", back, stored], check=True)
        self.assertEqual(pt.read_bytes(), back.read_bytes())
        return stored, torch.load(pt, weights_only=False)

    def same(self, got, want, name):
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), name)
        a, b = (x.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for x in (got, want))
        self.assertTrue(torch.equal(a, b), name)

    def check_all(self, state):
        path, want = self.compressed(state)
        got = pici.load(path, to="torch")
        self.assertEqual(set(got), set(want))
        with pici.open(path) as f:
            for name, t in want.items():
                self.same(got[name], t, name)
                self.same(f[name].read(to="torch"), t, name)
                if f[name].dtype != "bf16":
                    np.testing.assert_array_equal(f[name].read(), t.resolve_conj().resolve_neg().numpy())
        for a in want:
            for b in want:
                self.assertEqual(storage(got[a]) == storage(got[b]), storage(want[a]) == storage(want[b]), (a, b))
        return got

    def test_channels_last(self):
        m = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        got = self.check_all(m.state_dict())
        self.assertEqual(got["weight"].stride(), m.weight.stride())
        n = torch.nn.Conv2d(3, 8, 3)
        n.load_state_dict(got)
        self.assertTrue(torch.equal(n.weight, m.weight))

    def test_layouts(self):
        x, c = torch.randn(1000, 64), torch.randn(5, 6, dtype=torch.complex64)
        self.check_all(
            {
                "x": x[10:20],
                "y": x[:, ::3],
                "t": x.t(),
                "expanded": torch.randn(3, 1).expand(3, 5),
                "empty": torch.empty(0, 3),
                "none": x[5:5],
                "scalar": x[3, 4],
                "all": x,
                "c": c,
                "conj": c.conj(),
                "part": c[1:].t(),
                "part of conj": c[1:].t().conj(),
                "bf16": torch.randn(4, 6).to(torch.bfloat16).t()[1:],
                "bool": (torch.randn(7, 7) > 0)[::2],
                "overlap": x.as_strided((4, 3), (1, 2), 7),
                "permuted": torch.arange(60).reshape(3, 4, 5).permute(2, 0, 1),
                "f": torch.randn(4, 6).t(),
                "row": torch.randn(3, 3).half()[1],
                "c128": torch.randn(4, dtype=torch.complex128)[::2],
            }
        )
        self.check_all({"neg": torch.randn(4, dtype=torch.complex64).conj().imag})

    def test_types(self):
        bits = torch.arange(24, dtype=torch.uint8).reshape(2, 12)
        names = ("float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3fn", "complex32", "bfloat16")
        state = {name: bits.clone().view(getattr(torch, name)) for name in names if hasattr(torch, name)}
        path, want = self.compressed({**state, **{f"{name} part": t[:, 1:3] for name, t in state.items()}})
        got = pici.load(path, to="torch")
        self.assertEqual(set(got), set(want))
        for name, t in want.items():
            self.assertEqual((got[name].dtype, got[name].shape, got[name].stride()), (t.dtype, t.shape, t.stride()))
            self.same(got[name], t, name)

    def test_tied(self):
        got = self.check_all(Tied().state_dict())
        Tied().load_state_dict(got)
        self.check_all({"x": torch.randn(1000, 64)[10:20]})

    def test_save_tied(self):
        """What is one memory by several names is stored once, and is one memory again."""
        x, mask, z = torch.randn(50, 40), torch.rand(30) > 0.5, torch.randn(6, dtype=torch.complex64)
        state = {"b": x, "a": x, "t": x.t(), "t2": x.t(), "part": x[:9], "mask": mask, "mask2": mask.detach()}
        state.update(
            {"z": z, "z2": z, "none": x[:0], "none2": x[:0], "conj": z.conj(), "one": x[0, 0], "one2": x[0, 0]}
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.pici"
            pici.save(path, state, attrs={"key": b"value"})
            with pici.open(path) as f:
                self.assertEqual((set(f), f.attrs["key"]), (set(state), b"value"))
            got = pici.load(path, to="torch")
            for name, t in state.items():
                self.same(got[name], t.resolve_conj(), name)
            for name in ("b a", "t t2", "mask mask2", "z z2", "one one2"):
                a, b = (storage(got[n]) for n in name.split())
                self.assertEqual(a, b, name)
            self.assertNotEqual(storage(got["z"]), storage(got["conj"]))
            self.assertLess(path.stat().st_size, 2 * 8000 + 1440 + 1500)
            ones = {name: torch.randn(shape) for name, shape in (("a", (1,)), ("b", (3, 1)), ("c", (1, 1, 4)))}
            ones["d"] = torch.randn(1, dtype=torch.complex64)
            pici.save(path, {**ones, **{f"{name}2": t for name, t in ones.items()}}, overwrite=True)
            for name, t in pici.load(path, to="torch").items():
                self.assertEqual(t.stride(), ones[name[0]].stride(), name)
                self.assertTrue(torch.equal(t.view(torch.uint8), ones[name[0]].view(torch.uint8)), name)
            pici.save(path, Tied().state_dict(), overwrite=True)
            Tied().load_state_dict(pici.load(path, to="torch"))

    def test_big_pickle(self):
        """A pickle of more than 1 MiB is no tensor."""
        path, _ = self.compressed({"x": torch.arange(9), "text": "a" * (3 << 20)})
        self.assertEqual(list(pici.load(path)), ["x"])


if __name__ == "__main__":
    unittest.main()
