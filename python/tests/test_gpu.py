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


@needs_emulator
class Changes(unittest.TestCase):
    """Positions and new values, as tensors there."""

    def setUp(self):
        patch = patched()
        patch.start()
        self.addCleanup(patch.stop)

    def same(self, found, expected, name):
        at, values = found
        self.assertTrue(at.is_cuda and values.is_cuda)
        self.assertEqual((at.dtype, values.dtype), ("torch.int64", name))
        self.assertEqual(at.cpu().numpy().tolist(), expected[0].tolist())
        self.assertEqual(values.cpu().numpy().tobytes(), expected[1].tobytes())

    def test_as_on_the_host(self):
        for kind, name, dtype in Small.SORTS:
            old, new = states(kind)
            there = Tensor.of(old, name)
            host = dtype or name
            named = "torch.float4_e2m1fn_x2" if dtype else name
            for small in (False, True):
                delta = pici.diff(old, new, small=small, dtype=host)
                for part in ((), (1000,), (1000, 3000), (5000,), (4999, 1), (0, 0)):
                    with self.subTest(name=name, dtype=dtype, small=small, part=part):
                        expected = pici.changes(old, delta, *part, dtype=host, to="bits")
                        self.same(pici.changes(there, delta, *part, dtype=dtype), expected, named)
                        self.same(pici.changes(there, delta, *part, dtype=dtype, to="torch"), expected, named)
            self.assertEqual(there.cpu().numpy().tobytes(), old.tobytes())

    def test_other_elements(self):
        """Of 4 bytes, of several dimensions, of bool, and none."""
        rng = np.random.default_rng(8)
        old = rng.standard_normal((70, 90)).astype(np.float32)
        new = np.where(rng.random(old.shape) < 0.4, old + 1, old)
        for small in (False, True):
            delta = pici.diff(old, new, small=small)
            found = pici.changes(Tensor.of(old, "torch.float32"), delta)
            self.same(found, pici.changes(old, delta), "torch.float32")
        bits = rng.random(999) < 0.5
        delta = pici.diff(bits, ~bits)
        self.same(pici.changes(Tensor.of(bits, "torch.bool"), delta), pici.changes(bits, delta), "torch.bool")
        wrong = pici.diff(bits.view("u1"), bits.view("u1") ^ 6)
        with self.assertRaisesRegex(ValueError, "an element is 7, which is no bool"):
            pici.changes(Tensor.of(bits, "torch.bool"), wrong)
        none = old[:0]
        delta = pici.diff(none, none)
        self.same(pici.changes(Tensor.of(none, "torch.float32"), delta), pici.changes(none, delta), "torch.float32")

    def test_positions(self):
        """of 4 bytes, if the caller asks for i32; and as many as there are, even if the first guess was too few."""
        old, new = np.arange(60000, dtype=np.float32), np.arange(60000, dtype=np.float32) + 7
        there = Tensor.of(old, "torch.float32")
        at, values = pici.changes(there, pici.diff(old, new), 10, index="i32")
        self.assertEqual(at.dtype, "torch.int32")
        self.assertEqual(at.cpu().numpy().tolist(), list(range(59990)))
        self.assertEqual(values.cpu().numpy().tolist(), new[10:].tolist())
        new = old.view(np.uint32).copy()
        new[30000:] ^= 1
        delta = pici.diff(old, new.view(np.float32), small=True)
        self.assertLess(3 * len(delta), 30000)
        at, values = pici.changes(there, delta)
        self.assertEqual(at.cpu().numpy().tolist(), list(range(30000, 60000)))
        self.assertEqual(values.cpu().numpy().tobytes(), new[30000:].tobytes())
        new = old.copy()
        new[5] += 1
        at, values = pici.changes(there, pici.diff(old, new, small=True))
        self.assertEqual(values.cpu().numpy().tolist(), [6])
        self.assertEqual((len(at._memory.octets), len(values._memory.octets)), (8, 4))  # not what was guessed
        for index in ("u32", "u64", "i64"):
            need = 30000 * 12
            self.assertEqual(pici.changes(there, delta, index=index, max_bytes=need)[0].numel(), 30000)
            with self.assertRaisesRegex(pici.LimitError, f"30000 elements of f32 and their positions take {need} b"):
                pici.changes(there, delta, index=index, max_bytes=need - 1)

    def test_refused(self):
        old, new = states(np.uint16)
        there = Tensor.of(old, "torch.bfloat16")
        for small in (False, True):
            delta = pici.diff(old, new, small=small, dtype="bf16")
            for wrong in (delta[:-1], delta[:40], delta[:-1] + bytes([delta[-1] ^ 255]) if small else delta[:-2]):
                with self.assertRaises(pici.CorruptError):
                    pici.changes(old, wrong, dtype="bf16", to="bits")
                with self.assertRaises(pici.CorruptError):
                    pici.changes(there, wrong)
            for to in ("numpy", "bits", "dlpack"):
                with self.assertRaisesRegex(ValueError, f"to='{to}' of a tensor in a GPU's memory"):
                    pici.changes(there, delta, to=to)
            with self.assertRaisesRegex(ValueError, "index='u16'"):
                pici.changes(there, delta, index="u16")
            with self.assertRaisesRegex(ValueError, "elements .4000, 5001. of a delta of 5000"):
                pici.changes(there, delta, 4000, 1001)
            with self.assertRaisesRegex(ValueError, "4999 elements; the delta has 5000"):
                pici.changes(there[1:], delta)
            with self.assertRaisesRegex(ValueError, "contiguous"):
                pici.changes(there[::2], delta)
            with self.assertRaisesRegex(TypeError, "the elements are f32, the delta's bf16"):
                pici.changes(Tensor.of(old.astype("f4"), "torch.float32"), delta)
        with self.assertRaises(pici.CorruptError):
            pici.changes(Tensor.of(np.zeros_like(old), "torch.bfloat16"), delta)  # not its base

    def test_parts(self):
        """Deltas of rows, one after the other, are one of the whole tensor; those of columns are refused."""
        old, new = (x.reshape(50, 100) for x in states(np.uint16))
        there = Tensor.of(old, "torch.bfloat16")
        rows = [
            pici.diff(old[a:b], new[a:b], small=True, offset=a, of=50, dtype="bf16") for a, b in ((0, 17), (17, 50))
        ]
        expected = pici.changes(old, b"".join(rows), dtype="bf16", to="bits")
        self.same(pici.changes(there, b"".join(rows)), expected, "torch.bfloat16")
        columns = [
            pici.diff(old[:, a:b], new[:, a:b], small=True, offset=a, of=100, axis=1, dtype="bf16")
            for a, b in ((0, 40), (40, 100))
        ]
        for base, named in ((old, {"dtype": "bf16", "to": "bits"}), (there, {})):
            with self.assertRaisesRegex(pici.UnsupportedError, "columns .0, 40. of 50 rows of 100"):
                pici.changes(base, b"".join(columns), **named)
            for some in rows:
                with self.assertRaises(pici.ArgumentError):
                    pici.changes(base, some, **named)
        flat = old.reshape(-1)[:1100]
        row = [
            pici.diff(flat[i : i + 1], flat[i : i + 1], small=True, offset=i, of=1100, dtype="bf16")
            for i in range(1100)
        ]
        self.assertEqual(pici.changes(flat, b"".join(row), dtype="bf16", to="bits")[0].size, 0)
        with self.assertRaisesRegex(pici.UnsupportedError, "more than 1024 small deltas in a row"):
            pici.changes(Tensor.of(flat, "torch.bfloat16"), b"".join(row))


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

    @needs_emulator
    def test_side_stream(self):
        """The copy that deltas are made of is whole before a thread makes them. It is made in the current stream of the
        source's thread, and the copy to the host waits for that stream."""
        queued = []

        class InAStream(Tensor):
            def clone(self):
                copy = Tensor.of(np.zeros_like(self._array), self.dtype)
                queued.append((copy, self))
                return copy

        def on_host(x):
            while queued:
                to, source = queued.pop()
                to._array[...] = source._array
            return x._array.copy()

        server = self.server()
        trainer = self.trainer(server, encoding="small", threads=2)
        names = [*reversed(self.state)]  # the last tensor changes; the first does not
        trainer.source = type(
            "Source", (), {"__iter__": lambda _: ((name, InAStream.of(self.state[name])) for name in names)}
        )()
        trainer._staging.on_host = on_host
        with patched():
            for i in range(2):
                trainer.send_weights()
                self.same(server)
                self.step(i)

    def test_no_library(self):
        """Without the library the trainer says so when it is made."""
        _gpu.library.cache_clear()
        self.addCleanup(_gpu.library.cache_clear)
        with unittest.mock.patch.dict(os.environ, {"PICI_CUDA_LIBRARY": "/none/libpici_cuda.so"}):
            with self.assertRaisesRegex(ImportError, "needs libpici_cuda"):
                self.trainer(self.server())


if __name__ == "__main__":
    unittest.main()
