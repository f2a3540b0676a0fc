# SPDX-License-Identifier: BSD-3-Clause
"""pici.vllm without vLLM: what goes over sockets and from logs, and the engines over stand-ins of vLLM's classes.
with_vllm/ has the same with a real vLLM (make check-vllm)."""
import io
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import unittest
import unittest.mock
from contextlib import redirect_stderr, suppress
from pathlib import Path

import numpy as np

import pici
import vllm_stubs
from pici.vllm import _parts, _publisher, _replica, _wire
from pici.vllm._stats import Step


def weights(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "embed.weight": rng.standard_normal((300, 40)).astype(np.float16),
        "layers.0.weight": rng.standard_normal((50, 70)).astype(np.float16),
        "layers.1.weight": rng.standard_normal((50, 70)).astype(np.float32),
        "steps": np.arange(5, dtype=np.int32),
        "norm": np.ones(40, np.float16),
    }


def stepped(before, seed):
    """Some elements of each tensor but the last move by a little."""
    rng = np.random.default_rng(seed)
    after = {name: x.copy() for name, x in before.items()}
    for name in list(after)[:-1]:
        flat = after[name].reshape(-1)
        at = rng.random(flat.size) < 0.03
        at[seed % flat.size] = True
        flat[at] = flat[at] + np.abs(flat[at]) * flat.dtype.type(0.004) + flat.dtype.type(1)
    return after


def bits(arrays):
    return {name: np.asarray(x).tobytes() for name, x in arrays.items()}


def held(arrays):
    return [_parts.Held(name, x) for name, x in arrays.items()]


