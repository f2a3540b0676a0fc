# SPDX-License-Identifier: BSD-3-Clause
"""Small deltas of tensors in a GPU's memory, over the emulator of one."""
import os
import unittest
import unittest.mock

import numpy as np

import pici
import test_vllm
from gpu_stubs import Tensor, needs_emulator, patched
from pici import _gpu


def states(dtype, count=5000):
    rng = np.random.default_rng(3)
    exponents = rng.integers(0x3A00, 0x3D00, count) if dtype == np.uint16 else rng.integers(0, 256, count)
    old = exponents.astype(dtype)
    new = np.where(rng.random(count) < 0.03, old ^ dtype(1), old)
    return old, new


class Library(unittest.TestCase):
    def test_none(self):
        """Without the library the error says what is missing and how to get it."""
        _gpu.library.cache_clear()
        self.addCleanup(_gpu.library.cache_clear)
        with unittest.mock.patch.dict(os.environ, {"PICI_CUDA_LIBRARY": "/none/libpici_cuda.so"}):
            with self.assertRaisesRegex(ImportError, "needs libpici_cuda: .*make cuda-shared"):
                _gpu.library()


@needs_emulator
class Small(unittest.TestCase):
    SORTS = (
        (np.uint16, "torch.bfloat16", None),
        (np.uint8, "torch.float8_e4m3fn", None),
        (np.uint8, "torch.float8_e5m2", None),
        (np.uint8, "torch.uint8", "mxfp4"),
    )

    def setUp(self):
        patch = patched()
        patch.start()
        self.addCleanup(patch.stop)

    def test_same_bytes(self):
        """The delta that is made on the GPU is the host's, and leads to the same elements."""
        for kind, name, dtype in self.SORTS:
            with self.subTest(name=name, dtype=dtype):
                old, new = states(kind)
                there = Tensor.of(old, name)
                delta = pici.diff(there, Tensor.of(new, name), small=True, dtype=dtype)
                host = dtype or name
                self.assertEqual(delta, pici.diff(old, new, small=True, dtype=host, format="hybrid"))
                pici.apply(there, delta)
                self.assertEqual(there.cpu().numpy().tobytes(), new.tobytes())

    def test_parts(self):
        """Shards of two ranks, and their deltas in a row."""
        old, new = states(np.uint16)
        name, row = "torch.bfloat16", b""
        for first, end in ((0, 1700), (1700, 5000)):
            a, b = Tensor.of(old[first:end], name), Tensor.of(new[first:end], name)
            row += pici.diff(a, b, small=True, offset=first, of=5000)
        there = Tensor.of(old, name)
        pici.apply(there, row)
        self.assertEqual(there.cpu().numpy().tobytes(), new.tobytes())
        shard = Tensor.of(old[1700:], name)
        pici.apply(shard, row, offset=1700, of=5000)
        self.assertEqual(shard.cpu().numpy().tobytes(), new[1700:].tobytes())
        with self.assertRaises(pici.ArgumentError):
            pici.apply(shard, row, offset=1600, of=5000)

    def test_refused(self):
        old, new = (Tensor.of(x, "torch.bfloat16") for x in states(np.uint16))
        delta = pici.diff(old, new, small=True)
        with self.assertRaisesRegex(ValueError, "small=True"):
            pici.diff(old, new)
        with self.assertRaisesRegex(ValueError, "no checksum"):
            pici.diff(old, new, small=True, checksum=True)
        elsewhere = Tensor.of(states(np.uint16)[1], "torch.bfloat16")
        elsewhere.device = "cuda:1"
        with self.assertRaisesRegex(ValueError, "cuda.* and cuda:1: bring them to one GPU"):
            pici.diff(old, elsewhere, small=True)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            pici.diff(old[::2], new[::2], small=True)
        with self.assertRaisesRegex(ValueError, "small deltas"):
            pici.apply(old, pici.diff(*states(np.uint16)))
        with self.assertRaises(pici.CorruptError):
            pici.apply(old, delta[:-1])
        with self.assertRaises(pici.ArgumentError):
            pici.apply(Tensor.of(states(np.uint16)[0][1:], "torch.bfloat16"), delta)


class Trainer(test_vllm.EngineCase):
    """PICI_VLLM_CUDA=1: the trainer of pici.vllm makes small deltas on the GPU that its tensors are on."""

    def setUp(self):
        super().setUp()
        environment = unittest.mock.patch.dict(os.environ, {"PICI_VLLM_CUDA": "1"})
        environment.start()
        self.addCleanup(environment.stop)

    @needs_emulator
    def test_send(self):
        made = []
        real = _gpu.diff

        def counted(*args):
            made.append(args)
            return real(*args)

        server = self.server()
        trainer = self.trainer(server, encoding="small", threads=1)
        outer = self

        class Source:
            def __iter__(self):
                return ((name, Tensor.of(x)) for name, x in outer.state.items())

        trainer.source = Source()
        trainer._staging.on_host = lambda x: x._array.copy()
        with patched(), unittest.mock.patch.object(_gpu, "diff", counted):
            for i in range(3):
                trainer.send_weights()
                self.same(server)
                self.step(i)
            self.assertTrue(made)
            with unittest.mock.patch.object(_gpu, "diff", side_effect=RuntimeError("CUDA error: it fell off")):
                with self.assertRaisesRegex(RuntimeError, "fell off"):
                    trainer.send_weights()
            trainer.send_weights()
            self.same(server)

    def test_no_library(self):
        """Without the library the trainer says so when it is made."""
        _gpu.library.cache_clear()
        self.addCleanup(_gpu.library.cache_clear)
        with unittest.mock.patch.dict(os.environ, {"PICI_CUDA_LIBRARY": "/none/libpici_cuda.so"}):
            with self.assertRaisesRegex(ImportError, "needs libpici_cuda"):
                self.trainer(self.server())


if __name__ == "__main__":
    unittest.main()
