# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch.load gives what torch.load gives; load_file, save_file and safe_open, tensors."""
import io
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import torch

import pici
import pici.torch


def checkpoint():
    torch.manual_seed(0)
    weight = torch.randn(64, 32)
    return {
        "model": {"fc.weight": weight, "tied": weight, "half": torch.randn(9).to(torch.bfloat16), "row": weight[3]},
        "step": 7,
        "groups": [{"lr": 0.1, "betas": (0.9, 0.95)}],
    }


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.pt, self.path = self.dir / "x.pt", self.dir / "x.pici"

    def same(self, got):
        want = checkpoint()
        self.assertEqual((got["step"], got["groups"]), (want["step"], want["groups"]))
        self.assertEqual(set(got["model"]), set(want["model"]))
        for name, x in want["model"].items():
            self.assertEqual(got["model"][name].dtype, x.dtype)
            self.assertTrue(torch.equal(got["model"][name], x), name)
        self.assertEqual(got["model"]["fc.weight"].data_ptr(), got["model"]["tied"].data_ptr())

    def test_pt(self):
        for options in ({}, {"_use_new_zipfile_serialization": False}):  # as before torch 1.6
            torch.save(checkpoint(), self.pt, **options)
            self.same(pici.torch.load(self.pt))
            self.same(pici.torch.load(str(self.pt), "cpu"))
            with open(self.pt, "rb") as f:
                self.same(pici.torch.load(f))

    @unittest.skipUnless(os.environ.get("PICITOOL"), ".pt files that picitool compressed: PICITOOL is not set")
    def test_compressed_pt(self):
        for options in ({"_use_new_zipfile_serialization": False}, {}):  # as before torch 1.6
            torch.save(checkpoint(), self.pt, **options)
            tool = os.environ["PICITOOL"]
            subprocess.run([tool, "compress", "-q", "--force", "-o", self.path, self.pt], check=True)
            self.same(pici.torch.load(self.path))
            self.same(pici.torch.load(io.BytesIO(self.path.read_bytes())))
            self.same(pici.torch.load(self.path, mmap=True))
            with pici.open(self.path) as f:
                self.assertEqual(f["model.fc.weight"][:].tolist(), checkpoint()["model"]["fc.weight"].tolist())
        self.assertEqual(pici.torch.load(self.path, "meta")["model"]["half"].device.type, "meta")
        with self.assertRaises(pici.LimitError):
            pici.torch.load(self.path, max_bytes=1000)
        self.path.write_bytes(self.path.read_bytes()[:-100])
        with self.assertRaises(pici.CorruptError):
            pici.torch.load(self.path)

    def test_code_is_not_run(self):
        torch.save({"x": os.getcwd}, self.pt)
        with self.assertRaisesRegex(Exception, "[Ww]eights"):
            pici.torch.load(self.pt)

    def test_safetensors(self):
        state = {"w": torch.randn(30, 4), "b": torch.randn(5).to(torch.bfloat16), "mask": torch.tensor([True, False])}
        state["p"] = torch.nn.Parameter(state["w"] * 2)
        pici.torch.save_file(state, self.path, {"format": "pt"})
        found = [pici.torch.load_file(self.path), pici.torch.load(self.path)]
        with pici.safe_open(self.path, framework="pt", device="cpu") as f:
            self.assertEqual(f.metadata(), {"format": "pt"})
            found.append({name: f.get_tensor(name) for name in f.keys()})
            self.assertTrue(torch.equal(f.get_slice("w")[2:7, ::2], state["w"][2:7, ::2]))
            self.assertTrue(torch.equal(f.get_slice("b")[1], state["b"][1]))
        with pici.safe_open(self.path, framework="pt", device="meta") as f:
            self.assertEqual(f.get_tensor("w").device.type, "meta")
            self.assertEqual(f.get_slice("w")[2:7].device.type, "meta")
        for got in found:
            self.assertEqual(set(got), set(state))
            for name, x in state.items():
                self.assertTrue(torch.equal(got[name], x.detach()), name)
        pici.save(self.path, {"b": state["b"]}, overwrite=True)
        for call in (pici.torch.save_file, lambda state, path: pici.save_delta(state, state, path)):
            with self.assertRaisesRegex((RuntimeError, ValueError, BufferError), "'lost'"):
                call({"lost": torch.ones(3, device="meta")}, self.path)
        head = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  '
        theirs = self.dir / "x.safetensors"
        theirs.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
        self.assertEqual(pici.torch.load(theirs)["x"].tolist(), [0, 0])
        with open(theirs, "rb") as f, self.assertRaisesRegex(TypeError, "pass the path"):
            pici.torch.load(f)
        with pici.safe_open(theirs, "pt", device="meta") as f:
            self.assertEqual(f.get_slice("x")[1:].device.type, "meta")
        with self.assertRaisesRegex(TypeError, "map_location"):
            pici.torch.load(self.path, lambda storage, where: storage)