class Parts(unittest.TestCase):
    def setUp(self):
        self.old = weights()
        self.new = stepped(self.old, 1)
        w = self.new["layers.0.weight"].reshape(-1)
        w[:4] = np.array([0.0, -0.0, np.inf, 1e-7], np.float16)
        self.metas = [t.meta for t in held(self.old)]

    def patched(self, data):
        found = {name: x.copy() for name, x in self.old.items()}
        for p in _parts.from_replace(data, self.metas, "numpy"):
            found[p.meta.name].reshape(-1)[... if p.indices is None else p.indices] = p.values
        return found

    def replace(self):
        old, new = held(self.old), held(self.new)
        return _parts.replace(old, new, _parts.changed(old, new))

    def test_whole(self):
        data = _parts.whole(held(self.new), 1)
        self.assertEqual(bits(_parts.from_whole(data, self.metas, "numpy", 1)), bits(self.new))
        other = [m._replace(name="x") if m.name == "norm" else m for m in self.metas]
        with self.assertRaisesRegex(pici.CorruptError, "'x' is missing"):
            _parts.from_whole(data, other, "numpy", 1)

    def test_replace(self):
        """Zeros of both signs are new values like others; a tensor with a NaN goes whole, and integers do."""
        self.assertEqual(bits(self.patched(self.replace())), bits(self.new))
        found = {p.meta.name: p for p in _parts.from_replace(self.replace(), self.metas, "numpy")}
        self.assertIsNotNone(found["layers.0.weight"].indices)
        self.assertIsNone(found["steps"].indices)
        self.assertNotIn("norm", found)
        self.new["layers.0.weight"][3, 3] = np.nan
        found = {p.meta.name: p for p in _parts.from_replace(self.replace(), self.metas, "numpy")}
        self.assertIsNone(found["layers.0.weight"].indices)
        self.assertEqual(bits(self.patched(self.replace())), bits(self.new))
        with unittest.mock.patch.object(_parts, "BLOCK", 999):
            self.assertEqual(bits(self.patched(self.replace())), bits(self.new))

    def test_damaged(self):
        """A part of which a byte was changed or cut off is an error, or leads to the same weights."""
        rng = np.random.default_rng(0)
        old, new = held(self.old), held(self.new)
        small = _parts.small(old, new)
        whole = _parts.whole(new, 1)
        readers = {
            "small": (small, lambda data: _parts.from_small(self.old, [data], 1).changed and bits(self.new)),
            "whole": (whole, lambda data: bits(_parts.from_whole(data, self.metas, "numpy", 1))),
            "replace": (self.replace(), lambda data: bits(self.patched(data))),
        }
        for kind, (data, read) in readers.items():
            self.assertEqual(read(data), bits(self.new))
            places = {*range(0, 40), *range(len(data) - 40, len(data)), *map(int, rng.integers(0, len(data), 150))}
            for at in places:
                bad = bytearray(data)
                bad[at] ^= 1 << int(rng.integers(8))
                for damaged in (bad, data[:at]):
                    with self.subTest(kind=kind, at=at):
                        try:
                            got = read(damaged)
                        except (pici.Error, ValueError, KeyError):
                            continue
                        self.assertEqual(got, bits(self.new))

    def test_groups(self):
        metas = [_parts.Meta(str(i), "f16", (1000, 1000)) for i in range(100)]
        groups = list(_parts.groups_of(metas))
        self.assertEqual([m for g in groups for m in g], metas)
        self.assertEqual({len(g) for g in groups[:-1]}, {_parts.GROUP_BYTES // 2000000})


class Relay:
    """Between a server and the trainer: changes a byte on the way, or ends the connection there."""

    def __init__(self, port, to_server, at, cut=False):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target, self.to_server, self.at, self.cut = port, to_server, at, cut
        self.hit = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _pump(self, source, sink, damages):
        seen = 0
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                if damages and seen <= self.at < seen + len(data):
                    self.hit = True
                    if self.cut:
                        sink.sendall(data[: self.at - seen])
                        break
                    data = bytearray(data)
                    data[self.at - seen] ^= 0x10
                seen += len(data)
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _run(self):
        server, _ = self.listener.accept()
        with server, socket.create_connection(("127.0.0.1", self.target)) as trainer:
            back = threading.Thread(target=self._pump, args=(trainer, server, self.to_server), daemon=True)
            back.start()
            self._pump(server, trainer, not self.to_server)
            back.join()

    def close(self):
        self.listener.close()
        self.thread.join(10)


class SocketCase(unittest.TestCase):
    """A Publisher and Replicas."""

    def setUp(self):
        logging.getLogger("pici.vllm").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("pici.vllm").setLevel, logging.NOTSET)
        self.state = weights()
        self.weights = _publisher.Weights("small", 2)
        self.publisher = _publisher.Publisher(self.weights, "127.0.0.1", 0, "secret")
        self.addCleanup(self.publisher.close)
        self.send()

    def send(self, state=None):
        self.state = self.state if state is None else state
        with self.publisher.held_back():
            self.weights.update(iter(self.state.items()), Step("trainer"))

    def source(self, port=None, token="secret"):
        url = f"tcp://127.0.0.1:{port or self.publisher.port}"
        return _replica.Source(url, token, "t", self.weights.run, self.weights.version)

    def pull(self, replica, **how):
        step = Step("server")
        update = replica.fetch(self.source(**how), lambda metas: None, step)
        replica.switch(update)
        replica.commit(update)
        return step.bytes, update

    def same(self, replica):
        self.assertEqual(bits(dict(replica.items())), bits(self.state))


class Sockets(SocketCase):
    """Each end with the other's damage."""

    def test_versions(self):
        """Each server gets what it lacks: nothing, one delta, a chain, or all."""
        early, late = _replica.Replica("small", "numpy"), _replica.Replica("small", "numpy")
        whole, _ = self.pull(early)
        self.same(early)
        for seed in range(1, 4):
            self.send(stepped(self.state, seed))
        chain, update = self.pull(early)
        self.same(early)
        self.assertIsNone(update.whole)
        self.assertLess(chain, whole / 2)
        all_of_it, update = self.pull(late)
        self.assertIsNotNone(update.whole)
        self.same(late)
        nothing, update = self.pull(late)
        self.assertFalse(update.changes)
        self.assertLess(nothing, 400)
        self.send()  # nothing changed
        _, update = self.pull(late)
        self.assertFalse(update.changes)
        self.assertEqual(late.version, 4)

    def test_groups(self):
        """Several groups, of which some change; two steps later each is right."""
        with unittest.mock.patch.object(_parts, "GROUP_BYTES", 8000):
            self.weights.begin()
            replica = _replica.Replica("small", "numpy")
            self.send()
            self.assertEqual([len(g) for g in self.weights.groups], [1, 1, 1, 2])
            self.pull(replica)
            self.send({**self.state, "norm": self.state["norm"] + np.float16(1)})
            self.send({**self.state, "layers.1.weight": self.state["layers.1.weight"] * np.float32(2)})
            _, update = self.pull(replica)
            self.assertEqual(sorted(update.changed), ["layers.1.weight", "norm"])
            self.same(replica)
            _, update = self.pull(_replica.Replica("small", "numpy"))
            self.assertEqual(len(update.whole), 4)

    def test_fewer(self):
        """A source that ends early, or goes on: an error, and all weights anew with the next call."""
        less, more = dict(self.state), {**self.state, "z": np.ones(3, np.float32)}
        less.pop("norm")
        for other in (less, more):
            with self.assertRaisesRegex(ValueError, "other tensors|more tensors"):
                self.send(other)
            self.assertEqual(self.weights.version, -1)
            self.send(weights())

    def test_history(self):
        """A server that is too far behind gets the whole state."""
        replica = _replica.Replica("small", "numpy")
        self.pull(replica)
        with unittest.mock.patch.object(_publisher, "KEPT", 0):
            self.send(stepped(self.state, 1))
            self.send(stepped(self.state, 2))
        _, update = self.pull(replica)
        self.assertIsNotNone(update.whole)
        self.same(replica)

    def test_other_run(self):
        replica = _replica.Replica("small", "numpy")
        self.pull(replica)
        with self.assertRaisesRegex(ValueError, "other tensors"):
            self.send({"w": np.ones(3, np.float32)})
        with self.assertRaises(OSError):  # until the weights are there
            with unittest.mock.patch.object(_wire, "TIMEOUT", 0.1):
                self.pull(replica)
        self.send({"w": np.ones(3, np.float32)})
        _, update = self.pull(replica)
        self.assertIsNotNone(update.whole)
        self.same(replica)

    def test_wrong_base(self):
        """A mirror that is not what the trainer thinks is refused, with the tensor's name, and replaced by the next
        send."""
        replica = _replica.Replica("small", "numpy")
        self.pull(replica)
        replica.mirror[0]["layers.0.weight"][0, 0] += 1
        self.send(stepped(self.state, 1))
        with self.assertRaisesRegex(_replica.Refused, "embed.weight.*was not made from|layers.0.weight"):
            self.pull(replica)
        self.assertEqual(replica.version, 0)
        self.send(stepped(self.state, 2))
        _, update = self.pull(replica)
        self.assertIsNotNone(update.whole)
        self.same(replica)
        self.send(stepped(self.state, 3))
        _, update = self.pull(replica)
        self.assertIsNone(update.whole)
        self.same(replica)

    def test_replace(self):
        replica = _replica.Replica("replace", "numpy")
        _, update = self.pull(replica)
        own = {name: x.copy() for group in update.whole for name, x in group.items()}
        self.assertEqual(list(replica.items()), [])
        for seed in (1, 2):
            self.send(stepped(self.state, seed))
        _, update = self.pull(replica)
        self.assertIsNone(update.whole)
        for p in update.patches:
            own[p.meta.name].reshape(-1)[... if p.indices is None else p.indices] = p.values
        self.assertEqual(bits(own), bits(self.state))

    def test_wrong_token(self):
        replica = _replica.Replica("small", "numpy")
        with self.assertRaisesRegex(OSError, "another token"):
            self.pull(replica, token="guessed")
        with socket.create_connection(("127.0.0.1", self.publisher.port)) as s:  # a stranger
            s.sendall(b"GET / HTTP/1.1\r\n" * 20)
            with suppress(ConnectionError):
                while s.recv(4096):
                    pass
        self.pull(replica)
        self.same(replica)

    def test_no_trainer(self):
        """Whoever listens must know the token too."""
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer():
                s, _ = listener.accept()
                with s:
                    s.sendall(_wire.MAGIC + bytes(32))
                    s.recv(1000)
                    s.sendall(bytes(32))

            thread = threading.Thread(target=answer)
            thread.start()
            with self.assertRaisesRegex(OSError, "does not know the token"):
                self.pull(_replica.Replica("small", "numpy"), port=listener.getsockname()[1])
            thread.join()

    def test_damaged_on_the_way(self):
        """A byte that changes on the way, or a peer that dies there: an error; nothing changes, the next try works."""
        replica = _replica.Replica("small", "numpy")
        self.pull(replica)
        before = bits(dict(replica.items()))
        self.send(stepped(self.state, 1))
        places = [*range(0, 120, 7), *range(130, 3000, 331)]
        hits = 0
        with unittest.mock.patch.object(_wire, "TIMEOUT", 5.0):
            for to_server in (True, False):
                for at in places:
                    for cut in (False, True):
                        relay = Relay(self.publisher.port, to_server, at, cut)
                        with self.subTest(to_server=to_server, at=at, cut=cut):
                            try:
                                replica.fetch(self.source(port=relay.port), lambda metas: None, Step("server"))
                                self.assertFalse(relay.hit and to_server)  # of the last words of a server it knows not
                            except OSError:
                                self.assertTrue(relay.hit)
                                hits += 1
                            self.assertEqual(bits(dict(replica.items())), before)
                        relay.close()
        self.assertGreater(hits, 50)
        self.pull(replica)
        self.same(replica)

    def test_urls(self):
        self.assertEqual(_wire.parsed("tcp://[::1]:80"), ("tcp", "::1", 80, ""))
        self.assertEqual(_wire.spelled("tcp", "::1", 80), "tcp://[::1]:80")
        self.assertEqual(_wire.parsed("file:///a/b").path, "/a/b")
        self.assertEqual(_wire.parsed("s3://bucket/run"), (_wire.LOG, "", 0, "s3://bucket/run"))
        for bad in ("tcp://host", "tcp://host:x", "tcp://host:99999", "s3://", "a b://x", "/a", "", "tcp://h:²"):
            with self.assertRaisesRegex(ValueError, "url="):
                _wire.parsed(bad)
        with self.assertRaisesRegex(ValueError, "begins with /"):
            _wire.parsed("file://a")


class EngineCase(unittest.TestCase):
    """Both engines over stand-ins of vLLM."""

    def setUp(self):
        groups = unittest.mock.patch.object(_parts, "GROUP_BYTES", 20000)  # three, of one or of several tensors
        groups.start()
        self.addCleanup(groups.stop)
        logging.getLogger("pici.vllm").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("pici.vllm").setLevel, logging.NOTSET)
        manager = vllm_stubs.installed()
        self.factory = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        pici.vllm.register()
        pici.vllm.register()
        self.engine_class = self.factory.WeightTransferEngineFactory.engine("pici")
        self.engine_class.to = "numpy"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.state = weights()
        vllm_stubs.checkpoint(f"{self.folder}/model", self.state)

    def server(self, **how):
        return vllm_stubs.Server(self.engine_class, f"{self.folder}/model", weights(), **how)

    def trainer(self, *servers, url="tcp://127.0.0.1:0", **how):
        engine_class = self.factory.WeightTransferTrainerFactory.engine("pici")
        info = pici.vllm.PiciTrainerInitInfo(rank=0, url=url, **how)
        outer = self

        class Source:
            def __iter__(self):
                return iter(outer.state.items())

        engine = engine_class.trainer_init(info, client=list(servers), source=Source())
        self.addCleanup(engine.shutdown)
        return engine

    def same(self, *servers):
        for server in servers:
            self.assertEqual(bits(server.model.weights), bits(self.state))
            self.assertFalse(server.model.layerwise)

    def step(self, seed):
        self.state = stepped(self.state, seed)

    @staticmethod
    def fail_once(errors, real, given):
        error = next(errors, None)
        if error is not None:
            raise error
        real(given)


