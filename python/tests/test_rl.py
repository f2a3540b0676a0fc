# SPDX-License-Identifier: BSD-3-Clause
"""pici.rl: modules for frameworks, over stand-ins of the names that they use of these. TRL's protocol is TRL's own
where it is installed."""
import abc
import asyncio
import importlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import pici
import test_url_logs
import vllm_stubs
from test_vllm import EngineCase, bits, stepped, weights

WEIGHTS = [weights()]
for step in range(4):
    WEIGHTS.append(stepped(WEIGHTS[-1], step))


def verl_stubs():
    """What pici.rl.verl uses of verl."""
    base = types.ModuleType("verl.checkpoint_engine.base")

    class CheckpointEngineRegistry:
        _registry = {}

        @staticmethod
        def register(backend):
            def wrapper(cls):
                CheckpointEngineRegistry._registry[backend] = cls
                return cls

            return wrapper

        @classmethod
        def new(cls, backend, *args, **kwargs):
            return cls._registry[backend](*args, **kwargs)

    class CheckpointEngine(abc.ABC):
        prepare = build_topology = init_process_group = finalize = send_weights = receive_weights = abc.abstractmethod(
            lambda self: None
        )

    base.CheckpointEngineRegistry, base.CheckpointEngine = CheckpointEngineRegistry, CheckpointEngine
    modules = {name: types.ModuleType(name) for name in ("verl", "verl.checkpoint_engine")}
    return {**modules, "verl.checkpoint_engine.base": base}


class Verl(unittest.TestCase):
    def setUp(self):
        stubs = verl_stubs()
        patch = unittest.mock.patch.dict(sys.modules, stubs)
        patch.start()
        self.addCleanup(patch.stop)
        sys.modules.pop("pici.rl.verl", None)
        importlib.import_module("pici.rl.verl")  # as custom_backend_module does
        self.registry = stubs["verl.checkpoint_engine.base"].CheckpointEngineRegistry
        self.new = lambda **how: self.registry.new("pici", bucket_size=1 << 20, to="numpy", host="127.0.0.1", **how)
        self.trainers = [self.new(is_master=rank == 0) for rank in range(2)]
        self.rollouts = [self.new() for _ in range(2)]
        logging.getLogger("pici.vllm").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("pici.vllm").setLevel, logging.NOTSET)
        self.addCleanup(lambda: self.trainers[0]._publisher and self.trainers[0]._publisher.close())

    def update(self, state, rollouts=None):
        """What verl's CheckpointEngineManager.update_weights() does: the states that rollouts get."""
        rollouts = rollouts or self.rollouts
        kind = type(self.trainers[0])
        metadata = [engine.prepare() for engine in self.trainers + rollouts]
        groups = kind.build_topology(len(self.trainers), len(rollouts), metadata)
        for engines, kwargs in zip((self.trainers, rollouts), groups):
            for name, values in kwargs.items():
                self.assertEqual(len(values), len(engines))
            for i, engine in enumerate(engines):
                engine.init_process_group(**{name: values[i] for name, values in kwargs.items()})

        async def received(engine):
            return {name: np.array(x) async for name, x in engine.receive_weights(global_steps=1)}

        async def all_of_it():
            tasks = [asyncio.create_task(received(engine)) for engine in rollouts]
            await asyncio.sleep(0.02)  # rollouts are first to ask
            for engine in self.trainers:
                await engine.send_weights(iter(state.items()), global_steps=1)
            return [await task for task in tasks]

        found = asyncio.run(all_of_it())
        for engine in self.trainers + rollouts:
            engine.finalize()
        return found

    def test_steps(self):
        for i, state in enumerate(WEIGHTS):
            for found in self.update(state):
                self.assertEqual(bits(found), bits(state))
            self.assertEqual(self.rollouts[0].step.kind, "4 tensors changed" if i else "whole")
        late = self.new()
        for found in self.update(WEIGHTS[0], [*self.rollouts, late]):
            self.assertEqual(bits(found), bits(WEIGHTS[0]))
        self.rollouts[0]._replica.mirror[0]["norm"][0] = 7  # somebody's mistake: it is found, and heals
        self.rollouts[0]._replica.mirror[0]["embed.weight"][0] = 7
        for found in self.update(WEIGHTS[1]):
            self.assertEqual(
                bits({"embed.weight": found["embed.weight"]})["embed.weight"], WEIGHTS[1]["embed.weight"].tobytes()
            )

    def test_no_master(self):
        kind = type(self.trainers[0])
        for metadata in ([{}, {}], [{"url": "tcp://a:1"}, {"url": "tcp://b:1"}]):
            with self.assertRaisesRegex(ValueError, "are masters, and not one"):
                kind.build_topology(2, 0, metadata)

    def test_a_trainer_that_does_not_send(self):
        rollout = self.new(timeout=0.1)
        metadata = [self.trainers[0].prepare(), {}]
        kwargs = type(rollout).build_topology(1, 1, metadata)[1]
        rollout.init_process_group(**{name: values[0] for name, values in kwargs.items()})

        async def one():
            async for _ in rollout.receive_weights():
                pass

        with unittest.mock.patch("pici.vllm._wire.TIMEOUT", 0.2):
            with self.assertRaisesRegex(TimeoutError, "no version 0"):
                asyncio.run(one())


