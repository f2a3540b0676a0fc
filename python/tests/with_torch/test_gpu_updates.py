# SPDX-License-Identifier: BSD-3-Clause
"""apply_delta() of dicts with tensors on a GPU, over tensors in the host's memory that say that they are there: cpu()
copies them."""
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import torch

import pici


class OnGpu(torch.Tensor):
    is_cuda = property(lambda self: True)  # type: ignore[assignment]

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()

    def __dlpack__(self, **options):
        raise AssertionError("memory of a GPU is taken for the host's")


class Broken(OnGpu):
    """A tensor that cannot be written to."""

    def __setitem__(self, where, values):
        raise RuntimeError("CUDA error: out of memory")


def on_gpu(x):
    return x.clone().as_subclass(OnGpu)


def states():
    torch.manual_seed(3)
    old = {
        "bf16": torch.randn(300, 40).bfloat16(),
        "f32": torch.randn(5000),
        "f8": torch.randn(900).to(torch.float8_e4m3fn),
        "complex": torch.randn(50, dtype=torch.complex64),
        "whole": torch.randn(30).half(),
        "same": torch.arange(9),
        "flags": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.0),
        "host": torch.randn(70),
    }
    new = {name: x.clone() for name, x in old.items()}
    new["bf16"][7, 3:30] *= -1
    new["bf16"].view(torch.int16)[200, 5] = 0x7FC1  # a NaN
    new["f32"][4000:4100] += 1
    new["f8"].view(torch.uint8)[::50] ^= 1
    new["complex"][4] = 1j
    new["whole"] += 1
    new["flags"][0] = False
    new["scalar"] += 1
    new["host"][3] = 0
    return old, new


def octets(x):
    return x.as_subclass(torch.Tensor).reshape(-1).view(torch.uint8).numpy().tobytes()


class Updates(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "d.pici"
        self.old, self.new = states()
        self.state = {name: x.clone() if name == "host" else on_gpu(x) for name, x in self.old.items()}

    def expect(self, want):
        for name, x in self.state.items():
            self.assertEqual(octets(x), octets(want[name]), name)

    def test_in_place(self):
        """Both kinds of delta; back, forth, and left by an exception."""
        for small in True, False:
            pici.save_delta(self.old, self.new, self.path, small=small, overwrite=True)
            update = pici.apply_delta(self.state, self.path, stage=True)
            self.expect(self.old)
            update.switch()
            self.expect(self.new)
            update.undo()
            self.expect(self.old)
            with self.assertRaises(KeyError), pici.apply_delta(self.state, self.path):
                self.expect(self.new)
                raise KeyError
            self.expect(self.old)
        self.assertNotIn("same", update.changed)
        with pici.apply_delta(self.state, self.path):
            pass
        self.expect(self.new)

    def test_shard_and_tied(self):
        """The rows of a rank, and two names of one tensor."""
        pici.save_delta(self.old, self.new, self.path, small=False)
        self.state["f32"] = on_gpu(self.old["f32"][3000:4050])
        pici.apply_delta(self.state, self.path, shards={"f32": (3000, 5000)}).commit()
        self.new["f32"] = self.new["f32"][3000:4050]
        self.expect(self.new)
        tied, after = ({"a": x["bf16"], "b": x["bf16"]} for x in states())
        pici.save_delta(tied, after, self.path, overwrite=True)
        one = on_gpu(tied["a"])
        update = pici.apply_delta({"a": one, "b": one}, self.path)
        self.assertEqual(octets(one), octets(after["a"]))
        update.undo()
        self.assertEqual(octets(one), octets(tied["a"]))

    def test_refused(self):
        """Another base, and what is not contiguous: nothing changes."""
        pici.save_delta(self.old, self.new, self.path)
        self.state["f32"][77] = 5
        before = {name: x.clone() for name, x in self.state.items()}
        with self.assertRaises(pici.ArgumentError):
            pici.apply_delta(self.state, self.path)
        self.expect(before)
        self.state["f32"] = on_gpu(self.old["f32"])
        self.state["bf16"] = on_gpu(self.old["bf16"].t().contiguous()).t()
        with self.assertRaisesRegex(ValueError, "'bf16': .* must be contiguous"):
            pici.apply_delta(self.state, self.path)

    def test_cannot_be_written(self):
        """If a tensor cannot be changed, the ones before it, and those in the host's memory, are what they were."""
        pici.save_delta(self.old, self.new, self.path)
        changed = pici.apply_delta(self.state, self.path, stage=True).changed
        for name in changed[1], changed[-1]:
            self.assertNotEqual(name, "host")
            self.state[name] = self.old[name].clone().as_subclass(Broken)
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                pici.apply_delta(self.state, self.path)
            self.expect(self.old)
            update = pici.apply_delta(self.state, self.path, stage=True)
            for _ in range(2):
                with self.assertRaisesRegex(RuntimeError, "out of memory"):
                    update.switch()
                self.assertFalse(update.switched)
                self.expect(self.old)
            with unittest.mock.patch.object(Broken, "__setitem__", OnGpu.__setitem__):
                update.switch()
                self.expect(self.new)
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                update.undo()
            self.expect(self.new)
            with unittest.mock.patch.object(Broken, "__setitem__", OnGpu.__setitem__):
                update.undo()
            self.expect(self.old)
            self.state[name] = on_gpu(self.old[name])

    def test_made_for_inference(self):
        """Tensors that torch lets change in its inference mode only, by an update that was made in that mode."""
        pici.save_delta(self.old, self.new, self.path)
        with torch.inference_mode():
            self.state["bf16"] = on_gpu(self.old["bf16"])
            update = pici.apply_delta(self.state, self.path, stage=True)
        self.assertTrue(self.state["bf16"].is_inference() and not self.state["f32"].is_inference())
        for mode in False, True:
            with torch.inference_mode(mode):
                update.switch()
                self.expect(self.new)
                update.undo()
                self.expect(self.old)
