# SPDX-License-Identifier: BSD-3-Clause
"""pici.vllm from logs at URLs, over stand-ins of vLLM's classes."""
import unittest
import unittest.mock

import numpy as np

import pici
import test_url_logs
from test_vllm import EngineCase


class UrlCase(EngineCase):
    def setUp(self):
        super().setUp()
        test_url_logs.faulty_store(self)


class Urls(UrlCase):
    def test_steps(self):
        """Servers that come late, or were away, and a trainer that is started again."""
        one, late = self.server(), self.server()
        trainer = self.trainer(one, url="faulty://log", encoding="small")
        for i in range(6):
            trainer.send_weights()
            self.same(one)
            self.assertEqual(one.version, str(i))
            self.step(i)
        self.assertLess(trainer.step.bytes, trainer.step.dense_bytes / 5)
        trainer = self.trainer(one, late, url="faulty://log", encoding="small")
        trainer.send_weights()
        self.same(one)
        self.same(late)
        self.assertEqual((one.version, late.version), ("6", "6"))
        read = one.engine._replica._log._remote.store.read_bytes
        self.step(7)
        trainer.send_weights()
        self.same(one)
        read = one.engine._replica._log._remote.store.read_bytes - read
        self.assertLess(read, trainer.step.bytes + 2000)

    def test_a_store_that_fails(self):
        """Requests that fail now and then do not show. A store that is down changes nothing; the next step heals."""
        server = self.server()
        trainer = self.trainer(server, url="faulty://log", encoding="small")
        trainer.send_weights()
        before = {name: np.array(x) for name, x in server.model.weights.items()}
        self.step(1)
        test_url_logs.Faulty.reset(at=2, error=OSError, times=3)
        trainer.send_weights()
        self.same(server)
        before = {name: np.array(x) for name, x in server.model.weights.items()}
        self.step(2)
        test_url_logs.Faulty.reset(at=0, error=OSError, times=10**9)
        with self.assertRaisesRegex(OSError, "faulty://log/manifest: reading failed 5 times: the request failed"):
            trainer.send_weights()
        for name, x in before.items():
            self.assertEqual(np.asarray(server.model.weights[name]).tobytes(), x.tobytes())
        test_url_logs.Faulty.reset()
        self.step(3)
        trainer.send_weights()
        self.same(server)

    def test_another_trainer(self):
        """Two trainers with one log: the second to append is told so, and continues from what the first has."""
        server = self.server()
        first, second = (self.trainer(server, url="faulty://log", encoding="small") for _ in range(2))
        first.send_weights()
        with self.assertRaisesRegex(FileExistsError, "is a log already"):
            second.send_weights()
        self.step(0)
        second.send_weights()
        self.same(server)
        self.step(1)
        first_error = None
        try:
            first.send_weights()
        except pici.ArgumentError as e:
            first_error = str(e)
        self.assertRegex(first_error or "", "is not the newest state of faulty://log")
        first.send_weights()
        self.same(server)

    def test_words(self):
        server = self.server()
        with self.assertRaisesRegex(ValueError, "a log leads from state to state"):
            self.trainer(server, url="s3://bucket/run", encoding="replace")
        trainer = self.trainer(server, url="faulty://log", encoding="small")
        trainer.send_weights()
        self.step(1)
        with unittest.mock.patch.object(pici.DeltaLog, "load", side_effect=pici.CorruptError("damaged")):
            with self.assertRaisesRegex(RuntimeError, "damaged.*version 0 still"):
                trainer.send_weights()


class S3(UrlCase, test_url_logs.S3Server):
    def test_s3(self):
        self.start_s3()
        environment = {f"FSSPEC_S3_{name.upper()}": value for name, value in self.options.items()}
        from fsspec import config

        with unittest.mock.patch.dict(config.conf):
            config.set_conf_env(config.conf, environment)
            server = self.server()
            trainer = self.trainer(server, url=self.url, encoding="small")
            for i in range(3):
                trainer.send_weights()
                self.same(server)
                self.step(i)


if __name__ == "__main__":
    unittest.main()
