# SPDX-License-Identifier: BSD-3-Clause
"""pici.vllm over stand-ins of vLLM: what must not go wrong quietly."""
import gc
import io
import json
import os
import socket
import sys
import tempfile
import threading
import time
import types
import unittest.mock
from contextlib import suppress
from pathlib import Path

import numpy as np

import pici
import test_vllm
import vllm_stubs
from pici.vllm import _appender, _parts, _publisher, _replica, _shared, _together, _wire
from pici.vllm._stats import Step
from test_vllm import bits, stepped, weights


class Wire(test_vllm.SocketCase):
    def test_long_check(self):
        """A server that checks for longer than the trainer waits for bytes: the trainer does not wait for it."""
        replica = _replica.Replica("small", "numpy")
        for kind, name in (("whole", "_kept"), ("deltas", "stage")):
            real = getattr(_replica.Replica, name)

            def slow(*args):
                deadline = time.monotonic() + 10
                while self.publisher._busy and time.monotonic() < deadline:
                    time.sleep(0.01)
                self.assertFalse(self.publisher._busy)
                return real(*args)

            with self.subTest(kind=kind), unittest.mock.patch.object(_replica.Replica, name, slow):
                self.pull(replica)
                self.same(replica)
            self.send(stepped(self.state, 1))

    def test_slow_link(self):
        """The timeout is of each piece that is sent, and not of a whole message."""

        class Trickles:
            """A socket that takes some bytes at a time."""

            def __init__(self, s):
                self.s = s

            def __getattr__(self, name):
                return getattr(self.s, name)

            def sendall(self, data):
                raise TimeoutError("all of it took too long")

            def send(self, data):
                return self.s.send(data[:3000])

        with socket.create_server(("127.0.0.1", 0)) as listener:
            found = []

            def listen():
                s, _ = listener.accept()
                channel = _wire.Channel(s, "secret", listens=True)
                with channel:
                    found.append(channel.receive_data(1 << 20))
                    channel.say({})

            thread = threading.Thread(target=listen, daemon=True)
            thread.start()
            with _wire.connect(_wire.parsed(f"tcp://127.0.0.1:{listener.getsockname()[1]}"), "secret") as channel:
                channel._socket = Trickles(channel._socket)
                channel.send_data(bytes(range(250)) * 999)
                channel.hear()
            thread.join(10)
        self.assertEqual(found, [bytes(range(250)) * 999])

    def test_stranger_that_dribbles(self):
        """The time to prove that one knows the token is that of the whole greeting, over TLS too."""
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as f:
            f.write(vllm_stubs.CERTIFICATE)
            f.flush()
            tls, _ = _wire.listening(f.name, "")
        secure = _publisher.Publisher(self.weights, "127.0.0.1", 0, "secret", tls)
        self.addCleanup(secure.close)
        for publisher, first in ((self.publisher, b"x"), (secure, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")):
            with self.subTest(tls=publisher is secure), unittest.mock.patch.object(_wire, "GREETING", 0.3):
                with socket.create_connection(("127.0.0.1", publisher.port)) as s:
                    s.sendall(first)
                    self.assertTrue(self.cut(s))

    @staticmethod
    def cut(s):
        """Whether a connection is ended while bytes come, fewer than those of a greeting."""
        s.settimeout(0.1)
        for _ in range(70):
            try:
                s.sendall(b"x")
                while s.recv(1000):
                    pass
                return True
            except TimeoutError:
                continue
            except OSError:
                return True
        return False

    def test_many_strangers(self):
        """At most so many connections at once are read from that have proven nothing; others wait."""
        with unittest.mock.patch.object(_publisher, "UNPROVEN", 3):
            publisher = _publisher.Publisher(self.weights, "127.0.0.1", 0, "secret")
        self.addCleanup(publisher.close)
        with publisher.held_back():
            pass
        before = threading.active_count()
        strangers = [socket.create_connection(("127.0.0.1", publisher.port)) for _ in range(12)]
        for s in strangers[:3]:
            self.assertEqual(s.recv(8), _wire.MAGIC)
        time.sleep(0.2)
        self.assertLessEqual(threading.active_count(), before + 3)
        for s in strangers:
            s.close()
        replica = _replica.Replica("small", "numpy")
        for _ in range(5):
            self.pull(replica, port=publisher.port)
        self.same(replica)

    def test_memory_of_a_host(self):
        """A leader has the memory of one mirror, and none after its end: also of updates that it did not switch to."""

        def mirrors():
            gc.collect()
            found = set()
            for entry in os.scandir("/proc/self/fd"):
                with suppress(OSError):
                    if "memfd:pici-mirror" in os.readlink(entry.path):
                        found.add(os.stat(entry.path).st_ino)
            return found

        others = mirrors()  # of other tests
        with tempfile.TemporaryDirectory() as folder:
            replica = _together.SharedReplica("numpy", 1, f"{folder}/host")
            self.pull(replica)
            self.assertEqual(len(mirrors() - others), 1)
            url = f"tcp://127.0.0.1:{self.publisher.port}"
            for ticket in "abc":
                source = _replica.Source(url, "secret", ticket, self.weights.run, self.weights.version, whole=True)
                update = replica.fetch(source, lambda metas: None, Step("server"))
                self.assertLessEqual(len(mirrors() - others), 2)
            with unittest.mock.patch.object(_replica.Replica, "switch", side_effect=KeyError("no")):
                self.assertRaises(KeyError, replica.switch, update)
            del update
            self.assertEqual(len(mirrors() - others), 1)
            self.same(replica)
            replica.fetch(source, lambda metas: None, Step("server"))
            replica.close()
            self.assertEqual(len(mirrors() - others), 0)

    def test_folder_of_another_namespace(self):
        """Whose processes do not show here: a server that begins removes it only if no leader lives."""
        with tempfile.TemporaryDirectory() as base:
            alive, dead = (f"{base}/pici-{os.getuid()}-{2**22 + i}-1_other_0" for i in range(2))
            board = _shared.Board(alive)
            gone = _shared.Board(dead)
            os.close(gone._lock)
            gone._lock = -1
            mine = _shared.Board(f"{base}/mine")
            self.assertEqual(sorted(os.listdir(base)), ["mine", os.path.basename(alive)])
            board.write(ticket="1", phase="staged")
            self.assertEqual(board.read()["ticket"], "1")
            board.close()
            mine.close()
            self.assertEqual(os.listdir(base), [])

    def test_silent_strangers(self):
        """They keep no server out, over TLS too: the oldest of too many is dropped."""
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as f:
            f.write(vllm_stubs.CERTIFICATE)
            f.flush()
            tls, fingerprint = _wire.listening(f.name, "")
        for scheme in ("tcp", "tls"):
            with self.subTest(scheme), unittest.mock.patch.multiple(_publisher, UNPROVEN=3, ROOM_S=0.1):
                how = (tls,) if scheme == "tls" else ()
                publisher = _publisher.Publisher(self.weights, "127.0.0.1", 0, "secret", *how)
                self.addCleanup(publisher.close)
                strangers = [socket.create_connection(("127.0.0.1", publisher.port)) for _ in range(7)]
                began = time.monotonic()
                address = _wire.parsed(f"{scheme}://127.0.0.1:{publisher.port}")
                _wire.connect(address, "secret", fingerprint).close()
                self.assertLess(time.monotonic() - began, 5)
                for s in strangers[:4]:
                    s.settimeout(5)
                    with suppress(ConnectionResetError):
                        while s.recv(1000):
                            pass
                for s in strangers:
                    s.close()

    def test_silent_trainer(self):
        """Who waits without success hears of the time, and not of another token."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = _wire.parsed(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            for sent in (b"", _wire.MAGIC + bytes(_wire.NONCE)):
                with self.subTest(sent=sent), unittest.mock.patch.multiple(_wire, TIMEOUT=0.4, GREETING=0.1):
                    thread = threading.Thread(target=lambda: served.append(listener.accept()[0]))
                    served = []
                    thread.start()
                    began = time.monotonic()
                    with self.assertRaisesRegex(OSError, "timed out"):
                        with suppress(IndexError):
                            threading.Timer(0.05, lambda: served[0].sendall(sent)).start()
                        _wire.connect(address, "secret")
                    self.assertGreater(time.monotonic() - began, 0.3)
                    thread.join()
                    served[0].close()


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
        client, encoders = pici.vllm.LLMClient(in_process), []
        in_process.llm_engine = types.SimpleNamespace(reset_encoder_cache=lambda: encoders.append(1))
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
        self.assertEqual(set(posted), {"reset_prefix_cache?reset_running_requests=true", "reset_encoder_cache"})
        self.assertEqual(encoders, [1, 1])
        self.trainer(Only(tensor)).send_weights()  # a warning

        def refusing(code, where):
            def post(path):
                if where in path:
                    error = RuntimeError("the server refuses")
                    error.response = types.SimpleNamespace(status_code=code, text="")
                    raise error

            return self.trainer(Only(tensor, _post=post, base_url="http://127.0.0.1"))

        refusing(404, "encoder").send_weights()  # a vLLM that has none
        for code, where in ((500, "encoder"), (404, "prefix")):
            with self.assertRaisesRegex(RuntimeError, "the server refuses"):
                refusing(code, where).send_weights()
        trainer = self.trainer(plain)
        plain.dies = "reset"
        with self.assertRaisesRegex(
            RuntimeError, "has loaded the weights, and its caches may have what older ones made"
        ):
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

    def test_reused_buffer(self):
        """A source that writes each tensor to the memory of the one before."""
        outer = self

        class Source:
            def __iter__(self):
                buffer = bytearray(max(x.nbytes for x in outer.state.values()))
                for name, x in outer.state.items():
                    there = np.frombuffer(buffer, x.dtype, x.size).reshape(x.shape)
                    there[...] = x
                    yield name, there

        ways = ({"encoding": "small"}, {"encoding": "replace"}, {"url": f"file://{self.folder}/log"})
        for way in ways:
            with self.subTest(**way), unittest.mock.patch.object(_parts, "GROUP_BYTES", 20000):
                server = self.server()
                server.engine.device.type = "cuda"
                trainer = self.trainer(server, **way)
                trainer.source = Source()
                for seed in range(3):
                    trainer.send_weights()
                    self.assertTrue(bits(server.model.weights) == bits(self.state))
                    self.step(seed)

    def test_compactions(self):
        """The log is compacted when deltas since its base have the bytes of the base, also if the trainer restarts."""
        folder = f"{self.folder}/log"
        real, calls, total = pici.DeltaLog.compact, [], 0

        def compact(log, **options):
            calls.append(log.newest)
            real(log, **options)

        rng = np.random.default_rng(0)
        x = rng.integers(0, 1 << 30, 20000, np.int32)
        appender = _appender.Appender(folder, 1)
        with unittest.mock.patch.object(pici.DeltaLog, "compact", compact):
            for i in range(60):
                if i % 7 == 6:
                    appender = _appender.Appender(folder, 1)
                at = rng.integers(0, x.size, 3000)
                x[at] = rng.integers(0, 1 << 30, at.size, np.int32)
                step = Step("trainer")
                appender.update([("x", x)], step)
                total += step.bytes if i else 0
        self.assertTrue(total // x.nbytes - 2 <= len(calls) <= total // x.nbytes, (total, calls))
        self.assertGreater(len(calls), 3)

    def test_pinned(self):
        """Tensors on CUDA come through one pinned buffer, which is none of them afterwards; without it as before."""

        class Tensor:
            is_cuda = True

            def __init__(self, x):
                self.x = x
                self.dtype, self.shape = x.dtype, x.shape

            def __getitem__(self, where):
                return Tensor(self.x[where])

            contiguous = detach = lambda self: self
            numel = lambda self: self.x.size  # noqa: E731
            reshape = lambda self, *to: Tensor(self.x.reshape(*to))  # noqa: E731
            view = lambda self, to: Tensor(self.x.view(to))  # noqa: E731

            def copy_(self, other):
                self.x[...] = other.x

            def clone(self):
                return Host(self.x.copy())

            def cpu(self):
                return self.x.copy()

        class Host(Tensor):
            reshape = lambda self, to: self.x.reshape(to)  # noqa: E731
            view = lambda self, to: Host(self.x.view(to))  # noqa: E731

        def empty(count, dtype, pin_memory):
            pinned.append(count)
            if limit is not None and count > limit:
                raise RuntimeError("CUDA error: out of memory")
            self.assertTrue(pin_memory)
            return Tensor(np.empty(count, dtype))

        torch = types.SimpleNamespace(uint8=np.dtype("u1"), empty=empty)
        for limit in (None, 100):
            pinned = []
            server = self.server()
            trainer = self.trainer(server)
            outer = self

            class Source:
                def __iter__(self):
                    return ((name, Tensor(x)) for name, x in outer.state.items())

            trainer.source = Source()
            with unittest.mock.patch.dict(sys.modules, {"torch": torch}):
                for i in range(3):
                    trainer.send_weights()
                    self.same(server)
                    self.step(i)
            longest = max(x.nbytes for x in self.state.values())
            self.assertEqual(pinned[-1], longest)
            self.assertLessEqual(len(pinned), len(self.state))
            self.state = weights()

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

    def loading(self, server, errors):
        """Loading fails so many times."""
        real, left = server.model.load_weights, [errors]

        def load(given):
            left[0] -= 1
            server.model.fails = "steps" if left[0] >= 0 else None
            try:
                real(given)
            finally:
                server.model.fails = None

        return unittest.mock.patch.object(server.model, "load_weights", load)

    def test_lost(self):
        """After weights were lost, messages say so until an update is loaded."""
        server = self.server()
        trainer = self.trainer(server)
        trainer.send_weights()
        self.step(1)
        with self.loading(server, 2), self.assertRaisesRegex(RuntimeError, "its weights are lost until the next send"):
            trainer.send_weights()
        with unittest.mock.patch.object(_wire, "connect", side_effect=ConnectionRefusedError("no")):
            with self.assertRaisesRegex(RuntimeError, "it has weights that are lost or half loaded still"):
                trainer.send_weights()
        trainer.send_weights()
        self.same(server)
        with unittest.mock.patch.object(_wire, "connect", side_effect=ConnectionRefusedError("no")):
            with self.assertRaisesRegex(RuntimeError, "it has version 3 still"):
                trainer.send_weights()

    def test_checkpoint_that_is_gone(self):
        """The error of going back is told, and the server takes the next update."""
        server = self.server()
        trainer = self.trainer(server)
        server.engine._checkpoint()
        os.rename(f"{self.folder}/model", f"{self.folder}/away")
        os.mkdir(f"{self.folder}/model")
        Path(self.folder, "model", "model.safetensors").write_bytes(b"no")
        with self.loading(server, 1), self.assertRaisesRegex(RuntimeError, "weights are lost until the next send"):
            trainer.send_weights()
        trainer.send_weights()
        self.same(server)

    def test_other_encoding(self):
        """A server that is told of another encoding has its old mirror until it has weights by the new one."""
        server = self.server()
        server.engine.device.type = "cuda"
        trainer = self.trainer(server, encoding="small")
        for seed in range(2):
            trainer.send_weights()
            self.step(seed)
        before = bits(server.model.weights)
        other = self.trainer(server, encoding="replace")
        with unittest.mock.patch.object(_wire, "connect", side_effect=ConnectionRefusedError("no")):
            with self.assertRaisesRegex(RuntimeError, "it has version 1 still"):
                other.send_weights()
        with self.loading(server, 1), self.assertRaisesRegex(RuntimeError, "it went back to version 1"):
            other.send_weights()
        self.assertEqual(bits(server.model.weights), before)
        other.send_weights()
        self.same(server)
        self.assertEqual(server.engine._replica.encoding, "replace")
        self.step(5)
        other.send_weights()
        self.same(server)

    def test_layers_that_are_laid_out_anew(self):
        """Only layers that are known to keep weights as they come take patches where they are."""

        def layer(kind="Linear", method=None, **members):
            found = type(kind, (), members)()
            found.quant_method = None if method is None else type(method, (), {})()
            return found

        plain = {
            "q": layer(method="UnquantizedLinearMethod"),
            "e": layer(method="UnquantizedEmbeddingMethod"),
            "a": layer("Attention", process_weights_after_loading=print),
            "n": layer("RMSNorm"),
        }
        composed = types.SimpleNamespace(weight_loader=types.SimpleNamespace(__qualname__="composed_weight_loader.f"))
        others = {
            "moe": layer("FusedMoE", "UnquantizedFusedMoEMethod"),
            "mla": layer("MLAAttention", process_weights_after_loading=print),
            "mamba": layer("Mixer", _parameters={"A": composed}),
        }
        server = self.server()
        server.engine.device.type = "cuda"
        server.model.modules = lambda: iter(plain.values())
        self.trainer(server, encoding="replace")
        for name, other in others.items():
            with self.subTest(name):
                server = self.server()
                server.engine.device.type = "cuda"
                server.model.modules = lambda: iter([*plain.values(), other])
                with self.assertRaisesRegex(RuntimeError, "packed after loading"):
                    self.trainer(server, encoding="replace")
                self.assertEqual(server.engine._chosen("auto"), "small")

    def test_memory(self):
        """Which encoding is chosen, by the copies on a host and the bytes that are known."""
        server = self.server()
        server.engine.device.type = "cuda"
        need = 2 * sum(x.nbytes for x in self.state.values())
        free = f"MemTotal: 1 kB\nMemAvailable: {need * 3 // 1024} kB\n"
        real = open
        for replicas, known, fits in ((1, True, True), (2, True, True), (4, True, False), (1, False, False)):
            server.engine.parallel_config.data_parallel_size_local = replicas
            server.engine._known = None if known else {}

            def opened(path, *args, **how):
                return io.StringIO(free) if path == "/proc/meminfo" else real(path, *args, **how)

            with self.subTest(replicas=replicas, known=known), unittest.mock.patch("builtins.open", opened):
                self.assertEqual(server.engine._chosen("auto"), "small" if fits else "replace")

    def workers(self, name):
        self.engine_class.folder = f"{self.folder}/{name}"
        self.addCleanup(setattr, self.engine_class, "folder", None)
        found = [self.server() for _ in range(2)]
        for w in found:
            self.addCleanup(w.engine.shutdown)
        return found

    def test_kept_while_others_load(self):
        """Workers keep what they had before only until all have loaded an update, also if another trainer comes."""
        workers = self.workers("kept")
        trainer = self.trainer(vllm_stubs.Workers(*workers))
        for seed in range(2):
            trainer.send_weights()
            self.same(*workers)
            self.assertEqual([w.engine._last for w in workers], [None, None])
            self.step(seed)

    def test_worker_that_cannot_go_back(self):
        """The trainer hears of a worker whose weights are lost, and heals it by the next send."""
        for url in ("tcp://127.0.0.1:0", f"file://{self.folder}/log"):
            with self.subTest(url=url):
                self.state = weights()
                workers = self.workers("lost" + url[:3])
                trainer = self.trainer(vllm_stubs.Workers(*workers), url=url)
                trainer.send_weights()
                self.step(1)
                real = workers[0].model.load_weights
                errors = iter([None, KeyError("x")])  # the first worker loads it, and cannot go back
                with self.loading(workers[1], 1), unittest.mock.patch.object(
                    workers[0].model, "load_weights", lambda given: self.fail_once(errors, real, given)
                ):
                    with self.assertRaisesRegex(RuntimeError, "(?s)'steps'.*weights are lost until the next send"):
                        trainer.send_weights()
                trainer.send_weights()
                self.same(*workers)
                for w in workers:
                    w.engine.shutdown()

    def test_leader_is_gone(self):
        """The worker that gets updates dies: the others say so, and do not wait for it."""
        self.engine_class.folder = f"{self.folder}/together"
        self.addCleanup(setattr, self.engine_class, "folder", None)
        workers = [self.server() for _ in range(2)]
        both = vllm_stubs.Workers(*workers)
        trainer = self.trainer(both)
        trainer.send_weights()
        before = bits(self.state)
        os.close(workers[0].engine._replica._board._lock)  # as the end of its process does
        workers[0].engine._replica._board._lock = -1
        both.workers = workers[1:]
        self.step(1)
        with self.assertRaisesRegex(RuntimeError, "for all of this host is gone; it has version 0 still"):
            trainer.send_weights()
        self.assertEqual(bits(workers[1].model.weights), before)
        trainer.send_weights()
        self.same(workers[1])
        for w in workers:
            w.engine.shutdown()
