# SPDX-License-Identifier: BSD-3-Clause
"""Weights that a vLLM on the CPU gets while it serves. Its tokens and its weights' hashes equal those of a vLLM started
from the same checkpoint.
"""
import contextlib
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import models
import torch
from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

from pici.vllm import LLMClient, PiciTrainerInitInfo


ALIVE = []


class Case(unittest.TestCase):
    tied = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.first = models.make(cls.folder / "model", tied=cls.tied)

    def setUp(self):
        self.source = models.Source(self.first)

    def start(self):
        """A server, which lives as long as the process: the end of one ends what all of a process need."""
        ALIVE.append(models.start(self.folder / "model"))
        return ALIVE[-1]

    def fresh(self, weights):
        """The state of a vLLM that is started from these weights."""
        models.saved(self.folder / "fresh", self.folder / "model", weights)
        return models.state_of_fresh(self.folder / "fresh")

    def trainer(self, *llms, url="tcp://127.0.0.1:0", **how):
        engine = WeightTransferTrainerFactory.trainer_init(
            PiciTrainerInitInfo(rank=0, url=url, **how), client=[LLMClient(llm) for llm in llms], source=self.source
        )
        self.addCleanup(engine.shutdown)
        return engine

    def step(self, seed):
        self.source.weights = models.stepped(self.source.weights, seed)


class Steps(Case):
    def test_steps(self):
        """After 1, 2 and 10 steps; a second server comes late, and misses some."""
        one, two = self.start(), self.start()
        begun = models.state(one)
        trainer = self.trainer(one, two)
        trainer.clients.pop()
        trainer.send_weights()
        self.assertEqual(models.state(one), begun)
        for i in range(1, 11):
            self.step(i)
            if i == 2:
                with torch.no_grad():  # a NaN and a -0.0, of a token that no prompt has
                    row = self.source.weights["model.embed_tokens.weight"][500]
                    row[:2] = torch.tensor([float("nan"), -0.0])
            if i == 4:
                trainer.clients.append(LLMClient(two))
            if i in (6, 7):
                away = trainer.clients.pop()
            trainer.send_weights()
            if i in (6, 7):
                trainer.clients.append(away)
            if i in (1, 2, 10):
                self.assertEqual(models.state(one), self.fresh(self.source.weights))
        self.assertNotEqual(models.state(one)[0], begun[0])
        self.assertEqual(models.state(two), models.state(one))
        self.assertEqual(one.get_weight_version(), "10")

    def test_log(self):
        """From a delta log, of which a delta is damaged once."""
        llm = self.start()
        trainer = self.trainer(llm, url=f"file://{self.folder}/log")
        for i in range(3):
            trainer.send_weights()
            self.step(i)
        before = models.state(llm)
        log = self.folder / "log"
        files = {f: f.stat().st_mtime_ns for f in log.iterdir()}
        trainer.send_weights()
        after = models.state(llm)
        delta = next(f for f in log.iterdir() if f not in files)
        right = delta.read_bytes()
        other = self.start()
        models.state(other)
        trainer = self.trainer(other, url=f"file://{self.folder}/log")
        delta.write_bytes(right[:-9] + bytes([right[-9] ^ 1]) + right[-8:])
        begun = models.state(other)
        with self.assertRaisesRegex(RuntimeError, "do not have version 4.*weights of its checkpoint still"):
            trainer.send_weights()
        self.assertEqual(models.state(other), begun)
        delta.write_bytes(right)
        trainer.send_weights()
        self.assertEqual(models.state(other), after)
        self.assertNotEqual(before, after)

    def store(self, url):
        llm = self.start()
        trainer = self.trainer(llm, url=url, encoding="small")
        for i in range(3):
            trainer.send_weights()
            self.assertEqual(models.state(llm), self.fresh(self.source.weights), i)
            self.step(i)
        self.assertLess(trainer.step.bytes, trainer.step.dense_bytes / 5)

    def test_memory(self):
        """From a log in a store, in memory."""
        self.store(f"memory://{self.folder.name}")

    def test_s3(self):
        """From a log in S3, by moto's server."""
        with contextlib.ExitStack() as stack:
            try:
                url = models.s3(stack)
            except ImportError as e:
                self.skipTest(f"pici.vllm from S3: there is no {e.name} (pip install s3fs moto[server])")
            self.store(url)

    def test_refused(self):
        """Another model, a wrong base, a load that fails: words, and the old weights serve on."""
        llm = self.start()
        trainer = self.trainer(llm)
        trainer.send_weights()
        self.step(1)
        trainer.send_weights()
        before = models.state(llm)
        right = self.source.weights
        self.source.weights = models.make(self.folder / "wide", hidden=128)
        with self.assertRaisesRegex(RuntimeError, "tensor 'lm_head.weight' is bf16 .512, 128., and bf16 .512, 64."):
            self.trainer(llm).send_weights()
        self.assertEqual(models.state(llm), before)

        self.source.weights = right
        engine = llm.llm_engine.model_executor.driver_worker.worker.weight_transfer_engine
        mirror = dict(engine._replica.items())
        mirror["model.norm.weight"].view(torch.int16)[0] ^= 1
        self.step(2)
        with self.assertRaisesRegex(RuntimeError, "model.norm.weight.*it has version 1 still"):
            trainer.send_weights()
        self.assertEqual(models.state(llm), before)
        mirror["model.norm.weight"].view(torch.int16)[0] ^= 1

        real = engine.model.load_weights

        def fails(weights):
            engine.model.load_weights = real
            real([next(weights), next(weights)])
            raise RuntimeError("no room")

        engine.model.load_weights = fails
        with self.assertRaisesRegex(RuntimeError, "no room; it went back to version 1"):
            trainer.send_weights()
        self.assertEqual(models.state(llm), before)
        trainer.send_weights()
        self.assertEqual(models.state(llm), self.fresh(self.source.weights))


