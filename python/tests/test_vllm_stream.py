# SPDX-License-Identifier: BSD-3-Clause
"""Deltas that servers get and check while the trainer makes the rest of them."""
import threading
import unittest
import unittest.mock

import test_vllm
from test_vllm import bits, stepped

import pici.vllm
from pici.vllm import _parts, _publisher, _replica, _wire
from pici.vllm._stats import Step

TIME = 20  # seconds after which a test that waits fails


class Fails(Exception):
    pass


class Streams(test_vllm.SocketCase):
    def setUp(self):
        groups = unittest.mock.patch.object(_parts, "GROUP_BYTES", 8000)
        groups.start()
        self.addCleanup(groups.stop)
        super().setUp()
        self.replica = _replica.Replica("small", "numpy")
        self.pull(self.replica)
        self.same(self.replica)
        self.staged = threading.Event()
        real = self.replica.stage

        def stage(update, rows):
            real(update, rows)
            self.staged.set()

        self.replica.stage = stage

    def pulling(self, replica, version):
        """A server's update to a version, in a thread; what it raised or got is in the list that is returned."""
        run, found, greeted = self.weights.run, [], threading.Event()
        source = _replica.Source(f"tcp://127.0.0.1:{self.publisher.port}", "secret", "t", run, version)
        real = _wire.Channel.say

        def say(channel, message):
            real(channel, message)
            if "ticket" in message:
                greeted.set()

        def pull():
            try:
                update = replica.fetch(source, lambda metas: None, Step("server"))
                replica.switch(update)
                replica.commit(update)
                found.append(update)
            except Exception as e:
                found.append(e)

        thread = threading.Thread(target=pull, daemon=True)
        with unittest.mock.patch.object(_wire.Channel, "say", say):
            thread.start()
            self.assertTrue(greeted.wait(TIME))
        return thread, found

    def update(self, state, *waits):
        """An update whose last tensor comes when all of `waits` have returned true."""
        self.state, servers = state, []

        def pairs():
            items = list(state.items())
            yield from items[:-1]
            for wait in waits:
                self.assertTrue(wait())
            yield items[-1]

        with self.publisher.held_back():
            servers.append(self.pulling(self.replica, self.weights.version + 1))
            self.weights.update(pairs(), Step("trainer"))
        return servers[0]

    def ended(self, server):
        thread, found = server
        thread.join(TIME)
        return found[0]

    def test_checked_meanwhile(self):
        """A server has checked parts of a delta before the trainer has the last tensor; nothing has changed by then."""
        old = bits(dict(self.replica.items()))

        def unchanged():
            return bits(dict(self.replica.items())) == old

        server = self.update(stepped(self.state, 1), lambda: self.staged.wait(TIME), unchanged)
        update = self.ended(server)
        self.assertIsInstance(update, _replica.Update)
        self.assertIsNone(update.whole)
        self.same(self.replica)
        self.assertEqual(self.publisher.kinds("t")[-1], "1 deltas")

    def test_behind(self):
        """A server that has missed steps gets these, and the parts of the next as they are made."""
        for seed in range(2):
            self.send(stepped(self.state, seed))
        update = self.ended(self.update(stepped(self.state, 7), lambda: self.staged.wait(TIME)))
        self.assertIsInstance(update, _replica.Update)
        self.assertIsNone(update.whole)
        self.same(self.replica)
        self.assertEqual(self.replica.version, self.weights.version)

    def test_trainer_fails(self):
        """The source fails after parts were sent and checked: the server has what it had; the next send heals it."""
        old, was = bits(dict(self.replica.items())), self.state

        def fails():
            raise Fails()

        servers = []
        real = self.pulling
        with unittest.mock.patch.object(self, "pulling", lambda *a: servers.append(real(*a)) or servers[0]):
            with self.assertRaises(Fails):
                self.update(stepped(self.state, 1), lambda: self.staged.wait(TIME), fails)
        error = self.ended(servers[0])
        self.assertIsInstance(error, _replica.Refused)
        self.assertIn("the trainer could not make this version", str(error))
        self.assertEqual(bits(dict(self.replica.items())), old)
        self.send(stepped(was, 2))
        self.pull(self.replica)
        self.same(self.replica)

    def test_after_a_failure(self):
        """A server that asks when there is nothing to wait for is told so at once."""
        with self.assertRaises(Fails):
            with self.publisher.held_back():
                self.weights.update((self.fails() for _ in range(1)), Step("trainer"))
        with self.assertRaisesRegex(OSError, "the trainer has no weights to send"):
            self.pull(self.replica)

    def fails(self):
        raise Fails()

    def test_whole_waits(self):
        """A server that needs the whole state gets it after the update, however long that takes."""
        late = _replica.Replica("small", "numpy")
        told = threading.Event()
        real = _wire.Channel.say

        def say(channel, message):
            real(channel, message)
            if message.get("wait") is True:
                told.set()

        self.replica = late
        with unittest.mock.patch.object(_publisher, "PATIENCE", 0.01):
            with unittest.mock.patch.object(_wire.Channel, "say", say):
                server = self.update(stepped(self.state, 1), lambda: told.wait(TIME))
                update = self.ended(server)
        self.assertIsInstance(update, _replica.Update)
        self.assertIsNotNone(update.whole)
        self.same(late)

    def test_waits_between_parts(self):
        """While the trainer has no part to send it says so: a server's patience is for a trainer that is gone."""
        told = threading.Event()
        real = _wire.Channel.say

        def say(channel, message):
            real(channel, message)
            if message.get("wait") is True and self.staged.is_set():
                told.set()

        with unittest.mock.patch.object(_publisher, "PATIENCE", 0.01):
            with unittest.mock.patch.object(_wire.Channel, "say", say):
                server = self.update(stepped(self.state, 1), lambda: self.staged.wait(TIME), lambda: told.wait(TIME))
                update = self.ended(server)
        self.assertIsInstance(update, _replica.Update)
        self.same(self.replica)

    def test_parts_that_make_no_sense(self):
        """A part that comes twice, of another version or of no group is refused, before anything is changed."""
        old = bits(dict(self.replica.items()))
        for words, change in (
            ("group 0", lambda version, i: [(version, 0), (version, 0)]),
            ("version 77", lambda version, i: [(77, i)]),
            ("group 999", lambda version, i: [(version, 999)]),
            ("group -1", lambda version, i: [(version, -1)]),
        ):
            with self.subTest(words):
                begun = threading.Event()  # before the update has ended: else the server gets the whole delta

                def sends(publisher, channel, coming, encoding):
                    begun.set()
                    for i, data in coming.coming(encoding, lambda: None):
                        for version, group in change(coming.version, i):
                            channel.say({"part": [version, group, len(data)]})
                            channel.send_data(data)
                    channel.say({"end": True})

                with unittest.mock.patch.object(_publisher.Publisher, "_send_coming", sends):
                    error = self.ended(self.update(stepped(self.state, 1), lambda: begun.wait(TIME)))
                self.assertIsInstance(error, _wire.WireError)
                self.assertIn(words, str(error))
                self.assertEqual(bits(dict(self.replica.items())), old)
        self.pull(self.replica)
        self.same(self.replica)

    def test_cut_between_parts(self):
        """A connection that ends between two parts leaves the server as it was."""
        old = bits(dict(self.replica.items()))
        real = _wire.Channel.send_data

        def cuts(channel, data):
            real(channel, data)
            channel._socket.shutdown(2)

        with unittest.mock.patch.object(_wire.Channel, "send_data", cuts):
            error = self.ended(self.update(stepped(self.state, 1)))
        self.assertIsInstance(error, OSError)
        self.assertEqual(bits(dict(self.replica.items())), old)
        self.pull(self.replica)
        self.same(self.replica)