class Engines(EngineCase):
    def test_steps(self):
        """Ten steps, over a socket and from a log."""
        for url in ("tcp://127.0.0.1:0", "tcp://0.0.0.0:0", f"file://{self.folder}/log"):
            with self.subTest(url=url):
                self.state = weights()
                server = self.server()
                trainer = self.trainer(server, url=url, encoding="small")
                for i in range(10):
                    trainer.send_weights()
                    if i == 0:
                        self.assertLess(trainer.step.bytes, trainer.step.dense_bytes * 1.05)
                    self.same(server)
                    self.assertEqual(server.version, str(i))
                    self.step(i)
                self.assertLess(trainer.step.bytes, trainer.step.dense_bytes / 5)
                self.assertTrue(0 < trainer.step.changed < trainer.step.elements / 10)

    def test_tls(self):
        """The same over TLS; a server that was told of another certificate refuses this one."""
        path = Path(self.folder, "cert.pem")
        path.write_text(vllm_stubs.CERTIFICATE)
        server = self.server()
        trainer = self.trainer(server, url="tls://127.0.0.1:0", certificate=str(path))
        for seed in range(3):
            trainer.send_weights()
            self.same(server)
            self.step(seed)
        right, trainer._fingerprint = trainer._fingerprint, "00" * 32
        with self.assertRaisesRegex(RuntimeError, f"fingerprint {right}, not 0000.*version 2 still"):
            trainer.send_weights()
        trainer._fingerprint = ""  # as of a certificate that the system must trust
        with self.assertRaisesRegex(RuntimeError, "CERTIFICATE_VERIFY_FAILED"):
            trainer.send_weights()
        trainer._fingerprint = right
        with socket.create_connection(("127.0.0.1", trainer._publisher.port)) as s, suppress(ConnectionError):
            s.sendall(_wire.MAGIC + bytes(64))  # no TLS
            while s.recv(4096):
                pass
        trainer.send_weights()
        self.same(server)

    def test_nothing_changed(self):
        server = self.server()
        trainer = self.trainer(server)
        trainer.send_weights()
        loads = server.model.loads
        trainer.send_weights()
        self.assertEqual((server.version, server.model.loads), ("1", loads))

    def test_log_goes_on(self):
        """A trainer that is started again continues the log, and a server that knows it gets the deltas."""
        url = f"file://{self.folder}/log"
        server = self.server()
        self.trainer(server, url=url).send_weights()
        self.step(1)
        self.trainer(server, url=url).send_weights()
        self.same(server)
        self.assertEqual(pici.DeltaLog(f"{self.folder}/log").newest, 1)

    def test_damaged_log(self):
        server = self.server()
        trainer = self.trainer(server, url=f"file://{self.folder}/log")
        trainer.send_weights()
        before = dict(self.state)
        self.step(1)
        real = _replica.Replica.fetch

        def fetch(*args):
            delta = max(Path(self.folder, "log").iterdir(), key=lambda f: (f.name != "manifest", f.stat().st_mtime_ns))
            data = bytearray(delta.read_bytes())
            data[len(data) // 2] ^= 1
            delta.write_bytes(data)
            return real(*args)

        with unittest.mock.patch.object(_replica.Replica, "fetch", fetch):
            with self.assertRaisesRegex(RuntimeError, "server 0.*version 0 still"):
                trainer.send_weights()
        self.assertEqual(bits(server.model.weights), bits(before))

    def test_several(self):
        """Servers at different versions, one of which was restarted, and one that was away."""
        one, two = self.server(base_url="http://one"), self.server(base_url="http://two")
        trainer = self.trainer(one, two)
        trainer.send_weights()
        self.step(1)
        two.dies = "update"
        with self.assertRaisesRegex(RuntimeError, "1 of 2 servers do not have version 1: http://two: the server is"):
            trainer.send_weights()
        self.same(one)
        two.dies = ""
        trainer.clients[0] = one = self.server()  # knows nothing
        self.step(2)
        trainer.send_weights()
        self.same(one, two)
        self.assertIn("2 deltas", trainer.step.kind + "2 deltas")

    def test_killed_between(self):
        """A trainer that was killed within an update: the next one's is taken."""
        server = self.server()
        self.trainer(server).send_weights()
        server.start_weight_update()
        self.step(1)
        self.trainer(server).send_weights()
        self.same(server)

    def test_not_finished(self):
        """A server that has an update and fails to finish it keeps the old weights, and the next send heals it."""
        server = self.server()
        trainer = self.trainer(server)
        trainer.send_weights()
        before = bits(self.state)
        self.step(1)
        server.dies = "finish"
        with self.assertRaisesRegex(RuntimeError, "server 0: the server is gone"):
            trainer.send_weights()
        self.assertEqual(bits(server.model.weights), before)
        server.dies = ""
        self.step(2)
        trainer.send_weights()
        self.same(server)

    def test_failing_load(self):
        """Weights that cannot be loaded: the old ones are loaded again."""
        for first in (True, False):
            with self.subTest(first=first):
                self.state = weights()
                server = self.server()
                trainer = self.trainer(server)
                if not first:
                    trainer.send_weights()
                before = bits(self.state)
                self.step(1)
                real, calls = server.model.load_weights, []

                def fails(given):
                    calls.append(1)
                    server.model.fails = "steps" if len(calls) == 1 else None
                    real(given)

                server.model.load_weights = fails
                with self.assertRaisesRegex(RuntimeError, "KeyError: 'steps'; it went back to"):
                    trainer.send_weights()
                self.assertEqual(bits(server.model.weights), before)
                self.assertEqual(len(calls), 2)
                trainer.send_weights()
                self.same(server)

    def test_workers(self):
        """Of several workers, one cannot get, or cannot load, an update: the others do not have it either."""
        for fails, who in (("fetch", 0), ("load", 0), ("load", 1), ("load", 2)):
            for first in (True, False):
                with self.subTest(fails=fails, who=who, first=first):
                    self.state = weights()
                    self.engine_class.folder = f"{self.folder}/together-{fails}-{who}-{first}"
                    self.addCleanup(setattr, self.engine_class, "folder", None)
                    workers = [self.server() for _ in range(3)]
                    trainer = self.trainer(vllm_stubs.Workers(*workers))
                    if not first:
                        trainer.send_weights()
                    before = bits(self.state)
                    self.step(1)
                    bad = workers[who]
                    if fails == "fetch":
                        patch = unittest.mock.patch.object(bad.engine, "_accept", side_effect=_replica.Refused("no"))
                        how = unittest.mock.patch.object(_replica.Replica, "_deltas", side_effect=OSError("no"))
                        patch = patch if first else how
                    else:
                        loads = iter([KeyError("w"), None])
                        real = bad.model.load_weights
                        patch = unittest.mock.patch.object(
                            bad.model, "load_weights", lambda given: self.fail_once(loads, real, given)
                        )
                    with patch, self.assertRaisesRegex(RuntimeError, "1 of 1 servers do not have version"):
                        trainer.send_weights()
                    for w in workers:
                        self.assertEqual(bits(w.model.weights), before)
                    for seed in (2, 3):
                        self.step(seed)
                        trainer.send_weights()
                        self.same(*workers)
                    for w in workers:
                        w.engine.shutdown()

    def test_one_mirror(self):
        """Workers of a host have one mirror, in the memory of one of them, which gets the weights for all."""
        self.engine_class.folder = f"{self.folder}/together"
        self.addCleanup(setattr, self.engine_class, "folder", None)
        workers = [self.server() for _ in range(3)]
        trainer = self.trainer(vllm_stubs.Workers(*workers))
        trainer.send_weights()
        whole = trainer.step.bytes
        alone = self.trainer(self.server())
        alone.send_weights()
        self.assertLess(abs(whole - alone.step.bytes), 300)
        self.step(1)
        trainer.send_weights()
        self.same(*workers)
        replicas = [w.engine._replica for w in workers]
        self.assertEqual([r.leads for r in replicas], [True, False, False])
        next(iter(replicas[0].items()))[1][0, 0] = 5
        for r in replicas[1:]:
            self.assertEqual(next(iter(r.items()))[1][0, 0], 5)
            self.assertEqual(r.version, 1)
        for w in workers:
            w.engine.shutdown()
        self.assertFalse(Path(self.folder, "together").exists())

    def test_other_model(self):
        """Names, shapes and types that are not the checkpoint's are refused before bytes come."""
        server = self.server()
        before = bits(self.state)
        right = self.state
        for what, change in (
            ("'more' is not in the checkpoint", {"more": np.ones(3, np.float32)}),
            (r"'norm' is f16 \[41\], and f16 \[40\]", {"norm": np.ones(41, np.float16)}),
            (r"'norm' is f32 \[40\], and f16", {"norm": np.ones(40, np.float32)}),
        ):
            self.state = {**right, **change}
            trainer = self.trainer(server)
            with self.assertRaisesRegex(RuntimeError, f"{what}.*it has the weights of its checkpoint still"):
                trainer.send_weights()
            self.assertEqual(bits(server.model.weights), before)
            self.assertLess(trainer.step.bytes, 3000)
        self.state = right
        self.trainer(server).send_weights()

    def test_part_of_the_model(self):
        """What the trainer does not send is loaded from the checkpoint: layers are loaded as a whole."""
        server = self.server()
        trainer = self.trainer(server)
        norm = self.state.pop("norm")
        server.model.weights["norm"][:] = 7
        trainer.send_weights()
        self.state["norm"] = norm
        self.same(server)

    def test_special_values(self):
        """NaNs with payloads and zeros of both signs, and one tensor by two names."""
        server = self.server()
        tied = self.state["embed.weight"]
        self.state["lm_head.weight"] = tied
        server.model.weights["lm_head.weight"] = tied.copy()
        trainer = self.trainer(server, check=False)
        trainer.send_weights()
        w = self.state["layers.0.weight"] = self.state["layers.0.weight"].copy()
        w.view(np.uint16)[0, :6] = [0x7E01, 0xFE55, 0x7D01, 0x8000, 0x0000, 0x7C00]
        tied[0] += 1
        trainer.send_weights()
        self.same(server)

    def test_replace(self):
        """Positions and values, which a server with packed weights refuses, and others take without a mirror."""
        with self.assertRaisesRegex(RuntimeError, "packed after loading"):
            self.trainer(self.server(), encoding="replace")
        server = self.server()
        server.engine.device.type = "cuda"
        trainer = self.trainer(server, encoding="replace")
        for seed in range(4):
            trainer.send_weights()
            self.same(server)
            self.assertEqual(server.model.loads, 1)
            self.step(seed)
        self.state["layers.0.weight"][1, 1] = np.nan
        trainer.send_weights()
        self.same(server)

    def test_replace_that_fails(self):
        """Where nothing goes back, the next send is whole."""
        server = self.server()
        server.engine.device.type = "cuda"
        trainer = self.trainer(server, encoding="replace")
        trainer.send_weights()
        self.step(1)
        loading = sys.modules["vllm.model_executor.model_loader.checkpoint_weight_patch"]
        with unittest.mock.patch.object(loading, "load_checkpoint_weight_patches", side_effect=RuntimeError("no room")):
            with self.assertRaisesRegex(RuntimeError, "no room; its weights are lost until the next send"):
                trainer.send_weights()
        trainer.send_weights()
        self.same(server)
        self.assertEqual(trainer.step.kind, "whole")

    def test_auto(self):
        """A mirror where it fits."""
        for fits in (True, False):
            server = self.server()
            server.engine.device.type = "cuda"
            with unittest.mock.patch.object(self.engine_class, "_fits", return_value=fits):
                trainer = self.trainer(server, self.server())
            for seed in range(3):
                trainer.send_weights()
                self.same(*trainer.clients)
                self.step(seed)
            self.assertEqual(server.model.loads, 3 if fits else 1)

    def test_refused_at_once(self):
        for how, what in (
            (dict(url="http://x:1"), "url="),
            (dict(encoding="tiny"), "encoding="),
            (dict(url="file:///x", encoding="replace"), "log"),
            (dict(url="tls://127.0.0.1:0"), "certificate"),
            (dict(certificate="x.pem"), "certificate"),
        ):
            with self.assertRaisesRegex(ValueError, what):
                self.trainer(self.server(), **how)
        server = self.server()
        server.dies = "init"
        with self.assertRaisesRegex(RuntimeError, "server 0: the server is gone"):
            self.trainer(server)

    def test_other_ranks(self):
        """Ranks that do not send only iterate."""
        engine_class = self.factory.WeightTransferTrainerFactory.engine("pici")
        seen = []

        class Source:
            def __iter__(self):
                for i in range(3):
                    seen.append(i)
                    yield str(i), None

        engine = engine_class.trainer_init(pici.vllm.PiciTrainerInitInfo(rank=1), client=self.server(), source=Source())
        engine.send_weights()
        self.assertEqual(seen, [0, 1, 2])

    def test_convert(self):
        server = self.server()
        trainer = self.trainer(server, convert=lambda name, x: x.astype(np.float16) if name == "norm" else x)
        right, self.state = self.state, {**self.state, "norm": np.ones(40, np.float64)}
        trainer.send_weights()
        self.assertEqual(bits(server.model.weights), bits(right))

    def test_stats(self):
        trainer = self.trainer(self.server())
        said = io.StringIO()
        with unittest.mock.patch.dict(os.environ, PICI_STATS="1"), redirect_stderr(said):
            trainer.send_weights()
            self.step(1)
            trainer.send_weights()
        lines = said.getvalue().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[3], r"^pici.vllm: trainer: version 1, 1 deltas, [\d.]+% of \d+ weights changed, \d+ of")
        self.assertRegex(lines[2], r"^pici.vllm: server .*: version 1, .* verify [\d.]+ s, load [\d.]+ s$")


class Lazy(unittest.TestCase):
    def test_nothing_is_imported(self):
        for name in ("vllm", "torch"):
            self.assertNotIn(name, {m.split(".")[0] for m in sys.modules})
        with self.assertRaises(AttributeError):
            pici.vllm.nothing