class Trl(EngineCase):
    def test_trl(self):
        try:
            module = importlib.import_module("trl.experimental.async_grpo.async_grpo_trainer")
            names = [n for n in vars(module.WeightTransferProtocol) if not n.startswith("_")]
        except Exception:  # it is not there, or needs what is not there
            names = ["init_weight_transfer", "pause", "send_weights", "resume", "destroy"]
        from pici.rl.trl import WeightTransfer

        servers = {f"http://{name}:8000": self.server(base_url=f"http://{name}:8000") for name in "ab"}
        transfer = WeightTransfer(list(servers), client=servers.get, url="tcp://127.0.0.1:0", encoding="small")
        for name in names:
            self.assertTrue(callable(getattr(transfer, name)), name)
        posted = []
        with unittest.mock.patch("pici.rl.trl._post", posted.append):
            transfer.init_weight_transfer()
            for i in range(3):
                transfer.pause()
                transfer.send_weights(iter(self.state.items()))
                transfer.resume()
                self.same(*servers.values())
                self.step(i)
            transfer.destroy()
        self.assertEqual(
            posted[:4], [f"http://{n}:8000/{verb}" for verb in ("pause?mode=keep", "resume") for n in "ab"]
        )


class Slime(unittest.TestCase):
    def test_slime(self):
        """Each host gets the very files that the trainer has written, from deltas alone."""
        from pici.rl import slime

        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            args = SimpleNamespace(hf_checkpoint=str(top / "base"))
            vllm_stubs.checkpoint(str(top / "base"), WEIGHTS[0])
            environment = {"PICI_DELTAS": str(top / "deltas"), "PICI_BASE": args.hf_checkpoint}
            with unittest.mock.patch.dict(os.environ, environment):
                (top / "trainer").mkdir()
                slime.publish(args, str(top / "trainer"), [])  # as slime does at first
                for version in range(1, 5):
                    where = top / "trainer" / f"weight_v{version:06d}"
                    vllm_stubs.checkpoint(str(where), WEIGHTS[version])
                    slime.publish(args, f"{where}/", [])
                    delta = top / "deltas" / where.name
                    size, whole = (sum(f.stat().st_size for f in d.iterdir()) for d in (delta, where))
                    self.assertLess(size, whole / 4)
                    threads = [threading.Thread(target=slime.pull, args=(str(top / "host"), version)) for _ in range(3)]
                    for t in threads:
                        t.start()
                    for t in threads:
                        t.join()
                    for f in where.iterdir():
                        self.assertEqual((top / "host" / where.name / f.name).read_bytes(), f.read_bytes())
                self.assertEqual(len(list((top / "host").glob("weight_v*"))), 2)
                slime.pull(str(top / "late"), 4)
                late = pici.load(str(top / "late" / "weight_v000004"))
                self.assertEqual(bits(late), bits(WEIGHTS[4]))

                # A second run in the same folders, other weights from version 1 on: the host has versions of the first.
                slime.pull(str(top / "host"), 4)
                (top / "second").mkdir()
                for version in (1, 2):
                    again = top / "second" / f"weight_v{version:06d}"
                    vllm_stubs.checkpoint(str(again), WEIGHTS[version + 2])
                    slime.publish(args, str(again), [])
                    slime.pull(str(top / "host"), version)
                    for f in again.iterdir():
                        self.assertEqual((top / "host" / again.name / f.name).read_bytes(), f.read_bytes())
                mark = top / "host" / "weight_v000002" / "mark"
                mark.touch()
                slime.pull(str(top / "host"), 2)  # again, as another process of the host does
                self.assertTrue(mark.exists())
                (top / "host" / ".pici-weight_v000002").unlink()  # as of a pull that was killed
                slime.pull(str(top / "host"), 2)
                self.assertFalse(mark.exists())
                for version, delta in ((3, "weight_v000002"), (4, "weight_v000003")):  # pruned ones
                    shutil.rmtree(top / "deltas" / delta)
                    more = top / "second" / f"weight_v{version:06d}"
                    vllm_stubs.checkpoint(str(more), WEIGHTS[version - 2])
                    slime.publish(args, str(more), [])
                    slime.pull(str(top / "host"), version)
                    for f in more.iterdir():
                        self.assertEqual((top / "host" / more.name / f.name).read_bytes(), f.read_bytes())
                shutil.rmtree(top / "deltas" / "weight_v000004")
                slime.pull(str(top / "host"), 4)
                (top / "host" / ".pici-weight_v000004").unlink()
                with self.assertRaisesRegex(FileNotFoundError, "weight_v000004: no delta"):
                    slime.pull(str(top / "host"), 4)
                self.assertTrue((top / "host" / "weight_v000004").is_dir())
                index = where / "model.safetensors.index.json"
                index.write_text(json.dumps({"metadata": {"delta_encoding": "xor"}, "weight_map": {}}))
                with self.assertRaisesRegex(ValueError, "is a delta of slime's own"):
                    slime.publish(args, str(where), [])
            with unittest.mock.patch.dict(os.environ, {"PICI_DELTAS": str(top / "deltas"), "PICI_BASE": ""}):
                with self.assertRaisesRegex(ValueError, "PICI_BASE is not set"):
                    slime.pull(str(top / "new"), 1)
            with unittest.mock.patch.dict(os.environ, {"PICI_DELTAS": ""}):
                with self.assertRaisesRegex(ValueError, "PICI_DELTAS is not set"):
                    slime.pull(str(top / "new"), 1)


