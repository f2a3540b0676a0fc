# SPDX-License-Identifier: BSD-3-Clause
"""vllm serve on loopback, which a trainer in another process keeps up to date over HTTP and a socket."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import models
from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, WeightTransferTrainerFactory

from pici.vllm import PiciTrainerInitInfo, SendError

STARTED = 240  # seconds that a server may take to start


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Served:
    """A server process."""

    def __init__(self, folder, workers=1, backend="pici"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        options = "--skip-tokenizer-init --enforce-eager --dtype bfloat16 --max-model-len 128 --host 127.0.0.1".split()
        options += ["--enable-scale-out", "--port", str(self.port), "--seed", "0", "--max-num-seqs", "4"]
        options += ["--block-size", "32"]
        options += ["--tensor-parallel-size", str(workers)]
        if backend:
            options += ["--weight-transfer-config", json.dumps({"backend": backend})]
        more = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"}
        if workers > 1:
            more["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(i % os.cpu_count()) for i in range(workers))
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("vllm")), "serve", str(folder), *options],
            env={**os.environ, **more},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self):
        deadline = time.monotonic() + STARTED
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                return self.call("/weight_info", None)
            except OSError:
                time.sleep(0.5)
        self.log.seek(0)
        raise RuntimeError(f"vllm serve has not started: {self.log.read()[-2000:].decode(errors='replace')}")

    def call(self, path, message):
        data = None if message is None else json.dumps(message).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def tokens(self):
        found = []
        for prompt in models.PROMPTS:
            params = {"max_tokens": 12, "temperature": 0, "detokenize": False}
            message = {"token_ids": prompt["prompt_token_ids"], "sampling_params": params}
            found.append(self.call("/inference/v1/generate", message)["choices"][0]["token_ids"])
        return found

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.first = models.make(cls.folder / "model")

    def served(self, **how):
        server = Served(self.folder / "model", **how)
        self.addCleanup(server.log.close)
        self.addCleanup(lambda: server.process.poll() is None and server.kill())
        return server

    def fresh(self, weights):
        models.saved(self.folder / "fresh", self.folder / "model", weights)
        return models.state_of_fresh(self.folder / "fresh")[0]

    def trainer(self, source, *servers):
        clients = [HTTPVLLMWeightSyncClient(s.url) for s in servers]
        info = PiciTrainerInitInfo(rank=0, url="tcp://0.0.0.0:0")
        engine = WeightTransferTrainerFactory.trainer_init(info, client=clients, source=source)
        self.addCleanup(engine.shutdown)
        return engine

    def test_http(self):
        """Steps; a server that is killed and started again; a trainer that is; words of a server."""
        server, other = self.served(), self.served()
        server.wait(), other.wait()
        source = models.Source(self.first)
        trainer = self.trainer(source, server, other)
        trainer.send_weights()
        source.weights = models.stepped(self.first, 1)
        other.kill()
        with self.assertRaisesRegex(SendError, f"1 of 2 servers do not have version 1: {other.url}"):
            trainer.send_weights()
        self.assertEqual(server.tokens(), self.fresh(source.weights))
        again = self.served()
        again.wait()
        trainer.clients[1] = HTTPVLLMWeightSyncClient(again.url)
        source.weights = models.stepped(source.weights, 2)
        trainer.send_weights()
        wanted = self.fresh(source.weights)
        self.assertEqual((server.tokens(), again.tokens()), (wanted, wanted))
        self.assertEqual(server.call("/weight_info", None), {"weight_version": "2"})

        wide = models.Source(models.make(self.folder / "wide", hidden=128))
        with self.assertRaisesRegex(SendError, "2 of 2 .*tensor 'lm_head.weight' is bf16 .512, 128., and .* still"):
            self.trainer(wide, server, again).send_weights()
        server.call("/start_weight_update", {})  # a trainer that is killed now
        trainer = self.trainer(source, server, again)
        source.weights = models.stepped(source.weights, 3)
        trainer.send_weights()
        wanted = self.fresh(source.weights)
        self.assertEqual((server.tokens(), again.tokens()), (wanted, wanted))

    def test_two_workers(self):
        """A server of two processes, each with half of every tensor."""
        server = self.served(workers=2)
        server.wait()
        source = models.Source(self.first)
        trainer = self.trainer(source, server)
        for i in range(3):
            trainer.send_weights()
            source.weights = models.stepped(source.weights, i)
        trainer.send_weights()
        found = server.tokens()
        server.kill()
        models.saved(self.folder / "fresh2", self.folder / "model", source.weights)
        fresh = Served(self.folder / "fresh2", workers=2, backend=None)
        self.addCleanup(fresh.log.close)
        self.addCleanup(fresh.kill)
        fresh.wait()
        self.assertEqual(found, fresh.tokens())


if __name__ == "__main__":
    unittest.main()