class Tied(Case):
    tied = True

    def test_tied(self):
        """A model whose output weights are those of its embedding."""
        self.assertNotIn("lm_head.weight", self.first)
        llm = self.start()
        trainer = self.trainer(llm, encoding="small")
        for i in range(3):
            trainer.send_weights()
            self.step(i)
        trainer.send_weights()
        self.assertEqual(models.state(llm), self.fresh(self.source.weights))


class Module(Case):
    def test_module(self):
        """The trainer's model itself as the source, and the other encoding refused by name."""
        from transformers import LlamaForCausalLM
        from vllm.distributed.weight_transfer import ModuleSource

        model = LlamaForCausalLM.from_pretrained(self.folder / "model", dtype=torch.bfloat16)
        self.source = ModuleSource(model)
        llm = self.start()
        trainer = self.trainer(llm)
        trainer.send_weights()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model(input_ids=torch.tensor([[1, 2, 3, 4]]), labels=torch.tensor([[1, 2, 3, 4]])).loss.backward()
        optimizer.step()
        trainer.send_weights()
        self.assertEqual(trainer.step.kind, "1 deltas")
        self.assertEqual(models.state(llm), self.fresh(dict(model.state_dict())))
        with self.assertRaisesRegex(RuntimeError, "packed after loading"):
            self.trainer(llm, encoding="replace")


class Plugin(unittest.TestCase):
    def test_entry_point(self):
        """vLLM itself finds the backend; a trainer without a server in its process has it too."""
        plugin = "import vllm.plugins; vllm.plugins.load_general_plugins()"
        for makes in (plugin, "from pici.vllm import PiciTrainerInitInfo"):
            program = f"{makes}\nimport vllm.distributed.weight_transfer as w\n"
            program += "print(*('pici' in f._registry for f in (w.WeightTransferEngineFactory, "
            program += "w.WeightTransferTrainerFactory)))"
            done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
            self.assertEqual(done.stdout.split()[-2:], ["True", "True"])


if __name__ == "__main__":
    unittest.main()