class SkyRL(unittest.TestCase):
    def setUp(self):
        try:
            import zstandard  # noqa: F401
        except ImportError:
            self.skipTest("pici.rl.skyrl: there is no zstandard (python3-zstandard)")

    def test_skyrl(self):
        import zstandard

        from pici.rl.skyrl import MAGIC, compress_bytes, decompress_bytes

        old = np.linspace(-1, 1, 200000, dtype=np.float16).view(np.uint16)
        new = old.copy()
        at = np.random.default_rng(0).random(old.size) < 0.03
        new[at] += 1
        xor = (old ^ new).tobytes()
        packed = compress_bytes(xor)
        self.assertLess(len(packed), len(zstandard.ZstdCompressor(level=3).compress(xor)) * 0.9)
        for data in (xor, xor[:-1], b"", b"x", bytes(1001)):
            self.assertEqual(decompress_bytes(compress_bytes(data), len(data)), data)
            self.assertEqual(decompress_bytes(compress_bytes(data)), data)
        for size in (len(xor) - 2, len(xor) + 2, 0):
            with self.assertRaises(ValueError):
                decompress_bytes(packed, size)
        with self.assertRaisesRegex(ValueError, "the trainer compresses otherwise"):
            decompress_bytes(xor, len(xor))
        bomb = MAGIC + zstandard.ZstdCompressor().compress(bytes(10**7))
        with self.assertRaisesRegex(ValueError, "more than 100 bytes"):
            decompress_bytes(bomb, 100)
        other = MAGIC + zstandard.ZstdCompressor().compress(pici.compress(np.zeros(50, np.float64)))
        for size in (50, 400, None):
            with self.assertRaisesRegex(ValueError, "elements of f64"):
                decompress_bytes(other, size)
        for k in range(len(MAGIC), len(packed), len(packed) // 97):
            for bad in (packed[:k], packed[:k] + bytes([packed[k] ^ 1]) + packed[k + 1 :]):
                try:
                    self.assertEqual(decompress_bytes(bad, len(xor)), xor)
                except (pici.Error, ValueError):
                    pass


class Nemo(unittest.TestCase):
    def setUp(self):
        test_url_logs.faulty_store(self)

    def test_nemo(self):
        from pici.rl.nemo import Transport, receive

        got = []

        def notify(name, checksum, candidates):
            got.append((receive("faulty://refit", name, checksum), candidates))
            with self.assertRaisesRegex(pici.ChecksumError, "its BLAKE2 is"):
                receive("faulty://refit", name, "00" * 16)
            return {"ok": True}

        transport = Transport("faulty://refit", notify)
        self.assertEqual((transport.name, transport.transfer_workers), ("pici", 4))
        for i in range(3):
            test_url_logs.Faulty.reset(at=i, error=OSError)
            result = transport.send(bytes([i]) * 1000, i, 7)
            self.assertEqual(result["receiver"], {"ok": True})
            self.assertTrue(all(isinstance(v, float) for k, v in result.items() if k.endswith("_s")))
        self.assertEqual(got, [(bytes([i]) * 1000, 7) for i in range(3)])
        self.assertFalse(test_url_logs.Faulty.store)
        transport._notify = unittest.mock.Mock(side_effect=RuntimeError("a receiver died"))
        with self.assertRaisesRegex(RuntimeError, "a receiver died"):
            transport.send(b"x", 3, 0)
        self.assertEqual(len(test_url_logs.Faulty.store), 1)
        transport.cleanup()
        self.assertFalse(test_url_logs.Faulty.store)
        with self.assertRaisesRegex(ValueError, "is no name of a payload"):
            receive("faulty://refit", "../x", "")
        with self.assertRaisesRegex(pici.UnsupportedError, "not written"):
            Transport("http://127.0.0.1/refit", notify)


if __name__ == "__main__":
    unittest.main()
