# SPDX-License-Identifier: BSD-3-Clause
"""Distributed checkpoints of torch through pici.torch.checkpoint: whole, sharded, asynchronous, resharded, damaged."""
import io
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import pici
import ranks

try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    import pici.torch.checkpoint as checkpoint
except ImportError:
    checkpoint = None


def state():
    torch.manual_seed(0)
    big = torch.randn(1500, 1000).to(torch.bfloat16)
    mask = torch.rand(900, 1000) < 0.01
    return {"bf16": big, "f32": torch.randn(900, 1000) * mask, "odd": torch.arange(7).to(torch.uint8), "step": 7}


def zeros():
    return {k: torch.zeros_like(v) if isinstance(v, torch.Tensor) else 0 for k, v in state().items()}


def size_of(folder):
    return sum(p.stat().st_size for p in Path(folder).iterdir())


def sharded(rank, size, folder):
    """Two ranks save the rows that they have, at once and in the background."""
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    mine = {k: distribute_tensor(v, mesh, [Shard(0)]) for k, v in state().items() if k in ("bf16", "f32")}
    dcp.save(mine, storage_writer=checkpoint.Writer(f"{folder}/now"))
    group = dist.new_group(backend="gloo")
    dcp.async_save(mine, storage_writer=checkpoint.Writer(f"{folder}/later"), process_group=group).result()
    again = {k: distribute_tensor(torch.zeros_like(state()[k]), mesh, [Shard(1)]) for k in mine}  # columns
    dcp.load(again, storage_reader=checkpoint.Reader(f"{folder}/now"))
    for k, x in again.items():
        assert torch.equal(x.full_tensor(), state()[k]), k


@unittest.skipUnless(checkpoint, f"torch {torch.__version__} has no extensions of distributed checkpoints")
class Checkpoint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, folder, names=("bf16", "f32", "odd", "step")):
        got = {k: v for k, v in zeros().items() if k in names}
        dcp.load(got, storage_reader=checkpoint.Reader(folder), no_dist=True)
        for k in names:
            want = state()[k]
            self.assertTrue(torch.equal(got[k], want) if isinstance(want, torch.Tensor) else got[k] == want, k)

    def test_whole(self):
        plain, packed = f"{self.folder}/plain", f"{self.folder}/packed"
        dcp.save(state(), storage_writer=dcp.FileSystemWriter(plain), no_dist=True)
        dcp.save(state(), storage_writer=checkpoint.Writer(packed), no_dist=True)
        self.check(packed)
        self.check(plain)  # also what is not compressed
        self.assertLess(size_of(packed), 0.36 * size_of(plain))

    def test_sharded(self):
        ranks.run(2, sharded, self.folder)
        for name in ("now", "later"):
            self.check(f"{self.folder}/{name}", ("bf16", "f32"))

    def test_streams(self):
        rng = np.random.default_rng(0)
        for size in (0, 1, 7, (1 << 22) - 1, 1 << 22, (1 << 22) + 1, 9000001):
            for head in (b"", b"FloatStorage"):
                data = head + rng.integers(0, 3, size, np.uint8).tobytes()
                out, held = io.BytesIO(), {}
                out.close = lambda out=out, held=held: held.setdefault("bytes", out.getvalue())
                with checkpoint.Pici().transform_to(out) as stream:
                    for at in range(0, len(data), 3 << 20):
                        stream.write(data[at : at + (3 << 20)])
                packed = held["bytes"]
                self.assertEqual(checkpoint.Pici().transform_from(io.BytesIO(packed)).read(), data)
        packed = packed[:2000]
        for bad in (packed, b"PICISTR2" + packed[8:], b"", packed[:8] + b"\xff" * 8):
            with self.assertRaises(pici.Error):
                checkpoint.Pici().transform_from(io.BytesIO(bad)).read()
        none = pici.compress(np.zeros(0, "f4"))
        frame = len(none).to_bytes(4, "little") + none
        self.assertEqual(checkpoint.Pici().transform_from(io.BytesIO(b"PICISTR1" + frame + bytes(4))).read(), b"")
        huge = pici.compress(np.zeros((1 << 22) + 1, "u1"))
        with self.assertRaisesRegex(pici.CorruptError, "a frame of 4194305 elements"):
            checkpoint.Pici().transform_from(io.BytesIO(b"PICISTR1" + len(huge).to_bytes(4, "little") + huge)).read()

    def test_any_stream(self):
        """Streams of short frames, changed anywhere, are an error or bytes."""
        rng = np.random.default_rng(5)
        parts = [rng.integers(0, 3, n).astype(dtype) for n, dtype in ((300, "f4"), (90, "u1"), (1, "f8"))]
        blocks = [pici.compress(x, checksum=x.dtype != "f4", pack="planes") for x in parts]
        pieces = [b"PICISTR1", *(len(block).to_bytes(4, "little") + block for block in blocks), bytes(4)]
        whole = b"".join(pieces)
        self.assertEqual(
            checkpoint.Pici().transform_from(io.BytesIO(whole)).read(), b"".join(x.tobytes() for x in parts)
        )
        starts = [*np.cumsum([len(piece) for piece in pieces]), 0]
        failed = 0
        for k in range(4000):
            bad = bytearray(whole)
            for _ in range(1 + k % 3):
                near = rng.choice(starts) + rng.integers(0, 80)  # heads more often than elements
                at = int(near if k % 2 else rng.integers(0, len(whole))) % max(1, len(bad))
                change = rng.integers(0, 4)
                if change == 0:
                    bad[at : at + 1] = rng.integers(0, 256, 1, np.uint8).tobytes()
                elif change == 1:
                    bad[at : at + 4] = int(rng.choice([0, 1, 2**22, 2**31, 2**32 - 1])).to_bytes(4, "little")
                elif change == 2:
                    del bad[at : at + int(rng.integers(1, 300))]
                else:
                    bad[at:at] = whole[at : at + int(rng.integers(1, 300))]
            try:
                with checkpoint.Pici().transform_from(io.BytesIO(bytes(bad))) as stream:
                    self.assertLess(len(stream.read()), 1 << 23)
            except pici.Error:
                failed += 1
        self.assertGreater(failed, 3000)

    def test_damaged(self):
        dcp.save(state(), storage_writer=checkpoint.Writer(self.folder), no_dist=True)
        path = next(Path(self.folder).glob("*.distcp"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with self.assertRaises(dcp.CheckpointException) as caught:
            self.check(self.folder)
        self.assertIn("Checksum", repr(caught.exception) + str(caught.exception))

    def test_versions(self):
        self.assertEqual(checkpoint.Pici.from_descriptor("1").get_descriptor(), "stream.pici/1")
        with self.assertRaisesRegex(ValueError, "version '2'"):
            checkpoint.Pici.from_descriptor("2")