class Engines(test_vllm.EngineCase):
    def begun(self, server):
        """How often the server's update_weights() was called."""
        calls, real = [], server.update_weights

        def update_weights(info):
            calls.append(info)
            called.set()
            real(info)

        called = threading.Event()
        server.update_weights = update_weights
        return calls, called

    def source(self, trainer, before_last):
        class Source:
            def __iter__(_):
                items = list(self.state.items())
                yield from items[:-1]
                before_last()
                yield items[-1]

        trainer.source = Source()

    def test_overlap(self):
        """The server's update has begun before the last tensor is gathered; with overlap=False, and with the whole
        state, after that."""
        for overlap in (True, False):
            with self.subTest(overlap=overlap):
                server = self.server()
                trainer = self.trainer(server, encoding="small", overlap=overlap)
                calls, called = self.begun(server)
                self.source(trainer, lambda: self.assertEqual(calls, []))
                trainer.send_weights()
                calls.clear()
                called.clear()
                self.step(1)
                self.source(trainer, lambda: self.assertEqual(called.wait(TIME if overlap else 0), overlap))
                trainer.send_weights()
                self.same(server)
                calls.clear()
                self.source(trainer, lambda: self.assertEqual(calls, []))
                trainer.send_weights(whole=True)
                self.same(server)

    def test_source_fails(self):
        """The trainer's own error is told; the server has what it had, and takes the next send."""
        server = self.server()
        trainer = self.trainer(server, encoding="small")
        trainer.send_weights()
        old = bits(server.model.weights)
        self.step(1)
        _, called = self.begun(server)

        def fails():
            called.wait(TIME)
            raise Fails("no more memory")

        self.source(trainer, fails)
        with self.assertRaisesRegex(Fails, "no more memory"):
            trainer.send_weights()
        self.assertFalse(server.active)
        self.assertEqual(bits(server.model.weights), old)
        self.source(trainer, lambda: None)
        trainer.send_weights()
        self.same(server)

    def test_server_fails(self):
        """A server that is gone is told of when all has been encoded; the other one has the weights."""
        gone, server = self.server(), self.server()
        trainer = self.trainer(gone, server, encoding="small")
        trainer.send_weights()
        self.step(1)
        gone.dies = "update"
        with self.assertRaisesRegex(pici.vllm.SendError, "1 of 2 servers do not have version 1"):
            trainer.send_weights()
        self.same(server)
        gone.dies = ""
        self.step(2)
        trainer.send_weights()
        self.same(gone, server)


if __name__ == "__main__":
    unittest.main()
