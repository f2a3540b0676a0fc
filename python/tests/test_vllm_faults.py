# SPDX-License-Identifier: BSD-3-Clause
"""pici.vllm over stand-ins of vLLM: what must not go wrong quietly."""
import json
import os
import sys
import types
import unittest.mock
from contextlib import suppress
from pathlib import Path

import numpy as np

import pici
import test_vllm
import vllm_stubs
from test_vllm import bits, weights


class Faults(test_vllm.EngineCase):
    def test_part_of_a_layer(self):
        """A layer of which the trainer sends some tensors gets the others from the checkpoint, or nothing."""
        norm, steps = self.state["norm"], self.state["steps"]
        for check, found in ((True, True), (False, True), (False, False)):
            with self.subTest(check=check, found=found):
                self.state = {name: x for name, x in weights().items() if name not in ("norm", "steps")}
                server = self.server()
                server.model.layers["both"] = vllm_stubs.Layer(["embed.weight", "norm"])
                server.model.layers["one"] = vllm_stubs.Layer(["steps"])
                if not found:
                    server.engine._folder = lambda: None
                trainer = self.trainer(server, check=check)
                if found:
                    trainer.send_weights()
                    self.step(1)
                    trainer.send_weights()
                else:
                    with self.assertRaisesRegex(RuntimeError, "layer 'both' got some of its weights and not all"):
                        trainer.send_weights()
                    self.state["embed.weight"] = weights()["embed.weight"]
                self.state.update(norm=norm, steps=steps)
                self.assertEqual(bits(server.model.weights), bits({n: self.state[n] for n in server.model.weights}))
                trainer = self.trainer(server, check=check)
                trainer.send_weights()
                self.assertEqual(bits(server.model.weights), bits({n: self.state[n] for n in server.model.weights}))

    def test_other_names(self):
        """Names that are not the checkpoint's: its tensors are not loaded in place of those that are sent."""
        server = self.server()
        server.model.weights["other"] = np.zeros(40, np.float16)
        server.model.weights.pop("norm")
        self.state["other"] = self.state.pop("norm")
        self.trainer(server, check=False).send_weights()
        self.same(server)

    def test_checkpoints_files(self):
        """The files that vLLM loads are the checkpoint, and not others beside them."""
        folder = Path(self.folder, "model")
        vllm_stubs.checkpoint(folder, {"tok.weight": self.state["norm"]}, "consolidated.safetensors")
        vllm_stubs.checkpoint(folder, {**self.state, "norm": np.ones(3, np.float16)}, "consolidated.00.safetensors")
        (folder / "original").mkdir()
        vllm_stubs.checkpoint(folder / "original", self.state)
        for sharded in (False, True):
            if sharded:
                os.rename(folder / "model.safetensors", folder / "model-1.safetensors")
                vllm_stubs.checkpoint(folder, self.state, "other.safetensors")
                index = {"weight_map": dict.fromkeys(self.state, "model-1.safetensors")}
                (folder / "model.safetensors.index.json").write_text(json.dumps(index))
            server = self.server()
            self.assertEqual(sorted(server.engine._checkpoint()), sorted(self.state))
            norm = self.state.pop("norm")
            self.trainer(server).send_weights()
            self.state["norm"] = norm
            self.same(server)
        (folder / "model.safetensors.index.json").write_text("[]")
        self.assertEqual(self.server().engine._checkpoint(), {})

    def test_prefix_cache(self):
        """What servers have computed by older weights is forgotten, whatever client they have."""
        plain, in_process, http, ray, tensor = (self.server() for _ in range(5))
        client = pici.vllm.LLMClient(in_process)
        for name in ("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"):
            setattr(client, name, getattr(in_process, name))
        posted = []

        class Only:
            """The four calls of a server, and what else a client has."""

            def __init__(self, server, **more):
                self.init_weight_transfer_engine = server.init_weight_transfer_engine
                self.start_weight_update, self.update_weights = server.start_weight_update, server.update_weights
                self.finish_weight_update = server.finish_weight_update
                vars(self).update(more)

        def post(path):
            posted.append(path)
            http.reset_prefix_cache()

        remote = types.SimpleNamespace(remote=ray.reset_prefix_cache)
        handle = types.SimpleNamespace(reset_prefix_cache=remote)
        module = types.SimpleNamespace(get=lambda x: x)
        clients = [plain, client, Only(http, _post=post, base_url="http://127.0.0.1"), Only(ray, handles=[handle])]
        with unittest.mock.patch.dict(sys.modules, ray=module):
            trainer = self.trainer(*clients)
            for seed in range(2):
                trainer.send_weights()
                for server in (plain, in_process, http, ray):
                    self.assertEqual(server.answer("a"), b"".join(bits(self.state).values()))
                self.step(seed)
        self.assertEqual(set(posted), {"reset_prefix_cache?reset_running_requests=true"})
        self.trainer(Only(tensor)).send_weights()  # a warning
        trainer = self.trainer(plain)
        plain.dies = "reset"
        with self.assertRaisesRegex(RuntimeError, "has loaded the weights, and its prefix cache may have"):
            trainer.send_weights()
        self.same(plain)
        plain.dies = ""
        trainer.send_weights()
        self.assertEqual(plain.answer("a"), b"".join(bits(self.state).values()))

    def test_weights_that_others_changed(self):
        """send_weights(whole=True) sends and loads all of them."""
        for how in (dict(encoding="replace"), dict(encoding="small"), dict(url=f"file://{self.folder}/log")):
            with self.subTest(how=how):
                server = self.server()
                server.engine.device.type = "cuda"
                trainer = self.trainer(server, **how)
                trainer.send_weights()
                for x in server.model.weights.values():
                    x[...] = 0
                trainer.send_weights(whole=True)
                self.same(server)
                if "url" not in how:  # a log has a state more
                    loads = server.model.loads
                    trainer.send_weights()
                    self.assertEqual(server.model.loads, loads)

    def test_log_after_an_error(self):
        """An error after a state was appended: the next step continues the log. So does one of compaction."""
        server = self.server()
        url = f"file://{self.folder}/log"
        trainer = self.trainer(server, url=url)
        trainer.send_weights()
        for seed, name in enumerate(("states", "compact")):
            self.step(seed)
            with unittest.mock.patch.object(pici.DeltaLog, name, side_effect=OSError("EIO once")):
                with self.assertRaises(OSError) if name == "states" else suppress():
                    trainer.send_weights()
            self.step(seed + 10)
            trainer.send_weights()
            self.same(server)

    def test_names_of_a_log(self):
        """A name that comes twice, and other tensors than the log's, are refused; the log goes on."""
        server = self.server()
        trainer = self.trainer(server, url=f"file://{self.folder}/log")
        trainer._pairs = lambda: iter([*self.state.items(), ("norm", self.state["norm"])])
        with self.assertRaisesRegex(ValueError, "'norm' comes twice"):
            trainer.send_weights()
        del trainer._pairs
        trainer.send_weights()
        right = self.state
        less = {name: x for name, x in right.items() if name != "norm"}
        for bad in ({**right, "more": np.ones(3, np.float32)}, less, {**right, "norm": np.ones(41, np.float16)}):
            self.state = bad
            with self.assertRaisesRegex(ValueError, "has other tensors: of '(more|norm)'"):
                trainer.send_weights()
        self.state = right
        self.step(1)
        trainer.send_weights()
        self.same(server)
        self.assertEqual(pici.DeltaLog(f"{self.folder}/log").newest, 1)
