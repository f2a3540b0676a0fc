# SPDX-License-Identifier: BSD-3-Clause
"""Sockets between ranks that share a store: pici._peers, with a store in this process and ranks that are threads."""
import os
import selectors
import socket
import threading
import time
import unittest
from unittest import mock

from pici import _peers, errors


class Store:
    """What torch's stores do of set, get and add."""

    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}

    def set(self, key, value):
        with self.lock:
            self.values[key] = value.encode()

    def get(self, key):
        with self.lock:
            return self.values[key]

    def add(self, key, number):
        with self.lock:
            self.values[key] = str(int(self.values.get(key, b"0")) + number).encode()
            return int(self.values[key])

    def waited(self, key):
        """The value, as soon as there is one."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with self.lock:
                if key in self.values:
                    return self.values[key].decode()
            time.sleep(0.001)
        raise AssertionError(f"nothing wrote {key}")


def together(ranks, timeout=10, store=None, check=None, absent=()):
    """connect() on each rank that is not absent: its file descriptors, or the exception."""
    store = store or Store()
    results = [None] * ranks

    def one(rank):
        try:
            results[rank] = _peers.connect(store, rank, ranks, timeout, lambda: check and check(rank))
        except BaseException as e:
            results[rank] = e

    threads = [threading.Thread(target=one, args=(r,)) for r in range(ranks) if r not in absent]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
        assert not t.is_alive()
    return results


def closed(results):
    for fds in results:
        for fd in fds if isinstance(fds, list) else ():
            if fd >= 0:
                os.close(fd)


@mock.patch.dict(os.environ, {"MASTER_ADDR": "127.0.0.1"})
class Peers(unittest.TestCase):
    def test_all_pairs(self):
        for ranks in (1, 2, 3, 6):
            results = together(ranks)
            self.addCleanup(closed, results)
            for a, fds in enumerate(results):
                self.assertIsInstance(fds, list, fds)
                self.assertEqual([fd < 0 for fd in fds], [b == a for b in range(ranks)])
                for b, fd in enumerate(fds):
                    if fd >= 0:
                        os.write(fd, b"%d to %d" % (a, b))
            for a, fds in enumerate(results):
                for b, fd in enumerate(fds):
                    if fd >= 0:
                        self.assertEqual(os.read(fd, 100), b"%d to %d" % (b, a))

    def test_interface_and_ports(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        store = Store()
        with mock.patch.dict(os.environ, {"PICI_SOCKET_IFNAME": "lo", "PICI_SOCKET_PORTS": f"{port}-{port + 1}"}):
            results = together(2, store=store)
        self.addCleanup(closed, results)
        places = sorted(store.waited(str(r)).rsplit(":", 1)[0] for r in range(2))
        self.assertEqual(places, [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"])

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as s:
                s.bind(("::1", 0))
        except OSError:
            self.skipTest("this host has no ::1")
        store = Store()
        with mock.patch.dict(os.environ, {"MASTER_ADDR": "::1"}):
            results = together(3, store=store)
        self.addCleanup(closed, results)
        self.assertTrue(all(isinstance(fds, list) for fds in results), results)
        self.assertTrue(store.waited("0").startswith("::1:"))

    def test_environment_is_refused_on_all_ranks(self):
        busy = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(busy.close)
        port = busy.getsockname()[1]
        for variable, value, words in (
            ("PICI_SOCKET_IFNAME", "nix0", "there is no such network interface; there are lo"),
            ("GLOO_SOCKET_IFNAME", "nix0", "GLOO_SOCKET_IFNAME=nix0"),
            ("PICI_SOCKET_PORTS", "7", "not a range of ports"),
            ("PICI_SOCKET_PORTS", "-1-5", "not a range of ports"),
            ("PICI_SOCKET_PORTS", "9-8", "not a range inside"),
            ("PICI_SOCKET_PORTS", "0-8", "not a range inside"),
            ("PICI_SOCKET_PORTS", "1-65536", "not a range inside"),
            ("PICI_SOCKET_PORTS", f"{port}-{port}", "no port of these is free"),
            ("MASTER_ADDR", "no.such.host.invalid", "MASTER_ADDR=no.such.host.invalid"),
        ):
            with self.subTest(variable=variable, value=value):
                with mock.patch.dict(os.environ, {variable: value}):
                    for result in together(2):
                        self.assertRegex(str(result), words)

    def test_one_rank_refuses(self):
        """The others are told, and do not wait for their timeout."""
        begin = time.monotonic()

        def check(rank):
            if rank == 1:
                raise ValueError("PICI_X=y: not 0 or 1")

        results = together(3, timeout=30, check=check)
        self.assertIsInstance(results[1], ValueError)
        for rank in (0, 2):
            self.assertIsInstance(results[rank], errors.PeerError)
            self.assertIn("rank 1: PICI_X=y: not 0 or 1", str(results[rank]))
        self.assertLess(time.monotonic() - begin, 10)

    def test_absent_ranks_are_named(self):
        results = together(4, timeout=0.5, absent=(1, 3))
        self.assertTrue(any(isinstance(results[rank], TimeoutError) for rank in (0, 2)), results)
        for rank in (0, 2):
            self.assertIn("waiting for ranks 1, 3 to connect", str(results[rank]))

    def test_rank_that_never_connects(self):
        """It wrote where it listens, and died."""
        store = Store()
        store.set("1", "127.0.0.1:9:" + "0" * 32)
        store.add("ready/1", 1)
        store.add("ready", 1)
        results = together(3, timeout=20, store=store, absent=(1,))
        self.assertIn("rank 2 cannot connect to rank 1 at 127.0.0.1 port 9", str(results[2]))
        self.assertIn("rank 2 cannot connect to rank 1", str(results[0]))

    def test_other_words_in_the_store(self):
        for text in (
            "127.0.0.1:9",
            "127.0.0.1:9:00",
            "127.0.0.1:0:" + "0" * 32,
            ":9:" + "0" * 32,
            "127.0.0.1:x:" + "0" * 32,
        ):
            store = Store()
            store.set("1", text)
            store.add("ready", 1)
            results = together(2, store=store, absent=(1,))
            self.assertIsInstance(results[0], errors.PeerError)
            self.assertIn("rank 1 wrote", str(results[0]))
            self.assertIn("another version", str(results[0]))

    def test_impostors(self):
        """Connections with another greeting, or with none, do not disturb the ranks that come."""
        store, results = Store(), [None, None]

        def one(rank):
            try:
                results[rank] = _peers.connect(store, rank, 2, 20)
            except BaseException as e:
                results[rank] = e

        first = threading.Thread(target=one, args=(0,))
        first.start()
        host, port, token = store.waited("0").rsplit(":", 2)
        impostors = []
        for words in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, b"x", _peers.GREETING.pack(_peers.MAGIC, b"x" * 16, 1)):
            s = socket.create_connection((host, int(port)))
            s.sendall(words)
            impostors.append(s)
        own = bytes.fromhex(token)
        for rank in (0, 2, 2**32 - 1):  # with the token, but of a rank that is not awaited
            s = socket.create_connection((host, int(port)))
            s.sendall(_peers.GREETING.pack(_peers.MAGIC, own, rank))
            impostors.append(s)
        second = threading.Thread(target=one, args=(1,))
        second.start()
        first.join(30)
        second.join(30)
        self.addCleanup(closed, results)
        self.assertIsInstance(results[0], list, results[0])
        self.assertIsInstance(results[1], list, results[1])
        os.write(results[1][0], b"hello")
        self.assertEqual(os.read(results[0][1], 9), b"hello")
        for s in impostors:
            s.settimeout(10)
            try:
                self.assertEqual(s.recv(1), b"")
            except ConnectionResetError:
                pass
            s.close()

    def test_an_impostor_in_place_of_a_lower_rank(self):
        """What answers without this rank's token is no rank."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def answer():
            s, _ = server.accept()
            with s:
                s.sendall(b"x" * _peers.TOKEN)
                s.recv(1000)

        t = threading.Thread(target=answer)
        t.start()
        store = Store()
        store.set("0", f"127.0.0.1:{server.getsockname()[1]}:" + "0" * 32)
        store.add("ready", 1)
        results = together(2, store=store, absent=(0,))
        t.join()
        self.assertIn("is not a rank of this group", str(results[1]))


class Reading(unittest.TestCase):
    def test_no_more_than_a_greeting_is_read(self):
        meeting = _peers._Meeting(Store(), 0, 2, 10, lambda: None)
        places = [_peers._Place(r, f"127.0.0.1:{r + 1}:" + "0" * 32) for r in range(2)]
        listener = socket.create_server(("127.0.0.1", 0))
        door = _peers._Door(meeting, listener, places)
        ours, theirs = socket.socketpair()
        left = ours.dup()
        with selectors.DefaultSelector() as selector, listener, theirs, left:
            ours.setblocking(False)
            selector.register(ours, selectors.EVENT_READ)
            door.pending[ours] = (bytearray(), time.monotonic() + 10)
            theirs.sendall(b"x" * 1000)
            door.read(selector, ours)
            self.assertFalse(door.pending)
            self.assertFalse(door.greeted)
            left.setblocking(True)
            self.assertEqual(len(left.recv(2000)), 1000 - _peers.GREETING.size)
